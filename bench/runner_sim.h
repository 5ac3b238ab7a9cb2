/* runner_sim.h - measures in the simulator's virtual time; called by bench_run alone. */
#ifndef BENCH_RUNNER_SIM_H
#define BENCH_RUNNER_SIM_H

#include "bench/pool.h"

/* The pool is loaded. Fills result's measured numbers: the same for the same configuration, real seconds
 * apart. */
int bench_measure_sim(struct bench_pool *pool, const struct bench_config *config,
                      const struct tree_switches *switches, struct workload_source *source,
                      struct bench_result *result, struct error *error);

#endif
