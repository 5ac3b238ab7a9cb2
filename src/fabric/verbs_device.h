/*
 * verbs_device.h - a NIC with RDMA (InfiniBand, RoCE v1 and v2), opened: which device, port and GID,
 * its limits, its memory registrations, and the states of its queue pairs. Both ends use it: compute nodes
 * (verbs_queue.h) and memory nodes (memoryd/nic.h).
 *
 * CHOICE. Without options the device and port are those that own the local address of the connection to the
 * other side (librdmacm), so `rdma://host:port` needs nothing more; where librdmacm does not know it, the
 * only device with an active port. The GID is the RoCE v2 one of that address, else any RoCE v2 one (IPv4's
 * before IPv6's, link-local ones last), else RoCE v1 in the same order; on InfiniBand index 0. The path MTU
 * is the port's. iWARP is refused: it has no atomics.
 *
 * Opening, registering and connecting wait for the kernel; on any thread. A device may be shared by threads.
 * Errors say what to do: BANYAN_ENOTSUP (no such device, no RDMA at all, no permission, iWARP, no atomics),
 * BANYAN_EINVAL (an option that the device cannot do), BANYAN_ENOMEM (locked memory: ulimit -l), BANYAN_ENET
 * (the port is down, no path).
 */
#ifndef FABRIC_VERBS_DEVICE_H
#define FABRIC_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"
#include "fabric/verbs_options.h"
#include "fabric/verbs_provider.h"
#include "fabric/wire.h"

struct verbs_limits {
    uint32_t queues;      /* queue pairs */
    uint32_t works;       /* requests under way on one */
    uint32_t completions; /* of one completion queue */
    uint32_t reads_taken; /* READs and atomics from the other side that a queue keeps under way */
    uint32_t reads_begun; /* ... to the other side */
    uint64_t message;     /* bytes of one request */
    uint64_t memory;      /* bytes of one registration */
};

struct verbs_device {
    struct ibv_context *context;
    struct ibv_pd *domain;
    const struct verbs_provider *provider;
    struct verbs_features features;
    struct verbs_limits limits;
    struct verbs_options options; /* `device` NULL */
    char name[64];
    uint8_t port;
    bool ethernet; /* RoCE */
    uint8_t gid[16];
    int gid_index;
    uint16_t lid;
    enum ibv_mtu mtu;
};

/* local: our address on the connection to the other end, or the one that is listened on; NULL or a wildcard:
 * any. */
int verbs_device_open(struct verbs_device **device, const struct verbs_options *options,
                      const struct sockaddr *local, struct error *error);
/* Everything made on it must be gone. NULL: does nothing. */
void verbs_device_close(struct verbs_device *device);
/* A path MTU in bytes. A WRITE that is no longer is one packet, which takes effect wholly or not at all (G5).
 */
uint32_t verbs_mtu_bytes(enum ibv_mtu mtu);

/* ibv_reg_mr with the reason when it fails; `what` is for the message. Never on-demand paging. */
int verbs_memory_register(const struct verbs_device *device, void *memory, uint64_t bytes, int access,
                          const char *what, struct ibv_mr **region, struct error *error);

/* ---- queue pairs: INIT, then RTR and RTS with the other end ---- */

/* Fills `ours` with this end: port, queue number, a random first PSN, limits. Brings the queue to
 * INIT with these rights for the other end (IBV_ACCESS_REMOTE_*, 0: none). */
int verbs_pair_begin(const struct verbs_device *device, struct ibv_qp *queue, int access,
                     struct wire_nic *ours, struct error *error);
/* Validates `theirs`, which comes from the network, and brings the queue to RTR and RTS. */
int verbs_pair_connect(const struct verbs_device *device, struct ibv_qp *queue, const struct wire_nic *ours,
                       const struct wire_nic *theirs, struct error *error);
/* "remote access error" and what that means, for messages about failed completions. */
const char *verbs_completion_reason(enum ibv_wc_status status);

#endif
