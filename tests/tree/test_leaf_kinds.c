/*
 * test_leaf_kinds.c - unsorted leaves (format/geometry.h): an entry takes any free slot, a leaf splits when
 * all slots are taken and in the middle, a bulk load fills by slots, and an index keeps its kind of leaf.
 * Dense leaves: triples of 23 to 29 slots, which random keys fill further than a hashed leaf's.
 */
#include "rig.h"

#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"

static struct rig rig;
static struct rig_options options;

static void open_rig(enum format_leaf_kind kind, uint32_t leaf_bytes)
{
    rig_options_default(&options);
    options.geometry.leaf_bytes = leaf_bytes;
    options.geometry.leaf_kind = (uint8_t)kind;
    rig_open(&rig, &options);
}

static struct format_geometry_shape shape_of(enum format_leaf_kind kind, uint32_t leaf_bytes, uint8_t value)
{
    struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = value, .leaf_bytes = leaf_bytes, .leaf_kind = (uint8_t)kind};
    struct format_geometry_shape shape;
    assert_int_equal(format_geometry_complete(&geometry, 4096, NULL), 0);
    format_geometry_shape(&geometry, &shape);
    return shape;
}

/* What docs/benchmarks.md says of the leaf of the comparison: 1 KiB, entries of 8 and 8 bytes. */
static void an_unsorted_leaf_uses_all_its_room(void **state)
{
    (void)state;
    struct format_geometry_shape hashed = shape_of(FORMAT_LEAF_HASHED, 1024, 8);
    struct format_geometry_shape unsorted = shape_of(FORMAT_LEAF_UNSORTED, 1024, 8);
    assert_int_equal(hashed.slots, 45);
    assert_int_equal(unsorted.slots, 47);
    assert_int_equal(unsorted.slot_bytes, hashed.slot_bytes);
    assert_int_equal(unsorted.bucket_read_bytes, 4 + 47 * 20); /* a point read cannot fetch less */
    assert_in_range(unsorted.header_bytes + unsorted.bucket_read_bytes, 1024 - 19, 1024);
    /* Readers, splits and merges keep a bit for each slot of the largest leaf. */
    struct format_geometry tiny = {.key_kind = FORMAT_KEY_VARIABLE,
                                   .key_bytes = 1,
                                   .inline_key_bytes = 1,
                                   .leaf_bytes = 65536,
                                   .leaf_kind = FORMAT_LEAF_UNSORTED};
    struct format_geometry_shape most;
    assert_int_equal(format_geometry_complete(&tiny, 4096, NULL), 0);
    format_geometry_shape(&tiny, &most);
    assert_in_range(most.slots, 8000, 8192);
}

static struct format_layout dense_layout(struct format_geometry geometry)
{
    struct format_layout layout;
    geometry.leaf_kind = FORMAT_LEAF_DENSE;
    assert_int_equal(format_geometry_complete(&geometry, 4096, NULL), 0);
    assert_int_equal(format_layout_init(&layout, &geometry, NULL), 0);
    return layout;
}

static void expect_layout(struct format_geometry geometry, uint32_t triples, uint32_t segment,
                          uint32_t overflow)
{
    struct format_layout layout = dense_layout(geometry);
    assert_int_equal(layout.triples, triples);
    assert_int_equal(layout.segment_slots, segment);
    assert_int_equal(layout.overflow_slots, overflow);
    assert_int_equal(layout.slots, triples * (2 * segment + overflow));
    assert_int_equal(layout.buckets, 2 * triples);
    assert_int_equal(layout.bucket_bytes, 4 + (segment + overflow) * layout.slot_bytes);
    format_layout_free(&layout);
}

/* What docs/internals/tree.md says of them. */
static void a_dense_leaf_has_larger_triples(void **state)
{
    (void)state;
    const struct format_geometry small = {.key_bytes = 8, .value_bytes = 8};
    struct format_geometry tiny = small, server = {.key_kind = FORMAT_KEY_VARIABLE,
                                                   .inline_key_bytes = 16,
                                                   .value_bytes = 17,
                                                   .value_variable = true,
                                                   .content = FORMAT_CONTENT_STORE};
    expect_layout(small, 2, 9, 5);
    expect_layout(server, 3, 12, 5);
    server.key_bytes = 144; /* where a fabric writes 1,024 bytes at once */
    expect_layout(server, 4, 9, 5);
    tiny.leaf_bytes = 512; /* as a hashed leaf of that size */
    expect_layout(tiny, 1, 7, 8);
}

/* No other number of triples of that many slots would leave fewer bytes without one. */
static void every_dense_leaf_uses_its_room(void **state)
{
    (void)state;
    unsigned single = 0, several = 0;
    for (uint32_t bytes = 512; bytes <= 65536; bytes *= 2)
        for (unsigned key = 8; key <= FORMAT_KEY_MAX; key += 13)
            for (unsigned value = 0; value <= FORMAT_VALUE_MAX; value += 15) {
                const struct format_geometry geometry = {.key_bytes = (uint8_t)key,
                                                         .value_bytes = (uint8_t)value,
                                                         .leaf_bytes = bytes,
                                                         .internal_bytes = 4096,
                                                         .leaf_kind = FORMAT_LEAF_DENSE};
                struct format_geometry complete = geometry;
                if (format_geometry_complete(&complete, 4096, NULL))
                    continue; /* no four slots */
                struct format_layout layout = dense_layout(geometry);
                const uint32_t room = bytes - layout.header_bytes;
                uint32_t most = 0;
                for (uint32_t slots = 23; slots <= 29; slots += 2) {
                    const uint32_t triples = room / (4 + slots * layout.slot_bytes);
                    if (triples >= 2 && triples <= FORMAT_BUCKETS_MAX / 2 && triples * slots > most)
                        most = triples * slots;
                }
                if (most) {
                    assert_int_equal(layout.slots, most);
                    assert_int_equal(layout.overflow_slots, 5);
                    assert_in_range(layout.triple_slots, 23, 29);
                } else {
                    assert_int_equal(layout.triples, 1);
                    assert_int_equal(layout.slots, (room - 4) / layout.slot_bytes);
                }
                assert_true(layout.used_bytes <= bytes);
                single += !most;
                several += most > 0;
                format_layout_free(&layout);
            }
    assert_true(single > 100 && several > 100);
}

static void put(unsigned number)
{
    uint8_t key[FORMAT_KEY_MAX], value[8] = {1};
    size_t length = rig_key(&rig, number, key);
    if (tree_upsert(rig.ours.session, rig.ours.tree, key, length, value, sizeof value))
        fail_msg("key %u: %s", number, tree_session_error(rig.ours.session)->text);
}

static uint64_t splits(void)
{
    return tree_session_stats(rig.ours.session)->splits;
}

/* Random keys: how many entries there are to a leaf in the end, from which the memory that an entry takes
 * follows (docs/internals/profile.md). Of 22 slots in one triple nearly all are taken before a leaf is split.
 */
static void random_keys_fill_leaves(void **state)
{
    (void)state;
    static const struct {
        enum format_leaf_kind kind;
        uint32_t bytes;
        double least, most; /* entries to a leaf */
    } cases[] = {{FORMAT_LEAF_HASHED, 1024, 24.5, 27},
                 {FORMAT_LEAF_HASHED, 512, 14.7, 16},
                 {FORMAT_LEAF_UNSORTED, 1024, 31.5, 34},
                 {FORMAT_LEAF_DENSE, 1024, 27, 29.5},
                 {FORMAT_LEAF_DENSE, 512, 14.7, 16}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tree_check_report report;
        open_rig(cases[i].kind, cases[i].bytes);
        for (uint32_t number = 1; number <= 20000; number++) {
            uint32_t key = number * UINT32_C(0x9e3779b1); /* mixed, one to one: no order is left */
            key = (key ^ key >> 15) * UINT32_C(0x85ebca6b);
            put(key ^ key >> 13);
        }
        assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, &report, NULL, NULL), 0);
        assert_int_equal(report.entries, 20000);
        const double fill = (double)report.entries / (double)report.leaves;
        if (fill < cases[i].least || fill > cases[i].most)
            fail_msg("leaves of %" PRIu32 " bytes, kind %d: %.2f entries to a leaf", cases[i].bytes,
                     (int)cases[i].kind, fill);
        rig_close(&rig);
    }
}

struct counted {
    uint64_t below, from, border;
};

static bool count(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct counted *counted = context;
    const uint8_t *bytes = key;
    uint64_t number =
        (uint64_t)bytes[0] << 24 | (uint64_t)bytes[1] << 16 | (uint64_t)bytes[2] << 8 | bytes[3];
    (void)key_length;
    (void)value;
    (void)length;
    counted->below += number < counted->border;
    counted->from += number >= counted->border;
    return true;
}

/* A number of the line, in an order that is none, the largest first, so that no put appends. */
static unsigned spread(unsigned number)
{
    return 10000 + 10 * (997 - number * 389 % 997);
}

/* Sherman, section 4.4: any free slot; sorted, and split in half, when there is none. */
static void an_unsorted_leaf_splits_when_it_is_full(void **state)
{
    (void)state;
    const uint32_t sizes[] = {512, 1024, 4096};
    for (unsigned i = 0; i < 3; i++) {
        const uint32_t slots = shape_of(FORMAT_LEAF_UNSORTED, sizes[i], 8).slots;
        struct tree_check_report report;
        open_rig(FORMAT_LEAF_UNSORTED, sizes[i]);
        for (unsigned number = 0; number < slots; number++)
            put(spread(number));
        for (unsigned number = 0; number < slots; number++) /* those that are there need no room */
            put(spread(number));
        assert_int_equal(splits(), 0);
        assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, &report, NULL, NULL), 0);
        assert_int_equal(report.leaves, 1);
        assert_int_equal(report.entries, slots);
        put(spread(slots));
        assert_int_equal(splits(), 1);
        assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, &report, NULL, NULL), 0);
        assert_int_equal(report.leaves, 2);
        unsigned below = 0; /* keys that all go to the left leaf, until it splits in turn */
        while (splits() == 1)
            put(9999 - below++);
        assert_in_range(slots - (below - 1), slots / 2, slots / 2 + 1);
        rig_close(&rig);
    }
}

/* The same keys in hashed leaves: a bucket is full before the leaf is. */
static void a_hashed_leaf_splits_earlier(void **state)
{
    (void)state;
    uint64_t made[2];
    for (unsigned kind = 0; kind < 2; kind++) {
        open_rig(kind ? FORMAT_LEAF_UNSORTED : FORMAT_LEAF_HASHED, 1024);
        for (unsigned number = 0; number < 3000; number++)
            put(1 + (number * 1201 + 2999) % 3001);
        struct counted counted = {.border = 1500};
        assert_int_equal(tree_scan(rig.ours.session, rig.ours.tree, &(struct tree_range){0}, count, &counted),
                         0);
        assert_int_equal(counted.below + counted.from, 3000);
        made[kind] = splits();
        rig_close(&rig);
    }
    assert_true(made[1] * 10 < made[0] * 9);
}

struct numbers {
    unsigned next, end;
    uint8_t key[FORMAT_KEY_MAX], value[8];
};

static bool numbers_next(void *context, const void **key, size_t *key_length, const void **value,
                         size_t *length)
{
    struct numbers *numbers = context;
    if (numbers->next == numbers->end)
        return false;
    *key_length = rig_key(&rig, numbers->next++, numbers->key);
    *key = numbers->key;
    *value = numbers->value;
    *length = sizeof numbers->value;
    return true;
}

/* No leaf is closed early because a bucket is full, and large leaves hold more than a byte counts. */
static void bulk_loads_fill_by_slots(void **state)
{
    (void)state;
    const uint32_t sizes[] = {1024, 16384, 65536};
    const double fills[] = {0.8, 1.0};
    for (unsigned i = 0; i < 6; i++) {
        const uint32_t size = sizes[i / 2], slots = shape_of(FORMAT_LEAF_UNSORTED, size, 8).slots;
        const uint32_t each = (uint32_t)(slots * fills[i % 2] + 0.5);
        struct numbers numbers = {.end = 4 * each};
        struct tree_check_report report;
        struct tree_bulk *bulk;
        open_rig(FORMAT_LEAF_UNSORTED, size);
        assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, 1, fills[i % 2], NULL), 0);
        assert_int_equal(tree_bulk_part(rig.ours.session, bulk, 0, numbers_next, &numbers), 0);
        assert_int_equal(tree_bulk_finish(rig.ours.session, bulk), 0);
        assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, &report, NULL, NULL), 0);
        assert_int_equal(report.entries, 4 * each);
        assert_int_equal(report.leaves, 4);
        uint8_t key[FORMAT_KEY_MAX], value[8];
        for (unsigned number = 0; number < 4 * each; number++) {
            size_t length = sizeof value, key_length = rig_key(&rig, number, key);
            assert_int_equal(tree_lookup(rig.ours.session, rig.ours.tree, key, key_length, value, &length),
                             0);
        }
        rig_close(&rig);
    }
}

/* As a hashed leaf's, but for the number of its slots: 37 of 46 at fill 0.8. */
static void bulk_loads_fill_dense_leaves(void **state)
{
    (void)state;
    struct numbers numbers = {.end = 100 * 37};
    struct tree_check_report report;
    struct tree_bulk *bulk;
    open_rig(FORMAT_LEAF_DENSE, 1024);
    assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, 1, 0.8, NULL), 0);
    assert_int_equal(tree_bulk_part(rig.ours.session, bulk, 0, numbers_next, &numbers), 0);
    assert_int_equal(tree_bulk_finish(rig.ours.session, bulk), 0);
    assert_int_equal(tree_check(rig.ours.session, rig.ours.tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, 100 * 37);
    assert_int_equal(report.leaves, 100);
    struct counted counted = {.border = 1000};
    assert_int_equal(tree_scan(rig.ours.session, rig.ours.tree, &(struct tree_range){0}, count, &counted), 0);
    assert_int_equal(counted.below, 1000);
    assert_int_equal(counted.from, 100 * 37 - 1000);
    rig_close(&rig);
}

static void an_index_keeps_its_kind(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind <= FORMAT_LEAF_KIND_LAST; kind++) {
        open_rig((enum format_leaf_kind)kind, 1024);
        assert_int_equal(tree_geometry(rig.ours.tree)->leaf_kind, kind);
        for (unsigned number = 0; number < 200; number++)
            put(1 + number);
        rig_replace_ours(&rig); /* opens it anew, and knows nothing but the catalogue's entry */
        assert_int_equal(tree_geometry(rig.ours.tree)->leaf_kind, kind);
        assert_int_equal(tree_geometry(rig.ours.tree)->key_kind, FORMAT_KEY_FIXED);
        struct counted counted = {.border = 100};
        assert_int_equal(tree_scan(rig.ours.session, rig.ours.tree, &(struct tree_range){0}, count, &counted),
                         0);
        assert_int_equal(counted.below, 99);
        assert_int_equal(counted.from, 101);
        rig_close(&rig);
    }
}

/* The byte of the kinds, with every other value it could have and a check that holds. */
static void an_unknown_kind_is_refused(void **state)
{
    (void)state;
    open_rig(FORMAT_LEAF_UNSORTED, 1024);
    uint8_t *entry = memory_node_target(rig.nodes[0])->pool + MEMORY_CATALOGUE_OFFSET + 4096;
    const size_t kinds = 24, entry_bytes = 96;
    assert_int_equal(entry[kinds], 0x10);
    for (unsigned value = 0; value < 256; value++) {
        struct tree *tree = NULL;
        entry[kinds] = (uint8_t)value;
        uint32_t check = crc32c(0, entry + 12, entry_bytes - 12);
        memcpy(entry + 8, &check, sizeof check);
        int status = tree_open(rig.ours.session, "rig", &tree);
        const char *text = tree_session_error(rig.ours.session)->text;
        const unsigned kind = (value >> 4 & 1) + (value >> 3 & 1) * 2;
        if (value % 8 == 0 && kind <= FORMAT_LEAF_KIND_LAST) {
            assert_int_equal(status, 0);
            assert_int_equal(tree_geometry(tree)->leaf_kind, kind);
            assert_int_equal(tree_geometry(tree)->subtree_levels, value >> 5);
            tree_close(tree);
        } else if (value % 8 > 1) {
            assert_int_equal(status, BANYAN_EINVAL);
            assert_non_null(strstr(text, "neither fixed nor variable"));
        } else if (kind > FORMAT_LEAF_KIND_LAST) {
            assert_int_equal(status, BANYAN_EINVAL);
            assert_non_null(strstr(text, "neither hashed nor unsorted nor dense"));
        } else if (!status) { /* variable keys: another geometry, which may be one */
            tree_close(tree);
        }
    }
    entry[kinds] = 0x10;
    uint32_t check = crc32c(0, entry + 12, entry_bytes - 12);
    memcpy(entry + 8, &check, sizeof check);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unsorted_leaf_uses_all_its_room),
        cmocka_unit_test(a_dense_leaf_has_larger_triples),
        cmocka_unit_test(every_dense_leaf_uses_its_room),
        cmocka_unit_test(an_unsorted_leaf_splits_when_it_is_full),
        cmocka_unit_test(a_hashed_leaf_splits_earlier),
        cmocka_unit_test(random_keys_fill_leaves),
        cmocka_unit_test(bulk_loads_fill_by_slots),
        cmocka_unit_test(bulk_loads_fill_dense_leaves),
        cmocka_unit_test(an_index_keeps_its_kind),
        cmocka_unit_test(an_unknown_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
