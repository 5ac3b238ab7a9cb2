/*
 * cells.h - many runs of the simulator that differ in little: one preset's keys are loaded once for all of
 * its cells, and every cell runs in a worker process of its own, on a copy of that pool that the system makes
 * page by page as the cell writes.
 *
 * For bench/sensitivity.c. Called from a plain thread while the process has no other, since cells are forked
 * from it. Costs the memory of one loaded pool for each preset, and of the pages that the cells which run at
 * one time write. A cell's numbers do not depend on how many run at one time, nor on their order, and are
 * those of the same run of bench_plan_run.
 */
#ifndef BENCH_CELLS_H
#define BENCH_CELLS_H

#include "bench/plan.h"

/* What a worker process says of its run. */
struct bench_cell_outcome {
    bool done;
    double throughput_mops, p50_us, p90_us, p99_us;
    uint64_t operations, trace_hash, events;
    int status; /* where it failed, with the reason */
    char reason[256];
};

struct bench_cell {
    unsigned preset, workload, distribution; /* places in the plan */
    uint64_t seed;
    struct sim_params sim;
    struct bench_cell_outcome outcome;
};

struct bench_cells;

/* Loads a pool for each of the plan's presets, and walks each once where the plan's config says check. The
 * plan must live as long. NULL with the error set. */
struct bench_cells *bench_cells_open(const struct bench_plan *plan, struct error *error);
void bench_cells_close(struct bench_cells *cells);

/* Runs the cells and fills their outcomes, at most `jobs` (1 or more) at a time. The first failure ends the
 * others. `progress` may be NULL: called as cells end. */
int bench_cells_run(struct bench_cells *cells, struct bench_cell *list, size_t count, unsigned jobs,
                    void (*progress)(void *context, size_t done, size_t count), void *context,
                    struct error *error);

#endif
