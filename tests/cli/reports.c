/* reports.c - see reports.h. */
#include "reports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "program.h"

char *reports_run(const char *arguments)
{
    char all[512];
    snprintf(all, sizeof all, "bench %s --json -", arguments);
    struct program_outcome outcome = program_run(all, "2>/dev/null");
    if (outcome.code)
        fail_msg("banyan %s: exit code %d", all, outcome.code);
    return outcome.text;
}

char *reports_repeat(const char *arguments)
{
    char *first = reports_run(arguments), *second = reports_run(arguments);
    assert_string_equal(first, second);
    free(second);
    return first;
}

json_t *reports_parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (!json)
        fail_msg("not JSON: %s in:\n%s", error.text, text);
    return json;
}

json_t *reports_json(const char *arguments)
{
    char *text = reports_run(arguments);
    json_t *json = reports_parse(text);
    free(text);
    return json;
}

char *reports_page(const char *arguments, char **output)
{
    char name[] = "/tmp/banyan-report-XXXXXX", all[512];
    int descriptor = mkstemp(name);
    assert_true(descriptor >= 0);
    close(descriptor);
    snprintf(all, sizeof all, "bench %s --report %s", arguments, name);
    struct program_outcome outcome = program_run(all, "2>&1");
    assert_int_equal(outcome.code, 0);
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    char *page = program_text(file);
    fclose(file);
    unlink(name);
    if (output)
        *output = outcome.text;
    else
        free(outcome.text);
    return page;
}

const json_t *reports_result(const json_t *report, size_t index)
{
    const json_t *result = json_array_get(json_object_get(report, "results"), index);
    if (!result)
        fail_msg("no result %zu", index);
    return result;
}

double reports_number(const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    if (!json_is_number(value))
        fail_msg("no number '%s'", name);
    return json_number_value(value);
}

const char *reports_string(const json_t *json, const char *name)
{
    const char *value = json_string_value(json_object_get(json, name));
    if (!value)
        fail_msg("no string '%s'", name);
    return value;
}

void reports_check(const json_t *result, double operations)
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
