/* blocks.c - see blocks.h: handing out, taking back, looking up. */
#include <assert.h>
#include <stdlib.h>

#include "memory/bits.h"
#include "memory/blocks_state.h"
#include "memory/memory.h"

_Static_assert(RUNS_GRANULE == MEMORY_BLOCK_MIN, "the least block is a granule");
_Static_assert(MEMORY_BLOCK_MAX / RUNS_GRANULE + 1 <= RUNS_CAP, "every block's run is found, aligned or not");

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- life ---- */

static void fill(struct blocks *blocks)
{
    blocks->chunks = blocks->chunk_pages.start;
    blocks->idle = 0;
    blocks->unyielding = UINT64_MAX;
    for (unsigned i = 0; i <= BLOCKS_OWNERS; i++)
        blocks->marked[i] = 0;
    blocks->count = (struct blocks_count){.bytes_free = blocks->runs.granules * RUNS_GRANULE};
}

int blocks_create(struct blocks **created, struct keep *keep, uint32_t chunks, uint64_t chunk_bytes,
                  struct error *error)
{
    struct blocks *blocks = calloc(1, sizeof *blocks);
    *created = NULL;
    if (blocks == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for the accounts of %u chunks", chunks);
    blocks->chunk_granules = (uint32_t)(chunk_bytes / RUNS_GRANULE);
    blocks->chunks_total = chunks;
    uint64_t granules = (uint64_t)chunks * blocks->chunk_granules;
    assert(granules == keep->layout.granules);
    blocks->list = &keep->node;
    blocks->starts = keep->starts;
    blocks->nodes = keep->nodes;
    int status = runs_create(&blocks->runs, keep->used, granules, error);
    if (!status)
        status = pages_map(&blocks->chunk_pages, chunks * sizeof(struct chunk), error);
    if (!status) {
        fill(blocks);
        if (keep_checked(keep, KEEP_USED_SINCE) != 0)
            status = blocks_rebuild(blocks, keep, error);
    }
    if (status) {
        blocks_destroy(blocks);
        return status;
    }
    *created = blocks;
    return BANYAN_OK;
}

void blocks_destroy(struct blocks *blocks)
{
    if (blocks == NULL)
        return;
    pages_unmap(&blocks->chunk_pages);
    runs_destroy(&blocks->runs);
    free(blocks);
}

void blocks_clear(struct blocks *blocks)
{
    pages_clear(&blocks->chunk_pages);
    runs_clear(&blocks->runs);
    fill(blocks);
}

/* ---- handing out ---- */

/* Where the lowest blocks are that follow each other, 64-byte aligned, and how many, at most `want`. */
static uint64_t find_low(const struct blocks *blocks, uint64_t length, uint64_t want, uint64_t *at)
{
    const struct runs *runs = &blocks->runs;
    *at = runs_first(runs, length);
    if (*at % 2 != 0 && *at != RUNS_NONE && runs_room_up(runs, *at, length + 1) <= length)
        *at = runs_first(runs, length + 1);
    if (*at == RUNS_NONE)
        return 0;
    *at += *at % 2;
    if (length % 2 != 0) /* the next one would not be aligned */
        want = 1;
    return runs_room_up(runs, *at, length * want) / length;
}

/* The same for data below the floor, in holes that are too small for nodes: else a pool full of such holes
 * would refuse all data, also that which is moved to join them. */
static uint64_t find_scrap(struct blocks *blocks, uint64_t length, uint64_t want, uint64_t *at)
{
    uint64_t end = runs_scrap(&blocks->runs, length);
    if (end == RUNS_NONE)
        return 0;
    uint64_t in_leaf = (end - 1) % RUNS_LEAF + 1;
    uint64_t count = runs_room_down(&blocks->runs, end, lesser(length * want, in_leaf)) / length;
    *at = end - count * length;
    return count;
}

/* The same for the highest above the floor. */
static uint64_t find_high(struct blocks *blocks, uint64_t length, uint64_t want, uint64_t *at)
{
    struct runs *runs = &blocks->runs;
    uint64_t end = runs_last(runs, length);
    if (end == RUNS_NONE)
        return 0;
    if (end - length < runs_floor(runs)) {
        runs_floor_settle(runs, UINT64_MAX);
        if (end - length < runs_floor(runs))
            return find_scrap(blocks, length, want, at);
    }
    uint64_t room = lesser(runs_room_down(runs, end, length * want), end - runs_floor(runs));
    uint64_t count = room / length;
    *at = end - count * length;
    return count;
}

void blocks_carve(struct blocks *blocks, uint64_t at, uint64_t length, uint64_t count, bool fixed)
{
    assert(count > 0 && bits_are(blocks->runs.used, at, length * count, false));
    keep_run(blocks->list, KEEP_FREE, at, length * count);
    bits_set(blocks->runs.used, at, length * count);
    for (uint64_t i = 0; i < count; i++) {
        assert(!bits_get(blocks->starts, at + i * length));
        bits_set(blocks->starts, at + i * length, 1);
        if (fixed)
            bits_set(blocks->nodes, at + i * length, 1);
    }
    chunks_take(blocks, at, length * count, fixed);
    runs_update(&blocks->runs, at, length * count);
    runs_floor_settle(&blocks->runs, BLOCKS_FLOOR_STEPS);
    blocks->count.blocks_used += count;
    blocks->count.bytes_used += length * count * RUNS_GRANULE;
    blocks->count.bytes_free -= length * count * RUNS_GRANULE;
}

static uint32_t take(struct blocks *blocks, const struct blocks_wish *wish, uint32_t block_bytes,
                     uint32_t want, uint64_t *offsets)
{
    uint64_t length = block_bytes / RUNS_GRANULE, at = 0;
    bool nodes = wish->purpose == MEMORY_FOR_NODES;
    uint32_t taken = 0;
    while (taken < want) {
        uint64_t count = nodes ? find_low(blocks, length, want - taken, &at)
                               : find_high(blocks, length, want - taken, &at);
        if (count == 0)
            break;
        blocks_carve(blocks, at, length, count, nodes);
        for (uint64_t i = 0; i < count; i++)
            offsets[taken++] = (at + i * length) * RUNS_GRANULE;
    }
    return taken;
}

/* The largest block that there is, if it is large enough for the wish; 0. */
static uint32_t part_bytes(struct blocks *blocks, const struct blocks_wish *wish)
{
    struct runs *runs = &blocks->runs;
    runs_floor_settle(runs, UINT64_MAX);
    uint64_t longest = runs_longest(runs, wish->purpose == MEMORY_FOR_NODES ? 0 : runs_floor(runs));
    uint32_t bytes = memory_block_within(longest * RUNS_GRANULE);
    if (wish->purpose == MEMORY_FOR_NODES && bytes > 0) /* it may have to be aligned */
        bytes = memory_block_within(longest * RUNS_GRANULE - RUNS_GRANULE);
    return bytes >= wish->least_bytes && bytes < wish->block_bytes ? bytes : 0;
}

uint32_t blocks_take(struct blocks *blocks, const struct blocks_wish *wish, uint64_t *offsets,
                     uint32_t *block_bytes)
{
    assert(memory_block_index(wish->block_bytes) < MEMORY_BLOCK_SIZES);
    assert(wish->least_bytes > 0 && wish->least_bytes <= wish->block_bytes);
    uint32_t count = 0;
    keep_begin(blocks->list);
    do {
        *block_bytes = wish->block_bytes;
        count = take(blocks, wish, wish->block_bytes, wish->want, offsets);
        uint32_t part = count == 0 && wish->least_bytes < wish->block_bytes ? part_bytes(blocks, wish) : 0;
        if (part > 0) {
            *block_bytes = part;
            count = take(blocks, wish, part, 1, offsets);
            assert(count == 1);
        }
    } while (count == 0 && chunks_yield(blocks, wish->least_bytes / RUNS_GRANULE));
    keep_end(blocks->list);
    return count;
}

/* ---- taking back ---- */

bool blocks_is_run(const struct blocks *blocks, uint64_t at, uint64_t length)
{
    uint64_t granules = blocks->runs.granules, end = at + length;
    return bits_get(blocks->starts, at) && bits_are(blocks->runs.used, at, length, true) &&
           bits_are(blocks->starts, at + 1, length - 1, false) &&
           (end == granules || !bits_get(blocks->runs.used, end) || bits_get(blocks->starts, end));
}

/* Whether exactly these granules are a block that is handed out, and not a log's. */
static bool is_block(const struct blocks *blocks, uint64_t offset, uint32_t block_bytes)
{
    uint64_t granules = blocks->runs.granules, at = offset / RUNS_GRANULE,
             length = block_bytes / RUNS_GRANULE;
    if (memory_block_index(block_bytes) == MEMORY_BLOCK_SIZES || offset % RUNS_GRANULE != 0 ||
        at >= granules || length > granules - at)
        return false;
    return blocks_is_run(blocks, at, length) && !blocks_is_log(blocks, at);
}

static void unmark(struct blocks *blocks, uint64_t offset, uint32_t block_bytes)
{
    bool node = bits_get(blocks->nodes, offset / RUNS_GRANULE);
    keep_run(blocks->list, node ? KEEP_NODE : KEEP_DATA, offset / RUNS_GRANULE, block_bytes / RUNS_GRANULE);
    bits_unset(blocks->runs.used, offset / RUNS_GRANULE, block_bytes / RUNS_GRANULE);
    bits_unset(blocks->starts, offset / RUNS_GRANULE, 1);
}

static void mark(struct blocks *blocks, uint64_t offset, uint32_t block_bytes)
{
    bits_set(blocks->runs.used, offset / RUNS_GRANULE, block_bytes / RUNS_GRANULE);
    bits_set(blocks->starts, offset / RUNS_GRANULE, 1);
}

/* Granules whose bits are clear and of which the tree does not know yet. */
struct pending {
    uint64_t from, to; /* to 0: none */
};

static void pending_flush(struct blocks *blocks, struct pending *pending)
{
    if (pending->to > 0)
        runs_update(&blocks->runs, pending->from, pending->to - pending->from);
    pending->to = 0;
}

/* Neighbours, and what is of one leaf, are told to the tree together. */
static void pending_add(struct blocks *blocks, struct pending *pending, uint64_t at, uint64_t length)
{
    uint64_t end = at + length;
    if (pending->to > 0 &&
        (end < pending->from / RUNS_LEAF * RUNS_LEAF || at / RUNS_LEAF > pending->to / RUNS_LEAF))
        pending_flush(blocks, pending);
    if (pending->to == 0 || at < pending->from)
        pending->from = at;
    if (end > pending->to)
        pending->to = end;
}

static bool give(struct blocks *blocks, const uint64_t *offsets, const uint32_t *block_bytes, uint32_t count)
{
    uint32_t done = 0;
    struct pending pending = {0};
    /* All bits are cleared before anything else is changed, so an offset that stands twice in the batch finds
     * its own bit clear. */
    for (; done < count && is_block(blocks, offsets[done], block_bytes[done]); done++)
        unmark(blocks, offsets[done], block_bytes[done]);
    if (done < count) {
        while (done-- > 0)
            mark(blocks, offsets[done], block_bytes[done]);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = offsets[i] / RUNS_GRANULE, length = block_bytes[i] / RUNS_GRANULE;
        bool nodes = bits_get(blocks->nodes, at);
        if (nodes)
            bits_unset(blocks->nodes, at, 1);
        pending_add(blocks, &pending, at, length);
        chunks_give(blocks, at, length, nodes);
        blocks->count.bytes_used -= block_bytes[i];
        blocks->count.bytes_free += block_bytes[i];
    }
    pending_flush(blocks, &pending);
    runs_floor_settle(&blocks->runs, BLOCKS_FLOOR_STEPS);
    assert(blocks->count.blocks_used >= count);
    blocks->count.blocks_used -= count;
    return true;
}

bool blocks_give(struct blocks *blocks, const uint64_t *offsets, const uint32_t *block_bytes, uint32_t count)
{
    keep_begin(blocks->list);
    bool good = give(blocks, offsets, block_bytes, count);
    keep_end(blocks->list);
    return good;
}

/* ---- looking up ---- */

/* Behind the block that begins at the granule. */
static uint64_t block_end(const struct blocks *blocks, uint64_t start)
{
    uint64_t at = start + 1;
    while (at < blocks->runs.granules) {
        uint64_t others = (~blocks->runs.used[at / 64] | blocks->starts[at / 64]) >> at % 64;
        if (others != 0)
            return at + (uint64_t)__builtin_ctzll(others);
        at = at / 64 * 64 + 64;
    }
    return blocks->runs.granules;
}

bool blocks_find(const struct blocks *blocks, uint64_t offset, uint64_t *start, uint32_t *block_bytes)
{
    uint64_t at = offset / RUNS_GRANULE;
    if (at >= blocks->runs.granules || !bits_get(blocks->runs.used, at))
        return false;
    at = bits_last(blocks->starts, at);
    uint64_t end = block_end(blocks, at);
    *start = at * RUNS_GRANULE;
    *block_bytes = (uint32_t)((end - at) * RUNS_GRANULE);
    return true;
}

void blocks_words(const struct blocks *blocks, uint64_t granule, uint64_t *used, uint64_t *starts)
{
    assert(granule % 64 == 0 && granule < blocks->runs.granules);
    *used = blocks->runs.used[granule / 64];
    *starts = blocks->starts[granule / 64];
}

uint64_t blocks_next(const struct blocks *blocks, uint64_t granule)
{
    uint64_t chunk = granule / blocks->chunk_granules;
    if (chunk >= blocks->chunks_total || blocks->chunks[chunk].used > 0)
        return lesser(granule, blocks->runs.granules);
    while (chunk < blocks->chunks_total && blocks->chunks[chunk].used == 0)
        chunk++;
    return chunk * blocks->chunk_granules;
}

uint64_t blocks_granules(const struct blocks *blocks)
{
    return blocks->runs.granules;
}

void blocks_count(const struct blocks *blocks, struct blocks_count *count)
{
    *count = blocks->count;
}
