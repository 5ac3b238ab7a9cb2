/*
 * homes.h - on which memory node the next placed subtree goes (docs/internals/tree.md, Placement): the one
 * with the most room, of those that are not slow. One for each compute node. Pure but for a lock of its own:
 * the caller says how full and how slow the memory nodes are. Called by any task, once for each subtree that
 * begins; some hundred nanoseconds.
 *
 * A subtree comes to its memory node little by little, long after it has been chosen. So what was promised
 * counts as taken, and fades with the promises that follow: several subtrees that begin at about the same
 * time go to several memory nodes. Compute nodes that know nothing of each other begin with different ones
 * where room is the same.
 */
#ifndef TREE_HOMES_H
#define TREE_HOMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

#define HOMES_MAX 96u /* memory nodes; those beyond begin no subtree */

/* A memory node, as it is now. */
struct home {
    bool takes;          /* it can be asked, and hands out memory */
    uint64_t bytes_free; /* there */
    uint64_t read_ns;    /* what a READ there takes; 0: not known */
};

struct homes {
    struct spinlock lock;         /* guards the rest */
    uint16_t turn;                /* where room is the same, the first from here on is chosen */
    uint32_t promised[HOMES_MAX]; /* in 1/HOMES_PROMISE of the bytes that a subtree brings */
};
#define HOMES_PROMISE 4096u

/* `number`: the compute node's. All else is zero. */
void homes_init(struct homes *homes, uint16_t number);
/* Chooses the memory node for a subtree that will bring about so many bytes, at least 1. HOMES_NONE: none
 * takes any. */
#define HOMES_NONE UINT16_MAX
uint16_t homes_choose(struct homes *homes, const struct home *nodes, uint16_t count, uint64_t bytes);

#endif
