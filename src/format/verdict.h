/*
 * verdict.h - what the bytes of a leaf say: R1 and R2 for a point, R5 for a range (docs/internals/tree.md).
 * Every reader and writer of leaves, on compute nodes and memory nodes, one-sided or not, goes by these
 * verdicts.
 *
 * Pure, as header.h: an image, the link that led to it and the index's number come in, a verdict comes out.
 * What a verdict leads to (read again, walk right, finish an unlink, call the leaf corrupt) is the caller's:
 * under the leaf's lock the same bytes mean more than without it.
 */
#ifndef FORMAT_VERDICT_H
#define FORMAT_VERDICT_H

#include "base/atomic.h"
#include "format/leaf.h"

enum format_verdict {
    FORMAT_LIVE,      /* a node: it is the link's, and sound */
    FORMAT_HIT,       /* a point: the slot is the key's (R1) */
    FORMAT_MISS,      /* a point: the key is not in the index (R2) */
    FORMAT_UNPROVEN,  /* a point: not among the slots; the header must say what that means */
    FORMAT_TORN,      /* the bytes do not fit together: read again; under the lock: corrupt */
    FORMAT_MALFORMED, /* the header's check holds, but it says what no header can say */
    FORMAT_OTHER,     /* another node lies here now (R6) */
    FORMAT_LEVEL,     /* the link's node, on another level than its parent says */
    FORMAT_SPLITTING, /* marked (R3): the new link must not be followed yet */
    FORMAT_MERGING,   /* marked (R7): a miss in it says nothing yet */
    FORMAT_FROZEN,    /* a node (R7): to readers as good as a live one; its entries must not be changed */
    FORMAT_DEAD,      /* the link's node, dead (R4) */
    FORMAT_LEFT,      /* the key or position lies left of the node's fence keys */
    FORMAT_RIGHT,     /* ... right of them: the sibling is next */
};

/* A node by its header, whose bytes are in the image: TORN, MALFORMED, OTHER, LEVEL, DEAD, SPLITTING,
 * MERGING, FROZEN or LIVE. *header is decoded unless TORN or MALFORMED, and all zeros where TORN. */
enum format_verdict format_node_verdict(const struct format_layout *layout, const uint8_t *image,
                                        struct format_link link, uint16_t index, uint8_t level,
                                        struct format_header *header);

/* A key, and where it lies in the leaf that a link names. */
struct format_point {
    const struct format_layout *layout;
    struct format_link link;
    uint16_t index;
    struct format_key key;
    struct format_bucket bucket;
};
static inline void format_point_set(struct format_point *point, const struct format_layout *layout,
                                    struct format_link link, uint16_t index, struct format_key key)
{
    *point = (struct format_point){.layout = layout, .link = link, .index = index, .key = key};
    format_bucket_of(layout, link.tag, key, &point->bucket);
}

/* What of the leaf has been read into the image since the last verdict on this point. */
enum format_seen {
    FORMAT_SEEN_BUCKET = 1, /* and no header: HIT or UNPROVEN */
    FORMAT_SEEN_HEADER = 2, /* after UNPROVEN, behind the bucket in time */
    FORMAT_SEEN_BOTH = 3,
};
/*
 * R1 and R2. HIT sets *slot. Otherwise, where the header was seen: MISS if it is that of a live or frozen
 * leaf whose fence keys hold the key, and every slot of the bucket is valid under its version; else what
 * keeps it from being one. *header is as format_node_verdict leaves it; it is not touched before the header
 * was seen, nor for a HIT.
 */
enum format_verdict format_point_verdict(const struct format_point *point, const uint8_t *image,
                                         enum format_seen seen, struct format_header *header,
                                         struct format_slot *slot);
/*
 * The same for a caller that holds the right to change the leaf, and has found *header LIVE: HIT, MISS, LEFT,
 * RIGHT, or TORN.
 */
enum format_verdict format_point_verdict_locked(const struct format_point *point, const uint8_t *image,
                                                const struct format_header *header, struct format_slot *slot);

/*
 * The same for a leaf's own bytes, `shared`, of which only the header is in the image yet. What the verdict
 * rests on is copied into the image, and judged there: the key's slot, or all of the bucket.
 */
enum format_verdict format_point_verdict_in_place(const struct format_point *point, const uint8_t *shared,
                                                  uint8_t *image, const struct format_header *header,
                                                  struct format_slot *slot);
/* R1 for a leaf's own bytes, by a reader without any right: true for a HIT, with the slot in the image; false
 * says nothing. */
bool format_point_hit_in_place(const struct format_point *point, const uint8_t *shared, uint8_t *image,
                               struct format_slot *slot);

/*
 * The same in as few instructions as there can be, where format_layout_words says that keys and values are
 * eight bytes: they are taken and given as they lie, nothing is copied but the value, and the index and the
 * rest of a point are not asked for. `bucket`: the key's, under the tag.
 */
static inline bool format_layout_words(const struct format_layout *layout)
{
    const struct format_geometry *geometry = &layout->geometry;
    return geometry->key_bytes == 8 && geometry->value_bytes == 8 && format_layout_plain(layout);
}
static inline bool format_word_in_place(const struct format_layout *layout, uint32_t tag,
                                        const struct format_bucket *bucket, const uint8_t *shared,
                                        uint64_t key, uint64_t *value)
{
    /* Relaxed: the slot's check tells whether the two belong together. */
    const uint16_t version =
        atomic_load_relaxed((const uint16_t *)(const void *)(shared + bucket->version_offset));
    return crc32c_find_shared(format_slot_front(tag, version), shared, layout->slot_offset + bucket->first,
                              bucket->count, key, value);
}

/* Where a scan stands: it has delivered all keys below `key`, or in reverse all from `key` on. */
struct format_position {
    struct format_key key;
    bool reverse;
    bool unbounded; /* reverse: at the very end, whatever `key` is */
};
/*
 * R5, but for the slots: LIVE if the leaf's range begins or continues at the position, so that its entries
 * are due next; RIGHT, if a leaf further right holds what is due; LEFT, if the leaf holds nothing that is due
 * and nothing says where to go on. A frozen leaf counts as a live one. All else as format_node_verdict. The
 * entries may be delivered if besides every slot is valid under the header's version
 * (format_leaf_order_fixed, format_slot_read).
 */
enum format_verdict format_leaf_verdict(const struct format_layout *layout, const uint8_t *image,
                                        struct format_link link, uint16_t index,
                                        const struct format_position *position, struct format_header *header);

#endif
