/*
 * client.c - CLIENT and its subcommands about the caller's own connection. On a fiber of the connection's
 * thread; errors in the words of Redis 7.
 */
#include <stdlib.h>
#include <string.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/state.h"
#include "server/replies.h"

/* ---- names ---- */

static bool printable(const struct resp_argument *text)
{
    for (size_t i = 0; i < text->length; i++)
        if (text->bytes[i] < '!' || text->bytes[i] > '~')
            return false;
    return true;
}

static bool too_long(struct server_call *call, const struct resp_argument *text)
{
    if (text->length <= CONNECTION_NAME_MAX)
        return false;
    resp_error(call->reply, "ERR a name has at most %u bytes", CONNECTION_NAME_MAX);
    return true;
}

/* Sets a text of the connection; an empty text removes it. Replies an error and returns false without memory.
 */
static bool text_set(struct server_call *call, char **place, const struct resp_argument *text)
{
    char *copy = NULL;
    if (text->length && !(copy = strndup(text->bytes, text->length))) {
        resp_error(call->reply, "OOM no memory for a client's name");
        return false;
    }
    free(*place);
    *place = copy;
    return true;
}

bool client_name_set(struct server_call *call, const struct resp_argument *name)
{
    if (too_long(call, name))
        return false;
    if (!printable(name)) {
        resp_error(call->reply, "ERR Client names cannot contain spaces, newlines or special characters.");
        return false;
    }
    return text_set(call, &call->connection->name, name);
}

/* ---- the other subcommands of CLIENT ---- */

static void sub_id(struct server_call *call)
{
    resp_integer(call->reply, (int64_t)call->connection->id);
}

static void sub_getname(struct server_call *call)
{
    if (call->connection->name)
        resp_text(call->reply, call->connection->name);
    else
        resp_null(call->reply);
}

static void sub_setname(struct server_call *call)
{
    if (client_name_set(call, &call->arguments[2]))
        resp_simple(call->reply, "OK");
}

static void sub_setinfo(struct server_call *call)
{
    const struct resp_argument *option = &call->arguments[2], *value = &call->arguments[3];
    char **place = NULL;
    if (server_argument_is(option, "LIB-NAME"))
        place = &call->connection->library;
    else if (server_argument_is(option, "LIB-VER"))
        place = &call->connection->library_version;
    if (!place)
        resp_error(call->reply, "ERR Unrecognized option '%.*s'", SERVER_SHOWN(option));
    else if (!printable(value))
        resp_error(call->reply, "ERR %s cannot contain spaces, newlines or special characters.",
                   place == &call->connection->library ? "lib-name" : "lib-ver");
    else if (!too_long(call, value) && text_set(call, place, value))
        resp_simple(call->reply, "OK");
}

static void sub_reply(struct server_call *call)
{
    struct server_connection *connection = call->connection;
    if (server_argument_is(&call->arguments[2], "ON")) {
        connection->reply = CONNECTION_REPLY_ON;
        connection->skip = 0;
        resp_simple(call->reply, "OK");
    } else if (server_argument_is(&call->arguments[2], "OFF")) {
        connection->reply = CONNECTION_REPLY_OFF;
    } else if (server_argument_is(&call->arguments[2], "SKIP")) {
        if (connection->reply != CONNECTION_REPLY_OFF)
            connection->skip = 2; /* this command, which has no reply, and the next one */
    } else {
        server_reply_syntax(call);
    }
}

static void sub_switch(struct server_call *call, bool *flag)
{
    if (server_argument_is(&call->arguments[2], "ON"))
        *flag = true;
    else if (server_argument_is(&call->arguments[2], "OFF"))
        *flag = false;
    else {
        server_reply_syntax(call);
        return;
    }
    resp_simple(call->reply, "OK");
}

static void sub_no_evict(struct server_call *call)
{
    sub_switch(call, &call->connection->no_evict);
}

static void sub_no_touch(struct server_call *call)
{
    sub_switch(call, &call->connection->no_touch);
}

static void sub_help(struct server_call *call)
{
    static const char *const lines[] = {
        "GETNAME",
        "    Return the name of the current connection.",
        "ID",
        "    Return the ID of the current connection.",
        "INFO",
        "    Return information about the current client connection.",
        "KILL <ip:port>",
        "    Kill connection made from <ip:port>.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Kill connections. Options are: ADDR, LADDR, ID, TYPE, USER, SKIPME.",
        "LIST [options ...]",
        "    Return information about client connections. Options: TYPE (NORMAL|MASTER|REPLICA|PUBSUB), ID.",
        "NO-EVICT (ON|OFF)",
        "    Protect the current client connection from eviction, as long as there are others.",
        "NO-TOUCH (ON|OFF)",
        "    Accepted; Banyan keeps no times of last use.",
        "REPLY (ON|OFF|SKIP)",
        "    Control the replies sent to the current connection.",
        "SETINFO <option> <value>",
        "    Set a client's attribute. Options: LIB-NAME, LIB-VER.",
        "SETNAME <name>",
        "    Assign the name <name> to the current connection.",
        NULL};
    subcommand_reply_help(call, "CLIENT", lines);
}

const struct server_subcommand client_subcommands[] = {{"ID", 2, sub_id},
                                                       {"GETNAME", 2, sub_getname},
                                                       {"SETNAME", 3, sub_setname},
                                                       {"SETINFO", 4, sub_setinfo},
                                                       {"LIST", -2, client_list_run},
                                                       {"INFO", 2, client_info_run},
                                                       {"KILL", -3, client_kill_run},
                                                       {"REPLY", 3, sub_reply},
                                                       {"NO-EVICT", 3, sub_no_evict},
                                                       {"NO-TOUCH", 3, sub_no_touch},
                                                       {"HELP", 2, sub_help},
                                                       {NULL, 0, NULL}};
