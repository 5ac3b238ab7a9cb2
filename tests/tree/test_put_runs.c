/* test_put_runs.c - many puts in one call (tree/put.h, tree/chain.h) against a plain list of the keys: runs
 * of ascending keys, behind the last one or among others, and keys in any order, with deletions between the
 * calls; what a run behind the last key costs; and the same beside threads that scan, delete and append. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/error.h"
#include "base/random.h"
#include "base/thread.h"
#include "swarm/world.h"
#include "tree/index.h"
#include "tree/rights.h"
#include "tree/session.h"

#define NUMBERS 40000u /* of keys */
#define CALL    400u   /* items in one call at most */

static void owned_options(struct world_options *options)
{
    world_options_default(options);
    options->owned = true;
}

static void run(struct world_options *options, void (*function)(struct world_task *task))
{
    struct world world;
    int status = world_create(&world, options);
    status = status ? status : world_run_one(&world, 0, function);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* ---- one call's items ---- */

struct call {
    struct tree_item items[CALL];
    uint8_t keys[CALL][FORMAT_KEY_MAX], values[CALL][FORMAT_VALUE_MAX], olds[CALL][FORMAT_VALUE_MAX];
    uint64_t numbers[CALL], salts[CALL];
    unsigned placed[CALL];
    size_t count;
};

static void count_placed(void *context, struct tree_item *item)
{
    struct call *call = context;
    call->placed[item - call->items]++;
}

static void call_add(const struct world *world, struct call *call, uint64_t number, uint64_t salt)
{
    const size_t i = call->count++;
    assert_true(i < CALL);
    call->numbers[i] = number;
    call->salts[i] = salt;
    call->placed[i] = 0;
    call->items[i] = (struct tree_item){.key = call->keys[i], .value = call->values[i], .status = 99};
    call->items[i].key_length = world_key(world, number, call->keys[i]);
    call->items[i].length = world_value(world, salt, call->values[i]);
}

/* ---- against a list ---- */

struct model {
    uint64_t salts[NUMBERS]; /* 0: the key is not there */
    uint64_t end;            /* behind the greatest number that was used */
    uint64_t entries, salt;
    struct random random;
};

/* A few keys that ascend by steps of their own, from anywhere or behind the end, or any keys. */
static void call_fill(const struct world *world, struct model *model, struct call *call)
{
    const size_t most = 1 + random_below(&model->random, CALL);
    call->count = 0;
    while (call->count < most) {
        const uint64_t kind = random_below(&model->random, 5),
                       step = 1 + random_below(&model->random, 3) * (kind % 2);
        uint64_t number = kind < 2 ? model->end : random_below(&model->random, NUMBERS);
        for (uint64_t left = 1 + random_below(&model->random, 150); left && call->count < most; left--) {
            if (kind == 4)
                number = random_below(&model->random, NUMBERS);
            if (number >= NUMBERS)
                break;
            call_add(world, call, number, ++model->salt);
            number += step;
        }
        /* Behind the end there is nothing left in time: then keys are put anew. */
        model->end = kind < 2 && number < NUMBERS ? number : model->end;
    }
    for (size_t i = 0; i < call->count; i++) {
        call->items[i].old = random_below(&model->random, 2) ? call->olds[i] : NULL;
        call->items[i].placed = random_below(&model->random, 2) ? count_placed : NULL;
        call->items[i].placed_context = call;
    }
}

/* Every item says what it has done, in their order. */
static void call_judge(const struct world *world, struct model *model, struct call *call)
{
    uint8_t before[FORMAT_VALUE_MAX];
    for (size_t i = 0; i < call->count; i++) {
        const struct tree_item *item = &call->items[i];
        uint64_t *salt = &model->salts[call->numbers[i]];
        assert_int_equal(item->status, 0);
        assert_in_range(call->placed[i], 0, item->placed ? 1 : 0);
        if (item->old) {
            assert_int_equal(item->existed, *salt != 0);
            assert_int_equal(item->old_length, *salt ? world_value(world, *salt, before) : 0);
            if (*salt)
                assert_memory_equal(item->old, before, item->old_length);
        }
        model->entries += !*salt;
        *salt = call->salts[i];
        model->end = call->numbers[i] >= model->end ? call->numbers[i] + 1 : model->end;
    }
}

static void delete_some(struct world_task *task, struct model *model)
{
    uint8_t key[FORMAT_KEY_MAX];
    uint64_t number = random_below(&model->random, NUMBERS);
    for (uint64_t left = random_below(&model->random, 200); left && number < NUMBERS; left--, number++) {
        const size_t length = world_key(task->world, number, key);
        assert_int_equal(tree_delete(task->session, task->tree, key, length),
                         model->salts[number] ? 0 : BANYAN_ENOTFOUND);
        model->entries -= model->salts[number] != 0;
        model->salts[number] = 0;
    }
}

struct looking {
    const struct world *world;
    const struct model *model;
    uint64_t next, count;
};

static bool look(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct looking *looking = context;
    uint8_t expected[FORMAT_VALUE_MAX];
    const uint64_t number = world_key_number(looking->world, key, key_length);
    assert_true(number < NUMBERS && number >= looking->next && looking->model->salts[number]);
    assert_int_equal(length, world_value(looking->world, looking->model->salts[number], expected));
    assert_memory_equal(value, expected, length);
    looking->next = number + 1;
    looking->count++;
    return true;
}

static void all_is_there(struct world_task *task, const struct model *model)
{
    struct looking looking = {.world = task->world, .model = model};
    struct tree_check_report report;
    assert_int_equal(tree_scan(task->session, task->tree, &(struct tree_range){0}, look, &looking), 0);
    assert_int_equal(looking.count, model->entries);
    assert_int_equal(tree_check(task->session, task->tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, model->entries);
}

static void calls_agree(struct world_task *task)
{
    static struct model model;
    static struct call call;
    const uint64_t seed = random_entropy();
    memset(&model, 0, sizeof model);
    random_seed(&model.random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned round = 0; round < 80; round++) {
        const uint64_t operations = tree_session_stats(task->session)->operations;
        call_fill(task->world, &model, &call);
        assert_int_equal(tree_multi_put(task->session, task->tree, call.items, call.count), 0);
        assert_int_equal(tree_session_stats(task->session)->operations, operations + call.count);
        call_judge(task->world, &model, &call);
        if (round % 3 == 0)
            delete_some(task, &model);
        if (round % 8 == 0)
            all_is_there(task, &model);
    }
    all_is_there(task, &model);
}

static void calls_do_what_puts_do(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, calls_agree);
    options.geometry.leaf_bytes = 1024;
    options.geometry.internal_bytes = 512;
    run(&options, calls_agree);
    options.memory_nodes = 3;
    options.geometry.subtree_levels = 2;
    run(&options, calls_agree);
    owned_options(&options);
    options.geometry.key_kind = FORMAT_KEY_VARIABLE;
    options.geometry.key_bytes = 24;
    run(&options, calls_agree);
    options.geometry.key_bytes = 120;
    options.long_keys = true;
    run(&options, calls_agree);
    options.owned = false;
    run(&options, calls_agree);
}

/* ---- what is appended ---- */

#define APPENDED 4000u

static void append_all(struct world_task *task)
{
    static struct call call;
    struct tree_check_report report;
    const struct tree_stats *stats = tree_session_stats(task->session);
    const uint64_t slots = task->tree->layout.slots;
    for (uint64_t next = 0; next < APPENDED;) {
        for (call.count = 0; call.count < CALL; next++)
            call_add(task->world, &call, next, next + 1);
        assert_int_equal(tree_multi_put(task->session, task->tree, call.items, CALL), 0);
    }
    assert_int_equal(tree_check(task->session, task->tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, APPENDED);
    /* As full as a bulk load leaves them, and written as wholes: what goes in by itself is a part of a leaf.
     */
    assert_in_range(report.leaves, 1, APPENDED / (slots * 3 / 4));
    assert_in_range(stats->cost.writes, 1, APPENDED / 2);
    assert_in_range(stats->splits, report.leaves - 1, 2 * report.leaves);
}

/* Too few ascend at once for a run: a batch leaves leaves as full behind, as long as no put of a full leaf
 * goes before the one that splits it. */
static void append_in_batches(struct world_task *task)
{
    static struct call call;
    struct tree_check_report report;
    uint64_t entries = 0;
    while (entries < APPENDED) {
        for (call.count = 0; call.count < CALL;) {
            call_add(task->world, &call, entries, entries + 1);
            entries += call.count % 7 != 0; /* each seventh key comes twice */
        }
        assert_int_equal(tree_multi_put(task->session, task->tree, call.items, CALL), 0);
    }
    assert_int_equal(tree_check(task->session, task->tree, &report, NULL, NULL), 0);
    assert_in_range(report.entries, entries, entries + 1);
    assert_in_range(report.leaves, 1, entries * 10 / (task->tree->layout.slots * 7));
}

static void batches_leave_full_leaves(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 1024;
    run(&options, append_in_batches);
}

static void what_is_appended_is_written_whole(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 1024;
    run(&options, append_all);
}

/* What is appended to a range of this process's goes no further than that: behind it this index is shared. */
static void append_to_a_range(struct world_task *task)
{
    static struct call call;
    uint8_t border[FORMAT_KEY_MAX], key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    struct tree_session *session = task->session;
    struct tree *tree = task->tree;
    struct tree_check_report report;
    enum { BORDER = 700, COUNT = 1200 };
    const struct tree_rights_row rows[2] = {
        {.lower = border, .lower_length = 0, .epoch = 1, .right = TREE_OWNED},
        {.lower = border,
         .lower_length = (uint32_t)world_key(task->world, BORDER, border),
         .epoch = 2,
         .right = TREE_SHARED},
    };
    assert_int_equal(tree_border_make(session, tree, border, rows[1].lower_length), 0);
    assert_int_equal(tree_rights_adopt(session, tree, 1, 1, rows, 2), 0);
    for (uint64_t next = 0; next < COUNT;) {
        for (call.count = 0; call.count < CALL; next++)
            call_add(task->world, &call, next, next + 1);
        assert_int_equal(tree_multi_put(session, tree, call.items, CALL), 0);
        for (size_t i = 0; i < CALL; i++)
            assert_int_equal(call.items[i].status, 0);
    }
    for (uint64_t number = 0; number < COUNT; number++) {
        size_t length = sizeof value;
        const size_t key_length = world_key(task->world, number, key);
        assert_int_equal(tree_lookup(session, tree, key, key_length, value, &length), 0);
        assert_int_equal(world_value_number(task->world, value, length), number + 1);
    }
    assert_int_equal(tree_check(session, tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, COUNT);
}

static void runs_end_where_the_range_does(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 512;
    run(&options, append_to_a_range);
}

/* ---- threads ---- */

#define HANDS  2u
#define ROUNDS 30u

/* One of those that append at the end of one index: each takes the numbers that are its by their remainder.
 */
struct hand {
    struct world_task *task;
    unsigned number;
    uint64_t wrong;
};

static bool in_order(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct looking *looking = context;
    const uint64_t number = world_key_number(looking->world, key, key_length);
    looking->count +=
        number < looking->next || world_value_number(looking->world, value, length) != number + 1;
    looking->next = number + 1;
    return true;
}

static void hand_work(struct hand *hand, struct world_task *task, struct call *call)
{
    const struct world *world = task->world;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    struct random random;
    random_seed(&random, hand->number);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (call->count = 0; call->count < 200;) {
            const uint64_t number = (round * 200 + call->count) * HANDS + hand->number;
            call_add(world, call, number, number + 1);
        }
        hand->wrong += tree_multi_put(task->session, task->tree, call->items, call->count) != 0;
        /* What it has put itself is there, whatever the other does meanwhile. */
        for (unsigned i = 0; i < 40; i++) {
            const uint64_t at = random_below(&random, call->count);
            const size_t length = world_key(world, call->numbers[at], key);
            size_t value_length = sizeof value;
            hand->wrong += tree_lookup(task->session, task->tree, key, length, value, &value_length) != 0 ||
                           world_value_number(world, value, value_length) != call->salts[at];
        }
        struct looking looking = {.world = world};
        hand->wrong += tree_scan(task->session, task->tree, &(struct tree_range){0}, in_order, &looking) != 0;
        hand->wrong += looking.count;
        for (uint64_t i = 0; i < call->count; i += 3) {
            const size_t length = world_key(world, call->numbers[i], key);
            hand->wrong += tree_delete(task->session, task->tree, key, length) != 0;
        }
    }
}

static void hand_run(void *context)
{
    struct hand *hand = context;
    struct world_task task = *hand->task;
    struct tree_compute *compute = task.session->compute;
    struct pool_worker *worker;
    struct error error;
    struct call *call = malloc(sizeof *call);
    hand->wrong++;
    if (call && !pool_worker_create(&worker, tree_compute_pool(compute), &error)) {
        if (!tree_session_create(&task.session, compute, worker, &error)) {
            hand->wrong--;
            hand_work(hand, &task, call);
            tree_session_destroy(task.session);
        }
        pool_worker_destroy(worker);
    }
    free(call);
}

static void hands_append(struct world_task *task)
{
    struct hand hands[HANDS];
    struct thread *threads[HANDS];
    struct tree_check_report report;
    struct error error;
    for (unsigned i = 0; i < HANDS; i++) {
        hands[i] = (struct hand){.task = task, .number = i};
        assert_int_equal(thread_start(&threads[i], hand_run, &hands[i], &error), 0);
    }
    for (unsigned i = 0; i < HANDS; i++)
        thread_join(threads[i]);
    for (unsigned i = 0; i < HANDS; i++)
        assert_int_equal(hands[i].wrong, 0);
    assert_int_equal(tree_check(task->session, task->tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, HANDS * ROUNDS * (200 - 67));
}

static void threads_append_beside_each_other(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, hands_append);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_do_what_puts_do),
        cmocka_unit_test(what_is_appended_is_written_whole),
        cmocka_unit_test(batches_leave_full_leaves),
        cmocka_unit_test(runs_end_where_the_range_does),
        cmocka_unit_test(threads_append_beside_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
