/*
 * test_drop.c - dropping an index while everything fails that can fail, one chance after the other: what is
 * left is the whole index, or one that no session can open; a second drop ends the first; nothing is lost
 * unless a death or the network took it; and an index made in its place is not taken for it. Failure loops
 * (rig.h).
 */
#include "rig.h"
#include "tree/index.h"

#include <string.h>

static void records(struct rig_options *options)
{
    options->nodes = 2;
    options->store = true;
    store_geometry(&options->geometry);
    options->geometry.leaf_bytes = 1024;
    options->geometry.internal_bytes = 2048;
    options->geometry.key_bytes = 60;
    options->pool_bytes = 32 << 20;
    options->chunk_bytes = 1 << 20;
}

/* Ours know the index well, so that what they remember leads into it when it is gone. */
static void ours_look(struct rig *rig)
{
    for (unsigned i = 1; i < rig->entry_count; i++) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        size_t length = sizeof value, key_length = rig_key(rig, i, key);
        if (!rig->ours.store)
            assert_int_equal(tree_lookup(rig->ours.spare, rig->ours.tree, key, key_length, value, &length),
                             0);
    }
}

static void fill(struct rig *rig)
{
    rig_fill(rig, 1, 400, 1);
    ours_look(rig);
}

static void fill_few(struct rig *rig)
{
    rig_fill(rig, 1, 60, 1);
    ours_look(rig);
}

static void fill_one_leaf(struct rig *rig)
{
    rig_fill(rig, 1, 5, 1);
    ours_look(rig);
}

static int drop(struct rig *rig)
{
    return rig->options.store ? store_drop(rig->ours.session, "rig")
                              : tree_drop(rig->ours.session, "rig", NULL, NULL);
}

/* What a session hears that still has the index open. */
static int stale_put(struct rig_side *side, const struct rig *rig, unsigned number)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {0};
    size_t length = rig_key(rig, number, key);
    if (side->store)
        return store_put(side->store_session, key, length, value, 8, 0);
    return tree_upsert(side->session, side->tree, key, length, value, rig->options.geometry.value_bytes);
}

static int stale_get(struct rig_side *side, const struct rig *rig, unsigned number)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t length = sizeof value, key_length = rig_key(rig, number, key);
    struct store_value got;
    if (side->store)
        return store_get(side->store_session, key, key_length, &got);
    return tree_lookup(side->session, side->tree, key, key_length, value, &length);
}

static bool nothing_met(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    fail_msg("a scan of a dropped index meets an entry");
    return false;
}

static void is_gone(struct rig_side *side, const struct rig *rig)
{
    const struct tree_range everything = {.reverse = false};
    for (unsigned i = 1; i < rig->entry_count; i += 7) {
        assert_int_equal(stale_get(side, rig, i), BANYAN_ENOTFOUND);
        assert_int_equal(stale_put(side, rig, i), BANYAN_ENOTFOUND);
    }
    if (side->store)
        return;
    assert_int_equal(tree_scan(side->session, side->tree, &everything, nothing_met, NULL), BANYAN_ENOTFOUND);
    assert_non_null(strstr(tree_session_error(side->session)->text, "was dropped"));
}

/* Half dropped, it gives what it has, or says that it is gone. */
static void is_going(struct rig_side *side, const struct rig *rig)
{
    for (unsigned i = 1; i < rig->entry_count; i += 5) {
        int got = stale_get(side, rig, i), put = stale_put(side, rig, i);
        assert_true(!got || got == BANYAN_ENOTFOUND);
        assert_true(!put || put == BANYAN_ENOTFOUND);
    }
}

static void side_forget(struct rig_side *side)
{
    store_session_destroy(side->store_session);
    if (side->store)
        store_close(side->store);
    else
        tree_close(side->tree);
    side->store_session = NULL;
    side->store = NULL;
    side->tree = NULL;
}

/* In the same place of the catalogue: sessions that had the old one open must not work on it. */
static void made_anew(struct rig *rig)
{
    struct tree *tree;
    struct tree_check_report report;
    uint8_t value[FORMAT_VALUE_MAX] = {9}, key[FORMAT_KEY_MAX];
    size_t length = rig_key(rig, 2, key);
    assert_int_equal(tree_create(rig->others.session, "rig", &rig->options.geometry, &tree), 0);
    size_t bytes = rig->options.geometry.value_bytes;
    assert_int_equal(tree_upsert(rig->others.session, tree, key, length, value, bytes), 0);
    if (!rig_dead(rig))
        is_gone(&rig->ours, rig);
    assert_int_equal(tree_check(rig->others.session, tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, 1);
    tree_close(tree);
    assert_int_equal(tree_drop(rig->others.session, "rig", NULL, NULL), 0);
}

static void dropped_or_not(struct rig *rig, int status, enum trouble kind)
{
    struct tree *tree = NULL;
    uint32_t begun;
    rig_locks_are_free(rig);
    int found = tree_open(rig->others.session, "rig", &tree);
    tree_close(tree);
    assert_true(!found || found == BANYAN_ENOTFOUND);
    assert_int_equal(tree_drop_count(rig->others.session, &begun), 0);
    if (!status)
        assert_int_equal(found, BANYAN_ENOTFOUND);
    if (!found) { /* not begun: all of it is there */
        assert_int_equal(begun, 0);
        assert_int_equal(rig_judge(rig, kind) && kind == TROUBLE_NONE, 0);
    } else if (begun) {
        assert_int_equal(begun, 1);
        is_going(&rig->others, rig);
    }
    int again = rig->options.store ? store_drop(rig->others.session, "rig")
                                   : tree_drop(rig->others.session, "rig", NULL, NULL);
    assert_int_equal(again, found && !begun ? BANYAN_ENOTFOUND : 0);
    is_gone(&rig->others, rig);
    if (!rig_dead(rig))
        is_gone(&rig->ours, rig);
    side_forget(&rig->others);
    assert_int_equal(tree_drop_count(rig->others.session, &begun), 0);
    assert_int_equal(begun, 0);
    uint64_t lost = rig_account(rig);
    if (kind == TROUBLE_NONE || kind == TROUBLE_REFUSAL)
        assert_int_equal(lost, 0);
    made_anew(rig);
    assert_true(rig_account(rig) >= lost);
    rig_locks_are_free(rig);
}

#define ALL                                                                                                  \
    {                                                                                                        \
        0                                                                                                    \
    }
#define SOME                                                                                                 \
    {                                                                                                        \
        0, 5, 7, 11, 3, 3, 3, 7, 1                                                                           \
    }

static void every_failure_leaves_it_whole_or_going(void **state)
{
    static const struct rig_scenario scenarios[] = {
        {"drop of a leaf", rig_two_nodes, fill_one_leaf, drop, dropped_or_not, ALL, 0},
        {"drop", rig_two_nodes, fill, drop, dropped_or_not, SOME, 0},
        {"drop, long keys", rig_long_keyed, fill_few, drop, dropped_or_not, SOME, 0},
        {"drop, large leaves", rig_large_leaves, fill_few, drop, dropped_or_not, ALL, 0},
        {"drop, records", records, fill_few, drop, dropped_or_not, SOME, 0},
    };
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        rig_loop_all(&scenarios[i]);
}

/* ---- deaths, at every command ---- */

static void deaths(void (*options)(struct rig_options *), void (*prepare)(struct rig *))
{
    const struct rig_scenario scenario = {"drop, deaths", options, prepare, drop, dropped_or_not, ALL, 0};
    rig_loop(&scenario, TROUBLE_DEATH);
}

static void another_ends_what_the_dead_began(void **state)
{
    deaths(rig_two_nodes, fill_few);
    deaths(rig_long_keyed, fill_few);
    deaths(records, fill_few);
}

/* ---- beside what others left half done ---- */

static int insert_more(struct rig *rig)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {0};
    int status = 0;
    for (unsigned i = 400; i < 460 && !status; i++) {
        size_t length = rig_key(rig, i, key);
        status = tree_insert(rig->ours.session, rig->ours.tree, key, length, value,
                             rig->options.geometry.value_bytes);
    }
    return status;
}

static int delete_most(struct rig *rig)
{
    uint8_t key[FORMAT_KEY_MAX];
    int status = 0;
    for (unsigned i = 20; i < 380 && !status; i++) {
        size_t length = rig_key(rig, i, key);
        status = tree_delete(rig->ours.session, rig->ours.tree, key, length);
    }
    return status;
}

/* What died left an addition, or an unlinking, half done: at most that is lost. */
static void others_drop(struct rig *rig, int status, enum trouble kind)
{
    rig_locks_are_free(rig);
    uint64_t lost = rig_account(rig);
    assert_int_equal(tree_drop(rig->others.session, "rig", NULL, NULL), 0);
    is_gone(&rig->others, rig);
    side_forget(&rig->others);
    assert_int_equal(rig_account(rig), lost);
    rig_locks_are_free(rig);
}

static void what_others_left_half_done_goes_too(void **state)
{
    const struct rig_scenario scenarios[] = {
        {"drop beside a split", rig_two_nodes, fill, insert_more, others_drop, ALL, 0},
        {"drop beside an unlinking", rig_two_nodes, fill, delete_most, others_drop, {[TROUBLE_DEATH] = 3}, 0},
        {"drop beside a split, long keys", rig_long_keyed, fill, insert_more, others_drop, ALL, 0},
    };
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        rig_loop(&scenarios[i], TROUBLE_DEATH);
}

/* ---- names and entries ---- */

static void names_do_not_mix(void **state)
{
    static struct rig rig;
    struct rig_options options;
    struct tree *tree, *stale;
    uint64_t value = 1;
    rig_options_default(&options);
    rig_open(&rig, &options);
    struct tree_session *session = rig.others.session;
    assert_int_equal(tree_drop(session, "none", NULL, NULL), BANYAN_ENOTFOUND);
    assert_int_equal(tree_drop(session, "", NULL, NULL), BANYAN_EINVAL);
    assert_int_equal(tree_create(session, "other", &options.geometry, &tree), 0);
    assert_int_equal(tree_upsert(session, tree, "12345678", 8, &value, 8), 0);
    /* More often than the root word counts: by the index in its nodes it is told apart even then. */
    assert_int_equal(tree_open(rig.ours.session, "rig", &stale), 0);
    for (bool same = false; !same;) {
        struct tree *fresh;
        assert_int_equal(tree_drop(session, "rig", NULL, NULL), 0);
        assert_int_equal(tree_create(session, "rig", &options.geometry, &fresh), 0);
        assert_int_equal(tree_upsert(session, fresh, "12345678", 8, &value, 8), 0);
        same = fresh->entry == stale->entry && fresh->generation == 32;
        assert_in_range(fresh->generation, 0, 32);
        tree_close(fresh);
    }
    assert_int_equal(tree_upsert(rig.ours.session, stale, "12345678", 8, &value, 8), BANYAN_ENOTFOUND);
    assert_int_equal(tree_delete(rig.ours.session, stale, "12345678", 8), BANYAN_ENOTFOUND);
    tree_close(stale);
    assert_int_equal(tree_upsert(session, tree, "12345678", 8, &value, 8), 0);
    tree_close(tree);
    assert_int_equal(tree_open(session, "other", &tree), 0);
    side_forget(&rig.others);
    side_forget(&rig.ours);
    rig.others.tree = tree;
    rig_locks_are_free(&rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure_leaves_it_whole_or_going),
        cmocka_unit_test(another_ends_what_the_dead_began),
        cmocka_unit_test(what_others_left_half_done_goes_too),
        cmocka_unit_test(names_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
