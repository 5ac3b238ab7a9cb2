/*
 * remote.c - opening a fabric of memory nodes in other processes, its endpoints, and the operations' entry;
 * see remote.h for what it promises and remote_private.h for how the files divide the work and why nothing of
 * an operation reaches a memory node after a loss.
 *
 * Called by programs (open, format, ask) and through fabric.h. Opening waits for every memory node, at most
 * the time-out for each. A list to a mapped pool costs some nanoseconds more than on the local backend: the
 * check of its group, and the staging of WRITEs.
 */
#include "fabric/remote.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/local_run.h"
#include "fabric/remote_private.h"

#define ID_TRIES 64u
#define ID_PAUSE (20 * REMOTE_MS)
#define BEATS    8u /* round trips measured when a connection opens */

/* ---- lists ---- */

/* A mapped pool needs a data connection only to stage what takes more than one store. An endpoint that the
 * memory node has no connection left for may still do a single atomic or word, such as a lock's release, on
 * the strength of the group: conditions (1) and (2) of remote_private.h with the node's own `since`. That may
 * be a later group's than `group`; but then an incarnation not older than it would not have seen `group`. */
static int admit_word(const struct remote_node *node, const struct fabric_list *list)
{
    const struct fabric_command *command = &list->commands[0];
    const uint8_t *where = (const uint8_t *)(uintptr_t)gaddr_offset(command->address);
    if (list->count != 1 || list->incarnation == 0 || command->operation == FABRIC_READ ||
        (command->operation == FABRIC_WRITE && !local_one_store(where, command->length)))
        return BANYAN_ENET;
    if (atomic_load_acquire(&node->group) % 2 == 0) /* acquire: condition (2); and the group's `since` */
        return BANYAN_ENET;
    /* relaxed: published by the group's number */
    return list->incarnation < atomic_load_relaxed(&node->since) ? BANYAN_EFENCED : BANYAN_OK;
}

static inline int run_mapped(struct remote_endpoint *endpoint, struct remote_link *link,
                             struct fabric_list *list)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)endpoint->endpoint.fabric;
    uint64_t runs = endpoint->runs;
    /* Says "running" before it looks at the group; the reconnect says "over" before it looks at who is
     * running, and its membarrier does for both sides what a fence here would do (remote_lease.c, quiesce).
     */
    atomic_store_relaxed(&endpoint->runs, runs + 1);
    if (__builtin_expect(remote->membarrier, 1))
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    else
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    int status = remote_link_admit(link, list->incarnation);
    if (__builtin_expect(status == BANYAN_ENET, 0))
        status = admit_word(link->node, list);
    if (__builtin_expect(!status, 1)) {
        if (local_waits(list))
            local_prefetch(&link->node->target, list);
        status = local_run(&link->node->target, list, link->ground.staging);
    } else {
        list->status = status;
    }
    atomic_store_release(&endpoint->runs, runs + 2); /* release: the list is done */
    return status;
}

/* Lists to several memory nodes, or to one over a stream: messages first, so that they travel while what is
 * mapped is run. */
static int execute_any(struct remote_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    remote_endpoint_bind(endpoint);
    struct remote_wait wait = {.task = endpoint->worker != NULL ? task_self() : NULL};
    for (uint32_t i = 0; i < count; i++) {
        struct remote_link *link = &endpoint->links[lists[i]->node];
        if (link->node->device != NULL)
            remote_nic_post(link, lists[i], &wait);
        else if (!link->node->mapped)
            remote_link_post(link, lists[i], &wait);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct remote_link *link = &endpoint->links[lists[i]->node];
        if (link->node->mapped)
            run_mapped(endpoint, link, lists[i]);
    }
    remote_endpoint_wait(endpoint, &wait);
    for (uint32_t i = 0; i < count; i++)
        if (lists[i]->status)
            return lists[i]->status;
    return BANYAN_OK;
}

static int remote_execute(struct fabric_endpoint *base, struct fabric_list *const *lists, uint32_t count)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    int status;
    if (count == 1 && endpoint->links[lists[0]->node].node->mapped)
        status = run_mapped(endpoint, &endpoint->links[lists[0]->node], lists[0]);
    else
        status = execute_any(endpoint, lists, count);
    /* acquire: the caller's loads from what READs returned in place come after its loads for earlier lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return status;
}

static int remote_call(struct fabric_endpoint *base, uint16_t node, const void *request, size_t length,
                       void *reply, size_t capacity, size_t *reply_length)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    return remote_link_call(&endpoint->links[node], request, length, reply, capacity, reply_length);
}

/* ---- endpoints ---- */

static void endpoint_free(struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < endpoint->count; i++)
        remote_link_close(&endpoint->links[i]);
    free(endpoint->input);
    free(endpoint->polls);
    free(endpoint);
}

static struct fabric_endpoint *remote_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    struct remote_endpoint *endpoint =
        calloc(1, sizeof *endpoint + remote->count * sizeof endpoint->links[0]);
    if (endpoint != NULL) {
        endpoint->input = malloc(REMOTE_INPUT_BYTES);
        endpoint->polls = calloc(2u * remote->count, sizeof *endpoint->polls);
    }
    if (endpoint == NULL || endpoint->input == NULL || endpoint->polls == NULL) {
        if (endpoint != NULL)
            endpoint_free(endpoint);
        error_set(error, BANYAN_ENOMEM, "no memory for an endpoint of %u memory nodes",
                  (unsigned)remote->count);
        return NULL;
    }
    endpoint->endpoint.fabric = fabric;
    endpoint->count = remote->count;
    for (uint16_t i = 0; i < remote->count; i++) {
        struct remote_link *link = &endpoint->links[i];
        link->endpoint = endpoint;
        link->node = &remote->nodes[i];
        link->seen_at = task_now();
        if (link->node->device != NULL)
            endpoint->spin_ns = link->node->device->options.spin_us * UINT64_C(1000);
        /* One that cannot be reached now is opened by the reconnect when it can. */
        remote_ground_open(link->node, remote->identity.timeout_ms * REMOTE_MS, &link->ground, NULL);
    }
    spinlock_lock(&remote->lock);
    endpoint->next = remote->endpoints;
    remote->endpoints = endpoint;
    spinlock_unlock(&remote->lock);
    remote_event_set(remote->reconnect_event);
    return &endpoint->endpoint;
}

/* Out of the fabric's list, where its threads find it. False: the reconnect is at one of its links. */
static bool endpoint_forget(struct remote_fabric *remote, struct remote_endpoint *endpoint)
{
    bool mending = false;
    spinlock_lock(&remote->lock);
    for (uint16_t i = 0; i < endpoint->count; i++)
        mending |= endpoint->links[i].mending;
    for (struct remote_endpoint **at = &remote->endpoints; !mending && *at != NULL; at = &(*at)->next)
        if (*at == endpoint) {
            *at = endpoint->next;
            break;
        }
    spinlock_unlock(&remote->lock);
    return !mending;
}

static void remote_endpoint_close(struct fabric_endpoint *base)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    struct remote_fabric *remote = (struct remote_fabric *)base->fabric;
    while (!endpoint_forget(remote, endpoint))
        task_sleep(REMOTE_MS);
    remote_endpoint_unbind(endpoint);
    endpoint_free(endpoint);
}

/* ---- the fabric ---- */

static uint64_t remote_incarnation(const struct fabric *fabric)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)fabric;
    return atomic_load_acquire(&remote->incarnation); /* acquire: see remote_private.h */
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

/* Over a stream only: on a mapped pool a lock is freed without a connection (admit_word), and the end of its
 * group would cost this process. */
static void remote_give_up(struct fabric_endpoint *base, uint16_t number)
{
    struct remote_link *link = &((struct remote_endpoint *)base)->links[number];
    uint64_t group = atomic_load_acquire(&link->node->group); /* acquire: as everywhere */
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
    .give_up = remote_give_up,
};

/* ---- opening: who is there ---- */

static int judge_place(const struct remote_fabric *remote, const struct net_address *address,
                       const struct wire_welcome *welcome, struct error *error)
{
    char text[NET_TEXT_MAX], other[NET_TEXT_MAX];
    net_address_format(address, text);
    if (welcome->node_count != 0 && welcome->node_count != remote->count)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %.100s is one of a cluster of %u, but %u were named: name all of them",
                         text, (unsigned)welcome->node_count, (unsigned)remote->count);
    if (welcome->node >= remote->count)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.100s is number %u of its cluster, but only %u were named: name all of "
            "them",
            text, (unsigned)welcome->node, (unsigned)remote->count);
    const struct remote_node *taken = &remote->nodes[welcome->node];
    if (taken->fabric != NULL)
        return error_set(error, BANYAN_EINVAL,
                         "memory nodes %.80s and %.80s are both number %u: one of them is named twice, or "
                         "belongs to another cluster",
                         net_address_format(&taken->address, other), text, (unsigned)welcome->node);
    for (uint16_t i = 0; i < remote->count; i++)
        if (remote->nodes[i].fabric != NULL && remote->nodes[i].cluster_id != welcome->cluster_id)
            return error_set(error, BANYAN_EINVAL,
                             "memory nodes %.80s and %.80s belong to different clusters",
                             net_address_format(&remote->nodes[i].address, other), text);
    return BANYAN_OK;
}

static int judge_memory(const struct remote_fabric *remote, const struct net_address *address,
                        const struct wire_welcome *welcome, struct error *error)
{
    char text[NET_TEXT_MAX];
    net_address_format(address, text);
    if (welcome->pool_bytes == 0 || welcome->lock_bytes == 0 || welcome->pool_bytes % 8 != 0 ||
        welcome->lock_bytes % 8 != 0 || welcome->pool_bytes > GADDR_LOCK_REGION ||
        welcome->lock_bytes > GADDR_LOCK_REGION || (welcome->lock_width != 2 && welcome->lock_width != 8))
        return error_set(error, BANYAN_EVERSION, "memory node %.100s describes an impossible memory", text);
    for (uint16_t i = 0; i < remote->count; i++)
        if (remote->nodes[i].fabric != NULL && remote->nodes[i].lock_width != welcome->lock_width)
            return error_set(
                error, BANYAN_EINVAL, "memory node %.80s has lock words of %u bytes, %.80s of %u", text,
                (unsigned)welcome->lock_width, remote->nodes[i].text, (unsigned)remote->nodes[i].lock_width);
    return BANYAN_OK;
}

/* Asks the memory node at `address` who it is; it must not be empty. */
static int ask_node(const struct remote_fabric *remote, const struct net_address *address,
                    struct wire_welcome *welcome, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    struct remote_dialed dialed;
    int status = remote_dial(&remote->identity, address, &wish, remote->identity.timeout_ms * REMOTE_MS,
                             &dialed, error);
    if (status)
        return status;
    *welcome = dialed.welcome;
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return welcome->cluster_id == 0 ? remote_empty_error(address, error) : BANYAN_OK;
}

/* Gives the memory node at `address` its place. */
static int place_node(struct remote_fabric *remote, const struct net_address *address,
                      const struct wire_welcome *welcome, struct error *error)
{
    int status = judge_place(remote, address, welcome, error);
    if (!status)
        status = judge_memory(remote, address, welcome, error);
    if (status)
        return status;
    struct remote_node *node = &remote->nodes[welcome->node];
    node->fabric = remote;
    node->address = *address;
    net_address_format(address, node->text);
    node->number = welcome->node;
    node->cluster_id = welcome->cluster_id;
    node->instance = welcome->instance;
    node->pool_bytes = welcome->pool_bytes;
    node->lock_bytes = welcome->lock_bytes;
    node->lock_width = welcome->lock_width;
    return BANYAN_OK;
}

/* First all of them are asked: that one is empty says more than that the others are too few. */
static int place_nodes(struct remote_fabric *remote, const struct net_address *addresses, struct error *error)
{
    struct wire_welcome *welcomes = calloc(remote->count, sizeof *welcomes);
    if (welcomes == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory to ask %u memory nodes", (unsigned)remote->count);
    int status = BANYAN_OK;
    for (uint16_t i = 0; i < remote->count && !status; i++)
        status = ask_node(remote, &addresses[i], &welcomes[i], error);
    for (uint16_t i = 0; i < remote->count && !status; i++)
        status = place_node(remote, &addresses[i], &welcomes[i], error);
    free(welcomes);
    return status;
}

/* ---- opening: the leases ---- */

static int map_region(const struct remote_node *node, int descriptor, uint64_t bytes, const char *what,
                      uint8_t **region, struct error *error)
{
    struct stat file;
    if (fstat(descriptor, &file) != 0 || (uint64_t)file.st_size < bytes)
        return error_set(error, BANYAN_ENET, "memory node %.100s: its %s is shorter than it says", node->text,
                         what);
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
        return error_set(error, BANYAN_ENOMEM,
                         "memory node %.100s: its %s of %llu bytes cannot be mapped: %s", node->text, what,
                         (unsigned long long)bytes, strerror(errno));
    madvise(mapped, bytes, MADV_HUGEPAGE); /* where the system allows it for shared memory */
    *region = mapped;
    return BANYAN_OK;
}

static int map_pool(struct remote_node *node, const struct remote_dialed *dialed, struct error *error)
{
    if (node->target.pool != NULL) /* mapped when an earlier compute id was tried */
        return BANYAN_OK;
    int status =
        map_region(node, dialed->descriptors[0], node->pool_bytes, "pool", &node->target.pool, error);
    if (status)
        return status;
    node->target.pool_bytes = node->pool_bytes;
    status =
        map_region(node, dialed->descriptors[1], node->lock_bytes, "lock region", &node->target.locks, error);
    if (status)
        return status;
    node->target.lock_bytes = node->lock_bytes;
    node->target.lock_width = node->lock_width;
    return BANYAN_OK;
}

/* The shortest of some round trips by heartbeats, before the heartbeat takes the connection over. */
static int measure(struct remote_node *node, struct net_stream *stream, uint64_t deadline,
                   struct error *error)
{
    uint64_t shortest = UINT32_MAX;
    if (node->mapped) {
        node->round_trip_ns = LOCAL_ROUND_TRIP_NS;
        return BANYAN_OK;
    }
    for (unsigned i = 0; i < BEATS; i++) {
        struct wire_header beat = {.kind = WIRE_HEARTBEAT}, echo;
        struct error inner = {0};
        uint64_t begin = task_now();
        int status = remote_send(stream, &beat, sizeof beat, deadline, &inner);
        if (!status)
            status = remote_receive(stream, &echo, sizeof echo, deadline, &inner);
        if (!status && (echo.kind != WIRE_HEARTBEAT || echo.length != 0))
            status = error_set(&inner, BANYAN_EVERSION, "it answers a heartbeat with something else");
        if (status)
            return error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
        uint64_t took = task_now() - begin;
        shortest = took < shortest ? took : shortest;
    }
    node->round_trip_ns = (uint32_t)shortest;
    return BANYAN_OK;
}

/* Opens the control connection with compute id `id` (0: the memory node chooses). */
static int lease_node(struct remote_node *node, uint16_t *id, struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    uint64_t timeout = remote->identity.timeout_ms * REMOTE_MS;
    const struct remote_wish wish = {.role = WIRE_CONTROL, .compute_id = *id};
    struct remote_dialed dialed;
    int status = remote_dial(&remote->identity, &node->address, &wish, timeout, &dialed, error);
    if (status)
        return status;
    const struct wire_welcome *welcome = &dialed.welcome;
    status = remote_node_same(node, welcome, error);
    if (!status && (welcome->compute_id == 0 || (*id != 0 && welcome->compute_id != *id)))
        status = error_set(error, BANYAN_EVERSION,
                           "memory node %.100s gives another compute id than asked for", node->text);
    node->mapped = welcome->mapped != 0;
    node->lease_ms = welcome->lease_ms != 0 ? welcome->lease_ms : remote->identity.lease_ms;
    if (!status && node->mapped)
        status = map_pool(node, &dialed, error);
    if (!status && node->address.rdma)
        status = remote_nic_open(node, &dialed, error);
    if (!status && node->address.rdma)
        status = remote_nic_validate(node, welcome, error);
    node->mtu = welcome->nic_mtu;
    node->promises = welcome->nic_promises;
    if (!status)
        status = measure(node, dialed.stream, task_now() + timeout, error);
    if (!status) {
        *id = welcome->compute_id;
        remote_node_join(node, &dialed);
        remote_event_set(remote->heartbeat_event); /* it beats from now on, whoever else lets us wait */
    } else {
        remote_hang_up(dialed.stream);
        dialed.stream = NULL;
    }
    remote_dialed_drop(&dialed);
    return status;
}

static void leave_nodes(struct remote_fabric *remote)
{
    for (uint16_t i = 0; i < remote->count; i++) {
        remote_node_leave(&remote->nodes[i]);
        remote->nodes[i].group = 0; /* the heartbeat was stopped: no thread sees it */
    }
}

/* The memory node 0 chooses the id; where another has that one in use (its last owner may still be on its way
 * out there), the next are tried. */
static int lease_nodes(struct remote_fabric *remote, struct error *error)
{
    uint64_t deadline = task_now() + remote->identity.timeout_ms * REMOTE_MS;
    uint16_t wanted = 0;
    for (unsigned try = 0;; try++) {
        uint16_t id = wanted;
        int status = remote_heartbeat_start(remote, error);
        for (uint16_t i = 0; i < remote->count && !status; i++)
            status = lease_node(&remote->nodes[i], &id, error);
        remote->fabric.capabilities.compute_id = id;
        if (status != BANYAN_EBUSY || try == ID_TRIES || task_now() >= deadline)
            return status;
        remote_threads_stop(remote);
        leave_nodes(remote);
        error_clear(error);
        /* Without an id, node 0 itself was busy: it chooses again. */
        wanted = id == 0 ? 0 : (uint16_t)(id % UINT16_MAX + 1);
        task_sleep(ID_PAUSE);
    }
}

/* ---- opening: all of it ---- */

/* What a memory node behind a NIC takes away from what CPUs promise. */
static void limit_to_nic(struct fabric_capabilities *capabilities, const struct remote_node *node)
{
    uint32_t mtu = verbs_mtu_bytes(node->device->mtu);
    mtu = node->mtu < mtu ? node->mtu : mtu;
    if (mtu < capabilities->atomic_write) /* G5: one packet is written wholly or not at all */
        capabilities->atomic_write = mtu;
    /* Smaller locks share their 8 bytes with others, whose CASes may write all of those back. */
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
    uint16_t mapped = 0, nics = 0, id = capabilities->compute_id;
    *capabilities = (struct fabric_capabilities){
        .memory_nodes = remote->count,
        .compute_id = id,
        .lock_width = remote->nodes[0].lock_width,
        .lock_region_bytes = UINT64_MAX,
        .release_by_write = true, /* both ends use the CPU's stores and compare-exchanges */
        .masked_cas = true,
        .atomic_write = FABRIC_LENGTH_MAX, /* G5: a message's command is run once it is wholly there */
    };
    for (uint16_t i = 0; i < remote->count; i++) {
        const struct remote_node *node = &remote->nodes[i];
        if (node->lock_bytes < capabilities->lock_region_bytes)
            capabilities->lock_region_bytes = node->lock_bytes;
        if (node->round_trip_ns > capabilities->round_trip_ns)
            capabilities->round_trip_ns = node->round_trip_ns;
        if (node->mapped && capabilities->atomic_write > WIRE_STAGING_DATA)
            capabilities->atomic_write = WIRE_STAGING_DATA; /* a mapped pool's WRITE once it is staged */
        if (node->device != NULL)
            limit_to_nic(capabilities, node);
        mapped = (uint16_t)(mapped + node->mapped);
        nics = (uint16_t)(nics + (node->device != NULL));
    }
    capabilities->backend = backend_name(remote->count, mapped, nics);
    capabilities->direct = mapped > 0;
}

/* The way through each NIC. */
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
        status = place_nodes(remote, options->nodes, error);
    for (uint16_t i = 0; i < options->count && !status; i++)
        remote->nodes[i].since = 1;
    if (!status)
        status = lease_nodes(remote, error);
    if (!status)
        status = probe_nics(remote, error);
    if (status)
        return status;
    set_capabilities(remote);
    return remote_reconnect_start(remote, error);
}

int fabric_remote_open(struct fabric **fabric, const struct fabric_remote_options *options,
                       struct error *error)
{
    *fabric = NULL;
    if (options->count == 0)
        return error_set(error, BANYAN_EINVAL, "no memory node was named");
    struct error ignored = {0};
    error = error != NULL ? error : &ignored;
    struct remote_fabric *remote = calloc(1, sizeof *remote + options->count * sizeof remote->nodes[0]);
    if (remote == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a fabric of %u memory nodes",
                         (unsigned)options->count);
    remote->fabric.ops = &remote_ops;
    remote->count = options->count;
    remote->incarnation = 1;
    remote->heartbeat_event = remote->reconnect_event = -1;
    remote->membarrier = remote_membarrier_register();
    remote_identity_set(&remote->identity, options);
    int status = open_nodes(remote, options, error);
    if (!status)
        *fabric = &remote->fabric;
    else
        remote_close(&remote->fabric);
    return status;
}

/* ---- without a lease ---- */

/* Sends a request and waits for its RESULT; up to capacity bytes of it. */
static int converse(struct net_stream *stream, enum wire_kind kind, const void *request, size_t length,
                    void *reply, size_t capacity, size_t *reply_length, uint64_t deadline,
                    struct error *error)
{
    struct wire_header head = {.length = (uint32_t)length, .kind = (uint8_t)kind, .id = 1};
    *reply_length = 0;
    int status = remote_send(stream, &head, sizeof head, deadline, error);
    if (!status)
        status = remote_send(stream, request, length, deadline, error);
    if (!status)
        status = remote_receive(stream, &head, sizeof head, deadline, error);
    if (status)
        return status;
    if (!wire_header_valid(&head) || head.kind != WIRE_RESULT)
        return error_set(error, BANYAN_EVERSION, "it answers with something else than a result");
    if (head.length > capacity)
        return error_set(error, BANYAN_EINVAL, "its answer of %u bytes is longer than expected", head.length);
    status = remote_receive(stream, reply, head.length, deadline, error);
    if (status)
        return status;
    *reply_length = head.length;
    return head.status;
}

static int format_one(const struct remote_identity *identity, const struct net_address *address,
                      struct net_stream *stream, const struct wire_format *format, struct error *error)
{
    char text[NET_TEXT_MAX], reply[WIRE_SMALL_MAX + 1];
    struct error inner = {0};
    size_t length = 0;
    int status = converse(stream, WIRE_FORMAT, format, sizeof *format, reply, sizeof reply - 1, &length,
                          task_now() + identity->timeout_ms * REMOTE_MS, &inner);
    if (!status)
        return BANYAN_OK;
    reply[length] = 0;
    return error_set(error, status, "memory node %.100s was not formatted: %.120s",
                     net_address_format(address, text),
                     inner.text[0] != 0 ? inner.text
                     : length > 0       ? reply
                                        : error_name(status));
}

int fabric_remote_format(const struct fabric_remote_options *options, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_FORMATTER};
    struct wire_format format = {.node_count = options->count};
    struct remote_identity identity;
    struct remote_dialed *dialed = calloc(options->count + 1u, sizeof *dialed);
    int status = options->count > 0 ? BANYAN_OK : error_set(error, BANYAN_EINVAL, "no memory node was named");
    if (dialed == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u connections", (unsigned)options->count);
    remote_identity_set(&identity, options);
    while (format.cluster_id == 0)
        net_random(&format.cluster_id, sizeof format.cluster_id);
    /* First all of them are there and nobody else is: then nobody can come before all are formatted. */
    uint16_t open = 0;
    for (; open < options->count && !status; open++)
        status = remote_dial(&identity, &options->nodes[open], &wish, identity.timeout_ms * REMOTE_MS,
                             &dialed[open], error);
    for (uint16_t i = 0; i < options->count && !status; i++) {
        format.number = i;
        status = format_one(&identity, &options->nodes[i], dialed[i].stream, &format, error);
    }
    for (uint16_t i = 0; i < open; i++)
        remote_hang_up(dialed[i].stream);
    free(dialed);
    return status;
}

/* A monitor's connection to the number-th memory node. One that is empty has no number but its place. */
static int dial_number(const struct fabric_remote_options *options, const struct remote_identity *identity,
                       uint16_t number, struct remote_dialed *dialed, const struct net_address **address,
                       struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    struct error first = {0};
    for (uint16_t i = 0; i < options->count; i++) {
        uint16_t place = (uint16_t)((number + i) % options->count); /* most likely its own place */
        struct error one = {0};
        *address = &options->nodes[place];
        if (!remote_dial(identity, *address, &wish, identity->timeout_ms * REMOTE_MS, dialed, &one)) {
            if (dialed->welcome.cluster_id == 0 ? place == number : dialed->welcome.node == number)
                return BANYAN_OK;
            remote_hang_up(dialed->stream);
            dialed->stream = NULL;
        } else if (!first.code) {
            first = one;
        }
    }
    if (first.code)
        return error_set(error, first.code, "%s", first.text);
    return error_set(error, BANYAN_ENOTFOUND, "no memory node of those named is number %u", (unsigned)number);
}

int fabric_remote_ask(const struct fabric_remote_options *options, uint16_t number, const void *request,
                      size_t length, void *reply, size_t capacity, size_t *reply_length, struct error *error)
{
    struct remote_identity identity;
    struct remote_dialed dialed = {0};
    const struct net_address *address = options->nodes;
    struct error inner = {0};
    char text[NET_TEXT_MAX];
    *reply_length = 0;
    if (length > WIRE_SMALL_MAX)
        return error_set(error, BANYAN_EINVAL, "a request of %zu bytes is too long", length);
    remote_identity_set(&identity, options);
    int status = dial_number(options, &identity, number, &dialed, &address, error);
    if (status)
        return status;
    status = converse(dialed.stream, WIRE_CALL, request, length, reply, capacity, reply_length,
                      task_now() + identity.timeout_ms * REMOTE_MS, &inner);
    remote_hang_up(dialed.stream);
    if (status)
        error_set(error, status, "memory node %.100s: %s", net_address_format(address, text),
                  inner.text[0] != 0 ? inner.text : error_name(status));
    return status;
}
