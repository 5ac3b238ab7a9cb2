/* session.c - see session.h: which messages there are, and which role may send them. */
#include "memoryd/session.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/disk.h"
#include "memoryd/walks.h"

/* A control connection that does not read gets no more notices: its output must not grow. */
#define NOTICE_UNSENT 4096u

enum session_result memoryd_session_broken(struct memoryd_session *session, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(session->why, sizeof session->why, format, arguments);
    va_end(arguments);
    return SESSION_BROKEN;
}

bool memoryd_session_send(struct memoryd_session *session, enum wire_kind kind, int32_t status, uint64_t id,
                          const void *bytes, size_t length)
{
    struct memoryd_buffer *out = &session->out;
    struct wire_header head = {.length = (uint32_t)length, .kind = (uint8_t)kind, .status = status, .id = id};
    if (!memoryd_buffer_room(out, sizeof head + length))
        return false;
    memoryd_buffer_append(out, &head, sizeof head);
    memoryd_buffer_append(out, bytes, length);
    out->ready = out->end;
    return true;
}

bool memoryd_session_notice(struct memoryd_session *session)
{
    const struct memoryd_buffer *out = &session->out;
    /* acquire: what was done before it was announced */
    uint64_t notice = atomic_load_acquire(&session->daemon->groups.notice);
    if (session->role != WIRE_CONTROL || session->group == NULL || session->over ||
        session->noticed == notice || out->end - out->start + session->unsent > NOTICE_UNSENT)
        return true;
    session->noticed = notice;
    return memoryd_session_send(session, WIRE_NOTICE, 0, notice, NULL, 0);
}

/* Whose ticket it is; NULL: the disk's. */
static struct memoryd_walks *walks_of(const struct memoryd_session *session, uint64_t ticket)
{
    if (ticket & MEMORYD_WALK_TICKET)
        return session->daemon->walks;
    return ticket & MEMORYD_MERGE_TICKET ? session->daemon->merges : NULL;
}

/* The answer to one call, if it is known. *sent false: no memory. */
static bool answer_one(struct memoryd_session *session, const struct session_wait *wait, bool *sent)
{
    uint8_t *reply = NULL;
    size_t length = 0;
    int status;
    struct memoryd_walks *walks = walks_of(session, wait->ticket);
    bool known = walks ? memoryd_walks_take(walks, wait->ticket, &status, &reply, &length)
                       : memoryd_disk_outcome(session->daemon->disk, wait->ticket, &status);
    if (known)
        *sent &= memoryd_session_send(session, WIRE_RESULT, status, wait->id, reply, length);
    free(reply);
    return known;
}

bool memoryd_session_answer(struct memoryd_session *session)
{
    uint32_t kept = 0;
    bool sent = true;
    if (session->wait_count == 0 || session->list.left > 0 || session->over)
        return true;
    for (uint32_t i = 0; i < session->wait_count; i++) {
        const struct session_wait wait = session->waits[i];
        if (!answer_one(session, &wait, &sent))
            session->waits[kept++] = wait;
    }
    session->wait_count = kept;
    return sent;
}

/* ---- messages ---- */

static enum session_result take_format(struct memoryd_session *session, const struct wire_header *head,
                                       const uint8_t *bytes)
{
    struct wire_format format;
    struct error error = {0};
    if (head->length != sizeof format)
        return memoryd_session_broken(session, "a format of %u bytes", head->length);
    memcpy(&format, bytes, sizeof format);
    int status = memoryd_groups_format(session->daemon, &format, &error);
    if (!status)
        log_info("memory node: formatted as number %u of %u of cluster %016llx, asked for by %s (%s)",
                 (unsigned)format.number, (unsigned)format.node_count, (unsigned long long)format.cluster_id,
                 session->name, session->peer);
    if (!memoryd_session_send(session, WIRE_RESULT, status, head->id, error.text, strlen(error.text)))
        return memoryd_session_broken(session, "no memory for a reply");
    return SESSION_MORE;
}

/* Whether its role lets it send this kind of message. */
static bool may_send(const struct memoryd_session *session, uint8_t kind)
{
    uint32_t role = session->role;
    switch (kind) {
    case WIRE_LIST:
        return role == WIRE_DATA && !session->nic;
    case WIRE_ATTACH:
        return role == WIRE_DATA && session->nic;
    case WIRE_CALL:
        return true;
    case WIRE_HEARTBEAT:
        return role == WIRE_CONTROL;
    case WIRE_FORMAT:
        return role == WIRE_FORMATTER;
    case WIRE_GOODBYE:
        return true;
    default:
        return false;
    }
}

/* With the generation of the list of memory nodes, which the home node has. */
static bool send_echo(struct memoryd_session *session, uint64_t id)
{
    struct memoryd_buffer *out = &session->out;
    const struct wire_header echo = {.kind = WIRE_HEARTBEAT,
                                     .generation = memory_node_cluster_generation(session->daemon->node),
                                     .id = id};
    if (!memoryd_buffer_room(out, sizeof echo))
        return false;
    memoryd_buffer_append(out, &echo, sizeof echo);
    out->ready = out->end;
    return true;
}

static enum session_result take_open(struct memoryd_session *session, const struct wire_header *head,
                                     const uint8_t *bytes)
{
    switch (head->kind) {
    case WIRE_CALL:
        return memoryd_session_call(session, head, bytes);
    case WIRE_FORMAT:
        return take_format(session, head, bytes);
    case WIRE_ATTACH:
        return memoryd_session_attach(session, head, bytes);
    case WIRE_HEARTBEAT:
        if (!memoryd_group_heartbeat(session, head->generation, task_now()))
            return SESSION_FENCED;
        if (!send_echo(session, head->id) || !memoryd_session_notice(session))
            return memoryd_session_broken(session, "no memory for a reply");
        return SESSION_MORE;
    default:
        assert(head->kind == WIRE_GOODBYE); /* may_send knows no other */
        return SESSION_ENDED;
    }
}

/* A message all of whose bytes are there. */
static enum session_result take_message(struct memoryd_session *session, const struct wire_header *head)
{
    struct memoryd_buffer *in = &session->in;
    const uint8_t *bytes = in->bytes + in->start + sizeof *head;
    in->start += sizeof *head + head->length;
    if (!session->open)
        return memoryd_session_hello(session, head, bytes);
    return take_open(session, head, bytes);
}

/* Takes one message, or one step of a list. *on: there may be more to do. */
static enum session_result step(struct memoryd_session *session, bool *on)
{
    struct memoryd_buffer *in = &session->in;
    struct wire_header head;
    *on = false;
    if (session->list.left > 0) {
        enum session_result result = memoryd_session_list_step(session);
        *on = result == SESSION_MORE && session->list.left == 0;
        return result;
    }
    if (memoryd_session_paused(session))
        return SESSION_PAUSED;
    session->need = sizeof head;
    if (memoryd_buffer_held(in) < sizeof head)
        return SESSION_MORE;
    memcpy(&head, in->bytes + in->start, sizeof head);
    if (!wire_header_valid(&head))
        return memoryd_session_broken(session, "message kind %u of %u bytes with %u commands", head.kind,
                                      head.length, (unsigned)head.count);
    if (!session->open && (head.kind != WIRE_HELLO || head.length > SESSION_INPUT_HELLO - sizeof head))
        return memoryd_session_broken(session, "message kind %u of %u bytes before the hello", head.kind,
                                      head.length);
    if (session->open && !may_send(session, head.kind))
        return memoryd_session_broken(session, "message kind %u is not for a connection of role %u%s",
                                      head.kind, session->role, session->nic ? " with a NIC" : "");
    if (head.kind == WIRE_LIST) {
        in->start += sizeof head;
        *on = true;
        return memoryd_session_list_begin(session, &head);
    }
    session->need = sizeof head + head.length;
    if (memoryd_buffer_held(in) < session->need)
        return SESSION_MORE;
    session->need = sizeof head;
    *on = true;
    return take_message(session, &head);
}

enum session_result memoryd_session_run(struct memoryd_session *session)
{
    enum session_result result = SESSION_MORE;
    bool on = true;
    while (on && result == SESSION_MORE) {
        if (session->over)
            return SESSION_ENDED;
        if (memoryd_group_fenced(session))
            return SESSION_FENCED;
        if (!memoryd_session_answer(session))
            return memoryd_session_broken(session, "no memory for a reply");
        result = step(session, &on);
    }
    return result;
}

/* ---- life ---- */

bool memoryd_session_begin(struct memoryd_session *session, struct memoryd *daemon,
                           struct memoryd_counts *counts, int fd, const char *peer)
{
    struct wire_greeting greeting = {
        .magic = WIRE_MAGIC, .version = WIRE_VERSION, .secret_wanted = daemon->secret_length > 0};
    session->daemon = daemon;
    session->counts = counts;
    session->fd = fd;
    session->need = sizeof(struct wire_header);
    snprintf(session->peer, sizeof session->peer, "%s", peer);
    net_random(session->nonce, sizeof session->nonce);
    memcpy(greeting.nonce, session->nonce, sizeof greeting.nonce);
    return memoryd_session_send(session, WIRE_GREETING, 0, 0, &greeting, sizeof greeting);
}

void memoryd_session_descriptors_sent(struct memoryd_session *session)
{
    if (session->descriptors_owned)
        for (unsigned i = 0; i < session->descriptor_count; i++)
            close(session->descriptors[i]);
    session->descriptor_count = 0;
}

void memoryd_session_leave(struct memoryd_session *session, enum memoryd_leaving how, const char *why)
{
    session->over = true;
    for (uint32_t i = 0; i < session->wait_count; i++) {
        struct memoryd_walks *walks = walks_of(session, session->waits[i].ticket);
        if (walks)
            memoryd_walks_drop(walks, session->waits[i].ticket);
    }
    session->wait_count = 0;
    /* G6 needs this order: a group's locks are freed when its last session has left, and then no queue pair
     * may be left. */
    if (memoryd_session_detach(session))
        memoryd_group_leave(session, how, why);
    else
        memoryd_group_quarantine(session, why);
}

void memoryd_session_finish(struct memoryd_session *session)
{
    assert(session->group == NULL && session->queue == NULL);
    memoryd_session_descriptors_sent(session);
    memoryd_buffer_free(&session->in);
    memoryd_buffer_free(&session->out);
    memoryd_staging_destroy(session->staging);
    if (session->pidfd >= 0)
        close(session->pidfd);
}
