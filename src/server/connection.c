/*
 * connection.c - one connection of the RESP server: its buffers, its pipeline, its limits. Contract and the
 * rules of who touches what: connection.h.
 *
 * A readable socket is read once and its client queued; a fiber takes it and runs its complete requests in
 * order, up to a slice; its replies are sent by the thread's turn hook, when no fiber can run any more, with
 * one system call. Idle clients own no buffer. Runs of point reads are looked up together, and runs of plain
 * SETs are done together, so that their round trips overlap, or where the pool is mapped their cache misses
 * (measured there with a million keys: 0.65 instead of 1.05 us of CPU for a GET in a pipeline of 16). The
 * client sees one order, its own; somebody else may see a later SET of a run before an earlier one of another
 * key. Errors of the connection close it; the
 * others do not notice.
 */
#include "server/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/arguments.h"
#include "server/replies.h"

#define READ_MAX       (256u << 10) /* bytes of one read */
#define SPARE_MAX      256u         /* blocks that a thread keeps */
#define INLINE_MAX     65536u
#define ARGUMENTS_MAX  1048576u
#define ARGUMENTS_KEEP 64u /* an idle client keeps an array for so many */
/* Before AUTH, as Redis has it. */
#define STRANGER_BULK_MAX      16384u
#define STRANGER_ARGUMENTS_MAX 10u

/* ---- buffers and their account ---- */

static void large_add(struct server_thread *thread, size_t from, size_t to)
{
    counter_add(&thread->counters.large, (uint64_t)to - (uint64_t)from);
}

static char *block_take(struct server_thread *thread)
{
    char *block = thread->spare_count ? thread->spare[--thread->spare_count] : malloc(CLIENT_BLOCK_BYTES);
    if (block)
        counter_add(&thread->counters.blocks, 1);
    return block;
}

/* Of whatever size it has grown to. */
static void buffer_give(struct server_thread *thread, char *buffer, size_t capacity)
{
    if (!buffer)
        return;
    if (capacity != CLIENT_BLOCK_BYTES) {
        large_add(thread, capacity, 0);
        free(buffer);
        return;
    }
    counter_add(&thread->counters.blocks, (uint64_t)-1);
    if (thread->spare_count < SPARE_MAX)
        thread->spare[thread->spare_count++] = buffer;
    else
        free(buffer);
}

/* A buffer changes its size: from a block to more, or further. */
static void buffer_account(struct server_thread *thread, size_t from, size_t to)
{
    if (from == CLIENT_BLOCK_BYTES)
        counter_add(&thread->counters.blocks, (uint64_t)-1);
    else
        large_add(thread, from, 0);
    if (to == CLIENT_BLOCK_BYTES)
        counter_add(&thread->counters.blocks, 1);
    else
        large_add(thread, 0, to);
}

void client_spare_free(struct server_thread *thread)
{
    while (thread->spare_count)
        free(thread->spare[--thread->spare_count]);
    free(thread->spare);
    thread->spare = NULL;
}

uint64_t client_memory(const struct server_client *client)
{
    return client->input_capacity + client->output.capacity +
           client->parser.capacity * sizeof *client->parser.arguments;
}

static struct server_client *client_of_output(struct resp_writer *output)
{
    return (struct server_client *)((char *)output - offsetof(struct server_client, output));
}

static void client_grown(const struct server_client *client, uint64_t bytes)
{
    if (!client->no_evict && bytes > atomic_load_relaxed(&client->thread->largest))
        atomic_store_relaxed(&client->thread->largest, bytes);
}

static bool memory_make_room(struct server_client *client, uint64_t more);

/* The output may grow while all clients together stay within their limit; a reply for which there is no room,
 * though no larger client has any, becomes an error. */
static bool output_grow(struct resp_writer *output, size_t from, size_t to)
{
    struct server_client *client = client_of_output(output);
    if (to > from && !memory_make_room(client, to - from))
        return false;
    buffer_account(client->thread, from, to);
    if (to > from)
        client_grown(client, client_memory(client) + (to - from));
    return true;
}

static size_t unsent(const struct server_client *client)
{
    return client->output.length - client->sent;
}

/* Forgets what has been sent; a buffer with nothing in it goes back. Not while a fiber writes into it. */
static void output_trim(struct server_client *client)
{
    struct resp_writer *output = &client->output;
    if (client->running || !client->sent)
        return;
    if (client->sent == output->length) {
        buffer_give(client->thread, output->bytes, output->capacity);
        output->bytes = NULL;
        output->length = output->capacity = output->start = client->sent = 0;
    } else if (client->sent > CLIENT_BLOCK_BYTES && client->sent >= output->length / 2) {
        memmove(output->bytes, output->bytes + client->sent, unsent(client));
        output->length -= client->sent;
        output->start = client->sent = 0;
    }
}

static bool output_ready(struct server_client *client)
{
    struct resp_writer *output = &client->output;
    if (!output->bytes) {
        output->bytes = block_take(client->thread);
        output->capacity = output->bytes ? CLIENT_BLOCK_BYTES : 0;
    }
    return output->bytes != NULL;
}

static void input_trim(struct server_client *client)
{
    if (client->input_start == client->input_end) {
        buffer_give(client->thread, client->input, client->input_capacity);
        client->input = NULL;
        client->input_start = client->input_end = client->input_capacity = 0;
    } else if (client->input_start > client->input_capacity / 2) {
        memmove(client->input, client->input + client->input_start, client->input_end - client->input_start);
        client->input_end -= client->input_start;
        client->input_start = 0;
    }
    struct resp_parser *parser = &client->parser;
    if (parser->capacity > ARGUMENTS_KEEP && !parser->expected && !parser->at)
        resp_parser_free(parser);
    size_t bytes = parser->capacity > ARGUMENTS_KEEP ? parser->capacity * sizeof *parser->arguments : 0;
    if (bytes != client->arguments_counted)
        large_add(client->thread, client->arguments_counted, bytes);
    client->arguments_counted = bytes;
}

/* ---- life ---- */

static void client_ready(struct worker_watch *watch, uint32_t events);
static void unwatch(struct server_client *client);

bool client_open(struct server_thread *thread, struct net_stream *stream, char *peer, bool unix_socket)
{
    struct server_client *client = calloc(1, sizeof *client);
    if (!client ||
        worker_watch_add(thread->worker, &client->watch, net_stream_fd(stream), EPOLLIN, client_ready)) {
        free(client);
        free(peer);
        net_stream_destroy(stream);
        return false;
    }
    client->thread = thread;
    client->stream = stream;
    client->peer = peer;
    client->unix_socket = unix_socket;
    client->id = atomic_add_relaxed(&thread->server->next_client, 1) + 1;
    client->created_ns = client->active_ns = task_now();
    client->last_command = "NULL";
    client->authenticated = !atomic_load_relaxed(&thread->server->guarded);
    resp_parser_init(&client->parser);
    resp_writer_init(&client->output, 2, thread->server->options.output_buffer_max);
    client->output.grow = output_grow;
    client->next = thread->clients;
    if (client->next)
        client->next->previous = client;
    thread->clients = client;
    counter_add(&thread->counters.clients, 1);
    counter_add(&thread->counters.clients_total, 1);
    return true;
}

/* Frees it, unless somebody still has it in hand. */
static void client_reap(struct server_client *client)
{
    struct server_thread *thread = client->thread;
    if (!client->dead || client->running || client->ready || client->flushing || client->held)
        return;
    if (client->previous)
        client->previous->next = client->next;
    else
        thread->clients = client->next;
    if (client->next)
        client->next->previous = client->previous;
    buffer_give(thread, client->input, client->input_capacity);
    buffer_give(thread, client->output.bytes, client->output.capacity);
    if (client->arguments_counted)
        large_add(thread, client->arguments_counted, 0);
    resp_parser_free(&client->parser);
    counter_add(&thread->counters.clients, (uint64_t)-1);
    atomic_add_relaxed(&thread->server->clients, (uint64_t)-1);
    net_stream_destroy(client->stream);
    free(client->name);
    free(client->library);
    free(client->library_version);
    free(client->peer);
    free(client);
}

void client_close(struct server_client *client)
{
    client->dead = true;
    unwatch(client);
    client_reap(client);
}

static void flush_later(struct server_client *client)
{
    if (client->flushing)
        return;
    client->flushing = true;
    client->next_flush = client->thread->flush;
    client->thread->flush = client;
}

void client_finish(struct server_client *client)
{
    client->finishing = true;
    flush_later(client);
}

/* Without a watch: with one that asks for nothing, the end of a connection would be reported again and again.
 */
static void unwatch(struct server_client *client)
{
    if (client->watch.worker)
        worker_watch_remove(&client->watch);
    client->watch.worker = NULL;
}

/* Asks for the events that this client can use now. */
static void watch_update(struct server_client *client)
{
    if (client->dead)
        return;
    bool busy = client->running || client->ready;
    bool reads = !client->ended && !client->finishing && !client->blocked &&
                 (!busy || !client->input || client->input_end < client->input_capacity);
    bool writes = client->sent < (client->running ? client->output.start : client->output.length);
    uint32_t events = reads || writes ? net_stream_wants(client->stream, writes) : 0;
    int status = 0;
    if (!reads && (events & EPOLLOUT))
        events &= ~(uint32_t)EPOLLIN;
    if (!events)
        unwatch(client);
    else if (!client->watch.worker)
        status = worker_watch_add(client->thread->worker, &client->watch, net_stream_fd(client->stream),
                                  events, client_ready);
    else if (client->watch.events != events)
        status = worker_watch_change(&client->watch, events);
    if (status)
        client_close(client);
}

/* ---- the queue of clients with requests ---- */

static void fiber_wake(struct server_thread *thread)
{
    struct server_fiber *fiber = thread->idle;
    if (!fiber || thread->woken)
        return;
    thread->idle = fiber->next_idle;
    fiber->idle = false;
    thread->woken++;
    task_unpark(fiber->task);
}

static void queue_put(struct server_client *client)
{
    struct server_thread *thread = client->thread;
    client->ready = true;
    client->next_ready = NULL;
    if (thread->ready_tail)
        thread->ready_tail->next_ready = client;
    else
        thread->ready_head = client;
    thread->ready_tail = client;
    fiber_wake(thread);
}

static struct server_client *queue_take(struct server_thread *thread)
{
    struct server_client *client = thread->ready_head;
    if (!client)
        return NULL;
    thread->ready_head = client->next_ready;
    if (!thread->ready_head)
        thread->ready_tail = NULL;
    client->ready = false;
    return client;
}

/* Whether there is something for a fiber to do. */
static void queue_maybe(struct server_client *client)
{
    size_t there = client->input_end - client->input_start;
    if (client->dead || client->running || client->ready || client->finishing || client->blocked)
        return;
    if (client->ended || (there && there >= client->parser.wanted))
        queue_put(client);
}

/* ---- reading ---- */

/* A protocol error, or a limit: says so and hangs up. */
static void client_refuse(struct server_client *client, const char *text)
{
    counter_add(&client->thread->counters.input_errors, 1);
    if (!output_ready(client)) {
        client_close(client);
        return;
    }
    resp_begin(&client->output);
    resp_error(&client->output, "ERR %s", text);
    resp_end(&client->output);
    counter_add(&client->thread->counters.errors, 1);
    client_finish(client);
}

static bool input_grow(struct server_client *client)
{
    struct server_thread *thread = client->thread;
    size_t most = thread->server->options.query_buffer_max, capacity = client->input_capacity * 2;
    if (client->input_capacity >= most) {
        client_refuse(client, "the request is longer than this server's query-buffer-max allows");
        return false;
    }
    if (capacity > most)
        capacity = most;
    char *larger = realloc(client->input, capacity);
    if (!larger) {
        client_close(client);
        return false;
    }
    buffer_account(thread, client->input_capacity, capacity);
    client->input = larger;
    client->input_capacity = capacity;
    client_grown(client, client_memory(client));
    if (server_client_memory(thread->server) > thread->server->options.client_memory_max)
        client_evict(thread);
    return !client->dead;
}

/* Room for at least one byte. False: none for now, or the client is gone. */
static bool input_room(struct server_client *client)
{
    if (!client->input) {
        client->input = block_take(client->thread);
        if (!client->input) {
            client_close(client);
            return false;
        }
        client->input_capacity = CLIENT_BLOCK_BYTES;
    }
    if (client->input_end < client->input_capacity)
        return true;
    if (client->running || client->ready) /* arguments point into it, or there is enough to do */
        return false;
    if (!client->input_start)
        return input_grow(client);
    memmove(client->input, client->input + client->input_start, client->input_end - client->input_start);
    client->input_end -= client->input_start;
    client->input_start = 0;
    return true;
}

static void client_hold(struct server_client *client)
{
    client->held++;
}

/* The client may be gone afterwards. */
static void client_release(struct server_client *client)
{
    client->held--;
    client_reap(client);
}

/* Takes what is there now. The caller holds the client. */
static void client_read(struct server_client *client)
{
    enum net_status status = NET_OK;
    while (status == NET_OK && input_room(client)) {
        size_t length = 0, room = client->input_capacity - client->input_end;
        status = net_stream_read(client->stream, client->input + client->input_end,
                                 room < READ_MAX ? room : READ_MAX, &length);
        if (status == NET_OK) {
            client->input_end += length;
            client->bytes_in += length;
            client->active_ns = task_now();
            counter_add(&client->thread->counters.bytes_in, length);
        }
        if (!net_stream_pending(client->stream))
            break;
    }
    if (status == NET_END)
        client->ended = true;
    if (status == NET_FAILED)
        client_close(client);
    if (!client->running && !client->ready && client->input_end == client->input_start)
        input_trim(client);
    queue_maybe(client);
}

/* What OpenSSL has decrypted while there was no room for it: no event tells of it. The caller holds the
 * client.
 */
static void client_read_pending(struct server_client *client)
{
    if (!client->dead && !client->ended && !client->finishing && !client->blocked && !client->running &&
        !client->ready && net_stream_pending(client->stream))
        client_read(client);
}

static void client_flush(struct server_client *client);

static void client_ready(struct worker_watch *watch, uint32_t events)
{
    struct server_client *client = (struct server_client *)watch;
    (void)events; /* what can be done is found out by doing it */
    client_hold(client);
    if (unsent(client))
        client_flush(client);
    if (!client->dead && !client->ended && !client->finishing && !client->blocked)
        client_read(client);
    watch_update(client);
    client_release(client);
}

/* ---- sending ---- */

static void client_flush(struct server_client *client)
{
    size_t limit = client->running ? client->output.start : client->output.length;
    while (client->sent < limit && !client->dead) {
        size_t written = 0;
        enum net_status status = net_stream_write(client->stream, client->output.bytes + client->sent,
                                                  limit - client->sent, &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK) {
            client_close(client);
            return;
        }
        client->sent += written;
        client->bytes_out += written;
        client->active_ns = task_now();
        counter_add(&client->thread->counters.bytes_out, written);
    }
    output_trim(client);
    if (client->blocked && unsent(client) <= CLIENT_OUTPUT_STOP) {
        client->blocked = false;
        queue_maybe(client);
    }
    if (client->finishing && !unsent(client) && !client->running)
        client_close(client);
}

void client_turn(struct worker_hook *hook)
{
    struct server_thread *thread =
        (struct server_thread *)((char *)hook - offsetof(struct server_thread, hook));
    while (thread->flush) {
        struct server_client *client = thread->flush;
        thread->flush = client->next_flush;
        client_hold(client);
        client->flushing = false;
        if (!client->dead)
            client_flush(client);
        client_read_pending(client);
        watch_update(client);
        client_release(client);
    }
}

/* ---- limits of all clients together ---- */

/* The largest first; those that have asked not to be evicted last. */
static bool evicted_before(const struct server_client *a, const struct server_client *b)
{
    return a->no_evict != b->no_evict ? b->no_evict : client_memory(a) > client_memory(b);
}

/* NULL: there is none but those that are dead, and `except`. */
static struct server_client *largest_client(const struct server_thread *thread,
                                            const struct server_client *except)
{
    struct server_client *largest = NULL;
    for (struct server_client *c = thread->clients; c; c = c->next)
        // cppcheck-suppress nullPointerRedundantCheck ; the loop has judged it
        if (!c->dead && c != except && (!largest || evicted_before(c, largest)))
            largest = c;
    return largest;
}

/* Memory that is on its way back: somebody has these clients in hand. */
static uint64_t condemned_memory(const struct server_thread *thread)
{
    uint64_t condemned = 0;
    for (struct server_client *c = thread->clients; c; c = c->next)
        condemned += c->dead ? client_memory(c) : 0;
    return condemned;
}

/* Returns what comes back only later. */
static uint64_t evict_one(struct server_client *client)
{
    struct server_thread *thread = client->thread;
    bool later = client->running || client->ready || client->flushing || client->held;
    uint64_t bytes = client_memory(client);
    log_warning("closing client %s: its buffers have %llu bytes, all clients' more than %llu", client->peer,
                (unsigned long long)bytes, (unsigned long long)thread->server->options.client_memory_max);
    counter_add(&thread->counters.clients_evicted, 1);
    client_close(client);
    return later ? bytes : 0;
}

static void evict_asked(void *argument)
{
    struct server_thread *thread = argument;
    atomic_store_relaxed(&thread->evicting, 0);
    client_evict(thread);
}

/* Asks the thread with the largest client of all to evict. False: there is none with more than `bytes`. */
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

/* Until other threads have done what they were asked for, memory may be a quarter more than its limit. */
static uint64_t memory_most(const struct server *server)
{
    return server->options.client_memory_max + server->options.client_memory_max / 4;
}

void client_evict(struct server_thread *thread)
{
    struct server *server = thread->server;
    uint64_t condemned = condemned_memory(thread), memory;
    while ((memory = server_client_memory(server)) > server->options.client_memory_max + condemned) {
        struct server_client *largest = largest_client(thread, NULL);
        uint64_t bytes = largest ? client_memory(largest) : 0;
        bool small = bytes <= 2 * CLIENT_BLOCK_BYTES;
        atomic_store_relaxed(&thread->largest, largest && !largest->no_evict ? bytes : 0);
        if ((small || memory <= memory_most(server) + condemned) && evict_elsewhere(thread, bytes))
            return;
        if (small)
            return;
        condemned += evict_one(largest);
    }
}

/* For more output of a client: larger ones go. False: there are none. */
static bool memory_make_room(struct server_client *client, uint64_t more)
{
    struct server_thread *thread = client->thread;
    struct server *server = thread->server;
    uint64_t memory = server_client_memory(server) + more, bytes = client_memory(client) + more;
    if (memory <= server->options.client_memory_max)
        return true;
    uint64_t condemned = condemned_memory(thread);
    while (memory > server->options.client_memory_max + condemned) {
        struct server_client *largest = largest_client(thread, client);
        if (!largest || largest->no_evict || client_memory(largest) <= bytes)
            return memory <= memory_most(server) + condemned && evict_elsewhere(thread, bytes);
        condemned += evict_one(largest);
        memory = server_client_memory(server) + more;
    }
    return true;
}

/* ---- running requests ---- */

static bool authorized(const struct server_client *client)
{
    return client->authenticated || !atomic_load_relaxed(&client->thread->server->guarded);
}

static uint64_t wall_clock(struct server_fiber *fiber, uint64_t now_ns)
{
    if (now_ns - fiber->clock_ns >= 1000000) {
        fiber->clock_ms = clock_wall_ms();
        fiber->clock_ns = now_ns;
    }
    return fiber->clock_ms;
}

/* Before and after each command. */
static uint64_t reply_begin(struct server_client *client)
{
    resp_begin(&client->output);
    return client->output.errors;
}

static void reply_end(struct server_fiber *fiber, struct server_client *client,
                      const struct server_call *call, unsigned index, uint64_t errors, uint64_t nanoseconds)
{
    struct server_thread *thread = fiber->thread;
    resp_end(&client->output);
    if (client->output.overflow)
        client->dead = true; /* a reply is missing, and there is no memory to say so */
    bool failed = client->output.errors != errors;
    if (client->reply == CLIENT_REPLY_OFF || client->skip == 1)
        client->output.length = client->output.start;
    client->output.start = client->output.length;
    if (client->skip)
        client->skip--;
    client->commands++;
    counter_add(&thread->counters.commands, 1);
    if (failed)
        counter_add(&thread->counters.errors, 1);
    if (call->hits)
        counter_add(&thread->counters.hits, call->hits);
    if (call->misses)
        counter_add(&thread->counters.misses, call->misses);
    if (fiber->latencies < CLIENT_SLICE)
        fiber->latency[fiber->latencies++] = nanoseconds;
    if (!call->command)
        return;
    struct server_command_counter *counter = &thread->commands[index];
    counter_add(&counter->calls, 1);
    counter_add(&counter->nanoseconds, nanoseconds);
    if (failed)
        counter_add(&counter->failed, 1);
}

static uint64_t execute(struct server_fiber *fiber, struct server_client *client,
                        const struct client_request *request, const struct resp_argument *arguments,
                        uint64_t begin)
{
    struct server_call call = {.client = client,
                               .store = fiber->store,
                               .reply = &client->output,
                               .arguments = arguments,
                               .count = request->count,
                               .now_ms = wall_clock(fiber, begin),
                               .command = request->command,
                               .cursors = fiber->thread->server->cursors};
    uint64_t errors = reply_begin(client);
    if (!request->command) {
        server_reply_unknown(&call);
    } else if (!command_arity_allows(request->command->arity, request->count)) {
        server_reply_arity(&call);
    } else if (!(request->command->flags & SERVER_NO_AUTH) && !authorized(client)) {
        resp_error(&client->output, "NOAUTH Authentication required.");
    } else {
        client->last_command = request->command->name;
        command_run(&call);
    }
    uint64_t end = task_now();
    reply_end(fiber, client, &call, request->index, errors, end - begin);
    return end;
}

static bool key_valid(const struct server_fiber *fiber, const struct resp_argument *key)
{
    return key->length && key->length <= store_key_max(fiber->store);
}

/* What may stand in one batch: requests of the same kind. 0: runs by itself. */
enum batch_kind {
    BATCH_NONE = 0,
    BATCH_VALUES = SERVER_POINT_VALUE,
    BATCH_LENGTHS = SERVER_POINT_LENGTH,
    BATCH_PUTS = SERVER_PUT,
};

static enum batch_kind batch_kind(const struct server_client *client, const struct server_command *command,
                                  uint32_t count)
{
    if (!command || count > CLIENT_BATCH_ARGS || !command_arity_allows(command->arity, count) ||
        client->reply != CLIENT_REPLY_ON || client->skip || !authorized(client))
        return BATCH_NONE;
    if (command->flags & SERVER_PUT)
        return count == 3 ? BATCH_PUTS : BATCH_NONE;
    if (!command->point || (command->run && count != 2)) /* of many keys it is no point read */
        return BATCH_NONE;
    return command->flags & SERVER_POINT_VALUE ? BATCH_VALUES : BATCH_LENGTHS;
}

/* The requests with a valid key become items, in order. */
static uint32_t batch_items(struct server_fiber *fiber, uint32_t count)
{
    uint32_t items = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct resp_argument *key = &fiber->batch[i].arguments[1], *value = key + 1;
        if (!key_valid(fiber, key))
            continue;
        struct store_item *item = &fiber->items[items++];
        *item = (struct store_item){.key = key->bytes, .key_length = key->length};
        if (fiber->batch_kind == BATCH_PUTS)
            item->value =
                (struct store_value){.bytes = (const uint8_t *)value->bytes, .length = value->length};
    }
    return items;
}

static void batch_reply(struct server_call *call, enum batch_kind kind, const struct store_item *item)
{
    if (item->status && (kind == BATCH_PUTS || item->status != BANYAN_ENOTFOUND))
        server_reply_failure(call, item->status);
    else if (kind == BATCH_PUTS)
        resp_simple(call->reply, "OK");
    else
        call->command->point(call, item->status ? NULL : &item->value);
}

/* This request and what follows it is parsed and run again: its turn has not come. */
static void batch_rewind(struct server_client *client, const struct client_request *request)
{
    client->input_start = request->start;
    resp_parser_restart(&client->parser);
}

/* Looks the gathered point reads up together, or does the gathered puts, and answers them in order. False:
 * their values were too much at once, the input begins with the first request that has no reply yet. */
static bool batch_execute(struct server_fiber *fiber, struct server_client *client, uint64_t *now)
{
    uint32_t count = fiber->batch_count;
    enum batch_kind kind = fiber->batch_kind;
    uint64_t begin = *now;
    fiber->batch_count = 0;
    if (!count)
        return true;
    if (count == 1) {
        *now = execute(fiber, client, &fiber->batch[0], fiber->batch[0].arguments, begin);
        return true;
    }
    uint32_t items = batch_items(fiber, count);
    if (items && kind == BATCH_PUTS)
        store_multi_put(fiber->store, fiber->items, items);
    else if (items)
        store_multi_get(fiber->store, fiber->items, items, kind == BATCH_VALUES);
    *now = task_now();
    uint64_t each = (*now - begin) / count, now_ms = wall_clock(fiber, *now);
    const struct store_item *item = fiber->items;
    for (uint32_t i = 0; i < count; i++) {
        const struct client_request *request = &fiber->batch[i];
        bool valid = key_valid(fiber, &request->arguments[1]);
        if (valid && kind != BATCH_PUTS && item->status == BANYAN_ENOMEM && item != fiber->items) {
            batch_rewind(client, request);
            return false;
        }
        struct server_call call = {.client = client,
                                   .store = fiber->store,
                                   .reply = &client->output,
                                   .arguments = request->arguments,
                                   .count = request->count,
                                   .now_ms = now_ms,
                                   .command = request->command,
                                   .cursors = fiber->thread->server->cursors};
        uint64_t errors = reply_begin(client);
        if (server_argument_key(&call, &request->arguments[1]))
            batch_reply(&call, kind, item++);
        reply_end(fiber, client, &call, request->index, errors, each);
    }
    client->last_command = fiber->batch[count - 1].command->name;
    return true;
}

/* An inline request with quotes is not what it was once it has been parsed. */
static bool parsed_again(const char *text, size_t length)
{
    return *text == '*' || !(memchr(text, '"', length) || memchr(text, '\'', length));
}

/* Runs the request that has just been parsed, or puts it to those that go together. It began at `start` of
 * the client's input. */
static void client_request(struct server_fiber *fiber, struct server_client *client, size_t start,
                           uint64_t *now)
{
    const struct resp_parser *parser = &client->parser;
    struct client_request request = {.count = parser->count, .start = start};
    request.command = command_table_find(fiber->thread->server->table, parser->arguments[0].bytes,
                                         parser->arguments[0].length, &request.index);
    enum batch_kind kind = BATCH_NONE;
    if (parsed_again(client->input + start, client->input_start - start))
        kind = batch_kind(client, request.command, request.count);
    if (!kind) {
        if (batch_execute(fiber, client, now))
            *now = execute(fiber, client, &request, parser->arguments, *now);
        return;
    }
    if ((fiber->batch_count == CLIENT_BATCH_MAX || (fiber->batch_count && fiber->batch_kind != kind)) &&
        !batch_execute(fiber, client, now))
        return;
    struct client_request *place = &fiber->batch[fiber->batch_count++];
    fiber->batch_kind = kind;
    place->command = request.command;
    place->index = request.index;
    place->count = request.count;
    place->start = start;
    memcpy(place->arguments, parser->arguments, request.count * sizeof *parser->arguments);
}

static void client_limits(const struct server_client *client, struct resp_limits *limits)
{
    const struct server *server = client->thread->server;
    limits->unauthenticated = !authorized(client);
    limits->bulk_max = limits->unauthenticated ? STRANGER_BULK_MAX : atomic_load_relaxed(&server->value_max);
    limits->arguments_max = limits->unauthenticated ? STRANGER_ARGUMENTS_MAX : ARGUMENTS_MAX;
    limits->inline_max = INLINE_MAX;
}

/* Complete requests, in order, up to a slice; what stopped it: RESP_COMPLETE: the slice is used up, or the
 * client may not go on. */
static enum resp_status slice_run(struct server_fiber *fiber, struct server_client *client, uint64_t *now)
{
    enum resp_status status = RESP_COMPLETE;
    for (uint32_t done = 0; done < CLIENT_SLICE; done++) {
        struct resp_limits limits;
        size_t consumed = 0;
        if (client->dead || client->finishing || fiber->thread->stopping)
            return RESP_COMPLETE;
        if (unsent(client) > CLIENT_OUTPUT_STOP) {
            client->blocked = true;
            return RESP_COMPLETE;
        }
        client_limits(client, &limits);
        status = resp_parse(&client->parser, &limits, client->input + client->input_start,
                            client->input_end - client->input_start, &consumed);
        if (status != RESP_COMPLETE && status != RESP_EMPTY)
            return status;
        size_t start = client->input_start;
        client->input_start += consumed;
        if (status == RESP_COMPLETE)
            client_request(fiber, client, start, now);
    }
    return RESP_COMPLETE;
}

/* Adds the slice's latencies to the thread's; the halves of the last minute take turns. */
static void latencies_record(struct server_fiber *fiber, uint64_t now)
{
    struct server_thread *thread = fiber->thread;
    if (!fiber->latencies)
        return;
    spinlock_lock(&thread->lock);
    if (now - thread->latency_turned_ns > UINT64_C(30000000000)) {
        struct histogram *old = thread->latency_before;
        thread->latency_before = thread->latency;
        thread->latency = old;
        histogram_reset(old);
        thread->latency_turned_ns = now;
    }
    for (uint32_t i = 0; i < fiber->latencies; i++)
        histogram_record(thread->latency, fiber->latency[i]);
    spinlock_unlock(&thread->lock);
    fiber->latencies = 0;
}

/* The fiber has let go of the client: what happens with it next. The caller holds it. */
static void client_settle(struct server_client *client, enum resp_status status)
{
    if (client->dead || status == RESP_NO_MEMORY) {
        client_close(client);
        return;
    }
    if (status == RESP_BROKEN)
        client_refuse(client, client->parser.error);
    /* More may have come while the last command was run. */
    size_t there = client->input_end - client->input_start;
    if (client->thread->stopping ||
        (status == RESP_MORE && client->ended && (!there || there < client->parser.wanted)))
        client->finishing = true;
    input_trim(client);
    queue_maybe(client); /* also where nothing is there but the end of the input, which a slice did not see */
    if (unsent(client) || client->finishing) {
        flush_later(client); /* that asks for what the client needs next */
        return;
    }
    output_trim(client);
    client_read_pending(client);
    watch_update(client);
}

/* Returns how many commands were run. */
static uint32_t client_run(struct server_fiber *fiber, struct server_client *client)
{
    uint64_t now = task_now();
    enum resp_status status = RESP_NO_MEMORY;
    client->running = true;
    fiber->client = client;
    client->active_ns = now;
    client->output.start = client->output.length;
    fiber->batch_count = 0;
    if (client->input_end == client->input_start)
        status = RESP_MORE;
    else if (output_ready(client))
        status = slice_run(fiber, client, &now);
    if (!batch_execute(fiber, client, &now) && status == RESP_MORE)
        status = RESP_COMPLETE;
    uint32_t commands = fiber->latencies;
    latencies_record(fiber, now);
    fiber->client = NULL;
    store_session_rest(fiber->store);
    client_hold(client);
    client->running = false;
    client_settle(client, status);
    client_release(client);
    return commands;
}

bool client_fiber_cancelled(void *argument)
{
    const struct server_fiber *fiber = argument;
    return fiber->thread->stopping || (fiber->client && fiber->client->dead);
}

void client_fiber_main(void *argument)
{
    struct server_fiber *fiber = argument;
    struct server_thread *thread = fiber->thread;
    fiber->task = task_self();
    for (uint32_t commands = 0;;) {
        struct server_client *client = queue_take(thread);
        if (client) {
            if (thread->ready_head) /* this one may suspend */
                fiber_wake(thread);
            commands += client_run(fiber, client);
            if (commands >= CLIENT_SLICE) { /* time to send replies, and to look who else is there */
                commands = 0;
                task_yield();
            }
            continue;
        }
        commands = 0;
        if (thread->stopping)
            break;
        fiber->next_idle = thread->idle;
        thread->idle = fiber;
        fiber->idle = true;
        while (fiber->idle)
            task_park();
        thread->woken--;
    }
    thread->fibers_live--;
}
