/* runner_local.c - see runner_local.h. One OS thread per benchmark thread, with its fibers on a worker. */
#include "bench/runner_local.h"

#include <stdlib.h>
#include "base/thread.h"
#include "base/worker.h"
#include "bench/client.h"
#include "bench/ownership.h"
#include "pool/pool.h"

struct local_compute {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct tree *tree;
    struct store *store;       /* NULL: values stand in the index's slots */
    struct workload_part part; /* its range, where ownership divides the keys */
};

struct local_thread {
    struct local_run *run;
    struct local_compute *compute;
    struct thread *handle;
    unsigned number;
    struct pool_worker *worker;
    struct bench_client *clients; /* one per fiber */
    struct bench_meter meter;
    struct bench_result result;
};

struct local_run {
    const struct bench_config *config;
    struct bench_window window;
    struct spinlock lock;
    uint32_t gate_open; /* atomic */
    struct local_compute *computes;
    struct local_thread *threads;
    struct fabric_process *owners; /* the compute nodes' processes */
    unsigned thread_count;
    struct bench_result *result; /* of the run: its cache's numbers alone, until the threads have ended */
};

static void client_task(void *argument)
{
    bench_client_run(argument);
}

/* Runs the thread's fibers; with one alone there is nothing to schedule. */
static void run_clients(struct local_thread *thread)
{
    const struct bench_config *config = thread->run->config;
    if (config->fibers == 1) {
        bench_client_run(&thread->clients[0]);
        return;
    }
    struct error error = {0};
    struct worker *worker = worker_create();
    int status = worker ? 0 : BANYAN_ENOMEM;
    for (unsigned i = 0; i < config->fibers && !status; i++)
        status = worker_spawn(worker, client_task, &thread->clients[i]);
    if (status) {
        error_set(&error, status, "no memory for %u fibers", config->fibers);
        bench_window_fail(&thread->run->window, &error);
    }
    if (worker) {
        worker_run(worker);
        worker_destroy(worker);
    }
}

static void thread_main(void *argument)
{
    struct local_thread *thread = argument;
    if (thread->run->config->pin)
        thread_pin(thread->number);
    /* A gate and not a barrier: if a thread cannot be started, the others still get through and end. Acquire:
     * the other side of the release that opens it. */
    while (!atomic_load_acquire(&thread->run->gate_open))
        task_yield();
    if (bench_window_phase(&thread->run->window) != BENCH_DONE)
        run_clients(thread);
    for (unsigned i = 0; i < thread->run->config->fibers; i++)
        bench_client_close(&thread->clients[i]);
    pool_worker_destroy(thread->worker);
}

/* ---- setting up ---- */

static int open_compute(struct local_run *run, struct bench_pool *pool, const struct workload_source *source,
                        const struct tree_switches *switches, unsigned number, struct error *error)
{
    struct local_compute *compute = &run->computes[number];
    compute->fabric = bench_pool_fabric(pool, (uint16_t)(number + 1), error);
    if (!compute->fabric)
        return error->code ? error->code : BANYAN_ENOMEM;
    run->owners[number] = fabric_self(compute->fabric);
    if (run->config->ownership == BENCH_OWNED)
        bench_part_init(&compute->part, run->config, source, number);
    return tree_compute_create(&compute->compute, compute->fabric, switches, error);
}

static int open_thread(struct local_run *run, struct workload_source *source, unsigned number,
                       struct error *error)
{
    const struct bench_config *config = run->config;
    struct local_thread *thread = &run->threads[number];
    unsigned in_compute = number % config->threads;
    thread->run = run;
    thread->number = number;
    thread->compute = &run->computes[number / config->threads];
    thread->meter = (struct bench_meter){.window = &run->window, .result = &thread->result};
    thread->clients = calloc(config->fibers, sizeof *thread->clients);
    if (!thread->clients)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u fibers", config->fibers);
    int status = pool_worker_create(&thread->worker, tree_compute_pool(thread->compute->compute), error);
    for (unsigned i = 0; i < config->fibers && !status; i++) {
        struct bench_client *client = &thread->clients[i];
        *client = (struct bench_client){.config = config, .window = &run->window, .meter = &thread->meter};
        client->number = in_compute * config->fibers + i;
        client->of = config->threads * config->fibers;
        workload_generator_init(&client->generator, source,
                                bench_client_seed(config, number * config->fibers + i));
        if (bench_routed(config))
            workload_generator_keep_to(&client->generator, &thread->compute->part);
        status = tree_session_create(&client->session, thread->compute->compute, thread->worker, error);
        if (!status && !thread->compute->tree &&
            (status = tree_open(client->session, BENCH_INDEX, &thread->compute->tree)))
            error_set(error, status, "%s", tree_session_error(client->session)->text);
        if (!status && !thread->compute->store)
            status = bench_store_open(&thread->compute->store, config, thread->compute->tree, error);
        client->tree = thread->compute->tree;
        client->store = thread->compute->store;
    }
    return status;
}

/* Of one compute node, by its first client. */
static int take_rights(struct local_run *run, const struct workload_source *source, unsigned number,
                       struct error *error)
{
    const struct bench_client *client = &run->threads[number * run->config->threads].clients[0];
    int status = 0;
    if (!number)
        status = bench_borders_make(client->session, client->tree, run->config, source);
    if (!status)
        status = bench_rights_take(client->session, client->tree, run->config, source, run->owners, number,
                                   fabric_incarnation(run->computes[number].fabric));
    const char *cause = tree_session_error(client->session)->text;
    return status ? error_set(error, status, "%s", *cause ? cause : error_name(status)) : 0;
}

static int open_run(struct local_run *run, struct bench_pool *pool, const struct tree_switches *switches,
                    struct workload_source *source, struct error *error)
{
    const struct bench_config *config = run->config;
    run->computes = calloc(config->compute_nodes, sizeof *run->computes);
    run->owners = calloc(config->compute_nodes, sizeof *run->owners);
    run->threads = calloc(run->thread_count, sizeof *run->threads);
    if (!run->computes || !run->owners || !run->threads)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u threads", run->thread_count);
    int status = 0;
    for (unsigned i = 0; i < config->compute_nodes && !status; i++)
        status = open_compute(run, pool, source, switches, i, error);
    for (unsigned i = 0; i < run->thread_count && !status; i++)
        status = open_thread(run, source, i, error);
    for (unsigned i = 0; i < config->compute_nodes && config->ownership == BENCH_OWNED && !status; i++)
        status = take_rights(run, source, i, error);
    return status;
}

/* Of threads that never ran. */
static void drop_thread(const struct local_run *run, struct local_thread *thread)
{
    for (unsigned i = 0; thread->clients && i < run->config->fibers; i++)
        bench_client_close(&thread->clients[i]);
    if (thread->worker)
        pool_worker_destroy(thread->worker);
}

static void close_run(struct local_run *run, bool ran)
{
    for (unsigned i = 0; run->threads && i < run->thread_count; i++) {
        if (!ran)
            drop_thread(run, &run->threads[i]);
        free(run->threads[i].clients);
    }
    for (unsigned i = 0; run->computes && i < run->config->compute_nodes; i++) {
        bench_store_close(run->computes[i].store, run->computes[i].tree);
        if (run->computes[i].compute)
            tree_compute_destroy(run->computes[i].compute);
        if (run->computes[i].fabric)
            fabric_close(run->computes[i].fabric);
    }
    free(run->threads);
    free(run->computes);
    free(run->owners);
}

/* ---- running ---- */

/* By one thread, while others work: the phases turn one after the other. */
static void count_caches(void *context, enum bench_phase phase)
{
    struct local_run *run = context;
    for (unsigned i = 0; i < run->config->compute_nodes; i++)
        (phase == BENCH_DONE ? bench_cache_end : bench_cache_begin)(run->result, run->computes[i].tree);
}

/* Starts the threads; returns how many there are. They wait at the gate until all of them have started. */
static unsigned start_threads(struct local_run *run, struct error *error)
{
    for (unsigned i = 0; i < run->thread_count; i++)
        if (thread_start(&run->threads[i].handle, thread_main, &run->threads[i], error)) {
            bench_window_fail(&run->window, error);
            return i;
        }
    return run->thread_count;
}

int bench_measure_local(struct bench_pool *pool, const struct bench_config *config,
                        const struct tree_switches *switches, struct workload_source *source,
                        struct bench_result *result, struct error *error)
{
    struct local_run run = {
        .config = config, .result = result, .thread_count = config->compute_nodes * config->threads};
    struct error ignored = {0};
    error = error ? error : &ignored;
    int status = open_run(&run, pool, switches, source, error);
    if (status) {
        close_run(&run, false);
        return status;
    }
    result->capabilities = *fabric_capabilities(run.computes[0].fabric);
    bench_window_init(&run.window, config, run.thread_count * config->fibers, &run.lock);
    run.window.turned = count_caches;
    run.window.turned_context = &run;
    unsigned started = start_threads(&run, error);
    uint64_t begin = task_now();
    /* Release: a thread that comes through the gate sees the run complete. */
    atomic_store_release(&run.gate_open, 1u);
    for (unsigned i = 0; i < started; i++)
        thread_join(run.threads[i].handle);
    result->measure_seconds = (double)(task_now() - begin) / 1e9;
    if (run.window.failed) {
        *error = run.window.error;
        status = error->code;
    }
    for (unsigned i = started; i < run.thread_count; i++)
        drop_thread(&run, &run.threads[i]);
    for (unsigned i = 0; i < run.thread_count; i++)
        bench_result_merge(result, &run.threads[i].result);
    bench_result_complete(result, &run.window);
    close_run(&run, true);
    return status;
}
