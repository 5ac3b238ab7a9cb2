/*
 * remote_processes.h - what memory nodes are asked about other compute nodes (G8, peers.h), as calls over an
 * endpoint's data connection (wire.h, PROCESS). On the endpoint's owner; each waits for an answer, at most
 * the fabric's time-out; remote_processes for one answer for each WIRE_PROCESSES_MAX processes.
 */
#ifndef FABRIC_REMOTE_PROCESSES_H
#define FABRIC_REMOTE_PROCESSES_H

#include "fabric/peers.h"
#include "net/net.h"

int remote_fence(struct fabric_endpoint *base, uint16_t node, struct fabric_process process);
int remote_lease_over(struct fabric_endpoint *base, struct fabric_process process, bool *over);
int remote_processes(struct fabric_endpoint *base, struct fabric_process *processes, uint32_t capacity,
                     uint32_t *count);
int remote_notify(struct fabric_endpoint *base, uint64_t number);
/* Where the process answers its peers. BANYAN_ENOTFOUND: it is not connected, or answers none. */
int remote_peer_address(struct fabric_endpoint *base, struct fabric_process process,
                        struct net_address *address);

#endif
