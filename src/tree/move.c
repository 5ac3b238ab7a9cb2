/*
 * move.c - a node moves to another memory node, online: R8 (docs/internals/tree.md; contract in tree.h). A
 * leaf is split at its lower fence, by which all of it goes to the copy (split.c); an inner node is written
 * whole, so its copy and its death are one write each. What is left then, the left neighbour's link and the
 * parent's entry, or the root word, is what any dead node leaves (unlink.c). About eight round trips.
 */
#include <stdlib.h>
#include <string.h>

#include "format/internal_node.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/move.h"
#include "tree/move_keys.h"
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
    return outcome(mover, TREE_MOVE_LATER);
}

/*
 * Under the lock of a live node: whether its parent's entry names it, or the root word. As any node that dies
 * it must be named, so that the session that replaces that name frees it, and no other. One that begins at
 * the least key is, as soon as a way leads to it: nothing lies to its left that would.
 */
static bool named(const struct mover *mover, const struct format_header *header)
{
    const struct tree_path *path = &mover->path;
    const bool leftmost = !format_key_compare(header->lower, format_key_least(&mover->tree->layout));
    return path->direct && (path->parent.address || leftmost);
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
 * Under the lock of a live leaf: whether it may die. It must be named, as above; and its left neighbour must
 * be of the same right, so that this process may change that too (O3: the first leaf of a range stays where
 * it is, unless it is the first of the index).
 */
static bool leaf_may(struct mover *mover, const struct format_header *header)
{
    const struct tree_session *session = mover->session;
    const bool leftmost = !format_key_compare(header->lower, format_key_least(&mover->tree->layout));
    if (!leftmost && tree_rights_first(session, header->lower)) {
        mover->move->outcome = TREE_MOVE_FIRST;
        return false;
    }
    return named(mover, header) && tree_rights_cover(session, header->lower);
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

/* Takes the leaf's lock, and finishes what is half done there. */
static int leaf_take(struct mover *mover, struct tree_hold *hold, struct format_header *header)
{
    struct tree_session *session = mover->session;
    struct tree *tree = mover->tree;
    const struct format_link link = mover->path.link;
    int status = tree_leaf_take(session, tree, link, hold, header);
    int finished = 0;
    if (!status || status == TREE_FOREIGN)
        return status;
    if (status == TREE_RESTART && format_header_departed(header, link, tree->index) &&
        tree_rights_cover_below(session, header->lower))
        finished = tree_unlink_finish(session, tree, link, header);
    if (status < 0 || finished < 0 || finished == TREE_FOREIGN)
        return status < 0 ? status : finished;
    tree_path_forget(session, tree, &mover->path);
    return TREE_RESTART;
}

/* Gives the lock of a leaf up that is not to move, or is not the one that was meant. */
static int leaf_leave(struct mover *mover, struct tree_hold *hold, struct format_header *header)
{
    const bool meant = !format_header_side(header, mover->key) && mover->move->outcome != TREE_MOVE_LATER;
    struct format_key_copy keys[2];
    format_key_store(&keys[0], header->lower);
    format_key_store(&keys[1], header->upper);
    header->lower = format_key_of(&keys[0]);
    header->upper = format_key_of(&keys[1]);
    int status = tree_leaf_release_with(mover->session, mover->tree, hold, 0);
    return status || meant ? status : leaf_astray(mover, header);
}

/* It lies where it is to lie. */
static int leaf_settle(struct mover *mover)
{
    struct tree_hold hold;
    struct format_header header;
    int status = leaf_take(mover, &hold, &header);
    return status ? status : leaf_leave(mover, &hold, &header);
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
    status = leaf_take(mover, &hold, &header);
    const bool goes = !status && !format_header_side(&header, mover->key) && leaf_may(mover, &header);
    if (!goes) {
        pool_release(&session->pool, copy, tree_node_bytes(tree, 0));
        return status ? status : leaf_leave(mover, &hold, &header);
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
    if (goes && !named(mover, &header)) {
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
        const enum tree_move_outcome judged = mover->move->outcome;
        if (status || !(judged == TREE_MOVE_LATER || judged == TREE_MOVE_THERE))
            return status;
        if (level)
            status = internal_move(mover);
        else
            status = judged == TREE_MOVE_THERE ? leaf_settle(mover) : leaf_move(mover);
        if (status != TREE_RESTART && status != TREE_SIDEWAYS)
            return status;
        status = tree_restart(session, mover->path.link.address);
        if (status)
            return status;
        if (session->restarts >= TREE_PATIENCE) /* others are at work here */
            return outcome(mover, TREE_MOVE_LATER);
    }
}

int tree_move_within(struct tree_session *session, struct tree *tree, struct tree_move *move)
{
    struct mover mover = {
        .session = session, .tree = tree, .move = move, .key = {move->key, move->key_length}};
    return move_try(&mover);
}

/* ---- long keys ---- */

/* Within the operation: what there is to move. */
static int keys_find(struct mover *mover, struct tree_move_keys *keys)
{
    struct tree_session *session = mover->session;
    for (;;) {
        int status = tree_move_keys_find(session, mover->tree, mover->key, mover->move->from, keys);
        if (!status)
            mover->move->outcome = keys->count ? TREE_MOVE_LATER : TREE_MOVE_THERE;
        if (status != TREE_RESTART)
            return status;
        status = tree_restart(session, mover->tree->root_word);
        if (status)
            return status;
        if (session->restarts >= TREE_PATIENCE)
            return outcome(mover, TREE_MOVE_LATER);
    }
}

/* Behind it. *moved grows by those that have another block; *again: there may be more of them. */
static int keys_run(struct mover *mover, const struct tree_move_keys *keys, uint32_t *moved, bool *again)
{
    uint32_t now;
    int status = tree_move_keys_run(mover->session, mover->tree, keys, &now);
    *moved += now;
    *again = !status && keys->more && now;
    if (status == BANYAN_ENOSPC)
        return outcome(mover, TREE_MOVE_FULL);
    if (!status && now == keys->count)
        mover->move->outcome = TREE_MOVE_DONE; /* else keys have gone meanwhile, or the right to them */
    return status;
}

/* ---- by right ---- */

/* It is another's by now, or the owner did not answer: a message was lost, or the owner is slow or has died.
 * It may have moved the leaf all the same; the next walk finds it where it is. */
static bool asked_again(int status)
{
    return status == BANYAN_EFENCED || status == BANYAN_ETIMEOUT || status == BANYAN_ENET;
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
    return asked_again(status) ? outcome(mover, TREE_MOVE_LATER) : status;
}

/* The node, or the blocks of its long keys: which these are. */
static int move_once(struct mover *mover, struct tree_move_keys *keys)
{
    struct tree_session *session = mover->session;
    struct tree *tree = mover->tree;
    struct tree_move *move = mover->move;
    struct tree_turn turn = {0};
    int status = tree_begin(session, tree);
    session->stats.operations--; /* it is background work, not a client's */
    if (!status && !(move->to == POOL_ANY_NODE && !move->level) && !pool_knows(&session->pool, move->to))
        status = pool_fail(&session->pool, BANYAN_EINVAL, "there is no memory node %u to move to", move->to);
    if (status)
        return status;
    do {
        keys->count = 0;
        move->outcome = TREE_MOVE_LATER;
        enum tree_right right = TREE_SHARED;
        if (move->level) { /* inner nodes are everybody's (O4), and nothing is told that could be out of date
                            */
            session->right = TREE_SHARED;
            session->cached = false;
        } else {
            right = tree_rights_enter(session, tree, mover->key);
        }
        if (right <= TREE_OWNED)
            status = move->to == POOL_ANY_NODE ? keys_find(mover, keys) : move_try(mover);
        else
            status = right == TREE_OTHERS ? move_ask(mover) : outcome(mover, TREE_MOVE_LATER);
        if (tree_again(session, tree, &status))
            status = TREE_ANEW;
    } while (tree_turn_again(session, tree, &turn, &status));
    /* Where a memory node is emptied the leaf is split next, so that it is not the first any more. The block
     * of the leaf before it, which has just left, must not become its other half. */
    if (!status && move->outcome == TREE_MOVE_FIRST)
        pool_worker_leave(session->pool.worker, move->from);
    return status;
}

/*
 * Once, and again while a leaf has more long keys than one turn takes. No more of them in all than a leaf has
 * slots: where nothing keeps new blocks from the memory node (others have ended its emptying), keys whose
 * leaf lies there get their new blocks there too, and there are always more.
 */
static int move_all(struct mover *mover, struct tree_move_keys *keys)
{
    uint32_t moved = 0;
    bool again;
    int status;
    do {
        again = false; /* a turn that finds nothing is the last */
        status = move_once(mover, keys);
        if (!status && keys->count)
            status = keys_run(mover, keys, &moved, &again);
        else if (!status && moved && mover->move->outcome == TREE_MOVE_THERE)
            mover->move->outcome = TREE_MOVE_DONE; /* others moved the rest, or it is gone */
    } while (again && moved < mover->tree->layout.slots);
    return again ? outcome(mover, TREE_MOVE_LATER) : status;
}

int tree_move_node(struct tree_session *session, struct tree *tree, struct tree_move *move)
{
    struct mover mover = {
        .session = session, .tree = tree, .move = move, .key = {move->key, move->key_length}};
    struct tree_move_keys *keys = NULL;
    int status = 0;
    if (!move->key_length)
        mover.key = format_key_least(&tree->layout);
    else
        status = tree_key_check(session, tree, mover.key.bytes, mover.key.length);
    if (!status && !(keys = malloc(sizeof *keys)))
        status = pool_fail_memory(&session->pool);
    if (!status)
        status = move_all(&mover, keys);
    free(keys);
    return status;
}
