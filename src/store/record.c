/*
 * record.c - See record.h. A record is written, and read, in one round trip; the pieces of a long value are
 * read with one more for each STORE_TRANSFER_MAX of them.
 */
#include "store/record.h"
#include "store/cached.h"
#include "store/layout.h"
#include "store/pieces.h"
#include "store/transfer.h"

#include <assert.h>

#define ROUND_UP(bytes) (((size_t)(bytes) + 63) & ~(size_t)63)

/* ---- writing ---- */

/* A record under way whose value follows its header. Its block is the writer's until a slot refers to it
 * (S1).
 */
struct writing {
    struct store_session *session;
    struct format_record record;
    gaddr address;
    uint32_t block_bytes;
};

/* Allocates the block, and gives the record its stamp. */
static int writing_begin(struct writing *writing, struct store_session *session, const void *key,
                         size_t key_length, const struct store_value *value)
{
    *writing = (struct writing){.session = session,
                                .record = {.key = key,
                                           .key_length = key_length,
                                           .expires = value->expires,
                                           .value = value->bytes,
                                           .length = value->length},
                                .block_bytes = format_record_whole_bytes(key_length, value->length)};
    int status = pool_block_allocate(tree_session_pool(session->tree), GADDR_NULL, writing->block_bytes,
                                     &writing->address);
    if (!status)
        writing->record.stamp = session->stamp++;
    return status;
}

/* After a failure of the network the writes may still reach these blocks: they may be used again only when an
 * offline check has reclaimed them. */
bool store_failed_for_sure(int status)
{
    return status != BANYAN_ENET && status != BANYAN_ETIMEOUT && status != BANYAN_EFENCED;
}

static struct fabric_command write_command(gaddr address, const void *data, uint32_t bytes)
{
    return (struct fabric_command){
        .operation = FABRIC_WRITE, .address = address, .length = bytes, .write = {.data = data}};
}

/* A record of one block has been written, or not. */
static int writing_settle(struct store_session *session, const struct fabric_command *command, int status)
{
    if (!status) {
        store_count_up(session, records_written, 1);
        store_count_up(session, bytes_written, command->length);
    } else if (store_failed_for_sure(status)) {
        pool_block_release(tree_session_pool(session->tree), command->address, command->length);
    }
    return status;
}

static int write_whole(struct store_session *session, const void *key, size_t key_length,
                       const struct store_value *value, struct format_reference *reference)
{
    struct writing writing;
    int status =
        store_reserve(session, &session->output, format_record_whole_bytes(key_length, value->length));
    if (!status)
        status = writing_begin(&writing, session, key, key_length, value);
    if (status)
        return status;
    format_record_encode(session->output.bytes, writing.address, &writing.record, reference);
    struct fabric_command command =
        write_command(writing.address, session->output.bytes, writing.block_bytes);
    return writing_settle(session, &command, store_transfer(session, &command, 1, NULL));
}

static int write_pieces(struct store_session *session, const void *key, size_t key_length,
                        const struct store_value *value, struct format_reference *reference)
{
    struct store_layout layout;
    store_layout_begin(&layout, session, key, key_length, value->expires);
    int status = store_layout_cut(&layout, value->bytes, value->length, format_record_grain(value->length));
    if (!status)
        return store_layout_write(&layout, reference);
    store_layout_withdraw(&layout);
    return status;
}

/* Whether a value that found no block of its size may find pieces: their header must be smaller than that. */
static bool pieces_help(size_t key_length, uint64_t length)
{
    return format_record_header_bytes(key_length, 1) < format_record_whole_bytes(key_length, length);
}

int store_record_write(struct store_session *session, const void *key, size_t key_length,
                       const struct store_value *value, struct format_reference *reference)
{
    int status = BANYAN_ENOSPC;
    pool_session_begin(tree_session_pool(session->tree));
    if (!format_record_long(key_length, value->length)) {
        status = write_whole(session, key, key_length, value, reference);
        if (status != BANYAN_ENOSPC || !pieces_help(key_length, value->length))
            return status;
    }
    return write_pieces(session, key, key_length, value, reference);
}

/* Executes the writes and gives each record the status of its own. */
static void many_post(struct store_session *session, struct store_new_record *records,
                      struct fabric_command *commands, const uint32_t *owners, uint32_t posted)
{
    int statuses[STORE_PUTS_MAX];
    if (!posted)
        return;
    store_transfer(session, commands, posted, statuses);
    for (uint32_t i = 0; i < posted; i++)
        records[owners[i]].status = writing_settle(session, &commands[i], statuses[i]);
}

void store_record_write_many(struct store_session *session, struct store_new_record *records, uint32_t count)
{
    struct fabric_command commands[STORE_PUTS_MAX];
    uint32_t owners[STORE_PUTS_MAX], posted = 0;
    size_t bytes = 0;
    assert(count <= STORE_PUTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        bytes += records[i].status
                     ? 0
                     : ROUND_UP(format_record_whole_bytes(records[i].key_length, records[i].value->length));
    pool_session_begin(tree_session_pool(session->tree));
    int status = store_reserve(session, &session->output, bytes);
    uint8_t *block = session->output.bytes;
    for (uint32_t i = 0; i < count; i++) {
        struct store_new_record *record = &records[i];
        struct writing writing;
        if (record->status)
            continue;
        assert(!format_record_long(record->key_length, record->value->length));
        record->status =
            status ? status
                   : writing_begin(&writing, session, record->key, record->key_length, record->value);
        if (record->status)
            continue;
        format_record_encode(block, writing.address, &writing.record, &record->reference);
        owners[posted] = i;
        commands[posted++] = write_command(writing.address, block, writing.block_bytes);
        block += ROUND_UP(writing.block_bytes);
    }
    many_post(session, records, commands, owners, posted);
    for (uint32_t i = 0; i < count; i++)
        if (records[i].status == BANYAN_ENOSPC) /* in pieces, or not at all */
            records[i].status = store_record_write(session, records[i].key, records[i].key_length,
                                                   records[i].value, &records[i].reference);
}

int store_record_write_header(struct store_session *session, const void *key, size_t key_length,
                              uint32_t pieces, uint64_t expires, struct format_reference *reference)
{
    struct store_layout layout;
    const struct format_piece *kept = store_pieces_load(session, key_length, pieces);
    if (!kept)
        return BANYAN_ENOMEM;
    pool_session_begin(tree_session_pool(session->tree));
    store_layout_begin(&layout, session, key, key_length, expires);
    int status = store_layout_keep(&layout, kept, pieces);
    return status ? status : store_layout_write(&layout, reference);
}

/* ---- reading ---- */

bool store_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                           enum format_part part, const uint8_t *block, struct store_value *value)
{
    struct format_record record;
    if (!format_record_validate(reference, key, key_length, part, block, &record))
        return false;
    *value =
        (struct store_value){.bytes = record.value, .length = reference->length, .expires = record.expires};
    return true;
}

/* An address that no memory node has stands in a damaged record, or in one that was overwritten. */
int store_read_status(int status)
{
    return status == BANYAN_ECORRUPT || status == BANYAN_EADDRESS || status == BANYAN_EINVAL ? STORE_STALE
                                                                                             : status;
}

uint8_t *store_sink_room(struct store_session *session, enum store_sink sink, size_t bytes)
{
    if (sink == STORE_SINK_BUFFER)
        return store_reserve(session, &session->value, bytes) ? NULL : session->value.bytes;
    uint8_t *room = store_arena_take(session, bytes);
    if (!room)
        store_fail_memory(session);
    return room;
}

int store_record_read_header(struct store_session *session, const void *key, size_t key_length,
                             const struct format_reference *reference, struct format_record *record)
{
    uint32_t bytes = format_record_read_bytes(key_length, reference, FORMAT_PART_HEADER);
    int status = store_reserve(session, &session->header, bytes);
    if (status)
        return status;
    uint8_t *header = session->header.bytes;
    struct fabric_command read = {
        .operation = FABRIC_READ, .address = reference->address, .length = bytes, .read = {.buffer = header}};
    status = store_read_status(store_transfer(session, &read, 1, NULL));
    if (!status && !format_record_validate(reference, key, key_length, FORMAT_PART_HEADER, header, record))
        status = STORE_STALE;
    return status;
}

/* A value that follows its header; `cached`: from the cache, or the cache gets it. */
static int whole_read(struct store_session *session, const void *key, size_t key_length,
                      const struct format_reference *reference, enum store_sink sink, bool cached,
                      struct store_value *value)
{
    uint32_t bytes = format_record_read_bytes(key_length, reference, FORMAT_PART_VALUE);
    uint8_t *room = store_sink_room(session, sink, bytes);
    if (!room)
        return BANYAN_ENOMEM;
    if (cached && store_cached_find(session, key, key_length, reference, room, value))
        return 0;
    struct fabric_command read = {
        .operation = FABRIC_READ, .address = reference->address, .length = bytes, .read = {.buffer = room}};
    int status = store_read_status(store_transfer(session, &read, 1, NULL));
    if (!status && !store_record_validate(reference, key, key_length, FORMAT_PART_VALUE, room, value))
        status = STORE_STALE;
    if (!status && cached)
        store_cached_offer(session, key, key_length, reference, value, true);
    return status;
}

/* The value whose record header is in session->header. */
static int pieces_read(struct store_session *session, size_t key_length, uint32_t count, enum store_sink sink,
                       struct store_value *value)
{
    const struct format_piece *pieces = store_pieces_load(session, key_length, count);
    uint8_t *room = pieces ? store_sink_room(session, sink, store_pieces_room(pieces, count)) : NULL;
    if (!room)
        return BANYAN_ENOMEM;
    value->bytes = room;
    return store_pieces_read(session, key_length, pieces, count, 0, 0, room);
}

int store_record_read(struct store_session *session, const void *key, size_t key_length,
                      const struct format_reference *reference, enum format_part part, enum store_sink sink,
                      struct store_value *value)
{
    struct format_record record;
    if (part == FORMAT_PART_VALUE && !reference->room)
        return whole_read(session, key, key_length, reference, sink, false, value);
    int status = store_record_read_header(session, key, key_length, reference, &record);
    if (status)
        return status;
    *value = (struct store_value){.length = reference->length, .expires = record.expires};
    return part == FORMAT_PART_VALUE ? pieces_read(session, key_length, record.pieces, sink, value) : 0;
}

int store_record_fetch(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, enum format_part part, enum store_sink sink,
                       struct store_value *value)
{
    if (part == FORMAT_PART_VALUE && !reference->room)
        return whole_read(session, key, key_length, reference, sink, true, value);
    return store_record_read(session, key, key_length, reference, part, sink, value);
}

/* ---- freeing ---- */

void store_record_free(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, bool pieces)
{
    uint32_t block_bytes = format_record_block_bytes(key_length, reference);
    uint64_t bytes = block_bytes;
    struct format_record record = {.pieces = 0};
    assert(reference->address != GADDR_NULL);
    if (pieces && reference->room && store_record_read_header(session, key, key_length, reference, &record))
        return; /* damaged or out of reach: an offline check reclaims the blocks */
    for (uint32_t i = 0; i < record.pieces; i++) {
        struct format_piece piece = format_record_piece(session->header.bytes, key_length, i);
        bytes += store_piece_free(session, key_length, &piece);
    }
    store_cached_forget(session, key, key_length, reference);
    pool_block_release(tree_session_pool(session->tree), reference->address, block_bytes);
    store_count_up(session, records_freed, 1);
    store_count_up(session, bytes_freed, bytes);
}
