/*
 * world_parts.h - functions that the files of a world (world.h) share: world.c, world_build.c,
 * world_run.c, world_death.c, world_calm.c and world_check.c. No other file includes it. Called by the test's
 * thread, and by tasks and events of the simulator while that thread runs them.
 */
#ifndef SWARM_WORLD_PARTS_H
#define SWARM_WORLD_PARTS_H

#include "swarm/world.h"
#include "swarm/world_ranges.h"

/* Zeroed; aborts where this process has no memory. */
void *world_allocate(size_t count, size_t bytes);
/* Tasks of each compute node. */
static inline unsigned world_tasks_each(const struct world *world)
{
    return world->options.threads * world->options.fibers;
}
/* A session's failure becomes the world's. Returns the status. */
int world_session_status(struct world_task *task, int status, const char *what);

/* world_build.c, in this order; each returns 0, or a negative error that world->error tells. */
int world_build_memory(struct world *world);
int world_build_fabrics(struct world *world);
int world_build_computes(struct world *world);
int world_build_tasks(struct world *world);
int world_build_index(struct world *world);
/* One of them: its fabric is there. */
int world_build_compute(struct world *world, struct world_compute *compute);
int world_build_task(struct world *world, unsigned number);
/* The compute node has opened the index: its tasks get at it. */
int world_equip_tasks(struct world *world, unsigned compute);
/* Sets the shape of keys and values, from the geometry. */
void world_set_shape(struct world *world);

/* world_run.c. Simulated: the task begins when the simulator runs. */
int world_spawn(struct world *world, unsigned task);
/* Tasks that have not returned, of compute nodes that live, and dead ones that are not fenced yet. */
unsigned world_unfinished(const struct world *world);
/* A task has returned, or a compute node has died: perhaps the run is over. */
void world_maybe_done(struct world *world);
/* Fails because so many of the tasks from `first` on have not returned. */
int world_fail_stuck(struct world *world, unsigned stuck, unsigned first);

/* world_death.c */
bool world_any_dead(const struct world *world);
/* Whether it is one of the processes of the compute nodes that live. */
bool world_process_lives(const struct world *world, struct fabric_process process);
void world_events_free(struct world *world);

#endif
