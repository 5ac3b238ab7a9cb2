/*
 * connection.c - the life of a connection, and the events that it asks for; contract in connection.h.
 *
 * A readable socket is read once and its connection queued (ready_queue.h); a fiber takes it and runs its
 * requests (fiber.h). Its replies are sent with one system call by the thread's turn hook, when no fiber can
 * run any more; long ones earlier (fiber.h). An idle connection owns no buffer.
 */
#include "server/connection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "server/buffers.h"
#include "server/ready_queue.h"
#include "server/state.h"
#include "store/cut.h"

bool connection_authorized(const struct server_connection *connection)
{
    return connection->authenticated || !password_wanted(&connection->thread->server->password);
}

const char *connection_address(const struct server_connection *connection)
{
    return strncmp(connection->peer, "tcp://", 6) == 0 ? connection->peer + 6 : connection->peer;
}

static void connection_ready(struct worker_watch *watch, uint32_t events);

bool connection_open(struct server_thread *thread, struct net_stream *stream, char *peer, bool unix_socket)
{
    struct server_connection *connection = calloc(1, sizeof *connection);
    if (!connection || worker_watch_add(thread->worker, &connection->watch, net_stream_fd(stream), EPOLLIN,
                                        connection_ready)) {
        free(connection);
        free(peer);
        net_stream_destroy(stream);
        return false;
    }
    connection->thread = thread;
    connection->stream = stream;
    connection->peer = peer;
    connection->unix_socket = unix_socket;
    connection->id = atomic_add_relaxed(&thread->server->next_client, 1) + 1;
    connection->created_ns = connection->active_ns = task_now();
    connection->last_command = "NULL";
    connection->authenticated = !password_wanted(&thread->server->password);
    resp_parser_init(&connection->parser);
    resp_writer_init(&connection->output, 2, thread->server->options.output_buffer_max);
    connection->output.grow = connection_grow_output;
    connection->next = thread->connections;
    if (connection->next)
        connection->next->previous = connection;
    thread->connections = connection;
    counter_add(&thread->counters.clients, 1);
    counter_add(&thread->counters.clients_total, 1);
    return true;
}

/* Frees a dead connection that nothing refers to any more. */
static void connection_reap(struct server_connection *connection)
{
    struct server_thread *thread = connection->thread;
    if (!connection->dead || connection->running || connection->ready || connection->flushing ||
        connection->resting || connection->held)
        return;
    assert(!connection->watch.worker && !connection->command_bytes);
    assert(thread->counters.clients);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        thread->connections = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    buffer_give(thread, connection->input, connection->input_capacity);
    buffer_give(thread, connection->output.bytes, connection->output.capacity);
    if (connection->arguments_counted)
        buffer_account_large(thread, connection->arguments_counted, 0);
    resp_parser_free(&connection->parser);
    store_cut_close(connection->cut);
    counter_add(&thread->counters.clients, (uint64_t)-1);
    atomic_add_relaxed(&thread->server->clients, (uint64_t)-1);
    net_stream_destroy(connection->stream);
    free(connection->name);
    free(connection->library);
    free(connection->library_version);
    free(connection->peer);
    free(connection);
}

/* Removes the watch, since one that asks for nothing would still report the end of the connection, again and
 * again. */
static void unwatch(struct server_connection *connection)
{
    if (connection->watch.worker)
        worker_watch_remove(&connection->watch);
    connection->watch.worker = NULL;
}

void connection_close(struct server_connection *connection)
{
    connection->dead = true;
    unwatch(connection);
    connection_reap(connection);
}

void connection_finish(struct server_connection *connection)
{
    connection->finishing = true;
    connection_flush_later(connection);
}

void connection_refuse(struct server_connection *connection, const char *text)
{
    assert(!connection->running); /* a fiber would write into the same reply */
    counter_add(&connection->thread->counters.input_errors, 1);
    if (!connection_open_output(connection)) {
        connection_close(connection);
        return;
    }
    resp_begin(&connection->output);
    resp_error(&connection->output, "ERR %s", text);
    resp_end(&connection->output);
    counter_add(&connection->thread->counters.errors, 1);
    connection_finish(connection);
}

void connection_hold(struct server_connection *connection)
{
    assert(connection->held < UINT8_MAX);
    connection->held++;
}

void connection_release(struct server_connection *connection)
{
    assert(connection->held);
    connection->held--;
    connection_reap(connection);
}

void connection_watch(struct server_connection *connection)
{
    if (connection->dead)
        return;
    bool busy = connection->running || connection->ready;
    bool reads = !connection->ended && !connection->finishing && !connection->blocked &&
                 (!busy || !connection->input || connection->input_end < connection->input_capacity);
    bool writes =
        connection->sent < (connection->running ? connection->output.start : connection->output.length);
    uint32_t events = reads || writes ? net_stream_wants(connection->stream, writes) : 0;
    int status = 0;
    if (!reads && (events & EPOLLOUT))
        events &= ~(uint32_t)EPOLLIN;
    if (!events)
        unwatch(connection);
    else if (!connection->watch.worker)
        status = worker_watch_add(connection->thread->worker, &connection->watch,
                                  net_stream_fd(connection->stream), events, connection_ready);
    else if (connection->watch.events != events)
        status = worker_watch_change(&connection->watch, events);
    if (status)
        connection_close(connection);
}

static void connection_ready(struct worker_watch *watch, uint32_t events)
{
    struct server_connection *connection = (struct server_connection *)watch;
    (void)events; /* reading and writing find out what is possible */
    connection_hold(connection);
    if (connection_unsent(connection))
        connection_flush(connection);
    if (!connection->dead && !connection->ended && !connection->finishing && !connection->blocked)
        connection_read_fairly(connection);
    connection_watch(connection);
    connection_release(connection);
}
