/*
 * test_sensitivity.c - `banyan bench --sensitivity`: which end of a range is the worst, by a table made by
 * hand; and small runs from outside. argv[1] is the executable.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "bench/sensitivity.h"
#include "program.h"
#include "reports.h"

/* ---- judging ---- */

#define NEAR(a, b) assert_true((a) > (b)-1e-6 && (a) < (b) + 1e-6)

static void the_worst_end_is_the_one_with_the_lower_ratio(void **state)
{
    (void)state;
    struct sensitivity_ratio ratio = {
        .point = 2.0,
        .ends = {
            {1.5, 2.5},  /* falls to the low end */
            {2.8, 1.75}, /* falls to the high end */
            {2.2, 2.4},  /* the point is the lowest: stays where that is wanted */
            {1.2, 1.8},  /* the point is the highest; both ends are below */
            {2.0, 2.0},  /* has no effect */
        }};
    static const int worst[] = {SENSITIVITY_LOW, SENSITIVITY_HIGH, SENSITIVITY_STAYS, SENSITIVITY_LOW,
                                SENSITIVITY_STAYS};
    static const int best[] = {SENSITIVITY_HIGH, SENSITIVITY_LOW, SENSITIVITY_HIGH, SENSITIVITY_STAYS,
                               SENSITIVITY_STAYS};
    sensitivity_judge(&ratio, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ratio.worst[i], worst[i]);
        assert_int_equal(ratio.best[i], best[i]);
    }
    NEAR(ratio.least, 1.2);
    assert_int_equal(ratio.least_by, 3);
    NEAR(ratio.most, 2.8);
    assert_int_equal(ratio.most_by, 1);
    static const double effects[] = {2.0 / 1.5, 1.4, 1.2, 2.0 / 1.2, 1};
    for (unsigned i = 0; i < 5; i++)
        NEAR(sensitivity_effect(&ratio, i), effects[i]);
}

static void without_an_effect_the_band_is_the_point(void **state)
{
    (void)state;
    struct sensitivity_ratio ratio = {.point = 3, .ends = {{3, 3}}};
    sensitivity_judge(&ratio, 1);
    NEAR(ratio.least, 3);
    NEAR(ratio.most, 3);
    assert_int_equal(ratio.least_by, SENSITIVITY_STAYS);
    assert_int_equal(ratio.most_by, SENSITIVITY_STAYS);
}

/* ---- from outside ---- */

#define SMALL                                                                                                \
    "--keys 20k --operations 3k --memory-nodes 2 --compute-nodes 2 --threads 4 --workload "                  \
    "write-intensive,read-only "
#define SENSITIVITY "--sensitivity " SMALL

/* All within the band that the row itself gives. */
static void check_ratio(const json_t *ratio, size_t parameters)
{
    const json_t *rows = json_object_get(ratio, "parameters");
    double least = reports_number(json_object_get(ratio, "least"), "ratio");
    double most = reports_number(json_object_get(ratio, "most"), "ratio");
    assert_string_equal(reports_string(ratio, "of"), "banyan");
    assert_string_equal(reports_string(ratio, "over"), "sherman");
    assert_true(reports_number(ratio, "point") >= least && reports_number(ratio, "point") <= most);
    assert_true(reports_number(json_object_get(ratio, "pessimistic"), "ratio") > 0);
    assert_true(reports_number(json_object_get(ratio, "optimistic"), "ratio") > 0);
    assert_int_equal(json_array_size(json_object_get(ratio, "other_seeds")), SENSITIVITY_SEEDS);
    assert_int_equal(json_array_size(rows), parameters);
    for (size_t i = 0; i < parameters; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_true(reports_number(row, "low") >= least && reports_number(row, "low") <= most);
        assert_true(reports_number(row, "high") >= least && reports_number(row, "high") <= most);
    }
}

static void runs_do_not_depend_on_how_many_at_a_time(void **state)
{
    (void)state;
    char *one = reports_run(SENSITIVITY "--only chip-ns,wire-ns --jobs 1"),
         *two = reports_run(SENSITIVITY "--only chip-ns,wire-ns --jobs 2");
    assert_string_equal(one, two);
    json_t *json = reports_parse(one);
    const json_t *ratios = json_object_get(json, "ratios");
    /* two workloads, two distributions, throughput and p99 */
    assert_int_equal(json_array_size(ratios), 8);
    assert_int_equal(json_array_size(json_object_get(json, "parameters")), 2);
    const json_t *leaves = json_object_get(json, "leaves");
    assert_string_equal(reports_string(leaves, "sherman"), "unsorted");
    assert_string_equal(reports_string(leaves, "banyan"), "hashed");
    for (size_t i = 0; i < 8; i++)
        check_ratio(json_array_get(ratios, i), 2);
    json_decref(json);
    free(one);
    free(two);
}

/* Reads ask no memory node's CPU and split nothing, so a split's time has no part in them. */
static void a_parameter_without_effect_leaves_the_point(void **state)
{
    (void)state;
    json_t *json = reports_json(SENSITIVITY "--only split-ns");
    const json_t *ratios = json_object_get(json, "ratios");
    unsigned reads = 0;
    for (size_t i = 0; i < json_array_size(ratios); i++) {
        const json_t *ratio = json_array_get(ratios, i);
        if (strcmp(reports_string(ratio, "workload"), "dex:read-only"))
            continue;
        double point = reports_number(ratio, "point");
        NEAR(reports_number(json_object_get(ratio, "least"), "ratio"), point);
        NEAR(reports_number(json_object_get(ratio, "most"), "ratio"), point);
        NEAR(reports_number(json_object_get(ratio, "pessimistic"), "ratio"), point);
        NEAR(reports_number(json_object_get(ratio, "optimistic"), "ratio"), point);
        assert_true(json_is_null(json_object_get(json_object_get(ratio, "least"), "by")));
        reads++;
    }
    assert_int_equal(reads, 4);
    json_decref(json);
}

static double throughput_of(const char *preset)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments,
             "--fabric sim " SMALL "--distribution zipfian --preset %s --no-check", preset);
    json_t *json = reports_json(arguments);
    double value = reports_number(reports_result(json, 0), "throughput_mops");
    json_decref(json);
    return value;
}

/* A pool that is loaded once and shared gives what a run of its own gives. */
static void the_point_is_what_plain_runs_give(void **state)
{
    (void)state;
    json_t *json = reports_json(SENSITIVITY "--only chip-ns --distribution zipfian");
    double point = reports_number(json_array_get(json_object_get(json, "ratios"), 0), "point");
    NEAR(point, throughput_of("banyan") / throughput_of("sherman"));
    json_decref(json);
}

static void table_and_page(void **state)
{
    (void)state;
    char *output = NULL;
    char *page =
        reports_page(SENSITIVITY "--distribution zipfian --of sherman/fg+ --only chip-ns,mtu", &output);
    assert_non_null(strstr(output, "sherman / fg+, p99"));
    assert_non_null(strstr(output, "chip-ns"));
    assert_non_null(strstr(output, "pessimistic"));
    assert_null(strchr(output, '\r')); /* no progress in a pipe */
    assert_non_null(strstr(page, "all together"));
    assert_non_null(strstr(page, "<td>chip-ns</td>"));
    assert_non_null(strstr(page, "</html>"));
    assert_null(strstr(page, "nan"));
    free(output);
    free(page);
}

static void usage_errors_say_what_is_possible(void **state)
{
    (void)state;
    program_expect("bench --sensitivity --only fly", 2, "wire-ns");
    program_expect("bench --sensitivity --only chip-ns,chip-ns", 2, "twice");
    program_expect("bench --sensitivity --only shared-nic", 2, "wire-ns");
    program_expect("bench --sensitivity --only ''", 2, "wire-ns");
    program_expect("bench --sensitivity --of banyan", 2, "banyan/sherman");
    program_expect("bench --sensitivity --of fly/banyan", 2, "choose");
    program_expect("bench --sensitivity --of banyan/banyan", 2, "always 1");
    program_expect("bench --sensitivity --jobs 0", 2, "--jobs");
    program_expect("bench --sensitivity --preset banyan", 2, "--of");
    program_expect("bench --sensitivity --paper sherman", 2, "--paper");
    program_expect("bench --sensitivity --fabric local", 2, "simulator");
    program_expect("bench --of banyan/sherman", 2, "--sensitivity");
}

/* In a worker: the keys have room when they are loaded. */
static void a_run_that_fails_ends_all_with_its_reason(void **state)
{
    (void)state;
    program_expect("bench --sensitivity --keys 200k --operations 200k --memory-nodes 1 --compute-nodes 1 "
                   "--threads 2 --mix insert=1 --distribution uniform --only chip-ns --pool-bytes 8M",
                   1, "insert=1, uniform");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    program_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_end_is_the_one_with_the_lower_ratio),
        cmocka_unit_test(without_an_effect_the_band_is_the_point),
        cmocka_unit_test(runs_do_not_depend_on_how_many_at_a_time),
        cmocka_unit_test(a_parameter_without_effect_leaves_the_point),
        cmocka_unit_test(the_point_is_what_plain_runs_give),
        cmocka_unit_test(table_and_page),
        cmocka_unit_test(usage_errors_say_what_is_possible),
        cmocka_unit_test(a_run_that_fails_ends_all_with_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
