/*
 * test_placement.c - placed subtrees (docs/internals/tree.md, Placement): however an index grows, and however
 * it is loaded, no link within a subtree leads to another memory node while there is room; where there is
 * none the tree is as sound as any.
 */
#include "rig.h"

#include <string.h>

#include "base/random.h"
#include "format/catalogue.h"

#define KEYS 3000u

static struct rig rig;

static void open_rig(const struct format_geometry *geometry, uint64_t pool_bytes)
{
    struct rig_options options;
    rig_options_default(&options);
    options.nodes = 2;
    options.geometry = *geometry;
    if (pool_bytes)
        options.pool_bytes = pool_bytes;
    rig_open(&rig, &options);
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
            assert_int_equal(report.subtree_links_away, 0);
            rig_close(&rig);
        }
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

static uint64_t bytes_on[RIG_NODES];

static void node_count(void *context, gaddr node, uint32_t bytes)
{
    (void)context;
    bytes_on[gaddr_node(node)] += bytes;
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
            /* And it stays so. */
            for (unsigned i = 0; i < KEYS; i++)
                assert_int_equal(put(1 + i * UINT64_C(7919) % 60000 * 1000), 0);
            check(&report);
            assert_int_equal(report.subtree_links_away, 0);
            rig_close(&rig);
        }
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
        geometry.leaf_kind = levels % 2;
        format_catalogue_describe(&entry, &geometry);
        format_catalogue_geometry(&entry, &back);
        assert_int_equal(back.subtree_levels, levels);
        assert_int_equal(back.leaf_kind, levels % 2);
        assert_int_equal(back.key_kind, FORMAT_KEY_VARIABLE);
    }
    struct error error = {0};
    struct format_geometry geometry = geometry_of(FORMAT_SUBTREE_LEVELS_MAX + 1, FORMAT_KEY_FIXED);
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "subtree"));
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
        cmocka_unit_test(an_index_that_is_spread_has_no_subtrees),
        cmocka_unit_test(a_full_memory_node_sends_nodes_elsewhere),
        cmocka_unit_test(a_bulk_load_places_subtrees),
        cmocka_unit_test(the_default_is_about_64_mib),
        cmocka_unit_test(the_catalogue_keeps_the_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
