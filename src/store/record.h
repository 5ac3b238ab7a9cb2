/*
 * record.h - writing, reading and freeing records. Private to src/store/. format/record.h says how they lie
 * in the pool.
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "format/record.h"
#include "store/session.h"

/* Internal status, never returned to callers of store.h: the record is not, or no longer, the one that the
 * slot refers to. */
#define STORE_STALE 1

enum store_sink {
    STORE_SINK_BUFFER,
    STORE_SINK_ARENA
}; /* where to read a value: session->value or the arena */

/* A record that no slot refers to yet: its blocks are its writer's (S1). */
struct store_fresh {
    struct format_reference reference;
    struct fabric_command ahead; /* if it travels */
    bool travels;     /* it lies in one block, which is written with the change that refers to it */
    uint32_t at_hand; /* so many WRITEs in session->at_hand have written it, whose bytes stay; 0: not known */
};
/* A value that is format_record_long, or finds no block of its size, is written in pieces: one round trip for
 * each STORE_TRANSFER_MAX blocks. Another is written at once where the pool is mapped here, ends with the
 * process, and nothing is logged; else it costs no round trip yet, and stands in session->output, which must
 * stay until the change is done. BANYAN_ENOSPC, BANYAN_ENOMEM, the network's errors: then the record's blocks
 * have been released, or kept back where the network failed (record.c). */
int store_record_prepare(struct store_session *session, const void *key, size_t key_length,
                         const struct store_value *value, struct store_fresh *fresh);
/* The same for at most STORE_PUTS_MAX values, none of them format_record_long, none of which is
 * written in pieces. An error is that of all, and none is left. */
#define STORE_PUTS_MAX 32u /* as many as tree_multi_put works on at once */
struct store_new_record {
    const void *key;
    size_t key_length;
    const struct store_value *value;
    struct store_fresh fresh; /* out */
};
int store_record_prepare_many(struct store_session *session, struct store_new_record *records,
                              uint32_t count);
/* The change has come to its end; `done`: tree_session_ahead_done. */
void store_fresh_written(struct store_session *session, struct store_fresh *fresh, bool done);
/* The change that was to refer to the record was not made, and came to `status`: releases its blocks, unless
 * they may still be written to. */
void store_fresh_free(struct store_session *session, const void *key, size_t key_length,
                      const struct store_fresh *fresh, int status);
/* Writes a new header, with another expiry, for the pieces that the header in session->header names. */
int store_record_write_header(struct store_session *session, const void *key, size_t key_length,
                              uint32_t pieces, uint64_t expires, struct format_reference *reference);
/* Whether nothing of a write that failed so can still arrive. */
bool store_failed_for_sure(int status);
/* Releases the blocks of a record that no slot refers to any more. pieces false: they belong to another
 * header now. Uses session->header. */
void store_record_free(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, bool pieces);
/* format_record_validate, giving a store_value: bytes NULL where they are not in `block`. */
bool store_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                           enum format_part part, const uint8_t *block, struct store_value *value);
/* The header alone, which is left in session->header. 0, STORE_STALE or an error. */
int store_record_read_header(struct store_session *session, const void *key, size_t key_length,
                             const struct format_reference *reference, struct format_record *record);
/* The status of a read of what may have been freed: STORE_STALE instead of what wild addresses give. */
int store_read_status(int status);
/* NULL when memory is short; then the message is there. */
uint8_t *store_sink_room(struct store_session *session, enum store_sink sink, size_t bytes);
/* 0, STORE_STALE or an error. Leaves the header in session->header if the header alone was read or the value
 * is in pieces. */
int store_record_read(struct store_session *session, const void *key, size_t key_length,
                      const struct format_reference *reference, enum format_part part, enum store_sink sink,
                      struct store_value *value);
/* The same for a reader that has just looked the key up: the value may come from the compute node's cache,
 * which may keep it. */
int store_record_fetch(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, enum format_part part, enum store_sink sink,
                       struct store_value *value);

#endif
