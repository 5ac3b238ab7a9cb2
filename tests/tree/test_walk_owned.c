/*
 * test_walk_owned.c - W11, W12 (docs/internals/walks.md): a leaf of an owned range that a walk brings counts
 * as if it had been READ, and no more. Two tasks of one owner: while a walk of the first is under way,
 * between its reads and before its answer arrives, the second changes the leaf, splits it, has it merged,
 * unlinked and moved. The first must decide on the value that its key holds then, and cache what the pool
 * has.
 *
 * The local backend on one thread, whose memory nodes walk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "base/random.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "memory/request.h"
#include "memory/walk.h"
#include "tree/tree.h"
#include "wrapper.h"

#define KEYS  4000u
#define NODES 2u

struct walked {
    struct wrapper wrapper; /* first */
    struct memory_walker *walkers[NODES];
    void (*meddle)(void *context); /* NULL: nobody does */
    void *context;
    unsigned finds, brought; /* answered */
};

struct scene {
    struct memory_node *memory[NODES];
    struct walked *walked;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session, *other;
    struct tree *tree;
    struct random random;
    uint64_t values[KEYS];  /* 0: not there */
    unsigned touched[KEYS]; /* in which operation the other task changed it last */
    unsigned operation;
    /* of the operation under way */
    unsigned number;
    uint64_t held[64]; /* what its key held since it began */
    unsigned held_count;
    struct tree_merge_cursor merging;
    uint64_t last;    /* value that was written */
    uint64_t decided; /* what the key is to hold */
    unsigned meddled, spells;
};

/* ---- the fabric ---- */

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    return wrapper_pass(endpoint, list, list->count);
}

/* Whether no lock of a leaf is held while this is asked. */
static bool of_a_leaf(const struct memory_walk_request *request)
{
    return request->kind == MEMORY_WALK_FIND || (request->kind == MEMORY_WALK_FETCH && request->leaves);
}

static void between(void *context)
{
    struct walked *walked = context;
    walked->meddle(walked->context);
}

static void walked_call(struct walked *walked, struct fabric_call *call)
{
    const struct memory_walk_request *request = call->request;
    const bool meddles = walked->meddle && of_a_leaf(request);
    struct memory_walker *walker = walked->walkers[call->node];
    memory_walker_between(walker, meddles ? between : NULL, walked);
    call->status =
        memory_walk(walker, call->request, call->length, call->reply, call->capacity, &call->reply_length);
    memory_walker_between(walker, NULL, NULL);
    walked->finds += request->kind == MEMORY_WALK_FIND;
    walked->brought += request->kind == MEMORY_WALK_FETCH && request->leaves;
    if (meddles)
        walked->meddle(walked->context); /* the answer is on its way */
}

static void walked_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        walked_call((struct walked *)endpoint->fabric, calls[i]);
}

static const struct fabric_ops walked_ops = {
    .execute = wrapper_execute,
    .call = wrapper_call,
    .calls = walked_calls,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
};

/* ---- an owner ---- */

static void compute_open(struct scene *scene, const char *settings, int walks)
{
    const struct fabric_target *targets[NODES];
    struct tree_switches switches = {0};
    struct error error = {0};
    for (unsigned i = 0; i < NODES; i++)
        targets[i] = memory_node_target(scene->memory[i]);
    scene->walked = calloc(1, sizeof *scene->walked);
    assert_non_null(scene->walked);
    wrapper_init(&scene->walked->wrapper, &walked_ops, run_list,
                 fabric_local_create(targets, NODES, 1, &error));
    for (unsigned i = 0; i < NODES; i++)
        assert_non_null(scene->walked->walkers[i] = memory_walker_create(scene->memory[i]));
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    assert_int_equal(option_set_list(tree_switches_table, &switches, settings, &error), 0);
    switches.cache_bytes = 64 << 10;
    switches.walks = walks;
    switches.ownership = TREE_OWNERSHIP_ALL;
    assert_int_equal(tree_compute_create(&scene->compute, &scene->walked->wrapper.fabric, &switches, &error),
                     0);
    assert_int_equal(pool_worker_create(&scene->worker, tree_compute_pool(scene->compute), &error), 0);
    assert_int_equal(tree_session_create(&scene->session, scene->compute, scene->worker, &error), 0);
    assert_int_equal(tree_session_create(&scene->other, scene->compute, scene->worker, &error), 0);
}

static void compute_close(struct scene *scene)
{
    tree_close(scene->tree);
    tree_session_destroy(scene->session);
    tree_session_destroy(scene->other);
    pool_worker_destroy(scene->worker);
    tree_compute_destroy(scene->compute);
    for (unsigned i = 0; i < NODES; i++)
        memory_walker_destroy(scene->walked->walkers[i]);
    fabric_close(&scene->walked->wrapper.fabric);
}

/* Keys in a row lie in one leaf. */
static void key_make(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number * 7919 >> (56 - 8 * i));
}

static void put(struct scene *scene, struct tree_session *session, unsigned number)
{
    uint8_t key[8];
    const uint64_t value = ++scene->last;
    key_make(number, key);
    assert_int_equal(tree_upsert(session, scene->tree, key, 8, &value, 8), 0);
    scene->values[number] = value;
}

/* An index of which every other key is there, and an owner of it that has cached nothing. */
static void scene_open(struct scene *scene, const char *settings, uint8_t subtree_levels, int walks)
{
    const struct format_geometry geometry = {.key_bytes = 8,
                                             .value_bytes = 8,
                                             .leaf_bytes = 512,
                                             .internal_bytes = 512,
                                             .subtree_levels = subtree_levels};
    struct error error = {0};
    memset(scene, 0, sizeof *scene);
    random_seed(&scene->random, 11);
    for (uint16_t i = 0; i < NODES; i++) {
        const struct memory_options options = {.node = i, .pool_bytes = 16 << 20, .chunk_bytes = 64 << 10};
        assert_int_equal(memory_node_create(&scene->memory[i], &options, &error), 0);
    }
    compute_open(scene, settings, TREE_WALKS_NEVER);
    assert_int_equal(tree_format(scene->session), 0);
    assert_int_equal(tree_create(scene->session, "owned", &geometry, &scene->tree), 0);
    for (unsigned i = 0; i < KEYS; i += 2)
        put(scene, scene->session, i * 1543 % KEYS);
    compute_close(scene);
    compute_open(scene, settings, walks);
    assert_int_equal(tree_open(scene->session, "owned", &scene->tree), 0);
}

static void scene_close(struct scene *scene)
{
    compute_close(scene);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(scene->memory[i]);
}

/* ---- the other task ---- */

static void note(struct scene *scene)
{
    if (scene->held_count < sizeof scene->held / sizeof *scene->held)
        scene->held[scene->held_count++] = scene->values[scene->number];
}

static void meddle_change(struct scene *scene, unsigned number)
{
    uint8_t key[8];
    scene->touched[number] = scene->operation;
    key_make(number, key);
    /* In spells of growing and of shrinking, so that leaves split, and die. */
    if (random_chance(&scene->random, scene->spells / 3000 % 2 ? 0.2 : 0.8)) {
        put(scene, scene->other, number);
    } else {
        const int status = tree_delete(scene->other, scene->tree, key, 8);
        assert_int_equal(status, scene->values[number] ? 0 : BANYAN_ENOTFOUND);
        scene->values[number] = 0;
    }
    if (number == scene->number)
        note(scene);
}

static void meddle_look(struct scene *scene, unsigned number)
{
    uint8_t key[8];
    uint64_t value = 0;
    size_t length = sizeof value;
    key_make(number, key);
    const int status = tree_lookup(scene->other, scene->tree, key, 8, &value, &length);
    assert_int_equal(status, scene->values[number] ? 0 : BANYAN_ENOTFOUND);
    assert_int_equal(status ? 0 : value, scene->values[number]);
}

static void meddle(void *context)
{
    struct scene *scene = context;
    void (*meddles)(void *) = scene->walked->meddle;
    if (!random_chance(&scene->random, 0.3))
        return;
    scene->walked->meddle = NULL; /* the other task's own walks */
    scene->meddled++;
    scene->spells++;
    const unsigned count = 1 + (unsigned)random_below(&scene->random, 25);
    for (unsigned i = 0; i < count; i++) {
        const unsigned at = (scene->number + KEYS - 12 + (unsigned)random_below(&scene->random, 25)) % KEYS;
        meddle_change(scene, random_chance(&scene->random, 0.2) ? scene->number : at);
    }
    if (random_chance(&scene->random, 0.5))
        meddle_look(scene, scene->number); /* so it is cached by the other task, as it is now */
    if (random_chance(&scene->random, 0.2)) {
        struct tree_merge_report report;
        assert_int_equal(tree_merge_step(scene->other, scene->tree, &scene->merging, 8, &report), 0);
    }
    if (random_chance(&scene->random, 0.1)) {
        uint8_t key[8];
        struct tree_move move = {.key = key,
                                 .key_length = 8,
                                 .level = (uint8_t)random_below(&scene->random, 2),
                                 .from = POOL_ANY_NODE,
                                 .to = (uint16_t)random_below(&scene->random, NODES)};
        key_make(scene->number, key);
        assert_int_equal(tree_move_node(scene->other, scene->tree, &move), 0);
    }
    scene->walked->meddle = meddles;
}

/* ---- the task whose walks it meets ---- */

static bool was_held(const struct scene *scene, uint64_t value)
{
    for (unsigned i = 0; i < scene->held_count; i++)
        if (scene->held[i] == value)
            return true;
    return false;
}

static void look(struct scene *scene)
{
    uint8_t key[8];
    uint64_t value = 0;
    size_t length = sizeof value;
    key_make(scene->number, key);
    const int status = tree_lookup(scene->session, scene->tree, key, 8, &value, &length);
    assert_true(!status || status == BANYAN_ENOTFOUND);
    if (!was_held(scene, status ? 0 : value))
        fail_msg("key %u: %" PRIu64 " was not held since the lookup began, now %" PRIu64, scene->number,
                 status ? 0 : value, scene->values[scene->number]);
}

/* Runs with the leaf's lock held, more than once if the leaf has to be found again: it must be told the value
 * that the key holds now. */
static enum tree_verdict decide(void *context, const void *old, size_t old_length, void *value,
                                size_t *length)
{
    struct scene *scene = context;
    uint64_t held = 0;
    if (old) {
        assert_int_equal(old_length, 8);
        memcpy(&held, old, 8);
    }
    if (held != scene->values[scene->number])
        fail_msg("key %u: the change was told %" PRIu64 ", but it holds %" PRIu64, scene->number, held,
                 scene->values[scene->number]);
    const double chance = random_unit(&scene->random);
    scene->decided = held;
    if (chance < 0.1)
        return TREE_KEEP;
    scene->decided = 0;
    if (chance < 0.35)
        return TREE_DELETE;
    scene->decided = ++scene->last;
    memcpy(value, &scene->last, 8);
    *length = 8;
    return TREE_PUT;
}

static void change(struct scene *scene)
{
    uint8_t key[8];
    key_make(scene->number, key);
    assert_int_equal(tree_modify(scene->session, scene->tree, key, 8, decide, scene), 0);
    scene->values[scene->number] = scene->decided;
}

#define SCANNED 12u

struct scanned {
    struct scene *scene;
    uint64_t values[SCANNED];
    unsigned from;
};

static unsigned key_number(const uint8_t *key)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < 8; i++)
        number = number << 8 | key[i];
    return (unsigned)(number / 7919);
}

static bool see(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scanned *scanned = context;
    const unsigned number = key_number(key);
    assert_true(key_length == 8 && length == 8);
    assert_true(number >= scanned->from && number < scanned->from + SCANNED);
    assert_int_equal(scanned->values[number - scanned->from], 0);
    memcpy(&scanned->values[number - scanned->from], value, 8);
    return true;
}

/* Every key of the range that nobody has changed meanwhile comes as it is. */
static void scan(struct scene *scene)
{
    const unsigned from = scene->number < KEYS - SCANNED ? scene->number : KEYS - SCANNED;
    struct scanned scanned = {.scene = scene, .from = from};
    uint8_t lower[8], upper[8];
    key_make(from, lower);
    key_make(from + SCANNED, upper);
    const struct tree_range range = {.from = lower,
                                     .from_length = 8,
                                     .to = upper,
                                     .to_length = 8,
                                     .to_open = true,
                                     .limit = SCANNED, /* so that few leaves are asked for */
                                     .reverse = random_chance(&scene->random, 0.5)};
    assert_int_equal(tree_scan(scene->session, scene->tree, &range, see, &scanned), 0);
    for (unsigned i = 0; i < SCANNED; i++)
        if (scene->touched[from + i] != scene->operation && scanned.values[i] != scene->values[from + i])
            fail_msg("key %u: %" PRIu64 " was scanned, it holds %" PRIu64, from + i, scanned.values[i],
                     scene->values[from + i]);
}

/* What the walk's end has left in the cache, if anything. */
static void look_again(struct scene *scene, unsigned number)
{
    scene->number = number;
    scene->held_count = 0;
    note(scene);
    look(scene);
}

static void all_of_it(struct scene *scene)
{
    for (unsigned i = 0; i < KEYS; i++)
        look_again(scene, i);
    struct tree_check_report report;
    assert_int_equal(tree_check(scene->session, scene->tree, &report, NULL, NULL), 0);
}

static void meddled(const char *settings)
{
    struct scene *scene = malloc(sizeof *scene);
    assert_non_null(scene);
    scene_open(scene, settings, 2, TREE_WALKS_ALWAYS);
    scene->walked->context = scene;
    for (unsigned round = 0; round < 6000; round++) {
        const unsigned number = (unsigned)random_below(&scene->random, KEYS);
        const double chance = random_unit(&scene->random);
        scene->number = number;
        scene->held_count = 0;
        scene->operation++;
        note(scene);
        scene->walked->meddle = meddle;
        if (chance < 0.4)
            look(scene);
        else if (chance < 0.85)
            change(scene);
        else
            scan(scene);
        scene->walked->meddle = NULL;
        look_again(scene, number);
        look_again(scene, (number + (unsigned)random_below(&scene->random, 8)) % KEYS);
    }
    print_message("%s: %u keys found by walks, %u leaves brought, %u times meddled with\n", settings,
                  scene->walked->finds, scene->walked->brought, scene->meddled);
    assert_true(scene->walked->brought > 300);
    assert_true(scene->meddled > 1000);
    all_of_it(scene);
    scene_close(scene);
    free(scene);
}

static void others_change_the_leaf_meanwhile(void **state)
{
    (void)state;
    meddled("cache-policy=dex,admission=1,cache-lowest=28");
    meddled("cache-policy=dinomo,cache-lowest=28");
    meddled("cache-policy=banyan,cache-lowest=28");
    meddled("cache-policy=banyan,cache-lowest=2");
    meddled("cache-policy=dex,admission=0.5,write-unit=node,read-unit=leaf,node-check=on,cache-lowest=28");
}

/* ---- what it costs ---- */

static uint64_t trips(struct scene *scene)
{
    return tree_session_stats(scene->session)->cost.round_trips;
}

static int do_lookup(struct scene *scene, const uint8_t key[8])
{
    uint64_t value;
    size_t length = sizeof value;
    return tree_lookup(scene->session, scene->tree, key, 8, &value, &length);
}

static int do_update(struct scene *scene, const uint8_t key[8])
{
    const uint64_t value = 7;
    return tree_update(scene->session, scene->tree, key, 8, &value, 8);
}

static int do_upsert(struct scene *scene, const uint8_t key[8])
{
    const uint64_t value = 8;
    return tree_upsert(scene->session, scene->tree, key, 8, &value, 8);
}

static bool see_one(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    ++*(unsigned *)context;
    return true;
}

static int do_scan(struct scene *scene, const uint8_t key[8])
{
    const struct tree_range range = {.from = key, .from_length = 8, .limit = 10};
    unsigned seen = 0;
    const int status = tree_scan(scene->session, scene->tree, &range, see_one, &seen);
    assert_true(status || seen > 0);
    return status;
}

static int do_delete(struct scene *scene, const uint8_t key[8])
{
    return tree_delete(scene->session, scene->tree, key, 8);
}

/* A round trip for the way and the leaf, and one for what is written; without walks one for each level. */
static void one_round_trip_for_way_and_leaf(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int (*run)(struct scene *scene, const uint8_t key[8]);
        uint64_t walked, read;
        bool more; /* some need more: a scan that goes on where another inner node begins */
    } operations[] = {
        {"lookup", do_lookup, 1, 3, false}, {"update", do_update, 2, 4, false},
        {"upsert", do_upsert, 2, 4, false}, {"delete", do_delete, 2, 4, false},
        {"scan", do_scan, 1, 3, true},
    };
    for (unsigned i = 0; i < sizeof operations / sizeof *operations; i++)
        for (int walks = TREE_WALKS_NEVER; walks <= TREE_WALKS_ALWAYS;
             walks += TREE_WALKS_ALWAYS - TREE_WALKS_NEVER) {
            struct scene *scene = malloc(sizeof *scene);
            uint8_t key[8];
            assert_non_null(scene);
            scene_open(scene, "cache-policy=dex,admission=0,cache-lowest=28", 4, walks);
            key_make(0, key);
            assert_int_equal(do_lookup(scene, key), 0); /* the root is known from here on */
            const uint64_t before = trips(scene);
            unsigned count = 0;
            for (unsigned number = 40; number < KEYS; number += 40) {
                if (!scene->values[number])
                    continue;
                key_make(number, key);
                assert_int_equal(operations[i].run(scene, key), 0);
                count++;
            }
            print_message("%u %ss: %" PRIu64 " round trips\n", count, operations[i].name,
                          trips(scene) - before);
            assert_true(count > 30);
            const uint64_t least = count * (walks ? operations[i].walked : operations[i].read);
            assert_in_range(trips(scene) - before, least, operations[i].more ? least * 6 / 5 : least);
            scene_close(scene);
            free(scene);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_round_trip_for_way_and_leaf),
        cmocka_unit_test(others_change_the_leaf_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
