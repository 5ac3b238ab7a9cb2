/*
 * disk.h - the thread of a memory node's disk (persist/disk.h), beside the daemon: made by `banyan memory
 * --data`. It makes a round each second, and as soon as somebody waits, and one more when it ends.
 *
 * Only for a memory node whose pool lies in a file, so that what the journal does not have yet outlives the
 * process; and whose journal has been there from the first write on, since it is all that is read back.
 */
#ifndef MEMORYD_DISK_H
#define MEMORYD_DISK_H

#include "persist/disk.h"

struct memoryd;
struct memoryd_disk;

/* Errors: persist_disk_create's. */
int memoryd_disk_create(struct memoryd_disk **disk, struct memory_node *node,
                        const struct persist_disk_options *options, struct error *error);
/* Behind memoryd_destroy. NULL: does nothing. */
void memoryd_disk_destroy(struct memoryd_disk *disk);

/* ---- for the daemon; `disk` may be NULL where that is said ---- */

/* What it makes rounds for: the context of persist_disk_service. */
struct persist_disk *memoryd_disk_kept(const struct memoryd_disk *disk);
/* persist_disk_may_format, persist_disk_format. NULL: 0. */
int memoryd_disk_may_format(const struct memoryd_disk *disk, struct error *error);
int memoryd_disk_format(struct memoryd_disk *disk, struct error *error);
/* The thread. `daemon`: whose I/O threads are woken when something is settled. */
int memoryd_disk_start(struct memoryd_disk *disk, struct memoryd *daemon, struct error *error);
/* When no I/O thread runs any more: the last round, and the thread's end. NULL: does nothing. */
void memoryd_disk_stop(struct memoryd_disk *disk);
/* enum fabric_durability of the memory node, with its disk or without (NULL). Any thread. */
uint32_t memoryd_disk_level(const struct memoryd_disk *disk, struct memory_node *node);
/* Whether it is known what came of that ticket, and what. Any thread, some nanoseconds. */
bool memoryd_disk_outcome(struct memoryd_disk *disk, uint64_t ticket, int *status);
/* Up to here tickets are settled. NULL: 0. */
uint64_t memoryd_disk_settled(const struct memoryd_disk *disk);

#endif
