/*
 * uring.c - the engine on io_uring: one system call a turn hands over all sends and receives, and waits for
 * events. Connections with TLS, and all until their hello has been answered, get one-shot polls instead.
 *
 * Each connection has at most one operation of each kind under way; a connection that is closed is freed when
 * the last of them has come back. The thread that makes the daemon makes the ring, disabled; the loop's
 * thread enables it, and is then the only one that may use it.
 */
#include "memoryd/loop.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES     256u
#define COMPLETIONS 4096u
#define BATCH       64u
/* Waiting with a time limit, no lost completions, and operations on sockets that wait inside the kernel. */
#define FEATURES (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_FAST_POLL)

enum uring_kind { URING_RECEIVE, URING_SEND, URING_POLL_IN, URING_POLL_OUT, URING_KINDS };
/* In the low bits of user_data, beside the connection's address. */
#define KIND_MASK UINT64_C(7)
#define DATA_NONE UINT64_C(0)
#define DATA_WAKE UINT64_C(8)

struct uring_state {
    struct io_uring ring;
    bool wake_armed;
};

static struct io_uring *ring_of(const struct memoryd_loop *loop)
{
    return &((struct uring_state *)loop->state)->ring;
}

static int ring_make(struct io_uring *ring)
{
    /* Best: the kernel does its part when this thread asks for completions (Linux 6.1). */
    struct io_uring_params plain = {.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE,
                                    .cq_entries = COMPLETIONS};
    struct io_uring_params best = plain;
    best.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    int code = io_uring_queue_init_params(ENTRIES, ring, &best);
    if (code == -EINVAL)
        code = io_uring_queue_init_params(ENTRIES, ring, &plain);
    if (code == 0 && (ring->features & FEATURES) != FEATURES) {
        io_uring_queue_exit(ring);
        code = -ENOSYS;
    }
    return code;
}

static int uring_create(struct memoryd_loop *loop, struct error *error)
{
    struct uring_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for an I/O thread");
    int code = ring_make(&state->ring);
    if (code != 0) {
        free(state);
        return error_set(error, BANYAN_ENOTSUP, "the kernel refuses io_uring: %s", strerror(-code));
    }
    loop->state = state;
    return BANYAN_OK;
}

static void uring_destroy(struct memoryd_loop *loop)
{
    io_uring_queue_exit(ring_of(loop));
    free(loop->state);
}

/* Never NULL: a full queue is handed over first. */
static struct io_uring_sqe *next_entry(struct io_uring *ring)
{
    struct io_uring_sqe *entry;
    while ((entry = io_uring_get_sqe(ring)) == NULL)
        io_uring_submit(ring);
    return entry;
}

static void arm_wake(struct memoryd_loop *loop)
{
    struct uring_state *state = loop->state;
    if (state->wake_armed)
        return;
    struct io_uring_sqe *entry = next_entry(&state->ring);
    io_uring_prep_poll_add(entry, loop->wake, EPOLLIN);
    entry->user_data = DATA_WAKE;
    state->wake_armed = true;
}

static int uring_begin(struct memoryd_loop *loop, struct error *error)
{
    /* liburing 2.3 declares io_uring_enable_rings, but does not export it. */
    if (syscall(__NR_io_uring_register, ring_of(loop)->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
        return error_set(error, BANYAN_ENOTSUP, "io_uring: %s", strerror(errno));
    return BANYAN_OK;
}

static int uring_add(struct memoryd_loop *loop, struct memoryd_connection *connection)
{
    return BANYAN_OK;
}

static uint64_t data_of(const struct memoryd_connection *connection, enum uring_kind kind)
{
    return (uint64_t)(uintptr_t)connection | (uint64_t)kind;
}

static bool flying(const struct memoryd_connection *connection, enum uring_kind kind)
{
    return (connection->flying & 1u << kind) != 0;
}

static void launch(struct memoryd_connection *connection, struct io_uring_sqe *entry, enum uring_kind kind)
{
    entry->user_data = data_of(connection, kind);
    assert(!flying(connection, kind));
    connection->flying |= 1u << kind;
}

static void arm_readiness(struct memoryd_connection *connection)
{
    struct io_uring *ring = ring_of(connection->loop);
    uint32_t events = memoryd_connection_wants(connection);
    static const struct {
        uint32_t event;
        enum uring_kind kind;
    } polls[] = {{EPOLLIN, URING_POLL_IN}, {EPOLLOUT, URING_POLL_OUT}};
    for (unsigned i = 0; i < 2; i++) {
        if ((events & polls[i].event) == 0 || flying(connection, polls[i].kind))
            continue;
        struct io_uring_sqe *entry = next_entry(ring);
        io_uring_prep_poll_add(entry, connection->session.fd, polls[i].event);
        launch(connection, entry, polls[i].kind);
    }
}

static void arm_receive(struct memoryd_connection *connection)
{
    struct memoryd_buffer *in = &connection->session.in;
    if (flying(connection, URING_RECEIVE) || memoryd_connection_input_room(connection) <= 0)
        return;
    struct io_uring_sqe *entry = next_entry(ring_of(connection->loop));
    io_uring_prep_recv(entry, connection->session.fd, in->bytes + in->end, in->capacity - in->end, 0);
    launch(connection, entry, URING_RECEIVE);
}

/* False: closed. */
static bool arm_send(struct memoryd_connection *connection)
{
    struct memoryd_buffer *sending = &connection->sending;
    if (flying(connection, URING_SEND))
        return true;
    int output = memoryd_connection_output(connection);
    if (output <= 0)
        return output == 0;
    struct io_uring_sqe *entry = next_entry(ring_of(connection->loop));
    io_uring_prep_send(entry, connection->session.fd, sending->bytes + sending->start,
                       sending->end - sending->start, MSG_NOSIGNAL);
    launch(connection, entry, URING_SEND);
    return true;
}

static void uring_arm(struct memoryd_connection *connection)
{
    if (!connection->completion) {
        arm_readiness(connection);
        return;
    }
    if (arm_send(connection))
        arm_receive(connection);
}

static void cancel(struct memoryd_connection *connection, enum uring_kind kind)
{
    if (!flying(connection, kind))
        return;
    struct io_uring_sqe *entry = next_entry(ring_of(connection->loop));
    io_uring_prep_cancel64(entry, data_of(connection, kind), 0);
    entry->user_data = DATA_NONE;
}

static void uring_shrink(struct memoryd_connection *connection)
{
    if (connection->completion)
        cancel(connection, URING_RECEIVE); /* it is begun anew with a smaller buffer */
    else
        memoryd_connection_input_room(connection);
}

static bool uring_remove(struct memoryd_connection *connection)
{
    for (enum uring_kind kind = URING_RECEIVE; kind < URING_KINDS; kind++)
        cancel(connection, kind);
    return connection->flying == 0;
}

/* ---- completions ---- */

static void completed(struct memoryd_connection *connection, enum uring_kind kind, int result)
{
    connection->flying &= ~(1u << kind);
    if (connection->gone) {
        if (connection->flying == 0) {
            connection->loop->flying--;
            memoryd_connection_free(connection);
        }
        return;
    }
    if (kind == URING_SEND)
        memoryd_connection_sent(connection, result);
    else if (kind == URING_RECEIVE)
        memoryd_connection_received(connection, result);
    else if (!connection->completion)
        memoryd_connection_ready(connection);
}

struct seen {
    uint64_t data;
    int result;
};

static unsigned collect(struct io_uring *ring, struct seen seen[BATCH])
{
    struct io_uring_cqe *entry;
    unsigned head, count = 0;
    io_uring_for_each_cqe(ring, head, entry)
    {
        seen[count++] = (struct seen){entry->user_data, entry->res};
        if (count == BATCH)
            break;
    }
    io_uring_cq_advance(ring, count);
    return count;
}

/* Returns how many there were. A connection is freed by the completion of its last operation, so no later one
 * in `seen` belongs to it. */
static unsigned take_completions(struct memoryd_loop *loop)
{
    struct seen seen[BATCH];
    unsigned count = collect(ring_of(loop), seen);
    for (unsigned i = 0; i < count; i++) {
        if (seen[i].data == DATA_NONE)
            continue;
        if (seen[i].data == DATA_WAKE) {
            ((struct uring_state *)loop->state)->wake_armed = false;
            memoryd_loop_woken(loop);
            continue;
        }
        completed((struct memoryd_connection *)(uintptr_t)(seen[i].data & ~KIND_MASK),
                  (enum uring_kind)(seen[i].data & KIND_MASK), seen[i].result);
    }
    return count;
}

static void uring_wait(struct memoryd_loop *loop, uint64_t timeout_ns)
{
    struct io_uring *ring = ring_of(loop);
    struct io_uring_cqe *entry;
    struct __kernel_timespec limit = {.tv_sec = (long long)(timeout_ns / 1000000000),
                                      .tv_nsec = (long long)(timeout_ns % 1000000000)};
    arm_wake(loop);
    if (timeout_ns == 0)
        io_uring_submit_and_get_events(ring);
    else
        io_uring_submit_and_wait_timeout(ring, &entry, 1, &limit, NULL);
    while (take_completions(loop) == BATCH)
        ;
}

const struct memoryd_engine memoryd_uring = {
    .name = "io_uring",
    .create = uring_create,
    .destroy = uring_destroy,
    .begin = uring_begin,
    .add = uring_add,
    .arm = uring_arm,
    .shrink = uring_shrink,
    .wait = uring_wait,
    .remove = uring_remove,
};
