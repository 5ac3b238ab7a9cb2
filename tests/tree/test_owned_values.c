/* test_owned_values.c - long values in the cache of owned ranges: what is found under a reference is what was
 * put under it, within the budget, whatever else comes and goes; by one thread, and by several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"
#include "base/random.h"
#include "base/thread.h"
#include "format/value.h"
#include "tree/owned_cache.h"
#include "tree/owned_cache_entries.h"

#define LENGTH_MAX 3000u

struct bench {
    struct format_geometry geometry;
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    struct owned_cache *cache;
};

static struct owned_cache *cache_of(const struct owned_cache_settings *settings, uint8_t content)
{
    struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED,
                                       .key_bytes = 8,
                                       .value_bytes = FORMAT_REFERENCE_BYTES,
                                       .value_variable = true,
                                       .content = content};
    struct error error;
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    return owned_cache_create(settings, &geometry);
}

static void bench_open(struct bench *bench, enum tree_cache_policy policy, uint64_t bytes)
{
    const struct owned_cache_settings settings = {bytes, policy, 1, false};
    bench->domain = epoch_domain_create();
    bench->slot = epoch_slot_acquire(bench->domain);
    bench->cache = cache_of(&settings, FORMAT_CONTENT_STORE);
    assert_non_null(bench->cache);
}

static void bench_close(struct bench *bench)
{
    owned_cache_destroy(bench->cache);
    epoch_slot_release(bench->slot);
    epoch_domain_destroy(bench->domain);
}

/* What a number's reference, length and bytes are follows from it. */
static struct tree_reference reference_of(uint64_t number)
{
    return (struct tree_reference){{number << 5, random_mix(number)}, random_mix(number + 1)};
}

static uint32_t make(uint64_t number, uint8_t *bytes)
{
    uint32_t length = (uint32_t)(random_mix(number) % LENGTH_MAX);
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(number * 31 + i);
    return length;
}

static void offer(struct owned_cache *cache, struct epoch_slot *slot, uint64_t number, uint32_t hits)
{
    uint8_t bytes[LENGTH_MAX];
    const struct tree_reference reference = reference_of(number);
    uint32_t length = make(number, bytes);
    owned_cache_offer_value(cache, slot, &reference, bytes, length, number ^ 99, hits);
}

/* Whether it is there; then it must be right. */
static bool find(struct owned_cache *cache, struct epoch_slot *slot, uint64_t number, uint32_t draw)
{
    uint8_t expected[LENGTH_MAX], bytes[LENGTH_MAX];
    const struct tree_reference reference = reference_of(number);
    uint32_t length = make(number, expected);
    uint64_t note = 0;
    if (!owned_cache_value(cache, slot, &reference, bytes, length, &note, draw))
        return false;
    assert_memory_equal(bytes, expected, length);
    assert_int_equal(note, number ^ 99);
    return true;
}

static void test_only_what_was_put(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t bytes[LENGTH_MAX];
    uint64_t note;
    uint32_t hits;
    bench_open(&bench, TREE_CACHE_BANYAN, 1 << 20);
    assert_false(find(bench.cache, bench.slot, 7, 0));
    offer(bench.cache, bench.slot, 7, 0);
    assert_true(find(bench.cache, bench.slot, 7, 0));
    assert_false(find(bench.cache, bench.slot, 8, 0));
    struct tree_reference other = reference_of(7);
    const uint32_t length = make(7, bytes);
    assert_false(owned_cache_value(bench.cache, bench.slot, &other, bytes, length + 1, &note, 0));
    other.key++; /* the same words under another key */
    assert_false(owned_cache_value(bench.cache, bench.slot, &other, bytes, length, &note, 0));
    other = reference_of(7);
    other.words[1]++;
    assert_false(owned_cache_value(bench.cache, bench.slot, &other, bytes, length, &note, 0));
    other = reference_of(7);
    assert_true(owned_cache_drop_value(bench.cache, bench.slot, &other, &hits));
    assert_false(owned_cache_drop_value(bench.cache, bench.slot, &other, &hits));
    assert_false(find(bench.cache, bench.slot, 7, 0));
    offer(bench.cache, bench.slot, 7, 0);
    owned_cache_stop(bench.cache, bench.slot); /* the index is dropped */
    assert_false(find(bench.cache, bench.slot, 7, 0));
    struct tree_cache_stats stats = {0};
    owned_cache_count(bench.cache, false, &stats);
    assert_int_equal(stats.values.count, 0);
    assert_int_equal(stats.values.bytes, 0);
    bench_close(&bench);
}

/* Nothing is kept where the slots of the index refer to nothing, or where values are not to be cached. */
static void test_where_there_are_none(void **state)
{
    (void)state;
    const struct {
        struct owned_cache_settings settings;
        uint8_t content;
    } without[] = {
        {{1 << 20, TREE_CACHE_DEX, 1, false}, FORMAT_CONTENT_STORE},
        {{1 << 20, TREE_CACHE_DINOMO, 1, true}, FORMAT_CONTENT_STORE},
        {{1 << 20, TREE_CACHE_BANYAN, 1, false}, FORMAT_CONTENT_PLAIN},
    };
    struct epoch_domain *domain = epoch_domain_create();
    struct epoch_slot *slot = epoch_slot_acquire(domain);
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        struct owned_cache *cache = cache_of(&without[i].settings, without[i].content);
        assert_non_null(cache);
        offer(cache, slot, 7, 9);
        assert_false(find(cache, slot, 7, 0));
        owned_cache_destroy(cache);
    }
    epoch_slot_release(slot);
    epoch_domain_destroy(domain);
}

static void put_entry(struct bench *bench, uint64_t number)
{
    uint8_t slot[FORMAT_REFERENCE_BYTES] = {1};
    const struct format_link leaf = {1024 * (1 + number / 16), 1};
    uint64_t stamp = owned_cache_stamp(bench->cache, leaf.address);
    owned_cache_offer_entry(bench->cache, bench->slot, leaf, false, stamp,
                            (struct format_key){(const uint8_t *)&number, 8},
                            (struct format_key){slot, sizeof slot});
}

/* The n-th of the numbers whose values take the place of many entries. */
static uint64_t longer(uint64_t n)
{
    uint64_t number = 0;
    for (uint8_t bytes[LENGTH_MAX]; make(number, bytes) < LENGTH_MAX / 2 || n--; number++)
        ;
    return number;
}

static uint64_t bytes_of(const struct bench *bench, struct tree_cache_stats *stats)
{
    *stats = (struct tree_cache_stats){0};
    owned_cache_count(bench->cache, false, stats);
    return stats->leaves.bytes + stats->entries.bytes + stats->values.bytes;
}

/* Values and entries that come in any order and of any length never take more than the budget. */
static void budget(enum tree_cache_policy policy)
{
    const uint64_t most = 256 << 10;
    struct bench bench;
    struct random random;
    struct tree_cache_stats stats;
    uint64_t found = 0;
    bench_open(&bench, policy, most);
    random_seed(&random, 5);
    for (unsigned i = 0; i < 40000; i++) {
        uint64_t number = random_below(&random, random_chance(&random, 0.5) ? 50 : 20000);
        uint32_t hits = (uint32_t)random_below(&random, 16);
        struct tree_reference reference = reference_of(number);
        if (!random_below(&random, 100))
            owned_cache_drop_value(bench.cache, bench.slot, &reference, &hits);
        else if (find(bench.cache, bench.slot, number, (uint32_t)random_next(&random)))
            found++;
        else
            offer(bench.cache, bench.slot, number, hits);
        if (random_chance(&random, 0.5))
            put_entry(&bench, number);
        assert_true(bytes_of(&bench, &stats) <= most + OWNED_SEGMENT_BYTES);
    }
    bytes_of(&bench, &stats);
    assert_int_equal(stats.values.hits, found);
    assert_true(found > 1000);
    assert_true(stats.values.evictions > 100);
    assert_true(stats.entries.bytes >= OWNED_SEGMENT_BYTES);
    bench_close(&bench);
}

static void test_budget(void **state)
{
    (void)state;
    budget(TREE_CACHE_BANYAN);
    budget(TREE_CACHE_DINOMO);
}

/* Values that are asked for again and again stay, while many come once. */
static void test_hot_values_stay(void **state)
{
    (void)state;
    struct bench bench;
    unsigned there = 0;
    bench_open(&bench, TREE_CACHE_BANYAN, 512 << 10);
    for (uint64_t round = 0; round < 400; round++) {
        for (uint64_t hot = 0; hot < 50; hot++)
            if (!find(bench.cache, bench.slot, hot, (uint32_t)random_mix(round * 50 + hot)))
                offer(bench.cache, bench.slot, hot, 5);
        for (uint64_t i = 0; i < 50; i++)
            offer(bench.cache, bench.slot, 1000 + round * 50 + i, 0);
    }
    for (uint64_t hot = 0; hot < 50; hot++)
        there += find(bench.cache, bench.slot, hot, 0);
    assert_true(there >= 45);
    bench_close(&bench);
}

/* Dinomo's equation 1: once the cache was full, a value comes in only where its key was met more often than
 * all the entries that must go for it. */
static void test_promotion(void **state)
{
    (void)state;
    struct bench bench;
    struct tree_cache_stats stats;
    bench_open(&bench, TREE_CACHE_DINOMO, 256 << 10);
    for (uint64_t i = 0; i < 12000; i++)
        put_entry(&bench, i); /* more than find room */
    for (uint64_t i = 0; i < 200; i++)
        offer(bench.cache, bench.slot, longer(i), 0);
    bytes_of(&bench, &stats);
    const uint64_t before = stats.values.count, entries = stats.entries.bytes;
    for (uint64_t i = 200; i < 400; i++)
        offer(bench.cache, bench.slot, longer(i), 1); /* met twice: that is less */
    bytes_of(&bench, &stats);
    assert_int_equal(stats.values.count, before);
    assert_int_equal(stats.promotions, 0);
    for (uint64_t i = 400; i < 420; i++)
        offer(bench.cache, bench.slot, longer(i), 14);
    bytes_of(&bench, &stats);
    assert_int_equal(stats.values.count, before + 20);
    assert_int_equal(stats.promotions, 20);
    assert_true(stats.entries.bytes < entries);
    /* Misses make them go again, since each brings a shortcut. */
    for (uint64_t i = 10000; i < 40000; i++)
        put_entry(&bench, i);
    bytes_of(&bench, &stats);
    assert_true(stats.demotions > 0);
    bench_close(&bench);
}

static void test_rough_counts(void **state)
{
    (void)state;
    struct random random;
    uint64_t sum = 0;
    random_seed(&random, 3);
    for (unsigned round = 0; round < 200; round++) {
        uint8_t hits = 0;
        for (unsigned i = 0; i < 200; i++)
            hits = owned_hits_more(hits, (uint32_t)random_next(&random));
        sum += owned_hits_count(hits);
    }
    assert_in_range(sum / 200, 100, 400); /* 200, within a step */
    assert_int_equal(owned_hits_more(OWNED_HITS_MAX, 0), OWNED_HITS_MAX);
    for (uint8_t hits = 1; hits <= OWNED_HITS_MAX; hits++)
        assert_true(owned_hits_count(owned_hits_half(hits)) <= owned_hits_count(hits) / 2 + 1);
}

/* ---- threads ---- */

#define THREADS 4u
#define NUMBERS 300u

struct worker {
    struct owned_cache *cache;
    struct epoch_domain *domain;
    uint64_t seed, found;
    unsigned rounds;
};

static void churn(void *context)
{
    struct worker *worker = context;
    struct epoch_slot *slot = epoch_slot_acquire(worker->domain);
    struct random random;
    uint32_t hits;
    random_seed(&random, worker->seed);
    for (unsigned i = 0; i < worker->rounds; i++) {
        uint64_t number = random_below(&random, NUMBERS);
        const struct tree_reference reference = reference_of(number);
        if (!random_below(&random, 16))
            owned_cache_drop_value(worker->cache, slot, &reference, &hits);
        else if (find(worker->cache, slot, number, (uint32_t)random_next(&random)))
            worker->found++;
        else
            offer(worker->cache, slot, number, (uint32_t)random_below(&random, 16));
    }
    epoch_slot_release(slot);
}

/* Half of them find room: what is read is being evicted, dropped and put again. */
static void threads(enum tree_cache_policy policy)
{
    const uint64_t most = (uint64_t)NUMBERS * LENGTH_MAX / 4;
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    const unsigned scale = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 100;
    struct worker workers[THREADS];
    struct thread *handles[THREADS];
    struct bench bench;
    struct error error;
    struct tree_cache_stats stats;
    uint64_t found = 0;
    bench_open(&bench, policy, most);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.cache = bench.cache,
                                     .domain = bench.domain,
                                     .seed = (seed ? strtoull(seed, NULL, 10) : 1) * 100 + i,
                                     .rounds = 100 * scale};
        assert_int_equal(thread_start(&handles[i], churn, &workers[i], &error), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        thread_join(handles[i]);
        found += workers[i].found;
    }
    assert_true(found > 0);
    assert_true(bytes_of(&bench, &stats) <= most + OWNED_SEGMENT_BYTES + THREADS * (LENGTH_MAX + 100));
    assert_int_equal(stats.values.hits, found);
    bench_close(&bench);
}

static void test_threads(void **state)
{
    (void)state;
    threads(TREE_CACHE_BANYAN);
    threads(TREE_CACHE_DINOMO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_was_put),
        cmocka_unit_test(test_where_there_are_none),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_hot_values_stay),
        cmocka_unit_test(test_promotion),
        cmocka_unit_test(test_rough_counts),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
