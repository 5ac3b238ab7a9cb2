/*
 * splice.c - APPEND and SETRANGE: a part of a value is replaced, as one atomic step (store_splice). On
 * fibers. A value that would be longer than STORE_VALUE_MAX is refused before a buffer is allocated for it.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

static void splice(struct server_call *call, uint64_t offset, const struct resp_argument *part)
{
    const struct resp_argument *key = &call->arguments[1];
    uint64_t whole;
    if (!server_argument_key(call, key))
        return;
    int status =
        store_splice(call->store, key->bytes, key->length, offset, part->bytes, part->length, &whole);
    if (!status)
        resp_integer(call->reply, (int64_t)whole);
    else if (status == BANYAN_EVALUESIZE)
        server_reply_too_long(call);
    else
        server_reply_failure(call, status);
}

void append_run(struct server_call *call)
{
    splice(call, STORE_AT_END, &call->arguments[2]);
}

void setrange_run(struct server_call *call)
{
    int64_t offset;
    if (!server_argument_integer(call, &call->arguments[2], &offset))
        return;
    if (offset < 0)
        resp_error(call->reply, "ERR offset is out of range");
    else
        splice(call, (uint64_t)offset, &call->arguments[3]);
}
