/*
 * remote_peer_listen.c - where a compute node listens for its peers, and the thread that lets them in: it
 * accepts connections, takes each one's hello, and hands those that are who they say to the endpoint that
 * serves the fewest (remote_peers.h).
 *
 * Until its hello was accepted a connection is a stranger: one of 64, for 5 seconds. The thread waits in
 * poll(), and for nothing else.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/remote_fabric.h"

#define STRANGERS_MAX 64u
#define HELLO_NS      (5000 * REMOTE_MS)
#define PAUSE_NS      (100 * REMOTE_MS) /* without descriptors nothing is accepted for so long */
#define ACCEPTED_MAX  4096u             /* connections of callers */
#define READY_MAX     256u              /* of them, those that no endpoint serves */
#define COMPLAIN_NS   (1000 * REMOTE_MS)
#define NAMES_MAX     64u

struct doorman {
    struct remote_fabric *remote;
    struct stranger {
        struct peer_connection *connection;
        uint64_t deadline;
    } strangers[STRANGERS_MAX];
    unsigned count;
    uint64_t pause_until, complained_at;
};

/* ---- where ---- */

static int listen_path(struct net_address *address, const char *path, int *fd, struct error *error)
{
    int status = BANYAN_EBUSY;
    /* A process that was killed leaves its file; one with its number, or the next fabric of this one, finds
     * it. */
    for (unsigned i = 0; i < NAMES_MAX && status == BANYAN_EBUSY; i++) {
        char full[NET_PATH_MAX + 40];
        int length =
            snprintf(full, sizeof full, "%.*s.peer-%ld-%u", (int)NET_PATH_MAX, path, (long)getpid(), i);
        if (length > (int)NET_PATH_MAX)
            return error_set(error, BANYAN_EINVAL, "no room for the name of a Unix socket beside %.80s",
                             path);
        *address = (struct net_address){.kind = NET_UNIX};
        memcpy(address->path, full, (size_t)length + 1);
        error_clear(error);
        status = net_listen(address, 0600, fd, error);
    }
    return status;
}

static int listen_somewhere(const struct remote_node *home, const char *local, struct net_address *address,
                            int *fd, struct error *error)
{
    struct error ignored = {0};
    if (home->address.kind == NET_UNIX) {
        if (!listen_path(address, home->address.path, fd, &ignored))
            return BANYAN_OK;
        return listen_path(address, "/tmp/banyan", fd, error);
    }
    *address = (struct net_address){.kind = NET_TCP};
    memcpy(address->host, local, strlen(local) + 1);
    return net_listen(address, 0, fd, error);
}

/* Callers are told a literal address: the one that was bound, or, for every interface, ours towards the home
 * node. */
static void tell_address(struct remote_peers *peers, const char *local)
{
    struct net_address told = peers->address;
    if (told.kind == NET_TCP) {
        net_local_host(peers->listener, told.host);
        if (strcmp(told.host, "::") == 0 || strcmp(told.host, "0.0.0.0") == 0)
            memcpy(told.host, local, strlen(local) + 1);
    }
    net_address_format(&told, peers->text);
}

int remote_peers_listen(struct remote_fabric *remote, const struct fabric_remote_options *options,
                        const char *local, struct error *error)
{
    struct remote_peers *peers = &remote->peers;
    struct error inner = {0};
    int status;
    if (!options->peers)
        return BANYAN_OK;
    peers->tls = options->peer_tls;
    if (options->peer_listen != NULL) {
        peers->address = *options->peer_listen;
        peers->address.rdma = false;
        status = net_listen(&peers->address, 0600, &peers->listener, &inner);
    } else {
        status =
            listen_somewhere(&remote->nodes[REMOTE_HOME], local, &peers->address, &peers->listener, &inner);
    }
    if (status)
        return error_set(error, status, "for other compute nodes: %s", inner.text);
    if (peers->address.kind == NET_TCP && remote->identity.tls != NULL && peers->tls == NULL)
        return error_set(error, BANYAN_EINVAL,
                         "this compute node cannot answer others over TLS without a certificate of its own");
    tell_address(peers, local);
    if (strlen(peers->text) > WIRE_PEER_MAX)
        return error_set(error, BANYAN_EINVAL, "the address %.120s is too long for other compute nodes",
                         peers->text);
    memcpy(remote->identity.peer, peers->text, strlen(peers->text) + 1);
    return BANYAN_OK;
}

/* ---- strangers ---- */

/* A stranger must not fill the log. */
static void complain(struct doorman *doorman, const char *from, const char *why)
{
    uint64_t now = task_now();
    if (doorman->complained_at != 0 && now < doorman->complained_at + COMPLAIN_NS)
        return;
    doorman->complained_at = now;
    log_warning("a compute node at %s was turned away: %s", from, why);
}

static void remove_stranger(struct doorman *doorman, unsigned at)
{
    peer_connection_free(doorman->strangers[at].connection);
    doorman->strangers[at] = doorman->strangers[--doorman->count];
}

/* All of them have equally long. They are in no order: the last takes the place of one that goes. */
static unsigned oldest_stranger(const struct doorman *doorman)
{
    unsigned oldest = 0;
    for (unsigned i = 1; i < doorman->count; i++)
        if (doorman->strangers[i].deadline < doorman->strangers[oldest].deadline)
            oldest = i;
    return oldest;
}

/* The endpoint that serves the fewest callers; the fabric's lock is held. */
static struct remote_endpoint *choose(const struct remote_fabric *remote)
{
    struct remote_endpoint *best = NULL;
    uint32_t fewest = UINT32_MAX;
    for (struct remote_endpoint *at = remote->endpoints; at != NULL; at = at->next) {
        uint32_t count = atomic_load_relaxed(&at->peers.connections); /* a hint */
        if (at->peers.serves && count < fewest) {
            best = at;
            fewest = count;
        }
    }
    return best;
}

/* False: no endpoint serves, and too many wait for one. */
static bool hand_over(struct remote_fabric *remote, struct peer_connection *connection)
{
    bool taken = true;
    spinlock_lock(&remote->lock);
    struct remote_endpoint *endpoint = choose(remote);
    if (endpoint != NULL) {
        atomic_add_relaxed(&endpoint->peers.connections, 1u); /* a hint */
        spinlock_lock(&endpoint->peers.lock);
        connection->next = endpoint->peers.arrived;
        endpoint->peers.arrived = connection;
        spinlock_unlock(&endpoint->peers.lock);
        remote_endpoint_peers_wake(endpoint, false);
    } else if (remote->peers.ready_count < READY_MAX) {
        connection->next = remote->peers.ready;
        remote->peers.ready = connection;
        remote->peers.ready_count++;
    } else {
        taken = false;
    }
    spinlock_unlock(&remote->lock);
    return taken;
}

/* One step. True: it is no stranger any more, or gone. */
static bool meet(struct doorman *doorman, struct peer_connection *connection)
{
    struct peer_stream *talk = &connection->talk;
    struct peer_message message;
    bool more = true;
    while (more) {
        int came = peer_connection_read(connection, &more);
        if (came < 0) {
            log_debug("the connection of a compute node at %s ended before its hello: %s", connection->from,
                      talk->why);
            peer_connection_free(connection);
            return true;
        }
        enum peer_event event = came > 0 ? peer_stream_next(talk, &message) : PEER_MORE;
        if (event == PEER_OPENED && peer_connection_flush(connection) &&
            hand_over(doorman->remote, connection))
            return true;
        if (event != PEER_MORE) {
            complain(doorman, connection->from, talk->why[0] != 0 ? talk->why : "too many are connected");
            peer_connection_flush(connection); /* the refusal */
            peer_connection_free(connection);
            return true;
        }
    }
    if (peer_connection_flush(connection)) /* the greeting */
        return false;
    peer_connection_free(connection);
    return true;
}

static void accept_one(struct doorman *doorman, uint64_t now)
{
    struct remote_peers *peers = &doorman->remote->peers;
    char from[NET_TEXT_MAX] = "";
    struct error error = {0};
    int fd = -1;
    if (net_accept(peers->listener, &fd, from, &error)) {
        complain(doorman, "an unknown address", error.text);
        doorman->pause_until = now + PAUSE_NS;
    }
    if (fd < 0)
        return;
    /* relaxed: a limit that may be missed by a few */
    if (atomic_load_relaxed(&peers->accepted) >= ACCEPTED_MAX) {
        complain(doorman, from, "too many are connected");
        close(fd);
        return;
    }
    struct net_tls *tls = peers->address.kind == NET_TCP ? peers->tls : NULL;
    struct peer_connection *connection =
        peer_connection_create(doorman->remote, fd, tls, true, (struct fabric_process){0});
    if (connection == NULL)
        return;
    memcpy(connection->from, from, sizeof connection->from);
    if (doorman->count == STRANGERS_MAX) /* the one that has had the most time makes room */
        remove_stranger(doorman, oldest_stranger(doorman));
    if (!meet(doorman, connection))
        doorman->strangers[doorman->count++] =
            (struct stranger){.connection = connection, .deadline = now + HELLO_NS};
}

/* ---- the thread ---- */

/* When it must look again at the latest. */
static uint64_t next_due(const struct doorman *doorman, uint64_t now)
{
    uint64_t due = now + HELLO_NS;
    if (doorman->pause_until > now && doorman->pause_until < due)
        due = doorman->pause_until;
    for (unsigned i = 0; i < doorman->count; i++)
        if (doorman->strangers[i].deadline < due)
            due = doorman->strangers[i].deadline;
    return due;
}

static void step(struct doorman *doorman)
{
    struct remote_peers *peers = &doorman->remote->peers;
    struct pollfd polls[2 + STRANGERS_MAX];
    uint64_t now = task_now();
    unsigned count = doorman->count;
    polls[0] = (struct pollfd){.fd = peers->event, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = now < doorman->pause_until ? -1 : peers->listener, .events = POLLIN};
    for (unsigned i = 0; i < count; i++) {
        const struct peer_connection *connection = doorman->strangers[i].connection;
        uint32_t wants = peer_connection_wants(connection);
        polls[2 + i] = (struct pollfd){
            .fd = net_stream_fd(connection->stream),
            .events = (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
    }
    remote_event_wait(polls, 2 + count, next_due(doorman, now));
    now = task_now();
    for (unsigned i = count; i-- > 0;) { /* the last takes the place of one that goes */
        struct stranger *stranger = &doorman->strangers[i];
        if (polls[2 + i].revents != 0 && meet(doorman, stranger->connection))
            *stranger = doorman->strangers[--doorman->count];
        else if (now >= stranger->deadline)
            remove_stranger(doorman, i);
    }
    if (polls[1].revents != 0)
        accept_one(doorman, now);
}

/* On the thread, or when there is none: callers are told at once that nothing listens. */
static void close_listener(struct remote_peers *peers)
{
    if (peers->listener < 0)
        return;
    if (peers->address.kind == NET_UNIX)
        unlink(peers->address.path);
    close(peers->listener);
    peers->listener = -1;
}

/* Open connections for which there was no endpoint: their callers learn that nobody will serve them. */
static void drop_ready(struct remote_fabric *remote)
{
    struct remote_peers *peers = &remote->peers;
    spinlock_lock(&remote->lock);
    struct peer_connection *connection = peers->ready;
    peers->ready = NULL;
    peers->ready_count = 0;
    spinlock_unlock(&remote->lock);
    for (struct peer_connection *next; connection != NULL; connection = next) {
        next = connection->next;
        peer_connection_free(connection);
    }
}

static void doorman_main(void *argument)
{
    struct doorman *doorman = argument;
    struct remote_fabric *remote = doorman->remote;
    /* acquire: pairs with the release of those who set them */
    while (!atomic_load_acquire(&remote->peers.quit) && !atomic_load_acquire(&remote->peers.stopped))
        step(doorman);
    while (doorman->count > 0)
        remove_stranger(doorman, doorman->count - 1);
    free(doorman);
    drop_ready(remote);
    close_listener(&remote->peers);
}

/* ---- life ---- */

void remote_peers_prepare(struct remote_peers *peers)
{
    peers->listener = peers->event = -1;
}

int remote_peers_start(struct remote_fabric *remote, struct error *error)
{
    struct remote_peers *peers = &remote->peers;
    peers->self = (struct peer_self){.process = fabric_self(&remote->fabric),
                                     .cluster_id = remote->nodes[REMOTE_HOME].cluster_id,
                                     .secret = remote->identity.secret,
                                     .secret_length = remote->identity.secret_length};
    if (peers->listener < 0)
        return BANYAN_OK;
    peers->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (peers->event < 0)
        return error_set(error, BANYAN_ENOMEM, "no descriptor to wake a thread by: %s", strerror(errno));
    struct doorman *doorman = calloc(1, sizeof *doorman);
    if (doorman == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory to let other compute nodes in");
    doorman->remote = remote;
    int status = thread_start(&peers->thread, doorman_main, doorman, error);
    if (status)
        free(doorman);
    return status;
}

void remote_peers_wake(struct remote_peers *peers)
{
    if (peers->event >= 0)
        remote_event_set(peers->event);
}

void remote_peers_close(struct remote_fabric *remote)
{
    struct remote_peers *peers = &remote->peers;
    atomic_store_release(&peers->quit, 1u); /* release: pairs with the thread's loop */
    remote_peers_wake(peers);
    thread_join(peers->thread);
    drop_ready(remote);
    close_listener(peers);
    if (peers->event >= 0)
        close(peers->event);
}
