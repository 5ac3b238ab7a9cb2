/*
 * keep_file.h - the file of a kept memory node (keep.h): how it is made, locked, validated and mapped.
 *
 * Called when a memory node is created and destroyed. Making a file takes its whole size from the file system
 * at once: a page that has no block when it is first written to would end the process by a signal. Opening
 * one costs some system calls.
 *
 * A file that is not a pool is never written to, unless it is empty. Every error names the file, what is
 * wrong with it, and what can be done: BANYAN_EINVAL (it is none, or not of these sizes), BANYAN_EBUSY
 * (another process has it), BANYAN_EVERSION, BANYAN_ECORRUPT, BANYAN_ENOSPC.
 *
 * One process has a file at a time, by flock(). The kernel frees the lock when the last thread of a process
 * is through with its descriptors, so that no instruction of an earlier life runs any more (D1).
 */
#ifndef MEMORY_KEEP_FILE_H
#define MEMORY_KEEP_FILE_H

#include "memory/keep.h"

#define KEEP_MAGIC   UINT64_C(0x314c4f4f504e5942) /* "BYNPOOL1" */
#define KEEP_VERSION 1u
#define KEEP_MADE    UINT64_C(0x4d41444557484f4c)

/* At offset 0. All but `made` is fixed when the file is made. */
struct keep_header {
    uint64_t magic;
    uint32_t check; /* CRC32C of what stands between it and `made` */
    uint32_t version;
    uint64_t pool_bytes, chunk_bytes, lock_bytes, log_bytes;
    uint64_t lock_width;
    uint64_t instance; /* random: of what the file holds. Never 0 */
    uint64_t bytes;    /* of the file, and where everything lies: to compare with keep_layout */
    uint64_t at[KEEP_PLACES];
    uint64_t made; /* KEEP_MADE, or 0: its making was cut */
};

struct keep_file;
/* Opens and locks it, makes an empty one if there is none, and validates its header. Waits for up to two
 * seconds if another process, which may be dying, still has it. */
int keep_file_open(struct keep_file **file, const char *path, struct error *error);
/* NULL: does nothing. */
void keep_file_close(struct keep_file *file);
const char *keep_file_path(const struct keep_file *file);
/* It holds a pool, of these sizes. False: it is to be made. */
bool keep_file_sizes(const struct keep_file *file, struct keep_sizes *sizes);

/* Maps the file, which must have these sizes if it holds a pool, and is made with them if it does not; takes
 * back what is unfinished. Owns the file from then on, also when it fails. */
int keep_open(struct keep *keep, struct keep_file *file, const struct keep_sizes *sizes, bool huge,
              struct error *error);
/* All is written to the file system, and the file says so; then it can be opened after the machine was
 * restarted. Of a kept node, when nothing uses it any more. */
void keep_save(struct keep *keep);
/* The pool is zero again: by the file system where it can do that, else by writing zeros. */
void keep_pool_zero(struct keep *keep, uint64_t pool_bytes);
uint64_t keep_instance(const struct keep *keep);

/* Whether a file that had something in it lost that with the power: it was in use when its machine went down,
 * so that keep_open refuses it, or it is empty, not made or of no cluster, as if there had been nothing.
 * Reads; false also where there is no such file, and for one that is damaged in any other way. */
bool keep_file_lost_power(const char *path);

#endif
