/*
 * nic_queue.c - queue pairs of the memory node's NIC: made for the other end's, given their keys, destroyed.
 * See nic.h.
 *
 * On any I/O thread, and on the keeper's for the node's own; waits for the kernel and for the NIC.
 */
#include "memoryd/nic_state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"

/* The two ends of the node's own queue pair. */
#define OWN_QUEUES 2u
/* A completion takes microseconds; one of a NIC that is gone never comes. */
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

/* ---- making one ---- */

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

/* Each binding makes a new key, which works through this queue pair alone. */
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
    /* After a failure the caller still gets a queue pair that cannot be destroyed: its compute node must
     * never count as fenced. */
    if (!status || !nic_queue_close(queue))
        *made = queue;
    return status;
}

/* A queue pair in the error state takes nothing from its other end any more. Its windows are freed before it
 * is destroyed, since some devices do not destroy a queue pair to which windows are bound. */
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
        return false; /* an event may still name it, so it is not freed */
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
    /* relaxed: a count that limits; no other data depends on it */
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
    assert(queue != nic->own.far);
    if (!nic_queue_close(queue))
        return false;
    uint32_t before = atomic_add_relaxed(&nic->queues, UINT32_MAX); /* as above */
    assert(before > 0);
    (void)before;
    return true;
}

uint32_t memoryd_nic_queues(const struct memoryd_nic *nic)
{
    return atomic_load_relaxed(&nic->queues);
}
