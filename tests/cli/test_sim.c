/*
 * test_sim.c - `banyan sim` from outside: seeds, plans, bounds, exit codes and messages. argv[1] is the
 * executable.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "program.h"

static char folder[] = "/tmp/banyan-sim-XXXXXX";

static const char *file_of(const char *name, const char *text)
{
    static char path[sizeof folder + 40];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void expect_replay(const char *text, int code, const char *needle)
{
    char arguments[200];
    snprintf(arguments, sizeof arguments, "sim --replay %s", file_of("try.plan", text));
    program_expect(arguments, code, needle);
}

static void wrong_settings_are_told(void **state)
{
    program_expect("sim --fly", 2, "fly");
    program_expect("sim stray", 2, "stray");
    program_expect("sim --seed many", 2, "'many' is no number");
    program_expect("sim --seed 1x", 2, "'1x' is no number");
    program_expect("sim --seeds 7", 2, "FROM-TO");
    program_expect("sim --seeds 9-3", 2, "FROM-TO");
    program_expect("sim --seed 1 --seeds 1-2", 2, "give one of");
    program_expect("sim --jobs 0", 2, "option jobs: 0 is not in the range");
    program_expect("sim --minutes nan", 2, "minutes");
    program_expect("sim --timeout -1", 2, "timeout");
    program_expect("sim --seed 1 --set gravity=1", 2, "no field 'gravity'");
    program_expect("sim --seed 1 --set torn-reads", 2, "NAME=VALUE");
    program_expect("sim --seed 1 --set torn-reads=2", 2, "torn-reads");
    program_expect("sim --seed 1 --set keys=42", 2, "multiple of 4");
    program_expect("sim --seed 1 --set leaf-bytes=1000", 2, "leaf size 1000");
    program_expect("sim --seed 1 --set skip=9000:1-2", 2, "skip");
}

static void plans_of_others_are_refused(void **state)
{
    program_expect("sim --replay /nowhere/such.plan", 2, "No such file");
    expect_replay("", 2, "this is no plan");
    expect_replay("seed = 4\n", 2, "this is no plan");
    expect_replay("banyan sim plan, version 9\nseed = 4\n", 2, "of version 9, this program reads version 1");
    expect_replay("banyan sim plan, version x\n", 2, "this is no plan");
    expect_replay("banyan sim plan, version 1\nseed 4\n", 2, "line 2 is no 'name = value'");
    expect_replay("banyan sim plan, version 1\n\n# a remark\ngravity = 4\n", 2,
                  "line 4: a plan has no field 'gravity'");
    expect_replay("banyan sim plan, version 1\nrounds = few\n", 2, "line 2: ");
    expect_replay("banyan sim plan, version 1\nskip = 0:1-1000000\n", 2, "skip '0:1-1000000'");
    expect_replay("banyan sim plan, version 1\nseed = 4\nrounds = 20\n", 0, "seed 4: ok");
}

static void help_tells(void **state)
{
    program_expect("sim --help", 0, "Examples");
    program_expect("help sim", 0, "--shrink");
    program_expect("sim --fields", 0, "torn-reads");
    program_expect("sim --fields", 0, "window, uniform, tide, patch");
}

/* Everything that the seed decides: the same with each run, another with another seed. */
static void one_seed_is_one_run(void **state)
{
    struct program_outcome first = program_run("sim --seed 5 --json", "2>/dev/null"),
                           again = program_run("sim --seed 5 --json", "2>/dev/null"),
                           other = program_run("sim --seed 6 --json", "2>/dev/null");
    json_error_t error;
    json_t *a = json_loads(first.text, JSON_DISABLE_EOF_CHECK, &error),
           *b = json_loads(again.text, JSON_DISABLE_EOF_CHECK, &error),
           *c = json_loads(other.text, JSON_DISABLE_EOF_CHECK, &error);
    assert_true(a && b && c);
    assert_string_equal(json_string_value(json_object_get(a, "end")), "ok");
    assert_true(json_integer_value(json_object_get(a, "operations")) > 100);
    assert_true(json_integer_value(json_object_get(a, "hash")) ==
                json_integer_value(json_object_get(b, "hash")));
    assert_true(json_integer_value(json_object_get(a, "hash")) !=
                json_integer_value(json_object_get(c, "hash")));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    free(first.text);
    free(again.text);
    free(other.text);
}

/* Sessions of the store once drew their waits from their own addresses, which the system gives at random: a
 * failing seed of records could not be run again. */
static void addresses_decide_nothing(void **state)
{
    const char *const command = "sim --seeds 95-102 --set records=on,key-kind=variable,key-bytes=64,"
                                "inline-key-bytes=16,value-bytes=17,value-variable=on,internal-bytes=1024,"
                                "leaf-bytes=2048,chunk-bytes=262144,hot=59,scans=2,multis=3 --json --jobs 2";
    const char *const hashes = "2>/dev/null | grep -o '\"hash\":[0-9]*' | sort";
    struct program_outcome first = program_run(command, hashes), again = program_run(command, hashes);
    assert_true(strlen(first.text) > 80);
    assert_string_equal(first.text, again.text);
    free(first.text);
    free(again.text);
}

/* A plan that was written down runs as the seed does that drew it. */
static void a_plan_is_its_seed(void **state)
{
    struct program_outcome plan = program_run("sim --seed 77 --plan", "2>/dev/null"),
                           drawn =
                               program_run("sim --seed 77 --json", "2>/dev/null | grep -o '\"hash\":[0-9]*'");
    char arguments[200];
    assert_int_equal(plan.code, 0);
    snprintf(arguments, sizeof arguments, "sim --json --replay %s", file_of("77.plan", plan.text));
    struct program_outcome replayed = program_run(arguments, "2>/dev/null | grep -o '\"hash\":[0-9]*'");
    assert_string_equal(drawn.text, replayed.text);
    assert_true(strlen(drawn.text) > 10);
    free(plan.text);
    free(drawn.text);
    free(replayed.text);
}

static void many_seeds_make_a_summary(void **state)
{
    program_expect("sim --seeds 1-12 --quiet", 0, "12 runs, 0 failed");
    program_expect("sim --seeds 1-3 --jobs 1", 0, "seed 2: ok");
    program_expect("sim --minutes 0.01 --quiet", 0, " 0 failed");
    program_expect("sim --seeds 1-1000000 --minutes 0.01 --quiet --jobs 2", 0, " 0 failed");
}

/* A run without end, in time, memory or events, is stopped, and its seed is named. */
static void bounds_hold(void **state)
{
    program_expect("sim --seed 8 --set rounds=1000000,keys=1000000 --timeout 0.2", 1,
                   "seed 8: TOO LONG: stopped after");
    program_expect("sim --seed 8 --memory-max 1M", 1, "seed 8: TOO MUCH MEMORY: stopped at");
    program_expect("sim --seeds 8-9 --set events=2000 --quiet --fail-fast --jobs 1", 1,
                   "used up the run's events");
    program_expect("sim --seeds 8-9 --set events=2000 --quiet --fail-fast --jobs 1", 1,
                   "again: banyan sim --seed 8");
    program_expect("sim --seeds 8-9 --set events=2000 --quiet --fail-fast --jobs 1", 1, "1 runs, 1 failed");
}

static void a_failing_plan_is_kept(void **state)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments,
             "sim --seeds 8-10 --set events=2000 --quiet --jobs 2 --save %s/kept.plan", folder);
    program_expect(arguments, 1, "3 runs, 3 failed");
    snprintf(arguments, sizeof arguments, "sim --quiet --replay %s/kept.plan", folder);
    program_expect(arguments, 1, "seed 8: FAILED: ");
}

/* One JSON object a line and nothing else; with --quiet those of failures and the last. */
static void json_is_nothing_else(void **state)
{
    struct program_outcome sound = program_run("sim --seeds 1-3 --json --quiet", "2>&1"),
                           failed = program_run("sim --seeds 8-9 --set events=2000 --json --quiet", "2>&1");
    unsigned lines = 0;
    json_error_t error;
    assert_int_equal(strncmp(sound.text, "{\"runs\":3,", 10), 0);
    for (char *rest = failed.text, *line; (line = strsep(&rest, "\n")) && *line; lines++) {
        json_t *json = json_loads(line, 0, &error);
        assert_non_null(json);
        json_decref(json);
    }
    assert_int_equal(lines, 3);
    free(sound.text);
    free(failed.text);
    program_expect("sim --seeds 8-9 --json --trace", 2, "without --trace");
    program_expect("sim --seed 8 --json --shrink", 2, "give --save");
}

/* Integers of JSON readers end at 2^63 - 1: a larger seed is a string of its digits. */
static void json_tells_large_seeds(void **state)
{
    struct program_outcome most = program_run("sim --seed 18446744073709551615 --json", "2>/dev/null"),
                           fits = program_run("sim --seed 9223372036854775807 --json", "2>/dev/null");
    json_error_t error;
    json_t *large = json_loads(most.text, JSON_DISABLE_EOF_CHECK, &error),
           *small = json_loads(fits.text, JSON_DISABLE_EOF_CHECK, &error);
    assert_true(large && small);
    const char *digits = json_string_value(json_object_get(large, "seed"));
    assert_non_null(digits);
    assert_string_equal(digits, "18446744073709551615");
    assert_true(json_integer_value(json_object_get(small, "seed")) == INT64_MAX);
    json_decref(large);
    json_decref(small);
    free(most.text);
    free(fits.text);
}

/* Seeds that could not be started have not passed. */
static void a_lack_of_processes_is_told(void **state)
{
    struct rlimit usual, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    few = usual;
    few.rlim_cur = 16; /* enough for some jobs, not for all */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    program_expect("sim --seeds 1-40 --jobs 16 --quiet", 1, "no process for it: Too many open files");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    char command[sizeof folder + 20];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_sim BANYAN\n");
        return 2;
    }
    program_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_settings_are_told),
        cmocka_unit_test(plans_of_others_are_refused),
        cmocka_unit_test(help_tells),
        cmocka_unit_test(one_seed_is_one_run),
        cmocka_unit_test(addresses_decide_nothing),
        cmocka_unit_test(a_plan_is_its_seed),
        cmocka_unit_test(many_seeds_make_a_summary),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(a_failing_plan_is_kept),
        cmocka_unit_test(json_is_nothing_else),
        cmocka_unit_test(json_tells_large_seeds),
        cmocka_unit_test(a_lack_of_processes_is_told),
    };
    return cmocka_run_group_tests_name("sim_command", tests, make_folder, drop_folder);
}
