/*
 * test_balance.c - a memory node is emptied, and memory nodes are evened out, under two compute nodes' hands
 * (balance.h): everything is there afterwards, every block has one owner, and what cannot be done is said
 * before anything of it is.
 */
#include "rig.h"

#include <limits.h>
#include <string.h>

#include "base/random.h"
#include "memory/heat.h"
#include "store/balance.h"
#include "store/defrag.h"
#include "store/session.h"
#include "tree/rights.h"

#define BALLAST_BYTES 4096u

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
        assert_int_equal(after.height, before.height);
        const uint64_t more = balance.nodes[0].bytes_used > balance.nodes[1].bytes_used;
        const uint64_t most = balance.nodes[more ? 0 : 1].bytes_used,
                       least = balance.nodes[more ? 1 : 0].bytes_used;
        assert_true((most - least) * 5 < most); /* within a tenth of the mean, to both sides */
        rig_judge(&rig, TROUBLE_NONE);
        rig_close(&rig);
    }
}

static uint64_t used(unsigned node)
{
    struct memory_status_reply status;
    memory_node_status(rig.nodes[node], &status);
    return status.bytes_used;
}

#define ROWS_MAX 512u

/* Every second leaf is the first of a row of its own, and stays where it is. */
static void half_stays(void)
{
    static struct tree_place_bound bounds[ROWS_MAX];
    static struct tree_rights_row rows[ROWS_MAX];
    static const uint8_t least[1];
    struct tree_session *session = rig.ours.session;
    struct tree_place place;
    uint32_t count = 1, leaves = 1;
    rows[0] = (struct tree_rights_row){.lower = least, .right = TREE_SHARED, .epoch = 1};
    struct tree_place_bound at = {.length = rig_key(&rig, 0, at.bytes)};
    for (;; leaves++) {
        struct tree_place_bound next;
        const int status = tree_place_after(session, rig.ours.tree, at.bytes, at.length, &place, &next);
        if (status == BANYAN_ENOTFOUND)
            break;
        assert_int_equal(status, 0);
        at = next;
        if (leaves % 2)
            continue;
        assert_true(count < ROWS_MAX);
        bounds[count] = at;
        rows[count] = rows[0];
        rows[count].lower = bounds[count].bytes;
        rows[count].lower_length = (uint32_t)at.length;
        count++;
    }
    assert_true(count > 20);
    assert_int_equal(tree_rights_adopt(session, rig.ours.tree, 1, 1, rows, count), 0);
}

/* What was chosen and cannot move is made up for by what another pass chooses. */
static void what_stays_is_made_up_for(void **state)
{
    (void)state;
    struct rig_options options;
    rig_options_default(&options); /* without long keys: nodes alone have bytes */
    options.nodes = 2;
    rig_open(&rig, &options);
    memory_node_drain(rig.nodes[1], true);
    rig_fill(&rig, 0, 4000, 1);
    memory_node_drain(rig.nodes[1], false);
    half_stays();
    struct store_balance balance = balance_of(POOL_ANY_NODE);
    balance.tree = rig.ours.tree;
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    assert_true(balance.moved.outcomes[TREE_MOVE_FIRST] > 0);
    const uint64_t most = used(0) > used(1) ? used(0) : used(1), least = used(0) + used(1) - most;
    assert_true((most - least) * 5 < most); /* within a tenth of the mean, to both sides */
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* Three of four memory nodes have a little more than the mean, and the fourth lacks as much as all of that.
 */
static void one_that_lacks_is_filled(void **state)
{
    (void)state;
    enum { NODES = 4, MOST = 640, BYTES = 1024 };
    static const uint64_t wanted[NODES] = {627000, 600000, 600000, 564000};
    unsigned counts[NODES];
    struct rig_options options;
    gaddr blocks[NODES][MOST];
    uint64_t sum = 0;
    rig_options_default(&options);
    options.nodes = NODES;
    rig_open(&rig, &options);
    rig_fill(&rig, 0, 4000, 1);
    struct pool_session *pool = tree_session_pool(rig.others.session);
    pool_worker_return(rig.ours.worker);
    pool_worker_return(rig.others.worker);
    struct store_balance balance = balance_of(POOL_ANY_NODE);
    for (uint16_t i = 0; i < NODES; i++) {
        counts[i] = (unsigned)((wanted[i] - balance.nodes[i].bytes_used) / BYTES);
        assert_in_range(counts[i], 1, MOST);
        for (unsigned j = 0; j < counts[i]; j++)
            assert_int_equal(pool_block_allocate_beside(pool, gaddr_make(i, 64), BYTES, &blocks[i][j]), 0);
    }
    pool_worker_return(rig.others.worker);
    balance = balance_of(POOL_ANY_NODE);
    for (uint16_t i = 0; i < NODES; i++)
        sum += balance.nodes[i].bytes_used;
    for (uint16_t i = 0; i < NODES; i++)
        assert_true(balance.nodes[i].bytes_used * 20 * NODES <= sum * 21);
    assert_true(balance.nodes[NODES - 1].bytes_used * 20 * NODES < sum * 19);
    assert_int_equal(store_balance_run(&balance), 0);
    assert_true(balance.moved.outcomes[TREE_MOVE_DONE] > 0);
    sum = 0; /* without what this process held back */
    for (uint16_t i = 0; i < NODES; i++)
        sum += balance.nodes[i].bytes_used;
    assert_true(balance.nodes[NODES - 1].bytes_used * 20 * NODES >= sum * 19);
    for (uint16_t i = 0; i < NODES; i++)
        for (unsigned j = 0; j < counts[i]; j++)
            pool_block_release(pool, blocks[i][j], BYTES);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* Most bytes are records', which no move of nodes would even out. */
static void records_are_evened_out(void **state)
{
    (void)state;
    open_rig(true, 0, 0);
    memory_node_drain(rig.nodes[1], true);
    rig_fill(&rig, 0, 600, 1);
    memory_node_drain(rig.nodes[1], false);
    pool_worker_return(rig.others.worker);
    assert_true(used(0) > 8 * used(1));
    struct store_balance plan = balance_of(POOL_ANY_NODE), balance = plan;
    assert_int_equal(store_balance_plan(&plan), 0);
    assert_true(plan.planned_data_bytes > plan.planned_bytes);
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    pool_worker_return(rig.others.worker);
    const uint64_t most = used(0) > used(1) ? used(0) : used(1), least = used(0) + used(1) - most;
    assert_true((most - least) * 5 < most); /* within a tenth of the mean, to both sides */
    assert_true(balance.data_blocks > 20);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* Of an index of one leaf too, which has no node above it that a walk would come by. */
static void the_long_keys_of_one_leaf_leave(void **state)
{
    (void)state;
    struct counted counted;
    struct tree_check_report report;
    open_rig(false, 0, 0);
    memory_node_drain(rig.nodes[0], true);
    rig_fill(&rig, 0, 12, 1);
    memory_node_drain(rig.nodes[0], false);
    look(&counted, &report);
    assert_int_equal(report.height, 1);
    assert_true(counted.blocks[1] > 1); /* keys, and the leaf or not */
    drain(1);
    look(&counted, &report);
    assert_int_equal(counted.blocks[1], 0);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/*
 * Where nothing keeps new blocks from the memory node (others have ended its emptying) a leaf's long keys get
 * theirs beside the leaf, on the same one. More of them than are moved in one turn come to an end all the
 * same.
 */
static void long_keys_that_come_back_are_left(void **state)
{
    (void)state;
    struct rig_options options;
    struct counted counted;
    struct tree_check_report report;
    struct tree_move move = {.to = POOL_ANY_NODE};
    rig_options_default(&options);
    rig_long_keyed(&options);
    options.geometry.leaf_bytes = 4096;
    rig_open(&rig, &options);
    look(&counted, &report);
    move.from = counted.blocks[1] ? 1 : 0; /* the leaf's */
    memory_node_drain(rig.nodes[1 - move.from], true);
    rig_fill(&rig, 0, 60, 3); /* every third key is long */
    memory_node_drain(rig.nodes[1 - move.from], false);
    look(&counted, &report);
    assert_int_equal(report.leaves, 1);
    assert_int_equal(counted.blocks[move.from], 21);
    rig_trouble(&rig, TROUBLE_DEATH, 10000); /* rather than no end */
    assert_int_equal(tree_move_node(rig.ours.session, rig.ours.tree, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_LATER);
    assert_false(rig_mend(&rig));
    look(&counted, &report);
    assert_true(counted.blocks[move.from] > 17); /* they were there again after each turn */
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* ---- load ---- */

/* Addresses that the commands of a load work on. They are noted when a memory node answers, as if they had
 * been carried out since it answered before. */
struct load {
    gaddr places[64];
    uint32_t count, most;
    uint32_t times;             /* each, for each answer */
    uint32_t answers, from, to; /* so far; for those answers alone */
};

static void place_take(void *context, gaddr block, uint32_t bytes)
{
    struct load *load = context;
    if (!gaddr_node(block) && bytes >= 512 && load->count < load->most)
        load->places[load->count++] = block + 72; /* somewhere within */
}

static void load_goes_on(void *context, void *reply, size_t *length)
{
    struct load *load = context;
    (void)reply;
    (void)length;
    if (load->answers++ < load->from || load->answers > load->to)
        return;
    for (uint32_t i = 0; i < load->count * load->times; i++)
        memory_heat_note(rig.nodes[0], load->places[i % load->count]);
    memory_heat_note(rig.nodes[0], gaddr_make(0, GADDR_LOCK_REGION | 64)); /* a lock is no node's */
}

#define BALLAST_MOST 160u

/* Blocks on each memory node, beside which some nodes weigh little. */
static void ballast(gaddr *blocks, unsigned count, bool take)
{
    struct pool_session *pool = tree_session_pool(rig.others.session);
    for (unsigned i = 0; i < count; i++)
        if (!take)
            pool_block_release(pool, blocks[i], BALLAST_BYTES);
        else
            assert_int_equal(pool_block_allocate_beside(pool, gaddr_make((uint16_t)(i % 2), 64),
                                                        BALLAST_BYTES, &blocks[i]),
                             0);
}

/* How many nodes move for that load on `most` nodes of memory node 0. */
static uint64_t moved_for(struct load load, unsigned ballasts)
{
    struct tree_check_report before, after;
    gaddr blocks[BALLAST_MOST];
    open_rig(false, 0, 0);
    rig_fill(&rig, 0, 4000, 1);
    ballast(blocks, ballasts, true);
    struct store_balance balance = balance_of(POOL_ANY_NODE);
    assert_int_equal(store_balance_run(&balance), 0); /* bytes are even */
    assert_int_equal(balance.load_moved, 0);
    assert_int_equal(tree_check(rig.others.session, rig.others.tree, &before, place_take, &load), 0);
    assert_int_equal(load.count, load.most);
    struct load again = load;
    balance = balance_of(POOL_ANY_NODE);
    balance.measure_ns = 8000;
    struct store_balance plan = balance;
    rig_replies(&rig, load_goes_on, &load);
    assert_int_equal(store_balance_plan(&plan), 0);
    rig_replies(&rig, load_goes_on, &again);
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    rig_replies(&rig, NULL, NULL);
    assert_int_equal(balance.load_moved, plan.load_planned);
    /* It is at rest: another run without that load finds bytes that are even. */
    struct store_balance rest = balance_of(POOL_ANY_NODE);
    assert_int_equal(store_balance_run(&rest), 0);
    assert_int_equal(rest.moved.outcomes[TREE_MOVE_DONE], 0);
    ballast(blocks, ballasts, false);
    assert_int_equal(tree_check(rig.others.session, rig.others.tree, &after, NULL, NULL), 0);
    assert_int_equal(after.entries, before.entries);
    assert_int_equal(after.subtree_links_away, 0);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
    return balance.load_moved;
}

static void hot_nodes_move_to_idle_memory_nodes(void **state)
{
    (void)state;
    /* It ends within the first measurement: its addresses do not move along with the nodes. */
    const struct load eight = {.most = 8, .times = 20, .to = 12};
    const struct load one = {.most = 1, .times = 100, .to = 12};
    /* Half of those that are equally hot: more would only change which memory node has too much. */
    assert_int_equal(moved_for(eight, BALLAST_MOST), 4);
    /* One alone would be as hot elsewhere. */
    assert_int_equal(moved_for(one, BALLAST_MOST), 0);
    /* No more than leaves bytes even. */
    assert_in_range(moved_for(eight, 0), 1, 3);
}

/* As many commands as are worth a look, but each node is met so seldom that it may be by chance. */
static void nodes_that_chance_has_met_stay(void **state)
{
    (void)state;
    /* Behind the answers to two STATUS and two HEAT, with which a measurement begins. */
    const struct load thrice = {.most = 30, .times = 1, .from = 4, .to = 7};
    const struct load more = {.most = 30, .times = 1, .from = 4, .to = 8};
    assert_int_equal(moved_for(thrice, BALLAST_MOST), 0);
    /* Of 124 commands, four of them on locks, no more leave than bring the rest within a tenth of half. */
    assert_int_equal(moved_for(more, BALLAST_MOST), 14);
}

/* What a memory node says of samples that it had told before. */
static void old_samples(void *context, void *reply, size_t *length)
{
    struct memory_heat_reply *heat = reply;
    (void)context;
    if (*length >= offsetof(struct memory_heat_reply, places) && heat->every == MEMORY_HEAT_EVERY &&
        heat->first) {
        heat->noted += 2;
        heat->first--;
    }
}

static void samples_of_before_are_refused(void **state)
{
    (void)state;
    open_rig(false, 0, 0);
    struct store_balance balance = balance_of(POOL_ANY_NODE);
    balance.measure_ns = 8000;
    for (unsigned i = 0; i < 100; i++)
        memory_heat_note(rig.nodes[0], gaddr_make(0, 4096));
    rig_replies(&rig, old_samples, NULL);
    assert_int_equal(store_balance_plan(&balance), BANYAN_ENET);
    rig_replies(&rig, NULL, NULL);
    rig_close(&rig);
}

/* Which subtrees a walk has met. */
struct tops {
    uint32_t tags[4096], count;
    uint64_t nodes;
};

static uint16_t top_note(void *context, gaddr node, uint32_t bytes, uint32_t top_tag)
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
        assert_int_equal(moved.nodes, tops.nodes); /* the root is asked for too */
        /* Leaves under their parents' tags; where nothing is placed under their own. (Two memory nodes may
         * give the same tag.) */
        if (levels)
            assert_true(tops.count <= report.internals);
        else
            assert_true(tops.count > report.leaves / 2);
        rig_close(&rig);
    }
}

static void drain_ends(void *context, const struct store_balance *balance)
{
    (void)context;
    memory_node_drain(rig.nodes[balance->drain], false);
}

/* Others end the emptying as it begins, so that the memory node hands out memory: what leaves it does so all
 * the same, its root too, and the tree is as high as it was. */
static void a_root_leaves_a_memory_node_that_takes_new_nodes(void **state)
{
    (void)state;
    for (unsigned keys = 12; keys <= 600; keys += 588) {
        struct counted counted;
        struct tree_check_report before, after;
        open_rig(false, 0, 0);
        memory_node_drain(rig.nodes[0], true);
        rig_fill(&rig, 0, keys, 1);
        memory_node_drain(rig.nodes[0], false);
        look(&counted, &before);
        for (unsigned i = 0; i < 3; i++) {
            struct store_balance balance = balance_of(1);
            balance.progress = drain_ends;
            if (store_balance_run(&balance))
                fail_msg("%s", tree_session_error(rig.ours.session)->text);
            look(&counted, &after);
            assert_int_equal(counted.blocks[1], 0);
            assert_int_equal(after.height, before.height);
        }
        rig_judge(&rig, TROUBLE_NONE);
        rig_close(&rig);
    }
}

/* ---- passes ---- */

/* The only leaf does. */
static void lie_on(uint16_t node)
{
    struct tree_move move = {.from = POOL_ANY_NODE, .to = node};
    assert_int_equal(tree_move_node(rig.others.session, rig.others.tree, &move), 0);
    assert_true(move.outcome == TREE_MOVE_DONE || move.outcome == TREE_MOVE_THERE);
}

/* All keys of the index are of that right, to us. */
static void everything(enum tree_right right, uint64_t version)
{
    static const uint8_t least[1];
    struct tree_rights_row row = {.lower = least, .right = right, .epoch = version};
    if (right == TREE_OTHERS)
        row.owner = (struct fabric_process){.compute_id = 9, .instance = 1};
    assert_int_equal(tree_rights_adopt(rig.ours.session, rig.ours.tree, version, 1, &row, 1), 0);
}

/* What keeps things where they are goes as soon as it has kept one. */
static void let_go(void *context, const struct store_balance *balance)
{
    (void)context;
    const bool kept = balance->left[TREE_MOVE_LATER] || balance->keys_left || balance->data_left;
    if (kept && tree_rights_version(rig.ours.tree) == 1)
        everything(TREE_SHARED, 2);
}

/* An owner that answers some calls alone. */
struct taciturn {
    int status;       /* of the others */
    unsigned answers; /* one of so many; 0: none */
    unsigned calls;
};

static int answer_some(void *context, struct tree_session *session, struct tree *tree,
                       struct fabric_process owner, struct tree_exchange *exchange)
{
    struct taciturn *taciturn = context;
    (void)tree;
    (void)owner;
    if (!taciturn->answers || ++taciturn->calls % taciturn->answers)
        return pool_fail(tree_session_pool(session), taciturn->status, "nobody answers");
    assert_int_equal(exchange->expect, TREE_EXPECT_VALUE);
    exchange->replaced = true;
    return tree_compare_and_set(rig.others.session, rig.others.tree, exchange->key, exchange->key_length,
                                exchange->expected, exchange->expected_length, exchange->value,
                                exchange->length);
}

/* Memory node 1 is emptied, of an index of the keys from `first` on, while all of it is of that right to
 * begin with, and an owner does not answer, or with that status. */
static void drain_held_up(bool store, enum tree_right right, bool leaf_there, unsigned first, int answer)
{
    const struct tree_forward forward = {.exchange = answer_some};
    struct taciturn taciturn = {.status = answer};
    open_rig(store, 0, 0);
    tree_compute_set_forward(rig.ours.compute, &forward, &taciturn);
    lie_on(leaf_there);
    memory_node_drain(rig.nodes[0], true);
    rig_fill(&rig, first, 3, 1); /* the first is long */
    memory_node_drain(rig.nodes[0], false);
    pool_worker_return(rig.others.worker);
    assert_true(used(1) > 0);
    everything(right, 1);
    struct store_balance balance = balance_of(1);
    balance.tree = rig.ours.tree;
    balance.store = rig.ours.store;
    balance.progress = let_go;
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    assert_int_equal(tree_rights_version(rig.ours.tree), 2); /* something was held up */
    assert_int_equal(balance.left[TREE_MOVE_LATER] + balance.keys_left + balance.data_left, 0);
    assert_true(balance.passes > 1);
    assert_int_equal(used(1), 0);
    assert_int_equal(balance.data_unknown > 0, answer == BANYAN_EUNKNOWN);
    assert_int_equal(rig_judge(&rig, TROUBLE_NONE) > 0, balance.data_unknown > 0);
    rig_close(&rig);
}

static void what_was_held_up_goes_in_another_pass(void **state)
{
    (void)state;
    drain_held_up(false, TREE_MOVING, true, 1, 0);               /* a leaf */
    drain_held_up(false, TREE_MOVING, false, 0, 0);              /* a long key */
    drain_held_up(true, TREE_OTHERS, false, 1, BANYAN_EUNKNOWN); /* records */
    drain_held_up(true, TREE_OTHERS, false, 1, BANYAN_ENET);
    drain_held_up(true, TREE_OTHERS, false, 1, BANYAN_ETIMEOUT);
}

/* The records of an index of one leaf, which lies elsewhere, are to leave memory node 1, or half of them, and
 * are another's. */
static struct store_balance records_move(struct taciturn *taciturn, uint16_t drain)
{
    const struct tree_forward forward = {.exchange = answer_some};
    struct tree_check_report report;
    open_rig(true, 0, 0);
    tree_compute_set_forward(rig.ours.compute, &forward, taciturn);
    lie_on(0);
    memory_node_drain(rig.nodes[0], true);
    rig_fill(&rig, 2, 74, 3); /* of records alone; some of the keys are long */
    memory_node_drain(rig.nodes[0], false);
    pool_worker_return(rig.others.worker);
    everything(TREE_OTHERS, 1);
    struct store_balance balance = balance_of(drain);
    balance.tree = rig.ours.tree;
    balance.store = rig.ours.store;
    balance.measure_ns = 8000;
    struct load load = {.most = 1, .times = 64, .to = UINT_MAX}; /* of the leaf, which does not move for it */
    assert_int_equal(tree_check(rig.others.session, rig.others.tree, &report, place_take, &load), 0);
    rig_replies(&rig, load_goes_on, &load);
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    rig_replies(&rig, NULL, NULL);
    return balance;
}

/* It ends, and tells what stays and why; the same again goes on. */
static void asked_a_few_times(uint16_t drain_or_any)
{
    struct taciturn taciturn = {.status = BANYAN_ENET, .answers = UINT_MAX};
    struct store_balance balance = records_move(&taciturn, drain_or_any);
    assert_int_equal(taciturn.calls, STORE_DEFRAG_UNANSWERED_MAX); /* no other pass comes for it alone */
    assert_int_equal(balance.passes, 1);
    assert_int_equal(balance.data_blocks, 0);
    assert_int_equal(balance.data_left, STORE_DEFRAG_UNANSWERED_MAX);
    assert_int_equal(balance.data_cut, 1);
    assert_string_equal(balance.data_error.text, "nobody answers");
    assert_true(used(1) > 0);
    everything(TREE_SHARED, 2);
    drain(1);
    assert_int_equal(used(1), 0);
    assert_int_equal(rig_judge(&rig, TROUBLE_NONE), 0);
    rig_close(&rig);
}

static void an_owner_that_never_answers_is_asked_a_few_times(void **state)
{
    (void)state;
    asked_a_few_times(1);
    asked_a_few_times(POOL_ANY_NODE);
}

/* One that answers now and then is asked on, until nothing is left. */
static void an_owner_that_answers_at_times_is_asked_on(void **state)
{
    (void)state;
    struct taciturn taciturn = {.status = BANYAN_ETIMEOUT, .answers = 2};
    struct store_balance balance = records_move(&taciturn, 1);
    assert_true(taciturn.calls > 2 * STORE_DEFRAG_UNANSWERED_MAX);
    assert_int_equal(balance.data_left + balance.data_cut, 0);
    assert_string_equal(balance.data_error.text, "nobody answers");
    assert_int_equal(used(1), 0);
    everything(TREE_SHARED, 2);
    assert_int_equal(rig_judge(&rig, TROUBLE_NONE), 0);
    rig_close(&rig);
}

/* All the room of memory node 0 is taken while it is planned, and free again when something was refused. */
struct taker {
    gaddr blocks[8192];
    unsigned count;
    bool done;
};

static void take_room(void *context, const struct store_balance *balance)
{
    struct taker *taker = context;
    struct pool_session *pool = tree_session_pool(rig.others.session);
    if (!taker->done && !taker->count)
        while (taker->count < 8192 && !pool_allocate_beside(pool, 0, 512, &taker->blocks[taker->count]) &&
               gaddr_node(taker->blocks[taker->count]) == 0)
            taker->count++;
    if (balance->left[TREE_MOVE_FULL] || balance->keys_left || balance->data_full) {
        taker->done = true;
        while (taker->count)
            pool_release(pool, taker->blocks[--taker->count], 512);
        pool_worker_return(rig.others.worker);
    }
}

/* A leaf, or a long key whose leaf lies elsewhere. */
static void drain_without_room(bool leaf_there)
{
    struct taker taker = {0};
    struct counted counted;
    struct tree_check_report report;
    open_rig(false, 0, 1 << 20);
    lie_on(leaf_there);
    memory_node_drain(rig.nodes[0], true);
    rig_fill(&rig, leaf_there, 3, 1); /* the first is long */
    memory_node_drain(rig.nodes[0], false);
    pool_worker_return(rig.others.worker);
    look(&counted, &report);
    assert_int_equal(counted.blocks[1], 1);
    struct store_balance balance = balance_of(1);
    balance.progress = take_room;
    balance.context = &taker;
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    assert_true(taker.done); /* it was refused */
    assert_int_equal(balance.left[TREE_MOVE_FULL] + balance.keys_left, 0);
    look(&counted, &report);
    assert_int_equal(counted.blocks[1], 0);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* A record that is longer than whatever is left elsewhere. */
static void drain_record_without_room(void)
{
    struct taker taker = {0};
    open_rig(true, 0, 1 << 20);
    lie_on(0);
    memory_node_drain(rig.nodes[0], true);
    rig_fill(&rig, 11, 12, 1);
    memory_node_drain(rig.nodes[0], false);
    pool_worker_return(rig.others.worker);
    assert_true(used(1) > 60000);
    struct store_balance balance = balance_of(1);
    balance.progress = take_room;
    balance.context = &taker;
    if (store_balance_run(&balance))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
    assert_true(taker.done);
    assert_int_equal(balance.data_full, 0);
    assert_int_equal(used(1), 0);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

static void what_found_no_room_goes_in_another_pass(void **state)
{
    (void)state;
    drain_without_room(true);
    drain_without_room(false);
    drain_record_without_room();
}

/* Not one more than it takes to see that. */
static void a_pass_that_finds_nothing_is_the_last(void **state)
{
    (void)state;
    open_rig(true, 0, 0);
    rig_fill(&rig, 0, 600, 1);
    struct store_balance first = balance_of(1), second;
    assert_int_equal(store_balance_run(&first), 0);
    assert_in_range(first.passes, 2, 3);
    second = balance_of(1);
    assert_int_equal(store_balance_run(&second), 0);
    assert_int_equal(second.passes, 1);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
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

/* How many memory nodes our compute node knows. */
static uint16_t *nodes_known(void)
{
    return (uint16_t *)&tree_session_pool(rig.ours.session)->fabric->capabilities.memory_nodes;
}

static void one_joins(void *context, void *reply, size_t *length)
{
    uint32_t *answers = context;
    (void)reply;
    (void)length;
    if (++*answers == 3)
        __atomic_store_n(nodes_known(), 2, __ATOMIC_RELEASE);
}

/* What its commands were before is not known. */
static void one_that_joins_meanwhile_was_not_measured(void **state)
{
    uint32_t answers = 0;
    (void)state;
    open_rig(false, 0, 0);
    *nodes_known() = 1;
    struct store_balance balance = balance_of(POOL_ANY_NODE);
    assert_int_equal(balance.count, 1);
    balance.measure_ns = 8000;
    rig_replies(&rig, one_joins, &answers);
    assert_int_equal(store_balance_plan(&balance), 0);
    rig_replies(&rig, NULL, NULL);
    assert_int_equal(balance.count, 2);
    assert_true(balance.nodes[1].member);
    assert_true(balance.nodes[0].commands_per_second >= 0);
    assert_true(balance.nodes[1].commands_per_second < 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_node_is_emptied),
        cmocka_unit_test(memory_nodes_are_evened_out),
        cmocka_unit_test(what_stays_is_made_up_for),
        cmocka_unit_test(one_that_lacks_is_filled),
        cmocka_unit_test(records_are_evened_out),
        cmocka_unit_test(the_long_keys_of_one_leaf_leave),
        cmocka_unit_test(long_keys_that_come_back_are_left),
        cmocka_unit_test(hot_nodes_move_to_idle_memory_nodes),
        cmocka_unit_test(nodes_that_chance_has_met_stay),
        cmocka_unit_test(one_that_joins_meanwhile_was_not_measured),
        cmocka_unit_test(samples_of_before_are_refused),
        cmocka_unit_test(a_walk_tells_which_nodes_belong_together),
        cmocka_unit_test(a_root_leaves_a_memory_node_that_takes_new_nodes),
        cmocka_unit_test(what_was_held_up_goes_in_another_pass),
        cmocka_unit_test(an_owner_that_never_answers_is_asked_a_few_times),
        cmocka_unit_test(an_owner_that_answers_at_times_is_asked_on),
        cmocka_unit_test(what_found_no_room_goes_in_another_pass),
        cmocka_unit_test(a_pass_that_finds_nothing_is_the_last),
        cmocka_unit_test(what_cannot_be_done_is_said_beforehand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
