/* replay.c - see replay.h: what records say (persist_replay_record), and what it comes to. */
#include "persist/replay.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "persist/format.h"
#include "persist/replay_private.h"

#define CHUNK_BYTES ((size_t)1 << 20)

/* ---- keys ---- */

static uint64_t hash_of(uint16_t index, struct format_key key)
{
    return format_key_hash(key) ^ ((uint64_t)index * UINT64_C(0x9e3779b97f4a7c15));
}

static struct replay_key **bucket_of(const struct persist_replay *replay, uint64_t hash)
{
    return &replay->buckets[hash & (replay->capacity - 1)];
}

static bool keys_grow(struct persist_replay *replay)
{
    const uint64_t capacity = replay->capacity ? 2 * replay->capacity : 1024;
    struct replay_key **old = replay->buckets, **buckets = calloc(capacity, sizeof *buckets);
    const uint64_t were = replay->capacity;
    if (!buckets)
        return false;
    replay->buckets = buckets;
    replay->capacity = capacity;
    for (uint64_t i = 0; i < were; i++)
        while (old[i]) {
            struct replay_key *key = old[i], **to = bucket_of(replay, key->hash);
            old[i] = key->chain;
            key->chain = *to;
            *to = key;
        }
    free(old);
    return true;
}

void *replay_allocate(struct persist_replay *replay, size_t bytes)
{
    const size_t room = (bytes + 15) & ~(size_t)15;
    assert(room <= CHUNK_BYTES);
    if (!replay->chunks || replay->chunk_used + room > CHUNK_BYTES) {
        struct replay_chunk *chunk = malloc(sizeof *chunk + CHUNK_BYTES);
        if (!chunk)
            return NULL;
        chunk->next = replay->chunks;
        replay->chunks = chunk;
        replay->chunk_used = 0;
    }
    void *at = replay->chunks->bytes + replay->chunk_used;
    replay->chunk_used += room;
    return at;
}

bool replay_key_keep(struct persist_replay *replay, struct replay_key *key, const uint8_t *bytes,
                     uint8_t length)
{
    if (length > key->value_room * 8u) {
        const uint8_t room = (uint8_t)((length + 7) / 8);
        uint8_t *value = replay_allocate(replay, room * 8u);
        if (!value)
            return false;
        key->value = value;
        key->value_room = room;
    }
    if (length)
        memcpy(key->value, bytes, length);
    return true;
}

static struct replay_key *key_make(struct persist_replay *replay, uint16_t index, struct format_key key,
                                   uint64_t hash)
{
    struct replay_key *made = replay_allocate(replay, sizeof *made + key.length);
    if (!made)
        return NULL;
    *made = (struct replay_key){.chain = NULL};
    made->hash = hash;
    made->index = index;
    made->length = (uint16_t)key.length;
    if (key.length)
        memcpy(made->key, key.bytes, key.length);
    return made;
}

static struct replay_key **key_find(const struct persist_replay *replay, uint16_t index,
                                    struct format_key key, uint64_t hash)
{
    struct replay_key **at = bucket_of(replay, hash);
    while (*at && ((*at)->hash != hash || (*at)->index != index || (*at)->length != key.length ||
                   (key.length && memcmp((*at)->key, key.bytes, key.length))))
        at = &(*at)->chain;
    return at;
}

struct replay_key *replay_key_get(struct persist_replay *replay, uint16_t index, struct format_key key)
{
    const uint64_t hash = hash_of(index, key);
    if (replay->keys >= replay->capacity && !keys_grow(replay))
        return NULL;
    struct replay_key **at = key_find(replay, index, key, hash);
    if (!*at) {
        *at = key_make(replay, index, key, hash);
        replay->keys += *at != NULL;
    }
    return *at;
}

void replay_key_clear(struct replay_key *key)
{
    free(key->places);
    key->places = NULL;
    key->plain = false;
    key->plain_length = key->plain_places = 0;
    key->expires = 0;
}

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
        const struct replay_block *block = NULL;
        if (piece.block == GADDR_NULL)
            continue;
        block = replay_block_find(replay, format_piece_address(key->length, &piece));
        if (!block || block->hash != piece.hash || block->place.length != piece.length) {
            found->there = false;
            found->lost |= on_lost(replay, piece.block);
            continue;
        }
        places[i] = block->place;
    }
}

/* Finds the record, and each of its pieces, which stood before the frame. *places is the caller's. */
static int places_find(struct persist_replay *replay, const struct format_key *key,
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

static int entry_take(struct persist_replay *replay, const struct format_log_entry *entry,
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
    struct replay_key *key = replay_key_get(replay, entry->index, entry->key);
    if (!key)
        return error_set(error, BANYAN_ENOMEM, "no memory for the keys of a log");
    if (!newer(key, entry))
        return 0;
    if (entry->kind == FORMAT_LOG_PUT && !plain &&
        !format_value_decode(entry->value, entry->value_length, &value))
        return error_set(error, BANYAN_ECORRUPT, "an entry's value is none that a store writes");
    if (value.record)
        status = places_find(replay, &entry->key, &value.reference, &places, &found, error);
    if (status || !found.there) { /* P3 */
        replay->stats.missing += !status;
        if (!status && found.lost)
            entry_miss(key, entry);
        free(places);
        return status;
    }
    replay_key_clear(key);
    key->places = places;
    key->epoch = entry->epoch;
    key->sequence = entry->sequence;
    key->present = entry->kind == FORMAT_LOG_PUT;
    key->plain = plain;
    key->plain_length = plain ? entry->value_length : 0;
    key->value_length = entry->value_length;
    return replay_key_keep(replay, key, entry->value, entry->value_length)
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

static int frame_take(struct persist_replay *replay, const struct journal_record *record, struct error *error)
{
    struct persist_frame frame;
    struct format_log_entry entry;
    uint32_t at = 0;
    int status = 0;
    if (!persist_frame_decode(record->kind, record->bytes, record->length, &frame))
        return error_set(error, BANYAN_ECORRUPT, "a frame of a log makes no sense");
    replay->stats.frames++;
    status = process_note(replay, &frame, error);
    while (!status && format_log_frame_next(&frame.view, &at, &entry))
        status = entry_take(replay, &entry, error);
    return status;
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
    return replay_block_add(replay, &block) ? 0
                                            : error_set(error, BANYAN_ENOMEM, "no memory for a log's blocks");
}

int persist_replay_record(void *context, const struct journal_record *record, struct error *error)
{
    struct persist_replay *replay = context;
    struct error reason = {0};
    int status = BANYAN_ECORRUPT;
    if (record->kind == PERSIST_BLOCK)
        status = block_take(replay, record, &reason);
    else if (record->kind == PERSIST_FRAME || record->kind == PERSIST_FRAME_TELLING)
        status = frame_take(replay, record, &reason);
    else if (record->kind == PERSIST_BYTES)
        status = replay_plain_bytes(replay, record, &reason);
    else if (record->kind == PERSIST_VALUES)
        status = replay_plain_values(replay, record, &reason);
    else if (record->kind == PERSIST_INDEX)
        status = replay_index_take(replay, record, &reason);
    else
        error_set(&reason, status, "a record of kind %u, which this release does not know",
                  (unsigned)record->kind);
    if (!status)
        return 0;
    return error_set(error, status, "%s: file %u of the journal, at byte %" PRIu64 ": %s",
                     disk_path(replay->disks[replay->disk]), (unsigned)record->file, record->offset,
                     reason.text);
}

/* ---- what it comes to ---- */

static int key_order(const void *left, const void *right)
{
    const struct replay_sorted *first = left, *second = right;
    const struct replay_key *a = first->key, *b = second->key;
    if (first->part != second->part)
        return first->part < second->part ? -1 : 1;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return format_key_compare((struct format_key){a->key, a->length}, (struct format_key){b->key, b->length});
}

/* How many bytes all keys begin with in common. */
static uint32_t common_bytes(const struct persist_replay *replay)
{
    const struct replay_key *first = replay->sorted_count ? replay->sorted[0].key : NULL;
    uint32_t common = first ? first->length : 0;
    for (uint64_t i = 1; i < replay->sorted_count && common; i++) {
        const struct replay_key *key = replay->sorted[i].key;
        uint32_t same = 0;
        while (same < common && same < key->length && key->key[same] == first->key[same])
            same++;
        common = same;
    }
    return common;
}

/* Zeros behind a key's end come first, as the shorter key does. Of several indexes the index is the first
 * part. */
static uint64_t part_of(const struct replay_key *key, uint32_t from, bool indexes)
{
    uint64_t part = 0;
    for (uint32_t i = 0; i < 8; i++)
        part = part << 8 | (from + i < key->length ? key->key[from + i] : 0);
    return indexes ? (uint64_t)key->index << 48 | part >> 16 : part;
}

int persist_replay_sort(struct persist_replay *replay, struct error *error)
{
    bool indexes = false;
    free(replay->sorted);
    replay->sorted_count = replay->sorted_at = 0;
    replay->sorted = malloc((replay->keys + 1) * sizeof *replay->sorted);
    if (!replay->sorted)
        return error_set(error, BANYAN_ENOMEM, "no memory to sort what the logs have");
    for (uint64_t i = 0; i < replay->capacity; i++)
        for (struct replay_key *key = replay->buckets[i]; key; key = key->chain)
            if (key->sequence) {
                indexes |= replay->sorted_count && key->index != replay->sorted[0].key->index;
                replay->sorted[replay->sorted_count++].key = key;
            }
    const uint32_t from = common_bytes(replay);
    for (uint64_t i = 0; i < replay->sorted_count; i++)
        replay->sorted[i].part = part_of(replay->sorted[i].key, from, indexes);
    qsort(replay->sorted, replay->sorted_count, sizeof *replay->sorted, key_order);
    return 0;
}

uint64_t persist_replay_keys(const struct persist_replay *replay)
{
    return replay->sorted_count;
}

bool persist_replay_peek(const struct persist_replay *replay, struct persist_replay_key *key)
{
    if (replay->sorted_at == replay->sorted_count)
        return false;
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
    if (made && made->header)
        return 0;
    persist_replay_destroy(made);
    *replay = NULL;
    return error_set(error, BANYAN_ENOMEM, "no memory to read logs from a disk");
}

void persist_replay_destroy(struct persist_replay *replay)
{
    if (!replay)
        return;
    for (uint64_t i = 0; i < replay->capacity; i++)
        for (struct replay_key *key = replay->buckets[i]; key; key = key->chain)
            free(key->places);
    while (replay->chunks) {
        struct replay_chunk *chunk = replay->chunks;
        replay->chunks = chunk->next;
        free(chunk);
    }
    free(replay->buckets);
    replay_blocks_free(replay);
    replay_indexes_free(replay);
    replay_value_free(replay);
    free(replay->processes);
    free(replay->parts);
    free(replay->sorted);
    free(replay->header);
    free(replay);
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

uint64_t persist_replay_missed(const struct persist_replay *replay, persist_replay_missed_visit *visit,
                               void *context)
{
    uint64_t missed = 0;
    for (uint64_t i = 0; i < replay->capacity; i++)
        for (const struct replay_key *key = replay->buckets[i]; key; key = key->chain) {
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
