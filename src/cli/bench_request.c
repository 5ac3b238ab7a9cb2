/* bench_request.c - see bench_request.h. argp_error prints a message and ends the process. */
#include "cli/bench_request.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_options.h"
#include "cli/command.h"

/* argp_error does not return. */
static void refuse(struct argp_state *state, const struct error *error)
{
    argp_error(state, "%s", error->text);
}

/* `kind`, for the message: the kind of number that is wanted, with examples. */
static uint64_t parse_number(struct argp_state *state, int key, const char *text, uint64_t most,
                             int (*parse)(const char *, uint64_t *, struct error *), const char *kind)
{
    uint64_t value = 0;
    struct error error = {0};
    if (parse(text, &value, &error))
        argp_error(state, "--%s: '%s' is not a %s", bench_option_name(key), text, kind);
    if (value > most)
        argp_error(state, "--%s: %s is more than %llu", bench_option_name(key), text,
                   (unsigned long long)most);
    return value;
}

static uint64_t parse_count(struct argp_state *state, int key, const char *text, uint64_t most)
{
    return parse_number(state, key, text, most, option_parse_count, "count, like 1000, 200k or 10M");
}

static uint64_t parse_size(struct argp_state *state, int key, const char *text, uint64_t most)
{
    return parse_number(state, key, text, most, option_parse_size, "size, like 512, 64K or 8M");
}

static double parse_real(struct argp_state *state, int key, const char *text)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end)
        argp_error(state, "--%s: '%s' is not a number", bench_option_name(key), text);
    return value;
}

static void parse_table(struct argp_state *state, int key, const struct option_entry *table, void *object,
                        const char *text)
{
    struct error error = {0};
    if (!strcmp(text, "help")) {
        bench_list_table(table, object);
        exit(COMMAND_OK);
    }
    if (option_set_list(table, object, text, &error))
        argp_error(state, "--%s: %s", bench_option_name(key), error.text);
}

/* Now, for its messages; kept, as a testbed named later comes first. */
static void parse_sim(struct bench_request *request, struct argp_state *state, const char *text)
{
    parse_table(state, KEY_SIM, sim_params_table, &request->plan.config.sim, text);
    if (request->sim_count == sizeof request->sim / sizeof request->sim[0])
        argp_error(state, "--sim: too often; put more parameters into one, with commas between them");
    request->sim[request->sim_count++] = text;
}

static void parse_faults(struct argp_state *state, int key, struct bench_config *config, const char *text)
{
    if (!strcmp(text, "none"))
        sim_faults_none(&config->faults);
    else if (!strcmp(text, "hostile"))
        sim_faults_hostile(&config->faults);
    else
        parse_table(state, key, sim_faults_table, &config->faults, text);
}

static void parse_fabric(struct argp_state *state, struct bench_config *config, const char *text)
{
    for (enum bench_fabric fabric = BENCH_LOCAL; fabric <= BENCH_RDMA; fabric++)
        if (!strcmp(text, bench_fabric_names[fabric])) {
            config->fabric = fabric;
            return;
        }
    argp_error(state, "--fabric: '%s' is not one of local, sim, tcp, unix, rdma", text);
}

static bool parse_switch(struct bench_request *request, struct argp_state *state, int key, const char *value)
{
    unsigned index = (unsigned)key - (key >= KEY_NO_SWITCH ? KEY_NO_SWITCH : KEY_SWITCH);
    if (key < KEY_SWITCH)
        return false;
    const struct option_entry *entry = &tree_switches_table[index];
    struct switch_setting setting = {entry->name, key >= KEY_NO_SWITCH ? "off" : value ? value : "on"};
    struct tree_switches scratch = {0};
    struct error error = {0};
    if (option_set(tree_switches_table, &scratch, setting.name, setting.value, &error))
        refuse(state, &error);
    if (request->setting_count == sizeof request->settings / sizeof request->settings[0])
        argp_error(state, "too many switches");
    request->settings[request->setting_count++] = setting;
    return true;
}

/* Options under "What to run". False: not one of these. */
static bool parse_what(struct bench_request *request, struct argp_state *state, int key, const char *text)
{
    struct bench_plan *plan = &request->plan;
    struct bench_config *config = &plan->config;
    struct error error = {0};
    int status = 0;
    switch (key) {
    case KEY_WORKLOAD:
        status = bench_plan_add_workloads(plan, text, &error);
        break;
    case KEY_MIX:
        if (plan->workload_count == BENCH_WORKLOADS_MAX)
            argp_error(state, "--mix: too many workloads");
        status = workload_parse_mix(&plan->workloads[plan->workload_count++], text, &error);
        break;
    case KEY_DISTRIBUTION:
        status = bench_plan_add_distributions(plan, text, &error);
        break;
    case KEY_PRESET:
        status = bench_plan_add_presets(plan, text, &error);
        break;
    case KEY_OWN:
        status = bench_plan_set_ownership(plan, text, &error);
        break;
    case KEY_ROUTE:
        if (strcmp(text, "owner") && strcmp(text, "any"))
            argp_error(state, "--route: '%.40s' is not one of owner, any", text);
        config->route_any = !strcmp(text, "any");
        break;
    case KEY_PEER:
        plan->peer = bench_peer_find(text, &error);
        status = plan->peer ? 0 : BANYAN_EINVAL;
        break;
    case KEY_PAPER:
        request->paper = paper_find(text, &error);
        status = request->paper ? 0 : BANYAN_EINVAL;
        break;
    case KEY_THETA:
        config->theta = parse_real(state, key, text);
        break;
    case KEY_SKEW_OF:
        config->skew_of = parse_count(state, key, text, UINT64_MAX);
        break;
    case KEY_FILL:
        config->fill = parse_real(state, key, text);
        break;
    case KEY_SCAN_LENGTH:
        config->scan_length = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_BATCH:
        config->batch = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_SEED:
        config->seed = parse_count(state, key, text, UINT64_MAX);
        break;
    case KEY_PEER_BATCH:
        plan->peer_batch = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_PAIRS:
        plan->pairs = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_KEYS:
        request->keys = parse_count(state, key, text, BENCH_UNSET - 1);
        break;
    case KEY_OPERATIONS:
        request->operations = parse_count(state, key, text, BENCH_UNSET - 1);
        break;
    case KEY_WARM_UP:
        request->warm_up = parse_count(state, key, text, UINT64_C(1) << 50);
        break;
    default:
        return false;
    }
    if (status)
        refuse(state, &error);
    return true;
}

/* Where to run it. */
static bool parse_where(struct bench_request *request, struct argp_state *state, int key, const char *text)
{
    struct bench_config *config = &request->plan.config;
    struct error error = {0};
    switch (key) {
    case KEY_FABRIC:
        parse_fabric(state, config, text);
        request->fabric_given = true;
        break;
    case KEY_MEMORY_NODES:
        request->memory_nodes = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_COMPUTE_NODES:
        request->compute_nodes = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_THREADS:
        request->threads = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_FIBERS:
        request->fibers = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_KEY_BYTES:
        config->geometry.key_bytes = (uint8_t)parse_size(state, key, text, FORMAT_KEY_MAX);
        break;
    case KEY_VALUE_BYTES:
        bench_config_values(config, (uint32_t)parse_size(state, key, text, BENCH_VALUE_MAX));
        break;
    case KEY_LEAF:
        if (bench_plan_set_leaf(&request->plan, text, &error))
            refuse(state, &error);
        break;
    case KEY_LEAF_BYTES:
        config->geometry.leaf_bytes = (uint32_t)parse_size(state, key, text, UINT32_MAX);
        break;
    case KEY_INTERNAL_BYTES:
        config->geometry.internal_bytes = (uint32_t)parse_size(state, key, text, UINT32_MAX);
        break;
    case KEY_SUBTREE_LEVELS:
        config->geometry.subtree_levels =
            (uint8_t)(strcmp(text, "auto") ? parse_count(state, key, text, FORMAT_SUBTREE_LEVELS_MAX)
                                           : FORMAT_SUBTREE_DEFAULT);
        break;
    case KEY_POOL_BYTES:
        config->pool_bytes = parse_size(state, key, text, UINT64_C(1) << 46) & ~UINT64_C(4095);
        break;
    case KEY_CHUNK_BYTES:
        config->chunk_bytes = parse_size(state, key, text, UINT64_C(1) << 30);
        break;
    case KEY_LOG_BYTES:
        config->log_bytes = parse_size(state, key, text, UINT64_C(1) << 45);
        break;
    case KEY_TESTBED:
        request->testbed = testbed_find(text, &error);
        if (!request->testbed)
            refuse(state, &error);
        break;
    case KEY_SIM:
        parse_sim(request, state, text);
        break;
    case KEY_FAULTS:
        parse_faults(state, key, config, text);
        break;
    case KEY_MEMORY:
        if (cluster_addresses_parse(&request->addresses, "--memory", text, 7100, &error))
            refuse(state, &error);
        break;
    case KEY_SECRET_FILE:
        if (net_secret_read(text, request->secret, &config->secret_length, &error))
            refuse(state, &error);
        config->secret = request->secret;
        break;
    case KEY_CERTIFICATE:
        request->certificate = text;
        break;
    case KEY_KEY:
        request->key = text;
        break;
    case KEY_AUTHORITY:
        request->authority = text;
        break;
    case KEY_RDMA_DEVICE:
        request->rdma.device = (char *)text; /* only read */
        break;
    case KEY_RDMA_GID:
        request->rdma.gid = (char *)text; /* as above */
        break;
    case KEY_RDMA_SPIN:
        request->spin_us = (uint32_t)parse_count(state, key, text, 60000000);
        break;
    case KEY_PIN:
        config->pin = true;
        break;
    case KEY_NO_CHECK:
        config->check = false;
        break;
    default:
        return false;
    }
    return true;
}

static bool parse_output(struct bench_request *request, struct argp_state *state, int key, const char *text)
{
    switch (key) {
    case KEY_JSON:
        request->json = text;
        break;
    case KEY_REPORT:
        request->report = text;
        break;
    case KEY_SENSITIVITY:
        request->sensitive = true;
        request->plan.config.fabric = BENCH_SIM;
        break;
    case KEY_OF:
        request->of = text;
        break;
    case KEY_ONLY:
        request->only = text;
        break;
    case KEY_JOBS:
        request->jobs = parse_count(state, key, text, 4096);
        if (!request->jobs)
            argp_error(state, "--jobs: at least one run at a time");
        break;
    case KEY_QUIET:
        request->quiet = true;
        break;
    case KEY_LIST:
        bench_list_names();
        exit(COMMAND_OK);
    default:
        return false;
    }
    return true;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct bench_request *request = state->input;
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'; every setting is an option", text);
    if (key == ARGP_KEY_END)
        bench_request_complete(request, state);
    if (key < KEY_WORKLOAD || key > KEY_NO_SWITCH + 1000)
        return ARGP_ERR_UNKNOWN;
    bool known = parse_what(request, state, key, text) || parse_where(request, state, key, text) ||
                 parse_output(request, state, key, text) || parse_switch(request, state, key, text);
    return known ? 0 : ARGP_ERR_UNKNOWN;
}

static void set_defaults(struct bench_request *request)
{
    struct bench_config *config = &request->plan.config;
    request->memory_nodes = request->compute_nodes = request->threads = request->fibers = BENCH_UNSET;
    request->keys = request->operations = request->warm_up = BENCH_UNSET;
    request->plan.pairs = 3;
    request->plan.peer_batch = 1000;
    *config = (struct bench_config){
        .fill = 0.8, .theta = 0.99, .scan_length = 100, .batch = 1, .seed = 1, .check = true};
    config->geometry =
        (struct format_geometry){.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8};
    sim_params_default(&config->sim);
    sim_faults_none(&config->faults);
}

void bench_request_read(struct bench_request *request, int argc, char **argv)
{
    struct bench_options *list = calloc(1, sizeof *list);
    if (!list) {
        fprintf(stderr, "banyan bench: no memory to read the options\n");
        exit(COMMAND_FAILED);
    }
    set_defaults(request);
    bench_options_make(list);
    argp_err_exit_status = COMMAND_USAGE;
    const struct argp parser = {.options = list->options, .parser = parse_option, .doc = bench_documentation};
    argp_parse(&parser, argc, argv, 0, NULL, request);
    free(list);
}

void bench_request_free(struct bench_request *request)
{
    if (request->tls)
        net_tls_destroy(request->tls);
    sensitivity_free(&request->sensitivity);
    explicit_bzero(request->secret, sizeof request->secret);
}
