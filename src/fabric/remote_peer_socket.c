/*
 * remote_peer_socket.c - a connection between compute nodes: its socket, its stream of messages, and the
 * worker that watches it (remote_peers.h). On the thread that owns the connection; nothing waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fabric/remote_fabric.h"

struct peer_connection *peer_connection_create(struct remote_fabric *remote, int fd, struct net_tls *tls,
                                               bool called, struct fabric_process peer)
{
    struct peer_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        close(fd);
        return NULL;
    }
    connection->remote = remote;
    connection->stream = net_stream_create(fd, tls, called, NULL);
    if (connection->stream == NULL) {
        free(connection);
        return NULL;
    }
    peer_stream_begin(&connection->talk, &remote->peers.self, called, peer);
    if (called)
        atomic_add_relaxed(&remote->peers.accepted, 1u); /* a count */
    return connection;
}

void peer_connection_free(struct peer_connection *connection)
{
    if (connection->talk.called)
        atomic_add_relaxed(&connection->remote->peers.accepted, UINT32_MAX); /* a count */
    net_stream_destroy(connection->stream);
    peer_stream_end(&connection->talk);
    free(connection);
}

static void broken(struct peer_connection *connection, enum net_status status)
{
    struct peer_stream *talk = &connection->talk;
    snprintf(talk->why, sizeof talk->why, "%s",
             status == NET_END ? "it closed the connection" : net_stream_error(connection->stream));
}

bool peer_connection_flush(struct peer_connection *connection)
{
    struct peer_stream *talk = &connection->talk;
    while (peer_stream_unsent(talk) > 0) {
        size_t written = 0;
        enum net_status status = net_stream_write(connection->stream, talk->out + talk->out_begin,
                                                  peer_stream_unsent(talk), &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK) {
            broken(connection, status);
            return false;
        }
        peer_stream_sent(talk, written);
    }
    return true;
}

int peer_connection_read(struct peer_connection *connection, bool *more)
{
    struct peer_stream *talk = &connection->talk;
    size_t capacity = 0, length = 0;
    uint8_t *room = peer_stream_room(talk, &capacity);
    *more = false;
    if (room == NULL) {
        snprintf(talk->why, sizeof talk->why, "no memory for what it sends");
        return -1;
    }
    enum net_status status = net_stream_read(connection->stream, room, capacity, &length);
    if (status == NET_AGAIN)
        return 0;
    if (status != NET_OK) {
        broken(connection, status);
        return -1;
    }
    peer_stream_received(talk, length);
    connection->heard++;
    *more = length == capacity || net_stream_pending(connection->stream);
    return 1;
}

void peer_connection_dirty(struct peer_connection *connection)
{
    struct remote_endpoint_peers *peers = &connection->endpoint->peers;
    if (connection->dirty || connection->endpoint->worker == NULL)
        return;
    connection->dirty = true;
    connection->next_dirty = peers->dirty;
    peers->dirty = connection;
}

void peer_connection_clean(struct peer_connection *connection)
{
    struct peer_connection **link = &connection->endpoint->peers.dirty;
    if (!connection->dirty)
        return;
    while (*link != connection)
        link = &(*link)->next_dirty;
    *link = connection->next_dirty;
    connection->dirty = false;
}

uint32_t peer_connection_wants(const struct peer_connection *connection)
{
    uint32_t events = net_stream_wants(connection->stream, peer_stream_unsent(&connection->talk) > 0);
    return connection->paused ? events & ~(uint32_t)EPOLLIN : events;
}

bool peer_connection_watch(struct peer_connection *connection, worker_ready_function *ready)
{
    struct remote_endpoint *endpoint = connection->endpoint;
    uint32_t events = peer_connection_wants(connection);
    if (endpoint->worker == NULL)
        return true;
    if (connection->watch.worker != NULL)
        return !worker_watch_change(&connection->watch, events);
    return !worker_watch_add(endpoint->worker, &connection->watch, net_stream_fd(connection->stream), events,
                             ready);
}
