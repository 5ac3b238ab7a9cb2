/* test_trace.c - a failing run's trace says what happened, however the run ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "broken.h"
#include "swarm/trace.h"

struct traced {
    struct swarm_outcome outcome;
    char *text; /* owned */
};

static struct traced trace(const struct swarm_plan *plan, const struct broken *broken,
                           struct swarm_trace_options options)
{
    struct traced traced = {.text = NULL};
    struct swarm_watch watch = broken_watch(broken);
    struct error error;
    size_t size;
    FILE *out = open_memstream(&traced.text, &size);
    assert_non_null(out);
    options.watch = &watch;
    options.seconds_max = options.seconds_max > 0 ? options.seconds_max : 300;
    options.bytes_max = options.bytes_max ? options.bytes_max : UINT64_C(4) << 30;
    assert_int_equal(swarm_trace_run(plan, &options, out, &traced.outcome, &error), 0);
    assert_int_equal(fclose(out), 0);
    return traced;
}

static bool says(const struct traced *traced, const char *what)
{
    return strstr(traced->text, what) != NULL;
}

/* Lines that begin with a time. */
static unsigned rows(const struct traced *traced)
{
    unsigned count = 0;
    for (const char *line = traced->text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + strspn(line, " ");
        if (!*line)
            break;
        count += at > line && isdigit((unsigned char)*at) && at[strspn(at, "0123456789")] == '.';
    }
    return count;
}

static const struct broken lies = {BROKEN_LIES, 20};

static void names_the_key_and_what_was_done_to_it(void **state)
{
    struct swarm_plan plan;
    broken_plan(&plan);
    struct traced traced = trace(&plan, &lies, (struct swarm_trace_options){0});
    assert_int_equal(traced.outcome.end, SWARM_FAILED);
    assert_true(says(&traced, "what concerns key 20;"));
    assert_true(says(&traced, "put 20 = v"));
    assert_true(says(&traced, "DOES NOT FIT"));
    assert_true(says(&traced, "|0.0.0 "));
    assert_true(says(&traced, "WRITE "));
    assert_true(says(&traced, ": taken"));
    assert_true(says(&traced, ": leaf 0:0x"));
    assert_false(says(&traced, "get 21"));
    assert_in_range(rows(&traced), 20, 201);
    free(traced.text);
}

static void is_the_same_run(void **state)
{
    struct swarm_plan plan;
    struct swarm_result result;
    struct swarm_watch watch = broken_watch(&lies);
    broken_plan(&plan);
    swarm_run(&plan, &watch, &result);
    struct traced traced = trace(&plan, &lies, (struct swarm_trace_options){.all = true});
    assert_true(result.hash != 0);
    assert_true(traced.outcome.result.hash == result.hash);
    assert_true(traced.outcome.result.events == result.events);
    assert_int_equal(traced.outcome.result.status, result.status);
    struct traced again = trace(&plan, &lies, (struct swarm_trace_options){.all = true});
    assert_string_equal(again.text, traced.text);
    free(again.text);
    free(traced.text);
}

static void is_there_after_a_crash(void **state)
{
    static const struct broken dies = {BROKEN_DIES, 20};
    struct swarm_plan plan;
    broken_plan(&plan);
    struct traced traced = trace(&plan, &dies, (struct swarm_trace_options){0});
    assert_int_equal(traced.outcome.end, SWARM_CRASHED);
    assert_true(says(&traced, "what concerns key 20, and the task "));
    assert_true(says(&traced, "put 20 = v"));
    assert_true(rows(&traced) > 10);
    free(traced.text);
}

static void is_there_after_a_bound(void **state)
{
    static const struct broken hangs = {BROKEN_HANGS, 20}, eats = {BROKEN_EATS, 20};
    struct swarm_plan plan;
    broken_plan(&plan);
    struct traced traced = trace(&plan, &hangs, (struct swarm_trace_options){.seconds_max = 1});
    assert_int_equal(traced.outcome.end, SWARM_TIMEOUT);
    assert_true(says(&traced, "TOO LONG"));
    free(traced.text);
    traced = trace(&plan, &eats, (struct swarm_trace_options){.bytes_max = UINT64_C(512) << 20});
    assert_int_equal(traced.outcome.end, SWARM_MEMORY);
    assert_true(says(&traced, "put 20 = v"));
    free(traced.text);
}

static void names_a_node(void **state)
{
    static const struct broken spoils = {BROKEN_SPOILS, 20};
    struct swarm_plan plan;
    broken_plan(&plan);
    struct traced traced = trace(&plan, &spoils, (struct swarm_trace_options){0});
    assert_int_equal(traced.outcome.end, SWARM_FAILED);
    assert_true(says(&traced, "address 0:0x"));
    assert_true(says(&traced, "torn")); /* as a reader finds it */
    assert_true(rows(&traced) > 10);
    free(traced.text);
}

static void shows_as_much_as_is_wanted(void **state)
{
    struct swarm_plan plan;
    broken_plan(&plan);
    struct traced traced = trace(&plan, &lies, (struct swarm_trace_options){.rows_max = 16});
    assert_in_range(rows(&traced), 14, 16); /* fewer if the run ends with the operation that does not fit */
    assert_true(says(&traced, "before them left out"));
    assert_true(says(&traced, "DOES NOT FIT"));
    free(traced.text);
    traced = trace(&plan, &lies, (struct swarm_trace_options){.rows_max = 1000, .all = true});
    assert_true(says(&traced, "everything"));
    assert_true(says(&traced, "get 21"));
    assert_true(rows(&traced) > 201);
    free(traced.text);
}

static void lists_many_lanes(void **state)
{
    struct swarm_plan plan;
    broken_plan(&plan);
    plan.fibers = 6;
    plan.threads = 2;
    struct traced traced = trace(&plan, &lies, (struct swarm_trace_options){0});
    assert_int_equal(traced.outcome.end, SWARM_FAILED);
    assert_true(says(&traced, " lane "));
    assert_false(says(&traced, " |"));
    assert_true(says(&traced, " 1.1.5 "));
    free(traced.text);
}

static void shows_a_sound_run(void **state)
{
    static const struct broken nothing = {BROKEN_NOT, 0};
    struct swarm_plan plan;
    broken_plan(&plan);
    struct traced traced = trace(&plan, &nothing, (struct swarm_trace_options){.rows_max = 50});
    assert_int_equal(traced.outcome.end, SWARM_SOUND);
    assert_int_equal(rows(&traced), 50);
    free(traced.text);
    traced = trace(&plan, &nothing, (struct swarm_trace_options){.rows_max = 100000});
    assert_true(says(&traced, "======== faults stop"));
    assert_true(says(&traced, "get 21"));
    free(traced.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_key_and_what_was_done_to_it),
        cmocka_unit_test(is_the_same_run),
        cmocka_unit_test(is_there_after_a_crash),
        cmocka_unit_test(is_there_after_a_bound),
        cmocka_unit_test(names_a_node),
        cmocka_unit_test(shows_as_much_as_is_wanted),
        cmocka_unit_test(lists_many_lanes),
        cmocka_unit_test(shows_a_sound_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
