/*
 * saving.h - a memory node's part in a checkpoint of the whole cluster: it keeps the parts that a compute
 * node hands over, and makes its journal's beginning unneeded when all memory nodes have theirs (the actions
 * of SAVE, memory/request.h; docs/internals/durability.md, P11 to P15).
 *
 * Calls of compute nodes come on any thread, and do not wait: what takes time is done by the thread of the
 * memory node's disk, which alone touches files. Costs that thread a copy and a checksum of each byte of a
 * part, and a sync for each 8 MiB.
 */
#ifndef PERSIST_SAVING_H
#define PERSIST_SAVING_H

#include "disk/journal.h"
#include "disk/manifest.h"
#include "fabric/wire.h"
#include "memory/memory.h"
#include "memory/request.h"
#include "persist/drain.h"

struct persist_saving;

/* Borrowed, all of it. */
struct persist_saving_parts {
    struct disk *disk;
    struct journal *journal;
    struct persist_drain *drain;
    const struct fabric_target *target; /* the memory node's */
    uint16_t node;
};

/* The manifest and the prepared one (serial 0: none) are taken over when it returns 0. */
int persist_saving_create(struct persist_saving **saving, const struct persist_saving_parts *parts,
                          struct manifest *manifest, struct manifest *prepared, struct error *error);
void persist_saving_destroy(struct persist_saving *saving);

/* Any thread. An action of this compute node. `reply` is filled in when it returns 0; *wake: the disk's
 * thread has something to do. Errors: struct memory_save_request. */
int persist_saving_call(struct persist_saving *saving, uint16_t compute_id,
                        const struct memory_save_request *request, struct memory_save_reply *reply,
                        bool *wake);
/* Any thread: the compute node was fenced. What it had begun and not prepared is dropped. */
void persist_saving_fenced(struct persist_saving *saving, uint16_t compute_id);
/* Any thread: what the manifest is to say of a memory node that joins. *wake: as above. BANYAN_EEXIST: it
 * says already that another one has joined under that number. */
int persist_saving_join(struct persist_saving *saving, const struct wire_journals_request *request,
                        struct wire_journals_reply *reply, bool *wake);
/* Any thread: how many of the reply's bytes are sent. */
size_t persist_saving_reply_bytes(const struct memory_save_reply *reply);

/* The disk's thread, between two passes: does what was asked for. `safe`: all that stands in the journal is
 * on the disk. */
void persist_saving_step(struct persist_saving *saving, bool safe);
/* The disk's thread, before a pass: whether the journal may grow now. BANYAN_ENOSPC: a checkpoint needs the
 * room that is left, and comes first (P15). */
int persist_saving_may_grow(struct persist_saving *saving, struct error *error);

#endif
