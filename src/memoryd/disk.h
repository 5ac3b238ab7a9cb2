/*
 * disk.h - the memory node's disk: what owners log in its pool is copied into a journal (persist/drain.h,
 * docs/internals/durability.md, P1 to P7), and PERSIST is answered when that is safe from power.
 *
 * Made by `banyan memory --data`, beside the daemon. It has a thread of its own: a pass and a sync each
 * second, and as soon as somebody waits. Who waits when a pass begins is answered by the sync behind it. A
 * write or a sync that fails ends the promise: from then on all who ask are refused, until the process is
 * started anew. A full disk does not: it is tried again.
 *
 * Only for a memory node whose pool lies in a file, so that what the journal does not have yet outlives the
 * process; and whose journal has been there from the first write on, since it is all that is read back.
 */
#ifndef MEMORYD_DISK_H
#define MEMORYD_DISK_H

#include "disk/disk.h"
#include "memory/memory.h"

struct memoryd;
struct memoryd_disk;

struct memoryd_disk_options {
    struct disk *disk;         /* borrowed; locked against other processes */
    bool always;               /* owners ask behind each commit (FABRIC_KEPT_ON_DISK_ALWAYS) */
    uint64_t file_bytes, seed; /* of the journal, for tests */
};

/* Opens the journal, if the memory node belongs to a cluster; else memoryd_disk_format does, later.
 * BANYAN_EINVAL: the directory is another's, the pool was lost, or the pool has data of which the journal
 * knows nothing; and what manifest_open and journal_open say. */
int memoryd_disk_create(struct memoryd_disk **disk, struct memory_node *node,
                        const struct memoryd_disk_options *options, struct error *error);
/* Behind memoryd_destroy. NULL: does nothing. */
void memoryd_disk_destroy(struct memoryd_disk *disk);

/* ---- for the daemon; `disk` may be NULL where that is said ---- */

/* Whether the memory node may be formatted: BANYAN_EEXIST: the directory has a journal, of data that a format
 * would clear. NULL: 0. */
int memoryd_disk_may_format(const struct memoryd_disk *disk, struct error *error);
/* It was: begins the journal. NULL: 0. */
int memoryd_disk_format(struct memoryd_disk *disk, struct error *error);
/* The thread. `daemon`: whose I/O threads are woken when something is settled. */
int memoryd_disk_start(struct memoryd_disk *disk, struct memoryd *daemon, struct error *error);
/* When no I/O thread runs any more: the last pass, and the thread's end. NULL: does nothing. */
void memoryd_disk_stop(struct memoryd_disk *disk);
/* enum fabric_durability of the memory node, with its disk or without (NULL). Any thread. */
uint32_t memoryd_disk_level(const struct memoryd_disk *disk, struct memory_node *node);
/* Whether it is known what came of that ticket, and what. Any thread, some nanoseconds. */
bool memoryd_disk_outcome(struct memoryd_disk *disk, uint64_t ticket, int *status);
/* Up to here tickets are settled. NULL: 0. */
uint64_t memoryd_disk_settled(const struct memoryd_disk *disk);

#endif
