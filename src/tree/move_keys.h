/*
 * move_keys.h - the blocks of a leaf's long keys leave a memory node: tree_move_node where `to` is
 * POOL_ANY_NODE. Private to src/tree/.
 */
#ifndef TREE_MOVE_KEYS_H
#define TREE_MOVE_KEYS_H

#include "format/header.h"
#include "tree/tree.h"

#define TREE_MOVE_KEYS_MAX 16u

/* Keys of one leaf whose blocks lie on the memory node. */
struct tree_move_keys {
    uint32_t count;
    bool more; /* than there was room for */
    struct {
        gaddr block;
        struct format_key_copy key;
    } items[TREE_MOVE_KEYS_MAX];
};

/* Whether a slot of the key's leaf names a block of that memory node, as a READ without a lock tells: true
 * where it tells nothing. A hint, that needs no right. One round trip. */
int tree_move_keys_look(struct tree_session *session, struct tree *tree, struct format_key key, uint16_t from,
                        bool *names);
/* Within an operation that has the right to the key's leaf: which keys these are. As tree_leaf_take; the lock
 * is not held afterwards. */
int tree_move_keys_find(struct tree_session *session, struct tree *tree, struct format_key key, uint16_t from,
                        struct tree_move_keys *keys);
/* When that operation is over: gives them other blocks, as far as they still have these. *moved: how many. */
int tree_move_keys_run(struct tree_session *session, struct tree *tree, const struct tree_move_keys *keys,
                       uint32_t *moved);

#endif
