/*
 * replay_plain.c - records that hold whole values (replay_private.h; K1 to K6): of a key the last entry
 * counts, wherever its value lies in the files.
 *
 * The thread that reads the journal has to do with the parts of long values alone; a record of entries is
 * taken by several threads, each of which goes over all its entries and takes those that are of its shard.
 */
#include <stdlib.h>
#include <string.h>

#include "format/record.h"
#include "persist/format.h"
#include "persist/replay_private.h"

#define PARTS_FIRST 16u

static struct replay_place place_of(uint16_t disk, const struct journal_record *record, const uint8_t *bytes,
                                    uint32_t length)
{
    return (struct replay_place){.disk = disk,
                                 .file = record->file,
                                 .length = length,
                                 .offset = record->offset + JOURNAL_RECORD_BYTES +
                                           (uint64_t)(bytes - record->bytes),
                                 .hash = format_record_hash(bytes, length)};
}

/* Parts that were dropped give up their places first. */
static bool parts_grow(struct persist_replay *replay)
{
    if (replay->part_first) {
        replay->part_count -= replay->part_first;
        memmove(replay->parts, replay->parts + replay->part_first,
                replay->part_count * sizeof *replay->parts);
        replay->part_first = 0;
        return true;
    }
    const uint32_t capacity = replay->part_capacity ? 2 * replay->part_capacity : PARTS_FIRST;
    struct replay_place *grown = realloc(replay->parts, capacity * sizeof *grown);
    if (!grown)
        return false;
    replay->parts = grown;
    replay->part_capacity = capacity;
    return true;
}

int replay_plain_bytes(struct persist_replay *replay, const struct journal_record *record,
                       struct error *error)
{
    if (!record->length)
        return error_set(error, BANYAN_ECORRUPT, "a part of a value has no bytes");
    if (replay->part_count == replay->part_capacity && !parts_grow(replay))
        return error_set(error, BANYAN_ENOMEM, "no memory for the parts of a value");
    replay->parts[replay->part_count++] = place_of(replay->disk, record, record->bytes, record->length);
    replay->part_bytes += record->length;
    while (replay->part_bytes > FORMAT_RECORD_VALUE_MAX) /* of a value whose entry was never written */
        replay->part_bytes -= replay->parts[replay->part_first++].length;
    replay->stats.blocks++;
    return 0;
}

/* Where the parts of a value of that length begin. They stand last; parts before them are of values whose
 * entries were never written, because the process ended or the disk was full. */
static bool parts_find(const struct persist_replay *replay, uint32_t length, uint32_t *first)
{
    uint64_t bytes = 0;
    *first = replay->part_count;
    while (*first > replay->part_first && bytes < length)
        bytes += replay->parts[--*first].length;
    return bytes == length;
}

/* The parts of the value that is the record's first entry, if it has such a one, become the record's. */
static int parts_give(struct persist_replay *replay, struct replay_given *given, struct error *error)
{
    struct persist_value value;
    uint32_t at = 0, first = 0;
    if (persist_value_next(given->record.bytes, given->record.length, &at, &value) <= 0 || !value.apart)
        return 0;
    if (!parts_find(replay, value.length, &first)) {
        given->parts_bad = true;
        return 0;
    }
    given->part_count = replay->part_count - first;
    given->parts = calloc(given->part_count, sizeof *given->parts);
    if (!given->parts)
        return error_set(error, BANYAN_ENOMEM, "no memory for where values lie");
    memcpy(given->parts, replay->parts + first, given->part_count * sizeof *given->parts);
    return 0;
}

/* The places of a value that is not short. */
static int places_make(struct replay_given *given, const struct persist_value *value,
                       struct replay_shard *shard, struct replay_key *key, struct error *error)
{
    const uint32_t count = value->apart ? given->part_count : 1;
    struct replay_place *places;
    if (value->apart) { /* only the thread whose key it is looks at the parts */
        places = given->parts;
        given->parts = NULL;
    } else {
        places = calloc(1, sizeof *places);
        if (!places)
            return error_set(error, BANYAN_ENOMEM, "no memory for where values lie");
        *places = place_of(given->disk, &given->record, value->bytes, value->length);
    }
    replay_key_place(shard, key, places);
    key->plain_places = count;
    return 0;
}

static int value_take(struct replay_given *given, const struct persist_value *value,
                      struct replay_shard *shard, uint64_t hash, struct error *error)
{
    struct replay_key *key = replay_key_get(shard, value->index, value->key, hash);
    int status = 0;
    if (!key)
        return error_set(error, BANYAN_ENOMEM, "no memory for the keys of a journal");
    replay_key_clear(key);
    key->epoch = 0;
    key->sequence = given->order;
    key->present = !value->deleted;
    key->plain = true;
    key->plain_length = value->length;
    key->expires = value->expires;
    key->value_length = 0;
    shard->entries++;
    if (value->length > UINT8_MAX)
        status = places_make(given, value, shard, key, error);
    else if (!replay_key_keep(shard, key, value->bytes, (uint8_t)value->length))
        status = error_set(error, BANYAN_ENOMEM, "no memory for the values of a journal");
    return status;
}

/* Entries that are looked for together. */
struct group {
    struct persist_value values[REPLAY_AHEAD];
    uint64_t hashes[REPLAY_AHEAD];
    uint32_t count;
};

/* What is wrong with the long value that an entry is; 0: nothing, or it is not one. */
static int apart_check(const struct replay_given *given, const struct persist_value *value, bool first,
                       struct error *error)
{
    if (!value->apart)
        return 0;
    if (!first)
        return error_set(error, BANYAN_ECORRUPT, "a long value's entry is not the first of its record");
    return given->parts_bad
               ? error_set(error, BANYAN_ECORRUPT, "the parts of a value are not as long as its entry says")
               : 0;
}

/* Gathers the next entries of the shard. Returns 1; 0: there are no others; or what is wrong. */
static int group_fill(const struct persist_replay *replay, const struct replay_given *given,
                      const struct replay_shard *only, uint32_t *at, struct group *group, struct error *error)
{
    group->count = 0;
    while (group->count < REPLAY_AHEAD) {
        struct persist_value *value = &group->values[group->count];
        const bool first = *at == 0;
        const int found = persist_value_next(given->record.bytes, given->record.length, at, value);
        if (found < 0)
            return error_set(error, found, "the entries of a record make no sense");
        if (!found)
            return 0;
        const int status = apart_check(given, value, first, error);
        if (status)
            return status;
        const uint64_t hash = replay_key_hash(value->index, value->key);
        if (!only || replay_shard_of(replay, hash) == only)
            group->hashes[group->count++] = hash;
    }
    return 1;
}

int replay_plain_take(struct persist_replay *replay, struct replay_given *given, struct replay_shard *only,
                      struct error *error)
{
    struct group group;
    uint32_t at = 0;
    int more = 1, status = 0;
    while (!status && more > 0) {
        more = group_fill(replay, given, only, &at, &group, error);
        if (more < 0)
            return more;
        replay_keys_ahead(replay, group.hashes, group.count);
        for (uint32_t i = 0; i < group.count && !status; i++)
            status = value_take(given, &group.values[i], replay_shard_of(replay, group.hashes[i]),
                                group.hashes[i], error);
    }
    return status;
}

int replay_plain_values(struct persist_replay *replay, const struct journal_record *record,
                        struct error *error)
{
    struct replay_given given = {.record = *record, .disk = replay->disk, .order = ++replay->order};
    int status = parts_give(replay, &given, error);
    replay->stats.frames++;
    replay->part_count = replay->part_first = 0; /* none of them belongs to a later entry */
    replay->part_bytes = 0;
    if (!status && replay->shard_count > 1 && !replay->alone)
        return replay_threads_give(replay, &given, error);
    if (!status)
        status = replay_plain_take(replay, &given, NULL, error);
    free(given.parts);
    return status;
}
