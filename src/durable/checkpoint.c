/*
 * checkpoint.c - all keys with their values in one file, in key order, made beside the load; see keeper.h.
 *
 * The file is an archive (archive.h), which `banyan load` reads too. It has each key that the store had when
 * it began, with the value of then or a later one, but for keys that were deleted meanwhile; the journal from
 * that moment on lies over it (K4).
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/archive.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "durable/keeper_private.h"

/* The kernel is to write while the checkpoint is made, so that its end, and other syncs, wait for little. */
#define SYNC_BYTES (UINT64_C(8) << 20)

struct checkpoint {
    struct keeper *keeper;
    uint64_t position, number; /* the journal's end when it began */
    struct disk_file *file;    /* owned */
    struct archive_writer *writer;
    uint64_t written, synced;
    char name[DISK_NAME_MAX + 1];
    uint8_t last[FORMAT_KEY_MAX]; /* the key that was written last */
    size_t last_length;           /* 0: none was */
    struct error error;           /* of the visit */
    uint64_t met;
    bool written_whole;
};

static int write_out(void *context, const void *bytes, size_t length, struct error *error)
{
    struct checkpoint *checkpoint = context;
    const struct disk_piece piece = {bytes, length};
    int status = disk_write(checkpoint->file, checkpoint->written, &piece, 1, error);
    checkpoint->written += status ? 0 : length;
    if (!status && checkpoint->written - checkpoint->synced >= SYNC_BYTES) {
        status = disk_sync(checkpoint->file, error);
        checkpoint->synced = checkpoint->written;
    }
    return status;
}

static void checkpoint_free(struct checkpoint *checkpoint)
{
    archive_writer_destroy(checkpoint->writer);
    disk_file_close(checkpoint->file);
    free(checkpoint);
}

/* No name is used twice. If replacing the manifest has failed in this life, the disk may have a manifest that
 * names any checkpoint begun before; and a former life may have begun more of them than the present manifest
 * names. */
static uint64_t number_next(struct keeper *keeper)
{
    const struct manifest *manifest = keeper->parts.manifest;
    uint64_t last = manifest->serial > manifest->checkpoint ? manifest->serial : manifest->checkpoint;
    if (last < keeper->checkpoint)
        last = keeper->checkpoint;
    return keeper->checkpoint = last + 1;
}

int checkpoint_begin(struct checkpoint **out, struct keeper *keeper, struct error *error)
{
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    *out = NULL;
    if (!checkpoint)
        return error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint");
    checkpoint->keeper = keeper;
    checkpoint->position = journal_end(keeper->parts.journal);
    checkpoint->number = number_next(keeper);
    snprintf(checkpoint->name, sizeof checkpoint->name, MANIFEST_PREFIX "%08" PRIu64, checkpoint->number);
    int status = disk_remove_if_there(keeper->parts.disk, checkpoint->name, error);
    if (!status)
        status = disk_create(keeper->parts.disk, checkpoint->name, &checkpoint->file, error);
    if (!status)
        status = archive_writer_create(&checkpoint->writer, ARCHIVE_ORDERED, clock_wall_ms(), 0, write_out,
                                       checkpoint, error);
    if (status)
        checkpoint_free(checkpoint);
    else
        *out = checkpoint;
    return status;
}

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct checkpoint *checkpoint = context;
    const struct archive_entry entry = {.key = key,
                                        .key_length = key_length,
                                        .value = value->bytes,
                                        .value_length = value->length,
                                        .expires = value->expires};
    memcpy(checkpoint->last, key, key_length);
    checkpoint->last_length = key_length;
    checkpoint->met++;
    return !archive_add(checkpoint->writer, &entry, &checkpoint->error);
}

static int end_write(struct checkpoint *checkpoint, struct error *error)
{
    int status = archive_finish(checkpoint->writer, error);
    if (!status)
        status = disk_sync(checkpoint->file, error);
    checkpoint->written_whole = !status;
    return status;
}

int checkpoint_step(struct checkpoint *checkpoint, struct store_session *session, uint32_t keys,
                    struct error *error)
{
    struct tree_range range = {.limit = keys};
    assert(!checkpoint->written_whole);
    if (checkpoint->last_length) {
        range.from = checkpoint->last;
        range.from_length = checkpoint->last_length;
        range.from_open = true;
    }
    checkpoint->met = 0;
    int status = store_scan(session, &range, STORE_SCAN_VALUES, visit, checkpoint);
    if (checkpoint->error.code) {
        *error = checkpoint->error;
        return error->code;
    }
    if (status)
        return error_set(error, status, "%s", tree_session_error(store_session_tree(session))->text);
    return checkpoint->met == keys ? 1 : end_write(checkpoint, error);
}

/* Replaces the manifest by one that names it, and releases the journal before it. */
static int name_it(struct checkpoint *checkpoint, struct error *error)
{
    struct keeper *keeper = checkpoint->keeper;
    struct manifest *now = keeper->parts.manifest, next = *now;
    struct archive_totals totals;
    archive_totals(checkpoint->writer, &totals);
    next.checkpoint = checkpoint->number;
    next.position = checkpoint->position;
    next.part_count = 1;
    next.parts = calloc(1, sizeof *next.parts);
    if (!next.parts)
        return error_set(error, BANYAN_ENOMEM, "no memory for a manifest");
    memcpy(next.parts[0].name, checkpoint->name, sizeof checkpoint->name);
    next.parts[0].entries = totals.entries;
    next.parts[0].bytes = totals.written;
    int status = manifest_replace(keeper->parts.disk, now, &next, error);
    if (status) {
        free(next.parts);
        return status;
    }
    manifest_free(now);
    *now = next;
    atomic_store_relaxed(&keeper->stats.checkpoint_keys, totals.entries); /* statistics, as below */
    atomic_store_relaxed(&keeper->stats.checkpoint_bytes, totals.written);
    return journal_release(keeper->parts.journal, next.position, error);
}

int checkpoint_end(struct checkpoint *checkpoint, struct store_session *session, bool whole,
                   struct error *error)
{
    struct keeper *keeper = checkpoint->keeper;
    struct error ignored = {0};
    assert(!whole || checkpoint->written_whole);
    disk_file_close(checkpoint->file);
    checkpoint->file = NULL;
    /* The scan may have met changes made after it began: they are in the journal too before the checkpoint
     * counts (K4). */
    int status = whole ? keeper_pass_beyond(keeper, session, error) : 0;
    if (!whole || status)
        (void)disk_remove_if_there(keeper->parts.disk, checkpoint->name, &ignored);
    else /* if it fails, the next opening removes the file, unless the manifest names it */
        status = name_it(checkpoint, error);
    checkpoint_free(checkpoint);
    return status;
}
