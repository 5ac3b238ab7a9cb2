/*
 * remote_lease.h - the read lease of this process at the home node (G7, peers.h), and the notices that come
 * from there.
 *
 * THE LEASE lasts until a moment of clock_boot_ns, which every look compares with the clock: nothing has to
 * run in this process for it to lapse. An echo on the present connection makes the end later: to when the
 * echoed heartbeat was sent, plus the read lease, less 1 %. The loss of that connection takes it away at
 * once. Echoes of a later connection are kept in `offered` until fabric_lease_resume.
 *
 * `end` is read by any thread; the rest is guarded by the home node's lock, but for `ns`, which is set before
 * the heartbeat's thread has the connection. The home node's number of milliseconds is the same for all
 * connections of a fabric.
 */
#ifndef FABRIC_REMOTE_LEASE_H
#define FABRIC_REMOTE_LEASE_H

#include "base/atomic.h"
#include "fabric/peers.h"

struct remote_node;

struct remote_lease {
    uint64_t end;     /* atomic: 0: there is none */
    uint64_t ns;      /* how long it lasts, as the home node said; 0: it gives none */
    uint64_t offered; /* the end by the present connection's echoes */
    uint64_t lapses;
    bool resumed; /* what is offered counts */
};

/* The first three: the home node's lock is held. */

/* A connection to the home node begins. `sent`: as in remote_node_join. */
void remote_lease_begin(struct remote_lease *lease, uint32_t read_lease_ms, uint64_t sent, bool again);
void remote_lease_lose(struct remote_lease *lease);
void remote_lease_extend(struct remote_lease *lease, uint64_t sent);
/* A heartbeat that was sent at `sent` on the group's connection was echoed. */
void remote_lease_echo(struct remote_node *home, uint64_t group, uint64_t sent);

bool remote_lease_alive(const struct fabric *fabric);
uint64_t remote_lease_lapses(const struct fabric *fabric);
void remote_lease_resume(struct fabric *fabric, uint64_t incarnation);

/* ---- notices ---- */

struct remote_notices {
    uint64_t greatest;    /* atomic */
    struct spinlock lock; /* guards what follows, and is held while `heard` runs */
    void (*heard)(void *context);
    void *context;
};
void remote_notices_take(struct remote_notices *notices, uint64_t number);
/* Calls the listener. */
void remote_notices_tell(struct remote_notices *notices);

uint64_t remote_notice(const struct fabric *fabric);
void remote_notice_listen(struct fabric *fabric, void (*heard)(void *context), void *context);

#endif
