/* slowlog.c - SLOWLOG: the commands that took longest. On a fiber; errors in the words of Redis 7. */
#include <stdlib.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/replies.h"
#include "server/slowlog.h"
#include "server/state.h"

static void text_reply(struct resp_writer *reply, const struct slowlog_text *text)
{
    resp_bulk(reply, text->bytes, text->length);
}

static void entry_reply(struct resp_writer *reply, const struct slowlog_entry *entry)
{
    resp_array(reply, 6);
    resp_integer(reply, (int64_t)entry->id);
    resp_integer(reply, (int64_t)entry->seconds);
    resp_integer(reply, (int64_t)entry->microseconds);
    resp_array(reply, entry->count);
    for (uint32_t i = 0; i < entry->count; i++)
        text_reply(reply, &entry->arguments[i]);
    text_reply(reply, &entry->address);
    text_reply(reply, &entry->name);
}

static void slowlog_get(struct server_call *call)
{
    struct server_slowlog *log = &server_of(call)->slowlog;
    int64_t most = 10;
    if (call->count > 3) {
        server_reply_subcommand_or_arity(call);
        return;
    }
    if (call->count == 3 &&
        (!server_integer_parse(call->arguments[2].bytes, call->arguments[2].length, &most) || most < -1)) {
        resp_error(call->reply, "ERR count should be greater than or equal to -1");
        return;
    }
    if (most < 0 || most > SLOWLOG_LENGTH_MAX)
        most = SLOWLOG_LENGTH_MAX;
    struct slowlog_entry **entries = calloc((size_t)most + 1, sizeof(struct slowlog_entry *));
    if (!entries) {
        server_reply_memory(call);
        return;
    }
    size_t count = slowlog_take(log, entries, (size_t)most);
    resp_array(call->reply, count);
    for (size_t i = 0; i < count; i++)
        entry_reply(call->reply, entries[i]);
    slowlog_give(log, entries, count);
    free(entries);
}

static void slowlog_len(struct server_call *call)
{
    resp_integer(call->reply, (int64_t)slowlog_length(&server_of(call)->slowlog));
}

static void slowlog_reset(struct server_call *call)
{
    slowlog_trim(&server_of(call)->slowlog, 0);
    resp_simple(call->reply, "OK");
}

static void slowlog_help(struct server_call *call)
{
    static const char *const lines[] = {
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
        NULL};
    subcommand_reply_help(call, "SLOWLOG", lines);
}

const struct server_subcommand slowlog_subcommands[] = {{"GET", -2, slowlog_get},
                                                        {"LEN", 2, slowlog_len},
                                                        {"RESET", 2, slowlog_reset},
                                                        {"HELP", 2, slowlog_help},
                                                        {0}};
