/*
 * walker.h - what one request of a walker knows: shared by the walks that read (walk.c) and those that write
 * (walk_merge.c). Private to src/memory/. One thread at a time, nothing waits.
 */
#ifndef MEMORY_WALKER_H
#define MEMORY_WALKER_H

#include <stdbool.h>
#include <string.h>

#include "base/atomic.h"
#include "format/internal_node.h"
#include "format/leaf.h"
#include "memory/node.h"
#include "memory/request.h"
#include "memory/walk.h"

/* Geometries whose layouts are kept. */
#define WALKER_LAYOUTS   8u
#define WALKER_IMAGE_MAX 65536u

struct walker_layout {
    struct memory_walk_geometry geometry;
    struct format_layout layout; /* no slots: this place is free */
};

struct memory_walker {
    struct memory_node *node;
    uint16_t number;
    struct memory_walk_counts counts;
    struct walker_layout layouts[WALKER_LAYOUTS];
    uint32_t next_layout; /* that is replaced */
    void (*between)(void *context);
    void *between_context;
    memory_walk_aged *aged;
    void *aged_context;
    bool writes; /* MERGE and EXCHANGE are served ... */
    struct wire_staging
        *staging; /* ... by stores that are staged here; NULL: the pool ends with the process */
    /* of the walk under way */
    const struct format_layout *layout;
    uint16_t index;
    uint32_t visited;
    uint8_t *reply;
    size_t capacity, used;
    bool stored; /* something was: a fence is due */
    struct format_entry entries[FORMAT_ENTRIES_MAX];
    uint8_t image[WALKER_IMAGE_MAX] __attribute__((aligned(64)));
    /* nodes that go behind the answers */
    uint16_t node_count;
    bool full; /* a node had no room: none is given behind it, so that the way has no holes */
    size_t nodes_capacity, nodes_used;
    uint8_t nodes[MEMORY_WALK_REPLY_MAX];
};

/* What is left of a request. */
struct walker_cursor {
    const uint8_t *bytes;
    size_t left;
};
static inline bool walker_take(struct walker_cursor *cursor, void *to, size_t length)
{
    if (cursor->left < length)
        return false;
    memcpy(to, cursor->bytes, length);
    cursor->bytes += length;
    cursor->left -= length;
    return true;
}

/* Into the reply; false: no room. */
static inline bool walker_put(struct memory_walker *walker, const void *bytes, size_t length)
{
    if (length > walker->capacity - walker->used)
        return false;
    if (length)
        memcpy(walker->reply + walker->used, bytes, length);
    walker->used += length;
    return true;
}

static inline void walker_count(uint64_t *counter, uint64_t more)
{
    atomic_store_relaxed(counter, *counter + more); /* one thread writes it, and nothing depends on it */
}

/* The node's own bytes, which others may be writing; NULL: no node can lie there. */
static inline uint8_t *walker_node(const struct memory_walker *walker, gaddr address, uint32_t bytes)
{
    const struct fabric_target *target = &walker->node->target;
    const uint64_t offset = gaddr_offset(address);
    if (offset % 64 || offset < memory_node_first_chunk(walker->node) || offset >= target->pool_bytes ||
        bytes > target->pool_bytes - offset) /* the lock region's bit is beyond all pools */
        return NULL;
    return target->pool + offset;
}

static inline void walker_visit(struct memory_walker *walker)
{
    walker->visited++;
    if (walker->between)
        walker->between(walker->between_context);
}

/* What a verdict on a leaf means to the compute node; 0: the leaf is live. Where the way might go on at the
 * sibling (FORMAT_RIGHT) that is not done: a walk looks at that first. */
enum memory_walk_outcome walker_outcome(enum format_verdict verdict);
/* MERGE and EXCHANGE (walk_merge.c): what follows the head of its request. All of it is validated before
 * anything is written. 0, BANYAN_EINVAL, or BANYAN_ENOTSUP where the walker does not write. */
int walker_merge(struct memory_walker *walker, const struct memory_walk_request *request,
                 struct walker_cursor *cursor);

#endif
