/*
 * audit_blocks.h - the audit's account of the pool's blocks: those handed out by the memory nodes, those that
 * the walk reaches, those that are lost. Private to src/store/; audit.c calls it.
 */
#ifndef STORE_AUDIT_BLOCKS_H
#define STORE_AUDIT_BLOCKS_H

#include "store/audit.h"

/* A memory node's blocks: a bit for each granule of MEMORY_BLOCK_MIN bytes. */
struct audit_node_blocks {
    gaddr base; /* of granule 0 */
    uint64_t granules;
    uint64_t *used;    /* handed out; owns the memory of all three, which is touched as they are used */
    uint64_t *starts;  /* a block begins here */
    uint64_t *reached; /* of `starts`: an index uses it, or the auditor holds it */
    uint64_t moves;    /* blocks handed out and returned until the memory node was asked for them */
};

struct audit {
    struct tree_session *session;
    const struct audit_options *options;
    struct audit_report *report;
    struct audit_node_blocks *nodes;
    uint16_t node_count;
    const char *index; /* the one that is walked */
    char (*names)[TREE_NAME_MAX + 1];
    uint8_t *contents;
    uint32_t name_count;
    struct audit_log *logs; /* owned: of each process */
    uint32_t log_count;
    uint32_t asked_again; /* blocks that were taken since the memory nodes were asked, or are faults */
};

/* Reports one broken invariant. */
void audit_problem(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_progress(const struct audit *audit, const char *what);
int audit_fail_memory(const struct audit *audit);

/* Asks all memory nodes for the logs that they have: their blocks are in use (audit_logs.c). */
int audit_logs(struct audit *audit);
/* Gives back the logs that no range needs, of processes that were fenced wherever they have one. */
int audit_logs_release(struct audit *audit);

/* Asks all memory nodes which blocks they have handed out. */
int audit_load(struct audit *audit);
/* Frees the account. */
void audit_unload(struct audit *audit);
/* Notes that the index that is walked uses this block. */
void audit_reach(void *context, gaddr block, uint32_t bytes);
/* Notes that the auditor's own worker holds this block ready: it is not lost. */
void audit_hold(void *context, gaddr block, uint32_t block_bytes);
/* Notes that a log uses this block of exactly so many bytes; the audit's `index` names the log. */
void audit_reach_log(struct audit *audit, gaddr block, uint64_t bytes);
/* Counts the blocks that no index uses, and returns them if the options say so. */
int audit_account(struct audit *audit);

#endif
