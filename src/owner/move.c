/*
 * move.c - the three steps by which ranges go from one owner to the next (transfer.h), and the end of what
 * another process has begun of them. docs/internals/ownership.md has the order of the steps and what a death
 * between any two of them leaves.
 *
 * LOGGED RANGES. What their owner has acknowledged may lie in its log alone. So either the next owner
 * inherits it (the entry names the owner as an heir then), or the owner merges it before it reports that it
 * has adopted the move. One that is fenced before that has merged nothing, as far as anybody knows: then the
 * next owner inherits, whoever that was to be.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "owner/board.h"
#include "owner/heirs.h"
#include "owner/transfer.h"

/* ---- who can take what ---- */

struct takers {
    struct owner_transfer *transfer;
    struct owner_members members;
    struct fabric_process *there; /* owned */
    uint32_t count;
};

static int takers_get(struct takers *takers, struct owner_transfer *transfer)
{
    *takers = (struct takers){.transfer = transfer};
    int status = owner_board_members(transfer->owner, transfer->session, &takers->members);
    if (!status)
        status = owner_processes(transfer->owner, transfer->session, &takers->there, &takers->count);
    return status;
}

static void takers_free(struct takers *takers)
{
    heap_free(&takers->transfer->owner->heap, takers->there);
    owner_members_free(&takers->members);
}

static bool is_there(const struct takers *takers, struct fabric_process process)
{
    return owner_among(takers->there, takers->count, process);
}

static enum memory_board_log log_of(const struct takers *takers, struct fabric_process process)
{
    const struct owner *owner = takers->transfer->owner;
    if (fabric_process_equal(process, owner->self))
        return !owner->log          ? MEMORY_BOARD_NO_LOG
               : owner->options.log ? MEMORY_BOARD_LOGS
                                    : MEMORY_BOARD_INHERITS;
    const struct memory_board_member *member = owner_members_find(&takers->members, process);
    return member && is_there(takers, process) ? (enum memory_board_log)member->logs : MEMORY_BOARD_NO_LOG;
}

/* A process that can inherit: this one, else one that keeps a log, else any. */
static bool some_heir(const struct takers *takers, struct fabric_process *heir)
{
    *heir = takers->transfer->owner->self;
    bool found = log_of(takers, *heir) != MEMORY_BOARD_NO_LOG;
    for (enum memory_board_log least = MEMORY_BOARD_LOGS; least > MEMORY_BOARD_NO_LOG && !found; least--)
        for (uint32_t i = 0; i < takers->members.count && !found; i++) {
            *heir = owner_process_of(&takers->members.members[i].process);
            found = log_of(takers, *heir) >= least;
        }
    return found;
}

static int cannot_inherit(const struct takers *takers, const struct format_range *range)
{
    const struct owner *owner = takers->transfer->owner;
    char bound[OWNER_BOUND_TEXT], text[OWNER_TEXT_BYTES];
    return pool_fail(tree_session_pool(takers->transfer->session), BANYAN_EBUSY,
                     "of the range from %s, %s has changes in logs that are not merged, and the process that "
                     "is to have the range cannot read logs",
                     owner_bound_text(range->lower, range->lower_length, bound),
                     owner_describe(owner, range->owner, text));
}

/* ---- the steps ---- */

/* How the range is to move: step 1 says so in its entry. */
static int prepare(const struct takers *takers, struct format_range *range)
{
    const bool alive =
        fabric_process_equal(range->owner, takers->transfer->owner->self) || is_there(takers, range->owner);
    const enum memory_board_log log =
        owner_nobody(range->next) ? MEMORY_BOARD_NO_LOG : log_of(takers, range->next);
    const bool must = range->heir_count || (range->logged && !alive) ||
                      (fabric_process_equal(range->owner, takers->transfer->owner->self) && range->logged &&
                       owner_heirs_stranded(takers->transfer->owner, range->number));
    range->logged_next = log == MEMORY_BOARD_LOGS;
    range->inherited = must || (range->logged && log == MEMORY_BOARD_LOGS);
    return must && log == MEMORY_BOARD_NO_LOG ? cannot_inherit(takers, range) : 0;
}

/* The owner's log has changes of the range that nobody has merged. A full list says that the owner has served
 * nothing of it yet, and so does one of a range that is not logged (heirs.h). */
static void name_heir(struct format_range *range)
{
    if (range->logged && range->heir_count < FORMAT_RANGE_HEIRS_MAX)
        range->heirs[range->heir_count++] = (struct format_heir){range->owner, range->epoch};
}

/* Step 3. */
static int settle(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].inherited)
            name_heir(&ranges[i]);
        assert(ranges[i].inherited || !ranges[i].heir_count);
        ranges[i].logged = ranges[i].logged_next;
        ranges[i].inherited = ranges[i].logged_next = false;
        ranges[i].owner = ranges[i].next;
        ranges[i].next = (struct fabric_process){0};
        ranges[i].state = FORMAT_RANGE_SETTLED;
        ranges[i].epoch = transfer->version + 1;
    }
    int status = owner_transfer_write(transfer, ranges, count);
    return status ? status : owner_transfer_publish(transfer);
}

/* To whom a range goes in the end: a process that is gone would be taken over from at once. */
static int redirect(const struct takers *takers, struct format_range *range, bool adopted)
{
    struct owner *owner = takers->transfer->owner;
    const bool unmerged = format_range_unmerged(range);
    if (!owner_nobody(range->next) && !is_there(takers, range->next)) {
        range->next = owner_willing(owner) ? owner->self : (struct fabric_process){0};
        range->unclaimed = owner_nobody(range->next);
    }
    /* An owner that was to merge, and did not say that it has, may have merged nothing. */
    range->inherited = unmerged && (range->inherited || !adopted);
    if (range->inherited && log_of(takers, range->next) == MEMORY_BOARD_NO_LOG) {
        if (!some_heir(takers, &range->next))
            return cannot_inherit(takers, range);
        range->unclaimed = false;
        if (fabric_process_equal(range->next, owner->self) && !owner_willing(owner)) {
            int status = owner_heirs_lend(owner, takers->transfer->session, takers->transfer->version + 1);
            if (status)
                return status;
        }
    }
    /* Not one whose readers were not waited for. */
    range->logged_next = log_of(takers, range->next) == MEMORY_BOARD_LOGS &&
                         (range->logged_next || unmerged || owner_nobody(range->owner));
    return 0;
}

/* Steps 2 and 3. */
static int finish(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count)
{
    struct takers takers;
    bool *adopted = heap_allocate_zeros(&transfer->owner->heap, count, sizeof *adopted);
    if (!adopted)
        return pool_fail_memory(tree_session_pool(transfer->session));
    int status = owner_transfer_await(transfer, ranges, count, adopted);
    if (!status) {
        status = takers_get(&takers, transfer);
        for (uint32_t i = 0; i < count && !status; i++)
            status = redirect(&takers, &ranges[i], adopted[i]);
        takers_free(&takers);
    }
    heap_free(&transfer->owner->heap, adopted);
    return status ? status : settle(transfer, ranges, count);
}

int owner_transfer_move(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count)
{
    struct takers takers;
    if (!count)
        return 0;
    int status = takers_get(&takers, transfer);
    for (uint32_t i = 0; i < count && !status; i++) {
        assert(ranges[i].state == FORMAT_RANGE_SETTLED);
        assert(!fabric_process_equal(ranges[i].owner, ranges[i].next));
        if (!owner_nobody(ranges[i].next))
            ranges[i].unclaimed = false;
        ranges[i].state = FORMAT_RANGE_MOVING;
        status = prepare(&takers, &ranges[i]);
    }
    takers_free(&takers);
    if (!status)
        status = owner_transfer_write(transfer, ranges, count);
    if (!status)
        status = owner_transfer_publish(transfer);
    if (!status)
        status = finish(transfer, ranges, count);
    if (!status)
        OWNER_COUNT(transfer->owner, moved, count);
    return status;
}

/* The ranges that this process was to merge and cannot any more, as they are to be: its own, to be inherited.
 * Returns how many. */
static uint32_t overdue(const struct owner_transfer *transfer, struct format_range *back)
{
    struct owner *owner = transfer->owner;
    const struct owner_map *map = &transfer->map;
    uint32_t count = 0;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < map->count && owner->log; i++) {
        if (!owner_heirs_overdue(owner, &map->ranges[i], owner_map_after(map, i)))
            continue;
        back[count] = map->ranges[i];
        back[count].inherited = true;
        back[count].unclaimed = false;
        back[count].logged_next = owner->options.log;
        back[count++].next = owner->self;
    }
    owner_turn_give(&owner->adopting);
    return count;
}

/* They stay with this process: else it would never adopt the move, and nobody else fences the one who holds
 * the map's lock. Nobody has to be waited for: the owner alone had a right. */
static int take_back(struct owner_transfer *transfer)
{
    struct owner *owner = transfer->owner;
    struct format_range *back = heap_allocate(&owner->heap, (transfer->map.count + 1) * sizeof *back);
    if (!back)
        return pool_fail_memory(tree_session_pool(transfer->session));
    const uint32_t count = overdue(transfer, back);
    int status = count && !owner_willing(owner)
                     ? owner_heirs_lend(owner, transfer->session, transfer->version + 1)
                     : 0;
    if (count && !status)
        status = settle(transfer, back, count);
    heap_free(&owner->heap, back);
    return status;
}

int owner_transfer_finish(struct owner_transfer *transfer, bool *changed)
{
    uint32_t count = 0;
    int status = take_back(transfer);
    if (status)
        return status;
    struct format_range *ranges =
        heap_allocate(&transfer->owner->heap, (transfer->map.count + 1) * sizeof *ranges);
    if (!ranges)
        return pool_fail_memory(tree_session_pool(transfer->session));
    for (uint32_t i = 0; i < transfer->map.count; i++)
        if (transfer->map.ranges[i].state == FORMAT_RANGE_MOVING)
            ranges[count++] = transfer->map.ranges[i];
    if (count) {
        /* A version of its own: the one before me may have published none. */
        status = owner_transfer_publish(transfer);
        if (!status)
            status = finish(transfer, ranges, count);
        if (!status)
            OWNER_COUNT(transfer->owner, finished, 1);
        *changed = false;
    }
    heap_free(&transfer->owner->heap, ranges);
    return status;
}
