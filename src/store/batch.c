/*
 * batch.c - See batch.h.
 */
#include "store/batch.h"
#include "store/cached.h"

#include <assert.h>
#include <stdlib.h>

struct store_batch *store_batch_get(struct store_session *session)
{
    if (!session->batch) /* the session owns it: a simulated task may end within the call */
        session->batch = malloc(sizeof *session->batch);
    session->batch_used = true;
    if (session->batch)
        session->batch->count = session->batch->posted = 0;
    return session->batch;
}

static void entry_judge(struct store_session *session, struct store_entry *entry,
                        const struct fabric_command *read, int status, uint64_t now, enum format_part part)
{
    entry->status = STORE_STALE; /* a fetch by itself returns its error */
    if (status || !store_record_validate(&entry->slot.reference, entry->key, entry->key_length, part,
                                         read->read.buffer, &entry->value)) {
        store_count_up(session, record_retries, 1);
        return;
    }
    entry->status = store_expired(entry->value.expires, now) ? BANYAN_ENOTFOUND : 0;
}

static void batch_flush(struct store_session *session, uint64_t now, enum format_part part)
{
    struct store_batch *batch = session->batch;
    if (!batch->posted)
        return;
    assert(batch->posted <= STORE_TRANSFER_MAX);
    store_transfer(session, batch->commands, batch->posted, batch->statuses);
    for (uint32_t i = 0; i < batch->posted; i++)
        entry_judge(session, &batch->entries[batch->owners[i]], &batch->commands[i], batch->statuses[i], now,
                    part);
    batch->posted = 0;
}

/* True if the entry needs a read; fills it in. */
static bool entry_prepare(struct store_session *session, struct store_entry *entry, uint64_t now,
                          enum format_part part, struct fabric_command *read)
{
    if (!format_value_decode(entry->raw, entry->raw_length, &entry->slot)) {
        entry->status = STORE_STALE;
        return false;
    }
    const struct format_value *slot = &entry->slot;
    entry->value = (struct store_value){.length = slot->length, .expires = slot->expires};
    if (!slot->record) {
        entry->value.bytes = part == FORMAT_PART_VALUE ? slot->bytes : NULL;
        entry->status = store_expired(slot->expires, now) ? BANYAN_ENOTFOUND : 0;
        return false;
    }
    if (part == FORMAT_PART_HEADER && !slot->reference.expires)
        return false;
    entry->large = part == FORMAT_PART_VALUE && slot->reference.room;
    if (entry->large) {
        entry->status = STORE_STALE;
        return false;
    }
    uint32_t bytes = format_record_read_bytes(entry->key_length, &slot->reference, part);
    uint8_t *room = store_arena_take(session, bytes);
    if (!room) {
        entry->status = store_fail_memory(session);
        return false;
    }
    if (part == FORMAT_PART_VALUE &&
        store_cached_find(session, entry->key, entry->key_length, &slot->reference, room, &entry->value)) {
        entry->status = store_expired(entry->value.expires, now) ? BANYAN_ENOTFOUND : 0;
        return false;
    }
    *read = (struct fabric_command){.operation = FABRIC_READ,
                                    .address = slot->reference.address,
                                    .length = bytes,
                                    .read = {.buffer = room}};
    return true;
}

void store_batch_resolve(struct store_session *session, uint64_t now, enum format_part part)
{
    struct store_batch *batch = session->batch;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct store_entry *entry = &batch->entries[i];
        entry->large = false;
        if (entry->status || !entry_prepare(session, entry, now, part, &batch->commands[batch->posted]))
            continue;
        batch->owners[batch->posted++] = i;
        if (batch->posted == STORE_TRANSFER_MAX)
            batch_flush(session, now, part);
    }
    batch_flush(session, now, part);
}
