/* keep_file.c - see keep_file.h. */
#include "memory/keep_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/random.h"
#include "base/task.h"

#define PAGE_BYTES   4096u
#define WAIT_NS      (2000 * UINT64_C(1000000))
#define WAIT_STEP_NS (10 * UINT64_C(1000000))

struct keep_file {
    char *path;
    int descriptor;
    bool made;
    struct keep_header header; /* as it was read, if it is made */
};

static uint32_t header_check(const struct keep_header *header)
{
    const size_t from = offsetof(struct keep_header, version), to = offsetof(struct keep_header, made);
    return crc32c(0, (const uint8_t *)header + from, to - from);
}

const char *keep_file_path(const struct keep_file *file)
{
    return file->path;
}

/* ---- opening ---- */

static int open_path(struct keep_file *file, struct error *error)
{
    struct stat status;
    /* Not blocking: a pipe is refused below, and not waited for. */
    file->descriptor = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (file->descriptor < 0)
        return error_set(error, BANYAN_EINVAL, "pool file %s cannot be opened to be read and written: %s",
                         file->path, strerror(errno));
    if (fstat(file->descriptor, &status) != 0)
        return error_set(error, BANYAN_EINVAL, "pool file %s: %s", file->path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return error_set(error, BANYAN_EINVAL,
                         "pool file %s is not a regular file; name one, on any file system", file->path);
    return BANYAN_OK;
}

/* Of the process that had it last; 0: not known. */
static unsigned long long holder(const struct keep_file *file)
{
    uint64_t pid = 0;
    const off_t at = KEEP_WORDS_OFFSET + offsetof(struct keep_words, pid);
    return pread(file->descriptor, &pid, sizeof pid, at) == sizeof pid ? pid : 0;
}

static int lock_file(struct keep_file *file, struct error *error)
{
    uint64_t until = task_now() + WAIT_NS;
    while (flock(file->descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set(error, BANYAN_EINVAL, "pool file %s cannot be locked: %s", file->path,
                             strerror(errno));
        if (task_now() >= until)
            return error_set(error, BANYAN_EBUSY,
                             "pool file %s is in use by another process (%llu, as it says): each memory node "
                             "needs a file of its own",
                             file->path, holder(file));
        task_sleep(WAIT_STEP_NS);
    }
    return BANYAN_OK;
}

/* ---- what there is ---- */

/* A short file of zeros: nothing is lost by taking it for an empty one, which it was when its making was cut.
 */
static bool only_zeros(const struct keep_file *file, uint64_t bytes)
{
    static const uint8_t zeros[PAGE_BYTES];
    uint8_t page[PAGE_BYTES];
    if (bytes > KEEP_POOL_ALIGNMENT)
        return false;
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES) {
        ssize_t got = pread(file->descriptor, page, sizeof page, (off_t)at);
        if (got < 0 || memcmp(page, zeros, (size_t)got) != 0)
            return false;
    }
    return true;
}

static int damaged(const struct keep_file *file, const char *what, struct error *error)
{
    return error_set(error, BANYAN_ECORRUPT,
                     "pool file %s is damaged: %s; nothing in it is changed: move it away to begin with an "
                     "empty pool",
                     file->path, what);
}

static int check_header(struct keep_file *file, uint64_t bytes, struct error *error)
{
    struct keep_header *header = &file->header;
    ssize_t got = pread(file->descriptor, header, sizeof *header, 0);
    if (got < 0)
        return error_set(error, BANYAN_EINVAL, "pool file %s cannot be read: %s", file->path,
                         strerror(errno));
    if ((size_t)got < sizeof *header || header->magic != KEEP_MAGIC)
        return error_set(
            error, BANYAN_EINVAL,
            "pool file %s is not a pool of Banyan, or its first 8 bytes are damaged; it is left as "
            "it is: name another file, or an empty one",
            file->path);
    if (header->version != KEEP_VERSION)
        return error_set(
            error, BANYAN_EVERSION,
            "pool file %s has format %u (at byte 12), this memory node reads format %u: start the "
            "version of Banyan that made it, or move the file away to begin with an empty pool",
            file->path, header->version, KEEP_VERSION);
    if (header->check != header_check(header))
        return damaged(file, "its header (its first 184 bytes) does not have the check that it says", error);
    if (header->made == 0)
        return BANYAN_OK; /* it is made again */
    if (header->made != KEEP_MADE)
        return damaged(file, "its header's last word says neither that it is made nor that it is not", error);
    if (bytes < header->bytes)
        return error_set(error, BANYAN_ECORRUPT,
                         "pool file %s is damaged: it has %llu bytes where its header says %llu, so its end "
                         "is missing; move it away to begin with an empty pool",
                         file->path, (unsigned long long)bytes, (unsigned long long)header->bytes);
    file->made = true;
    return BANYAN_OK;
}

static int examine(struct keep_file *file, struct error *error)
{
    struct stat status;
    if (fstat(file->descriptor, &status) != 0)
        return error_set(error, BANYAN_EINVAL, "pool file %s: %s", file->path, strerror(errno));
    uint64_t bytes = (uint64_t)status.st_size;
    return only_zeros(file, bytes) ? BANYAN_OK : check_header(file, bytes, error);
}

int keep_file_open(struct keep_file **opened, const char *path, struct error *error)
{
    struct keep_file *file = calloc(1, sizeof *file);
    *opened = NULL;
    if (file == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for pool file %s", path);
    file->descriptor = -1;
    file->path = strdup(path);
    int status = file->path != NULL ? open_path(file, error)
                                    : error_set(error, BANYAN_ENOMEM, "no memory for pool file %s", path);
    if (!status)
        status = lock_file(file, error);
    if (!status)
        status = examine(file, error);
    if (status) {
        keep_file_close(file);
        return status;
    }
    *opened = file;
    return BANYAN_OK;
}

void keep_file_close(struct keep_file *file)
{
    if (file == NULL)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    free(file->path);
    free(file);
}

bool keep_file_sizes(const struct keep_file *file, struct keep_sizes *sizes)
{
    const struct keep_header *header = &file->header;
    if (file->made)
        *sizes = (struct keep_sizes){.pool_bytes = header->pool_bytes,
                                     .chunk_bytes = header->chunk_bytes,
                                     .lock_bytes = header->lock_bytes,
                                     .log_bytes = header->log_bytes,
                                     .lock_width = (uint32_t)header->lock_width};
    return file->made;
}

/* ---- making and mapping ---- */

/* A system of files in huge pages has no write(): there the file begins with one page of them. */
static int write_first(const struct keep_file *file, const struct keep_header *header)
{
    struct stat status;
    if (pwrite(file->descriptor, header, sizeof *header, 0) == sizeof *header)
        return 0;
    if (errno != EINVAL || fstat(file->descriptor, &status) != 0 ||
        ftruncate(file->descriptor, status.st_blksize) != 0)
        return -1;
    size_t bytes = (size_t)status.st_blksize;
    void *first = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    if (first == MAP_FAILED)
        return -1;
    memcpy(first, header, sizeof *header);
    munmap(first, bytes);
    return 0;
}

static void fill_header(struct keep_header *header, const struct keep_layout *layout,
                        const struct keep_sizes *sizes)
{
    *header = (struct keep_header){.magic = KEEP_MAGIC,
                                   .version = KEEP_VERSION,
                                   .pool_bytes = sizes->pool_bytes,
                                   .chunk_bytes = sizes->chunk_bytes,
                                   .lock_bytes = sizes->lock_bytes,
                                   .log_bytes = sizes->log_bytes,
                                   .lock_width = sizes->lock_width,
                                   .bytes = layout->bytes};
    memcpy(header->at, layout->at, sizeof header->at);
    do
        header->instance = random_entropy();
    while (header->instance == 0);
    header->check = header_check(header);
}

/*
 * All blocks of the file, so that no store finds the file system full. tmpfs gives up, and takes all back,
 * when anything is pending for the thread, as work that a ring of io_uring has finished: once more, then.
 */
static int take_room(const struct keep_file *file, uint64_t bytes, struct error *error)
{
    int cause;
    do
        cause = posix_fallocate(file->descriptor, 0, (off_t)bytes);
    while (cause == EINTR);
    if (cause == 0)
        return BANYAN_OK;
    return error_set(
        error, BANYAN_ENOSPC,
        "pool file %s: its file system does not give it %llu MiB: %s. A pool file is taken whole, "
        "since a memory node that finds no room for a page later is ended by the kernel",
        file->path, (unsigned long long)(bytes >> 20), strerror(cause));
}

/* D6: its header says so from the first byte on, and `made` is its last word. */
static int begin_making(struct keep_file *file, const struct keep *keep, const struct keep_sizes *sizes,
                        struct error *error)
{
    fill_header(&file->header, &keep->layout, sizes);
    if (ftruncate(file->descriptor, 0) != 0 || write_first(file, &file->header) != 0 ||
        fsync(file->descriptor) != 0)
        return error_set(error, BANYAN_EINVAL, "pool file %s cannot be written: %s", file->path,
                         strerror(errno));
    int status = take_room(file, keep->layout.bytes, error);
    if (status && ftruncate(file->descriptor, 0) != 0)
        log_warning("pool file %s: what it took cannot be given back: %s", file->path, strerror(errno));
    return status;
}

/* A copy of a pool may have holes. */
static int fill_holes(const struct keep_file *file, struct error *error)
{
    struct stat status;
    if (fstat(file->descriptor, &status) == 0 && (uint64_t)status.st_blocks * 512 >= file->header.bytes)
        return BANYAN_OK;
    return take_room(file, file->header.bytes, error);
}

static int map_file(struct keep *keep, const struct keep_file *file, bool huge, struct error *error)
{
    const size_t unit = KEEP_POOL_ALIGNMENT, bytes = keep->layout.bytes;
    uint8_t *room = mmap(NULL, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return error_set(error, BANYAN_ENOMEM, "pool file %s: cannot map %zu bytes: %s", file->path, bytes,
                         strerror(errno));
    size_t before = (unit - (uintptr_t)room % unit) % unit;
    if (before > 0)
        munmap(room, before);
    munmap(room + before + bytes, unit - before);
    void *start =
        mmap(room + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->descriptor, 0);
    if (start == MAP_FAILED) {
        int cause = errno;
        munmap(room + before, bytes);
        return error_set(error, BANYAN_ENOMEM, "pool file %s: cannot map %zu bytes: %s", file->path, bytes,
                         strerror(cause));
    }
    if (huge) /* where its file system has some */
        madvise(start, bytes, MADV_HUGEPAGE);
    /* pinned: a file's room is taken at once, and never given back */
    keep->pages = (struct pages){.start = start,
                                 .bytes = bytes,
                                 .kind = "a file",
                                 .descriptor = -1,
                                 .unit = (size_t)sysconf(_SC_PAGESIZE),
                                 .whole = (size_t)sysconf(_SC_PAGESIZE),
                                 .pinned = true};
    return BANYAN_OK;
}

/* ---- lives ---- */

/* A number for the time since the machine was started. */
static uint64_t boot_number(void)
{
    char text[64] = "";
    FILE *source = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (source == NULL)
        return 0;
    size_t length = fread(text, 1, sizeof text, source);
    fclose(source);
    return (uint64_t)crc32c(1, text, length) << 32 | crc32c(0, text, length);
}

static bool checked_good(const struct keep_words *words)
{
    for (unsigned i = 0; i < KEEP_CHECKED; i++)
        if ((uint32_t)~words->checked[i] != (uint32_t)(words->checked[i] >> 32))
            return false;
    return true;
}

static int check_words(const struct keep *keep, struct error *error)
{
    const struct keep_words *words = keep->words;
    if (!checked_good(words) || (words->formatted != 0 && words->formatted != KEEP_FORMATTED))
        return damaged(keep->file, "a word of its first page (bytes 1,024 to 1,151) is none that it can have",
                       error);
    if (words->formatted == KEEP_FORMATTED &&
        words->check != crc32c(0, &words->cluster_id, 3 * sizeof words->cluster_id))
        return damaged(keep->file, "which cluster it is of (bytes 1,032 to 1,063) does not have its check",
                       error);
    if (keep_checked(keep, KEEP_CLOSED) == 0 && words->boot != boot_number())
        return error_set(error, BANYAN_ECORRUPT,
                         "pool file %s was in use when its machine went down, so that parts of it are older "
                         "than others: move it away to begin with an empty pool. A pool file outlives its "
                         "machine only if its process was stopped before (SIGTERM)",
                         keep_name(keep));
    return BANYAN_OK;
}

bool keep_file_lost_power(const char *path)
{
    struct keep_file file = {.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
    struct keep_header *header = &file.header;
    struct keep_words words = {0};
    struct stat status;
    if (file.descriptor < 0)
        return false;
    const bool read = pread(file.descriptor, header, sizeof *header, 0) >= 0 &&
                      pread(file.descriptor, &words, sizeof words, KEEP_WORDS_OFFSET) >= 0 &&
                      fstat(file.descriptor, &status) == 0;
    const bool empty = read && only_zeros(&file, (uint64_t)status.st_size);
    close(file.descriptor);
    if (empty)
        return true;
    if (!read || header->magic != KEEP_MAGIC || header->version != KEEP_VERSION)
        return false;
    if (header->made == 0)
        return true;
    return header->made == KEEP_MADE && checked_good(&words) &&
           (words.formatted == 0 ||
            ((uint32_t)words.checked[KEEP_CLOSED] == 0 && words.boot != boot_number()));
}

/* A cut of the power leaves what the disk was told, and of the rest what it likes. So it is told the first
 * page before anything is changed that this page is about: no page of this life lies beside one that says
 * that the former life ended in order, or that the file is not made. */
static int tell_disk(const struct keep *keep, struct error *error)
{
    if (msync(keep->pages.start, KEEP_ALIGNMENT, MS_SYNC) == 0)
        return BANYAN_OK;
    return error_set(error, BANYAN_EINVAL, "pool file %s: its first page cannot be written: %s",
                     keep_name(keep), strerror(errno));
}

static int begin_life(struct keep *keep, struct error *error)
{
    keep->words->boot = boot_number();
    keep->words->pid = (uint64_t)getpid();
    atomic_order_stores();
    keep_check(keep, KEEP_CLOSED, 0);
    keep_check(keep, KEEP_LIVES, keep_checked(keep, KEEP_LIVES) + 1);
    return tell_disk(keep, error);
}

static int open_made(struct keep *keep, const struct keep_sizes *sizes, struct error *error)
{
    const struct keep_file *file = keep->file;
    struct keep_header expected;
    fill_header(&expected, &keep->layout, sizes);
    /* The check is right, so whoever wrote this meant it. */
    if (file->header.bytes != expected.bytes || memcmp(file->header.at, expected.at, sizeof expected.at) != 0)
        return damaged(file, "its header says that things lie where they cannot", error);
    int status = check_words(keep, error);
    if (!status)
        status = fill_holes(file, error);
    if (status)
        return status;
    keep->cut = keep_checked(keep, KEEP_CLOSED) == 0;
    status = begin_life(keep, error);
    if (!status)
        status = keep_undo(keep, error);
    if (!status && keep->words->formatted == 0 && keep_checked(keep, KEEP_USED_SINCE) != 0)
        keep_clear(keep); /* a format was cut (D5) */
    return status;
}

static int end_making(struct keep *keep, struct error *error)
{
    for (enum keep_checked which = 0; which < KEEP_CHECKED; which++)
        keep_check(keep, which, 0);
    const int status = begin_life(keep, error);
    if (status)
        return status;
    atomic_order_stores();
    ((struct keep_header *)keep->pages.start)->made = KEEP_MADE;
    atomic_order_stores();
    return tell_disk(keep, error);
}

int keep_open(struct keep *keep, struct keep_file *file, const struct keep_sizes *sizes, bool huge,
              struct error *error)
{
    *keep = (struct keep){.file = file};
    keep_layout(&keep->layout, sizes);
    int status = file->made ? BANYAN_OK : begin_making(file, keep, sizes, error);
    if (!status)
        status = map_file(keep, file, huge, error);
    if (!status)
        keep_place(keep);
    if (!status && file->made)
        status = open_made(keep, sizes, error);
    else if (!status)
        status = end_making(keep, error);
    if (status)
        keep_destroy(keep);
    return status;
}

void keep_save(struct keep *keep)
{
    assert(keep->file != NULL);
    if (msync(keep->pages.start, keep->pages.bytes, MS_SYNC) != 0) {
        log_warning("pool file %s: not all of it could be written: %s; it will not outlive its machine",
                    keep_name(keep), strerror(errno));
        return;
    }
    keep_check(keep, KEEP_CLOSED, 1);
    if (msync(keep->pages.start, KEEP_ALIGNMENT, MS_SYNC) != 0)
        keep_check(keep, KEEP_CLOSED, 0);
}

void keep_pool_zero(struct keep *keep, uint64_t pool_bytes)
{
    if (fallocate(keep->file->descriptor, FALLOC_FL_ZERO_RANGE, (off_t)keep->layout.at[KEEP_POOL],
                  (off_t)pool_bytes) != 0)
        memset(keep->pool, 0, pool_bytes);
}

uint64_t keep_instance(const struct keep *keep)
{
    return ((const struct keep_header *)keep->pages.start)->instance;
}
