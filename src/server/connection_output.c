/* connection_output.c - a connection's replies, and how they are sent; contract in connection.h. */
#include "server/connection.h"

#include <assert.h>
#include <string.h>

#include "server/buffers.h"
#include "server/eviction.h"
#include "server/ready_queue.h"
#include "server/state.h"

size_t connection_unsent(const struct server_connection *connection)
{
    return connection->output.length - connection->sent;
}

bool connection_open_output(struct server_connection *connection)
{
    struct resp_writer *output = &connection->output;
    if (!output->bytes) {
        output->bytes = buffer_take(connection->thread);
        output->capacity = output->bytes ? BUFFER_BLOCK_BYTES : 0;
    }
    return output->bytes != NULL;
}

void connection_trim_output(struct server_connection *connection)
{
    struct resp_writer *output = &connection->output;
    if (connection->running || !connection->sent)
        return;
    if (connection->sent == output->length) {
        buffer_give(connection->thread, output->bytes, output->capacity);
        output->bytes = NULL;
        output->length = output->capacity = output->start = connection->sent = 0;
    } else if (connection->sent > BUFFER_BLOCK_BYTES && connection->sent >= output->length / 2) {
        memmove(output->bytes, output->bytes + connection->sent, connection_unsent(connection));
        output->length -= connection->sent;
        output->start = connection->sent = 0;
    }
}

static struct server_connection *connection_of_output(struct resp_writer *output)
{
    return (struct server_connection *)((char *)output - offsetof(struct server_connection, output));
}

/* All clients together stay within their limit: if no larger connection makes room, the reply becomes an
 * error. */
char *connection_grow_output(struct resp_writer *output, size_t capacity)
{
    struct server_connection *connection = connection_of_output(output);
    const size_t more = capacity - output->capacity;
    assert(capacity > output->capacity);
    if (!eviction_make_room(connection, more))
        return NULL;
    char *larger = buffer_grow(connection->thread, output->bytes, output->length, output->capacity, capacity);
    if (larger)
        eviction_grown(connection, connection_memory(connection) + more);
    return larger;
}

void connection_flush(struct server_connection *connection)
{
    size_t limit = connection->running ? connection->output.start : connection->output.length;
    if (connection->running && limit > connection->unsafe)
        limit = connection->unsafe;
    assert(connection->sent <= limit && limit <= connection->output.length);
    while (connection->sent < limit && !connection->dead) {
        size_t written = 0;
        enum net_status status =
            net_stream_write(connection->stream, connection->output.bytes + connection->sent,
                             limit - connection->sent, &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK) {
            connection_close(connection);
            return;
        }
        connection->sent += written;
        connection->bytes_out += written;
        connection_touch(connection);
        counter_add(&connection->thread->counters.bytes_out, written);
    }
    connection_trim_output(connection);
    if (connection->blocked && connection_unsent(connection) <= CONNECTION_OUTPUT_STOP) {
        connection->blocked = false;
        ready_queue_offer(connection);
    }
    if (connection->finishing && !connection_unsent(connection) && !connection->running)
        connection_close(connection);
}

void connection_flush_answered(struct server_connection *connection)
{
    struct resp_writer *output = &connection->output;
    assert(connection->running && output->start == output->length);
    connection_flush(connection);
    /* What waits for the disk is named by its place: connection->unsafe. */
    if (!connection->dead && connection->sent == output->length && connection->unsafe == SIZE_MAX)
        output->length = output->start = connection->sent = 0;
}

void connection_flush_later(struct server_connection *connection)
{
    if (connection->flushing)
        return;
    connection->flushing = true;
    connection->next_flush = connection->thread->flush;
    connection->thread->flush = connection;
}

static void flush_all(struct server_thread *thread)
{
    while (thread->flush) {
        struct server_connection *connection = thread->flush;
        thread->flush = connection->next_flush;
        connection_hold(connection);
        connection->flushing = false;
        if (!connection->dead)
            connection_flush(connection);
        connection_read_pending(connection);
        connection_watch(connection);
        connection_release(connection);
    }
}

void connections_turn(struct worker_hook *hook)
{
    struct server_thread *thread =
        (struct server_thread *)((char *)hook - offsetof(struct server_thread, hook));
    flush_all(thread);
    if (thread->rest_first && !thread->ready_first) {
        connections_read_rests(thread);
        flush_all(thread); /* what makes no sense is refused at once */
    }
}
