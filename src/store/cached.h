/*
 * cached.h - values that stand in records, in the compute node's cache (tree.h, tree_value_find). By rule S2
 * a reference is never the same for two writes, so what is cached under it is the value for as long as a slot
 * holds it: a reader validates nothing, and no writer has to tell the cache anything. Private to src/store/;
 * by the session's task. No round trips.
 *
 * Cached are values of one block. One in pieces is as long as some hundred others.
 */
#ifndef STORE_CACHED_H
#define STORE_CACHED_H

#include "store/record.h"

/* Copies the value to `room`, which has place for the record. */
bool store_cached_find(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, uint8_t *room, struct store_value *value);
/* It was READ and validated; `looked_up`: right after this session's lookup of its key. */
void store_cached_offer(struct store_session *session, const void *key, size_t key_length,
                        const struct format_reference *reference, const struct store_value *value,
                        bool looked_up);
/* It was written, and its reference put into the slot in place of `old`. */
void store_cached_replace(struct store_session *session, const void *key, size_t key_length,
                          const struct format_reference *reference, const struct store_value *value,
                          const struct store_raw *old);
/* No slot refers to it any more. */
void store_cached_forget(struct store_session *session, const void *key, size_t key_length,
                         const struct format_reference *reference);

#endif
