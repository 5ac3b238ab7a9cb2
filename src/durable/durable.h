/*
 * durable.h - level disk of a server that has its memory nodes in its own process: its directory, the
 * keeper's thread and the one that writes checkpoints, and what a start finds (docs/internals/durability.md,
 * K1 to K6). For `banyan serve`. Order of the calls:
 *
 *     durable_open        the directory: whose it is, and whether it holds anything
 *     durable_load_begin  only where the pools do not hold what the directory does: before they are made
 *     durable_attach      when the pools are there: fills them if need be
 *     durable_start       the threads
 *     durable_writer      for each task that changes keys
 *     durable_stop        when none changes keys any more: all is safe then
 *     durable_close
 *
 * One thread calls, but where another is named. Errors name the directory or the file, and what can be done.
 */
#ifndef DURABLE_DURABLE_H
#define DURABLE_DURABLE_H

#include "durable/keeper.h"
#include "durable/recovery.h"

struct durable;

struct durable_options {
    bool always;          /* an answer waits for the disk; else a sync each second */
    uint64_t limit_bytes; /* of all files of the directory but the pools; 0: none */
    uint64_t seed;        /* 0: from the system */
};

/* BANYAN_EBUSY: another process has it. BANYAN_ECORRUPT, BANYAN_EVERSION, BANYAN_EINVAL. */
int durable_open(struct durable **durable, const char *path, const struct durable_options *options,
                 struct error *error);
/* The pools are going to be changed without it: the next durable_start makes a checkpoint. Where there is no
 * such directory yet it is made. The errors of durable_open. */
int durable_disown(const char *path, struct error *error);
/* Whose it is; 0: nobody's yet. */
uint64_t durable_cluster(const struct durable *durable);
/* Whether the pools must be filled from it, whatever is in them: a start before this one did not come to the
 * end of that. */
bool durable_loading(const struct durable *durable);
/* From now on durable_loading, until durable_attach with `load` has returned 0, in later lives too.
 * BANYAN_EINVAL: what the pools held was never, or is no more, on the disk as a whole; nothing was changed.
 */
int durable_load_begin(struct durable *durable, struct error *error);

/* What pools that are made anew are to be like, as those before them were. */
struct durable_shape {
    uint32_t memory_nodes;
    uint64_t pool_bytes; /* of each */
};
/* False: it is not known. */
bool durable_shape(struct durable *durable, struct durable_shape *shape);

struct durable_pools { /* borrowed; live until durable_close */
    uint64_t cluster;
    struct tree_compute *compute;
    struct store *store; /* the keeper's own handle: nothing else has set its limits */
    bool load;           /* the store is empty: fill it */
    bool fresh;          /* it is empty since it was made just now; there was never anything else */
    struct durable_shape shape;
    unsigned threads; /* that fill it */
    recovery_progress_function *progress;
    void *context;
};
/* *keys: how many were loaded. */
int durable_attach(struct durable *durable, const struct durable_pools *pools, uint64_t *keys,
                   struct error *error);

/* `lanes`: threads that change keys. Where the disk may lack what the pools hold, a checkpoint begins at
 * once. */
int durable_start(struct durable *durable, unsigned lanes, struct error *error);
/* For a task of that thread: its sessions call feed_mark with it. */
struct feed_writer durable_writer(struct durable *durable, unsigned lane);
bool durable_always(const struct durable *durable);
struct feed *durable_feed(struct durable *durable);

/* Any thread. Whether all that was marked before the ticket was drawn is safe, and all that former lives left
 * in the pools: a WAITAOF that is answered says so of whatever a client can read. */
bool durable_safe(const struct durable *durable, uint64_t ticket);

/* Any thread. BANYAN_EBUSY: one is under way. Returns when it was begun, soon. */
int durable_save(struct durable *durable, struct error *error);

struct durable_stats {
    struct feed_stats feed;
    struct keeper_stats keeper;
    uint64_t disk_bytes; /* of all files but the pools */
    uint64_t saved_at;   /* ms since 1970: when the last checkpoint was whole; 0: never */
    uint64_t save_ns;    /* how long it took */
    uint64_t saves, saves_failed;
    uint64_t changes; /* keys marked since it began */
    bool saving;
    bool behind;      /* what a former life did not tell the disk is not on it yet: a checkpoint is made */
    bool save_failed; /* the last one */
    int status;       /* feed_error */
    struct error error;
};
/* Any thread. */
void durable_stats(struct durable *durable, struct durable_stats *stats);

/* durable_stop is to come, and no change waits for a disk without room from now on. Any thread. */
void durable_end(struct durable *durable);
/* Ends the threads behind a last pass. Not 0: it failed, and the next start makes a checkpoint. */
int durable_stop(struct durable *durable, struct error *error);
/* NULL: does nothing. */
void durable_close(struct durable *durable);

#endif
