/*
 * audit_blocks.c - See audit_blocks.h.
 */
#include "store/audit_blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "pool/pool.h"

static int nonsense(const struct audit *audit, uint16_t node)
{
    return pool_fail(tree_session_pool(audit->session), BANYAN_ENET,
                     "memory node %u gives impossible answers about its blocks", (unsigned)node);
}

static int usage_words(struct audit *audit, uint16_t node, uint32_t number, struct memory_usage_reply *reply,
                       uint32_t first)
{
    struct memory_usage_request request = {.kind = MEMORY_USAGE, .chunk = number, .first = first};
    size_t length = 0;
    int status = pool_call(tree_session_pool(audit->session), node, &request, sizeof request, reply,
                           sizeof *reply, &length);
    if (status)
        return status;
    size_t fixed = offsetof(struct memory_usage_reply, bits);
    bool good = length >= fixed && reply->words <= MEMORY_USAGE_WORDS &&
                length >= fixed + 8u * reply->words &&
                (!reply->block_bytes ||
                 (reply->blocks && memory_block_index(reply->block_bytes) < MEMORY_BLOCK_SIZES &&
                  gaddr_node(reply->chunk) == node && reply->blocks <= (1u << 30) / MEMORY_BLOCK_MIN));
    return good ? 0 : nonsense(audit, node);
}

static int load_chunk(struct audit *audit, uint16_t node, uint32_t number, struct memory_usage_reply *reply)
{
    struct audit_node_chunks *list = &audit->nodes[node];
    int status = usage_words(audit, node, number, reply, 0);
    if (status || !reply->block_bytes)
        return status;
    uint32_t words = (reply->blocks + 63) / 64;
    struct audit_chunk *chunk = &list->chunks[list->count];
    *chunk = (struct audit_chunk){
        .start = reply->chunk, .block_bytes = reply->block_bytes, .blocks = reply->blocks};
    chunk->used = calloc(2u * words, sizeof *chunk->used);
    if (!chunk->used)
        return audit_fail_memory(audit);
    chunk->reached = chunk->used + words;
    list->count++;
    for (uint32_t at = 0;;) {
        uint32_t got = reply->words < words - at ? reply->words : words - at;
        memcpy(chunk->used + at, reply->bits, 8u * got);
        at += got;
        if (at >= words || !got)
            return at >= words ? 0 : nonsense(audit, node);
        status = usage_words(audit, node, number, reply, at * 64);
        if (status)
            return status;
        if (reply->block_bytes != chunk->block_bytes || reply->chunk != chunk->start)
            return pool_fail(tree_session_pool(audit->session), BANYAN_EBUSY,
                             "memory node %u has cut a chunk anew: a compute node is at work",
                             (unsigned)node);
    }
}

/* Also notes how many other compute nodes are connected. */
static int ask_status(struct audit *audit, uint16_t node, struct memory_status_reply *reply)
{
    struct memory_status_request request = {.kind = MEMORY_STATUS};
    size_t length = 0;
    int status = pool_call(tree_session_pool(audit->session), node, &request, sizeof request, reply,
                           sizeof *reply, &length);
    if (status)
        return status;
    /* A node that claims more chunks than its pool has room for would be asked for ever. */
    if (length < sizeof *reply || reply->chunks_total > UINT32_MAX || !reply->chunk_bytes ||
        reply->pool_bytes > GADDR_LOCK_REGION || reply->chunks_total > reply->pool_bytes / reply->chunk_bytes)
        return nonsense(audit, node);
    if (reply->compute_nodes > audit->report->compute_nodes + 1)
        audit->report->compute_nodes = reply->compute_nodes - 1;
    return 0;
}

static int load_node(struct audit *audit, uint16_t node, struct memory_usage_reply *reply)
{
    struct memory_status_reply status_reply;
    int status = ask_status(audit, node, &status_reply);
    if (status)
        return status;
    struct audit_node_chunks *list = &audit->nodes[node];
    list->moves = status_reply.allocations_total + status_reply.frees_total;
    list->chunk_bytes = status_reply.chunk_bytes;
    list->chunks = calloc(status_reply.chunks_total + 1, sizeof *list->chunks);
    if (!list->chunks)
        return audit_fail_memory(audit);
    for (uint32_t i = 0; !status && i < status_reply.chunks_total; i++)
        status = load_chunk(audit, node, i, reply);
    return status;
}

int audit_load(struct audit *audit)
{
    struct memory_usage_reply *reply = malloc(sizeof *reply);
    audit->nodes = calloc(audit->node_count, sizeof *audit->nodes);
    int status = reply && audit->nodes ? 0 : audit_fail_memory(audit);
    audit_progress(audit, "asking the memory nodes");
    for (uint16_t node = 0; !status && node < audit->node_count; node++)
        status = load_node(audit, node, reply);
    free(reply);
    return status;
}

void audit_unload(struct audit *audit)
{
    for (uint16_t node = 0; audit->nodes && node < audit->node_count; node++) {
        for (uint32_t i = 0; i < audit->nodes[node].count; i++)
            free(audit->nodes[node].chunks[i].used);
        free(audit->nodes[node].chunks);
    }
    free(audit->nodes);
    audit->nodes = NULL;
}

static struct audit_chunk *find_chunk(const struct audit *audit, gaddr block)
{
    uint16_t node = gaddr_node(block);
    if (node >= audit->node_count)
        return NULL;
    const struct audit_node_chunks *list = &audit->nodes[node];
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->chunks[middle].start <= block)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || block - list->chunks[low - 1].start >= list->chunk_bytes)
        return NULL;
    return &list->chunks[low - 1];
}

void audit_reach(void *context, gaddr block, uint32_t bytes)
{
    struct audit *audit = context;
    char text[GADDR_TEXT_BYTES];
    struct audit_chunk *chunk = find_chunk(audit, block);
    uint32_t block_bytes = memory_block_bytes(bytes);
    audit->report->blocks_used++;
    audit->report->bytes_used += block_bytes;
    gaddr_format(block, text);
    if (!chunk || chunk->block_bytes != block_bytes || (block - chunk->start) % block_bytes) {
        audit_problem(audit, "index %s: block %s of %u bytes lies where the memory node has no such block",
                      audit->index, text, block_bytes);
        return;
    }
    uint64_t number = (block - chunk->start) / block_bytes, bit = UINT64_C(1) << number % 64;
    if (number >= chunk->blocks || !(chunk->used[number / 64] & bit))
        audit_problem(audit, "index %s: block %s is in use, but its memory node counts it as free",
                      audit->index, text);
    else if (chunk->reached[number / 64] & bit)
        audit_problem(audit, "index %s: block %s is used twice", audit->index, text);
    else
        chunk->reached[number / 64] |= bit;
}

void audit_hold(void *context, gaddr block, uint32_t block_bytes)
{
    struct audit_chunk *chunk = find_chunk(context, block);
    uint64_t number = chunk ? (block - chunk->start) / chunk->block_bytes : 0;
    if (chunk && chunk->block_bytes == block_bytes && number < chunk->blocks)
        chunk->reached[number / 64] |= UINT64_C(1) << number % 64;
}

static int give_back(struct audit *audit, struct memory_free_request *request)
{
    uint32_t reply;
    size_t length = 0;
    if (!request->count)
        return 0;
    int status = pool_call(tree_session_pool(audit->session), gaddr_node(request->blocks[0]), request,
                           sizeof *request, &reply, sizeof reply, &length);
    if (!status)
        audit->report->blocks_reclaimed += request->count;
    request->count = 0;
    return status;
}

static int count_lost(struct audit *audit, const struct audit_chunk *chunk, bool reclaim)
{
    struct memory_free_request request = {.kind = MEMORY_FREE, .block_bytes = chunk->block_bytes};
    int status = 0;
    for (uint32_t word = 0; !status && word < (chunk->blocks + 63) / 64; word++)
        for (uint64_t lost = chunk->used[word] & ~chunk->reached[word]; !status && lost; lost &= lost - 1) {
            audit->report->blocks_lost++;
            audit->report->bytes_lost += chunk->block_bytes;
            if (!reclaim)
                continue;
            uint64_t number = word * UINT64_C(64) + (uint64_t)__builtin_ctzll(lost);
            assert(request.count < MEMORY_BATCH_MAX);
            request.blocks[request.count++] = chunk->start + number * chunk->block_bytes;
            if (request.count == MEMORY_BATCH_MAX)
                status = give_back(audit, &request);
        }
    return status ? status : give_back(audit, &request);
}

/* BANYAN_EBUSY if a compute node has worked since the nodes were asked: a block that it took before and
 * linked after the walk passed would seem lost. One that connects from now on gets no lost block. */
static int still_alone(struct audit *audit)
{
    for (uint16_t node = 0; node < audit->node_count; node++) {
        struct memory_status_reply reply;
        int status = ask_status(audit, node, &reply);
        if (status)
            return status;
        if (audit->report->compute_nodes ||
            reply.allocations_total + reply.frees_total != audit->nodes[node].moves)
            return pool_fail(tree_session_pool(audit->session), BANYAN_EBUSY,
                             "a compute node was at work during the check: nothing was given back; "
                             "stop all of them first");
    }
    return 0;
}

int audit_account(struct audit *audit)
{
    /* Behind a broken invariant there may be blocks in use that the walk did not reach. */
    bool reclaim = audit->options->reclaim && !audit->report->problems;
    audit->report->lost_unjudged = audit->report->problems != 0;
    int status = reclaim ? still_alone(audit) : 0;
    for (uint16_t node = 0; !status && node < audit->node_count; node++)
        for (uint32_t i = 0; !status && i < audit->nodes[node].count; i++)
            status = count_lost(audit, &audit->nodes[node].chunks[i], reclaim);
    return status;
}
