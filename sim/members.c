/* members.c - see members.h. */
#include "sim/members.h"

#include <assert.h>
#include <stdlib.h>

#include "base/random.h"
#include "sim/link.h"
#include "sim/sim.h"
#include "sim/state.h"

#define HOME 0

static uint64_t bit(uint32_t memory)
{
    return memory < 64 ? UINT64_C(1) << memory : 0;
}

uint16_t sim_members_bound(const struct sim_compute *compute)
{
    uint32_t bound = compute->sim->memory_count;
    while (bound && compute->unknown & bit(bound - 1))
        bound--;
    return (uint16_t)bound;
}

/* What the home node's list says. */
static void list_take(struct sim_compute *compute)
{
    const struct sim *sim = compute->sim;
    compute->unknown = compute->leaving = compute->removed = 0;
    for (uint32_t i = 0; i < sim->memory_count; i++) {
        const struct sim_memory *memory = &sim->memories[i];
        compute->unknown |= memory->absent ? bit(i) : 0;
        compute->leaving |= memory->leaving ? bit(i) : 0;
        compute->removed |= memory->removed ? bit(i) : 0;
    }
}

void sim_members_begin(struct sim_compute *compute)
{
    list_take(compute);
}

/* False: the home node cannot be asked. */
static bool list_fetch(struct sim_compute *compute)
{
    const struct sim_link *home = compute->link_count > HOME ? compute->links[HOME] : NULL;
    if (compute->dead || compute->fenced || (home && !sim_link_stands(compute->sim, home)))
        return false;
    list_take(compute);
    sim_fabric_refresh(compute->sim);
    return true;
}

static enum fabric_membership membership(const struct fabric *fabric, uint16_t node)
{
    const struct sim_compute *compute = (const struct sim_compute *)fabric;
    return (compute->unknown | compute->removed) & bit(node) ? FABRIC_NO_MEMBER
           : compute->leaving & bit(node)                    ? FABRIC_LEAVING
                                                             : FABRIC_MEMBER;
}

static bool learn(struct fabric *fabric, uint16_t node)
{
    struct sim_compute *compute = (struct sim_compute *)fabric;
    return list_fetch(compute) && membership(fabric, node) != FABRIC_NO_MEMBER;
}

static bool refresh(struct fabric *fabric)
{
    return list_fetch((struct sim_compute *)fabric);
}

const struct fabric_cluster_ops sim_cluster_operations = {
    .membership = membership, .learn = learn, .refresh = refresh};

/* ---- joining and leaving ---- */

void sim_memory_await(struct sim *sim, int memory)
{
    assert(memory > HOME && memory < 64 && (uint32_t)memory < sim->memory_count);
    sim->memories[memory].absent = true;
    for (uint32_t i = 0; i < sim->compute_count; i++)
        sim->computes[i]->unknown |= bit((uint32_t)memory);
    sim_fabric_refresh(sim);
}

/* The notice comes; where the connection is down, or the message is lost, with the next heartbeat. */
static void hear(void *argument)
{
    struct sim_compute *compute = argument;
    if (!compute->dead && !compute->fenced && !list_fetch(compute))
        sim_at_time(compute->sim, sim_after(compute->sim->now, compute->sim->params.read_lease_ns / 4 + 1),
                    hear, compute);
}

/* Each at a time of its own. */
static int all_hear(struct sim *sim, uint64_t hear_ns)
{
    int status = 0;
    for (uint32_t i = 0; i < sim->compute_count && !status; i++)
        status =
            sim_at(sim, sim_now(sim) + random_below(&sim->user_random, hear_ns + 1), hear, sim->computes[i]);
    return status;
}

int sim_memory_join(struct sim *sim, int memory, uint64_t hear_ns)
{
    assert(memory > HOME && (uint32_t)memory < sim->memory_count);
    sim->memories[memory].absent = false;
    return all_hear(sim, hear_ns);
}

int sim_memory_leave(struct sim *sim, int memory, bool removed, uint64_t hear_ns)
{
    assert(memory > HOME && memory < 64 && (uint32_t)memory < sim->memory_count);
    assert(!removed || sim->memories[memory].leaving);
    sim->memories[memory].leaving = true;
    sim->memories[memory].removed = removed;
    return all_hear(sim, hear_ns);
}
