/*
 * walk.h - going down an index on the memory node's own CPU: what the requests WALK_FIND and WALK_FETCH
 * (request.h) ask for, by the rules of every reader (R1, R2, R5, R6; docs/internals/tree.md), from the bytes
 * of this pool alone; and MERGE and EXCHANGE, which write into leaves whose locks the caller holds. So
 * nothing here takes a lock. docs/internals/walks.md has the reasoning.
 *
 * A walker belongs to one thread at a time. Others write what it reads: everything is copied, and believed
 * only when the copy has proven itself; a node that does not do so is read again a bounded number of times. A
 * walk looks at a bounded number of nodes for each key and never waits. Nothing in the request is trusted.
 */
#ifndef MEMORY_WALK_H
#define MEMORY_WALK_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct memory_node;
struct memory_walker;

/* The longest reply: what one message of the wire takes. */
#define MEMORY_WALK_REPLY_MAX 65536u
/* The longest request that makes sense. */
#define MEMORY_WALK_REQUEST_MAX 16384u

/* What a walker has done; each field is stored relaxed by its thread, for any thread to look at. */
struct memory_walk_counts {
    uint64_t walks, keys, nodes; /* answered requests; keys or positions in them; nodes that were looked at */
    uint64_t answered;           /* keys and positions with their answer: HIT, MISS, ARRIVED */
    uint64_t elsewhere;          /* ... that go on at another memory node */
    uint64_t refused;            /* requests that made no sense */
    uint64_t merges, entries, merged; /* answered MERGEs; entries in them, and those that were merged */
};

/* BANYAN_ENOMEM: NULL. The node is borrowed. */
struct memory_walker *memory_walker_create(struct memory_node *node);
void memory_walker_destroy(struct memory_walker *walker); /* NULL: does nothing */
/* The walker serves MERGE and EXCHANGE from now on. `staging`: where it puts its WRITEs down first, its own;
 * NULL: the pool ends with this process (local_run.h). */
struct wire_staging;
void memory_walker_writes(struct memory_walker *walker, struct wire_staging *staging);
/* 0, or with nothing done BANYAN_EINVAL, BANYAN_ENOMEM, or BANYAN_ENOTSUP (MERGE, EXCHANGE). Some hundred
 * nanoseconds for each node. */
int memory_walk(struct memory_walker *walker, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length);
const struct memory_walk_counts *memory_walker_counts(const struct memory_walker *walker);
/* For simulations: asked for a node's bytes as they were at an earlier instant of the walk, which it may
 * give; NULL: as they are. They stay until the walk ends. */
typedef const uint8_t *memory_walk_aged(void *context, uint64_t address, const uint8_t *now, uint32_t bytes);
void memory_walker_age(struct memory_walker *walker, memory_walk_aged *aged, void *context);
/* For tests: called before each node is read, and around each store. */
void memory_walker_between(struct memory_walker *walker, void (*between)(void *context), void *context);

#endif
