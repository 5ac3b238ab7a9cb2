/*
 * check.c - walks a store while nobody else writes: the index first, then every record, whose blocks are
 * counted. Costs a read of everything. BANYAN_ECORRUPT names the first record at fault.
 */
#include "store/state.h"

struct check {
    struct store_session *session;
    struct store_check_report *report;
    void (*visit)(void *context, gaddr block, uint32_t bytes);
    void *context;
};

static void check_block(struct check *check, gaddr block, uint32_t bytes)
{
    uint32_t block_bytes = memory_block_bytes(bytes);
    check->report->record_blocks++;
    check->report->record_bytes += block_bytes;
    if (check->visit)
        check->visit(check->context, block, block_bytes);
}

static int check_record(struct check *check, const struct store_entry *entry, const struct store_slot *slot,
                        struct store_value *value)
{
    struct store_session *session = check->session;
    const struct store_reference *reference = &slot->reference;
    char text[GADDR_TEXT_BYTES];
    int status = store_record_read(session, entry->key, entry->key_length, reference, STORE_PART_VALUE,
                                   STORE_SINK_BUFFER, value);
    if (status == STORE_STALE)
        return tree_session_fail(
            session->tree, BANYAN_ECORRUPT,
            "record %s: it is not the one that the index names, or one of its extents is "
            "damaged",
            gaddr_format(reference->address, text));
    if (status)
        return status;
    check->report->values_record++;
    check_block(check, reference->address, store_record_block_bytes(entry->key_length, slot->length));
    for (uint32_t i = 0; i < store_record_extents(entry->key_length, slot->length); i++)
        check_block(check, store_record_extent(session, entry->key_length, i),
                    store_record_extent_bytes(slot->length, i));
    return 0;
}

static int check_entry(struct check *check, const struct store_entry *entry, uint64_t now)
{
    struct store_slot slot;
    struct store_value value;
    int status = 0;
    if (!store_slot_decode(entry->raw, entry->raw_length, &slot))
        return tree_session_fail(check->session->tree, BANYAN_ECORRUPT,
                                 "key '%.*s': a slot of %zu bytes (kind %u) is none that a store has written",
                                 (int)(entry->key_length < 40 ? entry->key_length : 40),
                                 (const char *)entry->key, entry->raw_length,
                                 entry->raw_length ? entry->raw[0] : 0);
    if (slot.record)
        status = check_record(check, entry, &slot, &value);
    else
        check->report->values_inline++;
    if (!status)
        check->report->expired += store_expired(slot.record ? value.expires : slot.expires, now);
    return status;
}

int store_check(struct store_session *session, struct store_check_report *report,
                void (*visit_block)(void *context, gaddr block, uint32_t bytes), void *context)
{
    struct check check = {.session = session, .report = report, .visit = visit_block, .context = context};
    struct store_cursor cursor = {.session = session, .part = STORE_PART_HEAD, .now = store_begin(session)};
    *report = (struct store_check_report){0};
    int status = tree_check(session->tree, session->store->tree, &report->tree, visit_block, context);
    while (!status && !cursor.done) {
        status = store_cursor_next(&cursor, STORE_BATCH_ENTRIES);
        for (uint32_t i = 0; !status && i < session->batch->count; i++)
            status = check_entry(&check, &session->batch->entries[i], cursor.now);
    }
    return status;
}
