/*
 * ways.h - how the conformance suite gets to memory nodes in processes of their own: a way says what stands
 * between, and ways_conform runs the whole suite over it, by fibers of workers or by plain threads.
 *
 * The program's main() first calls daemon_main() (daemon.h). A case that fails fails the cmocka test.
 */
#ifndef TESTS_FABRIC_WAYS_H
#define TESTS_FABRIC_WAYS_H

#include "conformance.h"
#include "daemon.h"

struct way {
    const char *name;
    bool unix_sockets, copy, mixed, proxied; /* mixed: odd nodes over TCP */
    bool rdma;                               /* not unix_sockets */
    const char *secret;
    struct net_tls *tls;
    const char *certificate, *key;
    /* of a run */
    struct daemon daemons[CONFORMANCE_NODES_MAX];
    struct proxy *proxies[CONFORMANCE_NODES_MAX];
    uint16_t count;
};

/* `part`: the cases whose name contains it; NULL: all. */
void ways_conform(struct way way, const char *part, bool fibers, unsigned rounds);
/* With TLS, certificates made on the spot. */
void ways_conform_tls(struct way way, const char *part, bool fibers, unsigned rounds);

#endif
