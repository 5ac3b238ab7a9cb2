/*
 * pool.h - the memory nodes of one benchmark run, with the loaded index in them.
 *
 * Used by the runners from a plain thread. Loading a simulated pool goes over the local fabric: it takes real
 * time only, and leaves the pool in the same state each time. Memory nodes in processes of their own are
 * loaded as they are used.
 */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include "bench/daemons.h"
#include "bench/runner.h"
#include "memory/memory.h"

#define BENCH_INDEX "bench"

struct bench_pool {
    unsigned count;
    const struct bench_config *config;
    struct memory_node **nodes;
    struct memory_walks **walks; /* on sim: of each of them */
    const struct fabric_target **targets;
    struct bench_daemons daemons;        /* TCP, UNIX: those that were started */
    const struct net_address *addresses; /* and where all of them are */
};

/* Makes the memory nodes, sized for the run. bench_pool_destroy also after a failure. */
int bench_pool_create(struct bench_pool *pool, const struct bench_config *config,
                      const struct workload_source *source, struct error *error);
void bench_pool_destroy(struct bench_pool *pool);
/* A fabric to the memory nodes for compute node `id`; memory nodes in other processes choose another. */
struct fabric *bench_pool_fabric(const struct bench_pool *pool, uint16_t id, struct error *error);
/* Formats, creates the index and loads the keys. */
int bench_pool_load(struct bench_pool *pool, const struct bench_config *config,
                    const struct tree_switches *switches, const struct workload_source *source,
                    struct error *error);
/* Walks the index, while no task writes, and counts: BANYAN_ECORRUPT if it is not sound. Without
 * config->check only the chunks are counted. */
int bench_pool_check(struct bench_pool *pool, const struct bench_config *config,
                     const struct tree_switches *switches, struct bench_space *space, struct error *error);

#endif
