/*
 * defrag.h - active defragmentation: a fiber of thread 0 that empties sparse chunks of the memory nodes
 * (store/defrag.h), within a share of that thread's time, and what INFO and CONFIG show of it.
 *
 * It works while the free space of partly used chunks is much (the thresholds, in Redis's names), at a share
 * between cycle_min and cycle_max, the higher the more it is; and at DEFRAG_URGENT_SHARE for some seconds
 * after a write was refused for want of space.
 */
#ifndef SERVER_DEFRAG_H
#define SERVER_DEFRAG_H

#include <stdint.h>

#include "store/defrag.h"

struct server;

/* Percent of thread 0's time while writes are being refused. */
#define DEFRAG_URGENT_SHARE 50u

/* Any thread; relaxed: each is a number by itself, and orders nothing. */
struct server_defrag {
    /* CONFIG's */
    uint64_t active;                           /* activedefrag: 0 or 1 */
    uint64_t ignore_bytes;                     /* less fragmented space than this is let be */
    uint64_t threshold_lower, threshold_upper; /* percent of fragmented to used bytes */
    uint64_t cycle_min, cycle_max;             /* percent of the time of a thread */
    /* INFO's */
    uint64_t running;    /* percent; 0: nothing is being emptied */
    uint64_t since_ns;   /* running since; 0: it is not */
    uint64_t time_ns;    /* in all, that it was running */
    uint64_t refused_ns; /* when a write was last refused for want of space; 0: never */
    struct store_defrag_counts counts;
    uint64_t merges; /* sparse leaves that gave their entries to a neighbour */
};

void server_defrag_init(struct server_defrag *defrag, bool active);
/* A command was refused for want of space. Any thread. */
void server_defrag_refused(struct server *server);
/* A fiber of thread 0. argument: struct server_thread. */
void defrag_main(void *thread);

#endif
