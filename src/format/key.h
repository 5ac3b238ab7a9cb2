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

/* How many bytes both begin with. */
static inline uint32_t format_key_common(struct format_key a, struct format_key b)
{
    uint32_t shorter = a.length < b.length ? a.length : b.length;
    uint32_t common = 0;
    for (uint64_t left, right; common + sizeof left <= shorter; common += (uint32_t)sizeof left) {
        memcpy(&left, a.bytes + common, sizeof left);
        memcpy(&right, b.bytes + common, sizeof right);
        if (left != right) /* the first byte is the lowest one (format_key_head) */
            return common + (uint32_t)__builtin_ctzll(left ^ right) / 8;
    }
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
static inline uint64_t format_key_head(struct format_key key)
{
    uint64_t word = 0;
    if (key.length >= sizeof word)
        memcpy(&word, key.bytes, sizeof word);
    else if (key.length)
        memcpy(&word, key.bytes, key.length);
    return __builtin_bswap64(word);
}
/* By all bytes: what format_key_compare says, also where heads differ. */
static inline int format_key_compare_bytes(struct format_key a, struct format_key b)
{
    uint32_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter ? memcmp(a.bytes, b.bytes, shorter) : 0;
    if (order)
        return order;
    return a.length < b.length ? -1 : a.length > b.length;
}
/* Negative, 0 or positive, as memcmp. Most keys differ in their heads. */
static inline int format_key_compare(struct format_key a, struct format_key b)
{
    if (a.length >= sizeof(uint64_t) && b.length >= sizeof(uint64_t)) {
        const uint64_t left = format_key_head(a), right = format_key_head(b);
        if (left != right)
            return left < right ? -1 : 1;
        /* and of those that do not, many are of two words */
        if (a.length >= 2 * sizeof left && b.length >= 2 * sizeof left) {
            const uint64_t next = format_key_head((struct format_key){a.bytes + sizeof left, sizeof left});
            const uint64_t other = format_key_head((struct format_key){b.bytes + sizeof left, sizeof left});
            if (next != other)
                return next < other ? -1 : 1;
        }
    }
    return format_key_compare_bytes(a, b);
}
/* XXH3-64 of the whole key: what a long slot knows its key by. */
uint64_t format_key_hash(struct format_key key);

#endif
