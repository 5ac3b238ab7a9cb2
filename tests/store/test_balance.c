/*
 * test_balance.c - a memory node is emptied, and memory nodes are evened out, under two compute nodes' hands
 * (balance.h): everything is there afterwards, every block has one owner, and what cannot be done is said
 * before anything of it is.
 */
#include "rig.h"

#include <string.h>

#include "base/random.h"
#include "store/balance.h"
#include "store/session.h"

static struct rig rig;

static void open_rig(bool store, unsigned levels, uint64_t pool_bytes)
{
    struct rig_options options;
    rig_options_default(&options);
    rig_long_keyed(&options);
    options.nodes = 2;
    options.store = store;
    if (store) {
        store_geometry(&options.geometry);
        options.geometry.key_bytes = 60;
        options.geometry.leaf_bytes = 2048;
        options.geometry.internal_bytes = 1024;
    }
    options.geometry.subtree_levels = (uint8_t)levels;
    if (pool_bytes)
        options.pool_bytes = pool_bytes;
    rig_open(&rig, &options);
}

static struct store_balance balance_of(uint16_t drain)
{
    struct store_balance balance = {.session = rig.ours.session, .drain = drain};
    if (store_balance_look(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    return balance;
}

struct counted {
    uint64_t blocks[RIG_NODES], bytes[RIG_NODES];
};

static void count(void *context, gaddr block, uint32_t bytes)
{
    struct counted *counted = context;
    counted->blocks[gaddr_node(block)]++;
    counted->bytes[gaddr_node(block)] += bytes;
}

/* Nodes and key blocks of the index, by memory node. */
static void look(struct counted *counted, struct tree_check_report *report)
{
    memset(counted, 0, sizeof *counted);
    if (tree_check(rig.others.session, rig.others.tree, report, count, counted))
        fail_msg("%s", tree_session_error(rig.others.session)->text);
}

static void drain(uint16_t node)
{
    struct store_balance balance = balance_of(node);
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    for (unsigned i = TREE_MOVE_FIRST; i <= TREE_MOVE_LATER; i++)
        assert_int_equal(balance.left[i], 0);
    assert_int_equal(balance.planned, 0);
    assert_true(balance.nodes[node].draining);
}

static void a_memory_node_is_emptied(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        struct counted counted;
        struct tree_check_report report;
        struct memory_status_reply status;
        open_rig(kind & 1, kind & 2 ? 2 : 0, 0);
        rig_fill(&rig, 0, 600, 1);
        /* A root there too: all of it lies on memory node 1 before, or a half. */
        look(&counted, &report);
        assert_true(counted.blocks[0] + counted.blocks[1] > 20);
        const uint64_t entries = report.entries;
        drain(1);
        look(&counted, &report);
        assert_int_equal(counted.blocks[1], 0);
        assert_int_equal(report.entries, entries);
        assert_int_equal(report.subtree_links_away, 0);
        assert_int_equal(report.dead + report.marked + report.missing_parents, 0);
        assert_int_equal(rig_judge(&rig, TROUBLE_NONE), 0); /* no block is lost */
        /* Nothing new comes there, but for what compute nodes held back when it began. */
        pool_worker_return(rig.others.worker);
        rig_fill(&rig, 600, 900, 1);
        pool_worker_return(rig.ours.worker);
        pool_worker_return(rig.others.worker);
        look(&counted, &report);
        assert_int_equal(counted.blocks[1], 0);
        memory_node_status(rig.nodes[1], &status);
        assert_int_equal(status.blocks_used, 0); /* records neither, nor what workers held back */
        assert_int_equal(status.draining, 1);
        assert_int_equal(pool_node_drain(tree_session_pool(rig.others.session), 1, false), 0);
        memory_node_status(rig.nodes[1], &status);
        assert_int_equal(status.draining, 0);
        rig_close(&rig);
    }
}

static void memory_nodes_are_evened_out(void **state)
{
    (void)state;
    for (unsigned levels = 0; levels <= 1; levels++) {
        struct counted counted;
        struct tree_check_report before, after;
        open_rig(false, levels, 0);
        assert_int_equal(pool_node_drain(tree_session_pool(rig.others.session), 1, true), 0);
        assert_int_equal(pool_node_drain(tree_session_pool(rig.ours.session), 1, true), 0);
        rig_fill(&rig, 0, 4000, 1);
        assert_int_equal(pool_node_drain(tree_session_pool(rig.others.session), 1, false), 0);
        look(&counted, &before);
        assert_true(counted.bytes[0] > 4 * counted.bytes[1]);
        struct store_balance plan = balance_of(POOL_ANY_NODE), balance = plan;
        assert_int_equal(store_balance_plan(&plan), 0);
        assert_true(plan.planned > 10);
        assert_true(plan.nodes[0].node_bytes > plan.nodes[1].node_bytes);
        if (store_balance_run(&balance))
            fail_msg("%s", tree_session_error(rig.ours.session)->text);
        look(&counted, &after);
        assert_int_equal(after.entries, before.entries);
        assert_int_equal(after.height, before.height); /* a root stays for this */
        const uint64_t more = balance.nodes[0].bytes_used > balance.nodes[1].bytes_used;
        const uint64_t most = balance.nodes[more ? 0 : 1].bytes_used,
                       least = balance.nodes[more ? 1 : 0].bytes_used;
        assert_true((most - least) * 5 < most); /* within a tenth of the mean, to both sides */
        rig_judge(&rig, TROUBLE_NONE);
        rig_close(&rig);
    }
}

/* Which subtrees a walk has met. */
struct tops {
    uint32_t tags[4096], count;
    uint64_t nodes;
};

static uint16_t top_note(void *context, uint16_t node, uint32_t bytes, uint32_t top_tag)
{
    struct tops *tops = context;
    (void)node;
    (void)bytes;
    tops->nodes++;
    for (uint32_t i = 0; i < tops->count; i++)
        if (tops->tags[i] == top_tag)
            return POOL_ANY_NODE;
    tops->tags[tops->count++] = top_tag;
    return POOL_ANY_NODE;
}

/* A choice by the tag sends a subtree to one memory node: all of its nodes are asked for under one. */
static void a_walk_tells_which_nodes_belong_together(void **state)
{
    (void)state;
    for (unsigned levels = 0; levels <= 2; levels += 2) {
        static struct tops tops;
        struct tree_check_report report;
        struct counted counted;
        const struct tree_move_choice choice = {.where = top_note, .context = &tops};
        struct tree_move_walk walk = {0};
        struct tree_move_report moved = {0};
        open_rig(false, levels, 0);
        rig_fill(&rig, 0, 2000, 1);
        tops = (struct tops){.count = 0};
        while (!walk.ended)
            assert_int_equal(tree_move_step(rig.ours.session, rig.ours.tree, &walk, &choice, &moved), 0);
        look(&counted, &report);
        assert_int_equal(tops.nodes, report.leaves + report.internals);
        assert_int_equal(moved.nodes + 1, tops.nodes); /* the root is asked for too */
        /* Leaves under their parents' tags; where nothing is placed under their own. (Two memory nodes may
         * give the same tag.) */
        if (levels)
            assert_true(tops.count <= report.internals);
        else
            assert_true(tops.count > report.leaves / 2);
        rig_close(&rig);
    }
}

static void refused(uint16_t node, int wanted, const char *reason)
{
    struct store_balance balance = balance_of(node);
    assert_int_equal(store_balance_run(&balance), wanted);
    const char *text = tree_session_error(rig.ours.session)->text;
    if (!strstr(text, reason))
        fail_msg("'%s' does not say '%s'", text, reason);
    assert_int_equal(balance.moved.nodes, 0);
    struct memory_status_reply status;
    for (unsigned i = 0; i < RIG_NODES; i++) {
        memory_node_status(rig.nodes[i], &status);
        assert_int_equal(status.draining, 0);
    }
}

static void what_cannot_be_done_is_said_beforehand(void **state)
{
    (void)state;
    open_rig(true, 0, 1 << 20);
    refused(0, BANYAN_EINVAL, "home node");
    refused(2, BANYAN_EINVAL, "no memory node 2");
    /* As good as full. */
    struct store_balance balance = balance_of(1);
    gaddr block;
    while (
        !pool_block_allocate_beside(tree_session_pool(rig.others.session), gaddr_make(0, 64), 4096, &block))
        ;
    refused(1, BANYAN_ENOSPC, "too few");
    assert_int_equal(pool_node_drain(tree_session_pool(rig.others.session), 0, true), 0);
    balance = balance_of(1);
    assert_int_equal(store_balance_check(&balance), BANYAN_EINVAL);
    assert_non_null(strstr(tree_session_error(rig.ours.session)->text, "no other one"));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_node_is_emptied),
        cmocka_unit_test(memory_nodes_are_evened_out),
        cmocka_unit_test(a_walk_tells_which_nodes_belong_together),
        cmocka_unit_test(what_cannot_be_done_is_said_beforehand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
