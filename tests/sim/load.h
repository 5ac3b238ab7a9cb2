/*
 * load.h - tasks that repeat one command for ever, and what they get done: for tests of what hardware costs.
 * Called by tests, and from the simulated tasks. A failure fails the test.
 */
#ifndef TESTS_SIM_LOAD_H
#define TESTS_SIM_LOAD_H

#include "tests/sim/cluster.h"

#define RUN_NS 1000000 /* virtual */

struct load {
    struct fabric_endpoint *endpoint;
    struct fabric_command command; /* repeated for ever */
    uint64_t done, slowest;
};

/* A task's function; its argument is a struct load. */
void load_run(void *argument);
/* On the compute node's endpoint of the cluster. */
void load_spawn(struct cluster *cluster, struct load *load, unsigned compute, unsigned thread);
/* Commands, one for each task, whose addresses of memory node 0 begin at `offset`. */
void load_fill(struct fabric_command *commands, unsigned count, enum fabric_operation operation,
               uint32_t length, uint64_t offset, uint64_t stride);
/* Commands per virtual second that `count` tasks on `computes` nodes get done, at one memory node. */
double load_rate(const struct sim_params *params, const struct fabric_command *commands, unsigned count,
                 unsigned computes);
/* The time of every list of one command on idle hardware, without its memory access and its bytes. */
uint64_t load_idle_ns(const struct sim_params *params);

/* A limit is reached, and not exceeded. */
void load_assert_limit(double rate, double limit);
/* Within 3 %. */
void load_assert_near(double value, double expected);

#endif
