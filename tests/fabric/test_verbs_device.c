/*
 * test_verbs_device.c - a device with RDMA as the system has it: opened by name and by address, its queue
 * pairs connected, and everything that goes wrong on the way. Most of it needs a device (Soft-RoCE in the
 * guest of scripts/test-rdma, which sets BANYAN_RDMA_TEST=1); without one it tests what is said then. What
 * needs devices that nobody has here stands in test_verbs_choice.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/verbs_device.h"
#include "fabric/verbs_private.h"

#define GUEST_ADDRESS "10.9.0.1"

static bool device_expected(void)
{
    const char *set = getenv("BANYAN_RDMA_TEST");
    return set != NULL && strcmp(set, "1") == 0;
}

static bool device_there(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (list != NULL)
        ibv_free_device_list(list);
    return list != NULL && count > 0;
}

static void need_device(void)
{
    if (!device_expected())
        skip();
}

/* ---- opening ---- */

static struct sockaddr_in address_of(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7100)};
    assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return address;
}

static struct verbs_device *open_at(const struct verbs_options *options, const char *text)
{
    struct sockaddr_in address = address_of(text);
    struct verbs_device *device = NULL;
    struct error error = {0};
    int status = verbs_device_open(&device, options, (const struct sockaddr *)(const void *)&address, &error);
    if (status != 0)
        print_message("%s\n", error.text);
    assert_int_equal(status, 0);
    assert_non_null(device);
    return device;
}

/* The message must have all of the words, of which NULL is the last. */
static void expect_refusal(const struct verbs_options *options, const char *text, int code, ...)
{
    struct sockaddr_in address = address_of(text);
    struct verbs_device *device = NULL;
    struct error error = {0};
    assert_int_equal(
        verbs_device_open(&device, options, (const struct sockaddr *)(const void *)&address, &error), code);
    assert_null(device);
    va_list words;
    va_start(words, code);
    for (const char *word; (word = va_arg(words, const char *)) != NULL;)
        if (strstr(error.text, word) == NULL)
            fail_msg("'%s' is not in: %s", word, error.text);
    va_end(words);
}

static void test_nothing_there(void **state)
{
    if (device_there())
        skip();
    struct verbs_options options = {.device = "mlx5_0"};
    expect_refusal(NULL, "127.0.0.1", BANYAN_ENOTSUP, "RDMA", "modprobe", NULL);
    expect_refusal(&options, "127.0.0.1", BANYAN_ENOTSUP, "RDMA", NULL);
}

static void test_by_address(void **state)
{
    need_device();
    struct verbs_device *device = open_at(NULL, GUEST_ADDRESS);
    union ibv_gid gid;
    struct sockaddr_in address = address_of(GUEST_ADDRESS);
    assert_true(verbs_address_gid((const struct sockaddr *)(const void *)&address, &gid));
    assert_string_equal(device->name, "rxe0");
    assert_int_equal(device->port, 1);
    assert_true(device->ethernet);
    assert_memory_equal(device->gid, gid.raw, sizeof device->gid);
    assert_int_equal(device->lid, 0);
    assert_null(device->options.device);
    assert_int_equal(device->options.timeout, 18);
    assert_int_equal(device->options.spin_us, 50);
    assert_true(device->limits.queues > 0 && device->limits.works > 0 && device->limits.completions > 0);
    assert_true(device->limits.reads_taken > 0 && device->limits.reads_begun > 0);
    assert_true(device->limits.message >= 1u << 20 && device->limits.memory >= UINT64_C(1) << 30);
    print_message("%s: %u queue pairs of %u works, %u reads, packets of %u bytes\n", device->name,
                  device->limits.queues, device->limits.works, device->limits.reads_taken,
                  verbs_mtu_bytes(device->mtu));
    verbs_device_close(device);
}

/* ---- queue pairs ---- */

#define REMOTE_ALL (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define WORDS      512u

/* Two queue pairs of one device, which are each other's other end, and a region that both may use. */
struct couple {
    struct verbs_device *device;
    struct ibv_cq *completions;
    struct ibv_qp *queues[2];
    struct wire_card ends[2];
    struct ibv_mr *region;
    uint64_t words[WORDS];
};

/* The first end serves, the second one asks. */
static struct couple *couple_make(const struct verbs_options *options)
{
    struct couple *couple = calloc(1, sizeof *couple);
    struct error error = {0};
    assert_non_null(couple);
    couple->device = open_at(options, GUEST_ADDRESS);
    couple->completions = ibv_create_cq(couple->device->context, 64, NULL, NULL, 0);
    assert_non_null(couple->completions);
    for (unsigned i = 0; i < 2; i++) {
        struct ibv_qp_init_attr attributes = {
            .send_cq = couple->completions,
            .recv_cq = couple->completions,
            .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
            .qp_type = IBV_QPT_RC,
        };
        couple->queues[i] = ibv_create_qp(couple->device->domain, &attributes);
        assert_non_null(couple->queues[i]);
        assert_int_equal(verbs_pair_begin(couple->device, couple->queues[i], i == 0 ? REMOTE_ALL : 0,
                                          &couple->ends[i], &error),
                         0);
    }
    assert_int_equal(verbs_memory_register(couple->device, couple->words, sizeof couple->words,
                                           IBV_ACCESS_LOCAL_WRITE | REMOTE_ALL, "the test's words",
                                           &couple->region, &error),
                     0);
    return couple;
}

static void couple_connect(struct couple *couple)
{
    struct error error = {0};
    for (unsigned i = 0; i < 2; i++)
        if (verbs_pair_connect(couple->device, couple->queues[i], &couple->ends[i], &couple->ends[1 - i],
                               &error) != 0)
            fail_msg("%s", error.text);
}

static void couple_free(struct couple *couple)
{
    ibv_dereg_mr(couple->region);
    for (unsigned i = 0; i < 2; i++)
        ibv_destroy_qp(couple->queues[i]);
    ibv_destroy_cq(couple->completions);
    verbs_device_close(couple->device);
    free(couple);
}

/* One request of the asking end from word 0 to word 1; how it completed. */
static enum ibv_wc_status couple_ask(struct couple *couple, enum ibv_wr_opcode operation, uint32_t key)
{
    struct ibv_sge place = {.addr = (uintptr_t)couple->words, .length = 8, .lkey = couple->region->lkey};
    struct ibv_send_wr request = {
        .sg_list = &place, .num_sge = 1, .opcode = operation, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    struct ibv_wc completion;
    uint64_t remote = (uintptr_t)&couple->words[1];
    if (operation == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.remote_addr = remote;
        request.wr.atomic.compare_add = 5;
        request.wr.atomic.rkey = key;
    } else {
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = key;
    }
    assert_int_equal(ibv_post_send(couple->queues[1], &request, &bad), 0);
    int count;
    while ((count = ibv_poll_cq(couple->completions, 1, &completion)) == 0)
        continue;
    assert_int_equal(count, 1);
    return completion.status;
}

static void test_pair(void **state)
{
    need_device();
    struct couple *couple = couple_make(NULL);
    const struct wire_card *serving = &couple->ends[0], *asking = &couple->ends[1];
    assert_int_equal(serving->queue, couple->queues[0]->qp_num);
    assert_int_equal(serving->reads_taken, couple->device->limits.reads_taken);
    assert_int_equal(asking->reads_taken, 0);
    assert_int_equal(asking->reads_begun, couple->device->limits.reads_begun);
    assert_int_not_equal(serving->packet, asking->packet);
    couple_connect(couple);
    couple->words[0] = 7;
    assert_int_equal(couple_ask(couple, IBV_WR_RDMA_WRITE, couple->region->rkey), IBV_WC_SUCCESS);
    assert_int_equal(couple->words[1], 7);
    assert_int_equal(couple_ask(couple, IBV_WR_ATOMIC_FETCH_AND_ADD, couple->region->rkey), IBV_WC_SUCCESS);
    assert_int_equal(couple->words[0], 7);
    assert_int_equal(couple->words[1], 12);
    assert_int_equal(couple_ask(couple, IBV_WR_RDMA_READ, couple->region->rkey), IBV_WC_SUCCESS);
    assert_int_equal(couple->words[0], 12);
    couple_free(couple);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_by_address),
        cmocka_unit_test(test_pair),
    };
    verbs_device_close(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
