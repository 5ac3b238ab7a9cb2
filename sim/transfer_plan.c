/*
 * transfer_plan.c - plans the steps of a list that takes effect piece by piece (contract: transfer.h). All
 * dice are cast here, when the list arrives; but for those of a dead node's lists.
 */
#include <stdlib.h>

#include "fabric/target.h"
#include "sim/endpoint.h"
#include "sim/fetch.h"
#include "sim/list.h"
#include "sim/node.h"
#include "sim/state.h"
#include "sim/transfer.h"

static void add_step(struct sim_transfer *transfer, struct sim_step step)
{
    uint32_t at = transfer->count++;
    for (; at > 0 && transfer->steps[at - 1].time > step.time; at--)
        transfer->steps[at] = transfer->steps[at - 1];
    transfer->steps[at] = step;
}

static void plan_torn_read(struct sim *sim, struct sim_transfer *transfer, uint16_t index, sim_time now)
{
    sim_time end = now + sim_dice_time(sim, SIM_DIE_TORN_READ, sim->faults.tear_window_ns);
    uint64_t seed = random_next(&sim->dice[SIM_DIE_TORN_READ]);
    add_step(transfer, (struct sim_step){now, seed, index, SIM_READ_BEGINS, 2, 0, false});
    add_step(transfer, (struct sim_step){end, 0, index, SIM_READ_ENDS, 2, 0, false});
}

/* The command's parts bear the numbers in which they come. */
static void number_by_time(struct sim_transfer *transfer, uint16_t command)
{
    uint8_t part = 0;
    for (uint32_t at = 0; at < transfer->count; at++)
        if (transfer->steps[at].command == command)
            transfer->steps[at].part = part++;
}

/* Returns when its last word is stored. */
static sim_time plan_torn_write(struct sim *sim, struct sim_transfer *transfer, uint16_t index, sim_time now)
{
    struct random *random = &sim->dice[SIM_DIE_TORN_WRITE];
    uint8_t parts = (uint8_t)(1 + random_below(random, SIM_PARTS_MAX));
    uint64_t seed = random_next(random);
    uint8_t shift = (uint8_t)random_below(random, 4);
    sim_time last = now;
    for (uint8_t part = 0; part < parts; part++) {
        sim_time time = now + sim_dice_time(sim, SIM_DIE_TORN_WRITE, sim->faults.tear_window_ns);
        add_step(transfer,
                 (struct sim_step){time, seed, index, part, parts, shift, sim->faults.address_order});
        last = sim_later(last, time);
    }
    if (sim->faults.address_order)
        number_by_time(transfer, index);
    return last;
}

/* Returns when the commands behind it may happen. */
static sim_time plan_command(struct sim *sim, struct sim_transfer *transfer, uint16_t index, sim_time now)
{
    const struct fabric_command *command = &transfer->list->commands[index];
    if (command->operation == FABRIC_READ && sim_dice(sim, SIM_DIE_TORN_READ, sim->faults.torn_reads)) {
        plan_torn_read(sim, transfer, index, now);
        return now;
    }
    if (command->operation == FABRIC_WRITE && command->length > 8 &&
        sim_dice(sim, SIM_DIE_TORN_WRITE, sim->faults.torn_writes))
        return plan_torn_write(sim, transfer, index, now);
    add_step(transfer, (struct sim_step){now, 0, index, 0, 1, 0, false});
    return now;
}

/* The commands before the first bad one; sets the list's status. */
static uint16_t good_commands(struct sim *sim, struct fabric_list *list)
{
    const struct fabric_target *target = sim->memories[list->node].target;
    for (uint16_t i = 0; i < list->count; i++)
        if (!fabric_command_of_node(&list->commands[i], list->node) ||
            fabric_bounds_check(target, &list->commands[i])) {
            list->status = BANYAN_EADDRESS;
            return i;
        }
    list->status = BANYAN_OK;
    return list->count;
}

static struct sim_transfer *transfer_make(struct sim *sim, struct fabric_list *list, uint16_t count)
{
    uint32_t steps = 0;
    for (uint16_t i = 0; i < count; i++)
        steps += list->commands[i].operation == FABRIC_WRITE ? SIM_PARTS_MAX : 2;
    struct sim_transfer *transfer =
        malloc(sizeof *transfer + steps * sizeof(struct sim_step) + count * sizeof(struct sim_fetch *));
    if (!transfer)
        return NULL;
    *transfer = (struct sim_transfer){.list = list, .connection = sim_list(list)->connection};
    transfer->fetches = (struct sim_fetch **)(void *)(transfer->steps + steps);
    for (uint16_t i = 0; i < count; i++)
        transfer->fetches[i] = NULL;
    sim->transfers++;
    return transfer;
}

void sim_transfer_free(struct sim *sim, struct sim_transfer *transfer)
{
    for (uint32_t at = transfer->next; at < transfer->count; at++) {
        const struct sim_step *step = &transfer->steps[at];
        if (transfer->fetches[step->command])
            sim_fetch_end(sim, transfer->fetches[step->command], false);
        transfer->fetches[step->command] = NULL;
    }
    free(transfer);
    if (--sim->transfers == 0)
        sim->faulty = sim_faults_any(&sim->faults);
}

void sim_transfer_drop(struct sim *sim, void *transfer)
{
    sim_transfer_free(sim, transfer);
}

void sim_transfer_start(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                        sim_time ready, const sim_time *starts)
{
    uint16_t count = good_commands(sim, list);
    struct sim_transfer *transfer = count > 0 ? transfer_make(sim, list, count) : NULL;
    if (!transfer) {
        if (count > 0)
            list->status = BANYAN_ENOMEM;
        if (!compute->dead)
            sim_list_respond(sim, compute, list, ready);
        return;
    }
    transfer->ready = ready;
    /* later than the connection's last list, for at one instant it may be either's turn first */
    sim_time now = sim_later(sim->now, transfer->connection->last_effect + 1);
    uint64_t gap = sim_dice(sim, SIM_DIE_SPREAD, sim->faults.spread) ? sim->faults.list_spread_ns / count : 0;
    for (uint16_t i = 0; i < count; i++) {
        if (i > 0 && gap > 0)
            now += random_below(&sim->dice[SIM_DIE_SPREAD], 2 * gap + 1) * SIM_NANOSECOND;
        now = plan_command(sim, transfer, i, sim_later(now, starts[i]));
    }
    transfer->connection->last_effect = now;
    transfer->answer =
        sim_later(transfer->steps[transfer->count - 1].time, transfer->connection->last_answer + 1);
    transfer->connection->last_answer = transfer->answer;
    sim_push(sim, transfer->steps[0].time, SIM_EVENT_STEP, transfer, 0, compute->index);
}
