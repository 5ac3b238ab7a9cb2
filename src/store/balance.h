/*
 * balance.h - where the bytes of a cluster's indexes lie, and their way to other memory nodes: `banyan
 * balance`. A compute node walks all indexes and moves nodes (tree_move_step), evening memory nodes out or
 * emptying one; where one is emptied, records and long keys' blocks go too (defrag.h). Everything goes on
 * meanwhile. Leaves of ranges that compute nodes own are moved by their owners, who are asked.
 *
 * One task. Any number of them may run; they undo each other's work if they are asked for different things.
 * Interrupted anywhere it leaves nothing that has to be mended: called again it goes on.
 */
#ifndef STORE_BALANCE_H
#define STORE_BALANCE_H

#include "owner/owner.h"
#include "tree/tree.h"

#define STORE_BALANCE_NODES 64u

struct store_balance_node {
    uint64_t bytes_used, bytes_free; /* as the memory node says */
    bool draining;
    uint64_t nodes, node_bytes; /* of all indexes' trees; of the last walk */
};

struct store_balance {
    /* Set by the caller. */
    struct tree_session *session;
    struct owner *owner;       /* attached to nothing that is walked; NULL: nobody owns ranges */
    uint16_t drain;            /* the memory node to empty; POOL_ANY_NODE: even all out */
    uint64_t bytes_per_second; /* moved at most; 0: no limit */
    void (*progress)(void *context, const struct store_balance *balance); /* after each step; may be NULL */
    void *context;
    /* Out. */
    uint16_t count;
    struct store_balance_node nodes[STORE_BALANCE_NODES];
    struct tree_move_report moved;      /* in all passes */
    uint64_t left[TREE_MOVE_LATER + 1]; /* of the last pass: nodes that were to move, by what it came to */
    uint64_t planned, planned_bytes;    /* nodes of the last walk that are to move */
    uint64_t data_blocks, data_bytes;   /* of records and keys, moved */
    unsigned passes;
    /* private */
    bool plans; /* a walk that moves nothing */
    uint64_t begun_ns;
    uint64_t share[STORE_BALANCE_NODES]; /* of 2^32: of a memory node's nodes, those that are to leave */
    uint64_t room[STORE_BALANCE_NODES];  /* what it is to get, as a weight */
};

/* Asks all memory nodes how full they are. BANYAN_EINVAL: there are more than STORE_BALANCE_NODES. */
int store_balance_look(struct store_balance *balance);
/* Whether what is asked for can be done: BANYAN_EINVAL with the reason (there is no such memory node, it is
 * the home node, or the last one that hands out memory), BANYAN_ENOSPC (the others have no room). Nothing is
 * changed. */
int store_balance_check(struct store_balance *balance);
/* Walks all indexes, counts their nodes, and what would have to move. Changes nothing. */
int store_balance_plan(struct store_balance *balance);
/*
 * Does it, in passes, until a pass finds nothing to move, or nothing that can be. Emptying: the memory node
 * hands nothing out from the first step on, also afterwards (pool_node_drain takes that back). What cannot be
 * moved is in `left`. The first error ends it.
 */
int store_balance_run(struct store_balance *balance);

#endif
