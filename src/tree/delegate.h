/*
 * delegate.h - flat combining (Hendler, Incze, Shavit and Tzafrir, SPAA 2010) over the local locks: a task
 * whose write finds the leaf's local lock held leaves its operation in the lock's queue, and the holder does
 * it with its own, under one lock, with one read and one write-back (docs/internals/locks.md). Private to
 * src/tree/.
 *
 * The holder takes what waits (one round trip if a bucket is not in its image), makes its own change, applies
 * what it has taken to the image, writes everything back in the list that frees the lock, and answers. An
 * operation that needs more than its own slots (a split, an unlinking, a block for its key) or that belongs
 * to another leaf by now is not done: its task then gets the lock, or is told so.
 *
 * The functions of operations run on the holder's thread. They may touch their contexts alone.
 */
#ifndef TREE_DELEGATE_H
#define TREE_DELEGATE_H

#include "format/verdict.h"
#include "tree/lock.h"
#include "tree/tree.h"

/* Operations that one holder does for others: all their writes must fit the list that frees the lock. */
#define TREE_DELEGATE_MAX 48u

/* A write of one key that another task may do. Its own task waits meanwhile. */
struct tree_operation {
    struct tree_operation *next; /* of the same waiter: to be done after this one, or not at all */
    const struct tree *tree;
    struct format_point place; /* of the key, in the leaf that its task wants to change */
    tree_modify_function *function;
    void *context;
    /* what it came to, once it is answered */
    bool done;   /* else nothing was done, and its task has to do it */
    bool wrote;  /* it has changed the image */
    gaddr block; /* of a long key that it has deleted: to be released by its task if status is 0 */
    int status;  /* of an operation that is done: 0, or what its own list would have come to */
};

/* What a holder has taken out of its lock's queue. */
struct tree_taken {
    struct tree_waiter *waiters;
};

/* What the holder itself does to the leaf in the list that it makes. */
struct tree_delegate_leaf {
    struct tree_session *session;
    struct tree *tree;
    gaddr address;
    const struct format_header *header; /* live, and checked under the lock */
    uint8_t *image;
    uint32_t slot;         /* that the list writes already, as a whole; UINT32_MAX: none */
    bool cleared;          /* its entry has been deleted */
    struct format_key key; /* and was this key's */
};

/* Whether writes are delegated at all, in the range that the operation works on. */
bool tree_delegate_on(const struct tree_session *session);
/* Whether something may be waiting: one load. */
static inline bool tree_delegate_waits(const struct tree_hold *hold)
{
    return tree_lock_wanted_there(hold);
}
/* Takes at most `room` operations on the leaf of `link`, all in the buckets of `known` if that is not NULL.
 */
void tree_delegate_take(struct tree_session *session, const struct tree *tree, struct format_link link,
                        const struct tree_hold *hold, uint32_t room, const uint64_t *known,
                        struct tree_taken *taken);
/* Does what was taken on the image, and adds what writes the slots back: at most one command for each
 * operation. What cannot be done is put back into the queue, or answered. */
void tree_delegate_apply(const struct tree_delegate_leaf *leaf, const struct tree_hold *hold,
                         struct tree_taken *taken, struct fabric_command *writes, uint32_t *count);
/* Nothing of it was done, and the lock is still held: puts it back. */
void tree_delegate_return(struct tree_session *session, const struct tree_hold *hold,
                          struct tree_taken *taken);
/* The list with all changes came to `status`: tells those who wait, each what it means for it. */
void tree_delegate_answer(struct tree_session *session, struct tree_taken *taken, int status);
/* For the operation's task, after its answer: its status with a message, and its block released. */
int tree_delegate_result(struct tree_session *session, const struct tree_operation *operation);

#endif
