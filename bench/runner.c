/* runner.c - one run from its empty pool to its numbers; see runner.h. */
#include "bench/runner.h"

#include <stdio.h>
#include <string.h>
#include "bench/pool.h"
#include "bench/runner_local.h"
#include "bench/runner_sim.h"
#include "format/value.h"

const char *const bench_fabric_names[] = {"local", "sim", "tcp", "unix", "rdma"};

void bench_config_values(struct bench_config *config, uint32_t bytes)
{
    bool records = bytes > FORMAT_VALUE_MAX;
    config->record_bytes = records ? bytes : 0;
    config->geometry.value_bytes = (uint8_t)(records ? FORMAT_REFERENCE_BYTES : bytes);
    config->geometry.value_variable = records;
    config->geometry.content = records ? FORMAT_CONTENT_STORE : FORMAT_CONTENT_PLAIN;
}

static double seconds_since(uint64_t begin)
{
    return (double)(task_now() - begin) / 1e9;
}

int bench_run(const struct bench_config *config, const struct tree_switches *switches,
              struct workload_source *source, struct bench_result *result, struct error *error)
{
    struct bench_pool pool;
    snprintf(result->workload, sizeof result->workload, "%s", source->workload->name);
    snprintf(result->distribution, sizeof result->distribution, "%s",
             workload_distribution_names[source->distribution]);
    result->scan_length = source->scan_length;
    source->inserted = 0;
    struct format_geometry_shape shape;
    format_geometry_shape(&config->geometry, &shape);
    result->ownership = config->ownership;
    result->compute_nodes = config->compute_nodes;
    result->threads = config->threads;
    result->leaf_kind = config->geometry.leaf_kind;
    result->leaf_slots = shape.slots;
    result->records = config->record_bytes > 0;
    uint64_t begin = task_now();
    int status = bench_pool_create(&pool, config, source, error);
    if (!status)
        status = bench_pool_load(&pool, config, switches, source, error);
    result->load_seconds = seconds_since(begin);
    if (!status)
        status = bench_pool_check(&pool, config, switches, &result->loaded, error);
    if (!status && config->fabric == BENCH_SIM)
        status = bench_measure_sim(&pool, config, switches, source, result, error);
    else if (!status)
        status = bench_measure_local(&pool, config, switches, source, result, error);
    if (!status)
        status = bench_pool_check(&pool, config, switches, &result->ended, error);
    bench_pool_destroy(&pool);
    return status;
}
