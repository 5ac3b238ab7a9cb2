/*
 * plan.h - everything that one simulated run is made of: cluster, geometry, switches, hardware, faults,
 * workload. Drawn from a seed (swarm testing: Groce et al., ISSTA 2012; each run has some features and lacks
 * others, so that rare mixtures happen), changed field by field, written down as text and read back.
 *
 * A plan is complete: as long as the code is the same it runs alike everywhere, even after seeds have come to
 * draw other plans. So a failure is kept as a plan. Plain data but for `skip`; swarm_plan_free when done. One
 * thread.
 */
#ifndef SWARM_PLAN_H
#define SWARM_PLAN_H

#include <stdio.h>

#include "base/options.h"
#include "sim/params.h"
#include "swarm/churn.h"
#include "tree/tree.h"

#define SWARM_PLAN_VERSION 1u

struct swarm_plan {
    uint64_t seed;
    uint64_t dice; /* other luck in network and faults with the same workload; 0: the seed's own */
    /* cluster */
    uint32_t memory_nodes, compute_nodes, threads, fibers;
    uint64_t pool_bytes, chunk_bytes, lock_bytes;
    bool unlock_by_atomic;
    /* index */
    bool records;  /* a store above it */
    int key_kind;  /* enum format_key_kind */
    int leaf_kind; /* enum format_leaf_kind */
    uint32_t key_bytes, inline_key_bytes, value_bytes, leaf_bytes, internal_bytes, subtree_levels;
    uint32_t walk_busy, walk_aged; /* percent: struct memory_walk_costs */
    bool value_variable, long_keys;
    struct tree_switches switches;
    /* what happens to it */
    struct sim_params params;
    struct sim_faults faults;
    uint32_t kills, restarts, stalls, cuts,
        refusals;        /* so many times in a run, at times drawn from the seed */
    uint32_t joins;      /* memory nodes, the last of them, that join at such times */
    bool log;            /* with ranges: owners keep logs */
    uint32_t mergers;    /* tasks that merge such a log */
    bool ranges;         /* compute nodes divide the key ranges, and change who owns what all the time */
    uint64_t change_ns;  /* each does so about that often */
    bool kill_at_effect; /* in the middle of lists, else at any instant */
    int disk;            /* enum world_disk_level; all that follows is about it */
    uint64_t disk_round_ns, disk_sync_ns;
    double disk_slow;
    uint32_t disk_spells, disk_fulls; /* times that a disk is slow, or full, for a while */
    bool disk_fails;                  /* a write or a sync of one fails; then power is cut soon */
    bool disk_gone;                   /* at disk-always, of several: one is gone when power is cut */
    uint64_t disk_save_ns;            /* a compute node more makes a checkpoint so often; 0: there is none */
    uint32_t power_rounds, /* power is cut when the tasks have done so many together; 0: at the end */
        power_events;      /* ... and so many events later */
    uint64_t span_ns;      /* virtual time within which these things happen; the lease is the faults' */
    /* workload */
    uint64_t keys, window;
    int pattern; /* enum churn_pattern */
    uint32_t rounds, hot, scans, multis, moves, merges, node_moves, drains;
    bool disjoint;
    /* bounds */
    uint64_t patience_ns; /* once faults have stopped no operation takes longer */
    uint64_t events;      /* of one phase of the run */
    char *skip;           /* owned: rounds left out, "task:from-to task:from-to ..."; NULL: none */
};

/* Its own fields; the others' tables are tree_switches_table, sim_params_table and sim_faults_table. */
extern const struct option_entry swarm_plan_table[];
extern const char *const swarm_plan_disks[];

/* Sensible values everywhere, no faults. A plan's text need not name these. */
void swarm_plan_default(struct swarm_plan *plan);
void swarm_plan_draw(struct swarm_plan *plan, uint64_t seed);
/* Makes a plan that was drawn one of a cluster whose memory nodes have disks of that level: a store, owners'
 * logs, and what happens to disks and power, drawn from its seed. */
void swarm_plan_draw_disk(struct swarm_plan *plan, int level);
void swarm_plan_free(struct swarm_plan *plan);
int swarm_plan_copy(struct swarm_plan *copy, const struct swarm_plan *plan, struct error *error);
/* Sets one field of any of the tables. BANYAN_EINVAL with a message that names it. */
int swarm_plan_set(struct swarm_plan *plan, const char *name, const char *value, struct error *error);
/* Whether a run can be made of it: BANYAN_EINVAL. */
int swarm_plan_check(const struct swarm_plan *plan, struct error *error);
/* The workload; skip, after and context are the caller's. */
void swarm_plan_churn(const struct swarm_plan *plan, struct churn *churn);
/* The pool is so small that there may be no room for something. */
bool swarm_plan_may_be_full(const struct swarm_plan *plan);
void swarm_plan_geometry(const struct swarm_plan *plan, struct format_geometry *geometry);
/* Text: a line with the version, then name = value for each field that differs from swarm_plan_default; lines
 * with # are remarks. */
int swarm_plan_write(const struct swarm_plan *plan, FILE *file);
/* BANYAN_EVERSION for another version's text, BANYAN_EINVAL with the line's number for text that is no plan.
 * The plan must be freed in either case. */
int swarm_plan_parse(struct swarm_plan *plan, const char *text, struct error *error);
int swarm_plan_read(struct swarm_plan *plan, const char *path, struct error *error);
/* A few words: what kind of cluster it is. */
void swarm_plan_describe(const struct swarm_plan *plan, char *text, size_t size);

/* The rounds that are left out, as a bit each. */
struct swarm_skip {
    uint64_t *words; /* owned; NULL: none */
    uint32_t tasks, rounds;
};
int swarm_skip_parse(struct swarm_skip *skip, const struct swarm_plan *plan, struct error *error);
/* malloc'ed text for plan->skip; NULL where nothing is left out (or no memory). */
char *swarm_skip_format(const struct swarm_skip *skip);
void swarm_skip_free(struct swarm_skip *skip);
static inline bool swarm_skip_has(const struct swarm_skip *skip, uint32_t task, uint32_t round)
{
    uint64_t bit = (uint64_t)task * skip->rounds + round;
    return skip->words && task < skip->tasks && (skip->words[bit / 64] >> bit % 64 & 1);
}
void swarm_skip_set(struct swarm_skip *skip, uint32_t task, uint32_t round, bool left_out);

#endif
