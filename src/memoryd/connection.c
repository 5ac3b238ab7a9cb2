/*
 * connection.c - a session with its socket: reads, lets the session work, writes, and closes in good order or
 * at once. On the loop's thread; nothing waits, but for the descriptors of a mapping (DESCRIPTORS_LIMIT).
 */
#include "memoryd/loop.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"

#define SECOND       UINT64_C(1000000000)
#define HELLO_LIMIT  (5 * SECOND)
#define ENDING_LIMIT (5 * SECOND)
/* Descriptors follow a welcome into an empty Unix socket, which has room for them at once. */
#define DESCRIPTORS_LIMIT (SECOND / 10)

struct memoryd_connection *memoryd_connection_create(struct memoryd *daemon, struct memoryd_loop *loop,
                                                     int fd, const struct memoryd_listener *listener,
                                                     const char *peer)
{
    struct memoryd_connection *connection = calloc(1, sizeof *connection);
    struct memoryd_session *session;
    bool is_unix = listener->address.kind == NET_UNIX;
    struct net_stream *stream = net_stream_create(fd, is_unix ? NULL : daemon->tls, true, NULL);
    if (connection == NULL || stream == NULL) {
        if (stream != NULL)
            net_stream_destroy(stream);
        free(connection);
        return NULL;
    }
    connection->stream = stream;
    connection->loop = loop;
    session = &connection->session;
    session->pidfd = -1;
    session->is_unix = is_unix;
    session->staged = loop->staged;
    if (is_unix) {
        uint32_t user = 0;
        net_peer_process(fd, &session->pidfd, &session->pid, &user, NULL);
        snprintf(session->peer, sizeof session->peer, "process %d of user %u", session->pid, user);
        peer = session->peer;
    }
    atomic_add_relaxed(&daemon->connections, 1u); /* a count */
    char name[NET_TEXT_MAX];
    snprintf(name, sizeof name, "%s", peer);
    session->thread = (unsigned)(loop - daemon->loops);
    if (!memoryd_session_begin(session, daemon, &loop->counts, fd, name)) {
        memoryd_connection_free(connection);
        return NULL;
    }
    connection->deadline = task_now() + HELLO_LIMIT;
    return connection;
}

void memoryd_connection_free(struct memoryd_connection *connection)
{
    net_stream_destroy(connection->stream);
    memoryd_buffer_free(&connection->sending);
    memoryd_session_finish(&connection->session);
    /* relaxed: a count */
    atomic_add_relaxed(&connection->session.daemon->connections, UINT32_MAX);
    free(connection);
}

/* ---- closing ---- */

void memoryd_connection_close(struct memoryd_connection *connection, enum memoryd_leaving how,
                              const char *why)
{
    struct memoryd_session *session = &connection->session;
    if (connection->gone)
        return;
    /* A client that was gone before its welcome and its descriptors could be sent has begun nothing: that is
     * an end in good order. */
    if (how == MEMORYD_LOST && session->open && !connection->welcomed && !session->worked)
        how = MEMORYD_GOODBYE;
    if (how == MEMORYD_BROKEN)
        log_warning("memory node: the connection of %s (%s) was closed: %s",
                    session->name[0] != 0 ? session->name : "no name yet", session->peer, why);
    else if (how == MEMORYD_LOST && session->group == NULL)
        log_debug("memory node: the connection of %s was lost: %s", session->peer, why);
    memoryd_session_leave(session, how, why);
    connection->gone = true;
    memoryd_loop_remove(connection);
    shutdown(session->fd, SHUT_RDWR);
    if (connection->loop->engine->remove(connection))
        memoryd_connection_free(connection);
    else
        connection->loop->flying++;
}

static bool all_sent(const struct memoryd_connection *connection)
{
    const struct memoryd_buffer *out = &connection->session.out;
    return out->ready == out->start && connection->session.unsent == 0;
}

/* The session is over. Its output is still sent, if the peer takes it soon. */
static void begin_ending(struct memoryd_connection *connection)
{
    memoryd_session_leave(&connection->session, MEMORYD_GOODBYE, "");
    connection->ending = true;
    memoryd_loop_set_deadline(connection, task_now() + ENDING_LIMIT);
}

void memoryd_connection_expire(struct memoryd_connection *connection)
{
    const struct memoryd_session *session = &connection->session;
    /* Not a warning: any stranger could fill the log with them. */
    if (!session->open)
        log_debug("memory node: %s was closed: no hello in time, or too many others came", session->peer);
    memoryd_connection_close(connection, MEMORYD_LOST, "it did not take what it was sent");
}

/* ---- the session's turn ---- */

static int write_all(struct memoryd_connection *connection);

/* The welcome goes first, then the descriptors. false: closed. */
static bool send_descriptors(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    struct memoryd_buffer *out = &session->out;
    struct error error = {0};
    if (write_all(connection) < 0)
        return false;
    if (out->start != out->ready ||
        net_send_descriptors(session->fd, session->descriptors, session->descriptor_count, DESCRIPTORS_LIMIT,
                             &error)) {
        memoryd_connection_close(connection, MEMORYD_LOST, "it did not take the descriptors of its mapping");
        return false;
    }
    memoryd_session_descriptors_sent(session);
    return true;
}

/* After the hello the engine may move the bytes itself. */
static void become_open(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    connection->deadline = 0;
    memoryd_loop_set_deadline(connection, 0);
    bool plain = session->is_unix || session->daemon->tls == NULL;
    if (connection->loop->engine == &memoryd_uring && plain) {
        int flags = fcntl(session->fd, F_GETFL);
        /* io_uring would hand out EAGAIN at once for a non-blocking socket. */
        connection->completion = flags >= 0 && fcntl(session->fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
    }
}

/* Lets the session work on its input. false: the connection is closed, and may be gone. */
static bool run_session(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    enum session_result result;
    if (connection->ending)
        return true;
    bool was_open = session->open;
    while ((result = memoryd_session_run(session)) == SESSION_DESCRIPTORS)
        if (!send_descriptors(connection))
            return false;
    connection->paused = result == SESSION_PAUSED;
    if (result == SESSION_FENCED) {
        memoryd_connection_close(connection, MEMORYD_LOST, "fenced");
        return false;
    }
    if (result == SESSION_BROKEN) {
        memoryd_connection_close(connection, MEMORYD_BROKEN, session->why);
        return false;
    }
    if (result == SESSION_ENDED)
        begin_ending(connection);
    else if (session->open && !was_open && write_all(connection) < 0)
        return false;
    connection->welcomed = session->open;
    if (connection->ending)
        return true;
    if (session->open && !was_open && all_sent(connection) && !connection->paused)
        become_open(connection);
    else if (session->open && !was_open)
        memoryd_loop_set_deadline(connection, 0); /* its bytes go on being moved by readiness */
    return true;
}

/* ---- readiness ---- */

/* Writes what the socket takes. 1: all is written; 0: the peer must take some first; -1: closed. */
static int write_all(struct memoryd_connection *connection)
{
    struct memoryd_buffer *out = &connection->session.out;
    while (out->start < out->ready) {
        size_t written = 0;
        enum net_status status =
            net_stream_write(connection->stream, out->bytes + out->start, out->ready - out->start, &written);
        if (status == NET_AGAIN)
            return 0;
        if (status != NET_OK) {
            char why[160];
            snprintf(why, sizeof why, "lost: %s",
                     status == NET_END ? "closed" : net_stream_error(connection->stream));
            memoryd_connection_close(connection, MEMORYD_LOST, why);
            return -1;
        }
        out->start += written;
    }
    if (out->start == out->end)
        out->start = out->ready = out->end = 0;
    if (connection->ending) {
        memoryd_connection_close(connection, MEMORYD_GOODBYE, "");
        return -1;
    }
    return 1;
}

static size_t input_keep(const struct memoryd_session *session)
{
    if (!session->open)
        return SESSION_INPUT_HELLO;
    return session->role == WIRE_DATA ? SESSION_INPUT_LISTS : SESSION_INPUT_SMALL;
}

int memoryd_connection_input_room(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    struct memoryd_buffer *in = &session->in;
    size_t held = memoryd_buffer_held(in), keep = input_keep(session);
    if (connection->ending || connection->paused)
        return 0;
    if (held == 0) {
        in->start = in->ready = in->end = 0;
        if (connection->large && in->capacity > keep)
            memoryd_buffer_shrink(in, keep);
        connection->large = false;
    }
    size_t whole = session->need > keep ? session->need : keep;
    size_t more = whole > held ? whole - held : 1;
    /* A quarter of that is room enough, if the next step fits into the buffer: its bytes are not moved then.
     */
    if (in->bytes != NULL && session->need <= in->capacity - in->start && in->capacity - in->end >= keep / 4)
        return 1;
    if (memoryd_buffer_room(in, more))
        return 1;
    memoryd_connection_close(connection, MEMORYD_BROKEN, "no memory for what it sends");
    return -1;
}

/* 1: bytes came; 0: none now; -1: closed. */
static int read_some(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    struct memoryd_buffer *in = &session->in;
    size_t length = 0;
    char why[160];
    int room = memoryd_connection_input_room(connection);
    if (room <= 0)
        return room;
    switch (net_stream_read(connection->stream, in->bytes + in->end, in->capacity - in->end, &length)) {
    case NET_OK:
        in->end += length;
        return 1;
    case NET_AGAIN:
        return 0;
    case NET_END:
        memoryd_connection_close(connection, MEMORYD_LOST, "its connection was closed without a goodbye");
        return -1;
    default:
        snprintf(why, sizeof why, "a connection of it was lost: %s", net_stream_error(connection->stream));
        memoryd_connection_close(connection, MEMORYD_LOST, why);
        return -1;
    }
}

void memoryd_connection_ready(struct memoryd_connection *connection)
{
    bool on = true;
    while (on) {
        bool was_paused = connection->paused;
        if (!connection->ending && !was_paused && read_some(connection) < 0)
            return;
        if (!run_session(connection) || write_all(connection) < 0)
            return;
        /* Neither bytes that TLS holds decrypted nor input that was left in a pause make the descriptor
         * ready. */
        on = !connection->ending && !connection->completion &&
             ((connection->paused && !memoryd_session_paused(&connection->session)) ||
              (!connection->paused && net_stream_pending(connection->stream)));
    }
    connection->loop->engine->arm(connection);
}

uint32_t memoryd_connection_wants(const struct memoryd_connection *connection)
{
    const struct memoryd_buffer *out = &connection->session.out;
    bool write = out->start < out->ready;
    uint32_t events = net_stream_wants(connection->stream, write);
    /* Input that is not going to be read must not wake the thread again and again. */
    if ((connection->paused || connection->ending) && (events & EPOLLOUT) != 0)
        events &= ~(uint32_t)EPOLLIN;
    return events;
}

/* ---- completion ---- */

/* After a turn: closes a connection that is ending and has sent all, and arms any other. */
static void settle(struct memoryd_connection *connection)
{
    if (connection->ending && all_sent(connection))
        memoryd_connection_close(connection, MEMORYD_GOODBYE, "");
    else
        connection->loop->engine->arm(connection);
}

void memoryd_connection_received(struct memoryd_connection *connection, int count)
{
    char why[160];
    if (count <= 0 && count != -EAGAIN && count != -EINTR && count != -ECANCELED) {
        if (count == 0)
            snprintf(why, sizeof why, "its connection was closed without a goodbye");
        else
            snprintf(why, sizeof why, "a connection of it was lost: %s", strerror(-count));
        memoryd_connection_close(connection, MEMORYD_LOST, why);
        return;
    }
    if (count > 0)
        connection->session.in.end += (size_t)count;
    if (run_session(connection))
        settle(connection);
}

void memoryd_connection_sent(struct memoryd_connection *connection, int count)
{
    struct memoryd_session *session = &connection->session;
    char why[160];
    if (count <= 0 && count != -EAGAIN && count != -EINTR) {
        snprintf(why, sizeof why, "a connection of it was lost: %s", strerror(-count));
        memoryd_connection_close(connection, MEMORYD_LOST, why);
        return;
    }
    if (count > 0) {
        connection->sending.start += (size_t)count;
        session->unsent -= (size_t)count;
    }
    if (session->unsent == 0)
        connection->sending.start = connection->sending.ready = connection->sending.end = 0;
    if (connection->paused && !memoryd_session_paused(session) && !run_session(connection))
        return;
    settle(connection);
}

int memoryd_connection_output(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    struct memoryd_buffer *out = &session->out, *sending = &connection->sending;
    if (session->unsent > 0)
        return 1;
    if (out->start == out->ready)
        return 0;
    assert(memoryd_buffer_held(sending) == 0);
    struct memoryd_buffer empty = *sending, full = *out;
    /* A reply whose list has not ended stays in `out`. */
    empty.start = empty.ready = empty.end = 0;
    if (!memoryd_buffer_append(&empty, full.bytes + full.ready, full.end - full.ready)) {
        *sending = empty;
        memoryd_connection_close(connection, MEMORYD_BROKEN, "no memory for a reply");
        return -1;
    }
    empty.ready = 0;
    full.end = full.ready;
    *out = empty;
    *sending = full;
    session->unsent = full.end - full.start;
    return 1;
}

void memoryd_connection_tell(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    size_t held = memoryd_buffer_held(&session->out);
    if (!connection->welcomed || connection->ending)
        return;
    if (!memoryd_session_notice(session) || !memoryd_session_answer(session))
        memoryd_connection_close(connection, MEMORYD_BROKEN, "no memory for what it is told");
    else if (memoryd_buffer_held(&session->out) == held)
        return;
    else if (connection->completion)
        settle(connection);
    else if (write_all(connection) >= 0)
        connection->loop->engine->arm(connection);
}

void memoryd_connection_tidy(struct memoryd_connection *connection)
{
    struct memoryd_session *session = &connection->session;
    if (session->out.capacity > SESSION_OUTPUT_KEEP && memoryd_buffer_held(&session->out) == 0)
        memoryd_buffer_shrink(&session->out, 0);
    if (connection->sending.capacity > SESSION_OUTPUT_KEEP && session->unsent == 0)
        memoryd_buffer_shrink(&connection->sending, 0);
    if (session->in.capacity > input_keep(session) && memoryd_buffer_held(&session->in) == 0) {
        /* Only if it was so at the last look too. */
        bool again = connection->large;
        connection->large = true;
        if (again)
            connection->loop->engine->shrink(connection);
    }
}
