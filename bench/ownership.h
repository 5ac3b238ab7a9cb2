/*
 * ownership.h - divides the loaded keys among a run's compute nodes: each owns one of as many equal ranges of
 * the key space (as in DEX 8.1), for as long as the run takes. No map and no transfers: every compute node is
 * given the same table.
 *
 * For the runners, between opening the index and the first operation, from tasks. Errors are left in the
 * session.
 */
#ifndef BENCH_OWNERSHIP_H
#define BENCH_OWNERSHIP_H

#include "bench/runner.h"
#include "fabric/peers.h"

/* Makes the ranges' bounds borders of leaves. One session, before any compute node has its rights. Two or
 * three round trips a bound. */
int bench_borders_make(struct tree_session *session, struct tree *tree, const struct bench_config *config,
                       const struct workload_source *source);
/* Gives compute node `self`, from 0, its rights. `owners`: all compute nodes' processes, in the order of
 * their ranges; incarnation: fabric_incarnation of its fabric. No round trip. */
int bench_rights_take(struct tree_session *session, struct tree *tree, const struct bench_config *config,
                      const struct workload_source *source, const struct fabric_process *owners,
                      uint32_t self, uint64_t incarnation);
/* The range of a compute node, from 0, at the beginning of a run; of none: empty. */
void bench_part_init(struct workload_part *part, const struct bench_config *config,
                     const struct workload_source *source, uint32_t number);
/* Into how many ranges each compute node's part is divided. */
static inline uint32_t bench_ranges_each(const struct bench_config *config)
{
    return config->fail ? 8 : 1; /* what owner.h has by default */
}
/* Whether the clients of a compute node draw keys of its own range alone. */
static inline bool bench_routed(const struct bench_config *config)
{
    return config->ownership == BENCH_OWNED && !config->route_any;
}

#endif
