/*
 * numbers.c - INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT: each reads a value as a number and changes it in one
 * atomic step. On fibers.
 *
 * Floats are long doubles, read by strtold and written with 17 digits after the point, less the zeros at
 * their end, as Redis does: the same bytes come out on the same kind of machine.
 */
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- integers ---- */

enum number_problem { NUMBER_GOOD, NUMBER_NONE, NUMBER_OVERFLOW };

struct integer_step {
    int64_t by, value;
    enum number_problem problem;
    char text[24];
};

static enum store_verdict integer_step(void *context, const struct store_value *old, struct store_value *new)
{
    struct integer_step *step = context;
    step->value = 0;
    step->problem = NUMBER_GOOD;
    if (old && !server_integer_parse(old->bytes, old->length, &step->value))
        step->problem = NUMBER_NONE;
    else if (__builtin_add_overflow(step->value, step->by, &step->value))
        step->problem = NUMBER_OVERFLOW;
    if (step->problem != NUMBER_GOOD)
        return STORE_KEEP;
    int length = snprintf(step->text, sizeof step->text, "%lld", (long long)step->value);
    *new = (struct store_value){
        .bytes = (const uint8_t *)step->text, .length = (size_t)length, .expires = old ? old->expires : 0};
    return STORE_PUT;
}

static void integer_add(struct server_call *call, int64_t by)
{
    const struct resp_argument *key = &call->arguments[1];
    struct integer_step step = {.by = by};
    bool existed;
    if (!server_argument_key(call, key))
        return;
    int status = store_modify(call->store, key->bytes, key->length, STORE_NEED_VALUE, integer_step, &step,
                              NULL, &existed);
    if (status)
        server_reply_failure(call, status);
    else if (step.problem == NUMBER_NONE)
        server_reply_not_integer(call);
    else if (step.problem == NUMBER_OVERFLOW)
        resp_error(call->reply, "ERR increment or decrement would overflow");
    else
        resp_integer(call->reply, step.value);
}

void incr_run(struct server_call *call)
{
    integer_add(call, 1);
}

void decr_run(struct server_call *call)
{
    integer_add(call, -1);
}

void incrby_run(struct server_call *call)
{
    int64_t by;
    if (server_argument_integer(call, &call->arguments[2], &by))
        integer_add(call, by);
}

void decrby_run(struct server_call *call)
{
    int64_t by;
    if (!server_argument_integer(call, &call->arguments[2], &by))
        return;
    if (by == INT64_MIN) /* its negation is out of range */
        resp_error(call->reply, "ERR decrement would overflow");
    else
        integer_add(call, -by);
}

/* ---- floats ---- */

/* Longest text of a number, read or written, as in Redis. */
#define FLOAT_TEXT 5120u

struct float_step {
    const struct resp_argument *by;
    enum number_problem problem;
    size_t length;
    char text[FLOAT_TEXT]; /* the new value */
    char read[FLOAT_TEXT];
};

static bool float_read(char *room, const void *bytes, size_t length, long double *value)
{
    char *end;
    if (!length || length >= FLOAT_TEXT)
        return false;
    memcpy(room, bytes, length);
    room[length] = 0;
    if (isspace((unsigned char)room[0]))
        return false;
    errno = 0;
    *value = strtold(room, &end);
    /* As in Redis: a number too large or too small for a long double is an error, but a written infinity is a
     * number. */
    bool range = errno == ERANGE && (isinf(*value) || fpclassify(*value) == FP_ZERO);
    return end == room + length && !range && errno != EINVAL && !isnan(*value);
}

/* `room` has FLOAT_TEXT bytes; the largest long double needs 4,933 digits and 18 more. */
static size_t float_write(char *room, long double value)
{
    int printed = snprintf(room, FLOAT_TEXT, "%.17Lf", value);
    size_t length = printed < 0 ? 0 : (size_t)printed;
    if (length >= FLOAT_TEXT)
        return 0;
    if (memchr(room, '.', length)) {
        while (room[length - 1] == '0')
            length--;
        length -= room[length - 1] == '.';
    }
    if (length == 2 && memcmp(room, "-0", 2) == 0) {
        room[0] = '0';
        length = 1;
    }
    return length;
}

static enum store_verdict float_step(void *context, const struct store_value *old, struct store_value *new)
{
    struct float_step *step = context;
    long double value = 0, by = 0;
    step->problem = NUMBER_GOOD;
    if ((old && !float_read(step->read, old->bytes, old->length, &value)) ||
        !float_read(step->read, step->by->bytes, step->by->length, &by)) {
        step->problem = NUMBER_NONE;
        return STORE_KEEP;
    }
    value += by;
    step->length = isnan(value) || isinf(value) ? 0 : float_write(step->text, value);
    if (!step->length) {
        step->problem = NUMBER_OVERFLOW;
        return STORE_KEEP;
    }
    *new = (struct store_value){
        .bytes = (const uint8_t *)step->text, .length = step->length, .expires = old ? old->expires : 0};
    return STORE_PUT;
}

void incrbyfloat_run(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[1];
    bool existed;
    if (!server_argument_key(call, key))
        return;
    struct float_step *step = malloc(sizeof *step); /* too large for a fiber's stack */
    if (!step) {
        server_reply_memory(call);
        return;
    }
    step->by = &call->arguments[2];
    int status = store_modify(call->store, key->bytes, key->length, STORE_NEED_VALUE, float_step, step, NULL,
                              &existed);
    if (status)
        server_reply_failure(call, status);
    else if (step->problem == NUMBER_NONE)
        resp_error(call->reply, "ERR value is not a valid float");
    else if (step->problem == NUMBER_OVERFLOW)
        resp_error(call->reply, "ERR increment would produce NaN or Infinity");
    else
        resp_bulk(call->reply, step->text, step->length);
    free(step);
}
