/*
 * lock.h - the locks of nodes: local queues over global words (Sherman's HOCL, §4.3;
 * docs/internals/locks.md). Private to src/tree/. The lock table is shared by all sessions of a compute node
 * and thread-safe. Taking a lock costs a round trip, unless a task of this compute node hands it over;
 * releasing it costs one. Waits for the lock's holders; fails with the fabric's errors.
 */
#ifndef TREE_LOCK_H
#define TREE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

struct task;
struct tree;
struct tree_local_lock;
struct tree_lock_shard;
struct tree_operation;
struct tree_lock_table;
struct tree_session;

#define TREE_LOCK_READS_MAX 3u /* that tree_lock runs with the CAS */

/* A lock held, or about to be. */
struct tree_hold {
    gaddr word;     /* of the 8 bytes that hold the lock */
    uint32_t shift; /* of the lock within them */
    uint64_t mask;
    struct tree_local_lock *local;
    uint64_t incarnation; /* under which the word is taken: of the operation that holds the lock */
    bool global;          /* the lock is ours; in an owned range, the local one is all there is */
    bool owned;           /* of a leaf in an owned range: there is no global lock (O5) */
    bool unheard;         /* handed over, and no list has been run under it yet: it may be lost (locks.md) */
    bool handing;         /* release passes it on */
};

/* What a waiter waits for, and how far the releaser is with it. */
enum tree_waiter_state {
    TREE_WAITER_QUEUED,  /* set by the waiter, which looks here for a while before it parks */
    TREE_WAITER_PARKED,  /* it has to be unparked */
    TREE_WAITER_GRANTED, /* and is about to be */
    TREE_WAITER_DONE     /* from here on waiter and task belong to their owner again */
};

/* A place in the queue of a local lock. */
struct tree_waiter {
    struct tree_session *session;
    struct task *task;
    struct tree_waiter *next;
    gaddr node;           /* that the waiter wants to change */
    uint64_t incarnation; /* of its operation */
    /* What the lock's holder may do in the waiter's stead, all for one leaf of `tree` (delegate.h); NULL: the
     * waiter wants the lock itself. */
    const struct tree *tree;
    struct tree_operation *operations;
    uint32_t count; /* of operations */
    bool guest;     /* leaves operations here, and never takes the lock */
    uint8_t passed; /* guests: how often the lock went to a waiter behind */
    uint32_t state; /* enum tree_waiter_state; set with release ordering, read with acquire by the waiter */
    bool handed, snapshot;
    bool answered; /* it has not got the lock: its operations say what they came to */
    /* For what moves between cores: task_thread of the waiter and of the task that woke it, and the cache
     * lines of the image that came with the lock. */
    uint32_t thread, waker, lines;
};

struct tree_lock_table *tree_lock_table_create(void);
void tree_lock_table_destroy(struct tree_lock_table *table);

/* ---- one lock ---- */

/* Takes the lock of a node and runs `reads` (of the same memory node) once it is held: together with the CAS
 * where everything is combined. With `wanted` the releaser may hand over its image of this leaf: then
 * hold->global is set, image->address is `node`, and the reads are left to the caller. 0 with the lock held,
 * or an error without. */
int tree_lock(struct tree_session *session, gaddr node, bool wanted, struct fabric_command *reads,
              uint32_t count, struct tree_hold *hold);
/* The same, for an operation on a leaf that may be done by another holder of the lock: it is left in the
 * queue if the local lock is held. TREE_ANSWERED: the lock is not held, and the operation says what it came
 * to. Costs no round trip then. `operation` may be NULL. */
int tree_lock_or_leave(struct tree_session *session, gaddr node, struct tree_operation *operation,
                       struct fabric_command *reads, uint32_t count, struct tree_hold *hold);
/* Runs `writes` (room for one more command is needed behind them) and releases the lock, in the same list, or
 * hands it over with the session's image. The error of the writes is returned; the lock is given up in any
 * case. */
int tree_unlock(struct tree_session *session, struct tree_hold *hold, struct fabric_command *writes,
                uint32_t count);
/* Gives the lock up with nothing written and passes `verdict` on, unless the release failed. What looks
 * corrupt may be a leaf that is no longer ours (another memory node's answers do not tell), so then the lock
 * is not handed over: the answer to its release says whether it was held. */
int tree_unlock_with(struct tree_session *session, struct tree_hold *hold, int verdict);

/* ---- the lock of a leaf in an owned range (O5) ---- */

/* As tree_lock and tree_lock_or_leave, by the local queue alone, whose name no global lock has: tasks of this
 * compute node exclude each other. No round trip; all reads are left to the caller, but for an image that was
 * handed over (session->waiter.snapshot). */
int tree_lock_owned(struct tree_session *session, gaddr node, bool wanted, struct tree_operation *operation,
                    struct tree_hold *hold);
/* What was written is done, or is not known to be, and then the session's image has been forgotten. */
void tree_unlock_owned(struct tree_session *session, struct tree_hold *hold);
/* The leaf whose lock it is. */
gaddr tree_hold_leaf(const struct tree_hold *hold);

/* ---- the latch of such a leaf: for a change in place (access.h) ---- */

/* Takes the leaf's local lock for some hundred instructions that do not suspend (some thousand for a few
 * puts, put.c), without a place in its queue: the spin lock that guards the queue itself. Other threads that
 * want the lock of this leaf, or of one that shares the queue's place, spin meanwhile. NULL: a task holds the
 * lock. */
struct tree_lock_shard *tree_latch_try(struct tree_session *session, gaddr leaf);
/* Called under the latch, behind the change: takes some hundred instructions at most, and does not suspend.
 */
typedef void tree_placed_function(void *context);
/* Prefetches what tree_latch_try will touch. */
void tree_latch_prefetch(const struct tree_session *session, gaddr leaf);
/* With `fence` everything that was stored under the latch can be seen by all threads before the caller goes
 * on. */
void tree_latch_leave(struct tree_lock_shard *shard, bool fence);

/* ---- parts of it, for lists of the caller's own (multi.c) ---- */

/* Takes the local lock if it is free: of the global lock, or with `owned` that of a leaf in an owned range,
 * which then is all. For callers that hold other locks already. */
bool tree_lock_try_local(struct tree_session *session, gaddr node, bool owned, struct tree_hold *hold);
/* Takes the local lock if it is free, else leaves the waiter's operations in its queue, as a guest; waiter's
 * tree, operations and count are the caller's. TREE_ANSWERED: they were left, and tree_lock_await waits for
 * what becomes of them; else as above. A guest's task may hold other locks when it leaves its operations, and
 * none when it waits for them. BANYAN_ENOMEM. */
int tree_lock_try_or_leave(struct tree_session *session, gaddr node, bool owned, struct tree_waiter *waiter,
                           struct tree_hold *hold);
void tree_lock_await(struct tree_session *session, struct tree_waiter *waiter);
void tree_lock_abandon_local(struct tree_session *session, struct tree_hold *hold);
/* Where the node's global lock is; nodes may share one. */
gaddr tree_lock_name(const struct tree_session *session, gaddr node);
struct fabric_command tree_lock_command(const struct tree_session *session, const struct tree_hold *hold);
struct fabric_command tree_unlock_command(const struct tree_session *session, const struct tree_hold *hold);
/* A list whose first command was `lock` failed: frees the lock if that command had taken it before. */
void tree_lock_give_back(struct tree_session *session, const struct tree_hold *hold,
                         const struct fabric_command *lock, int status);
/* A list whose last command was the unlock came to `status`: makes sure that the lock is free, and gives up
 * the local one. */
void tree_lock_abandon(struct tree_session *session, struct tree_hold *hold, int status);

/* ---- operations left in the queue, for the lock's holder (delegate.c) ---- */

/* What the holder can do. */
struct tree_lock_wanted {
    const struct tree *tree;
    gaddr node;
    uint32_t tag;
    uint32_t room;         /* for so many operations */
    const uint64_t *known; /* NULL, or the buckets in which they must lie, as bits */
};
/* Whether there may be some: a hint that costs one load. */
bool tree_lock_wanted_there(const struct tree_hold *hold);
/* Takes waiters out of the queue whose operations the holder can do, in the queue's order, linked by `next`.
 * Each must be answered or put back. */
struct tree_waiter *tree_lock_take(struct tree_session *session, const struct tree_hold *hold,
                                   const struct tree_lock_wanted *wanted);
/* Before the lock is released: the waiters' operations have not been done; they wait at the queue's head
 * again, in this order. */
void tree_lock_put_back(struct tree_session *session, const struct tree_hold *hold,
                        struct tree_waiter *waiters);
/* The waiters' operations say what they came to; wakes their tasks. */
void tree_lock_answer(struct tree_waiter *waiters);

#endif
