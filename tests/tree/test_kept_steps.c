/*
 * test_kept_steps.c - an index whose memory node is in this process and has a file, as `banyan serve --data`
 * has it, killed at each instruction of an operation: whatever the next process finds is a sound index, in
 * which the operation has happened wholly or not at all, and no other entry is touched.
 *
 * Operations in place (access_direct.c) and those that need lists: a split, the death of a leaf, a long key's
 * block. memory/test_kept_kill.c does the same with single writes and with calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "fabric/local.h"
#include "memory/kept.h"
#include "memory/step.h"
#include "tree/tree.h"

#define KEYS_MAX    200u
#define LONG_PREFIX "a long key, which no slot has room for: "

/* ---- an index in a file ---- */

struct side {
    struct memory_node *node;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
};

#define DO(side, call)                                                                                       \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_)                                                                                         \
            fail_msg("%s: %d, %s", #call, status_, tree_session_error((side)->session)->text);               \
    } while (0)

static void side_open(struct side *side, const char *name, bool small)
{
    struct error error = {0};
    struct tree_switches switches = {0};
    bool formatted = false;
    side->node = kept_open(name);
    const struct fabric_target *target = memory_node_target(side->node);
    side->fabric = fabric_local_create(&target, 1, 1, &error);
    assert_non_null(side->fabric);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 1 << 20;
    switches.ownership = TREE_OWNERSHIP_ALL;
    assert_int_equal(tree_compute_create(&side->compute, side->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&side->session, side->compute, side->worker, &error), 0);
    DO(side, tree_formatted(side->session, &formatted));
    if (formatted) {
        DO(side, tree_open(side->session, "steps", &side->tree));
        return;
    }
    const struct format_geometry geometry = {.leaf_bytes = small ? 512 : 0,
                                             .internal_bytes = 512,
                                             .key_kind = FORMAT_KEY_VARIABLE,
                                             .key_bytes = 60,
                                             .inline_key_bytes = 16,
                                             .value_bytes = 20,
                                             .value_variable = true};
    DO(side, tree_format(side->session));
    DO(side, tree_create(side->session, "steps", &geometry, &side->tree));
}

static void side_close(struct side *side)
{
    tree_close(side->tree);
    tree_session_destroy(side->session);
    pool_worker_destroy(side->worker);
    tree_compute_destroy(side->compute);
    fabric_close(side->fabric);
    memory_node_destroy(side->node);
}

/* ---- its entries: a key has no value, or one of two ---- */

static size_t key_make(uint32_t number, bool is_long, char key[64])
{
    return (size_t)snprintf(key, 64, "%s%05u", is_long ? LONG_PREFIX : "k", number);
}

static size_t value_make(uint32_t number, unsigned which, char value[21])
{
    return (size_t)snprintf(value, 21, "%s-%05u-%s", which == 1 ? "one" : "TWO", number,
                            which == 1 ? "abcdefg" : "HIJKLMNOPQ");
}

/* 0: absent. */
static unsigned entry_read(struct side *side, uint32_t number, bool is_long)
{
    char key[64], value[32], expected[21];
    size_t length = sizeof value, key_length = key_make(number, is_long, key);
    int status = tree_lookup(side->session, side->tree, key, key_length, value, &length);
    if (status == BANYAN_ENOTFOUND)
        return 0;
    DO(side, status);
    for (unsigned which = 1; which <= 2; which++)
        if (value_make(number, which, expected) == length && !memcmp(value, expected, length))
            return which;
    fail_msg("key %u has a value that was never written", number);
    return 0;
}

static void entry_write(struct side *side, uint32_t number, bool is_long, unsigned which)
{
    char key[64], value[21];
    size_t key_length = key_make(number, is_long, key);
    if (which)
        DO(side,
           tree_upsert(side->session, side->tree, key, key_length, value, value_make(number, which, value)));
    else
        DO(side, tree_delete(side->session, side->tree, key, key_length));
}

static uint64_t splits(const struct side *side)
{
    return tree_session_stats(side->session)->splits;
}

/* ---- one operation, stepped ---- */

struct scene {
    bool small, is_long;
    uint32_t keys;          /* 0 .. keys - 1 were written first, each with its first value */
    uint32_t from, to;      /* of these keys all but `to` were deleted then */
    uint32_t number;        /* the operation's key */
    unsigned before, after; /* what it has */
    bool happened;
};

static void prepare(const struct scene *scene, const char *name)
{
    struct side side;
    side_open(&side, name, scene->small);
    for (uint32_t i = 0; i < scene->keys; i++)
        entry_write(&side, i, scene->is_long, 1);
    for (uint32_t i = scene->from; i < scene->to; i++)
        entry_write(&side, i, scene->is_long, 0);
    side_close(&side);
}

static void child(void *context)
{
    const struct scene *scene = context;
    struct side side;
    step_trace();
    side_open(&side, "stepped", scene->small);
    /* What the worker takes for its first use is not the operation's. */
    assert_int_equal(entry_read(&side, scene->number, scene->is_long), scene->before);
    step_begin();
    entry_write(&side, scene->number, scene->is_long, scene->after);
    step_end();
}

static void judge(void *context, struct step_watch *watch)
{
    struct scene *scene = context;
    struct side side;
    struct tree_check_report report;
    kept_copy("copy", "stepped");
    side_open(&side, "copy", scene->small);
    for (uint32_t i = 0; i < scene->keys || i <= scene->number; i++) {
        unsigned found = entry_read(&side, i, scene->is_long);
        unsigned expected = i >= scene->keys || (i >= scene->from && i < scene->to) ? 0 : 1;
        if (i != scene->number && found != expected)
            fail_msg("key %u of others has value %u after %llu instructions", i, found,
                     (unsigned long long)watch->steps);
        if (i != scene->number)
            continue;
        if (found != scene->before && found != scene->after)
            fail_msg("the key has value %u after %llu instructions", found, (unsigned long long)watch->steps);
        if (scene->happened && found != scene->after)
            fail_msg("undone after %llu instructions", (unsigned long long)watch->steps);
        scene->happened = found == scene->after;
    }
    DO(&side, tree_check(side.session, side.tree, &report, NULL, NULL));
    if (atomic_load_acquire(&step_shared->done) && !scene->happened)
        fail_msg("what was answered has not happened");
    side_close(&side);
}

static void step(struct scene scene)
{
    prepare(&scene, "stepped");
    step_through("stepped", child, &scene, judge);
    unlink(kept_path("stepped"));
}

/* How many keys there are when the next one splits a leaf. */
static uint32_t keys_before_split(bool is_long)
{
    struct side side;
    uint32_t keys = 0;
    side_open(&side, "twin", true);
    uint64_t before = splits(&side);
    while (splits(&side) == before && keys < KEYS_MAX)
        entry_write(&side, keys++, is_long, 1);
    side_close(&side);
    unlink(kept_path("twin"));
    assert_in_range(keys, 3, KEYS_MAX - 1);
    return keys - 1;
}

static void changes_in_place(void **state)
{
    (void)state;
    step((struct scene){.keys = 9, .number = 4, .before = 1, .after = 2});
    step((struct scene){.keys = 9, .number = 9, .before = 0, .after = 1});
    step((struct scene){.keys = 9, .number = 4, .before = 1, .after = 0});
}

static void long_keys(void **state)
{
    (void)state;
    step((struct scene){.is_long = true, .keys = 5, .number = 5, .before = 0, .after = 1});
    step((struct scene){.is_long = true, .keys = 5, .number = 2, .before = 1, .after = 0});
}

static void a_split(void **state)
{
    (void)state;
    uint32_t keys = keys_before_split(false);
    step((struct scene){.small = true, .keys = keys, .number = keys, .before = 0, .after = 1});
}

/* The right one of two leaves dies with its last entry, which is the key of the greatest number. */
static void a_leaf_dies(void **state)
{
    (void)state;
    uint32_t keys = keys_before_split(false) + 1;
    step((struct scene){
        .small = true, .keys = keys, .from = 1, .to = keys - 1, .number = keys - 1, .before = 1, .after = 0});
}

static int set_up(void **state)
{
    (void)state;
    kept_begin(NULL);
    step_set_up();
    log_set_level(LOG_ERROR);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    step_tear_down();
    kept_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_in_place),
        cmocka_unit_test(long_keys),
        cmocka_unit_test(a_split),
        cmocka_unit_test(a_leaf_dies),
    };
    if (getenv("PART"))
        cmocka_set_test_filter(getenv("PART"));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
