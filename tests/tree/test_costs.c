/* test_costs.c - what operations cost in round trips when the inner nodes are cached: exact numbers,
 * counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include "swarm/world.h"

#define KEYS 5000u

struct costs {
    const char *preset;
    double hit, miss, update, scan, snapshot;
};

/* Even numbers exist. */
static void fill(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, random_mix(i) % 1000003 * 2 + i * 4000000, 0);
}

static uint64_t existing(uint64_t i)
{
    return random_mix(i) % 1000003 * 2 + i * 4000000;
}

static bool count_entries(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    ++*(uint64_t *)context;
    return true;
}

static double scans(struct world_task *task)
{
    unsigned rounds = 200;
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < rounds; i++) {
        uint8_t from[FORMAT_KEY_MAX];
        uint64_t seen = 0;
        struct tree_range range = {.from = from, .limit = 100};
        range.from_length = world_key(task->world, existing(random_below(&task->random, KEYS - 200)), from);
        if (tree_scan(task->session, task->tree, &range, count_entries, &seen) || seen != 100)
            world_fail(task->world, BANYAN_ECORRUPT, "a scan of 100 met %" PRIu64, seen);
    }
    return (double)tree_session_stats(task->session)->cost.round_trips / rounds;
}

static double per_operation(struct world_task *task, enum history_kind kind, uint64_t offset, int expected)
{
    unsigned rounds = 2000;
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < rounds; i++) {
        int status = world_operate(task, kind, existing(random_below(&task->random, KEYS)) + offset, 0);
        if (status != expected)
            world_fail(task->world, status ? status : BANYAN_ECORRUPT, "status %d instead of %d", status,
                       expected);
    }
    return (double)tree_session_stats(task->session)->cost.round_trips / rounds;
}

static void measure(struct world_task *task)
{
    struct costs *costs = task->world->context;
    for (unsigned i = 0; i < KEYS; i++)
        world_operate(task, HISTORY_GET, existing(i), 0); /* every inner node is cached now */
    costs->hit = per_operation(task, HISTORY_GET, 0, 0);
    costs->miss = per_operation(task, HISTORY_GET, 1, BANYAN_ENOTFOUND);
    costs->update = per_operation(task, HISTORY_UPDATE, 0, 0);
    costs->scan = scans(task);
}

static void measure_preset(const char *preset, uint32_t key_kind, struct costs *costs)
{
    struct world world;
    struct world_options options;
    world_options_default(&options);
    options.preset = preset;
    if (key_kind == FORMAT_KEY_VARIABLE)
        options.geometry = (struct format_geometry){
            .key_kind = FORMAT_KEY_VARIABLE, .internal_bytes = 4096, .value_bytes = 8};
    *costs = (struct costs){.preset = preset};
    int status = world_create(&world, &options);
    world.context = costs;
    status = status ? status : world_run_one(&world, 0, fill);
    status = status ? status : world_run_one(&world, 0, measure);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%s: %d: %s", preset, status, error.text);
    print_message("%-14s hit %.3f miss %.3f update %.3f scan of 100 %.3f\n", preset, costs->hit, costs->miss,
                  costs->update, costs->scan);
}

static void costs_of_every_preset(void **state)
{
    for (unsigned i = 0; tree_switches_presets[i]; i++) {
        struct costs costs;
        measure_preset(tree_switches_presets[i], FORMAT_KEY_FIXED, &costs);
        assert_true(costs.hit == 1.0);
        assert_true(costs.miss >= 1.0 && costs.miss <= 2.0);
        assert_true(costs.update >= 2.0 && costs.update <= 4.0);
        if (i > 1) /* behind fg and fg+ each list does more */
            assert_true(costs.update <= 3.0);
        assert_true(costs.scan <= 2.0);
    }
}

static void costs_as_designed(void **state)
{
    struct costs costs;
    measure_preset("fg", FORMAT_KEY_FIXED, &costs);
    assert_true(costs.update == 4.0);
    measure_preset("fg+", FORMAT_KEY_FIXED, &costs);
    assert_true(costs.update == 4.0);
    measure_preset("+combine", FORMAT_KEY_FIXED, &costs);
    assert_true(costs.update == 3.0);
    measure_preset("banyan", FORMAT_KEY_FIXED, &costs);
    assert_true(costs.update == 2.0);
}

static void costs_of_variable_keys(void **state)
{
    struct costs costs;
    measure_preset("banyan", FORMAT_KEY_VARIABLE, &costs);
    assert_true(costs.hit == 1.0);
    assert_true(costs.miss <= 2.0);
    assert_true(costs.update == 2.0);
    assert_true(costs.scan <= 2.0);
}

/* ---- levels that the cache does not keep (Cell §4): each costs an operation a round trip ---- */

#define LEVELS_SEEN 2u

static void measure_levels(struct world_task *task)
{
    double *hit = task->world->context;
    for (unsigned i = 0; i < KEYS; i++)
        world_operate(task, HISTORY_GET, existing(i), 0); /* every inner node that is kept is cached now */
    *hit = per_operation(task, HISTORY_GET, 0, 0);
}

static void costs_of_levels_that_are_not_kept(void **state)
{
    double hits[LEVELS_SEEN + 1];
    for (uint32_t lowest = 0; lowest <= LEVELS_SEEN; lowest++) {
        struct world world;
        struct world_options options;
        struct tree_switches switches;
        world_options_default(&options);
        tree_switches_preset(&switches, "banyan", NULL);
        switches.cache_bytes = 8 << 20;
        switches.cache_lowest = lowest;
        options.switches = &switches;
        options.geometry.internal_bytes = 512; /* many levels */
        int status = world_create(&world, &options);
        world.context = &hits[lowest];
        status = status ? status : world_run_one(&world, 0, fill);
        status = status ? status : world_run_one(&world, 0, measure_levels);
        struct error error = world.error;
        world_destroy(&world);
        if (status)
            fail_msg("%d: %s", status, error.text);
    }
    assert_true(hits[0] == 1.0);
    for (uint32_t lowest = 1; lowest <= LEVELS_SEEN; lowest++)
        assert_true(hits[lowest] == lowest);
}

/* ---- an owned range (O5): no command but reads and writes of the leaf itself ---- */

struct owned_costs {
    struct fabric_cost lookups, updates, puts, gets;
};

#define OWNED_ROUNDS 1000u

static void add_operations(struct world_task *task, enum history_kind kind, struct fabric_cost *cost)
{
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < OWNED_ROUNDS; i++)
        if (world_operate(task, kind, existing(random_below(&task->random, KEYS)), 0))
            world_fail(task->world, BANYAN_ECORRUPT, "a key is missing");
    *cost = tree_session_stats(task->session)->cost;
}

static void add_batches(struct world_task *task, bool put, struct fabric_cost *cost)
{
    struct tree_item items[16];
    uint8_t keys[16][FORMAT_KEY_MAX], values[16][FORMAT_VALUE_MAX];
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < OWNED_ROUNDS; i++) {
        for (unsigned j = 0; j < 16; j++) {
            uint64_t key = existing((i * 16 + j * 311) % KEYS);
            items[j] = (struct tree_item){.key = keys[j], .value = values[j]};
            items[j].key_length = world_key(task->world, key, keys[j]);
            items[j].length = put ? world_value(task->world, 1, values[j]) : FORMAT_VALUE_MAX;
        }
        if (put ? tree_multi_put(task->session, task->tree, items, 16)
                : tree_multi_get(task->session, task->tree, items, 16))
            world_fail(task->world, BANYAN_ECORRUPT, "a batch failed");
    }
    *cost = tree_session_stats(task->session)->cost;
}

static void measure_owned(struct world_task *task)
{
    struct owned_costs *costs = task->world->context;
    for (unsigned i = 0; i < KEYS; i++)
        world_operate(task, HISTORY_GET, existing(i), 0); /* every inner node is cached now */
    add_operations(task, HISTORY_GET, &costs->lookups);
    add_operations(task, HISTORY_UPDATE, &costs->updates);
    add_batches(task, true, &costs->puts);
    add_batches(task, false, &costs->gets);
}

static void costs_of_owned_ranges(void **state)
{
    struct world world;
    struct world_options options;
    struct owned_costs costs = {0};
    world_options_default(&options);
    options.owned = true;
    int status = world_create(&world, &options);
    world.context = &costs;
    status = status ? status : world_run_one(&world, 0, fill);
    status = status ? status : world_run_one(&world, 0, measure_owned);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
    assert_int_equal(costs.lookups.round_trips, OWNED_ROUNDS);
    assert_int_equal(costs.updates.round_trips, 2 * OWNED_ROUNDS);
    assert_int_equal(costs.updates.reads, 2 * OWNED_ROUNDS); /* header and bucket */
    assert_int_equal(costs.updates.writes, OWNED_ROUNDS);    /* the slot */
    assert_int_equal(costs.puts.round_trips, 2 * OWNED_ROUNDS);
    assert_int_equal(costs.puts.writes, 16 * OWNED_ROUNDS);
    assert_int_equal(costs.gets.round_trips, OWNED_ROUNDS);
    assert_int_equal(costs.lookups.atomics + costs.updates.atomics + costs.puts.atomics + costs.gets.atomics,
                     0);
}

/* ---- an owned range whose leaves and entries are cached: reads cost nothing, writes one round trip ---- */

static void measure_cached(struct world_task *task)
{
    struct owned_costs *costs = task->world->context;
    for (unsigned i = 0; i < KEYS; i++)
        world_operate(task, HISTORY_GET, existing(i), 0); /* everything is cached now */
    add_operations(task, HISTORY_GET, &costs->lookups);
    add_operations(task, HISTORY_UPDATE, &costs->updates);
    add_operations(task, HISTORY_GET, &costs->gets);
}

static void costs_of_cached_ranges(void **state)
{
    for (int policy = TREE_CACHE_DEX; policy <= TREE_CACHE_BANYAN; policy++) {
        struct world world;
        struct world_options options;
        struct owned_costs costs = {0};
        struct tree_switches switches;
        bool leaves = policy != TREE_CACHE_DINOMO;
        world_options_default(&options);
        tree_switches_preset(&switches, "banyan", NULL);
        switches.cache_bytes = 8 << 20;
        switches.ownership = TREE_OWNERSHIP_ALL;
        switches.cache_policy = policy;
        switches.admission = 1;
        options.switches = &switches;
        options.cache_policy = (enum tree_cache_policy)policy;
        int status = world_create(&world, &options);
        world.context = &costs;
        status = status ? status : world_run_one(&world, 0, fill);
        status = status ? status : world_run_one(&world, 0, measure_cached);
        struct error error = world.error;
        world_destroy(&world);
        if (status)
            fail_msg("%d: %s", status, error.text);
        /* Where a set of entries was full when a key came, that is a shortcut, which costs one once more. */
        uint64_t shortcuts = leaves ? 0 : OWNED_ROUNDS / 10;
        assert_in_range(costs.lookups.round_trips + costs.gets.round_trips, 0, shortcuts);
        assert_int_equal(costs.updates.round_trips, (leaves ? 1 : 2) * OWNED_ROUNDS);
        assert_int_equal(costs.updates.reads, (leaves ? 0 : 2) * OWNED_ROUNDS);
        assert_int_equal(costs.updates.writes, OWNED_ROUNDS);
        assert_int_equal(costs.updates.atomics, 0);
    }
}

/* ---- an owned range of which only entries are cached: an update of a key whose entry knows its slot ---- */

#define PLACED 64u
#define AGAIN  16u

static void measure_placed(struct world_task *task)
{
    struct owned_costs *costs = task->world->context;
    for (unsigned i = 0; i < KEYS; i++)
        world_operate(task, HISTORY_GET, existing(i), 0); /* every inner node is cached now */
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < PLACED; i++)
        world_operate(task, HISTORY_UPDATE, existing(i * 77), 0);
    costs->lookups = tree_session_stats(task->session)->cost; /* the first time: the slot is looked for */
    for (unsigned i = 0; i < PLACED * 4; i++) /* in a full set one may have gone for another */
        world_operate(task, HISTORY_UPDATE, existing(i % PLACED * 77), 0);
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < PLACED * AGAIN; i++)
        world_operate(task, HISTORY_UPDATE, existing(i % PLACED * 77), 0);
    costs->updates = tree_session_stats(task->session)->cost;
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < PLACED; i++)
        world_operate(task, HISTORY_INSERT, existing(i * 77), 0); /* there is one */
    costs->gets = tree_session_stats(task->session)->cost;
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < PLACED; i++)
        world_operate(task, HISTORY_DELETE, existing(i * 77), 0);
    costs->puts = tree_session_stats(task->session)->cost;
}

static void costs_of_placed_entries(void **state)
{
    struct world world;
    struct world_options options;
    struct owned_costs costs = {0};
    struct tree_switches switches;
    struct tree_cache_stats stats;
    world_options_default(&options);
    tree_switches_preset(&switches, "banyan", NULL);
    switches.cache_bytes = 4096; /* no leaf finds room: inner nodes and one segment of entries take it all */
    switches.ownership = TREE_OWNERSHIP_ALL;
    switches.cache_policy = TREE_CACHE_BANYAN;
    options.switches = &switches;
    options.cache_policy = TREE_CACHE_BANYAN;
    int status = world_create(&world, &options);
    world.context = &costs;
    status = status ? status : world_run_one(&world, 0, fill);
    status = status ? status : world_run_one(&world, 0, measure_placed);
    struct error error = world.error;
    if (!status)
        tree_cache_stats(world.computes[0].tree, &stats);
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
    assert_int_equal(costs.lookups.round_trips, 2 * PLACED);
    assert_int_equal(costs.updates.round_trips, PLACED * AGAIN);
    assert_int_equal(costs.updates.reads, 0);
    assert_int_equal(costs.updates.writes, PLACED * AGAIN);
    assert_int_equal(costs.updates.atomics, 0);
    assert_int_equal(costs.gets.round_trips, 0);
    assert_in_range(costs.puts.round_trips, 2 * PLACED, 3 * PLACED); /* a last one of its bucket: the leaf */
    assert_true(stats.placed >= PLACED * AGAIN + 2 * PLACED);
    assert_int_equal(stats.leaves.hits, 0);
}

/* ---- long keys ----------------------------------------------------------------------------------- */

struct long_costs {
    double hit, miss, update;
    unsigned operations, inserted_in_two, deleted_in_two; /* round trips without allocation's calls */
    uint64_t scan, leaves, seen;
};

static void fill_long(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, i * 2, 0);
}

/* Of so many operations on long keys: how many took two round trips? */
static unsigned in_two(struct world_task *task, enum history_kind kind, unsigned *operations)
{
    unsigned counted = 0;
    *operations = 0;
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++) {
        uint8_t key[FORMAT_KEY_MAX];
        if (world_key(task->world, i * 2 + 1, key) < 60)
            continue;
        tree_session_stats_reset(task->session);
        if (world_operate(task, kind, i * 2 + 1, 0))
            world_fail(task->world, BANYAN_ECORRUPT, "a long key could not be changed");
        const struct fabric_cost *cost = &tree_session_stats(task->session)->cost;
        counted += cost->round_trips - cost->rpcs == 2;
        ++*operations;
    }
    return counted;
}

static double per_key(struct world_task *task, enum history_kind kind, uint64_t offset)
{
    tree_session_stats_reset(task->session);
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        world_operate(task, kind, i * 2 + offset, 0);
    return (double)tree_session_stats(task->session)->cost.round_trips / KEYS;
}

static void measure_long(struct world_task *task)
{
    struct long_costs *costs = task->world->context;
    struct tree_check_report report = {0};
    const struct tree_range all = {0};
    per_key(task, HISTORY_GET, 0); /* every inner node is cached now */
    costs->hit = per_key(task, HISTORY_GET, 0);
    costs->miss = per_key(task, HISTORY_GET, 1);
    costs->update = per_key(task, HISTORY_UPDATE, 0);
    if (tree_check(task->session, task->tree, &report, NULL, NULL) || report.key_blocks < KEYS / 4)
        world_fail(task->world, BANYAN_ECORRUPT, "%" PRIu64 " key blocks", report.key_blocks);
    costs->leaves = report.leaves;
    tree_session_stats_reset(task->session);
    tree_scan(task->session, task->tree, &all, count_entries, &costs->seen);
    costs->scan = tree_session_stats(task->session)->cost.round_trips;
    costs->inserted_in_two = in_two(task, HISTORY_INSERT, &costs->operations);
    costs->deleted_in_two = in_two(task, HISTORY_DELETE, &costs->operations);
}

static void costs_of_long_keys(void **state)
{
    struct world world;
    struct world_options options;
    struct long_costs costs = {0};
    world_options_default(&options);
    options.long_keys = true;
    options.geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                .key_bytes = 200,
                                                .inline_key_bytes = 16,
                                                .internal_bytes = 4096,
                                                .value_bytes = 8};
    int status = world_create(&world, &options);
    world.context = &costs;
    status = status ? status : world_run_one(&world, 0, fill_long);
    status = status ? status : world_run_one(&world, 0, measure_long);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
    print_message(
        "long keys: hit %.3f miss %.3f update %.3f; of %u inserts %u in two round trips, deletes %u; "
        "scan of %" PRIu64 " leaves %" PRIu64 "\n",
        costs.hit, costs.miss, costs.update, costs.operations, costs.inserted_in_two, costs.deleted_in_two,
        costs.leaves, costs.scan);
    assert_true(costs.hit == 1.0 && costs.miss <= 2.0 && costs.update == 2.0);
    assert_true(costs.operations > 500);
    assert_true(costs.inserted_in_two > costs.operations * 9 / 10); /* the others split */
    /* Where a bucket becomes empty the leaf is looked at: may it go? */
    assert_true(costs.deleted_in_two > costs.operations * 7 / 10);
    assert_true(costs.seen == KEYS);
    /* One for each leaf's long keys, and those for the leaves, many at once. */
    assert_true(costs.scan > costs.leaves && costs.scan < costs.leaves * 5 / 4);
}

/* ---- a hot leaf: the lock travels with what is under it ------------------------------------------ */

static void hammer(struct world_task *task)
{
    for (unsigned i = 0; i < 300 && !task->world->error.code; i++)
        world_operate(task, HISTORY_PUT, existing(random_below(&task->random, 4) + 100), 0);
}

static void reset(struct world_task *task)
{
    tree_session_stats_reset(task->session);
}

static void run_hot_leaf(bool delegate, struct tree_stats *result)
{
    struct world world;
    struct world_options options;
    struct tree_switches switches = {.cache_bytes = 8 << 20};
    struct tree_stats stats = {0};
    struct error unused;
    assert_int_equal(tree_switches_preset(&switches, "banyan", &unused), 0);
    switches.delegate = delegate;
    world_options_default(&options);
    options.simulated = true;
    options.threads = 16;
    options.switches = &switches;
    int status = world_create(&world, &options);
    status = status ? status : world_run_one(&world, 0, fill);
    status = status ? status : world_run(&world, reset);
    status = status ? status : world_run(&world, hammer);
    if (!status)
        world_stats(&world, &stats);
    status = status ? status : world_check(&world, NULL);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
    *result = stats;
}

static void handed_over_with_a_snapshot(void **state)
{
    (void)state;
    struct tree_stats stats;
    run_hot_leaf(false, &stats);
    double average = (double)stats.cost.round_trips / 4800.0;
    print_message("hot leaf: %.3f round trips, %" PRIu64 " handovers, %" PRIu64 " with snapshot\n", average,
                  stats.handovers, stats.snapshot_handovers);
    assert_true(stats.snapshot_handovers > 1000);
    assert_true(average < 1.5);
}

/* One list reads and one writes for all who wait. */
static void done_by_the_holder(void **state)
{
    (void)state;
    struct tree_stats stats;
    run_hot_leaf(true, &stats);
    double average = (double)stats.cost.round_trips / 4800.0;
    print_message("hot leaf: %.3f round trips, %" PRIu64 " of 4800 writes done by others\n", average,
                  stats.combined);
    assert_true(stats.combined > 3600);
    assert_true(average < 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_as_designed),       cmocka_unit_test(costs_of_every_preset),
        cmocka_unit_test(costs_of_variable_keys),  cmocka_unit_test(costs_of_long_keys),
        cmocka_unit_test(costs_of_owned_ranges),   cmocka_unit_test(costs_of_cached_ranges),
        cmocka_unit_test(costs_of_placed_entries), cmocka_unit_test(handed_over_with_a_snapshot),
        cmocka_unit_test(done_by_the_holder),      cmocka_unit_test(costs_of_levels_that_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
