/*
 * parent.h - entries of internal nodes, and the locks under which they change. Private to src/tree/. Two
 * round trips under the node's lock, and one more to see that a child lives. Inner nodes do not go through
 * access.h: they are shared by all compute nodes, whichever of them serves the leaves.
 */
#ifndef TREE_PARENT_H
#define TREE_PARENT_H

#include "tree/locate.h"
#include "tree/lock.h"

/* Locks the internal node of `level` that covers the key (before: what lies just below it), its image in
 * session->scratch, and decodes it into *header and session->internal. TREE_LOW: the tree is not that high.
 * TREE_DEAD (with `before` alone): *header is that of the dead node at path->link, and no lock is held. */
int tree_internal_lock(struct tree_session *session, struct tree *tree, struct format_key key, bool before,
                       uint8_t level, struct tree_path *path, struct tree_hold *hold,
                       struct format_header *header);
/* The separator and its link appear on `level`; a no-op if they are there. Grows the tree where it is not
 * that high. */
int tree_parent_insert(struct tree_session *session, struct tree *tree, uint8_t level,
                       struct format_key separator, struct format_link link);
/* A dead node names the one that is to be the root instead: its copy (R8), or the root of what was bulk
 * loaded into an empty index. That becomes the root, if the dead node, which is of this level, still is;
 * *followed tells. Five round trips; three where it is not. */
int tree_root_follow(struct tree_session *session, struct tree *tree, struct format_link root, uint8_t level,
                     gaddr successor, bool *followed);
/*
 * The same for leaves that this operation has just split off, one behind the other, without the round trip
 * that sees whether one lives, where that is known: in an owned range nobody but this process kills leaves
 * (O5), and it has begun to kill none since they were made. `deaths`: tree_leaf_deaths before they could be
 * met. *posted: so many, from the first on, have their entries where it returns 0: at least one, and as many
 * as go into the node of the first.
 */
struct tree_child {
    struct format_key separator;
    struct format_link link;
};
int tree_parent_insert_fresh(struct tree_session *session, struct tree *tree,
                             const struct tree_child *children, uint32_t count, uint64_t deaths,
                             uint32_t *posted);
uint64_t tree_leaf_deaths(const struct tree_session *session);
/* Before the list that kills a leaf is posted. */
void tree_leaf_death(struct tree_session *session);
/* The link to a dead node disappears from `level`, and the session that made it disappear frees the node; a
 * no-op if the link is gone. */
int tree_parent_drop(struct tree_session *session, struct tree *tree, uint8_t level, struct format_key lower,
                     struct format_link link);

#endif
