/*
 * daemons.h - memory nodes in processes of their own, on this machine, for one benchmark run.
 *
 * Called from a plain thread while the process has no other: the daemons are forked from it. They end when
 * they are stopped, and with the process that started them.
 */
#ifndef BENCH_DAEMONS_H
#define BENCH_DAEMONS_H

#include <sys/types.h>

#include "memory/memory.h"
#include "net/net.h"

struct bench_daemon {
    pid_t pid;
    int leash; /* the daemon ends when this is closed */
};
struct bench_daemons {
    unsigned count;
    struct bench_daemon *daemons;
    struct net_address *addresses;
};

/* Each with a pool as `memory` says, listening on loopback TCP or on a Unix socket. bench_daemons_stop also
 * after a failure. */
int bench_daemons_start(struct bench_daemons *daemons, unsigned count, const struct memory_options *memory,
                        enum net_kind kind, struct error *error);
void bench_daemons_stop(struct bench_daemons *daemons);

#endif
