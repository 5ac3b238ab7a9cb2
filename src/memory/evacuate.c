/*
 * evacuate.c - the service EVACUATE: chunks that a compute node empties by moving what lies in them. Which
 * chunks are worth it and what their marks mean is chunks.c's; here is whose they are, and for how long.
 *
 * Any thread; BEGIN and END hold the node's spin lock for a step for each chunk of the pool.
 */
#include <assert.h>
#include <string.h>

#include "base/task.h"
#include "memory/node.h"

#define MILLISECOND UINT64_C(1000000)

/* ---- whose marks, under the node's lock ---- */

static void end(struct memory_node *node, struct memory_evacuation *evacuation, bool stuck)
{
    blocks_empty_end(node->blocks, (unsigned)(evacuation - node->evacuations) + 1, stuck);
    evacuation->id = 0;
}

void memory_evacuations_expire(struct memory_node *node, uint64_t now)
{
    for (unsigned i = 0; i < BLOCKS_OWNERS; i++)
        if (node->evacuations[i].id != 0 && now >= node->evacuations[i].until)
            end(node, &node->evacuations[i], false);
}

static struct memory_evacuation *find(struct memory_node *node, uint16_t compute_id, uint64_t id)
{
    for (unsigned i = 0; i < BLOCKS_OWNERS; i++)
        if (node->evacuations[i].id == id && (id == 0 || node->evacuations[i].compute_id == compute_id))
            return &node->evacuations[i];
    return NULL;
}

static void end_of_compute(struct memory_node *node, uint16_t compute_id)
{
    for (unsigned i = 0; i < BLOCKS_OWNERS; i++)
        if (node->evacuations[i].id != 0 && node->evacuations[i].compute_id == compute_id)
            end(node, &node->evacuations[i], false);
}

/* ---- ranges ---- */

/* From the block that reaches into the chunk, if one does, to the chunk's end. */
static struct memory_evacuate_range range_of(const struct memory_node *node, uint32_t chunk)
{
    uint64_t from = chunk * node->chunk_bytes, to = from + node->chunk_bytes, start;
    uint32_t bytes;
    if (blocks_find(node->blocks, from, &start, &bytes))
        from = start;
    return (struct memory_evacuate_range){memory_node_block_address(node, from),
                                          memory_node_block_address(node, to)};
}

static void tell(struct memory_node *node, const struct memory_evacuation *evacuation,
                 struct memory_evacuate_reply *reply)
{
    uint32_t chunks[MEMORY_EVACUATION_MAX];
    unsigned owner = (unsigned)(evacuation - node->evacuations) + 1;
    reply->evacuation = evacuation->id;
    reply->count = blocks_empty_marked(node->blocks, owner, MEMORY_EVACUATION_MAX, chunks);
    for (uint32_t i = 0; i < reply->count; i++)
        reply->ranges[i] = range_of(node, chunks[i]);
}

/* ---- the three kinds ---- */

static int begin(struct memory_node *node, uint16_t compute_id, uint64_t now,
                 struct memory_evacuate_reply *reply)
{
    uint32_t chunks[MEMORY_EVACUATION_MAX];
    end_of_compute(node, compute_id);
    struct memory_evacuation *evacuation = find(node, 0, 0);
    if (evacuation == NULL)
        return BANYAN_EBUSY;
    unsigned owner = (unsigned)(evacuation - node->evacuations) + 1;
    if (blocks_empty_choose(node->blocks, owner, MEMORY_EVACUATION_MAX, chunks) == 0)
        return BANYAN_OK;
    *evacuation = (struct memory_evacuation){.id = ++node->evacuations_total,
                                             .compute_id = compute_id,
                                             .until = now + MEMORY_EVACUATION_MS * MILLISECOND};
    tell(node, evacuation, reply);
    return BANYAN_OK;
}

static int carry_out(struct memory_node *node, const struct memory_call *call,
                     const struct memory_evacuate_request *request, struct memory_evacuate_reply *reply)
{
    uint64_t now = task_now();
    if (node->cluster_id == 0)
        return BANYAN_EINVAL;
    memory_evacuations_expire(node, now);
    if (call->kind == MEMORY_EVACUATE_BEGIN)
        return begin(node, call->compute_id, now, reply);
    struct memory_evacuation *evacuation =
        request->evacuation ? find(node, call->compute_id, request->evacuation) : NULL;
    if (evacuation == NULL)
        return BANYAN_ENOTFOUND;
    if (call->kind == MEMORY_EVACUATE_RENEW) {
        evacuation->until = now + MEMORY_EVACUATION_MS * MILLISECOND;
        blocks_empty_settle(node->blocks, (unsigned)(evacuation - node->evacuations) + 1);
        tell(node, evacuation, reply);
    } else {
        end(node, evacuation, request->tried != 0);
    }
    return BANYAN_OK;
}

static int serve(void *context, struct memory_call *call)
{
    struct memory_node *node = context;
    struct memory_evacuate_request request;
    struct memory_evacuate_reply reply = {0};
    if (call->length < sizeof request || call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    spinlock_lock(&node->lock);
    int status = carry_out(node, call, &request, &reply);
    spinlock_unlock(&node->lock);
    if (status)
        return status;
    call->reply_length =
        offsetof(struct memory_evacuate_reply, ranges) + reply.count * sizeof reply.ranges[0];
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

static void fenced(void *context, uint16_t compute_id)
{
    struct memory_node *node = context;
    spinlock_lock(&node->lock);
    end_of_compute(node, compute_id);
    spinlock_unlock(&node->lock);
}

const struct memory_service memory_evacuate_service = {
    .name = "evacuate", .roles = MEMORY_ROLE_DATA, .serve = serve, .fenced = fenced};
