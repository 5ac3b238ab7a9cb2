/* replay_value.c - blocks that stand in the files of journals, and values that are made of them
 * (replay_private.h). */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "disk/journal_format.h"
#include "persist/replay_private.h"

#define BLOCKS_FIRST 1024u

/* ---- blocks ---- */

static struct replay_block *block_place(const struct persist_replay *replay, gaddr address)
{
    uint64_t at = random_mix(address) & (replay->block_capacity - 1);
    while (replay->blocks[at].address != GADDR_NULL && replay->blocks[at].address != address)
        at = (at + 1) & (replay->block_capacity - 1);
    return &replay->blocks[at];
}

const struct replay_block *replay_block_find(const struct persist_replay *replay, gaddr address)
{
    const struct replay_block *block = replay->block_capacity ? block_place(replay, address) : NULL;
    return block && block->address == address ? block : NULL;
}

static bool blocks_grow(struct persist_replay *replay)
{
    const uint64_t were = replay->block_capacity, capacity = were ? 2 * were : BLOCKS_FIRST;
    struct replay_block *old = replay->blocks, *blocks = calloc(capacity, sizeof *blocks);
    if (!blocks)
        return false;
    replay->blocks = blocks;
    replay->block_capacity = capacity;
    for (uint64_t i = 0; i < were; i++)
        if (old[i].address != GADDR_NULL)
            *block_place(replay, old[i].address) = old[i];
    free(old);
    return true;
}

bool replay_block_add(struct persist_replay *replay, const struct replay_block *block)
{
    assert(block->address != GADDR_NULL);
    if (3 * (replay->block_count + 1) > 2 * replay->block_capacity && !blocks_grow(replay))
        return false;
    struct replay_block *place = block_place(replay, block->address);
    replay->block_count += place->address == GADDR_NULL;
    *place = *block;
    return true;
}

const struct replay_place *replay_piece_find(const struct persist_replay *replay, gaddr address,
                                             const struct format_piece *piece)
{
    const uint64_t key[2] = {address, piece->hash};
    const struct replay_block *block = replay_block_find(replay, address);
    if (block && block->hash == piece->hash && block->place.length == piece->length)
        return &block->place;
    const struct replay_piece *brought = places_find(&replay->brought, key);
    return brought && brought->place.length == piece->length ? &brought->place : NULL;
}

bool replay_piece_add(struct persist_replay *replay, const struct replay_block *block)
{
    const uint64_t key[2] = {block->address, block->hash};
    replay->brought.key_bytes = sizeof key;
    replay->brought.item_bytes = sizeof(struct replay_piece);
    struct replay_piece *piece = places_put(&replay->brought, key);
    if (piece)
        piece->place = block->place;
    return piece;
}

void replay_blocks_free(struct persist_replay *replay)
{
    free(replay->blocks);
    places_clear(&replay->brought);
}

/* ---- reading ---- */

static int file_open(struct persist_replay *replay, const struct replay_place *place, struct error *error)
{
    char name[JOURNAL_NAME_BYTES];
    if (replay->file && replay->file_disk == place->disk && replay->file_number == place->file)
        return 0;
    disk_file_close(replay->file);
    replay->file = NULL;
    journal_name(name, place->file);
    replay->file_disk = place->disk;
    replay->file_number = place->file;
    return disk_open(replay->disks[place->disk], name, &replay->file, error);
}

static int place_bad(const struct persist_replay *replay, const struct replay_place *place,
                     struct error *error)
{
    return error_set(error, BANYAN_ECORRUPT,
                     "%s: file %u of the journal, at byte %" PRIu64
                     ": the %u bytes of a record are not what they were when the journal was opened",
                     disk_path(replay->disks[place->disk]), (unsigned)place->file, place->offset,
                     (unsigned)place->length);
}

int replay_read(struct persist_replay *replay, const struct replay_place *place, uint8_t *to,
                struct error *error)
{
    size_t got;
    int status = file_open(replay, place, error);
    if (!status)
        status = disk_read(replay->file, place->offset, to, place->length, &got, error);
    if (!status && got != place->length)
        status = place_bad(replay, place, error);
    return status;
}

static bool room_make(struct persist_replay *replay, uint64_t bytes)
{
    if (bytes <= replay->bytes_capacity)
        return true;
    uint8_t *grown = realloc(replay->bytes, bytes);
    if (!grown)
        return false;
    replay->bytes = grown;
    replay->bytes_capacity = bytes;
    return true;
}

static int piece_read(struct persist_replay *replay, const struct replay_place *place,
                      const struct format_piece *piece, uint64_t at, struct error *error)
{
    if (piece->block == GADDR_NULL) {
        memset(replay->bytes + at, 0, piece->length);
        return 0;
    }
    assert(place->length == piece->length);
    int status = replay_read(replay, place, replay->bytes + at, error);
    if (!status && format_record_hash(replay->bytes + at, piece->length) != piece->hash)
        status = place_bad(replay, place, error);
    return status;
}

static int pieces_read(struct persist_replay *replay, const struct replay_key *key,
                       const struct format_reference *reference, struct archive_entry *entry,
                       struct error *error)
{
    struct format_record record;
    uint64_t at = 0;
    int status = replay_read(replay, &key->places[0], replay->header, error);
    if (status)
        return status;
    if (!format_record_validate(reference, key->key, key->length, FORMAT_PART_HEADER, replay->header,
                                &record))
        return place_bad(replay, &key->places[0], error);
    if (!room_make(replay, record.length))
        return error_set(error, BANYAN_ENOMEM, "no memory for a value of %" PRIu64 " bytes", record.length);
    for (uint32_t i = 0; i < record.pieces && !status; i++) {
        const struct format_piece piece = format_record_piece(replay->header, key->length, i);
        status = piece_read(replay, &key->places[1 + i], &piece, at, error);
        at += piece.length;
    }
    entry->value = replay->bytes;
    entry->value_length = record.length;
    entry->expires = record.expires;
    return status;
}

static int record_read(struct persist_replay *replay, const struct replay_key *key,
                       const struct format_reference *reference, struct archive_entry *entry,
                       struct error *error)
{
    struct format_record record;
    if (reference->room)
        return pieces_read(replay, key, reference, entry, error);
    if (!room_make(replay, REPLAY_BLOCK_MAX))
        return error_set(error, BANYAN_ENOMEM, "no memory for a value");
    int status = replay_read(replay, &key->places[0], replay->bytes, error);
    if (status)
        return status;
    if (!format_record_validate(reference, key->key, key->length, FORMAT_PART_VALUE, replay->bytes, &record))
        return place_bad(replay, &key->places[0], error);
    entry->value = record.value;
    entry->value_length = record.length;
    entry->expires = record.expires;
    return 0;
}

static int plain_read(struct persist_replay *replay, const struct replay_key *key,
                      struct archive_entry *entry, struct error *error)
{
    uint64_t at = 0;
    int status = 0;
    entry->value = key->value;
    entry->value_length = key->plain_length;
    entry->expires = key->expires;
    if (!key->plain_places)
        return 0;
    if (!room_make(replay, key->plain_length))
        return error_set(error, BANYAN_ENOMEM, "no memory for a value of %u bytes",
                         (unsigned)key->plain_length);
    for (uint32_t i = 0; i < key->plain_places && !status; i++) {
        const struct replay_place *place = &key->places[i];
        status = replay_read(replay, place, replay->bytes + at, error);
        if (!status && format_record_hash(replay->bytes + at, place->length) != place->hash)
            status = place_bad(replay, place, error);
        at += place->length;
    }
    assert(status || at == key->plain_length);
    entry->value = replay->bytes;
    return status;
}

int replay_value(struct persist_replay *replay, const struct replay_key *key, struct archive_entry *entry,
                 struct error *error)
{
    if (key->plain)
        return plain_read(replay, key, entry, error);
    struct format_value value;
    bool good = format_value_decode(key->value, key->value_length, &value);
    assert(good && "entry_take has looked at it");
    (void)good;
    if (value.record)
        return record_read(replay, key, &value.reference, entry, error);
    entry->value = value.bytes;
    entry->value_length = value.length;
    entry->expires = value.expires;
    return 0;
}

void replay_value_free(struct persist_replay *replay)
{
    disk_file_close(replay->file);
    free(replay->bytes);
}
