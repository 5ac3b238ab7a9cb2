/*
 * keyspace.c - commands about all keys: SCAN, KEYS, RANDOMKEY, FLUSHDB, FLUSHALL. On fibers.
 *
 * Keys are kept in order, so SCAN walks them in order. Each call gives whole leaves of the index, at least
 * COUNT keys if there are so many, and its cursor names the leaf that comes next (store_place_after). So the
 * server keeps nothing between calls, a cursor means the same on every compute node of a cluster, and every
 * key that exists during the whole scan is given. It is given once, unless the cursor's leaf has left the
 * index between two calls and its memory holds something else by then: then the scan begins anew.
 *
 * For a pattern that begins with plain characters, KEYS and SCAN read only the range of keys that begin so.
 * FLUSHDB deletes key by key: another client may see some of the keys deleted and the rest not yet, and what
 * is written meanwhile may stay.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/glob.h"

#define SCAN_COUNT 10
/* COUNT is a hint: one call looks at no more entries than this. */
#define SCAN_COUNT_MAX 100000

/* A walk over the keys that may match. Too large for a fiber's stack. */
struct walk {
    struct server_call *call;
    struct glob *glob; /* owned; NULL: all */
    struct tree_range range;
    bool empty; /* no key can match */
    uint8_t from[STORE_KEY_MAX], to[STORE_KEY_MAX];
    struct resp_writer *out;
    size_t given;
    /* SCAN */
    struct resp_writer keys; /* the reply's second part */
    uint64_t seen, limit;
    size_t out_max;
    bool more;
    uint8_t last[STORE_KEY_MAX];
    size_t last_length;
};

/* Restricts the walk to the keys that begin with the first `length` bytes of walk->from, or with `whole` to
 * that key alone. */
static void range_of_prefix(struct walk *walk, size_t length, bool whole)
{
    walk->empty = whole && !length;
    walk->range = (struct tree_range){.from = length ? walk->from : NULL, .from_length = length};
    memcpy(walk->to, walk->from, length);
    if (!whole) { /* up to the next prefix of this length; 0xff bytes at the end have no successor */
        while (length && walk->to[length - 1] == 0xff)
            length--;
        if (length)
            walk->to[length - 1]++;
        walk->range.to_open = true;
    }
    walk->range.to = length ? walk->to : NULL;
    walk->range.to_length = length;
}

static struct walk *walk_create(struct server_call *call, const struct resp_argument *pattern)
{
    struct walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        return NULL;
    walk->call = call;
    resp_writer_init(&walk->keys, 2, 0);
    if (!pattern)
        return walk;
    walk->glob = glob_create(pattern->bytes, pattern->length, false);
    if (!walk->glob) {
        free(walk);
        return NULL;
    }
    bool whole;
    size_t length = glob_prefix(walk->glob, walk->from, &whole);
    range_of_prefix(walk, length, whole);
    return walk;
}

static void walk_destroy(struct walk *walk)
{
    if (!walk)
        return;
    glob_destroy(walk->glob);
    resp_writer_free(&walk->keys);
    free(walk);
}

static void walk_give(struct walk *walk, const void *key, size_t length)
{
    if (walk->glob && !glob_matches(walk->glob, key, length))
        return;
    resp_bulk(walk->out, key, length);
    walk->given++;
}

static bool keys_visit(void *context, const void *key, size_t length, const struct store_value *value)
{
    struct walk *walk = context;
    walk_give(walk, key, length);
    return !walk->out->overflow;
}

void keys_run(struct server_call *call)
{
    struct walk *walk = walk_create(call, &call->arguments[1]);
    if (!walk) {
        server_reply_memory(call);
        return;
    }
    walk->out = call->reply;
    size_t mark = resp_array_open(call->reply);
    int status = walk->empty ? 0 : store_scan(call->store, &walk->range, STORE_SCAN_KEYS, keys_visit, walk);
    if (status) {
        server_reply_rewind(call);
        server_reply_failure(call, status);
    } else {
        resp_array_close(call->reply, mark, walk->given);
    }
    walk_destroy(walk);
}

/* ---- SCAN ---- */

static bool scan_visit(void *context, const void *key, size_t length, const struct store_value *value)
{
    struct walk *walk = context;
    walk->seen++;
    walk_give(walk, key, length);
    memcpy(walk->last, key, length);
    walk->last_length = length;
    walk->more = walk->limit && (walk->seen >= walk->limit || walk->keys.length > walk->out_max);
    return !walk->keys.overflow && !walk->more;
}

struct scan_options {
    int64_t count;
    const struct resp_argument *match, *type;
};

static bool scan_parse(struct server_call *call, struct scan_options *options)
{
    *options = (struct scan_options){.count = SCAN_COUNT};
    for (uint32_t i = 2; i < call->count; i += 2) {
        const struct resp_argument *name = &call->arguments[i], *value = name + 1;
        bool last = i + 1 == call->count;
        if (!last && server_argument_is(name, "COUNT")) {
            if (!server_argument_integer(call, value, &options->count))
                return false;
        } else if (!last && server_argument_is(name, "MATCH")) {
            options->match = value;
        } else if (!last && server_argument_is(name, "TYPE")) {
            options->type = value;
        } else {
            options->count = 0;
        }
        if (options->count < 1) {
            server_reply_syntax(call);
            return false;
        }
    }
    return true;
}

/* As Redis reads it, by strtoull: with a sign if it likes, and nothing at all is 0. */
static bool cursor_read(const struct resp_argument *argument, uint64_t *cursor)
{
    char text[64], *end;
    if (argument->length >= sizeof text || (argument->length && isspace((unsigned char)*argument->bytes)))
        return false;
    memcpy(text, argument->bytes, argument->length);
    text[argument->length] = 0;
    errno = 0;
    *cursor = strtoull(text, &end, 10);
    return !*end && errno != ERANGE;
}

/* Whether the key lies behind the last one of the range, as a bound that is excluded. */
static bool range_ends_before(const struct tree_range *range, const uint8_t *key, size_t length)
{
    if (!range->to)
        return false;
    size_t common = length < range->to_length ? length : range->to_length;
    int order = common ? memcmp(key, range->to, common) : 0;
    order = order ? order : (length > range->to_length) - (length < range->to_length);
    return order > 0 || (order == 0 && range->to_open);
}

/* Leaves only the keys from this one on in the range (with `open` without it), unless it begins later anyway.
 */
static void range_from(struct walk *walk, const uint8_t *key, size_t length, bool open)
{
    struct tree_range *range = &walk->range;
    size_t common = length < range->from_length ? length : range->from_length;
    int order = common ? memcmp(key, walk->from, common) : 0;
    if (order < 0 || (order == 0 && length < range->from_length))
        return;
    walk->empty |= range_ends_before(range, key, length);
    memcpy(walk->from, key, length);
    range->from = length ? walk->from : NULL;
    range->from_length = length;
    range->from_open = open;
}

/* Goes on where the cursor says; at the beginning, if its place is gone. */
static int scan_resume(struct walk *walk, uint64_t cursor)
{
    struct tree_place_bound bound;
    int status = cursor ? store_place_find(walk->call->store, cursor, &bound) : BANYAN_ENOTFOUND;
    if (!status)
        range_from(walk, bound.bytes, bound.length, false);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* The call has given enough: adds the rest of the last key's leaf, and finds the cursor. */
static int scan_round_up(struct walk *walk, uint64_t *cursor)
{
    struct tree_place_bound bound;
    int status = store_place_after(walk->call->store, walk->last, walk->last_length, cursor, &bound);
    if (status && status != BANYAN_ENOTFOUND)
        return status;
    if (status || range_ends_before(&walk->range, bound.bytes, bound.length)) {
        *cursor = 0; /* the rest is all there is */
    } else {
        memcpy(walk->to, bound.bytes, bound.length);
        walk->range.to = walk->to;
        walk->range.to_length = bound.length;
        walk->range.to_open = true;
    }
    range_from(walk, walk->last, walk->last_length, true);
    walk->limit = 0;
    return walk->empty ? 0 : store_scan(walk->call->store, &walk->range, STORE_SCAN_KEYS, scan_visit, walk);
}

static void scan_reply(struct walk *walk, uint64_t cursor)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)cursor);
    resp_array(walk->call->reply, 2);
    resp_text(walk->call->reply, text);
    resp_array(walk->call->reply, walk->given);
    resp_raw(walk->call->reply, walk->keys.bytes, walk->keys.length);
}

static int scan_walk(struct walk *walk, const struct scan_options *options, uint64_t *cursor)
{
    struct server_call *call = walk->call;
    bool other = options->type && !server_argument_is(options->type, "STRING");
    walk->out = &walk->keys;
    walk->limit = (uint64_t)(options->count < SCAN_COUNT_MAX ? options->count : SCAN_COUNT_MAX);
    walk->out_max = call->reply->reply_max ? call->reply->reply_max / 2 : SIZE_MAX;
    walk->range.limit = walk->limit;
    int status = other ? 0 : scan_resume(walk, *cursor);
    *cursor = 0;
    if (status || walk->empty || other)
        return status;
    status = store_scan(call->store, &walk->range, STORE_SCAN_KEYS, scan_visit, walk);
    walk->range.limit = 0;
    return status || !walk->more ? status : scan_round_up(walk, cursor);
}

void scan_run(struct server_call *call)
{
    struct scan_options options;
    uint64_t cursor;
    if (!cursor_read(&call->arguments[1], &cursor)) {
        resp_error(call->reply, "ERR invalid cursor");
        return;
    }
    if (!scan_parse(call, &options))
        return;
    struct walk *walk = walk_create(call, options.match);
    if (!walk) {
        server_reply_memory(call);
        return;
    }
    int status = scan_walk(walk, &options, &cursor);
    if (status)
        server_reply_failure(call, status);
    else if (walk->keys.overflow)
        server_reply_memory(call);
    else
        scan_reply(walk, cursor);
    walk_destroy(walk);
}

/* ---- others ---- */

void randomkey_run(struct server_call *call)
{
    uint8_t key[STORE_KEY_MAX];
    size_t length = sizeof key;
    int status = store_sample(call->store, key, &length);
    if (status == BANYAN_ENOTFOUND)
        resp_null(call->reply);
    else if (status)
        server_reply_failure(call, status);
    else
        resp_bulk(call->reply, key, length);
}

void flush_run(struct server_call *call)
{
    const struct tree_range everything = {.from = NULL};
    uint64_t count;
    if (call->count > 2 || (call->count == 2 && !server_argument_is(&call->arguments[1], "SYNC") &&
                            !server_argument_is(&call->arguments[1], "ASYNC"))) {
        server_reply_syntax(call);
        return;
    }
    int status = store_delete_range(call->store, &everything, &count);
    if (status)
        server_reply_failure(call, status);
    else
        resp_simple(call->reply, "OK");
}
