/* keeper.c - passes: from what the feed has to values in the journal; see keeper.h. */
#include "durable/keeper.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "durable/keeper_private.h"
#include "persist/format.h"

#define SEEN_LEAST  256u
#define SIFT_BATCH  512u /* entries */
#define AHEAD       8u   /* keys whose places in the table are asked for before they are looked at */
#define LIMIT_SPARE 8u   /* a part of the limit that is neither the journal's nor a checkpoint's: 1 / this */

/* ---- life ---- */

int keeper_create(struct keeper **out, const struct keeper_parts *parts, struct error *error)
{
    struct keeper *keeper = calloc(1, sizeof *keeper);
    *out = keeper;
    if (keeper) {
        keeper->parts = *parts;
        keeper->record = malloc(JOURNAL_LENGTH_MAX);
    }
    if (keeper && keeper->record)
        return 0;
    keeper_destroy(keeper);
    *out = NULL;
    return error_set(error, BANYAN_ENOMEM, "no memory to keep keys on a disk");
}

void keeper_destroy(struct keeper *keeper)
{
    if (!keeper)
        return;
    free(keeper->record);
    free(keeper->names);
    free(keeper->past);
    free(keeper->seen);
    free(keeper);
}

static void count(uint64_t *counter, uint64_t more)
{
    atomic_add_relaxed(counter, more); /* statistics */
}

/* ---- the journal ---- */

static int sync(struct keeper *keeper, struct error *error)
{
    uint64_t safe;
    const uint64_t begun = task_now();
    int status = journal_sync(keeper->parts.journal, &safe, error);
    const uint64_t took = task_now() - begun;
    if (!status)
        feed_progress(keeper->parts.feed);
    count(&keeper->stats.syncs, 1);
    count(&keeper->stats.sync_ns, took);
    if (took > atomic_load_relaxed(&keeper->stats.sync_longest_ns)) /* statistics, of the leader alone */
        atomic_store_relaxed(&keeper->stats.sync_longest_ns, took);
    return status;
}

uint64_t keeper_checkpoint_bytes(const struct keeper *keeper)
{
    const struct manifest *manifest = keeper->parts.manifest;
    return manifest->part_count ? manifest->parts[0].bytes : 0;
}

uint64_t keeper_journal_bytes(const struct keeper *keeper)
{
    return journal_end(keeper->parts.journal) - keeper->parts.manifest->position;
}

/* Whether the journal may grow by that. All that the next checkpoint will hold is in the last one or in the
 * journal, so it is no longer than these together, and has to fit beside them. */
static bool may_grow(const struct keeper *keeper, uint32_t length)
{
    const uint64_t limit = keeper->parts.limit;
    const uint64_t both = keeper_checkpoint_bytes(keeper) + keeper_journal_bytes(keeper) + length;
    return !limit || keeper->beyond || 2 * both + limit / LIMIT_SPARE <= limit;
}

/* Syncs where the buffer is full. */
static int append(struct keeper *keeper, enum persist_kind kind, const void *bytes, uint32_t length,
                  struct error *error)
{
    uint64_t position;
    if (!may_grow(keeper, length))
        return error_set(error, BANYAN_EBUSY,
                         "the journal has all that the limit of %llu bytes leaves beside two checkpoints",
                         (unsigned long long)keeper->parts.limit);
    int status = journal_has_room(keeper->parts.journal, length) ? 0 : sync(keeper, error);
    if (!status)
        status = journal_append(keeper->parts.journal, (uint8_t)kind, bytes, length, &position, error);
    if (!status)
        count(&keeper->stats.bytes, length + JOURNAL_RECORD_BYTES);
    return status;
}

static int record_end(struct keeper *keeper, struct error *error)
{
    int status = 0;
    if (!keeper->used)
        return 0;
    status = append(keeper, PERSIST_VALUES, keeper->record, keeper->used, error);
    if (status)
        return status;
    keeper->used = 0;
    keeper->record_from = keeper->batch_from;
    keeper->from = keeper->at;
    return 0;
}

/* The parts of a long value; its entry comes right behind them (K3). */
static int parts_add(struct keeper *keeper, const struct persist_value *value, const uint8_t *bytes,
                     struct error *error)
{
    int status = record_end(keeper, error);
    for (uint32_t at = 0; !status && at < value->length;) {
        const uint32_t left = value->length - at,
                       part = left < JOURNAL_LENGTH_MAX ? left : JOURNAL_LENGTH_MAX;
        status = append(keeper, PERSIST_BYTES, bytes + at, part, error);
        at += part;
    }
    return status;
}

static int value_add(struct keeper *keeper, const uint8_t *key, uint32_t key_length,
                     const struct store_value *found, struct error *error)
{
    struct persist_value value = {.key = {key, key_length},
                                  .index = keeper->parts.index,
                                  .deleted = found == NULL,
                                  .length = found ? (uint32_t)found->length : 0,
                                  .expires = found ? found->expires : 0};
    int status = 0;
    value.apart = value.length > PERSIST_VALUE_SHORT;
    if (value.apart)
        status = parts_add(keeper, &value, found->bytes, error);
    else if (found)
        value.bytes = found->bytes;
    if (!status && keeper->used + persist_value_bytes(&value) > JOURNAL_LENGTH_MAX)
        status = record_end(keeper, error);
    if (status)
        return status;
    persist_value_encode(&value, keeper->record + keeper->used);
    keeper->used += persist_value_bytes(&value);
    count(value.deleted ? &keeper->stats.deleted : &keeper->stats.keys, 1);
    return 0;
}

/* Between two batches: lets the thread's other tasks run, where it has some, and other threads that wait for
 * its CPU. */
static void rest(const struct keeper *keeper)
{
    if (!keeper->at_once)
        task_yield();
}

/* ---- what was marked ---- */

/* Where the search for the entry's key begins. */
static uint64_t seen_first(const struct keeper *keeper, const uint8_t *entry)
{
    return format_key_hash((struct format_key){entry + feed_entry_key(entry), entry[0]}) &
           (keeper->seen_room - 1);
}

static uint8_t **seen_place(struct keeper *keeper, const uint8_t *entry, uint64_t at)
{
    const uint8_t *key = entry + feed_entry_key(entry);
    while (keeper->seen[at]) {
        const uint8_t *other = keeper->seen[at];
        if (other[0] == entry[0] && !memcmp(other + feed_entry_key(other), key, entry[0]))
            break;
        at = (at + 1) & (keeper->seen_room - 1);
    }
    return &keeper->seen[at];
}

/* Room for so many bytes of names, and for the table of so many keys. */
static bool reserve(struct keeper *keeper, uint64_t bytes, uint64_t keys)
{
    uint64_t room = SEEN_LEAST;
    while (room < 2 * keys)
        room *= 2;
    if (bytes > keeper->names_room) {
        uint8_t *grown = realloc(keeper->names, bytes);
        if (!grown)
            return false;
        keeper->names = grown;
        keeper->names_room = bytes;
    }
    if (room > keeper->seen_capacity) {
        free(keeper->seen);
        keeper->seen = malloc(room * sizeof *keeper->seen);
        keeper->seen_capacity = keeper->seen ? room : 0;
    }
    if (!keeper->seen)
        return false;
    keeper->seen_room = room; /* a small pass uses a small part, so that clearing it costs little */
    memset(keeper->seen, 0, room * sizeof *keeper->seen);
    return true;
}

/* Whether the entry is of the last pass, which has read the key's value. */
static bool is_past(const struct keeper *keeper, const uint8_t *entry)
{
    return keeper->past_used && entry >= keeper->past && entry < keeper->past + keeper->past_used;
}

/* Says of each key that the lane has which entry stands for it. Where all its marks are of one lane that is
 * the last of them, and its value is the newest, unless the last pass may have read one that is newer. Of
 * marks of other lanes, and of names that an earlier pass could not copy, it is not known which came first,
 * so the value is read (K8). */
static void lane_sift(struct keeper *keeper, const struct feed_taken *taken)
{
    uint8_t *const end = taken->bytes + taken->used, *ahead = taken->bytes;
    uint64_t first[AHEAD];
    uint32_t met = 0, asked = 0;
    for (uint8_t *entry = taken->bytes; entry < end; entry += feed_entry_bytes(entry)) {
        for (; ahead < end && asked < met + AHEAD; ahead += feed_entry_bytes(ahead)) {
            first[asked % AHEAD] = seen_first(keeper, ahead);
            __builtin_prefetch(&keeper->seen[first[asked++ % AHEAD]], 1);
        }
        const uint64_t at = first[met++ % AHEAD];
        if (met % SIFT_BATCH == 0)
            rest(keeper);
        const bool doubtful = entry < taken->bytes + taken->doubtful;
        uint8_t **place = seen_place(keeper, entry, at), *other = *place;
        const bool past = other && is_past(keeper, other);
        if (other && !past && (other < taken->bytes || other >= end)) {
            other[1] |= FEED_READ;
            entry[1] |= FEED_GONE;
            continue;
        }
        if (doubtful && (keeper->doubt || past || (other && other[1] & FEED_READ)))
            entry[1] |= FEED_READ;
        if (other && !past)
            other[1] |= FEED_GONE;
        *place = entry;
    }
}

static void names_seen(struct keeper *keeper, uint8_t *names, uint64_t used)
{
    for (uint64_t at = 0; at < used; at += feed_entry_bytes(names + at)) /* NULL where there are none */
        *seen_place(keeper, names + at, seen_first(keeper, names + at)) = names + at;
}

static int sift(struct keeper *keeper, struct error *error)
{
    const struct feed *feed = keeper->parts.feed;
    uint64_t bytes = keeper->names_used, keys = keeper->names_count + keeper->past_count;
    for (unsigned lane = 0; lane < feed_lanes(feed); lane++) {
        const struct feed_taken taken = feed_taken(feed, lane);
        bytes += taken.used;
        keys += taken.count;
    }
    if (!reserve(keeper, bytes, keys))
        return error_set(error, BANYAN_EUNKNOWN,
                         "no memory for the names of changed keys: they are not kept");
    names_seen(keeper, keeper->past, keeper->past_used);
    names_seen(keeper, keeper->names,
               keeper->names_used); /* of a pass that failed; then there are no others */
    for (unsigned lane = 0; lane < feed_lanes(feed); lane++) {
        const struct feed_taken taken = feed_taken(feed, lane);
        lane_sift(keeper, &taken);
    }
    return 0;
}

/* The value of the entry's key is to be read; there is room for that. */
static void names_add(struct keeper *keeper, uint8_t *entry)
{
    keeper->names_used +=
        feed_entry_name(keeper->names + keeper->names_used, entry + feed_entry_key(entry), entry[0]);
    keeper->names_count++;
    entry[1] |= FEED_GONE; /* the name stands for it */
}

static int entry_copy(struct keeper *keeper, uint8_t *entry, struct error *error)
{
    const uint32_t at = feed_entry_key(entry);
    if (entry[1] & FEED_GONE)
        return 0;
    if (!(entry[1] & FEED_VALUE) || entry[1] & FEED_READ) {
        names_add(keeper, entry);
        return 0;
    }
    struct store_value value = {.bytes = entry + at + entry[0], .length = feed_entry_value(entry)};
    if (entry[1] & FEED_EXPIRES)
        memcpy(&value.expires, entry + FEED_ENTRY_HEADER, sizeof value.expires);
    return value_add(keeper, entry + at, entry[0], &value, error);
}

/* From the place on: copies all entries that have their values, and collects the names of the others. With
 * `keep` the names of all of them. */
static int entries_go(struct keeper *keeper, struct keeper_place place, bool keep, struct error *error)
{
    int status = 0;
    uint32_t met = 0;
    for (keeper->at = place; keeper->at.lane < feed_lanes(keeper->parts.feed);
         keeper->at = (struct keeper_place){keeper->at.lane + 1, 0}) {
        const struct feed_taken taken = feed_taken(keeper->parts.feed, keeper->at.lane);
        while (!status && keeper->at.offset < taken.used) {
            uint8_t *entry = taken.bytes + keeper->at.offset;
            if (!keeper->used)
                keeper->from = keeper->at;
            if (!keep)
                status = entry_copy(keeper, entry, error);
            else if (!(entry[1] & FEED_GONE))
                names_add(keeper, entry);
            if (!status)
                keeper->at.offset += feed_entry_bytes(entry);
            if (++met % SIFT_BATCH == 0)
                rest(keeper);
        }
        if (status)
            break;
    }
    return status;
}

/* Copies what came with its value. What could not be copied is read by the next pass. */
static int entries_copy(struct keeper *keeper, struct error *error)
{
    struct error ignored;
    const struct keeper_place first = {0, 0};
    int status = entries_go(keeper, first, false, error);
    if (!status)
        status = record_end(keeper, error);
    if (status)
        (void)entries_go(keeper, keeper->from, true, &ignored);
    return status;
}

/* ---- values that are read ---- */

static int value_failed(const struct store_item *item, struct store_session *session, struct error *error)
{
    return error_set(error, BANYAN_EUNKNOWN, "a key that has changed cannot be read, so it is not kept: %s",
                     item->status ? tree_session_error(store_session_tree(session))->text : "");
}

/* Reads by itself a value that found no room beside the others. */
static int item_again(struct store_session *session, struct store_item *item)
{
    item->status = store_get(session, item->key, item->key_length, &item->value);
    return item->status;
}

static int items_add(struct keeper *keeper, struct store_session *session, struct store_item *items,
                     uint32_t count_of, struct error *error)
{
    int status = 0;
    store_multi_get(session, items, count_of, true);
    for (uint32_t pass = 0; pass < 2; pass++) /* first the items whose bytes the session still has */
        for (uint32_t i = 0; i < count_of && !status; i++) {
            struct store_item *item = &items[i];
            if ((item->status == BANYAN_ENOMEM) != (pass == 1))
                continue;
            if (pass)
                (void)item_again(session, item);
            if (item->status && item->status != BANYAN_ENOTFOUND)
                return value_failed(item, session, error);
            status = value_add(keeper, item->key, (uint32_t)item->key_length,
                               item->status ? NULL : &item->value, error);
        }
    return status;
}

static int names_copy(struct keeper *keeper, struct store_session *session, struct error *error)
{
    struct store_item items[KEEPER_BATCH];
    int status = 0;
    for (uint64_t at = 0; at < keeper->names_used && !status;) {
        uint32_t batch = 0;
        keeper->batch_from = at;
        if (!keeper->used)
            keeper->record_from = at;
        for (; batch < KEEPER_BATCH && at < keeper->names_used; at += feed_entry_bytes(keeper->names + at))
            items[batch++] = (struct store_item){.key = keeper->names + at + FEED_ENTRY_HEADER,
                                                 .key_length = keeper->names[at]};
        status = items_add(keeper, session, items, batch, error);
        rest(keeper);
    }
    return status ? status : record_end(keeper, error);
}

/* Drops the names whose values are in the journal already, so that a pass that needs more room than there is
 * comes to its end in parts. A key that is marked again is copied again. */
static void names_forget_copied(struct keeper *keeper)
{
    const uint64_t from = keeper->record_from;
    memmove(keeper->names, keeper->names + from, keeper->names_used - from);
    keeper->names_used -= from;
    keeper->names_count = 0;
    for (uint64_t at = 0; at < keeper->names_used; at += feed_entry_bytes(keeper->names + at))
        keeper->names_count++;
    keeper->record_from = 0;
}

/* ---- a pass ---- */

static int pass_fail(struct keeper *keeper, int status, struct error *error)
{
    keeper->past_used = keeper->past_count = 0;
    if (keeper->names_used)
        names_forget_copied(keeper);
    if (status == BANYAN_EBUSY)
        return status;
    if (status != BANYAN_ENOSPC && error->code != BANYAN_EUNKNOWN)
        error->code = BANYAN_EUNKNOWN;
    feed_fail(keeper->parts.feed, error);
    return error->code;
}

/* All of them were copied. */
static void names_past(struct keeper *keeper)
{
    uint8_t *names = keeper->past;
    const uint64_t room = keeper->past_room;
    keeper->past = keeper->names;
    keeper->past_room = keeper->names_room;
    keeper->past_used = keeper->names_used;
    keeper->past_count = keeper->names_count;
    keeper->names = names;
    keeper->names_room = room;
    keeper->names_used = keeper->names_count = 0;
}

int keeper_pass(struct keeper *keeper, struct store_session *session, struct error *error)
{
    struct feed *feed = keeper->parts.feed;
    const uint64_t begun = task_now(), pass = feed_begin(feed);
    keeper->record_from = keeper->batch_from = 0;
    keeper->used = 0; /* of a pass that failed: its names are still there */
    int status = sift(keeper, error);
    if (!status)
        status = entries_copy(keeper, error);
    if (!status)
        status = names_copy(keeper, session, error);
    if (keeper->names_used)
        feed_doubt(feed);
    if (!status)
        status = sync(keeper, error);
    keeper->doubt = status;
    if (status)
        return pass_fail(keeper, status, error);
    names_past(keeper);
    atomic_store_relaxed(&keeper->stats.journal_bytes, /* statistics */
                         journal_end(keeper->parts.journal) - journal_begin(keeper->parts.journal));
    feed_pace(feed, task_now() - begun);
    feed_done(feed, pass);
    return 0;
}

int keeper_pass_beyond(struct keeper *keeper, struct store_session *session, struct error *error)
{
    keeper->beyond = true;
    int status = keeper_pass(keeper, session, error);
    keeper->beyond = false;
    return status;
}

int keeper_pass_at_once(struct keeper *keeper, struct store_session *session, struct error *error)
{
    keeper->at_once = true;
    int status = keeper_pass(keeper, session, error);
    keeper->at_once = false;
    return status;
}

void keeper_stats(const struct keeper *keeper, struct keeper_stats *stats)
{
    const struct keeper_stats *from = &keeper->stats;
    *stats = (struct keeper_stats){/* statistics: relaxed */
                                   .keys = atomic_load_relaxed(&from->keys),
                                   .deleted = atomic_load_relaxed(&from->deleted),
                                   .bytes = atomic_load_relaxed(&from->bytes),
                                   .journal_bytes = atomic_load_relaxed(&from->journal_bytes),
                                   .checkpoint_keys = atomic_load_relaxed(&from->checkpoint_keys),
                                   .checkpoint_bytes = atomic_load_relaxed(&from->checkpoint_bytes),
                                   .syncs = atomic_load_relaxed(&from->syncs),
                                   .sync_ns = atomic_load_relaxed(&from->sync_ns),
                                   .sync_longest_ns = atomic_load_relaxed(&from->sync_longest_ns)};
}
