/*
 * balance_load.h - which nodes of trees much of a memory node's load goes to, and where they should lie
 * instead: the part of `banyan balance` that evens load out. Private to balance.c.
 *
 * Load is commands that memory nodes' CPUs carry out. Each memory node tells a sample of the addresses that
 * they work on (memory/heat.h), collected for some time; a walk over all indexes finds the nodes that these
 * lie in; those that have most are chosen, hottest first, as long as that makes two memory nodes more alike
 * and leaves their bytes even. Nodes of one subtree go together. Nodes that are seldom met stay where they
 * are: their few samples are chance, and bytes are evened out besides. Records, and the words of locks, do
 * not move for load.
 *
 * One task. Costs an RPC for some hundred samples, and memory for at most 8,192 of each memory node.
 */
#ifndef STORE_BALANCE_LOAD_H
#define STORE_BALANCE_LOAD_H

#include "store/balance.h"

struct store_balance_load;

/* Collects samples for balance->measure_ns; commands_per_second of each memory node is known then. *load:
 * owned by the caller; NULL where there is nothing to even out: the load of one that hands out memory is not
 * known, or there is too little. */
int store_balance_load_measure(struct store_balance *balance, struct store_balance_load **load);
void store_balance_load_free(struct store_balance_load *load);
/* In a walk: the samples that lie in the node are its subtree's; where there is no memory for that they count
 * for nothing. */
void store_balance_load_count(struct store_balance_load *load, gaddr node, uint32_t bytes, uint32_t top_tag);
/* After the walk: which subtrees move, and where to. How many nodes of them were met by samples. */
uint64_t store_balance_load_choose(struct store_balance_load *load, const struct store_balance *balance);
/* In a later walk: where nodes of the subtree go; POOL_ANY_NODE: they stay. */
uint16_t store_balance_load_where(const struct store_balance_load *load, uint16_t node, uint32_t top_tag);

#endif
