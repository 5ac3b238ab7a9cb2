/* test_nic.c - the NIC's arithmetic seen from outside: latencies when idle, limits under load, calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/task.h"
#include "tests/sim/load.h"

struct probe {
    struct fabric_endpoint *endpoint;
    struct fabric_command *commands;
    uint16_t count;
    uint64_t spent;
};

static void run_probe(void *argument)
{
    struct probe *probe = argument;
    struct fabric_list list = {
        .node = gaddr_node(probe->commands[0].address), .count = probe->count, .commands = probe->commands};
    struct fabric_list *lists[] = {&list};
    uint64_t before = task_now();
    assert_int_equal(fabric_execute(probe->endpoint, lists, 1, NULL), 0);
    probe->spent = task_now() - before;
}

/* Nanoseconds from before the call to after it on an idle cluster, the clock's own cost taken off. */
static uint64_t idle_latency(const struct sim_params *params, struct fabric_command *commands, uint16_t count)
{
    struct cluster cluster;
    cluster_create(&cluster, 1, 1, params, NULL, 1);
    struct probe probe = {.endpoint = cluster.endpoints[0], .commands = commands, .count = count};
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, run_probe, &probe, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&cluster);
    return probe.spent - params->clock_ns;
}

static void test_idle_latencies(void **state)
{
    (void)state;
    struct sim_params params;
    uint64_t data[128] = {0};
    cluster_plain_params(&params);
    uint64_t base = load_idle_ns(&params);

    struct fabric_command read = {
        .operation = FABRIC_READ, .length = 64, .address = gaddr_make(0, 4096), .read.buffer = data};
    uint64_t small = idle_latency(&params, &read, 1);
    /* up to 35 ns of two messages, and of wire and PCIe time for the bytes */
    assert_in_range(small, base + params.pcie_read_ns, base + params.pcie_read_ns + 35);
    assert_in_range(small, 1700, 2200); /* "about 2 us" */

    read.length = 1024;
    uint64_t large = idle_latency(&params, &read, 1);
    /* 960 bytes more: 77 ns of wire, once, and 61 ns of PCIe at each end */
    assert_in_range(large - small, 195, 203);

    struct fabric_command write = {
        .operation = FABRIC_WRITE, .length = 64, .address = gaddr_make(0, 4096), .write.data = data};
    uint64_t inlined = idle_latency(&params, &write, 1);
    assert_in_range(inlined, base, base + 35);
    write.length = 512; /* too long to be inlined: the NIC fetches it from the sender's memory */
    assert_in_range(idle_latency(&params, &write, 1), inlined + params.pcie_read_ns,
                    inlined + params.pcie_read_ns + 100);

    struct fabric_command add = {.operation = FABRIC_FAA, .address = gaddr_make(0, 4096), .faa.add = 1};
    assert_in_range(idle_latency(&params, &add, 1), base + params.atomic_fetch_ns,
                    base + params.atomic_fetch_ns + 35);
    add.address = gaddr_make(0, GADDR_LOCK_REGION | 64);
    assert_in_range(idle_latency(&params, &add, 1), base + params.chip_ns, base + params.chip_ns + 35);
}

static void test_a_list_costs_one_round_trip(void **state)
{
    (void)state;
    struct sim_params params;
    uint64_t data[8] = {0};
    cluster_plain_params(&params);
    struct fabric_command commands[4];
    for (unsigned i = 0; i < 4; i++)
        commands[i] = (struct fabric_command){.operation = FABRIC_READ,
                                              .length = 8,
                                              .address = gaddr_make(0, 4096 + i * 8),
                                              .read.buffer = &data[i]};
    uint64_t one = idle_latency(&params, commands, 1), four = idle_latency(&params, commands, 4);
    /* three messages more each way, of 9 ns, and their headers */
    assert_in_range(four, one + 3 * params.command_ns + 54, one + 3 * params.command_ns + 75);
}

static void test_link_bandwidth_is_reached_and_kept(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[128];
    sim_params_default(&params);
    params.shared_nic = false;
    double most = 100e9 / 8 / (1024 + params.header_bytes);
    load_fill(commands, 128, FABRIC_READ, 1024, 4096, 1024);
    double reads = load_rate(&params, commands, 128, 4);
    assert_true(reads > 0.95 * most && reads <= most);
    load_fill(commands, 128, FABRIC_WRITE, 1024, 4096, 1024);
    double writes = load_rate(&params, commands, 128, 4);
    assert_true(writes > 0.95 * most && writes <= most);
}

static void test_message_rate_is_reached_and_kept(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[128];
    sim_params_default(&params);
    params.shared_nic = false;
    load_fill(commands, 128, FABRIC_READ, 8, 4096, 8);
    params.message_rate_in = 10;
    double in = load_rate(&params, commands, 128, 4);
    assert_true(in > 9.5e6 && in <= 10e6);
    params.message_rate_in = 110;
    params.message_rate_out = 10;
    double out = load_rate(&params, commands, 128, 4);
    assert_true(out > 9.5e6 && out <= 10e6);
}

/* Reads over PCIe are limited in requests and in bytes, at the memory node's NIC and at the sender's. */
static void test_pcie_reads_are_limited(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[128];
    sim_params_default(&params);
    params.shared_nic = false;
    params.dma_read_rate = 10;
    load_fill(commands, 128, FABRIC_READ, 8, 4096, 8);
    load_assert_limit(load_rate(&params, commands, 128, 4), 10e6);
    load_fill(commands, 128, FABRIC_READ, 513, 4096, 1024); /* two requests */
    load_assert_limit(load_rate(&params, commands, 128, 4), 5e6);
    load_fill(commands, 128, FABRIC_FAA, 0, 4096, 8); /* their fetches */
    load_assert_limit(load_rate(&params, commands, 128, 4), 10e6);
    load_fill(commands, 128, FABRIC_WRITE, 512, 4096,
              512); /* payloads at the senders; none at the memory node */
    load_assert_limit(load_rate(&params, commands, 128, 1), 10e6);
    load_assert_limit(load_rate(&params, commands, 128, 2), 20e6);
    params.inline_bytes = 512;
    assert_true(load_rate(&params, commands, 128, 1) > 15e6);
    load_fill(commands, 128, FABRIC_READ, 8, GADDR_LOCK_REGION | 64, 8); /* on the chip: no PCIe */
    assert_true(load_rate(&params, commands, 128, 4) > 30e6);

    params.dma_read_rate = 1000;
    params.pcie_bandwidth = 40;
    load_fill(commands, 128, FABRIC_READ, 1024, 4096, 1024);
    load_assert_limit(load_rate(&params, commands, 128, 4), 40e9 / 8 / 1024);
    params.dma_read_rate = 0; /* off: the link's own limit */
    load_assert_limit(load_rate(&params, commands, 128, 4), 100e9 / 8 / (1024 + params.header_bytes));
}

/* ------------------------------------------------------------------ calls */

struct caller {
    struct cluster *cluster;
    unsigned compute;
    uint64_t spent;
};

static void run_caller(void *argument)
{
    struct caller *caller = argument;
    char request[] = "chunk", reply[16];
    size_t length;
    uint64_t before = task_now();
    assert_int_equal(fabric_call(caller->cluster->endpoints[caller->compute], 0, request, sizeof request,
                                 reply, sizeof reply, &length, NULL),
                     0);
    caller->spent = task_now() - before;
    assert_int_equal(length, sizeof request);
    assert_memory_equal(reply, request, sizeof request);
}

static uint64_t slowest_call(uint32_t cores, unsigned count)
{
    struct sim_params params;
    struct cluster cluster;
    struct caller callers[8] = {0};
    uint64_t slowest = 0;
    cluster_plain_params(&params);
    params.rpc_cores = cores;
    params.rpc_ns = 10000;
    cluster_create(&cluster, 1, 1, &params, NULL, 1);
    for (unsigned i = 0; i < count; i++) {
        callers[i] = (struct caller){.cluster = &cluster};
        assert_int_equal(sim_spawn(cluster.sim, 0, i, run_caller, &callers[i], NULL), 0);
    }
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(cluster.calls, count);
    for (unsigned i = 0; i < count; i++)
        slowest = callers[i].spent > slowest ? callers[i].spent : slowest;
    cluster_destroy(&cluster);
    return slowest;
}

static void test_calls_queue_for_the_cores(void **state)
{
    (void)state;
    uint64_t one = slowest_call(1, 1);
    assert_in_range(one, 10000, 13000);
    assert_in_range(slowest_call(1, 8), one + 7 * 10000 - 100, one + 7 * 10000 + 100);
    assert_in_range(slowest_call(4, 8), one + 10000 - 100, one + 10000 + 100);
}

/* By a memory node's own model. */
static uint64_t slow_call(void *owner, uint16_t compute_id, const void *request, size_t length)
{
    return length * 1000;
}

static void test_calls_cost_what_their_service_says(void **state)
{
    struct sim_params params;
    struct cluster cluster;
    uint64_t spent[2];
    (void)state;
    cluster_plain_params(&params);
    for (unsigned slow = 0; slow < 2; slow++) {
        cluster_create(&cluster, 1, 1, &params, NULL, 1);
        cluster.targets[0].call_ns = slow ? slow_call : NULL;
        struct caller caller = {.cluster = &cluster};
        assert_int_equal(sim_spawn(cluster.sim, 0, 0, run_caller, &caller, NULL), 0);
        assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
        spent[slow] = caller.spent;
        cluster_destroy(&cluster);
    }
    assert_in_range(spent[1], spent[0] + 6000 - 1, spent[0] + 6000 + 1); /* "chunk" and its end */
}

/* ------------------------------------------------------------------ background work */

#define WORK_NS UINT64_C(50000)

struct background {
    struct cluster cluster; /* first: its address is the target's owner */
    uint64_t to_do_ns;
    unsigned turns;
};

static bool work_on(void *owner, uint64_t *budget_ns)
{
    struct background *background = owner;
    uint64_t some = background->to_do_ns < *budget_ns ? background->to_do_ns : *budget_ns;
    background->turns++;
    background->to_do_ns -= some;
    *budget_ns -= some;
    return background->to_do_ns > 0;
}

static void call_twice(void *argument)
{
    struct caller *caller = argument;
    run_caller(caller);
    uint64_t first = caller->spent;
    run_caller(caller);
    assert_true(caller->spent > first + 10000); /* it waits for the one core */
    task_sleep(2 * WORK_NS);
    run_caller(caller);
    assert_in_range(caller->spent, first - 1, first + 1);
}

static void test_background_work_takes_the_core(void **state)
{
    struct sim_params params;
    static struct background background;
    (void)state;
    background.to_do_ns = WORK_NS;
    cluster_plain_params(&params);
    params.rpc_cores = 1;
    cluster_create(&background.cluster, 1, 1, &params, NULL, 1);
    background.cluster.targets[0].work = work_on;
    struct caller caller = {.cluster = &background.cluster};
    assert_int_equal(sim_run(background.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(background.turns, 0); /* not before a call */
    assert_int_equal(sim_spawn(background.cluster.sim, 0, 0, call_twice, &caller, NULL), 0);
    assert_int_equal(sim_run(background.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(background.to_do_ns, 0);
    assert_in_range(background.turns, 4, 6); /* by budgets; once more after the last call */
    cluster_destroy(&background.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_latencies),
        cmocka_unit_test(test_a_list_costs_one_round_trip),
        cmocka_unit_test(test_link_bandwidth_is_reached_and_kept),
        cmocka_unit_test(test_message_rate_is_reached_and_kept),
        cmocka_unit_test(test_pcie_reads_are_limited),
        cmocka_unit_test(test_calls_queue_for_the_cores),
        cmocka_unit_test(test_calls_cost_what_their_service_says),
        cmocka_unit_test(test_background_work_takes_the_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
