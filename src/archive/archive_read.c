/* archive_read.c - see archive.h: reading. */
#include <inttypes.h>
#include <stdlib.h>
#include <zstd.h>

#include "archive/archive_format.h"

struct reader {
    struct source *source;
    archive_visit_function *visit;
    void *context;
    struct error *error;
    uint32_t flags, number;
    uint64_t at;  /* where the block begins */
    uint8_t *raw; /* owned: entries of a compressed block */
    size_t raw_capacity;
    uint8_t last[ARCHIVE_KEY_MAX];
    size_t last_length;
    bool ended;
    struct archive_totals totals;
};

bool archive_begins(const uint8_t *bytes, size_t length)
{
    return length >= 8 && !memcmp(bytes, ARCHIVE_MAGIC, 8);
}

static int header_read(struct reader *reader)
{
    const uint8_t *header;
    int status = source_take(reader->source, ARCHIVE_HEADER, "its header", &header, reader->error);
    if (status)
        return status;
    if (!archive_begins(header, ARCHIVE_HEADER))
        return source_corrupt(reader->source, 0, reader->error,
                              "this is no file that `banyan dump` has written");
    const uint32_t version = archive_get_u32(header + 8);
    if (archive_get_u64(header + 24) != archive_header_hash(header))
        return source_corrupt(reader->source, 0, reader->error, "the header's checksum is wrong");
    reader->flags = archive_get_u32(header + 12);
    if (version != ARCHIVE_VERSION || reader->flags & ~(ARCHIVE_ORDERED | ARCHIVE_MOMENT))
        return error_set(reader->error, BANYAN_EVERSION,
                         "%.60s is of version %" PRIu32 " of the format; this program knows version %u",
                         reader->source->name, version, ARCHIVE_VERSION);
    return 0;
}

static bool number_get(const uint8_t **at, const uint8_t *end, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        const uint8_t byte = *(*at)++;
        if (shift == 63 && byte > 1)
            return false;
        *number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool entry_get(const uint8_t **at, const uint8_t *end, struct archive_entry *entry)
{
    uint64_t key, value;
    if (!number_get(at, end, &key) || !number_get(at, end, &value) || !number_get(at, end, &entry->expires) ||
        !key || key > ARCHIVE_KEY_MAX || value > ARCHIVE_VALUE_MAX || key + value > (uint64_t)(end - *at))
        return false;
    entry->key = *at;
    entry->key_length = (size_t)key;
    entry->value = *at + key;
    entry->value_length = (size_t)value;
    *at += key + value;
    return true;
}

static bool follows(const struct reader *reader, const struct archive_entry *entry)
{
    return !(reader->flags & ARCHIVE_ORDERED) || !reader->totals.entries ||
           archive_follows(entry, reader->last, reader->last_length);
}

static int entries_visit(struct reader *reader, const struct archive_block *block, const uint8_t *raw)
{
    const uint8_t *at = raw, *const end = raw + block->raw;
    for (uint32_t i = 0; i < block->entries; i++) {
        struct archive_entry entry;
        if (!entry_get(&at, end, &entry))
            return source_corrupt(reader->source, reader->at, reader->error,
                                  "entry %" PRIu32 " of block %" PRIu32
                                  " is none, though the checksum is right",
                                  i, block->number);
        if (!follows(reader, &entry))
            return source_corrupt(reader->source, reader->at, reader->error,
                                  "key %" PRIu32 " of block %" PRIu32 " does not follow the one before it", i,
                                  block->number);
        int status = reader->visit(reader->context, &entry, reader->error);
        if (status)
            return status;
        memcpy(reader->last, entry.key, entry.key_length);
        reader->last_length = entry.key_length;
        reader->totals.entries++;
    }
    reader->totals.bytes += block->raw;
    if (at != end)
        return source_corrupt(reader->source, reader->at, reader->error,
                              "block %" PRIu32 " has bytes behind its entries", block->number);
    return 0;
}

static int unpack(struct reader *reader, const struct archive_block *block, const uint8_t *body,
                  const uint8_t **raw)
{
    if (block->compression == ARCHIVE_PLAIN) {
        *raw = body;
        return 0;
    }
    /* What it says of itself is asked before memory is taken. */
    if (ZSTD_getFrameContentSize(body, block->stored) != block->raw)
        return source_corrupt(reader->source, reader->at, reader->error,
                              "block %" PRIu32 " unpacks to another length", block->number);
    if (reader->raw_capacity < block->raw) {
        uint8_t *grown = realloc(reader->raw, block->raw);
        if (!grown)
            return error_set(reader->error, BANYAN_ENOMEM,
                             "%.60s: no memory for a block of %" PRIu32 " bytes", reader->source->name,
                             block->raw);
        reader->raw = grown;
        reader->raw_capacity = block->raw;
    }
    const size_t length = ZSTD_decompress(reader->raw, block->raw, body, block->stored);
    if (ZSTD_isError(length) || length != block->raw)
        return source_corrupt(reader->source, reader->at, reader->error,
                              "block %" PRIu32 " does not unpack, though the checksum is right",
                              block->number);
    *raw = reader->raw;
    return 0;
}

static int end_read(struct reader *reader, const uint8_t *body)
{
    const uint8_t *more;
    size_t available;
    reader->ended = true;
    if (archive_get_u64(body) != reader->totals.entries || archive_get_u64(body + 8) != reader->totals.bytes)
        return source_corrupt(reader->source, reader->at, reader->error,
                              "the file's end speaks of %" PRIu64 " entries, and %" PRIu64 " stand in it",
                              archive_get_u64(body), reader->totals.entries);
    int status = source_peek(reader->source, 1, &more, &available, reader->error);
    if (!status && available)
        return source_corrupt(reader->source, reader->source->position, reader->error,
                              "something follows behind the file's end");
    return status;
}

static const char *block_complaint(const struct reader *reader, const struct archive_block *block,
                                   const uint8_t *header)
{
    if (memcmp(header, ARCHIVE_BLOCK_MAGIC, 4))
        return "no block begins here";
    if (block->number != reader->number)
        return "this is another block than the one that follows";
    if (block->stored > ARCHIVE_STORED_MAX || block->raw > ARCHIVE_RAW_MAX || block->entries > block->raw)
        return "a block's lengths are impossible";
    if (block->compression > ARCHIVE_ZSTD ||
        (block->compression == ARCHIVE_PLAIN && block->stored != block->raw))
        return "a block's kind is impossible";
    if (!block->entries && (block->stored != ARCHIVE_END_BYTES || block->compression != ARCHIVE_PLAIN))
        return "a block has no entries";
    return NULL;
}

static int block_read(struct reader *reader)
{
    const uint8_t *bytes, *raw = NULL;
    uint8_t header[ARCHIVE_HEADER];
    reader->at = reader->source->position;
    int status = source_take(reader->source, sizeof header, "a block's header", &bytes, reader->error);
    if (status)
        return status;
    memcpy(header, bytes, sizeof header);
    const struct archive_block block = {.number = archive_get_u32(header + 4),
                                        .stored = archive_get_u32(header + 8),
                                        .raw = archive_get_u32(header + 12),
                                        .entries = archive_get_u32(header + 16),
                                        .compression = archive_get_u32(header + 20),
                                        .hash = archive_get_u64(header + 24)};
    const char *complaint = block_complaint(reader, &block, header);
    if (complaint)
        return source_corrupt(reader->source, reader->at, reader->error, "%s", complaint);
    status = source_take(reader->source, block.stored, "a block", &bytes, reader->error);
    if (status)
        return status;
    if (archive_block_hash(header, bytes, block.stored) != block.hash)
        return source_corrupt(reader->source, reader->at, reader->error,
                              "the checksum of block %" PRIu32 " (%" PRIu32 " bytes) is wrong", block.number,
                              block.stored);
    reader->number++;
    if (!block.entries)
        return end_read(reader, bytes);
    status = unpack(reader, &block, bytes, &raw);
    return status ? status : entries_visit(reader, &block, raw);
}

int archive_read(struct source *source, archive_visit_function *visit, void *context,
                 struct archive_totals *totals, struct error *error)
{
    struct reader reader = {.source = source, .visit = visit, .context = context, .error = error};
    int status = header_read(&reader);
    while (!status && !reader.ended)
        status = block_read(&reader);
    free(reader.raw);
    if (totals) {
        *totals = reader.totals;
        totals->written = source->position;
    }
    return status;
}
