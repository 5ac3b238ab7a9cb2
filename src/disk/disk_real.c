/*
 * disk_real.c - see disk.h: a directory of the system's.
 *
 * Each file that is written and synced as one has a ring of io_uring of its own, which one task at a time
 * uses, as the file. A write and the sync behind it are linked: one system call hands over both and waits for
 * both. Where the kernel refuses a ring they are two calls, as all else is. Files that lie in persistent
 * memory are mapped (disk_dax.h) when that is asked for.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "disk/disk_dax.h"
#include "disk/disk_ops.h"

#define LOCK_NAME    "LOCK"
#define LOCK_STEP_NS (10 * UINT64_C(1000000))
#define RING_ENTRIES 4u

struct real_disk {
    struct disk disk;
    char *path; /* owned */
    int directory, lock;
    bool ring;         /* the kernel lets this process have rings */
    bool map_any;      /* as the options say */
    enum dax_way way;  /* how a line is flushed */
    uint32_t ordinary; /* no persistent memory: a file could not be mapped; atomic */
};

struct real_file {
    struct disk_file file;
    int descriptor;
    bool ring_tried, ring_made;
    struct io_uring ring;
    uint8_t *map; /* owned; NULL: it is not mapped */
};

static struct real_disk *real_disk(const struct disk *disk)
{
    return (struct real_disk *)(uintptr_t)disk;
}

static struct real_file *real_file(struct disk_file *file)
{
    return (struct real_file *)file;
}

static int file_failed(const struct disk_file *file, int code, const char *what, int cause,
                       struct error *error)
{
    return error_set(error, code, "file %s in %.80s cannot be %s: %s", file->name, file->disk->path, what,
                     strerror(cause));
}

static int name_failed(const struct disk *disk, int code, const char *name, const char *what, int cause,
                       struct error *error)
{
    return error_set(error, code, "file %s in %.80s cannot be %s: %s", name, disk->path, what,
                     strerror(cause));
}

static bool no_room(int cause)
{
    return cause == ENOSPC || cause == EDQUOT;
}

/* ---- the directory ---- */

static int directory_refused(const char *path, const char *what, int cause, struct error *error)
{
    if (cause == EACCES || cause == EPERM)
        return error_set(error, BANYAN_EINVAL,
                         "directory %.80s: no permission to %s; give it to the user with number %u, who runs "
                         "this process, or name another directory",
                         path, what, (unsigned)geteuid());
    if (cause == EROFS)
        return error_set(error, BANYAN_EINVAL,
                         "directory %.80s is on a file system that is mounted read-only; mount it to be "
                         "written, or name another directory",
                         path);
    if (cause == ENOTDIR || cause == EEXIST)
        return error_set(error, BANYAN_EINVAL,
                         "%.80s is not a directory; name one, or what does not exist yet", path);
    if (cause == ENOENT)
        return error_set(error, BANYAN_EINVAL,
                         "directory %.80s cannot be made, since the one that it would lie in is not there; "
                         "make that one first",
                         path);
    return error_set(error, no_room(cause) ? BANYAN_ENOSPC : BANYAN_EINVAL, "directory %.80s: cannot %s: %s",
                     path, what, strerror(cause));
}

/* A new directory's name is on the disk before anything in it is promised. */
static int sync_parent(const struct real_disk *real, struct error *error)
{
    int parent = openat(real->directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cause = parent < 0 || fsync(parent) ? errno : 0;
    if (parent >= 0)
        close(parent);
    return cause ? error_set(error, BANYAN_EUNKNOWN,
                             "directory %.80s: the one that it lies in cannot be synced: %s", real->path,
                             strerror(cause))
                 : 0;
}

static int open_directory(struct real_disk *real, struct error *error)
{
    bool made = mkdir(real->path, 0700) == 0;
    if (!made && errno != EEXIST)
        return directory_refused(real->path, "make it", errno, error);
    real->directory = open(real->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (real->directory < 0)
        return directory_refused(real->path, "read it", errno, error);
    return made ? sync_parent(real, error) : 0;
}

/* The number of the process that has the lock, as it has written it there; 0: none. */
static long lock_holder(const struct real_disk *real)
{
    char text[24];
    ssize_t got = pread(real->lock, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    long pid = strtol(text, NULL, 10);
    return pid > 0 ? pid : 0;
}

/* Only messages of other processes need it: if the disk is full, they say 0. */
static void write_pid(const struct real_disk *real)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(real->lock, 0) || pwrite(real->lock, text, (size_t)length, 0) != length)
        log_debug("directory %s: its lock does not name this process: %s", real->path, strerror(errno));
}

static int lock_directory(struct real_disk *real, uint64_t wait, struct error *error)
{
    uint64_t until = task_now() + wait;
    real->lock = openat(real->directory, LOCK_NAME,
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (real->lock < 0 && errno == ELOOP)
        return error_set(error, BANYAN_EINVAL,
                         "directory %.80s: " LOCK_NAME " in it is a symbolic link; remove it", real->path);
    if (real->lock < 0)
        return directory_refused(real->path, "write in it", errno, error);
    while (flock(real->lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return directory_refused(real->path, "lock it", errno, error);
        if (task_now() < until) {
            task_sleep(LOCK_STEP_NS);
            continue;
        }
        return error_set(error, BANYAN_EBUSY,
                         "directory %.80s is in use by another process (%ld, as it says): each memory node "
                         "needs a directory of its own",
                         real->path, lock_holder(real));
    }
    write_pid(real);
    return 0;
}

static void real_close(struct disk *disk)
{
    struct real_disk *real = real_disk(disk);
    if (real->lock >= 0)
        close(real->lock);
    if (real->directory >= 0)
        close(real->directory);
    free(real->path);
    free(real);
}

static const char *real_kind(const struct disk *disk)
{
    return real_disk(disk)->ring ? "io_uring" : "plain";
}

/* ---- files ---- */

static int real_open(struct disk *disk, const char *name, bool create, struct disk_file **opened,
                     struct error *error)
{
    struct stat status;
    /* Not blocking: a pipe is refused below, and not waited for. */
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | (create ? O_CREAT | O_EXCL : 0);
    struct real_file *real = calloc(1, sizeof *real);
    if (!real)
        return error_set(error, BANYAN_ENOMEM, "no memory for file %s", name);
    disk_file_begin(&real->file, disk, name);
    int code = 0;
    real->descriptor = openat(real_disk(disk)->directory, name, flags, 0600);
    if (real->descriptor < 0 && (errno == ENOENT || errno == EEXIST))
        code = name_failed(disk, create ? BANYAN_EEXIST : BANYAN_ENOTFOUND, name, create ? "made" : "opened",
                           errno, error);
    else if (real->descriptor < 0 && errno == ELOOP)
        code = error_set(error, BANYAN_EINVAL,
                         "file %s in %.80s is a symbolic link; put the file itself there", name, disk->path);
    else if (real->descriptor < 0)
        code = name_failed(disk, no_room(errno) ? BANYAN_ENOSPC : BANYAN_EINVAL, name,
                           create ? "made" : "opened", errno, error);
    else if (fstat(real->descriptor, &status) || !S_ISREG(status.st_mode) ||
             fcntl(real->descriptor, F_SETFL, 0)) /* blocking: else io_uring would answer "try again" */
        code = error_set(error, BANYAN_EINVAL, "file %s in %.80s is not a regular file; move it away", name,
                         disk->path);
    if (code) {
        if (real->descriptor >= 0)
            close(real->descriptor);
        free(real);
        return code;
    }
    *opened = &real->file;
    return 0;
}

static void ring_end(struct real_file *real)
{
    if (real->ring_made)
        io_uring_queue_exit(&real->ring);
    real->ring_made = false;
}

static void real_close_file(struct disk_file *file)
{
    struct real_file *real = real_file(file);
    ring_end(real);
    close(real->descriptor);
    free(real);
}

static int real_read(struct disk_file *file, uint64_t offset, void *buffer, size_t length, size_t *got,
                     struct error *error)
{
    while (*got < length) {
        ssize_t some = pread(real_file(file)->descriptor, (uint8_t *)buffer + *got, length - *got,
                             (off_t)(offset + *got));
        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return file_failed(file, BANYAN_ECORRUPT, "read", errno, error);
        if (some == 0)
            break;
        *got += (size_t)some;
    }
    return 0;
}

static int real_sync(struct disk_file *file, struct error *error)
{
    if (fdatasync(real_file(file)->descriptor))
        return file_failed(file, BANYAN_EUNKNOWN, "synced", errno, error);
    return 0;
}

static int real_size(struct disk_file *file, uint64_t *bytes, struct error *error)
{
    struct stat status;
    if (fstat(real_file(file)->descriptor, &status))
        return file_failed(file, BANYAN_ECORRUPT, "read", errno, error);
    *bytes = (uint64_t)status.st_size;
    return 0;
}

static int real_truncate(struct disk_file *file, uint64_t bytes, struct error *error)
{
    if (ftruncate(real_file(file)->descriptor, (off_t)bytes))
        return file_failed(file, BANYAN_EUNKNOWN, "cut", errno, error);
    return 0;
}

/* ---- writing ---- */

struct vector {
    struct iovec pieces[DISK_PIECES_MAX];
    unsigned first, count;
    uint64_t left;
};

static void vector_begin(struct vector *vector, const struct disk_piece *pieces, unsigned count)
{
    *vector = (struct vector){.count = count};
    for (unsigned i = 0; i < count; i++) {
        vector->pieces[i] = (struct iovec){(void *)(uintptr_t)pieces[i].bytes, pieces[i].length};
        vector->left += pieces[i].length;
    }
}

static void vector_advance(struct vector *vector, uint64_t bytes)
{
    assert(bytes <= vector->left);
    vector->left -= bytes;
    while (vector->count && bytes >= vector->pieces[vector->first].iov_len) {
        bytes -= vector->pieces[vector->first].iov_len;
        vector->first++;
        vector->count--;
    }
    if (bytes) {
        struct iovec *piece = &vector->pieces[vector->first];
        piece->iov_base = (uint8_t *)piece->iov_base + bytes;
        piece->iov_len -= bytes;
    }
}

static int write_failed(const struct disk_file *file, int cause, struct error *error)
{
    return file_failed(file, no_room(cause) ? BANYAN_ENOSPC : BANYAN_EUNKNOWN, "written", cause, error);
}

static int write_plain(struct real_file *real, uint64_t offset, struct vector *vector, uint64_t *written,
                       struct error *error)
{
    while (vector->left) {
        ssize_t some = pwritev(real->descriptor, vector->pieces + vector->first, (int)vector->count,
                               (off_t)(offset + *written));
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return write_failed(&real->file, some < 0 ? errno : EIO, error);
        *written += (uint64_t)some;
        vector_advance(vector, (uint64_t)some);
    }
    return 0;
}

static int make_ring(struct io_uring *ring)
{
    struct io_uring_params parameters = {0};
    return io_uring_queue_init_params(RING_ENTRIES, ring, &parameters);
}

/* A ring for the file, or none: false. */
static bool ring_ready(struct real_file *real)
{
    const struct real_disk *disk = real_disk(real->file.disk);
    if (real->ring_tried || !disk->ring)
        return real->ring_made;
    real->ring_tried = true;
    real->ring_made = make_ring(&real->ring) == 0;
    return real->ring_made;
}

enum step { STEP_WRITE, STEP_SYNC, STEPS };

static void ring_prepare(struct real_file *real, uint64_t offset, const struct vector *vector)
{
    struct io_uring_sqe *write = io_uring_get_sqe(&real->ring), *sync = io_uring_get_sqe(&real->ring);
    assert(write && sync); /* nothing is under way in it */
    io_uring_prep_writev(write, real->descriptor, vector->pieces + vector->first, vector->count, offset);
    write->flags |= IOSQE_IO_LINK; /* the sync begins when all of it is written, and not if less is */
    write->user_data = STEP_WRITE;
    io_uring_prep_fsync(sync, real->descriptor, IORING_FSYNC_DATASYNC);
    sync->user_data = STEP_SYNC;
}

/* Gets both results. Not 0: an errno, and what has become of the two is not known. */
static int ring_run(struct real_file *real, int results[STEPS])
{
    for (unsigned done = 0; done < STEPS;) {
        struct io_uring_cqe *told;
        int code = io_uring_submit_and_wait(&real->ring, STEPS - done);
        if (code < 0 && code != -EINTR)
            return -code;
        while (!io_uring_peek_cqe(&real->ring, &told)) {
            assert(told->user_data < STEPS);
            results[told->user_data] = told->res;
            io_uring_cqe_seen(&real->ring, told);
            done++;
        }
    }
    return 0;
}

/* Writes what is left, or some of it, and syncs if that was all. */
static int ring_step(struct real_file *real, uint64_t offset, struct vector *vector, uint64_t *written,
                     bool *synced, struct error *error)
{
    int results[STEPS] = {0};
    ring_prepare(real, offset + *written, vector);
    int cause = ring_run(real, results);
    if (cause) {
        ring_end(real);
        return file_failed(&real->file, BANYAN_EUNKNOWN, "written by io_uring", cause, error);
    }
    const int wrote = results[STEP_WRITE];
    if (wrote < 0 && wrote != -EINTR && wrote != -EAGAIN)
        return write_failed(&real->file, -wrote, error);
    if (wrote == 0)
        return write_failed(&real->file, EIO, error);
    if (wrote > 0) {
        *written += (uint64_t)wrote;
        vector_advance(vector, (uint64_t)wrote);
    }
    if (vector->left)
        return 0; /* the sync was not begun */
    /* Whatever the error is: a sync is not asked for twice. */
    if (results[STEP_SYNC])
        return file_failed(&real->file, BANYAN_EUNKNOWN, "synced", -results[STEP_SYNC], error);
    *synced = true;
    return 0;
}

static int real_write(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces,
                      unsigned count, bool sync, uint64_t *written, struct error *error)
{
    struct real_file *real = real_file(file);
    struct vector vector;
    bool synced = false;
    int status = 0;
    vector_begin(&vector, pieces, count);
    if (sync && vector.left && ring_ready(real)) {
        while (!status && !synced)
            status = ring_step(real, offset, &vector, written, &synced, error);
        return status;
    }
    status = write_plain(real, offset, &vector, written, error);
    return status || !sync ? status : real_sync(file, error);
}

/* ---- persistent memory ---- */

/* The kernel is asked once: on any other file system all files would be refused. */
static bool real_mappable(struct disk_file *file)
{
    struct real_disk *real = real_disk(file->disk);
    if (real->map_any)
        return real->way != DAX_NONE;
    /* Relaxed: a file that does not see it asks too. */
    if (real->way == DAX_NONE || atomic_load_relaxed(&real->ordinary))
        return false;
    uint8_t *start = dax_map(real_file(file)->descriptor, 1, false);
    if (start)
        dax_unmap(start, 1);
    else
        atomic_store_relaxed(&real->ordinary, 1u);
    return start != NULL;
}

static int real_map(struct disk_file *file, uint64_t bytes, struct error *error)
{
    struct real_file *real = real_file(file);
    uint8_t *start = dax_map(real->descriptor, bytes, real_disk(file->disk)->map_any);
    int cause = start ? dax_populate(start, bytes) : errno;
    if (cause && start)
        dax_unmap(start, bytes);
    if (cause)
        return file_failed(file, BANYAN_ENOTSUP, "mapped", cause, error);
    real->map = start;
    return 0;
}

static void real_unmap(struct disk_file *file)
{
    dax_unmap(real_file(file)->map, file->mapped);
    real_file(file)->map = NULL;
}

static int real_store(struct disk_file *file, uint64_t offset, const void *bytes, size_t length,
                      struct error *error)
{
    memcpy(real_file(file)->map + offset, bytes, length);
    return 0;
}

static void real_flush(struct disk_file *file, uint64_t offset)
{
    dax_flush(real_disk(file->disk)->way, real_file(file)->map + offset);
}

static int real_fence(struct disk_file *file, struct error *error)
{
    dax_fence(real_disk(file->disk)->way);
    return 0;
}

/* ---- names ---- */

static int measure(const struct real_disk *real, const char *name, uint64_t *bytes, bool *regular)
{
    struct stat status;
    if (fstatat(real->directory, name, &status, AT_SYMLINK_NOFOLLOW))
        return errno;
    *bytes = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    *regular = S_ISREG(status.st_mode);
    return 0;
}

static int real_measure(struct disk *disk, const char *name, uint64_t *bytes, struct error *error)
{
    bool regular;
    int cause = measure(real_disk(disk), name, bytes, &regular);
    return cause ? name_failed(disk, cause == ENOENT ? BANYAN_ENOTFOUND : BANYAN_EINVAL, name, "found", cause,
                               error)
                 : 0;
}

/* Lists files too that are not regular: a caller that wants such a name must hear of it. */
static int real_list(struct disk *disk, disk_visit_function *visit, void *context, struct error *error)
{
    struct real_disk *real = real_disk(disk);
    int again = openat(real->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = 0;
    DIR *directory = again >= 0 ? fdopendir(again) : NULL;
    if (!directory) {
        status = directory_refused(disk->path, "read it", errno, error);
        if (again >= 0)
            close(again);
        return status;
    }
    while (!status) {
        uint64_t bytes = 0;
        bool regular;
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (!entry) {
            status = errno ? directory_refused(disk->path, "read it", errno, error) : 0;
            break;
        }
        if (disk_name_valid(entry->d_name) && !measure(real, entry->d_name, &bytes, &regular))
            status = visit(context, entry->d_name, bytes, error);
    }
    closedir(directory);
    return status;
}

static int real_rename(struct disk *disk, const char *from, const char *to, struct error *error)
{
    int directory = real_disk(disk)->directory;
    if (!renameat(directory, from, directory, to))
        return 0;
    return name_failed(disk, errno == ENOENT ? BANYAN_ENOTFOUND : BANYAN_EUNKNOWN, from, "renamed", errno,
                       error);
}

static int real_remove(struct disk *disk, const char *name, struct error *error)
{
    if (!unlinkat(real_disk(disk)->directory, name, 0))
        return 0;
    return name_failed(disk, errno == ENOENT ? BANYAN_ENOTFOUND : BANYAN_EUNKNOWN, name, "removed", errno,
                       error);
}

static int real_sync_names(struct disk *disk, struct error *error)
{
    if (!fsync(real_disk(disk)->directory))
        return 0;
    return error_set(error, BANYAN_EUNKNOWN, "directory %.80s cannot be synced: %s", disk->path,
                     strerror(errno));
}

static int real_free(struct disk *disk, uint64_t *bytes, struct error *error)
{
    struct statvfs status;
    if (fstatvfs(real_disk(disk)->directory, &status))
        return directory_refused(disk->path, "read it", errno, error);
    *bytes = (uint64_t)status.f_bavail * status.f_frsize;
    return 0;
}

static const struct disk_ops real_ops = {.kind = real_kind,
                                         .close = real_close,
                                         .list = real_list,
                                         .open = real_open,
                                         .close_file = real_close_file,
                                         .read = real_read,
                                         .write = real_write,
                                         .sync = real_sync,
                                         .size = real_size,
                                         .truncate = real_truncate,
                                         .measure = real_measure,
                                         .rename = real_rename,
                                         .remove = real_remove,
                                         .sync_names = real_sync_names,
                                         .free = real_free,
                                         .mappable = real_mappable,
                                         .map = real_map,
                                         .unmap = real_unmap,
                                         .store = real_store,
                                         .flush = real_flush,
                                         .fence = real_fence};

/* Whether the kernel lets this process have rings. */
static int try_ring(struct real_disk *real, enum disk_io io, struct error *error)
{
    struct io_uring ring;
    int code = io == DISK_IO_PLAIN ? 0 : make_ring(&ring);
    real->ring = io != DISK_IO_PLAIN && code == 0;
    if (real->ring)
        io_uring_queue_exit(&ring);
    if (code && io == DISK_IO_URING)
        return error_set(error, BANYAN_ENOTSUP, "the kernel refuses io_uring: %s", strerror(-code));
    return 0;
}

int disk_real_open(struct disk **opened, const char *path, const struct disk_real_options *options,
                   struct error *error)
{
    struct real_disk *real = calloc(1, sizeof *real);
    *opened = NULL;
    if (!real)
        return error_set(error, BANYAN_ENOMEM, "no memory for directory %.80s", path);
    real->directory = real->lock = -1;
    real->map_any = options->map_any;
    real->way = dax_way();
    real->path = strdup(path);
    real->disk = (struct disk){.ops = &real_ops, .path = real->path, .limit = options->limit};
    int status = real->path ? open_directory(real, error)
                            : error_set(error, BANYAN_ENOMEM, "no memory for directory %.80s", path);
    if (!status)
        status = lock_directory(real, options->lock_wait, error);
    if (!status)
        status = try_ring(real, options->io, error);
    if (!status)
        status = disk_count(&real->disk, error);
    if (status) {
        real_close(&real->disk);
        return status;
    }
    *opened = &real->disk;
    return 0;
}
