/*
 * paper.h - the numbers that papers state in their texts and tables, to print beside measured ones.
 *
 * They stand in bench/papers/, one file a paper, and are built into the program (scripts/papers, which
 * explains the fields). Read by `banyan bench --paper` (paper_run.h, paper_report.h) and the tests. Constant
 * data, from any thread; nothing is allocated.
 */
#ifndef BENCH_PAPER_H
#define BENCH_PAPER_H

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

struct paper_number {
    const char *figure; /* what --only names: "table1", "fig5", "text", ... */
    const char *place;  /* where in the paper: "5.2.1, second observation" */
    const char *row, *column, *unit;
    double value;      /* NAN: a cell of a figure for which the text states none */
    const char *run;   /* what gives our number (paper_run.h); NULL: nothing does */
    const char *words; /* some of the sentence; "-" where there is no value */
};

struct paper {
    const char *name, *title;
    const char *places;  /* sections, tables and figures that rows may name, between '|' */
    const char *without; /* what of it Banyan does not run, and why; NULL: nothing is to be said */
    const struct paper_number *numbers;
    size_t count;
};

/* Ended by one without a name. */
extern const struct paper papers[];

/* NULL, with a message that lists the names, where there is none of that name. */
const struct paper *paper_find(const char *name, struct error *error);
/* Whether `only`, names of figures between commas (NULL: all), has this figure. */
bool paper_selected(const char *only, const char *figure);
/* BANYAN_EINVAL, with a message that lists the paper's figures, where `only` has a name that is none. */
int paper_check_only(const struct paper *paper, const char *only, struct error *error);

#endif
