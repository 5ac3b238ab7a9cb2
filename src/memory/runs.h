/*
 * runs.h - the free runs of a pool: a bit for each granule of 32 bytes, and above the bits a tree that knows
 * the longest run of clear ones in every part of the pool, so that the first or the last run of a length is
 * found without a search; and how much room there is from the pool's low end up (the floor).
 *
 * Used by blocks.c alone, under the node's lock. All memory is reserved at creation and touched as the pool
 * is used: zeroed pages mean that everything is free. The bits, which are kept (keep.h), cost 1/256 of the
 * pool's bytes; the tree, which is made from them, 1/1,700.
 *
 * COST. A leaf of the tree stands for 512 granules (8 words, one cache line), an inner node for 8 nodes (one
 * cache line too): 6 levels at 256 MiB, 9 at 64 GiB. A search reads one line a level; an update works out the
 * leaves that changed, then their parents, and stops at the level where nothing changes.
 *
 * Lengths are capped at RUNS_CAP granules, more than any block has: a longer run counts as one of that
 * length.
 *
 * A leaf can be HIDDEN: its clear bits count as no room, until it is shown again.
 */
#ifndef MEMORY_RUNS_H
#define MEMORY_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/pages.h"

#define RUNS_GRANULE 32u
#define RUNS_LEAF    512u /* granules */
#define RUNS_CAP     65535u
#define RUNS_NONE    UINT64_MAX
#define RUNS_LEVELS  16u

/* What a part of the pool lacks, so that zeros are a part all free: its size, capped, less the run of free
 * granules at its begin, the one at its end, and the longest. */
struct runs_lack {
    uint16_t first, last, longest, unused;
};

struct runs {
    uint64_t granules; /* a multiple of RUNS_LEAF */
    struct pages hidden_pages, zone_pages, lack_pages;
    uint64_t *used;   /* a bit a granule; the caller's */
    uint64_t *hidden; /* a bit a leaf */
    struct runs_lack *levels[RUNS_LEVELS];
    uint64_t counts[RUNS_LEVELS]; /* nodes of each level; level 0: leaves */
    unsigned height;

    /* The floor: the pool in zones, each with the room in it; the zones below the floor have at least
     * `reserve` granules of room together, if the pool has so many. Room are the longest runs of leaves,
     * where they have RUNS_ROOM_MIN granules: what a node of the tree can use for certain. */
    unsigned zone_shift; /* leaves of a zone, as a power of two */
    uint64_t zones;
    uint32_t *zone_lacks; /* granules that are no room */
    uint64_t floor;       /* a zone */
    uint64_t room_below, reserve;
    uint64_t scrap; /* the leaf above the next one that runs_scrap looks at */
};

#define RUNS_ROOM_MIN 32u /* granules: 1 KiB */
#define RUNS_SCRAPS   512u

/* `used` is clear, or runs_update follows for all granules. */
int runs_create(struct runs *runs, uint64_t *used, uint64_t granules, struct error *error);
void runs_destroy(struct runs *runs);
/* All is free, as the bits say already, and shown again. */
void runs_clear(struct runs *runs);

/* The begin of the first, or the end of the last, run of at least `length` granules (1 to RUNS_CAP);
 * RUNS_NONE. */
uint64_t runs_first(const struct runs *runs, uint64_t length);
uint64_t runs_last(const struct runs *runs, uint64_t length);
/* The end of a run of at least `length` granules in a leaf that is no room for nodes (RUNS_ROOM_MIN), which
 * the reserve has no use for; RUNS_NONE: there is none in the RUNS_SCRAPS leaves that this call looks at. The
 * next call goes on where this one ended. */
uint64_t runs_scrap(struct runs *runs, uint64_t length);
/* The longest run from `from` (a multiple of RUNS_LEAF) on, capped. */
uint64_t runs_longest(const struct runs *runs, uint64_t from);
/* The longest run of the granules from `from` to `to`, multiples of RUNS_LEAF, even if they are hidden. */
uint64_t runs_longest_within(const struct runs *runs, uint64_t from, uint64_t to);
/* How many granules from `at` on, or before `at`, are free and not hidden: at most `most`. */
uint64_t runs_room_up(const struct runs *runs, uint64_t at, uint64_t most);
uint64_t runs_room_down(const struct runs *runs, uint64_t at, uint64_t most);

/* The tree learns that bits of these granules have changed (bits.h). Before that no search is made. */
void runs_update(struct runs *runs, uint64_t at, uint64_t length);
/* Multiples of RUNS_LEAF. */
void runs_hide(struct runs *runs, uint64_t from, uint64_t to, bool hide);

/* The lowest granule above the reserve. `settle` moves the floor to where it belongs, by at most so many
 * zones. */
uint64_t runs_floor(const struct runs *runs);
void runs_floor_settle(struct runs *runs, uint64_t zones_max);

#endif
