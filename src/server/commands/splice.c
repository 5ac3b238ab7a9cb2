/*
 * splice.c - APPEND and SETRANGE: a part of a value is replaced, as one atomic step. The new value is
 * assembled in a buffer of the command's, which counts among the clients' buffers; a value that is longer
 * than STORE_VALUE_MAX is refused before a buffer is allocated for it.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include <stdlib.h>
#include <string.h>

enum splice_problem { SPLICE_GOOD, SPLICE_TOO_LONG, SPLICE_NO_MEMORY };

struct splice_step {
    struct server_call *call;
    const struct resp_argument *part;
    uint64_t offset;
    bool append; /* at the value's end */
    enum splice_problem problem;
    size_t total; /* length of the value afterwards */
    uint8_t *buffer;
    size_t capacity;
};

static bool reserve(struct server_call *call, size_t from, size_t to)
{
    return !call->reserve || call->reserve(call, from, to);
}

static void buffer_free(struct splice_step *step)
{
    free(step->buffer);
    reserve(step->call, step->capacity, 0);
    step->buffer = NULL;
    step->capacity = 0;
}

/* What was in the buffer is lost if it has to grow. False: no memory, or no more of it may be taken. */
static bool buffer_grow(struct splice_step *step, size_t bytes)
{
    if (bytes <= step->capacity)
        return true;
    buffer_free(step);
    if (!reserve(step->call, 0, bytes))
        return false;
    step->capacity = bytes;
    step->buffer = malloc(bytes);
    if (!step->buffer)
        buffer_free(step);
    return step->buffer;
}

static enum store_verdict splice_step(void *context, const struct store_value *old, struct store_value *new)
{
    struct splice_step *step = context;
    const size_t had = old ? old->length : 0, length = step->part->length;
    const uint64_t offset = step->append ? had : step->offset;
    step->problem = SPLICE_GOOD;
    step->total = had;
    if (!length && (old || !step->append)) /* only APPEND creates an empty value */
        return STORE_KEEP;
    if (length > STORE_VALUE_MAX || offset > STORE_VALUE_MAX - length)
        step->problem = SPLICE_TOO_LONG;
    else if (!buffer_grow(step, (offset + length > had ? offset + length : had) + 1))
        step->problem = SPLICE_NO_MEMORY;
    if (step->problem != SPLICE_GOOD)
        return STORE_KEEP;
    if (had)
        memcpy(step->buffer, old->bytes, had);
    if (offset > had)
        memset(step->buffer + had, 0, offset - had);
    if (length)
        memcpy(step->buffer + offset, step->part->bytes, length);
    step->total = offset + length > had ? offset + length : had;
    *new =
        (struct store_value){.bytes = step->buffer, .length = step->total, .expires = old ? old->expires : 0};
    return STORE_PUT;
}

static void splice(struct server_call *call, struct splice_step *step)
{
    const struct resp_argument *key = &call->arguments[1];
    bool existed;
    if (!server_argument_key(call, key))
        return;
    /* Here: the step counts its buffer among the clients' of this thread. */
    int status = store_modify_here(call->store, key->bytes, key->length, STORE_NEED_VALUE, splice_step, step,
                                   NULL, &existed);
    buffer_free(step);
    if (status)
        server_reply_failure(call, status);
    else if (step->problem == SPLICE_TOO_LONG)
        server_reply_too_long(call);
    else if (step->problem == SPLICE_NO_MEMORY)
        server_reply_memory(call);
    else
        resp_integer(call->reply, (int64_t)step->total);
}

void append_run(struct server_call *call)
{
    struct splice_step step = {.call = call, .part = &call->arguments[2], .append = true};
    splice(call, &step);
}

void setrange_run(struct server_call *call)
{
    int64_t offset;
    if (!server_argument_integer(call, &call->arguments[2], &offset))
        return;
    if (offset < 0) {
        resp_error(call->reply, "ERR offset is out of range");
        return;
    }
    struct splice_step step = {.call = call, .part = &call->arguments[3], .offset = (uint64_t)offset};
    splice(call, &step);
}
