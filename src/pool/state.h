/* state.h - the objects behind pool.h, shared by worker.c, session.c and allocate.c. Private to src/pool/. */
#ifndef POOL_STATE_H
#define POOL_STATE_H

#include "base/epoch.h"
#include "pool/pool.h"

struct pool {
    struct fabric *fabric;
    enum pool_combine combine;
    struct epoch_domain *epochs;
};

/* Free blocks of one size on one memory node, that the worker holds back. */
struct pool_arena {
    gaddr *free; /* owned; the next one to be used stands last */
    uint32_t count, capacity;
    uint32_t batch; /* that the next request asks for: grows with use */
    bool refilling; /* a task of the worker is asking the memory node */
};

/* Tags that the worker has taken and not used yet, of one memory node. */
struct pool_tags {
    uint32_t next, left;
};

struct pool_worker {
    struct pool *pool;
    struct fabric_endpoint *endpoint;
    struct epoch_slot *epoch;
    uint16_t memory_nodes;
    struct pool_arena **arenas; /* [memory_nodes * MEMORY_BLOCK_SIZES], NULL until used */
    struct pool_tags *tags;     /* [memory_nodes] */
    uint64_t *allocated;        /* [memory_nodes], bytes taken so far and not released: for balance */
};

/* ---- allocate.c ---- */

/* BANYAN_ENOMEM: then pool_arenas_destroy frees what there is. */
int pool_arenas_create(struct pool_worker *worker);
void pool_arenas_destroy(struct pool_worker *worker);

#endif
