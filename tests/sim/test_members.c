/*
 * test_members.c - memory nodes that join and leave while compute nodes work: who knows of them, and when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/task.h"
#include "tests/sim/cluster.h"

#define MEMORIES 3u
#define COMPUTES 2u
#define JOINS_AT UINT64_C(50000)
#define HEAR_NS  UINT64_C(40000)

struct joining {
    struct cluster cluster;
    uint64_t heard[COMPUTES]; /* when it knew of the last memory node */
    bool cut;                 /* the first compute node cannot ask the home node meanwhile */
};

static void joins(void *argument)
{
    struct joining *joining = argument;
    if (joining->cut)
        sim_cut(joining->cluster.sim, 0, 0);
    assert_int_equal(sim_memory_join(joining->cluster.sim, MEMORIES - 1, HEAR_NS), 0);
}

static int post(struct joining *joining)
{
    uint64_t word = 7;
    return cluster_write(joining->cluster.endpoints[0], gaddr_make(MEMORIES - 1, 4096), &word, sizeof word);
}

static void lost(void *context, int compute, int memory)
{
    (void)context;
    assert_true(compute == 0 && memory == 0);
}

static void create(struct joining *joining, void (*function)(void *))
{
    struct sim_params params;
    struct sim_faults faults;
    cluster_plain_params(&params);
    sim_faults_none(&faults);
    faults.lose_ns = 200000; /* until a lost connection is known */
    cluster_create(&joining->cluster, MEMORIES, COMPUTES, &params, &faults, 7);
    sim_on_loss(joining->cluster.sim, lost, NULL);
    sim_memory_await(joining->cluster.sim, MEMORIES - 1);
    assert_int_equal(sim_at(joining->cluster.sim, JOINS_AT, joins, joining), 0);
    assert_int_equal(sim_spawn(joining->cluster.sim, 0, 0, function, joining, NULL), 0);
    sim_run(joining->cluster.sim, UINT64_MAX);
    cluster_destroy(&joining->cluster);
}

static void wait_to_hear(void *argument)
{
    struct joining *joining = argument;
    for (unsigned known = 0; known < COMPUTES; task_sleep(500)) {
        known = 0;
        for (unsigned i = 0; i < COMPUTES; i++) {
            const struct fabric *fabric = joining->cluster.endpoints[i]->fabric;
            const bool member = fabric_membership(fabric, MEMORIES - 1) == FABRIC_MEMBER;
            assert_int_equal(fabric_memory_nodes(fabric), member ? MEMORIES : MEMORIES - 1);
            assert_int_equal(fabric_memory_nodes_most(fabric), MEMORIES);
            if (member && !joining->heard[i])
                joining->heard[i] = task_now();
            known += member;
        }
        if (task_now() < JOINS_AT)
            assert_int_equal(post(joining), BANYAN_EINVAL);
    }
    assert_int_equal(post(joining), 0);
}

static void test_each_hears_at_a_time_of_its_own(void **state)
{
    (void)state;
    static struct joining joining;
    create(&joining, wait_to_hear);
    for (unsigned i = 0; i < COMPUTES; i++)
        assert_in_range(joining.heard[i], JOINS_AT, JOINS_AT + HEAR_NS + 1000);
    assert_true(joining.heard[0] != joining.heard[1]);
}

static void meet_a_link(void *argument)
{
    struct joining *joining = argument;
    const struct fabric *fabric = joining->cluster.endpoints[0]->fabric;
    task_sleep(JOINS_AT + 1 - task_now());
    assert_int_equal(fabric_membership(fabric, MEMORIES - 1), FABRIC_NO_MEMBER);
    assert_int_equal(post(joining), 0); /* asked for it */
    assert_int_equal(fabric_membership(fabric, MEMORIES - 1), FABRIC_MEMBER);
}

static void test_a_link_is_a_reason_to_ask(void **state)
{
    (void)state;
    static struct joining joining;
    create(&joining, meet_a_link);
}

static void without_the_home_node(void *argument)
{
    struct joining *joining = argument;
    struct fabric *fabric = joining->cluster.endpoints[0]->fabric;
    task_sleep(JOINS_AT + 1 - task_now());
    assert_false(fabric_refresh(fabric));
    assert_int_equal(post(joining), BANYAN_EINVAL);
    while (fabric_membership(fabric, MEMORIES - 1) != FABRIC_MEMBER)
        task_sleep(1000); /* it hears of it when it is connected again */
    assert_true(fabric_refresh(fabric));
    assert_int_equal(post(joining), 0);
}

static void test_who_cannot_ask_hears_later(void **state)
{
    (void)state;
    static struct joining joining = {.cut = true};
    create(&joining, without_the_home_node);
}

/* ---- leaving ---- */

static void leave_until_heard(void *argument)
{
    struct joining *joining = argument;
    const uint16_t node = MEMORIES - 1;
    for (unsigned step = 0; step < 2; step++) {
        const enum fabric_membership wanted = step ? FABRIC_NO_MEMBER : FABRIC_LEAVING;
        unsigned known = 0;
        assert_int_equal(post(joining), 0);
        assert_int_equal(sim_memory_leave(joining->cluster.sim, node, step, HEAR_NS), 0);
        for (const uint64_t end = task_now() + HEAR_NS + 1000; known < COMPUTES && task_now() < end;
             task_sleep(500)) {
            known = 0;
            for (unsigned i = 0; i < COMPUTES; i++) {
                const struct fabric *fabric = joining->cluster.endpoints[i]->fabric;
                assert_int_equal(fabric_memory_nodes(fabric), MEMORIES); /* numbers stay */
                known += fabric_membership(fabric, node) == wanted;
            }
        }
        assert_int_equal(known, COMPUTES);
    }
    assert_true(fabric_is_away(joining->cluster.endpoints[0]->fabric, node));
    assert_false(fabric_is_away(joining->cluster.endpoints[0]->fabric, MEMORIES));
    assert_int_equal(post(joining), BANYAN_EINVAL);
}

static void test_one_that_was_removed_gets_nothing_any_more(void **state)
{
    (void)state;
    struct joining leaving = {0};
    struct sim_params params;
    struct sim_faults faults;
    cluster_plain_params(&params);
    sim_faults_none(&faults);
    cluster_create(&leaving.cluster, MEMORIES, COMPUTES, &params, &faults, 7);
    assert_int_equal(sim_spawn(leaving.cluster.sim, 0, 0, leave_until_heard, &leaving, NULL), 0);
    assert_int_equal(sim_run(leaving.cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&leaving.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_hears_at_a_time_of_its_own),
        cmocka_unit_test(test_a_link_is_a_reason_to_ask),
        cmocka_unit_test(test_who_cannot_ask_hears_later),
        cmocka_unit_test(test_one_that_was_removed_gets_nothing_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
