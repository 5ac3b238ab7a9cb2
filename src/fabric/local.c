/*
 * local.c - the backend for memory of this process: a list is run by the calling thread, at once, with the
 * CPU's own loads, stores and atomics. Nothing waits, and a list allocates nothing.
 *
 * Cost: some nanoseconds a command, since this is the hot path of an index in one process. A READ costs a
 * bounds check: it returns the mapped bytes themselves. Any thread may use any endpoint.
 */
#include "fabric/local.h"

#include <stdlib.h>

#include "fabric/local_peers.h"
#include "fabric/local_run.h"

/* The memory node has no thread of its own here: its background work is done by the threads that call it, so
 * much after each call. */
#define WORK_NS UINT64_C(20000)

struct local_fabric {
    struct fabric fabric;
    struct local_member member;
    const struct fabric_target *targets[]; /* and behind them the windows */
};

struct local_member *local_member_of(const struct fabric *fabric)
{
    struct local_fabric *local = (struct local_fabric *)(uintptr_t)fabric; /* none is made const */
    return &local->member;
}

static int local_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    const struct local_fabric *local = (const struct local_fabric *)endpoint->fabric;
    if (count > 1 || local_waits(lists[0]))
        for (uint32_t i = 0; i < count; i++) /* so that their cache misses overlap */
            local_prefetch(local->targets[lists[i]->node], lists[i]);
    int status = local_run(local->targets[lists[0]->node], lists[0], NULL);
    for (uint32_t i = 1; i < count; i++) {
        int one = local_run(local->targets[lists[i]->node], lists[i], NULL);
        if (!status)
            status = one;
    }
    /* acquire: loads from what these READs returned in place come after loads for earlier lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return status;
}

static int local_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                      void *reply, size_t capacity, size_t *reply_length)
{
    const struct local_fabric *local = (const struct local_fabric *)endpoint->fabric;
    const struct fabric_target *target = local->targets[node];
    int status = target->call(target->owner, local->fabric.capabilities.compute_id, request, length, reply,
                              capacity, reply_length);
    uint64_t budget_ns = WORK_NS;
    if (target->work != NULL)
        target->work(target->owner, &budget_ns);
    return status;
}

static struct fabric_endpoint *local_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct fabric_endpoint *endpoint = malloc(sizeof *endpoint);
    if (endpoint == NULL)
        error_set(error, BANYAN_ENOMEM, "no memory for an endpoint of the local fabric");
    else
        endpoint->fabric = fabric;
    return endpoint;
}

static void local_endpoint_close(struct fabric_endpoint *endpoint)
{
    free(endpoint);
}
static void local_close(struct fabric *fabric)
{
    free(fabric);
}

static const struct fabric_ops local_ops = {
    .execute = local_execute,
    .call = local_call,
    .endpoint_open = local_endpoint_open,
    .endpoint_close = local_endpoint_close,
    .close = local_close,
};

static void local_leave(struct fabric *fabric)
{
    local_member_leave(local_member_of(fabric));
    local_close(fabric);
}

static const struct fabric_ops local_ops_with_peers = {
    .execute = local_execute,
    .call = local_call,
    .endpoint_open = local_endpoint_open,
    .endpoint_close = local_endpoint_close,
    .close = local_leave,
    .peers = &local_peer_operations,
};

static int check_targets(const struct fabric_target *const *targets, uint16_t count, struct error *error)
{
    for (uint16_t i = 0; i < count; i++) {
        const struct fabric_target *target = targets[i];
        if (target->lock_width != targets[0]->lock_width)
            return error_set(error, BANYAN_EINVAL, "memory node %u has lock words of %u bytes, node 0 of %u",
                             (unsigned)i, target->lock_width, targets[0]->lock_width);
        if ((uintptr_t)target->pool % 8 != 0 || (uintptr_t)target->locks % 8 != 0 ||
            target->pool_bytes > GADDR_LOCK_REGION || target->lock_bytes > GADDR_LOCK_REGION)
            return error_set(error, BANYAN_EINVAL, "memory node %u: its memory is misaligned or too large",
                             (unsigned)i);
    }
    return BANYAN_OK;
}

struct fabric *fabric_local_create(const struct fabric_target *const *targets, uint16_t count,
                                   uint16_t compute_id, struct error *error)
{
    if (count == 0 || compute_id == 0) {
        error_set(error, BANYAN_EINVAL, "local fabric: %s", count == 0 ? "no memory nodes" : "compute id 0");
        return NULL;
    }
    if (check_targets(targets, count, error))
        return NULL;
    struct local_fabric *local =
        malloc(sizeof *local + count * (sizeof local->targets[0] + sizeof local->fabric.windows[0]));
    if (local == NULL) {
        error_set(error, BANYAN_ENOMEM, "no memory for a local fabric of %u memory nodes", (unsigned)count);
        return NULL;
    }

    uint64_t lock_bytes = targets[0]->lock_bytes;
    struct fabric_window *windows = (struct fabric_window *)(void *)&local->targets[count];
    for (uint16_t i = 0; i < count; i++) {
        local->targets[i] = targets[i];
        windows[i] = (struct fabric_window){targets[i]->pool, targets[i]->pool_bytes};
        if (targets[i]->lock_bytes < lock_bytes)
            lock_bytes = targets[i]->lock_bytes;
    }
    local->fabric.ops = &local_ops;
    local->fabric.windows = windows;
    local->member = (struct local_member){.peers = NULL};
    local->fabric.capabilities = (struct fabric_capabilities){
        .backend = "local",
        .memory_nodes = count,
        .compute_id = compute_id,
        .lock_width = targets[0]->lock_width,
        .lock_region_bytes = lock_bytes,
        .atomic_write = FABRIC_LENGTH_MAX, /* a thread of this process is never cut off within a copy (G5) */
        .release_by_write = true,          /* a store and a compare-exchange of one word have one order */
        .masked_cas = true,
        .direct = true,
        .round_trip_ns = LOCAL_ROUND_TRIP_NS,
    };
    return &local->fabric;
}

struct fabric *fabric_local_create_peer(struct fabric_local_peers *peers,
                                        const struct fabric_target *const *targets, uint16_t count,
                                        uint16_t compute_id, struct error *error)
{
    struct fabric *fabric = fabric_local_create(targets, count, compute_id, error);
    if (fabric == NULL)
        return NULL;
    if (local_member_join(local_member_of(fabric), peers, compute_id, error)) {
        fabric_close(fabric);
        return NULL;
    }
    fabric->ops = &local_ops_with_peers;
    return fabric;
}
