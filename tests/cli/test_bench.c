/*
 * test_bench.c - `banyan bench` from outside: exit codes, messages, and the JSON and page that it writes.
 * argv[1] is the executable. Runs are small; nothing here depends on how fast they are.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>
#include "program.h"
#include "reports.h"

static void usage_errors_say_what_to_do(void **state)
{
    (void)state;
    program_expect("", 2, "Usage");
    program_expect("fly", 2, "unknown command 'fly'");
    program_expect("bench --fly", 2, "fly");
    program_expect("bench stray", 2, "stray");
    program_expect("bench --workload fly", 2, "--list");
    program_expect("bench --preset fly", 2, "fly");
    program_expect("bench --preset dex@fly=1", 2, "dex@fly=1");
    program_expect("bench --preset dex@threads", 2, "setting=value");
    program_expect("bench --preset dex@threads=0", 2, "1 to 1M");
    program_expect("bench --preset dex@own=some", 2, "none or static");
    program_expect("bench --fabric sim --preset dex@threads=33", 2, "compute nodes of 22");
    program_expect("bench --preset sherman@cores=0", 2, "1 to 1M");
    program_expect("bench --fabric local --preset sherman@servers=2", 2, "settings on --fabric sim");
    program_expect("bench --fabric sim --compute-nodes 5 --keys 8 --own static", 2,
                   "cannot own 5 ranges of 8 keys");
    program_expect("bench --own fly", 2, "preset, none, static");
    program_expect("bench --route fly", 2, "owner, any");
    program_expect("bench --mix lookup", 2, "operation=share");
    program_expect("bench --distribution normal", 2, "zipfian");
    program_expect("bench --fabric carrier-pigeon", 2, "local, sim");
    program_expect("bench --threads 0", 2, "--threads");
    program_expect("bench --memory-nodes 100000", 2, "--memory-nodes");
    program_expect("bench --keys many", 2, "--keys");
    program_expect("bench --keys 0 --workload read-only", 2, "--keys");
    program_expect("bench --key-bytes 4", 2, "--key-bytes");
    program_expect("bench --value-bytes 65001", 2, "--value-bytes");
    program_expect("bench --value-bytes 256 --fabric tcp", 2, "--value-bytes");
    program_expect("bench --preset dinomo@cache=0%", 2, "cache");
    program_expect("bench --preset dinomo@cache=5%x", 2, "cache");
    program_expect("bench --preset dinomo@values=0", 2, "values");
    program_expect("bench --preset dinomo@values=64M", 2, "values");
    program_expect("bench --fabric tcp --preset dinomo@values=1K", 2, "--value-bytes");
    program_expect("bench --theta 4.1", 2, "--theta");
    program_expect("bench --memory tcp://localhost:1", 2, "--fabric tcp, unix or rdma");
    program_expect("bench --fabric tcp --memory fly://", 2, "--memory");
    program_expect("bench --fabric tcp --memory tcp://localhost:1", 1, "Connection refused");
    program_expect("bench --theta nan", 2, "--theta");
    program_expect("bench --skew-of some", 2, "--skew-of");
    program_expect("bench --keys 1M --skew-of 900k", 2, "1000000 keys");
    program_expect("bench --keys 1M --skew-of 999999", 2, "1000000 keys");
    program_expect("bench --skew-of 1G --distribution uniform", 2, "zipfian");
    program_expect("bench --skew-of 1G --theta 0", 2, "--theta");
    program_expect("bench --skew-of 10000000G", 2, "4503599627370496");
    program_expect("bench --skew-of -1", 2, "--skew-of");
    program_expect("bench --fill 7", 2, "--fill");
    program_expect("bench --leaf-bytes 1000", 2, "leaf");
    program_expect("bench --leaf fly", 2, "preset, hashed, unsorted");
    program_expect("bench --combine sometimes", 2, "combine");
    program_expect("bench --handover -1", 2, "handover");
    program_expect("bench --sim gravity=1", 2, "gravity");
    program_expect("bench --fabric sim --sim lock-width=4", 2, "2 or 8");
    program_expect("bench --fabric sim --sim dma-read-rate=1e-9", 2, "0.001");
    program_expect("bench --faults late=2", 2, "late");
    program_expect("bench --peer fly", 2, "fly");
    program_expect("bench --fabric sim --peer lmdb", 2, "--fabric local");
    program_expect("bench --compute-nodes 60000 --threads 4000 --fibers 4000", 2, "million");
    program_expect("bench --keys 900G", 2, "GiB");
    program_expect("bench --chunk-bytes 5", 2, "--chunk-bytes");
    program_expect("bench --log-bytes 5", 2, "--log-bytes");
    program_expect("bench --pool-bytes 4K", 2, "--pool-bytes");
    program_expect("version --fly", 2, "--fly");
}

static void help_and_lists(void **state)
{
    (void)state;
    program_expect("--help", 0, "bench");
    program_expect("help bench", 0, "Examples");
    program_expect("bench --help", 0, "--lock-region");
    program_expect("bench --help", 0, "--no-local-locks");
    program_expect("bench --list", 0, "sherman:write-only");
    program_expect("bench --list", 0, "+hierarchical");
    program_expect("bench --sim help", 0, "message-rate-in");
    program_expect("bench --faults help", 0, "torn-reads");
    program_expect("version", 0, "banyan ");
}

static void version_json(void **state)
{
    (void)state;
    struct program_outcome outcome = program_run("version --json", "");
    assert_int_equal(outcome.code, 0);
    json_t *json = json_loads(outcome.text, 0, NULL);
    assert_true(json_is_string(json_object_get(json, "version")));
    json_decref(json);
    free(outcome.text);
}

static void check_result(const json_t *result, double operations)
{
    static const char *const costs[] = {"round_trips", "reads",      "writes",       "atomics",
                                        "rpcs",        "bytes_read", "bytes_written"};
    const json_t *latency = json_object_get(result, "latency_us"),
                 *per_op = json_object_get(result, "per_op");
    assert_true(reports_number(result, "throughput_mops") > 0);
    assert_true(reports_number(result, "operations") >= operations);
    assert_true(reports_number(latency, "p50") <= reports_number(latency, "p90"));
    assert_true(reports_number(latency, "p90") <= reports_number(latency, "p99"));
    assert_true(reports_number(latency, "p99") <= reports_number(latency, "p999"));
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        assert_true(reports_number(per_op, costs[i]) >= 0);
    assert_true(reports_number(result, "retries") >= 0);
    assert_true(reports_number(result, "cache_hit") >= 0 && reports_number(result, "cache_hit") <= 1);
    assert_true(json_is_string(json_object_get(result, "preset")));
    assert_true(json_is_string(json_object_get(result, "workload")));
    assert_true(json_is_string(json_object_get(result, "distribution")));
}

#define SMALL "--keys 20k --operations 5k "
#define WORLD "--fabric sim --memory-nodes 2 --compute-nodes 2 --threads 2 " SMALL

static void every_workload_runs_on_local(void **state)
{
    (void)state;
    json_t *json =
        reports_json("--workload all --distribution uniform --threads 2 --fibers 2 --scan-length 20 " SMALL);
    const json_t *results = json_object_get(json, "results");
    assert_int_equal(json_array_size(results), 26);
    for (size_t i = 0; i < json_array_size(results); i++)
        check_result(json_array_get(results, i), 5000);
    json_decref(json);
}

static void every_preset_runs_on_sim(void **state)
{
    (void)state;
    json_t *json = reports_json(WORLD "--preset all --workload write-intensive");
    const json_t *results = json_object_get(json, "results");
    assert_int_equal(json_array_size(results), 7);
    for (size_t i = 0; i < json_array_size(results); i++)
        check_result(json_array_get(results, i), 5000);
    json_decref(json);
}

/* Who owns a leaf takes no lock in the pool for it: an update costs a READ and a WRITE at most, on every
 * fabric, and the leaf is read as often where nothing of it is cached. */
static void owners_take_no_locks(void **state)
{
    (void)state;
    static const char *const fabrics[] = {WORLD, "--compute-nodes 3 " SMALL};
    for (size_t i = 0; i < 2; i++) {
        char arguments[300];
        snprintf(arguments, sizeof arguments,
                 "%s --workload dex:write-intensive --distribution scrambled --preset p-sherman,sherman,"
                 "sherman@own=static",
                 fabrics[i]);
        json_t *json = reports_json(arguments);
        for (size_t r = 0; r < 3; r++) {
            const json_t *result = reports_result(json, r), *per_op = json_object_get(result, "per_op");
            const char *own = json_string_value(json_object_get(result, "own"));
            assert_string_equal(own, r == 1 ? "none" : "static");
            assert_true(reports_number(result, "absent") == 0);
            assert_true((reports_number(per_op, "atomics") > 0) == (r == 1));
            assert_true(reports_number(per_op, "peer_calls") == 0); /* all keys are the node's own */
            if (r == 1)
                continue;
            assert_true(reports_number(per_op, "reads") > 0.9 && reports_number(per_op, "reads") < 1.3);
            assert_true(reports_number(per_op, "writes") < 0.6);
            const json_t *leaves = json_object_get(json_object_get(result, "cache"), "leaves");
            assert_true(reports_number(leaves, "hits") == 0 && reports_number(leaves, "bytes") == 0);
        }
        json_decref(json);
    }
}

/* New keys, deletes and scans too, in every preset; the walk after the run proves the index. */
static void owned_ranges_are_sound(void **state)
{
    (void)state;
    json_t *json =
        reports_json(WORLD "--mix insert=30,delete=20,lookup=20,scan=10,modify=20 --scan-length 30 "
                           "--own static --preset all");
    const json_t *results = json_object_get(json, "results");
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);
        assert_string_equal(json_string_value(json_object_get(result, "own")), "static");
        assert_true(reports_number(json_object_get(result, "ended"), "entries") > 0);
    }
    json_decref(json);
    free(reports_repeat(WORLD "--workload write-intensive --preset dex,banyan-owned,p-sherman"));
}

/* Operations that make no round trip: no client does those of all others, one after the other. */
static void clients_that_never_wait_work_at_once(void **state)
{
    (void)state;
    json_t *json = reports_json("--fabric sim --memory-nodes 2 --compute-nodes 2 --threads 8 --keys 2k "
                                "--warm-up 40k --operations 20k --workload read-only --preset banyan-owned,"
                                "banyan-owned@threads=1");
    double many = reports_number(reports_result(json, 0), "throughput_mops");
    double one = reports_number(reports_result(json, 1), "throughput_mops");
    assert_true(one > 0.5 && many > 12 * one && many < 16.5 * one); /* 16 clients */
    assert_true(reports_number(json_object_get(reports_result(json, 0), "per_op"), "round_trips") < 0.01);
    json_decref(json);
}

/* With --route any the index forwards; and a range moves while clients work, without an operation lost. */
static void keys_of_others_are_forwarded(void **state)
{
    (void)state;
    json_t *json =
        reports_json(WORLD "--workload dex:write-intensive --distribution scrambled --preset p-sherman "
                           "--route any");
    const json_t *result = reports_result(json, 0), *per_op = json_object_get(result, "per_op");
    assert_true(reports_number(result, "absent") == 0);
    assert_true(reports_number(per_op, "peer_calls") > 0.1 && reports_number(per_op, "peer_calls") < 0.6);
    assert_true(reports_number(per_op, "atomics") < 0.01);
    json_decref(json);
    free(reports_repeat(WORLD "--workload write-intensive --preset banyan-owned --route any"));
    program_expect("bench --route any", 2, "--own static");
    program_expect("bench --own static --route any", 2, "--fabric sim");
}

static void a_range_moves_under_load(void **state)
{
    (void)state;
    json_t *json = reports_json("--fabric sim --memory-nodes 2 --compute-nodes 3 --threads 2 --keys 20k "
                                "--operations 20k --workload dex:write-intensive --distribution uniform "
                                "--preset p-sherman@move=on,banyan-owned@move=on");
    for (size_t i = 0; i < 2; i++) {
        const json_t *result = reports_result(json, i), *move = json_object_get(result, "move");
        assert_true(reports_number(result, "absent") == 0);
        assert_true(reports_number(move, "begin_us") > 0 && reports_number(move, "took_us") > 0);
        assert_true(reports_number(move, "begin_us") + reports_number(move, "took_us") <
                    reports_number(result, "window_us"));
        const json_t *mops = json_object_get(move, "mops");
        double counted = 0;
        for (size_t j = 0; j < json_array_size(mops); j++)
            counted += json_number_value(json_array_get(mops, j)) * reports_number(move, "interval_us");
        assert_true(counted > 19999 && counted < 20001);
    }
    json_decref(json);
    program_expect("bench --fabric sim --preset banyan@move=on", 2, "--own static");
    program_expect("bench --own static --preset banyan@move=on", 2, "--fabric sim");
}

/* Logged ranges go from owner to owner as others do. */
static void logs_go_with_the_map(void **state)
{
    (void)state;
    json_t *json = reports_json("--fabric sim --memory-nodes 2 --compute-nodes 3 --threads 2 --keys 20k "
                                "--operations 20k --workload dex:write-intensive --distribution uniform "
                                "--preset banyan-owned@move=on@log=1");
    const json_t *result = reports_result(json, 0);
    assert_true(reports_number(result, "absent") == 0);
    assert_true(reports_number(json_object_get(result, "move"), "took_us") > 0);
    assert_true(reports_number(json_object_get(result, "log"), "entries") > 5000);
    json_decref(json);
    json = reports_json(WORLD "--workload dex:write-intensive --route any --preset banyan-owned@log=2");
    result = reports_result(json, 0);
    assert_true(reports_number(result, "absent") == 0);
    assert_true(reports_number(json_object_get(result, "per_op"), "peer_calls") > 0.3);
    assert_true(reports_number(json_object_get(result, "log"), "entries") > 2000);
    json_decref(json);
}

#define FAILING                                                                                              \
    "--fabric sim --memory-nodes 2 --compute-nodes 4 --threads 2 --fibers 2 --keys 20k --operations 20k "    \
    "--workload dinomo:write-heavy-update --pool-bytes 128M --log-bytes 16M "

static void check_failure(const json_t *result)
{
    const json_t *fail = json_object_get(result, "fail"), *mops = json_object_get(fail, "mops");
    const json_t *before = json_object_get(fail, "before"), *after = json_object_get(fail, "after");
    const double begin = reports_number(fail, "begin_us"), window = reports_number(result, "window_us");
    double counted = 0;
    assert_true(reports_number(result, "absent") == 0);
    assert_true(reports_number(fail, "ranges") == 8);
    /* a quarter of the operations, and 100 ms */
    assert_true(begin > 0 && window > begin + 99999 && window < begin + 101000);
    assert_true(fabs(reports_number(before, "throughput_mops") * begin - 5000) < 50);
    /* Longer than the process lives on at the memory nodes; what is left of its read lease, and some. */
    assert_true(reports_number(fail, "served_us") > 1000 && reports_number(fail, "served_us") < 70000);
    assert_true(reports_number(json_object_get(after, "latency_us"), "max") > 10000);
    assert_true(reports_number(json_object_get(before, "latency_us"), "max") < 10000);
    assert_true(reports_number(fail, "lowest_mops") < 0.01 && reports_number(fail, "halved_us") > 10000);
    for (size_t i = 0; i < json_array_size(mops); i++)
        counted += json_number_value(json_array_get(mops, i)) * reports_number(fail, "interval_us");
    assert_true(fabs(counted - reports_number(result, "operations")) < 1);
    assert_true(reports_number(fail, "read_back") == 20000);
}

/* The run itself fails if a write that was acknowledged is not read back. */
static void a_compute_node_fails_under_load(void **state)
{
    (void)state;
    json_t *json = reports_json(FAILING "--preset banyan-owned@fail=on,banyan-owned@fail=on@log=2,"
                                        "dinomo@fail=on@log=1@values=1K@cache=10%");
    for (size_t i = 0; i < 3; i++) {
        const json_t *result = reports_result(json, i), *fail = json_object_get(result, "fail");
        check_failure(result);
        assert_true((reports_number(fail, "unmerged") > 100) == (i > 0));
        assert_true((reports_number(fail, "log_bytes") > 0) == (i > 0));
        assert_true((reports_number(fail, "inherited") > 100) == (i > 0));
    }
    json_decref(json);
    free(reports_repeat(FAILING "--distribution scrambled --preset banyan-owned@fail=on@log=1"));
    program_expect("bench " FAILING "--preset banyan-owned@fail=on@log=1", 0,
                   "no acknowledged write was lost");
    program_expect("bench --own static --preset banyan@fail=on", 2, "--fabric sim");
    program_expect("bench --fabric sim --preset banyan@fail=on", 2, "--own static");
    program_expect("bench --fabric sim --compute-nodes 2 --preset banyan-owned@fail=on", 2, "three compute");
    program_expect("bench --fabric sim --preset banyan-owned@fail=on@values=4", 2, "--value-bytes");
    program_expect("bench --fabric sim --preset banyan-owned@fail=maybe", 2, "on or off");
    program_expect("bench --keys 2k --fabric sim --preset banyan-owned@fail=on --workload write-intensive", 1,
                   "keep their keys");
}

/* Writers of new keys go on as fast as merging does, all alike: none waits for a whole cycle (before, 27 ms
 * here), and merging does not wait for one split after the other. */
static void merging_keeps_up_with_writers(void **state)
{
    (void)state;
    json_t *json = reports_json("--fabric sim --keys 20k --operations 40k --mix insert=1 --memory-nodes 2 "
                                "--compute-nodes 1 --threads 8 --preset banyan-owned@log=1 "
                                "--pool-bytes 64M --log-bytes 1M --no-check");
    const json_t *result = reports_result(json, 0), *log = json_object_get(result, "log");
    assert_true(reports_number(log, "held_back") > 0);
    assert_true(reports_number(log, "held_back_longest_us") < 2000);
    assert_true(reports_number(log, "wait_longest_us") < 2000);
    assert_true(reports_number(json_object_get(result, "latency_us"), "p999") < 2000);
    assert_true(reports_number(log, "merged_mops") > 0.9 * reports_number(log, "logged_mops"));
    assert_true(reports_number(log, "logged_mops") > 0.5);
    json_decref(json);
}

/* Each preset's own, or one for all; either way said of each. */
static void presets_bring_their_leaves(void **state)
{
    (void)state;
    static const char *const leaves[] = {"preset", "hashed", "unsorted"};
    for (unsigned i = 0; i < 3; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, WORLD "--preset fg+,sherman,banyan --leaf %s", leaves[i]);
        json_t *json = reports_json(arguments);
        const json_t *results = json_object_get(json, "results");
        assert_int_equal(json_array_size(results), 3);
        for (unsigned j = 0; j < 3; j++) {
            const json_t *result = json_array_get(results, j);
            const char *wanted = i ? leaves[i] : j < 2 ? "unsorted" : "hashed";
            bool hashed = !strcmp(wanted, "hashed");
            assert_string_equal(json_string_value(json_object_get(result, "leaf")), wanted);
            assert_true(reports_number(result, "leaf_slots") == (hashed ? 45 : 47));
            /* 20,000 keys at fill 0.8: 36 in a leaf, or 38 */
            assert_true(reports_number(json_object_get(result, "loaded"), "leaves") == (hashed ? 556 : 527));
        }
        json_decref(json);
    }
    program_expect("bench " WORLD "--preset sherman,banyan", 0,
                   "leaves: unsorted (47 slots): sherman; hashed (45 slots): banyan");
}

static void deletes_and_long_keys(void **state)
{
    (void)state;
    json_t *json =
        reports_json("--mix upsert=2,delete=1,lookup=1,insert=1 --key-bytes 40 --value-bytes 100 " SMALL);
    const json_t *result = reports_result(json, 0);
    check_result(result, 5000);
    assert_true(reports_number(result, "absent") > 0);
    assert_true(reports_number(json_object_get(result, "loaded"), "entries") == 20000);
    assert_true(reports_number(json_object_get(result, "ended"), "bytes_per_entry") > 140);
    json_decref(json);
}

/* Values that no slot holds, by every kind of operation, on threads and in the simulator. */
static void values_in_records(void **state)
{
    (void)state;
    static const char *const on[] = {
        "", "--fabric sim --memory-nodes 1 --compute-nodes 2 --threads 2 --preset banyan-owned@cache=10% ",
        "--fabric sim --memory-nodes 2 --compute-nodes 2 --threads 2 "};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        char options[300];
        snprintf(
            options, sizeof options,
            "%s--mix lookup=4,update=1,insert=1,delete=1,modify=1,scan=1 --scan-length 5 --value-bytes 1K "
            "--keys 4k --operations 3k ",
            on[i]);
        json_t *json = reports_json(options);
        const json_t *result = reports_result(json, 0);
        check_result(result, 3000);
        assert_true(reports_number(json_object_get(json, "config"), "value_bytes") == 1024);
        assert_true(reports_number(json_object_get(result, "loaded"), "entries") == 4000);
        const json_t *values = json_object_get(json_object_get(result, "cache"), "values");
        assert_true(i ? reports_number(values, "hits") > 0 : reports_number(values, "hits") <= 0);
        json_decref(json);
    }
}

static void empty_index_takes_inserts(void **state)
{
    (void)state;
    json_t *json = reports_json("--keys 0 --workload insert-only --operations 20k --warm-up 0");
    const json_t *result = reports_result(json, 0);
    check_result(result, 20000);
    assert_true(reports_number(json_object_get(result, "ended"), "entries") >= 20000);
    json_decref(json);
}

static void switches_are_set_over_presets(void **state)
{
    (void)state;
    json_t *json = reports_json(WORLD "--preset sherman --handover 2 --no-local-locks --lock-region dram");
    const json_t *switches = json_object_get(reports_result(json, 0), "switches");
    assert_true(reports_number(switches, "handover") == 2);
    assert_true(json_is_false(json_object_get(switches, "local-locks")));
    assert_string_equal(json_string_value(json_object_get(switches, "lock-region")), "dram");
    json_decref(json);
}

static void simulations_repeat(void **state)
{
    (void)state;
    char *first = reports_repeat(WORLD "--workload write-intensive --preset fg+,banyan");
    char *other = reports_run(WORLD "--workload write-intensive --preset fg+,banyan --seed 2");
    assert_string_not_equal(first, other);
    free(first);
    free(other);
}

/* Integers of JSON readers end at 2^63 - 1: a larger seed is a string of its digits. */
static void json_tells_large_seeds(void **state)
{
    (void)state;
    json_t *json = reports_json("--keys 1k --operations 1k --seed 18446744073709551615");
    const char *digits = json_string_value(json_object_get(json_object_get(json, "config"), "seed"));
    assert_non_null(digits);
    assert_string_equal(digits, "18446744073709551615");
    json_decref(json);
}

static void faults_are_survived(void **state)
{
    (void)state;
    json_t *json = reports_json(WORLD "--workload write-intensive --faults hostile");
    check_result(reports_result(json, 0), 5000);
    json_decref(json);
}

/* Another skew is another run; uniform draws do not feel it; tables and pages name it. */
static void skew_of_more_keys(void **state)
{
    (void)state;
    json_t *plain = reports_json(WORLD "--workload write-intensive --distribution zipfian,uniform");
    json_t *matched =
        reports_json(WORLD "--workload write-intensive --distribution zipfian,uniform --skew-of 1G");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(plain, "config"), "skew_of")), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(matched, "config"), "skew_of")),
                     1000000000);
    for (size_t i = 0; i < 2; i++) {
        const char *hashes[2];
        json_t *runs[] = {plain, matched};
        for (size_t j = 0; j < 2; j++)
            hashes[j] = reports_string(reports_result(runs[j], i), "trace_hash");
        assert_int_equal(strcmp(hashes[0], hashes[1]) == 0, i == 1);
    }
    json_decref(plain);
    json_decref(matched);
    program_expect("bench " SMALL "--skew-of 1G", 0, "theta 0.99 as among 1000000000 keys");
}

static void page_stands_alone(void **state)
{
    (void)state;
    char *page = reports_page(SMALL, NULL);
    assert_true(strlen(page) > 2000);
    assert_non_null(strstr(page, "<svg"));
    assert_non_null(strstr(page, "</html>"));
    assert_null(strstr(page, "http:"));
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "nan"));
    free(page);
}

static void full_pools_fail_cleanly(void **state)
{
    (void)state;
    program_expect("bench --keys 1M --operations 1k --pool-bytes 20M", 1, "--pool-bytes");
}

/* A file that cannot be made is told before the run; a table that was not written is no success. */
static void results_that_cannot_be_written(void **state)
{
    (void)state;
    program_expect("bench " SMALL "--json /nowhere/result.json", 1, "/nowhere/result.json");
    program_expect("bench " SMALL "--report /nowhere/page.html", 1, "/nowhere/page.html");
    program_expect("bench " SMALL "--json /dev/full", 1, "/dev/full");
    struct program_outcome outcome = program_run("bench " SMALL, "2>&1 >/dev/full");
    assert_int_equal(outcome.code, 1);
    assert_non_null(strstr(outcome.text, "standard output"));
    free(outcome.text);
}

/* A reader of the table that leaves early ends the command, but not before the files are whole. */
static void files_are_whole_when_the_table_is_not_read(void **state)
{
    (void)state;
    char path[] = "/tmp/banyan-result-XXXXXX", arguments[256];
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    snprintf(arguments, sizeof arguments, "bench " SMALL "--json %s", path);
    free(program_run(arguments, "| true").text);
    json_t *result = json_load_file(path, 0, NULL);
    remove(path);
    assert_non_null(result);
    assert_int_equal(json_array_size(json_object_get(result, "results")), 1);
    json_decref(result);
}

static void peers_are_compared(void **state)
{
    (void)state;
    struct program_outcome found =
        program_run("bench --peer lmdb --keys 1k --operations 1k --pairs 1", "2>&1");
    if (found.code == 2) { /* made without LMDB: it must say so */
        assert_non_null(strstr(found.text, "LMDB"));
        free(found.text);
        skip();
    }
    assert_int_equal(found.code, 0);
    assert_non_null(strstr(found.text, "ratio"));
    free(found.text);
    json_t *json = reports_json("--peer lmdb --workload insert-intensive --pairs 2 --threads 2 " SMALL);
    assert_int_equal(json_array_size(json_object_get(json, "results")), 6);
    json_decref(json);
    program_expect(
        "bench --peer lmdb --mix scan=1,lookup=1,update=1,delete=1,modify=1,upsert=1 --pairs 1 " SMALL, 0,
        "ratio");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_bench BANYAN\n");
        return 2;
    }
    program_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors_say_what_to_do),
        cmocka_unit_test(help_and_lists),
        cmocka_unit_test(version_json),
        cmocka_unit_test(every_workload_runs_on_local),
        cmocka_unit_test(every_preset_runs_on_sim),
        cmocka_unit_test(owners_take_no_locks),
        cmocka_unit_test(owned_ranges_are_sound),
        cmocka_unit_test(clients_that_never_wait_work_at_once),
        cmocka_unit_test(keys_of_others_are_forwarded),
        cmocka_unit_test(a_range_moves_under_load),
        cmocka_unit_test(logs_go_with_the_map),
        cmocka_unit_test(a_compute_node_fails_under_load),
        cmocka_unit_test(merging_keeps_up_with_writers),
        cmocka_unit_test(presets_bring_their_leaves),
        cmocka_unit_test(deletes_and_long_keys),
        cmocka_unit_test(values_in_records),
        cmocka_unit_test(empty_index_takes_inserts),
        cmocka_unit_test(switches_are_set_over_presets),
        cmocka_unit_test(simulations_repeat),
        cmocka_unit_test(json_tells_large_seeds),
        cmocka_unit_test(faults_are_survived),
        cmocka_unit_test(skew_of_more_keys),
        cmocka_unit_test(page_stands_alone),
        cmocka_unit_test(full_pools_fail_cleanly),
        cmocka_unit_test(results_that_cannot_be_written),
        cmocka_unit_test(files_are_whole_when_the_table_is_not_read),
        cmocka_unit_test(peers_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
