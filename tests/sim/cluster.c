/* cluster.c - see cluster.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"

static int echo(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length)
{
    struct cluster *cluster = owner;
    (void)compute_id;
    cluster->calls++;
    *reply_length = length < capacity ? length : capacity;
    memcpy(reply, request, *reply_length);
    return BANYAN_OK;
}

void cluster_plain_params(struct sim_params *params)
{
    sim_params_default(params);
    params->jitter_ns = 0;
    params->shared_nic = false;
}

void cluster_create(struct cluster *cluster, unsigned memories, unsigned computes,
                    const struct sim_params *params, const struct sim_faults *faults, uint64_t seed)
{
    struct error error;
    assert_true(memories <= CLUSTER_NODES_MAX && computes <= CLUSTER_NODES_MAX);
    *cluster = (struct cluster){.memories = memories, .computes = computes};
    cluster->sim = sim_create(params, faults, seed, &error);
    assert_non_null(cluster->sim);
    for (unsigned i = 0; i < memories; i++) {
        struct fabric_target *target = &cluster->targets[i];
        target->pool = aligned_alloc(4096, CLUSTER_POOL_BYTES);
        target->locks = aligned_alloc(4096, CLUSTER_LOCK_BYTES);
        assert_non_null(target->pool);
        assert_non_null(target->locks);
        memset(target->pool, 0, CLUSTER_POOL_BYTES);
        memset(target->locks, 0, CLUSTER_LOCK_BYTES);
        target->pool_bytes = CLUSTER_POOL_BYTES;
        target->lock_bytes = CLUSTER_LOCK_BYTES;
        target->lock_width = 2;
        target->call = echo;
        target->owner = cluster;
        assert_int_equal(sim_add_memory(cluster->sim, target, &error), i);
    }
    for (unsigned i = 0; i < computes; i++) {
        assert_int_equal(sim_add_compute(cluster->sim, &error), i);
        cluster->endpoints[i] = fabric_endpoint_open(sim_fabric(cluster->sim, (int)i), &error);
        assert_non_null(cluster->endpoints[i]);
    }
}

void cluster_destroy(struct cluster *cluster)
{
    for (unsigned i = 0; i < cluster->computes; i++)
        fabric_endpoint_close(cluster->endpoints[i]);
    sim_destroy(cluster->sim);
    for (unsigned i = 0; i < cluster->memories; i++) {
        free(cluster->targets[i].pool);
        free(cluster->targets[i].locks);
    }
}

uint64_t *cluster_word(struct cluster *cluster, unsigned node, uint64_t offset)
{
    return (uint64_t *)(void *)(cluster->targets[node].pool + offset);
}

static int run_one(struct fabric_endpoint *endpoint, struct fabric_command *command)
{
    struct fabric_list list = {.node = gaddr_node(command->address), .count = 1, .commands = command};
    struct fabric_list *lists[] = {&list};
    return fabric_execute(endpoint, lists, 1, NULL);
}

int cluster_read(struct fabric_endpoint *endpoint, gaddr address, void *buffer, uint32_t length)
{
    struct fabric_command command = {
        .operation = FABRIC_READ, .length = length, .address = address, .read.buffer = buffer};
    return run_one(endpoint, &command);
}

int cluster_write(struct fabric_endpoint *endpoint, gaddr address, const void *data, uint32_t length)
{
    struct fabric_command command = {
        .operation = FABRIC_WRITE, .length = length, .address = address, .write.data = data};
    return run_one(endpoint, &command);
}

int cluster_add(struct fabric_endpoint *endpoint, gaddr address, uint64_t add, uint64_t *old)
{
    struct fabric_command command = {.operation = FABRIC_FAA, .address = address, .faa.add = add};
    int status = run_one(endpoint, &command);
    *old = command.faa.old;
    return status;
}
