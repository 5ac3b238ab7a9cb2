/*
 * recovery.h - fills a store from a disk: from the checkpoint, and over it from the journal (rule K4,
 * docs/internals/durability.md). The store is empty, and nothing else uses it yet.
 *
 * The calling thread reads the two, and merges them in key order; other threads build the index in parts,
 * each with a session of its own (store_bulk). Memory: that of the replay, and 32 MiB for each thread where
 * values are large.
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

/* `threads` of the process build, at least 1. *keys: how many the store has got. BANYAN_ECORRUPT: file and
 * offset. */
int recovery_run(const struct recovery_source *source, struct store *store, struct tree_compute *compute,
                 unsigned threads, recovery_progress_function *progress, void *context, uint64_t *keys,
                 struct error *error);
#endif
