/* cells.c - see cells.h. */
#include "bench/cells.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/pool.h"
#include "bench/runner_sim.h"

struct bench_cells {
    const struct bench_plan *plan;
    struct bench_config configs[BENCH_PRESETS_MAX]; /* of the pools, which stay as they were loaded */
    struct bench_pool pools[BENCH_PRESETS_MAX];
    unsigned pool_count;
    struct workload_source sources[BENCH_WORKLOADS_MAX][WORKLOAD_DISTRIBUTIONS];
};

/* ---- what the cells share ---- */

static int source_init(const struct bench_plan *plan, struct workload_source *source, unsigned workload,
                       unsigned distribution, uint64_t seed, struct error *error)
{
    const struct bench_config *config = &plan->config;
    const struct workload_skew skew = {config->theta, config->skew_of};
    return workload_source_init(source, &plan->workloads[workload], plan->distributions[distribution], &skew,
                                config->keys, config->operations + config->warm_up, config->scan_length, seed,
                                error);
}

static int make_sources(struct bench_cells *cells, struct error *error)
{
    const struct bench_plan *plan = cells->plan;
    int status = 0;
    for (unsigned i = 0; i < plan->workload_count && !status; i++)
        for (unsigned j = 0; j < plan->distribution_count && !status; j++)
            status = source_init(plan, &cells->sources[i][j], i, j, plan->config.seed, error);
    return status;
}

/* The one that makes most keys: the pools have room for it. */
static const struct workload_source *greatest_source(const struct bench_cells *cells)
{
    const struct workload_source *greatest = NULL;
    double most = -1;
    for (unsigned i = 0; i < cells->plan->workload_count; i++) {
        const double *share = cells->plan->workloads[i].share;
        double made = share[WORKLOAD_INSERT] + share[WORKLOAD_UPSERT];
        if (made > most)
            greatest = &cells->sources[i][0];
        most = made > most ? made : most;
    }
    return greatest;
}

static int load_pool(struct bench_cells *cells, const struct bench_preset *preset, struct error *error)
{
    struct bench_config *config = &cells->configs[cells->pool_count];
    struct bench_pool *pool = &cells->pools[cells->pool_count++];
    const struct workload_source *source = greatest_source(cells);
    struct bench_space space = {0};
    bench_plan_config(cells->plan, preset, config);
    if (cells->plan->begun)
        cells->plan->begun(cells->plan->begun_context, preset->name);
    int status = bench_pool_create(pool, config, source, error);
    if (!status)
        status = bench_pool_load(pool, config, &preset->switches, source, error);
    if (!status)
        status = bench_pool_check(pool, config, &preset->switches, &space, error);
    return status;
}

struct bench_cells *bench_cells_open(const struct bench_plan *plan, struct error *error)
{
    struct bench_cells *cells = calloc(1, sizeof *cells);
    if (!cells) {
        error_set(error, BANYAN_ENOMEM, "no memory for the runs");
        return NULL;
    }
    cells->plan = plan;
    int status = make_sources(cells, error);
    for (unsigned i = 0; i < plan->preset_count && !status; i++)
        status = load_pool(cells, &plan->presets[i], error);
    if (!status)
        return cells;
    bench_cells_close(cells);
    return NULL;
}

void bench_cells_close(struct bench_cells *cells)
{
    if (!cells)
        return;
    for (unsigned i = 0; i < cells->pool_count; i++)
        bench_pool_destroy(&cells->pools[i]);
    free(cells);
}

/* ---- in a worker process ---- */

static int measure(struct bench_cells *cells, const struct bench_cell *cell, struct bench_result *result,
                   struct error *error)
{
    const struct bench_plan *plan = cells->plan;
    struct bench_config config = cells->configs[cell->preset];
    config.seed = cell->seed;
    config.sim = cell->sim;
    config.progress = NULL;
    struct workload_source source;
    int status = source_init(plan, &source, cell->workload, cell->distribution, cell->seed, error);
    return status ? status
                  : bench_measure_sim(&cells->pools[cell->preset], &config,
                                      &plan->presets[cell->preset].switches, &source, result, error);
}

static void run_cell(struct bench_cells *cells, const struct bench_cell *cell,
                     struct bench_cell_outcome *outcome)
{
    struct bench_result result = {0};
    struct error error = {0};
    int status = measure(cells, cell, &result, &error);
    *outcome = (struct bench_cell_outcome){
        .done = !status,
        .status = status,
        .throughput_mops = result.throughput_mops,
        .p50_us = report_quantile_us(result.latency, 0.5),
        .p90_us = report_quantile_us(result.latency, 0.9),
        .p99_us = report_quantile_us(result.latency, 0.99),
        .operations = result.operations,
        .trace_hash = result.trace_hash,
        .events = result.events,
    };
    snprintf(outcome->reason, sizeof outcome->reason, "%s", error.text);
    bench_result_release(&result);
}

/* ---- the worker processes ---- */

struct running {
    struct bench_cells *cells;
    struct bench_cell *list;
    size_t count, begun, ended;
    struct bench_cell_outcome *outcomes; /* shared with the worker processes */
    pid_t *workers;                      /* by cell; 0: not running */
    unsigned running;
};

static void describe(const struct running *running, size_t index, char *text, size_t size)
{
    const struct bench_plan *plan = running->cells->plan;
    const struct bench_cell *cell = &running->list[index];
    snprintf(text, size, "%s, %s, %s", plan->workloads[cell->workload].name,
             workload_distribution_names[plan->distributions[cell->distribution]],
             plan->presets[cell->preset].name);
}

static int begin_cell(struct running *running, struct error *error)
{
    size_t index = running->begun;
    pid_t parent = getpid(), worker = fork();
    if (worker < 0)
        return error_set(error, BANYAN_ENOMEM, "cannot start a worker process: %s", strerror(errno));
    if (worker == 0) {
        /* A worker ends with the process that waits for it; it may have ended before the call. */
        if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == parent)
            run_cell(running->cells, &running->list[index], &running->outcomes[index]);
        _exit(0);
    }
    running->workers[index] = worker;
    running->begun++;
    running->running++;
    return 0;
}

static int judge_cell(struct running *running, size_t index, int ended, struct error *error)
{
    const struct bench_cell_outcome *outcome = &running->outcomes[index];
    char what[256];
    describe(running, index, what, sizeof what);
    running->list[index].outcome = *outcome;
    if (outcome->done)
        return 0;
    if (outcome->status)
        return error_set(error, outcome->status, "%s: %s", what,
                         outcome->reason[0] ? outcome->reason : error_name(outcome->status));
    return error_set(error, BANYAN_EUNKNOWN, "%s: the worker process was ended by signal %d", what,
                     WIFSIGNALED(ended) ? WTERMSIG(ended) : 0);
}

/* Waits until one of the workers has ended. */
static int end_cell(struct running *running, struct error *error)
{
    int ended = 0;
    pid_t worker = waitpid(-1, &ended, 0);
    if (worker < 0)
        return errno == EINTR
                   ? 0
                   : error_set(error, BANYAN_EUNKNOWN, "waiting for a worker: %s", strerror(errno));
    for (size_t i = 0; i < running->begun; i++) {
        if (running->workers[i] != worker)
            continue;
        running->workers[i] = 0;
        running->running--;
        running->ended++;
        return judge_cell(running, i, ended, error);
    }
    return 0; /* a child of the process that is none of ours */
}

static void end_all(struct running *running)
{
    for (size_t i = 0; running->workers && i < running->begun; i++) {
        if (!running->workers[i])
            continue;
        kill(running->workers[i], SIGKILL);
        while (waitpid(running->workers[i], NULL, 0) < 0 && errno == EINTR)
            ;
    }
}

int bench_cells_run(struct bench_cells *cells, struct bench_cell *list, size_t count, unsigned jobs,
                    void (*progress)(void *context, size_t done, size_t count), void *context,
                    struct error *error)
{
    struct running running = {.cells = cells, .list = list, .count = count};
    if (!count)
        return 0;
    size_t bytes = count * sizeof *running.outcomes;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    running.outcomes = shared;
    running.workers = calloc(count, sizeof *running.workers);
    int status = 0;
    if (shared == MAP_FAILED || !running.workers)
        status = error_set(error, BANYAN_ENOMEM, "no memory for %zu runs", count);
    fflush(NULL); /* what waits in a stream would otherwise be each worker's to write, too */
    while (!status && running.ended < count) {
        size_t before = running.ended;
        while (!status && running.running < jobs && running.begun < count)
            status = begin_cell(&running, error);
        if (!status)
            status = end_cell(&running, error);
        if (!status && progress && running.ended > before)
            progress(context, running.ended, count);
    }
    end_all(&running);
    free(running.workers);
    if (shared != MAP_FAILED)
        munmap(shared, bytes);
    return status;
}
