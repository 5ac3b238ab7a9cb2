/* transfer.c - carries out the steps of a transfer, and finishes what must not be left half done (contract:
 * transfer.h). */
#include "sim/transfer.h"

#include <assert.h>

#include "fabric/target.h"
#include "sim/endpoint.h"
#include "sim/fetch.h"
#include "sim/link.h"
#include "sim/list.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"

#define CUT_CHANCE 0.25 /* of a dead node's list, before each of its steps */

static const struct fabric_target *transfer_target(const struct sim *sim, const struct sim_transfer *transfer)
{
    return sim->memories[transfer->list->node].target;
}

/* Bytes of a WRITE, word by word: nothing shorter or longer is promised. */
static void store_words(struct sim *sim, uint16_t node, const struct fabric_command *command, uint8_t *where,
                        uint32_t from, uint32_t end)
{
    uint32_t skew = (uint32_t)((uintptr_t)where % 8);
    if (from >= end)
        return;
    sim_fetch_before(sim, node, where + from, end - from);
    while (from < end) {
        uint32_t word_end = from + 8 - (from + skew) % 8;
        word_end = word_end < end ? word_end : end;
        atomic_copy_to(where + from, (const uint8_t *)command->write.data + from, word_end - from);
        from = word_end;
    }
}

/* To which of the step's parts the piece belongs. */
static uint8_t part_of(const struct sim_step *step, uint64_t piece, uint64_t pieces)
{
    if (!step->address_order)
        return (uint8_t)(random_mix(step->seed + piece) % step->parts);
    uint8_t part = 0; /* as many as cuts lie at or before the piece */
    for (uint64_t cut = 1; cut < step->parts; cut++)
        part = (uint8_t)(part + (random_mix(step->seed + cut) % pieces <= piece));
    return part;
}

/* Stores those aligned words of the WRITE that belong to the step's part. */
static void store_part(struct sim *sim, uint16_t node, const struct sim_step *step,
                       const struct fabric_command *command, uint8_t *where)
{
    uint32_t skew = (uint32_t)((uintptr_t)where % 8), from = 0;
    uint64_t pieces = (((command->length + skew + 7) / 8 - 1) >> step->shift) + 1;
    while (from < command->length) {
        uint64_t piece = ((from + skew) / 8) >> step->shift;
        uint32_t end = (uint32_t)((piece + 1) << step->shift) * 8 - skew;
        if (end > command->length)
            end = command->length;
        if (part_of(step, piece, pieces) == step->part)
            store_words(sim, node, command, where, from, end);
        from = end;
    }
}

/* A whole command within bounds. */
void sim_run_command(struct sim *sim, uint16_t node, struct fabric_command *command)
{
    const struct fabric_target *target = sim->memories[node].target;
    if (command->operation != FABRIC_READ)
        sim_fetch_before(sim, node, fabric_target_locate(target, command),
                         command->operation == FABRIC_WRITE ? command->length : 8);
    int status = fabric_target_execute(target, command);
    assert(!status);
    (void)status;
}

static void run_torn_read(struct sim *sim, const struct sim_compute *compute, struct sim_transfer *transfer,
                          const struct sim_step *step)
{
    struct sim_fetch **fetch = &transfer->fetches[step->command];
    if (step->part == SIM_READ_BEGINS) {
        sim_time window = 0;
        for (uint32_t at = transfer->next + 1; at < transfer->count; at++)
            if (transfer->steps[at].command == step->command)
                window = transfer->steps[at].time - step->time;
        *fetch = sim_fetch_begin(sim, compute, transfer->list->node, &transfer->list->commands[step->command],
                                 step->seed, window);
    } else if (*fetch) {
        sim_fetch_end(sim, *fetch, true);
        *fetch = NULL;
    }
}

static void run_step(struct sim *sim, const struct sim_compute *compute, struct sim_transfer *transfer,
                     const struct sim_step *step)
{
    uint16_t node = transfer->list->node;
    struct fabric_command *command = &transfer->list->commands[step->command];
    if (step->parts == 1)
        sim_run_command(sim, node, command);
    else if (command->operation == FABRIC_READ)
        run_torn_read(sim, compute, transfer, step);
    else
        store_part(sim, node, step, command, fabric_target_locate(transfer_target(sim, transfer), command));
}

/* Whether one of the first `begun` steps is of the same command as this one. */
static bool has_begun(const struct sim_transfer *transfer, uint32_t number, uint32_t begun)
{
    const struct sim_step *step = &transfer->steps[number];
    for (uint32_t at = 0; step->parts > 1 && at < begun; at++)
        if (transfer->steps[at].command == step->command)
            return true;
    return false;
}

/* Whether the step goes on with a WRITE that must not be left half done: of which one of the first `begun`
 * steps is a part. */
static bool is_bound(const struct sim *sim, const struct sim_transfer *transfer, uint32_t number,
                     uint32_t begun)
{
    const struct fabric_command *command = &transfer->list->commands[transfer->steps[number].command];
    return command->operation == FABRIC_WRITE && command->length <= sim->params.atomic_write &&
           has_begun(transfer, number, begun);
}

/* Whether the next step is an effect of its own (sim_kill_compute_at). */
static bool is_effect(const struct sim *sim, const struct sim_transfer *transfer)
{
    const struct sim_step *step = &transfer->steps[transfer->next];
    bool reading = transfer->list->commands[step->command].operation == FABRIC_READ;
    return reading ? step->part == SIM_READ_BEGINS : !is_bound(sim, transfer, transfer->next, transfer->next);
}

static void see_step(const struct sim *sim, const struct sim_transfer *transfer)
{
    const struct sim_step *step = &transfer->steps[transfer->next];
    int left = 0;
    if (!sim->see)
        return;
    for (uint32_t at = transfer->next + 1; at < transfer->count; at++)
        left += transfer->steps[at].command == step->command;
    if (left == 0 || !has_begun(transfer, transfer->next, transfer->next))
        sim_see_list(sim, SIM_EFFECT, sim_list_task(transfer->list), transfer->list, step->command, 1, left);
}

/* The first words of a WRITE that was cut within: fewer than all. */
void sim_run_prefix(struct sim *sim, uint16_t node, const struct fabric_command *command)
{
    uint8_t *where = fabric_target_locate(sim->memories[node].target, command);
    uint32_t skew = (uint32_t)((uintptr_t)where % 8), words = (command->length + skew) / 8;
    uint32_t end = (uint32_t)random_below(&sim->dice[SIM_DIE_DEATH], words) * 8;
    if (end > skew)
        store_words(sim, node, command, where, 0, end - skew);
}

bool sim_is_long_write(const struct sim *sim, const struct fabric_command *command)
{
    return command->operation == FABRIC_WRITE && command->length > sim->params.atomic_write;
}

/* Whether a dead node's list goes on with its next step. */
static bool goes_on(struct sim *sim, const struct sim_compute *compute, struct sim_transfer *transfer)
{
    const struct sim_step *step = &transfer->steps[transfer->next];
    const struct fabric_command *command = &transfer->list->commands[step->command];
    /* a READ may end within a WRITE that must be finished */
    if (command->operation == FABRIC_READ || is_bound(sim, transfer, transfer->next, transfer->next))
        return true;
    if (compute->cut || transfer->connection->cut)
        return false;
    if (!random_chance(&sim->dice[SIM_DIE_DEATH], CUT_CHANCE))
        return true;
    transfer->connection->cut = true;
    if (step->parts == 1 && sim_is_long_write(sim, command))
        sim_run_prefix(sim, transfer->list->node, command);
    return false;
}

/* The next step. False: the list is cut before it. */
static bool take_step(struct sim *sim, struct sim_compute *compute, struct sim_transfer *transfer)
{
    const struct sim_step *step = &transfer->steps[transfer->next];
    if (compute->effects > 0 && is_effect(sim, transfer) && !sim_effect_happens(sim, compute))
        return false;
    if (compute->dead && !goes_on(sim, compute, transfer))
        return false;
    if (!compute->dead || transfer->list->commands[step->command].operation != FABRIC_READ) {
        run_step(sim, compute, transfer, step);
        see_step(sim, transfer);
    } else if (transfer->fetches[step->command]) { /* begun before the death: no task waits for it any more */
        sim_fetch_end(sim, transfer->fetches[step->command], false);
        transfer->fetches[step->command] = NULL;
    }
    transfer->next++;
    return true;
}

void sim_transfer_step(struct sim *sim, struct sim_compute *compute, void *object)
{
    struct sim_transfer *transfer = object;
    struct fabric_list *list = transfer->list;
    if (sim_list_stale(compute, list)) { /* cut when the connection was lost */
        sim_transfer_free(sim, transfer);
        if (!compute->dead)
            sim_list_respond(sim, compute, list, sim->now);
        return;
    }
    while (transfer->next < transfer->count && transfer->steps[transfer->next].time <= sim->now)
        if (!take_step(sim, compute, transfer)) {
            sim_transfer_free(sim, transfer);
            return;
        }
    if (transfer->next < transfer->count) {
        sim_push(sim, transfer->steps[transfer->next].time, SIM_EVENT_STEP, transfer, 0, compute->index);
        return;
    }
    sim_time ready = sim_later(transfer->ready, sim->now), answer = transfer->answer;
    sim_transfer_free(sim, transfer);
    if (compute->dead)
        return;
    if (answer > sim->now)
        sim_push(sim, answer, SIM_EVENT_RESPOND, list, ready, compute->index);
    else
        sim_list_respond(sim, compute, list, ready);
}

void sim_transfers_finish(struct sim *sim, const struct sim_compute *compute, uint32_t node)
{
    for (uint32_t at = 0; at < sim->queue.count; at++) {
        const struct sim_event *event = &sim->queue.events[sim->queue.keys[at].tag & SIM_PENDING_MAX];
        if (event->kind != SIM_EVENT_STEP || event->compute != compute->index)
            continue;
        struct sim_transfer *transfer = event->object;
        if ((node != SIM_EVERY_NODE && transfer->list->node != node) ||
            sim_list_stale(compute, transfer->list))
            continue;
        uint32_t begun = transfer->next;
        for (uint32_t number = begun; number < transfer->count; number++)
            if (is_bound(sim, transfer, number, begun))
                run_step(sim, compute, transfer, &transfer->steps[number]);
    }
}
