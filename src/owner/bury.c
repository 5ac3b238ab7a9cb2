/*
 * bury.c - processes that ended without taking themselves off the board (state.h). Nobody else takes them off
 * but a transfer from shared, which may never come, and the board has room for MEMORY_BOARD_MEMBERS_MAX.
 *
 * On the keeper's task now and then, and on that of a process that found no room. Two round trips where there
 * is nothing to do; else one to each memory node, and two more, for each of them.
 */
#include "owner/await.h"
#include "owner/board.h"

/* Those of the members that are not connected to the home node, at the front; returns how many. */
static uint32_t gone_first(struct owner_members *members, const struct fabric_process *processes,
                           uint32_t count)
{
    uint32_t gone = 0;
    for (uint32_t i = 0; i < members->count; i++)
        if (!owner_among(processes, count, owner_process_of(&members->members[i].process)))
            members->members[gone++] = members->members[i];
    return gone;
}

/* The members are read first: a process that enters the board later is not among them. */
static int look(struct owner *owner, struct tree_session *session, struct owner_members *members,
                uint32_t *gone)
{
    struct fabric_process *processes = NULL;
    uint32_t count = 0;
    *gone = 0;
    int status = owner_board_members(owner, session, members);
    if (!status)
        status = owner_processes(owner, session, &processes, &count);
    if (!status)
        *gone = gone_first(members, processes, count);
    heap_free(&owner->heap, processes);
    return status;
}

static int bury(struct owner_transfer *transfer)
{
    struct owner_members members;
    uint32_t gone;
    int status = look(transfer->owner, transfer->session, &members, &gone);
    for (uint32_t i = 0; i < gone && !status; i++)
        status = owner_await_gone(transfer, owner_process_of(&members.members[i].process),
                                  members.members[i].serial);
    owner_members_free(&members);
    return status;
}

int owner_bury(struct owner *owner, struct tree_session *session, uint32_t most)
{
    struct owner_transfer transfer;
    struct owner_members members;
    uint32_t gone;
    int status = look(owner, session, &members, &gone);
    owner_members_free(&members);
    if (status || gone <= most)
        return status;
    status = owner_transfer_lock(&transfer, owner, session);
    if (status)
        return status;
    return owner_transfer_unlock(&transfer, bury(&transfer));
}
