/*
 * report.h - the results of a benchmark for people (table, page) and programs (JSON).
 *
 * All writers take the same bench_report, write to an open stream and leave closing and checking it to the
 * caller. On the simulator the JSON holds nothing that depends on real time, so equal runs give equal files.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdio.h>
#include "bench/runner.h"

struct bench_report {
    const struct bench_config *config;
    const struct bench_result *results;
    size_t count;
    const char *peer_settings; /* NULL: no peer */
};

void report_table(const struct bench_report *report, FILE *file);
/* Ours beside the paper's, step by step; for results in the ablation's order. */
void report_paper(const struct bench_report *report, FILE *file);
/* Of pairs of runs, ours and a peer's in turns: medians and their ratio. */
void report_pairs(const struct bench_report *report, FILE *file);
/* 0, BANYAN_ENOMEM, or BANYAN_EUNKNOWN when the stream takes no more. */
int report_json(const struct bench_report *report, FILE *file);
void report_html(const struct bench_report *report, FILE *file);

/* ---- shared by the writers ---- */

static inline double report_per_operation(const struct bench_result *result, uint64_t total)
{
    return result->operations ? (double)total / (double)result->operations : 0;
}
/* In [0, 1]; 1 where no node was wanted. */
double report_cache_hit(const struct bench_result *result);
double report_quantile_us(const struct histogram *latency, double quantile);
/* "8 memory nodes, 8 compute nodes, ..." */
void report_configuration(const struct bench_report *report, char *text, size_t size);
/* Which presets' indexes have which leaves: "leaves: unsorted (47 slots): fg+, sherman; hashed (45 slots):
 * banyan". */
void report_leaves(const struct bench_report *report, char *text, size_t size);
double report_bytes_per_entry(uint64_t bytes, uint64_t entries);
/* Whether two results are of one group: same workload, distribution and scan length. */
bool report_same_group(const struct bench_result *a, const struct bench_result *b);
/* The index after the last of those results from `begin` on that follow each other in one group. */
size_t report_group_end(const struct bench_report *report, size_t begin);

#endif
