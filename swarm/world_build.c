/* world_build.c - the parts of a world, from memory nodes up to the sessions of its tasks (contract:
 * world_parts.h). */
#include "base/atomic.h"
#include "fabric/local.h"
#include "swarm/served.h"
#include "memory/walk_service.h"
#include "swarm/world_disks.h"
#include "swarm/world_parts.h"
#include "swarm/world_saves.h"

int world_build_memory(struct world *world)
{
    const struct world_options *options = &world->options;
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        struct memory_options one = {.node = (uint16_t)i,
                                     .pool_bytes = options->pool_bytes,
                                     .chunk_bytes = options->chunk_bytes,
                                     .lock_bytes = options->lock_bytes,
                                     .lock_width = options->lock_width,
                                     .log_bytes = options->log_bytes,
                                     .unformatted = options->disk.level != WORLD_DISK_NONE};
        int status = options->simulated ? 0 : served_prepare(served_way(), &one, &world->error);
        if (!status)
            status = memory_node_create(&world->memory[i], &one, &world->error);
        if (status)
            return status;
    }
    return world_disks_build(world);
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

/* Simulated memory nodes walk, whether they are asked to or not. */
static int walks_build(struct world *world)
{
    const struct memory_walk_costs costs = {.request_ns = world->options.params.walk_ns,
                                            .node_ns = world->options.params.walk_node_ns,
                                            .entry_ns = world->options.params.merge_entry_ns,
                                            .busy_percent = world->options.walk_busy,
                                            .aged_percent = world->options.walk_aged};
    int status = 0;
    for (unsigned i = 0; i < world->options.memory_nodes && !status; i++)
        status = memory_walks_create(&world->walks[i], world->memory[i], &costs, &world->error);
    return status;
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

static int fabrics_build_simulated(struct world *world)
{
    const struct world_options *options = &world->options;
    uint64_t luck = options->dice ? random_mix(options->dice) : 0;
    world->sim = sim_create(&options->params, &options->faults, options->seed ^ luck, &world->error);
    if (!world->sim)
        return world->error.code;
    int built = walks_build(world);
    if (built)
        return built;
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        int status = sim_add_memory(world->sim, memory_node_target(world->memory[i]), &world->error);
        if (status < 0)
            return status;
        if (i + options->joins >= options->memory_nodes)
            sim_memory_await(world->sim, (int)i);
    }
    for (unsigned i = 0; i < options->compute_nodes; i++) {
        int index = sim_add_compute(world->sim, &world->error);
        if (index < 0)
            return index;
        world->computes[i].fabric = sim_fabric(world->sim, index);
    }
    return world_disks_start(world);
}

int world_build_fabrics(struct world *world)
{
    return world->options.simulated ? fabrics_build_simulated(world) : fabrics_build_real(world);
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
    switches->delegate = random_chance(&random, 0.8);
    switches->release = (int)random_below(&random, 2);
    switches->node_check = random_chance(&random, 0.3);
}

static int switches_of(struct world *world, struct tree_switches *switches)
{
    if (world->options.switches) {
        *switches = *world->options.switches;
        if (world->options.owned)
            switches->ownership = TREE_OWNERSHIP_ALL;
        return 0;
    }
    int status = tree_switches_preset(switches, world->options.preset ? world->options.preset : "banyan",
                                      &world->error);
    if (status)
        return status;
    switches->cache_bytes = world->options.cache_bytes;
    if (world->options.owned)
        switches->ownership = TREE_OWNERSHIP_ALL;
    if (world->options.cache_policy)
        switches->cache_policy = (int)world->options.cache_policy;
    if (world->options.random_switches)
        switches_draw(world, switches);
    return 0;
}

int world_build_compute(struct world *world, struct world_compute *compute)
{
    struct tree_switches switches;
    int status = switches_of(world, &switches);
    if (status)
        return status;
    /* Worlds share ranges, and fill their indexes before these have owners: the judge knows what is promised.
     */
    switches.unlogged = true;
    if (world->options.cache_policy)
        compute->fabric->capabilities.direct = false;
    if (world->options.unlock_by_atomic)
        compute->fabric->capabilities.release_by_write = false;
    if (world->options.atomic_write)
        compute->fabric->capabilities.atomic_write = world->options.atomic_write;
    compute->workers = world_allocate(world->options.threads, sizeof(struct pool_worker *));
    status = tree_compute_create(&compute->compute, compute->fabric, &switches, &world->error);
    for (unsigned thread = 0; thread < world->options.threads && !status; thread++)
        status =
            pool_worker_create(&compute->workers[thread], tree_compute_pool(compute->compute), &world->error);
    return status ? status : world_ranges_build(world, compute);
}

int world_build_computes(struct world *world)
{
    int status = 0;
    for (unsigned i = 0; i < world->options.compute_nodes && !status; i++)
        status = world_build_compute(world, &world->computes[i]);
    return status;
}

int world_build_task(struct world *world, unsigned number)
{
    const struct world_options *options = &world->options;
    struct world_task *task = &world->tasks[number];
    task->world = world;
    task->number = number;
    task->compute = number / world_tasks_each(world);
    task->thread = number / options->fibers % options->threads;
    task->fiber = number % options->fibers;
    task->returned = true; /* until it is started */
    random_seed(&task->random, random_mix(options->seed) + number);
    history_log_init(&task->log, &world->history, number);
    const struct subject_ops *subject = options->disk.level ? &subject_kept
                                        : options->records  ? &subject_store
                                                            : &subject_tree;
    driver_init(&task->driver, &world->setting, subject, task, &task->log,
                random_mix(options->seed + 1) + number);
    return tree_session_create(&task->session, world->computes[task->compute].compute,
                               world->computes[task->compute].workers[task->thread], &world->error);
}

int world_build_tasks(struct world *world)
{
    const struct world_options *options = &world->options;
    world->compute_count = options->compute_nodes;
    world->first_count = options->compute_nodes * world_tasks_each(world);
    world->tasks = world_allocate((options->compute_nodes + options->restarts) * world_tasks_each(world),
                                  sizeof *world->tasks);
    int status = 0;
    for (; world->task_count < world->first_count && !status; world->task_count++)
        status = world_build_task(world, world->task_count);
    return status;
}

/* A session's failure becomes the world's. */
int world_session_status(struct world_task *task, int status, const char *what)
{
    if (status)
        world_fail(task->world, status, "%s: %s", what, tree_session_error(task->session)->text);
    return status;
}

static void format_pool(struct world_task *task)
{
    struct world *world = task->world;
    if (world_session_status(task, tree_format(task->session), "format") || world->options.empty)
        return;
    world_session_status(
        task, tree_create(task->session, "test", &world->options.geometry, &world->computes[0].tree),
        "create");
    if (!world->computes[0].tree)
        return;
    world->options.geometry = *tree_geometry(world->computes[0].tree);
    world_session_status(task, world_ranges_attach(task), "attach");
}

static void open_index(struct world_task *task)
{
    if (!world_session_status(
            task, tree_open(task->session, "test", &task->world->computes[task->compute].tree), "open"))
        world_session_status(task, world_ranges_attach(task), "attach");
}

static uint64_t given_clock(void *context)
{
    struct world *world = context;
    return atomic_load_relaxed(&world->now_ms); /* a number; it orders nothing */
}

/* The index is open: every task of the compute node gets at it. */
int world_equip_tasks(struct world *world, unsigned number)
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
    for (unsigned i = number * world_tasks_each(world); i < (number + 1) * world_tasks_each(world) && !status;
         i++) {
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

void world_set_shape(struct world *world)
{
    const struct format_geometry *geometry = &world->options.geometry;
    world->setting.shape = (struct driver_shape){.fixed_keys = geometry->key_kind == FORMAT_KEY_FIXED,
                                                 .long_keys = world->options.long_keys,
                                                 .key_bytes = geometry->key_bytes,
                                                 .value_bytes = geometry->value_bytes,
                                                 .value_variable = geometry->value_variable,
                                                 .records = world->options.records};
}

int world_build_index(struct world *world)
{
    int status = world_run_one(world, 0, format_pool);
    world_set_shape(world);
    for (unsigned i = 1; i < world_openers(world) && !status && !world->options.empty; i++)
        status = world_run_one(world, i * world_tasks_each(world), open_index);
    for (unsigned i = 0; i < world_openers(world) && !status && !world->options.empty; i++)
        status = world_equip_tasks(world, i);
    for (unsigned i = 0; i < world->options.compute_nodes && !status && !world->options.empty; i++)
        status = world_ranges_start(world, i);
    return status;
}
