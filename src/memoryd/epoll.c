/* epoll.c - the engine for kernels without io_uring: epoll tells readiness, and connections move the bytes.
 */
#include "memoryd/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 128

struct epoll_state {
    int fd;
};

static int state_fd(const struct memoryd_loop *loop)
{
    return ((const struct epoll_state *)loop->state)->fd;
}

static int epoll_engine_create(struct memoryd_loop *loop, struct error *error)
{
    struct epoll_state *state = malloc(sizeof *state);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (state == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for an I/O thread");
    state->fd = epoll_create1(EPOLL_CLOEXEC);
    if (state->fd < 0 || epoll_ctl(state->fd, EPOLL_CTL_ADD, loop->wake, &event) != 0) {
        int cause = errno;
        if (state->fd >= 0)
            close(state->fd);
        free(state);
        return error_set(error, BANYAN_ENOMEM, "memory node: no epoll for an I/O thread: %s",
                         strerror(cause));
    }
    loop->state = state;
    return BANYAN_OK;
}

static void epoll_engine_destroy(struct memoryd_loop *loop)
{
    close(state_fd(loop));
    free(loop->state);
}

static int epoll_engine_begin(struct memoryd_loop *loop, struct error *error)
{
    return BANYAN_OK;
}

static int epoll_engine_add(struct memoryd_loop *loop, struct memoryd_connection *connection)
{
    struct epoll_event event = {.events = 0, .data.ptr = connection};
    connection->events = 0;
    return epoll_ctl(state_fd(loop), EPOLL_CTL_ADD, connection->session.fd, &event) == 0 ? BANYAN_OK
                                                                                         : BANYAN_ENOMEM;
}

static void epoll_engine_arm(struct memoryd_connection *connection)
{
    uint32_t events = memoryd_connection_wants(connection);
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (events == connection->events)
        return;
    connection->events = events;
    if (epoll_ctl(state_fd(connection->loop), EPOLL_CTL_MOD, connection->session.fd, &event) == 0)
        return;
    /* It would never be told that its socket is ready, and its peer would wait for ever. */
    char why[96];
    snprintf(why, sizeof why, "its socket cannot be watched: %s", strerror(errno));
    memoryd_connection_close(connection, MEMORYD_BROKEN, why);
}

static void epoll_engine_shrink(struct memoryd_connection *connection)
{
    memoryd_connection_input_room(connection); /* no receive is under way between two events */
}

static void epoll_engine_wait(struct memoryd_loop *loop, uint64_t timeout_ns)
{
    struct epoll_event events[EVENTS];
    int milliseconds = (int)((timeout_ns + 999999) / 1000000);
    int count = epoll_wait(state_fd(loop), events, EVENTS, milliseconds);
    for (int i = 0; i < count; i++) {
        /* An event closes no connection but its own, so those of the events that follow still exist. */
        if (events[i].data.ptr != NULL)
            memoryd_connection_ready(events[i].data.ptr);
        else
            memoryd_loop_woken(loop);
    }
}

static bool epoll_engine_remove(struct memoryd_connection *connection)
{
    epoll_ctl(state_fd(connection->loop), EPOLL_CTL_DEL, connection->session.fd, NULL);
    return true;
}

const struct memoryd_engine memoryd_epoll = {
    .name = "epoll",
    .create = epoll_engine_create,
    .destroy = epoll_engine_destroy,
    .begin = epoll_engine_begin,
    .add = epoll_engine_add,
    .arm = epoll_engine_arm,
    .shrink = epoll_engine_shrink,
    .wait = epoll_engine_wait,
    .remove = epoll_engine_remove,
};
