/*
 * fuzz_archive.c - files of keys: Banyan's own (archive.h), with checksums that are right or not, Redis's
 * snapshots (rdb.h) and its append-only files (aof.h).
 *
 * Oracle: what is read keeps the limits of an entry; it is read again after it was written; what an
 * append-only file has is found again, command by command, when its whole commands are read alone. A refusal
 * has a sentence.
 */
#include "archive/aof.h"
#include "archive/archive_format.h"
#include "archive/rdb.h"
#include "fuzz/fuzz.h"

struct sum {
    uint64_t count, hash;
    struct archive_writer *writer; /* NULL: nothing is written */
};

struct bytes {
    uint8_t *start;
    size_t length, capacity;
};

static void mix(uint64_t *hash, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        *hash = (*hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    *hash = (*hash ^ length) * UINT64_C(0x100000001b3);
}

static int keep(void *context, const void *from, size_t length, struct error *error)
{
    struct bytes *bytes = context;
    if (bytes->length + length > bytes->capacity) {
        bytes->capacity = (bytes->length + length) * 2;
        bytes->start = realloc(bytes->start, bytes->capacity);
        fuzz_must(bytes->start, "no memory");
    }
    if (length)
        memcpy(bytes->start + bytes->length, from, length);
    bytes->length += length;
    return 0;
}

static int visit(void *context, const struct archive_entry *entry, struct error *error)
{
    struct sum *sum = context;
    fuzz_must(entry->key_length && entry->key_length <= ARCHIVE_KEY_MAX, "a key of %zu bytes",
              entry->key_length);
    fuzz_must(entry->value_length <= ARCHIVE_VALUE_MAX, "a value of %zu bytes", entry->value_length);
    sum->count++;
    mix(&sum->hash, entry->key, entry->key_length);
    mix(&sum->hash, entry->value, entry->value_length);
    mix(&sum->hash, (const uint8_t *)&entry->expires, sizeof entry->expires);
    if (sum->writer)
        fuzz_must(!archive_add(sum->writer, entry, error), "what was read cannot be written: %s",
                  error->text);
    return 0;
}

static int archive_sum(const uint8_t *bytes, size_t length, struct sum *sum, struct error *error)
{
    struct source source;
    source_memory(&source, "input", bytes, length);
    int status = archive_read(&source, visit, sum, NULL, error);
    fuzz_must(!status || error->text[0], "a refusal without a sentence");
    source_close(&source);
    return status;
}

/* Makes the checksums right, as far as blocks can be found. */
static void mend(uint8_t *bytes, size_t length)
{
    if (length < ARCHIVE_HEADER)
        return;
    memcpy(bytes, ARCHIVE_MAGIC, 8);
    archive_put_u32(bytes + 8, ARCHIVE_VERSION);
    bytes[12] &= ARCHIVE_ORDERED | ARCHIVE_MOMENT;
    memset(bytes + 13, 0, 3);
    archive_put_u64(bytes + 24, archive_header_hash(bytes));
    uint32_t number = 0;
    for (size_t at = ARCHIVE_HEADER; length - at >= ARCHIVE_HEADER; number++) {
        uint8_t *header = bytes + at;
        const uint32_t stored = archive_get_u32(header + 8);
        memcpy(header, ARCHIVE_BLOCK_MAGIC, 4);
        archive_put_u32(header + 4, number);
        if (stored > length - at - ARCHIVE_HEADER)
            return;
        archive_put_u64(header + 24, archive_block_hash(header, header + ARCHIVE_HEADER, stored));
        at += ARCHIVE_HEADER + stored;
    }
}

static void own_file(struct fuzz_input *input, bool mended)
{
    struct error error = {0};
    struct bytes copy = {0}, again = {0};
    struct sum first = {0}, second = {0};
    keep(&copy, input->bytes, input->length, NULL);
    if (mended)
        mend(copy.start, copy.length);
    fuzz_must(!archive_writer_create(&first.writer, 0, 1, mended, keep, &again, &error), "no writer");
    const int status = archive_sum(copy.start, copy.length, &first, &error);
    fuzz_must(!archive_finish(first.writer, &error), "no end");
    archive_writer_destroy(first.writer);
    if (!status) {
        fuzz_must(!archive_sum(again.start, again.length, &second, &error), "what was written is refused: %s",
                  error.text);
        fuzz_must(first.count == second.count && first.hash == second.hash,
                  "what was written reads otherwise");
    }
    free(copy.start);
    free(again.start);
}

static int command_visit(void *context, const struct aof_command *command, struct error *error)
{
    struct sum *sum = context;
    fuzz_must(command->count > 0, "a command without a name");
    sum->count++;
    for (uint32_t i = 0; i < command->count; i++)
        mix(&sum->hash, command->arguments[i].bytes, command->arguments[i].length);
    mix(&sum->hash, (const uint8_t *)&command->count, sizeof command->count);
    return 0;
}

static void append_only(const uint8_t *bytes, size_t length)
{
    struct error error = {0};
    struct source source;
    struct aof_counts counts = {0}, whole = {0};
    struct sum first = {0}, second = {0};
    source_memory(&source, "input", bytes, length);
    const int status = aof_read(&source, command_visit, &first, &counts, &error);
    fuzz_must(!status || error.text[0], "a refusal without a sentence");
    fuzz_must(counts.commands == first.count, "a count of its own");
    if (status || !counts.cut)
        return;
    fuzz_must(counts.cut_at <= length, "the cut is behind the end");
    source_memory(&source, "input", bytes, (size_t)counts.cut_at);
    fuzz_must(!aof_read(&source, command_visit, &second, &whole, &error) && !whole.cut,
              "what is whole is refused: %s", error.text);
    fuzz_must(first.count == second.count && first.hash == second.hash, "what is whole reads otherwise");
}

static void snapshot(struct fuzz_input *input)
{
    struct error error = {0};
    struct source source;
    struct sum sum = {0};
    struct rdb_counts counts = {0};
    const struct rdb_options options = {.database = fuzz_byte(input) & 1};
    source_memory(&source, "input", input->bytes, input->length);
    const int status = rdb_read(&source, &options, visit, &sum, &counts, &error);
    fuzz_must(!status || error.text[0], "a refusal without a sentence");
    fuzz_must(counts.strings == sum.count, "a count of its own");
    fuzz_must(memchr(counts.example, 0, sizeof counts.example), "a name without end");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    switch (fuzz_byte(&input) % 4) {
    case 0:
        own_file(&input, false);
        break;
    case 1:
        own_file(&input, true);
        break;
    case 2:
        snapshot(&input);
        break;
    default:
        append_only(input.bytes, input.length);
    }
    return 0;
}
