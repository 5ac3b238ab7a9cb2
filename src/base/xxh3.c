/* xxh3.c - see xxh3.h. What a vector does to the sums, and in which order, is the library's. */
#include "base/xxh3.h"

#include <stdbool.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/atomic.h"

uint64_t xxh3_plain(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

#if XXH3_VECTORS && defined(__x86_64__)

#include <immintrin.h>

/* Up to 240 bytes are hashed in another way, without vectors. */
#define WIDE_MIN 241u
/* Bytes are added up by stripes, each with a part of the secret that begins eight bytes behind the one before
 * it. Where the secret's end is reached, which makes a block, the sums are scrambled, and all begins again.
 */
#define STRIPE          64u
#define SECRET_BYTES    192u
#define SECRET_SCRAMBLE (SECRET_BYTES - STRIPE)
#define SECRET_LAST     (SECRET_SCRAMBLE - 7)
#define SECRET_MERGE    11u
#define STRIPES_OF      (SECRET_SCRAMBLE / 8)
#define BLOCK           (STRIPES_OF * STRIPE)
/* What is hashed out of memory is asked for so far ahead; where a value does not lie in the cache, the CPU's
 * own guesses end with each page. */
#define AHEAD 1024u

#define WIDE        __attribute__((target("avx2")))
#define WIDE_INLINE static inline __attribute__((always_inline, target("avx2")))

/* Two vectors of four sums each. */
struct sums {
    __m256i low, high;
};

/* 32 bytes of the source, which others may write meanwhile: loaded once, by assembler, since to the language
 * such a load would be a race. */
struct __attribute__((may_alias)) vector {
    uint8_t bytes[32];
};
WIDE_INLINE __m256i vector_load(const uint8_t *from)
{
    __m256i vector;
    __asm__ volatile("vmovdqu %1, %0" : "=x"(vector) : "m"(*(const struct vector *)(const void *)from));
    return vector;
}

WIDE_INLINE void vector_store(uint8_t *to, __m256i vector)
{
    __asm__ volatile("vmovdqu %1, %0" : "=m"(*(struct vector *)(void *)to) : "x"(vector));
}

WIDE_INLINE __m256i plain_load(const uint8_t *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

WIDE_INLINE __m256i sums_add(__m256i sums, __m256i data, const uint8_t *secret)
{
    const __m256i keyed = _mm256_xor_si256(data, plain_load(secret));
    const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    return _mm256_add_epi64(_mm256_add_epi64(sums, _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2))),
                            product);
}

WIDE_INLINE __m256i sums_scramble(__m256i sums, const uint8_t *secret)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH_PRIME32_1);
    const __m256i mixed = _mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47));
    const __m256i keyed = _mm256_xor_si256(mixed, plain_load(secret));
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(keyed, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(keyed, prime), _mm256_slli_epi64(high, 32));
}

/* What is done with a run of bytes beside the hash; known where this is compiled. */
enum way { HASH_ALONE, COPY_FROM_SHARED, COPY_TO_SHARED };

/* The stripe `at` bytes behind their beginnings. */
WIDE_INLINE void stripe_add(struct sums *sums, uint8_t *to, const uint8_t *from, size_t at,
                            const uint8_t *secret, enum way way)
{
    const __m256i low = way == HASH_ALONE ? plain_load(from + at) : vector_load(from + at);
    const __m256i high = way == HASH_ALONE ? plain_load(from + at + 32) : vector_load(from + at + 32);
    if (way != HASH_ALONE) {
        vector_store(to + at, low);
        vector_store(to + at + 32, high);
    }
    sums->low = sums_add(sums->low, low, secret);
    sums->high = sums_add(sums->high, high, secret + 32);
}

WIDE_INLINE uint64_t hash_wide(uint8_t *to, const uint8_t *from, size_t length, enum way way)
{
    _Alignas(32) uint64_t all[XXH_ACC_NB] = XXH3_INIT_ACC;
    struct sums sums = {_mm256_load_si256((const __m256i *)(const void *)all),
                        _mm256_load_si256((const __m256i *)(const void *)(all + 4))};
    const uint8_t *const secret = XXH3_kSecret, *key = secret;
    const size_t before = length - 1; /* the last stripe, which may be a whole one, is added by itself */
    size_t at = 0;
    for (; before - at >= BLOCK; at += BLOCK) {
#pragma GCC unroll 4
        for (size_t i = 0; i < STRIPES_OF; i++) {
            if (way != COPY_TO_SHARED) /* what a caller brings has just been read from somewhere */
                __builtin_prefetch(from + at + i * STRIPE + AHEAD);
            stripe_add(&sums, to, from, at + i * STRIPE, secret + 8 * i, way);
        }
        sums.low = sums_scramble(sums.low, secret + SECRET_SCRAMBLE);
        sums.high = sums_scramble(sums.high, secret + SECRET_SCRAMBLE + 32);
    }
    for (; before - at >= STRIPE; at += STRIPE, key += 8)
        stripe_add(&sums, to, from, at, key, way);
    if (way == COPY_FROM_SHARED)
        atomic_copy_from(to + at, from + at, length - at);
    if (way == COPY_TO_SHARED)
        atomic_copy_to(to + at, from + at, length - at);
    /* Of what has been copied: a part of these bytes is hashed a second time. */
    stripe_add(&sums, NULL, way == HASH_ALONE ? from : to, length - STRIPE, secret + SECRET_LAST, HASH_ALONE);
    _mm256_store_si256((__m256i *)(void *)all, sums.low);
    _mm256_store_si256((__m256i *)(void *)(all + 4), sums.high);
    return XXH3_mergeAccs(all, secret + SECRET_MERGE, (uint64_t)length * XXH_PRIME64_1);
}

WIDE static uint64_t wide_alone(const uint8_t *bytes, size_t length)
{
    return hash_wide(NULL, bytes, length, HASH_ALONE);
}

#if ATOMIC_ASSEMBLER
WIDE static uint64_t wide_copy_from(uint8_t *to, const uint8_t *shared, size_t length)
{
    return hash_wide(to, shared, length, COPY_FROM_SHARED);
}

WIDE static uint64_t wide_copy_to(uint8_t *shared, const uint8_t *from, size_t length)
{
    return hash_wide(shared, from, length, COPY_TO_SHARED);
}
#endif

static bool wide_exists(void)
{
    return __builtin_cpu_supports("avx2");
}

#define HAVE_WIDE 1

#endif

uint64_t xxh3(const void *bytes, size_t length)
{
#ifdef HAVE_WIDE
    if (length >= WIDE_MIN && wide_exists())
        return wide_alone(bytes, length);
#endif
    return XXH3_64bits(bytes, length);
}

uint64_t xxh3_copy_from(void *to, const void *shared, size_t length)
{
#if defined(HAVE_WIDE) && ATOMIC_ASSEMBLER
    if (length >= WIDE_MIN && wide_exists())
        return wide_copy_from(to, shared, length);
#endif
    atomic_copy_long_from(to, shared, length);
    return xxh3(to, length);
}

uint64_t xxh3_copy_to(void *shared, const void *from, size_t length)
{
#if defined(HAVE_WIDE) && ATOMIC_ASSEMBLER
    if (length >= WIDE_MIN && wide_exists())
        return wide_copy_to(shared, from, length);
#endif
    atomic_copy_long_to(shared, from, length);
    return xxh3(shared, length);
}

const char *xxh3_implementation(void)
{
#ifdef HAVE_WIDE
    return wide_exists() ? "avx2" : "plain";
#else
    return "plain";
#endif
}
