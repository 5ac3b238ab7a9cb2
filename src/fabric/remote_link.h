/*
 * remote_link.h - an endpoint's way to one memory node: a data connection, with a staging area or a queue
 * pair beside it, and the requests that are under way there.
 *
 *  remote_transport.c  opens and closes what a link stands on
 *  remote_link.c       whether a list may be posted; sending; the end of a connection
 *  remote_request.c    lists and calls become messages
 *  remote_answer.c     answers become results
 *  remote_nic.c        lists that go through a NIC instead (remote_nic.h)
 *
 * A link belongs to its endpoint's owner (a worker or a plain thread), but for what its `lock` guards and the
 * hints for the heartbeat.
 */
#ifndef FABRIC_REMOTE_LINK_H
#define FABRIC_REMOTE_LINK_H

#include <stdlib.h>

#include "base/task.h"
#include "base/worker.h"
#include "fabric/remote_node.h"

struct remote_endpoint;
struct verbs_queue;

/* What a link stands on. It is taken over and dropped as a whole. */
struct remote_transport {
    struct net_stream *stream;
    struct wire_staging *staging; /* mapped pools */
    struct verbs_queue *queue;    /* NICs */
    uint64_t group, since;        /* 0: never connected */
};

/* One fabric_execute or fabric_call that waits. */
struct remote_wait {
    struct task *task; /* NULL: a plain thread, which gets its answers by itself (remote_wait.c) */
    uint32_t left;     /* lists and calls that are not complete */
};

/* A fiber that waits until a link's output has shrunk. */
struct remote_waiter {
    struct task *task;
    struct remote_waiter *next;
    bool waiting;
};

/* What a list that is under way has beside it. */
struct FABRIC_LIST_STATE_STRUCT remote_list {
    struct fabric_list *next; /* in the link's chain of requests, or of lists that wait for room */
    struct remote_wait *wait;
    uint32_t sent; /* streams: commands in its message */
    bool waiting;  /* NICs: it waits for room in the queue */
};
FABRIC_LIST_STATE(remote_list)

/* A call stands in the chain of requests as a list of no commands. */
struct remote_call {
    struct fabric_list list; /* first: remote_list_call */
    struct remote_wait wait;
    void *reply;
    size_t capacity, length;
    bool left_behind; /* its caller has given up; freed when the answer comes */
    uint64_t id;      /* of one that is answered out of order; else 0 */
};
/* NULL: it is a list of commands. */
static inline struct remote_call *remote_list_call(struct fabric_list *list)
{
    return list->count == 0 ? (struct remote_call *)list : NULL;
}

struct remote_link {
    struct worker_watch watch; /* first: the callback's argument */
    struct remote_endpoint *endpoint;
    struct remote_node *node;
    struct remote_transport transport; /* the owner's; changed under `lock` */

    /* output: the bytes from out_begin to out_end are to be sent */
    uint8_t *out;
    size_t out_begin, out_end, out_capacity;
    bool dirty; /* in the endpoint's chain of links to flush */
    struct remote_link *next_dirty;
    struct remote_waiter *waiters;

    /* requests under way, in the order of their answers */
    struct fabric_list *first, *last;
    uint64_t sent_id, answered_id;
    uint32_t left_behind; /* calls in that state */

    /* calls that are answered out of order, chained as the others */
    struct fabric_list *deferred;
    uint64_t deferred_id;

    /* NICs */
    struct worker_watch nic_watch;
    struct fabric_list *waiting_first, *waiting_last; /* lists that wait for room in the queue */
    bool armed;                                       /* the queue's descriptor will tell */

    /* the answer that is arriving, and to which of them */
    struct fabric_list *answering;
    struct wire_header answer;
    uint32_t answer_have, body_left; /* bytes of the header that are there; bytes of the body that are not */
    uint32_t command, offset;        /* where in the list, and in that command's result */

    /* Hints for the heartbeat, which looks for silence: relaxed. */
    uint32_t outstanding, progress;
    uint32_t seen_progress; /* the heartbeat's */
    uint64_t seen_at;       /* the heartbeat's */

    struct spinlock lock;          /* guards `fresh` and every change of `transport` */
    struct remote_transport fresh; /* opened by the reconnect, for the owner to take; group 0: none */
    bool reconnecting;             /* the reconnect is at it; under the fabric's lock */
    uint64_t retry_at, retry_delay, retry_group; /* the reconnect's; of which group they are */
};

/* Opens a data connection of the node's present group, with what belongs beside it. Waits at most timeout_ns;
 * the message names the memory node. */
int remote_transport_open(struct remote_node *node, uint64_t timeout_ns, struct remote_transport *transport,
                          struct error *error);
void remote_transport_close(struct remote_transport *transport, bool goodbye);

int remote_link_admit_slow(struct remote_link *link, uint64_t incarnation);
/* Whether a list of this incarnation may be posted now: BANYAN_OK, BANYAN_ENET or BANYAN_EFENCED. Takes over
 * the transport that the reconnect has opened. */
static inline int remote_link_admit(struct remote_link *link, uint64_t incarnation)
{
    /* acquire: condition (2) of remote_node.h */
    if (__builtin_expect(link->transport.group != atomic_load_acquire(&link->node->group), 0))
        return remote_link_admit_slow(link, incarnation);
    return __builtin_expect(incarnation != 0 && incarnation < link->transport.since, 0) ? BANYAN_EFENCED
                                                                                        : BANYAN_OK;
}
/* Ends the link's group, drops its transport and completes all that is under way with BANYAN_ENET. */
void remote_link_fail(struct remote_link *link, const char *why);
/* When the endpoint is closed: nothing but calls that were left behind is under way. */
void remote_link_close(struct remote_link *link);
/* On a worker an answer is noticed only on a connection that is watched. False: it cannot be watched. */
bool remote_link_watched(struct remote_link *link);
/* Watches the link's transport, as far as there is one. */
void remote_link_watch(struct remote_link *link);

static inline size_t remote_link_unsent(const struct remote_link *link)
{
    return link->out_end - link->out_begin;
}
/* Sends what the socket takes, and asks for the events that the connection needs. */
void remote_link_push(struct remote_link *link);
/* Waits until there is room for another message, or the connection is gone. */
void remote_link_wait_room(struct remote_link *link);

/* Posts a list. A list that is refused gets its status at once and is not waited for. */
void remote_link_post(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait);
int remote_link_call(struct remote_link *link, const void *request, size_t length, void *reply,
                     size_t capacity, size_t *reply_length);

/* Posts a call that is answered out of order. An error: it was not, and is not waited for. BANYAN_EFENCED: as
 * a list of that incarnation; with 0, also where there is no connection. */
int remote_link_call_later(struct remote_link *link, struct remote_call *call, uint64_t incarnation,
                           const void *request, size_t length, struct remote_wait *wait);

/* A request is answered: sets its status, and wakes its task when that has nothing left to wait for. */
static inline void remote_link_complete(struct remote_link *link, struct fabric_list *list, int status)
{
    struct remote_wait *wait = remote_list(list)->wait;
    struct remote_call *call = remote_list_call(list);
    if (call != NULL && call->left_behind) {
        link->left_behind--;
        free(call);
        return;
    }
    list->status = status;
    if (--wait->left == 0 && wait->task != NULL)
        task_unpark(wait->task);
}
/* Reads what has arrived and completes what it answers. */
void remote_link_receive(struct remote_link *link);
/* The callback of `watch`. */
void remote_link_ready(struct worker_watch *watch, uint32_t events);

#endif
