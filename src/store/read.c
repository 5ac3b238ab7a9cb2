/*
 * read.c - one key and many keys. A short value costs the index's lookup, one in a record one round trip
 * more, in extents two. What does not prove itself is looked up again.
 */
#include "store/state.h"

#include <stdlib.h>

/* Looked up again under the same slot so often: only a damaged record needs more. */
#define SAME_SLOT_TRIES 16u

/* ---- one key ---- */

static int corrupt(struct store_session *session, const struct store_raw *raw)
{
    struct store_slot slot;
    char text[GADDR_TEXT_BYTES];
    if (!store_slot_decode(raw->bytes, raw->length, &slot))
        return tree_session_fail(session->tree, BANYAN_ECORRUPT,
                                 "a slot of %u bytes (kind %u) is none that a store has written", raw->length,
                                 raw->length ? raw->bytes[0] : 0);
    return tree_session_fail(session->tree, BANYAN_ECORRUPT,
                             "record %s: it is not the one that the index names, or one of its extents is "
                             "damaged",
                             gaddr_format(slot.reference.address, text));
}

int store_patience(struct store_session *session, struct store_patience *patience,
                   const struct store_raw *raw)
{
    store_count_up(session, record_retries, 1);
    if (!patience->tries || !store_raw_equal(&patience->last, raw->bytes, raw->length)) {
        patience->last = *raw;
        patience->tries = 0;
    }
    if (++patience->tries >= SAME_SLOT_TRIES)
        return corrupt(session, raw);
    if (patience->tries > 4)
        task_sleep(10000);
    else if (patience->tries > 1)
        task_yield();
    return 0;
}

int store_resolve(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw, uint64_t now, enum store_part part, enum store_sink sink,
                  struct store_value *value)
{
    struct store_slot slot;
    if (!store_slot_decode(raw->bytes, raw->length, &slot))
        return STORE_STALE;
    *value = (struct store_value){.length = slot.length, .expires = slot.expires};
    if (!slot.record) {
        value->bytes = part == STORE_PART_VALUE ? slot.bytes : NULL;
        return store_expired(slot.expires, now) ? BANYAN_ENOTFOUND : 0;
    }
    if (part == STORE_PART_HEAD && !slot.reference.expires)
        return 0;
    int status = store_record_read(session, key, key_length, &slot.reference, part, sink, value);
    return !status && store_expired(value->expires, now) ? BANYAN_ENOTFOUND : status;
}

/* An inline value's bytes are session->seen's; in the arena they outlive it. */
static int inline_keep(struct store_session *session, enum store_sink sink, struct store_value *value)
{
    uintptr_t at = (uintptr_t)value->bytes, seen = (uintptr_t)session->seen.bytes;
    if (sink == STORE_SINK_BUFFER || at < seen || at > seen + sizeof session->seen.bytes)
        return 0;
    uint8_t *copy = store_arena_take(session, value->length + 1);
    if (!copy)
        return store_fail_memory(session);
    memcpy(copy, value->bytes, value->length);
    value->bytes = copy;
    return 0;
}

int store_fetch(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                enum store_part part, enum store_sink sink, struct store_value *value)
{
    struct store_patience patience;
    struct store_raw *raw = &session->seen;
    patience.tries = 0;
    for (;;) {
        size_t length = sizeof raw->bytes;
        int status = tree_lookup(session->tree, session->store->tree, key, key_length, raw->bytes, &length);
        if (status)
            return status;
        raw->present = true;
        raw->length = (uint8_t)length;
        status = store_resolve(session, key, key_length, raw, now, part, sink, value);
        if (!status)
            return inline_keep(session, sink, value);
        if (status == BANYAN_ENOTFOUND)
            store_expire(session, key, key_length, raw);
        if (status != STORE_STALE)
            return status;
        status = store_patience(session, &patience, raw);
        if (status)
            return status;
    }
}

int store_get(struct store_session *session, const void *key, size_t key_length, struct store_value *value)
{
    uint64_t now = store_begin(session);
    return store_fetch(session, key, key_length, now, STORE_PART_VALUE, STORE_SINK_BUFFER, value);
}

int store_stat(struct store_session *session, const void *key, size_t key_length, struct store_value *value)
{
    uint64_t now = store_begin(session);
    return store_fetch(session, key, key_length, now, STORE_PART_HEAD, STORE_SINK_BUFFER, value);
}

/* ---- batches ---- */

struct store_batch *store_batch_get(struct store_session *session)
{
    if (!session->batch) /* kept: a task may end in the middle of a call */
        session->batch = malloc(sizeof *session->batch);
    session->batch_used = true;
    if (session->batch)
        session->batch->count = session->batch->posted = 0;
    return session->batch;
}

static void entry_judge(struct store_session *session, struct store_entry *entry,
                        const struct fabric_command *read, int status, uint64_t now, enum store_part part)
{
    entry->status = STORE_STALE; /* its own error it meets again when it is fetched by itself */
    if (status || !store_record_validate(&entry->slot.reference, entry->key, entry->key_length, part,
                                         read->read.buffer, &entry->value)) {
        store_count_up(session, record_retries, 1);
        return;
    }
    entry->status = store_expired(entry->value.expires, now) ? BANYAN_ENOTFOUND : 0;
}

static void batch_flush(struct store_session *session, uint64_t now, enum store_part part)
{
    struct store_batch *batch = session->batch;
    if (!batch->posted)
        return;
    store_transfer(session, batch->commands, batch->posted, batch->statuses);
    for (uint32_t i = 0; i < batch->posted; i++)
        entry_judge(session, &batch->entries[batch->owners[i]], &batch->commands[i], batch->statuses[i], now,
                    part);
    batch->posted = 0;
}

/* True if the entry needs a read, which it then has. */
static bool entry_prepare(struct store_session *session, struct store_entry *entry, uint64_t now,
                          enum store_part part, struct fabric_command *read)
{
    if (!store_slot_decode(entry->raw, entry->raw_length, &entry->slot)) {
        entry->status = STORE_STALE;
        return false;
    }
    const struct store_slot *slot = &entry->slot;
    entry->value = (struct store_value){.length = slot->length, .expires = slot->expires};
    if (!slot->record) {
        entry->value.bytes = part == STORE_PART_VALUE ? slot->bytes : NULL;
        entry->status = store_expired(slot->expires, now) ? BANYAN_ENOTFOUND : 0;
        return false;
    }
    if (part == STORE_PART_HEAD && !slot->reference.expires)
        return false;
    entry->large = part == STORE_PART_VALUE && store_record_extents(entry->key_length, slot->length);
    if (entry->large) {
        entry->status = STORE_STALE;
        return false;
    }
    uint32_t bytes = store_record_read_bytes(entry->key_length, &slot->reference, part);
    uint8_t *room = store_arena_take(session, bytes);
    if (!room) {
        entry->status = store_fail_memory(session);
        return false;
    }
    *read = (struct fabric_command){.operation = FABRIC_READ,
                                    .address = slot->reference.address,
                                    .length = bytes,
                                    .read = {.buffer = room}};
    return true;
}

void store_batch_resolve(struct store_session *session, uint64_t now, enum store_part part)
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

/* ---- many keys ---- */

/* Looks the slots of the next items up, together. */
static int group_lookup(struct store_session *session, struct store_item *items, uint32_t count)
{
    struct store_batch *batch = session->batch;
    uint32_t room = session->store->slot_bytes;
    struct tree_item *wanted = store_arena_take(session, count * sizeof *wanted);
    uint8_t *slots = store_arena_take(session, (size_t)count * room);
    if (!wanted || !slots)
        return store_fail_memory(session);
    for (uint32_t i = 0; i < count; i++)
        wanted[i] = (struct tree_item){.key = items[i].key,
                                       .key_length = items[i].key_length,
                                       .value = slots + (size_t)i * room,
                                       .length = room,
                                       .status = BANYAN_ENOMEM};
    tree_multi_get(session->tree, session->store->tree, wanted, count); /* each item has its own status */
    for (uint32_t i = 0; i < count; i++)
        batch->entries[i] = (struct store_entry){.key = items[i].key,
                                                 .key_length = items[i].key_length,
                                                 .raw = wanted[i].value,
                                                 .raw_length = wanted[i].length,
                                                 .status = wanted[i].status};
    batch->count = count;
    return 0;
}

/* What would make the answer too long in all is refused, and what follows too: the caller asks for it in
 * another call. The first is never refused, so each such call brings the caller further. */
static void group_limit(struct store_session *session, uint64_t *bytes)
{
    struct store_batch *batch = session->batch;
    struct store_slot slot;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct store_entry *entry = &batch->entries[i];
        if (entry->status || !store_slot_decode(entry->raw, entry->raw_length, &slot) || !slot.record)
            continue;
        uint64_t more = slot.length + STORE_HEAD_MAX;
        if (*bytes && *bytes + more > STORE_MULTI_BYTES_MAX)
            entry->status = tree_session_fail(session->tree, BANYAN_ENOMEM,
                                              "the values asked for at once have more than %llu bytes",
                                              (unsigned long long)STORE_MULTI_BYTES_MAX);
        *bytes += more;
    }
}

static int group_get(struct store_session *session, struct store_item *items, uint32_t count, uint64_t now,
                     enum store_part part, uint64_t *bytes)
{
    struct store_batch *batch = store_batch_get(session);
    int status = batch ? group_lookup(session, items, count) : store_fail_memory(session);
    if (status)
        return status;
    if (part == STORE_PART_VALUE)
        group_limit(session, bytes);
    store_batch_resolve(session, now, part);
    for (uint32_t i = 0; i < count; i++) {
        struct store_entry *entry = &batch->entries[i];
        if (entry->status == STORE_STALE)
            entry->status = store_fetch(session, entry->key, entry->key_length, now, part, STORE_SINK_ARENA,
                                        &entry->value);
        items[i].value = entry->value;
        if (entry->status)
            memset(&items[i].value, 0, sizeof items[i].value);
        items[i].status = entry->status;
    }
    return 0;
}

int store_multi_get(struct store_session *session, struct store_item *items, size_t count, bool values)
{
    uint64_t now = store_begin(session), bytes = 0;
    int status = 0;
    for (size_t done = 0; done < count;) {
        uint32_t group = count - done < STORE_BATCH_ENTRIES ? (uint32_t)(count - done) : STORE_BATCH_ENTRIES;
        int failed =
            group_get(session, items + done, group, now, values ? STORE_PART_VALUE : STORE_PART_HEAD, &bytes);
        for (uint32_t i = 0; i < group; i++, done++) {
            if (failed)
                items[done].status = failed;
            if (!status && items[done].status != BANYAN_ENOTFOUND)
                status = items[done].status;
        }
    }
    return status;
}

/* ---- any key ---- */

#define SAMPLE_TRIES 32u

struct first {
    void *key;
    size_t *length;
    size_t room;
    bool found;
};

static bool first_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct first *first = context;
    first->found = key_length <= first->room;
    if (first->found)
        memcpy(first->key, key, key_length);
    *first->length = key_length;
    return false;
}

int store_sample(struct store_session *session, void *key, size_t *length)
{
    uint64_t now = store_begin(session);
    size_t room = *length;
    struct store_value value;
    for (unsigned i = 0; i < SAMPLE_TRIES; i++) {
        *length = room;
        int status = tree_sample(session->tree, session->store->tree, key, length);
        if (status == BANYAN_ENOTFOUND)
            break;
        if (!status)
            status = store_fetch(session, key, *length, now, STORE_PART_HEAD, STORE_SINK_BUFFER, &value);
        if (status != BANYAN_ENOTFOUND)
            return status;
    }
    /* Hardly any that has not expired: then the first one. */
    struct tree_range everything = {.limit = 1};
    struct first first = {key, length, room, false};
    int status = store_scan(session, &everything, STORE_SCAN_KEYS, first_visit, &first);
    if (!status && !first.found)
        return tree_session_fail(session->tree, BANYAN_ENOTFOUND, "the store is empty");
    return status;
}
