/*
 * test_mapped.c - journals whose files are mapped, in a real directory. There is no persistent memory here,
 * so files of the page cache are mapped in its place (map_any): what the program does is the same, and what a
 * cut leaves of it is for test_crash.c to show.
 */
#include "book.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "disk/disk_dax.h"
#include "failing.h"

#define FILE_BYTES 20000u

static char folder[64], path[128];
static struct error error;
static struct disk *disk;
static struct book book;

static int begin(void **state)
{
    /* In memory, where that can be had: test_real.c has maps of a disk's files. */
    snprintf(folder, sizeof folder, "%s/banyan-mapped-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/data", folder);
    error = (struct error){0};
    disk = NULL;
    book = (struct book){0};
    return 0;
}

static int end(void **state)
{
    char command[160];
    disk_close(disk);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command); /* NOLINT: a name of mkdtemp's */
}

static void open_with(struct disk_real_options options)
{
    disk_close(disk);
    if (disk_real_open(&disk, path, &options, &error))
        fail_msg("%s", error.text);
}

static struct journal *journal_of(uint64_t from)
{
    struct journal_options options = book_options(from);
    options.file_bytes = FILE_BYTES;
    options.buffer_bytes = 2 * FILE_BYTES;
    return book_open(&book, disk, &options);
}

static void add(struct journal *journal, uint32_t length)
{
    assert_int_equal(book_append(&book, journal, length, NULL), 0);
    if (book_sync(&book, journal, &error))
        fail_msg("%s", error.text);
}

static uint64_t size_of(uint32_t number)
{
    char name[192];
    struct stat status;
    snprintf(name, sizeof name, "%s/journal-%08u", path, number);
    assert_int_equal(stat(name, &status), 0);
    return (uint64_t)status.st_size;
}

/* Behind a header, records of these bytes. */
static uint64_t size_with(uint32_t records, uint32_t length)
{
    return JOURNAL_HEADER_BYTES + records * (JOURNAL_RECORD_BYTES + ((length + 7) & ~UINT64_C(7)));
}

/* ---- what it costs ---- */

/* All calls that write or sync fail, and the journal is none the worse. */
static void test_no_system_call(void **state)
{
    open_with((struct disk_real_options){.map_any = true});
    struct journal *journal = journal_of(0);
    assert_string_equal(disk_kind(disk), "persistent-memory");
    struct failing_order order = {.calls = FAILING_PWRITEV | FAILING_SYNC | FAILING_URING | FAILING_FSTAT |
                                           FAILING_FTRUNCATE | FAILING_MMAP,
                                  .where = FAILING_HERE,
                                  .error = EIO};
    failing_begin(&order);
    for (uint32_t i = 0; i < 20; i++)
        add(journal, 500);
    assert_int_equal(failing_end(), 0);
    /* The other way meets it at once. */
    journal_close(journal);
    open_with((struct disk_real_options){.io = DISK_IO_PLAIN});
    journal = journal_of(0);
    if (!strcmp(disk_kind(disk), "plain")) {
        assert_int_equal(book_append(&book, journal, 500, NULL), 0);
        order.calls = FAILING_SYNC;
        failing_begin(&order);
        const int status = book_sync(&book, journal, NULL);
        assert_true(failing_end() > 0);
        assert_int_equal(status, BANYAN_EUNKNOWN);
    }
    journal_close(journal);
}

/* Where there is no persistent memory one mapping is tried, and none from then on. */
static void test_asked_once(void **state)
{
    open_with((struct disk_real_options){.io = DISK_IO_PLAIN});
    failing_begin(&(struct failing_order){.calls = FAILING_MMAP, .where = FAILING_HERE, .error = EIO});
    struct journal *journal = journal_of(0);
    for (uint32_t i = 0; i < 50; i++)
        add(journal, 1500); /* four files */
    assert_int_equal(failing_end(), 1);
    assert_string_equal(disk_kind(disk), "plain");
    assert_int_equal(size_of(4), size_with(12, 1500));
    journal_close(journal);
}

/* ---- the files ---- */

static void test_lengths(void **state)
{
    open_with((struct disk_real_options){.map_any = true});
    struct journal *journal = journal_of(0);
    assert_int_equal(size_of(1), FILE_BYTES);
    for (uint32_t i = 0; i < 13; i++)
        add(journal, 1500);
    assert_int_equal(size_of(1), size_with(12, 1500));
    assert_int_equal(size_of(2), FILE_BYTES);
    journal_close(journal);
    assert_int_equal(size_of(2), size_with(1, 1500));
    assert_int_equal(disk_used(disk), size_with(12, 1500) + size_with(1, 1500));
    assert_string_not_equal(disk_kind(disk), "persistent-memory");
    journal_close(journal_of(0));
    assert_int_equal(book.count, 13);
}

/* A record that is longer than a file goes the other way, and the one behind it too, since a file of one
 * record ends. */
static void test_longer_than_a_file(void **state)
{
    open_with((struct disk_real_options){.map_any = true});
    struct journal *journal = journal_of(0);
    add(journal, 30000);
    add(journal, 100);
    journal_close(journal);
    assert_int_equal(size_of(1), size_with(1, 30000));
    journal_close(journal_of(0));
    assert_int_equal(book.count, 2);
}

/* What is written by both ways is synced by both. */
static void test_both_ways(void **state)
{
    uint8_t bytes[300], *read;
    struct disk_file *file;
    size_t length;
    memset(bytes, 7, sizeof bytes);
    open_with((struct disk_real_options){.map_any = true});
    assert_int_equal(disk_create(disk, "a", &file, NULL), 0);
    assert_int_equal(disk_map(file, 1000, &error), 0);
    assert_true(disk_mapped(file));
    assert_int_equal(disk_used(disk), 1000);
    assert_int_equal(disk_write(file, 900, &(struct disk_piece){bytes, 300}, 1, NULL), 0);
    failing_begin(&(struct failing_order){.calls = FAILING_SYNC, .where = FAILING_HERE, .error = EIO});
    assert_int_equal(disk_sync(file, NULL), BANYAN_EUNKNOWN);
    assert_int_equal(failing_end(), 1);
    assert_int_equal(disk_write_sync(file, 10, &(struct disk_piece){bytes, 20}, 1, NULL), 0);
    disk_file_close(file);
    read = file_read(disk, "a", &length);
    assert_int_equal(length, 1200);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(read[i], (i >= 10 && i < 30) || i >= 900 ? 7 : 0);
    free(read);
}

/* ---- the next life ---- */

/* A process that does not end leaves zeros, of which nobody hears; behind them nothing is told either. */
static void tail_with(uint64_t garbage, uint64_t expected)
{
    struct journal_options options = book_options(0);
    struct reading reading;
    struct journal *journal;
    uint8_t *bytes;
    size_t length;
    journal = journal_of(0);
    for (uint32_t i = 0; i < 3; i++)
        add(journal, 1500);
    bytes = file_read(disk, "journal-00000001", &length); /* as it is while the process lives */
    journal_close(journal);
    assert_int_equal(length, FILE_BYTES);
    memset(bytes + size_with(3, 1500), 0x55, garbage);
    file_write(disk, "journal-00000001", bytes, length);
    free(bytes);
    reading_begin(&reading, &book, 0);
    assert_int_equal(journal_open(&journal, disk, &options, &reading.reader, &error), 0);
    assert_null(reading.wrong);
    assert_int_equal(reading.told, 3);
    assert_int_equal(reading.reader.report.cut_bytes, expected);
    journal_close(journal);
    assert_int_equal(size_of(1), size_with(3, 1500));
}

static void test_zeros_are_not_torn(void **state)
{
    open_with((struct disk_real_options){.map_any = true});
    tail_with(0, 0);
}

static void test_torn_before_zeros(void **state)
{
    open_with((struct disk_real_options){.map_any = true});
    tail_with(1234, 1234);
}

/* ---- what is in the way ---- */

/* Of the room a file may have a quarter; the rest is for checkpoints. */
static void test_little_room(void **state)
{
    open_with((struct disk_real_options){.map_any = true, .limit = 4 * FILE_BYTES - 1000});
    struct journal *journal = journal_of(0);
    assert_int_equal(size_of(1), JOURNAL_HEADER_BYTES);
    add(journal, 1500);
    journal_close(journal);
    open_with((struct disk_real_options){.map_any = true, .limit = 5 * FILE_BYTES});
    journal = journal_of(0);
    assert_int_equal(size_of(2), FILE_BYTES);
    journal_close(journal);
}

/* One call of these fails: the journal goes without the mapping, or the call is needed anyway. */
static int attempt(void *context)
{
    struct error why = {0};
    struct disk *opened;
    struct journal *journal = NULL;
    struct journal_options options = {.cluster = 1, .file_bytes = FILE_BYTES, .seed = 1};
    struct journal_reader reader = {0};
    static const uint8_t bytes[3000];
    uint64_t position, safe = 0;
    char command[160];
    int status = disk_real_open(&opened, path,
                                &(struct disk_real_options){.map_any = true, .io = DISK_IO_PLAIN}, &why);
    for (uint32_t life = 0; !status && life < 2; life++) {
        status = journal_open(&journal, opened, &options, &reader, &why);
        for (uint32_t i = 0; !status && i < 8; i++) {
            status = journal_append(journal, 1, bytes, sizeof bytes, &position, &why);
            if (!status)
                status = journal_sync(journal, &safe, &why);
        }
        journal_close(journal);
        journal = NULL;
    }
    if (status)
        assert_true(why.code == status && why.text[0]);
    else
        assert_int_equal(safe, 16 * 3032);
    disk_close(opened);
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0); /* NOLINT: a name of mkdtemp's */
    return status;
}

#define ONE(what, code)                                                                                      \
    (&(struct failing_order){.calls = (what), .where = FAILING_HERE, .count = 1, .error = (code)})

static void test_refused_calls(void **state)
{
    failing_each(ONE(FAILING_MMAP, ENOMEM), attempt, NULL, 0);
    failing_each(ONE(FAILING_MADVISE, EFAULT), attempt, NULL, 0);
    failing_each(ONE(FAILING_MADVISE, EINVAL), attempt, NULL, 0);
    assert_true(failing_each(ONE(FAILING_PWRITEV, EIO), attempt, NULL, BANYAN_EUNKNOWN) >= 4);
    failing_each(ONE(FAILING_PWRITEV, ENOSPC), attempt, NULL, BANYAN_ENOSPC);
    /* All syncs that there are: of the directory's parent; in each of two lives of what was read (none at
     * first), of two files' header, name and zeros, and of the end of the one that is full. */
    assert_int_equal(failing_each(ONE(FAILING_SYNC, EIO), attempt, NULL, BANYAN_EUNKNOWN), 16);
    failing_each(ONE(FAILING_FTRUNCATE, EIO), attempt, NULL, BANYAN_EUNKNOWN);
    assert_true(failing_each(ONE(FAILING_MEMORY, ENOMEM), attempt, NULL, BANYAN_ENOMEM) > 10);
}

/* ---- the processor ---- */

static void test_ways(void **state)
{
    static uint8_t lines[4 * 64] __attribute__((aligned(64)));
    unsigned had = 0;
    for (enum dax_way way = DAX_CLWB; way < DAX_NONE; way++) {
        if (!dax_has(way))
            continue;
        had++;
        memset(lines, (int)way + 1, sizeof lines);
        for (size_t i = 0; i < sizeof lines; i += 64)
            dax_flush(way, lines + i);
        dax_fence(way);
        for (size_t i = 0; i < sizeof lines; i++)
            assert_int_equal(lines[i], way + 1);
    }
    assert_true((dax_way() == DAX_NONE) == (had == 0));
#ifdef __x86_64__
    assert_true(had > 0);
#endif
}

int main(void)
{
    log_set_level(LOG_ERROR + 1);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(test_no_system_call),    TEST(test_asked_once),
        TEST(test_lengths),           TEST(test_longer_than_a_file),
        TEST(test_both_ways),         TEST(test_zeros_are_not_torn),
        TEST(test_torn_before_zeros), TEST(test_little_room),
        TEST(test_refused_calls),     TEST(test_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
