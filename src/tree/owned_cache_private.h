/* owned_cache_private.h - the cache's parts, for owned_cache.c and owned_cache_policy.c. */
#ifndef TREE_OWNED_CACHE_PRIVATE_H
#define TREE_OWNED_CACHE_PRIVATE_H

#include "tree/owned_cache.h"
#include "tree/owned_cache_cooling.h"
#include "tree/owned_cache_entries.h"
#include "tree/owned_cache_lost.h"
#include "tree/owned_cache_values.h"
#include "tree/owned_cache_waits.h"
#include "tree/owned_cache_writes.h"

/* Cache lines of a frame that a look at it touches: its words, its header; and of its bucket and its
 * neighbours in lists, to take it out. */
#define OWNED_LOOK_LINES 2u
#define OWNED_DROP_LINES 4u

enum owned_kind { OWNED_INNER, OWNED_LEAVES, OWNED_ENTRIES, OWNED_VALUES, OWNED_KINDS };

/* What tells how much the least used bytes of a kind are worth. Relaxed: estimates. */
struct owned_meter {
    uint64_t cold_hits;  /* hits on objects that had none since they were last looked at, ever */
    uint64_t seen, cold; /* objects that replacement looked at, ever, and those of them without a hit */
    /* under the meters' lock */
    uint64_t last, last_hits, last_seen, last_cold;
    double density; /* hits for each byte and draw of a random number; negative: not known */
} __attribute__((aligned(64)));

#define OWNED_STRIPES 16u
/* Counters of some of the threads: so that a read writes no line that all others write. */
struct owned_stripe {
    uint64_t leaf_hits, leaf_misses, entry_hits, entry_misses, shortcut_hits, placed, busy;
    uint64_t leaf_admissions, entry_admissions;
    uint64_t value_hits, value_misses, value_admissions;
} __attribute__((aligned(64)));

struct owned_cache {
    struct owned_cache_settings settings;
    struct format_layout layout;   /* its own: handles of the index come and go */
    uint64_t inner_bytes;          /* of all handles' inner frames; relaxed */
    bool filled;                   /* it was full once; relaxed */
    bool stopped;                  /* the index is being dropped; never false again */
    struct owned_frames *frames;   /* policies dex and banyan; else NULL */
    struct owned_entries *entries; /* policies dinomo and banyan; else NULL */
    struct owned_values *values;   /* of a store's index, policies dinomo and banyan; else NULL */
    struct owned_cooling *cooling; /* policy dex; else NULL */
    struct owned_writes writes;
    struct owned_lost lost;
    struct owned_waits waits;
    struct owned_stripe stripes[OWNED_STRIPES];
    struct owned_meter meters[OWNED_KINDS];
    struct spinlock meters_lock __attribute__((aligned(64)));
    int64_t allowance; /* bytes that may still pass from one kind to another in this window; relaxed */
    uint64_t draws;    /* of random numbers, and so a clock of replacement; relaxed */
    uint64_t leaf_evictions, entry_evictions, value_evictions, promotions, demotions;
    uint64_t miss_cost; /* round trips of a lookup that found nothing cached, moving average, in 1/1024 */
};

/* ---- owned_cache_policy.c; all in an epoch ---- */

uint64_t owned_policy_random(struct owned_cache *cache);
uint64_t owned_policy_bytes(const struct owned_cache *cache, enum owned_kind kind);
/* Whether so many more bytes fit without anything going. A figure. */
bool owned_policy_fits(const struct owned_cache *cache, uint64_t bytes);
/* Room for so many more bytes of a kind: what is worth least goes. False: there is none to be had. */
bool owned_policy_room(struct owned_cache *cache, struct epoch_slot *slot, enum owned_kind kind,
                       uint64_t bytes);
/* A set of entries was full: the table grows, if that is worth what must go for it. */
void owned_policy_full_set(struct owned_cache *cache, struct epoch_slot *slot, uint32_t counted,
                           uint32_t cold);
/* Room for a long value of so many bytes, whose key was met so often. False: there is none, or what would go
 * is worth more. */
bool owned_policy_value_room(struct owned_cache *cache, struct epoch_slot *slot, uint64_t bytes,
                             uint32_t hits);
/* When values were used, policy dinomo. */
uint32_t owned_policy_clock(const struct owned_cache *cache);
void owned_policy_saw_inner(struct owned_cache *cache, uint32_t seen, uint32_t cold);
bool owned_policy_wants_leaf(struct owned_cache *cache);
/* Whether a key of a cached leaf should have an entry too. */
bool owned_policy_wants_entry(const struct owned_cache *cache);

#endif
