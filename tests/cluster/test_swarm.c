/*
 * test_swarm.c - the swarm's driver, histories and judges on clusters of real processes: compute nodes that
 * are programs with the public library, over TCP and on mapped pools, are killed, stopped, cut off, held up
 * and slowed. Without arguments the short form of all variants; scripts/soak gives arguments: test_swarm
 * VARIANT[+log] DEEDS SEED LEASE_MS
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "cluster/chaos.h"
#include "cluster/load_kind.h"
#include "cluster/process.h"
#include "cluster/swarm_worker.h"

#define MS UINT64_C(1000000)

/* The first seed from there on whose index holds records, or plain values. */
static uint64_t seed_with(bool records, uint64_t seed)
{
    for (;; seed++) {
        struct swarm_plan plan;
        swarm_worker_plan(seed, &plan);
        bool found = plan.records == records;
        swarm_plan_free(&plan);
        if (found)
            return seed;
    }
}

static void run_short(const struct chaos_variant *variant, enum chaos_writing writing)
{
    uint64_t number = (uint64_t)(variant - chaos_variants);
    bool slow = variant->deed == CHAOS_STOP || variant->deed == CHAOS_HOLD;
    struct chaos_options options = {.variant = variant,
                                    .kind = &load_library,
                                    .writing = writing,
                                    .seed = seed_with(number % 2, number * 100 + 1),
                                    .deeds = slow ? 2 : 6,
                                    .lease_ms = chaos_lease_ms(variant),
                                    .survivor_lease_ms = CHAOS_LEASE_LONG_MS,
                                    .stall_max_ns = CHAOS_STALL_NS};
    struct chaos_result result;
    chaos_run(&options, &result);
    chaos_print(&options, &result);
    assert_int_equal(result.deeds, options.deeds);
    assert_true(result.operations > 500);
    assert_int_equal(result.blocks_lost, result.blocks_reclaimed);
}

static void test_variant(void **state)
{
    run_short(*state, CHAOS_IN_PLACE);
}

/* With owners' logs: the rest runs in scripts/soak. */
static void test_variant_logged(void **state)
{
    run_short(*state, CHAOS_LOGGED);
}

/* A run in a process of its own, whose message is looked at: with workers that lie it must fail. */
static void expect_noticed(const char *lies)
{
    int ends[2];
    char said[8192] = "";
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        struct chaos_options options = {.variant = &chaos_variants[0],
                                        .kind = &load_library,
                                        .lies = lies,
                                        .seed = 2,
                                        .deeds = 2,
                                        .lease_ms = CHAOS_LEASE_LONG_MS,
                                        .survivor_lease_ms = CHAOS_LEASE_LONG_MS,
                                        .stall_max_ns = CHAOS_STALL_NS};
        struct chaos_result result;
        chaos_run(&options, &result);
        _exit(0);
    }
    close(ends[1]);
    for (size_t used = 0; used < sizeof said - 1;) {
        ssize_t got = read(ends[0], said + used, sizeof said - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(said, "is not linearizable"))
        fail_msg("workers that %s writes or keys were not noticed: status %d, %.500s", lies, status, said);
}

static void lost_writes_are_noticed(void **state)
{
    expect_noticed("lose");
}

static void missed_keys_are_noticed(void **state)
{
    expect_noticed("miss");
}

static int soak(char **arguments)
{
    struct chaos_options options = {.kind = &load_library,
                                    .deeds = (unsigned)strtoul(arguments[2], NULL, 10),
                                    .seed = strtoull(arguments[3], NULL, 10),
                                    .lease_ms = (uint32_t)strtoul(arguments[4], NULL, 10),
                                    .tell = true,
                                    .verify_every = 10};
    struct chaos_result result;
    options.variant = chaos_variant_find(arguments[1], &options.writing);
    if (options.writing == CHAOS_EXCHANGED)
        fail_hard("%s: programs with the library ask for no changes by memory nodes", arguments[1]);
    options.survivor_lease_ms = chaos_survivor_lease_ms(options.variant, options.lease_ms);
    options.stall_max_ns = (options.lease_ms + 10000) * MS;
    chaos_run(&options, &result);
    chaos_print(&options, &result);
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], SWARM_WORKER))
        return swarm_worker_main(count, arguments);
    if (count >= 5)
        return soak(arguments);
    struct CMUnitTest tests[32] = {{0}};
    size_t used = 0;
    for (const struct chaos_variant *variant = chaos_variants; variant->name; variant++)
        if (count < 2 || !strcmp(arguments[1], variant->name))
            tests[used++] = (struct CMUnitTest){.name = variant->name,
                                                .test_func = test_variant,
                                                .initial_state = (void *)(uintptr_t)variant};
    if (count < 2 || !strcmp(arguments[1], "kill-tcp+log"))
        tests[used++] = (struct CMUnitTest){.name = "kill-tcp+log",
                                            .test_func = test_variant_logged,
                                            .initial_state = (void *)(uintptr_t)&chaos_variants[0]};
    tests[used++] = (struct CMUnitTest)cmocka_unit_test(lost_writes_are_noticed);
    tests[used++] = (struct CMUnitTest)cmocka_unit_test(missed_keys_are_noticed);
    return _cmocka_run_group_tests("swarm_processes", tests, used, NULL, NULL);
}
