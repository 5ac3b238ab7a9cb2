/*
 * allocate.c - the services ALLOCATE, FREE and DRAIN: hand out blocks in batches, take them back, and hand
 * out none. Which blocks are free is blocks.c's.
 *
 * Any thread; a call holds the node's spin lock for at most MEMORY_BATCH_MAX short steps.
 *
 * Both tell the compute node how many free bytes of this memory node it may keep for itself: little of the
 * pool, and nothing when the pool is nearly full.
 */
#include <string.h>

#include "memory/node.h"

/* ---- ALLOCATE ---- */

/* Whether this allocation is to fail: the memory node is being emptied, and the block would stay, or a test
 * wants it. */
static bool refused(struct memory_node *node, const struct memory_allocate_request *request)
{
    if (node->draining && request->purpose != MEMORY_FOR_STAGING)
        return true;
    if (node->refusals == 0)
        return false;
    if (node->refusals != UINT64_MAX)
        node->refusals--;
    return true;
}

/* In units of MEMORY_KEEP_UNIT. A worker of a compute node is told at its next call. */
static uint16_t keep_units(const struct memory_node *node)
{
    struct blocks_count count;
    if (node->draining)
        return 0;
    blocks_count(node->blocks, &count);
    uint64_t pool = (count.bytes_used + count.bytes_free) / 256, free = count.bytes_free / 16;
    uint64_t units = (pool < free ? pool : free) / MEMORY_KEEP_UNIT;
    return units < UINT16_MAX ? (uint16_t)units : UINT16_MAX;
}

static bool wish_make(const struct memory_allocate_request *request, struct blocks_wish *wish)
{
    *wish = (struct blocks_wish){
        .block_bytes = request->block_bytes,
        .want = request->want,
        .least_bytes = request->least_bytes ? request->least_bytes : request->block_bytes,
        .purpose =
            request->purpose == MEMORY_FOR_STAGING ? MEMORY_FOR_DATA : (enum memory_purpose)request->purpose};
    return memory_block_index(wish->block_bytes) < MEMORY_BLOCK_SIZES &&
           memory_block_index(wish->least_bytes) < MEMORY_BLOCK_SIZES &&
           wish->least_bytes <= wish->block_bytes && request->purpose <= MEMORY_FOR_STAGING &&
           wish->want > 0 && wish->want <= MEMORY_BATCH_MAX;
}

static int allocate(struct memory_node *node, const struct memory_allocate_request *request,
                    struct memory_allocate_reply *reply)
{
    uint64_t offsets[MEMORY_BATCH_MAX];
    struct blocks_wish wish;
    if (!wish_make(request, &wish))
        return BANYAN_EINVAL;

    spinlock_lock(&node->lock);
    bool formatted = node->cluster_id != 0;
    uint32_t count = formatted && !refused(node, request)
                         ? blocks_take(node->blocks, &wish, offsets, &reply->block_bytes)
                         : 0;
    for (uint32_t i = 0; i < count; i++)
        reply->blocks[i] = memory_node_block_address(node, offsets[i]);
    node->allocations_total += count;
    node->refusals_total += formatted && count == 0;
    reply->count = (uint16_t)count;
    reply->keep = keep_units(node);
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
    if (call->capacity < fixed + request.want * sizeof(gaddr))
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

/* ---- DRAIN ---- */

void memory_node_drain(struct memory_node *node, bool on)
{
    spinlock_lock(&node->lock);
    node->draining = on;
    spinlock_unlock(&node->lock);
}

static int serve_drain(void *context, struct memory_call *call)
{
    struct memory_drain_request request;
    if (call->length < sizeof request)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    if (request.on > 1)
        return BANYAN_EINVAL;
    memory_node_drain(context, request.on);
    return BANYAN_OK;
}

const struct memory_service memory_drain_service = {
    .name = "drain", .roles = MEMORY_ROLE_DATA, .serve = serve_drain};

/* ---- FREE ---- */

/* From the start of the first chunk, far beyond any chunk for an address of another node or below the first.
 */
static uint64_t block_offset(const struct memory_node *node, gaddr address)
{
    return gaddr_node(address) == node->number ? gaddr_offset(address) - memory_node_first_chunk(node)
                                               : UINT64_MAX;
}

static int give_back(struct memory_node *node, const struct memory_free_request *request,
                     struct memory_free_reply *reply)
{
    uint64_t offsets[MEMORY_BATCH_MAX];
    uint32_t sizes[MEMORY_BATCH_MAX];
    spinlock_lock(&node->lock);
    for (uint32_t i = 0; i < request->count; i++) {
        offsets[i] = block_offset(node, request->blocks[i]);
        sizes[i] = request->block_bytes ? request->block_bytes : request->sizes[i];
    }
    bool good = blocks_give(node->blocks, offsets, sizes, request->count);
    if (good)
        node->frees_total += request->count;
    reply->keep = keep_units(node);
    spinlock_unlock(&node->lock);
    return good ? BANYAN_OK : BANYAN_EINVAL;
}

static int serve_free(void *context, struct memory_call *call)
{
    struct memory_free_request request;
    struct memory_free_reply reply;
    const size_t fixed = offsetof(struct memory_free_request, blocks);
    if (call->length < fixed)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, call->length < sizeof request ? call->length : sizeof request);
    if (request.count - 1 >= MEMORY_BATCH_MAX || call->length < fixed + request.count * sizeof(gaddr) ||
        (request.block_bytes == 0 && call->length < sizeof request))
        return BANYAN_EINVAL;
    int status = give_back(context, &request, &reply);
    if (status || call->capacity < sizeof reply)
        return status;
    call->reply_length = sizeof reply;
    memcpy(call->reply, &reply, sizeof reply);
    return BANYAN_OK;
}

const struct memory_service memory_free_service = {
    .name = "free", .roles = MEMORY_ROLE_DATA, .serve = serve_free};
