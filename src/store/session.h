/*
 * session.h - the objects behind store.h, and what every call needs of them: buffers that grow and shrink,
 * the account of their bytes, checks of arguments. Private to src/store/. A session belongs to one task;
 * struct store is shared by all threads.
 */
#ifndef STORE_SESSION_H
#define STORE_SESSION_H

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "format/record.h"
#include "pool/pool.h"
#include "store/cuts.h"
#include "store/slot.h"

struct store {
    struct tree *tree;
    uint32_t slot_bytes; /* room for a value in the index */
    uint64_t (*now)(void *context);
    void *clock_context;
    struct store_stats stats; /* relaxed atomics: they are counted and read, and order nothing */
    uint64_t memory_max;      /* of stats.memory; relaxed, since a call may miss a change just made */
    uint8_t apart[64]; /* each change looks at the cuts, and should not wait for the line of the counters */
    struct store_cuts cuts;
};

/* Grows as needed; a large one is freed after the call. */
struct store_buffer {
    uint8_t *bytes; /* 64-byte aligned */
    size_t capacity;
};

/* Memory that stays allocated until the session's next call. */
struct store_chunk {
    struct store_chunk *next;
    size_t capacity, used;
    uint8_t bytes[] __attribute__((aligned(16)));
};
struct store_arena {
    struct store_chunk *chunks; /* the newest first */
    size_t capacity;            /* of all chunks */
};

struct store_transfer;
struct store_batch;
struct store_puts;

struct store_session {
    struct store *store;
    struct tree_session *tree;
    uint64_t stamp;       /* unique for each record written */
    struct random random; /* for back-off */
    struct store_buffer value, output;
    struct store_buffer header;         /* the record header read last */
    struct store_buffer pieces, placed; /* of the headers read and written last: pieces.h, layout.c */
    struct store_buffer at_hand;        /* WRITEs of the value in pieces that was written last */
    struct store_arena arena;
    size_t held, counted; /* bytes of the buffers and the arena; how many of them stats.memory counts */
    struct store_transfer *transfer; /* owned, as batch and puts are; freed when not needed for a while */
    struct store_batch *batch;
    struct store_puts *puts;
    struct store_raw seen;            /* the slot that the operation under way is about */
    bool (*cancelled)(void *context); /* NULL: never */
    void *cancel_context;
    store_changed_function *changed;       /* NULL: nothing is told */
    store_placed_function *changed_placed; /* NULL: never; its context is that of `changed` */
    void *changed_context;
    struct store_guard guard;
    struct store_session *saver; /* owned; NULL: not needed yet. See guard.c */
    bool here;                   /* reads what this process owns alone, and asks no other: a guest's */
    bool used;                   /* of a guest: some change has it; under the lock of the store's cuts */
    struct store_session *next;  /* of a guest; guest.c */
    uint32_t calls;              /* since unused buffers were last freed */
    bool transfer_used, batch_used, puts_used;
};

/* Before each batch of a call that has many: gives way, except before the first (round 0), and asks whether
 * the call is cancelled: BANYAN_EABORT. */
int store_turn(struct store_session *session, unsigned round);
/* Every public call begins with this: it ends the results of the call before. Returns the time. */
uint64_t store_begin(struct store_session *session);
/* The same for a call that judges no expiry, so that it reads no clock. */
void store_begin_untimed(struct store_session *session);
/* The buffer loses its content if it has to grow. BANYAN_ENOMEM. */
int store_reserve(struct store_session *session, struct store_buffer *buffer, size_t bytes);
/* The same, and the content stays. */
int store_reserve_more(struct store_session *session, struct store_buffer *buffer, size_t bytes);
/* 16-byte aligned; NULL when memory is short. */
void *store_arena_take(struct store_session *session, size_t bytes);
void store_arena_reset(struct store_session *session);
/* All memory that it holds. */
void store_session_buffers_free(struct store_session *session);
int store_fail_memory(struct store_session *session);
int store_key_check(struct store_session *session, const void *key, size_t length);
int store_length_check(struct store_session *session, uint64_t length);
#define store_count_up(session, counter, by) atomic_add_relaxed(&(session)->store->stats.counter, (by))

static inline void store_changed(struct store_session *session, const void *key, size_t key_length)
{
    if (session->changed)
        session->changed(session->changed_context, key, key_length);
}

static inline bool store_expired(uint64_t expires, uint64_t now)
{
    return expires && expires <= now;
}

#endif
