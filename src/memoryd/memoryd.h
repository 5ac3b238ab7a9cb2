/*
 * server.h - a memory node as a daemon: it serves its pool over TCP (TLS where wanted) and Unix sockets,
 * keeps the leases of compute nodes, and frees the locks of those that are gone (G5, G6; fabric/wire.h is the
 * protocol).
 *
 * Called by `banyan memory` and tests. A few I/O threads of its own (io_uring, else epoll), one more for
 * leases.
 */
#ifndef MEMORY_SERVER_H
#define MEMORY_SERVER_H

#include "memory/memory.h"
#include "net/net.h"

struct verbs_options; /* fabric/verbs_device.h */

enum memory_engine { MEMORY_ENGINE_AUTO, MEMORY_ENGINE_IO_URING, MEMORY_ENGINE_EPOLL };

struct memory_server_options {
    const struct net_address *listen; /* TCP and Unix; copied */
    unsigned listen_count;
    unsigned unix_mode;  /* of Unix sockets' files; 0: 0700 */
    struct net_tls *tls; /* for TCP; NULL: plain */
    const char *secret;  /* NULL: none; copied */
    size_t secret_length;
    unsigned threads;                    /* 0: 1 */
    uint32_t lease_ms_min, lease_ms_max; /* what compute nodes may ask for; 0: 100, 60,000 */
    uint32_t connections_max;            /* 0: 4,096 */
    int engine;                          /* enum memory_engine */
    bool busy_poll;                      /* never sleep: for benchmarks */
    /* Compute nodes get at the memory through this network card (RDMA), and in no other way; NULL: over the
     * stream. The card is chosen by the first rdma:// address, else by the first of TCP. Needs a memory node
     * with locks as memory_server_locks says. */
    const struct verbs_options *card;
};

/* Chooses what is 0 of the memory node's lock_width and lock_bytes by the card (server_card_locks); without
 * one it leaves them to memory_node_create. Opens the card: fails as memory_server_create does. */
int memory_server_locks(const struct memory_server_options *options, struct memory_options *memory,
                        struct error *error);

struct memory_server;
/* Listens. BANYAN_EBUSY, BANYAN_EINVAL, BANYAN_ENET with the address at fault; BANYAN_ENOTSUP: no io_uring
 * here; or of the card (verbs_device.h). */
int memory_server_create(struct memory_server **server, struct memory_node *node,
                         const struct memory_server_options *options, struct error *error);
int memory_server_start(struct memory_server *server, struct error *error);
/* Any thread. */
void memory_server_stop(struct memory_server *server);
void memory_server_join(struct memory_server *server);
void memory_server_destroy(struct memory_server *server);
uint16_t memory_server_port(const struct memory_server *server, unsigned listener);
/* "io_uring" or "epoll". */
const char *memory_server_engine(const struct memory_server *server);
/* "mlx5_0 port 1, RoCE v2, ...": the network card that serves the memory; NULL: none does. */
const char *memory_server_card(const struct memory_server *server);
/* memory_node_status with the daemon's fields filled in. Any thread. */
void memory_server_status(struct memory_server *server, struct memory_status_reply *status);

#endif
