/*
 * state.h - the objects behind store.h, and the functions that its files share. Private to src/store/.
 *
 * File by file, in reading order:
 *   slot      what a key's slot in the index holds     store     objects, buffers
 *   transfer  many reads or writes in one round trip   record    values outside of the index
 *   read      one key, many keys                       modify    writes
 *   range     scans, counts, deletes of ranges         sweep     expiry
 *   check     walking everything
 *
 * docs/internals/records.md argues why a reader never gets a torn, foreign or older value.
 */
#ifndef STORE_STATE_H
#define STORE_STATE_H

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "memory/memory.h"
#include "store/store.h"

/* Internal verdict, never seen by callers of store.h: the record is not (or no longer) what the slot says. */
#define STORE_STALE 1

/* ---- slot.c: a slot's bytes ---- */

#define STORE_SLOT_RECORD_BYTES 17u /* what a geometry must have room for */

/* What a slot says of a record. */
struct store_reference {
    gaddr address;
    uint64_t check;  /* upper bits of the head's hash */
    uint32_t length; /* of the value: with the key's it gives every other size */
    bool expires;    /* when, stands in the record's head */
};

struct store_slot {
    bool record;
    uint32_t length;  /* of the value */
    uint64_t expires; /* inline values; 0: never */
    const uint8_t *bytes;
    struct store_reference reference;
};

/* A slot's bytes as they stand in the index, or that there is none. */
struct store_raw {
    bool present;
    uint8_t length;
    uint8_t bytes[FORMAT_VALUE_MAX];
};

/* False if no store wrote this. slot->bytes points into `bytes`. */
bool store_slot_decode(const uint8_t *bytes, size_t length, struct store_slot *slot);
bool store_slot_fits(const struct store *store, uint64_t length, uint64_t expires);
void store_slot_inline(struct store_raw *raw, const struct store_value *value);
void store_slot_record(struct store_raw *raw, const struct store_reference *reference);
/* The part of a head's hash that references carry. */
uint64_t store_slot_check(uint64_t hash);
void store_raw_set(struct store_raw *raw, const void *bytes, size_t length); /* bytes NULL: none */
bool store_raw_equal(const struct store_raw *raw, const void *bytes, size_t length);

/* ---- store.c: objects and buffers ---- */

struct store {
    struct tree *tree;
    uint32_t slot_bytes; /* room for a value in the index */
    uint64_t (*now)(void *context);
    void *clock_context;
    struct store_stats stats; /* relaxed atomics: counters that order nothing */
    uint64_t memory_max;      /* of stats.memory */
};

/* Grows to what is needed; when it is large, it is given back after the call. */
struct store_buffer {
    uint8_t *bytes; /* 64-byte aligned */
    size_t capacity;
};

/* Memory that lives until the session's next call. */
struct store_chunk {
    struct store_chunk *next;
    size_t capacity, used;
    uint8_t bytes[] __attribute__((aligned(16)));
};
struct store_arena {
    struct store_chunk *chunks; /* the newest first */
    size_t capacity;            /* of all chunks */
};

#define STORE_EXTENTS_MAX   64u
#define STORE_HEAD_FIXED    37u
#define STORE_HEAD_MAX      (STORE_HEAD_FIXED + STORE_KEY_MAX + 16u * STORE_EXTENTS_MAX)
#define STORE_HEAD_CAPACITY ((STORE_HEAD_MAX + 7u) & ~7u)

struct store_transfer;
struct store_batch;
struct store_puts;

struct store_session {
    struct store *store;
    struct tree_session *tree;
    uint64_t stamp;       /* unique for each record written */
    struct random random; /* for back-off */
    struct store_buffer value, output;
    struct store_arena arena;
    size_t held, counted; /* bytes of the buffers and the arena; those of them in the store's account */
    struct store_transfer *transfer;  /* owned; while needed */
    struct store_batch *batch;        /* owned; while needed */
    struct store_puts *puts;          /* owned; while needed */
    struct store_raw seen;            /* the slot that the operation under way is about */
    bool (*cancelled)(void *context); /* NULL: never */
    void *cancel_context;
    uint32_t calls; /* since it was last judged what is not needed */
    bool transfer_used, batch_used, puts_used;
    uint8_t head[STORE_HEAD_CAPACITY] __attribute__((aligned(8))); /* the head read last */
};

/* Every public call begins so: the results of the one before end. Returns the time. */
uint64_t store_begin(struct store_session *session);
/* What was in the buffer is lost if it has to grow. */
int store_reserve(struct store_session *session, struct store_buffer *buffer, size_t bytes);
/* 16-byte aligned; NULL when memory is short. */
void *store_arena_take(struct store_session *session, size_t bytes);
void store_arena_reset(struct store_session *session);
int store_fail_memory(struct store_session *session);
int store_key_check(struct store_session *session, const void *key, size_t length);
int store_length_check(struct store_session *session, uint64_t length);
#define store_count_up(session, counter, by) atomic_add_relaxed(&(session)->store->stats.counter, (by))

static inline bool store_expired(uint64_t expires, uint64_t now)
{
    return expires && expires <= now;
}

/* ---- transfer.c ---- */

#define STORE_TRANSFER_MAX 128u
/* Executes READs or WRITEs of any memory nodes, in no order, in one round trip (1 to STORE_TRANSFER_MAX of
 * them; WRITEs to blocks alone that nobody else knows of: they may be done twice). statuses (may be NULL)
 * gets each one's. What a direct fabric returns in place has been copied into the buffer. 0 or the first
 * error. */
int store_transfer(struct store_session *session, struct fabric_command *commands, uint32_t count,
                   int *statuses);

/* ---- record.c ---- */

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

/* ---- read.c ---- */

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
                  const struct store_raw *raw, uint64_t now, enum store_part part, enum store_sink sink,
                  struct store_value *value);
/* Looks the key up until what was found proves itself. Removes it if it has expired. */
int store_fetch(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                enum store_part part, enum store_sink sink, struct store_value *value);

struct store_entry {
    const uint8_t *key, *raw; /* somebody else's, or in the arena */
    size_t key_length, raw_length;
    int status; /* 0, BANYAN_ENOTFOUND (expired), STORE_STALE: has to be fetched by itself; or an error */
    bool large; /* with STORE_STALE: only because it is large */
    struct store_slot slot;
    struct store_value value;
};
#define STORE_BATCH_ENTRIES 256u
/* Bytes of records that a batch of a scan holds. */
#define STORE_BATCH_BYTES ((size_t)4 << 20)
struct store_batch {
    struct store_entry entries[STORE_BATCH_ENTRIES];
    uint32_t count;
    uint32_t posted; /* commands below */
    struct fabric_command commands[STORE_TRANSFER_MAX];
    int statuses[STORE_TRANSFER_MAX];
    uint32_t owners[STORE_TRANSFER_MAX];
};
/* NULL when memory is short. */
struct store_batch *store_batch_get(struct store_session *session);
/* Resolves the batch's entries whose status is 0, their round trips together; values go to the arena. */
void store_batch_resolve(struct store_session *session, uint64_t now, enum store_part part);

/* ---- modify.c ---- */

/* Takes the entry away if its slot still holds exactly this, and frees its record. *removed tells. */
int store_remove_exactly(struct store_session *session, const void *key, size_t key_length,
                         const struct store_raw *raw, bool *removed);
/* The same for one that has expired. Errors are let go: it is removed another time. */
bool store_expire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw);
int store_delete_now(struct store_session *session, const void *key, size_t key_length, uint64_t now);

/* ---- range.c ---- */

/* Runs over a range in batches. */
struct store_cursor {
    struct store_session *session;
    struct tree_range range; /* what is left; its limit is not used */
    enum store_part part;    /* values: a batch ends where its records become many bytes */
    bool count_only; /* collects those entries alone whose expiry stands in their record; counts the others */
    uint64_t now, counted;
    bool done;
    uint8_t bound[FORMAT_KEY_MAX]; /* the range's, once it has moved on */
    uint8_t last[FORMAT_KEY_MAX];
    size_t last_length;
    /* of the batch under way */
    uint32_t met;
    bool stopped;
    size_t bytes;
    int status;
};
/* Fills session->batch (keys and slots in the arena, which is reset) with at most `room` entries and moves
 * on. */
int store_cursor_next(struct store_cursor *cursor, uint32_t room);

#endif
