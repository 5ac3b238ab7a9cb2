/* test_owned_places.c - Entries that know where their keys' slots are: what they say stays right while leaves
 * split, merge, die and come anew under the keys. Against an array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <string.h>

#include "swarm/world.h"

/* More than a few leaves, and few enough that the one segment of entries has many of them. */
#define KEYS   1200u
#define ROUNDS 60000u

struct places {
    uint64_t values[KEYS]; /* 0: there is no such key */
    struct tree_merge_cursor cursor;
    uint64_t merges;
    struct tree_stats stats;
};

static size_t name(uint64_t key, uint8_t bytes[8])
{
    uint64_t word = __builtin_bswap64(key + 1);
    memcpy(bytes, &word, 8);
    return 8;
}

static void expect(struct world_task *task, int status, int expected, const char *what, uint64_t key)
{
    if (status != expected)
        world_fail(task->world, BANYAN_ECORRUPT, "%s of key %" PRIu64 ": %d instead of %d: %s", what, key,
                   status, expected, tree_session_error(task->session)->text);
}

static void look(struct world_task *task, uint64_t key)
{
    struct places *places = task->world->context;
    uint8_t bytes[8];
    uint64_t value = 0;
    size_t length = sizeof value;
    int status = tree_lookup(task->session, task->tree, bytes, name(key, bytes), &value, &length);
    expect(task, status, places->values[key] ? 0 : BANYAN_ENOTFOUND, "lookup", key);
    if (!status && value != places->values[key])
        world_fail(task->world, BANYAN_ECORRUPT, "key %" PRIu64 " has %" PRIu64 " instead of %" PRIu64, key,
                   value, places->values[key]);
}

static void change(struct world_task *task, uint64_t key, uint64_t value, unsigned dice)
{
    struct places *places = task->world->context;
    uint64_t *now = &places->values[key], wrong = *now + 1;
    uint8_t bytes[8];
    size_t length = name(key, bytes);
    int missing = *now ? 0 : BANYAN_ENOTFOUND;
    if (dice < 60) {
        expect(task, tree_update(task->session, task->tree, bytes, length, &value, 8), missing, "update",
               key);
        *now = *now ? value : 0;
    } else if (dice < 75) {
        expect(task, tree_upsert(task->session, task->tree, bytes, length, &value, 8), 0, "upsert", key);
        *now = value;
    } else if (dice < 80) {
        expect(task, tree_compare_and_set(task->session, task->tree, bytes, length, &wrong, 8, &value, 8),
               missing ? missing : BANYAN_ECONFLICT, "a wrong exchange", key);
    } else if (dice < 85) {
        expect(task, tree_compare_and_set(task->session, task->tree, bytes, length, now, 8, &value, 8),
               missing, "exchange", key);
        *now = *now ? value : 0;
    } else {
        expect(task, tree_delete(task->session, task->tree, bytes, length), missing, "delete", key);
        *now = 0;
    }
}

/* Keys come and go by thirds of the index in turn, so that leaves fill and empty, while some keys of all
 * parts are changed again and again. */
static void churn(struct world_task *task)
{
    struct places *places = task->world->context;
    for (unsigned i = 0; i < ROUNDS && !task->world->error.code; i++) {
        unsigned third = i / 1500 % 3;
        bool fills = i / 4500 % 2;
        uint64_t key = random_below(&task->random, 4)
                           ? random_below(&task->random, KEYS / 8) * 8
                           : third * (KEYS / 3) + random_below(&task->random, KEYS / 3);
        unsigned dice = (unsigned)random_below(&task->random, 85);
        bool comes_or_goes = key % 8;
        change(task, key, i + 1, comes_or_goes ? (fills ? 70 : 90) : dice);
        if (i % 7 == 0)
            look(task, random_below(&task->random, KEYS));
        if (i % 40 == 0) {
            struct tree_merge_report report = {0};
            expect(task, tree_merge_step(task->session, task->tree, &places->cursor, 4, &report), 0, "merge",
                   0);
            places->merges += report.merges;
        }
    }
    for (uint64_t key = 0; key < KEYS; key++)
        look(task, key);
    places->stats = *tree_session_stats(task->session);
}

static void places_stay_right(void **state)
{
    static struct places places;
    for (unsigned geometry = 0; geometry < 2; geometry++) {
        struct world world;
        struct world_options options;
        struct tree_switches switches;
        struct tree_cache_stats stats;
        struct tree_check_report report;
        memset(&places, 0, sizeof places);
        world_options_default(&options);
        tree_switches_preset(&switches, "banyan", NULL);
        switches.cache_bytes = 4096; /* no room for leaves */
        switches.ownership = TREE_OWNERSHIP_ALL;
        switches.cache_policy = TREE_CACHE_BANYAN;
        options.switches = &switches;
        options.cache_policy = TREE_CACHE_BANYAN;
        options.geometry = (struct format_geometry){.leaf_bytes = 512,
                                                    .key_kind = FORMAT_KEY_FIXED,
                                                    .key_bytes = 8,
                                                    .value_bytes = 8,
                                                    .value_variable = geometry};
        int status = world_create(&world, &options);
        world.context = &places;
        status = status ? status : world_run_one(&world, 0, churn);
        status = status ? status : world_check(&world, &report);
        struct error error = world.error;
        if (!status)
            tree_cache_stats(world.computes[0].tree, &stats);
        world_destroy(&world);
        if (status)
            fail_msg("geometry %u: %d: %s", geometry, status, error.text);
        assert_true(stats.placed > ROUNDS / 8);
        assert_true(places.stats.splits > 20 && places.merges > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_stay_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
