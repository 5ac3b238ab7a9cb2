/* worker.c - The life of a pool and of its workers. Opening a worker opens an endpoint, which may wait for
 * the network; fails with the fabric's errors. */
#include <stdlib.h>

#include "pool/state.h"

int pool_create(struct pool **out, struct fabric *fabric, enum pool_combine combine, struct error *error)
{
    *out = NULL;
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return error_set(error, BANYAN_ENOMEM, "no memory for a compute node");
    pool->fabric = fabric;
    pool->combine = combine;
    pool->epochs = epoch_domain_create();
    if (!pool->epochs) {
        pool_destroy(pool);
        return error_set(error, BANYAN_ENOMEM, "no memory for a compute node's epochs");
    }
    *out = pool;
    return 0;
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    if (pool->epochs)
        epoch_domain_destroy(pool->epochs);
    free(pool->emptying);
    free(pool);
}

struct fabric *pool_fabric(const struct pool *pool)
{
    return pool->fabric;
}

static void worker_join(struct pool_worker *worker)
{
    struct pool *pool = worker->pool;
    spinlock_lock(&pool->lock);
    worker->next = pool->workers;
    if (worker->next)
        worker->next->previous = worker;
    pool->workers = worker;
    atomic_store_relaxed(&pool->worker_count, pool->worker_count + 1); /* a share is worked out with it */
    spinlock_unlock(&pool->lock);
    worker->shorts_seen = atomic_load_relaxed(&pool->shorts); /* a hint, see lists.c */
}

static void worker_leave(struct pool_worker *worker)
{
    struct pool *pool = worker->pool;
    spinlock_lock(&pool->lock);
    if (worker->previous || pool->workers == worker) {
        *(worker->previous ? &worker->previous->next : &pool->workers) = worker->next;
        if (worker->next)
            worker->next->previous = worker->previous;
        atomic_store_relaxed(&pool->worker_count, pool->worker_count - 1); /* as above */
    }
    spinlock_unlock(&pool->lock);
}

int pool_worker_create(struct pool_worker **out, struct pool *pool, struct error *error)
{
    *out = NULL;
    struct pool_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return error_set(error, BANYAN_ENOMEM, "no memory for a worker");
    worker->pool = pool;
    worker->memory_nodes = fabric_memory_nodes(pool->fabric);
    worker->most = fabric_memory_nodes_most(pool->fabric);
    int status = 0;
    worker->epoch = epoch_slot_acquire(pool->epochs);
    if (!worker->epoch || pool_arenas_create(worker)) {
        status = error_set(error, BANYAN_ENOMEM, "no memory for a worker's free lists");
    } else {
        worker->endpoint = fabric_endpoint_open(pool->fabric, error);
        if (!worker->endpoint)
            status = error && error->code ? error->code : BANYAN_ENET;
    }
    if (status) {
        pool_worker_abandon(worker);
        return status;
    }
    worker_join(worker);
    *out = worker;
    return 0;
}

void pool_worker_abandon(struct pool_worker *worker)
{
    if (!worker)
        return;
    worker_leave(worker);
    if (worker->endpoint)
        fabric_endpoint_close(worker->endpoint);
    pool_arenas_destroy(worker);
    if (worker->epoch)
        epoch_slot_release(worker->epoch);
    free(worker);
}

void pool_worker_destroy(struct pool_worker *worker)
{
    if (!worker)
        return;
    pool_worker_return(worker);
    pool_worker_abandon(worker);
}
