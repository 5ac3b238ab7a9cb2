/*
 * test_log_sim.c - the owner's log in the simulator, with many fibers of several threads: one process owns
 * the whole index and logs all of it, while mergers and flushes go on; it may die at any virtual time, its
 * successor inherits and may die while it does, and connections may be lost. Every history is judged key by
 * key, scans included; at the end everything is merged, and tree and memory are accounted for.
 *
 * BANYAN_SEED replays a seed (of the part that its failure names), BANYAN_ROUNDS scales how many there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "log/state.h"
#include "swarm/churn_world.h"
#include "tree/rights.h"

#define COMPUTES    3u
#define MERGERS     2u /* the second one helps, above all with what `flush` walks */
#define MICROSECOND UINT64_C(1000)
#define LEASE_NS    (20 * MICROSECOND)

struct scene {
    struct churn churn; /* first: the world's context */
    struct world world;
    struct log *logs[COMPUTES];
    struct fabric_process processes[COMPUTES];
    struct log_heir heirs[COMPUTES + 1];
    uint32_t heir_count;
    uint64_t version, epochs[COMPUTES], adopted[COMPUTES]; /* adopted: under which incarnation */
    unsigned owner;                                        /* or on its way to it */
    bool serving, finished, turn_taken, full;
    unsigned done, merging;    /* workers of the owner that have; its tasks that merge still */
    uint64_t inherited, begun; /* begun: takings over, those that did not end too */
    struct tree_switches switches;
};

static struct {
    uint64_t operations, inherited, takings, deaths, merged, merged_there, unknown, waits;
} total;

/* ---- who owns ---- */

static int adopt(struct scene *scene, struct world_task *task, enum tree_right right)
{
    const unsigned c = task->compute;
    const uint64_t incarnation = fabric_incarnation(scene->world.computes[c].fabric);
    struct tree_rights_row row = {.right = right, .epoch = scene->epochs[c], .logged = right == TREE_OWNED};
    int status = tree_rights_adopt(task->session, task->tree, ++scene->version, incarnation, &row, 1);
    if (!status)
        scene->adopted[c] = incarnation;
    return status;
}

static void must(struct scene *scene, struct world_task *task, int status)
{
    if (status)
        world_fail(&scene->world, status, "%s: %s", error_name(status),
                   tree_session_error(task->session)->text);
}

/* Until it has gone well: connections may be lost meanwhile. */
static void take_over(struct scene *scene, struct world_task *task)
{
    const unsigned c = task->compute;
    int status = adopt(scene, task, TREE_MOVING);
    scene->epochs[c] = scene->version;
    scene->begun++;
    for (unsigned tries = 0; !status; tries++) {
        status = log_inherit(scene->logs[c], task->session, task->tree, scene->heirs, scene->heir_count,
                             (struct format_key){0}, NULL, scene->epochs[c]);
        if (!status || !world_lossy(&scene->world) || tries == 50)
            break;
        task_sleep(20 * MICROSECOND);
        status = 0;
    }
    must(scene, task, status);
    must(scene, task, adopt(scene, task, TREE_OWNED));
    scene->serving = true;
}

static void heirs_end(struct scene *scene, unsigned c)
{
    scene->version++;
    scene->heir_count = 0;
    log_cleared(scene->logs[c], scene->world.computes[c].tree, (struct format_key){0}, NULL,
                scene->epochs[c]);
    log_released(scene->logs[c], scene->world.computes[c].tree, scene->version);
}

static unsigned next_owner(const struct scene *scene)
{
    unsigned c = scene->owner + 1;
    while (c < COMPUTES && scene->world.computes[c].dead)
        c++;
    return c;
}

/* The owner was fenced: it is an heir from now on, and the next one owns. */
static void look_after_owner(struct scene *scene, struct world_task *task)
{
    const unsigned c = task->compute, before = scene->owner;
    if (before == c || !scene->world.computes[before].dead || next_owner(scene) != c)
        return;
    scene->owner = c;
    scene->serving = false;
    scene->done = scene->merging = 0;
    if (scene->epochs[before])
        scene->heirs[scene->heir_count++] =
            (struct log_heir){scene->processes[before], scene->epochs[before]};
    take_over(scene, task);
}

/* ---- tasks ---- */

static bool owns(const struct scene *scene, const struct world_task *task)
{
    return scene->owner == task->compute && scene->serving;
}

static bool over(const struct scene *scene, const struct world_task *task)
{
    return scene->finished || driver_stopped(&task->driver);
}

static void keep(struct scene *scene, struct world_task *task)
{
    const unsigned c = task->compute;
    while (!over(scene, task) || (scene->owner == c && scene->merging && !driver_stopped(&task->driver))) {
        look_after_owner(scene, task);
        if (owns(scene, task) && scene->adopted[c] != fabric_incarnation(scene->world.computes[c].fabric))
            must(scene, task, adopt(scene, task, TREE_OWNED));
        if (owns(scene, task) && scene->heir_count && random_chance(&task->random, 0.1))
            heirs_end(scene, c);
        task_sleep(5 * MICROSECOND);
    }
}

static void flush(struct scene *scene, struct world_task *task)
{
    while (!over(scene, task)) {
        task_sleep(MICROSECOND * (20 + random_below(&task->random, 400)));
        if (over(scene, task) || !owns(scene, task))
            continue;
        scene->merging++;
        int status = log_flush_all(scene->logs[task->compute], task->session);
        scene->merging--;
        if (status && !world_lossy(&scene->world))
            must(scene, task, status);
    }
}

static void change(struct scene *scene, struct world_task *task)
{
    const struct churn_place place = {.task = task->number, .tasks = scene->world.task_count};
    churn_task(&task->driver, &scene->churn, &place);
    scene->done++;
    if (scene->done == scene->world.options.threads * scene->world.options.fibers - 2 - MERGERS) {
        scene->finished = true;
        log_stop(scene->logs[task->compute]);
    }
}

static void act(struct world_task *task)
{
    struct scene *scene = task->world->context;
    const unsigned role = task->thread * scene->world.options.fibers + task->fiber;
    if (role == 0) {
        keep(scene, task);
        return;
    }
    if (role == 1) {
        flush(scene, task);
        return;
    }
    while (!over(scene, task) && !owns(scene, task))
        task_sleep(5 * MICROSECOND);
    if (over(scene, task))
        return;
    if (role > 1 + MERGERS) {
        change(scene, task);
        return;
    }
    scene->merging++;
    log_merge(scene->logs[task->compute], task->session);
    scene->merging--;
}

static int wait_a_while(void *context, struct tree_session *session, struct tree *tree,
                        struct fabric_process owner, uint64_t since)
{
    (void)context, (void)session, (void)tree, (void)owner, (void)since;
    task_sleep(5 * MICROSECOND);
    return 0;
}

/* ---- a world ---- */

static void begin(struct world_task *task)
{
    struct scene *scene = task->world->context;
    take_over(scene, task);
    heirs_end(scene, 0);
    churn_fill(&task->driver, &scene->churn);
}

static void end(struct world_task *task)
{
    struct scene *scene = task->world->context;
    const unsigned c = task->compute;
    struct log_stats stats;
    look_after_owner(scene, task); /* it died when the last task had returned */
    if (c != scene->owner)
        world_fail(&scene->world, BANYAN_ECORRUPT, "compute node %u lives, and %u owns", c, scene->owner);
    if (scene->adopted[c] != fabric_incarnation(scene->world.computes[c].fabric))
        must(scene, task, adopt(scene, task, TREE_OWNED));
    heirs_end(scene, c);
    must(scene, task, log_flush_all(scene->logs[c], task->session));
    if (tree_log_table(task->tree) && unmerged_count(tree_log_table(task->tree)))
        world_fail(&scene->world, BANYAN_ECORRUPT, "not everything was merged");
    must(scene, task, log_close(scene->logs[c], task->session));
    for (unsigned i = 0; i < COMPUTES; i++)
        if (scene->world.computes[i].dead)
            must(scene, task, log_release_dead(scene->logs[c], task->session, scene->processes[i]));
    log_stats(scene->logs[c], &stats);
    scene->inherited = stats.inherited;
    total.merged += stats.merged;
    total.merged_there += stats.merged_there;
    total.waits += stats.waits;
    total.unknown += stats.unknown;
}

static void options_for(struct world_options *options, struct churn *churn, uint64_t seed, bool losses)
{
    world_options_default(options);
    options->simulated = true;
    options->seed = seed;
    options->memory_nodes = 1 + (unsigned)(seed % 2);
    options->compute_nodes = COMPUTES;
    options->threads = !losses && seed % 8 == 0 ? 4 : 2;
    options->fibers = !losses && seed % 8 == 0 ? 8 : 4;
    options->until_ns = 2000 * 1000 * MICROSECOND;
    options->geometry = (struct format_geometry){.key_kind = FORMAT_KEY_FIXED,
                                                 .key_bytes = 8,
                                                 .value_bytes = seed % 3 ? 8 : 100,
                                                 .leaf_bytes = seed % 3 ? 512 : 1024,
                                                 .internal_bytes = 512};
    *churn = (struct churn){.keys = seed % 4 ? 120 : 480,
                            .window = 16,
                            .rounds = 24 + (unsigned)(seed % 5) * 12,
                            .hot = 35,
                            .scans = 6,
                            .multis = 8,
                            .seed = seed};
    if (!losses)
        return;
    sim_faults_hostile(&options->faults);
    options->faults.lose = 0.01;
    options->faults.lose_ns = 20 * MICROSECOND;
}

/* `away_ns`: a connection that is cut stays away for so long at most; 0: as the seed says. */
static int scene_open_with(struct scene *scene, uint64_t seed, bool losses, uint32_t away_ns)
{
    static const struct tree_forward forward = {.wait = wait_a_while};
    struct world_options options;
    struct log_options log;
    options_for(&options, &scene->churn, seed, losses);
    struct error error;
    assert_int_equal(tree_switches_preset(&scene->switches, "banyan", &error), 0);
    scene->switches.cache_bytes = options.cache_bytes;
    scene->switches.merge_walks = seed % 2 ? TREE_WALKS_ALWAYS : TREE_WALKS_NEVER;
    options.switches = &scene->switches;
    if (away_ns)
        options.faults.lose_ns = away_ns;
    int status = world_create(&scene->world, &options);
    scene->world.context = &scene->churn;
    log_options_default(&log);
    log.copies = 1 + (uint32_t)(seed / 2 % 2);
    log.segment_bytes = 64 << 10;
    log.frame_bytes = 1024u << (seed % 3);
    log.threshold = 2 + (uint32_t)(seed % 2);
    for (unsigned c = 0; c < COMPUTES && !status; c++) {
        struct world_compute *compute = &scene->world.computes[c];
        log.seed = seed * COMPUTES + c + 1;
        scene->processes[c] = fabric_self(compute->fabric);
        tree_compute_set_forward(compute->compute, &forward, NULL);
        status = log_create(&scene->logs[c], compute->compute, &log, &scene->world.error);
        if (!status)
            status = log_attach(scene->logs[c], compute->tree, &scene->world.error);
    }
    return status;
}

static int scene_open(struct scene *scene, uint64_t seed, bool losses)
{
    return scene_open_with(scene, seed, losses, 0);
}

static void scene_close(struct scene *scene)
{
    for (unsigned c = 0; c < COMPUTES; c++)
        log_destroy(scene->logs[c]);
    world_destroy(&scene->world);
}

static void deaths_plan(struct scene *scene, uint64_t seed)
{
    struct random random;
    random_seed(&random, seed ^ 0x6465617468);
    uint64_t first = random_below(&random, 500 * MICROSECOND);
    world_kill_at(&scene->world, 0, first, LEASE_NS);
    if (random_chance(&random, 0.6)) /* most often while it takes over */
        world_kill_at(&scene->world, 1,
                      first + LEASE_NS +
                          random_below(&random, (random_chance(&random, 0.7) ? 60 : 400) * MICROSECOND),
                      LEASE_NS);
}

enum part { PEACE, LOSSES, DEATHS };
static const char *const part_names[] = {"peace", "losses", "deaths"};

static void scene_run(uint64_t seed, enum part part)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct tree_check_report report;
    int status = scene_open(scene, seed, part == LOSSES);
    status = status ? status : world_run_one(&scene->world, 0, begin);
    if (!status && part == LOSSES)
        world_begin_losses(&scene->world);
    if (!status && part == DEATHS)
        deaths_plan(scene, seed);
    status = status ? status : world_run(&scene->world, act);
    if (!status && part == LOSSES)
        status = world_end_losses(&scene->world);
    status = status ? status : world_run_one(&scene->world, world_survivor(&scene->world), end);
    status = status ? status : churn_world_verify(&scene->world, &scene->churn, &report);
    for (unsigned i = 0; i < scene->world.task_count && !status; i++)
        total.operations += scene->world.tasks[i].log.count;
    total.inherited += scene->inherited;
    total.takings += scene->begun - 1;
    total.deaths += scene->world.computes[0].dead + scene->world.computes[1].dead;
    struct error error = scene->world.error;
    scene_close(scene);
    free(scene);
    if (status)
        fail_msg("%s: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_log_sim", part_names[part], status,
                 error.text, seed);
}

static void seeds_run(enum part part, unsigned count)
{
    for (unsigned i = 0; i < world_rounds(count); i++)
        scene_run(world_seed(i + 1), part);
    print_message("%s: %" PRIu64 " operations, %" PRIu64 " merged, %" PRIu64
                  " of them by memory nodes, %" PRIu64 " waits, %" PRIu64 " unknown, %" PRIu64
                  " deaths, %" PRIu64 " takings over, %" PRIu64 " entries inherited\n",
                  part_names[part], total.operations, total.merged, total.merged_there, total.waits,
                  total.unknown, total.deaths, total.takings, total.inherited);
}

static void in_peace(void **state)
{
    (void)state;
    seeds_run(PEACE, 60);
    assert_true(total.merged_there > total.merged / 10 || world_rounds(60) < 60);
}

static void with_lost_connections(void **state)
{
    (void)state;
    seeds_run(LOSSES, 100);
    assert_true(total.unknown > 0 || world_rounds(100) < 100);
}

static void with_deaths(void **state)
{
    (void)state;
    seeds_run(DEATHS, 200);
    assert_true(total.inherited > 0 || world_rounds(200) < 100);
}

/* ---- a memory node that is away ---- */

#define AWAY_NS 2000000u

static uint64_t degraded(const struct scene *scene)
{
    struct log_stats stats;
    log_stats(scene->logs[0], &stats);
    return stats.degraded;
}

static int put(struct world_task *task, uint64_t number, uint64_t value)
{
    uint8_t key[8] = {0};
    memcpy(key, &number, sizeof number);
    return tree_upsert(task->session, task->tree, key, sizeof key, &value, sizeof value);
}

/* While the second of two memory nodes is away, writes to leaves on the first one go on, with one copy. */
static void write_while_away(struct world_task *task)
{
    struct scene *scene = task->world->context;
    uint64_t done = 0;
    begin(task);
    for (uint64_t i = 0; i < 40; i++)
        must(scene, task, put(task, i, i + 1));
    sim_cut(task->world->sim, (int)task->compute, 1);
    for (uint64_t i = 0, since = task_now(); task_now() - since < AWAY_NS && degraded(scene) < 10; i++) {
        if (scene->adopted[0] != fabric_incarnation(scene->world.computes[0].fabric))
            must(scene, task, adopt(scene, task, TREE_OWNED));
        done += !put(task, i % 40, 100 + i);
        task_sleep(MICROSECOND);
    }
    if (done < 10 || degraded(scene) < 10)
        world_fail(&scene->world, BANYAN_ENET,
                   "%" PRIu64 " writes were done while a memory node was away, %" PRIu64 " with one copy",
                   done, degraded(scene));
    task_sleep(2 * AWAY_NS);
    must(scene, task, adopt(scene, task, TREE_OWNED));
    must(scene, task, log_flush_all(scene->logs[0], task->session));
    must(scene, task, log_close(scene->logs[0], task->session));
}

static void away_run(uint64_t seed)
{
    struct scene *scene = calloc(1, sizeof *scene);
    int status = scene_open_with(scene, 12 * seed + 7, false, AWAY_NS); /* two memory nodes, and two copies */
    world_begin_losses(&scene->world);
    status = status ? status : world_run_one(&scene->world, 0, write_while_away);
    struct error error = scene->world.error;
    scene_close(scene);
    free(scene);
    if (status)
        fail_msg("away: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_log_sim", status, error.text, seed);
}

static void with_a_memory_node_away(void **state)
{
    (void)state;
    for (unsigned i = 0; i < world_rounds(20); i++)
        away_run(world_seed(i + 1));
}

/* ---- a helper ---- */

static bool helper_waits(struct log *log)
{
    spinlock_lock(&log->lock);
    const bool waits = log->helpers;
    spinlock_unlock(&log->lock);
    return waits;
}

/* A cycle by a task that takes its last share before its helper takes the last of all. */
static void flush_with_helper(struct scene *scene, struct world_task *task)
{
    struct log *log = scene->logs[task->compute];
    const struct world_task *helper = &scene->world.tasks[scene->world.options.fibers];
    const uint64_t keys = 2 * TREE_LOG_APPLY_MAX + 1 + random_below(&task->random, TREE_LOG_APPLY_MAX);
    while (!helper_waits(log))
        task_sleep(MICROSECOND);
    for (uint64_t i = 0; i < keys; i++)
        must(scene, task, put(task, i, i + 1));
    must(scene, task, log_flush_all(log, task->session));
    const struct unmerged *table = tree_log_table(task->tree);
    const uint64_t left = table ? unmerged_count(table) : 0;
    if (left || atomic_load_relaxed(&log->published) < keys)
        world_fail(&scene->world, BANYAN_ECORRUPT,
                   "a cycle has ended, and %" PRIu64 " of %" PRIu64 " keys are not merged", left, keys);
    const struct tree_stats *helped = tree_session_stats(helper->session);
    if (!helped->cost.writes && !helped->merge_answered)
        world_fail(&scene->world, BANYAN_ECORRUPT, "the helper was not asked to help");
    log_stop(log);
    must(scene, task, log_close(log, task->session));
}

static void help(struct world_task *task)
{
    struct scene *scene = task->world->context;
    struct log *log = scene->logs[task->compute];
    const unsigned role = task->thread * scene->world.options.fibers + task->fiber;
    if (task->compute)
        return;
    if (role == 0)
        flush_with_helper(scene, task);
    if (role == 1)
        (void)log_merge(log, task->session); /* begins no cycle meanwhile: see help_run */
    if (role == scene->world.options.fibers) {
        while (!log->watched)
            task_sleep(MICROSECOND);
        (void)log_merge(log, task->session);
    }
}

static void own(struct world_task *task)
{
    struct scene *scene = task->world->context;
    take_over(scene, task);
    heirs_end(scene, 0);
}

static void help_run(uint64_t seed)
{
    struct scene *scene = calloc(1, sizeof *scene);
    int status = scene_open(scene, 3 * seed + 1, false); /* values of eight bytes */
    if (!status)
        scene->logs[0]->options.idle_ns = 1000 * 1000 * MICROSECOND;
    status = status ? status : world_run_one(&scene->world, 0, own);
    status = status ? status : world_run(&scene->world, help);
    struct error error = scene->world.error;
    scene_close(scene);
    free(scene);
    if (status)
        fail_msg("help: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_log_sim", status, error.text, seed);
}

/* L6: the watermark passes what the leader has merged, and what its helpers have. */
static void a_cycle_ends_with_its_last_helper(void **state)
{
    (void)state;
    for (unsigned i = 0; i < world_rounds(20); i++)
        help_run(world_seed(i + 1));
}

/* ---- a turn that is waited for ---- */

#define TURN_NS (1000 * MICROSECOND)

/* It has the turn for so long that both others wait for it. */
static void keep_the_turn(struct scene *scene, struct world_task *task)
{
    struct log *log = scene->logs[task->compute];
    log_turn_wait(log);
    must(scene, task, put(task, 1, 1));
    scene->turn_taken = true;
    task_sleep(TURN_NS);
    log_turn_give(log);
}

static void take_the_next_turn(struct scene *scene, struct world_task *task)
{
    struct log *log = scene->logs[task->compute];
    while (!scene->turn_taken)
        task_sleep(MICROSECOND);
    const uint64_t cycles = atomic_load_relaxed(&log->stats.cycles);
    must(scene, task, log_flush_all(log, task->session));
    const uint64_t others = atomic_load_relaxed(&log->stats.cycles) - cycles - 1;
    if (others)
        world_fail(&scene->world, BANYAN_ETIMEOUT,
                   "%" PRIu64 " cycles began before the one that was waited for", others);
    log_stop(log);
    must(scene, task, log_close(log, task->session));
}

static void turn(struct world_task *task)
{
    struct scene *scene = task->world->context;
    const unsigned role = task->thread * scene->world.options.fibers + task->fiber;
    if (task->compute)
        return;
    if (role == 0)
        keep_the_turn(scene, task);
    if (role == 1)
        (void)log_merge(scene->logs[task->compute], task->session);
    if (role == scene->world.options.fibers)
        take_the_next_turn(scene, task);
}

/* A merger that looks for the turn far more often than others does not keep it from them. */
static void a_turn_goes_to_who_waits(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    (void)state;
    int status = scene_open(scene, 1, false);
    if (!status)
        scene->logs[0]->options.idle_ns = MICROSECOND;
    status = status ? status : world_run_one(&scene->world, 0, own);
    status = status ? status : world_run(&scene->world, turn);
    struct error error = scene->world.error;
    scene_close(scene);
    free(scene);
    if (status)
        fail_msg("turn: %d: %s", status, error.text);
}

/* ---- streams without room ---- */

#define PATIENCE_NS (1000 * MICROSECOND)
#define FRAME_BYTES 4096u

static int reserve(struct world_task *task, unsigned node, struct log_patience *patience)
{
    struct scene *scene = task->world->context;
    struct log_place place;
    pool_session_begin(tree_session_pool(task->session));
    int status = log_stream_reserve(&scene->logs[0]->streams[node], task->session, FRAME_BYTES, false,
                                    patience, &place);
    if (!status)
        log_stream_ended(&place, 0);
    return status;
}

/* Until the next frame finds no room; none has looked for it. */
static void fill_stream(struct scene *scene, struct world_task *task, unsigned node)
{
    const struct log_stream *stream = &scene->logs[0]->streams[node];
    while (!stream->current || stream->used_count + 1 < scene->logs[0]->options.threshold ||
           stream->current->size - stream->current->tail >= FRAME_BYTES)
        must(scene, task, reserve(task, node, NULL));
}

static void empty_stream(struct scene *scene, unsigned node)
{
    log_stream_free_up_to(&scene->logs[0]->streams[node], UINT64_MAX);
}

/* No room comes; it is refused after so long. */
static void is_refused(struct world_task *task, unsigned node, struct log_patience *patience, uint64_t least,
                       uint64_t most)
{
    const uint64_t began = task_now();
    int status = reserve(task, node, patience);
    const uint64_t took = task_now() - began;
    if (status != BANYAN_ENOSPC || took < least || took > most)
        world_fail(task->world, BANYAN_ETIMEOUT, "a frame on memory node %u: %s after %" PRIu64 " ns", node,
                   error_name(status), took);
}

static void wait_for_room(struct scene *scene, struct world_task *task)
{
    struct log_patience patience = {0};
    fill_stream(scene, task, 0);
    fill_stream(scene, task, 1);
    is_refused(task, 0, &patience, PATIENCE_NS, 2 * PATIENCE_NS);
    is_refused(task, 1, &patience, 0, PATIENCE_NS / 2); /* it had no room meanwhile */
    empty_stream(scene, 1);
    fill_stream(scene, task, 1);
    is_refused(task, 0, &patience, 0, PATIENCE_NS / 2);
    scene->full = true;
    must(scene, task, reserve(task, 1, &patience)); /* what it has now can be merged still */
}

static void make_room(struct scene *scene)
{
    while (!scene->full)
        task_sleep(MICROSECOND);
    task_sleep(PATIENCE_NS / 2);
    empty_stream(scene, 1);
}

static void fill_and_wait(struct world_task *task)
{
    struct scene *scene = task->world->context;
    const unsigned role = task->thread * scene->world.options.fibers + task->fiber;
    if (task->compute)
        return;
    if (role == 0)
        wait_for_room(scene, task);
    if (role == 1)
        make_room(scene);
}

/* Frames that go to several streams one after the other wait no longer than one of them may. */
static void streams_without_room_wait_together(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    (void)state;
    int status = scene_open(scene, 1, false); /* two memory nodes */
    if (!status)
        scene->logs[0]->options.wait_ns = PATIENCE_NS;
    status = status ? status : world_run(&scene->world, fill_and_wait);
    struct error error = scene->world.error;
    scene_close(scene);
    free(scene);
    if (status)
        fail_msg("room: %d: %s", status, error.text);
}

int main(void)
{
    if (getenv("PART")) /* one of them */
        cmocka_set_test_filter(getenv("PART"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_peace),
        cmocka_unit_test(with_lost_connections),
        cmocka_unit_test(with_deaths),
        cmocka_unit_test(with_a_memory_node_away),
        cmocka_unit_test(a_cycle_ends_with_its_last_helper),
        cmocka_unit_test(a_turn_goes_to_who_waits),
        cmocka_unit_test(streams_without_room_wait_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
