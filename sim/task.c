/*
 * task.c - tasks in virtual time, and the CPU threads that they share (contract: task.h).
 *
 * A task is a fiber. It runs until it waits; then the event loop (loop.c) goes on. An event that ends a
 * task's wait resumes the fiber from the loop itself, so that a list costs two events and one switch to the
 * fiber and back.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/fiber.h"
#include "sim/node.h"
#include "sim/state.h"
#include "sim/task.h"

#define STACK_BYTES ((size_t)256 * 1024) /* touched as far as used */

static struct sim_task *task_of(struct task *task)
{
    return (struct sim_task *)task;
}

static void run_task(struct sim *sim, struct sim_task *task)
{
    struct sim_cpu *cpu = task->cpu;
    assert(cpu->busy <= sim->now);
    cpu->busy = sim->now;
    sim->current = task;
    task_set_self(&task->task);
    bool more = fiber_resume(task->fiber);
    sim->current = NULL;
    if (!more) {
        fiber_destroy(task->fiber);
        task->fiber = NULL;
        task->compute->live_tasks--;
        sim->live_tasks--;
    }
    if (cpu->ready_first && !cpu->scheduled) {
        cpu->scheduled = true;
        sim_push(sim, cpu->busy, SIM_EVENT_CPU, cpu, 0, task->compute->index);
    }
}

void sim_task_ready(struct sim *sim, struct sim_task *task)
{
    struct sim_cpu *cpu = task->cpu;
    if (sim->stalling && sim_resume_late(sim, task))
        return;
    if (cpu->busy <= sim->now && !cpu->ready_first) {
        run_task(sim, task);
        return;
    }
    task->next_ready = NULL;
    if (cpu->ready_first)
        cpu->ready_last->next_ready = task;
    else
        cpu->ready_first = task;
    cpu->ready_last = task;
    if (!cpu->scheduled) {
        cpu->scheduled = true;
        sim_push(sim, sim_later(cpu->busy, sim->now), SIM_EVENT_CPU, cpu, 0, task->compute->index);
    }
}

void sim_run_cpu(struct sim *sim, struct sim_cpu *cpu)
{
    struct sim_task *task = cpu->ready_first;
    if (cpu->busy > sim->now) { /* it has been made to stand still since */
        sim_push(sim, cpu->busy, SIM_EVENT_CPU, cpu, 0, task->compute->index);
        return;
    }
    cpu->scheduled = false;
    cpu->ready_first = task->next_ready;
    run_task(sim, task);
}

void sim_task_suspend(struct sim_task *task)
{
    assert(task->sim->current == task);
    (void)task;
    fiber_suspend();
}

void sim_resume_at(struct sim_task *task, sim_time time)
{
    sim_push(task->sim, time, SIM_EVENT_RESUME, task, 0, task->compute->index);
}

static void task_park_here(struct task *self)
{
    struct sim_task *task = task_of(self);
    if (!task->permit) {
        task->parked = true;
        sim_task_suspend(task);
    }
    task->permit = false;
}

static void task_unpark_here(struct task *other)
{
    struct sim_task *task = task_of(other);
    if (task->compute->dead || task->permit)
        return;
    task->permit = true;
    if (task->parked) {
        task->parked = false;
        sim_resume_at(task, sim_effective(task->sim));
    }
}

static void task_yield_here(struct task *self)
{
    struct sim_task *task = task_of(self);
    task->cpu->busy += task->sim->model.yield;
    sim_resume_at(task, task->cpu->busy);
    sim_task_suspend(task);
}

static void task_sleep_here(struct task *self, uint64_t nanoseconds)
{
    struct sim_task *task = task_of(self);
    sim_resume_at(task, sim_after(task->cpu->busy, nanoseconds));
    sim_task_suspend(task);
}

static uint64_t task_now_here(struct task *self)
{
    struct sim_task *task = task_of(self);
    task->cpu->busy += task->sim->model.clock;
    return task->cpu->busy / SIM_NANOSECOND;
}

static void task_charge_here(struct task *self, enum task_work work, uint32_t units)
{
    struct sim_task *task = task_of(self);
    task->cpu->busy += task->sim->model.work[work] * units;
}

static uint32_t task_thread_here(struct task *self)
{
    return task_of(self)->cpu->number + 1;
}

static const struct task_ops task_operations = {
    .park = task_park_here,
    .unpark = task_unpark_here,
    .yield = task_yield_here,
    .sleep = task_sleep_here,
    .now = task_now_here,
    .charge = task_charge_here,
    .thread = task_thread_here,
};

static void task_main(void *argument)
{
    struct sim_task *task = argument;
    task->function(task->argument);
}

static struct sim_cpu *cpu_of(struct sim_compute *compute, unsigned number)
{
    for (struct sim_cpu *cpu = compute->cpus; cpu; cpu = cpu->next)
        if (cpu->number == number)
            return cpu;
    struct sim_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return NULL;
    if (!sim_queue_claim(&compute->sim->queue, 1)) {
        free(cpu);
        return NULL;
    }
    cpu->number = number;
    cpu->busy = compute->stalled_until;
    cpu->next = compute->cpus;
    compute->cpus = cpu;
    return cpu;
}

int sim_spawn(struct sim *sim, int compute_index, unsigned thread, void (*function)(void *), void *argument,
              struct error *error)
{
    if (compute_index < 0 || (uint32_t)compute_index >= sim->compute_count)
        return error_set(error, BANYAN_EINVAL, "simulator: there is no compute node %d", compute_index);
    struct sim_compute *compute = sim->computes[compute_index];
    if (compute->dead)
        return error_set(error, BANYAN_EFENCED, "simulator: compute node %d is dead", compute_index);
    struct sim_cpu *cpu = cpu_of(compute, thread);
    struct sim_task *task = calloc(1, sizeof *task);
    if (!cpu || !task || !sim_queue_claim(&sim->queue, 1))
        goto no_memory;
    task->fiber = fiber_create(task_main, task, STACK_BYTES);
    if (!task->fiber) {
        sim_queue_release(&sim->queue, 1);
        goto no_memory;
    }
    task->task.ops = &task_operations;
    task->sim = sim;
    task->compute = compute;
    task->cpu = cpu;
    task->number = sim->task_count++;
    task->function = function;
    task->argument = argument;
    if (sim->tasks)
        sim->tasks_last->next = task;
    else
        sim->tasks = task;
    sim->tasks_last = task;
    compute->live_tasks++;
    sim->live_tasks++;
    sim_resume_at(task, sim_effective(sim));
    return BANYAN_OK;
no_memory:
    free(task);
    return error_set(error, BANYAN_ENOMEM, "simulator: no memory for a task on compute node %d",
                     compute_index);
}
