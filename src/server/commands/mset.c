/*
 * mset.c - MSET and MSETNX. On fibers. Each key of MSET is a plain write by itself, and MSET is not one
 * transaction: another client may see some of its keys before the rest.
 */
#include <string.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/many_keys.h"
#include "server/replies.h"

static struct store_item *batch_find(struct store_item *items, uint32_t count,
                                     const struct resp_argument *key)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].key_length == key->length && memcmp(items[i].key, key->bytes, key->length) == 0)
            return &items[i];
    return NULL;
}

/* The writes of a batch go out together, in any order, so a key stands in it once: with its last value. */
static int mset_write(struct server_call *call)
{
    struct store_item items[MANY_KEYS_BATCH];
    for (uint32_t at = 1; at + 1 < call->count;) {
        uint32_t count = 0;
        for (; at + 1 < call->count; at += 2) {
            const struct resp_argument *key = &call->arguments[at], *value = key + 1;
            struct store_item *item = batch_find(items, count, key);
            if (!item && count == MANY_KEYS_BATCH)
                break;
            if (!item)
                item = &items[count++];
            *item = (struct store_item){
                .key = key->bytes,
                .key_length = key->length,
                .value = {.bytes = (const uint8_t *)value->bytes, .length = value->length}};
        }
        int status = store_multi_put(call->store, items, count);
        if (status)
            return status;
    }
    return 0;
}

void mset_run(struct server_call *call)
{
    if (call->count % 2 == 0) {
        server_reply_arity(call);
        return;
    }
    if (!server_arguments_keys(call, 1, 2))
        return;
    int status = mset_write(call);
    if (status)
        server_reply_failure(call, status);
    else
        resp_simple(call->reply, "OK");
}

void msetnx_run(struct server_call *call)
{
    if (call->count % 2 == 0)
        server_reply_arity(call);
    else if (call->count == 3)
        setnx_run(call);
    else
        resp_error(call->reply,
                   "ERR MSETNX of more than one key is not possible: keys cannot be set together atomically");
}
