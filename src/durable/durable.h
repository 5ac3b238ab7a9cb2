/*
 * durable.h - level disk of a server that has its memory nodes in its own process: its directory, the
 * keeper's thread and the one that writes checkpoints, and what a start finds (docs/internals/durability.md,
 * K1 to K8). For `banyan serve`. Order of the calls:
 *
 *     durable_open        the directory: whose it is, and whether it holds anything
 *     durable_load_begin  only where the pools do not hold what the directory does: before they are made
 *     durable_attach      when the pools are there: fills them if need be
 *     durable_start       the threads
 *     durable_writer      for each task that changes keys
 *     durable_stop        when none changes keys any more: all is safe then
 *     durable_close
 *
 * One thread makes all calls but those that name another. Errors name the directory or the file, and what can
 * be done.
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
    uint64_t quick_ns;    /* durable_commit makes a pass if the last one took no longer; 0: 1 ms */
};

/* BANYAN_EBUSY: another process has it. BANYAN_ECORRUPT, BANYAN_EVERSION, BANYAN_EINVAL. */
int durable_open(struct durable **durable, const char *path, const struct durable_options *options,
                 struct error *error);
/* Notes that the pools are going to be changed, and that the disk will not be told: the next durable_start
 * makes a checkpoint. Makes the directory if it is not there yet. Fails as durable_open does. */
int durable_disown(const char *path, struct error *error);
/* What the directory of a server that does not run says of its last life. Opens nothing, changes nothing. */
struct durable_look {
    bool journal;  /* it has had a disk level; else the rest is false */
    bool in_step;  /* and has told the disk all that its pools hold */
    bool disowned; /* a life at level process has changed the pools since */
    bool loading;  /* the pools do not hold yet what the disk does */
};
void durable_look(const char *path, struct durable_look *look);
/* The cluster that it belongs to; 0: none yet. */
uint64_t durable_cluster(const struct durable *durable);
/* Whether the pools must be filled from it, whatever is in them, because an earlier start began to fill them
 * and did not end. */
bool durable_loading(const struct durable *durable);
/* From now on durable_loading is true, in later lives too, until durable_attach with `load` has returned 0.
 * BANYAN_EINVAL: the disk never had all that the pools held, or has it no more; nothing was changed. */
int durable_load_begin(struct durable *durable, struct error *error);

/* How the pools were made, so that new ones in their place are made alike. */
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
    bool fresh;          /* it was made just now: nothing was ever in it */
    struct durable_shape shape;
    unsigned threads; /* that fill it */
    recovery_progress_function *progress;
    void *context;
};
/* *keys: how many were loaded. */
int durable_attach(struct durable *durable, const struct durable_pools *pools, uint64_t *keys,
                   struct error *error);

/* `lanes`: threads that change keys. If the disk may lack something that the pools hold, a checkpoint begins
 * at once. */
int durable_start(struct durable *durable, unsigned lanes, struct error *error);
/* For a task of that thread: its sessions call feed_mark with it. */
struct feed_writer durable_writer(struct durable *durable, unsigned lane);
bool durable_always(const struct durable *durable);
/* At level disk-always, a task that is about to wait for that ticket (feed_wait), when no other task of its
 * thread can do anything before: makes the pass itself, which blocks its thread for as long as a pass lasts,
 * unless another one is under way, or the last one took long (K7). */
void durable_commit(struct durable *durable, uint64_t ticket);
struct feed *durable_feed(struct durable *durable);

/* Any thread. Whether all is safe that was marked before the ticket was drawn, and all that former lives left
 * in the pools. WAITAOF needs both, since its answer is about everything that a client can read. */
bool durable_safe(const struct durable *durable, uint64_t ticket);

/* Any thread. Asks for a checkpoint, and does not wait for it. BANYAN_EBUSY: one is under way. */
int durable_save(struct durable *durable, struct error *error);

struct durable_stats {
    struct feed_stats feed;
    struct keeper_stats keeper;
    uint64_t disk_bytes; /* of all files but the pools */
    const char *disk_kind;
    uint64_t saved_at; /* ms since 1970: when the last checkpoint was whole; 0: never */
    uint64_t save_ns;  /* how long it took */
    uint64_t saves, saves_failed;
    uint64_t changes; /* keys marked since it began */
    bool saving;
    bool behind;      /* the disk lacks changes of a former life, and a checkpoint is being made */
    bool save_failed; /* the last one */
    int status;       /* feed_error */
    struct error error;
};
/* Any thread. */
void durable_stats(struct durable *durable, struct durable_stats *stats);

/* Any thread: for how long the pass that is under way has been, ns; 0: none is. */
uint64_t durable_waits(const struct durable *durable);

/* Any thread, before durable_stop: from now on no change waits for a disk that has no room. */
void durable_end(struct durable *durable);
/* Ends the threads, and makes a last pass. Not 0: that failed, and the next start makes a checkpoint. */
int durable_stop(struct durable *durable, struct error *error);
/* NULL: does nothing. */
void durable_close(struct durable *durable);

#endif
