/* bits.h - ranges of bits in arrays of words, for the bitmaps of memory/. Inline; cost a step a word. */
#ifndef MEMORY_BITS_H
#define MEMORY_BITS_H

#include <stdbool.h>
#include <stdint.h>

/* The bits of the word that holds bit `at` from `at` on, at most `length` of them; how many in *count. */
static inline uint64_t bits_mask(uint64_t at, uint64_t length, uint64_t *count)
{
    uint64_t room = 64 - at % 64;
    *count = length < room ? length : room;
    return (*count == 64 ? UINT64_MAX : (UINT64_C(1) << *count) - 1) << at % 64;
}

static inline bool bits_get(const uint64_t *words, uint64_t at)
{
    return words[at / 64] >> at % 64 & 1;
}

static inline void bits_set(uint64_t *words, uint64_t at, uint64_t length)
{
    for (uint64_t count; length > 0; at += count, length -= count) {
        uint64_t mask = bits_mask(at, length, &count);
        words[at / 64] |= mask;
    }
}

static inline void bits_unset(uint64_t *words, uint64_t at, uint64_t length)
{
    for (uint64_t count; length > 0; at += count, length -= count) {
        uint64_t mask = bits_mask(at, length, &count);
        words[at / 64] &= ~mask;
    }
}

/* Whether all of them are `value`. */
static inline bool bits_are(const uint64_t *words, uint64_t at, uint64_t length, bool value)
{
    for (uint64_t count; length > 0; at += count, length -= count) {
        uint64_t mask = bits_mask(at, length, &count);
        if ((words[at / 64] & mask) != (value ? mask : 0))
            return false;
    }
    return true;
}

/* The last bit at or before `at` that is set; there is one. */
static inline uint64_t bits_last(const uint64_t *words, uint64_t at)
{
    uint64_t word = at / 64, set = words[word] << (63 - at % 64);
    if (set != 0)
        return at - (uint64_t)__builtin_clzll(set);
    while (words[--word] == 0)
        ;
    return word * 64 + 63 - (uint64_t)__builtin_clzll(words[word]);
}

#endif
