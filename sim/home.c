/* home.c - see home.h. */
#include "sim/home.h"

#include <string.h>

#include "sim/call.h"
#include "sim/endpoint.h"
#include "sim/lease.h"
#include "sim/link.h"
#include "sim/node.h"
#include "sim/notice.h"
#include "sim/state.h"

#define HOME 0

struct question {
    struct fabric_process process;
    bool over;
    uint64_t number;
    struct fabric_process *processes;
    uint32_t capacity, count;
};

static int ask(struct fabric_endpoint *endpoint, uint16_t node, struct question *question,
               int (*serve)(struct sim *, struct sim_compute *, struct sim_call *))
{
    size_t reply_length = 0;
    struct sim_call call = {
        .node = node,
        .length = sizeof question->process,
        .reply_length = &reply_length,
        .serve = serve,
        .context = question,
    };
    if (!fabric_membership(endpoint->fabric, node))
        return BANYAN_EINVAL;
    return sim_call_run((struct sim_endpoint *)endpoint, &call);
}

/* Like a loss of its connections there: what stands is lost, and what was lost before is fenced already. A
 * dead node does not learn of it. */
static int serve_fence(struct sim *sim, struct sim_compute *caller, struct sim_call *call)
{
    const struct question *question = call->context;
    struct sim_compute *compute = sim_process_find(sim, question->process);
    (void)caller;
    if (!compute || compute->fenced)
        return BANYAN_OK;
    struct sim_link *link = sim_link_get(compute, call->node);
    if (!link)
        return BANYAN_ENOMEM;
    if (!sim_link_stands(sim, link))
        return BANYAN_OK;
    sim_link_lose(sim, link,
                  sim_later(sim->now, compute->stalled_until) +
                      sim_dice_time(sim, SIM_DIE_LOSE, sim->faults.lose_ns));
    return sim_link_stands(sim, link) ? BANYAN_ENOMEM : BANYAN_OK;
}

int sim_home_fence(struct fabric_endpoint *endpoint, uint16_t node, struct fabric_process process)
{
    struct question question = {.process = process};
    return ask(endpoint, node, &question, serve_fence);
}

static int serve_lease_over(struct sim *sim, struct sim_compute *caller, struct sim_call *call)
{
    struct question *question = call->context;
    struct sim_compute *compute = sim_process_find(sim, question->process);
    (void)caller;
    question->over = !compute || sim_lease_over(sim, compute);
    *call->reply_length = sizeof question->over;
    return BANYAN_OK;
}

int sim_home_lease_over(struct fabric_endpoint *endpoint, struct fabric_process process, bool *over)
{
    struct question question = {.process = process};
    int status = ask(endpoint, HOME, &question, serve_lease_over);
    *over = !status && question.over;
    return status;
}

static bool is_connected(const struct sim *sim, struct sim_compute *compute)
{
    const struct sim_link *link = compute->link_count > HOME ? compute->links[HOME] : NULL;
    return !compute->fenced && (!link || sim_link_stands(sim, link));
}

/* Keeps the list in the order of ids. A process and its successor are never both connected. */
static void list_add(struct question *question, struct fabric_process process)
{
    uint32_t listed = question->count < question->capacity ? question->count : question->capacity, at = 0;
    while (at < listed && question->processes[at].compute_id < process.compute_id)
        at++;
    question->count++;
    if (at == question->capacity)
        return;
    if (listed == question->capacity)
        listed--;
    memmove(&question->processes[at + 1], &question->processes[at],
            (listed - at) * sizeof question->processes[0]);
    question->processes[at] = process;
}

static int serve_processes(struct sim *sim, struct sim_compute *caller, struct sim_call *call)
{
    struct question *question = call->context;
    (void)caller;
    for (uint32_t i = 0; i < sim->compute_count; i++)
        if (is_connected(sim, sim->computes[i]))
            list_add(question, fabric_self(&sim->computes[i]->fabric));
    *call->reply_length = question->count * sizeof question->processes[0];
    return BANYAN_OK;
}

int sim_home_processes(struct fabric_endpoint *endpoint, struct fabric_process *processes, uint32_t capacity,
                       uint32_t *count)
{
    struct question question = {.processes = processes, .capacity = capacity};
    int status = ask(endpoint, HOME, &question, serve_processes);
    *count = status ? 0 : question.count;
    return status;
}

static int serve_notify(struct sim *sim, struct sim_compute *caller, struct sim_call *call)
{
    const struct question *question = call->context;
    (void)caller;
    sim_notices_send(sim, question->number);
    return BANYAN_OK;
}

int sim_home_notify(struct fabric_endpoint *endpoint, uint64_t number)
{
    struct question question = {.number = number};
    return ask(endpoint, HOME, &question, serve_notify);
}
