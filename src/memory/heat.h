/*
 * heat.h - which addresses a memory node's commands work on: a sample of them, by which `banyan balance`
 * finds the nodes of a tree that much of a memory node's load goes to (store/balance_load.h).
 *
 * What carries commands out notes the address of one of MEMORY_HEAT_EVERY, on any of its threads: two relaxed
 * stores. The last MEMORY_HEAT_PLACES of them are kept, for as long as the process lives, and HEAT tells them
 * (request.h). Commands that the memory node's CPU does not see are not in it: those of a NIC, and of
 * processes that have mapped the pool.
 */
#ifndef MEMORY_HEAT_H
#define MEMORY_HEAT_H

#include "memory/memory.h"

/* A prime: what compute nodes do repeats itself after a few commands, and a sample in step with that would
 * show one kind of command alone. */
#define MEMORY_HEAT_EVERY  61u
#define MEMORY_HEAT_PLACES 2048u

struct memory_heat {
    uint64_t noted;                      /* atomic: so far */
    uint64_t places[MEMORY_HEAT_PLACES]; /* atomic, each: addresses, the one that was noted as number i at i
                                            modulo their number */
};

/* Any thread. */
void memory_heat_note(struct memory_node *node, gaddr address);

#endif
