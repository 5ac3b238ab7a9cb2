/*
 * swarm_shared.h - what a conductor and its worker processes share: a file in memory, mapped at the same
 * address by all, with the history's clock, a place for every worker process that there ever was, and their
 * logs. The log of a killed process stays; the outcome of its last operation is unknown.
 *
 * The conductor makes it and hands the descriptor on; workers take a place each. Words that both sides write
 * are atomic; the logs are their process's until it is gone or paused.
 */
#ifndef TESTS_CLUSTER_SWARM_SHARED_H
#define TESTS_CLUSTER_SWARM_SHARED_H

#include <stdbool.h>
#include <stdint.h>
#include "swarm/history.h"

#define SHARED_PLACES  400u    /* processes, over the whole run */
#define SHARED_THREADS 3u      /* of each */
#define SHARED_LOG     240000u /* operations that a thread records, at most; then it rests */
/* It records so many for each deed at most. It rests when it is ahead: a process that no deed hits is at work
 * until the last one then. */
#define SHARED_PACE 1200u

enum shared_order { SHARED_RUN, SHARED_PAUSE, SHARED_STOP };

struct shared_thread {
    struct history_log log;
    uint64_t
        operations; /* answered; the rest: as in struct driver. Relaxed: they are looked at, nothing more */
    uint64_t unreachable, unknown, longest_ns;
    uint32_t paused; /* waits between two operations; release */
};

struct shared_place {
    uint32_t threads; /* 0: not taken yet */
    uint32_t server;  /* which of the compute nodes it was */
    char wrong[300];  /* what it found to be wrong; "" if nothing */
    uint32_t failed;  /* release: `wrong` is written */
    struct shared_thread thread[SHARED_THREADS];
};

struct shared {
    struct history history;
    uint64_t seed;
    uint32_t logged;  /* the compute nodes keep logs */
    uint32_t order;   /* enum shared_order, for all */
    uint32_t places;  /* taken so far: the conductor counts them up before it starts a process */
    uint64_t calm_ns; /* nothing is done to the cluster from here on; 0: not so */
    uint64_t patience_ns;
    uint32_t forget;   /* counts: longest waits so far do not matter any more */
    uint32_t underway; /* the deeds begin: until then a thread that is ahead goes on, slowly */
    uint64_t allowed;  /* operations that a thread may have recorded by now */
    struct shared_place place[SHARED_PLACES];
    struct history_op ops[SHARED_PLACES][SHARED_THREADS][SHARED_LOG];
};

/* A descriptor that started programs inherit, mapped. What should never fail ends the process with a message.
 */
struct shared *shared_create(int *descriptor);
struct shared *shared_map(int descriptor);
void shared_destroy(struct shared *shared, int descriptor);

#endif
