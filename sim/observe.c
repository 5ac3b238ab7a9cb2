/* observe.c - tells an observer of the run what happens (contract: sim.h). Nothing here changes the world. */
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/task.h"

void sim_observe(struct sim *sim, void (*see)(void *, const struct sim_observation *), void *context)
{
    sim->see = see;
    sim->see_context = context;
}

static void see(const struct sim *sim, struct sim_observation *seen)
{
    seen->time_ns = sim_effective(sim) / SIM_NANOSECOND;
    if (seen->kind < SIM_PEER_CALLED)
        seen->peer = -1;
    sim->see(sim->see_context, seen);
}

void sim_see_list(const struct sim *sim, enum sim_sight kind, const struct sim_task *task,
                  const struct fabric_list *list, uint32_t from, uint32_t count, int status)
{
    if (!sim->see)
        return;
    see(sim, &(struct sim_observation){.kind = kind,
                                       .compute = task->compute->index,
                                       .memory = list->node,
                                       .task = task->number,
                                       .commands = list->commands + from,
                                       .count = count,
                                       .status = status});
}

void sim_see_call(const struct sim *sim, enum sim_sight kind, const struct sim_task *task, uint16_t node,
                  int status)
{
    if (!sim->see)
        return;
    see(sim, &(struct sim_observation){.kind = kind,
                                       .compute = task->compute->index,
                                       .memory = node,
                                       .task = task->number,
                                       .status = status});
}

void sim_see_node(const struct sim *sim, enum sim_sight kind, int compute, int memory, int status)
{
    if (!sim->see)
        return;
    see(sim, &(struct sim_observation){
                 .kind = kind, .compute = compute, .memory = memory, .task = UINT32_MAX, .status = status});
}

void sim_see_stalled(const struct sim *sim, const struct sim_task *task, int status)
{
    if (!sim->see)
        return;
    see(sim, &(struct sim_observation){.kind = SIM_STALLED,
                                       .compute = task->compute->index,
                                       .memory = -1,
                                       .task = task->number,
                                       .status = status});
}

void sim_see_peer(const struct sim *sim, enum sim_sight kind, const struct sim_peer_sight *sight)
{
    if (!sim->see)
        return;
    see(sim, &(struct sim_observation){.kind = kind,
                                       .compute = sight->compute,
                                       .peer = sight->peer,
                                       .memory = -1,
                                       .task = sim_task_number(sim),
                                       .number = sight->number,
                                       .status = sight->status});
}
