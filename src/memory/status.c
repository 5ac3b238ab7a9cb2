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
        .bytes_free_in_chunks = count.bytes_free,
        .frees_total = node->frees_total,
        .allocations_total = node->allocations_total,
        .refusals_total = node->refusals_total,
        .cluster_id = node->cluster_id,
        .node = node->number,
        .node_count = node->node_count,
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

/* As many words as the caller has room for. The reply is written word by word: it may be long, and need not
 * be aligned. */
static int serve_usage(void *context, struct memory_call *call)
{
    struct memory_node *node = context;
    struct memory_usage_request request;
    struct memory_usage_reply reply = {0};
    uint8_t *bytes = call->reply;
    const size_t fixed = offsetof(struct memory_usage_reply, bits);
    if (call->length < sizeof request || call->capacity < fixed)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    if (request.chunk >= node->chunks_total || request.first % 64)
        return BANYAN_EINVAL;
    size_t room = (call->capacity - fixed) / sizeof(uint64_t);
    room = room < MEMORY_USAGE_WORDS ? room : MEMORY_USAGE_WORDS;

    spinlock_lock(&node->lock);
    reply.chunk = memory_node_block_address(node, request.chunk * node->chunk_bytes);
    reply.blocks = blocks_of_chunk(node->blocks, request.chunk, &reply.block_bytes);
    for (uint64_t at = request.first; at < reply.blocks && reply.words < room; at += 64, reply.words++) {
        uint64_t word = blocks_word(node->blocks, request.chunk, (uint32_t)(at / 64));
        memcpy(bytes + fixed + reply.words * sizeof word, &word, sizeof word);
    }
    spinlock_unlock(&node->lock);
    memcpy(bytes, &reply, fixed);
    call->reply_length = fixed + reply.words * sizeof(uint64_t);
    return BANYAN_OK;
}

const struct memory_service memory_usage_service = {
    .name = "usage", .roles = MEMORY_ROLE_DATA | MEMORY_ROLE_MONITOR, .serve = serve_usage};

/* ---- in this process ---- */

/* 64 blocks of a chunk at one instant, their size in *block_bytes; false behind the chunk's last. */
static bool used_word(struct memory_node *node, uint32_t chunk, uint32_t word, uint32_t *block_bytes,
                      uint64_t *bits)
{
    spinlock_lock(&node->lock);
    bool there = (uint64_t)word * 64 < blocks_of_chunk(node->blocks, chunk, block_bytes);
    *bits = there ? blocks_word(node->blocks, chunk, word) : 0;
    spinlock_unlock(&node->lock);
    return there;
}

void memory_node_each_used(struct memory_node *node, void (*visit)(void *, gaddr block, uint32_t block_bytes),
                           void *context)
{
    uint32_t block_bytes;
    uint64_t bits;
    for (uint32_t chunk = 0; chunk < node->chunks_total; chunk++)
        for (uint32_t word = 0; used_word(node, chunk, word, &block_bytes, &bits); word++)
            for (; bits != 0; bits &= bits - 1) {
                uint64_t block = word * UINT64_C(64) + (uint64_t)__builtin_ctzll(bits);
                uint64_t offset = chunk * node->chunk_bytes + block * block_bytes;
                visit(context, memory_node_block_address(node, offset), block_bytes);
            }
}
