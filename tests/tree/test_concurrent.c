/* test_concurrent.c - many threads and many fibers at once on real memory. Made for the thread sanitizer
 * too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include "swarm/churn_world.h"
#include "swarm/served.h"

static struct churn_total total;

static void run(const struct world_options *options, struct churn *churn)
{
    struct world world;
    int status = world_create(&world, options);
    status = status ? status : churn_world_run(&world, churn, &total);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%s: %d: %s; BANYAN_SEED=%" PRIu64, options->preset, status, error.text, options->seed);
}

static void options_for(struct world_options *options, unsigned computes, unsigned threads, unsigned fibers)
{
    world_options_default(options);
    options->seed = world_seed(computes * 100 + threads * 10 + fibers);
    options->compute_nodes = computes;
    options->threads = threads;
    options->fibers = fibers;
    options->memory_nodes = 2;
    options->preset = "banyan";
    options->geometry.leaf_bytes = 512;
    options->geometry.internal_bytes = 512;
}

static void few_hot_keys(void **state)
{
    struct world_options options;
    options_for(&options, 2, 2, 1);
    struct churn churn = {
        .keys = 160, .window = 16, .rounds = world_rounds(5000), .hot = 50, .scans = 2, .multis = 5};
    run(&options, &churn);
}

static void churn_of_many_threads(void **state)
{
    struct world_options options;
    options_for(&options, 2, 3, 1);
    struct churn churn = {
        .keys = 1200, .window = 80, .rounds = world_rounds(5000), .hot = 5, .scans = 3, .multis = 5};
    run(&options, &churn);
    options.cache_bytes = 8192;
    options.seed++;
    run(&options, &churn);
}

static void disjoint_changes(void **state)
{
    struct world_options options;
    options_for(&options, 1, 4, 1);
    struct churn churn = {
        .keys = 2000, .window = 200, .rounds = world_rounds(8000), .scans = 3, .multis = 5, .disjoint = true};
    run(&options, &churn);
}

static void many_fibers(void **state)
{
    struct world_options options;
    options_for(&options, 2, 2, 8);
    struct churn churn = {
        .keys = 800, .window = 60, .rounds = world_rounds(1000), .hot = 10, .scans = 4, .multis = 5};
    run(&options, &churn);
}

/* Whether the memory nodes are beyond a network: making a world takes long there. */
static bool far(void)
{
    return served_way() != SERVED_LOCAL;
}

/* One compute node, which owns the index: its tasks exclude each other by local queues alone. */
static void owned(void **state)
{
    struct world_options options;
    struct churn churn = {.keys = 400,
                          .window = 40,
                          .rounds = world_rounds(3000),
                          .hot = 20,
                          .scans = 3,
                          .multis = 8,
                          .merges = 3};
    for (unsigned fibers = 1; fibers <= 4; fibers += 3) {
        options_for(&options, 1, 4, fibers);
        options.owned = true;
        run(&options, &churn);
        options.geometry.leaf_kind = fibers == 1 ? FORMAT_LEAF_UNSORTED : FORMAT_LEAF_DENSE;
        if (!far())
            run(&options, &churn);
    }
    options_for(&options, 1, 4, 1);
    options.owned = true;
    for (unsigned preset = 0; tree_switches_presets[preset] && !far(); preset++) {
        options.preset = tree_switches_presets[preset];
        run(&options, &churn);
    }
}

/* The same with leaves and entries in a cache that is far too small, so that all of it goes and comes. */
static void owned_and_cached(void **state)
{
    struct world_options options;
    struct churn churn = {.keys = 400,
                          .window = 40,
                          .rounds = world_rounds(2000),
                          .hot = 20,
                          .scans = 3,
                          .multis = 8,
                          .merges = 3};
    for (int policy = TREE_CACHE_DEX; policy <= TREE_CACHE_BANYAN; policy++)
        for (unsigned size = 0; size < (far() ? 1u : 2u); size++) {
            options_for(&options, 1, 4, size ? 4 : 1);
            options.owned = true;
            options.cache_policy = (enum tree_cache_policy)policy;
            options.cache_bytes = size ? 1 << 20 : 24576;
            run(&options, &churn);
        }
}

static void every_preset(void **state)
{
    struct world_options options;
    options_for(&options, 2, 2, 1);
    struct churn churn = {
        .keys = 400, .window = 40, .rounds = world_rounds(1500), .hot = 15, .scans = 3, .multis = 5};
    for (unsigned preset = 0; tree_switches_presets[preset]; preset++) {
        options.preset = tree_switches_presets[preset];
        run(&options, &churn);
        options.geometry.leaf_kind ^= FORMAT_LEAF_UNSORTED;
    }
}

/* Many writers in few leaves, of that kind. */
static void crowd_for(struct world_options *options, struct churn *churn, enum format_leaf_kind kind)
{
    options_for(options, 2, 3, 2);
    options->geometry.leaf_kind = (uint8_t)kind;
    *churn = (struct churn){.keys = 800,
                            .window = 60,
                            .rounds = world_rounds(2000),
                            .hot = 20,
                            .scans = 3,
                            .multis = 5,
                            .merges = 3};
}

/* Dense leaves: more writers meet in each of fewer buckets. */
static void dense_leaves(void **state)
{
    struct world_options options;
    struct churn churn;
    crowd_for(&options, &churn, FORMAT_LEAF_DENSE);
    run(&options, &churn);
}

/* Sherman's leaf, under its own switches and under all of ours: writers meet in its one bucket. */
static void unsorted_leaves(void **state)
{
    struct world_options options;
    struct churn churn;
    crowd_for(&options, &churn, FORMAT_LEAF_UNSORTED);
    for (unsigned preset = 0; preset < 2; preset++) {
        options.preset = preset ? "banyan" : "sherman";
        run(&options, &churn);
    }
}

static void variable_keys(void **state)
{
    struct world_options options;
    options_for(&options, 2, 2, 1);
    options.geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                .internal_bytes = 4096,
                                                .value_bytes = 60,
                                                .value_variable = true,
                                                .leaf_bytes = 2048};
    struct churn churn = {
        .keys = 800, .window = 60, .rounds = world_rounds(4000), .hot = 5, .scans = 4, .multis = 5};
    run(&options, &churn);
}

static void long_keys(void **state)
{
    struct world_options options;
    options_for(&options, 2, 2, 2);
    options.long_keys = true;
    options.geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                .key_bytes = 100,
                                                .inline_key_bytes = 16,
                                                .internal_bytes = 1024,
                                                .value_bytes = 8,
                                                .leaf_bytes = 1024};
    struct churn churn = {
        .keys = 400, .window = 30, .rounds = world_rounds(2000), .hot = 10, .scans = 6, .multis = 5};
    run(&options, &churn);
}

static void did_something(void **state)
{
    churn_total_print(&total, "threads");
    if (world_rounds(100) < 100)
        skip(); /* a run that is scaled down need not come to it */
    assert_true(total.splits > total.runs);
    assert_true(total.unlinks > total.runs / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_hot_keys),
        cmocka_unit_test(churn_of_many_threads),
        cmocka_unit_test(disjoint_changes),
        cmocka_unit_test(many_fibers),
        cmocka_unit_test(owned),
        cmocka_unit_test(owned_and_cached),
        cmocka_unit_test(every_preset),
        cmocka_unit_test(variable_keys),
        cmocka_unit_test(long_keys),
        cmocka_unit_test(unsorted_leaves),
        cmocka_unit_test(dense_leaves),
        cmocka_unit_test(did_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
