/*
 * owned_cache_writes.h - which leaves are being written by this compute node, and which were since some
 * moment: a word for each leaf address, shared by those whose hashes meet. It keeps bytes out of the cache
 * that were READ before or during a write: who READs takes the stamp first, and admits what it read only if
 * the word is still the same, looked at under the lock of what it admits to. Who writes changes the word
 * first, and takes that lock then. Beside it a count of the writes to leaves' headers: while that is the
 * same, the leaf is the same one, in the same state, and its slots have the same meaning. Looked at and
 * changed under the leaf's local lock. Private to the cache of owned ranges. Any thread.
 *
 * MOMENTS. A walk (walk.h) does not know which leaf it will read, so no stamp of that leaf can be taken
 * before. It takes a moment instead, a number that no other walk has. The end of each write leaves the latest
 * moment that was taken beside its word. Once the leaf is known, a moment that is not reached there says that
 * no write has ended since the walk began: then the word is what it would have been as a stamp.
 */
#ifndef TREE_OWNED_CACHE_WRITES_H
#define TREE_OWNED_CACHE_WRITES_H

#include "base/atomic.h"
#include "base/random.h"
#include "fabric/fabric.h"

#define OWNED_WRITES_WORDS 4096u
/* The lower part of a word: how many writes are under way; the rest counts those that ended. */
#define OWNED_WRITES_UNIT UINT64_C(0x10000)

struct owned_writes {
    uint64_t words[OWNED_WRITES_WORDS];
    uint32_t shapes[OWNED_WRITES_WORDS];          /* writes to headers */
    uint64_t ended[OWNED_WRITES_WORDS];           /* the latest moment when a write ended */
    uint64_t moment __attribute__((aligned(64))); /* the latest; no other field is on its line */
};

static inline uint64_t *owned_writes_word(struct owned_writes *writes, gaddr leaf)
{
    return &writes->words[random_mix(leaf) & (OWNED_WRITES_WORDS - 1)];
}
/* Relaxed: who looks holds the leaf's lock, as who wrote the header did; of other leaves that share the word
 * nothing matters. */
static inline uint32_t owned_writes_shape(struct owned_writes *writes, gaddr leaf)
{
    return atomic_load_relaxed(&writes->shapes[random_mix(leaf) & (OWNED_WRITES_WORDS - 1)]);
}
static inline void owned_writes_reshape(struct owned_writes *writes, gaddr leaf)
{
    atomic_add_relaxed(&writes->shapes[random_mix(leaf) & (OWNED_WRITES_WORDS - 1)], 1); /* as above */
}
/* Acquire: the READ that follows comes after it. */
static inline uint64_t owned_writes_stamp(struct owned_writes *writes, gaddr leaf)
{
    return atomic_load_acquire(owned_writes_word(writes, leaf));
}
/* A write was under way: nothing that is read now may be admitted. */
static inline bool owned_writes_busy(uint64_t stamp)
{
    return stamp % OWNED_WRITES_UNIT;
}
static inline void owned_writes_begin(struct owned_writes *writes, gaddr leaf)
{
    /* Relaxed: the lock of the frame or set, which is taken next, orders it before what is admitted under
     * that lock later. */
    atomic_add_relaxed(owned_writes_word(writes, leaf), 1);
}
static inline void owned_writes_end(struct owned_writes *writes, gaddr leaf)
{
    uint64_t *ended = &writes->ended[random_mix(leaf) & (OWNED_WRITES_WORDS - 1)];
    /* Sequentially consistent, as is the taking: a write that a walk may have missed ends later than that
     * took its moment, and so finds that one here, or a later one. */
    const uint64_t moment = __atomic_load_n(&writes->moment, __ATOMIC_SEQ_CST);
    uint64_t known = atomic_load_relaxed(ended);
    /* Relaxed: the word's release publishes it. It never falls, since the writes of other leaves end here
     * too. */
    while (known < moment && !atomic_swap_relaxed(ended, &known, moment))
        atomic_pause();
    /* Release: what the write left in the cache comes before it, and so does the moment. */
    __atomic_fetch_add(owned_writes_word(writes, leaf), OWNED_WRITES_UNIT - 1, __ATOMIC_RELEASE);
}
/* Before a walk is asked for: from 1. */
static inline uint64_t owned_writes_moment(struct owned_writes *writes)
{
    return __atomic_add_fetch(&writes->moment, 1, __ATOMIC_SEQ_CST); /* see owned_writes_end */
}
/* The stamp of a leaf that was read since this moment, as if it had been taken before; busy where a write
 * ended since, or is under way. */
static inline uint64_t owned_writes_stamp_since(struct owned_writes *writes, gaddr leaf, uint64_t moment)
{
    const uint64_t stamp =
        owned_writes_stamp(writes, leaf); /* acquire: the moments of the ends that it counts */
    const uint64_t ended = atomic_load_relaxed(&writes->ended[random_mix(leaf) & (OWNED_WRITES_WORDS - 1)]);
    return ended < moment ? stamp : stamp | 1;
}

#endif
