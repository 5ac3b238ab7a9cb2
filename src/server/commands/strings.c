/*
 * strings.c - commands that read values, and the table of all commands about strings. On fibers. Replies and
 * errors are those of Redis 7.0.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/many_keys.h"
#include "server/replies.h"

/* ---- reading ---- */

void get_point(struct server_call *call, const struct store_value *value)
{
    server_call_count(call, value);
    server_reply_value(call, value);
}

static void strlen_point(struct server_call *call, const struct store_value *value)
{
    server_call_count(call, value);
    resp_integer(call->reply, value ? (int64_t)value->length : 0);
}

/* Redis's meaning of start and end. */
static struct store_part range_of(int64_t start, int64_t end, int64_t length)
{
    bool backwards = start < 0 && end < 0 && start > end;
    start = start < 0 ? start + length : start; /* from the end */
    end = end < 0 ? end + length : end;
    start = start < 0 ? 0 : start;
    end = end < 0 ? 0 : end >= length ? length - 1 : end;
    if (backwards || start > end || !length)
        return (struct store_part){0};
    return (struct store_part){.offset = (uint64_t)start, .length = (uint64_t)(end - start + 1)};
}

static struct store_part getrange_part(const struct resp_argument *arguments, uint32_t count, uint64_t whole)
{
    int64_t start, end;
    if (!server_integer_parse(arguments[2].bytes, arguments[2].length, &start) ||
        !server_integer_parse(arguments[3].bytes, arguments[3].length, &end))
        return (struct store_part){0};
    return range_of(start, end, (int64_t)whole);
}

static void getrange_point(struct server_call *call, const struct store_value *value)
{
    int64_t start, end;
    if (!server_argument_integer(call, &call->arguments[2], &start) ||
        !server_argument_integer(call, &call->arguments[3], &end))
        return;
    server_call_count(call, value);
    resp_bulk(call->reply, value ? (const char *)value->bytes : "", value ? value->length : 0);
}

static bool mget_visit(struct server_call *call, const struct store_value *value, void *context)
{
    server_reply_value(call, value);
    return !call->reply->overflow;
}

static void mget_run(struct server_call *call)
{
    if (!server_arguments_keys(call, 1, 1))
        return;
    resp_array(call->reply, call->count - 1);
    int status = many_keys_each(call, 1, true, mget_visit, NULL);
    if (status) {
        server_reply_rewind(call);
        server_reply_failure(call, status);
    }
}

/* ---- the table ---- */

#define READ_VALUE  (SERVER_READONLY | SERVER_POINT_VALUE)
#define READ_LENGTH (SERVER_READONLY | SERVER_FAST | SERVER_POINT_LENGTH)
#define WRITE_FAST  (SERVER_WRITE | SERVER_FAST)
/* name, run, point, arity, flags, keys, summary */
#define STRING(name, run, point, arity, flags, first, last, step, summary)                                   \
    {                                                                                                        \
        name, run, point, arity, flags, first, last, step, "string", summary, NULL, NULL, NULL               \
    }
#define SETTING(command_name, run_function, put_function, command_arity, command_summary)                    \
    {                                                                                                        \
        .name = command_name, .run = run_function, .put = put_function, .arity = command_arity,              \
        .flags = SERVER_WRITE, .first_key = 1, .last_key = 1, .key_step = 1, .group = "string",              \
        .summary = command_summary                                                                           \
    }

/* One command under two names. */
#define GETRANGE(command_name, command_summary)                                                              \
    {                                                                                                        \
        .name = command_name, .point = getrange_point, .part = getrange_part, .arity = 4,                    \
        .flags = READ_VALUE, .first_key = 1, .last_key = 1, .key_step = 1, .group = "string",                \
        .summary = command_summary                                                                           \
    }

const struct server_command server_string_commands[] = {
    STRING("get", NULL, get_point, 2, READ_VALUE | SERVER_POINT_BULK | SERVER_FAST, 1, 1, 1,
           "The value of a key"),
    STRING("strlen", NULL, strlen_point, 2, READ_LENGTH, 1, 1, 1, "The length of a key's value"),
    GETRANGE("getrange", "A part of a key's value"),
    GETRANGE("substr", "A part of a key's value (old name)"),
    STRING("mget", mget_run, NULL, -2, SERVER_READONLY, 1, -1, 1, "The values of many keys"),
    SETTING("set", set_run, set_put, -3, "Sets a key, under conditions if wanted"),
    STRING("setnx", setnx_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Sets a key that does not exist"),
    SETTING("setex", setex_run, setex_put, 4, "Sets a key for some seconds"),
    SETTING("psetex", psetex_run, psetex_put, 4, "Sets a key for some milliseconds"),
    STRING("getset", getset_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Sets a key; what it held before"),
    STRING("getdel", getdel_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Deletes a key; what it held before"),
    STRING("getex", getex_run, NULL, -2, WRITE_FAST, 1, 1, 1, "The value of a key, whose expiry is changed"),
    STRING("mset", mset_run, NULL, -3, SERVER_WRITE, 1, -1, 2, "Sets many keys, each by itself"),
    STRING("msetnx", msetnx_run, NULL, -3, SERVER_WRITE, 1, -1, 2, "As SETNX: of one key only"),
    STRING("append", append_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Appends to a key's value"),
    STRING("setrange", setrange_run, NULL, 4, SERVER_WRITE, 1, 1, 1, "Overwrites a part of a key's value"),
    STRING("incr", incr_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Adds one to a key's number"),
    STRING("decr", decr_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Takes one from a key's number"),
    STRING("incrby", incrby_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Adds to a key's number"),
    STRING("decrby", decrby_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Takes from a key's number"),
    STRING("incrbyfloat", incrbyfloat_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Adds to a key's decimal number"),
    {.name = NULL},
};
