/*
 * slot.h - one slot of a leaf: a key, its value, and the check by which both prove themselves.
 *
 * Slot: 4 check | key part | [value length] | value, padded to 4. The check's lowest bit is 1 for a taken
 * slot. Taken: CRC32C of tag, version, whole key, value. Empty: of tag and version alone; key and value bytes
 * of an empty slot mean nothing. Fixed key part: the key. Variable key part: key length, remainder length,
 * remainder (inline_key_bytes). The bytes before the remainder are those that the key shares with the leaf's
 * lower fence key. The lower fence key of a leaf never changes (splits and unlinks move the upper one), so
 * neither does what a slot means; and a separator shares at least as much with a key to its right as the
 * fence key before it did, so what fits a slot of a leaf fits its siblings' slots.
 *
 * Long slot: where the remainder is longer than inline_key_bytes (then at least 16), the key part is: key
 * length, FORMAT_SLOT_LONG, 8 address of the key block, 8 XXH3-64 of the whole key. The check covers these
 * bytes as they lie and the value, so it needs no read of the block; the hash says whether a block that was
 * read is the slot's. The key block is the whole key and nothing else, in a block of memory_block_bytes(key
 * length). A key stays in its block while it stays in the index, also where its remainder would fit by now.
 *
 * Pure, as header.h.
 */
#ifndef FORMAT_SLOT_H
#define FORMAT_SLOT_H

#include "fabric/fabric.h"
#include "format/geometry.h"
#include "format/key.h"

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
#define FORMAT_SLOT_LONG 0xffu

/* Judges a slot by its own check; `lower` supplies variable keys' prefixes (the leaf's lower fence). */
enum format_slot_state format_slot_read(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number, uint32_t seed, struct format_key lower,
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

#endif
