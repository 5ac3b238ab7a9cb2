/*
 * fail_sim.h - a compute node of a simulated run dies while clients work (Dinomo 5.3, Figure 8). For
 * runner_sim.c and map_sim.c, with a map of ranges (map_sim.h), and logs (log_sim.h) or none.
 *
 * When a quarter of config->operations have been measured the last compute node dies: its tasks are gone, and
 * after the faults' lease_ns the memory nodes fence it and release its locks, as they do when a process is
 * killed and its connections end. Which keys are hot is drawn from the seed, so the last node is as good as
 * any. The other nodes learn of it by what they ask, take its ranges over when its read lease is over, and
 * inherit its log. The window closes BENCH_AFTER_NS after the death. Then, when no client writes any more,
 * the clients that are left read all loaded keys back: the run fails where an acknowledged write is lost
 * (ledger.h).
 */
#ifndef BENCH_FAIL_SIM_H
#define BENCH_FAIL_SIM_H

#include "bench/sim_run.h"

/* After map_sim_create and log_sim_create. fail_sim_destroy also after a failure. */
int fail_sim_create(struct sim_run *run, struct error *error);
void fail_sim_destroy(struct sim_run *run);
/* By a task of another compute node, while clients are measured. */
void fail_sim_kill(struct sim_run *run);
/* By each client's task when it has measured: waits for the others, then reads its share of the keys back. */
void fail_sim_read_back(struct sim_run *run, struct sim_client *client);
/* The numbers of the failure (struct bench_failure). */
void fail_sim_result(const struct sim_run *run, struct bench_result *result);

#endif
