/*
 * owned_cache_values.h - the cache's long values: bytes to which a slot's value refers (tree.h, struct
 * tree_reference). Private to the cache of owned ranges (owned_cache.h).
 *
 * A reference names the same bytes for ever, so what is found under it can be evicted, and never be too old.
 * A value is one allocation and never changes: readers take no lock, and write nothing but a count of hits,
 * up to 15, and when it was used. What comes in and goes is changed under a lock for a part of the table.
 *
 * Any thread. All calls but create and destroy lie between epoch_enter and epoch_leave: a value that leaves
 * is freed when no reader can be in it. No round trips; only putting allocates.
 */
#ifndef TREE_OWNED_CACHE_VALUES_H
#define TREE_OWNED_CACHE_VALUES_H

#include "tree/tree.h"

struct epoch_slot;
struct owned_values;

struct owned_value {
    struct owned_value *stranded; /* retire */
    struct owned_value *next;     /* of its hash bucket */
    struct tree_reference reference;
    uint64_t note;   /* the caller's, of eight bytes */
    uint32_t length; /* of bytes */
    uint32_t place;  /* in its shard's array */
    uint32_t used;   /* relaxed: the clock when it was last read or put */
    bool met;        /* relaxed: since replacement looked at it last */
    uint8_t hits;    /* relaxed; in rough steps (owned_cache_entries.h) */
    uint8_t bytes[];
};

/* `bytes`: of all values together at most, from which the table's size follows. NULL: no memory. */
struct owned_values *owned_values_create(uint64_t bytes);
void owned_values_destroy(struct owned_values *values);

/* What a value of so many bytes takes. */
uint64_t owned_values_size(uint32_t length);

/* Copies the value, if it is there and has this length, and its note. *met: whether it was met before, since
 * replacement looked at it last. */
bool owned_values_read(struct owned_values *values, const struct tree_reference *reference, uint8_t *to,
                       uint32_t length, uint64_t *note, uint32_t clock, uint32_t random, bool *met);
bool owned_values_has(const struct owned_values *values, const struct tree_reference *reference);
/* False: it is there already, or memory is short. */
bool owned_values_put(struct owned_values *values, const struct tree_reference *reference,
                      const uint8_t *bytes, uint32_t length, uint64_t note, uint32_t clock, uint32_t hits);
/* The bytes that it took; 0: it is not there. *hits: those that it had. */
uint64_t owned_values_drop(struct owned_values *values, struct epoch_slot *slot,
                           const struct tree_reference *reference, uint32_t *hits);
void owned_values_drop_all(struct owned_values *values, struct epoch_slot *slot);
/* Any value, each about equally likely, by a random number; NULL: there is none. */
struct owned_value *owned_values_any(struct owned_values *values, uint64_t random);

uint64_t owned_values_count(const struct owned_values *values);
uint64_t owned_values_bytes(const struct owned_values *values);

#endif
