/* test_owned_cache.c - the cache of owned ranges by itself: what is read, written, admitted and dropped, by
 * one thread and by several; and that what its policies save does not fall behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"
#include "base/random.h"
#include "base/thread.h"
#include "format/leaf.h"
#include "trace.h"
#include "tree/owned_cache.h"
#include "tree/owned_cache_cooling.h"
#include "tree/owned_cache_entries.h"

#define LEAF 1024u

struct bench {
    struct format_geometry geometry;
    struct format_layout layout;
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    struct owned_cache *cache;
    uint8_t image[LEAF];
};

static void bench_open(struct bench *bench, const struct format_geometry *geometry,
                       enum tree_cache_policy policy, uint64_t bytes)
{
    struct error error;
    memset(bench, 0, sizeof *bench);
    bench->geometry = *geometry;
    assert_int_equal(format_geometry_complete(&bench->geometry, 4096, &error), 0);
    assert_int_equal(format_layout_init(&bench->layout, &bench->geometry, &error), 0);
    bench->domain = epoch_domain_create();
    bench->slot = epoch_slot_acquire(bench->domain);
    const struct owned_cache_settings settings = {bytes, policy, 1, false};
    bench->cache = owned_cache_create(&settings, &bench->geometry);
    assert_non_null(bench->cache);
}

static void bench_close(struct bench *bench)
{
    owned_cache_destroy(bench->cache);
    epoch_slot_release(bench->slot);
    epoch_domain_destroy(bench->domain);
    format_layout_free(&bench->layout);
}

static const struct format_geometry small = {.leaf_bytes = LEAF, .key_bytes = 8, .value_bytes = 8};

static struct format_key of(const uint64_t *number)
{
    return (struct format_key){(const uint8_t *)number, 8};
}

static void admit(struct bench *bench, gaddr leaf, uint8_t byte)
{
    memset(bench->image, byte, LEAF);
    owned_cache_offer_leaf(bench->cache, bench->slot, leaf, bench->image,
                           owned_cache_stamp(bench->cache, leaf));
}

static enum owned_frame_found look(struct bench *bench, gaddr leaf, uint32_t offset, uint32_t length,
                                   uint8_t *bytes)
{
    const struct owned_piece piece = {offset, length, bytes};
    struct owned_busy busy;
    return owned_cache_leaf(bench->cache, bench->slot, leaf, &piece, 1, &busy);
}

/* ---- leaves ---- */

static void test_leaf_reads_and_writes(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t bytes[LEAF], news[16];
    bench_open(&bench, &small, TREE_CACHE_BANYAN, 1 << 20);
    assert_int_equal(look(&bench, 4096, 0, 8, bytes), OWNED_FRAME_NONE);
    admit(&bench, 4096, 0x11);
    assert_int_equal(look(&bench, 4096, 100, 200, bytes), OWNED_FRAME_COPIED);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(bytes[i], 0x11);
    /* While bytes 200 to 216 are written, who wants one of them is told so; others are not. */
    memset(news, 0x22, sizeof news);
    const struct fabric_command writes[2] = {
        {.operation = FABRIC_WRITE, .length = 16, .address = 4096 + 200, .write = {.data = news}},
        {.operation = FABRIC_WRITE, .length = 16, .address = 8192 + 200, .write = {.data = news}}};
    owned_cache_write_begin(bench.cache, bench.slot, 4096, 200, 216);
    assert_int_equal(look(&bench, 4096, 190, 11, bytes), OWNED_FRAME_BUSY);
    assert_int_equal(look(&bench, 4096, 215, 1, bytes), OWNED_FRAME_BUSY);
    assert_int_equal(look(&bench, 4096, 190, 10, bytes), OWNED_FRAME_COPIED);
    assert_int_equal(look(&bench, 4096, 216, 10, bytes), OWNED_FRAME_COPIED);
    owned_cache_write_end(bench.cache, bench.slot, 4096, 0, writes, 2);
    assert_int_equal(look(&bench, 4096, 199, 18, bytes), OWNED_FRAME_COPIED);
    assert_int_equal(bytes[0], 0x11);
    assert_memory_equal(bytes + 1, news, 16);
    assert_int_equal(bytes[17], 0x11);
    /* A write with an unknown outcome: the frame goes. */
    owned_cache_write_begin(bench.cache, bench.slot, 4096, 0, LEAF);
    owned_cache_write_end(bench.cache, bench.slot, 4096, BANYAN_EUNKNOWN, writes, 1);
    assert_int_equal(look(&bench, 4096, 0, 8, bytes), OWNED_FRAME_NONE);
    admit(&bench, 4096, 0x33);
    owned_cache_drop_leaf(bench.cache, bench.slot, 4096);
    assert_int_equal(look(&bench, 4096, 0, 8, bytes), OWNED_FRAME_NONE);
    bench_close(&bench);
}

/* What was READ before a write, or while it was under way, comes too late. */
static void test_late_admissions(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t bytes[8], value[FORMAT_VALUE_MAX];
    uint32_t length, hits;
    uint64_t key = 7, old = 1;
    struct format_key was = of(&old);
    struct format_link leaf = {4096, 9};
    bench_open(&bench, &small, TREE_CACHE_BANYAN, 1 << 20);
    uint64_t before = owned_cache_stamp(bench.cache, 4096);
    owned_cache_write_begin(bench.cache, bench.slot, 4096, 0, 64);
    owned_cache_key_begin(bench.cache, bench.slot, of(&key), NULL);
    uint64_t during = owned_cache_stamp(bench.cache, 4096);
    uint64_t stamps[4] = {before, during, before, during};
    for (unsigned i = 0; i < 4; i++) {
        if (i == 2) {
            owned_cache_key_end(bench.cache, bench.slot, of(&key), NULL, NULL, NULL);
            owned_cache_write_end(bench.cache, bench.slot, 4096, 0, NULL, 0);
        }
        owned_cache_offer_leaf(bench.cache, bench.slot, 4096, bench.image, stamps[i]);
        owned_cache_offer_entry(bench.cache, bench.slot, leaf, false, stamps[i], of(&key), was);
        assert_int_equal(look(&bench, 4096, 0, 8, bytes), OWNED_FRAME_NONE);
        assert_int_equal(
            owned_cache_entry(bench.cache, bench.slot, of(&key), value, &length, &leaf, 0, &hits),
            OWNED_CACHE_NONE);
    }
    uint64_t after = owned_cache_stamp(bench.cache, 4096);
    owned_cache_offer_leaf(bench.cache, bench.slot, 4096, bench.image, after);
    owned_cache_offer_entry(bench.cache, bench.slot, leaf, false, after, of(&key), was);
    assert_int_equal(look(&bench, 4096, 0, 8, bytes), OWNED_FRAME_COPIED);
    assert_int_equal(owned_cache_entry(bench.cache, bench.slot, of(&key), value, &length, &leaf, 0, &hits),
                     OWNED_CACHE_VALUE);
    bench_close(&bench);
}

/* ---- entries ---- */

static enum owned_cache_found find(struct bench *bench, struct format_key key, uint64_t *value)
{
    uint8_t bytes[FORMAT_VALUE_MAX];
    uint32_t length, hits;
    struct format_link leaf;
    enum owned_cache_found found =
        owned_cache_entry(bench->cache, bench->slot, key, bytes, &length, &leaf, 0, &hits);
    if (found == OWNED_CACHE_VALUE)
        memcpy(value, bytes, sizeof *value);
    return found;
}

static void test_entry_life(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t key = 7, value = 70, found;
    struct format_key bytes = of(&value);
    struct format_link leaf = {4096, 9};
    bench_open(&bench, &small, TREE_CACHE_BANYAN, 1 << 20);
    owned_cache_offer_entry(bench.cache, bench.slot, leaf, false, owned_cache_stamp(bench.cache, 4096),
                            of(&key), bytes);
    assert_int_equal(find(&bench, of(&key), &found), OWNED_CACHE_VALUE);
    assert_int_equal(found, 70);
    for (unsigned round = 0; round < 3; round++) {
        owned_cache_write_begin(bench.cache, bench.slot, 4096, 0, 64);
        owned_cache_key_begin(bench.cache, bench.slot, of(&key), NULL);
        assert_int_equal(find(&bench, of(&key), &found), round < 2 ? OWNED_CACHE_BUSY : OWNED_CACHE_NONE);
        value = 71;
        owned_cache_key_end(bench.cache, bench.slot, of(&key), round ? NULL : &bytes, NULL, NULL);
        assert_int_equal(find(&bench, of(&key), &found), round ? OWNED_CACHE_NONE : OWNED_CACHE_VALUE);
        assert_int_equal(found, round ? 71 : 71);
        owned_cache_write_end(bench.cache, bench.slot, 4096, 0, NULL, 0);
    }
    bench_close(&bench);
}

#define NAMES 3000u

/* Keys and values of all lengths against an array: what is found is right, whatever is evicted, grown, shrunk
 * or dropped meanwhile; and some of it is found. */
static void run_reference(bool varies, uint32_t rounds)
{
    static uint8_t values[NAMES][FORMAT_VALUE_MAX], lengths[NAMES];
    struct format_geometry geometry = {.leaf_bytes = 4096,
                                       .key_kind = varies ? FORMAT_KEY_VARIABLE : FORMAT_KEY_FIXED,
                                       .key_bytes = varies ? 200 : 16,
                                       .value_bytes = varies ? 200 : 24,
                                       .value_variable = varies};
    struct bench bench;
    struct random random;
    uint64_t hits = 0;
    bench_open(&bench, &geometry, TREE_CACHE_BANYAN, 1 << 20);
    struct owned_entries *entries =
        owned_entries_create(&bench.layout, OWNED_LINK_MAX, 40 * OWNED_SEGMENT_BYTES);
    assert_non_null(entries);
    random_seed(&random, 5);
    memset(lengths, 0, sizeof lengths);
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t name = (uint32_t)random_below(&random, NAMES), dice = (uint32_t)random_below(&random, 1000);
        uint8_t bytes[200];
        uint64_t lost;
        struct owned_entry entry;
        memset(bytes, (int)(name % 251), sizeof bytes);
        memcpy(bytes, &name, sizeof name);
        struct format_key key = {bytes, varies ? 4 + name % 197 : 16};
        struct format_key value = {values[name], lengths[name]};
        epoch_enter(bench.slot);
        enum owned_entry_found found = owned_entries_find(entries, key, &entry);
        if (found != OWNED_ENTRY_NONE) {
            assert_int_equal(found, OWNED_ENTRY_VALUE);
            assert_int_equal(entry.length, value.length);
            assert_memory_equal(entry.value, value.bytes, value.length);
            hits++;
        }
        if (dice < 300) {
            lengths[name] = (uint8_t)(varies ? random_below(&random, 200) : 24);
            memset(values[name], (int)random_below(&random, 256), lengths[name]);
            value.length = lengths[name];
            owned_entries_busy(entries, key);
            assert_int_equal(owned_entries_find(entries, key, &entry),
                             found == OWNED_ENTRY_NONE ? OWNED_ENTRY_NONE : OWNED_ENTRY_BUSY);
            owned_entries_settle(entries, key, dice < 20 ? NULL : &value, NULL);
            if (dice < 20)
                assert_int_equal(owned_entries_find(entries, key, &entry), OWNED_ENTRY_NONE);
        } else if (dice < 900 && (found != OWNED_ENTRY_NONE || lengths[name] || varies)) {
            struct owned_put_result result;
            const struct owned_put put = {.key = key, .value = value};
            owned_entries_put(entries, &put, &result);
            if (result.done)
                assert_int_equal(owned_entries_find(entries, key, &entry),
                                 key.length + value.length + 2 <= OWNED_SET_BYTES - 64 ? OWNED_ENTRY_VALUE
                                                                                       : OWNED_ENTRY_NONE);
        } else if (dice < 905) {
            owned_entries_grow(entries);
        } else if (dice < 908) {
            owned_entries_shrink(entries, bench.slot, &lost);
        } else if (dice == 999) {
            uint64_t had = owned_entries_count(entries);
            struct format_key upper = {(const uint8_t *)"\x80", 1};
            uint64_t gone = owned_entries_drop_range(entries, (struct format_key){NULL, 0}, &upper);
            assert_int_equal(owned_entries_count(entries), had - gone);
            if (key.bytes[0] < 0x80)
                assert_int_equal(owned_entries_find(entries, key, &entry), OWNED_ENTRY_NONE);
        }
        epoch_leave(bench.slot);
    }
    assert_true(hits > rounds / 20);
    owned_entries_destroy(entries);
    bench_close(&bench);
}

static void test_entries_reference(void **state)
{
    (void)state;
    run_reference(false, 60000);
    run_reference(true, 60000);
}

#define SINGLES 100u

static uint64_t names[SINGLES + 1];

/* Leaf i holds key i alone, and both are cached. */
static void fill_singles(struct bench *bench)
{
    for (uint64_t i = 0; i <= SINGLES; i++)
        names[i] = __builtin_bswap64(i);
    for (unsigned i = 0; i < SINGLES; i++) {
        struct format_header header = {.state = FORMAT_NODE_LIVE,
                                       .tag = i + 1,
                                       .index = 1,
                                       .has_upper = true,
                                       .sibling = {LEAF * (i + 2), i + 2}};
        header.lower = of(&names[i]);
        header.upper = of(&names[i + 1]);
        format_leaf_format(&bench->layout, &header, bench->image);
        struct format_link leaf = {LEAF * (i + 1), i + 1};
        uint64_t stamp = owned_cache_stamp(bench->cache, leaf.address);
        owned_cache_offer_leaf(bench->cache, bench->slot, leaf.address, bench->image, stamp);
        owned_cache_offer_entry(bench->cache, bench->slot, leaf, false, stamp, of(&names[i]), of(&names[i]));
    }
}

static bool is_cached(struct bench *bench, unsigned single)
{
    uint8_t bytes[8];
    uint64_t found;
    bool leaf = look(bench, LEAF * (single + 1), 0, 8, bytes) == OWNED_FRAME_COPIED;
    bool entry = find(bench, of(&names[single]), &found) == OWNED_CACHE_VALUE;
    assert_int_equal(leaf, entry);
    return leaf;
}

/* Ranges that are lost: leaves that reach into them, and their entries. */
static void test_drop_range(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t bytes[8];
    uint64_t found;
    bench_open(&bench, &small, TREE_CACHE_BANYAN, 4 << 20);
    fill_singles(&bench);
    struct format_key upper = of(&names[60]);
    owned_cache_drop_range(bench.cache, bench.slot, of(&names[30]), &upper);
    for (unsigned i = 0; i < 100; i++) {
        bool lost = i >= 30 && i < 60;
        assert_int_equal(look(&bench, LEAF * (i + 1), 0, 8, bytes),
                         lost ? OWNED_FRAME_NONE : OWNED_FRAME_COPIED);
        assert_int_equal(find(&bench, of(&names[i]), &found), lost ? OWNED_CACHE_NONE : OWNED_CACHE_VALUE);
    }
    owned_cache_drop_range(bench.cache, bench.slot, of(&names[90]), NULL);
    assert_int_equal(look(&bench, LEAF * 90, 0, 8, bytes), OWNED_FRAME_COPIED);
    assert_int_equal(look(&bench, LEAF * 91, 0, 8, bytes), OWNED_FRAME_NONE);
    assert_int_equal(find(&bench, of(&names[99]), &found), OWNED_CACHE_NONE);
    bench_close(&bench);
}

/* Several ranges are noted as lost, and swept piece by piece; one that comes back is emptied at once. */
static void test_lost_ranges(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t evicted, found;
    unsigned pieces = 0;
    bench_open(&bench, &small, TREE_CACHE_BANYAN, 4 << 20);
    fill_singles(&bench);
    assert_false(owned_cache_sweep(bench.cache, bench.slot));
    struct format_key bounds[] = {of(&names[20]), of(&names[30]), of(&names[40]), of(&names[50])};
    owned_cache_lose(bench.cache, bench.slot, bounds[0], &bounds[1]);
    owned_cache_lose(bench.cache, bench.slot, bounds[2], &bounds[3]);
    for (unsigned i = 0; i < SINGLES; i++)
        assert_true(is_cached(&bench, i)); /* noting costs nothing */
    struct format_key inside[] = {of(&names[25]), of(&names[27])},
                      beside[] = {of(&names[30]), of(&names[40])};
    owned_cache_regain(bench.cache, bench.slot, beside[0], &beside[1]);
    owned_cache_regain(bench.cache, bench.slot, inside[0], &inside[1]);
    for (unsigned i = 0; i < SINGLES; i++)
        assert_int_equal(is_cached(&bench, i), i < 25 || i >= 27);
    assert_true(owned_cache_sweep(bench.cache, bench.slot));
    /* Lost after the sweep has begun: the next one's. */
    owned_cache_lose(bench.cache, bench.slot, of(&names[90]), NULL);
    while (find(&bench, of(&names[49]), &found) == OWNED_CACHE_VALUE) { /* entries go last */
        assert_true(owned_cache_sweep(bench.cache, bench.slot));
        pieces++;
    }
    for (unsigned i = 0; i < 90; i++)
        assert_int_equal(is_cached(&bench, i), !((i >= 20 && i < 30) || (i >= 40 && i < 50)));
    while (owned_cache_sweep(bench.cache, bench.slot))
        pieces++;
    assert_true(pieces > 2);
    for (unsigned i = 0; i < SINGLES; i++)
        assert_int_equal(is_cached(&bench, i), i < 90 && !((i >= 20 && i < 30) || (i >= 40 && i < 50)));
    fill_singles(&bench); /* what comes in afterwards stays */
    assert_false(owned_cache_sweep(bench.cache, bench.slot));
    assert_true(is_cached(&bench, 22));
    /* One that is under way, and what it noted, goes with the cache. */
    owned_cache_lose(bench.cache, bench.slot, bounds[0], NULL);
    assert_true(owned_cache_sweep(bench.cache, bench.slot));
    struct owned_entries *entries = owned_entries_create(&bench.layout, OWNED_LINK_MAX, 1 << 20);
    assert_true(owned_entries_grow(entries));
    owned_entries_hold(entries);
    assert_false(owned_entries_grow(entries));
    assert_false(owned_entries_shrink(entries, bench.slot, &evicted));
    owned_entries_release(entries);
    assert_true(owned_entries_shrink(entries, bench.slot, &evicted));
    owned_entries_destroy(entries);
    bench_close(&bench);
}

/* ---- the cooling map ---- */

static void test_cooling(void **state)
{
    (void)state;
    struct owned_cooling *cooling = owned_cooling_create(1); /* one bucket */
    gaddr node;
    assert_int_equal(owned_cooling_capacity(cooling), OWNED_COOLING_SLOTS);
    for (gaddr i = 1; i <= 6; i++)
        assert_false(owned_cooling_put(cooling, i, &node));
    assert_true(owned_cooling_remove(cooling, 2));
    assert_false(owned_cooling_remove(cooling, 2));
    assert_false(owned_cooling_put(cooling, 7, &node));
    assert_true(owned_cooling_put(cooling, 8, &node)); /* full: the oldest is pushed out */
    assert_int_equal(node, 1);
    const gaddr order[] = {3, 4, 5, 6, 7, 8};
    for (unsigned i = 0; i < 6; i++) {
        assert_true(owned_cooling_take(cooling, i * 77, &node));
        assert_int_equal(node, order[i]);
    }
    assert_false(owned_cooling_take(cooling, 0, &node));
    assert_int_equal(owned_cooling_count(cooling), 0);
    owned_cooling_destroy(cooling);
}

/* A leaf that is used again and again stays, whatever comes by: its second chances. */
static void test_second_chance(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t bytes[8];
    bench_open(&bench, &small, TREE_CACHE_DEX, 200 * (LEAF + 64));
    unsigned lost = 0;
    for (unsigned i = 2; i < 20000; i++) {
        if (look(&bench, LEAF, 0, 8, bytes) == OWNED_FRAME_NONE) {
            lost++;
            admit(&bench, LEAF, 1);
        }
        admit(&bench, (gaddr)LEAF * i, 2);
    }
    struct tree_cache_stats stats = {0};
    owned_cache_count(bench.cache, true, &stats);
    assert_true(lost <= 2);
    assert_true(stats.leaves.evictions > 19000);
    assert_true(stats.leaves.bytes <= 200 * (LEAF + 64));
    assert_true(stats.leaves.count > 150);
    bench_close(&bench);
}

/* ---- policies ---- */

/* Dinomo: with room for all, values; with less, shortcuts too, which name the right leaf (trace.c looks). */
static void test_dinomo_shortcuts(void **state)
{
    (void)state;
    struct trace trace = {.policy = TREE_CACHE_DINOMO,
                          .keys = 100000,
                          .theta = 0.99,
                          .value_bytes = 128,
                          .inner_per_leaf = 0,
                          .warm = 2,
                          .measured = 1};
    struct trace_result roomy, tight;
    trace.bytes_per_key = 100;
    trace_run(&trace, &roomy);
    /* A set that is full when a key comes makes it a shortcut, and the table grow: its next hit finds room.
     */
    assert_true(roomy.stats.shortcut_hits < roomy.stats.entries.hits / 50);
    trace.bytes_per_key = 4;
    trace_run(&trace, &tight);
    assert_true(tight.stats.shortcut_hits > 1000);
    assert_true(tight.stats.promotions > 100);
    assert_true(tight.stats.demotions > 100);
    assert_true(tight.reads > roomy.reads);
}

struct expectation {
    double theta;
    unsigned update, insert, scan;
    double dex, banyan; /* at most, reads for each operation */
};

/* As measured, and a tenth more. The cache's share of the data is DEX's (256 MiB of 200 million keys, four
 * owners). Nowhere is `banyan` behind `dex` by more than a thirtieth. */
static const struct expectation expectations[] = {
    {0.99, 0, 0, 0, 0.47, 0.12},  {0.99, 5, 0, 0, 0.47, 0.165}, {0.99, 50, 0, 0, 0.47, 0.41},
    {0.99, 0, 50, 0, 0.47, 0.41}, {0.99, 0, 5, 95, 2.05, 2.05}, {0, 0, 0, 0, 0.95, 0.6},
    {0, 5, 0, 0, 0.95, 0.64},     {0, 50, 0, 0, 0.95, 0.85},    {0, 0, 50, 0, 0.95, 0.85},
    {0, 0, 5, 95, 3.4, 3.4},
};

static void test_policies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        const struct expectation *expected = &expectations[i];
        struct trace trace = {.keys = 600000,
                              .theta = expected->theta,
                              .bytes_per_key = 1.28,
                              .inner_per_leaf = 40,
                              .value_bytes = 8,
                              .update = expected->update,
                              .insert = expected->insert,
                              .scan = expected->scan,
                              .warm = 2,
                              .measured = 1,
                              .admission = 0.1};
        struct trace_result dex, banyan;
        trace.policy = TREE_CACHE_DEX;
        trace_run(&trace, &dex);
        trace.policy = TREE_CACHE_BANYAN;
        trace_run(&trace, &banyan);
        printf("theta %.2f update %u insert %u scan %u: dex %.3f, banyan %.3f reads per operation\n",
               trace.theta, trace.update, trace.insert, trace.scan, dex.reads, banyan.reads);
        assert_true(dex.reads <= expected->dex);
        assert_true(banyan.reads <= expected->banyan);
        assert_true(banyan.reads <= 1.04 * dex.reads);
        /* One object more than fits, for a thread. */
        assert_true(dex.used_most <= dex.budget + 2 * LEAF);
        assert_true(banyan.used_most <= banyan.budget + OWNED_SEGMENT_BYTES);
        assert_true(banyan.used_most > banyan.budget * 9 / 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaf_reads_and_writes),
        cmocka_unit_test(test_late_admissions),
        cmocka_unit_test(test_entry_life),
        cmocka_unit_test(test_entries_reference),
        cmocka_unit_test(test_drop_range),
        cmocka_unit_test(test_lost_ranges),
        cmocka_unit_test(test_cooling),
        cmocka_unit_test(test_second_chance),
        cmocka_unit_test(test_dinomo_shortcuts),
        cmocka_unit_test(test_policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
