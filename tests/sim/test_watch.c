/* test_watch.c - an observer sees everything and changes nothing; a bound on events ends a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/random.h"
#include "base/task.h"
#include "tests/sim/cluster.h"

#define COMPUTES   3
#define MEMORIES   2
#define TASKS      4
#define OPERATIONS 150
#define LEASE_NS   40000

struct watch {
    struct cluster cluster;
    uint64_t kinds[SIM_STALLED + 1];
    uint64_t posted_commands, finished_commands, succeeded;
    unsigned restarted, losses;
};

static void see(void *context, const struct sim_observation *seen)
{
    struct watch *watch = context;
    watch->kinds[seen->kind]++;
    if (seen->kind == SIM_POSTED)
        watch->posted_commands += seen->count;
    if (seen->kind == SIM_EFFECT && seen->status == 0)
        watch->finished_commands += seen->count;
    if (seen->kind == SIM_RETURNED && !seen->status)
        watch->succeeded++;
    if (seen->kind == SIM_POSTED || seen->kind == SIM_EFFECT || seen->kind == SIM_RETURNED) {
        assert_in_range(seen->memory, 0, MEMORIES - 1);
        assert_true(seen->compute >= 0);
        assert_int_not_equal(seen->task, UINT32_MAX);
    }
}

static void work(struct watch *watch, struct fabric_endpoint *endpoint, uint64_t seed)
{
    struct random random;
    uint64_t page[64] = {0}, old;
    random_seed(&random, seed);
    for (int i = 0; i < OPERATIONS; i++) {
        uint64_t draw = random_next(&random);
        uint16_t node = (uint16_t)(draw % MEMORIES);
        gaddr address = gaddr_make(node, 4096 + draw / 4 % 16 * 512);
        char reply[8];
        size_t length;
        switch (draw >> 62) {
        case 0:
            cluster_add(endpoint, address, 1, &old);
            break;
        case 1:
            cluster_write(endpoint, address, page, sizeof page);
            break;
        case 2:
            cluster_read(endpoint, address, page, sizeof page);
            break;
        default:
            fabric_call(endpoint, node, "hello", 5, reply, sizeof reply, &length, NULL);
        }
    }
    (void)watch;
}

static void task_of_first_three(void *argument)
{
    struct watch *watch = argument;
    uint32_t number = sim_task_number(watch->cluster.sim);
    assert_in_range(number, 0, COMPUTES * TASKS - 1);
    work(watch, watch->cluster.endpoints[number / TASKS], number);
}

static void task_of_restarted(void *argument)
{
    struct watch *watch = argument;
    struct fabric_endpoint *endpoint =
        fabric_endpoint_open(sim_fabric(watch->cluster.sim, COMPUTES), NULL); /* the world's to free */
    assert_non_null(endpoint);
    work(watch, endpoint, 99);
}

static void restart(void *argument)
{
    struct watch *watch = argument;
    assert_int_equal(sim_restart_compute(watch->cluster.sim, 0, NULL), COMPUTES);
    assert_int_equal(sim_spawn(watch->cluster.sim, COMPUTES, 0, task_of_restarted, watch, NULL), 0);
    watch->restarted++;
}
static void lost(void *argument, int compute, int memory)
{
    struct watch *watch = argument;
    watch->losses++;
    (void)compute;
    (void)memory;
}
static void stall(void *argument)
{
    struct watch *watch = argument;
    sim_stall_compute(watch->cluster.sim, 1, 3 * LEASE_NS, LEASE_NS);
    sim_stall_memory(watch->cluster.sim, 1, 20000);
}
static void cut(void *argument)
{
    struct watch *watch = argument;
    sim_cut(watch->cluster.sim, 2, 0);
}

/* Everything that can be seen, in one run. */
static struct watch run_all(bool watched, uint64_t *hash)
{
    struct watch watch = {0};
    struct sim_faults faults;
    sim_faults_hostile(&faults);
    faults.fiber_stall = 0.02;
    cluster_create(&watch.cluster, MEMORIES, COMPUTES, NULL, &faults, 4);
    struct sim *sim = watch.cluster.sim;
    if (watched)
        sim_observe(sim, see, &watch);
    sim_on_loss(sim, lost, &watch);
    for (unsigned i = 0; i < COMPUTES * TASKS; i++)
        assert_int_equal(sim_spawn(sim, (int)(i / TASKS), i % 2, task_of_first_three, &watch, NULL), 0);
    sim_kill_compute_at(sim, 0, 300, LEASE_NS, restart, &watch);
    assert_int_equal(sim_at(sim, 60000, stall, &watch), 0);
    assert_int_equal(sim_at(sim, 90000, cut, &watch), 0);
    assert_int_equal(sim_task_number(sim), UINT32_MAX);
    assert_int_equal(sim_run(sim, UINT64_MAX), 0);
    *hash = sim_trace_hash(sim);
    assert_int_equal(watch.restarted, 1);
    assert_int_equal(watch.losses, 3); /* the stalled node's two and the cut one */
    cluster_destroy(&watch.cluster);
    return watch;
}

static void test_an_observer_sees_all_and_changes_nothing(void **state)
{
    (void)state;
    uint64_t alone, watched, again;
    run_all(false, &alone);
    struct watch watch = run_all(true, &watched);
    run_all(true, &again);
    assert_int_equal(alone, watched);
    assert_int_equal(watched, again);
    for (unsigned kind = 0; kind <= SIM_STALLED; kind++)
        assert_true(watch.kinds[kind] > 0);
    assert_int_equal(watch.kinds[SIM_LOST], 3);
    assert_int_equal(watch.kinds[SIM_DIED], 1);
    assert_int_equal(watch.kinds[SIM_FENCED], 1);
    assert_int_equal(watch.kinds[SIM_RESTARTED], 1);
    assert_true(watch.succeeded <= watch.kinds[SIM_POSTED]);
    assert_true(watch.succeeded > watch.kinds[SIM_POSTED] * 9 / 10);
    assert_true(watch.finished_commands <= watch.posted_commands + watch.kinds[SIM_CALLED]);
    assert_true(watch.finished_commands > watch.posted_commands * 9 / 10);
}

/* Without faults: exactly one of each for every list and command. */
static void test_each_list_is_seen_once(void **state)
{
    (void)state;
    for (int spread = 0; spread < 2; spread++) {
        struct watch watch = {0};
        struct sim_faults faults;
        sim_faults_none(&faults);
        faults.spread = faults.torn_reads = faults.torn_writes = spread;
        cluster_create(&watch.cluster, MEMORIES, COMPUTES, NULL, &faults, 4);
        sim_observe(watch.cluster.sim, see, &watch);
        for (unsigned i = 0; i < COMPUTES * TASKS; i++)
            assert_int_equal(
                sim_spawn(watch.cluster.sim, (int)(i / TASKS), i % 2, task_of_first_three, &watch, NULL), 0);
        assert_int_equal(sim_run(watch.cluster.sim, UINT64_MAX), 0);
        assert_int_equal(watch.kinds[SIM_POSTED] + watch.kinds[SIM_CALLED], COMPUTES * TASKS * OPERATIONS);
        assert_int_equal(watch.kinds[SIM_RETURNED], watch.kinds[SIM_POSTED]);
        assert_int_equal(watch.kinds[SIM_CALL_RETURNED], watch.kinds[SIM_CALLED]);
        assert_int_equal(watch.finished_commands, watch.posted_commands);
        assert_int_equal(watch.kinds[SIM_STALLED] + watch.kinds[SIM_LOST] + watch.kinds[SIM_DIED], 0);
        /* a torn command is seen at its first and its last instant */
        uint64_t effects = watch.posted_commands + watch.kinds[SIM_CALLED];
        assert_int_equal(watch.kinds[SIM_EFFECT] > effects, spread);
        sim_observe(watch.cluster.sim, NULL, NULL);
        cluster_destroy(&watch.cluster);
    }
}

static void sleep_for_ever(void *argument)
{
    (void)argument;
    for (;;)
        task_sleep(1000);
}

static void test_events_are_limited(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_create(&cluster, 1, 1, NULL, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, sleep_for_ever, NULL, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, 100000), 1);
    assert_false(sim_exhausted(cluster.sim));
    uint64_t before = sim_events(cluster.sim);
    sim_limit_events(cluster.sim, 500);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 1);
    assert_true(sim_exhausted(cluster.sim));
    assert_int_equal(sim_events(cluster.sim), before + 500);
    uint64_t end = sim_now(cluster.sim);
    assert_in_range(end, 599000, 601000);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 1); /* it is over */
    assert_int_equal(sim_now(cluster.sim), end);
    sim_limit_events(cluster.sim, 0);
    assert_false(sim_exhausted(cluster.sim));
    sim_run(cluster.sim, end + 100000);
    assert_int_equal(sim_now(cluster.sim), end + 100000);
    cluster_destroy(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_observer_sees_all_and_changes_nothing),
        cmocka_unit_test(test_each_list_is_seen_once),
        cmocka_unit_test(test_events_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
