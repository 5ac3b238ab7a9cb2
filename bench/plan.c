/* plan.c - see plan.h. */
#include "bench/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/batch.h"
#include "bench/ledger.h"
#include "bench/ownership.h"
#include "memory/memory.h"

/* ---- filling ---- */

typedef int plan_add(struct bench_plan *plan, const char *name, struct error *error);

static int add_each(struct bench_plan *plan, const char *names, plan_add *add, struct error *error)
{
    char *copy = strdup(names), *rest = copy;
    int status = copy ? 0 : error_set(error, BANYAN_ENOMEM, "no memory");
    while (!status && rest) {
        char *name = strsep(&rest, ",");
        status = add(plan, name, error);
    }
    free(copy);
    return status;
}

static int add_workload(struct bench_plan *plan, const char *name, struct error *error)
{
    if (plan->workload_count == BENCH_WORKLOADS_MAX)
        return error_set(error, BANYAN_EINVAL, "--workload: at most %d workloads in one run",
                         BENCH_WORKLOADS_MAX);
    int status = workload_find(&plan->workloads[plan->workload_count], name, error);
    plan->workload_count += !status;
    return status;
}

int bench_plan_add_workloads(struct bench_plan *plan, const char *names, struct error *error)
{
    int status = 0;
    if (strcmp(names, "all"))
        return add_each(plan, names, add_workload, error);
    for (size_t i = 0; !status && workload_name(i, NULL); i++)
        status = add_workload(plan, workload_name(i, NULL), error);
    return status;
}

static int add_distribution(struct bench_plan *plan, const char *name, struct error *error)
{
    for (unsigned i = 0; workload_distribution_names[i]; i++) {
        if (strcmp(workload_distribution_names[i], name))
            continue;
        if (plan->distribution_count == WORKLOAD_DISTRIBUTIONS)
            return error_set(error, BANYAN_EINVAL, "--distribution: each can be given once");
        plan->distributions[plan->distribution_count++] = (enum workload_distribution)i;
        return 0;
    }
    return error_set(error, BANYAN_EINVAL,
                     "--distribution: '%.40s' is not one of uniform, zipfian, scrambled", name);
}

int bench_plan_add_distributions(struct bench_plan *plan, const char *names, struct error *error)
{
    return add_each(plan, names, add_distribution, error);
}

static int add_preset(struct bench_plan *plan, const char *name, struct error *error)
{
    if (plan->preset_count == BENCH_PRESETS_MAX)
        return error_set(error, BANYAN_EINVAL, "--preset: at most %d presets in one run", BENCH_PRESETS_MAX);
    struct bench_preset *preset = &plan->presets[plan->preset_count];
    int status = bench_preset_find(preset, name, error);
    plan->preset_count += !status;
    return status;
}

int bench_plan_add_presets(struct bench_plan *plan, const char *names, struct error *error)
{
    int status = 0;
    if (strcmp(names, "all"))
        return add_each(plan, names, add_preset, error);
    for (size_t i = 0; !status && tree_switches_presets[i]; i++)
        status = add_preset(plan, tree_switches_presets[i], error);
    return status;
}

int bench_plan_set_leaf(struct bench_plan *plan, const char *name, struct error *error)
{
    if (!strcmp(name, "preset")) {
        plan->leaf = BENCH_LEAF_PRESET;
        return 0;
    }
    for (unsigned i = 0; format_leaf_kind_names[i]; i++)
        if (!strcmp(name, format_leaf_kind_names[i])) {
            plan->leaf = BENCH_LEAF_HASHED + i;
            return 0;
        }
    return error_set(error, BANYAN_EINVAL, "--leaf: '%.40s' is not one of preset, hashed, unsorted, dense",
                     name);
}

int bench_plan_set_ownership(struct bench_plan *plan, const char *name, struct error *error)
{
    static const char *const names[] = {"preset", "none", "static"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i])) {
            plan->ownership = (enum bench_ownership_choice)i;
            return 0;
        }
    return error_set(error, BANYAN_EINVAL, "--own: '%.40s' is not one of preset, none, static", name);
}

/* All compute nodes are full before another one is added, as in DEX 8.2. */
static void set_threads(struct bench_config *config, uint32_t threads)
{
    config->compute_nodes = (threads + config->threads - 1) / config->threads;
    config->threads = threads < config->threads ? threads : config->threads;
}

static uint32_t atomic_write(const struct bench_config *config)
{
    return config->fabric == BENCH_SIM ? config->sim.atomic_write : 4096;
}

void bench_plan_config(const struct bench_plan *plan, const struct bench_preset *preset,
                       struct bench_config *config)
{
    enum format_leaf_kind kind = bench_preset_leaf(preset);
    if (plan->leaf != BENCH_LEAF_PRESET)
        kind = (enum format_leaf_kind)(plan->leaf - BENCH_LEAF_HASHED);
    *config = plan->config;
    config->geometry.leaf_kind = (uint8_t)kind;
    config->ownership = preset->ownership;
    if (plan->ownership != BENCH_OWNERSHIP_PRESET)
        config->ownership = plan->ownership == BENCH_OWNERSHIP_STATIC ? BENCH_OWNED : BENCH_SHARED;
    config->move = preset->move;
    config->fail = preset->fail;
    config->route_any = config->route_any || preset->fail;
    config->log_copies = preset->log;
    if (preset->threads)
        set_threads(config, preset->threads);
    if (preset->servers)
        config->memory_nodes = preset->servers;
    if (preset->cores)
        config->sim.rpc_cores = preset->cores;
    if (!preset->values)
        return;
    struct error ignored; /* bench_plan_check has seen that it can be */
    bench_config_values(config, preset->values);
    format_geometry_complete(&config->geometry, atomic_write(config), &ignored);
}

void bench_plan_leaves(const struct bench_plan *plan, char *text, size_t size)
{
    struct bench_result results[BENCH_PRESETS_MAX] = {0};
    const struct bench_report report = {
        .config = &plan->config, .results = results, .count = plan->preset_count};
    for (unsigned i = 0; i < plan->preset_count; i++) {
        struct bench_config config;
        struct format_geometry_shape shape;
        bench_plan_config(plan, &plan->presets[i], &config);
        format_geometry_shape(&config.geometry, &shape);
        snprintf(results[i].preset, sizeof results[i].preset, "%s", plan->presets[i].name);
        results[i].leaf_kind = config.geometry.leaf_kind;
        results[i].leaf_slots = shape.slots;
    }
    report_leaves(&report, text, size);
}

/* ---- checking ---- */

static int check_range(const char *option, uint64_t value, uint64_t least, uint64_t most, struct error *error)
{
    if (value >= least && value <= most)
        return 0;
    return error_set(error, BANYAN_EINVAL, "--%s: %llu is not in %llu to %llu", option,
                     (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

static int check_numbers(const struct bench_config *config, struct error *error)
{
    const struct {
        const char *option;
        uint64_t value, least, most;
    } ranges[] = {
        {"memory-nodes", config->memory_nodes, 1, 4096},
        {"compute-nodes", config->compute_nodes, 1, 65000},
        {"threads", config->threads, 1, 4096},
        {"fibers", config->fibers, 1, 4096},
        {"operations", config->operations, 1, UINT64_C(1) << 50},
        {"keys", config->keys, 0, UINT64_C(1) << 40},
        {"scan-length", config->scan_length, 1, 1u << 24},
        {"batch", config->batch, 1, BENCH_BATCH_MAX},
        {"key-bytes", config->geometry.key_bytes, 8, FORMAT_KEY_MAX},
        {"value-bytes", bench_config_value_bytes(config), 0, BENCH_VALUE_MAX},
    };
    int status = 0;
    for (size_t i = 0; !status && i < sizeof ranges / sizeof ranges[0]; i++)
        status = check_range(ranges[i].option, ranges[i].value, ranges[i].least, ranges[i].most, error);
    uint64_t clients = (uint64_t)config->compute_nodes * config->threads * config->fibers;
    if (!status && clients > 1000000)
        status = error_set(
            error, BANYAN_EINVAL,
            "%llu clients (compute nodes x threads x fibers) are more than a million; ask for fewer",
            (unsigned long long)clients);
    if (!status && !(config->fill >= 0.1 && config->fill <= 1))
        status = error_set(error, BANYAN_EINVAL, "--fill: %g is not in 0.1 to 1", config->fill);
    return status;
}

/* A skew that none of the runs would have is a mistake too. */
static int check_skew(const struct bench_plan *plan, struct error *error)
{
    const struct bench_config *config = &plan->config;
    const struct workload_skew skew = {config->theta, config->skew_of};
    bool skewed = false;
    int status = 0;
    for (unsigned i = 0; !status && i < plan->workload_count; i++)
        for (unsigned j = 0; !status && j < plan->distribution_count; j++) {
            skewed |= workload_is_skewed(&plan->workloads[i], plan->distributions[j]);
            status = workload_skew_check(&skew, &plan->workloads[i], plan->distributions[j], config->keys,
                                         config->operations + config->warm_up, error);
        }
    if (!status && skew.of && !skewed)
        status = error_set(error, BANYAN_EINVAL,
                           "--skew-of: uniform draws have no skew; add --distribution zipfian or scrambled");
    return status;
}

static int check_fail(const struct bench_preset *preset, const struct bench_config *config,
                      struct error *error)
{
    if (config->fabric != BENCH_SIM || config->ownership != BENCH_OWNED || config->move ||
        config->compute_nodes < 3)
        return error_set(
            error, BANYAN_EINVAL,
            "preset '%s': a compute node fails on --fabric sim, with --own static, three compute "
            "nodes or more, and no range that is moved",
            preset->name);
    if (bench_config_value_bytes(config) < LEDGER_VALUE_LEAST)
        return error_set(error, BANYAN_EINVAL,
                         "preset '%s': what is read back after a failure needs values of %u bytes or more "
                         "(--value-bytes)",
                         preset->name, LEDGER_VALUE_LEAST);
    return 0;
}

/* Whether the operations that are run can go in batches. */
static int check_batch(const struct bench_plan *plan, struct error *error)
{
    for (unsigned i = 0; i < plan->workload_count; i++)
        if (!bench_batch_takes(&plan->workloads[i]))
            return error_set(error, BANYAN_EINVAL,
                             "--batch: workload '%s' has operations that go one by one; batches are of "
                             "lookups, upserts, inserts and updates",
                             plan->workloads[i].name);
    for (unsigned i = 0; i < plan->preset_count; i++) {
        struct bench_config config;
        bench_plan_config(plan, &plan->presets[i], &config);
        if (config.record_bytes)
            return error_set(error, BANYAN_EINVAL,
                             "--batch: preset '%s' has values of more than %u bytes, which go one by one "
                             "(--value-bytes)",
                             plan->presets[i].name, FORMAT_VALUE_MAX);
        if (config.fail)
            return error_set(error, BANYAN_EINVAL,
                             "--batch: preset '%s' reads back what each write did, so these go one by one",
                             plan->presets[i].name);
    }
    return 0;
}

/* The threads that presets name, and whether there are keys for as many ranges as owners. */
static int check_presets(const struct bench_plan *plan, struct error *error)
{
    for (unsigned i = 0; i < plan->preset_count; i++) {
        const struct bench_preset *preset = &plan->presets[i];
        struct bench_config config;
        bench_plan_config(plan, preset, &config);
        if (preset->threads && config.compute_nodes * config.threads != preset->threads)
            return error_set(error, BANYAN_EINVAL,
                             "preset '%s': %u threads do not fill compute nodes of %u (--threads)",
                             preset->name, preset->threads, config.threads);
        if ((preset->servers || preset->cores) && config.fabric != BENCH_SIM)
            return error_set(error, BANYAN_EINVAL,
                             "preset '%s': servers and cores are settings on --fabric sim", preset->name);
        if (config.move && (config.fabric != BENCH_SIM || config.ownership != BENCH_OWNED ||
                            config.route_any || config.compute_nodes < 2))
            return error_set(error, BANYAN_EINVAL,
                             "preset '%s': a range is moved on --fabric sim, with --own static, --route "
                             "owner and two compute nodes or more",
                             preset->name);
        int status = config.fail ? check_fail(preset, &config, error) : 0;
        if (status)
            return status;
        if (config.log_copies && (config.fabric != BENCH_SIM || config.ownership != BENCH_OWNED))
            return error_set(error, BANYAN_EINVAL,
                             "preset '%s': owners keep logs on --fabric sim, with --own static",
                             preset->name);
        if (config.log_copies > config.memory_nodes)
            return error_set(error, BANYAN_EINVAL,
                             "preset '%s': %u copies of the log need as many memory nodes (--memory-nodes)",
                             preset->name, config.log_copies);
        if (config.route_any && (config.ownership != BENCH_OWNED || config.fabric != BENCH_SIM))
            return error_set(
                error, BANYAN_EINVAL,
                "--route any: preset '%s' has no ownership, so nothing is forwarded; or the fabric "
                "is not sim (--fabric sim --own static)",
                preset->name);
        if (config.record_bytes && config.fabric != BENCH_SIM && config.fabric != BENCH_LOCAL)
            return error_set(error, BANYAN_EINVAL,
                             "--value-bytes: values of more than %u bytes are for --fabric local and sim",
                             FORMAT_VALUE_MAX);
        struct format_geometry geometry = plan->config.geometry;
        if (preset->values) {
            struct bench_config other = {.geometry = plan->config.geometry};
            bench_config_values(&other, preset->values);
            geometry = other.geometry;
        }
        status = format_geometry_complete(&geometry, atomic_write(&config), error);
        if (status)
            return status;
        uint64_t keys = config.keys ? config.keys : config.operations + config.warm_up;
        const uint64_t ranges = (uint64_t)config.compute_nodes * bench_ranges_each(&config);
        if (config.ownership == BENCH_OWNED && ranges > (keys + 1) / 2)
            return error_set(error, BANYAN_EINVAL,
                             "preset '%s': %u compute nodes cannot own %llu ranges of %llu keys; give more "
                             "--keys, fewer --compute-nodes, or --own none",
                             preset->name, config.compute_nodes, (unsigned long long)ranges,
                             (unsigned long long)keys);
    }
    return 0;
}

/* Memory is only promised when a pool is made, and a run that takes more than there is would be killed, or
 * worse, its neighbours: so what the keys will need is checked before. The geometry is complete. */
static int check_memory(const struct bench_plan *plan, struct error *error)
{
    const struct bench_config *config = &plan->config;
    struct format_geometry_shape shape;
    format_geometry_shape(&config->geometry, &shape);
    double inserts = 0;
    for (unsigned i = 0; i < plan->workload_count; i++) {
        const double *share = plan->workloads[i].share;
        if (share[WORKLOAD_INSERT] > inserts)
            inserts = share[WORKLOAD_INSERT];
    }
    double entries =
        (double)config->keys / config->fill + inserts * (double)(config->operations + config->warm_up);
    double needed = entries / shape.slots * config->geometry.leaf_bytes + entries * config->record_bytes;
    double there = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (needed < there * 0.9)
        return 0;
    return error_set(
        error, BANYAN_EINVAL,
        "--keys: this needs about %.0f GiB and the machine has %.0f; ask for fewer --keys or --operations",
        needed / 0x1p30, there / 0x1p30);
}

static int check_pool(const struct bench_config *config, struct error *error)
{
    uint64_t chunk = config->chunk_bytes ? config->chunk_bytes : MEMORY_CHUNK_MOST;
    if (chunk < UINT64_C(64) << 10 || chunk > UINT64_C(1) << 30 || (chunk & (chunk - 1)))
        return error_set(error, BANYAN_EINVAL, "--chunk-bytes: %llu is not a power of two from 64K to 1G",
                         (unsigned long long)chunk);
    uint64_t least = MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES) + config->chunk_bytes;
    if (config->pool_bytes && config->pool_bytes < least)
        return error_set(error, BANYAN_EINVAL,
                         "--pool-bytes: %llu is less than the %llu that one chunk needs",
                         (unsigned long long)config->pool_bytes, (unsigned long long)least);
    if (config->log_bytes && (config->log_bytes < MEMORY_LOG_BYTES_LEAST ||
                              (config->pool_bytes && config->log_bytes > config->pool_bytes / 2)))
        return error_set(error, BANYAN_EINVAL, "--log-bytes: %llu is not from 512K to half of --pool-bytes",
                         (unsigned long long)config->log_bytes);
    return 0;
}

int bench_plan_check(struct bench_plan *plan, struct error *error)
{
    struct bench_config *config = &plan->config;
    int status = check_numbers(config, error);
    if (!status && config->fabric == BENCH_SIM)
        status = sim_params_check(&config->sim, error);
    if (!status && plan->peer && config->fabric != BENCH_LOCAL)
        status = error_set(error, BANYAN_EINVAL, "--peer compares real time: use it with --fabric local");
    if (!status && plan->peer)
        status = check_range("pairs", plan->pairs, 1, 1000, error);
    if (!status && plan->peer)
        status = check_range("peer-batch", plan->peer_batch, 1, 1000000, error);
    for (unsigned i = 0; !status && !config->keys && i < plan->workload_count; i++)
        if (plan->workloads[i].share[WORKLOAD_INSERT] <= 0)
            status =
                error_set(error, BANYAN_EINVAL,
                          "--keys 0: workload '%s' needs loaded keys; only one that inserts can start empty",
                          plan->workloads[i].name);
    if (!status)
        status = check_skew(plan, error);
    if (!status)
        status = check_presets(plan, error);
    if (!status && config->batch > 1)
        status = check_batch(plan, error);
    if (!status)
        status = check_pool(config, error);
    if (!status && plan->peer && config->record_bytes)
        status = error_set(error, BANYAN_EINVAL, "--peer: values have at most %u bytes (--value-bytes)",
                           FORMAT_VALUE_MAX);
    if (!status)
        status = format_geometry_complete(&config->geometry, atomic_write(config), error);
    return status ? status : check_memory(plan, error);
}

/* ---- running ---- */

struct running {
    const struct bench_plan *plan;
    struct workload_source source;
    struct bench_result *results;
    size_t count, capacity;
};

static struct bench_result *next_result(struct running *running, struct error *error)
{
    if (running->count == running->capacity) {
        size_t capacity = running->capacity * 2 + 8;
        struct bench_result *grown = realloc(running->results, capacity * sizeof *grown);
        if (!grown) {
            error_set(error, BANYAN_ENOMEM, "no memory for results");
            return NULL;
        }
        running->results = grown;
        running->capacity = capacity;
    }
    struct bench_result *result = &running->results[running->count];
    memset(result, 0, sizeof *result);
    return result;
}

static void announce(const struct running *running, const char *preset)
{
    const struct bench_plan *plan = running->plan;
    char text[256];
    snprintf(text, sizeof text, "%s, %s, %s", running->source.workload->name,
             workload_distribution_names[running->source.distribution], preset);
    if (plan->begun)
        plan->begun(plan->begun_context, text);
}

static int finish(struct running *running, struct bench_result *result, int status)
{
    if (status)
        bench_result_release(result);
    else
        running->count++;
    return status;
}

static int run_preset(struct running *running, const struct bench_preset *preset, struct error *error)
{
    struct bench_result *result = next_result(running, error);
    if (!result)
        return BANYAN_ENOMEM;
    struct bench_config config;
    bench_plan_config(running->plan, preset, &config);
    announce(running, preset->name);
    snprintf(result->preset, sizeof result->preset, "%s", preset->name);
    result->switches = preset->switches;
    return finish(running, result, bench_run(&config, &preset->switches, &running->source, result, error));
}

static int run_peer(struct running *running, uint32_t batch, struct error *error)
{
    const struct bench_plan *plan = running->plan;
    struct bench_result *result = next_result(running, error);
    if (!result)
        return BANYAN_ENOMEM;
    announce(running, plan->peer->name);
    return finish(running, result, plan->peer->run(&plan->config, &running->source, batch, result, error));
}

static int run_pair(struct running *running, struct error *error)
{
    const struct bench_plan *plan = running->plan;
    int status = 0;
    for (unsigned i = 0; i < plan->preset_count && !status; i++)
        status = run_preset(running, &plan->presets[i], error);
    if (!plan->peer || status)
        return status;
    status = run_peer(running, 1, error);
    if (!status && plan->peer_batch > 1 && workload_writes(running->source.workload))
        status = run_peer(running, plan->peer_batch, error);
    return status;
}

static int run_group(struct running *running, const struct workload *workload,
                     enum workload_distribution distribution, struct error *error)
{
    const struct bench_plan *plan = running->plan;
    const struct bench_config *config = &plan->config;
    const struct workload_skew skew = {config->theta, config->skew_of};
    struct workload_source source;
    int status =
        workload_source_init(&source, workload, distribution, &skew, config->keys,
                             config->operations + config->warm_up, config->scan_length, config->seed, error);
    if (status)
        return status;
    running->source = source;
    for (unsigned pair = 0; !status && pair < (plan->peer ? plan->pairs : 1); pair++)
        status = run_pair(running, error);
    return status;
}

int bench_plan_run(const struct bench_plan *plan, struct bench_result **results, size_t *count,
                   struct error *error)
{
    struct running running = {.plan = plan};
    int status = 0;
    for (unsigned i = 0; i < plan->workload_count && !status; i++)
        for (unsigned j = 0; j < plan->distribution_count && !status; j++)
            status = run_group(&running, &plan->workloads[i], plan->distributions[j], error);
    *results = running.results;
    *count = running.count;
    return status;
}

void bench_results_free(struct bench_result *results, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bench_result_release(&results[i]);
    free(results);
}
