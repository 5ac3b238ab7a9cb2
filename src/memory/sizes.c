/*
 * sizes.c - the sizes of blocks: multiples of 32 bytes up to 1 KiB, then sixteen to each doubling.
 *
 * Pure functions, some nanoseconds; any thread. A fine scale costs nothing, since no size owns any part of
 * the pool (blocks.h); it is one at all so that a worker's lists of free blocks are few enough to be used
 * again.
 */
#include <assert.h>

#include "memory/memory.h"

#define FINE_MAX   1024u /* up to here every multiple of MEMORY_BLOCK_MIN is a size */
#define FINE_SIZES (FINE_MAX / MEMORY_BLOCK_MIN)
#define FINE_POWER 10u
#define STEPS      16u /* to each doubling beyond */

_Static_assert(FINE_MAX == 1u << FINE_POWER, "a power of two, so that a doubling begins there");
_Static_assert(FINE_SIZES + (20 - FINE_POWER) * STEPS == MEMORY_BLOCK_SIZES, "up to 1 MiB");

uint32_t memory_block_bytes(uint64_t bytes)
{
    if (bytes > MEMORY_BLOCK_MAX)
        return 0;
    uint32_t unit = MEMORY_BLOCK_MIN;
    if (bytes > FINE_MAX) /* a sixteenth of the power of two below */
        unit = (UINT32_C(1) << (63 - __builtin_clzll(bytes - 1))) / STEPS;
    uint32_t rounded = ((uint32_t)bytes + unit - 1) & ~(unit - 1);
    return rounded ? rounded : MEMORY_BLOCK_MIN;
}

uint32_t memory_block_within(uint64_t bytes)
{
    if (bytes >= MEMORY_BLOCK_MAX)
        return MEMORY_BLOCK_MAX;
    uint32_t unit = MEMORY_BLOCK_MIN;
    if (bytes >= FINE_MAX)
        unit = (UINT32_C(1) << (63 - __builtin_clzll(bytes))) / STEPS;
    return (uint32_t)bytes & ~(unit - 1);
}

unsigned memory_block_index(uint32_t block_bytes)
{
    if (!block_bytes || memory_block_bytes(block_bytes) != block_bytes)
        return MEMORY_BLOCK_SIZES;
    if (block_bytes <= FINE_MAX)
        return block_bytes / MEMORY_BLOCK_MIN - 1;
    unsigned power = (unsigned)(31 - __builtin_clz(block_bytes - 1));        /* FINE_POWER beyond FINE_MAX */
    unsigned step = (block_bytes - (1u << power)) / ((1u << power) / STEPS); /* 1 to STEPS */
    return FINE_SIZES + STEPS * (power - FINE_POWER) + step - 1;
}

uint32_t memory_block_size(unsigned index)
{
    assert(index < MEMORY_BLOCK_SIZES);
    if (index < FINE_SIZES)
        return (index + 1) * MEMORY_BLOCK_MIN;
    unsigned power = (index - FINE_SIZES) / STEPS + FINE_POWER;
    return (1u << power) + ((index - FINE_SIZES) % STEPS + 1) * ((1u << power) / STEPS);
}
