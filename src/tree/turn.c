/*
 * turn.c - see turn.h.
 */
#include "tree/turn.h"

#include "base/task.h"
#include "format/verdict.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/merge.h"
#include "tree/session.h"
#include "tree/unlink.h"

int tree_foreign(struct tree_session *session, struct format_link link, struct format_key lower)
{
    session->foreign.link = link;
    format_key_store(&session->foreign.lower, lower);
    return TREE_FOREIGN;
}

/* Finishes what is half done in the leaf, as far as its own row gives the right to. */
static int foreign_finish(struct tree_session *session, struct tree *tree, struct format_link link,
                          struct format_key lower)
{
    const struct format_layout *layout = &tree->layout;
    struct format_header header;
    struct fabric_command read = pool_read_command(link.address, session->image.bytes, layout->header_bytes);
    session->image.address = GADDR_NULL;
    int status = pool_execute(&session->pool, gaddr_node(link.address), &read, 1);
    if (status)
        return status;
    pool_read_settle(&read);
    enum format_verdict verdict =
        format_node_verdict(layout, session->image.bytes, link, tree->index, 0, &header);
    bool dead = verdict == FORMAT_DEAD;
    enum tree_right right =
        dead ? tree_rights_enter_below(session, tree, lower) : tree_rights_enter(session, tree, lower);
    if (right <= TREE_OWNED) {
        if (dead)
            status = tree_unlink_finish(session, tree, link, &header);
        else if (verdict == FORMAT_FROZEN)
            status = tree_merge_thaw(session, tree, link, &header);
        else if (verdict == FORMAT_SPLITTING || verdict == FORMAT_MERGING)
            status = tree_leaf_settle(session, tree, link);
    }
    tree_rights_leave(session);
    return status > 0 ? 0 : status;
}

static bool foreign_again(struct tree_session *session, struct tree *tree, int *status)
{
    const struct tree_foreign foreign = session->foreign;
    *status = foreign_finish(session, tree, foreign.link, format_key_of(&foreign.lower));
    if (tree_again(session, tree, status))
        return true;
    if (!*status)
        *status = tree_restart(session, foreign.link.address);
    return !*status;
}

static void begin_again(struct tree_session *session)
{
    pool_session_begin(&session->pool);
    session->image.address = GADDR_NULL;
    session->restarts = session->invalid = session->walked = session->astray = 0;
}

void tree_turn_withdraw(struct tree_session *session, const struct tree *tree)
{
    for (struct tree_announcer *one = session->announcers; one; one = one->next)
        if (one->tree == tree && one->withdraw(one->context))
            session->withdrawn = one;
}

void tree_turn_announce(struct tree_session *session, const struct format_key *key)
{
    struct tree_announcer *withdrawn = session->withdrawn;
    if (__builtin_expect(!withdrawn, 1))
        return;
    /* These are of the change, and not of what the hook does. */
    const struct fabric_command *ahead = session->ahead;
    const uint32_t ahead_count = session->ahead_count;
    const uint8_t merge_met = session->merge_met;
    const bool replaced = session->replaced;
    session->withdrawn = NULL;
    session->ahead_count = 0;
    withdrawn->announce(withdrawn->context, key ? key->bytes : NULL, key ? key->length : 0);
    session->ahead = ahead;
    session->ahead_count = ahead_count;
    session->merge_met = merge_met;
    session->replaced = replaced;
}

/* Operations of the hook's own are no part of what is withdrawn. */
static int wait_hook(struct tree_session *session, struct tree *tree, const struct tree_turn *turn,
                     struct fabric_process owner)
{
    const struct tree_compute *compute = session->compute;
    if (turn->change)
        tree_turn_withdraw(session, tree);
    struct tree_announcer *withdrawn = session->withdrawn;
    session->withdrawn = NULL;
    int status = compute->forward.wait(compute->forward_context, session, tree, owner, turn->since);
    session->withdrawn = withdrawn;
    return status;
}

static bool wait_again(struct tree_session *session, struct tree *tree, struct tree_turn *turn,
                       struct fabric_process owner, int *status)
{
    const struct tree_compute *compute = session->compute;
    tree_turn_ask(turn);
    if (!compute->forward.wait && session->wants_log)
        *status = pool_fail(&session->pool, BANYAN_ENOTSUP,
                            "index %s: memory nodes keep on their disks what owners log, and nobody who "
                            "keeps a log owns the key's range",
                            tree->name);
    else if (!compute->forward.wait)
        *status =
            pool_fail(&session->pool, BANYAN_ENOTSUP,
                      "index %s: the key's range is compute node %u's, and this process cannot reach it",
                      tree->name, owner.compute_id);
    else
        *status = wait_hook(session, tree, turn, owner);
    if (*status)
        return false;
    if (turn->change)
        tree_turn_announce(session, turn->change);
    begin_again(session);
    return true;
}

bool tree_lapsed(const struct tree_session *session)
{
    /* Without the hook nobody else can have a right (rights.h). */
    return session->cached && session->compute->forward.pause && !fabric_lease_alive(session->pool.fabric);
}

/* O2. The operation is done again when the lease lives, or the right is gone. */
static bool pause_again(struct tree_session *session, struct tree *tree, int *status)
{
    const struct tree_compute *compute = session->compute;
    *status = compute->forward.pause(compute->forward_context, session, tree);
    if (*status)
        return false;
    begin_again(session);
    return true;
}

/* A merging waits neither for a map nor for a lease: who adopts the map waits for the merging (a flush; the
 * end of a cycle). What it could not do stays in the table, and is tried again. The same holds for what is
 * bound to one incarnation, which no waiting brings back. */
static bool waits_for_nothing(const struct tree_session *session)
{
    return session->through || session->draining || session->pool.pinned;
}

static bool would_wait(const struct tree_session *session, int status)
{
    if (status == TREE_ANEW || status == TREE_FOREIGN || status == BANYAN_EUNKNOWN)
        return false;
    return status == TREE_WAIT || status == TREE_LAPSED || tree_lapsed(session);
}

/* The hooks may do whole operations with the session, which are none of those that the WRITEs ahead are for.
 */
static bool turn_take(struct tree_session *session, struct tree *tree, struct tree_turn *turn,
                      struct fabric_process owner, int *status)
{
    const bool waits = !waits_for_nothing(session);
    if (!waits && would_wait(session, *status)) {
        *status = tree_not_owned(session, tree);
        return false;
    }
    switch (*status) {
    case TREE_ANEW:
        *status = 0;
        return true;
    case TREE_FOREIGN:
        return foreign_again(session, tree, status);
    case TREE_WAIT:
        return wait_again(session, tree, turn, owner, status);
    case TREE_LAPSED:
        return pause_again(session, tree, status);
    case BANYAN_EUNKNOWN: /* it may have taken effect, and would take effect twice */
        return false;
    default: /* The lease was looked at already where nothing is waited for: it may have lapsed since. */
        return waits && tree_lapsed(session) && pause_again(session, tree, status);
    }
}

static __attribute__((noinline)) bool turn_again(struct tree_session *session, struct tree *tree,
                                                 struct tree_turn *turn, int *status)
{
    const struct fabric_process owner =
        session->right == TREE_OTHERS ? session->owner : (struct fabric_process){0};
    const struct fabric_command *ahead = session->ahead;
    const uint32_t ahead_count = session->ahead_count;
    const bool replaced = session->replaced;
    tree_rights_leave(session);
    session->ahead_count = 0;
    bool again = turn_take(session, tree, turn, owner, status);
    session->ahead = ahead;
    session->ahead_count = ahead_count;
    session->replaced = replaced;
    return again;
}

bool tree_turn_again(struct tree_session *session, struct tree *tree, struct tree_turn *turn, int *status)
{
    if (*status || session->cached)
        return turn_again(session, tree, turn, status);
    tree_rights_leave(session); /* done, and nothing that the lease has to cover */
    return false;
}
