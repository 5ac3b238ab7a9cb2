/*
 * places.h - a table from keys of a fixed length to what is known of them, for what the drain remembers of
 * places in pools. Private to src/persist/. Open addressing, at most two of three places taken: some 10 ns
 * for a look, an item's bytes for each place, and nothing is ever moved but when the table grows.
 *
 * An item begins with its key, of whole words of 8 bytes without holes, of which the first is not 0. One
 * thread, or a lock.
 */
#ifndef PERSIST_PLACES_H
#define PERSIST_PLACES_H

#include <stdbool.h>
#include <stdint.h>

struct places {
    uint32_t key_bytes, item_bytes; /* multiples of 8; the caller's, before the first use */
    uint8_t *items;                 /* owned; NULL: none */
    uint64_t capacity, count;
};

/* The item with this key; NULL: there is none. Valid until the next places_put. */
void *places_find(const struct places *places, const void *key);
/* The same, made where there is none: zeros behind its key. NULL: no memory. */
void *places_put(struct places *places, const void *key);
/* The item that comes next in the table, from *at 0 on; NULL: none. */
void *places_next(const struct places *places, uint64_t *at);
/* Forgets all, and frees the memory. */
void places_clear(struct places *places);

#endif
