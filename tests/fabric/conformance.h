/*
 * conformance.h - one suite that every backend of the fabric must pass: the contract of fabric.h, checked.
 *
 * A backend's test fills a struct conformance_backend and calls conformance_run(). For each case the suite
 * makes fresh memory nodes, opens a fabric to them, runs tasks on it and closes it. It asks for nothing but
 * the contract: data that a READ returned in place is copied before it is validated, READs are never expected
 * in order.
 *
 * The suite itself uses no threads and no cmocka: failures are collected and printed, never thrown, since a
 * task may run on any kind of stack.
 */
#ifndef TESTS_FABRIC_CONFORMANCE_H
#define TESTS_FABRIC_CONFORMANCE_H

#include "fabric/fabric.h"

struct conformance_backend {
    const char *name;
    void *context;   /* given to the callbacks */
    unsigned rounds; /* repetitions of one task in the concurrent cases; 0: 2,000 */

    /* A fabric to the given memory nodes (at most CONFORMANCE_NODES_MAX), which outlive it. NULL: failed. */
    struct fabric *(*open)(void *context, const struct fabric_target *const *targets, uint16_t count);
    /* Runs functions[i](arguments[i]) for all i < count as concurrent tasks and returns when none of them can
     * go on (the suite finds out itself whether all returned). Each task opens an endpoint of its own. May be
     * called several times between open and close. */
    void (*run)(void *context, struct fabric *fabric, void (*const *functions)(void *),
                void *const *arguments, unsigned count);
    /* Closes what open made. */
    void (*close)(void *context, struct fabric *fabric);
    /* May be NULL: makes the fabric lose its connections to the memory node, which stays what it is and can
     * be reached again. */
    void (*lose)(void *context, struct fabric *fabric, uint16_t node);
};

/* What the suite's memory nodes are like, for backends that ignore `targets` and start their own: number i is
 * node i, fresh for each case. */
#define CONFORMANCE_POOL_BYTES  (UINT64_C(4) << 20)
#define CONFORMANCE_CHUNK_BYTES (UINT64_C(64) << 10)
#define CONFORMANCE_LOCK_BYTES  UINT64_C(4096)

#define CONFORMANCE_NODES_MAX 4
#define CONFORMANCE_TASKS_MAX 64

/* Runs every case; prints each failure to standard error. Returns how many cases failed. */
unsigned conformance_run(const struct conformance_backend *backend);
/* The same for the cases whose name contains `part`. */
unsigned conformance_run_some(const struct conformance_backend *backend, const char *part);

#endif
