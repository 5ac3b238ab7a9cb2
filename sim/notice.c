/* notice.c - see notice.h. */
#include "sim/notice.h"

#include <stdlib.h>

#include "sim/link.h"
#include "sim/message.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"

#define NOTICE_BYTES 8

struct sim_notice {
    uint64_t number;
    uint32_t known; /* its connection: what the link had lost when it left */
};

static void tell(struct sim_compute *compute)
{
    if (compute->heard && !compute->dead)
        compute->heard(compute->heard_context);
}

static struct sim_load notice_load(const struct sim *sim)
{
    return (struct sim_load){.messages = 1, .bytes = sim_wire_bytes(&sim->model, NOTICE_BYTES)};
}

static void send_one(struct sim *sim, struct sim_compute *compute, uint64_t number)
{
    const struct sim_link *link = sim_link_get(compute, 0);
    if (!link || compute->fenced || !sim_link_stands(sim, link))
        return;
    sim_time sent = sim_nic_send(&sim->model, sim->memories[0].nic, sim->now, notice_load(sim));
    if (sim_message_lost(sim)) {
        sim_see_peer(sim, SIM_MESSAGE_LOST, &(struct sim_peer_sight){compute->index, -1, number, 0});
        return;
    }
    struct sim_notice *notice = malloc(sizeof *notice);
    if (!notice || !sim_queue_claim(&sim->queue, 1)) {
        free(notice);
        return;
    }
    *notice = (struct sim_notice){.number = number, .known = link->known};
    sim_push(sim, sent + sim_message_time(sim), SIM_EVENT_NOTICE, notice, 0, compute->index);
}

void sim_notices_send(struct sim *sim, uint64_t number)
{
    for (uint32_t i = 0; i < sim->compute_count; i++)
        send_one(sim, sim->computes[i], number);
}

void sim_notice_arrive(struct sim *sim, struct sim_compute *compute, struct sim_notice *notice)
{
    uint64_t number = notice->number;
    bool stale = sim_link_stale(compute, 0, notice->known);
    free(notice);
    sim_queue_release(&sim->queue, 1);
    if (compute->dead || compute->fenced || stale)
        return;
    sim_receive(sim, compute->nic, notice_load(sim));
    sim_see_peer(sim, SIM_NOTICED, &(struct sim_peer_sight){compute->index, -1, number, 0});
    if (number <= compute->notice)
        return;
    compute->notice = number;
    tell(compute);
}

static void connected(void *argument)
{
    struct sim_link *link = argument;
    if (sim_link_stands(link->compute->sim, link))
        tell(link->compute);
}

void sim_notices_home(struct sim *sim, struct sim_link *link)
{
    if (!link->compute->heard)
        return; /* no event for runs that have no use for it */
    tell(link->compute);
    sim_at_time(sim, link->up, connected, link);
}
