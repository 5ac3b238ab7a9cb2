/* test_kept.c - the daemon of a memory node with a file: what it tells compute nodes, what it stages, and
 * what its next life goes on with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "client.h"
#include "fabric/verbs_device.h"
#include "memory/memory.h"

#define MS UINT64_C(1000000)

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/banyan-kept-%d.pool", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm",
             (int)getpid());
    unlink(path);
    log_set_level(LOG_ERROR);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void open_kept(struct site *site)
{
    const struct site_options options = {.pool_file = path, .home = true, .threads = 2};
    assert_int_equal(site_open(site, &options), 0);
}

/* As compute node `id`; 0: the memory node chooses. */
static int join(struct client *client, const struct net_address *address, uint64_t instance, uint16_t id,
                uint32_t read_lease_ms, char sentence[256])
{
    client_connect(client, address);
    struct wire_hello hello = client_hello(client, WIRE_CONTROL, NULL);
    hello.instance = instance;
    hello.compute_id = id;
    hello.again = id != 0;
    hello.read_lease_ms = read_lease_ms;
    hello.map = 1;
    return client_say_hello(client, &hello, sentence);
}

/* The contents are the same, so a compute node comes back as who it was, and no other gets its id. */
static void a_life_goes_on(void **state)
{
    (void)state;
    struct site site;
    struct client one, two;
    open_kept(&site);
    assert_int_equal(join(&one, &site.local, 11, 0, 0, NULL), 0);
    const struct wire_welcome first = one.welcome;
    assert_true(first.instance != 0 && first.compute_id != 0);
    assert_int_equal(first.atomic_write, WIRE_STAGING_DATA);
    assert_int_equal(first.mapped, 0); /* nobody else writes to the file */
    client_close(&one);
    site_close(&site);

    open_kept(&site);
    assert_int_equal(join(&two, &site.tcp, 22, 0, 0, NULL), 0);
    assert_int_equal(two.welcome.compute_id, first.compute_id + 1);
    assert_int_equal(join(&one, &site.tcp, 11, first.compute_id, 0, NULL), 0);
    assert_int_equal(one.welcome.compute_id, first.compute_id);
    assert_true(one.welcome.instance == first.instance && one.welcome.cluster_id == first.cluster_id);
    client_goodbye(&one);
    client_goodbye(&two);
    site_close(&site);

    unlink(path); /* it was lost: what comes in its place is something else */
    open_kept(&site);
    assert_int_equal(join(&one, &site.tcp, 11, 0, 0, NULL), 0);
    assert_true(one.welcome.instance != first.instance);
    client_goodbye(&one);
    site_close(&site);
}

/* What the last life granted is over before this one answers anybody. */
static void read_leases_are_outlasted(void **state)
{
    (void)state;
    struct site site;
    struct client one, two;
    open_kept(&site);
    assert_int_equal(join(&one, &site.tcp, 11, 0, 500, NULL), 0);
    assert_int_equal(join(&two, &site.tcp, 12, 0, 50, NULL), 0);
    assert_int_equal(one.welcome.read_lease_ms, 500);
    client_heartbeat(&one);
    client_close(&one);
    client_close(&two);
    site_close(&site);
    uint64_t begin = task_now(); /* the heartbeat was taken before */
    open_kept(&site);
    assert_true(task_now() - begin >= 500 * MS);
    assert_int_equal(memory_node_kept_read_lease(site.node), 0); /* it granted none yet */
    site_close(&site);
}

static bool area_has(const struct wire_staging *area, gaddr address, const void *data, uint32_t length)
{
    return atomic_load_acquire(&area->marked) == 0 && area->offset == gaddr_offset(address) &&
           area->length == length && memcmp(area->data, data, length) == 0;
}

/* A WRITE that a kill could cut passes through its thread's area; one that is one store does not. */
static void writes_are_staged(void **state)
{
    (void)state;
    struct site site;
    struct client control, data;
    struct script script = {0};
    uint8_t bytes[4096];
    const uint64_t word = 7;
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + 1);
    static const uint32_t lengths[] = {3, 100, 16, 4096};
    for (unsigned i = 0; i < 4; i++) {
        gaddr address = gaddr_make(0, 1048576 + 8192 * i);
        open_kept(&site);
        client_control(&control, &site.tcp, 11, 0);
        client_data(&data, &site.tcp, &control);
        script_write(&script, address, bytes, lengths[i]);
        script_write(&script, address + 4096, &word, sizeof word);
        script_send(&script, &data, i);
        assert_int_equal(client_take(&data, NULL, 0).status, 0);
        client_goodbye(&data);
        client_goodbye(&control);
        site_close(&site);
        open_kept(&site); /* its threads have ended, and what they left in their areas stands in the file */
        assert_memory_equal(site_pool(&site, gaddr_offset(address)), bytes, lengths[i]);
        assert_memory_equal(site_pool(&site, gaddr_offset(address) + 4096), &word, sizeof word);
        assert_true(area_has(memory_node_staging(site.node, 0), address, bytes, lengths[i]) ||
                    area_has(memory_node_staging(site.node, 1), address, bytes, lengths[i]));
        site_close(&site);
    }
}

/* A NIC's WRITEs are not staged. */
static void a_nic_is_refused(void **state)
{
    (void)state;
    static const struct verbs_options nic;
    struct memory_options options = {.pool_bytes = SITE_POOL, .lock_bytes = SITE_LOCKS, .pool_file = path};
    struct net_address listen = {.kind = NET_TCP, .host = "127.0.0.1"};
    const struct memoryd_options daemon = {.listen = &listen, .listen_count = 1, .nic = &nic};
    struct memory_node *node;
    struct memoryd *made;
    struct error error = {0};
    assert_int_equal(memory_node_create(&node, &options, &error), 0);
    assert_int_equal(memoryd_create(&made, node, &daemon, &error), BANYAN_ENOTSUP);
    assert_non_null(strstr(error.text, "not served over RDMA"));
    memory_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_life_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(read_leases_are_outlasted, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_are_staged, setup, teardown),
        cmocka_unit_test_setup_teardown(a_nic_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
