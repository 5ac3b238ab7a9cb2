/*
 * stall.c - a task, a CPU thread, a compute node or a memory node's NIC stands still.
 *
 * A CPU thread stands still by being busy: its tasks wait for it as for any other work. Lists and calls that
 * its NIC was given go on. A compute node that stands still past its lease is fenced at the lease's end, as
 * at a loss of every connection.
 */
#include <assert.h>

#include "sim/lease.h"
#include "sim/link.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/task.h"

static void stall_cpu(const struct sim *sim, struct sim_cpu *cpu, uint64_t ns)
{
    cpu->busy = sim_after(sim_later(cpu->busy, sim_effective(sim)), ns);
}

static uint64_t draw_ns(struct sim *sim, enum sim_die die, uint32_t most_ns)
{
    return sim_dice_time(sim, die, most_ns) / SIM_NANOSECOND;
}

/* The lease of a compute node that stands still ends before it goes on. */
static void lease_over(void *argument)
{
    struct sim_compute *compute = argument;
    struct sim *sim = compute->sim;
    assert(compute->stalled_until > sim->now);
    if (compute->dead || !sim->losing)
        return;
    for (uint32_t node = 0; node < sim->memory_count; node++) {
        struct sim_link *link = sim_link_get(compute, (uint16_t)node);
        if (link && sim_link_stands(sim, link))
            sim_link_lose(sim, link,
                          compute->stalled_until + sim_dice_time(sim, SIM_DIE_LOSE, sim->faults.lose_ns));
    }
}

static void stall_compute(struct sim *sim, struct sim_compute *compute, uint64_t ns, uint64_t lease_ns)
{
    sim_time now = sim_effective(sim);
    sim_lease_advance(sim, compute);
    if (compute->stalled_until <= now)
        compute->stalled_from = compute->stalled_until = now;
    compute->stalled_until = sim_after(compute->stalled_until, ns);
    for (struct sim_cpu *cpu = compute->cpus; cpu; cpu = cpu->next)
        stall_cpu(sim, cpu, ns);
    sim_note(sim, ns);
    sim_time lease_end = sim_after(compute->stalled_from, lease_ns);
    if (lease_end < compute->stalled_until)
        sim_at_time(sim, lease_end, lease_over, compute); /* no memory: then this lease is longer */
}

void sim_stall_compute(struct sim *sim, int index, uint64_t ns, uint64_t lease_ns)
{
    assert(index >= 0 && (uint32_t)index < sim->compute_count);
    struct sim_compute *compute = sim->computes[index];
    if (compute->dead)
        return;
    stall_compute(sim, compute, ns, lease_ns);
    sim_see_node(sim, SIM_STALLED, index, -1, 0);
}

void sim_stall_memory(struct sim *sim, int index, uint64_t ns)
{
    assert(index >= 0 && (uint32_t)index < sim->memory_count);
    struct sim_nic *nic = sim->memories[index].nic;
    sim_lease_advance_all(sim);
    sim->memories[index].stalled_until =
        sim_after(sim_later(sim->memories[index].stalled_until, sim_effective(sim)), ns);
    nic->serve_free = sim_after(sim_later(nic->serve_free, sim_effective(sim)), ns);
    sim_note(sim, ns);
    sim_see_node(sim, SIM_STALLED, -1, index, 0);
}

bool sim_resume_late(struct sim *sim, struct sim_task *task)
{
    const struct sim_faults *faults = &sim->faults;
    if (task->late) {
        task->late = false;
        return false;
    }
    if (sim_dice(sim, SIM_DIE_COMPUTE_STALL, faults->compute_stall)) {
        uint64_t ns = draw_ns(sim, SIM_DIE_COMPUTE_STALL, faults->compute_stall_ns);
        stall_compute(sim, task->compute, ns, faults->lease_ns);
        sim_see_node(sim, SIM_STALLED, task->compute->index, -1, 0);
    }
    if (sim_dice(sim, SIM_DIE_THREAD_STALL, faults->thread_stall)) {
        stall_cpu(sim, task->cpu, draw_ns(sim, SIM_DIE_THREAD_STALL, faults->thread_stall_ns));
        sim_see_stalled(sim, task, 1);
    }
    if (!sim_dice(sim, SIM_DIE_FIBER_STALL, faults->fiber_stall))
        return false;
    task->late = true;
    sim_resume_at(task, sim->now + sim_dice_time(sim, SIM_DIE_FIBER_STALL, faults->fiber_stall_ns));
    sim_see_stalled(sim, task, 0);
    return true;
}
