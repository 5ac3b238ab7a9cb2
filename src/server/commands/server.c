/*
 * server.c - the table of commands about the server and its connections, and the small ones of them: DBSIZE,
 * TIME, WAIT, DEBUG, SHUTDOWN, LATENCY, SLOWLOG. On a fiber; errors in the words of Redis 7.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/state.h"
#include "server/replies.h"

/* ---- DBSIZE, TIME, WAIT ---- */

static void dbsize_run(struct server_call *call)
{
    static const struct tree_range all = {0};
    uint64_t count = 0;
    int status = store_count(call->store, &all, &count);
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, (int64_t)count);
}

static void time_run(struct server_call *call)
{
    char text[32];
    uint64_t now = clock_wall_ms();
    resp_array(call->reply, 2);
    snprintf(text, sizeof text, "%llu", (unsigned long long)(now / 1000));
    resp_text(call->reply, text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)(now % 1000 * 1000));
    resp_text(call->reply, text);
}

static void wait_run(struct server_call *call)
{
    int64_t replicas, timeout;
    if (!server_argument_integer(call, &call->arguments[1], &replicas) ||
        !server_argument_integer(call, &call->arguments[2], &timeout))
        return;
    if (timeout < 0)
        resp_error(call->reply, "ERR timeout is negative");
    else
        resp_integer(call->reply, 0); /* there are no replicas to wait for */
}

/* ---- DEBUG, SHUTDOWN ---- */

static void debug_sleep(struct server_call *call)
{
    char text[64] = "", *end;
    const struct resp_argument *argument = &call->arguments[2];
    memcpy(text, argument->bytes, argument->length < sizeof text - 1 ? argument->length : sizeof text - 1);
    double seconds = strtod(text, &end);
    if (end == text || *end || !isfinite(seconds) || seconds < 0 || seconds > 3600) {
        resp_error(call->reply, "ERR the time to sleep must be from 0 to 3600 seconds");
        return;
    }
    const struct server_thread *thread = call->connection->thread;
    uint64_t now = task_now(), until = now + (uint64_t)(seconds * 1e9);
    while (now < until && !thread->stopping && !call->connection->dead) {
        task_sleep(until - now < 100000000 ? until - now : 100000000);
        now = task_now();
    }
    resp_simple(call->reply, "OK");
}

static void debug_help(struct server_call *call)
{
    static const char *const lines[] = {"SLEEP <seconds>",
                                        "    Let this connection, and no other, wait for <seconds>. "
                                        "Decimals allowed.",
                                        NULL};
    subcommand_reply_help(call, "DEBUG", lines);
}

static void debug_run(struct server_call *call)
{
    static const struct subcommand list[] = {
        {"SLEEP", 3, debug_sleep}, {"HELP", 2, debug_help}, {NULL, 0, NULL}};
    subcommand_run(call, list);
}

static void shutdown_run(struct server_call *call)
{
    for (uint32_t i = 1; i < call->count; i++) {
        const struct resp_argument *option = &call->arguments[i];
        if (server_argument_is(option, "ABORT") && call->count == 2) {
            resp_error(call->reply, "ERR No shutdown in progress.");
            return;
        }
        if (!server_argument_is(option, "NOSAVE") && !server_argument_is(option, "SAVE") &&
            !server_argument_is(option, "NOW") && !server_argument_is(option, "FORCE")) {
            server_reply_syntax(call);
            return;
        }
    }
    connection_finish(call->connection); /* as in Redis, there is no reply but the end of the connection */
    server_stop(server_of(call));
}

static void reply_ok(struct server_call *call)
{
    resp_simple(call->reply, "OK");
}

static void reply_nothing(struct server_call *call)
{
    resp_array(call->reply, 0);
}

static void reply_zero(struct server_call *call)
{
    resp_integer(call->reply, 0);
}

/* ---- LATENCY, SLOWLOG: tools ask for them; both are always empty ---- */

static void latency_help(struct server_call *call)
{
    static const char *const lines[] = {"LATEST",
                                        "    Return an empty list: INFO and the metrics have the latencies.",
                                        "HISTORY <event>",
                                        "    Return an empty list.",
                                        "RESET [<event> ...]",
                                        "    Return 0.",
                                        NULL};
    subcommand_reply_help(call, "LATENCY", lines);
}

static void latency_run(struct server_call *call)
{
    static const struct subcommand list[] = {{"LATEST", 2, reply_nothing},
                                             {"HISTORY", 3, reply_nothing},
                                             {"RESET", -2, reply_zero},
                                             {"HELP", 2, latency_help},
                                             {NULL, 0, NULL}};
    subcommand_run(call, list);
}

static void slowlog_help(struct server_call *call)
{
    static const char *const lines[] = {"GET [<count>]",
                                        "    Return an empty list: no slow commands are kept.",
                                        "LEN",
                                        "    Return 0.",
                                        "RESET",
                                        "    Does nothing.",
                                        NULL};
    subcommand_reply_help(call, "SLOWLOG", lines);
}

static void slowlog_run(struct server_call *call)
{
    static const struct subcommand list[] = {{"GET", -2, reply_nothing},
                                             {"LEN", 2, reply_zero},
                                             {"RESET", 2, reply_ok},
                                             {"HELP", 2, slowlog_help},
                                             {NULL, 0, NULL}};
    subcommand_run(call, list);
}

/* ---- the table ---- */

#define FREE (SERVER_NO_AUTH | SERVER_FAST)

const struct server_command server_admin_commands[] = {
    {"ping", ping_run, NULL, -1, SERVER_FAST, 0, 0, 0, "connection", "Ping the server"},
    {"echo", echo_run, NULL, 2, SERVER_FAST, 0, 0, 0, "connection", "Echo the given string"},
    {"quit", quit_run, NULL, -1, FREE, 0, 0, 0, "connection", "Close the connection"},
    {"reset", reset_run, NULL, 1, FREE, 0, 0, 0, "connection", "Reset the connection"},
    {"hello", hello_run, NULL, -1, FREE, 0, 0, 0, "connection", "Handshake, and choice of protocol"},
    {"auth", auth_run, NULL, -2, FREE, 0, 0, 0, "connection", "Authenticate to the server"},
    {"select", select_run, NULL, 2, SERVER_FAST, 0, 0, 0, "connection",
     "Change the selected database: there is only 0"},
    {"client", client_run, NULL, -2, SERVER_ADMIN, 0, 0, 0, "connection",
     "Commands about client connections"},
    {"command", command_command_run, NULL, -1, 0, 0, 0, 0, "server", "Details about all commands"},
    {"info", info_run, NULL, -1, 0, 0, 0, 0, "server", "Information and statistics about the server"},
    {"config", config_run, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "Settings of the running server"},
    {"dbsize", dbsize_run, NULL, 1, SERVER_READONLY, 0, 0, 0, "server", "Count the keys"},
    {"time", time_run, NULL, 1, SERVER_FAST, 0, 0, 0, "server", "The server's time"},
    {"debug", debug_run, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "DEBUG SLEEP"},
    {"shutdown", shutdown_run, NULL, -1, SERVER_ADMIN, 0, 0, 0, "server", "Stop this compute node"},
    {"memory", memory_run, NULL, -2, SERVER_READONLY, 2, 2, 1, "server", "Memory used by keys"},
    {"object", object_run, NULL, -2, SERVER_READONLY, 2, 2, 1, "generic", "Inspect how a key is kept"},
    {"latency", latency_run, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "Empty: see INFO"},
    {"slowlog", slowlog_run, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "Empty: none is kept"},
    {"wait", wait_run, NULL, 3, 0, 0, 0, 0, "generic", "Wait for replicas: there are none"},
    {0}};
