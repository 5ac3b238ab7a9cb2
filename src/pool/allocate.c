/*
 * allocate.c - Blocks and tags (Sherman §4.2, two-stage allocation), for nodes of the tree and for records. A
 * block costs nothing until its worker has used up those of its size, then one RPC for a batch; a tag costs
 * one FAA in 1,024. Fails with BANYAN_ENOSPC when no memory node has room.
 */
#include "pool/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "memory/memory.h"

#define TAG_RUN 1024u
/* A batch has at most so many bytes and, at first, blocks: a worker that needs few holds few back. */
#define BATCH_BYTES (256u << 10)
#define BATCH_FIRST 8u
/* While their memory node cannot be reached, a worker keeps so many batches of free blocks of one size;
 * what comes then is left to an offline check. */
#define BATCHES_MAX 64u
/* How many more bytes one memory node may have given than the least used one before it is passed over. */
#define IMBALANCE_MAX (256u << 10)

static uint32_t batch_max(uint32_t block_bytes)
{
    uint32_t count = BATCH_BYTES / block_bytes;
    return count < 1 ? 1 : count < MEMORY_BATCH_MAX ? count : MEMORY_BATCH_MAX;
}

/* ---- arenas ---- */

int pool_arenas_create(struct pool_worker *worker)
{
    worker->arenas = calloc((size_t)worker->memory_nodes * MEMORY_BLOCK_SIZES, sizeof *worker->arenas);
    worker->tags = calloc(worker->memory_nodes, sizeof *worker->tags);
    worker->allocated = calloc(worker->memory_nodes, sizeof *worker->allocated);
    return worker->arenas && worker->tags && worker->allocated ? 0 : BANYAN_ENOMEM;
}

void pool_arenas_destroy(struct pool_worker *worker)
{
    if (worker->arenas)
        for (size_t i = 0; i < (size_t)worker->memory_nodes * MEMORY_BLOCK_SIZES; i++)
            if (worker->arenas[i]) {
                free(worker->arenas[i]->free);
                free(worker->arenas[i]);
            }
    free(worker->arenas);
    free(worker->tags);
    free(worker->allocated);
}

/* NULL when memory is short. */
static struct pool_arena *arena_get(struct pool_worker *worker, uint16_t node, uint32_t block_bytes)
{
    struct pool_arena **place =
        &worker->arenas[(size_t)node * MEMORY_BLOCK_SIZES + memory_block_index(block_bytes)];
    if (!*place && (*place = calloc(1, sizeof **place)))
        (*place)->batch = batch_max(block_bytes) < BATCH_FIRST ? batch_max(block_bytes) : BATCH_FIRST;
    return *place;
}

static bool arena_reserve(struct pool_arena *arena, uint32_t capacity)
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

/*
 * Gives `count` of the arena's free blocks back to their memory node, those that have lain there longest.
 * When the network fails during the call, the memory node may or may not have them: then they are not used
 * again until an offline check reclaims them, since a block with two owners would be far worse. What was
 * never sent (EFENCED) is kept.
 */
static int arena_return(struct pool_worker *worker, uint16_t node, uint32_t bytes, struct pool_arena *arena,
                        uint32_t count, struct fabric_cost *cost)
{
    struct memory_free_request request = {.kind = MEMORY_FREE, .block_bytes = bytes, .count = count};
    assert(count && count <= arena->count && count <= MEMORY_BATCH_MAX);
    /* First: other tasks of this worker run while the call is under way. */
    memcpy(request.blocks, arena->free, count * sizeof(gaddr));
    arena->count -= count;
    memmove(arena->free, arena->free + count, arena->count * sizeof(gaddr));
    uint32_t reply;
    size_t length, send = offsetof(struct memory_free_request, blocks) + count * sizeof(gaddr);
    int status = fabric_call(worker->endpoint, node, &request, send, &reply, sizeof reply, &length, cost);
    bool unknown = status == BANYAN_ENET || status == BANYAN_ETIMEOUT;
    if (status && !unknown && arena_reserve(arena, arena->count + count)) {
        memcpy(arena->free + arena->count, request.blocks, count * sizeof(gaddr));
        arena->count += count;
    }
    return status;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void pool_worker_return(struct pool_worker *worker)
{
    for (uint16_t node = 0; node < worker->memory_nodes; node++)
        for (unsigned size = 0; size < MEMORY_BLOCK_SIZES; size++) {
            struct pool_arena *arena = worker->arenas[(size_t)node * MEMORY_BLOCK_SIZES + size];
            while (arena && arena->count)
                if (arena_return(worker, node, memory_block_size(size), arena,
                                 lesser(arena->count, MEMORY_BATCH_MAX), NULL))
                    break;
        }
}

void pool_worker_each_free(struct pool_worker *worker, void (*visit)(void *, gaddr, uint32_t), void *context)
{
    for (size_t i = 0; i < (size_t)worker->memory_nodes * MEMORY_BLOCK_SIZES; i++) {
        const struct pool_arena *arena = worker->arenas[i];
        for (uint32_t at = 0; arena && at < arena->count; at++)
            visit(context, arena->free[at], memory_block_size((unsigned)(i % MEMORY_BLOCK_SIZES)));
    }
}

static bool reply_good(const struct memory_allocate_reply *reply, size_t length, uint16_t node, uint32_t want)
{
    const size_t start = offsetof(struct memory_allocate_reply, blocks);
    if (length < start || !reply->count || reply->count > want ||
        length < start + reply->count * sizeof(gaddr))
        return false;
    for (uint32_t i = 0; i < reply->count; i++)
        if (gaddr_node(reply->blocks[i]) != node || !gaddr_offset(reply->blocks[i]))
            return false;
    return true;
}

/* One RPC. */
static int arena_fetch(struct pool_session *session, uint16_t node, uint32_t bytes, struct pool_arena *arena)
{
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .block_bytes = bytes, .want = arena->batch};
    struct memory_allocate_reply reply;
    size_t length;
    /* First: what is handed out and cannot be remembered would be lost. */
    if (!arena_reserve(arena, arena->count + request.want + 2 * batch_max(bytes)))
        return BANYAN_ENOMEM;
    int status = fabric_call(session->endpoint, node, &request, sizeof request, &reply, sizeof reply, &length,
                             session->cost);
    if (status) /* EFENCED: no connection; an operation must not begin again at once for that */
        return status == BANYAN_EFENCED ? BANYAN_ENET : status;
    if (!reply_good(&reply, length, node, request.want))
        return BANYAN_ENET;
    if (!arena_reserve(arena, arena->count + reply.count)) /* other tasks have freed blocks meanwhile */
        return BANYAN_ENOMEM;
    for (uint32_t i = reply.count; i-- > 0;) /* the lowest address is used first */
        arena->free[arena->count++] = reply.blocks[i];
    arena->batch = lesser(2 * arena->batch, batch_max(bytes));
    return 0;
}

/* Only one task of the worker at a time: a second batch would only wait for the first to be used up. */
static int arena_refill(struct pool_session *session, uint16_t node, uint32_t bytes, struct pool_arena *arena)
{
    if (arena->refilling) {
        task_sleep(1000);
        return 0;
    }
    arena->refilling = true;
    int status = arena_fetch(session, node, bytes, arena);
    arena->refilling = false;
    return status;
}

/* ---- blocks ---- */

static int allocate_on(struct pool_session *session, uint16_t node, uint32_t bytes, gaddr *address)
{
    struct pool_arena *arena = arena_get(session->worker, node, bytes);
    int status = arena ? 0 : BANYAN_ENOMEM;
    while (!status && !arena->count)
        status = arena_refill(session, node, bytes, arena);
    if (status)
        return status;
    *address = arena->free[--arena->count];
    session->worker->allocated[node] += bytes;
    return 0;
}

static uint16_t least_used(const struct pool_worker *worker)
{
    uint16_t least = 0;
    for (uint16_t node = 1; node < worker->memory_nodes; node++)
        if (worker->allocated[node] < worker->allocated[least])
            least = node;
    return least;
}

int pool_allocate(struct pool_session *session, uint16_t preferred, uint32_t bytes, gaddr *address)
{
    struct pool_worker *worker = session->worker;
    uint16_t least = least_used(worker);
    assert(memory_block_index(bytes) < MEMORY_BLOCK_SIZES);
    if (preferred >= worker->memory_nodes ||
        worker->allocated[preferred] > worker->allocated[least] + IMBALANCE_MAX)
        preferred = least;
    int status = BANYAN_ENOSPC;
    uint16_t node = preferred;
    for (uint16_t i = 0; i < worker->memory_nodes && status == BANYAN_ENOSPC; i++) {
        node = (uint16_t)((preferred + i) % worker->memory_nodes);
        status = allocate_on(session, node, bytes, address);
    }
    if (status == BANYAN_ENOSPC)
        return pool_fail(session, status, "all %u memory nodes are full: no block of %u bytes left",
                         worker->memory_nodes, bytes);
    return status ? pool_node_failed(session, status, node, "allocating a block") : 0;
}

void pool_release(struct pool_session *session, gaddr address, uint32_t bytes)
{
    struct pool_worker *worker = session->worker;
    uint16_t node = gaddr_node(address);
    if (node >= worker->memory_nodes)
        return; /* only a corrupt link names such a node: there is nothing to free */
    struct pool_arena *arena = arena_get(worker, node, bytes);
    const uint32_t batch = batch_max(bytes);
    if (!arena || arena->count >= BATCHES_MAX * batch ||
        (arena->count == arena->capacity && !arena_reserve(arena, arena->count + batch)))
        return; /* no memory to remember it in: an offline check reclaims it */
    arena->free[arena->count++] = address;
    worker->allocated[node] -= worker->allocated[node] < bytes ? worker->allocated[node] : bytes;
    if (arena->count % batch == 0) /* not at each: the memory node may be away */
        while (arena->count >= 2 * batch && !arena_return(worker, node, bytes, arena, batch, session->cost))
            ;
}

int pool_block_allocate(struct pool_session *session, gaddr near, uint32_t bytes, gaddr *block)
{
    uint32_t block_bytes = memory_block_bytes(bytes);
    if (!bytes || !block_bytes)
        return pool_fail(session, BANYAN_EINVAL, "a block has 1 to %u bytes, not %u", MEMORY_BLOCK_MAX,
                         bytes);
    return pool_allocate(session, near ? gaddr_node(near) : POOL_ANY_NODE, block_bytes, block);
}

int pool_block_allocate_part(struct pool_session *session, gaddr near, uint32_t bytes, uint32_t least,
                             gaddr *block, uint32_t *got)
{
    if (!least || least > bytes)
        return pool_fail(session, BANYAN_EINVAL, "a part has 1 to %u bytes, not %u", bytes, least);
    int status = pool_block_allocate(session, near, bytes, block);
    if (!status)
        *got = memory_block_bytes(bytes);
    return status;
}

void pool_block_release(struct pool_session *session, gaddr block, uint32_t bytes)
{
    uint32_t block_bytes = memory_block_bytes(bytes);
    if (block && block_bytes)
        pool_release(session, block, block_bytes);
}

/* ---- tags ---- */

int pool_take_tag(struct pool_session *session, uint16_t node, uint32_t *tag)
{
    struct pool_tags *tags = &session->worker->tags[node];
    while (!tags->left) {
        struct fabric_command command = {.operation = FABRIC_FAA,
                                         .address = gaddr_make(node, MEMORY_NEXT_TAG_OFFSET),
                                         .faa = {.add = TAG_RUN}};
        int status = pool_execute(session, node, &command, 1);
        if (status)
            return status;
        tags->next = (uint32_t)command.faa.old;
        tags->left = TAG_RUN;
    }
    tags->left--;
    *tag = tags->next++;
    return *tag ? 0 : pool_take_tag(session, node, tag); /* 0 is no tag */
}
