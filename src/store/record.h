/*
 * record.h - values outside of the index: writing, reading, validating and freeing their records. Private to
 * src/store/. record.c says how they lie in the pool.
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "store/session.h"

/* Internal verdict, never seen by callers of store.h: the record is not (or no longer) what the slot says. */
#define STORE_STALE 1

enum store_part { STORE_PART_HEAD, STORE_PART_VALUE };
enum store_sink { STORE_SINK_BUFFER, STORE_SINK_ARENA }; /* where a value is read to */

/* 0: the value follows the head in its block. */
uint32_t store_record_extents(size_t key_length, uint64_t length);
uint32_t store_record_extent_bytes(uint64_t length, uint32_t number);
uint32_t store_record_head_bytes(size_t key_length, uint64_t length);
/* Of the head's block. */
uint32_t store_record_block_bytes(size_t key_length, uint64_t length);
/* What has to be read of the head's block for this part. */
uint32_t store_record_read_bytes(size_t key_length, const struct store_reference *reference,
                                 enum store_part part);

/* One round trip. BANYAN_ENOSPC, BANYAN_ENOMEM, the network's errors; then nothing of it is left. */
int store_record_write(struct store_session *session, const void *key, size_t key_length,
                       const struct store_value *value, struct store_reference *reference);
/* The same for many values, their round trips together: each gets its own status, and those that have one
 * already are left alone. At most STORE_PUTS_MAX of them, none with extents. */
#define STORE_PUTS_MAX 32u /* as many as the tree has under way together */
struct store_new_record {
    const void *key;
    size_t key_length;
    const struct store_value *value;
    struct store_reference reference; /* out */
    int status;
};
void store_record_write_many(struct store_session *session, struct store_new_record *records, uint32_t count);
/* A new head, with another expiry, for the extents that the head in session->head names. */
int store_record_write_head(struct store_session *session, const void *key, size_t key_length,
                            uint64_t length, uint64_t expires, struct store_reference *reference);
/* Nobody can find the record any more: its memory goes back. extents false: they belong to another head now.
 */
void store_record_free(struct store_session *session, const void *key, size_t key_length,
                       const struct store_reference *reference, bool extents);
/* Judges what was read of a head's block. Fills value (bytes: where they lie in `block`, else NULL). */
bool store_record_validate(const struct store_reference *reference, const void *key, size_t key_length,
                           enum store_part part, const uint8_t *block, struct store_value *value);
/* 0, STORE_STALE or an error. A head, or that of a value in extents, is in session->head afterwards. */
int store_record_read(struct store_session *session, const void *key, size_t key_length,
                      const struct store_reference *reference, enum store_part part, enum store_sink sink,
                      struct store_value *value);
/* Of the head in session->head. */
gaddr store_record_extent(const struct store_session *session, size_t key_length, uint32_t number);

#endif
