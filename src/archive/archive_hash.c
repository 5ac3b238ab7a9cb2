/* archive_hash.c - the checksums of archive.h. */
#include "archive/archive_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t archive_header_hash(const uint8_t head[24])
{
    return XXH3_64bits(head, 24);
}

uint64_t archive_block_hash(const uint8_t head[24], const uint8_t *body, size_t length)
{
    return XXH3_64bits_withSeed(body, length, XXH3_64bits(head, 24));
}
