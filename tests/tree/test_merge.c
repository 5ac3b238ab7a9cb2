/*
 * test_merge.c - sparse leaves are merged (R7): a merge is cut after each of its writes, and in the middle of
 * those of a leaf's body; what comes by next, of every kind, finishes it and finds all that there is. And
 * readers and writers are held in the middle while others merge. One task (stepper.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include "base/random.h"
#include "side.h"
#include "stepper.h"
#include "base/epoch.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"

#define SIDES     3u
#define KEYS      240u
#define KEPT      6u /* every so many-th key stays */
#define VALUE     8u
#define KEY_BYTES 60u

struct rig {
    struct memory_node *memory;
    struct side sides[SIDES]; /* the merger's, another, the eyes */
    uint8_t values[KEYS];     /* first bytes; 0: nothing is there */
    unsigned
        tear; /* commands of the merge that are done, and then a part of the words of the next one; or 0 */
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

/* Leaves with a few keys each, and caches that know them. */
static void rig_open(struct rig *rig)
{
    struct memory_options options = {.pool_bytes = 16 << 20};
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    for (unsigned i = 0; i < SIDES; i++)
        side_open(&rig->sides[i], rig->memory, (uint16_t)(i + 1),
                  i == SIDES - 1 ? TREE_READ_LEAF : TREE_READ_BUCKET);
    assert_int_equal(tree_format(rig->sides[0].session), 0);
    assert_int_equal(tree_create(rig->sides[0].session, "merge", &geometries[kind], &rig->sides[0].tree), 0);
    for (unsigned i = 1; i < SIDES; i++)
        assert_int_equal(tree_open(rig->sides[i].session, "merge", &rig->sides[i].tree), 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(put(&rig->sides[1], i, 1), 0);
    for (unsigned i = 0; i < KEYS; i++) {
        rig->values[i] = i % KEPT == 0;
        if (!rig->values[i])
            assert_int_equal(take(&rig->sides[1], i), 0);
    }
    for (unsigned i = 0; i < SIDES; i++)
        for (unsigned number = 0; number < KEYS; number++)
            assert_int_equal(get(&rig->sides[i], number), rig->values[number]);
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
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

/* The index is sound as it lies there, and every block has one owner. */
static void check(struct rig *rig, struct tree_check_report *report)
{
    side_account(rig->sides, SIDES, rig->memory, rig->sides[SIDES - 1].tree, 0, report);
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

/* ---- what comes by a merge that was cut ---- */

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
    assert_int_equal(tree_drop(side->session, "merge", NULL, NULL), 0);
    assert_int_equal(tree_create(side->session, "merge", &geometries[kind], &tree), 0);
    for (unsigned i = 0; i < SIDES; i++)
        tree_close(rig->sides[i].tree);
    side->tree = tree;
    memset(rig->values, 0, sizeof rig->values);
    for (unsigned i = 0; i < SIDES; i++)
        if (&rig->sides[i] != side) {
            rig->sides[i].tree = NULL;
            tree_open(rig->sides[i].session, "merge", &rig->sides[i].tree); /* not on the dead one */
        }
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
    {"drops", drops, true},
};
#define VISITORS (sizeof visitors / sizeof *visitors)

/* ---- where a merge is cut ---- */

/* Frozen, marked, body, body, dead, final, and two locks. */
#define MERGE_WRITES 8u

static bool is_merge(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    const struct format_layout *layout = &rig->sides[1].tree->layout;
    return list->count == MERGE_WRITES && list->commands[0].operation == FABRIC_WRITE &&
           list->commands[0].length == layout->header_bytes &&
           list->commands[2].length == layout->geometry.leaf_bytes - layout->header_bytes;
}

/* Half of the words of one more WRITE are there. */
static bool is_merge_torn(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    const uint8_t *pool = memory_node_target(rig->memory)->pool;
    if (!is_merge(list, context))
        return false;
    for (unsigned at = 0; at < rig->tear; at++) { /* in their order; the list itself repeats these */
        const struct fabric_command *done = &list->commands[at];
        memcpy((uint8_t *)(uintptr_t)pool + gaddr_offset(done->address), done->write.data, done->length);
    }
    const struct fabric_command *write = &list->commands[rig->tear];
    uint8_t *to = (uint8_t *)(uintptr_t)pool + gaddr_offset(write->address);
    for (uint32_t word = 0; word + 8 <= write->length; word += 8)
        if (random_mix(rig->dice + word) & 1)
            memcpy(to + word, (const uint8_t *)write->write.data + word, 8);
    return true;
}

/* The merger dies in its first merge, after so many commands. */
static void merge_cut(struct rig *rig, unsigned commands, bool torn, uint64_t dice)
{
    struct side *victim = &rig->sides[0];
    uint32_t merged;
    rig->tear = commands;
    rig->dice = dice;
    stepper_kill(victim->fabric, torn ? is_merge_torn : is_merge, (uint16_t)commands, rig);
    assert_true(merge_all(victim, &merged) != 0);
    assert_true(stepper_met(victim->fabric));
    memory_node_release_locks(rig->memory, 1);
}

static void cut_and_visit(unsigned commands, bool torn, uint64_t dice, const struct visitor *visitor)
{
    struct rig rig;
    struct tree_check_report report;
    rig_open(&rig);
    merge_cut(&rig, commands, torn, dice);
    check(&rig, &report);
    assert_int_equal(report.frozen, commands >= 1 && commands < 5);
    visitor->visit(&rig, &rig.sides[1]);
    judge(&rig);
    check(&rig, &report);
    if (visitor->mends && report.frozen + report.marked + report.dead)
        fail_msg("kind %u, after %u writes: %s leave something half done", kind, commands, visitor->name);
    rig_close(&rig);
}

static void a_merge_that_is_cut_anywhere_is_finished_by_what_comes_next(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned commands = 0; commands <= MERGE_WRITES; commands++)
            for (unsigned i = 0; i < VISITORS; i++)
                cut_and_visit(commands, false, 0, &visitors[i]);
}

static void a_merge_that_is_cut_within_a_leafs_body_is_finished_too(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned commands = 2; commands <= 3; commands++)
            for (unsigned dice = 1; dice <= 6; dice++)
                for (unsigned i = 0; i < VISITORS; i++)
                    cut_and_visit(commands, true, dice, &visitors[i]);
}

/* ---- others in the middle of something ---- */

static bool reads_leaf(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    return list->count == 1 && list->commands[0].operation == FABRIC_READ &&
           list->commands[0].length >= rig->sides[0].tree->layout.used_bytes &&
           list->commands[0].address == rig->leaf;
}

static void merges_meanwhile(void *context)
{
    struct rig *rig = context;
    uint32_t merged;
    assert_int_equal(merge_all(&rig->sides[1], &merged), 0);
    assert_true(merged > 0);
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

/* A leaf of a scan is fetched in two parts, and between them everything is merged. */
static void scan_in_two_parts(unsigned leaf, uint32_t from, uint32_t to, bool reverse)
{
    struct rig rig;
    struct leaves leaves;
    rig_open(&rig);
    struct side *reader = &rig.sides[0];
    leaves_find(&rig, &leaves);
    rig.leaf = leaves.items[leaf];
    stepper_tear(reader->fabric, reads_leaf, from, to, merges_meanwhile, &rig);
    scan(&rig, reader, reverse);
    judge(&rig);
    rig_close(&rig);
}

static void a_scan_of_leaves_that_are_merged_meanwhile_tells_each_key_once(void **state)
{
    (void)state;
    kind = PLAIN;
    for (unsigned leaf = 0; leaf < 5; leaf++)
        for (uint32_t part = 64; part < 512; part += 64) {
            scan_in_two_parts(leaf, 0, part, false);
            scan_in_two_parts(leaf, part, 512, false);
            scan_in_two_parts(leaf, 0, part, true);
            scan_in_two_parts(leaf, part, 512, true);
        }
}

/* The eyes read whole leaves: their lookups can be torn. */
static void a_key_whose_leaf_is_merged_while_it_is_read_is_found(void **state)
{
    (void)state;
    kind = PLAIN;
    for (uint32_t part = 64; part < 512; part += 64)
        for (unsigned late = 0; late < 2; late++)
            for (unsigned number = 18; number < 60; number += KEPT) {
                struct rig rig;
                struct leaves leaves;
                rig_open(&rig);
                struct side *eyes = &rig.sides[SIDES - 1];
                leaves_find(&rig, &leaves);
                for (unsigned leaf = 0; leaf < 5; leaf++) {
                    rig.leaf = leaves.items[leaf];
                    stepper_tear(eyes->fabric, reads_leaf, late ? part : 0, late ? 512 : part,
                                 merges_meanwhile, &rig);
                    assert_int_equal(get(eyes, number), 1);
                    if (stepper_met(eyes->fabric))
                        break;
                }
                rig_close(&rig);
            }
}

struct seen {
    struct rig *rig;
    unsigned met[KEYS];
};

static bool note(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct seen *seen = context;
    const uint8_t *bytes = key;
    unsigned number = (unsigned)bytes[2] << 8 | bytes[3];
    assert_true(number < KEYS);
    assert_int_equal(*(const uint8_t *)value, seen->rig->values[number]);
    seen->met[number]++;
    return true;
}

static void finishes(void *context)
{
    struct rig *rig = context;
    assert_int_equal(put(&rig->sides[1], 1, 1),
                     0); /* in the leaf that is merging, whose key 1 was not there */
    rig->values[1] = 1;
}

/* Entries that a cut merge has brought stay where they are when it is finished: a reader may have passed the
 * places to which they would go. */
static void a_merge_is_finished_into_the_slots_where_it_began(void **state)
{
    (void)state;
    kind = PLAIN;
    for (uint32_t from = 64; from < 512; from += 4 * 8)
        for (uint32_t to = from + 32; to <= 512; to += 4 * 8) {
            struct rig rig;
            struct leaves leaves;
            struct seen seen = {.rig = &rig};
            const struct tree_range everything = {0};
            rig_open(&rig);
            struct side *eyes = &rig.sides[SIDES - 1];
            leaves_find(&rig, &leaves);
            merge_cut(&rig, 3, false, 0);
            rig.leaf = leaves.items[0];
            stepper_tear(eyes->fabric, reads_leaf, from, to, finishes, &rig);
            assert_int_equal(tree_scan(eyes->session, eyes->tree, &everything, note, &seen), 0);
            assert_true(stepper_met(eyes->fabric));
            for (unsigned i = 2; i < KEYS; i++)
                assert_int_equal(seen.met[i], rig.values[i] != 0);
            judge(&rig);
            rig_close(&rig);
        }
}

static bool writes_slot(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    return list->commands[0].operation == FABRIC_WRITE &&
           list->commands[0].length == rig->sides[1].tree->layout.slot_bytes;
}

static void merges_what_is_free(void *context)
{
    struct rig *rig = context;
    uint32_t merged;
    assert_int_equal(merge_all(&rig->sides[2], &merged), 0);
    assert_true(merged > 0);
}

/* A writer has read the last leaf under its lock, and not written yet: the merge does not wait for it, and
 * leaves it alone. */
static void a_leaf_that_is_being_written_is_not_merged(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        const unsigned number = (KEYS - 1) / KEPT * KEPT;
        rig_open(&rig);
        stepper_hold(rig.sides[1].fabric, writes_slot, merges_what_is_free, &rig);
        assert_int_equal(put(&rig.sides[1], number, 9), 0);
        assert_true(stepper_met(rig.sides[1].fabric));
        rig.values[number] = 9;
        judge(&rig);
        rig_close(&rig);
    }
}

/* ---- what it comes to ---- */

static void sparse_leaves_become_few_and_cost_what_they_should(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        struct tree_check_report before, after;
        uint32_t merged, again;
        rig_open(&rig);
        struct side *side = &rig.sides[0];
        check(&rig, &before);
        tree_session_stats_reset(side->session);
        assert_int_equal(merge_all(side, &merged), 0);
        const struct tree_stats *stats = tree_session_stats(side->session);
        assert_int_equal(stats->merges, merged);
        assert_int_equal(stats->operations, 0);
        check(&rig, &after);
        assert_int_equal(after.leaves, before.leaves - merged);
        assert_int_equal(after.dead + after.frozen + after.marked, 0);
        /* A sixth of the keys, in leaves that are at most three fifths full. */
        assert_true(after.leaves * 2 <= before.leaves);
        if (kind == PLAIN) /* what it looks at, and five for each merge */
            assert_true(stats->cost.round_trips <= 6 + 5 * merged);
        assert_int_equal(merge_all(side, &again), 0);
        assert_int_equal(again, 0);
        judge(&rig);
        puts_(&rig, &rig.sides[1]);
        judge(&rig);
        deletes(&rig, &rig.sides[1]);
        judge(&rig);
        rig_close(&rig);
    }
}

static void full_leaves_stay(void **state)
{
    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        uint32_t merged;
        rig_open(&rig);
        many_puts(&rig, &rig.sides[1]);
        assert_int_equal(merge_all(&rig.sides[0], &merged), 0);
        assert_int_equal(merged, 0);
        judge(&rig);
        rig_close(&rig);
    }
}

/* ---- a parent that begins with a gap, where the cache does not keep parents ---- */

/* The node of this level under which the key lies. */
static struct tree_path way_to(struct side *side, unsigned number, uint8_t level)
{
    uint8_t key[KEY_BYTES];
    struct tree_path path;
    const struct format_key sought = {key, (uint32_t)key_make(number, key)};
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    assert_int_equal(tree_locate(side->session, side->tree, sought, false, level, &path), 0);
    return path;
}

static bool is_way_to(struct side *side, unsigned number, uint8_t level, struct format_link node)
{
    return format_link_equal(way_to(side, number, level).link, node);
}

/* Many leaves under more than one parent; of the second of these parents the first leaf's keys are gone, and
 * the leaf with them. The first one's number. */
static unsigned make_gap(struct side *side, struct format_link *before, unsigned keys)
{
    unsigned first = 0, last;
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(put(side, i, 1), 0);
    *before = way_to(side, 0, 1).link;
    while (first < keys && is_way_to(side, first, 1, *before))
        first++;
    const struct format_link leaf = way_to(side, first, 0).link;
    for (last = first; last < keys && is_way_to(side, last, 0, leaf);)
        last++;
    assert_true(first < last && last < keys);
    while (last-- > first)
        assert_int_equal(take(side, last), 0);
    return first;
}

/* The way to a key in a gap goes by the parent to the left of its own. What was fetched of it is found until
 * the next descent, though the cache does not keep it: else a merge walk, which reads what the parent names,
 * would come to the same place again and again. */
static void a_walk_around_a_gap_finds_the_parent(void **state)
{
    static const struct format_geometry narrow = {
        .key_bytes = 8, .value_bytes = VALUE, .leaf_bytes = 512, .internal_bytes = 512};
    const unsigned keys = 2000;
    struct memory_options options = {.pool_bytes = 16 << 20};
    struct error error = {0};
    struct memory_node *memory;
    struct side sides[2] = {0}, *side = &sides[0];
    struct format_link before;
    uint32_t merged;
    (void)state;
    kind = PLAIN;
    assert_int_equal(memory_node_create(&memory, &options, &error), 0);
    for (unsigned i = 0; i < 2; i++)
        side_open(&sides[i], memory, (uint16_t)(i + 1), TREE_READ_BUCKET);
    side->compute->switches.cache_lowest = 2; /* of trees that are opened from now on */
    assert_int_equal(tree_format(sides[1].session), 0);
    assert_int_equal(tree_create(sides[1].session, "merge", &narrow, &sides[1].tree), 0);
    assert_int_equal(tree_open(side->session, "merge", &side->tree), 0);
    const unsigned first = make_gap(&sides[1], &before, keys);
    const struct tree_path path = way_to(side, first, 0);
    assert_true(format_link_equal(path.parent, before));
    epoch_enter(side->session->pool.epoch);
    const struct tree_frame *parent = tree_frame_find(side->session, side->tree, path.parent);
    epoch_leave(side->session->pool.epoch);
    assert_non_null(parent);
    assert_int_equal(merge_all(side, &merged), 0);
    assert_int_equal(get(side, first), 0);
    assert_int_equal(get(side, first - 1), 1);
    assert_int_equal(get(side, keys - 1), 1);
    for (unsigned i = 0; i < 2; i++)
        side_close(&sides[i], false);
    memory_node_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_leaves_become_few_and_cost_what_they_should),
        cmocka_unit_test(full_leaves_stay),
        cmocka_unit_test(a_merge_that_is_cut_anywhere_is_finished_by_what_comes_next),
        cmocka_unit_test(a_merge_that_is_cut_within_a_leafs_body_is_finished_too),
        cmocka_unit_test(a_scan_of_leaves_that_are_merged_meanwhile_tells_each_key_once),
        cmocka_unit_test(a_key_whose_leaf_is_merged_while_it_is_read_is_found),
        cmocka_unit_test(a_merge_is_finished_into_the_slots_where_it_began),
        cmocka_unit_test(a_leaf_that_is_being_written_is_not_merged),
        cmocka_unit_test(a_walk_around_a_gap_finds_the_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
