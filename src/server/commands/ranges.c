/*
 * ranges.c - commands that Redis does not have, since keys here are in order (byte by byte, as memcmp):
 * RANGE, RANGECOUNT, NEXTKEY, PREVKEY, DELRANGE, and the table of them, with CUT (cut.c). On fibers. What
 * other clients write meanwhile is seen or not, key by key: none of these commands is one transaction over
 * many keys.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include "server/bounds.h"

static bool range_read(struct server_call *call, bool reverse, struct tree_range *range,
                       enum bounds_verdict *verdict)
{
    const struct resp_argument *first = &call->arguments[1], *second = &call->arguments[2];
    *verdict = bounds_read(reverse ? second : first, reverse ? first : second, range);
    range->reverse = reverse;
    if (*verdict == BOUNDS_INVALID)
        resp_error(call->reply, "ERR min or max not valid string range item: a bound is [key (with that "
                                "key), (key (without it), - or +");
    return *verdict != BOUNDS_INVALID;
}

/* ---- RANGE ---- */

enum range_what { RANGE_KEYS, RANGE_VALUES, RANGE_BOTH };

struct range_walk {
    struct server_call *call;
    enum range_what what;
    bool reverse, expiry;
    int64_t limit; /* -1: none */
    size_t given;  /* elements of the reply */
};

static bool limit_read(struct server_call *call, const struct resp_argument *argument, int64_t *limit)
{
    if (!server_argument_integer(call, argument, limit))
        return false;
    if (*limit < 0)
        resp_error(call->reply, "ERR value is out of range, must be positive");
    return *limit >= 0;
}

static bool options_parse(struct server_call *call, struct range_walk *walk)
{
    for (uint32_t i = 3; i < call->count; i++) {
        const struct resp_argument *option = &call->arguments[i];
        if (server_argument_is(option, "REV")) {
            walk->reverse = true;
        } else if (server_argument_is(option, "KEYS")) {
            walk->what = RANGE_KEYS;
        } else if (server_argument_is(option, "VALUES")) {
            walk->what = RANGE_VALUES;
        } else if (server_argument_is(option, "WITHVALUES")) {
            walk->what = RANGE_BOTH;
        } else if (server_argument_is(option, "WITHEXPIRY")) {
            walk->expiry = true;
        } else if (server_argument_is(option, "LIMIT") && i + 1 < call->count) {
            if (!limit_read(call, &call->arguments[++i], &walk->limit))
                return false;
        } else {
            server_reply_syntax(call);
            return false;
        }
    }
    return true;
}

static bool range_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct range_walk *walk = context;
    struct resp_writer *reply = walk->call->reply;
    const unsigned parts = 1u + (walk->what == RANGE_BOTH ? 1u : 0u) + (walk->expiry ? 1u : 0u);
    if (parts > 1 && reply->protocol >= 3)
        resp_array(reply, parts);
    if (walk->what != RANGE_VALUES)
        resp_bulk(reply, key, key_length);
    if (walk->what != RANGE_KEYS)
        resp_bulk(reply, value->bytes, value->length);
    if (walk->expiry)
        resp_integer(reply, value->expires ? (int64_t)value->expires : -1);
    walk->given += reply->protocol < 3 ? parts : 1;
    return !reply->overflow;
}

static void range_run(struct server_call *call)
{
    struct range_walk walk = {.call = call, .limit = -1};
    struct resp_writer *reply = call->reply;
    struct tree_range range;
    enum bounds_verdict verdict;
    int status = 0;
    if (!options_parse(call, &walk) || !range_read(call, walk.reverse, &range, &verdict))
        return;
    size_t mark = resp_array_open(reply);
    range.limit = walk.limit > 0 ? (uint64_t)walk.limit : 0;
    if (verdict == BOUNDS_RANGE && walk.limit)
        status =
            store_scan(call->store, &range, walk.what == RANGE_KEYS ? STORE_SCAN_KEYS : STORE_SCAN_VALUES,
                       range_visit, &walk);
    if (status) {
        server_reply_rewind(call);
        server_reply_failure(call, status);
    } else if (reply->overflow && reply->reply_max) {
        server_reply_rewind(call);
        reply->overflow = false;
        resp_error(reply,
                   "ERR the range's reply is longer than %zu bytes, which is this server's limit: use "
                   "LIMIT, and go on behind the last key",
                   reply->reply_max);
    } else {
        resp_array_close(reply, mark, walk.given);
    }
}

/* ---- others ---- */

static void count_run(struct server_call *call)
{
    struct tree_range range;
    enum bounds_verdict verdict;
    uint64_t count = 0;
    if (!range_read(call, false, &range, &verdict))
        return;
    int status = verdict == BOUNDS_RANGE ? store_count(call->store, &range, &count) : 0;
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, (int64_t)count);
}

static void delete_run(struct server_call *call)
{
    struct tree_range range;
    enum bounds_verdict verdict;
    uint64_t count = 0;
    if (!range_read(call, false, &range, &verdict))
        return;
    int status = verdict == BOUNDS_RANGE ? store_delete_range(call->store, &range, &count) : 0;
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, (int64_t)count);
}

static bool neighbour_visit(void *context, const void *key, size_t key_length,
                            const struct store_value *value)
{
    struct range_walk *walk = context;
    resp_bulk(walk->call->reply, key, key_length);
    walk->given++;
    return false;
}

static void neighbour(struct server_call *call, bool before)
{
    struct range_walk walk = {.call = call};
    struct tree_range range;
    int status = 0;
    if (bounds_beside(&call->arguments[1], before, &range) == BOUNDS_RANGE)
        status = store_scan(call->store, &range, STORE_SCAN_KEYS, neighbour_visit, &walk);
    if (status) {
        server_reply_rewind(call);
        server_reply_failure(call, status);
    } else if (!walk.given) {
        resp_null(call->reply);
    }
}

static void next_run(struct server_call *call)
{
    neighbour(call, false);
}

static void previous_run(struct server_call *call)
{
    neighbour(call, true);
}

/* ---- the table ---- */

/* name, run, arity, flags, summary */
#define RANGE(name, run, arity, flags, summary)                                                              \
    {                                                                                                        \
        name, run, NULL, arity, flags, 0, 0, 0, "range", summary, NULL, NULL, NULL                           \
    }

const struct server_command server_range_commands[] = {
    RANGE("range", range_run, -3, SERVER_READONLY, "Keys or values between two bounds, in order"),
    RANGE("rangecount", count_run, 3, SERVER_READONLY, "How many keys are between two bounds"),
    RANGE("nextkey", next_run, 2, SERVER_READONLY | SERVER_FAST, "The first key behind a key"),
    RANGE("prevkey", previous_run, 2, SERVER_READONLY | SERVER_FAST, "The last key before a key"),
    {"cut", NULL, NULL, -2, SERVER_READONLY, 0, 0, 0, "range", "Keys as they were together at one moment",
     cut_subcommands, NULL, NULL},
    RANGE("delrange", delete_run, 3, SERVER_WRITE, "Deletes the keys between two bounds, one by one"),
    {.name = NULL},
};
