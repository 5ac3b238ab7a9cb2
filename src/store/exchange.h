/*
 * exchange.h - one exchange of a slot under the leaf's lock, and what becomes of the records on both sides of
 * it (rules S3, S5 and S6 of docs/internals/records.md). Private to src/store/.
 */
#ifndef STORE_EXCHANGE_H
#define STORE_EXCHANGE_H

#include "store/record.h"

/* Internal status: the slot has changed since the decision, which must be made again. */
#define STORE_LOST 2

struct store_exchange {
    const struct store_raw *expected; /* NULL: any */
    const struct store_raw *put;      /* NULL: delete */
    struct store_raw *seen;           /* gets what the slot held; may be NULL */
    struct store_fresh *fresh; /* what `put` refers to; NULL: it is written already, or refers to nothing */
    bool moves;                /* the value is the same, and lies elsewhere: no change (B1) */
    bool careful;              /* a record that expires stays where it could be freed at once: see put.c */
    struct tree_session *session; /* out, for the function */
    bool matched, wrote, stays;
};

/* Stores `put` if the slot holds `expected`: one tree_modify. `wrote` is valid after BANYAN_EUNKNOWN too:
 * then the write may have taken effect. */
int store_exchange_run(struct store_session *session, const void *key, size_t key_length,
                       struct store_exchange *exchange);
/* Stores the record if the slot holds `expected`. STORE_LOST: it does not. *unknown: the exchange may have
 * taken effect, so that nothing may be freed (S6). */
int store_exchange_reference(struct store_session *session, const void *key, size_t key_length,
                             const struct store_raw *expected, struct store_fresh *fresh, bool *unknown);
/* After STORE_LOST: other writers change this key. Waits, the longer the more attempts were lost. */
void store_back_off(struct store_session *session, unsigned attempt);
/* Whether what the last exchange took out of the slot is its own to be freed; else a merging does it (S3). */
bool store_retires(const struct store_session *session);
/* Frees the record that `raw` refers to, if it does. */
void store_discard(struct store_session *session, const void *key, size_t key_length,
                   const struct store_raw *raw);
/* The last exchange took `raw` out of the slot: frees that record, if it is its own. */
void store_retire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw);
/* After an exchange that failed: frees the new record, unless the exchange may have taken effect (S6). */
void store_withdraw(struct store_session *session, const void *key, size_t key_length, int status,
                    const struct store_exchange *exchange, const struct store_fresh *fresh, bool pieces);
/* Deletes the entry if its slot still holds exactly `raw`, and frees its record. *removed tells whether it
 * did. */
int store_remove_exactly(struct store_session *session, const void *key, size_t key_length,
                         const struct store_raw *raw, bool *removed);
/* The same for an entry that has expired. Errors are ignored: a later call removes it. */
bool store_expire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw);

#endif
