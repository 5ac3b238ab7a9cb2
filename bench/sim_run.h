/*
 * sim_run.h - one run in the simulator: its compute nodes, their CPU threads and their clients. Between
 * runner_sim.c and map_sim.c.
 */
#ifndef BENCH_SIM_RUN_H
#define BENCH_SIM_RUN_H

#include "bench/client.h"
#include "fabric/peers.h"
#include "pool/pool.h"
#include "sim/sim.h"

struct bench_pool;
struct fail_sim;
struct log_sim;
struct map_sim;

struct sim_thread {
    struct sim_run *run;
    unsigned compute, number; /* number within the compute node */
    struct pool_worker *worker;
    unsigned running; /* of its tasks, those that have not ended */
};

struct sim_client {
    struct bench_client client;
    struct sim_thread *thread;
};

struct sim_compute {
    struct tree_compute *compute;
    struct tree *tree;
    struct store *store;       /* NULL: values stand in the index's slots */
    struct workload_part part; /* its range, where ownership divides the keys */
};

struct sim_run {
    const struct bench_config *config;
    struct workload_source *source;
    struct bench_pool *pool;
    struct sim *sim;
    struct bench_window window;
    struct spinlock lock;
    struct bench_meter meter; /* one OS thread runs all: one meter counts for all */
    struct sim_compute *computes;
    struct sim_thread *threads;
    struct sim_client *clients;
    struct fabric_process *owners; /* the compute nodes' processes */
    unsigned thread_count, client_count;
    unsigned clients_running, clients_left; /* that measure; that measure or read back */
    struct fail_sim *fail;                  /* NULL: no compute node dies */
    struct log_sim *logs;                   /* NULL: nothing is logged */
    struct map_sim *map;                    /* NULL: ranges do not move, and nothing is forwarded */
};

/* bench_window_fail with what the session says, if the status is an error. */
void sim_client_judge(struct sim_client *client, int status);

#endif
