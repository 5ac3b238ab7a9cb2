/*
 * allocate.c - Nodes and tags (Sherman §4.2, two-stage allocation). A node costs nothing until its worker's
 * free list and chunk are used up, then one RPC; a tag costs one FAA in 1,024. Fails with BANYAN_ENOSPC when
 * no memory node has room.
 */
#include "tree/state.h"

#include <assert.h>
#include <stdlib.h>

#include "memory/memory.h"

/* A worker keeps this many returned nodes of one kind for itself before it gives half of them back. */
#define KEEP_MAX (2 * MEMORY_BATCH_MAX)
#define TAG_RUN  1024u
/* How many more nodes one memory node may have given than the least used one before it is passed over. */
#define IMBALANCE_MAX 64u

static unsigned size_class(uint32_t bytes)
{
    assert(bytes >= 512 && bytes <= 65536 && !(bytes & (bytes - 1)));
    return (unsigned)__builtin_ctz(bytes) - 9;
}

int tree_arenas_create(struct tree_worker *worker)
{
    worker->arenas = calloc(worker->memory_nodes, sizeof *worker->arenas);
    worker->tags = calloc(worker->memory_nodes, sizeof *worker->tags);
    worker->allocated = calloc(worker->memory_nodes, sizeof *worker->allocated);
    return worker->arenas && worker->tags && worker->allocated ? 0 : BANYAN_ENOMEM;
}

void tree_arenas_destroy(struct tree_worker *worker)
{
    if (worker->arenas)
        for (uint16_t node = 0; node < worker->memory_nodes; node++)
            for (unsigned kind = 0; kind < TREE_SIZE_CLASSES; kind++)
                free(worker->arenas[node][kind].free);
    free(worker->arenas);
    free(worker->tags);
    free(worker->allocated);
}

static bool arena_reserve(struct tree_arena *arena, uint32_t capacity)
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

/* Gives `count` of the arena's free nodes back to their memory node. */
static int arena_return(struct tree_worker *worker, uint16_t node, uint32_t bytes, struct tree_arena *arena,
                        uint32_t count, struct fabric_cost *cost)
{
    struct memory_free_request request = {.kind = MEMORY_FREE, .node_bytes = bytes, .count = count};
    assert(count <= arena->count && count <= MEMORY_BATCH_MAX);
    arena->count -= count; /* first: other tasks of this worker run while the call is under way */
    memcpy(request.nodes, arena->free + arena->count, count * sizeof(gaddr));
    uint32_t reply;
    size_t length;
    int status =
        fabric_call(worker->endpoint, node, &request, sizeof request, &reply, sizeof reply, &length, cost);
    if (status && arena_reserve(arena, arena->count + count)) {
        memcpy(arena->free + arena->count, request.nodes, count * sizeof(gaddr));
        arena->count += count;
    }
    return status;
}

void tree_arenas_return(struct tree_worker *worker)
{
    for (uint16_t node = 0; node < worker->memory_nodes; node++)
        for (unsigned kind = 0; kind < TREE_SIZE_CLASSES; kind++) {
            struct tree_arena *arena = &worker->arenas[node][kind];
            uint32_t bytes = 512u << kind;
            for (; arena->next < arena->end; arena->next += bytes) {
                if (!arena_reserve(arena, arena->count + 1024))
                    return;
                arena->free[arena->count++] = arena->next;
                if (arena->count >= 1024)
                    while (arena->count)
                        if (arena_return(worker, node, bytes, arena,
                                         arena->count < MEMORY_BATCH_MAX ? arena->count : MEMORY_BATCH_MAX,
                                         NULL))
                            return;
            }
            while (arena->count)
                if (arena_return(worker, node, bytes, arena,
                                 arena->count < MEMORY_BATCH_MAX ? arena->count : MEMORY_BATCH_MAX, NULL))
                    break;
        }
}

void tree_worker_each_free(struct tree_worker *worker, void (*visit)(void *, gaddr, uint32_t), void *context)
{
    for (uint16_t node = 0; node < worker->memory_nodes; node++)
        for (unsigned kind = 0; kind < TREE_SIZE_CLASSES; kind++) {
            const struct tree_arena *arena = &worker->arenas[node][kind];
            for (uint32_t i = 0; i < arena->count; i++)
                visit(context, arena->free[i], 512u << kind);
            for (gaddr at = arena->next; at < arena->end; at += 512u << kind)
                visit(context, at, 512u << kind);
        }
}

/* One RPC: recycled nodes, or a fresh chunk. */
static int arena_fetch(struct tree_session *session, uint16_t node, uint32_t bytes, struct tree_arena *arena)
{
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .node_bytes = bytes, .want = MEMORY_BATCH_MAX};
    struct memory_allocate_reply reply;
    size_t length;
    int status = fabric_call(session->worker->endpoint, node, &request, sizeof request, &reply, sizeof reply,
                             &length, &session->stats.cost);
    if (status)
        return status;
    if (length < offsetof(struct memory_allocate_reply, nodes) || reply.count > MEMORY_BATCH_MAX ||
        length < offsetof(struct memory_allocate_reply, nodes) + reply.count * sizeof(gaddr) ||
        (!reply.count && (gaddr_node(reply.chunk) != node || !gaddr_offset(reply.chunk) ||
                          !reply.chunk_bytes || reply.chunk_bytes % bytes)))
        return BANYAN_ENET;
    for (uint32_t i = 0; i < reply.count; i++)
        if (gaddr_node(reply.nodes[i]) != node)
            return BANYAN_ENET;
    if (!arena_reserve(arena, arena->count + reply.count + KEEP_MAX))
        return BANYAN_ENOMEM;
    if (reply.count) {
        memcpy(arena->free + arena->count, reply.nodes, reply.count * sizeof(gaddr));
        arena->count += reply.count;
        return 0;
    }
    arena->next = reply.chunk;
    arena->end = reply.chunk + reply.chunk_bytes;
    return 0;
}

/* Only one task of the worker at a time: a second chunk would only wait for the first to be used up. */
static int arena_refill(struct tree_session *session, uint16_t node, uint32_t bytes, struct tree_arena *arena)
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

static int allocate_on(struct tree_session *session, uint16_t node, uint32_t bytes, gaddr *address)
{
    struct tree_arena *arena = &session->worker->arenas[node][size_class(bytes)];
    for (;;) {
        if (arena->count) {
            *address = arena->free[--arena->count];
        } else if (arena->next < arena->end) {
            *address = arena->next;
            arena->next += bytes;
        } else {
            int status = arena_refill(session, node, bytes, arena);
            if (status)
                return status;
            continue;
        }
        session->worker->allocated[node]++;
        return 0;
    }
}

static uint16_t least_used(const struct tree_worker *worker)
{
    uint16_t least = 0;
    for (uint16_t node = 1; node < worker->memory_nodes; node++)
        if (worker->allocated[node] < worker->allocated[least])
            least = node;
    return least;
}

int tree_allocate(struct tree_session *session, uint16_t preferred, uint32_t bytes, gaddr *address)
{
    struct tree_worker *worker = session->worker;
    uint16_t least = least_used(worker);
    if (preferred == TREE_ANY_NODE || worker->allocated[preferred] > worker->allocated[least] + IMBALANCE_MAX)
        preferred = least;
    int status = BANYAN_ENOSPC;
    for (uint16_t i = 0; i < worker->memory_nodes; i++) {
        uint16_t node = (uint16_t)((preferred + i) % worker->memory_nodes);
        status = allocate_on(session, node, bytes, address);
        if (status != BANYAN_ENOSPC)
            break;
    }
    if (status == BANYAN_ENOSPC)
        return tree_fail(session, status, "all %u memory nodes are full: no node of %u bytes left",
                         worker->memory_nodes, bytes);
    return status ? tree_fail(session, status, "allocating a node: %s", error_name(status)) : 0;
}

int tree_take_tag(struct tree_session *session, uint16_t node, uint32_t *tag)
{
    struct tree_tags *tags = &session->worker->tags[node];
    while (!tags->left) {
        struct fabric_command command = {.operation = FABRIC_FAA,
                                         .address = gaddr_make(node, MEMORY_NEXT_TAG_OFFSET),
                                         .faa = {.add = TAG_RUN}};
        int status = tree_execute(session, node, &command, 1);
        if (status)
            return status;
        tags->next = (uint32_t)command.faa.old;
        tags->left = TAG_RUN;
    }
    tags->left--;
    *tag = tags->next++;
    return *tag ? 0 : tree_take_tag(session, node, tag); /* 0 is no tag */
}

void tree_release(struct tree_session *session, gaddr address, uint32_t bytes)
{
    struct tree_worker *worker = session->worker;
    uint16_t node = gaddr_node(address);
    if (node >= worker->memory_nodes)
        return; /* a corrupt link's: nothing of ours */
    struct tree_arena *arena = &worker->arenas[node][size_class(bytes)];
    if (!arena_reserve(arena, arena->count + 1))
        return; /* no memory to remember it in: an offline check reclaims it */
    arena->free[arena->count++] = address;
    if (worker->allocated[node])
        worker->allocated[node]--;
    if (arena->count >= KEEP_MAX)
        arena_return(worker, node, bytes, arena, MEMORY_BATCH_MAX, &session->stats.cost);
}
