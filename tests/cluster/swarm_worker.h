/*
 * swarm_worker.h - a compute node that is a program with the public library: opens the pool, drives its index
 * with the churn from several threads, records everything in shared memory, until it is told to stop, or
 * killed.
 *
 * A process of its own, started from the test's executable: swarm_worker_main(argc, argv) is its main, when
 * argv[1] is SWARM_WORKER.
 */
#ifndef TESTS_CLUSTER_SWARM_WORKER_H
#define TESTS_CLUSTER_SWARM_WORKER_H

#include "cluster/swarm_shared.h"
#include "swarm/plan.h"

#define SWARM_WORKER "--swarm-worker"

/* The rest of its arguments, in this order: descriptor, place, uri of the memory nodes, lease in ms, what to
 * do: "fill" (makes pool and index, puts in what is always there), "work" (until stopped), "read" (every key
 * once); and, for tests of the judges, "lose" or "age": "work", but one acknowledged write gets lost, one old
 * value is read. Then the file with the memory nodes' secret, if they have one. */
int swarm_worker_main(int argc, char **argv);
/* The workload of a seed: the part of its plan that says index and workload. To be freed. */
void swarm_worker_plan(uint64_t seed, struct swarm_plan *plan);

#endif
