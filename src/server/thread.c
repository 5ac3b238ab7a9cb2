/*
 * thread.c - the life of a thread: its sessions and fibers, its keeper; contract in thread.h.
 *
 * At the end the thread's command fibers return, its connections are closed, and then the keepers wait for
 * each other, since threads post to each other until their last command has ended.
 */
#include "server/thread.h"

#include <assert.h>
#include <stdlib.h>

#include "server/buffers.h"
#include "server/defrag.h"
#include "server/fiber.h"
#include "server/state.h"
#include "store/cut.h"

#define FLUSH_GRACE_NS UINT64_C(1000000000)
#define IDLE_TICKS     10u /* of pool_worker_idle */

static void thread_take_down(struct server_thread *thread)
{
    unsigned count = thread->fibers ? thread->server->options.fibers : 0;
    assert(!thread->fibers_live && !thread->connections);
    server_thread_publish(thread);
    for (unsigned i = 0; i < count; i++) {
        if (thread->fibers[i].store)
            store_session_destroy(thread->fibers[i].store);
        tree_session_destroy(thread->fibers[i].session);
    }
    free(thread->fibers);
    thread->fibers = NULL;
    pool_worker_destroy(thread->tree);
    thread->tree = NULL;
}

int server_thread_open_session(struct server_thread *thread, struct tree_session **session,
                               struct store_session **store, struct error *error)
{
    int status = tree_session_create(session, thread->server->compute, thread->tree, error);
    return status ? status : store_session_create(store, thread->server->store, *session, error);
}

static int thread_set_up(struct server_thread *thread, struct error *error)
{
    struct server *server = thread->server;
    int status = pool_worker_create(&thread->tree, tree_compute_pool(server->compute), error);
    if (status)
        return status;
    thread->fibers = calloc(server->options.fibers, sizeof *thread->fibers);
    if (!thread->fibers)
        return error_set(error, BANYAN_ENOMEM, "no memory for the fibers of a thread");
    for (unsigned i = 0; !status && i < server->options.fibers; i++) {
        thread->fibers[i].thread = thread;
        status =
            server_thread_open_session(thread, &thread->fibers[i].session, &thread->fibers[i].store, error);
        if (!status && server->options.durable) {
            thread->fibers[i].changes = durable_writer(server->options.durable, thread->number);
            store_session_set_changed(thread->fibers[i].store, feed_mark, &thread->fibers[i].changes);
            store_session_set_placed(thread->fibers[i].store, feed_mark_value);
        }
        if (!status)
            store_session_set_cancel(thread->fibers[i].store, fiber_cancelled, &thread->fibers[i]);
    }
    return status;
}

static int fiber_start(struct server_thread *thread, void (*function)(void *), void *argument,
                       struct error *error)
{
    if (worker_spawn(thread->worker, function, argument))
        return error_set(error, BANYAN_ENOMEM, "no memory for a fiber");
    thread->fibers_live++;
    return 0;
}

/* For benchmarks: the worker does not sleep while some fiber can run, and this one always can. */
static void busy_main(void *argument)
{
    struct server_thread *thread = argument;
    while (!thread->stopping)
        task_yield();
    thread->fibers_live--;
}

void server_thread_stop(void *argument)
{
    struct server_thread *thread = argument;
    if (thread->stopping)
        return;
    thread->stopping = true;
    if (thread->number == 0)
        listeners_close(thread->server);
    for (struct server_connection *connection = thread->connections, *next; connection; connection = next) {
        next = connection->next;
        if (!connection->running)
            connection_finish(connection);
    }
    while (thread->idle) {
        struct server_fiber *fiber = thread->idle;
        thread->idle = fiber->next_idle;
        fiber->idle = false;
        thread->woken++;
        task_unpark(fiber->task);
    }
}

/* By the time of this round, in which what clients had sent before has been read: they are not idle because
 * this thread was not at work, or was kept from running, since then. */
static void idle_clients_close(struct server_thread *thread)
{
    const uint64_t now = worker_round_ns(thread->worker);
    uint64_t timeout = atomic_load_relaxed(&thread->server->idle_timeout_s) * UINT64_C(1000000000);
    if (!timeout || now - thread->idle_checked_ns < 5 * SERVER_TICK_NS)
        return;
    thread->idle_checked_ns = now;
    for (struct server_connection *connection = thread->connections, *next; connection; connection = next) {
        next = connection->next;
        if (!connection->running && !connection->ready && now > connection->active_ns &&
            now - connection->active_ns > timeout)
            connection_close(connection);
    }
}

static void thread_tick(struct server_thread *thread)
{
    struct server *server = thread->server;
    uint64_t now = task_now();
    /* Acquire: see server.stopping. */
    if (atomic_load_acquire(&server->stopping))
        server_thread_stop(thread);
    idle_clients_close(thread);
    buffers_trim(thread);
    server_thread_publish(thread);
    if (thread->number)
        return;
    server_sample_rate(server, now);
    listeners_tick(server, now);
    while (store_cuts_tidy(server->store) && !thread->stopping)
        task_yield();
    if (server->options.tick)
        server->options.tick(server->options.tick_context);
}

/* Waits until the commands under way have ended, gives their replies some time to be sent, and closes all
 * connections. */
static void thread_wind_up(struct server_thread *thread)
{
    struct server *server = thread->server;
    while (thread->fibers_live)
        task_sleep(SERVER_TICK_NS / 100);
    uint64_t until = task_now() + FLUSH_GRACE_NS;
    while (thread->connections && task_now() < until)
        task_sleep(SERVER_TICK_NS / 100);
    for (struct server_connection *connection = thread->connections, *next; connection; connection = next) {
        next = connection->next;
        connection_close(connection);
    }
    while (thread->connections) /* the turn hook still holds some */
        task_sleep(SERVER_TICK_NS / 100);
    /* Release and acquire: a thread posts to others only before it is quiet, so after the wait nothing more
     * comes. */
    __atomic_fetch_add(&server->quiet_threads, 1u, __ATOMIC_ACQ_REL);
    while (atomic_load_acquire(&server->quiet_threads) < server->thread_count)
        task_sleep(SERVER_TICK_NS / 100);
}

static int thread_begin(struct server_thread *thread, struct error *error)
{
    struct server *server = thread->server;
    int status = thread_set_up(thread, error);
    for (unsigned i = 0; !status && i < server->options.fibers; i++)
        status = fiber_start(thread, fiber_main, &thread->fibers[i], error);
    if (!status && server->options.busy_poll)
        status = fiber_start(thread, busy_main, thread, error);
    if (status || thread->number)
        return status;
    if (server->options.sweep_entries != UINT32_MAX)
        status = fiber_start(thread, sweep_main, thread, error);
    if (!status)
        status = fiber_start(thread, defrag_main, thread, error);
    if (!status)
        status = fiber_start(thread, nodes_main, thread, error);
    /* Another thread could not be started: the listeners are closed already. */
    return status || thread->stopping ? status : listeners_watch(server, error);
}

/* Tells server_start how it went; the first error counts. */
static void start_report(struct server *server, const struct error *error)
{
    spinlock_lock(&server->start_lock);
    if (error->code && !server->start_error.code)
        server->start_error = *error;
    struct task *starter = server->starter;
    spinlock_unlock(&server->start_lock);
    __atomic_fetch_add(&server->started_threads, 1u, __ATOMIC_ACQ_REL);
    task_unpark(starter);
}

static void keeper_main(void *argument)
{
    struct server_thread *thread = argument;
    struct error error = {0};
    if (thread_begin(thread, &error))
        server_stop(thread->server);
    start_report(thread->server, &error);
    for (unsigned tick = 0; !thread->stopping; tick++) {
        thread_tick(thread);
        if (tick % IDLE_TICKS == 0)
            pool_worker_idle(thread->tree);
        if (!thread->stopping)
            task_sleep(SERVER_TICK_NS);
    }
    thread_wind_up(thread);
    thread_take_down(thread);
    worker_hook_remove(thread->worker, &thread->hook);
}

void server_thread_main(void *argument)
{
    struct server_thread *thread = argument;
    worker_run(thread->worker);
}

int server_thread_create(struct server_thread *thread, struct server *server, unsigned number,
                         struct error *error)
{
    thread->server = server;
    thread->number = number;
    thread->hook.turn = connections_turn;
    thread->worker = worker_create();
    thread->commands = calloc(command_table_count(server->table), sizeof *thread->commands);
    thread->spare = calloc(BUFFERS_SPARE_MAX, sizeof *thread->spare);
    thread->latency = histogram_create();
    thread->latency_before = histogram_create();
    if (!thread->worker || !thread->commands || !thread->spare || !thread->latency ||
        !thread->latency_before || worker_spawn(thread->worker, keeper_main, thread))
        return error_set(error, BANYAN_ENOMEM, "no memory for threads");
    worker_hook_add(thread->worker, &thread->hook);
    return 0;
}

void server_thread_destroy(struct server_thread *thread)
{
    worker_destroy(thread->worker);
    buffers_free_spare(thread);
    free(thread->commands);
    histogram_destroy(thread->latency);
    histogram_destroy(thread->latency_before);
}
