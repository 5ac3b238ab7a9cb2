/*
 * owned_cache_values.c - The table of cached long values: shards with a lock, a part of the hash table and an
 * array of their values, from which replacement samples.
 */
#include "tree/owned_cache_values.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/epoch.h"
#include "base/random.h"
#include "tree/owned_cache_entries.h"

#define SHARDS_MAX   64u
#define SHARD_BYTES  (UINT64_C(64) << 10) /* a table that has less for each shard has fewer shards */
#define BUCKET_BYTES 512u                 /* of values for each bucket */
#define BUCKETS_MAX  (1u << 24)
#define MALLOC_BYTES 16u /* what the allocator needs for itself */

struct shard {
    struct spinlock lock;
    uint32_t count, capacity;
    struct owned_value **places; /* [count], owned; under the lock */
} __attribute__((aligned(64)));

struct owned_values {
    uint32_t shard_count, bucket_count; /* powers of two, shards at most buckets */
    struct owned_value **buckets;       /* atomic heads; changed under the lock of the shard */
    struct shard *shards;
    struct spinlock lock;
    struct owned_value *stranded;                       /* under the lock: taken out, and not freed yet */
    uint64_t count __attribute__((aligned(64))), bytes; /* of values; relaxed */
};

struct owned_values *owned_values_create(uint64_t bytes)
{
    struct owned_values *values = aligned_alloc(64, sizeof *values);
    if (!values)
        return NULL;
    *values = (struct owned_values){.shard_count = 1, .bucket_count = 64};
    while (values->bucket_count < bytes / BUCKET_BYTES && values->bucket_count < BUCKETS_MAX)
        values->bucket_count *= 2;
    while (values->shard_count < SHARDS_MAX && bytes / values->shard_count > SHARD_BYTES)
        values->shard_count *= 2;
    values->buckets = calloc(values->bucket_count, sizeof *values->buckets);
    values->shards = aligned_alloc(64, values->shard_count * sizeof *values->shards);
    if (!values->buckets || !values->shards) {
        free(values->buckets);
        free(values->shards);
        free(values);
        return NULL;
    }
    memset(values->shards, 0, values->shard_count * sizeof *values->shards);
    return values;
}

void owned_values_destroy(struct owned_values *values)
{
    if (!values)
        return;
    while (values->stranded) {
        struct owned_value *value = values->stranded;
        values->stranded = value->stranded;
        free(value);
    }
    for (uint32_t i = 0; i < values->shard_count; i++) {
        struct shard *shard = &values->shards[i];
        for (uint32_t j = 0; j < shard->count; j++)
            free(shard->places[j]);
        free(shard->places);
    }
    free(values->shards);
    free(values->buckets);
    free(values);
}

uint64_t owned_values_size(uint32_t length)
{
    return ((sizeof(struct owned_value) + length + 15u) & ~(uint64_t)15u) + MALLOC_BYTES;
}

uint64_t owned_values_count(const struct owned_values *values)
{
    return atomic_load_relaxed(&values->count); /* a figure */
}

uint64_t owned_values_bytes(const struct owned_values *values)
{
    return atomic_load_relaxed(&values->bytes); /* a figure */
}

static uint64_t hash_of(const struct tree_reference *reference)
{
    return random_mix(reference->words[0] ^ random_mix(reference->words[1] ^ reference->key));
}

static bool same(const struct tree_reference *a, const struct tree_reference *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->key == b->key;
}

static struct shard *shard_of(const struct owned_values *values, uint64_t hash)
{
    return &values->shards[hash & (values->shard_count - 1)];
}

static struct owned_value **bucket_of(const struct owned_values *values, uint64_t hash)
{
    return &values->buckets[hash & (values->bucket_count - 1)];
}

static struct owned_value *find(const struct owned_values *values, const struct tree_reference *reference)
{
    /* Acquire pairs with the release in publish: a value that is found is whole. */
    struct owned_value *value = atomic_load_acquire(bucket_of(values, hash_of(reference)));
    while (value && !same(&value->reference, reference))
        value = atomic_load_acquire(&value->next);
    return value;
}

bool owned_values_read(struct owned_values *values, const struct tree_reference *reference, uint8_t *to,
                       uint32_t length, uint64_t *note, uint32_t clock, uint32_t random, bool *met)
{
    struct owned_value *value = find(values, reference);
    if (!value || value->length != length)
        return false;
    memcpy(to, value->bytes, length);
    *note = value->note;
    uint8_t before = atomic_load_relaxed(&value->hits); /* a hint: counts may be lost */
    *met = atomic_load_relaxed(&value->met);
    if (!*met)
        atomic_store_relaxed(&value->met, true);
    uint8_t more = owned_hits_more(before, random);
    if (more != before)
        atomic_store_relaxed(&value->hits, more);
    if (atomic_load_relaxed(&value->used) != clock) /* a hint too */
        atomic_store_relaxed(&value->used, clock);
    return true;
}

bool owned_values_has(const struct owned_values *values, const struct tree_reference *reference)
{
    return find(values, reference) != NULL;
}

/* ---- changing: under the shard's lock ---- */

static bool shard_room(struct shard *shard)
{
    if (shard->count < shard->capacity)
        return true;
    uint32_t capacity = shard->capacity ? 2 * shard->capacity : 16;
    struct owned_value **larger = realloc(shard->places, capacity * sizeof *larger);
    if (!larger)
        return false;
    shard->places = larger;
    shard->capacity = capacity;
    return true;
}

static void publish(struct owned_values *values, struct shard *shard, struct owned_value *value)
{
    struct owned_value **head = bucket_of(values, hash_of(&value->reference));
    value->place = shard->count;
    shard->places[shard->count++] = value;
    value->next = *head;
    atomic_store_release(head, value);
    atomic_add_relaxed(&values->count, 1);
    atomic_add_relaxed(&values->bytes, owned_values_size(value->length));
}

static void take_out(struct owned_values *values, struct shard *shard, struct owned_value *value)
{
    struct owned_value **at = bucket_of(values, hash_of(&value->reference));
    while (*at != value)
        at = &(*at)->next;
    atomic_store_release(at, value->next);
    assert(value->place < shard->count && shard->places[value->place] == value);
    shard->places[value->place] = shard->places[--shard->count];
    shard->places[value->place]->place = value->place;
    atomic_add_relaxed(&values->count, UINT64_MAX); /* one less */
    atomic_add_relaxed(&values->bytes, 0 - owned_values_size(value->length));
}

static void value_free(void *object, void *context)
{
    (void)context;
    free(object);
}

/* A value that cannot be remembered for lack of memory is freed with the cache. */
static void retire(struct owned_values *values, struct epoch_slot *slot, struct owned_value *value)
{
    if (epoch_retire(slot, value_free, value, NULL))
        return;
    spinlock_lock(&values->lock);
    value->stranded = values->stranded;
    values->stranded = value;
    spinlock_unlock(&values->lock);
}

bool owned_values_put(struct owned_values *values, const struct tree_reference *reference,
                      const uint8_t *bytes, uint32_t length, uint64_t note, uint32_t clock, uint32_t hits)
{
    struct shard *shard = shard_of(values, hash_of(reference));
    struct owned_value *value = malloc(sizeof *value + length);
    if (!value)
        return false;
    *value = (struct owned_value){.reference = *reference,
                                  .note = note,
                                  .length = length,
                                  .used = clock,
                                  .hits = (uint8_t)(hits < OWNED_HITS_MAX ? hits : OWNED_HITS_MAX)};
    memcpy(value->bytes, bytes, length);
    spinlock_lock(&shard->lock);
    bool fresh = !find(values, reference) && shard_room(shard);
    if (fresh)
        publish(values, shard, value);
    spinlock_unlock(&shard->lock);
    if (!fresh)
        free(value);
    return fresh;
}

uint64_t owned_values_drop(struct owned_values *values, struct epoch_slot *slot,
                           const struct tree_reference *reference, uint32_t *hits)
{
    uint64_t bytes = 0;
    if (!find(values, reference))
        return 0; /* most often: without the lock */
    struct shard *shard = shard_of(values, hash_of(reference));
    spinlock_lock(&shard->lock);
    struct owned_value *value = find(values, reference);
    if (value) {
        *hits = atomic_load_relaxed(&value->hits);
        bytes = owned_values_size(value->length);
        take_out(values, shard, value);
    }
    spinlock_unlock(&shard->lock);
    if (value)
        retire(values, slot, value);
    return bytes;
}

void owned_values_drop_all(struct owned_values *values, struct epoch_slot *slot)
{
    for (uint32_t i = 0; i < values->shard_count; i++) {
        struct shard *shard = &values->shards[i];
        struct owned_value *value;
        do {
            spinlock_lock(&shard->lock);
            value = shard->count ? shard->places[shard->count - 1] : NULL;
            if (value)
                take_out(values, shard, value);
            spinlock_unlock(&shard->lock);
            if (value)
                retire(values, slot, value);
        } while (value);
    }
}

struct owned_value *owned_values_any(struct owned_values *values, uint64_t random)
{
    struct owned_value *value = NULL;
    for (uint32_t i = 0; i < values->shard_count && !value; i++) {
        struct shard *shard = shard_of(values, random + i);
        spinlock_lock(&shard->lock);
        if (shard->count)
            value = shard->places[(random >> 32) % shard->count];
        spinlock_unlock(&shard->lock);
    }
    return value;
}
