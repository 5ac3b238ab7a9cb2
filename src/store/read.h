/*
 * read.h - one key: its slot, and what stands behind it, until both fit together. Private to src/store/.
 */
#ifndef STORE_READ_H
#define STORE_READ_H

#include "store/record.h"

/* One key that did not prove itself: how often, with the same slot? */
struct store_patience {
    struct store_raw last;
    uint32_t tries;
};
/* 0: look again; BANYAN_ECORRUPT when the slot has not changed for too long. */
int store_patience(struct store_session *session, struct store_patience *patience,
                   const struct store_raw *raw);
/* What a slot comes to: 0, BANYAN_ENOTFOUND (expired), STORE_STALE or an error. */
int store_resolve(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw, uint64_t now, enum format_part part, enum store_sink sink,
                  struct store_value *value);
/* Looks the key up until what was found proves itself. Removes it if it has expired. */
int store_fetch(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                enum format_part part, enum store_sink sink, struct store_value *value);

#endif
