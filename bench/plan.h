/*
 * plan.h - a benchmark as a whole: which workloads, distributions and presets are run in which order.
 *
 * Filled by the command line, checked by bench_plan_check, run by bench_plan_run from a plain thread. For
 * each workload and distribution every preset runs once, or, with a peer, `pairs` times, ours and the peer's
 * in turns.
 */
#ifndef BENCH_PLAN_H
#define BENCH_PLAN_H

#include "bench/presets.h"
#include "bench/report.h"

#define BENCH_WORKLOADS_MAX 40
#define BENCH_PRESETS_MAX   96

/* Which kind of leaf the indexes of the presets have: each preset's own (tree_switches_leaf), or one for all.
 */
enum bench_leaf { BENCH_LEAF_PRESET, BENCH_LEAF_HASHED, BENCH_LEAF_UNSORTED, BENCH_LEAF_DENSE };

/* Over the ownership that the presets have: each its own, or one for all. */
enum bench_ownership_choice { BENCH_OWNERSHIP_PRESET, BENCH_OWNERSHIP_NONE, BENCH_OWNERSHIP_STATIC };

struct bench_plan {
    struct bench_config config;
    struct workload workloads[BENCH_WORKLOADS_MAX];
    unsigned workload_count;
    enum workload_distribution distributions[WORKLOAD_DISTRIBUTIONS];
    unsigned distribution_count;
    struct bench_preset presets[BENCH_PRESETS_MAX];
    unsigned preset_count;
    enum bench_leaf leaf;
    enum bench_ownership_choice ownership;
    const struct bench_peer *peer; /* NULL: none */
    uint32_t peer_batch, pairs;
    void (*begun)(void *context, const char *what); /* may be NULL: a run begins */
    void *begun_context;
};

/* Comma separated names, added to the plan; "all" is every one there is, of presets every one of the
 * tree's. */
int bench_plan_add_workloads(struct bench_plan *plan, const char *names, struct error *error);
int bench_plan_add_distributions(struct bench_plan *plan, const char *names, struct error *error);
int bench_plan_add_presets(struct bench_plan *plan, const char *names, struct error *error);
/* "preset" or a kind of leaf. */
int bench_plan_set_leaf(struct bench_plan *plan, const char *name, struct error *error);
/* "preset", "none" or "static". */
int bench_plan_set_ownership(struct bench_plan *plan, const char *name, struct error *error);
/* The configuration of a preset's runs: the plan's, but for the kind of leaf in the geometry, ownership, and
 * the number of compute nodes and threads where the preset names that of all threads. */
void bench_plan_config(const struct bench_plan *plan, const struct bench_preset *preset,
                       struct bench_config *config);
/* report_leaves of the plan's presets, before any has run. */
void bench_plan_leaves(const struct bench_plan *plan, char *text, size_t size);
/* BANYAN_EINVAL with a message that names the option at fault. Completes the geometry. */
int bench_plan_check(struct bench_plan *plan, struct error *error);
/* The results (bench_results_free) also of the runs before one that failed. */
int bench_plan_run(const struct bench_plan *plan, struct bench_result **results, size_t *count,
                   struct error *error);
void bench_results_free(struct bench_result *results, size_t count);

#endif
