/* test_stalls.c - things that stand still: tasks, threads, compute nodes (past their lease too), memory
 * nodes; and connections that are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/task.h"
#include "tests/sim/cluster.h"

#define MEMORIES 3
#define LEASE_NS 20000

/* ------------------------------------------------------------------ resumptions */

#define TASKS   6 /* 0 and 1 on one thread of compute node 0, 2 on another, 3.. likewise on node 1 */
#define SLEEPS  2000
#define REST_NS 1000
#define LATE_NS 300 /* more than this is no scheduling of a few fibers */

struct sleepers {
    struct cluster cluster;
    uint64_t late[TASKS]; /* resumptions that came late */
    uint64_t worst[TASKS];
    uint64_t together[TASKS]; /* how often the task was late when task 0 was, at the same time */
    uint64_t late_until;      /* of task 0: it stood still until then */
};

static void sleep_often(void *argument)
{
    struct sleepers *sleepers = argument;
    uint32_t number = sim_task_number(sleepers->cluster.sim);
    for (int i = 0; i < SLEEPS; i++) {
        uint64_t before = task_now();
        task_sleep(REST_NS);
        uint64_t late = task_now() - before - REST_NS;
        sleepers->worst[number] = late > sleepers->worst[number] ? late : sleepers->worst[number];
        if (late < LATE_NS)
            continue;
        sleepers->late[number]++;
        if (number == 0)
            sleepers->late_until = task_now();
        uint64_t now = task_now(),
                 apart = now > sleepers->late_until ? now - sleepers->late_until : sleepers->late_until - now;
        sleepers->together[number] += apart < LATE_NS;
    }
}

static struct sleepers sleep_with(const struct sim_faults *faults, uint64_t *hash)
{
    struct sleepers sleepers = {0};
    cluster_create(&sleepers.cluster, 1, 2, NULL, faults, 6);
    for (unsigned i = 0; i < TASKS; i++)
        assert_int_equal(
            sim_spawn(sleepers.cluster.sim, (int)(i / 3), i % 3 == 2, sleep_often, &sleepers, NULL), 0);
    assert_int_equal(sim_run(sleepers.cluster.sim, UINT64_MAX), 0);
    *hash = sim_trace_hash(sleepers.cluster.sim);
    cluster_destroy(&sleepers.cluster);
    return sleepers;
}

static void test_resumptions_come_late_only_with_faults(void **state)
{
    (void)state;
    struct sim_faults faults;
    uint64_t hash, again;
    struct sleepers plain = sleep_with(NULL, &hash);
    sim_faults_none(&faults);
    faults.torn_reads = 1; /* another fault alone makes no task wait */
    struct sleepers other = sleep_with(&faults, &again);
    for (unsigned i = 0; i < TASKS; i++)
        assert_int_equal(plain.late[i] + other.late[i], 0);

    sim_faults_none(&faults);
    faults.fiber_stall = 0.02;
    faults.fiber_stall_ns = 20000;
    struct sleepers fibers = sleep_with(&faults, &hash);
    sleep_with(&faults, &again);
    assert_int_equal(hash, again);
    sim_faults_none(&faults);
    faults.thread_stall = 0.01;
    faults.thread_stall_ns = 20000;
    struct sleepers threads = sleep_with(&faults, &hash);
    sim_faults_none(&faults);
    faults.compute_stall = 0.005;
    faults.compute_stall_ns = 20000;
    struct sleepers computes = sleep_with(&faults, &hash);
    for (unsigned i = 0; i < TASKS; i++) {
        assert_in_range(fibers.late[i], 10, 100);
        assert_in_range(fibers.worst[i], 15000, 21000);
        assert_in_range(threads.late[i], 10, 100);
        assert_true(threads.worst[i] >= 15000);
        assert_in_range(computes.late[i], 10, 120);
        assert_true(computes.worst[i] >= 10000);
    }
    /* by the tasks that stand still with task 0: none, those of its thread, those of its compute node */
    assert_true(fibers.together[1] < fibers.late[1] / 4);
    assert_true(threads.together[1] > threads.late[1] / 4 && threads.together[2] < threads.late[2] / 4);
    assert_true(computes.together[2] > computes.late[2] / 4 && computes.together[4] < computes.late[4] / 4);
}

static void test_certain_stalls_still_end(void **state)
{
    (void)state;
    struct sim_faults faults;
    uint64_t hash;
    sim_faults_none(&faults);
    faults.fiber_stall = faults.thread_stall = 1;
    faults.fiber_stall_ns = faults.thread_stall_ns = 500;
    struct sleepers sleepers = sleep_with(&faults, &hash);
    assert_true(sleepers.late[0] > SLEEPS / 3);
}

/* ------------------------------------------------------------------ a compute node, and its lease */

struct stall {
    struct cluster cluster;
    uint64_t began, woken[4], lost_at[MEMORIES], losses;
    int for_whom;
    uint64_t incarnation_before, incarnation_after;
    unsigned fenced, unreachable, done_after;
    int before_status;
};

static void lost(void *argument, int compute, int memory)
{
    struct stall *stall = argument;
    assert_int_equal(compute, stall->for_whom);
    assert_int_equal(stall->lost_at[memory], 0);
    stall->lost_at[memory] = sim_now(stall->cluster.sim);
    stall->losses++;
}

static void sleep_short(void *argument)
{
    struct stall *stall = argument;
    task_sleep(5000);
    stall->woken[sim_task_number(stall->cluster.sim)] = task_now();
}

static void stall_zero(void *argument)
{
    struct stall *stall = argument;
    sim_stall_compute(stall->cluster.sim, 0, 50000, stall->began);
}

static void test_all_threads_of_one_node_stand_still(void **state)
{
    (void)state;
    struct stall stall = {.began = LEASE_NS};
    cluster_create(&stall.cluster, MEMORIES, 2, NULL, NULL, 1);
    for (unsigned i = 0; i < 4; i++) /* two threads of node 0, two of node 1 */
        assert_int_equal(sim_spawn(stall.cluster.sim, (int)(i / 2), i, sleep_short, &stall, NULL), 0);
    assert_int_equal(sim_at(stall.cluster.sim, 1000, stall_zero, &stall), 0);
    assert_int_equal(sim_run(stall.cluster.sim, UINT64_MAX), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_in_range(stall.woken[i], i < 2 ? 51000 : 5000, i < 2 ? 51100 : 5100);
    assert_int_equal(sim_losses(stall.cluster.sim), 0); /* sim_on_loss was not called */
    cluster_destroy(&stall.cluster);
}

static int add_with(struct stall *stall, uint16_t node, uint64_t incarnation)
{
    struct fabric_command command = {
        .operation = FABRIC_FAA, .address = gaddr_make(node, 4096), .faa.add = 1};
    struct fabric_list list = {.node = node, .count = 1, .commands = &command, .incarnation = incarnation};
    struct fabric_list *lists[] = {&list};
    return fabric_execute(stall->cluster.endpoints[0], lists, 1, NULL);
}

/* Stands still in the middle; then goes on with the incarnation that it had, until it hears of the loss. */
static void stand_still(void *argument)
{
    struct stall *stall = argument;
    struct fabric *fabric = sim_fabric(stall->cluster.sim, 0);
    stall->incarnation_before = fabric_incarnation(fabric);
    for (uint16_t node = 0; node < MEMORIES; node++)
        assert_int_equal(add_with(stall, node, stall->incarnation_before), 0);
    stall->woken[0] = task_now();
    sim_stall_compute(stall->cluster.sim, 0, stall->began, LEASE_NS);
    stall->woken[1] = task_now();
    for (uint16_t node = 0; node < MEMORIES; node++)
        for (int tries = 0; tries < 1000; tries++) {
            int status = add_with(stall, node, stall->incarnation_before);
            if (stall->began <= LEASE_NS)
                assert_int_equal(status, 0);
            if (status == 0)
                break;
            if (status == BANYAN_EFENCED) {
                stall->fenced++;
                break;
            }
            assert_int_equal(status, BANYAN_ENET);
            stall->unreachable++;
            task_sleep(500);
        }
    stall->incarnation_after = fabric_incarnation(fabric);
    for (uint16_t node = 0; node < MEMORIES; node++)
        while (add_with(stall, node, stall->incarnation_after) != 0)
            task_sleep(500);
}

static void test_a_stall_past_the_lease_fences(void **state)
{
    (void)state;
    unsigned unreachable = 0;
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int past = 0; past < 2; past++) {
            struct stall stall = {.began = past ? 3 * LEASE_NS : LEASE_NS};
            cluster_create(&stall.cluster, MEMORIES, 2, NULL, NULL, seed);
            sim_on_loss(stall.cluster.sim, lost, &stall);
            assert_int_equal(sim_spawn(stall.cluster.sim, 0, 0, stand_still, &stall, NULL), 0);
            assert_int_equal(sim_run(stall.cluster.sim, UINT64_MAX), 0);
            assert_in_range(stall.woken[1] - stall.woken[0], stall.began, stall.began + 100);
            assert_int_equal(stall.losses, past ? MEMORIES : 0);
            assert_int_equal(sim_losses(stall.cluster.sim), stall.losses);
            assert_int_equal(stall.fenced, stall.losses);
            assert_int_equal(stall.incarnation_after - stall.incarnation_before, stall.losses);
            unreachable += stall.unreachable;
            for (uint16_t node = 0; node < MEMORIES; node++) {
                if (past)
                    assert_in_range(stall.lost_at[node], stall.woken[0] + LEASE_NS - 30,
                                    stall.woken[0] + LEASE_NS);
                /* no list that was refused or lost has been done */
                assert_int_equal(*cluster_word(&stall.cluster, node, 4096), past ? 2 : 3);
            }
            cluster_destroy(&stall.cluster);
        }
    assert_true(unreachable > 0); /* it went on before it knew */
}

static void read_and_wait(void *argument)
{
    struct stall *stall = argument;
    stall->before_status = add_with(stall, 0, fabric_incarnation(sim_fabric(stall->cluster.sim, 0)));
    stall->woken[0] = task_now();
}

/* The memory node did it and answered; the node stood still with the answer in its NIC for longer than its
 * lease. It is done, and known as done, though the locks are freed. */
static void test_an_answer_may_be_older_than_the_fencing(void **state)
{
    (void)state;
    struct stall stall = {.began = LEASE_NS};
    cluster_create(&stall.cluster, MEMORIES, 1, NULL, NULL, 1);
    sim_on_loss(stall.cluster.sim, lost, &stall);
    assert_int_equal(sim_spawn(stall.cluster.sim, 0, 0, read_and_wait, &stall, NULL), 0);
    assert_int_equal(sim_at(stall.cluster.sim, 500, stall_zero, &stall), 0);
    assert_int_equal(sim_run(stall.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(stall.losses, MEMORIES);
    assert_int_equal(stall.before_status, BANYAN_OK);
    assert_true(stall.woken[0] > stall.lost_at[0]);
    cluster_destroy(&stall.cluster);
}

static void lost_now_and_then(void *argument, int compute, int memory)
{
    struct stall *stall = argument;
    (void)compute;
    (void)memory;
    stall->losses++;
}

static void sleep_and_add(void *argument)
{
    struct stall *stall = argument;
    for (int i = 0; i < 100; i++) {
        task_sleep(2000);
        int status = add_with(stall, 0, 0);
        assert_true(!status || (stall->losses > 0 && status == BANYAN_ENET));
        stall->unreachable += status == BANYAN_ENET;
    }
}

static void test_the_fault_fences_past_its_lease_only(void **state)
{
    (void)state;
    for (int past = 0; past < 2; past++) {
        struct stall stall = {0};
        struct sim_faults faults;
        sim_faults_none(&faults);
        faults.compute_stall = 0.05;
        faults.compute_stall_ns = 50000;
        faults.lease_ns = past ? 20000 : 10000000;
        cluster_create(&stall.cluster, 1, 1, NULL, &faults, 3);
        sim_on_loss(stall.cluster.sim, lost_now_and_then, &stall);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(sim_spawn(stall.cluster.sim, 0, i, sleep_and_add, &stall, NULL), 0);
        assert_int_equal(sim_run(stall.cluster.sim, UINT64_MAX), 0);
        assert_int_equal(stall.losses > 3, past);
        assert_int_equal(stall.losses > 0, past);
        assert_int_equal(stall.unreachable > 0, past);
        assert_int_equal(sim_losses(stall.cluster.sim), stall.losses);
        cluster_destroy(&stall.cluster);
    }
}

/* ------------------------------------------------------------------ a memory node; a cut */

struct reading {
    struct stall stall;
    uint64_t took[2], effect_at;
};

static void time_reads(void *argument)
{
    struct reading *reading = argument;
    task_sleep(100);
    for (uint16_t node = 0; node < 2; node++) {
        uint64_t word, before = task_now();
        assert_int_equal(cluster_read(reading->stall.cluster.endpoints[0], gaddr_make(node, 64), &word, 8),
                         0);
        reading->took[node] = task_now() - before;
    }
}

static void stall_memory_one(void *argument)
{
    struct reading *reading = argument;
    sim_stall_memory(reading->stall.cluster.sim, 1, 40000);
}

static void test_one_memory_node_stands_still(void **state)
{
    (void)state;
    struct reading reading = {0};
    cluster_create(&reading.stall.cluster, 2, 1, NULL, NULL, 1);
    assert_int_equal(sim_spawn(reading.stall.cluster.sim, 0, 0, time_reads, &reading, NULL), 0);
    assert_int_equal(sim_at(reading.stall.cluster.sim, 50, stall_memory_one, &reading), 0);
    assert_int_equal(sim_run(reading.stall.cluster.sim, UINT64_MAX), 0);
    assert_in_range(reading.took[0], 1000, 4000);
    assert_in_range(reading.took[1], 36000, 41000);
    cluster_destroy(&reading.stall.cluster);
}

static void note_effects(void *context, const struct sim_observation *seen)
{
    struct reading *reading = context;
    if (seen->kind == SIM_EFFECT && seen->memory == 1)
        reading->effect_at = seen->time_ns;
}

/* With faults on, when a command takes effect is seen too: not before the NIC comes to it. */
static void test_nothing_takes_effect_during_the_stall(void **state)
{
    (void)state;
    struct reading reading = {0};
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.spread = 0.5;
    cluster_create(&reading.stall.cluster, 2, 1, NULL, &faults, 1);
    sim_observe(reading.stall.cluster.sim, note_effects, &reading);
    assert_int_equal(sim_spawn(reading.stall.cluster.sim, 0, 0, time_reads, &reading, NULL), 0);
    assert_int_equal(sim_at(reading.stall.cluster.sim, 50, stall_memory_one, &reading), 0);
    assert_int_equal(sim_run(reading.stall.cluster.sim, UINT64_MAX), 0);
    assert_in_range(reading.effect_at, 40050, 41000);
    cluster_destroy(&reading.stall.cluster);
}

static void cut_zero(void *argument)
{
    struct stall *stall = argument;
    sim_cut(stall->cluster.sim, 0, 0);
    sim_cut(stall->cluster.sim, 0, 0); /* it is cut already */
}

static void add_until_cut(void *argument)
{
    struct stall *stall = argument;
    struct fabric *fabric = sim_fabric(stall->cluster.sim, 0);
    uint64_t incarnation = fabric_incarnation(fabric);
    int status;
    while ((status = add_with(stall, 0, incarnation)) == 0)
        stall->done_after++;
    assert_int_equal(status, BANYAN_ENET);                /* it was under way */
    assert_int_equal(add_with(stall, 1, incarnation), 0); /* the others stand */
    assert_int_equal(add_with(stall, 0, incarnation), BANYAN_EFENCED);
    incarnation = fabric_incarnation(fabric);
    while ((status = add_with(stall, 0, incarnation)) == BANYAN_ENET)
        task_sleep(1000);
    assert_int_equal(status, 0);
    stall->incarnation_after = incarnation;
}

static void test_a_connection_is_cut_and_restored(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct stall stall = {0};
        cluster_create(&stall.cluster, 2, 1, NULL, NULL, seed);
        assert_int_equal(sim_at(stall.cluster.sim, 1000, cut_zero, &stall), 0);
        assert_int_equal(sim_run(stall.cluster.sim, 2000), 0);
        assert_int_equal(sim_losses(stall.cluster.sim), 0); /* sim_on_loss was not called */
        sim_on_loss(stall.cluster.sim, lost, &stall);
        assert_int_equal(sim_spawn(stall.cluster.sim, 0, 0, add_until_cut, &stall, NULL), 0);
        assert_int_equal(sim_at(stall.cluster.sim, 20000 + seed * 77, cut_zero, &stall), 0);
        assert_int_equal(sim_run(stall.cluster.sim, UINT64_MAX), 0);
        assert_int_equal(stall.losses, 1);
        assert_int_equal(stall.incarnation_after, 2);
        /* the list under way was done or not; those refused were not */
        assert_in_range(*cluster_word(&stall.cluster, 0, 4096), stall.done_after + 1, stall.done_after + 2);
        cluster_destroy(&stall.cluster);
    }
}

#define PAGE_BYTES 1024 /* as long as atomic_write */

struct torn {
    struct stall stall;
    uint64_t seen; /* the page's first word when the locks were freed */
    bool begun, cut_within;
};

static const uint64_t *torn_page(struct torn *torn)
{
    return cluster_word(&torn->stall.cluster, 0, 8192);
}

static void page_is_whole(void *argument, int compute, int memory)
{
    struct torn *torn = argument;
    (void)compute;
    (void)memory;
    torn->seen = torn_page(torn)[0];
    torn->cut_within = torn->begun;
    for (unsigned i = 1; i < PAGE_BYTES / 8; i++)
        assert_int_equal(torn_page(torn)[i], torn->seen);
}

static void note_parts(void *context, const struct sim_observation *seen)
{
    struct torn *torn = context;
    if (seen->kind == SIM_EFFECT && seen->count == 1)
        torn->begun = seen->status > 0;
}

static void write_torn(void *argument)
{
    struct torn *torn = argument;
    uint64_t page[PAGE_BYTES / 8];
    int status = 0;
    for (uint64_t round = 1; status == 0; round++) {
        for (unsigned i = 0; i < PAGE_BYTES / 8; i++)
            page[i] = round;
        status = cluster_write(torn->stall.cluster.endpoints[0], gaddr_make(0, 8192), page, sizeof page);
    }
}

static void test_a_short_write_is_whole_when_locks_are_freed(void **state)
{
    (void)state;
    struct sim_faults faults;
    unsigned within = 0;
    sim_faults_none(&faults);
    faults.torn_writes = 1;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct torn torn = {0};
        cluster_create(&torn.stall.cluster, 1, 1, NULL, &faults, seed);
        sim_on_loss(torn.stall.cluster.sim, page_is_whole, &torn);
        sim_observe(torn.stall.cluster.sim, note_parts, &torn);
        assert_int_equal(sim_spawn(torn.stall.cluster.sim, 0, 0, write_torn, &torn, NULL), 0);
        assert_int_equal(sim_at(torn.stall.cluster.sim, 20000 + seed * 77, cut_zero, &torn), 0);
        assert_int_equal(sim_run(torn.stall.cluster.sim, UINT64_MAX), 0);
        assert_true(torn.seen > 0);
        for (unsigned i = 0; i < PAGE_BYTES / 8; i++) /* and nothing came later */
            assert_int_equal(torn_page(&torn)[i], torn.seen);
        within += torn.cut_within;
        cluster_destroy(&torn.stall.cluster);
    }
    assert_true(within > 10);
}

static void call_once(void *argument)
{
    struct stall *stall = argument;
    char reply[8];
    size_t length;
    stall->before_status =
        fabric_call(stall->cluster.endpoints[0], 0, "hello", 5, reply, sizeof reply, &length, NULL);
}

static void count_calls(void *argument, int compute, int memory)
{
    struct stall *stall = argument;
    (void)compute;
    (void)memory;
    stall->lost_at[0] = 1 + stall->cluster.calls;
}

static void test_no_call_is_served_after_the_fencing(void **state)
{
    (void)state;
    unsigned served = 0, refused = 0;
    for (uint64_t at = 0; at < 6000; at += 50) {
        struct stall stall = {0};
        cluster_create(&stall.cluster, 1, 1, NULL, NULL, 1);
        sim_on_loss(stall.cluster.sim, count_calls, &stall);
        assert_int_equal(sim_spawn(stall.cluster.sim, 0, 0, call_once, &stall, NULL), 0);
        assert_int_equal(sim_at(stall.cluster.sim, at, cut_zero, &stall), 0);
        assert_int_equal(sim_run(stall.cluster.sim, UINT64_MAX), 0);
        if (!stall.before_status) {
            assert_int_equal(stall.cluster.calls, 1);
        } else {
            assert_int_equal(stall.before_status, BANYAN_ENET);
            assert_int_equal(stall.cluster.calls, stall.lost_at[0] - 1);
            served += stall.cluster.calls == 1;
            refused += stall.cluster.calls == 0;
        }
        cluster_destroy(&stall.cluster);
    }
    assert_true(served > 0 && refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumptions_come_late_only_with_faults),
        cmocka_unit_test(test_certain_stalls_still_end),
        cmocka_unit_test(test_all_threads_of_one_node_stand_still),
        cmocka_unit_test(test_a_stall_past_the_lease_fences),
        cmocka_unit_test(test_an_answer_may_be_older_than_the_fencing),
        cmocka_unit_test(test_the_fault_fences_past_its_lease_only),
        cmocka_unit_test(test_one_memory_node_stands_still),
        cmocka_unit_test(test_a_connection_is_cut_and_restored),
        cmocka_unit_test(test_no_call_is_served_after_the_fencing),
        cmocka_unit_test(test_nothing_takes_effect_during_the_stall),
        cmocka_unit_test(test_a_short_write_is_whole_when_locks_are_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
