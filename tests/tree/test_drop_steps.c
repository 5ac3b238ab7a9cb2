/*
 * test_drop_steps.c - an operation of one compute node is held before each of its lists in turn, and another
 * drops the index meanwhile, and makes one of the same name in its place; and a drop is held while others
 * work on the index, or drop it too and give the freed blocks to another index. Whatever the operation comes
 * to, the new index is untouched, and every block has one owner. One task (stepper.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include "side.h"
#include "stepper.h"
#include "tree/tree.h"

#define SIDES 3u
#define KEYS  60u
#define VALUE 80u /* four slots in a leaf */

struct rig {
    struct memory_node *memory;
    struct side sides[SIDES]; /* the operation's, the dropper's, the eyes */
    unsigned keys;            /* in the old index */
    unsigned new_keys;        /* in the one that takes its place */
    unsigned others;          /* indexes beside it, of one leaf each */
    unsigned lists, at;       /* lists posted while no lock is held; the one to be held at */
    int (*operation)(struct side *side);
};

static const struct format_geometry geometry = {
    .key_bytes = 8, .value_bytes = VALUE, .leaf_bytes = 512, .internal_bytes = 512};

/* ---- the rig ---- */

static size_t key_make(unsigned number, uint8_t key[8])
{
    memset(key, 0, 8);
    key[6] = (uint8_t)(number >> 8);
    key[7] = (uint8_t)number;
    return 8;
}

static int put(struct side *side, struct tree *tree, unsigned number, uint8_t first)
{
    uint8_t key[8], value[VALUE] = {first};
    size_t length = key_make(number, key);
    return tree_upsert(side->session, tree, key, length, value, sizeof value);
}

static int delete (struct side *side, unsigned number)
{
    uint8_t key[8];
    return tree_delete(side->session, side->tree, key, key_make(number, key));
}

/* Negative: a status. */
static int get(struct side *side, struct tree *tree, unsigned number)
{
    uint8_t key[8], value[VALUE];
    size_t length = sizeof value;
    int status = tree_lookup(side->session, tree, key, key_make(number, key), value, &length);
    return status ? status : value[0];
}

static void rig_open(struct rig *rig, unsigned keys)
{
    struct memory_options options = {.pool_bytes = 4 << 20, .chunk_bytes = 64 << 10, .lock_bytes = 4096};
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    rig->keys = keys;
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    for (unsigned i = 0; i < SIDES; i++)
        side_open(&rig->sides[i], rig->memory, (uint16_t)(i + 1), TREE_READ_BUCKET);
    assert_int_equal(tree_format(rig->sides[2].session), 0);
    assert_int_equal(tree_create(rig->sides[2].session, "victim", &geometry, &rig->sides[2].tree), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(tree_open(rig->sides[i].session, "victim", &rig->sides[i].tree), 0);
    for (unsigned i = 1; i <= keys; i++)
        assert_int_equal(put(&rig->sides[2], rig->sides[2].tree, 2 * i, 1), 0);
    for (unsigned i = 1; i <= keys; i++) /* the operation's caches know all */
        assert_int_equal(get(&rig->sides[0], rig->sides[0].tree, 2 * i), 1);
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], true);
    memory_node_destroy(rig->memory);
}

/* The catalogue has no other place for a new index than the old one's. */
static void crowd(struct rig *rig)
{
    char name[16];
    struct tree *tree;
    for (int status = 0; !status;) {
        snprintf(name, sizeof name, "other%u", rig->others);
        status = tree_create(rig->sides[2].session, name, &geometry, &tree);
        rig->others += !status;
        assert_true(!status || status == BANYAN_ENOSPC);
        tree_close(tree);
    }
}

/* Each block is the index's (NULL: there is none), or lies ready with a worker. */
static void account(struct rig *rig, struct tree *tree)
{
    struct tree_check_report report;
    side_account(rig->sides, SIDES, rig->memory, tree, rig->others, &report);
}

static bool locks_are_free(const struct rig *rig)
{
    const struct fabric_target *target = memory_node_target(rig->memory);
    for (uint64_t at = 0; at < target->lock_bytes; at++)
        if (target->locks[at])
            return false;
    return true;
}

/* The drop would wait for a lock for ever, were the lock's holder held. */
static bool between_locks(const struct fabric_list *list, void *context)
{
    struct rig *rig = context;
    (void)list;
    return locks_are_free(rig) && ++rig->lists == rig->at;
}

/* ---- operations ---- */

static int insert(struct side *side)
{
    return put(side, side->tree, 15, 1);
}

/* Splits, and posts, and splits the parent. */
static int insert_many(struct side *side)
{
    int status = 0;
    for (unsigned i = 0; i < 30 && !status; i++)
        status = put(side, side->tree, 2 * i + 1, 1);
    return status;
}

/* Empties leaves. */
static int delete_many(struct side *side)
{
    int status = 0;
    for (unsigned i = 3; i < 30 && (!status || status == BANYAN_ENOTFOUND); i++)
        status = delete (side, 2 * i);
    return status;
}

static int look(struct side *side)
{
    int status = get(side, side->tree, 14);
    return status > 0 ? 0 : status;
}

static int look_for_nothing(struct side *side)
{
    return get(side, side->tree, 15);
}

static bool meet(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    assert_int_equal(*(const uint8_t *)value, 1);
    return true;
}

static int scan(struct side *side)
{
    const struct tree_range everything = {.reverse = false};
    return tree_scan(side->session, side->tree, &everything, meet, NULL);
}

static int scan_backwards(struct side *side)
{
    const struct tree_range everything = {.reverse = true};
    return tree_scan(side->session, side->tree, &everything, meet, NULL);
}

static int many(struct side *side, bool write)
{
    struct tree_item items[12];
    uint8_t keys[12][8], values[12][VALUE];
    memset(values, 1, sizeof values);
    for (unsigned i = 0; i < 12; i++)
        items[i] = (struct tree_item){
            .key = keys[i], .key_length = key_make(4 * i + 1, keys[i]), .value = values[i], .length = VALUE};
    return write ? tree_multi_put(side->session, side->tree, items, 12)
                 : tree_multi_get(side->session, side->tree, items, 12);
}

static int many_get(struct side *side)
{
    return many(side, false);
}

static int many_put(struct side *side)
{
    return many(side, true);
}

static int sample(struct side *side)
{
    uint8_t key[8];
    size_t length = sizeof key;
    return tree_sample(side->session, side->tree, key, &length);
}

static bool next(void *context, const void **key, size_t *key_length, const void **value, size_t *length)
{
    static uint8_t bytes[8], contents[VALUE] = {1};
    unsigned *number = context;
    *key_length = key_make(++*number, bytes);
    *key = bytes;
    *value = contents;
    *length = VALUE;
    return *number <= KEYS;
}

static int load(struct side *side)
{
    struct tree_bulk *bulk;
    struct error error = {0};
    unsigned number = 0;
    assert_int_equal(tree_bulk_begin(&bulk, side->tree, 1, 0.8, &error), 0);
    int status = tree_bulk_part(side->session, bulk, 0, next, &number);
    int finished = tree_bulk_finish(side->session, bulk);
    return status ? status : finished;
}

static int drop(struct side *side)
{
    return tree_drop(side->session, "victim", NULL, NULL);
}

/* ---- dropped and made anew at each of its steps ---- */

static void drop_and_make(void *context)
{
    struct rig *rig = context;
    struct side *side = &rig->sides[1];
    struct tree *tree;
    assert_int_equal(drop(side), 0);
    assert_int_equal(tree_create(side->session, "victim", &geometry, &tree), 0);
    for (unsigned i = 1; i <= rig->new_keys; i++)
        assert_int_equal(put(side, tree, 2 * i, 2), 0);
    tree_close(side->tree);
    side->tree = tree;
}

static void is_untouched(struct rig *rig)
{
    struct tree *tree;
    assert_int_equal(tree_open(rig->sides[2].session, "victim", &tree), 0);
    for (unsigned i = 1; i < 2 * KEYS; i++)
        assert_int_equal(get(&rig->sides[2], tree, i),
                         i % 2 == 0 && i <= 2 * rig->new_keys ? 2 : BANYAN_ENOTFOUND);
    account(rig, tree);
    tree_close(tree);
}

static bool held_at(unsigned at, unsigned keys, bool crowded, int (*operation)(struct side *))
{
    struct rig rig;
    rig_open(&rig, keys);
    rig.new_keys = crowded ? 2 : 25; /* its root stays where it was made */
    if (crowded)
        crowd(&rig);
    rig.at = at;
    stepper_hold(rig.sides[0].fabric, between_locks, drop_and_make, &rig);
    int status = operation(&rig.sides[0]);
    bool met = stepper_met(rig.sides[0].fabric);
    if (status && status != BANYAN_ENOTFOUND && (!met || status != BANYAN_EBUSY))
        fail_msg("held at list %u: %d, %s", at, status, tree_session_error(rig.sides[0].session)->text);
    assert_true(locks_are_free(&rig));
    if (met) {
        is_untouched(&rig);
        assert_int_equal(put(&rig.sides[0], rig.sides[0].tree, 9, 1), BANYAN_ENOTFOUND);
    }
    rig_close(&rig);
    return met;
}

static void an_index_in_its_place_stays_untouched(void **state)
{
    static const struct {
        unsigned keys;
        int (*operation)(struct side *);
    } cases[] = {{2, insert},
                 {3, insert_many},
                 {KEYS, insert_many},
                 {KEYS, delete_many},
                 {KEYS, look},
                 {2, look},
                 {KEYS, look_for_nothing},
                 {KEYS, scan},
                 {KEYS, scan_backwards},
                 {KEYS, many_get},
                 {KEYS, many_put},
                 {3, many_put},
                 {KEYS, sample},
                 {0, load}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned at = 1;
        while (held_at(at, cases[i].keys, false, cases[i].operation))
            at++;
        assert_true(at > 1);
    }
}

/* The new root takes the old one's word, and its place. */
static void a_root_of_the_old_index_is_not_put_above_the_new_one(void **state)
{
    unsigned at = 1;
    while (held_at(at, 3, true, insert_many))
        at++;
    assert_true(at > 1);
}

/* ---- at work, or dropping too, at each step of a drop ---- */

static void operate(void *context)
{
    struct rig *rig = context;
    int status = rig->operation(&rig->sides[0]);
    if (status && status != BANYAN_ENOTFOUND && status != BANYAN_EBUSY)
        fail_msg("at list %u of a drop: %d, %s", rig->at, status,
                 tree_session_error(rig->sides[0].session)->text);
}

static bool drop_held_at(unsigned at, unsigned keys, int (*operation)(struct side *))
{
    struct rig rig;
    rig_open(&rig, keys);
    rig.at = at;
    rig.operation = operation;
    stepper_hold(rig.sides[1].fabric, between_locks, operate, &rig);
    int status = drop(&rig.sides[1]);
    bool met = stepper_met(rig.sides[1].fabric);
    if (status && (operation != drop || status != BANYAN_ENOTFOUND))
        fail_msg("a drop, held at list %u: %d, %s", at, status,
                 tree_session_error(rig.sides[1].session)->text);
    assert_true(locks_are_free(&rig));
    account(&rig, NULL);
    for (unsigned i = 0; i < SIDES; i++)
        assert_int_equal(put(&rig.sides[i], rig.sides[i].tree, 9, 1), BANYAN_ENOTFOUND);
    rig_close(&rig);
    return met;
}

static void all_comes_back_whoever_works_meanwhile(void **state)
{
    static const struct {
        unsigned keys;
        int (*operation)(struct side *);
    } cases[] = {
        {3, insert_many}, {KEYS, insert_many}, {KEYS, delete_many}, {KEYS, scan}, {KEYS, look_for_nothing},
        {KEYS, many_put}, {0, load},           {KEYS, drop},        {1, drop}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned at = 1;
        while (drop_held_at(at, cases[i].keys, cases[i].operation))
            at++;
        assert_true(at > 1);
    }
}

/* ---- two drops, and another index has what the faster one freed ---- */

static void drop_and_make_another(void *context)
{
    struct rig *rig = context;
    struct side *side = &rig->sides[0];
    struct tree *tree;
    int status = drop(side);
    assert_true(!status || status == BANYAN_ENOTFOUND); /* the held one has done it all */
    assert_int_equal(tree_create(side->session, "heir", &geometry, &tree), 0);
    for (unsigned i = 1; i <= KEYS; i++)
        assert_int_equal(put(side, tree, 2 * i, 3), 0);
    tree_close(tree);
}

/* Held before its swap, the slower drop has killed the level too, and finds that the root word has moved on:
 * the level's blocks are no longer its own to free. Were the blocks still free, the memory node would refuse
 * them, and the account would show nothing. */
static bool slower_drop_held_at(unsigned at, unsigned keys)
{
    struct rig rig;
    struct tree *heir;
    rig_open(&rig, keys);
    rig.at = at;
    stepper_hold(rig.sides[1].fabric, between_locks, drop_and_make_another, &rig);
    int status = drop(&rig.sides[1]);
    bool met = stepper_met(rig.sides[1].fabric);
    if (status && status != BANYAN_ENOTFOUND)
        fail_msg("the slower drop, held at list %u: %d, %s", at, status,
                 tree_session_error(rig.sides[1].session)->text);
    if (met) {
        struct side *eyes = &rig.sides[2];
        assert_int_equal(tree_open(eyes->session, "heir", &heir), 0);
        account(&rig, heir);
        for (unsigned i = 1; i <= KEYS; i++)
            assert_int_equal(get(eyes, heir, 2 * i), 3);
        tree_close(heir);
    }
    rig_close(&rig);
    return met;
}

static void the_slower_of_two_drops_frees_nothing(void **state)
{
    static const unsigned sizes[] = {1, KEYS};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned at = 1;
        while (slower_drop_held_at(at, sizes[i]))
            at++;
        assert_true(at > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_in_its_place_stays_untouched),
        cmocka_unit_test(a_root_of_the_old_index_is_not_put_above_the_new_one),
        cmocka_unit_test(all_comes_back_whoever_works_meanwhile),
        cmocka_unit_test(the_slower_of_two_drops_frees_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
