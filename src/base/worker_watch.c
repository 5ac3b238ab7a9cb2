/* worker_watch.c - the file descriptors that a worker waits for, and how it sleeps: epoll, and an eventfd by
 * which other threads end the sleep. See worker.h; on the worker's thread, but for writes to the eventfd. */
#include "worker_private.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

#define NO_SLOT   UINT32_MAX
#define WAKE_DATA UINT64_MAX /* no slot has this number */

int worker_watch_open(struct worker *worker)
{
    worker->free_slot = NO_SLOT;
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE_DATA};
    if (worker->epoll_fd < 0 || worker->wake_fd < 0 ||
        epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, worker->wake_fd, &event)) {
        worker_watch_close(worker);
        return BANYAN_ENOMEM;
    }
    return 0;
}

void worker_watch_close(struct worker *worker)
{
    if (worker->wake_fd >= 0)
        close(worker->wake_fd);
    if (worker->epoll_fd >= 0)
        close(worker->epoll_fd);
    free(worker->slots);
}

static int slots_grow(struct worker *worker)
{
    uint32_t count = worker->slot_count ? worker->slot_count * 2 : 16;
    struct worker_slot *slots = realloc(worker->slots, count * sizeof *slots);
    if (!slots)
        return BANYAN_ENOMEM;
    for (uint32_t i = worker->slot_count; i < count; i++)
        slots[i] = (struct worker_slot){.next_free = i + 1 < count ? i + 1 : NO_SLOT};
    worker->free_slot = worker->slot_count;
    worker->slots = slots;
    worker->slot_count = count;
    return 0;
}

static struct epoll_event event_of(const struct worker *worker, uint32_t slot, uint32_t events)
{
    uint64_t generation = worker->slots[slot].generation;
    return (struct epoll_event){.events = events, .data.u64 = generation << 32 | slot};
}

int worker_watch_add(struct worker *worker, struct worker_watch *watch, int fd, uint32_t events,
                     worker_ready_function *ready)
{
    if (worker->free_slot == NO_SLOT && slots_grow(worker))
        return BANYAN_ENOMEM;
    uint32_t number = worker->free_slot;
    struct epoll_event event = event_of(worker, number, events);
    if (epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, fd, &event))
        return errno == ENOMEM || errno == ENOSPC ? BANYAN_ENOMEM : BANYAN_EINVAL;
    struct worker_slot *slot = &worker->slots[number];
    worker->free_slot = slot->next_free;
    slot->watch = watch;
    worker->watches++;
    *watch =
        (struct worker_watch){.ready = ready, .fd = fd, .events = events, .worker = worker, .slot = number};
    return 0;
}

int worker_watch_change(struct worker_watch *watch, uint32_t events)
{
    struct worker *worker = watch->worker;
    if (!worker)
        return BANYAN_EINVAL;
    if (events == watch->events)
        return 0;
    struct epoll_event event = event_of(worker, watch->slot, events);
    if (epoll_ctl(worker->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event))
        return errno == ENOMEM ? BANYAN_ENOMEM : BANYAN_EINVAL;
    watch->events = events;
    return 0;
}

void worker_watch_remove(struct worker_watch *watch)
{
    struct worker *worker = watch->worker;
    if (!worker)
        return;
    struct worker_slot *slot = &worker->slots[watch->slot];
    assert(slot->watch == watch);
    epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL); /* fails if it was closed: gone as well */
    slot->watch = NULL;
    slot->generation++;
    slot->next_free = worker->free_slot;
    worker->free_slot = watch->slot;
    worker->watches--;
    watch->worker = NULL;
}

/* Without epoll_pwait2: whole milliseconds, rounded down; the worker spins through what is left. */
static int wait_coarsely(struct worker *worker, uint64_t nanoseconds)
{
    uint64_t milliseconds = nanoseconds / 1000000;
    int timeout = nanoseconds == UINT64_MAX ? -1 : milliseconds > INT_MAX ? INT_MAX : (int)milliseconds;
    return epoll_wait(worker->epoll_fd, worker->ready, WORKER_READY_MAX, timeout);
}

int worker_watch_wait(struct worker *worker, uint64_t nanoseconds)
{
    int count = -1;
    if (nanoseconds && nanoseconds != UINT64_MAX && !worker->no_pwait2) {
        struct timespec timeout = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                                   .tv_nsec = (long)(nanoseconds % 1000000000)};
        count = epoll_pwait2(worker->epoll_fd, worker->ready, WORKER_READY_MAX, &timeout, NULL);
        if (count < 0 && (errno == ENOSYS || errno == EPERM)) /* an old kernel, or a container's filter */
            worker->no_pwait2 = true;
        else
            return count < 0 ? 0 : count;
    }
    count = wait_coarsely(worker, nanoseconds);
    return count < 0 ? 0 : count; /* EINTR: the worker comes again */
}

void worker_watch_dispatch(struct worker *worker, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t data = worker->ready[i].data.u64;
        if (data == WAKE_DATA) {
            uint64_t times;
            ssize_t length = read(worker->wake_fd, &times, sizeof times);
            (void)length; /* the mail is in the inbox; this only makes the descriptor unready again */
            continue;
        }
        uint32_t number = (uint32_t)data;
        assert(number < worker->slot_count);
        const struct worker_slot *slot = &worker->slots[number]; /* a callback may move them all */
        if (slot->watch && slot->generation == (uint32_t)(data >> 32))
            slot->watch->ready(slot->watch, worker->ready[i].events);
    }
}
