/*
 * churn.h - a workload that makes an index do everything at once: keys are inserted at the front of a window
 * that moves over the key space and deleted at its back, so that leaves split, empty, leave the tree and come
 * back as other leaves, while other tasks, with caches that know nothing of it, read, scan and change the
 * same keys.
 *
 * The key space is [0, keys). In its first quarter, keys that are multiples of 4 are put in before anything
 * else and never deleted, keys of remainder 1 are never written; the rest of it is changed at random.
 * Everything is recorded, scans as well: each key of a scanned range counts as a read that happened some time
 * during the scan.
 */
#ifndef SWARM_CHURN_H
#define SWARM_CHURN_H

#include "swarm/world.h"

struct churn {
    uint64_t keys; /* a multiple of 4 */
    uint64_t window;
    unsigned rounds; /* operations of each task */
    unsigned hot;    /* percent of operations that go to the four keys behind the first quarter */
    unsigned scans;  /* percent */
    unsigned multis; /* percent that read or write many keys at once */
    bool disjoint;   /* each task changes keys of its own only (number modulo tasks) */
};

/* What a suite's runs did together: a suite whose runs split or unlink nothing proves nothing. */
struct churn_total {
    uint64_t runs, recorded, operations, retries, splits, unlinks, handovers, snapshot_handovers,
        cache_misses;
    uint64_t dead, marked, missing_parents; /* left behind by dead compute nodes */
    uint64_t marked_at_death;               /* half-split leaves when they died */
    uint64_t losses, unreachable, unknown;  /* connections lost; what came of operations then */
};
void churn_total_add(struct churn_total *total, const struct world *world,
                     const struct tree_check_report *report);
void churn_total_print(const struct churn_total *total, const char *name);

/* Fills, runs, reads every key once more, then checks history, tree and memory. world->context must be the
 * churn. */
int churn_run(struct world *world, struct churn *churn, struct churn_total *total);
/* The parts of it, for tests that do something in between. */
int churn_fill(struct world *world, struct churn *churn);
int churn_work(struct world *world, struct churn *churn);
int churn_verify(struct world *world, struct churn *churn, struct tree_check_report *report);

#endif
