/*
 * test_verbs_choice.c - which device, port and GID, and what is said where there is none; what queue pairs
 * are told, and how another end is validated: against devices that a test describes (fake_verbs.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/verbs_device.h"
#include "fabric/verbs_private.h"
#include "failing.h"
#include "fake_verbs.h"

/* ---- helpers ---- */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_un local;
};

static union address address_of(const char *text)
{
    union address address = {0};
    if (strchr(text, ':') != NULL) {
        address.six.sin6_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &address.six.sin6_addr), 1);
    } else {
        address.four.sin_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &address.four.sin_addr), 1);
    }
    return address;
}

static int open_at(struct verbs_device **device, const struct verbs_options *options, const char *text,
                   struct error *error)
{
    union address address = address_of(text);
    *error = (struct error){0};
    return verbs_device_open(device, options, &address.any, error);
}

/* What stands before a message where people see it ("memory node rdma://10.0.0.1:7100: its NIC: ") must have
 * room too; test_long_messages has names that are longer than real ones. */
#define TEXT_MOST 204u
static size_t text_most = TEXT_MOST;

/* All of the words, the last one NULL, and nothing that will be cut off at the end. */
static void check_words(const struct error *error, const char *const *words)
{
    if (strlen(error->text) > text_most)
        fail_msg("too long: %s", error->text);
    for (; *words != NULL; words++)
        if (strstr(error->text, *words) == NULL)
            fail_msg("'%s' is not in: %s", *words, error->text);
}

static void check_error(const struct error *error, int code, const char *const *words)
{
    assert_int_equal(error->code, code);
    check_words(error, words);
}
#define says(error, code, ...) check_error((error), (code), (const char *const[]){__VA_ARGS__})

static void check_refusal(const struct verbs_options *options, const char *text, int code,
                          const char *const *words)
{
    struct verbs_device *device = (struct verbs_device *)&fake;
    struct error error;
    assert_int_equal(open_at(&device, options, text, &error), code);
    assert_null(device);
    check_error(&error, code, words);
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake.domains, 0);
}
#define refused(options, text, code, ...)                                                                    \
    check_refusal((options), (text), (code), (const char *const[]){__VA_ARGS__})

static struct verbs_device *opened(const struct verbs_options *options, const char *text)
{
    struct verbs_device *device;
    struct error error;
    if (open_at(&device, options, text, &error) != 0)
        fail_msg("%s", error.text);
    assert_int_equal(fake.contexts, 1);
    assert_int_equal(fake.domains, 1);
    return device;
}

static void close_all(struct verbs_device *device)
{
    verbs_device_close(device);
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake.domains, 0);
}

static void opens_as(const struct verbs_options *options, const char *text, const char *name, unsigned port)
{
    struct verbs_device *device = opened(options, text);
    assert_string_equal(device->name, name);
    assert_int_equal(device->port, port);
    close_all(device);
}

/* Two devices of two ports, an address on each port: 10.0.DEVICE.PORT. */
static void two_devices(void)
{
    fake_verbs_start();
    for (unsigned i = 0; i < 2; i++) {
        unsigned device = fake_verbs_device(i == 0 ? "nic0" : "nic1");
        fake.devices[device].ports = 2;
        for (unsigned port = 1; port <= 2; port++) {
            char text[40];
            snprintf(text, sizeof text, "::ffff:10.0.%u.%u", device, port);
            fake_verbs_gid(device, port, 3, IBV_GID_TYPE_ROCE_V2, text);
        }
    }
}

/* One with one port, which has 10.0.0.1. */
static void one_device(void)
{
    fake_verbs_start();
    fake_verbs_device("nic0");
    fake_verbs_gid(0, 1, 3, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1");
}

/* ---- addresses ---- */

static void test_address_gid(void **state)
{
    static const char *const none[] = {
        "0.0.0.0", "127.0.0.1", "127.9.9.9", "::", "::1", "::ffff:127.0.0.1", "::ffff:0.0.0.0"};
    static const char *const some[][2] = {{"10.0.0.1", "::ffff:10.0.0.1"},
                                          {"::ffff:10.0.0.1", "::ffff:10.0.0.1"},
                                          {"fd00::7", "fd00::7"},
                                          {"fe80::1", "fe80::1"}};
    union ibv_gid gid;
    union address address;
    char text[VERBS_GID_TEXT_BYTES];
    assert_false(verbs_address_gid(NULL, &gid));
    address = (union address){.local = {.sun_family = AF_UNIX, .sun_path = "/run/x"}};
    assert_false(verbs_address_gid(&address.any, &gid));
    for (unsigned i = 0; i < sizeof none / sizeof *none; i++) {
        address = address_of(none[i]);
        assert_false(verbs_address_gid(&address.any, &gid));
    }
    for (unsigned i = 0; i < sizeof some / sizeof *some; i++) {
        address = address_of(some[i][0]);
        assert_true(verbs_address_gid(&address.any, &gid));
        assert_string_equal(verbs_gid_text(gid.raw, text), some[i][1]);
    }
}

/* ---- no device ---- */

static void absent(const char *folder, int reason, const char *word)
{
    struct error error = {0};
    assert_int_equal(verbs_absent(folder, folder, reason, &error), BANYAN_ENOTSUP);
    says(&error, BANYAN_ENOTSUP, word, NULL);
}

static void make(const char *folder, const char *name, bool file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!file) {
        assert_int_equal(mkdir(path, 0700), 0);
        return;
    }
    FILE *made = fopen(path, "w");
    assert_non_null(made);
    assert_int_equal(fclose(made), 0);
}

static void test_absent(void **state)
{
    char folder[] = "/tmp/test_verbs_XXXXXX", command[80];
    assert_non_null(mkdtemp(folder));
    absent(folder, 0, "no RDMA device");
    absent(folder, ENOSYS, "no RDMA device");
    absent(folder, EIO, strerror(EIO));
    make(folder, "infiniband", false);
    absent(folder, 0, "no RDMA device");
    make(folder, "infiniband/nic7", false);
    absent(folder, 0, "nic7 is out of reach");
    absent(folder, ENOSYS, "modprobe ib_uverbs");
    make(folder, "infiniband_verbs", false);
    absent(folder, 0, "modprobe ib_uverbs");
    make(folder, "infiniband_verbs/abi_version", true);
    absent(folder, 0, "no RDMA device");
    absent(folder, ENOSYS, "same version");
    make(folder, "infiniband_verbs/uverbs4", false);
    absent(folder, 0, "/uverbs4 is missing");
    make(folder, "uverbs4", true);
    absent(folder, 0, "no driver for /");
    absent(folder, ENOSYS, "same version");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);

    /* What it says depends on the system that this runs on. */
    fake_verbs_start();
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, NULL);
    fake.no_list = EMFILE;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "cannot be listed", strerror(EMFILE), NULL);
}

/* ---- the choice of a device ---- */

static void test_by_name(void **state)
{
    two_devices();
    struct verbs_options options = {.device = "nic1"};
    opens_as(&options, "127.0.0.1", "nic1", 1);
    opens_as(&options, "10.0.1.2", "nic1", 2);
    /* An address of the other one: the name counts. */
    opens_as(&options, "10.0.0.2", "nic1", 1);
    fake.manager = true;
    fake.manager_device = "nic0";
    fake.manager_port = 2;
    opens_as(&options, "10.0.0.2", "nic1", 1);
    fake.devices[1].port[0].state = IBV_PORT_DOWN;
    opens_as(&options, "127.0.0.1", "nic1", 2);
    options.device = "nic7";
    refused(&options, "127.0.0.1", BANYAN_ENOTSUP, "nic7", "none of that name", "nic0, nic1 (", NULL);
    /* As many as there is room for. */
    char names[FAKE_DEVICES][16];
    fake_verbs_start();
    for (unsigned i = 0; i < FAKE_DEVICES; i++) {
        snprintf(names[i], sizeof names[i], "mlx5_%u", i);
        fake_verbs_device(names[i]);
    }
    refused(&options, "127.0.0.1", BANYAN_ENOTSUP, "mlx5_0, mlx5_1, ", " ... (", NULL);
    options.device = "a name that is much longer than sixty-four bytes, and it is none of a device anyway";
    refused(&options, "127.0.0.1", BANYAN_ENOTSUP, "a name that is much", " ... (", NULL);
    refused(NULL, "127.0.0.1", BANYAN_EINVAL, "several RDMA devices", " ...)", "--rdma-device", NULL);
}

static void test_by_manager(void **state)
{
    two_devices();
    fake.manager = true;
    fake.manager_device = "nic1";
    fake.manager_port = 2;
    struct verbs_device *device = opened(NULL, "10.0.1.2");
    assert_string_equal(device->name, "nic1");
    assert_int_equal(device->port, 2);
    /* Once by the manager, once by us; the other device is left alone. */
    assert_int_equal(fake.opened, 2);
    assert_int_equal(fake.manager_asked, 1);
    close_all(device);
    /* A port that was asked for counts more than the address. */
    struct verbs_options options = {.device = "nic1", .port = 1};
    opens_as(&options, "10.0.1.2", "nic1", 1);
    /* It knows nothing of loopback, and is not asked. */
    fake.manager_asked = 0;
    options = (struct verbs_options){.device = "nic0"};
    opens_as(&options, "127.0.0.1", "nic0", 1);
    assert_int_equal(fake.manager_asked, 0);
    /* It says a port that is down: then that is said, and no other one taken. */
    fake.devices[1].port[1].state = IBV_PORT_DOWN;
    refused(NULL, "10.0.1.2", BANYAN_ENET, "nic1", "port 2", "down", NULL);
    /* A device that it alone sees. */
    fake.manager_device = "gone";
    opens_as(NULL, "10.0.0.1", "nic0", 1);
}

static void test_by_gid(void **state)
{
    two_devices();
    opens_as(NULL, "10.0.0.1", "nic0", 1);
    opens_as(NULL, "10.0.0.2", "nic0", 2);
    opens_as(NULL, "::ffff:10.0.1.1", "nic1", 1);
    opens_as(NULL, "10.0.1.2", "nic1", 2);
    /* The manager is there and knows nothing. */
    fake.manager = true;
    opens_as(NULL, "10.0.1.2", "nic1", 2);
    refused(NULL, "10.0.9.9", BANYAN_EINVAL, "several RDMA devices", "(nic0, nic1)", "--rdma-device", NULL);
    struct verbs_options options = {.port = 1};
    refused(&options, "10.0.1.2", BANYAN_EINVAL, "several RDMA devices", NULL);
    fake.devices[1].port[1].state = IBV_PORT_DOWN;
    refused(NULL, "10.0.1.2", BANYAN_ENET, "nic1", "port 2", "down", NULL);
    fake.no_gids = EIO;
    refused(NULL, "10.0.0.1", BANYAN_EINVAL, "several RDMA devices", NULL);
}

static void test_the_only_one(void **state)
{
    static const char *const addresses[] = {"127.0.0.1", "0.0.0.0", "::", "::1", "192.168.1.1"};
    one_device();
    for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++)
        opens_as(NULL, addresses[i], "nic0", 1);
    struct verbs_device *device;
    assert_int_equal(verbs_device_open(&device, NULL, NULL, NULL), 0);
    close_all(device);
    /* Others that cannot be used do not count. */
    two_devices();
    fake.devices[0].port[0].state = fake.devices[0].port[1].state = IBV_PORT_DOWN;
    opens_as(NULL, "127.0.0.1", "nic1", 1);
    fake.devices[0].port[0].state = IBV_PORT_ACTIVE;
    refused(NULL, "127.0.0.1", BANYAN_EINVAL, "several RDMA devices", NULL);
    fake.devices[0].no_access = EACCES;
    opens_as(NULL, "127.0.0.1", "nic1", 1);
    fake.devices[0].no_access = 0;
    fake.devices[0].transport = IBV_TRANSPORT_IWARP;
    opens_as(NULL, "127.0.0.1", "nic1", 1);
    /* Of several that cannot be used, the first says why. */
    fake.devices[1].atomics = IBV_ATOMIC_NONE;
    refused(NULL, "127.0.0.1", BANYAN_ENOTSUP, "nic0", "iWARP", NULL);
}

/* ---- devices that are of no use ---- */

static void test_no_permission(void **state)
{
    one_device();
    fake.devices[0].no_access = EACCES;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "nic0", "no permission", "/dev/infiniband/uverbs0", "group",
            NULL);
    fake.devices[0].no_access = ENOENT;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "nic0 cannot be opened", "/dev/infiniband/uverbs0",
            strerror(ENOENT), NULL);
    fake.devices[0].no_access = 0;
    fake.devices[0].no_open = EMFILE;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "nic0 cannot be opened", strerror(EMFILE), NULL);
}

static void test_no_atomics(void **state)
{
    one_device();
    fake.devices[0].transport = IBV_TRANSPORT_IWARP;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "nic0", "iWARP has no atomics", "tcp://", NULL);
    fake.devices[0].transport = IBV_TRANSPORT_UNSPECIFIED;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "nic0", "neither InfiniBand nor RoCE", NULL);
    fake.devices[0].transport = IBV_TRANSPORT_IB;
    fake.devices[0].atomics = IBV_ATOMIC_NONE;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "nic0", "no atomics", NULL);
    fake.devices[0].atomics = IBV_ATOMIC_GLOB;
    opens_as(NULL, "10.0.0.1", "nic0", 1);
    /* When it is looked at among others, when it is opened, and when its limits are read. */
    fake.devices[0].no_query = EIO;
    for (unsigned i = 0; i < 3; i++) {
        fake.queries = 0;
        fake.devices[0].queries = i;
        refused(NULL, "127.0.0.1", BANYAN_ENET, "nic0", "does not say what it can", NULL);
    }
    fake.queries = fake.devices[0].queries = 0;
    refused(NULL, "10.0.0.1", BANYAN_ENET, "nic0", "does not say what it can", NULL);
}

static void test_ports(void **state)
{
    one_device();
    struct verbs_options options = {.port = 2};
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "nic0 has no port 2", "--rdma-port", "it has 1", NULL);
    fake.devices[0].ports = 2;
    fake_verbs_gid(0, 2, 0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.2");
    opens_as(&options, "10.0.0.1", "nic0", 2);
    fake.devices[0].port[1].state = IBV_PORT_DOWN;
    refused(&options, "127.0.0.1", BANYAN_ENET, "nic0", "port 2 is down", "ip link set", NULL);
    fake.devices[0].port[1].state = IBV_PORT_INIT;
    refused(&options, "127.0.0.1", BANYAN_ENET, "port 2", "subnet manager", "PORT_INIT", NULL);
    fake.devices[0].port[1].state = IBV_PORT_ARMED;
    refused(&options, "127.0.0.1", BANYAN_ENET, "port 2", "subnet manager", "PORT_ARMED", NULL);
    fake.devices[0].port[1].state = IBV_PORT_NOP;
    refused(&options, "127.0.0.1", BANYAN_ENET, "port 2", "not in a state", NULL);
    fake.devices[0].port[1].state = IBV_PORT_ACTIVE_DEFER;
    opens_as(&options, "127.0.0.1", "nic0", 2);
    /* librdmacm knows a port that the device does not. */
    fake.manager = true;
    fake.manager_device = "nic0";
    fake.manager_port = 5;
    refused(NULL, "10.0.0.1", BANYAN_EINVAL, "nic0 has no port 5", NULL);
    fake.manager = false;
    fake.no_domain = ENOMEM;
    refused(&options, "127.0.0.1", BANYAN_ENOMEM, "no protection domain", strerror(ENOMEM), NULL);
}

static int out_of_memory_attempt(void *with_manager)
{
    struct verbs_device *device;
    struct error error;
    fake.manager = with_manager != NULL;
    int status = open_at(&device, NULL, "10.0.0.1", &error);
    verbs_device_close(device);
    assert_int_equal(status, error.code);
    assert_int_equal(status == 0, error.text[0] == 0);
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake.domains, 0);
    return status;
}

static void test_out_of_memory(void **state)
{
    const struct failing_order order = {.calls = FAILING_MEMORY, .count = 1, .error = ENOMEM};
    one_device();
    fake.manager_device = "nic0";
    fake.manager_port = 1;
    assert_true(failing_each(&order, out_of_memory_attempt, NULL, BANYAN_ENOMEM) >= 5);
    assert_true(failing_each(&order, out_of_memory_attempt, state, BANYAN_ENOMEM) >= 5);
}

/* ---- options ---- */

static void test_options(void **state)
{
    static const struct {
        struct verbs_options options;
        const char *word;
    } wrong[] = {
        {{.port = 255}, "--rdma-port"},
        {{.mtu = 128}, "--rdma-mtu"},
        {{.mtu = 1500}, "--rdma-mtu"},
        {{.mtu = 8192}, "--rdma-mtu"},
        {{.traffic_class = 256}, "--rdma-traffic-class"},
        {{.service_level = 16}, "--rdma-service-level"},
        {{.timeout = 32}, "--rdma-timeout"},
    };
    one_device();
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(&wrong[i].options, "10.0.0.1", BANYAN_EINVAL, wrong[i].word, NULL);
    assert_int_equal(fake.opened, 0);
    struct verbs_options most = {
        .device = "nic0", .port = 1, .traffic_class = 255, .service_level = 15, .timeout = 31};
    struct verbs_device *device = opened(&most, "10.0.0.1");
    assert_null(device->options.device);
    assert_int_equal(device->options.timeout, 31);
    assert_int_equal(device->options.spin_us, 50);
    assert_int_equal(device->options.traffic_class, 255);
    close_all(device);
}

static void test_mtu(void **state)
{
    one_device();
    for (unsigned port = IBV_MTU_256; port <= IBV_MTU_4096; port++) {
        fake.devices[0].port[0].active_mtu = (enum ibv_mtu)port;
        struct verbs_device *device = opened(NULL, "10.0.0.1");
        assert_int_equal(device->mtu, port);
        assert_int_equal(verbs_mtu_bytes(device->mtu), 128u << port);
        close_all(device);
        for (unsigned wanted = IBV_MTU_256; wanted <= IBV_MTU_4096; wanted++) {
            struct verbs_options options = {.mtu = 128u << wanted};
            if (wanted > port) {
                refused(&options, "10.0.0.1", BANYAN_EINVAL, "nic0", "port 1", "--rdma-mtu", "at most", NULL);
                continue;
            }
            device = opened(&options, "10.0.0.1");
            assert_int_equal(device->mtu, wanted);
            close_all(device);
        }
    }
}

static void test_limits(void **state)
{
    one_device();
    fake.devices[0].port[0].lid = 9;
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_int_equal(device->limits.queues, 1000);
    assert_int_equal(device->limits.works, 512);
    assert_int_equal(device->limits.completions, UINT32_MAX);
    assert_int_equal(device->limits.reads_taken, 16);
    assert_int_equal(device->limits.reads_begun, 255);
    assert_int_equal(device->limits.message, 1u << 30);
    assert_int_equal(device->limits.memory, 1u << 20);
    assert_int_equal(device->lid, 0);
    assert_true(device->ethernet);
    assert_ptr_equal(device->provider, &verbs_plain);
    close_all(device);
    if (verbs_mlx5() == NULL)
        return;
    fake.devices[0].nvidia = true;
    device = opened(NULL, "10.0.0.1");
    assert_ptr_equal(device->provider, verbs_mlx5());
    close_all(device);
}

/* ---- GIDs ---- */

static void takes_gid(const struct verbs_options *options, const char *address, unsigned index,
                      const char *gid)
{
    char text[VERBS_GID_TEXT_BYTES];
    struct verbs_device *device = opened(options, address);
    assert_int_equal(device->gid_index, index);
    assert_string_equal(verbs_gid_text(device->gid, text), gid);
    close_all(device);
}

/* Each entry is better than all that came before; they stand in the table in any order. */
static void test_gid_worth(void **state)
{
    static const struct {
        enum ibv_gid_type type;
        unsigned index;
        const char *gid;
    } entries[] = {
        {IBV_GID_TYPE_ROCE_V1, 9, "fe80::1"},         {IBV_GID_TYPE_ROCE_V1, 2, "fd00::2"},
        {IBV_GID_TYPE_ROCE_V1, 8, "::ffff:10.0.0.7"}, {IBV_GID_TYPE_ROCE_V1, 3, "::ffff:10.0.0.1"},
        {IBV_GID_TYPE_ROCE_V2, 7, "fe80::1"},         {IBV_GID_TYPE_ROCE_V2, 4, "fd00::2"},
        {IBV_GID_TYPE_ROCE_V2, 6, "::ffff:10.0.0.7"}, {IBV_GID_TYPE_ROCE_V2, 5, "::ffff:10.0.0.1"},
    };
    const unsigned count = sizeof entries / sizeof *entries;
    for (unsigned order = 0; order < 2; order++)
        for (unsigned so_many = 1; so_many <= count; so_many++) {
            fake_verbs_start();
            fake_verbs_device("nic0");
            for (unsigned i = 0; i < so_many; i++) {
                unsigned at = order == 0 ? i : so_many - 1 - i;
                fake_verbs_gid(0, 1, entries[at].index, entries[at].type, entries[at].gid);
            }
            /* What cannot be told to a queue pair, and what is another port's. */
            fake_verbs_gid(0, 1, 256, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1");
            fake_verbs_gid(0, 2, 1, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1");
            fake.devices[0].port[0].gid_tbl_len = 1024;
            takes_gid(NULL, "10.0.0.1", entries[so_many - 1].index, entries[so_many - 1].gid);
        }
    takes_gid(NULL, "fd00::2", 4, "fd00::2");
    /* Without an address, the first of the best. */
    takes_gid(NULL, "127.0.0.1", 5, "::ffff:10.0.0.1");
}

static void test_gid_index(void **state)
{
    two_devices();
    fake_verbs_gid(0, 1, 0, IBV_GID_TYPE_ROCE_V1, "fe80::1");
    fake_verbs_gid(0, 2, 5, IBV_GID_TYPE_ROCE_V2, "fd00::5");
    struct verbs_options options = {.gid_index = 1};
    takes_gid(&options, "10.0.0.1", 0, "fe80::1");
    options.gid_index = 4;
    takes_gid(&options, "10.0.0.1", 3, "::ffff:10.0.0.1");
    /* In the other port's table only. */
    options.gid_index = 6;
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "nic0", "port 1", "index 5", "(of 16, used: 3, 0)",
            "--rdma-gid", "show_gids", NULL);
    options.gid_index = 70000;
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "index 69999", NULL);
    /* More than a queue pair can be told. */
    fake.devices[0].port[0].gid_tbl_len = 1024;
    fake_verbs_gid(0, 1, 256, IBV_GID_TYPE_ROCE_V2, "fd00::6");
    options.gid_index = 257;
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "index 256", "(of 1024, used: 3, 0)", NULL);
    for (unsigned i = 0; i < 50; i++)
        fake_verbs_gid(0, 1, 100 + i, IBV_GID_TYPE_ROCE_V2, "fd00::6");
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "used: 3, 0, 100, ", " ...)", "show_gids", NULL);
}

static void test_no_gids(void **state)
{
    fake_verbs_start();
    fake_verbs_device("nic0");
    refused(NULL, "10.0.0.1", BANYAN_ENET, "nic0", "port 1 has no GID", "ip address add", NULL);
    struct verbs_options options = {.gid_index = 1};
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "used: none)", NULL);
    fake.no_gids = EIO;
    refused(NULL, "10.0.0.1", BANYAN_ENET, "nic0", "table of GIDs cannot be read", strerror(EIO), NULL);
    fake.no_gids = 0;
    fake.devices[0].port[0].gid_tbl_len = 0;
    refused(NULL, "10.0.0.1", BANYAN_ENET, "port 1 has no GID", NULL);
}

static void test_infiniband(void **state)
{
    fake_verbs_start();
    fake_verbs_device("nic0");
    fake.devices[0].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
    fake.devices[0].port[0].lid = 0x12;
    fake_verbs_gid(0, 1, 1, IBV_GID_TYPE_IB, "fe80::2");
    fake_verbs_gid(0, 1, 0, IBV_GID_TYPE_IB, "fe80::1");
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_false(device->ethernet);
    assert_int_equal(device->lid, 0x12);
    close_all(device);
    takes_gid(NULL, "10.0.0.1", 0, "fe80::1");
    struct verbs_options options = {.gid_index = 2};
    takes_gid(&options, "10.0.0.1", 1, "fe80::2");
}

/* ---- memory ---- */

/* What a registration says that fails for the reason. */
static struct error registration(const struct verbs_device *device, int reason)
{
    static char memory[4096];
    struct ibv_mr *region = (struct ibv_mr *)(void *)memory;
    struct error error = {0};
    fake.no_region = reason;
    int status = verbs_memory_register(device, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE, "the pool",
                                       &region, &error);
    return status != 0 && status == error.code && region == NULL ? error : (struct error){0};
}

static void test_register(void **state)
{
    static char memory[4096];
    struct ibv_mr *region;
    struct error error = {0};
    one_device();
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_int_equal(verbs_memory_register(device, memory, sizeof memory,
                                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND, "the pool", &region,
                                           &error),
                     0);
    assert_non_null(region);
    assert_int_equal(fake.region_access, IBV_ACCESS_REMOTE_READ);
    assert_int_equal(verbs_memory_register(device, memory, (1u << 20) + 1, 0, "the pool", &region, &error),
                     BANYAN_EINVAL);
    assert_null(region);
    says(&error, BANYAN_EINVAL, "the pool", "nic0", "at most 1048576 bytes", "not 1048577", NULL);
    error = registration(device, EFAULT);
    says(&error, BANYAN_ENOMEM, "the pool", "4096 bytes", "huge pages", NULL);
    error = registration(device, EINVAL);
    says(&error, BANYAN_EINVAL, "the pool", "nic0", strerror(EINVAL), NULL);
    close_all(device);
}

static bool registration_says(const struct verbs_device *device, int reason, const char *word)
{
    struct error error = registration(device, reason);
    bool right = error.code == BANYAN_ENOMEM && strstr(error.text, word) != NULL;
    if (!right)
        print_error("not \"%s\" but: %s\n", word, error.text);
    return right;
}

/* In a process of its own, which gives up its rights. */
static bool memlock_child(const struct verbs_device *device)
{
    const char *regions = "all of its 77 memory regions";
    struct rlimit limits = {.rlim_cur = 4095, .rlim_max = 4095};
    static char pages[2 * 4096];
    bool right = true;
    if (setrlimit(RLIMIT_MEMLOCK, &limits) != 0)
        return false;
    /* Whom the kernel does not hold to the limit, that one's limit is not at fault. */
    if (mlock(pages, sizeof pages) == 0)
        right = registration_says(device, ENOMEM, regions) && munlock(pages, sizeof pages) == 0 && right;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return false;
    right = registration_says(device, ENOMEM, "the limit is 4095 (0 in use)") && right;
    right = registration_says(device, ENOMEM, "must lock 4096 bytes") && right;
    right = registration_says(device, EPERM, "ulimit -l") && right;
    right = registration_says(device, EPERM, "LimitMEMLOCK=") && right;
    right = registration_says(device, ENOSPC, regions) && right;
    /* With all of root's rights, but within a namespace alone: where that is allowed. */
    if (unshare(CLONE_NEWUSER) == 0)
        right = registration_says(device, ENOMEM, "the limit is 4095") && right;
    return right;
}

static void test_memlock(void **state)
{
    one_device();
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    struct rlimit limits;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limits), 0);
    if (limits.rlim_cur >= 4096) /* "unlimited" too */
        assert_true(registration_says(device, ENOMEM, "all of its 77 memory regions"));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(memlock_child(device) ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close_all(device);
}

/* ---- queue pairs ---- */

#define REMOTE_ALL (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static struct wire_nic their_end(void)
{
    struct wire_nic theirs = {.queue = 0x345678,
                              .psn = 0xabcdef,
                              .ethernet = 1,
                              .mtu = IBV_MTU_1024,
                              .reads_taken = 4,
                              .reads_begun = 5};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.2", theirs.gid), 1);
    return theirs;
}

static void test_pair_roce(void **state)
{
    const struct verbs_options options = {.traffic_class = 104, .service_level = 3, .timeout = 20};
    struct ibv_qp queue = {.qp_num = 0x123456};
    struct wire_nic ours, theirs = their_end();
    struct error error = {0};
    one_device();
    struct verbs_device *device = opened(&options, "10.0.0.1");
    assert_int_equal(verbs_pair_begin(device, &queue, REMOTE_ALL, &ours, &error), 0);
    assert_int_equal(ours.queue, 0x123456);
    assert_true(ours.psn <= 0xffffff);
    assert_int_equal(ours.mtu, IBV_MTU_4096);
    assert_int_equal(ours.ethernet, 1);
    assert_int_equal(ours.reads_taken, 16);
    assert_int_equal(ours.reads_begun, 255);
    assert_memory_equal(ours.gid, device->gid, 16);
    assert_int_equal(verbs_pair_connect(device, &queue, &ours, &theirs, &error), 0);
    assert_int_equal(fake.change_count, 3);

    const struct ibv_qp_attr *init = &fake.changes[0], *receive = &fake.changes[1], *send = &fake.changes[2];
    assert_int_equal(init->qp_state, IBV_QPS_INIT);
    assert_int_equal(init->port_num, 1);
    assert_int_equal(init->qp_access_flags, REMOTE_ALL);
    assert_int_equal(fake.masks[0], IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    assert_int_equal(receive->qp_state, IBV_QPS_RTR);
    assert_int_equal(receive->path_mtu, IBV_MTU_1024);
    assert_int_equal(receive->dest_qp_num, 0x345678);
    assert_int_equal(receive->rq_psn, 0xabcdef);
    assert_int_equal(receive->max_dest_rd_atomic, 5);
    assert_int_equal(receive->min_rnr_timer, 12);
    assert_int_equal(receive->ah_attr.is_global, 1);
    assert_int_equal(receive->ah_attr.sl, 3);
    assert_int_equal(receive->ah_attr.port_num, 1);
    assert_int_equal(receive->ah_attr.grh.sgid_index, 3);
    assert_int_equal(receive->ah_attr.grh.hop_limit, 64);
    assert_int_equal(receive->ah_attr.grh.traffic_class, 104);
    assert_memory_equal(receive->ah_attr.grh.dgid.raw, theirs.gid, 16);

    assert_int_equal(send->qp_state, IBV_QPS_RTS);
    assert_int_equal(send->sq_psn, ours.psn);
    assert_int_equal(send->max_rd_atomic, 4);
    assert_int_equal(send->timeout, 20);
    assert_int_equal(send->retry_cnt, 6);
    assert_int_equal(send->rnr_retry, 7);
    close_all(device);
}

/* An end that takes nothing says so; two ends have different PSNs. */
static void test_pair_asking(void **state)
{
    struct ibv_qp queue = {.qp_num = 2};
    struct wire_nic ours, again;
    struct error error = {0};
    one_device();
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_int_equal(verbs_pair_begin(device, &queue, 0, &ours, &error), 0);
    assert_int_equal(ours.reads_taken, 0);
    assert_int_equal(verbs_pair_begin(device, &queue, IBV_ACCESS_REMOTE_WRITE, &again, &error), 0);
    assert_int_equal(again.reads_taken, 0);
    assert_int_equal(verbs_pair_begin(device, &queue, IBV_ACCESS_REMOTE_ATOMIC, &again, &error), 0);
    assert_int_equal(again.reads_taken, 16);
    assert_true(ours.psn != again.psn || fake.changes[0].qp_access_flags != 0);
    close_all(device);
}

static void test_pair_infiniband(void **state)
{
    struct ibv_qp queue = {.qp_num = 0x123456};
    struct error error = {0};
    struct wire_nic ours, theirs = their_end();
    fake_verbs_start();
    fake_verbs_device("nic0");
    fake.devices[0].port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
    fake.devices[0].port[0].lid = 0x12;
    fake_verbs_gid(0, 1, 0, IBV_GID_TYPE_IB, "fe80::1");
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_int_equal(verbs_pair_begin(device, &queue, REMOTE_ALL, &ours, &error), 0);
    assert_int_equal(ours.lid, 0x12);
    assert_int_equal(ours.ethernet, 0);
    theirs.ethernet = 0;
    theirs.lid = 0x34;
    /* The same subnet, another one, and no GID at all. */
    static const struct {
        const char *gid;
        bool global;
    } cases[] = {{"fe80::2", false}, {"fec0::2", true}, {"::", false}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.change_count = 1;
        assert_int_equal(inet_pton(AF_INET6, cases[i].gid, theirs.gid), 1);
        assert_int_equal(verbs_pair_connect(device, &queue, &ours, &theirs, &error), 0);
        assert_int_equal(fake.changes[1].ah_attr.dlid, 0x34);
        assert_int_equal(fake.changes[1].ah_attr.is_global, cases[i].global);
    }
    static const uint16_t lids[] = {0, 0xc000, 0xffff};
    for (unsigned i = 0; i < sizeof lids / sizeof *lids; i++) {
        theirs.lid = lids[i];
        assert_int_equal(verbs_pair_connect(device, &queue, &ours, &theirs, &error), BANYAN_EINVAL);
        says(&error, BANYAN_EINVAL, "LID", NULL);
    }
    theirs = their_end();
    assert_int_equal(verbs_pair_connect(device, &queue, &ours, &theirs, &error), BANYAN_EINVAL);
    says(&error, BANYAN_EINVAL, "InfiniBand, the other RoCE", "this one is InfiniBand", NULL);
    close_all(device);
}

static void validated(struct verbs_device *device, const struct wire_nic *ours, struct wire_nic theirs,
                      const char *word)
{
    struct ibv_qp queue = {.qp_num = ours->queue};
    struct error error = {0};
    fake.change_count = 1;
    int status = verbs_pair_connect(device, &queue, ours, &theirs, &error);
    if (word == NULL) {
        assert_int_equal(status, 0);
        return;
    }
    assert_int_equal(status, BANYAN_EINVAL);
    says(&error, BANYAN_EINVAL, word, NULL);
    assert_int_equal(fake.change_count, 1);
}

#define VALIDATED(member, value, word)                                                                       \
    do {                                                                                                     \
        theirs = their_end();                                                                                \
        theirs.member = (value);                                                                             \
        validated(device, &ours, theirs, word);                                                              \
    } while (0)

static void test_other_end(void **state)
{
    struct ibv_qp queue = {.qp_num = 0x123456};
    struct error error = {0};
    struct wire_nic ours, theirs;
    one_device();
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_int_equal(verbs_pair_begin(device, &queue, 0, &ours, &error), 0);
    VALIDATED(queue, 2, NULL);
    VALIDATED(queue, 0xfffffe, NULL);
    VALIDATED(queue, 0, "queue pair's number");
    VALIDATED(queue, 1, "queue pair's number");
    VALIDATED(queue, 0xffffff, "queue pair's number");
    VALIDATED(queue, 0x1000002, "queue pair's number");
    VALIDATED(psn, 0, NULL);
    VALIDATED(psn, 0xffffff, NULL);
    VALIDATED(psn, 0x1000000, "(PSN)");
    VALIDATED(mtu, IBV_MTU_256, NULL);
    VALIDATED(mtu, IBV_MTU_4096, NULL);
    VALIDATED(mtu, 0, "no such MTU");
    VALIDATED(mtu, 6, "no such MTU");
    VALIDATED(mtu, 255, "no such MTU");
    VALIDATED(ethernet, 0, "InfiniBand, the other RoCE");
    VALIDATED(ethernet, 2, "neither InfiniBand nor Ethernet");
    VALIDATED(gid[0], 0xff, "multicast");
    VALIDATED(reads_taken, 1, NULL);
    VALIDATED(reads_taken, 0, "no READ");
    VALIDATED(reads_begun, 0, NULL);
    VALIDATED(lid, 7, NULL);
    theirs = their_end();
    memset(theirs.gid, 0, sizeof theirs.gid);
    validated(device, &ours, theirs, "GID is empty");
    ours.reads_begun = 0;
    VALIDATED(reads_begun, 0, "no READ");
    close_all(device);
}

static void test_changes_fail(void **state)
{
    static const struct {
        enum ibv_qp_state state;
        int reason, code;
        const char *word;
    } cases[] = {
        {IBV_QPS_INIT, EINVAL, BANYAN_EINVAL, "cannot be set up"},
        {IBV_QPS_INIT, -EINVAL, BANYAN_EINVAL, "cannot be set up"},
        {IBV_QPS_INIT, ENOMEM, BANYAN_ENOMEM, "cannot be set up"},
        {IBV_QPS_RTR, ENETUNREACH, BANYAN_ENET, "no way from GID ::ffff:10.0.0.1"},
        {IBV_QPS_RTR, -ENETUNREACH, BANYAN_ENET, "no way from GID ::ffff:10.0.0.1"},
        {IBV_QPS_RTR, ETIMEDOUT, BANYAN_ENET, "index 3) to ::ffff:10.0.0.2"},
        {IBV_QPS_RTR, EHOSTUNREACH, BANYAN_ENET, "--rdma-gid"},
        {IBV_QPS_RTR, EINVAL, BANYAN_EINVAL, "RoCE version"},
        {IBV_QPS_RTR, ENOMEM, BANYAN_ENOMEM, "no memory"},
        {IBV_QPS_RTS, EINVAL, BANYAN_EINVAL, "refuses to connect"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ibv_qp queue = {.qp_num = 0x123456};
        struct error error = {0};
        struct wire_nic ours, theirs = their_end();
        one_device();
        struct verbs_device *device = opened(NULL, "10.0.0.1");
        fake.no_state = cases[i].state;
        fake.no_state_reason = cases[i].reason;
        int status = verbs_pair_begin(device, &queue, REMOTE_ALL, &ours, &error);
        if (cases[i].state != IBV_QPS_INIT) {
            assert_int_equal(status, 0);
            status = verbs_pair_connect(device, &queue, &ours, &theirs, &error);
        }
        assert_int_equal(status, cases[i].code);
        says(&error, cases[i].code, cases[i].word, NULL);
        close_all(device);
    }
}

/* The longest texts that there can be still have their end. */
static void test_long_messages(void **state)
{
    struct ibv_qp queue = {.qp_num = 0x123456};
    struct error error = {0};
    struct wire_nic ours, theirs = their_end();
    text_most = sizeof error.text - 2;
    const char *longest = "fdff:ffff:1111:2222:3333:4444:5555:6666";
    fake_verbs_start();
    fake_verbs_device("a_device_of_thirty_characters_x");
    fake_verbs_gid(0, 1, 255, IBV_GID_TYPE_ROCE_V2, longest);
    assert_int_equal(inet_pton(AF_INET6, longest, theirs.gid), 1);
    struct verbs_device *device = opened(NULL, "10.0.0.1");
    assert_int_equal(verbs_pair_begin(device, &queue, 0, &ours, &error), 0);
    static const int reasons[] = {EINVAL, EHOSTUNREACH, ENOMEM};
    fake.no_state = IBV_QPS_RTR;
    for (unsigned i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        fake.no_state_reason = reasons[i];
        assert_int_not_equal(verbs_pair_connect(device, &queue, &ours, &theirs, &error), 0);
        says(&error, error.code, i == 2 ? "max_qp" : longest, NULL);
    }
    close_all(device);
    fake.devices[0].no_access = EACCES;
    refused(NULL, "10.0.0.1", BANYAN_ENOTSUP, "no permission", NULL);
    fake.devices[0].no_access = 0;
    fake.devices[0].port[0].state = IBV_PORT_DOWN;
    refused(NULL, "10.0.0.1", BANYAN_ENET, "down", NULL);
    fake.devices[0].port[0].state = IBV_PORT_ACTIVE;
    struct verbs_options options = {.gid_index = 65536};
    for (unsigned i = 0; i < 50; i++)
        fake_verbs_gid(0, 1, 100 + i, IBV_GID_TYPE_ROCE_V2, "fd00::6");
    fake.devices[0].port[0].gid_tbl_len = 1024;
    refused(&options, "10.0.0.1", BANYAN_EINVAL, "show_gids", NULL);
    text_most = TEXT_MOST;
}

static void test_reasons(void **state)
{
    for (int a = IBV_WC_SUCCESS; a <= IBV_WC_TM_RNDV_INCOMPLETE; a++) {
        const char *reason = verbs_completion_reason((enum ibv_wc_status)a);
        assert_true(strlen(reason) > 5 && strlen(reason) < 150);
        assert_null(strstr(reason, "unknown"));
        for (int b = IBV_WC_SUCCESS; b < a; b++) {
            bool alike = a == IBV_WC_INV_EEC_STATE_ERR || a == IBV_WC_TM_RNDV_INCOMPLETE;
            if (!alike)
                assert_string_not_equal(reason, verbs_completion_reason((enum ibv_wc_status)b));
        }
    }
    assert_non_null(strstr(verbs_completion_reason((enum ibv_wc_status)99), "unknown"));
    assert_non_null(strstr(verbs_completion_reason(IBV_WC_REM_ACCESS_ERR), "remote access error"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address_gid),   cmocka_unit_test(test_absent),
        cmocka_unit_test(test_by_name),       cmocka_unit_test(test_by_manager),
        cmocka_unit_test(test_by_gid),        cmocka_unit_test(test_the_only_one),
        cmocka_unit_test(test_no_permission), cmocka_unit_test(test_no_atomics),
        cmocka_unit_test(test_ports),         cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_options),       cmocka_unit_test(test_mtu),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_gid_worth),
        cmocka_unit_test(test_gid_index),     cmocka_unit_test(test_no_gids),
        cmocka_unit_test(test_infiniband),    cmocka_unit_test(test_register),
        cmocka_unit_test(test_memlock),       cmocka_unit_test(test_pair_roce),
        cmocka_unit_test(test_pair_asking),   cmocka_unit_test(test_pair_infiniband),
        cmocka_unit_test(test_other_end),     cmocka_unit_test(test_changes_fail),
        cmocka_unit_test(test_long_messages), cmocka_unit_test(test_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
