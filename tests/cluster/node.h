/*
 * node.h - the test itself as a compute node of a cluster of processes, which speaks to the pool and keeps no
 * index. Failures are cmocka's.
 */
#ifndef TESTS_CLUSTER_NODE_H
#define TESTS_CLUSTER_NODE_H

#include "pool/pool.h"

struct node {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_worker *worker;
    struct pool_session session;
};

#define NODE_MEMORY_MAX 4u

/* `memory`: the addresses of all memory nodes, with commas between them. */
void node_open(struct node *node, const char *memory);
void node_close(struct node *node);

#endif
