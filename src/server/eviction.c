/* eviction.c - see eviction.h. */
#include "server/eviction.h"

#include <assert.h>

#include "base/log.h"
#include "server/buffers.h"
#include "server/state.h"

uint64_t connection_memory(const struct server_connection *connection)
{
    return connection->input_capacity + connection->output.capacity +
           connection->parser.capacity * sizeof *connection->parser.arguments + connection->command_bytes;
}

void eviction_grown(const struct server_connection *connection, uint64_t bytes)
{
    if (!connection->no_evict && bytes > atomic_load_relaxed(&connection->thread->largest))
        atomic_store_relaxed(&connection->thread->largest, bytes);
}

/* The largest first; connections with CLIENT NO-EVICT last. */
static bool evicted_before(const struct server_connection *a, const struct server_connection *b)
{
    return a->no_evict != b->no_evict ? b->no_evict : connection_memory(a) > connection_memory(b);
}

/* Of those that are not dead, except `except` (may be NULL). NULL: there is none. */
static struct server_connection *largest_connection(const struct server_thread *thread,
                                                    const struct server_connection *except)
{
    struct server_connection *largest = NULL;
    for (struct server_connection *c = thread->connections; c; c = c->next)
        // cppcheck-suppress nullPointerRedundantCheck ; the condition has checked it
        if (!c->dead && c != except && (!largest || evicted_before(c, largest)))
            largest = c;
    return largest;
}

/* Memory of dead connections to which something still refers: it will be freed soon. */
static uint64_t condemned_memory(const struct server_thread *thread)
{
    uint64_t condemned = 0;
    for (struct server_connection *c = thread->connections; c; c = c->next)
        condemned += c->dead ? connection_memory(c) : 0;
    return condemned;
}

/* Returns the bytes that are freed only later, because something still refers to the connection; else 0. */
static uint64_t evict_one(struct server_connection *connection)
{
    struct server_thread *thread = connection->thread;
    bool later = connection->running || connection->ready || connection->flushing || connection->resting ||
                 connection->held;
    uint64_t bytes = connection_memory(connection);
    assert(!connection->dead);
    log_warning(
        "closing client %s: its buffers have %llu bytes, and those of all clients together more than %llu",
        connection->peer, (unsigned long long)bytes,
        (unsigned long long)thread->server->options.client_memory_max);
    counter_add(&thread->counters.clients_evicted, 1);
    connection_close(connection);
    return later ? bytes : 0;
}

static void evict_asked(void *argument)
{
    struct server_thread *thread = argument;
    atomic_store_relaxed(&thread->evicting, 0);
    evict(thread);
}

/* Asks the thread with the largest connection of all to evict. False: no other thread has one with more than
 * `bytes`. */
static bool evict_elsewhere(struct server_thread *thread, uint64_t bytes)
{
    struct server *server = thread->server;
    struct server_thread *victim = NULL;
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *other = &server->threads[i];
        uint64_t largest = other == thread ? 0 : atomic_load_relaxed(&other->largest);
        if (largest > bytes) {
            bytes = largest;
            victim = other;
        }
    }
    /* Relaxed: it orders nothing; at worst the thread is asked once more. */
    if (!victim || __atomic_exchange_n(&victim->evicting, 1u, __ATOMIC_RELAXED))
        return victim != NULL;
    if (!worker_post(victim->worker, evict_asked, victim))
        return true;
    atomic_store_relaxed(&victim->evicting, 0);
    return false;
}

/* Until other threads have done what they were asked for, memory may exceed its limit by a quarter. */
static uint64_t memory_most(const struct server *server)
{
    return server->options.client_memory_max + server->options.client_memory_max / 4;
}

void evict(struct server_thread *thread)
{
    struct server *server = thread->server;
    uint64_t condemned = condemned_memory(thread), memory;
    while ((memory = server_client_memory(server)) > server->options.client_memory_max + condemned) {
        struct server_connection *largest = largest_connection(thread, NULL);
        uint64_t bytes = largest ? connection_memory(largest) : 0;
        bool small = bytes <= 2 * BUFFER_BLOCK_BYTES;
        atomic_store_relaxed(&thread->largest, largest && !largest->no_evict ? bytes : 0);
        if ((small || memory <= memory_most(server) + condemned) && evict_elsewhere(thread, bytes))
            return;
        if (small)
            return;
        condemned += evict_one(largest);
    }
}

bool eviction_make_room(struct server_connection *connection, uint64_t more)
{
    struct server_thread *thread = connection->thread;
    struct server *server = thread->server;
    uint64_t memory = server_client_memory(server) + more, bytes = connection_memory(connection) + more;
    if (memory <= server->options.client_memory_max)
        return true;
    uint64_t condemned = condemned_memory(thread);
    while (memory > server->options.client_memory_max + condemned) {
        struct server_connection *largest = largest_connection(thread, connection);
        if (!largest || largest->no_evict || connection_memory(largest) <= bytes)
            return memory <= memory_most(server) + condemned && evict_elsewhere(thread, bytes);
        condemned += evict_one(largest);
        memory = server_client_memory(server) + more;
    }
    return true;
}

bool connection_reserve(struct server_call *call, size_t from, size_t to)
{
    struct server_connection *connection = call->connection;
    assert(connection->running && connection->command_bytes >= from);
    if (to > from && !eviction_make_room(connection, to - from))
        return false;
    buffer_account_large(connection->thread, from, to);
    connection->command_bytes += to - from;
    if (to > from)
        eviction_grown(connection, connection_memory(connection));
    return true;
}
