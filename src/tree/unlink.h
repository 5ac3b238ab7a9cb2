/* unlink.h - empty nodes leave the tree (R4). Private to src/tree/. */
#ifndef TREE_UNLINK_H
#define TREE_UNLINK_H

#include "format/header.h"
#include "tree/tree.h"

/* The node is dead: extends its left neighbour over it, drops it from its parent, frees it. Idempotent: every
 * session that meets the node may call it. `header` is the dead node's, and valid. Fails with the fabric's
 * errors and BANYAN_ECORRUPT. */
int tree_unlink_finish(struct tree_session *session, struct tree *tree, struct format_link link,
                       const struct format_header *header);

#endif
