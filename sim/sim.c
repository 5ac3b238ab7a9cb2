/* sim.c - a simulated cluster is made, gets its nodes, and is dropped (contract: sim.h). */
#include "sim/sim.h"

#include <assert.h>
#include <stdlib.h>

#include "base/fiber.h"
#include "sim/lease.h"
#include "sim/members.h"
#include "sim/node.h"
#include "sim/pair.h"
#include "sim/params.h"
#include "sim/state.h"
#include "sim/task.h"
#include "sim/transfer.h"

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
    random_seed(&sim->state_random, random_mix(seed + 3));
    sim->beat_seed = random_mix(seed + 4);
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
    sim_members_begin(compute);
    sim_fabric_refresh(sim);
    sim_lease_begin(sim, compute);
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
        sim_pairs_free(cpu);
        free(cpu);
    }
    free(compute->doorbells);
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
        else if (event->kind == SIM_EVENT_NOTICE)
            free(event->object);
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
    sim_peers_free(sim);
    free(sim->computes);
    free(sim->memories);
    sim_queue_free(&sim->queue);
    free(sim);
}
