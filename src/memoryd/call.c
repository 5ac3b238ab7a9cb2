/*
 * call.c - CALLs: a request goes to the memory node's services (memory/service.h), and their answer back, at
 * once or when the disk has what it waits for, or a thread has walked (memoryd_session_answer).
 *
 * On the connection's I/O thread. The daemon adds nothing but the caller's role: what a kind of request does,
 * and who may ask for it, is the service's.
 */
#include <assert.h>

#include "memoryd/session.h"

static enum memory_role role_of(const struct memoryd_session *session)
{
    switch (session->role) {
    case WIRE_DATA:
        return MEMORY_ROLE_DATA;
    case WIRE_CONTROL:
        return MEMORY_ROLE_CONTROL;
    case WIRE_FORMATTER:
        return MEMORY_ROLE_FORMATTER;
    default:
        assert(session->role == WIRE_MONITOR); /* the hello let no other in */
        return MEMORY_ROLE_MONITOR;
    }
}

enum session_result memoryd_session_call(struct memoryd_session *session, const struct wire_header *head,
                                         const void *bytes)
{
    struct memoryd_buffer *out = &session->out;
    struct wire_header result = {.kind = WIRE_RESULT, .id = head->id};
    session->worked = true;
    if (!memoryd_buffer_room(out, sizeof result + WIRE_SMALL_MAX))
        return memoryd_session_broken(session, "no memory for a reply");
    struct memory_call call = {.role = role_of(session),
                               .compute_id = memoryd_group_compute_id(session),
                               .request = bytes,
                               .length = head->length,
                               .reply = out->bytes + out->end + sizeof result,
                               .capacity = WIRE_SMALL_MAX,
                               .defers = session->wait_count < SESSION_WAITS,
                               .thread = session->thread};
    result.status = memory_node_serve(session->daemon->node, &call);
    if (result.status == MEMORY_DEFERRED) {
        session->waits[session->wait_count++] = (struct session_wait){.id = head->id, .ticket = call.ticket};
        return SESSION_MORE;
    }
    result.length = (uint32_t)call.reply_length;
    memcpy(out->bytes + out->end, &result, sizeof result);
    out->end += sizeof result + result.length;
    out->ready = out->end;
    return SESSION_MORE;
}
