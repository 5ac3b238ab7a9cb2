/* fail_sim.c - see fail_sim.h. */
#include "bench/fail_sim.h"

#include <stdlib.h>
#include "bench/ledger.h"
#include "bench/log_sim.h"
#include "bench/ownership.h"
#include "bench/pool.h"
#include "log/log.h"
#include "tree/rights.h"

#define LOOK_NS UINT64_C(10000) /* how often it is looked whether the ranges are served again */
#define POLL_NS UINT64_C(20000)

struct fail_sim {
    struct ledger *ledger;
    unsigned victim;
    uint64_t died_ns, served_ns; /* 0: not yet */
    struct log_stats log;        /* the victim's when it died; zeros: it had none */
};

/* The loaded keys are what is read back; and the pool has room for as many new keys as config->operations,
 * of which there may be more here. */
static int check_workload(const struct workload *workload, struct error *error)
{
    const double *share = workload->share;
    if (share[WORKLOAD_INSERT] <= 0 && share[WORKLOAD_UPSERT] <= 0 && share[WORKLOAD_DELETE] <= 0)
        return 0;
    return error_set(error, BANYAN_EINVAL,
                     "a compute node fails (fail=on) under workloads that keep their keys, as "
                     "dinomo:write-heavy-update; '%s' does not",
                     workload->name);
}

int fail_sim_create(struct sim_run *run, struct error *error)
{
    int status = check_workload(run->source->workload, error);
    if (status)
        return status;
    struct fail_sim *fail = run->fail = calloc(1, sizeof *fail);
    if (!fail)
        return error_set(error, BANYAN_ENOMEM, "no memory for the failure of a compute node");
    fail->victim = run->config->compute_nodes - 1;
    status = ledger_create(&fail->ledger, run->source->slots, error);
    for (unsigned i = 0; i < run->client_count && !status; i++)
        run->clients[i].client.ledger = fail->ledger;
    return status;
}

void fail_sim_destroy(struct sim_run *run)
{
    if (!run->fail)
        return;
    ledger_destroy(run->fail->ledger);
    free(run->fail);
    run->fail = NULL;
}

/* ---- the death ---- */

/* As a memory node does when it fences a compute node. */
static void after_fencing(void *argument)
{
    struct sim_run *run = argument;
    const struct fabric *fabric = sim_fabric(run->sim, (int)run->fail->victim);
    for (unsigned i = 0; i < run->pool->count; i++)
        memory_node_release_locks(run->pool->nodes[i], fabric->capabilities.compute_id);
}

/* Whether some process that lives may answer for the key. */
static bool served(const struct sim_run *run, const uint8_t *key, size_t length)
{
    for (unsigned i = 0; i < run->config->compute_nodes; i++) {
        uint64_t incarnation;
        if (i != run->fail->victim &&
            tree_rights_at(run->computes[i].tree, key, length, &incarnation) == TREE_OWNED &&
            incarnation >= fabric_incarnation(sim_fabric(run->sim, (int)i)))
            return true;
    }
    return false;
}

static bool all_served(const struct sim_run *run)
{
    const uint32_t each = bench_ranges_each(run->config), ranges = run->config->compute_nodes * each;
    bool all = true;
    for (uint32_t range = run->fail->victim * each; range < ranges && all; range++) {
        uint8_t key[8];
        workload_key(workload_part_begin(run->source, range, ranges), key, sizeof key);
        all = served(run, key, sizeof key);
    }
    return all;
}

/* An event of the world, so that no task's CPU time delays what it sees. */
static void look(void *argument)
{
    struct sim_run *run = argument;
    const uint64_t now = sim_now(run->sim);
    if (all_served(run))
        run->fail->served_ns = now - run->fail->died_ns;
    else if (run->clients_left && !run->window.failed && sim_at(run->sim, now + LOOK_NS, look, run))
        bench_window_fail(&run->window, &(struct error){.code = BANYAN_ENOMEM, .text = "no memory"});
}

/* Its clients are not waited for. */
static void forget_clients(struct sim_run *run)
{
    for (unsigned i = 0; i < run->thread_count; i++)
        if (run->threads[i].compute == run->fail->victim) {
            run->clients_running -= run->threads[i].running;
            run->clients_left -= run->threads[i].running;
            run->threads[i].running = 0;
        }
}

void fail_sim_kill(struct sim_run *run)
{
    struct fail_sim *fail = run->fail;
    if (run->logs)
        log_sim_stats(run, fail->victim, &fail->log);
    sim_kill_compute(run->sim, (int)fail->victim, run->config->faults.lease_ns, after_fencing, run);
    run->window.died_ns = fail->died_ns = task_now();
    forget_clients(run);
    look(run);
}

/* ---- the end ---- */

void fail_sim_read_back(struct sim_run *run, struct sim_client *client)
{
    const struct bench_config *config = run->config;
    const uint64_t left = (uint64_t)(config->compute_nodes - 1) * config->threads * config->fibers;
    while (run->clients_running && !run->window.failed)
        task_sleep(POLL_NS);
    if (!run->window.failed)
        bench_client_read_back(&client->client, (uint64_t)(client - run->clients), left);
}

static double mops(const struct histogram *latencies, uint64_t ns)
{
    return latencies && ns ? (double)histogram_count(latencies) * 1e3 / (double)ns : 0;
}

/* The last interval is not whole. */
static void judge_timeline(const struct bench_timeline *timeline, struct bench_failure *failure)
{
    failure->lowest_mops = failure->before_mops;
    for (size_t i = failure->begin_ns / BENCH_INTERVAL_NS; i + 1 < timeline->length; i++) {
        const double now = (double)timeline->counts[i] * 1e3 / (double)BENCH_INTERVAL_NS;
        if (now < failure->lowest_mops)
            failure->lowest_mops = now;
        if (now < failure->before_mops / 2)
            failure->halved_ns += BENCH_INTERVAL_NS;
    }
}

void fail_sim_result(const struct sim_run *run, struct bench_result *result)
{
    struct bench_failure *failure = &result->failure;
    if (!run->fail || !run->window.died_ns)
        return;
    failure->begin_ns = run->window.died_ns - run->window.begin_ns;
    failure->ranges = bench_ranges_each(run->config);
    failure->unmerged = run->fail->log.unmerged;
    failure->log_bytes = run->fail->log.log_bytes;
    failure->served_ns = run->fail->served_ns;
    failure->before_mops = mops(failure->before, failure->begin_ns);
    failure->after_mops = mops(failure->after, result->window_ns - failure->begin_ns);
    for (unsigned i = 0; run->logs && i < run->fail->victim; i++) {
        struct log_stats stats;
        log_sim_stats(run, i, &stats);
        failure->inherited += stats.inherited;
    }
    judge_timeline(&result->timeline, failure);
}
