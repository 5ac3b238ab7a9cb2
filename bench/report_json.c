/* report_json.c - results for programs; see report.h and docs/benchmarks.md for the names. */
#include <jansson.h>
#include <stdlib.h>
#include "bench/config_json.h"
#include "bench/json_numbers.h"
#include "bench/report.h"

/* By these names they are parameters of the simulator too. */
static json_t *capabilities_json(const struct fabric_capabilities *capabilities)
{
    json_t *json = json_object();
    json_object_set_new(json, "lock-width", json_unsigned(capabilities->lock_width));
    json_object_set_new(json, "release-by-write", json_boolean(capabilities->release_by_write));
    json_object_set_new(json, "masked-cas", json_boolean(capabilities->masked_cas));
    json_object_set_new(json, "atomic-write", json_unsigned(capabilities->atomic_write));
    return json;
}

static json_t *latency_json(const struct histogram *latency)
{
    json_t *json = json_object();
    json_object_set_new(json, "p50", json_real(report_quantile_us(latency, 0.5)));
    json_object_set_new(json, "p90", json_real(report_quantile_us(latency, 0.9)));
    json_object_set_new(json, "p99", json_real(report_quantile_us(latency, 0.99)));
    json_object_set_new(json, "p999", json_real(report_quantile_us(latency, 0.999)));
    json_object_set_new(json, "mean", json_real(latency ? histogram_mean(latency) / 1e3 : 0));
    json_object_set_new(json, "max", json_real(latency ? (double)histogram_max(latency) / 1e3 : 0));
    return json;
}

static json_t *cost_json(const struct fabric_cost *cost, uint64_t operations)
{
    double of = operations ? (double)operations : 1;
    json_t *json = json_object();
    json_object_set_new(json, "round_trips", json_real((double)cost->round_trips / of));
    json_object_set_new(json, "lists", json_real((double)cost->lists / of));
    json_object_set_new(json, "reads", json_real((double)cost->reads / of));
    json_object_set_new(json, "writes", json_real((double)cost->writes / of));
    json_object_set_new(json, "atomics", json_real((double)cost->atomics / of));
    json_object_set_new(json, "rpcs", json_real((double)cost->rpcs / of));
    json_object_set_new(json, "peer_calls", json_real((double)cost->peer_calls / of));
    json_object_set_new(json, "bytes_read", json_real((double)cost->bytes_read / of));
    json_object_set_new(json, "bytes_written", json_real((double)cost->bytes_written / of));
    return json;
}

static json_t *kinds_json(const struct bench_result *result)
{
    json_t *json = json_object();
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
        const struct bench_kind *of_kind = &result->kinds[kind];
        if (!of_kind->count)
            continue;
        json_t *item = json_object();
        json_object_set_new(item, "operations", json_unsigned(of_kind->count));
        json_object_set_new(item, "latency_us", latency_json(of_kind->latency));
        if (!result->peer)
            json_object_set_new(item, "per_op", cost_json(&of_kind->cost, of_kind->count));
        json_object_set_new(json, workload_kind_names[kind], item);
    }
    return json;
}

static json_t *space_json(const struct bench_space *space)
{
    json_t *json = json_object();
    json_object_set_new(json, "pool_bytes", json_unsigned(space->pool_bytes));
    if (space->entries) {
        json_object_set_new(json, "entries", json_unsigned(space->entries));
        json_object_set_new(json, "leaves", json_unsigned(space->leaves));
        json_object_set_new(json, "height", json_unsigned(space->height));
        json_object_set_new(json, "index_bytes", json_unsigned(space->index_bytes));
        json_object_set_new(json, "bytes_per_entry",
                            json_real(report_bytes_per_entry(space->index_bytes, space->entries)));
        json_object_set_new(json, "pool_bytes_per_entry",
                            json_real(report_bytes_per_entry(space->pool_bytes, space->entries)));
    }
    return json;
}

static void add_simulation(json_t *json, const struct bench_result *result)
{
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)result->trace_hash);
    json_object_set_new(json, "trace_hash", json_string(hash));
    json_object_set_new(json, "events", json_unsigned(result->events));
}

static json_t *cache_kind_json(const struct tree_cache_kind *kind, uint64_t operations)
{
    double of = operations ? (double)operations : 1;
    json_t *json = json_object();
    json_object_set_new(json, "hits", json_real((double)kind->hits / of));
    json_object_set_new(json, "misses", json_real((double)kind->misses / of));
    json_object_set_new(json, "admissions", json_real((double)kind->admissions / of));
    json_object_set_new(json, "evictions", json_real((double)kind->evictions / of));
    json_object_set_new(json, "bytes", json_unsigned(kind->bytes));
    return json;
}

/* Of all compute nodes: hits and the like per operation, bytes at the window's end. */
static json_t *cache_json(const struct bench_result *result)
{
    const struct tree_cache_stats *cache = &result->cache;
    const struct tree_cache_kind inner = {.hits = result->cache_hits,
                                          .misses = result->cache_misses,
                                          .admissions = cache->admissions,
                                          .evictions = cache->evictions,
                                          .bytes = cache->bytes};
    json_t *json = json_object();
    json_object_set_new(json, "inner", cache_kind_json(&inner, result->operations));
    json_object_set_new(json, "leaves", cache_kind_json(&cache->leaves, result->operations));
    json_object_set_new(json, "entries", cache_kind_json(&cache->entries, result->operations));
    json_object_set_new(json, "values", cache_kind_json(&cache->values, result->operations));
    json_object_set_new(json, "shortcut_hits", json_real(report_per_operation(result, cache->shortcut_hits)));
    json_object_set_new(json, "promotions", json_real(report_per_operation(result, cache->promotions)));
    json_object_set_new(json, "demotions", json_real(report_per_operation(result, cache->demotions)));
    json_object_set_new(json, "busy", json_real(report_per_operation(result, cache->busy)));
    return json;
}

static json_t *log_json(const struct bench_result *result)
{
    json_t *json = json_object();
    json_object_set_new(json, "merging_per_op", cost_json(&result->log_cost, result->operations));
    json_object_set_new(json, "entries", json_unsigned(result->log_entries));
    json_object_set_new(json, "commits", json_unsigned(result->log_commits));
    json_object_set_new(json, "merged", json_unsigned(result->log_merged));
    json_object_set_new(json, "bytes", json_unsigned(result->log_bytes));
    json_object_set_new(json, "waits", json_unsigned(result->log_waits));
    json_object_set_new(json, "wait_longest_us", json_real((double)result->log_wait_longest_ns / 1e3));
    json_object_set_new(json, "logged_mops",
                        json_real((double)result->log_entries * 1e3 / (double)result->window_ns));
    json_object_set_new(json, "merged_mops",
                        json_real((double)result->log_merged * 1e3 / (double)result->window_ns));
    json_object_set_new(json, "held_back", json_unsigned(result->log_held));
    json_object_set_new(json, "held_back_longest_us", json_real((double)result->log_held_longest_ns / 1e3));
    json_object_set_new(json, "cycles", json_unsigned(result->log_cycles));
    json_object_set_new(json, "cycle_longest_us", json_real((double)result->log_cycle_longest_ns / 1e3));
    json_object_set_new(json, "lag_us", json_real((double)result->log_lag_ns / 1e3));
    json_object_set_new(json, "lag", json_unsigned(result->log_lag));
    json_object_set_new(json, "unmerged", json_unsigned(result->log_unmerged));
    return json;
}

/* The throughput in each interval of the window. */
static void add_timeline(json_t *json, const struct bench_timeline *timeline)
{
    json_t *mops = json_array();
    for (size_t i = 0; i < timeline->length; i++)
        json_array_append_new(mops, json_real((double)timeline->counts[i] * 1e3 / BENCH_INTERVAL_NS));
    json_object_set_new(json, "interval_us", json_real(BENCH_INTERVAL_NS / 1e3));
    json_object_set_new(json, "mops", mops);
}

static json_t *move_json(const struct bench_result *result)
{
    json_t *json = json_object();
    json_object_set_new(json, "begin_us", json_real((double)result->move_begin_ns / 1e3));
    json_object_set_new(json, "took_us", json_real((double)result->move_ns / 1e3));
    json_object_set_new(json, "cached_bytes", json_unsigned(result->move_cached));
    add_timeline(json, &result->timeline);
    return json;
}

static json_t *around_json(double mops, const struct histogram *latency)
{
    json_t *json = json_object();
    json_object_set_new(json, "throughput_mops", json_real(mops));
    json_object_set_new(json, "latency_us", latency_json(latency));
    return json;
}

static json_t *fail_json(const struct bench_result *result)
{
    const struct bench_failure *failure = &result->failure;
    json_t *json = json_object();
    json_object_set_new(json, "begin_us", json_real((double)failure->begin_ns / 1e3));
    json_object_set_new(json, "ranges", json_unsigned(failure->ranges));
    json_object_set_new(json, "unmerged", json_unsigned(failure->unmerged));
    json_object_set_new(json, "log_bytes", json_unsigned(failure->log_bytes));
    json_object_set_new(json, "inherited", json_unsigned(failure->inherited));
    json_object_set_new(json, "served_us", json_real((double)failure->served_ns / 1e3));
    json_object_set_new(json, "before", around_json(failure->before_mops, failure->before));
    json_object_set_new(json, "after", around_json(failure->after_mops, failure->after));
    json_object_set_new(json, "lowest_mops", json_real(failure->lowest_mops));
    json_object_set_new(json, "halved_us", json_real((double)failure->halved_ns / 1e3));
    json_object_set_new(json, "unknown", json_unsigned(failure->unknown));
    json_object_set_new(json, "read_back", json_unsigned(failure->read_back));
    add_timeline(json, &result->timeline);
    return json;
}

static json_t *result_json(const struct bench_report *report, const struct bench_result *result)
{
    json_t *json = json_object();
    json_object_set_new(json, "preset", json_string(result->preset));
    json_object_set_new(json, "workload", json_string(result->workload));
    json_object_set_new(json, "distribution", json_string(result->distribution));
    json_object_set_new(json, "throughput_mops", json_real(result->throughput_mops));
    json_object_set_new(json, "latency_us", latency_json(result->latency));
    json_object_set_new(json, "operations", json_unsigned(result->operations));
    json_object_set_new(json, "window_us", json_real((double)result->window_ns / 1e3));
    json_object_set_new(json, "absent", json_unsigned(result->absent));
    json_object_set_new(json, "unfinished", json_unsigned(result->unfinished));
    json_object_set_new(json, "unfinished_longest_us",
                        json_real((double)result->unfinished_longest_ns / 1e3));
    json_object_set_new(json, "by_kind", kinds_json(result));
    json_object_set_new(json, "loaded", space_json(&result->loaded));
    json_object_set_new(json, "ended", space_json(&result->ended));
    if (report_scans(result))
        json_object_set_new(json, "entries_scanned", json_unsigned(result->entries_scanned));
    json_object_set_new(json, "peer", json_boolean(result->peer));
    if (result->peer)
        return json;
    if (result->compute_nodes) {
        json_object_set_new(json, "compute_nodes", json_unsigned(result->compute_nodes));
        json_object_set_new(json, "threads", json_unsigned(result->threads));
        json_object_set_new(json, "own", json_string(bench_ownership_names[result->ownership]));
    }
    if (result->logged)
        json_object_set_new(json, "log", log_json(result));
    if (result->move_ns)
        json_object_set_new(json, "move", move_json(result));
    if (result->failure.begin_ns)
        json_object_set_new(json, "fail", fail_json(result));
    json_object_set_new(json, "leaf", json_string(format_leaf_kind_names[result->leaf_kind]));
    json_object_set_new(json, "leaf_slots", json_unsigned(result->leaf_slots));
    json_object_set_new(json, "capabilities", capabilities_json(&result->capabilities));
    json_object_set_new(json, "per_op", cost_json(&result->cost, result->operations));
    json_object_set_new(json, "retries", json_real(report_per_operation(result, result->retries)));
    json_object_set_new(json, "cache_hit", json_real(report_cache_hit(result)));
    json_object_set_new(json, "cache", cache_json(result));
    json_object_set_new(json, "splits", json_unsigned(result->splits));
    json_object_set_new(json, "unlinks", json_unsigned(result->unlinks));
    json_object_set_new(json, "handovers", json_unsigned(result->handovers));
    json_object_set_new(json, "snapshot_handovers", json_unsigned(result->snapshot_handovers));
    json_object_set_new(json, "combined", json_unsigned(result->combined));
    json_object_set_new(json, "switches", config_json_table(tree_switches_table, &result->switches));
    if (report->config->fabric == BENCH_SIM)
        add_simulation(json, result);
    return json;
}

struct json_t *report_json_object(const struct bench_report *report)
{
    json_t *json = json_object(), *results = json_array();
    json_t *config = config_json(report->config);
    if (report->peer_settings)
        json_object_set_new(config, "peer_settings", json_string(report->peer_settings));
    json_object_set_new(json, "config", config);
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(results, result_json(report, &report->results[i]));
    json_object_set_new(json, "results", results);
    return json;
}

int report_json_write(struct json_t *json, FILE *file)
{
    if (!json)
        return BANYAN_ENOMEM;
    int failed = json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(json);
    if (!failed)
        failed = fputc('\n', file) == EOF;
    return failed ? BANYAN_EUNKNOWN : 0;
}

int report_json(const struct bench_report *report, FILE *file)
{
    return report_json_write(report_json_object(report), file);
}
