/*
 * move.h - moving a node within an operation (R8, move.c). Private to src/tree/; a move by itself is
 * tree_move_node (tree.h).
 */
#ifndef TREE_MOVE_H
#define TREE_MOVE_H

#include "tree/session.h"

/* As tree_move_node, within an operation that has the right to the key and holds no lock: a leaf that is not
 * under that right stays. About eight round trips. May return any of the operation's verdicts (> 0). */
int tree_move_within(struct tree_session *session, struct tree *tree, struct tree_move *move);

#endif
