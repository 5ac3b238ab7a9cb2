/*
 * session.c - What a task does with the pool: errors with messages, and the one place where command lists are
 * executed: `combine` decides here what shares a round trip. Fails with the fabric's errors, named.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool/state.h"

void pool_session_init(struct pool_session *session, struct pool_worker *worker, struct fabric_cost *cost)
{
    *session = (struct pool_session){.worker = worker,
                                     .fabric = worker->pool->fabric,
                                     .endpoint = worker->endpoint,
                                     .epoch = worker->epoch,
                                     .memory_nodes = worker->memory_nodes,
                                     .combine = (uint8_t)worker->pool->combine,
                                     .cost = cost,
                                     .away = POOL_ANY_NODE};
}

void pool_session_begin(struct pool_session *session)
{
    pool_worker_count(session->worker);
    session->memory_nodes = session->worker->memory_nodes;
    session->incarnation = session->pinned ? session->pinned : fabric_incarnation(session->fabric);
}

bool pool_knows(struct pool_session *session, uint16_t node)
{
    if (__builtin_expect(fabric_membership(session->fabric, node) != FABRIC_NO_MEMBER, 1))
        return true;
    if (!fabric_learn(session->fabric, node))
        return false;
    pool_worker_count(session->worker);
    session->memory_nodes = session->worker->memory_nodes;
    return true;
}

bool pool_session_again(struct pool_session *session, int *status)
{
    /* Without a loss since it began, beginning anew would be refused for the same reason for ever. */
    if (*status != BANYAN_EFENCED || session->pinned ||
        fabric_incarnation(session->fabric) == session->incarnation)
        return false;
    pool_session_begin(session);
    *status = 0;
    return true;
}

/* ---- errors ---- */

int pool_fail(struct pool_session *session, int code, const char *format, ...)
{
    char text[sizeof session->error.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    session->away = POOL_ANY_NODE;
    return error_set(&session->error, code, "%s", text);
}

int pool_fail_memory(struct pool_session *session)
{
    return pool_fail(session, BANYAN_ENOMEM, "no memory for a session's buffers");
}

int pool_corrupt(struct pool_session *session, gaddr address, const char *what)
{
    char text[GADDR_TEXT_BYTES];
    return pool_fail(session, BANYAN_ECORRUPT, "node %s: %s", gaddr_format(address, text), what);
}

int pool_unknown(struct pool_session *session, int status)
{
    if (status == BANYAN_ENET || status == BANYAN_ETIMEOUT)
        return pool_fail(session, BANYAN_EUNKNOWN, "the write may have taken effect: %s", error_name(status));
    return status;
}

int pool_not_done(struct pool_session *session, int status)
{
    if (status != BANYAN_EUNKNOWN)
        return status;
    char cause[sizeof session->error.text];
    snprintf(cause, sizeof cause, "%s", session->error.text);
    return pool_fail(session, BANYAN_ENET, "not done: while helping: %s", cause);
}

int pool_list_failed(struct pool_session *session, int status, const struct fabric_command *commands,
                     uint32_t count)
{
    char text[GADDR_TEXT_BYTES];
    gaddr at = commands[0].address;
    if (commands[0].operation == FABRIC_CAS && count > 1)
        at = commands[1].address; /* the node, rather than its lock */
    /* All addresses come from links: a link to an address that no memory node has is corrupt, unless it is
     * older than the removal of its memory node. */
    if (status == BANYAN_EADDRESS || status == BANYAN_EINVAL) {
        const bool member = fabric_membership(session->fabric, gaddr_node(at)) != FABRIC_NO_MEMBER;
        if (!member && !fabric_refresh(session->fabric))
            return pool_fail(session, BANYAN_ENET,
                             "memory node %u may have joined, and the home node cannot be asked for it",
                             gaddr_node(at));
        const bool away = status == BANYAN_EINVAL && fabric_is_away(session->fabric, gaddr_node(at));
        status = pool_corrupt(session, at,
                              away ? "a link leads to a memory node that was removed"
                                   : "a link leads outside of the pool");
        session->away = away ? gaddr_node(at) : POOL_ANY_NODE;
        return status;
    }
    char what[GADDR_TEXT_BYTES + 16];
    snprintf(what, sizeof what, "commands at %s", gaddr_format(at, text));
    return pool_node_failed(session, status, gaddr_node(at), what);
}

int pool_node_failed(struct pool_session *session, int status, uint16_t node, const char *what)
{
    char trouble[160] = "";
    fabric_trouble(session->fabric, node, trouble, sizeof trouble);
    return pool_fail(session, status, "%s failed: %s%s%s", what, error_name(status), trouble[0] ? ": " : "",
                     trouble);
}

/* ---- executing ---- */

/* How many of the commands may share a list. */
static uint32_t combine_length(const struct pool_session *session, const struct fabric_command *commands,
                               uint32_t count)
{
    if (session->combine == POOL_COMBINE_ALL)
        return count < FABRIC_COMMANDS_MAX ? count : FABRIC_COMMANDS_MAX;
    uint32_t together = 1;
    if (session->combine == POOL_COMBINE_WRITES && commands[0].operation == FABRIC_WRITE)
        while (together < count && together < FABRIC_COMMANDS_MAX &&
               commands[together].operation != FABRIC_READ)
            together++;
    return together;
}

static bool cas_failed(const struct fabric_command *command)
{
    return command->operation == FABRIC_CAS &&
           (command->cas.old & command->cas.mask) != (command->cas.compare & command->cas.mask);
}

int pool_lists_post(struct pool_session *session, struct fabric_list *const *lists, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        lists[i]->incarnation = session->incarnation;
    return fabric_execute(session->endpoint, lists, count, session->cost);
}

int pool_lists_execute(struct pool_session *session, struct fabric_list *const *lists, uint32_t count)
{
    int status = pool_lists_post(session, lists, count);
    for (uint32_t i = 0; status && i < count; i++)
        if (lists[i]->status)
            return pool_list_failed(session, status, lists[i]->commands, lists[i]->count);
    return status;
}

int pool_execute(struct pool_session *session, uint16_t node, struct fabric_command *commands, uint32_t count)
{
    bool begun = false, wrote = false;
    for (; count; begun = true) {
        uint32_t together = combine_length(session, commands, count);
        struct fabric_list list = {.node = node,
                                   .count = (uint16_t)together,
                                   .commands = commands,
                                   .incarnation = session->incarnation};
        struct fabric_list *lists[1] = {&list};
        int status = fabric_execute(session->endpoint, lists, 1, session->cost);
        if (status == BANYAN_EFENCED && begun)
            status = BANYAN_ENET; /* what stood before it is done: no longer "nothing" */
        if (status == BANYAN_ENOMEM && wrote)
            status = BANYAN_ENET; /* likewise; a caller that has only locked and read gives the lock back */
        if (status)
            return pool_list_failed(session, status, commands, together);
        if (together == 1 && cas_failed(commands))
            return 0;
        wrote = wrote || commands[0].operation == FABRIC_WRITE;
        commands += together;
        count -= together;
    }
    return 0;
}

int pool_call(struct pool_session *session, uint16_t node, const void *request, size_t length, void *reply,
              size_t capacity, size_t *reply_length)
{
    char trouble[160];
    int status =
        fabric_call(session->endpoint, node, request, length, reply, capacity, reply_length, session->cost);
    if (!status)
        return 0;
    if (status == BANYAN_EFENCED) /* no connection: beginning again would mend nothing */
        status = BANYAN_ENET;
    fabric_trouble(session->fabric, node, trouble, sizeof trouble);
    return pool_fail(session, status, "a call of memory node %u failed: %s%s%s", (unsigned)node,
                     error_name(status), trouble[0] ? ": " : "", trouble);
}

/* What each status means here. */
int pool_persist_failed(struct pool_session *session, uint16_t node, int status)
{
    const char *what = status == BANYAN_ENOSPC     ? "its disk has no room"
                       : status == BANYAN_EUNKNOWN ? "its disk has failed"
                       : status == BANYAN_ENOTSUP  ? "it keeps nothing on a disk"
                                                   : error_name(status);
    if (status == BANYAN_EFENCED)
        status = BANYAN_ENET;
    return pool_fail(session, status, "memory node %u cannot say that it is safe: %s", (unsigned)node, what);
}

void pool_persist_each(struct pool_session *session, const uint16_t *nodes, uint32_t count, int *statuses)
{
    assert(count <= POOL_PERSIST_MAX);
    fabric_persist(session->endpoint, nodes, count, statuses, session->cost);
}

int pool_persist(struct pool_session *session, const uint16_t *nodes, uint32_t count, uint32_t *at)
{
    int statuses[POOL_PERSIST_MAX];
    assert(count <= POOL_PERSIST_MAX);
    *at = 0;
    if (!fabric_persist(session->endpoint, nodes, count, statuses, session->cost))
        return 0;
    while (*at < count && !statuses[*at])
        ++*at;
    assert(*at < count);
    return pool_persist_failed(session, nodes[*at], statuses[*at]);
}
