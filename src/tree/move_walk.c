/*
 * move_walk.c - the walk that moves nodes (tree.h: tree_move_step): level by level from the leaves upwards,
 * so that a subtree is there before its top, and the way to a node is cached while the nodes below it move. A
 * step looks at nodes that one parent names; it costs what it moves, and a round trip for a parent that is
 * not cached.
 */
#include <string.h>

#include "base/epoch.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"
#include "tree/subtree.h"

#define FAMILY_MAX 16u

/* Neighbouring nodes that one parent names. */
struct family {
    struct format_link links[FAMILY_MAX];
    struct format_key_copy keys[FAMILY_MAX];
    uint32_t count;
    struct format_key_copy next; /* where the walk goes on */
    bool last;                   /* nowhere: the level ends here */
    bool root;                   /* the node is the root, and has no parent */
};

static struct format_key cursor_key(const struct tree *tree, const struct tree_move_walk *walk)
{
    return walk->length ? (struct format_key){walk->key, walk->length} : format_key_least(&tree->layout);
}

/* TREE_RESTART: the parent is not cached any more. TREE_LOW: there is no such level. */
static int family_find(struct tree_session *session, struct tree *tree, const struct tree_move_walk *walk,
                       struct family *family)
{
    const struct format_layout *layout = &tree->layout;
    const struct format_key key = cursor_key(tree, walk);
    struct tree_key_room room;
    struct tree_path path;
    family->count = 0;
    family->last = family->root = false;
    int status = tree_locate(session, tree, key, false, walk->level, &path);
    if (status)
        return status;
    if (!path.parent.address) {
        family->root = path.direct;
        family->last = true;
        family->links[0] = path.link;
        return path.direct ? 0 : TREE_RESTART;
    }
    epoch_enter(session->pool.epoch);
    struct tree_frame *frame = tree_frame_find(session, tree, path.parent);
    if (frame) {
        uint32_t entry = tree_frame_search(layout, frame, key, false);
        for (; entry < frame->count && family->count < FAMILY_MAX; entry++) {
            const struct format_link link = tree_frame_link(frame, entry);
            if (link.address == GADDR_NULL) /* a gap is nobody's */
                continue;
            family->links[family->count] = link;
            format_key_store(&family->keys[family->count++], tree_frame_key(layout, frame, entry, &room));
        }
        family->last = entry == frame->count && !frame->has_upper;
        if (!family->last)
            format_key_store(&family->next, tree_frame_key(layout, frame, entry, &room));
    }
    epoch_leave(session->pool.epoch);
    return frame ? 0 : TREE_RESTART;
}

/* The highest node of the node's subtree; the node itself, where subtrees are not placed, or above them. */
static int top_find(struct tree_session *session, struct tree *tree, uint8_t level, struct format_key key,
                    struct format_link *top)
{
    const uint8_t levels = tree->layout.geometry.subtree_levels;
    struct format_link root;
    struct tree_path path;
    uint8_t height;
    if (!tree_level_placed(tree, level) || level + 1u == levels)
        return 0;
    int status = tree_locate(session, tree, key, false, (uint8_t)(levels - 1), &path);
    if (!status)
        *top = path.link;
    if (status != TREE_LOW)
        return status;
    status = tree_root_get(session, tree, &root, &height); /* all of it is less than a subtree */
    if (!status)
        *top = root;
    return status;
}

static int one_move(struct tree_session *session, struct tree *tree, uint8_t level, struct format_link link,
                    struct format_key key, const struct tree_move_choice *choice,
                    struct tree_move_report *report)
{
    struct format_link top = link;
    int status = tree_begin(session, tree);
    session->stats.operations--; /* it is background work, not a client's */
    if (!status)
        status = top_find(session, tree, level, key, &top);
    if (status)
        return status;
    const uint16_t from = gaddr_node(link.address),
                   to = choice->where(choice->context, from, tree_node_bytes(tree, level), top.tag);
    report->nodes++;
    if (to == from || to == POOL_ANY_NODE)
        return 0;
    struct tree_move move = {
        .key = key.bytes, .key_length = key.length, .level = level, .from = from, .to = to};
    status = tree_move_node(session, tree, &move);
    if (status)
        return status;
    report->outcomes[move.outcome]++;
    if (move.outcome == TREE_MOVE_DONE)
        report->bytes += tree_node_bytes(tree, level);
    return 0;
}

/* The root has to go: it gets a parent, and is moved like any node with the next step. */
static int root_leave(struct tree_session *session, struct tree *tree, struct tree_move_walk *walk,
                      struct format_link root, const struct tree_move_choice *choice)
{
    const uint16_t from = gaddr_node(root.address),
                   to = choice->where(choice->context, from, tree_node_bytes(tree, walk->level), root.tag);
    bool raised = false;
    const bool stays = !choice->roots || to == from || to == POOL_ANY_NODE;
    int status = stays ? 0 : tree_move_root(session, tree, from, &raised);
    walk->ended = !status && !raised;
    return status;
}

static void walk_on(struct tree_move_walk *walk, const struct family *family)
{
    const struct format_key before = {walk->key, walk->length}, next = format_key_of(&family->next);
    /* The way to the cursor may lead to a parent left of its own, whose entry is not posted yet (a split that
     * found no room for it): the rest of the level is left to another walk. */
    if (family->last || (walk->length && format_key_compare(next, before) <= 0)) {
        walk->level++;
        walk->length = 0;
        return;
    }
    walk->length = (uint16_t)next.length;
    memcpy(walk->key, next.bytes, next.length);
}

int tree_move_step(struct tree_session *session, struct tree *tree, struct tree_move_walk *walk,
                   const struct tree_move_choice *choice, struct tree_move_report *report)
{
    struct family family;
    int status = tree_begin(session, tree);
    session->stats.operations--;
    if (status)
        return status;
    session->right = TREE_SHARED; /* inner nodes are everybody's (O4) */
    session->cached = false;
    do {
        status = family_find(session, tree, walk, &family);
        if (status == TREE_RESTART)
            status = tree_restart(session, tree->root_word);
        else if (!status)
            break;
    } while (!status || tree_again(session, &status));
    if (status == TREE_LOW) {
        walk->ended = true;
        return 0;
    }
    if (status)
        return status;
    if (family.root)
        return root_leave(session, tree, walk, family.links[0], choice);
    for (uint32_t i = 0; i < family.count && !status; i++)
        status = one_move(session, tree, walk->level, family.links[i], format_key_of(&family.keys[i]), choice,
                          report);
    if (!status)
        walk_on(walk, &family);
    return status > 0 ? 0 : status; /* a way that led astray: the step again */
}
