/*
 * faults.c - what the fabric's contract allows and hardware seldom shows: READs and WRITEs whose words move
 * at several instants, lists spread over time, atomics that queue, and the lists of a compute node that dies.
 *
 * With faults on, an arriving list becomes a transfer: a plan of steps, each with its instant, made once from
 * the seeded random streams and then followed event by event. No command takes effect before the NIC comes
 * to it. WRITEs and atomics keep their order within the list and from list to list of a connection (G1); a
 * READ begins no earlier than what stands before it, and what stands behind it need not wait. The words of a
 * torn READ are fetch.c's: its steps are its beginning and its end. Only the event loop calls this.
 */
#include <assert.h>
#include <stdlib.h>

#include "fabric/target.h"
#include "sim/world.h"

#define PARTS_MAX   8
#define CUT_CHANCE  0.25 /* of a dead node's list, before each of its steps */
#define READ_BEGINS 0    /* parts of a torn READ */
#define READ_ENDS   1

struct step {
    sim_time time;
    uint64_t seed; /* which words belong to which part */
    uint16_t command;
    uint8_t part, parts;
    uint8_t shift;      /* words of a piece, as a power of two: 1 to 8 (one word to a cache line) */
    bool address_order; /* the parts are runs of pieces, the first part the first run */
};

struct transfer {
    struct fabric_list *list;
    struct sim_connection *connection;
    sim_time ready, answer;     /* answer: not before, so that the connection's answers stay in order */
    struct sim_fetch **fetches; /* by command; behind the steps */
    uint32_t count, next;
    struct step steps[];
};

int sim_set_faults(struct sim *sim, const struct sim_faults *faults, struct error *error)
{
    if (faults && sim_faults_check(faults, error))
        return BANYAN_EINVAL;
    if (faults)
        sim->faults = *faults;
    else
        sim_faults_none(&sim->faults);
    /* while a transfer is under way no list may take effect at once: it could overtake it */
    sim->faulty = sim->transfers > 0 || sim_faults_any(&sim->faults);
    sim->stalling =
        sim->faults.fiber_stall > 0 || sim->faults.thread_stall > 0 || sim->faults.compute_stall > 0;
    return BANYAN_OK;
}

/* ------------------------------------------------------------------ the NIC */

/* As if atomics of others were queued before this one. */
static void queue_atomic(struct sim *sim, struct sim_nic *nic, const struct fabric_command *command)
{
    sim_time queue = sim_dice_time(sim, SIM_DIE_ATOMIC_QUEUE, sim->faults.atomic_queue_ns);
    sim_time *free = command->address & GADDR_LOCK_REGION
                         ? &nic->chip_free
                         : &nic->bucket_free[gaddr_offset(command->address) % SIM_ATOMIC_BUCKETS];
    *free = sim_later(*free, sim->now) + queue;
}

void sim_nic_trouble(struct sim *sim, struct sim_nic *nic, const struct fabric_list *list)
{
    if (sim_dice(sim, SIM_DIE_STALL, sim->faults.stall)) {
        nic->serve_free =
            sim_later(nic->serve_free, sim->now) + sim_dice_time(sim, SIM_DIE_STALL, sim->faults.stall_ns);
        sim_see_node(sim, SIM_STALLED, -1, list->node, 0);
    }
    if (sim->faults.atomic_queue <= 0)
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        if ((command->operation == FABRIC_CAS || command->operation == FABRIC_FAA) &&
            sim_dice(sim, SIM_DIE_ATOMIC_QUEUE, sim->faults.atomic_queue))
            queue_atomic(sim, nic, command);
    }
}

/* ------------------------------------------------------------------ the plan */

static void add_step(struct transfer *transfer, struct step step)
{
    uint32_t at = transfer->count++;
    for (; at > 0 && transfer->steps[at - 1].time > step.time; at--)
        transfer->steps[at] = transfer->steps[at - 1];
    transfer->steps[at] = step;
}

static void plan_torn_read(struct sim *sim, struct transfer *transfer, uint16_t index, sim_time now)
{
    sim_time end = now + sim_dice_time(sim, SIM_DIE_TORN_READ, sim->faults.tear_window_ns);
    uint64_t seed = random_next(&sim->dice[SIM_DIE_TORN_READ]);
    add_step(transfer, (struct step){now, seed, index, READ_BEGINS, 2, 0, false});
    add_step(transfer, (struct step){end, 0, index, READ_ENDS, 2, 0, false});
}

/* The command's parts bear the numbers in which they come. */
static void number_by_time(struct transfer *transfer, uint16_t command)
{
    uint8_t part = 0;
    for (uint32_t at = 0; at < transfer->count; at++)
        if (transfer->steps[at].command == command)
            transfer->steps[at].part = part++;
}

/* Returns when its last word is stored. */
static sim_time plan_torn_write(struct sim *sim, struct transfer *transfer, uint16_t index, sim_time now)
{
    struct random *random = &sim->dice[SIM_DIE_TORN_WRITE];
    uint8_t parts = (uint8_t)(1 + random_below(random, PARTS_MAX));
    uint64_t seed = random_next(random);
    uint8_t shift = (uint8_t)random_below(random, 4);
    sim_time last = now;
    for (uint8_t part = 0; part < parts; part++) {
        sim_time time = now + sim_dice_time(sim, SIM_DIE_TORN_WRITE, sim->faults.tear_window_ns);
        add_step(transfer, (struct step){time, seed, index, part, parts, shift, sim->faults.address_order});
        last = sim_later(last, time);
    }
    if (sim->faults.address_order)
        number_by_time(transfer, index);
    return last;
}

/* Returns when what stands behind the command may happen. */
static sim_time plan_command(struct sim *sim, struct transfer *transfer, uint16_t index, sim_time now)
{
    const struct fabric_command *command = &transfer->list->commands[index];
    if (command->operation == FABRIC_READ && sim_dice(sim, SIM_DIE_TORN_READ, sim->faults.torn_reads)) {
        plan_torn_read(sim, transfer, index, now);
        return now;
    }
    if (command->operation == FABRIC_WRITE && command->length > 8 &&
        sim_dice(sim, SIM_DIE_TORN_WRITE, sim->faults.torn_writes))
        return plan_torn_write(sim, transfer, index, now);
    add_step(transfer, (struct step){now, 0, index, 0, 1, 0, false});
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

static struct transfer *transfer_make(struct sim *sim, struct fabric_list *list, uint16_t count)
{
    uint32_t steps = 0;
    for (uint16_t i = 0; i < count; i++)
        steps += list->commands[i].operation == FABRIC_WRITE ? PARTS_MAX : 2;
    struct transfer *transfer =
        malloc(sizeof *transfer + steps * sizeof(struct step) + count * sizeof(struct sim_fetch *));
    if (!transfer)
        return NULL;
    *transfer = (struct transfer){.list = list, .connection = sim_list(list)->connection};
    transfer->fetches = (struct sim_fetch **)(void *)(transfer->steps + steps);
    for (uint16_t i = 0; i < count; i++)
        transfer->fetches[i] = NULL;
    sim->transfers++;
    return transfer;
}

static void transfer_free(struct sim *sim, struct transfer *transfer)
{
    for (uint32_t at = transfer->next; at < transfer->count; at++) {
        const struct step *step = &transfer->steps[at];
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
    transfer_free(sim, transfer);
}

void sim_transfer_start(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                        sim_time ready, const sim_time *starts)
{
    uint16_t count = good_commands(sim, list);
    struct transfer *transfer = count > 0 ? transfer_make(sim, list, count) : NULL;
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

/* ------------------------------------------------------------------ the steps */

static const struct fabric_target *transfer_target(const struct sim *sim, const struct transfer *transfer)
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
static uint8_t part_of(const struct step *step, uint64_t piece, uint64_t pieces)
{
    if (!step->address_order)
        return (uint8_t)(random_mix(step->seed + piece) % step->parts);
    uint8_t part = 0; /* as many as cuts lie at or before the piece */
    for (uint64_t cut = 1; cut < step->parts; cut++)
        part = (uint8_t)(part + (random_mix(step->seed + cut) % pieces <= piece));
    return part;
}

/* Stores those aligned words of the WRITE that belong to the step's part. */
static void store_part(struct sim *sim, uint16_t node, const struct step *step,
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
static void run_command(struct sim *sim, uint16_t node, struct fabric_command *command)
{
    const struct fabric_target *target = sim->memories[node].target;
    if (command->operation != FABRIC_READ)
        sim_fetch_before(sim, node, fabric_target_locate(target, command),
                         command->operation == FABRIC_WRITE ? command->length : 8);
    int status = fabric_target_execute(target, command);
    assert(!status);
    (void)status;
}

static void run_torn_read(struct sim *sim, const struct sim_compute *compute, struct transfer *transfer,
                          const struct step *step)
{
    struct sim_fetch **fetch = &transfer->fetches[step->command];
    if (step->part == READ_BEGINS) {
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

static void run_step(struct sim *sim, const struct sim_compute *compute, struct transfer *transfer,
                     const struct step *step)
{
    uint16_t node = transfer->list->node;
    struct fabric_command *command = &transfer->list->commands[step->command];
    if (step->parts == 1)
        run_command(sim, node, command);
    else if (command->operation == FABRIC_READ)
        run_torn_read(sim, compute, transfer, step);
    else
        store_part(sim, node, step, command, fabric_target_locate(transfer_target(sim, transfer), command));
}

/* Whether one of the first `begun` steps is of the same command as this one. */
static bool has_begun(const struct transfer *transfer, uint32_t number, uint32_t begun)
{
    const struct step *step = &transfer->steps[number];
    for (uint32_t at = 0; step->parts > 1 && at < begun; at++)
        if (transfer->steps[at].command == step->command)
            return true;
    return false;
}

/* Whether the step goes on with a WRITE that must not be left half done: of which one of the first `begun`
 * steps is a part. */
static bool is_bound(const struct sim *sim, const struct transfer *transfer, uint32_t number, uint32_t begun)
{
    const struct fabric_command *command = &transfer->list->commands[transfer->steps[number].command];
    return command->operation == FABRIC_WRITE && command->length <= sim->params.atomic_write &&
           has_begun(transfer, number, begun);
}

/* Whether the next step is an effect of its own (sim_kill_compute_at). */
static bool is_effect(const struct sim *sim, const struct transfer *transfer)
{
    const struct step *step = &transfer->steps[transfer->next];
    bool reading = transfer->list->commands[step->command].operation == FABRIC_READ;
    return reading ? step->part == READ_BEGINS : !is_bound(sim, transfer, transfer->next, transfer->next);
}

static void see_step(const struct sim *sim, const struct transfer *transfer)
{
    const struct step *step = &transfer->steps[transfer->next];
    int left = 0;
    if (!sim->see)
        return;
    for (uint32_t at = transfer->next + 1; at < transfer->count; at++)
        left += transfer->steps[at].command == step->command;
    if (left == 0 || !has_begun(transfer, transfer->next, transfer->next))
        sim_see_list(sim, SIM_EFFECT, sim_list(transfer->list)->waiter->task, transfer->list, step->command,
                     1, left);
}

/* The first words of a WRITE that was cut within: fewer than all. */
static void run_prefix(struct sim *sim, uint16_t node, const struct fabric_command *command)
{
    uint8_t *where = fabric_target_locate(sim->memories[node].target, command);
    uint32_t skew = (uint32_t)((uintptr_t)where % 8), words = (command->length + skew) / 8;
    uint32_t end = (uint32_t)random_below(&sim->dice[SIM_DIE_DEATH], words) * 8;
    if (end > skew)
        store_words(sim, node, command, where, 0, end - skew);
}

static bool is_long_write(const struct sim *sim, const struct fabric_command *command)
{
    return command->operation == FABRIC_WRITE && command->length > sim->params.atomic_write;
}

/* Whether a dead node's list goes on with its next step. */
static bool goes_on(struct sim *sim, const struct sim_compute *compute, struct transfer *transfer)
{
    const struct step *step = &transfer->steps[transfer->next];
    const struct fabric_command *command = &transfer->list->commands[step->command];
    /* a READ may end within a WRITE that must be finished */
    if (command->operation == FABRIC_READ || is_bound(sim, transfer, transfer->next, transfer->next))
        return true;
    if (compute->cut || transfer->connection->cut)
        return false;
    if (!random_chance(&sim->dice[SIM_DIE_DEATH], CUT_CHANCE))
        return true;
    transfer->connection->cut = true;
    if (step->parts == 1 && is_long_write(sim, command))
        run_prefix(sim, transfer->list->node, command);
    return false;
}

/* The next step. False: the list is cut before it. */
static bool take_step(struct sim *sim, struct sim_compute *compute, struct transfer *transfer)
{
    const struct step *step = &transfer->steps[transfer->next];
    if (compute->effects > 0 && is_effect(sim, transfer) && !sim_effect_happens(sim, compute))
        return false;
    if (compute->dead && !goes_on(sim, compute, transfer))
        return false;
    if (!compute->dead || transfer->list->commands[step->command].operation != FABRIC_READ) {
        run_step(sim, compute, transfer, step);
        see_step(sim, transfer);
    } else if (transfer->fetches[step->command]) { /* begun before the death: nobody is there to read for */
        sim_fetch_end(sim, transfer->fetches[step->command], false);
        transfer->fetches[step->command] = NULL;
    }
    transfer->next++;
    return true;
}

void sim_transfer_step(struct sim *sim, struct sim_compute *compute, void *object)
{
    struct transfer *transfer = object;
    struct fabric_list *list = transfer->list;
    if (sim_list_stale(compute, list)) { /* cut when the connection was lost */
        transfer_free(sim, transfer);
        if (!compute->dead)
            sim_list_respond(sim, compute, list, sim->now);
        return;
    }
    while (transfer->next < transfer->count && transfer->steps[transfer->next].time <= sim->now)
        if (!take_step(sim, compute, transfer)) {
            transfer_free(sim, transfer);
            return;
        }
    if (transfer->next < transfer->count) {
        sim_push(sim, transfer->steps[transfer->next].time, SIM_EVENT_STEP, transfer, 0, compute->index);
        return;
    }
    sim_time ready = sim_later(transfer->ready, sim->now), answer = transfer->answer;
    transfer_free(sim, transfer);
    if (compute->dead)
        return;
    if (answer > sim->now)
        sim_push(sim, answer, SIM_EVENT_RESPOND, list, ready, compute->index);
    else
        sim_list_respond(sim, compute, list, ready);
}

/* ------------------------------------------------------------------ death */

/* All at once, cut somewhere, where no faults are on. */
static void run_cut(struct sim *sim, struct fabric_list *list)
{
    const struct fabric_target *target = sim->memories[list->node].target;
    struct sim_connection *connection = sim_list(list)->connection;
    uint32_t cut = (uint32_t)random_below(&sim->dice[SIM_DIE_DEATH], list->count + 1u);
    connection->cut = cut < list->count;
    for (uint32_t i = 0; i < list->count && i <= cut; i++) {
        struct fabric_command *command = &list->commands[i];
        if (!fabric_command_of_node(command, list->node) || fabric_bounds_check(target, command))
            return;
        if (i < cut && command->operation != FABRIC_READ) {
            run_command(sim, list->node, command);
            sim_see_list(sim, SIM_EFFECT, sim_list(list)->waiter->task, list, i, 1, 0);
        } else if (i == cut && is_long_write(sim, command)) {
            run_prefix(sim, list->node, command);
        }
    }
}

void sim_list_arrive_dead(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                          sim_time posted)
{
    const struct sim_connection *connection = sim_list(list)->connection;
    if (compute->cut || connection->cut || posted > compute->death || sim_list_stale(compute, list))
        return;
    if (!sim->faulty) {
        run_cut(sim, list);
        return;
    }
    sim_time starts[FABRIC_COMMANDS_MAX];
    for (uint16_t i = 0; i < list->count; i++)
        starts[i] = sim->now;
    sim_transfer_start(sim, compute, list, sim->now, starts);
}

void sim_transfers_finish(struct sim *sim, const struct sim_compute *compute, uint32_t node)
{
    for (uint32_t at = 0; at < sim->queue.count; at++) {
        const struct sim_event *event = &sim->queue.events[sim->queue.keys[at].tag & SIM_PENDING_MAX];
        if (event->kind != SIM_EVENT_STEP || event->compute != compute->index)
            continue;
        struct transfer *transfer = event->object;
        if ((node != SIM_EVERY_NODE && transfer->list->node != node) ||
            sim_list_stale(compute, transfer->list))
            continue;
        uint32_t begun = transfer->next;
        for (uint32_t number = begun; number < transfer->count; number++)
            if (is_bound(sim, transfer, number, begun))
                run_step(sim, compute, transfer, &transfer->steps[number]);
    }
}
