/*
 * churn.h - a workload that makes an index do everything at once: keys are inserted and deleted all over a
 * part of the key space, so that leaves split, empty, leave the tree and come back as other leaves, while
 * other tasks, with caches that know nothing of it, read, scan and change the same keys.
 *
 * The key space is [0, keys). In its first quarter, keys that are multiples of 4 are put in before anything
 * else and never deleted, keys of remainder 1 are never written; the rest of it is changed at random. Behind
 * it lie the four hot keys, then the keys that the pattern changes. Everything is recorded.
 *
 * Each round of each task draws what it does from the seed, the task's number and the round alone: a round
 * can be left out without changing the others.
 */
#ifndef SWARM_CHURN_H
#define SWARM_CHURN_H

#include "swarm/driver.h"

enum churn_pattern {
    CHURN_WINDOW,  /* insertions at the front of a window that moves over the keys, deletions at its back */
    CHURN_UNIFORM, /* anything anywhere */
    CHURN_TIDE,    /* all tasks insert, then all delete, and so on */
    CHURN_PATCH,   /* all fill a patch of neighbouring keys, then all clear it, then the next one */
};

struct churn {
    uint64_t seed;
    uint64_t keys; /* a multiple of 4 */
    int pattern;   /* enum churn_pattern */
    uint64_t window;
    unsigned rounds; /* operations of each task */
    unsigned hot;    /* percent of operations that go to the four keys behind the first quarter */
    unsigned scans;  /* percent */
    unsigned multis; /* percent that read or write many keys at once */
    unsigned moves;  /* percent that move what belongs to some keys to other blocks, where the subject can */
    unsigned merges; /* percent of the rounds that are a step of merging sparse leaves instead */
    unsigned node_moves; /* ... that move a node to another memory node */
    unsigned drains;     /* rounds of all tasks together that empty a memory node, or even all out */
    bool may_lack; /* the pool may be too small for the keys that are put in first: they are not always there
                    */
    bool disjoint; /* each task changes keys of its own only (number modulo tasks) */
    /* Both may be NULL: rounds to leave out; called after each round. */
    bool (*skip)(void *context, unsigned task, unsigned round);
    void (*after)(void *context, unsigned task, unsigned round);
    void *context;
};

/* Which of how many tasks. */
struct churn_place {
    unsigned task, tasks;
};

/* One task puts in the keys that are never deleted, before the others begin. */
void churn_fill(struct driver *driver, const struct churn *churn);
void churn_task(struct driver *driver, const struct churn *churn, const struct churn_place *place);
/* At the end: reads every key. */
void churn_read_all(struct driver *driver, const struct churn *churn);

#endif
