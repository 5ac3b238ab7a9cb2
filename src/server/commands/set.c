/*
 * set.c - commands that set whole values: SET and its kin, GETSET, GETDEL, GETEX, MSET. On fibers. Replies
 * and errors are those of Redis 7.0.
 *
 * A command that looks at a key before it writes the key is one store_modify, and so one atomic step. SET
 * without conditions is a plain write.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

/* ---- options of SET and GETEX ---- */

enum set_flags {
    SET_NX = 1,
    SET_XX = 2,
    SET_GET = 4,
    SET_KEEPTTL = 8,
    SET_PERSIST = 16,
    SET_EX = 32,
    SET_PX = 64,
    SET_EXAT = 128,
    SET_PXAT = 256,
};
#define SET_EXPIRY (SET_EX | SET_PX | SET_EXAT | SET_PXAT)

struct set_options {
    unsigned flags;
    const struct resp_argument *expire; /* the number after EX, PX, EXAT or PXAT */
};
struct set_option {
    const char *name;
    unsigned flag;
    unsigned conflicts; /* options that may not stand before it */
};
static const struct set_option set_table[] = {
    {"NX", SET_NX, SET_XX},
    {"XX", SET_XX, SET_NX},
    {"GET", SET_GET, 0},
    {"KEEPTTL", SET_KEEPTTL, SET_PERSIST | SET_EXPIRY},
    {"PERSIST", SET_PERSIST, SET_KEEPTTL | SET_EXPIRY},
    {"EX", SET_EX, SET_KEEPTTL | SET_PERSIST | (SET_EXPIRY & ~SET_EX)},
    {"PX", SET_PX, SET_KEEPTTL | SET_PERSIST | (SET_EXPIRY & ~SET_PX)},
    {"EXAT", SET_EXAT, SET_KEEPTTL | SET_PERSIST | (SET_EXPIRY & ~SET_EXAT)},
    {"PXAT", SET_PXAT, SET_KEEPTTL | SET_PERSIST | (SET_EXPIRY & ~SET_PXAT)},
    {NULL, 0, 0},
};
#define SET_ALLOWS   (~(unsigned)SET_PERSIST)
#define GETEX_ALLOWS ((unsigned)(SET_EXPIRY | SET_PERSIST))

/* False: they are no such options. */
static bool options_read(const struct resp_argument *arguments, uint32_t count, uint32_t first,
                         unsigned allowed, struct set_options *options)
{
    *options = (struct set_options){.flags = 0};
    for (uint32_t i = first; i < count; i++) {
        const struct set_option *option = set_table;
        while (option->name && !server_argument_is(&arguments[i], option->name))
            option++;
        if (!(option->flag & allowed) || options->flags & option->conflicts ||
            (option->flag & SET_EXPIRY && i + 1 == count))
            return false;
        options->flags |= option->flag;
        if (option->flag & SET_EXPIRY)
            options->expire = &arguments[++i];
    }
    return true;
}

static bool options_parse(struct server_call *call, uint32_t first, unsigned allowed,
                          struct set_options *options)
{
    bool good = options_read(call->arguments, call->count, first, allowed, options);
    if (!good)
        server_reply_syntax(call);
    return good;
}

/* The time that a number means as one of SET_EXPIRY in `flags` says. False: none. */
static bool expire_time(int64_t when, unsigned flags, uint64_t now_ms, uint64_t *expires)
{
    bool good = when > 0;
    if (flags & (SET_EX | SET_EXAT))
        good = good && !__builtin_mul_overflow(when, 1000, &when);
    if (flags & (SET_EX | SET_PX))
        good = good && !__builtin_add_overflow(when, (int64_t)now_ms, &when);
    *expires = (uint64_t)when;
    return good;
}

/* Reads an expiry. Replies an error and returns false if it is wrong. */
static bool expire_read(struct server_call *call, const struct resp_argument *argument, unsigned flags,
                        uint64_t *expires)
{
    int64_t when;
    if (!server_argument_integer(call, argument, &when))
        return false;
    bool good = expire_time(when, flags, call->now_ms, expires);
    if (!good)
        server_reply_bad_expire(call);
    return good;
}

/* ---- setting ---- */

struct set_step {
    unsigned flags;
    struct store_value value;
    bool past; /* the expiry has passed */
    bool stored;
};

static enum store_verdict set_step(void *context, const struct store_value *old, struct store_value *new)
{
    struct set_step *step = context;
    step->stored = !(step->flags & SET_NX && old) && !(step->flags & SET_XX && !old);
    if (!step->stored)
        return STORE_KEEP;
    if (step->past)
        return old ? STORE_REMOVE : STORE_KEEP;
    *new = step->value;
    if (step->flags & SET_KEEPTTL)
        new->expires = old ? old->expires : 0;
    return STORE_PUT;
}

static int set_plain(struct server_call *call, const struct resp_argument *key, const struct set_step *step)
{
    if (!step->past)
        return store_put(call->store, key->bytes, key->length, step->value.bytes, step->value.length,
                         step->value.expires);
    int status = store_delete(call->store, key->bytes, key->length);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* Sets arguments[1]; with SET_GET replies the old value. Returns whether the caller has to reply. */
static bool set_key(struct server_call *call, const struct resp_argument *value, unsigned flags,
                    uint64_t expires, bool *stored)
{
    const struct resp_argument *key = &call->arguments[1];
    struct set_step step = {.flags = flags, .stored = true, .past = expires && expires <= call->now_ms};
    struct store_value old;
    bool existed = false;
    int status;
    step.value = (struct store_value){
        .bytes = (const uint8_t *)value->bytes, .length = value->length, .expires = expires};
    if (!server_argument_key(call, key))
        return false;
    if (flags & (SET_NX | SET_XX | SET_GET | SET_KEEPTTL))
        status = store_modify(call->store, key->bytes, key->length,
                              flags & SET_GET ? STORE_NEED_VALUE : STORE_NEED_LENGTH, set_step, &step, &old,
                              &existed);
    else
        status = set_plain(call, key, &step);
    *stored = step.stored;
    if (status) {
        server_reply_failure(call, status);
    } else if (flags & SET_GET) {
        server_call_count(call, existed);
        server_reply_value(call, existed ? &old : NULL);
    }
    return !status && !(flags & SET_GET);
}

void set_run(struct server_call *call)
{
    struct set_options options;
    uint64_t expires = 0;
    bool stored;
    if (!options_parse(call, 3, SET_ALLOWS, &options) ||
        (options.expire && !expire_read(call, options.expire, options.flags, &expires)) ||
        !set_key(call, &call->arguments[2], options.flags, expires, &stored))
        return;
    if (stored)
        resp_simple(call->reply, "OK");
    else
        resp_null(call->reply);
}

/* server_put_function: a value and, perhaps, an expiry that is yet to come. */
static bool put_plain(const struct resp_argument *value, const struct resp_argument *expire, unsigned flags,
                      uint64_t now_ms, struct store_value *put)
{
    int64_t when;
    *put = (struct store_value){.bytes = (const uint8_t *)value->bytes, .length = value->length};
    return !expire || (server_integer_parse(expire->bytes, expire->length, &when) &&
                       expire_time(when, flags, now_ms, &put->expires) && put->expires > now_ms);
}

bool set_put(const struct resp_argument *arguments, uint32_t count, uint64_t now_ms, struct store_value *put)
{
    struct set_options options;
    return options_read(arguments, count, 3, SET_EXPIRY, &options) &&
           put_plain(&arguments[2], options.expire, options.flags, now_ms, put);
}

bool setex_put(const struct resp_argument *arguments, uint32_t count, uint64_t now_ms,
               struct store_value *put)
{
    (void)count;
    return put_plain(&arguments[3], &arguments[2], SET_EX, now_ms, put);
}

bool psetex_put(const struct resp_argument *arguments, uint32_t count, uint64_t now_ms,
                struct store_value *put)
{
    (void)count;
    return put_plain(&arguments[3], &arguments[2], SET_PX, now_ms, put);
}

void setnx_run(struct server_call *call)
{
    bool stored;
    if (set_key(call, &call->arguments[2], SET_NX, 0, &stored))
        resp_integer(call->reply, stored);
}

static void setex_generic(struct server_call *call, unsigned unit)
{
    uint64_t expires;
    bool stored;
    if (expire_read(call, &call->arguments[2], unit, &expires) &&
        set_key(call, &call->arguments[3], 0, expires, &stored))
        resp_simple(call->reply, "OK");
}

void setex_run(struct server_call *call)
{
    setex_generic(call, SET_EX);
}

void psetex_run(struct server_call *call)
{
    setex_generic(call, SET_PX);
}

void getset_run(struct server_call *call)
{
    bool stored;
    set_key(call, &call->arguments[2], SET_GET, 0, &stored);
}

/* ---- reading and changing ---- */

static enum store_verdict getdel_step(void *context, const struct store_value *old, struct store_value *new)
{
    return old ? STORE_REMOVE : STORE_KEEP;
}

/* Replies the value that the function was given. */
static void get_and_modify(struct server_call *call, store_modify_function *function, void *context)
{
    const struct resp_argument *key = &call->arguments[1];
    struct store_value old;
    bool existed = false;
    int status = store_modify(call->store, key->bytes, key->length, STORE_NEED_VALUE, function, context, &old,
                              &existed);
    if (status) {
        server_reply_failure(call, status);
        return;
    }
    server_call_count(call, existed);
    server_reply_value(call, existed ? &old : NULL);
}

void getdel_run(struct server_call *call)
{
    if (server_argument_key(call, &call->arguments[1]))
        get_and_modify(call, getdel_step, NULL);
}

struct getex_step {
    uint64_t expires; /* 0: never */
    bool past;
};

static enum store_verdict getex_step(void *context, const struct store_value *old, struct store_value *new)
{
    const struct getex_step *step = context;
    if (!old || (!step->past && old->expires == step->expires))
        return STORE_KEEP;
    if (step->past)
        return STORE_REMOVE;
    *new = *old;
    new->expires = step->expires;
    return STORE_PUT;
}

void getex_run(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[1];
    struct set_options options;
    struct getex_step step = {0};
    struct store_value value;
    if (!options_parse(call, 2, GETEX_ALLOWS, &options) || !server_argument_key(call, key))
        return;
    if (options.expire) {
        /* As in Redis, a bad expiry is no error if the key does not exist. */
        int status = store_stat(call->store, key->bytes, key->length, &value);
        if (status == BANYAN_ENOTFOUND) {
            get_point(call, NULL);
            return;
        }
        if (status) {
            server_reply_failure(call, status);
            return;
        }
        if (!expire_read(call, options.expire, options.flags, &step.expires))
            return;
        step.past = step.expires <= call->now_ms;
    }
    if (options.flags) {
        get_and_modify(call, getex_step, &step);
        return;
    }
    int status = store_get(call->store, key->bytes, key->length, &value);
    if (status && status != BANYAN_ENOTFOUND)
        server_reply_failure(call, status);
    else
        get_point(call, status ? NULL : &value);
}
