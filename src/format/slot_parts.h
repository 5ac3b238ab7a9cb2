/*
 * slot_parts.h - what a slot is made of, inlined into the searches of slot.c and leaf.c. Private to
 * src/format/.
 */
#ifndef FORMAT_SLOT_PARTS_H
#define FORMAT_SLOT_PARTS_H

#include "base/crc32c.h"
#include "format/slot.h"

static inline uint32_t slot_check(const uint8_t *image)
{
    uint32_t check;
    memcpy(&check, image, 4);
    return check;
}

static inline uint32_t slot_value_length(const struct format_layout *layout, const uint8_t *slot)
{
    return layout->geometry.value_variable ? slot[layout->value_offset] : layout->geometry.value_bytes;
}

/* The check of a long slot: of its key part as it lies, and the value. */
static inline uint32_t slot_long_check(uint32_t seed, const uint8_t *bytes, struct format_key value)
{
    uint8_t length = (uint8_t)value.length;
    uint32_t crc = crc32c(seed, bytes + 4, 2 + FORMAT_LONG_PART_BYTES);
    crc = crc32c(crc, &length, sizeof length);
    return crc32c(crc, value.bytes, value.length) | 1u;
}

/* The check of a taken slot whose whole key is prefix + remainder. */
static inline uint32_t slot_taken_check(const struct format_layout *layout, uint32_t seed,
                                        struct format_key prefix, struct format_key remainder,
                                        struct format_key value)
{
    uint32_t crc = seed;
    if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE) {
        const uint8_t lengths[2] = {(uint8_t)(prefix.length + remainder.length), (uint8_t)value.length};
        const struct crc32c_part parts[] = {{lengths, sizeof lengths},
                                            {prefix.bytes, prefix.length},
                                            {remainder.bytes, remainder.length},
                                            {value.bytes, value.length}};
        crc = crc32c_parts(crc, parts, sizeof parts / sizeof *parts);
    } else if (remainder.bytes + remainder.length == value.bytes) {
        crc = crc32c(crc, remainder.bytes, remainder.length + value.length);
    } else {
        crc = crc32c(crc, remainder.bytes, remainder.length);
        crc = crc32c(crc, value.bytes, value.length);
    }
    return crc | 1u;
}

/* The same of a variable key that lies as a whole, in a layout of such keys. */
static inline uint32_t slot_whole_check(uint32_t seed, struct format_key key, struct format_key value)
{
    const uint8_t lengths[2] = {(uint8_t)key.length, (uint8_t)value.length};
    const struct crc32c_part parts[] = {
        {lengths, sizeof lengths}, {key.bytes, key.length}, {value.bytes, value.length}};
    return crc32c_parts(seed, parts, sizeof parts / sizeof *parts) | 1u;
}

/* Takes a slot apart; false if its lengths are impossible. */
static inline bool slot_parse(const struct format_layout *layout, const uint8_t *bytes,
                              struct format_slot *slot)
{
    uint32_t length = slot_value_length(layout, bytes);
    if (length > layout->geometry.value_bytes)
        return false;
    slot->value = (struct format_key){bytes + layout->value_offset + layout->geometry.value_variable, length};
    slot->block = GADDR_NULL;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED) {
        slot->prefix_length = 0;
        slot->remainder = (struct format_key){bytes + 4, layout->geometry.key_bytes};
        return true;
    }
    uint32_t key_length = bytes[4], remainder = bytes[5];
    if (remainder == FORMAT_SLOT_LONG && layout->long_keys) {
        memcpy(&slot->block, bytes + 6, sizeof slot->block);
        memcpy(&slot->hash, bytes + 14, sizeof slot->hash);
        slot->key_length = key_length;
        slot->prefix_length = 0;
        slot->remainder = (struct format_key){bytes + 6, 0};
        return key_length && key_length <= layout->geometry.key_bytes && slot->block != GADDR_NULL;
    }
    if (remainder > key_length || remainder > layout->geometry.inline_key_bytes || !key_length)
        return false;
    slot->prefix_length = key_length - remainder;
    slot->remainder = (struct format_key){bytes + 6, remainder};
    return true;
}

/* The check that a parsed slot should have; `front` begins with the prefix that the slot leaves out. */
static inline uint32_t slot_proven_check(const struct format_layout *layout, uint32_t seed,
                                         const uint8_t *bytes, struct format_key front,
                                         const struct format_slot *slot)
{
    if (slot->block != GADDR_NULL)
        return slot_long_check(seed, bytes, slot->value);
    struct format_key prefix = {front.bytes, slot->prefix_length};
    return slot_taken_check(layout, seed, prefix, slot->remainder, slot->value);
}

#endif
