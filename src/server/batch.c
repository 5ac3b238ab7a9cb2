/* batch.c - requests of a pipeline that are done together; contract in fiber.h. */
#include <assert.h>
#include <string.h>

#include "server/arguments.h"
#include "server/fiber.h"
#include "server/replies.h"
#include "server/state.h"

/* What a reply may have around its value. */
#define REPLY_FRAME 32u

/* What a request may be batched with: requests of the same kind. */
static enum fiber_batch_kind batch_kind(struct server_fiber *fiber, struct server_request *request,
                                        const struct resp_argument *arguments, uint64_t now)
{
    const struct server_connection *connection = request->connection;
    const struct server_command *command = request->command;
    const uint32_t count = request->count;
    if (!command || count > FIBER_BATCH_ARGS || !command_arity_allows(command->arity, count) ||
        connection->reply != CONNECTION_REPLY_ON || connection->skip || connection->multi ||
        !connection_authorized(connection))
        return FIBER_BATCH_NONE;
    if (command->put)
        return !fiber_refuses(fiber, command) &&
                       command->put(arguments, count, fiber_wall_ms(fiber, now), &request->put)
                   ? FIBER_BATCH_PUTS
                   : FIBER_BATCH_NONE;
    if (!command->point || (command->run && count != 2)) /* with several keys it is not a point read */
        return FIBER_BATCH_NONE;
    return command->flags & SERVER_POINT_VALUE ? FIBER_BATCH_VALUES : FIBER_BATCH_LENGTHS;
}

static struct store_part request_part(void *context, uint64_t whole)
{
    const struct server_request *request = context;
    return request->command->part(request->arguments, request->count, whole);
}

/* The requests with a valid key become items, in order. */
static uint32_t batch_items(struct server_fiber *fiber, uint32_t count)
{
    const uint32_t key_max = store_key_max(fiber->store);
    uint32_t items = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct resp_argument *key = &fiber->batch[i].arguments[1];
        fiber->batch[i].valid = key->length && key->length <= key_max;
        if (!fiber->batch[i].valid)
            continue;
        struct store_item *item = &fiber->items[items++];
        *item = (struct store_item){.key = key->bytes, .key_length = key->length};
        if (fiber->batch[i].command->part) {
            item->choose = request_part;
            item->context = &fiber->batch[i];
        }
        if (fiber->batch_kind == FIBER_BATCH_PUTS)
            item->value = fiber->batch[i].put;
        else
            item->leave = fiber->batch[i].command->flags & SERVER_POINT_BULK;
    }
    return items;
}

/* `item` has been done but for a value that was left where it is: that goes from there to the reply. */
static void batch_reply(struct server_call *call, enum fiber_batch_kind kind, struct store_item *item)
{
    if (item->left) {
        char *place = resp_bulk_place(call->reply, item->value.length);
        if (place) /* else the reply has overflowed, and takes no bytes */
            store_item_read(call->store, item, place);
    }
    if (item->status && (kind == FIBER_BATCH_PUTS || item->status != BANYAN_ENOTFOUND))
        server_reply_failure(call, item->status);
    else if (kind == FIBER_BATCH_PUTS)
        resp_simple(call->reply, "OK");
    else
        call->command->point(call, item->status ? NULL : &item->value);
}

/* These requests will be parsed and run again. False: the connection that runs is among theirs. */
static bool batch_rewind(const struct server_connection *running, const struct server_request *requests,
                         uint32_t count)
{
    const struct server_connection *before = NULL;
    bool others = true;
    for (uint32_t i = 0; i < count; i++) {
        struct server_connection *connection = requests[i].connection;
        if (connection == before)
            continue;
        before = connection;
        connection->input_start = requests[i].start;
        resp_parser_restart(&connection->parser);
        /* The parser meets again what makes no sense behind them, or is not there yet. */
        if (connection->sliced == RESP_MORE || connection->sliced == RESP_BROKEN)
            connection->sliced = RESP_COMPLETE;
        others = others && connection != running;
    }
    return others;
}

/* Bytes of the replies to the requests from this one on that are of the same connection, as far as values
 * that were left tell; `item`: of the first of them that has one. */
static size_t replies_left(const struct server_fiber *fiber, uint32_t first, uint32_t count,
                           const struct store_item *item)
{
    const struct server_connection *connection = fiber->batch[first].connection;
    size_t bytes = 0;
    for (uint32_t i = first; i < count && fiber->batch[i].connection == connection; i++)
        if (fiber->batch[i].valid) {
            bytes += item->left ? item->value.length + REPLY_FRAME : 0;
            item++;
        }
    return bytes;
}

/* Before the reply to the request `i`, whose value was left: has room made for that and for what follows, or
 * by sending what is there, so that the same memory, which the processor still has, serves again. */
static void reply_room(struct server_fiber *fiber, uint32_t i, uint32_t count, const struct store_item *item)
{
    struct server_connection *connection = fiber->batch[i].connection;
    struct resp_writer *output = &connection->output;
    if (item->value.length + REPLY_FRAME <= output->capacity - output->length)
        return;
    if (connection_unsent(connection) >= FIBER_SEND_AT_ONCE)
        connection_flush_answered(connection);
    size_t bytes = replies_left(fiber, i, count, item);
    resp_expect(output, bytes < FIBER_REPLIES_GATHERED ? bytes : FIBER_REPLIES_GATHERED);
}

/* What differs between the calls of a batch: all else stays as fiber_call has set it. */
static void call_aim(struct server_call *call, const struct server_request *request)
{
    call->connection = request->connection;
    call->reply = &request->connection->output;
    call->arguments = request->arguments;
    call->count = request->count;
    call->command = request->command;
    call->hits = call->misses = 0;
}

/* Answers the requests of a batch that has been done. `each` is the time that one took, `running` the
 * connection that the fiber runs. False: as fiber_finish_batch. */
static bool batch_answer(struct server_fiber *fiber, const struct server_connection *running, uint32_t count,
                         uint64_t now, uint64_t each)
{
    struct store_item *item = fiber->items;
    struct server_call call = fiber_call(fiber, &fiber->batch[0], NULL, now);
    call.ran = true;
    for (uint32_t i = 0; i < count; i++) {
        const struct server_request *request = &fiber->batch[i];
        const bool valid = request->valid;
        if (valid && fiber->batch_kind != FIBER_BATCH_PUTS && item->status == BANYAN_ENOMEM &&
            item != fiber->items)
            return batch_rewind(running, request, count - i);
        if (valid && item->left)
            reply_room(fiber, i, count, item);
        call_aim(&call, request);
        uint64_t errors = fiber_begin_reply(request->connection);
        if (valid)
            batch_reply(&call, fiber->batch_kind, item++);
        else
            (void)server_argument_key(&call, &request->arguments[1]); /* it replies why */
        fiber_end_reply(fiber, &call, request->index, errors, each);
        request->connection->last_command = request->command->name;
        request->connection->last_subcommand = NULL;
        if (i + 1 == count || request[1].connection != request->connection)
            fiber_joined_answered(fiber, request->connection, now);
    }
    return true;
}

static void batch_do(struct server_fiber *fiber, uint32_t count)
{
    assert(fiber->batch_kind != FIBER_BATCH_NONE);
    uint32_t items = batch_items(fiber, count);
    if (items && fiber->batch_kind == FIBER_BATCH_PUTS)
        store_multi_put(fiber->store, fiber->items, items);
    else if (items)
        store_multi_get(fiber->store, fiber->items, items, fiber->batch_kind == FIBER_BATCH_VALUES);
}

bool fiber_finish_batch(struct server_fiber *fiber, uint64_t *now)
{
    uint32_t count = fiber->batch_count;
    uint64_t begin = *now;
    fiber->batch_count = 0;
    if (!count)
        return true;
    struct server_connection *connection = fiber->connection;
    if (fiber->joined_first) /* the end of one connection cancels nothing of the others' (fiber_cancelled) */
        fiber->connection = NULL;
    if (count == 1)
        *now = fiber_execute(fiber, &fiber->batch[0], fiber->batch[0].arguments, begin);
    else
        batch_do(fiber, count);
    bool answered = true;
    if (count > 1) {
        *now = task_now();
        answered = batch_answer(fiber, connection, count, *now, (*now - begin) / count);
    }
    fiber->connection = connection;
    fiber_joined_over(fiber, *now);
    return answered;
}

/* Whether the request can be parsed again: the quotes of an inline request were removed in place. */
static bool parsed_again(const char *text, size_t length)
{
    return *text == '*' || !(memchr(text, '"', length) || memchr(text, '\'', length));
}

void fiber_take_request(struct server_fiber *fiber, size_t start, uint64_t *now)
{
    struct server_connection *connection = fiber->connection;
    const struct resp_parser *parser = &connection->parser;
    struct server_request *request = &fiber->batch[fiber->batch_count];
    request->connection = connection;
    request->count = parser->count;
    request->start = start;
    request->command = command_table_find(fiber->thread->server->table, parser->arguments[0].bytes,
                                          parser->arguments[0].length, &request->index);
    enum fiber_batch_kind kind = FIBER_BATCH_NONE;
    if (parsed_again(connection->input + start, connection->input_start - start))
        kind = batch_kind(fiber, request, parser->arguments, *now);
    if (!kind) {
        if (fiber_finish_batch(fiber, now))
            *now = fiber_execute(fiber, request, parser->arguments, *now);
        return;
    }
    for (uint32_t i = 0; i < request->count; i++)
        request->arguments[i] = parser->arguments[i];
    if (fiber->batch_count == FIBER_BATCH_MAX || (fiber->batch_count && fiber->batch_kind != kind)) {
        if (!fiber_finish_batch(fiber, now))
            return;
        fiber->batch[0] = *request; /* none of the batch is left */
    }
    assert(fiber->batch_count < FIBER_BATCH_MAX);
    fiber->batch_kind = kind;
    fiber->batch_count++;
}
