/* walk_service.c - see walk_service.h. */
#include "memory/walk_service.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/random.h"
#include "memory/memory.h"
#include "memory/request.h"

/* Walks under way whose first nodes are remembered, and how many nodes of each at most. */
#define AGED_WALKS 64u
#define AGED_NODES 4u

/* The first nodes of a walk that has arrived, as they were then. */
struct aged {
    uint64_t request;           /* a hash of it, and of its caller; 0: nothing is remembered */
    uint32_t wanted, count, at; /* nodes to be remembered; that are; that have been given */
    uint64_t addresses[AGED_NODES];
    uint32_t bytes[AGED_NODES];
    uint8_t *nodes[AGED_NODES]; /* owned */
};

struct memory_walks {
    struct memory_node *node;
    struct memory_walk_costs costs;
    struct spinlock lock; /* one walk at a time */
    struct memory_walker *walker, *model;
    struct random random;
    struct aged aged[AGED_WALKS];
    uint8_t reply[MEMORY_WALK_REPLY_MAX]; /* of `model`: thrown away */
};

/* ---- walks that take their time ---- */

/* Of what is asked, so that runs repeat. Each arrival forgets what stands in its place: so nothing is older
 * than the arrival of the walk that is given it. */
static uint64_t request_hash(const struct memory_call *call)
{
    const uint8_t *bytes = call->request;
    uint64_t hash = call->compute_id;
    for (size_t i = 0; i < call->length; i++)
        hash = random_mix(hash ^ bytes[i]);
    return hash ? hash : 1;
}

/* memory_walk_aged of the walk that counts: remembers a node. */
static const uint8_t *remember(void *context, uint64_t address, const uint8_t *now, uint32_t bytes)
{
    struct aged *aged = context;
    uint8_t *node = aged->count < aged->wanted ? realloc(aged->nodes[aged->count], bytes) : NULL;
    if (!node)
        return NULL;
    memcpy(node, now, bytes);
    aged->nodes[aged->count] = node;
    aged->addresses[aged->count] = address;
    aged->bytes[aged->count++] = bytes;
    return NULL;
}

/* That of the walk that answers: it comes to the same nodes as long as it reads what the other one has read.
 */
static const uint8_t *recall(void *context, uint64_t address, const uint8_t *now, uint32_t bytes)
{
    struct aged *aged = context;
    (void)now;
    if (aged->at == aged->count || aged->addresses[aged->at] != address || aged->bytes[aged->at] != bytes)
        return NULL;
    return aged->nodes[aged->at++];
}

static void aged_begin(struct memory_walks *walks, const struct memory_call *call)
{
    if (!walks->costs.aged_percent)
        return;
    const uint64_t request = request_hash(call);
    struct aged *aged = &walks->aged[request % AGED_WALKS];
    aged->request = 0;
    memory_walker_age(walks->model, NULL, NULL);
    if (random_below(&walks->random, 100) >= walks->costs.aged_percent)
        return;
    aged->request = request;
    aged->wanted = 1 + (uint32_t)random_below(&walks->random, AGED_NODES);
    aged->count = aged->at = 0;
    memory_walker_age(walks->model, remember, aged);
}

static void aged_take(struct memory_walks *walks, const struct memory_call *call)
{
    if (!walks->costs.aged_percent)
        return;
    const uint64_t request = request_hash(call);
    struct aged *aged = &walks->aged[request % AGED_WALKS];
    const bool same = aged->request == request;
    memory_walker_age(walks->walker, same ? recall : NULL, aged);
    if (same)
        aged->request = 0;
}

/* ---- the service ---- */

static int walks_serve(void *context, struct memory_call *call)
{
    struct memory_walks *walks = context;
    int status = BANYAN_EBUSY;
    spinlock_lock(&walks->lock);
    if (!walks->costs.busy_percent || random_below(&walks->random, 100) >= walks->costs.busy_percent) {
        aged_take(walks, call);
        status = memory_walk(walks->walker, call->request, call->length, call->reply, call->capacity,
                             &call->reply_length);
    }
    spinlock_unlock(&walks->lock);
    return status;
}

/* The walk is made when the core is done with it; how many nodes that will be is counted now, by another
 * walk. What is written in between makes the two differ by a node or two. */
static uint64_t walks_cost(void *context, const struct memory_call *call)
{
    struct memory_walks *walks = context;
    size_t length;
    struct memory_walk_request request = {0};
    if (call->length >= sizeof request)
        memcpy(&request, call->request, sizeof request);
    /* Of each entry one leaf is looked at; that must not be done twice. */
    if (request.kind == MEMORY_MERGE || request.kind == MEMORY_EXCHANGE)
        return walks->costs.request_ns + request.count * walks->costs.entry_ns;
    spinlock_lock(&walks->lock);
    aged_begin(walks, call);
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
        random_seed(&walks->random, UINT64_C(0x3a1c)); /* the same for each run of a plan */
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
    memory_walker_writes(walks->walker, NULL); /* at one instant, which no death cuts */
    memory_node_register(node, &walk_service, MEMORY_WALK, MEMORY_MERGE_LAST - MEMORY_WALK + 1, walks);
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
    for (uint32_t i = 0; i < AGED_WALKS * AGED_NODES; i++)
        free(walks->aged[i / AGED_NODES].nodes[i % AGED_NODES]);
    free(walks);
}
