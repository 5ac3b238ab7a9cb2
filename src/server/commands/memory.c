/* memory.c - MEMORY and OBJECT: the memory of a key, the state of memory nodes, how a value is kept. On a
 * fiber; errors in the words of Redis 7. */
#include <string.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/state.h"
#include "server/replies.h"
#include "server/text.h"

/* ---- MEMORY, OBJECT ---- */

/* Gets the value without its bytes. Returns false if there is none, or on an error; then it has replied. */
static bool key_stat(struct server_call *call, const struct resp_argument *key, struct store_value *value)
{
    if (!server_argument_key(call, key))
        return false;
    int status = store_stat(call->store, key->bytes, key->length, value);
    if (status == BANYAN_ENOTFOUND)
        resp_null(call->reply);
    else if (status)
        server_reply_failure(call, status);
    return !status;
}

/* A key takes its slot, and the block of its record where it has one. */
static void memory_usage(struct server_call *call)
{
    struct store_value value;
    struct format_geometry_shape shape;
    int64_t samples;
    if (call->count != 3 && (call->count != 5 || !server_argument_is(&call->arguments[3], "SAMPLES"))) {
        server_reply_syntax(call);
        return;
    }
    if (call->count == 5 && !server_argument_integer(call, &call->arguments[4], &samples))
        return;
    if (call->count == 5 && samples < 0) {
        server_reply_syntax(call);
        return;
    }
    if (!key_stat(call, &call->arguments[2], &value))
        return;
    format_geometry_shape(tree_geometry(store_tree(server_of(call)->store)), &shape);
    uint64_t bytes = shape.slot_bytes;
    if (value.length > STORE_INLINE_MAX) {
        uint32_t block = value.length < MEMORY_BLOCK_MAX ? memory_block_bytes(value.length) : 0;
        bytes += block ? block : value.length;
    }
    resp_integer(call->reply, (int64_t)bytes);
}

static void memory_doctor(struct server_call *call)
{
    struct text text = {0};
    for (unsigned i = 0; i < server_memory_nodes(server_of(call)); i++) {
        struct server_memory_state state;
        if (!server_memory_is(server_of(call), i))
            continue;
        struct memory_status_reply status = {0};
        server_memory_state(server_of(call), i, &state, &status);
        if (!state.connected)
            text_add(&text, "Memory node %u cannot be reached: %s\n", i, state.trouble);
        else if (status.bytes_used > status.pool_bytes / 10 * 9)
            text_add(&text, "Memory node %u is more than 90%% full.\n", i);
    }
    resp_verbatim(call->reply, text.length ? text.bytes : "Nothing is wrong.\n",
                  text.length ? text.length : strlen("Nothing is wrong.\n"));
    text_free(&text);
}

static void memory_help(struct server_call *call)
{
    static const char *const lines[] = {
        "DOCTOR", "    Return what is wrong with the memory nodes.", "USAGE <key> [SAMPLES <count>]",
        "    Return the bytes that <key> and its value take in the pool.", NULL};
    subcommand_reply_help(call, "MEMORY", lines);
}

const struct server_subcommand memory_subcommands[] = {
    {"USAGE", -3, memory_usage}, {"DOCTOR", 2, memory_doctor}, {"HELP", 2, memory_help}, {NULL, 0, NULL}};

/* Replies Redis's names for how it keeps strings, since tools look at them. */
static void object_encoding(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[2];
    struct store_value value;
    int64_t number;
    if (!key_stat(call, key, &value))
        return;
    if (value.length > 44) {
        resp_text(call->reply, "raw");
        return;
    }
    int status = store_get(call->store, key->bytes, key->length, &value);
    if (status == BANYAN_ENOTFOUND)
        resp_null(call->reply);
    else if (status)
        server_reply_failure(call, status);
    else
        resp_text(call->reply, server_integer_parse(value.bytes, value.length, &number) ? "int"
                               : value.length > 44                                      ? "raw"
                                                                                        : "embstr");
}

static void object_number(struct server_call *call, int64_t number)
{
    struct store_value value;
    if (key_stat(call, &call->arguments[2], &value))
        resp_integer(call->reply, number);
}

static void object_refcount(struct server_call *call)
{
    object_number(call, 1);
}

static void object_idletime(struct server_call *call)
{
    object_number(call, 0);
}

static void object_freq(struct server_call *call)
{
    struct store_value value;
    if (!key_stat(call, &call->arguments[2], &value))
        return;
    resp_error(
        call->reply,
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note "
        "that when switching between policies at runtime LRU and LFU data will take some time to adjust.");
}

static void object_help(struct server_call *call)
{
    static const char *const lines[] = {"ENCODING <key>",
                                        "    Return the kind of internal representation used in order to "
                                        "store the value associated with a <key>.",
                                        "REFCOUNT <key>",
                                        "    Return 1: nothing is shared.",
                                        "IDLETIME <key>",
                                        "    Return 0: no times of last use are kept.",
                                        NULL};
    subcommand_reply_help(call, "OBJECT", lines);
}

const struct server_subcommand object_subcommands[] = {
    {"ENCODING", 3, object_encoding}, {"REFCOUNT", 3, object_refcount}, {"IDLETIME", 3, object_idletime},
    {"FREQ", 3, object_freq},         {"HELP", 2, object_help},         {NULL, 0, NULL}};
