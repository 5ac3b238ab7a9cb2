/*
 * bitop.c - BITOP: AND, OR, XOR and NOT over the values of many keys, whose result another key gets. On
 * fibers; replies and errors are those of Redis 7.0.
 *
 * Not one transaction: each source is read as it is at some moment of the command, and the result is stored
 * by one plain write after all of them. COST: the round trips of MGET of the sources and of one SET. The
 * result lies in memory of the command's, as long as the longest source (counted among the clients' buffers);
 * beside it the session has the sources of one batch (many_keys.h).
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/many_keys.h"
#include "server/replies.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SOURCE 3u

enum bitop_kind { BITOP_AND, BITOP_OR, BITOP_XOR, BITOP_NOT };

struct bitop {
    enum bitop_kind kind;
    uint8_t *bytes; /* what has been made of the sources so far */
    size_t length;
    bool begun;  /* it has met a source */
    bool failed; /* no memory: it has replied an error */
};

/* ---- bytes ---- */

static inline uint64_t word_of(enum bitop_kind kind, uint64_t a, uint64_t b)
{
    return kind == BITOP_AND ? a & b : kind == BITOP_OR ? a | b : a ^ b;
}

/* The kind is a constant at each call, so that the loop has no branch in it. */
static inline void combine_as(enum bitop_kind kind, uint8_t *bytes, const uint8_t *with, size_t length)
{
    uint64_t a, b;
    for (; length >= 8; bytes += 8, with += 8, length -= 8) {
        memcpy(&a, bytes, 8);
        memcpy(&b, with, 8);
        a = word_of(kind, a, b);
        memcpy(bytes, &a, 8);
    }
    for (; length; bytes++, with++, length--)
        *bytes = (uint8_t)word_of(kind, *bytes, *with);
}

static void combine(enum bitop_kind kind, uint8_t *bytes, const uint8_t *with, size_t length)
{
    if (kind == BITOP_AND)
        combine_as(BITOP_AND, bytes, with, length);
    else if (kind == BITOP_OR)
        combine_as(BITOP_OR, bytes, with, length);
    else
        combine_as(BITOP_XOR, bytes, with, length);
}

static void invert(uint8_t *bytes, size_t length)
{
    uint64_t word;
    for (; length >= 8; bytes += 8, length -= 8) {
        memcpy(&word, bytes, 8);
        word = ~word;
        memcpy(bytes, &word, 8);
    }
    for (; length; bytes++, length--)
        *bytes = (uint8_t) ~*bytes;
}

/* ---- sources ---- */

/* Makes the result so long, with zeros behind what it has. */
static bool result_grow(struct server_call *call, struct bitop *bitop, size_t length)
{
    if (length <= bitop->length)
        return true;
    if (call->reserve && !call->reserve(call, bitop->length, length))
        return false;
    uint8_t *bytes = realloc(bitop->bytes, length);
    if (!bytes) {
        if (call->reserve)
            call->reserve(call, length, bitop->length);
        return false;
    }
    memset(bytes + bitop->length, 0, length - bitop->length);
    bitop->bytes = bytes;
    bitop->length = length;
    return true;
}

/* A source that is shorter than another has zeros behind its end; an absent one is all zeros. */
static bool source_visit(struct server_call *call, const struct store_value *value, void *context)
{
    struct bitop *bitop = context;
    const size_t length = value ? value->length : 0;
    if (!result_grow(call, bitop, length)) {
        server_reply_memory(call);
        bitop->failed = true;
        return false;
    }
    if (length)
        combine(bitop->begun ? bitop->kind : BITOP_OR, bitop->bytes, value->bytes, length);
    if (bitop->begun && bitop->kind == BITOP_AND && length < bitop->length)
        memset(bitop->bytes + length, 0, bitop->length - length);
    bitop->begun = true;
    return true;
}

/* ---- the command ---- */

/* False: it has replied an error. */
static bool bitop_parse(struct server_call *call, struct bitop *bitop)
{
    static const char *const names[] = {"AND", "OR", "XOR", "NOT"};
    unsigned kind = 0;
    while (kind < 4 && !server_argument_is(&call->arguments[1], names[kind]))
        kind++;
    if (kind == 4) {
        server_reply_syntax(call);
        return false;
    }
    bitop->kind = (enum bitop_kind)kind;
    if (bitop->kind == BITOP_NOT && call->count != FIRST_SOURCE + 1) {
        resp_error(call->reply, "ERR BITOP NOT must be called with a single source key.");
        return false;
    }
    return server_arguments_keys(call, 2, 1);
}

/* An empty result deletes the key. */
static int result_store(struct server_call *call, const struct bitop *bitop)
{
    const struct resp_argument *key = &call->arguments[2];
    if (bitop->length)
        return store_put(call->store, key->bytes, key->length, bitop->bytes, bitop->length, 0);
    int status = store_delete(call->store, key->bytes, key->length);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

static void bitop_do(struct server_call *call, struct bitop *bitop)
{
    int status = many_keys_each(call, FIRST_SOURCE, true, source_visit, bitop);
    if (bitop->failed)
        return;
    if (bitop->kind == BITOP_NOT)
        invert(bitop->bytes, bitop->length);
    if (!status)
        status = result_store(call, bitop);
    if (!status)
        resp_integer(call->reply, (int64_t)bitop->length);
    else
        server_reply_failure(call, status);
}

void bitop_run(struct server_call *call)
{
    struct bitop bitop = {.length = 0};
    if (!bitop_parse(call, &bitop))
        return;
    bitop_do(call, &bitop);
    free(bitop.bytes);
    if (call->reserve)
        call->reserve(call, bitop.length, 0);
}
