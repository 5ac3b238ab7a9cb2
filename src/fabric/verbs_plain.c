/*
 * verbs_plain.c - the provider for every NIC: what the InfiniBand specification promises and libibverbs
 * offers, and no more (verbs_provider.h). Lock words are 8 bytes and freed by atomics.
 */
#include "fabric/verbs_provider.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

static bool plain_knows(struct ibv_device *device)
{
    return true;
}

static void plain_features(struct ibv_context *context, struct verbs_features *features)
{
    struct ibv_device_attr_ex attributes;
    *features = (struct verbs_features){0};
    if (ibv_query_device_ex(context, NULL, &attributes) != 0)
        return;
    /* Of both kinds of type 2, 2A belongs to a queue pair by its number, 2B by its domain as well. */
    features->windows = attributes.orig_attr.max_mw > 0 &&
                        (attributes.orig_attr.device_cap_flags &
                         (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
    features->device_memory = attributes.max_dm_size;
}

static struct ibv_qp *plain_queue_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes, bool masked)
{
    if (masked) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return ibv_create_qp(pd, attributes);
}

static void set_request(struct ibv_send_wr *request, const struct verbs_work *work)
{
    request->wr_id = work->id;
    request->num_sge = 1;
    request->send_flags =
        (work->signalled ? (unsigned)IBV_SEND_SIGNALED : 0) | (work->inlined ? (unsigned)IBV_SEND_INLINE : 0);
    if (work->operation == FABRIC_READ || work->operation == FABRIC_WRITE) {
        request->opcode = work->operation == FABRIC_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        request->wr.rdma.remote_addr = work->remote;
        request->wr.rdma.rkey = work->remote_key;
        return;
    }
    assert(!work->masked);
    request->wr.atomic.remote_addr = work->remote;
    request->wr.atomic.rkey = work->remote_key;
    if (work->operation == FABRIC_CAS) {
        request->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        request->wr.atomic.compare_add = work->compare;
        request->wr.atomic.swap = work->swap;
    } else {
        request->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        request->wr.atomic.compare_add = work->swap;
        request->wr.atomic.swap = 0;
    }
}

static int plain_post(struct ibv_qp *queue, const struct verbs_work *works, uint32_t count,
                      struct verbs_scratch *scratch)
{
    struct ibv_send_wr *refused;
    assert(count - 1 < VERBS_WORKS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        scratch->places[i] =
            (struct ibv_sge){.addr = works[i].local, .length = works[i].length, .lkey = works[i].local_key};
        scratch->requests[i].sg_list = &scratch->places[i];
        scratch->requests[i].next = i + 1 < count ? &scratch->requests[i + 1] : NULL;
        set_request(&scratch->requests[i], &works[i]);
    }
    return ibv_post_send(queue, scratch->requests, &refused);
}

const struct verbs_provider verbs_plain = {
    .name = "plain",
    .knows = plain_knows,
    .features = plain_features,
    .queue_create = plain_queue_create,
    .post = plain_post,
};
