/*
 * run.h - one simulated run of a plan, in this process: the cluster is built, driven under faults, left in
 * peace and judged.
 *
 * What is judged: every key's history is linearizable, scans included (linearize.h); every acknowledged write
 * is there at the end; the index's and the store's invariants hold; every block of memory has exactly one
 * owner (with deaths or lost connections: at most one); no lock is held when no task is at work; once faults
 * have stopped no operation takes longer than the plan's patience; without deaths and losses nothing is left
 * unfinished.
 *
 * One thread; the same plan gives the same run. Aborts where this process has no memory.
 */
#ifndef SWARM_RUN_H
#define SWARM_RUN_H

#include "swarm/plan.h"
#include "swarm/world_disks.h"

struct swarm_result {
    int status;          /* 0: all is well; else what is wrong */
    char what[320];      /* in words */
    uint64_t operations; /* of the tasks: calls of the subject */
    uint64_t recorded;   /* entries in the history */
    uint64_t events, virtual_ns, hash;
    uint64_t splits, unlinks, merges, node_moves, merging_at_death, retries, handovers;
    uint64_t drained;      /* 1: a memory node, in peace, and it was found empty */
    uint64_t removed;      /* 1: it left then */
    uint64_t logs_ended;   /* of dead processes, for that */
    uint64_t merged_there; /* entries of logs, by memory nodes */
    uint64_t exchanged;    /* changes that memory nodes were asked for, and have answered */
    uint64_t deaths, restarts, losses, unreachable, unknown, refused;
    uint64_t lost_bytes; /* of blocks without an owner at the end: those that dead nodes held, or that a lost
                            reply gave */
    uint64_t
        unfinished; /* nodes that the last operation left half split, unlinked by half, or without entry */
    uint64_t longest_ns; /* operation after the faults had stopped */
    struct world_disks_met disks;
};

/* Sees the run at its beginning and end. Either function may be NULL. They must not change the run. */
struct swarm_watch {
    void (*begin)(void *context, struct world *world); /* the cluster is built, nothing has happened yet */
    void (*end)(void *context, struct world *world,
                const struct swarm_result *result); /* before the cluster is taken down */
    void *context;
};

/* Returns result->status. watch may be NULL. */
int swarm_run(const struct swarm_plan *plan, const struct swarm_watch *watch, struct swarm_result *result);

#endif
