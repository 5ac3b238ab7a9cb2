/*
 * session.h - the objects behind store.h, and what every call does with them: buffers that grow and shrink,
 * their account, checks of arguments. Private to src/store/. A session belongs to one task; struct store is
 * shared.
 */
#ifndef STORE_SESSION_H
#define STORE_SESSION_H

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "format/record.h"
#include "store/slot.h"

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

#define STORE_HEADER_CAPACITY ((FORMAT_RECORD_HEADER_MAX + 7u) & ~7u)

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
    uint8_t header[STORE_HEADER_CAPACITY] __attribute__((aligned(8))); /* the record header read last */
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

#endif
