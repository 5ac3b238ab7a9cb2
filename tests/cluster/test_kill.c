/*
 * test_kill.c - nothing that was acknowledged is lost, no lock is stuck and no memory leaks, whatever happens
 * to a compute node under load. Without arguments the short form of all variants; scripts/soak gives
 * arguments: test_kill VARIANT[+log|+exchange] DEEDS SEED LEASE_MS [MINUTES]
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cluster/chaos.h"
#include "cluster/process.h"

#define MS UINT64_C(1000000)

static void run_variant(struct chaos_options *options)
{
    struct chaos_result result;
    chaos_run(options, &result);
    chaos_print(options, &result);
    assert_int_equal(result.deeds, options->deeds);
    assert_true(result.operations > 0);
    assert_int_equal(result.blocks_lost, result.blocks_reclaimed);
}

/* On a NIC; those there are for tests are emulated, and slow: for some seconds a guest may do nothing. */
static void test_variant_rdma(void **state)
{
    const struct chaos_variant *variant = *state;
    if (!getenv("BANYAN_RDMA_ADDRESS")) {
        fprintf(stderr, "%s SKIPPED, nothing was tested: BANYAN_RDMA_ADDRESS names no NIC\n", variant->name);
        skip();
    }
    struct chaos_options options = {.variant = variant,
                                    .seed = 1,
                                    .deeds = 3,
                                    .lease_ms = 8000,
                                    .survivor_lease_ms = 8000,
                                    .stall_max_ns = 30000 * MS};
    run_variant(&options);
}

/* The short form. */
static void run_short(const struct chaos_variant *variant, enum chaos_writing writing, unsigned deeds)
{
    const bool slow = variant->deed == CHAOS_STOP || variant->deed == CHAOS_HOLD;
    struct chaos_options options = {.variant = variant,
                                    .writing = writing,
                                    .seed = 1,
                                    .deeds = slow ? 3 : deeds,
                                    .lease_ms = chaos_lease_ms(variant),
                                    .survivor_lease_ms = CHAOS_LEASE_LONG_MS,
                                    .stall_max_ns = CHAOS_STALL_NS};
    run_variant(&options);
}

static void test_variant(void **state)
{
    run_short(*state, CHAOS_IN_PLACE, 10);
}

/* With owners' logs, or changes by memory nodes: the rest runs in scripts/soak. */
static const char *const written_names[] = {
    "kill-tcp+log",         "stop-tcp+log",       "cut+log",      "restart+log",      "kill-tcp+exchange",
    "kill-mapped+exchange", "kill-both+exchange", "cut+exchange", "restart+exchange",
};

static void test_variant_written(void **state)
{
    enum chaos_writing writing;
    const struct chaos_variant *variant = chaos_variant_find(*state, &writing);
    run_short(variant, writing, writing == CHAOS_EXCHANGED ? 3 : 6);
}

static int soak(int count, char **arguments)
{
    struct chaos_options options = {.tell = true, .verify_every = 10};
    struct chaos_result result;
    options.variant = chaos_variant_find(arguments[1], &options.writing);
    options.deeds = (unsigned)strtoul(arguments[2], NULL, 10);
    options.seed = strtoull(arguments[3], NULL, 10);
    options.lease_ms = (uint32_t)strtoul(arguments[4], NULL, 10);
    options.survivor_lease_ms = chaos_survivor_lease_ms(options.variant, options.lease_ms);
    options.stall_max_ns = (options.lease_ms + (chaos_strict() ? 100 : 10000)) * MS;
    if (count > 5)
        options.until_ns = now_ns() + strtoull(arguments[5], NULL, 10) * 60000 * MS;
    chaos_run(&options, &result);
    chaos_print(&options, &result);
    return 0;
}

/* Those with this name, NULL: all. Returns how many. */
static size_t add_variants(struct CMUnitTest *tests, const struct chaos_variant *variants,
                           CMUnitTestFunction test, const char *name)
{
    size_t used = 0;
    for (const struct chaos_variant *variant = variants; variant->name; variant++)
        if (!name || !strcmp(name, variant->name))
            tests[used++] = (struct CMUnitTest){
                .name = variant->name, .test_func = test, .initial_state = (void *)(uintptr_t)variant};
    return used;
}

int main(int count, char **arguments)
{
    if (count >= 5)
        return soak(count, arguments);
    struct CMUnitTest tests[32] = {{0}};
    const char *name = count < 2 ? NULL : arguments[1];
    size_t used = add_variants(tests, chaos_variants, test_variant, name);
    used += add_variants(tests + used, chaos_variants_rdma, test_variant_rdma, name);
    for (size_t i = 0; i < sizeof written_names / sizeof *written_names; i++)
        if (!name || !strcmp(name, written_names[i]))
            tests[used++] = (struct CMUnitTest){.name = written_names[i],
                                                .test_func = test_variant_written,
                                                .initial_state = (void *)(uintptr_t)written_names[i]};
    if (!used)
        fail_hard("no variant is called %s", name);
    return _cmocka_run_group_tests("kill", tests, used, NULL, NULL);
}
