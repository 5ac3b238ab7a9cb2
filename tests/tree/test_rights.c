/*
 * test_rights.c - ranges with owners (rights.h), step by step, on two or three compute nodes of one thread:
 * tables that contradict themselves, operations of each right and what they cost, borders, leaves that an
 * owner has left half done, and that adopting waits (O1; on threads).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "owners.h"
#include "side.h"
#include "stepper.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/owned_cache.h"
#include "tree/session.h"

#define SIDES       3u
#define VALUE_BYTES 80u /* four slots in a leaf */
#define STEP        100u

enum { A, B, C };

struct rig {
    struct memory_node *memory;
    struct side sides[SIDES];
    struct owners_way ways[SIDES]; /* of each to the others */
    uint64_t version;
    unsigned anew; /* bits: rows that have had another owner meanwhile, so that their epoch is a later one */
    unsigned logged; /* bits: rows whose owner writes them by its log, where they have one */
};

static void rig_open(struct rig *rig)
{
    const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = VALUE_BYTES, .leaf_bytes = 512, .internal_bytes = 1024};
    struct memory_options options = {.pool_bytes = 64 << 20};
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    for (uint16_t i = 0; i < SIDES; i++)
        side_open(&rig->sides[i], rig->memory, (uint16_t)(i + 1), TREE_READ_BUCKET);
    assert_int_equal(tree_format(rig->sides[A].session), 0);
    assert_int_equal(tree_create(rig->sides[A].session, "ranges", &geometry, &rig->sides[A].tree), 0);
    for (unsigned i = 1; i < SIDES; i++)
        assert_int_equal(tree_open(rig->sides[i].session, "ranges", &rig->sides[i].tree), 0);
    for (unsigned i = 0; i < SIDES; i++) {
        rig->ways[i].waits_max = 100;
        tree_compute_set_forward(rig->sides[i].compute, &owners_forward, &rig->ways[i]);
        for (unsigned j = 0; j < SIDES; j++)
            if (j != i)
                rig->ways[i].peers[rig->ways[i].count++] = (struct owners_peer){
                    fabric_self(rig->sides[j].fabric), rig->sides[j].session, rig->sides[j].tree};
    }
}

/* By the eyes of the last compute node, which lives in every test. */
static void rig_close(struct rig *rig, struct tree_check_report *report)
{
    struct tree_check_report own;
    side_account(rig->sides, SIDES, rig->memory, rig->sides[SIDES - 1].tree, 0, report ? report : &own);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
}

static void key_make(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number >> (56 - 8 * i));
}

/* ---- tables -------------------------------------------------------------------------------------- */

enum { SHARED = SIDES, MOVING, LEAVING }; /* leaving: moving, and its owner merges what it has logged */
struct part {
    uint64_t from;  /* 0: the least key */
    unsigned owner; /* a side, SHARED or MOVING */
};

static int adopt_in(struct rig *rig, unsigned side, const struct part *parts, uint32_t count,
                    uint64_t incarnation)
{
    struct tree_rights_row rows[8];
    uint8_t keys[8][8];
    for (uint32_t i = 0; i < count; i++) {
        key_make(parts[i].from, keys[i]);
        rows[i] = (struct tree_rights_row){.lower = keys[i],
                                           .lower_length = parts[i].from ? 8 : 0,
                                           .epoch = 1 + (rig->anew >> i & 1),
                                           .right = parts[i].owner == SHARED    ? TREE_SHARED
                                                    : parts[i].owner == MOVING  ? TREE_MOVING
                                                    : parts[i].owner == LEAVING ? TREE_MOVING
                                                    : parts[i].owner == side    ? TREE_OWNED
                                                                                : TREE_OTHERS};
        if (rows[i].right == TREE_OTHERS)
            rows[i].owner = fabric_self(rig->sides[parts[i].owner].fabric);
        rows[i].logged = parts[i].owner < SIDES && rig->logged >> i & 1;
        rows[i].drains = parts[i].owner == LEAVING;
    }
    return tree_rights_adopt(rig->sides[side].session, rig->sides[side].tree, rig->version, incarnation, rows,
                             count);
}

static int adopt(struct rig *rig, unsigned side, const struct part *parts, uint32_t count)
{
    return adopt_in(rig, side, parts, count, 1);
}

static void adopt_all(struct rig *rig, const struct part *parts, uint32_t count)
{
    rig->version++;
    for (unsigned i = 0; i < SIDES; i++)
        assert_int_equal(adopt(rig, i, parts, count), 0);
}

/* ---- operations ---------------------------------------------------------------------------------- */

static int put(struct rig *rig, unsigned side, uint64_t number, uint8_t what)
{
    uint8_t key[8], value[VALUE_BYTES];
    key_make(number, key);
    memset(value, what, sizeof value);
    return tree_upsert(rig->sides[side].session, rig->sides[side].tree, key, 8, value, sizeof value);
}

static int get(struct rig *rig, unsigned side, uint64_t number)
{
    uint8_t key[8], value[VALUE_BYTES];
    size_t length = sizeof value;
    key_make(number, key);
    int status = tree_lookup(rig->sides[side].session, rig->sides[side].tree, key, 8, value, &length);
    return status ? status : value[0];
}

static int drop(struct rig *rig, unsigned side, uint64_t number)
{
    uint8_t key[8];
    key_make(number, key);
    return tree_delete(rig->sides[side].session, rig->sides[side].tree, key, 8);
}

static bool count_one(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    ++*(uint64_t *)context;
    return true;
}

static uint64_t scan(struct rig *rig, unsigned side, bool reverse)
{
    const struct tree_range range = {.reverse = reverse};
    uint64_t seen = 0;
    assert_int_equal(tree_scan(rig->sides[side].session, rig->sides[side].tree, &range, count_one, &seen), 0);
    return seen;
}

static void fill(struct rig *rig, unsigned side, uint64_t count)
{
    for (uint64_t i = 1; i <= count; i++)
        assert_int_equal(put(rig, side, i * STEP, 1), 0);
}

static int border(struct rig *rig, unsigned side, uint64_t number)
{
    uint8_t key[8];
    key_make(number, key);
    return tree_border_make(rig->sides[side].session, rig->sides[side].tree, key, 8);
}

/* Where the leaf of the key begins. */
static uint64_t leaf_begin(struct rig *rig, unsigned side, uint64_t number)
{
    const struct side *s = &rig->sides[side];
    struct tree_path path;
    struct format_header header;
    uint8_t key[8];
    uint64_t begin = 0;
    key_make(number, key);
    assert_int_equal(tree_begin(s->session, s->tree), 0);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(tree_locate(s->session, s->tree, (struct format_key){key, 8}, false, 0, &path), 0);
        struct fabric_command read =
            pool_read_command(path.link.address, s->session->image.bytes, s->tree->layout.header_bytes);
        assert_int_equal(pool_execute(&s->session->pool, 0, &read, 1), 0);
        pool_read_settle(&read);
        if (format_header_valid(&s->tree->layout, s->session->image.bytes) &&
            format_header_decode(&s->tree->layout, s->session->image.bytes, &header) &&
            header.state == FORMAT_NODE_LIVE && header.tag == path.link.tag &&
            !format_header_side(&header, (struct format_key){key, 8}))
            break;
        tree_path_forget(s->session, s->tree, &path);
    }
    assert_int_equal(format_header_side(&header, (struct format_key){key, 8}), 0);
    for (unsigned i = 0; i < header.lower.length; i++)
        begin = begin << 8 | header.lower.bytes[i];
    return begin;
}

/* ---- tables that are none ------------------------------------------------------------------------ */

static void tables_are_checked(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct tree_session *session = rig.sides[A].session;
    struct tree *tree = rig.sides[A].tree;
    const struct fabric_process self = fabric_self(rig.sides[A].fabric),
                                other = fabric_self(rig.sides[B].fabric);
    struct tree_rights_row good[2] = {
        {.right = TREE_OWNED}, {.lower = (const uint8_t *)"k", .lower_length = 1, .right = TREE_SHARED}};
    struct tree_rights_row rows[2];
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, good, 0), BANYAN_EINVAL);
    assert_non_null(strstr(tree_session_error(session)->text, "no range"));
    memcpy(rows, good, sizeof rows);
    rows[0].lower = (const uint8_t *)"a";
    rows[0].lower_length = 1;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    assert_non_null(strstr(tree_session_error(session)->text, "least key"));
    memcpy(rows, good, sizeof rows);
    rows[1].lower_length = 0;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    assert_non_null(strstr(tree_session_error(session)->text, "range 1"));
    rows[1].lower_length = FORMAT_KEY_MAX + 1;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    memcpy(rows, good, sizeof rows);
    rows[1].right = (enum tree_right)9;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    rows[1].right = TREE_OTHERS;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    rows[1].owner = self;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    assert_int_equal(tree_rights_version(tree), 0);
    memcpy(rows, good, sizeof rows);
    rows[1].logged = true;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    rows[1].right = TREE_MOVING;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), BANYAN_EINVAL);
    rows[1].right = TREE_OTHERS;
    rows[1].owner = other;
    assert_int_equal(tree_rights_adopt(session, tree, 5, 1, rows, 2), 0);
    assert_int_equal(tree_rights_version(tree), 5);
    /* An older one changes nothing. */
    assert_int_equal(tree_rights_adopt(session, tree, 4, 1, good, 2), 0);
    assert_int_equal(tree_rights_version(tree), 5);
    struct tree_exchange exchange = {.key = "zzzzzzzz", .key_length = 8};
    assert_int_equal(tree_exchange_here(session, tree, &exchange), BANYAN_EFENCED);
    rig_close(&rig, NULL);
}

/* The table that an index begins with is of no map, and no loss of a connection makes it doubtful. The first
 * map replaces it, whatever its version: 0 is that of a map in which nothing was ever changed. */
static void a_first_map_has_any_version(void **state)
{
    struct rig rig;
    uint64_t incarnation;
    rig_open(&rig);
    const struct side *side = &rig.sides[A];
    assert_int_equal(tree_rights_at(side->tree, "k", 1, &incarnation), TREE_SHARED);
    assert_true(incarnation == UINT64_MAX);
    assert_int_equal(adopt(&rig, A, (const struct part[]){{0, B}}, 1), 0);
    assert_int_equal(tree_rights_version(side->tree), 0);
    assert_int_equal(tree_rights_at(side->tree, "k", 1, &incarnation), TREE_OTHERS);
    assert_int_equal(incarnation, 1);
    /* From then on only later ones do. */
    assert_int_equal(adopt(&rig, A, (const struct part[]){{0, A}}, 1), 0);
    assert_int_equal(tree_rights_at(side->tree, "k", 1, &incarnation), TREE_OTHERS);
    rig_close(&rig, NULL);
}

/* ---- operations by right ------------------------------------------------------------------------- */

static enum tree_verdict increment(void *context, const void *old, size_t old_length, void *value,
                                   size_t *length)
{
    ++*(unsigned *)context;
    memset(value, old ? ((const uint8_t *)old)[0] + 1 : 1, VALUE_BYTES);
    *length = VALUE_BYTES;
    return TREE_PUT;
}

/* 29 keys, of which the first third is A's, the second B's, and the last shared. */
static void open_divided(struct rig *rig)
{
    const struct part parts[] = {{0, A}, {1000, B}, {2000, SHARED}};
    rig_open(rig);
    fill(rig, C, 29);
    adopt_all(rig, (const struct part[]){{0, SHARED}, {1000, SHARED}, {2000, SHARED}}, 3);
    assert_int_equal(border(rig, A, 1000), 0);
    assert_int_equal(border(rig, A, 2000), 0);
    adopt_all(rig, parts, 3);
}

static void operations_go_to_the_owner(void **state)
{
    struct rig rig;
    struct tree_check_report report;
    open_divided(&rig);
    for (unsigned side = 0; side < SIDES; side++)
        for (uint64_t i = 1; i < 30; i++) {
            struct owners_way *way = &rig.ways[side];
            uint64_t exchanges = way->exchanges, lookups = way->lookups;
            unsigned owner = i < 10 ? A : i < 20 ? B : side;
            bool forwarded = owner != side;
            uint8_t key[8], value[VALUE_BYTES] = {0}, other[VALUE_BYTES] = {9};
            key_make(i * STEP + 1, key);
            struct tree_session *session = rig.sides[side].session;
            struct tree *tree = rig.sides[side].tree;
            assert_int_equal(tree_update(session, tree, key, 8, value, VALUE_BYTES), BANYAN_ENOTFOUND);
            assert_int_equal(tree_delete(session, tree, key, 8), BANYAN_ENOTFOUND);
            assert_int_equal(
                tree_compare_and_set(session, tree, key, 8, value, VALUE_BYTES, other, VALUE_BYTES),
                BANYAN_ENOTFOUND);
            assert_int_equal(tree_insert(session, tree, key, 8, value, VALUE_BYTES), 0);
            assert_int_equal(tree_insert(session, tree, key, 8, value, VALUE_BYTES), BANYAN_EEXIST);
            assert_int_equal(
                tree_compare_and_set(session, tree, key, 8, other, VALUE_BYTES, value, VALUE_BYTES),
                BANYAN_ECONFLICT);
            assert_int_equal(
                tree_compare_and_set(session, tree, key, 8, value, VALUE_BYTES, other, VALUE_BYTES), 0);
            unsigned called = 0;
            assert_int_equal(tree_modify(session, tree, key, 8, increment, &called), 0);
            assert_int_equal(called, 1);
            assert_int_equal(get(&rig, side, i * STEP + 1), 10);
            assert_int_equal(get(&rig, (side + 1) % SIDES, i * STEP + 1), 10);
            assert_int_equal(tree_delete(session, tree, key, 8), 0);
            assert_int_equal(get(&rig, side, i * STEP + 1), BANYAN_ENOTFOUND);
            assert_int_equal(way->exchanges - exchanges, forwarded ? 9 : 0);
            assert_int_equal(way->lookups, lookups); /* reads are one-sided */
        }
    for (unsigned side = 0; side < SIDES; side++) {
        assert_int_equal(scan(&rig, side, false), 29);
        assert_int_equal(scan(&rig, side, true), 29);
    }
    /* For another process only the owner does anything: what is shared that one can do itself. */
    for (unsigned side = 0; side < SIDES; side++)
        for (uint64_t number = 501; number < 3000; number += 1000) {
            uint8_t key[8], value[VALUE_BYTES] = {0};
            size_t length = sizeof value;
            bool mine = side == number / 1000 && number < 2000;
            struct tree_exchange exchange = {.key = key, .key_length = 8, .value = NULL};
            key_make(number, key);
            assert_int_equal(tree_exchange_here(rig.sides[side].session, rig.sides[side].tree, &exchange),
                             mine ? 0 : BANYAN_EFENCED);
            assert_int_equal(
                tree_lookup_here(rig.sides[side].session, rig.sides[side].tree, key, 8, value, &length),
                mine ? BANYAN_ENOTFOUND : BANYAN_EFENCED);
        }
    rig_close(&rig, &report);
    assert_int_equal(report.entries, 29);
}

/* ---- logged ranges of others --------------------------------------------------------------------- */

/* What a scan met: the numbers of the keys, whose values say where they come from. */
struct met {
    unsigned count, stop; /* stop: after so many; 0: never */
    uint64_t numbers[64];
};

static bool meet(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct met *met = context;
    uint64_t number = 0;
    for (unsigned i = 0; i < 8; i++)
        number = number << 8 | ((const uint8_t *)key)[i];
    assert_int_equal(key_length, 8);
    assert_int_equal(length, VALUE_BYTES);
    assert_int_equal(((const uint8_t *)value)[0], 1);
    met->numbers[met->count++] = number;
    return met->count != met->stop;
}

/* Keys `from` to `to` (0: no bound), each end open or not; what is met must be all multiples of STEP there.
 */
static void meet_range(struct rig *rig, unsigned side, uint64_t from, uint64_t to, unsigned open,
                       bool reverse, uint64_t limit, unsigned stop)
{
    uint8_t from_key[8], to_key[8];
    const struct tree_range range = {.from = from ? from_key : NULL,
                                     .from_length = 8,
                                     .from_open = open & 1,
                                     .to = to ? to_key : NULL,
                                     .to_length = 8,
                                     .to_open = open & 2,
                                     .reverse = reverse,
                                     .limit = limit};
    struct met met = {.stop = stop};
    uint64_t wanted[64];
    unsigned count = 0;
    key_make(from, from_key);
    key_make(to, to_key);
    for (unsigned i = 0; i < 29; i++) {
        uint64_t number = (reverse ? 29 - i : i + 1) * (uint64_t)STEP;
        if ((from && (number < from || (number == from && open & 1))) ||
            (to && (number > to || (number == to && open & 2))))
            continue;
        if ((!limit || count < limit) && (!stop || count < stop))
            wanted[count++] = number;
    }
    assert_int_equal(tree_scan(rig->sides[side].session, rig->sides[side].tree, &range, meet, &met), 0);
    assert_int_equal(met.count, count);
    assert_memory_equal(met.numbers, wanted, count * sizeof wanted[0]);
}

/* A third is A's, the next B's, both logged, the last is shared; C may answer nothing of the first two from
 * the pool. */
static void open_logged(struct rig *rig)
{
    open_divided(rig);
    rig->logged = 3;
    adopt_all(rig, (const struct part[]){{0, A}, {1000, B}, {2000, SHARED}}, 3);
}

static void points_of_logged_ranges_come_from_the_owner(void **state)
{
    struct rig rig;
    open_logged(&rig);
    for (unsigned side = 0; side < SIDES; side++)
        for (uint64_t i = 1; i < 30; i++) {
            struct owners_way *way = &rig.ways[side];
            const uint64_t lookups = way->lookups, exchanges = way->exchanges;
            struct tree_session *session = rig.sides[side].session;
            const bool asks = i < 20 && side != (i < 10 ? A : B);
            unsigned called = 0;
            uint8_t key[8];
            tree_session_stats_reset(session);
            assert_int_equal(get(&rig, side, i * STEP), 1);
            assert_int_equal(get(&rig, side, i * STEP + 1), BANYAN_ENOTFOUND);
            assert_int_equal(way->lookups - lookups, asks ? 2 : 0);
            if (asks)
                assert_int_equal(tree_session_stats(session)->cost.round_trips, 0);
            /* A function decides on what the owner has. */
            key_make(i * STEP + 1, key);
            assert_int_equal(tree_modify(session, rig.sides[side].tree, key, 8, increment, &called), 0);
            assert_int_equal(tree_modify(session, rig.sides[side].tree, key, 8, increment, &called), 0);
            assert_int_equal(called, 2);
            assert_int_equal(way->lookups - lookups, asks ? 4 : 0);
            assert_int_equal(way->exchanges - exchanges, asks ? 2 : 0);
            assert_int_equal(get(&rig, side, i * STEP + 1), 2);
            assert_int_equal(drop(&rig, side, i * STEP + 1), 0);
            if (asks)
                assert_int_equal(tree_session_stats(session)->cost.round_trips, 0);
        }
    rig_close(&rig, NULL);
}

static void batches_of_logged_ranges_come_from_the_owners(void **state)
{
    struct rig rig;
    open_logged(&rig);
    uint8_t keys[31][8], values[31][VALUE_BYTES];
    struct tree_item items[31];
    for (unsigned side = 0; side < SIDES; side++) {
        struct owners_way *way = &rig.ways[side];
        const uint64_t lookups = way->lookups, batches = way->batches;
        for (unsigned i = 0; i < 31; i++) { /* one of them twice, one that there is not */
            uint64_t number = i == 30 ? 15 * STEP : i == 29 ? 1001 : (i + 1) * (uint64_t)STEP;
            key_make(number, keys[i]);
            items[i] = (struct tree_item){
                .key = keys[i], .key_length = 8, .value = values[i], .length = VALUE_BYTES};
        }
        assert_int_equal(tree_multi_get(rig.sides[side].session, rig.sides[side].tree, items, 31), 0);
        for (unsigned i = 0; i < 31; i++) {
            assert_int_equal(items[i].status, i == 29 ? BANYAN_ENOTFOUND : 0);
            if (i != 29)
                assert_int_equal(values[i][0], 1);
        }
        assert_int_equal(way->lookups - lookups, side == A ? 12 : side == B ? 9 : 21);
        assert_int_equal(way->batches - batches, side == C ? 2 : 1);
    }
    /* An owner that is not there is waited for, item by item; one that does not fit says so. */
    struct owners_way *way = &rig.ways[C];
    way->count = 1; /* A's alone */
    for (unsigned i = 0; i < 31; i++)
        items[i].length = i == 3 ? VALUE_BYTES - 1 : VALUE_BYTES;
    assert_int_equal(tree_multi_get(rig.sides[C].session, rig.sides[C].tree, items, 31), BANYAN_EVALUESIZE);
    for (unsigned i = 0; i < 31; i++)
        assert_int_equal(items[i].status, i == 3                                     ? BANYAN_EVALUESIZE
                                          : (i >= 9 && i < 19) || i == 29 || i == 30 ? BANYAN_ENET
                                                                                     : 0);
    way->count = 2;
    rig_close(&rig, NULL);
}

static void scans_of_logged_ranges_come_from_the_owners(void **state)
{
    struct rig rig;
    open_logged(&rig);
    for (unsigned entries = 1; entries < 12; entries += 2) /* in a part */
        for (unsigned side = 0; side < SIDES; side++) {
            rig.ways[side].part_entries = entries;
            for (unsigned reverse = 0; reverse < 2; reverse++)
                for (unsigned open = 0; open < 4; open++) {
                    meet_range(&rig, side, 0, 0, open, reverse, 0, 0);
                    meet_range(&rig, side, 300, 2500, open, reverse, 0, 0);
                    meet_range(&rig, side, 350, 950, open, reverse, 0, 0);
                    meet_range(&rig, side, 1000, 1900, open, reverse, 0, 0);
                    meet_range(&rig, side, 300, 300, open, reverse, 0, 0);
                    meet_range(&rig, side, 0, 1500, open, reverse, 7, 0);
                    meet_range(&rig, side, 200, 0, open, reverse, 11, 0);
                    meet_range(&rig, side, 200, 0, open, reverse, 0, 13);
                }
        }
    /* Only the shared third is read. */
    tree_session_stats_reset(rig.sides[C].session);
    const uint64_t scans = rig.ways[C].scans;
    rig.ways[C].part_entries = 0;
    meet_range(&rig, C, 100, 1900, 0, false, 0, 0);
    meet_range(&rig, C, 100, 1900, 0, true, 0, 0);
    assert_int_equal(rig.ways[C].scans - scans, 4);
    assert_int_equal(tree_session_stats(rig.sides[C].session)->cost.round_trips, 0);
    /* An owner that is not there is waited for. */
    rig.ways[C].count = 1;
    struct met met = {0};
    const struct tree_range all = {0};
    assert_int_equal(tree_scan(rig.sides[C].session, rig.sides[C].tree, &all, meet, &met), BANYAN_ENET);
    assert_int_equal(met.count, 9);
    rig.ways[C].count = 2;
    rig_close(&rig, NULL);
}

/* A row whose owner writes through is read, and the logged one beside it is not, although the leaves of both
 * are children of one node: a scan looks ahead within its row. */
static void scans_read_no_logged_row_with_another(void **state)
{
    const struct part parts[] = {{0, B}, {1000, B}, {2000, B}};
    struct rig rig;
    open_divided(&rig);
    rig.logged = 5;
    adopt_all(&rig, parts, 3);
    rig.ways[C].part_entries = 0;
    for (unsigned reverse = 0; reverse < 2; reverse++) {
        meet_range(&rig, C, 1000, 1900, 0, reverse, 0, 0); /* the way is known */
        const uint64_t scans = rig.ways[C].scans;
        meet_range(&rig, C, reverse ? 100 : 1100, reverse ? 1700 : 2700, 0, reverse, 0, 0);
        assert_int_equal(rig.ways[C].scans - scans, 1);
    }
    rig_close(&rig, NULL);
}

/* What an owner delivers for another ends where its own rows do. */
static void parts_are_of_own_rows(void **state)
{
    struct rig rig;
    struct tree_scan_end end;
    open_logged(&rig);
    struct tree_session *session = rig.sides[B].session;
    struct tree *tree = rig.sides[B].tree;
    uint8_t keys[4][8];
    key_make(1000, keys[0]);
    key_make(1850, keys[1]);
    key_make(2000, keys[2]);
    key_make(999, keys[3]);
    struct met met = {0};
    struct tree_range range = {.from = keys[0], .from_length = 8};
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), 0);
    assert_int_equal(met.count, 10);
    assert_false(end.ended);
    assert_int_equal(end.next.length, 8);
    assert_memory_equal(end.next.bytes, keys[2], 8);
    range = (struct tree_range){.to = keys[2], .to_length = 8, .to_open = true, .reverse = true};
    met.count = 0;
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), 0);
    assert_int_equal(met.count, 10);
    assert_false(end.ended);
    assert_memory_equal(end.next.bytes, keys[0], 8);
    range = (struct tree_range){.from = keys[0], .from_length = 8, .to = keys[1], .to_length = 8};
    met.count = 0;
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), 0);
    assert_int_equal(met.count, 9);
    assert_true(end.ended);
    /* Not its own: from before the range, in it from above its end, the shared ones. */
    range = (struct tree_range){.from = keys[3], .from_length = 8};
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), BANYAN_EFENCED);
    range = (struct tree_range){.to = keys[2], .to_length = 8, .reverse = true};
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), BANYAN_EFENCED);
    range = (struct tree_range){.from = keys[2], .from_length = 8};
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), BANYAN_EFENCED);
    range = (struct tree_range){.reverse = true};
    assert_int_equal(tree_scan_here(session, tree, &range, meet, &met, &end), BANYAN_EFENCED);
    assert_int_equal(met.count, 9);
    rig_close(&rig, NULL);
}

static void batches_go_to_the_owners(void **state)
{
    struct rig rig;
    struct tree_check_report report;
    open_divided(&rig);
    for (unsigned side = 0; side < SIDES; side++) {
        struct tree_item items[40];
        uint8_t keys[40][8], values[40][VALUE_BYTES], olds[40][VALUE_BYTES];
        for (unsigned i = 0; i < 40; i++) { /* some new, some twice */
            key_make((i % 35 + 1) * STEP, keys[i]);
            memset(values[i], (int)(side * 40 + i + 1), VALUE_BYTES);
            items[i] = (struct tree_item){
                .key = keys[i], .key_length = 8, .value = values[i], .length = VALUE_BYTES, .old = olds[i]};
        }
        uint64_t before = rig.ways[side].exchanges;
        assert_int_equal(tree_multi_put(rig.sides[side].session, rig.sides[side].tree, items, 40), 0);
        uint64_t others = (side == A ? 0u : 14u) + (side == B ? 0u : 10u); /* five of A's come twice */
        assert_int_equal(rig.ways[side].exchanges - before, others);
        assert_int_equal(rig.ways[side].batches, side == C ? 3 : side == A ? 1 : 2); /* of up to 32 items */
        for (unsigned i = 0; i < 40; i++) {
            assert_int_equal(items[i].status, 0);
            assert_int_equal(items[i].existed, side || i < 29 || i >= 35);
            if (i >= 35)
                assert_int_equal(olds[i][0], side * 40 + i - 35 + 1);
        }
        for (unsigned reader = 0; reader < SIDES; reader++) {
            for (unsigned i = 0; i < 35; i++)
                items[i] = (struct tree_item){
                    .key = keys[i], .key_length = 8, .value = olds[i], .length = VALUE_BYTES};
            assert_int_equal(tree_multi_get(rig.sides[reader].session, rig.sides[reader].tree, items, 35), 0);
            for (unsigned i = 0; i < 35; i++)
                assert_int_equal(olds[i][0], side * 40 + (i < 5 ? i + 35 : i) + 1);
        }
    }
    rig_close(&rig, &report);
    assert_int_equal(report.entries, 35);
}

/* Where an operation waits, whole operations of another index are done with its session, as where the map is
 * changed. */
struct mending {
    struct rig *rig;
    struct tree *map;
    unsigned waits;
};

static int mend_and_wait(void *context, struct tree_session *session, struct tree *tree,
                         struct fabric_process owner, uint64_t since)
{
    struct mending *mending = context;
    uint8_t keys[3][8], value[16] = {7};
    struct tree_item items[3];
    for (unsigned i = 0; i < 3; i++) {
        key_make(i + 1, keys[i]);
        items[i] =
            (struct tree_item){.key = keys[i], .key_length = 8, .value = value, .length = sizeof value};
    }
    assert_int_equal(tree_multi_put(session, mending->map, items, 3), 0);
    mending->waits++;
    mending->rig->version++;
    return adopt(mending->rig, B, (const struct part[]){{0, SHARED}}, 1);
}

static void batches_outlive_what_they_wait_for(void **state)
{
    const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = 16, .leaf_bytes = 2048, .internal_bytes = 1024};
    struct rig rig;
    rig_open(&rig);
    struct side *side = &rig.sides[B];
    struct mending mending = {.rig = &rig};
    const struct tree_forward forward = {.wait = mend_and_wait};
    struct tree_item items[40];
    uint8_t keys[40][8], values[40][VALUE_BYTES];
    assert_int_equal(tree_create(side->session, "map", &geometry, &mending.map), 0);
    fill(&rig, B, 20);
    tree_compute_set_forward(side->compute, &forward, &mending);
    for (unsigned puts = 0; puts < 2; puts++) {
        rig.version++;
        mending.waits = 0;
        assert_int_equal(adopt(&rig, B, (const struct part[]){{0, SHARED}, {1000, MOVING}}, 2), 0);
        for (unsigned i = 0; i < 40; i++) {
            key_make((i + 1) * STEP, keys[i]);
            memset(values[i], puts ? (int)i + 100 : 0, VALUE_BYTES);
            items[i] = (struct tree_item){
                .key = keys[i], .key_length = 8, .value = values[i], .length = VALUE_BYTES};
        }
        if (puts)
            assert_int_equal(tree_multi_put(side->session, side->tree, items, 40), 0);
        else
            tree_multi_get(side->session, side->tree, items, 40);
        assert_int_equal(mending.waits, 1);
        for (unsigned i = 0; i < 40; i++) {
            assert_int_equal(items[i].status, puts || i < 20 ? 0 : BANYAN_ENOTFOUND);
            if (puts)
                assert_int_equal(get(&rig, C, (i + 1) * STEP), i + 100);
            else
                assert_int_equal(values[i][0], i < 20);
        }
    }
    tree_close(mending.map);
    assert_int_equal(tree_drop(side->session, "map", NULL, NULL), 0);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig.sides[i], false);
    memory_node_destroy(rig.memory);
}

/* ---- the read lease (O2) ------------------------------------------------------------------------- */

static struct lapse {
    struct rig *rig;
    bool lapsed, empty; /* empty: B deletes the key, else B puts it */
    unsigned alive;     /* so many looks find it alive before it has lapsed */
    unsigned pauses;
} lapse; /* the hooks' context is the way */

static bool lease_alive(const struct fabric *fabric)
{
    if (!lapse.alive)
        return !lapse.lapsed;
    lapse.alive--;
    return true;
}

static struct fabric_process lease_self(const struct fabric *fabric)
{
    return (struct fabric_process){.instance = 1, .compute_id = fabric->capabilities.compute_id};
}

/* The lease is alive again when the range is B's, and B has changed the key. */
static int lose_the_range(void *context, struct tree_session *session, struct tree *tree)
{
    lapse.pauses++;
    lapse.lapsed = false;
    adopt_all(lapse.rig, (const struct part[]){{0, B}}, 1);
    assert_int_equal(lapse.empty ? drop(lapse.rig, B, 5) : put(lapse.rig, B, 5, 2), 0);
    return 0;
}

/* A's lease is the one of `lapse`, through `ops`; who waits for it loses the range. Returns the operations of
 * before, for the end. */
static const struct fabric_ops *lapse_open(struct rig *rig, struct fabric_ops *ops)
{
    static const struct fabric_peer_ops peers = {.self = lease_self, .lease_alive = lease_alive};
    struct side *side = &rig->sides[A];
    const struct fabric_ops *const plain = side->fabric->ops;
    struct tree_forward forward = owners_forward;
    *ops = *plain;
    ops->peers = &peers;
    side->fabric->ops = ops;
    forward.pause = lose_the_range;
    tree_compute_set_forward(side->compute, &forward, &rig->ways[A]);
    return plain;
}

/* What a try has found in the cache says nothing of what the owner does afterwards. */
static void answers_of_lapsed_tries_are_forgotten(void **state)
{
    struct rig rig;
    struct fabric_ops ops;
    rig_open(&rig);
    struct side *side = &rig.sides[A];
    const struct fabric_ops *const plain = lapse_open(&rig, &ops);
    uint8_t key[8], value[VALUE_BYTES] = {3};
    key_make(5, key);
    for (unsigned empty = 0; empty < 2; empty++) {
        lapse = (struct lapse){.rig = &rig, .empty = empty};
        adopt_all(&rig, (const struct part[]){{0, A}}, 1);
        if (empty)
            assert_int_equal(put(&rig, A, 5, 1), 0);
        else
            assert_int_equal(get(&rig, A, 5), BANYAN_ENOTFOUND);
        /* Until the leaf is in the cache: from then on an answer needs the lease. */
        for (unsigned i = 0; i < 1000 && !lapse.pauses; i++) {
            lapse.lapsed = true;
            int status = empty ? tree_insert(side->session, side->tree, key, 8, value, VALUE_BYTES)
                               : tree_delete(side->session, side->tree, key, 8);
            assert_int_equal(status, lapse.pauses ? 0 : empty ? BANYAN_EEXIST : BANYAN_ENOTFOUND);
        }
        assert_int_equal(lapse.pauses, 1);
        lapse.lapsed = false;
        assert_int_equal(get(&rig, C, 5), empty ? 3 : BANYAN_ENOTFOUND);
    }
    side->fabric->ops = plain;
    rig_close(&rig, NULL);
}

/* Who adopts a map waits for what is bound to an incarnation, and for mergings: these pause for no lease,
 * also where it lapses between two looks. */
static void what_waits_for_nothing_does_not_pause(void **state)
{
    struct rig rig;
    struct fabric_ops ops;
    rig_open(&rig);
    struct side *side = &rig.sides[A];
    const struct fabric_ops *const plain = lapse_open(&rig, &ops);
    lapse = (struct lapse){.rig = &rig};
    adopt_all(&rig, (const struct part[]){{0, A}}, 1);
    assert_int_equal(put(&rig, A, 5, 1), 0);
    tree_session_pool(side->session)->pinned = fabric_incarnation(side->fabric);
    assert_true(tree_session_pool(side->session)->pinned > 0);
    lapse.lapsed = true;
    unsigned looked = 0;
    for (unsigned i = 0; i < 1000 && !looked; i++) { /* until the leaf is in the cache */
        lapse.alive = 1;
        assert_int_equal(get(&rig, A, 5), 1);
        looked = !lapse.alive;
    }
    assert_true(looked);
    lapse.alive = 0;
    assert_int_equal(get(&rig, A, 5), BANYAN_EFENCED);
    assert_int_equal(lapse.pauses, 0);
    tree_session_pool(side->session)->pinned = 0;
    lapse.lapsed = false;
    side->fabric->ops = plain;
    rig_close(&rig, NULL);
}

/* What was there when the range was not logged was read from the pool rightly, if it still was so: the read
 * lease tells. */
static bool others_lease;
static bool others_lease_alive(const struct fabric *fabric)
{
    return others_lease;
}
static unsigned others_pauses;
static int others_pause(void *context, struct tree_session *session, struct tree *tree)
{
    others_pauses++;
    others_lease = true;
    return 0;
}

static void others_leaves_are_believed_within_the_lease(void **state)
{
    struct rig rig;
    struct tree_forward forward = owners_forward;
    open_divided(&rig);
    struct side *side = &rig.sides[C];
    static const struct fabric_peer_ops peers = {.self = lease_self, .lease_alive = others_lease_alive};
    const struct fabric_ops *before = side->fabric->ops;
    struct fabric_ops ops = *before;
    ops.peers = &peers;
    forward.pause = others_pause;
    tree_compute_set_forward(side->compute, &forward, &rig.ways[C]);
    side->fabric->ops = &ops;
    others_pauses = 0;
    others_lease = false;
    assert_int_equal(get(&rig, C, 500), 1); /* A's */
    assert_int_equal(others_pauses, 1);
    others_lease = false;
    assert_int_equal(scan(&rig, C, false), 29);
    assert_int_equal(others_pauses, 2);
    uint8_t key[8], value[VALUE_BYTES];
    struct tree_item item = {.key = key, .key_length = 8, .value = value, .length = VALUE_BYTES};
    key_make(1500, key);
    others_lease = false;
    assert_int_equal(tree_multi_get(side->session, side->tree, &item, 1), 0);
    assert_int_equal(others_pauses, 3);
    others_lease = false;
    assert_int_equal(get(&rig, C, 2500), 1); /* shared: global locks keep it true */
    assert_int_equal(others_pauses, 3);
    side->fabric->ops = before;
    rig_close(&rig, NULL);
}

static void moving_ranges_are_waited_for(void **state)
{
    struct rig rig;
    rig_open(&rig);
    fill(&rig, A, 20);
    adopt_all(&rig, (const struct part[]){{0, A}}, 1);
    rig.version++;
    assert_int_equal(adopt(&rig, B, (const struct part[]){{0, MOVING}}, 1), 0);
    assert_int_equal(put(&rig, B, 7, 1), BANYAN_ENET); /* the hook's limit */
    assert_int_equal(rig.ways[B].waits, 100);
    rig.ways[B].waits = 0;
    assert_int_equal(get(&rig, B, 100), BANYAN_ENET);
    rig.ways[B].waits = 0;
    uint64_t seen = 0;
    const struct tree_range all = {0};
    assert_int_equal(tree_scan(rig.sides[B].session, rig.sides[B].tree, &all, count_one, &seen), BANYAN_ENET);
    assert_int_equal(seen, 0);
    /* Without a hook the error says what is missing. */
    tree_compute_set_forward(rig.sides[B].compute, &(struct tree_forward){0}, NULL);
    assert_int_equal(put(&rig, B, 7, 1), BANYAN_ENOTSUP);
    assert_int_equal(put(&rig, A, 7, 1), 0);
    rig_close(&rig, NULL);
}

/* What may be done to the whole of an index only by who may change all of it. */
static void whole_indexes_need_all_rights(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct error error = {0};
    adopt_all(&rig, (const struct part[]){{0, SHARED}, {1000, B}}, 2);
    struct tree_bulk *bulk;
    assert_int_equal(tree_bulk_begin(&bulk, rig.sides[A].tree, 1, 0.8, &error), 0);
    assert_int_equal(tree_drop(rig.sides[A].session, "ranges", NULL, NULL), BANYAN_EBUSY);
    assert_non_null(strstr(tree_session_error(rig.sides[A].session)->text, "compute node 2's"));
    assert_int_equal(put(&rig, A, 5, 1), 0); /* it is as it was */
    assert_int_equal(get(&rig, C, 5), 1);
    adopt_all(&rig, (const struct part[]){{0, SHARED}, {1000, MOVING}}, 2);
    assert_int_equal(tree_drop(rig.sides[A].session, "ranges", NULL, NULL), BANYAN_EBUSY);
    tree_bulk_finish(rig.sides[A].session, bulk);
    adopt_all(&rig, (const struct part[]){{0, SHARED}, {1000, A}}, 2);
    assert_int_equal(tree_drop(rig.sides[A].session, "ranges", NULL, NULL), 0);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig.sides[i], false);
    memory_node_destroy(rig.memory);
}

/* ---- reads of owned leaves ------------------------------------------------------------------------ */

struct updating {
    struct rig *rig;
    struct tree_session *session;
    gaddr leaf; /* that was read */
};

static bool reads_once(const struct fabric_list *list, void *context)
{
    ((struct updating *)context)->leaf = list->commands[0].address;
    return list->count == 1 && list->commands[0].operation == FABRIC_READ;
}

/* The update brings the leaf into the cache, and it leaves again. */
static void update_meanwhile(void *context)
{
    struct updating *updating = context;
    const struct tree *tree = updating->rig->sides[A].tree;
    const gaddr leaf = updating->leaf;
    uint8_t key[8], value[VALUE_BYTES];
    key_make(5, key);
    memset(value, 2, sizeof value);
    assert_int_equal(
        tree_update(updating->session, updating->rig->sides[A].tree, key, 8, value, sizeof value), 0);
    owned_cache_drop_leaf(tree->owned, updating->session->pool.epoch, leaf);
}

/* A lookup reads the bucket while the key's slot is written, then the header; the whole leaf comes with it,
 * for the cache, and the key is in there. */
static void torn_slots_of_owned_leaves_are_no_misses(void **state)
{
    struct rig rig;
    struct error error;
    uint64_t retries = 0;
    rig_open(&rig);
    struct side *side = &rig.sides[A];
    struct updating updating = {.rig = &rig};
    assert_int_equal(tree_session_create(&updating.session, side->compute, side->worker, &error), 0);
    for (uint32_t cut = 8; cut < side->tree->layout.geometry.leaf_bytes; cut += 8) {
        adopt_all(&rig, (const struct part[]){{0, SHARED}}, 1); /* nothing is cached */
        assert_int_equal(put(&rig, B, 5, 1), 0);
        assert_int_equal(get(&rig, A, 5), 1); /* the way to the leaf is */
        adopt_all(&rig, (const struct part[]){{0, A}}, 1);
        tree_session_stats_reset(side->session);
        stepper_tear(side->fabric, reads_once, 0, cut, update_meanwhile, &updating);
        assert_in_range(get(&rig, A, 5), 1, 2);
        assert_true(stepper_met(side->fabric));
        retries += side->session->stats.cost.round_trips > 1;
        assert_int_equal(get(&rig, A, 5), 2);
    }
    assert_true(retries > 0); /* some cut the slot */
    tree_session_destroy(updating.session);
    rig_close(&rig, NULL);
}

/* ---- borders (O3) -------------------------------------------------------------------------------- */

static void borders_are_made_anywhere(void **state)
{
    struct rig rig;
    struct tree_check_report report;
    rig_open(&rig);
    assert_int_equal(border(&rig, A, 5000), 0); /* of an empty index */
    assert_int_equal(leaf_begin(&rig, B, 5000), 5000);
    assert_int_equal(leaf_begin(&rig, B, 4999), 0);
    assert_int_equal(put(&rig, B, 7000, 1), 0);
    assert_int_equal(border(&rig, A, 7000), 0); /* at the one entry of a leaf */
    assert_int_equal(border(&rig, A, 7001), 0); /* behind it */
    assert_int_equal(leaf_begin(&rig, C, 7000), 7000);
    assert_int_equal(leaf_begin(&rig, C, 7001), 7001);
    assert_int_equal(get(&rig, C, 7000), 1);
    for (uint64_t i = 1; i <= 60; i++)
        assert_int_equal(put(&rig, A, 10000 + i * STEP, 1), 0);
    for (uint64_t i = 1; i <= 60; i += 7) {
        assert_int_equal(border(&rig, i % 2 ? A : B, 10000 + i * STEP + i % 3), 0);
        assert_int_equal(leaf_begin(&rig, C, 10000 + i * STEP + i % 3), 10000 + i * STEP + i % 3);
    }
    /* The second time it costs a look. */
    assert_int_equal(get(&rig, A, 5000), BANYAN_ENOTFOUND);
    tree_session_stats_reset(rig.sides[A].session);
    assert_int_equal(border(&rig, A, 5000), 0);
    assert_int_equal(tree_session_stats(rig.sides[A].session)->cost.round_trips, 1);
    assert_int_equal(tree_session_stats(rig.sides[A].session)->cost.atomics, 0);
    /* Not by a node that has no right there. */
    adopt_all(&rig, (const struct part[]){{0, SHARED}, {5000, A}}, 2);
    assert_int_equal(border(&rig, B, 6000), BANYAN_EFENCED);
    assert_int_equal(border(&rig, B, 5000), BANYAN_EFENCED);
    assert_int_equal(border(&rig, A, 6000), 0);
    assert_int_equal(border(&rig, B, 4000), 0);
    assert_int_equal(border(&rig, A, 5000), 0); /* between two rights: it is there */
    adopt_all(&rig, (const struct part[]){{0, SHARED}, {5000, A}, {11350, SHARED}}, 3);
    assert_int_equal(border(&rig, A, 11350), BANYAN_EFENCED); /* it is not, and two may change the leaf */
    assert_non_null(strstr(tree_session_error(rig.sides[A].session)->text, "different owners"));
    assert_int_not_equal(leaf_begin(&rig, C, 11350), 11350);
    uint8_t key[9] = {0};
    assert_int_equal(tree_border_make(rig.sides[A].session, rig.sides[A].tree, key, 9), BANYAN_EKEYSIZE);
    rig_close(&rig, &report);
    assert_int_equal(report.missing_parents, 0);
    assert_int_equal(report.entries, 61);
}

static bool nth_list(const struct fabric_list *list, void *context)
{
    return --*(unsigned *)context == 0;
}

/* A dies before its n-th list for the border; what B makes of it then is a border like others. */
static bool border_of_the_dead(unsigned list)
{
    struct rig rig;
    struct tree_check_report report;
    rig_open(&rig);
    fill(&rig, A, 40);
    for (uint64_t i = 1; i <= 40; i++) /* B walks by what it has of the parents, and posts nothing there */
        assert_int_equal(get(&rig, B, i * STEP), 1);
    stepper_kill(rig.sides[A].fabric, nth_list, 0, &list);
    (void)border(&rig, A, 2050);
    bool died = stepper_met(rig.sides[A].fabric);
    memory_node_release_locks(rig.memory, rig.sides[A].id);
    assert_int_equal(border(&rig, B, 2050), 0);
    assert_int_equal(leaf_begin(&rig, C, 2050), 2050);
    assert_int_equal(leaf_begin(&rig, C, 2049), leaf_begin(&rig, C, 2000));
    assert_int_equal(tree_check(rig.sides[C].session, rig.sides[C].tree, &report, NULL, NULL), 0);
    assert_int_equal(report.missing_parents, 0);
    assert_int_equal(report.entries, 40);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig.sides[i], false);
    memory_node_destroy(rig.memory);
    return died;
}

static void borders_are_named_by_parents(void **state)
{
    unsigned list = 1;
    while (border_of_the_dead(list))
        list++;
    assert_in_range(list, 4, 100);
}

static void first_leaves_never_die(void **state)
{
    struct rig rig;
    struct tree_check_report report;
    struct tree_merge_cursor cursor = {0};
    struct tree_merge_report merged;
    rig_open(&rig);
    fill(&rig, A, 60);
    adopt_all(&rig, (const struct part[]){{0, SHARED}, {2000, SHARED}, {4000, SHARED}}, 3);
    assert_int_equal(border(&rig, A, 2000), 0);
    assert_int_equal(border(&rig, A, 4000), 0);
    for (unsigned owned = 0; owned < 2; owned++) {
        if (owned)
            adopt_all(&rig, (const struct part[]){{0, A}, {2000, A}, {4000, SHARED}}, 3);
        for (uint64_t i = 1; i <= 60; i++)
            assert_int_equal(drop(&rig, A, i * STEP), 0);
        for (unsigned i = 0; i < 20; i++)
            assert_int_equal(tree_merge_step(rig.sides[A].session, rig.sides[A].tree, &cursor, 64, &merged),
                             0);
        assert_int_equal(leaf_begin(&rig, B, 3999), 2000);
        assert_int_equal(leaf_begin(&rig, B, 4000), 4000);
        assert_int_equal(leaf_begin(&rig, B, 1999), 0);
        fill(&rig, A, 60);
    }
    /* A walk passes others' ranges by, and ends. */
    adopt_all(&rig, (const struct part[]){{0, B}, {2000, A}, {4000, B}}, 3);
    for (uint64_t i = 1; i <= 60; i++)
        if (i % 10)
            assert_int_equal(drop(&rig, B, i * STEP), 0);
    memset(&cursor, 0, sizeof cursor);
    uint64_t merges = 0;
    unsigned steps = 0;
    do {
        assert_int_equal(tree_merge_step(rig.sides[A].session, rig.sides[A].tree, &cursor, 1, &merged), 0);
        merges += merged.merges;
    } while (!merged.ended && ++steps < 1000);
    assert_true(merged.ended);
    assert_true(merges > 0);
    assert_int_equal(scan(&rig, C, false), 6);
    rig_close(&rig, &report);
    assert_int_equal(report.entries, 6);
}

/* ---- half done leaves of others ------------------------------------------------------------------ */

static bool long_list(const struct fabric_list *list, void *context)
{
    return list->count >= *(const unsigned *)context;
}

/* A split of an owned leaf: sibling, mark, slots, header, perhaps a slot; no unlock. */
static void dies_in_a_split(unsigned commands, bool found)
{
    struct rig rig;
    unsigned least = 4;
    rig_open(&rig);
    adopt_all(&rig, (const struct part[]){{0, A}}, 1);
    if (found) /* a key that the leaf in the way begins with: its owner finds it without a look at the header
                */
        assert_int_equal(border(&rig, A, STEP), 0);
    uint64_t last = 0;
    stepper_kill(rig.sides[A].fabric, long_list, (uint16_t)commands, &least);
    while (!put(&rig, A, ++last * STEP, 1))
        assert_true(last < 100);
    assert_true(stepper_met(rig.sides[A].fabric));
    /* B does not help (where there is nothing to help it may post the separator: O4). Its map names A, which
     * is gone. */
    uint64_t seen = 0;
    const struct tree_range all = {0};
    rig.ways[B].peers[0].process.instance = 77; /* no way to A */
    int status = tree_scan(rig.sides[B].session, rig.sides[B].tree, &all, count_one, &seen);
    if (commands == 2 || commands == 3) {
        assert_int_equal(status, BANYAN_ENET);
        assert_int_equal(rig.sides[B].session->stats.cost.writes, 0);
        assert_int_equal(rig.sides[B].session->stats.cost.atomics, 0);
    } else {
        assert_int_equal(status, 0);
    }
    /* C takes over. Now B's scan has it settled by C. */
    rig.version++;
    assert_int_equal(adopt(&rig, C, (const struct part[]){{0, C}}, 1), 0);
    assert_int_equal(adopt(&rig, B, (const struct part[]){{0, C}}, 1), 0);
    rig.ways[B].waits = 0;
    assert_true(scan(&rig, B, false) >= last - 1);
    assert_true(scan(&rig, B, true) >= last - 1);
    for (uint64_t i = 1; i < last; i++)
        assert_int_equal(get(&rig, B, i * STEP), 1);
    for (uint64_t i = 1; i <= last + 20; i++)
        assert_int_equal(put(&rig, B, i * STEP + 1, 2), 0);
    struct tree_check_report report;
    assert_int_equal(tree_check(rig.sides[C].session, rig.sides[C].tree, &report, NULL, NULL), 0);
    assert_int_equal(report.marked, 0);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig.sides[i], false);
    memory_node_destroy(rig.memory);
}

static void others_leave_half_done_leaves_to_the_owner(void **state)
{
    for (unsigned commands = 0; commands < 5; commands++)
        for (unsigned found = 0; found < 2; found++)
            dies_in_a_split(commands, found);
}

/* B's way to its first leaf leads through A's, as it was before the border: B leaves that as it is. */
static void others_leaves_in_the_way_stay_half_done(void **state)
{
    struct rig rig;
    struct tree_check_report report;
    unsigned least = 4;
    uint64_t number = 2000;
    rig_open(&rig);
    fill(&rig, A, 40);
    for (uint64_t i = 1; i <= 40; i++)
        assert_int_equal(get(&rig, B, i * STEP), 1);
    assert_int_equal(border(&rig, A, 2050), 0);
    adopt_all(&rig, (const struct part[]){{0, A}, {2050, B}}, 2);
    stepper_kill(rig.sides[A].fabric, long_list, 2, &least); /* the sibling and the mark */
    while (!put(&rig, A, ++number, 1))
        assert_true(number < 2050);
    assert_true(stepper_met(rig.sides[A].fabric));
    rig.ways[B].waits_max = 0;
    assert_int_equal(put(&rig, B, 2050, 7), 0);
    assert_int_equal(get(&rig, C, 2050), 7);
    assert_int_equal(tree_check(rig.sides[C].session, rig.sides[C].tree, &report, NULL, NULL), 0);
    assert_int_equal(report.marked, 1);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig.sides[i], false);
    memory_node_destroy(rig.memory);
}

static enum tree_verdict merged(void *context, const void *old, size_t old_length, void *value,
                                size_t *length)
{
    (void)context, (void)old, (void)old_length;
    memset(value, 3, VALUE_BYTES);
    *length = VALUE_BYTES;
    return TREE_PUT;
}

/* A died in the middle of a split, B owns the range now, and it leaves B: B's merging finishes the split,
 * since nobody else does before B has merged. */
static void what_leaves_is_finished_by_its_owner(void **state)
{
    (void)state;
    for (unsigned batch = 0; batch < 2; batch++) {
        struct rig rig;
        struct tree_check_report report;
        unsigned least = 4;
        uint8_t key[8], value[VALUE_BYTES] = {3};
        uint64_t last = 0;
        rig_open(&rig);
        adopt_all(&rig, (const struct part[]){{0, A}}, 1);
        stepper_kill(rig.sides[A].fabric, long_list, 2, &least); /* the sibling and the mark */
        while (!put(&rig, A, ++last * STEP, 1))
            assert_true(last < 100);
        assert_true(stepper_met(rig.sides[A].fabric));
        rig.logged = 1;
        rig.version++;
        assert_int_equal(adopt(&rig, B, (const struct part[]){{0, B}}, 1), 0);
        rig.version++;
        assert_int_equal(adopt(&rig, B, (const struct part[]){{0, LEAVING}}, 1), 0);
        struct tree_session *session = rig.sides[B].session;
        tree_session_stats_reset(session);
        session->draining = true;
        key_make(STEP, key);
        struct tree_item item = {.key = key, .key_length = 8, .value = value, .length = sizeof value};
        memset(value, 3, sizeof value);
        if (batch)
            assert_int_equal(tree_multi_put(session, rig.sides[B].tree, &item, 1), 0);
        else
            assert_int_equal(tree_modify_here(session, rig.sides[B].tree, key, 8, merged, NULL), 0);
        session->draining = false;
        assert_true(tree_session_stats(session)->retries <= 2);
        assert_int_equal(tree_check(rig.sides[C].session, rig.sides[C].tree, &report, NULL, NULL), 0);
        assert_int_equal(report.marked, 0);
        assert_int_equal(get(&rig, C, STEP), 3);
        for (unsigned i = 0; i < SIDES; i++)
            side_close(&rig.sides[i], false);
        memory_node_destroy(rig.memory);
    }
}

/* ---- O1: adopting waits -------------------------------------------------------------------------- */

struct waiting {
    struct rig rig;
    struct tree_session *worker; /* on a thread of its own */
    struct pool_worker *pool_worker;
    uint64_t number;
    bool began, installed, adopted, too_early;
    bool batch;  /* several keys at once: it relies on all rows */
    bool drains; /* it merges */
    int status;
};

/* Under the leaf's lock, with the row announced. */
static enum tree_verdict held_up(void *context, const void *old, size_t old_length, void *value,
                                 size_t *length)
{
    struct waiting *waiting = context;
    atomic_store_release(&waiting->began, true);
    while (!atomic_load_acquire(&waiting->installed))
        task_yield();
    for (unsigned i = 0; i < 100; i++) { /* now or never */
        waiting->too_early |= atomic_load_acquire(&waiting->adopted);
        task_yield();
    }
    memset(value, 5, VALUE_BYTES);
    *length = VALUE_BYTES;
    return TREE_PUT;
}

/* The same in the middle of a batch, before it writes. */
static void held_up_in_a_batch(void *context)
{
    uint8_t value[VALUE_BYTES];
    size_t length;
    (void)held_up(context, NULL, 0, value, &length);
}

static bool list_writes(const struct fabric_list *list, void *context)
{
    for (uint16_t i = 0; i < list->count; i++)
        if (list->commands[i].operation == FABRIC_WRITE)
            return true;
    return false;
}

static void work(void *context)
{
    struct waiting *waiting = context;
    struct side *side = &waiting->rig.sides[A];
    uint8_t keys[2][8], value[VALUE_BYTES];
    struct tree_item items[2];
    key_make(waiting->number, keys[0]);
    key_make(1, keys[1]);
    waiting->worker->draining = waiting->drains;
    if (!waiting->batch) {
        waiting->status = tree_modify_here(waiting->worker, side->tree, keys[0], 8, held_up, waiting);
        return;
    }
    memset(value, 5, sizeof value);
    for (unsigned i = 0; i < 2; i++)
        items[i] =
            (struct tree_item){.key = keys[i], .key_length = 8, .value = value, .length = sizeof value};
    stepper_hold(side->fabric, list_writes, held_up_in_a_batch, waiting);
    waiting->status = tree_multi_put(waiting->worker, side->tree, items, 2);
}

struct adopting {
    struct waiting *waiting;
    const struct part *parts;
    uint32_t count;
    int status;
};
static void adopt_beside(void *context)
{
    struct adopting *adopting = context;
    struct waiting *waiting = adopting->waiting;
    waiting->rig.version++;
    adopting->status = adopt(&waiting->rig, A, adopting->parts, adopting->count);
    atomic_store_release(&waiting->adopted, true);
}

/* The task of A begins, then A begins to adopt the parts; returns when their table, or the one before it, is
 * installed, long before it is adopted. */
static void adopting_begin(struct adopting *adopting, struct thread **worker, struct thread **adopter)
{
    struct waiting *waiting = adopting->waiting;
    struct rig *rig = &waiting->rig;
    struct tree_compute *compute = rig->sides[A].compute;
    const uint64_t before = tree_rights_version(rig->sides[A].tree);
    struct error error;
    assert_int_equal(pool_worker_create(&waiting->pool_worker, tree_compute_pool(compute), &error), 0);
    assert_int_equal(tree_session_create(&waiting->worker, compute, waiting->pool_worker, &error), 0);
    assert_int_equal(thread_start(worker, work, waiting, &error), 0);
    while (!atomic_load_acquire(&waiting->began))
        task_yield();
    assert_int_equal(thread_start(adopter, adopt_beside, adopting, &error), 0);
    while (atomic_load_acquire(&rig->sides[A].tree->rights->table)->version == before)
        task_yield();
}

/* A task of A changes key 5 or 6000 while A adopts that the range from 1000 on is not its own any more. */
static void adopt_while(uint64_t number, unsigned first, bool batch, bool waits)
{
    struct waiting waiting = {.number = number, .batch = batch};
    struct rig *rig = &waiting.rig;
    struct thread *worker, *adopter;
    const struct part after[] = {{0, first}, {1000, B}};
    struct adopting adopting = {&waiting, after, 2, 0};
    rig_open(rig);
    assert_int_equal(border(rig, A, 1000), 0);
    adopt_all(rig, (const struct part[]){{0, first}, {1000, first}}, 2);
    adopting_begin(&adopting, &worker, &adopter);
    if (!waits) /* a row that stays: adopt does not wait for it */
        while (!atomic_load_acquire(&waiting.adopted))
            task_yield();
    atomic_store_release(&waiting.installed, true);
    thread_join(worker);
    thread_join(adopter);
    assert_int_equal(adopting.status, 0);
    assert_int_equal(waiting.status, 0);
    if (waits)
        assert_false(waiting.too_early);
    assert_int_equal(get(rig, C, number), 5);
    tree_session_destroy(waiting.worker);
    pool_worker_abandon(waiting.pool_worker);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
}

/* Whether A may merge what it has logged of the second row; the greatest incarnation of its lists. */
static enum tree_right merges(struct rig *rig, uint64_t *incarnation)
{
    struct tree_session *session = rig->sides[A].session;
    uint8_t key[8];
    key_make(1500, key);
    session->draining = true;
    session->pool.incarnation = UINT64_MAX;
    const enum tree_right right = tree_rights_enter(session, rig->sides[A].tree, (struct format_key){key, 8});
    *incarnation = session->pool.incarnation;
    tree_rights_leave(session);
    session->draining = false;
    return right;
}

/* O1, L5: an owner merges what it has logged of a row that leaves it under the incarnation in which it had
 * the row. After a loss it may have been fenced, and the next owner may inherit, whatever the map that it has
 * read since says. */
static void what_leaves_is_merged_by_its_owner(void **state)
{
    const struct part mine[] = {{0, A}, {1000, A}}, leaving[] = {{0, A}, {1000, LEAVING}},
                      moving[] = {{0, A}, {1000, MOVING}};
    struct rig rig;
    uint64_t incarnation;
    rig_open(&rig);
    assert_int_equal(border(&rig, A, 1000), 0);
    rig.logged = 3;
    adopt_all(&rig, mine, 2);
    assert_int_equal(merges(&rig, &incarnation), TREE_OWNED);
    adopt_all(&rig, leaving, 2);
    assert_int_equal(merges(&rig, &incarnation), TREE_OWNED);
    assert_int_equal(incarnation, 1);
    assert_int_equal(adopt_in(&rig, A, leaving, 2, 7), 0); /* the same version, read again behind a loss */
    assert_int_equal(merges(&rig, &incarnation), TREE_OWNED);
    assert_int_equal(incarnation, 1);
    adopt_all(&rig, leaving, 2);
    assert_int_equal(merges(&rig, &incarnation), TREE_OWNED);
    assert_int_equal(incarnation, 1);
    adopt_all(&rig, moving, 2); /* it is inherited */
    assert_int_equal(merges(&rig, &incarnation), TREE_MOVING);
    adopt_all(&rig, leaving, 2);
    assert_int_equal(merges(&rig, &incarnation), TREE_MOVING);
    adopt_all(&rig, mine, 2);
    rig.anew = 2; /* it was another's meanwhile */
    adopt_all(&rig, leaving, 2);
    assert_int_equal(merges(&rig, &incarnation), TREE_MOVING);
    rig_close(&rig, NULL);
}

/* A merging of a row that leaves relies on it, and what it finishes must be over when the next owner begins.
 */
static void adopting_waits_for_a_merging(void **state)
{
    struct waiting waiting = {.number = 6000, .drains = true};
    struct rig *rig = &waiting.rig;
    struct thread *worker, *adopter;
    const struct part mine[] = {{0, A}, {1000, A}}, leaving[] = {{0, A}, {1000, LEAVING}},
                      after[] = {{0, A}, {1000, B}};
    struct adopting adopting = {&waiting, after, 2, 0};
    rig_open(rig);
    assert_int_equal(border(rig, A, 1000), 0);
    rig->logged = 3;
    adopt_all(rig, mine, 2);
    adopt_all(rig, leaving, 2);
    adopting_begin(&adopting, &worker, &adopter);
    atomic_store_release(&waiting.installed, true);
    thread_join(worker);
    thread_join(adopter);
    assert_int_equal(adopting.status, 0);
    assert_int_equal(waiting.status, 0);
    assert_false(waiting.too_early);
    tree_session_destroy(waiting.worker);
    pool_worker_abandon(waiting.pool_worker);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
}

static void adopting_waits_for_what_relies_on_it(void **state)
{
    for (unsigned batch = 0; batch < 2; batch++) {
        adopt_while(6000, A, batch, true);
        adopt_while(6000, SHARED, batch, true);
    }
}

static void adopting_waits_for_nothing_else(void **state)
{
    adopt_while(5, A, false, false);
    adopt_while(5, SHARED, false, false);
}

/* Where an operation waits, the one of before may end. */
struct following {
    struct waiting *waiting;
    unsigned waits;
};

static int let_it_end(void *context, struct tree_session *session, struct tree *tree,
                      struct fabric_process owner, uint64_t since)
{
    struct following *following = context;
    following->waits++;
    assert_int_equal(owner.instance, 0); /* the range is on its way */
    atomic_store_release(&following->waiting->installed, true);
    while (!atomic_load_acquire(&following->waiting->adopted))
        task_yield();
    return 0;
}

static int get_by(struct tree_session *session, struct tree *tree, uint64_t number)
{
    uint8_t key[8], value[VALUE_BYTES];
    size_t length = sizeof value;
    key_make(number, key);
    int status = tree_lookup(session, tree, key, 8, value, &length);
    return status ? status : value[0];
}

/* Until nothing is READ for it. */
static void cache(struct rig *rig, uint64_t number)
{
    struct tree_session *session = rig->sides[A].session;
    unsigned tries = 0;
    do {
        tree_session_stats_reset(session);
        assert_int_equal(get(rig, A, number), 1);
        assert_true(++tries < 1000);
    } while (tree_session_stats(session)->cost.round_trips);
}

/* A's range from 1000 on was another's for some time, of which A never heard: in the map that A fetches next
 * it has a right to it again. An operation of before is still under way then, and what A cached is too old.
 */
static void return_of_a_right(unsigned first, unsigned then, bool logged)
{
    struct waiting waiting = {.number = 3000};
    struct following following = {.waiting = &waiting};
    const struct tree_forward forward = {.wait = let_it_end};
    struct rig *rig = &waiting.rig;
    struct thread *worker, *adopter;
    const struct part after[] = {{0, first}, {1000, then}};
    struct adopting adopting = {&waiting, after, 2, 0};
    struct tree_session *reader;
    struct error error;
    rig_open(rig);
    struct side *side = &rig->sides[A];
    assert_int_equal(tree_session_create(&reader, side->compute, side->worker, &error), 0);
    tree_compute_set_forward(side->compute, &forward, &following);
    assert_int_equal(border(rig, A, 1000), 0);
    assert_int_equal(border(rig, A, 4000), 0);
    assert_int_equal(put(rig, A, 500, 1), 0);
    assert_int_equal(put(rig, A, 5000, 1), 0);
    adopt_all(rig, (const struct part[]){{0, first}, {1000, first}}, 2);
    if (first == A) {
        cache(rig, 500);
        cache(rig, 5000);
    }
    rig->version++;
    assert_int_equal(adopt(rig, C, (const struct part[]){{0, SHARED}, {1000, C}}, 2), 0);
    assert_int_equal(put(rig, C, 5000, 2), 0);
    if (logged) /* also where nothing else has changed */
        rig->logged = 2;
    else
        rig->anew = 2;
    adopting_begin(&adopting, &worker, &adopter);
    /* The row that stays is worked on meanwhile, and keeps what is cached of it. */
    tree_session_stats_reset(reader);
    int stays = get_by(reader, side->tree, 500);
    uint64_t round_trips = tree_session_stats(reader)->cost.round_trips;
    unsigned waits = following.waits;
    int found = get_by(reader, side->tree, 5000);
    atomic_store_release(&waiting.installed, true);
    thread_join(worker);
    thread_join(adopter);
    assert_int_equal(stays, 1);
    assert_int_equal(waits, 0);
    if (first == A)
        assert_int_equal(round_trips, 0);
    assert_int_equal(found, 2);
    assert_int_equal(following.waits, 1);
    assert_int_equal(adopting.status, 0);
    assert_int_equal(waiting.status, 0);
    assert_false(waiting.too_early);
    tree_session_stats_reset(reader);
    assert_int_equal(get_by(reader, side->tree, 500), 1);
    if (first == A)
        assert_int_equal(tree_session_stats(reader)->cost.round_trips, 0);
    tree_session_destroy(reader);
    tree_session_destroy(waiting.worker);
    pool_worker_abandon(waiting.pool_worker);
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
}

static void rights_that_come_back_wait_for_what_was_before(void **state)
{
    return_of_a_right(A, A, false);
    return_of_a_right(A, A, true);
    return_of_a_right(SHARED, A, false);
    return_of_a_right(A, SHARED, false);
}

/* ---- appends ------------------------------------------------------------------------------------- */

/* What they cost in splits, at the end of the index or of a range. */
static uint64_t splits_of_appends(bool bordered)
{
    static const struct part parts[] = {{0, A}, {1000 * STEP, A}};
    struct rig rig;
    rig_open(&rig);
    adopt_all(&rig, parts, bordered ? 2 : 1);
    if (bordered)
        assert_int_equal(border(&rig, A, 1000 * STEP), 0);
    fill(&rig, A, 900);
    const uint64_t splits = rig.sides[A].session->stats.splits;
    assert_int_equal(scan(&rig, A, false), 900);
    rig_close(&rig, NULL);
    return splits;
}

static void appends_to_a_range_leave_full_leaves(void **state)
{
    (void)state;
    const uint64_t at_the_end = splits_of_appends(false), at_a_border = splits_of_appends(true);
    assert_in_range(at_the_end, 10, 900);
    /* Inner nodes do not know of the border: their halves are a few splits more. */
    assert_in_range(at_a_border, at_the_end, at_the_end + at_the_end / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_to_a_range_leave_full_leaves),
        cmocka_unit_test(tables_are_checked),
        cmocka_unit_test(a_first_map_has_any_version),
        cmocka_unit_test(operations_go_to_the_owner),
        cmocka_unit_test(points_of_logged_ranges_come_from_the_owner),
        cmocka_unit_test(batches_of_logged_ranges_come_from_the_owners),
        cmocka_unit_test(scans_of_logged_ranges_come_from_the_owners),
        cmocka_unit_test(scans_read_no_logged_row_with_another),
        cmocka_unit_test(parts_are_of_own_rows),
        cmocka_unit_test(others_leaves_are_believed_within_the_lease),
        cmocka_unit_test(batches_go_to_the_owners),
        cmocka_unit_test(batches_outlive_what_they_wait_for),
        cmocka_unit_test(answers_of_lapsed_tries_are_forgotten),
        cmocka_unit_test(what_waits_for_nothing_does_not_pause),
        cmocka_unit_test(moving_ranges_are_waited_for),
        cmocka_unit_test(whole_indexes_need_all_rights),
        cmocka_unit_test(torn_slots_of_owned_leaves_are_no_misses),
        cmocka_unit_test(borders_are_made_anywhere),
        cmocka_unit_test(borders_are_named_by_parents),
        cmocka_unit_test(first_leaves_never_die),
        cmocka_unit_test(others_leave_half_done_leaves_to_the_owner),
        cmocka_unit_test(others_leaves_in_the_way_stay_half_done),
        cmocka_unit_test(what_leaves_is_finished_by_its_owner),
        cmocka_unit_test(adopting_waits_for_what_relies_on_it),
        cmocka_unit_test(adopting_waits_for_nothing_else),
        cmocka_unit_test(what_leaves_is_merged_by_its_owner),
        cmocka_unit_test(adopting_waits_for_a_merging),
        cmocka_unit_test(rights_that_come_back_wait_for_what_was_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
