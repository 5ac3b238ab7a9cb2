/* test_scan_in_place.c - scans of leaves that are mapped here and owned: whatever has changed since the
 * leaves were asked to keep their order, what comes is what a plain list of the keys says; and where a leaf
 * keeps it, and where nothing may be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "swarm/world.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"

#define KEYS   600u
#define ROUNDS 400u

static void run(const struct format_geometry *geometry, void (*function)(struct world_task *task))
{
    struct world world;
    struct world_options options;
    world_options_default(&options);
    options.owned = true;
    options.geometry = *geometry;
    int status = world_create(&world, &options);
    status = status ? status : world_run_one(&world, 0, function);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* ---- against a list ---- */

struct model {
    bool there[KEYS];
    uint8_t salt[KEYS]; /* from which the value follows */
};

static void change(struct world_task *task, struct random *random, struct model *model)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    const uint64_t number = random_below(random, KEYS);
    const size_t length = world_key(task->world, number, key);
    if (model->there[number] && random_below(random, 2)) {
        assert_int_equal(tree_delete(task->session, task->tree, key, length), 0);
        model->there[number] = false;
        return;
    }
    model->there[number] = true;
    model->salt[number] = (uint8_t)random_next(random);
    const size_t value_length = world_value(task->world, model->salt[number], value);
    assert_int_equal(tree_upsert(task->session, task->tree, key, length, value, value_length), 0);
}

struct expectation {
    const struct world_task *task;
    const struct model *model;
    uint64_t next; /* number of the key that may come next */
    bool reverse;
    uint64_t refused_at; /* this many come, and the last of them is refused */
    uint64_t came;
};

/* The next number, from `next` on, that is there; KEYS: none. */
static uint64_t expected(const struct expectation *expectation)
{
    uint64_t number = expectation->next;
    while (number < KEYS && !expectation->model->there[number])
        number += expectation->reverse ? UINT64_MAX : 1; /* below 0 lies UINT64_MAX */
    return number < KEYS ? number : KEYS;
}

static bool visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct expectation *expectation = context;
    uint8_t wanted[FORMAT_VALUE_MAX];
    const uint64_t number = expected(expectation);
    assert_true(number < KEYS);
    assert_true(world_key_number(expectation->task->world, key, key_length) == number);
    assert_int_equal(length, world_value(expectation->task->world, expectation->model->salt[number], wanted));
    assert_memory_equal(value, wanted, length);
    expectation->next = number + (expectation->reverse ? UINT64_MAX : 1);
    return ++expectation->came != expectation->refused_at;
}

/* A scan of any range, either way, with a limit or without. */
static void scan(struct world_task *task, struct random *random, const struct model *model)
{
    uint8_t from[FORMAT_KEY_MAX], to[FORMAT_KEY_MAX];
    uint64_t low = random_below(random, KEYS), high = low + random_below(random, KEYS - low);
    struct tree_range range = {.from_length = world_key(task->world, low, from),
                               .to_length = world_key(task->world, high, to),
                               .reverse = random_below(random, 2),
                               .limit = random_below(random, 3) ? 1 + random_below(random, 60) : 0,
                               .from_open = random_below(random, 2),
                               .to_open = random_below(random, 2)};
    range.from = random_below(random, 4) ? from : NULL;
    range.to = random_below(random, 4) ? to : NULL;
    low = range.from ? low + range.from_open : 0;
    uint64_t end = range.to ? high + !range.to_open : KEYS; /* behind the last */
    struct expectation expectation = {.task = task,
                                      .model = model,
                                      .reverse = range.reverse,
                                      .next = range.reverse ? end - 1 : low,
                                      .refused_at =
                                          random_below(random, 4) ? 0 : 1 + random_below(random, 9)};
    assert_int_equal(tree_scan(task->session, task->tree, &range, visit, &expectation), 0);
    const bool full = range.limit && expectation.came == range.limit;
    const uint64_t next = expected(&expectation);
    assert_true(!range.limit || expectation.came <= range.limit);
    if (!full && !(expectation.refused_at && expectation.came == expectation.refused_at))
        assert_true(next == KEYS || (range.reverse ? next < low : next >= end));
}

static void scans_agree(struct world_task *task)
{
    const uint64_t seed = random_entropy();
    struct random random;
    struct model model = {0};
    random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned round = 0; round < ROUNDS; round++) {
        /* More at the beginning; then so few that most leaves keep their order. */
        for (uint64_t i = round < 20 ? 40 : random_below(&random, 4); i; i--)
            change(task, &random, &model);
        for (unsigned i = 0; i < 5; i++)
            scan(task, &random, &model);
    }
}

static void what_comes_is_what_is_there(void **state)
{
    static const uint8_t lengths[][2] = {{8, 8}, {12, 4}, {8, 5}};
    (void)state;
    run(&(struct format_geometry){.leaf_bytes = 4096,
                                  .internal_bytes = 4096,
                                  .key_kind = FORMAT_KEY_FIXED,
                                  .key_bytes = FORMAT_KEY_MAX, /* with the longest header */
                                  .value_bytes = 8},
        scans_agree);
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (uint32_t bytes = 512; bytes <= 2048; bytes *= 2)
            run(&(struct format_geometry){.leaf_bytes = bytes,
                                          .key_kind = FORMAT_KEY_FIXED,
                                          .key_bytes = lengths[i][0],
                                          .value_bytes = lengths[i][1]},
                scans_agree);
}

/* ---- what a leaf keeps ---- */

static bool pass(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    (void)context, (void)key, (void)key_length, (void)value, (void)length;
    return true;
}

static void scan_all(struct world_task *task)
{
    assert_int_equal(tree_scan(task->session, task->tree, &(struct tree_range){0}, pass, NULL), 0);
}

/* The operation under way on the leaf of a key, and that leaf's own bytes. */
struct scene {
    struct tree_path path;
    uint8_t *bytes;
};

static void scene_enter(struct world_task *task, uint64_t number, struct scene *scene)
{
    struct tree_session *session = task->session;
    struct tree_spot spot;
    uint8_t key[FORMAT_KEY_MAX];
    const struct format_key sought = {key, (uint32_t)world_key(task->world, number, key)};
    assert_int_equal(tree_begin(session, task->tree), 0);
    assert_int_equal(tree_rights_enter(session, task->tree, sought), TREE_OWNED);
    assert_int_equal(tree_locate(session, task->tree, sought, false, 0, &scene->path), 0);
    assert_true(session->access->find(session, task->tree, scene->path.link.address, false, &spot));
    scene->bytes = spot.bytes;
}

static void fill(struct world_task *task)
{
    struct model model = {0};
    struct random random;
    random_seed(&random, 1);
    for (unsigned i = 0; i < 400; i++)
        change(task, &random, &model);
}

static void leaves_keep(struct world_task *task)
{
    const struct format_layout *layout = &task->tree->layout;
    struct scene scene;
    uint8_t numbers[FORMAT_SIFTED_MAX], before[4096];
    struct tree_hold hold = {0};
    assert_true(format_layout_keeps_order(layout));
    assert_in_range(layout->geometry.leaf_bytes, 1, sizeof before);
    fill(task);
    scene_enter(task, KEYS / 2, &scene);
    const uint32_t used = layout->used_bytes, rest = layout->geometry.leaf_bytes - used;
    uint8_t *kept = scene.bytes + used;
    memset(kept, 0, rest);
    tree_rights_leave(task->session);
    /* The first scan has it written, and nothing else; what another one finds it leaves alone. */
    memcpy(before, scene.bytes, layout->geometry.leaf_bytes);
    scan_all(task);
    assert_memory_equal(scene.bytes, before, used);
    assert_memory_not_equal(kept, before + used, rest);
    memcpy(numbers, kept, layout->slots);
    scan_all(task);
    assert_memory_equal(kept, numbers, layout->slots);
    uint64_t last = 0, seen = 0;
    for (uint32_t i = 0; i < layout->slots && (!i || numbers[i]); i++, seen++) {
        uint64_t head;
        memcpy(&head, scene.bytes + layout->slot_offset[numbers[i]] + 4, sizeof head);
        head = __builtin_bswap64(head);
        assert_true(!i || head > last);
        last = head;
    }
    assert_true(seen > 2);
    /* Not in a leaf whose lock a task holds, nor in one that is not the link's. */
    scene_enter(task, KEYS / 2, &scene);
    struct tree_session *session = task->session;
    memset(numbers, 1, sizeof numbers);
    memcpy(before, scene.bytes, layout->geometry.leaf_bytes);
    assert_true(tree_lock_try_local(session, scene.path.link.address, true, &hold));
    session->access->keep_order(session, task->tree, scene.path.link, numbers, layout->slots);
    assert_memory_equal(scene.bytes, before, layout->geometry.leaf_bytes);
    tree_lock_abandon_local(session, &hold);
    struct format_link other = scene.path.link;
    other.tag++;
    session->access->keep_order(session, task->tree, other, numbers, layout->slots);
    assert_memory_equal(scene.bytes, before, layout->geometry.leaf_bytes);
    session->access->keep_order(session, task->tree, scene.path.link, numbers, layout->slots);
    assert_memory_equal(kept, numbers, layout->slots);
    assert_memory_equal(scene.bytes, before, used);
    tree_rights_leave(session);
}

static void a_leaf_keeps_its_order(void **state)
{
    (void)state;
    run(
        &(struct format_geometry){
            .leaf_bytes = 1024, .key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8},
        leaves_keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_is_what_is_there),
        cmocka_unit_test(a_leaf_keeps_its_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
