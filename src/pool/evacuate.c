/* evacuate.c - see evacuate.h. */
#include "pool/evacuate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pool/state.h"

_Static_assert(POOL_EVACUATION_MS == MEMORY_EVACUATION_MS, "as the memory nodes have it");

/* Of one memory node. */
struct part {
    uint64_t evacuation; /* 0: none there */
    uint32_t count;
    struct memory_evacuate_range ranges[MEMORY_EVACUATION_MAX]; /* in ascending order */
};

struct pool_evacuation {
    uint16_t memory_nodes;
    uint32_t chunks;
    struct part parts[]; /* one for each memory node */
};

/* ---- asking ---- */

static bool ranges_good(const struct memory_evacuate_reply *reply, size_t length, uint16_t node)
{
    const size_t fixed = offsetof(struct memory_evacuate_reply, ranges);
    if (length < fixed || reply->count > MEMORY_EVACUATION_MAX ||
        length < fixed + reply->count * sizeof reply->ranges[0])
        return false;
    for (uint32_t i = 0; i < reply->count; i++)
        if (gaddr_node(reply->ranges[i].from) != node || reply->ranges[i].to <= reply->ranges[i].from ||
            (i > 0 && reply->ranges[i].from < reply->ranges[i - 1].from))
            return false;
    return true;
}

/* BEGIN or RENEW; the part is empty afterwards if it fails. */
static int part_ask(struct pool_session *session, uint16_t node, uint32_t kind, struct part *part)
{
    const struct memory_evacuate_request request = {.kind = kind, .evacuation = part->evacuation};
    struct memory_evacuate_reply reply = {0};
    size_t length = 0;
    int status = pool_call(session, node, &request, sizeof request, &reply, sizeof reply, &length);
    part->evacuation = 0;
    part->count = 0;
    if (!status && !ranges_good(&reply, length, node))
        status = pool_node_failed(session, BANYAN_ENET, node, "asking which chunks to empty");
    if (status)
        return status;
    part->evacuation = reply.evacuation;
    part->count = reply.count;
    memcpy(part->ranges, reply.ranges, reply.count * sizeof reply.ranges[0]);
    return 0;
}

/* ---- what the workers know of it ---- */

/* The workers of the process return what they hold of these chunks, and do not use again what they free of
 * them (pool_lists_mind). */
static void publish(struct pool *pool, struct memory_evacuate_range *ranges, uint32_t count)
{
    spinlock_lock(&pool->lock);
    struct memory_evacuate_range *before = pool->emptying;
    pool->emptying = ranges;
    pool->emptying_count = count;
    atomic_store_relaxed(&pool->emptying_version,
                         pool->emptying_version + 1); /* read as a hint; else locked */
    spinlock_unlock(&pool->lock);
    free(before);
}

/* Counts the chunks and tells the workers. Without memory for that they only go on using what lies in them.
 */
static void settle(struct pool_session *session, struct pool_evacuation *evacuation)
{
    uint32_t at = 0;
    evacuation->chunks = 0;
    for (uint16_t node = 0; node < evacuation->memory_nodes; node++)
        evacuation->chunks += evacuation->parts[node].count;
    struct memory_evacuate_range *all = evacuation->chunks ? calloc(evacuation->chunks, sizeof *all) : NULL;
    for (uint16_t node = 0; all && node < evacuation->memory_nodes; node++)
        for (uint32_t i = 0; i < evacuation->parts[node].count; i++)
            all[at++] = evacuation->parts[node].ranges[i];
    publish(session->worker->pool, all, at);
}

void pool_emptying_adopt(struct pool_worker *worker)
{
    struct pool *pool = worker->pool;
    struct memory_evacuate_range *before = worker->emptying, *ranges = NULL;
    uint32_t room = 0, count = 0;
    do { /* Allocated outside of the lock: if there are more of them meanwhile, once again. */
        free(ranges);
        spinlock_lock(&pool->lock);
        room = pool->emptying_count;
        spinlock_unlock(&pool->lock);
        ranges = room ? calloc(room, sizeof *ranges) : NULL;
        spinlock_lock(&pool->lock);
        count = pool->emptying_count;
        if (ranges && count <= room)
            memcpy(ranges, pool->emptying, count * sizeof *ranges);
        worker->emptying_seen = pool->emptying_version;
        spinlock_unlock(&pool->lock);
    } while (ranges && count > room);
    worker->emptying = ranges;
    worker->emptying_count = ranges ? count : 0;
    free(before);
}

/* ---- the calls of evacuate.h ---- */

int pool_evacuation_begin(struct pool_session *session, struct pool_evacuation **out)
{
    struct pool_evacuation *evacuation =
        calloc(1, sizeof *evacuation + session->memory_nodes * sizeof evacuation->parts[0]);
    *out = NULL;
    if (!evacuation)
        return pool_fail_memory(session);
    evacuation->memory_nodes = session->memory_nodes;
    int first = 0, answers = 0;
    for (uint16_t node = 0; node < session->memory_nodes; node++) {
        if (!fabric_membership(session->fabric, node))
            continue;
        int status = part_ask(session, node, MEMORY_EVACUATE_BEGIN, &evacuation->parts[node]);
        first = first ? first : status;
        answers += !status || status == BANYAN_EBUSY;
    }
    settle(session, evacuation);
    if (evacuation->chunks) {
        *out = evacuation;
        return 0;
    }
    free(evacuation);
    return answers ? 0 : first;
}

uint32_t pool_evacuation_chunks(const struct pool_evacuation *evacuation)
{
    return evacuation ? evacuation->chunks : 0;
}

bool pool_ranges_hold(const struct memory_evacuate_range *ranges, uint32_t count, gaddr block)
{
    uint32_t low = 0, high = count; /* ranges before `low` begin at or before the block */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges[middle].from <= block)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && block < ranges[low - 1].to;
}

bool pool_evacuation_holds(const struct pool_evacuation *evacuation, gaddr block)
{
    uint16_t node = gaddr_node(block);
    return evacuation && node < evacuation->memory_nodes &&
           pool_ranges_hold(evacuation->parts[node].ranges, evacuation->parts[node].count, block);
}

int pool_evacuation_renew(struct pool_session *session, struct pool_evacuation *evacuation)
{
    int first = 0;
    for (uint16_t node = 0; node < evacuation->memory_nodes; node++) {
        struct part *part = &evacuation->parts[node];
        pool_lists_return(session->worker, node, false,
                          session->cost); /* what was moved makes chunks empty */
        int status = part->evacuation ? part_ask(session, node, MEMORY_EVACUATE_RENEW, part) : 0;
        if (status !=
            BANYAN_ENOTFOUND) /* the memory node has forgotten it: nothing is left to be done there */
            first = first ? first : status;
    }
    settle(session, evacuation);
    return first;
}

int pool_evacuation_end(struct pool_session *session, struct pool_evacuation *evacuation, bool tried)
{
    int first = 0;
    if (evacuation)
        publish(session->worker->pool, NULL, 0);
    for (uint16_t node = 0; evacuation && node < evacuation->memory_nodes; node++) {
        struct memory_evacuate_request request = {
            .kind = MEMORY_EVACUATE_END, .tried = tried, .evacuation = evacuation->parts[node].evacuation};
        struct memory_evacuate_reply reply;
        size_t length;
        if (!request.evacuation)
            continue;
        pool_lists_return(session->worker, node, false, session->cost); /* as above */
        int status = pool_call(session, node, &request, sizeof request, &reply, sizeof reply, &length);
        if (status != BANYAN_ENOTFOUND)
            first = first ? first : status;
    }
    free(evacuation);
    return first;
}
