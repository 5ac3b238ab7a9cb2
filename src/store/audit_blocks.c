/*
 * audit_blocks.c - See audit_blocks.h.
 */
#include "store/audit_blocks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "memory/memory.h"
#include "pool/pool.h"

static int nonsense(const struct audit *audit, uint16_t node)
{
    return pool_fail(tree_session_pool(audit->session), BANYAN_ENET,
                     "memory node %u gives impossible answers about its blocks", (unsigned)node);
}

/* ---- asking the memory nodes ---- */

static int usage_words(struct audit *audit, uint16_t node, uint64_t first, struct memory_usage_reply *reply)
{
    struct memory_usage_request request = {.kind = MEMORY_USAGE, .first = first};
    size_t length = 0, fixed = offsetof(struct memory_usage_reply, bits);
    int status = pool_call(tree_session_pool(audit->session), node, &request, sizeof request, reply,
                           sizeof *reply, &length);
    if (status)
        return status;
    bool good = length >= fixed && reply->words <= MEMORY_USAGE_WORDS &&
                length >= fixed + reply->words * sizeof reply->bits[0] && reply->granules % 64 == 0 &&
                reply->granules <= GADDR_LOCK_REGION / MEMORY_BLOCK_MIN && reply->first >= first &&
                reply->first % 64 == 0 && reply->first <= reply->granules &&
                reply->words <= (reply->granules - reply->first) / 64 &&
                (reply->words || reply->first == reply->granules) && gaddr_node(reply->base) == node;
    return good ? 0 : nonsense(audit, node);
}

static int load_blocks(struct audit *audit, uint16_t node, struct memory_usage_reply *reply)
{
    struct audit_node_blocks *blocks = &audit->nodes[node];
    int status = usage_words(audit, node, 0, reply);
    if (status)
        return status;
    const uint64_t words = reply->granules / 64;
    blocks->base = reply->base;
    blocks->granules = reply->granules;
    blocks->used = calloc(3 * words + 1, sizeof *blocks->used);
    if (!blocks->used)
        return audit_fail_memory(audit);
    blocks->starts = blocks->used + words;
    blocks->reached = blocks->starts + words;
    while (!status && reply->first < blocks->granules) {
        if (reply->granules != blocks->granules || reply->base != blocks->base)
            return nonsense(audit, node);
        for (uint64_t i = 0; i < reply->words; i++) {
            blocks->used[reply->first / 64 + i] = reply->bits[i].used;
            blocks->starts[reply->first / 64 + i] = reply->bits[i].starts;
        }
        status = usage_words(audit, node, reply->first + reply->words * UINT64_C(64), reply);
    }
    return status;
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
    if (length < sizeof *reply || reply->pool_bytes > GADDR_LOCK_REGION)
        return nonsense(audit, node);
    if (reply->compute_nodes > audit->report->compute_nodes + 1)
        audit->report->compute_nodes = reply->compute_nodes - 1;
    return 0;
}

static int load_node(struct audit *audit, uint16_t node, struct memory_usage_reply *reply)
{
    struct memory_status_reply status_reply;
    if (!fabric_membership(tree_session_pool(audit->session)->fabric, node))
        return 0; /* its account is empty: no link may lead there */
    int status = ask_status(audit, node, &status_reply);
    if (status)
        return status;
    audit->report->memory_nodes++;
    audit->report->memory_nodes_kept += status_reply.kept != 0;
    audit->report->memory_nodes_disk += status_reply.durability >= FABRIC_KEPT_ON_DISK;
    audit->report->memory_nodes_always += status_reply.durability == FABRIC_KEPT_ON_DISK_ALWAYS;
    audit->report->memory_nodes_failed += status_reply.disk_failed != 0;
    audit->nodes[node].moves = status_reply.allocations_total + status_reply.frees_total;
    return load_blocks(audit, node, reply);
}

int audit_load(struct audit *audit)
{
    struct memory_usage_reply *reply = malloc(sizeof *reply);
    audit->nodes = calloc(audit->node_count, sizeof *audit->nodes);
    int status = reply && audit->nodes ? 0 : audit_fail_memory(audit);
    audit_progress(audit, "asking the memory nodes");
    audit->report->memory_nodes = audit->report->memory_nodes_kept = audit->report->memory_nodes_disk = 0;
    audit->report->memory_nodes_always = audit->report->memory_nodes_failed = 0;
    for (uint16_t node = 0; !status && node < audit->node_count; node++)
        status = load_node(audit, node, reply);
    free(reply);
    return status;
}

void audit_unload(struct audit *audit)
{
    for (uint16_t node = 0; audit->nodes && node < audit->node_count; node++)
        free(audit->nodes[node].used);
    free(audit->nodes);
    audit->nodes = NULL;
}

/* ---- the account ---- */

static bool bit_get(const uint64_t *words, uint64_t at)
{
    return words[at / 64] >> at % 64 & 1;
}

/* The memory node's account and the granule at which the block begins; NULL: it has none there. */
static struct audit_node_blocks *find_place(const struct audit *audit, gaddr block, uint64_t *granule)
{
    uint16_t node = gaddr_node(block);
    struct audit_node_blocks *blocks = node < audit->node_count ? &audit->nodes[node] : NULL;
    if (!blocks || block < blocks->base || (block - blocks->base) % MEMORY_BLOCK_MIN)
        return NULL;
    *granule = (block - blocks->base) / MEMORY_BLOCK_MIN;
    return *granule < blocks->granules ? blocks : NULL;
}

/* Of the block that begins at the granule; it may be a log's, which are larger than others. */
static uint64_t block_bytes_at(const struct audit_node_blocks *blocks, uint64_t granule)
{
    uint64_t end = granule + 1;
    while (end < blocks->granules && bit_get(blocks->used, end) && !bit_get(blocks->starts, end))
        end++;
    return (end - granule) * MEMORY_BLOCK_MIN;
}

/* So many blocks that were taken during the walk; more are faults, each of which would cost a call. */
#define ASK_AGAIN_MAX 1000u

static bool is_block(const struct audit_node_blocks *blocks, uint64_t granule, uint64_t block_bytes)
{
    return bit_get(blocks->used, granule) && bit_get(blocks->starts, granule) &&
           block_bytes_at(blocks, granule) == block_bytes;
}

/* Other compute nodes go on: one may have taken the block since the memory node was asked, for a range's
 * border say, which owners make by themselves. So it is asked again. */
static void ask_again(struct audit *audit, uint16_t node, uint64_t granule)
{
    struct audit_node_blocks *blocks = &audit->nodes[node];
    struct memory_usage_reply *reply = malloc(sizeof *reply);
    if (reply && !usage_words(audit, node, granule / 64 * 64, reply) && reply->granules == blocks->granules &&
        reply->base == blocks->base)
        for (uint64_t i = 0; i < reply->words; i++) {
            blocks->used[reply->first / 64 + i] = reply->bits[i].used;
            blocks->starts[reply->first / 64 + i] = reply->bits[i].starts;
        }
    free(reply);
}

/* `what` and the audit's name of it are for messages. */
static void reach(struct audit *audit, gaddr block, uint64_t block_bytes, const char *what)
{
    char text[GADDR_TEXT_BYTES];
    uint64_t granule = 0;
    struct audit_node_blocks *blocks = find_place(audit, block, &granule);
    audit->report->blocks_used++;
    audit->report->bytes_used += block_bytes;
    gaddr_format(block, text);
    if (blocks && !is_block(blocks, granule, block_bytes) && audit->asked_again++ < ASK_AGAIN_MAX)
        ask_again(audit, gaddr_node(block), granule);
    if (blocks && !bit_get(blocks->used, granule))
        audit_problem(audit, "%s %s: block %s is in use, but its memory node counts it as free", what,
                      audit->index, text);
    else if (!blocks || !bit_get(blocks->starts, granule) || block_bytes_at(blocks, granule) != block_bytes)
        audit_problem(audit,
                      "%s %s: block %s of %" PRIu64 " bytes lies where the memory node has no such block",
                      what, audit->index, text, block_bytes);
    else if (bit_get(blocks->reached, granule))
        audit_problem(audit, "%s %s: block %s is used twice", what, audit->index, text);
    else
        blocks->reached[granule / 64] |= UINT64_C(1) << granule % 64;
}

void audit_reach(void *context, gaddr block, uint32_t bytes)
{
    reach(context, block, memory_block_bytes(bytes), "index");
}

void audit_reach_log(struct audit *audit, gaddr block, uint64_t bytes)
{
    reach(audit, block, bytes, "log of");
}

void audit_hold(void *context, gaddr block, uint32_t block_bytes)
{
    uint64_t granule = 0;
    struct audit_node_blocks *blocks = find_place(context, block, &granule);
    if (blocks && bit_get(blocks->starts, granule) && block_bytes_at(blocks, granule) == block_bytes)
        blocks->reached[granule / 64] |= UINT64_C(1) << granule % 64;
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

static int count_lost(struct audit *audit, const struct audit_node_blocks *blocks, bool reclaim)
{
    struct memory_free_request request = {.kind = MEMORY_FREE};
    int status = 0;
    for (uint64_t word = 0; !status && word < blocks->granules / 64; word++)
        for (uint64_t lost = blocks->starts[word] & ~blocks->reached[word]; !status && lost;
             lost &= lost - 1) {
            uint64_t granule = word * 64 + (uint64_t)__builtin_ctzll(lost);
            uint64_t bytes = block_bytes_at(blocks, granule);
            audit->report->blocks_lost++;
            audit->report->bytes_lost += bytes;
            if (!reclaim || bytes > MEMORY_BLOCK_MAX) /* the latter is no block that FREE takes */
                continue;
            assert(request.count < MEMORY_BATCH_MAX);
            request.blocks[request.count] = blocks->base + granule * MEMORY_BLOCK_MIN;
            request.sizes[request.count++] = (uint32_t)bytes;
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
        if (!fabric_membership(tree_session_pool(audit->session)->fabric, node))
            continue;
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
    if (!status && reclaim)
        status = audit_logs_release(audit);
    reclaim = reclaim && audit->report->logs_released == audit->report->log_processes;
    for (uint16_t node = 0; !status && node < audit->node_count; node++)
        status = count_lost(audit, &audit->nodes[node], reclaim);
    return status;
}
