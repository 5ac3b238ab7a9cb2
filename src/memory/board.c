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

/* ---- what is kept ---- */

/* Both: within a change of the board's list. */
static void set(struct memory_board *board, uint64_t *word, uint64_t value)
{
    keep_set(&board->keep->board_list, word, value);
}

static void set_process(struct memory_board *board, struct memory_board_process *process,
                        struct memory_board_process value)
{
    keep_process(&board->keep->board_list, process);
    *process = value;
}

/* ---- members ---- */

static struct memory_board_member *find(const struct memory_board *board,
                                        const struct memory_board_process *process)
{
    for (uint32_t i = 0; i < board->count; i++)
        if (same(&board->members[i]->member.process, process))
            return &board->members[i]->member;
    return NULL;
}

/* Room for one more. False: no memory. */
static bool reserve(struct memory_board *board)
{
    if (board->count < board->capacity)
        return true;
    uint32_t capacity = board->capacity ? board->capacity * 2 : CAPACITY_FIRST;
    struct keep_member **members = realloc(board->members, capacity * sizeof *members);
    if (members == NULL)
        return false;
    board->members = members;
    board->capacity = capacity;
    return true;
}

static int add(struct memory_board *board, const struct memory_board_process *process,
               struct memory_board_member **member)
{
    struct keep_member *slot = board->keep->members;
    if (board->count == MEMORY_BOARD_MEMBERS_MAX)
        return BANYAN_ENOSPC;
    if (!reserve(board))
        return BANYAN_ENOMEM;
    while (slot->place != 0) /* there are as many slots as members can be */
        slot++;
    set(board, &board->keep->board->places, board->keep->board->places + 1);
    set(board, &slot->place, board->keep->board->places);
    slot->member = (struct memory_board_member){.process = *process}; /* a free slot may hold anything */
    board->members[board->count++] = slot;
    *member = &slot->member;
    return BANYAN_OK;
}

static void forget(struct memory_board *board, const struct memory_board_process *process)
{
    uint32_t at = 0;
    while (at < board->count && !same(&board->members[at]->member.process, process))
        at++;
    if (at == board->count)
        return;
    set(board, &board->members[at]->place, 0);
    board->count--;
    memmove(&board->members[at], &board->members[at + 1], (board->count - at) * sizeof(struct keep_member *));
}

static int enter(struct memory_board *board, const struct memory_board_process *caller,
                 const struct memory_board_request *request)
{
    struct memory_board_member *member = find(board, caller);
    /* Nobody can have adopted what was not published. */
    if (request->version > board->keep->board->version || request->logs >= MEMORY_BOARD_LOG_KINDS)
        return BANYAN_EINVAL;
    int status = member ? BANYAN_OK : add(board, caller, &member);
    if (status)
        return status;
    if (request->version > member->adopted)
        set(board, &member->adopted, request->version);
    keep_word(&board->keep->board_list,
              (const uint64_t *)(const void *)&member->willing); /* and what is behind it */
    member->willing = request->willing != 0;
    member->overdue = request->overdue != 0;
    member->logs = request->logs;
    set(board, &board->keep->board->entries, board->keep->board->entries + 1);
    set(board, &member->serial, board->keep->board->entries);
    return BANYAN_OK;
}

/* ---- the lock ---- */

static void lock(struct memory_board *board, const struct memory_board_process *caller,
                 struct memory_board_reply *reply)
{
    struct keep_board *kept = board->keep->board;
    if (kept->grant != 0 && !same(&kept->holder, caller))
        return;
    set(board, &kept->grants, kept->grants + 1);
    set(board, &kept->grant, kept->grants);
    set_process(board, &kept->holder, *caller);
    reply->grant = kept->grant;
}

static bool holds(const struct memory_board *board, const struct memory_board_process *caller,
                  const struct memory_board_request *request)
{
    const struct keep_board *kept = board->keep->board;
    return kept->grant != 0 && kept->grant == request->grant && same(&kept->holder, caller);
}

/* A member that came back while it was fenced at one memory node after the other has entered again, and goes
 * by what the map says since: it stays. So does an orphan that takes the lock itself. */
static int clean(struct memory_board *board, const struct memory_board_process *caller,
                 const struct memory_board_request *request)
{
    struct keep_board *kept = board->keep->board;
    const struct memory_board_process *process = &request->process;
    if (process->instance == 0 || process->compute_id == 0)
        return BANYAN_EINVAL;
    if (same(&kept->orphan, process))
        set_process(board, &kept->orphan, (struct memory_board_process){0});
    const struct memory_board_member *member = find(board, process);
    if (member != NULL && member->serial == request->serial && !same(caller, process))
        forget(board, process);
    return BANYAN_OK;
}

static int publish(struct memory_board *board, uint64_t version)
{
    struct keep_board *kept = board->keep->board;
    if (kept->orphan.instance != 0)
        return BANYAN_ECONFLICT;
    if (version != kept->version && version != kept->version + 1)
        return BANYAN_EINVAL;
    set(board, &kept->version, version);
    return BANYAN_OK;
}

/* The holder is fenced. */
static void orphan(struct memory_board *board)
{
    struct keep_board *kept = board->keep->board;
    if (kept->orphan.instance == 0) /* else it has written nothing */
        set_process(board, &kept->orphan, kept->holder);
    set(board, &kept->grant, 0);
}

/* ---- calls ---- */

static int carry_out(struct memory_board *board, const struct memory_call *call,
                     const struct memory_board_request *request, struct memory_board_reply *reply)
{
    const struct memory_board_process caller = {.instance = request->instance,
                                                .compute_id = call->compute_id};
    switch (call->kind) {
    case MEMORY_BOARD_LOOK:
        return BANYAN_OK;
    case MEMORY_BOARD_ENTER:
        return enter(board, &caller, request);
    case MEMORY_BOARD_LEAVE:
        forget(board, &caller);
        return BANYAN_OK;
    case MEMORY_BOARD_LOCK:
        lock(board, &caller, reply);
        return BANYAN_OK;
    case MEMORY_BOARD_UNLOCK:
        if (holds(board, &caller, request))
            set(board, &board->keep->board->grant, 0);
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
    const struct keep_board *kept = board->keep->board;
    reply->version = kept->version;
    reply->orphan = kept->orphan;
    if (kept->grant != 0)
        reply->holder = kept->holder;
}

static int members(struct memory_board *board, struct memory_call *call, uint32_t skip)
{
    struct memory_board_members reply;
    if (call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memset(&reply, 0, sizeof reply);
    spinlock_lock(&board->lock);
    reply.total = board->count;
    reply.version = board->keep->board->version;
    for (uint32_t i = skip; i < board->count && reply.count < MEMORY_BOARD_MEMBERS_PAGE; i++)
        reply.members[reply.count++] = board->members[i]->member;
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
    keep_begin(&board->keep->board_list);
    int status = carry_out(board, call, &request, &reply);
    keep_end(&board->keep->board_list);
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
    keep_begin(&board->keep->board_list);
    if (board->keep->board->grant != 0 && board->keep->board->holder.compute_id == compute_id)
        orphan(board);
    keep_end(&board->keep->board_list);
    spinlock_unlock(&board->lock);
}

/* ---- life ---- */

static int by_place(const void *a, const void *b)
{
    const struct keep_member *const *left = a, *const *right = b;
    return ((*left)->place > (*right)->place) - ((*left)->place < (*right)->place);
}

int memory_board_open(struct memory_board *board, struct keep *keep, struct error *error)
{
    board->keep = keep;
    if (keep_checked(keep, KEEP_USED_SINCE) == 0)
        return BANYAN_OK;
    for (uint32_t i = 0; i < MEMORY_BOARD_MEMBERS_MAX; i++) {
        struct keep_member *slot = &keep->members[i];
        if (slot->place == 0)
            continue;
        if (!reserve(board))
            return error_set(error, BANYAN_ENOMEM, "no memory for the board of a memory node");
        board->members[board->count++] = slot;
    }
    if (board->count > 0)
        qsort(board->members, board->count, sizeof(struct keep_member *), by_place);
    keep_begin(&keep->board_list);
    if (keep->board->grant != 0)
        orphan(board); /* D4 */
    keep_end(&keep->board_list);
    return BANYAN_OK;
}

void memory_board_clear(struct memory_board *board)
{
    spinlock_lock(&board->lock);
    board->count = 0;
    spinlock_unlock(&board->lock);
}

void memory_board_close(struct memory_board *board)
{
    free(board->members);
    board->members = NULL;
    board->count = board->capacity = 0;
}

const struct memory_service memory_board_service = {
    .name = "board", .roles = MEMORY_ROLE_DATA, .serve = serve, .fenced = fenced};
