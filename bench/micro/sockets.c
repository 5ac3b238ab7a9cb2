/*
 * sockets.c - what a request without pipelining costs in sockets (micro.h): 32 connections over loopback,
 * each of which sends a request and reads a reply, while the server receives and sends by a system call for
 * each, or by one call of io_uring for all receives of a round and one for all sends. Their difference is
 * what a server would gain by the ring.
 */
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/micro/micro.h"

#define CONNECTIONS   32u
#define REQUEST_BYTES 44u /* a SET of a small value */
#define REPLY_BYTES   5u
#define RING_ENTRIES  64u

struct sockets {
    int clients[CONNECTIONS], servers[CONNECTIONS];
    unsigned count; /* pairs that are open */
    struct io_uring ring;
    bool failed;
    uint8_t bytes[CONNECTIONS][REQUEST_BYTES];
};

static bool pair_open(struct sockets *sockets, int listener, const struct sockaddr_in *address)
{
    const int one = 1, client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client < 0)
        return false;
    if (connect(client, (const struct sockaddr *)address, sizeof *address)) {
        close(client);
        return false;
    }
    const int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (server < 0) {
        close(client);
        return false;
    }
    sockets->clients[sockets->count] = client;
    sockets->servers[sockets->count++] = server;
    return !setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) &&
           !setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static bool pairs_open(struct sockets *sockets)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return false;
    bool good = !bind(listener, (struct sockaddr *)&address, sizeof address) &&
                !listen(listener, CONNECTIONS) &&
                !getsockname(listener, (struct sockaddr *)&address, &length);
    for (unsigned i = 0; good && i < CONNECTIONS; i++)
        good = pair_open(sockets, listener, &address);
    close(listener);
    return good;
}

static void pairs_close(struct sockets *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++) {
        close(sockets->clients[i]);
        close(sockets->servers[i]);
    }
}

/* ---- the clients ---- */

static void requests_send(struct sockets *sockets)
{
    static const uint8_t request[REQUEST_BYTES];
    for (unsigned i = 0; i < CONNECTIONS; i++)
        sockets->failed |= send(sockets->clients[i], request, REQUEST_BYTES, MSG_NOSIGNAL) != REQUEST_BYTES;
}

static void replies_receive(struct sockets *sockets)
{
    uint8_t reply[REPLY_BYTES];
    for (unsigned i = 0; i < CONNECTIONS && !sockets->failed; i++)
        sockets->failed = recv(sockets->clients[i], reply, REPLY_BYTES, MSG_WAITALL) != REPLY_BYTES;
}

/* ---- the server ---- */

static void serve_by_calls(void *context)
{
    static const uint8_t reply[REPLY_BYTES];
    struct sockets *sockets = context;
    requests_send(sockets);
    for (unsigned i = 0; i < CONNECTIONS && !sockets->failed; i++)
        sockets->failed =
            recv(sockets->servers[i], sockets->bytes[i], REQUEST_BYTES, MSG_WAITALL) != REQUEST_BYTES;
    for (unsigned i = 0; i < CONNECTIONS && !sockets->failed; i++)
        sockets->failed = send(sockets->servers[i], reply, REPLY_BYTES, MSG_NOSIGNAL) != REPLY_BYTES;
    replies_receive(sockets);
}

/* Hands over what was prepared, waits for all of it, and looks at the results. */
static void ring_round(struct sockets *sockets, int wanted)
{
    struct io_uring_cqe *done[CONNECTIONS];
    sockets->failed |= io_uring_submit_and_wait(&sockets->ring, CONNECTIONS) != (int)CONNECTIONS;
    const unsigned count = io_uring_peek_batch_cqe(&sockets->ring, done, CONNECTIONS);
    for (unsigned i = 0; i < count; i++)
        sockets->failed |= done[i]->res != wanted;
    io_uring_cq_advance(&sockets->ring, count);
    sockets->failed |= count != CONNECTIONS;
}

static void serve_by_ring(void *context)
{
    static const uint8_t reply[REPLY_BYTES];
    struct sockets *sockets = context;
    requests_send(sockets);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct io_uring_sqe *entry = io_uring_get_sqe(&sockets->ring); /* it has room for a round */
        io_uring_prep_recv(entry, (int)i, sockets->bytes[i], REQUEST_BYTES, MSG_WAITALL);
        entry->flags |= IOSQE_FIXED_FILE;
    }
    ring_round(sockets, (int)REQUEST_BYTES);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct io_uring_sqe *entry = io_uring_get_sqe(&sockets->ring);
        io_uring_prep_send(entry, (int)i, reply, REPLY_BYTES, MSG_NOSIGNAL);
        entry->flags |= IOSQE_FIXED_FILE;
    }
    ring_round(sockets, (int)REPLY_BYTES);
    if (!sockets->failed)
        replies_receive(sockets);
}

/* As a server would set it up: one thread, which takes results when it asks for them. */
static bool ring_open(struct sockets *sockets)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    if (io_uring_queue_init_params(RING_ENTRIES, &sockets->ring, &params))
        return false;
    if (!io_uring_register_files(&sockets->ring, sockets->servers, CONNECTIONS) &&
        io_uring_register_ring_fd(&sockets->ring) == 1)
        return true;
    io_uring_queue_exit(&sockets->ring);
    return false;
}

bool micro_sockets(uint32_t rounds, struct micro_result results[MICRO_NAMES])
{
    struct sockets sockets = {.count = 0};
    bool done = true, opened = pairs_open(&sockets);
    if (opened)
        done = micro_measure(rounds, CONNECTIONS, serve_by_calls, &sockets, &results[MICRO_REQUEST_CALLS]);
    opened = opened && done && !sockets.failed && ring_open(&sockets);
    if (opened) {
        done = micro_measure(rounds, CONNECTIONS, serve_by_ring, &sockets, &results[MICRO_REQUEST_RING]);
        io_uring_queue_exit(&sockets.ring);
    }
    pairs_close(&sockets);
    return done && !sockets.failed;
}
