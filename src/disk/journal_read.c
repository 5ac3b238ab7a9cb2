/*
 * journal_read.c - the opening of a journal: which files there are, what in them is whole, what is torn and
 * what is corrupt.
 *
 * Of every file but the last all is promised, up to where the next one begins (D8). Of the last file all is
 * promised up to the position that a record of it calls synced (D9); behind that, bytes that are no whole
 * record are a torn tail (D10). A record whose header is right is skipped as a whole even if its payload is
 * damaged, because the file's writer has reserved these bytes. So the time that it takes does not depend on
 * what the bytes are.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "disk/journal_format.h"

#define WINDOW_BYTES (1u << 20)

struct candidate {
    uint32_t number;
    uint64_t bytes;
    struct journal_head head;
    const char *complaint; /* NULL: the header is right */
};

struct reading {
    struct disk *disk;
    const struct journal_options *options;
    struct journal_reader *told;
    struct error *error;
    struct candidate *files; /* owned; in order */
    uint32_t count, capacity;
    uint64_t position; /* all before is read, lost, or needed no more */
    /* The file that is read. */
    const struct candidate *now;
    struct disk_file *file; /* owned; NULL: none is open */
    uint8_t *window;        /* owned: bytes of it */
    size_t window_bytes;    /* of room, which is enough for any record in the files */
    uint64_t window_at;
    size_t window_length;
};

enum found { FOUND_NOTHING, FOUND_TORN, FOUND_WHOLE };

/* ---- messages ---- */

/* D12: if something that was promised is not there, the opening ends, or the loss is told. */
__attribute__((format(printf, 4, 5))) static int lose(struct reading *reading, uint64_t from, uint64_t to,
                                                      const char *format, ...)
{
    char why[120];
    va_list arguments;
    to = (to + 7) & ~UINT64_C(7); /* where a record may begin */
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (!reading->options->accept_loss)
        return error_set(reading->error, BANYAN_ECORRUPT,
                         "%s (in %.50s): what was promised is lost; put the directory's copy in its place, "
                         "or accept the loss, and all else is read",
                         why, disk_path(reading->disk));
    log_error("%s (in %.200s): positions %" PRIu64 " to %" PRIu64 " of the journal are lost", why,
              disk_path(reading->disk), from, to);
    reading->told->report.lost++;
    if (reading->told->loss)
        reading->told->loss(reading->told->context, from, to, why);
    reading->position = to;
    return 0;
}

/* ---- which files there are ---- */

static int add_file(void *context, const char *name, uint64_t bytes, struct error *error)
{
    struct reading *reading = context;
    const uint32_t number = journal_number(name);
    if (!number)
        return 0;
    if (reading->count == reading->capacity) {
        uint32_t capacity = reading->capacity ? reading->capacity * 2 : 32;
        struct candidate *grown = realloc(reading->files, capacity * sizeof *grown);
        if (!grown)
            return error_set(error, BANYAN_ENOMEM, "no memory for the journal's list of files");
        reading->files = grown;
        reading->capacity = capacity;
    }
    reading->files[reading->count++] = (struct candidate){.number = number, .bytes = bytes};
    return 0;
}

static int open_file(struct reading *reading, const struct candidate *candidate)
{
    char name[JOURNAL_NAME_BYTES];
    journal_name(name, candidate->number);
    disk_file_close(reading->file);
    reading->file = NULL;
    reading->now = candidate;
    reading->window_length = 0;
    return disk_open(reading->disk, name, &reading->file, reading->error);
}

/* Refuses a file that is sound, but of another cluster or memory node. */
static int check_owner(const struct reading *reading, const struct candidate *candidate)
{
    const struct journal_head *head = &candidate->head;
    if (head->cluster == reading->options->cluster && head->node == reading->options->node)
        return 0;
    return error_set(reading->error, BANYAN_EINVAL,
                     "journal-%08u in %.50s is of memory node %u of cluster %016" PRIx64
                     ", this is memory node %u of cluster %016" PRIx64
                     "; nothing is changed: name the directory of this memory node",
                     candidate->number, disk_path(reading->disk), head->node, head->cluster,
                     reading->options->node, reading->options->cluster);
}

static int read_head(struct reading *reading, struct candidate *candidate)
{
    uint8_t bytes[JOURNAL_HEADER_BYTES];
    size_t got = 0;
    uint32_t version = 0;
    int status = open_file(reading, candidate);
    if (!status)
        status = disk_size(reading->file, &candidate->bytes, reading->error);
    if (!status)
        status = disk_read(reading->file, 0, bytes, sizeof bytes, &got, reading->error);
    if (status)
        return status;
    candidate->complaint = got < sizeof bytes ? "it is too short for its header"
                                              : journal_head_decode(&candidate->head, bytes, &version);
    if (version)
        return error_set(reading->error, BANYAN_EVERSION,
                         "journal-%08u in %.50s has format %u, this program reads format %u; nothing is "
                         "changed: start the version of Banyan that wrote it",
                         candidate->number, disk_path(reading->disk), version, JOURNAL_VERSION);
    if (!candidate->complaint && candidate->head.file != candidate->number)
        candidate->complaint = "its header has another number than its name";
    return candidate->complaint ? 0 : check_owner(reading, candidate);
}

static int find_files(struct reading *reading)
{
    int status = disk_list(reading->disk, add_file, reading, reading->error);
    for (uint32_t i = 0; !status && i < reading->count; i++)
        status = read_head(reading, &reading->files[i]);
    return status;
}

/* D11: removes files that lie wholly before `from`, as journal_release does, whatever is in them. */
static int remove_unneeded(struct reading *reading)
{
    uint32_t unneeded = 0;
    int status = 0;
    for (uint32_t i = 0; i < reading->count; i++)
        if (!reading->files[i].complaint && reading->files[i].head.begin <= reading->options->from)
            unneeded = i;
    for (uint32_t i = 0; !status && i < unneeded; i++) {
        char name[JOURNAL_NAME_BYTES];
        journal_name(name, reading->files[i].number);
        status = disk_remove(reading->disk, name, reading->error);
    }
    if (!status && unneeded) {
        reading->count -= unneeded;
        memmove(reading->files, reading->files + unneeded, reading->count * sizeof *reading->files);
    }
    return status;
}

/* ---- one file ---- */

static uint64_t offset_of(const struct reading *reading, uint64_t position)
{
    return JOURNAL_HEADER_BYTES + (position - reading->now->head.begin);
}

static uint64_t position_at(const struct reading *reading, uint64_t offset)
{
    return reading->now->head.begin + (offset - JOURNAL_HEADER_BYTES);
}

/* Reads so many bytes, all of which the file has; they are valid until the next call. */
static int take(struct reading *reading, uint64_t offset, uint32_t length, const uint8_t **bytes)
{
    if (offset < reading->window_at || offset + length > reading->window_at + reading->window_length) {
        reading->window_length = 0;
        reading->window_at = offset;
        int status = disk_read(reading->file, offset, reading->window, reading->window_bytes,
                               &reading->window_length, reading->error);
        if (status)
            return status;
        if (reading->window_length < length)
            return error_set(reading->error, BANYAN_ECORRUPT,
                             "journal-%08u in %.80s was cut while it was read", reading->now->number,
                             disk_path(reading->disk));
    }
    *bytes = reading->window + (offset - reading->window_at);
    return 0;
}

/* Finds what stands at the offset, and how far behind it the next record may begin. */
static int look(struct reading *reading, uint64_t offset, enum found *found, struct journal_view *view,
                const uint8_t **payload, uint64_t *step)
{
    const uint64_t left = reading->now->bytes - offset;
    const uint8_t *bytes = NULL; /* some compilers do not see that `take` sets it */
    *found = FOUND_NOTHING;
    *step = left < 8 ? left : 8;
    if (left < JOURNAL_RECORD_BYTES)
        return 0;
    int status = take(reading, offset, JOURNAL_RECORD_BYTES, &bytes);
    if (status || !journal_view_decode(view, bytes, reading->now->head.nonce, position_at(reading, offset)))
        return status;
    const uint32_t all = journal_record_bytes(view->length);
    *found = FOUND_TORN;
    *step = all < left ? all : left;
    if (all > left)
        return 0;
    status = take(reading, offset, all, &bytes);
    if (status)
        return status;
    *payload = bytes + JOURNAL_RECORD_BYTES;
    if (crc32c(0, *payload, view->length) == view->check)
        *found = FOUND_WHOLE;
    return 0;
}

/* The greatest position that a record behind the offset calls synced. */
static int find_synced(struct reading *reading, uint64_t offset, uint64_t *synced)
{
    int status = 0;
    for (uint64_t step; !status && offset < reading->now->bytes; offset += step) {
        struct journal_view view;
        enum found found;
        const uint8_t *payload;
        status = look(reading, offset, &found, &view, &payload, &step);
        if (!status && found != FOUND_NOTHING && view.synced > *synced)
            *synced = view.synced;
    }
    return status;
}

static int tell(struct reading *reading, uint64_t offset, const struct journal_view *view,
                const uint8_t *payload)
{
    const struct journal_record record = {.kind = view->kind,
                                          .length = view->length,
                                          .bytes = payload,
                                          .position = view->position,
                                          .end = view->position + journal_record_bytes(view->length),
                                          .file = reading->now->number,
                                          .offset = offset};
    reading->position = record.end;
    reading->told->report.records++;
    return reading->told->visit ? reading->told->visit(reading->told->context, &record, reading->error) : 0;
}

/* From `began` on, before the limit, no whole record stands. All is lost up to the next whole one, which is
 * looked for from `offset` on. */
static int lose_region(struct reading *reading, uint64_t began, uint64_t *offset, uint64_t limit, bool last)
{
    const uint64_t from = position_at(reading, began);
    enum found found = FOUND_NOTHING;
    int status = 0;
    while (!status && *offset < reading->now->bytes && position_at(reading, *offset) < limit) {
        struct journal_view view;
        const uint8_t *payload;
        uint64_t step;
        status = look(reading, *offset, &found, &view, &payload, &step);
        if (status || found == FOUND_WHOLE)
            break;
        *offset += step;
    }
    if (status)
        return status;
    uint64_t to = position_at(reading, *offset);
    if (found != FOUND_WHOLE && (to < limit || !last))
        to = limit;
    return lose(reading, from, to, "journal-%08u is corrupt at byte %" PRIu64 ", for %" PRIu64 " bytes",
                reading->now->number, began, to - from);
}

/* Tells all whole records before the limit, and, of the last file, those that follow. */
static int read_records(struct reading *reading, uint64_t limit, bool last)
{
    uint64_t offset = offset_of(reading, reading->position), step;
    int status = 0;
    while (!status && offset < reading->now->bytes && (last || position_at(reading, offset) < limit)) {
        const uint64_t began = offset, position = position_at(reading, offset);
        struct journal_view view;
        enum found found;
        const uint8_t *payload;
        status = look(reading, offset, &found, &view, &payload, &step);
        offset += step;
        if (status)
            break;
        if (found == FOUND_WHOLE && (last || position + step <= limit))
            status = tell(reading, began, &view, payload);
        else if (position < limit)
            status = lose_region(reading, began, &offset, limit, last);
        else
            break;
    }
    if (!status && reading->position < limit)
        status = lose(reading, reading->position, limit,
                      "journal-%08u ends at byte %" PRIu64 ", %" PRIu64 " bytes too early",
                      reading->now->number, reading->now->bytes, limit - reading->position);
    return status;
}

/* What the visitor says of the records that it was told, before their files are changed; else the status. */
static int settle(struct reading *reading, int status)
{
    struct error earlier = {0};
    const int found = reading->told->settle ? reading->told->settle(reading->told->context, &earlier) : 0;
    return found ? error_set(reading->error, found, "%s", earlier.text) : status;
}

/* ---- the last file ---- */

/* D13: writes again all bytes that no record calls synced, and syncs them: a sync that failed in an earlier
 * life may have dropped them, and left them to be read all the same. */
static int write_again(struct reading *reading, uint64_t synced)
{
    uint64_t end = offset_of(reading, reading->position);
    int status = 0;
    if (end > reading->now->bytes) /* behind a region that is lost */
        end = reading->now->bytes;
    for (uint64_t at = offset_of(reading, synced); !status && at < end;) {
        const uint64_t left = end - at;
        const uint32_t some = (uint32_t)(left < reading->window_bytes ? left : reading->window_bytes);
        const uint8_t *bytes;
        status = take(reading, at, some, &bytes);
        if (!status)
            status = disk_write(reading->file, at, &(struct disk_piece){bytes, some}, 1, reading->error);
        at += some;
    }
    return status ? status : disk_sync(reading->file, reading->error);
}

/* Without the zeros at their end. */
static uint64_t filled(const uint8_t *bytes, uint64_t length)
{
    while (length && !bytes[length - 1])
        length--;
    return length;
}

/* What stands behind `end`, but for zeros at the file's end: those of a file that was mapped were there from
 * its beginning (M1), and nothing tore them. */
static int measure_tail(struct reading *reading, uint64_t end, uint64_t *tail)
{
    int status = 0;
    *tail = 0;
    for (uint64_t at = end, some; !status && at < reading->now->bytes; at += some) {
        const uint64_t left = reading->now->bytes - at;
        const uint8_t *bytes = NULL;
        some = left < reading->window_bytes ? left : reading->window_bytes;
        status = take(reading, at, (uint32_t)some, &bytes);
        const uint64_t torn = status ? 0 : filled(bytes, some);
        if (torn)
            *tail = at + torn - end;
    }
    return status;
}

static int cut_tail(struct reading *reading)
{
    const uint64_t end = offset_of(reading, reading->position);
    uint64_t tail;
    if (end >= reading->now->bytes)
        return 0;
    int status = measure_tail(reading, end, &tail);
    if (status)
        return status;
    reading->told->report.cut_bytes = tail;
    if (tail)
        log_warning("journal-%08u in %.200s: %" PRIu64 " bytes from byte %" PRIu64
                    " on are a torn tail, which was never promised; they are cut",
                    reading->now->number, disk_path(reading->disk), tail, end);
    return disk_truncate(reading->file, end, reading->error);
}

static int read_last(struct reading *reading)
{
    uint64_t synced = reading->position;
    if (offset_of(reading, reading->position) > reading->now->bytes) {
        int status = lose(reading, reading->position, reading->position,
                          "journal-%08u ends at byte %" PRIu64 ", before position %" PRIu64
                          ", up to which it was released",
                          reading->now->number, reading->now->bytes, reading->position);
        return status ? status : disk_sync(reading->file, reading->error);
    }
    int status = find_synced(reading, offset_of(reading, reading->position), &synced);
    if (!status)
        status = read_records(reading, synced, true);
    status = settle(reading, status);
    if (!status)
        status = cut_tail(reading);
    return status ? status : write_again(reading, synced);
}

/* ---- all files ---- */

/* Whether the file goes on where the one before it ends. */
static int check_beginning(struct reading *reading, uint32_t index)
{
    const struct candidate *file = &reading->files[index];
    const uint64_t begin = file->head.begin;
    const uint32_t expected = index ? reading->files[index - 1].number + 1 : file->number;
    if (index && begin < reading->position)
        return error_set(reading->error, BANYAN_ECORRUPT,
                         "journal-%08u in %.50s begins at position %" PRIu64
                         ", where another file has records up to %" PRIu64
                         ": they are of different times; move the one away that is not of this journal",
                         file->number, disk_path(reading->disk), begin, reading->position);
    if (begin <= reading->position)
        return 0;
    if (file->number != expected)
        return lose(reading, reading->position, begin, "journal-%08u is missing before journal-%08u",
                    expected, file->number);
    return lose(reading, reading->position, begin,
                "journal-%08u begins at position %" PRIu64 ", and the records from %" PRIu64
                " on are missing",
                file->number, begin, reading->position);
}

/* Loses a file whose header is damaged, since nothing can be read of its records. */
static int lose_file(struct reading *reading, uint32_t index)
{
    struct candidate *file = &reading->files[index];
    uint64_t to = reading->position + (file->bytes & ~UINT64_C(7));
    file->head.begin = reading->position; /* so that it is released with what comes behind it */
    for (uint32_t i = index + 1; i < reading->count; i++)
        if (!reading->files[i].complaint) {
            to = reading->files[i].head.begin;
            break;
        }
    if (to < reading->position)
        to = reading->position;
    return lose(reading, reading->position, to, "journal-%08u is corrupt at byte 0: %s", file->number,
                file->complaint);
}

/* The position up to which a file that is not the last is promised. */
static uint64_t limit_of(const struct reading *reading, uint32_t index)
{
    const struct candidate *file = &reading->files[index], *next = file + 1;
    if (!next->complaint && next->number == file->number + 1)
        return next->head.begin;
    return file->head.begin + (file->bytes - JOURNAL_HEADER_BYTES);
}

static int read_earlier(struct reading *reading, uint32_t index)
{
    const struct candidate *file = reading->now;
    const uint64_t limit = limit_of(reading, index);
    if (limit < reading->position)
        return 0; /* check_beginning tells it of the next one */
    int status = read_records(reading, limit, false);
    if (!status && offset_of(reading, limit) < file->bytes)
        status = lose(reading, limit, limit,
                      "journal-%08u is corrupt at byte %" PRIu64 ": it goes on behind its end", file->number,
                      offset_of(reading, limit));
    return status;
}

static int read_file(struct reading *reading, uint32_t index)
{
    const struct candidate *file = &reading->files[index];
    if (file->complaint)
        return lose_file(reading, index);
    int status = check_beginning(reading, index);
    if (!status)
        status = open_file(reading, file);
    if (status)
        return status;
    return index + 1 < reading->count ? read_earlier(reading, index) : read_last(reading);
}

static int read_all(struct reading *reading)
{
    int status = 0;
    reading->position = reading->options->from;
    if (reading->position % 8 || reading->position > JOURNAL_POSITION_MAX)
        return error_set(reading->error, BANYAN_EINVAL,
                         "no record of the journal begins at position %" PRIu64, reading->position);
    if (!reading->count && reading->options->from)
        status = lose(reading, reading->position, reading->position,
                      "the journal is missing, which has been released up to position %" PRIu64,
                      reading->options->from);
    for (uint32_t i = 0; !status && i < reading->count; i++)
        status = read_file(reading, i);
    return status;
}

static int make_window(struct reading *reading)
{
    uint64_t longest = 1;
    for (uint32_t i = 0; i < reading->count; i++)
        if (reading->files[i].bytes > longest)
            longest = reading->files[i].bytes;
    reading->window_bytes = longest < WINDOW_BYTES ? (size_t)longest : WINDOW_BYTES;
    reading->window = malloc(reading->window_bytes);
    return reading->window ? 0 : error_set(reading->error, BANYAN_ENOMEM, "no memory to read the journal");
}

static int keep_files(const struct reading *reading, struct journal_found *found)
{
    found->end = reading->position;
    found->count = 0;
    if (!reading->count)
        return 0;
    found->files = calloc(reading->count, sizeof *found->files);
    if (!found->files)
        return error_set(reading->error, BANYAN_ENOMEM, "no memory for the journal's list of files");
    for (uint32_t i = 0; i < reading->count; i++) {
        const struct candidate *file = &reading->files[i];
        found->files[found->count++] = (struct journal_file){file->number, file->head.begin};
    }
    return 0;
}

int journal_read(struct disk *disk, const struct journal_options *options, struct journal_reader *told,
                 struct journal_found *found, struct error *error)
{
    struct reading reading = {.disk = disk, .options = options, .told = told, .error = error};
    told->report = (struct journal_report){0};
    int status = find_files(&reading);
    if (!status)
        status = make_window(&reading);
    if (!status)
        status = remove_unneeded(&reading);
    if (!status)
        status = settle(&reading, read_all(&reading));
    if (!status)
        status = keep_files(&reading, found);
    told->report.files = reading.count;
    disk_file_close(reading.file);
    free(reading.files);
    free(reading.window);
    return status;
}
