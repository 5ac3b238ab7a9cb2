/*
 * test_log_reference.c - random operations on a logged range against a map in memory: with merging, flushes,
 * owners that die with what they have not merged, successors that inherit from one or several of them, and
 * ranges that go back, between any two operations. One thread, several processes over the same memory nodes.
 * BANYAN_SEED replays a seed, BANYAN_ROUNDS scales how many there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "fabric/local.h"
#include "log/log.h"
#include "memory/memory.h"
#include "tree/rights.h"

#define KEYS      600u
#define NODES     2u
#define STEPS     1500u
#define VALUE_MAX 24u

/* A process. */
struct side {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
    struct log *log;
    uint64_t epoch; /* under which it owns the range; 0: it does not */
};

struct entry {
    bool present;
    uint8_t length;
    uint8_t value[VALUE_MAX];
};

struct world {
    struct random random;
    uint64_t seed;
    struct memory_node *nodes[NODES];
    struct side *owner;
    struct log_heir heirs[3];
    uint32_t heir_count;
    struct side graves[512]; /* processes that died: freed at the end */
    unsigned grave_count;
    struct side side;
    uint16_t next_id;
    uint64_t version;
    struct entry entries[KEYS];
    unsigned copies;
    uint64_t replaced, released; /* values that were given up */
};

static const struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED,
                                                .key_bytes = 8,
                                                .value_bytes = VALUE_MAX,
                                                .leaf_bytes = 512,
                                                .internal_bytes = 512};

static void check(const struct side *side, int status)
{
    if (status)
        fail_msg("%s: %s", error_name(status), tree_session_error(side->session)->text);
}

static void side_open(struct world *world, struct side *side, bool first)
{
    const struct fabric_target *targets[NODES];
    struct tree_switches switches = {.cache_bytes = 64 << 10};
    struct log_options options;
    struct error error = {0};
    for (unsigned n = 0; n < NODES; n++)
        targets[n] = memory_node_target(world->nodes[n]);
    *side = (struct side){0};
    side->fabric = fabric_local_create(targets, NODES, world->next_id++, &error);
    assert_non_null(side->fabric);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    assert_int_equal(tree_compute_create(&side->compute, side->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&side->session, side->compute, side->worker, &error), 0);
    log_options_default(&options);
    options.copies = world->copies;
    options.segment_bytes = 64 << 10;
    options.frame_bytes = 2048;
    options.seed = world->seed + world->next_id;
    assert_int_equal(log_create(&side->log, side->compute, &options, &error), 0);
    if (first) {
        check(side, tree_format(side->session));
        check(side, tree_create(side->session, "logged", &geometry, &side->tree));
    } else {
        check(side, tree_open(side->session, "logged", &side->tree));
    }
    assert_int_equal(log_attach(side->log, side->tree, &error), 0);
}

static void side_close(struct side *side)
{
    log_destroy(side->log);
    tree_close(side->tree);
    tree_session_destroy(side->session);
    pool_worker_abandon(side->worker);
    tree_compute_destroy(side->compute);
    fabric_close(side->fabric);
}

static void adopt(struct world *world, struct side *side, enum tree_right right, uint64_t epoch)
{
    struct tree_rights_row row = {.right = right, .epoch = epoch, .logged = right == TREE_OWNED};
    check(side, tree_rights_adopt(side->session, side->tree, world->version, 1, &row, 1));
}

/* The range becomes the side's, which takes over what earlier owners have not merged. */
static void take_over(struct world *world, struct side *side)
{
    const struct format_key least = {(const uint8_t *)"", 0};
    world->version++;
    adopt(world, side, TREE_MOVING, 0);
    side->epoch = world->version;
    check(side, log_inherit(side->log, side->session, side->tree, world->heirs, world->heir_count, least,
                            NULL, side->epoch));
    world->version++;
    adopt(world, side, TREE_OWNED, side->epoch);
    world->owner = side;
}

/* The heirs are off the map. */
static void heirs_end(struct world *world)
{
    world->version++;
    log_released(world->owner->log, world->owner->tree, world->version);
    log_cleared(world->owner->log, world->owner->tree, (struct format_key){0}, NULL, world->owner->epoch);
    world->heir_count = 0;
}

static void owner_is_heir(struct world *world)
{
    assert_true(world->heir_count < 3);
    world->heirs[world->heir_count++] =
        (struct log_heir){fabric_self(world->owner->fabric), world->owner->epoch};
}

/* The owner dies, with all that it has not merged. */
static void owner_dies(struct world *world)
{
    owner_is_heir(world);
    world->graves[world->grave_count++] = world->side;
    assert_true(world->grave_count < 512);
    side_open(world, &world->side, false);
    take_over(world, &world->side);
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
    struct side *side = world->owner;
    unsigned number = (unsigned)random_below(&world->random, KEYS);
    struct entry *entry = &world->entries[number], fresh = {0};
    uint8_t key[8];
    key_make(number, key);
    int wanted = 0, status = 0;
    switch (random_below(&world->random, 6)) {
    case 0:
    case 1:
        value_draw(world, &fresh);
        status = tree_upsert(side->session, side->tree, key, 8, fresh.value, fresh.length);
        break;
    case 2:
        value_draw(world, &fresh);
        wanted = entry->present ? BANYAN_EEXIST : 0;
        status = tree_insert(side->session, side->tree, key, 8, fresh.value, fresh.length);
        break;
    case 3:
        value_draw(world, &fresh);
        wanted = entry->present ? 0 : BANYAN_ENOTFOUND;
        status = tree_update(side->session, side->tree, key, 8, fresh.value, fresh.length);
        break;
    case 4:
        wanted = entry->present ? 0 : BANYAN_ENOTFOUND;
        status = tree_delete(side->session, side->tree, key, 8);
        break;
    default:
        value_draw(world, &fresh);
        wanted = entry->present ? 0 : BANYAN_ENOTFOUND;
        status = tree_compare_and_set(side->session, side->tree, key, 8, entry->value, entry->length,
                                      fresh.value, fresh.length);
    }
    if (status != wanted)
        fail_msg("seed %llu, key %u: %s, and it should be %s: %s", (unsigned long long)world->seed, number,
                 error_name(status), error_name(wanted), tree_session_error(side->session)->text);
    if (!status)
        *entry = fresh;
}

static void op_read(struct world *world)
{
    struct side *side = world->owner;
    unsigned number = (unsigned)random_below(&world->random, KEYS);
    const struct entry *entry = &world->entries[number];
    uint8_t key[8], value[VALUE_MAX];
    size_t length = sizeof value;
    key_make(number, key);
    int status = tree_lookup(side->session, side->tree, key, 8, value, &length);
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
    struct side *side = world->owner;
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
    check(side, tree_scan(side->session, side->tree, &range, scan_visit, &scanned));
    if (range.limit && scanned.count == range.limit)
        return;
    for (unsigned i = scanned.reverse ? from : scanned.next; i < (scanned.reverse ? scanned.next : to); i++)
        assert_false(world->entries[i].present);
}

#define MANY 24u

static void op_many(struct world *world)
{
    struct side *side = world->owner;
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
    int status = put ? tree_multi_put(side->session, side->tree, items, count)
                     : tree_multi_get(side->session, side->tree, items, count);
    check(side, status);
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
    struct side *side = world->owner;
    struct format_key_copy from = {0};
    uint64_t least = UINT64_MAX, merged = 0;
    bool end;
    uint8_t key[8];
    key_make((unsigned)random_below(&world->random, KEYS), key);
    format_key_store(&from, (struct format_key){key, 8});
    check(side, tree_log_apply(side->session, side->tree, &from, NULL,
                               1 + (uint32_t)random_below(&world->random, 100), &least, &end, &merged));
}

static void something(struct world *world)
{
    struct side *side = world->owner;
    switch (random_below(&world->random, 12)) {
    case 0:
        if (world->heir_count < 3)
            owner_dies(world);
        break;
    case 1:
        if (world->heir_count < 3) { /* away and back, to itself */
            owner_is_heir(world);
            log_disown(side->log, side->session, side->tree, (struct format_key){0}, NULL, side->epoch);
            take_over(world, side);
        }
        break;
    case 2:
    case 3:
        heirs_end(world);
        break;
    case 4:
    case 5:
        check(side, log_flush_all(side->log, side->session));
        break;
    default:
        merge_some(world);
    }
}

/* Everything is merged, and what the leaves have is what was written. */
static void judge(struct world *world)
{
    struct side *side = world->owner;
    struct tree_check_report report;
    unsigned present = 0;
    heirs_end(world);
    check(side, log_flush_all(side->log, side->session));
    assert_int_equal(unmerged_count(tree_log_table(side->tree)), 0);
    check(side, tree_check(side->session, side->tree, &report, NULL, NULL));
    for (unsigned i = 0; i < KEYS; i++)
        present += world->entries[i].present;
    assert_int_equal(report.entries, present);
    struct scanned scanned = {.world = world};
    const struct tree_range all = {0};
    check(side, tree_scan(side->session, side->tree, &all, scan_visit, &scanned));
    assert_int_equal(scanned.count, present);
    check(side, log_close(side->log, side->session));
}

static void world_run(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    struct memory_options options = {.pool_bytes = 64 << 20};
    struct error error = {0};
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&world->random, seed);
    world->seed = seed;
    world->next_id = 1;
    world->copies = 1 + (unsigned)(seed % 2);
    for (uint16_t n = 0; n < NODES; n++) {
        options.node = n;
        assert_int_equal(memory_node_create(&world->nodes[n], &options, &error), 0);
    }
    side_open(world, &world->side, true);
    take_over(world, &world->side);
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
    side_close(&world->side);
    for (unsigned i = 0; i < world->grave_count; i++)
        side_close(&world->graves[i]);
    for (unsigned n = 0; n < NODES; n++)
        memory_node_destroy(world->nodes[n]);
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
