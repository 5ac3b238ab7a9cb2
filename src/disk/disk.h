/*
 * disk.h - a directory of flat files that are to outlive power: the contract, whatever the files lie on.
 *
 * Called by code that keeps data on a disk (journal.h, manifest.h, checkpoints). Every call suspends or
 * blocks the calling task: a real disk blocks the thread, so its callers are threads of their own. A file is
 * used by one task at a time, and so is a name; different ones by any tasks.
 *
 * WHAT IS PROMISED. Bytes outlive a power cut when a sync of their file that began behind their write has
 * returned 0; a name that was made, changed or removed, when a sync of the names has. Until then a cut leaves
 * any part of them: each sector of 512 bytes is of before, of now, or of any moment between; each change of a
 * name has happened or not, a rename as one. Nothing orders any of it but a sync.
 *
 * A FAILED SYNC may have dropped what it was to write, and a later sync of the same file that returns 0 does
 * not bring it back: its caller then believes nothing of the file that was not synced before, and does not
 * sync it again. Names are synced for several tasks, so the disk sees to that itself: when a sync of the
 * names has failed, each later one fails too, until the disk is opened again.
 *
 * PERSISTENT MEMORY. A file that is appended to up to a known length can be mapped, where the directory lies
 * in it (disk_map): a write is a copy of bytes then, and a sync of them a fence of the processor, without a
 * call of the system. The promise is the same, in smaller parts: until the sync a cut leaves any part of what
 * was written, each aligned 8 bytes of before or of now.
 *
 * ERRORS name the file. BANYAN_ENOSPC: the disk, or the user's limit, has no room, and nothing of the write
 * is in the file. BANYAN_EUNKNOWN: a write, a sync or a change of a name failed, and may have happened, in
 * part too. BANYAN_ECORRUPT: it cannot be read. BANYAN_ENOTFOUND, BANYAN_EEXIST: of names. BANYAN_EINVAL: a
 * name that cannot be, or no regular file.
 *
 * NAMES have 1 to 47 of the characters a-z, 0-9, '.' and '-', and begin with a letter. Files with other names
 * may lie beside; they are neither listed nor touched.
 */
#ifndef DISK_DISK_H
#define DISK_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

#define DISK_NAME_MAX     47u
#define DISK_SECTOR_BYTES 512u
#define DISK_PIECES_MAX   16u

struct disk;
struct disk_file;

struct disk_piece {
    const void *bytes;
    size_t length;
};

enum disk_io { DISK_IO_AUTO, DISK_IO_URING, DISK_IO_PLAIN };

struct disk_real_options {
    uint64_t limit;     /* bytes of all files together; 0: none but the disk's own */
    uint64_t lock_wait; /* ns to wait for another process, which may be dying */
    enum disk_io io;    /* AUTO: io_uring where the kernel permits it */
    bool map_any;       /* for tests: files are mapped that lie in no persistent memory; a sync of them then
                           promises that they outlive the process, and no more */
};

/* Opens the directory, makes it if it is missing (not what lies above it), and locks it against other
 * processes until it is closed, or this process ends. BANYAN_EBUSY: another has it; BANYAN_EINVAL. */
int disk_real_open(struct disk **disk, const char *path, const struct disk_real_options *options,
                   struct error *error);
/* Its files must be closed. NULL: does nothing. */
void disk_close(struct disk *disk);
/* As messages name it: the directory. */
const char *disk_path(const struct disk *disk);

/* Calls `visit` with each name, in order. A result other than 0 ends it and is returned. */
typedef int disk_visit_function(void *context, const char *name, uint64_t bytes, struct error *error);
int disk_list(struct disk *disk, disk_visit_function *visit, void *context, struct error *error);
bool disk_name_valid(const char *name);

/* A new, empty file. */
int disk_create(struct disk *disk, const char *name, struct disk_file **file, struct error *error);
int disk_open(struct disk *disk, const char *name, struct disk_file **file, struct error *error);
/* Syncs nothing. NULL: does nothing. */
void disk_file_close(struct disk_file *file);
const char *disk_file_name(const struct disk_file *file);

/* `got` is less than `length` at the file's end alone. */
int disk_read(struct disk_file *file, uint64_t offset, void *buffer, size_t length, size_t *got,
              struct error *error);
int disk_write(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces, unsigned count,
               struct error *error);
int disk_sync(struct disk_file *file, struct error *error);
/* Both as one, which takes one system call where the kernel has io_uring. */
int disk_write_sync(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces, unsigned count,
                    struct error *error);
int disk_size(struct disk_file *file, uint64_t *bytes, struct error *error);
/* A file that is mapped is so no more: what was written and not synced wants disk_sync. */
int disk_truncate(struct disk_file *file, uint64_t bytes, struct error *error);

/*
 * Of a file that is about to be appended to, up to `bytes` bytes: maps it, if it lies in persistent memory.
 * It has that length from then on, with zeros behind what it had, all of it safe; writes that go beyond are
 * as of any file. Returns 0 and maps nothing where there is no persistent memory, or where the file would
 * take more than a quarter of the room that is left. Costs the writing of the zeros and a sync, once in a
 * file; without persistent memory a call of the system, once in a disk's life.
 */
int disk_map(struct disk_file *file, uint64_t bytes, struct error *error);
bool disk_mapped(const struct disk_file *file);

/* A file of the name `to` is replaced. */
int disk_rename(struct disk *disk, const char *from, const char *to, struct error *error);
int disk_remove(struct disk *disk, const char *name, struct error *error);
/* 0 also if it is not there. */
int disk_remove_if_there(struct disk *disk, const char *name, struct error *error);
int disk_sync_names(struct disk *disk, struct error *error);
/* Bytes that can still be written, by the disk and by the limit. */
int disk_free(struct disk *disk, uint64_t *bytes, struct error *error);
/* Of all files together. */
uint64_t disk_used(const struct disk *disk);
/* "persistent-memory" while a file is mapped; else "io_uring", "plain" or "simulated". Any thread. */
const char *disk_kind(const struct disk *disk);

#endif
