/*
 * exchange.c - See exchange.h.
 */
#include "store/exchange.h"

#include <assert.h>

static enum tree_verdict exchange_change(void *context, const void *old, size_t old_length, void *value,
                                         size_t *length)
{
    struct store_exchange *exchange = context;
    assert(!exchange->put || exchange->put->present);
    exchange->matched = !exchange->expected || store_raw_equal(exchange->expected, old, old_length);
    exchange->wrote = false;
    if (exchange->seen)
        store_raw_set(exchange->seen, old, old_length);
    if (!exchange->matched || (!exchange->put && !old))
        return TREE_KEEP;
    exchange->wrote = true;
    if (!exchange->put)
        return TREE_DELETE;
    memcpy(value, exchange->put->bytes, exchange->put->length);
    *length = exchange->put->length;
    return TREE_PUT;
}

int store_exchange_run(struct store_session *session, const void *key, size_t key_length,
                       struct store_exchange *exchange)
{
    return tree_modify(session->tree, session->store->tree, key, key_length, exchange_change, exchange);
}

int store_exchange_reference(struct store_session *session, const void *key, size_t key_length,
                             const struct store_raw *expected, const struct format_reference *reference,
                             bool *unknown)
{
    struct store_raw put;
    struct store_exchange exchange = {.expected = expected, .put = &put};
    store_slot_record(&put, reference);
    int status = store_exchange_run(session, key, key_length, &exchange);
    *unknown = status == BANYAN_EUNKNOWN && exchange.wrote;
    return status || exchange.matched ? status : STORE_LOST;
}

void store_back_off(struct store_session *session, unsigned attempt)
{
    if (attempt < 3)
        task_yield();
    else
        task_sleep(1000 + random_below(&session->random, UINT64_C(1000) << (attempt < 10 ? attempt : 10)));
}

void store_retire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw)
{
    struct format_value slot;
    if (raw->present && format_value_decode(raw->bytes, raw->length, &slot) && slot.record)
        store_record_free(session, key, key_length, &slot.reference, true);
}

void store_withdraw(struct store_session *session, const void *key, size_t key_length, int status,
                    const struct store_exchange *exchange, const struct format_reference *reference,
                    bool pieces)
{
    assert(status || !exchange->matched);
    if (status != BANYAN_EUNKNOWN || !exchange->wrote)
        store_record_free(session, key, key_length, reference, pieces);
}

int store_remove_exactly(struct store_session *session, const void *key, size_t key_length,
                         const struct store_raw *raw, bool *removed)
{
    struct store_exchange exchange = {.expected = raw};
    int status = store_exchange_run(session, key, key_length, &exchange);
    *removed = !status && exchange.wrote;
    if (*removed)
        store_retire(session, key, key_length, raw);
    return status;
}

bool store_expire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw)
{
    bool removed;
    store_remove_exactly(session, key, key_length, raw, &removed);
    if (removed)
        store_count_up(session, expired, 1);
    return removed;
}
