/*
 * takeover.c - what is done for processes that are gone: their transfers are ended, their ranges given to
 * others (state.h). The map's lock decides who does it; whoever does not get it at once leaves it to the
 * other.
 *
 * A takeover takes all ranges of the dead process at once, since they all wait for the end of one read lease,
 * and spreads them over the willing processes, so that one dead process does not make another one's load
 * double.
 */
#include <stdlib.h>
#include <string.h>

#include "owner/board.h"
#include "owner/heirs.h"
#include "owner/transfer.h"

int owner_alive(struct owner *owner, struct tree_session *session, struct fabric_process process, bool *alive)
{
    struct fabric_process *processes;
    uint32_t count;
    int status = owner_processes(owner, session, &processes, &count);
    *alive = status || owner_among(processes, count, process);
    heap_free(&owner->heap, processes);
    return status;
}

int owner_takers(struct owner *owner, struct tree_session *session, struct fabric_process but, bool inherit,
                 struct fabric_process **willing, uint32_t *count)
{
    struct owner_members members;
    struct fabric_process *processes = NULL;
    uint32_t there = 0;
    *count = 0;
    *willing = NULL;
    int status = owner_board_members(owner, session, &members);
    if (!status)
        status = owner_processes(owner, session, &processes, &there);
    if (!status) {
        *willing = heap_allocate(&owner->heap, (members.count + 1) * sizeof **willing);
        if (!*willing)
            status = pool_fail_memory(tree_session_pool(session));
    }
    for (uint32_t i = 0; i < members.count && !status; i++) {
        struct fabric_process process = owner_process_of(&members.members[i].process);
        if (members.members[i].willing && (!inherit || members.members[i].logs != MEMORY_BOARD_NO_LOG) &&
            owner_among(processes, there, process) && !fabric_process_equal(process, but))
            (*willing)[(*count)++] = process;
    }
    heap_free(&owner->heap, processes);
    owner_members_free(&members);
    return status;
}

void owner_spread(struct format_range *ranges, uint32_t count, const struct fabric_process *takers,
                  uint32_t taker_count)
{
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].unclaimed = !taker_count;
        ranges[i].next = taker_count ? takers[(uint64_t)i * taker_count / count] : (struct fabric_process){0};
    }
}

/* Ranges of which changes may lie in the dead process's log, or in that of one before it: only a process that
 * can inherit gets them, this one where no other wants them; it shares them as soon as they are merged
 * (owner_heirs_lend). Where there is none they stay the dead one's, and operations on them say so. */
static int spread_unmerged(struct owner_transfer *transfer, struct fabric_process gone,
                           struct format_range *ranges, uint32_t *count)
{
    struct owner *owner = transfer->owner;
    struct fabric_process *takers = NULL;
    uint32_t taker_count = 0;
    int status = owner_takers(owner, transfer->session, gone, true, &takers, &taker_count);
    if (!status && taker_count)
        owner_spread(ranges, *count, takers, taker_count);
    else if (!status && owner->log) {
        owner_spread(ranges, *count, &owner->self, 1);
        status = owner_heirs_lend(owner, transfer->session, transfer->version + 2);
    } else {
        *count = 0;
    }
    heap_free(&owner->heap, takers);
    return status;
}

/* Those that are not merged to the front; returns how many. */
static uint32_t unmerged_first(struct format_range *ranges, uint32_t count)
{
    uint32_t unmerged = 0;
    for (uint32_t i = 0; i < count; i++)
        if (format_range_unmerged(&ranges[i])) {
            const struct format_range range = ranges[i];
            ranges[i] = ranges[unmerged];
            ranges[unmerged++] = range;
        }
    return unmerged;
}

/* Sets `next` of the dead process's ranges; *count: of how many. */
static int spread(struct owner_transfer *transfer, struct fabric_process gone, struct format_range *ranges,
                  uint32_t *count)
{
    struct owner *owner = transfer->owner;
    struct fabric_process *takers = NULL;
    uint32_t taker_count = 0, unmerged = unmerged_first(ranges, *count), taken = unmerged;
    const uint32_t merged = *count - unmerged;
    int status = unmerged ? spread_unmerged(transfer, gone, ranges, &taken) : 0;
    if (!status && merged)
        status = owner_takers(owner, transfer->session, gone, false, &takers, &taker_count);
    if (!status && merged)
        owner_spread(ranges + unmerged, merged, takers, taker_count);
    if (taken < unmerged)
        memmove(ranges, ranges + unmerged, merged * sizeof *ranges);
    *count = taken + merged;
    heap_free(&owner->heap, takers);
    return status;
}

static int take_over(struct owner_transfer *transfer, struct fabric_process gone, bool *done)
{
    struct owner *owner = transfer->owner;
    uint32_t count = 0;
    bool alive = true;
    int status = owner_alive(owner, transfer->session, gone, &alive);
    if (status || alive)
        return status;
    struct format_range *ranges = heap_allocate(&owner->heap, (transfer->map.count + 1) * sizeof *ranges);
    if (!ranges)
        return pool_fail_memory(tree_session_pool(transfer->session));
    for (uint32_t i = 0; i < transfer->map.count; i++)
        if (transfer->map.ranges[i].state == FORMAT_RANGE_SETTLED &&
            fabric_process_equal(transfer->map.ranges[i].owner, gone))
            ranges[count++] = transfer->map.ranges[i];
    if (count)
        status = spread(transfer, gone, ranges, &count);
    if (count && !status) {
        status = owner_transfer_move(transfer, ranges, count);
        *done = !status;
        if (!status)
            OWNER_COUNT(owner, takeovers, 1);
    }
    heap_free(&owner->heap, ranges);
    return status;
}

int owner_mend(struct owner *owner, struct tree_session *session, struct fabric_process gone, bool *done)
{
    struct owner_transfer transfer;
    bool changed = false;
    int status = owner_transfer_begin(&transfer, owner, session, false);
    if (status)
        return status == BANYAN_EBUSY ? 0 : status;
    /* the beginning itself has ended what was half done */
    changed = transfer.version > atomic_load_relaxed(&owner->adopted);
    if (!owner_nobody(gone))
        status = take_over(&transfer, gone, &changed);
    status = owner_transfer_end(&transfer, status);
    if (!status && done)
        *done = *done || changed;
    return status;
}
