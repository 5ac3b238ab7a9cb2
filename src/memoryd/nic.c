/*
 * nic.c - see nic.h: brings the device up with the best that it can be shown to do, and takes its events.
 * Registered memory is in nic_region.c, queue pairs in nic_queue.c, the node's own one in nic_locks.c.
 */
#include "memoryd/nic_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"

/* ---- bringing up ---- */

static int bring_up(struct memoryd_nic *nic, bool chip, bool windows, struct error *error)
{
    int status = nic_regions_register(nic, chip, windows, error);
    if (!status)
        status = nic_own_open(nic, error);
    return !status ? nic_own_prove(nic, error) : status;
}

static void bring_down(struct memoryd_nic *nic)
{
    nic_own_close(nic);
    nic_regions_release(nic);
}

/* The word of a part on which the NIC is tried out. */
static uint64_t *proof_word(const struct memoryd_nic *nic, enum nic_part part)
{
    uint8_t *word = part == NIC_POOL ? nic->target->pool + MEMORY_LOCK_TABLE_OFFSET : nic->target->locks;
    return (uint64_t *)(void *)word;
}

/* With memory windows and device memory, then without the one, then without both: the first that works when
 * it is tried out. */
static int bring_up_best(struct memoryd_nic *nic, struct error *error)
{
    bool windows = nic->device->features.windows;
    uint64_t chip_bytes = nic->device->features.device_memory, lock_bytes = nic->target->lock_bytes;
    bool chip = chip_bytes >= lock_bytes;
    const uint64_t pool_word = *proof_word(nic, NIC_POOL), lock_word = *proof_word(nic, NIC_LOCKS);
    if (!chip && chip_bytes > 0)
        log_info("memory node: %s has %llu bytes of device memory, too few for the lock region of %llu: "
                 "locks are in host memory (--lock-bytes)",
                 nic->device->name, (unsigned long long)chip_bytes, (unsigned long long)lock_bytes);
    for (;;) {
        struct error detail = {0};
        int status = bring_up(nic, chip, windows, &detail);
        if (!status)
            return status;
        /* If not even the pool can be registered, leaving out windows or device memory does not help. */
        bool hopeless = status == BANYAN_ENOMEM && nic->regions[NIC_POOL].registration == NULL;
        bring_down(nic);
        /* A trial that failed halfway may have left the words changed, which would be locks that nothing ever
         * frees. No queue pair is left, so this once the CPU may write them. */
        *proof_word(nic, NIC_POOL) = pool_word;
        *proof_word(nic, NIC_LOCKS) = lock_word;
        if (hopeless || (!windows && !chip))
            return error_set(error, status, "%s", detail.text);
        log_info("memory node: %s without %s: %s", nic->device->name,
                 windows ? "memory windows" : "device memory", detail.text);
        if (windows)
            windows = false;
        else
            chip = false;
    }
}

/* ---- life ---- */

static const char *network(const struct verbs_device *device)
{
    struct ibv_gid_entry entry;
    if (!device->ethernet)
        return "InfiniBand";
    if (ibv_query_gid_ex(device->context, device->port, (uint32_t)device->gid_index, &entry, 0) != 0)
        return "RoCE";
    return entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "RoCE v1";
}

static void describe(struct memoryd_nic *nic)
{
    const struct verbs_device *device = nic->device;
    snprintf(nic->text, sizeof nic->text, "%s port %u, %s, MTU %u bytes, locks in %s memory%s", device->name,
             (unsigned)device->port, network(device), verbs_mtu_bytes(device->mtu),
             nic->chip != NULL ? "device" : "host",
             nic->regions[NIC_POOL].windowed ? ", keys bound to queue pairs" : "");
}

static int check_width(const struct verbs_device *device, uint32_t width, struct error *error)
{
    if (width == 8 || device->features.masked_cas)
        return BANYAN_OK;
    return error_set(error, BANYAN_EINVAL,
                     "%s has no masked compare-and-swap, so that locks of %u bytes, several of which share a "
                     "word, cannot be taken; start the memory node with --lock-width 8",
                     device->name, width);
}

/* So that events can be read until there are none. */
static int unblock_events(const struct verbs_device *device, struct error *error)
{
    int flags = fcntl(device->context->async_fd, F_GETFL);
    if (flags >= 0 && fcntl(device->context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0)
        return BANYAN_OK;
    return error_set(error, BANYAN_ENET, "%s: its events cannot be read: %s", device->name, strerror(errno));
}

int memoryd_nic_create(struct memoryd_nic **made, struct memory_node *node,
                       const struct verbs_options *options, const struct sockaddr *local, struct error *error)
{
    *made = NULL;
    struct memoryd_nic *nic = calloc(1, sizeof *nic);
    if (nic == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a NIC");
    nic->target = memory_node_target(node);
    int status = verbs_device_open(&nic->device, options, local, error);
    if (!status)
        status = check_width(nic->device, nic->target->lock_width, error);
    if (!status)
        status = unblock_events(nic->device, error);
    if (!status) {
        memory_node_pin(node);
        status = bring_up_best(nic, error);
    }
    if (status) {
        memoryd_nic_destroy(nic);
        return status;
    }
    describe(nic);
    *made = nic;
    return BANYAN_OK;
}

void memoryd_nic_destroy(struct memoryd_nic *nic)
{
    if (nic == NULL)
        return;
    if (nic->device != NULL) {
        bring_down(nic);
        verbs_device_close(nic->device);
    }
    free(nic);
}

int memoryd_nic_locks(const struct verbs_options *options, const struct sockaddr *local, uint32_t *lock_width,
                      uint64_t *lock_bytes, struct error *error)
{
    struct verbs_device *device;
    int status = verbs_device_open(&device, options, local, error);
    if (status)
        return status;
    *lock_width = device->features.masked_cas ? 2 : 8;
    *lock_bytes = MEMORY_LOCK_BYTES;
    while (*lock_bytes > device->features.device_memory && *lock_bytes > MEMORYD_NIC_CHIP_MIN)
        *lock_bytes /= 2;
    if (*lock_bytes > device->features.device_memory) /* in host memory, where there is room */
        *lock_bytes = MEMORY_LOCK_BYTES;
    verbs_device_close(device);
    return BANYAN_OK;
}

uint16_t memoryd_nic_mtu(const struct memoryd_nic *nic)
{
    return (uint16_t)verbs_mtu_bytes(nic->device->mtu);
}

uint8_t memoryd_nic_promises(const struct memoryd_nic *nic)
{
    const struct verbs_features *features = &nic->device->features;
    /* What makers promise about WRITEs beside CAS holds in the NIC's own memory: in the host's memory an
     * atomic is a read and a write, with the bus between them. */
    bool release_by_write = features->release_by_write && nic->chip != NULL;
    return (uint8_t)((release_by_write ? WIRE_NIC_RELEASE_BY_WRITE : 0) |
                     (features->masked_cas ? WIRE_NIC_MASKED_CAS : 0));
}

const char *memoryd_nic_text(const struct memoryd_nic *nic)
{
    return nic->text;
}

int memoryd_nic_format(struct memoryd_nic *nic, struct error *error)
{
    return nic->chip != NULL ? nic_chip_clear(nic, error) : BANYAN_OK;
}

/* ---- events ---- */

int memoryd_nic_descriptor(const struct memoryd_nic *nic)
{
    return nic->device->context->async_fd;
}

/* Why a queue pair cannot go on; NULL: the event is not about one, or does not stop it. */
static const char *queue_broken(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_QP_FATAL:
        return "its queue pair broke down: the NIC reports a fatal error of it";
    case IBV_EVENT_QP_REQ_ERR:
        return "its queue pair broke down: it sent a request that makes no sense";
    case IBV_EVENT_QP_ACCESS_ERR:
        return "its queue pair broke down: it reached for memory that it has no key for, or that is not "
               "there";
    default:
        return NULL;
    }
}

static bool of_queue(const struct memoryd_nic *nic, struct ibv_async_event *event)
{
    return event->element.qp->qp_context != NULL && event->element.qp->qp_context != nic->own.far;
}

bool memoryd_nic_events(struct memoryd_nic *nic,
                        void (*broken)(void *owner, struct memoryd_nic_queue *queue, const char *why),
                        void *owner)
{
    struct ibv_async_event event;
    while (ibv_get_async_event(nic->device->context, &event) == 0) {
        const char *why = queue_broken(event.event_type);
        const char *name = ibv_event_type_str(event.event_type);
        if (why != NULL && of_queue(nic, &event))
            broken(owner, event.element.qp->qp_context, why);
        else if (why != NULL)
            nic->own.broken = true;
        else if (event.event_type == IBV_EVENT_DEVICE_FATAL)
            broken(owner, NULL, "the NIC broke down");
        if (event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_PORT_ERR)
            log_error("memory node: %s: %s", nic->device->name, name);
        else
            log_debug("memory node: %s: %s", nic->device->name, name);
        ibv_ack_async_event(&event);
    }
    return errno == EAGAIN || errno == EINTR;
}
