/*
 * paper_run.h - what a paper's rows name to be run, and running it.
 *
 * A row's `run` (paper.h) is one of
 *
 *     WORKLOAD DISTRIBUTION PRESET [OP PRESET] METRIC [scan ENTRIES]
 *     @locks THETA METRIC        @chip METRIC        @read BYTES METRIC          (micro.h)
 *
 * METRIC: mops, p50, p90 or p99 (us), or per operation: trips (round trips), reads, writes, atomics, verbs
 * (those three together), calls (RPCs and calls to other compute nodes), walked (calls for each hundred
 * operations: of lookups that cannot end in the cache the share that memory nodes walk), bytes (read and
 * written); or move (s: how long the move of a range took); of the cache of owned ranges: hits (%: lookups of
 * which at least a shortcut was cached), values (%: lookups that were answered from it); or longest (us: the
 * slowest operation). Where a compute node dies (@fail=on): served (us from its death until its ranges are
 * served again), drop (%: how much lower throughput is from its death to the window's end than before),
 * lowest (%: in the worst half millisecond), halved (us in which throughput was less than half), mean-before,
 * mean-after, p99-before, p99-after (us), mean-rise, p99-rise (after / before). PRESET may have settings
 * (presets.h). OP between two runs' metrics a and b: "/" is a / b, "-" is a - b, ">" how many per cent a is
 * above b, "<" how many it is below. Latencies are those of the whole workload, as the papers have them. Rows
 * name the same run many times: it is done once.
 *
 * Used by `banyan bench --paper` from a plain thread: costs what its runs cost (runner.h), each over a fresh
 * pool.
 */
#ifndef BENCH_PAPER_RUN_H
#define BENCH_PAPER_RUN_H

#include "bench/paper.h"
#include "bench/plan.h"

enum paper_kind { PAPER_INDEX, PAPER_LOCKS, PAPER_CHIP, PAPER_READ };
enum paper_metric {
    PAPER_MOPS,
    PAPER_P50,
    PAPER_P90,
    PAPER_P99,
    PAPER_TRIPS,
    PAPER_READS,
    PAPER_WRITES,
    PAPER_ATOMICS,
    PAPER_VERBS,
    PAPER_CALLS,
    PAPER_WALKED,
    PAPER_BYTES,
    PAPER_MOVE,
    PAPER_HITS,
    PAPER_VALUES,
    PAPER_LONGEST,
    PAPER_SERVED,
    PAPER_DROP,
    PAPER_LOWEST,
    PAPER_HALVED,
    PAPER_MEAN_BEFORE,
    PAPER_MEAN_AFTER,
    PAPER_MEAN_RISE,
    PAPER_P99_BEFORE,
    PAPER_P99_AFTER,
    PAPER_P99_RISE
};

/* What rows compare under, without the preset. */
struct paper_setup {
    enum paper_kind kind;
    char workload[40];
    enum workload_distribution distribution;
    uint32_t scan_length; /* INDEX; 0: no scans */
    double theta;         /* LOCKS */
    uint32_t bytes;       /* READ */
};

struct paper_formula {
    struct paper_setup setup;
    char presets[2][64]; /* INDEX; the second is empty without an operator */
    char operator;       /* '/', '-', '>', '<' or 0 */
    enum paper_metric metric;
};

/* BANYAN_EINVAL with a message where it is none of the above. Workloads and presets are not looked up. */
int paper_formula_parse(struct paper_formula *formula, const char *run, struct error *error);

/* One run that rows name. */
struct paper_cell {
    struct paper_setup setup;
    char preset[64]; /* empty where the kind has none */
    size_t result;   /* its index among the results, once it has run */
    bool done;
};

struct paper_outcome {
    const struct paper *paper;
    const char *only;
    struct paper_cell *cells;
    size_t cell_count;
    struct bench_result *results; /* in the order of the runs */
    size_t count;
};

/* Adds the workloads, distributions and presets that the selected rows name to an empty plan, so that they
 * can be checked and changed before the run. */
int paper_plan(struct bench_plan *plan, const struct paper *paper, const char *only, struct error *error);
/* Runs all that the selected rows name, with the plan's configuration and its presets' switches. The outcome
 * (paper_outcome_free) also has the results of the runs before one that failed. */
int paper_run(const struct bench_plan *plan, const struct paper *paper, const char *only,
              struct paper_outcome *outcome, struct error *error);
void paper_outcome_free(struct paper_outcome *outcome);
/* Our number for a row, in the row's unit. NAN: it has no run, or that was not done. */
double paper_ours(const struct paper_outcome *outcome, const struct paper_number *number);
/* (ours / theirs - 1) * 100; NAN where one of them is missing. */
double paper_deviation(double ours, double theirs);

#endif
