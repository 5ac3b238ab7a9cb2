/*
 * memory.c - the memory node: its mapping, the chunks it hands out, the nodes it takes back, and the locks
 * that it clears when a compute node has died.
 *
 * What it knows of chunks and returned nodes lies in its own memory, never in the pool, which any compute
 * node may write: a request is judged by this alone. One bit per smallest node says "returned"; a chunk with
 * returned nodes is on the list of its size. All of it is reserved at creation (a 4,096th of the pool,
 * touched as it is used), so that no request can fail for want of this process's memory.
 *
 * Any thread may call; requests take one spin lock for at most MEMORY_BATCH_MAX short steps. An allocation
 * that recycles may have to look for the next returned node in its chunk's bitmap (64 nodes a step).
 */
#include "memory/memory.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/log.h"
#include "memory/pages.h"

#define NODE_BYTES_MIN 512u
#define NODE_BYTES_MAX 65536u
#define SIZES          8 /* 512 to 64 KiB in powers of two */
#define NO_CHUNK       UINT32_MAX

struct chunk {
    uint32_t node_bytes; /* fixed when the chunk is handed out */
    uint32_t returned;   /* bits set in its bitmap */
    uint32_t next;       /* on the list of its size while returned > 0; NO_CHUNK ends it */
    uint32_t first_word; /* no bit is set in a word of the bitmap before this one */
};

struct memory_node {
    struct fabric_target target;
    uint16_t number;
    uint64_t chunk_bytes;
    uint32_t chunks_total;
    struct pages pool, locks, chunk_pages, bitmap_pages;

    struct spinlock lock; /* guards all below, and what it points to */
    struct chunk *chunks; /* in chunk_pages; the first chunks_used are handed out */
    uint64_t *bitmaps;    /* in bitmap_pages; chunk_bytes / NODE_BYTES_MIN bits a chunk */
    uint32_t chunks_used;
    uint32_t lists[SIZES]; /* chunks with returned nodes */
    uint64_t nodes_returned, frees_total, recycled_total;
    uint64_t refusals;
};

static bool power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* ---- chunks and their bitmaps ---- */

static unsigned size_index(uint32_t node_bytes)
{
    return (unsigned)__builtin_ctz(node_bytes) - (unsigned)__builtin_ctz(NODE_BYTES_MIN);
}

static uint64_t bitmap_words(const struct memory_node *node)
{
    return node->chunk_bytes / NODE_BYTES_MIN / 64;
}

static uint64_t *chunk_bitmap(const struct memory_node *node, uint32_t chunk)
{
    return node->bitmaps + chunk * bitmap_words(node);
}

static gaddr chunk_address(const struct memory_node *node, uint32_t chunk)
{
    return gaddr_make(node->number, MEMORY_FIRST_CHUNK(node->target.lock_bytes) + chunk * node->chunk_bytes);
}

static bool size_valid(const struct memory_node *node, uint32_t node_bytes)
{
    return power_of_two(node_bytes) && node_bytes >= NODE_BYTES_MIN && node_bytes <= NODE_BYTES_MAX &&
           node_bytes <= node->chunk_bytes;
}

/* ---- allocation ---- */

/* Takes one returned node out of a chunk that has some. */
static gaddr chunk_take(struct memory_node *node, uint32_t index)
{
    struct chunk *chunk = &node->chunks[index];
    uint64_t *bitmap = chunk_bitmap(node, index);
    while (bitmap[chunk->first_word] == 0)
        chunk->first_word++;
    uint64_t bit = (uint64_t)__builtin_ctzll(bitmap[chunk->first_word]);
    bitmap[chunk->first_word] &= bitmap[chunk->first_word] - 1;
    chunk->returned--;
    return chunk_address(node, index) + (chunk->first_word * UINT64_C(64) + bit) * chunk->node_bytes;
}

static uint32_t recycle(struct memory_node *node, uint32_t node_bytes, uint32_t want, gaddr *nodes)
{
    uint32_t *list = &node->lists[size_index(node_bytes)];
    uint32_t count = 0;
    while (count < want && *list != NO_CHUNK) {
        nodes[count++] = chunk_take(node, *list);
        if (node->chunks[*list].returned == 0)
            *list = node->chunks[*list].next;
    }
    node->nodes_returned -= count;
    node->recycled_total += count;
    return count;
}

static int take_chunk(struct memory_node *node, uint32_t node_bytes, gaddr *address)
{
    if (node->chunks_used == node->chunks_total)
        return BANYAN_ENOSPC;
    uint32_t index = node->chunks_used++;
    node->chunks[index] = (struct chunk){.node_bytes = node_bytes, .next = NO_CHUNK};
    *address = chunk_address(node, index);
    return BANYAN_OK;
}

static bool refused(struct memory_node *node)
{
    if (node->refusals == 0)
        return false;
    if (node->refusals != UINT64_MAX)
        node->refusals--;
    return true;
}

static int allocate(struct memory_node *node, const struct memory_allocate_request *request,
                    struct memory_allocate_reply *reply)
{
    int status = BANYAN_OK;
    if (!size_valid(node, request->node_bytes) || request->want - 1 >= MEMORY_BATCH_MAX)
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    if (refused(node))
        status = BANYAN_ENOSPC;
    else
        reply->count = recycle(node, request->node_bytes, request->want, reply->nodes);
    if (status == BANYAN_OK && reply->count == 0) {
        reply->chunk_bytes = node->chunk_bytes;
        status = take_chunk(node, request->node_bytes, &reply->chunk);
    }
    spinlock_unlock(&node->lock);
    return status;
}

/* ---- return of nodes ---- */

/* The chunk of a node that may be returned, its bit in *bit; NO_CHUNK if it is not one of that size. */
static uint32_t find_node(const struct memory_node *node, gaddr address, uint32_t node_bytes, uint64_t *bit)
{
    uint64_t offset = gaddr_offset(address) -
                      MEMORY_FIRST_CHUNK(node->target.lock_bytes); /* one below it is far beyond any chunk */
    uint64_t index = offset / node->chunk_bytes;
    uint64_t within = offset % node->chunk_bytes;
    if (gaddr_node(address) != node->number || index >= node->chunks_used ||
        node->chunks[index].node_bytes != node_bytes || within % node_bytes != 0)
        return NO_CHUNK;
    *bit = within / node_bytes;
    return (uint32_t)index;
}

/* Sets the node's bit; false if the address is not good or the bit is set already. */
static bool mark_returned(struct memory_node *node, gaddr address, uint32_t node_bytes)
{
    uint64_t bit = 0;
    uint32_t index = find_node(node, address, node_bytes, &bit);
    if (index == NO_CHUNK)
        return false;
    uint64_t *word = chunk_bitmap(node, index) + bit / 64;
    uint64_t mask = UINT64_C(1) << bit % 64;
    if (*word & mask)
        return false;
    *word |= mask;
    return true;
}

static void unmark_returned(struct memory_node *node, gaddr address, uint32_t node_bytes)
{
    uint64_t bit = 0;
    uint32_t index = find_node(node, address, node_bytes, &bit);
    chunk_bitmap(node, index)[bit / 64] &= ~(UINT64_C(1) << bit % 64);
}

/* The node's bit is set: the chunk and its list learn of it. */
static void count_returned(struct memory_node *node, gaddr address, uint32_t node_bytes)
{
    uint64_t bit = 0;
    uint32_t index = find_node(node, address, node_bytes, &bit);
    struct chunk *chunk = &node->chunks[index];
    if (chunk->returned++ == 0) {
        uint32_t *list = &node->lists[size_index(node_bytes)];
        chunk->next = *list;
        *list = index;
    }
    if (bit / 64 < chunk->first_word)
        chunk->first_word = (uint32_t)(bit / 64);
}

static int give_back(struct memory_node *node, const struct memory_free_request *request)
{
    uint32_t marked = 0;
    if (!size_valid(node, request->node_bytes) || request->count - 1 >= MEMORY_BATCH_MAX)
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    /* All bits first: an address that stands twice in the batch meets its own bit. */
    while (marked < request->count && mark_returned(node, request->nodes[marked], request->node_bytes))
        marked++;
    bool good = marked == request->count;
    for (uint32_t i = 0; i < marked; i++) {
        if (good)
            count_returned(node, request->nodes[i], request->node_bytes);
        else
            unmark_returned(node, request->nodes[i], request->node_bytes);
    }
    if (good) {
        node->nodes_returned += marked;
        node->frees_total += marked;
    }
    spinlock_unlock(&node->lock);
    return good ? BANYAN_OK : BANYAN_EINVAL;
}

/* ---- requests ---- */

static int send_reply(void *reply, size_t capacity, size_t *reply_length, const void *data, size_t length)
{
    memcpy(reply, data, length);
    *reply_length = length;
    return BANYAN_OK;
}

static int call_allocate(struct memory_node *node, const void *bytes, size_t length, void *reply,
                         size_t capacity, size_t *reply_length)
{
    struct memory_allocate_request request;
    struct memory_allocate_reply answer = {0};
    if (length < sizeof request || capacity < sizeof answer)
        return BANYAN_EINVAL; /* judged first: what is handed out must reach its owner */
    memcpy(&request, bytes, sizeof request);
    int status = allocate(node, &request, &answer);
    if (status != BANYAN_OK)
        return status;
    return send_reply(reply, capacity, reply_length, &answer, sizeof answer);
}

/* The array may be cut after `count` nodes. */
static int call_free(struct memory_node *node, const void *bytes, size_t length)
{
    struct memory_free_request request;
    const size_t head = offsetof(struct memory_free_request, nodes);
    if (length < head)
        return BANYAN_EINVAL;
    memcpy(&request, bytes, length < sizeof request ? length : sizeof request);
    if (request.count > MEMORY_BATCH_MAX || length < head + request.count * sizeof(gaddr))
        return BANYAN_EINVAL;
    return give_back(node, &request);
}

static int node_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                     size_t capacity, size_t *reply_length)
{
    struct memory_node *node = owner;
    struct memory_status_reply status;
    uint32_t kind;
    *reply_length = 0;
    if (length < sizeof kind)
        return BANYAN_EINVAL;
    memcpy(&kind, request, sizeof kind);
    switch (kind) {
    case MEMORY_ALLOCATE:
        return call_allocate(node, request, length, reply, capacity, reply_length);
    case MEMORY_FREE:
        return call_free(node, request, length);
    case MEMORY_STATUS:
        if (length < sizeof(struct memory_status_request) || capacity < sizeof status)
            return BANYAN_EINVAL;
        memory_node_status(node, &status);
        return send_reply(reply, capacity, reply_length, &status, sizeof status);
    default:
        return BANYAN_EINVAL;
    }
}

/* ---- life ---- */

static int check_options(struct memory_options *options, struct error *error)
{
    if (options->chunk_bytes == 0)
        options->chunk_bytes = MEMORY_CHUNK_BYTES;
    if (options->lock_bytes == 0)
        options->lock_bytes = MEMORY_LOCK_BYTES;
    if (options->lock_width == 0)
        options->lock_width = 2;

    unsigned number = options->node;
    unsigned long long chunk = options->chunk_bytes, pool = options->pool_bytes, locks = options->lock_bytes;
    if (!power_of_two(chunk) || chunk < (64u << 10) || chunk > (1u << 30))
        return error_set(error, BANYAN_EINVAL,
                         "memory node %u: chunk size %llu is not a power of two from 64 KiB to 1 GiB", number,
                         chunk);
    if (options->lock_width != 2 && options->lock_width != 8)
        return error_set(error, BANYAN_EINVAL, "memory node %u: lock width %u is neither 2 nor 8", number,
                         options->lock_width);
    if (locks % 8 != 0 || locks > GADDR_LOCK_REGION / 2)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %u: lock region of %llu bytes: not a multiple of 8 below 64 TiB",
                         number, locks);
    if (pool % 8 != 0 || pool > GADDR_LOCK_REGION)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %u: pool of %llu bytes: not a multiple of 8 up to 128 TiB", number,
                         pool);
    if (pool < MEMORY_FIRST_CHUNK(locks) + chunk)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %u: pool of %llu bytes is too small; one chunk and the lock table need %llu", number,
            pool, MEMORY_FIRST_CHUNK(locks) + chunk);
    if ((pool - MEMORY_FIRST_CHUNK(locks)) / chunk >= NO_CHUNK)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %u: pool of %llu bytes has too many chunks of %llu", number, pool,
                         chunk);
    return BANYAN_OK;
}

static int map_node(struct memory_node *node, const struct memory_options *options, struct error *error)
{
    uint64_t bitmap_bytes = node->chunks_total * bitmap_words(node) * sizeof(uint64_t);
    int status = pages_map(&node->pool, options->pool_bytes, options->huge_pages, error);
    if (status == BANYAN_OK)
        status = pages_map(&node->locks, options->lock_bytes, false, error);
    if (status == BANYAN_OK)
        status = pages_map(&node->chunk_pages, node->chunks_total * sizeof(struct chunk), false, error);
    if (status == BANYAN_OK)
        status = pages_map(&node->bitmap_pages, bitmap_bytes, false, error);
    return status;
}

static void fill_node(struct memory_node *node, const struct memory_options *options)
{
    node->chunks = node->chunk_pages.start;
    node->bitmaps = node->bitmap_pages.start;
    for (unsigned i = 0; i < SIZES; i++)
        node->lists[i] = NO_CHUNK;
    node->target = (struct fabric_target){
        .pool = node->pool.start,
        .pool_bytes = options->pool_bytes,
        .locks = node->locks.start,
        .lock_bytes = options->lock_bytes,
        .lock_width = options->lock_width,
        .call = node_call,
        .owner = node,
    };
    /* The one part of the pool that is touched here: it must stay sparse. */
    *(struct memory_header *)node->pool.start = (struct memory_header){
        .magic = MEMORY_MAGIC,
        .pool_bytes = options->pool_bytes,
        .chunk_bytes = options->chunk_bytes,
        .node = options->node,
    };
}

int memory_node_create(struct memory_node **created, const struct memory_options *given, struct error *error)
{
    struct memory_options options = *given;
    *created = NULL;
    int status = check_options(&options, error);
    if (status != BANYAN_OK)
        return status;
    struct memory_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for memory node %u", (unsigned)options.node);
    node->number = options.node;
    node->chunk_bytes = options.chunk_bytes;
    node->chunks_total =
        (uint32_t)((options.pool_bytes - MEMORY_FIRST_CHUNK(options.lock_bytes)) / options.chunk_bytes);
    status = map_node(node, &options, error);
    if (status != BANYAN_OK) {
        memory_node_destroy(node);
        return status;
    }
    fill_node(node, &options);
    log_info("memory node %u: pool of %llu MiB on %s, %u chunks", (unsigned)node->number,
             (unsigned long long)(options.pool_bytes >> 20), node->pool.kind, node->chunks_total);
    *created = node;
    return BANYAN_OK;
}

void memory_node_destroy(struct memory_node *node)
{
    if (node == NULL)
        return;
    pages_unmap(&node->bitmap_pages);
    pages_unmap(&node->chunk_pages);
    pages_unmap(&node->locks);
    pages_unmap(&node->pool);
    free(node);
}

const struct fabric_target *memory_node_target(const struct memory_node *node)
{
    return &node->target;
}

/* ---- locks of the dead ---- */

/* Others go on taking and releasing locks meanwhile, so a word is cleared only if it still bears the id.
 * Sequentially consistent like every atomic of the fabric (G3): a lock cleared here passes on what its holder
 * had written. */
static uint64_t release_narrow(uint16_t *words, uint64_t count, uint16_t id)
{
    uint64_t released = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t expected = id;
        /* relaxed: a hint only; the fenced owner takes no more locks, so none is missed */
        if (atomic_load_relaxed(&words[i]) == id &&
            __atomic_compare_exchange_n(&words[i], &expected, (uint16_t)0, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
            released++;
    }
    return released;
}

static uint64_t release_wide(uint64_t *words, uint64_t count, uint64_t id)
{
    uint64_t released = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t expected = id;
        /* relaxed: as above */
        if (atomic_load_relaxed(&words[i]) == id &&
            __atomic_compare_exchange_n(&words[i], &expected, UINT64_C(0), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
            released++;
    }
    return released;
}

static uint64_t release_table(const struct memory_node *node, void *table, uint16_t compute_id)
{
    if (node->target.lock_width == 2)
        return release_narrow(table, node->target.lock_bytes / 2, compute_id);
    return release_wide(table, node->target.lock_bytes / 8, compute_id);
}

uint64_t memory_node_release_locks(struct memory_node *node, uint16_t compute_id)
{
    uint8_t *dram = node->target.pool + MEMORY_LOCK_TABLE_OFFSET;
    if (compute_id == 0)
        return 0; /* the mark of a free lock */
    return release_table(node, node->target.locks, compute_id) + release_table(node, dram, compute_id);
}

/* ---- accounts ---- */

void memory_node_status(struct memory_node *node, struct memory_status_reply *status)
{
    spinlock_lock(&node->lock);
    *status = (struct memory_status_reply){
        .pool_bytes = node->target.pool_bytes,
        .chunk_bytes = node->chunk_bytes,
        .chunks_total = node->chunks_total,
        .chunks_used = node->chunks_used,
        .nodes_returned = node->nodes_returned,
        .frees_total = node->frees_total,
        .recycled_total = node->recycled_total,
    };
    spinlock_unlock(&node->lock);
}

void memory_node_refuse(struct memory_node *node, uint64_t count)
{
    spinlock_lock(&node->lock);
    node->refusals = count;
    spinlock_unlock(&node->lock);
}

static uint32_t chunks_used(struct memory_node *node)
{
    spinlock_lock(&node->lock);
    uint32_t used = node->chunks_used;
    spinlock_unlock(&node->lock);
    return used;
}

void memory_node_each_chunk(struct memory_node *node, void (*visit)(void *, gaddr chunk, uint32_t node_bytes),
                            void *context)
{
    uint32_t used = chunks_used(node);
    for (uint32_t i = 0; i < used; i++) /* a chunk that was handed out never changes its size */
        visit(context, chunk_address(node, i), node->chunks[i].node_bytes);
}

/* The lock is not held while visit runs, so visit may call the memory node; each word of a bitmap is seen at
 * one instant. */
void memory_node_each_free(struct memory_node *node, void (*visit)(void *, gaddr node, uint32_t node_bytes),
                           void *context)
{
    uint32_t used = chunks_used(node);
    for (uint32_t i = 0; i < used; i++) {
        uint32_t node_bytes = node->chunks[i].node_bytes;
        uint64_t words = (node->chunk_bytes / node_bytes + 63) / 64;
        for (uint64_t word = 0; word < words; word++) {
            spinlock_lock(&node->lock);
            uint64_t bits = chunk_bitmap(node, i)[word];
            spinlock_unlock(&node->lock);
            for (; bits != 0; bits &= bits - 1) {
                uint64_t bit = word * 64 + (uint64_t)__builtin_ctzll(bits);
                visit(context, chunk_address(node, i) + bit * node_bytes, node_bytes);
            }
        }
    }
}
