/*
 * test_bench_sim.c - `banyan bench --fabric sim` from outside: what the presets, ownership, logs, moves and
 * deaths come to in the simulator, where each number is the same on every machine. argv[1] is the executable.
 *
 * A simulated run has one thread, so the thread sanitizer has nothing to find in it; test_bench.c has what
 * runs on threads.
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
#include <cmocka.h>
#include <jansson.h>
#include "program.h"
#include "reports.h"

#define SMALL "--keys 20k --operations 5k "
#define WORLD "--fabric sim --memory-nodes 2 --compute-nodes 2 --threads 2 " SMALL

static void every_preset_runs_on_sim(void **state)
{
    (void)state;
    json_t *json = reports_json(WORLD "--preset all --workload write-intensive");
    const json_t *results = json_object_get(json, "results");
    assert_int_equal(json_array_size(results), 7);
    for (size_t i = 0; i < json_array_size(results); i++)
        reports_check(json_array_get(results, i), 5000);
    json_decref(json);
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

/* Of upserts alone, what choosing who merges gives over merging by owners: how many times the throughput, and
 * p99.9 of the latency. */
struct gain {
    double throughput, latency;
};

static struct gain merging_by_choice(const char *world)
{
    char arguments[500];
    snprintf(
        arguments, sizeof arguments,
        "--fabric sim --testbed dinomo --memory-nodes 1 --fibers 4 --keys 40k --mix upsert=1 --distribution "
        "uniform --warm-up 40k --operations 40k --no-check --pool-bytes 64M --preset "
        "banyan-owned@log=1@merge-walks=never,banyan-owned@log=1@merge-walks=auto %s",
        world);
    json_t *json = reports_json(arguments);
    const json_t *never = reports_result(json, 0), *by_choice = reports_result(json, 1);
    const json_t *before = json_object_get(never, "latency_us"),
                 *after = json_object_get(by_choice, "latency_us");
    const struct gain gain = {.throughput = reports_number(by_choice, "throughput_mops") /
                                            reports_number(never, "throughput_mops"),
                              .latency = reports_number(after, "p999") / reports_number(before, "p999")};
    json_decref(json);
    return gain;
}

/* Where compute nodes' CPUs are the limit it costs next to nothing, however slow the memory node's one core
 * is: no entry is looked for twice, and no queue gets long before the share of what is asked has fallen. */
static void merging_by_choice_costs_little(void **state)
{
    (void)state;
    struct gain gain = merging_by_choice(
        "--compute-nodes 2 --threads 4 --log-bytes 2M --cache-bytes 256K --sim rpc-cores=1");
    assert_true(gain.throughput > 0.94 && gain.latency < 2);
    gain = merging_by_choice("--compute-nodes 8 --threads 2 --log-bytes 8M --cache-bytes 128K --sim "
                             "rpc-cores=1,merge-entry-ns=2000");
    assert_true(gain.throughput > 0.94 && gain.latency < 2);
}

static void merging_by_choice_gains_where_the_network_limits(void **state)
{
    (void)state;
    const struct gain gain =
        merging_by_choice("--compute-nodes 2 --threads 4 --log-bytes 2M --cache-bytes 256K --sim "
                          "rpc-cores=8,message-rate-in=2,message-rate-out=2");
    assert_true(gain.throughput > 1.8 && gain.latency < 1);
}

/* Four memory nodes with so many cores that the network interfaces limit walks: READs and walks wait there
 * alike, now at one node, now at another, and each search that is read takes three messages for one. */
static void walking_by_choice_keeps_up_with_walks_alone(void **state)
{
    (void)state;
    json_t *json = reports_json("--fabric sim --testbed cell --workload ycsb:c --distribution uniform --keys "
                                "100k --leaf-bytes 512 --internal-bytes 512 --subtree-levels 3 --fibers 4 "
                                "--warm-up 100k --operations 60k --no-check --sim rpc-cores=8 --preset "
                                "cell@cache-lowest=3@walks=always,cell@cache-lowest=3@walks=auto");
    const double always = reports_number(reports_result(json, 0), "throughput_mops"),
                 chosen = reports_number(reports_result(json, 1), "throughput_mops");
    print_message("walks alone %.2f Mops, by choice %.2f\n", always, chosen);
    assert_true(chosen > 0.94 * always);
    json_decref(json);
}

/* Each preset's own, or one for all; either way said of each. */
static void presets_bring_their_leaves(void **state)
{
    (void)state;
    static const char *const leaves[] = {"preset", "hashed", "unsorted", "dense"};
    for (unsigned i = 0; i < 4; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, WORLD "--preset fg+,sherman,banyan --leaf %s", leaves[i]);
        json_t *json = reports_json(arguments);
        const json_t *results = json_object_get(json, "results");
        assert_int_equal(json_array_size(results), 3);
        for (unsigned j = 0; j < 3; j++) {
            const json_t *result = json_array_get(results, j);
            const char *wanted = i ? leaves[i] : j < 2 ? "unsorted" : "hashed";
            /* 20,000 keys at fill 0.8: 36, 38 or 37 in a leaf */
            const unsigned slots = !strcmp(wanted, "hashed") ? 45 : !strcmp(wanted, "dense") ? 46 : 47;
            const unsigned leaves_loaded = slots == 45 ? 556 : slots == 46 ? 541 : 527;
            assert_string_equal(json_string_value(json_object_get(result, "leaf")), wanted);
            assert_true(reports_number(result, "leaf_slots") == slots);
            assert_true(reports_number(json_object_get(result, "loaded"), "leaves") == leaves_loaded);
        }
        json_decref(json);
    }
    program_expect("bench " WORLD "--preset sherman,banyan", 0,
                   "leaves: unsorted (47 slots): sherman; hashed (45 slots): banyan");
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

static void faults_are_survived(void **state)
{
    (void)state;
    json_t *json = reports_json(WORLD "--workload write-intensive --faults hostile");
    reports_check(reports_result(json, 0), 5000);
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

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_bench_sim BANYAN\n");
        return 2;
    }
    program_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_runs_on_sim),
        cmocka_unit_test(owned_ranges_are_sound),
        cmocka_unit_test(clients_that_never_wait_work_at_once),
        cmocka_unit_test(keys_of_others_are_forwarded),
        cmocka_unit_test(a_range_moves_under_load),
        cmocka_unit_test(logs_go_with_the_map),
        cmocka_unit_test(a_compute_node_fails_under_load),
        cmocka_unit_test(merging_keeps_up_with_writers),
        cmocka_unit_test(merging_by_choice_costs_little),
        cmocka_unit_test(merging_by_choice_gains_where_the_network_limits),
        cmocka_unit_test(walking_by_choice_keeps_up_with_walks_alone),
        cmocka_unit_test(presets_bring_their_leaves),
        cmocka_unit_test(switches_are_set_over_presets),
        cmocka_unit_test(simulations_repeat),
        cmocka_unit_test(faults_are_survived),
        cmocka_unit_test(skew_of_more_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
