/* test_owned_cache_threads.c - the cache of owned ranges on threads: who asks for a value after a write of it
 * has ended never gets an older one, from a leaf or from an entry, while everything is evicted and admitted
 * again all the time. */
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
#include "base/task.h"
#include "base/thread.h"
#include "tree/owned_cache.h"
#include "tree/owned_cache_waits.h"

#define LEAVES  64u
#define KEYS    16u /* of a leaf: each a word of its bytes */
#define READERS 2u
#define WRITERS 2u
#define LEAF    1024u

struct shared {
    struct owned_cache *cache;
    struct epoch_domain *domain;
    uint64_t pool[LEAVES][LEAF / 8]; /* what the memory node has */
    uint64_t ended[LEAVES][KEYS];    /* the newest value whose write has ended */
    struct spinlock locks[LEAVES];   /* the leaves' local locks */
    uint32_t running, stale;
};
struct worker {
    struct shared *shared;
    uint64_t seed;
    unsigned rounds;
    uint64_t found;
};

static gaddr address_of(uint32_t leaf)
{
    return (gaddr)LEAF * (leaf + 1);
}

static uint64_t name_of(uint32_t leaf, uint32_t key)
{
    return (uint64_t)leaf * KEYS + key + 1;
}

/* Any key; often the same one, which is written and asked for at once. */
static void draw(struct random *random, uint32_t *leaf, uint32_t *key)
{
    bool hot = !random_below(random, 8);
    *leaf = hot ? 0 : (uint32_t)random_below(random, LEAVES);
    *key = hot ? 0 : (uint32_t)random_below(random, KEYS);
}

static void write_one(struct shared *shared, struct epoch_slot *slot, struct random *random)
{
    uint32_t leaf, key;
    draw(random, &leaf, &key);
    uint64_t name = name_of(leaf, key);
    struct format_key bytes = {(const uint8_t *)&name, 8};
    struct owned_mark mark;
    spinlock_lock(&shared->locks[leaf]);
    uint64_t value = atomic_load_relaxed(&shared->pool[leaf][key]) + 1;
    struct fabric_command write = {.operation = FABRIC_WRITE,
                                   .length = 8,
                                   .address = address_of(leaf) + 8 * key,
                                   .write = {.data = &value}};
    owned_cache_write_begin(shared->cache, slot, address_of(leaf), 8 * key, 8 * key + 8);
    owned_cache_key_begin(shared->cache, slot, bytes, &mark);
    atomic_store_release(&shared->pool[leaf][key], value);
    if (!random_below(random, 64))
        task_yield();                     /* as a write to a pool takes its time: others meet it */
    bool lost = !random_below(random, 8); /* its outcome is not known */
    struct format_key now = {(const uint8_t *)&value, 8};
    owned_cache_write_end(shared->cache, slot, address_of(leaf), lost ? BANYAN_EUNKNOWN : 0, &write, 1);
    owned_cache_key_end(shared->cache, slot, bytes, lost ? NULL : &now, NULL, &mark);
    atomic_store_release(&shared->ended[leaf][key], value);
    spinlock_unlock(&shared->locks[leaf]);
}

static uint64_t read_pool(struct shared *shared, struct epoch_slot *slot, uint32_t leaf, uint32_t key,
                          bool whole)
{
    uint64_t image[LEAF / 8], name = name_of(leaf, key);
    uint64_t stamp = owned_cache_stamp(shared->cache, address_of(leaf));
    for (uint32_t i = 0; i < LEAF / 8; i++)
        image[i] = atomic_load_acquire(&shared->pool[leaf][i]);
    struct format_key bytes = {(const uint8_t *)&name, 8}, value = {(const uint8_t *)&image[key], 8};
    if (whole)
        owned_cache_offer_leaf(shared->cache, slot, address_of(leaf), (const uint8_t *)image, stamp);
    owned_cache_offer_entry(shared->cache, slot, (struct format_link){address_of(leaf), 1}, false, stamp,
                            bytes, value);
    return image[key];
}

static void read_one(struct shared *shared, struct epoch_slot *slot, struct random *random, uint64_t *found)
{
    uint32_t leaf, key;
    draw(random, &leaf, &key);
    uint64_t name = name_of(leaf, key), value = 0, least = atomic_load_acquire(&shared->ended[leaf][key]);
    struct format_link link;
    uint8_t bytes[FORMAT_VALUE_MAX];
    uint32_t length, hits;
    const struct owned_piece piece = {8 * key, 8, &value};
    struct owned_busy busy;
    if (!random_below(random, 4) &&
        owned_cache_await(shared->cache, (struct format_key){(const uint8_t *)&name, 8}, bytes, &length)) {
        memcpy(&value, bytes, 8);
        ++*found;
    } else if (random_below(random, 2) &&
               owned_cache_entry(shared->cache, slot, (struct format_key){(const uint8_t *)&name, 8}, bytes,
                                 &length, &link, 0, &hits) == OWNED_CACHE_VALUE) {
        memcpy(&value, bytes, 8);
        ++*found;
    } else if (owned_cache_leaf(shared->cache, slot, address_of(leaf), &piece, 1, &busy) ==
               OWNED_FRAME_COPIED) {
        ++*found;
    } else {
        value = read_pool(shared, slot, leaf, key, random_below(random, 2));
    }
    if (value < least)
        atomic_add_relaxed(&shared->stale, 1);
}

static void drop_some(struct shared *shared, struct epoch_slot *slot, struct random *random)
{
    uint64_t name = name_of((uint32_t)random_below(random, LEAVES), 0);
    struct format_key lower = {(const uint8_t *)&name, 8};
    if (!random_below(random, 64))
        owned_cache_drop_range(shared->cache, slot, lower, NULL);
    else
        owned_cache_drop_leaf(shared->cache, slot, address_of((uint32_t)random_below(random, LEAVES)));
}

static void reader(void *context)
{
    struct worker *worker = context;
    struct random random;
    struct epoch_slot *slot = epoch_slot_acquire(worker->shared->domain);
    random_seed(&random, worker->seed);
    for (unsigned i = 0; i < worker->rounds; i++) {
        read_one(worker->shared, slot, &random, &worker->found);
        if (!random_below(&random, 256))
            drop_some(worker->shared, slot, &random);
    }
    epoch_slot_release(slot);
}

static void writer(void *context)
{
    struct worker *worker = context;
    struct random random;
    struct epoch_slot *slot = epoch_slot_acquire(worker->shared->domain);
    random_seed(&random, worker->seed);
    for (unsigned i = 0; i < worker->rounds; i++)
        write_one(worker->shared, slot, &random);
    epoch_slot_release(slot);
}

/* Frames here have no headers: dropping a range drops all leaves. */
static void run(enum tree_cache_policy policy, uint64_t bytes)
{
    struct format_geometry geometry = {.leaf_bytes = LEAF, .key_bytes = 8, .value_bytes = 8};
    struct error error;
    struct shared *shared = calloc(1, sizeof *shared);
    struct worker workers[READERS + WRITERS];
    struct thread *threads[READERS + WRITERS];
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    unsigned scale = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 100;
    uint64_t found = 0;
    assert_non_null(shared);
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    const struct owned_cache_settings settings = {bytes, policy, 0.5, false};
    shared->cache = owned_cache_create(&settings, &geometry);
    shared->domain = epoch_domain_create();
    assert_non_null(shared->cache);
    for (unsigned i = 0; i < READERS + WRITERS; i++) {
        workers[i] = (struct worker){shared, (seed ? strtoull(seed, NULL, 10) : 1) * 100 + i, 200 * scale, 0};
        assert_int_equal(thread_start(&threads[i], i < READERS ? reader : writer, &workers[i], &error), 0);
    }
    for (unsigned i = 0; i < READERS + WRITERS; i++) {
        thread_join(threads[i]);
        found += workers[i].found;
    }
    assert_int_equal(shared->stale, 0);
    assert_true(found > 0);
    owned_cache_destroy(shared->cache);
    epoch_domain_destroy(shared->domain);
    free(shared);
}

struct asker {
    struct owned_cache *cache;
    struct format_key key;
    uint64_t value;
    uint32_t length;
    bool asked, told; /* `asked` is atomic */
};

static void ask(void *context)
{
    struct asker *asker = context;
    uint8_t bytes[FORMAT_VALUE_MAX];
    atomic_store_release(&asker->asked, true);
    asker->told = owned_cache_await(asker->cache, asker->key, bytes, &asker->length);
    if (asker->told)
        memcpy(&asker->value, bytes, 8);
}

/* A lookup of a key that is being written is told what the write leaves, if that is known; no lookup waits
 * for a key that is not being written. */
static void test_awaited(void **state)
{
    struct format_geometry geometry = {.leaf_bytes = LEAF, .key_bytes = 8, .value_bytes = 8};
    const struct owned_cache_settings settings = {1 << 16, TREE_CACHE_DEX, 0.5, false};
    struct error error;
    uint64_t name = 7, other = 8, value = 42;
    const struct format_key key = {(const uint8_t *)&name, 8}, now = {(const uint8_t *)&value, 8};
    uint32_t all = 0;
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    struct owned_cache *cache = owned_cache_create(&settings, &geometry);
    struct epoch_domain *domain = epoch_domain_create();
    struct epoch_slot *slot = epoch_slot_acquire(domain);
    for (unsigned round = 0; round < 20; round++) {
        struct asker askers[3];
        struct thread *threads[3];
        struct owned_mark mark;
        bool lost = round % 2;
        owned_cache_write_begin(cache, slot, address_of(1), 8, 16);
        owned_cache_key_begin(cache, slot, key, &mark);
        for (unsigned i = 0; i < 3; i++) {
            askers[i] = (struct asker){.cache = cache, .key = {(const uint8_t *)(i ? &name : &other), 8}};
            assert_int_equal(thread_start(&threads[i], ask, &askers[i], &error), 0);
        }
        thread_join(threads[0]); /* its key is not written: it returns at once */
        for (unsigned i = 1; i < 3; i++)
            while (!atomic_load_acquire(&askers[i].asked))
                task_sleep(1000);
        task_sleep(20000000); /* they wait by now, all but always */
        owned_cache_write_end(cache, slot, address_of(1), lost ? BANYAN_EUNKNOWN : 0, NULL, 0);
        owned_cache_key_end(cache, slot, key, lost ? NULL : &now, NULL, &mark);
        uint32_t told = 0;
        for (unsigned i = 1; i < 3; i++) {
            thread_join(threads[i]);
            told += askers[i].told;
            if (askers[i].told)
                assert_int_equal(askers[i].value, value);
        }
        assert_false(askers[0].told);
        assert_true(!lost || !told);
        all += told;
    }
    assert_true(all > 0);
    epoch_slot_release(slot);
    owned_cache_destroy(cache);
    epoch_domain_destroy(domain);
}

static void test_never_stale(void **state)
{
    (void)state;
    run(TREE_CACHE_BANYAN, 1 << 20);
    run(TREE_CACHE_BANYAN, 24 * LEAF);
    run(TREE_CACHE_DEX, 16 * LEAF);
    run(TREE_CACHE_DINOMO, 16 * LEAF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_never_stale), cmocka_unit_test(test_awaited)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
