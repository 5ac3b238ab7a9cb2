/*
 * put.c - puts and deletes of one key. A short value goes into the slot with one exchange. For a longer one a
 * record is written first, to which no slot refers yet, and then its reference goes into the slot; where the
 * range is logged both go out together.
 */
#include "store/put.h"
#include "store/cached.h"
#include "store/exchange.h"
#include "store/guard.h"
#include "store/read.h"
#include "tree/logging.h"

/* A put whose value is told under the leaf's latch. */
struct told {
    struct store_session *session;
    const struct store_value *value;
    bool told;
};

static void put_placed(void *context, struct tree_item *item)
{
    struct told *told = context;
    const struct store_session *session = told->session;
    told->told = session->changed_placed(session->changed_context, item->key, item->key_length, told->value);
}

int store_put_now(struct store_session *session, const void *key, size_t key_length,
                  const struct store_value *value)
{
    struct store_raw put, *seen = &session->seen;
    struct store_fresh fresh = {.travels = false};
    struct told told = {session, value, false};
    bool record = !store_slot_fits(session->store, value->length, value->expires);
    int status = value->bytes || !value->length ? store_length_check(session, value->length)
                                                : pool_fail(tree_session_pool(session->tree), BANYAN_EINVAL,
                                                            "the value is a null pointer");
    if (!status && record) {
        status = store_key_check(session, key, key_length);
        if (!status)
            status = store_record_prepare(session, key, key_length, value, &fresh);
    }
    if (status)
        return status;
    if (record)
        store_slot_record(&put, &fresh.reference);
    else
        store_slot_inline(&put, value);
    tree_session_at_hand(session->tree, (void *)session->at_hand.bytes, fresh.at_hand);
    struct tree_item item = {.key = key,
                             .key_length = key_length,
                             .value = put.bytes,
                             .length = put.length,
                             .old = seen->bytes,
                             .ahead = fresh.travels ? &fresh.ahead : NULL,
                             .placed = session->changed_placed ? put_placed : NULL,
                             .placed_context = &told};
    store_guard_begin(session, key, key_length);
    status = tree_put(session->tree, session->store->tree, &item);
    store_guard_end(session);
    store_fresh_written(session, &fresh, item.ahead_done);
    /* Nothing else changes it: what is refused may be no key at all. */
    if (!told.told && (!status || status == BANYAN_EUNKNOWN))
        store_changed(session, key, key_length);
    if (!status) {
        seen->present = item.existed;
        seen->length = (uint8_t)item.old_length;
        if (record)
            store_cached_replace(session, key, key_length, &fresh.reference, value, seen);
        store_discard(session, key, key_length, seen);
    } else if (record && status != BANYAN_EUNKNOWN) { /* S6 */
        store_fresh_free(session, key, key_length, &fresh, status);
    }
    tree_session_at_hand(session->tree, NULL, 0);
    return status;
}

int store_put(struct store_session *session, const void *key, size_t key_length, const void *bytes,
              size_t length, uint64_t expires)
{
    store_begin_untimed(session);
    return store_put_now(session, key, key_length,
                         &(struct store_value){.bytes = bytes, .length = length, .expires = expires});
}

/* Whether the entry in session->seen has expired. The header of its record may have to be read for that.
 * STORE_STALE: the record is another's by now. */
static int seen_expired(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                        bool *expired)
{
    struct format_value slot;
    struct store_value value;
    const struct store_raw *raw = &session->seen;
    *expired = false;
    if (!format_value_decode(raw->bytes, raw->length, &slot))
        return 0;
    if (slot.record && slot.reference.expires) {
        int status = store_record_read(session, key, key_length, &slot.reference, FORMAT_PART_HEADER,
                                       STORE_SINK_BUFFER, &value);
        if (status)
            return status;
        slot.expires = value.expires;
    }
    *expired = store_expired(slot.expires, now);
    return 0;
}

/* Takes the entry out of its slot, and tells whether it had expired by then. What a logged range had in a
 * leaf may be freed as soon as that is done: so there the header of a record that expires is read before, and
 * the very bytes that named it are taken out (S5). */
static int delete_take(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                       bool *wrote, bool *expired)
{
    struct store_exchange exchange = {.seen = &session->seen, .careful = true};
    struct store_patience patience = {.tries = 0};
    for (;;) {
        int status = store_exchange_run(session, key, key_length, &exchange);
        if (status)
            return status;
        *wrote = exchange.wrote;
        *expired = false;
        if (!exchange.stays) {
            if (*wrote)
                (void)seen_expired(session, key, key_length, now,
                                   expired); /* damaged: as if it never expired */
            return 0;
        }
        status = seen_expired(session, key, key_length, now, expired);
        if (!status) {
            const struct store_raw seen = session->seen;
            struct store_exchange exactly = {.expected = &seen};
            status = store_exchange_run(session, key, key_length, &exactly);
            *wrote = exactly.wrote;
            if (status || exactly.matched)
                return status;
        } else if (status == STORE_STALE) {
            status = store_patience(session, &patience, &session->seen);
        }
        if (status)
            return status;
    }
}

int store_delete_now(struct store_session *session, const void *key, size_t key_length, uint64_t now)
{
    bool wrote, expired;
    int status = delete_take(session, key, key_length, now, &wrote, &expired);
    if (status)
        return status;
    if (!wrote)
        return BANYAN_ENOTFOUND;
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
