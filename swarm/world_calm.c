/* world_calm.c - the faults of a simulated world end, and its connections begin and cease to be lost
 * (contract: world.h). */
#include "base/task.h"
#include "swarm/world_disks.h"
#include "swarm/world_drain.h"
#include "swarm/world_parts.h"

void world_calm(struct world *world)
{
    struct sim_faults none;
    struct error error;
    sim_faults_none(&none);
    sim_set_faults(world->sim, &none, &error);
    /* Deaths still to come are called off: the task that reads all keys at the end has to live. */
    for (unsigned i = 0; i < world->compute_count; i++)
        sim_kill_compute_at(world->sim, (int)i, 0, 0, NULL, NULL);
    for (unsigned i = 0; i < world->compute_count; i++)
        for (unsigned j = 0; j < i; j++)
            sim_heal_peers(world->sim, (int)i, (int)j);
    world->setting.patience_ns = world->options.patience_ns;
    world->setting.calm_ns = sim_now(world->sim);
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_refuse(world->memory[i], 0);
    world_drain_calm(world);
    world_disks_calm(world);
}

static void after_loss(void *argument, int compute, int memory)
{
    struct world *world = argument;
    memory_node_release_locks(world->memory[memory],
                              world->computes[compute].fabric->capabilities.compute_id);
}

void world_begin_losses(struct world *world)
{
    world->mended = false;
    sim_on_loss(world->sim, after_loss, world);
}

static void wait_long(struct world_task *task)
{
    task_sleep(2 * (uint64_t)task->world->options.faults.lose_ns + 1000);
    world_ranges_settle(task);
}

int world_end_losses(struct world *world)
{
    sim_on_loss(world->sim, NULL, NULL);
    int status = world_run(world, wait_long);
    world->mended = true;
    return status;
}
