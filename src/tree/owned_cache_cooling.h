/*
 * owned_cache_cooling.h - DEX's cooling map (sections 5.1 and 5.2): the nodes that are to leave the cache
 * next, in the order in which they were chosen, as far as a hash table keeps that. A bucket is one cache
 * line: a lock and six places, first in, first out. A node that is used while it cools is taken out again
 * (its second chance). Nodes are named by their addresses. Any thread; no round trips.
 */
#ifndef TREE_OWNED_CACHE_COOLING_H
#define TREE_OWNED_CACHE_COOLING_H

#include "fabric/fabric.h"

#define OWNED_COOLING_SLOTS 6u

struct owned_cooling;

/* For so many nodes. NULL: no memory. */
struct owned_cooling *owned_cooling_create(uint64_t nodes);
void owned_cooling_destroy(struct owned_cooling *cooling);
/* Puts a node last in its bucket. True: the bucket was full, and its first node had to go: *pushed. */
bool owned_cooling_put(struct owned_cooling *cooling, gaddr node, gaddr *pushed);
/* False: it does not cool. */
bool owned_cooling_remove(struct owned_cooling *cooling, gaddr node);
/* Takes the first node of a bucket, chosen by a random number; false: all are empty. */
bool owned_cooling_take(struct owned_cooling *cooling, uint64_t random, gaddr *node);
uint64_t owned_cooling_count(const struct owned_cooling *cooling);
uint64_t owned_cooling_capacity(const struct owned_cooling *cooling);

#endif
