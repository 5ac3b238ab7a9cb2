/*
 * test_failures.c - failure loops: each operation with the first chance of the network, the memory or the
 * compute node to fail, then with the second, and so on until none is left. What comes back says what was
 * done, the index is sound, no lock stays behind, and the session goes on working.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is tried ---- */

static int worst(int status, int one)
{
    return status ? status : one;
}

static int not_there(int status)
{
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

enum change { INSERT, UPSERT, UPDATE, COMPARE, MODIFY, DELETE };

static enum tree_verdict put_number(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    (void)old;
    (void)old_length;
    memset(value, 0, *(const size_t *)((void **)context)[1]);
    memcpy(value, ((void **)context)[0], sizeof(uint64_t));
    *length = *(const size_t *)((void **)context)[1];
    return TREE_PUT;
}

static int change(struct rig *rig, enum change what, unsigned number)
{
    struct tree_session *session = rig->ours.session;
    struct tree *tree = rig->ours.tree;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {0}, old[FORMAT_VALUE_MAX] = {0};
    size_t length = rig_key(rig, number, key), size = rig->options.geometry.value_bytes;
    uint64_t after = number + 5000, before = rig->entries[number].after;
    int status = 0;
    memcpy(value, &after, sizeof after);
    memcpy(old, &before, sizeof before);
    switch (what) {
    case INSERT:
        status = tree_insert(session, tree, key, length, value, size);
        break;
    case UPSERT:
        status = tree_upsert(session, tree, key, length, value, size);
        break;
    case UPDATE:
        status = tree_update(session, tree, key, length, value, size);
        break;
    case COMPARE:
        status = tree_compare_and_set(session, tree, key, length, old, size, value, size);
        break;
    case MODIFY:
        status = tree_modify(session, tree, key, length, put_number, (void *[]){&after, &size});
        break;
    case DELETE:
        status = tree_delete(session, tree, key, length);
        after = 0;
        break;
    }
    rig_note(rig, number, after, status);
    return status;
}

static int change_range(struct rig *rig, enum change what, unsigned from, unsigned to, unsigned step)
{
    int status = 0;
    for (unsigned i = from; i < to; i += step)
        status = worst(status, change(rig, what, i));
    return status;
}

/* What ours may read: after a failure that says nothing either may stand there. */
static void is_plausible(const struct rig *rig, unsigned number, uint64_t is)
{
    const struct rig_entry *entry = &rig->entries[number];
    assert_true(is == (entry->status ? entry->before : entry->after) ||
                (entry->status == BANYAN_EUNKNOWN && is == entry->after));
}

/* Numbers met by a scan, in order; each must be what it should. */
struct seen {
    struct rig *rig;
    unsigned next, count;
    bool reverse;
};

static bool visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct seen *seen = context;
    const uint8_t *bytes = key;
    unsigned number =
        (unsigned)bytes[0] << 24 | (unsigned)bytes[1] << 16 | (unsigned)bytes[2] << 8 | bytes[3];
    uint64_t is;
    (void)key_length;
    (void)length;
    memcpy(&is, value, sizeof is);
    if (seen->count)
        assert_true(seen->reverse ? number < seen->next : number > seen->next);
    assert_int_equal(is, seen->rig->entries[number].after);
    seen->next = number;
    seen->count++;
    return true;
}

static unsigned entries_there(const struct rig *rig)
{
    unsigned count = 0;
    for (unsigned i = 0; i < rig->entry_count; i++)
        count += rig->entries[i].after != 0;
    return count;
}

static int scan(struct rig *rig, bool reverse)
{
    struct seen seen = {.rig = rig, .reverse = reverse};
    const struct tree_range all = {.reverse = reverse};
    int status = tree_scan(rig->ours.session, rig->ours.tree, &all, visit, &seen);
    if (!status)
        assert_int_equal(seen.count, entries_there(rig));
    return status;
}

static int look_up(struct rig *rig, unsigned from, unsigned to, unsigned step)
{
    int worst_status = 0;
    for (unsigned i = from; i < to; i += step) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        size_t length = sizeof value, key_length = rig_key(rig, i, key);
        uint64_t is = 0;
        int status = tree_lookup(rig->ours.session, rig->ours.tree, key, key_length, value, &length);
        if (!status)
            memcpy(&is, value, sizeof is);
        if (!not_there(status))
            is_plausible(rig, i, is);
        worst_status = worst(worst_status, not_there(status));
    }
    return worst_status;
}

/* ---- shapes ---- */

static void whole_nodes(struct rig_options *options)
{
    rig_large_leaves(options);
    options->nodes = 2;
    options->preset = "+hierarchical";
}

static void one_by_one(struct rig_options *options)
{
    options->preset = "fg+";
}

static void released_by_addition(struct rig_options *options)
{
    options->preset = "fg";
}

static void fill_some(struct rig *rig)
{
    rig_fill(rig, 0, 120, 2);
}

static void fill_more(struct rig *rig)
{
    rig_fill(rig, 0, 400, 2);
}

/* ---- points ---- */

static int points(struct rig *rig)
{
    int status = look_up(rig, 0, 40, 9);
    status = worst(status, change(rig, INSERT, 21));
    status = worst(status, change(rig, UPSERT, 20));
    status = worst(status, change(rig, UPDATE, 30));
    status = worst(status, change(rig, COMPARE, 40));
    status = worst(status, change(rig, MODIFY, 45));
    status = worst(status, change(rig, DELETE, 50));
    status = worst(status, look_up(rig, 20, 60, 5));
    return status;
}

/* Through leaves that split, and a parent that does. */
static int inserts(struct rig *rig)
{
    return change_range(rig, INSERT, 401, 480, 1);
}

static int inserts_between(struct rig *rig)
{
    return change_range(rig, INSERT, 101, 181, 2);
}

static void fill_row(struct rig *rig)
{
    rig_fill(rig, 0, 400, 1);
}

/* Empties leaves, the first of a parent among them, and whole parents: most are gone already. */
static void fill_and_thin(struct rig *rig)
{
    rig_fill(rig, 0, 1200, 1);
    struct rig_side ours = rig->ours;
    rig->ours = rig->others; /* only their cache is warm */
    for (unsigned i = 20; i < 1000; i++)
        if (i % 10)
            assert_int_equal(change(rig, DELETE, i), 0);
    rig->ours = ours;
}

static int deletes(struct rig *rig)
{
    return change_range(rig, DELETE, 20, 1000, 10);
}

static int deletes_backwards(struct rig *rig)
{
    int status = 0;
    for (unsigned i = 990; i >= 20; i -= 10)
        status = worst(status, change(rig, DELETE, i));
    return status;
}

/* From place to place, to the last leaf: each is found again, with the bound that it had. */
static int places(struct rig *rig)
{
    struct tree_place place;
    struct tree_place_bound bound = {0}, again;
    uint32_t count = 0, gone = 0;
    for (;; count++) {
        struct tree_place_bound next;
        int status =
            tree_place_after(rig->ours.session, rig->ours.tree, bound.bytes, bound.length, &place, &next);
        if (status == BANYAN_ENOTFOUND) {
            assert_in_range(count, 2, entries_there(rig));
            return 0;
        }
        if (status)
            return status;
        assert_true(
            memcmp(next.bytes, bound.bytes, next.length < bound.length ? next.length : bound.length) >= 0);
        status = tree_place_find(rig->ours.session, rig->ours.tree, &place, UINT32_MAX, &again);
        if (status && status != BANYAN_ENOTFOUND)
            return status;
        /* An address that the pool refuses is the only trouble for which a place is gone. */
        gone += status != 0;
        assert_true(gone <= 1);
        assert_true(status ||
                    (again.length == next.length && memcmp(again.bytes, next.bytes, next.length) == 0));
        place.tag ^= 1;
        status = tree_place_find(rig->ours.session, rig->ours.tree, &place, UINT32_MAX, &again);
        if (status != BANYAN_ENOTFOUND)
            return status;
        bound = next;
    }
}

static int scans(struct rig *rig)
{
    int status = scan(rig, false);
    return worst(status, scan(rig, true));
}

static int samples(struct rig *rig)
{
    uint8_t key[FORMAT_KEY_MAX];
    int status = 0;
    for (unsigned i = 0; i < 3; i++) {
        size_t length = sizeof key;
        status = worst(status, tree_sample(rig->ours.session, rig->ours.tree, key, &length));
    }
    return status;
}

/* ---- many at once ---- */

#define MANY 70u
struct many {
    struct tree_item items[MANY];
    uint8_t keys[MANY][FORMAT_KEY_MAX], values[MANY][FORMAT_VALUE_MAX], olds[MANY][FORMAT_VALUE_MAX];
};

static int many_put(struct rig *rig)
{
    static struct many many;
    memset(&many, 0, sizeof many);
    for (unsigned i = 0; i < MANY; i++) {
        unsigned number = 11 + i * 3;
        uint64_t value = number + 7000;
        memcpy(many.values[i], &value, sizeof value);
        many.items[i] = (struct tree_item){.key = many.keys[i],
                                           .key_length = rig_key(rig, number, many.keys[i]),
                                           .value = many.values[i],
                                           .length = rig->options.geometry.value_bytes,
                                           .old = i % 2 ? many.olds[i] : NULL};
    }
    int status = tree_multi_put(rig->ours.session, rig->ours.tree, many.items, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        if (many.items[i].old && !many.items[i].status && many.items[i].existed)
            assert_memory_equal(many.olds[i], &rig->entries[11 + i * 3].after, 8);
        rig_note(rig, 11 + i * 3, 11 + i * 3 + 7000, many.items[i].status);
    }
    return status;
}

static int many_get(struct rig *rig)
{
    static struct many many;
    memset(&many, 0, sizeof many);
    for (unsigned i = 0; i < MANY; i++)
        many.items[i] = (struct tree_item){.key = many.keys[i],
                                           .key_length = rig_key(rig, i * 3, many.keys[i]),
                                           .value = many.values[i],
                                           .length = FORMAT_VALUE_MAX};
    int status = tree_multi_get(rig->ours.session, rig->ours.tree, many.items, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        assert_true(status || !not_there(many.items[i].status));
        if (!not_there(many.items[i].status))
            assert_memory_equal(many.values[i], &rig->entries[i * 3].after, 8);
    }
    return status;
}

/* ---- indexes as a whole ---- */

static const struct format_geometry plain = {
    .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512};

static void no_index(struct rig_options *options)
{
    options->nodes = 2;
    options->no_index = true;
}

static int create(struct rig *rig)
{
    struct tree *tree = NULL;
    int status = tree_create(rig->ours.session, "new", &plain, &tree);
    assert_true(!status == (tree != NULL));
    tree_close(tree);
    return status;
}

/* The index is there, or it is not; then it can be made. */
static void created_or_not(struct rig *rig, int status, enum trouble kind)
{
    struct tree *tree = NULL;
    uint64_t value = 7;
    rig_locks_are_free(rig);
    int found = tree_open(rig->others.session, "new", &tree);
    if (!status)
        assert_int_equal(found, 0);
    else if (status != BANYAN_EUNKNOWN && kind != TROUBLE_DEATH)
        assert_int_equal(found, BANYAN_ENOTFOUND);
    if (found) {
        assert_int_equal(found, BANYAN_ENOTFOUND);
        assert_int_equal(tree_create(rig->others.session, "new", &plain, &tree), 0);
    }
    assert_int_equal(tree_insert(rig->others.session, tree, "12345678", 8, &value, 8), 0);
    rig->others.tree = tree; /* it is what there is */
    if (!rig_dead(rig)) {
        struct tree *again = NULL;
        assert_int_equal(tree_open(rig->ours.session, "new", &again), 0);
        assert_int_equal(tree_delete(rig->ours.session, again, "12345678", 8), 0);
        tree_close(again);
    }
    rig_account(rig);
    rig_locks_are_free(rig);
}

static int open_and_look(struct rig *rig)
{
    struct tree *tree = NULL;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t length = sizeof value, key_length = rig_key(rig, 30, key);
    int status = tree_open(rig->ours.session, "rig", &tree);
    if (status)
        return status;
    status = tree_lookup(rig->ours.session, tree, key, key_length, value, &length);
    if (!status)
        assert_int_equal(value[0], 31);
    tree_close(tree);
    return status;
}

static void count_name(void *context, const char *name, const struct format_geometry *geometry)
{
    assert_string_equal(name, "rig");
    assert_int_equal(geometry->key_bytes, 8);
    ++*(unsigned *)context;
}

static int list(struct rig *rig)
{
    unsigned count = 0;
    int status = tree_list(rig->ours.session, count_name, &count);
    if (!status)
        assert_int_equal(count, 1);
    return status;
}

static int check(struct rig *rig)
{
    struct tree_check_report report;
    int status = tree_check(rig->ours.session, rig->ours.tree, &report, NULL, NULL);
    if (!status)
        assert_int_equal(report.entries, entries_there(rig));
    return status;
}

/* What was there may be there, or not, but nothing in between; and it can be formatted again. */
static int format(struct rig *rig)
{
    return tree_format(rig->ours.session);
}

static void formatted_or_not(struct rig *rig, int status, enum trouble kind)
{
    struct tree *tree = NULL;
    (void)kind;
    rig_locks_are_free(rig);
    int found = tree_open(rig->others.session, "rig", &tree);
    if (!status)
        assert_int_equal(found, BANYAN_ENOTFOUND);
    else
        assert_true(!found || found == BANYAN_ENOTFOUND);
    tree_close(tree);
    if (!found)
        assert_int_equal(rig_look(rig, 30), 31);
    if (!rig_dead(rig)) {
        assert_int_equal(tree_format(rig->ours.session), 0);
        assert_int_equal(tree_open(rig->ours.session, "rig", &tree), BANYAN_ENOTFOUND);
    }
}

/* ---- bulk load ---- */

struct stream {
    const struct rig *rig;
    unsigned next, end;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
};

static bool stream_next(void *context, const void **key, size_t *key_length, const void **value,
                        size_t *length)
{
    struct stream *stream = context;
    uint64_t number = stream->next + 1;
    if (stream->next == stream->end)
        return false;
    *key = stream->key;
    *key_length = rig_key(stream->rig, stream->next++, stream->key);
    memcpy(stream->value, &number, sizeof number);
    *value = stream->value;
    *length = stream->rig->options.geometry.value_bytes;
    return true;
}

#define LOADED 700u

/* In three parts; with an empty first one where the test's context says so. */
static int load(struct rig *rig, struct rig_side *side)
{
    const unsigned cuts[4] = {1, rig->context ? 1 : 300, 500, LOADED};
    struct tree_bulk *bulk = NULL;
    struct error error = {0};
    int status = tree_bulk_begin(&bulk, side->tree, 3, 0.8, &error);
    if (status)
        return pool_fail(tree_session_pool(side->session), status, "%s", error.text);
    for (unsigned part = 0; part < 3 && !status; part++) {
        struct stream stream = {.rig = rig, .next = cuts[part], .end = cuts[part + 1]};
        status = tree_bulk_part(side->session, bulk, part, stream_next, &stream);
    }
    int finished = tree_bulk_finish(side->session, bulk);
    assert_true(!status || finished);
    return status ? status : finished;
}

static int bulk_load(struct rig *rig)
{
    return load(rig, &rig->ours);
}

static int bulk_load_late(struct rig *rig)
{
    rig->context = rig;
    return load(rig, &rig->ours);
}

/* All is there, or nothing; then it can be loaded. */
static void loaded_or_not(struct rig *rig, int status, enum trouble kind)
{
    rig_locks_are_free(rig);
    bool there = rig_look(rig, LOADED - 1);
    if (!status || (status != BANYAN_EUNKNOWN && kind != TROUBLE_DEATH))
        assert_int_equal(there, !status);
    rig_account(rig);
    if (!there) {
        for (unsigned i = 0; i < LOADED; i++)
            assert_int_equal(rig_look(rig, i), 0);
        assert_int_equal(load(rig, rig_dead(rig) ? &rig->others : &rig->ours), 0);
    }
    for (unsigned i = 1; i < LOADED; i++)
        rig->entries[i] = (struct rig_entry){i + 1, i + 1, 0};
    rig->entry_count = LOADED;
    uint64_t lost = rig_judge(rig, TROUBLE_NONE);
    if (kind == TROUBLE_NONE || kind == TROUBLE_SHORT)
        assert_int_equal(lost, 0);
}

/* ---- sparse leaves ---- */

/* What the others leave of many keys: three of twenty, in leaves that hold a few each. */
static void fill_and_scatter(struct rig *rig)
{
    rig_fill(rig, 0, 400, 1);
    struct rig_side ours = rig->ours;
    rig->ours = rig->others;
    for (unsigned i = 0; i < 400; i++)
        if (i % 20 > 2)
            assert_int_equal(change(rig, DELETE, i), 0);
    rig->ours = ours;
}

/* The same where each leaf's neighbours lie on the other memory node. */
static void load_and_scatter(struct rig *rig)
{
    assert_int_equal(load(rig, &rig->others), 0);
    struct rig_side ours = rig->ours;
    rig->ours = rig->others;
    rig->entry_count = LOADED;
    for (unsigned i = 1; i < LOADED; i++) {
        rig->entries[i] = (struct rig_entry){i + 1, i + 1, 0};
        if (i % 20 > 2)
            assert_int_equal(change(rig, DELETE, i), 0);
    }
    rig->ours = ours;
}

static int merge_all(struct rig *rig)
{
    struct tree_merge_cursor cursor = {0};
    struct tree_merge_report report = {0};
    int status = 0;
    while (!status && !report.ended)
        status = tree_merge_step(rig->ours.session, rig->ours.tree, &cursor, 1000, &report);
    return status;
}

/* And changes of what has moved. */
static int merges(struct rig *rig)
{
    int status = merge_all(rig);
    status = worst(status, change(rig, DELETE, 201));
    status = worst(status, change(rig, UPSERT, 202));
    return worst(status, look_up(rig, 180, 260, 3));
}

/* Deaths in the middle of a merge, and then what meets it first is another change, or another merge. */
static void merged_beside(struct rig *rig, int status, enum trouble kind)
{
    struct tree_merge_cursor cursor = {0};
    struct tree_merge_report report = {0};
    (void)status;
    (void)kind;
    rig_locks_are_free(rig);
    while (!report.ended)
        assert_int_equal(tree_merge_step(rig->others.session, rig->others.tree, &cursor, 1000, &report), 0);
    rig_judge(rig, TROUBLE_NONE);
    struct tree_check_report left;
    assert_int_equal(tree_check(rig->others.session, rig->others.tree, &left, NULL, NULL), 0);
    assert_int_equal(left.frozen + left.marked + left.dead, 0);
}

/* From the right, so that leaves are unlinked beside those that the death left half split. */
static void all_deleted_beside(struct rig *rig, int status, enum trouble kind)
{
    (void)status;
    (void)kind;
    rig_locks_are_free(rig);
    for (unsigned i = rig->entry_count; i-- > 0;) {
        uint8_t key[FORMAT_KEY_MAX];
        size_t length = rig_key(rig, i, key);
        assert_int_equal(not_there(tree_delete(rig->others.session, rig->others.tree, key, length)), 0);
        rig->entries[i] = (struct rig_entry){0};
    }
    rig_judge(rig, TROUBLE_NONE);
}

/* Where there are many chances, some are left out; which ones, differs from trouble to trouble. */
#define ALL                                                                                                  \
    {                                                                                                        \
        0                                                                                                    \
    }
#define SOME                                                                                                 \
    {                                                                                                        \
        0, 5, 7, 11, 3, 3, 3, 7, 1                                                                           \
    }
#define REFUSED /* all refusals, and some of the others */                                                   \
    {                                                                                                        \
        0, 5, 7, 11, 1, 3, 5, 3, 1                                                                           \
    }
#define FEW                                                                                                  \
    {                                                                                                        \
        0, 29, 37, 53, 13, 17, 11, 31, 2                                                                     \
    }

static const struct rig_scenario scenarios[] = {
    {"points", NULL, fill_some, points, NULL, ALL, 0},
    {"points, long keys", rig_long_keyed, fill_some, points, NULL, ALL, 0},
    {"points, fg+", one_by_one, fill_some, points, NULL, SOME, 0},
    {"points, fg", released_by_addition, fill_some, points, NULL, SOME, 0},
    {"inserts", rig_two_nodes, fill_row, inserts, NULL, SOME, 0},
    {"inserts, large leaves", rig_large_leaves, fill_row, inserts, NULL, FEW, 0},
    {"inserts, whole nodes", whole_nodes, fill_row, inserts, NULL, FEW, 0},
    {"inserts, long keys", rig_long_keyed, fill_more, inserts_between, NULL, SOME, 0},
    {"deletes", rig_two_nodes, fill_and_thin, deletes, NULL, FEW, 0},
    {"deletes backwards", NULL, fill_and_thin, deletes_backwards, NULL, FEW, 0},
    {"deaths beside deletes", NULL, fill_more, inserts_between, all_deleted_beside, ALL,
     (1u << TROUBLES) - 1 - (1u << TROUBLE_DEATH)},
    {"deaths beside deletes, long keys", rig_long_keyed, fill_more, inserts_between, all_deleted_beside, SOME,
     (1u << TROUBLES) - 1 - (1u << TROUBLE_DEATH)},
    {"merges", NULL, fill_and_scatter, merges, NULL, SOME, 0},
    {"merges, two nodes", rig_two_nodes, load_and_scatter, merges, NULL, SOME, 0},
    {"merges, large leaves", rig_large_leaves, fill_and_scatter, merges, NULL, SOME, 0},
    {"merges, long keys", rig_long_keyed, fill_and_scatter, merges, NULL, SOME, 0},
    {"merges, fg+", one_by_one, fill_and_scatter, merges, NULL, FEW, 0},
    {"deaths in merges, and merges beside", rig_two_nodes, load_and_scatter, merge_all, merged_beside, ALL,
     (1u << TROUBLES) - 1 - (1u << TROUBLE_DEATH)},
    {"deaths in merges, and deletes beside", rig_two_nodes, load_and_scatter, merge_all, all_deleted_beside,
     SOME, (1u << TROUBLES) - 1 - (1u << TROUBLE_DEATH)},
    {"scans", rig_two_nodes, fill_more, scans, NULL, ALL, 0},
    {"scans, long keys", rig_long_keyed, fill_more, scans, NULL, SOME, 0},
    {"places", rig_two_nodes, fill_more, places, NULL, ALL, 0},
    {"places, long keys", rig_long_keyed, fill_more, places, NULL, SOME, 0},
    {"samples", rig_two_nodes, fill_more, samples, NULL, ALL, 0},
    {"many puts", rig_two_nodes, fill_more, many_put, NULL, SOME, 0},
    {"many puts, long keys", rig_long_keyed, fill_more, many_put, NULL, SOME, 0},
    {"many puts, fg+", one_by_one, fill_some, many_put, NULL, FEW, 0},
    {"many puts, fg", released_by_addition, fill_some, many_put, NULL, FEW, 0},
    {"many gets", rig_two_nodes, fill_more, many_get, NULL, SOME, 0},
    {"create", no_index, NULL, create, created_or_not, REFUSED, 0},
    {"open", rig_two_nodes, fill_some, open_and_look, NULL, ALL, 0},
    {"list", rig_two_nodes, fill_some, list, NULL, FEW, 1u << TROUBLE_SHORT},
    {"check", rig_two_nodes, fill_some, check, NULL, SOME, 0},
    {"format", rig_two_nodes, fill_some, format, formatted_or_not, FEW,
     1u << TROUBLE_SHORT | 1u << TROUBLE_ADDRESS},
    {"bulk load", rig_two_nodes, NULL, bulk_load, loaded_or_not, REFUSED, 0},
    {"bulk load, late", rig_two_nodes, NULL, bulk_load_late, loaded_or_not, REFUSED, 0},
    {"bulk load, long keys", rig_long_keyed, NULL, bulk_load, loaded_or_not, REFUSED, 0},
};

static void run(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        rig_loop_all(&scenarios[i]);
}

#define SCENARIOS (sizeof scenarios / sizeof *scenarios)

static void one_half_survives_every_failure(void **state)
{
    (void)state;
    run(0, SCENARIOS / 2);
}

static void the_other_half_survives_every_failure(void **state)
{
    (void)state;
    run(SCENARIOS / 2, SCENARIOS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_half_survives_every_failure),
        cmocka_unit_test(the_other_half_survives_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
