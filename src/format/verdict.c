/* verdict.c - see verdict.h. */
#include "format/verdict.h"

#include "base/atomic.h"

enum format_verdict format_node_verdict(const struct format_layout *layout, const uint8_t *image,
                                        struct format_link link, uint16_t index, uint8_t level,
                                        struct format_header *header)
{
    if (!format_header_valid(layout, image)) {
        *header = (struct format_header){0};
        return FORMAT_TORN;
    }
    if (!format_header_decode(layout, image, header))
        return FORMAT_MALFORMED;
    if (header->tag != link.tag || header->index != index)
        return FORMAT_OTHER;
    if (header->level != level)
        return FORMAT_LEVEL;
    switch ((enum format_node_state)header->state) {
    case FORMAT_NODE_DEAD:
        return FORMAT_DEAD;
    case FORMAT_NODE_SPLITTING:
        return FORMAT_SPLITTING;
    case FORMAT_NODE_MERGING:
        return FORMAT_MERGING;
    case FORMAT_NODE_FROZEN:
        return FORMAT_FROZEN;
    case FORMAT_NODE_LIVE:
        break;
    }
    return FORMAT_LIVE;
}

/* The same for readers: what a frozen leaf holds does not change, so it answers as a live one (R7). */
static enum format_verdict reader_verdict(const struct format_layout *layout, const uint8_t *image,
                                          struct format_link link, uint16_t index,
                                          struct format_header *header)
{
    enum format_verdict verdict = format_node_verdict(layout, image, link, index, 0, header);
    return verdict == FORMAT_FROZEN ? FORMAT_LIVE : verdict;
}

/* ---- points ---- */

static bool find(const struct format_point *point, const uint8_t *image, uint16_t version,
                 struct format_slot *slot)
{
    return format_bucket_find(point->layout, image, &point->bucket,
                              format_slot_seed(point->link.tag, version), point->key, slot);
}

/* R2: every slot in which the key could stand belongs to the header's version, and none holds it. */
static bool proven(const struct format_point *point, const uint8_t *image, const struct format_header *header)
{
    return format_slots_valid(point->layout, image, point->bucket.first, point->bucket.count,
                              format_slot_seed(point->link.tag, header->version), header->lower);
}

static enum format_verdict side_verdict(const struct format_header *header, struct format_key key)
{
    int side = format_header_side(header, key);
    return side > 0 ? FORMAT_RIGHT : side < 0 ? FORMAT_LEFT : FORMAT_LIVE;
}

enum format_verdict format_point_verdict(const struct format_point *point, const uint8_t *image,
                                         enum format_seen seen, struct format_header *header,
                                         struct format_slot *slot)
{
    uint16_t version = format_bucket_version(image, &point->bucket);
    if (seen & FORMAT_SEEN_BUCKET && find(point, image, version, slot))
        return FORMAT_HIT;
    if (!(seen & FORMAT_SEEN_HEADER))
        return FORMAT_UNPROVEN;
    enum format_verdict verdict = reader_verdict(point->layout, image, point->link, point->index, header);
    if (verdict == FORMAT_LIVE)
        verdict = side_verdict(header, point->key);
    if (verdict == FORMAT_LIVE)
        verdict = header->version == version && proven(point, image, header) ? FORMAT_MISS : FORMAT_TORN;
    return verdict;
}

enum format_verdict format_point_verdict_locked(const struct format_point *point, const uint8_t *image,
                                                const struct format_header *header, struct format_slot *slot)
{
    enum format_verdict verdict = side_verdict(header, point->key);
    if (verdict != FORMAT_LIVE)
        return verdict;
    if (find(point, image, header->version, slot))
        return FORMAT_HIT;
    return proven(point, image, header) ? FORMAT_MISS : FORMAT_TORN;
}

enum format_verdict format_point_verdict_in_place(const struct format_point *point, const uint8_t *shared,
                                                  uint8_t *image, const struct format_header *header,
                                                  struct format_slot *slot)
{
    const struct format_bucket *bucket = &point->bucket;
    enum format_verdict verdict = side_verdict(header, point->key);
    if (verdict != FORMAT_LIVE)
        return verdict;
    const uint32_t seed = format_slot_seed(point->link.tag, header->version);
    if (format_bucket_find_shared(point->layout, shared, image, bucket, seed, point->key, slot))
        return FORMAT_HIT;
    /* Found in no slot, it is most probably absent: one pass tells, where all slots are valid. */
    const bool sifts = format_layout_sifts(point->layout);
    if (sifts && format_slots_lack_shared(point->layout, shared, image, bucket->first, bucket->count, seed,
                                          format_key_head(point->key)))
        return FORMAT_MISS;
    atomic_copy_from(image + bucket->offset, shared + bucket->offset, bucket->bytes);
    if (!sifts && format_layout_plain(point->layout) &&
        format_slots_lack(point->layout, image, bucket->first, bucket->count, seed,
                          format_key_head(point->key)))
        return FORMAT_MISS;
    return format_point_verdict_locked(point, image, header, slot);
}

bool format_point_hit_in_place(const struct format_point *point, const uint8_t *shared, uint8_t *image,
                               struct format_slot *slot)
{
    /* Relaxed: the slot's check tells whether the two belong together. */
    uint16_t version =
        atomic_load_relaxed((const uint16_t *)(const void *)(shared + point->bucket.version_offset));
    return format_bucket_find_shared(point->layout, shared, image, &point->bucket,
                                     format_slot_seed(point->link.tag, version), point->key, slot);
}

/* ---- whole leaves ---- */

static enum format_verdict position_verdict(const struct format_header *header,
                                            const struct format_position *position)
{
    if (!position->reverse)
        return side_verdict(header, position->key);
    if (header->has_upper && (position->unbounded || format_key_compare(position->key, header->upper) > 0))
        return FORMAT_RIGHT;
    if (position->unbounded || format_key_compare(position->key, header->lower) > 0)
        return FORMAT_LIVE;
    return FORMAT_LEFT;
}

enum format_verdict format_leaf_verdict(const struct format_layout *layout, const uint8_t *image,
                                        struct format_link link, uint16_t index,
                                        const struct format_position *position, struct format_header *header)
{
    enum format_verdict verdict = reader_verdict(layout, image, link, index, header);
    return verdict == FORMAT_LIVE ? position_verdict(header, position) : verdict;
}
