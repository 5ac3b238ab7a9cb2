/*
 * verbs_queue_private.h - a queue as verbs_queue.c (posting, completing, sleeping) and verbs_create.c
 * (making, connecting, destroying) see it.
 *
 * BOUNDS. Requests under way never exceed what the send queue was granted, bytes never the room, lists never
 * the ring of lists (each has a request). A list that finds no room is refused with BANYAN_EBUSY, and an
 * empty queue has room for every list that fabric_execute lets through. The completion queue is as long as
 * the send queue: even if all requests fail at once, each with a completion of its own, it cannot overflow.
 *
 * ORDER. A reliable connection completes its requests in the order of their posts, so lists are done in that
 * order too: rings do for everything.
 */
#ifndef FABRIC_VERBS_QUEUE_PRIVATE_H
#define FABRIC_VERBS_QUEUE_PRIVATE_H

#include "base/atomic.h"
#include "fabric/verbs_queue.h"
#include "fabric/verbs_room.h"
#include "fabric/verbs_works.h"

/* Eight of the longest lists, and more of the usual ones (two or three requests) than one connection can use:
 * most NICs keep 16 READs and atomics under way on it. */
#define VERBS_QUEUE_WORKS 512u

struct verbs_list_under_way {
    struct fabric_list *list; /* NULL: its post failed, and the caller has it back */
    struct verbs_bytes place;
    uint32_t commands, works;
    int status; /* 0 or BANYAN_EADDRESS, when it has completed */
};

struct verbs_queue {
    const struct verbs_device *device;
    struct verbs_rules rules;
    struct ibv_comp_channel *channel;
    struct ibv_cq *completions;
    struct ibv_qp *pair;
    struct wire_nic ours;
    struct verbs_counts counts;
    struct error broken; /* code 0: it is not */
    bool blamed;         /* ... and the text names the command at fault */

    uint32_t works_max, works_under_way;
    uint64_t first, next; /* sequence numbers of the lists under way */
    struct verbs_list_under_way lists[VERBS_QUEUE_WORKS];
    struct verbs_room room;

    struct verbs_work works[VERBS_LIST_WORKS_MAX];
    struct verbs_scratch scratch;
};

/* Only the owner writes; others may read. Relaxed: a statistic orders nothing. */
static inline void verbs_count(uint64_t *counter, uint64_t more)
{
    atomic_store_relaxed(counter, *counter + more);
}

#endif
