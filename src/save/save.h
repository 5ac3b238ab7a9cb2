/*
 * save.h - a checkpoint of a whole cluster: all keys of all indexes, on the disks of the memory nodes, so
 * that their journals become short (docs/internals/durability.md, P11 to P15).
 *
 * One compute node makes it, beside the load, with one task: it holds all memory nodes for it (SAVE of
 * memory/request.h), notes up to where each one's journal is made unneeded, scans all indexes, and sends what
 * it finds in parts, to one memory node after the other. It counts when all of them have prepared it. A
 * compute node that ends in between leaves nothing behind, but for a checkpoint that all have prepared: the
 * next one decides what becomes of it.
 *
 * Costs a scan of everything, one WRITE for each 256 KiB, some calls for each part, and memory for 256 KiB
 * and a block of the archive. For `banyan save` and for compute nodes that do it by themselves.
 */
#ifndef SAVE_SAVE_H
#define SAVE_SAVE_H

#include "memory/request.h"
#include "owner/owner.h"

struct save_options {
    uint32_t copies;                  /* memory nodes that get each part: 1 or 2 */
    uint64_t part_bytes;              /* a part ends behind so many; 0: 64 MiB */
    int level;                        /* of Zstandard; 0: nothing is compressed */
    uint64_t wait_ns;                 /* for merging, and for a memory node's disk; 0: 60 s */
    bool (*cancelled)(void *context); /* NULL, or asked now and then: true ends it */
    void (*progress)(void *context, uint64_t keys, uint64_t bytes); /* NULL, or told now and then */
    void *context;
};
struct save_stats {
    uint64_t number, keys, bytes, parts, indexes;
};

/* The session is in no operation; no index of the compute node is open or attached. BANYAN_EBUSY: another
 * compute node makes one; BANYAN_ENOTSUP: a memory node keeps nothing on a disk; BANYAN_EABORT: it was
 * cancelled; BANYAN_EFENCED: this one was fenced by a memory node meanwhile; BANYAN_ETIMEOUT; and what else
 * ends it. Then it does not count, and the one before does. */
int save_make(struct owner *owner, struct tree_session *session, const struct save_options *options,
              struct save_stats *stats, struct error *error);

/* What all memory nodes say together; one call each. */
struct save_look {
    bool due;           /* one of them wants a checkpoint */
    bool busy;          /* a compute node makes one */
    uint64_t committed; /* the number of the last one; 0: there is none */
    uint64_t saved_ms;  /* when, as far as they know */
    uint64_t journal_bytes, checkpoint_bytes;
};
int save_look(struct pool_session *session, struct save_look *look, struct error *error);

#endif
