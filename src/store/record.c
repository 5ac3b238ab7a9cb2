/*
 * record.c - See record.h. A record is written, and read, in one round trip; the extents of a long value are
 * read with one more.
 */
#include "store/record.h"
#include "store/transfer.h"

#include <assert.h>

#define ROUND_UP(bytes) (((size_t)(bytes) + 63) & ~(size_t)63)
/* Extents that are hashed before the worker's other tasks get their turn: hashing a megabyte takes time. */
#define EXTENTS_IN_A_ROW 4u

/* ---- writing ---- */

/* A record under way. Its blocks are the writer's until a slot refers to them (S1). */
struct writing {
    struct store_session *session;
    struct format_record record;
    gaddr address;
    gaddr extents[FORMAT_EXTENTS_MAX];
    uint32_t allocated; /* extents */
    uint32_t block_bytes;
};

static struct writing writing_of(struct store_session *session, const void *key, size_t key_length,
                                 const struct store_value *value)
{
    return (struct writing){.session = session,
                            .record = {.key = key,
                                       .key_length = key_length,
                                       .expires = value->expires,
                                       .value = value->bytes,
                                       .length = value->length},
                            .block_bytes = format_record_block_bytes(key_length, value->length)};
}

static void writing_release(struct writing *writing)
{
    struct tree_session *tree = writing->session->tree;
    pool_block_release(tree_session_pool(tree), writing->address, writing->block_bytes);
    for (uint32_t i = 0; i < writing->allocated; i++)
        pool_block_release(tree_session_pool(tree), writing->extents[i],
                           format_record_extent_bytes(writing->record.length, i));
}

/* Allocates the blocks, and gives the record its stamp. */
static int writing_begin(struct writing *writing, uint32_t extents)
{
    struct tree_session *tree = writing->session->tree;
    int status =
        pool_block_allocate(tree_session_pool(tree), GADDR_NULL, writing->block_bytes, &writing->address);
    if (status)
        return status;
    while (writing->allocated < extents && !status) {
        uint32_t bytes = format_record_extent_bytes(writing->record.length, writing->allocated);
        status = pool_block_allocate(tree_session_pool(tree), GADDR_NULL, bytes,
                                     &writing->extents[writing->allocated]);
        writing->allocated += !status;
    }
    if (status)
        writing_release(writing);
    else
        writing->record.stamp = writing->session->stamp++;
    return status;
}

/* After a failure of the network the writes may still reach these blocks: they may be used again only when an
 * offline check has reclaimed them. */
static bool failed_for_sure(int status)
{
    return status != BANYAN_ENET && status != BANYAN_ETIMEOUT && status != BANYAN_EFENCED;
}

static int writing_post(struct writing *writing, struct fabric_command *commands, uint32_t count)
{
    struct store_session *session = writing->session;
    uint64_t bytes = 0;
    int status = store_transfer(session, commands, count, NULL);
    if (status) {
        if (failed_for_sure(status))
            writing_release(writing);
        return status;
    }
    for (uint32_t i = 0; i < count; i++)
        bytes += commands[i].length;
    store_count_up(session, records_written, 1);
    store_count_up(session, bytes_written, bytes);
    return 0;
}

static struct fabric_command write_command(gaddr address, const void *data, uint32_t bytes)
{
    return (struct fabric_command){
        .operation = FABRIC_WRITE, .address = address, .length = bytes, .write = {.data = data}};
}

int store_record_write(struct store_session *session, const void *key, size_t key_length,
                       const struct store_value *value, struct format_reference *reference)
{
    uint32_t extents = format_record_extents(key_length, value->length);
    struct writing writing = writing_of(session, key, key_length, value);
    struct fabric_command commands[FORMAT_EXTENTS_MAX + 1];
    pool_session_begin(tree_session_pool(session->tree));
    int status = store_reserve(session, &session->output, writing.block_bytes);
    if (!status)
        status = writing_begin(&writing, extents);
    if (status)
        return status;
    uint8_t *header = session->output.bytes;
    commands[0] = write_command(writing.address, header, writing.block_bytes);
    if (!extents) {
        format_record_encode(header, writing.address, &writing.record, reference);
        return writing_post(&writing, commands, 1);
    }
    format_record_begin(header, &writing.record);
    for (uint32_t i = 0; i < extents; i++) {
        const uint8_t *bytes = value->bytes + (size_t)i * FORMAT_EXTENT_BYTES;
        uint32_t length = format_record_extent_bytes(value->length, i);
        struct format_extent extent = {writing.extents[i], format_record_hash(bytes, length)};
        format_record_extent_set(header, key_length, i, extent);
        commands[1 + i] = write_command(extent.address, bytes, length);
        if (i % EXTENTS_IN_A_ROW == EXTENTS_IN_A_ROW - 1)
            task_yield();
    }
    format_record_seal(header, writing.address, &writing.record, reference);
    return writing_post(&writing, commands, 1 + extents);
}

/* Executes the writes and gives each record the status of its own. */
static void many_post(struct store_session *session, struct store_new_record *records,
                      struct fabric_command *commands, const uint32_t *owners, uint32_t posted)
{
    int statuses[STORE_PUTS_MAX];
    if (!posted)
        return;
    store_transfer(session, commands, posted, statuses);
    for (uint32_t i = 0; i < posted; i++) {
        struct store_new_record *record = &records[owners[i]];
        record->status = statuses[i];
        if (!statuses[i]) {
            store_count_up(session, records_written, 1);
            store_count_up(session, bytes_written, commands[i].length);
        } else if (failed_for_sure(statuses[i])) {
            pool_block_release(tree_session_pool(session->tree), commands[i].address, commands[i].length);
        }
    }
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
                     : ROUND_UP(format_record_block_bytes(records[i].key_length, records[i].value->length));
    pool_session_begin(tree_session_pool(session->tree));
    int status = store_reserve(session, &session->output, bytes);
    uint8_t *block = session->output.bytes;
    for (uint32_t i = 0; i < count; i++) {
        struct store_new_record *record = &records[i];
        if (record->status)
            continue;
        assert(!format_record_extents(record->key_length, record->value->length));
        struct writing writing = writing_of(session, record->key, record->key_length, record->value);
        record->status = status ? status : writing_begin(&writing, 0);
        if (record->status)
            continue;
        format_record_encode(block, writing.address, &writing.record, &record->reference);
        owners[posted] = i;
        commands[posted++] = write_command(writing.address, block, writing.block_bytes);
        block += ROUND_UP(writing.block_bytes);
    }
    many_post(session, records, commands, owners, posted);
}

int store_record_write_header(struct store_session *session, const void *key, size_t key_length,
                              uint64_t length, uint64_t expires, struct format_reference *reference)
{
    const struct store_value value = {.length = length, .expires = expires};
    struct writing writing = writing_of(session, key, key_length, &value);
    uint32_t extents = format_record_extents(key_length, length);
    assert(extents);
    pool_session_begin(tree_session_pool(session->tree));
    int status = store_reserve(session, &session->output, writing.block_bytes);
    if (!status)
        status = writing_begin(&writing, 0);
    if (status)
        return status;
    uint8_t *header = session->output.bytes;
    format_record_begin(header, &writing.record);
    for (uint32_t i = 0; i < extents; i++)
        format_record_extent_set(header, key_length, i, format_record_extent(session->header, key_length, i));
    format_record_seal(header, writing.address, &writing.record, reference);
    struct fabric_command command = write_command(writing.address, header, writing.block_bytes);
    return writing_post(&writing, &command, 1);
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
static int read_status(int status)
{
    return status == BANYAN_ECORRUPT || status == BANYAN_EADDRESS || status == BANYAN_EINVAL ? STORE_STALE
                                                                                             : status;
}

static uint8_t *sink_room(struct store_session *session, enum store_sink sink, size_t bytes)
{
    if (sink == STORE_SINK_BUFFER)
        return store_reserve(session, &session->value, bytes) ? NULL : session->value.bytes;
    uint8_t *room = store_arena_take(session, bytes);
    if (!room)
        store_fail_memory(session);
    return room;
}

/* The value whose record header is in session->header. */
static int extents_read(struct store_session *session, size_t key_length, enum store_sink sink,
                        struct store_value *value)
{
    struct fabric_command reads[FORMAT_EXTENTS_MAX];
    uint32_t extents = format_record_extents(key_length, value->length);
    uint8_t *room = sink_room(session, sink, value->length);
    if (!room)
        return BANYAN_ENOMEM;
    for (uint32_t i = 0; i < extents; i++)
        reads[i] =
            (struct fabric_command){.operation = FABRIC_READ,
                                    .address = format_record_extent(session->header, key_length, i).address,
                                    .length = format_record_extent_bytes(value->length, i),
                                    .read = {.buffer = room + (size_t)i * FORMAT_EXTENT_BYTES}};
    int status = read_status(store_transfer(session, reads, extents, NULL));
    for (uint32_t i = 0; i < extents && !status; i++) {
        if (format_record_hash(reads[i].read.buffer, reads[i].length) !=
            format_record_extent(session->header, key_length, i).hash)
            status = STORE_STALE;
        if (i % EXTENTS_IN_A_ROW == EXTENTS_IN_A_ROW - 1)
            task_yield();
    }
    value->bytes = room;
    return status;
}

int store_record_read(struct store_session *session, const void *key, size_t key_length,
                      const struct format_reference *reference, enum format_part part, enum store_sink sink,
                      struct store_value *value)
{
    uint32_t bytes = format_record_read_bytes(key_length, reference, part);
    bool whole = part == FORMAT_PART_VALUE && !format_record_extents(key_length, reference->length);
    assert(whole || bytes <= sizeof session->header);
    uint8_t *room = whole ? sink_room(session, sink, bytes) : session->header;
    if (!room)
        return BANYAN_ENOMEM;
    struct fabric_command read = {
        .operation = FABRIC_READ, .address = reference->address, .length = bytes, .read = {.buffer = room}};
    int status = read_status(store_transfer(session, &read, 1, NULL));
    if (!status && !store_record_validate(reference, key, key_length, part, room, value))
        status = STORE_STALE;
    if (!status && part == FORMAT_PART_VALUE && !whole)
        status = extents_read(session, key_length, sink, value);
    return status;
}

/* ---- freeing ---- */

void store_record_free(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, bool extents)
{
    uint32_t count = extents ? format_record_extents(key_length, reference->length) : 0;
    uint32_t block_bytes = format_record_block_bytes(key_length, reference->length);
    uint64_t bytes = block_bytes;
    struct store_value value;
    assert(reference->address != GADDR_NULL);
    if (count &&
        store_record_read(session, key, key_length, reference, FORMAT_PART_HEADER, STORE_SINK_BUFFER, &value))
        return; /* damaged or out of reach: an offline check reclaims the blocks */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = format_record_extent_bytes(reference->length, i);
        bytes += length;
        pool_block_release(tree_session_pool(session->tree),
                           format_record_extent(session->header, key_length, i).address, length);
    }
    pool_block_release(tree_session_pool(session->tree), reference->address, block_bytes);
    store_count_up(session, records_freed, 1);
    store_count_up(session, bytes_freed, bytes);
}
