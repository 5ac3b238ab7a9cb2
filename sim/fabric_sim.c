/*
 * fabric_sim.c - the fabric's backend in virtual time: its operations, endpoints and capabilities. Lists and
 * calls on their way are list.c's and call.c's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fabric/target.h"
#include "sim/call.h"
#include "sim/endpoint.h"
#include "sim/link.h"
#include "sim/list.h"
#include "sim/members.h"
#include "sim/node.h"
#include "sim/pair.h"
#include "sim/state.h"

static struct fabric_endpoint *backend_open(struct fabric *fabric, struct error *error)
{
    struct sim_compute *compute = (struct sim_compute *)fabric;
    struct sim_endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint) {
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for an endpoint of compute node %u",
                  compute->index);
        return NULL;
    }
    endpoint->endpoint.fabric = fabric;
    endpoint->compute = compute;
    endpoint->next = compute->endpoints;
    if (compute->endpoints)
        compute->endpoints->previous = endpoint;
    compute->endpoints = endpoint;
    return &endpoint->endpoint;
}

static void endpoint_free(struct sim_endpoint *endpoint)
{
    for (uint32_t i = 0; i < endpoint->connection_count; i++)
        free(endpoint->connections[i]);
    free(endpoint->connections);
    free(endpoint);
}

static void backend_close_endpoint(struct fabric_endpoint *base)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
    if (endpoint->compute->dead)
        return; /* lists of it may still be under way; freed with the world */
    for (uint32_t node = 0; node < endpoint->connection_count; node++)
        if (endpoint->connections[node])
            sim_pair_drop(endpoint->compute, endpoint->connections[node]->pair, (uint16_t)node);
    if (endpoint->previous)
        endpoint->previous->next = endpoint->next;
    else
        endpoint->compute->endpoints = endpoint->next;
    if (endpoint->next)
        endpoint->next->previous = endpoint->previous;
    endpoint_free(endpoint);
}

/* The fabric is the world's: sim_destroy frees it. */
static void backend_close(struct fabric *fabric)
{
    (void)fabric;
}

static uint64_t backend_incarnation(const struct fabric *fabric)
{
    return ((const struct sim_compute *)fabric)->incarnation;
}

static void backend_trouble(const struct fabric *fabric, uint16_t node, char *text, size_t size)
{
    const struct sim_compute *compute = (const struct sim_compute *)fabric;
    const struct sim_link *link = node < compute->link_count ? compute->links[node] : NULL;
    if (link && link->up > sim_effective(compute->sim))
        snprintf(text, size, "memory node %u has cut the connection", node);
}

static enum fabric_durability backend_durability(const struct fabric *fabric, uint16_t node)
{
    const struct sim_compute *compute = (const struct sim_compute *)fabric;
    return compute->sim->memories[node].later.durability;
}

static const struct fabric_ops backend_operations = {
    .execute = sim_backend_execute,
    .call = sim_backend_call,
    .calls = sim_backend_calls,
    .endpoint_open = backend_open,
    .endpoint_close = backend_close_endpoint,
    .close = backend_close,
    .incarnation = backend_incarnation,
    .trouble = backend_trouble,
    .durability = backend_durability,
    .cluster = &sim_cluster_operations,
    .peers = &sim_peer_operations,
};

void sim_fabric_init(struct sim_compute *compute)
{
    const struct sim_params *params = &compute->sim->params;
    compute->fabric.ops = &backend_operations;
    compute->incarnation = 1;
    compute->fabric.capabilities = (struct fabric_capabilities){
        .backend = "sim",
        .compute_id = (uint16_t)(compute->machine + 1),
        .lock_width = params->lock_width,
        .atomic_write = params->atomic_write,
        .release_by_write = params->release_by_write,
        .masked_cas = params->masked_cas,
        .direct = false,
        .round_trip_ns = params->post_ns + params->command_ns + params->doorbell_ns + 4 * params->nic_ns +
                         2 * params->wire_ns + params->pcie_read_ns + params->pcie_write_ns +
                         params->poll_ns + 2 * params->jitter_ns,
    };
}

void sim_fabric_refresh(struct sim *sim)
{
    uint64_t lock_bytes = sim->memory_count ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < sim->memory_count; i++)
        if (sim->memories[i].target->lock_bytes < lock_bytes)
            lock_bytes = sim->memories[i].target->lock_bytes;
    for (uint32_t i = 0; i < sim->compute_count; i++) {
        struct fabric_capabilities *capabilities = &sim->computes[i]->fabric.capabilities;
        capabilities->memory_nodes = sim_members_bound(sim->computes[i]);
        capabilities->memory_nodes_most = (uint16_t)sim->memory_count;
        capabilities->lock_region_bytes = lock_bytes;
        if (sim->memory_count)
            capabilities->lock_width = sim->memories[0].target->lock_width;
    }
}

void sim_fabric_free(struct sim_compute *compute)
{
    sim_link_free(compute);
    for (struct sim_endpoint *endpoint = compute->endpoints, *next; endpoint; endpoint = next) {
        next = endpoint->next;
        endpoint_free(endpoint);
    }
}
