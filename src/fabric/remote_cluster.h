/*
 * remote_cluster.h - which memory nodes the cluster has, as far as this process knows: a thread of the fabric
 * asks the home node for its list when an echo tells of another generation, or a task of this process wants
 * to know.
 *
 * JOINING. A memory node that is new in the list gets its place, a data connection of every endpoint, and the
 * lease; then its number is known (fabric_memory_nodes), and lists may be posted to it. An operation that
 * began before the lease is refused there (BANYAN_EFENCED), as after a loss: this process may have been
 * fenced at the home node while it was not connected to the new one, and an operation under a right of then
 * must not arrive. The lease is there before the incarnation is raised, so an operation that passes began
 * when a fencing of this process would have met the new connection as well.
 *
 * LEAVING. A number that leaves is told (FABRIC_LEAVING); of one that was removed nothing is posted any more.
 * The connections stay until the memory node ends: this process may have its pool mapped, and would be killed
 * with them.
 */
#ifndef FABRIC_REMOTE_CLUSTER_H
#define FABRIC_REMOTE_CLUSTER_H

#include "base/thread.h"
#include "fabric/fabric.h"
#include "fabric/remote_dial.h"

struct remote_fabric;
struct remote_endpoint;

struct remote_cluster {
    struct thread *thread;
    int event;           /* wakes it; there as long as the heartbeat's thread, which sets it; -1: none */
    uint32_t heard;      /* atomic: the generation that the last echo has told of */
    uint32_t generation; /* the thread's: of the list that was taken over */
    uint32_t known; /* atomic: of the list by which membership goes, though one that is new may be missing */
    uint32_t asked; /* atomic: how often tasks have asked for the list */
    uint32_t answered;  /* atomic: as many of them were answered */
    uint32_t succeeded; /* atomic: the last one of them that was answered with a list, all of it taken over */
    char complaint[256]; /* the thread's: what it has warned of last */
};

extern const struct fabric_cluster_ops remote_cluster_ops;

/* Sends a WIRE_CALL that the home node answers with its list, over the stream of a monitor's or formatter's
 * connection. On failure the list has no memory node: of one that makes no sense (BANYAN_EVERSION) nothing is
 * believed. The message does not name the memory node. */
int remote_cluster_call(struct net_stream *stream, const void *request, size_t bytes,
                        struct wire_cluster_list *list, uint64_t deadline, struct error *error);
/* Asks the home node for the list, in the same way. BANYAN_ENOTFOUND: it keeps none. */
int remote_cluster_ask(struct net_stream *stream, struct wire_cluster_list *list, uint64_t deadline,
                       struct error *error);
/* An echo of the home node's tells of this generation. The heartbeat's thread. */
void remote_cluster_hear(struct remote_fabric *remote, uint32_t generation);
/* What is listed so. */
enum fabric_membership remote_cluster_state(const struct wire_cluster_node *listed);

int remote_cluster_start(struct remote_fabric *remote, struct error *error);
/* Ends the thread, before any other of the fabric's. */
void remote_cluster_stop(struct remote_fabric *remote);

/* An endpoint's links to memory nodes that it has none to. Under the fabric's lock. */
void remote_endpoint_extend(struct remote_endpoint *endpoint);

#endif
