/*
 * paper_report.h - a paper's numbers and ours beside them, for people (table, page) and programs (JSON).
 *
 * For `banyan bench --paper`, from a plain thread. As the writers of report.h: to an open stream, which the
 * caller closes and checks; nothing in the JSON depends on real time.
 */
#ifndef BENCH_PAPER_REPORT_H
#define BENCH_PAPER_REPORT_H

#include <stdio.h>
#include "bench/paper_run.h"

/* One line a row of a figure: ours, and in brackets the paper's with our deviation; then tables of the runs.
 */
void paper_report_table(const struct paper_outcome *outcome, const struct bench_config *config, FILE *file);
/* Plots of ours and theirs, then those of report_html. */
void paper_report_html(const struct paper_outcome *outcome, const struct bench_config *config, FILE *file);
/* {"paper": name, "rows": [...], "config": ..., "results": [...]}, the last two as report_json has them.
 * Returns what report_json does. */
int paper_report_json(const struct paper_outcome *outcome, const struct bench_config *config, FILE *file);

#endif
