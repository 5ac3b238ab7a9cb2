/* test_walk_worlds.c - compute nodes that leave ways to memory nodes: in virtual time, and over TCP, or
 * beside a NIC, to daemons in this process, whose threads walk while others write. What operations cost then,
 * exact numbers; and that churn finds what it should, also where they make changes. Arguments: sim (virtual
 * time), rdma (a NIC), exchanges (changes, over TCP), or none (walks, over TCP). */
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

#define KEYS_NIC 800u /* in a guest whose processor is emulated */
#define LOOKUPS  200u
#define BATCH    32u
#define NOTHING  28u /* is cached: the lowest level that is */

static uint64_t key_count = 12000;

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
    for (uint64_t i = 0; i < key_count && !task->world->error.code; i++)
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
        items[i].key_length = world_key(task->world, existing((i * 151 + 7) % key_count), keys[i]);
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
        get(task, i * 7919 % key_count);
    costs->points = *tree_session_stats(task->session);
    tree_session_stats_reset(task->session);
    batch_get(task);
    costs->batch = *tree_session_stats(task->session);
}

static void run(const struct world_options *options, int walks, uint32_t lowest, struct costs *costs)
{
    struct world world;
    struct tree_switches switches = {0};
    struct error error = {0};
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = options->cache_bytes;
    switches.walks = walks;
    switches.cache_lowest = lowest;
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
        run(&options, TREE_WALKS_ALWAYS, 0, &with);
        run(&options, TREE_WALKS_NEVER, 0, &without);
        print_message("%s, cache of %" PRIu64 ": %u lookups %" PRIu64 " round trips (%" PRIu64
                      " without walks), a batch of %u %" PRIu64 " (%" PRIu64 ")\n",
                      simulated ? "simulated" : getenv("BANYAN_FABRIC"), options.cache_bytes, LOOKUPS,
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

/* Nothing is cached: a lookup is one walk, or reads all the way. It does not decide again at each level, by
 * which most ways would be walked in the end, after some were read in part. */
static void one_decision_for_a_way(void **state)
{
    struct costs never, half;
    struct world_options options;
    world_options_default(&options);
    options.simulated = true;
    options.cache_bytes = 8 << 20;
    run(&options, TREE_WALKS_NEVER, NOTHING, &never);
    run(&options, 50, NOTHING, &half);
    const uint64_t reads = never.points.cost.round_trips / LOOKUPS, walks = half.points.walks;
    print_message("%u lookups of %" PRIu64 " READs, half of them walked: %" PRIu64 " walks, %" PRIu64
                  " round trips\n",
                  LOOKUPS, reads, walks, half.points.cost.round_trips);
    assert_true(reads >= 3);
    assert_int_equal(half.points.cost.round_trips, walks + (LOOKUPS - walks) * reads);
    assert_true(walks > LOOKUPS * 2 / 5 && walks < LOOKUPS * 3 / 5);
}

static void costs_on_daemons(void **state)
{
    costs_of(false);
}

/* A lookup beside a NIC, whose ways go over the connection's stream; few keys and many walks. */
static void costs_beside_a_nic(void **state)
{
    struct costs costs;
    struct world_options options;
    key_count = KEYS_NIC;
    world_options_default(&options);
    options.simulated = false;
    options.cache_bytes = 2048;
    run(&options, TREE_WALKS_ALWAYS, 0, &costs);
    print_message("%s: %u lookups %" PRIu64 " round trips, %" PRIu64 " walks\n", getenv("BANYAN_FABRIC"),
                  LOOKUPS, costs.points.cost.round_trips, costs.points.walks);
    assert_int_equal(costs.points.cost.round_trips, LOOKUPS);
    assert_true(costs.points.walks > 0 && costs.points.walks_answered > 0);
    assert_true(costs.walked >= costs.points.walks);
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

/* One compute node that owns all leaves, and has memory nodes do what the settings say, while its other tasks
 * write. `stats`: of all tasks. */
static void churn_of_an_owner(bool simulated, const char *settings, struct tree_stats *stats)
{
    struct world_options options;
    struct tree_switches switches = {0};
    struct churn_total total = {0};
    struct world world;
    struct error error = {0};
    world_options_default(&options);
    options.seed = world_seed((unsigned)strlen(settings));
    options.simulated = simulated;
    options.compute_nodes = 1;
    options.threads = 3;
    options.fibers = 3;
    options.owned = true;
    options.geometry.leaf_bytes = 512;
    options.geometry.internal_bytes = 512;
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 32 << 10;
    switches.walks = TREE_WALKS_NEVER;
    assert_int_equal(option_set_list(tree_switches_table, &switches, settings, &error), 0);
    options.switches = &switches;
    struct churn work = {.keys = 1500,
                         .window = 120,
                         .rounds = world_rounds(simulated ? 1500 : 800),
                         .hot = 5,
                         .scans = 4,
                         .multis = 10,
                         .merges = 3};
    int status = world_create(&world, &options);
    status = status ? status : churn_world_run(&world, &work, &total);
    error = world.error;
    world_stats(&world, stats);
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s; BANYAN_SEED=%" PRIu64, status, error.text, options.seed);
    print_message("%s: %" PRIu64 " walks, %" PRIu64 " changes by memory nodes, %" PRIu64 " splits\n",
                  settings, stats->walks, stats->exchanges_answered, stats->splits);
}

/* W11: it caches what walks bring of its leaves. */
static void walking_churn(bool simulated, const char *settings)
{
    struct tree_stats stats;
    churn_of_an_owner(simulated, settings, &stats);
    assert_true(stats.walks > 1000);
}

static void churn_of_an_owner_in_virtual_time(void **state)
{
    walking_churn(true, "walks=always,cache-policy=dex,admission=0.5,cache-lowest=28");
    walking_churn(true, "walks=always,cache-policy=dinomo,cache-lowest=28");
    walking_churn(true, "walks=always,cache-policy=banyan,cache-lowest=28");
    walking_churn(true, "walks=always,cache-policy=banyan,cache-lowest=2");
}

static void churn_of_an_owner_on_daemons(void **state)
{
    walking_churn(false, "walks=always,cache-policy=dex,admission=0.5,cache-lowest=28");
    walking_churn(false, "walks=always,cache-policy=banyan,cache-lowest=28");
}

/* W13: memory nodes make its changes, and nothing else, while its tasks read what they change. */
static void exchanging_churn(bool simulated, const char *settings)
{
    struct tree_stats stats;
    churn_of_an_owner(simulated, settings, &stats);
    assert_int_equal(stats.walks, 0);
    assert_true(stats.exchanges_answered > 500);
    assert_true(stats.splits > 0);
}

static void exchanging_churn_in_virtual_time(void **state)
{
    exchanging_churn(true, "exchange-walks=always,cache-policy=inner");
    exchanging_churn(true, "exchange-walks=always,cache-policy=dinomo");
    exchanging_churn(true, "exchange-walks=50,cache-policy=inner");
}

static void exchanging_churn_on_daemons(void **state)
{
    exchanging_churn(false, "exchange-walks=always,cache-policy=inner");
    exchanging_churn(false, "exchange-walks=always,cache-policy=dinomo");
}

static void churn_beside_a_nic(void **state)
{
    churn(false, 1, TREE_WALKS_ALWAYS);
}

static void churn_on_daemons(void **state)
{
    churn(false, 1, TREE_WALKS_ALWAYS);
    churn(false, 2, TREE_WALKS_AUTO);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest simulated[] = {
        cmocka_unit_test(costs_in_virtual_time),
        cmocka_unit_test(one_decision_for_a_way),
        cmocka_unit_test(churn_in_virtual_time),
        cmocka_unit_test(churn_of_an_owner_in_virtual_time),
        cmocka_unit_test(exchanging_churn_in_virtual_time),
    };
    const struct CMUnitTest real[] = {
        cmocka_unit_test(costs_on_daemons),
        cmocka_unit_test(churn_on_daemons),
        cmocka_unit_test(churn_of_an_owner_on_daemons),
    };
    const struct CMUnitTest exchanging[] = {
        cmocka_unit_test(exchanging_churn_on_daemons),
    };
    const struct CMUnitTest nic[] = {
        cmocka_unit_test(costs_beside_a_nic),
        cmocka_unit_test(churn_beside_a_nic),
    };
    if (count == 2 && !strcmp(arguments[1], "sim"))
        return cmocka_run_group_tests(simulated, NULL, NULL);
    const bool rdma = count == 2 && !strcmp(arguments[1], "rdma");
    setenv("BANYAN_FABRIC", rdma ? "rdma" : "tcp", 1);
    if (count == 2 && !strcmp(arguments[1], "exchanges"))
        return cmocka_run_group_tests(exchanging, NULL, NULL);
    return rdma ? cmocka_run_group_tests(nic, NULL, NULL) : cmocka_run_group_tests(real, NULL, NULL);
}
