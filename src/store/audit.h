/*
 * audit.h - compares all indexes with the blocks that the memory nodes have handed out: every index is walked
 * and validated, every block accounted for.
 *
 * Called by `banyan check`, while nothing else writes. Costs a read of every node and record, and two bits of
 * local memory for each block of the pool. One task.
 */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include "fabric/peers.h"
#include "store/store.h"

struct audit_report {
    uint64_t indexes, entries, leaves, internals, values_record, expired; /* without the map of ranges */
    uint32_t memory_nodes, memory_nodes_kept; /* all; those whose pool lies in a file (durability.md) */
    uint32_t memory_nodes_disk, memory_nodes_always, memory_nodes_failed; /* those that keep owners' logs on
                                               disks; of these, those that say so behind each commit; those
                                               whose disk has failed */
    bool map;             /* there is a map of ranges (src/owner/), and it was walked like an index */
    uint64_t map_entries; /* of it */
    uint64_t dead, marked, frozen, missing_parents; /* unfinished work of compute nodes that died: legal,
                                               other compute nodes finish it */
    uint64_t subtree_links, subtree_links_away;     /* as tree_check_report's */
    uint32_t half_dropped;            /* indexes whose drop has not ended: their blocks count as lost */
    uint64_t blocks_used, bytes_used; /* reachable */
    uint64_t log_processes, log_segments, log_bytes; /* of owners' logs, whose blocks are in use too. While
                                               there are any, blocks that only a log names count as lost */
    uint64_t logs_released;           /* processes whose logs were given back, since no range needs them */
    uint64_t blocks_lost, bytes_lost; /* handed out, but not reachable */
    bool lost_unjudged;               /* there are problems: blocks behind the damage count as lost too */
    uint64_t blocks_reclaimed;
    uint64_t problems;      /* broken invariants; the callback gets the first 10,000 */
    uint64_t compute_nodes; /* connected besides the auditor: the blocks that they hold back count as lost */
};

/* What a process keeps of a log on all memory nodes. */
struct audit_log {
    struct fabric_process process;
    uint64_t segments, bytes;
    uint32_t nodes, nodes_fenced; /* memory nodes that have some of it; where the process was fenced since */
};

struct audit_options {
    /* End the drops that were begun, then give back the logs that no range needs, then return lost blocks to
     * their memory nodes, unless there is a problem, or a log is left: a block may be named by that alone.
     * BANYAN_EBUSY while other compute nodes are connected, or when one worked during the audit. */
    bool reclaim;
    /* May be NULL. Called for each process that keeps a log. */
    void (*log)(void *context, const struct audit_log *log);
    /* Gets a sentence for each broken invariant, with the index, the address and what is wrong. */
    void (*problem)(void *context, const char *text);
    /* May be NULL. Called before each index and before the memory nodes are asked. */
    void (*progress)(void *context, const char *what);
    void *context;
};

/* 0 when the audit was made, whatever it found: see report->problems. */
int audit_run(struct tree_session *session, const struct audit_options *options, struct audit_report *report);

#endif
