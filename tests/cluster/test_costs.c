/*
 * test_costs.c - one client's operations cost the same on a real fabric as in the simulator, to the last
 * command and byte: the same workloads with the same seed run on both, and every count of `banyan bench
 * --json` must be equal. So what is measured in the simulator holds for networks, and no backend hides a
 * round trip. The simulator is told what the fabric says of itself (lock width, release by WRITE, ...).
 *
 * Usage: test_costs [FABRIC...]: tcp, unix, or rdma, which is the NIC at $BANYAN_RDMA_ADDRESS
 * Default: rdma where that is set, else tcp and unix.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/cluster/process.h"

enum { MEMORY_NODES = 2 };
#define POOL  "64M"
#define CHUNK "1M"

/* What is run, each with the presets behind it. */
static const struct {
    const char *what[12];
} runs[] = {
    {{"--workload", "read-only,write-only,insert-only,ycsb:a,ycsb:e,ycsb:f,range-write", "--scan-length",
      "50"}},
    {{"--mix", "upsert=2,delete=2,lookup=1,insert=1,scan=1", "--scan-length", "20", "--distribution",
      "uniform"}},
    {{"--workload", "write-intensive", "--preset", "all"}},
    {{"--mix", "upsert=1,insert=2,lookup=1", "--key-bytes", "30", "--value-bytes", "120", "--distribution",
      "uniform,zipfian"}},
};

static const char *fabric; /* its name */

static struct scene scene;
static struct process *memories[MEMORY_NODES];
static char secret_file[SCENE_PATH_MAX];

static void start_memories(void)
{
    static const char *const names[] = {"memory-0", "memory-1"};
    const char *nic = getenv("BANYAN_RDMA_ADDRESS");
    bool rdma = !strcmp(fabric, "rdma");
    if (rdma && !nic)
        fail_hard("BANYAN_RDMA_ADDRESS must say the address of a NIC with RDMA");
    snprintf(secret_file, sizeof secret_file, "%s",
             scene_write(&scene, "secret", "what compute nodes must know\n"));
    for (unsigned i = 0; i < MEMORY_NODES; i++) {
        const char *listen = rdma                      ? text_of("rdma://%s:0", nic)
                             : !strcmp(fabric, "unix") ? text_of("unix:%s", scene_path(&scene, "m%u.sock", i))
                                                       : "127.0.0.1:0";
        memories[i] = process_start(&scene, names[i],
                                    ARGUMENTS("memory", "--listen", listen, "--size", POOL, "--chunk-size",
                                              CHUNK, "--secret-file", secret_file, "--log-level", "warning"));
    }
}

/* Comma separated. */
static const char *memory_list(void)
{
    char list[MEMORY_NODES * NET_TEXT_MAX] = "";
    for (unsigned i = 0; i < MEMORY_NODES; i++) {
        char text[NET_TEXT_MAX];
        struct net_address address = process_address(memories[i], 0);
        address.rdma = !strcmp(fabric, "rdma");
        net_address_format(&address, text);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? "," : "", text);
    }
    return text_of("%s", list);
}

/* `banyan bench where... what... `, and what it wrote. */
static json_t *bench(const char *const *where, const char *const *what)
{
    /* Guests with Soft-RoCE are emulated, and slow. */
    bool slow = !strcmp(fabric, "rdma");
    const char *const common[] = {"bench",           "--quiet",
                                  "--compute-nodes", "1",
                                  "--threads",       "1",
                                  "--fibers",        "1",
                                  "--keys",          slow ? "3000" : "10000",
                                  "--operations",    slow ? "1000" : "2000",
                                  "--warm-up",       "200",
                                  "--seed",          "7",
                                  "--cache-bytes",   "100000000",
                                  "--json"};
    const char *arguments[64];
    size_t count = 0;
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        arguments[count++] = common[i];
    const char *path = scene_path(&scene, "bench.json");
    arguments[count++] = path;
    if (slow)
        arguments[count++] = "--no-check";
    for (; *where; where++)
        arguments[count++] = *where;
    for (; *what; what++)
        arguments[count++] = *what;
    arguments[count] = NULL;
    static struct process_result result;
    process_run(&scene, NULL, arguments, &result);
    if (result.code)
        fail_hard("banyan bench on %s: exit code %d: %s", fabric, result.code, result.error);
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        fail_hard("%s: %s", path, error.text);
    return json;
}

/* What the fabric says of itself, as the simulator's parameters. */
static const char *parameters(const json_t *json)
{
    static char text[256];
    const json_t *result = json_array_get(json_object_get(json, "results"), 0), *value;
    const char *name;
    text[0] = 0;
    json_object_foreach(json_object_get((json_t *)(uintptr_t)result, "capabilities"), name, value)
    {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        const char *what = json_is_integer(value) ? number : json_is_true(value) ? "on" : "off";
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%s", text[0] ? "," : "", name, what);
    }
    assert_non_null(strstr(text, "lock-width="));
    assert_non_null(strstr(text, "release-by-write="));
    return text;
}

/* ---- comparing ---- */

static unsigned compared;

/* Whole objects of numbers, or one number. Real numbers too: they are sums of counts over equal counts. */
static void expect_equal(const char *run, const char *name, const json_t *real, const json_t *simulated)
{
    if (!real || !simulated)
        fail_msg("%s: no %s", run, name);
    compared++;
    if (json_equal(real, simulated))
        return;
    char *there = json_dumps(real, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)),
         *here = json_dumps(simulated, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    fail_msg("%s, %s: %s\non %s: %s\nin the simulator: %s", fabric, run, name, fabric, there, here);
}

static void compare_kinds(const char *run, const json_t *real, const json_t *simulated)
{
    const json_t *of_kind;
    const char *kind;
    assert_int_equal(json_object_size(real), json_object_size(simulated));
    json_object_foreach((json_t *)(uintptr_t)real, kind, of_kind)
    {
        const json_t *other = json_object_get(simulated, kind);
        const char *counted = text_of("%ss", kind), *costs = text_of("costs of a %s", kind);
        expect_equal(run, counted, json_object_get(of_kind, "operations"),
                     json_object_get(other, "operations"));
        expect_equal(run, costs, json_object_get(of_kind, "per_op"), json_object_get(other, "per_op"));
    }
}

static void compare(const json_t *real, const json_t *simulated)
{
    static const char *const equal[] = {"workload", "preset",    "distribution", "operations",  "per_op",
                                        "retries",  "cache_hit", "absent",       "splits",      "unlinks",
                                        "loaded",   "ended",     "switches",     "capabilities"};
    const json_t *results = json_object_get(real, "results"), *others = json_object_get(simulated, "results");
    assert_true(json_array_size(results) > 0);
    assert_int_equal(json_array_size(results), json_array_size(others));
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i), *other = json_array_get(others, i);
        char run[128];
        snprintf(run, sizeof run, "%s, %s, %s", json_string_value(json_object_get(result, "workload")),
                 json_string_value(json_object_get(result, "distribution")),
                 json_string_value(json_object_get(result, "preset")));
        for (size_t j = 0; j < sizeof equal / sizeof equal[0]; j++)
            expect_equal(run, equal[j], json_object_get(result, equal[j]), json_object_get(other, equal[j]));
        /* Costs that are not counted are equal too: an operation takes about a round trip, or more. */
        assert_true(json_number_value(json_object_get(json_object_get(result, "per_op"), "round_trips")) >=
                    0.9);
        if (json_object_get(result, "entries_scanned"))
            expect_equal(run, "entries_scanned", json_object_get(result, "entries_scanned"),
                         json_object_get(other, "entries_scanned"));
        compare_kinds(run, json_object_get(result, "by_kind"), json_object_get(other, "by_kind"));
    }
}

static void costs_are_equal(void **state)
{
    fabric = *state;
    compared = 0;
    scene_open(&scene);
    start_memories();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        json_t *real =
            bench(ARGUMENTS("--fabric", fabric, "--memory", memory_list(), "--secret-file", secret_file),
                  runs[i].what);
        json_t *simulated =
            bench(ARGUMENTS("--fabric", "sim", "--memory-nodes", text_of("%d", MEMORY_NODES), "--pool-bytes",
                            POOL, "--chunk-bytes", CHUNK, "--sim", parameters(real)),
                  runs[i].what);
        compare(real, simulated);
        json_decref(real);
        json_decref(simulated);
    }
    print_message("%s: %u numbers and objects equal\n", fabric, compared);
    scene.passed = true;
    scene_close(&scene);
}

int main(int argc, char **argv)
{
    static char *usual[] = {"", "tcp", "unix"}, *nic[] = {"", "rdma"};
    bool rdma = getenv("BANYAN_RDMA_ADDRESS") != NULL;
    char **names = argc > 1 ? argv : rdma ? nic : usual;
    size_t count = (argc > 1 ? (size_t)argc : rdma ? 2 : 3) - 1;
    struct CMUnitTest tests[8];
    if (count > sizeof tests / sizeof tests[0])
        fail_hard("at most 8 fabrics");
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){names[i + 1], costs_are_equal, NULL, NULL, names[i + 1]};
    return _cmocka_run_group_tests("costs", tests, count, NULL, NULL);
}
