/*
 * map.h - a copy of the map of ranges in memory: fetched from the pool, judged, and asked. Private to
 * src/owner/.
 *
 * WHAT A FETCH SEES. It is a scan, no snapshot: entries may be of different instants. Each was true at some
 * instant after the version was read, and that suffices: a right that an entry gives to this process can only
 * have been lost since by an adoption of this process, of a version that is later than the one that was read,
 * and then tree_rights_adopt refuses the older one (docs/internals/ownership.md).
 */
#ifndef OWNER_MAP_H
#define OWNER_MAP_H

#include "format/range.h"
#include "base/heap.h"
#include "tree/rights.h"

struct owner;

/* What is wrong with an index's part of the map. */
struct owner_problem {
    uint16_t number;
    char text[180]; /* without the index's name */
};

struct owner_map {
    struct heap *heap; /* set by who makes it; kept by owner_map_free */
    uint64_t version, incarnation;
    struct format_range *ranges; /* owned; in key order; those of indexes with problems too, as far as they
                                    can be read */
    uint32_t count, capacity;
    struct owner_problem *problems; /* owned; by number */
    uint32_t problem_count, problem_capacity;
};

void owner_map_free(struct owner_map *map);
/* Reads the board's version, then all entries. Where they contradict each other it looks again, some times:
 * another process may have changed them meanwhile. */
int owner_map_fetch(struct owner *owner, struct tree_session *session, struct owner_map *map);

/* The ranges of an index: *count of them, 0: it is shared as a whole. */
const struct format_range *owner_map_of(const struct owner_map *map, uint16_t number, uint32_t *count);
/* The entry behind this one in its index; NULL: there is none. */
const struct format_range *owner_map_after(const struct owner_map *map, uint32_t at);
/* The index of the range in which the key lies; UINT32_MAX: the index has none. */
uint32_t owner_map_find(const struct owner_map *map, uint16_t number, const void *key, size_t key_length);
/* NULL: nothing is wrong with the index's part. */
const struct owner_problem *owner_map_problem(const struct owner_map *map, uint16_t number);
/* What the range is to this process. Its own one with heirs is MOVING: until it has inherited (heirs.h). */
void owner_map_row(const struct format_range *range, struct fabric_process self, struct tree_rights_row *row);

/* For whoever has just written the entry: the copy follows. BANYAN_ENOMEM. */
int owner_map_put(struct owner_map *map, const struct format_range *range);
void owner_map_remove(struct owner_map *map, uint32_t at);

/* Judges ranges in key order (no session: for fetch, and for tests). BANYAN_ENOMEM. */
int owner_map_judge(struct owner_map *map);
/* A bound for messages. Returns text. */
#define OWNER_BOUND_TEXT 72
char *owner_bound_text(const uint8_t *lower, size_t length, char text[OWNER_BOUND_TEXT]);

/* ---- the map's index ---- */

/* Opens it, or creates it. */
int owner_map_open(struct tree_session *session, struct tree **tree);

#endif
