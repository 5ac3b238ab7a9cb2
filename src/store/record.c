/*
 * record.c - See record.h. A record of one block is written with the change that refers to it, and read in
 * one round trip; the pieces of a long value are read with one more for each STORE_TRANSFER_MAX of them.
 */
#include "store/record.h"
#include "store/cached.h"
#include "store/layout.h"
#include "store/pieces.h"
#include "store/transfer.h"
#include "tree/logging.h"

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

/* Whether records are written without a list: the pool is mapped here and ends with the process, and no log
 * carries them (tree/logging.h). */
static bool writes_in_place(const struct store_session *session)
{
    const struct fabric *fabric = tree_session_pool(session->tree)->fabric;
    return fabric->windows && !fabric_stages(fabric) && !tree_session_has_log(session->tree);
}

/* Writes the record to its place, so that the value is copied once. */
static void writing_in_place(struct writing *writing, struct store_fresh *fresh)
{
    struct format_record *record = &writing->record;
    struct pool_session *pool = tree_session_pool(writing->session->tree);
    uint8_t *window = fabric_window(pool->fabric, writing->address, writing->block_bytes);
    const uint32_t before = format_record_header_bytes(record->key_length, 0);
    uint8_t header[FORMAT_RECORD_HEADER_FIXED + FORMAT_KEY_MAX];
    assert(window); /* it has just been allocated there */
    /* release, and the full fence behind the stores: those of a list (G1, G4) */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    /* Of what stands there: a caller's value that changes meanwhile is one value nevertheless. */
    record->value_hash = format_record_copy_to(window + before, record->value, record->length);
    format_record_encode_header(header, writing->address, record, &fresh->reference);
    atomic_copy_to(window, header, before);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (pool->cost) { /* what the list would have cost: fabric_window */
        pool->cost->lists++;
        pool->cost->writes++;
        pool->cost->bytes_written += writing->block_bytes;
    }
    fresh->travels = false;
    store_count_up(writing->session, records_written, 1);
    store_count_up(writing->session, bytes_written, writing->block_bytes);
}

/* `room`: for the block's bytes; NULL: it is written in place. */
static int prepare_whole(struct store_session *session, const void *key, size_t key_length,
                         const struct store_value *value, uint8_t *room, struct store_fresh *fresh)
{
    struct writing writing;
    int status = writing_begin(&writing, session, key, key_length, value);
    if (status)
        return status;
    if (!room) {
        writing_in_place(&writing, fresh);
        return 0;
    }
    format_record_encode(room, writing.address, &writing.record, &fresh->reference);
    fresh->ahead = write_command(writing.address, room, writing.block_bytes);
    fresh->travels = true;
    return 0;
}

void store_fresh_written(struct store_session *session, struct store_fresh *fresh, bool done)
{
    if (!fresh->travels || !done)
        return;
    fresh->travels = false;
    store_count_up(session, records_written, 1);
    store_count_up(session, bytes_written, fresh->ahead.length);
}

void store_fresh_free(struct store_session *session, const void *key, size_t key_length,
                      const struct store_fresh *fresh, int status)
{
    if (!fresh->travels)
        store_record_free(session, key, key_length, &fresh->reference, true);
    else if (store_failed_for_sure(status))
        pool_block_release(tree_session_pool(session->tree), fresh->ahead.address, fresh->ahead.length);
}

static int write_pieces(struct store_session *session, const void *key, size_t key_length,
                        const struct store_value *value, struct store_fresh *fresh)
{
    struct store_layout layout;
    store_layout_begin(&layout, session, key, key_length, value->expires);
    int status = store_layout_cut(&layout, value->bytes, value->length, format_record_grain(value->length));
    if (status) {
        store_layout_withdraw(&layout);
        return status;
    }
    status = store_layout_write(&layout, &fresh->reference);
    if (!status)
        fresh->at_hand = store_layout_at_hand(&layout);
    return status;
}

/* Whether a value that found no block of its size may find pieces: their header must be smaller than that. */
static bool pieces_help(size_t key_length, uint64_t length)
{
    return format_record_header_bytes(key_length, 1) < format_record_whole_bytes(key_length, length);
}

/* Records have been written in place: those of one call are one round trip. */
static void count_in_place(struct store_session *session)
{
    struct fabric_cost *cost = tree_session_pool(session->tree)->cost;
    if (cost)
        cost->round_trips++;
}

int store_record_prepare(struct store_session *session, const void *key, size_t key_length,
                         const struct store_value *value, struct store_fresh *fresh)
{
    *fresh = (struct store_fresh){.travels = false};
    pool_session_begin(tree_session_pool(session->tree));
    if (!format_record_long(key_length, value->length)) {
        const bool in_place = writes_in_place(session);
        int status = in_place ? 0
                              : store_reserve(session, &session->output,
                                              format_record_whole_bytes(key_length, value->length));
        if (!status)
            status = prepare_whole(session, key, key_length, value, in_place ? NULL : session->output.bytes,
                                   fresh);
        if (!status && in_place)
            count_in_place(session);
        if (status != BANYAN_ENOSPC || !pieces_help(key_length, value->length))
            return status;
    }
    return write_pieces(session, key, key_length, value, fresh);
}

int store_record_prepare_many(struct store_session *session, struct store_new_record *records, uint32_t count)
{
    size_t bytes = 0;
    uint32_t prepared = 0;
    assert(count <= STORE_PUTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        bytes += ROUND_UP(format_record_whole_bytes(records[i].key_length, records[i].value->length));
    pool_session_begin(tree_session_pool(session->tree));
    const bool in_place = writes_in_place(session);
    int status = in_place ? 0 : store_reserve(session, &session->output, bytes);
    uint8_t *room = in_place ? NULL : session->output.bytes;
    for (; prepared < count && !status; prepared++) {
        struct store_new_record *record = &records[prepared];
        assert(!format_record_long(record->key_length, record->value->length));
        status = prepare_whole(session, record->key, record->key_length, record->value, room, &record->fresh);
        if (status)
            break;
        if (room)
            room += ROUND_UP(record->fresh.ahead.length);
    }
    if (in_place && prepared)
        count_in_place(session);
    for (uint32_t i = 0; status && i < prepared; i++)
        store_fresh_free(session, records[i].key, records[i].key_length, &records[i].fresh, 0);
    return status;
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
