/* blocks_log.c - see blocks.h: blocks of owners' logs, which are larger than others and are never moved. */
#include <assert.h>

#include "memory/bits.h"
#include "memory/blocks_state.h"
#include "memory/memory.h"

#define ALIGNMENT UINT64_C(2) /* granules */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- where a segment goes ---- */

/* The highest whole chunks above the floor that are free and follow each other, with `length` granules
 * together. */
static uint64_t find_chunks(const struct blocks *blocks, uint64_t length)
{
    uint64_t wanted = length / blocks->chunk_granules, run = 0;
    if (length % blocks->chunk_granules != 0)
        return RUNS_NONE;
    uint64_t lowest = (runs_floor(&blocks->runs) + blocks->chunk_granules - 1) / blocks->chunk_granules;
    for (uint64_t number = blocks->chunks_total; number-- > lowest;) {
        const struct chunk *chunk = &blocks->chunks[number];
        run = chunk->used == 0 && chunk->owner == 0 ? run + 1 : 0;
        if (run == wanted)
            return number * blocks->chunk_granules;
    }
    return RUNS_NONE;
}

/* The end of the highest run above the floor that has room for it. Runs longer than RUNS_CAP are not told
 * apart: then only the highest of them is looked at. */
static uint64_t find_run(const struct blocks *blocks, uint64_t length)
{
    const struct runs *runs = &blocks->runs;
    uint64_t end = runs_last(runs, lesser(length + ALIGNMENT - 1, RUNS_CAP));
    if (end == RUNS_NONE)
        return RUNS_NONE;
    end -= end % ALIGNMENT;
    if (end < runs_floor(runs) + length || runs_room_down(runs, end, length) < length)
        return RUNS_NONE;
    return end - length;
}

static uint64_t find(const struct blocks *blocks, uint64_t length)
{
    uint64_t at = find_chunks(blocks, length);
    return at != RUNS_NONE ? at : find_run(blocks, length);
}

/* The next length to try when there is no run of `length`: half of it, or what the longest run has. */
static uint64_t next_length(const struct blocks *blocks, uint64_t length, uint64_t step)
{
    uint64_t shorter = length / 2;
    if (length <= RUNS_CAP) {
        uint64_t longest = runs_longest(&blocks->runs, runs_floor(&blocks->runs));
        shorter = lesser(length, longest > ALIGNMENT ? longest - (ALIGNMENT - 1) : 1) - 1;
    }
    return shorter / step * step;
}

/* ---- handing out ---- */

/* All that tells a log's block from a node's. */
static void mark(struct blocks *blocks, uint64_t at)
{
    assert(at % ALIGNMENT == 0 && bits_get(blocks->nodes, at) && !bits_get(blocks->nodes, at + 1));
    bits_set(blocks->nodes, at + 1, 1);
}

bool blocks_log_control(struct blocks *blocks, uint32_t bytes, uint64_t *offset)
{
    const struct blocks_wish wish = {
        .block_bytes = bytes, .want = 1, .least_bytes = bytes, .purpose = MEMORY_FOR_NODES};
    uint32_t got;
    assert(bytes >= ALIGNMENT * RUNS_GRANULE);
    keep_begin(blocks->list); /* what takes the block back takes its mark off */
    bool taken = blocks_take(blocks, &wish, offset, &got) > 0;
    if (taken)
        mark(blocks, *offset / RUNS_GRANULE);
    keep_end(blocks->list);
    return taken;
}

bool blocks_log_take(struct blocks *blocks, uint64_t most, uint64_t least, uint64_t step, uint64_t *offset,
                     uint64_t *bytes)
{
    const uint64_t least_length = least / RUNS_GRANULE, step_length = step / RUNS_GRANULE;
    assert(least > 0 && least <= most && most % step == 0 && least % step == 0);
    assert(step % (ALIGNMENT * RUNS_GRANULE) == 0 && least_length <= RUNS_CAP - (ALIGNMENT - 1));
    do {
        runs_floor_settle(&blocks->runs, UINT64_MAX);
        for (uint64_t length = most / RUNS_GRANULE; length >= least_length;
             length = next_length(blocks, length, step_length)) {
            uint64_t at = find(blocks, length);
            if (at == RUNS_NONE)
                continue;
            keep_begin(blocks->list);
            blocks_carve(blocks, at, length, 1, true);
            mark(blocks, at);
            keep_end(blocks->list);
            *offset = at * RUNS_GRANULE;
            *bytes = length * RUNS_GRANULE;
            return true;
        }
    } while (chunks_yield(blocks, least_length + ALIGNMENT - 1));
    return false;
}

/* ---- taking back ---- */

bool blocks_log_has(const struct blocks *blocks, uint64_t offset, uint64_t bytes)
{
    uint64_t granules = blocks->runs.granules, at = offset / RUNS_GRANULE, length = bytes / RUNS_GRANULE;
    return offset % RUNS_GRANULE == 0 && bytes % RUNS_GRANULE == 0 && length >= ALIGNMENT && at < granules &&
           length <= granules - at && blocks_is_run(blocks, at, length) && blocks_is_log(blocks, at);
}

bool blocks_log_give(struct blocks *blocks, uint64_t offset, uint64_t bytes)
{
    uint64_t at = offset / RUNS_GRANULE, length = bytes / RUNS_GRANULE;
    if (!blocks_log_has(blocks, offset, bytes))
        return false;
    keep_begin(blocks->list);
    keep_run(blocks->list, KEEP_LOGS, at, length);
    bits_unset(blocks->runs.used, at, length);
    bits_unset(blocks->starts, at, 1);
    bits_unset(blocks->nodes, at, ALIGNMENT);
    keep_end(blocks->list);
    chunks_give(blocks, at, length, true);
    runs_update(&blocks->runs, at, length);
    runs_floor_settle(&blocks->runs, BLOCKS_FLOOR_STEPS);
    assert(blocks->count.blocks_used > 0 && blocks->count.bytes_used >= bytes);
    blocks->count.blocks_used--;
    blocks->count.bytes_used -= bytes;
    blocks->count.bytes_free += bytes;
    return true;
}

/* ---- looking up ---- */

bool blocks_is_log(const struct blocks *blocks, uint64_t at)
{
    return at + 1 < blocks->runs.granules && bits_get(blocks->nodes, at) && bits_get(blocks->nodes, at + 1);
}

bool blocks_log_is(const struct blocks *blocks, uint64_t offset)
{
    return offset % RUNS_GRANULE == 0 && blocks_is_log(blocks, offset / RUNS_GRANULE);
}
