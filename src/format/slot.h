/*
 * slot.h - one slot of a leaf: a key, its value, and the check by which both prove themselves.
 *
 * Slot: 4 check | key part | [value length] | value, padded to 4. The check's lowest bit is 1 for a taken
 * slot. Taken: CRC32C of tag, version, whole key, value. Empty: of tag and version alone; key and value bytes
 * of an empty slot mean nothing. Fixed key part: the key. Variable key part: key length, remainder length,
 * remainder (inline_key_bytes). The bytes before the remainder, the prefix, are those that the key shares
 * with the leaf's lower fence key. That fence key never changes (splits and unlinks move the upper one), so
 * neither does the meaning of a slot. A separator shares at least as many bytes with a key to its right as
 * the lower fence key does, so an entry that fits a slot of a leaf fits the slots of its siblings.
 *
 * Long slot: where the remainder is longer than inline_key_bytes (then at least 16), the key part is: key
 * length, FORMAT_SLOT_LONG, 8 address of the key block, 8 XXH3-64 of the whole key. The check covers these
 * bytes as they lie and the value, so that it can be computed without a read of the block; the hash tells
 * whether a block that was read is the slot's. The key block holds the whole key and nothing else, in a block
 * of memory_block_bytes(key length). A key stays in a block as long as it is in the index, even when its
 * remainder would fit into a slot by now.
 *
 * Pure, as header.h.
 */
#ifndef FORMAT_SLOT_H
#define FORMAT_SLOT_H

#include "base/crc32c.h"
#include "fabric/fabric.h"
#include "format/geometry.h"
#include "format/key.h"

/* Tag and version, as the eight bytes with which the CRC that is a slot's check begins. */
static inline uint64_t format_slot_front(uint32_t tag, uint16_t version)
{
    return (uint64_t)tag | (uint64_t)version << 32;
}

/* A slot's check starts with this CRC of tag and version. */
uint32_t format_slot_seed(uint32_t tag, uint16_t version);
static inline uint32_t format_slot_empty_check(uint32_t seed)
{
    return seed & ~1u;
}

enum format_slot_state { FORMAT_SLOT_EMPTY, FORMAT_SLOT_TAKEN, FORMAT_SLOT_INVALID };

struct format_slot {
    uint32_t number;
    struct format_key value;
    uint32_t prefix_length;      /* bytes of the key that the leaf's lower fence key supplies */
    struct format_key remainder; /* the rest, in the image (fixed keys: the whole key) */
    gaddr block;                 /* long slots: of the key; else GADDR_NULL */
    /* long slots only */
    uint32_t key_length;
    uint64_t hash;
};

/* Stands in the place of a remainder's length. */
#define FORMAT_SLOT_LONG 0xffu

/* Validates a slot by its check. `lower`: the leaf's lower fence key, which has variable keys' prefixes. */
enum format_slot_state format_slot_read(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number, uint32_t seed, struct format_key lower,
                                        struct format_slot *slot);
/* Fixed keys and values: the taken ones of all slots, with their keys' heads, into `taken`, which has room
 * for all. Returns how many they are; CRC32C_NONE if a slot is not valid. */
uint32_t format_slots_taken(const struct format_layout *layout, const uint8_t *image, uint32_t seed,
                            struct crc32c_piece *taken);
/* The same of a leaf's own bytes, which others may be writing: what is judged is copied to its place in the
 * image, but for the checks. Bit i of *taken says whether slot i is; false if a slot is not valid. For
 * layouts that format_layout_sifts says. */
bool format_slots_take(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                       uint32_t seed, uint64_t *taken);
/* R2's second half: every slot of the range is valid under the seed. */
bool format_slots_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed, struct format_key lower);
/* Fixed keys and values, in one pass: true if every slot of the range is valid, and no key in them has this
 * head. False says nothing. */
bool format_slots_lack(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                       uint32_t count, uint32_t seed, uint64_t head);
/* format_slots_lack of a leaf's own bytes, with the right to change them: what is judged is copied to its
 * place in the image, the checks too where it is true. For layouts that format_layout_sifts says. */
bool format_slots_lack_shared(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                              uint32_t first, uint32_t count, uint32_t seed, uint64_t head);
/* Bytes of the key that an inline slot of this leaf would have to hold. */
uint32_t format_slot_remainder(const struct format_layout *layout, struct format_key lower,
                               struct format_key key);
/* Whether they are too many, so that the key needs a block of its own. */
static inline bool format_slot_needs_block(const struct format_layout *layout, struct format_key lower,
                                           struct format_key key)
{
    return layout->long_keys && format_slot_remainder(layout, lower, key) > layout->geometry.inline_key_bytes;
}
/* Writes key, value and check into the image: a long slot if there is a `block`, which then holds the key;
 * else the remainder must fit. */
void format_slot_write(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower, gaddr block, struct format_key key, struct format_key value);
/* Gives a valid, taken slot the check for another seed; nothing else in it changes. */
void format_slot_renew(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower);
/* Fixed keys and values: gives many slots at once the checks of taken ones, whatever checks they have. */
void format_slots_seal(const struct format_layout *layout, uint8_t *image, const uint32_t *numbers,
                       uint32_t count, uint32_t seed);
/* Fixed keys and values: what format_slot_write does in a slot that is all zeros but for its check, which
 * format_slots_seal is to write. */
static inline void format_slot_place(const struct format_layout *layout, uint8_t *image, uint32_t number,
                                     struct format_key key, struct format_key value)
{
    uint8_t *bytes = image + layout->slot_offset[number] + 4;
    if (key.length == 8 && value.length == 8) { /* by far the most, and not worth a call */
        memcpy(bytes, key.bytes, 8);
        memcpy(bytes + 8, value.bytes, 8);
        return;
    }
    memcpy(bytes, key.bytes, key.length);
    if (value.length)
        memcpy(bytes + key.length, value.bytes, value.length);
}
/* The key's hash in a valid long slot. */
static inline uint64_t format_slot_hash(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number)
{
    uint64_t hash;
    memcpy(&hash, image + layout->slot_offset[number] + 14, sizeof hash);
    return hash;
}
void format_slot_clear(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed);
/* All slots of a leaf. */
void format_slots_clear(const struct format_layout *layout, uint8_t *image, uint32_t seed);

#endif
