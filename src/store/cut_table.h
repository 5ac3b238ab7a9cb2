/*
 * cut_table.h - the values of keys at the moment of a cut (cut.h): entries in key order, of which the first
 * of a key stays and the least are taken out first. A skip list. Private to src/store/.
 *
 * The caller holds a lock around each call but store_saved_make and store_saved_free, which may be costly. An
 * entry that is not in a table is its maker's, or that of the caller who took it out.
 */
#ifndef STORE_CUT_TABLE_H
#define STORE_CUT_TABLE_H

#include "base/random.h"
#include "store/store.h"

#define STORE_CUT_LEVELS 12u

struct store_saved {
    uint64_t expires;
    size_t key_length, length, held; /* held: bytes of memory that it takes */
    bool present;                    /* false: the key was absent */
    uint8_t levels;
    uint8_t *bytes;           /* the key, then the value; behind `next` */
    struct store_saved *list; /* of the first of a list that is to be freed: the next list */
    struct store_saved *next[];
};

struct store_cut_table {
    struct random random; /* of the entries' levels: clients must not know them beforehand */
    struct store_saved *heads[STORE_CUT_LEVELS];
    uint64_t count, bytes; /* of memory, of all entries */
};

static inline int store_key_order(const void *a, size_t a_length, const void *b, size_t b_length)
{
    const size_t shorter = a_length < b_length ? a_length : b_length;
    const int order = shorter ? memcmp(a, b, shorter) : 0;
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

/* How high an entry may be drawn to be: under the lock, before it is made. */
unsigned store_cut_table_level(struct store_cut_table *table);
/* Bytes of memory that an entry takes. */
size_t store_saved_bytes(unsigned levels, size_t key_length, size_t length);
/* A copy; `value` NULL: the key was absent. NULL: no memory. */
struct store_saved *store_saved_make(unsigned levels, const void *key, size_t key_length,
                                     const struct store_value *value);
/* And the entries behind it, at the lowest level: up to so many. *left (NULL: none are) gets the others.
 * Returns the bytes of memory that they held. */
uint64_t store_saved_free(struct store_saved *saved, uint32_t most, struct store_saved **left);

bool store_cut_table_has(const struct store_cut_table *table, const void *key, size_t key_length);
/* False: the key has an entry already, which stays; `saved` stays the caller's. */
bool store_cut_table_add(struct store_cut_table *table, struct store_saved *saved);
/* The least entry; NULL: the table is empty. */
static inline const struct store_saved *store_cut_table_first(const struct store_cut_table *table)
{
    return table->heads[0];
}
/* Takes it out. */
struct store_saved *store_cut_table_pop(struct store_cut_table *table);
/* Takes all out, as a list for store_saved_free. */
struct store_saved *store_cut_table_clear(struct store_cut_table *table);

#endif
