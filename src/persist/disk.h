/*
 * disk.h - a memory node's disk: what owners log in its pool is copied into a journal (drain.h;
 * docs/internals/durability.md, P1 to P8), and PERSIST is answered when that is safe from power. All of it
 * but the thread: the daemon has one (memoryd/disk.h), the simulator a task in virtual time
 * (swarm/world_disks.h).
 *
 * THREADS. Whoever keeps the memory node alive makes rounds, one at a time, each second and as soon as
 * somebody asks: a round suspends or blocks its task for as long as the disk takes. The service, outcomes and
 * status are any thread's and do not wait. The rest is called while nothing else is.
 *
 * Who asks before a round begins is answered by its sync, who asks meanwhile by the next one. A write or a
 * sync that fails ends the promise: from then on all who ask are refused, until the memory node is started
 * anew. A full disk does not: it is tried again.
 */
#ifndef PERSIST_DISK_H
#define PERSIST_DISK_H

#include "disk/disk.h"
#include "memory/memory.h"

struct persist_disk;

struct persist_disk_options {
    struct disk *disk;         /* borrowed; locked against other processes */
    bool always;               /* owners ask behind each commit (FABRIC_KEPT_ON_DISK_ALWAYS) */
    uint64_t file_bytes, seed; /* of the journal, for tests */
};

/* Opens the journal, if the memory node belongs to a cluster; else persist_disk_format does, later.
 * BANYAN_EINVAL: the directory is another's, the pool was lost, or the pool has data of which the journal
 * knows nothing; and what manifest_open and journal_open say. */
int persist_disk_create(struct persist_disk **disk, struct memory_node *node,
                        const struct persist_disk_options *options, struct error *error);
/* NULL: does nothing. */
void persist_disk_destroy(struct persist_disk *disk);
/* Whether the memory node may be formatted: BANYAN_EEXIST: the directory has a journal, of data that a format
 * would clear. */
int persist_disk_may_format(const struct persist_disk *disk, struct error *error);
/* It was: begins the journal. */
int persist_disk_format(struct persist_disk *disk, struct error *error);

struct persist_disk_listener {
    void (*asked)(void *context);   /* somebody waits for a round; on the asking thread */
    void (*settled)(void *context); /* outcomes are known; on the thread that made the round */
    void *context;
};
/* Each may be NULL. Before anybody asks. */
void persist_disk_listen(struct persist_disk *disk, const struct persist_disk_listener *listener);

/* A pass, a sync, and what came of the tickets that were drawn before. */
void persist_disk_round(struct persist_disk *disk);
/* For memory_node_register, with the disk as its context: answers MEMORY_PERSIST and MEMORY_SAVE (2 kinds),
 * and reports. */
extern const struct memory_service persist_disk_service;
/* The same for MEMORY_BRING (1 kind): pieces that the next round takes (brought.h). */
extern const struct memory_service persist_disk_bring;
/* The same for MEMORY_JOURNALS (1 kind): an operator tells how many memory nodes there are going to be. */
extern const struct memory_service persist_disk_journals;
/* Whether it is known what came of that ticket, and what. Some nanoseconds. */
bool persist_disk_outcome(struct persist_disk *disk, uint64_t ticket, int *status);
/* Up to here tickets are settled. */
uint64_t persist_disk_settled(const struct persist_disk *disk);
enum fabric_durability persist_disk_level(const struct persist_disk *disk);

#endif
