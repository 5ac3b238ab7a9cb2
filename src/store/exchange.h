/*
 * exchange.h - one exchange of a slot under the leaf's lock, and what becomes of the records on both sides of
 * it (S3, S6 of docs/internals/records.md). Private to src/store/.
 */
#ifndef STORE_EXCHANGE_H
#define STORE_EXCHANGE_H

#include "store/record.h"

struct store_exchange {
    const struct store_raw *expected; /* NULL: whatever it is */
    const struct store_raw *put;      /* NULL: delete */
    struct store_raw *seen;           /* what the slot held */
    bool matched, wrote;
};

/* Costs one tree_modify. */
int store_exchange_run(struct store_session *session, const void *key, size_t key_length,
                       struct store_exchange *exchange);
/* The slot holds something else now: what it held is ours to free. */
void store_retire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw);
/* After a failure: the new record is nobody's, unless the exchange may have taken effect. */
void store_withdraw(struct store_session *session, const void *key, size_t key_length, int status,
                    const struct store_exchange *exchange, const struct format_reference *reference,
                    bool extents);
/* Takes the entry away if its slot still holds exactly this, and frees its record. *removed tells. */
int store_remove_exactly(struct store_session *session, const void *key, size_t key_length,
                         const struct store_raw *raw, bool *removed);
/* The same for one that has expired. Errors are let go: it is removed another time. */
bool store_expire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw);

#endif
