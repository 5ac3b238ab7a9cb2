/*
 * daemon.h - memory nodes in processes of their own, for tests: the test's own program started again as a
 * daemon (so nothing is forked from a process with threads), and a proxy that can cut connections.
 *
 * A test's main() first calls daemon_main(). A daemon ends when it is told to or when its test is gone.
 * Whatever fails to start aborts the test.
 */
#ifndef TESTS_FABRIC_DAEMON_H
#define TESTS_FABRIC_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/net.h"

struct daemon_options {
    uint16_t number;
    bool unformatted;
    uint16_t port;                 /* 0: the system chooses */
    const char *secret;            /* NULL: none */
    const char *certificate, *key; /* TLS on TCP; NULL: plain */
    uint64_t pool_bytes, chunk_bytes, lock_bytes;
    uint32_t lease_ms_min, connections_max;
    /* Serves its pool through the NIC of the address in BANYAN_RDMA_ADDRESS, and listens there;
     * without that variable the test aborts. */
    bool rdma;
};
/* True where tests can have RDMA. */
bool daemon_has_rdma(void);
struct daemon {
    pid_t pid;
    int leash;                     /* it ends when this is closed */
    struct net_address tcp, local; /* tcp.rdma: as asked for */
};
/* If this process was started to be a daemon, is one until its end, and exits. */
void daemon_main(int count, char **arguments);
void daemon_start(struct daemon *daemon, const struct daemon_options *options);
/* SIGKILL; waits for its end. Of one that has ended already: does nothing. */
void daemon_kill(struct daemon *daemon);
/* After SIGSTOP it has stopped. */
void daemon_signal(const struct daemon *daemon, int signal);

struct proxy;
/* Passes connections on to `to`. */
struct proxy *proxy_start(const struct net_address *to);
/* Takes the place of a Unix socket that a process listens at: connections to its path come through the proxy
 * from here on. The socket itself is at the path with ".in" behind it, until proxy_stop. */
struct proxy *proxy_before(const struct net_address *socket);
struct net_address proxy_address(const struct proxy *proxy);
/* Closes all connections; later ones are refused until proxy_open(). */
void proxy_cut(struct proxy *proxy);
void proxy_open(struct proxy *proxy);
/* Cuts the one connection that was opened as the number-th (from 0) since the last call of proxy_open. */
void proxy_cut_one(struct proxy *proxy, unsigned number);
/* Connections from the number-th on are accepted, and never hear anything. */
void proxy_hang(struct proxy *proxy, unsigned number);
/* How many connections were opened since the last call of proxy_open; *last: whether the last one of them is
 * open still. */
unsigned proxy_opened(struct proxy *proxy, bool *last);
/* While it holds, what comes in stays where it is; all of it is passed on afterwards. */
void proxy_hold(struct proxy *proxy, bool hold);
void proxy_stop(struct proxy *proxy);

#endif
