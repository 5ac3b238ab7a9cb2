/* world.c - a world as a whole: made, destroyed, failed, and what its tasks did together (contract: world.h).
 */
#include "swarm/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "memory/walk_service.h"
#include "swarm/served.h"
#include "swarm/world_disks.h"
#include "swarm/world_parts.h"

void *world_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory)
        abort();
    return memory;
}

int world_fail(struct world *world, int code, const char *format, ...)
{
    __atomic_store_n(&world->setting.failed, code, __ATOMIC_RELAXED); /* orders nothing */
    /* Relaxed is enough: the winner of the exchange writes the text, and it is read after all tasks have been
     * joined. */
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

static void setting_fail(void *context, int code, const char *text)
{
    world_fail(context, code, "%s", text);
}

static bool setting_lossy(void *context)
{
    const struct world *world = context;
    return world_excused(world);
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
    world_set_shape(world);
    int status = world_build_memory(world);
    if (!status)
        status = world_build_fabrics(world);
    if (!status)
        status = world_build_computes(world);
    if (!status)
        status = world_build_tasks(world);
    return status ? status : world_build_index(world);
}

static void return_nodes(struct world_task *task)
{
    struct world_compute *compute = &task->world->computes[task->compute];
    for (unsigned thread = 0; thread < task->world->options.threads; thread++) {
        pool_worker_destroy(compute->workers[thread]);
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
            world_run_one(world, i * world_tasks_each(world), return_nodes);
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            if (compute->workers[thread])
                pool_worker_abandon(compute->workers[thread]);
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
    world_ranges_stop(world);
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
    world_disks_free(world);
    if (world->sim)
        sim_destroy(world->sim);
    served_stop(world->served);
    for (unsigned i = 0; i < WORLD_MEMORY_MAX; i++)
        memory_walks_destroy(world->walks[i]);
    for (unsigned i = 0; i < WORLD_MEMORY_MAX; i++)
        if (world->memory[i])
            memory_node_destroy(world->memory[i]);
    for (unsigned i = 0; i < world->task_count; i++) {
        history_log_free(&world->tasks[i].log);
        driver_free(&world->tasks[i].driver);
    }
    world_events_free(world);
    free(world->tasks);
    *world = (struct world){0};
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
    struct world_ranges_met ranges;
    world_ranges_met(world, &ranges);
    *stats = (struct tree_stats){.unfinished = ranges.unfinished, .merge_answered = ranges.merge_answered};
    for (unsigned i = 0; i < world->task_count; i++) {
        const struct tree_stats *one = tree_session_stats(world->tasks[i].session);
        fabric_cost_add(&stats->cost, &one->cost);
        stats->operations += one->operations;
        stats->retries += one->retries;
        stats->cache_hits += one->cache_hits;
        stats->cache_misses += one->cache_misses;
        stats->splits += one->splits;
        stats->unlinks += one->unlinks;
        stats->merges += one->merges;
        stats->moves += one->moves;
        stats->handovers += one->handovers;
        stats->snapshot_handovers += one->snapshot_handovers;
        stats->unfinished += one->unfinished;
        stats->combined += one->combined;
        stats->walks += one->walks;
        stats->walks_answered += one->walks_answered;
        stats->walks_busy += one->walks_busy;
        stats->merge_calls += one->merge_calls;
        stats->merge_answered += one->merge_answered;
        stats->merge_busy += one->merge_busy;
        stats->exchanges += one->exchanges;
        stats->exchanges_answered += one->exchanges_answered;
        stats->exchanges_busy += one->exchanges_busy;
    }
}

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
