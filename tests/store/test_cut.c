/*
 * test_cut.c - what cut.h says, call by call: what a cut holds of keys that were changed in each way that
 * there is, before and behind what was read; its bounds, its limit of memory, its failures, and what is left
 * of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "store/cut.h"
#include "store/cut_table.h"
#include "store/defrag.h"
#include "stores.h"

#define KIB ((size_t)1 << 10)

/* Each test runs as the only task of a world, on its thread; the second session is another thread's. */
static struct stores stores;
static struct store_session *session;
static struct store *store;

static int set_up(void **state)
{
    struct world_options options;
    stores_options_default(&options);
    options.threads = 2;
    assert_int_equal(stores_create(&stores, &options), 0);
    session = stores.world.tasks[0].store_session;
    store = stores.world.computes[0].store;
    stores_now(&stores, 1000);
    return 0;
}

static int tear_down(void **state)
{
    int status = stores_check(&stores, NULL);
    if (status)
        fprintf(stderr, "%s\n", stores.world.error.text);
    stores_destroy(&stores);
    return status ? -1 : 0;
}

static const char *message(void)
{
    return tree_session_error(stores.world.tasks[0].session)->text;
}

static void put(const char *key, const char *value, uint64_t expires)
{
    assert_int_equal(store_put(session, key, strlen(key), value, strlen(value), expires), 0);
}

static void put_long(const char *key, uint64_t number, size_t length)
{
    uint8_t *bytes = malloc(length);
    assert_non_null(bytes);
    stores_fill(number, bytes, length);
    assert_int_equal(store_put(session, key, strlen(key), bytes, length, 0), 0);
    free(bytes);
}

static void drop(const char *key)
{
    assert_int_equal(store_delete(session, key, strlen(key)), 0);
}

static void append(const char *key, uint64_t offset, const char *bytes)
{
    uint64_t whole;
    assert_int_equal(store_splice(session, key, strlen(key), offset, bytes, strlen(bytes), &whole), 0);
}

/* ---- what a cut gives, as text: key=value or key=#bytes, @expiry; each with a blank behind it ---- */

struct text {
    char bytes[8192];
    size_t length, entries;
};

static bool text_add(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct text *text = context;
    char *at = text->bytes + text->length;
    const size_t room = sizeof text->bytes - text->length;
    int length = value->length < 100
                     ? snprintf(at, room, "%.*s=%.*s", (int)key_length, (const char *)key, (int)value->length,
                                (const char *)value->bytes)
                     : snprintf(at, room, "%.*s=#%zu", (int)key_length, (const char *)key, value->length);
    text->length += (size_t)length;
    if (value->expires)
        text->length += (size_t)snprintf(text->bytes + text->length, sizeof text->bytes - text->length,
                                         "@%llu", (unsigned long long)value->expires);
    text->length += (size_t)snprintf(text->bytes + text->length, sizeof text->bytes - text->length, " ");
    assert_true(text->length < sizeof text->bytes - 400);
    text->entries++;
    return true;
}

static struct store_cut *open_range(const char *from, const char *to)
{
    const struct tree_range range = {.from = from,
                                     .from_length = from ? strlen(from) : 0,
                                     .to = to,
                                     .to_length = to ? strlen(to) : 0,
                                     .to_open = true};
    struct store_cut *cut;
    int status = store_cut_open(session, &range, &cut);
    if (status)
        fail_msg("%d: %s", status, message());
    return cut;
}

/* Up to so many entries more. */
static bool some(struct store_cut *cut, uint64_t entries, struct text *text)
{
    bool ended;
    int status = store_cut_next(session, cut, entries, UINT64_MAX, text_add, text, &ended);
    if (status)
        fail_msg("%d: %s", status, message());
    return ended;
}

static void expect_rest(struct store_cut *cut, const char *wanted)
{
    struct text text = {.length = 0};
    while (!some(cut, 3, &text))
        ;
    assert_string_equal(text.bytes, wanted);
}

static void expect_none_left(void)
{
    struct store_cut_stats stats;
    store_cut_stats(store, &stats);
    assert_int_equal(stats.open, 0);
    assert_int_equal(stats.memory, 0);
}

static uint64_t saved(void)
{
    struct store_cut_stats stats;
    store_cut_stats(store, &stats);
    return stats.saved;
}

/* ---- changes of every kind ---- */

static enum store_verdict replace(void *context, const struct store_value *old, struct store_value *new)
{
    *new = (struct store_value){.bytes = context, .length = strlen(context)};
    return STORE_PUT;
}

static enum store_verdict expire_at(void *context, const struct store_value *old, struct store_value *new)
{
    *new = (struct store_value){.expires = *(uint64_t *)context};
    return old ? STORE_PUT : STORE_KEEP;
}

static void modify(const char *key, const char *value)
{
    char text[64];
    snprintf(text, sizeof text, "%s", value);
    assert_int_equal(store_modify(session, key, strlen(key), STORE_NEED_VALUE, replace, text, NULL, NULL), 0);
}

#define LONG "a value that stands in a record, since it is too long for a slot"

static void changes_all(void)
{
    uint64_t later = 5000, count;
    struct store_item items[3] = {
        {.key = "f", .key_length = 1}, {.key = "fnew", .key_length = 4}, {.key = "f", .key_length = 1}};
    const struct tree_range range = {
        .from = "g", .from_length = 1, .to = "i", .to_length = 1, .to_open = true};
    put("a", "other", 0);
    put("b", LONG LONG, 0);
    drop("c");
    modify("d", "modified");
    modify("d1", LONG "!");
    append("e", STORE_AT_END, "more");
    append("e1", 70000, "in the middle");
    append("enew", 3, "new");
    for (unsigned i = 0; i < 3; i++)
        items[i].value = (struct store_value){.bytes = (const uint8_t *)"batch", .length = 5};
    assert_int_equal(store_multi_put(session, items, 3), 0);
    assert_int_equal(store_delete_range(session, &range, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(store_modify(session, "i", 1, STORE_NEED_LENGTH, expire_at, &later, NULL, NULL), 0);
    assert_int_equal(store_modify(session, "i1", 2, STORE_NEED_LENGTH, expire_at, &later, NULL, NULL), 0);
    put("new", "new", 0);
}

static void keys_put(void)
{
    put("a", "1", 0);
    put("b", LONG, 0);
    put("c", "3", 0);
    put("d", "4", 0);
    put("d1", LONG, 0);
    put("e", "5", 0);
    put_long("e1", 5, 150 * KIB);
    put("f", "6", 7000);
    put("g", "7", 0);
    put("g1", LONG, 0);
    put("h", "8", 0);
    put("i", "9", 0);
    put_long("i1", 9, 90 * KIB);
}

static const char *const keys_text =
    "a=1 b=" LONG " c=3 d=4 d1=" LONG " e=5 e1=#153600 f=6@7000 g=7 g1=" LONG " h=8 i=9 i1=#92160 ";

static void holds_what_was(void **state)
{
    keys_put();
    struct store_cut *cut = open_range(NULL, NULL);
    changes_all();
    expect_rest(cut, keys_text);
    /* It is over: it gives nothing more, and nothing is saved for it any more. */
    const uint64_t before = saved();
    put("a", "later", 0);
    assert_int_equal(saved(), before);
    struct text text = {.length = 0};
    assert_true(some(cut, 10, &text));
    assert_int_equal(text.entries, 0);
    store_cut_close(cut);
    expect_none_left();
}

/* The value of the cut stays, however often the key is changed. */
static void first_save_stays(void **state)
{
    put("a", "1", 0);
    put("gone", "2", 0);
    struct store_cut *cut = open_range(NULL, NULL);
    const uint64_t before = saved();
    for (unsigned i = 0; i < 5; i++) {
        put("a", i % 2 ? "3" : LONG, 0);
        put("fresh", "4", 0);
        drop("fresh");
        drop("gone");
        put("gone", "5", 0);
    }
    assert_int_equal(saved() - before, 3);
    expect_rest(cut, "a=1 gone=2 ");
    store_cut_close(cut);
    expect_none_left();
}

/* Between the parts that are read keys are changed that have been passed, and such as come. */
static void parts(void **state)
{
    char key[16], wanted[8192] = "";
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "k%02u", i);
        put(key, key, 0);
        strcat(strcat(strcat(strcat(wanted, key), "="), key), " ");
    }
    struct store_cut *cut = open_range(NULL, NULL);
    struct text text = {.length = 0};
    for (unsigned i = 0; !some(cut, 1 + i % 3, &text); i++)
        for (unsigned j = 0; j < 40; j++) {
            snprintf(key, sizeof key, "k%02u", (i * 7 + j * 11) % 40);
            if (j % 3)
                store_delete(session, key, 3);
            else
                put(key, "other", 0);
            snprintf(key, sizeof key, "k%02unew%u", j, i);
            put(key, "new", 0);
        }
    assert_string_equal(text.bytes, wanted);
    store_cut_close(cut);
    expect_none_left();
}

/* All keys leave before any was read: what is given comes from what was saved alone. */
static void emptied(void **state)
{
    const struct tree_range all = {.from = NULL};
    uint64_t count;
    keys_put();
    struct store_cut *cut = open_range(NULL, NULL);
    assert_int_equal(store_delete_range(session, &all, &count), 0);
    expect_rest(cut, keys_text);
    store_cut_close(cut);
    expect_none_left();
}

/* What a cut had saved that is closed is freed bit by bit, where it is much. */
static void tidied(void **state)
{
    struct store_cut_stats stats;
    char key[16];
    unsigned pieces = 0;
    for (unsigned i = 0; i < 4500; i++) {
        snprintf(key, sizeof key, "k%04u", i);
        put(key, "1", 0);
    }
    struct store_cut *cuts[2] = {open_range(NULL, NULL), open_range(NULL, NULL)};
    for (unsigned i = 0; i < 4500; i++) {
        snprintf(key, sizeof key, "k%04u", i);
        put(key, "2", 0);
    }
    assert_false(store_cuts_tidy(store));
    store_cut_close(cuts[0]);
    store_cut_close(cuts[1]);
    store_cut_stats(store, &stats);
    assert_int_equal(stats.open, 0);
    assert_true(stats.memory > 0);
    while (store_cuts_tidy(store))
        pieces++;
    assert_in_range(pieces, 9, 20);
    expect_none_left();
}

static void two_moments(void **state)
{
    put("a", "1", 0);
    put("b", "1", 0);
    struct store_cut *first = open_range(NULL, NULL);
    put("a", "2", 0);
    struct store_cut *second = open_range(NULL, NULL);
    put("a", "3", 0);
    put("b", "3", 0);
    drop("a");
    expect_rest(second, "a=2 b=1 ");
    expect_rest(first, "a=1 b=1 ");
    store_cut_close(first);
    store_cut_close(second);
    expect_none_left();
}

/* What had expired at the moment of the cut is not in it; what expired since is, however it was met. */
static void expiry(void **state)
{
    struct store_sweep sweep = {.cursor_length = 0};
    struct store_value value;
    put("at", "gone", 1000 + 1);
    put("before", "gone", 1000 + 1);
    put("get", "1", 2000);
    put("long", LONG, 2000);
    put("none", "2", 2000);
    put("over", "3", 2000);
    put("swept", "4", 2000);
    stores_now(&stores, 1001);
    struct store_cut *cut = open_range(NULL, NULL);
    put("at", "here again", 0);
    stores_now(&stores, 3000);
    assert_int_equal(store_get(session, "get", 3, &value), BANYAN_ENOTFOUND);
    assert_int_equal(store_delete(session, "long", 4), BANYAN_ENOTFOUND);
    put("over", "5", 0);
    assert_int_equal(store_sweep_step(session, &sweep, 100), 0);
    assert_true(sweep.last_pass_removed > 0);
    expect_rest(cut, "get=1@2000 long=" LONG "@2000 none=2@2000 over=3@2000 swept=4@2000 ");
    store_cut_close(cut);
    expect_none_left();
}

static void bounds(void **state)
{
    char longer[400];
    memset(longer, 'c', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    put("a", "1", 0);
    put("b", "2", 0);
    put("c", "3", 0);
    put("d", "4", 0);
    struct store_cut *cut = open_range("b", "d");
    const uint64_t before = saved();
    put("a", "other", 0);
    put("d", "other", 0);
    assert_int_equal(saved(), before);
    put("b", "other", 0);
    put("c", "other", 0);
    assert_int_equal(saved() - before, 2);
    expect_rest(cut, "b=2 c=3 ");
    store_cut_close(cut);
    cut = open_range(longer, NULL);
    expect_rest(cut, "d=other ");
    store_cut_close(cut);
    cut = open_range(NULL, longer);
    put("c", "now", 0);
    expect_rest(cut, "a=other b=other c=other ");
    store_cut_close(cut);
    expect_none_left();
}

/* The limit of memory ends the cut, and hinders no writer. */
static void memory_limit(void **state)
{
    struct text text = {.length = 0};
    struct store_cut_stats stats;
    bool ended;
    put_long("a", 1, 50 * KIB);
    put_long("b", 2, 50 * KIB);
    put_long("c", 3, 50 * KIB);
    store_set_cut_memory_max(store, 110 * KIB);
    struct store_cut *cut = open_range(NULL, NULL);
    put("a", "1", 0);
    put("b", "2", 0);
    store_cut_stats(store, &stats);
    assert_in_range(stats.memory, 100 * KIB, 110 * KIB);
    put("c", "3", 0);
    store_cut_stats(store, &stats);
    assert_int_equal(stats.memory, 0);
    assert_int_equal(stats.failed, 1);
    put("d", "4", 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(store_cut_next(session, cut, 10, UINT64_MAX, text_add, &text, &ended),
                         BANYAN_ENOMEM);
        assert_non_null(strstr(message(), "cut-memory-max"));
        assert_false(ended);
    }
    assert_int_equal(text.entries, 0);
    store_cut_close(cut);
    /* What has been read needs no room any more. */
    cut = open_range(NULL, NULL);
    put_long("a", 4, 70 * KIB);
    assert_false(some(cut, 1, &text));
    put_long("a", 5, 70 * KIB);
    put_long("b", 6, 90 * KIB);
    expect_rest(cut, "b=2 c=3 d=4 ");
    store_cut_close(cut);
    expect_none_left();
}

static void too_many(void **state)
{
    const struct tree_range all = {.from = NULL};
    struct store_cut *cuts[STORE_CUTS_MAX], *more;
    put("a", "1", 0);
    for (unsigned i = 0; i < STORE_CUTS_MAX; i++)
        cuts[i] = open_range(NULL, NULL);
    assert_int_equal(store_cut_open(session, &all, &more), BANYAN_EBUSY);
    assert_null(more);
    put("a", "2", 0);
    assert_int_equal(saved(), STORE_CUTS_MAX);
    store_cut_close(cuts[1]);
    assert_int_equal(store_cut_open(session, &all, &more), 0);
    expect_rest(more, "a=2 ");
    store_cut_close(more);
    for (unsigned i = 0; i < STORE_CUTS_MAX; i++)
        if (i != 1) {
            expect_rest(cuts[i], "a=1 ");
            store_cut_close(cuts[i]);
        }
    expect_none_left();
    put("a", "3", 0);
    assert_int_equal(saved(), STORE_CUTS_MAX);
}

/* What the tree refuses is no change, and no reason to give the cut up. */
static void no_keys(void **state)
{
    char longest[300];
    memset(longest, 'x', sizeof longest);
    put("a", "1", 0);
    struct store_cut *cut = open_range(NULL, NULL);
    assert_int_equal(store_put(session, longest, sizeof longest, "1", 1, 0), BANYAN_EKEYSIZE);
    assert_int_equal(store_put(session, "", 0, "1", 1, 0), BANYAN_EKEYSIZE);
    assert_int_equal(store_delete(session, "absent", 6), BANYAN_ENOTFOUND);
    expect_rest(cut, "a=1 ");
    store_cut_close(cut);
    expect_none_left();
}

/* ---- a change that is under way ---- */

struct slow {
    uint32_t begun, may_end, over; /* atomic */
};

/* Under the leaf's lock, on the writer's thread. */
static enum store_verdict slowly(void *context, const struct store_value *old, struct store_value *new)
{
    struct slow *slow = context;
    atomic_store_release(&slow->begun, 1u);
    while (!atomic_load_acquire(&slow->may_end))
        task_yield();
    *new = (struct store_value){.bytes = (const uint8_t *)"changed", .length = 7};
    return STORE_PUT;
}

static void change_slowly(void *context)
{
    struct slow *slow = context;
    int status = store_modify_here(stores.world.tasks[1].store_session, "a", 1, STORE_NEED_VALUE, slowly,
                                   slow, NULL, NULL);
    if (!status)
        atomic_store_release(&slow->over, 1u);
}

/* Lets the change end once an attempt to open a cut was given up for it. */
static void let_go(void *context)
{
    struct slow *slow = context;
    struct store_cut_stats stats = {.open = 0};
    while (!stats.held_longest_ns) {
        task_sleep(100000);
        store_cut_stats(store, &stats);
    }
    atomic_store_release(&slow->may_end, 1u);
}

/* No cut is opened while a change is under way (B2); the writers that wait for that are let go meanwhile. */
static void change_under_way(void **state)
{
    struct slow slow = {.begun = 0};
    struct thread *changer, *helper;
    struct error error = {0};
    put("a", "1", 0);
    assert_int_equal(thread_start(&changer, change_slowly, &slow, &error), 0);
    while (!atomic_load_acquire(&slow.begun))
        task_yield();
    assert_int_equal(thread_start(&helper, let_go, &slow, &error), 0);
    struct store_cut *cut = open_range(NULL, NULL);
    /* The change's last instructions are behind what was waited for. */
    const bool ended_before = atomic_load_acquire(&slow.may_end);
    struct store_value value;
    assert_int_equal(store_get(session, "a", 1, &value), 0);
    const bool there = value.length == 7;
    thread_join(changer);
    thread_join(helper);
    assert_true(slow.over);
    assert_true(ended_before);
    assert_true(there);
    expect_rest(cut, "a=changed ");
    store_cut_close(cut);
    expect_none_left();
}

/* ---- the table ---- */

static void table(void **state)
{
    struct store_cut_table table = {.count = 0};
    struct store_value value = {.bytes = (const uint8_t *)"x", .length = 1};
    char key[16];
    uint64_t held = 0;
    random_seed(&table.random, 7);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%03u", i * 389 % 1000);
        struct store_saved *one = store_saved_make(store_cut_table_level(&table), key, 3, &value);
        assert_true(store_cut_table_add(&table, one));
        held += store_saved_bytes(one->levels, 3, 1);
        struct store_saved *other = store_saved_make(1, key, 3, NULL);
        assert_false(store_cut_table_add(&table, other));
        assert_int_equal(store_saved_free(other, 1, NULL), store_saved_bytes(1, 3, 0));
        assert_true(store_cut_table_has(&table, key, 3));
        assert_false(store_cut_table_has(&table, key, 2));
    }
    for (unsigned i = 0; i < 400; i++) {
        struct store_saved *one = store_cut_table_pop(&table);
        snprintf(key, sizeof key, "%03u", i);
        assert_memory_equal(one->bytes, key, 3);
        assert_true(one->present);
        assert_false(store_cut_table_has(&table, key, 3));
        held -= store_saved_free(one, 1, NULL);
    }
    assert_int_equal(table.count, 600);
    assert_int_equal(store_saved_free(store_cut_table_clear(&table), 1000, NULL), held);
    assert_null(store_cut_table_first(&table));
    assert_null(store_cut_table_pop(&table));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(holds_what_was),    TEST(first_save_stays), TEST(parts),   TEST(emptied),
        TEST(two_moments),       TEST(tidied),           TEST(expiry),  TEST(bounds),
        TEST(memory_limit),      TEST(too_many),         TEST(no_keys), TEST(change_under_way),
        cmocka_unit_test(table),
    };
    return cmocka_run_group_tests_name("store_cut", tests, NULL, NULL);
}
