/*
 * recovery.h - a store is filled from what is on a disk: the checkpoint, and over it what the journal has (rule
 * K4, docs/internals/durability.md). Before anything else uses the store.
 *
 * One thread reads, others put, each with a session of its own. Keys come in their order, first those of the
 * checkpoint that the journal has nothing of, then the journal's.
 */
#ifndef DURABLE_RECOVERY_H
#define DURABLE_RECOVERY_H

#include "disk/manifest.h"
#include "persist/replay.h"
#include "store/store.h"

struct recovery_source { /* borrowed */
    struct disk *disk;
    const struct manifest *manifest;
    struct persist_replay *replay; /* the journal was opened with it */
    uint16_t index;
};
struct recovery_progress {
    uint64_t keys, of; /* of: as many at least, as far as the checkpoint tells */
};
/* From the reading thread, now and then. May be NULL. */
typedef void recovery_progress_function(void *context, const struct recovery_progress *progress);

/* `threads` of the process put, at least 1. *keys: how many the store has got. BANYAN_ECORRUPT: file and offset. */
int recovery_run(const struct recovery_source *source, struct store *store, struct tree_compute *compute,
                 unsigned threads, recovery_progress_function *progress, void *context, uint64_t *keys,
                 struct error *error);
/* The same with the caller's session, on its task. */
int recovery_here(const struct recovery_source *source, struct store_session *session, uint64_t *keys,
                  struct error *error);

#endif
