/*
 * allocate.c - the services ALLOCATE and FREE: hand out blocks in batches, and take them back. Which blocks
 * are free is blocks.c's.
 *
 * Any thread; a call holds the node's spin lock for at most MEMORY_BATCH_MAX short steps.
 */
#include <string.h>

#include "memory/node.h"

/* ---- ALLOCATE ---- */

/* Whether a test wants this allocation to fail. */
static bool refused(struct memory_node *node)
{
    if (node->refusals == 0)
        return false;
    if (node->refusals != UINT64_MAX)
        node->refusals--;
    return true;
}

static int allocate(struct memory_node *node, const struct memory_allocate_request *request,
                    struct memory_allocate_reply *reply)
{
    uint64_t offsets[MEMORY_BATCH_MAX];
    if (!blocks_size_valid(node->blocks, request->block_bytes) || request->want - 1 >= MEMORY_BATCH_MAX)
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    bool formatted = node->cluster_id != 0;
    if (formatted && !refused(node))
        reply->count = blocks_take(node->blocks, request->block_bytes, request->want, offsets);
    for (uint32_t i = 0; i < reply->count; i++)
        reply->blocks[i] = memory_node_block_address(node, offsets[i]);
    node->allocations_total += reply->count;
    node->refusals_total += formatted && reply->count == 0;
    spinlock_unlock(&node->lock);
    if (!formatted)
        return BANYAN_EINVAL;
    return reply->count ? BANYAN_OK : BANYAN_ENOSPC;
}

static int serve_allocate(void *context, struct memory_call *call)
{
    struct memory_allocate_request request;
    struct memory_allocate_reply reply = {0};
    const size_t fixed = offsetof(struct memory_allocate_reply, blocks);
    if (call->length < sizeof request)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    /* The room for the reply first: blocks that are handed out must reach their owner. */
    if (request.want > MEMORY_BATCH_MAX || call->capacity < fixed + request.want * sizeof(gaddr))
        return BANYAN_EINVAL;
    int status = allocate(context, &request, &reply);
    if (status)
        return status;
    call->reply_length = fixed + reply.count * sizeof(gaddr);
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

const struct memory_service memory_allocate_service = {
    .name = "allocate", .roles = MEMORY_ROLE_DATA, .serve = serve_allocate};

void memory_node_refuse(struct memory_node *node, uint64_t count)
{
    spinlock_lock(&node->lock);
    node->refusals = count;
    spinlock_unlock(&node->lock);
}

/* ---- FREE ---- */

/* From the start of the first chunk, far beyond any chunk for an address of another node or below the first.
 */
static uint64_t block_offset(const struct memory_node *node, gaddr address)
{
    return gaddr_node(address) == node->number ? gaddr_offset(address) - memory_node_first_chunk(node)
                                               : UINT64_MAX;
}

static int give_back(struct memory_node *node, const struct memory_free_request *request)
{
    uint64_t offsets[MEMORY_BATCH_MAX];
    if (!blocks_size_valid(node->blocks, request->block_bytes) || request->count - 1 >= MEMORY_BATCH_MAX)
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    for (uint32_t i = 0; i < request->count; i++)
        offsets[i] = block_offset(node, request->blocks[i]);
    bool good = blocks_give(node->blocks, request->block_bytes, offsets, request->count);
    if (good)
        node->frees_total += request->count;
    spinlock_unlock(&node->lock);
    return good ? BANYAN_OK : BANYAN_EINVAL;
}

/* The array may be cut after `count` blocks. */
static int serve_free(void *context, struct memory_call *call)
{
    struct memory_free_request request;
    const size_t fixed = offsetof(struct memory_free_request, blocks);
    if (call->length < fixed)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, call->length < sizeof request ? call->length : sizeof request);
    if (request.count > MEMORY_BATCH_MAX || call->length < fixed + request.count * sizeof(gaddr))
        return BANYAN_EINVAL;
    return give_back(context, &request);
}

const struct memory_service memory_free_service = {
    .name = "free", .roles = MEMORY_ROLE_DATA, .serve = serve_free};
