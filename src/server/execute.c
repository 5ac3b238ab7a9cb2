/* execute.c - one command: its call, its reply, what is counted of it; contract in fiber.h. */
#include <assert.h>

#include "base/clock.h"
#include "base/task.h"
#include "server/eviction.h"
#include "server/fiber.h"
#include "server/replies.h"
#include "server/slowlog.h"
#include "server/state.h"

/* The wall clock at now_ns. What is kept for a millisecond is how far it is ahead of task_now, not what it
 * showed: a client that names a time by the same clock must not find it further away than it is. */
uint64_t fiber_wall_at(struct server_fiber *fiber, uint64_t now_ns)
{
    if (now_ns - fiber->clock_ns >= 1000000) {
        /* A pause between the two clocks would count as a difference. */
        for (unsigned tries = 0; tries < 3; tries++) {
            uint64_t before = task_now(), wall = clock_wall_ns(), after = task_now();
            fiber->wall_ahead_ns = wall - after;
            if (after - before < 20000)
                break;
        }
        fiber->clock_ns = now_ns;
    }
    fiber->wall_of_ns = now_ns;
    fiber->wall_ms = (now_ns + fiber->wall_ahead_ns) / 1000000;
    return fiber->wall_ms;
}

struct server_call fiber_call(struct server_fiber *fiber, const struct server_request *request,
                              const struct resp_argument *arguments, uint64_t now)
{
    struct server_connection *connection = request->connection;
    return (struct server_call){.connection = connection,
                                .store = fiber->store,
                                .reply = &connection->output,
                                .arguments = arguments,
                                .count = request->count,
                                .now_ms = fiber_wall_ms(fiber, now),
                                .command = request->command,
                                .reserve = connection_reserve};
}

uint64_t fiber_begin_reply(struct server_connection *connection)
{
    struct resp_writer *output = &connection->output;
    assert(output->start == output->length); /* the reply before this one has ended */
    resp_begin(output);
    return output->errors;
}

/* Whether the client wants this command's reply. */
static bool reply_wanted(struct server_connection *connection)
{
    bool wanted = connection->reply != CONNECTION_REPLY_OFF && connection->skip != 1;
    if (connection->skip)
        connection->skip--;
    return wanted;
}

static void call_count(struct server_thread *thread, const struct server_call *call, bool failed)
{
    counter_add(&thread->counters.commands, 1);
    if (failed)
        counter_add(&thread->counters.errors, 1);
    if (call->hits)
        counter_add(&thread->counters.hits, call->hits);
    if (call->misses)
        counter_add(&thread->counters.misses, call->misses);
}

void fiber_end_reply(struct server_fiber *fiber, const struct server_call *call, unsigned index,
                     uint64_t errors, uint64_t nanoseconds)
{
    struct server_thread *thread = fiber->thread;
    struct server_connection *connection = call->connection;
    struct resp_writer *output = &connection->output;
    resp_end(output);
    if (output->overflow)
        connection->dead = true; /* a reply is missing, and there is no memory for an error */
    bool failed = output->errors != errors;
    if (!reply_wanted(connection))
        output->length = output->start;
    output->start = output->length;
    connection->commands++;
    call_count(thread, call, failed);
    /* One slice runs no more commands, and no more have joined it. */
    assert(fiber->latencies < FIBER_SLICE + FIBER_BATCH_MAX);
    fiber->latency[fiber->latencies++] = nanoseconds;
    fiber->answered++;
    if (!call->command)
        return;
    if (call->ran && slowlog_wants(&thread->server->slowlog, nanoseconds))
        slowlog_note(thread->server, call, nanoseconds);
    struct server_command_counter *counter = &thread->commands[index];
    counter_add(&counter->calls, 1);
    counter_add(&counter->nanoseconds, nanoseconds);
    if (failed)
        counter_add(&counter->failed, 1);
}

bool fiber_refuses(const struct server_fiber *fiber, const struct server_command *command)
{
    return command && command->flags & SERVER_WRITE && fiber->changes.feed &&
           feed_error(fiber->changes.feed, NULL);
}

static void reply_refused(const struct server_fiber *fiber, struct server_call *call)
{
    struct error error = {.text = "the disk takes changes again"};
    (void)feed_error(fiber->changes.feed, &error);
    resp_error(call->reply, "MISCONF Errors writing to the disk: %s. Commands that change data are refused",
               error.text);
}

uint64_t fiber_execute(struct server_fiber *fiber, const struct server_request *request,
                       const struct resp_argument *arguments, uint64_t begin)
{
    struct server_connection *connection = request->connection;
    struct server_call call = fiber_call(fiber, request, arguments, begin);
    uint64_t errors = fiber_begin_reply(connection);
    if (!request->command) {
        server_reply_unknown(&call);
    } else if (!command_arity_allows(request->command->arity, request->count)) {
        server_reply_arity(&call);
    } else if (!(request->command->flags & SERVER_NO_AUTH) && !connection_authorized(connection)) {
        resp_error(&connection->output, "NOAUTH Authentication required.");
    } else if (fiber_refuses(fiber, request->command)) {
        reply_refused(fiber, &call);
    } else if (connection->multi && !(request->command->flags & SERVER_IN_MULTI)) {
        server_reply_in_multi(&call);
    } else {
        connection->last_command = request->command->name;
        connection->last_subcommand = NULL;
        call.ran = true;
        command_run(&call);
    }
    assert(!connection->command_bytes); /* a command gives back what it has reserved */
    uint64_t end = task_now();
    fiber_end_reply(fiber, &call, request->index, errors, end - begin);
    return end;
}
