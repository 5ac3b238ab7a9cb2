/* pair.c - see pair.h. */
#include "sim/pair.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/node.h"
#include "sim/task.h"

/* Of a connection's state: matters only where bytes limit what the NIC reads. */
#define STATE_BYTES 256

static void count(const struct sim_compute *compute, uint16_t node, int change)
{
    struct sim_nic *ends[] = {compute->nic, compute->sim->memories[node].nic};
    for (int end = 0; end < 2; end++) {
        assert(change > 0 || ends[end]->connections > 0);
        ends[end]->connections += (uint32_t)change;
    }
}

/* Pairs take the compute node's doorbells in turn, in the order in which they are made. */
static struct sim_doorbell *doorbell_assign(struct sim_compute *compute, const struct sim_cpu *cpu)
{
    uint32_t doorbells = compute->sim->params.doorbells;
    if (doorbells == 0)
        return NULL;
    struct sim_doorbell *doorbell = &compute->doorbells[compute->pairs_made++ % doorbells];
    for (uint32_t i = 0; i < cpu->pair_count; i++)
        if (cpu->pairs[i] && cpu->pairs[i]->doorbell == doorbell)
            return doorbell;
    doorbell->threads++;
    return doorbell;
}

static struct sim_pair *pair_make(struct sim_compute *compute, struct sim_cpu *cpu, uint16_t node)
{
    if (node >= cpu->pair_count) {
        struct sim_pair **pairs = realloc(cpu->pairs, (node + 1u) * sizeof(struct sim_pair *));
        if (!pairs)
            return NULL;
        cpu->pairs = pairs;
        while (cpu->pair_count <= node)
            pairs[cpu->pair_count++] = NULL;
    }
    uint32_t doorbells = compute->sim->params.doorbells;
    if (doorbells > 0 && !compute->doorbells)
        compute->doorbells = calloc(doorbells, sizeof *compute->doorbells);
    struct sim_pair *pair = calloc(1, sizeof *pair);
    if (!pair || (doorbells > 0 && !compute->doorbells)) {
        free(pair);
        return NULL;
    }
    pair->doorbell = doorbell_assign(compute, cpu);
    cpu->pairs[node] = pair;
    return pair;
}

struct sim_pair *sim_pair_take(struct sim_compute *compute, struct sim_cpu *cpu, uint16_t node)
{
    struct sim_pair *pair = node < cpu->pair_count ? cpu->pairs[node] : NULL;
    if (!pair)
        pair = pair_make(compute, cpu, node);
    if (pair && pair->endpoints++ == 0)
        count(compute, node, 1);
    return pair;
}

void sim_pair_drop(const struct sim_compute *compute, struct sim_pair *pair, uint16_t node)
{
    assert(pair->endpoints > 0);
    if (--pair->endpoints == 0)
        count(compute, node, -1);
}

void sim_pairs_end(const struct sim_compute *compute)
{
    for (struct sim_cpu *cpu = compute->cpus; cpu; cpu = cpu->next)
        for (uint32_t node = 0; node < cpu->pair_count; node++) {
            struct sim_pair *pair = cpu->pairs[node];
            if (!pair || pair->endpoints == 0)
                continue;
            pair->endpoints = 0;
            count(compute, (uint16_t)node, -1);
        }
}

void sim_pairs_free(struct sim_cpu *cpu)
{
    for (uint32_t node = 0; node < cpu->pair_count; node++)
        free(cpu->pairs[node]);
    free(cpu->pairs);
}

/* Booked at sim->now, as every server is (nic.h). With w threads waiting a post holds the doorbell 1 + w
 * times as long, since the cache line of its lock goes round between them; the first part is in post-ns
 * already. */
sim_time sim_doorbell_ring(const struct sim *sim, struct sim_pair *pair, const struct sim_cpu *cpu)
{
    struct sim_doorbell *doorbell = pair->doorbell;
    sim_time hold = sim->model.doorbell_hold;
    if (!doorbell || hold == 0)
        return 0;
    if (doorbell->free > sim->now && doorbell->holder == cpu) { /* its own last post: it has waited already */
        doorbell->free += hold;
        return 0;
    }
    if (doorbell->free <= sim->now)
        doorbell->waiting = 0;
    else if (doorbell->waiting + 1 < doorbell->threads)
        doorbell->waiting++;
    doorbell->holder = cpu;
    doorbell->free = sim_later(doorbell->free, sim->now) + hold * (1 + doorbell->waiting);
    return doorbell->free - sim->now - hold;
}

sim_time sim_state_read(struct sim *sim, struct sim_nic *nic)
{
    if (random_below(&sim->state_random, nic->connections) < sim->model.connection_cache)
        return 0;
    struct sim_dma state = {.requests = 1, .bytes = STATE_BYTES};
    return sim_dma_wait(&sim->model, nic, sim->now, state) + sim->model.pcie_read;
}
