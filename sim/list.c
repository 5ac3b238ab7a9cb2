/*
 * list.c - lists of commands on their way to a memory node and back (contract: list.h).
 *
 * INSTANTS. Without faults all commands of a list take effect at the event of its arrival at the memory
 * node's NIC, although the NIC may come to it only later: every access to that memory comes through the same
 * NIC in the same order, so the difference cannot be observed; only the answer is late. With faults on,
 * transfer.c spreads the effects. READs are copied into the caller's buffer at those instants.
 *
 * DEATH. A list's ARRIVE event carries the time at which the list was posted: its own memory says only what
 * its task has written since.
 *
 * A list costs two events, and a third where the NIC was behind by more than RESPOND_SLACK.
 */
#include "sim/list.h"

#include "fabric/target.h"
#include "sim/endpoint.h"
#include "sim/link.h"
#include "sim/message.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/pair.h"
#include "sim/state.h"
#include "sim/task.h"
#include "sim/transfer.h"

/* A response ready so much later than its list's arrival books the NIC's way out in an event of its own:
 * booked now, it would hold up messages that leave before it. */
#define RESPOND_SLACK (200 * SIM_NANOSECOND)

#define PREFETCH_BYTES 1024

static uint64_t load_pack(struct sim_load load)
{
    return (uint64_t)load.messages << 32 | load.bytes;
}

static struct sim_load load_unpack(uint64_t packed)
{
    return (struct sim_load){.messages = (uint32_t)(packed >> 32), .bytes = (uint32_t)packed};
}

/* Asks for the cache lines that the list will touch, while other events run until it arrives: this saves real
 * time, not virtual. */
static void prefetch(const struct fabric_target *target, const struct fabric_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const uint8_t *where = fabric_target_locate(target, &list->commands[i]);
        uint32_t length = list->commands[i].operation == FABRIC_READ ? list->commands[i].length : 1;
        for (uint32_t at = 0; where && at < length && at < PREFETCH_BYTES; at += 64)
            __builtin_prefetch(where + at);
    }
}

static int post_list(struct sim *sim, struct sim_endpoint *endpoint, struct sim_waiter *waiter,
                     struct fabric_list *list)
{
    struct sim_compute *compute = endpoint->compute;
    struct sim_cpu *cpu = waiter->task->cpu;
    struct sim_connection *connection = sim_connection_get(endpoint, cpu, list->node);
    uint32_t known;
    int status = sim_link_admit(compute, list->node, list->incarnation, &known);
    if (status)
        return status;
    if (!connection || !sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    struct sim_dma payloads;
    struct sim_load load = sim_request_load(&sim->model, list, &payloads);
    cpu->busy += sim->model.post + list->count * sim->model.command;
    cpu->busy += sim_doorbell_ring(sim, connection->pair, cpu);
    sim_time fetch = sim_fetch_time(&sim->model, compute->nic, sim->now, payloads);
    sim_time arrival = sim_arrival_time(sim, compute, waiter->task, connection, load, fetch);
    waiter->pending++;
    *sim_list(list) =
        (struct sim_list){.waiter = waiter, .connection = connection, .bytes = load.bytes, .known = known};
    sim_push(sim, arrival, SIM_EVENT_ARRIVE, list, cpu->busy, compute->index);
    sim_see_list(sim, SIM_POSTED, waiter->task, list, 0, list->count, BANYAN_OK);
    prefetch(sim->memories[list->node].target, list);
    return BANYAN_OK;
}

int sim_backend_execute(struct fabric_endpoint *base, struct fabric_list *const *lists, uint32_t count)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
    struct sim *sim = endpoint->compute->sim;
    struct sim_task *task = sim_calling_task(endpoint);
    struct sim_waiter waiter = {.task = task};
    int status = BANYAN_OK;
    for (uint32_t i = 0; i < count; i++) {
        lists[i]->status = task ? post_list(sim, endpoint, &waiter, lists[i]) : BANYAN_EINVAL;
        if (task && lists[i]->status)
            sim_see_list(sim, SIM_RETURNED, task, lists[i], 0, lists[i]->count, lists[i]->status);
    }
    if (waiter.pending > 0) {
        sim_task_suspend(task);
        task->cpu->busy += sim->model.poll;
    }
    for (uint32_t i = 0; i < count && !status; i++)
        status = lists[i]->status;
    return status;
}

static void note_list(struct sim *sim, const struct sim_compute *compute, const struct fabric_list *list)
{
    sim_note(sim, (uint64_t)compute->index << 32 | (uint32_t)list->node << 16 | list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        sim_note(sim,
                 command->address ^ (uint64_t)command->operation << 62 ^ (uint64_t)command->length << 20);
    }
}

/* All of it at once. False: its compute node has died over it. */
static bool run_list(struct sim *sim, struct sim_compute *compute, struct fabric_list *list)
{
    const struct fabric_target *target = sim->memories[list->node].target;
    uint32_t done = 0;
    bool alive = true;
    list->status = BANYAN_OK;
    for (; done < list->count; done++) {
        struct fabric_command *command = &list->commands[done];
        if (compute->effects > 0 && fabric_command_of_node(command, list->node) &&
            !fabric_bounds_check(target, command) && !sim_effect_happens(sim, compute)) {
            alive = false;
            break;
        }
        if (!fabric_command_of_node(command, list->node) || fabric_target_execute(target, command)) {
            list->status = BANYAN_EADDRESS;
            break;
        }
    }
    if (done > 0)
        sim_see_list(sim, SIM_EFFECT, sim_list_task(list), list, 0, done, 0);
    return alive;
}

/* Where faults are on: it takes effect by steps. */
static void arrive_troubled(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                            struct sim_load load)
{
    struct sim_nic *nic = sim->memories[list->node].nic;
    sim_nic_trouble(sim, nic, list);
    sim_time starts[FABRIC_COMMANDS_MAX];
    struct sim_service service = {
        .now = sim->now, .at = sim_receive(sim, nic, load) + sim->model.pass, .starts = starts};
    sim_time ready = sim_nic_serve(&sim->model, nic, list, &service) + sim_state_time(sim, nic);
    sim_transfer_start(sim, compute, list, ready, starts);
}

void sim_list_arrive(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time posted)
{
    note_list(sim, compute, list);
    if (compute->dead) {
        sim_list_arrive_dead(sim, compute, list, posted);
        return;
    }
    struct sim_memory *memory = &sim->memories[list->node];
    struct sim_load load = {.messages = list->count, .bytes = sim_list(list)->bytes};
    if (!sim_list_stale(compute, list))
        sim_link_dice(sim, compute, list->node);
    if (sim_list_stale(compute, list)) {
        sim_list_respond(sim, compute, list, sim->now);
        return;
    }
    if (sim->faulty) {
        arrive_troubled(sim, compute, list, load);
        return;
    }
    if (!run_list(sim, compute, list))
        return;
    struct sim_service service = {
        .now = sim->now, .at = sim_receive(sim, memory->nic, load) + sim->model.pass, .executed = true};
    sim_time ready = sim_nic_serve(&sim->model, memory->nic, list, &service);
    ready += sim_state_time(sim, memory->nic); /* the list waits for it alone */
    if (service.begun > service.at + RESPOND_SLACK)
        sim_push(sim, service.begun, SIM_EVENT_RESPOND, list, ready, compute->index);
    else
        sim_list_respond(sim, compute, list, ready);
}

void sim_list_respond(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time ready)
{
    const struct sim_model *model = &sim->model;
    struct sim_connection *connection = sim_list(list)->connection;
    struct sim_load load = sim_response_load(model, list);
    sim_time waited = sim_nic_send(model, sim->memories[list->node].nic, sim->now, load) - sim->now;
    sim_time arrival = sim_later(ready, sim->now) + waited + 2 * model->pass + model->wire +
                       model->pcie_write + load.bytes * model->pcie_byte +
                       sim_jitter(model, &sim->jitter_random) + sim_late_reply(sim);
    connection->last_return = sim_later(connection->last_return, arrival);
    sim_push(sim, connection->last_return, SIM_EVENT_RETURN, list, load_pack(load), compute->index);
}

void sim_list_return(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, uint64_t load)
{
    if (compute->dead)
        return;
    if (sim_list_stale(compute, list)) {
        sim_link_learn(compute, list->node);
        list->status = BANYAN_ENET;
    }
    sim_see_list(sim, SIM_RETURNED, sim_list_task(list), list, 0, list->count, list->status);
    sim_time seen = sim_receive(sim, compute->nic, load_unpack(load)) + sim_state_time(sim, compute->nic);
    if (sim->model.block_responses)
        seen = sim_later(seen, compute->nic->serve_free);
    sim_complete(sim, compute, sim_list(list)->waiter, seen);
}
