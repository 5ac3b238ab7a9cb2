/* test_pairs.c - connections that a NIC keeps state of, and doorbells that threads share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim/sim.h"
#include "tests/sim/load.h"

struct crowd {
    struct cluster cluster;
    struct load loads[256];
    struct fabric_endpoint *endpoints[256];
    unsigned count;
};

/* READs of 8 bytes by `count` tasks on two compute nodes, each through an endpoint of its own; their threads
 * have `share` tasks each. */
static void crowd_create(struct crowd *crowd, const struct sim_params *params, unsigned count, unsigned share)
{
    cluster_create(&crowd->cluster, 1, 2, params, NULL, 1);
    crowd->count = count;
    for (unsigned i = 0; i < count; i++) {
        struct load *load = &crowd->loads[i];
        crowd->endpoints[i] = fabric_endpoint_open(sim_fabric(crowd->cluster.sim, (int)(i % 2)), NULL);
        assert_non_null(crowd->endpoints[i]);
        *load = (struct load){
            .endpoint = crowd->endpoints[i],
            .command = {.operation = FABRIC_READ, .length = 8, .address = gaddr_make(0, 4096 + i * 8)}};
        assert_int_equal(sim_spawn(crowd->cluster.sim, (int)(i % 2), i / 2 / share, load_run, load, NULL), 0);
    }
}

static uint64_t crowd_done(const struct crowd *crowd)
{
    uint64_t done = 0;
    for (unsigned i = 0; i < crowd->count; i++)
        done += crowd->loads[i].done;
    return done;
}

static void crowd_destroy(struct crowd *crowd)
{
    for (unsigned i = 0; i < crowd->count; i++)
        fabric_endpoint_close(crowd->endpoints[i]);
    cluster_destroy(&crowd->cluster);
}

static double crowd_rate(const struct sim_params *params, unsigned count, unsigned share)
{
    static struct crowd crowd;
    crowd_create(&crowd, params, count, share);
    sim_run(crowd.cluster.sim, RUN_NS); /* until the queues are as long as they get */
    uint64_t before = crowd_done(&crowd);
    sim_run(crowd.cluster.sim, 2 * RUN_NS);
    double rate = (double)(crowd_done(&crowd) - before) * 1e9 / RUN_NS;
    crowd_destroy(&crowd);
    return rate;
}

/* 64 threads on two compute nodes: 64 connections at the memory node's NIC, 32 at either sender's. */
static void test_connections_beyond_the_cache_cost_reads(void **state)
{
    (void)state;
    struct sim_params params;
    cluster_plain_params(&params);
    params.dma_read_rate = 0;
    params.connection_cache = 0; /* off */
    double all = crowd_rate(&params, 64, 1), mean = 64e9 / all, read = params.pcie_read_ns;
    params.connection_cache = 64; /* all fit */
    assert_true(crowd_rate(&params, 64, 1) == all);
    params.connection_cache = 32; /* the memory node's NIC misses one of two, the senders' none */
    load_assert_near(64e9 / crowd_rate(&params, 64, 1), mean + read / 2);
    params.connection_cache =
        16; /* three of four there; one of two here, for the request and for the answer */
    load_assert_near(64e9 / crowd_rate(&params, 64, 1), mean + read * (0.75 + 0.5 + 0.5));

    params.connection_cache = 0; /* what a miss reads takes its turn among the other reads */
    params.dma_read_rate = 5;
    load_assert_limit(crowd_rate(&params, 64, 1), 5e6);
    params.connection_cache = 32;
    load_assert_near(crowd_rate(&params, 64, 1), 5e6 / 1.5);
}

/* The fibers of a thread share its connection: 64 tasks on 16 threads have 16. */
static void test_endpoints_of_a_thread_share_its_connection(void **state)
{
    (void)state;
    struct sim_params params;
    cluster_plain_params(&params);
    params.connection_cache = 0;
    double all = crowd_rate(&params, 64, 4);
    params.connection_cache = 16;
    assert_true(crowd_rate(&params, 64, 4) == all);
    params.connection_cache = 15;
    assert_true(crowd_rate(&params, 64, 4) < all);
}

static void read_once(void *argument)
{
    struct load *load = argument;
    uint64_t word;
    assert_int_equal(cluster_read(load->endpoint, load->command.address, &word, 8), 0);
    fabric_endpoint_close(load->endpoint);
}

/* A connection counts until its endpoints are closed, and those of a dead compute node until it is fenced. */
static void test_connections_end(void **state)
{
    (void)state;
    static struct crowd crowd;
    struct sim_params params;
    struct load closing[32];
    cluster_plain_params(&params);
    params.connection_cache = 1; /* one at either end */
    crowd_create(&crowd, &params, 2, 1);
    for (unsigned i = 0; i < 32; i++) {
        closing[i] = crowd.loads[0];
        closing[i].endpoint = fabric_endpoint_open(sim_fabric(crowd.cluster.sim, 0), NULL);
        assert_int_equal(sim_spawn(crowd.cluster.sim, 0, 100 + i, read_once, &closing[i], NULL), 0);
    }
    uint64_t idle = load_idle_ns(&params) + params.pcie_read_ns, slow = idle + params.pcie_read_ns;
    sim_run(crowd.cluster.sim, RUN_NS); /* two are left at the memory node, one at the sender */
    crowd.loads[0].done = crowd.loads[0].slowest = 0;
    sim_run(crowd.cluster.sim, 2 * RUN_NS);
    assert_in_range(crowd.loads[0].slowest, slow, slow + 100);
    uint64_t done = crowd.loads[0].done;
    sim_kill_compute(crowd.cluster.sim, 1, RUN_NS, NULL, NULL);
    sim_run(crowd.cluster.sim, 3 * RUN_NS + 10000);
    crowd.loads[0].done = crowd.loads[0].slowest = 0;
    sim_run(crowd.cluster.sim, 4 * RUN_NS + 10000);
    assert_in_range(crowd.loads[0].slowest, idle, idle + 100);
    assert_true(crowd.loads[0].done > done);
    crowd_destroy(&crowd);
}

/* Where k threads contend for a doorbell, each holds it k times as long. */
static void test_threads_contend_for_doorbells(void **state)
{
    (void)state;
    struct sim_params params;
    cluster_plain_params(&params);
    params.shared_nic = false;
    double apart = crowd_rate(&params, 32, 1); /* off: each thread has its own */
    params.doorbells = 16;                     /* of each compute node: one for each of its threads */
    params.doorbell_hold_ns = 1000;
    assert_true(crowd_rate(&params, 32, 1) == apart);
    params.doorbells = 4;
    load_assert_near(crowd_rate(&params, 32, 1), 2 * 4 * 1e9 / (1000 * 4));
    params.doorbells = 1;
    load_assert_near(crowd_rate(&params, 32, 1), 2 * 1e9 / (1000 * 16));
    load_assert_near(crowd_rate(&params, 64, 2),
                     2 * 1e9 / (1000 * 16)); /* a thread's fibers do not contend */
    params.doorbell_hold_ns = 0;             /* off */
    assert_true(crowd_rate(&params, 32, 1) == apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections_beyond_the_cache_cost_reads),
        cmocka_unit_test(test_endpoints_of_a_thread_share_its_connection),
        cmocka_unit_test(test_connections_end),
        cmocka_unit_test(test_threads_contend_for_doorbells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
