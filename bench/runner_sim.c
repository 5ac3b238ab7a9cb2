/* runner_sim.c - see runner_sim.h. One simulated compute node per compute node, one fiber of the world per
 * client. */
#include "bench/runner_sim.h"

#include <stdlib.h>
#include "bench/client.h"
#include "pool/pool.h"

struct sim_thread {
    struct sim_run *run;
    unsigned compute, number; /* number within the compute node */
    struct pool_worker *worker;
    unsigned running; /* clients that have not ended */
};

struct sim_client {
    struct bench_client client;
    struct sim_thread *thread;
};

struct sim_compute {
    struct tree_compute *compute;
    struct tree *tree;
};

struct sim_run {
    const struct bench_config *config;
    struct workload_source *source;
    struct sim *sim;
    struct bench_window window;
    struct spinlock lock;
    struct bench_meter meter; /* one OS thread runs all: one meter counts for all */
    struct sim_compute *computes;
    struct sim_thread *threads;
    struct sim_client *clients;
    unsigned thread_count, client_count;
};

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
        int status = tree_session_create(&client->session, run->computes[thread->compute].compute,
                                         thread->worker, error);
        if (status)
            return status;
    }
    return 0;
}

/* ---- tasks in virtual time ---- */

static void open_task(void *argument)
{
    struct sim_client *client = argument;
    struct tree_session *session = client->client.session;
    struct sim_run *run = client->thread->run;
    int status = tree_open(session, BENCH_INDEX, &run->computes[client->thread->compute].tree);
    if (status) {
        struct error error = {0};
        error_set(&error, status, "compute node %u: %s", client->thread->compute + 1,
                  tree_session_error(session)->text);
        bench_window_fail(&run->window, &error);
    }
}

static void client_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_thread *thread = client->thread;
    client->client.tree = thread->run->computes[thread->compute].tree;
    bench_client_run(&client->client);
    tree_session_destroy(client->client.session);
    client->client.session = NULL;
    if (--thread->running)
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

static int measure(struct sim_run *run, struct error *error)
{
    const struct bench_config *config = run->config;
    int status = 0;
    for (unsigned i = 0; i < run->client_count && !status; i += config->threads * config->fibers)
        status =
            sim_spawn(run->sim, (int)run->clients[i].thread->compute, 0, open_task, &run->clients[i], error);
    if (!status)
        status = bench_sim_run(run->sim, &run->window, "opening the index", error);
    if (status)
        return status;
    for (unsigned i = 0; i < run->client_count; i++) {
        struct sim_thread *thread = run->clients[i].thread;
        status =
            sim_spawn(run->sim, (int)thread->compute, thread->number, client_task, &run->clients[i], error);
        if (status)
            return status;
        thread->running++;
    }
    return bench_sim_run(run->sim, &run->window, "measuring", error);
}

/* Nothing runs any more; tasks that never ended hold nothing but memory. */
static void close_run(struct sim_run *run)
{
    for (unsigned i = 0; run->clients && i < run->client_count; i++)
        if (run->clients[i].client.session)
            tree_session_destroy(run->clients[i].client.session);
    for (unsigned i = 0; run->threads && i < run->thread_count; i++)
        if (run->threads[i].worker)
            pool_worker_abandon(run->threads[i].worker);
    for (unsigned i = 0; run->computes && i < run->config->compute_nodes; i++) {
        if (run->computes[i].tree)
            tree_close(run->computes[i].tree);
        if (run->computes[i].compute)
            tree_compute_destroy(run->computes[i].compute);
    }
    if (run->sim)
        sim_destroy(run->sim);
    free(run->clients);
    free(run->threads);
    free(run->computes);
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
    struct sim_run run = {.config = config, .source = source};
    struct error ignored = {0};
    error = error ? error : &ignored;
    run.thread_count = config->compute_nodes * config->threads;
    run.client_count = run.thread_count * config->fibers;
    run.computes = calloc(config->compute_nodes, sizeof *run.computes);
    run.threads = calloc(run.thread_count, sizeof *run.threads);
    run.clients = calloc(run.client_count, sizeof *run.clients);
    run.meter = (struct bench_meter){.window = &run.window, .result = result};
    bench_window_init(&run.window, config, run.client_count, &run.lock);
    int status = 0;
    if (!run.computes || !run.threads || !run.clients)
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
    close_run(&run);
    return status;
}
