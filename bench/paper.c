/* paper.c - see paper.h. Each row names the place in the paper that it is from. */
#include "bench/paper.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct row {
    const char *workload, *distribution, *preset;
    uint32_t scan_length; /* 0: any */
    struct paper_numbers numbers;
};

#define WO "sherman:write-only"
#define WI "sherman:write-intensive"
#define RI "sherman:read-intensive"

static const struct row absolutes[] = {
    /* 5.2.1: median of write-intensive before and after two-level versions; 99th percentile of read-intensive
     * before and after command combination */
    {WI, "zipfian", "+hierarchical", 0, {NAN, 7.3, NAN, NAN}},
    {WI, "zipfian", "sherman", 0, {NAN, 6.9, NAN, NAN}},
    {RI, "zipfian", "fg+", 0, {NAN, NAN, NAN, 15.3}},
    {RI, "zipfian", "+combine", 0, {NAN, NAN, NAN, 12.9}},
    /* Table 3 */
    {"sherman:range-only", "zipfian", "fg+", 100, {26.09, NAN, NAN, NAN}},
    {"sherman:range-only", "zipfian", "sherman", 100, {25.55, NAN, NAN, NAN}},
    {"sherman:range-only", "zipfian", "fg+", 1000, {5.77, NAN, NAN, NAN}},
    {"sherman:range-only", "zipfian", "sherman", 1000, {5.76, NAN, NAN, NAN}},
    {"sherman:range-write", "zipfian", "fg+", 100, {7.74, NAN, NAN, NAN}},
    {"sherman:range-write", "zipfian", "sherman", 100, {14.08, NAN, NAN, NAN}},
    {"sherman:range-write", "zipfian", "fg+", 1000, {2.49, NAN, NAN, NAN}},
    {"sherman:range-write", "zipfian", "sherman", 1000, {3.12, NAN, NAN, NAN}},
    {NULL, NULL, NULL, 0, {NAN, NAN, NAN, NAN}},
};

static const struct row steps[] = {
    /* 5.2.1, second observation */
    {WI, "zipfian", "+combine", 0, {3.37, 1.14, NAN, 3.18}},
    {WI, "zipfian", "+onchip", 0, {3.06, NAN, NAN, 3.48}},
    {WI, "zipfian", "+hierarchical", 0, {2.22, 1.12, NAN, 2.68}},
    {WI, "zipfian", "sherman", 0, {1.03, NAN, NAN, NAN}},
    {NULL, NULL, NULL, 0, {NAN, NAN, NAN, NAN}},
};

static const struct row totals[] = {
    /* 5.2.1, first observation; 5.2.2 */
    {WO, "zipfian", NULL, 0, {24.7, 1.2, NAN, 35.8}},  {WI, "zipfian", NULL, 0, {23.6, 1.4, NAN, 30.2}},
    {WO, "uniform", NULL, 0, {1.24, 1.24, NAN, 2.01}}, {WI, "uniform", NULL, 0, {1.15, 1.19, NAN, 1.27}},
    {NULL, NULL, NULL, 0, {NAN, NAN, NAN, NAN}},
};

static const struct row table1[] = {
    {RI, "uniform", NULL, 0, {31.8, 4.9, 6.4, 14.9}}, {RI, "zipfian", NULL, 0, {32.9, 4.7, 6.2, 15.3}},
    {WI, "uniform", NULL, 0, {18.7, 9.5, 14.3, 19}},  {WI, "zipfian", NULL, 0, {0.34, 10, 68.7, 19890}},
    {NULL, NULL, NULL, 0, {NAN, NAN, NAN, NAN}},
};

static struct paper_numbers find(const struct row *row, const char *workload, const char *distribution,
                                 const char *preset, uint32_t scan_length)
{
    for (; row->workload; row++) {
        bool preset_fits = !row->preset || (preset && !strcmp(row->preset, preset));
        bool length_fits = !row->scan_length || row->scan_length == scan_length;
        if (preset_fits && length_fits && !strcmp(row->workload, workload) &&
            !strcmp(row->distribution, distribution))
            break;
    }
    return row->numbers; /* the last row is all NAN */
}

struct paper_numbers paper_absolute(const char *workload, const char *distribution, const char *preset,
                                    uint32_t scan_length)
{
    return find(absolutes, workload, distribution, preset, scan_length);
}

struct paper_numbers paper_step(const char *workload, const char *distribution, const char *preset)
{
    return find(steps, workload, distribution, preset, 0);
}

struct paper_numbers paper_total(const char *workload, const char *distribution)
{
    return find(totals, workload, distribution, NULL, 0);
}

struct paper_numbers paper_table1(const char *workload, const char *distribution)
{
    return find(table1, workload, distribution, NULL, 0);
}
