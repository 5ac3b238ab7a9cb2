/*
 * blocks.h - which blocks of a pool are handed out. A block is a run of granules of 32 bytes, anywhere; no
 * size owns any part of the pool, and what is freed joins its free neighbours by itself, so it serves any
 * size.
 *
 * Called by allocate.c, log.c, status.c, evacuate.c and trim.c under the node's lock, with requests that come
 * from anywhere: every offset is checked. Nothing of this lies in the pool, which any compute node may write.
 * All memory is reserved at creation and touched as the pool is used (three bits for each 32 bytes, 1.2 %,
 * and the tree of runs.h), so no request fails for want of this process's memory.
 *
 * WHAT IS KEPT (keep.h). The three bits for each granule: handed out, a block begins, of a node or a log. All
 * else is made from them when a kept node is opened. A call that hands out or takes back is one change (D2);
 * a caller that changes more than that lets its own change begin before.
 *
 * TWO ENDS. Nodes of the tree take the lowest free address, aligned to 64 bytes; data (records, their pieces,
 * key blocks) takes the highest. Data keeps off a RESERVE: below a floor, which moves as nodes come and go,
 * at least a 64th of the pool (16 KiB, if that is more; at most a quarter) has room for nodes, so that the
 * tree can split while records are refused. Holes of less than 1 KiB are no such room, and data may take
 * them.
 *
 * CHUNKS are what space is accounted by, what is emptied (evacuate.c), and what goes back to the system
 * (trim.c). Blocks lie across their boundaries.
 *
 * COST. Handing out and taking back: a search and an update of the tree of runs, some 100 ns, for each run of
 * neighbours of a batch.
 *
 * Offsets are in bytes, from the start of the first chunk.
 */
#ifndef MEMORY_BLOCKS_H
#define MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "memory/request.h"

struct blocks;
struct keep;

struct blocks_count {
    uint64_t blocks_used, bytes_used, bytes_free;
    uint64_t chunks_used;     /* of which some byte is handed out */
    uint64_t chunks_touched;  /* that have been used since they were last zero pages of the system */
    uint64_t chunks_emptying; /* kept back because they are being emptied */
    uint64_t chunks_emptied;  /* so far: were empty before their emptying ended */
};

struct blocks_wish {
    uint32_t block_bytes, want;
    uint32_t least_bytes; /* less than block_bytes: one smaller block will do if there is none of that size */
    enum memory_purpose purpose;
};

/* The keep has the layout of such a pool, and outlives it. BANYAN_ECORRUPT: what is kept makes no sense. */
int blocks_create(struct blocks **blocks, struct keep *keep, uint32_t chunks, uint64_t chunk_bytes,
                  struct error *error);
void blocks_destroy(struct blocks *blocks);
/* Takes everything back; the bits are clear already (keep_clear). */
void blocks_clear(struct blocks *blocks);
/* 1 to `want` offsets of blocks of *block_bytes each, which is what the wish says unless it allows less; 0:
 * there is not one block. The wish's sizes are of memory_block_size. */
uint32_t blocks_take(struct blocks *blocks, const struct blocks_wish *wish, uint64_t *offsets,
                     uint32_t *block_bytes);
/* All or none: false if one of them is not exactly a block that is handed out, or stands there twice. */
bool blocks_give(struct blocks *blocks, const uint64_t *offsets, const uint32_t *block_bytes, uint32_t count);
void blocks_count(const struct blocks *blocks, struct blocks_count *count);
/* The block that the byte at the offset belongs to; false: none that is handed out. */
bool blocks_find(const struct blocks *blocks, uint64_t offset, uint64_t *start, uint32_t *block_bytes);
/* The bits of 64 granules from `granule` (a multiple of 64) on: those handed out, and those where a block
 * begins. */
void blocks_words(const struct blocks *blocks, uint64_t granule, uint64_t *used, uint64_t *starts);
/* The first multiple of 64 granules from `granule` on that has a block in it, as far as it is cheap to tell
 * (it steps over empty chunks); the number of granules: none has. */
uint64_t blocks_next(const struct blocks *blocks, uint64_t granule);
uint64_t blocks_granules(const struct blocks *blocks);

/* ---- blocks of logs ---- */

/*
 * Blocks that their process alone gives back (log.c): blocks_give does not take them, and no chunk is emptied
 * for their sake, since nobody moves them. They begin at multiples of 64 bytes.
 *
 * A control block is small and stays for long, so it lies among the nodes, at the low end. A segment lies
 * among the data, off the reserve: where it can, it fills whole chunks, the highest that are free, so that
 * what lies in the chunks beside it can still be moved. Costs a step for each chunk of the pool.
 */

/* Exactly that many bytes, one of memory_block_size, at the low end. False: no room. */
bool blocks_log_control(struct blocks *blocks, uint32_t bytes, uint64_t *offset);
/* *bytes, at most `most`, at least `least`, a multiple of `step`: as many as there are in one piece, so that
 * beyond 2 MiB there may be more than what is found. All three are multiples of 64, and `most` and `least` of
 * `step`. False: there is no piece of `least` bytes. */
bool blocks_log_take(struct blocks *blocks, uint64_t most, uint64_t least, uint64_t step, uint64_t *offset,
                     uint64_t *bytes);
/* Both kinds. False: there is no such block of a log. */
bool blocks_log_give(struct blocks *blocks, uint64_t offset, uint64_t bytes);
/* Whether exactly these bytes are a block of a log; and how many of them there are, for a node that was kept.
 */
bool blocks_log_has(const struct blocks *blocks, uint64_t offset, uint64_t bytes);
uint64_t blocks_log_count(const struct blocks *blocks);
/* Whether the block that begins at the offset is a log's. */
bool blocks_log_is(const struct blocks *blocks, uint64_t offset);

/* ---- emptying chunks ---- */

/* Marks up to `most` chunks worth emptying, so that nothing of them is handed out, except when there is no
 * other room; their numbers. `owner` is the caller's name for them, 1 to BLOCKS_OWNERS. */
#define BLOCKS_OWNERS 8u
uint32_t blocks_empty_choose(struct blocks *blocks, unsigned owner, uint32_t most, uint32_t *chunks);
/* Which chunks the owner's marks are still on, in ascending order. */
uint32_t blocks_empty_marked(const struct blocks *blocks, unsigned owner, uint32_t most, uint32_t *chunks);
/* Takes the owner's marks off the chunks that are empty now. Before that they are kept back like the others,
 * so that what is moved does not go there. */
void blocks_empty_settle(struct blocks *blocks, unsigned owner);
/* Takes the marks off. Chunks that still have blocks are left alone until they have changed if `stuck`. */
void blocks_empty_end(struct blocks *blocks, unsigned owner, bool stuck);

/* ---- giving back to the system ---- */

/* The clock by which chunks are idle; the caller's, it never goes back. */
void blocks_tick(struct blocks *blocks, uint64_t now);
/* The next chunks at or behind *chunk that have been idle (touched, and no byte of them handed out) for
 * `delay`: *chunk is the first of them, the value how many follow each other, at most `most`; 0: no more. */
uint32_t blocks_idle(const struct blocks *blocks, uint64_t delay, uint32_t *chunk, uint32_t most);
/* The system has them again. */
void blocks_untouched(struct blocks *blocks, uint32_t chunk, uint32_t count);

#endif
