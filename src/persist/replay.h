/*
 * replay.h - reads back the journals of a cluster's memory nodes: of each key of each index the newest value
 * that is on the disks (docs/internals/durability.md, P1 to P4).
 *
 * One thread calls. The journals are opened (disk/journal.h) with persist_replay_record as their visitor, and
 * with persist_replay_settle, that of memory node 0 first, which names the indexes, or that of memory node 1,
 * if the other is lost; each from its beginning on; then all is told in key order.
 * Whole values (persist/format.h: VALUES) are taken, and keys are sorted, by as many threads as the caller
 * permits (persist_replay_threads), with the result, the errors among it, of one thread.
 * Memory: 140 to 170 bytes, the key and a short value for each key, 24 bytes for each block; long values stay
 * in the files. With threads: 5 MiB more, and 2 MiB for each of them.
 *
 * A record is not believed because its checksum is right: one that makes no sense is BANYAN_ECORRUPT, with
 * file and offset.
 */
#ifndef PERSIST_REPLAY_H
#define PERSIST_REPLAY_H

#include "archive/entry.h"
#include "disk/journal.h"
#include "persist/format.h"
#include "persist/table.h"

struct persist_replay;

struct persist_replay_stats {
    uint64_t frames, entries, blocks;
    uint64_t keys;    /* that have a value, when all have been told */
    uint64_t covered; /* entries that the checkpoint makes unneeded */
    uint64_t missing; /* entries whose record is not there, so that the key has an older value (P3) */
};

/* The disks of the journals, in the order in which they will be opened: borrowed. */
int persist_replay_create(struct persist_replay **replay, struct disk *const *disks, uint16_t count,
                          struct error *error);
void persist_replay_destroy(struct persist_replay *replay);
#define PERSIST_REPLAY_THREADS_MAX 16u
/* Before the first journal: so many threads may work, PERSIST_REPLAY_THREADS_MAX at most. Without this it is
 * the calling one alone. BANYAN_ENOMEM. */
int persist_replay_threads(struct persist_replay *replay, unsigned threads, struct error *error);
/* Before the first journal: entries that this checkpoint's table covers do not count. Borrowed. */
void persist_replay_over(struct persist_replay *replay, const struct persist_table *table);
/* Before the first journal: the disks of these memory nodes, by their numbers, are lost (P16). At most as
 * many as there may be disks. */
void persist_replay_lost(struct persist_replay *replay, const bool *lost, uint16_t count);
/* The records of the next journal come from this disk. */
void persist_replay_next(struct persist_replay *replay, uint16_t disk);
/* A journal_visit_function; its context is the replay. */
int persist_replay_record(void *context, const struct journal_record *record, struct error *error);
/* A journal_settle_function; its context is the replay. Waits until all records are taken that have come. The
 * error is of the first of them that has one, and persist_replay_record may not have told it yet. */
int persist_replay_settle(void *context, struct error *error);
/* What the index is called, and was made with; NULL: the journals do not say. `gone`: it was dropped. Valid
 * as long as the replay. */
const struct persist_index *persist_replay_index(const struct persist_replay *replay, uint16_t number);
/* Sorts the keys, deleted ones too, and begins with the first: they are told one by one. BANYAN_ENOMEM. Not
 * before all journals were opened. */
int persist_replay_sort(struct persist_replay *replay, struct error *error);
/* How many there are then. */
uint64_t persist_replay_keys(const struct persist_replay *replay);
struct persist_replay_key {
    uint16_t index;
    const uint8_t *key;
    size_t key_length;
    bool present; /* else it was deleted */
};
/* The key that comes next; false: none. */
bool persist_replay_peek(const struct persist_replay *replay, struct persist_replay_key *key);
/* Takes that key, which must be present, with its value; the bytes are valid until the next call. */
int persist_replay_take(struct persist_replay *replay, struct archive_entry *entry, struct error *error);
void persist_replay_skip(struct persist_replay *replay);
/* Tells all keys with their values, ascending by index and key. A result of `visit` other than 0 ends it. */
typedef int persist_replay_visit(void *context, uint16_t index, const struct archive_entry *entry,
                                 struct error *error);
int persist_replay_all(struct persist_replay *replay, persist_replay_visit *visit, void *context,
                       struct error *error);
void persist_replay_stats(const struct persist_replay *replay, struct persist_replay_stats *stats);

/* ---- where a memory node's disk is lost (P16); when all journals that are left were read ---- */

/* A process of which the journals have frames. */
struct persist_replay_process {
    struct fabric_process process;
    uint64_t frames, last; /* last: the greatest sequence of a frame's first entry */
    bool silent;           /* of an earlier release: it does not say whether its frames have two copies */
    bool alone; /* it has written frames of one copy, which may have stood on the lost disk alone */
};
/* The next one, from *at 0 on; NULL: none. */
const struct persist_replay_process *persist_replay_process_next(const struct persist_replay *replay,
                                                                 uint32_t *at);
/* Keys whose newest change has a value of which a part lay on a memory node whose disk is lost
 * (persist_replay_lost), and that nobody carried: they have an older value, or none. How many there are; each
 * is told to `visit`, in no order. */
typedef void persist_replay_missed_visit(void *context, const struct persist_replay_key *key);
uint64_t persist_replay_missed(const struct persist_replay *replay, persist_replay_missed_visit *visit,
                               void *context);

#endif
