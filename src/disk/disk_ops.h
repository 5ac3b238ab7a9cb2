/*
 * disk_ops.h - the calls that an implementation of disk.h makes; disk.c does the rest (it checks names, keeps
 * the limit, and takes back writes that found no room). For src/disk/ alone.
 */
#ifndef DISK_DISK_OPS_H
#define DISK_DISK_OPS_H

#include "disk/disk.h"

/* As in disk.h where nothing else is said. */
struct disk_ops {
    const char *(*kind)(const struct disk *disk);
    void (*close)(struct disk *disk);
    /* In any order; names that are not valid are left out. */
    int (*list)(struct disk *disk, disk_visit_function *visit, void *context, struct error *error);
    int (*open)(struct disk *disk, const char *name, bool create, struct disk_file **file,
                struct error *error);
    void (*close_file)(struct disk_file *file);
    int (*read)(struct disk_file *file, uint64_t offset, void *buffer, size_t length, size_t *got,
                struct error *error);
    /* When it fails, `written` says how many of its bytes are in the file, with BANYAN_ENOSPC too. */
    int (*write)(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces, unsigned count,
                 bool sync, uint64_t *written, struct error *error);
    int (*sync)(struct disk_file *file, struct error *error);
    int (*size)(struct disk_file *file, uint64_t *bytes, struct error *error);
    int (*truncate)(struct disk_file *file, uint64_t bytes, struct error *error);
    int (*measure)(struct disk *disk, const char *name, uint64_t *bytes, struct error *error);
    int (*rename)(struct disk *disk, const char *from, const char *to, struct error *error);
    int (*remove)(struct disk *disk, const char *name, struct error *error);
    int (*sync_names)(struct disk *disk, struct error *error);
    int (*free)(struct disk *disk, uint64_t *bytes, struct error *error);

    /* Persistent memory. disk_mapped.c has the order in which these are called (M1, M2). */
    bool (*mappable)(struct disk_file *file);
    /* `bytes` bytes of a file that has them. An error changes nothing. */
    int (*map)(struct disk_file *file, uint64_t bytes, struct error *error);
    void (*unmap)(struct disk_file *file);
    /* Changes what is read. It may reach the medium from now on, any part of it. */
    int (*store)(struct disk_file *file, uint64_t offset, const void *bytes, size_t length,
                 struct error *error);
    /* Begins to bring to the medium what was stored in the line that begins at the offset. */
    void (*flush)(struct disk_file *file, uint64_t offset);
    /* When it returns, all is on the medium whose flush had begun. */
    int (*fence)(struct disk_file *file, struct error *error);
};

#define DISK_LINE_BYTES 64u /* at a multiple of it in the file; no processor's lines are shorter */

/* At the beginning of every implementation's disk, and of its files. */
struct disk {
    const struct disk_ops *ops;
    const char *path;
    uint64_t limit;        /* 0: none */
    uint64_t used;         /* of all files; changed atomically, since files have tasks of their own */
    uint32_t names_failed; /* a sync of the names has; atomic, never taken back */
    uint32_t mapped;       /* files that are; atomic */
};
struct disk_file {
    struct disk *disk;
    char name[DISK_NAME_MAX + 1];
    uint64_t mapped; /* so many bytes of it; 0: it is not */
    bool unsynced;   /* it is mapped, and was written to by the other way too */
};

void disk_file_begin(struct disk_file *file, struct disk *disk, const char *name);
/* All of it lies within what is mapped. */
int disk_mapped_write(struct disk_file *file, uint64_t offset, const struct disk_piece *pieces,
                      unsigned count, struct error *error);
/* For a file that is not mapped too. */
void disk_unmap(struct disk_file *file);
/* Counts what there is. For an implementation that has just been opened. */
int disk_count(struct disk *disk, struct error *error);

#endif
