/*
 * header.h - the header at the beginning of every node, leaf or internal, and the links that lead to nodes.
 *
 * Bytes (little-endian):
 *   0 crc32c | 4 tag | 8 version u16 | 10 level | 11 state | 12 index u16 | 14 zero | 15 flags
 *   16 sibling address u64 | 24 sibling tag | 28 lower length | 29 upper length | 30 entry count u16
 *   32 lower fence key, then upper fence key (fixed keys: key_bytes each; variable ones: one behind the
 * other) The crc covers the header as far as the fence keys reach.
 *
 * Pure: the functions work on private copies of node bytes (images), allocate nothing, cost no round trip,
 * and may be called on any thread. The contents of an image are trusted only after their check held.
 */
#ifndef FORMAT_HEADER_H
#define FORMAT_HEADER_H

#include "fabric/fabric.h"
#include "format/geometry.h"
#include "format/key.h"

struct format_link {
    gaddr address;
    uint32_t tag;
};
static inline bool format_link_equal(struct format_link a, struct format_link b)
{
    return a.address == b.address && a.tag == b.tag;
}

/* Far beyond what the smallest nodes could need. */
#define FORMAT_LEVEL_MAX 28u

enum format_node_state {
    FORMAT_NODE_LIVE = 1,
    FORMAT_NODE_SPLITTING = 2, /* R3: its upper part moves to a new sibling; R8: all of it does */
    FORMAT_NODE_DEAD = 3,      /* R4; R8: its sibling link leads to its copy */
    FORMAT_NODE_FROZEN = 4,    /* R7: its entries may be moving to the left neighbour, and must not change */
    FORMAT_NODE_MERGING = 5,   /* R7: it takes over the entries of its sibling, which is frozen or dead */
};

struct format_header {
    uint32_t tag;
    uint16_t version;
    uint8_t level, state;
    uint16_t index;
    bool has_upper;                 /* else the node reaches to the end of the key space */
    uint16_t count;                 /* internal nodes */
    struct format_link sibling;     /* address 0 on the rightmost node */
    struct format_key lower, upper; /* of a decoded header: they point into the image */
};

/* Copies a header, as far as its fence keys reach, out of memory that others may be writing. */
void format_header_copy(const struct format_layout *layout, uint8_t *to, const uint8_t *shared);
/* After a READ of a header whose backend returned the mapped bytes in place: copies them, as far as the fence
 * keys reach, into the command's buffer. */
void format_header_settle(const struct format_layout *layout, const struct fabric_command *command);
/* Bytes of the header that mean something; more than there are if its lengths are impossible. */
static inline uint32_t format_header_used(const struct format_layout *layout, const uint8_t *image)
{
    return layout->geometry.key_kind == FORMAT_KEY_FIXED ? layout->header_bytes
                                                         : FORMAT_HEADER_FIXED + image[28] + image[29];
}
/* Decodes without a look at the crc; false if lengths or values are impossible. */
bool format_header_decode(const struct format_layout *layout, const uint8_t *image,
                          struct format_header *header);
/* True if the header's crc is right. Of a leaf it proves nothing more: each slot has a check of its own. */
bool format_header_valid(const struct format_layout *layout, const uint8_t *image);
/* header->lower and header->upper may point into the same image. Sets the header's crc;
 * format_internal_encode sets an internal node's second one. */
void format_header_encode(const struct format_layout *layout, const struct format_header *header,
                          uint8_t *image);
/* -1: the key is below the node's fence keys, 0: between them, 1: above. */
int format_header_side(const struct format_header *header, struct format_key key);
/* Of a node marked as splitting, or dead: whether it is moving, or has moved (R8). It ends where it begins,
 * and the node that its sibling link names has its range. */
static inline bool format_header_moves(const struct format_header *header)
{
    return header->has_upper && !format_key_compare(header->lower, header->upper);
}
/* True if the node that the link names still lies here, but is dead: its unlinking must be finished (R4). */
static inline bool format_header_departed(const struct format_header *header, struct format_link link,
                                          uint16_t index)
{
    return header->tag == link.tag && header->index == index && header->state == FORMAT_NODE_DEAD;
}

#endif
