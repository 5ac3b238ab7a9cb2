/*
 * test_sim.c - the index on a simulated cluster whose network does everything that the fabric's contract
 * allows: torn and reordered reads, late messages, lists spread over time, and compute nodes that die in the
 * middle of a write. Every history is judged key by key, scans included; at the end the tree is walked and
 * its memory accounted for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "swarm/churn_world.h"

static const struct format_geometry geometries[] = {
    {.key_kind = FORMAT_KEY_FIXED,
     .key_bytes = 8,
     .value_bytes = 8,
     .leaf_bytes = 512,
     .internal_bytes = 512},
    {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8},
    {.key_kind = FORMAT_KEY_FIXED,
     .key_bytes = 16,
     .value_bytes = 33,
     .leaf_bytes = 1024,
     .internal_bytes = 512},
    {.key_kind = FORMAT_KEY_VARIABLE,
     .key_bytes = 30,
     .value_bytes = 16,
     .leaf_bytes = 1024,
     .internal_bytes = 1024},
    {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 4096},
    /* a few slots a leaf: every third insert splits */
    {.key_kind = FORMAT_KEY_FIXED,
     .key_bytes = 8,
     .value_bytes = 80,
     .leaf_bytes = 512,
     .internal_bytes = 512},
    /* keys in blocks of their own */
    {.key_kind = FORMAT_KEY_VARIABLE,
     .key_bytes = 60,
     .inline_key_bytes = 16,
     .value_bytes = 16,
     .leaf_bytes = 1024,
     .internal_bytes = 1024},
};
/* Larger than what a death leaves whole: a write of such a leaf may be cut anywhere. */
static const struct format_geometry torn_leaves = {.key_kind = FORMAT_KEY_FIXED,
                                                   .key_bytes = 8,
                                                   .value_bytes = 255,
                                                   .leaf_bytes = 2048,
                                                   .internal_bytes = 1024};
#define GEOMETRIES (sizeof geometries / sizeof geometries[0])
#define FEW_SLOTS  5u
#define LONG_KEYS  6u

static struct churn_total total; /* of the group of tests under way */

static void options_for(struct world_options *options, uint64_t seed, const char *preset, unsigned geometry)
{
    world_options_default(options);
    options->simulated = true;
    options->seed = seed;
    options->preset = preset;
    options->random_switches = !preset;
    options->geometry = geometries[geometry];
    options->long_keys = geometry == LONG_KEYS;
    options->memory_nodes = 1 + (unsigned)(seed % 2);
    options->compute_nodes = 3;
    options->threads = 2;
    options->fibers = 1 + (unsigned)(seed % 3);
    /* Some worlds have a cache that is too small, some a lock table so small that locks are shared by many
     * nodes. */
    if (seed % 3 == 0)
        options->cache_bytes = 8192;
    if (seed % 5 == 0)
        options->lock_bytes = 64;
    if (seed % 7 == 0)
        options->lock_width = 8;
    options->unlock_by_atomic = seed % 11 == 3;
    if (seed % 6 == 1)
        options->params.atomic_write = 1024;
    sim_faults_hostile(&options->faults);
}

static void churn_for(struct churn *churn, uint64_t seed)
{
    *churn = (struct churn){.keys = 480, .window = 40, .rounds = 160, .hot = 8, .scans = 6, .multis = 5};
    if (seed % 4 == 1)
        *churn =
            (struct churn){.keys = 2000, .window = 150, .rounds = 240, .hot = 4, .scans = 8, .multis = 5};
    if (seed % 4 == 2)
        *churn = (struct churn){.keys = 160, .window = 16, .rounds = 160, .hot = 25, .scans = 4, .multis = 5};
}

static void churn_world(uint64_t seed, const char *preset, unsigned geometry)
{
    struct world world;
    struct world_options options;
    struct churn churn;
    options_for(&options, seed, preset, geometry);
    churn_for(&churn, seed);
    int status = world_create(&world, &options);
    status = status ? status : churn_world_run(&world, &churn, &total);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%s, geometry %u: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim",
                 preset ? preset : "any switches", geometry, status, error.text, seed);
}

static void churns_under_every_preset(void **state)
{
    uint64_t seed = 1;
    for (unsigned preset = 0; tree_switches_presets[preset]; preset++)
        for (unsigned round = 0; round < world_rounds(5); round++, seed++)
            churn_world(world_seed(seed), tree_switches_presets[preset], round % GEOMETRIES);
}

static void churns_in_every_geometry(void **state)
{
    for (unsigned geometry = 0; geometry < GEOMETRIES; geometry++)
        for (unsigned round = 0; round < world_rounds(12); round++)
            churn_world(world_seed(100 + geometry * 17 + round), "banyan", geometry);
}

/* One compute node that owns the index, and caches leaves and entries of it; histories are judged. */
static void churns_owned_and_cached(void **state)
{
    for (unsigned round = 0; round < world_rounds(12); round++) {
        struct world world;
        struct world_options options;
        struct churn churn;
        uint64_t seed = world_seed(4000 + round);
        options_for(&options, seed, "banyan", round % GEOMETRIES);
        churn_for(&churn, seed);
        options.compute_nodes = 1;
        options.owned = true;
        options.cache_policy = (enum tree_cache_policy)(TREE_CACHE_DEX + round % 3);
        options.cache_bytes = seed % 2 ? 1 << 20 : 24576;
        int status = world_create(&world, &options);
        status = status ? status : churn_world_run(&world, &churn, &total);
        struct error error = world.error;
        world_destroy(&world);
        if (status)
            fail_msg("owned, policy %d, geometry %u: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim",
                     (int)options.cache_policy, round % (unsigned)GEOMETRIES, status, error.text, seed);
    }
}

static void churns_with_any_switches(void **state)
{
    for (unsigned round = 0; round < world_rounds(30); round++)
        churn_world(world_seed(300 + round), NULL, round % GEOMETRIES);
}

static void churns_for_fresh_seeds(void **state)
{
    uint64_t first = world_fresh_seed();
    for (unsigned round = 0; round < world_rounds(4); round++)
        churn_world(first + round, "banyan", (unsigned)((first + round) % GEOMETRIES));
}

/* The same without hostility: whatever fails here is no matter of torn reads. */
static void churns_without_faults(void **state)
{
    for (unsigned round = 0; round < world_rounds(2); round++) {
        struct world world;
        struct world_options options;
        struct churn churn;
        options_for(&options, world_seed(50 + round), "banyan", round % GEOMETRIES);
        sim_faults_none(&options.faults);
        churn_for(&churn, 50 + round);
        int status = world_create(&world, &options);
        status = status ? status : churn_world_run(&world, &churn, &total);
        struct error error = world.error;
        world_destroy(&world);
        if (status)
            fail_msg("no faults: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim", status, error.text,
                     world_seed(50 + round));
    }
}

/* ---- a pool that is full most of the time
 * ------------------------------------------------------------------ */

static void stays_right_when_full(void **state)
{
    uint64_t refused = 0;
    for (unsigned round = 0; round < world_rounds(12); round++) {
        struct world world;
        struct world_options options;
        struct churn churn;
        options_for(&options, world_seed(1200 + round), round % 2 ? "banyan" : NULL, FEW_SLOTS);
        churn_for(&churn, 1201);
        options.accept_full = true;
        options.memory_nodes = 1 + round % 2;
        options.lock_bytes = 4096;
        options.pool_bytes = MEMORY_FIRST_CHUNK(4096) + (1 + round % 2) * options.chunk_bytes;
        int status = world_create(&world, &options);
        status = status ? status : churn_world_fill(&world, &churn);
        status = status ? status : churn_world_work(&world, &churn);
        struct tree_check_report report;
        status = status ? status : churn_world_verify(&world, &churn, &report);
        struct error error = world.error;
        struct world_met met;
        world_met(&world, &met);
        refused += met.refused;
        world_destroy(&world);
        if (status)
            fail_msg("full pool: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim", status, error.text,
                     options.seed);
    }
    assert_true(refused > 100);
}

/* ---- death --------------------------------------------------------------------------------------- */

static void death_run(const struct world_options *options, unsigned deaths)
{
    struct world world;
    struct churn churn;
    struct random random;
    churn_for(&churn, options->seed);
    random_seed(&random, options->seed ^ UINT64_C(0xdead));
    int status = world_create(&world, options);
    status = status ? status : churn_world_fill(&world, &churn);
    for (unsigned i = 0; i < deaths && !status; i++)
        status = world_kill_at(&world, i + 1, 1000 + random_below(&random, 600000),
                               20000 + random_below(&random, 200000));
    status = status ? status : churn_world_work(&world, &churn);
    /* As the dead left it, and after all of it has been traversed. */
    struct tree_check_report left, report;
    status = status ? status : world_check(&world, &left);
    status = status ? status : churn_world_verify(&world, &churn, &report);
    if (!status)
        churn_total_add(&total, &world, &left);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("death, %s, leaf %u: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim",
                 options->preset ? options->preset : "any switches", options->geometry.leaf_bytes, status,
                 error.text, options->seed);
}

static void death_world(uint64_t seed, const char *preset, unsigned geometry)
{
    struct world_options options;
    options_for(&options, seed, preset, geometry);
    death_run(&options, 1 + (unsigned)(random_mix(seed) % 2));
}

static void survives_death(void **state)
{
    for (unsigned round = 0; round < world_rounds(150); round++)
        death_world(world_seed(500 + round), "banyan",
                    round % 2   ? FEW_SLOTS
                    : round % 4 ? LONG_KEYS
                                : round / 4 % GEOMETRIES);
}

static void survives_death_with_any_switches(void **state)
{
    for (unsigned round = 0; round < world_rounds(40); round++)
        death_world(world_seed(900 + round), NULL, round % GEOMETRIES);
}

static void survives_death_under_every_preset(void **state)
{
    for (unsigned preset = 0; tree_switches_presets[preset]; preset++)
        for (unsigned round = 0; round < world_rounds(2); round++)
            death_world(world_seed(700 + preset * 10 + round), tree_switches_presets[preset],
                        round % GEOMETRIES);
}

static void survives_death_in_the_middle_of_leaves(void **state)
{
    for (unsigned round = 0; round < world_rounds(200); round++) {
        struct world_options options;
        options_for(&options, world_seed(1 + round), round % 8 ? "fg+" : "banyan", 0);
        options.geometry = torn_leaves;
        options.params.atomic_write = 1024;
        options.compute_nodes = 8;
        options.fibers = 1;
        death_run(&options, 7);
    }
}

static void survives_death_for_fresh_seeds(void **state)
{
    uint64_t first = world_fresh_seed() + 1000000;
    for (unsigned round = 0; round < world_rounds(6); round++)
        death_world(first + round, "banyan", (unsigned)((first + round) % GEOMETRIES));
}

/* ---- lost connections ---------------------------------------------------------------------------- */

static struct churn_total lossy;

static void lossy_world(uint64_t seed, const char *preset, unsigned geometry)
{
    struct world world;
    struct world_options options;
    struct churn churn;
    options_for(&options, seed, preset, geometry);
    churn_for(&churn, seed);
    /* From one loss in some operations to one in some hundreds; known at once, or late. */
    options.faults.lose = 0.03 / (double)(1 + seed % 50);
    options.faults.lose_ns = 1000u << seed % 8;
    int status = world_create(&world, &options);
    status = status ? status : churn_world_fill(&world, &churn);
    world_begin_losses(&world);
    status = status ? status : churn_world_work(&world, &churn);
    status = status ? status : world_end_losses(&world);
    struct tree_check_report left, report;
    status = status ? status : world_check(&world, &left);
    status = status ? status : churn_world_verify(&world, &churn, &report);
    if (!status)
        churn_total_add(&lossy, &world, &left);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("lost connections, %s, geometry %u: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim",
                 preset ? preset : "any switches", geometry, status, error.text, seed);
}

static void survives_losses(void **state)
{
    for (unsigned round = 0; round < world_rounds(150); round++)
        lossy_world(world_seed(2000 + round), "banyan", round % GEOMETRIES);
}

static void survives_losses_with_any_switches(void **state)
{
    for (unsigned round = 0; round < world_rounds(60); round++)
        lossy_world(world_seed(3000 + round), NULL, round % GEOMETRIES);
}

static void survives_losses_under_every_preset(void **state)
{
    for (unsigned preset = 0; tree_switches_presets[preset]; preset++)
        for (unsigned round = 0; round < world_rounds(3); round++)
            lossy_world(world_seed(4000 + preset * 10 + round), tree_switches_presets[preset],
                        round % GEOMETRIES);
}

static void survives_losses_for_fresh_seeds(void **state)
{
    uint64_t first = world_fresh_seed() + 2000000;
    for (unsigned round = 0; round < world_rounds(6); round++)
        lossy_world(first + round, "banyan", (unsigned)((first + round) % GEOMETRIES));
    churn_total_print(&lossy, "clusters with lost connections");
    if (getenv("BANYAN_SEED") || world_rounds(100) < 100)
        return;
    assert_true(lossy.losses > 20 * lossy.runs && lossy.unreachable > lossy.runs);
    assert_true(lossy.unknown > lossy.runs && lossy.snapshot_handovers > 0 && lossy.splits > lossy.runs);
}

/* The suite did what it is for. One seed alone need not do everything, nor need a few rounds. */
static void did_something(void **state)
{
    churn_total_print(&total, "simulated clusters");
    assert_true(total.runs > 0);
    if (getenv("BANYAN_SEED") || world_rounds(100) < 100)
        return;
    assert_true(total.splits > total.runs);
    assert_true(total.unlinks > total.runs);
    assert_true(total.retries > total.runs);
    assert_true(total.marked_at_death > 0);
    assert_true(total.handovers > 0 && total.snapshot_handovers > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(churns_without_faults),
        cmocka_unit_test(churns_under_every_preset),
        cmocka_unit_test(churns_in_every_geometry),
        cmocka_unit_test(churns_with_any_switches),
        cmocka_unit_test(churns_owned_and_cached),
        cmocka_unit_test(churns_for_fresh_seeds),
        cmocka_unit_test(stays_right_when_full),
        cmocka_unit_test(survives_death),
        cmocka_unit_test(survives_death_with_any_switches),
        cmocka_unit_test(survives_death_under_every_preset),
        cmocka_unit_test(survives_death_in_the_middle_of_leaves),
        cmocka_unit_test(survives_death_for_fresh_seeds),
        cmocka_unit_test(survives_losses),
        cmocka_unit_test(survives_losses_with_any_switches),
        cmocka_unit_test(survives_losses_under_every_preset),
        cmocka_unit_test(survives_losses_for_fresh_seeds),
        cmocka_unit_test(did_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
