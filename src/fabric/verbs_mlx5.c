/*
 * verbs_mlx5.c - NVIDIA's (Mellanox's) ConnectX-4 and later, through mlx5dv: masked compare-and-swap, device
 * memory, and lists posted through ibv_wr_*, which builds them in the queue itself. Contract and threads:
 * verbs_provider.h. Built where libmlx5 is there, else verbs_mlx5_absent.c. Its requests are tested against
 * fakes (tests/fabric/test_verbs_mlx5.c); it has not been tried on a NIC yet.
 *
 * MASKED CAS is "extended atomics" of these NICs; rdma-core has no verb for it, so its request is built
 * here, byte for byte, and handed over as a raw one. What that needs, and where it comes from:
 *  - The NIC has it: QUERY_HCA_CAP, atomic capabilities (as in the kernel's mlx5_ifc.h): atomic_operations
 *    has bit 2 (masked compare-and-swap), atomic_size_qp has bit 3 (8 bytes).
 *  - Old values come back in the host's byte order: atomic_req_8B_endianness_mode is not 0. The kernel sets
 *    it where the NIC can, and without it reports no atomics at all.
 *  - The responder's queue pair is in the extended mode. No option of the verbs asks for that; the kernel
 *    does it by itself for every queue pair that others may do atomics to, whenever the NIC reports
 *    extended atomics (mlx5_ib: get_atomic_mode, since Linux 4.20). On an older kernel a masked CAS ends with
 *    a remote invalid request error: the connection breaks, and nothing is changed.
 *  - The request (as UCX builds its own): opcode 0x14, modifier 8 | log2(bytes) - 2; then remote address;
 *    swap, compare, mask of the swap, mask of the comparison, 8 bytes each, big endian; then the place for
 *    the old value. It is 80 bytes, so it takes two of the queue's 64-byte blocks.
 *  - It and an ordinary CAS are atomic against each other: both are done by the responder's atomics unit.
 *    The order of bytes in the responder's memory is taken to be the host's, as for ordinary ones.
 * None of it is taken for granted: a memory node whose locks are masked tries a masked CAS on its own NIC
 * when it starts (memoryd/nic_locks.c), and does not start where the word is not what it must be.
 *
 * RELEASE BY WRITE. What makes a WRITE to a lock unsafe is a responder that reads a word, compares, fails,
 * and writes the old value back; Soft-RoCE does. The InfiniBand specification allows it, and no public manual
 * of these NICs forbids it in so many words. What the promise rests on is practice: Sherman (SIGMOD 2022,
 * section 4.3 and 4.5: ConnectX-5, locks in device memory, released by a WRITE in the list of the write-back)
 * ran its whole evaluation that way, under contention that one lost release would stop for ever. Not known:
 * whether it holds for every NIC and firmware, and for locks in host memory. So a memory node passes it on
 * for locks in device memory alone (memoryd_nic_promises), and it is used for locks of 8 bytes only
 * (remote.c, limit_to_nic); others are released by an atomic, for the same round trips.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

#include "fabric/verbs_provider.h"

/* ---- what the NIC can do ---- */

/* QUERY_HCA_CAP: 16 bytes of command; 16 bytes of header and 4096 of capabilities come back. Big endian. */
enum {
    QUERY_BYTES = 16,
    REPLY_HEADER = 16,
    REPLY_BYTES = REPLY_HEADER + 4096,
    QUERY_HCA_CAP = 0x100,
    ATOMIC_CAPABILITIES = 3, /* which of them */
    CURRENT = 1,             /* what is in force, not what could be */
    ENDIANNESS_AT = REPLY_HEADER + 8,
    OPERATIONS_AT = REPLY_HEADER + 18,
    SIZES_AT = REPLY_HEADER + 22,
    HOST_ENDIANNESS = 0xc0, /* the two highest bits of their byte */
    MASKED_SWAP = 1 << 2,
    EIGHT_BYTES = 1 << 3,
};

static unsigned word_at(const uint8_t *bytes)
{
    return (unsigned)bytes[0] << 8 | bytes[1];
}

static bool masked_cas_there(struct ibv_context *context)
{
    uint8_t query[QUERY_BYTES] = {QUERY_HCA_CAP >> 8, QUERY_HCA_CAP & 0xff};
    uint8_t reply[REPLY_BYTES] = {0};
    query[7] = ATOMIC_CAPABILITIES << 1 | CURRENT;
    /* Fails where the kernel or the process's rights allow no such questions. */
    if (mlx5dv_devx_general_cmd(context, query, sizeof query, reply, sizeof reply) != 0)
        return false;
    return (reply[ENDIANNESS_AT] & HOST_ENDIANNESS) != 0 &&
           (word_at(reply + OPERATIONS_AT) & MASKED_SWAP) != 0 &&
           (word_at(reply + SIZES_AT) & EIGHT_BYTES) != 0;
}

static bool mlx5_knows(struct ibv_device *device)
{
    return mlx5dv_is_supported(device);
}

static void mlx5_features(struct ibv_context *context, struct verbs_features *features)
{
    struct ibv_device_attr_ex attributes;
    *features = (struct verbs_features){.masked_cas = masked_cas_there(context), .release_by_write = true};
    if (ibv_query_device_ex(context, NULL, &attributes) != 0)
        return;
    const unsigned windows = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    features->windows = (attributes.orig_attr.device_cap_flags & windows) != 0;
    features->device_memory = attributes.max_dm_size;
}

/* ---- queue pairs ---- */

static struct ibv_qp *mlx5_queue_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes, bool masked)
{
    /* Binding a window makes libmlx5 reckon with requests of 192 bytes: room for a masked CAS too, whose size
     * it does not know, and by which it would else let the queue overflow. */
    struct ibv_qp_init_attr_ex wanted = {
        .qp_context = attributes->qp_context,
        .send_cq = attributes->send_cq,
        .recv_cq = attributes->recv_cq,
        .srq = attributes->srq,
        .cap = attributes->cap,
        .qp_type = attributes->qp_type,
        .sq_sig_all = attributes->sq_sig_all,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                          IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
    };
    struct mlx5dv_qp_init_attr special = {0};
    if (masked) {
        /* Results in the completion entry itself are copied out by libmlx5 for the requests that it knows. */
        special.comp_mask =
            MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
        special.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
        special.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    }
    struct ibv_qp *queue = mlx5dv_create_qp(pd->context, &wanted, &special);
    if (queue != NULL)
        attributes->cap = wanted.cap;
    return queue;
}

/* ---- posting ---- */

struct masked_request {
    struct mlx5_wqe_ctrl_seg control;
    struct mlx5_wqe_raddr_seg remote;
    uint64_t swap, compare, swap_mask, compare_mask;
    struct mlx5_wqe_data_seg place;
};
_Static_assert(sizeof(struct masked_request) == 80, "five segments of 16 bytes, without holes");

enum {
    SEGMENTS = sizeof(struct masked_request) / 16,
    EXTENDED_8_BYTES = 8 | (3 - 2), /* the opcode's modifier */
};

static void masked_cas_build(struct masked_request *request, uint32_t queue, const struct verbs_work *work)
{
    const uint8_t completes = work->signalled ? MLX5_WQE_CTRL_CQ_UPDATE : 0;
    memset(request, 0, sizeof *request);
    /* libmlx5 fills in the index. */
    mlx5dv_set_ctrl_seg(&request->control, 0, MLX5_OPCODE_ATOMIC_MASKED_CS, EXTENDED_8_BYTES, queue,
                        completes, SEGMENTS, 0, 0);
    request->remote.raddr = htobe64(work->remote);
    request->remote.rkey = htobe32(work->remote_key);
    request->swap = htobe64(work->swap);
    request->compare = htobe64(work->compare);
    request->swap_mask = request->compare_mask = htobe64(work->mask);
    mlx5dv_set_data_seg(&request->place, sizeof(uint64_t), work->local_key, work->local);
}

/* One request of the list. 0, or an errno where it cannot be one. */
static int work_build(struct ibv_qp_ex *queue, const struct verbs_work *work)
{
    queue->wr_id = work->id;
    queue->wr_flags = work->signalled ? IBV_SEND_SIGNALED : 0;
    if (work->operation == FABRIC_CAS && work->masked) {
        struct mlx5dv_qp_ex *special = mlx5dv_qp_ex_from_ibv_qp_ex(queue);
        struct masked_request request;
        if (special->wr_raw_wqe == NULL) /* not asked for when the queue was made */
            return EOPNOTSUPP;
        masked_cas_build(&request, queue->qp_base.qp_num, work);
        mlx5dv_wr_raw_wqe(special, &request);
        return 0;
    }
    switch (work->operation) {
    case FABRIC_READ:
        ibv_wr_rdma_read(queue, work->remote_key, work->remote);
        break;
    case FABRIC_WRITE:
        ibv_wr_rdma_write(queue, work->remote_key, work->remote);
        break;
    case FABRIC_CAS:
        ibv_wr_atomic_cmp_swp(queue, work->remote_key, work->remote, work->compare, work->swap);
        break;
    case FABRIC_FAA:
        ibv_wr_atomic_fetch_add(queue, work->remote_key, work->remote, work->swap);
        break;
    default:
        return EINVAL;
    }
    if (work->inlined)
        ibv_wr_set_inline_data(queue, (void *)(uintptr_t)work->local, work->length);
    else
        ibv_wr_set_sge(queue, work->local_key, work->local, work->length);
    return 0;
}

static int mlx5_post(struct ibv_qp *pair, const struct verbs_work *works, uint32_t count,
                     struct verbs_scratch *scratch)
{
    struct ibv_qp_ex *queue = ibv_qp_to_qp_ex(pair);
    ibv_wr_start(queue);
    for (uint32_t i = 0; i < count; i++) {
        int error = work_build(queue, &works[i]);
        if (error != 0) {
            ibv_wr_abort(queue); /* nothing of the list has reached the NIC */
            return error;
        }
    }
    return ibv_wr_complete(queue); /* the doorbell; what a builder could not do is told here */
}

const struct verbs_provider *verbs_mlx5(void)
{
    static const struct verbs_provider mlx5 = {
        .name = "mlx5",
        .knows = mlx5_knows,
        .features = mlx5_features,
        .queue_create = mlx5_queue_create,
        .post = mlx5_post,
    };
    return &mlx5;
}
