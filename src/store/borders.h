/*
 * borders.h - the border between two ranges moves on by one key, so that the leaf which was the first of a
 * range, and could not move (tree.h: TREE_MOVE_FIRST), is one of the range to its left. Private to
 * src/store/: where `banyan balance --drain` empties a memory node.
 */
#ifndef STORE_BORDERS_H
#define STORE_BORDERS_H

#include "owner/owner.h"
#include "tree/tree.h"

/*
 * The range that begins at the key is cut behind it; what is left of the key becomes the left neighbour's,
 * and one range with it. Three changes of the map (owner.h), each of which leaves a sound one: interrupted,
 * it goes on when it is called again. Where a range is on its way it waits for the map's lock, and ends
 * the changes that processes which are gone have left. *shifted false: no range begins there, or the index is
 * being dropped.
 * Operations of the one key wait meanwhile as for any range that moves; those of other keys of its leaf for
 * the split of that leaf; where the left neighbour is logged, those of all of it, as owner_merge shares it
 * for a while. Fails as the calls of owner.h, and with BANYAN_ENOTFOUND where no key follows.
 */
int store_border_shift(struct owner *owner, struct tree_session *session, struct tree *tree, const void *key,
                       size_t key_length, bool *shifted);

#endif
