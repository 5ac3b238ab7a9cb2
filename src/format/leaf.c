/*
 * leaf.c - See leaf.h.
 */
#include "format/leaf.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/atomic.h"
#include "format/slot_parts.h"

void format_bucket_number(const struct format_layout *layout, uint32_t number, struct format_bucket *bucket)
{
    uint32_t triple = number / 2, side = number % 2;
    uint32_t base = layout->header_bytes + triple * layout->triple_bytes;
    uint32_t segment = layout->segment_slots * layout->slot_bytes;
    bucket->number = number;
    bucket->first = triple * layout->triple_slots + side * layout->segment_slots;
    bucket->count = layout->bucket_slots;
    bucket->version_offset = base + segment;
    bucket->offset = side ? bucket->version_offset : base;
    bucket->bytes = layout->bucket_bytes;
}

void format_bucket_of(const struct format_layout *layout, uint32_t tag, struct format_key key,
                      struct format_bucket *bucket)
{
    /* The tag is the seed: a split or bulk load chooses a tag under which the leaf's keys spread well. */
    uint64_t hash = XXH3_64bits_withSeed(key.bytes, key.length, tag);
    format_bucket_number(layout, (uint32_t)(((hash >> 32) * layout->buckets) >> 32), bucket);
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

/* Slots lie at multiples of 4. Relaxed: what is found is copied, and judged then. */
static bool slot_may_hold(const uint8_t *shared, bool fixed, struct format_key key)
{
    const uint32_t *words = (const uint32_t *)(const void *)(shared + 4);
    uint32_t first = atomic_load_relaxed(&words[0]), wanted[2];
    if (!fixed) {
        uint8_t length;
        memcpy(&length, &first, 1);
        return length == key.length;
    }
    memcpy(wanted, key.bytes, sizeof wanted);
    return first == wanted[0] && atomic_load_relaxed(&words[1]) == wanted[1];
}

bool format_bucket_find_shared(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                               const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                               struct format_slot *slot)
{
    const bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED;
    struct format_bucket one = {.first = bucket->first, .count = 1};
    for (; one.first < bucket->first + bucket->count; one.first++) {
        const uint32_t at = layout->slot_offset[one.first];
        if (!slot_may_hold(shared + at, fixed, key))
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
    uint32_t seed = format_slot_seed(header->tag, header->version);
    for (uint32_t i = 0; i < layout->slots; i++)
        format_slot_clear(layout, image, i, seed);
    for (uint32_t number = 0; number < layout->buckets; number += 2) {
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        memcpy(image + bucket.version_offset, &header->version, sizeof header->version);
    }
}
