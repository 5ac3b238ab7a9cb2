/* loop.c - the event loop, and events at a time that the caller names (contract: sim.h). */
#include <assert.h>

#include "sim/call.h"
#include "sim/fetch.h"
#include "sim/list.h"
#include "sim/node.h"
#include "sim/notice.h"
#include "sim/peer.h"
#include "sim/state.h"
#include "sim/task.h"
#include "sim/transfer.h"

/* From here on, as the plain thread: the next work is not a task's. */
static void leave_tasks(void)
{
    task_set_self(NULL);
}

static void run_message(struct sim *sim, const struct sim_event *event)
{
    if (event->kind == SIM_EVENT_NOTICE)
        sim_notice_arrive(sim, sim->computes[event->compute], event->object);
    else if (event->kind == SIM_EVENT_PEER)
        sim_peer_arrive(sim, event->object);
    else
        sim_peer_timeout(sim, event->object);
}

/* Something may still happen. */
static bool is_alive(const struct sim *sim)
{
    return sim->queue.count > sim->idle_events;
}

static void run_event(struct sim *sim, const struct sim_event *event)
{
    if (event->kind == SIM_EVENT_AT) {
        leave_tasks();
        sim_fetch_settle_all(sim);
        sim_queue_release(&sim->queue, 1);
        event->function(event->object);
        return;
    }
    if (event->kind == SIM_EVENT_WORK) {
        leave_tasks();
        sim_core_work(sim, (uint16_t)event->number);
        return;
    }
    if (event->kind >= SIM_EVENT_NOTICE) {
        leave_tasks();
        run_message(sim, event);
        return;
    }
    struct sim_compute *compute = sim->computes[event->compute];
    if (compute->fenced || (compute->dead && event->kind <= SIM_EVENT_CPU)) {
        if (event->kind == SIM_EVENT_STEP)
            sim_transfer_drop(sim, event->object);
        return;
    }
    switch ((enum sim_event_kind)event->kind) {
    case SIM_EVENT_RESUME:
        sim_note(sim, ((struct sim_task *)event->object)->number);
        sim_task_ready(sim, event->object);
        break;
    case SIM_EVENT_CPU:
        sim_run_cpu(sim, event->object);
        break;
    case SIM_EVENT_ARRIVE:
        sim_list_arrive(sim, compute, event->object, event->number);
        break;
    case SIM_EVENT_RESPOND:
        sim_list_respond(sim, compute, event->object, event->number);
        break;
    case SIM_EVENT_RETURN:
        sim_list_return(sim, compute, event->object, event->number);
        break;
    case SIM_EVENT_STEP:
        sim_transfer_step(sim, compute, event->object);
        break;
    case SIM_EVENT_REQUEST:
        sim_call_request(sim, compute, event->object, event->number);
        break;
    case SIM_EVENT_SERVED:
        leave_tasks();
        sim_call_served(sim, compute, event->object);
        break;
    case SIM_EVENT_REPLY:
        sim_call_reply(sim, compute, event->object);
        break;
    case SIM_EVENT_FENCE:
        leave_tasks();
        sim_compute_fence(sim, compute);
        break;
    case SIM_EVENT_AT:
    case SIM_EVENT_WORK:
    case SIM_EVENT_NOTICE:
    case SIM_EVENT_PEER:
    case SIM_EVENT_TIMEOUT:
        break;
    }
}

unsigned sim_run(struct sim *sim, uint64_t until)
{
    sim_time limit = sim_after(0, until);
    assert(!sim->current);
    sim->stopped = false;
    while (is_alive(sim) && !sim->stopped && sim->queue.keys[0].time <= limit &&
           sim->events < sim->event_limit) {
        struct sim_event event;
        sim->now = sim_queue_pop(&sim->queue, &event);
        sim->events++;
        sim_note(sim, sim->now << 4 | event.kind);
        run_event(sim, &event);
    }
    if (is_alive(sim) && !sim->stopped && limit > sim->now && !sim_exhausted(sim))
        sim->now = limit;
    leave_tasks();
    return sim->live_tasks;
}

void sim_stop(struct sim *sim)
{
    sim->stopped = true;
}

uint64_t sim_now(const struct sim *sim)
{
    return sim->now / SIM_NANOSECOND;
}

uint64_t sim_events(const struct sim *sim)
{
    return sim->events;
}

void sim_limit_events(struct sim *sim, uint64_t events)
{
    sim->event_limit = events && events < UINT64_MAX - sim->events ? sim->events + events : UINT64_MAX;
}

bool sim_exhausted(const struct sim *sim)
{
    return sim->events >= sim->event_limit;
}

uint32_t sim_task_number(const struct sim *sim)
{
    return sim->current ? sim->current->number : UINT32_MAX;
}

uint64_t sim_task_now(const struct sim *sim)
{
    return sim_effective(sim) / SIM_NANOSECOND;
}

uint64_t sim_trace_hash(const struct sim *sim)
{
    return sim->hash;
}

struct random *sim_random(struct sim *sim)
{
    return &sim->user_random;
}

int sim_at_time(struct sim *sim, sim_time time, void (*function)(void *), void *argument)
{
    if (!sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    struct sim_event event = {.object = argument, .function = function, .kind = SIM_EVENT_AT};
    sim_queue_push(&sim->queue, sim_later(time, sim->now), &event);
    return BANYAN_OK;
}

int sim_at(struct sim *sim, uint64_t time, void (*function)(void *), void *argument)
{
    return sim_at_time(sim, sim_after(0, time), function, argument);
}
