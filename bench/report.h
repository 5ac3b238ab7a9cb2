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
/* Of pairs of runs, ours and a peer's in turns: medians and their ratio. */
void report_pairs(const struct bench_report *report, FILE *file);
/* 0, BANYAN_ENOMEM, or BANYAN_EUNKNOWN when the stream takes no more. */
int report_json(const struct bench_report *report, FILE *file);
void report_html(const struct bench_report *report, FILE *file);

/* ---- parts of these, for reports that begin otherwise (paper_report.h) ---- */

/* Tables and plots of the results alone. */
void report_table_groups(const struct bench_report *report, FILE *file);
void report_html_groups(const struct bench_report *report, FILE *file);
/* jansson's: what report_json writes, the caller's; NULL: no memory. */
struct json_t *report_json_object(const struct bench_report *report);
/* Writes it and drops it; NULL is BANYAN_ENOMEM. Returns what report_json does. */
int report_json_write(struct json_t *json, FILE *file);

/* ---- shared by the writers ---- */

static inline double report_per_operation(const struct bench_result *result, uint64_t total)
{
    return result->operations ? (double)total / (double)result->operations : 0;
}
/* Million operations of one kind a second. */
static inline double report_kind_mops(const struct bench_result *result, int kind)
{
    return result->window_ns ? (double)result->kinds[kind].count * 1e3 / (double)result->window_ns : 0;
}
/* Whether its operations are of several kinds, so that quantiles of all together say little about any. */
bool report_mixed(const struct bench_result *result);
/* Whether some of its operations are scans, either way. */
bool report_scans(const struct bench_result *result);
/* In [0, 1]; 1 where no node was wanted. */
double report_cache_hit(const struct bench_result *result);
double report_quantile_us(const struct histogram *latency, double quantile);
/* "8 memory nodes, 8 compute nodes, ..." */
void report_configuration(const struct bench_report *report, char *text, size_t size);
/* Which presets' indexes have which leaves: "leaves: unsorted (47 slots): fg+, sherman; hashed (45 slots):
 * banyan". Empty where no result is of an index. */
void report_leaves(const struct bench_report *report, char *text, size_t size);
double report_bytes_per_entry(uint64_t bytes, uint64_t entries);
/* Whether two results are of one group: same workload, distribution and scan length. */
bool report_same_group(const struct bench_result *a, const struct bench_result *b);
/* The index after the last of those results from `begin` on that follow each other in one group. */
size_t report_group_end(const struct bench_report *report, size_t begin);

#endif
