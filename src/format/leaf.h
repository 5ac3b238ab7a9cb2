/*
 * leaf.h - leaves: their buckets, of which a key's hash chooses one, and a whole new leaf.
 *
 * Leaf: header, then `triples` of  segment A | version | overflow | segment B. The version is the leaf's
 * (u16), followed by two zero bytes. Each triple holds two buckets, which share the overflow: a point read
 * takes A+version+overflow or version+overflow+B, which is contiguous (Deft, EuroSys'25). Dense leaves
 * have fewer and larger triples (geometry.c). An unsorted leaf is one triple without segments: version, then
 * the overflow, which is its only bucket. slot.h says what stands in a slot.
 *
 * Behind the last triple nothing lies. Where there is room (format_layout_keeps_order) the process that owns
 * a leaf keeps the order of its entries there: slot numbers, one byte each, in the order of the keys. That is
 * a hint to its scans and to nobody else. No check covers it, nothing keeps it true, and a leaf that is
 * written anew has there whatever it has.
 *
 * Pure, as header.h.
 */
#ifndef FORMAT_LEAF_H
#define FORMAT_LEAF_H

#include "format/header.h"
#include "format/slot.h"

struct format_bucket {
    uint32_t number;
    uint32_t first, count;  /* its slots: own segment and shared overflow */
    uint32_t offset, bytes; /* of a point read, in the leaf */
    uint32_t version_offset;
};

/* The number of the key's bucket in a leaf with this tag: some 30 instructions for a key of eight bytes. */
static inline uint32_t format_bucket_index(const struct format_layout *layout, uint32_t tag,
                                           struct format_key key);
/* Any key's hash under the tag, from which its bucket follows. */
uint64_t format_bucket_hash(uint32_t tag, struct format_key key);
/* The key's bucket in a leaf with this tag. */
void format_bucket_of(const struct format_layout *layout, uint32_t tag, struct format_key key,
                      struct format_bucket *bucket);
static inline void format_bucket_number(const struct format_layout *layout, uint32_t number,
                                        struct format_bucket *bucket)
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
static inline uint16_t format_bucket_version(const uint8_t *image, const struct format_bucket *bucket)
{
    uint16_t version;
    memcpy(&version, image + bucket->version_offset, sizeof version);
    return version;
}
/* Looks for a key among a bucket's slots without knowing the header (R1). True: found, and *slot is valid. */
bool format_bucket_find(const struct format_layout *layout, const uint8_t *image,
                        const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                        struct format_slot *slot);
/* The same for a leaf's own bytes, which others may be writing: copies the slots that may be the key's, one
 * after the other, to their places in the image, and believes only what it has copied there. Nothing else of
 * the bucket is copied: false says nothing. */
bool format_bucket_find_shared(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                               const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                               struct format_slot *slot);
/* The same as format_bucket_hash, which is XXH3-64 with the tag for its seed, of a key of eight bytes. */
static inline uint64_t format_bucket_hash_eight(uint32_t tag, const uint8_t *key)
{
    uint64_t word, seed = tag ^ (uint64_t)__builtin_bswap32(tag) << 32;
    memcpy(&word, key, sizeof word);
    /* bytes 8 to 15 of XXH3's secret, and 16 to 23 */
    const uint64_t flip = (UINT64_C(0x1cad21f72c81017c) ^ UINT64_C(0xdb979083e96dd4de)) - seed;
    uint64_t hash = (word >> 32 | word << 32) ^ flip;
    hash ^= (hash << 49 | hash >> 15) ^ (hash << 24 | hash >> 40);
    hash *= UINT64_C(0x9fb21c651e98df25);
    hash ^= (hash >> 35) + sizeof word;
    hash *= UINT64_C(0x9fb21c651e98df25);
    return hash ^ hash >> 28;
}
static inline uint32_t format_bucket_index(const struct format_layout *layout, uint32_t tag,
                                           struct format_key key)
{
    const uint64_t hash = key.length == sizeof(uint64_t) ? format_bucket_hash_eight(tag, key.bytes)
                                                         : format_bucket_hash(tag, key);
    return (uint32_t)(((hash >> 32) * layout->buckets) >> 32);
}
/* A free slot for a key of this bucket, own segment first; UINT32_MAX when full. */
uint32_t format_bucket_free_slot(const struct format_layout *layout, const uint8_t *image,
                                 const struct format_bucket *bucket, uint32_t seed);
/* An empty leaf with this header: all versions and slots are written. */
void format_leaf_format(const struct format_layout *layout, const struct format_header *header,
                        uint8_t *image);

#endif
