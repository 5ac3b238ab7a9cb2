/* connection_input.c - what a connection reads, and the buffer that it reads into; contract in connection.h.
 */
#include "server/connection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/buffers.h"
#include "server/eviction.h"
#include "server/ready_queue.h"
#include "server/state.h"

#define READ_MAX       (256u << 10) /* bytes of one read, at most */
#define BLOCK_SPARE    64u
#define RESTS_MAX      (256u << 10) /* bytes of rests that are read in a turn: less than so much, and a read */
#define ARGUMENTS_KEEP 64u          /* an idle connection keeps an array for so many */

void connection_trim_input(struct server_connection *connection)
{
    assert(!connection->running && connection->input_start <= connection->input_end);
    if (connection->input_start == connection->input_end) {
        buffer_give(connection->thread, connection->input, connection->input_capacity);
        connection->input = NULL;
        connection->input_start = connection->input_end = connection->input_capacity = 0;
    } else if (connection->input_start > connection->input_capacity / 2) {
        memmove(connection->input, connection->input + connection->input_start,
                connection->input_end - connection->input_start);
        connection->input_end -= connection->input_start;
        connection->input_start = 0;
    }
    struct resp_parser *parser = &connection->parser;
    if (parser->capacity > ARGUMENTS_KEEP && !parser->expected && !parser->at)
        resp_parser_free(parser);
    size_t bytes = parser->capacity > ARGUMENTS_KEEP ? parser->capacity * sizeof *parser->arguments : 0;
    if (bytes != connection->arguments_counted)
        buffer_account_large(connection->thread, connection->arguments_counted, bytes);
    connection->arguments_counted = bytes;
}

/* False: the connection is closed for want of memory. */
static bool input_enlarge(struct server_connection *connection, size_t capacity)
{
    struct server_thread *thread = connection->thread;
    char *larger =
        buffer_grow(thread, connection->input, connection->input_end, connection->input_capacity, capacity);
    if (!larger) {
        connection_close(connection);
        return false;
    }
    connection->input = larger;
    connection->input_capacity = capacity;
    eviction_grown(connection, connection_memory(connection));
    return true;
}

static bool input_grow(struct server_connection *connection)
{
    struct server_thread *thread = connection->thread;
    size_t most = thread->server->options.query_buffer_max, capacity = connection->input_capacity * 2;
    if (connection->input_capacity >= most) {
        connection_refuse(connection, "the request is longer than this server allows (value-max)");
        return false;
    }
    if (capacity > most)
        capacity = most;
    if (!input_enlarge(connection, capacity))
        return false;
    if (server_client_memory(thread->server) > thread->server->options.client_memory_max)
        evict(thread);
    return !connection->dead;
}

/* The last read has filled a block: where memory is plenty the next one takes the rest of what is there,
 * since requests of a pipeline that arrive one by one cost a reading, a sending and two changes of the watch
 * each. What the block has is run and answered before that, so that no pipeline's first reply waits until all
 * of the others' requests have been read. */
static void input_widen(struct server_connection *connection)
{
    struct server *server = connection->thread->server;
    if (connection->input_capacity <= BUFFER_BLOCK_BYTES && !connection->running && !connection->ready &&
        connection_authorized(connection) && server->options.query_buffer_max >= READ_MAX &&
        server_client_memory(server) + READ_MAX <= server->options.client_memory_max / 2)
        (void)input_enlarge(connection, READ_MAX);
}

/* Room for at least one byte. False: there is none for now, or the connection is closed. */
static bool input_room(struct server_connection *connection)
{
    if (!connection->input) {
        connection->input = buffer_take(connection->thread);
        if (!connection->input) {
            connection_close(connection);
            return false;
        }
        connection->input_capacity = BUFFER_BLOCK_BYTES;
    }
    if (connection->input_end < connection->input_capacity)
        return true;
    if (connection->running ||
        connection->ready) /* the arguments of the running command point into it, or there is enough to do */
        return false;
    if (!connection->input_start)
        return input_grow(connection);
    memmove(connection->input, connection->input + connection->input_start,
            connection->input_end - connection->input_start);
    connection->input_end -= connection->input_start;
    connection->input_start = 0;
    return true;
}

/* How many are asked for. A block that is full is watched no more, which would take two system calls: so it
 * does not become so by its first read. */
static size_t read_bytes(const struct server_connection *connection)
{
    const size_t room = connection->input_capacity - connection->input_end;
    if (room == BUFFER_BLOCK_BYTES)
        return room - BLOCK_SPARE;
    return room < READ_MAX ? room : READ_MAX;
}

void connection_read(struct server_connection *connection)
{
    enum net_status status = NET_OK;
    if (connection->more)
        input_widen(connection);
    while (!connection->dead && status == NET_OK && input_room(connection)) {
        const size_t wanted = read_bytes(connection);
        size_t length = 0;
        status =
            net_stream_read(connection->stream, connection->input + connection->input_end, wanted, &length);
        if (status == NET_OK) {
            connection->input_end += length;
            connection->bytes_in += length;
            connection_touch(connection);
            counter_add(&connection->thread->counters.bytes_in, length);
        }
        connection->more = length == wanted;
        if (connection->dead || !net_stream_pending(connection->stream))
            break;
    }
    if (connection->dead)
        return;
    if (status == NET_END)
        connection->ended = true;
    if (status == NET_FAILED)
        connection_close(connection);
    if (!connection->running && !connection->ready && connection->input_end == connection->input_start)
        connection_trim_input(connection);
    ready_queue_offer(connection);
}

void connection_read_fairly(struct server_connection *connection)
{
    struct server_thread *thread = connection->thread;
    if (!connection->more || connection->running || connection->ready ||
        net_stream_pending(connection->stream)) { /* no event reports what OpenSSL has */
        connection_read(connection);
        return;
    }
    if (connection->resting)
        return;
    connection->resting = true;
    connection->next_rest = NULL;
    if (thread->rest_last)
        thread->rest_last->next_rest = connection;
    else
        thread->rest_first = connection;
    thread->rest_last = connection;
}

void connections_read_rests(struct server_thread *thread)
{
    size_t bytes = 0;
    while (thread->rest_first && bytes < RESTS_MAX) {
        struct server_connection *connection = thread->rest_first;
        const uint64_t before = connection->bytes_in;
        thread->rest_first = connection->next_rest;
        if (!thread->rest_first)
            thread->rest_last = NULL;
        connection_hold(connection);
        connection->resting = false;
        if (!connection->dead && !connection->ended && !connection->finishing && !connection->blocked &&
            !connection->running && !connection->ready)
            connection_read(connection);
        bytes += connection->bytes_in - before;
        connection_watch(connection);
        connection_release(connection);
    }
}

void connection_read_pending(struct server_connection *connection)
{
    if (!connection->dead && !connection->ended && !connection->finishing && !connection->blocked &&
        !connection->running && !connection->ready &&
        (connection->more || net_stream_pending(connection->stream)))
        connection_read_fairly(connection);
}
