/*
 * await.c - step 2 of a transfer: everyone who loses a right has adopted the version that takes it away, or
 * is fenced at every memory node and has no read lease any more (G8).
 *
 * A process that is connected to the home node gets `adopt_ns` to adopt; one that is not, or that says that
 * it cannot adopt, is fenced at once. A process that is fenced may come back while this goes on: then it has
 * fetched the map since, which says "moving", and reports what it has adopted.
 */
#include "owner/await.h"

#include <stdlib.h>

#include "owner/board.h"

#define LOOK_FIRST (50 * MICROSECOND)
#define LOOK_LAST  (1 * MILLISECOND)

/* ---- fencing ---- */

/* What the process may be connected to: the memory nodes that the home node listed when it was fenced there.
 * It is connected to no others, or what it posts there began behind a look at the board, which it cannot have
 * any more (fabric/remote_cluster.h). */
static int know_all(struct owner_transfer *transfer)
{
    while (!fabric_refresh(transfer->owner->fabric)) {
        if (task_now() >= transfer->deadline)
            return pool_fail(tree_session_pool(transfer->session), BANYAN_ENET,
                             "the memory nodes at which a compute node is to be fenced are not all known");
        task_sleep(LOOK_LAST); /* the home node may be there again soon */
    }
    return 0;
}

/* At the home node first: from then on the read lease ends. */
static int fence(struct owner_transfer *transfer, struct fabric_process process)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    struct fabric *fabric = transfer->owner->fabric;
    char text[OWNER_TEXT_BYTES];
    OWNER_COUNT(transfer->owner, fencings, 1);
    for (uint16_t node = 0; node < fabric_memory_nodes(fabric); node++) {
        int status;
        if (!fabric_membership(fabric, node))
            continue;
        while ((status = fabric_fence(pool->endpoint, node, process, pool->cost)) &&
               status != BANYAN_ENOTSUP && status != BANYAN_EINVAL && task_now() < transfer->deadline)
            task_sleep(LOOK_LAST); /* the memory node may be there again soon */
        if (status == BANYAN_ENOTSUP)
            return BANYAN_ENOTSUP;
        if (status) {
            owner_describe(transfer->owner, process, text);
            return pool_node_failed(pool, status == BANYAN_EFENCED ? BANYAN_ENET : status, node, text);
        }
        if (node == 0 && (status = know_all(transfer)))
            return status;
    }
    return 0;
}

static int clean(struct owner_transfer *transfer, struct fabric_process process, uint64_t serial)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {
        .kind = MEMORY_BOARD_CLEAN,
        .grant = transfer->grant,
        .serial = serial,
        .process = {.instance = process.instance, .compute_id = process.compute_id}};
    return owner_board_call(transfer->session, &request, &reply);
}

static int lease_failed(struct pool_session *pool, int status)
{
    return pool_node_failed(pool, status == BANYAN_EFENCED ? BANYAN_ENET : status, 0,
                            "asking for the end of a read lease");
}

int owner_await_orphan(struct owner_transfer *transfer, struct fabric_process orphan)
{
    struct owner_members members;
    uint64_t serial = 0;
    if (fabric_process_equal(orphan, transfer->owner->self)) /* its calls of then have returned */
        return clean(transfer, orphan, 0);
    int status = owner_board_members(transfer->owner, transfer->session, &members);
    if (!status) {
        const struct memory_board_member *member = owner_members_find(&members, orphan);
        serial = member ? member->serial : 0;
        status = fence(transfer, orphan);
    }
    owner_members_free(&members);
    if (status == BANYAN_ENOTSUP) /* all compute nodes are one process: then none has died */
        status = 0;
    return status ? status : clean(transfer, orphan, serial);
}

int owner_await_gone(struct owner_transfer *transfer, struct fabric_process gone, uint64_t serial)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    bool over;
    int status = fence(transfer, gone);
    if (status)
        return status == BANYAN_ENOTSUP ? 0 : status;
    status = fabric_lease_over(pool->endpoint, gone, &over, pool->cost);
    if (status)
        return lease_failed(pool, status);
    return over ? clean(transfer, gone, serial) : 0;
}

/* ---- those who lose something ---- */

struct loser {
    struct fabric_process process;
    uint64_t serial;
    bool done, fenced, adopted;
};

struct losers {
    struct owner_transfer *transfer;
    struct loser *all; /* owned */
    uint32_t count, capacity;
    uint64_t since;
    bool cannot_fence;
};

static int add(struct losers *losers, struct fabric_process process)
{
    if (fabric_process_equal(process, losers->transfer->owner->self))
        return 0; /* it has adopted the version itself */
    for (uint32_t i = 0; i < losers->count; i++)
        if (fabric_process_equal(losers->all[i].process, process))
            return 0;
    if (losers->count == losers->capacity) {
        uint32_t capacity = losers->capacity ? losers->capacity * 2 : 16;
        struct loser *all = heap_resize(&losers->transfer->owner->heap, losers->all, capacity * sizeof *all);
        if (!all)
            return pool_fail_memory(tree_session_pool(losers->transfer->session));
        losers->all = all;
        losers->capacity = capacity;
    }
    losers->all[losers->count++] = (struct loser){.process = process};
    return 0;
}

/* Of a shared range, all members of the board lose it; of an owned one, its owner; and of an owned one that
 * is to be logged and was not, all members lose the right to read it one-sided. */
static int collect(struct losers *losers, const struct format_range *ranges, uint32_t count)
{
    bool shared = false;
    int status = 0;
    for (uint32_t i = 0; i < count && !status; i++) {
        shared = shared || owner_nobody(ranges[i].owner) ||
                 (ranges[i].logged_next && !format_range_unmerged(&ranges[i]));
        if (!owner_nobody(ranges[i].owner))
            status = add(losers, ranges[i].owner);
    }
    if (status || !shared)
        return status;
    struct owner_members members;
    status = owner_board_members(losers->transfer->owner, losers->transfer->session, &members);
    for (uint32_t i = 0; i < members.count && !status; i++)
        status = add(losers, owner_process_of(&members.members[i].process));
    owner_members_free(&members);
    return status;
}

/* ---- waiting ---- */

static int look_at(struct losers *losers, struct loser *loser, const struct owner_members *members,
                   bool alive)
{
    struct owner_transfer *transfer = losers->transfer;
    struct pool_session *pool = tree_session_pool(transfer->session);
    const struct memory_board_member *member = owner_members_find(members, loser->process);
    if (member && member->adopted >= transfer->version) {
        loser->done = loser->adopted = true;
        return 0;
    }
    const bool late =
        (member && member->overdue) || task_now() - losers->since >= transfer->owner->options.adopt_ns;
    if (losers->cannot_fence || (alive && !late && !loser->fenced))
        return 0;
    if (!loser->fenced) {
        loser->serial = member ? member->serial : 0;
        int status = fence(transfer, loser->process);
        losers->cannot_fence = status == BANYAN_ENOTSUP;
        loser->fenced = !status;
        if (status)
            return losers->cannot_fence ? 0 : status;
    }
    int status = fabric_lease_over(pool->endpoint, loser->process, &loser->done, pool->cost);
    if (status)
        return lease_failed(pool, status);
    return loser->done ? clean(transfer, loser->process, loser->serial) : 0;
}

static int look(struct losers *losers, bool *done)
{
    struct owner_members members;
    struct fabric_process *processes = NULL;
    uint32_t there = 0;
    int status = owner_board_members(losers->transfer->owner, losers->transfer->session, &members);
    if (!status)
        status = owner_processes(losers->transfer->owner, losers->transfer->session, &processes, &there);
    *done = true;
    for (uint32_t i = 0; i < losers->count && !status; i++) {
        struct loser *loser = &losers->all[i];
        if (!loser->done)
            status = look_at(losers, loser, &members, owner_among(processes, there, loser->process));
        *done = *done && loser->done;
    }
    heap_free(&losers->transfer->owner->heap, processes);
    owner_members_free(&members);
    return status;
}

static int time_out(struct losers *losers)
{
    char text[OWNER_TEXT_BYTES];
    uint32_t i = 0;
    while (losers->all[i].done)
        i++;
    return pool_fail(tree_session_pool(losers->transfer->session), BANYAN_ENET,
                     "%s has not given its ranges up, and cannot be fenced",
                     owner_describe(losers->transfer->owner, losers->all[i].process, text));
}

/* What this process has to merge may fail for a while; not once a connection is lost, since then this
 * transfer's writes are refused. If it was lost before the transfer began, and the map was not adopted since,
 * this process is overdue: the merging never succeeds, and nobody ends the move while the map's lock is held.
 */
static int adopt_self(struct owner_transfer *transfer)
{
    struct owner *owner = transfer->owner;
    bool overdue;
    int status;
    while ((status = owner_refresh_told(owner, transfer->session, transfer->version, &overdue)) && !overdue &&
           status != BANYAN_ENOMEM && task_now() < transfer->deadline &&
           transfer->incarnation == fabric_incarnation(owner->fabric))
        task_sleep(LOOK_LAST);
    return status;
}

static bool has_adopted(const struct losers *losers, struct fabric_process process)
{
    if (fabric_process_equal(process, losers->transfer->owner->self))
        return true;
    for (uint32_t i = 0; i < losers->count; i++)
        if (fabric_process_equal(losers->all[i].process, process))
            return losers->all[i].adopted;
    return false;
}

/* Between two looks, each time for longer. */
static void look_later(uint64_t *pause)
{
    task_sleep(*pause);
    *pause = *pause * 2 < LOOK_LAST ? *pause * 2 : LOOK_LAST;
}

/* Whether it has adopted the version, or need not be waited for any more. */
static int settled(struct owner_transfer *transfer, struct fabric_process process, uint64_t version,
                   bool *done)
{
    struct owner_members members;
    bool alive = true;
    int status = owner_board_members(transfer->owner, transfer->session, &members);
    const struct memory_board_member *member = status ? NULL : owner_members_find(&members, process);
    *done = !member || member->overdue || member->adopted >= version;
    if (!status && !*done)
        status = owner_alive(transfer->owner, transfer->session, process, &alive);
    *done = *done || !alive;
    owner_members_free(&members);
    return status;
}

int owner_transfer_await_owner(struct owner_transfer *transfer, struct fabric_process process,
                               uint64_t version)
{
    const uint64_t since = task_now();
    uint64_t pause = LOOK_FIRST;
    bool done = false;
    if (owner_nobody(process))
        return 0;
    if (fabric_process_equal(process, transfer->owner->self)) {
        (void)owner_refresh(transfer->owner, transfer->session, version); /* else its operations wait */
        return 0;
    }
    for (;;) {
        int status = settled(transfer, process, version, &done);
        if (status || done || task_now() - since >= transfer->owner->options.adopt_ns)
            return status;
        look_later(&pause);
    }
}

int owner_transfer_await(struct owner_transfer *transfer, const struct format_range *ranges, uint32_t count,
                         bool *adopted)
{
    struct losers losers = {.transfer = transfer, .since = task_now()};
    uint64_t pause = LOOK_FIRST;
    bool done = false;
    int status = collect(&losers, ranges, count);
    if (!status) /* this process first: it may be the only one */
        status = adopt_self(transfer);
    while (!status && losers.count) {
        status = look(&losers, &done);
        if (status || done)
            break;
        if (task_now() >= transfer->deadline + transfer->owner->options.adopt_ns) {
            status = time_out(&losers);
            break;
        }
        look_later(&pause);
    }
    for (uint32_t i = 0; i < count && adopted && !status; i++)
        adopted[i] = has_adopted(&losers, ranges[i].owner);
    heap_free(&transfer->owner->heap, losers.all);
    return status;
}
