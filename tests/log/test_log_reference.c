/*
 * test_log_reference.c - random operations on a logged range against a map in memory: with merging, flushes,
 * owners that die with what they have not merged, successors that inherit from one or several of them, and
 * ranges that go back, between any two operations. What the cache has of a key when all is merged is what was
 * written. One thread, several processes over the same memory nodes.
 * BANYAN_SEED replays a seed, BANYAN_ROUNDS scales how many there are.
 */
#include "processes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "tree/index.h"
#include "tree/owned_cache.h"

#define KEYS      600u
#define STEPS     1500u
#define VALUE_MAX PROCESSES_VALUE

struct entry {
    bool present;
    uint8_t length;
    uint8_t value[VALUE_MAX];
};

struct world {
    struct random random;
    uint64_t seed;
    struct processes processes;
    struct process *owner;
    struct entry entries[KEYS];
    uint64_t cached; /* entries of the cache that were looked at */
};

/* The owner dies, with all that it has not merged. */
static void owner_dies(struct world *world)
{
    process_dies(&world->processes, world->owner);
    world->owner = process_start(&world->processes);
    process_own(&world->processes, world->owner);
}

/* ---- operations ---- */

static void key_make(unsigned number, uint8_t key[8])
{
    memset(key, 0, 8);
    key[6] = (uint8_t)(number >> 8);
    key[7] = (uint8_t)number;
}

static void value_draw(struct world *world, struct entry *entry)
{
    entry->present = true;
    entry->length = VALUE_MAX;
    for (unsigned i = 0; i < entry->length; i++)
        entry->value[i] = (uint8_t)random_next(&world->random);
}

static bool entry_equal(const struct entry *entry, const void *value, size_t length)
{
    return entry->length == length && !memcmp(entry->value, value, length);
}

static void op_write(struct world *world)
{
    struct process *owner = world->owner;
    unsigned number = (unsigned)random_below(&world->random, KEYS);
    struct entry *entry = &world->entries[number], fresh = {0};
    uint8_t key[8];
    key_make(number, key);
    int wanted = 0, status = 0;
    switch (random_below(&world->random, 6)) {
    case 0:
    case 1:
        value_draw(world, &fresh);
        status = tree_upsert(owner->session, owner->tree, key, 8, fresh.value, fresh.length);
        break;
    case 2:
        value_draw(world, &fresh);
        wanted = entry->present ? BANYAN_EEXIST : 0;
        status = tree_insert(owner->session, owner->tree, key, 8, fresh.value, fresh.length);
        break;
    case 3:
        value_draw(world, &fresh);
        wanted = entry->present ? 0 : BANYAN_ENOTFOUND;
        status = tree_update(owner->session, owner->tree, key, 8, fresh.value, fresh.length);
        break;
    case 4:
        wanted = entry->present ? 0 : BANYAN_ENOTFOUND;
        status = tree_delete(owner->session, owner->tree, key, 8);
        break;
    default:
        value_draw(world, &fresh);
        wanted = entry->present ? 0 : BANYAN_ENOTFOUND;
        status = tree_compare_and_set(owner->session, owner->tree, key, 8, entry->value, entry->length,
                                      fresh.value, fresh.length);
    }
    if (status != wanted)
        fail_msg("seed %llu, key %u: %s, and it should be %s: %s", (unsigned long long)world->seed, number,
                 error_name(status), error_name(wanted), tree_session_error(owner->session)->text);
    if (!status)
        *entry = fresh;
}

static void op_read(struct world *world)
{
    struct process *owner = world->owner;
    unsigned number = (unsigned)random_below(&world->random, KEYS);
    const struct entry *entry = &world->entries[number];
    uint8_t key[8], value[VALUE_MAX];
    size_t length = sizeof value;
    key_make(number, key);
    int status = tree_lookup(owner->session, owner->tree, key, 8, value, &length);
    if (status != (entry->present ? 0 : BANYAN_ENOTFOUND) || (!status && !entry_equal(entry, value, length)))
        fail_msg("seed %llu: key %u is not what was written: %s", (unsigned long long)world->seed, number,
                 error_name(status));
}

struct scanned {
    struct world *world;
    unsigned next, count; /* forward: at or above next; reverse: below next */
    bool reverse;
};

static bool scan_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scanned *scanned = context;
    const uint8_t *bytes = key;
    assert_int_equal(key_length, 8);
    unsigned number = (unsigned)bytes[6] << 8 | bytes[7];
    const struct entry *entries = scanned->world->entries;
    /* What was passed over is not there. */
    if (scanned->reverse) {
        for (scanned->next--; scanned->next != number && scanned->next < KEYS; scanned->next--)
            assert_false(entries[scanned->next].present);
        assert_int_equal(scanned->next, number);
    } else {
        for (; scanned->next != number && scanned->next < KEYS; scanned->next++)
            assert_false(entries[scanned->next].present);
        assert_int_equal(scanned->next, number);
        scanned->next++;
    }
    assert_true(entries[number].present);
    assert_true(entry_equal(&entries[number], value, length));
    scanned->count++;
    return true;
}

static void op_scan(struct world *world)
{
    struct process *owner = world->owner;
    unsigned from = (unsigned)random_below(&world->random, KEYS);
    unsigned to = from + (unsigned)random_below(&world->random, KEYS - from + 1);
    uint8_t lower[8], upper[8];
    struct scanned scanned = {.world = world, .reverse = random_chance(&world->random, 0.5)};
    struct tree_range range = {.from = lower,
                               .from_length = 8,
                               .to = upper,
                               .to_length = 8,
                               .to_open = true,
                               .reverse = scanned.reverse,
                               .limit = random_below(&world->random, 50)};
    key_make(from, lower);
    key_make(to, upper);
    scanned.next = scanned.reverse ? to : from;
    process_check(owner, tree_scan(owner->session, owner->tree, &range, scan_visit, &scanned));
    if (range.limit && scanned.count == range.limit)
        return;
    for (unsigned i = scanned.reverse ? from : scanned.next; i < (scanned.reverse ? scanned.next : to); i++)
        assert_false(world->entries[i].present);
}

#define MANY 24u

static void op_many(struct world *world)
{
    struct process *owner = world->owner;
    struct tree_item items[MANY];
    uint8_t keys[MANY][8], values[MANY][VALUE_MAX];
    unsigned numbers[MANY], count = 1 + (unsigned)random_below(&world->random, MANY);
    bool put = random_chance(&world->random, 0.5);
    for (unsigned i = 0; i < count; i++) {
        numbers[i] = (unsigned)random_below(&world->random, KEYS);
        key_make(numbers[i], keys[i]);
        items[i] =
            (struct tree_item){.key = keys[i], .key_length = 8, .value = values[i], .length = VALUE_MAX};
        if (put) {
            struct entry *entry = &world->entries[numbers[i]];
            value_draw(world, entry);
            memcpy(values[i], entry->value, VALUE_MAX);
            items[i].length = entry->length;
        }
    }
    int status = put ? tree_multi_put(owner->session, owner->tree, items, count)
                     : tree_multi_get(owner->session, owner->tree, items, count);
    process_check(owner, status);
    for (unsigned i = 0; i < count && !put; i++) {
        const struct entry *entry = &world->entries[numbers[i]];
        assert_int_equal(items[i].status, entry->present ? 0 : BANYAN_ENOTFOUND);
        if (entry->present)
            assert_true(entry_equal(entry, values[i], items[i].length));
    }
}

/* ---- what happens between them ---- */

static void merge_some(struct world *world)
{
    struct process *owner = world->owner;
    struct tree_log_walk walk = {.least = UINT64_MAX};
    uint8_t key[8];
    key_make((unsigned)random_below(&world->random, KEYS), key);
    format_key_store(&walk.from, (struct format_key){key, 8});
    process_check(owner, tree_log_apply(owner->session, owner->tree, &walk,
                                        1 + (uint32_t)random_below(&world->random, 100)));
}

/* Everything is merged: what is cached is what was written, or nothing. */
static void judge_cache(struct world *world)
{
    struct tree *tree = world->owner->tree;
    struct epoch_slot *slot = tree_session_pool(world->owner->session)->epoch;
    assert_non_null(tree->owned);
    for (unsigned i = 0; i < KEYS; i++) {
        uint8_t key[8], value[FORMAT_VALUE_MAX];
        uint32_t length, hits;
        key_make(i, key);
        if (!owned_cache_peek(tree->owned, slot, (struct format_key){key, 8}, value, &length, &hits))
            continue;
        world->cached++;
        if (!world->entries[i].present || !entry_equal(&world->entries[i], value, length))
            fail_msg("seed %llu: the cache has another value of key %u", (unsigned long long)world->seed, i);
    }
}

static void something(struct world *world)
{
    struct process *owner = world->owner;
    switch (random_below(&world->random, 12)) {
    case 0:
        if (world->processes.heir_count < 3)
            owner_dies(world);
        break;
    case 1:
        if (world->processes.heir_count < 3) { /* away and back, to itself */
            process_gives_away(&world->processes, owner);
            process_own(&world->processes, owner);
        }
        break;
    case 2:
    case 3:
        heirs_end(&world->processes, owner);
        break;
    case 4:
    case 5:
        process_check(owner, log_flush_all(owner->log, owner->session));
        judge_cache(world);
        break;
    default:
        merge_some(world);
    }
}

/* Everything is merged, and what the leaves have is what was written. */
static void judge(struct world *world)
{
    struct process *owner = world->owner;
    struct tree_check_report report;
    unsigned present = 0;
    heirs_end(&world->processes, owner);
    process_check(owner, log_flush_all(owner->log, owner->session));
    assert_int_equal(unmerged_count(tree_log_table(owner->tree)), 0);
    judge_cache(world);
    assert_true(world->cached > 0);
    process_check(owner, tree_check(owner->session, owner->tree, &report, NULL, NULL));
    for (unsigned i = 0; i < KEYS; i++)
        present += world->entries[i].present;
    assert_int_equal(report.entries, present);
    struct scanned scanned = {.world = world};
    const struct tree_range all = {0};
    process_check(owner, tree_scan(owner->session, owner->tree, &all, scan_visit, &scanned));
    assert_int_equal(scanned.count, present);
    process_check(owner, log_close(owner->log, owner->session));
}

static void world_run(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&world->random, seed);
    world->seed = seed;
    processes_open(&world->processes, PROCESSES_NODES, 0);
    world->processes.options.copies = 1 + (uint32_t)(seed % 2);
    world->processes.options.seed = seed;
    world->processes.policy = seed % 4 < 2 ? TREE_CACHE_BANYAN : TREE_CACHE_DINOMO;
    world->owner = process_start(&world->processes);
    process_own(&world->processes, world->owner);
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t what = random_below(&world->random, 100);
        if (what < 50)
            op_write(world);
        else if (what < 75)
            op_read(world);
        else if (what < 82)
            op_scan(world);
        else if (what < 90)
            op_many(world);
        else
            something(world);
    }
    judge(world);
    processes_close(&world->processes);
    free(world);
}

static void test_reference(void **state)
{
    (void)state;
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    if (seed) {
        world_run(strtoull(seed, NULL, 10));
        return;
    }
    uint64_t count = 12 * (rounds ? strtoull(rounds, NULL, 10) : 1);
    for (uint64_t i = 1; i <= count; i++)
        world_run(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
