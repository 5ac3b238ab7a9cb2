/* world_ranges.c - see world_ranges.h. */
#include "swarm/world_ranges.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/task.h"
#include "swarm/world_disks.h"
#include "swarm/world_parts.h"
#include "swarm/world_saves.h"

/* Times of the owner layer, in read leases: a world's virtual time is short. */
#define TICK_LEASES     1u
#define ADOPT_LEASES    3u
#define TIMEOUT_NS      UINT64_C(50000000)
#define SETTLE_TICKS    60u
#define WORK_LOOKS      2000u
#define JUDGE_NS        4000u
#define JUDGE_KEYS      2u
#define CHECK_TEXT_SIZE 300u

static bool active(const struct world *world)
{
    return world->options.ranges && !world->options.empty;
}

static uint64_t read_lease(const struct world *world)
{
    return world->options.params.read_lease_ns;
}

/* ---- making ---- */

/* Where a disk is to be lost most logs have two copies. From dice of its own. */
static unsigned copies_drawn(struct world_keepers *keepers)
{
    const unsigned drawn = 1 + (unsigned)random_below(&keepers->random, 2);
    struct random random;
    random_seed(&random, random_mix(keepers->world->options.seed ^ UINT64_C(0x60e5)) + keepers->compute);
    return keepers->world->options.disk.gone && random_chance(&random, 0.75) ? 2 : drawn;
}

/* Everything small, so that much of it happens. */
static int build_log(struct world_keepers *keepers, struct world_compute *compute)
{
    struct world *world = keepers->world;
    struct log_options options;
    log_options_default(&options);
    options.copies = copies_drawn(keepers);
    options.threshold = 2 + (unsigned)random_below(&keepers->random, 3);
    options.segment_bytes = MEMORY_LOG_SEGMENT_LEAST;
    options.frame_bytes = 1024u << random_below(&keepers->random, 4);
    options.wait_ns = TIMEOUT_NS / 2;
    options.idle_ns = 5000 + random_below(&keepers->random, 200000);
    options.seed = 1 + random_next(&keepers->random) / 2;
    int status = log_create(&keepers->log, compute->compute, &options, &world->error);
    keepers->hooks.log = keepers->log;
    if (!status && world->disks)
        world_kept_watch(world_disks_kept(world), compute, keepers->log, options.copies);
    if (!status)
        owner_log_hook(keepers->owner, &keepers->hooks);
    return status;
}

int world_ranges_build(struct world *world, struct world_compute *compute)
{
    if (!active(world))
        return 0;
    struct owner_options options;
    struct world_keepers *keepers = world_allocate(1, sizeof *keepers);
    keepers->world = world;
    keepers->compute = (unsigned)(compute - world->computes);
    compute->keepers = keepers;
    random_seed(&keepers->random,
                random_mix(world->options.seed ^ UINT64_C(0x72616e676573)) + keepers->compute);
    owner_options_default(&options);
    options.policy = random_chance(&keepers->random, 0.7) ? OWNER_AUTO : OWNER_NONE;
    options.timeout_ns = TIMEOUT_NS;
    options.tick_ns = TICK_LEASES * read_lease(world);
    options.adopt_ns = ADOPT_LEASES * read_lease(world);
    options.balance_ns = 0; /* after world_calm nothing may change: the task that changes balances, too */
    options.ranges = 1 + (uint32_t)random_below(&keepers->random, 8);
    options.seed = 1 + random_next(&keepers->random) / 2;
    options.log = world->options.log;
    if (world_saves_by(world, keepers->compute)) {
        options.policy = OWNER_NONE;
        options.log = false;
    }
    int status = owner_create(&keepers->owner, compute->compute, &options, &world->error);
    return status || !options.log ? status : build_log(keepers, compute);
}

int world_ranges_attach(struct world_task *task)
{
    struct world_compute *compute = &task->world->computes[task->compute];
    struct world_keepers *keepers = compute->keepers;
    int status = 0;
    if (!keepers)
        return 0;
    if (keepers->log && !keepers->hooks.session)
        status = tree_session_create(&keepers->hooks.session, compute->compute, compute->workers[0],
                                     &task->world->error);
    if (!status && keepers->log && keepers->attached != compute->tree) {
        status = log_attach(keepers->log, compute->tree, &task->world->error);
        keepers->attached = compute->tree;
    }
    return status ? status : owner_attach(keepers->owner, task->session, compute->tree);
}

/* ---- the tasks ---- */

static void keep(struct world_keeper *keeper)
{
    struct world_keepers *keepers = keeper->keepers;
    int status = BANYAN_ENET;
    while (status && !driver_stopped(&keepers->world->tasks[0].driver)) {
        status = owner_keep(keepers->owner, keeper->session);
        if (status)
            task_sleep(read_lease(keepers->world));
    }
}

static void keeper_main(void *argument)
{
    struct world_keeper *keeper = argument;
    switch (keeper->duty) {
    case WORLD_KEEPS:
        keep(keeper);
        break;
    case WORLD_TICKS:
        owner_tick(keeper->keepers->owner);
        break;
    case WORLD_CHANGES:
        if (world_saves_by(keeper->keepers->world, keeper->keepers->compute))
            world_saves_make(keeper);
        else
            world_ranges_change(keeper);
        break;
    case WORLD_MERGES:
        if (keeper->keepers->log)
            (void)log_merge(keeper->keepers->log, keeper->session); /* 0: it was stopped */
        break;
    default:
        (void)owner_serve(keeper->keepers->owner, keeper->session);
        break;
    }
    keeper->returned = true;
}

/* The judge comes by every now and then, as long as a run is under way. */
static void judge_often(void *argument)
{
    struct world *world = argument;
    for (unsigned i = 0; i < JUDGE_KEYS && world->function; i++)
        world_ranges_judge(world, random_below(sim_random(world->sim), 1024));
    if (!world->setting.failed && sim_at(world->sim, sim_now(world->sim) + JUDGE_NS, judge_often, world))
        world_fail(world, BANYAN_ENOMEM, "no memory for an event");
}

static enum world_duty duty_of(unsigned number)
{
    return number < WORLD_SERVES                   ? number
           : number < WORLD_SERVES + WORLD_SERVERS ? WORLD_SERVES
                                                   : WORLD_MERGES;
}

static unsigned keepers_count(const struct world *world)
{
    const unsigned count = WORLD_SERVES + WORLD_SERVERS;
    return world->options.log && world->options.mergers ? count + world->options.mergers - 1 : count;
}

int world_ranges_start(struct world *world, unsigned number)
{
    struct world_keepers *keepers = world->computes[number].keepers;
    int status = 0;
    if (!keepers)
        return 0;
    keepers->started = true;
    for (unsigned i = 0; i < keepers_count(world) && !status; i++) {
        struct world_keeper *keeper = &keepers->each[i];
        *keeper = (struct world_keeper){.keepers = keepers, .duty = duty_of(i)};
        if (keeper->duty != WORLD_TICKS)
            status = tree_session_create(&keeper->session, world->computes[number].compute,
                                         world->computes[number].workers[0], &world->error);
        if (!status)
            status = sim_spawn(world->sim, (int)number, 0, keeper_main, keeper, &world->error);
    }
    if (!status && number == 0)
        status = sim_at(world->sim, sim_now(world->sim) + JUDGE_NS, judge_often, world);
    return status ? world_fail(world, status, "keepers of ranges: %s", error_name(status)) : 0;
}

/* ---- peace ---- */

static bool changing(const struct world *world)
{
    for (unsigned i = 0; i < world->compute_count; i++) {
        const struct world_keepers *keepers = world->computes[i].keepers;
        if (keepers && keepers->started && sim_compute_alive(world->sim, (int)i) &&
            !keepers->each[WORLD_CHANGES].returned)
            return true;
    }
    return false;
}

/* Whether ranges are changed or inherited, or something is left to merge, or is merged just now: the first
 * compute node of which that is so, and what it does. NULL: none. */
static const char *working(const struct world *world, unsigned *number)
{
    for (unsigned i = 0; i < world->compute_count; i++) {
        const struct world_keepers *keepers = world->computes[i].keepers;
        struct owner_stats owner;
        struct log_stats stats = {0};
        if (!keepers || !sim_compute_alive(world->sim, (int)i))
            continue;
        owner_stats(keepers->owner, &owner);
        if (keepers->log)
            log_stats(keepers->log, &stats);
        *number = i;
        if (owner.busy)
            return "changes the map of ranges, or has heirs there";
        if (stats.unmerged || stats.merging)
            return stats.unmerged ? "has entries to merge" : "merges";
        if (stats.watermark < stats.sequence)
            return "keeps what it has logged, though all of it is merged and nobody is to inherit it";
    }
    return NULL;
}

/* Ranges in the map whose owner does not live. */
struct left {
    const struct world *world;
    unsigned count;
};

static void left_visit(void *context, const struct owner_range *range)
{
    struct left *left = context;
    left->count += range->owner.compute_id && !world_process_lives(left->world, range->owner);
}

/* Keepers find out one after another who is dead, and some wait for an answer of a dead one meanwhile: until
 * a range has been taken over, nobody has anything of it to inherit or to merge. */
static bool is_left(struct world_task *task)
{
    const struct world_keepers *keepers = task->world->computes[task->compute].keepers;
    struct left left = {.world = task->world};
    return keepers && !owner_list(keepers->owner, task->session, left_visit, &left) && left.count > 0;
}

void world_ranges_settle(struct world_task *task)
{
    struct world *world = task->world;
    if (!active(world))
        return;
    while (changing(world) && !driver_stopped(&task->driver))
        task_sleep(read_lease(world));
    task_sleep(SETTLE_TICKS * TICK_LEASES * read_lease(world));
    for (unsigned i = 0; i < WORK_LOOKS && is_left(task) && !driver_stopped(&task->driver); i++)
        task_sleep(read_lease(world));
    /* What is under way has locks, and blocks that nothing names yet. */
    unsigned looks = 0, number = 0;
    const char *work = NULL;
    while (looks++ < WORK_LOOKS && (work = working(world, &number)) && !driver_stopped(&task->driver))
        task_sleep(read_lease(world));
    if (looks > WORK_LOOKS)
        world_fail(world, BANYAN_ETIMEOUT,
                   "inheriting or merging does not come to an end: compute node %u %s", number, work);
}

static void problem(void *context, const char *text)
{
    world_fail(context, BANYAN_ECORRUPT, "the map of ranges: %.*s", (int)CHECK_TEXT_SIZE, text);
}

void world_ranges_check(struct world_task *task, void (*visit)(void *context, gaddr node, uint32_t bytes),
                        void *context)
{
    struct world *world = task->world;
    struct world_keepers *keepers = world->computes[task->compute].keepers;
    struct tree_check_report report;
    struct tree *map;
    uint32_t problems;
    if (!keepers ||
        world_session_status(task, tree_open(task->session, OWNER_MAP_NAME, &map), "open the map"))
        return;
    int status = tree_check(task->session, map, &report, visit, context);
    tree_close(map);
    if (!world_session_status(task, status, "check the map"))
        world_session_status(task, owner_check(keepers->owner, task->session, problem, world, &problems),
                             "check who owns what");
}

/* ---- the end ---- */

static void stop_tasks(struct world *world)
{
    for (unsigned i = 0; i < world->compute_count; i++)
        if (world->computes[i].keepers && sim_compute_alive(world->sim, (int)i)) {
            owner_stop(world->computes[i].keepers->owner);
            if (world->computes[i].keepers->log)
                log_stop(world->computes[i].keepers->log);
        }
    sim_limit_events(world->sim, world->options.events_max);
    (void)sim_run(world->sim, sim_now(world->sim) + TIMEOUT_NS);
    for (unsigned i = 0; i < world->compute_count; i++)
        for (unsigned j = 0; j < keepers_count(world); j++)
            if (world->computes[i].keepers && world->computes[i].keepers->started &&
                sim_compute_alive(world->sim, (int)i) && !world->computes[i].keepers->each[j].returned)
                world_fail(world, BANYAN_ETIMEOUT, "task %u of the keepers of compute node %u does not end",
                           j, i);
}

static void keepers_free(struct world_keepers *keepers)
{
    for (unsigned i = 0; i < WORLD_DUTIES; i++)
        if (keepers->each[i].session)
            tree_session_destroy(keepers->each[i].session);
    owner_destroy(keepers->owner);
    tree_session_destroy(keepers->hooks.session);
    log_destroy(keepers->log);
    free(keepers);
}

void world_ranges_stop(struct world *world)
{
    if (!world->options.ranges)
        return;
    if (world->sim && !world->error.code && !world->off)
        stop_tasks(world);
    for (unsigned i = 0; i < world->compute_count; i++)
        if (world->computes[i].keepers) {
            keepers_free(world->computes[i].keepers);
            world->computes[i].keepers = NULL;
        }
}

/* ---- the judge ---- */

/* What this compute node may do with the key's leaf as far as anyone can tell from outside: a table of before
 * a loss gives no right, since lists that rely on it are refused; nor does any to a node that is fenced. */
static enum tree_right right_of(const struct world *world, unsigned compute, const uint8_t *key,
                                size_t length)
{
    const struct world_compute *node = &world->computes[compute];
    const struct tree *tree = world->tasks[compute * world_tasks_each(world)].tree;
    uint64_t incarnation;
    if (!tree || node->dead || !sim_connected(world->sim, (int)compute, 0))
        return TREE_OTHERS;
    enum tree_right right = tree_rights_at(tree, key, length, &incarnation);
    return incarnation >= fabric_incarnation(node->fabric) ? right : TREE_OTHERS;
}

void world_ranges_judge(struct world *world, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = world_key(world, number, key);
    unsigned owners = 0, sharers = 0, owner = 0, other = 0;
    for (unsigned i = 0; i < world->compute_count; i++) {
        enum tree_right right = right_of(world, i, key, length);
        if (right == TREE_OWNED) {
            other = owners ? i : other;
            owner = owners++ ? owner : i;
        } else if (right == TREE_SHARED) {
            other = owners > 1 ? other : i;
            sharers++;
        }
    }
    if (owners > 1 || (owners && sharers))
        world_fail(world, BANYAN_ECONFLICT,
                   "compute nodes %u and %u both have a right to key %" PRIu64
                   ", and it is the first one's alone",
                   owner, other, number);
}

void world_ranges_met(const struct world *world, struct world_ranges_met *met)
{
    *met = (struct world_ranges_met){0};
    for (unsigned i = 0; i < world->compute_count; i++) {
        const struct world_keepers *keepers = world->computes[i].keepers;
        struct owner_stats stats;
        if (!keepers)
            continue;
        owner_stats(keepers->owner, &stats);
        met->changes += keepers->changes;
        met->failed += keepers->failed;
        met->transfers += stats.transfers;
        met->takeovers += stats.takeovers;
        met->finished += stats.finished;
        met->fencings += stats.fencings;
        met->forwarded += stats.forwarded_lookups + stats.forwarded_exchanges;
        met->pauses += stats.pauses;
        for (unsigned j = 0; j < WORLD_DUTIES; j++)
            if (keepers->each[j].session) {
                met->unfinished += tree_session_stats(keepers->each[j].session)->unfinished;
                met->merge_answered += tree_session_stats(keepers->each[j].session)->merge_answered;
            }
    }
}
