#include "base/crc32c.h"

#include <string.h>

#include "base/atomic.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define POLYNOMIAL 0x82f63b78u /* reflected */

/* ---- portable ------------------------------------------------------------------------------------ */

/* What four more bits do to a crc: small enough to be computed at compile time. */
#define STEP(c)   ((c)&1u ? (c) >> 1 ^ POLYNOMIAL : (c) >> 1)
#define NIBBLE(n) STEP(STEP(STEP(STEP((uint32_t)(n)))))
static const uint32_t nibbles[16] = {NIBBLE(0),  NIBBLE(1),  NIBBLE(2),  NIBBLE(3), NIBBLE(4),  NIBBLE(5),
                                     NIBBLE(6),  NIBBLE(7),  NIBBLE(8),  NIBBLE(9), NIBBLE(10), NIBBLE(11),
                                     NIBBLE(12), NIBBLE(13), NIBBLE(14), NIBBLE(15)};

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        crc = nibbles[crc & 15] ^ crc >> 4;
        crc = nibbles[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* ---- instructions -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_fast(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint64_t wide = ~crc;
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    if (length & 4) {
        uint32_t word;
        memcpy(&word, bytes, 4);
        crc = _mm_crc32_u32(crc, word);
        bytes += 4;
    }
    for (length &= 3; length; length--)
        crc = _mm_crc32_u8(crc, *bytes++);
    return ~crc;
}

__attribute__((target("sse4.2"))) static void each_fast(uint32_t crc, const uint8_t *first, size_t stride,
                                                        uint32_t count, size_t length, uint32_t *results)
{
    if (length == 16) { /* an 8-byte key and value, the usual case: no loop within */
        for (uint32_t i = 0; i < count; i++, first += stride) {
            uint64_t words[2];
            memcpy(words, first, sizeof words);
            results[i] = ~(uint32_t)_mm_crc32_u64(_mm_crc32_u64(~crc, words[0]), words[1]);
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++, first += stride)
        results[i] = crc32c_fast(crc, first, length);
}
#define HAVE_EACH_FAST 1

static bool crc32c_fast_exists(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#define FAST_NAME "sse4.2"

#elif defined(__aarch64__)

/* By assembler: GCC and Clang name these instructions, and the target attribute for them, differently. */
static uint32_t crc32c_fast(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    crc = ~crc;
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; length; length--) {
        uint32_t byte = *bytes++;
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    }
    return ~crc;
}

static bool crc32c_fast_exists(void)
{
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#define FAST_NAME "armv8"

#else

static uint32_t crc32c_fast(uint32_t crc, const void *data, size_t length)
{
    return crc32c_portable(crc, data, length);
}

static bool crc32c_fast_exists(void)
{
    return false;
}
#define FAST_NAME "portable"
#endif

/* ---- choice -------------------------------------------------------------------------------------- */

typedef uint32_t crc32c_function(uint32_t crc, const void *data, size_t length);

static uint32_t crc32c_first(uint32_t crc, const void *data, size_t length);

/* Constant after the first call. Several threads may make that call: all store the same pointer. */
static crc32c_function *chosen = crc32c_first;

static uint32_t crc32c_first(uint32_t crc, const void *data, size_t length)
{
    crc32c_function *choice = crc32c_fast_exists() ? crc32c_fast : crc32c_portable;
    atomic_store_relaxed(&chosen, choice); /* the pointer alone is passed on: no order needed */
    return choice(crc, data, length);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t length)
{
    return atomic_load_relaxed(&chosen)(crc, data, length);
}

void crc32c_each(uint32_t crc, const void *first, size_t stride, uint32_t count, size_t length,
                 uint32_t *results)
{
    const uint8_t *piece = first;
#ifdef HAVE_EACH_FAST
    if (atomic_load_relaxed(&chosen) == crc32c_fast) {
        each_fast(crc, piece, stride, count, length, results);
        return;
    }
#endif
    for (uint32_t i = 0; i < count; i++, piece += stride)
        results[i] = crc32c(crc, piece, length);
}

const char *crc32c_implementation(void)
{
    return crc32c_fast_exists() ? FAST_NAME : "portable";
}
