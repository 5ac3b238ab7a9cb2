/* evacuate.c - see evacuate.h. */
#include "pool/evacuate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

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

static void count_chunks(struct pool_evacuation *evacuation)
{
    evacuation->chunks = 0;
    for (uint16_t node = 0; node < evacuation->memory_nodes; node++)
        evacuation->chunks += evacuation->parts[node].count;
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
        int status = part_ask(session, node, MEMORY_EVACUATE_BEGIN, &evacuation->parts[node]);
        first = first ? first : status;
        answers += !status || status == BANYAN_EBUSY;
    }
    count_chunks(evacuation);
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

bool pool_evacuation_holds(const struct pool_evacuation *evacuation, gaddr block)
{
    uint16_t node = gaddr_node(block);
    if (!evacuation || node >= evacuation->memory_nodes)
        return false;
    const struct part *part = &evacuation->parts[node];
    uint32_t low = 0, high = part->count; /* ranges before `low` begin at or before the block */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part->ranges[middle].from <= block)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && block < part->ranges[low - 1].to;
}

int pool_evacuation_renew(struct pool_session *session, struct pool_evacuation *evacuation)
{
    int first = 0;
    for (uint16_t node = 0; node < evacuation->memory_nodes; node++) {
        struct part *part = &evacuation->parts[node];
        int status = part->evacuation ? part_ask(session, node, MEMORY_EVACUATE_RENEW, part) : 0;
        if (status !=
            BANYAN_ENOTFOUND) /* the memory node has forgotten it: nothing is left to be done there */
            first = first ? first : status;
    }
    count_chunks(evacuation);
    return first;
}

int pool_evacuation_end(struct pool_session *session, struct pool_evacuation *evacuation)
{
    int first = 0;
    for (uint16_t node = 0; evacuation && node < evacuation->memory_nodes; node++) {
        struct memory_evacuate_request request = {.kind = MEMORY_EVACUATE_END,
                                                  .evacuation = evacuation->parts[node].evacuation};
        struct memory_evacuate_reply reply;
        size_t length;
        if (!request.evacuation)
            continue;
        int status = pool_call(session, node, &request, sizeof request, &reply, sizeof reply, &length);
        if (status != BANYAN_ENOTFOUND)
            first = first ? first : status;
    }
    free(evacuation);
    return first;
}
