/*
 * list.h - a list of commands under way: posted by a task, then followed event by event. Called from tasks
 * (execute) and from the event loop.
 */
#ifndef SIM_LIST_H
#define SIM_LIST_H

#include "fabric/fabric.h"
#include "sim/message.h"

/* Kept beside a list that is under way. */
struct FABRIC_LIST_STATE_STRUCT sim_list {
    struct sim_waiter *waiter;
    struct sim_connection *connection;
    uint32_t bytes; /* its load on the wire */
    uint32_t known; /* its link's losses when it was posted */
};
FABRIC_LIST_STATE(sim_list)
static inline const struct sim_task *sim_list_task(struct fabric_list *list)
{
    return sim_list(list)->waiter->task;
}

/* fabric_execute of the simulated fabric. */
int sim_backend_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count);
/* The events: it arrives at the memory node's NIC; its answer leaves; its answer is there. `posted`: when it
 * was; `ready`: when the answer may leave; `load`: of the answer. */
void sim_list_arrive(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time posted);
void sim_list_respond(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time ready);
void sim_list_return(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, uint64_t load);

#endif
