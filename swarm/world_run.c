/* world_run.c - runs one function as tasks of a world, on threads and fibers or in virtual time (contract:
 * world.h). */
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "base/worker.h"
#include "swarm/world_disks.h"
#include "swarm/world_parts.h"
#include "swarm/world_saves.h"

static void task_main(void *argument)
{
    struct world_task *task = argument;
    task->function(task);
    task->returned = true;
    world_maybe_done(task->world);
}

unsigned world_unfinished(const struct world *world)
{
    unsigned count = 0;
    for (unsigned i = 0; i < world->task_count; i++)
        count += !world->tasks[i].returned && sim_compute_alive(world->sim, (int)world->tasks[i].compute);
    for (unsigned i = 0; i < world->compute_count; i++) /* dead, and not fenced yet */
        count += !world->computes[i].dead && !sim_compute_alive(world->sim, (int)i);
    return count;
}

/* Keepers of ranges never return: the run is over without them. */
void world_maybe_done(struct world *world)
{
    if (world->options.ranges && world->sim && !world_unfinished(world))
        sim_stop(world->sim);
}

struct thread_run {
    struct world_task *first;
    unsigned count;
    int status;
};

static void thread_main(void *argument)
{
    struct thread_run *run = argument;
    if (run->count == 1) { /* a plain thread, as a user's own: the other way to run index code */
        task_main(run->first);
        return;
    }
    struct worker *worker = worker_create();
    run->status = worker ? 0 : BANYAN_ENOMEM;
    for (unsigned i = 0; i < run->count && !run->status; i++)
        run->status = worker_spawn(worker, task_main, run->first + i);
    if (worker) {
        worker_run(worker);
        worker_destroy(worker);
    }
}

static int run_local(struct world *world)
{
    unsigned fibers = world->options.fibers, count = world->task_count / fibers, started = 0;
    struct thread_run *runs = world_allocate(count, sizeof *runs);
    struct thread **threads = world_allocate(count, sizeof(struct thread *));
    int status = 0;
    for (; started < count && !status; started++) {
        runs[started] = (struct thread_run){.first = &world->tasks[started * fibers], .count = fibers};
        status = thread_start(&threads[started], thread_main, &runs[started], &world->error);
        if (status)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        thread_join(threads[i]);
        status = status ? status : runs[i].status;
    }
    free(threads);
    free(runs);
    return status;
}

int world_spawn(struct world *world, unsigned number)
{
    struct world_task *task = &world->tasks[number];
    return sim_spawn(world->sim, (int)task->compute, task->thread, task_main, task, &world->error);
}

int world_fail_stuck(struct world *world, unsigned stuck, unsigned first)
{
    char names[120] = "";
    for (unsigned i = first, used = 0; i < world->task_count && used < sizeof names - 8; i++)
        if (!world->tasks[i].returned && !world->computes[world->tasks[i].compute].dead)
            used += (unsigned)snprintf(names + used, sizeof names - used, " %u", i);
    return world_fail(world, BANYAN_ETIMEOUT, "%u tasks %s:%s", stuck,
                      sim_exhausted(world->sim) ? "used up the run's events"
                      : world->options.until_ns && sim_now(world->sim) >= world->options.until_ns
                          ? "used up the run's time"
                          : "wait for ever",
                      names);
}

static int run_simulated(struct world *world, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        if (world->tasks[i].returned || world->computes[world->tasks[i].compute].dead)
            continue;
        int status = world_spawn(world, i);
        if (status)
            return status;
    }
    unsigned stuck;
    bool again;
    sim_limit_events(world->sim, world->options.events_max);
    do {
        again = false;
        stuck = sim_run(world->sim, world->options.until_ns ? world->options.until_ns : UINT64_MAX);
        if (sim_exhausted(world->sim) && world_power_cut(world, &again))
            return 0;
    } while (again);
    for (unsigned i = 0; i < world->compute_count; i++)
        if (!sim_compute_alive(world->sim, (int)i))
            world->computes[i].dead = true;
    if (world->options.ranges)
        stuck = world_unfinished(world);
    return stuck == 0 ? 0 : world_fail_stuck(world, stuck, first);
}

static int run(struct world *world, unsigned first, unsigned count, void (*function)(struct world_task *task))
{
    world->function = count > 1 ? function : NULL;
    for (unsigned i = first; i < first + count; i++) {
        world->tasks[i].function = function;
        world->tasks[i].returned = world_saves_by(world, world->tasks[i].compute);
    }
    int status = 0;
    if (world->options.simulated)
        status = run_simulated(world, first, count);
    else if (count == 1)
        task_main(&world->tasks[first]);
    else
        status = run_local(world);
    world->function = NULL;
    if (!status && count == 1 && !world->off && !world->tasks[first].returned)
        return world_fail(world, BANYAN_EFENCED, "task %u died before it had done its work", first);
    return status ? status : world->error.code;
}

int world_run(struct world *world, void (*function)(struct world_task *task))
{
    return run(world, 0, world->task_count, function);
}

int world_run_one(struct world *world, unsigned task, void (*function)(struct world_task *task))
{
    return run(world, task, 1, function);
}
