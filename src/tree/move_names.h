/*
 * move_names.h - nodes that no parent names. Private to src/tree/: for the walk that moves nodes
 * (move_walk.c).
 *
 * A walk from parents to their children does not come by a node whose separator has not been posted, since
 * the session that split it off has died or lost its connection (R3), nor by the copy of a node whose move
 * was cut short (R8). Operations find both by sibling links, and need no more. A walk that is to leave
 * nothing on a memory node has them named first. One task; one round trip for the nodes of a parent, and what
 * is done costs what it costs others that meet it.
 */
#ifndef TREE_MOVE_NAMES_H
#define TREE_MOVE_NAMES_H

#include "format/header.h"
#include "format/key.h"
#include "tree/tree.h"

#define TREE_FAMILY_MAX 16u

/* Neighbouring nodes of one level that one parent names; or the root. */
struct tree_family {
    struct format_link links[TREE_FAMILY_MAX];
    struct format_key_copy keys[TREE_FAMILY_MAX];
    uint32_t count;
    struct format_key_copy next; /* what lies to the right begins with */
    bool last;                   /* nothing does: the level ends here */
};

/* Within an operation. Reads the headers of all; where one ends before the next begins, posts the separator
 * that is missing. *half_done: one that is dead or marked, for tree_move_names_finish; `count` if there is
 * none. *changed: the parent is to be read again. May return any of the operation's verdicts (> 0). */
int tree_move_names_post(struct tree_session *session, struct tree *tree, uint8_t level,
                         const struct tree_family *family, uint32_t *half_done, bool *changed);
/* In no operation. What is half done of that one is finished, by the compute node that has the right to it.
 * *outcome other than TREE_MOVE_THERE and _ELSEWHERE: it is not. */
int tree_move_names_finish(struct tree_session *session, struct tree *tree, uint8_t level,
                           const struct tree_family *family, uint32_t number,
                           enum tree_move_outcome *outcome);

#endif
