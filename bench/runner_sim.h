/* runner_sim.h - measures in the simulator's virtual time. bench_run calls bench_measure_sim; micro_sim.c,
 * which builds a world of its own, uses the rest. */
#ifndef BENCH_RUNNER_SIM_H
#define BENCH_RUNNER_SIM_H

#include "bench/pool.h"
#include "sim/sim.h"

/* The pool is loaded. Fills result's measured numbers: the same for the same configuration, real seconds
 * apart. */
int bench_measure_sim(struct bench_pool *pool, const struct bench_config *config,
                      const struct tree_switches *switches, struct workload_source *source,
                      struct bench_result *result, struct error *error);

/* Runs the world until no task is left. Fails with what ended the window early, or when tasks never end. */
int bench_sim_run(struct sim *sim, const struct bench_window *window, const char *what, struct error *error);
/* Brings a run's numbers together; `sim` is NULL where none could be made. */
void bench_sim_complete(struct bench_result *result, const struct bench_window *window,
                        const struct sim *sim);

#endif
