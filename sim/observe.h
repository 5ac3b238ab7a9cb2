/*
 * observe.h - telling the observer (sim_observe). The task is the list's; the time is now, or the
 * running task's.
 */
#ifndef SIM_OBSERVE_H
#define SIM_OBSERVE_H

#include "fabric/fabric.h"
#include "sim/sim.h"

struct sim_task;

void sim_see_list(const struct sim *sim, enum sim_sight kind, const struct sim_task *task,
                  const struct fabric_list *list, uint32_t from, uint32_t count, int status);
void sim_see_call(const struct sim *sim, enum sim_sight kind, const struct sim_task *task, uint16_t node,
                  int status);
void sim_see_node(const struct sim *sim, enum sim_sight kind, int compute, int memory, int status);
/* A notice, or a message between compute nodes; peer: -1 for a notice. */
struct sim_peer_sight {
    int compute, peer;
    uint64_t number;
    int status;
};
void sim_see_peer(const struct sim *sim, enum sim_sight kind, const struct sim_peer_sight *sight);
void sim_see_stalled(const struct sim *sim, const struct sim_task *task, int status);

#endif
