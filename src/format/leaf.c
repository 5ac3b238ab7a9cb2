/*
 * leaf.c - See leaf.h.
 */
#include "format/leaf.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "format/slot_parts.h"

uint64_t format_bucket_hash(uint32_t tag, struct format_key key)
{
    /* The tag is the seed: a split or bulk load chooses a tag under which the leaf's keys spread well. */
    return XXH3_64bits_withSeed(key.bytes, key.length, tag);
}

void format_bucket_of(const struct format_layout *layout, uint32_t tag, struct format_key key,
                      struct format_bucket *bucket)
{
    format_bucket_number(layout, format_bucket_index(layout, tag, key), bucket);
}

bool format_bucket_find(const struct format_layout *layout, const uint8_t *image,
                        const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                        struct format_slot *slot)
{
    bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED, hashed = false;
    uint64_t wanted = 0, hash = 0;
    if (fixed)
        memcpy(&wanted, key.bytes, 8);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        const uint8_t *bytes = image + layout->slot_offset[i];
        uint64_t head;
        memcpy(&head, bytes + 4, 8);
        if (fixed ? head != wanted : bytes[4] != key.length)
            continue;
        if (!slot_parse(layout, bytes, slot))
            continue;
        if (slot->block != GADDR_NULL) {
            hash = hashed ? hash : format_key_hash(key);
            hashed = true;
            if (slot->hash != hash)
                continue;
        } else if (memcmp(key.bytes + slot->prefix_length, slot->remainder.bytes,
                          key.length - slot->prefix_length)) {
            continue;
        }
        slot->number = i;
        if (slot_check(bytes) == slot_proven_check(layout, seed, bytes, key, slot))
            return true;
    }
    return false;
}

/* Variable keys: the first slot from `number` on, and before `end`, that may have the key, by its length and
 * by the last two bytes, in which keys of one length differ most; else `end`. Slots lie at multiples of 4.
 * Relaxed: what is found is copied, and judged then. */
static uint32_t variable_next(const struct format_layout *layout, const uint8_t *shared,
                              struct format_key key, uint32_t number, uint32_t end)
{
    const uint32_t room = layout->geometry.inline_key_bytes;
    const uint32_t most = key.length < room ? key.length : room;
    const uint8_t tail = key.length ? key.bytes[key.length - 1] : 0;
    const uint8_t before = key.length > 1 ? key.bytes[key.length - 2] : 0;
    for (; number < end; number++) {
        const uint8_t *part = shared + layout->slot_offset[number] + 4;
        const uint32_t first = atomic_load_relaxed((const uint32_t *)(const void *)part);
        uint8_t lengths[2]; /* of the key, and of its remainder */
        memcpy(lengths, &first, sizeof lengths);
        if (lengths[0] != key.length)
            continue;
        const uint32_t rest = lengths[1];
        if (rest - 1 >= most) /* 0 or more than there can be: all is in the prefix, or it is long */
            break;
        const uint8_t *last = part + 2 + rest - 1;
        if (atomic_load_relaxed(last) == tail && (rest < 2 || atomic_load_relaxed(last - 1) == before))
            break;
    }
    return number;
}

/* Copies a slot, whose bytes others may be writing. Slots are multiples of 4, and lie at such. */
static inline void slot_copy(uint8_t *to, const uint8_t *shared, uint32_t bytes)
{
    uint32_t at = 0, half;
    if ((uintptr_t)shared & 4) {
        half = atomic_load_relaxed((const uint32_t *)(const void *)shared);
        memcpy(to, &half, sizeof half);
        at = sizeof half;
    }
    for (; at + sizeof(uint64_t) <= bytes; at += (uint32_t)sizeof(uint64_t)) {
        const uint64_t word = atomic_load_relaxed((const uint64_t *)(const void *)(shared + at));
        memcpy(to + at, &word, sizeof word);
    }
    if (at < bytes) {
        half = atomic_load_relaxed((const uint32_t *)(const void *)(shared + at));
        memcpy(to + at, &half, sizeof half);
    }
}

/* What format_bucket_find does with the one slot, variable keys; false: that one is not the key's. */
static bool variable_take(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                          uint32_t number, uint32_t seed, struct format_key key, struct format_slot *slot)
{
    const uint32_t at = layout->slot_offset[number];
    uint8_t *bytes = image + at;
    slot_copy(bytes, shared + at, layout->slot_bytes);
    if (bytes[5] == FORMAT_SLOT_LONG) {
        const struct format_bucket one = {.first = number, .count = 1};
        return format_bucket_find(layout, image, &one, seed, key, slot);
    }
    if (bytes[4] != key.length || !slot_parse(layout, bytes, slot) ||
        !bytes_equal(key.bytes + slot->prefix_length, slot->remainder.bytes, slot->remainder.length))
        return false;
    slot->number = number;
    /* The remainder is the key's end, and the prefix is taken from the key itself: so they are the key. */
    return slot_check(bytes) == slot_whole_check(seed, key, slot->value);
}

/* The first slot from `number` on, and before `end`, whose key begins as this fixed one; else `end`. Relaxed,
 * as above. The second four bytes first: many keys of a leaf agree in the others. */
static uint32_t fixed_next(const struct format_layout *layout, const uint8_t *shared, struct format_key key,
                           uint32_t number, uint32_t end)
{
    const uint8_t *keys = shared + 4;
    uint32_t wanted[2];
    memcpy(wanted, key.bytes, sizeof wanted);
    for (; number < end; number++) {
        const uint32_t *words = (const uint32_t *)(const void *)(keys + layout->slot_offset[number]);
        if (atomic_load_relaxed(&words[1]) == wanted[1] && atomic_load_relaxed(&words[0]) == wanted[0])
            break;
    }
    return number;
}

/* Fixed keys and values, whose slots are words: the last slot of the bucket whose key ends with the same word
 * as this one; UINT32_MAX: none. No branch depends on which it is. Relaxed, as above. */
static uint32_t plain_candidate(const struct format_layout *layout, const uint8_t *shared,
                                const struct format_bucket *bucket, struct format_key key)
{
    const uint8_t *tails = shared + 4 + key.length - sizeof(uint32_t);
    uint32_t tail, found = UINT32_MAX;
    memcpy(&tail, key.bytes + key.length - sizeof tail, sizeof tail);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        const uint8_t *at = tails + layout->slot_offset[i];
        found = atomic_load_relaxed((const uint32_t *)(const void *)at) == tail ? i : found;
    }
    return found;
}

/* What the loop in format_bucket_find_shared does with a slot; false: that one is not the key's. */
static bool plain_take(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                       uint32_t number, uint32_t seed, struct format_key key, struct format_slot *slot)
{
    const uint32_t at = layout->slot_offset[number];
    uint8_t *bytes = image + at;
    for (uint32_t i = 0; i < layout->slot_bytes; i += 4) {
        const uint32_t word = atomic_load_relaxed((const uint32_t *)(const void *)(shared + at + i));
        memcpy(bytes + i, &word, sizeof word);
    }
    slot->number = number;
    return slot_parse(layout, bytes, slot) && !memcmp(bytes + 4, key.bytes, key.length) &&
           slot_check(bytes) == slot_proven_check(layout, seed, bytes, key, slot);
}

bool format_bucket_find_shared(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                               const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                               struct format_slot *slot)
{
    if (format_layout_plain(layout) && key.length % 4 == 0) {
        const uint32_t number = plain_candidate(layout, shared, bucket, key);
        if (number == UINT32_MAX)
            return false;
        if (plain_take(layout, shared, image, number, seed, key, slot))
            return true;
    }
    const uint32_t end = bucket->first + bucket->count;
    if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE) {
        for (uint32_t i = bucket->first; (i = variable_next(layout, shared, key, i, end)) < end; i++)
            if (variable_take(layout, shared, image, i, seed, key, slot))
                return true;
        return false;
    }
    struct format_bucket one = {.first = bucket->first, .count = 1};
    while ((one.first = fixed_next(layout, shared, key, one.first, end)) < end) {
        const uint32_t at = layout->slot_offset[one.first];
        atomic_copy_from(image + at, shared + at, layout->slot_bytes);
        if (format_bucket_find(layout, image, &one, seed, key, slot))
            return true;
        one.first++;
    }
    return false;
}

uint32_t format_bucket_free_slot(const struct format_layout *layout, const uint8_t *image,
                                 const struct format_bucket *bucket, uint32_t seed)
{
    uint32_t empty = format_slot_empty_check(seed), last = bucket->first + bucket->count - 1;
    for (uint32_t i = 0; i < bucket->count; i++) {
        /* Own segment first (A's begins the bucket, B's ends it), then the shared overflow. */
        uint32_t number = bucket->number % 2 ? last - i : bucket->first + i;
        if (slot_check(image + layout->slot_offset[number]) == empty)
            return number;
    }
    return UINT32_MAX;
}

void format_leaf_format(const struct format_layout *layout, const struct format_header *header,
                        uint8_t *image)
{
    memset(image + layout->header_bytes, 0, layout->geometry.leaf_bytes - layout->header_bytes);
    format_header_encode(layout, header, image);
    format_slots_clear(layout, image, format_slot_seed(header->tag, header->version));
    for (uint32_t number = 0; number < layout->buckets; number += 2) {
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        memcpy(image + bucket.version_offset, &header->version, sizeof header->version);
    }
}
