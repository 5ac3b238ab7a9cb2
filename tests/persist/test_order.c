/*
 * test_order.c - the keys that a replay tells (persist/replay.h): all of them, each once, in order of index
 * and key, with what was written last, whatever keys they are; beside a sort by comparison of a model.
 * Sorting has two ways, for few keys and for many, and many keys agree in the 8 bytes by which these are told
 * apart first; one thread sorts, or several do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "persist/replay.h"

#define KEYS_MAX   3000u
#define KEY_MAX    60u
#define INDEXES    3u
#define RECORD_MAX 40u /* entries; more than are looked for together */
#define VALUE_MAX  40u
#define WORLDS     600u

struct entry {
    uint16_t index;
    uint8_t length, value_length;
    bool deleted;
    uint8_t key[KEY_MAX], value[VALUE_MAX];
    uint32_t serial; /* the later one counts */
};

struct world {
    struct random random;
    struct entry entries[KEYS_MAX];
    uint32_t count;
    unsigned family, indexes;
};

static uint64_t below(struct world *world, uint64_t bound)
{
    return random_below(&world->random, bound);
}

/* Families: numbers behind a prefix; any bytes; a few letters, so that keys are other keys' beginnings;
 * zeros; keys that agree in more bytes than are looked at first. */
static uint8_t key_draw(struct world *world, uint8_t *key)
{
    static const char prefixes[2][24] = {"user:profile:of:friend:", "user:profile:of:fiends:"};
    uint8_t length = 0;
    switch (world->family) {
    case 0:
        return (uint8_t)snprintf((char *)key, KEY_MAX, "key:%012u", (unsigned)below(world, 5000));
    case 1:
        length = (uint8_t)below(world, KEY_MAX);
        for (unsigned i = 0; i < length; i++)
            key[i] = (uint8_t)below(world, 256);
        return length;
    case 2:
        length = (uint8_t)below(world, 9);
        for (unsigned i = 0; i < length; i++)
            key[i] = (uint8_t)('a' + below(world, 3));
        return length;
    case 3:
        length = (uint8_t)below(world, 24);
        memset(key, 0, length);
        if (length && below(world, 2))
            key[below(world, length)] = 1;
        return length;
    default:
        length = (uint8_t)(strlen(prefixes[0]));
        memcpy(key, prefixes[below(world, 2)], length);
        memset(key + length, 'x', 8);
        length += 8;
        return (uint8_t)(length + snprintf((char *)key + length, KEY_MAX - length, "%u",
                                           (unsigned)below(world, 4000)));
    }
}

static void entry_draw(struct world *world, struct entry *entry)
{
    *entry = (struct entry){.index = (uint16_t)(1 + below(world, world->indexes)),
                            .deleted = below(world, 8) == 0,
                            .serial = (uint32_t)(entry - world->entries)};
    entry->length = key_draw(world, entry->key);
    entry->value_length = entry->deleted ? 0 : (uint8_t)below(world, VALUE_MAX);
    for (unsigned i = 0; i < entry->value_length; i++)
        entry->value[i] = (uint8_t)below(world, 256);
}

static int keys_compare(const struct entry *a, const struct entry *b)
{
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    const int order = memcmp(a->key, b->key, a->length < b->length ? a->length : b->length);
    return order ? order : (int)a->length - (int)b->length;
}

static int entries_compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    const int order = keys_compare(a, b);
    return order ? order : (a->serial > b->serial) - (a->serial < b->serial);
}

/* Gives them to the replay, in records of some each. */
static void entries_give(struct world *world, struct persist_replay *replay)
{
    static uint8_t bytes[RECORD_MAX * (PERSIST_VALUE_HEADER + KEY_MAX + VALUE_MAX)];
    for (uint32_t at = 0; at < world->count;) {
        const uint32_t left = world->count - at;
        const uint32_t some = 1 + (uint32_t)below(world, left < RECORD_MAX ? left : RECORD_MAX);
        uint32_t length = 0;
        for (uint32_t i = at; i < at + some; i++) {
            const struct entry *entry = &world->entries[i];
            const struct persist_value value = {.key = {entry->key, entry->length},
                                                .index = entry->index,
                                                .deleted = entry->deleted,
                                                .length = entry->value_length,
                                                .bytes = entry->deleted ? NULL : entry->value};
            persist_value_encode(&value, bytes + length);
            length += persist_value_bytes(&value);
        }
        struct error error = {0};
        const struct journal_record record = {.kind = PERSIST_VALUES, .length = length, .bytes = bytes};
        if (persist_replay_record(replay, &record, &error))
            fail_msg("%s", error.text);
        at += some;
    }
}

/* The replay tells what the model has, and no more. */
static void told_compare(struct world *world, struct persist_replay *replay)
{
    struct persist_replay_key key;
    uint64_t told = 0;
    qsort(world->entries, world->count, sizeof *world->entries, entries_compare);
    for (uint32_t i = 0; i < world->count; i++) {
        const struct entry *entry = &world->entries[i];
        struct archive_entry found;
        struct error error = {0};
        if (i + 1 < world->count && !keys_compare(entry, entry + 1))
            continue;
        assert_true(persist_replay_peek(replay, &key));
        assert_int_equal(key.index, entry->index);
        assert_int_equal(key.key_length, entry->length);
        if (entry->length)
            assert_memory_equal(key.key, entry->key, entry->length);
        assert_int_equal(key.present, !entry->deleted);
        told++;
        if (entry->deleted) {
            persist_replay_skip(replay);
            continue;
        }
        assert_int_equal(persist_replay_take(replay, &found, &error), 0);
        assert_int_equal(found.value_length, entry->value_length);
        if (entry->value_length)
            assert_memory_equal(found.value, entry->value, entry->value_length);
    }
    assert_false(persist_replay_peek(replay, &key));
    assert_int_equal(persist_replay_keys(replay), told);
}

static void world_run(struct world *world, uint64_t seed)
{
    struct persist_replay *replay;
    struct disk *none = NULL; /* short values stand in memory */
    random_seed(&world->random, seed);
    world->family = (unsigned)below(world, 5);
    world->indexes = below(world, 2) ? 1 : INDEXES;
    world->count =
        (uint32_t)(below(world, 2) ? below(world, 12) : below(world, below(world, 2) ? 300 : KEYS_MAX));
    for (uint32_t i = 0; i < world->count; i++)
        entry_draw(world, &world->entries[i]);
    assert_int_equal(persist_replay_create(&replay, &none, 1, NULL), 0);
    assert_int_equal(persist_replay_threads(replay, (unsigned)(1 + below(world, 5)), NULL), 0);
    persist_replay_next(replay, 0);
    entries_give(world, replay);
    assert_int_equal(persist_replay_sort(replay, NULL), 0);
    told_compare(world, replay);
    persist_replay_destroy(replay);
}

static uint64_t seed_told;

/* Of a world that failed. */
static int seed_tell(void **state)
{
    (void)state;
    printf("the last world's seed: BANYAN_SEED=%llu\n", (unsigned long long)seed_told);
    return 0;
}

static void test_order(void **state)
{
    static struct world world;
    const char *given = getenv("BANYAN_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 0) : random_entropy();
    (void)state;
    for (uint64_t i = 0; i < (given ? 1 : WORLDS); i++) {
        seed_told = first + i;
        world_run(&world, first + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_order, seed_tell)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
