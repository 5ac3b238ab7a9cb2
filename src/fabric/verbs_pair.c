/*
 * verbs_pair.c - the states of a queue pair, the validation of the other side's end, and what failed requests
 * mean; see verbs_device.h.
 *
 * Called when a queue pair is made and connected. Each change of state waits for the kernel, the one to RTR
 * perhaps for the other side's hardware address (ARP) too: up to a second.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "fabric/verbs_private.h"

#define NUMBER_24       UINT32_C(0xffffff)
#define HOP_LIMIT       64u
#define RETRIES         6u  /* then the other side is gone; Soft-RoCE takes 7, the most, for "for ever" */
#define RNR_RETRIES     7u  /* for ever; nothing here is ever received, so it is never "not ready" */
#define RNR_TIMER       12u /* 0.64 ms */
#define LID_UNICAST     0xbfffu
#define PARTITION_PLACE 0u /* the default partition's */

static uint8_t lesser(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

/* Older libraries return -1 and set errno. */
static int change(struct ibv_qp *queue, struct ibv_qp_attr *attributes, int mask)
{
    int result = ibv_modify_qp(queue, attributes, mask);
    return result >= 0 ? result : errno;
}

/* ---- INIT ---- */

int verbs_pair_begin(const struct verbs_device *device, struct ibv_qp *queue, int access,
                     struct wire_nic *ours, struct error *error)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = PARTITION_PLACE,
        .port_num = device->port,
        .qp_access_flags = (unsigned)access,
    };
    bool read = (access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    *ours = (struct wire_nic){
        .queue = queue->qp_num,
        .psn = (uint32_t)random_entropy() & NUMBER_24,
        .lid = device->lid,
        .ethernet = device->ethernet,
        .mtu = (uint8_t)device->mtu,
        .reads_taken = read ? (uint8_t)device->limits.reads_taken : 0,
        .reads_begun = (uint8_t)device->limits.reads_begun,
    };
    memcpy(ours->gid, device->gid, sizeof ours->gid);
    int reason =
        change(queue, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (reason == 0)
        return 0;
    return error_set(error, reason == ENOMEM ? BANYAN_ENOMEM : BANYAN_EINVAL,
                     "RDMA device %s: a queue pair for port %u cannot be set up: %s", device->name,
                     (unsigned)device->port, strerror(reason));
}

/* ---- the other side's end ---- */

static int refuse(struct error *error, const char *why)
{
    return error_set(error, BANYAN_EINVAL,
                     "the other side's RDMA end is not possible: %s; is it a Banyan of this version?", why);
}

static bool gid_is_zero(const uint8_t gid[16])
{
    const uint8_t zero[16] = {0};
    return memcmp(gid, zero, sizeof zero) == 0;
}

/* On InfiniBand a LID reaches all of a subnet, whose prefix is the GID's first half. */
static bool gid_needed(const struct wire_nic *ours, const struct wire_nic *theirs)
{
    return ours->ethernet || (!gid_is_zero(theirs->gid) && memcmp(ours->gid, theirs->gid, 8) != 0);
}

static int end_validate(const struct wire_nic *ours, const struct wire_nic *theirs, struct error *error)
{
    /* 0 and 1 belong to the network's management, the last one to multicast groups. */
    if (theirs->queue < 2 || theirs->queue >= NUMBER_24)
        return refuse(error, "the queue pair's number is out of range");
    if (theirs->psn > NUMBER_24)
        return refuse(error, "the first packet sequence number (PSN) is out of range");
    if (theirs->mtu < IBV_MTU_256 || theirs->mtu > IBV_MTU_4096)
        return refuse(error, "there is no such MTU");
    if (theirs->ethernet > 1)
        return refuse(error, "neither InfiniBand nor Ethernet");
    if (theirs->ethernet != ours->ethernet)
        return error_set(
            error, BANYAN_EINVAL,
            "one end of the RDMA connection is InfiniBand, the other RoCE (this one is %s): choose "
            "NICs of one network with --rdma-device",
            ours->ethernet ? "RoCE" : "InfiniBand");
    if (theirs->ethernet && gid_is_zero(theirs->gid))
        return refuse(error, "its GID is empty");
    if (theirs->gid[0] == 0xff)
        return refuse(error, "its GID is a multicast address");
    if (!theirs->ethernet && (theirs->lid == 0 || theirs->lid > LID_UNICAST))
        return refuse(error, "its LID is out of range");
    if ((ours->reads_taken == 0 && theirs->reads_taken == 0) ||
        (ours->reads_begun == 0 && theirs->reads_begun == 0))
        return refuse(error, "no READ could ever be done");
    return 0;
}

/* ---- RTR and RTS ---- */

static int unreachable(const struct verbs_device *device, const struct wire_nic *theirs, int reason,
                       struct error *error)
{
    char from[VERBS_GID_TEXT_BYTES], to[VERBS_GID_TEXT_BYTES];
    verbs_gid_text(device->gid, from);
    verbs_gid_text(theirs->gid, to);
    switch (reason) {
    case ENOMEM:
        return error_set(error, BANYAN_ENOMEM,
                         "RDMA device %s: no memory left to connect a queue pair (max_qp_rd_atom, max_qp)",
                         device->name);
    case EINVAL:
        return error_set(
            error, BANYAN_EINVAL,
            "RDMA device %s refuses to connect GID %s (index %d) to %s: is --rdma-gid of the same "
            "RoCE version and network as the other side's?",
            device->name, from, device->gid_index, to);
    default: /* ENETUNREACH, EHOSTUNREACH, ETIMEDOUT, ENODEV, ... */
        return error_set(error, BANYAN_ENET,
                         "RDMA: no way from GID %s (%s, index %d) to %s: %s; are both in one network? else "
                         "--rdma-gid, --rdma-device",
                         from, device->name, device->gid_index, to, strerror(reason));
    }
}

static int to_receive(const struct verbs_device *device, struct ibv_qp *queue, const struct wire_nic *ours,
                      const struct wire_nic *theirs, struct error *error)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)lesser(ours->mtu, theirs->mtu),
        .dest_qp_num = theirs->queue,
        .rq_psn = theirs->psn,
        .max_dest_rd_atomic = lesser(ours->reads_taken, theirs->reads_begun),
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.dlid = theirs->lid,
                    .sl = (uint8_t)device->options.service_level,
                    .is_global = gid_needed(ours, theirs),
                    .port_num = device->port},
    };
    if (attributes.ah_attr.is_global) {
        attributes.ah_attr.grh = (struct ibv_global_route){
            .sgid_index = (uint8_t)device->gid_index,
            .hop_limit = HOP_LIMIT,
            .traffic_class = (uint8_t)device->options.traffic_class,
        };
        memcpy(attributes.ah_attr.grh.dgid.raw, theirs->gid, sizeof theirs->gid);
    }
    int reason = change(queue, &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    return reason == 0 ? 0 : unreachable(device, theirs, reason, error);
}

static int to_send(const struct verbs_device *device, struct ibv_qp *queue, const struct wire_nic *ours,
                   const struct wire_nic *theirs, struct error *error)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = ours->psn,
        .max_rd_atomic = lesser(ours->reads_begun, theirs->reads_taken),
        .timeout = (uint8_t)device->options.timeout,
        .retry_cnt = RETRIES,
        .rnr_retry = RNR_RETRIES,
    };
    int reason = change(queue, &attributes,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
    return reason == 0 ? 0 : unreachable(device, theirs, reason, error);
}

int verbs_pair_connect(const struct verbs_device *device, struct ibv_qp *queue, const struct wire_nic *ours,
                       const struct wire_nic *theirs, struct error *error)
{
    assert(ours->queue == queue->qp_num && ours->mtu == (uint8_t)device->mtu);
    int status = end_validate(ours, theirs, error);
    if (status == 0)
        status = to_receive(device, queue, ours, theirs, error);
    if (status == 0)
        status = to_send(device, queue, ours, theirs, error);
    return status;
}

/* ---- completions ---- */

const char *verbs_completion_reason(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return "success";
    case IBV_WC_LOC_LEN_ERR:
        return "local length error: the request is longer than the NIC can send at once";
    case IBV_WC_LOC_QP_OP_ERR:
        return "local queue pair operation error: the NIC cannot do such a request";
    case IBV_WC_LOC_EEC_OP_ERR:
        return "local end-to-end context error: not of a reliable connection";
    case IBV_WC_LOC_PROT_ERR:
        return "local protection error: the memory here is not registered for it";
    case IBV_WC_WR_FLUSH_ERR:
        return "flushed: the queue pair had failed before, or was closed by this side";
    case IBV_WC_MW_BIND_ERR:
        return "memory window bind error: the NIC does not bind this memory to a key";
    case IBV_WC_BAD_RESP_ERR:
        return "bad response: the other side's NIC answered something else than was asked";
    case IBV_WC_LOC_ACCESS_ERR:
        return "local access error: the memory here may not be written";
    case IBV_WC_REM_INV_REQ_ERR:
        return "remote invalid request: the other side's NIC cannot do it (length, alignment, or operation)";
    case IBV_WC_REM_ACCESS_ERR:
        return "remote access error: the other side refuses the key, the address or the length; "
               "or it has fenced this compute node";
    case IBV_WC_REM_OP_ERR:
        return "remote operation error: the other side's NIC failed to do it";
    case IBV_WC_RETRY_EXC_ERR:
        return "no answer, however often it was sent: the other side is gone, or the network drops packets "
               "(RoCE "
               "versions differ, MTU, firewall: UDP port 4791)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return "the other side is not ready to receive, however often it was sent";
    case IBV_WC_LOC_RDD_VIOL_ERR:
        return "local domain violation: not of a reliable connection";
    case IBV_WC_REM_INV_RD_REQ_ERR:
        return "remote invalid read request: not of a reliable connection";
    case IBV_WC_REM_ABORT_ERR:
        return "aborted: the other side gave the request up";
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
        return "invalid end-to-end context: not of a reliable connection";
    case IBV_WC_FATAL_ERR:
        return "fatal error: the NIC or its driver failed (dmesg says more)";
    case IBV_WC_RESP_TIMEOUT_ERR:
        return "response timeout: the other side did not answer in time";
    case IBV_WC_GENERAL_ERR:
        return "general error: the NIC's maker says what it means (dmesg may say more)";
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        return "tag matching error: not of this kind of queue pair";
    }
    return "unknown error: this libibverbs is newer than the program";
}
