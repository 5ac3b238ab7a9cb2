/*
 * replay_plain.c - records that hold whole values (replay_private.h; K1 to K6): of a key the last entry
 * counts, wherever its value lies in the files.
 */
#include <stdlib.h>
#include <string.h>

#include "format/record.h"
#include "persist/format.h"
#include "persist/replay_private.h"

#define PARTS_FIRST 16u

static struct replay_place place_of(const struct persist_replay *replay, const struct journal_record *record,
                                    const uint8_t *bytes, uint32_t length)
{
    return (struct replay_place){.disk = replay->disk,
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
    replay->parts[replay->part_count++] = place_of(replay, record, record->bytes, record->length);
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

/* The places of a value that is not short. */
static int places_make(struct persist_replay *replay, const struct journal_record *record,
                       const struct persist_value *value, struct replay_key *key, struct error *error)
{
    uint32_t first = 0;
    if (value->apart && !parts_find(replay, value->length, &first))
        return error_set(error, BANYAN_ECORRUPT, "the parts of a value are not as long as its entry says");
    const uint32_t count = value->apart ? replay->part_count - first : 1;
    key->places = calloc(count, sizeof *key->places);
    if (!key->places)
        return error_set(error, BANYAN_ENOMEM, "no memory for where values lie");
    if (value->apart)
        memcpy(key->places, replay->parts + first, count * sizeof *key->places);
    else
        key->places[0] = place_of(replay, record, value->bytes, value->length);
    key->plain_places = count;
    return 0;
}

static int value_take(struct persist_replay *replay, const struct journal_record *record,
                      const struct persist_value *value, struct error *error)
{
    struct replay_key *key = replay_key_get(replay, value->index, value->key);
    int status = 0;
    if (!key)
        return error_set(error, BANYAN_ENOMEM, "no memory for the keys of a journal");
    replay_key_clear(key);
    key->epoch = 0;
    key->sequence = ++replay->order;
    key->present = !value->deleted;
    key->plain = true;
    key->plain_length = value->length;
    key->expires = value->expires;
    key->value_length = 0;
    replay->stats.entries++;
    if (value->length > UINT8_MAX)
        status = places_make(replay, record, value, key, error);
    else if (!replay_key_keep(replay, key, value->bytes, (uint8_t)value->length))
        status = error_set(error, BANYAN_ENOMEM, "no memory for the values of a journal");
    return status;
}

int replay_plain_values(struct persist_replay *replay, const struct journal_record *record,
                        struct error *error)
{
    struct persist_value value;
    uint32_t at = 0;
    int status = 0, found = 1;
    for (bool first = true; !status && found > 0; first = false) {
        found = persist_value_next(record->bytes, record->length, &at, &value);
        if (found <= 0)
            break;
        if (value.apart && !first)
            return error_set(error, BANYAN_ECORRUPT, "a long value's entry is not the first of its record");
        status = value_take(replay, record, &value, error);
    }
    replay->stats.frames++;
    replay->part_count = replay->part_first = 0; /* none of them belongs to a later entry */
    replay->part_bytes = 0;
    return found < 0 ? error_set(error, found, "the entries of a record make no sense") : status;
}
