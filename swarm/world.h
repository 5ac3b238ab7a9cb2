/*
 * world.h - a whole cluster for a test with one call: memory nodes, compute nodes, their workers and
 * sessions, and one index, either on real threads over the fabric that $BANYAN_FABRIC names (served.h; local)
 * or in the simulator's virtual time.
 *
 * The test's thread calls world_create, then world_run as often as it likes (each runs one function as every
 * task of the cluster, or as some of them, and returns when all have returned), then world_check, then
 * world_destroy. Within a run every task has its own struct world_task, session and history log. A function
 * that fails says so in world->error (the first message stands); nothing here ends the process but the lack
 * of memory.
 */
#ifndef SWARM_WORLD_H
#define SWARM_WORLD_H

#include "base/error.h"
#include "base/random.h"
#include "memory/memory.h"
#include "pool/pool.h"
#include "sim/params.h"
#include "sim/sim.h"
#include "store/store.h"
#include "swarm/driver.h"
#include "swarm/history.h"
#include "tree/tree.h"

#define WORLD_MEMORY_MAX  8u
#define WORLD_COMPUTE_MAX 32u

/* Disks of a simulated world's memory nodes, and their power (world_disks.h). Only with ranges, log and
 * records. */
enum world_disk_level { WORLD_DISK_NONE, WORLD_DISK_SECOND, WORLD_DISK_ALWAYS };
struct world_disk_options {
    enum world_disk_level level;
    uint64_t round_ns, sync_ns;
    double slow; /* probability that a round takes ten times as long */
    bool gone;   /* at WORLD_DISK_ALWAYS, of several: one of them is gone when power is cut */
    uint64_t
        save_ns; /* the last compute node makes a checkpoint so often, about (world_saves.h); 0: none does */
};

struct world_options {
    bool simulated;
    uint64_t seed;
    uint64_t dice;        /* simulated: other luck in the network with the same workload; 0: the seed's own */
    const char *preset;   /* NULL: "banyan" */
    bool random_switches; /* the seed draws every switch, instead of the preset */
    bool unlock_by_atomic; /* the fabric claims not to have release_by_write */
    uint64_t cache_bytes;  /* 0: 8 MiB */
    struct format_geometry geometry;
    bool long_keys; /* of variable keys, a third have up to key_bytes bytes: too long for a slot */
    unsigned memory_nodes, compute_nodes, threads, fibers; /* 0: 1 */
    unsigned joins; /* simulated: so many of the memory nodes, the last, join later (world_join) */
    uint64_t pool_bytes, chunk_bytes, lock_bytes; /* 0: 64 MiB, and what a memory node chooses */
    uint32_t lock_width;                          /* 0: the memory node's default */
    uint32_t atomic_write;                        /* what the fabric claims at most; 0: its own */
    struct sim_params params;                     /* simulated only; fill with sim_params_default */
    uint8_t walk_busy, walk_aged;                 /* simulated only: struct memory_walk_costs */
    struct sim_faults faults;                     /* simulated only */
    bool accept_full;     /* BANYAN_ENOSPC is no failure: the operation had no effect */
    bool accept_refusals; /* the same until world_calm */
    bool empty;           /* only format the pool, create no index */
    bool records;         /* a store above the index: values of any size */
    unsigned restarts;    /* simulated: dead compute nodes that may be replaced, at most (world_restart_at) */
    uint64_t events_max, until_ns; /* simulated: a run that takes more is over (0: no limit) */
    uint64_t
        patience_ns; /* longest wait of an operation once the faults have stopped (world_calm); 0: no limit */
    const struct tree_switches *switches; /* NULL: the preset's, or drawn */
    bool owned; /* the one compute node has the right to all leaves (tree_switches, ownership) */
    /* What it caches of them; the fabric claims not to map memory then. The preset's choice counts only on
     * fabrics that do not. */
    enum tree_cache_policy cache_policy;
    bool ranges; /* simulated: compute nodes divide the index's ranges among them (world_ranges.h), unless
                    `empty` */
    bool log;    /* with ranges: owners keep logs */
    unsigned mergers;   /* tasks of each that merge, 1 to 1 + WORLD_HELPERS; 0: 1 */
    uint64_t log_bytes; /* that all logs may have on a memory node; 0: what that chooses */
    uint64_t change_ns; /* with ranges: each compute node changes who owns what so often, about; 0: never */
    struct world_disk_options disk;
};
/* Everything small and the default preset; the test then changes the options that it is about. */
void world_options_default(struct world_options *options);

struct world;

struct world_task {
    struct world *world;
    unsigned compute, thread, fiber, number;
    struct tree_session *session;
    struct tree *tree;
    struct store_session *store_session; /* with records */
    struct tree_merge_cursor merge;      /* where the task's walk over sparse leaves stands */
    struct driver driver;                /* of world_operate */
    struct random random;
    struct history_log log;
    void (*function)(struct world_task *task); /* of the run under way */
    bool returned;
};

struct world_compute {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct tree *tree;
    struct store *store;           /* with records; it closes the tree */
    struct pool_worker **workers;  /* [threads] */
    struct world_keepers *keepers; /* with ranges: the owner layer and its tasks; owned, world_ranges.h */
    bool dead, replaced;
};

struct world {
    struct world_options options;
    struct error error; /* the first failure */
    struct sim *sim;
    struct served *served; /* real time, over a network */
    struct memory_node *memory[WORLD_MEMORY_MAX];
    struct memory_walks *walks[WORLD_MEMORY_MAX]; /* simulated: their CPUs walk */
    struct world_compute computes[WORLD_COMPUTE_MAX];
    unsigned compute_count;   /* options.compute_nodes, and those that replaced dead ones */
    struct world_task *tasks; /* compute by compute, thread by thread */
    unsigned task_count;
    unsigned first_count; /* tasks of the first compute nodes */
    struct history history;
    struct driver_setting setting;
    uint64_t now_ms;                           /* the stores' clock; atomic */
    void (*function)(struct world_task *task); /* of the run under way, for those that join it */
    void *context;                             /* the test's own */
    struct history_op culprit;                 /* world_linearize: the operation that does not fit */
    struct world_event *events;                /* owned: deaths and restarts to come */
    bool mended;               /* all connections are there again: nothing is excused by their loss */
    uint64_t lost_bytes;       /* of blocks without an owner, as the last world_check met them */
    uint64_t marked_at_death;  /* leaves that a death left half split (world_kill_at) */
    uint64_t merging_at_death; /* ... and frozen or merging */
    struct world_disks *disks; /* owned, world_disks.h; NULL: memory nodes have none */
    unsigned joined;           /* of options.joins memory nodes */
    unsigned removed;          /* the memory node that was removed; 0: none */
    unsigned logs_ended;       /* of dead processes, since it leaves */
    bool off;                  /* power was cut, and nothing runs any more */
};

/* 0, or a negative error with world->error set; the world must be destroyed in either case. */
int world_create(struct world *world, const struct world_options *options);
void world_destroy(struct world *world);

/* Remembers the first failure; safe from any thread. Returns code. */
int world_fail(struct world *world, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Runs the function as all tasks of living compute nodes. BANYAN_ETIMEOUT if some never return (simulated
 * only). */
int world_run(struct world *world, void (*function)(struct world_task *task));
/* Runs it as one task. */
int world_run_one(struct world *world, unsigned task, void (*function)(struct world_task *task));
/* Simulated: arranges for the death of a compute node at a virtual time from now; its locks are freed after
 * the lease. */
int world_kill_at(struct world *world, unsigned compute, uint64_t delay_ns, uint64_t lease_ns);
/* The same just before its n-th command from now takes effect (1: the next). */
void world_kill_at_effect(struct world *world, unsigned compute, uint64_t effects, uint64_t lease_ns);

/* Simulated: another process takes the dead compute node's place at a virtual time from now, or once it is
 * fenced, and joins the run under way. Nothing happens if the node is not dead then. */
int world_restart_at(struct world *world, unsigned compute, uint64_t delay_ns);
/* Simulated: faults stop now; from here on no operation may take longer than options.patience_ns. */
void world_calm(struct world *world);
/* Simulated: if no compute node lives, a dead one is replaced. */
int world_revive(struct world *world);
/* Some compute node lives: the number of its first task. */
unsigned world_survivor(const struct world *world);
/* While no task is at work: no lock is held. */
int world_check_locks(struct world *world);
/* Sums over the drivers of all tasks. */
struct world_met {
    uint64_t unreachable, unknown, refused, longest_ns;
};
void world_met(const struct world *world, struct world_met *met);
/* Simulated: connections are lost from now on, as the faults say. */
void world_begin_losses(struct world *world);
static inline bool world_lossy(const struct world *world)
{
    return world->sim && sim_losses(world->sim);
}
/* Operations may fail, or have an unknown outcome, since connections are lost; or since compute nodes that
 * own ranges die, are fenced, or do not answer in time. */
static inline bool world_excused(const struct world *world)
{
    return (world_lossy(world) || world->options.ranges) && !world->mended;
}
/* Simulated: no connection is lost from now on, and those that were are there again. */
int world_end_losses(struct world *world);
/* Checks the index (and the store) from a living compute node, and that every block that the memory nodes
 * handed out is either in use or held back by one worker. With dead compute nodes or lost connections blocks
 * may be missing (taken, but not linked yet), but none may be there twice. */
int world_check(struct world *world, struct tree_check_report *report);
int world_check_store(struct world *world, struct store_check_report *report);
/* Judges the history of all tasks. */
int world_linearize(struct world *world);
/* Bytes in chunks handed out by all memory nodes. */
uint64_t world_pool_used(struct world *world);
/* The sum over all sessions. */
void world_stats(const struct world *world, struct tree_stats *stats);

/* Seeds: BANYAN_SEED if set, else the given one and BANYAN_SEED_OFFSET (default 0). Rounds: times
 * BANYAN_ROUNDS (a factor, default 1), rounded up. */
uint64_t world_seed(uint64_t given);
unsigned world_rounds(unsigned given);
/* A fresh seed, from the clock; BANYAN_SEED overrides it too. */
uint64_t world_fresh_seed(void);

/* ---- recorded operations: the index's call together with its entry in the history ---------------- */

/* Keys are numbers, turned into key bytes as the geometry has it; values begin with the history's value. */
size_t world_key(const struct world *world, uint64_t number, uint8_t key[FORMAT_KEY_MAX]);
/* The number back; UINT64_MAX if these bytes are no key of world_key. */
uint64_t world_key_number(const struct world *world, const uint8_t *key, size_t length);
size_t world_value(const struct world *world, uint64_t number, uint8_t *value);
/* The number back; 0 if the bytes do not hold together (torn, or another key's). */
uint64_t world_value_number(const struct world *world, const uint8_t *value, size_t length);
/* Does one operation, records it, and fails the world on an error that it cannot explain. Returns the index's
 * status. */
int world_operate(struct world_task *task, enum history_kind kind, uint64_t key, uint64_t expected);

#endif
