/*
 * header.c - See header.h.
 */
#include "format/header.h"

#include <assert.h>

#include "base/atomic.h"
#include "base/crc32c.h"

#define FLAG_UPPER 1u

static bool keys_fixed(const struct format_layout *layout)
{
    return layout->geometry.key_kind == FORMAT_KEY_FIXED;
}

/* Of fixed keys the upper fence key has a place of its own; of variable ones it follows the lower one. */
static uint32_t upper_offset(const struct format_layout *layout, uint32_t lower_length)
{
    return FORMAT_HEADER_FIXED + (keys_fixed(layout) ? layout->geometry.key_bytes : lower_length);
}

void format_header_settle(const struct format_layout *layout, const struct fabric_command *command)
{
    if (command->read.data != command->read.buffer)
        format_header_copy(layout, command->read.buffer, command->read.data);
}

/* Headers lie at multiples of 8 in leaves, and mostly elsewhere. */
static inline void fixed_copy(uint8_t *to, const uint8_t *from)
{
    if ((uintptr_t)from % sizeof(uint64_t)) {
        atomic_copy_from(to, from, FORMAT_HEADER_FIXED);
        return;
    }
    for (uint32_t at = 0; at < FORMAT_HEADER_FIXED; at += (uint32_t)sizeof(uint64_t)) {
        const uint64_t word = atomic_load_relaxed((const uint64_t *)(const void *)(from + at));
        memcpy(to + at, &word, sizeof word);
    }
}

void format_header_copy(const struct format_layout *layout, uint8_t *to, const uint8_t *from)
{
    if (keys_fixed(layout)) {
        atomic_copy_from(to, from, layout->header_bytes);
        return;
    }
    fixed_copy(to, from);
    uint32_t used = format_header_used(layout, to);
    if (used > FORMAT_HEADER_FIXED && used <= layout->header_bytes)
        atomic_copy_from(to + FORMAT_HEADER_FIXED, from + FORMAT_HEADER_FIXED, used - FORMAT_HEADER_FIXED);
}

bool format_header_decode(const struct format_layout *layout, const uint8_t *image,
                          struct format_header *header)
{
    uint32_t room = layout->geometry.key_bytes;
    memcpy(&header->tag, image + 4, 4);
    memcpy(&header->version, image + 8, 2);
    header->level = image[10];
    header->state = image[11];
    memcpy(&header->index, image + 12, 2);
    header->has_upper = image[15] & FLAG_UPPER;
    memcpy(&header->sibling.address, image + 16, 8);
    memcpy(&header->sibling.tag, image + 24, 4);
    header->lower = (struct format_key){image + FORMAT_HEADER_FIXED, image[28]};
    header->upper = (struct format_key){image + upper_offset(layout, image[28]), image[29]};
    memcpy(&header->count, image + 30, 2);
    if (header->state < FORMAT_NODE_LIVE || header->state > FORMAT_NODE_MERGING ||
        header->level > FORMAT_LEVEL_MAX || header->lower.length > room || header->upper.length > room)
        return false;
    /* A sibling goes with an upper fence key, except in a bulk-loaded index's dead root (tree/bulk.c). */
    if (header->has_upper != (header->sibling.address != GADDR_NULL) && header->state != FORMAT_NODE_DEAD)
        return false;
    if (!header->has_upper)
        return true;
    int order = format_key_compare(header->lower, header->upper);
    /* Nothing is left of a node that moves (R8). */
    return order < 0 ||
           (!order && (header->state == FORMAT_NODE_SPLITTING || header->state == FORMAT_NODE_DEAD));
}

bool format_header_valid(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t crc, used = format_header_used(layout, image);
    memcpy(&crc, image, 4);
    return used <= layout->header_bytes && crc == crc32c(0, image + 4, used - 4);
}

void format_header_encode(const struct format_layout *layout, const struct format_header *header,
                          uint8_t *image)
{
    assert(header->lower.length <= layout->geometry.key_bytes &&
           header->upper.length <= layout->geometry.key_bytes);
    struct format_key_copy lower, upper;
    format_key_store(&lower, header->lower);
    format_key_store(&upper, header->upper);
    memset(image, 0, layout->header_bytes);
    memcpy(image + 4, &header->tag, 4);
    memcpy(image + 8, &header->version, 2);
    image[10] = header->level;
    image[11] = header->state;
    memcpy(image + 12, &header->index, 2);
    image[15] = header->has_upper ? FLAG_UPPER : 0;
    memcpy(image + 16, &header->sibling.address, 8);
    memcpy(image + 24, &header->sibling.tag, 4);
    image[28] = (uint8_t)lower.length;
    image[29] = (uint8_t)upper.length;
    memcpy(image + 30, &header->count, 2);
    memcpy(image + FORMAT_HEADER_FIXED, lower.bytes, lower.length);
    memcpy(image + upper_offset(layout, lower.length), upper.bytes, upper.length);
    uint32_t crc = crc32c(0, image + 4, format_header_used(layout, image) - 4);
    memcpy(image, &crc, 4);
}

int format_header_side(const struct format_header *header, struct format_key key)
{
    if (format_key_compare(key, header->lower) < 0)
        return -1;
    return header->has_upper && format_key_compare(key, header->upper) >= 0;
}
