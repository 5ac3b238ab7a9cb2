/*
 * test_cut_steps.c - B4: a cut gives the value of its moment, whatever list of its reader a change comes
 * before or behind. One thread: the reader is held at one list after the other, and meanwhile another session
 * of the store changes every key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "store/cut.h"
#include "tree/side.h"
#include "tree/stepper.h"

#define KEYS      3u
#define LISTS_MAX 100u /* far more than any reading here needs */
#define LONG      "a value that stands in a record, since it is too long for a slot"

static const char *const keys[KEYS] = {"a", "b", "c"};

/* What the keys have at the moment, and what they are given behind it (NULL: they are deleted). The lengths
 * decide what lies in slots and what in records. */
struct values {
    const char *old[KEYS], *new[KEYS];
};
static const struct values kept = {{"1", "2", "3"}, {"one", "two", "three"}};
static const struct values longer = {{"1", LONG "2", "3"}, {LONG "one", LONG "two", LONG "three"}};
static const struct values shorter = {{LONG "1", LONG "2", LONG "3"}, {"one", LONG "two", "three"}};
static const struct values deleted = {{"1", LONG "2", "3"}, {NULL, NULL, NULL}};

struct plan {
    const struct values *values;
    bool late;        /* the change comes behind the list, and before its answer */
    uint64_t entries; /* that one call of store_cut_next may give out */
};

struct rig {
    struct memory_node *memory;
    struct side side;
    struct store *store;
    struct store_session *reader, *writer;
    struct pool_worker *worker; /* the writer's */
    struct tree_session *session;
    const struct plan *plan;
    unsigned lists, wanted; /* of the reader: posted; the one at which the keys change, from 1 */
    int status;             /* of the first change that failed */
};

/* ---- two sessions of a store ---- */

static void rig_open(struct rig *rig, const struct plan *plan)
{
    const struct memory_options options = {.pool_bytes = 16 << 20};
    struct error error = {0};
    *rig = (struct rig){.plan = plan};
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    side_open(&rig->side, rig->memory, 1, TREE_READ_BUCKET);
    assert_int_equal(pool_worker_create(&rig->worker, tree_compute_pool(rig->side.compute), &error), 0);
    assert_int_equal(tree_session_create(&rig->session, rig->side.compute, rig->worker, &error), 0);
    assert_int_equal(tree_format(rig->side.session), 0);
    assert_int_equal(store_open(&rig->store, rig->side.session, "cuts", true), 0);
    assert_int_equal(store_session_create(&rig->reader, rig->store, rig->side.session, &error), 0);
    assert_int_equal(store_session_create(&rig->writer, rig->store, rig->session, &error), 0);
    store_session_seed(rig->reader, 1);
    store_session_seed(rig->writer, 2);
}

static void rig_close(struct rig *rig)
{
    store_session_destroy(rig->writer);
    store_session_destroy(rig->reader);
    store_close(rig->store);
    tree_session_destroy(rig->session);
    pool_worker_destroy(rig->worker);
    side_close(&rig->side, true);
    memory_node_destroy(rig->memory);
}

static void change_all(struct rig *rig, const char *const values[KEYS])
{
    for (unsigned i = 0; i < KEYS; i++) {
        const int status = values[i] ? store_put(rig->writer, keys[i], 1, values[i], strlen(values[i]), 0)
                                     : store_delete(rig->writer, keys[i], 1);
        rig->status = rig->status ? rig->status : status;
    }
}

/* ---- the reader, held ---- */

static bool is_wanted(const struct fabric_list *list, void *context)
{
    struct rig *rig = context;
    return ++rig->lists == rig->wanted;
}

static void change_meanwhile(void *context)
{
    struct rig *rig = context;
    change_all(rig, rig->plan->values->new);
}

struct text {
    char bytes[512];
    size_t length;
};

static bool text_add(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct text *text = context;
    text->length +=
        (size_t)snprintf(text->bytes + text->length, sizeof text->bytes - text->length, "%.*s=%.*s ",
                         (int)key_length, (const char *)key, (int)value->length, (const char *)value->bytes);
    assert_true(text->length < sizeof text->bytes);
    return true;
}

/* Whether the reader has posted so many lists. */
static bool read_and_change_at(const struct plan *plan, unsigned wanted)
{
    struct rig rig;
    struct store_cut *cut;
    struct text text = {.length = 0}, expected = {.length = 0};
    struct store_value value;
    bool ended = false;
    rig_open(&rig, plan);
    change_all(&rig, plan->values->old);
    assert_int_equal(rig.status, 0);
    assert_int_equal(store_cut_open(rig.reader, &(const struct tree_range){.from = NULL}, &cut), 0);
    rig.wanted = wanted;
    (plan->late ? stepper_hold_answer : stepper_hold)(rig.side.fabric, is_wanted, change_meanwhile, &rig);
    while (!ended)
        if (store_cut_next(rig.reader, cut, plan->entries, UINT64_MAX, text_add, &text, &ended))
            fail_msg("%s", tree_session_error(rig.side.session)->text);
    const bool met = stepper_met(rig.side.fabric);
    rig.wanted = 0; /* none of the lists from here on */
    store_cut_close(cut);
    assert_int_equal(rig.status, 0);
    for (unsigned i = 0; i < KEYS; i++) {
        const char *old = plan->values->old[i], *new = met ? plan->values->new[i] : old;
        text_add(&expected, keys[i], 1,
                 &(const struct store_value){.bytes = (const uint8_t *)old, .length = strlen(old)});
        /* The change has taken effect beside the cut. */
        assert_int_equal(store_get(rig.writer, keys[i], 1, &value), new ? 0 : BANYAN_ENOTFOUND);
        if (new) {
            assert_int_equal(value.length, strlen(new));
            assert_memory_equal(value.bytes, new, value.length);
        }
    }
    if (strcmp(text.bytes, expected.bytes) != 0)
        fail_msg("the keys change %s list %u: the cut gives %s", plan->late ? "behind" : "before", wanted,
                 text.bytes);
    rig_close(&rig);
    return met;
}

static void changes_at_each_list(void **state)
{
    const struct plan *plan = *state;
    unsigned lists = 0;
    while (lists < LISTS_MAX && read_and_change_at(plan, lists + 1))
        lists++;
    /* Each call scans once at least. */
    assert_in_range(lists, plan->entries == 1 ? KEYS : 1, LISTS_MAX - 1);
}

#define SHAPES 4u
#define PLANS  (SHAPES * 4)

int main(void)
{
    static const struct {
        const char *name;
        const struct values *values;
    } shapes[SHAPES] = {{"short values", &kept},
                        {"values that become records", &longer},
                        {"records that become values", &shorter},
                        {"deletions", &deleted}};
    static struct plan plans[PLANS];
    static char names[PLANS][80];
    struct CMUnitTest tests[PLANS];
    for (unsigned i = 0; i < PLANS; i++) {
        const bool late = i / SHAPES % 2, single = i / SHAPES / 2;
        plans[i] =
            (struct plan){.values = shapes[i % SHAPES].values, .late = late, .entries = single ? 1 : 100};
        snprintf(names[i], sizeof names[i], "%s, %s each list, %s", shapes[i % SHAPES].name,
                 late ? "behind" : "before", single ? "one key at a call" : "all in one call");
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = changes_at_each_list, .initial_state = &plans[i]};
    }
    return cmocka_run_group_tests_name("store_cut_steps", tests, NULL, NULL);
}
