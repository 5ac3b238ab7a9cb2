/* subtree.c - see subtree.h. */
#include "tree/subtree.h"

int tree_sibling_allocate(struct tree_session *session, const struct tree *tree, uint8_t level, gaddr beside,
                          gaddr *node)
{
    const uint32_t bytes = tree_node_bytes(tree, level);
    const uint16_t own = gaddr_node(beside);
    if (tree_level_placed(tree, level))
        return pool_allocate_beside(&session->pool, own, bytes, node);
    /* Above placed subtrees nodes are few, and nobody fetches two of them at once. */
    const bool spread = !tree->layout.geometry.subtree_levels;
    return pool_allocate(&session->pool, spread ? own : POOL_ANY_NODE, bytes, node);
}

int tree_top_allocate(struct tree_session *session, const struct tree *tree, uint8_t level, gaddr below,
                      gaddr *node)
{
    const uint32_t bytes = tree_node_bytes(tree, level);
    if (below != GADDR_NULL && tree_level_placed(tree, level))
        return pool_allocate_beside(&session->pool, gaddr_node(below), bytes, node);
    return pool_allocate(&session->pool, POOL_ANY_NODE, bytes, node);
}

int tree_key_block_allocate(struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                            uint32_t bytes, gaddr *block)
{
    return layout->geometry.subtree_levels ? pool_block_allocate_beside(&session->pool, leaf, bytes, block)
                                           : pool_block_allocate(&session->pool, leaf, bytes, block);
}
