/*
 * transfer.h - changing the map: under its lock, in steps that any other process can finish or undo
 * (docs/internals/ownership.md, Transfers). Private to src/owner/.
 *
 * A transfer begins, makes any number of the changes below, and ends. It writes under the incarnation in
 * which it was granted the lock; once a connection was lost its writes are refused, and it fails. What it has
 * half done then is the next holder's to finish: every transfer begins with that.
 */
#ifndef OWNER_TRANSFER_H
#define OWNER_TRANSFER_H

#include "owner/state.h"

struct owner_transfer {
    struct owner *owner;
    struct tree_session *session;
    uint64_t grant, incarnation;
    uint64_t version;     /* the board's */
    struct owner_map map; /* as it is in the pool: what this transfer writes is followed */
    uint64_t began;
    uint64_t deadline; /* waiting for others ends then */
};

/* Takes the lock, fences an orphan, fetches the map, and finishes or undoes what is half done in it. With
 * `wait` for as long as the time-out, else BANYAN_EBUSY (without a message) where another has the lock. */
int owner_transfer_begin(struct owner_transfer *transfer, struct owner *owner, struct tree_session *session,
                         bool wait);
/* Gives the lock back; then this process adopts what has changed. Passes `status` on. */
int owner_transfer_end(struct owner_transfer *transfer, int status);
/* The lock alone, for what writes nothing; BANYAN_EBUSY (without a message) where another has it. This
 * process need not have joined. */
int owner_transfer_lock(struct owner_transfer *transfer, struct owner *owner, struct tree_session *session);
int owner_transfer_unlock(struct owner_transfer *transfer, int status);

/* The ranges become what `next` of each says (state and version need not be set): all three steps. Ranges
 * with no entry yet (an index that was never divided) may be among them. */
int owner_transfer_move(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count);
/* Makes borders at these bounds of an attached index, in key order; those that are bounds already are left
 * out.
 */
struct owner_bound {
    uint8_t length;
    uint8_t bytes[OWNER_BOUND_MAX];
};
int owner_transfer_split(struct owner_transfer *transfer, struct owner_index *index,
                         const struct owner_bound *bounds, uint32_t count);
/* The entry at that place of the map and the one to its left become one; both have the same owner. Where they
 * are logged, both have the same epoch, which their changes were logged under, and no heirs. */
int owner_transfer_merge(struct owner_transfer *transfer, uint32_t at);

/* ---- the parts ---- */

/* Writes entries under the next version; does not publish it. */
int owner_transfer_write(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count);
int owner_transfer_remove(struct owner_transfer *transfer, uint32_t at);
int owner_transfer_publish(struct owner_transfer *transfer);
/* Waits until all who lose something by these ranges' move have adopted the published version, or cannot act
 * on an older one any more (fenced everywhere, read lease over). adopted[i] (may be NULL): the owner of the
 * range has adopted it, so it has merged what it was to merge. */
int owner_transfer_await(struct owner_transfer *transfer, const struct format_range *ranges, uint32_t count,
                         bool *adopted);

/* Waits until the process has adopted the version, or does not for as long as one is waited for that loses a
 * range. Nobody is fenced: what follows is right also where it has not. */
int owner_transfer_await_owner(struct owner_transfer *transfer, struct fabric_process process,
                               uint64_t version);

/* ---- move.c ---- */

/* Ends the moves that another process has begun. *changed is false where that was published. */
int owner_transfer_finish(struct owner_transfer *transfer, bool *changed);

#endif
