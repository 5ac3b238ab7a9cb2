/*
 * blocks.h - which blocks of a pool are handed out: chunks, cut into blocks of one size each.
 *
 * Called by allocate.c and status.c under the node's lock, with requests that come from anywhere: every
 * offset is checked. Nothing of this lies in the pool, which any compute node may write. All memory is
 * reserved at creation (about a 250th of the pool, touched as it is used), so no request fails for want of
 * this process's memory.
 *
 * COST. Handing out takes the lowest chunk with a free block of the size: at most six steps of a 64-ary set,
 * however many chunks there are; then the chunk's bitmap from the lowest word that may have a free bit.
 * Taking back costs the same without the search.
 *
 * Offsets are from the start of the first chunk.
 */
#ifndef MEMORY_BLOCKS_H
#define MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

struct blocks;

struct blocks_count {
    uint64_t chunks_used; /* cut for a size now */
    uint64_t blocks_used, bytes_used;
    uint64_t bytes_free; /* of chunks that are cut */
};

int blocks_create(struct blocks **blocks, uint32_t chunks, uint64_t chunk_bytes, struct error *error);
void blocks_destroy(struct blocks *blocks);
/* Takes everything back. */
void blocks_clear(struct blocks *blocks);
/* A size of memory_block_size that fits into a chunk. */
bool blocks_size_valid(const struct blocks *blocks, uint32_t block_bytes);
/* 1 to `want` offsets, in ascending order within each chunk; 0: there is not one block. */
uint32_t blocks_take(struct blocks *blocks, uint32_t block_bytes, uint32_t want, uint64_t *offsets);
/* All or none: false if one of them is not a block of that size that is handed out, or stands there twice. */
bool blocks_give(struct blocks *blocks, uint32_t block_bytes, const uint64_t *offsets, uint32_t count);
void blocks_count(const struct blocks *blocks, struct blocks_count *count);
/* Of a chunk: its block size (0: not cut) and number of blocks. */
uint32_t blocks_of_chunk(const struct blocks *blocks, uint32_t chunk, uint32_t *block_bytes);
/* 64 blocks of a cut chunk: a bit each, set if handed out. */
uint64_t blocks_word(const struct blocks *blocks, uint32_t chunk, uint32_t word);

#endif
