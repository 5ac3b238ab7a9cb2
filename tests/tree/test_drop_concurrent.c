/*
 * test_drop_concurrent.c - indexes that come and go: tasks of all compute nodes fill, read and drop an index
 * that others do the same to, beside another one whose history is judged. In the simulator, where compute
 * nodes die and connections are lost too, and on threads. What a drop leaves behind is made good by another;
 * in the end each block has one owner, and the other index is sound and linearizable.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include "swarm/world.h"

#define KEYS 200u

struct plan {
    unsigned rounds;
    uint64_t dropped, made, met_dropped; /* atomic, relaxed: totals */
};
static struct plan plan;

/* Each task's handle while it has one: a task that dies cannot close it. */
#define TASKS_MAX 64u
static struct tree *handles[TASKS_MAX];

/* What the network may answer where connections are lost. */
static bool excused(const struct world_task *task, int status)
{
    return world_lossy(task->world) && (status == BANYAN_ENET || status == BANYAN_EUNKNOWN ||
                                        status == BANYAN_ETIMEOUT || status == BANYAN_EFENCED);
}

static bool fine(struct world_task *task, const char *what, int status)
{
    if (!status || status == BANYAN_ENOTFOUND || status == BANYAN_EEXIST || excused(task, status))
        return true;
    world_fail(task->world, status, "%s of the index that comes and goes: %s", what,
               tree_session_error(task->session)->text);
    return false;
}

static bool meet(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct world_task *task = context;
    if (world_key_number(task->world, key, key_length) == UINT64_MAX)
        world_fail(task->world, BANYAN_ECORRUPT, "a scan meets what is no key");
    return !task->world->error.code;
}

static int one_change(struct world_task *task, struct tree *tree)
{
    uint8_t bytes[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t key = world_key(task->world, random_below(&task->random, KEYS), bytes);
    size_t length = world_value(task->world, 1, value);
    const struct tree_range everything = {.limit = 60};
    switch (random_below(&task->random, 8)) {
    case 0:
    case 1:
        return tree_delete(task->session, tree, bytes, key);
    case 2:
        length = sizeof value;
        return tree_lookup(task->session, tree, bytes, key, value, &length);
    case 3:
        return tree_scan(task->session, tree, &everything, meet, task);
    default:
        return tree_upsert(task->session, tree, bytes, key, value, length);
    }
}

/* Until it is gone, or enough was done. */
static void use(struct world_task *task, struct tree *tree)
{
    int status = 0;
    for (uint64_t i = random_below(&task->random, 200); i && !task->world->error.code; i--) {
        status = one_change(task, tree);
        if (!fine(task, "a change", status))
            return;
    }
    if (status == BANYAN_ENOTFOUND)
        atomic_add_relaxed(&plan.met_dropped, 1u);
}

static void round_of(struct world_task *task)
{
    struct tree **handle = &handles[task->number]; /* a death may come in the middle of either call */
    int status = tree_open(task->session, "comes-and-goes", handle);
    if (status == BANYAN_ENOTFOUND) {
        status = tree_create(task->session, "comes-and-goes", &task->world->options.geometry, handle);
        if (!status)
            atomic_add_relaxed(&plan.made, 1u);
    }
    if (!fine(task, "an opening", status))
        return;
    struct tree *tree = *handle;
    if (tree)
        use(task, tree);
    if (random_below(&task->random, 3) == 0) {
        status = tree_drop(task->session, "comes-and-goes", NULL, NULL);
        if (!status)
            atomic_add_relaxed(&plan.dropped, 1u);
        fine(task, "a drop", status);
    }
    if (tree && random_below(&task->random, 2))
        use(task, tree);
    *handle = NULL;
    tree_close(tree);
}

static void close_of_the_dead(void)
{
    for (unsigned i = 0; i < TASKS_MAX; i++) {
        tree_close(handles[i]);
        handles[i] = NULL;
    }
}

static void work(struct world_task *task)
{
    assert_true(task->number < TASKS_MAX);
    static const enum history_kind kinds[] = {HISTORY_GET, HISTORY_PUT, HISTORY_DELETE};
    for (unsigned i = 0; i < plan.rounds && !task->world->error.code; i++) {
        round_of(task);
        for (unsigned j = 0; j < 20 && !task->world->error.code; j++)
            world_operate(task, kinds[random_below(&task->random, 3)], random_below(&task->random, 60), 0);
    }
}

static void finish(struct world_task *task)
{
    uint32_t count, left = 0;
    int status = tree_drop_finish(task->session, NULL, NULL, &count);
    if (!status)
        status = tree_drop(task->session, "comes-and-goes", NULL, NULL);
    if (!status || status == BANYAN_ENOTFOUND)
        status = tree_drop_count(task->session, &left);
    if (status || left)
        world_fail(task->world, status ? status : BANYAN_EBUSY, "%u drops were not ended: %s", left,
                   tree_session_error(task->session)->text);
}

static void run(struct world_options *options, unsigned deaths)
{
    struct world world;
    struct tree_check_report report;
    int status = world_create(&world, options);
    for (unsigned i = 0; i < deaths && !status; i++)
        status = world_kill_at(&world, i + 1, 200000 + (options->seed + i) * 377777 % 3000000, 100000);
    if (!status && options->faults.lose > 0)
        world_begin_losses(&world);
    if (!status)
        status = world_run(&world, work);
    if (!status && options->faults.lose > 0)
        status = world_end_losses(&world);
    if (!status)
        status = world_run_one(&world, world_survivor(&world), finish);
    if (!status)
        status = world_linearize(&world);
    if (!status)
        status = world_check(&world, &report);
    if (!status && !deaths && options->faults.lose <= 0 && world.lost_bytes)
        status = world_fail(&world, BANYAN_ECORRUPT, "%" PRIu64 " bytes are lost", world.lost_bytes);
    struct error error = world.error;
    close_of_the_dead();
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s; replay: BANYAN_SEED=%" PRIu64, status, error.text, options->seed);
}

static void options_for(struct world_options *options, uint64_t seed)
{
    world_options_default(options);
    options->seed = seed;
    options->memory_nodes = 1 + (unsigned)(seed % 2);
    options->compute_nodes = 3;
    options->threads = 2;
    options->fibers = 1 + (unsigned)(seed % 3);
    options->geometry.leaf_bytes = 512;
    options->geometry.internal_bytes = 512;
    if (seed % 3 == 0) {
        options->geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                     .key_bytes = 60,
                                                     .inline_key_bytes = 16,
                                                     .value_bytes = 16,
                                                     .leaf_bytes = 1024,
                                                     .internal_bytes = 1024};
        options->long_keys = true;
    }
}

static void simulated(unsigned seeds, uint64_t first, unsigned deaths, double lose)
{
    for (unsigned i = 0; i < world_rounds(seeds); i++) {
        struct world_options options;
        options_for(&options, world_seed(first + i));
        options.simulated = true;
        sim_faults_hostile(&options.faults);
        options.faults.lose = lose;
        if (options.seed % 5 == 0)
            options.lock_bytes = 64; /* locks are shared by many nodes */
        plan = (struct plan){.rounds = 6};
        run(&options, deaths);
        assert_true(plan.made > 0);
    }
}

static void in_a_hostile_network(void **state)
{
    simulated(40, 1, 0, 0);
}

static void with_deaths(void **state)
{
    simulated(40, 1001, 2, 0);
}

static void with_lost_connections(void **state)
{
    simulated(40, 2001, 0, 0.0005);
}

static void on_threads(void **state)
{
    for (unsigned i = 0; i < world_rounds(3); i++) {
        struct world_options options;
        options_for(&options, world_seed(3001 + i));
        plan = (struct plan){.rounds = 20};
        run(&options, 0);
        assert_true(plan.dropped > 0 && plan.met_dropped > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_hostile_network),
        cmocka_unit_test(with_deaths),
        cmocka_unit_test(with_lost_connections),
        cmocka_unit_test(on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
