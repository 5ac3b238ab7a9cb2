/*
 * test_audit.c - the audit behind `banyan check`: in a pool with several faults it reports each of them and
 * checks the rest; it ends, and does not crash, on links that lead in circles and on flipped bytes. One task,
 * the local fabric.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/audit.h"
#include "stores.h"
#include "format/internal_node.h"
#include "format/leaf.h"

#define KEYS         6000u
#define NODE_BYTES   1024u
#define PIECES_MAX   4000u
#define PROBLEMS_MAX 64u

static struct stores stores;
static struct store_session *session;
static struct tree_session *below;
static struct format_layout layout;

/* ---- what the sound pool holds ---- */

struct piece {
    gaddr address;
    unsigned leaf; /* the leaf of its slot, by its place among the leaves */
};

static struct {
    gaddr leaves[PIECES_MAX], internals[PIECES_MAX];
    unsigned leaf_entries[PIECES_MAX];
    struct piece key_blocks[PIECES_MAX], records[PIECES_MAX];
    unsigned leaf_count, internal_count, key_block_count, record_count;
} pool;

static uint8_t *at(gaddr address)
{
    return memory_node_target(stores.world.memory[gaddr_node(address)])->pool + gaddr_offset(address);
}

static void collect_block(void *context, gaddr block, uint32_t bytes)
{
    if (bytes == NODE_BYTES && at(block)[10])
        pool.internals[pool.internal_count++] = block;
    else if (bytes == NODE_BYTES)
        pool.leaves[pool.leaf_count++] = block;
    else if (bytes < 256)
        pool.key_blocks[pool.key_block_count++] = (struct piece){block, pool.leaf_count - 1};
    else
        pool.records[pool.record_count++] = (struct piece){block, pool.leaf_count - 1};
    assert_in_range(pool.leaf_count + pool.internal_count, 0, PIECES_MAX - 1);
}

static int collect_entry(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    pool.leaf_entries[pool.leaf_count - 1]++;
    return 0;
}

/* Every tenth key is too long for its slot, another tenth of the values too. */
static size_t key_of(unsigned number, char key[64])
{
    int length = snprintf(key, 64, "%05u", number * 7919 % 100000);
    if (number % 10 == 0)
        length += snprintf(key + length, 64 - (size_t)length, "-%040u", number);
    return (size_t)length;
}

static int set_up(void **state)
{
    struct world_options options;
    stores_options_default(&options);
    options.memory_nodes = 2;
    options.pool_bytes = UINT64_C(8) << 20;
    options.chunk_bytes = UINT64_C(64) << 10;
    options.geometry.key_bytes = 64;
    options.geometry.leaf_bytes = options.geometry.internal_bytes = NODE_BYTES;
    assert_int_equal(stores_create(&stores, &options), 0);
    session = stores.world.tasks[0].store_session;
    below = stores.world.tasks[0].session;
    for (unsigned i = 0; i < KEYS; i++) {
        char key[64];
        uint8_t value[300];
        stores_fill(i, value, sizeof value);
        assert_int_equal(store_put(session, key, key_of(i, key), value, i % 10 == 5 ? 300 : 8, 0), 0);
    }
    struct tree *tree = store_tree(stores.world.computes[0].store);
    assert_int_equal(format_layout_init(&layout, tree_geometry(tree), NULL), 0);
    memset(&pool, 0, sizeof pool);
    const struct tree_check_visitor nodes = {.node = collect_block, .entry = collect_entry};
    struct tree_check_report report;
    struct store_check_report store_report;
    assert_int_equal(tree_check_all(below, tree, &nodes, &report), 0);
    assert_int_equal(report.entries, KEYS);
    unsigned key_blocks = pool.key_block_count, leaves = pool.leaf_count, internals = pool.internal_count;
    pool.leaf_count = pool.internal_count = pool.key_block_count = 0;
    const struct store_check_visitor all = {.block = collect_block};
    assert_int_equal(store_check_all(session, &all, &store_report), 0);
    assert_int_equal(pool.key_block_count, key_blocks);
    assert_int_equal(pool.leaf_count, leaves);
    assert_int_equal(pool.internal_count, internals);
    assert_int_equal(pool.record_count, KEYS / 10);
    assert_int_equal(store_report.values_record, KEYS / 10);
    assert_true(key_blocks > 100 && leaves > 100 && report.height >= 3 && internals >= 8);
    return 0;
}

static int tear_down(void **state)
{
    format_layout_free(&layout);
    stores_destroy(&stores);
    return 0;
}

/* ---- auditing ---- */

struct outcome {
    struct audit_report report;
    char problems[PROBLEMS_MAX][256];
    unsigned told;
    int status;
};

static void note_problem(void *context, const char *text)
{
    struct outcome *outcome = context;
    if (outcome->told < PROBLEMS_MAX)
        snprintf(outcome->problems[outcome->told], sizeof outcome->problems[0], "%s", text);
    outcome->told++;
}

static void audit(struct outcome *outcome, bool reclaim)
{
    const struct audit_options options = {.reclaim = reclaim, .problem = note_problem, .context = outcome};
    memset(outcome, 0, sizeof *outcome);
    outcome->status = audit_run(below, &options, &outcome->report);
    assert_int_equal(outcome->told, outcome->report.problems);
}

/* Exactly one problem contains both strings, and it names the index. */
static void expect_told(const struct outcome *outcome, gaddr address, const char *what)
{
    char name[GADDR_TEXT_BYTES + 1];
    unsigned met = 0;
    gaddr_format(address, name);
    for (unsigned i = 0; i < outcome->told && i < PROBLEMS_MAX; i++) {
        const char *place = strstr(outcome->problems[i], name);
        size_t length = strlen(name);
        bool whole = place && (place[length] == ':' || place[length] == ' ');
        met += whole && strstr(outcome->problems[i], what) && strstr(outcome->problems[i], "index test: ");
    }
    if (met == 1)
        return;
    for (unsigned i = 0; i < outcome->told && i < PROBLEMS_MAX; i++)
        print_message("told: %s\n", outcome->problems[i]);
    fail_msg("%s: %s: told %u times", name, what, met);
}

static void count_used(void *context, gaddr block, uint32_t block_bytes)
{
    ++*(uint64_t *)context;
}

static uint64_t blocks_handed_out(void)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < stores.world.options.memory_nodes; i++)
        memory_node_each_used(stores.world.memory[i], count_used, &count);
    return count;
}

static void expect_sound(struct outcome *outcome)
{
    audit(outcome, false);
    assert_int_equal(outcome->status, 0);
    assert_int_equal(outcome->report.problems, 0);
    assert_false(outcome->report.lost_unjudged);
    assert_int_equal(outcome->report.entries, KEYS);
    assert_int_equal(outcome->report.leaves, pool.leaf_count);
    assert_int_equal(outcome->report.internals, pool.internal_count);
    assert_int_equal(outcome->report.blocks_lost, blocks_handed_out() - outcome->report.blocks_used);
}

/* ---- beside others' work ---- */

#define MEANWHILE 400u

/* Leaves, long keys' blocks and records are taken when the memory nodes have been asked, and before the walk.
 */
static void put_meanwhile(void *context, const char *what)
{
    if (strcmp(what, "test") != 0)
        return;
    for (unsigned i = KEYS; i < KEYS + MEANWHILE; i++) {
        char key[64];
        uint8_t value[300];
        stores_fill(i, value, sizeof value);
        assert_int_equal(store_put(session, key, key_of(i, key), value, i % 10 == 5 ? 300 : 8, 0), 0);
    }
}

static void blocks_that_are_taken_meanwhile_are_no_faults(void **state)
{
    struct outcome outcome = {.told = 0};
    const struct audit_options options = {
        .problem = note_problem, .progress = put_meanwhile, .context = &outcome};
    const uint64_t before = blocks_handed_out();
    assert_int_equal(audit_run(below, &options, &outcome.report), 0);
    assert_true(blocks_handed_out() > before + MEANWHILE / 20);
    assert_int_equal(outcome.report.entries, KEYS + MEANWHILE);
    assert_int_equal(outcome.report.problems, 0);
}

/* ---- many faults at once ---- */

/* The inner node of level 1 that follows the first `skip` ones. */
static gaddr lowest_internal(unsigned skip)
{
    for (unsigned i = 0; i < pool.internal_count; i++)
        if (at(pool.internals[i])[10] == 1 && !skip--)
            return pool.internals[i];
    fail_msg("too few inner nodes");
    return 0;
}

static const struct piece *piece_after(const struct piece *pieces, unsigned count, unsigned leaf)
{
    for (unsigned i = 0; i < count; i++)
        if (pieces[i].leaf >= leaf)
            return &pieces[i];
    fail_msg("no piece after leaf %u", leaf);
    return NULL;
}

static uint32_t taken_slot(gaddr leaf)
{
    struct format_header header;
    struct format_slot slot;
    assert_true(format_header_decode(&layout, at(leaf), &header));
    for (uint32_t i = 0; i < layout.slots; i++)
        if (format_slot_read(&layout, at(leaf), i, format_slot_seed(header.tag, header.version), header.lower,
                             &slot) == FORMAT_SLOT_TAKEN &&
            slot.block == GADDR_NULL && slot.value.length && slot.value.bytes[0] == 1) /* an inline value */
            return i;
    fail_msg("no slot with a value");
    return 0;
}

struct raw {
    uint8_t bytes[FORMAT_VALUE_MAX];
    size_t length;
};

/* The slot of the key numbered 5: a record's. */
static gaddr record_slot(struct raw *raw)
{
    char key[64];
    gaddr address;
    raw->length = sizeof raw->bytes;
    assert_int_equal(tree_lookup(below, store_tree(stores.world.computes[0].store), key, key_of(5, key),
                                 raw->bytes, &raw->length),
                     0);
    memcpy(&address, raw->bytes + 1, sizeof address);
    return address;
}

static void free_behind_its_back(gaddr block)
{
    struct memory_free_request request = {.kind = MEMORY_FREE, .count = 1};
    uint32_t reply;
    size_t length;
    request.block_bytes = memory_block_bytes(37 + 5 + 300);
    request.blocks[0] = block;
    assert_int_equal(pool_call(tree_session_pool(below), gaddr_node(block), &request, sizeof request, &reply,
                               sizeof reply, &length),
                     0);
}

static void tells_each_of_many_faults(void **state)
{
    struct outcome *outcome = malloc(sizeof *outcome);
    unsigned leaves = pool.leaf_count;
    gaddr leaf = pool.leaves[leaves / 2], slotted = pool.leaves[leaves / 2 + 20], leaked;
    gaddr inner = lowest_internal(1), headless = lowest_internal(3);
    gaddr key_block = piece_after(pool.key_blocks, pool.key_block_count, leaves / 2 + 30)->address;
    gaddr record = piece_after(pool.records, pool.record_count, leaves / 2 + 40)->address;
    gaddr freed = piece_after(pool.records, pool.record_count, leaves / 2 + 50)->address;
    struct raw raw;
    gaddr twice = record_slot(&raw);
    expect_sound(outcome);
    assert_int_equal(pool_block_allocate(tree_session_pool(below), GADDR_NULL, 8192, &leaked), 0);
    expect_sound(outcome); /* lost blocks are no problem */
    assert_true(outcome->report.blocks_lost > 0);
    uint64_t lost = outcome->report.blocks_lost;
    assert_int_equal(
        tree_upsert(below, store_tree(stores.world.computes[0].store), "00000b", 6, raw.bytes, raw.length),
        0);
    free_behind_its_back(freed);
    uint8_t *flips[] = {at(leaf) + 17,
                        at(slotted) + layout.slot_offset[taken_slot(slotted)],
                        at(inner) + layout.header_bytes,
                        at(headless) + 4,
                        at(key_block) + 3,
                        at(record) + 100};
    for (unsigned i = 0; i < sizeof flips / sizeof *flips; i++)
        *flips[i] ^= 0x10;
    audit(outcome, false);
    assert_int_equal(outcome->status, 0);
    expect_told(outcome, leaf, "header fails its check");
    expect_told(outcome, slotted, "slot");
    expect_told(outcome, inner, "entries fail their check");
    expect_told(outcome, headless, "header fails its check");
    expect_told(outcome, key_block, "key block");
    expect_told(outcome, record, "damaged");
    expect_told(outcome, freed, "counts it as free");
    expect_told(outcome, twice, "not the one that the index names");
    expect_told(outcome, twice, "used twice");
    assert_int_equal(outcome->report.problems, 9);
    /* All but what stood in the damaged leaf, in the slot and under the lost key; one more for the foreign
     * slot. */
    assert_int_equal(outcome->report.entries, KEYS - pool.leaf_entries[leaves / 2] - 2 + 1);
    assert_int_equal(outcome->report.leaves, leaves - 1);
    assert_int_equal(outcome->report.internals, pool.internal_count - 1);
    assert_int_equal(outcome->report.missing_parents, 0);
    assert_true(outcome->report.lost_unjudged);
    assert_true(outcome->report.blocks_lost > lost);
    uint64_t before = blocks_handed_out();
    audit(outcome, true); /* returns nothing */
    assert_int_equal(outcome->report.blocks_reclaimed, 0);
    assert_int_equal(blocks_handed_out(), before);
    for (unsigned i = 0; i < sizeof flips / sizeof *flips; i++)
        *flips[i] ^= 0x10;
    audit(outcome, false);
    assert_int_equal(outcome->report.problems, 3);
    assert_int_equal(outcome->report.entries, KEYS + 1);
    free(outcome);
}

/* ---- other indexes ---- */

static void first_leaf(void *context, gaddr node, uint32_t bytes)
{
    gaddr *leaf = context;
    if (!*leaf && !at(node)[10])
        *leaf = node;
}

/* An index of fixed keys, whose slots are decoded many at a time; and a damaged entry of the catalogue,
 * behind which the other indexes are still checked. */
static void goes_on_with_other_indexes(void **state)
{
    struct outcome *outcome = malloc(sizeof *outcome);
    struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8};
    struct format_layout plain;
    struct tree_check_report report;
    struct tree *tree;
    gaddr leaf = 0;
    assert_int_equal(tree_create(below, "plain", &geometry, &tree), 0);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(tree_insert(below, tree, &i, 8, &i, 8), 0);
    assert_int_equal(tree_check(below, tree, &report, first_leaf, &leaf), 0);
    assert_int_equal(format_layout_init(&plain, tree_geometry(tree), NULL), 0);
    uint32_t damaged = 0, number = 0;
    for (; damaged < 2; number++) { /* two taken slots: a taken one's check is odd */
        assert_true(number < plain.slots);
        uint8_t *slot = at(leaf) + plain.slot_offset[number];
        slot[6] ^= (uint8_t)(slot[0] & 1u);
        damaged += slot[0] & 1u;
    }
    audit(outcome, false);
    assert_int_equal(outcome->status, 0);
    assert_int_equal(outcome->report.problems, 2);
    assert_non_null(strstr(outcome->problems[0], "index plain: "));
    assert_string_not_equal(outcome->problems[0], outcome->problems[1]);
    assert_int_equal(outcome->report.indexes, 2);
    assert_int_equal(outcome->report.entries, KEYS + 1000 - 2);
    uint8_t *entry = NULL; /* of the catalogue, in which names are plain text */
    for (uint64_t offset = MEMORY_CATALOGUE_OFFSET; !entry; offset++)
        entry = memcmp(at(gaddr_make(0, offset)), "plain", 6) ? NULL : at(gaddr_make(0, offset));
    *entry ^= 1;
    audit(outcome, false);
    assert_int_equal(outcome->status, 0);
    assert_int_equal(outcome->report.problems, 1);
    assert_non_null(strstr(outcome->problems[0], "catalogue"));
    assert_int_equal(outcome->report.entries, KEYS);
    assert_true(outcome->report.lost_unjudged);
    format_layout_free(&plain);
    tree_close(tree);
    free(outcome);
}

/* ---- links astray ---- */

static void turn_sibling(gaddr leaf, gaddr to)
{
    struct format_header header, other;
    assert_true(format_header_decode(&layout, at(leaf), &header));
    assert_true(format_header_decode(&layout, at(to), &other));
    header.sibling = (struct format_link){to, other.tag};
    format_header_encode(&layout, &header, at(leaf));
}

/* Sibling links that lead back, or skip nodes, while the level above still leads to all nodes. */
static void follows_the_level_above(void **state)
{
    struct outcome *outcome = malloc(sizeof *outcome);
    struct random random;
    random_seed(&random, world_seed(11));
    for (unsigned round = 0; round < 40; round++) {
        uint8_t saved[3][NODE_BYTES];
        unsigned from[3], to;
        for (unsigned i = 0; i < 3; i++) {
            from[i] = (unsigned)random_below(&random, pool.leaf_count - 1);
            do
                to = (unsigned)random_below(&random, pool.leaf_count);
            while (to == from[i] + 1);
            memcpy(saved[i], at(pool.leaves[from[i]]), NODE_BYTES);
            turn_sibling(pool.leaves[from[i]], pool.leaves[to]);
        }
        audit(outcome, false);
        assert_int_equal(outcome->status, 0);
        assert_true(outcome->report.problems > 0);
        assert_int_equal(outcome->report.entries, KEYS);
        assert_int_equal(outcome->report.leaves, pool.leaf_count);
        for (unsigned i = 3; i-- > 0;)
            memcpy(at(pool.leaves[from[i]]), saved[i], NODE_BYTES);
    }
    expect_sound(outcome);
    free(outcome);
}

/* Valid inner nodes whose links lead anywhere: each node is visited at most once. */
static void ends_in_crossed_trees(void **state)
{
    struct outcome *outcome = malloc(sizeof *outcome);
    struct random random;
    random_seed(&random, world_seed(12));
    for (unsigned round = 0; round < 100; round++) {
        uint8_t saved[NODE_BYTES], built[NODE_BYTES];
        struct format_entry entries[FORMAT_ENTRIES_MAX];
        struct format_header header, other;
        gaddr node = pool.internals[random_below(&random, pool.internal_count)];
        memcpy(saved, at(node), NODE_BYTES);
        assert_true(format_header_decode(&layout, saved, &header));
        assert_true(format_internal_decode(&layout, saved, &header, entries));
        for (unsigned i = 0; i < 3; i++) {
            gaddr to = random_chance(&random, 0.5)
                           ? pool.internals[random_below(&random, pool.internal_count)]
                           : pool.leaves[random_below(&random, pool.leaf_count)];
            assert_true(format_header_decode(&layout, at(to), &other));
            struct format_link link = {to, other.tag};
            if (random_chance(&random, 0.3))
                header.sibling = header.has_upper ? link : header.sibling;
            else
                entries[random_below(&random, header.count)].link = link;
        }
        format_internal_encode(&layout, &header, entries, header.count, built);
        memcpy(at(node), built, NODE_BYTES);
        audit(outcome, false);
        assert_int_equal(outcome->status, 0);
        assert_in_range(outcome->report.entries, 0, KEYS);
        assert_in_range(outcome->report.leaves, 0, pool.leaf_count);
        assert_in_range(outcome->report.internals, 1, pool.internal_count);
        memcpy(at(node), saved, NODE_BYTES);
    }
    expect_sound(outcome);
    free(outcome);
}

/* ---- bytes that flip ---- */

static gaddr any_block(struct random *random)
{
    switch (random_below(random, 5)) {
    case 0:
        return pool.leaves[random_below(random, pool.leaf_count)];
    case 1:
        return pool.internals[random_below(random, pool.internal_count)];
    case 2:
        return pool.key_blocks[random_below(random, pool.key_block_count)].address;
    case 3:
        return pool.records[random_below(random, pool.record_count)].address;
    default: /* any bytes, also the catalogue's */
        return gaddr_make((uint16_t)random_below(random, 2),
                          4096 + random_below(random, (UINT64_C(1) << 20) - 4096));
    }
}

static void survives_flipped_bytes(void **state)
{
    struct outcome *outcome = malloc(sizeof *outcome);
    uint64_t bytes = stores.world.options.pool_bytes;
    uint8_t *saved = malloc(2 * bytes);
    struct random random;
    random_seed(&random, world_seed(13));
    assert_non_null(saved);
    for (unsigned i = 0; i < 2; i++)
        memcpy(saved + i * bytes, memory_node_target(stores.world.memory[i])->pool, bytes);
    for (unsigned round = 0; round < world_rounds(150); round++) {
        uint64_t flips = 1 + random_below(&random, random_chance(&random, 0.3) ? 2000 : 20);
        for (uint64_t i = 0; i < flips; i++) {
            gaddr block = any_block(&random);
            uint64_t behind = bytes - gaddr_offset(block),
                     reach = random_chance(&random, 0.5) ? 64 : NODE_BYTES;
            at(block)[random_below(&random, reach < behind ? reach : behind)] ^=
                (uint8_t)(1u + random_below(&random, 255));
        }
        audit(outcome, false);
        /* The way to the index may be damaged; then that is reported. */
        if (outcome->status)
            assert_string_not_equal(tree_session_error(below)->text, "");
        assert_in_range(outcome->report.entries, 0, KEYS);
        assert_in_range(outcome->report.leaves, 0, pool.leaf_count);
        for (unsigned i = 0; i < 2; i++)
            memcpy(memory_node_target(stores.world.memory[i])->pool, saved + i * bytes, bytes);
    }
    expect_sound(outcome);
    free(saved);
    free(outcome);
}

/* ---- an index whose drop was interrupted ---- */

static void ends_a_drop(void **state)
{
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512};
    struct outcome *outcome = calloc(1, sizeof *outcome);
    struct tree *tree;
    uint64_t before = blocks_handed_out();
    assert_non_null(outcome);
    assert_int_equal(tree_create(below, "half", &geometry, &tree), 0);
    for (uint64_t i = 0; i < 3000; i++)
        assert_int_equal(tree_upsert(below, tree, &i, sizeof i, &i, sizeof i), 0);
    tree_close(tree);
    audit(outcome, false);
    assert_int_equal(outcome->report.half_dropped, 0);
    assert_int_equal(outcome->report.indexes, 2);
    uint64_t lost = outcome->report.blocks_lost;
    uint8_t *name = at(gaddr_make(0, MEMORY_CATALOGUE_OFFSET));
    while (memcmp(name, "half", 5))
        name++;
    name[-32] ^= 21; /* the first step of a drop, in the root word at the entry's start */
    audit(outcome, false);
    assert_int_equal(outcome->report.problems, 0);
    assert_int_equal(outcome->report.half_dropped, 1);
    assert_int_equal(outcome->report.indexes, 1);
    assert_true(outcome->report.blocks_lost > lost + 50);
    audit(outcome, true);
    assert_int_equal(outcome->status, 0);
    assert_int_equal(outcome->report.problems, 0);
    assert_int_equal(outcome->report.half_dropped, 0);
    assert_int_equal(outcome->report.entries, KEYS);
    assert_true(blocks_handed_out() <= before);
    audit(outcome, true);
    assert_int_equal(outcome->report.half_dropped, 0);
    assert_int_equal(outcome->report.problems, 0);
    free(outcome);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(blocks_that_are_taken_meanwhile_are_no_faults),
        TEST(tells_each_of_many_faults),
        TEST(goes_on_with_other_indexes),
        TEST(follows_the_level_above),
        TEST(ends_in_crossed_trees),
        TEST(survives_flipped_bytes),
        TEST(ends_a_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
