/*
 * split.h - leaf splits (R3). Private to src/tree/. A split costs two round trips under the leaf's lock, and
 * what the entry in the parent costs (parent.h). BANYAN_ENOSPC leaves the leaf as it was.
 */
#ifndef TREE_SPLIT_H
#define TREE_SPLIT_H

#include "format/header.h"
#include "tree/lock.h"
#include "tree/tree.h"

/* Items of one call of tree_multi_put, whose keys and values are good and whose keys ascend. Where the
 * addition is appended, and leaves can be written for next to nothing, they go with it into whole leaves, as
 * many as there is room for (chain.h). */
struct tree_run {
    struct tree_item *items;
    size_t count;
    size_t taken; /* out, where the addition is in: so many, from the first on, are in as well */
};
struct tree_addition {
    struct format_key key, value;
    struct tree_run *run; /* behind it; NULL: nothing */
};
/* Under the lock, image complete and valid: splits, puts the addition (NULL key: none) where it belongs if
 * there is room, *added tells, and releases the lock. Posts the separator to the parent. */
int tree_split(struct tree_session *session, struct tree *tree, struct format_link link,
               struct tree_hold *hold, const struct tree_addition *addition, bool *added);
/* The same with no addition, at this key, which lies in the leaf behind its lower fence: for a border (O3).
 * Any number of entries may be on either side. Other than tree_split it fails where the parent's entry cannot
 * be posted. */
int tree_split_at(struct tree_session *session, struct tree *tree, struct format_link link,
                  struct tree_hold *hold, struct format_key key);
/*
 * R8: a split at the leaf's lower fence, by which all of it goes to `copy`, a block on another memory node;
 * the leaf is dead then, and described in *dead, whose keys lie in *lower. What is left is
 * tree_unlink_finish's. BANYAN_ENOSPC: no tag lets so many entries fit; nothing was done. After any error the
 * block is given back, unless it may have been linked.
 */
int tree_split_away(struct tree_session *session, struct tree *tree, struct format_link link,
                    struct tree_hold *hold, gaddr copy, struct format_key_copy *lower,
                    struct format_header *dead);
/* Under the lock of a leaf marked as splitting, whose image is complete: finishes it in memory and in the
 * pool. The lock stays held. */
int tree_split_finish(struct tree_session *session, struct tree *tree, struct format_link link);

#endif
