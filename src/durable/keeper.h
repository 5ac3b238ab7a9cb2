/*
 * keeper.h - keeps a store's keys on a disk: copies those that the feed names, with the values that they have
 * by then, into a journal; makes checkpoints, which end the journal's older part (rules K1 to K8,
 * docs/internals/durability.md). It is for a server that has its memory nodes in its own process: what it has
 * done is in their memory at once, so no owner's log is needed.
 *
 * THE KEEPER belongs to one task at a time, the leader (feed_lead), which makes all calls but those that name
 * another; keeper_pass blocks its thread on a real disk. THE CHECKPOINT is written by another task, with a
 * session of its own, between checkpoint_begin and checkpoint_end, which are the keeper's.
 *
 * COST, of a pass: for each key that was marked since the last one, however often it was changed, its bytes
 * in the journal; and a read of it, unless its value came with the mark (K8). A sync: one write and one sync
 * of the disk.
 */
#ifndef DURABLE_KEEPER_H
#define DURABLE_KEEPER_H

#include "disk/journal.h"
#include "disk/manifest.h"
#include "durable/feed.h"
#include "store/store.h"

struct keeper;

struct keeper_parts { /* borrowed */
    struct disk *disk;
    struct journal *journal;
    struct manifest *manifest; /* the present one; changed and freed by the keeper's owner alone */
    struct feed *feed;
    uint16_t index; /* the number that its keys have in the journal */
    uint64_t
        limit; /* of the directory: the journal leaves room for a checkpoint beside the last one; 0: none */
};
int keeper_create(struct keeper **keeper, const struct keeper_parts *parts, struct error *error);
void keeper_destroy(struct keeper *keeper);
/* The keeper's: bytes of the last checkpoint, and of what the journal has behind it. */
uint64_t keeper_checkpoint_bytes(const struct keeper *keeper);
uint64_t keeper_journal_bytes(const struct keeper *keeper);

/*
 * Takes what is marked, and appends it to the journal; then syncs, and tells the feed. 0: everything that was
 * marked before the call is safe. BANYAN_ENOSPC: the disk has no room; what was taken is kept, and goes with
 * the next pass. Any other error is for ever. The feed is told of both. BANYAN_EBUSY: the journal has all
 * that the limit leaves it, and the rest of what was taken goes when a checkpoint has made room; the feed is
 * told nothing.
 */
int keeper_pass(struct keeper *keeper, struct store_session *session, struct error *error);
/* The same for a task that has others beside it on its thread: does not suspend between two batches of keys,
 * since these others would change more, and wait for the next pass. */
int keeper_pass_at_once(struct keeper *keeper, struct store_session *session, struct error *error);
/* The same as keeper_pass, but the journal may take all of the limit, because the pass ends a checkpoint or a
 * life. */
int keeper_pass_beyond(struct keeper *keeper, struct store_session *session, struct error *error);

/* ---- checkpoints ---- */

struct checkpoint;

/* The keeper: begins one. Everything that was changed before counts as in it. */
int checkpoint_begin(struct checkpoint **checkpoint, struct keeper *keeper, struct error *error);
/* Any task: copies so many more keys, in their order. 1: more are to come; 0: it is written, and synced. */
int checkpoint_step(struct checkpoint *checkpoint, struct store_session *session, uint32_t keys,
                    struct error *error);
/* The keeper, when a step has returned 0, or an error (`whole` false: it is given up). After a whole one it
 * makes a pass, replaces the manifest, and releases the journal. Frees the checkpoint. */
int checkpoint_end(struct checkpoint *checkpoint, struct store_session *session, bool whole,
                   struct error *error);

struct keeper_stats {
    uint64_t keys, deleted;                     /* copied into the journal */
    uint64_t bytes;                             /* appended */
    uint64_t journal_bytes;                     /* that the next life would read */
    uint64_t checkpoint_keys, checkpoint_bytes; /* of the last one that this life has made */
    uint64_t syncs, sync_ns, sync_longest_ns;
};
/* Any thread. */
void keeper_stats(const struct keeper *keeper, struct keeper_stats *stats);

#endif
