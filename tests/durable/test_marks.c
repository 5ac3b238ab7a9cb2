/*
 * test_marks.c - every call that changes a key tells so (store_session_set_changed, rule K1): when the change
 * is in the pool, and before the call returns. A mirror that copies nothing but what was told, at any time
 * behind it, is the store in the end. One thread; BANYAN_SEED replays a seed, BANYAN_ROUNDS scales how many
 * there are.
 */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define STEPS 1500u

struct mirror {
    bool dirty[KEYS], present[KEYS];
    uint8_t *bytes[KEYS]; /* owned */
    size_t lengths[KEYS];
    uint64_t expires[KEYS];
    uint64_t placed; /* values that came with their marks */
};

static unsigned number_of(const struct keys *keys, const void *key, size_t length)
{
    unsigned i = 0;
    while (keys->known[i].length != length || memcmp(keys->known[i].key, key, length) != 0)
        i++;
    return i;
}

static void copy(struct keys *keys, struct mirror *mirror)
{
    for (unsigned i = 0; i < KEYS; i++) {
        struct store_value value;
        if (!mirror->dirty[i])
            continue;
        const int status = store_get(keys->live->reader, keys->known[i].key, keys->known[i].length, &value);
        free(mirror->bytes[i]);
        mirror->bytes[i] = NULL;
        mirror->present[i] = !status;
        mirror->dirty[i] = false;
        if (status) {
            assert_int_equal(status, BANYAN_ENOTFOUND);
            continue;
        }
        mirror->bytes[i] = malloc(value.length + 1);
        assert_non_null(mirror->bytes[i]);
        memcpy(mirror->bytes[i], value.bytes, value.length);
        mirror->lengths[i] = value.length;
        mirror->expires[i] = value.expires;
    }
}

/* Also within the call: what is read right behind a mark is what the mark was made for. */
static void marked(struct keys *keys, struct feed_writer *writer, const void *key, size_t length)
{
    struct mirror *mirror = keys->context;
    (void)writer;
    mirror->dirty[number_of(keys, key, length)] = true;
    if (!keys_below(keys, 3))
        copy(keys, mirror);
}

/* Nothing else has changed the key since, so the value is the mirror's. Every fourth is left to the mark. */
static bool placed(struct keys *keys, struct feed_writer *writer, const void *key, size_t length,
                   const struct store_value *value)
{
    struct mirror *mirror = keys->context;
    const unsigned i = number_of(keys, key, length);
    (void)writer;
    if (!keys_below(keys, 4))
        return false;
    uint8_t *bytes = malloc(value->length + 1);
    assert_non_null(bytes);
    memcpy(bytes, value->length ? value->bytes : (const uint8_t *)"", value->length);
    free(mirror->bytes[i]);
    mirror->bytes[i] = bytes;
    mirror->lengths[i] = value->length;
    mirror->expires[i] = value->expires;
    mirror->present[i] = true;
    mirror->dirty[i] = false;
    mirror->placed++;
    return true;
}

static void compare(struct keys *keys, struct mirror *mirror)
{
    copy(keys, mirror);
    for (unsigned i = 0; i < KEYS; i++) {
        const struct version *last = keys_last(keys, i);
        const bool present = mirror->present[i] && (!mirror->expires[i] || mirror->expires[i] > keys->now_ms);
        if (present != (last != NULL))
            fail_msg("key %u is %s the mirror", i, present ? "still in" : "not in");
        if (last && (last->length != mirror->lengths[i] || last->expires != mirror->expires[i] ||
                     memcmp(last->bytes, mirror->bytes[i], last->length) != 0))
            fail_msg("key %u has another value in the mirror", i);
    }
}

static void run(uint64_t seed)
{
    static struct keys keys;
    struct mirror mirror = {.dirty = {false}};
    print_message("seed %llu\n", (unsigned long long)seed);
    keys_open(&keys, seed, 1 + (unsigned)(seed % SIDES));
    keys.changed = marked;
    keys.placed = placed;
    keys.context = &mirror;
    keys.longs = true;
    for (unsigned i = 0; i < STEPS; i++) {
        keys_step(&keys);
        if (i % 16 == 0 || keys_crowded(&keys)) {
            compare(&keys, &mirror);
            for (unsigned k = 0; k < KEYS; k++)
                keys.known[k].versions[keys.known[k].count - 1].safe = true;
            keys_trim(&keys, NULL);
        }
    }
    compare(&keys, &mirror);
    assert_true(keys.writes > STEPS);
    assert_int_equal(mirror.placed > 0, seed % 4 != 0); /* where leaves are changed in place: keys_open */
    for (unsigned i = 0; i < KEYS; i++)
        free(mirror.bytes[i]);
    keys_close(&keys);
}

static void test_mirror(void **state)
{
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    const uint64_t count = 4 * (rounds ? strtoull(rounds, NULL, 10) : 1);
    (void)state;
    if (seed)
        run(strtoull(seed, NULL, 10));
    else
        for (uint64_t i = 1; i <= count; i++)
            run(i);
}

static void refuse(struct keys *keys, struct feed_writer *writer, const void *key, size_t length)
{
    (void)writer, (void)key;
    fail_msg("%zu bytes of a key were marked, which %p does not have", length, (void *)keys);
}

static void never(void *context, const void *key, size_t length)
{
    refuse(context, NULL, key, length);
}

/* What no store takes is not marked: a name has a byte for its length. */
static void test_refused(void **state)
{
    static struct keys keys;
    uint8_t name[300];
    struct store_item item = {.key = name, .key_length = sizeof name, .value = {name, 3, 0, 0}};
    (void)state;
    memset(name, 'x', sizeof name);
    keys_open(&keys, 1, 1);
    struct store_session *session = keys.live->sessions[0];
    store_session_set_changed(session, never, &keys);
    assert_int_equal(store_put(session, name, sizeof name, name, 3, 0), BANYAN_EKEYSIZE);
    assert_int_equal(store_put(session, name, sizeof name, name, 100, 0), BANYAN_EKEYSIZE);
    assert_true(store_multi_put(session, &item, 1) < 0);
    assert_int_equal(item.status, BANYAN_EKEYSIZE);
    assert_true(store_delete(session, name, sizeof name) < 0);
    keys_close(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mirror), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("marks of changed keys", tests, NULL, NULL);
}
