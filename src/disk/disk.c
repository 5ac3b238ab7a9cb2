/* disk.c - see disk.h: what is the same for all disks. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "disk/disk_ops.h"

bool disk_name_valid(const char *name)
{
    size_t length = strnlen(name, DISK_NAME_MAX + 1);
    if (length == 0 || length > DISK_NAME_MAX || name[0] < 'a' || name[0] > 'z')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == length;
}

static int check_name(const struct disk *disk, const char *name, struct error *error)
{
    if (disk_name_valid(name))
        return 0;
    return error_set(error, BANYAN_EINVAL, "directory %.80s: '%.60s' cannot be a file's name", disk->path,
                     name);
}

void disk_file_begin(struct disk_file *file, struct disk *disk, const char *name)
{
    file->disk = disk;
    file->mapped = 0;
    file->unsynced = false;
    memcpy(file->name, name, strlen(name) + 1);
}

const char *disk_path(const struct disk *disk)
{
    return disk->path;
}

const char *disk_file_name(const struct disk_file *file)
{
    return file->name;
}

const char *disk_kind(const struct disk *disk)
{
    /* Relaxed: for messages. */
    return atomic_load_relaxed(&disk->mapped) ? "persistent-memory" : disk->ops->kind(disk);
}

void disk_close(struct disk *disk)
{
    if (disk)
        disk->ops->close(disk);
}

/* ---- the limit ---- */

uint64_t disk_used(const struct disk *disk)
{
    /* Relaxed: a number alone, which orders nothing. */
    return atomic_load_relaxed(&disk->used);
}

static void count_change(struct disk *disk, uint64_t before, uint64_t after)
{
    atomic_add_relaxed(&disk->used, after - before);
}

static int count_one(void *context, const char *name, uint64_t bytes, struct error *error)
{
    *(uint64_t *)context += bytes;
    return 0;
}

int disk_count(struct disk *disk, struct error *error)
{
    uint64_t all = 0;
    int status = disk->ops->list(disk, count_one, &all, error);
    disk->used = all;
    return status;
}

/* Room for a file to grow is taken before it does, so that two tasks together keep the limit too. */
static int take_room(struct disk_file *file, uint64_t more, struct error *error)
{
    struct disk *disk = file->disk;
    uint64_t used = atomic_add_relaxed(&disk->used, more);
    if (!disk->limit || (used <= disk->limit && more <= disk->limit - used))
        return 0;
    atomic_add_relaxed(&disk->used, -more);
    return error_set(error, BANYAN_ENOSPC,
                     "file %s in %.80s: its %llu bytes more would be beyond the limit of %llu bytes that was "
                     "given for the directory; %llu are used",
                     file->name, disk->path, (unsigned long long)more, (unsigned long long)disk->limit,
                     (unsigned long long)used);
}

/* ---- files ---- */

static int open_file(struct disk *disk, const char *name, bool create, struct disk_file **file,
                     struct error *error)
{
    *file = NULL;
    int status = check_name(disk, name, error);
    return status ? status : disk->ops->open(disk, name, create, file, error);
}

int disk_create(struct disk *disk, const char *name, struct disk_file **file, struct error *error)
{
    return open_file(disk, name, true, file, error);
}

int disk_open(struct disk *disk, const char *name, struct disk_file **file, struct error *error)
{
    return open_file(disk, name, false, file, error);
}

void disk_file_close(struct disk_file *file)
{
    if (!file)
        return;
    disk_unmap(file);
    file->disk->ops->close_file(file);
}

int disk_read(struct disk_file *file, uint64_t offset, void *buffer, size_t length, size_t *got,
              struct error *error)
{
    *got = 0;
    return length ? file->disk->ops->read(file, offset, buffer, length, got, error) : 0;
}

/* After a write that found no room: makes the file what it was, if it only grew. */
static int take_back(struct disk_file *file, uint64_t offset, uint64_t before, uint64_t written,
                     struct error *error)
{
    const struct disk_ops *ops = file->disk->ops;
    struct error cause = {0};
    if (!written)
        return BANYAN_ENOSPC;
    if (offset >= before && !ops->truncate(file, before, &cause))
        return BANYAN_ENOSPC;
    return error_set(error, BANYAN_EUNKNOWN,
                     "file %s in %.80s: the disk is full, and %llu bytes of what was to be written from byte "
                     "%llu on are in the file",
                     file->name, file->disk->path, (unsigned long long)written, (unsigned long long)offset);
}

static int write_length(struct disk_file *file, uint64_t offset, uint64_t length,
                        const struct disk_piece *pieces, unsigned count, bool sync, struct error *error)
{
    struct disk *disk = file->disk;
    uint64_t before, after, written = 0;
    int status = disk->ops->size(file, &before, error);
    if (status)
        return status;
    const uint64_t more = offset + length > before ? offset + length - before : 0;
    status = take_room(file, more, error);
    if (status)
        return status;
    status = disk->ops->write(file, offset, pieces, count, sync, &written, error);
    if (!status)
        return 0;
    if (status == BANYAN_ENOSPC)
        status = take_back(file, offset, before, written, error);
    if (!disk->ops->size(file, &after, NULL))
        count_change(disk, before + more, after);
    return status;
}

static int write_at(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces, unsigned count,
                    bool sync, struct error *error)
{
    uint64_t length = 0;
    assert(count <= DISK_PIECES_MAX);
    for (unsigned i = 0; i < count; i++)
        length += pieces[i].length;
    if (!file->mapped || offset + length > file->mapped) {
        file->unsynced = file->mapped != 0;
        return write_length(file, offset, length, pieces, count, sync, error);
    }
    int status = disk_mapped_write(file, offset, pieces, count, error);
    return status || !sync ? status : disk_sync(file, error);
}

int disk_write(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces, unsigned count,
               struct error *error)
{
    return write_at(file, offset, pieces, count, false, error);
}

int disk_write_sync(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces, unsigned count,
                    struct error *error)
{
    return write_at(file, offset, pieces, count, true, error);
}

int disk_sync(struct disk_file *file, struct error *error)
{
    const struct disk_ops *ops = file->disk->ops;
    return file->mapped && !file->unsynced ? ops->fence(file, error) : ops->sync(file, error);
}

int disk_size(struct disk_file *file, uint64_t *bytes, struct error *error)
{
    return file->disk->ops->size(file, bytes, error);
}

int disk_truncate(struct disk_file *file, uint64_t bytes, struct error *error)
{
    uint64_t before;
    disk_unmap(file);
    int status = file->disk->ops->size(file, &before, error);
    if (!status)
        status = file->disk->ops->truncate(file, bytes, error);
    if (!status)
        count_change(file->disk, before, bytes);
    return status;
}

/* ---- names ---- */

struct names {
    struct name {
        char text[DISK_NAME_MAX + 1];
        uint64_t bytes;
    } * all; /* owned */
    size_t count, capacity;
};

static int keep_name(void *context, const char *text, uint64_t bytes, struct error *error)
{
    struct names *names = context;
    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? names->capacity * 2 : 64;
        struct name *grown = realloc(names->all, capacity * sizeof *grown);
        if (!grown)
            return error_set(error, BANYAN_ENOMEM, "no memory to list a directory's files");
        names->all = grown;
        names->capacity = capacity;
    }
    struct name *name = &names->all[names->count++];
    memcpy(name->text, text, strlen(text) + 1);
    name->bytes = bytes;
    return 0;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const struct name *)left)->text, ((const struct name *)right)->text);
}

/* All names are listed before the first is told, so that `visit` may make and remove files. */
int disk_list(struct disk *disk, disk_visit_function *visit, void *context, struct error *error)
{
    struct names names = {0};
    int status = disk->ops->list(disk, keep_name, &names, error);
    if (!status && names.count)
        qsort(names.all, names.count, sizeof *names.all, compare_names);
    for (size_t i = 0; !status && i < names.count; i++)
        status = visit(context, names.all[i].text, names.all[i].bytes, error);
    free(names.all);
    return status;
}

int disk_rename(struct disk *disk, const char *from, const char *to, struct error *error)
{
    uint64_t replaced = 0;
    int status = check_name(disk, from, error);
    if (!status)
        status = check_name(disk, to, error);
    if (!status && disk->ops->measure(disk, to, &replaced, NULL))
        replaced = 0;
    if (!status)
        status = disk->ops->rename(disk, from, to, error);
    if (!status)
        count_change(disk, replaced, 0);
    return status;
}

int disk_remove(struct disk *disk, const char *name, struct error *error)
{
    uint64_t bytes;
    int status = check_name(disk, name, error);
    if (!status)
        status = disk->ops->measure(disk, name, &bytes, error);
    if (!status)
        status = disk->ops->remove(disk, name, error);
    if (!status)
        count_change(disk, bytes, 0);
    return status;
}

int disk_remove_if_there(struct disk *disk, const char *name, struct error *error)
{
    struct error cause = {0};
    int status = disk_remove(disk, name, &cause);
    if (!status || status == BANYAN_ENOTFOUND)
        return 0;
    return error_set(error, status, "%s", cause.text);
}

int disk_sync_names(struct disk *disk, struct error *error)
{
    /* The kernel tells only one caller that a sync has failed, and the next one that all is well. */
    if (atomic_load_acquire(&disk->names_failed))
        return error_set(error, BANYAN_EUNKNOWN,
                         "directory %.80s cannot be synced any more, since that has failed before; which of "
                         "its changes outlive a power cut is not known",
                         disk->path);
    int status = disk->ops->sync_names(disk, error);
    if (status)
        atomic_store_release(&disk->names_failed, 1u);
    return status;
}

int disk_free(struct disk *disk, uint64_t *bytes, struct error *error)
{
    int status = disk->ops->free(disk, bytes, error);
    if (status || !disk->limit)
        return status;
    const uint64_t used = disk_used(disk), left = used < disk->limit ? disk->limit - used : 0;
    *bytes = *bytes < left ? *bytes : left;
    return 0;
}
