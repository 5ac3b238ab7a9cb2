/*
 * keep.c - the keeper of a process and its ticker: see owner_keep in owner.h.
 *
 * The keeper parks until a notice comes, a peer tells of a newer version, a connection to the home node is
 * lost or is there again, or the ticker wakes it. What fails for the network is tried again at the next tick.
 */
#include <stdlib.h>

#include "base/random.h"
#include "owner/board.h"
#include "owner/heirs.h"
#include "owner/transfer.h"
#include "owner/unkept.h"

/* A range that is on its way for so long, and no process at it, is finished by keepers; before that by
 * whoever needs it. The same for a process that is gone. */
#define TICKS_PATIENCE 3u
/* So often a keeper looks how many of the board's processes are gone, and so many may be. */
#define BURY_NS  (1000 * MILLISECOND)
#define GONE_MAX 64u
/* Changes wait for an owner of what is nobody's (unkept.h): it is looked for so often. */
#define UNKEPT_NS (50 * MILLISECOND)

struct keeping {
    struct owner *owner;
    struct tree_session *session;
    struct random random;
    uint64_t looked, balanced, buried; /* when */
    unsigned ticks_moving, ticks_gone;
    struct fabric_process gone;
    unsigned patience; /* ticks: drawn, so that not all keepers come at once */
};

static uint64_t newest(const struct owner *owner)
{
    uint64_t notice = fabric_notice(owner->fabric), heard = atomic_load_relaxed(&owner->heard);
    return notice > heard ? notice : heard;
}

/* ---- each tick ---- */

/* Adopts what the board has; *held: whether some process has the lock. */
static int look(struct owner *owner, struct tree_session *session, bool *held)
{
    struct memory_board_reply board;
    int status = owner_board_look(session, &board);
    if (!status)
        *held = board.holder.instance != 0;
    /* Also where the board was not told of what was adopted: others wait for that, and fence this process. */
    if (!status && (!owner_fresh(owner) || board.version > atomic_load_relaxed(&owner->adopted) ||
                    board.version > owner_reported(owner)))
        status = owner_catch_up(owner, session, board.version);
    return status;
}

int owner_keep_up(struct owner *owner, struct tree_session *session, uint64_t *looked)
{
    const uint64_t now = task_now();
    bool held;
    if (!owner_fresh(owner) || newest(owner) > atomic_load_relaxed(&owner->adopted))
        return owner_catch_up(owner, session, atomic_load_relaxed(&owner->adopted) + 1);
    if (*looked && now - *looked < owner->options.tick_ns)
        return 0;
    *looked = now;
    return look(owner, session, &held);
}

/* What in the adopted map is for others to mend: whether something moves, and a process that has ranges and
 * is gone. */
static int inspect(struct keeping *keeping, bool *moving, struct fabric_process *gone)
{
    struct owner *owner = keeping->owner;
    struct fabric_process *processes;
    uint32_t count;
    *moving = false;
    *gone = (struct fabric_process){0};
    int status = owner_processes(owner, keeping->session, &processes, &count);
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < owner->copy.count && !status; i++) {
        const struct format_range *range = &owner->copy.ranges[i];
        *moving = *moving || owner_range_unfinished(range, owner->copy.version);
        if (owner_nobody(*gone) && !owner_nobody(range->owner) &&
            !owner_among(processes, count, range->owner))
            *gone = range->owner;
    }
    owner_turn_give(&owner->adopting);
    heap_free(&owner->heap, processes);
    if (!owner_nobody(*gone)) /* operations that asked it look for the range's next owner */
        fabric_peer_forget(owner->fabric, *gone);
    return status;
}

/* Ranges of an index that this process has not open would be answered by nobody; and those that it has taken
 * since no other could inherit them are nobody's, once it has merged them; and so are those that it cannot
 * change, since it keeps no log and memory nodes want one. Under `adopting`. */
static bool to_give_back(const struct owner *owner, const struct format_range *range)
{
    return fabric_process_equal(range->owner, owner->self) && range->state == FORMAT_RANGE_SETTLED &&
           (!owner_index_numbered(owner, range->number) ||
            (!range->heir_count &&
             (owner_heirs_lent(owner, range->epoch) || owner_unkept_mine(owner, range))));
}

/* Those that are to be given back, and to whom: `heir` (zeros: there is none) inherits what this process
 * cannot merge, since it has the index not open. Returns how many. */
static uint32_t choose_back(struct owner_transfer *transfer, struct fabric_process heir,
                            struct format_range *ranges)
{
    struct owner *owner = transfer->owner;
    uint32_t count = 0;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < transfer->map.count; i++) {
        const struct format_range *range = &transfer->map.ranges[i];
        const bool inherit = range->heir_count || owner_heirs_stranded(owner, range->number);
        if (!to_give_back(owner, range) || (inherit && owner_nobody(heir)))
            continue;
        ranges[count] = *range;
        ranges[count].unclaimed = !inherit;
        ranges[count++].next = inherit ? heir : (struct fabric_process){0};
    }
    owner_turn_give(&owner->adopting);
    return count;
}

static int give_back(struct keeping *keeping)
{
    struct owner *owner = keeping->owner;
    struct owner_transfer transfer;
    struct fabric_process *takers = NULL;
    uint32_t count = 0, taker_count = 0;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < owner->copy.count; i++)
        count += to_give_back(owner, &owner->copy.ranges[i]);
    owner_turn_give(&owner->adopting);
    if (!count)
        return 0;
    int status = owner_transfer_begin(&transfer, owner, keeping->session, false);
    if (status)
        return status == BANYAN_EBUSY ? 0 : status;
    struct format_range *ranges = heap_allocate(&owner->heap, (transfer.map.count + 1) * sizeof *ranges);
    if (!ranges)
        status = pool_fail_memory(tree_session_pool(keeping->session));
    if (!status)
        status = owner_takers(owner, keeping->session, owner->self, true, &takers, &taker_count);
    if (!status) {
        count = choose_back(&transfer, taker_count ? takers[0] : (struct fabric_process){0}, ranges);
        status = owner_transfer_move(&transfer, ranges, count);
    }
    heap_free(&owner->heap, takers);
    heap_free(&owner->heap, ranges);
    return owner_transfer_end(&transfer, status);
}

static int mend(struct keeping *keeping, bool held)
{
    struct fabric_process gone;
    bool moving;
    int status = inspect(keeping, &moving, &gone);
    if (status)
        return status;
    keeping->ticks_moving = moving && !held ? keeping->ticks_moving + 1 : 0;
    keeping->ticks_gone =
        !owner_nobody(gone) && fabric_process_equal(gone, keeping->gone) ? keeping->ticks_gone + 1 : 0;
    keeping->gone = gone;
    if (keeping->ticks_moving < keeping->patience && keeping->ticks_gone < keeping->patience)
        return 0;
    keeping->patience = TICKS_PATIENCE + (unsigned)random_below(&keeping->random, 2 * TICKS_PATIENCE);
    return owner_mend(keeping->owner, keeping->session,
                      keeping->ticks_gone ? gone : (struct fabric_process){0}, NULL);
}

/* A call that took the map's lock, or gave it back, has failed, and the connection lives on: nobody would
 * free the lock. Taken again it is given back surely. */
static int settle_lock(struct owner *owner, struct tree_session *session)
{
    struct owner_transfer transfer;
    int status = owner_transfer_lock(&transfer, owner, session);
    return status ? (status == BANYAN_EBUSY ? 0 : status) : owner_transfer_unlock(&transfer, 0);
}

static bool balance_due(const struct keeping *keeping, uint64_t now)
{
    struct owner *owner = keeping->owner;
    const uint64_t since = now - keeping->balanced;
    if (!owner->options.balance_ns || !owner_willing(owner))
        return false;
    return since >= owner->options.balance_ns || (since >= UNKEPT_NS && owner_unkept_some(owner));
}

static int tick(struct keeping *keeping)
{
    struct owner *owner = keeping->owner;
    bool held = false;
    int status = look(owner, keeping->session, &held);
    if (!status)
        status = mend(keeping, held);
    if (!status)
        status = give_back(keeping);
    if (!status && atomic_load_relaxed(&owner->may_lock))
        status = settle_lock(owner, keeping->session);
    uint64_t now = task_now();
    if (!status && now - keeping->buried >= BURY_NS) {
        keeping->buried = now;
        status = owner_bury(owner, keeping->session, GONE_MAX);
        if (status == BANYAN_EBUSY) /* the lock's holder does it, or a keeper does later */
            status = 0;
    }
    if (!status && balance_due(keeping, now)) {
        keeping->balanced = now;
        status = owner_balance_step(owner, keeping->session, true);
    }
    return status;
}

/* Frees a piece of what is cached of ranges that were lost. True: there is more. */
static bool sweep(struct keeping *keeping)
{
    struct owner *owner = keeping->owner;
    bool more = false;
    owner_turn_take(&owner->adopting); /* indexes come and go under it */
    for (struct owner_index *index = owner->indexes; index && !more; index = index->next)
        more = tree_rights_sweep(keeping->session, index->tree);
    owner_turn_give(&owner->adopting);
    return more;
}

/* ---- the tasks ---- */

static void set_keeper(struct owner *owner, struct task *task)
{
    spinlock_lock(&owner->lock);
    owner->keeper = task;
    spinlock_unlock(&owner->lock);
}

int owner_keep(struct owner *owner, struct tree_session *session)
{
    struct keeping keeping = {.owner = owner, .session = session, .patience = TICKS_PATIENCE};
    int status = owner_join(owner, session);
    if (status)
        return status;
    random_seed(&keeping.random, owner->options.seed);
    keeping.balanced = keeping.buried = task_now();
    set_keeper(owner, task_self());
    while (!owner_stopping(owner)) {
        /* Errors are of the network, or of memory: the next tick tries again. Those that concern an index are
         * told to its operations. */
        if (!owner_fresh(owner) || newest(owner) > atomic_load_relaxed(&owner->adopted))
            (void)owner_catch_up(owner, session, atomic_load_relaxed(&owner->adopted) + 1);
        if (owner_heirs_pending(owner))
            (void)owner_heirs_step(owner, session);
        uint64_t now = task_now();
        if (now - keeping.looked >= owner->options.tick_ns) {
            keeping.looked = now;
            (void)tick(&keeping);
        }
        /* What is lost is swept out behind everything else, so that no transfer waits for it. */
        if (!owner_stopping(owner) && sweep(&keeping))
            task_yield();
        else if (!owner_stopping(owner))
            task_park();
    }
    set_keeper(owner, NULL);
    return 0;
}

void owner_tick(struct owner *owner)
{
    while (!owner_stopping(owner)) {
        owner_wake(owner);
        task_sleep(owner->options.tick_ns);
    }
    owner_wake(owner);
}

void owner_stop(struct owner *owner)
{
    atomic_store_relaxed(&owner->stopping, true); /* the lock in owner_wake orders it before the unpark */
    fabric_peer_stop(owner->fabric);
    owner_wake(owner);
}
