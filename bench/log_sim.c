/* log_sim.c - see log_sim.h. */
#include "bench/log_sim.h"

#include <stdlib.h>
#include "bench/map_sim.h"
#include "log/log.h"
#include "owner/log_hooks.h"

struct log_node {
    struct log *log;
    struct owner_log_hooks hooks;           /* with a map */
    struct sim_client mergers[LOG_MERGERS]; /* their sessions and their place; they draw nothing */
    struct sim_thread threads[LOG_MERGERS];
    struct log_stats stats[2]; /* when the window opened, when it closed */
};

struct log_sim {
    struct log_node *nodes;
    struct fabric_cost merged[2];
};

/* Mergers share the CPUs with the clients, as threads of one machine do: they are spread over them. */
static unsigned merger_place(const struct sim_run *run, unsigned number)
{
    return number * run->config->threads / LOG_MERGERS;
}

static int create_node(struct sim_run *run, unsigned number, struct error *error)
{
    struct log_node *node = &run->logs->nodes[number];
    struct sim_compute *compute = &run->computes[number];
    struct log_options options;
    log_options_default(&options);
    options.copies = run->config->log_copies;
    options.seed = run->config->seed + number + 1;
    int status = log_create(&node->log, compute->compute, &options, error);
    if (!status)
        status = log_attach(node->log, compute->tree, error);
    for (unsigned i = 0; i < LOG_MERGERS && !status; i++) {
        struct sim_client *merger = &node->mergers[i];
        struct sim_thread *thread = &node->threads[i];
        *thread = (struct sim_thread){.run = run, .compute = number, .number = merger_place(run, i)};
        merger->thread = thread;
        merger->client.window = &run->window;
        status = pool_worker_create(&thread->worker, tree_compute_pool(compute->compute), error);
        if (!status)
            status = tree_session_create(&merger->client.session, compute->compute, thread->worker, error);
    }
    if (status || !run->map)
        return status;
    node->hooks.log = node->log;
    status = tree_session_create(&node->hooks.session, compute->compute, node->threads[0].worker, error);
    if (!status)
        owner_log_hook(map_sim_owner(run, number), &node->hooks);
    return status;
}

int log_sim_create(struct sim_run *run, struct error *error)
{
    struct log_sim *logs = run->logs = calloc(1, sizeof *logs);
    if (logs)
        logs->nodes = calloc(run->config->compute_nodes, sizeof *logs->nodes);
    if (!logs || !logs->nodes)
        return error_set(error, BANYAN_ENOMEM, "no memory for the owners' logs");
    int status = 0;
    for (unsigned i = 0; i < run->config->compute_nodes && !status; i++)
        status = create_node(run, i, error);
    return status;
}

void log_sim_destroy(struct sim_run *run)
{
    struct log_sim *logs = run->logs;
    if (!logs)
        return;
    for (unsigned i = 0; logs->nodes && i < run->config->compute_nodes; i++) {
        struct log_node *node = &logs->nodes[i];
        tree_session_destroy(node->hooks.session);
        for (unsigned j = 0; j < LOG_MERGERS; j++) {
            if (node->mergers[j].client.session)
                tree_session_destroy(node->mergers[j].client.session);
            if (node->threads[j].worker)
                pool_worker_abandon(node->threads[j].worker);
        }
        log_destroy(node->log);
    }
    free(logs->nodes);
    free(logs);
    run->logs = NULL;
}

static void merger_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    sim_client_judge(client,
                     log_merge(run->logs->nodes[client->thread->compute].log, client->client.session));
}

int log_sim_spawn(struct sim_run *run, struct error *error)
{
    int status = 0;
    for (unsigned i = 0; i < run->config->compute_nodes && !status; i++) {
        struct log_node *node = &run->logs->nodes[i];
        for (unsigned j = 0; j < LOG_MERGERS && !status; j++)
            status =
                sim_spawn(run->sim, (int)i, node->threads[j].number, merger_task, &node->mergers[j], error);
    }
    return status;
}

void log_sim_stop(struct sim_run *run)
{
    for (unsigned i = 0; i < run->config->compute_nodes; i++)
        if (sim_compute_alive(run->sim, (int)i))
            log_stop(run->logs->nodes[i].log);
}

void log_sim_stats(const struct sim_run *run, unsigned compute, struct log_stats *stats)
{
    log_stats(run->logs->nodes[compute].log, stats);
}

void log_sim_count(struct sim_run *run, enum bench_phase phase)
{
    const unsigned end = phase == BENCH_DONE;
    for (unsigned i = 0; i < run->config->compute_nodes; i++) {
        struct log_node *node = &run->logs->nodes[i];
        for (unsigned j = 0; j < LOG_MERGERS; j++)
            fabric_cost_add(&run->logs->merged[end],
                            &tree_session_stats(node->mergers[j].client.session)->cost);
        log_stats(node->log, &node->stats[end]);
    }
}

void log_sim_result(const struct sim_run *run, struct bench_result *result)
{
    if (!run->logs)
        return;
    struct fabric_cost merged = bench_cost_difference(&run->logs->merged[0], &run->logs->merged[1]);
    fabric_cost_add(&result->cost, &merged);
    result->logged = true;
    result->log_cost = merged;
    for (unsigned i = 0; i < run->config->compute_nodes; i++) {
        const struct log_stats *from = &run->logs->nodes[i].stats[0], *to = &run->logs->nodes[i].stats[1];
        result->log_entries += to->entries - from->entries;
        result->log_commits += to->commits - from->commits;
        result->log_merged += to->merged - from->merged;
        result->log_bytes += to->bytes - from->bytes;
        result->log_waits += to->waits - from->waits;
        result->log_wait_ns += to->wait_ns - from->wait_ns;
        if (to->wait_longest_ns > result->log_wait_longest_ns)
            result->log_wait_longest_ns = to->wait_longest_ns;
        result->log_held += to->held - from->held;
        result->log_held_ns += to->held_ns - from->held_ns;
        if (to->held_longest_ns > result->log_held_longest_ns)
            result->log_held_longest_ns = to->held_longest_ns;
        result->log_cycles += to->cycles - from->cycles;
        if (to->cycle_longest_ns > result->log_cycle_longest_ns)
            result->log_cycle_longest_ns = to->cycle_longest_ns;
        if (to->lag_ns > result->log_lag_ns)
            result->log_lag_ns = to->lag_ns;
        result->log_lag += to->sequence - to->watermark;
        result->log_unmerged += to->unmerged;
    }
}
