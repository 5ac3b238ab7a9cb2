/* test_world.c - virtual time: determinism, parking, CPU sharing, the clock, sim_at, sim_run's limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/random.h"
#include "base/task.h"
#include "tests/sim/cluster.h"

/* ------------------------------------------------------------------ determinism */

struct worker {
    struct cluster *cluster;
    unsigned compute;
    struct random random;
};

static void mixed_work(void *argument)
{
    struct worker *worker = argument;
    struct fabric_endpoint *endpoint = worker->cluster->endpoints[worker->compute];
    uint64_t buffer[64], old;
    for (int i = 0; i < 200; i++) {
        uint64_t draw = random_next(&worker->random);
        gaddr address = gaddr_make((uint16_t)(draw % 3), 4096 + draw / 4 % 64 * 512);
        task_charge(TASK_WORK_OPERATION, 1);
        if (draw >> 62 == 0)
            assert_int_equal(cluster_add(endpoint, address, 1, &old), 0);
        else if (draw >> 62 == 1)
            assert_int_equal(cluster_write(endpoint, address, buffer, 512), 0);
        else
            assert_int_equal(cluster_read(endpoint, address, buffer, 512), 0);
    }
}

struct outcome {
    uint64_t hash, end, events;
};

static struct outcome run_mixed(uint64_t seed, bool hostile)
{
    struct sim_faults faults;
    struct cluster cluster;
    struct worker workers[12];
    sim_faults_hostile(&faults);
    cluster_create(&cluster, 3, 3, NULL, hostile ? &faults : NULL, seed);
    for (unsigned i = 0; i < 12; i++) {
        workers[i] = (struct worker){.cluster = &cluster, .compute = i % 3};
        random_seed(&workers[i].random, i);
        assert_int_equal(sim_spawn(cluster.sim, (int)(i % 3), i / 6, mixed_work, &workers[i], NULL), 0);
    }
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    struct outcome outcome = {sim_trace_hash(cluster.sim), sim_now(cluster.sim), sim_events(cluster.sim)};
    cluster_destroy(&cluster);
    return outcome;
}

static void test_same_seed_same_run(void **state)
{
    (void)state;
    for (int hostile = 0; hostile < 2; hostile++) {
        struct outcome first = run_mixed(7, hostile), again = run_mixed(7, hostile),
                       other = run_mixed(8, hostile);
        assert_int_equal(first.hash, again.hash);
        assert_int_equal(first.end, again.end);
        assert_int_equal(first.events, again.events);
        assert_int_not_equal(first.hash, other.hash);
        assert_int_not_equal(first.end, other.end);
    }
}

/* ------------------------------------------------------------------ tasks */

struct pair {
    struct cluster *cluster;
    struct task *sleeper;
    uint64_t woken_at, begun_at, ended_at;
    bool flag;
};

static void park_until_flag(void *argument)
{
    struct pair *pair = argument;
    pair->sleeper = task_self();
    while (!pair->flag)
        task_park();
    pair->woken_at = task_now();
}

static void work_then_wake(void *argument)
{
    struct pair *pair = argument;
    task_charge(TASK_WORK_OPERATION, 5);
    pair->flag = true;
    task_unpark(pair->sleeper);
    task_charge(TASK_WORK_OPERATION, 100); /* after the waking: must not delay it */
}

static void test_unpark_happens_at_the_wakers_time(void **state)
{
    (void)state;
    struct sim_params params;
    struct cluster cluster;
    struct pair pair = {0};
    cluster_plain_params(&params);
    params.operation_ns = 1000;
    cluster_create(&cluster, 1, 1, &params, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, park_until_flag, &pair, NULL), 0);
    assert_int_equal(sim_spawn(cluster.sim, 0, 1, work_then_wake, &pair, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(pair.woken_at, 5000 + params.clock_ns);
    cluster_destroy(&cluster);
}

static void keep_permit(void *argument)
{
    struct pair *pair = argument;
    task_unpark(task_self());
    task_unpark(task_self());
    task_park(); /* takes the one permit at once */
    pair->flag = true;
    task_park(); /* there is no second one: waits for ever */
    pair->ended_at = 1;
}

static void test_one_permit_is_kept(void **state)
{
    (void)state;
    struct cluster cluster;
    struct pair pair = {0};
    cluster_create(&cluster, 1, 1, NULL, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, keep_permit, &pair, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 1);
    assert_true(pair.flag);
    assert_int_equal(pair.ended_at, 0);
    cluster_destroy(&cluster);
}

static void charge_and_read(void *argument)
{
    struct pair *pair = argument;
    uint64_t word;
    pair->begun_at = task_now();
    for (int i = 0; i < 10; i++) {
        task_charge(TASK_WORK_OPERATION, 1);
        assert_int_equal(cluster_read(pair->cluster->endpoints[0], gaddr_make(0, 64), &word, 8), 0);
    }
    pair->ended_at = task_now();
}

/* When the last of `count` tasks on `threads` CPU threads is done. */
static uint64_t run_shared(unsigned count, unsigned threads)
{
    struct sim_params params;
    struct cluster cluster;
    struct pair pairs[8];
    uint64_t end = 0;
    cluster_plain_params(&params);
    params.operation_ns = 10000;
    cluster_create(&cluster, 1, 1, &params, NULL, 1);
    for (unsigned i = 0; i < count; i++) {
        pairs[i] = (struct pair){.cluster = &cluster};
        assert_int_equal(sim_spawn(cluster.sim, 0, i % threads, charge_and_read, &pairs[i], NULL), 0);
    }
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    for (unsigned i = 0; i < count; i++)
        end = pairs[i].ended_at > end ? pairs[i].ended_at : end;
    cluster_destroy(&cluster);
    return end;
}

static void test_fibers_share_their_cpu(void **state)
{
    (void)state;
    uint64_t alone = run_shared(1, 1), together = run_shared(4, 1), apart = run_shared(4, 4);
    /* ten operations of 10 us and ten round trips */
    assert_in_range(alone, 100000, 130000);
    /* four times the CPU time, but the round trips are hidden behind each other's work */
    assert_in_range(together, 400000, 410000);
    /* CPUs of their own: as fast as alone, but for the NIC's few nanoseconds */
    assert_in_range(apart, alone, alone + 1000);
}

static void sleep_and_look(void *argument)
{
    struct pair *pair = argument;
    uint64_t before = task_now();
    task_charge(TASK_WORK_OPERATION, 1);
    task_sleep(5000);
    pair->woken_at = task_now() - before;
    while (task_now() < 20000) /* a loop on the clock ends */
        task_yield();
    pair->ended_at = task_now();
}

static void test_sleep_charge_and_clock(void **state)
{
    (void)state;
    struct sim_params params;
    struct cluster cluster;
    struct pair pair = {0};
    cluster_plain_params(&params);
    params.operation_ns = 300;
    cluster_create(&cluster, 1, 1, &params, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, sleep_and_look, &pair, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(pair.woken_at, 5300 + params.clock_ns);
    assert_in_range(pair.ended_at, 20000, 20000 + 4 * (params.clock_ns + params.yield_ns));
    cluster_destroy(&cluster);
}

static void set_flag(void *argument)
{
    struct pair *pair = argument;
    pair->flag = true;
    pair->woken_at = sim_now(pair->cluster->sim);
}

static void sleep_long(void *argument)
{
    (void)argument;
    task_sleep(1000000);
}

static void test_run_stops_at_its_limit(void **state)
{
    (void)state;
    struct cluster cluster;
    struct pair pair = {.cluster = &cluster};
    cluster_create(&cluster, 1, 1, NULL, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, sleep_long, NULL, NULL), 0);
    assert_int_equal(sim_at(cluster.sim, 600000, set_flag, &pair), 0);
    assert_int_equal(sim_run(cluster.sim, 500000), 1);
    assert_int_equal(sim_now(cluster.sim), 500000);
    assert_false(pair.flag);
    assert_int_equal(sim_run(cluster.sim, 700000), 1);
    assert_true(pair.flag);
    assert_int_equal(pair.woken_at, 600000);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(sim_now(cluster.sim), 1000000);
    cluster_destroy(&cluster);
}

static void test_misuse_is_refused(void **state)
{
    (void)state;
    struct cluster cluster;
    struct error error = {0};
    uint64_t word;
    cluster_create(&cluster, 1, 1, NULL, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 5, 0, sleep_long, NULL, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "5"));
    /* outside of a task there is no virtual time to wait in */
    assert_int_equal(cluster_read(cluster.endpoints[0], gaddr_make(0, 64), &word, 8), BANYAN_EINVAL);
    cluster_destroy(&cluster);
}

static void test_bad_parameters_are_refused(void **state)
{
    (void)state;
    struct sim_params params;
    struct sim_faults faults;
    struct error error = {0};
    sim_params_default(&params);
    params.bandwidth = 0;
    assert_null(sim_create(&params, NULL, 1, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "bandwidth"));
    sim_params_default(&params);
    params.dma_read_rate = 1e-300; /* the time of one read would not fit 64 bits */
    assert_null(sim_create(&params, NULL, 1, &error));
    assert_non_null(strstr(error.text, "0 (no limit) or from 0.001"));
    sim_faults_none(&faults);
    faults.torn_reads = 1.5;
    assert_null(sim_create(NULL, &faults, 1, &error));
    assert_non_null(strstr(error.text, "torn-reads"));
}

/* The NIC's capabilities: the fabric tells the same, and impossible ones are refused. */
static void test_capabilities(void **state)
{
    (void)state;
    struct sim_params params;
    struct cluster cluster;
    struct error error = {0};
    sim_params_default(&params);
    cluster_create(&cluster, 1, 1, &params, NULL, 1);
    const struct fabric_capabilities *capabilities = fabric_capabilities(sim_fabric(cluster.sim, 0));
    assert_true(capabilities->masked_cas && capabilities->release_by_write);
    assert_int_equal(capabilities->lock_width, 2);
    assert_int_equal(capabilities->atomic_write, 1024);
    cluster_destroy(&cluster);

    assert_int_equal(option_set_list(sim_params_table, &params,
                                     "lock-width=8,masked-cas=no,release-by-write=no,atomic-write=2048",
                                     &error),
                     0);
    struct sim *sim = sim_create(&params, NULL, 1, &error);
    assert_non_null(sim);
    struct fabric_target target = {.lock_width = 2};
    assert_int_equal(sim_add_memory(sim, &target, &error), BANYAN_EINVAL); /* another's locks */
    assert_non_null(strstr(error.text, "masked-cas"));
    target.lock_width = 8;
    assert_int_equal(sim_add_memory(sim, &target, &error), 0);
    assert_int_equal(sim_add_compute(sim, &error), 0);
    capabilities = fabric_capabilities(sim_fabric(sim, 0));
    assert_false(capabilities->masked_cas || capabilities->release_by_write);
    assert_int_equal(capabilities->lock_width, 8);
    assert_int_equal(capabilities->atomic_write, 2048);
    sim_destroy(sim);

    params.lock_width = 2;
    assert_null(sim_create(&params, NULL, 1, &error));
    assert_non_null(strstr(error.text, "masked-cas"));
    params.lock_width = 4;
    assert_null(sim_create(&params, NULL, 1, &error));
    assert_non_null(strstr(error.text, "must be 2 or 8"));
}

static void test_tables_set_and_find_every_parameter(void **state)
{
    (void)state;
    struct sim_params params;
    struct sim_faults faults;
    struct error error = {0};
    char text[64];
    sim_params_default(&params);
    assert_int_equal(
        option_set_list(sim_params_table, &params, "wire-ns=77,bandwidth=25,shared-nic=off", &error), 0);
    assert_int_equal(params.wire_ns, 77);
    assert_true(params.bandwidth == 25 && !params.shared_nic);
    assert_int_equal(option_set(sim_params_table, &params, "yield-ns", "0", &error), BANYAN_EINVAL);
    for (const struct option_entry *entry = sim_params_table; entry->kind != OPTION_END; entry++) {
        option_format(entry, &params, text, sizeof text); /* every default is within its own range */
        assert_int_equal(option_set(sim_params_table, &params, entry->name, text, &error), 0);
        assert_non_null(entry->help);
    }
    sim_faults_none(&faults);
    assert_false(sim_faults_any(&faults));
    assert_int_equal(option_set(sim_faults_table, &faults, "torn-reads", "0.25", &error), 0);
    assert_true(sim_faults_any(&faults));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_run),
        cmocka_unit_test(test_unpark_happens_at_the_wakers_time),
        cmocka_unit_test(test_one_permit_is_kept),
        cmocka_unit_test(test_fibers_share_their_cpu),
        cmocka_unit_test(test_sleep_charge_and_clock),
        cmocka_unit_test(test_run_stops_at_its_limit),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_bad_parameters_are_refused),
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test(test_tables_set_and_find_every_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
