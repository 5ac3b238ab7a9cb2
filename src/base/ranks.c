/* ranks.c - see ranks.h. */
#include "base/ranks.h"

#include <stdbool.h>
#include <string.h>

#include "base/atomic.h"

void ranks_plain(const uint16_t *numbers, uint32_t count, uint16_t *ranks)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = 0;
        for (uint32_t j = 0; j < count; j++)
            rank += numbers[j] < numbers[i];
        ranks[i] = (uint16_t)rank;
    }
}

#if RANKS_VECTORS

/* Vectors of the compiler, which makes two of one where registers are half as wide. Signed, since that is
 * what older instructions compare. */
#define LANES 16u
typedef int16_t lanes __attribute__((vector_size(2 * LANES)));

/* Of `vectors` vectors of numbers, known where this is compiled, so that they and their ranks stay in
 * registers. */
static inline __attribute__((always_inline)) void find_in(const int16_t *numbers, uint32_t count,
                                                          unsigned vectors, uint16_t *ranks)
{
    lanes each[RANKS_MAX / LANES], less[RANKS_MAX / LANES];
    for (unsigned i = 0; i < vectors; i++) {
        memcpy(&each[i], numbers + i * LANES, sizeof each[i]);
        less[i] = (lanes){0};
    }
    for (uint32_t j = 0; j < count; j++) {
        const lanes other = numbers[j] - (lanes){0};
#pragma GCC unroll 4
        for (unsigned i = 0; i < vectors; i++)
            less[i] -= other < each[i]; /* -1 where it is less */
    }
    for (unsigned i = 0; i < vectors; i++)
        memcpy(ranks + i * LANES, &less[i], sizeof less[i]);
}

static inline __attribute__((always_inline)) void find_all(const uint16_t *numbers, uint32_t count,
                                                           uint16_t *ranks)
{
    int16_t signed_numbers[RANKS_MAX];
    for (uint32_t i = 0; i < RANKS_MAX; i++)
        signed_numbers[i] = (int16_t)(numbers[i] ^ 0x8000u);
    if (count <= LANES)
        find_in(signed_numbers, count, 1, ranks);
    else if (count <= 2 * LANES)
        find_in(signed_numbers, count, 2, ranks);
    else if (count <= 3 * LANES)
        find_in(signed_numbers, count, 3, ranks);
    else
        find_in(signed_numbers, count, 4, ranks);
}

static void find_any(const uint16_t *numbers, uint32_t count, uint16_t *ranks)
{
    find_all(numbers, count, ranks);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void find_avx2(const uint16_t *numbers, uint32_t count,
                                                      uint16_t *ranks)
{
    find_all(numbers, count, ranks);
}

static bool wide_exists(void)
{
    return __builtin_cpu_supports("avx2");
}
#define WIDE find_avx2
#else
static bool wide_exists(void)
{
    return false;
}
#define WIDE find_any
#endif

typedef void ranks_function(const uint16_t *numbers, uint32_t count, uint16_t *ranks);
static void find_first(const uint16_t *numbers, uint32_t count, uint16_t *ranks);

/* Constant after the first call. Several threads may make that call: all store the same pointer. */
static ranks_function *chosen = find_first;

static void find_first(const uint16_t *numbers, uint32_t count, uint16_t *ranks)
{
    ranks_function *choice = wide_exists() ? WIDE : find_any;
    atomic_store_relaxed(&chosen, choice); /* the pointer alone is passed on: no order needed */
    choice(numbers, count, ranks);
}

void ranks_find(uint16_t numbers[RANKS_MAX], uint32_t count, uint16_t ranks[RANKS_MAX])
{
    memset(numbers + count, 0xff, (RANKS_MAX - count) * sizeof *numbers); /* defined, and less than none */
    atomic_load_relaxed (&chosen)(numbers, count, ranks);
}

const char *ranks_implementation(void)
{
    return wide_exists() ? "avx2" : "vectors";
}

#else

const char *ranks_implementation(void)
{
    return "none";
}

#endif
