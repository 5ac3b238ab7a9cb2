/*
 * test_atomics.c - atomics at a NIC, on host memory and on its own: how many a second, conflicts, and what a
 * conflict holds up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "sim/nic.h"
#include "tests/sim/load.h"

/* Conflicting atomics come one by one, on one word or on several of one bucket; others do not wait. */
static void test_hot_atomics_on_host(void **state)
{
    (void)state;
    struct sim_params params;
    struct fabric_command commands[256];
    sim_params_default(&params);
    params.shared_nic = false;
    params.wire_ns = params.jitter_ns = 100; /* near enough that the NIC is what limits */
    double bucket = 1e9 / (params.atomic_fetch_ns + params.atomic_writeback_ns);
    load_fill(commands, 64, FABRIC_FAA, 0, 4096, 0); /* one counter */
    double hot = load_rate(&params, commands, 64, 4);
    load_assert_limit(hot, bucket);
    load_fill(commands, 64, FABRIC_FAA, 0, 4096, 4096); /* 64 counters of one bucket: no better */
    load_assert_limit(load_rate(&params, commands, 64, 4), bucket);
    load_fill(commands, 64, FABRIC_FAA, 0, 4096, 8); /* 64 buckets: limited by latency alone */
    assert_true(load_rate(&params, commands, 64, 4) > 10 * hot);
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
    params.wire_ns = params.jitter_ns = 100;
    params.message_rate_in = params.message_rate_out = 1000; /* the unit for atomics is what is tested */
    load_fill(commands, 256, FABRIC_FAA, 0, region, 8);      /* different words: the unit's rate */
    load_assert_limit(load_rate(&params, commands, 256, 8), params.chip_rate * 1e6);
    for (params.chip_ns = 10; params.chip_ns <= 100; params.chip_ns += 45) {
        load_fill(commands, 256, FABRIC_FAA, 0, region, 0); /* one word: the bucket is busy for chip-ns */
        load_assert_limit(load_rate(&params, commands, 256, 8), 1e9 / params.chip_ns);
        load_fill(commands, 16, FABRIC_FAA, 0, region, 4096); /* one bucket: no better */
        for (unsigned i = 16; i < 256; i++)
            commands[i] = commands[i % 16];
        load_assert_limit(load_rate(&params, commands, 256, 8), 1e9 / params.chip_ns);
    }
    params.chip_ns = 0; /* off: the rate limits even one word */
    load_fill(commands, 256, FABRIC_FAA, 0, region, 0);
    load_assert_limit(load_rate(&params, commands, 256, 8), params.chip_rate * 1e6);
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
    load_assert_limit(load_rate(&params, commands, 64, 4), 1e9 / params.chip_ns);
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
    double failing = load_rate(&params, commands, 64, 4), most = 1e9 / params.atomic_fetch_ns;
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
        load_spawn(&cluster, &hot[i], i % 3, i / 3);
    }
    reader_there =
        (struct load){.command = {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(0, 65536)}};
    reader_elsewhere =
        (struct load){.command = {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(1, 65536)}};
    load_spawn(&cluster, &reader_there, 3, 0);
    load_spawn(&cluster, &reader_elsewhere, 3, 1);
    sim_run(cluster.sim, RUN_NS);
    uint64_t idle = load_idle_ns(&params) + params.pcie_read_ns;
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
        load_spawn(&cluster, &hot[i], 2 + i % 2, i / 2);
    }
    reader =
        (struct load){.command = {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(1, 65536)}};
    load_spawn(&cluster, &reader, 0, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hot_atomics_on_host),
        cmocka_unit_test(test_hot_atomics_on_chip),
        cmocka_unit_test(test_buckets_on_host_and_on_chip_are_apart),
        cmocka_unit_test(test_failed_cas_omits_the_write_back),
        cmocka_unit_test(test_a_hot_atomic_blocks_its_nic_alone),
        cmocka_unit_test(test_answers_wait_behind_a_hot_atomic_only_if_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
