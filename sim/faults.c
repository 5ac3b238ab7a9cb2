/*
 * faults.c - what the fabric's contract allows and hardware seldom shows: READs and WRITEs whose words move
 * at several instants, lists spread over time, and the lists of a compute node that dies.
 *
 * With faults on, an arriving list becomes a transfer: a plan of steps, each with its instant, made once from
 * the seeded random stream and then followed event by event. WRITEs and atomics keep their order within the
 * list and from list to list of a connection (G1); a READ begins no earlier than what stands before it, and
 * what stands behind it need not wait. Only the event loop calls this.
 */
#include <assert.h>
#include <stdlib.h>

#include "fabric/target.h"
#include "sim/world.h"

#define PARTS_MAX  8
#define EVERY_NODE UINT32_MAX

struct step {
    sim_time time;
    uint64_t seed; /* which words belong to which part */
    uint16_t command;
    uint8_t part, parts;
    uint8_t shift; /* words of a piece, as a power of two: 1 to 8 (one word to a cache line) */
};

struct transfer {
    struct fabric_list *list;
    struct sim_connection *connection;
    sim_time ready;
    uint32_t count, next;
    struct step steps[];
};

/* ------------------------------------------------------------------ the plan */

static void plan_command(struct sim *sim, struct transfer *transfer, uint16_t index, sim_time *now)
{
    const struct fabric_command *command = &transfer->list->commands[index];
    struct random *random = &sim->fault_random;
    bool reading = command->operation == FABRIC_READ;
    bool torn = (reading && random_chance(random, sim->faults.torn_reads)) ||
                (command->operation == FABRIC_WRITE && command->length > 8 &&
                 random_chance(random, sim->faults.torn_writes));
    uint8_t parts = torn ? (uint8_t)(1 + random_below(random, PARTS_MAX)) : 1;
    uint64_t seed = random_next(random);
    uint8_t shift = (uint8_t)random_below(random, 4);
    sim_time last = *now;
    for (uint8_t part = 0; part < parts; part++) {
        sim_time time = *now;
        if (torn)
            time += random_below(random, sim->faults.tear_window_ns + 1ull) * SIM_NANOSECOND;
        last = sim_later(last, time);
        uint32_t at = transfer->count++;
        for (; at > 0 && transfer->steps[at - 1].time > time; at--)
            transfer->steps[at] = transfer->steps[at - 1];
        transfer->steps[at] = (struct step){time, seed, index, part, parts, shift};
    }
    if (!reading)
        *now = last;
}

/* The commands before the first bad one; sets the list's status. */
static uint16_t good_commands(struct sim *sim, struct fabric_list *list)
{
    const struct fabric_target *target = sim->memories[list->node].target;
    for (uint16_t i = 0; i < list->count; i++)
        if (!fabric_command_of_node(&list->commands[i], list->node) ||
            fabric_bounds_check(target, &list->commands[i]) != BANYAN_OK) {
            list->status = BANYAN_EADDRESS;
            return i;
        }
    list->status = BANYAN_OK;
    return list->count;
}

void sim_transfer_start(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                        sim_time ready)
{
    uint16_t count = good_commands(sim, list);
    struct transfer *transfer = malloc(sizeof *transfer + count * PARTS_MAX * sizeof(struct step));
    if (!transfer || count == 0) {
        free(transfer);
        if (count > 0)
            list->status = BANYAN_ENOMEM;
        sim_list_respond(sim, compute, list, ready);
        return;
    }
    *transfer = (struct transfer){.list = list, .connection = list->backend[2], .ready = ready};
    sim_time now = sim_later(sim->now, transfer->connection->last_effect);
    uint64_t gap =
        random_chance(&sim->fault_random, sim->faults.spread) ? sim->faults.list_spread_ns / count : 0;
    for (uint16_t i = 0; i < count; i++) {
        if (i > 0 && gap > 0)
            now += random_below(&sim->fault_random, 2 * gap + 1) * SIM_NANOSECOND;
        plan_command(sim, transfer, i, &now);
    }
    transfer->connection->last_effect = now;
    sim_push(sim, transfer->steps[0].time, SIM_EVENT_STEP, transfer, 0, compute->index);
}

/* ------------------------------------------------------------------ the steps */

static void move_bytes(const struct fabric_command *command, uint8_t *where, uint32_t from, uint32_t length)
{
    if (command->operation == FABRIC_READ)
        atomic_copy_from((uint8_t *)command->read.buffer + from, where + from, length);
    else
        atomic_copy_to(where + from, (const uint8_t *)command->write.data + from, length);
}

/* Moves those aligned words of the command that belong to the step's part. */
static void move_part(const struct step *step, const struct fabric_command *command, uint8_t *where)
{
    uint32_t skew = (uint32_t)((uintptr_t)where % 8), from = 0;
    while (from < command->length) {
        uint64_t piece = ((from + skew) / 8) >> step->shift;
        uint32_t end = (uint32_t)((piece + 1) << step->shift) * 8 - skew;
        if (end > command->length)
            end = command->length;
        if (random_mix(step->seed + piece) % step->parts == step->part)
            for (uint32_t at = from; at < end;) { /* word by word: nothing shorter or longer is promised */
                uint32_t word_end = at + 8 - (at + skew) % 8;
                word_end = word_end < end ? word_end : end;
                move_bytes(command, where, at, word_end - at);
                at = word_end;
            }
        from = end;
    }
}

static void run_step(struct sim *sim, const struct transfer *transfer, const struct step *step)
{
    const struct fabric_target *target = sim->memories[transfer->list->node].target;
    struct fabric_command *command = &transfer->list->commands[step->command];
    if (step->parts == 1) {
        int status = fabric_target_execute(target, command);
        assert(status == BANYAN_OK);
        (void)status;
        return;
    }
    if (command->operation == FABRIC_READ)
        command->read.data = command->read.buffer;
    move_part(step, command, fabric_target_locate(target, command));
}

/* Whether the step goes on with a WRITE that must not be left half done: of which one of the first `begun`
 * steps is a part. */
static bool is_bound(const struct transfer *transfer, uint32_t number, uint32_t begun, uint32_t atomic_write)
{
    const struct step *step = &transfer->steps[number];
    const struct fabric_command *command = &transfer->list->commands[step->command];
    if (command->operation != FABRIC_WRITE || command->length > atomic_write)
        return false;
    for (uint32_t at = 0; at < begun; at++)
        if (transfer->steps[at].command == step->command)
            return true;
    return false;
}

/* One step of a dead node's list. False: it is cut here. */
static bool run_dead_step(struct sim *sim, struct transfer *transfer)
{
    const struct step *step = &transfer->steps[transfer->next];
    if (transfer->list->commands[step->command].operation == FABRIC_READ)
        return true; /* nobody is there to read */
    if (!is_bound(transfer, transfer->next, transfer->next, sim->params.atomic_write) &&
        (transfer->connection->cut || random_chance(&sim->fault_random, 0.25))) {
        transfer->connection->cut = true;
        return false;
    }
    run_step(sim, transfer, step);
    return true;
}

void sim_transfer_step(struct sim *sim, struct sim_compute *compute, void *object)
{
    struct transfer *transfer = object;
    if (sim_list_stale(compute, transfer->list)) { /* cut when the connection was lost */
        struct fabric_list *cut = transfer->list;
        free(transfer);
        if (!compute->dead)
            sim_list_respond(sim, compute, cut, sim->now);
        return;
    }
    while (transfer->next < transfer->count && transfer->steps[transfer->next].time <= sim->now) {
        if (!compute->dead) {
            run_step(sim, transfer, &transfer->steps[transfer->next]);
        } else if (!run_dead_step(sim, transfer)) {
            free(transfer);
            return;
        }
        transfer->next++;
    }
    if (transfer->next < transfer->count) {
        sim_push(sim, transfer->steps[transfer->next].time, SIM_EVENT_STEP, transfer, 0, compute->index);
        return;
    }
    struct fabric_list *list = transfer->list;
    sim_time ready = sim_later(transfer->ready, sim->now);
    free(transfer);
    if (!compute->dead)
        sim_list_respond(sim, compute, list, ready);
}

void sim_transfer_drop(void *transfer)
{
    free(transfer);
}

/* ------------------------------------------------------------------ death */

/* The first words of a WRITE that was cut within: fewer than all. */
static void run_prefix(struct sim *sim, const struct fabric_target *target,
                       const struct fabric_command *command)
{
    uint8_t *where = fabric_target_locate(target, command);
    uint32_t skew = (uint32_t)((uintptr_t)where % 8), words = (command->length + skew) / 8;
    uint32_t end = (uint32_t)random_below(&sim->fault_random, words) * 8;
    if (end > skew)
        atomic_copy_to(where, command->write.data, end - skew);
}

void sim_list_arrive_dead(struct sim *sim, struct sim_compute *compute, struct fabric_list *list)
{
    const struct sim_waiter *waiter = list->backend[0];
    struct sim_connection *connection = list->backend[2];
    const struct fabric_target *target = sim->memories[list->node].target;
    if (connection->cut || waiter->posted > compute->death || sim_list_stale(compute, list))
        return;
    if (connection->last_effect > sim->now) { /* an earlier list of the connection is still taking effect */
        sim_push(sim, connection->last_effect, SIM_EVENT_ARRIVE, list, 0, compute->index);
        return;
    }
    uint32_t cut = (uint32_t)random_below(&sim->fault_random, list->count + 1u);
    connection->cut = cut < list->count;
    for (uint32_t i = 0; i < list->count && i <= cut; i++) {
        struct fabric_command *command = &list->commands[i];
        if (!fabric_command_of_node(command, list->node) || fabric_bounds_check(target, command) != BANYAN_OK)
            return;
        if (i < cut && command->operation != FABRIC_READ)
            fabric_target_execute(target, command);
        else if (i == cut && command->operation == FABRIC_WRITE && command->length > sim->params.atomic_write)
            run_prefix(sim, target, command);
    }
}

/* Finishes the short WRITEs that have begun, of one memory node or of all. */
static void finish_bound(struct sim *sim, const struct sim_compute *compute, uint32_t node)
{
    for (uint32_t at = 0; at < sim->queue.count; at++) {
        const struct sim_event *event = &sim->queue.events[sim->queue.keys[at].tag & SIM_PENDING_MAX];
        if (event->kind != SIM_EVENT_STEP || event->compute != compute->index)
            continue;
        struct transfer *transfer = event->object;
        if ((node != EVERY_NODE && transfer->list->node != node) || sim_list_stale(compute, transfer->list))
            continue;
        uint32_t begun = transfer->next;
        for (; transfer->next < transfer->count; transfer->next++)
            if (is_bound(transfer, transfer->next, begun, sim->params.atomic_write))
                run_step(sim, transfer, &transfer->steps[transfer->next]);
    }
}

void sim_transfers_cut(struct sim *sim, const struct sim_compute *compute, uint16_t node)
{
    finish_bound(sim, compute, node);
}

/* From here on nothing of the node arrives. */
void sim_compute_fence(struct sim *sim, struct sim_compute *compute)
{
    finish_bound(sim, compute, EVERY_NODE);
    compute->fenced = true;
    if (compute->on_fenced)
        compute->on_fenced(compute->on_fenced_argument);
}
