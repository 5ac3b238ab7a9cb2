/*
 * listeners.h - the sockets on which the server accepts connections. Thread 0 accepts, and hands connections
 * out to the threads in turn.
 */
#ifndef SERVER_LISTENERS_H
#define SERVER_LISTENERS_H

#include "base/worker.h"
#include "net/net.h"
#include "server/server.h"

struct server_listener {
    struct worker_watch watch; /* first: the callback gets this */
    struct server *server;
    struct net_address address;
    int fd;
    bool tls, watched;
};

/* Of thread 0, but for the addresses, which do not change once they are open. */
struct server_listeners {
    struct server_listener *list;
    unsigned count;
    unsigned next_thread; /* gets the next connection */
    uint64_t retry_ns;    /* they rest until then: no descriptors were left; 0: they do not */
};

/* Binds the addresses of the options. BANYAN_EINVAL, BANYAN_EBUSY, BANYAN_ENET name the address. */
int listeners_open(struct server *server, const struct server_options *options, struct error *error);
/* Begins to accept. On thread 0. */
int listeners_watch(struct server *server, struct error *error);
/* On thread 0, at each tick: accepts again after a rest. */
void listeners_tick(struct server *server, uint64_t now);
/* On thread 0, or when no thread runs. Removes the files of Unix sockets. */
void listeners_close(struct server *server);

#endif
