/*
 * home.h - what memory nodes themselves do about processes (fabric/peers.h): fence one, say whether its read
 * lease is over, list those that are connected, send notices. Each is a call of the running task (call.h):
 * the same way, the same turn on a core.
 */
#ifndef SIM_HOME_H
#define SIM_HOME_H

#include "fabric/peers.h"

int sim_home_fence(struct fabric_endpoint *endpoint, uint16_t node, struct fabric_process process);
int sim_home_lease_over(struct fabric_endpoint *endpoint, struct fabric_process process, bool *over);
int sim_home_processes(struct fabric_endpoint *endpoint, struct fabric_process *processes, uint32_t capacity,
                       uint32_t *count);
int sim_home_notify(struct fabric_endpoint *endpoint, uint64_t number);

#endif
