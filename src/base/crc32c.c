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

/* ---- pieces -------------------------------------------------------------------------------------- */

/* The last piece that begins with the wanted bytes; NULL: none. No branch depends on which it is. */
static inline const uint8_t *piece_of(const uint8_t *shared, const uint32_t *places, uint32_t count,
                                      uint64_t wanted)
{
    const uint8_t *found = NULL;
#pragma GCC unroll 5
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *piece = shared + places[i];
        found = atomic_load_halves(piece + sizeof(uint32_t)) == wanted ? piece : found;
    }
    return found;
}

/* ---- instructions -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <nmmintrin.h>

/* Without the inversions at both ends. */
__attribute__((target("sse4.2"))) static inline uint32_t continue_fast(uint32_t crc, const uint8_t *bytes,
                                                                       size_t length)
{
    uint64_t wide = crc;
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
    if (length & 2) {
        uint16_t word;
        memcpy(&word, bytes, 2);
        crc = _mm_crc32_u16(crc, word);
        bytes += 2;
    }
    return length & 1 ? _mm_crc32_u8(crc, *bytes) : crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_fast(uint32_t crc, const void *data, size_t length)
{
    return ~continue_fast(~crc, data, length);
}

__attribute__((target("sse4.2"))) static uint32_t parts_fast(uint32_t crc, const struct crc32c_part *parts,
                                                             uint32_t count)
{
    crc = ~crc;
    for (uint32_t i = 0; i < count; i++)
        crc = continue_fast(crc, parts[i].bytes, parts[i].length);
    return ~crc;
}
#define HAVE_PARTS_FAST 1

/* Where 16 bytes stand behind each crc, such as an 8-byte key and value. */
__attribute__((target("sse4.2"))) static uint32_t sift_fast(uint32_t crc, const uint8_t *base,
                                                            const uint32_t *places, uint32_t count,
                                                            uint32_t empty, struct crc32c_piece *taken)
{
    struct crc32c_piece *next = taken;
    uint32_t right = UINT32_MAX; /* each bit as long as it was right in every piece */
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *piece = base + places[i];
        uint32_t stored;
        uint64_t words[2];
        memcpy(&stored, piece, sizeof stored);
        memcpy(words, piece + sizeof stored, sizeof words);
        const uint32_t inverse = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(~crc, words[0]), words[1]);
        *next = (struct crc32c_piece){__builtin_bswap64(words[0]), i};
        next += stored & 1u;
        right &= stored ^ (stored & 1u ? inverse : ~empty);
    }
    return (right | 1u) == UINT32_MAX ? (uint32_t)(next - taken) : CRC32C_NONE;
}

/* Judges four pieces at once by what they carry and what their bytes come to, the inverse of their crc. Bit i
 * of what is returned: piece i is taken. */
__attribute__((target("sse4.2"))) static uint64_t judge_fast(const uint32_t *stored, const uint32_t *inverse,
                                                             uint32_t count, uint32_t empty, bool *right)
{
    const __m128i not_empty = _mm_set1_epi32((int)~empty);
    __m128i all = _mm_set1_epi32(-1); /* each bit as long as it was right in every piece */
    uint64_t taken = 0;
    for (uint32_t i = 0; i < count; i += 4) {
        const __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(stored + i));
        const __m128 sign = _mm_castsi128_ps(_mm_slli_epi32(four, 31)); /* set where it is taken */
        const __m128i expected = _mm_castps_si128(_mm_blendv_ps(
            _mm_castsi128_ps(not_empty),
            _mm_castsi128_ps(_mm_loadu_si128((const __m128i *)(const void *)(inverse + i))), sign));
        all = _mm_and_si128(all, _mm_xor_si128(four, expected));
        taken |= (uint64_t)(uint32_t)_mm_movemask_ps(sign) << i;
    }
    all = _mm_or_si128(all, _mm_set1_epi32(1)); /* the lowest bit of a crc is not kept */
    *right = _mm_movemask_epi8(_mm_cmpeq_epi32(all, _mm_set1_epi32(-1))) == 0xffff;
    return taken;
}

__attribute__((target("sse4.2"))) static bool sift_shared_fast(uint32_t crc, const uint8_t *shared,
                                                               uint8_t *copy, const uint32_t *places,
                                                               uint32_t count, uint32_t empty,
                                                               uint64_t *taken)
{
    uint32_t stored[CRC32C_SHARED_MAX], inverse[CRC32C_SHARED_MAX];
    bool right;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *piece = shared + places[i];
        uint8_t *to = copy + places[i];
        stored[i] = atomic_load_relaxed((const uint32_t *)(const void *)piece);
        const uint64_t first = atomic_load_halves(piece + 4), second = atomic_load_halves(piece + 12);
        memcpy(to + 4, &first, sizeof first);
        memcpy(to + 12, &second, sizeof second);
        inverse[i] = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(~crc, first), second);
    }
    for (uint32_t i = count; i % 4; i++) {
        stored[i] = empty;
        inverse[i] = 0;
    }
    *taken = judge_fast(stored, inverse, count, empty, &right);
    return right;
}

__attribute__((target("sse4.2"))) static void seal_fast(uint32_t crc, uint8_t *base, const uint32_t *places,
                                                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *piece = base + places[i];
        uint64_t words[2];
        memcpy(words, piece + sizeof(uint32_t), sizeof words);
        const uint32_t inverse = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(~crc, words[0]), words[1]);
        const uint32_t stored = ~inverse | 1u;
        memcpy(piece, &stored, sizeof stored);
    }
}

__attribute__((target("sse4.2"))) static bool find_fast(uint64_t front, const uint8_t *shared,
                                                        const uint32_t *places, uint32_t count,
                                                        uint64_t wanted, uint64_t *rest)
{
    const uint64_t before = _mm_crc32_u64(_mm_crc32_u64(UINT32_MAX, front), wanted);
    const uint8_t *piece = piece_of(shared, places, count, wanted);
    if (!piece)
        return false;
    const uint32_t stored = atomic_load_relaxed((const uint32_t *)(const void *)piece);
    *rest = atomic_load_halves(piece + 12);
    return stored == (~(uint32_t)_mm_crc32_u64(before, *rest) | 1u);
}
#define HAVE_SIFT_FAST 1

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

uint32_t crc32c_parts(uint32_t crc, const struct crc32c_part *parts, uint32_t count)
{
#ifdef HAVE_PARTS_FAST
    if (atomic_load_relaxed(&chosen) == crc32c_fast)
        return parts_fast(crc, parts, count);
#endif
    for (uint32_t i = 0; i < count; i++)
        crc = crc32c(crc, parts[i].bytes, parts[i].length);
    return crc;
}

uint32_t crc32c_sift(uint32_t crc, const void *base, const uint32_t *places, uint32_t count, size_t length,
                     uint32_t empty, struct crc32c_piece *taken)
{
    const uint8_t *bytes = base;
#ifdef HAVE_SIFT_FAST
    if (length == 16 && atomic_load_relaxed(&chosen) == crc32c_fast)
        return sift_fast(crc, bytes, places, count, empty, taken);
#endif
    uint32_t found = 0, wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *piece = bytes + places[i];
        uint32_t stored;
        uint64_t head;
        memcpy(&stored, piece, sizeof stored);
        memcpy(&head, piece + sizeof stored, sizeof head);
        const uint32_t is_taken = stored & 1u;
        taken[found] = (struct crc32c_piece){__builtin_bswap64(head), i};
        found += is_taken;
        wrong |= stored != (is_taken ? crc32c(crc, piece + sizeof stored, length) | 1u : empty);
    }
    return wrong ? CRC32C_NONE : found;
}

/* What the crc of a shared piece covers. */
static inline void covered_copy(uint8_t *to, const uint8_t *from, size_t length)
{
    if (length != 16) {
        atomic_copy_from(to, from, length);
        return;
    }
    const uint64_t words[2] = {atomic_load_halves(from), atomic_load_halves(from + 8)};
    memcpy(to, words, sizeof words);
}

bool crc32c_sift_shared(uint32_t crc, const void *shared, void *copy, const uint32_t *places, uint32_t count,
                        size_t length, uint32_t empty, uint64_t *taken)
{
    const uint8_t *bytes = shared;
    uint8_t *to = copy;
#ifdef HAVE_SIFT_FAST
    if (length == 16 && atomic_load_relaxed(&chosen) == crc32c_fast)
        return sift_shared_fast(crc, bytes, to, places, count, empty, taken);
#endif
    uint64_t bits = 0;
    bool right = true;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *piece = bytes + places[i];
        uint8_t *covered = to + places[i] + sizeof(uint32_t);
        const uint32_t stored = atomic_load_relaxed((const uint32_t *)(const void *)piece);
        const bool is_taken = stored & 1u;
        covered_copy(covered, piece + sizeof stored, length);
        bits |= (uint64_t)is_taken << i;
        right &= stored == (is_taken ? crc32c(crc, covered, length) | 1u : empty);
    }
    *taken = bits;
    return right;
}

bool crc32c_find_shared(uint64_t front, const void *shared, const uint32_t *places, uint32_t count,
                        uint64_t wanted, uint64_t *rest)
{
#ifdef HAVE_SIFT_FAST
    if (__builtin_expect(atomic_load_relaxed(&chosen) == crc32c_fast, 1))
        return find_fast(front, shared, places, count, wanted, rest);
#endif
    const uint8_t *piece = piece_of(shared, places, count, wanted);
    if (!piece)
        return false;
    const uint32_t stored = atomic_load_relaxed((const uint32_t *)(const void *)piece);
    *rest = atomic_load_halves(piece + 12);
    const uint64_t words[3] = {front, wanted, *rest};
    return stored == (crc32c(0, words, sizeof words) | 1u);
}

void crc32c_seal(uint32_t crc, void *base, const uint32_t *places, uint32_t count, size_t length)
{
    uint8_t *bytes = base;
#ifdef HAVE_SIFT_FAST
    if (length == 16 && atomic_load_relaxed(&chosen) == crc32c_fast) {
        seal_fast(crc, bytes, places, count);
        return;
    }
#endif
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *piece = bytes + places[i];
        const uint32_t stored = crc32c(crc, piece + sizeof stored, length) | 1u;
        memcpy(piece, &stored, sizeof stored);
    }
}

const char *crc32c_implementation(void)
{
    return crc32c_fast_exists() ? FAST_NAME : "portable";
}
