/* test_shrink.c - failing plans become small, and fail yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "broken.h"
#include "swarm/shrink.h"

struct improvements {
    unsigned count;
    uint32_t attempts;
};

static void note(void *context, const char *what, const struct swarm_plan *plan, uint32_t attempts)
{
    struct improvements *improvements = context;
    assert_true(*what);
    assert_true(attempts >= improvements->attempts);
    improvements->count++;
    improvements->attempts = attempts;
}

static int shrink(struct swarm_plan *plan, const struct broken *broken, uint32_t attempts_max,
                  struct swarm_outcome *outcome, struct improvements *improvements)
{
    struct swarm_watch watch = broken_watch(broken);
    struct error error;
    const struct swarm_shrink_options options = {.jobs = 2,
                                                 .dice = 1,
                                                 .attempts_max = attempts_max,
                                                 .seconds_max = 300,
                                                 .bytes_max = UINT64_C(4) << 30,
                                                 .watch = &watch,
                                                 .progress = note,
                                                 .context = improvements};
    *improvements = (struct improvements){0};
    return swarm_shrink(plan, &options, outcome, &error);
}

static char *text_of(const struct swarm_plan *plan)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_int_equal(swarm_plan_write(plan, file), 0);
    fclose(file);
    return text;
}

static unsigned rounds_left(const struct swarm_plan *plan)
{
    struct swarm_skip skip;
    struct error error;
    unsigned count = 0;
    assert_int_equal(swarm_skip_parse(&skip, plan, &error), 0);
    for (uint32_t task = 0; task < skip.tasks; task++)
        for (uint32_t round = 0; round < skip.rounds; round++)
            count += !swarm_skip_has(&skip, task, round);
    swarm_skip_free(&skip);
    return count;
}

static const struct broken lies = {BROKEN_LIES, UINT64_MAX};

static void leaves_a_handful(void **state)
{
    struct swarm_plan plan, again;
    struct swarm_outcome outcome;
    struct improvements improvements;
    struct swarm_result result;
    struct swarm_watch watch = broken_watch(&lies);
    struct error error;
    broken_plan(&plan);
    plan.kills = plan.stalls = 1;
    plan.memory_nodes = 2;
    plan.switches.snapshot = false;
    assert_int_equal(shrink(&plan, &lies, 0, &outcome, &improvements), 0);
    assert_int_equal(outcome.end, SWARM_FAILED);
    assert_int_equal(outcome.seed, plan.seed);
    assert_true(improvements.count >= 5);
    assert_false(sim_faults_any(&plan.faults));
    assert_int_equal(plan.kills + plan.stalls, 0);
    assert_int_equal(plan.memory_nodes, 1);
    assert_int_equal(plan.compute_nodes, 1);
    assert_int_equal(plan.fibers, 1);
    assert_true(plan.switches.snapshot);
    assert_int_equal(plan.keys, 40);
    assert_in_range(rounds_left(&plan), 1, 3); /* two puts; the reader at the end notices */
    /* The plan as text runs alike when it is read back. */
    char *text = text_of(&plan);
    assert_int_equal(swarm_plan_parse(&again, text, &error), 0);
    swarm_run(&again, &watch, &result);
    assert_int_equal(result.status, outcome.result.status);
    assert_true(result.hash == outcome.result.hash);
    swarm_plan_free(&again);
    /* The same once more. */
    broken_plan(&again);
    again.kills = again.stalls = 1;
    again.memory_nodes = 2;
    again.switches.snapshot = false;
    assert_int_equal(shrink(&again, &lies, 0, &outcome, &improvements), 0);
    char *text_again = text_of(&again);
    assert_string_equal(text_again, text);
    free(text_again);
    free(text);
    swarm_plan_free(&again);
    swarm_plan_free(&plan);
}

static void keeps_the_kind_of_failure(void **state)
{
    static const struct broken dies = {BROKEN_DIES, UINT64_MAX};
    struct swarm_plan plan;
    struct swarm_outcome outcome;
    struct improvements improvements;
    broken_plan(&plan);
    assert_int_equal(shrink(&plan, &dies, 0, &outcome, &improvements), 0);
    assert_int_equal(outcome.end, SWARM_CRASHED);
    assert_in_range(rounds_left(&plan), 1, 4);
    assert_int_equal(plan.compute_nodes, 1);
    swarm_plan_free(&plan);
}

static void leaves_a_sound_plan_alone(void **state)
{
    static const struct broken nothing = {BROKEN_NOT, 0};
    struct swarm_plan plan;
    struct swarm_outcome outcome;
    struct improvements improvements;
    broken_plan(&plan);
    char *before = text_of(&plan);
    assert_int_equal(shrink(&plan, &nothing, 0, &outcome, &improvements), BANYAN_ENOTFOUND);
    assert_int_equal(outcome.end, SWARM_SOUND);
    assert_int_equal(improvements.count, 0);
    char *after = text_of(&plan);
    assert_string_equal(after, before);
    free(before);
    free(after);
    swarm_plan_free(&plan);
}

static void stops_when_it_was_told_to(void **state)
{
    struct swarm_plan plan;
    struct swarm_outcome outcome;
    struct improvements improvements;
    struct swarm_result result;
    struct swarm_watch watch = broken_watch(&lies);
    broken_plan(&plan);
    assert_int_equal(shrink(&plan, &lies, 6, &outcome, &improvements), 0);
    assert_in_range(improvements.attempts, 2, 7); /* the last reduction is tried with all its dice */
    assert_true(rounds_left(&plan) > 3);
    swarm_run(&plan, &watch, &result);
    assert_true(result.hash == outcome.result.hash && result.status);
    swarm_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_a_handful),
        cmocka_unit_test(keeps_the_kind_of_failure),
        cmocka_unit_test(leaves_a_sound_plan_alone),
        cmocka_unit_test(stops_when_it_was_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
