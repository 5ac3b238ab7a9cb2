/*
 * strings.c - RESP commands that read and set whole values, and the table of all commands on strings. Called
 * by the front end through server_string_commands, on fibers. Replies and errors are those of Redis 7.0.
 *
 * Whatever looks at a key before it writes it is one store_modify, and so one atomic step; SET without
 * conditions, and the keys of MSET each, are plain writes. MSET is not one transaction: others may see some
 * of its keys before the rest.
 */
#include "server/commands/many_keys.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static void reply_value(struct server_call *call, const struct store_value *value)
{
    if (value)
        resp_bulk(call->reply, value->bytes, value->length);
    else
        resp_null(call->reply);
}

static void get_point(struct server_call *call, const struct store_value *value)
{
    data_count(call, value);
    reply_value(call, value);
}

static void strlen_point(struct server_call *call, const struct store_value *value)
{
    data_count(call, value);
    resp_integer(call->reply, value ? (int64_t)value->length : 0);
}

static void getrange_point(struct server_call *call, const struct store_value *value)
{
    int64_t start, end;
    if (!server_argument_integer(call, &call->arguments[2], &start) ||
        !server_argument_integer(call, &call->arguments[3], &end))
        return;
    data_count(call, value);
    int64_t length = value ? (int64_t)value->length : 0;
    bool backwards = start < 0 && end < 0 && start > end;
    start = start < 0 ? start + length : start; /* from the end */
    end = end < 0 ? end + length : end;
    start = start < 0 ? 0 : start;
    end = end < 0 ? 0 : end >= length ? length - 1 : end;
    if (backwards || start > end || !length)
        resp_bulk(call->reply, "", 0);
    else
        resp_bulk(call->reply, value->bytes + start, (size_t)(end - start + 1));
}

static bool mget_visit(struct server_call *call, const struct store_value *value, void *context)
{
    reply_value(call, value);
    return !call->reply->overflow;
}

static void mget_run(struct server_call *call)
{
    if (!data_keys_valid(call, 1, 1))
        return;
    resp_array(call->reply, call->count - 1);
    int status = data_each(call, true, mget_visit, NULL);
    if (status) {
        data_rewind(call);
        server_reply_failure(call, status);
    }
}

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
    const struct resp_argument *expire; /* the number behind EX, PX, EXAT or PXAT */
};
struct set_option {
    const char *name;
    unsigned flag;
    unsigned conflicts; /* may not stand before it */
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

static bool options_parse(struct server_call *call, uint32_t first, unsigned allowed,
                          struct set_options *options)
{
    *options = (struct set_options){.flags = 0};
    for (uint32_t i = first; i < call->count; i++) {
        const struct set_option *option = set_table;
        while (option->name && !server_argument_is(&call->arguments[i], option->name))
            option++;
        if (!(option->flag & allowed) || options->flags & option->conflicts ||
            (option->flag & SET_EXPIRY && i + 1 == call->count)) {
            server_reply_syntax(call);
            return false;
        }
        options->flags |= option->flag;
        if (option->flag & SET_EXPIRY)
            options->expire = &call->arguments[++i];
    }
    return true;
}

/* When an entry shall expire: `flags` has one of SET_EXPIRY. Replies and returns false. */
static bool expire_read(struct server_call *call, const struct resp_argument *argument, unsigned flags,
                        uint64_t *expires)
{
    int64_t when;
    if (!server_argument_integer(call, argument, &when))
        return false;
    bool good = when > 0;
    if (flags & (SET_EX | SET_EXAT))
        good = good && !__builtin_mul_overflow(when, 1000, &when);
    if (flags & (SET_EX | SET_PX))
        good = good && !__builtin_add_overflow(when, (int64_t)call->now_ms, &when);
    if (!good)
        data_reply_bad_expire(call);
    *expires = (uint64_t)when;
    return good;
}

/* ---- setting ---- */

struct set_step {
    unsigned flags;
    struct store_value value;
    bool past; /* it would have expired by now */
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

/* Sets arguments[1]; with SET_GET replies what was there. Returns whether the caller has to reply. */
static bool set_key(struct server_call *call, const struct resp_argument *value, unsigned flags,
                    uint64_t expires, bool *stored)
{
    const struct resp_argument *key = &call->arguments[1];
    struct set_step step = {.flags = flags, .stored = true, .past = expires && expires <= call->now_ms};
    struct store_value old;
    bool existed = false;
    int status;
    step.value = (struct store_value){(const uint8_t *)value->bytes, value->length, expires};
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
        data_count(call, existed);
        reply_value(call, existed ? &old : NULL);
    }
    return !status && !(flags & SET_GET);
}

static void set_run(struct server_call *call)
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

static void setnx_run(struct server_call *call)
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

static void setex_run(struct server_call *call)
{
    setex_generic(call, SET_EX);
}

static void psetex_run(struct server_call *call)
{
    setex_generic(call, SET_PX);
}

static void getset_run(struct server_call *call)
{
    bool stored;
    set_key(call, &call->arguments[2], SET_GET, 0, &stored);
}

/* ---- reading and changing ---- */

static enum store_verdict getdel_step(void *context, const struct store_value *old, struct store_value *new)
{
    return old ? STORE_REMOVE : STORE_KEEP;
}

/* Replies the value that the step met. */
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
    data_count(call, existed);
    reply_value(call, existed ? &old : NULL);
}

static void getdel_run(struct server_call *call)
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

static void getex_run(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[1];
    struct set_options options;
    struct getex_step step = {0};
    struct store_value value;
    if (!options_parse(call, 2, GETEX_ALLOWS, &options) || !server_argument_key(call, key))
        return;
    if (options.expire) {
        /* As in Redis: of a key that is not there, a bad expiry is no error. */
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

/* ---- many keys ---- */

static struct store_item *batch_find(struct store_item *items, uint32_t count,
                                     const struct resp_argument *key)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].key_length == key->length && memcmp(items[i].key, key->bytes, key->length) == 0)
            return &items[i];
    return NULL;
}

/* The writes of a batch go together, in any order; of a key that comes twice its last value is written. */
static int mset_write(struct server_call *call)
{
    struct store_item items[DATA_BATCH];
    for (uint32_t at = 1; at + 1 < call->count;) {
        uint32_t count = 0;
        for (; at + 1 < call->count; at += 2) {
            const struct resp_argument *key = &call->arguments[at], *value = key + 1;
            struct store_item *item = batch_find(items, count, key);
            if (!item && count == DATA_BATCH)
                break;
            if (!item)
                item = &items[count++];
            *item = (struct store_item){
                .key = key->bytes,
                .key_length = key->length,
                .value = {.bytes = (const uint8_t *)value->bytes, .length = value->length}};
        }
        int status = store_multi_put(call->store, items, count);
        if (status)
            return status;
    }
    return 0;
}

static void mset_run(struct server_call *call)
{
    if (call->count % 2 == 0) {
        server_reply_arity(call);
        return;
    }
    if (!data_keys_valid(call, 1, 2))
        return;
    int status = mset_write(call);
    if (status)
        server_reply_failure(call, status);
    else
        resp_simple(call->reply, "OK");
}

static void msetnx_run(struct server_call *call)
{
    if (call->count % 2 == 0)
        server_reply_arity(call);
    else if (call->count == 3)
        setnx_run(call);
    else
        resp_error(call->reply,
                   "ERR MSETNX of more than one key is not possible: keys cannot be set together atomically");
}

/* ---- the table ---- */

#define READ_VALUE  (SERVER_READONLY | SERVER_POINT_VALUE)
#define READ_LENGTH (SERVER_READONLY | SERVER_FAST | SERVER_POINT_LENGTH)
#define WRITE_FAST  (SERVER_WRITE | SERVER_FAST)
/* name, run, point, arity, flags, keys, summary */
#define STRING(name, run, point, arity, flags, first, last, step, summary)                                   \
    {                                                                                                        \
        name, run, point, arity, flags, first, last, step, "string", summary                                 \
    }

const struct server_command server_string_commands[] = {
    STRING("get", NULL, get_point, 2, READ_VALUE | SERVER_FAST, 1, 1, 1, "The value of a key"),
    STRING("strlen", NULL, strlen_point, 2, READ_LENGTH, 1, 1, 1, "The length of a key's value"),
    STRING("getrange", NULL, getrange_point, 4, READ_VALUE, 1, 1, 1, "A part of a key's value"),
    STRING("substr", NULL, getrange_point, 4, READ_VALUE, 1, 1, 1, "A part of a key's value (old name)"),
    STRING("mget", mget_run, NULL, -2, SERVER_READONLY, 1, -1, 1, "The values of many keys"),
    STRING("set", set_run, NULL, -3, SERVER_WRITE | SERVER_PUT, 1, 1, 1,
           "Sets a key, under conditions if wanted"),
    STRING("setnx", setnx_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Sets a key that does not exist"),
    STRING("setex", setex_run, NULL, 4, SERVER_WRITE, 1, 1, 1, "Sets a key for some seconds"),
    STRING("psetex", psetex_run, NULL, 4, SERVER_WRITE, 1, 1, 1, "Sets a key for some milliseconds"),
    STRING("getset", getset_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Sets a key; what it held before"),
    STRING("getdel", getdel_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Deletes a key; what it held before"),
    STRING("getex", getex_run, NULL, -2, WRITE_FAST, 1, 1, 1, "The value of a key, whose expiry is changed"),
    STRING("mset", mset_run, NULL, -3, SERVER_WRITE, 1, -1, 2, "Sets many keys, each by itself"),
    STRING("msetnx", msetnx_run, NULL, -3, SERVER_WRITE, 1, -1, 2, "As SETNX: of one key only"),
    STRING("append", append_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Appends to a key's value"),
    STRING("setrange", setrange_run, NULL, 4, SERVER_WRITE, 1, 1, 1, "Overwrites a part of a key's value"),
    STRING("incr", incr_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Adds one to a key's number"),
    STRING("decr", decr_run, NULL, 2, WRITE_FAST, 1, 1, 1, "Takes one from a key's number"),
    STRING("incrby", incrby_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Adds to a key's number"),
    STRING("decrby", decrby_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Takes from a key's number"),
    STRING("incrbyfloat", incrbyfloat_run, NULL, 3, WRITE_FAST, 1, 1, 1, "Adds to a key's decimal number"),
    {.name = NULL},
};
