/*
 * owned_cache_lost.h - ranges that this process has lost, and of which the cache still has something: noted
 * at once, and swept out later, piece by piece, since to look through a large cache takes longer than a
 * transfer may. Until then nobody is told what lies there, because each reader of the cache gets the right
 * to the range first (rights.h). So a range must be swept before this process has the right to it again.
 *
 * Part of struct owned_cache; private to src/tree/. One task notes and prepares (tree_rights_adopt), one task
 * sweeps (the keeper), both may be at work at once; nothing suspends.
 */
#ifndef TREE_OWNED_CACHE_LOST_H
#define TREE_OWNED_CACHE_LOST_H

#include "base/atomic.h"
#include "tree/owned_cache_set.h"

struct owned_cache;
struct owned_note;

struct owned_lost {
    struct spinlock lock;
    struct owned_note *notes; /* owned; under the lock, the newest first */
    uint64_t noted;           /* the newest one's number; atomic */
    uint64_t swept;           /* up to here nothing is left; under the lock */
    /* The sweep that is under way: its task's alone. */
    struct owned_note *copies;
    struct owned_span *spans;
    uint32_t span_count;
    uint32_t shards, left, segments; /* how much of the cache it has looked at */
    uint64_t upto;                   /* its newest note */
};

void owned_lost_destroy(struct owned_lost *lost);

#endif
