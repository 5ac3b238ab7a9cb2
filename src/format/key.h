/*
 * key.h - keys as the index sees them: byte strings in memcmp order. Pure; any thread; nothing can fail.
 */
#ifndef FORMAT_KEY_H
#define FORMAT_KEY_H

#include <string.h>

#include "format/geometry.h"

struct format_key {
    const uint8_t *bytes;
    uint32_t length;
};

/* A key with room of its own. */
struct format_key_copy {
    uint16_t length;
    uint8_t bytes[FORMAT_KEY_MAX];
};

static inline int format_key_compare(struct format_key a, struct format_key b)
{
    uint32_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter ? memcmp(a.bytes, b.bytes, shorter) : 0;
    if (order)
        return order;
    return a.length < b.length ? -1 : a.length > b.length;
}

/* How many bytes both begin with. */
static inline uint32_t format_key_common(struct format_key a, struct format_key b)
{
    uint32_t shorter = a.length < b.length ? a.length : b.length;
    uint32_t common = 0;
    while (common < shorter && a.bytes[common] == b.bytes[common])
        common++;
    return common;
}

void format_key_store(struct format_key_copy *copy, struct format_key key);
static inline struct format_key format_key_of(const struct format_key_copy *copy)
{
    return (struct format_key){copy->bytes, copy->length};
}
/* The least key there is: the lower fence key of the leftmost nodes. */
struct format_key format_key_least(const struct format_layout *layout);
/* The key's head: its first eight bytes as a number that orders like memcmp; shorter keys are padded with
 * zeros. */
uint64_t format_key_head(struct format_key key);
/* XXH3-64 of the whole key: what a long slot knows its key by. */
uint64_t format_key_hash(struct format_key key);

#endif
