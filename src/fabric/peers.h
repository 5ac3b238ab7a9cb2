/*
 * peers.h - what compute nodes need of the fabric to divide rights among themselves: a short lease to answer
 * from what they have cached, its certain end, notices, and calls to each other. Part of the fabric's
 * contract (fabric.h).
 *
 * Every backend keeps it (docs/internals/fabric.md argues why). A fabric with no other compute node that
 * could reach its memory has no `peers` in its operations: its lease never lapses, and it has no peers to
 * call.
 *
 * GUARANTEES
 *  G7 READ LEASE. Beside the lease of G6 (seconds; losing it means being fenced) a compute node has a short
 *     one, towards memory node 0, its HOME: while fabric_lease_alive says so, the home node does not let
 *     fabric_lease_over say that it is over. The compute node counts from the moment at which it SENT the
 *     last heartbeat that was echoed, and takes a margin off for clocks whose rates differ by 1 %. When it
 *     lapses, nothing is lost but the right to answer without asking the pool; the next echo gives it back.
 *     But once the connection to the home node was lost, echoes give it back only after fabric_lease_resume:
 *     the caller has then looked up what rights it still has.
 *  G8 END OF A RIGHT. fabric_fence ends, at one memory node, the connections of a compute node: when it
 *     returns 0, nothing that this process of it had posted there, or will post before it joins anew, can
 *     take effect any more; and its locks there are freed (G6). The home node counts the read lease from the
 *     moment at which it RECEIVED the last heartbeat, so it ends it no earlier than its holder does; from the
 *     fencing on it echoes none, until the process has joined anew. fabric_lease_over says true only of a
 *     process that was fenced at the home node, for whatever reason, and when the lease that it had at its
 *     last fencing there is over by that count. It goes on saying so when the process has joined anew: that
 *     lease does not come back, and the process gets another only by fabric_lease_resume.
 *
 * NOTICES. fabric_notify makes the home node send a number to every compute node that is connected to it, the
 * caller's too. fabric_notice is the greatest that has come. A notice may be late, or lost with a connection:
 * they save waiting, nothing depends on them.
 *
 * PEER CALLS are two-sided: a request from an endpoint to some endpoint of another compute node, which serves
 * it on a task of its own and replies. One that is not answered within the time-out fails. Requests of
 * several fibers of one worker to one peer leave together, as lists do.
 *
 * A PROCESS of a compute node is named by its id and its instance: ids are used again, instances never.
 */
#ifndef FABRIC_PEERS_H
#define FABRIC_PEERS_H

#include "fabric/fabric.h"

/* The longest request, and the longest reply. */
#define FABRIC_PEER_BYTES_MAX (64u << 10)

struct fabric_process {
    uint64_t instance; /* not 0 */
    uint16_t compute_id;
};
static inline bool fabric_process_equal(struct fabric_process a, struct fabric_process b)
{
    return a.compute_id == b.compute_id && a.instance == b.instance;
}

/* This process. */
struct fabric_process fabric_self(const struct fabric *fabric);

/* ---- G7 ---- */

/* Whether this process may answer from what it has cached, now. Any thread; some nanoseconds, and a look at
 * the clock. */
bool fabric_lease_alive(const struct fabric *fabric);
/* How often it has lapsed so far; for statistics. */
uint64_t fabric_lease_lapses(const struct fabric *fabric);
/* The caller has fetched the map of rights under the incarnation: it has read fabric_incarnation, then called
 * the home node with success, then fetched. Echoes of that incarnation's connection to the home node count
 * again, those that have come already too. The call proves that the fetch began after this connection did.
 * Without it a process that is fenced while it has no connection to the home node could fetch through other
 * memory nodes, connect to it later, and trust what it fetched before the fencing. */
void fabric_lease_resume(struct fabric *fabric, uint64_t incarnation);

/* ---- G8: one round trip each (fabric_processes: one for each 4,000 processes); `cost` may be NULL ---- */

/* Returns when it is so. 0 also if that process is not connected there. BANYAN_EINVAL: it is this process.
 * BANYAN_ENOTSUP: this backend cannot fence, since all its compute nodes are one process. Else as
 * fabric_call. */
int fabric_fence(struct fabric_endpoint *endpoint, uint16_t node, struct fabric_process process,
                 struct fabric_cost *cost);
/* Asks the home node. A process that the home node knows nothing of has no lease: true. This process: false.
 */
int fabric_lease_over(struct fabric_endpoint *endpoint, struct fabric_process process, bool *over,
                      struct fabric_cost *cost);
/* The processes that are connected to the home node and not fenced there, this one among them, in ascending
 * order of their ids. *count: how many there are, which may be more than `capacity`. */
int fabric_processes(struct fabric_endpoint *endpoint, struct fabric_process *processes, uint32_t capacity,
                     uint32_t *count, struct fabric_cost *cost);

/* ---- notices ---- */

int fabric_notify(struct fabric_endpoint *endpoint, uint64_t number, struct fabric_cost *cost);
uint64_t fabric_notice(const struct fabric *fabric);
/* `heard` is called after fabric_notice has grown, and when the connection to the home node was lost or is
 * there again; on any thread, so it may do no more than unpark a task. NULL: nothing is called any more when
 * this has returned. */
void fabric_notice_listen(struct fabric *fabric, void (*heard)(void *context), void *context);

/* ---- peer calls ---- */

/* Suspends the calling task until the reply is there. A request waits at the peer until a task there receives
 * it. BANYAN_EINVAL: the peer is this process, or a length is out of range. The peer's status (0 or negative,
 * as fabric_peer_reply had it) is returned. Counted in cost as one round trip and one peer call.
 * BANYAN_EFENCED: nothing was sent, since there is no way to that process, or it is not the one that has the
 * id. BANYAN_ENET, BANYAN_ETIMEOUT: it may have been served or not. A reply that is longer than `capacity` is
 * BANYAN_EINVAL. */
int fabric_peer_call(struct fabric_endpoint *endpoint, struct fabric_process peer, const void *request,
                     size_t length, void *reply, size_t capacity, size_t *reply_length,
                     struct fabric_cost *cost);

/* A request that came in; the backend's until it is replied to. */
struct fabric_peer_request {
    struct fabric_process from;
    const void *bytes; /* nothing in them has been validated */
    size_t length;
    /* Atomic; until it is replied to: not 0 once its caller's connection has ended, so that no answer can be
     * waited for. NULL: this backend does not tell. */
    const uint32_t *gone;
};
/* Suspends the calling task until a request comes to this endpoint's process; which of the endpoints that
 * wait gets it is the backend's choice. Each request must be replied to, by the same task. BANYAN_EABORT:
 * fabric_peer_stop was called. BANYAN_ENOTSUP: this process can get none (it has no address for peers). */
int fabric_peer_receive(struct fabric_endpoint *endpoint, struct fabric_peer_request **request);
void fabric_peer_reply(struct fabric_endpoint *endpoint, struct fabric_peer_request *request, int status,
                       const void *reply, size_t length);
/* All tasks of the process that wait in fabric_peer_receive return, and later calls of it at once; for good.
 * Requests that no task has received, and those that come later, fail at their callers as if the connection
 * had been lost; those that a task has received are still to be replied to. Any thread. */
void fabric_peer_stop(struct fabric *fabric);
/* The process is gone, as the caller knows from the home node: calls of it that are under way, from fibers of
 * workers, end as if their time-out had come. A hint that saves waiting; one that is called meanwhile may
 * still be waited for. Any thread. */
void fabric_peer_forget(struct fabric *fabric, struct fabric_process peer);
/* For messages: where the process answers its peers, or why it cannot be reached; "" if nothing is known. */
void fabric_peer_describe(const struct fabric *fabric, struct fabric_process peer, char *text, size_t size);

/* What a backend implements: as the functions above. */
struct fabric_peer_ops {
    struct fabric_process (*self)(const struct fabric *);
    bool (*lease_alive)(const struct fabric *);
    uint64_t (*lease_lapses)(const struct fabric *);
    void (*lease_resume)(struct fabric *, uint64_t incarnation);
    int (*fence)(struct fabric_endpoint *, uint16_t node, struct fabric_process);
    int (*lease_over)(struct fabric_endpoint *, struct fabric_process, bool *over);
    int (*processes)(struct fabric_endpoint *, struct fabric_process *, uint32_t capacity, uint32_t *count);
    int (*notify)(struct fabric_endpoint *, uint64_t number);
    uint64_t (*notice)(const struct fabric *);
    void (*notice_listen)(struct fabric *, void (*heard)(void *), void *context);
    int (*call)(struct fabric_endpoint *, struct fabric_process, const void *request, size_t length,
                void *reply, size_t capacity, size_t *reply_length);
    int (*receive)(struct fabric_endpoint *, struct fabric_peer_request **);
    void (*reply)(struct fabric_endpoint *, struct fabric_peer_request *, int status, const void *reply,
                  size_t length);
    void (*stop)(struct fabric *);
    void (*forget)(struct fabric *, struct fabric_process); /* NULL: it waits for none that is gone */
    void (*describe)(const struct fabric *, struct fabric_process, char *text, size_t size);
};

#endif
