/*
 * test_placement.c - placed subtrees (docs/internals/tree.md, Placement): an index of less than a subtree,
 * and one that is loaded, has no link within a subtree to another memory node while there is room; one that
 * grows has few, and fills all memory nodes evenly. Where there is no room the tree is as sound as any. And
 * the choice of memory nodes (homes.h) by itself.
 */
#include "rig.h"

#include <string.h>

#include "base/random.h"
#include "format/catalogue.h"
#include "tree/homes.h"

#define KEYS 3000u

static struct rig rig;

static void open_over(unsigned nodes, const struct format_geometry *geometry, uint64_t pool_bytes)
{
    struct rig_options options;
    rig_options_default(&options);
    options.nodes = nodes;
    options.geometry = *geometry;
    if (pool_bytes)
        options.pool_bytes = pool_bytes;
    rig_open(&rig, &options);
}

static void open_rig(const struct format_geometry *geometry, uint64_t pool_bytes)
{
    open_over(RIG_NODES, geometry, pool_bytes);
}

static struct format_geometry geometry_of(unsigned levels, enum format_key_kind kind)
{
    return (struct format_geometry){.key_kind = (uint8_t)kind,
                                    .key_bytes = kind == FORMAT_KEY_FIXED ? 8 : 40,
                                    .inline_key_bytes = kind == FORMAT_KEY_FIXED ? 0 : 16,
                                    .value_bytes = 8,
                                    .leaf_bytes = 512,
                                    .internal_bytes = 512,
                                    .subtree_levels = (uint8_t)levels};
}

/* A key of the geometry: its number, and for variable ones a tail, so that some need a block. */
static size_t key_make(uint64_t number, uint8_t key[40])
{
    const bool fixed = rig.options.geometry.key_kind == FORMAT_KEY_FIXED;
    const size_t length = fixed ? 8 : 8 + number % 32;
    memset(key, (int)('a' + number % 7), 40);
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number >> (56 - 8 * i));
    return length;
}

static int put(uint64_t number)
{
    uint8_t key[40], value[8] = {1};
    size_t length = key_make(number, key);
    return tree_upsert(rig.ours.session, rig.ours.tree, key, length, value, sizeof value);
}

static void check(struct tree_check_report *report)
{
    if (tree_check(rig.ours.session, rig.ours.tree, report, NULL, NULL))
        fail_msg("%s", tree_session_error(rig.ours.session)->text);
}

static uint64_t bytes_on[RIG_NODES_MAX];

static void node_count(void *context, gaddr node, uint32_t bytes)
{
    (void)context;
    bytes_on[gaddr_node(node)] += bytes;
}

static void random_insertions_keep_subtrees_together(void **state)
{
    (void)state;
    for (unsigned kind = FORMAT_KEY_FIXED; kind <= FORMAT_KEY_VARIABLE; kind++)
        for (unsigned levels = 1; levels <= 4; levels++) {
            const struct format_geometry geometry = geometry_of(levels, (enum format_key_kind)kind);
            struct tree_check_report report;
            struct random random;
            random_seed(&random, 7 * levels + kind);
            open_rig(&geometry, 0);
            for (unsigned i = 0; i < KEYS; i++)
                assert_int_equal(put(random_below(&random, UINT64_C(1) << 60)), 0);
            check(&report);
            assert_true(report.height > 2);
            assert_int_equal(report.subtree_links > 0, levels > 1);
            if (report.height <= levels) /* all of it is one subtree */
                assert_int_equal(report.subtree_links_away, 0);
            else
                assert_true(report.subtree_links_away * 2 <= report.subtree_links);
            rig_close(&rig);
        }
}

/* An index of many subtrees, each of which began as half of another one. */
static void grow(unsigned levels, bool ascending, uint64_t keys, struct tree_check_report *report)
{
    const struct format_geometry geometry = geometry_of(levels, FORMAT_KEY_FIXED);
    struct random random;
    random_seed(&random, levels);
    open_over(RIG_NODES_MAX, &geometry, 0);
    for (uint64_t i = 0; i < keys; i++)
        assert_int_equal(put(ascending ? i * 1000 : random_below(&random, UINT64_C(1) << 60)), 0);
    memset(bytes_on, 0, sizeof bytes_on);
    assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, report, node_count, NULL), 0);
    assert_int_equal(report->entries, keys);
    for (unsigned i = 0; i < RIG_NODES_MAX; i++) /* three quarters of an even share */
        assert_true(bytes_on[i] * RIG_NODES_MAX * 4 > report->bytes * 3);
}

/* The half that a subtree gives away follows its highest node as its leaves split, so about a fifth of all
 * links leads away at any time. Without the moves more than a third would. */
static void subtrees_that_split_go_elsewhere_and_their_nodes_follow(void **state)
{
    (void)state;
    for (unsigned levels = 2; levels <= 3; levels++) {
        struct tree_check_report report;
        grow(levels, false, 50000, &report);
        assert_true(report.subtree_links_away * 10 < report.subtree_links * 3);
        /* One move for each leaf that was given away, and one leaf in fourteen keys: less than half. */
        const uint64_t moves = tree_session_stats(rig.ours.session)->moves;
        assert_in_range(moves, 500, 2500);
        rig_close(&rig);
    }
}

/* What is appended begins its subtree where that is: all that moves is the first way down. */
static void appended_subtrees_begin_where_they_stay(void **state)
{
    (void)state;
    struct tree_check_report report;
    grow(2, true, 25000, &report);
    assert_int_equal(report.subtree_links_away, 0);
    assert_in_range(tree_session_stats(rig.ours.session)->moves, 1, 25000 / 400);
    rig_close(&rig);
}

static void an_index_that_is_spread_has_no_subtrees(void **state)
{
    (void)state;
    const struct format_geometry geometry = geometry_of(0, FORMAT_KEY_FIXED);
    struct tree_check_report report;
    open_rig(&geometry, 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(put(i * UINT64_C(7919) % 100003), 0);
    check(&report);
    assert_int_equal(report.subtree_links, 0);
    rig_close(&rig);
}

/* Both memory nodes are filled; what finds no room beside its subtree lies elsewhere. */
static void a_full_memory_node_sends_nodes_elsewhere(void **state)
{
    (void)state;
    const struct format_geometry geometry = geometry_of(4, FORMAT_KEY_FIXED);
    struct tree_check_report report;
    uint64_t number = 0;
    open_rig(&geometry, 2 << 20);
    int status = 0;
    while (!status && number < 200000)
        status = put(number++ * UINT64_C(15485863) % 1000003);
    assert_int_equal(status, BANYAN_ENOSPC);
    check(&report);
    assert_true(report.subtree_links_away > 0);
    assert_true(report.subtree_links_away < report.subtree_links);
    assert_true(report.bytes > (uint64_t)2 << 20); /* more than one memory node has */
    rig_close(&rig);
}

/* ---- bulk loads ---- */

struct stream {
    uint64_t next, end;
    uint8_t key[40], value[8];
};

static bool stream_next(void *context, const void **key, size_t *key_length, const void **value,
                        size_t *length)
{
    struct stream *stream = context;
    if (stream->next == stream->end)
        return false;
    *key_length = key_make(stream->next++, stream->key);
    *key = stream->key;
    *value = stream->value;
    *length = sizeof stream->value;
    return true;
}

static void a_bulk_load_places_subtrees(void **state)
{
    (void)state;
    for (unsigned kind = FORMAT_KEY_FIXED; kind <= FORMAT_KEY_VARIABLE; kind++)
        for (unsigned levels = 1; levels <= 3; levels++) {
            const struct format_geometry geometry = geometry_of(levels, (enum format_key_kind)kind);
            struct tree_check_report report;
            struct tree_bulk *bulk;
            struct error error = {0};
            open_rig(&geometry, 0);
            memset(bytes_on, 0, sizeof bytes_on);
            assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, 3, 0.8, &error), 0);
            for (unsigned part = 0; part < 3; part++) {
                struct stream stream = {.next = part * 20000, .end = (part + 1) * 20000};
                assert_int_equal(tree_bulk_part(rig.ours.session, bulk, part, stream_next, &stream), 0);
            }
            assert_int_equal(tree_bulk_finish(rig.ours.session, bulk), 0);
            assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, &report, node_count, NULL), 0);
            assert_int_equal(report.entries, 60000);
            assert_int_equal(report.subtree_links_away, 0);
            assert_int_equal(report.subtree_links > 0, levels > 1);
            /* Each memory node has about a half: three parts' subtrees, or as much less as one has. */
            for (unsigned i = 0; i < RIG_NODES; i++)
                assert_true(bytes_on[i] > report.bytes / 4);
            /* And it stays so, but for what splits off. */
            for (unsigned i = 0; i < KEYS; i++)
                assert_int_equal(put(1 + i * UINT64_C(7919) % 60000 * 1000), 0);
            check(&report);
            assert_true(report.subtree_links_away * 50 <= report.subtree_links);
            rig_close(&rig);
        }
}

/* ---- the choice ---- */

#define MIB (UINT64_C(1) << 20)

static void the_roomiest_memory_node_is_chosen(void **state)
{
    (void)state;
    struct homes homes;
    struct home nodes[4] = {
        {true, 100 * MIB, 0}, {true, 900 * MIB, 0}, {false, 4000 * MIB, 0}, {true, MIB, 0}};
    homes_init(&homes, 3);
    assert_int_equal(homes_choose(&homes, nodes, 4, 32 * MIB), 1);
    nodes[1].takes = false;
    assert_int_equal(homes_choose(&homes, nodes, 4, 32 * MIB), 0);
    nodes[0].takes = false;
    assert_int_equal(homes_choose(&homes, nodes, 4, 32 * MIB), HOMES_NONE); /* too little room */
    assert_int_equal(homes_choose(&homes, nodes, 4, 2 * MIB), 3);
}

/* Nothing has come yet of what was promised. */
static void promises_count_as_taken(void **state)
{
    (void)state;
    struct homes homes;
    struct home nodes[4];
    unsigned chosen[4] = {0};
    for (unsigned i = 0; i < 4; i++)
        nodes[i] = (struct home){true, 1000 * MIB + i * MIB, 0};
    homes_init(&homes, 2);
    for (unsigned i = 0; i < 40; i++)
        chosen[homes_choose(&homes, nodes, 4, 32 * MIB)]++;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(chosen[i], 10);
    /* One that has room for eight more gets them, and then its share. */
    nodes[3].bytes_free += 8 * 32 * MIB;
    memset(chosen, 0, sizeof chosen);
    for (unsigned i = 0; i < 8; i++)
        chosen[homes_choose(&homes, nodes, 4, 32 * MIB)]++;
    assert_true(chosen[3] >= 6);
}

static void compute_nodes_begin_with_different_ones(void **state)
{
    (void)state;
    const struct home nodes[4] = {
        {true, 1000 * MIB, 0}, {true, 1000 * MIB, 0}, {true, 1000 * MIB, 0}, {true, 1000 * MIB, 0}};
    unsigned chosen[4] = {0};
    for (uint16_t number = 1; number <= 8; number++) {
        struct homes homes;
        homes_init(&homes, number);
        chosen[homes_choose(&homes, nodes, 4, 32 * MIB)]++;
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(chosen[i], 2);
}

static void a_slow_memory_node_gets_none(void **state)
{
    (void)state;
    struct homes homes;
    const struct home nodes[3] = {{true, 900 * MIB, 9000}, {true, 100 * MIB, 3000}, {true, 300 * MIB, 0}};
    homes_init(&homes, 1);
    assert_int_equal(homes_choose(&homes, nodes, 3, 32 * MIB), 2); /* not known to be slow */
    assert_int_equal(homes_choose(&homes, nodes, 2, 32 * MIB), 1);
}

/* ---- the option ---- */

static void the_default_is_about_64_mib(void **state)
{
    (void)state;
    const struct {
        uint8_t key_kind, key_bytes;
        uint32_t leaf_bytes;
    } shapes[] = {{FORMAT_KEY_FIXED, 8, 1024}, {FORMAT_KEY_FIXED, 64, 1024}, {FORMAT_KEY_VARIABLE, 0, 0}};
    for (unsigned i = 0; i < 3; i++) {
        struct format_geometry geometry = {.key_kind = shapes[i].key_kind,
                                           .key_bytes = shapes[i].key_bytes,
                                           .leaf_bytes = shapes[i].leaf_bytes,
                                           .value_bytes = 8,
                                           .subtree_levels = FORMAT_SUBTREE_DEFAULT};
        struct format_geometry_shape shape;
        struct error error = {0};
        assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
        format_geometry_shape(&geometry, &shape);
        const double children = 0.7 * shape.internal_entries, wanted = 64 << 20;
        double bytes = geometry.leaf_bytes;
        for (unsigned level = 1; level < geometry.subtree_levels; level++)
            bytes *= children;
        /* No other number of levels comes nearer, by ratio. */
        assert_true(bytes * bytes < wanted * wanted * children);
        assert_true(bytes * bytes * children >= wanted * wanted);
        struct format_geometry again = geometry;
        assert_int_equal(format_geometry_complete(&again, 4096, &error), 0);
        assert_int_equal(again.subtree_levels, geometry.subtree_levels);
    }
}

static void the_catalogue_keeps_the_levels(void **state)
{
    (void)state;
    for (unsigned levels = 0; levels <= FORMAT_SUBTREE_LEVELS_MAX; levels++) {
        struct format_geometry geometry = geometry_of(levels, FORMAT_KEY_VARIABLE), back;
        struct format_catalogue_entry entry = {.used = 1};
        for (unsigned kind = 0; kind <= FORMAT_LEAF_KIND_LAST; kind++) {
            geometry.leaf_kind = (uint8_t)kind;
            format_catalogue_describe(&entry, &geometry);
            format_catalogue_geometry(&entry, &back);
            assert_int_equal(back.subtree_levels, levels);
            assert_int_equal(back.leaf_kind, kind);
            assert_int_equal(back.key_kind, FORMAT_KEY_VARIABLE);
        }
    }
    struct error error = {0};
    struct format_geometry geometry = geometry_of(FORMAT_SUBTREE_LEVELS_MAX + 1, FORMAT_KEY_FIXED);
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "subtree"));
    /* What programs that know no dense leaves read, and have always compared with the two kinds of keys. */
    for (unsigned key = FORMAT_KEY_FIXED; key <= FORMAT_KEY_VARIABLE; key++)
        for (unsigned kind = 0; kind <= FORMAT_LEAF_KIND_LAST; kind++) {
            struct format_catalogue_entry entry = {.used = 1};
            geometry = geometry_of(0, (enum format_key_kind)key);
            geometry.leaf_kind = (uint8_t)kind;
            format_catalogue_describe(&entry, &geometry);
            assert_int_equal(entry.kinds % 16 > FORMAT_KEY_VARIABLE, kind == FORMAT_LEAF_DENSE);
            assert_int_equal(entry.kinds > FORMAT_KEY_VARIABLE, kind != FORMAT_LEAF_HASHED); /* the first */
        }
    /* An entry of before has none: the bits are zero. */
    struct format_catalogue_entry entry = {.used = 1, .kinds = FORMAT_LEAF_UNSORTED << 4};
    format_catalogue_geometry(&entry, &geometry);
    assert_int_equal(geometry.subtree_levels, 0);
    assert_int_equal(geometry.leaf_kind, FORMAT_LEAF_UNSORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_insertions_keep_subtrees_together),
        cmocka_unit_test(subtrees_that_split_go_elsewhere_and_their_nodes_follow),
        cmocka_unit_test(appended_subtrees_begin_where_they_stay),
        cmocka_unit_test(an_index_that_is_spread_has_no_subtrees),
        cmocka_unit_test(a_full_memory_node_sends_nodes_elsewhere),
        cmocka_unit_test(a_bulk_load_places_subtrees),
        cmocka_unit_test(the_roomiest_memory_node_is_chosen),
        cmocka_unit_test(promises_count_as_taken),
        cmocka_unit_test(compute_nodes_begin_with_different_ones),
        cmocka_unit_test(a_slow_memory_node_gets_none),
        cmocka_unit_test(the_default_is_about_64_mib),
        cmocka_unit_test(the_catalogue_keeps_the_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
