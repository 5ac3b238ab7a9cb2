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

    uint32_t worker_count;     /* atomic; changed under the lock */
    uint32_t shorts;           /* atomic: how often a worker found no space while others held some back */
    uint64_t waited_at;        /* atomic: when a worker last waited for the others in vain */
    uint32_t emptying_version; /* atomic; changed under the lock with what is below */
    struct spinlock lock;
    /* guarded by the lock: */
    struct pool_worker *workers;
    struct memory_evacuate_range *emptying; /* of chunks that are being emptied, in ascending order; owned */
    uint32_t emptying_count;
};

/* Free blocks of one size and purpose on one memory node, that the worker holds back. */
struct pool_arena {
    gaddr *free; /* owned; the next one to be used stands last */
    uint32_t count, capacity;
    uint32_t batch; /* that the next request asks for: grows with use */
    bool refilling; /* a task of the worker is asking the memory node */
};
#define POOL_ARENAS (MEMORY_PURPOSES * MEMORY_BLOCK_SIZES) /* of a memory node */

/* Blocks on their way back, in no arena. */
struct pool_leaving {
    struct memory_free_request request; /* its sizes are filled in */
    uint8_t purposes[MEMORY_BATCH_MAX];
};

/* What the worker holds back of one memory node. */
struct pool_kept {
    uint64_t bytes;               /* of its free blocks */
    uint64_t keep;                /* that the compute node may keep, as the memory node said last */
    struct pool_leaving *leaving; /* owned; NULL until used */
    uint64_t retry;               /* it could not be returned: not tried again until there are more bytes */
    uint32_t taken, taken_seen;   /* blocks, and at the last pool_worker_idle */
    uint32_t idle;                /* calls of pool_worker_idle since the last of them */
};

/* Tags that the worker has taken and not used yet, of one memory node. */
struct pool_tags {
    uint32_t next, left;
};

struct pool_worker {
    struct pool *pool;
    struct fabric_endpoint *endpoint;
    struct epoch_slot *epoch;
    uint16_t memory_nodes;      /* as its last operation began (pool_worker_count) */
    uint16_t most;              /* of them, while the fabric is open */
    struct pool_arena **arenas; /* [most * POOL_ARENAS], NULL until used */
    struct pool_kept *kept;     /* [most] */
    uint64_t held;              /* atomic, written by its thread alone: bytes held back in all */
    uint32_t shorts_seen;       /* of the pool's, when it last returned everything */
    uint32_t emptying_seen, emptying_count;
    struct memory_evacuate_range *emptying; /* the pool's, as the worker saw it last; owned */
    struct pool_worker *next, *previous;    /* guarded by the pool's lock */
    struct pool_tags *tags;                 /* [most] */
    uint64_t *allocated;                    /* [most], bytes taken so far and not released: for balance */
};

/* Memory nodes that have joined are the worker's from now on. Its thread; one load. */
static inline void pool_worker_count(struct pool_worker *worker)
{
    const uint16_t now = fabric_memory_nodes(worker->pool->fabric);
    if (__builtin_expect(now != worker->memory_nodes, 0))
        worker->memory_nodes = now;
}

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
/* Returns all if a worker of the process is short of space since it last did, or if chunks are to be emptied.
 * Costs two loads otherwise. */
void pool_lists_mind(struct pool_worker *worker);
/* The block lies in a chunk that is being emptied: it goes back soon, and is not used again before. False: no
 * memory to remember it in. */
bool pool_lists_leave(struct pool_worker *worker, uint16_t node, enum memory_purpose purpose,
                      uint32_t block_bytes, gaddr block, struct fabric_cost *cost);

/* ---- evacuate.c ---- */

/* The worker learns which chunks are being emptied. */
void pool_emptying_adopt(struct pool_worker *worker);
/* Whether the block lies in one of these ranges, which are in ascending order. */
bool pool_ranges_hold(const struct memory_evacuate_range *ranges, uint32_t count, gaddr block);

#endif
