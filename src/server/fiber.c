/* fiber.c - a fiber that runs connections: a slice of commands of each; contract in fiber.h. */
#include "server/fiber.h"

#include <assert.h>

#include "server/ready_queue.h"
#include "server/state.h"

#define INLINE_MAX    65536u
#define ARGUMENTS_MAX 1048576u
/* Before AUTH, as Redis has it. */
#define BULK_MAX_BEFORE_AUTH      16384u
#define ARGUMENTS_MAX_BEFORE_AUTH 10u

static void limits_set(const struct server_connection *connection, struct resp_limits *limits)
{
    const struct server *server = connection->thread->server;
    limits->unauthenticated = !connection_authorized(connection);
    limits->bulk_max =
        limits->unauthenticated ? BULK_MAX_BEFORE_AUTH : atomic_load_relaxed(&server->value_max);
    limits->arguments_max = limits->unauthenticated ? ARGUMENTS_MAX_BEFORE_AUTH : ARGUMENTS_MAX;
    limits->inline_max = INLINE_MAX;
}

/* Runs complete requests, in order, up to a slice. Returns why it stopped; RESP_COMPLETE: the slice is used
 * up, or the connection may not go on. */
static enum resp_status slice_run(struct server_fiber *fiber, struct server_connection *connection,
                                  uint64_t *now)
{
    enum resp_status status = RESP_COMPLETE;
    for (uint32_t done = 0; done < FIBER_SLICE; done++) {
        struct resp_limits limits;
        size_t consumed = 0;
        if (connection->dead || connection->finishing || fiber->thread->stopping)
            return RESP_COMPLETE;
        if (connection_unsent(connection) > CONNECTION_OUTPUT_STOP) {
            connection->blocked = true;
            return RESP_COMPLETE;
        }
        limits_set(connection, &limits);
        status = resp_parse(&connection->parser, &limits, connection->input + connection->input_start,
                            connection->input_end - connection->input_start, &consumed);
        if (status != RESP_COMPLETE && status != RESP_EMPTY)
            return status;
        size_t start = connection->input_start;
        connection->input_start += consumed;
        connection->request_start = start;
        if (status == RESP_COMPLETE)
            fiber_take_request(fiber, start, now);
    }
    return RESP_COMPLETE;
}

static bool thread_always(const struct server_thread *thread)
{
    const struct durable *durable = thread->server->options.durable;
    return durable && durable_always(durable);
}

/* Adds the slice's latencies to the thread's, which keeps the last minute in two halves. */
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

/* The fiber has let go of the connection: decides what happens with it next. The caller holds it. */
static void connection_settle(struct server_connection *connection, enum resp_status status)
{
    if (connection->dead || status == RESP_NO_MEMORY) {
        connection_close(connection);
        return;
    }
    if (status == RESP_BROKEN)
        connection_refuse(connection, connection->parser.error);
    /* More input may have come while the last command ran. */
    size_t there = connection->input_end - connection->input_start;
    if (connection->thread->stopping ||
        (status == RESP_MORE && connection->ended && (!there || there < connection->parser.wanted)))
        connection->finishing = true;
    connection_trim_input(connection);
    ready_queue_offer(connection); /* also for the end of the input alone, which the slice did not see */
    /* Many bytes go while the processor still has them, and before other connections want as many. */
    if (connection_unsent(connection) >= FIBER_SEND_AT_ONCE)
        connection_flush(connection);
    if (connection->dead)
        return;
    if (connection_unsent(connection) || connection->finishing) {
        connection_flush_later(connection); /* the flush then watches for what the connection needs next */
        return;
    }
    connection_trim_output(connection);
    connection_read_pending(connection);
    connection_watch(connection);
}

/* The connection's slice has ended, and its replies may be sent. */
static void slice_end(struct server_connection *connection)
{
    connection_hold(connection);
    connection->running = false;
    connection_settle(connection, connection->sliced);
    connection_release(connection);
}

/* ---- level disk-always ---- */

/* The replies of the connection's slice wait until what it has changed is on the disk. It stays `running`. */
static void held_put(struct server_thread *thread, struct server_connection *connection)
{
    connection->next_held = NULL;
    if (thread->held_last)
        thread->held_last->next_held = connection;
    else
        thread->held_first = connection;
    thread->held_last = connection;
    thread->held_commands += (uint32_t)(connection->commands - connection->slice_from);
}

/* All that could join them has run; or they are many; or no other fiber would see to them while this one's
 * next command waits for something. */
static bool held_due(const struct server_thread *thread)
{
    return thread->held_first &&
           (!thread->ready_first || thread->held_commands >= FIBER_HELD || (!thread->idle && !thread->woken));
}

/* Waits until their changes are on the disk, with one pass for all of them. Where they cannot be, no reply is
 * true, and the connection is closed. */
static void held_commit(struct server_fiber *fiber)
{
    struct server_thread *thread = fiber->thread;
    struct server_connection *connection = thread->held_first;
    uint64_t last = 0;
    thread->held_first = thread->held_last = NULL;
    thread->held_commands = 0;
    for (const struct server_connection *each = connection; each; each = each->next_held)
        if (each->ticket != UINT64_MAX && each->ticket > last)
            last = each->ticket;
    durable_commit(thread->server->options.durable, last);
    while (connection) {
        struct server_connection *next = connection->next_held;
        struct error error = {0};
        if (feed_wait(fiber->changes.feed, connection->ticket, &error)) {
            connection->output.length = connection->output.start = connection->unsafe;
            connection->dead = true;
        }
        slice_end(connection);
        connection = next;
    }
}

/* ---- connections ---- */

/* All commands of the connection's slice have run. */
static void slice_over(struct server_fiber *fiber, struct server_connection *connection, uint64_t now)
{
    connection->active_ns = now; /* the commands may have run for longer than an idle client may stay */
    connection->ticket = fiber->changes.ticket;
    if (connection->unsafe != SIZE_MAX && connection->ticket)
        held_put(fiber->thread, connection);
    else
        slice_end(connection);
}

/* Whether some requests of the connection that the fiber runs are in the batch. */
static bool batched(const struct server_fiber *fiber, const struct server_connection *connection)
{
    return fiber->batch_count && fiber->batch[fiber->batch_count - 1].connection == connection;
}

/* Whether they may wait there for those of the next connection. */
static bool may_join(const struct server_fiber *fiber, const struct server_connection *connection)
{
    return fiber->thread->server->options.alone && fiber->thread->ready_first && batched(fiber, connection) &&
           connection->input_start - connection->slice_start <= FIBER_JOIN_BYTES;
}

static void joined_put(struct server_fiber *fiber, struct server_connection *connection)
{
    connection->next_held = NULL;
    if (fiber->joined_first)
        fiber->joined_last->next_held = connection;
    else
        fiber->joined_first = connection;
    fiber->joined_last = connection;
}

void fiber_joined_answered(struct server_fiber *fiber, struct server_connection *connection, uint64_t now)
{
    if (fiber->joined_first != connection)
        return;
    fiber->joined_first = connection->next_held;
    if (!fiber->joined_first)
        fiber->joined_last = NULL;
    slice_over(fiber, connection, now);
}

void fiber_joined_over(struct server_fiber *fiber, uint64_t now)
{
    struct server_connection *connection = fiber->joined_first;
    fiber->joined_first = fiber->joined_last = NULL;
    while (connection) {
        struct server_connection *next = connection->next_held;
        slice_over(fiber, connection, now);
        connection = next;
    }
}

/* What the slice, and the batch, have left to do before the fiber takes another connection, or none. */
static void fiber_rest(struct server_fiber *fiber, uint64_t now)
{
    fiber->went_on_ns = now;
    latencies_record(fiber, now);
    if (fiber->joined_first)
        return;
    store_session_rest(fiber->store);
    fiber->changes.ticket = 0;
}

/* Does the batch that connections have joined. */
static void joined_finish(struct server_fiber *fiber)
{
    uint64_t now = fiber->went_on_ns;
    (void)fiber_finish_batch(fiber, &now); /* no slice is under way that would have to know */
    fiber_rest(fiber, now);
}

/* Runs one slice of the connection; its last requests may be left in the batch. */
static void connection_run(struct server_fiber *fiber, struct server_connection *connection)
{
    uint64_t now = fiber->went_on_ns ? fiber->went_on_ns : task_now();
    connection->sliced = RESP_NO_MEMORY;
    assert(!connection->running && !fiber->connection && !fiber->latencies);
    connection->running = true;
    fiber->connection = connection;
    connection->active_ns = now;
    connection->slice_from = connection->commands;
    connection->slice_start = connection->input_start;
    connection->output.start = connection->output.length;
    connection->unsafe = SIZE_MAX;
    if (thread_always(fiber->thread))
        connection->unsafe = connection->output.length;
    if (connection->input_end == connection->input_start)
        connection->sliced = RESP_MORE;
    else if (connection_open_output(connection))
        connection->sliced = slice_run(fiber, connection, &now);
    if (may_join(fiber, connection)) {
        joined_put(fiber, connection);
    } else {
        if (batched(fiber, connection))
            (void)fiber_finish_batch(fiber, &now); /* what has to run again is told by connection->sliced */
        slice_over(fiber, connection, now);
    }
    fiber->connection = NULL;
    fiber_rest(fiber, now);
}

bool fiber_cancelled(void *argument)
{
    const struct server_fiber *fiber = argument;
    return fiber->thread->stopping || (fiber->connection && fiber->connection->dead);
}

void fiber_main(void *argument)
{
    struct server_fiber *fiber = argument;
    struct server_thread *thread = fiber->thread;
    fiber->task = task_self();
    for (;;) {
        if (!fiber->joined_first && held_due(thread)) {
            held_commit(fiber);
            fiber->went_on_ns = 0;
        }
        struct server_connection *connection = ready_queue_take(thread);
        if (connection) {
            if (thread->ready_first || thread->held_first) /* another fiber goes on, if this one suspends */
                ready_queue_wake(thread);
            connection_run(fiber, connection);
            if (fiber->joined_first &&
                (!thread->ready_first || fiber->answered + fiber->batch_count >= FIBER_SLICE))
                joined_finish(fiber);
            if (fiber->answered >= FIBER_SLICE) { /* lets the turn hook send replies, and other fibers run */
                fiber->answered = 0;
                task_yield();
                fiber->went_on_ns = 0;
            }
            continue;
        }
        assert(!fiber->joined_first && !fiber->batch_count);
        fiber->answered = 0;
        fiber->went_on_ns = 0;
        if (thread->stopping)
            break;
        fiber->next_idle = thread->idle;
        thread->idle = fiber;
        fiber->idle = true;
        while (fiber->idle)
            task_park();
        assert(thread->woken);
        thread->woken--;
    }
    assert(thread->fibers_live);
    thread->fibers_live--;
}
