/*
 * load.h - a mixed load on two servers of one cluster that knows at every moment what may be read.
 *
 * Client threads, some on each server. Each key is written by one thread, one command at a time, and its
 * model holds what it may be now: one value after an acknowledged write, several while the outcome of writes
 * is unknown (the connection died with the command in flight, or the reply was -UNKNOWN); -CLUSTERDOWN
 * promises that nothing was changed. A value names its writer and is checked to the last byte, by that writer
 * and by readers on the other server; a reader must never see a key go back. Some keys are written by all
 * threads; their histories are judged for linearizability in the end.
 *
 * An error ends the test program with a message (fail_hard). Calls from the scene's thread.
 */
#ifndef TESTS_CLUSTER_LOAD_H
#define TESTS_CLUSTER_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include "net/net.h"

#define LOAD_SERVERS 2u

struct load_options {
    struct net_address servers[LOAD_SERVERS];
    unsigned threads; /* on each server */
    unsigned keys;    /* of each thread: values */
    uint64_t seed;
};
struct load_figures { /* so far, of one server */
    uint64_t operations, unknown, refused, disconnected;
    uint64_t longest_ns; /* since load_forget_longest */
    char longest[64];    /* what took that long */
    char refusal[160];   /* the last one's words; "": none */
};

struct load;
struct load *load_start(const struct load_options *options);
void load_figures(const struct load *load, unsigned server, struct load_figures *figures);
void load_forget_longest(struct load *load);
/* Waits until each server owns a share of the key ranges. */
void load_wait_divided(struct load *load);
/* Waits until so many operations more were answered by each server. */
void load_advance(struct load *load, uint64_t operations);
/* From now on the shared keys are others: keeps histories short. */
void load_next_epoch(struct load *load);
/* Between two commands of every thread; both servers must be up. */
void load_pause(struct load *load);
void load_resume(struct load *load);
/* While paused: every key as both servers see it. */
void load_verify(struct load *load);
/* Ends the threads and judges the shared keys' histories. */
void load_stop(struct load *load);

#endif
