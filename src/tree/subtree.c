/* subtree.c - see subtree.h. */
#include "tree/subtree.h"

#include "base/epoch.h"
#include "memory/request.h"
#include "tree/cache.h"
#include "tree/homes.h"
#include "tree/locate.h"
#include "tree/move.h"
#include "tree/session.h"

/* The way from the highest node of a subtree down to a key's leaf, as far as the cache knows it. */
struct way {
    uint8_t top;    /* level */
    uint8_t lowest; /* the lowest level that is known */
    gaddr nodes[FORMAT_SUBTREE_LEVELS_MAX];
};

/* The child that a cached node names for the key; GADDR_NULL: it is not cached, or out of date. */
static struct format_link child_known(struct tree_session *session, struct tree *tree,
                                      struct format_link link, uint8_t level, struct format_key key)
{
    const struct format_layout *layout = &tree->layout;
    struct tree_key_room room;
    struct tree_frame *frame = tree_frame_find(session, tree, link);
    if (!frame || frame->level != level ||
        format_key_compare(key, tree_frame_key(layout, frame, 0, &room)) < 0 ||
        (frame->has_upper &&
         format_key_compare(key, tree_frame_key(layout, frame, frame->count, &room)) >= 0))
        return (struct format_link){0};
    return tree_frame_link(frame, tree_frame_search(layout, frame, key, false));
}

/* False: not even the subtree's highest node is known. No round trips. */
static bool way_find(struct tree_session *session, struct tree *tree, struct format_key key, struct way *way)
{
    const uint8_t top = (uint8_t)(tree->layout.geometry.subtree_levels - 1);
    struct format_link link;
    uint8_t level;
    if (!tree_root_known(tree, &link, &level))
        return false;
    way->top = level < top ? level : top;
    way->lowest = FORMAT_SUBTREE_LEVELS_MAX;
    epoch_enter(session->pool.epoch);
    for (; link.address != GADDR_NULL; level--) {
        if (level <= way->top)
            way->nodes[way->lowest = level] = link.address;
        if (!level)
            break;
        link = child_known(session, tree, link, level, key);
    }
    epoch_leave(session->pool.epoch);
    return way->lowest <= way->top;
}

/* ---- where nodes go ---- */

static void home_look(struct tree_session *session, uint16_t number, struct home *home)
{
    struct memory_status_reply reply;
    struct tree_walks_figures figures;
    *home = (struct home){0};
    if (fabric_membership(session->pool.fabric, number) != FABRIC_MEMBER ||
        pool_node_status(&session->pool, number, &reply) || reply.draining)
        return;
    tree_walks_figures(session->compute, number, &figures);
    *home = (struct home){.takes = true, .bytes_free = reply.bytes_free, .read_ns = figures.read_ns};
}

uint16_t tree_subtree_home(struct tree_session *session, const struct tree *tree)
{
    const uint8_t levels = tree->layout.geometry.subtree_levels;
    const uint16_t known = fabric_memory_nodes(session->pool.fabric);
    const uint16_t count = known < HOMES_MAX ? known : HOMES_MAX;
    struct home nodes[HOMES_MAX];
    if (levels < 2 || count < 2) /* a leaf by itself is not worth asking */
        return POOL_ANY_NODE;
    for (uint16_t i = 0; i < count; i++)
        home_look(session, i, &nodes[i]);
    /* A subtree that splits off has half of its entries, and room for the other half. */
    const double bytes = format_subtree_bytes(&tree->layout, levels);
    const uint16_t home = homes_choose(&session->compute->homes, nodes, count, (uint64_t)bytes / 2 + 1);
    return home == HOMES_NONE ? POOL_ANY_NODE : home;
}

int tree_sibling_allocate(struct tree_session *session, struct tree *tree, uint8_t level, gaddr beside,
                          struct format_key key, gaddr *node)
{
    const uint32_t bytes = tree_node_bytes(tree, level);
    uint16_t home = gaddr_node(beside);
    struct way way;
    if (!tree_level_placed(tree, level)) {
        /* Above placed subtrees nodes are few, and nobody fetches two of them at once. */
        const bool spread = !tree->layout.geometry.subtree_levels;
        return pool_allocate(&session->pool, spread ? home : POOL_ANY_NODE, bytes, node);
    }
    if (level + 1 == tree->layout.geometry.subtree_levels)
        home = tree_subtree_home(session, tree);
    else if (way_find(session, tree, key, &way))
        home = gaddr_node(way.nodes[way.top]);
    return home == POOL_ANY_NODE ? pool_allocate(&session->pool, home, bytes, node)
                                 : pool_allocate_beside(&session->pool, home, bytes, node);
}

int tree_top_allocate(struct tree_session *session, const struct tree *tree, uint8_t level, gaddr below,
                      gaddr *node)
{
    const uint32_t bytes = tree_node_bytes(tree, level);
    uint16_t home = POOL_ANY_NODE;
    if (tree_level_placed(tree, level))
        home = below == GADDR_NULL ? tree_subtree_home(session, tree) : gaddr_node(below);
    return home == POOL_ANY_NODE ? pool_allocate(&session->pool, home, bytes, node)
                                 : pool_allocate_beside(&session->pool, home, bytes, node);
}

int tree_key_block_allocate(struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                            uint32_t bytes, gaddr *block)
{
    return layout->geometry.subtree_levels ? pool_block_allocate_beside(&session->pool, leaf, bytes, block)
                                           : pool_block_allocate(&session->pool, leaf, bytes, block);
}

/* ---- nodes that follow ---- */

void tree_subtree_follow(struct tree_session *session, struct tree *tree, struct format_key key)
{
    struct way way;
    if (tree->layout.geometry.subtree_levels < 2 || !way_find(session, tree, key, &way))
        return;
    const uint16_t home = gaddr_node(way.nodes[way.top]);
    for (uint8_t level = way.top; level-- > way.lowest;) {
        struct tree_move move = {
            .key = key.bytes, .key_length = key.length, .level = level, .from = POOL_ANY_NODE, .to = home};
        /* What goes wrong here is met again where it matters: what is asked for is done. */
        if (gaddr_node(way.nodes[level]) != home && tree_move_within(session, tree, &move))
            return;
    }
}
