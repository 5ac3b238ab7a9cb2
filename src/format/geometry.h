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

struct format_geometry {
    uint32_t leaf_bytes;     /* power of two, 512 to 64 KiB. 0: 1024, variable keys 4096 */
    uint32_t internal_bytes; /* power of two, 512 to 4096, at most the fabric's atomic_write; 0: 1024, or what
                                long variable keys need */
    uint8_t key_kind;        /* enum format_key_kind */
    uint8_t key_bytes; /* fixed: exactly, 8 to 255; variable: at most, 1 to 255 (0: as many as nodes can hold
                          that the fabric writes at once; 255 where that is 2,048 bytes or more) */
    uint8_t inline_key_bytes; /* variable: longest remainder kept in a slot; what is longer stands in a block
                                 of its own (slot.h). At least 16 if key_bytes is more. 0: 24 */
    uint8_t value_bytes;      /* exactly (fixed) or at most (variable) this many, 0 to 255 */
    bool value_variable;
    uint8_t content; /* enum format_content: what the values mean */
};
enum format_content { FORMAT_CONTENT_PLAIN = 0, FORMAT_CONTENT_STORE = 1 };

/* Fills defaults and checks. */
int format_geometry_complete(struct format_geometry *geometry, uint32_t atomic_write, struct error *error);
/* Slots of a leaf, bytes of a slot, bytes of a point read: for reports. */
struct format_geometry_shape {
    uint32_t slot_bytes, slots, bucket_read_bytes, header_bytes, internal_entries;
};
void format_geometry_shape(const struct format_geometry *geometry, struct format_geometry_shape *shape);

/* ---- layout: a geometry turned into offsets ---- */

/* A leaf of more than this many buckets leaves room unused: tiny entries in the largest leaves. */
#define FORMAT_BUCKETS_MAX     512u
#define FORMAT_HEADER_FIXED    32u
#define FORMAT_BODY_CRC_BYTES  4u  /* of an internal node */
#define FORMAT_LONG_PART_BYTES 16u /* of a long slot: the key block's address, the key's hash */
#define FORMAT_TRIPLE_HEAD     4u  /* between the segments of a triple: its version and two zero bytes */

struct format_layout {
    struct format_geometry geometry;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t value_offset;  /* in a slot, of the length byte if there is one, else of the value */
    uint32_t segment_slots; /* of A and of B */
    uint32_t overflow_slots;
    uint32_t triples, triple_slots, triple_bytes;
    uint32_t slots;
    uint32_t buckets;          /* 2 * triples */
    uint32_t bucket_bytes;     /* of a point read */
    uint32_t bucket_slots;     /* segment + overflow */
    uint32_t internal_entries; /* fixed keys: capacity; variable keys: of the longest keys */
    uint32_t entry_bytes;      /* fixed keys */
    uint32_t *slot_offset;     /* [slots], owned */
    bool long_keys;            /* there are keys that an inline slot may be too short for */
};

/* The geometry must be complete. BANYAN_ENOMEM, BANYAN_EINVAL with a message. */
int format_layout_init(struct format_layout *layout, const struct format_geometry *geometry,
                       struct error *error);
void format_layout_free(struct format_layout *layout);
/* Fixed keys and values: slots are entries as they lie. */
static inline bool format_layout_plain(const struct format_layout *layout)
{
    return layout->geometry.key_kind == FORMAT_KEY_FIXED && !layout->geometry.value_variable;
}

#endif
