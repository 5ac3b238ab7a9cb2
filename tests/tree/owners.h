/*
 * owners.h - a forwarder for tests of rights.h: compute nodes of one process that call each other's
 * tree_lookup_here and tree_exchange_here directly, and rows for their tables. Stands in for src/owner/.
 */
#ifndef TREE_OWNERS_H
#define TREE_OWNERS_H

#include "tree/rights.h"

/* How a compute node is reached by one task: a session of its own there. */
struct owners_peer {
    struct fabric_process process;
    struct tree_session *session;
    struct tree *tree;
};

#define OWNERS_ENTRIES_MAX 64u
struct owners_way {
    struct owners_peer peers[4];
    unsigned count;
    uint64_t lookups, exchanges, waits, batches, scans; /* counted */
    uint32_t part_entries; /* so many in each part of a scan; 0: OWNERS_ENTRIES_MAX */
    uint64_t waits_max;    /* so many in vain, from then on BANYAN_ENET; 0: for ever */
};

/* The hooks' context is the way: for compute nodes whose operations all come from one task at a time. */
extern const struct tree_forward owners_forward;

/* The answers of the peer that is the owner; for hooks with another context. */
int owners_lookup(struct owners_way *way, struct tree_session *session, struct fabric_process owner,
                  const void *key, size_t key_length, bool settled, void *value, size_t *length);
int owners_exchange(struct owners_way *way, struct tree_session *session, struct fabric_process owner,
                    struct tree_exchange *exchange);

#endif
