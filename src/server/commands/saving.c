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
#include "server/saves.h"
#include "server/state.h"

#define LOOK_NS UINT64_C(1000000)

static bool ends(const struct server_call *call)
{
    return call->connection->thread->stopping || call->connection->dead;
}

/* Asks for a checkpoint, or replies why there is none: `busy`, where one is under way. */
static bool save_or_reply(struct server_call *call, const char *busy)
{
    struct error error = {0};
    int status = server_save_begin(server_of(call), &error);
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
    if (save_or_reply(call, "Background save already in progress"))
        resp_simple(call->reply, "Background saving started");
}

void bgrewriteaof_run(struct server_call *call)
{
    if (save_or_reply(call, "Background append only file rewriting already in progress"))
        resp_simple(call->reply, "Background append only file rewriting started");
}

void save_run(struct server_call *call)
{
    struct server_saves before, now;
    server_save_look(server_of(call), &before);
    if (!save_or_reply(call, "Background save already in progress"))
        return;
    do {
        task_sleep(LOOK_NS);
        server_save_look(server_of(call), &now);
    } while (now.saving && !ends(call));
    if (now.saves > before.saves)
        resp_simple(call->reply, "OK");
    else
        resp_error(call->reply, "ERR the checkpoint failed; the server's log says why");
}

void lastsave_run(struct server_call *call)
{
    const struct server *server = server_of(call);
    struct server_saves saves;
    server_save_look(server, &saves);
    resp_integer(call->reply, (int64_t)(saves.saved_ms ? saves.saved_ms / 1000 : server->started_s));
}

/* Whether all that this connection was answered for is on the disk, after waiting for that if it is wanted.
 */
static bool kept_here(struct server_call *call, struct durable *durable, bool wait, int64_t timeout_ms)
{
    /* Each change that this connection was answered for is marked by now. */
    const uint64_t ticket = feed_ticket(durable_feed(durable)), begun = task_now();
    bool safe = durable_safe(durable, ticket);
    while (wait && !safe && !ends(call) &&
           (!timeout_ms || task_now() - begun < (uint64_t)timeout_ms * 1000000) &&
           !feed_error(durable_feed(durable), NULL)) {
        feed_hurry(durable_feed(durable), ticket);
        task_sleep(LOOK_NS);
        safe = durable_safe(durable, ticket);
    }
    return safe;
}

void waitaof_run(struct server_call *call)
{
    int64_t numbers[3];
    struct server *server = server_of(call);
    struct durable *durable = server->options.durable;
    const bool on_disk = server_durability(server) >= FABRIC_KEPT_ON_DISK;
    bool safe = false;
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
    } else if (local && !on_disk) {
        resp_error(call->reply,
                   "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
    } else {
        if (durable)
            safe = kept_here(call, durable, local || numbers[1], timeout);
        else if (on_disk) /* a pass of each memory node, as long as that takes */
            safe = !server_persist(server, call->store);
        resp_array(call->reply, 2);
        resp_integer(call->reply, safe);
        resp_integer(call->reply, 0);
    }
}
