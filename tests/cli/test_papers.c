/*
 * test_papers.c - the numbers of papers and their testbeds: the data, what their rows name, and `banyan bench
 * --paper` and `--testbed` from outside. argv[1] is the executable. Runs are small; nothing here depends on
 * how fast they are.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "bench/micro_sim.h"
#include "bench/paper_run.h"
#include "bench/testbed.h"
#include "program.h"
#include "reports.h"

/* ---- the data ---- */

static const struct paper *paper_of(const char *name)
{
    struct error error = {0};
    const struct paper *paper = paper_find(name, &error);
    if (!paper)
        fail_msg("%s", error.text);
    return paper;
}

/* NAN where there is no such row. */
static double stated(const char *paper_name, const char *figure, const char *row, const char *column)
{
    const struct paper *paper = paper_of(paper_name);
    for (size_t i = 0; i < paper->count; i++) {
        const struct paper_number *number = &paper->numbers[i];
        if (!strcmp(number->figure, figure) && !strcmp(number->row, row) && !strcmp(number->column, column))
            return number->value;
    }
    fail_msg("%s has no %s, %s, %s", paper_name, figure, row, column);
    return NAN;
}

/* One of the places between '|', perhaps with a letter in brackets behind it: "Figure 5(c)". */
static bool place_exists(const struct paper *paper, const char *place)
{
    size_t length = strcspn(place, ",");
    if (length > 3 && place[length - 1] == ')' && place[length - 3] == '(')
        length -= 3;
    for (const char *at = paper->places; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strcspn(at, "|") == length && !strncmp(at, place, length))
            return true;
    return false;
}

static void every_row_has_its_place(void **state)
{
    (void)state;
    static const char *const units[] = {"Mops",   "Kops",         "us",         "ns", "ms",
                                        "s",      "min",          "x",          "%",  "count",
                                        "per op", "bytes per op", "RTs per op", "GB", "GB/s"};
    for (const struct paper *paper = papers; paper->name; paper++) {
        assert_true(paper->count > 50);
        for (size_t i = 0; i < paper->count; i++) {
            const struct paper_number *number = &paper->numbers[i];
            bool unit_known = false;
            for (size_t j = 0; j < sizeof units / sizeof units[0]; j++)
                unit_known |= !strcmp(units[j], number->unit);
            if (!unit_known || !place_exists(paper, number->place))
                fail_msg("%s: %s, %s: unit '%s', place '%s'", paper->name, number->figure, number->row,
                         number->unit, number->place);
            assert_true(isnan(number->value) || (number->value > 0 && strcmp(number->words, "-")) ||
                        !strcmp(number->figure, "table2")); /* DEX's table has operations that are not done */
            assert_true(!isnan(number->value) || number->run);
        }
    }
}

static void no_row_stands_twice(void **state)
{
    (void)state;
    for (const struct paper *paper = papers; paper->name; paper++)
        for (size_t i = 0; i < paper->count; i++)
            for (size_t j = 0; j < i; j++) {
                const struct paper_number *a = &paper->numbers[i], *b = &paper->numbers[j];
                if (!strcmp(a->figure, b->figure) && !strcmp(a->row, b->row) && !strcmp(a->column, b->column))
                    fail_msg("%s: %s, %s, %s twice", paper->name, a->figure, a->row, a->column);
            }
}

static void papers_state_what_they_state(void **state)
{
    (void)state;
    assert_true(stated("sherman", "table1", "fg, write-intensive, skewed", "throughput") == 0.34);
    assert_true(stated("sherman", "table1", "fg, write-intensive, skewed", "p99") == 19890);
    assert_true(stated("sherman", "fig5", "write-only, sherman over fg+", "throughput, times") == 24.7);
    assert_true(stated("sherman", "fig5", "write-intensive, +onchip over +combine", "p99, times lower") ==
                3.48);
    assert_true(stated("sherman", "fig5", "write-intensive, sherman", "p50") == 6.9);
    assert_true(isnan(stated("sherman", "fig5", "write-intensive, sherman", "throughput")));
    assert_true(stated("sherman", "fig6", "write-only, sherman over fg+", "p99, times lower") == 2.01);
    assert_true(stated("sherman", "table3", "range-write, sherman", "100") == 14.08);
    assert_true(stated("dex", "table2", "P-SMART (WI)", "traffic") == 404.207);
    assert_true(stated("cell", "table2", "7 cores a server", "Cell") == 2901);
    assert_true(stated("dinomo", "table6", "16 KNs, 50% reads/50% updates", "Clover") == 8.7);
}

/* What can be run names workloads, presets and metrics that there are. */
static void every_run_can_be_planned(void **state)
{
    (void)state;
    for (const struct paper *paper = papers; paper->name; paper++) {
        struct error error = {0};
        struct bench_plan *plan = calloc(1, sizeof *plan);
        assert_non_null(plan);
        if (paper_plan(plan, paper, NULL, &error))
            fail_msg("%s: %s", paper->name, error.text);
        assert_true(plan->preset_count > 4);
        free(plan);
    }
}

static void formulas_are_parsed(void **state)
{
    (void)state;
    struct paper_formula formula;
    struct error error = {0};
    assert_int_equal(paper_formula_parse(&formula, "range-write zipfian sherman / fg+ mops scan 67", &error),
                     0);
    assert_string_equal(formula.setup.workload, "range-write");
    assert_int_equal(formula.setup.distribution, WORKLOAD_ZIPFIAN);
    assert_string_equal(formula.presets[0], "sherman");
    assert_string_equal(formula.presets[1], "fg+");
    assert_int_equal(formula.operator, '/');
    assert_int_equal(formula.metric, PAPER_MOPS);
    assert_int_equal(formula.setup.scan_length, 67);
    assert_int_equal(paper_formula_parse(&formula, "read-only uniform dex@cache=512M > dex verbs", &error),
                     0);
    assert_string_equal(formula.presets[0], "dex@cache=512M");
    assert_int_equal(formula.operator, '>');
    assert_int_equal(formula.metric, PAPER_VERBS);
    assert_int_equal(paper_formula_parse(&formula, "@locks 0.99 p99", &error), 0);
    assert_int_equal(formula.setup.kind, PAPER_LOCKS);
    assert_true(formula.setup.theta == 0.99);
    assert_int_equal(formula.metric, PAPER_P99);
    static const char *const wrong[] = {"",
                                        "write-only",
                                        "write-only zipfian sherman",
                                        "write-only normal sherman mops",
                                        "write-only zipfian sherman mops scan",
                                        "write-only zipfian sherman mops scan 0",
                                        "write-only zipfian sherman mops 12",
                                        "@locks mops",
                                        "@locks 9 mops",
                                        "@read 0 p50",
                                        "@chip mops scan 5",
                                        "read-only zipfian dex flights",
                                        "@fly 1 mops"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (paper_formula_parse(&formula, wrong[i], &error) != BANYAN_EINVAL)
            fail_msg("'%s' was taken", wrong[i]);
}

static struct bench_result result_of(const char *preset, double mops, uint64_t p50_ns)
{
    struct bench_result result = {.throughput_mops = mops, .latency = histogram_create()};
    assert_non_null(result.latency);
    snprintf(result.preset, sizeof result.preset, "%s", preset);
    histogram_record(result.latency, p50_ns);
    return result;
}

/* Ratios, differences and percentages of two runs. */
static void costs_are_per_operation(void **state)
{
    (void)state;
    struct bench_result result = {.operations = 10,
                                  .cost = {.round_trips = 11,
                                           .reads = 5,
                                           .writes = 3,
                                           .atomics = 2,
                                           .rpcs = 1,
                                           .peer_calls = 3,
                                           .bytes_read = 700,
                                           .bytes_written = 50}};
    struct paper_cell cell = {.preset = "p", .done = true};
    snprintf(cell.setup.workload, sizeof cell.setup.workload, "w");
    struct paper_outcome outcome = {.cells = &cell, .cell_count = 1, .results = &result, .count = 1};
    static const struct {
        const char *run;
        double value;
    } numbers[] = {{"w uniform p trips", 1.1},   {"w uniform p reads", 0.5}, {"w uniform p writes", 0.3},
                   {"w uniform p atomics", 0.2}, {"w uniform p verbs", 1.0}, {"w uniform p calls", 0.4},
                   {"w uniform p bytes", 75}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct paper_number number = {.unit = "per op", .run = numbers[i].run};
        assert_true(fabs(paper_ours(&outcome, &number) - numbers[i].value) < 1e-9);
    }
}

static void our_numbers_are_combined(void **state)
{
    (void)state;
    struct bench_result results[] = {result_of("a", 30, 8000), result_of("b", 20, 10000)};
    struct paper_cell cells[2] = {{.preset = "a", .result = 0, .done = true},
                                  {.preset = "b", .result = 1, .done = true}};
    for (int i = 0; i < 2; i++) {
        snprintf(cells[i].setup.workload, sizeof cells[i].setup.workload, "w");
        cells[i].setup.distribution = WORKLOAD_UNIFORM;
    }
    struct paper_outcome outcome = {.cells = cells, .cell_count = 2, .results = results, .count = 2};
    struct paper_number number = {.unit = "x", .run = "w uniform a / b mops"};
    assert_true(fabs(paper_ours(&outcome, &number) - 1.5) < 1e-9);
    number = (struct paper_number){.unit = "%", .run = "w uniform a > b mops"};
    assert_true(fabs(paper_ours(&outcome, &number) - 50) < 1e-9);
    number = (struct paper_number){.unit = "%", .run = "w uniform a < b p50"};
    assert_true(fabs(paper_ours(&outcome, &number) - 20) < 1.7); /* a histogram's steps */
    number = (struct paper_number){.unit = "ns", .run = "w uniform b - a p50"};
    assert_true(fabs(paper_ours(&outcome, &number) - 2000) < 170);
    number = (struct paper_number){.unit = "Mops", .run = "w uniform c mops"};
    assert_true(isnan(paper_ours(&outcome, &number)));
    number = (struct paper_number){.unit = "Mops"};
    assert_true(isnan(paper_ours(&outcome, &number)));
    assert_true(fabs(paper_deviation(9, 10) + 10) < 1e-9);
    assert_true(isnan(paper_deviation(9, NAN)) && isnan(paper_deviation(NAN, 9)));
    for (int i = 0; i < 2; i++)
        bench_result_release(&results[i]);
}

/* ---- experiments on the NIC ---- */

static struct bench_result micro(struct micro_sim experiment, uint64_t operations)
{
    struct bench_config config = {.compute_nodes = 8, .threads = 22, .operations = operations, .seed = 1};
    struct bench_result result = {.operations = 0};
    struct error error = {0};
    sim_params_default(&config.sim);
    sim_faults_none(&config.faults);
    if (micro_sim_run(&config, &experiment, &result, &error))
        fail_msg("%s", error.text);
    return result;
}

/* Sherman's Figure 2 has no numbers in its text, but its shape: locks in host memory collapse when few are
 * hot. */
static void hot_locks_collapse(void **state)
{
    (void)state;
    struct bench_result even = micro((struct micro_sim){.kind = MICRO_SIM_LOCKS, .theta = 0}, 40000);
    struct bench_result hot = micro((struct micro_sim){.kind = MICRO_SIM_LOCKS, .theta = 0.99}, 40000);
    assert_true(even.throughput_mops > 3 * hot.throughput_mops);
    assert_true(histogram_quantile(hot.latency, 0.99) > 3 * histogram_quantile(even.latency, 0.99));
    bench_result_release(&even);
    bench_result_release(&hot);
}

static void the_nics_memory_reaches_its_rate(void **state)
{
    (void)state;
    struct bench_result chip = micro((struct micro_sim){.kind = MICRO_SIM_CHIP}, 100000);
    assert_true(chip.throughput_mops > 40 && chip.throughput_mops < 111);
    struct bench_result read = micro((struct micro_sim){.kind = MICRO_SIM_READ, .bytes = 64}, 2000);
    assert_in_range(histogram_quantile(read.latency, 0.5), 1000, 5000);
    assert_true(read.cost.round_trips == read.operations);
    bench_result_release(&chip);
    bench_result_release(&read);
}

/* ---- from outside ---- */

#define SMALL "--memory-nodes 2 --compute-nodes 2 --threads 2 --keys 20k --operations 4k --no-check "

static void usage_errors_say_what_to_do(void **state)
{
    (void)state;
    program_expect("bench --paper fly", 2, "sherman, dex, cell, dinomo");
    program_expect("bench --paper sherman --only fig5,fig9", 2, "table1, fig5, fig6, table3, fig2, text");
    program_expect("bench --paper sherman --only ''", 2, "table1");
    program_expect("bench --only fig5", 2, "--paper");
    program_expect("bench --paper sherman --workload write-only", 2, "--only");
    program_expect("bench --paper sherman --fabric local", 2, "--fabric sim");
    program_expect("bench --testbed fly", 2, "sherman, dex, cell, dinomo");
    program_expect("bench --testbed dex --fabric tcp", 2, "--fabric sim");
    program_expect("bench --testbed dex --sim gravity=1", 2, "gravity");
    program_expect("bench --paper dex --only fig3", 2,
                   "table2, text, fig6, fig7, fig8, fig9, fig10, fig11, fig12");
    program_expect("bench --paper cell --only fig7", 2, "table2, text, micro, fig4, fig5");
    program_expect("bench --paper cell --only fig4 --keys 20k --operations 4k --no-check", 0,
                   "Cell, one core, one meganode");
    program_expect("bench --list", 0, "ConnectX-3 FDR, 56 Gb/s");
}

static const json_t *find_row(const json_t *json, const char *figure, const char *row, const char *column)
{
    size_t i;
    const json_t *rows = json_object_get(json, "rows"), *item;
    json_array_foreach(rows, i, item)
    {
        if (!strcmp(json_string_value(json_object_get(item, "figure")), figure) &&
            !strcmp(json_string_value(json_object_get(item, "row")), row) &&
            !strcmp(json_string_value(json_object_get(item, "column")), column))
            return item;
    }
    fail_msg("no row %s, %s, %s", figure, row, column);
    return NULL;
}

static void a_paper_is_run(void **state)
{
    (void)state;
    json_t *json = reports_json("--paper sherman --only fig5,table3,text " SMALL);
    assert_string_equal(json_string_value(json_object_get(json, "paper")), "sherman");
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(json, "rows"), i, item)
    {
        const char *figure = json_string_value(json_object_get(item, "figure"));
        assert_true(!strcmp(figure, "fig5") || !strcmp(figure, "table3") || !strcmp(figure, "text"));
        assert_true(json_is_string(json_object_get(item, "row")));
        assert_true(json_is_string(json_object_get(item, "column")));
        assert_true(json_is_string(json_object_get(item, "unit")));
        const json_t *theirs = json_object_get(item, "paper"), *ours = json_object_get(item, "ours");
        assert_true(json_is_number(theirs) || json_is_null(theirs));
        assert_true(json_is_number(ours) || (json_is_null(ours) && !strcmp(figure, "text")));
    }
    const json_t *factor = find_row(json, "fig5", "write-only, sherman over fg+", "throughput, times");
    assert_true(reports_number(factor, "paper") == 24.7);
    double sherman = reports_number(find_row(json, "fig5", "write-only, sherman", "throughput"), "ours");
    double base = reports_number(find_row(json, "fig5", "write-only, fg+", "throughput"), "ours");
    assert_true(fabs(reports_number(factor, "ours") - sherman / base) < 1e-6);
    assert_true(fabs(reports_number(factor, "deviation_percent") - (sherman / base / 24.7 - 1) * 100) < 1e-4);
    assert_true(json_is_null(json_object_get(find_row(json, "fig5", "write-only, sherman", "p50"), "paper")));
    assert_true(reports_number(find_row(json, "table3", "range-only, sherman", "1000"), "paper") == 5.76);
    json_decref(json);
}

/* Dinomo's, with values in records, caches that are shares of the data, and from one to 16 compute nodes. */
static void dinomo_is_run(void **state)
{
    (void)state;
    json_t *json = reports_json("--paper dinomo --only table5,text --keys 4k --operations 1k --warm-up 8k "
                                "--no-check ");
    const json_t *dac = find_row(json, "table5", "cache of 16% of the data", "DAC");
    assert_true(reports_number(dac, "paper") == 0.1);
    assert_in_range((uint64_t)(reports_number(dac, "ours") * 1000), 0, 500);
    const json_t *shortcuts = find_row(json, "table5", "cache of 16% of the data", "shortcut only");
    assert_in_range((uint64_t)(reports_number(shortcuts, "ours") * 1000), 990, 1010);
    assert_true(json_is_null(
        json_object_get(find_row(json, "table5", "cache of 16% of the data", "static 80%"), "ours")));
    /* More compute nodes have more cache. */
    double one =
        reports_number(find_row(json, "text", "Dinomo, 1 KN, cache hits from values", "share"), "ours");
    double all = reports_number(
        find_row(json, "text", "Dinomo, 16 KNs, cache hits from values, up to", "share"), "ours");
    assert_true(one > 5 && all > one + 10 && all <= 100);
    json_decref(json);
    struct program_outcome table =
        program_run("bench --paper dinomo --only text --keys 4k --operations 1k --warm-up 8k", "2>&1");
    assert_int_equal(table.code, 0);
    assert_non_null(strstr(table.text, "Dinomo-N"));
    free(table.text);
}

/* Figure 8, of three compute nodes. */
static void a_failure_is_compared(void **state)
{
    (void)state;
    static const char *const rows[] = {"Dinomo, a KN fails", "banyan, a KN fails",
                                       "banyan, written through, a KN fails"};
    json_t *json =
        reports_json("--paper dinomo --only fig8 --compute-nodes 3 --threads 2 --fibers 1 --keys 4k "
                     "--operations 4k --warm-up 8k --no-check ");
    for (size_t i = 0; i < 3; i++) {
        const json_t *less = find_row(json, "fig8", rows[i], "throughput, less");
        const json_t *rise = find_row(json, "fig8", rows[i], "mean latency, times");
        assert_true(reports_number(less, "ours") > 10 && reports_number(less, "ours") < 90);
        assert_true(json_is_null(json_object_get(less, "paper")) == (i > 0));
        assert_true(reports_number(rise, "ours") > 1);
        assert_true(reports_number(find_row(json, "fig8", rows[i], "p99, in brackets"), "ours") < 1);
    }
    const json_t *time = find_row(json, "fig8", "Dinomo, merging and ownership", "time, under");
    assert_true(reports_number(time, "paper") == 109); /* ms; ours is a read lease of 40 ms, and some */
    assert_true(reports_number(time, "ours") > 1 && reports_number(time, "ours") < 60);
    const json_t *longest = find_row(json, "fig8", "banyan, at the worst", "longest operation");
    assert_true(reports_number(longest, "ours") > 10 && reports_number(longest, "ours") < 100);
    json_decref(json);
}

/* Twice the same; the table has the paper's numbers and each kind of operation by itself. */
static void papers_repeat(void **state)
{
    (void)state;
    free(reports_repeat("--paper sherman --only fig6,fig2 " SMALL));
    struct program_outcome micro = program_run("bench --paper sherman --only text " SMALL, "2>&1");
    assert_int_equal(micro.code, 0);
    assert_null(strstr(micro.text, "leaves:")); /* there was no index */
    free(micro.text);
    struct program_outcome table = program_run("bench --paper sherman --only fig6 " SMALL, "2>&1");
    assert_int_equal(table.code, 0);
    assert_non_null(strstr(table.text, "(2.01, "));
    assert_non_null(strstr(table.text, "\n  lookup"));
    assert_null(strstr(table.text, "nan"));
    assert_null(strstr(table.text, "locks, theta"));
    free(table.text);
}

static void a_papers_page_stands_alone(void **state)
{
    (void)state;
    char *page = reports_page("--paper sherman --only table1,fig2 " SMALL, NULL);
    assert_non_null(strstr(page, "(paper)"));
    assert_non_null(strstr(page, "theta 0.99"));
    assert_non_null(strstr(page, "</html>"));
    assert_null(strstr(page, "http:"));
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "inf"));
    free(page);
}

/* A testbed's values, and single ones over them, wherever --testbed stands on the line. */
static void testbeds_are_set_and_overridden(void **state)
{
    (void)state;
    json_t *json = reports_json("--testbed cell --keys 20k --operations 2k --no-check");
    const json_t *config = json_object_get(json, "config"), *sim = json_object_get(config, "sim");
    assert_string_equal(json_string_value(json_object_get(config, "fabric")), "sim");
    assert_true(reports_number(config, "memory_nodes") == 4 && reports_number(config, "compute_nodes") == 12);
    assert_true(reports_number(config, "threads") == 5);
    assert_true(json_is_false(json_object_get(sim, "shared-nic")));
    assert_true(reports_number(sim, "bandwidth") == 16 && reports_number(sim, "rpc-cores") == 2);
    const json_t *switches = json_object_get(reports_result(json, 0), "switches");
    assert_string_equal(json_string_value(json_object_get(switches, "lock-region")), "dram");
    json_decref(json);

    json = reports_json("--sim bandwidth=40 --threads 2 --testbed cell --lock-region onchip --leaf-bytes "
                        "2048 --keys 20k "
                        "--operations 2k --no-check");
    config = json_object_get(json, "config"), sim = json_object_get(config, "sim");
    assert_true(reports_number(config, "threads") == 2 && reports_number(config, "compute_nodes") == 12);
    assert_true(reports_number(config, "leaf_bytes") == 2048 &&
                reports_number(config, "internal_bytes") == 1024);
    assert_true(reports_number(sim, "bandwidth") == 40 && reports_number(sim, "rpc-cores") == 2);
    switches = json_object_get(reports_result(json, 0), "switches");
    assert_string_equal(json_string_value(json_object_get(switches, "lock-region")), "onchip");
    json_decref(json);
}

/* What is fitted to Cell's microbenchmark: READs of 1 KB from one server. */
static void cells_nic_reads_as_fast_as_it_says(void **state)
{
    (void)state;
    json_t *json =
        reports_json("--testbed cell --memory-nodes 1 --workload dex:read-only --distribution uniform "
                     "--preset fg+ --keys 20k --operations 5k --no-check");
    double read = reports_number(reports_result(json, 0), "throughput_mops");
    double theirs = stated("cell", "micro", "1 KB READs over 1 GB, one server", "throughput");
    assert_true(read > 0.95 * theirs && read < 1.05 * theirs);
    json_decref(json);
}

static void every_testbed_runs(void **state)
{
    (void)state;
    for (const struct testbed *testbed = testbeds; testbed->name; testbed++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments,
                 "--testbed %s --workload write-intensive --keys 20k --operations 4k", testbed->name);
        json_t *json = reports_json(arguments);
        const json_t *result = reports_result(json, 0);
        assert_true(reports_number(result, "throughput_mops") > 0);
        assert_true(reports_number(json_object_get(json, "config"), "threads") == testbed->threads);
        json_decref(json);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_papers BANYAN\n");
        return 2;
    }
    program_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_its_place),
        cmocka_unit_test(no_row_stands_twice),
        cmocka_unit_test(papers_state_what_they_state),
        cmocka_unit_test(every_run_can_be_planned),
        cmocka_unit_test(formulas_are_parsed),
        cmocka_unit_test(costs_are_per_operation),
        cmocka_unit_test(our_numbers_are_combined),
        cmocka_unit_test(hot_locks_collapse),
        cmocka_unit_test(the_nics_memory_reaches_its_rate),
        cmocka_unit_test(usage_errors_say_what_to_do),
        cmocka_unit_test(dinomo_is_run),
        cmocka_unit_test(a_failure_is_compared),
        cmocka_unit_test(a_paper_is_run),
        cmocka_unit_test(papers_repeat),
        cmocka_unit_test(a_papers_page_stands_alone),
        cmocka_unit_test(testbeds_are_set_and_overridden),
        cmocka_unit_test(cells_nic_reads_as_fast_as_it_says),
        cmocka_unit_test(every_testbed_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
