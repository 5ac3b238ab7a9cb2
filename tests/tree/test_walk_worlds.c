/* test_walk_worlds.c - compute nodes that leave ways to memory nodes: in virtual time, and over TCP to
 * daemons in this process, whose threads walk while others write. What operations cost then, exact numbers;
 * and that churn finds what it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <inttypes.h>
#include "swarm/churn_world.h"
#include "swarm/served.h"

#define KEYS    12000u
#define LOOKUPS 200u
#define BATCH   32u

struct costs {
    struct tree_stats points, batch, scan;
    uint64_t walked; /* as the memory nodes count */
};

static uint64_t existing(uint64_t i)
{
    return random_mix(i) % 1000003 * 2 + i * 4000000;
}

static void fill(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, existing(i), 0);
}

static void get(struct world_task *task, uint64_t i)
{
    int status = world_operate(task, HISTORY_GET, existing(i), 0);
    if (status)
        world_fail(task->world, BANYAN_ECORRUPT, "a key was not found: %d", status);
}

static void batch_get(struct world_task *task)
{
    static struct tree_item items[BATCH];
    static uint8_t keys[BATCH][FORMAT_KEY_MAX], values[BATCH][FORMAT_VALUE_MAX];
    for (unsigned i = 0; i < BATCH; i++) {
        items[i] = (struct tree_item){.key = keys[i], .value = values[i], .length = FORMAT_VALUE_MAX};
        items[i].key_length = world_key(task->world, existing(i * 151 + 7), keys[i]);
    }
    if (tree_multi_get(task->session, task->tree, items, BATCH))
        world_fail(task->world, BANYAN_ECORRUPT, "a batch failed");
    for (unsigned i = 0; i < BATCH; i++)
        if (items[i].status || items[i].length != task->world->options.geometry.value_bytes)
            world_fail(task->world, BANYAN_ECORRUPT, "item %u: %d", i, items[i].status);
}

/* The second compute node knows the root, and else nothing: the cache keeps some frames at least, so each
 * lookup is of another part of the index. */
static void measure(struct world_task *task)
{
    struct costs *costs = task->world->context;
    get(task, 1);
    tree_session_stats_reset(task->session);
    for (unsigned i = 0; i < LOOKUPS; i++)
        get(task, i * 7919 % KEYS);
    costs->points = *tree_session_stats(task->session);
    tree_session_stats_reset(task->session);
    batch_get(task);
    costs->batch = *tree_session_stats(task->session);
}

static void run(const struct world_options *options, int walks, struct costs *costs)
{
    struct world world;
    struct tree_switches switches = {0};
    struct error error = {0};
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = options->cache_bytes;
    switches.walks = walks;
    struct world_options one = *options;
    one.switches = &switches;
    one.compute_nodes = 2;
    one.geometry.leaf_bytes = 512;
    one.geometry.internal_bytes = 512;
    *costs = (struct costs){.walked = 0};
    int status = world_create(&world, &one);
    world.context = costs;
    status = status ? status : world_run_one(&world, 0, fill);
    status = status ? status : world_run_one(&world, 1, measure);
    for (unsigned i = 0; i < options->memory_nodes && !status; i++) {
        struct memory_status_reply reply = {0};
        memory_node_status(world.memory[i], &reply);
        costs->walked += reply.walks_total;
    }
    error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* Each lookup costs one round trip, whatever is cached of its way; without walks most cost more. */
static void costs_of(bool simulated)
{
    struct costs with, without;
    struct world_options options;
    world_options_default(&options);
    options.simulated = simulated;
    for (unsigned size = 0; size < 2; size++) {
        options.cache_bytes = size ? 8 << 20 : 2048;
        run(&options, TREE_WALKS_ALWAYS, &with);
        run(&options, TREE_WALKS_NEVER, &without);
        print_message("%s, cache of %" PRIu64 ": %u lookups %" PRIu64 " round trips (%" PRIu64
                      " without walks), a batch of %u %" PRIu64 " (%" PRIu64 ")\n",
                      simulated ? "simulated" : "tcp", options.cache_bytes, LOOKUPS,
                      with.points.cost.round_trips, without.points.cost.round_trips, BATCH,
                      with.batch.cost.round_trips, without.batch.cost.round_trips);
        assert_int_equal(with.points.cost.round_trips, LOOKUPS);
        assert_true(with.batch.cost.round_trips <= 2); /* one walk, one READ of what was cached */
        assert_true(without.points.cost.round_trips > LOOKUPS + (size ? 15 : 50));
        if (!size)
            assert_true(without.batch.cost.round_trips > with.batch.cost.round_trips + 2);
        assert_true(with.points.walks > 10 && with.points.walks_answered > 10 && with.points.walks_busy == 0);
        assert_int_equal(without.points.walks + without.walked, 0);
        if (!simulated)
            assert_true(with.walked >= with.points.walks);
    }
    assert_true(with.points.walks < LOOKUPS / 2); /* with room, the cache has learned the ways */
}

static void costs_in_virtual_time(void **state)
{
    costs_of(true);
}

static void costs_over_tcp(void **state)
{
    costs_of(false);
}

static void churn(bool simulated, unsigned memory_nodes, int walks)
{
    struct world_options options;
    struct tree_switches switches = {0};
    struct churn_total total = {0};
    struct world world;
    struct error error = {0};
    world_options_default(&options);
    options.seed = world_seed(memory_nodes * 7 + (unsigned)walks);
    options.simulated = simulated;
    options.memory_nodes = memory_nodes;
    options.compute_nodes = 2;
    options.threads = 2;
    options.fibers = 2;
    options.geometry.leaf_bytes = 512;
    options.geometry.internal_bytes = 512;
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 2048;
    switches.walks = walks;
    options.switches = &switches;
    struct churn work = {.keys = 1500,
                         .window = 120,
                         .rounds = world_rounds(simulated ? 1200 : 1000),
                         .hot = 5,
                         .scans = 4,
                         .multis = 15,
                         .merges = 3};
    int status = world_create(&world, &options);
    status = status ? status : churn_world_run(&world, &work, &total);
    error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s; BANYAN_SEED=%" PRIu64, status, error.text, options.seed);
}

static void churn_in_virtual_time(void **state)
{
    churn(true, 1, TREE_WALKS_ALWAYS);
    churn(true, 3, TREE_WALKS_ALWAYS);
    churn(true, 2, TREE_WALKS_AUTO);
}

static void churn_over_tcp(void **state)
{
    churn(false, 1, TREE_WALKS_ALWAYS);
    churn(false, 2, TREE_WALKS_AUTO);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest simulated[] = {
        cmocka_unit_test(costs_in_virtual_time),
        cmocka_unit_test(churn_in_virtual_time),
    };
    const struct CMUnitTest real[] = {
        cmocka_unit_test(costs_over_tcp),
        cmocka_unit_test(churn_over_tcp),
    };
    if (count == 2 && !strcmp(arguments[1], "sim"))
        return cmocka_run_group_tests(simulated, NULL, NULL);
    setenv("BANYAN_FABRIC", "tcp", 1);
    return cmocka_run_group_tests(real, NULL, NULL);
}
