/*
 * fuzz_disk.c - the files that outlive power (disk/journal.h, disk/manifest.h): journals of whole, torn,
 * forged and misplaced records and of noise, in files that are there, missing, or another's; and manifests,
 * with checksums that are right or not.
 *
 * Oracle: a journal that is opened tells records whose positions ascend, without a gap unless it says what is
 * lost; opened once more it tells the same ones, and nothing is torn any more; it takes a record, and has it
 * in its next life. A manifest that is read is written again as the same bytes. A refusal has a sentence.
 */
#include "base/crc32c.h"
#include "base/log.h"
#include "disk/disk_simulated.h"
#include "disk/journal_format.h"
#include "disk/manifest.h"
#include "fuzz/fuzz.h"

/* ---- manifests ---- */

static void mend_manifest(uint8_t *bytes, size_t length)
{
    const uint32_t version = MANIFEST_VERSION, all = (uint32_t)length;
    if (length < 68)
        return;
    memcpy(bytes, "BNYNMNFT", 8);
    memcpy(bytes + 8, &version, 4);
    memcpy(bytes + 12, &all, 4);
    uint32_t check = crc32c(0, bytes, 60);
    memcpy(bytes + 60, &check, 4);
    check = crc32c(0, bytes, length - 4);
    memcpy(bytes + length - 4, &check, 4);
}

static void manifest(struct fuzz_input *input, bool mended)
{
    struct error error = {0};
    struct manifest read;
    uint8_t *again;
    const size_t length = input->length;
    size_t written;
    uint8_t *bytes = (uint8_t *)fuzz_text(input->bytes, length);
    if (mended)
        mend_manifest(bytes, length);
    if (manifest_decode(&read, bytes, length, "input", &error)) {
        fuzz_must(error.text[0] && !read.parts, "a refusal without a sentence");
    } else {
        fuzz_must(!manifest_encode(&read, &again, &written, &error), "what was read cannot be written: %s",
                  error.text);
        fuzz_must(written == length && !memcmp(again, bytes, length), "what was read is written otherwise");
        free(again);
        manifest_free(&read);
    }
    free(bytes);
}

/* ---- journals ---- */

#define FILE_MAX 8192u

struct sum {
    uint64_t end, hash, records;
    uint32_t losses;
};

static int visit(void *context, const struct journal_record *record, struct error *error)
{
    struct sum *sum = context;
    fuzz_must(record->kind && record->length <= JOURNAL_LENGTH_MAX, "a record of kind %u with %u bytes",
              record->kind, record->length);
    fuzz_must(record->position == sum->end, "a record at %llu, expected at %llu",
              (unsigned long long)record->position, (unsigned long long)sum->end);
    fuzz_must(record->end == record->position + journal_record_bytes(record->length), "another end");
    sum->end = record->end;
    sum->records++;
    sum->hash = (sum->hash ^ crc32c(record->kind, record->bytes, record->length) ^ record->position << 32) *
                UINT64_C(0x9e3779b97f4a7c15);
    return 0;
}

static void lose(void *context, uint64_t from, uint64_t to, const char *why)
{
    struct sum *sum = context;
    fuzz_must(why[0] && from <= to && from >= sum->end, "a loss from %llu to %llu behind %llu",
              (unsigned long long)from, (unsigned long long)to, (unsigned long long)sum->end);
    sum->end = to;
    sum->losses++;
}

/* A record as a journal writes it, or with one thing wrong. */
static size_t put_record(struct fuzz_input *input, uint8_t *to, size_t room, const struct journal_head *head,
                         size_t offset)
{
    uint8_t payload[256];
    const uint8_t how = fuzz_byte(input);
    const uint32_t length = fuzz_byte(input), all = journal_record_bytes(length);
    uint64_t position = head->begin + (offset - JOURNAL_HEADER_BYTES), nonce = head->nonce;
    if (all > room)
        return 0;
    fuzz_take(input, payload, length < 8 ? length : 8);
    memset(payload + 8, how, sizeof payload - 8);
    uint64_t synced = fuzz_byte(input) * UINT64_C(8);
    if (how & 1)
        synced = position;
    if (how & 2)
        position += 8;
    nonce += (how & 4) != 0;
    journal_record_put(to, (uint8_t)(1 + how % 3), payload, length);
    journal_record_seal(to, nonce, position, synced < position ? synced : position);
    if (how & 8 && length)
        to[JOURNAL_RECORD_BYTES + length / 2] ^= how;
    if (how & 16)
        to[how >> 4] ^= 1;
    return how & 32 ? all / 2 / 8 * 8 : all;
}

static size_t put_noise(struct fuzz_input *input, uint8_t *to, size_t room)
{
    size_t some = fuzz_byte(input);
    some = some < room ? some : room;
    if (some & 1)
        memset(to, 0, some);
    else
        fuzz_take(input, to, some);
    return some;
}

static uint64_t put_file(struct fuzz_input *input, struct disk *disk, uint32_t number, uint64_t begin)
{
    uint8_t bytes[FILE_MAX];
    const uint8_t how = fuzz_byte(input);
    const struct journal_head head = {.cluster = 1,
                                      .node = 2,
                                      .file = number + (how % 16 == 1),
                                      .begin = how % 16 == 2 ? fuzz_byte(input) * UINT64_C(8) : begin,
                                      .nonce = 7 + (how & 16)};
    char name[JOURNAL_NAME_BYTES];
    struct disk_file *file;
    size_t length = JOURNAL_HEADER_BYTES;
    journal_head_encode(&head, bytes);
    if (how % 16 == 3)
        bytes[fuzz_byte(input) % JOURNAL_HEADER_BYTES] ^= 1;
    for (uint32_t i = fuzz_byte(input) % 16; i; i--)
        length += fuzz_byte(input) % 4 ? put_record(input, bytes + length, FILE_MAX - length, &head, length)
                                       : put_noise(input, bytes + length, FILE_MAX - length);
    const size_t cut = how % 16 == 4 ? fuzz_u16(input) % (length + 1) : length;
    journal_name(name, number);
    fuzz_must(!disk_create(disk, name, &file, NULL), "no file");
    fuzz_must(!disk_write_sync(file, 0, &(struct disk_piece){bytes, cut}, 1, NULL), "no room");
    disk_file_close(file);
    return begin + (length - JOURNAL_HEADER_BYTES);
}

static int open_once(struct disk *disk, const struct journal_options *options, struct sum *sum,
                     struct journal_report *report, struct journal **journal)
{
    struct error error = {0};
    *sum = (struct sum){.end = options->from};
    struct journal_reader reader = {.visit = visit, .loss = lose, .context = sum};
    int status = journal_open(journal, disk, options, &reader, &error);
    fuzz_must(!status || (error.text[0] && !*journal), "a refusal without a sentence");
    fuzz_must(status || options->accept_loss || !sum->losses, "a loss that nobody accepted");
    fuzz_must(status || journal_end(*journal) == sum->end, "the journal ends at %llu, its records at %llu",
              (unsigned long long)journal_end(*journal), (unsigned long long)sum->end);
    *report = reader.report;
    return status;
}

static void append(struct journal *journal)
{
    uint64_t position, safe;
    fuzz_must(!journal_append(journal, 9, "last", 4, &position, NULL), "no record can be appended");
    fuzz_must(!journal_sync(journal, &safe, NULL) && safe == journal_end(journal), "no sync");
}

static void journals(struct fuzz_input *input)
{
    const uint8_t how = fuzz_byte(input);
    struct disk *disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 1});
    const struct journal_options options = {.cluster = 1,
                                            .node = 2,
                                            .from = how & 1 ? fuzz_byte(input) * UINT64_C(8) : 0,
                                            .file_bytes = 4096,
                                            .buffer_bytes = 4096,
                                            .seed = 5,
                                            .accept_loss = (how & 2) != 0};
    struct sum first, second, third;
    struct journal_report report;
    struct journal *journal;
    uint64_t end = how & 4 ? fuzz_byte(input) * UINT64_C(8) : 0;
    for (uint32_t number = 1; number <= 1u + (how >> 4) % 5; number++)
        if (fuzz_byte(input) % 8)
            end = put_file(input, disk, number, end);
    if (!open_once(disk, &options, &first, &report, &journal)) {
        journal_close(journal);
        fuzz_must(!open_once(disk, &options, &second, &report, &journal), "it cannot be opened again");
        fuzz_must(first.records == second.records && first.hash == second.hash, "it tells other records");
        fuzz_must(!report.cut_bytes, "something is torn again");
        append(journal);
        journal_close(journal);
        struct disk *cut = disk_simulated_state(disk, 0);
        fuzz_must(!open_once(cut, &options, &third, &report, &journal), "it cannot be opened after a cut");
        fuzz_must(third.records == second.records + 1 && !report.cut_bytes, "the last record is not there");
        journal_close(journal);
        disk_close(cut);
    }
    disk_close(disk);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    log_set_level(LOG_ERROR + 1);
    switch (fuzz_byte(&input) % 4) {
    case 0:
        manifest(&input, false);
        break;
    case 1:
        manifest(&input, true);
        break;
    default:
        journals(&input);
    }
    return 0;
}
