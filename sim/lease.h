/*
 * lease.h - the read lease (fabric/peers.h: G7, G8) of each compute node, counted at both of its ends by
 * clocks that may drift: by its holder, and by the home node, memory node 0.
 *
 * Heartbeats leave every third of the lease, one at a time. They make no events: when one of the functions
 * below is called, those that have been due since are gone through, under what has held since then. So
 * whatever changes how they fare must call sim_lease_advance before it does: a loss, a stall, a death.
 * Heartbeats and echoes take no turn on the NICs' lanes.
 *
 * Called from tasks and from the event loop. Costs some nanoseconds, and some tens for each heartbeat that
 * was due. Cannot fail.
 */
#ifndef SIM_LEASE_H
#define SIM_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/queue.h"

struct sim;
struct sim_compute;

struct sim_lease {
    /* at the holder */
    sim_time sent;        /* of the heartbeats whose echo counts, when the last one left */
    sim_time unresumed;   /* the same of a connection that does not count yet; 0: none */
    uint64_t incarnation; /* echoes of connections to the home node up to this one count */
    uint64_t lapses;
    bool lapsed; /* since the last echo that counts, and it is counted in `lapses` */
    /* at the home node */
    sim_time received; /* the last heartbeat */
    sim_time ended;    /* the same when it fenced the process last */
    bool fenced;       /* it has done so */
    /* the heartbeat under way */
    enum { SIM_BEAT_NONE, SIM_BEAT_GOES, SIM_BEAT_COMES } beat;
    sim_time beat_sent, beat_next; /* next: when it is there; none under way: when the next is due */
    uint32_t beat_known;           /* its connection: what the link had lost when it left */
    uint64_t beats;
};

/* The compute node joins, now. */
void sim_lease_begin(struct sim *sim, struct sim_compute *compute);
/* Goes through the heartbeats up to the caller's time. */
void sim_lease_advance(struct sim *sim, struct sim_compute *compute);
/* The same for all compute nodes: the home node is about to change. */
void sim_lease_advance_all(struct sim *sim);
/* The home node fences the compute node, after sim_lease_advance; the compute node gets to know that it has
 * lost its connection to it. */
void sim_lease_fenced(struct sim_compute *compute);
void sim_lease_lost(struct sim *sim, struct sim_compute *compute);

bool sim_lease_alive(struct sim *sim, struct sim_compute *compute);
uint64_t sim_lease_lapses(struct sim *sim, struct sim_compute *compute);
void sim_lease_resume(struct sim *sim, struct sim_compute *compute, uint64_t incarnation);
/* Whether the lease that it had when the home node fenced it last is over, by the home node's count. */
bool sim_lease_over(struct sim *sim, struct sim_compute *compute);

#endif
