/* owned_cache_lost.c - see owned_cache_lost.h; owned_cache_lose, _regain and _sweep of owned_cache.h. */
#include "tree/owned_cache_lost.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"
#include "base/seqlock.h"
#include "base/task.h"
#include "tree/owned_cache_private.h"

#define SEGMENTS_PIECE 8u /* of entries that one piece of a sweep looks at */

struct owned_note {
    struct owned_note *next;
    uint64_t number;
    struct owned_span span; /* its keys point behind the note */
    uint8_t bytes[];
};

static struct owned_note *note_make(struct format_key lower, const struct format_key *upper)
{
    struct owned_note *note = malloc(sizeof *note + lower.length + (upper ? upper->length : 0));
    if (!note)
        return NULL;
    *note = (struct owned_note){.span = {.lower = {note->bytes, lower.length}, .has_upper = upper != NULL}};
    if (lower.length)
        memcpy(note->bytes, lower.bytes, lower.length);
    if (upper) {
        memcpy(note->bytes + lower.length, upper->bytes, upper->length);
        note->span.upper = (struct format_key){note->bytes + lower.length, upper->length};
    }
    return note;
}

static void notes_free(struct owned_note *notes)
{
    while (notes) {
        struct owned_note *next = notes->next;
        free(notes);
        notes = next;
    }
}

void owned_lost_destroy(struct owned_lost *lost)
{
    notes_free(lost->notes);
    notes_free(lost->copies);
    free(lost->spans);
}

/* ---- noting ---- */

void owned_cache_lose(struct owned_cache *cache, struct epoch_slot *slot, struct format_key lower,
                      const struct format_key *upper)
{
    struct owned_lost *lost = &cache->lost;
    struct owned_note *note = note_make(lower, upper);
    if (!note) {
        owned_cache_drop_range(cache, slot, lower, upper);
        return;
    }
    spinlock_lock(&lost->lock);
    note->number = lost->noted + 1;
    note->next = lost->notes;
    lost->notes = note;
    atomic_store_relaxed(&lost->noted, note->number); /* a hint to the sweeper, which takes the lock */
    spinlock_unlock(&lost->lock);
}

static bool spans_meet(const struct owned_span *span, struct format_key lower, const struct format_key *upper)
{
    return (!span->has_upper || format_key_compare(span->upper, lower) > 0) &&
           (!upper || format_key_compare(span->lower, *upper) < 0);
}

void owned_cache_regain(struct owned_cache *cache, struct epoch_slot *slot, struct format_key lower,
                        const struct format_key *upper)
{
    bool met = false;
    spinlock_lock(&cache->lost.lock);
    for (const struct owned_note *note = cache->lost.notes; note && !met; note = note->next)
        met = spans_meet(&note->span, lower, upper);
    spinlock_unlock(&cache->lost.lock);
    /* A sweep that is under way may go on: what it drops beyond this is only cached once more. */
    if (met)
        owned_cache_drop_range(cache, slot, lower, upper);
}

/* ---- sweeping ---- */

/* The notes that there are now, copied, since others may come and go meanwhile. False: no memory. */
static bool sweep_begin(struct owned_lost *lost)
{
    bool copied = true;
    uint32_t count = 0;
    spinlock_lock(&lost->lock);
    lost->upto = lost->noted;
    for (const struct owned_note *note = lost->notes; note && copied; note = note->next) {
        const struct owned_span *span = &note->span;
        struct owned_note *copy = note_make(span->lower, span->has_upper ? &span->upper : NULL);
        copied = copy != NULL;
        if (!copied)
            break;
        copy->next = lost->copies;
        lost->copies = copy;
        count++;
    }
    spinlock_unlock(&lost->lock);
    lost->left = UINT32_MAX;
    lost->spans = copied ? calloc(count, sizeof *lost->spans) : NULL;
    for (const struct owned_note *copy = lost->copies; copy && lost->spans; copy = copy->next)
        lost->spans[lost->span_count++] = copy->span;
    return lost->spans != NULL;
}

static void sweep_clear(struct owned_lost *lost)
{
    notes_free(lost->copies);
    free(lost->spans);
    lost->copies = NULL;
    lost->spans = NULL;
    lost->span_count = lost->shards = lost->segments = 0;
}

static void sweep_end(struct owned_lost *lost)
{
    struct owned_note *gone = NULL;
    spinlock_lock(&lost->lock);
    for (struct owned_note **at = &lost->notes; *at;) {
        struct owned_note *note = *at;
        if (note->number > lost->upto) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        note->next = gone;
        gone = note;
    }
    lost->swept = lost->upto;
    spinlock_unlock(&lost->lock);
    notes_free(gone);
    sweep_clear(lost);
}

struct sweep {
    const struct format_layout *layout;
    const struct owned_span *spans;
    uint32_t count;
    uint32_t looked; /* frames */
};

/* A leaf that reaches into one of the ranges, or whose header cannot be read. */
static bool is_lost(void *context, const struct owned_frame *frame)
{
    struct sweep *sweep = context;
    struct format_header header;
    uint8_t bytes[FORMAT_HEADER_FIXED + 2 * FORMAT_KEY_MAX + 64];
    assert(sweep->layout->header_bytes <= sizeof bytes);
    uint32_t version;
    sweep->looked++;
    do {
        version = seqlock_read(&frame->latch);
        atomic_copy_from(bytes, frame->bytes, sweep->layout->header_bytes);
    } while (!seqlock_same(&frame->latch, version));
    if (!format_header_decode(sweep->layout, bytes, &header))
        return true;
    for (uint32_t i = 0; i < sweep->count; i++)
        if (spans_meet(&sweep->spans[i], header.lower, header.has_upper ? &header.upper : NULL))
            return true;
    return false;
}

/* One piece: some leaves of a shard, or some segments of the entries. True: there is more. */
static bool sweep_piece(struct owned_cache *cache, struct epoch_slot *slot)
{
    struct owned_lost *lost = &cache->lost;
    struct sweep sweep = {&cache->layout, lost->spans, lost->span_count, 0};
    if (cache->frames && lost->shards < owned_frames_shards(cache->frames)) {
        uint32_t gone =
            owned_frames_drop_some(cache->frames, slot, lost->shards, &lost->left, is_lost, &sweep);
        task_charge(TASK_WORK_LINE, OWNED_LOOK_LINES * sweep.looked + OWNED_DROP_LINES * gone);
        if (!lost->left) {
            lost->left = UINT32_MAX;
            lost->shards++;
        }
        return true;
    }
    if (!cache->entries)
        return false;
    if (!lost->segments)
        owned_entries_hold(cache->entries);
    uint32_t from = lost->segments;
    lost->segments += SEGMENTS_PIECE;
    task_charge(TASK_WORK_COPY, SEGMENTS_PIECE * OWNED_SEGMENT_BYTES / 64);
    if (owned_entries_drop(cache->entries, from, lost->segments, lost->spans, lost->span_count))
        return true;
    owned_entries_release(cache->entries);
    return false;
}

bool owned_cache_sweep(struct owned_cache *cache, struct epoch_slot *slot)
{
    struct owned_lost *lost = &cache->lost;
    if (!lost->spans) {
        /* Relaxed: what is noted later is swept later. `swept` is this task's to change. */
        if (atomic_load_relaxed(&lost->noted) == lost->swept)
            return false;
        if (!sweep_begin(lost)) {
            sweep_clear(lost);
            return false; /* no memory now */
        }
    }
    if (!sweep_piece(cache, slot))
        sweep_end(lost);
    return true;
}
