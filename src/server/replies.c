/* replies.c - replies that several commands share; contract in replies.h. */
#include "server/replies.h"

#include <ctype.h>
#include <stdio.h>

#include "server/state.h"

void server_reply_syntax(struct server_call *call)
{
    resp_error(call->reply, "ERR syntax error");
}

void server_reply_not_integer(struct server_call *call)
{
    resp_error(call->reply, "ERR value is not an integer or out of range");
}

void server_reply_arity(struct server_call *call)
{
    resp_error(call->reply, "ERR wrong number of arguments for '%s' command", call->command->name);
}

void server_reply_failure(struct server_call *call, int status)
{
    const char *text = tree_session_error(store_session_tree(call->store))->text;
    if (!*text || tree_session_error(store_session_tree(call->store))->code != status)
        text = error_name(status);
    switch (status) {
    case BANYAN_EKEYSIZE:
        resp_error(call->reply, "ERR a key has 1 to %u bytes", store_key_max(call->store));
        break;
    case BANYAN_EVALUESIZE:
        resp_error(call->reply, "ERR string exceeds maximum allowed size (%llu bytes)",
                   (unsigned long long)STORE_VALUE_MAX);
        break;
    case BANYAN_EABORT: /* fiber_cancelled: only a server that stops still replies */
        resp_error(call->reply, "ERR the server stops; '%s' was ended before it was done",
                   call->command->name);
        break;
    case BANYAN_ENOSPC:
        if (call->connection)
            server_defrag_refused(server_of(call));
        resp_error(call->reply, "OOM %s", text);
        break;
    case BANYAN_ENOMEM:
        resp_error(call->reply, "OOM %s", text);
        break;
    case BANYAN_ENET:
    case BANYAN_ETIMEOUT:
    case BANYAN_EFENCED:
        resp_error(call->reply, "CLUSTERDOWN %s", text);
        break;
    case BANYAN_EUNKNOWN:
        resp_error(call->reply, "UNKNOWN the write may have taken effect: %s", text);
        break;
    default:
        resp_error(call->reply, "ERR %s", text);
    }
}

/* As in Redis, at most 128 bytes of the arguments are quoted. */
void server_reply_unknown(struct server_call *call)
{
    char text[512];
    const struct resp_argument *name = &call->arguments[0];
    size_t at = 0;
    for (uint32_t i = 1; i < call->count && at < 128; i++) {
        const struct resp_argument *argument = &call->arguments[i];
        int bytes = (int)(argument->length < 128 - at ? argument->length : 128 - at);
        at += (size_t)snprintf(text + at, sizeof text - at, "'%.*s' ", bytes, argument->bytes);
    }
    text[at] = 0;
    resp_error(call->reply, "ERR unknown command '%.*s', with args beginning with: %s", SERVER_SHOWN(name),
               text);
}

/* Cut to the longest name, in another case of letters (ASCII: the program never sets a locale). */
static void name_fold(char text[SERVER_COMMAND_NAME_MAX + 1], const char *name, int (*fold)(int))
{
    size_t i = 0;
    for (; i < SERVER_COMMAND_NAME_MAX && name[i]; i++)
        text[i] = (char)fold((unsigned char)name[i]);
    text[i] = 0;
}

void server_reply_subcommand(struct server_call *call)
{
    const struct resp_argument *name = &call->arguments[1];
    char upper[SERVER_COMMAND_NAME_MAX + 1];
    name_fold(upper, call->command->name, toupper);
    resp_error(call->reply, "ERR unknown subcommand '%.*s'. Try %s HELP.", SERVER_SHOWN(name), upper);
}

void server_reply_subcommand_or_arity(struct server_call *call)
{
    const struct resp_argument *name = &call->arguments[1];
    char upper[SERVER_COMMAND_NAME_MAX + 1];
    name_fold(upper, call->command->name, toupper);
    resp_error(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
               SERVER_SHOWN(name), upper);
}

void server_reply_in_multi(struct server_call *call)
{
    resp_error(call->reply,
               "ERR transactions are not supported: '%s' was not done, as nothing is until EXEC or DISCARD",
               call->command->name);
}

void server_reply_subcommand_arity(struct server_call *call, const char *subcommand)
{
    char text[SERVER_COMMAND_NAME_MAX + 1];
    name_fold(text, subcommand, tolower);
    resp_error(call->reply, "ERR wrong number of arguments for '%s|%s' command", call->command->name, text);
}

void server_reply_value(struct server_call *call, const struct store_value *value)
{
    if (value)
        resp_bulk(call->reply, value->bytes, value->length);
    else
        resp_null(call->reply);
}

void server_reply_rewind(struct server_call *call)
{
    call->reply->length = call->reply->start;
}

void server_reply_bad_expire(struct server_call *call)
{
    resp_error(call->reply, "ERR invalid expire time in '%s' command", call->command->name);
}

void server_reply_too_long(struct server_call *call)
{
    resp_error(call->reply, "ERR string exceeds maximum allowed size (%uMB)",
               (unsigned)(STORE_VALUE_MAX >> 20));
}

void server_reply_memory(struct server_call *call)
{
    resp_error(call->reply, "OOM no memory for '%s'", call->command->name);
}
