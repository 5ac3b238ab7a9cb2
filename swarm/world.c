/* world.c - see world.h. */
#include "swarm/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "fabric/local.h"
#include "swarm/linearize.h"
#include "swarm/served.h"

/* What shall happen to a compute node; the world's, since it may never come to it. */
struct world_plan {
    struct world_plan *next;
    struct world *world;
    unsigned compute;
    uint64_t lease_ns;
    unsigned waits; /* for the death of who is to be replaced */
};

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory)
        abort();
    return memory;
}

void world_options_default(struct world_options *options)
{
    *options =
        (struct world_options){.seed = 1,
                               .memory_nodes = 1,
                               .compute_nodes = 1,
                               .threads = 1,
                               .fibers = 1,
                               .pool_bytes = UINT64_C(64) << 20,
                               .chunk_bytes = UINT64_C(64) << 10,
                               .cache_bytes = UINT64_C(8) << 20,
                               .geometry = {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8}};
    sim_params_default(&options->params);
    sim_faults_none(&options->faults);
}

uint64_t world_seed(uint64_t given)
{
    const char *text = getenv("BANYAN_SEED");
    return text ? strtoull(text, NULL, 0) : given;
}

uint64_t world_fresh_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return world_seed(random_mix((uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec) >> 20);
}

unsigned world_rounds(unsigned given)
{
    const char *text = getenv("BANYAN_ROUNDS");
    double factor = text ? strtod(text, NULL) : 1.0;
    double rounds = given * factor;
    return rounds < 1 ? 1 : (unsigned)rounds;
}

static void setting_fail(void *context, int code, const char *text)
{
    world_fail(context, code, "%s", text);
}

static bool setting_lossy(void *context)
{
    const struct world *world = context;
    return world_lossy(world) && !world->mended;
}

int world_fail(struct world *world, int code, const char *format, ...)
{
    __atomic_store_n(&world->setting.failed, code, __ATOMIC_RELAXED); /* orders nothing */
    /* Relaxed is enough: whoever wins writes the text, and it is read after all tasks have been joined. */
    int nothing = 0;
    if (!__atomic_compare_exchange_n(&world->error.code, &nothing, code, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->error.text, sizeof world->error.text, format, arguments);
    va_end(arguments);
    return code;
}

/* ---- building ------------------------------------------------------------------------------------ */

static int memory_build(struct world *world)
{
    const struct world_options *options = &world->options;
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        struct memory_options one = {.node = (uint16_t)i,
                                     .pool_bytes = options->pool_bytes,
                                     .chunk_bytes = options->chunk_bytes,
                                     .lock_bytes = options->lock_bytes,
                                     .lock_width = options->lock_width};
        int status = options->simulated ? 0 : served_prepare(served_way(), &one, &world->error);
        if (!status)
            status = memory_node_create(&world->memory[i], &one, &world->error);
        if (status)
            return status;
    }
    return 0;
}

static int fabrics_build_local(struct world *world)
{
    const struct fabric_target *targets[WORLD_MEMORY_MAX];
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        targets[i] = memory_node_target(world->memory[i]);
    for (unsigned i = 0; i < world->options.compute_nodes; i++) {
        world->computes[i].fabric = fabric_local_create(targets, (uint16_t)world->options.memory_nodes,
                                                        (uint16_t)(i + 1), &world->error);
        if (!world->computes[i].fabric)
            return world->error.code;
    }
    return 0;
}

/* As $BANYAN_FABRIC has it. */
static int fabrics_build_real(struct world *world)
{
    enum served_way way = served_way();
    if (way == SERVED_LOCAL)
        return fabrics_build_local(world);
    int status = served_start(&world->served, way, world->memory, world->options.memory_nodes, &world->error);
    for (unsigned i = 0; i < world->options.compute_nodes && !status; i++)
        status = served_open(world->served, &world->computes[i].fabric, &world->error);
    return status;
}

static void after_loss(void *argument, int compute, int memory)
{
    struct world *world = argument;
    memory_node_release_locks(world->memory[memory],
                              world->computes[compute].fabric->capabilities.compute_id);
}

static int fabrics_build_simulated(struct world *world)
{
    const struct world_options *options = &world->options;
    uint64_t luck = options->dice ? random_mix(options->dice) : 0;
    world->sim = sim_create(&options->params, &options->faults, options->seed ^ luck, &world->error);
    if (!world->sim)
        return world->error.code;
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        int status = sim_add_memory(world->sim, memory_node_target(world->memory[i]), &world->error);
        if (status < 0)
            return status;
    }
    for (unsigned i = 0; i < options->compute_nodes; i++) {
        int index = sim_add_compute(world->sim, &world->error);
        if (index < 0)
            return index;
        world->computes[i].fabric = sim_fabric(world->sim, index);
    }
    return 0;
}

static void switches_draw(const struct world *world, struct tree_switches *switches)
{
    struct random random;
    random_seed(&random, world->options.seed ^ UINT64_C(0x5717c4e5));
    switches->combine = (int)random_below(&random, 3);
    switches->lock_region = (int)random_below(&random, 2);
    switches->local_locks = random_chance(&random, 0.7);
    switches->handover = (uint32_t)random_below(&random, 6);
    switches->snapshot = random_chance(&random, 0.6);
    switches->write_unit = (int)random_below(&random, 2);
    switches->read_unit = (int)random_below(&random, 2);
}

static int switches_of(struct world *world, struct tree_switches *switches)
{
    if (world->options.switches) {
        *switches = *world->options.switches;
        return 0;
    }
    int status = tree_switches_preset(switches, world->options.preset ? world->options.preset : "banyan",
                                      &world->error);
    if (status)
        return status;
    switches->cache_bytes = world->options.cache_bytes;
    if (world->options.random_switches)
        switches_draw(world, switches);
    return 0;
}

static int compute_build(struct world *world, struct world_compute *compute)
{
    struct tree_switches switches;
    int status = switches_of(world, &switches);
    if (status)
        return status;
    if (world->options.unlock_by_atomic)
        compute->fabric->capabilities.release_by_write = false;
    if (world->options.atomic_write)
        compute->fabric->capabilities.atomic_write = world->options.atomic_write;
    compute->workers = allocate(world->options.threads, sizeof(struct tree_worker *));
    status = tree_compute_create(&compute->compute, compute->fabric, &switches, &world->error);
    for (unsigned thread = 0; thread < world->options.threads && !status; thread++)
        status = tree_worker_create(&compute->workers[thread], compute->compute, &world->error);
    return status;
}

static int computes_build(struct world *world)
{
    int status = 0;
    for (unsigned i = 0; i < world->options.compute_nodes && !status; i++)
        status = compute_build(world, &world->computes[i]);
    return status;
}

static unsigned per_compute(const struct world *world)
{
    return world->options.threads * world->options.fibers;
}

static int task_build(struct world *world, unsigned number)
{
    const struct world_options *options = &world->options;
    struct world_task *task = &world->tasks[number];
    task->world = world;
    task->number = number;
    task->compute = number / per_compute(world);
    task->thread = number / options->fibers % options->threads;
    task->fiber = number % options->fibers;
    random_seed(&task->random, random_mix(options->seed) + number);
    history_log_init(&task->log, &world->history, number);
    driver_init(&task->driver, &world->setting, options->records ? &subject_store : &subject_tree, task,
                &task->log, random_mix(options->seed + 1) + number);
    return tree_session_create(&task->session, world->computes[task->compute].workers[task->thread],
                               &world->error);
}

static int tasks_build(struct world *world)
{
    const struct world_options *options = &world->options;
    world->compute_count = options->compute_nodes;
    world->first_count = options->compute_nodes * per_compute(world);
    world->tasks =
        allocate((options->compute_nodes + options->restarts) * per_compute(world), sizeof *world->tasks);
    int status = 0;
    for (; world->task_count < world->first_count && !status; world->task_count++)
        status = task_build(world, world->task_count);
    return status;
}

/* A session's failure becomes the world's. */
static int session_status(struct world_task *task, int status, const char *what)
{
    if (status)
        world_fail(task->world, status, "%s: %s", what, tree_session_error(task->session)->text);
    return status;
}

static void format_pool(struct world_task *task)
{
    struct world *world = task->world;
    if (session_status(task, tree_format(task->session), "format") || world->options.empty)
        return;
    session_status(task,
                   tree_create(task->session, "test", &world->options.geometry, &world->computes[0].tree),
                   "create");
    if (world->computes[0].tree)
        world->options.geometry = *tree_geometry(world->computes[0].tree);
}

static void open_index(struct world_task *task)
{
    session_status(task, tree_open(task->session, "test", &task->world->computes[task->compute].tree),
                   "open");
}

static uint64_t given_clock(void *context)
{
    struct world *world = context;
    return atomic_load_relaxed(&world->now_ms); /* a number; it orders nothing */
}

/* The index is open: every task of the compute node gets at it. */
static int tasks_equip(struct world *world, unsigned number)
{
    struct world_compute *compute = &world->computes[number];
    struct tree *tree = compute->tree;
    int status = 0;
    if (world->options.records) {
        status = store_wrap(&compute->store, compute->tree, &world->error);
        if (status)
            return status;
        compute->tree = NULL; /* store_close closes it */
        store_set_clock(compute->store, given_clock, world);
    }
    for (unsigned i = number * per_compute(world); i < (number + 1) * per_compute(world) && !status; i++) {
        world->tasks[i].tree = tree;
        if (compute->store)
            status = store_session_create(&world->tasks[i].store_session, compute->store,
                                          world->tasks[i].session, &world->error);
        if (compute->store && !status)
            store_session_seed(world->tasks[i].store_session,
                               random_mix(world->options.seed ^ random_mix(UINT64_C(0x57a3b) + i)));
    }
    return status;
}

static void shape_set(struct world *world)
{
    const struct format_geometry *geometry = &world->options.geometry;
    world->setting.shape = (struct driver_shape){.fixed_keys = geometry->key_kind == FORMAT_KEY_FIXED,
                                                 .long_keys = world->options.long_keys,
                                                 .key_bytes = geometry->key_bytes,
                                                 .value_bytes = geometry->value_bytes,
                                                 .value_variable = geometry->value_variable,
                                                 .records = world->options.records};
}

static int index_build(struct world *world)
{
    int status = world_run_one(world, 0, format_pool);
    shape_set(world);
    for (unsigned i = 1; i < world->options.compute_nodes && !status && !world->options.empty; i++)
        status = world_run_one(world, i * per_compute(world), open_index);
    for (unsigned i = 0; i < world->options.compute_nodes && !status && !world->options.empty; i++)
        status = tasks_equip(world, i);
    return status;
}

int world_create(struct world *world, const struct world_options *options)
{
    *world = (struct world){.options = *options};
    struct world_options *o = &world->options;
    o->memory_nodes = o->memory_nodes ? o->memory_nodes : 1;
    o->compute_nodes = o->compute_nodes ? o->compute_nodes : 1;
    o->threads = o->threads ? o->threads : 1;
    o->fibers = o->fibers ? o->fibers : 1;
    o->pool_bytes = o->pool_bytes ? o->pool_bytes : UINT64_C(64) << 20;
    o->chunk_bytes = o->chunk_bytes ? o->chunk_bytes : UINT64_C(64) << 10;
    o->cache_bytes = o->cache_bytes ? o->cache_bytes : UINT64_C(8) << 20;
    if (o->memory_nodes > WORLD_MEMORY_MAX || o->compute_nodes + o->restarts > WORLD_COMPUTE_MAX)
        return world_fail(world, BANYAN_EINVAL, "a world has at most %u memory and %u compute nodes",
                          WORLD_MEMORY_MAX, WORLD_COMPUTE_MAX);
    log_set_level(LOG_WARNING);
    history_init(&world->history);
    world->now_ms = 1000;
    world->setting = (struct driver_setting){.history = &world->history,
                                             .accept_full = o->accept_full,
                                             .accept_refusals = o->accept_refusals,
                                             .pause_ns = 2000,
                                             .fail = setting_fail,
                                             .lossy = setting_lossy,
                                             .context = world};
    shape_set(world);
    int status = memory_build(world);
    if (!status)
        status = o->simulated ? fabrics_build_simulated(world) : fabrics_build_real(world);
    if (!status)
        status = computes_build(world);
    if (!status)
        status = tasks_build(world);
    return status ? status : index_build(world);
}

/* ---- tearing down -------------------------------------------------------------------------------- */

static void return_nodes(struct world_task *task)
{
    struct world_compute *compute = &task->world->computes[task->compute];
    for (unsigned thread = 0; thread < task->world->options.threads; thread++) {
        tree_worker_destroy(compute->workers[thread]);
        compute->workers[thread] = NULL;
    }
}

static void workers_destroy(struct world *world)
{
    for (unsigned i = 0; i < world->compute_count; i++) {
        struct world_compute *compute = &world->computes[i];
        if (!compute->workers)
            continue;
        bool complete = world->tasks && !compute->dead && !world->error.code;
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            complete = complete && compute->workers[thread];
        if (complete)
            world_run_one(world, i * per_compute(world), return_nodes);
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            if (compute->workers[thread])
                tree_worker_abandon(compute->workers[thread]);
        free(compute->workers);
        compute->workers = NULL;
    }
}

static void task_destroy(struct world_task *task)
{
    store_session_destroy(task->store_session);
    task->store_session = NULL;
    if (task->session)
        tree_session_destroy(task->session);
    task->session = NULL;
}

void world_destroy(struct world *world)
{
    world->compute_count = world->compute_count ? world->compute_count : world->options.compute_nodes;
    world->compute_count =
        world->compute_count < WORLD_COMPUTE_MAX ? world->compute_count : WORLD_COMPUTE_MAX;
    for (unsigned i = 0; i < world->task_count; i++)
        task_destroy(&world->tasks[i]);
    for (unsigned i = 0; i < world->compute_count; i++) {
        store_close(world->computes[i].store);
        if (world->computes[i].tree)
            tree_close(world->computes[i].tree);
    }
    workers_destroy(world);
    for (unsigned i = 0; i < world->compute_count; i++) {
        if (world->computes[i].compute)
            tree_compute_destroy(world->computes[i].compute);
        if (world->computes[i].fabric && !world->options.simulated)
            fabric_close(world->computes[i].fabric);
    }
    if (world->sim)
        sim_destroy(world->sim);
    served_stop(world->served);
    for (unsigned i = 0; i < WORLD_MEMORY_MAX; i++)
        if (world->memory[i])
            memory_node_destroy(world->memory[i]);
    for (unsigned i = 0; i < world->task_count; i++) {
        history_log_free(&world->tasks[i].log);
        driver_free(&world->tasks[i].driver);
    }
    for (struct world_plan *plan = world->plans, *next; plan; plan = next) {
        next = plan->next;
        free(plan);
    }
    free(world->tasks);
    *world = (struct world){0};
}

/* ---- running ------------------------------------------------------------------------------------- */

static void task_main(void *argument)
{
    struct world_task *task = argument;
    task->function(task);
    task->returned = true;
}

struct thread_run {
    struct world_task *first;
    unsigned count;
    int status;
};

static void thread_main(void *argument)
{
    struct thread_run *run = argument;
    if (run->count == 1) { /* a plain thread, as a user's own: the other way to run index code */
        task_main(run->first);
        return;
    }
    struct worker *worker = worker_create();
    run->status = worker ? 0 : BANYAN_ENOMEM;
    for (unsigned i = 0; i < run->count && !run->status; i++)
        run->status = worker_spawn(worker, task_main, run->first + i);
    if (worker) {
        worker_run(worker);
        worker_destroy(worker);
    }
}

static int run_local(struct world *world)
{
    unsigned fibers = world->options.fibers, count = world->task_count / fibers, started = 0;
    struct thread_run *runs = allocate(count, sizeof *runs);
    struct thread **threads = allocate(count, sizeof(struct thread *));
    int status = 0;
    for (; started < count && !status; started++) {
        runs[started] = (struct thread_run){.first = &world->tasks[started * fibers], .count = fibers};
        status = thread_start(&threads[started], thread_main, &runs[started], &world->error);
        if (status)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        thread_join(threads[i]);
        status = status ? status : runs[i].status;
    }
    free(threads);
    free(runs);
    return status;
}

static int spawn(struct world *world, unsigned number)
{
    struct world_task *task = &world->tasks[number];
    return sim_spawn(world->sim, (int)task->compute, task->thread, task_main, task, &world->error);
}

static int stuck_fail(struct world *world, unsigned stuck, unsigned first)
{
    char names[120] = "";
    for (unsigned i = first, used = 0; i < world->task_count && used < sizeof names - 8; i++)
        if (!world->tasks[i].returned && !world->computes[world->tasks[i].compute].dead)
            used += (unsigned)snprintf(names + used, sizeof names - used, " %u", i);
    return world_fail(world, BANYAN_ETIMEOUT, "%u tasks %s:%s", stuck,
                      sim_exhausted(world->sim) ? "used up the run's events"
                      : world->options.until_ns && sim_now(world->sim) >= world->options.until_ns
                          ? "used up the run's time"
                          : "wait for ever",
                      names);
}

static int run_simulated(struct world *world, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        if (world->computes[world->tasks[i].compute].dead)
            continue;
        int status = spawn(world, i);
        if (status)
            return status;
    }
    sim_limit_events(world->sim, world->options.events_max);
    unsigned stuck = sim_run(world->sim, world->options.until_ns ? world->options.until_ns : UINT64_MAX);
    for (unsigned i = 0; i < world->compute_count; i++)
        if (!sim_compute_alive(world->sim, (int)i))
            world->computes[i].dead = true;
    return stuck == 0 ? 0 : stuck_fail(world, stuck, first);
}

static int run(struct world *world, unsigned first, unsigned count, void (*function)(struct world_task *task))
{
    world->function = count > 1 ? function : NULL;
    for (unsigned i = first; i < first + count; i++) {
        world->tasks[i].function = function;
        world->tasks[i].returned = false;
    }
    int status = 0;
    if (world->options.simulated)
        status = run_simulated(world, first, count);
    else if (count == 1)
        task_main(&world->tasks[first]);
    else
        status = run_local(world);
    world->function = NULL;
    if (!status && count == 1 && !world->tasks[first].returned)
        return world_fail(world, BANYAN_EFENCED, "task %u died before it had done its work", first);
    return status ? status : world->error.code;
}

int world_run(struct world *world, void (*function)(struct world_task *task))
{
    return run(world, 0, world->task_count, function);
}

int world_run_one(struct world *world, unsigned task, void (*function)(struct world_task *task))
{
    return run(world, task, 1, function);
}

static struct world_plan *plan_make(struct world *world, unsigned compute, uint64_t lease_ns)
{
    struct world_plan *plan = allocate(1, sizeof *plan);
    *plan =
        (struct world_plan){.next = world->plans, .world = world, .compute = compute, .lease_ns = lease_ns};
    world->plans = plan;
    return plan;
}

static void count_marked(void *context, gaddr block, uint32_t block_bytes)
{
    struct world *world = context;
    const uint8_t *bytes = memory_node_target(world->memory[gaddr_node(block)])->pool + gaddr_offset(block);
    if (block_bytes == world->options.geometry.leaf_bytes && bytes[10] == 0 &&
        bytes[11] == 2) /* level and state, as layout.h has them */
        world->marked_at_death++;
}

static uint16_t compute_id(const struct world *world, unsigned compute)
{
    return world->computes[compute].fabric->capabilities.compute_id;
}

static void after_fencing(void *argument)
{
    const struct world_plan *death = argument;
    struct world *world = death->world;
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_each_used(world->memory[i], count_marked, world);
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_release_locks(world->memory[i], compute_id(world, death->compute));
    world->computes[death->compute].dead = true;
}

static void die(void *argument)
{
    const struct world_plan *death = argument;
    if (sim_compute_alive(death->world->sim, (int)death->compute))
        sim_kill_compute(death->world->sim, (int)death->compute, death->lease_ns, after_fencing, argument);
}

int world_kill_at(struct world *world, unsigned compute, uint64_t delay_ns, uint64_t lease_ns)
{
    struct world_plan *death = plan_make(world, compute, lease_ns);
    return sim_at(world->sim, sim_now(world->sim) + delay_ns, die, death);
}

void world_kill_at_effect(struct world *world, unsigned compute, uint64_t effects, uint64_t lease_ns)
{
    struct world_plan *death = plan_make(world, compute, lease_ns);
    sim_kill_compute_at(world->sim, (int)compute, effects, lease_ns, after_fencing, death);
}

/* ---- another in a dead one's place ---------------------------------------------------------------- */

/* The first task of a new compute node opens the index for all of them, then joins the run. */
static void join_run(struct world_task *task)
{
    struct world *world = task->world;
    struct world_compute *compute = &world->computes[task->compute];
    int status = BANYAN_ENET;
    while (status == BANYAN_ENET && !driver_stopped(&task->driver)) {
        status = tree_open(task->session, "test", &compute->tree);
        if (status == BANYAN_ENET && world_lossy(world))
            task_sleep(world->setting.pause_ns);
        else if (session_status(task, status, "open"))
            return;
    }
    if (status || tasks_equip(world, task->compute) || !world->function)
        return;
    for (unsigned i = 1; i < per_compute(world); i++) {
        world->tasks[task->number + i].function = world->function;
        world->tasks[task->number + i].returned = false;
        if (spawn(world, task->number + i))
            world_fail(world, BANYAN_ENOMEM, "no memory for a task");
    }
    world->function(task);
}

static int restart(struct world *world, unsigned dead)
{
    unsigned number = world->compute_count;
    if (number == WORLD_COMPUTE_MAX || number == world->options.compute_nodes + world->options.restarts)
        return 0; /* as many as were asked for */
    int index = sim_restart_compute(world->sim, (int)dead, &world->error);
    if (index < 0)
        return index;
    struct world_compute *compute = &world->computes[number];
    world->computes[dead].replaced = true;
    compute->fabric = sim_fabric(world->sim, index);
    world->compute_count++;
    int status = compute_build(world, compute);
    for (unsigned i = 0; i < per_compute(world) && !status; i++) {
        status = task_build(world, world->task_count);
        world->tasks[world->task_count++].returned = true; /* until it is started */
    }
    if (status)
        return status;
    world->tasks[number * per_compute(world)].function = join_run;
    world->tasks[number * per_compute(world)].returned = false;
    return spawn(world, number * per_compute(world));
}

/* Who is to be replaced may die later than planned, or never: then nobody waits for ever. */
#define RESTART_WAITS   200u
#define RESTART_WAIT_NS 20000u

static void restart_now(void *argument)
{
    struct world_plan *again = argument;
    struct world *world = again->world;
    bool alive = sim_compute_alive(world->sim, (int)again->compute);
    bool peace = world->setting.calm_ns || !world->function;
    if (world->computes[again->compute].replaced || driver_stopped(&world->tasks[0].driver) ||
        (alive && (peace || again->waits == RESTART_WAITS)))
        return;
    if (!world->computes[again->compute].dead) { /* its death is yet to come, or it is not fenced yet */
        again->waits += alive;
        if (sim_at(world->sim, sim_now(world->sim) + RESTART_WAIT_NS, restart_now, again))
            world_fail(world, BANYAN_ENOMEM, "no memory for an event");
        return;
    }
    /* The last place is kept for world_revive. */
    bool room = world->compute_count + 1 < world->options.compute_nodes + world->options.restarts;
    int status = room ? restart(world, again->compute) : 0;
    if (status)
        world_fail(world, status, "a compute node cannot be replaced: %s", error_name(status));
}

int world_restart_at(struct world *world, unsigned compute, uint64_t delay_ns)
{
    struct world_plan *again = plan_make(world, compute, 0);
    return sim_at(world->sim, sim_now(world->sim) + delay_ns, restart_now, again);
}

static bool any_dead(const struct world *world)
{
    for (unsigned i = 0; i < world->compute_count; i++)
        if (world->computes[i].dead)
            return true;
    return false;
}

/* Lives, and has opened the index. */
static bool is_survivor(const struct world *world, unsigned compute)
{
    return !world->computes[compute].dead && world->tasks[compute * per_compute(world)].tree;
}

unsigned world_survivor(const struct world *world)
{
    unsigned survivor = 0;
    while (survivor + 1 < world->compute_count && !is_survivor(world, survivor))
        survivor++;
    return survivor * per_compute(world);
}

int world_revive(struct world *world)
{
    if (is_survivor(world, world_survivor(world) / per_compute(world)))
        return 0;
    int status = restart(world, world->compute_count - 1);
    if (status)
        return world_fail(world, status, "nobody lives, and none can be replaced: %s", error_name(status));
    unsigned stuck = sim_run(world->sim, UINT64_MAX);
    if (stuck)
        return stuck_fail(world, stuck, 0);
    return is_survivor(world, world_survivor(world) / per_compute(world))
               ? world->error.code
               : world_fail(world, BANYAN_EBUSY, "nobody lives, and no more can be replaced");
}

/* ---- faults stop ---------------------------------------------------------------------------------- */

void world_calm(struct world *world)
{
    struct sim_faults none;
    struct error error;
    sim_faults_none(&none);
    sim_set_faults(world->sim, &none, &error);
    /* Deaths that have not come yet do not come: who reads all keys at the end has to live. */
    for (unsigned i = 0; i < world->compute_count; i++)
        sim_kill_compute_at(world->sim, (int)i, 0, 0, NULL, NULL);
    world->setting.patience_ns = world->options.patience_ns;
    world->setting.calm_ns = sim_now(world->sim);
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_refuse(world->memory[i], 0);
}

static bool all_zero(const uint8_t *bytes, uint64_t count, uint64_t *at)
{
    for (*at = 0; *at < count; ++*at)
        if (bytes[*at])
            return false;
    return true;
}

int world_check_locks(struct world *world)
{
    for (unsigned i = 0; i < world->options.memory_nodes; i++) {
        const struct fabric_target *target = memory_node_target(world->memory[i]);
        uint64_t at;
        char text[GADDR_TEXT_BYTES];
        gaddr first = gaddr_make((uint16_t)i, GADDR_LOCK_REGION);
        bool free = all_zero(target->locks, target->lock_bytes, &at);
        if (free) {
            first = gaddr_make((uint16_t)i, MEMORY_LOCK_TABLE_OFFSET);
            free = all_zero(target->pool + MEMORY_LOCK_TABLE_OFFSET, target->lock_bytes, &at);
        }
        if (!free)
            return world_fail(world, BANYAN_ECORRUPT, "the lock %s is held though nobody is at work",
                              gaddr_format(first + at, text));
    }
    return 0;
}

void world_met(const struct world *world, struct world_met *met)
{
    *met = (struct world_met){0};
    for (unsigned i = 0; i < world->task_count; i++) {
        const struct driver *driver = &world->tasks[i].driver;
        met->unreachable += driver->unreachable;
        met->unknown += driver->unknown;
        met->refused += driver->refused;
        met->longest_ns = driver->longest_ns > met->longest_ns ? driver->longest_ns : met->longest_ns;
    }
}

void world_begin_losses(struct world *world)
{
    world->mended = false;
    sim_on_loss(world->sim, after_loss, world);
}

static void wait_long(struct world_task *task)
{
    task_sleep(2 * (uint64_t)task->world->options.faults.lose_ns + 1000);
}

int world_end_losses(struct world *world)
{
    sim_on_loss(world->sim, NULL, NULL);
    int status = world_run(world, wait_long);
    world->mended = true;
    return status;
}

/* ---- accounting ---------------------------------------------------------------------------------- */

enum owner { OWNER_TREE, OWNER_WORKER };

struct piece {
    gaddr address;
    uint64_t bytes;
    enum owner owner;
};

struct pieces {
    struct piece *items;
    size_t count, capacity;
};

struct account {
    struct world *world;
    struct store_check_report report; /* of the index alone, without records */
    struct pieces owned, used;        /* by the tree and the workers; what the memory nodes have handed out */
};

static void piece_add(struct pieces *pieces, struct piece piece)
{
    if (pieces->count == pieces->capacity) {
        pieces->capacity = pieces->capacity ? pieces->capacity * 2 : 256;
        pieces->items = realloc(pieces->items, pieces->capacity * sizeof *pieces->items);
        if (!pieces->items)
            abort();
    }
    pieces->items[pieces->count++] = piece;
}

static void visit_in_use(void *context, gaddr node, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->owned, (struct piece){node, bytes, OWNER_TREE});
}

static void visit_held(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->owned, (struct piece){block, bytes, OWNER_WORKER});
}

static void visit_used(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->used, (struct piece){.address = block, .bytes = bytes});
}

static int piece_order(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

static const char *owner_name(enum owner owner)
{
    static const char *const names[] = {"in use by the index", "held back by a worker"};
    return names[owner];
}

static int missing(struct account *account, const struct piece *piece)
{
    struct world *world = account->world;
    char text[GADDR_TEXT_BYTES];
    world->lost_bytes += piece->bytes;
    /* What the dead had taken and not linked; what was given or taken by a call whose reply was lost, or
     * named by an unknown write. */
    if (any_dead(world) || world_lossy(world))
        return 0;
    return world_fail(world, BANYAN_ECORRUPT,
                      "the block of %" PRIu64 " bytes at %s is handed out, but nobody's", piece->bytes,
                      gaddr_format(piece->address, text));
}

/* Both sorted: what somebody owns must be what is handed out. */
static int account_compare(struct account *account)
{
    char text[GADDR_TEXT_BYTES];
    const struct pieces *owned = &account->owned, *used = &account->used;
    size_t at = 0;
    for (size_t i = 0; i < owned->count; i++) {
        const struct piece *piece = &owned->items[i];
        if (i && piece->address == owned->items[i - 1].address)
            return world_fail(account->world, BANYAN_ECORRUPT, "node %s is %s and also %s",
                              gaddr_format(piece->address, text), owner_name(piece->owner),
                              owner_name(owned->items[i - 1].owner));
        for (; at < used->count && used->items[at].address < piece->address; at++) {
            int status = missing(account, &used->items[at]);
            if (status)
                return status;
        }
        if (at == used->count || used->items[at].address != piece->address ||
            used->items[at].bytes != piece->bytes)
            return world_fail(account->world, BANYAN_ECORRUPT, "node %s (%s) is not handed out",
                              gaddr_format(piece->address, text), owner_name(piece->owner));
        at++;
    }
    int status = 0;
    for (; at < used->count && !status; at++)
        status = missing(account, &used->items[at]);
    return status;
}

static void check_index(struct world_task *task)
{
    struct account *account = task->world->context;
    int status = task->store_session
                     ? store_check(task->store_session, &account->report, visit_in_use, account)
                     : tree_check(task->session, task->tree, &account->report.tree, visit_in_use, account);
    session_status(task, status, "check");
}

static void pieces_sort(struct pieces *pieces)
{
    if (pieces->count)
        qsort(pieces->items, pieces->count, sizeof *pieces->items, piece_order);
}

int world_check_store(struct world *world, struct store_check_report *report)
{
    struct account account = {.world = world};
    void *context = world->context;
    world->lost_bytes = 0;
    world->context = &account;
    int status = world_run_one(world, world_survivor(world), check_index);
    world->context = context;
    for (unsigned i = 0; i < world->options.memory_nodes && !status; i++)
        memory_node_each_used(world->memory[i], visit_used, &account);
    for (unsigned i = 0; i < world->compute_count && !status; i++)
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            tree_worker_each_free(world->computes[i].workers[thread], visit_held, &account);
    pieces_sort(&account.owned);
    pieces_sort(&account.used);
    if (!status)
        status = account_compare(&account);
    if (report)
        *report = account.report;
    free(account.owned.items);
    free(account.used.items);
    return status;
}

int world_check(struct world *world, struct tree_check_report *report)
{
    struct store_check_report all = {0};
    int status = world_check_store(world, &all);
    if (report)
        *report = all.tree;
    return status;
}

int world_linearize(struct world *world)
{
    struct history_log *logs = allocate(world->task_count, sizeof *logs);
    for (unsigned i = 0; i < world->task_count; i++)
        logs[i] = world->tasks[i].log;
    size_t total;
    struct history_op *all = history_merge(logs, world->task_count, &total);
    char text[4000];
    const struct history_op *culprit;
    enum linearize_verdict verdict = linearize_all(all, total, &culprit, text, sizeof text);
    if (verdict != LINEARIZE_ACCEPTED)
        fprintf(stderr, "the history is not linearizable (verdict %d): %s\n", (int)verdict, text);
    if (culprit) {
        driver_blame(&world->tasks[0].driver, culprit->key);
        world->culprit = *culprit;
    }
    free(all);
    free(logs);
    return verdict == LINEARIZE_ACCEPTED
               ? 0
               : world_fail(world, BANYAN_ECONFLICT, "history, verdict %d: %.200s", (int)verdict, text);
}

uint64_t world_pool_used(struct world *world)
{
    uint64_t used = 0;
    for (unsigned i = 0; i < world->options.memory_nodes; i++) {
        struct memory_status_reply status;
        memory_node_status(world->memory[i], &status);
        used += status.chunks_used * status.chunk_bytes;
    }
    return used;
}

void world_stats(const struct world *world, struct tree_stats *stats)
{
    *stats = (struct tree_stats){0};
    for (unsigned i = 0; i < world->task_count; i++) {
        const struct tree_stats *one = tree_session_stats(world->tasks[i].session);
        fabric_cost_add(&stats->cost, &one->cost);
        stats->operations += one->operations;
        stats->retries += one->retries;
        stats->cache_hits += one->cache_hits;
        stats->cache_misses += one->cache_misses;
        stats->splits += one->splits;
        stats->unlinks += one->unlinks;
        stats->handovers += one->handovers;
        stats->snapshot_handovers += one->snapshot_handovers;
    }
}

/* ---- recorded operations ------------------------------------------------------------------------- */

size_t world_key(const struct world *world, uint64_t number, uint8_t key[FORMAT_KEY_MAX])
{
    return driver_key(&world->setting.shape, number, key);
}

uint64_t world_key_number(const struct world *world, const uint8_t *key, size_t length)
{
    return driver_key_number(&world->setting.shape, key, length);
}

size_t world_value(const struct world *world, uint64_t number, uint8_t *value)
{
    return driver_value(&world->setting.shape, number, value);
}

uint64_t world_value_number(const struct world *world, const uint8_t *value, size_t length)
{
    return driver_value_number(&world->setting.shape, value, length);
}

int world_operate(struct world_task *task, enum history_kind kind, uint64_t number, uint64_t expected)
{
    return driver_operate(&task->driver, kind, number, expected);
}
