/*
 * trace.h - the cache of owned ranges under a trace of operations, without a tree: as many round trips as an
 * owner of one of four equal ranges would make, its keys drawn as YCSB draws them. For tests of the policies.
 */
#ifndef TESTS_TREE_TRACE_H
#define TESTS_TREE_TRACE_H

#include "tree/tree.h"

struct trace {
    enum tree_cache_policy policy;
    uint64_t keys; /* of all four owners */
    double theta;  /* 0: uniform */
    double
        bytes_per_key; /* of the owner's cache, for each of all keys: DEX's 256 MiB for 200 million are 1.3 */
    double inner_per_leaf; /* bytes of inner frames for each leaf */
    uint32_t value_bytes;
    unsigned update, insert, scan; /* percent; the rest are lookups. A scan reads 100 entries. */
    double warm, measured;         /* operations for each key of the owner's */
    double admission;
};
struct trace_result {
    double reads; /* for each operation measured; of leaves, which a scan makes one for each */
    struct tree_cache_stats stats;
    uint64_t budget, used_most;
};
void trace_run(const struct trace *trace, struct trace_result *result);

#endif
