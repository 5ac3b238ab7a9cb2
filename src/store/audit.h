/*
 * audit.h - the whole pool against what the memory nodes have handed out: every index walked and proved,
 * every block of memory accounted for.
 *
 * Called by `banyan check`, with nobody else writing. Costs a read of every node and record, and some bits of
 * local memory for every block of the pool. One task.
 */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include "store/store.h"

struct audit_report {
    uint64_t indexes, entries, leaves, internals, values_record, expired;
    uint64_t dead, marked,
        missing_parents;              /* half-done work of compute nodes that died: legal, others finish it */
    uint32_t half_dropped;            /* indexes whose drop has not ended: their blocks count as lost */
    uint64_t blocks_used, bytes_used; /* reachable */
    uint64_t blocks_lost, bytes_lost; /* handed out, and not reached */
    bool lost_unjudged;               /* problems: what lies behind the damage is among those not reached */
    uint64_t blocks_reclaimed;
    uint64_t problems; /* broken invariants; each was told to the callback, but for those beyond 10,000 */
    uint64_t compute_nodes; /* connected, but for the auditor: what they hold back counts as lost */
};

struct audit_options {
    /* End the drops that were begun, then give lost blocks back, unless there is a problem. BANYAN_EBUSY
     * while other compute nodes are connected, or when one came during the audit. */
    bool reclaim;
    /* Gets a sentence for each broken invariant, with the index, the address and what is wrong. */
    void (*problem)(void *context, const char *text);
    /* May be NULL. After each index, and while memory nodes are asked. */
    void (*progress)(void *context, const char *what);
    void *context;
};

/* 0 when the audit could be made, whatever it found: see report->problems. */
int audit_run(struct tree_session *session, const struct audit_options *options, struct audit_report *report);

#endif
