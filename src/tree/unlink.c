/*
 * unlink.c - Empty nodes leave the tree in two steps that any session can finish: R4. Two round trips for
 * the left neighbour, two for the parent.
 */
#include "tree/unlink.h"

#include "tree/access.h"
#include "tree/cache.h"
#include "tree/catalogue.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/subtree.h"

/* What must outlive the buffers: a dead node's own description, which no session changes any more. */
struct departed {
    struct format_link link, sibling;
    struct format_key_copy lower, upper;
    bool has_upper;
    bool moved; /* R8: `sibling` has its range, and is to have its entry */
    uint8_t level;
};

static void departed_store(struct departed *departed, struct format_link link,
                           const struct format_header *header)
{
    departed->link = link;
    departed->sibling = header->sibling;
    departed->has_upper = header->has_upper;
    departed->moved = format_header_moves(header);
    departed->level = header->level;
    format_key_store(&departed->lower, header->lower);
    format_key_store(&departed->upper, header->upper);
}

/* True if the locked left neighbour still ends where the dead node begins and names it. */
static bool names(const struct format_header *left, const struct departed *departed)
{
    return left->has_upper && !format_key_compare(left->upper, format_key_of(&departed->lower)) &&
           format_link_equal(left->sibling, departed->link);
}

static void widen(struct format_header *left, const struct departed *departed)
{
    left->has_upper = departed->has_upper;
    left->upper = format_key_of(&departed->upper);
    left->sibling = departed->sibling;
}

#define WALK_ON 5 /* the path leads one leaf further to the right now */

/* One try at the leaf that the path leads to: as tree_left_lock, or WALK_ON. */
static int left_lock(struct tree_session *session, struct tree *tree, struct format_key key,
                     struct tree_path *path, struct tree_hold *hold, struct format_header *header)
{
    struct fabric_command none[1], read;
    gaddr leaf = path->link.address;
    read = pool_read_command(leaf, session->image.bytes, tree->layout.header_bytes);
    int status = tree_leaf_lock(session, tree, leaf, false, &read, 1, hold);
    if (status)
        return status;
    pool_read_settle(&read);
    session->image.address = GADDR_NULL;
    status = tree_leaf_validate(session, tree, path->link, header);
    if (!status)
        status = tree_leaf_mend(session, tree, path->link, header);
    if (status) {
        bool dead = status == TREE_RESTART && format_header_departed(header, path->link, tree->index);
        int released = tree_leaf_release(session, tree, hold, none, 0);
        if (status == TREE_FOREIGN) /* on a way that leads astray */
            status = TREE_RESTART;
        return released ? released : dead ? TREE_SIDEWAYS : status;
    }
    if (header->has_upper && format_key_compare(key, header->upper) > 0) {
        struct format_key_copy upper;
        format_key_store(&upper, header->upper);
        status = tree_leaf_release(session, tree, hold, none, 0);
        if (!status)
            status = tree_path_right(session, tree, path, format_key_of(&upper), header->sibling, 0);
        return status ? status : WALK_ON;
    }
    if (format_key_compare(key, header->lower) <= 0) {
        status = tree_leaf_release(session, tree, hold, none, 0);
        if (!status)
            status = tree_astray(session, leaf);
        return status ? status : TREE_RESTART;
    }
    return 0;
}

int tree_left_lock(struct tree_session *session, struct tree *tree, struct format_key key,
                   struct tree_path *path, struct tree_hold *hold, struct format_header *header)
{
    *header = (struct format_header){0};
    int status = tree_locate(session, tree, key, true, 0, path);
    if (!status)
        do
            status = left_lock(session, tree, key, path, hold, header);
        while (status == WALK_ON);
    if (status > 0)
        tree_path_forget(session, tree, path);
    return status;
}

/* 0: extended (now or before); TREE_SIDEWAYS: the leaf to the left is dead itself, *next describes it. */
static int extend_leaf(struct tree_session *session, struct tree *tree, const struct departed *departed,
                       struct departed *next)
{
    const struct format_layout *layout = &tree->layout;
    struct tree_path path;
    struct tree_hold hold;
    struct format_header header;
    struct fabric_command writes[2];
    int status = tree_left_lock(session, tree, format_key_of(&departed->lower), &path, &hold, &header);
    if (status == TREE_SIDEWAYS)
        departed_store(next, path.link, &header);
    if (status)
        return status;
    if (!names(&header, departed))
        return tree_leaf_release(session, tree, &hold, writes, 0);
    widen(&header, departed);
    format_header_encode(layout, &header, session->image.bytes);
    session->image.address = GADDR_NULL;
    writes[0] = pool_write_command(path.link.address, session->image.bytes, layout->header_bytes);
    return tree_leaf_release(session, tree, &hold, writes, 1);
}

static int extend_internal(struct tree_session *session, struct tree *tree, const struct departed *departed,
                           struct departed *next)
{
    const struct format_layout *layout = &tree->layout;
    struct tree_path path;
    struct tree_hold hold;
    struct format_header header;
    struct fabric_command writes[2];
    int status = tree_internal_lock(session, tree, format_key_of(&departed->lower), true, departed->level,
                                    &path, &hold, &header);
    if (status == TREE_DEAD) {
        departed_store(next, path.link, &header);
        tree_path_forget(session, tree, &path);
        return TREE_SIDEWAYS;
    }
    if (status)
        return status == TREE_LOW ? TREE_RESTART : status;
    if (!names(&header, departed))
        return tree_unlock(session, &hold, writes, 0);
    widen(&header, departed);
    header.version++;
    format_internal_encode(layout, &header, session->internal, header.count, session->spare);
    writes[0] = pool_write_command(path.link.address, session->spare, layout->geometry.internal_bytes);
    status = tree_unlock(session, &hold, writes, 1);
    if (!status)
        tree_cache_install(tree->cache, session->pool.epoch, path.link.address, session->spare,
                           session->internal);
    return status;
}

/* 0, TREE_SIDEWAYS with the dead left neighbour in *next, or an error. */
static int extend_left(struct tree_session *session, struct tree *tree, const struct departed *departed,
                       struct departed *next)
{
    if (!format_key_compare(format_key_of(&departed->lower), format_key_least(&tree->layout)))
        return 0; /* it has moved, and nothing lies to the left */
    for (;;) {
        int status = departed->level ? extend_internal(session, tree, departed, next)
                                     : extend_leaf(session, tree, departed, next);
        if (status != TREE_RESTART)
            return status;
        status = tree_restart(session, departed->link.address);
        if (status)
            return status;
    }
}

/* If the dead node is the root still, its successor becomes it: *left. One that has moved is freed then; the
 * leaf that a bulk load has killed is the loader's, who may hold its lock. */
static int root_leave(struct tree_session *session, struct tree *tree, struct format_link dead, uint8_t level,
                      struct format_link successor, bool moved, bool *left)
{
    *left = false;
    tree_root_forget(tree);
    if (successor.address == GADDR_NULL)
        return 0;
    int status = tree_root_follow(session, tree, dead, level, successor.address, left);
    if (*left && moved) {
        tree_root_set(tree, successor, level);
        pool_release(&session->pool, dead.address, tree_node_bytes(tree, level));
    }
    return status;
}

/*
 * The node has moved, and nothing lies to its left: it may have been the root. Then the root word goes on to
 * its copy. *done: it has, now or before, and the node had no parent.
 */
static int leave_root(struct tree_session *session, struct tree *tree, const struct departed *departed,
                      bool *done)
{
    struct format_link root;
    uint8_t level;
    *done = false;
    if (tree_root_known(tree, &root, &level) && level > departed->level)
        return 0; /* roots only rise: whatever was one above it is, and it is none */
    int status = root_leave(session, tree, departed->link, departed->level, departed->sibling, true, done);
    if (status || *done)
        return status;
    status = tree_root_get(session, tree, &root, &level);
    *done = !status && level <= departed->level;
    return status;
}

/* The last step: the entry of the level above goes, or it becomes that of the copy. The session that does it
 * frees the node. */
static int leave_parent(struct tree_session *session, struct tree *tree, const struct departed *departed)
{
    const struct format_key lower = format_key_of(&departed->lower);
    const uint8_t above = (uint8_t)(departed->level + 1);
    if (!departed->moved)
        return tree_parent_drop(session, tree, above, lower, departed->link);
    bool done = false;
    int status = 0;
    if (!format_key_compare(lower, format_key_least(&tree->layout)))
        status = leave_root(session, tree, departed, &done);
    return status || done ? status : tree_parent_insert(session, tree, above, lower, departed->sibling);
}

int tree_unlink_root(struct tree_session *session, struct tree *tree, struct format_link link,
                     const struct format_header *header)
{
    bool left;
    return root_leave(session, tree, link, header->level, header->sibling, format_header_moves(header),
                      &left);
}

int tree_unlink_finish(struct tree_session *session, struct tree *tree, struct format_link link,
                       const struct format_header *header)
{
    struct departed first, now, next;
    /* Nothing lies to the left: this was the root of an empty index, and names the one that a bulk load made.
     */
    if (!format_key_compare(header->lower, format_key_least(&tree->layout)) && !format_header_moves(header))
        return tree_unlink_root(session, tree, link, header);
    departed_store(&first, link, header);
    /* Dead neighbours to the left go first, one after the other rather than by recursion: there may be many.
     */
    for (now = first;; now = first) {
        int status = extend_left(session, tree, &now, &next);
        while (status == TREE_SIDEWAYS) {
            if (format_key_compare(format_key_of(&next.lower), format_key_of(&now.lower)) >= 0)
                return pool_corrupt(&session->pool, next.link.address,
                                    "a node does not begin left of its right neighbour");
            now = next;
            status = tree_restart(session, now.link.address);
            if (!status)
                status = extend_left(session, tree, &now, &next);
        }
        if (!status)
            status = leave_parent(session, tree, &now);
        if (status || format_link_equal(now.link, first.link))
            return status;
    }
}
