/*
 * link.h - between a compute node and a memory node: loss.c loses connections, lists and calls ask whether
 * theirs was. Called from the event loop, and from tasks that post.
 */
#ifndef SIM_LINK_H
#define SIM_LINK_H

#include "sim/list.h"
#include "sim/node.h"
#include "sim/state.h"

/*
 * Between a compute node and a memory node: all connections of its endpoints are lost together. The memory
 * node fences at the loss (`lost` goes up: nothing posted before arrives any more), the compute node knows
 * later (`known` follows), and is connected again at `up`.
 */
struct sim_link {
    uint32_t lost, known;
    sim_time up;
    uint64_t incarnation; /* of the compute node, since the last loss that it knows */
    struct sim_compute *compute;
    uint16_t node;
};

/* NULL: no memory. */
struct sim_link *sim_link_get(struct sim_compute *compute, uint16_t node);
/* Frees all links of the compute node. */
void sim_link_free(struct sim_compute *compute);
/* Casts the fault's dice for a list that arrives. */
void sim_link_dice(struct sim *sim, struct sim_compute *compute, uint16_t node);
/* Loses the connection now; the compute node knows at the given time. Without memory for that nothing
 * happens. */
void sim_link_lose(struct sim *sim, struct sim_link *link, sim_time known);
/* Whether the connection was lost since something was posted; `known`: what the link counted then. */
static inline bool sim_link_stale(const struct sim_compute *compute, uint16_t node, uint32_t known)
{
    return node < compute->link_count && compute->links[node] && compute->links[node]->lost != known;
}
/* The compute node gets to know of the loss. */
void sim_link_learn(struct sim_compute *compute, uint16_t node);
/* Neither lost already nor down. */
static inline bool sim_link_stands(const struct sim *sim, const struct sim_link *link)
{
    return link->lost == link->known && link->up <= sim->now;
}
static inline bool sim_list_stale(const struct sim_compute *compute, struct fabric_list *list)
{
    return sim_link_stale(compute, list->node, sim_list(list)->known);
}
/* Whether something may be posted: 0 with *known set, BANYAN_ENET (down), BANYAN_EFENCED (an older
 * incarnation's list), BANYAN_ENOMEM. incarnation 0: any. */
int sim_link_admit(struct sim_compute *compute, uint16_t node, uint64_t incarnation, uint32_t *known);

#endif
