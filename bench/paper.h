/*
 * paper.h - the numbers that Sherman's paper (SIGMOD 2022, in its Communications of the ACM form) states in
 * its text and tables, to print beside measured ones. What it shows in figures alone, without a number, is
 * NAN here: never read off a plot, never guessed.
 */
#ifndef BENCH_PAPER_H
#define BENCH_PAPER_H

#include <stdint.h>

/* NAN where the paper states nothing. Throughput in Mops, latencies in microseconds. */
struct paper_numbers {
    double throughput, p50, p90, p99;
};

/* Absolute numbers of one configuration. */
struct paper_numbers paper_absolute(const char *workload, const char *distribution, const char *preset,
                                    uint32_t scan_length);
/* How many times better than the step before it in the ablation: throughput up, latencies down. */
struct paper_numbers paper_step(const char *workload, const char *distribution, const char *preset);
/* How many times better Sherman is than FG+. */
struct paper_numbers paper_total(const char *workload, const char *distribution);
/* Table 1: FG as its authors described it, which is not FG+ (that one releases locks by WRITE). */
struct paper_numbers paper_table1(const char *workload, const char *distribution);

#endif
