/*
 * test_move.c - a node moves to another memory node (R8): a move is cut after each command of each of its
 * lists, and in the middle of the write of a leaf's body; what comes by next, of every kind, finishes it,
 * finds all that there is, and leaves no block behind that two have or none. Readers are held in the middle
 * while others move; memory nodes are full. One task (stepper.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include "base/random.h"
#include "format/internal_node.h"
#include "side.h"
#include "stepper.h"
#include "tree/catalogue.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/rights.h"
#include "tree/session.h"

#define SIDES     3u
#define NODES     2u
#define KEYS      240u
#define KEPT      2u /* every so many-th key stays */
#define FEW       8u /* that fit one leaf */
#define VALUE     8u
#define KEY_BYTES 60u

struct rig {
    struct memory_node *memories[NODES];
    struct side sides[SIDES]; /* the mover's, another, the eyes */
    uint8_t values[KEYS];     /* first bytes; 0: nothing is there */
    unsigned lists, at;       /* lists of the mover's so far; the one at which it dies */
    unsigned commands;        /* of that list */
    uint64_t dice;
    gaddr leaf; /* that is read in two parts */
    unsigned met, last;
    bool reverse, broken;
};

/* Keys of one length, some too long for a slot, and such as only a shared prefix lets fit; keys of one length
 * in unsorted leaves. */
enum kind { PLAIN, LONG, PREFIXED, UNSORTED, KINDS };
static const struct format_geometry geometries[KINDS] = {
    {.key_bytes = 8, .value_bytes = VALUE, .leaf_bytes = 512, .internal_bytes = 1024},
    {.key_kind = FORMAT_KEY_VARIABLE,
     .key_bytes = KEY_BYTES,
     .inline_key_bytes = 16,
     .value_bytes = VALUE,
     .leaf_bytes = 1024,
     .internal_bytes = 1024},
    {.key_kind = FORMAT_KEY_VARIABLE,
     .key_bytes = KEY_BYTES,
     .inline_key_bytes = 16,
     .value_bytes = VALUE,
     .leaf_bytes = 1024,
     .internal_bytes = 1024},
    {.key_bytes = 8,
     .value_bytes = VALUE,
     .leaf_bytes = 512,
     .internal_bytes = 1024,
     .leaf_kind = FORMAT_LEAF_UNSORTED},
};
static enum kind kind; /* of the rig at hand */

/* ---- the rig ---- */

static size_t key_make(unsigned number, uint8_t key[KEY_BYTES])
{
    size_t length = kind == PLAIN || kind == UNSORTED ? 8
                    : kind == PREFIXED                ? 30
                    : number % 9                      ? 6
                                                      : KEY_BYTES;
    size_t at = kind == PREFIXED ? 26 : 0;
    memset(key, 'k', length);
    for (unsigned i = 0; i < 4; i++)
        key[at + i] = (uint8_t)(number >> (24 - 8 * i));
    return length;
}

static int put(struct side *side, unsigned number, uint8_t first)
{
    uint8_t key[KEY_BYTES], value[VALUE] = {first};
    size_t length = key_make(number, key);
    return tree_upsert(side->session, side->tree, key, length, value, sizeof value);
}

static int take(struct side *side, unsigned number)
{
    uint8_t key[KEY_BYTES];
    size_t length = key_make(number, key);
    return tree_delete(side->session, side->tree, key, length);
}

/* The value's first byte; 0: there is none. */
static int get(struct side *side, unsigned number)
{
    uint8_t key[KEY_BYTES], value[VALUE];
    size_t length = sizeof value, key_length = key_make(number, key);
    int status = tree_lookup(side->session, side->tree, key, key_length, value, &length);
    if (status && status != BANYAN_ENOTFOUND)
        fail_msg("%s", tree_session_error(side->session)->text);
    return status ? 0 : value[0];
}

/* Leaves with a few keys each, of keys below `keys`, and caches that know them. */
static void rig_open_with(struct rig *rig, unsigned keys)
{
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    for (uint16_t i = 0; i < NODES; i++) {
        struct memory_options options = {.node = i, .pool_bytes = 2 << 20, .lock_bytes = 4096};
        assert_int_equal(memory_node_create(&rig->memories[i], &options, &error), 0);
    }
    for (unsigned i = 0; i < SIDES; i++)
        side_open_over(&rig->sides[i], rig->memories, NODES, (uint16_t)(i + 1),
                       i == SIDES - 1 ? TREE_READ_LEAF : TREE_READ_BUCKET);
    assert_int_equal(tree_format(rig->sides[0].session), 0);
    assert_int_equal(tree_create(rig->sides[0].session, "move", &geometries[kind], &rig->sides[0].tree), 0);
    for (unsigned i = 1; i < SIDES; i++)
        assert_int_equal(tree_open(rig->sides[i].session, "move", &rig->sides[i].tree), 0);
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(put(&rig->sides[1], i, 1), 0);
    for (unsigned i = 0; i < keys; i++) {
        rig->values[i] = i % KEPT == 0;
        if (!rig->values[i])
            assert_int_equal(take(&rig->sides[1], i), 0);
    }
    for (unsigned i = 0; i < SIDES; i++)
        for (unsigned number = 0; number < KEYS; number++)
            assert_int_equal(get(&rig->sides[i], number), rig->values[number]);
}

static void rig_open(struct rig *rig)
{
    rig_open_with(rig, KEYS);
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(rig->memories[i]);
}

static int merge_all(struct side *side, uint32_t *merges)
{
    struct tree_merge_cursor cursor = {0};
    struct tree_merge_report report = {0};
    int status = 0;
    for (*merges = 0; !status && !report.ended; *merges += report.merges)
        status = tree_merge_step(side->session, side->tree, &cursor, 7, &report);
    return status;
}

/* ---- what must hold ---- */

static bool meet(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct rig *rig = context;
    uint8_t wanted[KEY_BYTES];
    const uint8_t *bytes = (const uint8_t *)key + (kind == PREFIXED ? 26 : 0);
    unsigned number = (unsigned)bytes[2] << 8 | bytes[3];
    bool ordered = !rig->met || (rig->reverse ? number < rig->last : number > rig->last);
    if (number >= KEYS || key_length != key_make(number, wanted) || memcmp(key, wanted, key_length) ||
        !ordered || *(const uint8_t *)value != rig->values[number])
        rig->broken = true;
    rig->met += number % KEPT == 0;
    rig->last = number;
    return true;
}

static unsigned there(const struct rig *rig)
{
    unsigned count = 0;
    for (unsigned i = 0; i < KEYS; i++)
        count += rig->values[i] != 0;
    return count;
}

/* Each of the keys that stay is met once. */
static void scan(struct rig *rig, struct side *side, bool reverse)
{
    const struct tree_range everything = {.reverse = reverse};
    rig->met = rig->last = 0;
    rig->reverse = reverse;
    int status = tree_scan(side->session, side->tree, &everything, meet, rig);
    if (status)
        fail_msg("%s", tree_session_error(side->session)->text);
    assert_false(rig->broken);
    unsigned wanted = 0;
    for (unsigned i = 0; i < KEYS; i += KEPT)
        wanted += rig->values[i] != 0;
    assert_int_equal(rig->met, wanted);
}

/* The index is sound as it lies there, and every block has one owner; one is lost with a mover that dies. */
static void check(struct rig *rig, struct tree_check_report *report)
{
    const uint64_t lost =
        side_lost(rig->sides, SIDES, rig->memories, NODES, rig->sides[SIDES - 1].tree, report);
    /* A copy that no link leads to yet when its mover dies; or the leaf, if the death is in the write that
     * takes its entry from it. */
    assert_true(lost <= (rig->at ? 1 : 0));
    assert_int_equal(report->entries, there(rig));
}

static void judge(struct rig *rig)
{
    struct side *eyes = &rig->sides[SIDES - 1];
    struct tree_check_report report;
    check(rig, &report);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(get(eyes, i), rig->values[i]);
    scan(rig, eyes, false);
    scan(rig, eyes, true);
}

/* ---- what comes by a move that was cut ---- */

static void gets(struct rig *rig, struct side *side)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(get(side, i), rig->values[i]);
}

static void scans(struct rig *rig, struct side *side)
{
    scan(rig, side, false);
}

static void scans_backwards(struct rig *rig, struct side *side)
{
    scan(rig, side, true);
}

static void puts_(struct rig *rig, struct side *side)
{
    for (unsigned i = 0; i < KEYS; i += 5) {
        assert_int_equal(put(side, i, 7), 0);
        rig->values[i] = 7;
    }
}

static void deletes(struct rig *rig, struct side *side)
{
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(take(side, i), rig->values[i] ? 0 : BANYAN_ENOTFOUND);
        rig->values[i] = 0;
    }
}

/* So that a leaf dies whose left neighbour is frozen, or merging. */
static void deletes_backwards(struct rig *rig, struct side *side)
{
    for (unsigned i = KEYS; i-- > 0;) {
        assert_int_equal(take(side, i), rig->values[i] ? 0 : BANYAN_ENOTFOUND);
        rig->values[i] = 0;
    }
}

static void many(struct rig *rig, struct side *side, bool writes)
{
    struct tree_item items[12];
    uint8_t keys[12][KEY_BYTES], values[12][VALUE];
    for (unsigned first = 0; first < KEYS; first += 12) {
        for (unsigned i = 0; i < 12; i++) {
            memset(values[i], 9, VALUE);
            items[i] = (struct tree_item){.key = keys[i],
                                          .key_length = key_make(first + i, keys[i]),
                                          .value = values[i],
                                          .length = VALUE};
        }
        if (writes)
            assert_int_equal(tree_multi_put(side->session, side->tree, items, 12), 0);
        else
            tree_multi_get(side->session, side->tree, items, 12);
        for (unsigned i = 0; i < 12; i++) {
            if (writes)
                rig->values[first + i] = 9;
            else if (rig->values[first + i])
                assert_int_equal(values[i][0], rig->values[first + i]);
            else
                assert_int_equal(items[i].status, BANYAN_ENOTFOUND);
        }
    }
}

static void many_gets(struct rig *rig, struct side *side)
{
    many(rig, side, false);
}

static void many_puts(struct rig *rig, struct side *side)
{
    many(rig, side, true);
}

static void merges(struct rig *rig, struct side *side)
{
    uint32_t merged;
    (void)rig;
    if (merge_all(side, &merged))
        fail_msg("%s", tree_session_error(side->session)->text);
}

static void samples(struct rig *rig, struct side *side)
{
    uint8_t key[KEY_BYTES];
    (void)rig;
    for (unsigned i = 0; i < 20; i++) {
        size_t length = sizeof key;
        assert_int_equal(tree_sample(side->session, side->tree, key, &length), 0);
    }
}

static void drops(struct rig *rig, struct side *side)
{
    struct tree *tree;
    assert_int_equal(tree_drop(side->session, "move", NULL, NULL), 0);
    assert_int_equal(tree_create(side->session, "move", &geometries[kind], &tree), 0);
    for (unsigned i = 0; i < SIDES; i++)
        tree_close(rig->sides[i].tree);
    side->tree = tree;
    memset(rig->values, 0, sizeof rig->values);
    for (unsigned i = 0; i < SIDES; i++)
        if (&rig->sides[i] != side) {
            rig->sides[i].tree = NULL;
            tree_open(rig->sides[i].session, "move", &rig->sides[i].tree); /* not on the dead one */
        }
}

/* Moves every node that another memory node has. */
#define LEVELS 8u /* more than there are */

/* The nodes of levels below `levels`. */
static void moves_below(struct side *side, uint16_t to, uint8_t levels, unsigned *moved)
{
    *moved = 0;
    for (uint8_t level = 0; level < levels; level++)
        for (unsigned i = 0; i <= KEYS; i++) {
            uint8_t key[KEY_BYTES];
            struct tree_move move = {.level = level, .from = POOL_ANY_NODE, .to = to, .key = key};
            move.key_length = i ? (uint32_t)key_make(i - 1, key) : 0;
            if (tree_move_node(side->session, side->tree, &move))
                fail_msg("%s", tree_session_error(side->session)->text);
            *moved += move.outcome == TREE_MOVE_DONE;
        }
}

static void moves_to(struct side *side, uint16_t to, unsigned *moved)
{
    moves_below(side, to, LEVELS, moved);
}

static void moves(struct rig *rig, struct side *side)
{
    unsigned moved;
    (void)rig;
    moves_to(side, 1, &moved);
}

static void moves_back(struct rig *rig, struct side *side)
{
    unsigned moved;
    (void)rig;
    moves_to(side, 0, &moved);
}

static const struct visitor {
    const char *name;
    void (*visit)(struct rig *rig, struct side *side);
    bool mends; /* nothing is left half done where this has been */
} visitors[] = {
    {"gets", gets, false},
    {"scans", scans, false},
    {"scans backwards", scans_backwards, false},
    {"many gets", many_gets, false},
    {"samples", samples, false},
    {"puts", puts_, false},
    {"many puts", many_puts, true},
    {"deletes", deletes, true},
    {"deletes backwards", deletes_backwards, true},
    {"merges", merges, true},
    {"moves", moves, true},
    {"moves back", moves_back, true},
    {"drops", drops, true},
};
#define VISITORS (sizeof visitors / sizeof *visitors)

/* ---- where a move is cut ---- */

/* What is moved by a mover that dies. */
struct target {
    const char *name;
    unsigned key; /* KEYS: the least */
    uint8_t level;
    unsigned keys; /* of the rig */
};
#define ROOT UINT8_MAX
static const struct target targets[] = {
    {"the first leaf", KEYS, 0, KEYS},       {"a leaf", 100, 0, KEYS},
    {"the last leaf", KEYS - 1, 0, KEYS},    {"an inner node", 100, 1, KEYS},
    {"the first inner node", KEYS, 1, KEYS}, {"the root", KEYS, ROOT, KEYS},
    {"the only leaf", KEYS, ROOT, FEW},
};
#define TARGETS (sizeof targets / sizeof *targets)

/* A root of one entry above the root, as a tree has it that has shrunk: so that every other node has a
 * parent. */
static void root_raise(struct side *side)
{
    struct tree_session *session = side->session;
    const struct format_layout *layout = &side->tree->layout;
    static uint8_t image[1024];
    struct format_link root, fresh;
    uint8_t level;
    bool swapped;
    assert_int_equal(tree_begin(session, side->tree), 0);
    tree_root_forget(side->tree);
    assert_int_equal(tree_root_get(session, side->tree, &root, &level), 0);
    assert_int_equal(pool_allocate(&session->pool, POOL_ANY_NODE, sizeof image, &fresh.address), 0);
    assert_int_equal(pool_take_tag(&session->pool, gaddr_node(fresh.address), &fresh.tag), 0);
    struct format_header header = {.tag = fresh.tag,
                                   .level = (uint8_t)(level + 1),
                                   .state = FORMAT_NODE_LIVE,
                                   .index = side->tree->index,
                                   .lower = format_key_least(layout)};
    const struct format_entry only = {header.lower, root};
    format_internal_encode(layout, &header, &only, 1, image);
    struct fabric_command write = pool_write_command(fresh.address, image, sizeof image);
    assert_int_equal(pool_execute(&session->pool, gaddr_node(fresh.address), &write, 1), 0);
    assert_int_equal(tree_root_swap(session, side->tree, root.address, fresh.address, &swapped), 0);
    assert_true(swapped);
    tree_root_set(side->tree, fresh, header.level);
}

static int move_target(struct side *side, const struct target *target, struct tree_move *move)
{
    static uint8_t key[KEY_BYTES]; /* the move names it */
    struct format_key wanted = format_key_least(&side->tree->layout);
    struct format_link root;
    struct tree_path path;
    uint8_t level = target->level;
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    if (level == ROOT)
        assert_int_equal(tree_root_get(side->session, side->tree, &root, &level), 0);
    *move = (struct tree_move){.level = level, .key = key};
    move->key_length = target->key == KEYS ? 0 : (uint32_t)key_make(target->key, key);
    if (move->key_length)
        wanted = (struct format_key){key, move->key_length};
    assert_int_equal(tree_locate(side->session, side->tree, wanted, false, level, &path), 0);
    move->from = gaddr_node(path.link.address);
    move->to = (uint16_t)(1 - move->from);
    return tree_move_node(side->session, side->tree, move);
}

static bool is_nth(const struct fabric_list *list, void *context)
{
    struct rig *rig = context;
    rig->commands = list->count;
    return ++rig->lists == rig->at;
}

/* The mover dies at the n-th list, from 1, after so many commands. False: it was done before. */
static bool move_cut(struct rig *rig, const struct target *target, unsigned at, unsigned commands)
{
    struct side *victim = &rig->sides[0];
    struct tree_move move;
    if (target->level != ROOT)
        root_raise(victim);
    assert_int_equal(get(victim, 0), rig->values[0]); /* its cache knows the way */
    assert_int_equal(get(victim, 100), rig->values[100]);
    assert_int_equal(get(victim, KEYS - 1), rig->values[KEYS - 1]);
    rig->lists = 0;
    rig->at = at;
    stepper_kill(victim->fabric, is_nth, (uint16_t)commands, rig);
    int status = move_target(victim, target, &move);
    if (!stepper_met(victim->fabric)) {
        assert_int_equal(status, 0);
        if (move.outcome != TREE_MOVE_DONE)
            fail_msg("kind %u, %s: outcome %d", kind, target->name, move.outcome);
        return false;
    }
    for (unsigned i = 0; i < NODES; i++)
        memory_node_release_locks(rig->memories[i], 1);
    return true;
}

/* *last: of the commands of that list. */
static bool cut_and_visit(const struct target *target, unsigned at, unsigned commands,
                          const struct visitor *visitor, bool *last)
{
    struct rig rig;
    struct tree_check_report report;
    rig_open_with(&rig, target->keys);
    const bool met = move_cut(&rig, target, at, commands);
    *last = commands >= rig.commands;
    if (met) {
        check(&rig, &report);
        visitor->visit(&rig, &rig.sides[1]);
        judge(&rig);
        check(&rig, &report);
        /* A dead inner node is met by those alone who have not cached what it was. */
        const bool mends = visitor->mends && (!target->level || visitor->visit == moves);
        if (mends && report.frozen + report.marked + report.dead)
            fail_msg("kind %u, %s, list %u, after %u writes: %s leave something half done", kind,
                     target->name, at, commands, visitor->name);
    }
    rig_close(&rig);
    return met;
}

static void a_move_that_is_cut_anywhere_is_finished_by_what_comes_next(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < TARGETS; i++)
            for (unsigned v = 0; v < VISITORS; v++) {
                bool met = true;
                unsigned at = 1;
                for (; met; at++) {
                    bool last = false;
                    for (unsigned commands = 0; met && !last; commands++)
                        if (!commands || (i + v + at + commands) % (kind == PLAIN ? 3 : 17) == 0)
                            met = cut_and_visit(&targets[i], at, commands, &visitors[v], &last);
                }
                assert_true(at > 6); /* copy, death, the neighbour's two, the parent's three */
            }
}

/* ---- a leaf's body is written in part ---- */

/* Mark, body, dead. */
static bool is_death_torn(const struct fabric_list *list, void *context)
{
    struct rig *rig = context;
    const struct format_layout *layout = &rig->sides[1].tree->layout;
    const uint32_t body = layout->geometry.leaf_bytes - layout->header_bytes;
    if (list->count < 3 || list->commands[0].length != layout->header_bytes ||
        list->commands[1].length != body)
        return false;
    const struct fabric_command *write = &list->commands[1];
    uint8_t *pool = memory_node_target(rig->memories[gaddr_node(write->address)])->pool;
    const struct fabric_command *mark = &list->commands[0];
    memcpy(pool + gaddr_offset(mark->address), mark->write.data, mark->length);
    for (uint32_t word = 0; word + 8 <= write->length; word += 8)
        if (random_mix(rig->dice + word) & 1)
            memcpy(pool + gaddr_offset(write->address) + word, (const uint8_t *)write->write.data + word, 8);
    rig->at = 1;
    return true;
}

static void a_move_that_is_cut_within_a_leafs_body_is_finished_too(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned dice = 1; dice <= 8; dice++)
            for (unsigned v = dice % 2; v < VISITORS; v += kind == PLAIN ? 1 : 2) {
                struct rig rig;
                struct tree_move move;
                struct tree_check_report report;
                rig_open(&rig);
                rig.dice = dice;
                stepper_kill(rig.sides[0].fabric, is_death_torn, 1, &rig);
                move_target(&rig.sides[0], &targets[1], &move);
                assert_true(stepper_met(rig.sides[0].fabric));
                for (unsigned i = 0; i < NODES; i++)
                    memory_node_release_locks(rig.memories[i], 1);
                check(&rig, &report);
                assert_int_equal(report.marked, 1);
                visitors[v].visit(&rig, &rig.sides[1]);
                judge(&rig);
                rig_close(&rig);
            }
}

/* ---- readers in the middle ---- */

static bool reads_leaf(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    return list->count == 1 && list->commands[0].operation == FABRIC_READ &&
           list->commands[0].length >= rig->sides[0].tree->layout.used_bytes &&
           list->commands[0].address == rig->leaf;
}

/* Everything moves, and then each key changes: a reader that has a part of an old leaf must not believe it.
 */
static void moves_and_puts(void *context)
{
    struct rig *rig = context;
    unsigned moved;
    moves_to(&rig->sides[1], 1, &moved);
    assert_true(moved > 4);
}

struct leaves {
    gaddr items[KEYS];
    unsigned count;
};

static void leaf_note(void *context, gaddr node, uint32_t bytes)
{
    struct leaves *leaves = context;
    if (bytes == geometries[kind].leaf_bytes)
        leaves->items[leaves->count++] = node;
}

static void leaves_find(struct rig *rig, struct leaves *leaves)
{
    struct tree_check_report report;
    struct side *eyes = &rig->sides[SIDES - 1];
    leaves->count = 0;
    assert_int_equal(tree_check(eyes->session, eyes->tree, &report, leaf_note, leaves), 0);
}

static void scan_in_two_parts(unsigned leaf, uint32_t from, uint32_t to, bool reverse)
{
    struct rig rig;
    struct leaves leaves;
    rig_open(&rig);
    struct side *reader = &rig.sides[0];
    leaves_find(&rig, &leaves);
    rig.leaf = leaves.items[leaf];
    stepper_tear(reader->fabric, reads_leaf, from, to, moves_and_puts, &rig);
    scan(&rig, reader, reverse);
    assert_true(stepper_met(reader->fabric));
    judge(&rig);
    rig_close(&rig);
}

static void a_scan_of_leaves_that_move_meanwhile_tells_each_key_once(void **state)
{
    (void)state;
    kind = PLAIN;
    for (unsigned leaf = 0; leaf < 4; leaf++)
        for (uint32_t part = 64; part < 512; part += 128) {
            scan_in_two_parts(leaf, 0, part, false);
            scan_in_two_parts(leaf, part, 512, false);
            scan_in_two_parts(leaf, 0, part, true);
            scan_in_two_parts(leaf, part, 512, true);
        }
}

/* The eyes read whole leaves: their lookups can be torn. */
static void a_key_whose_leaf_moves_while_it_is_read_is_found(void **state)
{
    (void)state;
    kind = PLAIN;
    for (uint32_t part = 64; part < 512; part += 64)
        for (unsigned late = 0; late < 2; late++) {
            struct rig rig;
            struct leaves leaves;
            rig_open(&rig);
            struct side *eyes = &rig.sides[SIDES - 1];
            leaves_find(&rig, &leaves);
            rig.leaf = leaves.items[leaves.count / 2];
            stepper_tear(eyes->fabric, reads_leaf, late ? part : 0, late ? 512 : part, moves_and_puts, &rig);
            for (unsigned number = 0; number < KEYS; number++)
                assert_int_equal(get(eyes, number), rig.values[number]);
            assert_true(stepper_met(eyes->fabric));
            rig_close(&rig);
        }
}

/* ---- what it comes to ---- */

static void away_note(void *context, gaddr node, uint32_t bytes)
{
    unsigned *away = context;
    *away += gaddr_node(node) == 0 && bytes >= 512; /* a key's block stays where it is */
}

static void everything_moves_there_and_back(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        struct tree_check_report before, after;
        unsigned moved, away = 0;
        rig_open(&rig);
        struct side *side = &rig.sides[0];
        check(&rig, &before);
        tree_session_stats_reset(side->session);
        moves_to(side, 1, &moved);
        assert_int_equal(tree_session_stats(side->session)->moves, moved);
        assert_int_equal(tree_session_stats(side->session)->operations, 0);
        check(&rig, &after);
        assert_int_equal(after.leaves, before.leaves);
        assert_int_equal(after.height, before.height);
        assert_int_equal(after.dead + after.frozen + after.marked + after.missing_parents, 0);
        struct side *eyes = &rig.sides[SIDES - 1];
        assert_int_equal(tree_check(eyes->session, eyes->tree, &after, away_note, &away), 0);
        assert_int_equal(away, 0);
        judge(&rig);
        moves_to(side, 1, &moved);
        assert_int_equal(moved, 0);
        puts_(&rig, &rig.sides[1]);
        moves_to(&rig.sides[1], 0, &moved);
        judge(&rig);
        deletes(&rig, &rig.sides[1]);
        judge(&rig);
        rig_close(&rig);
    }
}

static void a_move_costs_what_it_should(void **state)
{
    (void)state;
    kind = PLAIN;
    struct rig rig;
    struct tree_move move;
    rig_open(&rig);
    struct side *side = &rig.sides[0];
    assert_int_equal(move_target(side, &targets[1], &move), 0); /* its worker has blocks and tags then */
    tree_session_stats_reset(side->session);
    const struct target next = {"another leaf", 160, 0, KEYS};
    assert_int_equal(move_target(side, &next, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_DONE);
    /* The lock with the leaf; the copy; the death; the neighbour's lock and link; the parent's lock, the
     * copy's header, the parent. */
    assert_int_equal(tree_session_stats(side->session)->cost.round_trips, 8);
    assert_int_equal(move_target(side, &targets[TARGETS - 1], &move), 0);
    tree_session_stats_reset(side->session);
    assert_int_equal(move_target(side, &targets[TARGETS - 1], &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_DONE);
    /* The root: its lock; the copy; the death; the root word's lock, the word, the dead node, the word's
     * change, the release. */
    assert_int_equal(tree_session_stats(side->session)->cost.round_trips, 8);
    rig_close(&rig);
}

static void what_is_not_to_move_stays(void **state)
{
    (void)state;
    kind = PLAIN;
    struct rig rig;
    struct tree_check_report report;
    uint8_t key[KEY_BYTES];
    rig_open(&rig);
    struct side *side = &rig.sides[0];
    struct tree_move move = {.key = key, .from = POOL_ANY_NODE, .to = 0};
    move.key_length = (uint32_t)key_make(100, key);
    assert_int_equal(tree_move_node(side->session, side->tree, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_THERE);
    move.from = 1;
    assert_int_equal(tree_move_node(side->session, side->tree, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_THERE);
    move.level = 9;
    assert_int_equal(tree_move_node(side->session, side->tree, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_ELSEWHERE);
    move.level = 0;
    move.to = NODES;
    assert_int_equal(tree_move_node(side->session, side->tree, &move), BANYAN_EINVAL);
    assert_non_null(strstr(tree_session_error(side->session)->text, "memory node 2"));
    check(&rig, &report);
    rig_close(&rig);
}

/* However often: the tree does not grow by it. */
static void the_root_moves_and_stays_the_root(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned few = 0; few < 2; few++) {
            struct rig rig;
            struct tree_check_report before, after;
            struct tree_move move;
            rig_open_with(&rig, few ? FEW : KEYS);
            check(&rig, &before);
            for (unsigned i = 0; i < 40; i++) {
                struct side *side = &rig.sides[i % 2];
                tree_root_forget(side->tree);
                assert_int_equal(move_target(side, &targets[TARGETS - 1], &move), 0);
                assert_int_equal(move.outcome, TREE_MOVE_DONE);
                if (i % 8 == 0)
                    judge(&rig); /* by a session that has cached a former one */
            }
            check(&rig, &after);
            assert_int_equal(after.height, before.height);
            assert_int_equal(after.internals, before.internals);
            rig_close(&rig);
        }
}

/* All of the other memory node is taken. */
static void a_full_memory_node_takes_nothing(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < TARGETS; i++) {
            struct rig rig;
            struct tree_check_report report;
            struct tree_move move;
            gaddr block = GADDR_NULL;
            rig_open_with(&rig, targets[i].keys);
            struct side *side = &rig.sides[0];
            if (targets[i].level != ROOT)
                root_raise(side);
            uint64_t taken = 0;
            for (uint16_t node = 0; node < NODES; node++)
                while (!pool_allocate_beside(&side->session->pool, node, 1024, &block))
                    taken++;
            while (!pool_allocate_beside(&side->session->pool, 0, 512, &block))
                taken++;
            assert_int_equal(move_target(side, &targets[i], &move), 0);
            assert_int_equal(move.outcome, TREE_MOVE_FULL);
            assert_int_equal(
                side_lost(rig.sides, SIDES, rig.memories, NODES, rig.sides[SIDES - 1].tree, &report), taken);
            assert_int_equal(report.dead + report.marked, 0);
            rig_close(&rig);
        }
}

/* No leaf with another tag takes what fills every slot of this one. */
static void a_leaf_that_is_full_to_the_last_slot_is_halved_first(void **state)
{
    (void)state;
    kind = PLAIN;
    struct rig rig;
    struct tree_check_report report;
    struct tree_path path;
    struct tree_move move;
    rig_open(&rig);
    struct side *side = &rig.sides[0];
    const struct format_geometry large = {.key_bytes = 8, .value_bytes = VALUE, .leaf_bytes = 4096};
    tree_close(side->tree);
    assert_int_equal(tree_create(side->session, "full", &large, &side->tree), 0);
    const struct format_layout *layout = &side->tree->layout;
    unsigned filled = 0;
    for (unsigned number = 0; number < 0x10000 && filled < layout->slots; number++) {
        uint8_t key[KEY_BYTES];
        struct format_key wanted = {key, (uint32_t)key_make(number, key)};
        struct format_bucket bucket;
        struct format_header header;
        assert_int_equal(tree_begin(side->session, side->tree), 0);
        assert_int_equal(tree_locate(side->session, side->tree, wanted, false, 0, &path), 0);
        const uint8_t *leaf = memory_node_target(rig.memories[gaddr_node(path.link.address)])->pool +
                              gaddr_offset(path.link.address);
        assert_true(format_header_decode(layout, leaf, &header));
        format_bucket_of(layout, path.link.tag, wanted, &bucket);
        if (format_bucket_free_slot(layout, leaf, &bucket, format_slot_seed(header.tag, header.version)) ==
            UINT32_MAX)
            continue;
        uint8_t value[VALUE] = {1};
        assert_int_equal(tree_upsert(side->session, side->tree, key, wanted.length, value, VALUE), 0);
        filled++;
    }
    assert_int_equal(filled, layout->slots);
    assert_int_equal(tree_check(side->session, side->tree, &report, NULL, NULL), 0);
    const uint64_t leaves = report.leaves;
    const struct target last = {"the leaf", KEYS, 0, 0};
    assert_int_equal(move_target(side, &last, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_DONE);
    assert_int_equal(tree_check(side->session, side->tree, &report, NULL, NULL), 0);
    assert_int_equal(report.leaves, leaves + 1);
    assert_int_equal(report.entries, filled);
    rig_close(&rig);
}

/* ---- a walk after which nothing is there ---- */

static uint16_t leave(void *context, gaddr address, uint32_t bytes, uint32_t top_tag)
{
    const uint16_t *from = context, node = gaddr_node(address);
    (void)bytes;
    (void)top_tag;
    return node == *from ? (uint16_t)(1 - node) : POOL_ANY_NODE;
}

struct left {
    uint16_t node;
    unsigned count;
};

static void left_note(void *context, gaddr block, uint32_t bytes)
{
    struct left *left = context;
    left->count += gaddr_node(block) == left->node && bytes >= 512; /* a key's block stays where it is */
}

/* Until nothing is left to move, as far as it can tell. */
static void walk_off(struct rig *rig, struct side *side, uint16_t from)
{
    const struct tree_move_choice choice = {.where = leave, .context = &from, .all = true};
    struct left left = {.node = from};
    struct tree_check_report report;
    struct tree_move_report moved;
    unsigned passes = 0;
    do {
        struct tree_move_walk walk = {0};
        moved = (struct tree_move_report){0};
        while (!walk.ended)
            if (tree_move_step(side->session, side->tree, &walk, &choice, &moved))
                fail_msg("%s", tree_session_error(side->session)->text);
        assert_true(++passes < 6);
    } while (moved.outcomes[TREE_MOVE_DONE] + moved.outcomes[TREE_MOVE_LATER]);
    check(rig, &report);
    assert_int_equal(report.missing_parents, 0);
    struct side *eyes = &rig->sides[SIDES - 1];
    assert_int_equal(tree_check(eyes->session, eyes->tree, &report, left_note, &left), 0);
    assert_int_equal(left.count, 0);
}

/* The lock of an inner node, which is read with it. */
static bool locks_parent(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    const struct fabric_command *commands = list->commands;
    return list->count == 2 && commands[0].operation == FABRIC_CAS && commands[1].operation == FABRIC_READ &&
           commands[1].length == rig->sides[0].tree->layout.geometry.internal_bytes;
}

/* The splitter dies before it has posted the separator. */
static void a_leaf_that_no_parent_names_leaves_too(void **state)
{
    (void)state;
    for (uint16_t from = 0; from < NODES; from++) {
        struct rig rig;
        struct tree_check_report report;
        kind = PLAIN;
        rig_open_with(&rig, KEYS / 2);
        struct side *victim = &rig.sides[0];
        stepper_kill(victim->fabric, locks_parent, 0, &rig);
        for (unsigned i = KEYS / 2; i < KEYS && !stepper_met(victim->fabric); i++) {
            assert_int_equal(put(victim, i, 4), 0);
            rig.values[i] = 4;
        }
        assert_true(stepper_met(victim->fabric));
        for (unsigned i = 0; i < NODES; i++)
            memory_node_release_locks(rig.memories[i], 1);
        check(&rig, &report);
        assert_int_equal(report.missing_parents, 1);
        walk_off(&rig, &rig.sides[1], from);
        rig_close(&rig);
    }
}

/* The mover dies, wherever, and its copy lies where nothing is to stay. */
static void the_copy_of_a_move_that_was_cut_leaves_too(void **state)
{
    (void)state;
    kind = PLAIN;
    for (unsigned i = 0; i < TARGETS; i++) {
        bool met = true;
        for (unsigned at = 1; met; at++)
            for (uint16_t from = 0; from < NODES && met; from++) {
                struct rig rig;
                rig_open_with(&rig, targets[i].keys);
                met = move_cut(&rig, &targets[i], at, 0);
                walk_off(&rig, &rig.sides[1], from);
                judge(&rig);
                rig_close(&rig);
            }
    }
}

/* ---- a memory node that was removed ---- */

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

static bool is_not_to_be_had(struct fabric *fabric)
{
    (void)fabric;
    return false;
}

/* From now on the side's compute node posts nothing to the memory nodes but the first: by the home node's
 * list there are no others; or, where that is not to be had, it has not heard of others yet. */
static void first_alone_is_known(struct side *side, struct fabric_ops *ops, bool listed)
{
    static const struct fabric_cluster_ops cluster = {only_the_first, learns_nothing, is_fresh};
    static const struct fabric_cluster_ops without = {only_the_first, learns_nothing, is_not_to_be_had};
    *ops = *side->fabric->ops;
    ops->cluster = listed ? &cluster : &without;
    side->fabric->ops = ops;
}

static void others_are_removed(struct side *side, struct fabric_ops *ops)
{
    first_alone_is_known(side, ops, true);
}

/* All nodes of levels below `levels` have been there, and the visitor's cache has them there. */
static void visit_after_removal(const struct visitor *visitor, uint8_t levels)
{
    struct rig rig;
    struct fabric_ops ops;
    unsigned moved;
    rig_open(&rig);
    walk_off(&rig, &rig.sides[0], 1);
    moves_below(&rig.sides[0], 1, levels, &moved);
    assert_true(moved > 8);
    for (unsigned i = 0; i < SIDES; i++)
        gets(&rig, &rig.sides[i]);
    walk_off(&rig, &rig.sides[0], 1);
    others_are_removed(&rig.sides[1], &ops);
    visitor->visit(&rig, &rig.sides[1]);
    judge(&rig);
    rig_close(&rig);
}

/* R6. Nothing is to be moved to one that was removed. */
static void cached_links_to_one_that_was_removed_are_forgotten(void **state)
{
    static const uint8_t levels[] = {1, LEVELS}; /* leaves alone; the root too */
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned v = 0; v < VISITORS; v++)
            for (unsigned i = 0; i < 2 && visitors[v].visit != moves && visitors[v].visit != drops; i++)
                visit_after_removal(&visitors[v], levels[i]);
}

/* One leaf alone lies on the second memory node, and the compute node knows the first alone: what a lookup of
 * that leaf's key comes to. */
static void look_where_the_first_alone_is_known(bool listed, int expected, const char *what)
{
    struct rig rig;
    struct fabric_ops ops;
    const struct fabric_ops *before;
    uint8_t key[KEY_BYTES], value[VALUE];
    size_t length = sizeof value;
    kind = PLAIN;
    rig_open(&rig);
    struct side *side = &rig.sides[1];
    walk_off(&rig, side, 1); /* the leaf goes back there */
    const size_t key_length = key_make(0, key);
    struct tree_move move = {.from = POOL_ANY_NODE, .to = 1, .key = key, .key_length = (uint32_t)key_length};
    assert_int_equal(tree_move_node(side->session, side->tree, &move), 0);
    assert_int_equal(move.outcome, TREE_MOVE_DONE);
    before = side->fabric->ops;
    first_alone_is_known(side, &ops, listed);
    assert_int_equal(tree_lookup(side->session, side->tree, key, key_length, value, &length), expected);
    if (!strstr(tree_session_error(side->session)->text, what))
        fail_msg("%s", tree_session_error(side->session)->text);
    side->fabric->ops = before;
    gets(&rig, side);
    rig_close(&rig);
}

/* A link that leads there though it is read anew is no old one. */
static void a_link_in_the_pool_to_one_that_was_removed_is_corrupt(void **state)
{
    (void)state;
    look_where_the_first_alone_is_known(true, BANYAN_ECORRUPT, "was removed");
}

/* It may have joined a moment ago: nobody knows that the link is wrong. */
static void a_link_to_one_that_may_have_joined_is_not_corrupt(void **state)
{
    (void)state;
    look_where_the_first_alone_is_known(false, BANYAN_ENET, "may have joined");
}

/* ---- ranges ---- */

static void adopt(struct side *side, uint64_t version, enum tree_right low, enum tree_right high)
{
    static uint8_t key[KEY_BYTES];
    const struct fabric_process other = {.compute_id = 9, .instance = 1};
    struct tree_rights_row rows[2] = {
        {.lower = key, .right = low, .epoch = version},
        {.lower = key, .lower_length = (uint32_t)key_make(100, key), .right = high, .epoch = version}};
    if (high == TREE_OTHERS)
        rows[1].owner = other;
    assert_int_equal(tree_rights_adopt(side->session, side->tree, version, 1, rows, 2), 0);
}

static enum tree_move_outcome moved(struct side *side, unsigned number)
{
    const struct target target = {"", number, 0, KEYS};
    struct tree_move move;
    assert_int_equal(move_target(side, &target, &move), 0);
    return move.outcome;
}

static void leaves_move_by_who_has_the_right_to_them(void **state)
{
    (void)state;
    kind = PLAIN;
    struct rig rig;
    uint8_t key[KEY_BYTES];
    rig_open(&rig);
    struct side *side = &rig.sides[0];
    adopt(side, 1, TREE_SHARED, TREE_SHARED);
    const size_t length = key_make(100, key);
    assert_int_equal(tree_border_make(side->session, side->tree, key, length), 0);
    for (unsigned owned = 0; owned < 2; owned++) {
        const enum tree_right right = owned ? TREE_OWNED : TREE_SHARED;
        adopt(side, 2 + 2 * owned, right, right);
        assert_int_equal(moved(side, 100), TREE_MOVE_FIRST);
        assert_int_equal(moved(side, KEYS), TREE_MOVE_DONE); /* nothing lies left of the leftmost */
        assert_int_equal(moved(side, 60), TREE_MOVE_DONE);
        assert_int_equal(moved(side, KEYS - 1), TREE_MOVE_DONE);
        adopt(side, 3 + 2 * owned, right, owned ? TREE_OTHERS : TREE_MOVING);
        assert_int_equal(moved(side, KEYS - 1), owned ? TREE_MOVE_OTHERS : TREE_MOVE_LATER);
        assert_int_equal(moved(side, 60), TREE_MOVE_DONE);
        for (unsigned i = 0; i < 100; i++)
            assert_int_equal(get(side, i), rig.values[i]);
    }
    judge(&rig);
    rig_close(&rig);
}

/* ---- the root's word ---- */

static bool writes_root(const struct fabric_list *list, void *context)
{
    (void)context;
    return list->count == 1 && list->commands[0].operation == FABRIC_WRITE &&
           list->commands[0].length == 1024;
}

static gaddr root_of(struct side *side)
{
    struct format_link root;
    uint8_t level;
    tree_root_forget(side->tree);
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    assert_int_equal(tree_root_get(side->session, side->tree, &root, &level), 0);
    return root.address;
}

/* The root moves, until its copy lies where it lay. */
static void root_used_again(void *context)
{
    struct rig *rig = context;
    struct side *other = &rig->sides[1];
    const gaddr old = root_of(other);
    struct tree_move move;
    for (unsigned i = 0; i < 8 && (!i || root_of(other) != old); i++) {
        assert_int_equal(move_target(other, &targets[TARGETS - 1], &move), 0);
        assert_int_equal(move.outcome, TREE_MOVE_DONE);
    }
    rig->leaf = root_of(other) == old ? old : GADDR_NULL;
}

/* The root splits, and is moved before it has got a parent. */
static void a_root_in_the_place_of_another_is_not_taken_for_it(void **state)
{
    (void)state;
    kind = PLAIN;
    struct rig rig;
    rig_open_with(&rig, FEW);
    struct side *held = &rig.sides[0];
    const gaddr root = root_of(held);
    stepper_hold(held->fabric, writes_root, root_used_again, &rig);
    for (unsigned i = FEW; i < KEYS && !stepper_met(held->fabric); i++) {
        assert_int_equal(put(held, i, 3), 0);
        rig.values[i] = 3;
    }
    assert_true(stepper_met(held->fabric));
    assert_true(rig.leaf == root); /* it was used again */
    gets(&rig, &rig.sides[SIDES - 1]);
    gets(&rig, held);
    rig_close(&rig);
}

/* A lock under which no node is read: the root word's. */
static bool locks_root_word(const struct fabric_list *list, void *context)
{
    (void)context;
    return list->count == 1 && list->commands[0].operation == FABRIC_CAS;
}

static void root_is_read(void *context)
{
    struct rig *rig = context;
    struct side *eyes = &rig->sides[SIDES - 1];
    const gaddr root = root_of(eyes);
    rig->met = root != rig->leaf;
}

/* The mover has died, and two meet the dead root: the later one finds that all is done. */
static void a_dead_root_is_left_once(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        unsigned left = 0;
        bool met = true;
        for (unsigned at = 1; met; at++) {
            struct rig rig;
            struct tree_check_report report;
            rig_open_with(&rig, FEW);
            struct side *held = &rig.sides[1];
            rig.leaf = root_of(held);
            met = move_cut(&rig, &targets[TARGETS - 1], at, 0);
            stepper_hold(held->fabric, locks_root_word, root_is_read, &rig);
            assert_int_equal(put(held, 0, 5), 0);
            rig.values[0] = 5;
            left += stepper_met(held->fabric) && rig.met;
            check(&rig, &report);
            assert_int_equal(report.dead + report.marked, 0);
            rig_close(&rig);
        }
        assert_true(left > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_moves_there_and_back),
        cmocka_unit_test(a_move_costs_what_it_should),
        cmocka_unit_test(what_is_not_to_move_stays),
        cmocka_unit_test(the_root_moves_and_stays_the_root),
        cmocka_unit_test(a_full_memory_node_takes_nothing),
        cmocka_unit_test(a_leaf_that_is_full_to_the_last_slot_is_halved_first),
        cmocka_unit_test(a_leaf_that_no_parent_names_leaves_too),
        cmocka_unit_test(the_copy_of_a_move_that_was_cut_leaves_too),
        cmocka_unit_test(cached_links_to_one_that_was_removed_are_forgotten),
        cmocka_unit_test(a_link_in_the_pool_to_one_that_was_removed_is_corrupt),
        cmocka_unit_test(a_link_to_one_that_may_have_joined_is_not_corrupt),
        cmocka_unit_test(leaves_move_by_who_has_the_right_to_them),
        cmocka_unit_test(a_root_in_the_place_of_another_is_not_taken_for_it),
        cmocka_unit_test(a_dead_root_is_left_once),
        cmocka_unit_test(a_move_that_is_cut_anywhere_is_finished_by_what_comes_next),
        cmocka_unit_test(a_move_that_is_cut_within_a_leafs_body_is_finished_too),
        cmocka_unit_test(a_scan_of_leaves_that_move_meanwhile_tells_each_key_once),
        cmocka_unit_test(a_key_whose_leaf_moves_while_it_is_read_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
