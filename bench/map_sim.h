/*
 * map_sim.h - ownership by a map of ranges (src/owner/) in a simulated run: compute nodes forward operations
 * to each other, and ranges move while clients work. For runner_sim.c; ownership.h is enough where neither is
 * wanted.
 *
 * On each compute node a keeper and its ticker run on a CPU thread of their own, and each client thread has
 * as many fibers that serve others' calls as it has clients: so a call takes CPU time of the clients of the
 * node that serves it. With config->move one range is divided in two, and its upper half moves to the last
 * compute node, which had none, when a quarter of the operations have been measured (DEX 8.3, Figure 10).
 * With config->fail the last compute node dies then (fail_sim.h).
 */
#ifndef BENCH_MAP_SIM_H
#define BENCH_MAP_SIM_H

#include "bench/sim_run.h"

struct owner;

/* After the compute nodes have opened the index. map_sim_destroy also after a failure. */
int map_sim_create(struct sim_run *run, struct error *error);
void map_sim_destroy(struct sim_run *run);
struct owner *map_sim_owner(const struct sim_run *run, unsigned compute);
/* Starts its tasks: all enter the map, then one of them divides the ranges. */
int map_sim_spawn(struct sim_run *run, struct error *error);
/* By a client's task, before its first operation: waits until the ranges are divided. */
void map_sim_wait(struct sim_run *run);
/* The last client has ended: so do the tasks. */
void map_sim_stop(struct sim_run *run);
/* When the window opens and closes: what serving others has cost. */
void map_sim_count(struct sim_run *run, enum bench_phase phase);
/* The numbers of the move; and what serving others cost within the window goes to the whole run's costs
 * (those of each kind of operation are the asking clients' alone). */
void map_sim_result(const struct sim_run *run, struct bench_result *result);

#endif
