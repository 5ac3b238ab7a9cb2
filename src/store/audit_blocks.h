/*
 * audit_blocks.h - the audit's account of the pool's blocks: those handed out by the memory nodes, those that
 * the walk reaches, those that are lost. Private to src/store/; audit.c calls it.
 */
#ifndef STORE_AUDIT_BLOCKS_H
#define STORE_AUDIT_BLOCKS_H

#include "store/audit.h"

/* One chunk of a memory node that is cut into blocks. */
struct audit_chunk {
    gaddr start;
    uint32_t block_bytes, blocks;
    uint64_t *used, *reached; /* a bit for each block; `used` owns the memory of both */
};

struct audit_node_chunks {
    struct audit_chunk *chunks; /* in ascending order of their addresses */
    uint32_t count;
    uint64_t chunk_bytes;
    uint64_t moves; /* blocks handed out and returned until the memory node was asked for its chunks */
};

struct audit {
    struct tree_session *session;
    const struct audit_options *options;
    struct audit_report *report;
    struct audit_node_chunks *nodes;
    uint16_t node_count;
    const char *index; /* the one that is walked */
    char (*names)[TREE_NAME_MAX + 1];
    uint8_t *contents;
    uint32_t name_count;
};

/* Reports one broken invariant. */
void audit_problem(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_progress(const struct audit *audit, const char *what);
int audit_fail_memory(const struct audit *audit);

/* Asks all memory nodes which blocks they have handed out. */
int audit_load(struct audit *audit);
/* Frees the account. */
void audit_unload(struct audit *audit);
/* Notes that the index that is walked uses this block. */
void audit_reach(void *context, gaddr block, uint32_t bytes);
/* Notes that the auditor's own worker holds this block ready: it is not lost. */
void audit_hold(void *context, gaddr block, uint32_t block_bytes);
/* Counts the blocks that no index uses, and returns them if the options say so. */
int audit_account(struct audit *audit);

#endif
