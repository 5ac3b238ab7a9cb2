/*
 * test_cpu.c - what an operation's work on a CPU costs in the simulator: with a parameter on, the same
 * operations take longer by exactly so many units of it, and nothing else changes.
 *
 * One memory node and one compute node, no jitter, no faults. Each run is made twice, the parameter under
 * test at 0 and at a round number, all other parameters of that kind at 0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <string.h>

#include "base/task.h"
#include "swarm/world.h"
#include "tree/delegate.h"
#include "tree/session.h"

#define KEYS 200u
#define KEY  7u
#define NS   1000u

struct run {
    struct world_options options;
    struct tree_switches switches;
    void (*work)(struct world_task *task); /* by all tasks, after the keys are there */
    uint64_t took_ns;                      /* the last task's end, from the beginning */
    struct format_layout layout;           /* of the index; the table in it is gone */
    struct tree_stats stats;
};

/* The parameters that this test is about. */
static double *parameter(struct sim_params *params, const char *name)
{
    for (const struct option_entry *entry = sim_params_table; entry->name; entry++)
        if (!strcmp(entry->name, name) && entry->kind == OPTION_DOUBLE)
            return (double *)(void *)((char *)params + entry->offset);
    fail_msg("no parameter %s", name);
    return NULL;
}

static const char *const parameters[] = {"leaf-ns", "slot-check-ns", "line-transfer-ns", "line-copy-ns",
                                         "sort-ns", "visit-ns",      "checksum-ns"};

static void run_init(struct run *run, const char *preset, void (*work)(struct world_task *task))
{
    struct error error = {0};
    *run = (struct run){.work = work};
    world_options_default(&run->options);
    run->options.simulated = true;
    run->options.memory_nodes = 1;
    assert_int_equal(tree_switches_preset(&run->switches, preset, &error), 0);
    run->switches.cache_bytes = 1 << 20;
    run->options.switches = &run->switches;
    sim_params_default(&run->options.params);
    run->options.params.jitter_ns = 0;
    for (unsigned i = 0; i < sizeof parameters / sizeof *parameters; i++)
        *parameter(&run->options.params, parameters[i]) = 0;
}

static void fill(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS; i++)
        world_operate(task, HISTORY_INSERT, i, 0);
    for (uint64_t i = 0; i < KEYS; i++) /* all inner nodes are cached */
        world_operate(task, HISTORY_GET, i, 0);
}

static void work(struct world_task *task)
{
    struct run *run = task->world->context;
    uint64_t begin = sim_now(task->world->sim);
    run->work(task);
    uint64_t took = sim_task_now(task->world->sim) - begin;
    if (took > run->took_ns)
        run->took_ns = took;
}

static void run_once(struct run *run)
{
    struct world world;
    run->took_ns = 0;
    int status = world_create(&world, &run->options);
    world.context = run;
    status = status ? status : world_run_one(&world, 0, fill);
    for (unsigned i = 0; i < world.task_count && !status; i++)
        tree_session_stats_reset(world.tasks[i].session);
    status = status ? status : world_run(&world, work);
    if (!status) {
        struct error error = {0};
        struct format_layout layout;
        world_stats(&world, &run->stats);
        assert_int_equal(format_layout_init(&layout, tree_geometry(world.computes[0].tree), &error), 0);
        run->layout = layout;
        format_layout_free(&layout);
    }
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* How many units of the parameter the run takes; their time must be a whole number of them. */
static uint64_t units(struct run *run, const char *name)
{
    run_once(run);
    uint64_t without = run->took_ns;
    *parameter(&run->options.params, name) = NS;
    run_once(run);
    uint64_t with = run->took_ns;
    *parameter(&run->options.params, name) = 0;
    assert_true(with >= without);
    assert_int_equal((with - without) % NS, 0);
    print_message("%-16s %" PRIu64 " ns, and %" PRIu64 " units\n", name, without, (with - without) / NS);
    return (with - without) / NS;
}

/* ---- one task ---- */

static void one_get(struct world_task *task)
{
    world_operate(task, HISTORY_GET, KEY, 0);
}

static void one_update(struct world_task *task)
{
    world_operate(task, HISTORY_UPDATE, KEY, 0);
}

static bool count_entry(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    (void)key, (void)key_length, (void)value, (void)length;
    ++*(uint64_t *)context;
    return true;
}

static void scan_all(struct world_task *task)
{
    uint64_t seen = 0;
    struct tree_range range = {.limit = 0};
    if (tree_scan(task->session, task->tree, &range, count_entry, &seen) || seen != KEYS)
        world_fail(task->world, BANYAN_ECORRUPT, "a scan met %" PRIu64 " keys", seen);
}

static void slots_of_a_bucket_are_checked(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "banyan", one_get);
    uint64_t checked = units(&run, "slot-check-ns"), compared = units(&run, "leaf-ns");
    assert_int_equal(checked, run.layout.bucket_slots);
    assert_int_equal(compared, run.layout.bucket_slots);
    run_init(&run, "banyan", one_update);
    assert_int_equal(units(&run, "slot-check-ns"), checked);
    run_init(&run, "sherman", one_get); /* reads the leaf, and compares all entries */
    compared = units(&run, "leaf-ns");
    assert_int_equal(compared, run.layout.slots);
    assert_int_equal(units(&run, "slot-check-ns"), 0);
}

static void a_node_is_checked_as_a_whole(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "fg+", one_get);
    uint64_t lines = units(&run, "checksum-ns");
    assert_int_equal(lines, run.layout.geometry.leaf_bytes / 64);
    run_init(&run, "fg+", one_update); /* read, and written back */
    assert_int_equal(units(&run, "checksum-ns"), 2 * lines);
    run.switches.node_check = false;
    assert_int_equal(units(&run, "checksum-ns"), 0);
    run_init(&run, "sherman", one_update);
    assert_int_equal(units(&run, "checksum-ns"), 0);
    run_init(&run, "banyan", one_update);
    assert_int_equal(units(&run, "checksum-ns"), 0);
}

static void scans_sort_and_copy_each_entry(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "banyan", scan_all);
    assert_int_equal(units(&run, "sort-ns"), KEYS);
    assert_int_equal(units(&run, "visit-ns"), KEYS);
    run_init(&run, "banyan", one_update);
    assert_int_equal(units(&run, "sort-ns"), 0);
    assert_int_equal(units(&run, "visit-ns"), 0);
}

/* ---- between threads ---- */

#define SHARD     2u /* lines: lock.c */
#define WAITER    task_lines(sizeof(struct tree_waiter))
#define OPERATION task_lines(sizeof(struct tree_operation))

/* The second comes while the first has the lock. A fiber of the same thread begins when that waits. */
static void two_updates(struct world_task *task)
{
    if (task->number)
        task_sleep(task->thread ? 3000 : 500);
    world_operate(task, HISTORY_UPDATE, KEY, 0);
}

static void first_updates(struct world_task *task)
{
    if (!task->number)
        world_operate(task, HISTORY_UPDATE, KEY, 0);
}

static void second_updates(struct world_task *task)
{
    if (task->number)
        world_operate(task, HISTORY_UPDATE, KEY, 0);
}

static void local_locks_move_between_threads(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, "banyan", first_updates); /* its thread used the lock last */
    run.options.threads = 2;
    assert_int_equal(units(&run, "line-transfer-ns"), 0);
    run_init(&run, "banyan", second_updates);
    run.options.threads = 2;
    assert_int_equal(units(&run, "line-transfer-ns"), SHARD);
    run_init(&run, "banyan", second_updates);
    run.options.fibers = 2; /* of one thread */
    assert_int_equal(units(&run, "line-transfer-ns"), 0);
    run_init(&run, "+onchip", second_updates); /* has no local locks */
    run.options.threads = 2;
    assert_int_equal(units(&run, "line-transfer-ns"), 0);
}

static void run_handover(struct run *run, bool delegate, bool snapshot, bool fibers)
{
    run_init(run, "banyan", two_updates);
    run->switches.delegate = delegate;
    run->switches.snapshot = snapshot;
    if (fibers)
        run->options.fibers = 2;
    else
        run->options.threads = 2;
}

/* The way of the second's operation: the first takes its lock back from the queue's thread, and the waiter;
 * the waiter learns that it has the lock, and takes the lock's lines to release it. */
static void a_handover_moves_the_lock(void **state)
{
    (void)state;
    struct run run;
    run_handover(&run, false, false, false);
    assert_int_equal(units(&run, "line-transfer-ns"), SHARD + WAITER + WAITER + SHARD);
    assert_int_equal(run.stats.handovers, 1);
    assert_int_equal(units(&run, "line-copy-ns"), 0);
    run_handover(&run, false, false, true);
    assert_int_equal(units(&run, "line-transfer-ns"), 0);
    assert_int_equal(run.stats.handovers, 1);
}

/* Header and bucket: written into the waiter's memory, and read there. */
static void an_image_is_copied(void **state)
{
    (void)state;
    struct run run;
    run_handover(&run, false, true, false);
    uint64_t copied = units(&run, "line-copy-ns");
    assert_int_equal(run.stats.snapshot_handovers, 1);
    assert_int_equal(copied, 2 * (task_lines(run.layout.header_bytes) + task_lines(run.layout.bucket_bytes)));
    run_handover(&run, false, true, true);
    assert_int_equal(units(&run, "line-copy-ns"), 0);
    assert_int_equal(run.stats.snapshot_handovers, 1);
}

/* The holder looks at the waiter and its operation, at key, context and value; the waiter reads its place,
 * its operation and its context again. */
static void an_operation_left_to_the_holder_moves_there_and_back(void **state)
{
    (void)state;
    struct run run;
    run_handover(&run, true, true, false);
    uint64_t there = SHARD + WAITER + OPERATION + task_lines(8) + 1 + task_lines(8);
    assert_int_equal(units(&run, "line-transfer-ns"), there + WAITER + OPERATION + 1);
    assert_int_equal(run.stats.combined, 1);
    run_handover(&run, true, true, true);
    assert_int_equal(units(&run, "line-transfer-ns"), 0);
    assert_int_equal(run.stats.combined, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_of_a_bucket_are_checked),
        cmocka_unit_test(a_node_is_checked_as_a_whole),
        cmocka_unit_test(scans_sort_and_copy_each_entry),
        cmocka_unit_test(local_locks_move_between_threads),
        cmocka_unit_test(a_handover_moves_the_lock),
        cmocka_unit_test(an_image_is_copied),
        cmocka_unit_test(an_operation_left_to_the_holder_moves_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
