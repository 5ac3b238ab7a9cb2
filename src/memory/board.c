/*
 * board.c - the service BOARD: a version, a lock and a table of members, for compute nodes that divide key
 * ranges among themselves (request.h says what each kind does, docs/internals/ownership.md what for).
 *
 * WHAT A FENCING DOES. A holder of the lock that is fenced here may still have writes on their way to other
 * memory nodes. So it becomes the ORPHAN: the next holder learns of it, fences it everywhere, says so
 * (CLEAN), and writes nothing before that. Therefore a holder that has not said so is not worth remembering
 * when it is fenced itself, and one orphan is all there can be. A member that is fenced stays one, since it
 * may still write elsewhere: it goes when it leaves, or by CLEAN.
 *
 * Any thread; each call holds the board's spin lock for a look through the members at most.
 */
#include "memory/board.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "memory/node.h"

#define CAPACITY_FIRST 16u

static bool same(const struct memory_board_process *a, const struct memory_board_process *b)
{
    return a->instance == b->instance && a->compute_id == b->compute_id;
}

/* ---- members ---- */

static struct memory_board_member *find(struct memory_board *board,
                                        const struct memory_board_process *process)
{
    for (uint32_t i = 0; i < board->count; i++)
        if (same(&board->members[i].process, process))
            return &board->members[i];
    return NULL;
}

static int add(struct memory_board *board, const struct memory_board_process *process,
               struct memory_board_member **member)
{
    if (board->count == MEMORY_BOARD_MEMBERS_MAX)
        return BANYAN_ENOSPC;
    if (board->count == board->capacity) {
        uint32_t capacity = board->capacity ? board->capacity * 2 : CAPACITY_FIRST;
        struct memory_board_member *members = realloc(board->members, capacity * sizeof *members);
        if (members == NULL)
            return BANYAN_ENOMEM;
        board->members = members;
        board->capacity = capacity;
    }
    *member = &board->members[board->count++];
    **member = (struct memory_board_member){.process = *process};
    return BANYAN_OK;
}

static void forget(struct memory_board *board, struct memory_board_member *member)
{
    size_t after = (size_t)(&board->members[board->count] - (member + 1));
    memmove(member, member + 1, after * sizeof *member);
    board->count--;
}

static int enter(struct memory_board *board, const struct memory_board_process *caller,
                 const struct memory_board_request *request)
{
    struct memory_board_member *member = find(board, caller);
    /* Nobody can have adopted what was not published. */
    if (request->version > board->version || request->logs >= MEMORY_BOARD_LOG_KINDS)
        return BANYAN_EINVAL;
    int status = member ? BANYAN_OK : add(board, caller, &member);
    if (status)
        return status;
    if (request->version > member->adopted)
        member->adopted = request->version;
    member->willing = request->willing != 0;
    member->logs = request->logs;
    member->serial = ++board->entries;
    return BANYAN_OK;
}

/* ---- the lock ---- */

static void lock(struct memory_board *board, const struct memory_board_process *caller,
                 struct memory_board_reply *reply)
{
    if (board->grant != 0 && !same(&board->holder, caller))
        return;
    board->grant = ++board->grants;
    board->holder = *caller;
    reply->grant = board->grant;
}

static bool holds(const struct memory_board *board, const struct memory_board_process *caller,
                  const struct memory_board_request *request)
{
    return board->grant != 0 && board->grant == request->grant && same(&board->holder, caller);
}

/* A member that came back while it was fenced at one memory node after the other has entered again, and goes
 * by what the map says since: it stays. So does an orphan that takes the lock itself. */
static int clean(struct memory_board *board, const struct memory_board_process *caller,
                 const struct memory_board_request *request)
{
    const struct memory_board_process *process = &request->process;
    if (process->instance == 0 || process->compute_id == 0)
        return BANYAN_EINVAL;
    if (same(&board->orphan, process))
        board->orphan = (struct memory_board_process){0};
    struct memory_board_member *member = find(board, process);
    if (member != NULL && member->serial == request->serial && !same(caller, process))
        forget(board, member);
    return BANYAN_OK;
}

static int publish(struct memory_board *board, uint64_t version)
{
    if (board->orphan.instance != 0)
        return BANYAN_ECONFLICT;
    if (version != board->version && version != board->version + 1)
        return BANYAN_EINVAL;
    board->version = version;
    return BANYAN_OK;
}

/* ---- calls ---- */

static int carry_out(struct memory_board *board, const struct memory_call *call,
                     const struct memory_board_request *request, struct memory_board_reply *reply)
{
    const struct memory_board_process caller = {.instance = request->instance,
                                                .compute_id = call->compute_id};
    struct memory_board_member *member;
    switch (call->kind) {
    case MEMORY_BOARD_LOOK:
        return BANYAN_OK;
    case MEMORY_BOARD_ENTER:
        return enter(board, &caller, request);
    case MEMORY_BOARD_LEAVE:
        member = find(board, &caller);
        if (member != NULL)
            forget(board, member);
        return BANYAN_OK;
    case MEMORY_BOARD_LOCK:
        lock(board, &caller, reply);
        return BANYAN_OK;
    case MEMORY_BOARD_UNLOCK:
        if (holds(board, &caller, request))
            board->grant = 0;
        return BANYAN_OK;
    case MEMORY_BOARD_CLEAN:
        return holds(board, &caller, request) ? clean(board, &caller, request) : BANYAN_ECONFLICT;
    case MEMORY_BOARD_PUBLISH:
        return holds(board, &caller, request) ? publish(board, request->version) : BANYAN_ECONFLICT;
    default:
        assert(false); /* the registration has no other kind */
        return BANYAN_EINVAL;
    }
}

static void tell(const struct memory_board *board, struct memory_board_reply *reply)
{
    reply->version = board->version;
    reply->orphan = board->orphan;
    if (board->grant != 0)
        reply->holder = board->holder;
}

static int members(struct memory_board *board, struct memory_call *call, uint32_t skip)
{
    struct memory_board_members reply;
    if (call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memset(&reply, 0, sizeof reply);
    spinlock_lock(&board->lock);
    reply.total = board->count;
    reply.version = board->version;
    for (uint32_t i = skip; i < board->count && reply.count < MEMORY_BOARD_MEMBERS_PAGE; i++)
        reply.members[reply.count++] = board->members[i];
    spinlock_unlock(&board->lock);
    call->reply_length =
        offsetof(struct memory_board_members, members) + reply.count * sizeof reply.members[0];
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

static int serve(void *context, struct memory_call *call)
{
    struct memory_board *board = &((struct memory_node *)context)->board;
    struct memory_board_request request;
    struct memory_board_reply reply = {0};
    if (call->length < sizeof request || call->capacity < sizeof reply || call->compute_id == 0)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    if (request.instance == 0)
        return BANYAN_EINVAL;
    if (call->kind == MEMORY_BOARD_MEMBERS)
        return members(board, call, request.skip);
    spinlock_lock(&board->lock);
    int status = carry_out(board, call, &request, &reply);
    tell(board, &reply);
    spinlock_unlock(&board->lock);
    if (status)
        return status;
    memcpy(call->reply, &reply, sizeof reply);
    call->reply_length = sizeof reply;
    return BANYAN_OK;
}

static void fenced(void *context, uint16_t compute_id)
{
    struct memory_board *board = &((struct memory_node *)context)->board;
    spinlock_lock(&board->lock);
    if (board->grant != 0 && board->holder.compute_id == compute_id) {
        if (board->orphan.instance == 0) /* else it has written nothing */
            board->orphan = board->holder;
        board->grant = 0;
    }
    spinlock_unlock(&board->lock);
}

void memory_board_clear(struct memory_board *board)
{
    spinlock_lock(&board->lock);
    free(board->members);
    board->members = NULL;
    board->count = board->capacity = 0;
    /* grants go on: what was granted before holds nothing now */
    board->version = board->grant = 0;
    board->orphan = (struct memory_board_process){0};
    spinlock_unlock(&board->lock);
}

const struct memory_service memory_board_service = {
    .name = "board", .roles = MEMORY_ROLE_DATA, .serve = serve, .fenced = fenced};
