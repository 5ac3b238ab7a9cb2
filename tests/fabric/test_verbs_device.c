/*
 * test_verbs_device.c - devices with RDMA as the system has them: opened by name and by address, queue pairs
 * connected, and what goes wrong on the way. What it says where there is none is tested everywhere. The rest
 * runs in the guest of scripts/test-rdma: with BANYAN_RDMA_TEST=N there must be the N devices rxe0, rxe1, ...
 * of scripts/rdma-guest, and it may take permissions, files and the network from them.
 * Tests of devices that are not at hand are in test_verbs_choice.c, against fakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/verbs_device.h"
#include "fabric/verbs_private.h"

#define ADDRESS      "10.9.0.1"
#define SECOND       "10.9.1.1"
#define DEVICE_FILE  "/dev/infiniband/uverbs0"
#define MANAGER_FILE "/dev/infiniband/rdma_cm"

/* ---- what there is ---- */

static unsigned devices_expected(void)
{
    const char *set = getenv("BANYAN_RDMA_TEST");
    return set != NULL ? (unsigned)strtoul(set, NULL, 10) : 0;
}

static int devices_there(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (list == NULL)
        return 0;
    ibv_free_device_list(list);
    return count;
}

static void need_devices(unsigned count)
{
    if (devices_expected() < count)
        skip();
    assert_int_equal(devices_there(), devices_expected());
}

/* ---- opening ---- */

static int try_at(struct verbs_device **device, const struct verbs_options *options, const char *text,
                  struct error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7100)};
    *error = (struct error){0};
    *device = NULL;
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        return error_set(error, BANYAN_EINVAL, "'%s' is no address", text);
    return verbs_device_open(device, options, (const struct sockaddr *)(const void *)&address, error);
}

static struct verbs_device *open_at(const struct verbs_options *options, const char *text)
{
    struct verbs_device *device;
    struct error error;
    if (try_at(&device, options, text, &error) != 0)
        fail_msg("%s", error.text);
    assert_non_null(device);
    return device;
}

static void opens_as(const struct verbs_options *options, const char *text, const char *name, const char *gid)
{
    char shown[VERBS_GID_TEXT_BYTES];
    struct verbs_device *device = open_at(options, text);
    assert_string_equal(device->name, name);
    assert_int_equal(device->port, 1);
    assert_string_equal(verbs_gid_text(device->gid, shown), gid);
    verbs_device_close(device);
}

/* True if it fails so, and all of the words are in its message; the last one is NULL. */
static bool fails_with(const struct verbs_options *options, const char *text, int code,
                       const char *const *words)
{
    struct verbs_device *device;
    struct error error;
    int status = try_at(&device, options, text, &error);
    bool right = status == code && device == NULL;
    for (; right && *words != NULL; words++)
        right = strstr(error.text, *words) != NULL;
    if (!right)
        print_error("status %d (%d was expected), \"%s\": %s\n", status, code, *words ? *words : "",
                    error.text);
    verbs_device_close(device);
    return right;
}
#define refused(options, text, code, ...)                                                                    \
    fails_with((options), (text), (code), (const char *const[]){__VA_ARGS__})

/* In a process of its own without root's rights; the device, if any, stays as it was opened. */
static bool as_nobody(bool (*check)(struct verbs_device *), struct verbs_device *device)
{
    fflush(NULL);
    pid_t child = fork();
    int status = -1;
    assert_true(child >= 0);
    if (child == 0)
        _exit(setgid(65534) == 0 && setuid(65534) == 0 && check(device) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

static void test_nothing_there(void **state)
{
    if (devices_expected() > 0 || devices_there() > 0)
        skip();
    struct verbs_options options = {.device = "mlx5_0"};
    assert_true(refused(NULL, "127.0.0.1", BANYAN_ENOTSUP, NULL));
    assert_true(refused(&options, "127.0.0.1", BANYAN_ENOTSUP, NULL));
    if (access("/sys/class/infiniband", F_OK) != 0)
        assert_true(refused(NULL, "127.0.0.1", BANYAN_ENOTSUP, "no RDMA device", "modprobe", NULL));
}

static void test_choice(void **state)
{
    need_devices(1);
    struct verbs_options options = {.device = "rxe0"};
    opens_as(NULL, ADDRESS, "rxe0", "::ffff:" ADDRESS);
    opens_as(&options, ADDRESS, "rxe0", "::ffff:" ADDRESS);
    /* Addresses that no NIC has. */
    opens_as(&options, "127.0.0.1", "rxe0", "::ffff:" ADDRESS);
    opens_as(&options, "0.0.0.0", "rxe0", "::ffff:" ADDRESS);
    /* Without librdmacm's device the tables of GIDs say the same. */
    assert_int_equal(rename(MANAGER_FILE, MANAGER_FILE ".away"), 0);
    opens_as(NULL, ADDRESS, "rxe0", "::ffff:" ADDRESS);
    assert_int_equal(rename(MANAGER_FILE ".away", MANAGER_FILE), 0);
    options.device = "mlx5_0";
    assert_true(refused(&options, ADDRESS, BANYAN_ENOTSUP, "mlx5_0", "none of that name", "rxe0", NULL));
    options = (struct verbs_options){.port = 7};
    assert_true(refused(&options, ADDRESS, BANYAN_EINVAL, "rxe0 has no port 7", "it has 1", NULL));
}

static void test_device(void **state)
{
    need_devices(1);
    struct verbs_device *device = open_at(NULL, ADDRESS);
    assert_true(device->ethernet);
    assert_int_equal(device->lid, 0);
    assert_null(device->options.device);
    assert_int_equal(device->options.timeout, 18);
    assert_int_equal(device->options.spin_us, 50);
    assert_ptr_equal(device->provider, &verbs_plain);
    assert_true(device->limits.queues > 0 && device->limits.works > 0 && device->limits.completions > 0);
    assert_true(device->limits.reads_taken > 0 && device->limits.reads_begun > 0);
    assert_true(device->limits.message >= 1u << 20 && device->limits.memory >= UINT64_C(1) << 30);
    /* All but the smallest packets can be had smaller. */
    struct verbs_options options = {.mtu = 512};
    assert_true(verbs_mtu_bytes(device->mtu) > 512);
    verbs_device_close(device);
    device = open_at(&options, ADDRESS);
    assert_int_equal(device->mtu, IBV_MTU_512);
    verbs_device_close(device);
}

static void test_wrong_gid(void **state)
{
    need_devices(1);
    struct verbs_device *device = open_at(NULL, ADDRESS);
    struct verbs_options options = {.gid_index = (uint32_t)device->gid_index + 1};
    verbs_device_close(device);
    opens_as(&options, ADDRESS, "rxe0", "::ffff:" ADDRESS);
    options.gid_index = 78;
    assert_true(refused(&options, ADDRESS, BANYAN_EINVAL, "rxe0", "port 1", "index 77", "--rdma-gid", NULL));
    options.gid_index = 65536;
    assert_true(refused(&options, ADDRESS, BANYAN_EINVAL, "index 65535", NULL));
}

/* ---- permissions ---- */

static bool no_permission(struct verbs_device *device)
{
    return refused(NULL, ADDRESS, BANYAN_ENOTSUP, "rxe0", "no permission", DEVICE_FILE, "group", NULL);
}

static bool permission(struct verbs_device *none)
{
    struct error error;
    struct verbs_device *device;
    int status = try_at(&device, NULL, ADDRESS, &error);
    if (status != 0)
        print_error("%s\n", error.text);
    verbs_device_close(device);
    return status == 0;
}

static void test_permission(void **state)
{
    need_devices(1);
    struct stat before;
    assert_int_equal(stat(DEVICE_FILE, &before), 0);
    assert_int_equal(chmod(DEVICE_FILE, 0666), 0);
    assert_true(as_nobody(permission, NULL));
    assert_int_equal(chmod(DEVICE_FILE, 0600), 0);
    assert_true(as_nobody(no_permission, NULL));
    assert_int_equal(chmod(DEVICE_FILE, before.st_mode & 07777), 0);
    assert_int_equal(rename(DEVICE_FILE, DEVICE_FILE ".away"), 0);
    /* libibverbs does not show it then; if it is the only one, this is said. */
    const struct verbs_options options = {.device = "rxe0"};
    bool right = devices_expected() > 1
                     ? refused(&options, ADDRESS, BANYAN_ENOTSUP, "rxe0", "none of that name", "rxe1", NULL)
                     : refused(NULL, ADDRESS, BANYAN_ENOTSUP, DEVICE_FILE " is missing", "container", NULL);
    assert_int_equal(rename(DEVICE_FILE ".away", DEVICE_FILE), 0);
    assert_true(right);
}

/* ---- memory ---- */

#define ROOM (UINT64_C(1) << 20)

static bool registers(const struct verbs_device *device, uint64_t bytes, struct error *error)
{
    static char room[ROOM];
    struct ibv_mr *region;
    int status =
        verbs_memory_register(device, room, bytes, IBV_ACCESS_LOCAL_WRITE, "the test's room", &region, error);
    if (region != NULL)
        ibv_dereg_mr(region);
    return status == 0;
}

/* What is locked already counts too. */
static bool memlock_used_up(const struct verbs_device *device)
{
    static char first[ROOM / 4] __attribute__((aligned(4096)));
    struct ibv_mr *region;
    struct error error = {0};
    if (verbs_memory_register(device, first, sizeof first, IBV_ACCESS_LOCAL_WRITE, "the first", &region,
                              &error) != 0)
        return false;
    bool right = !registers(device, ROOM / 2 - 4096, &error) && error.code == BANYAN_ENOMEM &&
                 strstr(error.text, "the limit is 524288 (262144 in use)") != NULL;
    if (!right)
        print_error("%s\n", error.text);
    ibv_dereg_mr(region);
    return right;
}

static bool memlock_too_small(struct verbs_device *device)
{
    struct rlimit limits = {.rlim_cur = ROOM / 2, .rlim_max = ROOM / 2};
    struct error error = {0};
    if (setrlimit(RLIMIT_MEMLOCK, &limits) != 0)
        return false;
    bool right = registers(device, ROOM / 4, &error) && !registers(device, ROOM, &error) &&
                 error.code == BANYAN_ENOMEM && strstr(error.text, "the test's room") != NULL &&
                 strstr(error.text, "must lock 1048576 bytes") != NULL &&
                 strstr(error.text, "the limit is 524288") != NULL && strstr(error.text, "ulimit -l") != NULL;
    if (!right)
        print_error("%s\n", error.text);
    right = memlock_used_up(device) && right;
    limits.rlim_cur = limits.rlim_max = 0;
    return right && setrlimit(RLIMIT_MEMLOCK, &limits) == 0 && !registers(device, 4096, &error) &&
           strstr(error.text, "the limit is 0") != NULL;
}

static void test_memory(void **state)
{
    need_devices(1);
    struct verbs_device *device = open_at(NULL, ADDRESS);
    struct error error = {0};
    assert_true(registers(device, ROOM, &error));
    assert_true(as_nobody(memlock_too_small, device));
    device->limits.memory = 4096;
    assert_false(registers(device, 4097, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    assert_true(registers(device, 4096, &error));
    verbs_device_close(device);
}

/* ---- queue pairs ---- */

#define REMOTE_ALL (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define WORDS      512u

/* Two queue pairs of one device, each the other's other end, and a region that both may use. */
struct couple {
    struct verbs_device *device;
    struct ibv_cq *completions;
    struct ibv_qp *queues[2];
    struct wire_nic ends[2];
    struct ibv_mr *region;
    uint64_t words[WORDS];
};

/* The first end serves, the second one asks. */
static struct couple *couple_make(const struct verbs_options *options)
{
    struct couple *couple = calloc(1, sizeof *couple);
    struct error error = {0};
    assert_non_null(couple);
    couple->device = open_at(options, ADDRESS);
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
        int access = i == 0 ? REMOTE_ALL : 0;
        if (verbs_pair_begin(couple->device, couple->queues[i], access, &couple->ends[i], &error) != 0)
            fail_msg("%s", error.text);
    }
    if (verbs_memory_register(couple->device, couple->words, sizeof couple->words,
                              IBV_ACCESS_LOCAL_WRITE | REMOTE_ALL, "the test's words", &couple->region,
                              &error) != 0)
        fail_msg("%s", error.text);
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
        if (couple->queues[i] != NULL)
            ibv_destroy_qp(couple->queues[i]);
    ibv_destroy_cq(couple->completions);
    verbs_device_close(couple->device);
    free(couple);
}

/* One request of the asking end, of word 0 here and word 1 there; how it completed. */
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
    need_devices(1);
    struct couple *couple = couple_make(NULL);
    const struct wire_nic *serving = &couple->ends[0], *asking = &couple->ends[1];
    assert_int_equal(serving->queue, couple->queues[0]->qp_num);
    assert_int_equal(serving->reads_taken, couple->device->limits.reads_taken);
    assert_int_equal(asking->reads_taken, 0);
    assert_int_equal(asking->reads_begun, couple->device->limits.reads_begun);
    couple_connect(couple);

    struct ibv_qp_attr now;
    struct ibv_qp_init_attr made;
    assert_int_equal(ibv_query_qp(couple->queues[1], &now,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_PATH_MTU | IBV_QP_MAX_QP_RD_ATOMIC,
                                  &made),
                     0);
    assert_int_equal(now.qp_state, IBV_QPS_RTS);
    assert_int_equal(now.timeout, 18);
    assert_int_equal(now.path_mtu, couple->device->mtu);
    assert_true(now.max_rd_atomic >= couple->device->limits.reads_begun);

    couple->words[0] = 7;
    assert_int_equal(couple_ask(couple, IBV_WR_RDMA_WRITE, couple->region->rkey), IBV_WC_SUCCESS);
    assert_int_equal(couple->words[1], 7);
    assert_int_equal(couple_ask(couple, IBV_WR_ATOMIC_FETCH_AND_ADD, couple->region->rkey), IBV_WC_SUCCESS);
    assert_int_equal(couple->words[0], 7);
    assert_int_equal(couple->words[1], 12);
    assert_int_equal(couple_ask(couple, IBV_WR_RDMA_READ, couple->region->rkey), IBV_WC_SUCCESS);
    assert_int_equal(couple->words[0], 12);
    /* A key that was never given, which breaks the pair for all that follows. */
    enum ibv_wc_status status = couple_ask(couple, IBV_WR_RDMA_READ, couple->region->rkey ^ 0x100);
    assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
    assert_non_null(strstr(verbs_completion_reason(status), "remote access error"));
    assert_int_equal(couple_ask(couple, IBV_WR_RDMA_READ, couple->region->rkey), IBV_WC_WR_FLUSH_ERR);
    couple_free(couple);
}

/* Both ends with the smaller of their packets, and the shortest wait for an answer that does not come. */
static void test_peer_gone(void **state)
{
    need_devices(1);
    const struct verbs_options options = {.timeout = 10, .mtu = 512, .traffic_class = 104};
    struct couple *couple = couple_make(&options);
    struct ibv_qp_attr now;
    struct ibv_qp_init_attr made;
    couple->ends[0].mtu = IBV_MTU_256;
    struct error error = {0};
    if (verbs_pair_connect(couple->device, couple->queues[1], &couple->ends[1], &couple->ends[0], &error) !=
        0)
        fail_msg("%s", error.text);
    assert_int_equal(
        ibv_query_qp(couple->queues[1], &now, IBV_QP_TIMEOUT | IBV_QP_PATH_MTU | IBV_QP_AV, &made), 0);
    assert_int_equal(now.timeout, 10);
    assert_int_equal(now.path_mtu, IBV_MTU_256);
    assert_int_equal(now.ah_attr.grh.traffic_class, 104);
    assert_int_equal(now.ah_attr.grh.hop_limit, 64);
    ibv_destroy_qp(couple->queues[0]);
    couple->queues[0] = NULL;
    enum ibv_wc_status status = couple_ask(couple, IBV_WR_RDMA_READ, couple->region->rkey);
    assert_int_equal(status, IBV_WC_RETRY_EXC_ERR);
    assert_non_null(strstr(verbs_completion_reason(status), "gone"));
    couple_free(couple);
}

/* The place of a link-local GID in the table, and one more: as the option is. */
static uint32_t link_local_option(void)
{
    struct verbs_device *device = open_at(NULL, ADDRESS);
    struct ibv_gid_entry entry;
    uint32_t index = 0;
    while (ibv_query_gid_ex(device->context, 1, index, &entry, 0) != 0 || entry.gid.raw[0] != 0xfe)
        assert_true(++index < 16);
    verbs_device_close(device);
    return index + 1;
}

/* IPv6, since the kernel takes an IPv4 address without a route for one of the same network. */
static void cannot_connect(const struct verbs_options *options, int code, const char *from, const char *word)
{
    struct couple *couple = couple_make(options);
    struct wire_nic theirs = couple->ends[0];
    struct error error = {0};
    assert_int_equal(inet_pton(AF_INET6, "fd99::7", theirs.gid), 1);
    int status = verbs_pair_connect(couple->device, couple->queues[1], &couple->ends[1], &theirs, &error);
    couple_free(couple);
    if (status != code || strstr(error.text, word) == NULL || strstr(error.text, from) == NULL ||
        strstr(error.text, "to fd99::7") == NULL)
        fail_msg("%d: %s", status, error.text);
}

static void test_unreachable(void **state)
{
    need_devices(1);
    struct verbs_options options = {.gid_index = link_local_option()};
    cannot_connect(NULL, BANYAN_EINVAL, "GID ::ffff:" ADDRESS, "--rdma-gid");
    cannot_connect(&options, BANYAN_ENET, "GID fe80::", "no way from");
}

/* ---- the network goes ---- */

static void interface_set(const char *name, bool up)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &request), 0);
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

/* Until the address is back in the table of GIDs, which the kernel fills when it likes. */
static void await_address(const char *text, const char *name)
{
    char wanted[64], shown[VERBS_GID_TEXT_BYTES];
    snprintf(wanted, sizeof wanted, "::ffff:%s", text);
    for (bool back = false; !back;) {
        struct verbs_device *device;
        struct error error;
        if (try_at(&device, NULL, text, &error) == 0)
            back = strcmp(device->name, name) == 0 && strcmp(verbs_gid_text(device->gid, shown), wanted) == 0;
        verbs_device_close(device);
    }
}

static void test_down(void **state)
{
    need_devices(1);
    const struct verbs_options options = {.device = "rxe0"};
    interface_set("dummy0", false);
    assert_true(refused(&options, ADDRESS, BANYAN_ENET, "rxe0", "port 1 is down", "ip link set", NULL));
    if (devices_expected() == 1)
        assert_true(refused(NULL, "127.0.0.1", BANYAN_ENET, "rxe0", "port 1 is down", NULL));
    else
        opens_as(NULL, "127.0.0.1", "rxe1", "::ffff:" SECOND);
    interface_set("dummy0", true);
    await_address(ADDRESS, "rxe0");
}

static void test_two(void **state)
{
    need_devices(2);
    struct verbs_options options = {.device = "rxe1"};
    opens_as(NULL, ADDRESS, "rxe0", "::ffff:" ADDRESS);
    opens_as(NULL, SECOND, "rxe1", "::ffff:" SECOND);
    opens_as(&options, ADDRESS, "rxe1", "::ffff:" SECOND);
    opens_as(&options, "127.0.0.1", "rxe1", "::ffff:" SECOND);
    assert_true(refused(NULL, "127.0.0.1", BANYAN_EINVAL, "several RDMA devices", "rxe0", "rxe1",
                        "--rdma-device", NULL));
    assert_int_equal(rename(MANAGER_FILE, MANAGER_FILE ".away"), 0);
    opens_as(NULL, ADDRESS, "rxe0", "::ffff:" ADDRESS);
    opens_as(NULL, SECOND, "rxe1", "::ffff:" SECOND);
    assert_true(refused(NULL, "192.168.77.7", BANYAN_EINVAL, "several RDMA devices", NULL));
    assert_int_equal(rename(MANAGER_FILE ".away", MANAGER_FILE), 0);
}

/* The first one: a device that was ever opened here is held by librdmacm until the process ends, and the
 * kernel waits for that before it deletes one. */
static void test_deleted(void **state)
{
    need_devices(1);
    if (devices_expected() > 1)
        skip();
    const struct verbs_options options = {.device = "rxe0"};
    assert_int_equal(system("rdma link delete rxe0"), 0);
    assert_true(refused(NULL, ADDRESS, BANYAN_ENOTSUP, "no RDMA device", "rdma link", NULL));
    assert_true(refused(&options, ADDRESS, BANYAN_ENOTSUP, "no RDMA device", NULL));
    assert_int_equal(system("rdma link add rxe0 type rxe netdev dummy0"), 0);
    await_address(ADDRESS, "rxe0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_there), cmocka_unit_test(test_deleted),
        cmocka_unit_test(test_choice),        cmocka_unit_test(test_device),
        cmocka_unit_test(test_wrong_gid),     cmocka_unit_test(test_permission),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_pair),
        cmocka_unit_test(test_peer_gone),     cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_down),          cmocka_unit_test(test_two),
    };
    verbs_device_close(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
