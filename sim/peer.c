/*
 * peer.c - see peer.h.
 *
 * A call has three parts that end apart: its journey (there, the service, and back), its caller's wait, and
 * its time-out. Journey and wait may end one without the other, by a loss or by the time-out; the time-out is
 * an event that comes in any case. The call is freed when all have ended.
 */
#include "sim/peer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/endpoint.h"
#include "sim/message.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/task.h"

/* What of a call is under way. */
enum journey {
    JOURNEY_GOES,   /* the request */
    JOURNEY_WAITS,  /* in the mailbox */
    JOURNEY_SERVED, /* a task has it */
    JOURNEY_COMES,  /* the reply */
    JOURNEY_OVER
};

struct sim_peer_call {
    struct fabric_peer_request request; /* first, so that the call is found from it */
    struct sim_compute *from, *to;
    struct sim_task *caller; /* NULL: it has gone on */
    bool waits;              /* for the reply or the time-out */
    bool timed;              /* the event of its time-out is still to come */
    int result;              /* what the caller is told; set when it does not wait any more */
    enum journey journey;
    uint64_t number;
    sim_time posted, there; /* posted: the message under way; there: in the mailbox's memory */
    /* the caller's */
    void *reply;
    size_t capacity, *reply_length;
    /* what the peer has said */
    void *answer;
    size_t answer_length;
    int status;
    struct sim_peer_call *next, *previous; /* of all */
    struct sim_peer_call *next_mail;
};

/* A task in fabric_peer_receive: on its stack. */
struct sim_receiver {
    struct sim_task *task;
    struct sim_peer_call *call; /* NULL: stopped */
    struct sim_receiver *next;
};

/* Two machines that do not reach each other. */
struct cut {
    uint16_t one, other;
};

struct sim_peers {
    struct sim_peer_call *calls;
    uint64_t numbers;
    struct cut *cuts;
    uint32_t cut_count;
};

static struct sim_peers *peers_of(struct sim *sim)
{
    if (!sim->peers)
        sim->peers = calloc(1, sizeof *sim->peers);
    return sim->peers;
}

/* ---- cuts ---- */

static struct cut *cut_find(const struct sim *sim, uint16_t one, uint16_t other)
{
    for (uint32_t i = 0; sim->peers && i < sim->peers->cut_count; i++) {
        struct cut *cut = &sim->peers->cuts[i];
        if ((cut->one == one && cut->other == other) || (cut->one == other && cut->other == one))
            return cut;
    }
    return NULL;
}

static bool are_cut(const struct sim *sim, const struct sim_compute *one, const struct sim_compute *other)
{
    return cut_find(sim, one->machine, other->machine) != NULL;
}

int sim_cut_peers(struct sim *sim, int compute, int other)
{
    assert(compute >= 0 && (uint32_t)compute < sim->compute_count);
    assert(other >= 0 && (uint32_t)other < sim->compute_count);
    struct sim_peers *peers = peers_of(sim);
    if (!peers)
        return BANYAN_ENOMEM;
    uint16_t one = sim->computes[compute]->machine, two = sim->computes[other]->machine;
    if (cut_find(sim, one, two))
        return BANYAN_OK;
    struct cut *cuts = realloc(peers->cuts, (peers->cut_count + 1) * sizeof *cuts);
    if (!cuts)
        return BANYAN_ENOMEM;
    peers->cuts = cuts;
    cuts[peers->cut_count++] = (struct cut){one, two};
    return BANYAN_OK;
}

void sim_heal_peers(struct sim *sim, int compute, int other)
{
    assert(compute >= 0 && (uint32_t)compute < sim->compute_count);
    assert(other >= 0 && (uint32_t)other < sim->compute_count);
    struct cut *cut = cut_find(sim, sim->computes[compute]->machine, sim->computes[other]->machine);
    if (cut)
        *cut = sim->peers->cuts[--sim->peers->cut_count];
}

void sim_hide_compute(struct sim *sim, int compute, bool hidden)
{
    assert(compute >= 0 && (uint32_t)compute < sim->compute_count);
    sim->computes[compute]->mailbox.hidden = hidden;
}

/* ---- calls ---- */

/* That may be pending: of a message, and of the time-out. */
#define CALL_EVENTS 2

static struct sim_peer_call *call_make(struct sim *sim, const void *request, size_t length)
{
    struct sim_peers *peers = peers_of(sim);
    struct sim_peer_call *call = peers ? calloc(1, sizeof *call + length) : NULL;
    if (!call || !sim_queue_claim(&sim->queue, CALL_EVENTS)) {
        free(call);
        return NULL;
    }
    memcpy(call + 1, request, length);
    call->request.bytes = call + 1;
    call->request.length = length;
    call->number = ++peers->numbers;
    call->next = peers->calls;
    if (peers->calls)
        peers->calls->previous = call;
    peers->calls = call;
    return call;
}

static void call_free_ended(struct sim *sim, struct sim_peer_call *call)
{
    if (call->caller || call->timed || call->journey != JOURNEY_OVER)
        return;
    if (call->previous)
        call->previous->next = call->next;
    else
        sim->peers->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    sim_queue_release(&sim->queue, CALL_EVENTS);
    free(call->answer);
    free(call);
}

/* ---- the callers' waits ---- */

static void wait_begin(struct sim *sim, struct sim_peer_call *call, struct sim_task *task)
{
    call->caller = task;
    call->waits = call->timed = true;
    sim_push(sim, sim_after(task->cpu->busy, sim->params.peer_timeout_ns), SIM_EVENT_TIMEOUT, call, 0,
             call->from->index);
}

/* The caller goes on at `seen`, with the result. */
static void wait_end(struct sim *sim, struct sim_peer_call *call, int result, sim_time seen)
{
    call->waits = false;
    call->result = result;
    sim_resume_at(call->caller, sim_later(seen, sim->now));
}

void sim_peer_timeout(struct sim *sim, struct sim_peer_call *call)
{
    call->timed = false;
    if (!call->waits)
        sim->idle_events--;
    else if (!call->from->dead)
        wait_end(sim, call, BANYAN_ETIMEOUT, sim->now);
    else
        call->caller = NULL; /* it never runs again */
    call_free_ended(sim, call);
}

static void journey_end(struct sim *sim, struct sim_peer_call *call)
{
    call->journey = JOURNEY_OVER;
    call_free_ended(sim, call);
}

/* ---- messages ---- */

static struct sim_load load_of(const struct sim *sim, size_t length)
{
    return (struct sim_load){.messages = 1, .bytes = sim_wire_bytes(&sim->model, (uint32_t)length)};
}

static void see_call(const struct sim *sim, enum sim_sight kind, const struct sim_peer_call *call, int status)
{
    bool caller = kind == SIM_PEER_CALLED || kind == SIM_PEER_RETURNED ||
                  (kind == SIM_MESSAGE_LOST && call->journey == JOURNEY_GOES);
    const struct sim_compute *self = caller ? call->from : call->to, *peer = caller ? call->to : call->from;
    sim_see_peer(sim, kind, &(struct sim_peer_sight){self->index, peer->index, call->number, status});
}

/* The message leaves at `at`, which is not before now: see sim_arrival_time. */
static void send(struct sim *sim, struct sim_peer_call *call, enum journey journey, sim_time at)
{
    const struct sim_model *model = &sim->model;
    bool back = journey == JOURNEY_COMES;
    struct sim_compute *sender = back ? call->to : call->from;
    size_t length = back ? call->answer_length : call->request.length;
    struct sim_dma fetch = {0};
    if (length > model->inline_bytes)
        fetch = (struct sim_dma){.requests = (uint32_t)(length + model->dma_bytes - 1) / model->dma_bytes,
                                 .bytes = (uint32_t)length};
    sim_time sent = sim_nic_send(model, sender->nic, sim->now, load_of(sim, length)) + (at - sim->now);
    sim_time time = sim_message_time(sim) + sim_fetch_time(model, sender->nic, sim->now, fetch);
    call->journey = journey;
    call->posted = at;
    see_call(sim, back ? SIM_PEER_REPLIED : SIM_PEER_CALLED, call, back ? call->status : 0);
    if (sim_message_lost(sim)) {
        see_call(sim, SIM_MESSAGE_LOST, call, 0);
        journey_end(sim, call);
        return;
    }
    sim_push(sim, sent + time, SIM_EVENT_PEER, call, 0, sender->index);
}

/* Whether a message that comes now had left its sender: dead nodes' messages have, or not. */
static bool has_left(struct sim *sim, struct sim_compute *sender, sim_time posted)
{
    if (sender->dead)
        return !sender->cut && posted <= sender->death && !random_chance(&sim->dice[SIM_DIE_DEATH], 0.5);
    return sim_effect_happens(sim, sender);
}

/* Nobody is there to receive it. */
static void refuse(struct sim *sim, struct sim_peer_call *call, sim_time at)
{
    call->status = BANYAN_ENET;
    call->answer_length = 0;
    send(sim, call, JOURNEY_COMES, at);
}

static void request_arrive(struct sim *sim, struct sim_peer_call *call, sim_time there)
{
    struct sim_mailbox *mailbox = &call->to->mailbox;
    if (mailbox->stopped) {
        refuse(sim, call, there);
        return;
    }
    struct sim_receiver *receiver = mailbox->waiting_first;
    if (receiver) {
        mailbox->waiting_first = receiver->next;
        call->journey = JOURNEY_SERVED;
        receiver->call = call;
        see_call(sim, SIM_PEER_RECEIVED, call, 0);
        sim_resume_at(receiver->task, there);
        return;
    }
    call->journey = JOURNEY_WAITS;
    call->there = there;
    call->next_mail = NULL;
    if (mailbox->first)
        mailbox->last->next_mail = call;
    else
        mailbox->first = call;
    mailbox->last = call;
}

static void reply_arrive(struct sim *sim, struct sim_peer_call *call, sim_time there)
{
    if (call->waits) { /* else the time is out */
        int result = call->status;
        if (call->answer_length > call->capacity)
            result = BANYAN_EINVAL;
        else if (call->answer_length)
            memcpy(call->reply, call->answer, *call->reply_length = call->answer_length);
        wait_end(sim, call, result, there);
        sim->idle_events++; /* the time-out is nothing to wait for any more */
    }
    journey_end(sim, call);
}

void sim_peer_arrive(struct sim *sim, struct sim_peer_call *call)
{
    bool back = call->journey == JOURNEY_COMES;
    struct sim_compute *sender = back ? call->to : call->from, *receiver = back ? call->from : call->to;
    sim_note(sim, call->number << 1 | back);
    if (!has_left(sim, sender, call->posted) || receiver->dead || are_cut(sim, sender, receiver)) {
        see_call(sim, SIM_MESSAGE_LOST, call, 0);
        journey_end(sim, call);
        return;
    }
    size_t length = back ? call->answer_length : call->request.length;
    sim_time there = sim_receive(sim, receiver->nic, load_of(sim, length));
    if (back)
        reply_arrive(sim, call, there);
    else
        request_arrive(sim, call, there);
}

/* ---- the tasks' side ---- */

int sim_peer_run(struct fabric_endpoint *base, struct fabric_process peer, const void *request, size_t length,
                 void *reply, size_t capacity, size_t *reply_length)
{
    const struct sim_endpoint *endpoint = (const struct sim_endpoint *)base;
    struct sim_compute *from = endpoint->compute;
    struct sim *sim = from->sim;
    struct sim_task *task = sim_calling_task(endpoint);
    struct sim_compute *to = sim_process_find(sim, peer);
    if (!task)
        return BANYAN_EINVAL;
    task->cpu->busy += sim->model.post + sim->model.command;
    if (!to || to->fenced || to->mailbox.hidden) /* fenced: dead, and known to be */
        return BANYAN_EFENCED;
    struct sim_peer_call *call = call_make(sim, request, length);
    if (!call)
        return BANYAN_ENOMEM;
    call->request.from = fabric_self(&from->fabric);
    call->from = from;
    call->to = to;
    call->reply = reply;
    call->capacity = capacity;
    call->reply_length = reply_length;
    wait_begin(sim, call, task);
    send(sim, call, JOURNEY_GOES, task->cpu->busy);
    sim_task_suspend(task);
    task->cpu->busy += sim->model.poll + sim->model.receive;
    int result = call->result;
    see_call(sim, SIM_PEER_RETURNED, call, result);
    call->caller = NULL;
    call_free_ended(sim, call);
    return result;
}

int sim_peer_receive(struct fabric_endpoint *base, struct fabric_peer_request **request)
{
    const struct sim_endpoint *endpoint = (const struct sim_endpoint *)base;
    struct sim *sim = endpoint->compute->sim;
    struct sim_mailbox *mailbox = &endpoint->compute->mailbox;
    struct sim_task *task = sim_calling_task(endpoint);
    if (!task)
        return BANYAN_EINVAL;
    if (mailbox->stopped)
        return BANYAN_EABORT;
    if (mailbox->hidden)
        return BANYAN_ENOTSUP;
    struct sim_peer_call *call = mailbox->first;
    if (call) {
        mailbox->first = call->next_mail;
        call->journey = JOURNEY_SERVED;
        see_call(sim, SIM_PEER_RECEIVED, call, 0);
        if (call->there > task->cpu->busy) {
            sim_resume_at(task, call->there);
            sim_task_suspend(task);
        }
    } else {
        struct sim_receiver receiver = {.task = task};
        if (mailbox->waiting_first)
            mailbox->waiting_last->next = &receiver;
        else
            mailbox->waiting_first = &receiver;
        mailbox->waiting_last = &receiver;
        sim_task_suspend(task);
        call = receiver.call;
    }
    task->cpu->busy += sim->model.poll;
    if (!call)
        return BANYAN_EABORT;
    task->cpu->busy += sim->model.receive;
    *request = &call->request;
    return BANYAN_OK;
}

void sim_peer_reply(struct fabric_endpoint *base, struct fabric_peer_request *request, int status,
                    const void *reply, size_t length)
{
    const struct sim_endpoint *endpoint = (const struct sim_endpoint *)base;
    struct sim *sim = endpoint->compute->sim;
    struct sim_task *task = sim_calling_task(endpoint);
    struct sim_peer_call *call = (struct sim_peer_call *)request;
    assert(task && call->journey == JOURNEY_SERVED && call->to == endpoint->compute);
    task->cpu->busy += sim->model.post + sim->model.command;
    call->answer = length ? malloc(length) : NULL;
    if (call->answer) {
        memcpy(call->answer, reply, length);
        call->answer_length = length;
    } else if (length) {
        status = BANYAN_ENOMEM;
    }
    call->status = status;
    send(sim, call, JOURNEY_COMES, task->cpu->busy);
}

void sim_peer_stop(struct sim *sim, struct sim_compute *compute)
{
    struct sim_mailbox *mailbox = &compute->mailbox;
    sim_time now = sim_effective(sim);
    if (mailbox->stopped || compute->dead)
        return;
    mailbox->stopped = true;
    while (mailbox->waiting_first) {
        struct sim_receiver *receiver = mailbox->waiting_first;
        mailbox->waiting_first = receiver->next;
        sim_resume_at(receiver->task, now);
    }
    while (mailbox->first) {
        struct sim_peer_call *call = mailbox->first;
        mailbox->first = call->next_mail;
        refuse(sim, call, now);
    }
}

void sim_peers_free(struct sim *sim)
{
    struct sim_peers *peers = sim->peers;
    if (!peers)
        return;
    for (struct sim_peer_call *call = peers->calls, *next; call; call = next) {
        next = call->next;
        free(call->answer);
        free(call);
    }
    free(peers->cuts);
    free(peers);
    sim->peers = NULL;
}
