/*
 * remote_peers.c - what the remote backend implements of peers.h, an endpoint's end of calls between compute
 * nodes, and what is told of other processes (remote_peers.h).
 */
#include "fabric/remote_peers.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fabric/remote_fabric.h"
#include "fabric/remote_processes.h"

#define LAST_NS (100 * REMOTE_MS)

/* ---- an endpoint ---- */

void remote_endpoint_peers_open(struct remote_endpoint *endpoint)
{
    endpoint->peers.event = -1;
}

/* Replies that have gathered since the last turn. Waits as long as a goodbye may take. */
static void send_last(struct peer_connection *connection, uint64_t deadline)
{
    uint64_t now;
    while (peer_connection_flush(connection) && peer_stream_unsent(&connection->talk) > 0 &&
           (now = task_now()) < deadline)
        net_wait(net_stream_fd(connection->stream), EPOLLOUT, deadline - now);
}

void remote_endpoint_peers_close(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    uint64_t deadline = task_now() + LAST_NS;
    assert(peers->oldest == NULL && peers->receivers == NULL); /* no task uses the endpoint */
    while (peers->calling != NULL)
        remote_peer_drop(peers->calling, "the endpoint was closed");
    while (peers->serving != NULL) {
        assert(peers->serving->taken == peers->serving->queued); /* each request was replied to */
        send_last(peers->serving, deadline);
        remote_peer_hang_up(peers->serving, "the endpoint was closed");
    }
    while (peers->arrived != NULL) {
        struct peer_connection *connection = peers->arrived;
        peers->arrived = connection->next;
        peer_connection_free(connection);
    }
    if (peers->event >= 0)
        close(peers->event);
    free(peers->polls);
}

void remote_endpoint_peers_bind(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    for (struct peer_connection *at = peers->calling, *next; at != NULL; at = next) {
        next = at->next;
        remote_peer_calling_ready(&at->watch, 0);
    }
    for (struct peer_connection *at = peers->serving, *next; at != NULL; at = next) {
        next = at->next;
        remote_peer_serving_push(at);
    }
}

void remote_endpoint_peers_unbind(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    for (struct peer_connection *at = peers->calling; at != NULL; at = at->next) {
        worker_watch_remove(&at->watch);
        at->dirty = false;
    }
    for (struct peer_connection *at = peers->serving; at != NULL; at = at->next) {
        worker_watch_remove(&at->watch);
        at->dirty = false;
    }
    peers->dirty = NULL;
}

void remote_endpoint_peers_turn(struct remote_endpoint *endpoint)
{
    struct remote_endpoint_peers *peers = &endpoint->peers;
    while (peers->dirty != NULL) {
        struct peer_connection *connection = peers->dirty;
        peers->dirty = connection->next_dirty;
        connection->dirty = false;
        if (connection->talk.called)
            remote_peer_serving_push(connection);
        else if (!peer_connection_flush(connection))
            remote_peer_drop(connection, connection->talk.why);
        else if (!peer_connection_watch(connection, remote_peer_calling_ready))
            remote_peer_drop(connection, "no memory to watch it");
    }
}

/* ---- what is told of others ---- */

void remote_peers_note(struct remote_fabric *remote, struct fabric_process process, const char *format, ...)
{
    struct remote_peers *peers = &remote->peers;
    char text[sizeof peers->known[0].text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    spinlock_lock(&peers->lock);
    unsigned at = 0;
    while (at < REMOTE_PEERS_KNOWN && !fabric_process_equal(peers->known[at].process, process))
        at++;
    if (at == REMOTE_PEERS_KNOWN)
        at = peers->known_next++ % REMOTE_PEERS_KNOWN; /* in the place of the oldest */
    peers->known[at].process = process;
    memcpy(peers->known[at].text, text, sizeof text);
    spinlock_unlock(&peers->lock);
}

static void describe(const struct fabric *fabric, struct fabric_process process, char *text, size_t size)
{
    struct remote_peers *peers = &((struct remote_fabric *)fabric)->peers;
    char found[sizeof peers->known[0].text] = "";
    if (fabric_process_equal(process, fabric_self(fabric)) && peers->text[0] != 0)
        snprintf(found, sizeof found, "it answers at %.120s", peers->text);
    spinlock_lock(&peers->lock);
    for (unsigned i = 0; i < REMOTE_PEERS_KNOWN; i++)
        if (fabric_process_equal(peers->known[i].process, process))
            memcpy(found, peers->known[i].text, sizeof found);
    spinlock_unlock(&peers->lock);
    snprintf(text, size, "%s", found);
}

/* ---- operations ---- */

static struct fabric_process self(const struct fabric *fabric)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)fabric;
    return (struct fabric_process){.compute_id = fabric->capabilities.compute_id,
                                   .instance = remote->identity.instance};
}

static void stop(struct fabric *fabric)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    atomic_store_release(&remote->peers.stopped, 1u); /* release: pairs with those that look */
    spinlock_lock(&remote->lock);
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL; endpoint = endpoint->next)
        remote_endpoint_peers_wake(endpoint, true);
    spinlock_unlock(&remote->lock);
    remote_peers_wake(&remote->peers);
}

static void forget(struct fabric *fabric, struct fabric_process peer)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    spinlock_lock(&remote->lock);
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL; endpoint = endpoint->next)
        remote_endpoint_peers_forget(endpoint, peer);
    spinlock_unlock(&remote->lock);
}

const struct fabric_peer_ops remote_peer_ops = {
    .self = self,
    .forget = forget,
    .lease_alive = remote_lease_alive,
    .lease_lapses = remote_lease_lapses,
    .lease_resume = remote_lease_resume,
    .fence = remote_fence,
    .lease_over = remote_lease_over,
    .processes = remote_processes,
    .notify = remote_notify,
    .notice = remote_notice,
    .notice_listen = remote_notice_listen,
    .call = remote_peer_call,
    .receive = remote_peer_receive,
    .reply = remote_peer_reply,
    .stop = stop,
    .describe = describe,
};
