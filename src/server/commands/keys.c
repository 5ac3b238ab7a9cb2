/*
 * keys.c - commands about keys, whatever they hold, and the table of them (expiry.c and keyspace.c have the
 * larger ones). On fibers. Replies and errors are those of Redis 7.0. Commands on many keys take effect key
 * by key, not as one transaction.
 *
 * RENAME, RENAMENX and COPY are left out: two keys cannot be changed in one atomic step here.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/many_keys.h"
#include "server/replies.h"

static void del_run(struct server_call *call)
{
    int64_t gone = 0;
    if (!server_arguments_keys(call, 1, 1))
        return;
    for (uint32_t i = 1; i < call->count; i++) {
        int status = store_delete(call->store, call->arguments[i].bytes, call->arguments[i].length);
        if (status && status != BANYAN_ENOTFOUND) {
            server_reply_failure(call, status);
            return;
        }
        gone += !status;
    }
    resp_integer(call->reply, gone);
}

static void exists_point(struct server_call *call, const struct store_value *value)
{
    server_call_count(call, value);
    resp_integer(call->reply, value ? 1 : 0);
}

static bool exists_visit(struct server_call *call, const struct store_value *value, void *context)
{
    *(int64_t *)context += value != NULL;
    return true;
}

static void exists_run(struct server_call *call)
{
    int64_t found = 0;
    if (!server_arguments_keys(call, 1, 1))
        return;
    int status = many_keys_each(call, 1, false, exists_visit, &found);
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, found);
}

static void type_point(struct server_call *call, const struct store_value *value)
{
    server_call_count(call, value);
    resp_simple(call->reply, value ? "string" : "none");
}

/* ---- the table ---- */

#define READ_LENGTH (SERVER_READONLY | SERVER_FAST | SERVER_POINT_LENGTH)
#define WRITE_FAST  (SERVER_WRITE | SERVER_FAST)
/* name, run, point, arity, flags, keys, summary */
#define KEY(name, run, point, arity, flags, first, last, step, summary)                                      \
    {                                                                                                        \
        name, run, point, arity, flags, first, last, step, "generic", summary, NULL, NULL, NULL              \
    }

const struct server_command server_key_commands[] = {
    KEY("del", del_run, NULL, -2, SERVER_WRITE, 1, -1, 1, "Deletes keys"),
    KEY("unlink", del_run, NULL, -2, WRITE_FAST, 1, -1, 1, "Deletes keys"),
    KEY("exists", exists_run, exists_point, -2, READ_LENGTH, 1, -1, 1, "How many of the keys exist"),
    KEY("touch", exists_run, exists_point, -2, READ_LENGTH, 1, -1, 1, "How many of the keys exist"),
    KEY("type", NULL, type_point, 2, READ_LENGTH, 1, 1, 1, "What kind of value a key has"),
    KEY("expire", expire_run, NULL, -3, WRITE_FAST, 1, 1, 1, "Ends a key after some seconds"),
    KEY("pexpire", pexpire_run, NULL, -3, WRITE_FAST, 1, 1, 1, "Ends a key after some milliseconds"),
    KEY("expireat", expireat_run, NULL, -3, WRITE_FAST, 1, 1, 1, "Ends a key at a time in seconds"),
    KEY("pexpireat", pexpireat_run, NULL, -3, WRITE_FAST, 1, 1, 1, "Ends a key at a time in milliseconds"),
    KEY("persist", persist_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Takes a key's expiry away"),
    KEY("ttl", NULL, ttl_point, 2, READ_LENGTH, 1, 1, 1, "Seconds until a key ends"),
    KEY("pttl", NULL, pttl_point, 2, READ_LENGTH, 1, 1, 1, "Milliseconds until a key ends"),
    KEY("expiretime", NULL, expiretime_point, 2, READ_LENGTH, 1, 1, 1, "When a key ends, in seconds"),
    KEY("pexpiretime", NULL, pexpiretime_point, 2, READ_LENGTH, 1, 1, 1, "When a key ends, in milliseconds"),
    KEY("scan", scan_run, NULL, -2, SERVER_READONLY, 0, 0, 0, "Keys, some at a time, in their order"),
    KEY("keys", keys_run, NULL, 2, SERVER_READONLY, 0, 0, 0, "All keys that match a pattern"),
    KEY("randomkey", randomkey_run, NULL, 1, SERVER_READONLY, 0, 0, 0, "Some key"),
    {"flushdb", flush_run, NULL, -1, SERVER_WRITE, 0, 0, 0, "server", "Deletes all keys, one after the other",
     NULL, NULL, NULL},
    {"flushall", flush_run, NULL, -1, SERVER_WRITE, 0, 0, 0, "server",
     "Deletes all keys, one after the other", NULL, NULL, NULL},
    {.name = NULL},
};
