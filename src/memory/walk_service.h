/*
 * walk_service.h - WALK and MERGE (walk.h) as a service that answers at once, on the thread that calls it,
 * and says by a model what it costs: for simulated memory nodes, whose cores are charged (sim/cores.c). The
 * daemon has threads and a queue of its own for it.
 */
#ifndef MEMORY_WALK_SERVICE_H
#define MEMORY_WALK_SERVICE_H

#include "memory/service.h"
#include "memory/walk.h"

struct memory_walks;

/* What a walk takes beyond what every RPC does, and what may become of it. */
struct memory_walk_costs {
    uint64_t request_ns;  /* each: the layout found, the reply put together */
    uint64_t node_ns;     /* each node that is looked at: read, proven, searched */
    uint64_t entry_ns;    /* each entry that is merged */
    uint8_t busy_percent; /* of walks find the queue full, by luck */
    uint8_t aged_percent; /* of walks read their first nodes as they were when the request arrived, and the
                             rest when the core is done; else all of it is read then */
};

/* The memory node walks and merges from now on; while nothing uses it. BANYAN_ENOMEM. */
int memory_walks_create(struct memory_walks **walks, struct memory_node *node,
                        const struct memory_walk_costs *costs, struct error *error);
/* Before the node is destroyed. NULL: does nothing. */
void memory_walks_destroy(struct memory_walks *walks);

#endif
