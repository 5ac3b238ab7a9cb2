/*
 * test_fg.c - what the preset fg (Sherman's Table 1) does in its own way: a lock that is freed by an addition
 * leaves the words beside it alone, wherever it lies and however wide it is; an update's round trips and
 * atomics; a reader that takes a leaf as a whole or not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "swarm/world.h"
#include "tree/session.h"

static void run(const struct world_options *options, void *context, void (*const *steps)(struct world_task *))
{
    struct world world;
    int status = world_create(&world, options);
    world.context = context;
    for (unsigned i = 0; !status && steps[i]; i++)
        status = world_run(&world, steps[i]);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* ---- the words beside a lock ---------------------------------------------------------------------- */

#define NODES_TRIED 200u

static uint8_t *word_bytes(const struct world_task *task, gaddr word)
{
    const struct fabric_target *target = memory_node_target(task->world->memory[gaddr_node(word)]);
    uint64_t offset = gaddr_offset(word);
    return offset & GADDR_LOCK_REGION ? target->locks + (offset & ~GADDR_LOCK_REGION) : target->pool + offset;
}

static uint64_t word_value(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* All locks beside it are held by others. */
static void lock_and_free(struct world_task *task, gaddr node, uint64_t beside)
{
    struct fabric_command writes[1];
    struct tree_hold hold;
    gaddr name = tree_lock_name(task->session, node);
    uint8_t *bytes = word_bytes(task, name & ~(gaddr)7);
    unsigned width = task->world->options.lock_width;
    uint64_t mask = width == 8 ? UINT64_MAX : UINT64_C(0xffff) << 8 * (name & 7);
    uint64_t others = beside & ~mask;
    uint64_t id = fabric_capabilities(task->session->pool.fabric)->compute_id;
    memcpy(bytes, &others, sizeof others);
    int status = tree_lock(task->session, node, false, NULL, 0, &hold);
    uint64_t held = word_value(bytes), atomics = tree_session_stats(task->session)->cost.atomics;
    status = status ? status : tree_unlock(task->session, &hold, writes, 0);
    uint64_t freed = word_value(bytes);
    atomics = tree_session_stats(task->session)->cost.atomics - atomics;
    if (status || held != (others | id << 8 * (name & 7)) || freed != others || atomics != 1)
        world_fail(task->world, BANYAN_ECORRUPT,
                   "status %d, word %" PRIx64 " beside %" PRIx64 ", then %" PRIx64 ", %" PRIu64 " atomics",
                   status, held, others, freed, atomics);
    memset(bytes, 0, sizeof others);
}

static void lock_many(struct world_task *task)
{
    pool_session_begin(tree_session_pool(task->session));
    for (uint64_t i = 1; i <= NODES_TRIED && !task->world->error.code; i++) {
        gaddr node = gaddr_make(0, i * 1024);
        lock_and_free(task, node, UINT64_MAX);
        lock_and_free(task, node, UINT64_C(0x0001000100010001));
        lock_and_free(task, node, 0);
    }
}

static void freed_by_addition(void **state)
{
    (void)state;
    static void (*const steps[])(struct world_task *) = {lock_many, NULL};
    for (unsigned way = 0; way < 8; way++) {
        struct world_options options;
        struct tree_switches switches = {.cache_bytes = 1 << 20};
        struct error error;
        assert_int_equal(tree_switches_preset(&switches, "fg", &error), 0);
        assert_int_equal(switches.release, TREE_RELEASE_FAA);
        switches.lock_region = way & 1 ? TREE_LOCKS_ONCHIP : TREE_LOCKS_DRAM;
        world_options_default(&options);
        options.switches = &switches;
        options.lock_width = way & 2 ? 8 : 2;
        options.unlock_by_atomic = way & 4; /* the addition is an atomic anyway */
        run(&options, NULL, steps);
    }
}

/* ---- what an update costs ------------------------------------------------------------------------- */

#define KEYS 500u

static void fill(struct world_task *task)
{
    for (uint64_t i = 0; task->number == 0 && i < KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_PUT, i * 2, 0);
}

static void update_all(struct world_task *task)
{
    struct fabric_cost *cost = task->world->context;
    tree_session_stats_reset(task->session);
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_UPDATE, i * 2, 0);
    *cost = tree_session_stats(task->session)->cost;
}

static void costs_of_an_update(void **state)
{
    (void)state;
    static void (*const steps[])(struct world_task *) = {fill, update_all, NULL};
    static const struct {
        const char *preset;
        uint64_t atomics, writes;
    } expected[] = {{"fg", 2, 1}, {"fg+", 1, 2}};
    for (unsigned i = 0; i < 2; i++) {
        struct world_options options;
        struct fabric_cost cost = {0};
        world_options_default(&options);
        options.preset = expected[i].preset;
        run(&options, &cost, steps);
        assert_int_equal(cost.round_trips, 4 * KEYS);
        assert_int_equal(cost.lists, 4 * KEYS);
        assert_int_equal(cost.atomics, expected[i].atomics * KEYS);
        assert_int_equal(cost.writes, expected[i].writes * KEYS);
        assert_int_equal(cost.reads, KEYS);
    }
}

/* ---- a leaf as a whole ---------------------------------------------------------------------------- */

#define ROUNDS 2000u

struct reading {
    uint64_t retries;
};

/* The first compute node reads keys that nothing changes, from leaves in which the second changes others. */
static void read_beside_writes(struct world_task *task)
{
    struct reading *reading = task->world->context;
    tree_session_stats_reset(task->session);
    for (uint64_t i = 0; i < ROUNDS && !task->world->error.code; i++) {
        uint64_t key = random_below(&task->random, 10) * 4;
        int status = task->compute ? world_operate(task, HISTORY_UPDATE, key + 2, 0)
                                   : world_operate(task, HISTORY_GET, key, 0);
        if (status)
            world_fail(task->world, BANYAN_ECORRUPT, "key %" PRIu64 ": status %d", key, status);
    }
    if (!task->compute)
        reading->retries = tree_session_stats(task->session)->retries;
}

static uint64_t retries_of_readers(bool check)
{
    static void (*const steps[])(struct world_task *) = {fill, read_beside_writes, NULL};
    struct world_options options;
    struct tree_switches switches = {.cache_bytes = 1 << 20};
    struct reading reading = {0};
    struct error error;
    assert_int_equal(tree_switches_preset(&switches, "fg", &error), 0);
    assert_true(switches.node_check);
    switches.node_check = check;
    world_options_default(&options);
    options.simulated = true;
    options.compute_nodes = 2;
    options.switches = &switches;
    options.geometry = (struct format_geometry){
        .key_bytes = 8, .value_bytes = 64, .leaf_bytes = 4096, .internal_bytes = 512};
    options.faults.torn_reads = 1;
    options.faults.tear_window_ns = 2000;
    run(&options, &reading, steps);
    return reading.retries;
}

static void a_leaf_fits_together_or_is_read_again(void **state)
{
    (void)state;
    uint64_t with = retries_of_readers(true), without = retries_of_readers(false);
    print_message("%u lookups beside writes: %" PRIu64 " read again with the node's check, %" PRIu64
                  " without\n",
                  ROUNDS, with, without);
    assert_true(with > ROUNDS / 100);
    assert_int_equal(without, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_by_addition),
        cmocka_unit_test(costs_of_an_update),
        cmocka_unit_test(a_leaf_fits_together_or_is_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
