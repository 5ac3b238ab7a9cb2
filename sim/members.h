/*
 * members.h - which memory nodes a compute node knows of (fabric.h, struct fabric_cluster_ops): all, but for
 * those that have not joined yet (sim_memory_await), those that have, of which it has not heard, and those of
 * which it has heard that they were removed (sim_memory_leave). The home node's list is the world's: asking
 * for it takes no time, but a connection to the home node that stands. Called from tasks that post, and from
 * the event loop.
 */
#ifndef SIM_MEMBERS_H
#define SIM_MEMBERS_H

#include "sim/node.h"

extern const struct fabric_cluster_ops sim_cluster_operations;

/* A process that begins knows the list. */
void sim_members_begin(struct sim_compute *compute);
/* All numbers that the compute node knows are below this. */
uint16_t sim_members_bound(const struct sim_compute *compute);

#endif
