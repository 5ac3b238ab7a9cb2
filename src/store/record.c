/*
 * record.c - values outside of the index: how they lie in the pool, writing, reading, judging and freeing
 * them. One round trip each; a value in extents is read with one more. Called by the store's other files, on
 * any task.
 *
 * A record is a block:
 *
 *   u64 hash         XXH3-64 of the head behind it, seeded with the block's address
 *   u64 stamp        different for each record ever written: no two heads are equal
 *   u64 expires      ms since 1970; 0: never
 *   u64 value hash   XXH3-64 of a value that follows in the block; 0 for one in extents
 *   u32 length       of the value
 *   u8 length        of the key
 *   key
 *   extents          {u64 address, u64 hash} each: for values that would make the block longer than 64 KiB
 *
 * All but the stamp, the hashes and addresses follows from the key and the slot, so that a reader knows what
 * it will get, and how long, before it reads. The head ends before the value, and proves itself without it.
 * Integers are little-endian and packed.
 */
#include "store/record.h"
#include "store/transfer.h"

#include <assert.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK_MAX       65536u
#define EXTENT_BYTES    FABRIC_LENGTH_MAX
#define ROUND_UP(bytes) (((size_t)(bytes) + 63) & ~(size_t)63)

enum {
    AT_HASH = 0,
    AT_STAMP = 8,
    AT_EXPIRES = 16,
    AT_VALUE_HASH = 24,
    AT_LENGTH = 32,
    AT_KEY_LENGTH = 36,
    AT_KEY = STORE_HEAD_FIXED,
};

static uint64_t load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void store64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint64_t head_hash(gaddr address, const uint8_t *head, uint32_t bytes)
{
    return XXH3_64bits_withSeed(head + AT_STAMP, bytes - AT_STAMP, address);
}

/* ---- sizes ---- */

uint32_t store_record_extents(size_t key_length, uint64_t length)
{
    if (STORE_HEAD_FIXED + key_length + length <= BLOCK_MAX)
        return 0;
    return (uint32_t)((length + EXTENT_BYTES - 1) / EXTENT_BYTES);
}

uint32_t store_record_extent_bytes(uint64_t length, uint32_t number)
{
    uint64_t left = length - (uint64_t)number * EXTENT_BYTES;
    return left < EXTENT_BYTES ? (uint32_t)left : EXTENT_BYTES;
}

uint32_t store_record_head_bytes(size_t key_length, uint64_t length)
{
    return STORE_HEAD_FIXED + (uint32_t)key_length + 16u * store_record_extents(key_length, length);
}

uint32_t store_record_block_bytes(size_t key_length, uint64_t length)
{
    uint32_t head = store_record_head_bytes(key_length, length);
    return store_record_extents(key_length, length) ? head : head + (uint32_t)length;
}

uint32_t store_record_read_bytes(size_t key_length, const struct store_reference *reference,
                                 enum store_part part)
{
    return part == STORE_PART_VALUE ? store_record_block_bytes(key_length, reference->length)
                                    : store_record_head_bytes(key_length, reference->length);
}

static uint8_t *extent_at(uint8_t *head, size_t key_length, uint32_t number)
{
    return head + AT_KEY + key_length + 16u * number;
}

gaddr store_record_extent(const struct store_session *session, size_t key_length, uint32_t number)
{
    return load64(session->head + AT_KEY + key_length + 16u * number);
}

/* ---- writing ---- */

struct writing {
    struct store_session *session;
    const void *key;
    size_t key_length;
    gaddr address;
    gaddr extents[STORE_EXTENTS_MAX];
    uint32_t allocated; /* extents */
    uint32_t block_bytes;
};

/* All but hash, extents and value. */
static void head_begin(struct writing *writing, uint8_t *head, uint64_t length, uint64_t expires)
{
    uint32_t length32 = (uint32_t)length;
    store64(head + AT_STAMP, writing->session->stamp++);
    store64(head + AT_EXPIRES, expires);
    store64(head + AT_VALUE_HASH, 0);
    memcpy(head + AT_LENGTH, &length32, sizeof length32);
    head[AT_KEY_LENGTH] = (uint8_t)writing->key_length;
    memcpy(head + AT_KEY, writing->key, writing->key_length);
}

static void head_end(struct writing *writing, uint8_t *head, uint64_t length, bool expires,
                     struct store_reference *reference)
{
    uint64_t hash = head_hash(writing->address, head, store_record_head_bytes(writing->key_length, length));
    store64(head + AT_HASH, hash);
    *reference = (struct store_reference){.address = writing->address,
                                          .check = store_slot_check(hash),
                                          .length = (uint32_t)length,
                                          .expires = expires};
}

static void writing_release(struct writing *writing, uint64_t length)
{
    tree_block_release(writing->session->tree, writing->address, writing->block_bytes);
    for (uint32_t i = 0; i < writing->allocated; i++)
        tree_block_release(writing->session->tree, writing->extents[i], store_record_extent_bytes(length, i));
}

static int writing_allocate(struct writing *writing, uint64_t length, uint32_t extents)
{
    struct tree_session *tree = writing->session->tree;
    int status = tree_block_allocate(tree, GADDR_NULL, writing->block_bytes, &writing->address);
    if (status)
        return status;
    while (writing->allocated < extents && !status) {
        status = tree_block_allocate(tree, GADDR_NULL, store_record_extent_bytes(length, writing->allocated),
                                     &writing->extents[writing->allocated]);
        writing->allocated += !status;
    }
    if (status)
        writing_release(writing, length);
    return status;
}

/* When the network fails, the writes may still be on their way into these blocks: then nobody may get them
 * before an offline check has reclaimed them. */
static bool failed_for_sure(int status)
{
    return status != BANYAN_ENET && status != BANYAN_ETIMEOUT && status != BANYAN_EFENCED;
}

static int writing_post(struct writing *writing, struct fabric_command *commands, uint32_t count,
                        uint64_t length)
{
    struct store_session *session = writing->session;
    uint64_t bytes = 0;
    int status = store_transfer(session, commands, count, NULL);
    if (status) {
        if (failed_for_sure(status))
            writing_release(writing, length);
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

/* Of a record without extents: its block, built at `head`. */
static void block_fill(struct writing *writing, uint8_t *head, const struct store_value *value,
                       struct store_reference *reference)
{
    uint8_t *bytes = head + AT_KEY + writing->key_length;
    head_begin(writing, head, value->length, value->expires);
    memcpy(bytes, value->bytes, value->length);
    store64(head + AT_VALUE_HASH, XXH3_64bits(bytes, value->length));
    head_end(writing, head, value->length, value->expires != 0, reference);
}

int store_record_write(struct store_session *session, const void *key, size_t key_length,
                       const struct store_value *value, struct store_reference *reference)
{
    uint32_t extents = store_record_extents(key_length, value->length);
    struct writing writing = {.session = session,
                              .key = key,
                              .key_length = key_length,
                              .block_bytes = store_record_block_bytes(key_length, value->length)};
    struct fabric_command commands[STORE_EXTENTS_MAX + 1];
    tree_session_begin(session->tree);
    int status = store_reserve(session, &session->output, writing.block_bytes);
    if (!status)
        status = writing_allocate(&writing, value->length, extents);
    if (status)
        return status;
    uint8_t *head = session->output.bytes;
    if (!extents) {
        block_fill(&writing, head, value, reference);
        commands[0] = write_command(writing.address, head, writing.block_bytes);
        return writing_post(&writing, commands, 1, value->length);
    }
    head_begin(&writing, head, value->length, value->expires);
    for (uint32_t i = 0; i < extents; i++) {
        const uint8_t *bytes = value->bytes + (size_t)i * EXTENT_BYTES;
        uint32_t length = store_record_extent_bytes(value->length, i);
        store64(extent_at(head, key_length, i), writing.extents[i]);
        store64(extent_at(head, key_length, i) + 8, XXH3_64bits(bytes, length));
        commands[1 + i] = write_command(writing.extents[i], bytes, length);
        if (i % 4 == 3) /* a megabyte takes a worker's time: the others get theirs */
            task_yield();
    }
    head_end(&writing, head, value->length, value->expires != 0, reference);
    commands[0] = write_command(writing.address, head, writing.block_bytes);
    return writing_post(&writing, commands, 1 + extents, value->length);
}

/* Executes the writes and gives the records that they belong to their statuses. */
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
            tree_block_release(session->tree, commands[i].address, commands[i].length);
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
                     : ROUND_UP(store_record_block_bytes(records[i].key_length, records[i].value->length));
    tree_session_begin(session->tree);
    int status = store_reserve(session, &session->output, bytes);
    uint8_t *head = session->output.bytes;
    for (uint32_t i = 0; i < count; i++) {
        struct store_new_record *record = &records[i];
        if (record->status)
            continue;
        struct writing writing = {.session = session,
                                  .key = record->key,
                                  .key_length = record->key_length,
                                  .block_bytes =
                                      store_record_block_bytes(record->key_length, record->value->length)};
        record->status = status ? status : writing_allocate(&writing, record->value->length, 0);
        if (record->status)
            continue;
        block_fill(&writing, head, record->value, &record->reference);
        owners[posted] = i;
        commands[posted++] = write_command(writing.address, head, writing.block_bytes);
        head += ROUND_UP(writing.block_bytes);
    }
    many_post(session, records, commands, owners, posted);
}

int store_record_write_head(struct store_session *session, const void *key, size_t key_length,
                            uint64_t length, uint64_t expires, struct store_reference *reference)
{
    struct writing writing = {.session = session,
                              .key = key,
                              .key_length = key_length,
                              .block_bytes = store_record_block_bytes(key_length, length)};
    uint32_t extents = store_record_extents(key_length, length);
    tree_session_begin(session->tree);
    int status = store_reserve(session, &session->output, writing.block_bytes);
    if (!status)
        status = writing_allocate(&writing, length, 0);
    if (status)
        return status;
    uint8_t *head = session->output.bytes;
    head_begin(&writing, head, length, expires);
    memcpy(extent_at(head, key_length, 0), extent_at(session->head, key_length, 0), 16u * extents);
    head_end(&writing, head, length, expires != 0, reference);
    struct fabric_command command = write_command(writing.address, head, writing.block_bytes);
    return writing_post(&writing, &command, 1, length);
}

/* ---- reading ---- */

bool store_record_validate(const struct store_reference *reference, const void *key, size_t key_length,
                           enum store_part part, const uint8_t *block, struct store_value *value)
{
    uint32_t length, head = store_record_head_bytes(key_length, reference->length);
    uint64_t hash = load64(block + AT_HASH);
    if (store_slot_check(hash) != reference->check || hash != head_hash(reference->address, block, head))
        return false;
    memcpy(&length, block + AT_LENGTH, sizeof length);
    *value = (struct store_value){.length = length, .expires = load64(block + AT_EXPIRES)};
    if (length != reference->length || block[AT_KEY_LENGTH] != key_length ||
        memcmp(block + AT_KEY, key, key_length) || (value->expires != 0) != reference->expires)
        return false;
    if (part == STORE_PART_HEAD || store_record_extents(key_length, length))
        return true;
    value->bytes = block + head;
    return XXH3_64bits(value->bytes, length) == load64(block + AT_VALUE_HASH);
}

/* An address that no memory node has is a damaged record's, or one that was written over. */
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

/* The value whose head is in session->head. */
static int extents_read(struct store_session *session, size_t key_length, enum store_sink sink,
                        struct store_value *value)
{
    struct fabric_command reads[STORE_EXTENTS_MAX];
    uint32_t extents = store_record_extents(key_length, value->length);
    uint8_t *room = sink_room(session, sink, value->length);
    if (!room)
        return BANYAN_ENOMEM;
    for (uint32_t i = 0; i < extents; i++)
        reads[i] = (struct fabric_command){.operation = FABRIC_READ,
                                           .address = store_record_extent(session, key_length, i),
                                           .length = store_record_extent_bytes(value->length, i),
                                           .read = {.buffer = room + (size_t)i * EXTENT_BYTES}};
    int status = read_status(store_transfer(session, reads, extents, NULL));
    for (uint32_t i = 0; i < extents && !status; i++) {
        if (XXH3_64bits(reads[i].read.buffer, reads[i].length) !=
            load64(extent_at(session->head, key_length, i) + 8))
            status = STORE_STALE;
        if (i % 4 == 3)
            task_yield();
    }
    value->bytes = room;
    return status;
}

int store_record_read(struct store_session *session, const void *key, size_t key_length,
                      const struct store_reference *reference, enum store_part part, enum store_sink sink,
                      struct store_value *value)
{
    uint32_t bytes = store_record_read_bytes(key_length, reference, part);
    bool whole = part == STORE_PART_VALUE && !store_record_extents(key_length, reference->length);
    uint8_t *room = whole ? sink_room(session, sink, bytes) : session->head;
    if (!room)
        return BANYAN_ENOMEM;
    struct fabric_command read = {
        .operation = FABRIC_READ, .address = reference->address, .length = bytes, .read = {.buffer = room}};
    int status = read_status(store_transfer(session, &read, 1, NULL));
    if (!status && !store_record_validate(reference, key, key_length, part, room, value))
        status = STORE_STALE;
    if (!status && part == STORE_PART_VALUE && !whole)
        status = extents_read(session, key_length, sink, value);
    return status;
}

/* ---- freeing ---- */

void store_record_free(struct store_session *session, const void *key, size_t key_length,
                       const struct store_reference *reference, bool extents)
{
    uint32_t count = extents ? store_record_extents(key_length, reference->length) : 0;
    uint32_t block_bytes = store_record_block_bytes(key_length, reference->length);
    uint64_t bytes = block_bytes;
    struct store_value value;
    if (count &&
        store_record_read(session, key, key_length, reference, STORE_PART_HEAD, STORE_SINK_BUFFER, &value))
        return; /* damaged, or out of reach: an offline check reclaims what nobody names */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = store_record_extent_bytes(reference->length, i);
        bytes += length;
        tree_block_release(session->tree, store_record_extent(session, key_length, i), length);
    }
    tree_block_release(session->tree, reference->address, block_bytes);
    store_count_up(session, records_freed, 1);
    store_count_up(session, bytes_freed, bytes);
}
