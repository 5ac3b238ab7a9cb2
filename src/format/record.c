/*
 * record.c - See record.h.
 */
#include "format/record.h"

#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK_MAX    65536u
#define EXTENT_ENTRY 16u /* bytes of an extent's address and hash */

enum {
    AT_HASH = 0,
    AT_STAMP = 8,
    AT_EXPIRES = 16,
    AT_VALUE_HASH = 24,
    AT_LENGTH = 32,
    AT_KEY_LENGTH = 36,
    AT_KEY = FORMAT_RECORD_HEADER_FIXED,
};

static uint64_t load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void store64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint64_t header_hash(gaddr address, const uint8_t *header, uint32_t bytes)
{
    return XXH3_64bits_withSeed(header + AT_STAMP, bytes - AT_STAMP, address);
}

/* ---- sizes ---- */

uint32_t format_record_extents(size_t key_length, uint64_t length)
{
    if (FORMAT_RECORD_HEADER_FIXED + key_length + length <= BLOCK_MAX)
        return 0;
    return (uint32_t)((length + FORMAT_EXTENT_BYTES - 1) / FORMAT_EXTENT_BYTES);
}

uint32_t format_record_extent_bytes(uint64_t length, uint32_t number)
{
    assert((uint64_t)number * FORMAT_EXTENT_BYTES < length);
    uint64_t left = length - (uint64_t)number * FORMAT_EXTENT_BYTES;
    return left < FORMAT_EXTENT_BYTES ? (uint32_t)left : FORMAT_EXTENT_BYTES;
}

uint32_t format_record_header_bytes(size_t key_length, uint64_t length)
{
    return FORMAT_RECORD_HEADER_FIXED + (uint32_t)key_length +
           EXTENT_ENTRY * format_record_extents(key_length, length);
}

uint32_t format_record_block_bytes(size_t key_length, uint64_t length)
{
    uint32_t header = format_record_header_bytes(key_length, length);
    return format_record_extents(key_length, length) ? header : header + (uint32_t)length;
}

uint32_t format_record_read_bytes(size_t key_length, const struct format_reference *reference,
                                  enum format_part part)
{
    return part == FORMAT_PART_VALUE ? format_record_block_bytes(key_length, reference->length)
                                     : format_record_header_bytes(key_length, reference->length);
}

/* ---- writing ---- */

uint64_t format_record_hash(const uint8_t *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

void format_record_begin(uint8_t *header, const struct format_record *record)
{
    uint32_t length = (uint32_t)record->length;
    assert(record->key_length && record->key_length <= FORMAT_KEY_MAX &&
           record->length <= FORMAT_RECORD_VALUE_MAX);
    store64(header + AT_STAMP, record->stamp);
    store64(header + AT_EXPIRES, record->expires);
    store64(header + AT_VALUE_HASH, 0);
    memcpy(header + AT_LENGTH, &length, sizeof length);
    header[AT_KEY_LENGTH] = (uint8_t)record->key_length;
    memcpy(header + AT_KEY, record->key, record->key_length);
}

void format_record_extent_set(uint8_t *header, size_t key_length, uint32_t number,
                              struct format_extent extent)
{
    uint8_t *entry = header + AT_KEY + key_length + EXTENT_ENTRY * number;
    store64(entry, extent.address);
    store64(entry + 8, extent.hash);
}

void format_record_seal(uint8_t *header, gaddr address, const struct format_record *record,
                        struct format_reference *reference)
{
    uint32_t bytes = format_record_header_bytes(record->key_length, record->length);
    uint64_t hash = header_hash(address, header, bytes);
    store64(header + AT_HASH, hash);
    *reference = (struct format_reference){.address = address,
                                           .check = format_reference_check(hash),
                                           .length = (uint32_t)record->length,
                                           .expires = record->expires != 0};
}

void format_record_encode(uint8_t *block, gaddr address, const struct format_record *record,
                          struct format_reference *reference)
{
    uint8_t *value = block + AT_KEY + record->key_length;
    assert(!format_record_extents(record->key_length, record->length));
    format_record_begin(block, record);
    memcpy(value, record->value, record->length);
    store64(block + AT_VALUE_HASH, XXH3_64bits(value, record->length));
    format_record_seal(block, address, record, reference);
}

/* ---- reading ---- */

bool format_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                            enum format_part part, const uint8_t *block, struct format_record *record)
{
    uint32_t length, header = format_record_header_bytes(key_length, reference->length);
    uint64_t hash = load64(block + AT_HASH);
    if (format_reference_check(hash) != reference->check ||
        hash != header_hash(reference->address, block, header))
        return false;
    memcpy(&length, block + AT_LENGTH, sizeof length);
    *record = (struct format_record){.key = key,
                                     .key_length = key_length,
                                     .stamp = load64(block + AT_STAMP),
                                     .expires = load64(block + AT_EXPIRES),
                                     .length = length};
    if (length != reference->length || block[AT_KEY_LENGTH] != key_length ||
        memcmp(block + AT_KEY, key, key_length) || (record->expires != 0) != reference->expires)
        return false;
    if (part == FORMAT_PART_HEADER || format_record_extents(key_length, length))
        return true;
    record->value = block + header;
    return XXH3_64bits(record->value, length) == load64(block + AT_VALUE_HASH);
}

struct format_extent format_record_extent(const uint8_t *header, size_t key_length, uint32_t number)
{
    const uint8_t *entry = header + AT_KEY + key_length + EXTENT_ENTRY * number;
    return (struct format_extent){.address = load64(entry), .hash = load64(entry + 8)};
}
