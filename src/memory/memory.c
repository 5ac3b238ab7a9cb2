/*
 * memory.c - the life of a memory node: its options, its pool and lock region, its format.
 *
 * One thread creates and destroys it. What its CPU does meanwhile is in the services (service.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "memory/node.h"

static bool power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* ---- options ---- */

#define CHUNK_LEAST (64u << 10)
#define CHUNK_MOST  (1u << 30)
_Static_assert(GADDR_LOCK_REGION / CHUNK_LEAST < UINT32_MAX, "the largest pool's chunks have numbers");

uint64_t memory_chunk_bytes(uint64_t pool_bytes)
{
    uint64_t bytes = CHUNK_LEAST;
    while (bytes < MEMORY_CHUNK_MOST && bytes * 2 <= pool_bytes / 512)
        bytes *= 2;
    return bytes;
}

static int check_options(struct memory_options *options, struct error *error)
{
    if (options->chunk_bytes == 0)
        options->chunk_bytes = memory_chunk_bytes(options->pool_bytes);
    if (options->lock_bytes == 0)
        options->lock_bytes = MEMORY_LOCK_BYTES;
    if (options->lock_width == 0)
        options->lock_width = 2;
    if (options->log_bytes == 0)
        options->log_bytes = memory_log_bytes(options->pool_bytes);
    else if (options->log_bytes < MEMORY_LOG_BYTES_LEAST || options->log_bytes > options->pool_bytes / 2)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %u: %llu bytes for owners' logs: not from 512 KiB to half of the pool "
                         "of %llu bytes",
                         (unsigned)options->node, (unsigned long long)options->log_bytes,
                         (unsigned long long)options->pool_bytes);

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

/* ---- life ---- */

static struct keep_sizes sizes_of(const struct memory_options *options)
{
    return (struct keep_sizes){.pool_bytes = options->pool_bytes,
                               .chunk_bytes = options->chunk_bytes,
                               .lock_bytes = options->lock_bytes,
                               .log_bytes = options->log_bytes,
                               .lock_width = options->lock_width};
}

/* Pool and accounts lie in the file; the lock region need not be kept, since a new life begins with all locks
 * free. */
static int map_kept(struct memory_node *node, const struct memory_options *options, struct keep_file *file,
                    struct error *error)
{
    const struct keep_sizes sizes = sizes_of(options);
    int status = keep_open(&node->keep, file, &sizes, options->huge_pages == PAGES_HUGE, error);
    if (status)
        return status;
    node->pool = node->keep.pages;
    node->pool.start = node->keep.pool;
    node->pool.bytes = options->pool_bytes;
    return pages_map(&node->locks, options->lock_bytes, error);
}

static int map_memory(struct memory_node *node, const struct memory_options *options, struct error *error)
{
    const struct keep_sizes sizes = sizes_of(options);
    int status = keep_create(&node->keep, &sizes, error);
    if (status)
        return status;
    if (options->shared) {
        status = pages_map_shared(&node->pool, "banyan-pool", options->pool_bytes,
                                  options->huge_pages == PAGES_HUGE, error);
        if (!status)
            status = pages_map_shared(&node->locks, "banyan-locks", options->lock_bytes, false, error);
    } else {
        const struct pages_chunks chunks = {.first = MEMORY_FIRST_CHUNK(options->lock_bytes),
                                            .bytes = options->chunk_bytes,
                                            .count = node->chunks_total};
        status = pages_map_pool(&node->pool, options->pool_bytes, options->huge_pages, &chunks, error);
        if (!status)
            status = pages_map(&node->locks, options->lock_bytes, error);
    }
    return status;
}

/* Touches the pool's first page alone: the rest takes no memory before it is used. */
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

/* For the backends of this process: a compute node's endpoint calls. */
static int node_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                     size_t capacity, size_t *reply_length)
{
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = compute_id,
                               .request = request,
                               .length = length,
                               .reply = reply,
                               .capacity = capacity};
    int status = memory_node_serve(owner, &call);
    *reply_length = call.reply_length;
    return status;
}

static void fill_target(struct memory_node *node, const struct memory_options *options)
{
    node->target = (struct fabric_target){
        .pool = node->pool.start,
        .pool_bytes = options->pool_bytes,
        .locks = node->locks.start,
        .lock_bytes = options->lock_bytes,
        .lock_width = options->lock_width,
        .call = node_call,
        .owner = node,
        .stagings = node->keep.file != NULL ? node->keep.staging : NULL,
        .staging_count = node->keep.file != NULL ? KEEP_STAGINGS : 0,
    };
}

/* What stands in its keep, and what follows from that. */
static int take_up(struct memory_node *node, const struct memory_options *options, struct error *error)
{
    const struct keep_words *words = node->keep.words;
    bool formatted = words->formatted != 0;
    if (formatted) {
        node->number = (uint16_t)words->number;
        node->cluster_id = words->cluster_id;
        node->node_count = words->node_count;
        memory_kept_settle(node);
    }
    int status = blocks_create(&node->blocks, &node->keep, node->chunks_total, node->chunk_bytes, error);
    if (!status)
        status = memory_board_open(&node->board, &node->keep, error);
    if (!status)
        status = memory_log_open(node, error);
    if (!status && formatted)
        memory_cluster_open(node);
    if (status || formatted)
        return status;
    if (options->unformatted) {
        write_header(node);
        return BANYAN_OK;
    }
    return memory_node_format(node, 1, options->node, 0, error);
}

static void destroy(struct memory_node *node)
{
    if (node == NULL)
        return;
    memory_log_clear(&node->log);
    memory_board_close(&node->board);
    blocks_destroy(node->blocks);
    pages_unmap(&node->locks);
    if (node->keep.file == NULL)
        pages_unmap(&node->pool);
    keep_destroy(&node->keep);
    free(node);
}

static int create(struct memory_node **created, const struct memory_options *given, struct keep_file *file,
                  struct error *error)
{
    struct memory_options options = *given;
    int status = check_options(&options, error);
    struct memory_node *node = status ? NULL : calloc(1, sizeof *node);
    if (node == NULL) {
        keep_file_close(file);
        return status
                   ? status
                   : error_set(error, BANYAN_ENOMEM, "no memory for memory node %u", (unsigned)options.node);
    }
    node->number = options.node;
    node->chunk_bytes = options.chunk_bytes;
    node->log.most = options.log_bytes;
    node->return_ns = options.return_ms == MEMORY_RETURN_NEVER
                          ? UINT64_MAX
                          : (options.return_ms ? options.return_ms : MEMORY_RETURN_MS) * UINT64_C(1000000);
    node->chunks_total =
        (uint32_t)((options.pool_bytes - MEMORY_FIRST_CHUNK(options.lock_bytes)) / options.chunk_bytes);
    status = file != NULL ? map_kept(node, &options, file, error) : map_memory(node, &options, error);
    if (!status) {
        fill_target(node, &options);
        memory_registry_fill(node);
        status = take_up(node, &options, error);
    }
    if (status) {
        destroy(node);
        return status;
    }
    log_info("memory node %u: pool of %llu MiB on %s, %u chunks", (unsigned)node->number,
             (unsigned long long)(options.pool_bytes >> 20), node->pool.kind, node->chunks_total);
    *created = node;
    return BANYAN_OK;
}

int memory_node_create(struct memory_node **created, const struct memory_options *given, struct error *error)
{
    struct memory_options options = *given;
    struct keep_file *file = NULL;
    *created = NULL;
    if (given->pool_file != NULL) {
        int status = keep_file_open(&file, given->pool_file, error);
        if (!status)
            status = memory_kept_sizes(&options, file, error);
        if (status) {
            keep_file_close(file);
            return status;
        }
    }
    return create(created, &options, file, error);
}

void memory_node_destroy(struct memory_node *node)
{
    if (node != NULL && node->keep.file != NULL)
        keep_save(&node->keep);
    destroy(node);
}

static void clear_memory(struct memory_node *node)
{
    if (node->keep.file != NULL)
        keep_pool_zero(&node->keep, node->target.pool_bytes);
    else
        pages_clear(&node->pool);
    pages_clear(&node->locks);
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
    bool used = keep_checked(&node->keep, KEEP_USED_SINCE) != 0; /* else all is zero but the header */
    keep_forget(&node->keep);
    if (used) {
        keep_clear(&node->keep);
        clear_memory(node);
    }
    blocks_clear(node->blocks);
    memset(node->evacuations, 0, sizeof node->evacuations);
    memory_board_clear(&node->board);
    memory_log_clear(&node->log);
    node->allocations_total = node->frees_total = node->refusals_total = node->returned_total = 0;
    node->number = number;
    node->cluster_id = cluster_id;
    node->node_count = node_count;
    write_header(node);
    memory_cluster_clear(node);
    keep_remember(&node->keep, cluster_id, number, node_count);
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
