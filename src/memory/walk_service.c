/* walk_service.c - see walk_service.h. */
#include "memory/walk_service.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "memory/memory.h"

struct memory_walks {
    struct memory_node *node;
    struct memory_walk_costs costs;
    struct spinlock lock; /* one walk at a time */
    struct memory_walker *walker, *model;
    uint8_t reply[MEMORY_WALK_REPLY_MAX]; /* of `model`: thrown away */
};

static int walks_serve(void *context, struct memory_call *call)
{
    struct memory_walks *walks = context;
    spinlock_lock(&walks->lock);
    int status = memory_walk(walks->walker, call->request, call->length, call->reply, call->capacity,
                             &call->reply_length);
    spinlock_unlock(&walks->lock);
    return status;
}

/* The walk is made when the core is done with it; how many nodes that will be is counted now, by another
 * walk. What is written in between makes the two differ by a node or two. */
static uint64_t walks_cost(void *context, const struct memory_call *call)
{
    struct memory_walks *walks = context;
    size_t length;
    spinlock_lock(&walks->lock);
    const uint64_t before = memory_walker_counts(walks->model)->nodes;
    memory_walk(walks->model, call->request, call->length, walks->reply, sizeof walks->reply, &length);
    const uint64_t nodes = memory_walker_counts(walks->model)->nodes - before;
    spinlock_unlock(&walks->lock);
    return walks->costs.request_ns + nodes * walks->costs.node_ns;
}

static const struct memory_service walk_service = {
    .name = "walks", .roles = MEMORY_ROLE_DATA, .serve = walks_serve, .cost_ns = walks_cost};

int memory_walks_create(struct memory_walks **made, struct memory_node *node,
                        const struct memory_walk_costs *costs, struct error *error)
{
    struct memory_walks *walks = calloc(1, sizeof *walks);
    *made = NULL;
    if (walks) {
        walks->node = node;
        walks->costs = *costs;
        walks->walker = memory_walker_create(node);
        walks->model = memory_walker_create(node);
    }
    if (!walks || !walks->walker || !walks->model) {
        if (walks) {
            memory_walker_destroy(walks->walker);
            memory_walker_destroy(walks->model);
        }
        free(walks);
        return error_set(error, BANYAN_ENOMEM, "no memory for a memory node's walks");
    }
    memory_node_register(node, &walk_service, MEMORY_WALK, MEMORY_WALK_LAST - MEMORY_WALK + 1, walks);
    *made = walks;
    return BANYAN_OK;
}

void memory_walks_destroy(struct memory_walks *walks)
{
    if (!walks)
        return;
    memory_node_unregister(walks->node, &walk_service, walks);
    memory_walker_destroy(walks->walker);
    memory_walker_destroy(walks->model);
    free(walks);
}

const struct memory_walk_counts *memory_walks_counts(const struct memory_walks *walks)
{
    return memory_walker_counts(walks->walker);
}
