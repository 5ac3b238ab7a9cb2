/*
 * multi_get.c - gets of many keys: their slots are looked up together, then their records are read together.
 */
#include "store/batch.h"
#include "store/cached.h"
#include "store/read.h"

/* Looks up the slots of a group of items. */
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
    tree_multi_get(session->tree, session->store->tree, wanted, count); /* its status is one of the items' */
    for (uint32_t i = 0; i < count; i++)
        batch->entries[i] = (struct store_entry){.key = items[i].key,
                                                 .key_length = items[i].key_length,
                                                 .raw = wanted[i].value,
                                                 .raw_length = wanted[i].length,
                                                 .status = wanted[i].status};
    batch->count = count;
    return 0;
}

/* Refuses the items that would make the answer too long, which the caller asks for in another call. The first
 * record is never refused, so each call makes progress. */
static void group_limit(struct store_session *session, const struct store_item *items, uint64_t *bytes)
{
    struct store_batch *batch = session->batch;
    struct format_value slot;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct store_entry *entry = &batch->entries[i];
        if (entry->status || !format_value_decode(entry->raw, entry->raw_length, &slot) || !slot.record)
            continue;
        uint64_t length = slot.length;
        if (slot.reference.room && items[i].choose) {
            struct store_part part = items[i].choose(items[i].context, length);
            length = part.length < length ? part.length : length;
        }
        uint64_t more = length + FORMAT_RECORD_HEADER_FIXED + FORMAT_KEY_MAX;
        if (*bytes && *bytes + more > STORE_MULTI_BYTES_MAX)
            entry->status = pool_fail(tree_session_pool(session->tree), BANYAN_ENOMEM,
                                      "the values asked for at once have more than %llu bytes",
                                      (unsigned long long)STORE_MULTI_BYTES_MAX);
        *bytes += more;
    }
}

static int group_get(struct store_session *session, struct store_item *items, uint32_t count, uint64_t now,
                     enum format_part part, uint64_t *bytes)
{
    struct store_batch *batch = store_batch_get(session);
    int status = batch ? group_lookup(session, items, count) : store_fail_memory(session);
    if (status)
        return status;
    if (part == FORMAT_PART_VALUE)
        group_limit(session, items, bytes);
    store_batch_resolve(session, now, part);
    for (uint32_t i = 0; i < count; i++) {
        struct store_entry *entry = &batch->entries[i];
        const struct store_choice choice = {items[i].choose, items[i].context};
        const bool chosen = choice.choose && part == FORMAT_PART_VALUE;
        const bool stale = entry->status == STORE_STALE;
        if (stale)
            entry->status = chosen ? store_fetch_part(session, entry->key, entry->key_length, now, &choice,
                                                      STORE_SINK_ARENA, &entry->value)
                                   : store_fetch(session, entry->key, entry->key_length, now, part,
                                                 STORE_SINK_ARENA, &entry->value);
        else if (!entry->status && part == FORMAT_PART_VALUE && entry->slot.record)
            store_cached_offer(session, entry->key, entry->key_length, &entry->slot.reference, &entry->value,
                               false);
        if (!entry->status && chosen && !stale)
            store_choice_apply(&choice, &entry->value);
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
        int failed = group_get(session, items + done, group, now,
                               values ? FORMAT_PART_VALUE : FORMAT_PART_HEADER, &bytes);
        for (uint32_t i = 0; i < group; i++, done++) {
            if (failed)
                items[done].status = failed;
            if (!status && items[done].status != BANYAN_ENOTFOUND)
                status = items[done].status;
        }
    }
    return status;
}
