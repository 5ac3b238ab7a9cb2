/* bytes.h - memcpy and memcmp for lengths that are mostly short, and known at run time alone: up to 16 bytes
 * are two words that may overlap, and no call. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The two must not overlap. */
static inline void bytes_copy(void *to, const void *from, size_t length)
{
    char *out = to;
    const char *in = from;
    if (length > 16) {
        memcpy(to, from, length);
    } else if (length >= 8) {
        uint64_t first, last;
        memcpy(&first, in, sizeof first);
        memcpy(&last, in + length - sizeof last, sizeof last);
        memcpy(out, &first, sizeof first);
        memcpy(out + length - sizeof last, &last, sizeof last);
    } else if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, in, sizeof first);
        memcpy(&last, in + length - sizeof last, sizeof last);
        memcpy(out, &first, sizeof first);
        memcpy(out + length - sizeof last, &last, sizeof last);
    } else if (length) {
        const char middle = in[length / 2], last = in[length - 1];
        out[0] = in[0];
        out[length / 2] = middle;
        out[length - 1] = last;
    }
}

static inline bool bytes_equal(const void *left, const void *right, size_t length)
{
    const char *a = left, *b = right;
    if (length > 16)
        return memcmp(left, right, length) == 0;
    if (length >= 8) {
        uint64_t words[4];
        memcpy(&words[0], a, sizeof *words);
        memcpy(&words[1], b, sizeof *words);
        memcpy(&words[2], a + length - sizeof *words, sizeof *words);
        memcpy(&words[3], b + length - sizeof *words, sizeof *words);
        return !((words[0] ^ words[1]) | (words[2] ^ words[3]));
    }
    if (length >= 4) {
        uint32_t words[4];
        memcpy(&words[0], a, sizeof *words);
        memcpy(&words[1], b, sizeof *words);
        memcpy(&words[2], a + length - sizeof *words, sizeof *words);
        memcpy(&words[3], b + length - sizeof *words, sizeof *words);
        return !((words[0] ^ words[1]) | (words[2] ^ words[3]));
    }
    return !length || (a[0] == b[0] && a[length / 2] == b[length / 2] && a[length - 1] == b[length - 1]);
}

#endif
