/*
 * range.c - scans, counts and deletes of ranges, in batches: a cursor gives keys and slots, then their
 * records are read together. A key whose record is stale by then is looked up by itself; each entry of the
 * result is one that its key had at some time during the scan. Between batches the thread's other tasks get
 * their turn (on mapped memory nothing else would make this task wait), and the call may be cancelled.
 */
#include "store/cursor.h"
#include "store/put.h"
#include "store/read.h"

#include <assert.h>

struct scan {
    struct store_cursor cursor;
    store_visit_function *visit;
    void *context;
    uint64_t left; /* entries, of the limit */
    bool stopped;
};

/* Visits the batch's entries. */
static int scan_deliver(struct scan *scan)
{
    struct store_session *session = scan->cursor.session;
    struct store_batch *batch = session->batch;
    enum format_part part = scan->cursor.part;
    store_batch_resolve(session, scan->cursor.now, part);
    for (uint32_t i = 0; i < batch->count && !scan->stopped; i++) {
        struct store_entry *entry = &batch->entries[i];
        int status = entry->status;
        if (status == STORE_STALE)
            status = store_fetch(session, entry->key, entry->key_length, scan->cursor.now, part,
                                 STORE_SINK_BUFFER, &entry->value);
        if (status == BANYAN_ENOTFOUND)
            continue;
        if (status)
            return status;
        assert(scan->left);
        scan->left--;
        scan->stopped =
            !scan->visit(scan->context, entry->key, entry->key_length, &entry->value) || !scan->left;
    }
    return 0;
}

/* Few at first, since many scans end early; later not too few for a small limit, since entries may have
 * expired. */
static uint32_t scan_room(const struct scan *scan, unsigned round)
{
    uint32_t room = round ? STORE_BATCH_ENTRIES : 64;
    if (scan->left >= room)
        return room;
    return round && scan->left < 16 ? 16 : (uint32_t)scan->left;
}

int store_scan(struct store_session *session, const struct tree_range *range, unsigned flags,
               store_visit_function *visit, void *context)
{
    struct scan scan = {.cursor = {.session = session,
                                   .range = *range,
                                   .part = flags & STORE_SCAN_VALUES ? FORMAT_PART_VALUE : FORMAT_PART_HEADER,
                                   .now = store_begin(session)},
                        .visit = visit,
                        .context = context,
                        .left = range->limit ? range->limit : UINT64_MAX};
    int status = 0;
    for (unsigned round = 0; !status && !scan.cursor.done && !scan.stopped; round++) {
        status = store_turn(session, round);
        if (!status)
            status = store_cursor_next(&scan.cursor, scan_room(&scan, round));
        if (!status)
            status = scan_deliver(&scan);
    }
    return status;
}

int store_count(struct store_session *session, const struct tree_range *range, uint64_t *count)
{
    struct store_cursor cursor = {.session = session,
                                  .range = *range,
                                  .part = FORMAT_PART_HEADER,
                                  .count_only = true,
                                  .now = store_begin(session)};
    int status = 0;
    for (unsigned round = 0; !status && !cursor.done && (!range->limit || cursor.counted < range->limit);
         round++) {
        status = store_turn(session, round);
        if (!status)
            status = store_cursor_next(&cursor, STORE_BATCH_ENTRIES);
        if (status)
            break;
        store_batch_resolve(session, cursor.now, cursor.part);
        for (uint32_t i = 0; i < session->batch->count && !status; i++) {
            struct store_entry *entry = &session->batch->entries[i];
            if (entry->status == STORE_STALE)
                entry->status = store_fetch(session, entry->key, entry->key_length, cursor.now, cursor.part,
                                            STORE_SINK_BUFFER, &entry->value);
            cursor.counted += !entry->status;
            status = entry->status == BANYAN_ENOTFOUND ? 0 : entry->status;
        }
    }
    *count = range->limit && cursor.counted > range->limit ? range->limit : cursor.counted;
    return status;
}

int store_delete_range(struct store_session *session, const struct tree_range *range, uint64_t *count)
{
    struct store_cursor cursor = {
        .session = session, .range = *range, .part = FORMAT_PART_HEADER, .now = store_begin(session)};
    uint64_t left = range->limit ? range->limit : UINT64_MAX;
    int status = 0;
    *count = 0;
    for (unsigned round = 0; !status && !cursor.done && left; round++) {
        status = store_turn(session, round);
        if (!status)
            status =
                store_cursor_next(&cursor, left < STORE_BATCH_ENTRIES ? (uint32_t)left : STORE_BATCH_ENTRIES);
        for (uint32_t i = 0; !status && i < session->batch->count; i++) {
            const struct store_entry *entry = &session->batch->entries[i];
            status = store_delete_now(session, entry->key, entry->key_length, cursor.now);
            *count += !status;
            assert(left);
            left -= !status;
            if (status == BANYAN_ENOTFOUND)
                status = 0;
        }
    }
    return status;
}
