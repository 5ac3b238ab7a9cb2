/*
 * test_log_costs.c - what logged writes cost, counted alike on every backend: local, simulated, over TCP, and
 * with pools that are mapped through a Unix socket. Writes that are ready together are one round trip with
 * one WRITE for each memory node that is concerned, whether one task has them all or each has one; a second
 * copy is one WRITE more for each, in the same round trip.
 *
 * With BANYAN_FABRIC (served.h) on that one alone: so it runs over a NIC, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/atomic.h"
#include "base/task.h"
#include "log/state.h"
#include "swarm/served.h"
#include "swarm/world.h"
#include "tree/rights.h"

#define NODES 2u
#define READY 16u
#define KEYS  12000u

struct scene {
    struct world world;
    struct log *log;
    uint64_t keys[READY];                /* as many on each memory node */
    unsigned arrived;                    /* atomic: tasks that are ready */
    struct fabric_cost single, together; /* of one write; of all */
    struct log_stats before, after;      /* of those together */
};

static void must(struct world_task *task, int status)
{
    if (status)
        world_fail(task->world, status, "%s: %s", error_name(status),
                   tree_session_error(task->session)->text);
}

static int put(struct world_task *task, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {0};
    const size_t key_length = world_key(task->world, number, key);
    const size_t length = world_value(task->world, number + 1, value);
    return tree_upsert(task->session, task->tree, key, key_length, value, length);
}

static struct fabric_cost cost_since(const struct world_task *task, const struct fabric_cost *before)
{
    const struct fabric_cost *now = &tree_session_stats(task->session)->cost;
    return (struct fabric_cost){.round_trips = now->round_trips - before->round_trips,
                                .lists = now->lists - before->lists,
                                .reads = now->reads - before->reads,
                                .writes = now->writes - before->writes,
                                .atomics = now->atomics - before->atomics,
                                .rpcs = now->rpcs - before->rpcs};
}

/* ---- preparing ---- */

static void get(struct world_task *task, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t length = sizeof value, key_length = world_key(task->world, number, key);
    must(task, tree_lookup(task->session, task->tree, key, key_length, value, &length));
    if (world_value_number(task->world, value, length) != number + 1)
        world_fail(task->world, BANYAN_ECORRUPT, "a key does not hold what was written");
}

static void own(struct world_task *task)
{
    const struct tree_rights_row row = {.right = TREE_OWNED, .epoch = 1, .logged = true};
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        must(task, put(task, i));
    must(task, tree_rights_adopt(task->session, task->tree, 1,
                                 fabric_incarnation(task->world->computes[0].fabric), &row, 1));
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++) /* inner nodes are cached */
        get(task, i);
}

static uint32_t tail_of(const struct scene *scene)
{
    const struct log_segment *current = scene->log->streams[0].current;
    return current ? current->tail : 0;
}

/* To which memory node's stream the write goes; and what it costs. */
static unsigned home_of(struct world_task *task, uint64_t number)
{
    struct scene *scene = task->world->context;
    const uint32_t before = tail_of(scene);
    const struct fabric_cost cost = tree_session_stats(task->session)->cost;
    must(task, put(task, number));
    scene->single = cost_since(task, &cost);
    return tail_of(scene) == before;
}

static void choose(struct world_task *task)
{
    struct scene *scene = task->world->context;
    unsigned chosen[NODES] = {0};
    for (uint64_t i = 0; i < KEYS && chosen[0] + chosen[1] < READY && !task->world->error.code; i += 13) {
        const unsigned home = home_of(task, i);
        if (chosen[home] < READY / NODES)
            scene->keys[home * READY / NODES + chosen[home]++] = i;
    }
    if (chosen[0] + chosen[1] < READY)
        world_fail(task->world, BANYAN_ECORRUPT, "the keys' leaves all lie on one memory node");
}

/* ---- all together ---- */

static void one_task(struct world_task *task)
{
    struct scene *scene = task->world->context;
    struct tree_item items[READY];
    uint8_t keys[READY][FORMAT_KEY_MAX], values[READY][FORMAT_VALUE_MAX] = {0}, old[READY][FORMAT_VALUE_MAX];
    for (unsigned i = 0; i < READY; i++) {
        items[i] = (struct tree_item){.key = keys[i], .value = values[i], .old = old[i]};
        items[i].key_length = world_key(task->world, scene->keys[i], keys[i]);
        items[i].length = world_value(task->world, scene->keys[i] + 1, values[i]);
    }
    const struct fabric_cost cost = tree_session_stats(task->session)->cost;
    log_stats(scene->log, &scene->before);
    must(task, tree_multi_put(task->session, task->tree, items, READY));
    for (unsigned i = 0; i < READY; i++)
        must(task, items[i].status);
    scene->together = cost_since(task, &cost);
    log_stats(scene->log, &scene->after);
}

/* Each task writes one key, when all are there. */
static void many_tasks(struct world_task *task)
{
    struct scene *scene = task->world->context;
    tree_session_stats_reset(task->session);
    atomic_add_relaxed(&scene->arrived, 1); /* all tasks are one thread's */
    while (atomic_load_relaxed(&scene->arrived) < READY)
        task_yield();
    must(task, put(task, scene->keys[task->fiber]));
}

static void run_many(struct scene *scene)
{
    struct tree_stats stats;
    log_stats(scene->log, &scene->before);
    scene->arrived = 0;
    assert_int_equal(world_run(&scene->world, many_tasks), 0);
    log_stats(scene->log, &scene->after);
    world_stats(&scene->world, &stats);
    scene->together = stats.cost;
}

static void all_right(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        get(task, i);
}

/* ---- worlds ---- */

static void cost_is(const struct fabric_cost *cost, uint64_t writes)
{
    assert_int_equal(cost->round_trips, 1);
    assert_int_equal(cost->lists, writes);
    assert_int_equal(cost->writes, writes);
    assert_int_equal(cost->reads, 0);
    assert_int_equal(cost->atomics, 0);
    assert_int_equal(cost->rpcs, 0);
}

static void together_is(const struct scene *scene, uint32_t copies)
{
    cost_is(&scene->together, (uint64_t)NODES * copies);
    assert_int_equal(scene->after.entries - scene->before.entries, READY);
    assert_int_equal(scene->after.commits - scene->before.commits, 1);
    assert_int_equal(scene->after.frames - scene->before.frames, NODES * copies);
}

static void passes(struct scene *scene, int status)
{
    if (status)
        fail_msg("%s", scene->world.error.text);
}

static void count(bool simulated, uint32_t copies)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct world_options options;
    struct log_options log;
    assert_non_null(scene);
    world_options_default(&options);
    options.simulated = simulated;
    options.memory_nodes = NODES;
    options.fibers = READY;
    options.chunk_bytes = 64 << 10; /* so leaves come to lie on all memory nodes */
    log_options_default(&log);
    log.seed = 1;
    passes(scene, world_create(&scene->world, &options));
    scene->world.context = scene;
    struct world_compute *compute = &scene->world.computes[0];
    assert_int_equal(log_create(&scene->log, compute->compute, &log, &scene->world.error), 0);
    assert_int_equal(log_attach(scene->log, compute->tree, &scene->world.error), 0);

    passes(scene, world_run_one(&scene->world, 0, own));
    scene->log->options.copies = 1; /* so that one stream grows */
    passes(scene, world_run_one(&scene->world, 0, choose));
    cost_is(&scene->single, 1);
    scene->log->options.copies = copies;
    passes(scene, world_run_one(&scene->world, 0, one_task));
    together_is(scene, copies);
    run_many(scene);
    together_is(scene, copies);
    passes(scene, world_run_one(&scene->world, 0, all_right));

    log_destroy(scene->log);
    world_destroy(&scene->world);
    free(scene);
}

/* ---- backends ---- */

static void count_served(const char *fabric)
{
    const bool given = getenv("BANYAN_FABRIC");
    if (!given)
        setenv("BANYAN_FABRIC", fabric, 1);
    count(false, 1);
    count(false, 2);
    if (!given)
        unsetenv("BANYAN_FABRIC");
}

static void in_memory(void **state)
{
    (void)state;
    count_served("local");
}

static void simulated(void **state)
{
    (void)state;
    count(true, 1);
    count(true, 2);
}

static void over_tcp(void **state)
{
    (void)state;
    count_served("tcp");
}

static void mapped(void **state)
{
    (void)state;
    count_served("unix");
}

static void as_given(void **state)
{
    (void)state;
    count_served(NULL);
}

int main(void)
{
    const struct CMUnitTest one[] = {cmocka_unit_test(as_given)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory),
        cmocka_unit_test(simulated),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(mapped),
    };
    return getenv("BANYAN_FABRIC") ? cmocka_run_group_tests(one, NULL, NULL)
                                   : cmocka_run_group_tests(tests, NULL, NULL);
}
