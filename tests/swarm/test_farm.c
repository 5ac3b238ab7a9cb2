/*
 * test_farm.c - processes that lie, crash, grow or never end are told apart, and nothing is left of
 * them.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/error.h"
#include "swarm/farm.h"

static void *volatile kept;

/* A seed's process does this instead of a run. */
enum { SOUND, WRONG, CRASHES, LEAVES, GROWS, SEEDS, STAYS = SEEDS };

struct seen {
    struct swarm_outcome outcomes[SEEDS];
    unsigned count;
};

static int misbehave(void *context, uint64_t seed, struct swarm_plan *plan, struct error *error)
{
    swarm_plan_default(plan);
    plan->rounds = 10;
    fprintf(stderr, "I am\nnumber %u \033[1m\377\n", (unsigned)seed);
    switch (seed) {
    case WRONG:
        return error_set(error, BANYAN_EINVAL, "wrong \200");
    case CRASHES:
        raise(SIGKILL);
        break;
    case LEAVES:
        _exit(0);
    case GROWS:
        for (;;)
            kept = memset(malloc(1 << 20), 1, 1 << 20);
    case STAYS:
        for (;;)
            pause();
    default:
        break;
    }
    return 0;
}

static bool remember(void *context, const struct swarm_outcome *outcome)
{
    struct seen *seen = context;
    seen->outcomes[outcome->seed] = *outcome;
    seen->count++;
    return true;
}

static void every_end_is_told(void **state)
{
    struct seen seen = {.count = 0};
    struct error error;
    const struct swarm_farm farm = {.from = SOUND,
                                    .to = GROWS,
                                    .jobs = 4,
                                    .seconds_max = 60,
                                    .bytes_max = UINT64_C(400) << 20,
                                    .plan = misbehave,
                                    .report = remember,
                                    .context = &seen};
    static const enum swarm_end ends[SEEDS] = {SWARM_SOUND, SWARM_FAILED, SWARM_CRASHED, SWARM_CRASHED,
                                               SWARM_MEMORY};
    assert_int_equal(swarm_farm_run(&farm, &error), 0);
    assert_int_equal(seen.count, SEEDS);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        char words[40];
        snprintf(words, sizeof words, "I am number %u ?[1m? ", seed);
        assert_int_equal(seen.outcomes[seed].end, ends[seed]);
        assert_string_equal(seen.outcomes[seed].words, words);
    }
    assert_true(seen.outcomes[SOUND].result.operations > 0);
    assert_string_equal(seen.outcomes[WRONG].result.what, "wrong ?");
    assert_string_equal(seen.outcomes[CRASHES].result.what, "Killed");
    assert_string_equal(seen.outcomes[LEAVES].result.what, "exit status 0");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, dead or alive */
}

static bool remember_one(void *context, const struct swarm_outcome *outcome)
{
    *(struct swarm_outcome *)context = *outcome;
    return true;
}

static void time_without_end_ends(void **state)
{
    struct swarm_outcome outcome = {.seed = 0};
    struct error error;
    const struct swarm_farm farm = {.from = STAYS,
                                    .to = STAYS,
                                    .jobs = 1,
                                    .seconds_max = 0.3,
                                    .bytes_max = UINT64_C(1) << 40,
                                    .plan = misbehave,
                                    .report = remember_one,
                                    .context = &outcome};
    assert_int_equal(swarm_farm_run(&farm, &error), 0);
    assert_int_equal(outcome.end, SWARM_TIMEOUT);
    assert_int_equal(outcome.seed, STAYS);
}

static void the_first_failure_ends_it(void **state)
{
    struct seen seen = {.count = 0};
    struct error error;
    const struct swarm_farm farm = {.from = SOUND,
                                    .to = GROWS,
                                    .jobs = 1,
                                    .seconds_max = 60,
                                    .bytes_max = UINT64_C(1) << 40,
                                    .fail_fast = true,
                                    .plan = misbehave,
                                    .report = remember,
                                    .context = &seen};
    assert_int_equal(swarm_farm_run(&farm, &error), 0);
    assert_int_equal(seen.count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_end_is_told),
        cmocka_unit_test(time_without_end_ends),
        cmocka_unit_test(the_first_failure_ends_it),
    };
    return cmocka_run_group_tests_name("swarm_farm", tests, NULL, NULL);
}
