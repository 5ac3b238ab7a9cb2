/*
 * leaf.c - See leaf.h.
 */
#include "format/leaf.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/atomic.h"
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

/* Whether a slot whose key part begins with these bytes, the lengths of key and remainder, may have the key:
 * by length, and by the last two bytes, in which keys of one length differ most. */
static bool tail_may_match(const struct format_layout *layout, const uint8_t *part, const uint8_t lengths[2],
                           struct format_key key)
{
    const uint32_t rest = lengths[1];
    if (lengths[0] != key.length)
        return false;
    if (!rest || rest > key.length ||
        rest > layout->geometry.inline_key_bytes) /* all in the prefix, or long */
        return true;
    const uint8_t *last = part + 2 + rest - 1;
    return atomic_load_relaxed(last) == key.bytes[key.length - 1] &&
           (rest < 2 || atomic_load_relaxed(last - 1) == key.bytes[key.length - 2]);
}

/* Slots lie at multiples of 4. Relaxed: what is found is copied, and judged then. */
static bool slot_may_hold(const struct format_layout *layout, const uint8_t *shared, struct format_key key)
{
    const uint32_t first = atomic_load_relaxed((const uint32_t *)(const void *)(shared + 4));
    uint8_t lengths[2];
    memcpy(lengths, &first, sizeof lengths);
    return tail_may_match(layout, shared + 4, lengths, key);
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
    const bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED;
    const uint32_t end = bucket->first + bucket->count;
    struct format_bucket one = {.first = bucket->first, .count = 1};
    for (; one.first < end; one.first++) {
        if (fixed && (one.first = fixed_next(layout, shared, key, one.first, end)) == end)
            break;
        const uint32_t at = layout->slot_offset[one.first];
        if (!fixed && !slot_may_hold(layout, shared + at, key))
            continue;
        atomic_copy_from(image + at, shared + at, layout->slot_bytes);
        if (format_bucket_find(layout, image, &one, seed, key, slot))
            return true;
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
