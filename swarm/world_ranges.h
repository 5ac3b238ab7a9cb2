/*
 * world_ranges.h - compute nodes of a simulated world that divide the index's ranges among them: the owner
 * layer of each with its tasks (keeper, ticker, those that serve peers), its log and a task that merges, one
 * task that changes who owns what,
 * and the judge of rights. For the files of a world (world_parts.h); nothing here does anything in a world
 * without options.ranges.
 *
 * The tasks run on the first thread of their compute node, beside the test's own, whenever the simulator
 * runs; they never return before world_ranges_stop.
 *
 * THE JUDGE looks at the installed tables of all compute nodes, at keys drawn anew: of those whose table is
 * of today's connections and whom memory node 0 has not fenced, at most one may have the right to a key's
 * range for itself, and then no other may have it as a shared one. A breach fails the world.
 */
#ifndef SWARM_WORLD_RANGES_H
#define SWARM_WORLD_RANGES_H

#include "owner/log_hooks.h"
#include "owner/owner.h"
#include "swarm/world.h"

#define WORLD_SERVERS 2u
#define WORLD_HELPERS 2u /* mergers beside the first one, at most */
#define WORLD_DUTIES  (WORLD_SERVES + WORLD_SERVERS + WORLD_HELPERS)

enum world_duty { WORLD_KEEPS, WORLD_TICKS, WORLD_CHANGES, WORLD_MERGES, WORLD_SERVES };
struct world_keeper {
    struct world_keepers *keepers;
    enum world_duty duty;
    struct tree_session *session; /* owned; NULL: it needs none */
    bool returned;
};

struct world_keepers {
    struct world *world;
    unsigned compute;
    struct owner *owner;                    /* owned */
    struct log *log;                        /* owned; NULL: it keeps none */
    struct owner_log_hooks hooks;           /* its session is owned */
    struct tree *attached;                  /* to the log */
    struct world_keeper each[WORLD_DUTIES]; /* the rest without a function: helpers that are not wanted */
    bool started;
    struct random random;
    uint64_t changes, failed; /* done, and not */
};

/* The compute node has a struct tree_compute. */
int world_ranges_build(struct world *world, struct world_compute *compute);
/* By a task of the compute node: its index is open. May be called again after an error. */
int world_ranges_attach(struct world_task *task);
/* The tasks begin, when the simulator runs. */
int world_ranges_start(struct world *world, unsigned compute);
/* By any task, after world_calm: returns when no change is under way any more and all keepers have had time
 * to end what dead processes have begun. */
void world_ranges_settle(struct world_task *task);
/* The map contradicts itself nowhere, and its index is sound. `visit`: tree_check's. */
void world_ranges_check(struct world_task *task, void (*visit)(void *context, gaddr node, uint32_t bytes),
                        void *context);
/* Ends all tasks (of a world that has not failed, by running it), and frees what is here. */
void world_ranges_stop(struct world *world);

/* The judge, for one key. */
void world_ranges_judge(struct world *world, uint64_t key);

/* Sums over all compute nodes, for results. */
struct world_ranges_met {
    uint64_t changes, failed, transfers, takeovers, finished, fencings, forwarded, pauses;
    uint64_t unfinished;     /* as in tree_stats, of the keepers' own sessions */
    uint64_t merge_answered; /* likewise */
};
void world_ranges_met(const struct world *world, struct world_ranges_met *met);

/* world_ranges_change.c: the task that changes who owns what. */
void world_ranges_change(struct world_keeper *keeper);

#endif
