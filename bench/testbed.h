/*
 * testbed.h - the clusters that papers measured on, as settings of a simulated one.
 *
 * `banyan bench --testbed NAME` begins with these values instead of its defaults; options given beside it
 * change single ones. Everything is from a paper's setup section, or fitted to its microbenchmarks, never to
 * its results; docs/benchmarks.md has the table, testbed.c each value's source. Constant data.
 */
#ifndef BENCH_TESTBED_H
#define BENCH_TESTBED_H

#include <stdint.h>
#include "base/error.h"

struct testbed {
    const char *name, *about;
    uint32_t memory_nodes, compute_nodes, threads; /* threads of each compute node */
    uint32_t leaf_bytes, internal_bytes;
    uint8_t subtree_levels; /* that lie on one memory node; 0: nodes are spread */
    uint64_t cache_bytes;
    uint64_t keys;   /* at which the paper has that cache: fewer keys get as much less; 0: all the same */
    const char *sim; /* parameters over the defaults, as --sim takes them; "": none */
    const char *switches; /* over every preset: "NAME=VALUE,..."; "": none */
};

/* Ended by one without a name. */
extern const struct testbed testbeds[];

/* NULL, with a message that lists the names, where there is none of that name. */
const struct testbed *testbed_find(const char *name, struct error *error);

#endif
