/*
 * test_bench.c - `banyan bench` from outside: exit codes, messages, and the JSON and page that it writes, of
 * runs on threads. What only the simulator tells stands in test_bench_sim.c. argv[1] is the executable. Runs
 * are small; nothing here depends on how fast they are.
 */
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
    program_expect("bench --leaf fly", 2, "preset, hashed, unsorted, dense");
    program_expect("bench --combine sometimes", 2, "combine");
    program_expect("bench --handover -1", 2, "handover");
    program_expect("bench --sim gravity=1", 2, "gravity");
    program_expect("bench --fabric sim --sim lock-width=4", 2, "2 or 8");
    program_expect("bench --fabric sim --sim dma-read-rate=1e-9", 2, "0.001");
    program_expect("bench --faults late=2", 2, "late");
    program_expect("bench --batch 0", 2, "--batch");
    program_expect("bench --batch 1025", 2, "1 to 1024");
    program_expect("bench --batch many", 2, "--batch");
    program_expect("bench --batch 2 --workload range-only", 2, "sherman:range-only");
    program_expect("bench --batch 2 --mix lookup=9,delete=1", 2, "one by one");
    program_expect("bench --batch 2 --value-bytes 1K", 2, "--value-bytes");
    program_expect("bench --batch 2 --preset dinomo@values=1K --fabric sim", 2, "--value-bytes");
    program_expect("bench --batch 2 --paper sherman", 2, "--batch");
    program_expect("bench --batch 2 --preset banyan-owned@fail=on --fabric sim", 2, "reads back");
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

#define SMALL "--keys 20k --operations 5k "
#define WORLD "--fabric sim --memory-nodes 2 --compute-nodes 2 --threads 2 " SMALL

static void every_workload_runs_on_local(void **state)
{
    (void)state;
    json_t *json =
        reports_json("--workload all --distribution uniform --threads 2 --fibers 2 --scan-length 20 " SMALL);
    const json_t *results = json_object_get(json, "results");
    assert_int_equal(json_array_size(results), 29);
    for (size_t i = 0; i < json_array_size(results); i++)
        reports_check(json_array_get(results, i), 5000);
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

static void deletes_and_long_keys(void **state)
{
    (void)state;
    json_t *json =
        reports_json("--mix upsert=2,delete=1,lookup=1,insert=1 --key-bytes 40 --value-bytes 100 " SMALL);
    const json_t *result = reports_result(json, 0);
    reports_check(result, 5000);
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
        reports_check(result, 3000);
        assert_true(reports_number(json_object_get(json, "config"), "value_bytes") == 1024);
        assert_true(reports_number(json_object_get(result, "loaded"), "entries") == 4000);
        const json_t *values = json_object_get(json_object_get(result, "cache"), "values");
        assert_true(i ? reports_number(values, "hits") > 0 : reports_number(values, "hits") <= 0);
        json_decref(json);
    }
}

/* What `count` scans of a kind deliver, with a length that no scan reaches. */
static double entries_scanned(const char *kind, const char *options, const char *fabric)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments,
             "--mix %s=1 --distribution uniform --keys 500 --operations 300 --warm-up 50 --scan-length 1000 "
             "%s %s",
             kind, options, fabric);
    json_t *json = reports_json(arguments);
    const json_t *result = reports_result(json, 0);
    reports_check(result, 300);
    assert_non_null(json_object_get(json_object_get(result, "by_kind"), kind));
    const double entries = reports_number(result, "entries_scanned");
    json_decref(json);
    return entries;
}

/* Equal seeds draw equal keys, so a scan up and one down have together all keys and the one they begin at
 * twice. */
static void reverse_scans_are_the_other_half(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--own none", "--value-bytes 1K"};
    static const char *const fabrics[] = {
        "", "--fabric sim --memory-nodes 2 --compute-nodes 1 --threads 1 --fibers 1"};
    for (size_t i = 0; i < 6; i++) {
        const double up = entries_scanned("scan", options[i / 2], fabrics[i % 2]);
        const double down = entries_scanned("reverse-scan", options[i / 2], fabrics[i % 2]);
        assert_true(up > 0 && down > 0);
        assert_true(up + down > 300 * 501 - 0.5 && up + down < 300 * 501 + 0.5);
    }
}

/* All that goes in batches, on threads and in the simulator, whether an owner changes its leaves or all lock
 * them. The walk at the end proves the index. */
static void batches_of_every_kind(void **state)
{
    (void)state;
    static const char *const on[] = {"--own none ", "--own static --threads 2 --fibers 2 ",
                                     WORLD "--own none ", WORLD "--own static "};
    static const char *const kinds[] = {"lookup", "upsert", "insert", "update"};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        char options[300];
        snprintf(options, sizeof options,
                 "%s" SMALL "--mix lookup=4,upsert=1,insert=1,update=1 --batch 16 --distribution zipfian ",
                 on[i]);
        json_t *json = reports_json(options);
        const json_t *result = reports_result(json, 0), *by_kind = json_object_get(result, "by_kind");
        reports_check(result, 5000);
        assert_true(reports_number(json_object_get(json, "config"), "batch") == 16);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            assert_true(reports_number(json_object_get(by_kind, kinds[k]), "operations") > 0);
        assert_true(reports_number(result, "absent") <= 0);
        assert_true(reports_number(json_object_get(result, "ended"), "entries") > 20000);
        json_decref(json);
    }
}

static double round_trips(const char *workload, const char *options)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments, "%s--workload %s --distribution uniform --own none %s", WORLD,
             workload, options);
    json_t *json = reports_json(arguments);
    const json_t *result = reports_result(json, 0);
    reports_check(result, 5000);
    const double trips = reports_number(json_object_get(result, "per_op"), "round_trips");
    json_decref(json);
    return trips;
}

/* What one call does is counted once, and its keys' round trips overlap. */
static void batches_share_round_trips(void **state)
{
    (void)state;
    static const char *const workloads[] = {"read-only", "write-only"};
    for (size_t i = 0; i < 2; i++) {
        const double alone = round_trips(workloads[i], ""), one = round_trips(workloads[i], "--batch 1");
        const double together = round_trips(workloads[i], "--batch 16");
        assert_true(alone > 0.9 && one >= alone && one <= alone);
        assert_true(together > alone / 32 && together < alone / 4);
    }
}

static void empty_index_takes_inserts(void **state)
{
    (void)state;
    json_t *json = reports_json("--keys 0 --workload insert-only --operations 20k --warm-up 0");
    const json_t *result = reports_result(json, 0);
    reports_check(result, 20000);
    assert_true(reports_number(json_object_get(result, "ended"), "entries") >= 20000);
    json_decref(json);
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
        "bench --peer lmdb --mix scan=1,reverse-scan=1,lookup=1,update=1,delete=1,modify=1,upsert=1 "
        "--pairs 1 " SMALL,
        0, "ratio");
}

/* Equal seeds draw equal keys, so what scans deliver is the same in both. */
static void peers_scan_the_same(void **state)
{
    (void)state;
    static const char *const kinds[] = {"scan", "reverse-scan"};
    for (size_t i = 0; i < 2; i++) {
        char arguments[300];
        snprintf(arguments, sizeof arguments,
                 "bench --peer lmdb --pairs 1 --mix %s=1 --distribution uniform --keys 500 --operations 300 "
                 "--scan-length 1000 --json -",
                 kinds[i]);
        struct program_outcome found = program_run(arguments, "2>/dev/null");
        if (found.code == 2) { /* made without LMDB */
            free(found.text);
            skip();
        }
        assert_int_equal(found.code, 0);
        json_t *json = reports_parse(found.text);
        free(found.text);
        const double ours = reports_number(reports_result(json, 0), "entries_scanned");
        const double theirs = reports_number(reports_result(json, 1), "entries_scanned");
        assert_true(ours > 300 && ours > theirs - 0.5 && ours < theirs + 0.5);
        json_decref(json);
    }
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
        cmocka_unit_test(owners_take_no_locks),
        cmocka_unit_test(deletes_and_long_keys),
        cmocka_unit_test(values_in_records),
        cmocka_unit_test(reverse_scans_are_the_other_half),
        cmocka_unit_test(batches_of_every_kind),
        cmocka_unit_test(batches_share_round_trips),
        cmocka_unit_test(empty_index_takes_inserts),
        cmocka_unit_test(json_tells_large_seeds),
        cmocka_unit_test(page_stands_alone),
        cmocka_unit_test(full_pools_fail_cleanly),
        cmocka_unit_test(results_that_cannot_be_written),
        cmocka_unit_test(files_are_whole_when_the_table_is_not_read),
        cmocka_unit_test(peers_are_compared),
        cmocka_unit_test(peers_scan_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
