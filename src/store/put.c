/*
 * put.c - puts and deletes of one key. A short value goes into the slot with one exchange. For a longer one a
 * record is written first, to which no slot refers yet, and then its reference goes into the slot.
 */
#include "store/put.h"
#include "store/cached.h"
#include "store/exchange.h"

int store_put_now(struct store_session *session, const void *key, size_t key_length,
                  const struct store_value *value)
{
    struct store_raw put;
    struct format_reference reference;
    struct store_exchange exchange = {.put = &put, .seen = &session->seen};
    bool record = !store_slot_fits(session->store, value->length, value->expires);
    int status = value->bytes || !value->length ? store_length_check(session, value->length)
                                                : pool_fail(tree_session_pool(session->tree), BANYAN_EINVAL,
                                                            "the value is a null pointer");
    if (!status && record) {
        status = store_key_check(session, key, key_length);
        if (!status)
            status = store_record_write(session, key, key_length, value, &reference);
    }
    if (status)
        return status;
    if (record)
        store_slot_record(&put, &reference);
    else
        store_slot_inline(&put, value);
    status = store_exchange_run(session, key, key_length, &exchange);
    if (!status && record)
        store_cached_replace(session, key, key_length, &reference, value, &session->seen);
    if (!status)
        store_retire(session, key, key_length, &session->seen);
    else if (record)
        store_withdraw(session, key, key_length, status, &exchange, &reference, true);
    return status;
}

int store_put(struct store_session *session, const void *key, size_t key_length, const void *bytes,
              size_t length, uint64_t expires)
{
    store_begin(session);
    return store_put_now(session, key, key_length,
                         &(struct store_value){.bytes = bytes, .length = length, .expires = expires});
}

/* Whether the entry that was taken out of the slot had expired. The header of its record, which is this
 * call's by now, may have to be read for that. */
static bool seen_expired(struct store_session *session, const void *key, size_t key_length, uint64_t now)
{
    struct format_value slot;
    struct store_value value;
    const struct store_raw *raw = &session->seen;
    if (!format_value_decode(raw->bytes, raw->length, &slot))
        return false;
    if (slot.record && slot.reference.expires &&
        !store_record_read(session, key, key_length, &slot.reference, FORMAT_PART_HEADER, STORE_SINK_BUFFER,
                           &value))
        slot.expires = value.expires;
    return store_expired(slot.expires, now);
}

int store_delete_now(struct store_session *session, const void *key, size_t key_length, uint64_t now)
{
    struct store_exchange exchange = {.seen = &session->seen};
    int status = store_exchange_run(session, key, key_length, &exchange);
    if (status)
        return status;
    if (!exchange.wrote)
        return BANYAN_ENOTFOUND;
    bool expired = seen_expired(session, key, key_length, now);
    store_retire(session, key, key_length, &session->seen);
    if (!expired)
        return 0;
    store_count_up(session, expired, 1);
    return BANYAN_ENOTFOUND;
}

int store_delete(struct store_session *session, const void *key, size_t key_length)
{
    uint64_t now = store_begin(session);
    return store_delete_now(session, key, key_length, now);
}
