/* message.c - see message.h. */
#include "sim/message.h"

#include <stdlib.h>

#include "sim/endpoint.h"
#include "sim/node.h"
#include "sim/pair.h"
#include "sim/state.h"
#include "sim/task.h"

struct sim_connection *sim_connection_make(struct sim_endpoint *endpoint, struct sim_cpu *cpu, uint16_t node)
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
    struct sim_connection *connection = calloc(1, sizeof *connection);
    if (connection)
        connection->pair = sim_pair_take(endpoint->compute, cpu, node);
    if (!connection || !connection->pair) {
        free(connection);
        return NULL;
    }
    endpoint->connections[node] = connection;
    return connection;
}

/* When a request posted by the running task arrives. The way out is booked at sim->now (see nic.h: a
 * delay may as well stand behind a server), the CPU's time and the latencies come on top. */
sim_time sim_arrival_time(struct sim *sim, struct sim_compute *compute, struct sim_task *task,
                          struct sim_connection *connection, struct sim_load load, sim_time fetch)
{
    const struct sim_model *model = &sim->model;
    sim_time sent = sim_nic_send(model, compute->nic, sim->now, load);
    sim_time arrival = sent + (task->cpu->busy - sim->now) + model->doorbell + fetch + model->pass +
                       model->wire + sim_state_time(sim, compute->nic) +
                       sim_jitter(model, &sim->jitter_random);
    if (sim->faulty && sim_dice(sim, SIM_DIE_LATE, sim->faults.late))
        arrival += sim_dice_time(sim, SIM_DIE_LATE, sim->faults.late_ns);
    connection->last_arrival = sim_later(connection->last_arrival, arrival);
    return connection->last_arrival;
}

/* Only a task of the endpoint's own compute node has a place in virtual time. */
struct sim_task *sim_calling_task(const struct sim_endpoint *endpoint)
{
    struct sim_task *task = endpoint->compute->sim->current;
    return task && task->compute == endpoint->compute ? task : NULL;
}

/* The events of a list after its posting have the time of their last byte; the lane was in use before
 * that. */
sim_time sim_receive(struct sim *sim, struct sim_nic *nic, struct sim_load load)
{
    sim_time own = sim_receive_time(&sim->model, load);
    return sim_later(sim_nic_receive(&sim->model, nic, sim->now > own ? sim->now - own : 0, load), sim->now);
}

sim_time sim_late_reply(struct sim *sim)
{
    return sim->faulty && sim_dice(sim, SIM_DIE_LATE_REPLY, sim->faults.late_replies)
               ? sim_dice_time(sim, SIM_DIE_LATE_REPLY, sim->faults.late_ns)
               : 0;
}

bool sim_message_lost(struct sim *sim)
{
    return sim_dice(sim, SIM_DIE_MESSAGE, sim->faults.message_lose);
}

sim_time sim_message_time(struct sim *sim)
{
    const struct sim_model *model = &sim->model;
    sim_time time = model->doorbell + 2 * model->pass + model->wire + model->pcie_write +
                    sim_jitter(model, &sim->jitter_random);
    if (sim_dice(sim, SIM_DIE_MESSAGE, sim->faults.message_late))
        time += sim_dice_time(sim, SIM_DIE_MESSAGE, sim->faults.message_late_ns);
    return time;
}

void sim_complete(struct sim *sim, struct sim_compute *compute, struct sim_waiter *waiter, sim_time seen)
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
