/*
 * fabric_sim.c - the fabric's backend in virtual time: endpoints, lists and calls on the way there and back.
 *
 * INSTANTS. Without faults all commands of a list take effect at the event of its arrival at the memory
 * node's NIC, although the NIC may come to it only later: whatever reaches that memory comes through the
 * same NIC in the same order, so nobody can tell the difference; only the answer is late. With faults on,
 * faults.c spreads the effects. READs are copied into the caller's buffer at those instants.
 *
 * DEATH. A list's or call's ARRIVE event carries the time at which it was posted: the list's own memory says
 * only what its task has written since.
 *
 * Called from tasks (fabric_ops) and from the event loop (sim_list_*, sim_call_*). A list costs two
 * events, and a third where the NIC was behind by more than RESPOND_SLACK.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/target.h"
#include "sim/world.h"

/* A response ready so much later than its list's arrival books the NIC's way out in an event of its own:
 * booked now, it would hold up what leaves before it. */
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

/* ------------------------------------------------------------------ posting */

static struct sim_connection *connection_make(struct sim_endpoint *endpoint, uint16_t node)
{
    if (node >= endpoint->connection_count) {
        struct sim_connection **connections =
            realloc(endpoint->connections, (node + 1u) * sizeof(struct sim_connection *));
        if (!connections)
            return NULL;
        endpoint->connections = connections;
        while (endpoint->connection_count <= node)
            connections[endpoint->connection_count++] = NULL;
    }
    endpoint->connections[node] = calloc(1, sizeof(struct sim_connection));
    return endpoint->connections[node];
}

static inline struct sim_connection *connection_get(struct sim_endpoint *endpoint, uint16_t node)
{
    if (node < endpoint->connection_count && endpoint->connections[node])
        return endpoint->connections[node];
    return connection_make(endpoint, node);
}

/* When a request posted by the running task arrives. The way out is booked at sim->now (see nic.h: a
 * delay may as well stand behind a server), the CPU's time and the latencies come on top. */
static sim_time arrival_time(struct sim *sim, struct sim_compute *compute, struct sim_task *task,
                             struct sim_connection *connection, struct sim_load load, sim_time fetch)
{
    const struct sim_model *model = &sim->model;
    sim_time sent = sim_nic_send(model, compute->nic, sim->now, load);
    sim_time arrival = sent + (task->cpu->busy - sim->now) + model->doorbell + fetch + model->pass +
                       model->wire + sim_jitter(model, &sim->jitter_random);
    if (sim->faulty && sim_dice(sim, SIM_DIE_LATE, sim->faults.late))
        arrival += sim_dice_time(sim, SIM_DIE_LATE, sim->faults.late_ns);
    connection->last_arrival = sim_later(connection->last_arrival, arrival);
    return connection->last_arrival;
}

/* What the list will touch is asked for while other events run until it arrives: real time, not virtual. */
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
    struct sim_connection *connection = connection_get(endpoint, list->node);
    uint32_t known;
    int status = sim_link_admit(compute, list->node, list->incarnation, &known);
    if (status)
        return status;
    if (!connection || !sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    sim_time fetch;
    struct sim_load load = sim_request_load(&sim->model, list, &fetch);
    waiter->task->cpu->busy += sim->model.post + list->count * sim->model.command;
    sim_time arrival = arrival_time(sim, compute, waiter->task, connection, load, fetch);
    waiter->pending++;
    *sim_list(list) =
        (struct sim_list){.waiter = waiter, .connection = connection, .bytes = load.bytes, .known = known};
    sim_push(sim, arrival, SIM_EVENT_ARRIVE, list, waiter->task->cpu->busy, compute->index);
    sim_see_list(sim, SIM_POSTED, waiter->task, list, 0, list->count, BANYAN_OK);
    prefetch(sim->memories[list->node].target, list);
    return BANYAN_OK;
}

/* Only a task of the endpoint's own compute node has a place in virtual time. */
static struct sim_task *calling_task(const struct sim_endpoint *endpoint)
{
    struct sim_task *task = endpoint->compute->sim->current;
    return task && task->compute == endpoint->compute ? task : NULL;
}

static int backend_execute(struct fabric_endpoint *base, struct fabric_list *const *lists, uint32_t count)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
    struct sim *sim = endpoint->compute->sim;
    struct sim_task *task = calling_task(endpoint);
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

/* ------------------------------------------------------------------ a list on its way */

/* The events of a list after its posting have the time of their last byte; the lane was in use before
 * that. */
static sim_time receive(struct sim *sim, struct sim_nic *nic, struct sim_load load)
{
    sim_time own = sim_receive_time(&sim->model, load);
    return sim_later(sim_nic_receive(&sim->model, nic, sim->now > own ? sim->now - own : 0, load), sim->now);
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

static const struct sim_task *list_task(struct fabric_list *list)
{
    return sim_list(list)->waiter->task;
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
        sim_see_list(sim, SIM_EFFECT, list_task(list), list, 0, done, 0);
    return alive;
}

/* Where faults are on: it takes effect by steps. */
static void arrive_troubled(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                            struct sim_load load)
{
    struct sim_nic *nic = sim->memories[list->node].nic;
    sim_nic_trouble(sim, nic, list);
    sim_time begun, starts[FABRIC_COMMANDS_MAX], received = receive(sim, nic, load) + sim->model.pass;
    sim_time ready = sim_nic_serve(&sim->model, nic, received, list, false, &begun, starts);
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
    sim_time begun, received = receive(sim, memory->nic, load) + sim->model.pass;
    sim_time ready = sim_nic_serve(&sim->model, memory->nic, received, list, true, &begun, NULL);
    if (begun > received + RESPOND_SLACK)
        sim_push(sim, begun, SIM_EVENT_RESPOND, list, ready, compute->index);
    else
        sim_list_respond(sim, compute, list, ready);
}

static sim_time late_reply(struct sim *sim)
{
    return sim->faulty && sim_dice(sim, SIM_DIE_LATE_REPLY, sim->faults.late_replies)
               ? sim_dice_time(sim, SIM_DIE_LATE_REPLY, sim->faults.late_ns)
               : 0;
}

void sim_list_respond(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time ready)
{
    const struct sim_model *model = &sim->model;
    struct sim_connection *connection = sim_list(list)->connection;
    struct sim_load load = sim_response_load(model, list);
    sim_time waited = sim_nic_send(model, sim->memories[list->node].nic, sim->now, load) - sim->now;
    sim_time arrival = sim_later(ready, sim->now) + waited + 2 * model->pass + model->wire +
                       model->pcie_write + load.bytes * model->pcie_byte +
                       sim_jitter(model, &sim->jitter_random) + late_reply(sim);
    connection->last_return = sim_later(connection->last_return, arrival);
    sim_push(sim, connection->last_return, SIM_EVENT_RETURN, list, load_pack(load), compute->index);
}

static void complete(struct sim *sim, struct sim_compute *compute, struct sim_waiter *waiter, sim_time seen)
{
    waiter->latest = sim_later(waiter->latest, seen);
    sim_queue_release(&sim->queue, 1);
    if (--waiter->pending > 0)
        return;
    if (waiter->latest > sim->now)
        sim_push(sim, waiter->latest, SIM_EVENT_RESUME, waiter->task, 0, compute->index);
    else
        sim_task_ready(sim, waiter->task);
}

void sim_list_return(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, uint64_t load)
{
    if (compute->dead)
        return;
    if (sim_list_stale(compute, list)) {
        sim_link_learn(compute, list->node);
        list->status = BANYAN_ENET;
    }
    sim_see_list(sim, SIM_RETURNED, list_task(list), list, 0, list->count, list->status);
    sim_time seen = receive(sim, compute->nic, load_unpack(load));
    if (sim->model.block_responses)
        seen = sim_later(seen, compute->nic->serve_free);
    complete(sim, compute, sim_list(list)->waiter, seen);
}

/* ------------------------------------------------------------------ calls */

static struct sim_load call_load(const struct sim *sim, size_t length)
{
    uint32_t bytes = length <= FABRIC_LENGTH_MAX ? (uint32_t)length : FABRIC_LENGTH_MAX;
    return (struct sim_load){.messages = 1, .bytes = sim_wire_bytes(&sim->model, bytes)};
}

static int backend_call(struct fabric_endpoint *base, uint16_t node, const void *request, size_t length,
                        void *reply, size_t capacity, size_t *reply_length)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
    struct sim_compute *compute = endpoint->compute;
    struct sim *sim = compute->sim;
    struct sim_task *task = calling_task(endpoint);
    struct sim_connection *connection = connection_get(endpoint, node);
    uint32_t known;
    if (!task)
        return BANYAN_EINVAL;
    int admitted = sim_link_admit(compute, node, 0, &known);
    if (admitted) {
        admitted = admitted == BANYAN_ENET ? BANYAN_EFENCED : admitted;
        sim_see_call(sim, SIM_CALL_RETURNED, task, node, admitted);
        return admitted;
    }
    if (!connection || !sim_queue_claim(&sim->queue, 1))
        return BANYAN_ENOMEM;
    task->cpu->busy += sim->model.post + sim->model.command;
    struct sim_call call = {
        .waiter = {.task = task, .pending = 1},
        .connection = connection,
        .node = node,
        .known = known,
        .request = request,
        .length = length,
        .reply = reply,
        .capacity = capacity,
        .reply_length = reply_length,
    };
    sim_time arrival = arrival_time(sim, compute, task, connection, call_load(sim, length), 0);
    sim_push(sim, arrival, SIM_EVENT_REQUEST, &call, task->cpu->busy, compute->index);
    sim_see_call(sim, SIM_CALLED, task, node, BANYAN_OK);
    sim_task_suspend(task);
    task->cpu->busy += sim->model.poll;
    return call.status;
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
    sim_time received = receive(sim, memory->nic, call_load(sim, call->length)) + sim->model.pass;
    sim_time start = sim_later(received, memory->nic->serve_free) + sim->model.pcie_write;
    sim_time served = sim_core_serve(sim, memory, compute->fabric.capabilities.compute_id, call, start);
    sim_push(sim, served, SIM_EVENT_SERVED, call, 0, compute->index);
}

/* The caller is dead, its request is not: it is done, and nobody gets the reply. */
static void serve_dead(struct sim_compute *compute, struct sim_call *call, const struct fabric_target *target)
{
    size_t length = 0;
    void *reply = malloc(call->capacity ? call->capacity : 1);
    if (!reply)
        return;
    target->call(target->owner, compute->fabric.capabilities.compute_id, call->request, call->length, reply,
                 call->capacity, &length);
    free(reply);
}

void sim_call_served(struct sim *sim, struct sim_compute *compute, struct sim_call *call)
{
    const struct sim_model *model = &sim->model;
    struct sim_memory *memory = &sim->memories[call->node];
    if (sim_link_stale(compute, call->node, call->known)) { /* fenced while it waited for its turn */
        if (!compute->dead)
            refuse_call(sim, compute, call);
        return;
    }
    if (compute->cut || !sim_effect_happens(sim, compute))
        return;
    sim_fetch_settle(sim, call->node);
    sim_see_call(sim, SIM_EFFECT, call->waiter.task, call->node, 0);
    sim_core_work_begin(sim, call->node);
    if (compute->dead) {
        serve_dead(compute, call, memory->target);
        return;
    }
    call->status =
        memory->target->call(memory->target->owner, compute->fabric.capabilities.compute_id, call->request,
                             call->length, call->reply, call->capacity, call->reply_length);
    struct sim_load load = call_load(sim, *call->reply_length);
    sim_time sent = sim_nic_send(model, memory->nic, sim->now, load);
    sim_time arrival = sent + model->doorbell + 2 * model->pass + model->wire + model->pcie_write +
                       sim_jitter(model, &sim->jitter_random) + late_reply(sim);
    sim_push(sim, arrival, SIM_EVENT_REPLY, call, 0, compute->index);
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
    sim_see_call(sim, SIM_CALL_RETURNED, call->waiter.task, call->node, call->status);
    complete(sim, compute, &call->waiter, receive(sim, compute->nic, call_load(sim, *call->reply_length)));
}

/* ------------------------------------------------------------------ endpoints */

static struct fabric_endpoint *backend_open(struct fabric *fabric, struct error *error)
{
    struct sim_compute *compute = (struct sim_compute *)fabric;
    struct sim_endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint) {
        error_set(error, BANYAN_ENOMEM, "simulator: no memory for an endpoint of compute node %u",
                  compute->index);
        return NULL;
    }
    endpoint->endpoint.fabric = fabric;
    endpoint->compute = compute;
    endpoint->next = compute->endpoints;
    if (compute->endpoints)
        compute->endpoints->previous = endpoint;
    compute->endpoints = endpoint;
    return &endpoint->endpoint;
}

static void endpoint_free(struct sim_endpoint *endpoint)
{
    for (uint32_t i = 0; i < endpoint->connection_count; i++)
        free(endpoint->connections[i]);
    free(endpoint->connections);
    free(endpoint);
}

static void backend_close_endpoint(struct fabric_endpoint *base)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
    if (endpoint->compute->dead)
        return; /* lists of it may still be under way; freed with the world */
    if (endpoint->previous)
        endpoint->previous->next = endpoint->next;
    else
        endpoint->compute->endpoints = endpoint->next;
    if (endpoint->next)
        endpoint->next->previous = endpoint->previous;
    endpoint_free(endpoint);
}

/* The fabric is the world's: sim_destroy frees it. */
static void backend_close(struct fabric *fabric)
{
    (void)fabric;
}

static uint64_t backend_incarnation(const struct fabric *fabric)
{
    return ((const struct sim_compute *)fabric)->incarnation;
}

static void backend_trouble(const struct fabric *fabric, uint16_t node, char *text, size_t size)
{
    const struct sim_compute *compute = (const struct sim_compute *)fabric;
    const struct sim_link *link = node < compute->link_count ? compute->links[node] : NULL;
    if (link && link->up > sim_effective(compute->sim))
        snprintf(text, size, "memory node %u has cut the connection", node);
}

static const struct fabric_ops backend_operations = {
    .execute = backend_execute,
    .call = backend_call,
    .endpoint_open = backend_open,
    .endpoint_close = backend_close_endpoint,
    .close = backend_close,
    .incarnation = backend_incarnation,
    .trouble = backend_trouble,
};

void sim_fabric_init(struct sim_compute *compute)
{
    const struct sim_params *params = &compute->sim->params;
    compute->fabric.ops = &backend_operations;
    compute->incarnation = 1;
    compute->fabric.capabilities = (struct fabric_capabilities){
        .backend = "sim",
        .compute_id = (uint16_t)(compute->machine + 1),
        .lock_width = params->lock_width,
        .atomic_write = params->atomic_write,
        .release_by_write = params->release_by_write,
        .masked_cas = params->masked_cas,
        .direct = false,
        .round_trip_ns = params->post_ns + params->command_ns + params->doorbell_ns + 4 * params->nic_ns +
                         2 * params->wire_ns + params->pcie_read_ns + params->pcie_write_ns +
                         params->poll_ns + 2 * params->jitter_ns,
    };
}

void sim_fabric_refresh(struct sim *sim)
{
    uint64_t lock_bytes = sim->memory_count ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < sim->memory_count; i++)
        if (sim->memories[i].target->lock_bytes < lock_bytes)
            lock_bytes = sim->memories[i].target->lock_bytes;
    for (uint32_t i = 0; i < sim->compute_count; i++) {
        struct fabric_capabilities *capabilities = &sim->computes[i]->fabric.capabilities;
        capabilities->memory_nodes = (uint16_t)sim->memory_count;
        capabilities->lock_region_bytes = lock_bytes;
        if (sim->memory_count)
            capabilities->lock_width = sim->memories[0].target->lock_width;
    }
}

void sim_fabric_free(struct sim_compute *compute)
{
    sim_link_free(compute);
    for (struct sim_endpoint *endpoint = compute->endpoints, *next; endpoint; endpoint = next) {
        next = endpoint->next;
        endpoint_free(endpoint);
    }
}
