/* book.c - see book.h. */
#include "book.h"

#include "base/random.h"
#include "disk/journal_format.h"

struct journal_options book_options(uint64_t from)
{
    return (struct journal_options){.cluster = BOOK_CLUSTER,
                                    .node = BOOK_NODE,
                                    .from = from,
                                    .file_bytes = 2048,
                                    .buffer_bytes = 8192,
                                    .seed = 1 + from};
}

static void fill(uint32_t number, uint8_t *bytes, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(random_mix(((uint64_t)number << 32 | i / 8) + 1) >> i % 8 * 8);
}

static uint8_t kind_of(uint32_t number)
{
    return (uint8_t)(1 + number % 255);
}

int book_append(struct book *book, struct journal *journal, uint32_t length, struct error *error)
{
    static uint8_t bytes[JOURNAL_LENGTH_MAX];
    uint64_t position;
    assert_true(book->count < BOOK_MAX);
    fill(book->next, bytes, length);
    int status = journal_append(journal, kind_of(book->next), bytes, length, &position, error);
    if (status)
        return status;
    book->pages[book->count++] = (struct page){book->next, length, position, journal_end(journal)};
    book->next++;
    return 0;
}

int book_sync(struct book *book, struct journal *journal, struct error *error)
{
    uint64_t safe = 0;
    int status = journal_sync(journal, &safe, error);
    if (!status)
        assert_int_equal(safe, journal_end(journal));
    assert_true(safe >= book->safe);
    book->safe = safe;
    return status;
}

static const struct page *find_page(const struct book *book, uint64_t position)
{
    for (uint32_t i = 0; i < book->count; i++)
        if (book->pages[i].position == position)
            return &book->pages[i];
    return NULL;
}

static int visit(void *context, const struct journal_record *record, struct error *error)
{
    static uint8_t bytes[JOURNAL_LENGTH_MAX];
    struct reading *reading = context;
    const struct page *page = find_page(reading->book, record->position);
    if (record->position != reading->end && !reading->losses)
        reading->wrong = "a record was left out";
    if (!page || page->length != record->length || page->end != record->end) {
        reading->wrong = "a record that was never appended";
        return 0;
    }
    fill(page->number, bytes, page->length);
    if (record->kind != kind_of(page->number) || memcmp(bytes, record->bytes, page->length) != 0)
        reading->wrong = "a record with other bytes";
    reading->end = record->end;
    reading->told++;
    return 0;
}

static void lose(void *context, uint64_t from, uint64_t to, const char *why)
{
    struct reading *reading = context;
    reading->lost++;
    reading->lost_from = from;
    reading->lost_to = to;
    reading->end = to;
}

void reading_begin(struct reading *reading, const struct book *book, uint64_t from)
{
    *reading = (struct reading){.book = book, .from = from, .end = from};
    reading->reader = (struct journal_reader){.visit = visit, .loss = lose, .context = reading};
}

const char *book_try(struct book *book, struct disk *disk, const struct journal_options *options,
                     struct journal **journal)
{
    static struct error error;
    struct reading reading;
    error = (struct error){0};
    reading_begin(&reading, book, options->from);
    if (journal_open(journal, disk, options, &reading.reader, &error))
        return error.text;
    if (reading.end < book->safe)
        reading.wrong = "what was promised is not there";
    if (journal_safe(*journal) != reading.end || journal_end(*journal) != reading.end)
        reading.wrong = "it goes on elsewhere than where the records end";
    if (reading.wrong) {
        journal_close(*journal);
        *journal = NULL;
        return reading.wrong;
    }
    while (book->count && book->pages[book->count - 1].end > reading.end)
        book->count--;
    book->safe = reading.end;
    return NULL;
}

struct journal *book_open(struct book *book, struct disk *disk, const struct journal_options *options)
{
    struct journal *journal = NULL;
    const char *wrong = book_try(book, disk, options, &journal);
    if (wrong)
        fail_msg("%s", wrong);
    return journal;
}

bool file_there(struct disk *disk, const char *name)
{
    struct disk_file *file;
    if (disk_open(disk, name, &file, NULL))
        return false;
    disk_file_close(file);
    return true;
}

uint8_t *file_read(struct disk *disk, const char *name, size_t *length)
{
    struct disk_file *file;
    uint64_t bytes;
    assert_int_equal(disk_open(disk, name, &file, NULL), 0);
    assert_int_equal(disk_size(file, &bytes, NULL), 0);
    uint8_t *read = malloc(bytes + 1);
    assert_non_null(read);
    assert_int_equal(disk_read(file, 0, read, bytes, length, NULL), 0);
    assert_int_equal(*length, bytes);
    disk_file_close(file);
    return read;
}

void file_write(struct disk *disk, const char *name, const void *bytes, size_t length)
{
    struct disk_file *file;
    if (disk_open(disk, name, &file, NULL))
        assert_int_equal(disk_create(disk, name, &file, NULL), 0);
    assert_int_equal(disk_truncate(file, 0, NULL), 0);
    assert_int_equal(disk_write(file, 0, &(struct disk_piece){bytes, length}, 1, NULL), 0);
    assert_int_equal(disk_sync(file, NULL), 0);
    disk_file_close(file);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
}

struct disk *disk_make(uint64_t seed)
{
    struct disk *disk = disk_simulated_create(&(struct disk_simulated_options){.seed = seed});
    assert_non_null(disk);
    return disk;
}
