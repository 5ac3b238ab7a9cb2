/*
 * balance.h - where the bytes of a cluster's indexes lie, and their way to other memory nodes: `banyan
 * balance`. A compute node walks all indexes and moves nodes (tree_move_step) and records (defrag.h), evening
 * memory nodes out or emptying one; where one is emptied, long keys' blocks go too, and the first leaves of
 * ranges (borders.h), so that nothing stays there but what owners' logs have. Everything goes on meanwhile.
 * Leaves of ranges that compute nodes own are moved by their owners, who are asked.
 *
 * One task. Any number of them may run; they undo each other's work if they are asked for different things.
 * Interrupted anywhere it leaves nothing that has to be mended: called again it goes on.
 */
#ifndef STORE_BALANCE_H
#define STORE_BALANCE_H

#include "owner/owner.h"
#include "tree/tree.h"

#define STORE_BALANCE_NODES 96u

struct store_balance_node {
    bool member; /* there is such a memory node: else all else is 0 */
    /* As the memory node says. */
    uint64_t bytes_used, bytes_free;
    uint64_t log_bytes;         /* of bytes_used: segments of owners' logs */
    bool draining;              /* it hands out nothing, or leaves the cluster */
    bool nic;                   /* what goes through it is not counted below */
    uint64_t commands_total;    /* carried out by its CPU since it was started */
    double commands_per_second; /* while load was measured last; negative: not known */
    /* Of all indexes' trees; of the last walk. */
    uint64_t nodes, node_bytes;
};

struct store_balance {
    /* Set by the caller. */
    struct tree_session *session;
    struct owner *owner; /* attached to nothing that is walked, but for `tree`; NULL: nobody owns ranges */
    struct tree *tree;   /* an index that this process has open; NULL: none */
    struct store *store; /* over it; NULL: it is none of records */
    uint16_t drain;      /* the memory node to empty; POOL_ANY_NODE: even all out */
    uint64_t bytes_per_second; /* moved at most; 0: no limit */
    /* So long, at most, it waits for what compute nodes hold back of the memory node that is emptied, and for
     * what merging frees there, and looks again. 0: it does not wait. */
    uint64_t wait_ns;
    uint64_t measure_ns; /* so long load is measured, before it is evened out too; 0: it is not */
    void (*progress)(void *context, const struct store_balance *balance); /* after each step; may be NULL */
    void *context;
    /* Out. */
    uint16_t count;
    struct store_balance_node nodes[STORE_BALANCE_NODES];
    uint64_t looked_ns;                 /* when memory nodes were asked last */
    struct tree_move_report moved;      /* in all passes */
    uint64_t left[TREE_MOVE_LATER + 1]; /* of the last pass: nodes that were to move, by what it came to */
    uint64_t keys_left;                 /* of the last pass: leaves with long keys' blocks that stay */
    uint64_t data_left; /* of the last pass: records whose leaf's owner, or a memory node, did not answer */
    uint64_t data_full; /* of the last pass: records that found no room */
    uint64_t data_cut;  /* of the last pass: indexes of which not all records were tried, since it was not
                           answered too often in a row */
    struct error data_error; /* why the last one of data_left has stayed, in any pass; code 0: none has */
    uint64_t
        data_unknown; /* of all passes: records that may have moved, since the answer of their leaf's
                         owner is missing; of each, blocks may be lost until a check gives them back (S6) */
    uint64_t planned, planned_bytes;  /* nodes of the last walk that are to move */
    uint64_t planned_data_bytes;      /* of records that are to move, about */
    uint64_t data_blocks, data_bytes; /* of records, moved */
    uint64_t borders;                 /* of ranges, that were moved on by a key */
    struct error border_error;        /* why the last that was not has stayed; code 0: none */
    unsigned passes;
    uint64_t load_planned; /* hot nodes that are to move, for load */
    uint64_t load_moved;   /* nodes that were */
    /* private */
    bool plans;                      /* a walk that moves nothing */
    struct store_balance_load *load; /* the walk is about load (balance_load.h); NULL: about bytes */
    uint64_t due_ns, paced_bytes;
    uint64_t stores;                     /* indexes of records that the last walk has met */
    uint64_t share[STORE_BALANCE_NODES]; /* of 2^32: of a memory node's nodes, those that are to leave */
    uint64_t room[STORE_BALANCE_NODES];  /* what it is to get, as a weight */
    struct store_balance_firsts *firsts; /* of the index at hand */
    uint32_t unanswered; /* struct store_defrag's, from walk to walk: what never answers is not waited for
                            STORE_DEFRAG_UNANSWERED_MAX times in each of them */
};

/* A memory node is even with the others as near as this, of the mean: in bytes. */
#define STORE_BALANCE_EVEN_SHARE 20u

/* What the memory node has in use beside owners' logs. */
static inline uint64_t store_balance_rest(const struct store_balance *balance, uint16_t node)
{
    const struct store_balance_node *one = &balance->nodes[node];
    return one->bytes_used > one->log_bytes ? one->bytes_used - one->log_bytes : 0;
}

/* Whether the memory node takes what others have too much of. */
static inline bool store_balance_takes(const struct store_balance *balance, uint16_t node)
{
    return node != balance->drain && balance->nodes[node].member && !balance->nodes[node].draining;
}

/* Of store_balance_rest, of those that take; 0: none does. */
uint64_t store_balance_mean(const struct store_balance *balance);

/* Asks all memory nodes how full they are. BANYAN_EINVAL: there are more than STORE_BALANCE_NODES. */
int store_balance_look(struct store_balance *balance);
/* Whether what is asked for can be done: BANYAN_EINVAL with the reason (there is no such memory node, it is
 * the home node, or the last one that hands out memory), BANYAN_ENOSPC (the others have no room). Nothing is
 * changed. */
int store_balance_check(struct store_balance *balance);
/* Walks all indexes, counts their nodes, and what would have to move. Changes nothing. After
 * store_balance_look. */
int store_balance_plan(struct store_balance *balance);
/*
 * Does it, in passes, until a pass finds nothing to move, or nothing that can be. Emptying: the memory node
 * hands nothing out from the first step on, also afterwards (pool_node_drain takes that back), and passes go
 * on until nothing is there, or wait_ns is over. What cannot be moved is in `left`, `keys_left`, `data_full`,
 * `data_left` and `data_cut`, also where owners of leaves or memory nodes did not answer when records were
 * moved; what is in use there all the same is store_balance_rest: free blocks that compute nodes hold back,
 * and blocks that were lost (`banyan check --reclaim`). The first error ends it.
 */
int store_balance_run(struct store_balance *balance);

#endif
