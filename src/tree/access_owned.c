/*
 * access_owned.c - Leaf access in a range that this process owns (O5): its tasks exclude each other by the
 * local queues of lock.c alone, so nothing is asked of the memory node to take a leaf's lock or to give it
 * up. Writes go through to the pool before the lock is given up, in the order that R1 to R7 want, so others
 * may read the leaf one-sided at any time, and a later owner finds a valid one.
 *
 * A read is a round trip, or none where the leaf is cached (owned_cache_use.h); so is a lock that must read.
 * A release that writes is one. What is known of a leaf (an image that came with its lock) costs none, but
 * then the answer may rest on it alone: session->cached, until a list of the operation has succeeded, which
 * proves that no successor had begun (O2, ownership.md).
 *
 * tree_access_direct is the same, and reaches leaves in place as well (access_direct.c).
 */
#include "tree/access_direct.h"
#include "tree/index.h"
#include "tree/owned_cache_use.h"
#include "tree/session.h"

/* With the lock held, or without for reads that need none. */
static int owned_execute(struct tree_session *session, struct tree *tree, gaddr leaf,
                         struct fabric_command *commands, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (commands[i].operation != FABRIC_READ)
            return tree_owned_write(session, tree, leaf, commands, count);
    return tree_owned_read(session, tree, leaf, commands, count);
}

static int owned_read_many(struct tree_session *session, struct tree *tree, struct fabric_list *const *lists,
                           uint32_t count)
{
    return tree_owned_read_many(session, tree, lists, count);
}

/* The local lock is held, or `status` says why not. */
static int locked(struct tree_session *session, struct tree *tree, gaddr leaf, struct fabric_command *reads,
                  uint32_t count, struct tree_hold *hold, int status)
{
    session->image.layout = &tree->layout; /* also of an image that another handle filled */
    if (session->waiter.snapshot || status == TREE_ANSWERED)
        session->cached = true;
    if (status || session->waiter.snapshot || !count)
        return status;
    status = owned_execute(session, tree, leaf, reads, count);
    if (status)
        tree_unlock_owned(session, hold); /* no image is known: nothing is handed on */
    return status;
}

static int owned_lock(struct tree_session *session, struct tree *tree, gaddr leaf, bool wanted,
                      struct fabric_command *reads, uint32_t count, struct tree_hold *hold)
{
    int status = tree_lock_owned(session, leaf, wanted, NULL, hold);
    return locked(session, tree, leaf, reads, count, hold, status);
}

static int owned_lock_or_leave(struct tree_session *session, struct tree *tree, gaddr leaf,
                               struct tree_operation *operation, struct fabric_command *reads, uint32_t count,
                               struct tree_hold *hold)
{
    int status = tree_lock_owned(session, leaf, true, operation, hold);
    return locked(session, tree, leaf, reads, count, hold, status);
}

static int owned_release(struct tree_session *session, struct tree *tree, struct tree_hold *hold,
                         struct fabric_command *writes, uint32_t count)
{
    int status = count ? owned_execute(session, tree, tree_hold_leaf(hold), writes, count) : 0;
    if (status) {
        session->image.address = GADDR_NULL; /* the pool may not have what the image says */
        status = pool_unknown(&session->pool, status);
    }
    tree_unlock_owned(session, hold);
    return status;
}

static int owned_release_with(struct tree_session *session, struct tree *tree, struct tree_hold *hold,
                              int verdict)
{
    (void)tree;
    tree_unlock_owned(session, hold);
    return verdict;
}

const struct tree_access tree_access_owned = {
    .name = "owned",
    .read = owned_execute,
    .read_many = owned_read_many,
    .lock = owned_lock,
    .lock_or_leave = owned_lock_or_leave,
    .execute = owned_execute,
    .release = owned_release,
    .release_with = owned_release_with,
};

const struct tree_access tree_access_direct = {
    .name = "direct",
    .read = owned_execute,
    .read_many = owned_read_many,
    .lock = owned_lock,
    .lock_or_leave = owned_lock_or_leave,
    .execute = owned_execute,
    .release = owned_release,
    .release_with = owned_release_with,
    .find = tree_direct_find,
    .count_read = tree_direct_count_read,
    .word = tree_direct_word,
    .count_leaves = tree_direct_count_leaves,
    .prefetch = tree_direct_prefetch,
    .keep_order = tree_direct_keep_order,
    .enter = tree_direct_enter,
    .abandon = tree_direct_abandon,
    .leave = tree_direct_leave,
    .store = tree_direct_store,
    .done = tree_direct_done,
};
