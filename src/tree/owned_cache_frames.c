/*
 * owned_cache_frames.c - The table of cached leaves: shards with a lock, a part of the hash table and an
 * array of their frames, from which replacement samples. A frame is one allocation.
 */
#include "tree/owned_cache_frames.h"

#include <assert.h>
#include <stdlib.h>

#include "base/epoch.h"
#include "base/random.h"

#define SHARDS_MAX   64u
#define SHARD_FRAMES 64u /* a table that can have fewer for each shard has fewer shards */

struct shard {
    struct spinlock lock;
    uint32_t count, capacity;
    struct owned_frame **places; /* [count], owned; under the lock */
} __attribute__((aligned(64)));

struct owned_frames {
    uint32_t leaf_bytes, frame_bytes;
    uint32_t shard_count, bucket_count; /* powers of two, shards at most buckets */
    struct owned_frame **buckets;       /* atomic heads; changed under the lock of the shard */
    struct shard *shards;
    uint64_t count __attribute__((aligned(64))); /* of frames; relaxed */
};

struct owned_frames *owned_frames_create(uint32_t leaf_bytes, uint64_t bytes)
{
    struct owned_frames *frames = aligned_alloc(64, sizeof *frames);
    if (!frames)
        return NULL;
    *frames = (struct owned_frames){.leaf_bytes = leaf_bytes, .shard_count = 1, .bucket_count = 64};
    frames->frame_bytes = (uint32_t)(sizeof(struct owned_frame) + leaf_bytes + 63u) & ~63u;
    uint64_t most = bytes / frames->frame_bytes;
    while (frames->bucket_count < most && frames->bucket_count < 1u << 24)
        frames->bucket_count *= 2;
    while (frames->shard_count < SHARDS_MAX && most / frames->shard_count > SHARD_FRAMES)
        frames->shard_count *= 2;
    frames->buckets = calloc(frames->bucket_count, sizeof *frames->buckets);
    frames->shards = aligned_alloc(64, frames->shard_count * sizeof *frames->shards);
    if (!frames->buckets || !frames->shards) {
        free(frames->buckets);
        free(frames->shards);
        free(frames);
        return NULL;
    }
    memset(frames->shards, 0, frames->shard_count * sizeof *frames->shards);
    return frames;
}

void owned_frames_destroy(struct owned_frames *frames)
{
    if (!frames)
        return;
    for (uint32_t i = 0; i < frames->shard_count; i++) {
        struct shard *shard = &frames->shards[i];
        for (uint32_t j = 0; j < shard->count; j++)
            free(shard->places[j]);
        free(shard->places);
    }
    free(frames->shards);
    free(frames->buckets);
    free(frames);
}

uint64_t owned_frames_count(const struct owned_frames *frames)
{
    return atomic_load_relaxed(&frames->count); /* a figure */
}

uint32_t owned_frames_size(const struct owned_frames *frames)
{
    return frames->frame_bytes;
}

static struct shard *shard_of(const struct owned_frames *frames, uint64_t hash)
{
    return &frames->shards[hash & (frames->shard_count - 1)];
}

static struct owned_frame **bucket_of(const struct owned_frames *frames, uint64_t hash)
{
    return &frames->buckets[hash & (frames->bucket_count - 1)];
}

struct owned_frame *owned_frames_find(struct owned_frames *frames, gaddr address)
{
    /* Acquire pairs with the release in publish: a frame that is found is whole. */
    struct owned_frame *frame = atomic_load_acquire(bucket_of(frames, random_mix(address)));
    while (frame && frame->address != address)
        frame = atomic_load_acquire(&frame->next);
    return frame;
}

/* ---- reading ---- */

static bool in_busy_part(const struct owned_busy *busy, const struct owned_piece *piece)
{
    return piece->offset < busy->to && busy->from < piece->offset + piece->length;
}

static bool copy_once(const struct owned_frame *frame, const struct owned_piece *pieces, uint32_t count,
                      enum owned_frame_found *found, struct owned_busy *busy)
{
    uint32_t version = seqlock_read(&frame->latch);
    *found = OWNED_FRAME_COPIED;
    /* Relaxed: the latch's version tells whether both bounds are of one state. */
    busy->from = atomic_load_relaxed(&frame->busy_from);
    busy->to = atomic_load_relaxed(&frame->busy_to);
    for (uint32_t i = 0; i < count && !(version & 1u); i++) {
        if (in_busy_part(busy, &pieces[i]))
            *found = OWNED_FRAME_BUSY;
        atomic_copy_from(pieces[i].to, frame->bytes + pieces[i].offset, pieces[i].length);
    }
    return seqlock_same(&frame->latch, version);
}

enum owned_frame_found owned_frames_read(struct owned_frames *frames, gaddr address,
                                         const struct owned_piece *pieces, uint32_t count, uint32_t *hits,
                                         struct owned_busy *busy)
{
    struct owned_frame *frame = owned_frames_find(frames, address);
    enum owned_frame_found found;
    if (!frame)
        return OWNED_FRAME_NONE;
    for (uint32_t i = 0; i < count; i++)
        assert(pieces[i].offset + pieces[i].length <= frames->leaf_bytes);
    while (!copy_once(frame, pieces, count, &found, busy))
        atomic_pause();
    uint8_t used = atomic_load_relaxed(&frame->hits); /* a hint: counts may be lost */
    *hits = used;
    if (used < OWNED_FRAME_HITS)
        atomic_store_relaxed(&frame->hits, (uint8_t)(used + 1));
    return found;
}

/* ---- writing ---- */

void owned_frames_busy(struct owned_frames *frames, gaddr address, uint32_t from, uint32_t to)
{
    struct shard *shard = shard_of(frames, random_mix(address));
    spinlock_lock(&shard->lock); /* see owned_cache_writes.h */
    struct owned_frame *frame = owned_frames_find(frames, address);
    if (frame) {
        seqlock_lock(&frame->latch);
        atomic_store_relaxed(&frame->busy_from, from);
        atomic_store_relaxed(&frame->busy_to, to);
        seqlock_unlock(&frame->latch);
    }
    spinlock_unlock(&shard->lock);
}

void owned_frames_settle(struct owned_frames *frames, gaddr address, const struct fabric_command *writes,
                         uint32_t count)
{
    struct owned_frame *frame = owned_frames_find(frames, address);
    if (!frame)
        return;
    seqlock_lock(&frame->latch);
    for (uint32_t i = 0; i < count; i++) {
        const struct fabric_command *write = &writes[i];
        if (write->operation != FABRIC_WRITE || write->address < address ||
            write->address >= address + frames->leaf_bytes)
            continue; /* of a sibling, or a long key's block */
        assert(write->address + write->length <= address + frames->leaf_bytes);
        atomic_copy_to(frame->bytes + (write->address - address), write->write.data, write->length);
    }
    atomic_store_relaxed(&frame->busy_from, 0);
    atomic_store_relaxed(&frame->busy_to, 0);
    seqlock_unlock(&frame->latch);
}

/* ---- admitting and dropping: under the shard's lock ---- */

static bool shard_room(struct shard *shard)
{
    if (shard->count < shard->capacity)
        return true;
    uint32_t capacity = shard->capacity ? 2 * shard->capacity : 16;
    struct owned_frame **larger = realloc(shard->places, capacity * sizeof *larger);
    if (!larger)
        return false;
    shard->places = larger;
    shard->capacity = capacity;
    return true;
}

static void publish(struct owned_frames *frames, struct shard *shard, struct owned_frame *frame)
{
    struct owned_frame **head = bucket_of(frames, random_mix(frame->address));
    frame->place = shard->count;
    shard->places[shard->count++] = frame;
    frame->next = *head;
    atomic_store_release(head, frame);
    atomic_add_relaxed(&frames->count, 1);
}

static void take_out(struct owned_frames *frames, struct shard *shard, struct owned_frame *frame)
{
    struct owned_frame **at = bucket_of(frames, random_mix(frame->address));
    while (*at != frame)
        at = &(*at)->next;
    atomic_store_release(at, frame->next);
    assert(frame->state != OWNED_FRAME_GONE && shard->places[frame->place] == frame);
    atomic_store_relaxed(&frame->state, OWNED_FRAME_GONE); /* a hint to samplers that still have it */
    shard->places[frame->place] = shard->places[--shard->count];
    shard->places[frame->place]->place = frame->place;
    atomic_add_relaxed(&frames->count, UINT64_MAX); /* one less */
}

static void frame_free(void *object, void *context)
{
    (void)context;
    free(object);
}

static void retire(struct epoch_slot *slot, struct owned_frame *frame)
{
    /* False: memory is short. A frame that cannot be remembered is never freed, which is safe. */
    (void)epoch_retire(slot, frame_free, frame, NULL);
}

bool owned_frames_admit(struct owned_frames *frames, struct epoch_slot *slot, gaddr address,
                        const uint8_t *bytes, const uint64_t *word, uint64_t stamp)
{
    struct shard *shard = shard_of(frames, random_mix(address));
    struct owned_frame *frame = aligned_alloc(64, frames->frame_bytes), *older = NULL;
    if (!frame)
        return false;
    *frame = (struct owned_frame){.address = address};
    memcpy(frame->bytes, bytes, frames->leaf_bytes);
    spinlock_lock(&shard->lock);
    /* Acquire: see owned_cache_writes.h. */
    bool admitted = atomic_load_acquire(word) == stamp && shard_room(shard);
    if (admitted) {
        older = owned_frames_find(frames, address);
        if (older)
            take_out(frames, shard, older);
        publish(frames, shard, frame);
    }
    spinlock_unlock(&shard->lock);
    if (older)
        retire(slot, older);
    if (!admitted)
        free(frame);
    return admitted;
}

bool owned_frames_drop(struct owned_frames *frames, struct epoch_slot *slot, gaddr address)
{
    struct shard *shard = shard_of(frames, random_mix(address));
    spinlock_lock(&shard->lock);
    struct owned_frame *frame = owned_frames_find(frames, address);
    if (frame)
        take_out(frames, shard, frame);
    spinlock_unlock(&shard->lock);
    if (frame)
        retire(slot, frame);
    return frame != NULL;
}

#define DROPS_MAX 64u  /* in one turn of a shard's lock */
#define LOOKS_MAX 256u /* the same */

uint32_t owned_frames_shards(const struct owned_frames *frames)
{
    return frames->shard_count;
}

/* Downwards: the last frame, which was looked at, takes the place of one that goes. */
uint32_t owned_frames_drop_some(struct owned_frames *frames, struct epoch_slot *slot, uint32_t number,
                                uint32_t *left, bool (*visit)(void *context, const struct owned_frame *frame),
                                void *context)
{
    struct shard *shard = &frames->shards[number];
    struct owned_frame *gone[DROPS_MAX];
    uint32_t count = 0, looked = 0;
    spinlock_lock(&shard->lock);
    if (*left > shard->count)
        *left = shard->count;
    while (*left && count < DROPS_MAX && looked++ < LOOKS_MAX) {
        struct owned_frame *frame = shard->places[--*left];
        if (visit(context, frame)) {
            take_out(frames, shard, frame);
            gone[count++] = frame;
        }
    }
    spinlock_unlock(&shard->lock);
    for (uint32_t i = 0; i < count; i++)
        retire(slot, gone[i]);
    return count;
}

uint64_t owned_frames_drop_if(struct owned_frames *frames, struct epoch_slot *slot,
                              bool (*visit)(void *context, const struct owned_frame *frame), void *context)
{
    uint64_t dropped = 0;
    for (uint32_t i = 0; i < frames->shard_count; i++)
        for (uint32_t left = UINT32_MAX; left;)
            dropped += owned_frames_drop_some(frames, slot, i, &left, visit, context);
    return dropped;
}

/* ---- sampling ---- */

struct owned_frame *owned_frames_any(struct owned_frames *frames, uint64_t random)
{
    struct owned_frame *frame = NULL;
    for (uint32_t i = 0; i < frames->shard_count && !frame; i++) {
        struct shard *shard = shard_of(frames, random + i);
        spinlock_lock(&shard->lock);
        if (shard->count)
            frame = shard->places[(random >> 32) % shard->count];
        spinlock_unlock(&shard->lock);
    }
    return frame;
}

bool owned_frames_turn(struct owned_frames *frames, struct owned_frame *frame, enum owned_frame_state from,
                       enum owned_frame_state to)
{
    struct shard *shard = shard_of(frames, random_mix(frame->address));
    spinlock_lock(&shard->lock);
    bool turned = frame->state == from;
    if (turned)
        atomic_store_relaxed(&frame->state, (uint8_t)to);
    spinlock_unlock(&shard->lock);
    return turned;
}
