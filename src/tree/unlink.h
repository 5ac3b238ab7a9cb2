/* unlink.h - empty nodes leave the tree (R4). Private to src/tree/. */
#ifndef TREE_UNLINK_H
#define TREE_UNLINK_H

#include "format/header.h"
#include "tree/locate.h"
#include "tree/lock.h"
#include "tree/tree.h"

/* The node is dead: extends its left neighbour over it, drops it from its parent, frees it. Where it has
 * moved (R8), the left neighbour and the parent, or the root word, come to name its copy. Idempotent: every
 * session that meets the node may call it. `header` is the dead node's, and valid. Fails with the fabric's
 * errors and BANYAN_ECORRUPT. */
int tree_unlink_finish(struct tree_session *session, struct tree *tree, struct format_link link,
                       const struct format_header *header);
/* The same of a dead node that begins at the least key, and that the root word was seen to name: if it still
 * does, it comes to name the node's successor. Nothing is done about a parent. */
int tree_unlink_root(struct tree_session *session, struct tree *tree, struct format_link link,
                     const struct format_header *header);
/* Locks the leaf that holds what lies just below the key, finds it sound, and finishes what is half done
 * there: 0, with its header in the session's image and in *header. Without the lock: TREE_SIDEWAYS, that leaf
 * is dead, and *header is its header; TREE_RESTART, or an error. Two round trips, if the way to it is cached.
 */
int tree_left_lock(struct tree_session *session, struct tree *tree, struct format_key key,
                   struct tree_path *path, struct tree_hold *hold, struct format_header *header);

#endif
