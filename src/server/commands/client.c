/*
 * connection.c - the commands about the caller's own connection, and CLIENT. On a fiber of the connection's
 * thread; CLIENT LIST and KILL go to every thread. Errors in the words of Redis 7.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/commands/functions.h"

static struct server *server_of(const struct server_call *call)
{
    return call->client->thread->server;
}

void connection_ping(struct server_call *call)
{
    if (call->count > 2)
        server_reply_arity(call);
    else if (call->count == 2)
        resp_bulk(call->reply, call->arguments[1].bytes, call->arguments[1].length);
    else
        resp_simple(call->reply, "PONG");
}

void connection_echo(struct server_call *call)
{
    resp_bulk(call->reply, call->arguments[1].bytes, call->arguments[1].length);
}

void connection_quit(struct server_call *call)
{
    resp_simple(call->reply, "OK");
    client_finish(call->client);
}

void connection_select(struct server_call *call)
{
    int64_t number;
    if (!server_argument_integer(call, &call->arguments[1], &number))
        return;
    if (number)
        resp_error(call->reply, "ERR DB index is out of range");
    else
        resp_simple(call->reply, "OK");
}

static bool digits_only(const struct resp_argument *text)
{
    for (size_t i = 0; i < text->length; i++)
        if (text->bytes[i] < '0' || text->bytes[i] > '9')
            return false;
    return text->length != 0;
}

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
    if (text->length <= CLIENT_NAME_MAX)
        return false;
    resp_error(call->reply, "ERR a name has at most %u bytes", CLIENT_NAME_MAX);
    return true;
}

/* Sets a text of the client's; an empty one is none. False: no memory. */
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

static bool name_set(struct server_call *call, const struct resp_argument *name)
{
    if (too_long(call, name))
        return false;
    if (!printable(name)) {
        resp_error(call->reply, "ERR Client names cannot contain spaces, newlines or special characters.");
        return false;
    }
    return text_set(call, &call->client->name, name);
}

/* ---- who it is ---- */

/* Replies an error unless name and password are right. */
static bool authenticate(struct server_call *call, const struct resp_argument *user,
                         const struct resp_argument *password)
{
    struct server *server = server_of(call);
    bool known = !user || (user->length == 7 && memcmp(user->bytes, "default", 7) == 0);
    /* Both are looked at, so that the time says nothing about either. A default user without password takes
     * any. */
    bool right = server_password_check(server, password->bytes, password->length);
    if (known && (right || !atomic_load_relaxed(&server->guarded))) {
        call->client->authenticated = true;
        return true;
    }
    resp_error(call->reply, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

void connection_auth(struct server_call *call)
{
    if (call->count > 3) {
        server_reply_syntax(call);
    } else if (call->count == 2 && !atomic_load_relaxed(&server_of(call)->guarded)) {
        resp_error(call->reply,
                   "ERR AUTH <password> called without any password configured for the default user. Are you "
                   "sure your configuration is correct?");
    } else if (authenticate(call, call->count == 3 ? &call->arguments[1] : NULL,
                            &call->arguments[call->count - 1])) {
        resp_simple(call->reply, "OK");
    }
}

static void hello_reply(struct server_call *call)
{
    struct resp_writer *reply = call->reply;
    resp_map(reply, 7);
    resp_text(reply, "server");
    resp_text(reply, "redis");
    resp_text(reply, "version");
    resp_text(reply, SERVER_REDIS_VERSION);
    resp_text(reply, "proto");
    resp_integer(reply, reply->protocol);
    resp_text(reply, "id");
    resp_integer(reply, (int64_t)call->client->id);
    resp_text(reply, "mode");
    resp_text(reply, "standalone");
    resp_text(reply, "role");
    resp_text(reply, "master");
    resp_text(reply, "modules");
    resp_array(reply, 0);
}

void connection_hello(struct server_call *call)
{
    const struct resp_argument *arguments = call->arguments, *name = NULL;
    int64_t protocol = call->reply->protocol;
    if (call->count > 1) {
        const struct resp_argument *number = &arguments[1];
        if (number->length != 1 || (*number->bytes != '2' && *number->bytes != '3')) {
            bool integer = digits_only(number);
            resp_error(call->reply, integer ? "NOPROTO unsupported protocol version"
                                            : "ERR Protocol version is not an integer or out of range");
            return;
        }
        protocol = *number->bytes - '0';
    }
    for (uint32_t i = 2; i < call->count; i++) {
        uint32_t more = call->count - 1 - i;
        if (more >= 2 && server_argument_is(&arguments[i], "AUTH")) {
            if (!authenticate(call, &arguments[i + 1], &arguments[i + 2]))
                return;
            i += 2;
        } else if (more >= 1 && server_argument_is(&arguments[i], "SETNAME")) {
            name = &arguments[++i];
        } else {
            resp_error(call->reply, "ERR Syntax error in HELLO option '%.*s'",
                       (int)(arguments[i].length < 128 ? arguments[i].length : 128), arguments[i].bytes);
            return;
        }
    }
    if (!call->client->authenticated && atomic_load_relaxed(&server_of(call)->guarded)) {
        resp_error(call->reply,
                   "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
                   "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
                   "RESP protocol version at the same time");
        return;
    }
    if (name && !name_set(call, name))
        return;
    call->reply->protocol = (int)protocol;
    hello_reply(call);
}

void connection_reset(struct server_call *call)
{
    struct server_client *client = call->client;
    client->authenticated = !atomic_load_relaxed(&server_of(call)->guarded);
    client->reply = CLIENT_REPLY_ON;
    client->skip = 0;
    client->no_evict = client->no_touch = false;
    call->reply->protocol = 2;
    free(client->name);
    client->name = NULL;
    resp_simple(call->reply, "RESET");
}

/* ---- CLIENT INFO and LIST ---- */

static void address_local(const struct server_client *client, char *text, size_t size)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    char host[INET6_ADDRSTRLEN] = "";
    snprintf(text, size, "%s", client->peer);
    if (client->unix_socket ||
        getsockname(net_stream_fd(client->stream), (struct sockaddr *)&storage, &length))
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

/* As clients know addresses: without the scheme that Banyan's own settings write. */
static const char *address_peer(const struct server_client *client)
{
    return strncmp(client->peer, "tcp://", 6) == 0 ? client->peer + 6 : client->peer;
}

/* One line, as Redis writes it; tools take it apart by the names. On the client's thread. */
static void client_line(struct text *text, const struct server_client *client, uint64_t now)
{
    char local[NET_TEXT_MAX];
    bool current = client->running;
    address_local(client, local, sizeof local);
    text_add(text,
             "id=%llu addr=%s laddr=%s fd=%d name=%s age=%llu idle=%llu flags=%s db=0 sub=0 psub=0 ssub=0 "
             "multi=-1 qbuf=%zu qbuf-free=%zu argv-mem=%zu multi-mem=0 rbs=%zu rbp=0 obl=%zu oll=0 omem=0 "
             "tot-mem=%llu events=%s cmd=%s user=default redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
             (unsigned long long)client->id, address_peer(client), local, net_stream_fd(client->stream),
             client->name ? client->name : "", (unsigned long long)((now - client->created_ns) / 1000000000),
             (unsigned long long)((now > client->active_ns ? now - client->active_ns : 0) / 1000000000),
             client->finishing     ? "c"
             : client->unix_socket ? "U"
             : client->no_evict    ? "e"
                                   : "N",
             client->input_end - client->input_start, client->input_capacity - client->input_end,
             client->parser.capacity * sizeof *client->parser.arguments, client->output.capacity,
             (current ? client->output.start : client->output.length) - client->sent,
             (unsigned long long)(client_memory(client) + sizeof *client),
             client->watch.events & 4u ? "rw" : "r", client->last_command, client->output.protocol,
             client->library ? client->library : "", client->library_version ? client->library_version : "");
}

/* What CLIENT LIST and KILL choose by. */
struct selection {
    struct server_call *call;
    const struct resp_argument *ids; /* NULL: any */
    uint32_t id_count;
    const struct resp_argument *address, *local; /* NULL: any */
    bool skip_me, none;                          /* none: a type or user that no client has */
    bool kill;
    uint64_t now;
    struct spinlock lock; /* guards count; text is the thread's that has it: see `texts` */
    uint64_t killed;
    struct text *texts; /* one per thread */
};

static bool same_text(const struct resp_argument *argument, const char *text)
{
    return strlen(text) == argument->length && memcmp(text, argument->bytes, argument->length) == 0;
}

static bool selected(const struct selection *selection, const struct server_client *client)
{
    char text[NET_TEXT_MAX];
    bool found = !selection->ids;
    if (client->dead || selection->none || (selection->skip_me && client == selection->call->client))
        return false;
    snprintf(text, sizeof text, "%llu", (unsigned long long)client->id);
    for (uint32_t i = 0; !found && i < selection->id_count; i++)
        found = same_text(&selection->ids[i], text);
    if (found && selection->address)
        found = same_text(selection->address, address_peer(client));
    if (found && selection->local) {
        address_local(client, text, sizeof text);
        found = same_text(selection->local, text);
    }
    return found;
}

static void selection_visit(struct server_thread *thread, void *context)
{
    struct selection *selection = context;
    uint64_t killed = 0;
    for (struct server_client *client = thread->clients, *next; client; client = next) {
        next = client->next;
        if (!selected(selection, client))
            continue;
        if (!selection->kill) {
            client_line(&selection->texts[thread->number], client, selection->now);
            continue;
        }
        killed++;
        if (client == selection->call->client)
            client_finish(client); /* when it has got the reply */
        else
            client_close(client);
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

static void sub_list(struct server_call *call)
{
    struct selection selection = {.call = call, .now = task_now()};
    const struct resp_argument *arguments = call->arguments;
    if (call->count == 4 && server_argument_is(&arguments[2], "TYPE")) {
        selection.none = !server_argument_is(&arguments[3], "NORMAL");
        if (selection.none && !server_argument_is(&arguments[3], "MASTER") &&
            !server_argument_is(&arguments[3], "REPLICA") && !server_argument_is(&arguments[3], "SLAVE") &&
            !server_argument_is(&arguments[3], "PUBSUB")) {
            resp_error(call->reply, "ERR Unknown client type '%.*s'",
                       (int)(arguments[3].length < 128 ? arguments[3].length : 128), arguments[3].bytes);
            return;
        }
    } else if (call->count > 3 && server_argument_is(&arguments[2], "ID")) {
        selection.ids = &arguments[3];
        selection.id_count = call->count - 3;
        for (uint32_t i = 3; i < call->count; i++)
            if (arguments[i].length > 20 || !digits_only(&arguments[i])) {
                resp_error(call->reply, "ERR Invalid client ID");
                return;
            }
    } else if (call->count != 2) {
        server_reply_syntax(call);
        return;
    }
    clients_list(call, &selection);
}

static void sub_info(struct server_call *call)
{
    struct text text = {0};
    client_line(&text, call->client, task_now());
    if (text.failed)
        resp_error(call->reply, "OOM no memory for a reply");
    else
        resp_verbatim(call->reply, text.bytes, text.length);
    text_free(&text);
}

/* ---- CLIENT KILL ---- */

/* The filters of the new form; replies and returns false if they are wrong. */
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
            if (value->length > 20 || !digits_only(value) || *value->bytes == '0') {
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
            selection->none |= !server_argument_is(value, "NORMAL");
        } else if (server_argument_is(&arguments[i], "USER")) {
            if (!same_text(value, "default")) {
                resp_error(call->reply, "ERR No such user '%.*s'",
                           (int)(value->length < 128 ? value->length : 128), value->bytes);
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

static void sub_kill(struct server_call *call)
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

/* ---- the other subcommands of CLIENT ---- */

static void sub_id(struct server_call *call)
{
    resp_integer(call->reply, (int64_t)call->client->id);
}

static void sub_getname(struct server_call *call)
{
    if (call->client->name)
        resp_text(call->reply, call->client->name);
    else
        resp_null(call->reply);
}

static void sub_setname(struct server_call *call)
{
    if (name_set(call, &call->arguments[2]))
        resp_simple(call->reply, "OK");
}

static void sub_setinfo(struct server_call *call)
{
    const struct resp_argument *option = &call->arguments[2], *value = &call->arguments[3];
    char **place = NULL;
    if (server_argument_is(option, "LIB-NAME"))
        place = &call->client->library;
    else if (server_argument_is(option, "LIB-VER"))
        place = &call->client->library_version;
    if (!place)
        resp_error(call->reply, "ERR Unrecognized option '%.*s'",
                   (int)(option->length < 128 ? option->length : 128), option->bytes);
    else if (!printable(value))
        resp_error(call->reply, "ERR %s cannot contain spaces, newlines or special characters.",
                   place == &call->client->library ? "lib-name" : "lib-ver");
    else if (!too_long(call, value) && text_set(call, place, value))
        resp_simple(call->reply, "OK");
}

static void sub_reply(struct server_call *call)
{
    struct server_client *client = call->client;
    if (server_argument_is(&call->arguments[2], "ON")) {
        client->reply = CLIENT_REPLY_ON;
        client->skip = 0;
        resp_simple(call->reply, "OK");
    } else if (server_argument_is(&call->arguments[2], "OFF")) {
        client->reply = CLIENT_REPLY_OFF;
    } else if (server_argument_is(&call->arguments[2], "SKIP")) {
        if (client->reply != CLIENT_REPLY_OFF)
            client->skip = 2; /* this command's, which has none, and the next one's */
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
    sub_switch(call, &call->client->no_evict);
}

static void sub_no_touch(struct server_call *call)
{
    sub_switch(call, &call->client->no_touch);
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
    admin_reply_help(call, "CLIENT", lines);
}

void connection_client(struct server_call *call)
{
    static const struct {
        const char *name;
        int arity;
        server_command_function *run;
    } subcommands[] = {{"ID", 2, sub_id},
                       {"GETNAME", 2, sub_getname},
                       {"SETNAME", 3, sub_setname},
                       {"SETINFO", 4, sub_setinfo},
                       {"LIST", -2, sub_list},
                       {"INFO", 2, sub_info},
                       {"KILL", -3, sub_kill},
                       {"REPLY", 3, sub_reply},
                       {"NO-EVICT", 3, sub_no_evict},
                       {"NO-TOUCH", 3, sub_no_touch},
                       {"HELP", 2, sub_help}};
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        if (!server_argument_is(&call->arguments[1], subcommands[i].name))
            continue;
        if (command_arity_allows(subcommands[i].arity, call->count))
            subcommands[i].run(call);
        else
            server_reply_subcommand_arity(call, subcommands[i].name);
        return;
    }
    server_reply_subcommand(call);
}
