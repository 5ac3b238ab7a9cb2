/* board.c - see board.h. */
#include "owner/board.h"

#include "owner/state.h"

#include <stdlib.h>

#define HOME            0u
#define PROCESSES_FIRST 64u
#define PROCESSES_MAX   65536u

int owner_board_call(struct tree_session *session, struct memory_board_request *request,
                     struct memory_board_reply *reply)
{
    struct pool_session *pool = tree_session_pool(session);
    size_t length;
    request->instance = fabric_self(pool->fabric).instance;
    int status = pool_call(pool, HOME, request, sizeof *request, reply, sizeof *reply, &length);
    if (!status && length != sizeof *reply)
        status = pool_fail(pool, BANYAN_ECORRUPT, "memory node 0 answered the board with %zu bytes", length);
    return status;
}

int owner_board_look(struct tree_session *session, struct memory_board_reply *reply)
{
    struct memory_board_request request = {.kind = MEMORY_BOARD_LOOK};
    return owner_board_call(session, &request, reply);
}

/* ---- members ---- */

static int page(struct tree_session *session, uint32_t skip, struct memory_board_members *reply)
{
    struct pool_session *pool = tree_session_pool(session);
    struct memory_board_request request = {
        .kind = MEMORY_BOARD_MEMBERS, .skip = skip, .instance = fabric_self(pool->fabric).instance};
    size_t length, front = offsetof(struct memory_board_members, members);
    int status = pool_call(pool, HOME, &request, sizeof request, reply, sizeof *reply, &length);
    if (status)
        return status;
    if (length < front || reply->count > MEMORY_BOARD_MEMBERS_PAGE ||
        length != front + reply->count * sizeof reply->members[0] || reply->total > MEMORY_BOARD_MEMBERS_MAX)
        return pool_fail(pool, BANYAN_ECORRUPT, "memory node 0 answered who is on the board with nonsense");
    return 0;
}

/* Members that leave while the pages are read move the later ones to the front, so that one may be passed
 * over. Then the table is read again: it was whole if its number did not change. */
static int read_all(struct tree_session *session, struct memory_board_members *reply,
                    struct owner_members *members, bool *whole)
{
    uint32_t total = 0;
    members->count = 0;
    do {
        int status = page(session, members->count, reply);
        if (status)
            return status;
        *whole = !members->count || reply->total == total;
        total = reply->total;
        struct memory_board_member *more =
            heap_resize(members->heap, members->members, (members->count + reply->count + 1) * sizeof *more);
        if (!more)
            return pool_fail_memory(tree_session_pool(session));
        members->members = more;
        for (uint32_t i = 0; i < reply->count; i++)
            members->members[members->count++] = reply->members[i];
    } while (*whole && reply->count && members->count < total);
    return 0;
}

int owner_board_members(struct owner *owner, struct tree_session *session, struct owner_members *members)
{
    struct memory_board_members *reply = heap_allocate(&owner->heap, sizeof *reply);
    bool whole = false;
    int status = reply ? 0 : pool_fail_memory(tree_session_pool(session));
    *members = (struct owner_members){.heap = &owner->heap};
    while (!status && !whole)
        status = read_all(session, reply, members, &whole);
    heap_free(&owner->heap, reply);
    return status;
}

void owner_members_free(struct owner_members *members)
{
    heap_free(members->heap, members->members);
    *members = (struct owner_members){.heap = members->heap};
}

const struct memory_board_member *owner_members_find(const struct owner_members *members,
                                                     struct fabric_process process)
{
    for (uint32_t i = 0; i < members->count; i++)
        if (fabric_process_equal(owner_process_of(&members->members[i].process), process))
            return &members->members[i];
    return NULL;
}

/* ---- processes ---- */

int owner_processes(struct owner *owner, struct tree_session *session, struct fabric_process **processes,
                    uint32_t *count)
{
    struct pool_session *pool = tree_session_pool(session);
    *processes = NULL;
    for (uint32_t capacity = PROCESSES_FIRST;; capacity = *count + PROCESSES_FIRST) {
        struct fabric_process *room = heap_resize(&owner->heap, *processes, capacity * sizeof *room);
        if (!room)
            return pool_fail_memory(pool);
        *processes = room;
        int status = fabric_processes(pool->endpoint, room, capacity, count, pool->cost);
        if (status)
            return pool_node_failed(pool, status == BANYAN_EFENCED ? BANYAN_ENET : status, HOME,
                                    "asking who is connected");
        if (*count <= capacity)
            return 0;
        if (*count > PROCESSES_MAX)
            return pool_fail(pool, BANYAN_ECORRUPT, "memory node 0 says that %u processes are connected",
                             *count);
    }
}

bool owner_among(const struct fabric_process *processes, uint32_t count, struct fabric_process process)
{
    for (uint32_t i = 0; i < count; i++)
        if (fabric_process_equal(processes[i], process))
            return true;
    return false;
}
