/* loop.c - see loop.h: one I/O thread, its connections and their time limits. */
#include "memoryd/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/disk.h"

#define SECOND UINT64_C(1000000000)
/* Connections of one loop that have a time limit: no hello accepted yet, or ending. Beyond this many the
 * oldest is closed. */
#define STRANGERS_MAX 128u
/* Background work of services in one turn. A request may have to wait that much longer. */
#define WORK_NS UINT64_C(20000)

int memoryd_loop_create(struct memoryd_loop *loop, struct memoryd *daemon,
                        const struct memoryd_engine *engine, struct error *error)
{
    *loop = (struct memoryd_loop){.daemon = daemon, .engine = engine};
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake < 0)
        return error_set(error, BANYAN_ENOMEM, "memory node: no eventfd for an I/O thread: %s",
                         strerror(errno));
    int status = engine->create(loop, error);
    if (status) {
        close(loop->wake);
        loop->engine = NULL;
    }
    return status;
}

void memoryd_loop_destroy(struct memoryd_loop *loop)
{
    if (loop->engine == NULL)
        return;
    while (loop->inbox != NULL) { /* given to a loop that never ran */
        struct memoryd_connection *connection = loop->inbox;
        loop->inbox = connection->timed_next;
        memoryd_connection_free(connection);
    }
    loop->engine->destroy(loop);
    close(loop->wake);
}

void memoryd_loop_wake(struct memoryd_loop *loop)
{
    uint64_t one = 1;
    ssize_t written = write(loop->wake, &one, sizeof one);
    (void)written; /* it fails only if the counter is full, and then the thread is awake already */
}

void memoryd_loop_woken(struct memoryd_loop *loop)
{
    uint64_t count;
    ssize_t length = read(loop->wake, &count, sizeof count);
    (void)length;
}

void memoryd_loop_give(struct memoryd_loop *loop, struct memoryd_connection *connection)
{
    spinlock_lock(&loop->inbox_lock);
    connection->timed_next = loop->inbox;
    loop->inbox = connection;
    spinlock_unlock(&loop->inbox_lock);
    memoryd_loop_wake(loop);
}

/* ---- time limits: the earliest first; all are equally long, so a new one goes to the end ---- */

static void unlink_timed(struct memoryd_loop *loop, struct memoryd_connection *connection)
{
    if (connection->timed_previous != NULL)
        connection->timed_previous->timed_next = connection->timed_next;
    else
        loop->timed_first = connection->timed_next;
    if (connection->timed_next != NULL)
        connection->timed_next->timed_previous = connection->timed_previous;
    else
        loop->timed_last = connection->timed_previous;
    connection->timed_next = connection->timed_previous = NULL;
    loop->timed_count--;
}

static bool timed(const struct memoryd_loop *loop, const struct memoryd_connection *connection)
{
    return connection->timed_previous != NULL || loop->timed_first == connection;
}

void memoryd_loop_set_deadline(struct memoryd_connection *connection, uint64_t deadline)
{
    struct memoryd_loop *loop = connection->loop;
    if (timed(loop, connection))
        unlink_timed(loop, connection);
    connection->deadline = deadline;
    if (deadline == 0)
        return;
    connection->timed_previous = loop->timed_last;
    connection->timed_next = NULL;
    if (loop->timed_last != NULL)
        loop->timed_last->timed_next = connection;
    else
        loop->timed_first = connection;
    loop->timed_last = connection;
    loop->timed_count++;
}

static void expire(struct memoryd_loop *loop, uint64_t now)
{
    while (loop->timed_first != NULL &&
           (loop->timed_first->deadline <= now || loop->timed_count > STRANGERS_MAX))
        memoryd_connection_expire(loop->timed_first);
}

/* ---- connections ---- */

void memoryd_loop_remove(struct memoryd_connection *connection)
{
    struct memoryd_loop *loop = connection->loop;
    memoryd_loop_set_deadline(connection, 0);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        loop->first = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    connection->next = connection->previous = NULL;
}

static void take_in(struct memoryd_loop *loop, struct memoryd_connection *connection)
{
    connection->next = loop->first;
    connection->previous = NULL;
    if (loop->first != NULL)
        loop->first->previous = connection;
    loop->first = connection;
    memoryd_loop_set_deadline(connection, connection->deadline);
    if (loop->engine->add(loop, connection))
        memoryd_connection_close(connection, MEMORYD_BROKEN, "no memory for another connection");
    else
        memoryd_connection_ready(connection); /* sends the greeting */
}

static void take_inbox(struct memoryd_loop *loop)
{
    spinlock_lock(&loop->inbox_lock);
    struct memoryd_connection *connection = loop->inbox;
    loop->inbox = NULL;
    spinlock_unlock(&loop->inbox_lock);
    while (connection != NULL) {
        struct memoryd_connection *next = connection->timed_next;
        connection->timed_next = NULL;
        take_in(loop, connection);
        connection = next;
    }
}

/* Once a second while there are connections: large buffers of idle ones are given back. */
static void tidy(struct memoryd_loop *loop, uint64_t now)
{
    if (now < loop->tidy_at)
        return;
    loop->tidy_at = now + SECOND;
    for (struct memoryd_connection *connection = loop->first, *next; connection != NULL; connection = next) {
        next = connection->next; /* the connection may be closed: there was no memory for it */
        memoryd_connection_tidy(connection);
    }
}

void memoryd_loop_walked(struct memoryd_loop *loop)
{
    /* release: the walk; a thread that finds the count where its last look left it was not told of a walk
     * since */
    __atomic_fetch_add(&loop->walked, 1, __ATOMIC_RELEASE);
    memoryd_loop_wake(loop);
}

/* Tells all its connections a new notice, and what waited for the disk, or for a walk, that it is there. */
static void tell(struct memoryd_loop *loop)
{
    /* acquire: pairs with the release in memoryd_groups_notify */
    uint64_t notice = atomic_load_acquire(&loop->daemon->groups.notice);
    uint64_t settled = memoryd_disk_settled(loop->daemon->disk);
    uint64_t walked = atomic_load_acquire(&loop->walked); /* acquire: the walks */
    if (notice == loop->noticed && settled == loop->settled && walked == loop->walks_told)
        return;
    loop->walks_told = walked;
    loop->noticed = notice;
    loop->settled = settled;
    for (struct memoryd_connection *connection = loop->first, *next; connection != NULL; connection = next) {
        next = connection->next; /* the connection may be closed */
        memoryd_connection_tell(connection);
    }
}

static uint64_t sleep_for(const struct memoryd_loop *loop, uint64_t now)
{
    uint64_t until = loop->first != NULL ? loop->tidy_at : now + 60 * SECOND;
    if (loop->daemon->busy_poll)
        return 0;
    if (loop->timed_first != NULL && loop->timed_first->deadline < until)
        until = loop->timed_first->deadline;
    return until > now ? until - now : 0;
}

void memoryd_loop_main(void *argument)
{
    struct memoryd_loop *loop = argument;
    struct error error = {0};
    if (loop->engine->begin(loop, &error)) {
        log_error("memory node: an I/O thread cannot begin, the memory node stops: %s", error.text);
        memoryd_stop(loop->daemon);
    }
    /* acquire: what was prepared before the stop is seen */
    while (!atomic_load_acquire(&loop->daemon->stopping)) {
        uint64_t now = task_now();
        take_inbox(loop);
        expire(loop, now);
        tell(loop);
        tidy(loop, now);
        uint64_t budget_ns = WORK_NS;
        bool more = memory_node_work(loop->daemon->node, &budget_ns);
        loop->engine->wait(loop, more ? 0 : sleep_for(loop, now));
    }
    take_inbox(loop);
    while (loop->first != NULL)
        memoryd_connection_close(loop->first, MEMORYD_LOST, "the memory node stops");
    while (loop->flying > 0) /* the kernel may still be writing into their buffers */
        loop->engine->wait(loop, SECOND / 100);
    assert(loop->timed_count == 0 && loop->timed_first == NULL);
}
