/*
 * remote_peer_serve.c - the side that is called: an endpoint's connections of callers, the requests that wait
 * for a task to receive them, and the replies (remote_peers.h).
 *
 * On the endpoint's owner, but for remote_endpoint_peers_wake. Whatever a peer can make grow has a limit,
 * beyond which its connection is not read until there is room again: requests and bytes that wait at an
 * endpoint, requests of a connection that were not replied to, replies that it does not take.
 *
 * A request costs one allocation. On a worker its replies leave in the turn hook, together.
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/remote_fabric.h"

#define QUEUED_MAX  1024u
#define BYTES_MAX   (UINT32_C(8) << 20)
#define TAKEN_MAX   128u
#define UNSENT_MAX  (UINT32_C(1) << 20)
#define POLL_MS     1000
#define POLLS_FIRST 8u

/* ---- the queue of an endpoint ---- */

static bool stopped(const struct remote_fabric *remote)
{
    return atomic_load_acquire(&remote->peers.stopped) != 0; /* acquire: pairs with peer_stop's release */
}

static size_t request_bytes(const struct peer_request *request)
{
    return sizeof *request + request->request.length;
}

static void enqueue(struct remote_endpoint_peers *peers, struct peer_request *request)
{
    if (peers->last != NULL)
        peers->last->next = request;
    else
        peers->first = request;
    peers->last = request;
    peers->queued++;
    peers->queued_bytes += request_bytes(request);
    request->connection->queued++;
    request->connection->taken++;
}

/* Takes the request out that `link` leads to; `before` is the one before it. */
static struct peer_request *dequeue(struct remote_endpoint_peers *peers, struct peer_request **link,
                                    struct peer_request *before)
{
    struct peer_request *request = *link;
    *link = request->next;
    if (peers->last == request)
        peers->last = before;
    peers->queued--;
    peers->queued_bytes -= request_bytes(request);
    request->connection->queued--;
    return request;
}

/* Those of a connection that is at its end. */
static void forget_requests(struct remote_endpoint_peers *peers, struct peer_connection *connection)
{
    struct peer_request *before = NULL;
    for (struct peer_request **link = &peers->first; *link != NULL && connection->queued > 0;) {
        if ((*link)->connection == connection) {
            free(dequeue(peers, link, before));
            connection->taken--;
        } else {
            before = *link;
            link = &before->next;
        }
    }
}

void remote_endpoint_peers_wake(struct remote_endpoint *endpoint, bool all)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    spinlock_lock(&peers->lock);
    do {
        struct peer_receiver *receiver = peers->receivers;
        if (receiver == NULL)
            break;
        peers->receivers = receiver->next;
        receiver->listed = false;
        task_unpark(receiver->task); /* within the lock: it takes it before it goes away */
    } while (all);
    if (peers->event >= 0)
        remote_event_set(peers->event);
    spinlock_unlock(&peers->lock);
}

/* ---- connections ---- */

void remote_peer_hang_up(struct peer_connection *connection, const char *why)
{
    struct remote_endpoint_peers *peers = &connection->endpoint->peers;
    struct peer_connection **link = &peers->serving;
    while (*link != connection)
        link = &(*link)->next;
    *link = connection->next;
    worker_watch_remove(&connection->watch);
    peer_connection_clean(connection);
    forget_requests(peers, connection);
    atomic_add_relaxed(&peers->connections, UINT32_MAX); /* a hint */
    log_debug("the connection of compute node %u (%s) has ended: %s",
              (unsigned)connection->talk.peer.compute_id, connection->from, why);
    if (connection->taken == 0) {
        peer_connection_free(connection);
        return;
    }
    atomic_store_relaxed(&connection->dead, 1u); /* a flag that orders nothing; freed with the last reply */
}

static bool may_take(const struct peer_connection *connection)
{
    const struct remote_endpoint_peers *peers = &connection->endpoint->peers;
    return peers->queued < QUEUED_MAX && peers->queued_bytes < BYTES_MAX && connection->taken < TAKEN_MAX &&
           peer_stream_unsent(&connection->talk) < UNSENT_MAX;
}

static bool take_request(struct peer_connection *connection, const struct peer_message *message)
{
    if (stopped(connection->remote)) {
        peer_connection_dirty(connection);
        return peer_stream_send(&connection->talk, PEER_UNSERVED, message->id, 0, NULL, 0);
    }
    struct peer_request *request = malloc(sizeof *request + message->length);
    if (request == NULL)
        return false;
    *request = (struct peer_request){.connection = connection, .id = message->id};
    memcpy(request->bytes, message->bytes, message->length);
    request->request = (struct fabric_peer_request){.from = connection->talk.peer,
                                                    .bytes = request->bytes,
                                                    .length = message->length,
                                                    .gone = &connection->dead};
    enqueue(&connection->endpoint->peers, request);
    remote_endpoint_peers_wake(connection->endpoint, false);
    return true;
}

/* NULL, or why the connection is at its end. */
static const char *take_requests(struct peer_connection *connection)
{
    struct peer_stream *talk = &connection->talk;
    struct peer_message message;
    while (may_take(connection)) {
        enum peer_event event = peer_stream_next(talk, &message);
        if (event == PEER_MORE)
            return NULL;
        if (event != PEER_MESSAGE) {
            log_warning("the connection of compute node %u (%s) was closed: %s",
                        (unsigned)talk->peer.compute_id, connection->from, talk->why);
            return talk->why;
        }
        if (!take_request(connection, &message))
            return "no memory for what it sends";
    }
    connection->paused = true;
    return NULL;
}

/* Takes what was left in a pause, and what the socket has. False: the connection is at its end. */
static bool receive(struct peer_connection *connection)
{
    bool more = true;
    connection->paused = false;
    const char *why = take_requests(connection);
    while (more && why == NULL && !connection->paused) {
        int came = peer_connection_read(connection, &more);
        why = came < 0 ? connection->talk.why : came > 0 ? take_requests(connection) : NULL;
    }
    if (why == NULL && !peer_connection_watch(connection, remote_peer_serving_ready))
        why = "no memory to watch it";
    if (why != NULL)
        remote_peer_hang_up(connection, why);
    return why == NULL;
}

void remote_peer_serving_push(struct peer_connection *connection)
{
    if (!peer_connection_flush(connection))
        remote_peer_hang_up(connection, connection->talk.why);
    else if (connection->paused && may_take(connection))
        receive(connection);
    else if (!peer_connection_watch(connection, remote_peer_serving_ready))
        remote_peer_hang_up(connection, "no memory to watch it");
}

void remote_peer_serving_ready(struct worker_watch *watch, uint32_t events)
{
    struct peer_connection *connection = (struct peer_connection *)watch;
    /* In a pause this is told again and again, and nothing else would take notice of it. */
    if (connection->paused && (events & (EPOLLHUP | EPOLLERR)) != 0)
        remote_peer_hang_up(connection, "it closed the connection");
    else if (connection->paused || receive(connection))
        remote_peer_serving_push(connection);
}

/* There is room again: what stands still for want of it goes on. */
static void resume(struct remote_endpoint_peers *peers)
{
    for (struct peer_connection *connection = peers->serving, *next; connection != NULL; connection = next) {
        next = connection->next; /* it may end */
        if (connection->paused && may_take(connection))
            receive(connection);
    }
}

/* ---- receiving ---- */

static void take_arrived(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    spinlock_lock(&peers->lock);
    struct peer_connection *connection = peers->arrived;
    peers->arrived = NULL;
    spinlock_unlock(&peers->lock);
    for (struct peer_connection *next; connection != NULL; connection = next) {
        next = connection->next;
        connection->endpoint = endpoint;
        connection->next = peers->serving;
        peers->serving = connection;
        if (receive(connection))
            remote_peer_serving_push(connection);
    }
}

/* This endpoint is one of those that callers are handed to, and gets those that wait for one. */
static void begin_serving(struct remote_fabric *remote, struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    spinlock_lock(&remote->lock);
    peers->serves = true;
    spinlock_lock(&peers->lock);
    while (remote->peers.ready != NULL) {
        struct peer_connection *connection = remote->peers.ready;
        remote->peers.ready = connection->next;
        remote->peers.ready_count--;
        connection->next = peers->arrived;
        peers->arrived = connection;
        atomic_add_relaxed(&peers->connections, 1u); /* a hint */
    }
    spinlock_unlock(&peers->lock);
    spinlock_unlock(&remote->lock);
}

/* Those that no task has received, and none will. */
static void refuse_requests(struct remote_endpoint_peers *peers)
{
    while (peers->first != NULL) {
        struct peer_request *request = dequeue(peers, &peers->first, NULL);
        struct peer_connection *connection = request->connection;
        connection->taken--;
        if (!peer_stream_send(&connection->talk, PEER_UNSERVED, request->id, 0, NULL, 0))
            remote_peer_hang_up(connection, "no memory for a reply");
        else
            remote_peer_serving_push(connection);
        free(request);
    }
}

static int plain_prepare(struct remote_endpoint_peers *peers)
{
    size_t count = 1;
    int event = peers->event >= 0 ? peers->event : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (const struct peer_connection *at = peers->serving; at != NULL; at = at->next)
        count++;
    if (peers->polls_capacity < count) {
        size_t capacity = count < POLLS_FIRST ? POLLS_FIRST : count * 2;
        struct pollfd *grown = realloc(peers->polls, capacity * sizeof *grown);
        if (grown != NULL) {
            peers->polls = grown;
            peers->polls_capacity = capacity;
        }
    }
    spinlock_lock(&peers->lock);
    peers->event = event;
    spinlock_unlock(&peers->lock);
    return event >= 0 && peers->polls_capacity >= count ? BANYAN_OK : BANYAN_ENOMEM;
}

/* A plain thread's step: sends, waits once, and takes what comes. */
static int plain_step(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    nfds_t count = 1;
    int status = plain_prepare(peers);
    if (status)
        return status;
    take_arrived(endpoint); /* those that came before there was an event to tell of them */
    for (struct peer_connection *at = peers->serving, *next; at != NULL; at = next) {
        next = at->next;
        remote_peer_serving_push(at);
    }
    if (peers->first != NULL || stopped((struct remote_fabric *)endpoint->endpoint.fabric))
        return BANYAN_OK;
    peers->polls[0] = (struct pollfd){.fd = peers->event, .events = POLLIN};
    for (struct peer_connection *at = peers->serving; at != NULL && count < peers->polls_capacity;
         at = at->next) {
        uint32_t wants = peer_connection_wants(at);
        peers->polls[count++] = (struct pollfd){
            .fd = net_stream_fd(at->stream),
            .events = (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
    }
    if (poll(peers->polls, count, POLL_MS) <= 0)
        return BANYAN_OK;
    uint64_t times;
    ssize_t length = read(peers->event, &times, sizeof times);
    (void)length; /* resets the event; how often it was set does not matter */
    nfds_t i = 1;
    for (struct peer_connection *at = peers->serving, *next; at != NULL && i < count; at = next, i++) {
        next = at->next;
        if (peers->polls[i].revents != 0)
            remote_peer_serving_ready(&at->watch, (uint32_t)peers->polls[i].revents); /* epoll's are poll's */
    }
    return BANYAN_OK;
}

static void park_receiver(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    struct peer_receiver receiver = {.task = task_self()};
    spinlock_lock(&peers->lock);
    bool wait = peers->arrived == NULL && !stopped((struct remote_fabric *)endpoint->endpoint.fabric);
    if (wait) {
        receiver.next = peers->receivers;
        receiver.listed = true;
        peers->receivers = &receiver; // cppcheck-suppress autoVariables ; it leaves the list before we go on
    }
    spinlock_unlock(&peers->lock);
    if (wait)
        task_park();
    spinlock_lock(&peers->lock);
    for (struct peer_receiver **link = &peers->receivers; receiver.listed; link = &(*link)->next)
        if (*link == &receiver) {
            *link = receiver.next;
            receiver.listed = false;
        }
    spinlock_unlock(&peers->lock);
}

int remote_peer_receive(struct fabric_endpoint *base, struct fabric_peer_request **request)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    struct remote_endpoint_peers *peers = &endpoint->peers;
    struct remote_fabric *remote = (struct remote_fabric *)base->fabric;
    if (remote->peers.text[0] == 0)
        return BANYAN_ENOTSUP;
    remote_endpoint_bind(endpoint);
    if (!peers->serves) /* set by this thread alone */
        begin_serving(remote, endpoint);
    for (;;) {
        take_arrived(endpoint);
        if (stopped(remote)) {
            refuse_requests(peers);
            return BANYAN_EABORT;
        }
        if (peers->first != NULL) {
            *request = &dequeue(peers, &peers->first, NULL)->request;
            resume(peers);
            return BANYAN_OK;
        }
        int status = BANYAN_OK;
        if (endpoint->worker == NULL)
            status = plain_step(endpoint);
        else
            park_receiver(endpoint);
        if (status)
            return status;
    }
}

void remote_peer_reply(struct fabric_endpoint *base, struct fabric_peer_request *answered, int status,
                       const void *reply, size_t length)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    struct peer_request *request = (struct peer_request *)answered;
    struct peer_connection *connection = request->connection;
    assert(connection->taken > connection->queued && connection->endpoint == endpoint);
    connection->taken--;
    if (connection->dead) {
        if (connection->taken == 0)
            peer_connection_free(connection);
    } else if (!peer_stream_send(&connection->talk, PEER_REPLY, request->id, status < 0 ? status : 0, reply,
                                 length)) {
        remote_peer_hang_up(connection, "no memory for a reply");
    } else if (endpoint->worker != NULL) {
        peer_connection_dirty(connection);
    } else {
        remote_peer_serving_push(connection);
    }
    free(request);
}
