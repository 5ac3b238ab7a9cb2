/*
 * audit_blocks.h - the audit's account of the pool's blocks: what the memory nodes have handed out, what the
 * walk reaches, what is lost. Private to src/store/; audit.c calls it.
 */
#ifndef STORE_AUDIT_BLOCKS_H
#define STORE_AUDIT_BLOCKS_H

#include "store/audit.h"

/* One chunk of a memory node that is cut into blocks. */
struct audit_chunk {
    gaddr start;
    uint32_t block_bytes, blocks;
    uint64_t *used, *reached; /* a bit each block; one allocation, `used` owns it */
};

struct audit_node_chunks {
    struct audit_chunk *chunks; /* in ascending order of their addresses */
    uint32_t count;
    uint64_t chunk_bytes;
    uint64_t moves; /* blocks handed out and returned so far, when its chunks were asked for */
};

struct audit {
    struct tree_session *session;
    const struct audit_options *options;
    struct audit_report *report;
    struct audit_node_chunks *nodes;
    uint16_t node_count;
    const char *index; /* under way */
    char (*names)[TREE_NAME_MAX + 1];
    uint8_t *contents;
    uint32_t name_count;
};

/* Tells one broken invariant. */
void audit_problem(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_progress(const struct audit *audit, const char *what);
int audit_fail_memory(const struct audit *audit);

/* Asks all memory nodes what they have handed out. */
int audit_load(struct audit *audit);
/* Frees what audit_load has allocated. */
void audit_unload(struct audit *audit);
/* Notes that the index under way uses this block. */
void audit_reach(void *context, gaddr block, uint32_t bytes);
/* Notes that the auditor's own worker holds this block ready: it is not lost. */
void audit_hold(void *context, gaddr block, uint32_t block_bytes);
/* Counts the blocks that nothing has reached, and gives them back if that was asked for. */
int audit_account(struct audit *audit);

#endif
