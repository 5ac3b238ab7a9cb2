/*
 * nic.c - see nic.h: the device, the registered memory, queue pairs, events. Its own queue
 * pair, and what goes through it, are nic_locks.c's.
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

/* The own queue pair's two ends. */
#define OWN_QUEUES 2u
/* What is waited for takes microseconds; a NIC that is gone says nothing at all. */
#define PATIENCE UINT64_C(30000000000)
#define LOOK_NS  UINT64_C(20000)
#define SPINS    1000u

int nic_wait(struct ibv_cq *completions, const char *what, struct error *error)
{
    struct ibv_wc done;
    uint64_t deadline = task_now() + PATIENCE;
    for (unsigned looks = 0;; looks++) {
        int count = ibv_poll_cq(completions, 1, &done);
        if (count < 0)
            return error_set(error, BANYAN_ENET, "%s: the NIC's completions cannot be read", what);
        if (count > 0 && done.status == IBV_WC_SUCCESS)
            return BANYAN_OK;
        if (count > 0)
            return error_set(error, BANYAN_ENET, "%s: %s", what, verbs_completion_reason(done.status));
        if (task_now() > deadline)
            return error_set(error, BANYAN_ENET, "%s: the NIC does not answer", what);
        if (looks > SPINS)
            task_sleep(LOOK_NS);
    }
}

/* ---- registered memory ---- */

/* At address 0 where the device can; else its messages say what is wrong. */
static int register_part(struct memoryd_nic *nic, enum nic_part part, void *memory, uint64_t bytes,
                         bool windows, struct error *error)
{
    struct nic_region *region = &nic->regions[part];
    const char *what = part == NIC_POOL ? "the pool" : "the lock region";
    unsigned access = IBV_ACCESS_LOCAL_WRITE | (windows ? (unsigned)IBV_ACCESS_MW_BIND : NIC_REMOTE);
    *region = (struct nic_region){.bytes = bytes, .windowed = windows};
    region->registration = ibv_reg_mr_iova(nic->device->domain, memory, bytes, 0, access);
    if (region->registration != NULL)
        return BANYAN_OK;
    region->address = (uintptr_t)memory;
    return verbs_memory_register(nic->device, memory, bytes, (int)access, what, &region->registration, error);
}

static int clear_chip(struct memoryd_nic *nic, struct error *error)
{
    static const uint8_t zeros[4096];
    for (uint64_t at = 0; at < nic->target->lock_bytes; at += sizeof zeros) {
        uint64_t left = nic->target->lock_bytes - at;
        int failed = ibv_memcpy_to_dm(nic->chip, at, zeros, left < sizeof zeros ? left : sizeof zeros);
        if (failed != 0)
            return error_set(error, BANYAN_ENET, "%s: its device memory cannot be written: %s",
                             nic->device->name, strerror(failed < 0 ? -failed : failed));
    }
    return BANYAN_OK;
}

/* Device memory takes no windows: its registration's own key is handed out. */
static int register_chip(struct memoryd_nic *nic, struct error *error)
{
    struct ibv_alloc_dm_attr wanted = {.length = nic->target->lock_bytes};
    nic->chip = ibv_alloc_dm(nic->device->context, &wanted);
    if (nic->chip == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives none of its device memory (%llu bytes wanted): %s",
                         nic->device->name, (unsigned long long)wanted.length, strerror(errno));
    int status = clear_chip(nic, error);
    if (status)
        return status;
    struct nic_region *region = &nic->regions[NIC_LOCKS];
    *region = (struct nic_region){.bytes = wanted.length};
    region->registration = ibv_reg_dm_mr(nic->device->domain, nic->chip, 0, wanted.length,
                                         IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | NIC_REMOTE);
    if (region->registration == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s: its device memory cannot be registered: %s",
                         nic->device->name, strerror(errno));
    return BANYAN_OK;
}

static int bring_up(struct memoryd_nic *nic, bool chip, bool windows, struct error *error)
{
    const struct fabric_target *target = nic->target;
    int status = register_part(nic, NIC_POOL, target->pool, target->pool_bytes, windows, error);
    if (!status && chip)
        status = register_chip(nic, error);
    else if (!status)
        status = register_part(nic, NIC_LOCKS, target->locks, target->lock_bytes, windows, error);
    if (!status)
        status = nic_own_open(nic, error);
    return !status ? nic_own_prove(nic, error) : status;
}

static void bring_down(struct memoryd_nic *nic)
{
    nic_own_close(nic);
    for (unsigned part = 0; part < NIC_PARTS; part++) {
        if (nic->regions[part].registration != NULL)
            ibv_dereg_mr(nic->regions[part].registration);
        nic->regions[part] = (struct nic_region){0};
    }
    if (nic->chip != NULL)
        ibv_free_dm(nic->chip);
    nic->chip = NULL;
}

/* The word of a part that the proof works on. */
static uint64_t *proof_word(const struct memoryd_nic *nic, enum nic_part part)
{
    uint8_t *word = part == NIC_POOL ? nic->target->pool + MEMORY_LOCK_TABLE_OFFSET : nic->target->locks;
    return (uint64_t *)(void *)word;
}

/* The best that can be proved to work. */
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
        /* Without room for the pool itself nothing gets better. */
        bool hopeless = status == BANYAN_ENOMEM && nic->regions[NIC_POOL].registration == NULL;
        bring_down(nic);
        /* A proof that failed halfway has left them changed: locks that nobody would ever free. Nobody is
         * here, not even a queue pair, so for once the CPU may put them right. */
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

static int judge_width(const struct verbs_device *device, uint32_t width, struct error *error)
{
    if (width == 8 || device->features.masked_cas)
        return BANYAN_OK;
    return error_set(error, BANYAN_EINVAL,
                     "%s has no masked compare-and-swap, so that locks of %u bytes, several of which share a "
                     "word, cannot be taken; start the memory node with --lock-width 8",
                     device->name, width);
}

/* Events are read until there are none. */
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
        status = judge_width(nic->device, nic->target->lock_width, error);
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
    /* What the maker says of WRITEs beside CAS is about the NIC's own memory: in the host's, the NIC's
     * read and write of an atomic are two, with the bus between them. */
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
    return nic->chip != NULL ? clear_chip(nic, error) : BANYAN_OK;
}

/* ---- queue pairs ---- */

static int make_pair(struct memoryd_nic_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->nic->device;
    queue->completions = ibv_create_cq(device->context, NIC_PARTS, NULL, NULL, 0);
    if (queue->completions == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no completion queue: %s", device->name,
                         strerror(errno));
    struct ibv_qp_init_attr wanted = {
        .qp_context = queue,
        .send_cq = queue->completions,
        .recv_cq = queue->completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = NIC_PARTS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    queue->pair = device->provider->queue_create(device->domain, &wanted, false);
    if (queue->pair == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no queue pair (%u are in use here): %s",
                         device->name, memoryd_nic_queues(queue->nic), strerror(errno));
    return BANYAN_OK;
}

/* The key is a new one at each binding; it is good for this queue pair alone. */
static int bind_window(struct memoryd_nic_queue *queue, enum nic_part part, uint32_t *key,
                       struct error *error)
{
    const struct nic_region *region = &queue->nic->regions[part];
    struct ibv_mw *window = ibv_alloc_mw(queue->nic->device->domain, IBV_MW_TYPE_2);
    queue->windows[part] = window;
    if (window == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no memory window: %s", queue->nic->device->name,
                         strerror(errno));
    *key = ibv_inc_rkey(window->rkey);
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW,
                               .send_flags = IBV_SEND_SIGNALED,
                               .bind_mw = {.mw = window,
                                           .rkey = *key,
                                           .bind_info = {.mr = region->registration,
                                                         .addr = region->address,
                                                         .length = region->bytes,
                                                         .mw_access_flags = NIC_REMOTE}}};
    struct ibv_send_wr *bad;
    int failed = ibv_post_send(queue->pair, &bind, &bad);
    if (failed != 0)
        return error_set(error, BANYAN_ENET, "%s binds no memory window of %llu bytes: %s",
                         queue->nic->device->name, (unsigned long long)region->bytes, strerror(failed));
    return nic_wait(queue->completions, "binding a memory window", error);
}

static int hand_out(struct memoryd_nic_queue *queue, enum nic_part part, uint32_t *key, uint64_t *address,
                    struct error *error)
{
    const struct nic_region *region = &queue->nic->regions[part];
    *address = region->address;
    *key = region->registration->rkey;
    return region->windowed ? bind_window(queue, part, key, error) : BANYAN_OK;
}

int nic_queue_open(struct memoryd_nic *nic, const struct wire_nic *theirs, struct wire_nic *ours,
                   struct memoryd_nic_queue **made, struct error *error)
{
    *made = NULL;
    struct memoryd_nic_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a queue pair");
    queue->nic = nic;
    *ours = (struct wire_nic){0};
    int status = make_pair(queue, error);
    if (!status)
        status = verbs_pair_begin(nic->device, queue->pair, NIC_REMOTE, ours, error);
    if (!status)
        status = verbs_pair_connect(nic->device, queue->pair, ours, theirs, error);
    if (!status)
        status = hand_out(queue, NIC_POOL, &ours->pool_key, &ours->pool_address, error);
    if (!status)
        status = hand_out(queue, NIC_LOCKS, &ours->lock_key, &ours->lock_address, error);
    /* One that was connected and cannot be destroyed is the caller's all the same: it is to be fenced. */
    if (!status || !nic_queue_close(queue))
        *made = queue;
    return status;
}

/* A pair that is in error takes nothing from the other side any more; its windows are freed then, since some
 * devices do not destroy a pair as long as windows are bound to it. */
static bool destroy_pair(struct memoryd_nic_queue *queue)
{
    struct ibv_qp_attr error_state = {.qp_state = IBV_QPS_ERR};
    int stopped = ibv_modify_qp(queue->pair, &error_state, IBV_QP_STATE);
    for (unsigned part = 0; part < NIC_PARTS; part++)
        if (queue->windows[part] != NULL && ibv_dealloc_mw(queue->windows[part]) == 0)
            queue->windows[part] = NULL;
    int failed = ibv_destroy_qp(queue->pair);
    if (failed == 0)
        return true;
    log_error("memory node: %s does not destroy queue pair %u: %s%s", queue->nic->device->name,
              queue->pair->qp_num, strerror(failed < 0 ? -failed : failed),
              stopped == 0 ? "" : "; nor does it stop it");
    return false;
}

bool nic_queue_close(struct memoryd_nic_queue *queue)
{
    if (queue->pair != NULL && !destroy_pair(queue))
        return false; /* what an event may still name stays where it is */
    for (unsigned part = 0; part < NIC_PARTS; part++)
        if (queue->windows[part] != NULL)
            ibv_dealloc_mw(queue->windows[part]);
    if (queue->completions != NULL)
        ibv_destroy_cq(queue->completions);
    free(queue);
    return true;
}

int memoryd_nic_attach(struct memoryd_nic *nic, const struct wire_nic *theirs, struct wire_nic *ours,
                       struct memoryd_nic_queue **queue, struct error *error)
{
    uint32_t most = nic->device->limits.queues;
    *queue = NULL;
    /* relaxed: a count that limits, and nothing hangs on its order */
    uint32_t count = atomic_add_relaxed(&nic->queues, 1u);
    int status;
    if (most < OWN_QUEUES || count >= most - OWN_QUEUES)
        status = error_set(error, BANYAN_EBUSY,
                           "all queue pairs of %s are in use: it has %u; let fewer threads connect, or "
                           "share the memory among more memory nodes",
                           nic->device->name, most);
    else
        status = nic_queue_open(nic, theirs, ours, queue, error);
    if (*queue == NULL)
        atomic_add_relaxed(&nic->queues, UINT32_MAX);
    return status;
}

bool memoryd_nic_detach(struct memoryd_nic_queue *queue)
{
    if (queue == NULL)
        return true;
    struct memoryd_nic *nic = queue->nic;
    if (!nic_queue_close(queue))
        return false;
    atomic_add_relaxed(&nic->queues, UINT32_MAX); /* as above */
    return true;
}

uint32_t memoryd_nic_queues(const struct memoryd_nic *nic)
{
    return atomic_load_relaxed(&nic->queues);
}

/* ---- events ---- */

int memoryd_nic_descriptor(const struct memoryd_nic *nic)
{
    return nic->device->context->async_fd;
}

/* NULL: not about a queue pair, or nothing that stops one. */
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
