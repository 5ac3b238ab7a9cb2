/*
 * cursor.c - See cursor.h. A batch costs the index's scan; keys and slots are copied.
 */
#include "store/cursor.h"

#include <assert.h>

/* Entries of a batch that are only counted. */
#define COUNT_BATCH 32768u

static bool cursor_collect(struct store_cursor *cursor, const void *key, size_t key_length, const void *raw,
                           size_t raw_length)
{
    struct store_batch *batch = cursor->session->batch;
    struct store_entry *entry = &batch->entries[batch->count];
    assert(batch->count < STORE_BATCH_ENTRIES);
    uint8_t *copy = store_arena_take(cursor->session, key_length + raw_length);
    if (!copy) {
        cursor->status = store_fail_memory(cursor->session);
        return false;
    }
    memcpy(copy, key, key_length);
    memcpy(copy + key_length, raw, raw_length);
    *entry = (struct store_entry){.key = copy,
                                  .key_length = key_length,
                                  .raw = copy + key_length,
                                  .raw_length = raw_length,
                                  .key_block = tree_scan_key_block(cursor->session->tree)};
    batch->count++;
    return batch->count < STORE_BATCH_ENTRIES;
}

/* Counts the entry unless its record must be read for that. */
static bool cursor_counts(struct store_cursor *cursor, const struct format_value *slot)
{
    if (slot->record && slot->reference.expires)
        return false;
    cursor->counted += !store_expired(slot->expires, cursor->now);
    return true;
}

static bool cursor_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct store_cursor *cursor = context;
    struct format_value slot;
    bool good = format_value_decode(value, length, &slot);
    memcpy(cursor->last, key, key_length);
    cursor->last_length = key_length;
    cursor->met++;
    if (cursor->count_only && good && cursor_counts(cursor, &slot)) {
        cursor->stopped = cursor->met >= COUNT_BATCH;
        return !cursor->stopped;
    }
    if (cursor->part == FORMAT_PART_VALUE && good && slot.record && !slot.reference.room)
        cursor->bytes += slot.length;
    cursor->stopped =
        !cursor_collect(cursor, key, key_length, value, length) || cursor->bytes >= STORE_BATCH_BYTES;
    return !cursor->stopped;
}

int store_cursor_next(struct store_cursor *cursor, uint32_t room)
{
    struct store_session *session = cursor->session;
    struct tree_range range = cursor->range;
    assert(!cursor->done && room && room <= STORE_BATCH_ENTRIES);
    range.limit = cursor->count_only ? 0 : room;
    store_arena_reset(session);
    if (!store_batch_get(session))
        return store_fail_memory(session);
    cursor->met = 0;
    cursor->bytes = 0;
    cursor->stopped = false;
    cursor->status = 0;
    int status = tree_scan(session->tree, session->store->tree, &range, cursor_visit, cursor);
    if (status || cursor->status)
        return status ? status : cursor->status;
    cursor->done = !cursor->stopped && (cursor->count_only || cursor->met < room);
    if (cursor->done)
        return 0;
    assert(cursor->met); /* so the next batch begins further on */
    memcpy(cursor->bound, cursor->last,
           cursor->last_length); /* the next scan changes `last` while it still needs its bound */
    if (cursor->range.reverse) {
        cursor->range.to = cursor->bound;
        cursor->range.to_length = cursor->last_length;
        cursor->range.to_open = true;
    } else {
        cursor->range.from = cursor->bound;
        cursor->range.from_length = cursor->last_length;
        cursor->range.from_open = true;
    }
    return 0;
}
