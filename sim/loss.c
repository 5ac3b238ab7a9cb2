/*
 * loss.c - connections that are lost while both ends live on: the lease of the fabric's contract (G6) is
 * about these. Off unless sim_on_loss was called, and then for three reasons: the fault's rate, sim_cut, and
 * a compute node that stands still for longer than its lease (stall.c).
 *
 * At the loss the memory node fences first: nothing under way has an effect later, but for a short WRITE that
 * had begun; then the callback frees the locks. Lists and calls under way come back with BANYAN_ENET in their
 * own time, done, done in part or not at all. The compute node knows of the loss when the first of these
 * comes back, or some time later: lists that it posts until then are lost too. From then on it counts a new
 * incarnation, refuses lists of older ones, and cannot reach the memory node until it is connected again.
 */
#include <assert.h>
#include <stdlib.h>

#include "sim/fetch.h"
#include "sim/lease.h"
#include "sim/link.h"
#include "sim/node.h"
#include "sim/notice.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/transfer.h"

void sim_on_loss(struct sim *sim, void (*lost)(void *, int, int), void *argument)
{
    sim->losing = lost;
    if (!lost) /* processes are fenced still */
        return;
    sim->on_loss = lost;
    sim->on_loss_argument = argument;
}

uint64_t sim_losses(const struct sim *sim)
{
    return sim->losses;
}

struct sim_link *sim_link_get(struct sim_compute *compute, uint16_t node)
{
    if (node >= compute->link_count) {
        struct sim_link **links = realloc(compute->links, (node + 1u) * sizeof *links);
        if (!links)
            return NULL;
        compute->links = links;
        while (compute->link_count <= node)
            links[compute->link_count++] = NULL;
    }
    if (!compute->links[node] && (compute->links[node] = calloc(1, sizeof(struct sim_link)))) {
        compute->links[node]->compute = compute;
        compute->links[node]->node = node;
    }
    return compute->links[node];
}

void sim_link_free(struct sim_compute *compute)
{
    for (uint32_t i = 0; i < compute->link_count; i++)
        free(compute->links[i]);
    free(compute->links);
    compute->links = NULL;
    compute->link_count = 0;
}

static void learn(void *argument)
{
    struct sim_link *link = argument;
    struct sim *sim = link->compute->sim;
    if (link->known == link->lost || link->compute->dead)
        return;
    link->known = link->lost;
    link->incarnation = ++link->compute->incarnation;
    link->up = sim->now + sim_dice_time(sim, SIM_DIE_LOSE, sim->faults.lose_ns);
    if (link->node == 0) {
        sim_lease_lost(sim, link->compute);
        sim_notices_home(sim, link);
    }
}

void sim_link_learn(struct sim_compute *compute, uint16_t node)
{
    learn(compute->links[node]);
}

void sim_link_lose(struct sim *sim, struct sim_link *link, sim_time known)
{
    if (sim_at_time(sim, known, learn, link))
        return;
    if (link->node == 0) {
        sim_lease_advance(sim, link->compute);
        sim_lease_fenced(link->compute);
    }
    sim->losses++;
    sim_note(sim, sim->losses);
    sim_transfers_finish(sim, link->compute, link->node);
    link->lost++;
    sim_see_node(sim, SIM_LOST, link->compute->index, link->node, 0);
    sim_fetch_settle(sim, link->node);
    if (sim->on_loss)
        sim->on_loss(sim->on_loss_argument, link->compute->index, link->node);
}

static void lose(struct sim *sim, struct sim_link *link)
{
    sim_link_lose(sim, link, sim->now + sim_dice_time(sim, SIM_DIE_LOSE, sim->faults.lose_ns));
}

void sim_link_dice(struct sim *sim, struct sim_compute *compute, uint16_t node)
{
    if (!sim->losing || !sim_dice(sim, SIM_DIE_LOSE, sim->faults.lose))
        return;
    struct sim_link *link = sim_link_get(compute, node);
    if (link && link->lost == link->known)
        lose(sim, link);
}

static void cut(void *argument)
{
    struct sim_link *link = argument;
    struct sim *sim = link->compute->sim;
    if (sim->losing && !link->compute->dead && sim_link_stands(sim, link))
        lose(sim, link);
}

void sim_cut(struct sim *sim, int compute, int memory)
{
    assert(compute >= 0 && (uint32_t)compute < sim->compute_count);
    assert(memory >= 0 && (uint32_t)memory < sim->memory_count);
    struct sim_link *link = sim_link_get(sim->computes[compute], (uint16_t)memory);
    if (!link)
        return;
    if (sim->current) /* at the task's own time, and not as the task */
        sim_at_time(sim, sim_effective(sim), cut, link);
    else
        cut(link);
}

int sim_link_admit(struct sim_compute *compute, uint16_t node, uint64_t incarnation, uint32_t *known)
{
    const struct sim_link *link = sim_link_get(compute, node);
    if (!link)
        return BANYAN_ENOMEM;
    *known = link->known;
    if (incarnation && incarnation < link->incarnation)
        return BANYAN_EFENCED;
    return link->up > sim_effective(compute->sim) ? BANYAN_ENET : BANYAN_OK;
}
