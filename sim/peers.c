/* peers.c - the operations of fabric/peers.h in virtual time: which part does what. */
#include "fabric/peers.h"

#include <stdio.h>

#include "sim/home.h"
#include "sim/lease.h"
#include "sim/link.h"
#include "sim/node.h"
#include "sim/peer.h"
#include "sim/state.h"
#include "sim/task.h"

/* Time goes on for a task that asks for the lease again and again. */
static struct sim_compute *asked(const struct fabric *fabric)
{
    struct sim_compute *compute = (struct sim_compute *)(uintptr_t)fabric;
    struct sim_task *task = compute->sim->current;
    if (task)
        task->cpu->busy += compute->sim->model.clock;
    return compute;
}

static struct fabric_process backend_self(const struct fabric *fabric)
{
    const struct sim_compute *compute = (const struct sim_compute *)fabric;
    return (struct fabric_process){.instance = compute->index + 1u,
                                   .compute_id = compute->fabric.capabilities.compute_id};
}

struct sim_compute *sim_process_find(const struct sim *sim, struct fabric_process process)
{
    if (process.instance < 1 || process.instance > sim->compute_count)
        return NULL;
    struct sim_compute *compute = sim->computes[process.instance - 1];
    return compute->fabric.capabilities.compute_id == process.compute_id ? compute : NULL;
}

static bool backend_lease_alive(const struct fabric *fabric)
{
    struct sim_compute *compute = asked(fabric);
    return sim_lease_alive(compute->sim, compute);
}

static uint64_t backend_lease_lapses(const struct fabric *fabric)
{
    struct sim_compute *compute = asked(fabric);
    return sim_lease_lapses(compute->sim, compute);
}

static void backend_lease_resume(struct fabric *fabric, uint64_t incarnation)
{
    struct sim_compute *compute = (struct sim_compute *)fabric;
    sim_lease_resume(compute->sim, compute, incarnation);
}

static uint64_t backend_notice(const struct fabric *fabric)
{
    return ((const struct sim_compute *)fabric)->notice;
}

static void backend_notice_listen(struct fabric *fabric, void (*heard)(void *), void *context)
{
    struct sim_compute *compute = (struct sim_compute *)fabric;
    compute->heard = heard;
    compute->heard_context = context;
}

static void backend_stop(struct fabric *fabric)
{
    struct sim_compute *compute = (struct sim_compute *)fabric;
    sim_peer_stop(compute->sim, compute);
}

static void backend_describe(const struct fabric *fabric, struct fabric_process peer, char *text, size_t size)
{
    const struct sim_compute *compute = (const struct sim_compute *)fabric;
    const struct sim_compute *other = sim_process_find(compute->sim, peer);
    if (!other)
        snprintf(text, size, "there is no process %llu of compute node %u", (unsigned long long)peer.instance,
                 peer.compute_id);
    else if (other->fenced)
        snprintf(text, size, "compute node %u is dead", peer.compute_id);
    else if (other->mailbox.hidden)
        snprintf(text, size, "compute node %u has no address for peers", peer.compute_id);
    else
        snprintf(text, size, "compute node %u, machine %u of the simulator", peer.compute_id, other->machine);
}

const struct fabric_peer_ops sim_peer_operations = {
    .self = backend_self,
    .lease_alive = backend_lease_alive,
    .lease_lapses = backend_lease_lapses,
    .lease_resume = backend_lease_resume,
    .fence = sim_home_fence,
    .lease_over = sim_home_lease_over,
    .processes = sim_home_processes,
    .notify = sim_home_notify,
    .notice = backend_notice,
    .notice_listen = backend_notice_listen,
    .call = sim_peer_run,
    .receive = sim_peer_receive,
    .reply = sim_peer_reply,
    .stop = backend_stop,
    .describe = backend_describe,
};
