/*
 * test_plan.c - plans of runs: drawn from seeds in all their variety, written down and read back without
 * loss, and refused where no run can be made of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/plan.h"

static char *text_of(const struct swarm_plan *plan)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_int_equal(swarm_plan_write(plan, file), 0);
    fclose(file);
    return text;
}

/* Every field of every table survives, rates included: a replay is exact. */
static void text_keeps_everything(void **state)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct swarm_plan drawn, read;
        struct error error;
        swarm_plan_draw(&drawn, seed * UINT64_C(0x9e3779b97f4a7c15));
        if (seed % 3 == 0)
            drawn.skip = strdup("0:1-3 0:7-7");
        char *first = text_of(&drawn);
        if (swarm_plan_parse(&read, first, &error))
            fail_msg("seed %d: %s in:\n%s", (int)seed, error.text, first);
        char *second = text_of(&read);
        assert_string_equal(first, second);
        assert_memory_equal(&drawn.faults, &read.faults, sizeof drawn.faults);
        assert_memory_equal(&drawn.params, &read.params, sizeof drawn.params);
        assert_memory_equal(&drawn.switches, &read.switches, sizeof drawn.switches);
        free(first);
        free(second);
        swarm_plan_free(&drawn);
        swarm_plan_free(&read);
    }
}

enum { SEEDS = 2000 };

/* Swarm testing: of each thing some runs have much, some little, and some have none of it. */
static void plans_differ(void **state)
{
    unsigned records = 0, variable = 0, kills = 0, restarts = 0, stalls = 0, cuts = 0, refusals = 0,
             small = 0, lose = 0, calm = 0, torn = 0, everything = 0, soft_roce = 0, two_bytes = 0,
             ranges = 0, changes = 0, drift = 0, messages = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct swarm_plan plan;
        swarm_plan_draw(&plan, seed);
        records += plan.records;
        variable += plan.key_kind == FORMAT_KEY_VARIABLE;
        kills += plan.kills > 0;
        restarts += plan.restarts > 0;
        stalls += plan.stalls > 0;
        cuts += plan.cuts > 0;
        refusals += plan.refusals > 0;
        soft_roce += plan.params.lock_width == 8 && plan.unlock_by_atomic && !plan.params.masked_cas &&
                     plan.params.atomic_write == 1024;
        two_bytes += plan.params.lock_width == 2 && plan.unlock_by_atomic;
        ranges += plan.ranges;
        changes += plan.ranges && plan.change_ns < 200000;
        drift += plan.ranges && plan.faults.clock_drift > 0;
        messages += plan.ranges && plan.faults.message_lose > 0 && !plan.kills;
        small += plan.pool_bytes < UINT64_C(1) << 20;
        lose += plan.faults.lose > 0;
        torn += plan.faults.torn_reads > 0;
        calm += !sim_faults_any(&plan.faults) && !plan.kills && !plan.stalls && !plan.cuts;
        everything += plan.kills && plan.restarts && plan.stalls && plan.cuts && plan.faults.torn_reads > 0;
        swarm_plan_free(&plan);
    }
    const unsigned counts[] = {records, variable, kills,     restarts,  stalls, cuts,    refusals, small,
                               lose,    torn,     soft_roce, two_bytes, ranges, changes, drift,    messages};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i] < SEEDS / 40 || counts[i] > SEEDS * 3 / 4)
            fail_msg("feature %d is in %u of %d plans", (int)i, counts[i], SEEDS);
    assert_true(calm > 0 && everything > 0);
}

/* A lease that is over before its echo is there would end each operation that rests on a cache. */
static void leases_outlive_heartbeats(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct swarm_plan plan;
        swarm_plan_draw(&plan, seed);
        const struct sim_params *params = &plan.params;
        uint32_t ways = 2 * (params->doorbell_ns + 2 * params->nic_ns + params->wire_ns +
                             params->pcie_write_ns + params->jitter_ns);
        assert_in_range(params->read_lease_ns, 2 * (params->rpc_ns + ways), 1000000000);
    }
}

static void same_seed_same_plan(void **state)
{
    struct swarm_plan one, two;
    swarm_plan_draw(&one, 99);
    swarm_plan_draw(&two, 99);
    char *first = text_of(&one), *second = text_of(&two);
    assert_string_equal(first, second);
    free(first);
    free(second);
    swarm_plan_free(&one);
    swarm_plan_free(&two);
}

static void expect_refused(const char *field, const char *value, const char *needle)
{
    struct swarm_plan plan;
    struct error error = {0};
    swarm_plan_default(&plan);
    int status = swarm_plan_set(&plan, field, value, &error);
    status = status ? status : swarm_plan_check(&plan, &error);
    if (status != BANYAN_EINVAL || !strstr(error.text, needle))
        fail_msg("%s = %s: status %d: %s", field, value, status, error.text);
    swarm_plan_free(&plan);
}

static void impossible_plans_are_refused(void **state)
{
    expect_refused("gravity", "1", "no field 'gravity'");
    expect_refused("keys", "42", "multiple of 4");
    expect_refused("window", "400", "more than half");
    expect_refused("lock-width", "4", "must be 2 or 8");
    expect_refused("pool-bytes", "65536", "no room for a chunk");
    expect_refused("long-keys", "on", "variable keys");
    expect_refused("leaf-bytes", "1000", "power of two");
    expect_refused("scans", "99", "more than 100 %");
    expect_refused("torn-reads", "1.5", "torn-reads");
    expect_refused("skip", "0:1", "skip '0:1'");
    expect_refused("skip", "0:5-4", "skip");
    expect_refused("skip", "7:0-1", "skip");
    expect_refused("skip", "0:0-160", "skip");
}

static void skipped_rounds(void **state)
{
    struct swarm_plan plan;
    struct swarm_skip skip;
    struct error error;
    swarm_plan_default(&plan);
    plan.skip = strdup("0:0-0  1:3-7 1:9-9 1:159-159");
    assert_int_equal(swarm_skip_parse(&skip, &plan, &error), 0);
    assert_true(swarm_skip_has(&skip, 0, 0) && !swarm_skip_has(&skip, 0, 1) && swarm_skip_has(&skip, 1, 159));
    assert_false(swarm_skip_has(&skip, 2, 0)); /* another compute node's, come later */
    swarm_skip_set(&skip, 1, 8, true);
    swarm_skip_set(&skip, 0, 0, false);
    char *text = swarm_skip_format(&skip);
    assert_string_equal(text, "1:3-9 1:159-159");
    free(text);
    swarm_skip_free(&skip);
    swarm_plan_free(&plan);
}

/* Where each step of an owner is a walk, its answer waits for the memory node's CPU as often, behind all
 * other tasks: a caller that gives up sooner never gets one. */
static void calls_outlive_walks(void **state)
{
    unsigned short_of_it = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct swarm_plan plan;
        swarm_plan_draw(&plan, seed);
        const uint64_t eight =
            UINT64_C(8) * plan.compute_nodes * plan.threads * plan.fibers * plan.params.rpc_ns;
        if (plan.switches.walks == TREE_WALKS_ALWAYS)
            assert_in_range(plan.params.peer_timeout_ns, eight, 4000000);
        else
            short_of_it += plan.params.peer_timeout_ns < eight;
        swarm_plan_free(&plan);
    }
    assert_true(short_of_it > 0); /* that it is so is no accident */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_keeps_everything), cmocka_unit_test(plans_differ),
        cmocka_unit_test(same_seed_same_plan),   cmocka_unit_test(impossible_plans_are_refused),
        cmocka_unit_test(skipped_rounds),        cmocka_unit_test(leases_outlive_heartbeats),
        cmocka_unit_test(calls_outlive_walks),
    };
    return cmocka_run_group_tests_name("swarm_plan", tests, NULL, NULL);
}
