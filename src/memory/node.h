/* node.h - the memory node's struct, for the files of memory/ alone. */
#ifndef MEMORY_NODE_H
#define MEMORY_NODE_H

#include "base/atomic.h"
#include "memory/blocks.h"
#include "memory/board.h"
#include "memory/cluster.h"
#include "memory/heat.h"
#include "memory/keep_file.h"
#include "memory/log.h"
#include "memory/memory.h"
#include "memory/pages.h"
#include "memory/registry.h"

/* A compute node that empties chunks; its place in the array is the owner's name for blocks.h. */
struct memory_evacuation {
    uint64_t id; /* 0: none */
    uint64_t until;
    uint16_t compute_id;
};

struct memory_node {
    struct fabric_target target;
    uint64_t chunk_bytes;
    uint32_t chunks_total;
    struct pages pool, locks; /* pool: of a kept node the keep's */
    struct keep keep;
    struct memory_registry registry;
    struct memory_board board;

    struct spinlock lock; /* guards all below, and what it points to */
    uint16_t number;
    uint64_t cluster_id, node_count; /* cluster 0: never formatted, no block is handed out */
    struct blocks *blocks;
    struct memory_log log;
    uint32_t cluster_generation; /* atomic; changes under the lock */
    uint64_t allocations_total, frees_total, refusals_total;
    struct memory_evacuation evacuations[BLOCKS_OWNERS];
    uint64_t evacuations_total, returned_total;
    uint64_t return_ns;      /* how long chunks are idle before they go back to the system */
    bool draining;           /* no blocks are handed out for nodes and data (DRAIN) */
    struct memory_heat heat; /* guarded by nothing: atomic */
    uint64_t refusals;       /* allocations that are to fail (memory_node_refuse) */
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

/* ---- kept.c: a node with a file ---- */

/* The options' sizes become those of the file if it has some: BANYAN_EINVAL if they differ. */
int memory_kept_sizes(struct memory_options *options, const struct keep_file *file, struct error *error);
/* What is left of its last life: WRITEs that were marked are finished, then all locks are free (D3, D4). Its
 * target and number are there, and nothing uses it yet. */
void memory_kept_settle(struct memory_node *node);

/* Under the node's lock: forgets evacuations that were not renewed. */
void memory_evacuations_expire(struct memory_node *node, uint64_t now);

#endif
