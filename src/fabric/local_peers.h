/*
 * local_peers.h - compute nodes of one process beside each other: peers.h for the backend `local`. Inside of
 * local.c; local.h is what others use.
 *
 * One spin lock guards all that the compute nodes of a group share; it is held for some dozens of
 * instructions, and to wake a task. A peer call copies its reply once, and allocates nothing.
 */
#ifndef FABRIC_LOCAL_PEERS_H
#define FABRIC_LOCAL_PEERS_H

#include "fabric/local.h"
#include "fabric/peers.h"

struct local_request;
struct local_receiver;

/* A compute node of a group. */
struct local_member {
    struct fabric_local_peers *peers; /* NULL: it is in none */
    struct local_member *next;        /* in the order of compute ids */
    struct fabric_process process;
    struct local_request *first, *last; /* requests that no task has received */
    struct local_receiver *waiting_first, *waiting_last;
    bool stopped;
    uint64_t notice; /* atomic */
    void (*heard)(void *);
    void *heard_context;
};

/* The member of a fabric whose operations are local_peer_operations: local.c's. */
struct local_member *local_member_of(const struct fabric *fabric);
/* BANYAN_EEXIST: a compute node of the group has that id. */
int local_member_join(struct local_member *member, struct fabric_local_peers *peers, uint16_t compute_id,
                      struct error *error);
void local_member_leave(struct local_member *member);

extern const struct fabric_peer_ops local_peer_operations;

#endif
