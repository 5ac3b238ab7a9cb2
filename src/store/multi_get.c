/*
 * multi_get.c - gets of many keys: their slots are looked up together, then their records are read together.
 */
#include "store/batch.h"
#include "store/cached.h"
#include "store/read.h"

#include <assert.h>

_Static_assert(STORE_LEAVE_MAX == STORE_BATCH_ENTRIES, "what is left is told by the entries of one batch");

/* Nothing of the item but its slot has to be read, and the slot has been: tells what that comes to. False: it
 * names a record, or is damaged. */
static bool item_settle(struct store_item *item, const struct tree_item *found, uint64_t now,
                        enum format_part part)
{
    struct format_value slot;
    int status = found->status;
    if (!status && (!format_value_decode(found->value, found->length, &slot) || slot.record))
        return false;
    if (!status && store_expired(slot.expires, now))
        status = BANYAN_ENOTFOUND;
    item->status = status;
    item->left = NULL;
    if (status) {
        memset(&item->value, 0, sizeof item->value);
        return true;
    }
    const bool wanted = part == FORMAT_PART_VALUE;
    item->value = (struct store_value){
        .bytes = wanted ? slot.bytes : NULL, .length = slot.length, .expires = slot.expires};
    if (wanted && item->choose) {
        const struct store_choice choice = {item->choose, item->context};
        store_choice_apply(&choice, &item->value);
    }
    return true;
}

/* Looks up the slots of a group of items. Those that are not settled by that become the batch's entries. */
static int group_lookup(struct store_session *session, struct store_item *items, uint32_t count, uint64_t now,
                        enum format_part part)
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
        if (!item_settle(&items[i], &wanted[i], now, part))
            batch->entries[batch->count++] = (struct store_entry){.key = items[i].key,
                                                                  .key_length = items[i].key_length,
                                                                  .raw = wanted[i].value,
                                                                  .raw_length = wanted[i].length,
                                                                  .item = i};
    return 0;
}

/* ---- values that are left where they are ---- */

/* Internal status of an entry whose value the caller copies by itself. */
#define LEFT 2
/* Bytes of a record that are asked for before they are copied: of a long one the CPU guesses the rest. */
#define LEFT_PREFETCH 256u

/* Where the whole record is mapped here; NULL: it is not. */
static const uint8_t *record_window(struct store_session *session, const struct store_entry *entry,
                                    const struct format_reference *reference)
{
    return fabric_window(tree_session_pool(session->tree)->fabric, reference->address,
                         format_record_block_bytes(entry->key_length, reference));
}

/* True: the value is left. */
static bool entry_leave(struct store_session *session, struct store_entry *entry,
                        const struct format_value *slot)
{
    const uint8_t *record = slot->reference.room ? NULL : record_window(session, entry, &slot->reference);
    if (!record)
        return false;
    entry->slot = *slot;
    entry->status = LEFT;
    for (uint32_t at = 0; at < LEFT_PREFETCH; at += 64)
        __builtin_prefetch(record + at);
    return true;
}

/* The record as it is now, if it is the one that the slot names: its value is in `room` then. */
static bool left_copy(const struct store_entry *entry, const uint8_t *record, uint8_t *room,
                      uint64_t *expires)
{
    const struct format_reference *reference = &entry->slot.reference;
    const uint32_t before = format_record_header_bytes(entry->key_length, 0);
    uint8_t header[FORMAT_RECORD_HEADER_FIXED + FORMAT_KEY_MAX];
    struct format_record good;
    /* acquire: what is loaded from the record comes after loads for earlier operations, as with lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    atomic_copy_from(header, record, before);
    if (!format_record_validate(reference, entry->key, entry->key_length, FORMAT_PART_HEADER, header, &good))
        return false;
    *expires = good.expires;
    return format_record_copy_from(room, record + before, reference->length) == good.value_hash;
}

/* What the list of these reads would have cost: fabric_window. */
static void left_count(struct store_session *session, const struct store_entry *entry, bool first)
{
    struct fabric_cost *cost = tree_session_pool(session->tree)->cost;
    if (!cost)
        return;
    cost->round_trips += first;
    cost->lists++;
    cost->reads++;
    cost->bytes_read += format_record_block_bytes(entry->key_length, &entry->slot.reference);
}

void store_item_read(struct store_session *session, struct store_item *item, void *room)
{
    struct store_entry *entry = item->left;
    const uint8_t *record = record_window(session, entry, &entry->slot.reference);
    uint64_t expires;
    item->left = NULL;
    assert(record); /* it was when the value was left, and windows stay */
    if (left_copy(entry, record, room, &expires)) {
        item->value.bytes = room;
        item->value.expires = expires;
        item->status = expires && store_expired(expires, session->store->now(session->store->clock_context))
                           ? BANYAN_ENOTFOUND
                           : 0;
    } else { /* the key has another value by now, or a damaged one */
        store_count_up(session, record_retries, 1);
        item->status = store_fetch(session, entry->key, entry->key_length,
                                   session->store->now(session->store->clock_context), FORMAT_PART_VALUE,
                                   STORE_SINK_ARENA, &item->value);
    }
    if (item->status)
        memset(&item->value, 0, sizeof item->value);
}

/* ---- groups ---- */

/* Leaves values where they are, if the caller copies them. Refuses the items that would make the answer too
 * long, which the caller asks for in another call. The first record is never refused, so each call makes
 * progress. */
static void group_limit(struct store_session *session, const struct store_item *items, bool leave,
                        uint64_t *bytes)
{
    struct store_batch *batch = session->batch;
    struct format_value slot;
    bool first = true;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct store_entry *entry = &batch->entries[i];
        const struct store_item *item = &items[entry->item];
        if (entry->status || !format_value_decode(entry->raw, entry->raw_length, &slot) || !slot.record)
            continue;
        if (leave && item->leave && !item->choose && entry_leave(session, entry, &slot)) {
            left_count(session, entry, first);
            first = false;
            continue;
        }
        uint64_t length = slot.length;
        if (slot.reference.room && item->choose) {
            struct store_part part = item->choose(item->context, length);
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
                     enum format_part part, bool leave, uint64_t *bytes)
{
    struct store_batch *batch = store_batch_get(session);
    int status = batch ? group_lookup(session, items, count, now, part) : store_fail_memory(session);
    if (status)
        return status;
    if (part == FORMAT_PART_VALUE)
        group_limit(session, items, leave, bytes);
    store_batch_resolve(session, now, part);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct store_entry *entry = &batch->entries[i];
        struct store_item *item = &items[entry->item];
        item->left = NULL;
        if (entry->status == LEFT) {
            item->left = entry;
            item->value = (struct store_value){.length = entry->slot.length};
            item->status = 0;
            continue;
        }
        const struct store_choice choice = {item->choose, item->context};
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
        item->value = entry->value;
        if (entry->status)
            memset(&item->value, 0, sizeof item->value);
        item->status = entry->status;
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
            group_get(session, items + done, group, now, values ? FORMAT_PART_VALUE : FORMAT_PART_HEADER,
                      count <= STORE_LEAVE_MAX, &bytes);
        for (uint32_t i = 0; i < group; i++, done++) {
            if (failed) {
                items[done].status = failed;
                items[done].left = NULL;
            }
            if (!status && items[done].status != BANYAN_ENOTFOUND)
                status = items[done].status;
        }
    }
    return status;
}
