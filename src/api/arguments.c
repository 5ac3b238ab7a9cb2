/* arguments.c - See arguments.h. */
#include "api/arguments.h"

int api_check_key(struct banyan_session *session, const struct banyan_index *index, const void *key,
                  size_t length)
{
    int status = api_check(session, index);
    if (status)
        return status;
    if (!key)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the key is NULL", index->name);
    const struct format_geometry *geometry = tree_geometry(index->tree);
    bool fits = geometry->key_kind == FORMAT_KEY_FIXED ? length == geometry->key_bytes
                                                       : length >= 1 && length <= geometry->key_bytes;
    if (!fits)
        return error_set(&session->error, BANYAN_EKEYSIZE, "index %s: a key of %zu bytes; %s %u", index->name,
                         length, geometry->key_kind == FORMAT_KEY_FIXED ? "keys have" : "keys have 1 to",
                         geometry->key_bytes);
    return BANYAN_OK;
}

bool api_value_fits(const struct banyan_index *index, size_t length)
{
    const struct format_geometry *geometry = tree_geometry(index->tree);
    if (index->store)
        return length <= STORE_VALUE_MAX;
    return geometry->value_variable ? length <= geometry->value_bytes : length == geometry->value_bytes;
}

int api_check_value(struct banyan_session *session, const struct banyan_index *index, const void *value,
                    size_t length)
{
    const struct format_geometry *geometry = tree_geometry(index->tree);
    if (!value && length > 0)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the value is NULL", index->name);
    if (!api_value_fits(index, length) && index->store)
        return error_set(&session->error, BANYAN_EVALUESIZE,
                         "index %s: a value of %zu bytes; values have at most %u", index->name, length,
                         BANYAN_VALUE_MAX);
    if (!api_value_fits(index, length))
        return error_set(
            &session->error, BANYAN_EVALUESIZE, "index %s: a value of %zu bytes; %s %u", index->name, length,
            geometry->value_variable ? "values have at most" : "values have", geometry->value_bytes);
    return BANYAN_OK;
}

int api_check_entry(struct banyan_session *session, const struct banyan_index *index, const void *key,
                    size_t key_length, const void *value, size_t length)
{
    int status = api_check_key(session, index, key, key_length);
    return status ? status : api_check_value(session, index, value, length);
}
