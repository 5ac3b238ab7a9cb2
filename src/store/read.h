/*
 * read.h - reading one key: its slot, and the record that the slot refers to, again until the two fit.
 * Private to src/store/.
 */
#ifndef STORE_READ_H
#define STORE_READ_H

#include "store/record.h"

/* A part of a value: store_choose_function. */
struct store_choice {
    store_choose_function *choose;
    void *context;
};
/* The value, all of which is in value->bytes, becomes its part; NULL: nothing is to be chosen. */
void store_choice_apply(const struct store_choice *choice, struct store_value *value);

/* Counts how often a key's record was stale while its slot stayed the same. */
struct store_patience {
    struct store_raw last;
    uint32_t tries;
};
/* 0: look the key up again; BANYAN_ECORRUPT when the slot has not changed for too many tries. */
int store_patience(struct store_session *session, struct store_patience *patience,
                   const struct store_raw *raw);
/* The value of a slot: 0, BANYAN_ENOTFOUND (expired), STORE_STALE or an error. */
int store_resolve(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw, uint64_t now, enum format_part part, enum store_sink sink,
                  struct store_value *value);
/* store_fetch of the chosen part; NULL: of the whole value. */
int store_fetch_part(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                     const struct store_choice *choice, enum store_sink sink, struct store_value *value);
/* Looks the key up until its slot and record fit. Removes an entry that has expired. */
int store_fetch(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                enum format_part part, enum store_sink sink, struct store_value *value);

#endif
