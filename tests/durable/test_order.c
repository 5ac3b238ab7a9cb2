/*
 * test_order.c - values that come with their marks, and values that a pass reads, in one journal (rule K8):
 * of each key the last entry is the newest change, whichever of the two it came by. The sessions of one
 * thread change keys between the calls of the keeper, and where it rests in the middle of a pass.
 */
#include "keys.h"

#include <string.h>

#include "base/error.h"
#include "base/task.h"
#include "disk/disk_simulated.h"
#include "durable/keeper.h"
#include "persist/format.h"

#define CLUSTER 7u
#define NAMES   600u /* more than a pass sifts without a rest */

struct scene {
    struct task task; /* first */
    struct keys keys;
    struct disk *disk;
    struct manifest manifest;
    struct journal *journal;
    struct feed *feed;
    struct keeper *keeper;
    struct feed_writer writers[2];
    struct store_session *sessions[2], *silent; /* each with a lane of its own; nothing hears of `silent` */
    void (*rest)(struct scene *scene);          /* where the pass rests next; NULL: nothing happens */
    const char *key;                            /* that the journal's reader looks for */
    char last[16];                              /* its value there */
    unsigned entries;                           /* of it */
};

static void scene_yield(struct task *task)
{
    struct scene *scene = (struct scene *)task;
    void (*rest)(struct scene * scene) = scene->rest;
    scene->rest = NULL;
    if (rest)
        rest(scene);
}

static uint64_t scene_now(struct task *task)
{
    (void)task;
    return 1;
}

static const struct task_ops scene_ops = {.yield = scene_yield, .now = scene_now};

static void journal_start(struct scene *scene, struct journal_reader *reader)
{
    struct error error = {0};
    keys_good(journal_open(&scene->journal, scene->disk,
                           &(struct journal_options){.cluster = CLUSTER, .seed = 1}, reader, &error),
              &error);
}

/* limit: of the keeper's directory; 0: none. */
static void scene_open(struct scene *scene, uint64_t limit)
{
    struct error error = {0};
    struct manifest first = {.cluster = CLUSTER, .nodes = 1};
    struct journal_reader nothing = {.visit = NULL};
    memset(scene, 0, sizeof *scene);
    scene->task.ops = &scene_ops;
    keys_open(&scene->keys, 1, 2);
    for (unsigned i = 0; i < 2; i++)
        scene->sessions[i] = scene->keys.live->sessions[i];
    scene->silent = scene->keys.live->sessions[2];
    scene->disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 1});
    assert_non_null(scene->disk);
    keys_good(manifest_replace(scene->disk, NULL, &first, &error), &error);
    keys_good(manifest_open(scene->disk, CLUSTER, 0, 1, &scene->manifest, &error), &error);
    journal_start(scene, &nothing);
    keys_good(feed_create(&scene->feed, &(struct feed_options){.lanes = 2}, &error), &error);
    const struct keeper_parts parts = {.disk = scene->disk,
                                       .journal = scene->journal,
                                       .manifest = &scene->manifest,
                                       .feed = scene->feed,
                                       .limit = limit};
    keys_good(keeper_create(&scene->keeper, &parts, &error), &error);
    for (unsigned i = 0; i < 2; i++) {
        scene->writers[i] = (struct feed_writer){.feed = scene->feed, .lane = i};
        store_session_set_changed(scene->sessions[i], feed_mark, &scene->writers[i]);
        store_session_set_placed(scene->sessions[i], feed_mark_value);
    }
    store_session_set_changed(scene->silent, NULL, NULL);
    store_session_set_placed(scene->silent, NULL);
    task_set_self(&scene->task);
    feed_lead_keeper(scene->feed);
}

static void scene_close(struct scene *scene)
{
    task_set_self(NULL);
    keeper_destroy(scene->keeper);
    feed_destroy(scene->feed);
    journal_close(scene->journal);
    manifest_free(&scene->manifest);
    disk_close(scene->disk);
    keys_close(&scene->keys);
}

static void put(struct scene *scene, struct store_session *session, const char *key, const char *value)
{
    (void)scene;
    keys_check(session, store_put(session, key, strlen(key), value, strlen(value), 0));
}

static int pass(struct scene *scene)
{
    struct error error = {0};
    return keeper_pass(scene->keeper, scene->keys.live->reader, &error);
}

static int visit(void *context, const struct journal_record *record, struct error *error)
{
    struct scene *scene = context;
    struct persist_value value;
    uint32_t at = 0;
    (void)error;
    assert_int_equal(record->kind, PERSIST_VALUES);
    while (persist_value_next(record->bytes, record->length, &at, &value) == 1) {
        if (value.key.length != strlen(scene->key) ||
            memcmp(value.key.bytes, scene->key, value.key.length) != 0)
            continue;
        assert_true(value.length < sizeof scene->last && !value.deleted);
        memcpy(scene->last, value.bytes, value.length);
        scene->last[value.length] = 0;
        scene->entries++;
    }
    return 0;
}

/* The journal of a process that is killed here: of the key it has so many entries, and the last is this. */
static void holds(struct scene *scene, const char *key, unsigned entries, const char *value)
{
    struct disk *left = disk_simulated_killed(scene->disk);
    struct journal *journal;
    struct error error = {0};
    struct journal_reader reader = {.visit = visit, .context = scene};
    assert_non_null(left);
    scene->key = key;
    scene->entries = 0;
    scene->last[0] = 0;
    keys_good(journal_open(&journal, left, &(struct journal_options){.cluster = CLUSTER, .seed = 2}, &reader,
                           &error),
              &error);
    assert_string_equal(scene->last, value);
    assert_int_equal(scene->entries, entries);
    journal_close(journal);
    disk_close(left);
}

/* A pass makes no read of what came with its value: it is the last one, and the store's later one is not
 * there. Nor does a key that was marked twice have two entries. */
static void test_values(void **state)
{
    static struct scene scene;
    (void)state;
    scene_open(&scene, 0);
    put(&scene, scene.silent, "a", "there"); /* so that it is changed in place */
    put(&scene, scene.sessions[0], "a", "one");
    put(&scene, scene.sessions[0], "a", "two");
    put(&scene, scene.silent, "a", "unmarked");
    assert_int_equal(pass(&scene), 0);
    holds(&scene, "a", 1, "two");
    feed_mark(&scene.writers[0], "a", 1); /* behind a value: the name counts */
    put(&scene, scene.sessions[0], "a", "three");
    feed_mark(&scene.writers[0], "a", 1);
    put(&scene, scene.silent, "a", "four");
    assert_int_equal(pass(&scene), 0);
    holds(&scene, "a", 2, "four");
    scene_close(&scene);
}

/* Marks of several lanes say nothing of which came first. */
static void test_lanes(void **state)
{
    static struct scene scene;
    (void)state;
    scene_open(&scene, 0);
    put(&scene, scene.silent, "a", "there");
    put(&scene, scene.silent, "b", "there");
    put(&scene, scene.sessions[1], "a", "first");
    put(&scene, scene.sessions[0], "a", "second");
    put(&scene, scene.sessions[0], "b", "first");
    put(&scene, scene.sessions[1], "b", "second");
    put(&scene, scene.sessions[1], "b", "third");
    assert_int_equal(pass(&scene), 0);
    holds(&scene, "a", 1, "second");
    holds(&scene, "b", 1, "third");
    scene_close(&scene);
}

static void put_and_go_on(struct scene *scene)
{
    put(scene, scene->sessions[0], "a", "first"); /* its mark has the value, and is the next pass's */
    put(scene, scene->silent, "a", "second");     /* as by a task that has not marked it yet */
}

static void names(struct scene *scene)
{
    for (unsigned i = 0; i < NAMES; i++) {
        uint8_t name[2] = {(uint8_t)(i >> 8), (uint8_t)i};
        feed_mark(&scene->writers[0], name, sizeof name);
    }
}

/* A pass that reads meets a change that is newer than a value which the next pass has. */
static void test_doubt(void **state)
{
    static struct scene scene;
    (void)state;
    scene_open(&scene, 0);
    put(&scene, scene.silent, "a", "there");
    feed_mark(&scene.writers[0], "a", 1);
    names(&scene);
    scene.rest = put_and_go_on;
    assert_int_equal(pass(&scene), 0);
    assert_null(scene.rest);
    holds(&scene, "a", 1, "second");
    assert_int_equal(pass(&scene), 0);
    holds(&scene, "a", 2, "second");
    put(&scene, scene.sessions[0], "a", "third"); /* no pass reads meanwhile: no doubt any more */
    put(&scene, scene.silent, "a", "unmarked");
    assert_int_equal(pass(&scene), 0);
    holds(&scene, "a", 3, "third");
    scene_close(&scene);
}

/* A disk without room: what the pass had, with values and without, goes with the next one, as it is by then.
 */
static void test_room(void **state)
{
    static struct scene scene;
    (void)state;
    scene_open(&scene, 0);
    put(&scene, scene.silent, "a", "there");
    put(&scene, scene.silent, "b", "there");
    put(&scene, scene.sessions[0], "a", "first");
    feed_mark(&scene.writers[1], "b", 1);
    scene.manifest.position = 0;
    disk_simulated_capacity(scene.disk, 1);
    assert_int_equal(pass(&scene), BANYAN_ENOSPC);
    put(&scene, scene.sessions[0], "a", "second");
    disk_simulated_capacity(scene.disk, 0);
    assert_int_equal(pass(&scene), 0);
    holds(&scene, "a", 2, "second");
    assert_int_equal(feed_error(scene.feed, NULL), 0);
    scene_close(&scene);
}

/* The journal may not grow: what came with its value is kept too, until it may. */
static void test_limit(void **state)
{
    static struct scene scene;
    struct error error = {0};
    (void)state;
    scene_open(&scene, 32); /* less than two of the shortest records */
    put(&scene, scene.silent, "a", "there");
    put(&scene, scene.silent, "b", "there");
    put(&scene, scene.sessions[0], "a", "first");
    put(&scene, scene.sessions[1], "b", "second");
    assert_int_equal(pass(&scene), BANYAN_EBUSY);
    holds(&scene, "a", 0, "");
    assert_int_equal(keeper_pass_beyond(scene.keeper, scene.keys.live->reader, &error), 0);
    holds(&scene, "a", 1, "first");
    holds(&scene, "b", 1, "second");
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_lanes),
                                       cmocka_unit_test(test_doubt), cmocka_unit_test(test_room),
                                       cmocka_unit_test(test_limit)};
    return cmocka_run_group_tests_name("the order of values in the journal", tests, NULL, NULL);
}
