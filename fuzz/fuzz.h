/*
 * fuzz.h - what the fuzzers share: the input as a stream of choices, and how they fail.
 *
 * A fuzzer's input is mostly a little program: bytes that choose what is done and with what. Bytes that are
 * not there are 0, so every input means something and may be cut anywhere. Nothing here or in a fuzzer may
 * depend on the clock, on addresses or on an earlier input: a finding must be found again from its file.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* Ends the process, with a sentence, where the code under test broke its promise. */
#define fuzz_must(condition, ...)                                                                            \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: broken: ", __FILE__, __LINE__);                                          \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

struct fuzz_input {
    const uint8_t *bytes;
    size_t length;
};

static inline void fuzz_take(struct fuzz_input *input, void *to, size_t length)
{
    size_t some = input->length < length ? input->length : length;
    memset(to, 0, length);
    if (some)
        memcpy(to, input->bytes, some);
    input->bytes += some;
    input->length -= some;
}

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    uint8_t byte;
    fuzz_take(input, &byte, sizeof byte);
    return byte;
}

static inline uint16_t fuzz_u16(struct fuzz_input *input)
{
    uint16_t word;
    fuzz_take(input, &word, sizeof word);
    return word;
}

static inline uint32_t fuzz_u32(struct fuzz_input *input)
{
    uint32_t word;
    fuzz_take(input, &word, sizeof word);
    return word;
}

static inline uint64_t fuzz_u64(struct fuzz_input *input)
{
    uint64_t word;
    fuzz_take(input, &word, sizeof word);
    return word;
}

/* Below `count`, which is not 0; one byte of input where that is enough. */
static inline size_t fuzz_below(struct fuzz_input *input, size_t count)
{
    return count <= 256 ? fuzz_byte(input) % count : fuzz_u32(input) % count;
}

/* A copy of exactly its size, so that the address sanitizer sees every step beyond; with a 0 behind it that
 * does not count. The caller's. */
static inline char *fuzz_text(const void *bytes, size_t length)
{
    char *text = malloc(length + 1);
    if (!text)
        abort();
    if (length)
        memcpy(text, bytes, length);
    text[length] = 0;
    return text;
}

/* A text from the input: what comes up to the next 0 byte, or its end. The caller's. */
static inline char *fuzz_take_text(struct fuzz_input *input)
{
    size_t length = input->length ? strnlen((const char *)input->bytes, input->length) : 0;
    char *text = fuzz_text(input->bytes, length);
    size_t used = length < input->length ? length + 1 : length;
    input->bytes += used;
    input->length -= used;
    return text;
}

#endif
