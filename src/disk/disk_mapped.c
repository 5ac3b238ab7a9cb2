/* disk_mapped.c - see disk.h: files in persistent memory. When they are mapped (M1), and in which order their
 * bytes are stored, flushed and fenced (M2), whatever these are in an implementation
 * (docs/internals/durability.md). */
#include "base/atomic.h"
#include "base/log.h"
#include "disk/disk_ops.h"

#define ZEROS_BYTES 16384u
#define ROOM_PART   4u /* of the room that is left a file may take one such part */

bool disk_mapped(const struct disk_file *file)
{
    return file->mapped != 0;
}

void disk_unmap(struct disk_file *file)
{
    if (!file->mapped)
        return;
    file->disk->ops->unmap(file);
    file->mapped = 0;
    file->unsynced = false;
    /* Relaxed: for messages. */
    atomic_add_relaxed(&file->disk->mapped, UINT32_MAX);
}

/* ---- M1: the file has its length before it is used ---- */

/* Blocks that were never written would be taken, and told to the file system's journal, at the first store.
 */
static int write_zeros(struct disk_file *file, uint64_t from, uint64_t to, struct error *error)
{
    static const uint8_t zeros[ZEROS_BYTES];
    int status = 0;
    while (!status && from < to) {
        struct disk_piece pieces[DISK_PIECES_MAX];
        unsigned count = 0;
        uint64_t at = from;
        while (count < DISK_PIECES_MAX && at < to) {
            const size_t some = to - at < sizeof zeros ? (size_t)(to - at) : sizeof zeros;
            pieces[count++] = (struct disk_piece){zeros, some};
            at += some;
        }
        status = disk_write(file, from, pieces, count, error);
        from = at;
    }
    return status;
}

/* BANYAN_ENOSPC: the file is as it was. */
static int lengthen(struct disk_file *file, uint64_t before, uint64_t bytes, struct error *error)
{
    struct error cause = {0};
    int status = write_zeros(file, before, bytes, &cause);
    if (status == BANYAN_ENOSPC) {
        int failed = disk_truncate(file, before, error);
        return failed ? failed : BANYAN_ENOSPC;
    }
    if (status)
        return error_set(error, status, "%s", cause.text);
    return disk_sync(file, error);
}

static bool has_room(struct disk_file *file, uint64_t more, struct error *error, int *status)
{
    uint64_t left = 0;
    *status = disk_free(file->disk, &left, error);
    if (*status || more <= left / ROOM_PART)
        return !*status;
    log_debug("file %s in %s: no room to map it: each sync of it is a call of the system", file->name,
              disk_path(file->disk));
    return false;
}

int disk_map(struct disk_file *file, uint64_t bytes, struct error *error)
{
    const struct disk_ops *ops = file->disk->ops;
    uint64_t before;
    int status = 0;
    if (file->mapped || !ops->mappable(file))
        return 0;
    status = disk_size(file, &before, error);
    if (status || before >= bytes || !has_room(file, bytes - before, error, &status))
        return status;
    status = lengthen(file, before, bytes, error);
    if (status)
        return status == BANYAN_ENOSPC ? 0 : status;
    struct error cause = {0};
    if (ops->map(file, bytes, &cause)) {
        log_warning("%s; each sync of it is a call of the system", cause.text);
        return disk_truncate(file, before, error);
    }
    file->mapped = bytes;
    atomic_add_relaxed(&file->disk->mapped, 1u); /* for messages */
    return 0;
}

/* ---- M2: what is stored is flushed, and then fenced ---- */

static void flush_lines(struct disk_file *file, uint64_t from, uint64_t to)
{
    for (uint64_t line = from / DISK_LINE_BYTES * DISK_LINE_BYTES; line < to; line += DISK_LINE_BYTES)
        file->disk->ops->flush(file, line);
}

int disk_mapped_write(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces,
                      unsigned count, struct error *error)
{
    uint64_t at = offset;
    int status = 0;
    for (unsigned i = 0; !status && i < count; i++) {
        if (pieces[i].length)
            status = file->disk->ops->store(file, at, pieces[i].bytes, pieces[i].length, error);
        at += pieces[i].length;
    }
    if (!status)
        flush_lines(file, offset, at);
    return status;
}
