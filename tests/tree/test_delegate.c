/*
 * test_delegate.c - operations that a lock's holder does for those who wait (delegate.h): what the list
 * carries, when they are answered and with what, and what must stay with its own task.
 *
 * Two compute nodes over the local backend, all on one thread. The first has many sessions. Its holder is
 * held up in its first list until the others have queued up; a test looks at its lists, loses one of them, or
 * has the connection lost at a chosen point.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "base/task.h"
#include "base/worker.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "tree/session.h"
#include "wrapper.h"

#define SESSIONS 8u
#define OTHERS   (SESSIONS - 1u)

struct rig;

/* ---- a fabric that a test looks into ---------------------------------------------------------------- */

struct watched {
    struct wrapper wrapper;
    uint64_t refused_below; /* lists of earlier incarnations */
    struct rig *rig;
    unsigned lists; /* since the rig was told to begin */
};

enum part { OPERATES, DONE };
struct actor {
    struct rig *rig;
    unsigned number;
    enum tree_verdict verdict; /* what it wants of its key */
    uint64_t key;
    bool late, here; /* begins after the loss; waits for the lock itself */
    bool many;       /* puts so many keys from `key` on */
    unsigned count;
    uint64_t saw;
    bool found;
    int status;
    enum part part;
};

enum trouble { NO_TROUBLE, LOST_AFTER, REFUSED, LOST_UNDER_LOCK, CUT };

struct rig {
    struct memory_node *memory;
    struct watched *watched;
    struct fabric *fabrics[2];
    struct tree_compute *computes[2];
    struct pool_worker *workers[2];
    struct tree_session *sessions[SESSIONS], *other;
    struct tree *tree, *other_tree;
    struct actor actors[SESSIONS];
    unsigned actor_count;
    bool begun, held, lost, written;
    enum trouble trouble;
    uint16_t cut;               /* commands of the list that are done */
    unsigned done_before_write; /* operations that had ended when the first writing list was posted */
    unsigned write_commands;    /* of that list */
};

static void yield_often(void)
{
    for (unsigned i = 0; i < 50; i++)
        task_yield();
}

/* We are fenced, and our locks are free. */
static void lose(struct rig *rig)
{
    rig->lost = true;
    memory_node_release_locks(rig->memory, 1);
    rig->watched->refused_below = ++rig->watched->wrapper.incarnation;
}

static int run_writes(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct rig *rig = ((struct watched *)endpoint->fabric)->rig;
    rig->written = true;
    rig->write_commands = list->count;
    yield_often();
    for (unsigned i = 0; i < rig->actor_count; i++)
        rig->done_before_write += rig->actors[i].part == DONE;
    switch (rig->trouble) {
    case LOST_AFTER:
        wrapper_pass(endpoint, list, list->count);
        lose(rig);
        return BANYAN_ENET;
    case REFUSED:
        lose(rig);
        return BANYAN_EFENCED;
    case CUT:
        wrapper_pass(endpoint, list, rig->cut < list->count ? rig->cut : list->count);
        lose(rig);
        return BANYAN_ENET;
    default:
        return wrapper_pass(endpoint, list, list->count);
    }
}

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct watched *watched = (struct watched *)endpoint->fabric;
    struct rig *rig = watched->rig;
    if (list->incarnation && list->incarnation < watched->refused_below)
        return BANYAN_EFENCED;
    if (!rig->begun)
        return wrapper_pass(endpoint, list, list->count);
    watched->lists++;
    if (list->commands[0].operation == FABRIC_WRITE && !rig->written)
        return run_writes(endpoint, list);
    int status = wrapper_pass(endpoint, list, list->count);
    if (list->commands[0].operation == FABRIC_CAS && !rig->held) {
        rig->held = true;
        if (rig->trouble == LOST_UNDER_LOCK)
            lose(rig);
        yield_often(); /* to where the others wait for the lock */
    }
    return status;
}

static const struct fabric_ops watched_ops = {
    .execute = wrapper_execute,
    .call = wrapper_call,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
};

/* ---- the rig ------------------------------------------------------------------------------------------ */

static void key_of(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number >> (56 - 8 * i));
}

static void put_first(struct rig *rig, uint64_t number)
{
    uint8_t key[8];
    uint64_t zero[2] = {0};
    key_of(number, key);
    assert_int_equal(tree_upsert(rig->sessions[0], rig->tree, key, 8, zero, sizeof zero), 0);
}

/* 1,000 to 1,000 + keys - 1 are there, and in each session's cache is the way to them. */
static void rig_open(struct rig *rig, unsigned keys, enum trouble trouble)
{
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 16, .leaf_bytes = 1024};
    struct memory_options options = {.pool_bytes = 16 << 20, .chunk_bytes = 64 << 10};
    struct tree_switches switches = {.cache_bytes = 1 << 20};
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    const struct fabric_target *targets[1] = {memory_node_target(rig->memory)};
    rig->watched = calloc(1, sizeof *rig->watched);
    assert_non_null(rig->watched);
    wrapper_init(&rig->watched->wrapper, &watched_ops, run_list, fabric_local_create(targets, 1, 1, &error));
    rig->watched->rig = rig;
    rig->fabrics[0] = &rig->watched->wrapper.fabric;
    rig->fabrics[1] = fabric_local_create(targets, 1, 2, &error);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    assert_true(switches.delegate);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(tree_compute_create(&rig->computes[i], rig->fabrics[i], &switches, &error), 0);
        assert_int_equal(pool_worker_create(&rig->workers[i], tree_compute_pool(rig->computes[i]), &error),
                         0);
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(tree_session_create(&rig->sessions[i], rig->computes[0], rig->workers[0], &error),
                         0);
    assert_int_equal(tree_session_create(&rig->other, rig->computes[1], rig->workers[1], &error), 0);
    assert_int_equal(tree_format(rig->sessions[0]), 0);
    assert_int_equal(tree_create(rig->sessions[0], "delegate", &geometry, &rig->tree), 0);
    assert_int_equal(tree_open(rig->other, "delegate", &rig->other_tree), 0);
    for (unsigned i = 0; i < keys; i++)
        put_first(rig, 1000 + i);
    rig->trouble = trouble;
}

static void rig_close(struct rig *rig)
{
    struct tree_check_report report;
    struct error error = {0};
    rig->begun = false;
    int status = tree_check(rig->other, rig->other_tree, &report, NULL, NULL);
    if (status)
        fail_msg("%s", tree_session_error(rig->other)->text);
    (void)error;
    tree_close(rig->tree);
    tree_close(rig->other_tree);
    for (unsigned i = 0; i < SESSIONS; i++)
        tree_session_destroy(rig->sessions[i]);
    tree_session_destroy(rig->other);
    for (unsigned i = 0; i < 2; i++) {
        pool_worker_destroy(rig->workers[i]);
        tree_compute_destroy(rig->computes[i]);
        fabric_close(rig->fabrics[i]);
    }
    memory_node_destroy(rig->memory);
}

/* What the other compute node finds: the number in the value; UINT64_MAX: no such key. */
static uint64_t value_at(struct rig *rig, uint64_t number)
{
    uint8_t key[8];
    uint64_t value[2];
    size_t length = sizeof value;
    key_of(number, key);
    int status = tree_lookup(rig->other, rig->other_tree, key, 8, value, &length);
    if (status && status != BANYAN_ENOTFOUND)
        fail_msg("key %u: %s", (unsigned)number, tree_session_error(rig->other)->text);
    return status ? UINT64_MAX : value[0];
}

/* Counts up, deletes or looks, and remembers what it saw. */
static enum tree_verdict change(void *context, const void *old, size_t old_length, void *value,
                                size_t *length)
{
    struct actor *actor = context;
    uint64_t number[2] = {0};
    actor->found = old;
    if (old)
        memcpy(number, old, old_length);
    actor->saw = number[0];
    number[0]++;
    memcpy(value, number, sizeof number);
    *length = sizeof number;
    return actor->verdict;
}

static int put_many(struct actor *actor)
{
    uint8_t keys[32][8];
    uint64_t value[2] = {100, 0};
    struct tree_item items[32];
    assert_true(actor->count <= 32);
    for (unsigned i = 0; i < actor->count; i++) {
        key_of(actor->key + i, keys[i]);
        items[i] =
            (struct tree_item){.key = keys[i], .key_length = 8, .value = value, .length = sizeof value};
    }
    return tree_multi_put(actor->rig->sessions[actor->number], actor->rig->tree, items, actor->count);
}

static void actor_main(void *argument)
{
    struct actor *actor = argument;
    struct rig *rig = actor->rig;
    uint8_t key[8];
    while (actor->number && !(actor->late ? rig->lost : rig->held))
        task_yield();
    key_of(actor->key, key);
    if (actor->many)
        actor->status = put_many(actor);
    else
        actor->status = (actor->here ? tree_modify_here : tree_modify)(rig->sessions[actor->number],
                                                                       rig->tree, key, 8, change, actor);
    actor->part = DONE;
}

static struct actor *actor_add(struct rig *rig, enum tree_verdict verdict, uint64_t key)
{
    assert_true(rig->actor_count < SESSIONS);
    struct actor *actor = &rig->actors[rig->actor_count];
    *actor = (struct actor){.rig = rig, .number = rig->actor_count++, .verdict = verdict, .key = key};
    return actor;
}

static void rig_run(struct rig *rig)
{
    struct worker *worker = worker_create();
    assert_non_null(worker);
    rig->begun = true;
    for (unsigned i = 0; i < SESSIONS; i++)
        tree_session_stats_reset(rig->sessions[i]);
    for (unsigned i = 0; i < rig->actor_count; i++)
        assert_int_equal(worker_spawn(worker, actor_main, &rig->actors[i]), 0);
    worker_run(worker);
    worker_destroy(worker);
    rig->begun = false;
}

static uint64_t combined(const struct rig *rig)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SESSIONS; i++)
        sum += tree_session_stats(rig->sessions[i])->combined;
    return sum;
}

static void expect_all(const struct rig *rig, int status)
{
    for (unsigned i = 0; i < rig->actor_count; i++)
        assert_int_equal(rig->actors[i].status, status);
}

/* ---- what the list carries ------------------------------------------------------------------------------
 */

/* One key: each sees what the one before it left, and one slot is written once. */
static void one_key(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t seen = 0;
    rig_open(&rig, 10, NO_TROUBLE);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, TREE_PUT, 1003);
    rig_run(&rig);
    expect_all(&rig, 0);
    for (unsigned i = 0; i < SESSIONS; i++)
        seen |= UINT64_C(1) << rig.actors[i].saw;
    assert_int_equal(seen, (1u << SESSIONS) - 1);
    assert_int_equal(value_at(&rig, 1003), SESSIONS);
    assert_int_equal(combined(&rig), OTHERS);
    assert_int_equal(rig.watched->lists, 2);
    assert_int_equal(rig.write_commands, 2); /* the slot and the unlock */
    assert_int_equal(rig.done_before_write, 0);
    rig_close(&rig);
}

/* Many keys: their buckets are read in one list more. */
static void many_keys(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, NO_TROUBLE);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, TREE_PUT, 1000 + i);
    rig_run(&rig);
    expect_all(&rig, 0);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(value_at(&rig, 1000 + i), i < SESSIONS);
    assert_int_equal(combined(&rig), OTHERS);
    assert_int_equal(rig.watched->lists, 3);
    assert_int_equal(rig.write_commands, SESSIONS + 1);
    rig_close(&rig);
}

/* A holder that only looks writes for the others. */
static void holder_keeps(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, NO_TROUBLE);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, i ? TREE_PUT : TREE_KEEP, 1003);
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(rig.actors[0].saw, 0);
    assert_int_equal(value_at(&rig, 1003), OTHERS);
    assert_int_equal(combined(&rig), OTHERS);
    rig_close(&rig);
}

/* Puts of many keys are left to the holder as one; and a holder of many does what waits for its buckets. */
static void many_are_left(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, NO_TROUBLE);
    actor_add(&rig, TREE_PUT, 1000);
    struct actor *actor = actor_add(&rig, TREE_PUT, 1002);
    actor->many = true;
    actor->count = 6;
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(combined(&rig), 6);
    assert_int_equal(tree_session_stats(rig.sessions[1])->cost.round_trips, 0);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(value_at(&rig, 1000 + i), i == 0 ? 1 : i >= 2 && i < 8 ? 100 : 0);
    rig_close(&rig);
}

static void many_hold(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, NO_TROUBLE);
    struct actor *actor = actor_add(&rig, TREE_PUT, 1002);
    actor->many = true;
    actor->count = 6;
    for (unsigned i = 0; i < 4; i++)
        actor_add(&rig, TREE_PUT, 1002 + i);
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(combined(&rig), 4);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(value_at(&rig, 1002 + i), i < 4 ? 101 : 100);
    rig_close(&rig);
}

/* ---- what it means for each ------------------------------------------------------------------------------
 */

static void nobody_knows(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, LOST_AFTER);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, i % 3 ? TREE_PUT : TREE_KEEP, 1003);
    rig.actors[0].verdict = TREE_PUT;
    rig_run(&rig);
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(rig.actors[i].status,
                         rig.actors[i].verdict == TREE_PUT ? BANYAN_EUNKNOWN : BANYAN_ENET);
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(tree_session_error(rig.sessions[i])->code, rig.actors[i].status);
    rig_close(&rig);
}

/* The holder changes nothing: others' unknown outcomes are not its own. */
static void holder_knows(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, LOST_AFTER);
    actor_add(&rig, TREE_KEEP, 1003);
    actor_add(&rig, TREE_PUT, 1003);
    rig_run(&rig);
    assert_int_equal(rig.actors[0].status, BANYAN_ENET);
    assert_int_equal(rig.actors[1].status, BANYAN_EUNKNOWN);
    rig_close(&rig);
}

static void all_begin_again(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, REFUSED);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, TREE_PUT, 1003);
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(value_at(&rig, 1003), SESSIONS);
    rig_close(&rig);
}

/* Those that begin after the loss are not in the list of one that began before it. */
static void not_over_a_loss(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, LOST_UNDER_LOCK);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, TREE_PUT, 1003)->late = true;
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(value_at(&rig, 1003), SESSIONS);
    rig_close(&rig);
}

/* The list is cut behind each of its commands: no key is twice in the leaf, and each is old or new. Slots are
 * free before and behind those of the keys that are deleted and put again. */
static void cut_at(uint16_t cut, unsigned stays, unsigned comes)
{
    struct rig rig;
    rig_open(&rig, 16, NO_TROUBLE);
    for (unsigned i = 0; i < 16; i += 2) {
        uint8_t key[8];
        key_of(1000 + i, key);
        assert_int_equal(tree_delete(rig.sessions[0], rig.tree, key, 8), 0);
    }
    rig.trouble = CUT;
    rig.cut = cut;
    if (cut % 2) { /* the holder's own slot is the one, or the other */
        actor_add(&rig, TREE_PUT, comes);
        actor_add(&rig, TREE_DELETE, stays);
    } else {
        actor_add(&rig, TREE_DELETE, stays);
        actor_add(&rig, TREE_PUT, comes);
    }
    actor_add(&rig, TREE_DELETE, comes);
    actor_add(&rig, TREE_PUT, stays);
    actor_add(&rig, TREE_PUT, comes);
    rig_run(&rig);
    for (unsigned i = 0; i < 16; i++) {
        uint64_t value = value_at(&rig, 1000 + i);
        assert_true(1000 + i == stays || value == (i % 2 ? 0 : UINT64_MAX));
    }
    rig_close(&rig);
}

static void cut_anywhere(void **state)
{
    (void)state;
    for (unsigned stays = 1001; stays < 1016; stays += 2)
        for (unsigned comes = 900; comes < 906; comes++)
            for (uint16_t cut = 0; cut < 4; cut++)
                cut_at(cut, stays, comes);
}

/* ---- what stays with its own task -------------------------------------------------------------------------
 */

/* A key that comes back gets the slot that it had, and a bucket's last entry goes by its own task. */
static void deleted_and_put_again(void **state)
{
    (void)state;
    for (unsigned keys = 1; keys < 40; keys += 3) {
        struct rig rig;
        rig_open(&rig, keys, NO_TROUBLE);
        actor_add(&rig, TREE_PUT, 1000);
        for (unsigned i = 1; i < SESSIONS; i++)
            actor_add(&rig, i % 2 ? TREE_DELETE : TREE_PUT, 1000 + (i - 1) / 2);
        rig_run(&rig);
        expect_all(&rig, 0);
        assert_int_equal(value_at(&rig, 1003), UINT64_MAX);
        for (unsigned i = 0; i < 3; i++) {
            uint64_t value = value_at(&rig, 1000 + i); /* in any order */
            assert_true(value == UINT64_MAX || value <= 2);
        }
        rig_close(&rig);
    }
}

/* New keys until leaves split, in buckets that fill up. */
static void leaves_fill_up(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 4, NO_TROUBLE);
    for (unsigned round = 0; round < 40; round++) {
        rig.held = rig.written = false;
        rig.actor_count = 0;
        for (unsigned i = 0; i < SESSIONS; i++)
            actor_add(&rig, TREE_PUT, 2000 + round * SESSIONS + i);
        rig_run(&rig);
        expect_all(&rig, 0);
    }
    for (unsigned i = 0; i < 40 * SESSIONS; i++)
        assert_int_equal(value_at(&rig, 2000 + i), 1);
    rig_close(&rig);
}

/* The other compute node has split the leaf: a key that lies in the sibling now waits for the old leaf. */
static void beyond_the_fence(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t value[2] = {7, 0};
    uint8_t key[8];
    rig_open(&rig, 20, NO_TROUBLE);
    for (unsigned i = 0; i < 200; i++) {
        key_of(1100 + i, key);
        assert_int_equal(tree_upsert(rig.other, rig.other_tree, key, 8, value, sizeof value), 0);
    }
    for (unsigned i = 1; i < 20; i++) { /* there is room in the old leaf */
        key_of(1000 + i, key);
        assert_int_equal(tree_delete(rig.other, rig.other_tree, key, 8), 0);
    }
    actor_add(&rig, TREE_PUT, 1000);
    for (unsigned i = 1; i < SESSIONS; i++)
        actor_add(&rig, TREE_PUT, 1100 + i * 20);
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(rig.done_before_write, 0); /* they waited for the leaf that the cache names */
    for (unsigned i = 1; i < SESSIONS; i++)
        assert_int_equal(value_at(&rig, 1100 + i * 20), 8);
    rig_close(&rig);
}

/* A function that must run on its own task does, and its task does the others' work all the same. */
static void here_only(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 10, NO_TROUBLE);
    for (unsigned i = 0; i < SESSIONS; i++)
        actor_add(&rig, TREE_PUT, 1003)->here = i % 2;
    rig_run(&rig);
    expect_all(&rig, 0);
    assert_int_equal(value_at(&rig, 1003), SESSIONS);
    assert_int_equal(combined(&rig), 3);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(holder_keeps),
        cmocka_unit_test(many_are_left),
        cmocka_unit_test(many_hold),
        cmocka_unit_test(nobody_knows),
        cmocka_unit_test(holder_knows),
        cmocka_unit_test(all_begin_again),
        cmocka_unit_test(not_over_a_loss),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(deleted_and_put_again),
        cmocka_unit_test(leaves_fill_up),
        cmocka_unit_test(beyond_the_fence),
        cmocka_unit_test(here_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
