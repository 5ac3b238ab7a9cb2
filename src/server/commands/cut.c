/*
 * cut.c - CUT: keys as they were together at one moment, for `banyan dump` (store/cut.h). On a fiber. The
 * connection owns its cut, and has one at most: it ends with the connection (rule B6,
 * docs/internals/cuts.md).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/cut.h"
#include "server/arguments.h"
#include "server/bounds.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/replies.h"
#include "server/state.h"

#define ENTRIES_FEW  256
#define ENTRIES_MOST 65536
#define REPLY_BYTES  (UINT64_C(1) << 20) /* of keys and values; a longer value comes by itself */

static void cut_end(struct server_call *call)
{
    store_cut_close(call->connection->cut);
    call->connection->cut = NULL;
}

static void cut_open(struct server_call *call)
{
    static const struct resp_argument lowest = {.bytes = "-", .length = 1},
                                      highest = {.bytes = "+", .length = 1};
    const bool bounded = call->count == 4;
    struct tree_range range;
    if (call->count == 3 || call->count > 4) {
        server_reply_subcommand_or_arity(call);
        return;
    }
    const enum bounds_verdict verdict = bounds_read(bounded ? &call->arguments[2] : &lowest,
                                                    bounded ? &call->arguments[3] : &highest, &range);
    if (verdict == BOUNDS_INVALID) {
        resp_error(call->reply,
                   "ERR min or max not valid string range item: a bound is [key (with that key), (key "
                   "(without it), - or +");
        return;
    }
    if (verdict == BOUNDS_EMPTY) /* behind a key, and before it */
        range = (struct tree_range){
            .from = "k", .from_length = 1, .from_open = true, .to = "k", .to_length = 1, .to_open = true};
    cut_end(call);
    int status = (server_of(call)->options.alone ? store_cut_open : store_cut_open_owned)(
        call->store, &range, &call->connection->cut);
    if (status == BANYAN_EBUSY)
        resp_error(call->reply, "BUSY %s", tree_session_error(store_session_tree(call->store))->text);
    else if (status == BANYAN_EFENCED)
        resp_error(call->reply,
                   "NOCUT other servers change keys of this index too, and %s: CUT RANGES tells of which "
                   "ranges it can open a cut. RANGE reads key by key",
                   tree_session_error(store_session_tree(call->store))->text);
    else if (status)
        server_reply_failure(call, status);
    else
        resp_simple(call->reply, "OK");
}

struct cut_reply {
    struct resp_writer *writer;
    size_t elements;
};

static bool cut_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct cut_reply *reply = context;
    resp_bulk(reply->writer, key, key_length);
    resp_bulk(reply->writer, value->bytes, value->length);
    resp_integer(reply->writer, value->expires ? (int64_t)value->expires : -1);
    reply->elements += 3;
    return !reply->writer->overflow;
}

/* Entries that were given are gone from the cut. So where the reply does not reach the client, nor can the
 * rest be of use to it. */
static void cut_failed(struct server_call *call, int status)
{
    server_reply_rewind(call);
    const char *text = tree_session_error(store_session_tree(call->store))->text;
    if (status == BANYAN_ENOMEM)
        resp_error(call->reply, "OOM %s", text);
    else if (status == BANYAN_EFENCED)
        resp_error(call->reply, "NOCUT %s", text);
    else
        server_reply_failure(call, status);
    cut_end(call);
}

static void cut_next(struct server_call *call)
{
    struct cut_reply reply = {.writer = call->reply};
    int64_t most = ENTRIES_FEW;
    bool ended = true;
    if (call->count > 3) {
        server_reply_subcommand_or_arity(call);
        return;
    }
    if (call->count == 3 && !server_argument_integer(call, &call->arguments[2], &most))
        return;
    if (most < 1 || most > ENTRIES_MOST) {
        resp_error(call->reply, "ERR count should be between 1 and %d", ENTRIES_MOST);
        return;
    }
    if (!call->connection->cut) {
        resp_error(call->reply,
                   "ERR this connection has no cut: CUT OPEN comes first, and an error of CUT NEXT ends "
                   "it");
        return;
    }
    const size_t mark = resp_array_open(call->reply);
    int status = store_cut_next(call->store, call->connection->cut, (uint64_t)most, REPLY_BYTES, cut_visit,
                                &reply, &ended);
    if (status) {
        cut_failed(call, status);
        return;
    }
    if (call->reply->overflow) /* resp_end replaces it by an error */
        cut_end(call);
    resp_array_close(call->reply, mark, reply.elements);
}

static void cut_close(struct server_call *call)
{
    const bool had = call->connection->cut != NULL;
    cut_end(call);
    resp_integer(call->reply, had);
}

/* ---- CUT RANGES ---- */

#define PROCESS_TEXT 40

static const char *process_text(struct fabric_process process, char text[PROCESS_TEXT])
{
    snprintf(text, PROCESS_TEXT, "%u/%016" PRIx64, process.compute_id, process.instance);
    return text;
}

/* A bound as RANGE takes it: from a key on, or up to it. */
static void bound_reply(struct resp_writer *writer, char sign, char none, const void *key, size_t length)
{
    char text[FORMAT_KEY_MAX + 1] = {length ? sign : none};
    if (length)
        memcpy(text + 1, key, length);
    resp_bulk(writer, text, length + 1);
}

static void ranges_visit(void *context, const struct store_portion *part)
{
    struct cut_reply *reply = context;
    char text[PROCESS_TEXT];
    const char *owner = part->share == STORE_SHARE_NOBODYS  ? "shared"
                        : part->share == STORE_SHARE_MOVING ? "moving"
                                                            : process_text(part->owner, text);
    bound_reply(reply->writer, '[', '-', part->from, part->from_length);
    bound_reply(reply->writer, '(', '+', part->to, part->to_length);
    resp_bulk(reply->writer, owner, strlen(owner));
    reply->elements += 3;
}

static void cut_ranges(struct server_call *call)
{
    struct cut_reply reply = {.writer = call->reply, .elements = 1};
    char text[PROCESS_TEXT];
    if (server_of(call)->options.alone) {
        resp_error(call->reply,
                   "ERR no other server changes keys of this index: CUT OPEN opens a cut of any range");
        return;
    }
    const size_t mark = resp_array_open(call->reply);
    (void)process_text(fabric_self(server_of(call)->fabric), text);
    resp_bulk(call->reply, text, strlen(text));
    store_portions(call->store, ranges_visit, &reply);
    resp_array_close(call->reply, mark, reply.elements);
}

static void cut_help(struct server_call *call)
{
    static const char *const lines[] = {
        "OPEN [<start> <end>]",
        "    Open a cut of the keys between two bounds (as RANGE takes them): what they",
        "    hold now. A cut that this connection has is closed.",
        "NEXT [<count>]",
        "    The cut's next keys, at most <count> (default: 256), in order: key, value and",
        "    expiry (ms since 1970; -1: none) by turns. An empty array: that was all.",
        "CLOSE",
        "    Close the cut. The end of the connection does that too.",
        "RANGES",
        "    Of a server among others: which process it is, then for each range that the",
        "    keys are divided into its two bounds and its owner. A cut is opened of a",
        "    range, or a part of it, at its owner.",
        NULL};
    subcommand_reply_help(call, "CUT", lines);
}

const struct server_subcommand cut_subcommands[] = {{"OPEN", -2, cut_open},  {"NEXT", -2, cut_next},
                                                    {"CLOSE", 2, cut_close}, {"RANGES", 2, cut_ranges},
                                                    {"HELP", 2, cut_help},   {0}};
