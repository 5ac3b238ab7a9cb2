/*
 * sensitivity_report.h - what a sensitivity run found, for people (table, page) and programs (JSON).
 *
 * Called after a run that succeeded. All write to an open stream and leave closing and checking it to the
 * caller; none holds anything that depends on real time, so equal runs give equal files.
 */
#ifndef BENCH_SENSITIVITY_REPORT_H
#define BENCH_SENSITIVITY_REPORT_H

#include <stdio.h>
#include "bench/sensitivity.h"

void sensitivity_table(const struct sensitivity *sensitivity, FILE *file);
/* 0, BANYAN_ENOMEM, or BANYAN_EUNKNOWN when the stream takes no more. */
int sensitivity_json(const struct sensitivity *sensitivity, FILE *file);
/* Tornado plots. */
void sensitivity_html(const struct sensitivity *sensitivity, FILE *file);

/* ---- shared by the writers ---- */

static inline const char *sensitivity_metric_name(enum sensitivity_metric metric)
{
    return metric == SENSITIVITY_P99 ? "p99" : "throughput";
}
/* "banyan / sherman" */
void sensitivity_pair_name(const struct sensitivity *sensitivity, struct sensitivity_pair pair, char *text,
                           size_t size);
/* The parameters' places, those first that move one of these ratios most. */
void sensitivity_sort(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratios,
                      unsigned count, unsigned *order);

#endif
