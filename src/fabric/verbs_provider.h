/*
 * verbs_provider.h - the seam between the verbs backend and what differs between makers of NICs:
 * what a NIC can do beyond the InfiniBand specification, how its queue pairs are made, and how a list of
 * work requests is handed to it with one doorbell.
 *
 *  verbs_plain.c   libibverbs alone: every NIC, and Soft-RoCE
 *  verbs_mlx5.c    NVIDIA/Mellanox ConnectX-4 and later: locks in device memory, masked compare-and-swap
 *
 * A provider is chosen when a device is opened (verbs_device.h): the first that knows it, the plain one last.
 * `post` is the one place where work reaches a NIC, so its calls are the doorbells. Called
 * on the thread that owns the queue; no allocation, no lock of ours; a system call only where the provider's
 * own library makes one (Soft-RoCE does, for its doorbell).
 */
#ifndef FABRIC_VERBS_PROVIDER_H
#define FABRIC_VERBS_PROVIDER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "fabric/fabric.h"

/* One work request: a command, or a part of a command that is longer than the NIC's longest message. */
struct verbs_work {
    uint64_t id; /* comes back with the completion */
    enum fabric_operation operation;
    bool signalled;  /* it has a completion; only the last of a list does */
    bool inlined;    /* WRITE: the bytes at `local` go into the request itself; `local_key` is not used */
    bool masked;     /* CAS: only the bits of `mask`; needs features.masked_cas */
    uint32_t length; /* bytes; atomics: 8 */
    uint64_t local;  /* where the bytes come from or go to */
    uint32_t local_key;
    uint32_t remote_key;
    uint64_t remote;
    uint64_t compare, swap, mask; /* CAS; FAA: swap is the addend */
};

#define VERBS_WORKS_MAX 256u /* of one post */

/* What a provider needs to build requests without memory of its own: one a queue. */
struct verbs_scratch {
    struct ibv_send_wr requests[VERBS_WORKS_MAX];
    struct ibv_sge places[VERBS_WORKS_MAX];
};

struct verbs_features {
    bool masked_cas;        /* 64-bit CAS under a mask, on the initiator's side and on the responder's */
    bool release_by_write;  /* G3: in device memory a WRITE to a word under CAS is safe */
    bool windows;           /* memory windows of type 2: keys that die with their queue pair */
    uint64_t device_memory; /* bytes that ibv_alloc_dm can give; 0: none */
};

struct verbs_provider {
    const char *name;
    bool (*knows)(struct ibv_device *device);
    /* What the open device can do. Never fails: a feature that cannot be asked for counts as absent. */
    void (*features)(struct ibv_context *context, struct verbs_features *features);
    /* Like ibv_create_qp: fills attributes->cap with what was granted. NULL: errno says why. `masked`: masked
     * compare-and-swap will be posted. */
    struct ibv_qp *(*queue_create)(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes, bool masked);
    /* Hands count (1 to VERBS_WORKS_MAX) requests over, in their order, with one doorbell. 0 or an errno;
     * after an error any part of them may have been done or not, and the queue must be given up. */
    int (*post)(struct ibv_qp *queue, const struct verbs_work *works, uint32_t count,
                struct verbs_scratch *scratch);
};

extern const struct verbs_provider verbs_plain;
/* NULL where this program was built without mlx5dv. */
const struct verbs_provider *verbs_mlx5(void);

#endif
