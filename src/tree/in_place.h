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

/* A key in a leaf that was found in place. */
struct tree_in_place {
    struct format_point point;
    struct tree_spot spot;
    bool full; /* the last change found no slot for the key: the leaf must be split */
};

/* Finds the leaf that `link` names, and asks for the cache lines that the operation on the key will touch:
 * for several keys, before the first of them is worked on. False: no such bytes. */
bool tree_in_place_find(struct tree_session *session, struct tree *tree, struct format_link link,
                        struct format_key key, bool change, struct tree_in_place *place);
/* R1: true, with the key's slot in the session's image, and the read counted; false says nothing, and counts
 * nothing. */
bool tree_in_place_hit(struct tree_session *session, struct tree *tree, const struct tree_in_place *place,
                       struct format_slot *slot);
/*
 * The change of one key, found for a change, if that needs no more than the leaf's latch, which is
 * free, and one slot: 0, done. TREE_BY_LOCK: nothing was done (the function may have been called), and the
 * leaf's lock has to be taken: a task holds it; the leaf is not live, or not the key's; a slot or the header
 * fails its check; it must be split, or may be empty; a block has to be made for the key; the value is none
 * of the index. Allocates nothing. `placed` (may be NULL) is called with the same context where the change is
 * done, before the latch is given up.
 */
int tree_in_place_change(struct tree_session *session, struct tree *tree, struct tree_in_place *place,
                         tree_modify_function *function, tree_placed_function *placed, void *context);
/*
 * Puts of ascending keys under one latch, each as tree_in_place_change would do it, with the function's
 * context being the item: returns how many were done, from the first on. None where fewer than `least` of
 * them, which is at least 1, are of this leaf. *full: the first that was not done has found its bucket full.
 * `count`: at least `least`, and so few that other threads can wait for all of them.
 */
uint32_t tree_in_place_run(struct tree_session *session, struct tree *tree, struct format_link link,
                           struct tree_item *items, uint32_t count, uint32_t least,
                           tree_modify_function *function, bool *full);

#endif
