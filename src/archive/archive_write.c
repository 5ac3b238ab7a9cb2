/* archive_write.c - see archive.h: writing. */
#include <assert.h>
#include <stdlib.h>
#include <zstd.h>

#include "archive/archive_format.h"

struct archive_writer {
    archive_write_function *write;
    void *context;
    uint32_t flags;
    uint64_t created_ms;
    int level;
    bool begun; /* the header is written */
    uint32_t number;
    uint32_t entries;        /* of the block */
    uint8_t *block, *packed; /* owned */
    size_t used, capacity, packed_capacity;
    uint8_t last[ARCHIVE_KEY_MAX]; /* the key before */
    size_t last_length;
    struct archive_totals totals;
};

int archive_writer_create(struct archive_writer **created, uint32_t flags, uint64_t created_ms, int level,
                          archive_write_function *write, void *context, struct error *error)
{
    struct archive_writer *writer = calloc(1, sizeof *writer);
    assert(level >= 0 && level <= ARCHIVE_LEVEL_MAX && !(flags & ~(ARCHIVE_ORDERED | ARCHIVE_MOMENT)));
    *created = writer;
    if (!writer)
        return error_set(error, BANYAN_ENOMEM, "no memory for a file of keys");
    writer->flags = flags;
    writer->created_ms = created_ms;
    writer->level = level;
    writer->write = write;
    writer->context = context;
    return 0;
}

void archive_writer_destroy(struct archive_writer *writer)
{
    if (!writer)
        return;
    free(writer->block);
    free(writer->packed);
    free(writer);
}

void archive_totals(const struct archive_writer *writer, struct archive_totals *totals)
{
    *totals = writer->totals;
}

static int put(struct archive_writer *writer, const void *bytes, size_t length, struct error *error)
{
    int status = writer->write(writer->context, bytes, length, error);
    writer->totals.written += status ? 0 : length;
    return status;
}

static int begin(struct archive_writer *writer, struct error *error)
{
    uint8_t header[ARCHIVE_HEADER];
    if (writer->begun)
        return 0;
    memcpy(header, ARCHIVE_MAGIC, 8);
    archive_put_u32(header + 8, ARCHIVE_VERSION);
    archive_put_u32(header + 12, writer->flags);
    archive_put_u64(header + 16, writer->created_ms);
    archive_put_u64(header + 24, archive_header_hash(header));
    writer->begun = true;
    return put(writer, header, sizeof header, error);
}

static int block_put(struct archive_writer *writer, struct archive_block *block, const uint8_t *body,
                     struct error *error)
{
    uint8_t header[ARCHIVE_HEADER];
    block->number = writer->number++;
    memcpy(header, ARCHIVE_BLOCK_MAGIC, 4);
    archive_put_u32(header + 4, block->number);
    archive_put_u32(header + 8, block->stored);
    archive_put_u32(header + 12, block->raw);
    archive_put_u32(header + 16, block->entries);
    archive_put_u32(header + 20, block->compression);
    archive_put_u64(header + 24, archive_block_hash(header, body, block->stored));
    int status = begin(writer, error);
    if (!status)
        status = put(writer, header, sizeof header, error);
    return status ? status : put(writer, body, block->stored, error);
}

/* The block's bytes as they go into the file: compressed where that makes them fewer. */
static int pack(struct archive_writer *writer, struct archive_block *block, const uint8_t **body,
                struct error *error)
{
    *body = writer->block;
    if (!writer->level)
        return 0;
    const size_t bound = ZSTD_compressBound(writer->used);
    if (writer->packed_capacity < bound) {
        uint8_t *grown = realloc(writer->packed, bound);
        if (!grown)
            return error_set(error, BANYAN_ENOMEM, "no memory to compress %zu bytes", writer->used);
        writer->packed = grown;
        writer->packed_capacity = bound;
    }
    const size_t packed =
        ZSTD_compress(writer->packed, writer->packed_capacity, writer->block, writer->used, writer->level);
    if (ZSTD_isError(packed) || packed >= writer->used)
        return 0;
    block->stored = (uint32_t)packed;
    block->compression = ARCHIVE_ZSTD;
    *body = writer->packed;
    return 0;
}

static int flush(struct archive_writer *writer, struct error *error)
{
    struct archive_block block = {
        .stored = (uint32_t)writer->used, .raw = (uint32_t)writer->used, .entries = writer->entries};
    const uint8_t *body;
    if (!writer->entries)
        return 0;
    int status = pack(writer, &block, &body, error);
    if (!status)
        status = block_put(writer, &block, body, error);
    writer->used = 0;
    writer->entries = 0;
    return status;
}

static uint8_t *number_put(uint8_t *to, uint64_t number)
{
    for (; number >= 128; number >>= 7)
        *to++ = (uint8_t)(number | 128);
    *to++ = (uint8_t)number;
    return to;
}

static int check(const struct archive_writer *writer, const struct archive_entry *entry, struct error *error)
{
    if (!entry->key_length || entry->key_length > ARCHIVE_KEY_MAX || entry->value_length > ARCHIVE_VALUE_MAX)
        return error_set(error, BANYAN_EINVAL, "a key of %zu bytes with a value of %zu: at most %u and %u",
                         entry->key_length, entry->value_length, ARCHIVE_KEY_MAX, ARCHIVE_VALUE_MAX);
    if (!(writer->flags & ARCHIVE_ORDERED) || !writer->totals.entries ||
        archive_follows(entry, writer->last, writer->last_length))
        return 0;
    return error_set(error, BANYAN_EINVAL, "a key does not follow the one before it");
}

static int reserve(struct archive_writer *writer, size_t more, struct error *error)
{
    size_t capacity = writer->capacity ? writer->capacity : 2u * ARCHIVE_BLOCK_BYTES;
    while (capacity < writer->used + more)
        capacity *= 2;
    if (capacity == writer->capacity)
        return 0;
    uint8_t *grown = realloc(writer->block, capacity);
    if (!grown)
        return error_set(error, BANYAN_ENOMEM, "no memory for a block of %zu bytes", capacity);
    writer->block = grown;
    writer->capacity = capacity;
    return 0;
}

int archive_add(struct archive_writer *writer, const struct archive_entry *entry, struct error *error)
{
    const size_t most = 3u * ARCHIVE_NUMBER_MAX + entry->key_length + entry->value_length;
    int status = check(writer, entry, error);
    if (!status && writer->used + most > ARCHIVE_BLOCK_BYTES)
        status = flush(writer, error);
    if (!status)
        status = reserve(writer, most, error);
    if (status)
        return status;
    uint8_t *const start = writer->block + writer->used;
    uint8_t *at = number_put(start, entry->key_length);
    at = number_put(at, entry->value_length);
    at = number_put(at, entry->expires);
    memcpy(at, entry->key, entry->key_length);
    at += entry->key_length;
    if (entry->value_length)
        memcpy(at, entry->value, entry->value_length);
    at += entry->value_length;
    writer->used += (size_t)(at - start);
    writer->entries++;
    writer->totals.entries++;
    writer->totals.bytes += (uint64_t)(at - start);
    memcpy(writer->last, entry->key, entry->key_length);
    writer->last_length = entry->key_length;
    return 0;
}

int archive_mark(struct archive_writer *writer, struct archive_mark *mark, struct error *error)
{
    int status = flush(writer, error);
    *mark = (struct archive_mark){.totals = writer->totals,
                                  .number = writer->number,
                                  .begun = writer->begun,
                                  .last_length = writer->last_length};
    if (mark->last_length)
        memcpy(mark->last, writer->last, mark->last_length);
    return status;
}

void archive_rewind(struct archive_writer *writer, const struct archive_mark *mark)
{
    writer->used = 0;
    writer->entries = 0;
    writer->totals = mark->totals;
    writer->number = mark->number;
    writer->begun = mark->begun;
    writer->last_length = mark->last_length;
    if (mark->last_length)
        memcpy(writer->last, mark->last, mark->last_length);
}

int archive_finish(struct archive_writer *writer, struct error *error)
{
    uint8_t end[ARCHIVE_END_BYTES];
    struct archive_block block = {.stored = sizeof end, .raw = sizeof end};
    archive_put_u64(end, writer->totals.entries);
    archive_put_u64(end + 8, writer->totals.bytes);
    int status = flush(writer, error);
    return status ? status : block_put(writer, &block, end, error);
}
