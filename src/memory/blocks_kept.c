/*
 * blocks_kept.c - see blocks.h: the accounts of a pool that was kept, from the three bits of its granules.
 * One pass over them when the node is opened: some milliseconds for each GiB of the pool.
 *
 * The bits are believed as far as they agree with each other: a block begins only where granules are handed
 * out, what is handed out behind a free granule begins a block, and marks of nodes and logs stand where such
 * a block begins. All that blocks.c asserts follows from that.
 */
#include <assert.h>

#include "memory/bits.h"
#include "memory/blocks_state.h"
#include "memory/keep_file.h"

/* What the pass carries from a word to the next. */
struct pass {
    bool used;  /* its last granule is handed out */
    bool fixed; /* ... to a block for a node or a log */
    bool first; /* ... and begins one */
};

/* Of the word's granules those of nodes and logs. */
static uint64_t fixed_granules(uint64_t used, uint64_t starts, uint64_t nodes, bool fixed)
{
    uint64_t found = 0;
    uint64_t bounds = starts | ~used; /* where a block ends, too */
    for (unsigned at = 0; at < 64;) {
        uint64_t rest = at + 1 < 64 ? bounds >> (at + 1) : 0;
        if (starts >> at & 1)
            fixed = nodes >> at & 1;
        unsigned end = rest != 0 ? at + 1 + (unsigned)__builtin_ctzll(rest) : 64;
        uint64_t count, mask = bits_mask(at, end - at, &count);
        if (fixed && used >> at & 1)
            found |= mask;
        at = end;
    }
    return found;
}

/* Whether the word's bits agree with each other, and with those before it. */
static bool word_agrees(uint64_t used, uint64_t starts, uint64_t nodes, const struct pass *pass)
{
    uint64_t behind_free = ~(used << 1 | pass->used), seconds = nodes & ~starts;
    uint64_t behind_first = (nodes & starts) << 1 | (pass->first && pass->fixed);
    return (starts & ~used) == 0 && (used & behind_free & ~starts) == 0 && (seconds & ~used) == 0 &&
           (seconds & ~behind_first) == 0;
}

static bool word_add(struct blocks *blocks, uint64_t word, struct pass *pass)
{
    uint64_t used = blocks->runs.used[word], starts = blocks->starts[word], nodes = blocks->nodes[word];
    if ((used | starts | nodes) == 0) {
        *pass = (struct pass){0};
        return true;
    }
    if (!word_agrees(used, starts, nodes, pass))
        return false;
    struct chunk *chunk = &blocks->chunks[word * 64 / blocks->chunk_granules];
    uint64_t fixed =
        (nodes & starts) != 0 || pass->fixed ? fixed_granules(used, starts, nodes, pass->fixed) : 0;
    chunk->used += (uint32_t)__builtin_popcountll(used);
    chunk->nodes += (uint32_t)__builtin_popcountll(fixed);
    blocks->count.blocks_used += (uint64_t)__builtin_popcountll(starts);
    *pass = (struct pass){.used = used >> 63, .fixed = fixed >> 63, .first = starts >> 63};
    return true;
}

static void chunks_add(struct blocks *blocks)
{
    for (uint32_t i = 0; i < blocks->chunks_total; i++) {
        struct chunk *chunk = &blocks->chunks[i];
        chunk->touched = chunk->used > 0;
        blocks->count.chunks_used += chunk->touched;
        blocks->count.bytes_used += (uint64_t)chunk->used * RUNS_GRANULE;
    }
    blocks->count.chunks_touched = blocks->count.chunks_used;
    blocks->count.bytes_free -= blocks->count.bytes_used;
}

int blocks_rebuild(struct blocks *blocks, const struct keep *keep, struct error *error)
{
    struct pass pass = {0};
    uint64_t words = blocks->runs.granules / 64;
    for (uint64_t word = 0; word < words; word++)
        if (!word_add(blocks, word, &pass))
            return error_set(error, BANYAN_ECORRUPT,
                             "pool file %s is damaged: the accounts of its blocks contradict each other at "
                             "byte %llu; move it away to begin with an empty pool",
                             keep_name(keep),
                             (unsigned long long)(keep->layout.at[KEEP_USED] + word * sizeof(uint64_t)));
    chunks_add(blocks);
    if (blocks->count.blocks_used > 0)
        runs_update(&blocks->runs, 0, blocks->runs.granules);
    runs_floor_settle(&blocks->runs, UINT64_MAX);
    return BANYAN_OK;
}

uint64_t blocks_log_count(const struct blocks *blocks)
{
    uint64_t count = 0;
    for (uint64_t word = 0; word < blocks->runs.granules / 64; word++)
        count += (uint64_t)__builtin_popcountll(blocks->nodes[word] & ~blocks->starts[word]);
    return count;
}
