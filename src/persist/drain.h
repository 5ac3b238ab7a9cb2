/*
 * drain.h - copies what owners have logged on memory nodes of this process into a journal on a disk
 * (docs/internals/durability.md, P1 to P4, P9, P16, P17): the frames of their segments, the records that
 * entries name, and which indexes there are, where memory node 0 is of this process.
 *
 * The memory nodes' thread for the disk calls, one thread at a time. Owners go on meanwhile; they only see to
 * it that a segment is not used again before `persist_drain_pass` has seen it (log_options.keep).
 *
 * A pass costs a call of each memory node for each 64 logs and each log, a copy of what is new, and a look at
 * up to 1 MiB behind it in each segment that is being written. Memory: a segment, 1/512 of each segment that
 * is known, and 24 bytes for each piece of a long value that the journal has.
 */
#ifndef PERSIST_DRAIN_H
#define PERSIST_DRAIN_H

#include "disk/journal.h"
#include "fabric/fabric.h"
#include "persist/brought.h"

struct persist_drain;

struct persist_drain_stats {
    uint64_t passes, frames, entries, blocks, bytes; /* bytes: of records of the journal */
    /* Entries whose record was gone by then: the key has a newer entry (P3). */
    uint64_t stale;
    /* Entries with pieces on memory nodes that are not this process's, and that nobody has brought (P17). */
    uint64_t elsewhere;
    /* Entries whose record lies on such a one, and is not carried (P16), or has pieces that were not brought.
     */
    uint64_t uncarried;
    uint64_t brought; /* pieces */
};

/* All memory nodes of the cluster in order, NULL where one is not this process's. The journal is the
 * caller's, and nothing else appends to it meanwhile. */
int persist_drain_create(struct persist_drain **drain, const struct fabric_target *const *targets,
                         uint16_t count, struct journal *journal, struct error *error);
void persist_drain_destroy(struct persist_drain *drain);
/* All frames that were whole when it began stand in the journal when it returns 0; they are safe behind the
 * next journal_sync. Syncs itself where the journal's buffer is full. After an error of the journal, or
 * BANYAN_ENOMEM, the next pass copies the rest, if there can be one. */
int persist_drain_pass(struct persist_drain *drain, struct error *error);
/* Files of the journal are going to be released, up to this position at most: pieces that were copied or
 * brought once are copied again where an entry names them from now on, or have to be brought again, and the
 * next pass tells all indexes anew. Returns up to where they may be (persist_brought_forget). */
uint64_t persist_drain_forget(struct persist_drain *drain, uint64_t position);
/* What owners have brought, for their calls on any thread. The drain's. */
struct persist_brought *persist_drain_brought(struct persist_drain *drain);
/* A process with segments here, and the greatest sequence that was copied from them. */
struct persist_drain_mark {
    uint64_t instance, sequence;
};
/* Of all processes, each once. *marks is the caller's, from malloc; NULL where there is none. */
int persist_drain_marks(const struct persist_drain *drain, struct persist_drain_mark **marks, uint32_t *count,
                        struct error *error);
void persist_drain_stats(const struct persist_drain *drain, struct persist_drain_stats *stats);

#endif
