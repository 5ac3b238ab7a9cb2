/*
 * owned_cache_waits.h - keys that are being written by this compute node, and the lookups that wait for one:
 * the end of the write tells them what the key holds then. That answer is right for a lookup that joined
 * before: the write ended between the lookup's begin and its answer, and the next one had not begun. It saves
 * a READ, which would take longer than the rest of the write. Private to the cache of owned ranges.
 *
 * A writer marks its keys under the leaf's local lock, before the pool can have the write, and ends the marks
 * under that lock when leaf and entry have what was written. A mark lies in the writer's memory. Any thread;
 * no round trips, no allocations. owned_wait_for suspends its task.
 */
#ifndef TREE_OWNED_CACHE_WAITS_H
#define TREE_OWNED_CACHE_WAITS_H

#include "base/atomic.h"
#include "format/key.h"

#define OWNED_WAIT_LISTS 64u

struct owned_wait;
struct owned_mark {
    struct owned_mark *next; /* of its list */
    struct format_key key;   /* the writer's */
    struct owned_wait *waits;
};
struct owned_waits {
    struct owned_wait_list {
        struct spinlock lock; /* guards the list, its marks and their waits */
        struct owned_mark *marks;
    } __attribute__((aligned(64))) lists[OWNED_WAIT_LISTS];
};

void owned_mark_begin(struct owned_waits *waits, struct owned_mark *mark, struct format_key key);
/* `value`: what the key holds now; NULL: nothing, or it is not known: they look for themselves. */
void owned_mark_end(struct owned_waits *waits, struct owned_mark *mark, const struct format_key *value);
/* Waits for the end of the write that is under way to the key: its value, FORMAT_VALUE_MAX bytes of room.
 * False: there is no such write (any more), or it is not known what it left. */
bool owned_wait_for(struct owned_waits *waits, struct format_key key, uint8_t *value, uint32_t *length);

#endif
