/*
 * internal_node.h - internal nodes: sorted separators, each with a link to a node one level below.
 *
 * Header, a second crc over the header's crc and the rest of the node, then fixed keys: sorted {key, link
 * address u64, link tag u32}; variable keys: u16 offsets from the node's start, sorted by key, each to
 * {length, key, address, tag}. The first entry's key is the node's lower fence key. A link with address 0 in
 * the first entry says that the range up to the next entry belongs to the left neighbour's last child
 * (tree/unlink.c).
 *
 * Pure, as header.h.
 */
#ifndef FORMAT_INTERNAL_NODE_H
#define FORMAT_INTERNAL_NODE_H

#include "format/header.h"

/* True if both crcs are right. */
bool format_internal_valid(const struct format_layout *layout, const uint8_t *image);

struct format_entry {
    struct format_key key;
    struct format_link link;
};
/* As many entries as any internal node can hold: 4,096 bytes, shortest variable keys. */
#define FORMAT_ENTRIES_MAX 320u

/* Decodes the entries of a valid internal node (keys point into the image); false if it is malformed. */
bool format_internal_decode(const struct format_layout *layout, const uint8_t *image,
                            const struct format_header *header,
                            struct format_entry entries[FORMAT_ENTRIES_MAX]);
/* Bytes of a node with these entries; they fit if it is at most the geometry's internal_bytes. */
uint32_t format_internal_size(const struct format_layout *layout, const struct format_entry *entries,
                              uint32_t count);
/* Writes header and entries, with both crcs, into `image`; no key may point into it. Sets header->count. */
void format_internal_encode(const struct format_layout *layout, struct format_header *header,
                            const struct format_entry *entries, uint32_t count, uint8_t *image);

#endif
