/*
 * adopt.c - rule O1 for the whole process: a version of the map is fetched, installed in every attached
 * index, and then reported to the board; and what must happen after the loss of a connection: the process
 * says anew that it is a member, fetches, and only then resumes its read lease.
 *
 * Any task; five round trips or so, and the operations that tree_rights_adopt waits for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/board.h"
#include "owner/heirs.h"
#include "owner/state.h"
#include "owner/unkept.h"

bool owner_fresh(const struct owner *owner)
{
    /* Relaxed: a stale number makes the caller look again, or is found out by the refusal of a list. */
    return atomic_load_relaxed(&owner->incarnation) == fabric_incarnation(owner->fabric);
}

static int report(struct owner *owner, struct tree_session *session, uint64_t version)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {.kind = MEMORY_BOARD_ENTER,
                                           .version = version,
                                           .willing = owner_willing(owner),
                                           .overdue = owner->overdue,
                                           .logs = !owner->log          ? MEMORY_BOARD_NO_LOG
                                                   : owner->options.log ? MEMORY_BOARD_LOGS
                                                                        : MEMORY_BOARD_INHERITS};
    int status = owner_board_call(session, &request, &reply);
    if (status == BANYAN_ENOSPC)
        return pool_fail(tree_session_pool(session), status,
                         "memory node 0 knows %u processes of this cluster already, and has no room for "
                         "another",
                         MEMORY_BOARD_MEMBERS_MAX);
    return status;
}

/* ---- installing ---- */

static int install_rows(struct owner *owner, struct tree_session *session, struct owner_index *index,
                        const struct format_range *ranges, uint32_t count, bool again)
{
    struct tree_rights_row *rows = heap_allocate_zeros(&owner->heap, count ? count : 1, sizeof *rows);
    if (!rows)
        return pool_fail_memory(tree_session_pool(session));
    for (uint32_t i = 0; i < count; i++) {
        const struct format_range *upper = i + 1 < count ? &ranges[i + 1] : NULL;
        struct format_range range = ranges[i];
        if (range.heir_count && owner_heirs_ready(owner, &range, upper))
            range.heir_count = 0;
        owner_map_row(&range, owner->self, &rows[i]);
        owner_unkept_row(owner, &range, &rows[i]);
        rows[i].lower = ranges[i].lower;
    }
    if (!count) {
        const struct format_range whole = {.state = FORMAT_RANGE_SETTLED};
        owner_map_row(&whole, owner->self, &rows[0]);
        owner_unkept_row(owner, &whole, &rows[0]);
    }
    int status = (again ? tree_rights_ready : tree_rights_adopt)(
        session, index->tree, owner->copy.version, owner->copy.incarnation, rows, count ? count : 1);
    heap_free(&owner->heap, rows);
    return status;
}

/* NULL: none. Operations that wait read it at any time. */
static void set_trouble(struct owner *owner, struct owner_index *index, const char *text)
{
    spinlock_lock(&owner->lock);
    index->broken = text != NULL;
    if (text)
        snprintf(index->trouble, sizeof index->trouble, "%s", text);
    spinlock_unlock(&owner->lock);
}

int owner_install(struct owner *owner, struct tree_session *session, struct owner_index *index)
{
    const struct owner_problem *problem = owner_map_problem(&owner->copy, index->number);
    if (problem) {
        /* Nothing of it may be touched: wait_for() of forward.c says why. */
        const struct format_range nothing = {
            .number = index->number, .state = FORMAT_RANGE_MOVING, .epoch = owner->copy.version};
        set_trouble(owner, index, problem->text);
        return install_rows(owner, session, index, &nothing, 1, false);
    }
    uint32_t count;
    const struct format_range *ranges = owner_map_of(&owner->copy, index->number, &count);
    int status = install_rows(owner, session, index, ranges, count, false);
    if (!status)
        set_trouble(owner, index, NULL);
    return status;
}

int owner_install_again(struct owner *owner, struct tree_session *session, struct owner_index *index)
{
    uint32_t count;
    const struct format_range *ranges = owner_map_of(&owner->copy, index->number, &count);
    return owner_map_problem(&owner->copy, index->number)
               ? 0
               : install_rows(owner, session, index, ranges, count, true);
}

/* ---- refreshing ---- */

/* In every attached index. `before`: the copy that this process had. */
static int install(struct owner *owner, struct tree_session *session, const struct owner_map *before)
{
    int status = 0;
    if (owner->log)
        owner->log->hurry(owner->log_context, true);
    for (struct owner_index *index = owner->indexes; index && !status; index = index->next)
        status = owner_install(owner, session, index);
    if (owner->log)
        owner->log->hurry(owner->log_context, false);
    return status ? status : owner_heirs_adopted(owner, session, before);
}

/* Under `adopting`. Entries are written before their version is published, so what is fetched with a version
 * may have entries of the next one. The tables of rights do not change without a new version, and so the copy
 * must not either: else what it loses would be disowned while operations rely on it. What was installed first
 * counts for its version, also where adopting it failed later (`tried`). */
static int adopt(struct owner *owner, struct tree_session *session, struct owner_map *map)
{
    struct owner_map before = owner->copy;
    const bool known = before.incarnation && before.version == map->version && !before.problem_count;
    if (known) {
        owner->copy.incarnation = map->incarnation;
    } else {
        if (owner->tried.incarnation && owner->tried.version == map->version && !owner->tried.problem_count) {
            const struct owner_map fetched = *map;
            *map = owner->tried;
            owner->tried = fetched;
            map->incarnation = fetched.incarnation;
        }
        owner_map_free(&owner->tried);
        owner->copy = *map;
    }
    int status = install(owner, session, &before);
    if (!known) {
        *map = before;
        if (status) { /* some indexes are further than others; none is further than it may be */
            owner->tried = owner->copy;
            *map = (struct owner_map){.heap = &owner->heap};
        }
    }
    if (status)
        owner->copy = before;
    if (status)
        return status;
    /* relaxed: whoever relies on the numbers is told so by the tables of rights, not by them */
    atomic_store_relaxed(&owner->incarnation, owner->copy.incarnation);
    atomic_store_relaxed(&owner->adopted, owner->copy.version);
    owner_count_ranges(owner);
    return 0;
}

/* What this process was to merge before it adopts the map, it cannot merge any more: who waits for it need
 * not wait longer. Fails with `status`. */
static int give_up(struct owner *owner, struct tree_session *session, int status)
{
    struct pool_session *pool = tree_session_pool(session);
    const struct error first = pool->error;              /* of `status` */
    (void)report(owner, session, owner_reported(owner)); /* else it waits for adopt_ns */
    pool->error = first;
    return status;
}

/* One attempt; *again: a connection was lost meanwhile. */
static int refresh(struct owner *owner, struct tree_session *session, bool *again)
{
    struct owner_map map = {0};
    const uint64_t incarnation = fabric_incarnation(owner->fabric);
    int status = 0;
    *again = owner->overdue = false;
    /* Before the fetch: from here on transfers from shared wait for this process. */
    if (owner->entered != incarnation)
        status = report(owner, session, owner_reported(owner));
    if (!status) {
        owner->entered = incarnation;
        status = owner_map_fetch(owner, session, &map);
    }
    if (!status && map.incarnation != incarnation)
        *again = true;
    else if (!status)
        status = adopt(owner, session, &map);
    owner_map_free(&map);
    if (owner->overdue)
        return give_up(owner, session, status);
    if (status || *again)
        return status;
    fabric_lease_resume(owner->fabric, incarnation);
    status = report(owner, session, owner->copy.version);
    if (!status)
        atomic_store_relaxed(&owner->reported, owner->copy.version);
    return status;
}

int owner_refresh_told(struct owner *owner, struct tree_session *session, uint64_t version, bool *overdue)
{
    int status = 0;
    bool again = true;
    *overdue = false;
    owner_turn_take(&owner->adopting);
    uint64_t began = task_now();
    if (owner_fresh(owner) && owner->adopted >= version && owner_reported(owner) >= version) {
        owner_turn_give(&owner->adopting);
        return 0;
    }
    while (!status && again)
        status = refresh(owner, session, &again);
    uint64_t took = task_now() - began;
    *overdue = owner->overdue; /* under the turn: the next task's attempt begins anew */
    owner_turn_give(&owner->adopting);
    if (!status) {
        OWNER_COUNT(owner, adoptions, 1);
        OWNER_COUNT(owner, adopt_ns, took);
        OWNER_LONGEST(owner, adopt_longest_ns, took);
    }
    return status;
}

int owner_refresh(struct owner *owner, struct tree_session *session, uint64_t version)
{
    bool overdue;
    return owner_refresh_told(owner, session, version, &overdue);
}

int owner_catch_up(struct owner *owner, struct tree_session *session, uint64_t version)
{
    struct pool_session *pool = tree_session_pool(session);
    bool overdue, done = false;
    int status = owner_refresh_told(owner, session, version, &overdue);
    if (!overdue)
        return status;
    const struct error first = pool->error; /* of `status` */
    if (!owner_mend(owner, session, (struct fabric_process){0}, &done) && done)
        return owner_refresh(owner, session, version);
    pool->error = first;
    return status;
}

int owner_tell(struct owner *owner, struct tree_session *session)
{
    int status = owner_join(owner, session);
    owner_turn_take(&owner->adopting);
    if (!status)
        status = report(owner, session, owner_reported(owner));
    owner_turn_give(&owner->adopting);
    return status;
}

/* ---- the keeper's bell ---- */

void owner_wake(struct owner *owner)
{
    spinlock_lock(&owner->lock);
    if (owner->keeper)
        task_unpark(owner->keeper);
    spinlock_unlock(&owner->lock);
}
