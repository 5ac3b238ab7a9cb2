/* node.h - the memory node's struct, for the files of memory/ alone. */
#ifndef MEMORY_NODE_H
#define MEMORY_NODE_H

#include "base/atomic.h"
#include "memory/blocks.h"
#include "memory/memory.h"
#include "memory/pages.h"
#include "memory/registry.h"

struct memory_node {
    struct fabric_target target;
    uint64_t chunk_bytes;
    uint32_t chunks_total;
    struct pages pool, locks;
    struct memory_registry registry;

    struct spinlock lock; /* guards all below, and what it points to */
    uint16_t number;
    uint64_t cluster_id, node_count; /* cluster 0: never formatted, no block is handed out */
    struct blocks *blocks;
    uint64_t allocations_total, frees_total, refusals_total;
    uint64_t refusals; /* allocations that are to fail (memory_node_refuse) */
};

static inline uint64_t memory_node_first_chunk(const struct memory_node *node)
{
    return MEMORY_FIRST_CHUNK(node->target.lock_bytes);
}

/* `offset` is from the start of the first chunk, as blocks.h counts. */
static inline gaddr memory_node_block_address(const struct memory_node *node, uint64_t offset)
{
    return gaddr_make(node->number, memory_node_first_chunk(node) + offset);
}

#endif
