/* data.c - small things that the data commands share; contract in data.h. */
#include "server/commands/many_keys.h"

#include <stdlib.h>
#include <string.h>

bool data_keys_valid(struct server_call *call, uint32_t first, uint32_t step)
{
    for (uint32_t i = first; i < call->count; i += step)
        if (!server_argument_key(call, &call->arguments[i]))
            return false;
    return true;
}

void data_rewind(struct server_call *call)
{
    call->reply->length = call->reply->start;
}

void data_reply_bad_expire(struct server_call *call)
{
    resp_error(call->reply, "ERR invalid expire time in '%s' command", call->command->name);
}

void data_reply_too_long(struct server_call *call)
{
    resp_error(call->reply, "ERR string exceeds maximum allowed size (%uMB)",
               (unsigned)(STORE_VALUE_MAX >> 20));
}

void data_reply_memory(struct server_call *call)
{
    resp_error(call->reply, "OOM no memory for '%s'", call->command->name);
}

bool data_integer(const void *bytes, size_t length, int64_t *value)
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

int data_each(struct server_call *call, bool values,
              bool (*visit)(struct server_call *call, const struct store_value *value, void *context),
              void *context)
{
    struct store_item items[DATA_BATCH];
    for (uint32_t at = 1; at < call->count;) {
        uint32_t count = 0;
        for (; count < DATA_BATCH && at < call->count; at++)
            items[count++] = (struct store_item){.key = call->arguments[at].bytes,
                                                 .key_length = call->arguments[at].length};
        store_multi_get(call->store, items, count, values);
        for (uint32_t i = 0; i < count; i++) {
            int status = items[i].status;
            if (status == BANYAN_ENOMEM && i > 0) { /* too much at once: the next batch begins with it */
                at -= count - i;
                break;
            }
            if (status && status != BANYAN_ENOTFOUND)
                return status;
            bool found = !items[i].status;
            data_count(call, found);
            if (!visit(call, found ? &items[i].value : NULL, context))
                return 0;
        }
    }
    return 0;
}
