/* arguments.c - what commands read out of their arguments; contract in arguments.h. */
#include "server/arguments.h"

#include <string.h>
#include <strings.h>

#include "server/replies.h"

bool server_argument_is(const struct resp_argument *argument, const char *name)
{
    size_t length = strlen(name);
    return argument->length == length && strncasecmp(argument->bytes, name, length) == 0;
}

bool server_argument_equals(const struct resp_argument *argument, const char *text)
{
    return strlen(text) == argument->length && memcmp(text, argument->bytes, argument->length) == 0;
}

bool server_argument_digits(const struct resp_argument *argument)
{
    for (size_t i = 0; i < argument->length; i++)
        if (argument->bytes[i] < '0' || argument->bytes[i] > '9')
            return false;
    return argument->length != 0;
}

bool server_argument_integer(struct server_call *call, const struct resp_argument *argument, int64_t *value)
{
    if (server_integer_parse(argument->bytes, argument->length, value))
        return true;
    server_reply_not_integer(call);
    return false;
}

bool server_argument_key(struct server_call *call, const struct resp_argument *argument)
{
    uint32_t most = store_key_max(call->store);
    if (argument->length >= 1 && argument->length <= most)
        return true;
    resp_error(call->reply, "ERR a key has 1 to %u bytes, this one has %zu", most, argument->length);
    return false;
}

bool server_arguments_keys(struct server_call *call, uint32_t first, uint32_t step)
{
    for (uint32_t i = first; i < call->count; i += step)
        if (!server_argument_key(call, &call->arguments[i]))
            return false;
    return true;
}

bool server_integer_parse(const void *bytes, size_t length, int64_t *value)
{
    const uint8_t *at = bytes;
    bool negative = length && *at == '-';
    size_t digits = length - negative;
    at += negative;
    if (!digits || digits > 19 || (*at == '0' && (digits > 1 || negative)))
        return false;
    uint64_t number = 0;
    for (size_t i = 0; i < digits; i++) {
        unsigned digit = at[i] - (unsigned)'0';
        if (digit > 9)
            return false;
        number = number * 10 + digit; /* 19 digits fit in 64 bits */
    }
    if (number > (uint64_t)INT64_MAX + negative)
        return false;
    *value = (int64_t)(negative ? 0 - number : number);
    return true;
}
