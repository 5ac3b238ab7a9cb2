/*
 * keeper.c - the thread that accepts connections, ends leases and reaps groups: all that need not be fast, so
 * that I/O threads do nothing but serve.
 *
 * Once a second it gives back memory that the pool does not use. It sleeps until then, or until a connection
 * comes, a lease runs out, a process that is being fenced dies, the NIC tells something, or an I/O thread
 * wakes it because a group is over.
 */
#include "memoryd/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/nic.h"

#define MILLISECOND UINT64_C(1000000)
#define SECOND      (1000 * MILLISECOND)
/* Memory that goes back to the system in one go, and the pause if there is more. */
#define TRIM_BYTES (UINT64_C(64) << 20)
#define TRIM_PAUSE (20 * MILLISECOND)
/* Connections taken from one listener before leases are looked at again; and how long accepting pauses when
 * there are no descriptors left. */
#define ACCEPT_BATCH 64
#define ACCEPT_PAUSE (100 * MILLISECOND)
/* A sleep that lasts so much longer than meant: this process did not run, and heartbeats wait in the sockets.
 */
#define OVERSLEPT (10 * MILLISECOND)

int memoryd_keeper_create(struct memoryd *daemon, struct error *error)
{
    struct memoryd_keeper *keeper = &daemon->keeper;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    keeper->epoll = epoll_create1(EPOLL_CLOEXEC);
    keeper->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = keeper->epoll < 0 || keeper->wake < 0 ||
                 epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, keeper->wake, &event) != 0;
    for (unsigned i = 0; i < daemon->listener_count && !failed; i++) {
        event.data.ptr = &daemon->listeners[i];
        failed = epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, daemon->listeners[i].fd, &event) != 0;
    }
    if (daemon->nic != NULL && !failed) {
        event.data.ptr = daemon->nic;
        failed = epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, memoryd_nic_descriptor(daemon->nic), &event) != 0;
    }
    if (failed)
        return error_set(error, BANYAN_ENOMEM, "memory node: no epoll for accepting: %s", strerror(errno));
    return BANYAN_OK;
}

void memoryd_keeper_destroy(struct memoryd *daemon)
{
    if (daemon->keeper.epoll >= 0)
        close(daemon->keeper.epoll);
    if (daemon->keeper.wake >= 0)
        close(daemon->keeper.wake);
    daemon->keeper.epoll = daemon->keeper.wake = -1;
}

void memoryd_keeper_wake(struct memoryd *daemon)
{
    uint64_t one = 1;
    ssize_t written = write(daemon->keeper.wake, &one, sizeof one);
    (void)written; /* it fails only if the counter is full, and then the thread is awake already */
}

/* ---- accepting ---- */

static void complain(struct memoryd *daemon, const char *what, const char *peer)
{
    struct memoryd_keeper *keeper = &daemon->keeper;
    uint64_t now = task_now();
    if (keeper->complained_at != 0 && now < keeper->complained_at + SECOND)
        return; /* a peer that connects again and again must not fill the log */
    keeper->complained_at = now;
    log_warning("memory node: %s%s%s", what, peer[0] != 0 ? ": " : "", peer);
}

static void take_connection(struct memoryd *daemon, const struct memoryd_listener *listener, int fd,
                            const char *peer)
{
    struct memoryd_loop *loop = &daemon->loops[daemon->keeper.next_loop++ % daemon->loop_count];
    /* relaxed: a limit that may be missed by a few */
    if (atomic_load_relaxed(&daemon->connections) >= daemon->connections_max) {
        complain(daemon, "turned away, all connections are in use", peer);
        close(fd);
        return;
    }
    struct memoryd_connection *connection = memoryd_connection_create(daemon, loop, fd, listener, peer);
    if (connection == NULL) {
        complain(daemon, "turned away for want of memory", peer);
        return;
    }
    memoryd_loop_give(loop, connection);
}

static void accept_some(struct memoryd *daemon, const struct memoryd_listener *listener)
{
    for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
        char peer[NET_TEXT_MAX] = "";
        struct error error = {0};
        int fd = -1;
        if (net_accept(listener->fd, &fd, peer, &error)) {
            complain(daemon, error.text, "");
            daemon->keeper.pause_until = task_now() + ACCEPT_PAUSE;
            return;
        }
        if (fd < 0)
            return;
        take_connection(daemon, listener, fd, peer);
    }
}

static void watch_listeners(struct memoryd *daemon, bool wanted)
{
    for (unsigned i = 0; i < daemon->listener_count; i++) {
        struct epoll_event event = {.events = wanted ? EPOLLIN : 0, .data.ptr = &daemon->listeners[i]};
        epoll_ctl(daemon->keeper.epoll, EPOLL_CTL_MOD, daemon->listeners[i].fd, &event);
    }
}

/* ---- the NIC ---- */

static void queue_broken(void *owner, struct memoryd_nic_queue *queue, const char *why)
{
    memoryd_groups_break(owner, queue, why);
}

static void take_events(struct memoryd *daemon)
{
    if (memoryd_nic_events(daemon->nic, queue_broken, daemon))
        return;
    log_error("memory node: the NIC is gone; compute nodes cannot come any more");
    epoll_ctl(daemon->keeper.epoll, EPOLL_CTL_DEL, memoryd_nic_descriptor(daemon->nic), NULL);
    memoryd_groups_break(daemon, NULL, "the NIC is gone");
}

/* ---- the thread ---- */

/* Sleeps at most until the deadline; takes connections and events of the NIC. */
static void wait_and_accept(struct memoryd *daemon, uint64_t deadline)
{
    struct epoll_event events[32];
    struct memoryd_keeper *keeper = &daemon->keeper;
    uint64_t now = task_now();
    if (keeper->pause_until != 0 && keeper->pause_until < deadline)
        deadline = keeper->pause_until;
    int milliseconds = -1;
    keeper->awake_at = UINT64_MAX;
    if (deadline != UINT64_MAX) {
        uint64_t wait = deadline > now ? (deadline - now) / MILLISECOND + 1 : 0;
        milliseconds = wait < 60000 ? (int)wait : 60000;
        keeper->awake_at = now + (uint64_t)milliseconds * MILLISECOND;
    }
    int count = epoll_wait(keeper->epoll, events, 32, milliseconds);
    for (int i = 0; i < count; i++) {
        void *what = events[i].data.ptr;
        if (what != NULL && what == daemon->nic)
            take_events(daemon);
        else if (what != NULL)
            accept_some(daemon, what);
    }
    uint64_t ignored;
    ssize_t length = read(keeper->wake, &ignored, sizeof ignored);
    (void)length;
}

static void mind_pause(struct memoryd *daemon, uint64_t now, bool *paused)
{
    bool want = daemon->keeper.pause_until > now;
    if (!want)
        daemon->keeper.pause_until = 0;
    if (want != *paused)
        watch_listeners(daemon, !want);
    *paused = want;
}

/* When to do so again. */
static uint64_t give_back_memory(struct memoryd *daemon, uint64_t now)
{
    struct memoryd_keeper *keeper = &daemon->keeper;
    if (now < keeper->trim_at)
        return keeper->trim_at;
    bool more = memory_node_trim(daemon->node, now, TRIM_BYTES);
    return keeper->trim_at = now + (more ? TRIM_PAUSE : SECOND);
}

void memoryd_keeper_main(void *argument)
{
    struct memoryd *daemon = argument;
    bool paused = false;
    daemon->keeper.awake_at = UINT64_MAX;
    /* acquire: what was prepared before the stop is seen */
    while (!atomic_load_acquire(&daemon->stopping)) {
        uint64_t now = task_now();
        if (daemon->keeper.awake_at != UINT64_MAX && now > daemon->keeper.awake_at + OVERSLEPT)
            memoryd_groups_forgive(daemon, now);
        mind_pause(daemon, now, &paused);
        uint64_t trim = give_back_memory(daemon, now), step = memoryd_groups_step(daemon, now);
        wait_and_accept(daemon, trim < step ? trim : step);
    }
    memoryd_groups_stop(daemon);
    for (unsigned i = 0; i < daemon->loop_count; i++)
        memoryd_loop_wake(&daemon->loops[i]);
}
