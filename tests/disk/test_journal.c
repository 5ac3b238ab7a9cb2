/* test_journal.c - the journal on a simulated disk: what is told of whole, torn, damaged, missing and foreign
 * files, and what becomes of it when the disk fails. test_crash.c has the cuts. */
#include "book.h"

#include "base/crc32c.h"
#include "base/log.h"
#include "base/random.h"
#include "disk/journal_format.h"

#define FIRST  "journal-00000001"
#define SECOND "journal-00000002"
#define THIRD  "journal-00000003"

static struct disk *disk;
static struct book book;
static struct journal *journal;
static struct error error;

static int begin(void **state)
{
    disk = disk_make(1);
    book = (struct book){0};
    error = (struct error){0};
    const struct journal_options options = book_options(0);
    journal = book_open(&book, disk, &options);
    return 0;
}

static int end(void **state)
{
    journal_close(journal);
    journal = NULL;
    disk_close(disk);
    return 0;
}

static void add(uint32_t length)
{
    assert_int_equal(book_append(&book, journal, length, NULL), 0);
}

static void sync_all(void)
{
    assert_int_equal(book_sync(&book, journal, &error), 0);
}

static void reopen(uint64_t from)
{
    const struct journal_options options = book_options(from);
    journal_close(journal);
    disk_simulated_restart(disk);
    journal = book_open(&book, disk, &options);
}

/* Opens it for a refusal. */
static int refused(struct disk *on, struct journal_options options)
{
    struct reading reading;
    struct journal *none;
    error = (struct error){0};
    reading_begin(&reading, &book, options.from);
    int status = journal_open(&none, on, &options, &reading.reader, &error);
    assert_null(none);
    assert_true(status < 0);
    assert_int_equal(error.code, status);
    assert_null(reading.wrong);
    return status;
}

static void says(const char *what)
{
    if (!strstr(error.text, what))
        fail_msg("'%s' does not say '%s'", error.text, what);
}

/* A journal of another disk: four records of that length, each synced by itself. */
static void fill_other(struct book *other, struct disk *where, const struct journal_options *options,
                       uint32_t length)
{
    struct journal *opened = book_open(other, where, options);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(book_append(other, opened, length, NULL), 0);
        assert_int_equal(book_sync(other, opened, NULL), 0);
    }
    journal_close(opened);
}

/* Three files: two full ones, and a last one with a record or two of 600 bytes. */
static void fill_files(void)
{
    for (uint32_t i = 0; i < 8; i++) {
        add(600);
        sync_all();
    }
    assert_true(file_there(disk, THIRD));
}

/* ---- appending and reading ---- */

static void test_codec(void **state)
{
    const struct journal_head head = {.cluster = 1, .node = 2, .file = 3, .begin = 8, .nonce = 5};
    struct journal_head read;
    uint8_t bytes[JOURNAL_HEADER_BYTES], record[256];
    struct journal_view view;
    uint32_t version;
    char name[JOURNAL_NAME_BYTES];
    journal_head_encode(&head, bytes);
    assert_memory_equal(bytes, "BNYNJRNL\1\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\5",
                        41);
    assert_null(journal_head_decode(&read, bytes, &version));
    assert_memory_equal(&head, &read, sizeof head);
    journal_record_put(record, 9, "hello", 5);
    assert_int_equal(journal_record_seal(record, 5, 80, 72), 40);
    assert_int_equal(journal_record_bytes(0), 32);
    assert_int_equal(journal_record_bytes(8), 40);
    assert_memory_equal(record + 4, "\x4c\xbb\x71\x9a\5\0\0\0\11\0\0\0\120", 13);
    assert_memory_equal(record + 32, "hello\0\0\0", 8);
    assert_true(journal_view_decode(&view, record, 5, 80));
    assert_int_equal(view.synced, 72);
    assert_int_equal(view.kind, 9);
    assert_int_equal(view.check, crc32c(0, "hello", 5));
    assert_false(journal_view_decode(&view, record, 6, 80)); /* another file's */
    assert_false(journal_view_decode(&view, record, 5, 88)); /* another place */
    journal_name(name, 12);
    assert_string_equal(name, "journal-00000012");
    assert_int_equal(journal_number(name), 12);
    assert_int_equal(journal_number("journal-0000001"), 0);
    assert_int_equal(journal_number("journal-0000001a"), 0);
    assert_int_equal(journal_number("manifest"), 0);
}

static void test_records_are_read_again(void **state)
{
    const uint32_t lengths[] = {0, 1, 7, 8, 9, 600, 1900, 3000, 0, 512};
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        add(lengths[i]);
        if (i % 3 == 2)
            sync_all();
    }
    sync_all();
    for (int life = 0; life < 3; life++) {
        reopen(0);
        assert_int_equal(book.count, 10 + life);
        add(20);
        sync_all();
    }
}

static void test_the_longest(void **state)
{
    static const uint8_t bytes[JOURNAL_LENGTH_MAX + 1];
    struct journal_options options = book_options(0);
    uint64_t position;
    journal_close(journal);
    options.buffer_bytes = 1u << 20;
    journal = book_open(&book, disk, &options);
    for (uint32_t i = 0; i < 9; i++) {
        add(JOURNAL_LENGTH_MAX - (i & 1));
        if (i == 4)
            sync_all();
    }
    assert_int_equal(journal_append(journal, 1, bytes, JOURNAL_LENGTH_MAX + 1, &position, &error),
                     BANYAN_EINVAL);
    assert_int_equal(journal_append(journal, 0, bytes, 1, &position, &error), BANYAN_EINVAL);
    sync_all();
    reopen(0);
    assert_int_equal(book.count, 9);
}

static void test_buffer_is_bounded(void **state)
{
    for (uint32_t i = 0; i < 4; i++)
        add(2000);
    assert_int_equal(book_append(&book, journal, 2000, &error), BANYAN_EBUSY);
    says("buffer is full");
    sync_all();
    add(2000);
    sync_all();
    reopen(0);
    assert_int_equal(book.count, 5);
}

static void test_one_sync_for_many(void **state)
{
    const uint64_t before = disk_simulated_syncs(disk);
    for (uint32_t i = 0; i < 10; i++)
        add(100);
    sync_all();
    assert_int_equal(disk_simulated_syncs(disk) - before, 1);
    sync_all(); /* nothing to do */
    assert_int_equal(disk_simulated_syncs(disk) - before, 1);
}

static void test_what_is_not_synced_is_dropped_by_closing(void **state)
{
    add(100);
    sync_all();
    add(100);
    reopen(0);
    assert_int_equal(book.count, 1);
}

static void test_release(void **state)
{
    fill_files();
    const uint64_t second = book.pages[3].position;
    assert_int_equal(journal_release(journal, second - 1, &error), 0);
    assert_true(file_there(disk, FIRST));
    assert_int_equal(journal_release(journal, second, &error), 0);
    assert_false(file_there(disk, FIRST));
    assert_true(file_there(disk, SECOND));
    assert_int_equal(journal_begin(journal), second);
    /* Records that are needed no more are not told. */
    reopen(book.pages[5].position);
    assert_true(file_there(disk, SECOND));
    /* The last file stays. */
    assert_int_equal(journal_release(journal, journal_safe(journal), &error), 0);
    assert_int_equal(journal_begin(journal), journal_end(journal));
    add(10);
    assert_int_equal(journal_release(journal, journal_end(journal), &error), BANYAN_EINVAL);
    sync_all();
    reopen(book.pages[8].position);
    assert_int_equal(journal_end(journal), book.pages[8].end);
}

/* Files that were to be released are removed by the opening too, whatever is in them. */
static void test_unneeded_files_are_removed(void **state)
{
    fill_files();
    file_write(disk, FIRST, "nonsense", 8);
    reopen(book.pages[3].position);
    assert_false(file_there(disk, FIRST));
    assert_true(file_there(disk, SECOND));
}

static void test_from_is_a_place(void **state)
{
    add(100);
    sync_all();
    assert_int_equal(refused(disk, book_options(100)), BANYAN_EINVAL);
    says("no record of the journal begins at position 100");
}

/* ---- what is damaged ---- */

/* A record that a sync has acknowledged is damaged, and a later one says that it was synced. */
static void test_corrupt_is_not_a_tail(void **state)
{
    for (uint32_t i = 0; i < 3; i++) {
        add(200);
        sync_all();
    }
    assert_int_equal(disk_simulated_flip(disk, FIRST, 64 + 232 + 100, 1), 0);
    assert_int_equal(refused(disk, book_options(0)), BANYAN_ECORRUPT);
    says("journal-00000001 is corrupt at byte 296, for 232 bytes");
    says("accept the loss");
    /* And it goes on over it, if it is told to. */
    struct journal_options options = book_options(0);
    struct reading reading;
    journal_close(journal);
    options.accept_loss = true;
    reading_begin(&reading, &book, 0);
    reading.losses = true;
    assert_int_equal(journal_open(&journal, disk, &options, &reading.reader, &error), 0);
    assert_null(reading.wrong);
    assert_int_equal(reading.told, 2);
    assert_int_equal(reading.lost, 1);
    assert_int_equal(reading.reader.report.lost, 1);
    assert_int_equal(reading.lost_from, 232);
    assert_int_equal(reading.lost_to, 464);
    assert_int_equal(reading.end, 696);
}

/* The last record is damaged, which no other one calls synced: nobody can tell it from a torn one. Behind it
 * nothing is believed. */
static void test_a_torn_tail_is_cut(void **state)
{
    add(200);
    sync_all();
    for (uint32_t i = 0; i < 3; i++)
        add(200); /* synced together */
    sync_all();
    assert_int_equal(disk_simulated_flip(disk, FIRST, 64 + 2 * 232 + 100, 1), 0);
    const struct journal_options options = book_options(0);
    struct reading reading;
    journal_close(journal);
    reading_begin(&reading, &book, 0);
    assert_int_equal(journal_open(&journal, disk, &options, &reading.reader, &error), 0);
    assert_null(reading.wrong);
    assert_int_equal(reading.told, 2);
    assert_int_equal(reading.reader.report.cut_bytes, 464);
    /* It is cut for good. */
    book.count = 2;
    book.safe = 464;
    reopen(0);
    add(5);
    sync_all();
    reopen(0);
    assert_int_equal(book.count, 3);
}

/* All files, each byte of them flipped alone, on a copy of the disk. */
static void test_each_byte_flipped(void **state)
{
    static const char *names[] = {FIRST, SECOND, THIRD};
    uint32_t refusals = 0, openings = 0;
    for (uint32_t i = 0; i < 6; i++) {
        add(i * 37 % 200 + 400);
        sync_all();
    }
    reopen(0);
    add(3);
    add(4);
    sync_all();
    for (uint32_t name = 0; name < 3; name++) {
        size_t length;
        uint8_t *bytes = file_read(disk, names[name], &length);
        const uint64_t safe = book.safe;
        for (size_t at = 0; at < length; at++) {
            struct disk *copy = disk_simulated_state(disk, 0);
            struct book again = book;
            struct journal *opened = NULL;
            const struct journal_options options = book_options(0);
            assert_int_equal(disk_simulated_flip(copy, names[name], at, (uint8_t)(1u << at % 8)), 0);
            again.safe = name == 2 ? book.pages[5].end : safe; /* the last sync's records may be a tail */
            const char *wrong = book_try(&again, copy, &options, &opened);
            if (wrong && (!strstr(wrong, names[name]) || !strstr(wrong, "byte")))
                fail_msg("byte %zu of %s: %s", at, names[name], wrong);
            refusals += wrong != NULL;
            openings += wrong == NULL;
            if (!wrong && name < 2)
                assert_int_equal(again.count, book.count); /* nothing stands there: zeros behind a record */
            journal_close(opened);
            disk_close(copy);
        }
        free(bytes);
    }
    assert_true(refusals > 3000 && openings > 80);
}

/* The last file ends anywhere. */
static void test_every_prefix(void **state)
{
    size_t length;
    for (uint32_t i = 0; i < 3; i++) {
        add(150);
        sync_all();
    }
    uint8_t *bytes = file_read(disk, FIRST, &length);
    for (size_t some = 0; some < length; some++) {
        struct disk *copy = disk_simulated_state(disk, 0);
        struct book again = book;
        struct journal *opened = NULL;
        const struct journal_options options = book_options(0);
        file_write(copy, FIRST, bytes, some);
        again.safe = 0;
        const char *wrong = book_try(&again, copy, &options, &opened);
        if (some < JOURNAL_HEADER_BYTES) {
            assert_non_null(wrong);
            assert_non_null(strstr(wrong, "journal-00000001 is corrupt at byte 0: it is too short"));
        } else {
            assert_null(wrong);
            assert_int_equal(again.count, (some - 64) / 184);
        }
        journal_close(opened);
        disk_close(copy);
    }
    free(bytes);
}

/* The same of a file behind which there are others. */
static void test_every_prefix_of_an_earlier_file(void **state)
{
    size_t length;
    fill_files();
    uint8_t *bytes = file_read(disk, SECOND, &length);
    for (size_t some = 0; some < length; some += 8) {
        struct disk *copy = disk_simulated_state(disk, 0);
        file_write(copy, SECOND, bytes, some);
        assert_int_equal(refused(copy, book_options(0)), BANYAN_ECORRUPT);
        says("journal-00000002");
        says("byte");
        disk_close(copy);
    }
    struct disk *copy = disk_simulated_state(disk, 0);
    uint8_t *longer = calloc(1, length + 8);
    memcpy(longer, bytes, length);
    file_write(copy, SECOND, longer, length + 8);
    assert_int_equal(refused(copy, book_options(0)), BANYAN_ECORRUPT);
    says("goes on behind its end");
    disk_close(copy);
    free(longer);
    free(bytes);
}

static void test_missing_files(void **state)
{
    fill_files();
    struct journal_options options = book_options(0);
    struct disk *copy = disk_simulated_state(disk, 0);
    assert_int_equal(disk_remove(copy, SECOND, NULL), 0);
    assert_int_equal(refused(copy, options), BANYAN_ECORRUPT);
    says("journal-00000002 is missing before journal-00000003");
    /* With the loss accepted. */
    struct reading reading;
    struct journal *opened;
    options.accept_loss = true;
    reading_begin(&reading, &book, 0);
    reading.losses = true;
    assert_int_equal(journal_open(&opened, copy, &options, &reading.reader, &error), 0);
    assert_null(reading.wrong);
    assert_int_equal(reading.lost, 1);
    assert_int_equal(reading.lost_from, book.pages[3].position);
    assert_int_equal(reading.lost_to, book.pages[6].position);
    assert_int_equal(reading.told, 5);
    journal_close(opened);
    disk_close(copy);
    /* The first one. */
    copy = disk_simulated_state(disk, 0);
    assert_int_equal(disk_remove(copy, FIRST, NULL), 0);
    assert_int_equal(refused(copy, book_options(0)), BANYAN_ECORRUPT);
    says("journal-00000002 begins at position 1896, and the records from 0 on are missing");
    assert_int_equal(disk_remove(copy, SECOND, NULL), 0);
    assert_int_equal(disk_remove(copy, THIRD, NULL), 0);
    assert_int_equal(refused(copy, book_options(632)), BANYAN_ECORRUPT);
    says("the journal is missing, which has been released up to position 632");
    disk_close(copy);
}

/* The journal ends before what the manifest says: they are of different times. */
static void test_an_older_journal(void **state)
{
    add(100);
    sync_all();
    assert_int_equal(refused(disk, book_options(1000)), BANYAN_ECORRUPT);
    says("before position 1000, up to which it was released");
    struct journal_options options = book_options(1000);
    struct reading reading;
    options.accept_loss = true;
    reading_begin(&reading, &book, 1000);
    journal_close(journal);
    assert_int_equal(journal_open(&journal, disk, &options, &reading.reader, &error), 0);
    assert_int_equal(journal_end(journal), 1000);
    book = (struct book){.safe = 1000};
    add(5);
    sync_all();
    reopen(1000);
    assert_int_equal(book.count, 1);
}

/* A file of another copy of this directory, which went another way. */
static void test_files_of_different_times(void **state)
{
    struct disk *other = disk_make(2);
    struct book others = {0};
    struct journal_options options = book_options(0);
    size_t length;
    fill_files();
    options.file_bytes = 700;
    fill_other(&others, other, &options, 600);
    uint8_t *bytes = file_read(other, THIRD, &length);
    file_write(disk, THIRD, bytes, length);
    free(bytes);
    disk_close(other);
    assert_int_equal(refused(disk, options), BANYAN_ECORRUPT);
    says("journal-00000003 in the simulated disk begins at position 1264, where another file has records up "
         "to");
    says("they are of different times");
    options.accept_loss = true;
    assert_int_equal(refused(disk, options), BANYAN_ECORRUPT);
}

/* What nobody sets: large files, a nonce from the system. */
static void test_plain_options(void **state)
{
    const struct journal_options options = {.cluster = BOOK_CLUSTER, .node = BOOK_NODE};
    for (uint32_t life = 0; life < 2; life++) {
        journal_close(journal);
        journal = book_open(&book, disk, &options);
        for (uint32_t i = 0; i < 20; i++)
            add(JOURNAL_LENGTH_MAX);
        sync_all();
    }
    assert_true(file_there(disk, THIRD) && !file_there(disk, "journal-00000004"));
}

static void test_other_owners(void **state)
{
    struct journal_options options = book_options(0);
    add(100);
    sync_all();
    options.cluster++;
    assert_int_equal(refused(disk, options), BANYAN_EINVAL);
    says("journal-00000001 in the simulated disk is of memory node 3 of cluster 1122334455667788");
    says("name the directory of this memory node");
    options.cluster--;
    options.node++;
    assert_int_equal(refused(disk, options), BANYAN_EINVAL);
    says("this is memory node 4");
    options.accept_loss = true;
    assert_int_equal(refused(disk, options), BANYAN_EINVAL);
}

static void test_another_version(void **state)
{
    size_t length;
    add(100);
    sync_all();
    uint8_t *bytes = file_read(disk, FIRST, &length);
    bytes[8] = 2;
    const uint32_t check = crc32c(0, bytes, 60);
    memcpy(bytes + 60, &check, 4);
    file_write(disk, FIRST, bytes, length);
    free(bytes);
    assert_int_equal(refused(disk, book_options(0)), BANYAN_EVERSION);
    says("has format 2, this program reads format 1");
    struct journal_options options = book_options(0);
    options.accept_loss = true;
    assert_int_equal(refused(disk, options), BANYAN_EVERSION);
}

static void test_foreign_files(void **state)
{
    add(100);
    sync_all();
    /* Names that are not the journal's are nobody's business. */
    file_write(disk, "journal-1", "x", 1);
    file_write(disk, "journal-000000001", "x", 1);
    file_write(disk, "notes", "x", 1);
    reopen(0);
    assert_int_equal(book.count, 1);
    static const uint8_t text[200] = "Dear diary, today nothing happened.";
    file_write(disk, "journal-00000009", text, sizeof text);
    assert_int_equal(refused(disk, book_options(0)), BANYAN_ECORRUPT);
    says("journal-00000009 is corrupt at byte 0: it does not begin as a journal file of Banyan does");
    /* A file of this journal under another's name. */
    size_t length;
    uint8_t *bytes = file_read(disk, FIRST, &length);
    file_write(disk, "journal-00000009", bytes, length);
    free(bytes);
    assert_int_equal(refused(disk, book_options(0)), BANYAN_ECORRUPT);
    says("its header has another number than its name");
}

/* A file whose header is damaged tells nothing of its records. */
static void test_a_lost_header(void **state)
{
    fill_files();
    struct journal_options options = book_options(0);
    assert_int_equal(disk_simulated_flip(disk, SECOND, 30, 4), 0);
    assert_int_equal(refused(disk, options), BANYAN_ECORRUPT);
    says("journal-00000002 is corrupt at byte 0: its header's checksum is wrong");
    options.accept_loss = true;
    for (int life = 0; life < 2; life++) {
        struct reading reading;
        journal_close(journal);
        reading_begin(&reading, &book, 0);
        reading.losses = true;
        assert_int_equal(journal_open(&journal, disk, &options, &reading.reader, &error), 0);
        assert_null(reading.wrong);
        assert_int_equal(reading.lost_from, book.pages[3].position);
        assert_int_equal(reading.lost_to, book.pages[6].position);
    }
    /* It is released with the others. */
    assert_int_equal(journal_release(journal, book.pages[5].end - 1, &error), 0);
    assert_true(file_there(disk, SECOND));
    assert_int_equal(journal_release(journal, book.pages[5].end, &error), 0);
    assert_false(file_there(disk, SECOND));
    assert_true(file_there(disk, THIRD));
    reopen(book.pages[5].end);
}

/* The last file's records are lost with its header; the journal goes on behind all that it may have had. */
static void test_a_lost_last_header(void **state)
{
    struct journal_options options = book_options(0);
    struct reading reading;
    fill_files();
    assert_int_equal(disk_simulated_flip(disk, THIRD, 30, 4), 0);
    assert_int_equal(refused(disk, options), BANYAN_ECORRUPT);
    options.accept_loss = true;
    reading_begin(&reading, &book, 0);
    journal_close(journal);
    assert_int_equal(journal_open(&journal, disk, &options, &reading.reader, &error), 0);
    assert_null(reading.wrong);
    assert_int_equal(reading.told, 6);
    assert_true(journal_end(journal) >= book.pages[7].end);
}

/* ---- earlier uses ---- */

/* Records of an earlier use of the same name, at the same places, behind the end of what is there now. */
static void test_an_earlier_use(void **state)
{
    struct disk *earlier = disk_make(2);
    struct book other = {.next = 100};
    struct journal_options options = book_options(0);
    size_t length, others;
    options.seed = 99;
    fill_other(&other, earlier, &options, 100);
    for (uint32_t i = 0; i < 2; i++) {
        add(100);
        sync_all();
    }
    uint8_t *old = file_read(earlier, FIRST, &others), *now = file_read(disk, FIRST, &length);
    assert_true(others > length);
    memcpy(old, now, length);
    file_write(disk, FIRST, old, others);
    free(old);
    free(now);
    disk_close(earlier);
    reopen(0);
    assert_int_equal(book.count, 2);
}

/* ---- a disk that fails ---- */

static void test_a_failed_sync_ends_the_promise(void **state)
{
    uint64_t safe, position;
    struct error first = {0};
    add(100);
    sync_all();
    const uint64_t before = book.safe;
    add(100);
    disk_simulated_fail(disk, DISK_FAULT_SYNC, 0, 1);
    assert_int_equal(book_sync(&book, journal, &first), BANYAN_EUNKNOWN);
    assert_int_equal(book.safe, before);
    assert_non_null(strstr(first.text, "promise has ended"));
    assert_non_null(strstr(first.text, FIRST));
    /* The disk is well again, and would say yes. */
    for (int i = 0; i < 3; i++) {
        error = (struct error){0};
        assert_int_equal(journal_sync(journal, &safe, &error), BANYAN_EUNKNOWN);
        assert_string_equal(error.text, first.text);
        assert_int_equal(safe, before);
    }
    assert_int_equal(journal_append(journal, 1, "x", 1, &position, &error), BANYAN_EUNKNOWN);
    assert_int_equal(journal_release(journal, before, &error), BANYAN_EUNKNOWN);
    /* Another process in the same boot reads what the sync has left unwritten, and makes that safe. */
    for (uint64_t seed = 0; seed < 4; seed++) {
        reopen(0);
        struct disk *next = disk_simulated_cut(disk);
        struct book copy = book;
        const struct journal_options options = book_options(0);
        journal_close(book_open(&copy, next, &options));
        assert_int_equal(copy.count, book.count);
        disk_close(next);
    }
}

static void test_a_failed_write_ends_the_promise(void **state)
{
    add(100);
    sync_all();
    add(1000);
    disk_simulated_fail(disk, DISK_FAULT_WRITE, 0, 1);
    assert_int_equal(book_sync(&book, journal, &error), BANYAN_EUNKNOWN);
    error = (struct error){0};
    assert_int_equal(book_sync(&book, journal, &error), BANYAN_EUNKNOWN);
    says("promise has ended");
    reopen(0);
    add(10);
    sync_all();
    reopen(0);
}

static void test_failures_of_a_next_file(void **state)
{
    for (uint32_t fault = 0; fault < DISK_FAULTS; fault++) {
        add(1900);
        sync_all();
        add(1900); /* wants a next file: its header, then its name, then the record */
        disk_simulated_fail(disk, (enum disk_fault)fault, 0, 1);
        assert_int_equal(book_sync(&book, journal, &error), BANYAN_EUNKNOWN);
        assert_int_equal(book_sync(&book, journal, &error), BANYAN_EUNKNOWN);
        reopen(0);
    }
}

static void test_a_full_disk_does_not(void **state)
{
    fill_files();
    const uint64_t safe = book.safe;
    for (int attempt = 0; attempt < 2; attempt++) {
        disk_simulated_capacity(disk, disk_used(disk) + 100);
        add(500);
        error = (struct error){0};
        assert_int_equal(book_sync(&book, journal, &error), BANYAN_ENOSPC);
        says("full");
        assert_int_equal(book.safe, safe);
    }
    /* Something is released, and all that was appended goes its way. */
    assert_int_equal(journal_release(journal, book.pages[6].position, &error), 0);
    sync_all();
    assert_int_equal(book.safe, book.pages[9].end);
    disk_simulated_capacity(disk, 0);
    reopen(book.pages[6].position);
    assert_int_equal(book.safe, book.pages[9].end);
}

/* There is room for what goes into the file that is open, and none for the next one, or for its header
 * alone. */
static void test_full_at_a_next_file(void **state)
{
    for (uint64_t room = 0; room < 200; room += 40) {
        add(1000);
        add(900);
        const uint64_t middle = book.pages[book.count - 1].position;
        disk_simulated_capacity(disk, disk_used(disk) + 1032 + (book.count > 2 ? 64 : 0) + room);
        assert_int_equal(book_sync(&book, journal, &error), BANYAN_ENOSPC);
        assert_true(book.safe == middle || book.safe == book.pages[book.count - 2].position);
        disk_simulated_capacity(disk, 0);
        sync_all();
    }
    reopen(0);
    assert_int_equal(book.count, 10);
}

/* A journal on a full disk can be opened, since only then something can be released. */
static void test_opened_on_a_full_disk(void **state)
{
    const struct journal_options options = book_options(0);
    fill_files();
    journal_close(journal);
    disk_simulated_capacity(disk, disk_used(disk));
    journal = book_open(&book, disk, &options);
    assert_false(file_there(disk, "journal-00000004"));
    for (int attempt = 0; attempt < 2; attempt++) {
        add(100);
        assert_int_equal(book_sync(&book, journal, &error), BANYAN_ENOSPC);
    }
    struct disk *cut = disk_simulated_state(disk, 0);
    struct book copy = book;
    disk_simulated_restart(cut);
    journal_close(book_open(&copy, cut, &options));
    assert_int_equal(copy.count, 8);
    disk_close(cut);
    assert_int_equal(journal_release(journal, book.pages[6].position, &error), 0);
    sync_all();
    reopen(book.pages[6].position);
    assert_int_equal(book.count, 10);
}

static void test_begun_on_a_full_disk(void **state)
{
    const struct journal_options options = book_options(0);
    struct book none = {0};
    struct disk *full = disk_simulated_create(&(struct disk_simulated_options){.seed = 1, .limit = 10});
    struct journal *begun = book_open(&none, full, &options);
    assert_int_equal(journal_begin(begun), 0);
    assert_int_equal(book_append(&none, begun, 10, NULL), 0);
    assert_int_equal(book_sync(&none, begun, &error), BANYAN_ENOSPC);
    says("limit of 10 bytes");
    assert_int_equal(journal_release(begun, 0, NULL), 0);
    journal_close(begun);
    disk_close(full);
}

int main(void)
{
    log_set_level(LOG_ERROR + 1);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(test_codec),
        TEST(test_records_are_read_again),
        TEST(test_the_longest),
        TEST(test_buffer_is_bounded),
        TEST(test_one_sync_for_many),
        TEST(test_what_is_not_synced_is_dropped_by_closing),
        TEST(test_release),
        TEST(test_unneeded_files_are_removed),
        TEST(test_from_is_a_place),
        TEST(test_corrupt_is_not_a_tail),
        TEST(test_a_torn_tail_is_cut),
        TEST(test_each_byte_flipped),
        TEST(test_every_prefix),
        TEST(test_every_prefix_of_an_earlier_file),
        TEST(test_missing_files),
        TEST(test_an_older_journal),
        TEST(test_files_of_different_times),
        TEST(test_plain_options),
        TEST(test_other_owners),
        TEST(test_another_version),
        TEST(test_foreign_files),
        TEST(test_a_lost_header),
        TEST(test_a_lost_last_header),
        TEST(test_an_earlier_use),
        TEST(test_a_failed_sync_ends_the_promise),
        TEST(test_a_failed_write_ends_the_promise),
        TEST(test_failures_of_a_next_file),
        TEST(test_a_full_disk_does_not),
        TEST(test_full_at_a_next_file),
        TEST(test_opened_on_a_full_disk),
        TEST(test_begun_on_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
