/*
 * cluster.h - a small simulated cluster for tests: bare memory nodes (a pool and a lock region, an RPC that
 * echoes) and compute nodes, without any index. Every function fails the running test itself.
 */
#ifndef TESTS_SIM_CLUSTER_H
#define TESTS_SIM_CLUSTER_H

#include "fabric/fabric.h"
#include "sim/params.h"
#include "sim/sim.h"

#define CLUSTER_NODES_MAX  8
#define CLUSTER_POOL_BYTES ((uint64_t)1 << 20)
#define CLUSTER_LOCK_BYTES ((uint64_t)1 << 16)

struct cluster {
    struct sim *sim;
    unsigned memories, computes;
    struct fabric_target targets[CLUSTER_NODES_MAX];
    struct fabric_endpoint *endpoints[CLUSTER_NODES_MAX]; /* one per compute node */
    uint64_t calls;                                       /* RPCs served */
};

/* Parameters without jitter and with round CPU costs of nothing but posting: for tests of arithmetic. */
void cluster_plain_params(struct sim_params *params);
void cluster_create(struct cluster *cluster, unsigned memories, unsigned computes,
                    const struct sim_params *params, const struct sim_faults *faults, uint64_t seed);
void cluster_destroy(struct cluster *cluster);
/* The 8-byte word at an offset of a node's pool, as the node sees it. */
uint64_t *cluster_word(struct cluster *cluster, unsigned node, uint64_t offset);

/* Single commands, from inside a task; return the list's status. */
int cluster_read(struct fabric_endpoint *endpoint, gaddr address, void *buffer, uint32_t length);
int cluster_write(struct fabric_endpoint *endpoint, gaddr address, const void *data, uint32_t length);
int cluster_add(struct fabric_endpoint *endpoint, gaddr address, uint64_t add, uint64_t *old);

#endif
