/* runner_sim.c - see runner_sim.h. One simulated compute node per compute node, one fiber of the world per
 * client. */
#include "bench/runner_sim.h"

#include <stdlib.h>
#include "bench/fail_sim.h"
#include "bench/log_sim.h"
#include "bench/map_sim.h"
#include "bench/ownership.h"
#include "bench/sim_run.h"

/* ---- setting up ---- */

static int build_world(struct sim_run *run, struct bench_pool *pool, const struct tree_switches *switches,
                       struct error *error)
{
    const struct bench_config *config = run->config;
    run->sim = sim_create(&config->sim, &config->faults, config->seed, error);
    if (!run->sim)
        return error->code ? error->code : BANYAN_ENOMEM;
    for (unsigned i = 0; i < pool->count; i++) {
        int status = sim_add_memory(run->sim, pool->targets[i], error);
        if (status < 0)
            return status;
    }
    for (unsigned i = 0; i < config->compute_nodes; i++) {
        int compute = sim_add_compute(run->sim, error);
        if (compute < 0)
            return compute;
        int status =
            tree_compute_create(&run->computes[i].compute, sim_fabric(run->sim, compute), switches, error);
        if (status)
            return status;
        run->owners[i] = fabric_self(sim_fabric(run->sim, compute));
        if (config->ownership == BENCH_OWNED)
            bench_part_init(&run->computes[i].part, config, run->source, i);
    }
    return 0;
}

static int build_clients(struct sim_run *run, struct error *error)
{
    const struct bench_config *config = run->config;
    for (unsigned i = 0; i < run->thread_count; i++) {
        struct sim_thread *thread = &run->threads[i];
        *thread =
            (struct sim_thread){.run = run, .compute = i / config->threads, .number = i % config->threads};
        int status = pool_worker_create(&thread->worker,
                                        tree_compute_pool(run->computes[thread->compute].compute), error);
        if (status)
            return status;
    }
    for (unsigned i = 0; i < run->client_count; i++) {
        struct sim_thread *thread = &run->threads[i / config->fibers];
        struct bench_client *client = &run->clients[i].client;
        run->clients[i].thread = thread;
        *client = (struct bench_client){.config = config, .window = &run->window, .meter = &run->meter};
        client->number = thread->number * config->fibers + i % config->fibers;
        client->of = config->threads * config->fibers;
        workload_generator_init(&client->generator, run->source, bench_client_seed(config, i));
        if (bench_routed(config))
            workload_generator_keep_to(&client->generator, &run->computes[thread->compute].part);
        int status = tree_session_create(&client->session, run->computes[thread->compute].compute,
                                         thread->worker, error);
        if (status)
            return status;
    }
    return 0;
}

/* ---- tasks in virtual time ---- */

void sim_client_judge(struct sim_client *client, int status)
{
    struct error error = {0};
    if (!status)
        return;
    const char *cause = tree_session_error(client->client.session)->text;
    error_set(&error, status, "compute node %u: %s", client->thread->compute + 1,
              *cause ? cause : error_name(status));
    bench_window_fail(&client->thread->run->window, &error);
}

static void open_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    struct sim_compute *compute = &run->computes[client->thread->compute];
    struct error error = {0};
    int status = tree_open(client->client.session, BENCH_INDEX, &compute->tree);
    sim_client_judge(client, status);
    if (!status && bench_store_open(&compute->store, run->config, compute->tree, &error))
        bench_window_fail(&run->window, &error);
}

static void border_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    if (client->thread->compute) /* one of them makes all */
        return;
    sim_client_judge(
        client, bench_borders_make(client->client.session, run->computes[0].tree, run->config, run->source));
}

static void rights_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    unsigned compute = client->thread->compute;
    const uint64_t incarnation = fabric_incarnation(sim_fabric(run->sim, (int)compute));
    sim_client_judge(client, bench_rights_take(client->client.session, run->computes[compute].tree,
                                               run->config, run->source, run->owners, compute, incarnation));
}

static void client_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_thread *thread = client->thread;
    struct sim_run *run = thread->run;
    client->client.tree = run->computes[thread->compute].tree;
    client->client.store = run->computes[thread->compute].store;
    if (run->map)
        map_sim_wait(run);
    bench_client_run(&client->client);
    run->clients_running--;
    if (run->fail)
        fail_sim_read_back(run, client);
    bench_client_close(&client->client);
    if (!--run->clients_left && run->map)
        map_sim_stop(run);
    if (!run->clients_left && run->logs)
        log_sim_stop(run);
    if (--thread->running || run->map) /* with a map the thread serves others on */
        return;
    struct pool_worker *worker = thread->worker;
    thread->worker = NULL;
    pool_worker_destroy(worker);
}

int bench_sim_run(struct sim *sim, const struct bench_window *window, const char *what, struct error *error)
{
    unsigned left = sim_run(sim, UINT64_MAX);
    if (window->failed) {
        if (error)
            *error = window->error;
        return window->error.code;
    }
    if (left)
        return error_set(error, BANYAN_EUNKNOWN, "%u tasks of the simulation never ended while %s", left,
                         what);
    return 0;
}

/* By the first client of each compute node, all of them at once. */
static int prepare(struct sim_run *run, void (*function)(void *), const char *what, struct error *error)
{
    const struct bench_config *config = run->config;
    int status = 0;
    for (unsigned i = 0; i < run->client_count && !status; i += config->threads * config->fibers)
        status =
            sim_spawn(run->sim, (int)run->clients[i].thread->compute, 0, function, &run->clients[i], error);
    return status ? status : bench_sim_run(run->sim, &run->window, what, error);
}

static void count_caches(void *context, enum bench_phase phase)
{
    struct sim_run *run = context;
    if (run->map)
        map_sim_count(run, phase);
    if (run->logs)
        log_sim_count(run, phase);
    for (unsigned i = 0; i < run->config->compute_nodes; i++)
        (phase == BENCH_DONE ? bench_cache_end : bench_cache_begin)(run->meter.result, run->computes[i].tree);
}

static int measure(struct sim_run *run, struct error *error)
{
    const struct bench_config *config = run->config;
    const bool mapped = config->ownership == BENCH_OWNED && (config->route_any || config->move);
    const bool owned = config->ownership == BENCH_OWNED && !mapped;
    int status = prepare(run, open_task, "opening the index", error);
    if (!status && mapped)
        status = map_sim_create(run, error);
    if (!status && owned)
        status = prepare(run, border_task, "making borders", error);
    if (!status && config->log_copies)
        status = log_sim_create(run, error);
    if (!status && config->fail)
        status = fail_sim_create(run, error);
    if (!status && mapped)
        status = map_sim_spawn(run, error);
    if (!status && owned)
        status = prepare(run, rights_task, "taking rights", error);
    if (!status && run->logs)
        status = log_sim_spawn(run, error);
    if (status)
        return status;
    for (unsigned i = 0; i < run->client_count; i++) {
        struct sim_thread *thread = run->clients[i].thread;
        status =
            sim_spawn(run->sim, (int)thread->compute, thread->number, client_task, &run->clients[i], error);
        if (status)
            return status;
        thread->running++;
        run->clients_running++;
        run->clients_left++;
    }
    return bench_sim_run(run->sim, &run->window, "measuring", error);
}

/* Nothing runs any more; tasks that never ended hold nothing but memory. */
static void close_run(struct sim_run *run)
{
    map_sim_destroy(run);
    log_sim_destroy(run);
    fail_sim_destroy(run);
    for (unsigned i = 0; run->clients && i < run->client_count; i++)
        bench_client_close(&run->clients[i].client);
    for (unsigned i = 0; run->threads && i < run->thread_count; i++)
        if (run->threads[i].worker)
            pool_worker_abandon(run->threads[i].worker);
    for (unsigned i = 0; run->computes && i < run->config->compute_nodes; i++) {
        bench_store_close(run->computes[i].store, run->computes[i].tree);
        if (run->computes[i].compute)
            tree_compute_destroy(run->computes[i].compute);
    }
    if (run->sim)
        sim_destroy(run->sim);
    free(run->clients);
    free(run->threads);
    free(run->computes);
    free(run->owners);
}

void bench_sim_complete(struct bench_result *result, const struct bench_window *window, const struct sim *sim)
{
    bench_result_complete(result, window);
    if (sim) {
        result->trace_hash = sim_trace_hash(sim);
        result->events = sim_events(sim);
    }
}

int bench_measure_sim(struct bench_pool *pool, const struct bench_config *config,
                      const struct tree_switches *switches, struct workload_source *source,
                      struct bench_result *result, struct error *error)
{
    struct sim_run run = {.config = config, .source = source, .pool = pool};
    struct error ignored = {0};
    error = error ? error : &ignored;
    run.thread_count = config->compute_nodes * config->threads;
    run.client_count = run.thread_count * config->fibers;
    run.computes = calloc(config->compute_nodes, sizeof *run.computes);
    run.owners = calloc(config->compute_nodes, sizeof *run.owners);
    run.threads = calloc(run.thread_count, sizeof *run.threads);
    run.clients = calloc(run.client_count, sizeof *run.clients);
    run.meter = (struct bench_meter){.window = &run.window, .result = result};
    bench_window_init(&run.window, config, run.client_count, &run.lock);
    run.window.turned = count_caches;
    run.window.turned_context = &run;
    int status = 0;
    if (!run.computes || !run.owners || !run.threads || !run.clients)
        status = error_set(error, BANYAN_ENOMEM, "no memory for %u clients", run.client_count);
    if (!status)
        status = build_world(&run, pool, switches, error);
    if (!status)
        result->capabilities = *fabric_capabilities(sim_fabric(run.sim, 0));
    if (!status)
        status = build_clients(&run, error);
    uint64_t begin = task_now();
    if (!status)
        status = measure(&run, error);
    result->measure_seconds = (double)(task_now() - begin) / 1e9;
    bench_sim_complete(result, &run.window, run.sim);
    map_sim_result(&run, result);
    log_sim_result(&run, result);
    fail_sim_result(&run, result);
    close_run(&run);
    return status;
}
