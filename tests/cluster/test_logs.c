/*
 * test_logs.c - owners' logs in a cluster of real processes: this test is a compute node that keeps one;
 * `banyan check`, `banyan top` and the metrics show it, and `check --reclaim` gives it back when the test has
 * left.
 */
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cluster/node.h"
#include "cluster/process.h"
#include "cluster/talk.h"
#include "pool/log.h"

#define MIB (UINT64_C(1) << 20)

static struct process_result result;

/* Makes a cluster with a map of ranges, and leaves it. */
static void make_cluster(struct scene *scene, const char *memory)
{
    struct process *compute = process_start(
        scene, "compute", ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--format"));
    redisContext *client = client_of(compute, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
}

static json_t *check(struct scene *scene, const char *memory, const char *more, int code)
{
    process_run(scene, NULL, ARGUMENTS("check", "--json", "--memory", memory, more), &result);
    if (result.code != code)
        fail_msg("check: %d\n%s%s", result.code, result.output, result.error);
    json_t *json = json_loads(result.output, 0, NULL);
    assert_non_null(json);
    return json;
}

static void a_log_is_shown_and_given_back(void **state)
{
    struct scene *scene = *state;
    struct process *memory = process_start(scene, "memory",
                                           ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M",
                                                     "--log-bytes", "8M", "--http", "127.0.0.1:0"));
    const char *address = address_text(memory, 0);
    struct node node;
    struct pool_log log;
    struct memory_log_segment segment;
    make_cluster(scene, address);
    node_open(&node, address);
    assert_int_equal(pool_log_open(&node.session, 0, &log), 0);
    assert_int_equal(pool_log_take(&node.session, 0, 100 * MIB, &segment), 0);
    assert_int_equal(segment.bytes, MIB); /* an eighth of --log-bytes */

    char *text = http_get(process_http(memory), "/metrics", NULL);
    assert_contains(text, "\nbanyan_memory_log_bytes 1048576\n");
    assert_contains(text, "\nbanyan_memory_log_bytes_max 8388608\n");
    assert_contains(text, "\nbanyan_memory_log_segments 1\n");
    assert_contains(text, "\nbanyan_memory_log_processes 1\n");
    free(text);
    struct process *compute =
        process_start(scene, "viewer",
                      ARGUMENTS("compute", "--memory", address, "--listen", "127.0.0.1:0", "--own", "none"));
    process_run(scene, NULL,
                ARGUMENTS("top", "--once", "--json", "--interval", "100", address_text(compute, 0)), &result);
    json_t *json = json_loads(result.output, 0, NULL);
    const json_t *line = json_array_get(json_object_get(json_array_get(json, 0), "memory_nodes"), 0);
    assert_int_equal(json_integer_value(json_object_get(line, "log_bytes")), MIB);
    assert_int_equal(json_integer_value(json_object_get(line, "log_segments")), 1);
    json_decref(json);
    assert_int_equal(process_stop(compute), 0);

    json = check(scene, address, NULL, 0);
    assert_int_equal(json_integer_value(json_object_get(json, "log_bytes")), MIB);
    line = json_array_get(json_object_get(json, "logs"), 0);
    assert_int_equal(json_integer_value(json_object_get(line, "bytes")), MIB);
    assert_true(json_is_false(json_object_get(line, "gone")));
    json_decref(json);
    process_run(scene, NULL, ARGUMENTS("check", "--reclaim", "--memory", address), &result);
    assert_int_equal(result.code, 1); /* this test is connected */

    node_close(&node);
    json = check(scene, address, NULL, 0);
    assert_true(json_is_true(json_object_get(json_array_get(json_object_get(json, "logs"), 0), "gone")));
    json_decref(json);
    process_run(scene, NULL, ARGUMENTS("check", "--reclaim", "--memory", address), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "(gone): 1 segment, 1048576 bytes");
    assert_contains(result.output, "logs given back, since no range needs them: 1");
    json = check(scene, address, NULL, 0);
    assert_int_equal(json_integer_value(json_object_get(json, "log_bytes")), 0);
    assert_int_equal(json_array_size(json_object_get(json, "logs")), 0);
    json_decref(json);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

static void bad_sizes_are_refused(void **state)
{
    struct scene *scene = *state;
    static const char *const bad[] = {"1", "40M", "1x"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        process_run(scene, NULL,
                    ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--log-bytes", bad[i]),
                    &result);
        assert_int_equal(result.code, 2);
        assert_contains(result.error, i == 2 ? "log-bytes" : "from 512 KiB to half of the pool");
    }
    scene->passed = true;
}

static bool all_is_merged(void *client)
{
    return !info_figure(client, "log", "log_unmerged_keys") && !info_figure(client, "log", "log_lag_entries");
}

/* A process that keeps a log tells of it, one that does not says so; the options are there. */
static void a_process_tells_of_its_log(void **state)
{
    struct scene *scene = *state;
    static const char *const fields[] = {
        "log_unmerged_keys:", "log_unmerged_bytes:", "log_lag_entries:",   "log_lag_msec:",
        "log_segments:",      "log_segment_bytes:",  "log_entries:",       "log_commits:",
        "log_frames:",        "log_degraded:0",      "log_unknown:0",      "log_refused:0",
        "log_merged:",        "log_merged_there:",   "log_cycles:",        "log_waits:",
        "log_full:0",         "log_inherited:0",     "log_bytes_written:", "log_held:"};
    static const char *const metrics[] = {"unmerged_keys", "lag_seconds",  "entries_total", "commits_total",
                                          "frames_total",  "merged_total", "waits_total",   "full_total",
                                          "segments",      "cycles_total", "segment_bytes", "held_total"};
    struct process *memory =
        process_start(scene, "memory", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    const char *address = address_text(memory, 0);
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", address, "--listen", "127.0.0.1:0", "--format",
                                "--log", "auto", "--log-copies", "2", "--log-segment-bytes", "64K",
                                "--log-wait", "100", "--http", "127.0.0.1:0"));
    redisContext *client = client_of(compute, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    const char *info = ask(client, "INFO log");
    assert_contains(info, "log:kept\r\n");
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_contains(info, text_of("\n%s", fields[i]));
    char *text = http_get(process_http(compute), "/metrics", NULL);
    assert_contains(text, "\nbanyan_log_kept 1\n");
    for (unsigned i = 0; i < sizeof metrics / sizeof *metrics; i++)
        assert_contains(text, text_of("\nbanyan_log_%s ", metrics[i]));
    free(text);
    text = http_get(process_http(compute), "/", NULL);
    assert_contains(text, "<h2>Log</h2>");
    free(text);
    wait_until(all_is_merged, client, "all to be merged");
    process_run(scene, NULL, ARGUMENTS("top", "--once", address_text(compute, 0)), &result);
    assert_contains(result.output, "unmerged");
    process_run(scene, NULL,
                ARGUMENTS("top", "--once", "--json", "--interval", "100", address_text(compute, 0)), &result);
    json_t *json = json_loads(result.output, 0, NULL);
    const json_t *log = json_object_get(json_array_get(json, 0), "log");
    assert_true(json_is_true(json_object_get(log, "kept")));
    assert_int_equal(json_integer_value(json_object_get(log, "unmerged_keys")), 0);
    json_decref(json);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    json = check(scene, address, NULL, 0); /* it took its log along */
    assert_int_equal(json_array_size(json_object_get(json, "logs")), 0);
    json_decref(json);

    process_restart(scene, compute,
                    ARGUMENTS("compute", "--memory", address, "--listen", "127.0.0.1:0", "--log", "none",
                              "--http", "127.0.0.1:0"));
    client = client_of(compute, 0);
    info = ask(client, "INFO log");
    assert_contains(info, "log:none\r\n");
    assert_null(strstr(info, "log_entries"));
    text = http_get(process_http(compute), "/metrics", NULL);
    assert_contains(text, "\nbanyan_log_kept 0\n");
    assert_null(strstr(text, "banyan_log_entries_total"));
    free(text);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

/* Leaves are split by merging while a client reads them: what the owner caches of them stays coherent. */
static void what_is_merged_is_read(void **state)
{
    struct scene *scene = *state;
    struct process *memory =
        process_start(scene, "memory", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", address_text(memory, 0), "--listen", "127.0.0.1:0",
                                "--format", "--log", "auto"));
    redisContext *client = client_of(compute, 0);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 300; i++)
            assert_string_equal(ask(client, "SET %u.%03u value%u", round, i, i), "OK");
        for (unsigned i = 0; i < 2 * 300; i++)
            assert_string_equal(ask(client, "GET %u.%03u", round, i % 300), text_of("value%u", i % 300));
        assert_string_equal(ask(client, "DBSIZE"), text_of("%u", 300 * (round + 1)));
    }
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

static bool owns(void *client)
{
    return info_figure(client, "ownership", "ownership_ranges_owned") > 0;
}

static uint64_t metric(const struct process *process, const char *name)
{
    char *text = http_get(process_http(process), "/metrics", NULL);
    const char *at = strstr(text, text_of("\n%s ", name));
    assert_non_null(at);
    const uint64_t value = strtoull(strchr(at + 1, ' '), NULL, 10);
    free(text);
    return value;
}

/* By threads that merge alone; the second memory node merges with those that walk. */
static void memory_nodes_merge(void **state)
{
    struct scene *scene = *state;
    struct process *memories[2];
    for (unsigned i = 0; i < 2; i++)
        memories[i] = process_start(scene, i ? "memory1" : "memory0",
                                    ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--http",
                                              "127.0.0.1:0", "--walk-threads", i ? "1" : "0",
                                              "--merge-threads", i ? "0" : "1"));
    char both[256];
    snprintf(both, sizeof both, "%s,%s", address_text(memories[0], 0), address_text(memories[1], 0));
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", both, "--listen", "127.0.0.1:0", "--format", "--log",
                                "auto", "--merge-walks", "always"));
    redisContext *client = client_of(compute, 0);
    wait_until(owns, client, "the process to own its range"); /* before that nothing is logged */
    for (unsigned round = 0; round < 3; round++) { /* new keys split leaves: those are the compute node's */
        for (unsigned i = 0; i < 1000; i++)
            assert_string_equal(ask(client, "SET key%04u value%u", i, i + round), "OK");
        wait_until(all_is_merged, client, "all to be merged");
    }
    for (unsigned i = 0; i < 1000; i += 4)
        assert_string_equal(ask(client, "DEL key%04u", i), "1");
    wait_until(all_is_merged, client, "all to be merged");
    const uint64_t merged = info_figure(client, "log", "log_merged"),
                   there = info_figure(client, "log", "log_merged_there");
    assert_true(merged >= 3250 && there > 1000 && there <= merged);
    for (unsigned i = 0; i < 1000; i++)
        assert_string_equal(ask(client, "GET key%04u", i), i % 4 ? text_of("value%u", i + 2) : "(nil)");
    assert_string_equal(ask(client, "DBSIZE"), "750");
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(metric(memories[i], "banyan_memory_merge_threads"), !i);
    /* The tree is small: its leaves lie on the first one. It merged on when the process left. */
    assert_true(metric(memories[0], "banyan_memory_merge_merged_total") >= there);
    assert_true(metric(memories[0], "banyan_memory_merge_cpu_nanoseconds_total") > 0);
    json_decref(check(scene, both, NULL, 0)); /* sound, and nothing is lost */
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(process_stop(memories[i]), 0);
    scene->passed = true;
}

struct views {
    redisContext *client;
    const struct process *process;
    const char *const *field; /* of INFO, and of the metrics */
    uint64_t least;
};

/* Figures are published some times a second, so that the one view may be older. */
static bool views_agree(void *context)
{
    struct views *views = context;
    char *metrics = http_get(process_http(views->process), "/metrics", NULL);
    const uint64_t value = info_figure(views->client, "ownership", views->field[0]);
    const bool agree =
        strstr(metrics, text_of("\n%s %llu\n", views->field[1], (unsigned long long)value)) != NULL;
    free(metrics);
    return agree && value >= views->least;
}

/* The second process inherits ranges from the first one's log, and scans of the one need parts of the other:
 * both views count that. */
static void inheriting_and_scans_are_counted(void **state)
{
    struct scene *scene = *state;
    static const char *const fields[][2] = {
        {"ownership_ranges_inherited", "banyan_ranges_inherited_total"},
        {"forwarded_scans", "banyan_forwarded_scans_total"},
        {"served_scans", "banyan_served_scans_total"},
    };
    struct process *computes[2];
    redisContext *clients[2];
    struct process *memory =
        process_start(scene, "memory", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    for (unsigned i = 0; i < 2; i++) {
        computes[i] = process_start(scene, i ? "second" : "first",
                                    ARGUMENTS("compute", "--memory", address_text(memory, 0), "--listen",
                                              "127.0.0.1:0", i ? "--no-format" : "--format", "--log", "auto",
                                              "--http", "127.0.0.1:0"));
        clients[i] = client_of(computes[i], 0);
        for (unsigned key = 0; key < 1000 && !i; key++)
            assert_string_equal(ask(clients[0], "SET key%03u %u", key, key), "OK");
    }
    wait_until(owns, clients[1], "the second process to own a range");
    for (unsigned i = 0; i < 2; i++)
        assert_string_equal(ask(clients[i], "RANGECOUNT [key000 [key999"), "1000");
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned f = 0; f < sizeof fields / sizeof *fields; f++) {
            struct views views = {clients[i], computes[i], fields[f], f || i};
            wait_until(views_agree, &views, "both views to count it");
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        redisFree(clients[i]);
        assert_int_equal(process_stop(computes[i]), 0);
    }
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

/* ---- a log that is full ---- */

#define FILLED 100u /* keys that are written at a time until leaves lie on both memory nodes */

static unsigned segments_of(const struct process *memory)
{
    char *text = http_get(process_http(memory), "/metrics", NULL);
    const char *at = strstr(text, "\nbanyan_memory_log_segments ");
    assert_non_null(at);
    const unsigned count = (unsigned)strtoul(at + sizeof "\nbanyan_memory_log_segments " - 1, NULL, 10);
    free(text);
    return count;
}

static bool has_room(void *client)
{
    return !strcmp(ask(client, "SET 0stays end"), "OK");
}

/* The process logs to both memory nodes; the leaf of the least keys lies on the first one. */
static void log_to_both(redisContext *client, struct process *const memory[2])
{
    wait_until(owns, client, "the process to own its range");
    assert_string_equal(ask(client, "SET 0stays here"), "OK");
    assert_string_equal(ask(client, "SET 0other there"), "OK");
    assert_int_equal(segments_of(memory[0]), 1);
    assert_int_equal(segments_of(memory[1]), 0);
    for (unsigned i = 0; !segments_of(memory[1]); i++) {
        wait_until(all_is_merged, client, "merging"); /* which may come late: so there is room */
        for (unsigned j = 0; j < FILLED; j++)
            assert_string_equal(ask(client, "SET fill%u.%u x", i, j), "OK");
    }
    wait_until(all_is_merged, client, "merging");
}

/* No room for segments: writes are refused with OOM, reads go on, and merging makes room again. A segment is
 * free when all memory nodes have the watermark: while the second one stands still none is, and two on the
 * first one have room for a thousand commits. */
static void a_full_log_refuses_writes_alone(void **state)
{
    struct scene *scene = *state;
    struct process *memory[2];
    unsigned done = 0;
    for (unsigned i = 0; i < 2; i++)
        memory[i] = process_start(scene, i ? "second" : "first",
                                  ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M",
                                            "--log-bytes", "512K", "--http", "127.0.0.1:0"));
    const char *addresses = keep(text_of("%s,%s", address_text(memory[0], 0), address_text(memory[1], 0)));
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", addresses, "--listen", "127.0.0.1:0", "--format",
                                "--log", "auto", "--log-segment-bytes", "64K", "--log-wait", "1", "--timeout",
                                "60000")); /* one that counts as lost needs no watermark */
    redisContext *client = client_of(compute, 0);
    log_to_both(client, memory);
    assert_int_equal(info_figure(client, "log", "log_full"), 0);
    process_signal(memory[1], SIGSTOP);
    while (!strcmp(ask(client, "SET 0stays %u", done + 1), "OK"))
        assert_true(++done < 2000);
    for (unsigned i = 0; i < 50; i++) { /* none gets through */
        assert_memory_equal(ask(client, "SET 0stays never"), "-OOM ", 5);
        assert_string_equal(ask(client, "GET 0stays"), text_of("%u", done));
        assert_string_equal(ask(client, "GET 0other"), "there");
    }
    assert_int_equal(info_figure(client, "log", "log_full"), 51);
    process_signal(memory[1], SIGCONT);
    wait_until(has_room, client, "room in the log");
    assert_string_equal(ask(client, "GET 0stays"), "end");
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    scene->passed = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_log_is_shown_and_given_back, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(a_process_tells_of_its_log, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(inheriting_and_scans_are_counted, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(what_is_merged_is_read, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(memory_nodes_merge, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(bad_sizes_are_refused, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(a_full_log_refuses_writes_alone, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
