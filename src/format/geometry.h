/*
 * geometry.h - the geometry of an index: what is fixed when the index is created, and the layout that follows
 * from it, the offsets and sizes of everything in a node.
 *
 * Pure computation: no round trip. Only format_layout_init allocates (the layout's table), so only it and
 * format_geometry_complete, which tries it, can fail. Everything else may be called from any thread.
 */
#ifndef FORMAT_GEOMETRY_H
#define FORMAT_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define FORMAT_KEY_MAX   255u
#define FORMAT_VALUE_MAX 255u

enum format_key_kind { FORMAT_KEY_FIXED, FORMAT_KEY_VARIABLE };
/* Where in its leaf an entry may stand: in the bucket that a hash of its key chooses, or in any slot.
 * Unsorted leaves are Sherman's (section 4.4), to compare with: they hold more before they are full, and a
 * point read has to fetch all of their slots. Dense leaves are hashed ones with fewer and larger buckets:
 * they hold more before a bucket is full, and a point read fetches some more. */
enum format_leaf_kind { FORMAT_LEAF_HASHED, FORMAT_LEAF_UNSORTED, FORMAT_LEAF_DENSE };
#define FORMAT_LEAF_KIND_LAST FORMAT_LEAF_DENSE
extern const char *const format_leaf_kind_names[]; /* NULL-terminated */

struct format_geometry {
    uint32_t leaf_bytes;     /* power of two, 512 to 64 KiB. 0: 1024; with variable keys 4096 */
    uint32_t internal_bytes; /* power of two, 512 to 4096, at most the fabric's atomic_write. 0: 1024, or more
                                where long variable keys need it */
    uint8_t key_kind;        /* enum format_key_kind */
    uint8_t key_bytes; /* fixed keys: exactly, 8 to 255; variable keys: at most, 1 to 255. 0: as many as fit
                          into nodes that the fabric can write at once: 255 where these have 2,048 bytes or
                          more */
    uint8_t inline_key_bytes; /* variable keys: longest remainder kept in a slot; a key with a longer one has
                                 a block of its own (slot.h). At least 16 if key_bytes is more. 0: 24 */
    uint8_t value_bytes;      /* exactly (fixed) or at most (variable) this many, 0 to 255 */
    bool value_variable;
    uint8_t content;   /* enum format_content: what the values mean */
    uint8_t leaf_kind; /* enum format_leaf_kind */
    /* Placement (docs/internals/tree.md): nodes below this level lie on the memory node of the node above
     * them, so the subtree under each node of the level below it lies on one. 0: nodes are spread, each by
     * itself. FORMAT_SUBTREE_DEFAULT: so many that such a subtree has about FORMAT_SUBTREE_BYTES. */
    uint8_t subtree_levels;
};
#define FORMAT_SUBTREE_LEVELS_MAX 7u
#define FORMAT_SUBTREE_DEFAULT    255u
#define FORMAT_SUBTREE_BYTES      (UINT64_C(64) << 20) /* Cell's meganode (section 2.1) */
enum format_content { FORMAT_CONTENT_PLAIN = 0, FORMAT_CONTENT_STORE = 1 };

/* Fills in the defaults and checks the rest. BANYAN_EINVAL with a message, BANYAN_ENOMEM. */
int format_geometry_complete(struct format_geometry *geometry, uint32_t atomic_write, struct error *error);
/* What follows from a geometry, for reports; all 0 if it is impossible. */
struct format_geometry_shape {
    uint32_t slot_bytes, slots, bucket_read_bytes, header_bytes, internal_entries;
};
void format_geometry_shape(const struct format_geometry *geometry, struct format_geometry_shape *shape);

/* ---- layout: a geometry turned into offsets ---- */

/* A leaf has no more buckets than these: the largest leaves with tiny entries leave room unused. */
#define FORMAT_BUCKETS_MAX     512u
#define FORMAT_HEADER_FIXED    32u
#define FORMAT_BODY_CRC_BYTES  4u  /* of an internal node */
#define FORMAT_LONG_PART_BYTES 16u /* of a long slot: the key block's address, the key's hash */
#define FORMAT_TRIPLE_VERSION  4u  /* in each triple of a leaf: version and two zero bytes */

struct format_layout {
    struct format_geometry geometry;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t value_offset;  /* in a slot: of the value, or of its length byte if it has one */
    uint32_t segment_slots; /* of A and of B; unsorted leaves: 0 */
    uint32_t overflow_slots;
    uint32_t triples, triple_slots, triple_bytes;
    uint32_t slots;
    uint32_t used_bytes; /* of a leaf: what lies behind them holds nothing, and a reader need not fetch it */
    uint32_t buckets;    /* 2 * triples; unsorted leaves: 1, of all slots */
    uint32_t bucket_bytes;     /* of a point read */
    uint32_t bucket_slots;     /* segment + overflow */
    uint32_t internal_entries; /* that fit; variable keys: of the longest keys */
    uint32_t entry_bytes;      /* fixed keys */
    uint32_t *slot_offset;     /* [slots], owned */
    bool long_keys;            /* a key may be too long for an inline slot */
};

/* The geometry must be complete. BANYAN_ENOMEM, BANYAN_EINVAL with a message. */
int format_layout_init(struct format_layout *layout, const struct format_geometry *geometry,
                       struct error *error);
void format_layout_free(struct format_layout *layout);
/* About so many bytes has a subtree of so many levels, whose nodes are as full as random insertions leave
 * them. */
double format_subtree_bytes(const struct format_layout *layout, uint8_t levels);
/* Keys and values are fixed: a slot holds both as they are. */
static inline bool format_layout_plain(const struct format_layout *layout)
{
    return layout->geometry.key_kind == FORMAT_KEY_FIXED && !layout->geometry.value_variable;
}
/* And a slot's check covers as many bytes as crc32c_sift_shared is quick with, and the slots are so few that
 * one word has a bit for each. */
#define FORMAT_SIFTED_BYTES 16u
#define FORMAT_SIFTED_MAX   64u
static inline bool format_layout_sifts(const struct format_layout *layout)
{
    const struct format_geometry *geometry = &layout->geometry;
    return format_layout_plain(layout) &&
           geometry->key_bytes + geometry->value_bytes == FORMAT_SIFTED_BYTES &&
           layout->slots <= FORMAT_SIFTED_MAX;
}
/* And behind the slots, where nothing lies, as many bytes: the leaf can keep its order (leaf.h). */
static inline bool format_layout_keeps_order(const struct format_layout *layout)
{
    return format_layout_sifts(layout) && layout->geometry.leaf_bytes - layout->used_bytes >= layout->slots;
}

#endif
