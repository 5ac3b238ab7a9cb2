/* report_table.c - results as text; see report.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/report.h"

/* ---- shared ---- */

double report_cache_hit(const struct bench_result *result)
{
    uint64_t wanted = result->cache_hits + result->cache_misses;
    return wanted ? (double)result->cache_hits / (double)wanted : 1;
}

double report_quantile_us(const struct histogram *latency, double quantile)
{
    return latency ? (double)histogram_quantile(latency, quantile) / 1e3 : 0;
}

bool report_mixed(const struct bench_result *result)
{
    int kinds = 0;
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++)
        kinds += result->kinds[kind].count > 0;
    return kinds > 1;
}

bool report_scans(const struct bench_result *result)
{
    return result->kinds[WORKLOAD_SCAN].count > 0 || result->kinds[WORKLOAD_REVERSE_SCAN].count > 0;
}

double report_bytes_per_entry(uint64_t bytes, uint64_t entries)
{
    return entries ? (double)bytes / (double)entries : 0;
}

bool report_same_group(const struct bench_result *a, const struct bench_result *b)
{
    return !strcmp(a->workload, b->workload) && !strcmp(a->distribution, b->distribution) &&
           a->scan_length == b->scan_length;
}

size_t report_group_end(const struct bench_report *report, size_t begin)
{
    size_t end = begin;
    while (end < report->count && report_same_group(&report->results[begin], &report->results[end]))
        end++;
    return end;
}

void report_configuration(const struct bench_report *report, char *text, size_t size)
{
    const struct bench_config *config = report->config;
    char skew_of[48] = "";
    char batch[48] = "";
    if (config->batch > 1)
        snprintf(batch, sizeof batch, ", batches of %u", config->batch);
    if (config->skew_of)
        snprintf(skew_of, sizeof skew_of, " as among %llu keys", (unsigned long long)config->skew_of);
    snprintf(
        text, size,
        "fabric %s, %u memory node%s, %u compute node%s x %u thread%s x %u fiber%s; %llu keys of %u bytes, "
        "values of "
        "%u, leaves of %u bytes filled to %.2f; theta %.2f%s, scan length %u%s; %llu operations after %llu "
        "of "
        "warm-up; seed %llu",
        config->fabric == BENCH_SIM ? "sim (virtual time)" : bench_fabric_names[config->fabric],
        config->memory_nodes, config->memory_nodes == 1 ? "" : "s", config->compute_nodes,
        config->compute_nodes == 1 ? "" : "s", config->threads, config->threads == 1 ? "" : "s",
        config->fibers, config->fibers == 1 ? "" : "s", (unsigned long long)config->keys,
        config->geometry.key_bytes, bench_config_value_bytes(config), config->geometry.leaf_bytes,
        config->fill, config->theta, skew_of, config->scan_length, batch,
        (unsigned long long)config->operations, (unsigned long long)config->warm_up,
        (unsigned long long)config->seed);
}

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* A preset without the settings that its name adds (presets.h). */
static size_t base_length(const char *preset)
{
    return strcspn(preset, "@");
}

static bool same_base(const char *a, const char *b)
{
    return base_length(a) == base_length(b) && !strncmp(a, b, base_length(a));
}

/* Whether an earlier result is of the same preset, whatever its settings, and the same kind of leaf. */
static bool leaf_named(const struct bench_report *report, size_t index)
{
    const struct bench_result *result = &report->results[index];
    for (size_t i = 0; i < index; i++)
        if (!report->results[i].peer && report->results[i].leaf_kind == result->leaf_kind &&
            same_base(report->results[i].preset, result->preset))
            return true;
    return false;
}

void report_leaves(const struct bench_report *report, char *text, size_t size)
{
    snprintf(text, size, "%s", report->count ? "leaves:" : "");
    for (unsigned kind = FORMAT_LEAF_KIND_LAST + 1; kind-- > 0;) {
        bool begun = false;
        for (size_t i = 0; i < report->count; i++) {
            const struct bench_result *result = &report->results[i];
            if (result->peer || !result->leaf_slots || result->leaf_kind != kind || leaf_named(report, i))
                continue; /* runs without an index have no leaf */
            if (!begun)
                append(text, size, "%s %s (%u slots):", text[strlen(text) - 1] == ':' ? "" : ";",
                       format_leaf_kind_names[kind], result->leaf_slots);
            append(text, size, "%s %.*s", begun ? "," : "", (int)base_length(result->preset), result->preset);
            begun = true;
        }
    }
    if (!strcmp(text, "leaves:"))
        text[0] = 0;
}

/* ---- the table ---- */

static void print_number(FILE *file, int width, double value)
{
    if (isnan(value))
        fprintf(file, " %*s", width, "");
    else if (value >= 99999.5)
        fprintf(file, " %*.3g", width, value);
    else
        fprintf(file, " %*.*f", width, value >= 1000 ? 0 : value >= 100 ? 1 : 2, value);
}

static void print_quantiles(FILE *file, const struct histogram *latency)
{
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
        print_number(file, 9, report_quantile_us(latency, quantiles[i]));
}

static void print_costs(FILE *file, const struct fabric_cost *cost, uint64_t operations, bool peer)
{
    double of = operations ? (double)operations : 1;
    if (peer) {
        fprintf(file, "  %s", "-");
        return;
    }
    print_number(file, 7, (double)cost->round_trips / of);
    print_number(file, 7, (double)cost->reads / of);
    print_number(file, 7, (double)cost->writes / of);
    print_number(file, 7, (double)cost->atomics / of);
    fprintf(file, " %7.4f", (double)(cost->rpcs + cost->peer_calls) / of);
    print_number(file, 8, (double)cost->bytes_read / of);
    print_number(file, 8, (double)cost->bytes_written / of);
}

static void print_result(FILE *file, const struct bench_result *result)
{
    fprintf(file, "%-24s", result->preset);
    print_number(file, 9, result->throughput_mops);
    print_quantiles(file, result->latency);
    print_costs(file, &result->cost, result->operations, result->peer);
    if (!result->peer)
        fprintf(file, " %8.4f %7.2f", report_per_operation(result, result->retries),
                100 * report_cache_hit(result));
    fputc('\n', file);
}

/* One line for each kind of a mixed workload. */
static void print_kinds(FILE *file, const struct bench_result *result)
{
    for (int kind = 0; kind < WORKLOAD_KINDS && report_mixed(result); kind++) {
        const struct bench_kind *of_kind = &result->kinds[kind];
        if (!of_kind->count)
            continue;
        fprintf(file, "  %-22s", workload_kind_names[kind]);
        print_number(file, 9, report_kind_mops(result, kind));
        print_quantiles(file, of_kind->latency);
        print_costs(file, &of_kind->cost, of_kind->count, result->peer);
        fputc('\n', file);
    }
}

/* Whether merging keeps up, and what writers wait for it. */
static void print_lag(FILE *file, const struct bench_result *result)
{
    const double window = (double)(result->window_ns ? result->window_ns : 1) / 1e3;
    const double held = (double)(result->log_held ? result->log_held : 1);
    fprintf(
        file,
        "  log: %.2f Mops logged, %.2f merged; at the end it is %.1f ms behind, %llu keys; %llu cycles, the "
        "longest %.1f ms\n",
        (double)result->log_entries / window, (double)result->log_merged / window,
        (double)result->log_lag_ns / 1e6, (unsigned long long)result->log_unmerged,
        (unsigned long long)result->log_cycles, (double)result->log_cycle_longest_ns / 1e6);
    fprintf(file,
            "  log: %llu of %llu commits held back for merging, the mean %.3f ms, the longest %.1f ms; %llu "
            "waited for room, the longest %.1f ms\n",
            (unsigned long long)result->log_held, (unsigned long long)result->log_commits,
            (double)result->log_held_ns / held / 1e6, (double)result->log_held_longest_ns / 1e6,
            (unsigned long long)result->log_waits, (double)result->log_wait_longest_ns / 1e6);
}

/* What owners' logs did: merging is in the costs above, as a line of its own here. */
static void print_log(FILE *file, const struct bench_result *result)
{
    if (!result->logged)
        return;
    fprintf(file, "  %-22s %9s %9s %9s %9s %9s", "merging", "", "", "", "", "");
    print_costs(file, &result->log_cost, result->operations, false);
    fprintf(file, "\n  log: %.1f entries a commit, %.2f of them merged, %.0f bytes logged an entry\n",
            result->log_commits ? (double)result->log_entries / (double)result->log_commits : 0,
            result->log_entries ? (double)result->log_merged / (double)result->log_entries : 0,
            result->log_entries ? (double)result->log_bytes / (double)result->log_entries : 0);
    print_lag(file, result);
}

static void print_around(FILE *file, const char *when, double mops, const struct histogram *latency)
{
    fprintf(file, "%s %.2f Mops, mean %.1f us, p99 %.1f us", when, mops,
            latency ? histogram_mean(latency) / 1e3 : 0, report_quantile_us(latency, 0.99));
}

/* The death of a compute node, and what became of it. */
static void print_failure(FILE *file, const struct bench_result *result)
{
    const struct bench_failure *failure = &result->failure;
    if (!failure->begin_ns)
        return;
    fprintf(
        file,
        "  a compute node died after %.2f ms with %u ranges, %llu keys unmerged and %.2f MiB of log; %llu "
        "entries were inherited, and its last range was served again after %.2f ms\n  ",
        (double)failure->begin_ns / 1e6, failure->ranges, (unsigned long long)failure->unmerged,
        (double)failure->log_bytes / 1048576, (unsigned long long)failure->inherited,
        (double)failure->served_ns / 1e6);
    print_around(file, "before:", failure->before_mops, failure->before);
    fprintf(file, "; ");
    print_around(file, "from then on:", failure->after_mops, failure->after);
    fprintf(
        file,
        ", the longest %.2f ms; %.2f Mops at the lowest, less than half for %.1f ms\n  %llu writes without "
        "an answer were begun again; at the end %llu keys were read back, and no acknowledged write was "
        "lost\n",
        failure->after ? (double)histogram_max(failure->after) / 1e6 : 0, failure->lowest_mops,
        (double)failure->halved_ns / 1e6, (unsigned long long)failure->unknown,
        (unsigned long long)failure->read_back);
}

static void print_group_head(FILE *file, const struct bench_result *result)
{
    fprintf(file, "\n%s, %s", result->workload, result->distribution);
    if (report_scans(result))
        fprintf(file, ", scans of %u", result->scan_length);
    fprintf(file, "\n%-24s %9s %9s %9s %9s %9s %7s %7s %7s %7s %7s %8s %8s %8s %7s\n", "preset", "Mops",
            "p50 us", "p90 us", "p99 us", "p99.9 us", "trips", "reads", "writes", "atomics", "calls",
            "B read", "B writ", "retries", "cache %");
}

static void print_space(FILE *file, const char *when, const struct bench_space *space)
{
    if (space->entries)
        fprintf(file, "%s %.1f bytes per entry in nodes, %.1f in chunks; ", when,
                report_bytes_per_entry(space->index_bytes, space->entries),
                report_bytes_per_entry(space->pool_bytes, space->entries));
    else
        fprintf(file, "%s %.1f MiB in chunks; ", when, (double)space->pool_bytes / 1048576.0);
}

static void print_details(FILE *file, const struct bench_result *result, bool simulated)
{
    fprintf(file, "  %-22s ", result->preset);
    print_space(file, "loaded:", &result->loaded);
    print_space(file, "after the run:", &result->ended);
    fprintf(file, "key absent in %.2f %%; %llu unfinished at the end",
            100 * report_per_operation(result, result->absent), (unsigned long long)result->unfinished);
    if (result->unfinished)
        fprintf(file, " (longest %.1f us)", (double)result->unfinished_longest_ns / 1e3);
    fprintf(file, "; real time: loading %.2f s, run %.2f s", result->load_seconds, result->measure_seconds);
    if (simulated && result->measure_seconds > 0)
        fprintf(file, " (%.0f simulated operations per second)",
                (double)result->operations / result->measure_seconds);
    fputc('\n', file);
}

void report_table_groups(const struct bench_report *report, FILE *file)
{
    for (size_t begin = 0, end; begin < report->count; begin = end) {
        end = report_group_end(report, begin);
        print_group_head(file, &report->results[begin]);
        for (size_t i = begin; i < end; i++) {
            print_result(file, &report->results[i]);
            print_kinds(file, &report->results[i]);
            print_log(file, &report->results[i]);
            print_failure(file, &report->results[i]);
        }
        for (size_t i = begin; i < end; i++)
            print_details(file, &report->results[i], report->config->fabric == BENCH_SIM);
    }
    fprintf(file, "\nPer operation: round trips, commands, payload bytes, retries; calls: of memory nodes "
                  "and of compute nodes; cache: inner nodes found in the node cache. Lines set in: each kind "
                  "of operation by itself.\n");
}

void report_table(const struct bench_report *report, FILE *file)
{
    char text[512];
    report_configuration(report, text, sizeof text);
    fprintf(file, "%s\n", text);
    report_leaves(report, text, sizeof text);
    fprintf(file, "%s\n", text);
    if (report->peer_settings)
        fprintf(file, "peer: %s\n", report->peer_settings);
    report_table_groups(report, file);
}

/* ---- pairs ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of all results of the group with that preset; NAN without any. */
static double median_throughput(const struct bench_report *report, const struct bench_result *like,
                                const char *preset)
{
    double *values = malloc(report->count * sizeof *values), median = NAN;
    size_t count = 0;
    for (size_t i = 0; values && i < report->count; i++)
        if (report_same_group(&report->results[i], like) && !strcmp(report->results[i].preset, preset))
            values[count++] = report->results[i].throughput_mops;
    if (count) {
        qsort(values, count, sizeof *values, compare_doubles);
        median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    }
    free(values);
    return median;
}

static bool seen_before(const struct bench_report *report, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (report_same_group(&report->results[i], &report->results[index]) &&
            !strcmp(report->results[i].preset, report->results[index].preset))
            return true;
    return false;
}

void report_pairs(const struct bench_report *report, FILE *file)
{
    fprintf(file, "\nMedians of the pairs (Mops), and ours divided by the peer's\n");
    for (size_t i = 0; i < report->count; i++) {
        const struct bench_result *peer = &report->results[i];
        if (!peer->peer || seen_before(report, i))
            continue;
        for (size_t j = 0; j < report->count; j++) {
            const struct bench_result *ours = &report->results[j];
            if (ours->peer || !report_same_group(ours, peer) || seen_before(report, j))
                continue;
            double a = median_throughput(report, ours, ours->preset);
            double b = median_throughput(report, peer, peer->preset);
            fprintf(file, "%s, %s: %s %.4f, %s %.4f, ratio %.2f\n", ours->workload, ours->distribution,
                    ours->preset, a, peer->preset, b, ratio(a, b));
        }
    }
}
