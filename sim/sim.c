/*
 * sim.c - the world: tasks in virtual time, CPU threads, the event loop (contract: sim.h).
 *
 * A task is a fiber. It runs until it waits; the loop then takes the next event. An event that ends a task's
 * wait resumes the fiber from the loop itself, so that a list costs two events and one switch to the fiber
 * and back.
 */
#include "sim/sim.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/params.h"
#include "sim/world.h"

#define STACK_BYTES ((size_t)256 * 1024) /* touched as far as used */

static struct sim_task *task_of(struct task *task)
{
    return (struct sim_task *)task;
}

/* ------------------------------------------------------------------ tasks */

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

static void run_cpu(struct sim *sim, struct sim_cpu *cpu)
{
    struct sim_task *task = cpu->ready_first;
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

static void resume_at(struct sim_task *task, sim_time time)
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
        resume_at(task, sim_effective(task->sim));
    }
}

static void task_yield_here(struct task *self)
{
    struct sim_task *task = task_of(self);
    task->cpu->busy += task->sim->model.yield;
    resume_at(task, task->cpu->busy);
    sim_task_suspend(task);
}

static sim_time after_nanoseconds(sim_time from, uint64_t nanoseconds)
{
    sim_time most = (UINT64_MAX - from) / SIM_NANOSECOND;
    return from + (nanoseconds < most ? nanoseconds : most) * SIM_NANOSECOND;
}

static void task_sleep_here(struct task *self, uint64_t nanoseconds)
{
    struct sim_task *task = task_of(self);
    resume_at(task, after_nanoseconds(task->cpu->busy, nanoseconds));
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

static const struct task_ops task_operations = {
    .park = task_park_here,
    .unpark = task_unpark_here,
    .yield = task_yield_here,
    .sleep = task_sleep_here,
    .now = task_now_here,
    .charge = task_charge_here,
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
    resume_at(task, sim_effective(sim));
    return BANYAN_OK;
no_memory:
    free(task);
    return error_set(error, BANYAN_ENOMEM, "simulator: no memory for a task on compute node %d",
                     compute_index);
}

/* ------------------------------------------------------------------ the loop */

/* What is not a task's work runs as the plain thread. */
static void leave_tasks(void)
{
    task_set_self(NULL);
}

static void run_event(struct sim *sim, const struct sim_event *event)
{
    if (event->kind == SIM_EVENT_AT) {
        leave_tasks();
        sim_queue_release(&sim->queue, 1);
        event->function(event->object);
        return;
    }
    struct sim_compute *compute = sim->computes[event->compute];
    if (compute->fenced || (compute->dead && event->kind <= SIM_EVENT_CPU)) {
        if (event->kind == SIM_EVENT_STEP)
            sim_transfer_drop(event->object);
        return;
    }
    switch ((enum sim_event_kind)event->kind) {
    case SIM_EVENT_RESUME:
        sim_note(sim, ((struct sim_task *)event->object)->number);
        sim_task_ready(sim, event->object);
        break;
    case SIM_EVENT_CPU:
        run_cpu(sim, event->object);
        break;
    case SIM_EVENT_ARRIVE:
        sim_list_arrive(sim, compute, event->object);
        break;
    case SIM_EVENT_RESPOND:
        sim_list_respond(sim, compute, event->object, event->number);
        break;
    case SIM_EVENT_RETURN:
        sim_list_return(sim, compute, event->object, event->number);
        break;
    case SIM_EVENT_STEP:
        sim_transfer_step(sim, compute, event->object);
        break;
    case SIM_EVENT_REQUEST:
        sim_call_request(sim, compute, event->object);
        break;
    case SIM_EVENT_SERVED:
        leave_tasks();
        sim_call_served(sim, compute, event->object);
        break;
    case SIM_EVENT_REPLY:
        sim_call_reply(sim, compute, event->object);
        break;
    case SIM_EVENT_FENCE:
        leave_tasks();
        sim_compute_fence(sim, compute);
        break;
    case SIM_EVENT_AT:
        break;
    }
}

unsigned sim_run(struct sim *sim, uint64_t until)
{
    sim_time limit = after_nanoseconds(0, until);
    assert(!sim->current);
    while (sim->queue.count > 0 && sim->queue.keys[0].time <= limit) {
        struct sim_event event;
        sim->now = sim_queue_pop(&sim->queue, &event);
        sim->events++;
        sim_note(sim, sim->now << 4 | event.kind);
        run_event(sim, &event);
    }
    if (sim->queue.count > 0 && limit > sim->now)
        sim->now = limit;
    leave_tasks();
    return sim->live_tasks;
}

uint64_t sim_now(const struct sim *sim)
{
    return sim->now / SIM_NANOSECOND;
}
uint64_t sim_events(const struct sim *sim)
{
    return sim->events;
}
uint64_t sim_trace_hash(const struct sim *sim)
{
    return sim->hash;
}
struct random *sim_random(struct sim *sim)
{
    return &sim->user_random;
}

int sim_at(struct sim *sim, uint64_t time, void (*function)(void *), void *argument)
{
    if (!sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    struct sim_event event = {.object = argument, .function = function, .kind = SIM_EVENT_AT};
    sim_queue_push(&sim->queue, sim_later(after_nanoseconds(0, time), sim->now), &event);
    return BANYAN_OK;
}

/* ------------------------------------------------------------------ death */

void sim_kill_compute(struct sim *sim, int index, uint64_t lease_ns, void (*fenced)(void *), void *argument)
{
    assert(index >= 0 && (uint32_t)index < sim->compute_count);
    struct sim_compute *compute = sim->computes[index];
    if (compute->dead)
        return;
    compute->dead = true;
    compute->death = sim_effective(sim);
    compute->on_fenced = fenced;
    compute->on_fenced_argument = argument;
    sim->live_tasks -= compute->live_tasks;
    sim_push(sim, after_nanoseconds(compute->death, lease_ns), SIM_EVENT_FENCE, compute, 0, compute->index);
    if (sim->current && sim->current->compute == compute)
        for (;;) /* never resumed */
            sim_task_suspend(sim->current);
}

bool sim_compute_alive(const struct sim *sim, int index)
{
    return index >= 0 && (uint32_t)index < sim->compute_count && !sim->computes[index]->dead;
}

/* ------------------------------------------------------------------ making and dropping */

struct sim *sim_create(const struct sim_params *params, const struct sim_faults *faults, uint64_t seed,
                       struct error *error)
{
    if ((params && sim_params_check(params, error) != BANYAN_OK) ||
        (faults && sim_faults_check(faults, error) != BANYAN_OK))
        return NULL;
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim) {
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for a world");
        return NULL;
    }
    sim_params_default(&sim->params);
    if (params)
        sim->params = *params;
    sim_faults_none(&sim->faults);
    if (faults)
        sim->faults = *faults;
    sim->faulty = sim_faults_any(&sim->faults);
    sim_model_init(&sim->model, &sim->params);
    random_seed(&sim->jitter_random, seed);
    random_seed(&sim->fault_random, random_mix(seed + 1));
    random_seed(&sim->user_random, random_mix(seed + 2));
    return sim;
}

/* Machine number `index`'s card, where the other node of that machine has one already. */
static struct sim_card *card_get(struct sim_card *shared, bool sharing, struct error *error)
{
    if (sharing && shared)
        return shared;
    struct sim_card *card = calloc(1, sizeof *card);
    if (!card)
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for a network card");
    return card;
}

int sim_add_memory(struct sim *sim, const struct fabric_target *target, struct error *error)
{
    uint32_t index = sim->memory_count;
    if (index >= UINT16_MAX)
        return error_set(error, BANYAN_EINVAL, "simulator: more than 65,535 memory nodes");
    struct sim_memory *memories = realloc(sim->memories, (index + 1) * sizeof *memories);
    if (!memories)
        return error_set(error, BANYAN_ENOMEM, "simulator: no memory for memory node %u", index);
    sim->memories = memories;
    sim_time *core_free = calloc(sim->params.rpc_cores, sizeof *core_free);
    if (!core_free)
        return error_set(error, BANYAN_ENOMEM, "simulator: no memory for memory node %u", index);
    struct sim_card *machine = index < sim->compute_count ? sim->computes[index]->card : NULL;
    struct sim_card *card = card_get(machine, sim->params.shared_card, error);
    if (!card) {
        free(core_free);
        return BANYAN_ENOMEM;
    }
    memories[index] = (struct sim_memory){.target = target, .card = card, .core_free = core_free};
    sim->memory_count++;
    sim_fabric_refresh(sim);
    return (int)index;
}

int sim_add_compute(struct sim *sim, struct error *error)
{
    uint32_t index = sim->compute_count;
    if (index >= UINT16_MAX)
        return error_set(error, BANYAN_EINVAL, "simulator: more than 65,535 compute nodes");
    struct sim_compute **computes = realloc(sim->computes, (index + 1) * sizeof(struct sim_compute *));
    if (!computes)
        return error_set(error, BANYAN_ENOMEM, "simulator: no memory for compute node %u", index);
    sim->computes = computes;
    struct sim_compute *compute = calloc(1, sizeof *compute);
    if (!compute || !sim_queue_claim(&sim->queue, 1)) { /* the place of its fence event */
        free(compute);
        return error_set(error, BANYAN_ENOMEM, "simulator: no memory for compute node %u", index);
    }
    struct sim_card *machine = index < sim->memory_count ? sim->memories[index].card : NULL;
    compute->card = card_get(machine, sim->params.shared_card, error);
    if (!compute->card) {
        free(compute);
        return BANYAN_ENOMEM;
    }
    compute->sim = sim;
    compute->index = (uint16_t)index;
    computes[index] = compute;
    sim->compute_count++;
    sim_fabric_init(compute);
    sim_fabric_refresh(sim);
    return (int)index;
}

struct fabric *sim_fabric(struct sim *sim, int compute)
{
    assert(compute >= 0 && (uint32_t)compute < sim->compute_count);
    return &sim->computes[compute]->fabric;
}

static void free_compute(struct sim *sim, struct sim_compute *compute)
{
    for (struct sim_cpu *cpu = compute->cpus, *next; cpu; cpu = next) {
        next = cpu->next;
        free(cpu);
    }
    sim_fabric_free(compute);
    bool shared = compute->index < sim->memory_count && sim->memories[compute->index].card == compute->card;
    if (!shared) /* else freed with the memory node */
        free(compute->card);
    free(compute);
}

void sim_destroy(struct sim *sim)
{
    if (!sim)
        return;
    assert(!sim->current);
    for (uint32_t at = 0; at < sim->queue.count; at++) {
        struct sim_event *event = &sim->queue.events[sim->queue.keys[at].tag & SIM_PENDING_MAX];
        if (event->kind == SIM_EVENT_STEP)
            sim_transfer_drop(event->object);
    }
    for (struct sim_task *task = sim->tasks, *next; task; task = next) {
        next = task->next;
        if (task->fiber)
            fiber_destroy(task->fiber);
        free(task);
    }
    for (uint32_t i = 0; i < sim->compute_count; i++)
        free_compute(sim, sim->computes[i]);
    for (uint32_t i = 0; i < sim->memory_count; i++) {
        free(sim->memories[i].card);
        free(sim->memories[i].core_free);
    }
    free(sim->computes);
    free(sim->memories);
    sim_queue_free(&sim->queue);
    free(sim);
}
