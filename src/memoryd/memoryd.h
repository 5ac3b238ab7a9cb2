/*
 * memoryd.h - a memory node as a daemon: it serves its pool over TCP (with TLS if wanted) and Unix sockets,
 * keeps the leases of compute nodes, and frees the locks of compute nodes that were fenced or have left (G5,
 * G6). The protocol is fabric/wire.h.
 *
 * Called by `banyan memory`, benchmarks and tests. It has I/O threads of its own (io_uring, else epoll), and
 * one thread more for leases.
 */
#ifndef MEMORYD_H
#define MEMORYD_H

#include "memory/memory.h"
#include "net/net.h"

struct memoryd_disk;
struct verbs_options; /* fabric/verbs_device.h */

enum memory_engine { MEMORY_ENGINE_AUTO, MEMORY_ENGINE_IO_URING, MEMORY_ENGINE_EPOLL };

struct memoryd_options {
    const struct net_address *listen; /* TCP and Unix; copied */
    unsigned listen_count;
    unsigned unix_mode;  /* of Unix sockets' files; 0: 0700 */
    struct net_tls *tls; /* for TCP; NULL: plain */
    const char *secret;  /* NULL: none; copied */
    size_t secret_length;
    unsigned threads;                    /* 0: 1 */
    uint32_t lease_ms_min, lease_ms_max; /* what compute nodes may ask for; 0: 100, 60,000 */
    uint32_t connections_max;            /* 0: 4,096 */
    unsigned walk_threads;               /* that walk for compute nodes (walks.h); 0: none does */
    unsigned merge_threads;              /* that merge for them, and do nothing else; 0: those that walk do */
    int engine;                          /* enum memory_engine */
    bool busy_poll;                      /* I/O threads never sleep: for benchmarks */
    /* Compute nodes reach the memory through this NIC (RDMA), and in no other way; NULL: over the stream. The
     * NIC is the one of the first rdma:// address, else of the first TCP address. The memory node must have
     * locks as memoryd_locks chooses them. */
    const struct verbs_options *nic;
    /* What owners log is copied to this disk (memoryd/disk.h), which is the caller's, and of one daemon.
     * NULL: none. */
    struct memoryd_disk *disk;
};

/* Sets lock_width and lock_bytes of the memory node to what suits the NIC (memoryd_nic_locks), each if it is
 * 0; without a NIC it leaves both to memory_node_create. Opens the NIC: fails as memoryd_create does. */
int memoryd_locks(const struct memoryd_options *options, struct memory_options *memory, struct error *error);

struct memoryd;
/* Listens, and registers its services (memory/service.h): a node has one daemon at a time. BANYAN_EBUSY,
 * BANYAN_EINVAL, BANYAN_ENET with the address at fault; BANYAN_ENOTSUP: no io_uring here; or of the NIC
 * (verbs_device.h). */
int memoryd_create(struct memoryd **daemon, struct memory_node *node, const struct memoryd_options *options,
                   struct error *error);
/* Waits first until the read leases are over that a former life of a node with a file has granted. */
int memoryd_start(struct memoryd *daemon, struct error *error);
/* Any thread. */
void memoryd_stop(struct memoryd *daemon);
void memoryd_join(struct memoryd *daemon);
void memoryd_destroy(struct memoryd *daemon);
uint16_t memoryd_port(const struct memoryd *daemon, unsigned listener);
/* "io_uring" or "epoll". */
const char *memoryd_engine(const struct memoryd *daemon);
/* "mlx5_0 port 1, RoCE v2, ...": the NIC that serves the memory; NULL: none does. */
const char *memoryd_nic(const struct memoryd *daemon);

#endif
