/*
 * sim.h - the simulated world: virtual time, network cards, faults, one thread, one seed.
 *
 * Every client thread of every compute node is a fiber of one OS thread; time passes only when all of
 * them wait. The same seed, parameters and program give the same run, bit for bit: nothing here depends
 * on addresses, the wall clock or the order of a hash table.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/options.h"
#include "base/task.h"
#include "fabric/fabric.h"

struct sim;

/* The card and CPU model: every parameter is named, documented with its source and settable
 * (sim_params_table). */
struct sim_params; /* defined in sim/params.h */
struct sim_faults; /* defined in sim/params.h */

struct sim *sim_create(const struct sim_params *params, const struct sim_faults *faults, uint64_t seed,
                       struct error *error);
/* Drops every fiber as it stands, closes every fabric made by sim_connect. */
void sim_destroy(struct sim *sim);

/* Adds a memory node, its number is the order of adding. The target must outlive the world. */
int sim_add_memory(struct sim *sim, const struct fabric_target *target, struct error *error);
/* Adds a compute node (with a card of its own); returns its index from 0, or a negative error. */
int sim_add_compute(struct sim *sim, struct error *error);
/* The compute node's fabric; owned by the world. Its compute_id is index + 1. */
struct fabric *sim_fabric(struct sim *sim, int compute);

/* Starts a task on a compute node's CPU thread (thread numbers are per compute node, made on first use;
 * fibers of one thread share its CPU: charged work of one delays the others). Runs when sim_run is called. */
int sim_spawn(struct sim *sim, int compute, unsigned thread, void (*function)(void *), void *argument,
              struct error *error);
/* Runs until no task can run any more (all returned, or all wait for ever), or virtual time reaches `until`
 * (ns; UINT64_MAX: no limit). Returns the number of tasks that have not returned (dead nodes' tasks not
 * counted). */
unsigned sim_run(struct sim *sim, uint64_t until);
uint64_t sim_now(const struct sim *sim);
uint64_t sim_events(const struct sim *sim);
/* A hash over every event so far (time, kind, list contents): equal for equal runs. */
uint64_t sim_trace_hash(const struct sim *sim);
struct random *sim_random(struct sim *sim);

/* Runs function(argument) at the given virtual time, outside of any task. */
int sim_at(struct sim *sim, uint64_t time, void (*function)(void *), void *argument);
/* The compute node dies now: its tasks never run again, its lists under way are cut between two commands or,
 * in a WRITE longer than atomic_write, anywhere; after `lease_ns` the `fenced` callback runs (there the test
 * calls memory_node_release_locks). */
void sim_kill_compute(struct sim *sim, int compute, uint64_t lease_ns, void (*fenced)(void *),
                      void *argument);
/* Connections may be lost from now on (sim_faults.lose): `lost` runs when the memory node has fenced the
 * compute node, which goes on living (there the test calls memory_node_release_locks). NULL: no more losses.
 */
void sim_on_loss(struct sim *sim, void (*lost)(void *, int compute, int memory), void *argument);
/* Connections lost so far. */
uint64_t sim_losses(const struct sim *sim);
bool sim_compute_alive(const struct sim *sim, int compute);

#endif
