/*
 * test_cached.c - values of records in the compute node's cache: which round trips they save, that writers
 * fill it, and that what comes from it is what the slot refers to, whatever became of the record's block. A
 * simulated world, since nothing of it is cached where memory is mapped; one compute node that owns all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "format/record.h"
#include "memory/memory.h"
#include "stores.h"

#define LENGTH 1000u

static uint64_t trips(const struct world_task *task)
{
    return tree_session_stats(task->session)->cost.round_trips;
}

static void put(struct world_task *task, const char *key, uint64_t number, size_t length, uint64_t expires)
{
    uint8_t bytes[2 * LENGTH];
    stores_fill(number, bytes, length);
    assert_int_equal(store_put(stores_session(task), key, strlen(key), bytes, length, expires), 0);
}

/* How many round trips a get took that found this number's value. */
static uint64_t get(struct world_task *task, const char *key, uint64_t number, size_t length)
{
    struct store_value value;
    uint64_t before = trips(task);
    assert_int_equal(store_get(stores_session(task), key, strlen(key), &value), 0);
    assert_int_equal(value.length, length);
    assert_true(stores_filled(number, value.bytes, length));
    return trips(task) - before;
}

static void in_one_world(void (*work)(struct world_task *task), enum tree_cache_policy policy,
                         uint64_t cache_bytes)
{
    static struct stores stores;
    struct world_options options;
    struct tree_switches switches;
    stores_options_default(&options);
    tree_switches_preset(&switches, "banyan", NULL);
    switches.cache_bytes = cache_bytes;
    switches.ownership = TREE_OWNERSHIP_ALL;
    switches.cache_policy = (int)policy;
    options.simulated = true;
    options.memory_nodes = options.compute_nodes = options.threads = options.fibers = 1;
    options.switches = &switches;
    options.cache_policy = policy;
    int status = stores_create(&stores, &options);
    stores_now(&stores, 1000);
    status = status ? status : world_run_one(&stores.world, 0, work);
    struct error error = stores.world.error;
    stores_destroy(&stores);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

static void measure(struct world_task *task)
{
    struct store_session *session = stores_session(task);
    struct store_value value;
    for (unsigned i = 0; i < 3; i++) /* inner nodes, the allocator's batches */
        put(task, "k", 1, LENGTH, 0);
    get(task, "k", 1, LENGTH);
    assert_int_equal(get(task, "k", 1, LENGTH), 0);
    /* Who writes it has the bytes: at most the slot is read. */
    put(task, "k", 2, LENGTH + 8, 0);
    assert_in_range(get(task, "k", 2, LENGTH + 8), 0, 1);
    assert_int_equal(get(task, "k", 2, LENGTH + 8), 0);
    /* A part of it, and many at once. */
    struct store_item item = {.key = "k", .key_length = 1};
    uint64_t before = trips(task);
    assert_int_equal(store_multi_get(session, &item, 1, true), 0);
    assert_true(stores_filled(2, item.value.bytes, LENGTH + 8));
    assert_in_range(trips(task) - before, 0, 1);
    /* The expiry is cached with the value. */
    put(task, "k", 3, LENGTH, 5000);
    get(task, "k", 3, LENGTH);
    assert_int_equal(store_get(session, "k", 1, &value), 0);
    assert_int_equal(value.expires, 5000);
    stores_now(stores_of(task), 5000);
    assert_int_equal(store_get(session, "k", 1, &value), BANYAN_ENOTFOUND);
    put(task, "k", 4, LENGTH, 0);
    assert_int_equal(store_delete(session, "k", 1), 0);
    assert_int_equal(store_get(session, "k", 1, &value), BANYAN_ENOTFOUND);
    struct tree_cache_stats stats;
    tree_cache_stats(store_tree(task->world->computes[0].store), &stats);
    assert_int_equal(stats.values.count, 0); /* what no slot refers to is gone */
    assert_true(stats.values.hits >= 5);
}

static void saves_round_trips(void **state)
{
    (void)state;
    in_one_world(measure, TREE_CACHE_BANYAN, 1 << 20);
    in_one_world(measure, TREE_CACHE_DINOMO, 1 << 20);
}

/* The block of the key's record, in the pool; it leaves the cache where `forgotten`. */
static uint8_t *block_of(struct world_task *task, const char *key, bool forgotten)
{
    const struct tree *tree = store_tree(task->world->computes[0].store);
    uint8_t slot[FORMAT_VALUE_MAX];
    size_t length = sizeof slot;
    struct format_value value;
    struct tree_reference reference = {.key = format_record_hash((const uint8_t *)key, strlen(key))};
    assert_int_equal(tree_lookup(task->session, store_tree(task->world->computes[0].store), key, strlen(key),
                                 slot, &length),
                     0);
    assert_true(format_value_decode(slot, length, &value) && value.record);
    memcpy(reference.words, slot + 1, sizeof reference.words);
    if (forgotten)
        tree_value_forget(task->session, tree, &reference);
    return memory_node_target(task->world->memory[gaddr_node(value.reference.address)])->pool +
           gaddr_offset(value.reference.address);
}

static void damage(struct world_task *task)
{
    struct store_session *session = stores_session(task);
    struct tree_cache_stats before, after;
    struct store_value value;
    put(task, "a", 1, LENGTH, 0);
    get(task, "a", 1, LENGTH);
    block_of(task, "a", false)[100] ^= 1;
    assert_int_equal(get(task, "a", 1, LENGTH), 0); /* it was right when it came in, and is the value still */
    put(task, "b", 2, LENGTH, 0);
    block_of(task, "b", true)[100] ^= 1;
    tree_cache_stats(store_tree(task->world->computes[0].store), &before);
    for (unsigned i = 0; i < 3; i++) /* damaged, it never comes in */
        assert_int_equal(store_get(session, "b", 1, &value), BANYAN_ECORRUPT);
    tree_cache_stats(store_tree(task->world->computes[0].store), &after);
    assert_int_equal(after.values.count, before.values.count);
    assert_int_equal(after.values.hits, before.values.hits);
}

/* Ten times as much as fits is written and read; what is told is right, and the cache stays within bounds. */
static void overflow(struct world_task *task)
{
    const struct tree *tree = store_tree(task->world->computes[0].store);
    struct tree_cache_stats stats;
    uint64_t numbers[1000] = {0};
    for (uint64_t i = 1; i <= 6000; i++) {
        uint64_t of = random_below(&task->random, random_chance(&task->random, 0.5) ? 20 : 1000);
        char key[12];
        snprintf(key, sizeof key, "key%d", (int)of);
        if (!numbers[of] || random_chance(&task->random, 0.3))
            put(task, key, numbers[of] = i, LENGTH + i % 100, 0);
        else
            get(task, key, numbers[of], LENGTH + numbers[of] % 100);
        tree_cache_stats(tree, &stats);
        assert_true(stats.bytes + stats.leaves.bytes + stats.entries.bytes + stats.values.bytes <=
                    stats.budget + 10000);
    }
    assert_true(stats.values.hits > 500);
    assert_true(stats.values.misses > 500); /* much finds no room */
}

static void wrong_bytes_are_never_told(void **state)
{
    (void)state;
    in_one_world(damage, TREE_CACHE_BANYAN, 1 << 20);
    in_one_world(damage, TREE_CACHE_DINOMO, 1 << 20);
}

static void stays_within_its_budget(void **state)
{
    (void)state;
    in_one_world(overflow, TREE_CACHE_BANYAN, 100 << 10);
    in_one_world(overflow, TREE_CACHE_DINOMO, 100 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(saves_round_trips),
                                       cmocka_unit_test(wrong_bytes_are_never_told),
                                       cmocka_unit_test(stays_within_its_budget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
