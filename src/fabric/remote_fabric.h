/*
 * remote_fabric.h - the remote backend's fabric: its memory nodes, its endpoints and its threads.
 *
 *  remote.c            opens and closes a fabric, and says what it can do
 *  remote_place.c      opening: which memory node is which number
 *  remote_join.c       opening: the lease at each of them
 *  remote_cluster.c    a thread that learns which memory nodes join and leave (remote_cluster.h)
 *  remote_execute.c    fabric_execute and fabric_call
 *  remote_heartbeat.c  a thread that keeps the leases and notices losses
 *  remote_reconnect.c  a thread for each memory node that opens its connections anew
 *  remote_threads.c    starting, waking and stopping them
 *  remote_lease.c      the read lease, and notices (remote_lease.h)
 *  remote_processes.c  what memory nodes are asked about other compute nodes (peers.h)
 *  remote_peer*.c      calls between compute nodes (remote_peers.h)
 *
 * The heartbeat's thread never waits for a connection to open; the others may. Endpoints and links have
 * headers of their own.
 */
#ifndef FABRIC_REMOTE_FABRIC_H
#define FABRIC_REMOTE_FABRIC_H

#include <sys/socket.h>

#include "base/thread.h"
#include "fabric/remote_endpoint.h"
#include "fabric/remote_lease.h"
#include "fabric/remote_cluster.h"

/* A NIC, and the address of ours by which it was chosen. */
struct remote_device {
    struct remote_device *next;
    struct verbs_device *device;
    struct sockaddr_storage local;
};

struct remote_fabric {
    struct fabric fabric;
    struct remote_identity identity;
    struct verbs_options nic;
    char *nic_name;                    /* owned: nic.device */
    struct remote_device *devices;     /* made while memory nodes are connected to */
    char *secret;                      /* owned copy */
    char local_host[NET_HOST_MAX + 1]; /* our address towards the home node; "": it has none */
    uint64_t incarnation;              /* atomic, from 1 */
    struct remote_lease lease;         /* guarded by the home node's lock */
    struct remote_notices notices;
    struct remote_peers peers;
    struct remote_cluster cluster;
    bool membarrier;      /* the kernel has it: lists on mapped pools need no fence of their own */
    struct spinlock lock; /* guards `endpoints`, and their links' `reconnecting` */
    struct remote_endpoint *endpoints;
    uint32_t quit; /* atomic: the threads are to end */
    int heartbeat_event;
    struct pollfd *polls; /* the heartbeat's */
    struct thread *heartbeat;
    uint16_t count; /* atomic: of `nodes` in use; grows under `lock` */
    uint16_t most;
    struct remote_node nodes[]; /* [most], by number; `fabric` NULL: the cluster has none of the number */
};

/* ---- opening ---- */

/* Asks the memory nodes at `addresses` who they are, and gives each its place in remote->nodes; those that
 * the home node's list has beside them too. Sets remote->count. */
int remote_place_nodes(struct remote_fabric *remote, const struct net_address *addresses, uint16_t count,
                       struct error *error);
/* Asks the one at `address`, and gives it its place: number `number`, which had none, as the list has it. */
int remote_place_listed(struct remote_fabric *remote, uint16_t number, const struct wire_cluster_node *listed,
                        struct error *error);
/* Gets the lease at a memory node that has its place, with compute id *id (0: the memory node chooses), and
 * sets it. `later`: while the fabric is in use: operations that began before it reach no such memory node. */
int remote_lease_node(struct remote_node *node, uint16_t *id, bool later, struct error *error);
/* The number of places in use; grows. */
static inline uint16_t remote_count(const struct remote_fabric *remote)
{
    return atomic_load_acquire(&remote->count); /* acquire: what is in the places */
}
/* Gets a lease at every memory node, with one compute id at all of them. Starts the heartbeat's thread. */
int remote_join_nodes(struct remote_fabric *remote, struct error *error);

/* ---- posting ---- */

int remote_execute(struct fabric_endpoint *base, struct fabric_list *const *lists, uint32_t count);
int remote_persist(struct fabric_endpoint *base, const uint16_t *nodes, uint32_t count, int *statuses);
void remote_calls(struct fabric_endpoint *base, struct fabric_call *const *calls, uint32_t count);
enum fabric_durability remote_durability(const struct fabric *fabric, uint16_t node);
int remote_call(struct fabric_endpoint *base, uint16_t node, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length);

/* ---- threads ---- */

/* The heartbeat's thread is started before the first group, those that reconnect when all memory nodes have
 * joined. */
int remote_heartbeat_start(struct remote_fabric *remote, struct error *error);
int remote_reconnect_start(struct remote_fabric *remote, struct error *error);
/* Ends those that run. They may be started again. */
void remote_threads_stop(struct remote_fabric *remote);
/* Wakes the thread that waits for the event. */
void remote_event_set(int event);
/* Waits until polls[0], an event, is set (and resets it), another one is ready, or `due` (task_now). */
void remote_event_wait(struct pollfd *polls, nfds_t count, uint64_t due);

/* Of one memory node. */
int remote_reconnect_start_node(struct remote_node *node, struct error *error);

void remote_heartbeat_main(void *remote);
void remote_cluster_main(void *remote);
void remote_reconnect_main(void *node);
/* Says goodbye when the last heartbeat's echo has come, or 100 ms later: an echo that met a closed socket
 * would end the group as lost. Only while no thread of the fabric runs. */
void remote_node_leave(struct remote_node *node);

#endif
