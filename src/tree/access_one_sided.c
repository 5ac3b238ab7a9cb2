/*
 * access_one_sided.c - Leaf access as in Sherman: any compute node READs and WRITEs the pool, under the
 * global lock of the leaf (lock.c). A read is a round trip; a lock shares one with its reads, a release one
 * with its writes, as the `combine` switch allows.
 */
#include "tree/access.h"
#include "tree/index.h"
#include "tree/session.h"

static int one_sided_execute(struct tree_session *session, struct tree *tree, gaddr leaf,
                             struct fabric_command *commands, uint32_t count)
{
    (void)tree;
    return pool_execute(&session->pool, gaddr_node(leaf), commands, count);
}

static int one_sided_read_many(struct tree_session *session, struct tree *tree,
                               struct fabric_list *const *lists, uint32_t count)
{
    (void)tree;
    return pool_lists_post(&session->pool, lists, count);
}

static int one_sided_lock(struct tree_session *session, struct tree *tree, gaddr leaf, bool wanted,
                          struct fabric_command *reads, uint32_t count, struct tree_hold *hold)
{
    int status = tree_lock(session, leaf, wanted, reads, count, hold);
    session->image.layout = &tree->layout; /* also of an image that another handle filled */
    return status;
}

static int one_sided_lock_or_leave(struct tree_session *session, struct tree *tree, gaddr leaf,
                                   struct tree_operation *operation, struct fabric_command *reads,
                                   uint32_t count, struct tree_hold *hold)
{
    int status = tree_lock_or_leave(session, leaf, operation, reads, count, hold);
    session->image.layout = &tree->layout; /* as above */
    return status;
}

static int one_sided_release(struct tree_session *session, struct tree *tree, struct tree_hold *hold,
                             struct fabric_command *writes, uint32_t count)
{
    (void)tree;
    return tree_unlock(session, hold, writes, count);
}

static int one_sided_release_with(struct tree_session *session, struct tree *tree, struct tree_hold *hold,
                                  int verdict)
{
    (void)tree;
    return tree_unlock_with(session, hold, verdict);
}

const struct tree_access tree_access_one_sided = {
    .name = "one-sided",
    .read = one_sided_execute,
    .read_many = one_sided_read_many,
    .lock = one_sided_lock,
    .lock_or_leave = one_sided_lock_or_leave,
    .execute = one_sided_execute,
    .release = one_sided_release,
    .release_with = one_sided_release_with,
};
