/*
 * state.h - the object behind owner.h, and what the files of src/owner/ call of each other. Private to
 * src/owner/.
 *
 * TURNS. `changing` is held through a transfer, and through whatever else writes to the map: so one task of
 * the process at a time does. `adopting` is held while a version is fetched and adopted, and while indexes
 * are attached and detached. A task that has `changing` may take `adopting`, never the other way round.
 * Neither is taken in an operation of an index.
 */
#ifndef OWNER_STATE_H
#define OWNER_STATE_H

#include "base/heap.h"
#include "owner/callers.h"
#include "owner/map.h"
#include "owner/owner.h"
#include "owner/turn.h"

#define MILLISECOND UINT64_C(1000000)
#define MICROSECOND UINT64_C(1000)

/* An index that this process has open. */
struct owner_index {
    struct tree *tree; /* borrowed */
    uint16_t number;
    uint32_t users;    /* under owner->lock: tasks that serve an operation of it */
    bool leaving;      /* under owner->lock: no new ones */
    bool broken;       /* under owner->lock, written under `adopting` too: its part of the map contradicts
                          itself */
    char trouble[200]; /* with `broken`: in which entry */
    struct owner_index *next;
};

/* Part of an index under one epoch; heirs.h. */
struct owner_piece {
    uint16_t number;
    bool has_upper;
    uint64_t epoch;
    struct format_key_copy lower, upper;
};
struct owner_pieces {
    struct owner_piece *all; /* owned */
    uint32_t count, capacity;
};

struct owner {
    struct tree_compute *compute;
    struct fabric *fabric;
    struct owner_options options;
    struct fabric_process self;
    struct heap heap;            /* what tasks allocate for a while */
    struct tree *map;            /* owned; set under `adopting`, once */
    const struct owner_log *log; /* borrowed; set before owner_join; NULL: this process cannot inherit */
    void *log_context;

    struct owner_turn changing, adopting;
    struct owner_turn heirs_turn; /* only tried: one task at a time inherits */
    /* under `adopting`; heirs.h: */
    struct owner_pieces inherited; /* from heirs that the map still names */
    struct owner_pieces flushed;   /* moving, and merged */
    struct owner_pieces lent;      /* by their epochs alone: taken since no other could inherit them */
    struct owner_pieces stranded;  /* by their numbers alone: closed before they were merged */
    struct owner_piece under_way;  /* being inherited, while */
    bool inheriting;               /* atomic; written by the task that inherits */
    struct owner_refused *refused; /* owned; under the lock: see refused.h */
    uint32_t refused_count, refused_capacity;
    bool heirs_pending; /* atomic: there is something to inherit, or to take off */
    /* under `adopting`: */
    struct owner_map copy; /* as it was adopted last */
    struct owner_map
        tried;        /* as it was installed last, where adopting it then failed; else without entries */
    uint64_t entered; /* incarnation in which this process said that it is a member; 0: never */
    bool overdue;     /* what it was to merge when it adopted last, it cannot merge any more */
    /* atomic, written under `adopting`: */
    uint64_t reported;      /* version that the board knows it has adopted */
    uint64_t adopted;       /* version of `copy` */
    uint64_t incarnation;   /* ... and before whose fetch it was read; 0: nothing was adopted */
    uint64_t owned, ranges; /* rows of attached indexes in `copy`, as struct owner_stats has them */

    struct spinlock lock;
    struct owner_index *indexes; /* under the lock and the turn `adopting`: either suffices to read */

    struct task *keeper; /* under the lock: while owner_keep runs */
    bool stopping;       /* atomic */
    bool released;       /* atomic: owner_release was called: this process takes nothing any more */
    bool may_lock;       /* atomic, written under `changing`: this process may have the map's lock */
    uint64_t heard;      /* atomic: the greatest version that a peer told of */
    uint64_t given_up;   /* atomic: so many messages with exchanges were not answered to this process */
    struct owner_callers callers;
    uint64_t looked_at; /* atomic: when a waiting task last looked at the board */
    uint64_t counts[sizeof(struct owner_stats) / sizeof(uint64_t)]; /* atomic; struct owner_stats */
};

/* ---- counters (owner.c) ---- */

/* The counter of struct owner_stats. Relaxed: they order nothing. */
#define OWNER_COUNT(owner, field, more)                                                                      \
    ((void)atomic_add_relaxed(&(owner)->counts[offsetof(struct owner_stats, field) / sizeof(uint64_t)],      \
                              (uint64_t)(more)))
#define OWNER_LONGEST(owner, field, value)                                                                   \
    owner_longest(&(owner)->counts[offsetof(struct owner_stats, field) / sizeof(uint64_t)], (value))
void owner_longest(uint64_t *counter, uint64_t value);

/* ---- indexes (owner.c) ---- */

/* The attached index of this tree, or of this number; NULL. Under `adopting`, or the lock. */
struct owner_index *owner_index_of(const struct owner *owner, const struct tree *tree);
struct owner_index *owner_index_numbered(const struct owner *owner, uint16_t number);
/* The same for a task that works on it, until owner_index_put. NULL: not attached (any more). */
struct owner_index *owner_index_get(struct owner *owner, uint16_t number);
void owner_index_put(struct owner *owner, struct owner_index *index);

static inline bool owner_stopping(const struct owner *owner)
{
    return atomic_load_relaxed(&owner->stopping); /* a flag that orders nothing */
}
static inline bool owner_willing(const struct owner *owner)
{
    return owner->options.policy == OWNER_AUTO && !atomic_load_relaxed(&owner->released);
}
static inline uint64_t owner_reported(const struct owner *owner)
{
    return atomic_load_relaxed(&owner->reported); /* outside of `adopting`: a hint */
}
static inline bool owner_nobody(struct fabric_process process)
{
    return process.compute_id == 0;
}

/* Under `adopting`, when the copy or the attached indexes have changed: counts the ranges anew. */
void owner_count_ranges(struct owner *owner);

/* ---- adopt.c ---- */

/* Whether what was adopted is of today's connections. */
bool owner_fresh(const struct owner *owner);
/* Fetches the map and adopts it, if it is not of today's connections or older than `version`. Tells the
 * board. Also resumes the read lease. */
int owner_refresh(struct owner *owner, struct tree_session *session, uint64_t version);
/* The same, and whether it failed since this process is `overdue`: then no later call succeeds before the
 * move is ended. */
int owner_refresh_told(struct owner *owner, struct tree_session *session, uint64_t version, bool *overdue);
/* owner_refresh for keepers and for what waits, under neither turn. Where this process is overdue there may
 * be no other one that ends the move: it takes back what it was to merge, if the map's lock is free. */
int owner_catch_up(struct owner *owner, struct tree_session *session, uint64_t version);
/* Under `adopting`: installs the copy's rows for the index. */
int owner_install(struct owner *owner, struct tree_session *session, struct owner_index *index);
/* Under `adopting`: the same version again, since rows that were MOVING are this process's now (heirs.h). */
int owner_install_again(struct owner *owner, struct tree_session *session, struct owner_index *index);
/* Tells the board whether this process is willing. */
int owner_tell(struct owner *owner, struct tree_session *session);
/* Wakes the keeper. Any thread. */
void owner_wake(struct owner *owner);

/* ---- bury.c ---- */

/* Takes processes off the board that are gone, if it names more than `most` of those: they are fenced at
 * every memory node first. BANYAN_EBUSY: the map's lock is not free, and nothing was done. Calls of this
 * process need not be over, nor must it have joined. Under neither turn. */
int owner_bury(struct owner *owner, struct tree_session *session, uint32_t most);

/* ---- keep.c ---- */

/* Between the parts of what takes long, for a task that holds no turn: adopts what is newer, as notices and
 * peers tell, or the board, which is looked at once a tick. *looked: when; 0 at first. Other processes wait
 * for this one's adopting, and fence it in the end. */
int owner_keep_up(struct owner *owner, struct tree_session *session, uint64_t *looked);

/* ---- takeover.c ---- */

/* Ends what a dead process has begun, and takes over the ranges of processes that are gone (`gone`: of that
 * one; zeros: of none). Only if the map's lock is free: else another does it. *done (may be NULL): something
 * was. */
int owner_mend(struct owner *owner, struct tree_session *session, struct fabric_process gone, bool *done);
/* Whether the process is connected to the home node. */
int owner_alive(struct owner *owner, struct tree_session *session, struct fabric_process process,
                bool *alive);

/* The processes that want ranges and are there, but for one; with `inherit`, those alone that can inherit.
 * *willing is the caller's to free. */
int owner_takers(struct owner *owner, struct tree_session *session, struct fabric_process but, bool inherit,
                 struct fabric_process **willing, uint32_t *count);
/* Sets `next`: each taker gets ranges that lie beside each other; shared and unclaimed where there are none.
 */
void owner_spread(struct format_range *ranges, uint32_t count, const struct fabric_process *takers,
                  uint32_t taker_count);

/* ---- serve.c ---- */

/* Answers one request of a peer: 0 and *reply_length bytes, or the status that it gets. For the fuzzer too.
 */
struct owner_service;
int owner_service_create(struct owner_service **service, struct owner *owner, struct tree_session *session);
void owner_service_destroy(struct owner_service *service);
int owner_service_answer(struct owner_service *service, const struct fabric_peer_request *request,
                         const uint8_t **reply, size_t *reply_length);

/* ---- change.c ---- */

/* What this process has of the index goes to the other willing processes, evenly, or is shared where there
 * are none. */
int owner_give(struct owner *owner, struct tree_session *session, const struct tree *tree);

/* ---- balance.c ---- */

/* owner_balance, and with `idle` only if this process has less than half of its share of an index. */
int owner_balance_step(struct owner *owner, struct tree_session *session, bool idle);

/* Whether the entry of a map of this version is one that a change has left, or is at: it is on its way, or
 * was written and not published, so that no process finds the version by which it could adopt it. */
static inline bool owner_range_unfinished(const struct format_range *range, uint64_t version)
{
    return range->state == FORMAT_RANGE_MOVING || range->version > version;
}

#endif
