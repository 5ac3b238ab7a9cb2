/*
 * merge.h - two sparse neighbouring leaves become one: R7 (docs/internals/tree.md). Private to src/tree/; the
 * walk that looks for such leaves is merge_walk.c. Called by any task. A merge holds the locks of both
 * leaves, the second of which it takes only if that is free at once; so it never waits while it holds a lock.
 * Fails with the fabric's errors and BANYAN_ECORRUPT.
 */
#ifndef TREE_MERGE_H
#define TREE_MERGE_H

#include "format/header.h"
#include "tree/tree.h"

/* So much of a leaf's slots may be taken after a merge that it is not soon to be split again. */
static inline uint32_t tree_merge_limit(const struct format_layout *layout)
{
    return layout->slots * 3 / 5;
}

/*
 * Moves all entries of the right leaf into the left one, makes that cover both ranges, and gives the right
 * one up; *merged tells. A no-op where the two are no neighbours any more, are at work, or do not fit
 * together. An entry of the parent must lead to the right leaf directly (as in R4, so that exactly one
 * dropped entry frees it). Three round trips where both lie on one memory node, else six, one more for long
 * keys; then the parent's two.
 */
int tree_merge(struct tree_session *session, struct tree *tree, struct format_link left,
               struct format_link right, bool *merged);
/* Under the lock of a leaf marked as merging, whose image is complete: finishes the merge in memory and in
 * the pool. The lock stays held. TREE_RESTART: the right leaf's lock is not free; nothing was done. */
int tree_merge_finish(struct tree_session *session, struct tree *tree, struct format_link link);
/* No lock is held, and this leaf was found to be frozen, with this header: its merge is finished, or it is
 * made live again. Then its entries may be changed, or they are the left neighbour's. Four round trips. */
int tree_merge_thaw(struct tree_session *session, struct tree *tree, struct format_link link,
                    const struct format_header *header);
/* Whether all of a leaf, heads and slots, is of its header's version: a frozen leaf that is not has been
 * emptied in part, and its left neighbour has all of its entries. */
bool tree_merge_whole(const struct format_layout *layout, const uint8_t *image,
                      const struct format_header *header);

#endif
