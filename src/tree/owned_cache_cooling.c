/* owned_cache_cooling.c - see owned_cache_cooling.h. */
#include "tree/owned_cache_cooling.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/random.h"

struct bucket {
    struct spinlock lock;
    uint32_t count;
    gaddr nodes[OWNED_COOLING_SLOTS]; /* [count], the first is the oldest */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct bucket) == 64, "one cache line");

struct owned_cooling {
    struct bucket *buckets; /* [bucket_count], owned */
    uint64_t bucket_count;
    uint64_t count __attribute__((aligned(64))); /* of nodes; relaxed: a figure */
};

struct owned_cooling *owned_cooling_create(uint64_t nodes)
{
    struct owned_cooling *cooling = aligned_alloc(64, sizeof *cooling);
    if (!cooling)
        return NULL;
    *cooling = (struct owned_cooling){.bucket_count = nodes / OWNED_COOLING_SLOTS + 1};
    cooling->buckets = aligned_alloc(64, cooling->bucket_count * sizeof *cooling->buckets);
    if (!cooling->buckets) {
        free(cooling);
        return NULL;
    }
    memset(cooling->buckets, 0, cooling->bucket_count * sizeof *cooling->buckets);
    return cooling;
}

void owned_cooling_destroy(struct owned_cooling *cooling)
{
    if (cooling)
        free(cooling->buckets);
    free(cooling);
}

static struct bucket *bucket_of(struct owned_cooling *cooling, gaddr node)
{
    return &cooling->buckets[random_mix(node) % cooling->bucket_count];
}

/* Under the bucket's lock. */
static void take_out(struct owned_cooling *cooling, struct bucket *bucket, uint32_t at)
{
    bucket->count--;
    memmove(bucket->nodes + at, bucket->nodes + at + 1, (bucket->count - at) * sizeof *bucket->nodes);
    atomic_add_relaxed(&cooling->count, UINT64_MAX); /* one less */
}

bool owned_cooling_put(struct owned_cooling *cooling, gaddr node, gaddr *pushed)
{
    struct bucket *bucket = bucket_of(cooling, node);
    spinlock_lock(&bucket->lock);
    bool full = bucket->count == OWNED_COOLING_SLOTS;
    if (full) {
        *pushed = bucket->nodes[0];
        take_out(cooling, bucket, 0);
    }
    bucket->nodes[bucket->count++] = node;
    atomic_add_relaxed(&cooling->count, 1);
    spinlock_unlock(&bucket->lock);
    return full;
}

bool owned_cooling_remove(struct owned_cooling *cooling, gaddr node)
{
    struct bucket *bucket = bucket_of(cooling, node);
    bool found = false;
    spinlock_lock(&bucket->lock);
    for (uint32_t i = 0; i < bucket->count && !found; i++)
        if (bucket->nodes[i] == node) {
            take_out(cooling, bucket, i);
            found = true;
        }
    spinlock_unlock(&bucket->lock);
    return found;
}

bool owned_cooling_take(struct owned_cooling *cooling, uint64_t random, gaddr *node)
{
    for (uint64_t i = 0; i < cooling->bucket_count && atomic_load_relaxed(&cooling->count); i++) {
        struct bucket *bucket = &cooling->buckets[(random + i) % cooling->bucket_count];
        spinlock_lock(&bucket->lock);
        bool found = bucket->count;
        if (found) {
            *node = bucket->nodes[0];
            take_out(cooling, bucket, 0);
        }
        spinlock_unlock(&bucket->lock);
        if (found)
            return true;
    }
    return false;
}

uint64_t owned_cooling_count(const struct owned_cooling *cooling)
{
    return atomic_load_relaxed(&cooling->count);
}

uint64_t owned_cooling_capacity(const struct owned_cooling *cooling)
{
    return cooling->bucket_count * OWNED_COOLING_SLOTS;
}
