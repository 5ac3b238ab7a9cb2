/*
 * wait.c - see wait.h. A waiting operation looks for what keeps it, and does what it can about that: adopts
 * what is new, ends what a dead process has begun, takes over the ranges of one that is gone, inherits.
 *
 * Many operations wait at once where a range is away. One of them looks at the board every LOOK_NS; the
 * others sleep, and try their table of rights again.
 */
#include "owner/wait.h"

#include <string.h>

#include "owner/board.h"
#include "owner/heirs.h"
#include "owner/refused.h"
#include "owner/unkept.h"

#define LOOK_NS        (500 * MICROSECOND)
#define SLEEP_NS       (200 * MICROSECOND)
#define SLEEP_LAST_NS  (2 * MILLISECOND)
#define SLEEP_FRACTION 8u /* of what the operation has waited already */
/* An operation that has waited so long inherits what the keeper has not begun to. */
#define INHERIT_NS (2 * MILLISECOND)
/* A lapsed lease is looked at after this, after twice as long, and so on up to SLEEP_NS, then from the start:
 * looks at equal distances could all fall between a lease's end and the next echo, where that comes just
 * behind it. */
#define PAUSE_FIRST_NS (SLEEP_NS / 16)

/* ---- looking ---- */

static bool my_look(struct owner *owner)
{
    uint64_t now = task_now(), last = atomic_load_relaxed(&owner->looked_at);
    /* relaxed: it only spreads the calls */
    return (!last || now - last >= LOOK_NS) &&
           __atomic_compare_exchange_n(&owner->looked_at, &last, now, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

/* Whether the map that was read last has a range of the index that is on its way, or whose arrival no process
 * has published. */
static bool some_moving(struct owner *owner, const struct tree *tree)
{
    uint32_t count;
    bool moving = false;
    owner_turn_take(&owner->adopting);
    const struct format_range *ranges = owner_map_of(&owner->copy, tree_number(tree), &count);
    for (uint32_t i = 0; i < count; i++)
        moving = moving || owner_range_unfinished(&ranges[i], owner->copy.version);
    owner_turn_give(&owner->adopting);
    return moving;
}

/* *done: something has changed. */
static int look(struct owner *owner, struct tree_session *session, struct tree *tree,
                struct fabric_process peer, bool *done)
{
    struct memory_board_reply board;
    bool alive = true;
    int status = owner_board_look(session, &board);
    if (status)
        return status;
    if (board.version > atomic_load_relaxed(&owner->adopted)) {
        *done = true;
        return owner_catch_up(owner, session, board.version);
    }
    if (!owner_nobody(peer))
        status = owner_alive(owner, session, peer, &alive);
    if (status)
        return status;
    if (!alive)
        return owner_mend(owner, session, peer, done);
    if (board.holder.instance || !some_moving(owner, tree))
        return 0; /* whoever has the lock is at it */
    return owner_mend(owner, session, (struct fabric_process){0}, done);
}

/* What is known without asking; 0 and *done, or not. */
static int hear(struct owner *owner, struct tree_session *session, bool *done)
{
    uint64_t adopted = atomic_load_relaxed(&owner->adopted), heard = atomic_load_relaxed(&owner->heard);
    uint64_t notice = fabric_notice(owner->fabric);
    heard = heard > notice ? heard : notice;
    if (owner_fresh(owner) && heard <= adopted)
        return 0;
    /* A peer, or a notice, may tell of a version that is not: then looking at the board settles it. */
    int status = owner_catch_up(owner, session, owner_fresh(owner) ? adopted + 1 : 0);
    if (!status && atomic_load_relaxed(&owner->adopted) < heard)
        atomic_store_relaxed(&owner->heard, 0);
    *done = !status && (atomic_load_relaxed(&owner->adopted) > adopted);
    return status;
}

/* ---- waiting ---- */

/* The map could not be read again after a connection was lost, or the range moves for too long. */
static int doubtful(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    char text[OWNER_TEXT_BYTES + 128] = "";
    uint16_t nodes = fabric_memory_nodes(owner->fabric);
    for (uint16_t i = 0; i < nodes && !text[0]; i++)
        fabric_trouble(owner->fabric, i, text, sizeof text);
    if (text[0])
        return pool_fail(tree_session_pool(session), BANYAN_ENET,
                         "who owns the ranges of the index '%s' cannot be read: %s", tree_name(tree), text);
    return pool_fail(tree_session_pool(session), BANYAN_ENET,
                     "a range of the index '%s' is on its way from one compute node to another for too long",
                     tree_name(tree));
}

static int unreachable(struct owner *owner, struct tree_session *session, struct tree *tree,
                       struct fabric_process peer)
{
    char text[OWNER_TEXT_BYTES];
    OWNER_COUNT(owner, unreachable, 1);
    if (owner_nobody(peer))
        return doubtful(owner, session, tree);
    return pool_fail(tree_session_pool(session), BANYAN_ENET,
                     "a range of the index '%s' belongs to %s, which does not serve it", tree_name(tree),
                     owner_describe(owner, peer, text));
}

static int broken(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    char trouble[sizeof((struct owner_index *)0)->trouble];
    spinlock_lock(&owner->lock);
    const struct owner_index *index = owner_index_of(owner, tree);
    const bool bad = index && index->broken;
    if (bad) /* a copy: another version of the map may say something else at once */
        memcpy(trouble, index->trouble, sizeof trouble);
    spinlock_unlock(&owner->lock);
    return bad ? pool_fail(tree_session_pool(session), BANYAN_ECORRUPT, "the index '%s': %s", tree_name(tree),
                           trouble)
               : 0;
}

/* An operation that waits for long looks less often, since each look may be a call of the owner. */
static uint64_t pause_of(uint64_t waited)
{
    uint64_t pause = waited / SLEEP_FRACTION;
    return pause < SLEEP_NS ? SLEEP_NS : pause < SLEEP_LAST_NS ? pause : SLEEP_LAST_NS;
}

/* An error of the network is no reason to give up before the time-out, nor is that this process finds no room
 * for what it has to merge before a range moves on: that is not the operation's, which may read alone. */
static bool passing(int status)
{
    return status == BANYAN_ENOSPC || status == BANYAN_ENET || status == BANYAN_ETIMEOUT ||
           status == BANYAN_EFENCED || status == BANYAN_EUNKNOWN || status == BANYAN_EBUSY ||
           status == BANYAN_ECONFLICT;
}

static bool is_keeper(struct owner *owner)
{
    spinlock_lock(&owner->lock);
    const bool keeper = owner->keeper == task_self();
    spinlock_unlock(&owner->lock);
    return keeper;
}

/* The keeper is first, since it holds up no others of its thread. But it may be at work for long (a transfer
 * waits for other processes), and its own operations may be what waits here: samples for its share.
 * What fails is tried again. */
static void inherit(struct owner *owner, struct tree_session *session, uint64_t waited)
{
    if (owner_heirs_pending(owner) && (waited >= INHERIT_NS || is_keeper(owner)))
        (void)owner_heirs_step(owner, session);
}

/* Where this process finds no room for what it has to merge, that is the reason. */
static int timed_out(struct owner *owner, struct tree_session *session, struct tree *tree,
                     struct fabric_process peer)
{
    bool done;
    return hear(owner, session, &done) == BANYAN_ENOSPC ? BANYAN_ENOSPC
                                                        : unreachable(owner, session, tree, peer);
}

int owner_wait_for(void *context, struct tree_session *session, struct tree *tree, struct fabric_process peer,
                   uint64_t since)
{
    struct owner *owner = context;
    const bool unkept = tree_session_wants_log(session); /* before anything else is done with it */
    const uint64_t began = task_now();
    bool done = false;
    int status = broken(owner, session, tree);
    if (!status && owner_nobody(peer) && !unkept)
        status = owner_refused_tell(owner, session, tree);
    if (!status && began - since >= owner->options.timeout_ns)
        status =
            unkept ? owner_unkept_fail(owner, session, tree, peer) : timed_out(owner, session, tree, peer);
    if (status)
        return status;
    OWNER_COUNT(owner, waits, 1);
    status = hear(owner, session, &done);
    if (!status && !done && my_look(owner))
        status = look(owner, session, tree, peer, &done);
    inherit(owner, session, began - since);
    if (!done)
        task_sleep(pause_of(began - since));
    uint64_t took = task_now() - began;
    OWNER_COUNT(owner, wait_ns, took);
    OWNER_LONGEST(owner, wait_longest_ns, task_now() - since);
    return passing(status) ? 0 : status;
}

/* ---- the read lease ---- */

static int lapsed(struct owner *owner, struct tree_session *session)
{
    char text[OWNER_TEXT_BYTES + 128];
    fabric_trouble(owner->fabric, 0, text, sizeof text);
    return pool_fail(tree_session_pool(session), BANYAN_ENET,
                     "the read lease lapsed, and memory node 0 does not renew it%s%s", text[0] ? ": " : "",
                     text);
}

int owner_wait_lease(void *context, struct tree_session *session, struct tree *tree)
{
    struct owner *owner = context;
    const uint64_t began = task_now(), version = tree_rights_version(tree);
    uint64_t pause = PAUSE_FIRST_NS;
    int status = 0;
    OWNER_COUNT(owner, pauses, 1);
    while (!status && !fabric_lease_alive(owner->fabric) && tree_rights_version(tree) == version) {
        if (task_now() - began >= owner->options.timeout_ns) {
            status = lapsed(owner, session);
            break;
        }
        if (!owner_fresh(owner)) { /* the keeper does it too; whoever is first */
            int refreshed = owner_catch_up(owner, session, 0);
            status = passing(refreshed) ? 0 : refreshed;
        }
        task_sleep(pause);
        pause = pause < SLEEP_NS ? 2 * pause : PAUSE_FIRST_NS;
    }
    uint64_t took = task_now() - began;
    OWNER_COUNT(owner, pause_ns, took);
    OWNER_LONGEST(owner, pause_longest_ns, took);
    return status;
}
