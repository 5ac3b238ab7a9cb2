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
struct tree_local_lock;
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
    bool global;          /* the lock word is ours already: handed over */
    bool unheard;         /* handed over, and no list has been run under it yet: it may be lost (locks.md) */
    bool handing;         /* release passes it on */
};

/* A session's place in the queue of a local lock. */
struct tree_waiter {
    struct tree_session *session;
    struct task *task;
    struct tree_waiter *next;
    gaddr node;           /* that the waiter wants to change */
    uint64_t incarnation; /* of its operation */
    uint32_t granted;     /* set with release ordering by the releaser, read with acquire by the waiter */
    bool handed, snapshot;
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
/* Runs `writes` (room for one more command is needed behind them) and releases the lock, in the same list, or
 * hands it over with the session's image. The error of the writes is returned; the lock is given up in any
 * case. */
int tree_unlock(struct tree_session *session, struct tree_hold *hold, struct fabric_command *writes,
                uint32_t count);
/* Gives the lock up with nothing written and passes `verdict` on, unless the release failed. What looks
 * corrupt may be a leaf that is no longer ours (another memory node's answers do not tell), so then the lock
 * is not handed over: the answer to its release says whether it was held. */
int tree_unlock_with(struct tree_session *session, struct tree_hold *hold, int verdict);

/* ---- parts of it, for lists of the caller's own (multi.c) ---- */

/* Takes the local lock if it is free. For callers that hold other locks already. */
bool tree_lock_try_local(struct tree_session *session, gaddr node, struct tree_hold *hold);
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

#endif
