/* faults.c - which faults are on, and what they do to a memory node's NIC (contract: sim.h, transfer.h). */
#include "sim/lease.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/transfer.h"

int sim_set_faults(struct sim *sim, const struct sim_faults *faults, struct error *error)
{
    if (faults && sim_faults_check(faults, error))
        return BANYAN_EINVAL;
    if (faults)
        sim->faults = *faults;
    else
        sim_faults_none(&sim->faults);
    /* while a transfer is under way no list may take effect at once: it could overtake it */
    sim->faulty = sim->transfers > 0 || sim_faults_any(&sim->faults);
    sim->stalling =
        sim->faults.fiber_stall > 0 || sim->faults.thread_stall > 0 || sim->faults.compute_stall > 0;
    return BANYAN_OK;
}

/* As if atomics of others were queued before this one. */
static void queue_atomic(struct sim *sim, struct sim_nic *nic, const struct fabric_command *command)
{
    sim_time queue = sim_dice_time(sim, SIM_DIE_ATOMIC_QUEUE, sim->faults.atomic_queue_ns);
    sim_time *free = sim_nic_bucket(nic, command->address);
    *free = sim_later(*free, sim->now) + queue;
}

void sim_nic_trouble(struct sim *sim, struct sim_nic *nic, const struct fabric_list *list)
{
    if (sim_dice(sim, SIM_DIE_STALL, sim->faults.stall)) {
        sim_time stall = sim_dice_time(sim, SIM_DIE_STALL, sim->faults.stall_ns);
        sim_time *until = &sim->memories[list->node].stalled_until;
        sim_lease_advance_all(sim);
        *until = sim_later(*until, sim->now) + stall;
        nic->serve_free = sim_later(nic->serve_free, sim->now) + stall;
        sim_see_node(sim, SIM_STALLED, -1, list->node, 0);
    }
    if (sim->faults.atomic_queue <= 0)
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        if ((command->operation == FABRIC_CAS || command->operation == FABRIC_FAA) &&
            sim_dice(sim, SIM_DIE_ATOMIC_QUEUE, sim->faults.atomic_queue))
            queue_atomic(sim, nic, command);
    }
}
