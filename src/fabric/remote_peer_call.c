/*
 * remote_peer_call.c - the side that calls: an endpoint's connection to each process that it calls, made when
 * it is first needed, and the calls that wait on it (remote_peers.h).
 *
 * On the endpoint's owner. A call costs one message each way, which it shares with those of the endpoint's
 * other fibers to the same process; the first one asks the home node where that process is, and opens the
 * connection, beside which its fiber waits. Nothing else waits.
 *
 * TIME. A fiber that waits for too long is woken by the heartbeat's thread; a plain thread looks at the clock
 * itself. A connection that has not taken the message by then, or was silent since it was sent, is given up,
 * so that the next call looks for the process anew.
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "fabric/remote_fabric.h"
#include "fabric/remote_processes.h"

#define POLL_MS 1000

/* ---- calls that wait ---- */

static struct peer_call **bucket_of(struct peer_connection *connection, uint64_t id)
{
    return &connection->calls[id % REMOTE_PEER_BUCKETS];
}

static void complete(struct peer_call *call, int status)
{
    call->status = status;
    call->done = true;
    call->connection = NULL;
    if (call->task != NULL)
        task_unpark(call->task);
}

static void unchain(struct peer_call **link, struct peer_call *call)
{
    while (*link != NULL && *link != call)
        link = &(*link)->next;
    if (*link != NULL)
        *link = call->next;
}

/* How much of the output has left. */
static uint64_t written(const struct peer_connection *connection)
{
    return connection->talk.out_put - peer_stream_unsent(&connection->talk);
}

void remote_peer_drop(struct peer_connection *connection, const char *why)
{
    struct remote_endpoint_peers *peers = &connection->endpoint->peers;
    struct peer_connection **link = &peers->calling;
    uint64_t left = written(connection);
    while (*link != connection)
        link = &(*link)->next;
    *link = connection->next;
    worker_watch_remove(&connection->watch);
    peer_connection_clean(connection);
    remote_peers_note(
        connection->remote, connection->talk.peer, "%s: %s",
        connection->talk.stage == PEER_OPEN ? "its connection was lost" : "it cannot be reached", why);
    for (struct peer_call *call = connection->openers, *next; call != NULL; call = next) {
        next = call->next;
        complete(call, BANYAN_EFENCED);
    }
    for (unsigned i = 0; i < REMOTE_PEER_BUCKETS; i++)
        for (struct peer_call *call = connection->calls[i], *next; call != NULL; call = next) {
            next = call->next;
            bool late = atomic_load_relaxed(&call->expired) != 0; /* relaxed: which of two words is said */
            complete(call, call->begin >= left ? BANYAN_EFENCED : late ? BANYAN_ETIMEOUT : BANYAN_ENET);
        }
    peer_connection_free(connection);
}

/* ---- what comes ---- */

static void take_answer(struct peer_connection *connection, const struct peer_message *message)
{
    struct peer_call **bucket = bucket_of(connection, message->id), *call = *bucket;
    while (call != NULL && call->id != message->id)
        call = call->next;
    if (call == NULL) /* its caller has given up */
        return;
    unchain(bucket, call);
    int status = message->kind == PEER_UNSERVED ? BANYAN_ENET : message->status;
    if (message->length > call->capacity) {
        status = BANYAN_EINVAL;
    } else if (message->length > 0) {
        memcpy(call->reply, message->bytes, message->length);
        call->length = message->length;
    }
    complete(call, status);
}

static void take_opened(struct peer_connection *connection)
{
    struct peer_call *call = connection->openers;
    connection->openers = NULL;
    for (struct peer_call *next; call != NULL; call = next) {
        next = call->next;
        call->opened = true;
        if (call->task != NULL)
            task_unpark(call->task);
    }
}

/* NULL, or why the connection is at its end. */
static const char *take_messages(struct peer_connection *connection)
{
    struct peer_stream *talk = &connection->talk;
    struct peer_message message;
    for (;;) {
        switch (peer_stream_next(talk, &message)) {
        case PEER_MORE:
            return NULL;
        case PEER_OPENED:
            take_opened(connection);
            break;
        case PEER_MESSAGE:
            if (message.id > connection->sent_id)
                return "it answers what was not asked";
            take_answer(connection, &message);
            break;
        default:
            return talk->why;
        }
    }
}

/* Sends and receives what it can. May drop the connection. */
static void move(struct peer_connection *connection)
{
    bool more = true;
    const char *why = NULL;
    while (more && why == NULL) {
        int came = peer_connection_read(connection, &more);
        why = came < 0 ? connection->talk.why : came > 0 ? take_messages(connection) : NULL;
    }
    if (why == NULL && !peer_connection_flush(connection))
        why = connection->talk.why;
    if (why == NULL && !peer_connection_watch(connection, remote_peer_calling_ready))
        why = "no memory to watch it";
    if (why != NULL)
        remote_peer_drop(connection, why);
}

void remote_peer_calling_ready(struct worker_watch *watch, uint32_t events)
{
    (void)events;
    move((struct peer_connection *)watch);
}

/* ---- waiting ---- */

static void list_call(struct remote_endpoint *endpoint, struct peer_call *call)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    spinlock_lock(&peers->lock);
    call->older = peers->newest;
    if (peers->newest != NULL)
        peers->newest->newer = call;
    else
        peers->oldest = call;
    peers->newest = call;
    call->listed = true;
    spinlock_unlock(&peers->lock);
}

/* Under the lock. */
static void unlist(struct remote_endpoint_peers *peers, struct peer_call *call)
{
    if (!call->listed)
        return;
    *(call->older != NULL ? &call->older->newer : &peers->oldest) = call->newer;
    *(call->newer != NULL ? &call->newer->older : &peers->newest) = call->older;
    call->listed = false;
}

static void unlist_call(struct remote_endpoint *endpoint, struct peer_call *call)
{
    spinlock_lock(&endpoint->peers.lock);
    unlist(&endpoint->peers, call);
    spinlock_unlock(&endpoint->peers.lock);
}

/* Under the lock: it has no time left. */
static void expire(struct remote_endpoint_peers *peers, struct peer_call *call)
{
    unlist(peers, call);
    atomic_store_release(&call->expired, 1u); /* release: pairs with wait_for */
    task_unpark(call->task);                  /* within the lock: the caller takes it before it goes away */
}

void remote_endpoint_peers_forget(struct remote_endpoint *endpoint, struct fabric_process peer)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    spinlock_lock(&peers->lock);
    for (struct peer_call *call = peers->oldest, *newer; call != NULL; call = newer) {
        newer = call->newer;
        if (fabric_process_equal(call->peer, peer))
            expire(peers, call);
    }
    spinlock_unlock(&peers->lock);
}

/* All have the same time-out, so the oldest is the first to be late. */
void remote_endpoint_peers_expire(struct remote_endpoint *endpoint, uint64_t now)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    spinlock_lock(&peers->lock);
    while (peers->oldest != NULL && peers->oldest->deadline <= now)
        expire(peers, peers->oldest);
    spinlock_unlock(&peers->lock);
}

/* A plain thread's: one step of the one connection that it waits for. */
static void pump(struct peer_connection *connection, const struct peer_call *call)
{
    uint64_t now = task_now();
    if (!peer_connection_flush(connection)) {
        remote_peer_drop(connection, connection->talk.why);
        return;
    }
    uint32_t wants = peer_connection_wants(connection);
    struct pollfd polled = {.fd = net_stream_fd(connection->stream),
                            .events =
                                (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
    uint64_t left = call->deadline > now ? (call->deadline - now) / REMOTE_MS + 1 : 0;
    if (net_stream_pending(connection->stream) || poll(&polled, 1, left < POLL_MS ? (int)left : POLL_MS) > 0)
        move(connection);
}

/* Until the connection is open (`opening`), or the call is done or has no time left. */
static void wait_for(struct peer_call *call, bool opening)
{
    while (!call->done && !(opening && call->opened)) {
        if (call->task == NULL && task_now() >= call->deadline)
            call->expired = 1;
        if (atomic_load_acquire(&call->expired)) /* acquire: pairs with the release of the expiry */
            return;
        if (call->task != NULL)
            task_park();
        else
            pump(call->connection, call);
    }
}

/* ---- connections ---- */

static struct peer_connection *find(struct remote_endpoint *endpoint, struct fabric_process peer)
{
    struct peer_connection *connection = endpoint->peers.calling;
    while (connection != NULL && !fabric_process_equal(connection->talk.peer, peer))
        connection = connection->next;
    return connection;
}

/* NULL: there is no way to that process. Waits for the home node. */
static struct peer_connection *dial(struct remote_endpoint *endpoint, struct fabric_process peer)
{
    struct remote_fabric *remote = (struct remote_fabric *)endpoint->endpoint.fabric;
    struct net_address address;
    struct error error = {0};
    char text[NET_TEXT_MAX];
    int fd;
    int status = remote_peer_address(&endpoint->endpoint, peer, &address);
    if (status == BANYAN_ENOTFOUND)
        remote_peers_note(remote, peer, "the home node does not know where it answers");
    else if (status)
        remote_peers_note(remote, peer, "memory node 0 does not say where it answers: %s",
                          error_name(status));
    if (status)
        return NULL;
    struct peer_connection *connection = find(endpoint, peer); /* another fiber may have been faster */
    if (connection != NULL)
        return connection;
    if (net_connect_begin(&address, &fd, &error)) {
        remote_peers_note(remote, peer, "%s", error.text);
        return NULL;
    }
    connection = peer_connection_create(remote, fd, address.kind == NET_TCP ? remote->identity.tls : NULL,
                                        false, peer);
    if (connection == NULL)
        return NULL;
    remote_peers_note(remote, peer, "it answers at %.120s", net_address_format(&address, text));
    connection->endpoint = endpoint;
    connection->next = endpoint->peers.calling;
    endpoint->peers.calling = connection;
    move(connection); /* with TLS it is our turn; and it is watched */
    return find(endpoint, peer);
}

/* An open connection to the process, or NULL, with the call's status. */
static struct peer_connection *reach(struct remote_endpoint *endpoint, struct fabric_process peer,
                                     struct peer_call *call)
{
    for (;;) {
        struct peer_connection *connection = find(endpoint, peer);
        if (connection == NULL)
            connection = dial(endpoint, peer);
        call->status = BANYAN_EFENCED;
        if (connection == NULL || connection->talk.stage == PEER_OPEN)
            return connection;
        call->opened = false;
        call->connection = connection;
        call->next = connection->openers;
        connection->openers = call;
        wait_for(call, true);
        bool late = atomic_load_acquire(&call->expired) != 0; /* acquire: as in wait_for */
        if (call->opened && !late)
            continue; /* it may have been lost since */
        if (!call->opened && !call->done) {
            unchain(&connection->openers, call);
            remote_peer_drop(connection, "it does not answer in time");
        }
        return NULL;
    }
}

/* ---- calls ---- */

static int post(struct peer_connection *connection, struct peer_call *call, const void *request,
                size_t length)
{
    struct peer_stream *talk = &connection->talk;
    call->begin = talk->out_put;
    call->id = connection->sent_id + 1;
    if (!peer_stream_send(talk, PEER_REQUEST, call->id, 0, request, length))
        return BANYAN_ENOMEM;
    connection->sent_id++;
    call->end = talk->out_put;
    call->heard = connection->heard;
    call->connection = connection;
    struct peer_call **bucket = bucket_of(connection, call->id);
    call->next = *bucket;
    *bucket = call;
    peer_connection_dirty(connection);
    return BANYAN_OK;
}

/* It has no time left. */
static int give_up(struct peer_call *call)
{
    struct peer_connection *connection = call->connection;
    uint64_t left = written(connection);
    int status = call->begin >= left ? BANYAN_EFENCED : BANYAN_ETIMEOUT;
    unchain(bucket_of(connection, call->id), call);
    if (call->end > left)
        remote_peer_drop(connection, "it takes nothing");
    else if (connection->heard == call->heard)
        remote_peer_drop(connection, "it does not answer in time");
    return status;
}

int remote_peer_call(struct fabric_endpoint *base, struct fabric_process peer, const void *request,
                     size_t length, void *reply, size_t capacity, size_t *reply_length)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    const struct remote_fabric *remote = (const struct remote_fabric *)base->fabric;
    remote_endpoint_bind(endpoint);
    struct peer_call call = {.task = endpoint->worker != NULL ? task_self() : NULL,
                             .peer = peer,
                             .deadline = task_now() + remote->identity.timeout_ms * REMOTE_MS,
                             .reply = reply,
                             .capacity = capacity};
    if (call.task != NULL)
        list_call(endpoint, &call);
    struct peer_connection *connection = reach(endpoint, peer, &call);
    if (connection != NULL) {
        call.status = post(connection, &call, request, length);
        if (!call.status)
            wait_for(&call, false);
        if (!call.status && !call.done)
            call.status = give_up(&call);
    }
    if (call.task != NULL)
        unlist_call(endpoint, &call);
    *reply_length = call.length;
    return call.status;
}
