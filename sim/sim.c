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

static void run_cpu(struct sim *sim, struct sim_cpu *cpu)
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
        sim_fetch_settle_all(sim);
        sim_queue_release(&sim->queue, 1);
        event->function(event->object);
        return;
    }
    if (event->kind == SIM_EVENT_WORK) {
        leave_tasks();
        sim_core_work(sim, (uint16_t)event->number);
        return;
    }
    struct sim_compute *compute = sim->computes[event->compute];
    if (compute->fenced || (compute->dead && event->kind <= SIM_EVENT_CPU)) {
        if (event->kind == SIM_EVENT_STEP)
            sim_transfer_drop(sim, event->object);
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
        sim_list_arrive(sim, compute, event->object, event->number);
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
        sim_call_request(sim, compute, event->object, event->number);
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
    case SIM_EVENT_WORK:
        break;
    }
}

unsigned sim_run(struct sim *sim, uint64_t until)
{
    sim_time limit = sim_after(0, until);
    assert(!sim->current);
    while (sim->queue.count > 0 && sim->queue.keys[0].time <= limit && sim->events < sim->event_limit) {
        struct sim_event event;
        sim->now = sim_queue_pop(&sim->queue, &event);
        sim->events++;
        sim_note(sim, sim->now << 4 | event.kind);
        run_event(sim, &event);
    }
    if (sim->queue.count > 0 && limit > sim->now && !sim_exhausted(sim))
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
void sim_limit_events(struct sim *sim, uint64_t events)
{
    sim->event_limit = events && events < UINT64_MAX - sim->events ? sim->events + events : UINT64_MAX;
}
bool sim_exhausted(const struct sim *sim)
{
    return sim->events >= sim->event_limit;
}
uint32_t sim_task_number(const struct sim *sim)
{
    return sim->current ? sim->current->number : UINT32_MAX;
}
uint64_t sim_task_now(const struct sim *sim)
{
    return sim_effective(sim) / SIM_NANOSECOND;
}
uint64_t sim_trace_hash(const struct sim *sim)
{
    return sim->hash;
}
struct random *sim_random(struct sim *sim)
{
    return &sim->user_random;
}

int sim_at_time(struct sim *sim, sim_time time, void (*function)(void *), void *argument)
{
    if (!sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    struct sim_event event = {.object = argument, .function = function, .kind = SIM_EVENT_AT};
    sim_queue_push(&sim->queue, sim_later(time, sim->now), &event);
    return BANYAN_OK;
}

int sim_at(struct sim *sim, uint64_t time, void (*function)(void *), void *argument)
{
    return sim_at_time(sim, sim_after(0, time), function, argument);
}

/* ------------------------------------------------------------------ making and dropping */

struct sim *sim_create(const struct sim_params *params, const struct sim_faults *faults, uint64_t seed,
                       struct error *error)
{
    if ((params && sim_params_check(params, error)) || (faults && sim_faults_check(faults, error)))
        return NULL;
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim) {
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for a world");
        return NULL;
    }
    sim_params_default(&sim->params);
    if (params)
        sim->params = *params;
    sim_set_faults(sim, faults, NULL); /* checked above */
    sim->event_limit = UINT64_MAX;
    sim_model_init(&sim->model, &sim->params);
    random_seed(&sim->jitter_random, seed);
    random_seed(&sim->user_random, random_mix(seed + 2));
    for (uint64_t die = 0; die < SIM_DICE; die++)
        random_seed(&sim->dice[die], random_mix(random_mix(seed + 1) + die));
    return sim;
}

/* Machine number `index`'s NIC, where the other node of that machine has one already. */
static struct sim_nic *nic_get(struct sim_nic *shared, bool sharing, struct error *error)
{
    if (sharing && shared)
        return shared;
    struct sim_nic *nic = calloc(1, sizeof *nic);
    if (!nic)
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for a NIC");
    return nic;
}

/* The compute node of a machine, before any restart; NULL: there is none. */
static struct sim_compute *first_process(const struct sim *sim, uint32_t machine)
{
    for (uint32_t i = 0; i < sim->compute_count; i++)
        if (sim->computes[i]->machine == machine)
            return sim->computes[i];
    return NULL;
}

int sim_add_memory(struct sim *sim, const struct fabric_target *target, struct error *error)
{
    uint32_t index = sim->memory_count;
    if (index >= UINT16_MAX)
        return error_set(error, BANYAN_EINVAL, "simulator: more than 65,535 memory nodes");
    if (target->lock_width != 8 && !sim->params.masked_cas)
        return error_set(error, BANYAN_EINVAL,
                         "simulator: memory node %u has locks of %u bytes, which need masked-cas", index,
                         target->lock_width);
    struct sim_memory *memories = realloc(sim->memories, (index + 1) * sizeof *memories);
    if (!memories)
        return error_set(error, BANYAN_ENOMEM, "simulator: no memory for memory node %u", index);
    sim->memories = memories;
    sim_time *core_free = calloc(sim->params.rpc_cores, sizeof *core_free);
    if (!core_free)
        return error_set(error, BANYAN_ENOMEM, "simulator: no memory for memory node %u", index);
    struct sim_compute *machine = first_process(sim, index);
    struct sim_nic *nic = nic_get(machine ? machine->nic : NULL, sim->params.shared_nic, error);
    if (!nic) {
        free(core_free);
        return BANYAN_ENOMEM;
    }
    if (machine && machine->nic == nic)
        machine->owns_nic = false; /* it is freed with the memory node */
    memories[index] = (struct sim_memory){.target = target, .nic = nic, .core_free = core_free};
    sim->memory_count++;
    sim_fabric_refresh(sim);
    return (int)index;
}

struct sim_compute *sim_compute_make(struct sim *sim, uint16_t machine, struct sim_nic *nic,
                                     struct error *error)
{
    uint32_t index = sim->compute_count;
    if (index >= UINT16_MAX) {
        error_set(error, BANYAN_EINVAL, "simulator: more than 65,535 compute nodes");
        return NULL;
    }
    struct sim_compute **computes = realloc(sim->computes, (index + 1) * sizeof(struct sim_compute *));
    if (computes)
        sim->computes = computes;
    struct sim_compute *compute = computes ? calloc(1, sizeof *compute) : NULL;
    if (!compute || !sim_queue_claim(&sim->queue, 1)) { /* the place of its fence event */
        free(compute);
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for compute node %u", index);
        return NULL;
    }
    compute->sim = sim;
    compute->index = (uint16_t)index;
    compute->machine = machine;
    compute->nic = nic;
    sim->computes[index] = compute;
    sim->compute_count++;
    sim_fabric_init(compute);
    sim_fabric_refresh(sim);
    return compute;
}

int sim_add_compute(struct sim *sim, struct error *error)
{
    uint32_t machine = sim->machine_count;
    struct sim_nic *shared = machine < sim->memory_count ? sim->memories[machine].nic : NULL;
    struct sim_nic *nic = nic_get(shared, sim->params.shared_nic, error);
    if (!nic)
        return BANYAN_ENOMEM;
    struct error inner = {0};
    struct sim_compute *compute = sim_compute_make(sim, (uint16_t)machine, nic, &inner);
    if (!compute) {
        if (nic != shared)
            free(nic);
        return error_set(error, inner.code, "%s", inner.text);
    }
    compute->owns_nic = nic != shared;
    sim->machine_count++;
    return compute->index;
}

struct fabric *sim_fabric(struct sim *sim, int compute)
{
    assert(compute >= 0 && (uint32_t)compute < sim->compute_count);
    return &sim->computes[compute]->fabric;
}

static void free_compute(struct sim_compute *compute)
{
    for (struct sim_cpu *cpu = compute->cpus, *next; cpu; cpu = next) {
        next = cpu->next;
        free(cpu);
    }
    sim_fabric_free(compute);
    if (compute->owns_nic)
        free(compute->nic);
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
            sim_transfer_drop(sim, event->object);
    }
    for (struct sim_task *task = sim->tasks, *next; task; task = next) {
        next = task->next;
        if (task->fiber)
            fiber_destroy(task->fiber);
        free(task);
    }
    for (uint32_t i = 0; i < sim->compute_count; i++)
        free_compute(sim->computes[i]);
    for (uint32_t i = 0; i < sim->memory_count; i++) {
        free(sim->memories[i].nic);
        free(sim->memories[i].core_free);
    }
    free(sim->computes);
    free(sim->memories);
    sim_queue_free(&sim->queue);
    free(sim);
}
