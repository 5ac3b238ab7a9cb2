/* runner_local.h - measures on OS threads of this machine, over the local fabric or to memory nodes in other
 * processes; called by bench_run alone. */
#ifndef BENCH_RUNNER_LOCAL_H
#define BENCH_RUNNER_LOCAL_H

#include "bench/pool.h"

/* The pool is loaded. Fills result's measured numbers. */
int bench_measure_local(struct bench_pool *pool, const struct bench_config *config,
                        const struct tree_switches *switches, struct workload_source *source,
                        struct bench_result *result, struct error *error);

#endif
