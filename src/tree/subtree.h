/*
 * subtree.h - placement: on which memory node a new node of an index goes (docs/internals/tree.md,
 * Placement). Private to src/tree/; called by whatever makes nodes: splits, new roots, bulk loads. Nothing
 * but round trips depends on where a node lies, so one whose memory node is full goes elsewhere. Costs what
 * pool_allocate costs, and for the first node of a subtree an RPC to each memory node besides; fails as that
 * does.
 */
#ifndef TREE_SUBTREE_H
#define TREE_SUBTREE_H

#include "tree/index.h"
#include "tree/session.h"

static inline uint32_t tree_node_bytes(const struct tree *tree, uint8_t level)
{
    return level ? tree->layout.geometry.internal_bytes : tree->layout.geometry.leaf_bytes;
}
/* Whether nodes of the level lie on the memory node of the node above them. */
static inline bool tree_level_placed(const struct tree *tree, uint8_t level)
{
    return level < tree->layout.geometry.subtree_levels;
}
/* A block for the sibling of the node `beside`, whose range holds the key. Within a placed subtree: on the
 * memory node of the subtree's highest node, as far as the cache knows it. For the highest node of a new
 * subtree: where tree_subtree_home says. Above subtrees: where little has been given. In an index that is
 * spread: on the node's memory node, unless that has given much more than the others. */
int tree_sibling_allocate(struct tree_session *session, struct tree *tree, uint8_t level, gaddr beside,
                          struct format_key key, gaddr *node);
/* The memory node for a new subtree, by room and load (homes.h). POOL_ANY_NODE: any. One RPC to each memory
 * node. */
uint16_t tree_subtree_home(struct tree_session *session, const struct tree *tree);
/* A leaf with the key has been split, in an operation that has the right to it and holds no lock: what of the
 * way to it does not lie on the memory node of the subtree's highest node moves there, since the subtree has
 * split off another one. Nothing to do costs no round trip, each node that moves about eight. */
void tree_subtree_follow(struct tree_session *session, struct tree *tree, struct format_key key);
/* A block for the first node of a level, above the node `below`; address 0: for a first leaf. */
int tree_top_allocate(struct tree_session *session, const struct tree *tree, uint8_t level, gaddr below,
                      gaddr *node);
/* A block for a long key of the leaf, which an insertion writes in one list with the slot where both lie on
 * one memory node: as the leaf's sibling. */
int tree_key_block_allocate(struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                            uint32_t bytes, gaddr *block);

#endif
