/* archive_format.h - the bytes of archive.h, for its writer and its reader alone. */
#ifndef ARCHIVE_ARCHIVE_FORMAT_H
#define ARCHIVE_ARCHIVE_FORMAT_H

#include <endian.h>
#include <string.h>
#include "archive/archive.h"

#define ARCHIVE_MAGIC       "BANYANKV"
#define ARCHIVE_BLOCK_MAGIC "BLCK"
#define ARCHIVE_NUMBER_MAX  10u /* bytes of a number in LEB128 */
#define ARCHIVE_ENTRY_MAX   (3u * ARCHIVE_NUMBER_MAX + ARCHIVE_KEY_MAX + ARCHIVE_VALUE_MAX)
/* What a block's entries have at most, and what they take at most when they are compressed to no use. */
#define ARCHIVE_RAW_MAX    (ARCHIVE_BLOCK_BYTES + ARCHIVE_ENTRY_MAX)
#define ARCHIVE_STORED_MAX (ARCHIVE_RAW_MAX + ARCHIVE_RAW_MAX / 128 + 1024u)
#define ARCHIVE_END_BYTES  16u

enum archive_compression { ARCHIVE_PLAIN, ARCHIVE_ZSTD };

struct archive_block {
    uint32_t number, stored, raw, entries, compression;
    uint64_t hash;
};

static inline void archive_put_u32(uint8_t *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
}

static inline void archive_put_u64(uint8_t *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof value);
}

static inline uint32_t archive_get_u32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return le32toh(value);
}

static inline uint64_t archive_get_u64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return le64toh(value);
}

/* Whether the key comes behind `last`, byte by byte. */
static inline bool archive_follows(const struct archive_entry *entry, const uint8_t *last, size_t last_length)
{
    const size_t shorter = entry->key_length < last_length ? entry->key_length : last_length;
    const int order = memcmp(entry->key, last, shorter);
    return order > 0 || (!order && entry->key_length > last_length);
}

/* Of the header's first 24 bytes, and of the block's: `head` are its first 24, `body` what follows its
 * header. */
uint64_t archive_header_hash(const uint8_t head[24]);
uint64_t archive_block_hash(const uint8_t head[24], const uint8_t *body, size_t length);

#endif
