/*
 * remote.c - the remote backend's fabric: opening and closing it, what it can do, and what it tells of its
 * memory nodes. remote.h says what it promises, remote_fabric.h which file does what.
 *
 * Opening waits for every memory node in turn, at most the time-out for each.
 */
#include "fabric/remote.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/membarrier.h"
#include "fabric/remote_nic.h"

/* Memory nodes that a cluster which grows has in its life. */
#define NODES_MOST (WIRE_CLUSTER_NODES_MAX + 1)

static uint64_t remote_incarnation(const struct fabric *fabric)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)fabric;
    return atomic_load_acquire(&remote->incarnation); /* acquire: see remote_node.h */
}

static void remote_trouble(const struct fabric *fabric, uint16_t number, char *text, size_t size)
{
    struct remote_node *node = (struct remote_node *)&((const struct remote_fabric *)fabric)->nodes[number];
    char copy[sizeof node->trouble];
    spinlock_lock(&node->lock);
    memcpy(copy, node->trouble, sizeof copy);
    spinlock_unlock(&node->lock);
    snprintf(text, size, "%s", copy);
}

/* Over a stream only: on a mapped pool a lock is freed without a connection (remote_execute.c, admit_word),
 * and the memory node would kill this process when the group ends. */
static void remote_give_up(struct fabric_endpoint *base, uint16_t number)
{
    struct remote_link *link = &((struct remote_endpoint *)base)->links[number];
    uint64_t group = atomic_load_acquire(&link->node->group); /* acquire: condition (2) of remote_node.h */
    if (!link->node->mapped && group % 2 == 1 && remote_link_admit(link, 0) == BANYAN_ENET)
        remote_node_lose(link->node, group, "it holds a lock of ours, but lets no connection in to free it");
}

void fabric_remote_node_state(const struct fabric *fabric, uint16_t number,
                              struct fabric_remote_node_state *state)
{
    struct remote_node *node = (struct remote_node *)&((const struct remote_fabric *)fabric)->nodes[number];
    *state = (struct fabric_remote_node_state){.address = node->address, .mapped = node->mapped};
    spinlock_lock(&node->lock);
    state->connected = node->group % 2 == 1;
    state->losses = node->losses;
    memcpy(state->trouble, node->trouble, sizeof state->trouble);
    spinlock_unlock(&node->lock);
}

static void remote_close(struct fabric *fabric)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    assert(remote->endpoints == NULL);
    remote_peers_close(remote);
    remote_threads_stop(remote);
    for (uint16_t i = 0; i < remote->count; i++) {
        struct remote_node *node = &remote->nodes[i];
        remote_node_leave(node);
        if (node->target.pool != NULL)
            munmap(node->target.pool, node->target.pool_bytes);
        if (node->target.locks != NULL)
            munmap(node->target.locks, node->target.lock_bytes);
    }
    remote_nics_close(remote);
    free(remote->nic_name);
    if (remote->secret != NULL)
        explicit_bzero(remote->secret, remote->identity.secret_length);
    free(remote->secret);
    free(remote);
}

static const struct fabric_ops remote_ops = {
    .execute = remote_execute,
    .call = remote_call,
    .endpoint_open = remote_endpoint_open,
    .endpoint_close = remote_endpoint_close,
    .close = remote_close,
    .incarnation = remote_incarnation,
    .trouble = remote_trouble,
    .durability = remote_durability,
    .persist = remote_persist,
    .calls = remote_calls,
    .cluster = &remote_cluster_ops,
    .give_up = remote_give_up,
    .peers = &remote_peer_ops,
};

/* ---- what it can do ---- */

/* Through a NIC some promises of the CPU do not hold. */
static void limit_to_nic(struct fabric_capabilities *capabilities, const struct remote_node *node)
{
    uint32_t mtu = verbs_mtu_bytes(node->device->mtu);
    mtu = node->mtu < mtu ? node->mtu : mtu;
    if (mtu < capabilities->atomic_write) /* G5: one packet is written wholly or not at all */
        capabilities->atomic_write = mtu;
    /* Smaller locks share their 8 bytes with others, and a CAS on one of those may write all 8 back. */
    if (!(node->promises & WIRE_NIC_RELEASE_BY_WRITE) || node->lock_width < 8)
        capabilities->release_by_write = false;
    if (!(node->promises & WIRE_NIC_MASKED_CAS) || !node->device->features.masked_cas)
        capabilities->masked_cas = false;
}

static const char *backend_name(uint16_t count, uint16_t mapped, uint16_t nics)
{
    return mapped == count ? "local" : nics == count ? "rdma" : mapped + nics == 0 ? "tcp" : "mixed";
}

static void set_capabilities(struct remote_fabric *remote)
{
    struct fabric_capabilities *capabilities = &remote->fabric.capabilities;
    uint16_t mapped = 0, nics = 0, members = 0, id = capabilities->compute_id;
    *capabilities = (struct fabric_capabilities){
        .memory_nodes = remote->count,
        .memory_nodes_most = remote->most,
        .compute_id = id,
        .lock_width = remote->nodes[0].lock_width,
        .lock_region_bytes = UINT64_MAX,
        .release_by_write = true, /* both ends use the CPU's stores and compare-exchanges */
        .masked_cas = true,
        .atomic_write =
            FABRIC_LENGTH_MAX, /* G5: the memory node runs a command when all of its message has arrived */
    };
    for (uint16_t i = 0; i < remote->count; i++) {
        const struct remote_node *node = &remote->nodes[i];
        if (node->fabric == NULL)
            continue;
        members++;
        if (node->lock_bytes < capabilities->lock_region_bytes)
            capabilities->lock_region_bytes = node->lock_bytes;
        if (node->round_trip_ns > capabilities->round_trip_ns)
            capabilities->round_trip_ns = node->round_trip_ns;
        if (node->mapped && capabilities->atomic_write > WIRE_STAGING_DATA)
            capabilities->atomic_write = WIRE_STAGING_DATA; /* G5: what fits the staging area */
        if (node->atomic_write != 0 && capabilities->atomic_write > node->atomic_write)
            capabilities->atomic_write = node->atomic_write; /* G5: what fits that of the memory node */
        if (node->device != NULL)
            limit_to_nic(capabilities, node);
        mapped = (uint16_t)(mapped + node->mapped);
        nics = (uint16_t)(nics + (node->device != NULL));
    }
    capabilities->backend = backend_name(members, mapped, nics);
    capabilities->direct = mapped > 0;
    if (!capabilities->direct) /* none of those that join later is mapped either */
        remote->identity.map = false;
}

/* ---- opening ---- */

/* Tries the way through each NIC. */
static int probe_nics(struct remote_fabric *remote, struct error *error)
{
    int status = BANYAN_OK;
    for (uint16_t i = 0; i < remote->count && !status; i++)
        if (remote->nodes[i].device != NULL)
            status = remote_nic_probe(&remote->nodes[i], error);
    return status;
}

static int copy_nic(struct remote_fabric *remote, const struct verbs_options *nic, struct error *error)
{
    remote->nic = *nic;
    remote->nic.device = NULL;
    if (nic->device == NULL)
        return BANYAN_OK;
    remote->nic_name = strdup(nic->device);
    if (remote->nic_name == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a device's name");
    remote->nic.device = remote->nic_name;
    return BANYAN_OK;
}

static int open_nodes(struct remote_fabric *remote, const struct fabric_remote_options *options,
                      struct error *error)
{
    if (options->secret != NULL) {
        remote->secret = malloc(options->secret_length + 1);
        if (remote->secret == NULL)
            return error_set(error, BANYAN_ENOMEM, "no memory for the secret");
        memcpy(remote->secret, options->secret, options->secret_length);
        remote->identity.secret = remote->secret;
    }
    int status = copy_nic(remote, &options->nic, error);
    if (!status)
        status = remote_place_nodes(remote, options->nodes, options->count, error);
    for (uint16_t i = 0; i < remote->count && !status; i++)
        remote->nodes[i].since = 1;
    if (!status)
        status = remote_peers_listen(remote, options, remote->local_host, error);
    if (!status)
        status = remote_join_nodes(remote, error);
    if (!status)
        status = probe_nics(remote, error);
    if (status)
        return status;
    set_capabilities(remote);
    status = remote_peers_start(remote, error);
    if (!status)
        status = remote_reconnect_start(remote, error);
    return status ? status : remote_cluster_start(remote, error);
}

int fabric_remote_open(struct fabric **fabric, const struct fabric_remote_options *options,
                       struct error *error)
{
    *fabric = NULL;
    if (options->count == 0)
        return error_set(error, BANYAN_EINVAL, "no memory node was named");
    struct error ignored = {0};
    error = error != NULL ? error : &ignored;
    const uint16_t most = options->count > NODES_MOST ? options->count : NODES_MOST;
    struct remote_fabric *remote = calloc(1, sizeof *remote + most * sizeof remote->nodes[0]);
    if (remote == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a fabric of %u memory nodes",
                         (unsigned)options->count);
    remote->fabric.ops = &remote_ops;
    remote->most = most;
    remote->incarnation = 1;
    remote->heartbeat_event = remote->cluster.event = -1;
    for (uint16_t i = 0; i < most; i++)
        remote->nodes[i].reconnect_event = -1;
    remote_peers_prepare(&remote->peers);
    remote->membarrier = membarrier_register();
    remote_identity_set(&remote->identity, options);
    int status = open_nodes(remote, options, error);
    if (!status)
        *fabric = &remote->fabric;
    else
        remote_close(&remote->fabric);
    return status;
}
