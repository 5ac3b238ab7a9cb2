/*
 * layout.h - how nodes lie in the pool: geometry turned into offsets, the header, leaf slots, internal
 * entries.
 *
 * Everything here works on private copies of node bytes (an image), costs no round trip and allocates
 * nothing but a layout's tables. Nothing that comes out of an image is trusted before its check held.
 *
 * Header (both kinds; little-endian):
 *   0 crc32c | 4 tag | 8 version u16 | 10 level | 11 state | 12 index u16 | 14 zero | 15 flags
 *   16 sibling address u64 | 24 sibling tag | 28 lower length | 29 upper length | 30 entry count u16
 *   32 lower fence, then upper fence (fixed keys: key_bytes each; variable ones: one behind the other)
 * The crc covers the header as far as the fences reach. An internal node's body begins with a second one over
 * that crc and the rest of the node.
 *
 * Leaf: header, then `triples` of  bucket A | head | overflow | bucket B. The head is the leaf's version
 * (u16) and two zero bytes. A point read takes A+head+overflow or head+overflow+B: contiguous (Deft,
 * EuroSys'25). Slot: 4 check | key part | [value length] | value, padded to 4. The check's lowest bit is 1
 * for a taken slot. Taken: CRC32C of tag, version, whole key, value. Empty: of tag and version alone; key and
 * value bytes of an empty slot mean nothing. Fixed key part: the key. Variable key part: key length,
 * remainder length, remainder (inline_key_bytes). The bytes before the remainder are those that the key
 * shares with the leaf's lower fence. The lower fence of a leaf never changes (splits and unlinks move the
 * upper one), so neither does what a slot means; and a separator shares at least as much with a key to its
 * right as the fence before it did, so what fits a slot of a leaf fits its siblings' slots.
 *
 * Long slot: where the remainder is longer than inline_key_bytes (then at least 16), the key part is: key
 * length, FORMAT_SLOT_LONG, 8 address of the key block, 8 XXH3-64 of the whole key. The check covers these
 * bytes as they lie and the value, so it needs no read of the block; the hash says whether a block that was
 * read is the slot's. The key block is the whole key and nothing else, in a block of memory_block_bytes(key
 * length). A key stays in its block while it stays in the index, also where its remainder would fit by now.
 *
 * Internal node: header, body crc, then fixed keys: sorted {key, link address u64, link tag u32};
 * variable keys: u16 offsets from the node's start, sorted by key, each to {length, key, address, tag}.
 * The first entry's key is the node's lower fence. A link with address 0 in the first entry says that the
 * range up to the next entry belongs to the left neighbour's last child (unlink.c).
 */
#ifndef FORMAT_LAYOUT_H
#define FORMAT_LAYOUT_H

#include <string.h>

#include "tree/tree.h"

struct format_link {
    gaddr address;
    uint32_t tag;
};
static inline bool format_link_equal(struct format_link a, struct format_link b)
{
    return a.address == b.address && a.tag == b.tag;
}

struct format_key {
    const uint8_t *bytes;
    uint32_t length;
};
/* A key with room of its own. */
struct format_key_copy {
    uint16_t length;
    uint8_t bytes[FORMAT_KEY_MAX];
};

int format_key_compare(struct format_key a, struct format_key b);
uint32_t format_key_common(struct format_key a, struct format_key b);
void format_key_store(struct format_key_copy *copy, struct format_key key);
static inline struct format_key format_key_of(const struct format_key_copy *copy)
{
    return (struct format_key){copy->bytes, copy->length};
}
/* The first eight bytes as a number that orders like memcmp; shorter keys are padded with zeros. */
uint64_t format_key_head(struct format_key key);

/* A leaf of more than this many buckets leaves room unused: tiny entries in the largest leaves. */
#define FORMAT_BUCKETS_MAX 512u
/* Far beyond what the smallest nodes could need. */
#define FORMAT_LEVEL_MAX      28u
#define FORMAT_HEADER_FIXED   32u
#define FORMAT_BODY_CRC_BYTES 4u /* of an internal node */

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

/* ---- header ---- */

enum format_node_state { FORMAT_NODE_LIVE = 1, FORMAT_NODE_SPLITTING = 2, FORMAT_NODE_DEAD = 3 };

struct format_header {
    uint32_t tag;
    uint16_t version;
    uint8_t level, state;
    uint16_t index;
    bool has_upper;                 /* else the node reaches to the end of the key space */
    uint16_t count;                 /* internal nodes */
    struct format_link sibling;     /* address 0 on the rightmost node */
    struct format_key lower, upper; /* decoded: into the image */
};

/* Where a backend returned the mapped header in place: takes a private copy, as far as the fences reach. */
void format_header_settle(const struct format_layout *layout, const struct fabric_command *command);
/* Decodes without judging the crc; false if lengths or values are impossible. */
bool format_header_decode(const struct format_layout *layout, const uint8_t *image,
                          struct format_header *header);
/* True if the header proves itself: that is all of a leaf's proof, its slots have their own. */
bool format_header_valid(const struct format_layout *layout, const uint8_t *image);
bool format_internal_valid(const struct format_layout *layout, const uint8_t *image);
/* lower/upper may point into the same image. Sets the header's crc; an internal node is sealed by
 * format_internal_encode. */
void format_header_encode(const struct format_layout *layout, const struct format_header *header,
                          uint8_t *image);
/* -1: key below the node's fences, 0: within, 1: above. */
int format_header_side(const struct format_header *header, struct format_key key);
/* The node that the link names lies here yet, and is dead: whoever meets it finishes its unlinking (R4). */
static inline bool format_header_departed(const struct format_header *header, struct format_link link,
                                          uint16_t index)
{
    return header->tag == link.tag && header->index == index && header->state == FORMAT_NODE_DEAD;
}

/* ---- leaf ---- */

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
/* Starts a slot check: of tag and version. */
uint32_t format_slot_seed(uint32_t tag, uint16_t version);
static inline uint32_t format_slot_empty_check(uint32_t seed)
{
    return seed & ~1u;
}

enum format_slot_state { FORMAT_SLOT_EMPTY, FORMAT_SLOT_TAKEN, FORMAT_SLOT_INVALID };

struct format_slot {
    uint32_t number;
    struct format_key value;
    uint32_t head_length;        /* bytes of the key that the leaf's lower fence supplies */
    struct format_key remainder; /* the rest, in the image (fixed keys: the whole key) */
    gaddr block;                 /* long slots: of the key; else GADDR_NULL */
    /* long slots only */
    uint32_t key_length;
    uint64_t hash;
};

/* In the place of a remainder's length. */
#define FORMAT_SLOT_LONG       0xffu
#define FORMAT_LONG_PART_BYTES 16u /* address and hash */
/* What a long slot knows its key by. */
uint64_t format_key_hash(struct format_key key);

/* Judges a slot by its own check; `lower` supplies variable keys' prefixes (the leaf's lower fence). */
enum format_slot_state format_slot_read(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number, uint32_t seed, struct format_key lower,
                                        struct format_slot *slot);
/* Looks for a key among a bucket's slots without knowing the header (R1). True: hit, *slot is proven. */
bool format_bucket_find(const struct format_layout *layout, const uint8_t *image,
                        const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                        struct format_slot *slot);
/* Fixed keys and values: the checks that taken slots should have, computed for several at once; returns for
 * how many from `first` on. */
#define FORMAT_SLOT_RUN_MAX 64u
uint32_t format_slot_checks(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                            uint32_t count, uint32_t seed, uint32_t checks[FORMAT_SLOT_RUN_MAX]);
/* R2's second half: every slot of the range is valid under the seed. */
bool format_slots_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed, struct format_key lower);
/* How many bytes of the key an inline slot of this leaf would have to hold. */
uint32_t format_slot_remainder(const struct format_layout *layout, struct format_key lower,
                               struct format_key key);
/* Whether that is too much: the key needs a block of its own. */
static inline bool format_slot_needs_block(const struct format_layout *layout, struct format_key lower,
                                           struct format_key key)
{
    return layout->long_keys && format_slot_remainder(layout, lower, key) > layout->geometry.inline_key_bytes;
}
/* Writes key, value and check into the image: a long slot if there is a `block`, which then holds the key;
 * else the remainder must fit. */
void format_slot_write(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower, gaddr block, struct format_key key, struct format_key value);
/* Gives a proven slot the check of another version; nothing else of it changes. */
void format_slot_renew(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower);
/* Of a proven long slot. */
static inline uint64_t format_slot_hash(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number)
{
    uint64_t hash;
    memcpy(&hash, image + layout->slot_offset[number] + 14, sizeof hash);
    return hash;
}
void format_slot_clear(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed);
/* A free slot for a key of this bucket, own segment first; UINT32_MAX when full. */
uint32_t format_bucket_free_slot(const struct format_layout *layout, const uint8_t *image,
                                 const struct format_bucket *bucket, uint32_t seed);
/* An empty leaf with this header: heads and empty slots. */
void format_leaf_format(const struct format_layout *layout, const struct format_header *header,
                        uint8_t *image);

/* ---- internal nodes ---- */

struct format_entry {
    struct format_key key;
    struct format_link link;
};
/* Most entries that any internal node can hold (4,096 bytes, shortest variable keys). */
#define FORMAT_ENTRIES_MAX 320u

/* Decodes the entries of a valid internal node (keys point into the image); false if it is malformed. */
bool format_internal_decode(const struct format_layout *layout, const uint8_t *image,
                            const struct format_header *header,
                            struct format_entry entries[FORMAT_ENTRIES_MAX]);
/* Bytes that these entries need together with the header; compare with internal_bytes. */
uint32_t format_internal_size(const struct format_layout *layout, const struct format_entry *entries,
                              uint32_t count);
/* Builds header and entries in `image` (which no key may point into) and seals it. header->count is set. */
void format_internal_encode(const struct format_layout *layout, struct format_header *header,
                            const struct format_entry *entries, uint32_t count, uint8_t *image);

#endif
