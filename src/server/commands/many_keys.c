/* many_keys.c - reading the keys of one command in batches; contract in many_keys.h. */
#include "server/commands/many_keys.h"

int many_keys_each(struct server_call *call, uint32_t first, bool values,
                   bool (*visit)(struct server_call *call, const struct store_value *value, void *context),
                   void *context)
{
    struct store_item items[MANY_KEYS_BATCH];
    for (uint32_t at = first; at < call->count;) {
        uint32_t count = 0;
        for (; count < MANY_KEYS_BATCH && at < call->count; at++)
            items[count++] = (struct store_item){.key = call->arguments[at].bytes,
                                                 .key_length = call->arguments[at].length};
        store_multi_get(call->store, items, count, values);
        for (uint32_t i = 0; i < count; i++) {
            int status = items[i].status;
            if (status == BANYAN_ENOMEM &&
                i > 0) { /* too many bytes for one batch: the next one begins with this key */
                at -= count - i;
                break;
            }
            if (status && status != BANYAN_ENOTFOUND)
                return status;
            bool found = !items[i].status;
            server_call_count(call, found);
            if (!visit(call, found ? &items[i].value : NULL, context))
                return 0;
        }
    }
    return 0;
}
