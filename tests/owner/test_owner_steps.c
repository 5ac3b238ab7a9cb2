/*
 * test_owner_steps.c - the order of the steps in which ranges change hands and maps are adopted, one by one
 * (stage.h): who is fenced where before a range is given away, what a holder of the map's lock that was
 * fenced may still write, when a version is published, reported and believed, and what becomes of an exchange
 * whose answer is lost.
 */
#include "stage.h"

#include <string.h>

#include "base/task.h"
#include "owner/heirs.h"
#include "owner/message.h"
#include "owner/wait.h"

#define NOWHERE    0u
#define EVERYWHERE (STAGE_BIT(STAGE_NODES) - 1)

static void good(const struct actor *actor, int status)
{
    if (status)
        fail_msg("compute node %u: %d: %s", actor->number, status, tree_session_error(actor->session)->text);
}

/* ---- who loses a range is fenced everywhere, and its read lease is over ---- */

/* So long the range is nobody's. */
static void still_on_its_way(struct stage *stage, struct actor *holder)
{
    struct stage_ranges ranges = {0};
    assert_int_equal(holder->number, B);
    assert_int_equal(holder->fenced, EVERYWHERE);
    stage_look(stage->actors[C], &ranges);
    assert_int_equal(ranges.moving, 1);
}

static void home_first(struct stage *stage, struct actor *actor, unsigned node)
{
    assert_int_equal(actor->number, B);
    assert_int_equal(actor->fenced, node ? STAGE_BIT(0) : NOWHERE);
}

/* B has the range, or shares it with the others; it adopts nothing, whether it is connected or not. */
static void takes_from_silent(bool shared, bool connected)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
    if (!shared)
        good(b, stage_move(b, 1, b));
    good(b, stage_put(b, 1, 2));
    stage.deaf = STAGE_BIT(B);
    stage.connected = connected ? STAGE_ALL : STAGE_BIT(A) | STAGE_BIT(C);
    stage.lease_needs = 3;
    stage.lease_asked = still_on_its_way;
    stage.fencing = home_first;
    const uint64_t began = task_now();
    good(a, stage_move(a, 1, a));
    if (connected)
        assert_true(task_now() - began >= a->owner->options.adopt_ns);
    assert_int_equal(b->fenced, EVERYWHERE);
    assert_int_equal(c->fenced, NOWHERE);
    assert_int_equal(stage.lease_asks, 4);
    stage_look(c, &ranges);
    assert_int_equal(ranges.moving, 0);
    assert_int_equal(ranges.of[A], 1);
    /* B comes back: nothing that it begins relies on its old table, and A does its writes. */
    stage.connected = STAGE_ALL;
    good(b, stage_put(b, 1, 3));
    assert_int_equal(stage.served, 1);
    assert_int_equal(stage_get(a, 1), 3);
    assert_int_equal(stage_get(c, 1), 3);
    stage_close(&stage);
}

static void silent_losers_are_fenced_everywhere(void **state)
{
    for (unsigned round = 0; round < 4; round++)
        takes_from_silent(round & 1, round & 2);
}

/* Before leaves are made to begin at new bounds, all who may change them keep those, or are fenced. */
static void silent_sharers_of_a_split_are_fenced(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open(&stage);
    struct actor *a = stage.actors[A], *c = stage.actors[C];
    uint8_t key[8];
    stage.deaf = STAGE_BIT(B);
    stage.connected = STAGE_BIT(A) | STAGE_BIT(C);
    stage.lease_needs = 1;
    good(a, stage_split(a, 20));
    assert_int_equal(stage.actors[B]->fenced, EVERYWHERE);
    stage_look(c, &ranges);
    assert_int_equal(ranges.count, 2);
    assert_int_equal(ranges.split, 0);
    /* the leaf is there: it is looked at, and nothing is changed */
    assert_int_equal(stage_get(c, 20), 1);
    tree_session_stats_reset(c->session);
    good(c, tree_border_make(c->session, c->tree, key, stage_key(20, key)));
    assert_int_equal(tree_session_stats(c->session)->cost.writes, 0);
    assert_int_equal(tree_session_stats(c->session)->cost.atomics, 0);
    stage_close(&stage);
}

/* ---- owners that merge what they have logged ---- */

static struct merging {
    struct actor *loser;
    unsigned flushed, refused, inherited, cleared, given_back;
    struct format_heir heir;
    bool bounded;  /* what was inherited last ended at a bound */
    unsigned full; /* so many mergings find no room */
    int status;    /* of the loser's adopting */
    bool lost;     /* its connections, once */
    bool away;     /* a memory node: what the index's first range needs cannot be read */
} merging;

static int merge_all(void *context, struct tree_session *session, struct tree *tree, struct format_key lower,
                     const struct format_key *upper)
{
    struct pool_session *pool = tree_session_pool(session);
    if (pool->pinned != fabric_incarnation(pool->fabric)) { /* as a list that is posted under it would be */
        merging.refused++;
        return pool_fail(pool, BANYAN_EFENCED, "a connection was lost since");
    }
    if (merging.full) {
        merging.full--;
        return pool_fail(pool, BANYAN_ENOSPC, "there is no room");
    }
    merging.flushed++;
    return 0;
}

static int inherit_one(void *context, struct tree_session *session, struct tree *tree,
                       const struct format_heir *heirs, uint32_t heir_count, struct format_key lower,
                       const struct format_key *upper, uint64_t epoch)
{
    if (merging.away && !lower.length)
        return pool_fail(tree_session_pool(session), BANYAN_ENET, "a memory node is away");
    merging.inherited++;
    merging.bounded = upper != NULL;
    merging.heir = heirs[0];
    assert_int_equal(heir_count, 1);
    assert_true(heirs[0].epoch < epoch);
    return 0;
}

static void clear(void *context, struct tree *tree, struct format_key lower, const struct format_key *upper,
                  uint64_t epoch)
{
    merging.cleared++;
}

static void disown(void *context, struct tree *tree, struct format_key lower, const struct format_key *upper,
                   uint64_t epoch)
{
}

static void release(void *context, struct tree *tree, uint64_t version) {}
static void forget(void *context, struct tree *tree) {}
static int give_back(void *context, struct tree_session *session, struct fabric_process gone)
{
    assert_true(fabric_process_equal(gone, fabric_self(&merging.loser->wrapper.fabric)));
    merging.given_back++;
    return 0;
}

static void merging_hurry(void *context, bool on)
{
    (void)context, (void)on;
}

static const struct owner_log merging_log = {.inherit = inherit_one,
                                             .cleared = clear,
                                             .flush = merge_all,
                                             .hurry = merging_hurry,
                                             .disown = disown,
                                             .released = release,
                                             .dropped = forget,
                                             .release_dead = give_back};

/* It hears of the move, and has lost its connections meanwhile, if it is to. */
static void hear_of_the_move(struct stage *stage, uint64_t version)
{
    if (merging.lost)
        return;
    merging.lost = true;
    stage_lose(merging.loser);
    merging.status = owner_refresh(merging.loser->owner, merging.loser->second, version);
}

/* So that nobody waits for long in vain. */
static void not_for_ever(struct actor *actor, const struct memory_board_request *request)
{
    static unsigned asked;
    asked = request->kind == MEMORY_BOARD_MEMBERS ? asked + 1 : 0;
    if (asked == 1000)
        fail_msg("%u looks at an owner that cannot merge", asked);
}

/* A range that is to be shared is merged by its owner. One that lost its connections may have been fenced for
 * the range, so it must not touch the leaves any more: then another inherits. */
static void what_is_merged_late_is_refused(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open_logged(&stage, &merging_log);
    struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
    uint64_t incarnation;
    merging = (struct merging){.loser = a};
    good(a, stage_move(a, 1, a));
    good(b, stage_move(b, 1, NULL));
    assert_int_equal(merging.flushed, 1);
    good(a, stage_move(a, 1, a));
    stage.notified = hear_of_the_move;
    stage.before_call = not_for_ever;
    stage.deaf = STAGE_BIT(A);
    b->owner->options.adopt_ns = UINT64_MAX / 2; /* it is not waited for: it says that it cannot */
    good(b, stage_move(b, 1, NULL));
    stage.notified = NULL;
    stage.before_call = NULL;
    assert_int_equal(merging.status, BANYAN_EFENCED);
    assert_int_equal(merging.refused, 1);
    assert_int_equal(merging.flushed, 1);
    assert_int_equal(a->fenced, EVERYWHERE);
    stage_look(c, &ranges);
    assert_int_equal(ranges.of[B], 1); /* since it can inherit, and is at it */
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_MOVING);
    good(b, owner_heirs_step(b->owner, b->session));
    assert_int_equal(merging.inherited, 1);
    assert_int_equal(merging.cleared, 1);
    assert_true(fabric_process_equal(merging.heir.process, fabric_self(&a->wrapper.fabric)));
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_OWNED);
    stage.deaf = 0;
    good(a, owner_refresh(a->owner, a->session, stage_board(a).version));
    assert_int_equal(stage_right(a, 1, &incarnation), TREE_OTHERS);
    assert_int_equal(merging.given_back, 0);
    stage_close(&stage);
}

/* A loses its connections when it has published that its own range is to be shared: nobody holds the map's
 * lock then, and nobody else is at work. */
static void lose_the_mover(struct stage *stage, uint64_t version)
{
    stage->notified = NULL;
    stage_lose(stage->actors[A]);
}

/* An owner that cannot merge what moves takes it back, and inherits, with no other process's help: there may
 * be none. An operation that waits for the range does so, and so does the keeper. The connections are lost in
 * the move, or before it and nobody has noticed yet: then too the map's lock is given up at once. */
static void what_is_overdue_is_taken_back(void **state)
{
    for (unsigned round = 0; round < 4; round++) {
        const bool kept = round & 1, before = round & 2;
        struct stage stage;
        struct stage_ranges ranges = {0};
        uint64_t incarnation, looked = 0;
        stage_open_logged(&stage, &merging_log);
        struct actor *a = stage.actors[A];
        merging = (struct merging){.loser = a};
        good(a, stage_move(a, 1, a));
        if (before)
            stage_lose(a);
        else
            stage.notified = lose_the_mover;
        assert_int_equal(stage_move(a, 1, NULL), BANYAN_EFENCED);
        assert_int_equal(merging.refused, 1);
        stage_look(a, &ranges);
        assert_int_equal(ranges.moving, 1);
        stage.connected = STAGE_BIT(A);
        if (kept) {
            good(a, owner_keep_up(a->owner, a->session, &looked));
            good(a, owner_heirs_step(a->owner, a->session));
            assert_int_equal(stage_right(a, 1, &incarnation), TREE_OWNED);
        }
        good(a, stage_put(a, 1, 9));
        assert_int_equal(merging.flushed, 0);
        assert_int_equal(merging.inherited, 1);
        assert_true(fabric_process_equal(merging.heir.process, fabric_self(&a->wrapper.fabric)));
        assert_int_equal(stage_get(a, 1), 9);
        stage_look(a, &ranges);
        assert_int_equal(ranges.of[A], 1);
        stage_close(&stage);
    }
}

static struct actor *mortal; /* it dies when it has published something */

static void die_published(struct actor *actor, const struct memory_board_request *request)
{
    actor->cut = actor->cut || (actor == mortal && request->kind == MEMORY_BOARD_PUBLISH);
}

static void bury(struct actor *actor)
{
    struct stage *stage = actor->stage;
    assert_true(actor->cut);
    stage->after_call = NULL;
    stage->connected &= ~STAGE_BIT(actor->number);
    stage_lose(actor);
}

/* An operation that waits for a range which its process cannot merge yet, for want of room, does not fail:
 * room may come, and it may only read. */
static void what_has_no_room_is_waited_for(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open_logged(&stage, &merging_log);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    merging = (struct merging){.loser = a, .full = 2};
    good(a, stage_move(a, 1, a));
    stage.deaf = STAGE_BIT(A);
    stage.after_call = die_published;
    mortal = b;
    assert_true(stage_move(b, 1, NULL) < 0); /* it is to be shared */
    bury(b);
    stage_look(a, &ranges);
    assert_int_equal(ranges.moving, 1);
    assert_int_equal(owner_refresh(a->owner, a->session, stage_board(a).version), BANYAN_ENOSPC);
    assert_int_equal(merging.full, 1);
    assert_int_equal(stage_get(a, 1), 1);
    assert_int_equal(merging.full, 0);
    assert_int_equal(merging.flushed, 1);
    stage_look(a, &ranges);
    assert_int_equal(ranges.shared, 1);
    stage_close(&stage);
}

/* A keeper may be held up, by a transfer that waits for others, or by a sample that it draws from the very
 * range which it is to inherit. What waits for the range inherits it then. */
static void operations_inherit_what_they_wait_for(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open_logged(&stage, &merging_log);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    uint64_t incarnation;
    merging = (struct merging){.loser = a};
    good(a, stage_move(a, 1, a));
    good(a, stage_put(a, 1, 7));
    stage.connected &= ~STAGE_BIT(A);                   /* it is dead */
    b->owner->options.timeout_ns = 20000 * MILLISECOND; /* what its operations wait for comes */
    good(b, stage_put(b, 1, 8));
    assert_int_equal(merging.inherited, 1);
    assert_int_equal(merging.given_back, 1);
    assert_true(fabric_process_equal(merging.heir.process, fabric_self(&a->wrapper.fabric)));
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_OWNED);
    assert_int_equal(stage_get(b, 1), 8);
    stage_look(b, &ranges);
    assert_int_equal(ranges.of[B], 1);
    stage_close(&stage);
}

/* A range that cannot be inherited, since a memory node is away, keeps no other waiting; and it is tried
 * again when the memory node is back. */
static void a_range_that_cannot_be_inherited_yet(void **state)
{
    struct stage stage;
    stage_open_logged(&stage, &merging_log);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    uint64_t incarnation;
    merging = (struct merging){.loser = a};
    good(a, stage_split(a, 20));
    good(a, stage_move(a, 1, a));
    good(a, stage_move(a, 20, a));
    stage.connected &= ~STAGE_BIT(A); /* it is dead */
    merging.away = true;
    b->owner->options.timeout_ns = 20000 * MILLISECOND; /* what its operations wait for comes */
    good(b, stage_put(b, 20, 8));
    assert_int_equal(merging.inherited, 1);
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_MOVING);
    assert_int_equal(stage_right(b, 20, &incarnation), TREE_OWNED);
    merging.away = false;
    good(b, stage_put(b, 1, 9));
    assert_int_equal(merging.inherited, 2);
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_OWNED);
    assert_int_equal(stage_get(b, 1), 9);
    stage_close(&stage);
}

/* Of a range a part was inherited, and the bound of that part is taken away, since who made it has died. Then
 * the rest alone is inherited: the part is served since. */
static void a_part_that_was_inherited_is_not_again(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open_logged(&stage, &merging_log);
    struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
    uint64_t incarnation;
    bool done = false;
    merging = (struct merging){.loser = a, .away = true};
    good(a, stage_move(a, 1, a));
    stage.connected &= ~STAGE_BIT(A); /* it is dead */
    good(b, owner_mend(b->owner, b->session, fabric_self(&a->wrapper.fabric), &done));
    assert_true(done);
    stage.after_call = die_published;
    mortal = c;
    assert_true(stage_split(c, 20) < 0);
    bury(c);
    assert_int_equal(owner_heirs_step(b->owner, b->session), BANYAN_ENET);
    assert_int_equal(merging.inherited, 1);
    stage_look(b, &ranges);
    assert_int_equal(ranges.count, 1);
    merging.away = false;
    good(b, owner_heirs_step(b->owner, b->session));
    assert_int_equal(merging.inherited, 2);
    assert_true(merging.bounded);
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_OWNED);
    assert_int_equal(stage_right(b, 20, &incarnation), TREE_OWNED);
    stage_close(&stage);
}

static struct actor *unlocker; /* it has taken heirs off the map, and not adopted that */

static void share_behind_the_unlock(struct actor *actor, const struct memory_board_request *request)
{
    struct actor *c = actor->stage->actors[C];
    if (actor != unlocker || request->kind != MEMORY_BOARD_UNLOCK)
        return;
    unlocker = NULL;
    good(c, stage_move(c, 1, NULL));
}

/* The map of one version may say both that the heirs of a range are off, and that the range moves on, to be
 * merged. Its log must hear of the former: else it keeps for ever what it has logged since. */
static void heirs_are_off_a_range_that_moves_on(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    (void)state;
    stage_open_logged(&stage, &merging_log);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    uint64_t incarnation;
    merging = (struct merging){.loser = a};
    good(a, stage_move(a, 1, a));
    good(a, stage_move(a, 1, b));
    stage.after_call = share_behind_the_unlock;
    unlocker = b;
    good(b, owner_heirs_step(b->owner, b->session));
    assert_null(unlocker);
    assert_int_equal(merging.inherited, 1);
    assert_int_equal(merging.flushed, 1);
    assert_int_equal(merging.cleared, 1);
    stage_look(a, &ranges);
    assert_int_equal(ranges.shared, 1);
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_SHARED);
    stage_close(&stage);
}

/* ---- holders of the map's lock that were fenced ---- */

static void untouched_yet(struct stage *stage, struct actor *actor, unsigned node)
{
    struct stage_ranges ranges = {0};
    stage_look(stage->actors[C], &ranges);
    assert_int_equal(ranges.count, 0);
    assert_int_equal(stage_board(stage->actors[C]).version, 0);
}

static void an_orphan_is_fenced_before_the_map_changes(void **state)
{
    struct stage stage;
    struct memory_board_reply reply;
    struct memory_board_request request = {.kind = MEMORY_BOARD_LOCK};
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    good(b, owner_board_call(b->session, &request, &reply));
    assert_true(reply.grant);
    stage_lose(b); /* no process tells that it was fenced elsewhere */
    assert_int_equal(stage_board(a).orphan.compute_id, B + 1);
    stage.fencing = untouched_yet;
    good(a, stage_split(a, 20));
    assert_int_equal(b->fenced, EVERYWHERE);
    assert_int_equal(stage_board(a).orphan.compute_id, 0);
    stage_close(&stage);
}

static struct actor *holder; /* it is fenced when it has got the lock */

static void lose_with_the_lock(struct actor *actor, const struct memory_board_request *request)
{
    if (actor != holder || request->kind != MEMORY_BOARD_LOCK)
        return;
    holder = NULL;
    stage_lose(actor);
}

static int merge(struct actor *actor, uint64_t number)
{
    uint8_t key[8];
    return owner_merge(actor->owner, actor->session, actor->tree, key, stage_key(number, key));
}

static int change(struct actor *actor, unsigned what)
{
    switch (what) {
    case 0:
        return stage_split(actor, 30);
    case 1:
        return stage_move(actor, 1, actor);
    case 2:
        return merge(actor, 20);
    default:
        return stage_move(actor, 1, NULL);
    }
}

/* It finds out by a refusal, and its next write would go out under its new connections. */
static void a_fenced_holder_writes_nothing(void **state)
{
    for (unsigned what = 0; what < 4; what++) {
        struct stage stage;
        struct stage_ranges before = {0}, after = {0};
        stage_open(&stage);
        struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
        good(b, stage_split(b, 20));
        good(b, stage_move(b, 1, b));
        if (what == 2)
            good(b, stage_move(b, 20, b));
        stage_look(c, &before);
        holder = a;
        stage.after_call = lose_with_the_lock;
        assert_true(change(a, what) < 0);
        assert_null(holder);
        stage_look(c, &after);
        assert_int_equal(after.sum, before.sum);
        /* what is asked for again is done */
        good(a, change(a, what));
        stage_look(c, &after);
        assert_int_not_equal(after.sum, before.sum);
        stage_close(&stage);
    }
}

/* ---- entries, then the version ---- */

struct published {
    uint64_t version;
    unsigned moving, settled;
} published;

/* The map that goes with a version is there when the version is told. */
static void entries_are_there(struct stage *stage, uint64_t version)
{
    struct stage_ranges ranges = {0};
    stage_look(stage->actors[C], &ranges);
    assert_int_equal(stage_board(stage->actors[C]).version, version);
    assert_true(version > published.version);
    published.version = version;
    published.moving += ranges.moving;
    published.settled += ranges.of[A];
    assert_int_equal(ranges.moving, published.moving == 1 && !published.settled);
}

static void entries_are_written_before_their_version(void **state)
{
    struct stage stage;
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    good(b, stage_move(b, 1, b));
    published = (struct published){.version = stage_board(a).version};
    stage.notified = entries_are_there;
    good(a, stage_move(a, 1, a));
    assert_int_equal(published.moving, 1);
    assert_int_equal(published.settled, 1);
    stage_close(&stage);
}

/* ---- ranges that grow ---- */

static struct growth {
    unsigned looks;   /* at the members, until B has adopted the version; 0: it never does */
    uint64_t adopted; /* by B, when two ranges had become one */
} growth;

static void look_of_growth(struct actor *actor, const struct memory_board_request *request)
{
    struct actor *b = actor->stage->actors[B];
    if (actor->number != A)
        return;
    if (request->kind == MEMORY_BOARD_PUBLISH)
        growth.adopted = b->owner->adopted;
    if (request->kind == MEMORY_BOARD_MEMBERS && growth.looks && !--growth.looks)
        good(b, owner_refresh(b->owner, b->second, stage_board(b).version));
}

/* An owner that has adopted the version in which it got the one knows that it had both since. One that stands
 * still is waited for as long as by other transfers, and not fenced: it loses nothing. */
static void ranges_grow_when_their_owner_knows_both(void **state)
{
    for (unsigned adopts = 0; adopts < 2; adopts++) {
        struct stage stage;
        struct stage_ranges ranges = {0};
        stage_open(&stage);
        struct actor *a = stage.actors[A], *b = stage.actors[B];
        good(a, stage_split(a, 20));
        good(a, stage_move(a, 1, b));
        good(a, stage_move(a, 20, stage.actors[C]));
        stage.deaf = STAGE_BIT(B);
        good(a, stage_move(a, 20, b));
        const uint64_t version = stage_board(a).version;
        assert_true(b->owner->adopted < version);
        growth = (struct growth){.looks = adopts ? 3 : 0};
        if (adopts) /* in the end: it is waited for, whatever time the looks take */
            a->owner->options.adopt_ns = UINT64_MAX / 2;
        stage.before_call = look_of_growth;
        good(a, merge(a, 20));
        assert_int_equal(growth.adopted >= version, adopts);
        stage.before_call = NULL;
        assert_int_equal(b->fenced, 0);
        stage_look(a, &ranges);
        assert_int_equal(ranges.count, 1);
        assert_int_equal(ranges.of[B], 1);
        assert_int_equal(stage_put(b, 30, 7), 0);
        assert_int_equal(stage_get(a, 30), 7);
        stage_close(&stage);
    }
}

/* ---- a transfer that another finishes ---- */

static void die_unpublished(struct actor *actor, const struct memory_board_request *request)
{
    if (actor->number == A && request->kind == MEMORY_BOARD_PUBLISH)
        actor->cut = true;
}

/* The entries are settled already. */
static void die_settled(struct actor *actor, const struct memory_board_request *request)
{
    struct stage_ranges ranges = {0};
    if (actor->number != A || request->kind != MEMORY_BOARD_PUBLISH)
        return;
    stage_look(actor->stage->actors[C], &ranges);
    actor->cut = actor->cut || (ranges.of[A] && !ranges.moving);
}

/* A has written that the range is its own, and has lost its connection before it has published the version.
 * It reads the entries again, in which nothing moves; its copy is of the version on the board, and says that
 * the range does. */
static void an_arrival_is_published_by_who_needs_it(void **state)
{
    struct stage stage;
    uint64_t incarnation;
    stage_open(&stage);
    struct actor *a = stage.actors[A];
    stage.before_call = die_settled;
    assert_true(stage_move(a, 1, a) < 0);
    assert_true(a->cut);
    stage.before_call = NULL;
    const uint64_t version = stage_board(stage.actors[C]).version;
    a->cut = false;
    stage_lose(a);
    good(a, stage_put(a, 1, 5));
    assert_true(stage_board(a).version > version);
    assert_int_equal(stage_right(a, 1, &incarnation), TREE_OWNED);
    stage_close(&stage);
}

/* A comes back when C has published what A has written. */
static void back_when_published(struct actor *actor, const struct memory_board_request *request)
{
    if (actor->number == C && request->kind == MEMORY_BOARD_PUBLISH)
        actor->stage->actors[A]->cut = false;
}

/* The same, but C has not heard of the move. It reads entries in which nothing moves, and A, whose they say
 * the range is, does not serve it. */
static void an_arrival_is_published_by_who_never_saw_the_move(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
    good(b, stage_move(b, 1, b));
    stage.deaf = STAGE_BIT(C);
    stage.before_call = die_settled;
    assert_true(stage_move(a, 1, a) < 0);
    assert_true(a->cut);
    stage.before_call = NULL;
    stage.after_call = back_when_published;
    stage.deaf = 0;
    stage_lose(a);
    const uint64_t version = stage_board(c).version;
    assert_true(c->owner->adopted < version);
    stage_look(c, &ranges);
    assert_int_equal(ranges.moving, 0);
    good(c, stage_put(c, 1, 5));
    assert_int_equal(stage_board(c).version, version + 1);
    assert_int_equal(stage_get(a, 1), 5);
    stage_close(&stage);
}

/* B has adopted the last version that there is, and not what A has written since. */
static void a_finished_transfer_has_a_version_of_its_own(void **state)
{
    struct stage stage;
    struct stage_ranges ranges = {0};
    bool done = false;
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
    uint64_t incarnation;
    good(b, stage_move(b, 1, b));
    const uint64_t version = stage_board(c).version;
    stage.before_call = die_unpublished;
    assert_true(stage_move(a, 1, a) < 0);
    stage.before_call = NULL;
    stage_lose(a);
    stage_look(c, &ranges);
    assert_int_equal(ranges.moving, 1);
    assert_int_equal(stage_board(c).version, version);
    assert_int_equal(stage_right(b, 1, &incarnation), TREE_OWNED);
    stage.connected = STAGE_BIT(C);
    stage.deaf = STAGE_BIT(B);
    good(c, owner_mend(c->owner, c->session, (struct fabric_process){0}, &done));
    assert_true(done);
    assert_int_equal(a->fenced, EVERYWHERE); /* the orphan */
    assert_int_equal(b->fenced, EVERYWHERE);
    stage_look(c, &ranges);
    assert_int_equal(ranges.moving, 0);
    assert_int_equal(ranges.shared, 1);
    stage_close(&stage);
}

/* C takes off what A has left half made. */
static void die_recovering(struct actor *actor, const struct memory_board_request *request)
{
    if (actor->number == C && request->kind == MEMORY_BOARD_PUBLISH)
        actor->cut = true;
}

/* All have heard of the bound; its border is not made yet. */
static void die_half_made(struct actor *actor, const struct memory_board_request *request)
{
    if (actor->number == A && request->kind == MEMORY_BOARD_PUBLISH)
        actor->cut = true;
}

static int nothing(void *context, struct tree_session *session)
{
    (void)context, (void)session;
    return 0;
}

/* A takes a bound off the map, or leaves one half made, which C takes off; and the one that took it off ends
 * before it has published that. Nothing in the map tells of what is gone, and no other change comes. All have
 * heard of the bound: they hear that it is gone from whatever takes the map's lock next. */
static void a_bound_that_is_gone_is_published(void **state)
{
    for (unsigned half_made = 0; half_made < 2; half_made++) {
        struct stage stage;
        struct stage_ranges ranges = {0};
        (void)state;
        stage_open(&stage);
        struct actor *a = stage.actors[A], *b = stage.actors[B], *c = stage.actors[C];
        if (half_made) {
            stage.after_call = die_half_made;
            assert_true(stage_split(a, 20) < 0);
            stage.after_call = NULL;
            stage_lose(a);
            stage_look(b, &ranges);
            assert_int_equal(ranges.split, 1);
            stage.before_call = die_recovering;
            assert_true(owner_locked(c->owner, c->session, nothing, NULL) < 0);
            assert_true(c->cut);
            stage_lose(c);
        } else {
            good(a, stage_split(a, 20));
            stage.before_call = die_unpublished;
            assert_true(merge(a, 20) < 0);
            stage_lose(a);
        }
        stage.before_call = NULL;
        assert_true(a->cut);
        stage_look(b, &ranges);
        assert_int_equal(ranges.count, 1);
        const uint64_t version = stage_board(b).version;
        assert_int_equal(b->owner->adopted, version);
        assert_int_equal(b->owner->copy.count, 2);
        a->cut = c->cut = false;
        good(b, owner_locked(b->owner, b->session, nothing, NULL));
        assert_int_equal(stage_board(b).version, version + 1);
        assert_int_equal(b->owner->adopted, version + 1);
        assert_int_equal(b->owner->copy.count, 1);
        stage_close(&stage);
    }
}

/* ---- fetching ---- */

static struct actor *fetcher; /* something happens in its next fetch */
static unsigned fetch_lists;  /* ... behind so many of its lists */

/* The range of C becomes A's just before B asks for the version. */
static void change_before_the_look(struct actor *actor, const struct memory_board_request *request)
{
    struct stage *stage = actor->stage;
    if (actor != fetcher || request->kind != MEMORY_BOARD_LOOK)
        return;
    fetcher = NULL;
    good(stage->actors[A], stage_move(stage->actors[A], 1, stage->actors[A]));
}

static void a_version_is_read_before_its_entries(void **state)
{
    struct stage stage;
    stage_open(&stage);
    struct actor *b = stage.actors[B], *c = stage.actors[C];
    good(c, stage_move(c, 1, c));
    stage.deaf = STAGE_BIT(B);
    fetcher = b;
    stage.before_call = change_before_the_look;
    good(b, owner_refresh(b->owner, b->session, b->owner->adopted + 1));
    assert_null(fetcher);
    stage.before_call = NULL;
    /* B knows what goes with the version that it has: else it asks C, and waits for a later one in vain. */
    good(b, stage_put(b, 1, 7));
    assert_int_equal(stage.served, 1);
    assert_int_equal(stage_get(stage.actors[A], 1), 7);
    stage_close(&stage);
}

/* B is fenced, and A takes over from it, behind one of the lists with which it fetches the map. */
static void taken_over_in_a_fetch(struct actor *actor)
{
    struct stage *stage = actor->stage;
    if (actor != fetcher || actor->lists < fetch_lists)
        return;
    fetcher = NULL;
    stage->connected = STAGE_BIT(A) | STAGE_BIT(C);
    good(stage->actors[A], stage_move(stage->actors[A], 1, stage->actors[A]));
    stage->connected = STAGE_ALL;
    assert_int_equal(actor->fenced, EVERYWHERE);
}

static void a_map_belongs_to_the_incarnation_before_it(void **state)
{
    for (unsigned list = 1;; list++) {
        struct stage stage;
        uint64_t incarnation;
        stage_open(&stage);
        struct actor *b = stage.actors[B];
        good(b, stage_move(b, 1, b));
        stage.deaf = STAGE_BIT(B);
        fetcher = b;
        fetch_lists = b->lists + list;
        stage.after_list = taken_over_in_a_fetch;
        good(b, owner_refresh(b->owner, b->session, b->owner->adopted + 1));
        stage.after_list = NULL;
        bool met = !fetcher;
        fetcher = NULL;
        if (met) {
            enum tree_right right = stage_right(b, 1, &incarnation);
            assert_false(right == TREE_OWNED && incarnation == fabric_incarnation(&b->wrapper.fabric));
            good(b, stage_put(b, 1, 9));
            assert_int_equal(stage.served, 1);
            assert_int_equal(stage_get(stage.actors[A], 1), 9);
        }
        stage_close(&stage);
        if (!met) {
            assert_true(list > 1);
            return;
        }
    }
}

/* ---- adopting, from end to end ---- */

static struct steps {
    char text[16];
    unsigned count;
} steps;

static void step(char what)
{
    assert_true(steps.count + 1 < sizeof steps.text);
    steps.text[steps.count++] = what;
    steps.text[steps.count] = 0;
}

static void see_call(struct actor *actor, const struct memory_board_request *request)
{
    if (actor->number != B)
        return;
    if (request->kind == MEMORY_BOARD_LOOK)
        step('v');
    if (request->kind != MEMORY_BOARD_ENTER)
        return;
    step('e');
    /* what it tells the board that it has adopted it has adopted */
    assert_in_range(request->version, 0, tree_rights_version(actor->tree));
}

static void see_list(struct actor *actor)
{
    if (actor->number == B && steps.count && steps.text[steps.count - 1] != 'm')
        step('m');
}

static void see_resume(struct actor *actor, uint64_t incarnation)
{
    uint64_t adopted;
    step('r');
    (void)stage_right(actor, 1, &adopted);
    assert_int_equal(adopted, incarnation);
    assert_int_equal(incarnation, fabric_incarnation(&actor->wrapper.fabric));
}

/* It says that it is a member, reads the version, then the map, adopts, resumes its lease, and reports. */
static void adopting_has_an_order(void **state)
{
    struct stage stage;
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    good(a, stage_split(a, 20));
    for (unsigned lost = 0; lost < 2; lost++) {
        stage.deaf = STAGE_BIT(B);
        stage.connected = STAGE_ALL;
        if (lost)
            stage_lose(b);
        /* of a shared range B loses the right: it is waited for, so it is told that it is fenced */
        stage.connected = STAGE_BIT(A) | STAGE_BIT(C);
        good(a, stage_move(a, 1, lost ? NULL : a));
        stage.connected = STAGE_ALL;
        steps = (struct steps){0};
        stage.before_call = see_call;
        stage.after_list = see_list;
        stage.resuming = see_resume;
        good(b, owner_refresh(b->owner, b->session, 0));
        stage.before_call = NULL;
        stage.after_list = NULL;
        stage.resuming = NULL;
        assert_string_equal(steps.text, "evmre");
        assert_int_equal(tree_rights_version(b->tree), stage_board(a).version);
    }
    stage_close(&stage);
}

/* ---- exchanges ---- */

static void a_lost_answer_is_not_asked_for_again(void **state)
{
    struct stage stage;
    uint8_t key[8], value[80] = {5};
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    good(a, stage_move(a, 1, a));
    stage.lose_replies = true;
    assert_int_equal(tree_insert(b->session, b->tree, key, stage_key(100, key), value, sizeof value),
                     BANYAN_EUNKNOWN);
    assert_int_equal(stage.served, 1);
    struct tree_item items[2] = {{.key = key, .key_length = 8, .value = value, .length = sizeof value}};
    assert_int_equal(tree_multi_put(b->session, b->tree, items, 1), BANYAN_EUNKNOWN);
    assert_int_equal(stage.served, 2);
    stage.lose_replies = false;
    assert_int_equal(stage_get(b, 100), 5);
    stage_close(&stage);
}

/* The owner cannot reach a memory node for a moment, and says so: it has done nothing, so the operation waits
 * and asks again. */
static void an_owner_without_its_memory_node_is_asked_again(void **state)
{
    for (unsigned i = 0; i < 4; i++) {
        struct stage stage;
        uint8_t key[8], value[80] = {5};
        struct tree_item item = {
            .key = key, .key_length = stage_key(100, key), .value = value, .length = sizeof value};
        stage_open(&stage);
        struct actor *a = stage.actors[A], *b = stage.actors[B];
        good(a, stage_move(a, 1, a));
        a->failure = i % 2 ? BANYAN_ENET : BANYAN_ETIMEOUT;
        a->failing = 1;
        good(b, i < 2 ? stage_put(b, 100, 5) : tree_multi_put(b->session, b->tree, &item, 1));
        assert_int_equal(item.status, 0);
        assert_int_equal(a->failing, 0);
        assert_int_equal(stage.served, 2);
        assert_int_equal(stage_get(a, 100), 5);
        stage_close(&stage);
    }
}

/* B looks at the board while it waits, and its next message says what it has given up. */
static void count_at_last(struct actor *actor, const struct memory_board_request *request)
{
    (void)request;
    actor->owner->given_up = 1;
    actor->stage->before_call = NULL;
}

/* What is not waited for any more is not done behind what was asked for later. If its asker waits all the
 * same, as for another item of that time, it asks again. */
static void what_is_given_up_is_not_done(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    good(a, stage_move(a, 1, a));
    good(b, stage_put(b, 100, 4)); /* B knows whose it is */
    assert_true(owner_callers_hear(&a->owner->callers, fabric_self(&b->wrapper.fabric), 1));
    stage.served = 0;
    stage.before_call = count_at_last;
    good(b, stage_put(b, 100, 5));
    assert_null(stage.before_call);
    assert_int_equal(stage.served, 2);
    assert_int_equal(a->owner->counts[offsetof(struct owner_stats, refusals) / sizeof(uint64_t)], 1);
    assert_int_equal(stage_get(a, 100), 5);
    stage_close(&stage);
}

/* An answer that is lost counts as given up, before its outcome is told; others are not. */
static void unanswered_messages_are_counted(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    struct actor *a = stage.actors[A], *b = stage.actors[B];
    good(a, stage_move(a, 1, a));
    good(b, stage_put(b, 100, 4));
    assert_int_equal(b->owner->given_up, 0);
    stage.lose_replies = true;
    assert_int_equal(stage_put(b, 100, 5), BANYAN_EUNKNOWN);
    stage.lose_replies = false;
    assert_int_equal(b->owner->given_up, 1);
    const struct fabric_process self = fabric_self(&b->wrapper.fabric);
    assert_true(owner_callers_wait(&a->owner->callers, self, 0)); /* A has not heard of it yet */
    good(b, stage_put(b, 100, 6));
    assert_false(owner_callers_wait(&a->owner->callers, self, 0));
    assert_true(owner_callers_wait(&a->owner->callers, self, 1));
    stage_close(&stage);
}

static void callers_are_told_apart(void **state)
{
    struct owner_callers callers = {0};
    const struct fabric_process one = {.instance = 7, .compute_id = 1},
                                high = {.instance = 8, .compute_id = 65535},
                                next = {.instance = 9, .compute_id = 1};
    (void)state;
    assert_false(owner_callers_wait(&callers, one, 0)); /* none that has not called */
    assert_true(owner_callers_hear(&callers, one, 3));
    assert_true(owner_callers_hear(&callers, high, 0));
    assert_true(owner_callers_hear(&callers, one, 2)); /* it was held up on its way */
    assert_false(owner_callers_wait(&callers, one, 2));
    assert_true(owner_callers_wait(&callers, one, 3));
    assert_true(owner_callers_wait(&callers, high, 0));
    assert_true(owner_callers_hear(&callers, next, 0)); /* the id is another process's */
    assert_true(owner_callers_wait(&callers, next, 0));
    assert_false(owner_callers_wait(&callers, one, 9));
    owner_callers_free(&callers);
}

/* The caller's connection has ended. */
static void nobody_waits_behind_a_connection_that_ended(void **state)
{
    (void)state;
    for (uint32_t gone = 0; gone < 2; gone++) {
        struct stage stage;
        struct owner_writer writer;
        struct owner_reader reader;
        struct owner_answer answer;
        struct owner_service *service;
        uint8_t bytes[256], key[8], value[80] = {5};
        const uint8_t *reply;
        size_t length;
        stage_open(&stage);
        struct actor *a = stage.actors[A];
        good(a, stage_move(a, 1, a));
        owner_request_begin(&writer, bytes, sizeof bytes, tree_number(a->tree), a->owner->adopted, 0);
        const struct owner_item item = {.kind = OWNER_ITEM_EXCHANGE,
                                        .key = key,
                                        .key_length = stage_key(100, key),
                                        .expect = TREE_EXPECT_ANYTHING,
                                        .value = value,
                                        .length = sizeof value};
        assert_true(owner_request_add(&writer, &item));
        const struct fabric_peer_request request = {.from = fabric_self(&stage.actors[B]->wrapper.fabric),
                                                    .bytes = bytes,
                                                    .length = writer.length,
                                                    .gone = &gone};
        good(a, owner_service_create(&service, a->owner, a->second));
        good(a, owner_service_answer(service, &request, &reply, &length));
        assert_int_equal(owner_reply_open(&reader, reply, length), 0);
        assert_int_equal(owner_reply_next(&reader, &answer), 0);
        assert_int_equal(answer.status, gone ? BANYAN_EFENCED : 0);
        assert_int_equal(stage_get(a, 100), gone ? BANYAN_ENOTFOUND : 5);
        owner_service_destroy(service);
        stage_close(&stage);
    }
}

/* ---- requests ---- */

/* Of two exchanges the second one's last byte is missing: the first one is not done either. */
static void a_request_is_served_as_a_whole_or_not(void **state)
{
    for (unsigned missing = 0; missing < 2; missing++) {
        struct stage stage;
        struct owner_writer writer;
        uint8_t request[1024], keys[2][8], value[80] = {5};
        const uint8_t *reply;
        size_t length;
        stage_open(&stage);
        struct actor *a = stage.actors[A];
        struct owner_service *service;
        good(a, stage_move(a, 1, a));
        owner_request_begin(&writer, request, sizeof request, tree_number(a->tree), a->owner->adopted, 0);
        for (unsigned i = 0; i < 2; i++) {
            const struct owner_item item = {.kind = OWNER_ITEM_EXCHANGE,
                                            .key = keys[i],
                                            .key_length = stage_key(100 + i, keys[i]),
                                            .expect = TREE_EXPECT_ANYTHING,
                                            .value = value,
                                            .length = sizeof value};
            assert_true(owner_request_add(&writer, &item));
        }
        good(a, owner_service_create(&service, a->owner, a->second));
        const struct fabric_peer_request asked = {.from = fabric_self(&stage.actors[B]->wrapper.fabric),
                                                  .bytes = request,
                                                  .length = writer.length - missing};
        int status = owner_service_answer(service, &asked, &reply, &length);
        assert_int_equal(status < 0, missing);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(stage_get(a, 100 + i), missing ? BANYAN_ENOTFOUND : 5);
        owner_service_destroy(service);
        stage_close(&stage);
    }
}

/* ---- lapsed leases ---- */

/* Time that passes only while the task sleeps; the read lease is there behind each heartbeat's echo, for
 * three fifths of the time. */
static struct {
    struct task task;
    uint64_t now, every; /* every: from one heartbeat to the next */
} beats;

static void beats_sleep(struct task *self, uint64_t nanoseconds)
{
    beats.now += nanoseconds;
}

static uint64_t beats_now(struct task *self)
{
    return beats.now;
}

static bool beats_alive(struct stage *stage)
{
    return beats.now % beats.every < beats.every / 5 * 3;
}

/* However far the heartbeats lie apart, and whenever the operation begins, it soon meets the lease alive. */
static void a_lapsed_lease_is_not_looked_at_in_step(void **state)
{
    static const struct task_ops ops = {.sleep = beats_sleep, .now = beats_now};
    struct stage stage;
    stage_open(&stage);
    struct actor *a = stage.actors[A];
    stage.lease_alive = beats_alive;
    for (uint64_t every = 50 * MICROSECOND; every <= MILLISECOND; every += 10 * MICROSECOND)
        for (unsigned part = 0; part < 16; part++) {
            const uint64_t began = 100 * every + every / 16 * part;
            beats.task.ops = &ops;
            beats.now = began;
            beats.every = every;
            task_set_self(&beats.task);
            const int status = owner_wait_lease(a->owner, a->session, a->tree);
            task_set_self(&stage.task);
            good(a, status);
            assert_in_range(beats.now - began, 0, 10 * MILLISECOND);
        }
    stage.lease_alive = NULL;
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_losers_are_fenced_everywhere),
        cmocka_unit_test(what_is_merged_late_is_refused),
        cmocka_unit_test(what_is_overdue_is_taken_back),
        cmocka_unit_test(what_has_no_room_is_waited_for),
        cmocka_unit_test(operations_inherit_what_they_wait_for),
        cmocka_unit_test(a_range_that_cannot_be_inherited_yet),
        cmocka_unit_test(a_part_that_was_inherited_is_not_again),
        cmocka_unit_test(heirs_are_off_a_range_that_moves_on),
        cmocka_unit_test(silent_sharers_of_a_split_are_fenced),
        cmocka_unit_test(an_orphan_is_fenced_before_the_map_changes),
        cmocka_unit_test(a_fenced_holder_writes_nothing),
        cmocka_unit_test(entries_are_written_before_their_version),
        cmocka_unit_test(ranges_grow_when_their_owner_knows_both),
        cmocka_unit_test(a_finished_transfer_has_a_version_of_its_own),
        cmocka_unit_test(a_bound_that_is_gone_is_published),
        cmocka_unit_test(an_arrival_is_published_by_who_needs_it),
        cmocka_unit_test(an_arrival_is_published_by_who_never_saw_the_move),
        cmocka_unit_test(a_version_is_read_before_its_entries),
        cmocka_unit_test(a_map_belongs_to_the_incarnation_before_it),
        cmocka_unit_test(adopting_has_an_order),
        cmocka_unit_test(a_lost_answer_is_not_asked_for_again),
        cmocka_unit_test(an_owner_without_its_memory_node_is_asked_again),
        cmocka_unit_test(what_is_given_up_is_not_done),
        cmocka_unit_test(unanswered_messages_are_counted),
        cmocka_unit_test(callers_are_told_apart),
        cmocka_unit_test(nobody_waits_behind_a_connection_that_ended),
        cmocka_unit_test(a_request_is_served_as_a_whole_or_not),
        cmocka_unit_test(a_lapsed_lease_is_not_looked_at_in_step),
    };
    return cmocka_run_group_tests_name("owner, step by step", tests, NULL, NULL);
}
