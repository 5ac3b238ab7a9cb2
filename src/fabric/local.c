/*
 * local.c - the backend for memory of this very process: a list is run by the calling thread, at once, with
 * the CPU's own loads, stores and atomics. Nothing waits, nothing is allocated per list.
 *
 * Cost: some nanoseconds a command, since this is the hot path of an index in one process. A READ costs a
 * bounds check: it returns the mapped bytes themselves. Any thread may use any endpoint.
 */
#include "fabric/local.h"

#include <stdlib.h>

#include "fabric/target.h"

struct local_fabric {
    struct fabric fabric;
    const struct fabric_target *targets[];
};

/* What a list of one or two commands costs here, beyond the bytes of its WRITEs: 11 to 19 ns were measured on
 * an x86-64 server CPU. An estimate for those who choose between a round trip and local work. */
#define LOCAL_ROUND_TRIP_NS 15u

#if defined(__x86_64__)
#define ATOMICS_ARE_FENCES true /* a locked instruction drains the store buffer */
#else
#define ATOMICS_ARE_FENCES false /* later loads may be satisfied before the atomic's own store is seen */
#endif

/* A list that begins with an atomic is about to read behind it: the reads' memory comes while the atomic
 * waits for its own. */
static inline void local_prefetch(const struct fabric_target *target, const struct fabric_list *list)
{
    for (uint16_t i = 1; i < list->count && i < 4; i++) {
        const struct fabric_command *command = &list->commands[i];
        uint64_t offset = gaddr_offset(command->address);
        if (command->operation != FABRIC_READ || offset >= target->pool_bytes)
            continue;
        for (uint32_t at = 0; at < command->length && at < 512; at += 64)
            __builtin_prefetch(target->pool + offset + at);
    }
}

static inline int local_run(const struct fabric_target *target, struct fabric_list *list)
{
    /* Whether a store of this list may not yet be seen by all. A READ or atomic that follows must not be
     * answered before it is (G1), nor may the list complete (G4). */
    bool pending = false;
    int status = BANYAN_OK;

    if (list->count > 1 && list->commands[0].operation == FABRIC_CAS)
        local_prefetch(target, list);
    for (uint32_t i = 0; i < list->count; i++) {
        struct fabric_command *command = &list->commands[i];
        uint8_t *where = fabric_target_locate(target, command);
        if (__builtin_expect(where == NULL || !fabric_command_of_node(command, list->node), 0)) {
            status = BANYAN_EADDRESS;
            break;
        }
        if (command->operation == FABRIC_WRITE) {
            fabric_target_write(where, command);
            pending = true;
            continue;
        }
        if (pending)
            fabric_target_fence();
        pending = false;
        if (command->operation == FABRIC_READ) {
            command->read.data = where;
            continue;
        }
        if (command->operation == FABRIC_CAS)
            fabric_target_cas(where, command);
        else
            fabric_target_faa(where, command);
        pending = !ATOMICS_ARE_FENCES;
    }
    if (pending)
        fabric_target_fence();
    list->status = status;
    return status;
}

static int local_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    const struct local_fabric *local = (const struct local_fabric *)endpoint->fabric;
    int status = local_run(local->targets[lists[0]->node], lists[0]);
    for (uint32_t i = 1; i < count; i++) {
        int one = local_run(local->targets[lists[i]->node], lists[i]);
        if (status == BANYAN_OK)
            status = one;
    }
    /* acquire: the caller's loads from what READs returned in place come after its loads for earlier lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return status;
}

static int local_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                      void *reply, size_t capacity, size_t *reply_length)
{
    const struct local_fabric *local = (const struct local_fabric *)endpoint->fabric;
    const struct fabric_target *target = local->targets[node];
    return target->call(target->owner, local->fabric.capabilities.compute_id, request, length, reply,
                        capacity, reply_length);
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
    if (check_targets(targets, count, error) != BANYAN_OK)
        return NULL;
    struct local_fabric *local = malloc(sizeof *local + count * sizeof local->targets[0]);
    if (local == NULL) {
        error_set(error, BANYAN_ENOMEM, "no memory for a local fabric of %u memory nodes", (unsigned)count);
        return NULL;
    }

    uint64_t lock_bytes = targets[0]->lock_bytes;
    for (uint16_t i = 0; i < count; i++) {
        local->targets[i] = targets[i];
        if (targets[i]->lock_bytes < lock_bytes)
            lock_bytes = targets[i]->lock_bytes;
    }
    local->fabric.ops = &local_ops;
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
