/*
 * conformance_peers.h - the suite that every backend with compute nodes beside each other must pass: the
 * contract of fabric/peers.h, checked.
 *
 * A backend's test fills a struct conformance_way: how it makes compute nodes over CONFORMANCE_PEER_MEMORY
 * fresh memory nodes, how it runs tasks on them, and what it can do to them. What it cannot do is NULL, and
 * the cases that need it are left out. conformance_peers_run() opens, runs and closes for each case, with
 * the numbers of compute nodes that the case is about (at most CONFORMANCE_PEERS_MAX).
 *
 * Like conformance.c the suite uses no threads and no cmocka, tells time and waits by its tasks alone, and
 * collects failures. What it waits for must come within `patience_ns`.
 */
#ifndef TESTS_FABRIC_CONFORMANCE_PEERS_H
#define TESTS_FABRIC_CONFORMANCE_PEERS_H

#include "fabric/peers.h"

#define CONFORMANCE_PEERS_MAX   4
#define CONFORMANCE_PEER_MEMORY 2 /* memory nodes; node 0 is the home node */
#define CONFORMANCE_PEER_TASKS  64

struct conformance_task {
    unsigned compute;
    void (*function)(void *);
    void *argument;
};

struct conformance_way {
    const char *name;
    void *context;
    unsigned rounds;           /* repetitions of one task in the concurrent cases; 0: 200 */
    uint64_t read_lease_ns;    /* 0: it never lapses on this backend, and nothing can be fenced */
    uint64_t patience_ns;      /* longer than its time-outs and reconnects, and than several read leases */
    bool busy;                 /* its time is a machine's, which may keep any thread from running for long */
    bool peers_never_time_out; /* a request that no task receives waits for as long as its peer lives */

    /* Memory nodes like those of conformance.h, and so many compute nodes; fabrics[i] is compute node i's. 0,
     * or an error, after which close() is called all the same. */
    int (*open)(void *context, unsigned computes, struct fabric **fabrics);
    /* Runs the tasks concurrently, each on its compute node, and returns when none of them can go on. Those
     * of a compute node that was killed need not return. */
    void (*run)(void *context, const struct conformance_task *tasks, unsigned count);
    void (*close)(void *context);

    /* What follows may be NULL each. Called by tasks, of any compute node but the one it is about. */

    /* The compute node's connections to the memory node are lost; it is connected again by itself. */
    void (*lose)(void *context, unsigned compute, uint16_t node);
    /* The compute node sends no heartbeats for so long; its tasks stand still too, or do not. Its connections
     * stand all the same. */
    void (*stall)(void *context, unsigned compute, uint64_t ns);
    /* Nothing of the compute node reaches any other node from here on. If its tasks go on, all that they ask
     * of the fabric fails. */
    void (*kill)(void *context, unsigned compute);
    /* Waits until a killed compute node is fenced everywhere, then lets another process take its place and
     * its id. Called between two runs. 0 and *fabric, or an error. */
    int (*restart)(void *context, unsigned compute, struct fabric **fabric);
    /* The two do not reach each other, until it is healed. */
    void (*cut)(void *context, unsigned compute, unsigned other);
    void (*heal)(void *context, unsigned compute, unsigned other);
    /* The compute node has no address for peers from here on. */
    void (*hide)(void *context, unsigned compute);
};

/* Runs every case that the way can do; prints each failure to standard error. Returns how many failed. */
unsigned conformance_peers_run(const struct conformance_way *way);
/* The same for the cases whose name contains `part`; to run none is a failure. */
unsigned conformance_peers_run_some(const struct conformance_way *way, const char *part);

#endif
