/* subject_api.c - see subject_api.h. */
#include "cluster/subject_api.h"

#include <stdlib.h>
#include <string.h>

static enum banyan_verdict exchange(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    struct subject_call *call = context;
    call->found = old != NULL;
    call->result_length = old ? old_length : 0;
    if (old && old_length <= call->result_room)
        memcpy(call->result, old, old_length);
    if (!call->value)
        return old ? BANYAN_REMOVE : BANYAN_KEEP;
    memcpy(value, call->value, call->length);
    *length = call->length;
    return BANYAN_STORE;
}

static int one(void *context, struct subject_call *call)
{
    const struct subject_api *api = context;
    struct banyan_session *session = api->session;
    struct banyan_index *index = api->index;
    const uint8_t *key = call->key;
    size_t key_length = call->key_length;
    switch (call->kind) {
    case HISTORY_GET:
        call->result_length = call->result_room;
        return banyan_get(session, index, key, key_length, call->result, &call->result_length);
    case HISTORY_PUT:
        return banyan_put(session, index, key, key_length, call->value, call->length);
    case HISTORY_INSERT:
        return banyan_insert(session, index, key, key_length, call->value, call->length);
    case HISTORY_UPDATE:
        return banyan_update(session, index, key, key_length, call->value, call->length);
    case HISTORY_DELETE:
        return banyan_delete(session, index, key, key_length);
    case HISTORY_CAS:
        return banyan_compare_and_set(session, index, key, key_length, call->expected, call->expected_length,
                                      call->value, call->length);
    case HISTORY_MODIFY:
        return banyan_modify(session, index, key, key_length, exchange, call);
    }
    return BANYAN_EINVAL;
}

static void many(void *context, struct subject_call *calls, size_t count)
{
    const struct subject_api *api = context;
    struct banyan_item items[SUBJECT_MANY_MAX];
    bool writes = count > 0 && calls[0].kind == HISTORY_PUT;
    for (size_t i = 0; i < count; i++)
        items[i] = (struct banyan_item){.key = calls[i].key,
                                        .key_length = calls[i].key_length,
                                        .value = writes ? (void *)(uintptr_t)calls[i].value : calls[i].result,
                                        .length = writes ? calls[i].length : calls[i].result_room};
    if (writes)
        banyan_multi_put(api->session, api->index, items, count);
    else
        banyan_multi_get(api->session, api->index, items, count);
    for (size_t i = 0; i < count; i++) {
        calls[i].status = items[i].status;
        calls[i].result_length = items[i].length;
    }
}

static int scan(void *context, const struct tree_range *range, tree_visit_function *visit,
                void *visit_context)
{
    const struct subject_api *api = context;
    const struct banyan_range bounds = {.struct_bytes = sizeof bounds,
                                        .from = range->from,
                                        .from_length = range->from_length,
                                        .from_exclusive = range->from_open,
                                        .to = range->to,
                                        .to_length = range->to_length,
                                        .to_exclusive = range->to_open,
                                        .reverse = range->reverse};
    struct banyan_iterator *iterator;
    int status = banyan_iterator_open(api->session, api->index, &bounds, &iterator);
    if (status)
        return status;
    uint64_t seen = 0;
    while (!status && (!range->limit || seen < range->limit)) {
        const void *key, *value;
        size_t key_length, length;
        status = banyan_iterator_next(iterator, &key, &key_length, &value, &length);
        if (!status && !visit(visit_context, key, key_length, value, length))
            break;
        seen++;
    }
    banyan_iterator_close(iterator);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

static const char *trouble(void *context)
{
    const struct subject_api *api = context;
    return banyan_session_error(api->session);
}

const struct subject_ops subject_api = {.one = one, .many = many, .scan = scan, .trouble = trouble};
