/*
 * slot.c - See slot.h.
 */
#include "format/slot.h"

#include <assert.h>

#include "format/slot_parts.h"

uint32_t format_slot_seed(uint32_t tag, uint16_t version)
{
    uint64_t word = (uint64_t)tag | (uint64_t)version << 32;
    return crc32c(0, &word, sizeof word);
}

enum format_slot_state format_slot_read(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number, uint32_t seed, struct format_key lower,
                                        struct format_slot *slot)
{
    const uint8_t *bytes = image + layout->slot_offset[number];
    uint32_t check = slot_check(bytes);
    if (check == format_slot_empty_check(seed))
        return FORMAT_SLOT_EMPTY;
    slot->number = number;
    if (!(check & 1u) || !slot_parse(layout, bytes, slot) || slot->prefix_length > lower.length)
        return FORMAT_SLOT_INVALID;
    return slot_proven_check(layout, seed, bytes, lower, slot) == check ? FORMAT_SLOT_TAKEN
                                                                        : FORMAT_SLOT_INVALID;
}

uint32_t format_slot_checks(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                            uint32_t count, uint32_t seed, uint32_t checks[FORMAT_SLOT_RUN_MAX])
{
    /* The slots of a triple before its version are contiguous, and so are those behind it. */
    uint32_t within = first % layout->triple_slots;
    uint32_t run = (within < layout->segment_slots ? layout->segment_slots : layout->triple_slots) - within;
    run = run < count ? run : count;
    run = run < FORMAT_SLOT_RUN_MAX ? run : FORMAT_SLOT_RUN_MAX;
    crc32c_each(seed, image + layout->slot_offset[first] + 4, layout->slot_bytes, run,
                layout->geometry.key_bytes + layout->geometry.value_bytes, checks);
    for (uint32_t i = 0; i < run; i++)
        checks[i] |= 1u;
    return run;
}

static bool plain_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed)
{
    uint32_t empty = format_slot_empty_check(seed), checks[FORMAT_SLOT_RUN_MAX];
    for (uint32_t run; count; first += run, count -= run) {
        run = format_slot_checks(layout, image, first, count, seed, checks);
        for (uint32_t i = 0; i < run; i++) {
            uint32_t check = slot_check(image + layout->slot_offset[first + i]);
            if (check != empty && check != checks[i])
                return false;
        }
    }
    return true;
}

bool format_slots_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed, struct format_key lower)
{
    struct format_slot slot;
    if (format_layout_plain(layout))
        return plain_valid(layout, image, first, count, seed);
    for (uint32_t i = first; i < first + count; i++)
        if (format_slot_read(layout, image, i, seed, lower, &slot) == FORMAT_SLOT_INVALID)
            return false;
    return true;
}

uint32_t format_slot_remainder(const struct format_layout *layout, struct format_key lower,
                               struct format_key key)
{
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return key.length;
    return key.length - format_key_common(lower, key);
}

/* Returns the check. */
static uint32_t slot_write_long(uint8_t *bytes, uint32_t seed, gaddr block, struct format_key key,
                                struct format_key value)
{
    uint64_t hash = format_key_hash(key);
    bytes[4] = (uint8_t)key.length;
    bytes[5] = FORMAT_SLOT_LONG;
    memcpy(bytes + 6, &block, sizeof block);
    memcpy(bytes + 14, &hash, sizeof hash);
    return slot_long_check(seed, bytes, value);
}

void format_slot_write(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower, gaddr block, struct format_key key, struct format_key value)
{
    uint8_t *bytes = image + layout->slot_offset[number], *to = bytes + layout->value_offset;
    uint32_t check;
    memset(bytes + 4, 0, layout->slot_bytes - 4);
    if (layout->geometry.value_variable)
        *to++ = (uint8_t)value.length;
    if (value.length)
        memcpy(to, value.bytes, value.length);
    if (block != GADDR_NULL) {
        assert(layout->long_keys);
        check = slot_write_long(bytes, seed, block, key, value);
    } else {
        uint32_t remainder = format_slot_remainder(layout, lower, key);
        struct format_key prefix = {key.bytes, key.length - remainder};
        struct format_key rest = {key.bytes + prefix.length, remainder};
        to = bytes + 4;
        if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE) {
            assert(remainder <= layout->geometry.inline_key_bytes);
            *to++ = (uint8_t)key.length;
            *to++ = (uint8_t)remainder;
        }
        memcpy(to, rest.bytes, rest.length);
        check = slot_taken_check(layout, seed, prefix, rest, value);
    }
    memcpy(bytes, &check, 4);
}

void format_slot_renew(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower)
{
    uint8_t *bytes = image + layout->slot_offset[number];
    struct format_slot slot;
    if (!slot_parse(layout, bytes, &slot)) {
        assert(false); /* it was valid under another version */
        return;
    }
    uint32_t check = slot_proven_check(layout, seed, bytes, lower, &slot);
    memcpy(bytes, &check, 4);
}

void format_slot_clear(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed)
{
    uint32_t check = format_slot_empty_check(seed);
    memcpy(image + layout->slot_offset[number], &check, 4);
}
