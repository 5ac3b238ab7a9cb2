/*
 * in_place.h - point writes and reads of leaves that are reached in place (access.h): the plain case of
 * modify.c and lookup.c, in some hundred instructions. What is not plain is left to them. Private to
 * src/tree/; called by the operation's task, under a right that gives an access in place.
 */
#ifndef TREE_IN_PLACE_H
#define TREE_IN_PLACE_H

#include "format/verdict.h"
#include "tree/access.h"
#include "tree/tree.h"

/*
 * The change of one key in the leaf that `link` names, if that needs no more than the leaf's latch, which is
 * free, and one slot: 0, done. TREE_BY_LOCK: nothing was done (the function may have been called), and the
 * leaf's lock has to be taken: a task holds it; the leaf is not live, or not the key's; a slot or the header
 * fails its check; it must be split, or may be empty; a block has to be made for the key; the value is none
 * of the index. Allocates nothing.
 */
int tree_change_in_place(struct tree_session *session, struct tree *tree, struct format_link link,
                         struct format_key key, tree_modify_function *function, void *context);

#endif
