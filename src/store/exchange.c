/*
 * exchange.c - See exchange.h.
 */
#include "store/exchange.h"
#include "store/guard.h"
#include "tree/logging.h"
#include "tree/rights.h"

#include <assert.h>

static bool record_expires(const void *raw, size_t length)
{
    struct format_value slot;
    return format_value_decode(raw, length, &slot) && slot.record && slot.reference.expires;
}

static enum tree_verdict exchange_change(void *context, const void *old, size_t old_length, void *value,
                                         size_t *length)
{
    struct store_exchange *exchange = context;
    assert(!exchange->put || exchange->put->present);
    exchange->matched = !exchange->expected || store_raw_equal(exchange->expected, old, old_length);
    exchange->wrote = exchange->stays = false;
    if (exchange->seen)
        store_raw_set(exchange->seen, old, old_length);
    if (exchange->careful && !exchange->expected && old && record_expires(old, old_length) &&
        tree_session_replaces_later(exchange->session)) {
        exchange->stays = true;
        return TREE_KEEP;
    }
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
    struct store_fresh *fresh = exchange->fresh;
    exchange->session = session->tree;
    if (!exchange->moves)
        store_guard_begin(session, key, key_length);
    if (fresh && fresh->travels)
        tree_session_ahead(session->tree, &fresh->ahead, 1);
    int status = tree_modify(session->tree, session->store->tree, key, key_length, exchange_change, exchange);
    store_guard_end(session);
    if (fresh)
        store_fresh_written(session, fresh, tree_session_ahead_done(session->tree));
    if (exchange->wrote)
        store_changed(session, key, key_length);
    return status;
}

int store_exchange_reference(struct store_session *session, const void *key, size_t key_length,
                             const struct store_raw *expected, struct store_fresh *fresh, bool *unknown)
{
    struct store_raw put;
    struct store_exchange exchange = {.expected = expected, .put = &put, .fresh = fresh};
    store_slot_record(&put, &fresh->reference);
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

bool store_retires(const struct store_session *session)
{
    return tree_session_replaced(session->tree);
}

void store_retire(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw)
{
    if (store_retires(session))
        store_discard(session, key, key_length, raw);
}

void store_discard(struct store_session *session, const void *key, size_t key_length,
                   const struct store_raw *raw)
{
    struct format_value slot;
    if (raw->present && format_value_decode(raw->bytes, raw->length, &slot) && slot.record)
        store_record_free(session, key, key_length, &slot.reference, true);
}

void store_withdraw(struct store_session *session, const void *key, size_t key_length, int status,
                    const struct store_exchange *exchange, const struct store_fresh *fresh, bool pieces)
{
    assert(status || !exchange->matched);
    if (status == BANYAN_EUNKNOWN && exchange->wrote)
        return;
    if (pieces)
        store_fresh_free(session, key, key_length, fresh, status);
    else
        store_record_free(session, key, key_length, &fresh->reference, false);
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
    if (tree_rights_unkept(session->tree, session->store->tree, key, key_length))
        return false; /* it would wait, and is expired for whoever reads it all the same */
    store_remove_exactly(session, key, key_length, raw, &removed);
    if (removed)
        store_count_up(session, expired, 1);
    return removed;
}
