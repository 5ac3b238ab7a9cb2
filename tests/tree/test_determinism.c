/* test_determinism.c - one seed, one run: the same events, the same counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "swarm/churn_world.h"

struct outcome {
    uint64_t trace, events, now;
    struct tree_stats stats;
};

static void once(uint64_t seed, bool death, size_t shift, struct outcome *outcome)
{
    struct world world;
    struct world_options options;
    struct churn churn = {.keys = 480, .window = 40, .rounds = 100, .hot = 8, .scans = 6, .multis = 5};
    world_options_default(&options);
    options.simulated = true;
    options.seed = seed;
    options.memory_nodes = 2;
    options.compute_nodes = 3;
    options.threads = 2;
    options.fibers = 2;
    options.geometry.leaf_bytes = 512;
    options.cache_bytes = 16384;
    sim_faults_hostile(&options.faults);
    /* Other addresses in each run: nothing may depend on them. */
    void *shifted = malloc(shift);
    assert_non_null(shifted);
    int status = world_create(&world, &options);
    status = status ? status : churn_world_fill(&world, &churn);
    if (!status && death)
        status = world_kill_at(&world, 1, 300000, 50000);
    status = status ? status : churn_world_work(&world, &churn);
    memset(outcome, 0, sizeof *outcome);
    if (!status) {
        outcome->trace = sim_trace_hash(world.sim);
        outcome->events = sim_events(world.sim);
        outcome->now = sim_now(world.sim);
        world_stats(&world, &outcome->stats);
    }
    struct error error = world.error;
    world_destroy(&world);
    free(shifted);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

static void same_seed_same_run(void **state)
{
    for (uint64_t seed = 1; seed <= world_rounds(3); seed++)
        for (unsigned death = 0; death < 2; death++) {
            struct outcome first, second;
            once(world_seed(seed), death, 100, &first);
            once(world_seed(seed), death, 100000 * seed + 17, &second);
            assert_true(first.events > 1000);
            assert_int_equal(first.events, second.events);
            assert_int_equal(first.now, second.now);
            assert_int_equal(first.trace, second.trace);
            assert_memory_equal(&first.stats, &second.stats, sizeof first.stats);
        }
}

static void another_seed_another_run(void **state)
{
    struct outcome first, second;
    once(11, false, 100, &first);
    once(12, false, 100, &second);
    assert_true(first.trace != second.trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_run),
        cmocka_unit_test(another_seed_another_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
