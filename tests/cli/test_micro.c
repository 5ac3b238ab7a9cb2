/*
 * test_micro.c - `bench-micro` from outside: that each part is measured and named, and what it says to wrong
 * options. The numbers are the machine's. argv[1] is the executable.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "program.h"

static const char *const parts[] = {
    "line-pass", "image-line", "slot-check", "entry-sort",  "entry-visit",   "checksum-line", "inner-search",
    "log-entry", "log-scan",   "walk-node",  "merge-entry", "request-calls", "request-ring"};
#define PARTS (sizeof parts / sizeof *parts)

static bool two_cpus(void)
{
    cpu_set_t allowed;
    return !sched_getaffinity(0, sizeof allowed, &allowed) && CPU_COUNT(&allowed) > 1;
}

static void every_part_has_a_number(void **state)
{
    (void)state;
    struct program_outcome outcome = program_run("--rounds 20 --json", "2>&1");
    assert_int_equal(outcome.code, 0);
    json_t *all = json_loads(outcome.text, 0, NULL);
    free(outcome.text);
    assert_non_null(all);
    assert_true(strlen(json_string_value(json_object_get(all, "cpu"))) > 0);
    assert_int_equal(json_integer_value(json_object_get(all, "rounds")), 20);
    json_t *list = json_object_get(all, "parts");
    assert_int_equal(json_array_size(list), PARTS);
    for (size_t i = 0; i < PARTS; i++) {
        json_t *part = json_array_get(list, i), *median = json_object_get(part, "median_ns");
        double least = json_real_value(json_object_get(part, "least_ns"));
        assert_string_equal(json_string_value(json_object_get(part, "part")), parts[i]);
        if (i < 2 && !two_cpus()) {
            assert_true(json_is_null(median));
            continue;
        }
        if (!strcmp(parts[i], "request-ring") && json_is_null(median)) /* a kernel without io_uring */
            continue;
        assert_true(json_is_real(median));
        if (!strcmp(parts[i], "image-line")) /* the difference of two, on a machine that may be disturbed */
            assert_true(least >= 0);
        else
            assert_true(least > 0 && json_real_value(median) >= least);
    }
    json_decref(all);
}

static void the_table_names_them(void **state)
{
    (void)state;
    struct program_outcome outcome = program_run("--rounds 2", "2>&1");
    assert_int_equal(outcome.code, 0);
    for (size_t i = 0; i < PARTS; i++)
        assert_non_null(strstr(outcome.text, parts[i]));
    free(outcome.text);
}

static void wrong_options_are_told(void **state)
{
    (void)state;
    program_expect("--rounds 0", 2, "no number from 1 to");
    program_expect("--rounds 12x", 2, "'12x' is no number");
    program_expect("--rounds -3", 2, "no number from 1 to");
    program_expect("--rounds 99999999999999999999", 2, "no number from 1 to");
    program_expect("fast", 2, "'fast' is no option");
    program_expect("--fast", 2, "fast");
    program_expect("--help", 0, "--rounds");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_has_a_number),
        cmocka_unit_test(the_table_names_them),
        cmocka_unit_test(wrong_options_are_told),
    };
    if (argc > 1)
        program_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
