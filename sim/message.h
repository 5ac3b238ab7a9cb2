/*
 * message.h - the common parts of lists and calls on their way: when a request arrives, what a NIC takes to
 * receive, the end of a wait.
 */
#ifndef SIM_MESSAGE_H
#define SIM_MESSAGE_H

#include "fabric/fabric.h"
#include "sim/endpoint.h"
#include "sim/nic.h"
#include "sim/sim.h"

struct sim_task;

/* One fabric_execute: on its caller's stack. */
struct sim_waiter {
    struct sim_task *task;
    uint32_t pending;
    sim_time latest; /* when the last of the completions so far can be seen */
};

/* The running task, if it is one of the endpoint's own compute node; else NULL: it has no place in virtual
 * time. */
struct sim_task *sim_calling_task(const struct sim_endpoint *endpoint);
/* When a request posted by the running task arrives: no earlier than those that the connection carried
 * before. `fetch`: how long the NIC takes to fetch the payload. */
sim_time sim_arrival_time(struct sim *sim, struct sim_compute *compute, struct sim_task *task,
                          struct sim_connection *connection, struct sim_load load, sim_time fetch);
/* When the NIC has received so much. */
sim_time sim_receive(struct sim *sim, struct sim_nic *nic, struct sim_load load);
/* By how much the fault delays an answer. */
sim_time sim_late_reply(struct sim *sim);
/* Of a notice, or a message between compute nodes, that has left a NIC: whether the fault loses it; when it
 * is in the other end's memory, the reading of a long payload not counted. */
bool sim_message_lost(struct sim *sim);
sim_time sim_message_time(struct sim *sim);
/* One of the waiter's lists or calls is over and can be seen at `seen`; the task goes on when all are. */
void sim_complete(struct sim *sim, struct sim_compute *compute, struct sim_waiter *waiter, sim_time seen);

#endif
