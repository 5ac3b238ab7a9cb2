/*
 * modify.c - writes. A short value goes in with one tree_modify, whose callback decides under the leaf's
 * lock. A longer one goes to a record first, which nobody knows yet; then tree_modify puts the reference into
 * the slot: always (put), or only if the slot still holds what the decision was based on. Whoever takes a
 * reference out of a slot, and nobody else, frees its record.
 *
 * When the outcome is unknown nothing is freed: neither the old record nor the new one may be freed then.
 */
#include "store/state.h"

#include <stdlib.h>

/* ---- one exchange of a slot ---- */

struct exchange {
    const struct store_raw *expected; /* NULL: whatever it is */
    const struct store_raw *put;      /* NULL: delete */
    struct store_raw *seen;           /* what the slot held */
    bool matched, wrote;
};

static enum tree_verdict exchange_change(void *context, const void *old, size_t old_length, void *value,
                                         size_t *length)
{
    struct exchange *exchange = context;
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

static int exchange_run(struct store_session *session, const void *key, size_t key_length,
                        struct exchange *exchange)
{
    return tree_modify(session->tree, session->store->tree, key, key_length, exchange_change, exchange);
}

/* The slot holds something else now: what it held is ours to free. */
static void retire(struct store_session *session, const void *key, size_t key_length,
                   const struct store_raw *raw)
{
    struct store_slot slot;
    if (raw->present && store_slot_decode(raw->bytes, raw->length, &slot) && slot.record)
        store_record_free(session, key, key_length, &slot.reference, true);
}

/* After a failure: the new record is nobody's, unless the exchange may have taken effect. */
static void withdraw(struct store_session *session, const void *key, size_t key_length, int status,
                     const struct exchange *exchange, const struct store_reference *reference, bool extents)
{
    if (status != BANYAN_EUNKNOWN || !exchange->wrote)
        store_record_free(session, key, key_length, reference, extents);
}

int store_remove_exactly(struct store_session *session, const void *key, size_t key_length,
                         const struct store_raw *raw, bool *removed)
{
    struct exchange exchange = {.expected = raw};
    int status = exchange_run(session, key, key_length, &exchange);
    *removed = !status && exchange.wrote;
    if (*removed)
        retire(session, key, key_length, raw);
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

/* ---- put and delete ---- */

static int put_now(struct store_session *session, const void *key, size_t key_length,
                   const struct store_value *value)
{
    struct store_raw put;
    struct store_reference reference;
    struct exchange exchange = {.put = &put, .seen = &session->seen};
    bool record = !store_slot_fits(session->store, value->length, value->expires);
    int status = value->bytes || !value->length
                     ? store_length_check(session, value->length)
                     : tree_session_fail(session->tree, BANYAN_EINVAL, "the value is a null pointer");
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
    status = exchange_run(session, key, key_length, &exchange);
    if (!status)
        retire(session, key, key_length, &session->seen);
    else if (record)
        withdraw(session, key, key_length, status, &exchange, &reference, true);
    return status;
}

int store_put(struct store_session *session, const void *key, size_t key_length, const void *bytes,
              size_t length, uint64_t expires)
{
    store_begin(session);
    return put_now(session, key, key_length,
                   &(struct store_value){.bytes = bytes, .length = length, .expires = expires});
}

/* ---- many puts ---- */

/* Records written together. */
#define PUTS_BYTES ((size_t)1 << 20)

struct store_puts {
    uint32_t count, records;
    size_t bytes;
    struct store_item *items[STORE_PUTS_MAX];
    int record[STORE_PUTS_MAX]; /* number of its record; -1: inline */
    struct store_new_record written[STORE_PUTS_MAX];
    struct tree_item slots[STORE_PUTS_MAX];
    struct store_raw new[STORE_PUTS_MAX];
    struct store_raw old[STORE_PUTS_MAX];
};

/* What can be said of an item before anything is done. */
static int puts_check(struct store_session *session, const struct store_item *item)
{
    if (!item->value.bytes && item->value.length)
        return tree_session_fail(session->tree, BANYAN_EINVAL, "the value is a null pointer");
    int status = store_length_check(session, item->value.length);
    return status ? status : store_key_check(session, item->key, item->key_length);
}

/* Whether the item can go with the others; those with extents are many writes by themselves. */
static bool puts_add(struct store_session *session, struct store_puts *puts, struct store_item *item)
{
    const struct store_value *value = &item->value;
    uint32_t number = puts->count, bytes = 0;
    bool record = !store_slot_fits(session->store, value->length, value->expires);
    if (record) {
        if (store_record_extents(item->key_length, value->length))
            return false;
        bytes = store_record_block_bytes(item->key_length, value->length);
    }
    if (number == STORE_PUTS_MAX || (puts->bytes && puts->bytes + bytes > PUTS_BYTES))
        return false;
    puts->items[number] = item;
    puts->record[number] = -1;
    if (record) {
        puts->bytes += bytes;
        puts->record[number] = (int)puts->records;
        puts->written[puts->records++] =
            (struct store_new_record){.key = item->key, .key_length = item->key_length, .value = value};
    } else {
        store_slot_inline(&puts->new[number], value);
    }
    puts->count++;
    return true;
}

/* The references of the records that are written go to their slots; the items of the others have failed. */
static void puts_refer(struct store_puts *puts)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < puts->count; i++) {
        const struct store_new_record *record = puts->record[i] >= 0 ? &puts->written[puts->record[i]] : NULL;
        puts->items[i]->status = record ? record->status : 0;
        if (puts->items[i]->status)
            continue;
        if (kept != i) {
            puts->items[kept] = puts->items[i];
            puts->record[kept] = puts->record[i];
            if (!record)
                puts->new[kept] = puts->new[i];
        }
        if (record)
            store_slot_record(&puts->new[kept], &record->reference);
        kept++;
    }
    puts->count = kept;
}

/* What is known of an item's slot by now decides whose its records are. */
static void puts_finish(struct store_session *session, struct store_puts *puts, uint32_t number)
{
    struct store_item *item = puts->items[number];
    const struct tree_item *slot = &puts->slots[number];
    struct store_raw *old = &puts->old[number];
    item->status = slot->status;
    if (!item->status) {
        old->present = slot->existed;
        old->length = (uint8_t)slot->old_length;
        retire(session, item->key, item->key_length, old);
    } else if (puts->record[number] >= 0 && item->status != BANYAN_EUNKNOWN) {
        store_record_free(session, item->key, item->key_length,
                          &puts->written[puts->record[number]].reference, true);
    }
}

/* Does what has been gathered: the records in one round trip, the slots in two. */
static void puts_flush(struct store_session *session, struct store_puts *puts)
{
    if (puts->records)
        store_record_write_many(session, puts->written, puts->records);
    puts_refer(puts);
    for (uint32_t i = 0; i < puts->count; i++)
        puts->slots[i] = (struct tree_item){.key = puts->items[i]->key,
                                            .key_length = puts->items[i]->key_length,
                                            .value = puts->new[i].bytes,
                                            .length = puts->new[i].length,
                                            .old = puts->old[i].bytes};
    if (puts->count)
        tree_multi_put(session->tree, session->store->tree, puts->slots, puts->count);
    for (uint32_t i = 0; i < puts->count; i++)
        puts_finish(session, puts, i);
    puts->count = puts->records = 0;
    puts->bytes = 0;
}

/* In the items' order as far as their keys are the same. */
static void puts_run(struct store_session *session, struct store_puts *puts, struct store_item *items,
                     size_t count)
{
    puts->count = puts->records = 0;
    puts->bytes = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].status = puts_check(session, &items[i]);
        if (items[i].status || puts_add(session, puts, &items[i]))
            continue;
        puts_flush(session, puts);
        if (!puts_add(session, puts, &items[i]))
            items[i].status = put_now(session, items[i].key, items[i].key_length, &items[i].value);
    }
    puts_flush(session, puts);
}

int store_multi_put(struct store_session *session, struct store_item *items, size_t count)
{
    int status = 0;
    store_begin(session);
    session->puts_used = true;
    if (!session->puts) /* kept: a task may end in the middle of a call */
        session->puts = malloc(sizeof *session->puts);
    if (session->puts)
        puts_run(session, session->puts, items, count);
    for (size_t i = 0; i < count; i++) {
        if (!session->puts)
            items[i].status = put_now(session, items[i].key, items[i].key_length, &items[i].value);
        if (!status)
            status = items[i].status;
    }
    return status;
}

/* Whether what the slot held had expired stands, for some records, in their heads: they are ours by now. */
static bool seen_expired(struct store_session *session, const void *key, size_t key_length, uint64_t now)
{
    struct store_slot slot;
    struct store_value value;
    const struct store_raw *raw = &session->seen;
    if (!store_slot_decode(raw->bytes, raw->length, &slot))
        return false;
    if (slot.record && slot.reference.expires &&
        !store_record_read(session, key, key_length, &slot.reference, STORE_PART_HEAD, STORE_SINK_BUFFER,
                           &value))
        slot.expires = value.expires;
    return store_expired(slot.expires, now);
}

int store_delete_now(struct store_session *session, const void *key, size_t key_length, uint64_t now)
{
    struct exchange exchange = {.seen = &session->seen};
    int status = exchange_run(session, key, key_length, &exchange);
    if (status)
        return status;
    if (!exchange.wrote)
        return BANYAN_ENOTFOUND;
    bool expired = seen_expired(session, key, key_length, now);
    retire(session, key, key_length, &session->seen);
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

/* ---- modify ---- */

/* Somebody else has changed the slot since the decision: decide again. */
#define CHANGE_LOST 2

enum change_next {
    CHANGE_DONE,  /* it has been decided and, as far as this was to be done under the lock, done */
    CHANGE_READ,  /* the function wants to see what stands in a record */
    CHANGE_STORE, /* it has decided, but a record has to be written first */
};

struct change {
    struct store_session *session;
    const void *key;
    size_t key_length;
    uint64_t now;
    enum store_need need;
    store_modify_function *function;
    void *context;
    /* What the slot holds is session->seen. */
    struct store_slot slot;
    bool existed, expired;
    struct store_value old, new;
    enum store_verdict verdict;
    bool keep_bytes; /* STORE_PUT changes the expiry alone, of a record */
    enum change_next next;
    bool wrote;
    int status; /* of the decision: the function asked for what cannot be */
};

/* Judges session->seen as far as can be without reading a record. */
static bool change_look(struct change *change)
{
    const struct store_raw *seen = &change->session->seen;
    const struct store_slot *slot = &change->slot;
    change->existed = change->expired = false;
    change->old = (struct store_value){0};
    change->slot = (struct store_slot){0};
    change->next = CHANGE_READ;
    if (!seen->present)
        return true;
    if (!store_slot_decode(seen->bytes, seen->length, &change->slot) ||
        (slot->record && (change->need == STORE_NEED_VALUE || slot->reference.expires)))
        return false;
    change->expired = store_expired(slot->expires, change->now);
    change->existed = !change->expired;
    change->old = (struct store_value){.bytes = change->need == STORE_NEED_VALUE ? slot->bytes : NULL,
                                       .length = slot->length,
                                       .expires = slot->expires};
    return true;
}

/* Lets the function decide about change->old, and makes plain what it wants. */
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

/* Under the leaf's lock. */
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

/* 0, CHANGE_LOST (the slot has changed meanwhile) or an error. */
static int change_exchange(struct change *change, const struct store_raw *put,
                           const struct store_reference *reference, bool head_only)
{
    struct store_session *session = change->session;
    struct exchange exchange = {.expected = &session->seen, .put = put};
    int status = exchange_run(session, change->key, change->key_length, &exchange);
    if (!status && exchange.matched) {
        if (head_only)
            store_record_free(session, change->key, change->key_length, &change->slot.reference, false);
        else
            retire(session, change->key, change->key_length, &session->seen);
        return 0;
    }
    if (reference)
        withdraw(session, change->key, change->key_length, status, &exchange, reference, !head_only);
    return status ? status : CHANGE_LOST;
}

/* The expiry of a record changes, and nothing else. */
static int change_expiry(struct change *change)
{
    struct store_session *session = change->session;
    const struct store_reference *old = &change->slot.reference;
    bool large = store_record_extents(change->key_length, old->length);
    struct store_value value;
    struct store_raw put;
    struct store_reference reference;
    int status = store_record_read(session, change->key, change->key_length, old,
                                   large ? STORE_PART_HEAD : STORE_PART_VALUE, STORE_SINK_BUFFER, &value);
    if (status)
        return status;
    if (large) {
        status = store_record_write_head(session, change->key, change->key_length, old->length,
                                         change->new.expires, &reference);
    } else {
        value.expires = change->new.expires;
        if (store_slot_fits(session->store, value.length, value.expires)) {
            store_slot_inline(&put, &value);
            return change_exchange(change, &put, NULL, false);
        }
        status = store_record_write(session, change->key, change->key_length, &value, &reference);
    }
    if (status)
        return status;
    store_slot_record(&put, &reference);
    return change_exchange(change, &put, &reference, large);
}

static int change_store(struct change *change)
{
    struct store_session *session = change->session;
    struct store_raw put;
    struct store_reference reference;
    if (change->keep_bytes)
        return change_expiry(change);
    if (store_slot_fits(session->store, change->new.length, change->new.expires)) {
        store_slot_inline(&put, &change->new);
        return change_exchange(change, &put, NULL, false);
    }
    int status = store_key_check(session, change->key, change->key_length);
    if (!status)
        status = store_record_write(session, change->key, change->key_length, &change->new, &reference);
    if (status)
        return status;
    store_slot_record(&put, &reference);
    return change_exchange(change, &put, &reference, false);
}

/* Without the lock: reads what the function wants to see, lets it decide if it has not, and stores. */
static int change_outside(struct change *change)
{
    struct store_session *session = change->session;
    if (change->next == CHANGE_READ) {
        int status = store_resolve(session, change->key, change->key_length, &session->seen, change->now,
                                   change->need == STORE_NEED_VALUE ? STORE_PART_VALUE : STORE_PART_HEAD,
                                   STORE_SINK_BUFFER, &change->old);
        if (status && status != BANYAN_ENOTFOUND)
            return status;
        change->expired = status == BANYAN_ENOTFOUND;
        change->existed = !change->expired;
        change_ask(change);
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

/* Others are at work on this key: the more often we lost, the longer they get. */
static int back_off(struct store_session *session, unsigned attempt)
{
    if (attempt < 3)
        task_yield();
    else
        task_sleep(1000 + random_below(&session->random, UINT64_C(1000) << (attempt < 10 ? attempt : 10)));
    return 0;
}

static int change_run(struct change *change)
{
    struct store_session *session = change->session;
    struct store_patience patience;
    patience.tries = 0;
    for (unsigned attempt = 0;; attempt++) {
        int status = tree_modify(session->tree, session->store->tree, change->key, change->key_length,
                                 change_decide, change);
        if (status)
            return status;
        if (change->next == CHANGE_DONE) {
            if (change->wrote)
                retire(session, change->key, change->key_length, &session->seen);
            if (change->wrote && change->expired && change->verdict != STORE_PUT)
                store_count_up(session, expired, 1);
            return 0;
        }
        status = change_outside(change);
        if (status == STORE_STALE)
            status = store_patience(session, &patience, &session->seen);
        else if (status == CHANGE_LOST)
            status = back_off(session, attempt);
        else
            return status;
        if (status)
            return status;
    }
}

int store_modify(struct store_session *session, const void *key, size_t key_length, enum store_need need,
                 store_modify_function *function, void *context, struct store_value *old_value, bool *existed)
{
    struct change change = {.session = session,
                            .key = key,
                            .key_length = key_length,
                            .now = store_begin(session),
                            .need = need,
                            .function = function,
                            .context = context};
    int status = change_run(&change);
    if (!status && change.status == BANYAN_EVALUESIZE)
        status = store_length_check(session, change.new.length);
    else if (!status && change.status)
        status = tree_session_fail(session->tree, change.status, "the new value is a null pointer");
    if (status)
        return status;
    if (old_value)
        *old_value = change.existed ? change.old : (struct store_value){0};
    if (existed)
        *existed = change.existed;
    return 0;
}
