/*
 * local.c - the backend for memory of this process: a list is run by the calling thread, at once, with the
 * CPU's own loads, stores and atomics. Nothing waits, and a list allocates nothing.
 *
 * Cost: some nanoseconds a command, since this is the hot path of an index in one process. A READ costs a
 * bounds check: it returns the mapped bytes themselves.
 *
 * POOLS IN FILES (docs/internals/durability.md). Where the memory outlives the process, each endpoint has a
 * staging area in every memory node's file, the same number in all, and its WRITEs go through it
 * (local_run.h). They have functions of their own, so that memory that ends with the process pays nothing.
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
    struct spinlock areas_lock;
    uint32_t area_count;                   /* of each memory node; 0: nothing is staged */
    uint64_t areas;                        /* bits of those that endpoints have; under the lock */
    const struct fabric_target *targets[]; /* and behind them the windows */
};

struct local_endpoint {
    struct fabric_endpoint endpoint;
    uint32_t area; /* where WRITEs are staged at each memory node */
};
#define AREAS_MAX 64u /* bits of a word */

struct local_member *local_member_of(const struct fabric *fabric)
{
    struct local_fabric *local = (struct local_fabric *)(uintptr_t)fabric; /* none is made const */
    return &local->member;
}

/* `staged` is known to the compiler: what is not staged costs nothing. */
static inline __attribute__((always_inline)) int run_lists(struct fabric_endpoint *endpoint,
                                                           struct fabric_list *const *lists, uint32_t count,
                                                           bool staged)
{
    const struct local_fabric *local = (const struct local_fabric *)endpoint->fabric;
    const uint32_t area = staged ? ((const struct local_endpoint *)endpoint)->area : 0;
    int status = BANYAN_OK;
    if (count > 1 || local_waits(lists[0]))
        for (uint32_t i = 0; i < count; i++) /* so that their cache misses overlap */
            local_prefetch(local->targets[lists[i]->node], lists[i]);
    for (uint32_t i = 0; i < count; i++) {
        const struct fabric_target *target = local->targets[lists[i]->node];
        int one = local_run(target, lists[i], staged ? &target->stagings[area] : NULL);
        if (!status)
            status = one;
    }
    /* acquire: loads from what these READs returned in place come after loads for earlier lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return status;
}

static int local_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    return run_lists(endpoint, lists, count, false);
}

static int local_execute_staged(struct fabric_endpoint *endpoint, struct fabric_list *const *lists,
                                uint32_t count)
{
    return run_lists(endpoint, lists, count, true);
}

static void local_store(struct fabric_endpoint *endpoint, gaddr address, uint8_t *where, const void *data,
                        uint32_t length)
{
    const struct local_fabric *local = (const struct local_fabric *)endpoint->fabric;
    const struct fabric_target *target = local->targets[gaddr_node(address)];
    const struct fabric_command command = {
        .operation = FABRIC_WRITE, .length = length, .address = address, .write = {.data = data}};
    local_write(where, &command, &target->stagings[((const struct local_endpoint *)endpoint)->area]);
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

/* ---- endpoints ---- */

static bool area_take(struct local_fabric *local, uint32_t *area)
{
    spinlock_lock(&local->areas_lock);
    uint64_t free = ~local->areas;
    bool found = free != 0 && (uint32_t)__builtin_ctzll(free) < local->area_count;
    if (found) {
        *area = (uint32_t)__builtin_ctzll(free);
        local->areas |= UINT64_C(1) << *area;
    }
    spinlock_unlock(&local->areas_lock);
    return found;
}

static void area_give(struct local_fabric *local, uint32_t area)
{
    spinlock_lock(&local->areas_lock);
    local->areas &= ~(UINT64_C(1) << area);
    spinlock_unlock(&local->areas_lock);
}

static struct fabric_endpoint *local_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct local_fabric *local = (struct local_fabric *)fabric;
    struct local_endpoint *opened = malloc(sizeof *opened);
    if (opened == NULL) {
        error_set(error, BANYAN_ENOMEM, "no memory for an endpoint of the local fabric");
        return NULL;
    }
    *opened = (struct local_endpoint){.endpoint = {.fabric = fabric}};
    if (local->area_count > 0 && !area_take(local, &opened->area)) {
        error_set(error, BANYAN_EINVAL,
                  "pools in files have staging areas for %u threads at once: start fewer", local->area_count);
        free(opened);
        return NULL;
    }
    return &opened->endpoint;
}

static void local_endpoint_close(struct fabric_endpoint *endpoint)
{
    struct local_fabric *local = (struct local_fabric *)endpoint->fabric;
    if (local->area_count > 0)
        area_give(local, ((struct local_endpoint *)endpoint)->area);
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

static const struct fabric_ops local_ops_staged = {
    .execute = local_execute_staged,
    .call = local_call,
    .endpoint_open = local_endpoint_open,
    .endpoint_close = local_endpoint_close,
    .close = local_close,
    .store = local_store,
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
        if ((target->stagings == NULL) != (targets[0]->stagings == NULL))
            return error_set(error, BANYAN_EINVAL, "memory nodes 0 and %u: the pool of one is in a file",
                             (unsigned)i);
    }
    return BANYAN_OK;
}

/* How many endpoints can stage their WRITEs at all memory nodes; 0: nothing needs to be. */
static uint32_t count_areas(const struct fabric_target *const *targets, uint16_t count)
{
    uint32_t least = AREAS_MAX;
    if (targets[0]->stagings == NULL)
        return 0;
    for (uint16_t i = 0; i < count; i++)
        least = targets[i]->staging_count < least ? targets[i]->staging_count : least;
    return least;
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
    local->area_count = count_areas(targets, count);
    local->areas = 0;
    local->areas_lock = (struct spinlock){0};
    local->fabric.ops = local->area_count > 0 ? &local_ops_staged : &local_ops;
    local->fabric.windows = windows;
    local->member = (struct local_member){.peers = NULL};
    local->fabric.capabilities = (struct fabric_capabilities){
        .backend = "local",
        .memory_nodes = count,
        .memory_nodes_most = count,
        .compute_id = compute_id,
        .lock_width = targets[0]->lock_width,
        .lock_region_bytes = lock_bytes,
        /* G5: a thread of this process is never cut off within a copy; what outlives the process is staged */
        .atomic_write = local->area_count > 0 ? WIRE_STAGING_DATA : FABRIC_LENGTH_MAX,
        .release_by_write = true, /* a store and a compare-exchange of one word have one order */
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
    if (fabric_stages(fabric)) { /* each fabric hands out the same areas */
        error_set(error, BANYAN_ENOTSUP, "compute nodes of one process have no pools in files");
        fabric_close(fabric);
        return NULL;
    }
    if (local_member_join(local_member_of(fabric), peers, compute_id, error)) {
        fabric_close(fabric);
        return NULL;
    }
    fabric->ops = &local_ops_with_peers;
    return fabric;
}
