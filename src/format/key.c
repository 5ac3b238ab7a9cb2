/*
 * key.c - See key.h.
 */
#include "format/key.h"

#include <assert.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void format_key_store(struct format_key_copy *copy, struct format_key key)
{
    assert(key.length <= FORMAT_KEY_MAX);
    copy->length = (uint16_t)key.length;
    if (key.length)
        memmove(copy->bytes, key.bytes, key.length);
}

struct format_key format_key_least(const struct format_layout *layout)
{
    static const uint8_t zeros[FORMAT_KEY_MAX];
    bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED;
    return (struct format_key){zeros, fixed ? layout->geometry.key_bytes : 0};
}

uint64_t format_key_hash(struct format_key key)
{
    return XXH3_64bits(key.bytes, key.length);
}
