/*
 * connection.c - commands about the caller's own connection, except CLIENT: PING, ECHO, QUIT, SELECT, AUTH,
 * HELLO, RESET. On a fiber of the connection's thread; errors in the words of Redis 7.
 */
#include <stdlib.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/state.h"
#include "store/cut.h"
#include "server/replies.h"

void ping_run(struct server_call *call)
{
    if (call->count > 2)
        server_reply_arity(call);
    else if (call->count == 2)
        resp_bulk(call->reply, call->arguments[1].bytes, call->arguments[1].length);
    else
        resp_simple(call->reply, "PONG");
}

void echo_run(struct server_call *call)
{
    resp_bulk(call->reply, call->arguments[1].bytes, call->arguments[1].length);
}

void quit_run(struct server_call *call)
{
    resp_simple(call->reply, "OK");
    connection_finish(call->connection);
}

void select_run(struct server_call *call)
{
    int64_t number;
    if (!server_argument_integer(call, &call->arguments[1], &number))
        return;
    if (number)
        resp_error(call->reply, "ERR DB index is out of range");
    else
        resp_simple(call->reply, "OK");
}

/* ---- who it is ---- */

/* Replies an error and returns false unless name and password are right. */
static bool authenticate(struct server_call *call, const struct resp_argument *user,
                         const struct resp_argument *password)
{
    struct server *server = server_of(call);
    bool known = !user || server_argument_equals(user, "default");
    /* Both are checked in any case, so that the time tells nothing about either. While no password is set,
     * the default user may give any. */
    bool right = password_check(&server->password, password->bytes, password->length);
    if (known && (right || !password_wanted(&server->password))) {
        call->connection->authenticated = true;
        return true;
    }
    resp_error(call->reply, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

void auth_run(struct server_call *call)
{
    if (call->count > 3) {
        server_reply_syntax(call);
    } else if (call->count == 2 && !password_wanted(&server_of(call)->password)) {
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
    resp_integer(reply, (int64_t)call->connection->id);
    resp_text(reply, "mode");
    resp_text(reply, "standalone");
    resp_text(reply, "role");
    resp_text(reply, "master");
    resp_text(reply, "modules");
    resp_array(reply, 0);
}

void hello_run(struct server_call *call)
{
    const struct resp_argument *arguments = call->arguments, *name = NULL;
    int64_t protocol = call->reply->protocol;
    if (call->count > 1) {
        const struct resp_argument *number = &arguments[1];
        if (number->length != 1 || (*number->bytes != '2' && *number->bytes != '3')) {
            bool integer = server_argument_digits(number);
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
            resp_error(call->reply, "ERR Syntax error in HELLO option '%.*s'", SERVER_SHOWN(&arguments[i]));
            return;
        }
    }
    if (!call->connection->authenticated && password_wanted(&server_of(call)->password)) {
        resp_error(call->reply,
                   "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
                   "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
                   "RESP protocol version at the same time");
        return;
    }
    if (name && !client_name_set(call, name))
        return;
    call->reply->protocol = (int)protocol;
    hello_reply(call);
}

void reset_run(struct server_call *call)
{
    struct server_connection *connection = call->connection;
    connection->authenticated = !password_wanted(&server_of(call)->password);
    connection->reply = CONNECTION_REPLY_ON;
    connection->skip = 0;
    connection->no_evict = connection->no_touch = connection->multi = false;
    call->reply->protocol = 2;
    free(connection->name);
    connection->name = NULL;
    store_cut_close(connection->cut);
    connection->cut = NULL;
    resp_simple(call->reply, "RESET");
}
