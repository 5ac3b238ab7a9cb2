/*
 * log_sim.h - owners' logs (src/log/) in a simulated run: each compute node logs what it writes of its range,
 * and mergers, on the clients' CPU threads, bring that to the leaves. For runner_sim.c. With a map of ranges
 * (map_sim.h) ranges go from one log to another as the map's owners say.
 */
#ifndef BENCH_LOG_SIM_H
#define BENCH_LOG_SIM_H

#include "bench/sim_run.h"

struct log_stats;

/* After the compute nodes have opened the index and map_sim_create, before they have their rights.
 * log_sim_destroy also after a failure, after map_sim_destroy and before the trees are closed. */
int log_sim_create(struct sim_run *run, struct error *error);
void log_sim_destroy(struct sim_run *run);
/* Starts the mergers. */
int log_sim_spawn(struct sim_run *run, struct error *error);
/* The last client has ended: so do they. */
void log_sim_stop(struct sim_run *run);
/* When the window opens and closes: what merging has cost, and what was logged. */
void log_sim_count(struct sim_run *run, enum bench_phase phase);
/* A compute node's, now. */
void log_sim_stats(const struct sim_run *run, unsigned compute, struct log_stats *stats);
/* What merging cost within the window goes to the whole run's costs (those of each kind of operation are the
 * clients' alone); and the log's own numbers. */
void log_sim_result(const struct sim_run *run, struct bench_result *result);

#endif
