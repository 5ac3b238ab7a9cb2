/*
 * client_list.c - CLIENT LIST, INFO and KILL. LIST and KILL visit every thread of the server, since a
 * connection is touched by its thread alone. On a fiber; errors in the words of Redis 7.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/eviction.h"
#include "server/state.h"
#include "server/replies.h"
#include "server/text.h"

/* ---- CLIENT INFO and LIST ---- */

static void address_local(const struct server_connection *connection, char *text, size_t size)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    char host[INET6_ADDRSTRLEN] = "";
    snprintf(text, size, "%s", connection->peer);
    if (connection->unix_socket ||
        getsockname(net_stream_fd(connection->stream), (struct sockaddr *)&storage, &length))
        return;
    if (storage.ss_family == AF_INET) {
        const struct sockaddr_in *address = (const struct sockaddr_in *)&storage;
        inet_ntop(AF_INET, &address->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(address->sin_port));
    } else if (storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *address = (const struct sockaddr_in6 *)&storage;
        inet_ntop(AF_INET6, &address->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, ntohs(address->sin6_port));
    }
}

/* "get", "client|list"; "NULL" before the first. */
static void command_shown(const struct server_connection *connection,
                          char text[2 * SERVER_COMMAND_NAME_MAX + 2])
{
    int at = snprintf(text, SERVER_COMMAND_NAME_MAX + 1, "%s", connection->last_command);
    if (!connection->last_subcommand)
        return;
    text[at++] = '|';
    for (const char *c = connection->last_subcommand; *c; c++)
        text[at++] = (char)tolower((unsigned char)*c);
    text[at] = 0;
}

/* One line of CLIENT LIST, as Redis writes it, since tools parse it. On the connection's thread. */
static void client_line(struct text *text, const struct server_connection *connection,
                        const struct server_call *call, uint64_t now)
{
    char local[NET_TEXT_MAX], command[2 * SERVER_COMMAND_NAME_MAX + 2];
    bool current = connection->running;
    /* Bytes of the request under way count until it has been done. */
    size_t unparsed = connection->input_end - (current ? connection->request_start : connection->input_start);
    size_t arguments = 0;
    for (uint32_t i = 0; connection == call->connection && i < call->count; i++)
        arguments += call->arguments[i].length;
    command_shown(connection, command);
    address_local(connection, local, sizeof local);
    text_add(
        text,
        "id=%llu addr=%s laddr=%s fd=%d name=%s age=%llu idle=%llu flags=%s db=0 sub=0 psub=0 ssub=0 "
        "multi=%d qbuf=%zu qbuf-free=%zu argv-mem=%zu multi-mem=0 rbs=%zu rbp=0 obl=%zu oll=0 omem=0 "
        "tot-mem=%llu events=%s cmd=%s user=default redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
        (unsigned long long)connection->id, connection_address(connection), local,
        net_stream_fd(connection->stream), connection->name ? connection->name : "",
        (unsigned long long)((now - connection->created_ns) / 1000000000),
        (unsigned long long)((now > connection->active_ns ? now - connection->active_ns : 0) / 1000000000),
        connection->finishing     ? "c"
        : connection->multi       ? "x"
        : connection->unix_socket ? "U"
        : connection->no_evict    ? "e"
                                  : "N",
        connection->multi ? 0 : -1, unparsed, connection->input_capacity - connection->input_end, arguments,
        connection->output.capacity,
        (current ? connection->output.start : connection->output.length) - connection->sent,
        (unsigned long long)(connection_memory(connection) + sizeof *connection),
        connection->watch.events & 4u ? "rw" : "r", command, connection->output.protocol,
        connection->library ? connection->library : "",
        connection->library_version ? connection->library_version : "");
}

/* Which connections CLIENT LIST and KILL choose. */
struct selection {
    struct server_call *call;
    const struct resp_argument *ids; /* NULL: any */
    uint32_t id_count;
    const struct resp_argument *address, *local; /* NULL: any */
    bool skip_me, none;                          /* none: a type or user that no client has */
    bool kill;
    uint64_t now;
    struct spinlock lock; /* guards `killed` */
    uint64_t killed;
    struct text *texts; /* one for each thread, which alone writes it */
};

static bool selected(const struct selection *selection, const struct server_connection *connection)
{
    char text[NET_TEXT_MAX];
    bool found = !selection->ids;
    if (connection->dead || selection->none ||
        (selection->skip_me && connection == selection->call->connection))
        return false;
    snprintf(text, sizeof text, "%llu", (unsigned long long)connection->id);
    for (uint32_t i = 0; !found && i < selection->id_count; i++)
        found = server_argument_equals(&selection->ids[i], text);
    if (found && selection->address)
        found = server_argument_equals(selection->address, connection_address(connection));
    if (found && selection->local) {
        address_local(connection, text, sizeof text);
        found = server_argument_equals(selection->local, text);
    }
    return found;
}

static void selection_visit(struct server_thread *thread, void *context)
{
    struct selection *selection = context;
    uint64_t killed = 0;
    for (struct server_connection *connection = thread->connections, *next; connection; connection = next) {
        next = connection->next;
        if (!selected(selection, connection))
            continue;
        if (!selection->kill) {
            client_line(&selection->texts[thread->number], connection, selection->call, selection->now);
            continue;
        }
        killed++;
        if (connection == selection->call->connection)
            connection_finish(connection); /* after the reply */
        else
            connection_close(connection);
    }
    spinlock_lock(&selection->lock);
    selection->killed += killed;
    spinlock_unlock(&selection->lock);
}

static void clients_list(struct server_call *call, struct selection *selection)
{
    struct server *server = server_of(call);
    struct text all = {0};
    selection->texts = calloc(server->thread_count, sizeof *selection->texts);
    if (!selection->texts || !server_each_thread(server, selection_visit, selection))
        all.failed = true;
    for (unsigned i = 0; selection->texts && i < server->thread_count; i++) {
        if (selection->texts[i].length)
            text_add(&all, "%s", selection->texts[i].bytes);
        all.failed |= selection->texts[i].failed;
        text_free(&selection->texts[i]);
    }
    if (all.failed)
        resp_error(call->reply, "OOM no memory for the list of clients");
    else
        resp_verbatim(call->reply, all.bytes ? all.bytes : "", all.length);
    text_free(&all);
    free(selection->texts);
}

/* *none: it is a type that no client here has. Replies an error and returns false if there is no such type.
 */
static bool type_read(struct server_call *call, const struct resp_argument *type, bool *none)
{
    static const char *const others[] = {"MASTER", "REPLICA", "SLAVE", "PUBSUB"};
    *none = !server_argument_is(type, "NORMAL");
    bool known = !*none;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        known |= server_argument_is(type, others[i]);
    if (!known)
        resp_error(call->reply, "ERR Unknown client type '%.*s'", SERVER_SHOWN(type));
    return known;
}

void client_list_run(struct server_call *call)
{
    struct selection selection = {.call = call, .now = task_now()};
    const struct resp_argument *arguments = call->arguments;
    if (call->count == 4 && server_argument_is(&arguments[2], "TYPE")) {
        if (!type_read(call, &arguments[3], &selection.none))
            return;
    } else if (call->count > 3 && server_argument_is(&arguments[2], "ID")) {
        selection.ids = &arguments[3];
        selection.id_count = call->count - 3;
        for (uint32_t i = 3; i < call->count; i++)
            if (arguments[i].length > 20 || !server_argument_digits(&arguments[i])) {
                resp_error(call->reply, "ERR Invalid client ID");
                return;
            }
    } else if (call->count != 2) {
        server_reply_syntax(call);
        return;
    }
    clients_list(call, &selection);
}

void client_info_run(struct server_call *call)
{
    struct text text = {0};
    client_line(&text, call->connection, call, task_now());
    if (text.failed)
        resp_error(call->reply, "OOM no memory for a reply");
    else
        resp_verbatim(call->reply, text.bytes, text.length);
    text_free(&text);
}

/* ---- CLIENT KILL ---- */

/* Reads CLIENT KILL's filters. Replies an error and returns false if they are wrong. */
static bool kill_filters(struct server_call *call, struct selection *selection)
{
    const struct resp_argument *arguments = call->arguments;
    selection->skip_me = true;
    for (uint32_t i = 2; i < call->count; i += 2) {
        const struct resp_argument *value = &arguments[i + 1];
        if (i + 1 >= call->count) {
            server_reply_syntax(call);
            return false;
        }
        if (server_argument_is(&arguments[i], "ID")) {
            if (value->length > 20 || !server_argument_digits(value) || *value->bytes == '0') {
                resp_error(call->reply, "ERR client-id should be greater than 0");
                return false;
            }
            selection->ids = value;
            selection->id_count = 1;
        } else if (server_argument_is(&arguments[i], "ADDR")) {
            selection->address = value;
        } else if (server_argument_is(&arguments[i], "LADDR")) {
            selection->local = value;
        } else if (server_argument_is(&arguments[i], "TYPE")) {
            bool none;
            if (!type_read(call, value, &none))
                return false;
            selection->none |= none;
        } else if (server_argument_is(&arguments[i], "USER")) {
            if (!server_argument_equals(value, "default")) {
                resp_error(call->reply, "ERR No such user '%.*s'", SERVER_SHOWN(value));
                return false;
            }
        } else if (server_argument_is(&arguments[i], "SKIPME") && server_argument_is(value, "YES")) {
            selection->skip_me = true;
        } else if (server_argument_is(&arguments[i], "SKIPME") && server_argument_is(value, "NO")) {
            selection->skip_me = false;
        } else {
            server_reply_syntax(call);
            return false;
        }
    }
    return true;
}

void client_kill_run(struct server_call *call)
{
    struct selection selection = {.call = call, .kill = true};
    bool by_address = call->count == 3;
    if (by_address)
        selection.address = &call->arguments[2];
    else if (!kill_filters(call, &selection))
        return;
    if (!server_each_thread(server_of(call), selection_visit, &selection))
        resp_error(call->reply, "OOM no memory to look for clients");
    else if (!by_address)
        resp_integer(call->reply, (int64_t)selection.killed);
    else if (selection.killed)
        resp_simple(call->reply, "OK");
    else
        resp_error(call->reply, "ERR No such client");
}
