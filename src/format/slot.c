/*
 * slot.c - See slot.h.
 */
#include "format/slot.h"

#include <assert.h>

#include "base/atomic.h"
#include "base/bytes.h"

#include "format/slot_parts.h"

uint32_t format_slot_seed(uint32_t tag, uint16_t version)
{
    const uint64_t word = format_slot_front(tag, version);
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

static uint32_t plain_sift(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                           uint32_t count, uint32_t seed, struct crc32c_piece *taken)
{
    return crc32c_sift(seed, image, layout->slot_offset + first, count,
                       layout->geometry.key_bytes + layout->geometry.value_bytes,
                       format_slot_empty_check(seed), taken);
}

uint32_t format_slots_taken(const struct format_layout *layout, const uint8_t *image, uint32_t seed,
                            struct crc32c_piece *taken)
{
    return plain_sift(layout, image, 0, layout->slots, seed, taken);
}

bool format_slots_take(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                       uint32_t seed, uint64_t *taken)
{
    assert(format_layout_sifts(layout));
    return crc32c_sift_shared(seed, shared, image, layout->slot_offset, layout->slots,
                              layout->geometry.key_bytes + layout->geometry.value_bytes,
                              format_slot_empty_check(seed), taken);
}

#define RUN 64u /* slots that are worked on at once */

bool format_slots_lack(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                       uint32_t count, uint32_t seed, uint64_t head)
{
    struct crc32c_piece taken[RUN];
    bool held = false;
    for (uint32_t run; count; first += run, count -= run) {
        run = count < RUN ? count : RUN;
        const uint32_t found = plain_sift(layout, image, first, run, seed, taken);
        if (found == CRC32C_NONE)
            return false;
        for (uint32_t i = 0; i < found; i++)
            held |= taken[i].head == head;
    }
    return !held;
}

static bool plain_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed)
{
    struct crc32c_piece taken[RUN];
    for (uint32_t run; count; first += run, count -= run) {
        run = count < RUN ? count : RUN;
        if (plain_sift(layout, image, first, run, seed, taken) == CRC32C_NONE)
            return false;
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

bool format_slots_lack_shared(const struct format_layout *layout, const uint8_t *shared, uint8_t *image,
                              uint32_t first, uint32_t count, uint32_t seed, uint64_t head)
{
    const uint32_t *places = layout->slot_offset + first;
    const uint32_t empty = format_slot_empty_check(seed);
    uint64_t taken;
    bool held = false;
    assert(format_layout_sifts(layout));
    if (!crc32c_sift_shared(seed, shared, image, places, count,
                            layout->geometry.key_bytes + layout->geometry.value_bytes, empty, &taken))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_taken = taken >> i & 1u;
        uint64_t word;
        memcpy(&word, image + places[i] + 4, sizeof word);
        held |= is_taken && __builtin_bswap64(word) == head;
        /* Relaxed: whatever it is by now, the slot is what it was judged to be. */
        const uint32_t check = atomic_load_relaxed((const uint32_t *)(const void *)(shared + places[i]));
        const uint32_t judged = is_taken ? check | 1u : empty;
        memcpy(image + places[i], &judged, sizeof judged);
    }
    return !held;
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

/* Fixed keys and values. */
static void plain_write(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                        struct format_key key, struct format_key value)
{
    uint8_t *bytes = image + layout->slot_offset[number];
    const uint32_t used = layout->geometry.key_bytes + layout->geometry.value_bytes;
    if (4 + used < layout->slot_bytes)
        memset(bytes + 4 + used, 0, layout->slot_bytes - 4 - used);
    format_slot_place(layout, image, number, key, value);
    const uint32_t check = crc32c(seed, bytes + 4, used) | 1u;
    memcpy(bytes, &check, 4);
}

void format_slot_write(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower, gaddr block, struct format_key key, struct format_key value)
{
    uint8_t *bytes = image + layout->slot_offset[number], *to = bytes + layout->value_offset;
    uint32_t check;
    if (format_layout_plain(layout)) {
        plain_write(layout, image, number, seed, key, value);
        return;
    }
    memset(bytes + 4, 0, layout->slot_bytes - 4);
    if (layout->geometry.value_variable)
        *to++ = (uint8_t)value.length;
    bytes_copy(to, value.bytes, value.length);
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
        bytes_copy(to, rest.bytes, rest.length);
        check = layout->geometry.key_kind == FORMAT_KEY_VARIABLE
                    ? slot_whole_check(seed, key, value)
                    : slot_taken_check(layout, seed, prefix, rest, value);
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

void format_slots_clear(const struct format_layout *layout, uint8_t *image, uint32_t seed)
{
    const uint32_t check = format_slot_empty_check(seed);
    for (uint32_t number = 0; number < layout->slots; number++)
        memcpy(image + layout->slot_offset[number], &check, sizeof check);
}

void format_slots_seal(const struct format_layout *layout, uint8_t *image, const uint32_t *numbers,
                       uint32_t count, uint32_t seed)
{
    uint32_t places[RUN];
    for (uint32_t run; count; numbers += run, count -= run) {
        run = count < RUN ? count : RUN;
        for (uint32_t i = 0; i < run; i++)
            places[i] = layout->slot_offset[numbers[i]];
        crc32c_seal(seed, image, places, run, layout->geometry.key_bytes + layout->geometry.value_bytes);
    }
}
