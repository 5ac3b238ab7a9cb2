/*
 * peer.h - calls between compute nodes (fabric/peers.h): requests and replies as messages from NIC to NIC,
 * tasks that wait for requests, time-outs, and networks that are cut.
 *
 * A message is charged like a list's: the sender posts it, both NICs' lanes carry it, a payload longer than
 * inline_bytes is read over PCIe first, and the one that takes it polls, and pays receive_ns to take it out
 * and post its buffer again. What is sent between two compute nodes has no order.
 *
 * Called from tasks and from the event loop. A call allocates its request and its reply.
 */
#ifndef SIM_PEER_H
#define SIM_PEER_H

#include "fabric/peers.h"
#include "sim/queue.h"

struct sim;
struct sim_compute;
struct sim_peer_call;
struct sim_receiver;

/* Of a compute node: requests that no task has received, and tasks that wait for one. Never both. */
struct sim_mailbox {
    struct sim_peer_call *first, *last;
    struct sim_receiver *waiting_first, *waiting_last;
    bool stopped, hidden;
};

int sim_peer_run(struct fabric_endpoint *endpoint, struct fabric_process peer, const void *request,
                 size_t length, void *reply, size_t capacity, size_t *reply_length);
int sim_peer_receive(struct fabric_endpoint *endpoint, struct fabric_peer_request **request);
void sim_peer_reply(struct fabric_endpoint *endpoint, struct fabric_peer_request *request, int status,
                    const void *reply, size_t length);
void sim_peer_stop(struct sim *sim, struct sim_compute *compute);

/* The events: a request or a reply comes; the time for the reply is over. */
void sim_peer_arrive(struct sim *sim, struct sim_peer_call *call);
void sim_peer_timeout(struct sim *sim, struct sim_peer_call *call);
void sim_peers_free(struct sim *sim);

#endif
