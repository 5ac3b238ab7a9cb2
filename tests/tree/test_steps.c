/*
 * test_steps.c - rules of tree.md whose violation shows only if a compute node is held up between two lists
 * of one operation while others do much: a sibling that is posted, emptied, freed and used again before its
 * splitter comes to post it, splitters and unlinkers that die at the one list that matters. Each is brought
 * about step by step (stepper.h).
 *
 * Every test ends with a walk over the whole index, and with an account of memory: what the memory node has
 * handed out is in use, or lies on a worker's free list, and never both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "side.h"
#include "stepper.h"
#include "format/internal_node.h"
#include "format/leaf.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"

#define SIDES          6u
#define VALUE_BYTES    80u /* four slots in a leaf */
#define LEAF_BYTES     512u
#define INTERNAL_BYTES 1024u
#define STEP           100u /* between keys: there is room for others */

struct rig {
    struct memory_node *memory;
    struct side sides[SIDES];
    struct side *other; /* than the one that is held */
    uint64_t last;      /* key put in last */
    gaddr sibling;      /* of the split that is held */
};

/* ---- the rig ------------------------------------------------------------------------------------- */

static void rig_open_as(struct rig *rig, const struct format_geometry *geometry)
{
    struct memory_options options = {.pool_bytes = 64 << 20};
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    rig->other = &rig->sides[1];
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    for (uint16_t i = 0; i < SIDES; i++)
        side_open(&rig->sides[i], rig->memory, (uint16_t)(i + 1), TREE_READ_BUCKET);
    assert_int_equal(tree_format(rig->sides[0].session), 0);
    assert_int_equal(tree_create(rig->sides[0].session, "steps", geometry, &rig->sides[0].tree), 0);
    for (unsigned i = 1; i < SIDES; i++)
        assert_int_equal(tree_open(rig->sides[i].session, "steps", &rig->sides[i].tree), 0);
}

static void rig_open(struct rig *rig)
{
    const struct format_geometry geometry = {.key_bytes = 8,
                                             .value_bytes = VALUE_BYTES,
                                             .leaf_bytes = LEAF_BYTES,
                                             .internal_bytes = INTERNAL_BYTES};
    rig_open_as(rig, &geometry);
}

/* By the eyes of the last compute node, which lives in every test. */
static void rig_judge(struct rig *rig)
{
    struct tree_check_report report;
    side_account(rig->sides, SIDES, rig->memory, rig->sides[SIDES - 1].tree, 0, &report);
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
}

/* ---- operations ---------------------------------------------------------------------------------- */

static void key_make(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number >> (56 - 8 * i));
}

static int put(struct side *side, uint64_t number, uint8_t first)
{
    uint8_t key[8], value[VALUE_BYTES] = {first};
    key_make(number, key);
    return tree_upsert(side->session, side->tree, key, sizeof key, value, sizeof value);
}

static int drop(struct side *side, uint64_t number)
{
    uint8_t key[8];
    key_make(number, key);
    return tree_delete(side->session, side->tree, key, sizeof key);
}

/* The value's first byte; negative: there is none. */
static int get(struct side *side, uint64_t number)
{
    uint8_t key[8], value[VALUE_BYTES];
    size_t length = sizeof value;
    key_make(number, key);
    int status = tree_lookup(side->session, side->tree, key, sizeof key, value, &length);
    return status ? status : value[0];
}

/* The leaf that a key leads to, by what its parents say. */
static gaddr leaf_of(struct side *side, uint64_t number)
{
    uint8_t key[8];
    struct tree_path path;
    key_make(number, key);
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    assert_int_equal(tree_locate(side->session, side->tree, (struct format_key){key, 8}, false, 0, &path), 0);
    return path.link.address;
}

/* Ascending keys until so many leaves have been split: full ones stay behind, and the last has one key. */
static void append(struct rig *rig, struct side *side, uint64_t splits)
{
    tree_session_stats_reset(side->session);
    while (tree_session_stats(side->session)->splits < splits)
        assert_int_equal(put(side, rig->last += STEP, 1), 0);
}

/* The same until the side is held or dies. */
static void append_until_met(struct rig *rig, struct side *side)
{
    while (!stepper_met(side->fabric))
        assert_int_equal(put(side, rig->last += STEP, 1), 0);
}

/* ---- where to stop ------------------------------------------------------------------------------- */

/* A parent is locked: to post an entry, or to drop one. */
static bool locks_parent(const struct fabric_list *list, void *context)
{
    return list->count == 2 && list->commands[0].operation == FABRIC_CAS &&
           list->commands[1].operation == FABRIC_READ && list->commands[1].length == INTERNAL_BYTES;
}

/* A leaf is locked for its header alone: to be extended over its dead right neighbour. */
static bool locks_left_neighbour(const struct fabric_list *list, void *context)
{
    return list->count == 2 && list->commands[0].operation == FABRIC_CAS &&
           list->commands[1].operation == FABRIC_READ && list->commands[1].length == 64;
}

/* Sibling, mark, slots, header. */
static bool splits_leaf(const struct fabric_list *list, void *context)
{
    return list->count > 3 && list->commands[0].operation == FABRIC_WRITE &&
           list->commands[0].length == LEAF_BYTES;
}

/* ---- the parent's entries ------------------------------------------------------------------------ */

/* Walks right, and posts the sibling; what its process has cached of the way is forgotten before. A key that
 * is not there is in no cache. */
static void meet_sibling(struct rig *rig)
{
    assert_int_equal(get(rig->other, rig->last + 1), BANYAN_ENOTFOUND);
    assert_int_equal(get(rig->other, rig->last + 1), BANYAN_ENOTFOUND);
    assert_int_equal(get(rig->other, rig->last), 1);
}

/* The sibling's address names another leaf with the same lower fence by the time that its splitter gets the
 * parent's lock. */
static void sibling_used_again(void *context)
{
    struct rig *rig = context;
    struct side *other = rig->other;
    meet_sibling(rig);
    rig->sibling = leaf_of(other, rig->last);
    assert_int_equal(drop(other, rig->last), 0); /* its only key */
    assert_int_not_equal(leaf_of(other, rig->last), rig->sibling);
    assert_int_equal(put(other, rig->last, 2), 0); /* the leaf before it is full still */
    assert_int_equal(leaf_of(other, rig->last), rig->sibling);
}

static void another_leaf_in_the_siblings_place_is_not_posted(void **state)
{
    struct rig rig;
    rig_open(&rig);
    append(&rig, &rig.sides[0], 1);
    stepper_hold(rig.sides[0].fabric, locks_parent, sibling_used_again, &rig);
    append_until_met(&rig, &rig.sides[0]);
    for (unsigned i = 0; i < SIDES; i++)
        assert_int_equal(get(&rig.sides[i], rig.last), 2);
    rig_judge(&rig);
    rig_close(&rig);
}

static void sibling_gone(void *context)
{
    struct rig *rig = context;
    struct side *other = rig->other;
    meet_sibling(rig);
    assert_int_equal(drop(other, rig->last), 0);
}

static void a_sibling_that_died_is_not_posted(void **state)
{
    struct rig rig;
    rig_open(&rig);
    append(&rig, &rig.sides[0], 1);
    stepper_hold(rig.sides[0].fabric, locks_parent, sibling_gone, &rig);
    append_until_met(&rig, &rig.sides[0]);
    assert_int_equal(get(&rig.sides[2], rig.last), BANYAN_ENOTFOUND);
    rig_judge(&rig);
    append(&rig, &rig.sides[0], 4);
    rig_judge(&rig);
    rig_close(&rig);
}

/* The same within a process that owns the range, where a splitter does not look whether its sibling lives
 * unless another task has killed a leaf since. */
static void held_in_an_owned_range(void (*act)(void *context), bool comes_back)
{
    struct rig rig;
    struct error error = {0};
    rig_open(&rig);
    rig.sides[0].compute->switches.local_locks = false; /* else the other task waits for the parent's */
    assert_int_equal(tree_rights_own(rig.sides[0].tree, &error), 0);
    struct side task = rig.sides[0];
    assert_int_equal(tree_session_create(&task.session, task.compute, task.worker, &error), 0);
    rig.other = &task;
    append(&rig, &rig.sides[0], 1);
    stepper_hold(rig.sides[0].fabric, locks_parent, act, &rig);
    append_until_met(&rig, &rig.sides[0]);
    assert_int_equal(get(&task, rig.last), comes_back ? 2 : BANYAN_ENOTFOUND);
    assert_int_equal(get(&rig.sides[2], rig.last), comes_back ? 2 : BANYAN_ENOTFOUND);
    rig_judge(&rig);
    append(&rig, &rig.sides[0], 4);
    rig_judge(&rig);
    tree_session_destroy(task.session);
    rig_close(&rig);
}

static void a_death_in_the_splitters_own_range_is_heard_of(void **state)
{
    held_in_an_owned_range(sibling_used_again, true);
    held_in_an_owned_range(sibling_gone, false);
}

/* ... and otherwise it saves the round trip: lock and READ of the leaf, the rest of it, the split, the
 * parent's lock, its new entry. */
static void a_split_in_an_owned_range_takes_five_round_trips(void **state)
{
    struct rig rig;
    struct error error = {0};
    rig_open(&rig);
    assert_int_equal(tree_rights_own(rig.sides[0].tree, &error), 0);
    append(&rig, &rig.sides[0], 2);
    uint64_t took = 0;
    for (uint64_t splits = 2, before; tree_session_stats(rig.sides[0].session)->splits == splits;) {
        before = tree_session_stats(rig.sides[0].session)->cost.round_trips;
        assert_int_equal(put(&rig.sides[0], rig.last += STEP, 1), 0);
        took = tree_session_stats(rig.sides[0].session)->cost.round_trips - before;
    }
    assert_in_range(took, 3, 5);
    rig_judge(&rig);
    rig_close(&rig);
}

/* A leaf is dead, its left neighbour has its range, and the session that did that died before it dropped the
 * parent's entry. A session that has not heard of the dead leaf splits the left neighbour at the same key
 * again. */
static void a_dead_leaf_whose_entry_is_replaced_is_freed(void **state)
{
    struct rig rig;
    rig_open(&rig);
    append(&rig, &rig.sides[0], 1);
    assert_int_equal(get(&rig.sides[2], STEP), 1); /* knows the parent as it is now */
    append(&rig, &rig.sides[0], 1);
    stepper_kill(rig.sides[1].fabric, locks_parent, 0, NULL);
    assert_int_equal(drop(&rig.sides[1], rig.last), 0);
    assert_true(stepper_met(rig.sides[1].fabric));
    uint64_t unlinks = tree_session_stats(rig.sides[2].session)->unlinks;
    assert_int_equal(put(&rig.sides[2], rig.last, 3), 0);
    assert_int_equal(tree_session_stats(rig.sides[2].session)->splits, 1);
    assert_int_equal(tree_session_stats(rig.sides[2].session)->unlinks, unlinks);
    assert_int_equal(get(&rig.sides[3], rig.last), 3);
    rig_judge(&rig);
    rig_close(&rig);
}

/* A splitter died before it posted the sibling, whose only key is deleted by a session that came by the
 * sibling link. */
static void a_leaf_that_no_entry_names_stays(void **state)
{
    struct rig rig;
    rig_open(&rig);
    append(&rig, &rig.sides[0], 1);
    assert_int_equal(get(&rig.sides[1], STEP),
                     1); /* knows the parent as it is now: walks right without posting */
    stepper_kill(rig.sides[0].fabric, locks_parent, 0, NULL);
    append_until_met(&rig, &rig.sides[0]);
    assert_int_equal(drop(&rig.sides[1], rig.last), 0);
    rig_judge(&rig);
    assert_int_equal(put(&rig.sides[2], rig.last, 4), 0);
    assert_int_equal(get(&rig.sides[1], rig.last), 4);
    rig_judge(&rig);
    rig_close(&rig);
}

/* ---- a half-split leaf beside dead ones ---------------------------------------------------------- */

/* Deletes all keys of the leaf that this one leads to, and dies before its left neighbour is extended. */
static void empty_and_die(struct side *side, uint64_t last, unsigned keys)
{
    stepper_kill(side->fabric, locks_left_neighbour, 0, NULL);
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(drop(side, last - i * STEP), 0);
    assert_true(stepper_met(side->fabric));
}

/* How many of the keys up to this one lie in its leaf. */
static unsigned keys_of_leaf(struct side *side, uint64_t last)
{
    unsigned count = 0;
    gaddr leaf = leaf_of(side, last);
    while (last > count * STEP && leaf_of(side, last - count * STEP) == leaf)
        count++;
    return count;
}

/* The second dead leaf's unlinker has to look for the leaf left of the first one with the parent read anew; a
 * leaf that it finds half split must be finished before it walks right from there, since that posts the
 * sibling. */
static void a_half_split_left_neighbour_is_finished(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct side *reader = &rig.sides[1], *splitter = &rig.sides[2], *helper = &rig.sides[SIDES - 1];
    append(&rig, &rig.sides[0], 4); /* leaves: some, left, dead, dead, one key */
    uint64_t second = rig.last - STEP, first = second - keys_of_leaf(&rig.sides[0], second) * STEP;
    unsigned seconds = keys_of_leaf(&rig.sides[0], second), firsts = keys_of_leaf(&rig.sides[0], first);
    uint64_t left = first - firsts * STEP; /* the left leaf's last key: it moves in a split */
    assert_true(keys_of_leaf(&rig.sides[0], left) > 1);
    assert_int_equal(get(reader, left), 1);
    empty_and_die(&rig.sides[3], first, firsts);
    empty_and_die(&rig.sides[4], second, seconds);
    stepper_kill(splitter->fabric, splits_leaf, 2, NULL); /* the sibling and the mark */
    for (uint64_t i = 1; !stepper_met(splitter->fabric); i++)
        put(splitter, left - STEP + i, 1);
    assert_int_equal(memory_node_release_locks(rig.memory, splitter->id), 1);
    assert_int_equal(get(helper, second), BANYAN_ENOTFOUND); /* meets the second dead leaf, and helps */
    assert_int_equal(put(helper, left, 5), 0);
    assert_int_equal(get(reader, left), 5); /* it still looks into the left leaf first */
    assert_int_equal(get(helper, left), 5);
    rig_close(&rig);
}

/* ---- an internal node in another's place ----------------------------------------------------------- */

/* The node of level 1 that a key leads to. */
static gaddr parent_of(struct side *side, uint64_t number)
{
    uint8_t key[8];
    struct tree_path path;
    key_make(number, key);
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    assert_int_equal(tree_locate(side->session, side->tree, (struct format_key){key, 8}, false, 1, &path), 0);
    return path.link.address;
}

/* Ascending keys until the last one has another parent than the one before; returns it. */
static uint64_t append_to_next_parent(struct rig *rig, struct side *side)
{
    gaddr before = parent_of(side, rig->last);
    while (parent_of(side, rig->last) == before)
        assert_int_equal(put(side, rig->last += STEP, 1), 0);
    return rig->last;
}

/* A reader has cached the root, whose entry leads it to memory that has become another node of the same
 * level. */
static void an_internal_node_of_another_tag_is_not_believed(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct side *writer = &rig.sides[0], *reader = &rig.sides[1];
    append(&rig, writer, 1);
    uint64_t from = append_to_next_parent(&rig, writer), to = append_to_next_parent(&rig, writer);
    append_to_next_parent(&rig, writer);
    assert_int_equal(get(reader, STEP), 1); /* by the root and the first node */
    gaddr second = parent_of(writer, from);
    for (uint64_t key = from; key < to; key += STEP)
        assert_int_equal(drop(writer, key), 0);
    for (unsigned i = 0; parent_of(writer, rig.last) != second; i++) {
        assert_true(i < 5000);
        assert_int_equal(put(writer, rig.last += STEP, 1), 0);
    }
    assert_int_equal(get(reader, from), BANYAN_ENOTFOUND);
    assert_int_equal(get(reader, rig.last), 1);
    rig_judge(&rig);
    rig_close(&rig);
}

/* A parent's last entry leads outside of the pool: the list fails behind its CAS. */
static void a_lock_is_given_back_when_its_list_fails(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct side *writer = &rig.sides[0], *victim = &rig.sides[1];
    append(&rig, writer, 1);
    uint8_t image[INTERNAL_BYTES],
        *node = memory_node_target(rig.memory)->pool + gaddr_offset(parent_of(writer, rig.last));
    struct format_header header;
    static struct format_entry entries[FORMAT_ENTRIES_MAX];
    memcpy(image, node, sizeof image);
    assert_true(format_header_decode(&writer->tree->layout, image, &header));
    assert_true(format_internal_decode(&writer->tree->layout, image, &header, entries));
    entries[header.count - 1].link.address = gaddr_make(0, UINT64_C(1) << 40);
    format_internal_encode(&writer->tree->layout, &header, entries, header.count, node);
    assert_int_equal(put(victim, rig.last, 2), BANYAN_ECORRUPT);
    assert_int_equal(memory_node_release_locks(rig.memory, victim->id), 0);
    rig_close(&rig);
}

/* ---- a key that moves within its leaf while the leaf is read ---------------------------------------- */

struct moving {
    struct rig *rig;
    uint64_t first, second; /* keys of one bucket: in the leaf's first slot, and behind it */
    unsigned met;
};

/* All of it, or all that is used. */
static bool reads_leaf(const struct fabric_list *list, void *context)
{
    return list->count == 1 && list->commands[0].operation == FABRIC_READ &&
           list->commands[0].length >= LEAF_BYTES * 3 / 4;
}

/* The second key moves to the first slot. */
static void move_forward(void *context)
{
    struct moving *moving = context;
    struct side *other = &moving->rig->sides[1];
    assert_int_equal(drop(other, moving->first), 0);
    assert_int_equal(drop(other, moving->second), 0);
    assert_int_equal(put(other, moving->second, 6), 0);
}

static bool meet(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct moving *moving = context;
    uint8_t wanted[8];
    key_make(moving->second, wanted);
    moving->met += !memcmp(key, wanted, sizeof wanted);
    return true;
}

/* The bucket that a key belongs to in the leaf that all keys lie in. */
static uint32_t bucket_of(struct side *side, uint64_t number)
{
    uint8_t key[8];
    struct tree_path path;
    struct format_bucket bucket;
    key_make(number, key);
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    assert_int_equal(tree_locate(side->session, side->tree, (struct format_key){key, 8}, false, 0, &path), 0);
    format_bucket_of(&side->tree->layout, path.link.tag, (struct format_key){key, 8}, &bucket);
    return bucket.number;
}

/* Both slots are valid by themselves: the old one as it was, the new one as it is. */
static void a_scan_tells_a_key_once(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct side *reader = &rig.sides[0];
    struct moving moving = {.rig = &rig, .first = 1};
    while (bucket_of(reader, moving.first) != 0)
        moving.first++;
    moving.second = moving.first + 1;
    while (bucket_of(reader, moving.second) != 0)
        moving.second++;
    assert_int_equal(put(reader, moving.first, 1), 0);
    assert_int_equal(put(reader, moving.second, 1), 0);
    stepper_tear(reader->fabric, reads_leaf, reader->tree->layout.slot_offset[1], LEAF_BYTES, move_forward,
                 &moving);
    const struct tree_range everything = {0};
    assert_int_equal(tree_scan(reader->session, reader->tree, &everything, meet, &moving), 0);
    assert_true(stepper_met(reader->fabric));
    assert_int_equal(moving.met, 1);
    rig_judge(&rig);
    rig_close(&rig);
}

/* ---- a leaf that is widened while it is read --------------------------------------------------------- */

struct widening {
    struct rig *rig;
    gaddr left; /* the leaf that is read in two parts: its header, and later its slots */
    bool reverse, ordered;
    uint64_t before; /* what the scan told last */
    unsigned met;    /* the key that changes its leaf */
};

static bool reads_left_leaf(const struct fabric_list *list, void *context)
{
    return reads_leaf(list, context) && list->commands[0].address == ((const struct widening *)context)->left;
}

/* Its right neighbour's only key goes, and comes again in the leaf that has got the range. */
static void widen_left_leaf(void *context)
{
    struct widening *widening = context;
    struct rig *rig = widening->rig;
    struct side *other = &rig->sides[1];
    uint64_t splits = tree_session_stats(other->session)->splits;
    assert_int_equal(drop(other, rig->last), 0);
    assert_int_equal(put(other, rig->last, 7), 0);
    assert_int_equal(leaf_of(other, rig->last), widening->left);
    assert_int_equal(tree_session_stats(other->session)->splits, splits);
}

static bool meet_in_order(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct widening *widening = context;
    uint64_t number = 0;
    for (unsigned i = 0; i < 8; i++)
        number = number << 8 | ((const uint8_t *)key)[i];
    if (widening->before)
        widening->ordered &= widening->reverse ? number < widening->before : number > widening->before;
    widening->before = number;
    widening->met += number == widening->rig->last;
    return true;
}

/* Its version stays, so its slots are valid under the narrow header. Not torn, all of it is fetched after. */
static void scan_while_widening(bool reverse, bool torn)
{
    struct rig rig;
    rig_open(&rig);
    struct side *writer = &rig.sides[0], *reader = &rig.sides[2];
    append(&rig, writer, 3);
    struct widening widening = {.rig = &rig, .reverse = reverse, .ordered = true};
    widening.left = leaf_of(writer, rig.last - STEP);
    assert_int_equal(keys_of_leaf(writer, rig.last), 1);
    for (unsigned i = keys_of_leaf(writer, rig.last - STEP); i > 1; i--) /* room for one more */
        assert_int_equal(drop(writer, rig.last - i * STEP), 0);
    stepper_tear(reader->fabric, reads_left_leaf, 0, torn ? reader->tree->layout.header_bytes : 0,
                 widen_left_leaf, &widening);
    const struct tree_range everything = {.reverse = reverse};
    assert_int_equal(tree_scan(reader->session, reader->tree, &everything, meet_in_order, &widening), 0);
    assert_true(stepper_met(reader->fabric));
    assert_true(widening.ordered);
    assert_int_equal(widening.met, 1);
    assert_int_equal(get(reader, rig.last), 7);
    rig_judge(&rig);
    rig_close(&rig);
}

static void a_leaf_widened_while_it_is_scanned_keeps_to_the_fence_that_was_read(void **state)
{
    scan_while_widening(false, true);
    scan_while_widening(false, false);
}

/* Backwards the position, where the last leaf began, cuts off what lies beyond; and lower fences never
 * change. */
static void a_leaf_widened_while_it_is_scanned_backwards_keeps_to_the_position(void **state)
{
    scan_while_widening(true, true);
    scan_while_widening(true, false);
}

/* ---- a leaf that is split while it is read ------------------------------------------------------------- */

struct splitting {
    struct rig *rig;
    uint64_t wanted; /* a key that was put in before the reading began, and moves to the sibling */
    gaddr leaf;      /* that it moves from */
    unsigned met;
};

/* Keys left of all that are there, until the leaf is split: its greatest key moves to the sibling. */
static void split_the_leaf(void *context)
{
    struct splitting *splitting = context;
    struct side *other = &splitting->rig->sides[1];
    tree_session_stats_reset(other->session);
    for (uint64_t i = 1; !tree_session_stats(other->session)->splits; i++)
        assert_int_equal(put(other, STEP - i, 1), 0);
    assert_int_not_equal(leaf_of(other, splitting->wanted), splitting->leaf);
}

static bool meet_wanted(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct splitting *splitting = context;
    uint8_t wanted[8];
    key_make(splitting->wanted, wanted);
    splitting->met += !memcmp(key, wanted, sizeof wanted);
    return true;
}

/* One leaf with two keys; the greater one belongs to a bucket whose slots lie behind its version. */
static void splitting_open(struct rig *rig, struct splitting *splitting)
{
    rig_open(rig);
    *splitting = (struct splitting){.rig = rig, .wanted = STEP + 1};
    while (bucket_of(&rig->sides[0], splitting->wanted) % 2 == 0)
        splitting->wanted++;
    assert_int_equal(put(&rig->sides[0], STEP, 1), 0);
    assert_int_equal(put(&rig->sides[0], splitting->wanted, 1), 0);
    splitting->leaf = leaf_of(&rig->sides[0], splitting->wanted);
    assert_int_equal(leaf_of(&rig->sides[0], STEP), splitting->leaf);
}

/* The header's fences still hold the key; the slots, of which it is gone, are of the next version. */
static void scan_while_splitting(bool reverse)
{
    struct rig rig;
    struct splitting splitting;
    const struct tree_range everything = {.reverse = reverse};
    splitting_open(&rig, &splitting);
    struct side *reader = &rig.sides[0];
    stepper_tear(reader->fabric, reads_leaf, 0, reader->tree->layout.header_bytes, split_the_leaf,
                 &splitting);
    assert_int_equal(tree_scan(reader->session, reader->tree, &everything, meet_wanted, &splitting), 0);
    assert_true(stepper_met(reader->fabric));
    assert_int_equal(splitting.met, 1);
    rig_judge(&rig);
    rig_close(&rig);
}

static void a_scan_does_not_believe_slots_of_the_next_version(void **state)
{
    scan_while_splitting(false);
    scan_while_splitting(true);
}

/* Header and the bucket's version are those of before, and the slots of after. The reader takes whole leaves,
 * so that one READ has all three. */
static void a_lookup_does_not_believe_slots_of_the_next_version(void **state)
{
    struct rig rig;
    struct splitting splitting;
    struct side reader = {0};
    struct format_bucket bucket;
    splitting_open(&rig, &splitting);
    side_open(&reader, rig.memory, SIDES + 1, TREE_READ_LEAF);
    assert_int_equal(tree_open(reader.session, "steps", &reader.tree), 0);
    assert_int_equal(get(&reader, splitting.wanted), 1);
    format_bucket_number(&reader.tree->layout, bucket_of(&reader, splitting.wanted), &bucket);
    assert_int_equal(bucket.offset, bucket.version_offset);
    stepper_tear(reader.fabric, reads_leaf, 0, bucket.version_offset + (uint32_t)sizeof(uint16_t),
                 split_the_leaf, &splitting);
    assert_int_equal(get(&reader, splitting.wanted), 1);
    assert_true(stepper_met(reader.fabric));
    side_close(&reader, true);
    rig_judge(&rig);
    rig_close(&rig);
}

/* ---- a key block that becomes another key's while a leaf is read -------------------------------------- */

#define LONG_BYTES 200u

static bool reads_key_block(const struct fabric_list *list, void *context)
{
    return list->commands[0].operation == FABRIC_READ && list->commands[0].length == LONG_BYTES;
}

static void long_key(uint8_t first, uint8_t key[LONG_BYTES])
{
    memset(key, 'k', LONG_BYTES);
    key[0] = first;
}

static void long_put(struct side *side, uint8_t first)
{
    uint8_t key[LONG_BYTES];
    long_key(first, key);
    assert_int_equal(tree_upsert(side->session, side->tree, key, sizeof key, &first, 1), 0);
}

static void block_changes_hands(void *context)
{
    struct side *other = context;
    uint8_t key[LONG_BYTES];
    long_key('a', key);
    assert_int_equal(tree_delete(other->session, other->tree, key, sizeof key), 0);
    long_put(other, 'b'); /* into the block that was freed */
}

/* The value is the key's first byte. */
static bool meet_long(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    unsigned *met = context;
    ++*met;
    assert_int_equal(key_length, LONG_BYTES);
    assert_int_equal(*(const uint8_t *)key, *(const uint8_t *)value);
    return true;
}

static void a_key_block_is_believed_by_its_hash(void **state)
{
    const struct format_geometry geometry = {.key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 1};
    const struct tree_range everything = {0};
    struct rig rig;
    unsigned met = 0;
    rig_open_as(&rig, &geometry);
    long_put(&rig.sides[1], 'a');
    stepper_hold(rig.sides[0].fabric, reads_key_block, block_changes_hands, &rig.sides[1]);
    assert_int_equal(tree_scan(rig.sides[0].session, rig.sides[0].tree, &everything, meet_long, &met), 0);
    assert_true(stepper_met(rig.sides[0].fabric));
    assert_int_equal(met, 1);
    rig_judge(&rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_leaf_in_the_siblings_place_is_not_posted),
        cmocka_unit_test(a_sibling_that_died_is_not_posted),
        cmocka_unit_test(a_death_in_the_splitters_own_range_is_heard_of),
        cmocka_unit_test(a_split_in_an_owned_range_takes_five_round_trips),
        cmocka_unit_test(a_dead_leaf_whose_entry_is_replaced_is_freed),
        cmocka_unit_test(a_leaf_that_no_entry_names_stays),
        cmocka_unit_test(a_half_split_left_neighbour_is_finished),
        cmocka_unit_test(an_internal_node_of_another_tag_is_not_believed),
        cmocka_unit_test(a_lock_is_given_back_when_its_list_fails),
        cmocka_unit_test(a_scan_tells_a_key_once),
        cmocka_unit_test(a_key_block_is_believed_by_its_hash),
        cmocka_unit_test(a_leaf_widened_while_it_is_scanned_keeps_to_the_fence_that_was_read),
        cmocka_unit_test(a_leaf_widened_while_it_is_scanned_backwards_keeps_to_the_position),
        cmocka_unit_test(a_scan_does_not_believe_slots_of_the_next_version),
        cmocka_unit_test(a_lookup_does_not_believe_slots_of_the_next_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
