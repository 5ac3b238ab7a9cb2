/*
 * expiry.c - when keys end: EXPIRE and its kin, PERSIST, TTL and its kin. Conditions (NX XX GT LT) and the
 * change are one atomic step. An expiry that has passed deletes the key at once, as in Redis.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include <string.h>

enum expire_flags { EXPIRE_NX = 1, EXPIRE_XX = 2, EXPIRE_GT = 4, EXPIRE_LT = 8 };

struct expire_step {
    unsigned flags;
    int64_t when; /* ms since 1970; may be negative */
    bool past;
    bool changed;
};

/* As in Redis, the option is quoted as a C string, without the line ends after it. */
static void reply_unsupported(struct server_call *call, const struct resp_argument *option)
{
    size_t length = strnlen(option->bytes, option->length < 512 ? option->length : 512);
    while (length && strchr("\r\n", option->bytes[length - 1]))
        length--;
    resp_error(call->reply, "ERR Unsupported option %.*s", (int)length, option->bytes);
}

static bool options_parse(struct server_call *call, unsigned *flags)
{
    static const struct {
        const char *name;
        unsigned flag;
    } table[] = {{"NX", EXPIRE_NX}, {"XX", EXPIRE_XX}, {"GT", EXPIRE_GT}, {"LT", EXPIRE_LT}};
    *flags = 0;
    for (uint32_t i = 3; i < call->count; i++) {
        const struct resp_argument *argument = &call->arguments[i];
        unsigned flag = 0;
        for (unsigned t = 0; t < sizeof table / sizeof *table; t++)
            if (server_argument_is(argument, table[t].name))
                flag = table[t].flag;
        if (!flag) {
            reply_unsupported(call, argument);
            return false;
        }
        *flags |= flag;
    }
    if (*flags & EXPIRE_NX && *flags != EXPIRE_NX)
        resp_error(call->reply, "ERR NX and XX, GT or LT options at the same time are not compatible");
    else if (*flags & EXPIRE_GT && *flags & EXPIRE_LT)
        resp_error(call->reply, "ERR GT and LT options at the same time are not compatible");
    else
        return true;
    return false;
}

/* For GT and LT, a key without expiry never ends. */
static bool step_applies(const struct expire_step *step, uint64_t expires)
{
    const bool later = expires && step->when > 0 && (uint64_t)step->when > expires;
    const bool sooner = !expires || step->when < 0 || (uint64_t)step->when < expires;
    return !(step->flags & EXPIRE_NX && expires) && !(step->flags & EXPIRE_XX && !expires) &&
           !(step->flags & EXPIRE_GT && !later) && !(step->flags & EXPIRE_LT && !sooner);
}

static enum store_verdict expire_step(void *context, const struct store_value *old, struct store_value *new)
{
    struct expire_step *step = context;
    step->changed = old && step_applies(step, old->expires);
    if (!step->changed)
        return STORE_KEEP;
    if (step->past)
        return STORE_REMOVE;
    *new = (struct store_value){.bytes = NULL, .length = old->length, .expires = (uint64_t)step->when};
    return STORE_PUT;
}

static void expire_generic(struct server_call *call, bool seconds, uint64_t base)
{
    const struct resp_argument *key = &call->arguments[1];
    struct expire_step step = {0};
    bool existed;
    if (!options_parse(call, &step.flags) || !server_argument_integer(call, &call->arguments[2], &step.when))
        return;
    if ((seconds && __builtin_mul_overflow(step.when, 1000, &step.when)) ||
        __builtin_add_overflow(step.when, (int64_t)base, &step.when)) {
        server_reply_bad_expire(call);
        return;
    }
    if (!server_argument_key(call, key))
        return;
    step.past = step.when <= (int64_t)call->now_ms;
    int status = store_modify(call->store, key->bytes, key->length, STORE_NEED_LENGTH, expire_step, &step,
                              NULL, &existed);
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, step.changed);
}

void expire_run(struct server_call *call)
{
    expire_generic(call, true, call->now_ms);
}

void pexpire_run(struct server_call *call)
{
    expire_generic(call, false, call->now_ms);
}

void expireat_run(struct server_call *call)
{
    expire_generic(call, true, 0);
}

void pexpireat_run(struct server_call *call)
{
    expire_generic(call, false, 0);
}

static enum store_verdict persist_step(void *context, const struct store_value *old, struct store_value *new)
{
    bool *changed = context;
    *changed = old && old->expires;
    if (!*changed)
        return STORE_KEEP;
    *new = (struct store_value){.bytes = NULL, .length = old->length};
    return STORE_PUT;
}

void persist_run(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[1];
    bool changed = false, existed;
    if (!server_argument_key(call, key))
        return;
    int status = store_modify(call->store, key->bytes, key->length, STORE_NEED_LENGTH, persist_step, &changed,
                              NULL, &existed);
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, changed);
}

/* Replies -2 for no such key, -1 for no expiry. Seconds are rounded to the nearest, as in Redis. */
static void reply_time(struct server_call *call, const struct store_value *value, uint64_t base, bool seconds)
{
    int64_t time = -2;
    server_call_count(call, value);
    if (value && !value->expires) {
        time = -1;
    } else if (value) {
        uint64_t ms = value->expires > base ? value->expires - base : 0;
        time = (int64_t)(seconds ? (ms + 500) / 1000 : ms);
    }
    resp_integer(call->reply, time);
}

void ttl_point(struct server_call *call, const struct store_value *value)
{
    reply_time(call, value, call->now_ms, true);
}

void pttl_point(struct server_call *call, const struct store_value *value)
{
    reply_time(call, value, call->now_ms, false);
}

void expiretime_point(struct server_call *call, const struct store_value *value)
{
    reply_time(call, value, 0, true);
}

void pexpiretime_point(struct server_call *call, const struct store_value *value)
{
    reply_time(call, value, 0, false);
}
