/* journal.c - see journal.h: appending, syncing, releasing. */
#include "disk/journal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "disk/journal_format.h"

struct journal {
    struct disk *disk;
    struct journal_options options;
    struct random nonces;
    struct disk_file *file;     /* the last one; owned; NULL: none of this life yet, the disk is full */
    uint64_t nonce;             /* the last file's */
    struct journal_file *files; /* owned; in order, the last one is written */
    uint32_t count, capacity;
    uint64_t safe;   /* the end of what is safe */
    uint8_t *buffer; /* owned: the records behind it */
    uint32_t used;
    struct error broken; /* why the promise has ended */
};

uint64_t journal_begin(const struct journal *journal)
{
    return journal->count ? journal->files[0].begin : journal->safe;
}

uint64_t journal_end(const struct journal *journal)
{
    return journal->safe + journal->used;
}

uint64_t journal_safe(const struct journal *journal)
{
    return journal->safe;
}

static const struct journal_file *last_file(const struct journal *journal)
{
    return &journal->files[journal->count - 1];
}

/* Where the next record goes in the last file: all before is safe. */
static uint64_t file_offset(const struct journal *journal)
{
    return JOURNAL_HEADER_BYTES + (journal->safe - last_file(journal)->begin);
}

/* ---- the end of the promise ---- */

static int check_sound(const struct journal *journal, struct error *error)
{
    if (!journal->broken.code)
        return 0;
    return error_set(error, journal->broken.code, "%s", journal->broken.text);
}

/* D16: what is on the disk now is not known, and asking again would not tell. */
static int end_promise(struct journal *journal, int status, const struct error *cause, struct error *error)
{
    error_set(&journal->broken, status, "the journal's promise has ended, until it is opened anew: %s",
              cause->text);
    return check_sound(journal, error);
}

/* ---- files ---- */

static int reserve_file(struct journal *journal, struct error *error)
{
    if (journal->count < journal->capacity)
        return 0;
    uint32_t capacity = journal->count < 16 ? 32 : journal->count * 2;
    struct journal_file *grown = realloc(journal->files, capacity * sizeof *grown);
    if (!grown)
        return error_set(error, BANYAN_ENOMEM, "no memory for the journal's list of files");
    journal->files = grown;
    journal->capacity = capacity;
    return 0;
}

/* First removes the file that an attempt without room may have left. */
static int write_head(struct journal *journal, const struct journal_head *head, struct error *error)
{
    uint8_t bytes[JOURNAL_HEADER_BYTES];
    struct disk_file *file = NULL;
    journal_head_encode(head, bytes);
    int status = disk_remove_if_there(journal->disk, JOURNAL_NEW, error);
    if (!status)
        status = disk_create(journal->disk, JOURNAL_NEW, &file, error);
    if (!status)
        status = disk_write(file, 0, &(struct disk_piece){bytes, sizeof bytes}, 1, error);
    if (!status)
        status = disk_sync(file, error);
    disk_file_close(file);
    return status;
}

/* D8: its name is the journal's when its header is on the disk. */
static int make_file(struct journal *journal, const struct journal_head *head, struct disk_file **file,
                     struct error *error)
{
    char name[JOURNAL_NAME_BYTES];
    journal_name(name, head->file);
    int status = write_head(journal, head, error);
    if (!status)
        status = disk_rename(journal->disk, JOURNAL_NEW, name, error);
    if (!status)
        status = disk_sync_names(journal->disk, error);
    if (!status)
        status = disk_open(journal->disk, name, file, error);
    return status ? status : disk_map(*file, journal->options.file_bytes, error);
}

/* M3: no file but the last one has zeros behind its records, since what stands there is corruption (D12). */
static int end_file(struct journal *journal, struct error *error)
{
    if (!journal->file || !disk_mapped(journal->file))
        return 0;
    int status = disk_truncate(journal->file, file_offset(journal), error);
    return status ? status : disk_sync(journal->file, error);
}

/* The next file. All before is safe (D8), and nothing goes into it before its name is. */
static int begin_file(struct journal *journal, struct error *error)
{
    const uint32_t number = journal->count ? last_file(journal)->number + 1 : 1;
    const struct journal_head head = {.cluster = journal->options.cluster,
                                      .node = journal->options.node,
                                      .file = number,
                                      .begin = journal->safe,
                                      .nonce = random_next(&journal->nonces)};
    struct disk_file *file = NULL;
    if (number > JOURNAL_NUMBER_MAX)
        return error_set(error, BANYAN_EINVAL, "the journal has no more numbers for files");
    int status = reserve_file(journal, error);
    if (!status)
        status = end_file(journal, error);
    if (!status)
        status = make_file(journal, &head, &file, error);
    if (status) {
        disk_file_close(file);
        return status;
    }
    disk_file_close(journal->file);
    journal->file = file;
    journal->nonce = head.nonce;
    journal->files[journal->count++] = (struct journal_file){number, head.begin};
    return 0;
}

/* ---- appending and syncing ---- */

bool journal_has_room(const struct journal *journal, uint32_t length)
{
    return journal_record_bytes(length) <= journal->options.buffer_bytes - journal->used;
}

int journal_append(struct journal *journal, uint8_t kind, const void *bytes, uint32_t length,
                   uint64_t *position, struct error *error)
{
    int status = check_sound(journal, error);
    if (status)
        return status;
    if (!kind || length > JOURNAL_LENGTH_MAX || journal_record_bytes(length) > journal->options.buffer_bytes)
        return error_set(error, BANYAN_EINVAL,
                         "a record of kind %u with %u bytes: kinds begin with 1, %u bytes are the most, and "
                         "the buffer has %u",
                         kind, length, JOURNAL_LENGTH_MAX, journal->options.buffer_bytes);
    if (!journal_has_room(journal, length))
        return error_set(error, BANYAN_EBUSY, "the journal's buffer is full: %u of %u bytes", journal->used,
                         journal->options.buffer_bytes);
    *position = journal_end(journal);
    journal_record_put(journal->buffer + journal->used, kind, bytes, length);
    journal->used += journal_record_bytes(length);
    return 0;
}

/* Seals as many records of the buffer as find room in the last file, and at least one if it has none yet.
 * Each says what is safe now (D9). Returns their bytes. */
static uint32_t seal_group(struct journal *journal)
{
    uint64_t offset = file_offset(journal);
    uint32_t sealed = 0, length;
    while (sealed < journal->used) {
        uint8_t *record = journal->buffer + sealed;
        memcpy(&length, record + 8, 4);
        const uint32_t bytes = journal_record_bytes(length);
        if (offset + bytes > journal->options.file_bytes && offset > JOURNAL_HEADER_BYTES)
            break;
        journal_record_seal(record, journal->nonce, journal->safe + sealed, journal->safe);
        offset += bytes;
        sealed += bytes;
    }
    return sealed;
}

/* Writes and syncs what finds room in the last file. */
static int sync_group(struct journal *journal, uint32_t bytes, struct error *error)
{
    const struct disk_piece piece = {journal->buffer, bytes};
    int status = disk_write_sync(journal->file, file_offset(journal), &piece, 1, error);
    if (status)
        return status;
    journal->safe += bytes; /* D7: not before */
    journal->used -= bytes;
    memmove(journal->buffer, journal->buffer + bytes, journal->used);
    return 0;
}

int journal_sync(struct journal *journal, uint64_t *safe, struct error *error)
{
    struct error cause = {0};
    int status = check_sound(journal, error);
    while (!status && journal->used) {
        const uint32_t bytes = journal->file ? seal_group(journal) : 0;
        status = bytes ? sync_group(journal, bytes, &cause) : begin_file(journal, &cause);
    }
    if (status == BANYAN_ENOSPC)
        error_set(error, status, "%s", cause.text);
    else if (status && !journal->broken.code)
        status = end_promise(journal, status, &cause, error);
    *safe = journal->safe;
    return status;
}

/* ---- releasing ---- */

/* D11: a cut may leave any of the files that are removed. The next opening removes those, since `from` says
 * that they are needed no more, and does not miss the others. */
static int remove_first(struct journal *journal, struct error *error)
{
    char name[JOURNAL_NAME_BYTES];
    journal_name(name, journal->files[0].number);
    int status = disk_remove_if_there(journal->disk, name, error);
    if (status)
        return status;
    journal->count--;
    memmove(journal->files, journal->files + 1, journal->count * sizeof *journal->files);
    return 0;
}

int journal_release(struct journal *journal, uint64_t position, struct error *error)
{
    struct error cause = {0};
    const uint32_t before = journal->count;
    int status = check_sound(journal, error);
    if (status)
        return status;
    if (position > journal->safe)
        return error_set(error, BANYAN_EINVAL,
                         "position %llu cannot be released: the journal is safe up to %llu",
                         (unsigned long long)position, (unsigned long long)journal->safe);
    while (!status && journal->count > 1 && journal->files[1].begin <= position)
        status = remove_first(journal, &cause);
    if (!status && journal->count != before)
        status = disk_sync_names(journal->disk, &cause);
    return status ? end_promise(journal, status, &cause, error) : 0;
}

/* ---- life ---- */

void journal_close(struct journal *journal)
{
    struct error ignored = {0};
    if (!journal)
        return;
    /* What fails here, or is undone by a cut, the next opening does. */
    if (journal->file && disk_mapped(journal->file) && !journal->broken.code)
        disk_truncate(journal->file, file_offset(journal), &ignored);
    disk_file_close(journal->file);
    free(journal->files);
    free(journal->buffer);
    free(journal);
}

static void fill_options(struct journal_options *options)
{
    if (!options->file_bytes)
        options->file_bytes = JOURNAL_FILE_BYTES;
    if (!options->buffer_bytes)
        options->buffer_bytes = JOURNAL_BUFFER_BYTES;
    if (!options->seed)
        options->seed = random_entropy();
}

static int make_journal(struct journal **made, struct disk *disk, const struct journal_options *options,
                        struct error *error)
{
    struct journal *journal = calloc(1, sizeof *journal);
    *made = journal;
    if (!journal)
        return error_set(error, BANYAN_ENOMEM, "no memory for a journal");
    journal->disk = disk;
    journal->options = *options;
    fill_options(&journal->options);
    random_seed(&journal->nonces, journal->options.seed);
    journal->buffer = malloc(journal->options.buffer_bytes);
    if (!journal->buffer)
        return error_set(error, BANYAN_ENOMEM, "no memory for the journal's buffer of %u bytes",
                         journal->options.buffer_bytes);
    return 0;
}

/* If there is no room for a file, the journal is opened without one: else nothing could be released. The
 * records that it told are safe all the same (D13), and the names have to be too. */
static int begin_first(struct journal *journal, struct error *error)
{
    struct error cause = {0};
    int status = begin_file(journal, &cause);
    if (status == BANYAN_ENOSPC)
        return disk_sync_names(journal->disk, error);
    return status ? error_set(error, status, "%s", cause.text) : 0;
}

int journal_open(struct journal **opened, struct disk *disk, const struct journal_options *options,
                 struct journal_reader *reader, struct error *error)
{
    struct journal *journal;
    struct journal_found found = {0};
    *opened = NULL;
    int status = make_journal(&journal, disk, options, error);
    if (!status)
        status = journal_read(disk, &journal->options, reader, &found, error);
    if (!status) {
        journal->files = found.files;
        journal->count = journal->capacity = found.count;
        journal->safe = found.end;
        status = begin_first(journal, error);
    }
    if (status) {
        journal_close(journal);
        return status;
    }
    *opened = journal;
    return 0;
}
