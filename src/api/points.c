/*
 * points.c - one key: get, put, insert, update, delete, compare and set, modify. Called by programs, on the
 * session's thread. Indexes of records go on to records.c, others straight to the tree.
 */
#include "api/arguments.h"

#include <string.h>
#include "api/records.h"

int banyan_get(struct banyan_session *session, struct banyan_index *index, const void *key, size_t key_length,
               void *value, size_t *length)
{
    unsigned char whole[FORMAT_VALUE_MAX];
    size_t whole_length = sizeof whole;
    int status = api_check_key(session, index, key, key_length);
    if (status)
        return status;
    if (!length || (!value && *length > 0))
        return error_set(&session->error, BANYAN_EINVAL, "index %s: no room for the value", index->name);
    if (index->store)
        return api_records_get(session, index, key, key_length, value, length);
    /* By way of a buffer that always suffices, so that a value that does not fit still tells its length. */
    status = tree_lookup(session->tree_session, index->tree, key, key_length, whole, &whole_length);
    if (status)
        return api_result(session, status);
    size_t room = *length;
    *length = whole_length;
    if (whole_length > room)
        return error_set(&session->error, BANYAN_EVALUESIZE,
                         "index %s: the value has %zu bytes, room for %zu", index->name, whole_length, room);
    if (whole_length > 0)
        memcpy(value, whole, whole_length);
    return BANYAN_OK;
}

int banyan_put(struct banyan_session *session, struct banyan_index *index, const void *key, size_t key_length,
               const void *value, size_t length)
{
    int status = api_check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_PUT, key, key_length, api_value_or_empty(value), length, 0,
                               NULL, 0);
    return api_result(session, tree_upsert(session->tree_session, index->tree, key, key_length,
                                           api_value_or_empty(value), length));
}

int banyan_put_until(struct banyan_session *session, struct banyan_index *index, const void *key,
                     size_t key_length, const void *value, size_t length, uint64_t expires_ms)
{
    int status = api_check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (!index->store)
        return error_set(&session->error, BANYAN_ENOTSUP,
                         "index %s: only indexes of records have entries that expire", index->name);
    return api_records_put(session, index, API_PUT, key, key_length, api_value_or_empty(value), length,
                           expires_ms, NULL, 0);
}

int banyan_insert(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length, const void *value, size_t length)
{
    int status = api_check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_INSERT, key, key_length, api_value_or_empty(value), length,
                               0, NULL, 0);
    return api_result(session, tree_insert(session->tree_session, index->tree, key, key_length,
                                           api_value_or_empty(value), length));
}

int banyan_update(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length, const void *value, size_t length)
{
    int status = api_check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_UPDATE, key, key_length, api_value_or_empty(value), length,
                               0, NULL, 0);
    return api_result(session, tree_update(session->tree_session, index->tree, key, key_length,
                                           api_value_or_empty(value), length));
}

int banyan_delete(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length)
{
    int status = api_check_key(session, index, key, key_length);
    if (status)
        return status;
    return index->store
               ? api_records_delete(session, index, key, key_length)
               : api_result(session, tree_delete(session->tree_session, index->tree, key, key_length));
}

int banyan_compare_and_set(struct banyan_session *session, struct banyan_index *index, const void *key,
                           size_t key_length, const void *expected, size_t expected_length, const void *value,
                           size_t length)
{
    int status = api_check_entry(session, index, key, key_length, value, length);
    if (!status)
        status = api_check_value(session, index, expected, expected_length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_REPLACE, key, key_length, api_value_or_empty(value),
                               length, 0, api_value_or_empty(expected), expected_length);
    return api_result(session, tree_compare_and_set(session->tree_session, index->tree, key, key_length,
                                                    api_value_or_empty(expected), expected_length,
                                                    api_value_or_empty(value), length));
}

struct modify_call {
    banyan_modify_function *function;
    void *context;
    struct banyan_session *session;
    const struct banyan_index *index;
    int status; /* of the last run: what the call returns if the tree has no complaint of its own */
};

static enum tree_verdict modify_run(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    struct modify_call *call = context;
    const struct format_geometry *geometry = tree_geometry(call->index->tree);
    size_t new_length = geometry->value_bytes;
    enum banyan_verdict verdict = call->function(call->context, old, old_length, value, &new_length);
    call->status = BANYAN_OK;
    switch (verdict) {
    case BANYAN_KEEP:
        return TREE_KEEP;
    case BANYAN_REMOVE:
        return TREE_DELETE;
    case BANYAN_STORE:
        if (api_value_fits(call->index, new_length)) {
            *length = new_length;
            return TREE_PUT;
        }
        call->status =
            error_set(&call->session->error, BANYAN_EVALUESIZE,
                      "index %s: the function made a value of %zu bytes", call->index->name, new_length);
        return TREE_KEEP;
    case BANYAN_REFUSE:
        call->status = error_set(&call->session->error, BANYAN_EABORT,
                                 "index %s: the function refused the change", call->index->name);
        return TREE_KEEP;
    }
    call->status = error_set(&call->session->error, BANYAN_EINVAL, "index %s: the function's verdict is %d",
                             call->index->name, (int)verdict);
    return TREE_KEEP;
}

int banyan_modify(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length, banyan_modify_function *function, void *context)
{
    int status = api_check_key(session, index, key, key_length);
    if (status)
        return status;
    if (!function)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the function is NULL", index->name);
    if (index->store)
        return api_records_modify(session, index, key, key_length, function, context);
    struct modify_call call = {function, context, session, index, BANYAN_OK};
    /* Here: the application's function may rely on its thread. */
    status = tree_modify_here(session->tree_session, index->tree, key, key_length, modify_run, &call);
    return status ? api_result(session, status) : call.status;
}
