/*
 * verbs_create.c - a queue's beginning and end: its completion queue, its room and its queue pair are made,
 * it is connected to the other end, and destroyed (verbs_queue.h). Waits for the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/verbs_queue_private.h"

/* Bytes within requests: slots, lock words, small values. With 220 a request of NVIDIA's NICs has 256 bytes;
 * more would make all requests of the queue longer. A NIC that cannot do it gets the next. */
static const uint32_t inline_steps[] = {220, 128, 64, 28, 0};

static int errno_error(int number)
{
    return number == EINVAL ? BANYAN_EINVAL : number == EOPNOTSUPP ? BANYAN_ENOTSUP : BANYAN_ENOMEM;
}

static int limits_validate(struct verbs_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->device;
    const struct verbs_limits *limits = &device->limits;
    if (limits->message < VERBS_MESSAGE_MIN)
        return error_set(error, BANYAN_ENOTSUP,
                         "%s: its longest message is %llu bytes, and lists need %llu; use another NIC",
                         device->name, (unsigned long long)limits->message,
                         (unsigned long long)VERBS_MESSAGE_MIN);
    queue->rules.message = limits->message;
    queue->rules.masked_cas = device->features.masked_cas;
    uint32_t most = limits->works < limits->completions ? limits->works : limits->completions;
    queue->works_max = most < VERBS_QUEUE_WORKS ? most : VERBS_QUEUE_WORKS;
    uint32_t need = verbs_list_works_most(limits->message);
    if (queue->works_max < need)
        return error_set(
            error, BANYAN_ENOTSUP,
            "%s: a queue pair can have %u requests under way, and lists need %u; use another NIC",
            device->name, queue->works_max, need);
    return BANYAN_OK;
}

static int completions_create(struct verbs_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->device;
    queue->channel = ibv_create_comp_channel(device->context);
    if (queue->channel == NULL)
        return error_set(error, errno_error(errno), "%s: no completion channel: %s", device->name,
                         strerror(errno));
    int flags = fcntl(queue->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(queue->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(error, BANYAN_ENOTSUP, "%s: its completion channel cannot be polled: %s",
                         device->name, strerror(errno));
    queue->completions = ibv_create_cq(device->context, (int)queue->works_max, NULL, queue->channel, 0);
    if (queue->completions == NULL)
        return error_set(error, errno_error(errno),
                         "%s: no completion queue for %u requests: %s; fewer workers need fewer of them",
                         device->name, queue->works_max, strerror(errno));
    return BANYAN_OK;
}

static int pair_create(struct verbs_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->device;
    struct ibv_qp_init_attr attributes;
    for (uint32_t i = 0; i < sizeof inline_steps / sizeof inline_steps[0] && queue->pair == NULL; i++) {
        attributes = (struct ibv_qp_init_attr){
            .send_cq = queue->completions,
            .recv_cq = queue->completions,
            .qp_type = IBV_QPT_RC,
            .sq_sig_all = 0,
            .cap = {.max_send_wr = queue->works_max,
                    .max_recv_wr = 1, /* none is ever posted; some providers refuse 0 */
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = inline_steps[i]},
        };
        queue->pair =
            device->provider->queue_create(device->domain, &attributes, device->features.masked_cas);
    }
    if (queue->pair == NULL)
        return error_set(
            error, errno_error(errno),
            "%s: no queue pair for %u requests: %s; check the limit of locked memory (ulimit -l) "
            "and the NIC's of queue pairs, fewer workers need fewer",
            device->name, queue->works_max, strerror(errno));
    queue->rules.inlined = attributes.cap.max_inline_data;
    if (attributes.cap.max_send_wr < queue->works_max)
        return error_set(error, BANYAN_ENOTSUP, "%s: it granted %u requests of %u", device->name,
                         attributes.cap.max_send_wr, queue->works_max);
    return BANYAN_OK;
}

int verbs_queue_create(struct verbs_queue **created, const struct verbs_device *device, struct error *error)
{
    struct verbs_queue *queue = calloc(1, sizeof *queue);
    *created = NULL;
    if (queue == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a queue on %s", device->name);
    queue->device = device;
    int status = limits_validate(queue, error);
    if (!status)
        status = completions_create(queue, error);
    if (!status)
        status = verbs_room_create(&queue->room, device, error);
    if (!status)
        status = pair_create(queue, error);
    /* The other end gets no rights: it has nothing to read or write here. */
    if (!status)
        status = verbs_pair_begin(device, queue->pair, 0, &queue->ours, error);
    if (status) {
        verbs_queue_destroy(queue, NULL, NULL);
        return status;
    }
    *created = queue;
    return BANYAN_OK;
}

void verbs_queue_destroy(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    if (queue == NULL)
        return;
    /* First: while there is a pair, the NIC may write to our memory. */
    if (queue->pair != NULL)
        ibv_destroy_qp(queue->pair);
    for (; queue->first < queue->next; queue->first++) {
        struct verbs_list_under_way *entry = &queue->lists[queue->first % VERBS_QUEUE_WORKS];
        verbs_room_return(&queue->room, &entry->place);
        if (entry->list == NULL)
            continue;
        verbs_count(&queue->counts.lists, 1);
        done(owner, entry->list, BANYAN_ENET);
    }
    if (queue->completions != NULL)
        ibv_destroy_cq(queue->completions);
    if (queue->channel != NULL)
        ibv_destroy_comp_channel(queue->channel);
    verbs_room_destroy(&queue->room);
    free(queue);
}

/* ---- the other end ---- */

const struct wire_nic *verbs_queue_end(const struct verbs_queue *queue)
{
    return &queue->ours;
}

/* These come from the network, and an address computed from them must not wrap around. */
static bool region_possible(uint64_t address, uint64_t bytes)
{
    return address % 8 == 0 && bytes <= GADDR_LOCK_REGION && address + bytes >= address;
}

int verbs_queue_connect(struct verbs_queue *queue, const struct wire_nic *theirs,
                        const struct verbs_memory *memory, struct error *error)
{
    if (!region_possible(memory->pool_address, memory->pool_bytes) ||
        !region_possible(memory->lock_address, memory->lock_bytes))
        return error_set(error, BANYAN_EINVAL,
                         "the memory node says that its pool is at 0x%llx and its lock "
                         "region at 0x%llx, which cannot be",
                         (unsigned long long)memory->pool_address, (unsigned long long)memory->lock_address);
    int status = verbs_pair_connect(queue->device, queue->pair, &queue->ours, theirs, error);
    if (!status)
        queue->rules.memory = *memory;
    return status;
}
