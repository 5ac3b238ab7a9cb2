/*
 * leaf.h - what every change of a leaf begins with (modify.c), for the files that change leaves in other ways
 * than modify.c does. Private to src/tree/. The session's image is the leaf's.
 */
#ifndef TREE_LEAF_H
#define TREE_LEAF_H

#include "format/header.h"
#include "tree/lock.h"
#include "tree/rights.h"
#include "tree/tree.h"

struct tree_run;

/* Under the leaf's lock: reads what the image lacks (all buckets, header). One round trip, or none. */
int tree_leaf_complete(struct tree_session *session, struct tree *tree, gaddr leaf);
/* A leaf's header, read with the right to change it: 0, TREE_RESTART (another node, dead, torn), or
 * BANYAN_ECORRUPT. */
int tree_leaf_validate(struct tree_session *session, struct tree *tree, struct format_link link,
                       struct format_header *header);
/* Under the lock of a leaf that has been validated: finishes the split (R3) or the merge (R7) that a death
 * left half done there, if any, and validates the header again; the lock stays held. Else as
 * tree_leaf_validate, and TREE_RESTART where another session is at the merge. */
int tree_leaf_mend(struct tree_session *session, struct tree *tree, struct format_link link,
                   struct format_header *header);
/* A change that needs no more than what the key holds: by the function, or by the exchange, which says the
 * same, where the range is another's or a memory node makes the change (exchanging.h). *asked: its owner has
 * done it. `placed` (may be NULL): as in tree_in_place_change, if the change is done there. `run` (may be
 * NULL): of split.h, if the key is appended to the index; run->taken is 0 before the call. */
int tree_change(struct tree_session *session, struct tree *tree, tree_modify_function *function,
                tree_placed_function *placed, void *context, struct tree_exchange *exchange,
                struct tree_run *run, bool *asked);
/* A function that changes nothing, for a look at the key behind all changes of it that are under way. */
enum tree_verdict tree_keep(void *context, const void *old, size_t old_length, void *value, size_t *length);
/* Whether no slot of these is taken but one; they have been found valid. */
bool tree_only_entry(const struct format_layout *layout, const uint8_t *image, uint32_t seed, uint32_t first,
                     uint32_t count, uint32_t except);
/* Takes the leaf's lock with the whole leaf in the image, and finishes what is half done there: 0 with a live
 * leaf and its lock held. Else the lock is not held: TREE_RESTART (the header tells whether it is dead), or
 * an error. */
int tree_leaf_take(struct tree_session *session, struct tree *tree, struct format_link link,
                   struct tree_hold *hold, struct format_header *header);
/* Takes the leaf's lock, finishes what is half done there and releases the lock: for readers that have met a
 * mark, or slots that do not fit, many times. TREE_RESTART: the way to the leaf may lead elsewhere now, or
 * has led astray, to a leaf of another row whose slots others write. */
int tree_leaf_settle(struct tree_session *session, struct tree *tree, struct format_link link);

#endif
