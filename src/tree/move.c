/*
 * move.c - a node moves to another memory node, online: R8 (docs/internals/tree.md; contract in tree.h). A
 * leaf is split at its lower fence, by which all of it goes to the copy (split.c); an inner node is written
 * whole, so its copy and its death are one write each. What is left then, the left neighbour's link and the
 * parent's entry, is what any dead node leaves (unlink.c). About eight round trips.
 */
#include <string.h>

#include "format/internal_node.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/split.h"
#include "tree/subtree.h"
#include "tree/turn.h"
#include "tree/unlink.h"

struct mover {
    struct tree_session *session;
    struct tree *tree;
    struct tree_move *move;
    struct format_key key;
    struct tree_path path;
};

static int outcome(struct mover *mover, enum tree_move_outcome what)
{
    mover->move->outcome = what;
    return 0;
}

/* What the way to the node says: whether it is to be moved at all. 0 with the outcome LATER: it is. */
static int path_judge(struct mover *mover)
{
    const struct tree_path *path = &mover->path;
    const uint16_t node = gaddr_node(path->link.address);
    if (node == mover->move->to)
        return outcome(mover, TREE_MOVE_THERE);
    if (mover->move->from != POOL_ANY_NODE && node != mover->move->from)
        return outcome(mover, TREE_MOVE_ELSEWHERE);
    if (!path->parent.address && path->direct)
        return outcome(mover, TREE_MOVE_ROOT);
    return outcome(mover, TREE_MOVE_LATER);
}

/* A block for the copy, where it was asked for. TREE_MOVE_FULL: that memory node has no room. */
static int copy_allocate(struct mover *mover, gaddr *copy)
{
    struct tree_session *session = mover->session;
    const uint32_t bytes = tree_node_bytes(mover->tree, mover->move->level);
    int status = pool_allocate_beside(&session->pool, mover->move->to, bytes, copy);
    if (!status && gaddr_node(*copy) != mover->move->to) {
        pool_release(&session->pool, *copy, bytes);
        status = BANYAN_ENOSPC;
    }
    if (status)
        *copy = GADDR_NULL;
    return status == BANYAN_ENOSPC ? outcome(mover, TREE_MOVE_FULL) : status;
}

/* The node is dead, and this says where its copy is: the rest, which any session can do. */
static int move_conclude(struct mover *mover, struct format_link link, const struct format_header *dead)
{
    struct tree_session *session = mover->session;
    mover->move->outcome = TREE_MOVE_DONE;
    session->stats.moves++;
    int status = tree_unlink_finish(session, mover->tree, link, dead);
    session->stats.unfinished += status < 0;
    return status;
}

/* ---- leaves ---- */

/*
 * Under the lock of a live leaf: whether it may die. As any leaf that dies its parent must name it, so that
 * the session that replaces that entry frees it, and no other; and its left neighbour must be of the same
 * right, so that this process may change that too (O3: the first leaf of a range stays where it is, unless it
 * is the first of the index).
 */
static bool leaf_may(struct mover *mover, const struct format_header *header)
{
    const struct tree_session *session = mover->session;
    const bool leftmost = !format_key_compare(header->lower, format_key_least(&mover->tree->layout));
    if (!leftmost && tree_rights_first(session, header->lower)) {
        mover->move->outcome = TREE_MOVE_FIRST;
        return false;
    }
    return mover->path.direct && mover->path.parent.address && tree_rights_cover(session, header->lower);
}

/* The way has led to another leaf than the key's, or the leaf to a parent that does not name it. */
static int leaf_astray(struct mover *mover, const struct format_header *header)
{
    struct tree_session *session = mover->session;
    struct tree_path *path = &mover->path;
    const int side = format_header_side(header, mover->key);
    struct format_key_copy upper;
    if (side > 0)
        format_key_store(&upper, header->upper);
    const struct format_link sibling = header->sibling;
    int status = 0;
    if (side > 0) /* posts what is missing, so that the next way is direct */
        status = tree_path_right(session, mover->tree, path, format_key_of(&upper), sibling, 0);
    else
        tree_path_forget(session, mover->tree, path);
    return status ? status : TREE_RESTART;
}

/* With the leaf's lock, which is given up: no tag lets all entries fit another leaf, as full as this one is.
 * It is split instead, and its halves can move. */
static int leaf_halve(struct mover *mover)
{
    struct tree_session *session = mover->session;
    struct tree_hold hold;
    struct format_header header;
    bool added;
    int status = tree_leaf_take(session, mover->tree, mover->path.link, &hold, &header);
    if (!status)
        status = tree_split(session, mover->tree, mover->path.link, &hold, NULL, &added);
    return status ? status : TREE_RESTART;
}

static int leaf_move(struct mover *mover)
{
    struct tree_session *session = mover->session;
    struct tree *tree = mover->tree;
    const struct format_link link = mover->path.link;
    struct format_key_copy lower;
    struct format_header header, dead;
    struct tree_hold hold;
    gaddr copy;
    int status = copy_allocate(mover, &copy);
    if (status || copy == GADDR_NULL)
        return status;
    const uint32_t bytes = tree_node_bytes(tree, 0);
    status = tree_leaf_take(session, tree, link, &hold, &header);
    if (status) {
        pool_release(&session->pool, copy, bytes);
        if (status == TREE_RESTART && format_header_departed(&header, link, tree->index) &&
            tree_rights_cover_below(session, header.lower))
            status = tree_unlink_finish(session, tree, link, &header);
        if (status >= 0 && status != TREE_FOREIGN) {
            tree_path_forget(session, tree, &mover->path);
            status = TREE_RESTART;
        }
        return status;
    }
    if (format_header_side(&header, mover->key) || !leaf_may(mover, &header)) {
        const bool first = mover->move->outcome == TREE_MOVE_FIRST;
        struct format_key_copy keys[2];
        format_key_store(&keys[0], header.lower);
        format_key_store(&keys[1], header.upper);
        header.lower = format_key_of(&keys[0]);
        header.upper = format_key_of(&keys[1]);
        pool_release(&session->pool, copy, bytes);
        status = tree_leaf_release_with(session, tree, &hold, 0);
        return status || first ? status : leaf_astray(mover, &header);
    }
    status = tree_split_away(session, tree, link, &hold, copy, &lower, &dead);
    if (status == BANYAN_ENOSPC)
        return leaf_halve(mover);
    return status ? status : move_conclude(mover, link, &dead);
}

/* ---- inner nodes ---- */

/* With the lock, which is given up: the copy, then the death. */
static int internal_away(struct mover *mover, struct tree_hold *hold, struct format_header *header,
                         gaddr address)
{
    struct tree_session *session = mover->session;
    const struct tree *tree = mover->tree;
    const struct format_layout *layout = &tree->layout;
    const uint32_t bytes = layout->geometry.internal_bytes;
    const struct format_link link = mover->path.link;
    struct format_key_copy lower;
    struct format_link copy = {.address = address};
    struct fabric_command writes[2];
    format_key_store(&lower, header->lower);
    int status = pool_take_tag(&session->pool, gaddr_node(copy.address), &copy.tag);
    if (!status) {
        struct format_header whole = *header;
        whole.tag = copy.tag;
        whole.version = 0;
        format_internal_encode(layout, &whole, session->internal, header->count, session->image.bytes);
        session->image.address = GADDR_NULL;
        writes[0] = pool_write_command(copy.address, session->image.bytes, bytes);
        status = pool_execute(&session->pool, gaddr_node(copy.address), writes, 1);
    }
    if (status) {
        tree_unlock(session, hold, writes, 0);
        pool_release(&session->pool, copy.address, bytes); /* no link leads to it */
        return status;
    }
    /* Nothing but a gap: the entries are the copy's. */
    struct format_header dead = *header;
    const struct format_entry gap = {.key = format_key_of(&lower)};
    dead.version++;
    dead.state = FORMAT_NODE_DEAD;
    dead.has_upper = true;
    dead.lower = dead.upper = format_key_of(&lower);
    dead.sibling = copy;
    format_internal_encode(layout, &dead, &gap, 1, session->spare);
    writes[0] = pool_write_command(link.address, session->spare, bytes);
    status = tree_unlock(session, hold, writes, 1);
    if (status == BANYAN_EFENCED)
        pool_release(&session->pool, copy.address, bytes); /* still no link leads to it */
    if (status)
        return status;
    tree_cache_forget(tree->cache, session->pool.epoch, link);
    tree_cache_install(tree->cache, session->pool.epoch, copy.address, session->image.bytes,
                       session->internal);
    return move_conclude(mover, link, &dead);
}

static int internal_move(struct mover *mover)
{
    struct tree_session *session = mover->session;
    struct tree_hold hold;
    struct format_header header;
    struct fabric_command unlock[1];
    gaddr copy;
    int status = tree_internal_lock(session, mover->tree, mover->key, false, mover->move->level, &mover->path,
                                    &hold, &header);
    if (status)
        return status == TREE_LOW ? outcome(mover, TREE_MOVE_ELSEWHERE) : status;
    status = path_judge(mover);
    bool goes = mover->move->outcome == TREE_MOVE_LATER;
    if (goes && !(mover->path.direct && mover->path.parent.address)) {
        status = tree_unlock(session, &hold, unlock, 0);
        tree_path_forget(session, mover->tree, &mover->path);
        return status ? status : TREE_RESTART;
    }
    if (goes)
        status = copy_allocate(mover, &copy);
    if (!goes || status || copy == GADDR_NULL) {
        int released = tree_unlock(session, &hold, unlock, 0);
        return status ? status : released;
    }
    return internal_away(mover, &hold, &header, copy);
}

/* ---- one node ---- */

static int move_try(struct mover *mover)
{
    struct tree_session *session = mover->session;
    const uint8_t level = mover->move->level;
    for (;;) {
        mover->move->outcome = TREE_MOVE_LATER;
        int status = tree_locate(session, mover->tree, mover->key, false, level, &mover->path);
        if (status == TREE_LOW)
            return outcome(mover, TREE_MOVE_ELSEWHERE);
        if (!status)
            status = path_judge(mover);
        if (status || mover->move->outcome != TREE_MOVE_LATER)
            return status;
        status = level ? internal_move(mover) : leaf_move(mover);
        if (status != TREE_RESTART && status != TREE_SIDEWAYS)
            return status;
        status = tree_restart(session, mover->path.link.address);
        if (status)
            return status;
        if (session->restarts >= TREE_PATIENCE) /* others are at work here */
            return outcome(mover, TREE_MOVE_LATER);
    }
}

/* Another compute node has the right to the leaf: it moves it, if it can be asked. */
static int move_ask(struct mover *mover)
{
    struct tree_session *session = mover->session;
    const struct tree_compute *compute = session->compute;
    struct tree_move asked = *mover->move;
    asked.key = mover->key.bytes;
    asked.key_length = mover->key.length;
    outcome(mover, TREE_MOVE_OTHERS);
    if (asked.here || !compute->forward.move)
        return 0;
    int status =
        compute->forward.move(compute->forward_context, session, mover->tree, session->owner, &asked);
    if (!status)
        mover->move->outcome = asked.outcome;
    return status == BANYAN_EFENCED ? outcome(mover, TREE_MOVE_LATER) : status; /* it is another's by now */
}

int tree_move_node(struct tree_session *session, struct tree *tree, struct tree_move *move)
{
    struct mover mover = {
        .session = session, .tree = tree, .move = move, .key = {move->key, move->key_length}};
    struct tree_turn turn = {0};
    if (!move->key_length)
        mover.key = format_key_least(&tree->layout);
    int status = tree_key_check(session, tree, mover.key.bytes, mover.key.length);
    if (!status || !move->key_length)
        status = tree_begin(session, tree);
    else
        return status;
    session->stats.operations--; /* it is background work, not a client's */
    if (!status && move->to >= session->pool.memory_nodes)
        status = pool_fail(&session->pool, BANYAN_EINVAL, "there is no memory node %u to move to", move->to);
    if (status)
        return status;
    do {
        move->outcome = TREE_MOVE_LATER;
        enum tree_right right = TREE_SHARED;
        if (move->level) { /* inner nodes are everybody's (O4), and nothing is told that could be out of date
                            */
            session->right = TREE_SHARED;
            session->cached = false;
        } else {
            right = tree_rights_enter(session, tree, mover.key);
        }
        if (right <= TREE_OWNED)
            status = move_try(&mover);
        else
            status = right == TREE_OTHERS ? move_ask(&mover) : outcome(&mover, TREE_MOVE_LATER);
        if (tree_again(session, &status))
            status = TREE_ANEW;
    } while (tree_turn_again(session, tree, &turn, &status));
    return status;
}

int tree_move_root(struct tree_session *session, struct tree *tree, uint16_t from, bool *raised)
{
    struct format_link root;
    uint8_t level;
    *raised = false;
    int status = tree_begin(session, tree);
    session->stats.operations--;
    if (status)
        return status;
    do {
        tree_root_forget(tree);
        status = tree_root_get(session, tree, &root, &level);
        if (!status && gaddr_node(root.address) == from)
            status = tree_root_raise(session, tree, level, raised);
    } while (tree_again(session, &status));
    return status;
}
