/*
 * simulated.h - what the tests of stores in the simulator have in common: worlds of random shapes, deaths and
 * lost connections in them, and what all of a test's worlds met. The test's thread.
 */
#ifndef TESTS_STORE_SIMULATED_H
#define TESTS_STORE_SIMULATED_H

#include "base/random.h"
#include "stores.h"

struct simulated_total {
    uint64_t runs, written, freed, retries, entries, deaths, losses, lost_bytes;
};

/* Hostile faults; how many nodes, threads and fibers there are is drawn. */
void simulated_options(struct world_options *options, struct random *random, uint64_t seed);
/* Connections will be lost; for simulated_run_losses. */
void simulated_options_losses(struct world_options *options, uint64_t seed);

/* All compute nodes but the first will die, at times that follow from the seed. */
int simulated_kill(struct world *world, uint64_t seed);
/* world_run while connections are lost; counts those. */
int simulated_run_losses(struct world *world, void (*work)(struct world_task *task),
                         struct simulated_total *total);

/* Adds a run that is over: all but its entries and its losses. */
void simulated_count(struct simulated_total *total, const struct stores *stores);

#endif
