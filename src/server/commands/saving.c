/*
 * saving.c - commands about what outlives power: SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, WAITAOF. On a fiber.
 * Redis has a snapshot and a log of commands. Here a checkpoint is the snapshot, and ends the journal, which
 * is the log: so commands for either make a checkpoint.
 */
#include <string.h>

#include "base/task.h"
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"
#include "server/state.h"

#define LOOK_NS UINT64_C(1000000)

static struct durable *durable_or_reply(struct server_call *call)
{
    struct durable *durable = server_of(call)->options.durable;
    if (!durable)
        resp_error(call->reply, "ERR this server keeps nothing on a disk: start it with --data and "
                                "--durability disk-second or disk-always");
    return durable;
}

static bool ends(const struct server_call *call)
{
    return call->connection->thread->stopping || call->connection->dead;
}

/* Asks for a checkpoint, or replies why there is none: `busy`, where one is under way. */
static bool save_or_reply(struct server_call *call, struct durable *durable, const char *busy)
{
    struct error error = {0};
    int status = durable_save(durable, &error);
    if (status)
        resp_error(call->reply, "ERR %s", status == BANYAN_EBUSY ? busy : error.text);
    return !status;
}

void bgsave_run(struct server_call *call)
{
    if (call->count > 2 || (call->count == 2 && !server_argument_is(&call->arguments[1], "SCHEDULE"))) {
        server_reply_syntax(call);
        return;
    }
    struct durable *durable = durable_or_reply(call);
    if (durable && save_or_reply(call, durable, "Background save already in progress"))
        resp_simple(call->reply, "Background saving started");
}

void bgrewriteaof_run(struct server_call *call)
{
    struct durable *durable = durable_or_reply(call);
    if (durable && save_or_reply(call, durable, "Background append only file rewriting already in progress"))
        resp_simple(call->reply, "Background append only file rewriting started");
}

void save_run(struct server_call *call)
{
    struct durable_stats before, now;
    struct durable *durable = durable_or_reply(call);
    if (!durable)
        return;
    durable_stats(durable, &before);
    if (!save_or_reply(call, durable, "Background save already in progress"))
        return;
    do {
        task_sleep(LOOK_NS);
        durable_stats(durable, &now);
    } while (now.saving && !ends(call));
    if (now.saves > before.saves)
        resp_simple(call->reply, "OK");
    else
        resp_error(call->reply, "ERR the checkpoint failed; the server's log says why");
}

void lastsave_run(struct server_call *call)
{
    const struct server *server = server_of(call);
    struct durable_stats stats = {.saved_at = 0};
    if (server->options.durable)
        durable_stats(server->options.durable, &stats);
    resp_integer(call->reply, (int64_t)(stats.saved_at ? stats.saved_at / 1000 : server->started_s));
}

void waitaof_run(struct server_call *call)
{
    int64_t numbers[3];
    struct durable *durable = server_of(call)->options.durable;
    for (unsigned i = 0; i < 3; i++)
        if (!server_argument_integer(call, &call->arguments[1 + i], &numbers[i]))
            return;
    const int64_t local = numbers[0], timeout = numbers[2];
    if (local < 0 || local > 1) {
        resp_error(call->reply, "ERR value is out of range, value must between 0 and 1");
    } else if (numbers[1] < 0) {
        resp_error(call->reply, "ERR value is out of range, must be positive");
    } else if (timeout < 0) {
        resp_error(call->reply, "ERR timeout is negative");
    } else if (local && !durable) {
        resp_error(call->reply,
                   "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
    } else {
        /* Each change that this connection was answered for is marked by now. */
        const uint64_t ticket = durable ? feed_ticket(durable_feed(durable)) : 0, begun = task_now();
        bool safe = durable && durable_safe(durable, ticket);
        while (durable && (local || numbers[1]) && !safe && !ends(call) &&
               (!timeout || task_now() - begun < (uint64_t)timeout * 1000000) &&
               !feed_error(durable_feed(durable), NULL)) {
            feed_hurry(durable_feed(durable), ticket);
            task_sleep(LOOK_NS);
            safe = durable_safe(durable, ticket);
        }
        resp_array(call->reply, 2);
        resp_integer(call->reply, safe);
        resp_integer(call->reply, 0);
    }
}
