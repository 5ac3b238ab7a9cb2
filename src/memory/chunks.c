/* chunks.c - see blocks.h: what each chunk has in it, which chunks are emptied, and which go back to the
 * system. */
#include <assert.h>

#include "memory/blocks_state.h"
#include "memory/memory.h"

static uint32_t lesser(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* ---- accounts ---- */

/* How many of the `length` granules from `at` on are of the chunk that `at` lies in. */
static uint32_t within(const struct blocks *blocks, uint64_t at, uint64_t length)
{
    return lesser(length, blocks->chunk_granules - at % blocks->chunk_granules);
}

void chunks_take(struct blocks *blocks, uint64_t at, uint64_t length, bool nodes)
{
    for (uint32_t part; length > 0; at += part, length -= part) {
        struct chunk *chunk = &blocks->chunks[at / blocks->chunk_granules];
        part = within(blocks, at, length);
        assert(chunk->used + part <= blocks->chunk_granules && chunk->owner == 0);
        if (chunk->used == 0)
            blocks->count.chunks_used++;
        if (!chunk->touched)
            blocks->count.chunks_touched++;
        else if (chunk->used == 0)
            blocks->idle--;
        chunk->touched = true;
        chunk->used += part;
        chunk->nodes += nodes ? part : 0;
    }
}

/* What can be moved: nodes of the tree are not. */
static uint32_t data_of(const struct chunk *chunk)
{
    assert(chunk->used >= chunk->nodes);
    return chunk->used - chunk->nodes;
}

static void chunk_unmark(struct blocks *blocks, uint32_t number)
{
    struct chunk *chunk = &blocks->chunks[number];
    uint64_t at = (uint64_t)number * blocks->chunk_granules;
    assert(chunk->owner > 0 && blocks->marked[chunk->owner] > 0);
    blocks->marked[chunk->owner]--;
    blocks->count.chunks_emptying--;
    blocks->count.chunks_emptied += data_of(chunk) == 0;
    chunk->owner = 0;
    runs_hide(&blocks->runs, at, at + blocks->chunk_granules, false);
}

/* Whether a block that begins or ends in this chunk may have granules in one that is being emptied. */
static bool near_marked(const struct blocks *blocks, uint32_t number)
{
    uint32_t beside = MEMORY_BLOCK_MAX / RUNS_GRANULE / blocks->chunk_granules + 1;
    uint32_t from = number > beside ? number - beside : 0,
             to = lesser((uint64_t)number + beside + 1, blocks->chunks_total);
    while (from < to && blocks->chunks[from].owner == 0)
        from++;
    return from < to;
}

void chunks_give(struct blocks *blocks, uint64_t at, uint64_t length, bool nodes)
{
    for (uint32_t part; length > 0; at += part, length -= part) {
        uint32_t number = (uint32_t)(at / blocks->chunk_granules);
        struct chunk *chunk = &blocks->chunks[number];
        part = within(blocks, at, length);
        assert(chunk->used >= part && chunk->touched && chunk->nodes >= (nodes ? part : 0));
        if (blocks->count.chunks_emptying > 0 && near_marked(blocks, number))
            blocks->unyielding = UINT64_MAX;
        chunk->used -= part;
        chunk->nodes -= nodes ? part : 0;
        if (chunk->used > 0)
            continue;
        blocks->count.chunks_used--;
        blocks->idle++;
        chunk->idle_since = blocks->now;
        chunk->stuck = 0;
    }
}

/* ---- emptying: choosing ---- */

/* What there is to choose among: chunks with data that can be moved. Chunks that have nodes of the tree too
 * do not become empty by that, but what data leaves between the nodes serves nodes, or longer values. That is
 * worth it when few chunks are free, and in chunks that nodes do not fill: what is gained is the room around
 * the data that is moved. */
struct survey {
    uint64_t data; /* granules of the chunks to choose among, and those of them that are free */
    uint64_t room;
    uint32_t share_max;  /* eighths of a chunk: with more in it, it is not worth emptying */
    uint32_t nodes_most; /* granules: with more for nodes, neither */
};

static bool movable(const struct chunk *chunk, const struct survey *survey)
{
    return data_of(chunk) > 0 && chunk->nodes <= survey->nodes_most && chunk->owner == 0;
}

static struct survey survey_make(const struct blocks *blocks)
{
    /* While whole chunks are free only sparse ones are worth the work, and only if much lies between blocks.
     */
    bool scarce = blocks->chunks_total - blocks->count.chunks_used < blocks->chunks_total / 16 + 1;
    struct survey survey = {.share_max = scarce ? 7 : 5,
                            .nodes_most = scarce ? blocks->chunk_granules / 2 : 0};
    for (uint32_t i = 0; i < blocks->chunks_total; i++)
        if (movable(&blocks->chunks[i], &survey)) {
            survey.data += data_of(&blocks->chunks[i]);
            survey.room += blocks->chunk_granules - blocks->chunks[i].used;
        }
    if (!scarce && survey.room < survey.data / 16)
        survey.room = 0;
    return survey;
}

static bool candidate(const struct blocks *blocks, const struct survey *survey, uint32_t number)
{
    const struct chunk *chunk = &blocks->chunks[number];
    return movable(chunk, survey) && chunk->stuck != data_of(chunk) + 1 &&
           data_of(chunk) <= (blocks->chunk_granules - chunk->nodes) / 8 * survey->share_max;
}

/* Puts the number among those with the least data, in ascending order of that; `most` are kept. */
static uint32_t insert(const struct blocks *blocks, uint32_t *chunks, uint32_t count, uint32_t most,
                       uint32_t number)
{
    uint32_t data = data_of(&blocks->chunks[number]), at;
    if (count == most && data_of(&blocks->chunks[chunks[most - 1]]) <= data)
        return count;
    at = count < most ? count++ : most - 1;
    for (; at > 0 && data_of(&blocks->chunks[chunks[at - 1]]) > data; at--)
        chunks[at] = chunks[at - 1];
    chunks[at] = number;
    return count;
}

static void chunk_mark(struct blocks *blocks, uint32_t number, unsigned owner)
{
    uint64_t at = (uint64_t)number * blocks->chunk_granules;
    assert(data_of(&blocks->chunks[number]) > 0 && blocks->chunks[number].owner == 0);
    blocks->chunks[number].owner = (uint8_t)owner;
    blocks->marked[owner]++;
    blocks->count.chunks_emptying++;
    runs_hide(&blocks->runs, at, at + blocks->chunk_granules, true);
}

uint32_t blocks_empty_choose(struct blocks *blocks, unsigned owner, uint32_t most, uint32_t *chunks)
{
    struct survey survey = survey_make(blocks);
    uint32_t count = 0, chosen = 0;
    uint64_t moving = 0;
    assert(owner > 0 && owner <= BLOCKS_OWNERS && blocks->marked[owner] == 0);
    most = lesser(most, blocks->chunks_total / 16 + 1);
    for (uint32_t i = 0; i < blocks->chunks_total; i++)
        if (candidate(blocks, &survey, i))
            count = insert(blocks, chunks, count, most, i);
    for (; chosen < count; chosen++) {
        const struct chunk *chunk = &blocks->chunks[chunks[chosen]];
        moving += data_of(chunk);
        survey.room -= lesser(survey.room, blocks->chunk_granules - chunk->used);
        if (moving > survey.room / 4 * 3) /* holes are not of just the right sizes */
            break;
        chunk_mark(blocks, chunks[chosen], owner);
    }
    blocks->unyielding = UINT64_MAX;
    return blocks_empty_marked(blocks, owner, most, chunks);
}

uint32_t blocks_empty_marked(const struct blocks *blocks, unsigned owner, uint32_t most, uint32_t *chunks)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < blocks->chunks_total && count < most && count < blocks->marked[owner]; i++)
        if (blocks->chunks[i].owner == owner)
            chunks[count++] = i;
    return count;
}

void blocks_empty_settle(struct blocks *blocks, unsigned owner)
{
    for (uint32_t i = 0, left = blocks->marked[owner]; i < blocks->chunks_total && left > 0; i++)
        if (blocks->chunks[i].owner == owner) {
            left--;
            if (data_of(&blocks->chunks[i]) == 0)
                chunk_unmark(blocks, i);
        }
}

void blocks_empty_end(struct blocks *blocks, unsigned owner, bool stuck)
{
    for (uint32_t i = 0; i < blocks->chunks_total && blocks->marked[owner] > 0; i++) {
        struct chunk *chunk = &blocks->chunks[i];
        if (chunk->owner != owner)
            continue;
        chunk->stuck = stuck && data_of(chunk) > 0 ? data_of(chunk) + 1 : 0;
        chunk_unmark(blocks, i);
    }
    assert(blocks->marked[owner] == 0);
}

/* ---- emptying: the last resort ---- */

/* Whether the marked chunks from `from` to `to`, with what lies beside them, have a run of that length. */
static bool marked_run(const struct blocks *blocks, uint32_t from, uint32_t to, uint64_t length)
{
    uint32_t beside = (uint32_t)(length / blocks->chunk_granules) + 1;
    uint64_t first = from > beside ? from - beside : 0,
             end = lesser((uint64_t)to + beside, blocks->chunks_total);
    return runs_longest_within(&blocks->runs, first * blocks->chunk_granules, end * blocks->chunk_granules) >=
           length;
}

bool chunks_yield(struct blocks *blocks, uint64_t length)
{
    if (blocks->count.chunks_emptying == 0 || length >= blocks->unyielding)
        return false;
    for (uint32_t from = 0, to; from < blocks->chunks_total; from = to) {
        to = from + 1;
        if (blocks->chunks[from].owner == 0)
            continue;
        while (to < blocks->chunks_total && blocks->chunks[to].owner > 0)
            to++;
        if (!marked_run(blocks, from, to, length))
            continue;
        for (uint32_t i = from; i < to; i++)
            chunk_unmark(blocks, i);
        return true;
    }
    blocks->unyielding = length;
    return false;
}

/* ---- giving back to the system ---- */

void blocks_tick(struct blocks *blocks, uint64_t now)
{
    if (now > blocks->now)
        blocks->now = now;
}

uint32_t blocks_idle(const struct blocks *blocks, uint64_t delay, uint32_t *number, uint32_t most)
{
    uint32_t count = 0;
    if (blocks->idle == 0)
        return 0;
    for (uint32_t i = *number; i < blocks->chunks_total && count < most; i++) {
        const struct chunk *chunk = &blocks->chunks[i];
        bool idle = chunk->touched && chunk->used == 0 && blocks->now - chunk->idle_since >= delay;
        if (!idle && count > 0)
            break;
        if (idle && count++ == 0)
            *number = i;
    }
    return count;
}

void blocks_untouched(struct blocks *blocks, uint32_t number, uint32_t count)
{
    assert(blocks->idle >= count && blocks->count.chunks_touched >= count);
    for (uint32_t i = number; i < number + count; i++) {
        assert(blocks->chunks[i].touched && blocks->chunks[i].used == 0);
        blocks->chunks[i].touched = false;
    }
    blocks->idle -= count;
    blocks->count.chunks_touched -= count;
}
