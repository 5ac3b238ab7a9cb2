/*
 * modify.c - store_modify: read, decide and write as one step. The function decides under the leaf's lock, in
 * one tree_modify, if it needs no record to be read and none to be written. Else it decides outside, and its
 * result is stored only if the slot still holds the bytes that it was decided on (S5).
 */
#include "store/cached.h"
#include "store/exchange.h"
#include "store/guard.h"
#include "store/read.h"

#include <assert.h>

enum change_next {
    CHANGE_DONE,  /* decided, and stored if there was something to store */
    CHANGE_READ,  /* a record must be read before the decision */
    CHANGE_STORE, /* decided; a record must be written first */
};

struct change {
    struct store_session *session;
    const void *key;
    size_t key_length;
    uint64_t now;
    enum store_need need;
    store_modify_function *function;
    void *context;
    bool here; /* the function runs on this task only */
    /* The slot's bytes are in session->seen. */
    struct format_value slot;
    bool existed, expired;
    struct store_value old, new;
    enum store_verdict verdict;
    bool keep_bytes; /* STORE_PUT changes the expiry alone, of a record */
    enum change_next next;
    bool wrote;
    int status; /* of the decision: an error if the function gave an impossible value */
};

/* Takes session->seen apart. False if a record must be read. */
static bool change_look(struct change *change)
{
    const struct store_raw *seen = &change->session->seen;
    const struct format_value *slot = &change->slot;
    change->existed = change->expired = false;
    change->old = (struct store_value){0};
    change->slot = (struct format_value){0};
    change->next = CHANGE_READ;
    if (!seen->present)
        return true;
    if (!format_value_decode(seen->bytes, seen->length, &change->slot) ||
        (slot->record && (change->need == STORE_NEED_VALUE || slot->reference.expires)))
        return false;
    change->expired = store_expired(slot->expires, change->now);
    change->existed = !change->expired;
    change->old = (struct store_value){.bytes = change->need == STORE_NEED_VALUE ? slot->bytes : NULL,
                                       .length = slot->length,
                                       .expires = slot->expires};
    return true;
}

/* Lets the function decide on change->old, and checks and completes its decision. */
static void change_ask(struct change *change)
{
    struct store_value *new = &change->new;
    *new = (struct store_value){0};
    change->status = 0;
    change->keep_bytes = false;
    change->verdict = change->function(change->context, change->existed ? &change->old : NULL, new);
    if (change->verdict != STORE_PUT)
        return;
    if (!new->bytes && change->existed && change->need == STORE_NEED_LENGTH) {
        new->length = change->old.length;
        new->bytes = change->slot.bytes;
        change->keep_bytes = change->slot.record;
        if (new->expires == change->old.expires)
            change->verdict = STORE_KEEP;
    } else if (!new->bytes &&new->length) {
        change->status = BANYAN_EINVAL;
    } else if (new->length > STORE_VALUE_MAX) {
        change->status = BANYAN_EVALUESIZE;
    }
    if (change->status)
        change->verdict = STORE_KEEP;
}

/* Under the leaf's lock; on another thread, if that has the lock: the session is this task's, which waits. */
static enum tree_verdict change_decide(void *context, const void *old, size_t old_length, void *value,
                                       size_t *length)
{
    struct change *change = context;
    struct store_session *session = change->session;
    change->wrote = false;
    store_raw_set(&session->seen, old, old_length);
    if (!change_look(change))
        return TREE_KEEP;
    change_ask(change);
    change->next = CHANGE_DONE;
    if (change->verdict == STORE_PUT) {
        if (change->keep_bytes || !store_slot_fits(session->store, change->new.length, change->new.expires)) {
            change->next = CHANGE_STORE;
            return TREE_KEEP;
        }
        struct store_raw put;
        store_slot_inline(&put, &change->new);
        memcpy(value, put.bytes, put.length);
        *length = put.length;
        change->wrote = true;
        return TREE_PUT;
    }
    change->wrote = change->expired || (change->verdict == STORE_REMOVE && old);
    return change->wrote ? TREE_DELETE : TREE_KEEP;
}

/* 0, STORE_LOST (the slot has changed meanwhile) or an error. */
static int change_exchange(struct change *change, const struct store_raw *put, struct store_fresh *fresh,
                           bool head_only)
{
    struct store_session *session = change->session;
    struct store_exchange exchange = {.expected = &session->seen, .put = put, .fresh = fresh};
    int status = store_exchange_run(session, change->key, change->key_length, &exchange);
    if (!status && exchange.matched) {
        if (fresh && !head_only && !change->keep_bytes)
            store_cached_replace(session, change->key, change->key_length, &fresh->reference, &change->new,
                                 &session->seen);
        if (head_only && store_retires(session))
            store_record_free(session, change->key, change->key_length, &change->slot.reference, false);
        else if (!head_only)
            store_retire(session, change->key, change->key_length, &session->seen);
        return 0;
    }
    if (fresh)
        store_withdraw(session, change->key, change->key_length, status, &exchange, fresh, !head_only);
    return status ? status : STORE_LOST;
}

/* The same of a value in pieces: a new header names them. */
static int change_header(struct change *change)
{
    struct store_session *session = change->session;
    struct store_raw put;
    struct store_fresh fresh = {.travels = false};
    struct format_record record;
    int status =
        store_record_read_header(session, change->key, change->key_length, &change->slot.reference, &record);
    if (!status)
        status = store_record_write_header(session, change->key, change->key_length, record.pieces,
                                           change->new.expires, &fresh.reference);
    if (status)
        return status;
    store_slot_record(&put, &fresh.reference);
    return change_exchange(change, &put, &fresh, true);
}

/* Changes the expiry of a record, and nothing else. */
static int change_expiry(struct change *change)
{
    struct store_session *session = change->session;
    const struct format_reference *old = &change->slot.reference;
    struct store_value value;
    struct store_raw put;
    struct store_fresh fresh;
    assert(change->existed && change->slot.record);
    if (old->room)
        return change_header(change);
    int status = store_record_read(session, change->key, change->key_length, old, FORMAT_PART_VALUE,
                                   STORE_SINK_BUFFER, &value);
    if (status)
        return status;
    value.expires = change->new.expires;
    if (store_slot_fits(session->store, value.length, value.expires)) {
        store_slot_inline(&put, &value);
        return change_exchange(change, &put, NULL, false);
    }
    status = store_record_prepare(session, change->key, change->key_length, &value, &fresh);
    if (status)
        return status;
    store_slot_record(&put, &fresh.reference);
    return change_exchange(change, &put, &fresh, false);
}

static int change_store(struct change *change)
{
    struct store_session *session = change->session;
    struct store_raw put;
    struct store_fresh fresh;
    if (change->keep_bytes)
        return change_expiry(change);
    if (store_slot_fits(session->store, change->new.length, change->new.expires)) {
        store_slot_inline(&put, &change->new);
        return change_exchange(change, &put, NULL, false);
    }
    int status = store_key_check(session, change->key, change->key_length);
    if (!status)
        status = store_record_prepare(session, change->key, change->key_length, &change->new, &fresh);
    if (status)
        return status;
    store_slot_record(&put, &fresh.reference);
    return change_exchange(change, &put, &fresh, false);
}

/* Without the lock: reads the record and lets the function decide, if it has not; then stores the result. */
static int change_outside(struct change *change)
{
    struct store_session *session = change->session;
    assert(change->next != CHANGE_DONE && !change->wrote);
    if (change->next == CHANGE_READ) {
        assert(session->seen.present); /* else there was no record to read */
        int status = store_resolve(session, change->key, change->key_length, &session->seen, change->now,
                                   change->need == STORE_NEED_VALUE ? FORMAT_PART_VALUE : FORMAT_PART_HEADER,
                                   STORE_SINK_BUFFER, &change->old);
        if (status && status != BANYAN_ENOTFOUND)
            return status;
        change->expired = status == BANYAN_ENOTFOUND;
        change->existed = !change->expired;
        change_ask(change);
    } else {
        assert(change->verdict == STORE_PUT);
    }
    if (change->verdict == STORE_PUT)
        return change_store(change);
    if (change->expired) {
        store_expire(session, change->key, change->key_length, &session->seen);
        return 0;
    }
    return change->verdict == STORE_REMOVE && change->existed ? change_exchange(change, NULL, NULL, false)
                                                              : 0;
}

static int change_run(struct change *change)
{
    struct store_session *session = change->session;
    struct store_patience patience;
    patience.tries = 0;
    for (unsigned attempt = 0;; attempt++) {
        store_guard_begin(session, change->key, change->key_length);
        int status = (change->here ? tree_modify_here : tree_modify)(
            session->tree, session->store->tree, change->key, change->key_length, change_decide, change);
        store_guard_end(session);
        if (change->wrote)
            store_changed(session, change->key, change->key_length);
        if (status)
            return status;
        if (change->next == CHANGE_DONE) {
            if (change->wrote)
                store_retire(session, change->key, change->key_length, &session->seen);
            if (change->wrote && change->expired && change->verdict != STORE_PUT)
                store_count_up(session, expired, 1);
            return 0;
        }
        status = change_outside(change);
        if (status == STORE_STALE)
            status = store_patience(session, &patience, &session->seen);
        else if (status == STORE_LOST)
            store_back_off(session, attempt);
        else
            return status;
        if (status && status != STORE_LOST)
            return status;
    }
}

static int modify(struct change *change, struct store_value *old_value, bool *existed)
{
    struct store_session *session = change->session;
    change->now = store_begin(session);
    int status = change_run(change);
    if (!status && change->status == BANYAN_EVALUESIZE)
        status = store_length_check(session, change->new.length);
    else if (!status && change->status)
        status =
            pool_fail(tree_session_pool(session->tree), change->status, "the new value is a null pointer");
    if (status)
        return status;
    if (old_value)
        *old_value = change->existed ? change->old : (struct store_value){0};
    if (existed)
        *existed = change->existed;
    return 0;
}

int store_modify(struct store_session *session, const void *key, size_t key_length, enum store_need need,
                 store_modify_function *function, void *context, struct store_value *old_value, bool *existed)
{
    struct change change = {.session = session,
                            .key = key,
                            .key_length = key_length,
                            .need = need,
                            .function = function,
                            .context = context};
    return modify(&change, old_value, existed);
}

int store_modify_here(struct store_session *session, const void *key, size_t key_length, enum store_need need,
                      store_modify_function *function, void *context, struct store_value *old_value,
                      bool *existed)
{
    struct change change = {.session = session,
                            .key = key,
                            .key_length = key_length,
                            .need = need,
                            .function = function,
                            .context = context,
                            .here = true};
    return modify(&change, old_value, existed);
}
