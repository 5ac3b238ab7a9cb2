/*
 * lists.c - the free blocks that a worker holds back, so that most allocations cost nothing: for each memory
 * node a list of each size and purpose.
 *
 * A memory node says in its replies how much of its space a compute node may keep (memory/allocate.c): a
 * 256th of the pool or less, nothing when it is nearly full. The workers of the process share it. What is
 * more goes back in batches of all sizes, one RPC for MEMORY_BATCH_MAX blocks. Everything goes back when a
 * worker of the process finds no space (pool_lists_mind_shorts); what is held of one memory node when the
 * worker has taken none of it for a while (pool_worker_idle), so that a memory node can be emptied beside
 * workers that are busy with others.
 *
 * On the worker's thread; other tasks of the worker run while a call is under way.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pool/state.h"

/* A batch has at most so many bytes and, at first, blocks: a worker that needs few holds few back. */
#define BATCH_BYTES (256u << 10)
#define BATCH_FIRST 8u
/* Until a memory node has said something else. */
#define KEEP_FIRST (UINT64_C(256) << 10)
/* After a failure so many more bytes are held back before the memory node is asked again. */
#define RETRY_BYTES (64u << 10)
/* Calls of pool_worker_idle until what is held of a memory node goes back, of which nothing was taken since.
 */
#define IDLE_CALLS 2u

uint32_t pool_batch_max(uint32_t block_bytes)
{
    uint32_t count = BATCH_BYTES / block_bytes;
    return count < 1 ? 1 : count < MEMORY_BATCH_MAX ? count : MEMORY_BATCH_MAX;
}

/* ---- arenas ---- */

int pool_arenas_create(struct pool_worker *worker)
{
    worker->arenas = calloc((size_t)worker->most * POOL_ARENAS, sizeof *worker->arenas);
    worker->kept = calloc(worker->most, sizeof *worker->kept);
    worker->tags = calloc(worker->most, sizeof *worker->tags);
    worker->allocated = calloc(worker->most, sizeof *worker->allocated);
    if (!worker->arenas || !worker->kept || !worker->tags || !worker->allocated)
        return BANYAN_ENOMEM;
    for (uint16_t node = 0; node < worker->most; node++)
        worker->kept[node].keep = KEEP_FIRST;
    return 0;
}

void pool_arenas_destroy(struct pool_worker *worker)
{
    if (worker->arenas)
        for (size_t i = 0; i < (size_t)worker->memory_nodes * POOL_ARENAS; i++)
            if (worker->arenas[i]) {
                free(worker->arenas[i]->free);
                free(worker->arenas[i]);
            }
    for (uint16_t node = 0; worker->kept && node < worker->memory_nodes; node++)
        free(worker->kept[node].leaving);
    free(worker->arenas);
    free(worker->kept);
    free(worker->emptying);
    free(worker->tags);
    free(worker->allocated);
}

struct pool_arena *pool_arena_get(struct pool_worker *worker, uint16_t node, enum memory_purpose purpose,
                                  uint32_t block_bytes)
{
    assert(memory_block_index(block_bytes) < MEMORY_BLOCK_SIZES && node < worker->memory_nodes);
    struct pool_arena **place = &worker->arenas[(size_t)node * POOL_ARENAS + purpose * MEMORY_BLOCK_SIZES +
                                                memory_block_index(block_bytes)];
    if (!*place && (*place = calloc(1, sizeof **place)))
        (*place)->batch =
            pool_batch_max(block_bytes) < BATCH_FIRST ? pool_batch_max(block_bytes) : BATCH_FIRST;
    return *place;
}

bool pool_arena_reserve(struct pool_arena *arena, uint32_t capacity)
{
    if (arena->capacity >= capacity)
        return true;
    gaddr *larger = realloc(arena->free, capacity * sizeof *larger);
    if (!larger)
        return false;
    arena->free = larger;
    arena->capacity = capacity;
    return true;
}

/* Relaxed: other workers only look whether it is worth waiting. */
static void count_held(struct pool_worker *worker, uint16_t node, uint64_t more, uint64_t less)
{
    struct pool_kept *kept = &worker->kept[node];
    assert(kept->bytes + more >= less && worker->held + more >= less);
    kept->bytes = kept->bytes + more - less;
    atomic_store_relaxed(&worker->held, worker->held + more - less);
}

gaddr pool_arena_pop(struct pool_worker *worker, uint16_t node, uint32_t block_bytes,
                     struct pool_arena *arena)
{
    assert(arena->count > 0);
    count_held(worker, node, 0, block_bytes);
    worker->kept[node].taken++;
    return arena->free[--arena->count];
}

void pool_arena_push(struct pool_worker *worker, uint16_t node, uint32_t block_bytes,
                     struct pool_arena *arena, gaddr block)
{
    assert(arena->count < arena->capacity);
    count_held(worker, node, block_bytes, 0);
    arena->free[arena->count++] = block;
}

uint64_t pool_keep_bytes(const struct pool_worker *worker, uint16_t node)
{
    uint32_t workers =
        atomic_load_relaxed(&worker->pool->worker_count); /* a share, not a limit to the byte */
    return worker->kept[node].keep / (workers ? workers : 1);
}

/* ---- returning ---- */

static void keep_again(struct pool_worker *worker, uint16_t node, const struct pool_leaving *leaving,
                       uint32_t at)
{
    uint32_t bytes = leaving->request.sizes[at];
    struct pool_arena *arena = pool_arena_get(worker, node, leaving->purposes[at], bytes);
    if (arena && pool_arena_reserve(arena, arena->count + 1))
        pool_arena_push(worker, node, bytes, arena, leaving->request.blocks[at]);
}

/* Blocks of one size make a short request. */
static size_t request_length(struct memory_free_request *request)
{
    uint32_t same = 1;
    while (same < request->count && request->sizes[same] == request->sizes[0])
        same++;
    request->block_bytes = same == request->count ? request->sizes[0] : 0;
    return request->block_bytes ? offsetof(struct memory_free_request, blocks) + same * sizeof(gaddr)
                                : sizeof *request;
}

static int send_back(struct pool_worker *worker, uint16_t node, struct memory_free_request *request,
                     struct fabric_cost *cost)
{
    struct memory_free_reply reply = {0};
    size_t length = 0;
    int status = fabric_call(worker->endpoint, node, request, request_length(request), &reply, sizeof reply,
                             &length, cost);
    if (!status && length >= sizeof reply)
        worker->kept[node].keep = reply.keep * (uint64_t)MEMORY_KEEP_UNIT;
    return status;
}

/* Whether the memory node has not seen the call for certain. */
static bool never_arrived(int status)
{
    return status && status != BANYAN_ENET && status != BANYAN_ETIMEOUT && status != BANYAN_EINVAL;
}

/* One of the batch is not a block of the memory node's (only a corrupt link names such a one): it must not
 * keep the others from returning, and is forgotten. After a failure of the network the others are not sent,
 * and kept. */
static int send_each(struct pool_worker *worker, uint16_t node, const struct pool_leaving *leaving,
                     struct fabric_cost *cost)
{
    int status = 0;
    for (uint32_t i = 0; i < leaving->request.count; i++) {
        struct memory_free_request one = {.kind = MEMORY_FREE,
                                          .count = 1,
                                          .blocks = {leaving->request.blocks[i]},
                                          .sizes = {leaving->request.sizes[i]}};
        bool sent = !status;
        int result = sent ? send_back(worker, node, &one, cost) : status;
        if (!sent || never_arrived(result))
            keep_again(worker, node, leaving, i);
        if (result != BANYAN_EINVAL)
            status = result;
    }
    return status;
}

/*
 * When the network fails during the call, the memory node may or may not have them: then they are not used
 * again until an offline check reclaims them, since a block with two owners would be far worse. What was
 * never sent (EFENCED) is kept.
 */
static bool send_batch(struct pool_worker *worker, uint16_t node, struct pool_leaving *leaving,
                       struct fabric_cost *cost)
{
    if (!leaving->request.count)
        return true;
    int status = send_back(worker, node, &leaving->request, cost);
    if (status == BANYAN_EINVAL && leaving->request.count > 1)
        status = send_each(worker, node, leaving, cost);
    else if (status && status != BANYAN_ENET && status != BANYAN_ETIMEOUT && status != BANYAN_EINVAL)
        for (uint32_t i = 0; i < leaving->request.count; i++)
            keep_again(worker, node, leaving, i);
    leaving->request.count = 0;
    return !status || status == BANYAN_EINVAL;
}

/* The `count` blocks that have lain longest in the arena; false: a batch was sent and did not arrive. */
static bool arena_return(struct pool_worker *worker, uint16_t node, unsigned index, uint32_t count,
                         struct pool_leaving *leaving, struct fabric_cost *cost)
{
    struct pool_arena *arena = worker->arenas[(size_t)node * POOL_ARENAS + index];
    struct memory_free_request *request = &leaving->request;
    const uint32_t bytes = memory_block_size(index % MEMORY_BLOCK_SIZES);
    while (count && arena->count) {
        uint32_t room = MEMORY_BATCH_MAX - request->count, part = count < arena->count ? count : arena->count;
        part = part < room ? part : room;
        memcpy(request->blocks + request->count, arena->free, part * sizeof(gaddr));
        arena->count -= part;
        memmove(arena->free, arena->free + part, arena->count * sizeof(gaddr));
        count_held(worker, node, 0, (uint64_t)part * bytes);
        for (count -= part; part; part--, request->count++) {
            request->sizes[request->count] = bytes;
            leaving->purposes[request->count] = (uint8_t)(index / MEMORY_BLOCK_SIZES);
        }
        if (request->count == MEMORY_BATCH_MAX && !send_batch(worker, node, leaving, cost))
            return false;
    }
    return true;
}

/* What has left the lists already. */
static bool leaving_send(struct pool_worker *worker, uint16_t node, struct fabric_cost *cost)
{
    struct pool_leaving *waiting = worker->kept[node].leaving, leaving;
    if (!waiting || !waiting->request.count)
        return true;
    leaving = *waiting; /* other tasks of the worker go on filling it */
    waiting->request.count = 0;
    for (uint32_t i = 0; i < leaving.request.count; i++)
        count_held(worker, node, 0, leaving.request.sizes[i]);
    return send_batch(worker, node, &leaving, cost);
}

bool pool_lists_leave(struct pool_worker *worker, uint16_t node, enum memory_purpose purpose,
                      uint32_t block_bytes, gaddr block, struct fabric_cost *cost)
{
    struct pool_kept *kept = &worker->kept[node];
    if (!kept->leaving && !(kept->leaving = calloc(1, sizeof *kept->leaving)))
        return false;
    struct memory_free_request *request = &kept->leaving->request;
    if (request->count == MEMORY_BATCH_MAX)
        leaving_send(worker, node, cost);
    if (request->count == MEMORY_BATCH_MAX) /* other tasks have filled it again */
        return false;
    request->kind = MEMORY_FREE;
    request->sizes[request->count] = block_bytes;
    kept->leaving->purposes[request->count] = (uint8_t)purpose;
    request->blocks[request->count++] = block;
    count_held(worker, node, block_bytes, 0);
    return true;
}

bool pool_lists_return(struct pool_worker *worker, uint16_t node, bool all, struct fabric_cost *cost)
{
    struct pool_leaving leaving = {.request = {.kind = MEMORY_FREE}};
    struct pool_kept *kept = &worker->kept[node];
    bool good = leaving_send(worker, node, cost);
    for (unsigned index = 0; good && kept->bytes && index < POOL_ARENAS; index++) {
        const struct pool_arena *arena = worker->arenas[(size_t)node * POOL_ARENAS + index];
        uint32_t count = arena ? (all ? arena->count : (arena->count + 1) / 2) : 0;
        good = !count || arena_return(worker, node, index, count, &leaving, cost);
    }
    good = send_batch(worker, node, &leaving, cost) && good;
    kept->retry = good ? 0 : kept->bytes + pool_keep_bytes(worker, node) / 4 + RETRY_BYTES;
    return good;
}

void pool_worker_leave(struct pool_worker *worker, uint16_t node)
{
    if (node >= worker->memory_nodes)
        return;
    worker->kept[node].keep = 0;
    if (worker->kept[node].bytes)
        pool_lists_return(worker, node, true, NULL);
}

void pool_worker_return(struct pool_worker *worker)
{
    for (uint16_t node = 0; node < worker->memory_nodes; node++)
        if (worker->kept[node].bytes)
            pool_lists_return(worker, node, true, NULL);
}

void pool_lists_mind(struct pool_worker *worker)
{
    pool_worker_count(worker);
    /* relaxed, both: hints; a worker that sees them late returns its blocks late */
    uint32_t shorts = atomic_load_relaxed(&worker->pool->shorts);
    uint32_t version = atomic_load_relaxed(&worker->pool->emptying_version);
    if (shorts == worker->shorts_seen && version == worker->emptying_seen)
        return;
    bool give_back = shorts != worker->shorts_seen;
    worker->shorts_seen = shorts;
    if (version != worker->emptying_seen) {
        pool_emptying_adopt(worker);
        give_back |= worker->emptying_count > 0;
    }
    if (give_back)
        pool_worker_return(worker);
}

void pool_worker_idle(struct pool_worker *worker)
{
    pool_lists_mind(worker);
    for (uint16_t node = 0; node < worker->memory_nodes; node++) {
        struct pool_kept *kept = &worker->kept[node];
        kept->idle = kept->taken == kept->taken_seen ? kept->idle + 1 : 0;
        kept->taken_seen = kept->taken;
        if (kept->bytes && kept->idle >= IDLE_CALLS)
            pool_lists_return(worker, node, true, NULL);
        else
            leaving_send(worker, node, NULL);
    }
}

void pool_worker_each_free(struct pool_worker *worker, void (*visit)(void *, gaddr, uint32_t), void *context)
{
    for (size_t i = 0; i < (size_t)worker->memory_nodes * POOL_ARENAS; i++) {
        const struct pool_arena *arena = worker->arenas[i];
        for (uint32_t at = 0; arena && at < arena->count; at++)
            visit(context, arena->free[at],
                  memory_block_size((unsigned)(i % POOL_ARENAS % MEMORY_BLOCK_SIZES)));
    }
    for (uint16_t node = 0; node < worker->memory_nodes; node++) {
        const struct pool_leaving *leaving = worker->kept[node].leaving;
        for (uint32_t at = 0; leaving && at < leaving->request.count; at++)
            visit(context, leaving->request.blocks[at], leaving->request.sizes[at]);
    }
}
