/* call.c - calls to a memory node: the request, its turn on a core, the reply (contract: call.h). */
#include "sim/call.h"

#include <assert.h>
#include <stdlib.h>

#include "fabric/target.h"
#include "sim/endpoint.h"
#include "sim/fetch.h"
#include "sim/link.h"
#include "sim/message.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/pair.h"
#include "sim/state.h"
#include "sim/task.h"

static struct sim_load call_load(const struct sim *sim, size_t length)
{
    uint32_t bytes = length <= FABRIC_LENGTH_MAX ? (uint32_t)length : FABRIC_LENGTH_MAX;
    return (struct sim_load){.messages = 1, .bytes = sim_wire_bytes(&sim->model, bytes)};
}

/* Posts the call; its waiter waits for one more. An error: it was not posted. */
static int call_post(struct sim_endpoint *endpoint, struct sim_call *call)
{
    struct sim_compute *compute = endpoint->compute;
    struct sim *sim = compute->sim;
    struct sim_task *task = call->waiter->task;
    uint16_t node = call->node;
    call->connection = sim_connection_get(endpoint, task->cpu, node);
    int admitted = sim_link_admit(compute, node, call->incarnation, &call->known);
    if (admitted) {
        admitted = admitted == BANYAN_ENET && !call->incarnation ? BANYAN_EFENCED : admitted;
        sim_see_call(sim, SIM_CALL_RETURNED, task, node, admitted);
        return admitted;
    }
    if (!call->connection || !sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    task->cpu->busy += sim->model.post + sim->model.command;
    task->cpu->busy += sim_doorbell_ring(sim, call->connection->pair, task->cpu);
    call->waiter->pending++;
    sim_time arrival =
        sim_arrival_time(sim, compute, task, call->connection, call_load(sim, call->length), 0);
    sim_push(sim, arrival, SIM_EVENT_REQUEST, call, task->cpu->busy, compute->index);
    sim_see_call(sim, SIM_CALLED, task, node, BANYAN_OK);
    return BANYAN_OK;
}

static void calls_wait(const struct sim_waiter *waiter, const struct sim *sim)
{
    if (!waiter->pending)
        return;
    sim_task_suspend(waiter->task);
    waiter->task->cpu->busy += sim->model.poll;
}

int sim_call_run(struct sim_endpoint *endpoint, struct sim_call *call)
{
    struct sim_task *task = sim_calling_task(endpoint);
    if (!task)
        return BANYAN_EINVAL;
    call->own = (struct sim_waiter){.task = task};
    call->waiter = &call->own;
    int status = call_post(endpoint, call);
    calls_wait(&call->own, endpoint->compute->sim);
    return status ? status : call->status;
}

int sim_backend_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                     void *reply, size_t capacity, size_t *reply_length)
{
    struct sim_call call = {
        .node = node,
        .request = request,
        .length = length,
        .reply = reply,
        .capacity = capacity,
        .reply_length = reply_length,
    };
    return sim_call_run((struct sim_endpoint *)endpoint, &call);
}

#define CALLS_TOGETHER 8u

void sim_backend_calls(struct fabric_endpoint *base, struct fabric_call *const *calls, uint32_t count)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
    struct sim_task *task = sim_calling_task(endpoint);
    for (uint32_t from = 0; from < count; from += CALLS_TOGETHER) {
        const uint32_t together = count - from < CALLS_TOGETHER ? count - from : CALLS_TOGETHER;
        struct sim_call posted[CALLS_TOGETHER];
        struct sim_waiter waiter = {.task = task};
        for (uint32_t i = 0; i < together; i++) {
            struct fabric_call *call = calls[from + i];
            posted[i] = (struct sim_call){.waiter = &waiter,
                                          .node = call->node,
                                          .incarnation = call->incarnation,
                                          .request = call->request,
                                          .length = call->length,
                                          .reply = call->reply,
                                          .capacity = call->capacity,
                                          .reply_length = &call->reply_length};
            int status = task ? call_post(endpoint, &posted[i]) : BANYAN_EINVAL;
            if (status)
                posted[i].status = status;
        }
        if (task)
            calls_wait(&waiter, endpoint->compute->sim);
        for (uint32_t i = 0; i < together; i++)
            calls[from + i]->status = posted[i].status;
    }
}

/* The connection has been lost since: it comes back without having been served. */
static void refuse_call(struct sim *sim, const struct sim_compute *compute, struct sim_call *call)
{
    *call->reply_length = 0;
    sim_push(sim, sim->now + sim->model.wire, SIM_EVENT_REPLY, call, 0, compute->index);
}

void sim_call_request(struct sim *sim, struct sim_compute *compute, struct sim_call *call, sim_time posted)
{
    struct sim_memory *memory = &sim->memories[call->node];
    sim_note(sim, (uint64_t)compute->index << 32 | call->node);
    if (compute->dead && (compute->cut || call->connection->cut || posted > compute->death ||
                          random_chance(&sim->dice[SIM_DIE_DEATH], 0.5))) {
        call->connection->cut = true; /* never arrived */
        return;
    }
    if (sim_link_stale(compute, call->node, call->known)) {
        if (!compute->dead)
            refuse_call(sim, compute, call);
        return;
    }
    sim_time received = sim_receive(sim, memory->nic, call_load(sim, call->length)) + sim->model.pass;
    sim_time start = sim_later(received, memory->nic->serve_free) + sim_state_time(sim, memory->nic) +
                     sim->model.pcie_write;
    sim_time served = sim_core_serve(sim, memory, compute->fabric.capabilities.compute_id, call, start);
    sim_push(sim, served, SIM_EVENT_SERVED, call, 0, compute->index);
}

/* The caller is dead, but its request had arrived: it is served, and the reply goes nowhere. */
static void serve_dead(struct sim_compute *compute, struct sim_call *call, const struct fabric_target *target)
{
    size_t length = 0;
    if (call->serve) { /* its context is on the caller's stack, which stays (sim.h) */
        call->serve(compute->sim, compute, call);
        return;
    }
    void *reply = malloc(call->capacity ? call->capacity : 1);
    if (!reply)
        return;
    target->call(target->owner, compute->fabric.capabilities.compute_id, call->request, call->length, reply,
                 call->capacity, &length);
    free(reply);
}

/* The status, or SIM_LATER. */
static int serve(struct sim *sim, struct sim_compute *compute, struct sim_call *call)
{
    const struct sim_memory *memory = &sim->memories[call->node];
    const uint16_t id = compute->fabric.capabilities.compute_id;
    if (call->serve)
        return call->serve(sim, compute, call);
    if (memory->later.call)
        return memory->later.call(memory->later.context, id, call->request, call->length, call->reply,
                                  call->capacity, call->reply_length, &call->ticket);
    return memory->target->call(memory->target->owner, id, call->request, call->length, call->reply,
                                call->capacity, call->reply_length);
}

static void send_reply(struct sim *sim, const struct sim_compute *compute, struct sim_call *call)
{
    const struct sim_model *model = &sim->model;
    struct sim_load load = call_load(sim, *call->reply_length);
    sim_time sent = sim_nic_send(model, sim->memories[call->node].nic, sim->now, load);
    sim_time arrival = sent + model->doorbell + 2 * model->pass + model->wire + model->pcie_write +
                       sim_jitter(model, &sim->jitter_random) + sim_late_reply(sim);
    sim_push(sim, arrival, SIM_EVENT_REPLY, call, 0, compute->index);
}

static void wait_begin(struct sim *sim, struct sim_compute *compute, struct sim_call *call)
{
    struct sim_call **last = &sim->memories[call->node].waiting;
    while (*last)
        last = &(*last)->next;
    call->caller = compute;
    call->next = NULL;
    *last = call;
}

void sim_answer_later(struct sim *sim, int memory, const struct sim_later *later)
{
    assert(memory >= 0 && (uint32_t)memory < sim->memory_count);
    sim->memories[memory].later = *later;
}

void sim_settled(struct sim *sim, int memory)
{
    assert(!sim->current && memory >= 0 && (uint32_t)memory < sim->memory_count);
    const struct sim_later *later = &sim->memories[memory].later;
    struct sim_call **at = &sim->memories[memory].waiting;
    while (*at) {
        struct sim_call *call = *at;
        if (!call->caller->dead && !later->outcome(later->context, call->ticket, &call->status)) {
            at = &call->next;
            continue;
        }
        *at = call->next;
        if (call->caller->dead)
            continue; /* its connections are gone, and nobody waits */
        if (sim_link_stale(call->caller, call->node, call->known))
            refuse_call(sim, call->caller, call);
        else
            send_reply(sim, call->caller, call);
    }
}

void sim_call_served(struct sim *sim, struct sim_compute *compute, struct sim_call *call)
{
    struct sim_memory *memory = &sim->memories[call->node];
    if (sim_link_stale(compute, call->node, call->known)) { /* fenced while it waited for its turn */
        if (!compute->dead)
            refuse_call(sim, compute, call);
        return;
    }
    if (compute->cut || !sim_effect_happens(sim, compute))
        return;
    sim_fetch_settle(sim, call->node);
    sim_see_call(sim, SIM_EFFECT, call->waiter->task, call->node, 0);
    sim_core_work_begin(sim, call->node);
    if (compute->dead) {
        serve_dead(compute, call, memory->target);
        return;
    }
    call->status = serve(sim, compute, call);
    if (call->status == SIM_LATER)
        wait_begin(sim, compute, call);
    else
        send_reply(sim, compute, call);
}

void sim_call_reply(struct sim *sim, struct sim_compute *compute, struct sim_call *call)
{
    if (compute->dead)
        return;
    if (sim_link_stale(compute, call->node, call->known)) { /* served or not */
        sim_link_learn(compute, call->node);
        call->status = BANYAN_ENET;
        *call->reply_length = 0;
    }
    sim_see_call(sim, SIM_CALL_RETURNED, call->waiter->task, call->node, call->status);
    sim_time seen = sim_receive(sim, compute->nic, call_load(sim, *call->reply_length));
    sim_complete(sim, compute, call->waiter, seen + sim_state_time(sim, compute->nic));
}
