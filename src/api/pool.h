/*
 * pool.h - what stands behind a pool's handle. Private to src/api/.
 *
 * Any thread. The counts are changed through api_count; they turn a wrong order of closing into BANYAN_EBUSY.
 */
#ifndef API_POOL_H
#define API_POOL_H

#include "api/common.h"
#include "base/atomic.h"
#include "fabric/remote.h"
#include "memory/memory.h"
#include "net/net.h"
#include "owner/process.h"
#include "tree/tree.h"

struct banyan {
    /* in this process */
    struct memory_node **nodes;
    const struct fabric_target **targets; /* of nodes; used by the fabric as long as it lives */
    uint16_t node_count;
    /* a cluster's */
    struct net_address *addresses; /* [node_count] */
    struct net_tls *tls, *peer_tls;
    struct net_address peers;
    char *secret; /* NET_SECRET_MAX + 1 bytes */
    struct fabric_remote_options remote;

    struct owner_process *owner; /* NULL: a pool in this process */

    struct fabric *fabric;
    struct tree_compute *compute;
    bool wants_ranges;
    uint32_t sessions, indexes;  /* open */
    struct spinlock attachments; /* guards the lists of struct api_attachment */
    struct spinlock opening;     /* guards `opened`; held over round trips (opened.c) */
    struct api_opened *opened;
};

#endif
