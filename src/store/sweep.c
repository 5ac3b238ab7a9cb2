/*
 * sweep.c - removes expired entries that no call meets. A step costs the scan of its entries, one round trip
 * for the headers of those records that expire, and two round trips for each entry removed.
 */
#include "store/cursor.h"
#include "store/exchange.h"
#include "store/read.h"

static int sweep_entry(struct store_session *session, struct store_entry *entry, uint64_t now,
                       uint64_t *removed)
{
    struct store_value value;
    if (entry->status == BANYAN_ENOTFOUND) {
        struct store_raw raw;
        store_raw_set(&raw, entry->raw, entry->raw_length);
        *removed += store_expire(session, entry->key, entry->key_length, &raw);
        return 0;
    }
    if (entry->status != STORE_STALE)
        return entry->status;
    int status = store_fetch(session, entry->key, entry->key_length, now, FORMAT_PART_HEADER,
                             STORE_SINK_BUFFER, &value);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

static void sweep_finish(struct store_sweep *sweep)
{
    sweep->last_pass_keys = sweep->seen;
    sweep->last_pass_removed = sweep->removed;
    sweep->seen = sweep->removed = 0;
    sweep->cursor_length = 0;
    sweep->passes++;
}

int store_sweep_step(struct store_session *session, struct store_sweep *sweep, uint32_t entries)
{
    struct store_cursor cursor = {
        .session = session, .part = FORMAT_PART_HEADER, .now = store_begin(session)};
    if (sweep->cursor_length)
        cursor.range = (struct tree_range){
            .from = sweep->cursor, .from_length = sweep->cursor_length, .from_open = true};
    int status = 0;
    while (entries && !status && !cursor.done) {
        uint32_t room = entries < STORE_BATCH_ENTRIES ? entries : STORE_BATCH_ENTRIES;
        status = store_cursor_next(&cursor, room);
        if (status)
            break;
        store_batch_resolve(session, cursor.now, cursor.part);
        for (uint32_t i = 0; i < session->batch->count; i++) {
            int one = sweep_entry(session, &session->batch->entries[i], cursor.now, &sweep->removed);
            status = status ? status : one; /* the entries behind a damaged record are still swept */
        }
        sweep->seen += cursor.met;
        entries -= room;
        if (cursor.met) {
            memcpy(sweep->cursor, cursor.last, cursor.last_length);
            sweep->cursor_length = cursor.last_length;
        }
    }
    if (cursor.done)
        sweep_finish(sweep);
    return status;
}
