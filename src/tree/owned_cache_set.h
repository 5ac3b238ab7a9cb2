/*
 * owned_cache_set.h - one set of the table of entries (owned_cache_entries.h): 512 bytes, packed.
 *
 *   line 0   version | bytes used | entries | inserts | a byte of each key's hash | what is known of each
 *   lines 1-7   [key length] [value length] key | [link] | [value]
 *
 * Lengths stand only where the index's keys or values vary. All but owned_set_find: with the set's latch
 * held.
 */
#ifndef TREE_OWNED_CACHE_SET_H
#define TREE_OWNED_CACHE_SET_H

#include "base/seqlock.h"
#include "tree/owned_cache_entries.h"

#define OWNED_SET_ENTRIES 28u
#define OWNED_META_HITS   15u /* of meta: how often it was found, up to this, halved from time to time */
#define OWNED_SET_BODY    (OWNED_SET_BYTES - 64u)

struct owned_set {
    struct seqlock latch;
    uint16_t used; /* of body */
    uint8_t count;
    uint8_t inserts; /* since the hits were halved */
    uint8_t tags[OWNED_SET_ENTRIES];
    uint8_t meta[OWNED_SET_ENTRIES]; /* hits and flags; searches count hits in it without the latch */
    uint8_t body[OWNED_SET_BODY];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct owned_set) == OWNED_SET_BYTES, "a set");

/* What lengths an index's keys and values have. */
struct owned_set_shape {
    bool key_varies, value_varies;
    bool rough; /* hits are counted in rough steps */
    uint32_t key_bytes, value_bytes, link_bytes;
};
void owned_set_shape_init(struct owned_set_shape *shape, const struct format_layout *layout,
                          uint32_t link_bytes);

/* Without the latch, in an epoch. False: the set was being changed; nothing is known. */
bool owned_set_find(struct owned_set *set, const struct owned_set_shape *shape, struct format_key key,
                    uint64_t hash, struct owned_entry *entry, enum owned_entry_found *found);
void owned_set_put(struct owned_set *set, const struct owned_set_shape *shape, const struct owned_put *put,
                   uint64_t hash, struct owned_put_result *result);
bool owned_set_promote(struct owned_set *set, const struct owned_set_shape *shape,
                       const struct owned_put *put, uint64_t hash, double miss, uint32_t *evicted);
void owned_set_busy(struct owned_set *set, const struct owned_set_shape *shape, struct format_key key,
                    uint64_t hash);
bool owned_set_settle(struct owned_set *set, const struct owned_set_shape *shape, struct format_key key,
                      uint64_t hash, const struct format_key *value, const uint8_t *link);
uint32_t owned_set_drop(struct owned_set *set, const struct owned_set_shape *shape,
                        const struct owned_span *spans, uint32_t count);
/* Moves what `goes` to another set, which is empty. */
void owned_set_split(struct owned_set *set, struct owned_set *other, const struct owned_set_shape *shape,
                     bool (*goes)(const void *context, uint64_t hash), const void *context);
/* Moves what has room from the other set, the most hit first, and empties that; how many were lost. */
uint32_t owned_set_merge(struct owned_set *set, struct owned_set *other, const struct owned_set_shape *shape);

#endif
