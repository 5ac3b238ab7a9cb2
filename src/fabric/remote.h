/*
 * remote.h - the backend for memory nodes in other processes: over TCP (with TLS where wanted); on the same
 * machine, over a Unix socket through which the pool is mapped; or through NICs with RDMA (`tcp`,
 * `local` and `rdma` in fabric_capabilities).
 *
 * One fabric may have memory nodes of all kinds. A list to a mapped one is run by the calling thread at once,
 * as in local.c; a list to an rdma:// one is one chain of work requests (verbs_queue.h); a list to another is
 * one message each way, and the messages of all fibers of a worker are sent together when none of them can
 * run any more. An endpoint may be used by the fibers of one worker (base/worker.h), or by one plain thread,
 * which waits in poll().
 *
 * A LOST CONNECTION fails every list that is under way there (BANYAN_ENET), and from then on every list of an
 * operation that began before the loss (fabric.h, incarnations). It is opened anew in the background, with
 * delays from 10 ms to 1 s, if the memory node is still the same one. A memory node that came back empty
 * stays BANYAN_ENET, with a message (fabric_trouble) that says to format it.
 */
#ifndef FABRIC_REMOTE_H
#define FABRIC_REMOTE_H

#include "fabric/fabric.h"
#include "fabric/verbs_options.h"
#include "net/net.h"

struct fabric_remote_options {
    const struct net_address *nodes; /* all of the cluster; for format, their order is their numbers */
    uint16_t count;
    const char *name;    /* of this compute node, for messages; NULL: host and process id */
    struct net_tls *tls; /* for TCP addresses; NULL: plain */
    const char *secret;  /* NULL: none */
    size_t secret_length;
    uint32_t lease_ms;        /* wanted; 0: 2,000 */
    uint32_t read_lease_ms;   /* wanted (G7, peers.h); 0: 50 */
    uint32_t timeout_ms;      /* of a list or call until the connection counts as lost; 0: 5,000 */
    bool copy;                /* Unix sockets: do not map the pool, send messages */
    struct verbs_options nic; /* for rdma:// addresses; copied */
    /* Calls of other compute nodes (peers.h). Without `peers` it answers none. peer_listen NULL: over TCP,
     * the address from which memory node 0 is reached, and a port that the system chooses; where that is
     * reached over a Unix socket, another one beside it, or in /tmp, for this user alone. */
    bool peers;
    const struct net_address *peer_listen;
    struct net_tls *peer_tls; /* a server's; needed over TCP where `tls` is set. Callers validate its chain */
};

/* Connects to every memory node; those named must be one whole cluster. BANYAN_ENET,
 * BANYAN_ETIMEOUT, BANYAN_EVERSION, BANYAN_EINVAL; the message names the memory node and says what to do. */
int fabric_remote_open(struct fabric **fabric, const struct fabric_remote_options *options,
                       struct error *error);
/* Makes one new, empty cluster of the memory nodes: nodes[i] becomes number i, and all that they held is
 * gone. BANYAN_EBUSY if a compute node is connected to one of them. */
int fabric_remote_format(const struct fabric_remote_options *options, struct error *error);
/* One RPC to one memory node over a connection that holds no lease (WIRE_MONITOR), for status. */
int fabric_remote_ask(const struct fabric_remote_options *options, uint16_t number, const void *request,
                      size_t length, void *reply, size_t capacity, size_t *reply_length, struct error *error);

struct fabric_remote_node_state {
    struct net_address address;
    bool connected, mapped;
    uint64_t losses;   /* connections lost so far */
    char trouble[256]; /* why it is not connected; "" */
};
/* node: its number. Any thread. */
void fabric_remote_node_state(const struct fabric *fabric, uint16_t node,
                              struct fabric_remote_node_state *state);

#endif
