/*
 * cores.c - a memory node's CPU: which of its cores (params.rpc_cores) serves a call, for how long, and what
 * it does in the background.
 *
 * Called from the event loop. Where no service of the memory node has background work there is no event of
 * it.
 */
#include "sim/call.h"
#include "sim/fetch.h"
#include "sim/node.h"
#include "sim/state.h"

/* Background work of one event, as long as the memory node's daemon lets it take in one turn. */
#define WORK_NS UINT64_C(20000)

/* The one that is free first. */
static sim_time *free_core(const struct sim *sim, const struct sim_memory *memory)
{
    sim_time *core = &memory->core_free[0];
    for (uint32_t i = 1; i < sim->params.rpc_cores; i++)
        if (memory->core_free[i] < *core)
            core = &memory->core_free[i];
    return core;
}

sim_time sim_core_serve(const struct sim *sim, const struct sim_memory *memory, uint16_t compute_id,
                        const struct sim_call *call, sim_time start)
{
    const struct fabric_target *target = memory->target;
    sim_time *core = free_core(sim, memory), cost = sim->model.rpc;
    if (target->call_ns && !call->serve)
        cost += target->call_ns(target->owner, compute_id, call->request, call->length) * SIM_NANOSECOND;
    *core = sim_later(*core, start) + cost;
    return *core;
}

void sim_core_work_begin(struct sim *sim, uint16_t node)
{
    struct sim_memory *memory = &sim->memories[node];
    if (!memory->target->work || memory->works || !sim_queue_claim(&sim->queue, 1))
        return;
    memory->works = true;
    sim_push(sim, sim_later(*free_core(sim, memory), sim->now), SIM_EVENT_WORK, NULL, node, 0);
}

void sim_core_work(struct sim *sim, uint16_t node)
{
    struct sim_memory *memory = &sim->memories[node];
    sim_time *core = free_core(sim, memory);
    if (*core > sim->now) { /* calls have taken it since */
        sim_push(sim, *core, SIM_EVENT_WORK, NULL, node, 0);
        return;
    }
    uint64_t budget_ns = WORK_NS;
    sim_fetch_settle(sim, node); /* it may write to the pool */
    bool more = memory->target->work(memory->target->owner, &budget_ns);
    *core = sim->now + (WORK_NS - budget_ns) * SIM_NANOSECOND;
    if (more) { /* time goes on even if the work cost none */
        sim_push(sim, sim_later(*core, sim->now + SIM_NANOSECOND), SIM_EVENT_WORK, NULL, node, 0);
        return;
    }
    memory->works = false;
    sim_queue_release(&sim->queue, 1);
}
