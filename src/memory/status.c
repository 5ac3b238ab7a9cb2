/*
 * status.c - the services STATUS and USAGE: how much of the pool is in use, and which blocks; and the same
 * for callers in this process.
 *
 * Any thread. A call holds the node's spin lock for some reads, USAGE for at most MEMORY_USAGE_WORDS of them.
 */
#include <string.h>

#include "memory/node.h"

/* ---- STATUS ---- */

void memory_node_status(struct memory_node *node, struct memory_status_reply *status)
{
    struct blocks_count count;
    spinlock_lock(&node->lock);
    blocks_count(node->blocks, &count);
    *status = (struct memory_status_reply){
        .pool_bytes = node->target.pool_bytes,
        .chunk_bytes = node->chunk_bytes,
        .chunks_total = node->chunks_total,
        .chunks_used = count.chunks_used,
        .blocks_used = count.blocks_used,
        .bytes_used = count.bytes_used,
        .bytes_free_in_chunks = count.chunks_used * node->chunk_bytes - count.bytes_used,
        .bytes_free = count.bytes_free,
        .bytes_resident = count.chunks_touched * node->chunk_bytes,
        .chunks_emptying = count.chunks_emptying,
        .chunks_emptied_total = count.chunks_emptied,
        .chunks_returned_total = node->returned_total,
        .frees_total = node->frees_total,
        .allocations_total = node->allocations_total,
        .refusals_total = node->refusals_total,
        .cluster_id = node->cluster_id,
        .node = node->number,
        .node_count = node->node_count,
        .kept = node->keep.file != NULL,
        .draining = node->draining,
        .list_heard = UINT64_MAX,
    };
    spinlock_unlock(&node->lock);
    memory_registry_report(&node->registry, status);
}

static int serve_status(void *context, struct memory_call *call)
{
    struct memory_status_reply status;
    if (call->length < sizeof(struct memory_status_request) || call->capacity < sizeof status)
        return BANYAN_EINVAL;
    memory_node_status(context, &status);
    memcpy(call->reply, &status, sizeof status);
    call->reply_length = sizeof status;
    return BANYAN_OK;
}

const struct memory_service memory_status_service = {
    .name = "status", .roles = MEMORY_ROLES_ALL, .serve = serve_status};

/* ---- USAGE ---- */

/* As many words as the caller has room for, up to the first chunk of which nothing is used. The reply is
 * written word by word: it may be long, and need not be aligned. */
static int serve_usage(void *context, struct memory_call *call)
{
    struct memory_node *node = context;
    struct memory_usage_request request;
    struct memory_usage_reply reply = {0};
    uint8_t *bytes = call->reply;
    const size_t fixed = offsetof(struct memory_usage_reply, bits);
    if (call->length < sizeof request || call->capacity < fixed + sizeof reply.bits[0])
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    if (request.first % 64)
        return BANYAN_EINVAL;
    size_t room = (call->capacity - fixed) / sizeof reply.bits[0];
    room = room < MEMORY_USAGE_WORDS ? room : MEMORY_USAGE_WORDS;

    spinlock_lock(&node->lock);
    reply.base = memory_node_block_address(node, 0);
    reply.granules = blocks_granules(node->blocks);
    reply.first = blocks_next(node->blocks, request.first);
    for (uint64_t at = reply.first; at < reply.granules && reply.words < room; at += 64, reply.words++) {
        struct memory_usage_word word;
        if (blocks_next(node->blocks, at) != at)
            break;
        blocks_words(node->blocks, at, &word.used, &word.starts);
        memcpy(bytes + fixed + reply.words * sizeof word, &word, sizeof word);
    }
    spinlock_unlock(&node->lock);
    memcpy(bytes, &reply, fixed);
    call->reply_length = fixed + reply.words * sizeof(struct memory_usage_word);
    return BANYAN_OK;
}

const struct memory_service memory_usage_service = {
    .name = "usage", .roles = MEMORY_ROLE_DATA | MEMORY_ROLE_MONITOR, .serve = serve_usage};

/* ---- in this process ---- */

/* The first block at or behind the offset; false: there is none. */
static bool next_block(struct memory_node *node, uint64_t from, uint64_t *start, uint32_t *block_bytes)
{
    bool found = false;
    spinlock_lock(&node->lock);
    uint64_t granules = blocks_granules(node->blocks), at = from / MEMORY_BLOCK_MIN;
    while (!found && at < granules) {
        uint64_t used, starts, word = at / 64 * 64;
        if ((word = blocks_next(node->blocks, word)) >= granules)
            break;
        blocks_words(node->blocks, word, &used, &starts);
        starts &= at > word ? UINT64_MAX << at % 64 : UINT64_MAX;
        if (starts != 0)
            found = blocks_find(node->blocks, (word + (uint64_t)__builtin_ctzll(starts)) * MEMORY_BLOCK_MIN,
                                start, block_bytes);
        at = word + 64;
    }
    spinlock_unlock(&node->lock);
    return found;
}

void memory_node_each_used(struct memory_node *node, void (*visit)(void *, gaddr block, uint32_t block_bytes),
                           void *context)
{
    uint64_t start;
    uint32_t block_bytes;
    for (uint64_t from = 0; next_block(node, from, &start, &block_bytes); from = start + block_bytes)
        visit(context, memory_node_block_address(node, start), block_bytes);
}

bool memory_node_find_used(struct memory_node *node, gaddr address, gaddr *block, uint32_t *block_bytes)
{
    uint64_t start, offset = gaddr_offset(address), first = memory_node_first_chunk(node);
    spinlock_lock(&node->lock);
    bool found = gaddr_node(address) == node->number && offset >= first &&
                 blocks_find(node->blocks, offset - first, &start, block_bytes);
    spinlock_unlock(&node->lock);
    if (found)
        *block = memory_node_block_address(node, start);
    return found;
}

bool memory_node_is_log(struct memory_node *node, gaddr block)
{
    uint64_t offset = gaddr_offset(block), first = memory_node_first_chunk(node);
    spinlock_lock(&node->lock);
    bool is =
        gaddr_node(block) == node->number && offset >= first && blocks_log_is(node->blocks, offset - first);
    spinlock_unlock(&node->lock);
    return is;
}
