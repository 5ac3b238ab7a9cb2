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
    /* All of the cluster; the home node (number 0) is enough where it keeps a list of them, which a format
     * makes. Others are reached as they are named, and else as the list has them. For format, their order is
     * their numbers. */
    const struct net_address *nodes;
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
 * gone. The home node keeps a list of them, with the addresses by which they are named here, if they are at
 * most WIRE_CLUSTER_NODES_MAX. BANYAN_EBUSY if a compute node is connected to one of them. */
int fabric_remote_format(const struct fabric_remote_options *options, struct error *error);
/* One RPC to one memory node over a connection that holds no lease (WIRE_MONITOR), for status. */
int fabric_remote_ask(const struct fabric_remote_options *options, uint16_t number, const void *request,
                      size_t length, void *reply, size_t capacity, size_t *reply_length, struct error *error);

/*
 * The cluster's memory nodes, for operators. All three find the home node among those that are named, and
 * give the list as it is then. Each message names the memory node at fault and says what to do; after an
 * error nothing is changed, but for BANYAN_ENET and BANYAN_ETIMEOUT of the change itself, which may have been
 * done.
 *
 * list: BANYAN_ENOTFOUND: the home node keeps none (the cluster is of an earlier release, or has too many).
 * join: `joining`, which belongs to no cluster, becomes the next number; where there is no list yet, all
 * memory nodes of the cluster must be named, and it is made. BANYAN_EINVAL: it belongs to another cluster, is
 * listed already, or is not like the others (locks, writes, durability, RDMA); BANYAN_ENOSPC: there
 * are no numbers left; BANYAN_EBUSY: the list has just been changed by another operator, or a memory node's
 * journal is part of a checkpoint that is prepared. Members with disks note it there before and after (what
 * such a disk says else): where a note after it fails it has joined all the same, and the message says so.
 * Interrupted, the same call goes on; one that is listed already gets the notes that are missing.
 * set_state: BANYAN_EINVAL: there is no such memory node, it is the home node, or cannot get into that state.
 */
struct wire_cluster_list;
int fabric_remote_list(const struct fabric_remote_options *options, struct wire_cluster_list *list,
                       struct error *error);
int fabric_remote_join(const struct fabric_remote_options *options, const struct net_address *joining,
                       struct wire_cluster_list *list, struct error *error);
int fabric_remote_set_state(const struct fabric_remote_options *options, uint16_t number, uint8_t state,
                            struct wire_cluster_list *list, struct error *error);

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
