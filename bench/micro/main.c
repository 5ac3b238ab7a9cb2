/*
 * main.c - `bench-micro`: measures the CPU of the machine that it runs on (micro.h), and prints a table or
 * JSON. One process, two threads. Exit status 2 for wrong options, 1 if memory is short.
 */
#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/task.h"
#include "bench/micro/micro.h"

#define WARM_UP 10u /* one round in so many, before those that count */

static const struct {
    const char *name, *unit, *parameters, *what;
} names[MICRO_NAMES] = {
    [MICRO_LINE_PASS] = {"line-pass", "line", "line-transfer-ns, handover-ns",
                         "one cache line passed to another core, which waits for it"},
    [MICRO_IMAGE_LINE] = {"image-line", "line", "line-copy-ns",
                          "a leaf's image copied to another core's memory, and read there"},
    [MICRO_SLOT_CHECK] = {"slot-check", "slot", "leaf-ns", "a bucket's slots searched and checked"},
    [MICRO_ENTRY_SORT] = {"entry-sort", "entry", "sort-ns",
                          "a leaf copied, its slots checked, its entries sorted for a scan"},
    [MICRO_ENTRY_VISIT] = {"entry-visit", "entry", "visit-ns", "a sorted entry copied out"},
    [MICRO_CHECKSUM_LINE] = {"checksum-line", "line", "checksum-ns", "CRC32C of a whole leaf"},
    [MICRO_INNER_SEARCH] = {"inner-search", "node", "search-ns", "a search in a cached inner node"},
    [MICRO_LOG_ENTRY] = {"log-entry", "entry", "not charged",
                         "an entry put into a frame of an owner's log, which is sealed"},
    [MICRO_LOG_SCAN] = {"log-scan", "entry", "not charged", "an entry found by the scan of a log's segment"},
    [MICRO_WALK_NODE] = {"walk-node", "node", "walk-node-ns",
                         "a memory node's walk: a node copied, proven, searched"},
    [MICRO_MERGE_ENTRY] = {"merge-entry", "entry", "merge-entry-ns",
                           "a memory node's merging: an entry put into its leaf, which is in no cache"},
    [MICRO_REQUEST_CALLS] = {"request-calls", "request", "not charged",
                             "a request and its reply over loopback, both ends, by system calls"},
    [MICRO_REQUEST_RING] = {"request-ring", "request", "not charged",
                            "the same where the server makes two calls of io_uring for 32 of them"},
};

static int compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

bool micro_measure(uint32_t rounds, double units, void (*part)(void *context), void *context,
                   struct micro_result *result)
{
    uint64_t *times = malloc(rounds * sizeof *times);
    if (!times)
        return false;
    for (uint32_t i = 0; i <= rounds / WARM_UP; i++)
        part(context);
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t begin = task_now();
        part(context);
        times[i] = task_now() - begin;
    }
    qsort(times, rounds, sizeof *times, compare);
    *result = (struct micro_result){
        .measured = true, .median = (double)times[rounds / 2] / units, .least = (double)times[0] / units};
    free(times);
    return true;
}

/* The processor's name as the system gives it. */
static void cpu_model(char *text, size_t room)
{
    char line[256];
    snprintf(text, room, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(text, room, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file)
        fclose(file);
}

struct settings {
    uint32_t rounds;
    bool json;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct settings *settings = state->input;
    char *end;
    unsigned long rounds;
    switch (key) {
    case 'r':
        rounds = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || rounds < 1 || rounds > MICRO_ROUNDS_MAX)
            argp_error(state, "--rounds: '%s' is no number from 1 to %u", text, MICRO_ROUNDS_MAX);
        settings->rounds = (uint32_t)rounds;
        return 0;
    case 'j':
        settings->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is no option, and there are no arguments", text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_table(const char *cpu, uint32_t rounds, const struct micro_result results[MICRO_NAMES])
{
    printf("%s, CRC32C by %s; ns for each unit, of %u rounds\n\n%-14s %-6s %9s %9s  %s\n", cpu,
           crc32c_implementation(), rounds, "part", "unit", "median", "least",
           "what it is [parameters of the simulator]");
    for (unsigned i = 0; i < MICRO_NAMES; i++) {
        printf("%-14s %-6s ", names[i].name, names[i].unit);
        if (results[i].measured)
            printf("%9.2f %9.2f", results[i].median, results[i].least);
        else
            printf("%19s", "not here");
        printf("  %s [%s]\n", names[i].what, names[i].parameters);
    }
}

/* False: no memory. */
static bool print_json(const char *cpu, uint32_t rounds, const struct micro_result results[MICRO_NAMES])
{
    json_t *parts = json_array();
    for (unsigned i = 0; i < MICRO_NAMES; i++) {
        json_t *part = json_pack("{s:s, s:s, s:s}", "part", names[i].name, "unit", names[i].unit,
                                 "parameters", names[i].parameters);
        json_object_set_new(part, "median_ns",
                            results[i].measured ? json_real(results[i].median) : json_null());
        json_object_set_new(part, "least_ns",
                            results[i].measured ? json_real(results[i].least) : json_null());
        json_array_append_new(parts, part);
    }
    json_t *all = json_pack("{s:s, s:s, s:i, s:o}", "cpu", cpu, "crc32c", crc32c_implementation(), "rounds",
                            (int)rounds, "parts", parts);
    bool done = all && json_array_size(parts) == MICRO_NAMES &&
                !json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(all);
    putchar('\n');
    return done;
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"rounds", 'r', "N", 0, "Rounds of each measurement (default: 2001)", 0},
        {"json", 'j', NULL, 0, "Print one JSON object", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Measure what the parts of an operation cost on this machine's CPU: the numbers that the "
        "simulator's CPU parameters stand for (docs/internals/simulator.md).",
        NULL,
        NULL,
        NULL};
    struct settings settings = {.rounds = 2001};
    struct micro_result results[MICRO_NAMES] = {0};
    char cpu[200];
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &settings);
    cpu_model(cpu, sizeof cpu);
    bool done = micro_cores(settings.rounds, results) && micro_nodes(settings.rounds, results) &&
                micro_log(settings.rounds, results) && micro_walk(settings.rounds, results) &&
                micro_sockets(settings.rounds, results);
    if (done && settings.json)
        done = print_json(cpu, settings.rounds, results);
    else if (done)
        print_table(cpu, settings.rounds, results);
    if (!done)
        fprintf(stderr, "bench-micro: no memory, no thread, or a socket failed\n");
    return done ? 0 : 1;
}
