/* replay.c - see replay.h: what records say (persist_replay_record), and what it comes to. */
#include "persist/replay.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "persist/format.h"
#include "persist/replay_private.h"

/* ---- what an entry's value lies in ---- */

static bool block_good(const struct format_reference *reference, size_t key_length,
                       const struct replay_block *block)
{
    const uint32_t bytes = reference->room
                               ? format_record_read_bytes(key_length, reference, FORMAT_PART_HEADER)
                               : format_record_block_bytes(key_length, reference);
    return block && block->place.length == bytes && format_reference_check(block->first) == reference->check;
}

/* Whether it lies on a memory node whose disk is lost. */
static bool on_lost(const struct persist_replay *replay, gaddr address)
{
    return gaddr_node(address) < REPLAY_DISKS_MAX && replay->lost[gaddr_node(address)];
}

/* What an entry's value lies in is there; or it is not, and some of it lay on a memory node whose disk is
 * lost.
 */
struct found {
    bool there, lost;
};

static void pieces_find(struct persist_replay *replay, const struct format_key *key,
                        const struct format_record *record, struct replay_place *places, struct found *found)
{
    for (uint32_t i = 0; i < record->pieces; i++) {
        const struct format_piece piece = format_record_piece(replay->header, key->length, i);
        if (piece.block == GADDR_NULL)
            continue;
        const struct replay_place *place =
            replay_piece_find(replay, format_piece_address(key->length, &piece), &piece);
        if (place)
            places[i] = *place;
        found->there &= place != NULL;
        found->lost |= !place && on_lost(replay, piece.block);
    }
}

/* Finds the record, and each of its pieces, which stood before the frame. *places is the caller's. */
static int value_places(struct persist_replay *replay, const struct format_key *key,
                        const struct format_reference *reference, struct replay_place **places,
                        struct found *found, struct error *error)
{
    const struct replay_block *block = replay_block_find(replay, reference->address);
    struct format_record record;
    uint32_t pieces = 0;
    *found = (struct found){.lost = on_lost(replay, reference->address)};
    if (!block_good(reference, key->length, block))
        return 0;
    if (reference->room) {
        int status = replay_read(replay, &block->place, replay->header, error);
        if (status)
            return status;
        if (!format_record_validate(reference, key->bytes, key->length, FORMAT_PART_HEADER, replay->header,
                                    &record))
            return 0;
        pieces = record.pieces;
    }
    *places = calloc(1 + pieces, sizeof **places);
    if (!*places)
        return error_set(error, BANYAN_ENOMEM, "no memory for the pieces of a value");
    (*places)[0] = block->place;
    *found = (struct found){.there = true};
    if (pieces)
        pieces_find(replay, key, &record, *places + 1, found);
    return 0;
}

/* ---- entries ---- */

static bool newer(const struct replay_key *key, const struct format_log_entry *entry)
{
    if (!key->sequence)
        return true;
    return entry->epoch != key->epoch ? entry->epoch > key->epoch : entry->sequence > key->sequence;
}

/* The entry's value went with a disk: it may be the key's newest one. */
static void entry_miss(struct replay_key *key, const struct format_log_entry *entry)
{
    if (key->missed_sequence && (entry->epoch != key->missed_epoch ? entry->epoch < key->missed_epoch
                                                                   : entry->sequence <= key->missed_sequence))
        return;
    key->missed_epoch = entry->epoch;
    key->missed_sequence = entry->sequence;
}

static int entry_take(struct persist_replay *replay, const struct format_log_entry *entry, uint64_t hash,
                      struct error *error)
{
    struct replay_place *places = NULL;
    struct format_value value = {0};
    const struct persist_index *index = persist_replay_index(replay, entry->index);
    const bool plain = index && index->geometry.content == FORMAT_CONTENT_PLAIN; /* no store's values */
    struct found found = {.there = true};
    int status = 0;
    replay->stats.entries++;
    if (replay->table &&
        persist_table_covers(replay->table, entry->index, entry->key, entry->epoch, entry->sequence)) {
        replay->stats.covered++;
        return 0;
    }
    struct replay_shard *shard = replay_shard_of(replay, hash);
    struct replay_key *key = replay_key_get(shard, entry->index, entry->key, hash);
    if (!key)
        return error_set(error, BANYAN_ENOMEM, "no memory for the keys of a log");
    if (!newer(key, entry))
        return 0;
    if (entry->kind == FORMAT_LOG_PUT && !plain &&
        !format_value_decode(entry->value, entry->value_length, &value))
        return error_set(error, BANYAN_ECORRUPT, "an entry's value is none that a store writes");
    if (value.record)
        status = value_places(replay, &entry->key, &value.reference, &places, &found, error);
    if (status || !found.there) { /* P3 */
        replay->stats.missing += !status;
        if (!status && found.lost)
            entry_miss(key, entry);
        free(places);
        return status;
    }
    replay_key_clear(key);
    replay_key_place(shard, key, places);
    key->epoch = entry->epoch;
    key->sequence = entry->sequence;
    key->present = entry->kind == FORMAT_LOG_PUT;
    key->plain = plain;
    key->plain_length = plain ? entry->value_length : 0;
    key->value_length = entry->value_length;
    return replay_key_keep(shard, key, entry->value, entry->value_length)
               ? 0
               : error_set(error, BANYAN_ENOMEM, "no memory for the values of a log");
}

static struct persist_replay_process *process_find(struct persist_replay *replay,
                                                   struct fabric_process process)
{
    uint32_t at = replay->process_last;
    if (at < replay->process_count && fabric_process_equal(replay->processes[at].process, process))
        return &replay->processes[at];
    for (at = 0; at < replay->process_count; at++)
        if (fabric_process_equal(replay->processes[at].process, process))
            break;
    replay->process_last = at;
    if (at < replay->process_count)
        return &replay->processes[at];
    if (at == replay->process_capacity) {
        const uint32_t capacity = at ? 2 * at : 16;
        struct persist_replay_process *grown = realloc(replay->processes, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        replay->processes = grown;
        replay->process_capacity = capacity;
    }
    replay->processes[at] = (struct persist_replay_process){.process = process};
    replay->process_count++;
    return &replay->processes[at];
}

static int process_note(struct persist_replay *replay, const struct persist_frame *frame, struct error *error)
{
    struct persist_replay_process *process = process_find(replay, frame->process);
    if (!process)
        return error_set(error, BANYAN_ENOMEM, "no memory for the processes that have logged");
    process->frames++;
    process->silent |= !frame->tells;
    process->alone |= frame->alone;
    if (frame->view.first > process->last)
        process->last = frame->view.first;
    return 0;
}

/* Takes the frame's entries, some at a time, whose keys are looked for together. */
static int entries_take(struct persist_replay *replay, const struct format_log_view *view,
                        struct error *error)
{
    struct format_log_entry entries[REPLAY_AHEAD];
    uint64_t hashes[REPLAY_AHEAD];
    uint32_t at = 0, count = REPLAY_AHEAD;
    int status = 0;
    while (!status && count == REPLAY_AHEAD) {
        for (count = 0; count < REPLAY_AHEAD && format_log_frame_next(view, &at, &entries[count]); count++)
            hashes[count] = replay_key_hash(entries[count].index, entries[count].key);
        replay_keys_ahead(replay, hashes, count);
        for (uint32_t i = 0; i < count && !status; i++)
            status = entry_take(replay, &entries[i], hashes[i], error);
    }
    return status;
}

/* Its entries are taken by the calling thread alone, and so are all values that come behind them: journals
 * that have both are none that a release writes. */
static int frame_take(struct persist_replay *replay, const struct journal_record *record, struct error *error)
{
    struct persist_frame frame;
    replay->alone = true;
    int status = replay_threads_settle(replay, error);
    if (status)
        return status;
    if (!persist_frame_decode(record->kind, record->bytes, record->length, &frame))
        return error_set(error, BANYAN_ECORRUPT, "a frame of a log makes no sense");
    replay->stats.frames++;
    status = process_note(replay, &frame, error);
    return status ? status : entries_take(replay, &frame.view, error);
}

static int block_take(struct persist_replay *replay, const struct journal_record *record, struct error *error)
{
    gaddr address;
    if (record->length <= PERSIST_BLOCK_HEADER || record->length > PERSIST_BLOCK_HEADER + REPLAY_BLOCK_MAX)
        return error_set(error, BANYAN_ECORRUPT, "a block of a record has no possible length");
    memcpy(&address, record->bytes, PERSIST_BLOCK_HEADER);
    if (address == GADDR_NULL)
        return error_set(error, BANYAN_ECORRUPT, "a block of a record has no address");
    const uint8_t *bytes = record->bytes + PERSIST_BLOCK_HEADER;
    const uint32_t length = record->length - PERSIST_BLOCK_HEADER;
    struct replay_block block = {
        .address = address,
        .hash = format_record_hash(bytes, length),
        .place = {.disk = replay->disk,
                  .file = record->file,
                  .length = length,
                  .offset = record->offset + JOURNAL_RECORD_BYTES + PERSIST_BLOCK_HEADER}};
    memcpy(&block.first, bytes, length < 8 ? length : 8);
    replay->stats.blocks++;
    const bool added =
        record->kind == PERSIST_PIECE ? replay_piece_add(replay, &block) : replay_block_add(replay, &block);
    return added ? 0 : error_set(error, BANYAN_ENOMEM, "no memory for a log's blocks");
}

int replay_record_bad(const struct persist_replay *replay, uint16_t disk, const struct journal_record *record,
                      int status, const struct error *reason, struct error *error)
{
    return error_set(error, status, "%s: file %u of the journal, at byte %" PRIu64 ": %s",
                     disk_path(replay->disks[disk]), (unsigned)record->file, record->offset, reason->text);
}

static int record_take(struct persist_replay *replay, const struct journal_record *record,
                       struct error *error)
{
    switch (record->kind) {
    case PERSIST_BLOCK:
    case PERSIST_PIECE:
        return block_take(replay, record, error);
    case PERSIST_FRAME:
    case PERSIST_FRAME_TELLING:
        return frame_take(replay, record, error);
    case PERSIST_BYTES:
        return replay_plain_bytes(replay, record, error);
    case PERSIST_VALUES:
        return replay_plain_values(replay, record, error);
    case PERSIST_INDEX:
        return replay_index_take(replay, record, error);
    default:
        return error_set(error, BANYAN_ECORRUPT, "a record of kind %u, which this release does not know",
                         (unsigned)record->kind);
    }
}

int persist_replay_record(void *context, const struct journal_record *record, struct error *error)
{
    struct persist_replay *replay = context;
    struct error reason = {0};
    const int status = replay_threads_failed(replay) ? 0 : record_take(replay, record, &reason);
    if (!status && !replay_threads_failed(replay))
        return 0;
    const int earlier = replay_threads_settle(replay, error); /* of a record before this one */
    return earlier ? earlier : replay_record_bad(replay, replay->disk, record, status, &reason, error);
}

int persist_replay_settle(void *context, struct error *error)
{
    return replay_threads_settle(context, error);
}

/* ---- what it comes to ---- */

uint64_t persist_replay_keys(const struct persist_replay *replay)
{
    return replay->sorted_count;
}

bool persist_replay_peek(const struct persist_replay *replay, struct persist_replay_key *key)
{
    if (replay->sorted_at == replay->sorted_count)
        return false;
    replay_order_ahead(replay);
    const struct replay_key *next = replay->sorted[replay->sorted_at].key;
    *key = (struct persist_replay_key){
        .index = next->index, .key = next->key, .key_length = next->length, .present = next->present};
    return true;
}

int persist_replay_take(struct persist_replay *replay, struct archive_entry *entry, struct error *error)
{
    assert(replay->sorted_at < replay->sorted_count);
    const struct replay_key *key = replay->sorted[replay->sorted_at++].key;
    assert(key->present);
    *entry = (struct archive_entry){.key = key->key, .key_length = key->length};
    return replay_value(replay, key, entry, error);
}

void persist_replay_skip(struct persist_replay *replay)
{
    assert(replay->sorted_at < replay->sorted_count);
    replay->sorted_at++;
}

int persist_replay_all(struct persist_replay *replay, persist_replay_visit *visit, void *context,
                       struct error *error)
{
    struct persist_replay_key key;
    struct archive_entry entry;
    int status = persist_replay_sort(replay, error);
    replay->stats.keys = 0;
    while (!status && persist_replay_peek(replay, &key)) {
        if (!key.present) {
            persist_replay_skip(replay);
            continue;
        }
        replay->stats.keys++;
        status = persist_replay_take(replay, &entry, error);
        if (!status)
            status = visit(context, key.index, &entry, error);
    }
    return status;
}

/* ---- lifetime ---- */

int persist_replay_create(struct persist_replay **replay, struct disk *const *disks, uint16_t count,
                          struct error *error)
{
    struct persist_replay *made = calloc(1, sizeof *made);
    assert(count && count <= REPLAY_DISKS_MAX);
    *replay = made;
    if (made) {
        memcpy(made->disks, disks, count * sizeof(struct disk *));
        made->disk_count = count;
        made->header = malloc(FORMAT_RECORD_HEADER_MAX);
    }
    if (made && made->header && replay_shards_make(made, 1))
        return 0;
    persist_replay_destroy(made);
    *replay = NULL;
    return error_set(error, BANYAN_ENOMEM, "no memory to read logs from a disk");
}

void persist_replay_destroy(struct persist_replay *replay)
{
    if (!replay)
        return;
    (void)replay_threads_settle(replay, NULL);
    replay_keys_free(replay);
    replay_blocks_free(replay);
    replay_indexes_free(replay);
    replay_value_free(replay);
    free(replay->processes);
    free(replay->parts);
    free(replay->sorted);
    free(replay->header);
    free(replay);
}

int persist_replay_threads(struct persist_replay *replay, unsigned threads, struct error *error)
{
    assert(threads && !replay->begun);
    if (replay_shards_make(replay, threads < REPLAY_SHARDS_MAX ? threads : REPLAY_SHARDS_MAX))
        return 0;
    return error_set(error, BANYAN_ENOMEM, "no memory to read a journal with %u threads", threads);
}

void persist_replay_over(struct persist_replay *replay, const struct persist_table *table)
{
    replay->table = table;
}

void persist_replay_lost(struct persist_replay *replay, const bool *lost, uint16_t count)
{
    assert(count <= REPLAY_DISKS_MAX);
    memcpy(replay->lost, lost, count * sizeof *lost);
}

void persist_replay_next(struct persist_replay *replay, uint16_t disk)
{
    assert(disk < replay->disk_count);
    replay->disk = disk;
    if (!replay->begun)
        replay->names_disk = disk;
    replay->begun = true;
}

void persist_replay_stats(const struct persist_replay *replay, struct persist_replay_stats *stats)
{
    *stats = replay->stats;
    for (uint32_t i = 0; i < replay->shard_count; i++)
        stats->entries += replay->shards[i].entries;
}

const struct persist_replay_process *persist_replay_process_next(const struct persist_replay *replay,
                                                                 uint32_t *at)
{
    return *at < replay->process_count ? &replay->processes[(*at)++] : NULL;
}

static bool key_missed(const struct replay_key *key)
{
    return key->missed_sequence && (key->missed_epoch != key->epoch ? key->missed_epoch > key->epoch
                                                                    : key->missed_sequence > key->sequence);
}

static uint64_t shard_missed(const struct replay_shard *shard, persist_replay_missed_visit *visit,
                             void *context)
{
    uint64_t missed = 0;
    for (const struct replay_key *key = shard->first; key; key = key->next) {
        if (!key_missed(key))
            continue;
        missed++;
        visit(context, &(struct persist_replay_key){.index = key->index,
                                                    .key = key->key,
                                                    .key_length = key->length,
                                                    .present = key->sequence && key->present});
    }
    return missed;
}

uint64_t persist_replay_missed(const struct persist_replay *replay, persist_replay_missed_visit *visit,
                               void *context)
{
    uint64_t missed = 0;
    for (uint32_t i = 0; i < replay->shard_count; i++)
        missed += shard_missed(&replay->shards[i], visit, context);
    return missed;
}
