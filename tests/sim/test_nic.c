/* test_nic.c - the NIC's arithmetic seen from outside: latencies when idle, limits under load, atomics,
 * blocking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/task.h"
#include "sim/nic.h"
#include "sim/sim.h"
#include "tests/sim/cluster.h"

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

/* The cost of every list of one command, without its memory access and its bytes. */
static uint64_t base_latency(const struct sim_params *params)
{
    return params->post_ns + params->command_ns + params->doorbell_ns + 4 * params->nic_ns +
           2 * params->wire_ns + params->pcie_write_ns + params->poll_ns;
}

static void test_idle_latencies(void **state)
{
    (void)state;
    struct sim_params params;
    uint64_t data[128] = {0};
    cluster_plain_params(&params);
    uint64_t base = base_latency(&params);

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

/* ------------------------------------------------------------------ load */

struct load {
    struct fabric_endpoint *endpoint;
    struct fabric_command command; /* repeated for ever */
    uint64_t done, slowest;
};

static void run_load(void *argument)
{
    struct load *load = argument;
    uint64_t buffer[128];
    for (;;) {
        struct fabric_command command = load->command;
        struct fabric_list list = {.node = gaddr_node(command.address), .count = 1, .commands = &command};
        struct fabric_list *lists[] = {&list};
        if (command.operation == FABRIC_READ)
            command.read.buffer = buffer;
        if (command.operation == FABRIC_WRITE)
            command.write.data = buffer;
        uint64_t before = task_now();
        assert_int_equal(fabric_execute(load->endpoint, lists, 1, NULL), 0);
        uint64_t spent = task_now() - before;
        load->slowest = spent > load->slowest ? spent : load->slowest;
        load->done++;
    }
}

static void spawn_load(struct cluster *cluster, struct load *load, unsigned compute, unsigned thread)
{
    load->endpoint = cluster->endpoints[compute];
    assert_int_equal(sim_spawn(cluster->sim, (int)compute, thread, run_load, load, NULL), 0);
}

#define RUN_NS 1000000 /* virtual */

/* Commands per virtual second that `count` tasks on `computes` nodes get done. */
static double throughput(const struct sim_params *params, const struct fabric_command *commands,
                         unsigned count, unsigned computes)
{
    struct cluster cluster;
    struct load loads[256];
    uint64_t done = 0;
    cluster_create(&cluster, 1, computes, params, NULL, 1);
    for (unsigned i = 0; i < count; i++) {
        loads[i] = (struct load){.command = commands[i]};
        spawn_load(&cluster, &loads[i], i % computes, i / computes);
    }
    sim_run(cluster.sim, RUN_NS);
    for (unsigned i = 0; i < count; i++)
        done += loads[i].done;
    cluster_destroy(&cluster);
    return (double)done * 1e9 / RUN_NS;
}

static void fill(struct fabric_command *commands, unsigned count, enum fabric_operation operation,
                 uint32_t length, uint64_t offset, uint64_t stride)
{
    for (unsigned i = 0; i < count; i++) {
        commands[i] = (struct fabric_command){
            .operation = operation, .length = length, .address = gaddr_make(0, offset + i * stride)};
        if (operation == FABRIC_FAA)
            commands[i].faa.add = 1;
    }
}

static void test_link_bandwidth_is_reached_and_kept(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[128];
    sim_params_default(&params);
    params.shared_nic = false;
    double most = 100e9 / 8 / (1024 + params.header_bytes);
    fill(commands, 128, FABRIC_READ, 1024, 4096, 1024);
    double reads = throughput(&params, commands, 128, 4);
    assert_true(reads > 0.95 * most && reads <= most);
    fill(commands, 128, FABRIC_WRITE, 1024, 4096, 1024);
    double writes = throughput(&params, commands, 128, 4);
    assert_true(writes > 0.95 * most && writes <= most);
}

static void test_message_rate_is_reached_and_kept(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[128];
    sim_params_default(&params);
    params.shared_nic = false;
    fill(commands, 128, FABRIC_READ, 8, 4096, 8);
    params.message_rate_in = 10;
    double in = throughput(&params, commands, 128, 4);
    assert_true(in > 9.5e6 && in <= 10e6);
    params.message_rate_in = 110;
    params.message_rate_out = 10;
    double out = throughput(&params, commands, 128, 4);
    assert_true(out > 9.5e6 && out <= 10e6);
}

static void assert_close(double value, double most)
{
    if (!(value > 0.95 * most && value <= most * 1.001))
        fail_msg("%.3g a second instead of %.3g", value, most);
}

/* Conflicting atomics come one by one, on one word or on several of one bucket; others do not wait. */
static void test_hot_atomics_on_host(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[256];
    sim_params_default(&params);
    params.shared_nic = false;
    double bucket = 1e9 / (params.atomic_fetch_ns + params.atomic_writeback_ns);
    fill(commands, 64, FABRIC_FAA, 0, 4096, 0); /* one counter */
    double hot = throughput(&params, commands, 64, 4);
    assert_close(hot, bucket);
    fill(commands, 64, FABRIC_FAA, 0, 4096, 4096); /* 64 counters of one bucket: no better */
    assert_close(throughput(&params, commands, 64, 4), bucket);
    fill(commands, 64, FABRIC_FAA, 0, 4096, 8); /* 64 buckets: limited by latency alone */
    assert_true(throughput(&params, commands, 64, 4) > 10 * hot);
}

static void test_hot_atomics_on_chip(void **state)
{
    (void)state;
    const uint64_t region = GADDR_LOCK_REGION | 64;
    struct sim_params params;
    struct fabric_command commands[256];
    sim_params_default(&params);
    params.shared_nic = false;
    params.post_ns = params.command_ns = params.poll_ns = 0;
    params.message_rate_in = params.message_rate_out = 1000; /* the unit for atomics is what is tested */
    fill(commands, 256, FABRIC_FAA, 0, region, 8);           /* different words: the unit's rate */
    assert_close(throughput(&params, commands, 256, 8), params.chip_rate * 1e6);
    for (params.chip_ns = 10; params.chip_ns <= 100; params.chip_ns += 45) {
        fill(commands, 256, FABRIC_FAA, 0, region, 0); /* one word: the bucket is busy for chip-ns */
        assert_close(throughput(&params, commands, 256, 8), 1e9 / params.chip_ns);
        fill(commands, 16, FABRIC_FAA, 0, region, 4096); /* one bucket: no better */
        for (unsigned i = 16; i < 256; i++)
            commands[i] = commands[i % 16];
        assert_close(throughput(&params, commands, 256, 8), 1e9 / params.chip_ns);
    }
    params.chip_ns = 0; /* off: the rate limits even one word */
    fill(commands, 256, FABRIC_FAA, 0, region, 0);
    assert_close(throughput(&params, commands, 256, 8), params.chip_rate * 1e6);
}

/* On the chip there are no PCIe transactions: a failed CAS there is as long as another. A host word of the
 * same low bits is another bucket. */
static void test_buckets_on_host_and_on_chip_are_apart(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[128];
    sim_params_default(&params);
    params.shared_nic = false;
    params.chip_ns = 100;
    for (unsigned i = 0; i < 64; i++) /* the word is 0 and stays so */
        commands[i] = (struct fabric_command){.operation = FABRIC_CAS,
                                              .address = gaddr_make(0, GADDR_LOCK_REGION | 64),
                                              .cas = {1, 2, UINT64_MAX, 0}};
    assert_close(throughput(&params, commands, 64, 4), 1e9 / params.chip_ns);
    struct sim_model *model = malloc(sizeof *model);
    struct sim_nic *nic = calloc(1, sizeof *nic);
    assert_non_null(model);
    assert_non_null(nic);
    sim_model_init(model, &params);
    struct fabric_command pair[] = {
        {.operation = FABRIC_FAA, .address = gaddr_make(0, 64)},
        {.operation = FABRIC_FAA, .address = gaddr_make(0, GADDR_LOCK_REGION | 64)}};
    struct fabric_list first = {.count = 1, .commands = pair}, second = {.count = 1, .commands = pair + 1};
    struct sim_service service = {0};
    assert_int_equal(sim_nic_serve(model, nic, &first, &service), params.atomic_fetch_ns * SIM_NANOSECOND);
    assert_int_equal(sim_nic_serve(model, nic, &second, &service), params.chip_ns * SIM_NANOSECOND);
    assert_int_equal(service.begun, 0);
    free(nic);
    free(model);
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
    fill(commands, 128, FABRIC_READ, 8, 4096, 8);
    assert_close(throughput(&params, commands, 128, 4), 10e6);
    fill(commands, 128, FABRIC_READ, 513, 4096, 1024); /* two requests */
    assert_close(throughput(&params, commands, 128, 4), 5e6);
    fill(commands, 128, FABRIC_FAA, 0, 4096, 8); /* their fetches */
    assert_close(throughput(&params, commands, 128, 4), 10e6);
    fill(commands, 128, FABRIC_WRITE, 512, 4096, 512); /* payloads at the senders; none at the memory node */
    assert_close(throughput(&params, commands, 128, 1), 10e6);
    assert_close(throughput(&params, commands, 128, 2), 20e6);
    params.inline_bytes = 512;
    assert_true(throughput(&params, commands, 128, 1) > 15e6);
    fill(commands, 128, FABRIC_READ, 8, GADDR_LOCK_REGION | 64, 8); /* on the chip: no PCIe */
    assert_true(throughput(&params, commands, 128, 4) > 30e6);

    params.dma_read_rate = 1000;
    params.pcie_bandwidth = 40;
    fill(commands, 128, FABRIC_READ, 1024, 4096, 1024);
    assert_close(throughput(&params, commands, 128, 4), 40e9 / 8 / 1024);
    params.dma_read_rate = 0; /* off: the link's own limit */
    assert_close(throughput(&params, commands, 128, 4), 100e9 / 8 / (1024 + params.header_bytes));
}

static void test_failed_cas_omits_the_write_back(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[64];
    sim_params_default(&params);
    params.shared_nic = false;
    for (unsigned i = 0; i < 64; i++) /* the word is 0 and stays so */
        commands[i] = (struct fabric_command){
            .operation = FABRIC_CAS, .address = gaddr_make(0, 4096), .cas = {1, 2, UINT64_MAX, 0}};
    double failing = throughput(&params, commands, 64, 4), most = 1e9 / params.atomic_fetch_ns;
    assert_true(failing > 0.95 * most && failing <= most * 1.001);
}

/* 64 tasks add to one word of memory node 0; a READ beside them waits there, and nowhere else. */
static void hot_atomic_blocks_its_nic_alone(uint64_t word)
{
    struct sim_params params;
    struct cluster cluster;
    struct load hot[64], reader_there, reader_elsewhere;
    cluster_plain_params(&params);
    params.chip_ns = params.atomic_fetch_ns + params.atomic_writeback_ns; /* as hot at both places */
    cluster_create(&cluster, 2, 4, &params, NULL, 1);
    for (unsigned i = 0; i < 64; i++) {
        hot[i] =
            (struct load){.command = {.operation = FABRIC_FAA, .address = gaddr_make(0, word), .faa.add = 1}};
        spawn_load(&cluster, &hot[i], i % 3, i / 3);
    }
    reader_there =
        (struct load){.command = {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(0, 65536)}};
    reader_elsewhere =
        (struct load){.command = {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(1, 65536)}};
    spawn_load(&cluster, &reader_there, 3, 0);
    spawn_load(&cluster, &reader_elsewhere, 3, 1);
    sim_run(cluster.sim, RUN_NS);
    uint64_t idle = base_latency(&params) + params.pcie_read_ns;
    assert_true(reader_there.slowest > 10 * idle);
    assert_true(reader_elsewhere.slowest < idle + 100);
    assert_true(reader_elsewhere.done > 8 * reader_there.done);
    cluster_destroy(&cluster);
}

static void test_a_hot_atomic_blocks_its_nic_alone(void **state)
{
    (void)state;
    hot_atomic_blocks_its_nic_alone(4096);
    hot_atomic_blocks_its_nic_alone(GADDR_LOCK_REGION | 64);
}

/* The slowest READ from memory node 1 by compute node 0, whose machine's memory node 0 has a hot atomic. */
static uint64_t slowest_beside_hot_atomic(bool shared_nic, bool block_responses)
{
    struct sim_params params;
    struct cluster cluster;
    struct load hot[64], reader;
    cluster_plain_params(&params);
    params.shared_nic = shared_nic;
    params.block_responses = block_responses;
    cluster_create(&cluster, 2, 4, &params, NULL, 1);
    for (unsigned i = 0; i < 64; i++) {
        hot[i] =
            (struct load){.command = {.operation = FABRIC_FAA, .address = gaddr_make(0, 4096), .faa.add = 1}};
        spawn_load(&cluster, &hot[i], 2 + i % 2, i / 2);
    }
    reader =
        (struct load){.command = {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(1, 65536)}};
    spawn_load(&cluster, &reader, 0, 0);
    sim_run(cluster.sim, RUN_NS);
    cluster_destroy(&cluster);
    return reader.slowest;
}

static void test_answers_wait_behind_a_hot_atomic_only_if_told(void **state)
{
    (void)state;
    uint64_t apart = slowest_beside_hot_atomic(false, true), shared = slowest_beside_hot_atomic(true, false),
             blocked = slowest_beside_hot_atomic(true, true);
    assert_in_range(shared, apart, apart + 200); /* the same link, but not the same pipeline */
    assert_true(blocked > 5 * apart);
}

/* ------------------------------------------------------------------ connections, doorbells */

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
        assert_int_equal(sim_spawn(crowd->cluster.sim, (int)(i % 2), i / 2 / share, run_load, load, NULL), 0);
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

static void assert_near(double value, double expected)
{
    if (!(value > 0.97 * expected && value < 1.03 * expected))
        fail_msg("%.4g instead of %.4g", value, expected);
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
    assert_near(64e9 / crowd_rate(&params, 64, 1), mean + read / 2);
    params.connection_cache =
        16; /* three of four there; one of two here, for the request and for the answer */
    assert_near(64e9 / crowd_rate(&params, 64, 1), mean + read * (0.75 + 0.5 + 0.5));

    params.connection_cache = 0; /* what a miss reads takes its turn among the other reads */
    params.dma_read_rate = 5;
    assert_close(crowd_rate(&params, 64, 1), 5e6);
    params.connection_cache = 32;
    assert_near(crowd_rate(&params, 64, 1), 5e6 / 1.5);
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
    uint64_t idle = base_latency(&params) + params.pcie_read_ns, slow = idle + params.pcie_read_ns;
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
    assert_near(crowd_rate(&params, 32, 1), 2 * 4 * 1e9 / (1000 * 4));
    params.doorbells = 1;
    assert_near(crowd_rate(&params, 32, 1), 2 * 1e9 / (1000 * 16));
    assert_near(crowd_rate(&params, 64, 2), 2 * 1e9 / (1000 * 16)); /* a thread's fibers do not contend */
    params.doorbell_hold_ns = 0;                                    /* off */
    assert_true(crowd_rate(&params, 32, 1) == apart);
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
        cmocka_unit_test(test_hot_atomics_on_host),
        cmocka_unit_test(test_hot_atomics_on_chip),
        cmocka_unit_test(test_buckets_on_host_and_on_chip_are_apart),
        cmocka_unit_test(test_pcie_reads_are_limited),
        cmocka_unit_test(test_failed_cas_omits_the_write_back),
        cmocka_unit_test(test_a_hot_atomic_blocks_its_nic_alone),
        cmocka_unit_test(test_answers_wait_behind_a_hot_atomic_only_if_told),
        cmocka_unit_test(test_connections_beyond_the_cache_cost_reads),
        cmocka_unit_test(test_endpoints_of_a_thread_share_its_connection),
        cmocka_unit_test(test_connections_end),
        cmocka_unit_test(test_threads_contend_for_doorbells),
        cmocka_unit_test(test_calls_queue_for_the_cores),
        cmocka_unit_test(test_calls_cost_what_their_service_says),
        cmocka_unit_test(test_background_work_takes_the_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
