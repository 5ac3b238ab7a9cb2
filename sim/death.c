/*
 * death.c - compute nodes that die, at a time or just before an effect, and processes that take their place.
 *
 * A dead node's tasks never run again. Its lists and calls under way go on until the lease ends, cut
 * somewhere (transfer.c, dead_list.c); after that its events are dropped (loop.c: run_event). One that is
 * killed before an effect is cut there, on all its connections. A restarted process is a compute node of its
 * own with the old id and the old NIC: nothing else of the dead one is reachable from it.
 */
#include <assert.h>

#include "sim/fetch.h"
#include "sim/lease.h"
#include "sim/link.h"
#include "sim/node.h"
#include "sim/pair.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/task.h"
#include "sim/transfer.h"

void sim_kill_compute(struct sim *sim, int index, uint64_t lease_ns, void (*fenced)(void *), void *argument)
{
    assert(index >= 0 && (uint32_t)index < sim->compute_count);
    struct sim_compute *compute = sim->computes[index];
    if (compute->dead)
        return;
    sim_lease_advance(sim, compute);
    compute->dead = true;
    compute->effects = 0;
    compute->death = sim_effective(sim);
    compute->on_fenced = fenced;
    compute->on_fenced_argument = argument;
    sim->live_tasks -= compute->live_tasks;
    sim_push(sim, sim_after(compute->death, lease_ns), SIM_EVENT_FENCE, compute, 0, compute->index);
    sim_see_node(sim, SIM_DIED, index, -1, 0);
    if (sim->current && sim->current->compute == compute)
        for (;;) /* never resumed */
            sim_task_suspend(sim->current);
}

void sim_kill_compute_at(struct sim *sim, int index, uint64_t effects, uint64_t lease_ns,
                         void (*fenced)(void *), void *argument)
{
    assert(index >= 0 && (uint32_t)index < sim->compute_count);
    struct sim_compute *compute = sim->computes[index];
    if (compute->dead)
        return;
    compute->effects = effects;
    compute->lease_ns = lease_ns;
    compute->on_fenced = fenced;
    compute->on_fenced_argument = argument;
}

bool sim_effect_counted(struct sim *sim, struct sim_compute *compute)
{
    if (--compute->effects > 0)
        return true;
    assert(!sim->current); /* effects are events */
    compute->cut = true;
    sim_kill_compute(sim, compute->index, compute->lease_ns, compute->on_fenced, compute->on_fenced_argument);
    return false;
}

/* From here on nothing of the node arrives. */
void sim_compute_fence(struct sim *sim, struct sim_compute *compute)
{
    sim_transfers_finish(sim, compute, SIM_EVERY_NODE);
    sim_lease_advance(sim, compute);
    sim_lease_fenced(compute);
    compute->fenced = true;
    sim_pairs_end(compute);
    sim_see_node(sim, SIM_FENCED, compute->index, -1, 0);
    sim_fetch_settle_all(sim);
    if (compute->on_fenced)
        compute->on_fenced(compute->on_fenced_argument);
}

bool sim_compute_alive(const struct sim *sim, int index)
{
    return index >= 0 && (uint32_t)index < sim->compute_count && !sim->computes[index]->dead;
}

bool sim_connected(const struct sim *sim, int index, int memory)
{
    if (!sim_compute_alive(sim, index) || memory < 0 || (uint32_t)memory >= sim->memory_count)
        return false;
    const struct sim_compute *compute = sim->computes[index];
    const struct sim_link *link =
        (uint32_t)memory < compute->link_count ? compute->links[memory] : NULL; /* NULL: never lost */
    return !compute->fenced && (!link || sim_link_stands(sim, link));
}

int sim_restart_compute(struct sim *sim, int index, struct error *error)
{
    if (index < 0 || (uint32_t)index >= sim->compute_count)
        return error_set(error, BANYAN_EINVAL, "simulator: there is no compute node %d", index);
    struct sim_compute *before = sim->computes[index];
    if (before->replaced)
        return error_set(error, BANYAN_EINVAL, "simulator: compute node %d has been restarted already",
                         index);
    if (!before->fenced)
        return error_set(error, BANYAN_EBUSY, "simulator: compute node %d is not dead and fenced", index);
    struct sim_compute *compute = sim_compute_make(sim, before->machine, before->nic, error);
    if (!compute)
        return error && error->code ? error->code : BANYAN_ENOMEM;
    before->replaced = true;
    sim_note(sim, compute->index);
    sim_see_node(sim, SIM_RESTARTED, compute->index, -1, index);
    return compute->index;
}
