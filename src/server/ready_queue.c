/* ready_queue.c - see ready_queue.h. */
#include "server/ready_queue.h"

#include <assert.h>

#include "server/fiber.h"

void ready_queue_wake(struct server_thread *thread)
{
    struct server_fiber *fiber = thread->idle;
    if (!fiber || thread->woken)
        return;
    thread->idle = fiber->next_idle;
    fiber->idle = false;
    thread->woken++;
    task_unpark(fiber->task);
}

static void queue_put(struct server_connection *connection)
{
    struct server_thread *thread = connection->thread;
    assert(!connection->ready && !connection->running && !connection->dead);
    connection->ready = true;
    connection->next_ready = NULL;
    if (thread->ready_last)
        thread->ready_last->next_ready = connection;
    else
        thread->ready_first = connection;
    thread->ready_last = connection;
    ready_queue_wake(thread);
}

struct server_connection *ready_queue_take(struct server_thread *thread)
{
    struct server_connection *connection = thread->ready_first;
    if (!connection)
        return NULL;
    thread->ready_first = connection->next_ready;
    if (!thread->ready_first)
        thread->ready_last = NULL;
    assert(connection->ready && !connection->running);
    connection->ready = false;
    return connection;
}

void ready_queue_offer(struct server_connection *connection)
{
    size_t there = connection->input_end - connection->input_start;
    if (connection->dead || connection->running || connection->ready || connection->finishing ||
        connection->blocked)
        return;
    if (connection->ended || (there && there >= connection->parser.wanted))
        queue_put(connection);
}
