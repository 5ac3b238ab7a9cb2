/*
 * record.h - values outside of the index: writing, reading, validating and freeing their records. Private to
 * src/store/. format/record.h says how they lie in the pool.
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "format/record.h"
#include "store/session.h"

/* Internal verdict, never seen by callers of store.h: the record is not (or no longer) what the slot says. */
#define STORE_STALE 1

enum store_sink { STORE_SINK_BUFFER, STORE_SINK_ARENA }; /* where a value is read to */

/* One round trip. BANYAN_ENOSPC, BANYAN_ENOMEM, the network's errors; then nothing of it is left. */
int store_record_write(struct store_session *session, const void *key, size_t key_length,
                       const struct store_value *value, struct format_reference *reference);
/* The same for many values, their round trips together: each gets its own status, and those that have one
 * already are left alone. At most STORE_PUTS_MAX of them, none with extents. */
#define STORE_PUTS_MAX 32u /* as many as the tree has under way together */
struct store_new_record {
    const void *key;
    size_t key_length;
    const struct store_value *value;
    struct format_reference reference; /* out */
    int status;
};
void store_record_write_many(struct store_session *session, struct store_new_record *records, uint32_t count);
/* A new head, with another expiry, for the extents that the head in session->header names. */
int store_record_write_header(struct store_session *session, const void *key, size_t key_length,
                              uint64_t length, uint64_t expires, struct format_reference *reference);
/* Nobody can find the record any more: its memory goes back. extents false: they belong to another head now.
 */
void store_record_free(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, bool extents);
/* Judges what was read of a head's block. Fills value (bytes: where they lie in `block`, else NULL). */
bool store_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                           enum format_part part, const uint8_t *block, struct store_value *value);
/* 0, STORE_STALE or an error. A head, or that of a value in extents, is in session->header afterwards. */
int store_record_read(struct store_session *session, const void *key, size_t key_length,
                      const struct format_reference *reference, enum format_part part, enum store_sink sink,
                      struct store_value *value);

#endif
