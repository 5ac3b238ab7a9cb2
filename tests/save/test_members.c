/*
 * test_members.c - which memory nodes take part in a checkpoint (save/save.h): those of the list, of which
 * the home node is asked first. The fabric is a local one that says what came of the question.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fabric/local.h"
#include "memory/memory.h"
#include "save/save.h"
#include "tree/tree.h"

static bool answer; /* whether the list can be had, and all of it be connected to */
static unsigned asked;

static bool refresh(struct fabric *fabric)
{
    (void)fabric;
    asked++;
    return answer;
}

static bool learn(struct fabric *fabric, uint16_t node)
{
    (void)fabric;
    return node == 0;
}

static enum fabric_membership membership(const struct fabric *fabric, uint16_t node)
{
    (void)fabric;
    return node == 0 ? FABRIC_MEMBER : FABRIC_NO_MEMBER;
}

/* A memory node that has joined and cannot be connected to looks like one that has left, and may have a
 * journal by then: without the list no checkpoint is begun. */
static void without_the_list_none_is_begun(void **state)
{
    static const struct fabric_cluster_ops cluster = {
        .membership = membership, .learn = learn, .refresh = refresh};
    const struct memory_options pool = {.pool_bytes = UINT64_C(8) << 20, .chunk_bytes = UINT64_C(1) << 20};
    const struct save_options options = {.wait_ns = 1};
    struct error error = {0};
    struct save_stats stats;
    struct memory_node *memory;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree_switches switches;
    (void)state;
    assert_int_equal(memory_node_create(&memory, &pool, &error), 0);
    const struct fabric_target *target = memory_node_target(memory);
    struct fabric *fabric = fabric_local_create(&target, 1, 1, &error);
    assert_non_null(fabric);
    const struct fabric_ops *real = fabric->ops;
    struct fabric_ops ops = *real;
    ops.cluster = &cluster;
    fabric->ops = &ops;
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 1u << 20;
    assert_int_equal(tree_compute_create(&compute, fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&worker, tree_compute_pool(compute), &error), 0);
    assert_int_equal(tree_session_create(&session, compute, worker, &error), 0);

    assert_int_equal(save_make(NULL, session, &options, &stats, &error), BANYAN_ENET);
    assert_int_equal(asked, 1);
    assert_non_null(strstr(error.text, "one of them could not be connected to"));
    answer = true; /* this one has no disk, which it says when it is asked to take part */
    assert_int_equal(save_make(NULL, session, &options, &stats, &error), BANYAN_ENOTSUP);
    assert_int_equal(asked, 2);

    tree_session_destroy(session);
    pool_worker_destroy(worker);
    tree_compute_destroy(compute);
    fabric->ops = real;
    fabric_close(fabric);
    memory_node_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_the_list_none_is_begun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
