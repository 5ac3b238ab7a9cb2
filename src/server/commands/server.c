/*
 * server.c - the table of commands about the server and its connections, and the small ones of them: DBSIZE,
 * TIME, WAIT, DEBUG, SHUTDOWN, LATENCY. On a fiber; errors in the words of Redis 7.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
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
    if (!server_argument_integer(call, &call->arguments[1], &replicas))
        return;
    if (!server_integer_parse(call->arguments[2].bytes, call->arguments[2].length, &timeout))
        resp_error(call->reply, "ERR timeout is not an integer or out of range");
    else if (timeout < 0)
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

static const struct server_subcommand debug_subcommands[] = {
    {"SLEEP", 3, debug_sleep}, {"HELP", 2, debug_help}, {NULL, 0, NULL}};

/* The end of a process with a data directory writes all of it, so SAVE is what happens anyway. Without one
 * there is nothing to save to, and SAVE is an error, which FORCE ignores as it does in Redis. */
static void shutdown_run(struct server_call *call)
{
    bool save = false, no_save = false, force = false;
    for (uint32_t i = 1; i < call->count; i++) {
        const struct resp_argument *option = &call->arguments[i];
        if (server_argument_is(option, "ABORT") && call->count == 2) {
            resp_error(call->reply, "ERR No shutdown in progress.");
            return;
        }
        save |= server_argument_is(option, "SAVE");
        no_save |= server_argument_is(option, "NOSAVE");
        force |= server_argument_is(option, "FORCE");
        if ((save && no_save) ||
            (!server_argument_is(option, "SAVE") && !server_argument_is(option, "NOSAVE") &&
             !server_argument_is(option, "NOW") && !server_argument_is(option, "FORCE"))) {
            server_reply_syntax(call);
            return;
        }
    }
    if (save && !force && !server_of(call)->data) {
        resp_error(call->reply,
                   "ERR Errors trying to SHUTDOWN: there is no file to save to. SHUTDOWN NOSAVE stops "
                   "this server");
        return;
    }
    log_info("stopping, as SHUTDOWN from %s asks", connection_address(call->connection));
    connection_finish(call->connection); /* as in Redis, there is no reply but the end of the connection */
    server_stop(server_of(call));
}

static void reply_nothing(struct server_call *call)
{
    resp_array(call->reply, 0);
}

static void reply_zero(struct server_call *call)
{
    resp_integer(call->reply, 0);
}

/* ---- LATENCY: tools ask for it; it is always empty ---- */

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

static const struct server_subcommand latency_subcommands[] = {{"LATEST", 2, reply_nothing},
                                                               {"HISTORY", 3, reply_nothing},
                                                               {"RESET", -2, reply_zero},
                                                               {"HELP", 2, latency_help},
                                                               {NULL, 0, NULL}};

/* ---- the table ---- */

/* name, function or subcommands, arity, flags, group, summary */
#define PLAIN(name, run, arity, flags, group, summary)                                                       \
    {                                                                                                        \
        name, run, NULL, arity, flags, 0, 0, 0, group, summary, NULL, NULL, NULL                             \
    }
#define PARTS(name, run, parts, arity, flags, first, group, summary)                                         \
    {                                                                                                        \
        name, run, NULL, arity, flags, first, first, first ? 1 : 0, group, summary, parts, NULL, NULL        \
    }
#define FREE (SERVER_NO_AUTH | SERVER_FAST)

const struct server_command server_admin_commands[] = {
    PLAIN("ping", ping_run, -1, SERVER_FAST, "connection", "Ping the server"),
    PLAIN("echo", echo_run, 2, SERVER_FAST, "connection", "Echo the given string"),
    PLAIN("quit", quit_run, -1, FREE | SERVER_IN_MULTI, "connection", "Close the connection"),
    PLAIN("reset", reset_run, 1, FREE | SERVER_IN_MULTI, "connection", "Reset the connection"),
    PLAIN("hello", hello_run, -1, FREE, "connection", "Handshake, and choice of protocol"),
    PLAIN("auth", auth_run, -2, FREE, "connection", "Authenticate to the server"),
    PLAIN("select", select_run, 2, SERVER_FAST, "connection",
          "Change the selected database: there is only 0"),
    PARTS("client", NULL, client_subcommands, -2, SERVER_ADMIN, 0, "connection",
          "Commands about client connections"),
    PARTS("command", command_command_run, command_subcommands, -1, 0, 0, "server",
          "Details about all commands"),
    PLAIN("info", info_run, -1, 0, "server", "Information and statistics about the server"),
    PARTS("config", NULL, config_subcommands, -2, SERVER_ADMIN, 0, "server",
          "Settings of the running server"),
    PLAIN("dbsize", dbsize_run, 1, SERVER_READONLY, "server", "Count the keys"),
    PLAIN("time", time_run, 1, SERVER_FAST, "server", "The server's time"),
    PARTS("debug", NULL, debug_subcommands, -2, SERVER_ADMIN, 0, "server", "DEBUG SLEEP"),
    PLAIN("shutdown", shutdown_run, -1, SERVER_ADMIN, "server", "Stop this compute node"),
    PARTS("memory", NULL, memory_subcommands, -2, SERVER_READONLY, 0, "server", "Memory used by keys"),
    PARTS("object", NULL, object_subcommands, -2, SERVER_READONLY, 0, "generic", "Inspect how a key is kept"),
    PARTS("latency", NULL, latency_subcommands, -2, SERVER_ADMIN, 0, "server", "Empty: see INFO"),
    PARTS("slowlog", NULL, slowlog_subcommands, -2, SERVER_ADMIN, 0, "server",
          "The commands that took longest"),
    PLAIN("save", save_run, 1, SERVER_ADMIN, "server", "Make a checkpoint, and wait for it"),
    PLAIN("bgsave", bgsave_run, -1, SERVER_ADMIN, "server", "Make a checkpoint in the background"),
    PLAIN("bgrewriteaof", bgrewriteaof_run, 1, SERVER_ADMIN, "server", "The same as BGSAVE"),
    PLAIN("lastsave", lastsave_run, 1, SERVER_FAST, "server", "When the last checkpoint was whole"),
    PLAIN("waitaof", waitaof_run, 4, 0, "generic", "Wait until this connection's changes are on the disk"),
    PLAIN("wait", wait_run, 3, 0, "generic", "Wait for replicas: there are none"),
    PLAIN("multi", multi_run, 1, SERVER_FAST | SERVER_IN_MULTI, "transactions",
          "Begin a transaction: its commands are refused"),
    PLAIN("exec", exec_run, 1, SERVER_IN_MULTI, "transactions", "End a transaction: EXECABORT"),
    PLAIN("discard", discard_run, 1, SERVER_FAST | SERVER_IN_MULTI, "transactions", "End a transaction"),
    {"watch", watch_run, NULL, -2, SERVER_FAST | SERVER_IN_MULTI, 1, -1, 1, "transactions",
     "An error: there are no transactions", NULL, NULL, NULL},
    PLAIN("unwatch", unwatch_run, 1, SERVER_FAST, "transactions", "Nothing is watched"),
    {0}};
