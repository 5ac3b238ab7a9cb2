/*
 * entries.h - a leaf's entries: decoded from an image in key order, and laid out into a new image. Private to
 * src/tree/. Works in the session's buffers. No round trip, but one for a leaf with long keys, and what a
 * fresh tag costs (pool_take_tag).
 */
#ifndef TREE_ENTRIES_H
#define TREE_ENTRIES_H

#include "format/leaf.h"
#include "tree/session.h"

struct tree_leaf_entry {
    uint64_t head; /* the key's first eight bytes: sorts all but a few */
    struct format_key key, value;
    gaddr block;     /* of a long key; else GADDR_NULL */
    uint32_t number; /* of its slot */
};

/* Decodes a leaf's taken slots into session->entries in key order; keys point into the image or into
 * session->keys. 0 with *count, TREE_RESTART if a slot is not valid under the header's version (R5), or
 * BANYAN_ENOMEM. */
int tree_leaf_entries(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                      const struct format_header *header, uint32_t *count);
/* Of a leaf marked as splitting or merging: its entries under either version, in no order, into
 * session->entries; fixed keys too point into the image. */
int tree_leaf_halves(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                     const struct format_header *header, uint32_t *count);
/* As tree_leaf_entries, but leaves it to tree_leaf_entry_at to give the entries one by one, in key order. */
int tree_leaf_order(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                    const struct format_header *header, uint32_t *count);
/* What a leaf keeps of the order of its entries (format/leaf.h). */
struct tree_kept_order {
    uint8_t numbers[FORMAT_SIFTED_MAX]; /* of slots, in the order of their keys; modulo FORMAT_SIFTED_MAX */
    bool stale;                         /* the leaf keeps others */
};
/* As tree_leaf_order, of a leaf's own bytes, which others may be writing: only its header is in the image
 * yet. For layouts that format_layout_sifts says. With `kept`, which may be NULL, tries first what the leaf
 * keeps of the order, and says what it should keep. */
int tree_leaf_order_shared(struct tree_session *session, const struct format_layout *layout,
                           const uint8_t *shared, uint8_t *image, const struct format_header *header,
                           struct tree_kept_order *kept, uint32_t *count);
static inline void tree_leaf_entry_at(const struct tree_session *session, const struct format_layout *layout,
                                      const uint8_t *image, uint32_t number, struct tree_leaf_entry *entry)
{
    const struct crc32c_piece order = session->order[number];
    if (!format_layout_plain(layout)) {
        *entry = session->entries[layout->slots + order.number];
        return;
    }
    const uint8_t *key = image + layout->slot_offset[order.number] + 4;
    entry->head = order.head;
    entry->number = order.number;
    entry->key = (struct format_key){key, layout->geometry.key_bytes};
    entry->block = GADDR_NULL;
    entry->value = (struct format_key){key + layout->geometry.key_bytes, layout->geometry.value_bytes};
}

/* Tags tried for one leaf. With two thirds of its slots taken, about two tags in three will do. */
#define TREE_TAG_TRIES 512u
/* Tags among which the one is chosen that leaves the fullest bucket most room: so the leaf takes more entries
 * before it must be split. */
#define TREE_TAG_CHOICE 4u
/* Builds a leaf in `image` under a fresh tag of that memory node with which all entries find room in their
 * buckets, the best of `choice` (1: the first); sets header->tag and version. *fits false: none of so many
 * tags would do. A tag that is tried costs a hash for each entry. */
int tree_leaf_build(struct tree_session *session, const struct format_layout *layout, uint16_t node,
                    unsigned tries, unsigned choice, struct format_header *header,
                    const struct tree_leaf_entry *entries, uint32_t count, uint8_t *image, bool *fits);
/* The shortest key that is greater than `left` and at most `right`: a prefix of right (fixed keys: right
 * itself). */
struct format_key tree_separator(const struct format_layout *layout, struct format_key left,
                                 struct format_key right);

#endif
