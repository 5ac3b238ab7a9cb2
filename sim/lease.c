/*
 * lease.c - see lease.h.
 *
 * A task that has charged work is ahead of the world's clock. What it asks is answered as of its own time:
 * heartbeats are gone through up to there, as if nothing were lost meanwhile, and count at the home node as
 * well; if something is lost meanwhile after all, the home node counts from a heartbeat that it would not
 * have received, which makes it end the lease later, never earlier.
 */
#include "sim/lease.h"

#include "sim/link.h"
#include "sim/node.h"
#include "sim/state.h"

#define HOME 0
/* What the holder takes off, for clocks whose rates differ. */
#define MARGIN 0.01

static struct sim_link *home_link(const struct sim_compute *compute)
{
    return compute->link_count > HOME ? compute->links[HOME] : NULL;
}

/* How fast a clock runs: the same for a node as long as the fault is what it is. */
static double clock_rate(const struct sim *sim, uint64_t who)
{
    if (sim->faults.clock_drift <= 0)
        return 1;
    struct random random;
    random_seed(&random, random_mix(sim->beat_seed + 1) ^ who);
    return 1 + sim->faults.clock_drift * (2 * random_unit(&random) - 1);
}

/* By a clock of that rate. */
static double elapsed(sim_time from, sim_time to, double rate)
{
    return to > from ? (double)(to - from) * rate : 0;
}

static double lease_length(const struct sim *sim)
{
    return (double)sim->params.read_lease_ns * (double)SIM_NANOSECOND;
}

static bool is_fresh(const struct sim *sim, const struct sim_compute *compute, sim_time at)
{
    return elapsed(compute->lease.sent, at, clock_rate(sim, compute->index + 1u)) <
           lease_length(sim) * (1 - MARGIN);
}

static void count_lapse(const struct sim *sim, struct sim_compute *compute, sim_time at)
{
    struct sim_lease *lease = &compute->lease;
    if (lease->lapsed || is_fresh(sim, compute, at))
        return;
    lease->lapsed = true;
    lease->lapses++;
}

/* An echo that counts comes. */
static void renew(const struct sim *sim, struct sim_compute *compute, sim_time sent, sim_time at)
{
    count_lapse(sim, compute, at);
    compute->lease.sent = sim_later(compute->lease.sent, sent);
    compute->lease.lapsed = compute->lease.lapsed && !is_fresh(sim, compute, at);
}

static bool counts(const struct sim_compute *compute)
{
    const struct sim_link *link = home_link(compute);
    return !link || link->incarnation <= compute->lease.incarnation;
}

/* From one end to the other. Drawn from the heartbeat's number, since how many others were gone through
 * before it depends on who has asked. */
static sim_time way_time(const struct sim *sim, const struct sim_compute *compute, bool back)
{
    const struct sim_model *model = &sim->model;
    struct random random;
    random_seed(&random, random_mix(sim->beat_seed ^ (uint64_t)compute->index << 48) +
                             2 * compute->lease.beats + back);
    sim_time time =
        model->doorbell + 2 * model->pass + model->wire + model->pcie_write + sim_jitter(model, &random);
    if (random_chance(&random, back ? sim->faults.late_replies : sim->faults.late))
        time += random_below(&random, sim->faults.late_ns + 1ull) * SIM_NANOSECOND;
    return time;
}

/* Sends the next heartbeat, unless it is due later than `until` or there is no connection. */
static bool beat_send(const struct sim *sim, struct sim_compute *compute, sim_time until)
{
    struct sim_lease *lease = &compute->lease;
    const struct sim_link *link = home_link(compute);
    sim_time at = lease->beat_next;
    if (compute->dead || compute->fenced || (link && link->lost != link->known))
        return false;
    if (link)
        at = sim_later(at, link->up);
    if (compute->stalled_from <= at && at < compute->stalled_until)
        at = compute->stalled_until;
    if (at > until)
        return false;
    lease->beats++;
    lease->beat = SIM_BEAT_GOES;
    lease->beat_sent = at;
    lease->beat_known = link ? link->known : 0;
    lease->beat_next = at + way_time(sim, compute, false);
    return true;
}

/* No heartbeat is under way any more; the next is due a third of the lease after it, or at once. */
static void beat_end(const struct sim *sim, struct sim_lease *lease, sim_time at)
{
    sim_time due = sim_after(lease->beat_sent, sim->params.read_lease_ns / 3);
    lease->beat = SIM_BEAT_NONE;
    lease->beat_next = sim_later(due, at);
}

/* The heartbeat is at the home node. */
static void beat_arrive(const struct sim *sim, struct sim_compute *compute)
{
    struct sim_lease *lease = &compute->lease;
    const struct sim_link *link = home_link(compute);
    sim_time at = lease->beat_next;
    if (HOME < sim->memory_count && sim->memories[HOME].stalled_until > at) {
        lease->beat_next = sim->memories[HOME].stalled_until;
        return;
    }
    if (compute->fenced || (link && link->lost != lease->beat_known)) {
        beat_end(sim, lease, at);
        return;
    }
    lease->received = sim_later(lease->received, at);
    lease->beat = SIM_BEAT_COMES;
    lease->beat_next = at + sim->model.rpc + way_time(sim, compute, true);
}

/* The echo is back. One of a connection that is known to be lost is not read any more. */
static void beat_return(const struct sim *sim, struct sim_compute *compute)
{
    struct sim_lease *lease = &compute->lease;
    const struct sim_link *link = home_link(compute);
    sim_time at = lease->beat_next;
    if (!compute->dead && (!link || link->known == lease->beat_known)) {
        if (counts(compute))
            renew(sim, compute, lease->beat_sent, at);
        else
            lease->unresumed = lease->beat_sent;
    }
    beat_end(sim, lease, at);
}

void sim_lease_advance(struct sim *sim, struct sim_compute *compute)
{
    struct sim_lease *lease = &compute->lease;
    sim_time until = sim_effective(sim);
    while (lease->beat_next <= until) {
        if (lease->beat == SIM_BEAT_NONE && !beat_send(sim, compute, until))
            return;
        if (lease->beat_next > until)
            return;
        if (lease->beat == SIM_BEAT_GOES)
            beat_arrive(sim, compute);
        else
            beat_return(sim, compute);
    }
}

void sim_lease_advance_all(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->compute_count; i++)
        sim_lease_advance(sim, sim->computes[i]);
}

void sim_lease_begin(struct sim *sim, struct sim_compute *compute)
{
    sim_time now = sim_effective(sim);
    compute->lease = (struct sim_lease){
        .sent = now,
        .received = now,
        .incarnation = compute->incarnation,
        .beat_sent = now,
        .beat_next = sim_after(now, sim->params.read_lease_ns / 3),
    };
}

void sim_lease_fenced(struct sim_compute *compute)
{
    compute->lease.fenced = true;
    compute->lease.ended = compute->lease.received;
}

void sim_lease_lost(struct sim *sim, struct sim_compute *compute)
{
    struct sim_lease *lease = &compute->lease;
    sim_lease_advance(sim, compute);
    lease->unresumed = 0;
    lease->beat = SIM_BEAT_NONE; /* what is under way does not come back by another connection */
    lease->beat_next = sim_effective(sim);
}

bool sim_lease_alive(struct sim *sim, struct sim_compute *compute)
{
    sim_lease_advance(sim, compute);
    count_lapse(sim, compute, sim_effective(sim));
    return !compute->lease.lapsed;
}

uint64_t sim_lease_lapses(struct sim *sim, struct sim_compute *compute)
{
    sim_lease_alive(sim, compute);
    return compute->lease.lapses;
}

void sim_lease_resume(struct sim *sim, struct sim_compute *compute, uint64_t incarnation)
{
    struct sim_lease *lease = &compute->lease;
    sim_lease_advance(sim, compute);
    if (incarnation > lease->incarnation)
        lease->incarnation = incarnation;
    if (!lease->unresumed || !counts(compute))
        return;
    renew(sim, compute, lease->unresumed, sim_effective(sim));
    lease->unresumed = 0;
}

bool sim_lease_over(struct sim *sim, struct sim_compute *compute)
{
    sim_lease_advance(sim, compute);
    return compute->lease.fenced &&
           elapsed(compute->lease.ended, sim->now, clock_rate(sim, 0)) >= lease_length(sim);
}
