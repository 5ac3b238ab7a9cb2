/*
 * test_soft_roce.c - what the tests in the guest stand on: a Soft-RoCE device that can do what the verbs
 * backend asks of a NIC. It uses libibverbs alone, so that when it fails, the kernel, rdma-core or the guest
 * is at fault, and nothing of Banyan. What it measures goes to standard output, for the log.
 * Usage: test_soft_roce BYTES, the size of a packet that the guest's network allows.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REGION_BYTES = 4096, SEND_REQUESTS = 16, INLINE_BYTES = 256 };
#define WAIT_POLLS 2000000000ul

static int packet_bytes;

/* Two queue pairs of one device, connected to each other: `near` posts, `far` is what it posts to. */
struct ends {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_device_attr limits;
    struct ibv_port_attr port;
    union ibv_gid gid;
    int gid_index;
    struct ibv_cq *completions;
    struct ibv_qp *near, *far;
    struct ibv_mr *own, *remote; /* `own` takes what near reads; `remote` is read and written */
    _Alignas(64) uint64_t own_words[REGION_BYTES / 8];
    _Alignas(64) uint64_t remote_words[REGION_BYTES / 8];
};

/* The GID of the IPv4 address, on RoCE v2. */
static void find_gid(struct ends *ends)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    for (int i = 0; i < ends->port.gid_tbl_len; i++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(ends->context, 1, (uint32_t)i, &entry, 0) != 0)
            continue;
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(entry.gid.raw, mapped, sizeof mapped) == 0) {
            ends->gid = entry.gid;
            ends->gid_index = i;
            return;
        }
    }
    fail_msg("no RoCE v2 GID of an IPv4 address");
}

static struct ibv_qp *make_queue(struct ends *ends)
{
    struct ibv_qp_init_attr wanted = {.send_cq = ends->completions,
                                      .recv_cq = ends->completions,
                                      .qp_type = IBV_QPT_RC,
                                      .cap = {.max_send_wr = SEND_REQUESTS,
                                              .max_recv_wr = 1,
                                              .max_send_sge = 1,
                                              .max_recv_sge = 1,
                                              .max_inline_data = INLINE_BYTES}};
    struct ibv_qp *queue = ibv_create_qp(ends->domain, &wanted);
    assert_non_null(queue);
    assert_true(wanted.cap.max_inline_data >= INLINE_BYTES);
    return queue;
}

static void connect_queue(struct ends *ends, struct ibv_qp *queue, uint32_t other, uint8_t atomics)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .port_num = 1,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                                        IBV_ACCESS_REMOTE_ATOMIC};
    assert_int_equal(ibv_modify_qp(queue, &attributes,
                                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                     0);
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                      .path_mtu = ends->port.active_mtu,
                                      .dest_qp_num = other,
                                      .max_dest_rd_atomic = atomics,
                                      .min_rnr_timer = 12};
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = ends->gid;
    attributes.ah_attr.grh.sgid_index = (uint8_t)ends->gid_index;
    attributes.ah_attr.grh.hop_limit = 64;
    assert_int_equal(ibv_modify_qp(queue, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                     0);
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = atomics};
    assert_int_equal(ibv_modify_qp(queue, &attributes,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static struct ibv_mr *registered(struct ends *ends, uint64_t *words, unsigned int access)
{
    struct ibv_mr *region = ibv_reg_mr(ends->domain, words, REGION_BYTES, access);
    assert_non_null(region);
    return region;
}

static int open_ends(void **state)
{
    struct ends *ends = aligned_alloc(64, (sizeof *ends + 63) / 64 * 64);
    assert_non_null(ends);
    memset(ends, 0, sizeof *ends);
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    assert_non_null(devices);
    assert_true(count > 0);
    ends->context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    assert_non_null(ends->context);
    assert_int_equal(ibv_query_device(ends->context, &ends->limits), 0);
    assert_int_equal(ibv_query_port(ends->context, 1, &ends->port), 0);
    find_gid(ends);
    ends->domain = ibv_alloc_pd(ends->context);
    assert_non_null(ends->domain);
    ends->completions = ibv_create_cq(ends->context, 2 * SEND_REQUESTS, NULL, NULL, 0);
    assert_non_null(ends->completions);
    ends->own = registered(ends, ends->own_words, IBV_ACCESS_LOCAL_WRITE);
    ends->remote = registered(ends, ends->remote_words,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_ATOMIC);
    ends->near = make_queue(ends);
    ends->far = make_queue(ends);
    connect_queue(ends, ends->near, ends->far->qp_num, 16);
    connect_queue(ends, ends->far, ends->near->qp_num, 16);
    *state = ends;
    return 0;
}

static int close_ends(void **state)
{
    struct ends *ends = *state;
    assert_int_equal(ibv_destroy_qp(ends->near), 0);
    assert_int_equal(ibv_destroy_qp(ends->far), 0);
    assert_int_equal(ibv_dereg_mr(ends->own), 0);
    assert_int_equal(ibv_dereg_mr(ends->remote), 0);
    assert_int_equal(ibv_destroy_cq(ends->completions), 0);
    assert_int_equal(ibv_dealloc_pd(ends->domain), 0);
    assert_int_equal(ibv_close_device(ends->context), 0);
    free(ends);
    return 0;
}

static struct ibv_wc completion(struct ends *ends)
{
    struct ibv_wc done;
    for (unsigned long i = 0; i < WAIT_POLLS; i++) {
        int got = ibv_poll_cq(ends->completions, 1, &done);
        assert_true(got >= 0);
        if (got == 1)
            return done;
    }
    fail_msg("no completion came");
    return done;
}

/* A request about `bytes` at own_words[word] here and remote_words[word] there. */
static struct ibv_send_wr request(struct ends *ends, struct ibv_sge *piece, enum ibv_wr_opcode opcode,
                                  size_t word, uint32_t bytes)
{
    *piece =
        (struct ibv_sge){.addr = (uintptr_t)&ends->own_words[word], .length = bytes, .lkey = ends->own->lkey};
    struct ibv_send_wr work = {.opcode = opcode, .sg_list = piece, .num_sge = 1};
    uint64_t address = (uintptr_t)&ends->remote_words[word];
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        work.wr.atomic.remote_addr = address;
        work.wr.atomic.rkey = ends->remote->rkey;
    } else {
        work.wr.rdma.remote_addr = address;
        work.wr.rdma.rkey = ends->remote->rkey;
    }
    return work;
}

static int post(struct ends *ends, struct ibv_send_wr *first)
{
    struct ibv_send_wr *bad;
    return ibv_post_send(ends->near, first, &bad);
}

static void test_capabilities(void **state)
{
    struct ends *ends = *state;
    const struct ibv_device_attr *limits = &ends->limits;
    struct ibv_device_attr_ex extended;
    assert_int_equal(ibv_query_device_ex(ends->context, NULL, &extended), 0);
    printf("device %s: %d queue pairs of %d requests, %d reads and atomics at once, atomics %d, mtu %d, "
           "message %u, registration %#llx, device memory %llu, on-demand %#llx\n",
           ibv_get_device_name(ends->context->device), limits->max_qp, limits->max_qp_wr,
           limits->max_qp_rd_atom, (int)limits->atomic_cap, 128 << ends->port.active_mtu,
           ends->port.max_msg_sz, (unsigned long long)limits->max_mr_size,
           (unsigned long long)extended.max_dm_size, (unsigned long long)extended.odp_caps.general_caps);
    assert_int_equal(ends->port.state, IBV_PORT_ACTIVE);
    assert_int_equal(ends->port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_true(limits->atomic_cap == IBV_ATOMIC_HCA || limits->atomic_cap == IBV_ATOMIC_GLOB);
    assert_true(limits->max_qp_rd_atom >= 16 && limits->max_qp_init_rd_atom >= 16);
    assert_true(limits->max_qp_wr >= 128);
    /* G5: a WRITE within one packet is whole. */
    assert_int_equal(128 << ends->port.active_mtu, packet_bytes);
}

/* One post, one completion: the WRITE is there when the atomics and the READ behind it run. */
static void test_list_of_all_commands(void **state)
{
    struct ends *ends = *state;
    struct ibv_sge pieces[4];
    ends->own_words[0] = 41;
    struct ibv_send_wr list[4] = {request(ends, &pieces[0], IBV_WR_RDMA_WRITE, 0, 8),
                                  request(ends, &pieces[1], IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8),
                                  request(ends, &pieces[2], IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8),
                                  request(ends, &pieces[3], IBV_WR_RDMA_READ, 0, 64)};
    pieces[1].addr += 128;
    pieces[2].addr += 136;
    pieces[3].addr += 192;
    list[0].send_flags = IBV_SEND_INLINE;
    list[1].wr.atomic.compare_add = 41;
    list[1].wr.atomic.swap = 50;
    list[2].wr.atomic.compare_add = 7;
    list[3].send_flags = IBV_SEND_SIGNALED;
    for (int i = 0; i < 3; i++)
        list[i].next = &list[i + 1];
    list[3].wr_id = 99;
    assert_int_equal(post(ends, list), 0);
    struct ibv_wc done = completion(ends);
    assert_int_equal(done.status, IBV_WC_SUCCESS);
    assert_int_equal(done.wr_id, 99);
    assert_int_equal(ends->own_words[16], 41);
    assert_int_equal(ends->own_words[17], 50);
    assert_int_equal(ends->own_words[24], 57);
    assert_int_equal(ends->remote_words[0], 57);
}

/* A CAS that does not match changes nothing and brings the word. */
static void test_failing_cas(void **state)
{
    struct ends *ends = *state;
    struct ibv_sge piece;
    ends->remote_words[3] = 5;
    struct ibv_send_wr work = request(ends, &piece, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 8);
    work.wr.atomic.compare_add = 6;
    work.wr.atomic.swap = 7;
    work.send_flags = IBV_SEND_SIGNALED;
    assert_int_equal(post(ends, &work), 0);
    assert_int_equal(completion(ends).status, IBV_WC_SUCCESS);
    assert_int_equal(ends->own_words[3], 5);
    assert_int_equal(ends->remote_words[3], 5);
}

/* Outside of the region: that queue pair breaks, with the reason, and nothing else does. */
static void test_read_out_of_range(void **state)
{
    struct ends *ends = *state;
    struct ibv_sge piece;
    struct ibv_send_wr work = request(ends, &piece, IBV_WR_RDMA_READ, 0, 8);
    work.wr.rdma.remote_addr += REGION_BYTES;
    work.send_flags = IBV_SEND_SIGNALED;
    assert_int_equal(post(ends, &work), 0);
    assert_int_equal(completion(ends).status, IBV_WC_REM_ACCESS_ERR);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr initial;
    assert_int_equal(ibv_query_qp(ends->near, &attributes, IBV_QP_STATE, &initial), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_ERR);
}

/* What the documentation says that Soft-RoCE lacks. Should it come, the tests can use it. */
static void test_no_device_memory(void **state)
{
    struct ends *ends = *state;
    struct ibv_alloc_dm_attr wanted = {.length = 4096};
    errno = 0;
    assert_null(ibv_alloc_dm(ends->context, &wanted));
    assert_int_equal(errno, EOPNOTSUPP);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_ends, close_ends)

int main(int count, char **arguments)
{
    packet_bytes = count > 1 ? atoi(arguments[1]) : 0;
    const struct CMUnitTest tests[] = {
        test(test_capabilities),      test(test_list_of_all_commands), test(test_failing_cas),
        test(test_read_out_of_range), test(test_no_device_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
