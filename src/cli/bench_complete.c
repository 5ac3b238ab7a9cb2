/* bench_complete.c - what a command line of `banyan bench` leaves open: defaults, which depend on the fabric,
 * the testbed and the paper (contract: bench_options.h). argp_error prints a message and ends the process. */
#include <string.h>

#include "bench/paper_run.h"
#include "cli/bench_options.h"
#include "cli/bench_request.h"

/* argp_error does not return. */
static void refuse(struct argp_state *state, const struct error *error)
{
    argp_error(state, "%s", error->text);
}

/* The testbed's values, and what was given beside it. */
static void complete_testbed(struct bench_request *request, struct argp_state *state)
{
    struct bench_config *config = &request->plan.config;
    const struct testbed *testbed = request->testbed;
    struct error error = {0};
    if (!request->fabric_given)
        config->fabric = BENCH_SIM;
    if (config->fabric != BENCH_SIM)
        argp_error(state, "--testbed, --paper: a simulated cluster; use it with --fabric sim");
    if (!config->geometry.leaf_bytes)
        config->geometry.leaf_bytes = testbed->leaf_bytes;
    if (!config->geometry.internal_bytes)
        config->geometry.internal_bytes = testbed->internal_bytes;
    if (!config->geometry.subtree_levels)
        config->geometry.subtree_levels = testbed->subtree_levels;
    sim_params_default(&config->sim);
    int status = *testbed->sim ? option_set_list(sim_params_table, &config->sim, testbed->sim, &error) : 0;
    for (unsigned i = 0; i < request->sim_count && !status; i++)
        status = option_set_list(sim_params_table, &config->sim, request->sim[i], &error);
    if (status)
        refuse(state, &error);
}

static void complete_paper(struct bench_request *request, struct argp_state *state)
{
    struct bench_plan *plan = &request->plan;
    struct error error = {0};
    if (plan->workload_count || plan->distribution_count || plan->preset_count || plan->peer)
        argp_error(state, "--paper: its figures name workloads, distributions and presets; --only chooses "
                          "among them");
    if (paper_check_only(request->paper, request->only, &error))
        refuse(state, &error);
    if (paper_plan(plan, request->paper, request->only, &error))
        refuse(state, &error);
}

/*
 * What a paper's runs have where options do not say. Sherman's keys are so many in 5.1, and `skew_of` gives
 * ours the skew among them. DEX's cache holds a share of the keys (testbed.h), and what it misses depends on
 * the skew of the keys that there are, not on that among more. It is full, and has changed several times,
 * before anything counts: misses fill it at a tenth of their rate, and about a third of the operations miss.
 * Dinomo measures behind a minute, some 20 operations a key, with as many requests under way as saturate the
 * nodes' CPUs, so that several writes are ready at once. Cell's clients have several searches under way, too;
 * ten million keys make a tree of five levels, of which four are not cached, and eight subtrees.
 */
static const struct paper_defaults {
    const char *paper;
    uint64_t keys, operations;
    double warm_up; /* operations for each key; 0: as without a paper */
    uint64_t skew_of;
    uint32_t fibers; /* 0: one */
} paper_defaults[] = {
    {"sherman", 10000000, 400000, 0, 1000000000, 0},
    {"dex", 2000000, 400000, 0.8, 0, 0},
    {"dinomo", 100000, 100000, 10, 0, 8},
    {"cell", 10000000, 200000, 0, 0, 4},
};

/* NULL: the request is not for a paper that can be run. */
static const struct paper_defaults *defaults_of(const struct bench_request *request)
{
    for (size_t i = 0; request->paper && i < sizeof paper_defaults / sizeof paper_defaults[0]; i++)
        if (!strcmp(paper_defaults[i].paper, request->paper->name))
            return &paper_defaults[i];
    return NULL;
}

static uint64_t or_default(uint64_t value, uint64_t usual)
{
    return value == BENCH_UNSET ? usual : value;
}

/* What is run, where options did not say. */
static int complete_names(struct bench_request *request, struct error *error)
{
    struct bench_plan *plan = &request->plan;
    int status = 0;
    if (request->paper)
        return 0;
    if (!plan->workload_count)
        status = bench_plan_add_workloads(
            plan, request->sensitive ? "write-only,write-intensive,read-intensive" : "read-intensive", error);
    if (!status && !plan->distribution_count)
        status =
            bench_plan_add_distributions(plan, request->sensitive ? "zipfian,uniform" : "zipfian", error);
    if (!status)
        status = bench_sensitivity_complete(request, error);
    if (!status && !plan->preset_count)
        status = bench_plan_add_presets(plan, "banyan", error);
    return status;
}

/* A compute node's: with a testbed that says at how many keys it has it, as much less as there are fewer. */
static uint64_t cache_bytes(const struct bench_request *request, const struct bench_preset *preset)
{
    const struct testbed *testbed = request->testbed;
    uint64_t usual = testbed ? testbed->cache_bytes : UINT64_C(500) << 20; /* as in Sherman's evaluation */
    uint64_t bytes = preset->cache ? preset->cache : usual;
    const struct bench_config *config = &request->plan.config;
    uint64_t keys = config->keys ? config->keys : config->operations;
    if (preset->cache_share > 0) {
        uint32_t value = preset->values ? preset->values : bench_config_value_bytes(config);
        double data = (double)keys * (config->geometry.key_bytes + value);
        return (uint64_t)(data * preset->cache_share / 100);
    }
    if (testbed && testbed->keys)
        bytes = (uint64_t)((double)bytes * (double)keys / (double)testbed->keys);
    return bytes;
}

static int complete_switches(struct bench_request *request, struct error *error)
{
    struct bench_plan *plan = &request->plan;
    const struct testbed *testbed = request->testbed;
    int status = 0;
    for (unsigned i = 0; i < plan->preset_count && !status; i++) {
        struct bench_preset *preset = &plan->presets[i];
        struct tree_switches *switches = &preset->switches;
        switches->cache_bytes = cache_bytes(request, preset);
        if (testbed && *testbed->switches)
            status = option_set_list(tree_switches_table, switches, testbed->switches, error);
        if (!status)
            status = bench_preset_settle(preset, error);
        for (unsigned j = 0; j < request->setting_count && !status; j++)
            status = option_set(tree_switches_table, switches, request->settings[j].name,
                                request->settings[j].value, error);
    }
    return status;
}

/* Memory nodes that run already, and how they are reached. */
static void complete_memory(struct bench_request *request, struct argp_state *state)
{
    struct bench_config *config = &request->plan.config;
    struct error error = {0};
    if (request->addresses.count) {
        if (config->fabric == BENCH_LOCAL || config->fabric == BENCH_SIM)
            argp_error(state, "--memory: memory nodes that run already are for --fabric tcp, unix or rdma");
        config->memory = request->addresses.list;
        config->memory_nodes = request->addresses.count;
    } else if (config->fabric == BENCH_RDMA) {
        argp_error(state, "--fabric rdma: name memory nodes that run: --memory rdma://host:port");
    }
    bool tls = request->certificate || request->key || request->authority;
    if (tls && !request->addresses.count)
        argp_error(state, "TLS is for memory nodes that run already: give --memory");
    if (tls && !request->authority)
        argp_error(state, "TLS needs --fabric-authority, by which the memory nodes are known");
    if (cluster_client_tls(&request->tls, request->certificate, request->key, request->authority, &error) ||
        cluster_rdma_prepare(&config->nic, &request->rdma, &error))
        refuse(state, &error);
    config->tls = request->tls;
    config->nic.spin_us = request->spin_us;
}

void bench_request_complete(struct bench_request *request, struct argp_state *state)
{
    struct bench_plan *plan = &request->plan;
    struct bench_config *config = &plan->config;
    struct error error = {0};
    if (request->paper && (request->sensitive || request->of || request->jobs))
        argp_error(state, "--paper and --sensitivity are two runs; ask for one");
    if (request->paper && config->batch != 1)
        argp_error(state, "--batch: a paper's operations go one by one");
    if (request->paper && !request->testbed)
        request->testbed = testbed_find(request->paper->name, &error);
    const struct testbed *testbed = request->testbed;
    if (testbed)
        complete_testbed(request, state);
    if (request->paper)
        complete_paper(request, state);
    bool sim = config->fabric == BENCH_SIM;
    config->memory_nodes = (uint32_t)or_default(request->memory_nodes, testbed ? testbed->memory_nodes
                                                                       : sim   ? 8
                                                                               : 1);
    config->compute_nodes = (uint32_t)or_default(request->compute_nodes, testbed ? testbed->compute_nodes
                                                                         : sim   ? 8
                                                                                 : 1);
    config->threads = (uint32_t)or_default(request->threads, testbed ? testbed->threads : sim ? 22 : 1);
    const struct paper_defaults *paper = defaults_of(request);
    config->fibers = (uint32_t)or_default(request->fibers, paper && paper->fibers ? paper->fibers : 1);
    complete_memory(request, state);
    config->keys = or_default(request->keys, paper ? paper->keys : 1000000);
    config->operations = or_default(request->operations, paper                ? paper->operations
                                                         : request->sensitive ? 100000
                                                         : sim                ? 200000
                                                                              : 1000000);
    uint64_t fills = paper ? (uint64_t)(paper->warm_up * (double)config->keys) : 0;
    config->warm_up = or_default(request->warm_up, fills ? fills : config->operations / 10);
    for (unsigned i = 0; i < plan->distribution_count && paper; i++)
        if (plan->distributions[i] == WORKLOAD_ZIPFIAN && !config->skew_of && config->keys < paper->skew_of)
            config->skew_of = paper->skew_of;
    int status = complete_names(request, &error);
    if (!status)
        status = complete_switches(request, &error);
    if (!status)
        status = bench_plan_check(plan, &error);
    if (status)
        refuse(state, &error);
}
