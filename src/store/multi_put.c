/*
 * multi_put.c - puts of many keys: their records are written together, then their slots; in logged ranges
 * both go out together.
 */
#include "store/cached.h"
#include "store/exchange.h"
#include "store/guard.h"
#include "store/put.h"

#include <assert.h>
#include <stdlib.h>

/* Bytes of records that are written together. */
#define PUTS_BYTES ((size_t)1 << 20)

struct store_puts {
    uint32_t count, records;
    size_t bytes;
    struct store_item *items[STORE_PUTS_MAX];
    int record[STORE_PUTS_MAX]; /* number in `written`; -1: inline */
    struct store_new_record written[STORE_PUTS_MAX];
    struct tree_item slots[STORE_PUTS_MAX];
    struct store_raw new[STORE_PUTS_MAX];
    struct store_raw old[STORE_PUTS_MAX];
    bool told[STORE_PUTS_MAX]; /* under the leaf's latch */
};

/* Checks an item's arguments. */
static int puts_check(struct store_session *session, const struct store_item *item)
{
    if (!item->value.bytes && item->value.length)
        return pool_fail(tree_session_pool(session->tree), BANYAN_EINVAL, "the value is a null pointer");
    int status = store_length_check(session, item->value.length);
    return status ? status : store_key_check(session, item->key, item->key_length);
}

/* Adds the item to the group if there is room. False for a long value too: that is many writes. */
static bool puts_add(struct store_session *session, struct store_puts *puts, struct store_item *item)
{
    const struct store_value *value = &item->value;
    uint32_t number = puts->count, bytes = 0;
    bool record = !store_slot_fits(session->store, value->length, value->expires);
    if (record) {
        if (format_record_long(item->key_length, value->length))
            return false;
        bytes = format_record_whole_bytes(item->key_length, value->length);
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

static void puts_placed(void *context, struct tree_item *item)
{
    struct store_session *session = context;
    struct store_puts *puts = session->puts;
    const ptrdiff_t number = item - puts->slots;
    puts->told[number] = session->changed_placed(session->changed_context, item->key, item->key_length,
                                                 &puts->items[number]->value);
}

/* The status of an item's slot decides which of its records, the old or the new one, is freed (S3, S6). */
static void puts_finish(struct store_session *session, struct store_puts *puts, uint32_t number)
{
    struct store_item *item = puts->items[number];
    const struct tree_item *slot = &puts->slots[number];
    struct store_raw *old = &puts->old[number];
    struct store_fresh *fresh = puts->record[number] >= 0 ? &puts->written[puts->record[number]].fresh : NULL;
    item->status = slot->status;
    if (!puts->told[number] &&
        (!item->status || item->status == BANYAN_EUNKNOWN)) /* nothing else changes it */
        store_changed(session, item->key, item->key_length);
    if (fresh)
        store_fresh_written(session, fresh, slot->ahead_done);
    if (!item->status) {
        old->present = slot->existed;
        old->length = (uint8_t)slot->old_length;
        if (fresh)
            store_cached_replace(session, item->key, item->key_length, &fresh->reference, &item->value, old);
        store_discard(session, item->key, item->key_length, old);
    } else if (fresh && item->status != BANYAN_EUNKNOWN) {
        store_fresh_free(session, item->key, item->key_length, fresh, item->status);
    }
}

/* One by one: some record has found no block of its size, or there is no memory for all. */
static void puts_alone(struct store_session *session, struct store_puts *puts)
{
    for (uint32_t i = 0; i < puts->count; i++) {
        struct store_item *item = puts->items[i];
        item->status = store_put_now(session, item->key, item->key_length, &item->value);
    }
}

static void puts_together(struct store_session *session, struct store_puts *puts)
{
    for (uint32_t i = 0; i < puts->count; i++) {
        const struct store_fresh *fresh = puts->record[i] >= 0 ? &puts->written[puts->record[i]].fresh : NULL;
        if (fresh)
            store_slot_record(&puts->new[i], &fresh->reference);
        puts->slots[i] = (struct tree_item){.key = puts->items[i]->key,
                                            .key_length = puts->items[i]->key_length,
                                            .value = puts->new[i].bytes,
                                            .length = puts->new[i].length,
                                            .old = puts->old[i].bytes,
                                            .ahead = fresh && fresh->travels ? &fresh->ahead : NULL,
                                            .placed = session->changed_placed ? puts_placed : NULL,
                                            .placed_context = session};
        puts->told[i] = false;
    }
    if (puts->count) {
        store_guard_begin_many(session, puts->slots, puts->count);
        tree_multi_put(session->tree, session->store->tree, puts->slots, puts->count);
        store_guard_end_many(session);
    }
    for (uint32_t i = 0; i < puts->count; i++)
        puts_finish(session, puts, i);
}

/* Writes the group: the records in one round trip, the slots in two; in logged ranges all of it in one. */
static void puts_flush(struct store_session *session, struct store_puts *puts)
{
    if (puts->records && store_record_prepare_many(session, puts->written, puts->records))
        puts_alone(session, puts);
    else
        puts_together(session, puts);
    puts->count = puts->records = 0;
    puts->bytes = 0;
}

/* Items of the same key are put in their order. */
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
        if (puts_add(session, puts, &items[i]))
            continue;
        assert(format_record_long(items[i].key_length, items[i].value.length));
        items[i].status = store_put_now(session, items[i].key, items[i].key_length, &items[i].value);
    }
    puts_flush(session, puts);
}

int store_multi_put(struct store_session *session, struct store_item *items, size_t count)
{
    int status = 0;
    store_begin_untimed(session);
    session->puts_used = true;
    if (!session->puts) /* the session owns it: a simulated task may end within the call */
        session->puts = malloc(sizeof *session->puts);
    if (session->puts)
        puts_run(session, session->puts, items, count);
    for (size_t i = 0; i < count; i++) {
        if (!session->puts)
            items[i].status = store_put_now(session, items[i].key, items[i].key_length, &items[i].value);
        if (!status)
            status = items[i].status;
    }
    return status;
}
