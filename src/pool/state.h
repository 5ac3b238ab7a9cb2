/* state.h - the objects behind pool.h, shared by worker.c, session.c, lists.c and allocate.c. Private to
 * src/pool/. */
#ifndef POOL_STATE_H
#define POOL_STATE_H

#include "base/epoch.h"
#include "memory/memory.h"
#include "pool/pool.h"

struct pool {
    struct fabric *fabric;
    enum pool_combine combine;
    struct epoch_domain *epochs;

    uint32_t worker_count; /* atomic; changed under the lock */
    uint32_t shorts;       /* atomic: how often a worker found no space while others held some back */
    uint64_t waited_at;    /* atomic: when a worker last waited for the others in vain */
    struct spinlock lock;
    struct pool_worker *workers; /* guarded by the lock */
};

/* Free blocks of one size and purpose on one memory node, that the worker holds back. */
struct pool_arena {
    gaddr *free; /* owned; the next one to be used stands last */
    uint32_t count, capacity;
    uint32_t batch; /* that the next request asks for: grows with use */
    bool refilling; /* a task of the worker is asking the memory node */
};
#define POOL_ARENAS (MEMORY_PURPOSES * MEMORY_BLOCK_SIZES) /* of a memory node */

/* What the worker holds back of one memory node. */
struct pool_kept {
    uint64_t bytes; /* of its free blocks */
    uint64_t keep;  /* that the compute node may keep, as the memory node said last */
    uint64_t retry; /* it could not be returned: not tried again until there are more bytes */
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
    struct pool_arena **arenas;          /* [memory_nodes * POOL_ARENAS], NULL until used */
    struct pool_kept *kept;              /* [memory_nodes] */
    uint64_t held;                       /* atomic, written by its thread alone: bytes held back in all */
    uint32_t shorts_seen;                /* of the pool's, when it last returned everything */
    uint32_t calls, calls_seen;          /* blocks taken and released, and at the last pool_worker_idle */
    unsigned idle;                       /* calls of pool_worker_idle since the last of them */
    struct pool_worker *next, *previous; /* guarded by the pool's lock */
    struct pool_tags *tags;              /* [memory_nodes] */
    uint64_t *allocated; /* [memory_nodes], bytes taken so far and not released: for balance */
};

/* ---- lists.c ---- */

/* BANYAN_ENOMEM: then pool_arenas_destroy frees what there is. */
int pool_arenas_create(struct pool_worker *worker);
void pool_arenas_destroy(struct pool_worker *worker);
/* NULL when memory is short. */
struct pool_arena *pool_arena_get(struct pool_worker *worker, uint16_t node, enum memory_purpose purpose,
                                  uint32_t block_bytes);
bool pool_arena_reserve(struct pool_arena *arena, uint32_t capacity);
/* The next free block of the arena, which has one. */
gaddr pool_arena_pop(struct pool_worker *worker, uint16_t node, uint32_t block_bytes,
                     struct pool_arena *arena);
/* There is room for it. */
void pool_arena_push(struct pool_worker *worker, uint16_t node, uint32_t block_bytes,
                     struct pool_arena *arena, gaddr block);
/* A batch has at most so many blocks of a size. */
uint32_t pool_batch_max(uint32_t block_bytes);
/* How many bytes the worker may hold back of the memory node's. */
uint64_t pool_keep_bytes(const struct pool_worker *worker, uint16_t node);
/* Returns blocks, the longest held first: half of each list, or all. False: the memory node did not take them
 * all. */
bool pool_lists_return(struct pool_worker *worker, uint16_t node, bool all, struct fabric_cost *cost);
/* Returns all if a worker of the process is short of space since it last did. Costs a load if none is. */
void pool_lists_mind_shorts(struct pool_worker *worker);

#endif
