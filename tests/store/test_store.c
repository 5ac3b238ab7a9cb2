/*
 * test_store.c - what store.h says, call by call: sizes at their edges, round trips, expiry, modify, many
 * keys, ranges, damaged records, a full pool. One task, the local fabric.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/audit.h"
#include "store/exchange.h"
#include "store/transfer.h"
#include "stores.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/* Each test runs as the only task of a world, on its thread. */
static struct stores stores;
static struct store_session *session;

static int set_up(void **state)
{
    struct world_options options;
    stores_options_default(&options);
    options.memory_nodes = 2;
    assert_int_equal(stores_create(&stores, &options), 0);
    session = stores.world.tasks[0].store_session;
    return 0;
}

static int tear_down(void **state)
{
    if (stores_check(&stores, NULL)) {
        fprintf(stderr, "%s\n", stores.world.error.text);
        stores_destroy(&stores);
        return -1;
    }
    stores_destroy(&stores);
    return 0;
}

static const char *message(void)
{
    return tree_session_error(stores.world.tasks[0].session)->text;
}

static int put(const char *key, const char *value, uint64_t expires)
{
    return store_put(session, key, strlen(key), value, strlen(value), expires);
}

static void expect(const char *key, const char *wanted)
{
    struct store_value value;
    int status = store_get(session, key, strlen(key), &value);
    if (!wanted) {
        assert_int_equal(status, BANYAN_ENOTFOUND);
        return;
    }
    assert_int_equal(status, 0);
    assert_int_equal(value.length, strlen(wanted));
    assert_memory_equal(value.bytes, wanted, value.length);
}

static uint8_t *filled(uint64_t number, size_t length)
{
    uint8_t *bytes = malloc(length + 1);
    assert_non_null(bytes);
    stores_fill(number, bytes, length);
    return bytes;
}

static void expect_filled(const char *key, uint64_t number, size_t length, uint64_t expires)
{
    struct store_value value;
    assert_int_equal(store_get(session, key, strlen(key), &value), 0);
    assert_int_equal(value.length, length);
    assert_int_equal(value.expires, expires);
    assert_true(stores_filled(number, value.bytes, length));
    assert_int_equal(store_stat(session, key, strlen(key), &value), 0);
    assert_int_equal(value.length, length);
    assert_int_equal(value.expires, expires);
    assert_null(value.bytes);
}

/* ---- sizes ---- */

static void sizes(void **state)
{
    static const uint64_t lengths[] = {0,
                                       1,
                                       7,
                                       8,
                                       9,
                                       15,
                                       16,
                                       17,
                                       18,
                                       63,
                                       254,
                                       255,
                                       256,
                                       4096,
                                       64 * KIB - 300,
                                       64 * KIB - 38,
                                       64 * KIB - 1,
                                       64 * KIB,
                                       64 * KIB + 1,
                                       MIB - 1,
                                       MIB,
                                       MIB + 1,
                                       5 * MIB + 77};
    for (unsigned expiring = 0; expiring < 2; expiring++)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            uint64_t expires = expiring ? 5000 + i : 0;
            uint8_t *bytes = filled(i, lengths[i]);
            char key[16];
            snprintf(key, sizeof key, "k%u", i % 7); /* so that each key gets different sizes */
            assert_int_equal(store_put(session, key, strlen(key), bytes, lengths[i], expires), 0);
            free(bytes);
            expect_filled(key, i, lengths[i], expires);
        }
    struct store_check_report report;
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.tree.entries, 7);
    assert_int_equal(report.values_inline + report.values_record, 7);
    for (unsigned i = 0; i < 7; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(store_delete(session, key, strlen(key)), 0);
        assert_int_equal(store_delete(session, key, strlen(key)), BANYAN_ENOTFOUND);
    }
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.record_blocks, 0);
    struct store_stats stats;
    store_stats(stores.world.computes[0].store, &stats);
    assert_true(stats.records_written > 20);
    assert_int_equal(stats.records_written, stats.records_freed);
    assert_int_equal(stats.bytes_written, stats.bytes_freed);
}

static void largest(void **state)
{
    uint8_t *bytes = filled(1, STORE_VALUE_MAX + 1);
    assert_int_equal(store_put(session, "x", 1, bytes, STORE_VALUE_MAX + 1, 0), BANYAN_EVALUESIZE);
    assert_non_null(strstr(message(), "67108864"));
    expect("x", NULL);
    assert_int_equal(store_put(session, "x", 1, bytes, STORE_VALUE_MAX, 0), 0);
    expect_filled("x", 1, STORE_VALUE_MAX, 0);
    assert_int_equal(store_put(session, "x", 1, bytes, STORE_VALUE_MAX - 1, 9999), 0);
    expect_filled("x", 1, STORE_VALUE_MAX - 1, 9999);
    free(bytes);
    assert_int_equal(put("x", "short", 0), 0);
    expect("x", "short");
}

static void keys(void **state)
{
    char key[300];
    memset(key, 'k', sizeof key);
    char longer[] = "a value that does not fit into the slot";
    for (size_t length = 1; length <= 255; length += 127) {
        assert_int_equal(store_put(session, key, length, longer, sizeof longer, 0), 0);
        struct store_value value;
        assert_int_equal(store_get(session, key, length, &value), 0);
        assert_int_equal(value.length, sizeof longer);
    }
    assert_int_equal(store_put(session, key, 256, longer, sizeof longer, 0), BANYAN_EKEYSIZE);
    assert_int_equal(store_put(session, key, 256, "s", 1, 0), BANYAN_EKEYSIZE);
    assert_int_equal(store_put(session, key, 0, longer, sizeof longer, 0), BANYAN_EKEYSIZE);
    assert_int_equal(store_put(session, key, 3, NULL, 3, 0), BANYAN_EINVAL);
}

/* ---- costs ---- */

static uint64_t trips(void)
{
    return tree_session_stats(stores.world.tasks[0].session)->cost.round_trips;
}

static void costs(void **state)
{
    struct store_value value;
    uint8_t *bytes = filled(3, 2 * MIB);
    /* Once for the caches and the allocator's batches. */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(put("a", "1", 0), 0);
        assert_int_equal(store_put(session, "b", 1, bytes, 100, 0), 0);
        assert_int_equal(store_put(session, "c", 1, bytes, 2 * MIB, 0), 0);
        assert_int_equal(store_put(session, "d", 1, bytes, 100, 5000), 0);
    }
    uint64_t before = trips();
    assert_int_equal(put("a", "2", 0), 0);
    assert_int_equal(trips() - before, 2);
    before = trips();
    assert_int_equal(store_get(session, "a", 1, &value), 0);
    assert_int_equal(trips() - before, 1);
    before = trips();
    assert_int_equal(store_put(session, "b", 1, bytes, 101, 0), 0);
    assert_int_equal(trips() - before, 3);
    before = trips();
    assert_int_equal(store_get(session, "b", 1, &value), 0);
    assert_int_equal(trips() - before, 2);
    before = trips();
    assert_int_equal(store_get(session, "c", 1, &value), 0);
    assert_int_equal(trips() - before, 3);
    before = trips();
    assert_int_equal(store_stat(session, "c", 1, &value), 0); /* the slot has the answer */
    assert_int_equal(trips() - before, 1);
    before = trips();
    assert_int_equal(store_stat(session, "d", 1, &value), 0);
    assert_int_equal(trips() - before, 2);
    /* Many keys: their slots in one, their records in another. */
    struct store_item items[64];
    char names[64][8];
    for (unsigned i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "m%u", i);
        assert_int_equal(store_put(session, names[i], strlen(names[i]), bytes, 50 + i, 0), 0);
        items[i] = (struct store_item){.key = names[i], .key_length = strlen(names[i])};
    }
    before = trips();
    assert_int_equal(store_multi_get(session, items, 30, true), 0);
    assert_int_equal(trips() - before, 2);
    assert_true(stores_filled(3, items[29].value.bytes, 72));
    free(bytes);
}

/* ---- values that are left where they are ---- */

static struct store_item left_item(const char *key)
{
    return (struct store_item){.key = key, .key_length = strlen(key), .leave = true};
}

/* The value of a key comes to a place of exactly its length; `wanted` 0: there is none. */
static void read_left(struct store_item *item, uint64_t number, size_t wanted)
{
    const size_t room_length = item->value.length;
    uint8_t *room = malloc(room_length ? room_length : 1);
    assert_non_null(room);
    store_item_read(session, item, room);
    assert_null(item->left);
    assert_int_equal(item->status, wanted ? 0 : BANYAN_ENOTFOUND);
    assert_int_equal(item->value.length, wanted);
    if (wanted)
        assert_true(stores_filled(number, item->value.bytes, wanted));
    else
        assert_null(item->value.bytes);
    free(room);
}

static struct store_part first_bytes(void *context, uint64_t whole)
{
    (void)context;
    return (struct store_part){.length = whole < 5 ? whole : 5};
}

static void put_filled(struct store_session *by, const char *key, uint64_t number, size_t length,
                       uint64_t expires)
{
    uint8_t *bytes = filled(number, length);
    assert_int_equal(store_put(by, key, strlen(key), bytes, length, expires), 0);
    free(bytes);
}

/* Which values are left, and that they are read as they were. */
static void values_left(void **state)
{
    static const size_t lengths[] = {17, 63, 64, 100, 1000, 10240, 65000};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    struct store_item items[LENGTHS];
    char names[LENGTHS][8];
    for (unsigned i = 0; i < LENGTHS; i++) {
        snprintf(names[i], sizeof names[i], "k%u", i);
        put_filled(session, names[i], i, lengths[i], i % 2 ? 1000000 : 0);
        items[i] = left_item(names[i]);
    }
    assert_int_equal(store_multi_get(session, items, LENGTHS, true), 0);
    for (unsigned i = 0; i < LENGTHS; i++) {
        assert_int_equal(items[i].status, 0);
        assert_non_null(items[i].left);
        assert_null(items[i].value.bytes);
        assert_int_equal(items[i].value.length, lengths[i]);
    }
    for (unsigned i = 0; i < LENGTHS; i++) { /* to where the caller wants it */
        uint8_t *room = malloc(lengths[i]);
        assert_non_null(room);
        store_item_read(session, &items[i], room);
        assert_int_equal(items[i].status, 0);
        assert_ptr_equal(items[i].value.bytes, room);
        assert_int_equal(items[i].value.length, lengths[i]);
        assert_int_equal(items[i].value.expires, i % 2 ? 1000000 : 0);
        assert_true(stores_filled(i, room, lengths[i]));
        free(room);
    }
    /* Not: values in slots, values in pieces, parts, lengths, and where nobody asks for it. */
    assert_int_equal(put("slot", "short", 0), 0);
    put_filled(session, "pieces", 7, 300 * KIB, 0);
    struct store_item whole[] = {left_item("slot"), left_item("pieces"), left_item("k5"), left_item("k5"),
                                 left_item("none")};
    whole[2].choose = first_bytes;
    whole[3].leave = false;
    assert_int_equal(store_multi_get(session, whole, 5, true), 0);
    for (unsigned i = 0; i < 5; i++)
        assert_null(whole[i].left);
    assert_true(stores_filled(7, whole[1].value.bytes, 300 * KIB));
    assert_int_equal(whole[2].value.length, 5);
    assert_true(stores_filled(5, whole[3].value.bytes, lengths[5]));
    assert_int_equal(whole[4].status, BANYAN_ENOTFOUND);
    assert_int_equal(store_multi_get(session, items, LENGTHS, false), 0);
    for (unsigned i = 0; i < LENGTHS; i++)
        assert_null(items[i].left);
}

/* What becomes of the key before its value is read: that is told, whatever lies in the old place. */
static void values_left_and_changed(void **state)
{
    struct store_session *other;
    struct error error = {0};
    assert_int_equal(
        store_session_create(&other, stores.world.computes[0].store, stores.world.tasks[0].session, &error),
        0);
    for (unsigned round = 0; round < 6; round++) {
        put_filled(other, "key", 1, 10240, 0);
        put_filled(other, "gone", 2, 10240, 0);
        put_filled(other, "due", 3, 10240, 5000);
        struct store_item items[] = {left_item("key"), left_item("gone"), left_item("due")};
        stores_now(&stores, 1000);
        assert_int_equal(store_multi_get(session, items, 3, true), 0);
        for (unsigned i = 0; i < 3; i++)
            assert_non_null(items[i].left);
        const size_t length = round % 3 == 0 ? 10240 : round % 3 == 1 ? 100000 : 9;
        put_filled(other, "key", 4 + round, length, 0);
        assert_int_equal(store_delete(other, "gone", 4), 0);
        for (unsigned i = 0; i < 4; i++) { /* in the blocks that are free now */
            char name[8];
            snprintf(name, sizeof name, "new%u", i);
            put_filled(other, name, 90 + i, 10240, 0);
        }
        stores_now(&stores, 6000);
        read_left(&items[0], 4 + round, length);
        read_left(&items[1], 0, 0);
        read_left(&items[2], 0, 0);
        for (unsigned i = 0; i < 4; i++) {
            char name[8];
            snprintf(name, sizeof name, "new%u", i);
            assert_int_equal(store_delete(other, name, strlen(name)), 0);
        }
    }
    store_session_destroy(other);
}

/* Writes of many keys that do not collide take the round trips of one write. */
static void costs_of_many_puts(void **state)
{
    enum { SPREAD = 2000, COUNT = 16 };
    char names[COUNT][16];
    struct store_item items[COUNT];
    uint8_t *bytes = filled(3, 1000);
    uint64_t fewest[2] = {UINT64_MAX, UINT64_MAX};
    for (unsigned i = 0; i < SPREAD; i++) {
        snprintf(names[0], sizeof names[0], "spread%05u", i);
        assert_int_equal(put(names[0], "v", 0), 0);
    }
    /* Lock words are hashed: where two leaves share one, one write waits for the other. */
    for (unsigned round = 0; round < 8; round++)
        for (unsigned longer = 0; longer < 2; longer++) {
            for (unsigned i = 0; i < COUNT; i++) {
                snprintf(names[i], sizeof names[i], "spread%05u", i * (SPREAD / COUNT) + round);
                items[i] = (struct store_item){
                    .key = names[i],
                    .key_length = strlen(names[i]),
                    .value = {.bytes = bytes, .length = longer ? 100 + i : i, .expires = 0}};
            }
            uint64_t before = trips();
            assert_int_equal(store_multi_put(session, items, COUNT), 0);
            uint64_t taken = trips() - before;
            fewest[longer] = taken < fewest[longer] ? taken : fewest[longer];
        }
    assert_int_equal(fewest[false], 2);
    assert_int_equal(fewest[true], 3); /* their records first */
    /* Neighbours share a leaf and its lock. */
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "spread%05u", 100 + i);
        items[i] = (struct store_item){.key = names[i],
                                       .key_length = strlen(names[i]),
                                       .value = {.bytes = bytes, .length = i, .expires = 0}};
    }
    assert_int_equal(store_multi_put(session, items, COUNT), 0);
    uint64_t before = trips();
    assert_int_equal(store_multi_put(session, items, COUNT), 0);
    assert_true(trips() - before <= 4); /* they may lie at the border of two leaves that share a lock word */
    for (unsigned i = 0; i < COUNT; i++)
        expect_filled(names[i], 3, i, 0);
    free(bytes);
}

/* Each item gets its own status; of a key that comes twice the last value stays. */
static void many_puts_of_all_kinds(void **state)
{
    uint8_t *bytes = filled(9, MIB);
    struct store_check_report report;
    struct store_item items[] = {
        {.key = "a", .key_length = 1, .value = {.bytes = bytes, .length = 3, .expires = 0}},
        {.key = "a", .key_length = 1, .value = {.bytes = bytes, .length = 300, .expires = 0}},
        {.key = "", .key_length = 0, .value = {.bytes = bytes, .length = 3, .expires = 0}},
        {.key = "b", .key_length = 1, .value = {.bytes = NULL, .length = 3, .expires = 0}},
        {.key = "c", .key_length = 1, .value = {.bytes = bytes, .length = STORE_VALUE_MAX + 1, .expires = 0}},
        {.key = "d", .key_length = 1, .value = {.bytes = bytes, .length = 400, .expires = 0}},
        {.key = "d", .key_length = 1, .value = {.bytes = bytes, .length = MIB, .expires = 0}},
        {.key = "d", .key_length = 1, .value = {.bytes = bytes, .length = 500, .expires = 0}},
        {.key = "e", .key_length = 1, .value = {.bytes = NULL, .length = 0, .expires = 0}},
        {.key = "f", .key_length = 1, .value = {.bytes = bytes, .length = MIB, .expires = 7000}},
        {.key = "f", .key_length = 1, .value = {.bytes = bytes, .length = 5, .expires = 7000}},
    };
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(store_multi_put(session, items, sizeof items / sizeof *items), BANYAN_EKEYSIZE);
        for (unsigned i = 0; i < sizeof items / sizeof *items; i++)
            assert_int_equal(items[i].status, i == 2   ? BANYAN_EKEYSIZE
                                              : i == 3 ? BANYAN_EINVAL
                                              : i == 4 ? BANYAN_EVALUESIZE
                                                       : 0);
        expect_filled("a", 9, 300, 0);
        expect("b", NULL);
        expect("c", NULL);
        expect_filled("d", 9, 500, 0);
        expect("e", "");
        expect_filled("f", 9, 5, 7000);
        assert_int_equal(stores_check(&stores, &report), 0); /* no block is lost, or owned twice */
        assert_int_equal(report.values_record, 2);
        assert_int_equal(stores.world.lost_bytes, 0);
    }
    free(bytes);
}

/* ---- expiry ---- */

static void expiry(void **state)
{
    const char *longer = "a value that does not fit into the slot";
    struct store_value value;
    assert_int_equal(put("short", "v", 2000), 0);
    assert_int_equal(put("middle", "0123456789", 2000), 0);
    assert_int_equal(put("long", longer, 2000), 0);
    assert_int_equal(put("stays", longer, 0), 0);
    stores_now(&stores, 1999);
    expect("short", "v");
    expect("middle", "0123456789");
    expect("long", longer);
    uint64_t count;
    struct tree_range all = {0};
    assert_int_equal(store_count(session, &all, &count), 0);
    assert_int_equal(count, 4);
    stores_now(&stores, 2000);
    assert_int_equal(store_count(session, &all, &count), 0);
    assert_int_equal(count, 1);
    char key[FORMAT_KEY_MAX];
    for (unsigned i = 0; i < 50; i++) {
        size_t length = sizeof key;
        assert_int_equal(store_sample(session, key, &length), 0);
        assert_int_equal(length, 5);
        assert_memory_equal(key, "stays", 5);
    }
    struct store_item items[] = {{.key = "short", .key_length = 5},
                                 {.key = "long", .key_length = 4},
                                 {.key = "stays", .key_length = 5}};
    assert_int_equal(store_multi_get(session, items, 3, true), 0);
    assert_int_equal(items[0].status, BANYAN_ENOTFOUND);
    assert_int_equal(items[1].status, BANYAN_ENOTFOUND);
    assert_int_equal(items[2].status, 0);
    expect("short", NULL);
    expect("middle", NULL);
    assert_int_equal(store_stat(session, "long", 4, &value), BANYAN_ENOTFOUND);
    expect("stays", longer);
    struct store_check_report report;
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.tree.entries, 1); /* the expired entries that were met are removed */
    assert_int_equal(report.expired, 0);
    /* An expired entry counts as absent. */
    assert_int_equal(put("long", longer, 2500), 0);
    stores_now(&stores, 3000);
    assert_int_equal(store_delete(session, "long", 4), BANYAN_ENOTFOUND);
    assert_int_equal(put("short", "v", 3500), 0);
    stores_now(&stores, 4000);
    assert_int_equal(store_delete(session, "short", 5), BANYAN_ENOTFOUND);
    assert_int_equal(put("past", "v", 1), 0);
    expect("past", NULL);
    struct store_stats stats;
    store_stats(stores.world.computes[0].store, &stats);
    assert_true(stats.expired >= 5);
}

/* A task finds an entry expired, and before it removes it another task stores it anew. The put has freed the
 * old record; the new value stays. */
static void expired_and_stored_anew(void **state)
{
    char longer[200];
    struct store_raw old = {.present = true};
    struct store_stats before, after;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    stores_now(&stores, 1000);
    assert_int_equal(put("key", longer, 2000), 0);
    size_t length = sizeof old.bytes;
    assert_int_equal(tree_lookup(session->tree, session->store->tree, "key", 3, old.bytes, &length), 0);
    old.length = (uint8_t)length;
    stores_now(&stores, 3000);
    longer[0] = 'y';
    assert_int_equal(put("key", longer, 0), 0);
    store_stats(stores.world.computes[0].store, &before);
    assert_false(store_expire(session, "key", 3, &old));
    store_stats(stores.world.computes[0].store, &after);
    assert_int_equal(after.records_freed, before.records_freed);
    expect("key", longer);
}

static struct format_reference record_written(const struct store_value *value)
{
    struct store_fresh fresh;
    assert_int_equal(store_record_prepare(session, "key", 3, value, &fresh), 0);
    if (fresh.travels)
        assert_int_equal(store_transfer(session, &fresh.ahead, 1, NULL), 0);
    store_fresh_written(session, &fresh, true);
    return fresh.reference;
}

/* A new record with the same key, length and address: with the old reference its value is not read. */
static void a_record_in_anothers_place(void **state)
{
    char bytes[200];
    struct store_value value = {.bytes = (const uint8_t *)bytes, .length = sizeof bytes}, read;
    struct format_reference old, new;
    memset(bytes, 'x', sizeof bytes);
    old = record_written(&value);
    store_record_free(session, "key", 3, &old, true);
    memset(bytes, 'y', sizeof bytes);
    new = record_written(&value);
    assert_int_equal(new.address, old.address);
    assert_int_equal(store_record_read(session, "key", 3, &old, FORMAT_PART_VALUE, STORE_SINK_BUFFER, &read),
                     STORE_STALE);
    assert_int_equal(store_record_read(session, "key", 3, &new, FORMAT_PART_VALUE, STORE_SINK_BUFFER, &read),
                     0);
    assert_memory_equal(read.bytes, bytes, sizeof bytes);
    store_record_free(session, "key", 3, &new, true);
}

static void sweep(void **state)
{
    char key[16];
    const char *longer = "a value that does not fit into the slot";
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "%05u", i);
        assert_int_equal(put(key, i % 2 ? longer : "x", i % 3 ? 0 : 2000), 0);
    }
    stores_now(&stores, 2000);
    struct store_sweep sweep = {0};
    struct store_check_report report;
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.expired, 1000);
    for (unsigned steps = 0; !sweep.passes; steps++) {
        assert_int_equal(store_sweep_step(session, &sweep, 100), 0);
        assert_true(steps < 40);
    }
    assert_int_equal(sweep.last_pass_keys, 3000);
    assert_int_equal(sweep.last_pass_removed, 1000);
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.expired, 0);
    assert_int_equal(report.tree.entries, 2000);
    while (sweep.passes < 2)
        assert_int_equal(store_sweep_step(session, &sweep, 1000), 0);
    assert_int_equal(sweep.last_pass_removed, 0);
    assert_int_equal(sweep.last_pass_keys, 2000);
}

/* ---- modify ---- */

struct step {
    enum store_verdict verdict;
    const uint8_t *bytes;
    size_t length;
    uint64_t expires;
    bool keep_expiry, append;
    uint8_t *room;
    /* what it saw */
    unsigned calls;
    bool existed;
    struct store_value old;
};

static enum store_verdict step_change(void *context, const struct store_value *old, struct store_value *new)
{
    struct step *step = context;
    step->calls++;
    step->existed = old != NULL;
    step->old = old ? *old : (struct store_value){0};
    *new = (struct store_value){.bytes = step->bytes,
                                .length = step->length,
                                .expires = step->keep_expiry ? step->old.expires : step->expires};
    if (step->append) {
        step->room = realloc(step->room, step->old.length + step->length + 1);
        assert_non_null(step->room);
        if (old)
            memcpy(step->room, old->bytes, old->length);
        memcpy(step->room + step->old.length, step->bytes, step->length);
        new->bytes = step->room;
        new->length += step->old.length;
    }
    return step->verdict;
}

static void modify_as(const char *key, enum store_need need, struct step *step, bool existed,
                      size_t old_length)
{
    struct store_value old;
    bool there;
    step->calls = 0;
    assert_int_equal(store_modify(session, key, strlen(key), need, step_change, step, &old, &there), 0);
    assert_int_equal(there, existed);
    assert_int_equal(old.length, old_length);
    assert_int_equal(step->existed, existed);
    assert_int_equal(step->old.length, old_length);
    if (existed && need == STORE_NEED_LENGTH)
        assert_null(step->old.bytes);
}

/* From every kind of value to every other, with and without the old bytes. */
static void modify_kinds(void **state)
{
    static const size_t lengths[] = {SIZE_MAX, 0, 8, 16, 17, 1000, 64 * KIB, 3 * MIB};
    uint8_t *bytes = filled(9, 4 * MIB);
    unsigned count = sizeof lengths / sizeof *lengths;
    for (unsigned i = 0; i < count * count * 8; i++) {
        size_t from = lengths[i % count], to = lengths[i / count % count];
        unsigned flags = i / count / count;
        enum store_need need = flags & 1 ? STORE_NEED_VALUE : STORE_NEED_LENGTH;
        uint64_t before = flags & 2 ? 7000 : 0, after = flags & 4 ? 8000 : 0;
        if (from != SIZE_MAX)
            assert_int_equal(store_put(session, "m", 1, bytes, from, before), 0);
        else
            store_delete(session, "m", 1);
        struct step step = {.verdict = to == SIZE_MAX ? STORE_REMOVE : STORE_PUT,
                            .bytes = bytes,
                            .length = to == SIZE_MAX ? 0 : to,
                            .expires = after};
        modify_as("m", need, &step, from != SIZE_MAX, from == SIZE_MAX ? 0 : from);
        if (to == SIZE_MAX)
            expect("m", NULL);
        else
            expect_filled("m", 9, to, after);
    }
    free(bytes);
}

static void modify_expiry(void **state)
{
    static const size_t lengths[] = {0, 8, 9, 12, 16, 17, 1000, 64 * KIB, 3 * MIB};
    uint8_t *bytes = filled(9, 4 * MIB);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct step step = {.verdict = STORE_PUT, .expires = 6000};
        assert_int_equal(store_put(session, "e", 1, bytes, lengths[i], 0), 0);
        modify_as("e", STORE_NEED_LENGTH, &step, true, lengths[i]); /* expire */
        expect_filled("e", 9, lengths[i], 6000);
        step.expires = 7000;
        modify_as("e", STORE_NEED_LENGTH, &step, true, lengths[i]);
        assert_int_equal(step.old.expires, 6000);
        expect_filled("e", 9, lengths[i], 7000);
        modify_as("e", STORE_NEED_LENGTH, &step, true, lengths[i]); /* the same again */
        expect_filled("e", 9, lengths[i], 7000);
        step.expires = 0;
        modify_as("e", STORE_NEED_LENGTH, &step, true, lengths[i]); /* persist */
        expect_filled("e", 9, lengths[i], 0);
        step.expires = 500; /* already past */
        modify_as("e", STORE_NEED_LENGTH, &step, true, lengths[i]);
        expect("e", NULL);
        assert_int_equal(stores_check(&stores, NULL), 0);
    }
    /* An expired entry counts as absent, for each verdict. */
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int verdict = STORE_KEEP; verdict <= STORE_REMOVE; verdict++)
            for (int need = STORE_NEED_VALUE; need <= STORE_NEED_LENGTH; need++) {
                struct step step = {
                    .verdict = (enum store_verdict)verdict, .bytes = (const uint8_t *)"new", .length = 3};
                assert_int_equal(store_put(session, "e", 1, bytes, lengths[i], 900), 0);
                modify_as("e", (enum store_need)need, &step, false, 0);
                expect("e", verdict == STORE_PUT ? "new" : NULL);
                store_delete(session, "e", 1);
            }
    free(bytes);
}

static void modify_refusals(void **state)
{
    struct step step = {.verdict = STORE_PUT, .length = STORE_VALUE_MAX + 1, .bytes = (const uint8_t *)""};
    assert_int_equal(put("r", "old", 0), 0);
    assert_int_equal(store_modify(session, "r", 1, STORE_NEED_VALUE, step_change, &step, NULL, NULL),
                     BANYAN_EVALUESIZE);
    assert_non_null(strstr(message(), "67108864"));
    step.length = 5;
    step.bytes = NULL;
    assert_int_equal(store_modify(session, "r", 1, STORE_NEED_VALUE, step_change, &step, NULL, NULL),
                     BANYAN_EINVAL);
    expect("r", "old");
    assert_int_equal(store_modify(session, "", 0, STORE_NEED_VALUE, step_change, &step, NULL, NULL),
                     BANYAN_EKEYSIZE);
}

static void modify_append(void **state)
{
    uint8_t *bytes = filled(4, 300 * KIB);
    struct step step = {.verdict = STORE_PUT, .append = true, .keep_expiry = true};
    size_t length = 0;
    for (unsigned i = 0; length < 200 * KIB; i++) {
        step.bytes = bytes + length;
        step.length = i < 40 ? 1 + i : 5000;
        modify_as("a", STORE_NEED_VALUE, &step, i > 0, length);
        length += step.length;
        expect_filled("a", 4, length, 0);
    }
    free(step.room);
    free(bytes);
}

/* ---- many keys ---- */

static void many(void **state)
{
    enum { COUNT = 700 };
    struct store_item *items = calloc(COUNT, sizeof *items);
    char(*names)[12] = calloc(COUNT, sizeof *names);
    uint8_t *bytes = filled(5, 2 * MIB);
    assert_true(items && names);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "key%u", i);
        size_t length = i == 350 ? MIB + i : i % 3 ? i * 7 : i % 17;
        items[i] =
            (struct store_item){.key = names[i],
                                .key_length = strlen(names[i]),
                                .value = {.bytes = bytes, .length = length, .expires = i % 5 ? 0 : 5000 + i}};
    }
    assert_int_equal(store_multi_put(session, items, COUNT), 0);
    for (int values = 0; values < 2; values++) {
        for (unsigned i = 0; i < COUNT; i++)
            items[i] = (struct store_item){.key = names[i], .key_length = strlen(names[i])};
        items[77].key = "absent";
        items[77].key_length = 6;
        assert_int_equal(store_multi_get(session, items, COUNT, values), 0);
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(items[i].status, i == 77 ? BANYAN_ENOTFOUND : 0);
            if (i == 77)
                continue;
            assert_int_equal(items[i].value.length, i == 350 ? MIB + i : i % 3 ? i * 7 : i % 17);
            assert_int_equal(items[i].value.expires, i % 5 ? 0 : 5000 + i);
            assert_true((items[i].value.bytes != NULL) == values);
            if (values)
                assert_true(stores_filled(5, items[i].value.bytes, items[i].value.length));
        }
    }
    struct store_check_report report;
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.values_inline + report.values_record, COUNT);
    items[3].key_length = 0;
    assert_int_equal(store_multi_get(session, items, COUNT, false), BANYAN_EKEYSIZE);
    assert_int_equal(items[3].status, BANYAN_EKEYSIZE);
    assert_int_equal(items[4].status, 0);
    free(items);
    free(names);
    free(bytes);
}

static void many_limit(void **state)
{
    uint8_t *bytes = filled(6, 60 * MIB);
    struct store_item items[5];
    assert_int_equal(store_put(session, "big", 3, bytes, 60 * MIB, 0), 0);
    for (unsigned i = 0; i < 5; i++)
        items[i] = (struct store_item){.key = "big", .key_length = 3};
    assert_int_equal(store_multi_get(session, items, 5, true), BANYAN_ENOMEM);
    assert_int_equal(items[0].status, 0); /* a single value is never too long */
    assert_true(stores_filled(6, items[0].value.bytes, items[0].value.length));
    for (unsigned i = 1; i < 5; i++)
        assert_int_equal(items[i].status, BANYAN_ENOMEM);
    assert_int_equal(store_put(session, "big", 3, bytes, MIB, 0), 0);
    assert_int_equal(put("small", "value", 0), 0);
    items[4] = (struct store_item){.key = "small", .key_length = 5};
    assert_int_equal(store_multi_get(session, items, 5, true), BANYAN_ENOMEM);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(items[i].status, i == 3 ? BANYAN_ENOMEM : 0);
    assert_true(stores_filled(6, items[2].value.bytes, items[2].value.length));
    free(bytes);
}

/* ---- ranges ---- */

struct seen {
    unsigned count, stop_after;
    unsigned first, last;
    bool values, ascending;
};

static size_t range_length(unsigned i)
{
    return i % 997 == 500 ? 2 * MIB : i % 2 ? i % 3000 : i % 12;
}

static bool seen_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct seen *seen = context;
    char text[8] = "";
    assert_int_equal(key_length, 5);
    memcpy(text, key, 5);
    unsigned number = (unsigned)atoi(text);
    assert_true(number % 3); /* the others have expired */
    assert_int_equal(value->length, range_length(number));
    assert_true((value->bytes != NULL) == seen->values);
    if (seen->values)
        assert_true(stores_filled(number, value->bytes, value->length));
    if (seen->count++)
        assert_true(seen->ascending ? number > seen->last : number < seen->last);
    else
        seen->first = number;
    seen->last = number;
    return !seen->stop_after || seen->count < seen->stop_after;
}

/* Large values are accounted: beyond the limit they are refused, and the account is empty when they are not
 * needed. */
static void memory_limit(void **state)
{
    uint8_t *bytes = filled(6, 20 * MIB);
    struct store *store = stores.world.computes[0].store;
    struct store_value value;
    struct store_stats stats;
    struct store_item items[2];
    assert_int_equal(store_put(session, "long", 4, bytes, 20 * MIB, 0), 0);
    assert_int_equal(store_put(session, "less", 4, bytes, 3 * MIB, 0), 0);
    store_set_memory_max(store, 8 * MIB);
    assert_int_equal(store_get(session, "long", 4, &value), BANYAN_ENOMEM);
    assert_non_null(strstr(message(), "memory"));
    assert_int_equal(store_get(session, "less", 4, &value), 0);
    assert_true(stores_filled(6, value.bytes, value.length));
    store_stats(store, &stats);
    assert_true(stats.memory >= 2 * MIB && stats.memory < 8 * MIB);
    store_session_rest(session);
    store_stats(store, &stats);
    assert_int_equal(stats.memory, 0);
    /* A call of many never refuses a single value for its length, but the memory limit may. */
    items[0] = (struct store_item){.key = "less", .key_length = 4};
    items[1] = (struct store_item){.key = "long", .key_length = 4};
    assert_int_equal(store_multi_get(session, items, 2, true), BANYAN_ENOMEM);
    assert_int_equal(items[0].status, 0);
    assert_int_equal(store_multi_get(session, items + 1, 1, true), BANYAN_ENOMEM);
    store_set_memory_max(store, UINT64_MAX);
    assert_int_equal(store_multi_get(session, items + 1, 1, true), 0);
    assert_true(stores_filled(6, items[1].value.bytes, items[1].value.length));
    assert_int_equal(store_get(session, "less", 4, &value),
                     0); /* the longer value's memory was freed before */
    store_stats(store, &stats);
    assert_true(stats.memory < 8 * MIB);
    store_session_rest(session);
    store_stats(store, &stats);
    assert_int_equal(stats.memory, 0);
    free(bytes);
}

static bool cancelled_after(void *context)
{
    unsigned *left = context;
    return !*left || !--*left;
}

static bool count_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    ++*(uint64_t *)context;
    return true;
}

/* Each call ends when it is cancelled, and else runs to its end. */
static void cancelled(void **state)
{
    enum { COUNT = 3000 };
    static const struct tree_range all = {0};
    char key[8];
    uint64_t count = 0;
    unsigned turns = 3;
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "%05u", i);
        assert_int_equal(put(key, "value", 0), 0);
    }
    store_session_set_cancel(session, cancelled_after, &turns);
    assert_int_equal(store_scan(session, &all, STORE_SCAN_VALUES, count_visit, &count), BANYAN_EABORT);
    assert_true(count > 0 && count < COUNT);
    assert_int_equal(store_count(session, &all, &count), BANYAN_EABORT);
    turns = 3;
    assert_int_equal(store_delete_range(session, &all, &count), BANYAN_EABORT);
    assert_true(count > 0 && count < COUNT);
    uint64_t deleted = count;
    store_session_set_cancel(session, NULL, NULL);
    assert_int_equal(store_count(session, &all, &count), 0);
    assert_int_equal(count, COUNT - deleted);
    assert_int_equal(store_delete_range(session, &all, &count), 0);
    assert_int_equal(count, COUNT - deleted);
}

static void ranges(void **state)
{
    for (unsigned i = 0; i < 2000; i++) {
        char key[8];
        uint8_t *bytes = filled(i, range_length(i));
        snprintf(key, sizeof key, "%05u", i);
        assert_int_equal(
            store_put(session, key, 5, bytes, range_length(i), i % 3 ? i % 3 == 1 ? 0 : 4000 : 2000), 0);
        free(bytes);
    }
    stores_now(&stores, 3000);
    for (unsigned flags = 0; flags < 4; flags++) {
        struct seen seen = {.values = flags & 1, .ascending = !(flags & 2)};
        unsigned scan_flags = flags & 1 ? STORE_SCAN_VALUES : STORE_SCAN_KEYS;
        struct tree_range range = {.reverse = flags & 2};
        assert_int_equal(store_scan(session, &range, scan_flags, seen_visit, &seen), 0);
        assert_int_equal(seen.count, 1333);
        /* [00100, 00200) */
        range.from = "00100";
        range.from_length = 5;
        range.to = "00200";
        range.to_length = 5;
        range.to_open = true;
        seen = (struct seen){.values = flags & 1, .ascending = !(flags & 2)};
        assert_int_equal(store_scan(session, &range, scan_flags, seen_visit, &seen), 0);
        assert_int_equal(seen.count, 67);
        assert_int_equal(seen.first, flags & 2 ? 199 : 100);
        assert_int_equal(seen.last, flags & 2 ? 100 : 199);
        range.limit = 10;
        seen = (struct seen){.values = flags & 1, .ascending = !(flags & 2)};
        assert_int_equal(store_scan(session, &range, scan_flags, seen_visit, &seen), 0);
        assert_int_equal(seen.count, 10);
        range.limit = 0;
        seen = (struct seen){.values = flags & 1, .ascending = !(flags & 2), .stop_after = 7};
        assert_int_equal(store_scan(session, &range, scan_flags, seen_visit, &seen), 0);
        assert_int_equal(seen.count, 7);
    }
    uint64_t count;
    struct tree_range range = {
        .from = "00100", .from_length = 5, .from_open = true, .to = "00200", .to_length = 5};
    assert_int_equal(store_count(session, &range, &count), 0);
    assert_int_equal(count, 67);
    range.limit = 5;
    assert_int_equal(store_count(session, &range, &count), 0);
    assert_int_equal(count, 5);
    assert_int_equal(store_delete_range(session, &range, &count), 0);
    assert_int_equal(count, 5);
    range.limit = 0;
    assert_int_equal(store_delete_range(session, &range, &count), 0);
    assert_int_equal(count, 62);
    struct tree_range all = {0};
    assert_int_equal(store_count(session, &all, &count), 0);
    assert_int_equal(count, 1333 - 67);
    assert_int_equal(store_delete_range(session, &all, &count), 0);
    assert_int_equal(count, 1333 - 67);
    struct store_check_report report;
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_int_equal(report.tree.entries, 0);
    assert_int_equal(report.record_blocks, 0);
    char key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    assert_int_equal(store_sample(session, key, &length), BANYAN_ENOTFOUND);
}

/* ---- space ---- */

static uint64_t pool_used(void)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct memory_status_reply status;
        memory_node_status(stores.world.memory[i], &status);
        bytes += status.bytes_used;
    }
    return bytes;
}

/* Overwritten values' blocks come back: the pool does not grow, however long it goes on. */
static void space(void **state)
{
    static const size_t lengths[] = {20, 100, 1000, 10000, 100000, 1200000};
    uint8_t *bytes = filled(1, 2 * MIB);
    struct random random;
    uint64_t settled = 0, written = 0;
    random_seed(&random, 7);
    for (unsigned i = 0; i < 12000; i++) {
        char key[8];
        unsigned number = (unsigned)random_below(&random, 48);
        snprintf(key, sizeof key, "%u", number);
        size_t length = lengths[number % 6] + random_below(&random, 4);
        if (number % 6 == 5 && i % 8)
            length = 70000;
        assert_int_equal(store_put(session, key, strlen(key), bytes, length, i % 3 ? 0 : 5000), 0);
        written += length;
        if (i == 2000)
            settled = pool_used();
        if (i > 2000)
            assert_true(pool_used() < settled + settled / 2 + 8 * MIB);
    }
    assert_true(written > 4 * settled);
    uint64_t count;
    struct tree_range all = {0};
    assert_int_equal(store_delete_range(session, &all, &count), 0);
    assert_int_equal(count, 48);
    free(bytes);
}

static void full(void **state)
{
    uint8_t *bytes = filled(2, 8 * MIB);
    unsigned stored = 0;
    char key[16];
    int status = 0;
    for (;; stored++) {
        snprintf(key, sizeof key, "f%u", stored);
        status = store_put(session, key, strlen(key), bytes, 7 * MIB + 13, 0);
        if (status)
            break;
        assert_true(stored < 1000);
    }
    assert_int_equal(status, BANYAN_ENOSPC);
    expect(key, NULL);
    expect_filled("f0", 2, 7 * MIB + 13, 0);
    /* A put that finds no room leaves the old value. */
    assert_int_equal(store_put(session, "f0", 2, bytes, 8 * MIB, 0), BANYAN_ENOSPC);
    expect_filled("f0", 2, 7 * MIB + 13, 0);
    struct step step = {.verdict = STORE_PUT, .bytes = bytes, .length = 8 * MIB};
    assert_int_equal(store_modify(session, "f1", 2, STORE_NEED_LENGTH, step_change, &step, NULL, NULL),
                     BANYAN_ENOSPC);
    assert_int_equal(stores_check(&stores, NULL), 0);
    assert_int_equal(store_delete(session, "f0", 2), 0);
    assert_int_equal(store_put(session, "g", 1, bytes, 7 * MIB, 0), 0);
    expect_filled("g", 2, 7 * MIB, 0);
    expect_filled("f1", 2, 7 * MIB + 13, 0);
    for (unsigned i = 1; i < stored; i++) {
        snprintf(key, sizeof key, "f%u", i);
        assert_int_equal(store_delete(session, key, strlen(key)), 0);
    }
    free(bytes);
}

/* ---- damage ---- */

struct blocks {
    gaddr addresses[64];
    uint32_t bytes[64];
    unsigned count;
};

static void blocks_visit(void *context, gaddr block, uint32_t bytes)
{
    struct blocks *blocks = context;
    if (blocks->count < 64) {
        blocks->addresses[blocks->count] = block;
        blocks->bytes[blocks->count++] = bytes;
    }
}

static uint8_t *pool_at(gaddr address)
{
    return memory_node_target(stores.world.memory[gaddr_node(address)])->pool + gaddr_offset(address);
}

static bool any_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    return true;
}

/* Damages each block of the record at several places: an error that names it, and nothing worse. */
static void damage_record(size_t length, uint64_t expires)
{
    uint8_t *bytes = filled(8, length);
    struct store_check_report report;
    struct blocks before = {0};
    struct store_value value;
    assert_int_equal(store_put(session, "victim", 6, bytes, length, expires), 0);
    assert_int_equal(store_check(session, &report, blocks_visit, &before), 0);
    unsigned first = before.count - (unsigned)report.record_blocks;
    char address[GADDR_TEXT_BYTES];
    gaddr_format(before.addresses[first], address);
    const uint32_t grain = format_record_grain(length);
    const uint32_t pieces = length > 64 * KIB ? (uint32_t)((length + grain - 1) / grain) : 0;
    assert_int_equal(before.count - first, 1 + pieces);
    for (unsigned block = first; block < before.count; block++) {
        size_t used = pieces ? length - (size_t)grain * (block - first - 1) : 43 + length;
        if (pieces && block == first)
            used = format_record_header_bytes(6, format_record_room(pieces));
        else if (pieces && used > 1000)
            used = 1000;
        for (size_t at = 0; at<used; at += used> 200 ? 41 : 1) {
            uint8_t *byte = pool_at(before.addresses[block]) + at;
            *byte ^= 0x40;
            assert_int_equal(store_get(session, "victim", 6, &value), BANYAN_ECORRUPT);
            assert_non_null(strstr(message(), address));
            assert_int_equal(store_check(session, &report, NULL, NULL), BANYAN_ECORRUPT);
            assert_non_null(strstr(message(), address));
            if (at % 8 == 0) {
                struct store_item item = {.key = "victim", .key_length = 6};
                struct tree_range all = {0};
                assert_int_equal(store_multi_get(session, &item, 1, true), BANYAN_ECORRUPT);
                item.leave = true;
                store_multi_get(session, &item, 1, true);
                assert_int_equal(item.left != NULL, !pieces);
                if (item.left) {
                    uint8_t *room = malloc(length);
                    assert_non_null(room);
                    store_item_read(session, &item, room);
                    free(room);
                }
                assert_int_equal(item.status, BANYAN_ECORRUPT);
                assert_int_equal(store_scan(session, &all, STORE_SCAN_VALUES, any_visit, NULL),
                                 BANYAN_ECORRUPT);
                struct step step = {.verdict = STORE_PUT, .bytes = bytes, .length = length};
                assert_int_equal(
                    store_modify(session, "victim", 6, STORE_NEED_VALUE, step_change, &step, NULL, NULL),
                    BANYAN_ECORRUPT);
            }
            *byte ^= 0x40;
        }
    }
    expect_filled("victim", 8, length, expires);
    assert_int_equal(store_delete(session, "victim", 6), 0);
    free(bytes);
}

static void damage(void **state)
{
    damage_record(20, 0);
    damage_record(20, 9000);
    damage_record(3000, 0);
    damage_record(64 * KIB + 1, 0);
    damage_record(10 * 32 * KIB, 9000);
}

/* Slots that no store wrote, or that lead nowhere, written into the index beneath the store. */
static void foreign_slots(void **state)
{
    struct tree *tree = store_tree(stores.world.computes[0].store);
    struct tree_session *below = stores.world.tasks[0].session;
    struct random random;
    random_seed(&random, 3);
    for (unsigned i = 0; i < 3000; i++) {
        uint8_t slot[17];
        size_t length = random_below(&random, 18);
        for (unsigned at = 0; at < 17; at++)
            slot[at] = (uint8_t)random_next(&random);
        if (random_chance(&random, 0.8))
            slot[0] = (uint8_t)random_below(&random, 6);
        if (random_chance(&random, 0.5))
            length = 17;
        if (random_chance(&random, 0.5)) /* an address that may exist */
            memset(slot + 4, 0, 5);
        assert_int_equal(tree_upsert(below, tree, "foreign", 7, slot, length), 0);
        struct store_value value;
        int status = store_get(session, "foreign", 7, &value);
        assert_true(status == 0 || status == BANYAN_ECORRUPT || status == BANYAN_ENOTFOUND);
        struct store_item item = {.key = "foreign", .key_length = 7};
        store_multi_get(session, &item, 1, true);
        item.leave = true;
        store_multi_get(session, &item, 1, true);
        if (item.left) {
            uint8_t *room = malloc(item.value.length + 1);
            assert_non_null(room);
            store_item_read(session, &item, room);
            free(room);
        }
        struct tree_range all = {0};
        store_scan(session, &all, STORE_SCAN_VALUES, any_visit, NULL);
        uint64_t count;
        store_count(session, &all, &count);
        struct step step = {.verdict = STORE_KEEP};
        store_modify(session, "foreign", 7, STORE_NEED_VALUE, step_change, &step, NULL, NULL);
        struct store_check_report report;
        store_check(session, &report, NULL, NULL);
        tree_delete(below, tree, "foreign", 7);
    }
}

/* ---- life ---- */

static void life(void **state)
{
    struct tree_session *below = stores.world.tasks[0].session;
    struct store *other;
    struct error error = {0};
    assert_int_equal(store_open(&other, below, "other", false), BANYAN_ENOTFOUND);
    assert_int_equal(store_open(&other, below, "other", true), 0);
    assert_int_equal(tree_geometry(store_tree(other))->leaf_kind, FORMAT_LEAF_DENSE);
    struct store_session *second;
    assert_int_equal(store_session_create(&second, other, below, &error), 0);
    assert_ptr_equal(store_session_tree(second), below);
    uint64_t now = clock_wall_ms();
    assert_true(now > UINT64_C(1700000000000)); /* the default clock is the time of day */
    assert_int_equal(store_put(second, "k", 1, "v", 1, now + 3600000), 0);
    assert_int_equal(store_put(second, "p", 1, "v", 1, now - 1), 0);
    struct store_value value;
    assert_int_equal(store_get(second, "k", 1, &value), 0);
    assert_int_equal(value.expires, now + 3600000);
    assert_int_equal(store_get(second, "p", 1, &value), BANYAN_ENOTFOUND);
    expect("k", NULL); /* the other store's */
    assert_int_equal(store_delete(second, "k", 1), 0);
    store_session_destroy(second);
    store_close(other);
    assert_int_equal(store_open(&other, below, "other", true), 0);
    store_close(other);
    struct format_geometry plain = {
        .key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 17, .value_variable = true};
    struct tree *tree;
    assert_int_equal(tree_create(below, "plain", &plain, &tree), 0);
    assert_int_equal(store_wrap(&other, tree, &error), BANYAN_EINVAL);
    tree_close(tree);
    assert_int_equal(store_open(&other, below, "plain", true), BANYAN_EINVAL);
    assert_non_null(strstr(message(), "plain"));
}

/* As stores were made before there were dense leaves, and as programs make them. */
static void an_older_store_stays_as_it_is(void **state)
{
    struct tree_session *below = stores.world.tasks[0].session;
    struct format_geometry geometry;
    struct store_session *second;
    struct store *store;
    struct tree *tree;
    struct error error = {0};
    char key[12];
    store_geometry(&geometry);
    assert_int_equal(geometry.leaf_kind, FORMAT_LEAF_HASHED);
    assert_int_equal(tree_create(below, "before", &geometry, &tree), 0);
    assert_int_equal(store_wrap(&store, tree, &error), 0);
    for (unsigned life = 0; life < 2; life++) {
        struct store_value value;
        assert_int_equal(tree_geometry(store_tree(store))->leaf_kind, FORMAT_LEAF_HASHED);
        assert_int_equal(store_session_create(&second, store, below, &error), 0);
        for (unsigned i = 0; i < 300 * life; i++) {
            snprintf(key, sizeof key, "key %u", i);
            assert_int_equal(store_get(second, key, strlen(key), &value), 0);
        }
        for (unsigned i = 300 * life; i < 300 + 300 * life; i++) {
            snprintf(key, sizeof key, "key %u", i);
            assert_int_equal(store_put(second, key, strlen(key), "v", 1, 0), 0);
        }
        store_session_destroy(second);
        store_close(store);
        assert_int_equal(store_open(&store, below, "before", true), 0);
    }
    store_close(store);
    assert_int_equal(store_drop(below, "before"), 0);
}

/* On a network with a small MTU: an index made there can be opened anywhere, but not the other way round. */
static void life_on_small_packets(void **state)
{
    struct tree_session *below = stores.world.tasks[0].session;
    struct fabric_capabilities *capabilities = &stores.world.computes[0].fabric->capabilities;
    const uint32_t large = capabilities->atomic_write;
    struct store *store;
    assert_true(large >= 4096);
    assert_int_equal(store_open(&store, below, "large", true), 0);
    assert_int_equal(tree_geometry(store_tree(store))->internal_bytes, 4096);
    store_close(store);
    capabilities->atomic_write = 1024;
    assert_int_equal(store_open(&store, below, "large", true), BANYAN_ENOTSUP);
    assert_null(store);
    assert_non_null(strstr(message(), "index large has internal nodes of 4096 bytes"));
    assert_non_null(strstr(message(), "at most 1024"));
    assert_int_equal(store_open(&store, below, "small", true), 0);
    assert_int_equal(tree_geometry(store_tree(store))->internal_bytes, 1024);
    assert_int_equal(tree_geometry(store_tree(store))->key_bytes, 144);
    store_close(store);
    capabilities->atomic_write = large;
    assert_int_equal(store_open(&store, below, "small", false), 0);
    assert_int_equal(tree_geometry(store_tree(store))->key_bytes, 144);
    store_close(store);
    assert_int_equal(store_open(&store, below, "large", false), 0);
    store_close(store);
}

/* This test's accounting does not know the other indexes' nodes. */
static int tear_down_unchecked(void **state)
{
    stores_destroy(&stores);
    return 0;
}

/* ---- the audit ---- */

static void audit_problem(void *context, const char *text)
{
    ++*(unsigned *)context;
}

/* A compute node that comes and goes in the middle of the audit. */
static void audit_disturbed(void *context, const char *what)
{
    struct tree_session *tree = stores.world.tasks[0].session;
    gaddr block;
    if (strcmp(what, "asking the memory nodes") == 0)
        return;
    assert_int_equal(pool_block_allocate(tree_session_pool(tree), GADDR_NULL, 5000, &block), 0);
    pool_block_release(tree_session_pool(tree), block, 5000);
}

/* A block that a compute node took before the audit asked and linked during the walk would seem lost. */
static void audit_of_those_at_work(void **state)
{
    unsigned problems = 0;
    struct audit_options options = {
        .reclaim = true, .problem = audit_problem, .progress = audit_disturbed, .context = &problems};
    struct audit_report report;
    assert_int_equal(put("early", "a value that is too long for the slot", 0), 0);
    assert_int_equal(audit_run(stores.world.tasks[0].session, &options, &report), BANYAN_EBUSY);
    assert_int_equal(problems, 0);
    assert_int_equal(report.blocks_reclaimed, 0);
    expect("early", "a value that is too long for the slot");
}

static void audit_printable(void *context, const char *text)
{
    ++*(unsigned *)context;
    for (; *text; text++)
        assert_in_range((unsigned char)*text, ' ', '~');
}

/* Keys may have any bytes; a message about one has only characters that a terminal and JSON accept. */
static void audit_tells_in_plain_text(void **state)
{
    struct tree *tree = store_tree(stores.world.computes[0].store);
    struct tree_session *below = stores.world.tasks[0].session;
    unsigned problems = 0;
    struct audit_options options = {.problem = audit_printable, .context = &problems};
    struct audit_report report;
    assert_int_equal(tree_upsert(below, tree, "\xff\x1b[2J", 5, "\x09", 1), 0);
    assert_int_equal(audit_run(below, &options, &report), 0);
    assert_int_equal(problems, 1);
    assert_int_equal(tree_delete(below, tree, "\xff\x1b[2J", 5), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(sizes),
        TEST(largest),
        TEST(keys),
        TEST(costs),
        TEST(costs_of_many_puts),
        TEST(values_left),
        TEST(values_left_and_changed),
        TEST(many_puts_of_all_kinds),
        TEST(expiry),
        TEST(expired_and_stored_anew),
        TEST(a_record_in_anothers_place),
        TEST(sweep),
        TEST(modify_kinds),
        TEST(modify_expiry),
        TEST(modify_refusals),
        TEST(modify_append),
        TEST(many),
        TEST(many_limit),
        TEST(ranges),
        TEST(memory_limit),
        TEST(cancelled),
        TEST(space),
        TEST(full),
        TEST(damage),
        TEST(audit_of_those_at_work),
        TEST(audit_tells_in_plain_text),
        cmocka_unit_test_setup_teardown(foreign_slots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(life, set_up, tear_down_unchecked),
        cmocka_unit_test_setup_teardown(an_older_store_stays_as_it_is, set_up, tear_down_unchecked),
        cmocka_unit_test_setup_teardown(life_on_small_packets, set_up, tear_down_unchecked),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
