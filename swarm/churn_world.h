/*
 * churn_world.h - the churn on a world: its work and its verification, and sums over the runs of a
 * suite.
 */
#ifndef SWARM_CHURN_WORLD_H
#define SWARM_CHURN_WORLD_H

#include "swarm/churn.h"
#include "swarm/world.h"

/* Sums over a suite's runs: a suite whose runs split or unlink nothing proves nothing. */
struct churn_total {
    uint64_t runs, recorded, operations, retries, splits, unlinks, merges, handovers, snapshot_handovers,
        combined, cache_misses;
    uint64_t dead, marked, missing_parents;     /* left behind by dead compute nodes */
    uint64_t marked_at_death, merging_at_death; /* half-split and half-merged leaves when they died */
    uint64_t losses, unreachable,
        unknown; /* connections lost; operations not done, and of unknown outcome, therefore */
};
void churn_total_add(struct churn_total *total, const struct world *world,
                     const struct tree_check_report *report);
void churn_total_print(const struct churn_total *total, const char *name);

/* Fills, runs, reads every key once more, then checks history, tree and memory. The churn becomes the world's
 * context, and takes its seed. */
int churn_world_run(struct world *world, struct churn *churn, struct churn_total *total);
/* The parts of it, for tests that do something in between. */
int churn_world_fill(struct world *world, struct churn *churn);
int churn_world_work(struct world *world, struct churn *churn);
int churn_world_verify(struct world *world, struct churn *churn, struct tree_check_report *report);

#endif
