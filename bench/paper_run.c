/* paper_run.c - see paper_run.h. */
#include "bench/paper_run.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/micro_sim.h"

/* ---- which runs ---- */

static bool same_setup(const struct paper_setup *a, const struct paper_setup *b)
{
    return a->kind == b->kind && !strcmp(a->workload, b->workload) && a->distribution == b->distribution &&
           a->scan_length == b->scan_length && a->bytes == b->bytes && !(a->theta < b->theta) &&
           !(a->theta > b->theta);
}

static const struct paper_cell *find_cell(const struct paper_outcome *outcome,
                                          const struct paper_setup *setup, const char *preset)
{
    for (size_t i = 0; i < outcome->cell_count; i++)
        if (same_setup(&outcome->cells[i].setup, setup) && !strcmp(outcome->cells[i].preset, preset))
            return &outcome->cells[i];
    return NULL;
}

static int add_cell(struct paper_outcome *outcome, const struct paper_setup *setup, const char *preset,
                    struct error *error)
{
    if (find_cell(outcome, setup, preset))
        return 0;
    struct paper_cell *grown = realloc(outcome->cells, (outcome->cell_count + 1) * sizeof *outcome->cells);
    if (!grown)
        return error_set(error, BANYAN_ENOMEM, "no memory for the list of runs");
    outcome->cells = grown;
    struct paper_cell *cell = &outcome->cells[outcome->cell_count++];
    *cell = (struct paper_cell){.setup = *setup};
    snprintf(cell->preset, sizeof cell->preset, "%s", preset);
    return 0;
}

static int add_formula(struct paper_outcome *outcome, const char *run, struct error *error)
{
    struct paper_formula formula;
    int status = paper_formula_parse(&formula, run, error);
    if (!status)
        status = add_cell(outcome, &formula.setup, formula.presets[0], error);
    if (!status && formula.operator)
        status = add_cell(outcome, &formula.setup, formula.presets[1], error);
    return status;
}

static int collect(struct paper_outcome *outcome, const struct paper *paper, const char *only,
                   struct error *error)
{
    *outcome = (struct paper_outcome){.paper = paper, .only = only};
    int status = 0;
    for (size_t i = 0; i < paper->count && !status; i++)
        if (paper->numbers[i].run && paper_selected(only, paper->numbers[i].figure))
            status = add_formula(outcome, paper->numbers[i].run, error);
    return status;
}

/* ---- the plan ---- */

static bool has_workload(const struct bench_plan *plan, const char *name)
{
    struct workload workload;
    for (unsigned i = 0; i < plan->workload_count; i++)
        if (!workload_find(&workload, name, NULL) && !strcmp(plan->workloads[i].name, workload.name))
            return true;
    return false;
}

static bool has_distribution(const struct bench_plan *plan, enum workload_distribution distribution)
{
    for (unsigned i = 0; i < plan->distribution_count; i++)
        if (plan->distributions[i] == distribution)
            return true;
    return false;
}

static const struct bench_preset *find_preset(const struct bench_plan *plan, const char *name)
{
    for (unsigned i = 0; i < plan->preset_count; i++)
        if (!strcmp(plan->presets[i].name, name))
            return &plan->presets[i];
    return NULL;
}

static int plan_cell(struct bench_plan *plan, const struct paper_cell *cell, struct error *error)
{
    int status = 0;
    if (cell->setup.kind != PAPER_INDEX)
        return 0;
    if (!has_workload(plan, cell->setup.workload))
        status = bench_plan_add_workloads(plan, cell->setup.workload, error);
    if (!status && !has_distribution(plan, cell->setup.distribution))
        status =
            bench_plan_add_distributions(plan, workload_distribution_names[cell->setup.distribution], error);
    if (!status && !find_preset(plan, cell->preset))
        status = bench_plan_add_presets(plan, cell->preset, error);
    return status;
}

int paper_plan(struct bench_plan *plan, const struct paper *paper, const char *only, struct error *error)
{
    struct paper_outcome outcome;
    int status = collect(&outcome, paper, only, error);
    for (size_t i = 0; i < outcome.cell_count && !status; i++)
        status = plan_cell(plan, &outcome.cells[i], error);
    paper_outcome_free(&outcome);
    return status;
}

/* ---- running ---- */

/* Moves results to the end of the outcome's. */
static int append(struct paper_outcome *outcome, struct bench_result *results, size_t count,
                  struct error *error)
{
    size_t all = outcome->count + count;
    struct bench_result *grown = count ? realloc(outcome->results, all * sizeof *grown) : outcome->results;
    if (count && !grown)
        return error_set(error, BANYAN_ENOMEM, "no memory for results");
    outcome->results = grown;
    if (count)
        memcpy(&outcome->results[outcome->count], results, count * sizeof *results);
    outcome->count = all;
    return 0;
}

/* Scans count by their entries: 40 are one operation, so that a figure of scans takes no longer than another.
 */
#define ENTRIES_OF_AN_OPERATION 40

static void set_operations(struct bench_config *config, uint32_t scan_length)
{
    uint64_t parts = scan_length > ENTRIES_OF_AN_OPERATION ? scan_length : ENTRIES_OF_AN_OPERATION;
    config->operations = config->operations * ENTRIES_OF_AN_OPERATION / parts;
    config->warm_up = config->warm_up * ENTRIES_OF_AN_OPERATION / parts;
    config->operations += !config->operations;
    if (scan_length)
        config->scan_length = scan_length;
}

/* All presets of the cell's setup, in one go. */
static int run_index(const struct bench_plan *whole, struct paper_outcome *outcome, struct paper_cell *first,
                     struct error *error)
{
    struct bench_plan *plan = malloc(sizeof *plan);
    struct bench_result *results = NULL;
    size_t count = 0, begin = outcome->count;
    if (!plan)
        return error_set(error, BANYAN_ENOMEM, "no memory for a plan");
    *plan = *whole;
    plan->workload_count = plan->preset_count = 0;
    plan->distributions[0] = first->setup.distribution;
    plan->distribution_count = 1;
    set_operations(&plan->config, first->setup.scan_length);
    int status = bench_plan_add_workloads(plan, first->setup.workload, error);
    for (struct paper_cell *cell = first; cell < outcome->cells + outcome->cell_count; cell++)
        if (same_setup(&cell->setup, &first->setup)) {
            assert(plan->preset_count < whole->preset_count); /* each of the whole plan's, once */
            cell->result = begin + plan->preset_count;
            plan->presets[plan->preset_count++] = *find_preset(whole, cell->preset);
        }
    if (!status)
        status = bench_plan_run(plan, &results, &count, error);
    int appended = append(outcome, results, count, error);
    if (appended)
        bench_results_free(results, count);
    else
        free(results);
    for (struct paper_cell *cell = first; cell < outcome->cells + outcome->cell_count; cell++)
        if (same_setup(&cell->setup, &first->setup))
            cell->done = cell->result < outcome->count;
    free(plan);
    return status ? status : appended;
}

static int run_micro(const struct bench_plan *plan, struct paper_outcome *outcome, struct paper_cell *cell,
                     struct error *error)
{
    struct bench_result result = {.operations = 0};
    struct bench_config config = plan->config;
    struct micro_sim micro = {.kind = MICRO_SIM_LOCKS, .theta = cell->setup.theta};
    if (cell->setup.kind == PAPER_CHIP)
        micro.kind = MICRO_SIM_CHIP;
    if (cell->setup.kind == PAPER_READ)
        micro = (struct micro_sim){.kind = MICRO_SIM_READ, .bytes = cell->setup.bytes};
    micro_sim_name(&micro, result.workload, sizeof result.workload);
    if (plan->begun)
        plan->begun(plan->begun_context, result.workload);
    int status = micro_sim_run(&config, &micro, &result, error);
    if (!status) {
        cell->result = outcome->count;
        status = append(outcome, &result, 1, error);
        cell->done = !status;
    }
    if (status)
        bench_result_release(&result);
    return status;
}

int paper_run(const struct bench_plan *plan, const struct paper *paper, const char *only,
              struct paper_outcome *outcome, struct error *error)
{
    int status = collect(outcome, paper, only, error);
    for (size_t i = 0; i < outcome->cell_count && !status; i++) {
        struct paper_cell *cell = &outcome->cells[i];
        if (!cell->done && cell->setup.kind == PAPER_INDEX)
            status = run_index(plan, outcome, cell, error);
        else if (!cell->done)
            status = run_micro(plan, outcome, cell, error);
    }
    return status;
}

void paper_outcome_free(struct paper_outcome *outcome)
{
    bench_results_free(outcome->results, outcome->count);
    free(outcome->cells);
    *outcome = (struct paper_outcome){.cells = NULL};
}

/* ---- our numbers ---- */

static uint64_t cost_of(const struct fabric_cost *cost, enum paper_metric metric)
{
    switch (metric) {
    case PAPER_TRIPS:
        return cost->round_trips;
    case PAPER_READS:
        return cost->reads;
    case PAPER_WRITES:
        return cost->writes;
    case PAPER_ATOMICS:
        return cost->atomics;
    case PAPER_VERBS:
        return cost->reads + cost->writes + cost->atomics;
    case PAPER_CALLS:
    case PAPER_WALKED:
        return cost->rpcs + cost->peer_calls;
    default:
        return cost->bytes_read + cost->bytes_written;
    }
}

/* Where values stand in records an entry is the shortcut to one. What is in an owner's log, and not merged,
 * is found without either. */
static double cache_metric(const struct bench_result *result, enum paper_metric metric)
{
    const struct tree_cache_stats *cache = &result->cache;
    double met = (double)cache->entries.hits, all = met + (double)cache->entries.misses;
    if (metric == PAPER_VALUES) {
        all = (double)result->kinds[WORKLOAD_LOOKUP].count;
        met = result->records ? (double)cache->values.hits : met - (double)cache->shortcut_hits;
    }
    return all > 0 ? met / all * 100 : NAN;
}

static double mean_us(const struct histogram *latency)
{
    return latency ? histogram_mean(latency) / 1e3 : NAN;
}

static double failure_metric(const struct bench_failure *failure, enum paper_metric metric)
{
    const double p99_before = report_quantile_us(failure->before, 0.99);
    const double p99_after = report_quantile_us(failure->after, 0.99);
    switch (metric) {
    case PAPER_SERVED:
        return failure->served_ns ? (double)failure->served_ns / 1e3 : NAN;
    case PAPER_DROP:
        return (1 - failure->after_mops / failure->before_mops) * 100;
    case PAPER_LOWEST:
        return (1 - failure->lowest_mops / failure->before_mops) * 100;
    case PAPER_HALVED:
        return (double)failure->halved_ns / 1e3;
    case PAPER_MEAN_BEFORE:
        return mean_us(failure->before);
    case PAPER_MEAN_AFTER:
        return mean_us(failure->after);
    case PAPER_MEAN_RISE:
        return mean_us(failure->after) / mean_us(failure->before);
    case PAPER_P99_BEFORE:
        return p99_before;
    case PAPER_P99_AFTER:
        return p99_after;
    default:
        return p99_after / p99_before;
    }
}

static double metric_of(const struct bench_result *result, enum paper_metric metric)
{
    static const double quantiles[] = {[PAPER_P50] = 0.5, [PAPER_P90] = 0.9, [PAPER_P99] = 0.99};
    if (metric == PAPER_MOPS)
        return result->throughput_mops;
    if (metric == PAPER_MOVE)
        return result->move_ns ? (double)result->move_ns / 1e9 : NAN;
    if (metric == PAPER_HITS || metric == PAPER_VALUES)
        return cache_metric(result, metric);
    if (metric >= PAPER_SERVED)
        return result->failure.begin_ns ? failure_metric(&result->failure, metric) : NAN;
    if (metric == PAPER_LONGEST)
        return result->latency ? (double)histogram_max(result->latency) / 1e3 : NAN;
    if (metric <= PAPER_P99)
        return report_quantile_us(result->latency, quantiles[metric]);
    double each = report_per_operation(result, cost_of(&result->cost, metric));
    return metric == PAPER_WALKED ? each * 100 : each;
}

static double metric_in(const struct paper_outcome *outcome, const struct paper_formula *formula, int which)
{
    const struct paper_cell *cell = find_cell(outcome, &formula->setup, formula->presets[which]);
    return cell && cell->done ? metric_of(&outcome->results[cell->result], formula->metric) : NAN;
}

static double combine(double a, char operator, double b)
{
    switch (operator) {
    case '/':
        return b > 0 ? a / b : NAN;
    case '-':
        return a - b;
    case '>':
        return b > 0 ? (a / b - 1) * 100 : NAN;
    default:
        return b > 0 ? (1 - a / b) * 100 : NAN;
    }
}

double paper_ours(const struct paper_outcome *outcome, const struct paper_number *number)
{
    struct paper_formula formula;
    if (!number->run || paper_formula_parse(&formula, number->run, NULL))
        return NAN;
    double value = metric_in(outcome, &formula, 0);
    if (formula.operator)
        value = combine(value, formula.operator, metric_in(outcome, &formula, 1));
    if (!strcmp(number->unit, "ms"))
        return value / 1000;
    return !strcmp(number->unit, "ns") || !strcmp(number->unit, "Kops") ? value * 1000 : value;
}

double paper_deviation(double ours, double theirs)
{
    return theirs > 0 || theirs < 0 ? (ours / theirs - 1) * 100 : NAN;
}
