/* test_real.c - a real directory: who may have it, what may lie in it, and that journal and manifest are read
 * again from it, with io_uring and without. */
#include "book.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "disk/manifest.h"

static char folder[64], path[128];
static struct error error;

/* ---- a temporary folder ---- */

static int begin(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/banyan-disk-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/data", folder);
    error = (struct error){0};
    return 0;
}

static int end(void **state)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command); /* NOLINT: a name of mkdtemp's */
}

static const char *inside(const char *name)
{
    static char text[192];
    snprintf(text, sizeof text, "%s/%s", path, name);
    return text;
}

static void text_write(const char *file, const char *text)
{
    FILE *to = fopen(file, "we");
    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static void says(const char *what)
{
    if (!strstr(error.text, what))
        fail_msg("'%s' does not say '%s'", error.text, what);
}

static struct disk *open_with(struct disk_real_options options)
{
    struct disk *disk;
    if (disk_real_open(&disk, path, &options, &error))
        fail_msg("%s", error.text);
    return disk;
}

static int refused(const char *where)
{
    struct disk *disk;
    int status = disk_real_open(&disk, where, &(struct disk_real_options){0}, &error);
    assert_null(disk);
    assert_true(status < 0);
    return status;
}

/* ---- the directory ---- */

static void test_made_and_opened_again(void **state)
{
    struct stat status;
    struct disk *disk = open_with((struct disk_real_options){0});
    assert_int_equal(stat(path, &status), 0);
    assert_true(S_ISDIR(status.st_mode) && (status.st_mode & 077) == 0);
    file_write(disk, "a", "12345", 5);
    disk_close(disk);
    disk = open_with((struct disk_real_options){0});
    assert_int_equal(disk_used(disk), 5);
    size_t length;
    uint8_t *bytes = file_read(disk, "a", &length);
    assert_memory_equal(bytes, "12345", 5);
    free(bytes);
    disk_close(disk);
}

/* Another process has it; when that has been killed, it is free. */
static void test_one_process_at_a_time(void **state)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        struct disk *disk;
        int status = disk_real_open(&disk, path, &(struct disk_real_options){0}, NULL);
        if (write(ready[1], "x", 1) != 1 || status)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    char expected[64];
    assert_int_equal(refused(path), BANYAN_EBUSY);
    snprintf(expected, sizeof expected, "in use by another process (%ld, as it says)", (long)child);
    says(expected);
    says("a directory of its own");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    struct disk *disk = open_with((struct disk_real_options){.lock_wait = UINT64_C(5000000000)});
    assert_int_equal(refused(path), BANYAN_EBUSY); /* also twice in one process */
    disk_close(disk);
    close(ready[0]);
    close(ready[1]);
}

static void test_no_directory(void **state)
{
    text_write(path, "a file");
    assert_int_equal(refused(path), BANYAN_EINVAL);
    says("is not a directory");
    assert_int_equal(refused(inside("below")), BANYAN_EINVAL);
    says("is not a directory");
    char deep[160];
    snprintf(deep, sizeof deep, "%s/no/such", folder);
    assert_int_equal(refused(deep), BANYAN_EINVAL);
    says("make that one first");
}

/* As another user, since root is asked for no permission. Ends with 0, 1, or 2: it cannot be tried. */
static int try_as_nobody(void)
{
    struct disk *disk;
    error = (struct error){0};
    if (setgid(65534) || setuid(65534))
        return 2;
    if (disk_real_open(&disk, path, &(struct disk_real_options){0}, &error) != BANYAN_EINVAL)
        return 1;
    return strstr(error.text, "no permission to") && strstr(error.text, "number 65534") ? 0 : 1;
}

static void test_no_permission(void **state)
{
    int status;
    if (getuid() != 0)
        skip();
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    for (int closed = 0; closed < 2; closed++) {
        assert_int_equal(chmod(path, closed ? 0700 : 0755), 0); /* not to be read; not to be written */
        pid_t child = fork();
        if (!child)
            _exit(try_as_nobody());
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 2)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* In a mount namespace of its own. Ends with 0, 1, or 2: it cannot be tried. */
static int try_read_only(void)
{
    struct disk *disk;
    error = (struct error){0};
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount(path, path, NULL, MS_BIND, NULL) ||
        mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        return 2;
    if (disk_real_open(&disk, path, &(struct disk_real_options){0}, &error) != BANYAN_EINVAL)
        return 1;
    return strstr(error.text, "mounted read-only") ? 0 : 1;
}

static void test_read_only(void **state)
{
    int status;
    assert_int_equal(mkdir(path, 0755), 0);
    pid_t child = fork();
    if (!child)
        _exit(try_read_only());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- what lies in it ---- */

static void test_links_are_not_followed(void **state)
{
    char outside[128];
    struct disk *disk = open_with((struct disk_real_options){0});
    struct disk_file *file;
    snprintf(outside, sizeof outside, "%s/outside", folder);
    text_write(outside, "mine");
    assert_int_equal(symlink(outside, inside("journal-00000001")), 0);
    assert_int_equal(symlink(outside, inside("a")), 0);
    assert_int_equal(mkdir(inside("b"), 0700), 0);
    assert_int_equal(mkfifo(inside("c"), 0600), 0);
    assert_int_equal(disk_open(disk, "a", &file, &error), BANYAN_EINVAL);
    says("file a in");
    says("is a symbolic link; put the file itself there");
    assert_int_equal(disk_create(disk, "a", &file, &error), BANYAN_EEXIST);
    assert_int_equal(disk_open(disk, "b", &file, &error), BANYAN_EINVAL);
    assert_int_equal(disk_open(disk, "c", &file, &error), BANYAN_EINVAL);
    says("is not a regular file");
    /* And the journal says it too, instead of going on without. */
    struct book book = {0};
    struct journal *journal = NULL;
    const struct journal_options options = book_options(0);
    const char *wrong = book_try(&book, disk, &options, &journal);
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "journal-00000001"));
    assert_non_null(strstr(wrong, "symbolic link"));
    disk_close(disk);
    /* The lock is no way out either. */
    assert_int_equal(unlink(inside("LOCK")), 0);
    assert_int_equal(symlink(outside, inside("LOCK")), 0);
    assert_int_equal(refused(path), BANYAN_EINVAL);
    says("LOCK in it is a symbolic link");
}

static int count_name(void *context, const char *name, uint64_t bytes, struct error *unused)
{
    ++*(int *)context;
    return 0;
}

static void test_others_files_stay(void **state)
{
    int names = 0;
    struct disk *disk = open_with((struct disk_real_options){0});
    text_write(inside("README"), "what this is");
    text_write(inside(".hidden"), "x");
    file_write(disk, "a", "x", 1);
    assert_int_equal(disk_list(disk, count_name, &names, NULL), 0);
    assert_int_equal(names, 1);
    disk_close(disk);
    assert_int_equal(access(inside("README"), F_OK), 0);
}

static void test_foreign_journal(void **state)
{
    struct disk *disk = open_with((struct disk_real_options){0});
    struct book book = {0};
    struct journal *journal = NULL;
    const struct journal_options options = book_options(0);
    text_write(inside("journal-00000007"), "Dear diary");
    const char *wrong = book_try(&book, disk, &options, &journal);
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "journal-00000007 is corrupt at byte 0"));
    assert_non_null(strstr(wrong, path));
    disk_close(disk);
}

static void test_limit(void **state)
{
    struct disk *disk = open_with((struct disk_real_options){.limit = 1 << 20});
    struct book book = {0};
    struct journal_options options = book_options(0);
    options.file_bytes = 300 << 10;
    options.buffer_bytes = 256 << 10;
    struct journal *journal = book_open(&book, disk, &options);
    int status = 0;
    while (!status) {
        assert_int_equal(book_append(&book, journal, 50000, NULL), 0);
        status = book_sync(&book, journal, &error);
    }
    assert_int_equal(status, BANYAN_ENOSPC);
    says("limit of 1048576 bytes that was given for the directory");
    assert_true(disk_used(disk) > 900 << 10 && disk_used(disk) <= 1 << 20);
    assert_int_equal(journal_release(journal, book.safe, NULL), 0);
    assert_int_equal(book_sync(&book, journal, NULL), 0);
    options.from = book.pages[book.count - 1].position;
    journal_close(journal);
    journal_close(book_open(&book, disk, &options));
    disk_close(disk);
}

/* No descriptor is left for a ring: it goes without. */
static void test_no_ring_left(void **state)
{
    struct rlimit limit, before;
    struct disk *disk = open_with((struct disk_real_options){0});
    struct book book = {0};
    const struct journal_options options = book_options(0);
    struct journal *journal = book_open(&book, disk, &options);
    int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(book_append(&book, journal, 100, NULL), 0);
    const int status = book_sync(&book, journal, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, 0);
    journal_close(journal);
    journal_close(book_open(&book, disk, &options));
    assert_int_equal(book.count, 1);
    disk_close(disk);
}

/* A file cannot grow any more in the middle of a write: what is there of it is told as a failure. */
static void test_short_writes(void **state)
{
    static uint8_t bytes[65536];
    for (enum disk_io io = DISK_IO_AUTO; io <= DISK_IO_PLAIN;
         io = io == DISK_IO_AUTO ? DISK_IO_PLAIN : io + 1) {
        struct rlimit limit, before;
        struct disk *disk = open_with((struct disk_real_options){.io = io});
        struct disk_file *file;
        uint64_t size;
        assert_int_equal(disk_create(disk, "a", &file, NULL), 0);
        const struct disk_piece pieces[] = {{bytes, 1000}, {bytes, 0}, {bytes + 1000, 64536}};
        assert_int_equal(disk_write_sync(file, 0, pieces, 3, NULL), 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        limit = before;
        limit.rlim_cur = 100000;
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const int status = disk_write_sync(file, 65536, pieces, 3, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, BANYAN_EUNKNOWN);
        says("file a in");
        assert_int_equal(disk_size(file, &size, NULL), 0);
        assert_int_equal(size, 100000);
        assert_int_equal(disk_used(disk), 100000);
        disk_file_close(file);
        assert_int_equal(disk_remove(disk, "a", NULL), 0);
        disk_close(disk);
    }
}

/* A file system of 1 MiB, in a mount namespace of its own. Ends with 0, 1, or 2: it cannot be tried. */
static int try_full(enum disk_io io)
{
    struct disk *disk;
    struct book book = {0};
    struct journal_options options = book_options(0);
    uint64_t left;
    int status = 0;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", path, "tmpfs", 0, "size=1m"))
        return 2;
    options.file_bytes = 300 << 10;
    options.buffer_bytes = 256 << 10;
    if (disk_real_open(&disk, path, &(struct disk_real_options){.io = io}, NULL) ||
        disk_free(disk, &left, NULL) || left < 900 << 10 || left > 1 << 20)
        return 1;
    struct journal *journal = book_open(&book, disk, &options);
    for (error = (struct error){0}; !status;) /* 100,000 bytes at a time: the last ones find room in part */
        status = book_append(&book, journal, 50000, &error) || book_append(&book, journal, 50000, &error)
                     ? BANYAN_EBUSY
                     : book_sync(&book, journal, &error);
    if (status != BANYAN_ENOSPC || book.safe < 800000)
        return 1;
    if (journal_release(journal, book.safe - 100, NULL) || book_sync(&book, journal, NULL))
        return 1;
    options.from = book.pages[book.count - 1].position;
    journal_close(journal);
    journal_close(book_open(&book, disk, &options));
    disk_close(disk);
    return 0;
}

static void test_full(void **state)
{
    int status;
    assert_int_equal(mkdir(path, 0755), 0);
    for (int io = 0; io < 2; io++) {
        pid_t child = fork();
        if (!child)
            _exit(try_full(io ? DISK_IO_PLAIN : DISK_IO_AUTO));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 2)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* ---- journal and manifest ---- */

static void lives(struct disk *disk)
{
    struct book book = {0};
    struct manifest now = {.cluster = BOOK_CLUSTER, .node = BOOK_NODE, .nodes = 1}, read;
    struct journal_options options = book_options(0);
    options.file_bytes = 100000;
    options.buffer_bytes = 300000;
    assert_int_equal(manifest_replace(disk, NULL, &now, NULL), 0);
    for (uint32_t life = 0; life < 4; life++) {
        struct journal *journal = book_open(&book, disk, &options);
        for (uint32_t i = 0; i < 40; i++) {
            assert_int_equal(book_append(&book, journal, i * i * 7 % 20000, NULL), 0);
            if (i % 7 == life)
                assert_int_equal(book_sync(&book, journal, NULL), 0);
        }
        assert_int_equal(book_sync(&book, journal, NULL), 0);
        struct manifest next = now;
        next.position = book.pages[book.count - 30].position;
        assert_int_equal(manifest_replace(disk, &now, &next, NULL), 0);
        now = next;
        assert_int_equal(journal_release(journal, now.position, NULL), 0);
        journal_close(journal);
        assert_int_equal(manifest_open(disk, BOOK_CLUSTER, BOOK_NODE, 1, &read, &error), 0);
        assert_int_equal(read.position, now.position);
        assert_int_equal(read.serial, life + 2);
        manifest_free(&read);
        options.from = now.position;
    }
    journal_close(book_open(&book, disk, &options));
}

static void test_lives_plain(void **state)
{
    struct disk *disk = open_with((struct disk_real_options){.io = DISK_IO_PLAIN});
    assert_string_equal(disk_kind(disk), "plain");
    lives(disk);
    disk_close(disk);
}

static void test_lives_uring(void **state)
{
    struct disk *disk;
    int status = disk_real_open(&disk, path, &(struct disk_real_options){.io = DISK_IO_URING}, &error);
    if (status == BANYAN_ENOTSUP)
        skip();
    assert_int_equal(status, 0);
    assert_string_equal(disk_kind(disk), "io_uring");
    lives(disk);
    disk_close(disk);
}

static void test_lives_mapped(void **state)
{
    struct disk *disk = open_with((struct disk_real_options){.map_any = true});
    lives(disk);
    disk_close(disk);
}

/* A process is killed while it appends and syncs, and tells each sync that was acknowledged: all of that is
 * there. */
static void kill_one(struct book *book, uint32_t number, bool map)
{
    int told[2];
    uint64_t safe = 0, last = 0;
    struct journal_options options = book_options(0);
    options.file_bytes = 20000;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (!child) {
        struct disk *disk;
        if (disk_real_open(&disk, path, &(struct disk_real_options){.map_any = map}, NULL))
            _exit(1);
        struct journal *journal = book_open(book, disk, &options);
        if (map && strcmp(disk_kind(disk), "persistent-memory") != 0)
            _exit(1);
        for (;;) {
            while (book->count == BOOK_MAX)
                pause();
            if (book_append(book, journal, book->next * 13 % 700, NULL) || book_sync(book, journal, NULL) ||
                write(told[1], &book->safe, 8) != 8)
                _exit(1);
        }
    }
    close(told[1]);
    for (uint32_t i = 0; i < 20 + number * 7 && read(told[0], &last, 8) == 8; i++)
        safe = last;
    kill(child, SIGKILL);
    while (read(told[0], &last, 8) == 8)
        safe = last;
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(told[0]);
    assert_true(safe > 0);
    book->safe = safe;
}

static void kill_some(void **state, bool map)
{
    for (uint32_t number = 0; number < 5; number++) {
        static struct book book;
        book = (struct book){0};
        kill_one(&book, number, map);
        const uint64_t safe = book.safe;
        /* What the child has appended follows from the numbers. */
        uint64_t position = 0;
        for (uint32_t i = 0; i < BOOK_MAX; i++) {
            const uint32_t length = i * 13 % 700;
            book.pages[i] = (struct page){i, length, position, position + 32 + ((length + 7) & ~7u)};
            position = book.pages[i].end;
        }
        book.count = BOOK_MAX;
        assert_true(position > safe);
        struct disk *disk = open_with((struct disk_real_options){.lock_wait = UINT64_C(5000000000)});
        struct journal_options options = book_options(0);
        journal_close(book_open(&book, disk, &options));
        disk_close(disk);
        end(state);
        begin(state);
    }
}

static void test_killed(void **state)
{
    kill_some(state, false);
}

static void test_killed_mapped(void **state)
{
    kill_some(state, true);
}

int main(void)
{
    log_set_level(LOG_ERROR + 1);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(test_made_and_opened_again),
        TEST(test_one_process_at_a_time),
        TEST(test_no_directory),
        TEST(test_no_permission),
        TEST(test_read_only),
        TEST(test_links_are_not_followed),
        TEST(test_others_files_stay),
        TEST(test_foreign_journal),
        TEST(test_limit),
        TEST(test_no_ring_left),
        TEST(test_short_writes),
        TEST(test_full),
        TEST(test_lives_plain),
        TEST(test_lives_uring),
        TEST(test_lives_mapped),
        TEST(test_killed),
        TEST(test_killed_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
