/*
 * remote_join.c - opening a fabric, second part: a lease at every memory node, all with the same compute id.
 *
 * Called by remote.c. Waits for each memory node, at most the time-out; the heartbeat's thread keeps the
 * leases of those that have joined meanwhile.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "fabric/local_run.h"
#include "fabric/remote_nic.h"

#define ID_TRIES 64u
#define ID_PAUSE (20 * REMOTE_MS)
#define BEATS    8u  /* round trips measured when a connection opens */
#define NOTICES  64u /* that may come before an echo */

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

/* A mapping of an earlier try stays: that had another compute id, or could not map both regions. */
static int map_pool(struct remote_node *node, const struct remote_dialed *dialed, struct error *error)
{
    struct fabric_target *target = &node->target;
    int status = BANYAN_OK;
    if (target->pool == NULL)
        status = map_region(node, dialed->descriptors[0], node->pool_bytes, "pool", &target->pool, error);
    if (status)
        return status;
    target->pool_bytes = node->pool_bytes;
    if (target->locks == NULL)
        status =
            map_region(node, dialed->descriptors[1], node->lock_bytes, "lock region", &target->locks, error);
    if (status)
        return status;
    target->lock_bytes = node->lock_bytes;
    target->lock_width = node->lock_width;
    return BANYAN_OK;
}

/* One heartbeat and its echo, past the notices that come before it. */
static int beat_once(struct remote_node *node, struct net_stream *stream, uint64_t deadline,
                     struct error *error)
{
    struct wire_header beat = {.kind = WIRE_HEARTBEAT}, echo;
    int status = remote_send(stream, &beat, sizeof beat, deadline, error);
    for (unsigned i = 0; i < NOTICES && !status; i++) {
        status = remote_receive(stream, &echo, sizeof echo, deadline, error);
        if (status || echo.kind != WIRE_NOTICE || echo.length != 0 || node->number != REMOTE_HOME)
            break;
        remote_notices_take(&node->fabric->notices, echo.id);
    }
    if (!status && (echo.kind != WIRE_HEARTBEAT || echo.length != 0))
        status = error_set(error, BANYAN_EVERSION, "it answers a heartbeat with something else");
    return status;
}

/* Measures the round trip: the shortest of some heartbeats, before the heartbeat's thread has the connection.
 * *sent: when the last one was sent. */
static int measure(struct remote_node *node, struct net_stream *stream, uint64_t deadline, uint64_t *sent,
                   struct error *error)
{
    uint64_t shortest = UINT32_MAX;
    for (unsigned i = 0; i < (node->mapped ? 1 : BEATS); i++) {
        struct error inner = {0};
        uint64_t begin = task_now();
        *sent = clock_boot_ns();
        int status = beat_once(node, stream, deadline, &inner);
        if (status)
            return error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
        uint64_t took = task_now() - begin;
        shortest = took < shortest ? took : shortest;
    }
    node->round_trip_ns = node->mapped ? LOCAL_ROUND_TRIP_NS : (uint32_t)shortest;
    return BANYAN_OK;
}

int remote_lease_node(struct remote_node *node, uint16_t *id, bool later, struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    uint64_t timeout = remote->identity.timeout_ms * REMOTE_MS, sent = 0;
    const struct remote_wish wish = {.role = WIRE_CONTROL, .compute_id = *id};
    struct remote_dialed dialed;
    int status = remote_dial(&remote->identity, &node->address, &wish, timeout, &dialed, error);
    if (status)
        return status;
    const struct wire_welcome *welcome = &dialed.welcome;
    status = remote_node_same(node, welcome, error);
    if (!status && (welcome->compute_id == 0 || (*id != 0 && welcome->compute_id != *id)))
        status = error_set(error, BANYAN_EVERSION,
                           "memory node %.100s gives another compute id than it was asked for", node->text);
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
        status = measure(node, dialed.stream, task_now() + timeout, &sent, error);
    if (!status) {
        *id = welcome->compute_id;
        if (later) /* behind the lease: remote_cluster.h. Plain stores: the group's number publishes it */
            node->since = __atomic_add_fetch(&remote->incarnation, 1, __ATOMIC_ACQ_REL);
        remote_node_join(node, &dialed, sent);
        remote_event_set(
            remote->heartbeat_event); /* its lease is kept from now on, however long the others take */
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
        remote->nodes[i].group = 0; /* plain store: no thread of the fabric runs */
    }
}

/* Memory node 0 chooses the id. If it is in use at another (the memory node may still be fencing the last
 * owner), the next ids are tried. */
int remote_join_nodes(struct remote_fabric *remote, struct error *error)
{
    uint64_t deadline = task_now() + remote->identity.timeout_ms * REMOTE_MS;
    uint16_t wanted = 0;
    for (unsigned try = 0;; try++) {
        uint16_t id = wanted;
        int status = remote_heartbeat_start(remote, error);
        for (uint16_t i = 0; i < remote->count && !status; i++)
            if (remote->nodes[i].fabric != NULL)
                status = remote_lease_node(&remote->nodes[i], &id, false, error);
        remote->fabric.capabilities.compute_id = id;
        if (status != BANYAN_EBUSY || try == ID_TRIES || task_now() >= deadline)
            return status;
        remote_threads_stop(remote);
        leave_nodes(remote);
        error_clear(error);
        /* If node 0 itself was busy there is no id yet: it chooses again. */
        wanted = id == 0 ? 0 : (uint16_t)(id % UINT16_MAX + 1);
        task_sleep(ID_PAUSE);
    }
}
