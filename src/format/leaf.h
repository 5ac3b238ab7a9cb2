/*
 * leaf.h - leaves: the buckets that a key's hash chooses among, and whole leaves.
 *
 * Leaf: header, then `triples` of  bucket A | head | overflow | bucket B. The head is the leaf's version
 * (u16) and two zero bytes. A point read takes A+head+overflow or head+overflow+B: contiguous (Deft,
 * EuroSys'25). slot.h says what stands in a slot.
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
    uint32_t offset, bytes; /* in the leaf */
    uint32_t head;          /* offset of the version word */
};

void format_bucket_of(const struct format_layout *layout, uint32_t tag, struct format_key key,
                      struct format_bucket *bucket);
void format_bucket_number(const struct format_layout *layout, uint32_t number, struct format_bucket *bucket);
static inline uint16_t format_bucket_version(const uint8_t *image, const struct format_bucket *bucket)
{
    uint16_t version;
    memcpy(&version, image + bucket->head, sizeof version);
    return version;
}
/* Looks for a key among a bucket's slots without knowing the header (R1). True: hit, *slot is proven. */
bool format_bucket_find(const struct format_layout *layout, const uint8_t *image,
                        const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                        struct format_slot *slot);
/* A free slot for a key of this bucket, own segment first; UINT32_MAX when full. */
uint32_t format_bucket_free_slot(const struct format_layout *layout, const uint8_t *image,
                                 const struct format_bucket *bucket, uint32_t seed);
/* An empty leaf with this header: heads and empty slots. */
void format_leaf_format(const struct format_layout *layout, const struct format_header *header,
                        uint8_t *image);

#endif
