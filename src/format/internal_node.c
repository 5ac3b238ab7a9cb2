/*
 * internal_node.c - See internal_node.h.
 */
#include "format/internal_node.h"

#include <assert.h>

#include "base/crc32c.h"

/* The header's crc is part of it, so that a header and a body of different writes never pass together; so are
 * the bytes that the header leaves unused. The header must be valid, or just encoded. */
static uint32_t body_crc(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t start = layout->header_bytes + FORMAT_BODY_CRC_BYTES, used = format_header_used(layout, image);
    uint32_t crc = crc32c(crc32c(0, image, 4), image + used, layout->header_bytes - used);
    return crc32c(crc, image + start, layout->geometry.internal_bytes - start);
}

bool format_internal_valid(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t crc;
    memcpy(&crc, image + layout->header_bytes, 4);
    return format_header_valid(layout, image) && crc == body_crc(layout, image);
}

static void internal_seal(const struct format_layout *layout, uint8_t *image)
{
    uint32_t crc = body_crc(layout, image);
    memcpy(image + layout->header_bytes, &crc, 4);
}

static const uint8_t *link_decode(const uint8_t *from, struct format_link *link)
{
    memcpy(&link->address, from, 8);
    memcpy(&link->tag, from + 8, 4);
    return from + 12;
}

static uint8_t *link_encode(uint8_t *to, struct format_link link)
{
    memcpy(to, &link.address, 8);
    memcpy(to + 8, &link.tag, 4);
    return to + 12;
}

static bool entry_decode(const struct format_layout *layout, const uint8_t *image, uint32_t number,
                         struct format_entry *entry)
{
    const uint8_t *from = image + layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    uint16_t offset;
    memcpy(&offset, from + 2 * number, sizeof offset);
    if (offset < layout->header_bytes || offset + 13u > layout->geometry.internal_bytes ||
        offset + 13u + image[offset] > layout->geometry.internal_bytes ||
        image[offset] > layout->geometry.key_bytes)
        return false;
    entry->key = (struct format_key){image + offset + 1, image[offset]};
    link_decode(image + offset + 1 + entry->key.length, &entry->link);
    return true;
}

/* Fixed keys: false where two do not ascend, or a link but the first is none. */
static bool fixed_decode(const struct format_layout *layout, const uint8_t *image, uint32_t count,
                         struct format_entry *entries)
{
    const uint8_t *from = image + layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    const uint32_t key_bytes = layout->geometry.key_bytes;
    bool right = true;
    for (uint32_t i = 0; i < count; i++) {
        entries[i].key = (struct format_key){from, key_bytes};
        from = link_decode(from + key_bytes, &entries[i].link);
        right &= !i || (format_key_compare(entries[i - 1].key, entries[i].key) < 0 &&
                        entries[i].link.address != GADDR_NULL);
    }
    return right;
}

static bool variable_decode(const struct format_layout *layout, const uint8_t *image, uint32_t count,
                            struct format_entry *entries)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!entry_decode(layout, image, i, &entries[i]))
            return false;
        if (i && format_key_compare(entries[i - 1].key, entries[i].key) >= 0)
            return false;
        if (i && entries[i].link.address == GADDR_NULL)
            return false;
    }
    return true;
}

bool format_internal_decode(const struct format_layout *layout, const uint8_t *image,
                            const struct format_header *header,
                            struct format_entry entries[FORMAT_ENTRIES_MAX])
{
    uint32_t room = layout->geometry.internal_bytes - layout->header_bytes - FORMAT_BODY_CRC_BYTES;
    const bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED;
    uint32_t least = fixed ? layout->entry_bytes : 15u;
    if (!header->count || header->count > FORMAT_ENTRIES_MAX || header->count * least > room)
        return false;
    return (fixed ? fixed_decode(layout, image, header->count, entries)
                  : variable_decode(layout, image, header->count, entries)) &&
           !format_key_compare(entries[0].key, header->lower);
}

uint32_t format_internal_size(const struct format_layout *layout, const struct format_entry *entries,
                              uint32_t count)
{
    if (count > FORMAT_ENTRIES_MAX)
        return UINT32_MAX;
    uint32_t size = layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return size + count * layout->entry_bytes;
    for (uint32_t i = 0; i < count; i++)
        size += 15 + entries[i].key.length;
    return size;
}

static void fixed_encode(const struct format_layout *layout, const struct format_entry *entries,
                         uint32_t count, uint8_t *to)
{
    const uint32_t key_bytes = layout->geometry.key_bytes;
    for (uint32_t i = 0; i < count; i++) {
        if (key_bytes == 8) /* by far the most, and not worth a call */
            memcpy(to, entries[i].key.bytes, 8);
        else
            memcpy(to, entries[i].key.bytes, key_bytes);
        to = link_encode(to + key_bytes, entries[i].link);
    }
}

static void variable_encode(uint8_t *image, const struct format_entry *entries, uint32_t count, uint8_t *to)
{
    uint8_t *offsets = to;
    to += 2 * count;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t offset = (uint16_t)(to - image);
        memcpy(offsets + 2 * i, &offset, sizeof offset);
        *to++ = (uint8_t)entries[i].key.length;
        if (entries[i].key.length)
            memcpy(to, entries[i].key.bytes, entries[i].key.length);
        to = link_encode(to + entries[i].key.length, entries[i].link);
    }
}

void format_internal_encode(const struct format_layout *layout, struct format_header *header,
                            const struct format_entry *entries, uint32_t count, uint8_t *image)
{
    assert(count && format_internal_size(layout, entries, count) <= layout->geometry.internal_bytes);
    header->count = (uint16_t)count;
    memset(image + layout->header_bytes, 0, layout->geometry.internal_bytes - layout->header_bytes);
    format_header_encode(layout, header, image);
    uint8_t *to = image + layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        fixed_encode(layout, entries, count, to);
    else
        variable_encode(image, entries, count, to);
    internal_seal(layout, image);
}
