/* listeners.c - see listeners.h. */
#include "server/listeners.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "server/connection.h"
#include "server/state.h"

#define ACCEPT_ROUND 64u /* connections taken before other events get their turn */

static const char denied_text[] =
    "-DENIED This server runs in protected mode: it has no password, and so takes connections from its own "
    "machine alone. Connect through the loopback interface or a Unix socket, or set a password (setting "
    "requirepass), or, where the network is trusted, turn protected mode off (setting protected-mode no) and "
    "start the server again.\r\n";
static const char full_text[] = "-ERR max number of clients reached\r\n";

static bool from_this_machine(int fd)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    if (getpeername(fd, (struct sockaddr *)&storage, &length))
        return false;
    if (storage.ss_family == AF_INET) {
        const struct sockaddr_in *address = (const struct sockaddr_in *)&storage;
        return ntohl(address->sin_addr.s_addr) >> 24 == 127;
    }
    if (storage.ss_family == AF_INET6) {
        const struct in6_addr *address = &((const struct sockaddr_in6 *)&storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(address) ||
               (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
    }
    return storage.ss_family == AF_UNIX;
}

/* Tells a refused client why, if that fits into its socket's buffer, and closes. */
static void accepted_refuse(struct server *server, const struct server_listener *listener, int fd,
                            const char *text)
{
    if (!listener->tls) {
        ssize_t sent = send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
    }
    counter_add(&server->threads[0].counters.clients_rejected, 1);
    close(fd);
}

struct handover {
    struct server_thread *thread;
    int fd;
    bool tls, unix_socket;
    char peer[];
};

/* On the thread that gets the connection. */
static void handover_receive(void *argument)
{
    struct handover *handover = argument;
    struct server_thread *thread = handover->thread;
    struct server *server = thread->server;
    char *peer = strdup(handover->peer);
    struct net_stream *stream = NULL;
    if (peer && !thread->stopping)
        stream = net_stream_create(handover->fd, handover->tls ? server->tls : NULL, true, NULL);
    else
        close(handover->fd);
    if (!stream)
        free(peer);
    if (!stream || !connection_open(thread, stream, peer, handover->unix_socket))
        atomic_add_relaxed(&server->clients, (uint64_t)-1);
    free(handover);
}

static void accepted_hand_over(struct server *server, const struct server_listener *listener, int fd,
                               const char *peer)
{
    struct server_thread *thread = &server->threads[server->listeners.next_thread++ % server->thread_count];
    struct handover *handover = malloc(sizeof *handover + strlen(peer) + 1);
    atomic_add_relaxed(&server->clients, 1);
    if (handover) {
        handover->thread = thread;
        handover->fd = fd;
        handover->tls = listener->tls;
        handover->unix_socket = listener->address.kind == NET_UNIX;
        strcpy(handover->peer, peer);
        if (thread->number == 0) {
            handover_receive(handover);
            return;
        }
        if (!worker_post(thread->worker, handover_receive, handover))
            return;
        free(handover);
    }
    atomic_add_relaxed(&server->clients, (uint64_t)-1);
    accepted_refuse(server, listener, fd, full_text);
}

/* Stops accepting for a while: without descriptors, say, the next try would fail too. */
static void listeners_rest(struct server *server)
{
    server->listeners.retry_ns = task_now() + SERVER_TICK_NS;
    for (unsigned i = 0; i < server->listeners.count; i++)
        if (server->listeners.list[i].watched)
            worker_watch_change(&server->listeners.list[i].watch, 0);
}

void listeners_tick(struct server *server, uint64_t now)
{
    if (!server->listeners.retry_ns || now < server->listeners.retry_ns)
        return;
    server->listeners.retry_ns = 0;
    for (unsigned i = 0; i < server->listeners.count; i++)
        if (server->listeners.list[i].watched)
            worker_watch_change(&server->listeners.list[i].watch, EPOLLIN);
}

/* Whether protected mode refuses the peer: it is of another machine, and neither password nor certificate
 * identifies it. */
static bool stranger(const struct server_listener *listener, int fd)
{
    const struct server *server = listener->server;
    return server->options.protected_mode && !password_wanted(&server->password) &&
           !(listener->tls && server->options.tls_clients) && !from_this_machine(fd);
}

static void listener_ready(struct worker_watch *watch, uint32_t events)
{
    struct server_listener *listener = (struct server_listener *)watch;
    struct server *server = listener->server;
    (void)events;
    for (unsigned i = 0; i < ACCEPT_ROUND; i++) {
        char peer[NET_TEXT_MAX];
        struct error error = {0};
        int fd = -1;
        if (net_accept(listener->fd, &fd, peer, &error)) {
            log_warning("cannot accept a connection: %s", error.text);
            listeners_rest(server);
            return;
        }
        if (fd < 0)
            return;
        if (atomic_load_relaxed(&server->clients) >= atomic_load_relaxed(&server->clients_max))
            accepted_refuse(server, listener, fd, full_text);
        else if (stranger(listener, fd))
            accepted_refuse(server, listener, fd, denied_text);
        else
            accepted_hand_over(server, listener, fd, peer);
    }
}

void listeners_close(struct server *server)
{
    for (unsigned i = 0; i < server->listeners.count; i++) {
        struct server_listener *listener = &server->listeners.list[i];
        if (listener->watched)
            worker_watch_remove(&listener->watch);
        listener->watched = false;
        if (listener->fd >= 0) {
            close(listener->fd);
            if (listener->address.kind == NET_UNIX)
                unlink(listener->address.path);
        }
        listener->fd = -1;
    }
}

int listeners_watch(struct server *server, struct error *error)
{
    for (unsigned i = 0; i < server->listeners.count; i++) {
        struct server_listener *listener = &server->listeners.list[i];
        assert(listener->fd >= 0 && !listener->watched);
        if (worker_watch_add(server->threads[0].worker, &listener->watch, listener->fd, EPOLLIN,
                             listener_ready))
            return error_set(error, BANYAN_ENOMEM, "cannot wait for connections: no memory");
        listener->watched = true;
    }
    return 0;
}

int listeners_open(struct server *server, const struct server_options *options, struct error *error)
{
    unsigned count = options->listen_count + options->listen_tls_count;
    server->listeners.list = calloc(count + 1, sizeof *server->listeners.list);
    if (!server->listeners.list)
        return error_set(error, BANYAN_ENOMEM, "no memory for listeners");
    for (unsigned i = 0; i < count; i++) {
        struct server_listener *listener = &server->listeners.list[i];
        listener->server = server;
        listener->fd = -1;
        listener->tls = i >= options->listen_count;
        listener->address =
            listener->tls ? options->listen_tls[i - options->listen_count] : options->listen[i];
        if (listener->tls && !options->tls)
            return error_set(error, BANYAN_EINVAL, "listening with TLS needs a certificate");
        int status = net_listen(&listener->address, options->unix_mode, &listener->fd, error);
        if (status)
            return status;
        server->listeners.count++;
    }
    return 0;
}
