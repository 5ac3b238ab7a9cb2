/*
 * test_move_steps.c - what must hold beside single steps of moves (R8), where a memory node is emptied: the
 * block of a leaf that has left is not used again beside one that has to stay; turns of moves of a leaf's
 * long keys come to an end; a batch that holds the lock of an old leaf when the memory node is removed (R6).
 * One task (stepper.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include "side.h"
#include "stepper.h"
#include "tree/move_keys.h"
#include "tree/rights.h"

#define SIDES     2u
#define NODES     2u
#define VALUE     8u
#define KEY_BYTES 60u
#define BORDER    100u /* where a range begins */
#define KEYS      200u
#define LISTS_MAX 400u /* of a move that ends; it needs about a hundred */

enum { MOVER, OTHER }; /* the other one's are the eyes */

static const struct format_geometry plain = {
    .key_bytes = 8, .value_bytes = VALUE, .leaf_bytes = 512, .internal_bytes = 1024};
static const struct format_geometry long_keys = {.key_kind = FORMAT_KEY_VARIABLE,
                                                 .key_bytes = KEY_BYTES,
                                                 .inline_key_bytes = 16,
                                                 .value_bytes = VALUE,
                                                 .leaf_bytes = 4096,
                                                 .internal_bytes = 1024};

struct rig {
    struct memory_node *memories[NODES];
    struct side sides[SIDES];
    size_t key_length;
    unsigned locks,
        lists; /* lists of the mover's that take a lock; that it posts behind what was to be met */
    bool met;
};

/* ---- the rig ---- */

static size_t key_make(const struct rig *rig, unsigned number, uint8_t key[KEY_BYTES])
{
    memset(key, 'k', rig->key_length);
    for (unsigned i = 0; i < 4; i++)
        key[i] = (uint8_t)(number >> (24 - 8 * i));
    return rig->key_length;
}

static void put(struct rig *rig, unsigned side, unsigned number, uint8_t first)
{
    uint8_t key[KEY_BYTES], value[VALUE] = {first};
    const struct side *of = &rig->sides[side];
    const size_t length = key_make(rig, number, key);
    if (tree_upsert(of->session, of->tree, key, length, value, sizeof value))
        fail_msg("%s", tree_session_error(of->session)->text);
}

/* The value's first byte; 0: there is none. */
static int get(struct rig *rig, unsigned side, unsigned number)
{
    uint8_t key[KEY_BYTES], value[VALUE];
    const struct side *of = &rig->sides[side];
    size_t length = sizeof value, key_length = key_make(rig, number, key);
    const int status = tree_lookup(of->session, of->tree, key, key_length, value, &length);
    if (status && status != BANYAN_ENOTFOUND)
        fail_msg("%s", tree_session_error(of->session)->text);
    return status ? 0 : value[0];
}

/* `keys` keys of value 1, all of it on memory node 0. */
static void rig_open(struct rig *rig, const struct format_geometry *geometry, size_t key_length,
                     unsigned keys)
{
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    rig->key_length = key_length;
    for (uint16_t i = 0; i < NODES; i++) {
        struct memory_options options = {.node = i, .pool_bytes = 64 << 20, .lock_bytes = 4096};
        assert_int_equal(memory_node_create(&rig->memories[i], &options, &error), 0);
    }
    for (unsigned i = 0; i < SIDES; i++)
        side_open_over(&rig->sides[i], rig->memories, NODES, (uint16_t)(i + 1), TREE_READ_BUCKET);
    memory_node_drain(rig->memories[1], true);
    assert_int_equal(tree_format(rig->sides[MOVER].session), 0);
    assert_int_equal(tree_create(rig->sides[MOVER].session, "move", geometry, &rig->sides[MOVER].tree), 0);
    assert_int_equal(tree_open(rig->sides[OTHER].session, "move", &rig->sides[OTHER].tree), 0);
    for (unsigned i = 0; i < keys; i++)
        put(rig, MOVER, i, 1);
    memory_node_drain(rig->memories[1], false);
}

/* Each block has one owner. */
static void rig_close(struct rig *rig, uint64_t entries)
{
    struct tree_check_report report;
    assert_int_equal(side_lost(rig->sides, SIDES, rig->memories, NODES, rig->sides[OTHER].tree, &report), 0);
    assert_int_equal(report.entries, entries);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(rig->memories[i]);
}

/* The leaf of the key. */
static enum tree_move_outcome leaf_move(struct rig *rig, unsigned number, uint16_t from, uint16_t to)
{
    uint8_t key[KEY_BYTES];
    const struct side *mover = &rig->sides[MOVER];
    struct tree_move move = {.from = from, .to = to, .key = key};
    move.key_length = (uint32_t)key_make(rig, number, key);
    if (tree_move_node(mover->session, mover->tree, &move))
        fail_msg("%s", tree_session_error(mover->session)->text);
    return move.outcome;
}

struct counted {
    uint32_t bytes;
    unsigned blocks[NODES];
};

/* Blocks of one size. */
static void count(void *context, gaddr block, uint32_t bytes)
{
    struct counted *counted = context;
    counted->blocks[gaddr_node(block)] += bytes == counted->bytes;
}

static void leaves_count(const struct rig *rig, struct counted *counted)
{
    struct tree_check_report report;
    const struct side *eyes = &rig->sides[OTHER];
    *counted = (struct counted){.bytes = tree_geometry(eyes->tree)->leaf_bytes};
    assert_int_equal(tree_check(eyes->session, eyes->tree, &report, count, counted), 0);
}

/* ---- the block of a leaf that has left ---- */

/* Two ranges of the mover's, or shared ones. */
static void adopt(struct rig *rig, uint64_t version, enum tree_right right)
{
    uint8_t key[KEY_BYTES];
    const uint32_t length = (uint32_t)key_make(rig, BORDER, key);
    const struct tree_rights_row rows[2] = {
        {.lower = key, .right = right, .epoch = version},
        {.lower = key, .lower_length = length, .right = right, .epoch = version}};
    const struct side *mover = &rig->sides[MOVER];
    assert_int_equal(tree_rights_adopt(mover->session, mover->tree, version, 1, rows, 2), 0);
}

/* Leaves of that size that the mover holds back there, of nobody. */
static unsigned held_back(const struct rig *rig, uint16_t node)
{
    struct counted held = {.bytes = plain.leaf_bytes};
    pool_worker_each_free(rig->sides[MOVER].worker, count, &held);
    return held.blocks[node];
}

/*
 * The owner of a range moves its leaves away from a memory node that others are emptying. The first one has
 * to stay, and is split next, so that the border can move on: not into the block of the leaf before it, which
 * has just left (R8).
 */
static void what_is_split_off_a_first_leaf_does_not_lie_where_nothing_is_to_stay(void **state)
{
    struct rig rig;
    struct counted before, after;
    uint8_t key[KEY_BYTES];
    (void)state;
    rig_open(&rig, &plain, 8, KEYS);
    const struct side *mover = &rig.sides[MOVER];
    adopt(&rig, 1, TREE_SHARED);
    memory_node_drain(rig.memories[1], true);
    assert_int_equal(tree_border_make(mover->session, mover->tree, key, key_make(&rig, BORDER, key)), 0);
    memory_node_drain(rig.memories[1], false);
    adopt(&rig, 2, TREE_OWNED);
    pool_worker_return(mover->worker); /* and may keep some again */
    memory_node_drain(rig.memories[0], true);

    assert_int_equal(leaf_move(&rig, BORDER - 1, 0, 1), TREE_MOVE_DONE);
    assert_int_equal(held_back(&rig, 0), 1);
    assert_int_equal(leaf_move(&rig, BORDER, 0, 1), TREE_MOVE_FIRST);
    assert_int_equal(held_back(&rig, 0), 0);

    leaves_count(&rig, &before);
    for (unsigned i = 0; i < 40; i++) { /* between the keys, until their leaves split */
        uint8_t value[VALUE] = {1};
        key_make(&rig, BORDER + i / 4, key);
        key[4] = (uint8_t)('l' + i % 4);
        assert_int_equal(tree_upsert(mover->session, mover->tree, key, 8, value, VALUE), 0);
    }
    leaves_count(&rig, &after);
    assert_true(after.blocks[1] > before.blocks[1]);
    assert_int_equal(after.blocks[0], before.blocks[0]);
    memory_node_drain(rig.memories[0], false);
    rig_close(&rig, KEYS + 40);
}

/* ---- turns of long keys ---- */

#define LONG_KEYS (TREE_MOVE_KEYS_MAX + 4u) /* of one leaf: more than a turn moves */

/* Each list behind what was met. */
static bool ends(const struct fabric_list *list, void *context)
{
    struct rig *rig = context;
    (void)list;
    if (++rig->lists > LISTS_MAX)
        fail_msg("the move of a leaf's long keys does not end");
    return false;
}

/* Clients delete what has not moved yet, and more. */
static void the_rest_goes(void *context)
{
    struct rig *rig = context;
    uint8_t key[KEY_BYTES];
    const struct side *other = &rig->sides[OTHER];
    for (unsigned i = 0; i < LONG_KEYS; i++) {
        const size_t length = key_make(rig, i, key);
        if (tree_delete(other->session, other->tree, key, length))
            fail_msg("%s", tree_session_error(other->session)->text);
    }
    rig->met = true;
    stepper_hold(rig->sides[MOVER].fabric, ends, NULL, rig);
}

/* The leaf's lock: first to look for its keys, then for each key. */
static bool locks_second_key(const struct fabric_list *list, void *context)
{
    struct rig *rig = context;
    rig->locks += list->commands[0].operation == FABRIC_CAS;
    return rig->locks == 3;
}

/* A turn has moved keys and has left some, which are gone before the next one: that finds nothing to move,
 * and is the last. */
static void a_turn_that_finds_no_long_keys_is_the_last(void **state)
{
    struct rig rig;
    uint8_t least[1];
    (void)state;
    rig_open(&rig, &long_keys, KEY_BYTES, LONG_KEYS);
    const struct side *mover = &rig.sides[MOVER];
    struct counted keys = {.bytes = memory_block_bytes(KEY_BYTES)};
    struct tree_check_report report;
    const struct side *eyes = &rig.sides[OTHER];
    assert_int_equal(tree_check(eyes->session, eyes->tree, &report, count, &keys), 0);
    assert_int_equal(report.leaves, 1);
    assert_int_equal(keys.blocks[0], LONG_KEYS);
    pool_worker_return(mover->worker);
    memory_node_drain(rig.memories[0], true); /* so that no key comes back */
    struct tree_move move = {.key = least, .from = 0, .to = POOL_ANY_NODE};
    stepper_hold(mover->fabric, locks_second_key, the_rest_goes, &rig);
    if (tree_move_node(mover->session, mover->tree, &move))
        fail_msg("%s", tree_session_error(mover->session)->text);
    assert_true(rig.met);
    assert_int_equal(move.outcome, TREE_MOVE_DONE); /* of what there was, nothing is left there */
    memory_node_drain(rig.memories[0], false);
    rig_close(&rig, 0);
}

/* ---- a lock on a memory node that was removed ---- */

static enum fabric_membership only_the_first(const struct fabric *fabric, uint16_t node)
{
    (void)fabric;
    return node ? FABRIC_NO_MEMBER : FABRIC_MEMBER;
}

static bool learns_nothing(struct fabric *fabric, uint16_t node)
{
    (void)fabric;
    (void)node;
    return false;
}

static bool is_fresh(struct fabric *fabric)
{
    (void)fabric;
    return true;
}

struct removal {
    struct side *side;
    struct fabric_ops ops; /* with which the side posts nothing to memory node 1 */
};

static bool locks_there(const struct fabric_list *list, void *context)
{
    (void)context;
    return list->node == 1 && list->commands[0].operation == FABRIC_CAS;
}

static void it_is_removed(void *context)
{
    struct removal *removal = context;
    removal->side->fabric->ops = &removal->ops;
}

/*
 * The leaf has left, by a move that the writer has not heard of, so the batch takes the old one's lock. Then
 * the memory node is removed: what would free the lock is not posted, and the puts are done where the leaf is
 * (R6).
 */
static void a_batch_that_holds_a_lock_on_one_that_was_removed_goes_by_the_tree_anew(void **state)
{
    static const struct fabric_cluster_ops cluster = {only_the_first, learns_nothing, is_fresh};
    struct rig rig;
    struct tree_item items[4];
    uint8_t keys[4][KEY_BYTES], value[VALUE] = {7};
    (void)state;
    rig_open(&rig, &plain, 8, KEYS);
    struct side *writer = &rig.sides[OTHER];
    assert_int_equal(leaf_move(&rig, 50, 0, 1), TREE_MOVE_DONE);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(get(&rig, OTHER, i), 1); /* its cache has the leaf there */
    assert_int_equal(leaf_move(&rig, 50, 1, 0), TREE_MOVE_DONE);
    struct removal removal = {.side = writer, .ops = *writer->fabric->ops};
    const struct fabric_ops *before = writer->fabric->ops;
    removal.ops.cluster = &cluster;
    for (unsigned i = 0; i < 4; i++) /* two of that leaf, two of others */
        items[i] = (struct tree_item){.key = keys[i],
                                      .key_length = key_make(&rig, i < 2 ? 50 + i : 100 * (i - 2), keys[i]),
                                      .value = value,
                                      .length = VALUE};
    stepper_hold_answer(writer->fabric, locks_there, it_is_removed, &removal);
    if (tree_multi_put(writer->session, writer->tree, items, 4))
        fail_msg("%s", tree_session_error(writer->session)->text);
    assert_true(stepper_met(writer->fabric));
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(items[i].status, 0);
        assert_int_equal(get(&rig, MOVER, i < 2 ? 50 + i : 100 * (i - 2)), 7);
    }
    writer->fabric->ops = before;
    assert_int_equal(memory_node_release_locks(rig.memories[1], writer->id), 1); /* it had the lock */
    rig_close(&rig, KEYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_split_off_a_first_leaf_does_not_lie_where_nothing_is_to_stay),
        cmocka_unit_test(a_turn_that_finds_no_long_keys_is_the_last),
        cmocka_unit_test(a_batch_that_holds_a_lock_on_one_that_was_removed_goes_by_the_tree_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
