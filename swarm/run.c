/* run.c - see run.h. */
#include "swarm/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "swarm/churn_world.h"
#include "swarm/world_drain.h"

struct swarm_run {
    const struct swarm_plan *plan;
    struct world world;
    struct churn churn;
    struct swarm_skip skip;
    uint64_t unfinished;
    bool drained;         /* a memory node, in peace */
    uint64_t rounds;      /* that all tasks have done */
    struct random random; /* for mishaps */
};

/* ---- mishaps ---- */

enum mishap {
    MISHAP_JOIN,
    MISHAP_KILL,
    MISHAP_STALL,
    MISHAP_CUT,
    MISHAP_REFUSAL,
    MISHAP_SPELL,
    MISHAP_FULL,
    MISHAP_FAIL
};

struct event {
    struct swarm_run *run;
    enum mishap kind;
};

static unsigned any_compute(struct swarm_run *run)
{
    return (unsigned)random_below(&run->random, run->world.compute_count);
}

static void kill(struct swarm_run *run)
{
    struct world *world = &run->world;
    unsigned compute = any_compute(run);
    uint64_t lease = run->plan->faults.lease_ns, effects = 1 + random_below(&run->random, 200);
    if (!sim_compute_alive(world->sim, (int)compute))
        return;
    if (run->plan->kill_at_effect)
        world_kill_at_effect(world, compute, effects, lease);
    else
        world_kill_at(world, compute, 0, lease);
    if (run->plan->restarts)
        world_restart_at(world, compute, lease + random_below(&run->random, 2 * lease));
}

/* Two compute nodes cannot reach each other, until world_calm at the latest. */
static void cut_peers(struct swarm_run *run)
{
    unsigned one = any_compute(run), other = any_compute(run);
    if (one != other && sim_cut_peers(run->world.sim, (int)one, (int)other))
        world_fail(&run->world, BANYAN_ENOMEM, "no memory to cut a connection");
}

static uint32_t joins_of(const struct swarm_plan *plan)
{
    return plan->joins < plan->memory_nodes ? plan->joins : plan->memory_nodes - 1;
}

/* The next memory node joins. */
static void join(struct swarm_run *run)
{
    struct world *world = &run->world;
    if (world->disks) {
        world_disks_join(world);
        return;
    }
    const unsigned node = world->options.memory_nodes - world->options.joins + world->joined++;
    if (sim_memory_join(world->sim, (int)node, 2 * run->plan->faults.lease_ns))
        world_fail(world, BANYAN_ENOMEM, "no memory for a memory node that joins");
}

static void happen(void *argument)
{
    struct event event = *(struct event *)argument;
    struct swarm_run *run = event.run;
    struct world *world = &run->world;
    free(argument);
    if (event.kind == MISHAP_JOIN) { /* in peace as well */
        join(run);
        return;
    }
    if (world->setting.calm_ns || world->setting.failed || !world->function)
        return;
    uint64_t lease = run->plan->faults.lease_ns, dice = random_next(&run->random);
    int memory = (int)random_below(&run->random, run->plan->memory_nodes);
    switch (event.kind) {
    case MISHAP_JOIN:
        break;
    case MISHAP_KILL:
        kill(run);
        break;
    case MISHAP_STALL: /* half of them past the lease; some of a memory node */
        if (dice % 4 == 0)
            sim_stall_memory(world->sim, memory, random_below(&run->random, 2 * lease));
        else {
            uint64_t ns = random_below(&run->random, 2 * lease);
            sim_stall_compute(world->sim, (int)any_compute(run), ns, lease);
        }
        break;
    case MISHAP_CUT:
        if (run->plan->ranges && dice % 2)
            cut_peers(run);
        else
            sim_cut(world->sim, (int)any_compute(run), memory);
        break;
    case MISHAP_REFUSAL:
        memory_node_refuse(world->memory[memory], 1 + dice % 20);
        break;
    case MISHAP_SPELL:
        world_disks_fault(world, WORLD_DISK_SLOW, dice % 3000000);
        break;
    case MISHAP_FULL: /* or until power is cut */
        world_disks_fault(world, WORLD_DISK_FULL, dice % 3000000);
        if (dice >> 60 < 6)
            world_power_cut_at(world, 1 + dice % 8000, true);
        break;
    case MISHAP_FAIL: /* nothing is kept from then on */
        world_disks_fault(world, WORLD_DISK_FAILS, 0);
        world_power_cut_at(world, 1 + dice % 20000, true);
        break;
    }
}

static int arrange(struct swarm_run *run, enum mishap kind, uint32_t count)
{
    struct sim *sim = run->world.sim;
    for (uint32_t i = 0; i < count; i++) {
        struct event *event = malloc(sizeof *event);
        if (!event)
            abort();
        *event = (struct event){run, kind};
        uint64_t time = sim_now(sim) + random_below(&run->random, run->plan->span_ns);
        if (sim_at(sim, time, happen, event)) {
            free(event);
            return world_fail(&run->world, BANYAN_ENOMEM, "no memory for an event");
        }
    }
    return 0;
}

static int arrange_all(struct swarm_run *run)
{
    const struct swarm_plan *plan = run->plan;
    int status = arrange(run, MISHAP_JOIN, joins_of(plan));
    status = status ? status : arrange(run, MISHAP_KILL, plan->kills);
    status = status ? status : arrange(run, MISHAP_STALL, plan->stalls);
    status = status ? status : arrange(run, MISHAP_CUT, plan->cuts);
    status = status ? status : arrange(run, MISHAP_REFUSAL, plan->refusals);
    if (!plan->disk)
        return status;
    status = status ? status : arrange(run, MISHAP_SPELL, plan->disk_spells);
    status = status ? status : arrange(run, MISHAP_FULL, plan->disk_fulls);
    return status ? status : arrange(run, MISHAP_FAIL, plan->disk_fails);
}

/* ---- the run ---- */

static bool left_out(void *context, unsigned task, unsigned round)
{
    const struct swarm_run *run = context;
    return swarm_skip_has(&run->skip, task, round);
}

/* The first task that comes near its end ends the faults for all: the rest of the run must go well. */
static void after_round(void *context, unsigned task, unsigned round)
{
    struct swarm_run *run = context;
    if (++run->rounds == run->plan->power_rounds)
        world_power_cut_at(&run->world, run->plan->power_events, false);
    if (round + 1 >= run->plan->rounds - run->plan->rounds / 8 && !run->world.setting.calm_ns)
        world_calm(&run->world);
}

static void options_of(const struct swarm_plan *plan, struct world_options *options)
{
    world_options_default(options);
    options->simulated = true;
    options->seed = plan->seed;
    options->dice = plan->dice;
    options->switches = &plan->switches;
    options->unlock_by_atomic = plan->unlock_by_atomic;
    swarm_plan_geometry(plan, &options->geometry);
    options->long_keys = plan->long_keys;
    options->memory_nodes = plan->memory_nodes;
    options->joins = joins_of(plan);
    options->compute_nodes = plan->compute_nodes + (plan->disk && plan->disk_save_ns);
    options->threads = plan->threads;
    options->fibers = plan->fibers;
    options->pool_bytes = plan->pool_bytes;
    options->chunk_bytes = plan->chunk_bytes;
    options->lock_bytes = plan->lock_bytes;
    options->lock_width = plan->params.lock_width;
    options->params = plan->params;
    options->walk_busy = (uint8_t)plan->walk_busy;
    options->walk_aged = (uint8_t)plan->walk_aged;
    options->faults = plan->faults;
    options->records = plan->records;
    options->ranges = plan->ranges;
    options->log = plan->log;
    options->mergers = plan->mergers;
    /* Where losses let logs grow beyond their thresholds they find room; small pools show what is without. */
    options->log_bytes = plan->log && !swarm_plan_may_be_full(plan) ? plan->pool_bytes / 4 : 0;
    options->change_ns = plan->change_ns;
    options->disk = (struct world_disk_options){.level = (enum world_disk_level)plan->disk,
                                                .round_ns = plan->disk_round_ns,
                                                .sync_ns = plan->disk_sync_ns,
                                                .slow = plan->disk_slow,
                                                .gone = plan->disk_gone,
                                                .save_ns = plan->disk_save_ns};
    options->accept_full = swarm_plan_may_be_full(plan);
    options->accept_refusals = plan->refusals > 0 || plan->log; /* a log without room */
    options->restarts = plan->restarts + 1;                     /* one more, should all be dead at the end */
    options->events_max = plan->events;
    options->patience_ns = plan->patience_ns;
}

static void churn_of(struct swarm_run *run)
{
    swarm_plan_churn(run->plan, &run->churn);
    run->churn.skip = left_out;
    run->churn.after = after_round;
    run->churn.context = run;
}

/* ---- a memory node is emptied in peace ---- */

#define PEACE_ROUNDS 40u

static void work_in_peace(void *context, struct world_task *task)
{
    const struct churn_place place = {.task = task->number, .tasks = task->world->first_count};
    churn_task(&task->driver, context, &place);
}

/* Where the plan has drains: what operations find beside one more, and what it leaves. */
static int drain(struct swarm_run *run)
{
    struct churn churn = run->churn;
    bool done;
    if (!run->plan->drains || run->plan->memory_nodes < 2)
        return 0;
    const uint16_t node = (uint16_t)(1 + random_mix(run->plan->seed) % (run->plan->memory_nodes - 1));
    churn.seed = random_mix(churn.seed);
    churn.rounds = churn.rounds < PEACE_ROUNDS ? churn.rounds : PEACE_ROUNDS;
    churn.drains = 0;
    churn.skip = NULL;
    churn.after = NULL;
    int status = world_drain_judged(&run->world, node, work_in_peace, &churn, &done);
    run->drained = done;
    return status;
}

/* ---- all of it ---- */

static int work(struct swarm_run *run)
{
    struct world *world = &run->world;
    int status = churn_world_fill(world, &run->churn);
    if (status)
        return status;
    world_begin_losses(world);
    status = arrange_all(run);
    status = status ? status : churn_world_work(world, &run->churn);
    if (!status && !world->off && world_power_missed(world))
        world_power_off(world);
    if (status || world->off)
        return status;
    if (!world->setting.calm_ns)
        world_calm(world);
    status = world_revive(world);
    status = status ? status : world_end_losses(world);
    return status ? status : drain(run);
}

/* Memory that may be lost: the free blocks that the worker of each thread of a dead compute node held; and,
 * for each task that a death or a lost connection met, the blocks of its operation under way: at most some
 * records in pieces. */
#define WORKER_HOLDS  UINT64_C(524288) /* bytes */
#define TASK_UNDERWAY UINT64_C(262144)

static uint64_t deaths_of(const struct world *world)
{
    uint64_t deaths = 0;
    for (unsigned i = 0; i < world->compute_count; i++)
        deaths += world->computes[i].dead;
    return deaths;
}

/* Deaths, losses and a full pool excuse only so many lost bytes and half-done changes. */
static int judge_excuses(struct swarm_run *run, const struct tree_check_report *left)
{
    struct world *world = &run->world;
    const struct swarm_plan *plan = run->plan;
    struct world_met met;
    struct tree_stats stats;
    uint64_t deaths = deaths_of(world), losses = sim_losses(world->sim);
    world_met(world, &met);
    world_stats(world, &stats);
    uint64_t tasks = (uint64_t)plan->threads * plan->fibers; /* of one compute node */
    uint64_t met_by = deaths + losses;
    if (plan->ranges) /* an exchange whose reply never came: one task's */
        met_by += met.unknown;
    uint64_t bytes = deaths * plan->threads * WORKER_HOLDS + met_by * tasks * TASK_UNDERWAY;
    if (world->lost_bytes > bytes)
        return world_fail(world, BANYAN_ECORRUPT,
                          "%" PRIu64 " bytes have no owner: too many for %" PRIu64 " deaths and %" PRIu64
                          " lost connections",
                          world->lost_bytes, deaths, losses);
    /* An operation that was done may have been cut short in its upkeep. */
    uint64_t cut = met.unknown + met.unreachable + stats.unfinished;
    uint64_t unfinished = deaths * tasks + cut;
    bool full = swarm_plan_may_be_full(plan) ||
                plan->refusals; /* no room for the parent's split leaves an entry out */
    if (left->dead + left->marked + left->frozen > unfinished ||
        (!full && left->missing_parents > unfinished))
        return world_fail(world, BANYAN_ECORRUPT,
                          "too much is unfinished: %" PRIu64 " dead, %" PRIu64 " half split, %" PRIu64
                          " frozen, %" PRIu64 " without an entry, after %" PRIu64 " deaths and %" PRIu64
                          " operations cut short",
                          left->dead, left->marked, left->frozen, left->missing_parents, deaths, cut);
    return 0;
}

static int judge(struct swarm_run *run)
{
    struct world *world = &run->world;
    struct tree_check_report left = {0}, report = {0};
    if (world->off)
        return world_power_judge(world);
    /* Once as the last operation left the index, and once after all of it has been read. */
    int status = world_check_locks(world);
    status = status ? status : world_check(world, &left);
    run->unfinished = left.dead + left.marked + left.frozen + left.missing_parents;
    status = status ? status : judge_excuses(run, &left);
    status = status ? status : churn_world_verify(world, &run->churn, &report);
    status = status ? status : world_check_locks(world);
    if (status || !run->plan->disk)
        return status;
    world_power_off(world);
    return world_power_judge(world);
}

static void result_of(struct swarm_run *run, int status, struct swarm_result *result)
{
    struct world *world = &run->world;
    struct tree_stats stats;
    struct world_met met;
    world_stats(world, &stats);
    world_met(world, &met);
    *result = (struct swarm_result){.status = status,
                                    .operations = stats.operations,
                                    .splits = stats.splits,
                                    .unlinks = stats.unlinks,
                                    .merges = stats.merges,
                                    .node_moves = stats.moves,
                                    .drained = run->drained,
                                    .removed = world->removed != 0,
                                    .logs_ended = world->logs_ended,
                                    .merged_there = stats.merge_answered,
                                    .exchanged = stats.exchanges_answered,
                                    .merging_at_death = world->merging_at_death,
                                    .retries = stats.retries,
                                    .handovers = stats.handovers,
                                    .unreachable = met.unreachable,
                                    .unknown = met.unknown,
                                    .refused = met.refused,
                                    .lost_bytes = world->lost_bytes,
                                    .unfinished = run->unfinished,
                                    .longest_ns = met.longest_ns};
    if (status)
        snprintf(result->what, sizeof result->what, "%s: %.280s", error_name(status), world->error.text);
    for (unsigned i = 0; i < world->task_count; i++)
        result->recorded += world->tasks[i].log.count;
    result->deaths = deaths_of(world);
    world_disks_met(world, &result->disks);
    result->restarts = world->compute_count - world->options.compute_nodes;
    if (!world->sim)
        return;
    result->losses = sim_losses(world->sim);
    result->events = sim_events(world->sim);
    result->virtual_ns = sim_now(world->sim);
    result->hash = sim_trace_hash(world->sim);
}

int swarm_run(const struct swarm_plan *plan, const struct swarm_watch *watch, struct swarm_result *result)
{
    struct swarm_run run = {.plan = plan};
    struct world_options options;
    struct error error;
    *result = (struct swarm_result){.status = swarm_plan_check(plan, &error)};
    if (result->status || (result->status = swarm_skip_parse(&run.skip, plan, &error))) {
        snprintf(result->what, sizeof result->what, "%s", error.text);
        return result->status;
    }
    random_seed(&run.random, plan->seed ^ UINT64_C(0x6d697368617073) ^ plan->dice);
    options_of(plan, &options);
    churn_of(&run);
    int status = world_create(&run.world, &options);
    if (!status && watch && watch->begin)
        watch->begin(watch->context, &run.world);
    status = status ? status : work(&run);
    status = status ? status : judge(&run);
    result_of(&run, status, result);
    if (watch && watch->end)
        watch->end(watch->context, &run.world, result);
    world_destroy(&run.world);
    swarm_skip_free(&run.skip);
    return status;
}
