/* blocks.c - see blocks.h. */
#include "memory/blocks.h"

#include <assert.h>
#include <stdlib.h>

#include "memory/memory.h"
#include "memory/pages.h"

#define NO_CHUNK UINT32_MAX
#define LEVELS   6 /* of 64 each: more than 32 bits of chunk numbers */

/* ---- sizes ---- */

#define FINE_MAX 128u /* up to here every multiple of MEMORY_BLOCK_MIN is a size */

uint32_t memory_block_bytes(uint64_t bytes)
{
    if (bytes > MEMORY_BLOCK_MAX)
        return 0;
    uint32_t unit = MEMORY_BLOCK_MIN;
    if (bytes > FINE_MAX) /* a quarter of the power of two below */
        unit = UINT32_C(1) << (63 - __builtin_clzll(bytes - 1) - 2);
    uint32_t rounded = ((uint32_t)bytes + unit - 1) & ~(unit - 1);
    return rounded ? rounded : MEMORY_BLOCK_MIN;
}

unsigned memory_block_index(uint32_t block_bytes)
{
    if (!block_bytes || memory_block_bytes(block_bytes) != block_bytes)
        return MEMORY_BLOCK_SIZES;
    if (block_bytes <= FINE_MAX)
        return block_bytes / MEMORY_BLOCK_MIN - 1;
    unsigned power = (unsigned)(31 - __builtin_clz(block_bytes - 1)); /* 7 beyond 128 */
    unsigned quarter = (block_bytes - (1u << power)) >> (power - 2);  /* 1 to 4 */
    return 4 * (power - 6) + quarter - 1;
}

uint32_t memory_block_size(unsigned index)
{
    assert(index < MEMORY_BLOCK_SIZES);
    if (index < 4)
        return (index + 1) * MEMORY_BLOCK_MIN;
    unsigned power = index / 4 + 6;
    return (1u << power) + ((index % 4 + 1) << (power - 2));
}

/* ---- sets of chunks, whose lowest member is found in a few steps ---- */

struct chunk_set {
    uint64_t *levels[LEVELS]; /* level 0: one bit a chunk; above: one bit a word below that is not empty */
    unsigned height;
};

static uint64_t set_words(uint64_t members)
{
    uint64_t words = 0;
    do {
        members = (members + 63) / 64;
        words += members;
    } while (members > 1);
    return words;
}

static uint64_t *set_init(struct chunk_set *set, uint64_t members, uint64_t *words)
{
    set->height = 0;
    do {
        members = (members + 63) / 64;
        set->levels[set->height++] = words;
        words += members;
    } while (members > 1);
    return words;
}

static void set_add(struct chunk_set *set, uint32_t member)
{
    for (unsigned level = 0; level < set->height; level++, member /= 64)
        set->levels[level][member / 64] |= UINT64_C(1) << member % 64;
}

static void set_remove(struct chunk_set *set, uint32_t member)
{
    for (unsigned level = 0; level < set->height; level++, member /= 64) {
        set->levels[level][member / 64] &= ~(UINT64_C(1) << member % 64);
        if (set->levels[level][member / 64])
            return;
    }
}

static uint32_t set_lowest(const struct chunk_set *set)
{
    uint32_t member = 0;
    if (!set->levels[set->height - 1][0])
        return NO_CHUNK;
    for (unsigned level = set->height; level-- > 0;)
        member = member * 64 + (uint32_t)__builtin_ctzll(set->levels[level][member]);
    return member;
}

/* ---- chunks ---- */

struct chunk {
    uint32_t block_bytes; /* 0: not cut */
    uint32_t blocks, free;
    uint32_t first_word; /* no block is free in a word of the bitmap before this one */
};

struct blocks {
    uint64_t chunk_bytes;
    uint32_t chunks_total;
    uint32_t fresh; /* chunks from here on have never been cut */
    struct pages chunk_pages, bitmap_pages, set_pages;
    struct chunk *chunks;
    uint64_t *bitmaps;                         /* a bit a block, set if handed out */
    struct chunk_set empty;                    /* chunks below `fresh` that are not cut */
    struct chunk_set room[MEMORY_BLOCK_SIZES]; /* chunks with a free block */
    /* For each size a chunk that stays cut although none of its blocks is handed out, while it is the only
     * one with room: else a single block that is taken and returned would cut a chunk anew each time. Another
     * size that finds no chunk takes it. */
    uint32_t kept[MEMORY_BLOCK_SIZES];
    struct blocks_count count;
};

static uint64_t bitmap_words(const struct blocks *blocks)
{
    return blocks->chunk_bytes / MEMORY_BLOCK_MIN / 64;
}

static uint64_t *bitmap_of(const struct blocks *blocks, uint32_t chunk)
{
    return blocks->bitmaps + chunk * bitmap_words(blocks);
}

static void fill(struct blocks *blocks)
{
    blocks->chunks = blocks->chunk_pages.start;
    blocks->bitmaps = blocks->bitmap_pages.start;
    uint64_t *words = set_init(&blocks->empty, blocks->chunks_total, blocks->set_pages.start);
    for (unsigned i = 0; i < MEMORY_BLOCK_SIZES; i++) {
        words = set_init(&blocks->room[i], blocks->chunks_total, words);
        blocks->kept[i] = NO_CHUNK;
    }
    blocks->fresh = 0;
    blocks->count = (struct blocks_count){0};
}

int blocks_create(struct blocks **created, uint32_t chunks, uint64_t chunk_bytes, struct error *error)
{
    struct blocks *blocks = calloc(1, sizeof *blocks);
    *created = NULL;
    if (blocks == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for the accounts of %u chunks", chunks);
    blocks->chunk_bytes = chunk_bytes;
    blocks->chunks_total = chunks;
    uint64_t set_bytes = (1 + MEMORY_BLOCK_SIZES) * set_words(chunks) * sizeof(uint64_t);
    uint64_t bitmap_bytes = chunks * bitmap_words(blocks) * sizeof(uint64_t);
    int status = pages_map(&blocks->chunk_pages, chunks * sizeof(struct chunk), false, error);
    if (!status)
        status = pages_map(&blocks->bitmap_pages, bitmap_bytes, false, error);
    if (!status)
        status = pages_map(&blocks->set_pages, set_bytes, false, error);
    if (status) {
        blocks_destroy(blocks);
        return status;
    }
    fill(blocks);
    *created = blocks;
    return BANYAN_OK;
}

void blocks_destroy(struct blocks *blocks)
{
    if (blocks == NULL)
        return;
    pages_unmap(&blocks->set_pages);
    pages_unmap(&blocks->bitmap_pages);
    pages_unmap(&blocks->chunk_pages);
    free(blocks);
}

void blocks_clear(struct blocks *blocks)
{
    pages_clear(&blocks->set_pages);
    pages_clear(&blocks->bitmap_pages);
    pages_clear(&blocks->chunk_pages);
    fill(blocks);
}

bool blocks_size_valid(const struct blocks *blocks, uint32_t block_bytes)
{
    return memory_block_index(block_bytes) < MEMORY_BLOCK_SIZES && block_bytes <= blocks->chunk_bytes;
}

/* None of the chunk's blocks is handed out: from now on any size may cut it. */
static void chunk_uncut(struct blocks *blocks, uint32_t number)
{
    struct chunk *chunk = &blocks->chunks[number];
    unsigned size = memory_block_index(chunk->block_bytes);
    assert(chunk->blocks > 0 && chunk->free == chunk->blocks);
    set_remove(&blocks->room[size], number);
    set_add(&blocks->empty, number);
    if (blocks->kept[size] == number)
        blocks->kept[size] = NO_CHUNK;
    blocks->count.chunks_used--;
    blocks->count.bytes_free -= (uint64_t)chunk->blocks * chunk->block_bytes;
    *chunk = (struct chunk){0};
}

/* Uncuts the lowest chunk that a size only keeps; false if there is none. */
static bool uncut_kept(struct blocks *blocks)
{
    uint32_t lowest = NO_CHUNK;
    for (unsigned i = 0; i < MEMORY_BLOCK_SIZES; i++)
        if (blocks->kept[i] < lowest)
            lowest = blocks->kept[i];
    if (lowest != NO_CHUNK)
        chunk_uncut(blocks, lowest);
    return lowest != NO_CHUNK;
}

static uint32_t chunk_cut(struct blocks *blocks, uint32_t block_bytes)
{
    uint32_t number = set_lowest(&blocks->empty);
    if (number == NO_CHUNK && blocks->fresh == blocks->chunks_total && uncut_kept(blocks))
        number = set_lowest(&blocks->empty);
    if (number != NO_CHUNK)
        set_remove(&blocks->empty, number);
    else if (blocks->fresh < blocks->chunks_total)
        number = blocks->fresh++;
    else
        return NO_CHUNK;
    uint32_t count = (uint32_t)(blocks->chunk_bytes / block_bytes);
    assert(blocks->chunks[number].block_bytes == 0);
    blocks->chunks[number] = (struct chunk){.block_bytes = block_bytes, .blocks = count, .free = count};
    set_add(&blocks->room[memory_block_index(block_bytes)], number);
    blocks->count.chunks_used++;
    blocks->count.bytes_free += (uint64_t)count * block_bytes;
    return number;
}

/* ---- handing out ---- */

/* The blocks of a word that are free; the last word may have fewer than 64. */
static uint64_t free_bits(const struct chunk *chunk, const uint64_t *bitmap, uint32_t word)
{
    uint32_t left = chunk->blocks - word * 64;
    return ~bitmap[word] & (left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX);
}

static uint32_t chunk_take(struct blocks *blocks, uint32_t number, uint32_t want, uint64_t *offsets)
{
    struct chunk *chunk = &blocks->chunks[number];
    uint64_t *bitmap = bitmap_of(blocks, number);
    uint32_t count = 0;
    for (; count < want && chunk->free > count; chunk->first_word++) {
        uint64_t bits = free_bits(chunk, bitmap, chunk->first_word);
        for (; bits && count < want; bits &= bits - 1) {
            uint64_t bit = (uint64_t)__builtin_ctzll(bits);
            bitmap[chunk->first_word] |= UINT64_C(1) << bit;
            offsets[count++] =
                number * blocks->chunk_bytes + (chunk->first_word * UINT64_C(64) + bit) * chunk->block_bytes;
        }
        if (bits)
            break;
    }
    assert(count > 0); /* the chunk was in the set of those with room */
    chunk->free -= count;
    if (!chunk->free)
        set_remove(&blocks->room[memory_block_index(chunk->block_bytes)], number);
    return count;
}

uint32_t blocks_take(struct blocks *blocks, uint32_t block_bytes, uint32_t want, uint64_t *offsets)
{
    unsigned size = memory_block_index(block_bytes);
    uint32_t count = 0;
    while (count < want) {
        uint32_t chunk = set_lowest(&blocks->room[size]);
        if (chunk == NO_CHUNK && count > 0)
            break; /* a batch that has begun is not worth a new chunk */
        if (chunk == NO_CHUNK)
            chunk = chunk_cut(blocks, block_bytes);
        if (chunk == NO_CHUNK)
            break;
        if (blocks->kept[size] == chunk)
            blocks->kept[size] = NO_CHUNK;
        count += chunk_take(blocks, chunk, want - count, offsets + count);
    }
    blocks->count.blocks_used += count;
    blocks->count.bytes_used += (uint64_t)count * block_bytes;
    blocks->count.bytes_free -= (uint64_t)count * block_bytes;
    return count;
}

/* ---- taking back ---- */

/* The chunk in which a block of that size begins at the offset, its bit in *bit; NO_CHUNK if none does. */
static uint32_t find_block(const struct blocks *blocks, uint64_t offset, uint32_t block_bytes, uint64_t *bit)
{
    uint64_t number = offset / blocks->chunk_bytes, within = offset % blocks->chunk_bytes;
    if (number >= blocks->fresh || blocks->chunks[number].block_bytes != block_bytes ||
        within % block_bytes != 0 || within / block_bytes >= blocks->chunks[number].blocks)
        return NO_CHUNK;
    *bit = within / block_bytes;
    return (uint32_t)number;
}

/* Clears the block's bit; false if there is no such block or its bit is clear already. */
static bool unmark(struct blocks *blocks, uint64_t offset, uint32_t block_bytes)
{
    uint64_t bit = 0;
    uint32_t number = find_block(blocks, offset, block_bytes, &bit);
    if (number == NO_CHUNK)
        return false;
    uint64_t *word = bitmap_of(blocks, number) + bit / 64;
    uint64_t mask = UINT64_C(1) << bit % 64;
    if (!(*word & mask))
        return false;
    *word &= ~mask;
    return true;
}

static void mark(struct blocks *blocks, uint64_t offset, uint32_t block_bytes)
{
    uint64_t bit = 0;
    uint32_t number = find_block(blocks, offset, block_bytes, &bit);
    assert(number != NO_CHUNK); /* unmark has found it */
    bitmap_of(blocks, number)[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* The block's bit is clear: counts it as free in its chunk, which is uncut if that was its last block in use.
 */
static void count_back(struct blocks *blocks, uint64_t offset, uint32_t block_bytes)
{
    uint64_t bit = 0;
    uint32_t number = find_block(blocks, offset, block_bytes, &bit);
    assert(number != NO_CHUNK && blocks->chunks[number].free < blocks->chunks[number].blocks);
    struct chunk *chunk = &blocks->chunks[number];
    struct chunk_set *room = &blocks->room[memory_block_index(block_bytes)];
    if (bit / 64 < chunk->first_word)
        chunk->first_word = (uint32_t)(bit / 64);
    if (chunk->free++ == 0)
        set_add(room, number);
    if (chunk->free < chunk->blocks)
        return;
    set_remove(room, number);
    bool only = set_lowest(room) == NO_CHUNK;
    set_add(room, number);
    if (only)
        blocks->kept[memory_block_index(block_bytes)] = number;
    else
        chunk_uncut(blocks, number);
}

bool blocks_give(struct blocks *blocks, uint32_t block_bytes, const uint64_t *offsets, uint32_t count)
{
    uint32_t done = 0;
    /* All bits are cleared before anything else is changed, so an offset that stands twice in the batch finds
     * its own bit clear. */
    while (done < count && unmark(blocks, offsets[done], block_bytes))
        done++;
    if (done < count) {
        while (done > 0)
            mark(blocks, offsets[--done], block_bytes);
        return false;
    }
    blocks->count.blocks_used -= count;
    blocks->count.bytes_used -= (uint64_t)count * block_bytes;
    blocks->count.bytes_free += (uint64_t)count * block_bytes;
    for (uint32_t i = 0; i < count; i++)
        count_back(blocks, offsets[i], block_bytes);
    return true;
}

/* ---- accounts ---- */

void blocks_count(const struct blocks *blocks, struct blocks_count *count)
{
    *count = blocks->count;
}

uint32_t blocks_of_chunk(const struct blocks *blocks, uint32_t chunk, uint32_t *block_bytes)
{
    *block_bytes = chunk < blocks->fresh ? blocks->chunks[chunk].block_bytes : 0;
    return *block_bytes ? blocks->chunks[chunk].blocks : 0;
}

uint64_t blocks_word(const struct blocks *blocks, uint32_t chunk, uint32_t word)
{
    return bitmap_of(blocks, chunk)[word];
}
