/*
 * test_blocks.c - the accounts of a pool against a plain map of its bytes: random sizes from both ends,
 * parts, wrong returns, chunks that are emptied; and what is chosen to be emptied, and given back to the
 * system.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "memory/bits.h"
#include "memory/blocks_state.h"
#include "memory/memory.h"

#define CHUNK    (UINT64_C(64) << 10)
#define CHUNKS   72u
#define GRANULES (CHUNKS * CHUNK / 32)
#define IN_CHUNK (CHUNK / 32)
#define HELD_MAX 6000u

struct held {
    uint64_t offset;
    uint32_t bytes;
    bool node;
};

struct model {
    struct blocks *blocks;
    struct random random;
    uint32_t map[GRANULES]; /* one more than the number of the block that has the granule; 0: free */
    struct held held[HELD_MAX];
    uint32_t count, emptying;
    uint64_t bytes, taken, refused, parts, yielded;
};

static struct blocks *make(uint32_t chunks)
{
    struct blocks *blocks = NULL;
    struct error error = {0};
    const struct keep_sizes sizes = {.pool_bytes = MEMORY_FIRST_CHUNK(1984) + chunks * CHUNK,
                                     .chunk_bytes = CHUNK,
                                     .lock_bytes = 1984,
                                     .log_bytes = MEMORY_LOG_BYTES_LEAST,
                                     .lock_width = 2};
    struct keep *keep = calloc(1, sizeof *keep);
    assert_non_null(keep);
    if (keep_create(keep, &sizes, &error) || blocks_create(&blocks, keep, chunks, CHUNK, &error))
        fail_msg("%s", error.text);
    return blocks;
}

static void destroy(struct blocks *blocks)
{
    struct keep *keep = (struct keep *)(void *)((uint8_t *)blocks->list - offsetof(struct keep, node));
    blocks_destroy(blocks);
    keep_destroy(keep);
    free(keep);
}

/* ---- the model ---- */

static void model_add(struct model *model, uint64_t offset, uint32_t bytes, bool node)
{
    uint32_t number = model->count++;
    assert_true(number < HELD_MAX);
    model->held[number] = (struct held){offset, bytes, node};
    for (uint64_t at = offset / 32; at < (offset + bytes) / 32; at++) {
        assert_true(at < GRANULES && model->map[at] == 0);
        model->map[at] = number + 1;
    }
    model->bytes += bytes;
}

static void model_remove(struct model *model, uint32_t number)
{
    struct held last = model->held[--model->count], gone = model->held[number];
    for (uint64_t at = gone.offset / 32; at < (gone.offset + gone.bytes) / 32; at++)
        model->map[at] = 0;
    if (number < model->count) {
        model->held[number] = last;
        for (uint64_t at = last.offset / 32; at < (last.offset + last.bytes) / 32; at++)
            model->map[at] = number + 1;
    }
    model->bytes -= gone.bytes;
}

/* The longest free run of the map from `from` on. */
static uint64_t model_longest(const struct model *model, uint64_t from)
{
    uint64_t longest = 0, run = 0;
    for (uint64_t at = from; at < GRANULES; at++) {
        run = model->map[at] == 0 ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

static bool hidden(const struct model *model, uint64_t offset, uint32_t bytes)
{
    for (uint64_t chunk = offset / CHUNK; chunk <= (offset + bytes - 1) / CHUNK; chunk++)
        if (model->blocks->chunks[chunk].owner > 0)
            return true;
    return false;
}

/* Everything that the accounts say, against the map. */
static void model_compare(const struct model *model)
{
    const struct blocks *blocks = model->blocks;
    struct blocks_count count;
    uint64_t chunks_used = 0, room = 0, emptying = 0;
    blocks_count(blocks, &count);
    for (uint64_t word = 0; word < GRANULES / 64; word++) {
        uint64_t used = 0, starts = 0, seen_used, seen_starts;
        for (uint64_t bit = 0; bit < 64; bit++) {
            uint64_t at = word * 64 + bit;
            uint32_t owner = model->map[at];
            used |= (uint64_t)(owner != 0) << bit;
            starts |= (uint64_t)(owner != 0 && model->held[owner - 1].offset == at * 32) << bit;
        }
        blocks_words(blocks, word * 64, &seen_used, &seen_starts);
        assert_true(used == seen_used && starts == seen_starts);
    }
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        uint32_t used = 0, nodes = 0;
        for (uint64_t at = chunk * IN_CHUNK; at < (chunk + 1) * IN_CHUNK; at++) {
            used += model->map[at] != 0;
            nodes += model->map[at] != 0 && model->held[model->map[at] - 1].node;
        }
        assert_int_equal(blocks->chunks[chunk].used, used);
        assert_int_equal(blocks->chunks[chunk].nodes, nodes);
        chunks_used += used > 0;
        emptying += blocks->chunks[chunk].owner > 0;
    }
    assert_true(count.blocks_used == model->count && count.bytes_used == model->bytes);
    assert_true(count.bytes_free == GRANULES * 32 - model->bytes);
    assert_true(count.chunks_used == chunks_used && count.chunks_emptying == emptying);
    if (!emptying) {
        uint64_t longest = model_longest(model, 0);
        assert_int_equal(runs_longest(&blocks->runs, 0), longest < RUNS_CAP ? longest : RUNS_CAP);
    }
    for (uint64_t zone = 0; zone < blocks->runs.floor; zone++)
        room += (RUNS_LEAF << blocks->runs.zone_shift) - blocks->runs.zone_lacks[zone];
    assert_int_equal(room, blocks->runs.room_below);
}

/* ---- random operations ---- */

static uint32_t random_size(struct random *random)
{
    uint64_t most =
        UINT64_C(32) << random_below(random, 16); /* to 1 MiB, small ones as often as large ones */
    return memory_block_bytes(1 + random_below(random, most));
}

static void take(struct model *model)
{
    struct random *random = &model->random;
    uint64_t offsets[MEMORY_BATCH_MAX];
    uint32_t bytes = 0;
    struct blocks_wish wish = {.block_bytes = random_size(random),
                               .want =
                                   1 + (uint32_t)random_below(random, random_chance(random, 0.2) ? 64 : 4),
                               .purpose = random_chance(random, 0.3) ? MEMORY_FOR_NODES : MEMORY_FOR_DATA};
    wish.least_bytes = wish.block_bytes;
    if (random_chance(random, 0.3))
        wish.least_bytes = memory_block_bytes(1 + random_below(random, wish.block_bytes));
    bool node = wish.purpose == MEMORY_FOR_NODES;
    uint64_t before = model->blocks->count.chunks_emptying;
    uint32_t got = blocks_take(model->blocks, &wish, offsets, &bytes);
    model->yielded += model->blocks->count.chunks_emptying < before;
    if (got == 0) {
        uint64_t from = node ? 0 : runs_floor(&model->blocks->runs);
        model->refused++;
        assert_true(model_longest(model, from) < wish.least_bytes / 32 + node); /* it must be aligned */
        return;
    }
    assert_true(got <= wish.want && bytes <= wish.block_bytes && bytes >= wish.least_bytes);
    assert_true(memory_block_index(bytes) < MEMORY_BLOCK_SIZES);
    if (bytes < wish.block_bytes) {
        model->parts++;
        assert_int_equal(got, 1);
    }
    for (uint32_t i = 0; i < got; i++) {
        assert_true(offsets[i] % (node ? 64 : 32) == 0);
        assert_false(hidden(model, offsets[i], bytes));
        model_add(model, offsets[i], bytes, node);
    }
    model->taken += got;
}

static void give(struct model *model)
{
    uint64_t offsets[8];
    uint32_t sizes[8], numbers[8], count = 0, want = 1 + (uint32_t)random_below(&model->random, 8);
    while (count < want && count < model->count) {
        uint32_t number = (uint32_t)random_below(&model->random, model->count), i = 0;
        while (i < count && numbers[i] != number)
            i++;
        if (i < count)
            break;
        numbers[count] = number;
        offsets[count] = model->held[number].offset;
        sizes[count++] = model->held[number].bytes;
    }
    if (!count)
        return;
    assert_true(blocks_give(model->blocks, offsets, sizes, count));
    for (uint32_t i = 0; i < count; i++) /* the numbers change as others are removed */
        model_remove(model, model->map[offsets[i] / 32] - 1);
}

/* A batch with something wrong in it: nothing changes. */
static void give_wrongly(struct model *model)
{
    struct random *random = &model->random;
    uint64_t offsets[3];
    uint32_t sizes[3], bad = (uint32_t)random_below(random, 3);
    if (model->count < 3)
        return;
    for (uint32_t i = 0; i < 3; i++) {
        const struct held *held = &model->held[random_below(random, model->count)];
        offsets[i] = held->offset;
        sizes[i] = held->bytes;
    }
    switch (random_below(random, 6)) {
    case 0:
        sizes[bad] = memory_block_bytes(sizes[bad] + 1);
        break;
    case 1:
        sizes[bad] = memory_block_within(sizes[bad] - 1);
        break;
    case 2:
        offsets[bad] += 32 * (1 + random_below(random, sizes[bad] / 32));
        sizes[bad] = random_size(random);
        break;
    case 3:
        offsets[bad] = random_below(random, GRANULES) * 32;
        break;
    case 4:
        offsets[bad] = offsets[(bad + 1) % 3];
        sizes[bad] = sizes[(bad + 1) % 3];
        break;
    default:
        offsets[bad] = random_next(random);
        break;
    }
    bool good = true;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t owner = offsets[i] / 32 < GRANULES && offsets[i] % 32 == 0 ? model->map[offsets[i] / 32] : 0;
        good &= owner != 0 && model->held[owner - 1].offset == offsets[i] &&
                model->held[owner - 1].bytes == sizes[i];
        for (uint32_t j = 0; j < i; j++)
            good &= offsets[i] != offsets[j];
    }
    assert_int_equal(blocks_give(model->blocks, offsets, sizes, 3), good);
    for (uint32_t i = 0; good && i < 3; i++)
        model_remove(model, model->map[offsets[i] / 32] - 1);
}

static void empty_some(struct model *model)
{
    uint32_t chunks[CHUNKS];
    unsigned owner = 1 + (unsigned)random_below(&model->random, 2);
    if (model->blocks->marked[owner] > 0) {
        blocks_empty_end(model->blocks, owner, random_chance(&model->random, 0.5));
        return;
    }
    uint32_t count =
        blocks_empty_choose(model->blocks, owner, 1 + (uint32_t)random_below(&model->random, 5), chunks);
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk *chunk = &model->blocks->chunks[chunks[i]];
        assert_true(chunk->used > chunk->nodes && chunk->owner == owner);
    }
    model->emptying += count;
}

static void any_history(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    for (unsigned seed = 1; seed <= 4; seed++) {
        memset(model, 0, sizeof *model);
        model->blocks = make(CHUNKS);
        random_seed(&model->random, seed);
        for (unsigned round = 0; round < 15000; round++) {
            double growing = round / 1500 % 2 == 0 ? 0.62 : 0.3;
            if (model->count + MEMORY_BATCH_MAX < HELD_MAX && random_chance(&model->random, growing))
                take(model);
            else
                give(model);
            if (random_chance(&model->random, 0.05))
                give_wrongly(model);
            if (random_chance(&model->random, 0.02))
                empty_some(model);
            if (round % 250 == 0)
                model_compare(model);
        }
        assert_true(model->refused > 100 && model->parts > 100 && model->emptying > 10 && model->yielded > 0);
        while (model->count)
            give(model);
        model_compare(model);
        blocks_empty_end(model->blocks, 1, true);
        blocks_empty_end(model->blocks, 2, false);
        assert_int_equal(runs_longest(&model->blocks->runs, 0), RUNS_CAP);
        destroy(model->blocks);
    }
    free(model);
}

/* ---- emptying ---- */

static uint64_t take_one(struct blocks *blocks, enum memory_purpose purpose, uint32_t bytes)
{
    struct blocks_wish wish = {.block_bytes = bytes, .want = 1, .least_bytes = bytes, .purpose = purpose};
    uint64_t offset = UINT64_MAX;
    uint32_t got;
    return blocks_take(blocks, &wish, &offset, &got) ? offset : UINT64_MAX;
}

static void give_one(struct blocks *blocks, uint64_t offset, uint32_t bytes)
{
    assert_true(blocks_give(blocks, &offset, &bytes, 1));
}

#define IN_A_CHUNK (CHUNK / 1024)

/* Data in chunks of 1 KiB blocks, from the high end down; then all but the first `left[i]` of the i-th chunk
 * go. */
static void sparse(struct blocks *blocks, const unsigned *left, unsigned chunks)
{
    uint32_t last = blocks->chunks_total;
    for (unsigned i = 0; i < chunks * IN_A_CHUNK; i++)
        assert_int_not_equal(take_one(blocks, MEMORY_FOR_DATA, 1024), UINT64_MAX);
    for (unsigned i = 0; i < chunks; i++)
        for (unsigned at = left[i]; at < IN_A_CHUNK; at++)
            give_one(blocks, (last - 1 - i) * CHUNK + at * 1024, 1024);
}

static void the_sparsest_are_emptied(void **state)
{
    struct blocks *blocks = make(64);
    const unsigned left[] = {IN_A_CHUNK, 20, 3, 40, 60, 30, 30};
    uint32_t chunks[64];
    sparse(blocks, left, 7);
    /* Those with the least in them, while what lies in them fits into three quarters of the room in the
     * others: 3 and 20 blocks, not 30 more. */
    assert_int_equal(blocks_empty_choose(blocks, 1, 64, chunks), 2);
    assert_int_equal(chunks[0], 61);
    assert_int_equal(chunks[1], 62);
    assert_int_equal(blocks->count.chunks_emptying, 2);
    /* Nothing of them is handed out. */
    for (unsigned i = 0; i < 24 + 4 + 34 + 34; i++)
        assert_in_range(take_one(blocks, MEMORY_FOR_DATA, 1024) / CHUNK, 57, 60);
    assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 1024) / CHUNK, 56);
    /* Also not when one is empty, until the owner says so. */
    for (unsigned at = 0; at < 3; at++)
        give_one(blocks, 61 * CHUNK + at * 1024, 1024);
    assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 1024) / CHUNK, 56);
    blocks_empty_settle(blocks, 1);
    assert_int_equal(blocks_empty_marked(blocks, 1, 64, chunks), 1);
    assert_int_equal(blocks->count.chunks_emptied, 1);
    assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 1024) / CHUNK, 61);
    blocks_empty_end(blocks, 1, true);
    assert_int_equal(blocks->count.chunks_emptying, 0);
    destroy(blocks);
}

static void stuck_chunks_are_left_alone(void **state)
{
    struct blocks *blocks = make(64);
    const unsigned left[] = {50, 10, 50};
    uint32_t chunks[64];
    sparse(blocks, left, 3);
    assert_int_equal(blocks_empty_choose(blocks, 2, 64, chunks), 1);
    assert_int_equal(chunks[0], 62);
    blocks_empty_end(blocks, 2, true);
    assert_int_equal(blocks_empty_choose(blocks, 2, 64, chunks), 0);
    /* Until something in it has changed. */
    give_one(blocks, 62 * CHUNK, 1024);
    assert_int_equal(blocks_empty_choose(blocks, 2, 64, chunks), 1);
    blocks_empty_end(blocks, 2, false); /* it was not tried */
    assert_int_equal(blocks_empty_choose(blocks, 2, 64, chunks), 1);
    blocks_empty_end(blocks, 2, false);
    destroy(blocks);
}

/* Nodes of the tree are not moved: chunks that have some are left alone while there is room, and data alone
 * leaves them when there is little. */
static void data_leaves_nodes_alone(void **state)
{
    struct blocks *blocks = make(64);
    const unsigned left[] = {30, 10, 30};
    uint32_t chunks[64];
    struct blocks_count count;
    sparse(blocks, left, 3);
    while (take_one(blocks, MEMORY_FOR_NODES, 1024) / CHUNK != 50)
        ;
    assert_true(take_one(blocks, MEMORY_FOR_DATA, 65536) != UINT64_MAX);
    assert_int_equal(blocks_empty_choose(blocks, 2, 64, chunks), 1);
    assert_int_equal(chunks[0], 62);
    blocks_empty_end(blocks, 2, false);
    while (take_one(blocks, MEMORY_FOR_NODES, 1024) / CHUNK != 62)
        ;
    /* What nodes have more than half of is not worth it. */
    uint64_t nodes[IN_A_CHUNK / 2];
    for (unsigned i = 0; i < IN_A_CHUNK / 2; i++)
        assert_int_equal((nodes[i] = take_one(blocks, MEMORY_FOR_NODES, 1024)) / CHUNK, 62);
    blocks_empty_choose(blocks, 2, 64, chunks);
    assert_int_equal(blocks->chunks[62].owner, 0);
    blocks_empty_end(blocks, 2, false);
    for (unsigned i = 0; i < IN_A_CHUNK / 2; i++)
        give_one(blocks, nodes[i], 1024);
    assert_int_equal(blocks_empty_choose(blocks, 2, 1, chunks), 1);
    assert_int_equal(chunks[0], 62);
    for (unsigned at = 0; at < 10; at++) {
        blocks_empty_settle(blocks, 2);
        assert_int_equal(blocks_empty_marked(blocks, 2, 64, chunks), 1);
        give_one(blocks, 62 * CHUNK + at * 1024, 1024);
    }
    blocks_empty_settle(blocks, 2);
    assert_int_equal(blocks_empty_marked(blocks, 2, 64, chunks), 0);
    blocks_count(blocks, &count);
    assert_int_equal(count.chunks_emptied, 1);
    assert_true(count.chunks_emptying == 0 && blocks->chunks[62].used == blocks->chunks[62].nodes);
    blocks_empty_end(blocks, 2, true);
    destroy(blocks);
}

/* What is kept back is handed out before a block is refused, and not otherwise. */
static void the_last_resort(void **state)
{
    struct blocks *blocks = make(64);
    const unsigned left[] = {10, 40, 30, IN_A_CHUNK, 40};
    uint32_t chunks[64];
    unsigned taken = 0;
    sparse(blocks, left, 5);
    assert_int_equal(blocks_empty_choose(blocks, 1, 1, chunks), 1);
    assert_int_equal(chunks[0], 63);
    uint64_t offset;
    while ((offset = take_one(blocks, MEMORY_FOR_DATA, 1024)) / CHUNK != 63) {
        assert_int_equal(blocks->count.chunks_emptying, 1);
        assert_true(offset != UINT64_MAX && taken++ < 64 * IN_A_CHUNK);
    }
    assert_int_equal(blocks->count.chunks_emptying, 0);
    for (unsigned i = 1; i < 54; i++)
        assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 1024) / CHUNK, 63);
    assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 1024), UINT64_MAX);
    destroy(blocks);
}

/* ---- the floor ---- */

/* However the nodes come and go, a 64th of the pool is left for them by data that takes all it gets. */
static void the_floor_follows_the_nodes(void **state)
{
    struct blocks *blocks = make(512);
    static uint64_t nodes[512 * IN_A_CHUNK], data[512 * IN_A_CHUNK];
    uint32_t node_count = 0, data_count = 0;
    const uint32_t reserve = 512 / 64 * (uint32_t)IN_A_CHUNK;
    struct random random;
    random_seed(&random, 5);
    for (unsigned round = 0; round < 20; round++) {
        uint32_t change = (uint32_t)random_below(&random, 2000), more = 0;
        uint64_t offset;
        if (random_chance(&random, 0.5)) {
            for (; change && (offset = take_one(blocks, MEMORY_FOR_NODES, 1024)) != UINT64_MAX; change--)
                nodes[node_count++] = offset;
        } else {
            for (; change && node_count; change--) {
                uint64_t at = random_below(&random, node_count);
                give_one(blocks, nodes[at], 1024);
                nodes[at] = nodes[--node_count];
            }
        }
        for (uint32_t some = data_count / 8; some; some--) {
            uint64_t at = random_below(&random, data_count);
            give_one(blocks, data[at], 1024);
            data[at] = data[--data_count];
        }
        while ((offset = take_one(blocks, MEMORY_FOR_DATA, 1024)) != UINT64_MAX)
            data[data_count++] = offset;
        while ((offset = take_one(blocks, MEMORY_FOR_NODES, 1024)) != UINT64_MAX) {
            nodes[node_count++] = offset;
            more++;
        }
        assert_true(more >= reserve || data_count == 0);
        for (; more; more--)
            give_one(blocks, nodes[--node_count], 1024);
    }
    destroy(blocks);
}

/* Nodes have taken all that they can use, and half of the pool is holes of 64 bytes: data gets those. */
static void holes_too_small_for_nodes_serve_data(void **state)
{
    struct blocks *blocks = make(64);
    static uint64_t data[64 * CHUNK / 64];
    uint32_t count = 0, holes = 0, chunks[64];
    uint64_t offset;
    while ((offset = take_one(blocks, MEMORY_FOR_DATA, 64)) != UINT64_MAX)
        data[count++] = offset;
    for (uint32_t i = 0; i < count; i += 2, holes++)
        give_one(blocks, data[i], 64);
    while (take_one(blocks, MEMORY_FOR_NODES, 1024) != UINT64_MAX)
        ;
    assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 1024), UINT64_MAX);
    /* What is emptied has a place to go to. */
    for (uint32_t i = 1; i < 300; i += 2)
        give_one(blocks, data[i], 64);
    assert_true(blocks_empty_choose(blocks, 1, 64, chunks) > 0);
    for (uint32_t i = 0; i < holes / 2; i++) {
        offset = take_one(blocks, MEMORY_FOR_DATA, 64);
        assert_int_not_equal(offset, UINT64_MAX);
        assert_int_equal(blocks->chunks[offset / CHUNK].owner, 0);
    }
    blocks_empty_end(blocks, 1, true);
    /* All holes but those that have become room for nodes, and what lies beside them. */
    for (uint32_t i = holes / 2; i < holes - 2 * RUNS_LEAF; i++)
        assert_int_not_equal(take_one(blocks, MEMORY_FOR_DATA, 64), UINT64_MAX);
    destroy(blocks);
}

/* ---- idle chunks ---- */

static void idle_chunks(void **state)
{
    struct blocks *blocks = make(64);
    struct blocks_count count;
    uint32_t chunk = 0;
    uint64_t first = take_one(blocks, MEMORY_FOR_DATA, 65536),
             second = take_one(blocks, MEMORY_FOR_DATA, 65536),
             third = take_one(blocks, MEMORY_FOR_DATA, 65536);
    blocks_count(blocks, &count);
    assert_int_equal(count.chunks_touched, 3);
    blocks_tick(blocks, 1000);
    give_one(blocks, first, 65536);
    give_one(blocks, third, 65536);
    assert_int_equal(blocks_idle(blocks, 500, &chunk, 8), 0);
    blocks_tick(blocks, 1500);
    give_one(blocks, second, 65536);
    assert_int_equal(blocks_idle(blocks, 500, &chunk, 8), 1);
    assert_int_equal(chunk, 61);
    chunk = 62;
    assert_int_equal(blocks_idle(blocks, 500, &chunk, 8), 1);
    assert_int_equal(chunk, 63);
    blocks_tick(blocks, 2000);
    chunk = 0;
    assert_int_equal(blocks_idle(blocks, 500, &chunk, 2), 2);
    assert_int_equal(chunk, 61);
    blocks_untouched(blocks, 61, 2);
    blocks_count(blocks, &count);
    assert_int_equal(count.chunks_touched, 1);
    /* What is taken again is not idle. */
    assert_int_equal(take_one(blocks, MEMORY_FOR_DATA, 32) / CHUNK, 63);
    chunk = 0;
    assert_int_equal(blocks_idle(blocks, 500, &chunk, 8), 0);
    destroy(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_history),
        cmocka_unit_test(the_sparsest_are_emptied),
        cmocka_unit_test(stuck_chunks_are_left_alone),
        cmocka_unit_test(data_leaves_nodes_alone),
        cmocka_unit_test(the_last_resort),
        cmocka_unit_test(the_floor_follows_the_nodes),
        cmocka_unit_test(holes_too_small_for_nodes_serve_data),
        cmocka_unit_test(idle_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
