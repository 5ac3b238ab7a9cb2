/*
 * owned_cache_entries.c - The table of entries: finding, putting, and growing by segments. What one set holds
 * is owned_cache_set.c's.
 *
 * Linear hashing with segments as its buckets: of n segments, m of them a power of two, the hash's bits
 * choose one of 2m, or where there is none yet, one of m; lower bits choose the set in it. A segment more
 * takes over half of what one other holds. Who changes a set locks it and then looks whether the table still
 * leads to it; who resizes locks all sets that it touches, and changes the count while it holds them.
 */
#include "tree/owned_cache_entries.h"

#include <assert.h>
#include <stdlib.h>

#include "base/epoch.h"
#include "tree/owned_cache_set.h"

struct segment {
    struct owned_set sets[OWNED_SEGMENT_SETS];
};

struct owned_entries {
    struct owned_set_shape shape;
    uint32_t count __attribute__((aligned(64))); /* of segments; changed under `resize` */
    uint32_t capacity;
    struct segment **segments; /* [capacity], owned; an epoch keeps a segment that left from being freed */
    uint32_t holders;          /* tasks that walk over it; under `resize` */
    struct spinlock resize __attribute__((aligned(64)));
};

static struct segment *segment_make(void)
{
    struct segment *segment = aligned_alloc(64, sizeof *segment);
    if (segment)
        memset(segment, 0, sizeof *segment);
    return segment;
}

struct owned_entries *owned_entries_create(const struct format_layout *layout, uint32_t link_bytes,
                                           uint64_t bytes)
{
    struct owned_entries *entries = aligned_alloc(64, sizeof *entries);
    if (!entries)
        return NULL;
    uint64_t capacity = bytes / OWNED_SEGMENT_BYTES;
    capacity = capacity < 1 ? 1 : capacity > UINT32_MAX / 2 ? UINT32_MAX / 2 : capacity;
    *entries = (struct owned_entries){.capacity = (uint32_t)capacity, .count = 1};
    owned_set_shape_init(&entries->shape, layout, link_bytes);
    entries->segments = calloc(capacity, sizeof *entries->segments);
    struct segment *first = entries->segments ? segment_make() : NULL;
    if (!first) {
        free(entries->segments);
        free(entries);
        return NULL;
    }
    entries->segments[0] = first;
    return entries;
}

void owned_entries_destroy(struct owned_entries *entries)
{
    if (!entries)
        return;
    for (uint32_t i = 0; i < entries->capacity; i++)
        free(entries->segments[i]);
    free(entries->segments);
    free(entries);
}

uint64_t owned_entries_bytes(const struct owned_entries *entries)
{
    return (uint64_t)atomic_load_relaxed(&entries->count) * OWNED_SEGMENT_BYTES; /* a figure */
}

/* ---- finding a set ---- */

static uint32_t power_below(uint32_t count)
{
    return 1u << (31 - __builtin_clz(count)); /* the greatest power of two that is not above it */
}

static uint32_t segment_of(uint64_t hash, uint32_t count)
{
    uint32_t power = power_below(count);
    uint32_t number = (uint32_t)(hash / OWNED_SEGMENT_SETS) & (2 * power - 1);
    return number < count ? number : number & (power - 1);
}

static uint32_t set_of(uint64_t hash)
{
    return (uint32_t)hash & (OWNED_SEGMENT_SETS - 1);
}

static struct owned_set *locate(const struct owned_entries *entries, uint64_t hash)
{
    /* Acquire: the segments that this count promises are there, with what moved to them. */
    uint32_t count = atomic_load_acquire(&entries->count);
    struct segment *segment = atomic_load_acquire(&entries->segments[segment_of(hash, count)]);
    return segment ? &segment->sets[set_of(hash)] : NULL; /* NULL: the table has just shrunk */
}

/* The hash's set, locked. */
static struct owned_set *lock_set(const struct owned_entries *entries, uint64_t hash)
{
    for (;;) {
        struct owned_set *set = locate(entries, hash);
        if (!set)
            continue;
        seqlock_lock(&set->latch);
        if (locate(entries, hash) == set)
            return set;
        seqlock_unlock(&set->latch); /* the table was resized meanwhile */
    }
}

enum owned_entry_found owned_entries_find(struct owned_entries *entries, struct format_key key,
                                          struct owned_entry *entry)
{
    uint64_t hash = format_key_hash(key);
    for (;;) {
        struct owned_set *set = locate(entries, hash);
        enum owned_entry_found found;
        if (set && owned_set_find(set, &entries->shape, key, hash, entry, &found))
            return found;
        atomic_pause(); /* it was being changed */
    }
}

/* ---- changing ---- */

void owned_entries_put(struct owned_entries *entries, const struct owned_put *put,
                       struct owned_put_result *result)
{
    uint64_t hash = format_key_hash(put->key);
    *result = (struct owned_put_result){0};
    struct owned_set *set = lock_set(entries, hash);
    /* Under the set's lock: who writes the key changes the word first, and then makes the entry busy under
     * this lock; so one of the two sees the other. */
    if (!put->word || atomic_load_acquire(put->word) == put->stamp)
        owned_set_put(set, &entries->shape, put, hash, result);
    seqlock_unlock(&set->latch);
}

bool owned_entries_promote(struct owned_entries *entries, const struct owned_put *put, double miss,
                           uint32_t *evicted)
{
    uint64_t hash = format_key_hash(put->key);
    bool promoted = false;
    *evicted = 0;
    struct owned_set *set = lock_set(entries, hash);
    if (!put->word || atomic_load_acquire(put->word) == put->stamp) /* as above */
        promoted = owned_set_promote(set, &entries->shape, put, hash, miss, evicted);
    seqlock_unlock(&set->latch);
    return promoted;
}

void owned_entries_busy(struct owned_entries *entries, struct format_key key)
{
    uint64_t hash = format_key_hash(key);
    struct owned_set *set = lock_set(entries, hash);
    owned_set_busy(set, &entries->shape, key, hash);
    seqlock_unlock(&set->latch);
}

bool owned_entries_settle(struct owned_entries *entries, struct format_key key,
                          const struct format_key *value, const uint8_t *link)
{
    uint64_t hash = format_key_hash(key);
    struct owned_set *set = lock_set(entries, hash);
    bool found = owned_set_settle(set, &entries->shape, key, hash, value, link);
    seqlock_unlock(&set->latch);
    return found;
}

void owned_entries_hold(struct owned_entries *entries)
{
    spinlock_lock(&entries->resize);
    entries->holders++;
    spinlock_unlock(&entries->resize);
}

void owned_entries_release(struct owned_entries *entries)
{
    spinlock_lock(&entries->resize);
    assert(entries->holders);
    entries->holders--;
    spinlock_unlock(&entries->resize);
}

static uint64_t segment_drop(struct owned_entries *entries, uint32_t number, const struct owned_span *spans,
                             uint32_t count)
{
    uint64_t dropped = 0;
    for (uint32_t j = 0; j < OWNED_SEGMENT_SETS; j++) {
        struct owned_set *set = &entries->segments[number]->sets[j];
        seqlock_lock(&set->latch);
        dropped += owned_set_drop(set, &entries->shape, spans, count);
        seqlock_unlock(&set->latch);
    }
    return dropped;
}

bool owned_entries_drop(struct owned_entries *entries, uint32_t from, uint32_t to,
                        const struct owned_span *spans, uint32_t count)
{
    assert(entries->holders); /* so there are as many segments as before */
    for (uint32_t i = from; i < to && i < entries->count; i++)
        segment_drop(entries, i, spans, count);
    return to < entries->count;
}

uint64_t owned_entries_drop_range(struct owned_entries *entries, struct format_key lower,
                                  const struct format_key *upper)
{
    struct owned_span span = {.lower = lower, .has_upper = upper != NULL};
    uint64_t dropped = 0;
    if (upper)
        span.upper = *upper;
    owned_entries_hold(entries);
    for (uint32_t i = 0; i < entries->count; i++)
        dropped += segment_drop(entries, i, &span, 1);
    owned_entries_release(entries);
    return dropped;
}

uint32_t owned_entries_least(const struct owned_entries *entries, uint64_t random, uint32_t *least,
                             uint32_t *count)
{
    const struct owned_set *set = locate(entries, random);
    *count = set ? atomic_load_relaxed(&set->count) : 0; /* an estimate, as the hits are */
    *least = UINT32_MAX;
    for (uint32_t i = 0; i < *count && i < OWNED_SET_ENTRIES; i++) {
        uint32_t hits = atomic_load_relaxed(&set->meta[i]) & OWNED_META_HITS;
        *least = hits < *least ? hits : *least;
    }
    if (!*count)
        *least = 0;
    return *count ? OWNED_SET_BYTES / *count : 0;
}

uint64_t owned_entries_count(const struct owned_entries *entries)
{
    struct owned_entries *shared = (struct owned_entries *)(uintptr_t)entries;
    uint64_t total = 0;
    spinlock_lock(&shared->resize);
    for (uint32_t i = 0; i < entries->count; i++)
        for (uint32_t j = 0; j < OWNED_SEGMENT_SETS; j++)
            total += atomic_load_relaxed(&entries->segments[i]->sets[j].count); /* a figure */
    spinlock_unlock(&shared->resize);
    return total;
}

/* ---- growing and shrinking ---- */

static void lock_all(struct segment *segment)
{
    for (uint32_t i = 0; i < OWNED_SEGMENT_SETS; i++)
        seqlock_lock(&segment->sets[i].latch);
}

static void unlock_all(struct segment *segment)
{
    for (uint32_t i = 0; i < OWNED_SEGMENT_SETS; i++)
        seqlock_unlock(&segment->sets[i].latch);
}

struct to_new {
    uint32_t count, number;
};

static bool goes_to_new(const void *context, uint64_t hash)
{
    const struct to_new *to = context;
    return segment_of(hash, to->count) == to->number;
}

bool owned_entries_grow(struct owned_entries *entries)
{
    struct segment *spare = segment_make(); /* outside of the lock */
    if (!spare)
        return false;
    spinlock_lock(&entries->resize);
    uint32_t count = entries->count;
    bool room = count < entries->capacity && !entries->holders;
    if (room) {
        struct segment *old = entries->segments[count & (power_below(count) - 1)];
        struct segment *fresh = entries->segments[count]; /* one that could not be retired, empty */
        if (!fresh) {
            fresh = spare;
            spare = NULL;
        }
        lock_all(old);
        lock_all(fresh);
        const struct to_new to = {count + 1, count};
        for (uint32_t i = 0; i < OWNED_SEGMENT_SETS; i++)
            owned_set_split(&old->sets[i], &fresh->sets[i], &entries->shape, goes_to_new, &to);
        atomic_store_release(&entries->segments[count], fresh);
        atomic_store_release(&entries->count, count + 1); /* what moved comes before it */
        unlock_all(fresh);
        unlock_all(old);
    }
    spinlock_unlock(&entries->resize);
    free(spare);
    return room;
}

static void segment_free(void *object, void *context)
{
    (void)context;
    free(object);
}

bool owned_entries_shrink(struct owned_entries *entries, struct epoch_slot *slot, uint64_t *evicted)
{
    *evicted = 0;
    spinlock_lock(&entries->resize);
    uint32_t last = entries->count - 1;
    struct segment *gone = NULL;
    if (last && !entries->holders) {
        gone = entries->segments[last];
        struct segment *heir = entries->segments[last & (power_below(last) - 1)];
        lock_all(heir);
        lock_all(gone);
        for (uint32_t i = 0; i < OWNED_SEGMENT_SETS; i++)
            *evicted += owned_set_merge(&heir->sets[i], &gone->sets[i], &entries->shape);
        atomic_store_release(&entries->count, last); /* what moved comes before it */
        /* Searches that still go by the old count find nothing there, and look again. */
        atomic_store_release(&entries->segments[last], NULL);
        unlock_all(gone);
        unlock_all(heir);
        if (!epoch_retire(slot, segment_free, gone, NULL))
            entries->segments[last] = gone; /* memory is short: it stays, empty, to be used again */
    }
    spinlock_unlock(&entries->resize);
    return gone != NULL;
}
