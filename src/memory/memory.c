/*
 * memory.c - the memory node: its pool and lock region, the requests that its CPU answers, and the locks that
 * it clears when a compute node has died. Which blocks are handed out is blocks.c's.
 *
 * Any thread may call; requests take one spin lock for at most MEMORY_BATCH_MAX short steps.
 */
#include "memory/memory.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/log.h"
#include "memory/blocks.h"
#include "memory/pages.h"

struct memory_node {
    struct fabric_target target;
    uint64_t chunk_bytes;
    uint32_t chunks_total;
    struct pages pool, locks;

    struct spinlock lock; /* guards all below, and what it points to */
    uint16_t number;
    uint64_t cluster_id, node_count; /* cluster 0: never formatted, nothing is handed out */
    struct blocks *blocks;
    uint64_t allocations_total, frees_total, refusals_total;
    uint64_t refusals;
};

static bool power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* ---- addresses ---- */

static uint64_t first_chunk(const struct memory_node *node)
{
    return MEMORY_FIRST_CHUNK(node->target.lock_bytes);
}

static gaddr block_address(const struct memory_node *node, uint64_t offset)
{
    return gaddr_make(node->number, first_chunk(node) + offset);
}

/* Of an address of another node: far beyond any chunk, like one below the first. */
static uint64_t block_offset(const struct memory_node *node, gaddr address)
{
    return gaddr_node(address) == node->number ? gaddr_offset(address) - first_chunk(node) : UINT64_MAX;
}

/* ---- handing out and taking back ---- */

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
    uint64_t offsets[MEMORY_BATCH_MAX];
    if (!blocks_size_valid(node->blocks, request->block_bytes) || request->want - 1 >= MEMORY_BATCH_MAX)
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    bool formatted = node->cluster_id != 0;
    if (formatted && !refused(node))
        reply->count = blocks_take(node->blocks, request->block_bytes, request->want, offsets);
    for (uint32_t i = 0; i < reply->count; i++)
        reply->blocks[i] = block_address(node, offsets[i]);
    node->allocations_total += reply->count;
    node->refusals_total += formatted && reply->count == 0;
    spinlock_unlock(&node->lock);
    if (!formatted)
        return BANYAN_EINVAL;
    return reply->count ? BANYAN_OK : BANYAN_ENOSPC;
}

static int give_back(struct memory_node *node, const struct memory_free_request *request)
{
    uint64_t offsets[MEMORY_BATCH_MAX];
    if (!blocks_size_valid(node->blocks, request->block_bytes) || request->count - 1 >= MEMORY_BATCH_MAX)
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    for (uint32_t i = 0; i < request->count; i++)
        offsets[i] = block_offset(node, request->blocks[i]);
    bool good = blocks_give(node->blocks, request->block_bytes, offsets, request->count);
    if (good)
        node->frees_total += request->count;
    spinlock_unlock(&node->lock);
    return good ? BANYAN_OK : BANYAN_EINVAL;
}

/* ---- requests ---- */

static int send_reply(void *reply, size_t *reply_length, const void *data, size_t length)
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
    const size_t head = offsetof(struct memory_allocate_reply, blocks);
    if (length < sizeof request)
        return BANYAN_EINVAL;
    memcpy(&request, bytes, sizeof request);
    /* Judged first: what is handed out must reach its owner. */
    if (request.want > MEMORY_BATCH_MAX || capacity < head + request.want * sizeof(gaddr))
        return BANYAN_EINVAL;
    int status = allocate(node, &request, &answer);
    if (status)
        return status;
    return send_reply(reply, reply_length, &answer, head + answer.count * sizeof(gaddr));
}

/* The array may be cut after `count` blocks. */
static int call_free(struct memory_node *node, const void *bytes, size_t length)
{
    struct memory_free_request request;
    const size_t head = offsetof(struct memory_free_request, blocks);
    if (length < head)
        return BANYAN_EINVAL;
    memcpy(&request, bytes, length < sizeof request ? length : sizeof request);
    if (request.count > MEMORY_BATCH_MAX || length < head + request.count * sizeof(gaddr))
        return BANYAN_EINVAL;
    return give_back(node, &request);
}

static int call_status(struct memory_node *node, size_t length, void *reply, size_t capacity,
                       size_t *reply_length)
{
    struct memory_status_reply status;
    if (length < sizeof(struct memory_status_request) || capacity < sizeof status)
        return BANYAN_EINVAL;
    memory_node_status(node, &status);
    return send_reply(reply, reply_length, &status, sizeof status);
}

/* As many words as the caller has room for. The reply is written word by word: it may be long, and need not
 * be aligned. */
static int call_usage(struct memory_node *node, const void *bytes, size_t length, uint8_t *reply,
                      size_t capacity, size_t *reply_length)
{
    struct memory_usage_request request;
    struct memory_usage_reply head = {0};
    const size_t head_bytes = offsetof(struct memory_usage_reply, bits);
    if (length < sizeof request || capacity < head_bytes)
        return BANYAN_EINVAL;
    memcpy(&request, bytes, sizeof request);
    if (request.chunk >= node->chunks_total || request.first % 64)
        return BANYAN_EINVAL;
    size_t room = (capacity - head_bytes) / sizeof(uint64_t);
    room = room < MEMORY_USAGE_WORDS ? room : MEMORY_USAGE_WORDS;

    spinlock_lock(&node->lock);
    head.chunk = block_address(node, request.chunk * node->chunk_bytes);
    head.blocks = blocks_of_chunk(node->blocks, request.chunk, &head.block_bytes);
    for (uint64_t at = request.first; at < head.blocks && head.words < room; at += 64, head.words++) {
        uint64_t word = blocks_word(node->blocks, request.chunk, (uint32_t)(at / 64));
        memcpy(reply + head_bytes + head.words * sizeof word, &word, sizeof word);
    }
    spinlock_unlock(&node->lock);
    memcpy(reply, &head, head_bytes);
    *reply_length = head_bytes + head.words * sizeof(uint64_t);
    return BANYAN_OK;
}

static int node_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                     size_t capacity, size_t *reply_length)
{
    struct memory_node *node = owner;
    uint32_t kind;
    (void)compute_id;
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
        return call_status(node, length, reply, capacity, reply_length);
    case MEMORY_USAGE:
        return call_usage(node, request, length, reply, capacity, reply_length);
    case MEMORY_PEERS:
        return BANYAN_ENOTSUP;
    default:
        return BANYAN_EINVAL;
    }
}

/* ---- life ---- */

#define CHUNK_LEAST (64u << 10)
#define CHUNK_MOST  (1u << 30)
_Static_assert(GADDR_LOCK_REGION / CHUNK_LEAST < UINT32_MAX, "the largest pool's chunks have numbers");

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
    if (!power_of_two(chunk) || chunk < CHUNK_LEAST || chunk > CHUNK_MOST)
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
    return BANYAN_OK;
}

static int map_node(struct memory_node *node, const struct memory_options *options, struct error *error)
{
    int status;
    if (options->shared) {
        status =
            pages_map_shared(&node->pool, "banyan-pool", options->pool_bytes, options->huge_pages, error);
        if (!status)
            status = pages_map_shared(&node->locks, "banyan-locks", options->lock_bytes, false, error);
    } else {
        status = pages_map(&node->pool, options->pool_bytes, options->huge_pages, error);
        if (!status)
            status = pages_map(&node->locks, options->lock_bytes, false, error);
    }
    if (!status)
        status = blocks_create(&node->blocks, node->chunks_total, node->chunk_bytes, error);
    return status;
}

/* The one part of the pool that is touched here: it must stay sparse. */
static void write_header(struct memory_node *node)
{
    *(struct memory_header *)node->pool.start = (struct memory_header){
        .magic = MEMORY_MAGIC,
        .pool_bytes = node->target.pool_bytes,
        .chunk_bytes = node->chunk_bytes,
        .node = node->number,
        .cluster_id = node->cluster_id,
        .node_count = node->node_count,
    };
}

static void fill_node(struct memory_node *node, const struct memory_options *options)
{
    node->target = (struct fabric_target){
        .pool = node->pool.start,
        .pool_bytes = options->pool_bytes,
        .locks = node->locks.start,
        .lock_bytes = options->lock_bytes,
        .lock_width = options->lock_width,
        .call = node_call,
        .owner = node,
    };
    node->cluster_id = options->unformatted ? 0 : 1;
    write_header(node);
}

int memory_node_create(struct memory_node **created, const struct memory_options *given, struct error *error)
{
    struct memory_options options = *given;
    *created = NULL;
    int status = check_options(&options, error);
    if (status)
        return status;
    struct memory_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for memory node %u", (unsigned)options.node);
    node->number = options.node;
    node->chunk_bytes = options.chunk_bytes;
    node->chunks_total =
        (uint32_t)((options.pool_bytes - MEMORY_FIRST_CHUNK(options.lock_bytes)) / options.chunk_bytes);
    status = map_node(node, &options, error);
    if (status) {
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
    blocks_destroy(node->blocks);
    pages_unmap(&node->locks);
    pages_unmap(&node->pool);
    free(node);
}

int memory_node_format(struct memory_node *node, uint64_t cluster_id, uint16_t number, uint16_t node_count,
                       struct error *error)
{
    if (cluster_id == 0)
        return error_set(error, BANYAN_EINVAL, "memory node %u: 0 is no cluster's number", (unsigned)number);
    if (number >= node_count && node_count != 0)
        return error_set(error, BANYAN_EINVAL, "memory node %u is not one of a cluster of %u",
                         (unsigned)number, (unsigned)node_count);
    spinlock_lock(&node->lock);
    bool used =
        node->cluster_id != 0; /* nobody is let in before the first format: all is zero but the header */
    if (used || !node->pool.pinned) {
        pages_clear(&node->pool);
        pages_clear(&node->locks);
    }
    blocks_clear(node->blocks);
    node->allocations_total = node->frees_total = node->refusals_total = 0;
    node->number = number;
    node->cluster_id = cluster_id;
    node->node_count = node_count;
    write_header(node);
    spinlock_unlock(&node->lock);
    return BANYAN_OK;
}

void memory_node_pin(struct memory_node *node)
{
    spinlock_lock(&node->lock);
    node->pool.pinned = node->locks.pinned = true;
    spinlock_unlock(&node->lock);
}

int memory_node_pool_descriptor(const struct memory_node *node)
{
    return node->pool.descriptor;
}

int memory_node_locks_descriptor(const struct memory_node *node)
{
    return node->locks.descriptor;
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
    struct blocks_count count;
    spinlock_lock(&node->lock);
    blocks_count(node->blocks, &count);
    *status = (struct memory_status_reply){
        .pool_bytes = node->target.pool_bytes,
        .chunk_bytes = node->chunk_bytes,
        .chunks_total = node->chunks_total,
        .chunks_used = count.chunks_used,
        .blocks_used = count.blocks_used,
        .bytes_used = count.bytes_used,
        .bytes_free_in_chunks = count.bytes_free,
        .frees_total = node->frees_total,
        .allocations_total = node->allocations_total,
        .refusals_total = node->refusals_total,
        .cluster_id = node->cluster_id,
        .node = node->number,
        .node_count = node->node_count,
    };
    spinlock_unlock(&node->lock);
}

void memory_node_refuse(struct memory_node *node, uint64_t count)
{
    spinlock_lock(&node->lock);
    node->refusals = count;
    spinlock_unlock(&node->lock);
}

/* 64 blocks of a chunk at one instant, their size in *block_bytes; false behind its last. */
static bool used_word(struct memory_node *node, uint32_t chunk, uint32_t word, uint32_t *block_bytes,
                      uint64_t *bits)
{
    spinlock_lock(&node->lock);
    bool there = (uint64_t)word * 64 < blocks_of_chunk(node->blocks, chunk, block_bytes);
    *bits = there ? blocks_word(node->blocks, chunk, word) : 0;
    spinlock_unlock(&node->lock);
    return there;
}

/* The lock is not held while visit runs, so visit may call the memory node. */
void memory_node_each_used(struct memory_node *node, void (*visit)(void *, gaddr block, uint32_t block_bytes),
                           void *context)
{
    uint32_t block_bytes;
    uint64_t bits;
    for (uint32_t chunk = 0; chunk < node->chunks_total; chunk++)
        for (uint32_t word = 0; used_word(node, chunk, word, &block_bytes, &bits); word++)
            for (; bits != 0; bits &= bits - 1) {
                uint64_t block = word * UINT64_C(64) + (uint64_t)__builtin_ctzll(bits);
                visit(context, block_address(node, chunk * node->chunk_bytes + block * block_bytes),
                      block_bytes);
            }
}
