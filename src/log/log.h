/*
 * log.h - the owner's log: what a compute node writes of the ranges that it owns goes into streams in the
 * pool first, many changes in one round trip, and is merged into the leaves behind that; and what is taken
 * over from the logs of earlier owners (docs/internals/log.md, rules L1 to L8). For the CLI, the C library,
 * benchmarks, the swarm, and src/owner/, which calls it when ranges come and go.
 *
 * ONE struct log belongs to a compute node, beside its tree_compute:
 *
 *     log_create         before any table of rights has a logged row
 *     log_attach         for each index that is opened, before its first operation
 *     tasks              log_merge on one task or more; log_stop ends them
 *     ...                operations of tree.h: they need not know
 *     log_flush          before a range is given away that no other process inherits
 *     log_detach         before tree_close
 *     log_close          gives the segments back, once nothing is left to merge
 *     log_destroy        after the tasks and the sessions' last operation
 *
 * THREADS. Any task, with a session of its own that is in no operation. Functions with a session suspend,
 * return 0 or a negative error, and leave the message in tree_session_error. Each memory node has one stream
 * of this process, and what all threads have ready goes there in one frame.
 */
#ifndef LOG_LOG_H
#define LOG_LOG_H

#include "fabric/peers.h"
#include "tree/logging.h"

struct log;

struct log_options {
    uint32_t copies;        /* memory nodes that have each entry before it is acknowledged: 1 or 2 */
    uint32_t threshold;     /* segments of a stream that may wait to be merged, the one that is written among
                               them, before writers wait (Dinomo, section 4); 2 */
    uint64_t segment_bytes; /* that are asked for; memory nodes may grant less. 8 MiB */
    uint32_t frame_bytes;   /* the longest group commit for one memory node, up to 64 KiB */
    uint64_t wait_ns;       /* a write that finds no room fails after it with BANYAN_ENOSPC; 5 s */
    uint64_t idle_ns;       /* the merger looks so often whether there is something to do; 1 ms */
    uint64_t seed;          /* of the segments' nonces; 0: drawn from the system */
    /* Called before segments are used again or given back: what stands in them is to be kept elsewhere first
     * (persist/drain.h). Not 0: they stay for now. NULL: nothing is kept. */
    int (*keep)(void *context);
    void *keep_context;
};
void log_options_default(struct log_options *options);

/* No round trip. BANYAN_EINVAL, BANYAN_ENOMEM. */
int log_create(struct log **log, struct tree_compute *compute, const struct log_options *options,
               struct error *error);
/* Frees memory only: what is not merged stays in the pool for a successor. NULL is ignored. */
void log_destroy(struct log *log);

/* BANYAN_ENOMEM. The handle stays until log_detach, which is called when nothing of it is to be merged. */
int log_attach(struct log *log, struct tree *tree, struct error *error);
void log_detach(struct log *log, struct tree_session *session, struct tree *tree);
/* The same of an index whose ranges could not be given away: what is not merged of it leaves the table, and
 * stays in the log, whose watermark does not pass it any more. */
void log_strand(struct log *log, struct tree_session *session, struct tree *tree);

/* A merger: returns 0 after log_stop. What fails is tried again. The first one begins cycles; others, of
 * which a process should have LOG_MERGERS in all, help it as soon as much is left to merge: new keys split
 * leaves, which takes many round trips one after the other. */
#define LOG_MERGERS 16u
int log_merge(struct log *log, struct tree_session *session);
void log_stop(struct log *log);

/* Merges all that there is of the range. No operation of it is under way, and none begins. What the log still
 * has of it counts for nobody: it has the epoch of an owner that is no heir. */
int log_flush(struct log *log, struct tree_session *session, struct tree *tree, struct format_key lower,
              const struct format_key *upper);
/* The same of everything, while operations may go on: what was acknowledged before the call is merged. */
int log_flush_all(struct log *log, struct tree_session *session);
/* Gives all segments back. BANYAN_EBUSY: something is not merged yet, or kept for a successor. */
int log_close(struct log *log, struct tree_session *session);

/* An earlier owner of a range, and the epoch under which it had it. */
struct log_heir {
    struct fabric_process process;
    uint64_t epoch;
};
/* L7. Takes over what the logs of these processes have of the range under these epochs: READs their segments,
 * logs it again under `epoch`, and puts it into the table. No operation of the range is under way. May be
 * called again after an error. BANYAN_ECORRUPT: a segment is corrupt in its middle; the message says where.
 */
int log_inherit(struct log *log, struct tree_session *session, struct tree *tree,
                const struct log_heir *heirs, uint32_t count, struct format_key lower,
                const struct format_key *upper, uint64_t epoch);
/* While it is on, writers may take more segments than the threshold says (owner.h, hurry). Any task. */
void log_hurry(struct log *log, bool on);
/* The heirs of the range, or of a part of it, that was inherited under this epoch are off the map: what was
 * logged of it since may be forgotten when it is merged. Does not wait. */
void log_cleared(struct log *log, struct tree *tree, struct format_key lower, const struct format_key *upper,
                 uint64_t epoch);
/* The range went to an owner that inherits it from this log, which keeps what it has until log_released. Does
 * not wait. */
void log_disown(struct log *log, struct tree_session *session, struct tree *tree, struct format_key lower,
                const struct format_key *upper, uint64_t epoch);
/* In the map of `version` no range of the index names this process as an heir. Does not wait. */
void log_released(struct log *log, struct tree *tree, uint64_t version);
/* The index was dropped. Does not wait. */
void log_dropped(struct log *log, struct tree_session *session, struct tree *tree);
/* No range names the process, which was fenced at every memory node: its segments are given back. */
int log_release_dead(struct log *log, struct tree_session *session, struct fabric_process gone);

struct log_stats {
    uint64_t entries, commits, frames; /* entries per commit; frames: one for each memory node and copy */
    uint64_t bytes;                    /* logged, headers and copies included */
    uint64_t merged, merge_calls;      /* entries that went to their leaves */
    uint64_t merged_there;             /* of them: by memory nodes (tree/merging.h) */
    uint64_t cycles, cycle_ns;         /* of merging; how long the last one took */
    uint64_t unmerged, unmerged_bytes; /* keys in the tables, and their memory */
    uint64_t log_bytes;                /* of segments whose frames are not all merged */
    uint64_t segments, segment_bytes;  /* that this process has */
    uint64_t sequence, watermark;      /* drawn; published */
    uint64_t lag_ns; /* the oldest change that is not merged was logged at most so long ago; 0: all is */
    uint64_t waits, wait_ns, wait_longest_ns; /* writers that found no room */
    uint64_t held, held_ns, held_longest_ns;  /* commits that were held back, so that merging keeps up */
    uint64_t cycle_longest_ns;
    uint64_t full;                                      /* writes that failed for it */
    uint64_t inherited, inherit_ns, inherit_longest_ns; /* entries that came from others' logs */
    uint64_t degraded;  /* frames that have fewer copies than were asked for */
    uint64_t carried;   /* bytes of records that second copies had before them, for a second disk */
    uint64_t uncarried; /* entries that a second disk has without their values: no segment could take these,
                           or they lie in pieces that could not be brought */
    uint64_t brought;   /* bytes of pieces that were brought to disks */
    uint64_t unknown, refused;                         /* frames */
    uint64_t persists, persist_ns, persist_longest_ns; /* waits for memory nodes' disks */
    uint64_t unsafe;  /* frames that were written, of which no disk said that it has them */
    uint64_t merging; /* 1: a cycle is under way */
};
/* Any thread; does not wait. */
void log_stats(const struct log *log, struct log_stats *stats);

#endif
