/*
 * reference.h - an ordered map that is too simple to be wrong: a sorted array. The tree is compared
 * with it. One thread. Every change costs a binary search and a memmove; running out of memory aborts the
 * test.
 */
#ifndef SWARM_REFERENCE_H
#define SWARM_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFERENCE_BYTES 255u

struct reference_entry {
    uint32_t key_length, value_length;
    uint8_t bytes[]; /* key, then value */
};

struct reference {
    struct reference_entry **entries; /* owned, ascending */
    size_t count, capacity;
};

static inline const uint8_t *reference_value(const struct reference_entry *entry)
{
    return entry->bytes + entry->key_length;
}

void reference_init(struct reference *reference);
void reference_free(struct reference *reference);
/* The entry with this key, or NULL. */
const struct reference_entry *reference_find(const struct reference *reference, const void *key,
                                             size_t length);
/* The first place whose key is not less than `key` (with `after`: greater than it). */
size_t reference_place(const struct reference *reference, const void *key, size_t length, bool after);
void reference_put(struct reference *reference, const void *key, size_t key_length, const void *value,
                   size_t value_length);
bool reference_remove(struct reference *reference, const void *key, size_t length);
int reference_compare(const void *left, size_t left_length, const void *right, size_t right_length);

#endif
