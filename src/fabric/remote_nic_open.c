/*
 * remote_nic_open.c - the NIC that leads to a memory node, what that says of its own, the queue pair of a
 * data connection, and the first READs through it (remote_nic.h). Waits, at most as long as it is told.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/task.h"
#include "fabric/remote_nic.h"

#define PROBE_READS 8u
#define MTU_MIN     256u /* the specification's smallest */

/* ---- devices ---- */

static bool same_place(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    const struct sockaddr_in *four = (const void *)one, *other_four = (const void *)other;
    const struct sockaddr_in6 *six = (const void *)one, *other_six = (const void *)other;
    if (one->ss_family != other->ss_family)
        return false;
    if (one->ss_family == AF_INET)
        return four->sin_addr.s_addr == other_four->sin_addr.s_addr;
    return one->ss_family == AF_INET6 &&
           memcmp(&six->sin6_addr, &other_six->sin6_addr, sizeof six->sin6_addr) == 0;
}

int remote_nic_open(struct remote_node *node, const struct remote_dialed *dialed, struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    struct sockaddr_storage local = {0};
    socklen_t length = sizeof local;
    struct error inner = {0};
    if (node->device != NULL) /* opened in an earlier try, with another compute id */
        return BANYAN_OK;
    if (getsockname(net_stream_fd(dialed->stream), (struct sockaddr *)&local, &length) != 0)
        local.ss_family = AF_UNSPEC;
    struct remote_device *device = remote->devices;
    while (device != NULL && !same_place(&device->local, &local))
        device = device->next;
    if (device == NULL) {
        device = calloc(1, sizeof *device);
        if (device == NULL)
            return error_set(error, BANYAN_ENOMEM, "no memory for a NIC");
        device->local = local;
        int status =
            verbs_device_open(&device->device, &remote->nic,
                              local.ss_family != AF_UNSPEC ? (const struct sockaddr *)&local : NULL, &inner);
        if (status) {
            free(device);
            return error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
        }
        device->next = remote->devices;
        remote->devices = device;
    }
    node->device = device->device;
    return BANYAN_OK;
}

void remote_nics_close(struct remote_fabric *remote)
{
    while (remote->devices != NULL) {
        struct remote_device *device = remote->devices;
        remote->devices = device->next;
        verbs_device_close(device->device);
        free(device);
    }
}

int remote_nic_validate(const struct remote_node *node, const struct wire_welcome *welcome,
                        struct error *error)
{
    if (welcome->nic != 1)
        return error_set(error, BANYAN_EVERSION, "memory node %.100s does not say that it serves RDMA",
                         node->text);
    if (welcome->nic_mtu < MTU_MIN ||
        (welcome->lock_width == 2 && !(welcome->nic_promises & WIRE_NIC_MASKED_CAS)))
        return error_set(
            error, BANYAN_EVERSION,
            "memory node %.100s describes an impossible NIC: an MTU of %u bytes, lock words of %u, "
            "promises 0x%x",
            node->text, (unsigned)welcome->nic_mtu, (unsigned)welcome->lock_width,
            (unsigned)welcome->nic_promises);
    if (welcome->lock_width == 2 && !node->device->features.masked_cas)
        return error_set(error, BANYAN_ENOTSUP,
                         "memory node %.80s has lock words of 2 bytes, for which device %.40s lacks a masked "
                         "compare-and-swap; start the memory nodes with --lock-width 8",
                         node->text, node->device->name);
    return BANYAN_OK;
}

/* ---- queue pairs ---- */

static int exchange(struct net_stream *stream, const struct wire_nic *ours, struct wire_nic *theirs,
                    uint64_t deadline, struct error *error)
{
    struct {
        struct wire_header header;
        struct wire_nic nic;
    } message = {.header = {.length = sizeof message.nic, .kind = WIRE_ATTACH}, .nic = *ours};
    char sentence[sizeof error->text] = "";
    int status = remote_send(stream, &message, sizeof message, deadline, error);
    if (!status)
        status = remote_receive(stream, &message.header, sizeof message.header, deadline, error);
    if (status)
        return status;
    const struct wire_header *header = &message.header;
    bool refused = wire_header_valid(header) && header->kind == WIRE_ATTACHED && header->status &&
                   header->length < sizeof sentence;
    if (refused) {
        status = remote_receive(stream, sentence, header->length, deadline, error);
        for (char *at = sentence; *at != 0; at++)
            *at = (unsigned char)*at < ' ' || *at == 127 ? '?' : *at;
        return status ? status : error_set(error, header->status, "its NIC: %s", sentence);
    }
    if (!wire_header_valid(header) || header->kind != WIRE_ATTACHED || header->length != sizeof *theirs)
        return error_set(error, BANYAN_EVERSION, "it answers our end of a queue pair with something else");
    return remote_receive(stream, theirs, sizeof *theirs, deadline, error);
}

int remote_nic_attach(const struct remote_node *node, struct net_stream *stream, uint64_t deadline,
                      struct verbs_queue **queue, struct error *error)
{
    struct wire_nic theirs;
    int status = verbs_queue_create(queue, node->device, error);
    if (status)
        return status;
    status = exchange(stream, verbs_queue_end(*queue), &theirs, deadline, error);
    if (!status) {
        const struct verbs_memory memory = {.pool_address = theirs.pool_address,
                                            .pool_bytes = node->pool_bytes,
                                            .lock_address = theirs.lock_address,
                                            .lock_bytes = node->lock_bytes,
                                            .pool_key = theirs.pool_key,
                                            .lock_key = theirs.lock_key};
        status = verbs_queue_connect(*queue, &theirs, &memory, error);
    }
    if (!status)
        return BANYAN_OK;
    verbs_queue_destroy(*queue, NULL, NULL);
    *queue = NULL;
    return status;
}

/* ---- the first READs ---- */

static void probe_done(void *owner, struct fabric_list *list, int status)
{
    bool *done = owner;
    list->status = status;
    *done = true;
}

/* One READ. Nothing else uses the queue, which is destroyed if it fails. */
static int probe_once(struct verbs_queue *queue, uint16_t number, uint64_t deadline, struct error *error)
{
    uint64_t word;
    struct fabric_command read = {.operation = FABRIC_READ,
                                  .length = sizeof word,
                                  .address = gaddr_make(number, sizeof word),
                                  .read.buffer = &word};
    struct fabric_list list = {.node = number, .count = 1, .commands = &read};
    bool done = false;
    int status = verbs_queue_post(queue, &list);
    while (!status && !done && verbs_queue_broken(queue) == NULL && task_now() < deadline)
        verbs_queue_poll(queue, probe_done, &done);
    if (!status && done)
        return list.status;
    const char *broken = verbs_queue_broken(queue);
    status = error_set(error, status ? status : BANYAN_ENET, "%.200s",
                       broken != NULL ? broken
                       : !status      ? "its NIC does not answer in time"
                                      : "its pool is too short for a header");
    verbs_queue_destroy(queue, probe_done, &done); /* and so the NIC has done with `word` and `list` */
    return status;
}

int remote_nic_probe(struct remote_node *node, struct error *error)
{
    uint64_t timeout = node->fabric->identity.timeout_ms * REMOTE_MS, shortest = UINT32_MAX;
    uint64_t deadline = task_now() + timeout;
    struct remote_transport transport = {0};
    struct error inner = {0};
    int status = remote_transport_open(node, timeout, &transport, error);
    if (status)
        return status;
    for (unsigned i = 0; i < PROBE_READS && !status; i++) {
        uint64_t begin = task_now();
        status = probe_once(transport.queue, node->number, deadline, &inner);
        uint64_t took = task_now() - begin;
        shortest = took < shortest ? took : shortest;
    }
    if (status) {
        transport.queue = NULL; /* destroyed */
        error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
    }
    remote_transport_close(&transport, true);
    node->round_trip_ns = (uint32_t)shortest;
    return status;
}
