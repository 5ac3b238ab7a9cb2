/*
 * test_threads.c - level disk as a server has it, on real threads and in a real directory: two threads change
 * keys while the keeper, or one of them (K7), passes and another one writes checkpoints. What was waited for
 * is there after an end without a last pass, and all is after an end in order; pools are filled from it and
 * go on. What the disk was not told comes with a whole checkpoint (K5); a loading that was begun is begun
 * again (K6). For the thread sanitizer too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/task.h"
#include "base/thread.h"
#include "durable/durable.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "pool/pool.h"

#define CLUSTER   99u
#define WRITERS   2u
#define KEYS      120u
#define STEPS     1500u
#define VALUE_MAX (90u << 10)

static char folder[64], path[128];

/* ---- pools of this process ---- */

struct hand { /* of one thread */
    struct pool_worker *worker;
    struct tree_session *tree;
    struct store_session *session;
};

struct home {
    struct memory_node *memory;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct store *store;
    struct hand hand;
    struct durable *durable;
};

static void good(int status, const struct error *error)
{
    if (status)
        fail_msg("%s: %s", error_name(status), error->text);
}

static void hand_open(struct home *home, struct hand *hand)
{
    struct error error = {0};
    good(pool_worker_create(&hand->worker, tree_compute_pool(home->compute), &error), &error);
    good(tree_session_create(&hand->tree, home->compute, hand->worker, &error), &error);
    if (!home->store) {
        assert_int_equal(tree_format(hand->tree), 0);
        assert_int_equal(store_open(&home->store, hand->tree, "kept", true), 0);
    }
    good(store_session_create(&hand->session, home->store, hand->tree, &error), &error);
}

static void hand_close(struct hand *hand)
{
    store_session_destroy(hand->session);
    tree_session_destroy(hand->tree);
    pool_worker_destroy(hand->worker);
}

static void pools_open(struct home *home)
{
    const struct memory_options memory = {.pool_bytes = UINT64_C(192) << 20};
    struct tree_switches switches;
    struct error error = {0};
    *home = (struct home){.memory = NULL};
    good(memory_node_create(&home->memory, &memory, &error), &error);
    const struct fabric_target *target = memory_node_target(home->memory);
    home->fabric = fabric_local_create(&target, 1, 1, &error);
    good(home->fabric ? 0 : error.code, &error);
    tree_switches_preset(&switches, "banyan", &error);
    switches.cache_bytes = 8u << 20;
    switches.ownership = TREE_OWNERSHIP_ALL; /* as of a server that has its pools to itself */
    good(tree_compute_create(&home->compute, home->fabric, &switches, &error), &error);
    hand_open(home, &home->hand);
}

static void pools_close(struct home *home)
{
    hand_close(&home->hand);
    store_close(home->store);
    tree_compute_destroy(home->compute);
    fabric_close(home->fabric);
    memory_node_destroy(home->memory);
}

enum opening { FRESH, HELD, LOADED }; /* the directory is new; the pools hold what it does; they are empty */

/* The directory, and what it holds in the pools if they are empty. Returns how many keys that were. */
static uint64_t directory_open(struct home *home, bool always, enum opening opening)
{
    const struct durable_options options = {.always = always, .seed = 4, .quick_ns = UINT64_C(60000000000)};
    const bool load = opening == LOADED;
    struct error error = {0};
    uint64_t keys;
    good(durable_open(&home->durable, path, &options, &error), &error);
    assert_int_equal(durable_cluster(home->durable), opening == FRESH ? 0 : CLUSTER);
    if (load && !durable_loading(home->durable))
        good(durable_load_begin(home->durable, &error), &error);
    assert_int_equal(durable_loading(home->durable), load);
    const struct durable_pools pools = {.cluster = CLUSTER,
                                        .compute = home->compute,
                                        .store = home->store,
                                        .load = load,
                                        .fresh = opening == FRESH,
                                        .threads = 2};
    good(durable_attach(home->durable, &pools, &keys, &error), &error);
    assert_false(durable_loading(home->durable));
    good(durable_start(home->durable, WRITERS, &error), &error);
    return keys;
}

/* ---- writers ---- */

struct value {
    bool present;
    uint64_t seed;
    size_t length;
};

struct writer {
    struct home *home;
    unsigned number;
    struct random random;
    struct value values[KEYS];
    uint8_t *bytes;
    const char *wrong; /* NULL: nothing */
    uint32_t over;     /* atomic */
};

static size_t name(const struct writer *writer, unsigned key, char text[32])
{
    return (size_t)snprintf(text, 32, "writer-%u-%05u", writer->number, key * 7919u % 100000u);
}

static void fill(const struct value *value, uint8_t *bytes)
{
    for (size_t i = 0; i < value->length; i++)
        bytes[i] = (uint8_t)random_mix(value->seed + i / 8);
}

static int change(struct writer *writer, struct store_session *session)
{
    const unsigned key = (unsigned)random_below(&writer->random, KEYS);
    struct value *value = &writer->values[key];
    char text[32];
    const size_t length = name(writer, key, text);
    if (random_below(&writer->random, 8) == 0) {
        const bool was = value->present;
        value->present = false;
        return store_delete(session, text, length) == (was ? 0 : BANYAN_ENOTFOUND) ? 0 : BANYAN_EINVAL;
    }
    *value = (struct value){.present = true, .seed = random_next(&writer->random)};
    value->length = random_below(&writer->random, random_below(&writer->random, 50) ? 1500 : VALUE_MAX);
    fill(value, writer->bytes);
    return store_put(session, text, length, writer->bytes, value->length, 0);
}

static void write_all(struct writer *writer, struct store_session *session, struct feed_writer *changes)
{
    struct durable *durable = writer->home->durable;
    for (unsigned i = 0; i < STEPS && !writer->wrong; i++) {
        if (change(writer, session))
            writer->wrong = "a change";
        if (!durable_always(durable) || (i % 16 && i + 1 < STEPS))
            continue;
        if (i % 32)
            durable_commit(durable, changes->ticket);
        if (feed_wait(durable_feed(durable), changes->ticket, NULL))
            writer->wrong = "a wait";
        if (!feed_safe(durable_feed(durable), changes->ticket))
            writer->wrong = "what was waited for is not safe";
    }
}

static void writer_main(void *context)
{
    struct writer *writer = context;
    struct feed_writer changes = durable_writer(writer->home->durable, writer->number);
    struct hand hand = {.worker = NULL};
    hand_open(writer->home, &hand);
    store_session_set_changed(hand.session, feed_mark, &changes);
    store_session_set_placed(hand.session, feed_mark_value);
    write_all(writer, hand.session, &changes);
    hand_close(&hand);
    atomic_store_release(&writer->over, 1);
}

static bool all_over(struct writer writers[WRITERS])
{
    for (unsigned i = 0; i < WRITERS; i++)
        if (!atomic_load_acquire(&writers[i].over))
            return false;
    return true;
}

/* Checkpoints one after the other, beside the writers; *saved: how many were whole in the end. */
static void work(struct home *home, struct writer writers[WRITERS], uint64_t *saved)
{
    struct thread *threads[WRITERS];
    struct durable_stats stats;
    struct error error = {0};
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].home = home;
        atomic_store_release(&writers[i].over, 0);
        good(thread_start(&threads[i], writer_main, &writers[i], &error), &error);
    }
    do {
        const int status = durable_save(home->durable, &error);
        assert_true(!status || status == BANYAN_EBUSY);
        durable_stats(home->durable, &stats);
        task_sleep(1000000);
    } while (!all_over(writers) || !stats.saves);
    for (unsigned i = 0; i < WRITERS; i++) {
        thread_join(threads[i]);
        if (writers[i].wrong)
            fail_msg("writer %u: %s went wrong", i, writers[i].wrong);
    }
    durable_stats(home->durable, &stats);
    assert_int_equal(stats.saves_failed, 0);
    assert_int_equal(stats.status, 0);
    assert_true(stats.keeper.keys > 0 && stats.keeper.deleted > 0 && stats.feed.marks >= WRITERS * STEPS / 2);
    assert_true(!durable_always(home->durable) || stats.feed.led > 0); /* writers made some of the passes */
    *saved = stats.saves;
}

/* The pools hold what the writers have left, and no more. */
static void compare(struct home *home, struct writer writers[WRITERS])
{
    struct store_session *session = home->hand.session;
    uint64_t present = 0, counted;
    for (unsigned i = 0; i < WRITERS; i++)
        for (unsigned key = 0; key < KEYS; key++) {
            const struct value *value = &writers[i].values[key];
            struct store_value found;
            char text[32];
            const int status = store_get(session, text, name(&writers[i], key, text), &found);
            assert_int_equal(status, value->present ? 0 : BANYAN_ENOTFOUND);
            if (!value->present)
                continue;
            present++;
            assert_int_equal(found.length, value->length);
            fill(value, writers[i].bytes);
            assert_memory_equal(found.bytes, writers[i].bytes, value->length);
        }
    assert_int_equal(store_count(session, &(struct tree_range){.from = NULL}, &counted), 0);
    assert_int_equal(counted, present);
}

static struct writer writers[WRITERS];

static void writers_make(void)
{
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.number = i, .bytes = malloc(VALUE_MAX)};
        assert_non_null(writers[i].bytes);
        random_seed(&writers[i].random, 10 + i);
    }
}

static void writers_free(void)
{
    for (unsigned i = 0; i < WRITERS; i++)
        free(writers[i].bytes);
}

static void lives(bool always)
{
    struct home home;
    struct error error = {0};
    uint64_t saved;
    writers_make();
    for (unsigned life = 0; life < 3; life++) {
        pools_open(&home);
        const uint64_t keys = directory_open(&home, always, life ? LOADED : FRESH);
        assert_true(life == 0 ? keys == 0 : keys > 0);
        compare(&home, writers);
        if (life < 2)
            work(&home, writers, &saved);
        if (life || !always) /* else all was waited for */
            good(durable_stop(home.durable, &error), &error);
        durable_close(home.durable);
        pools_close(&home);
    }
    writers_free();
}

static void test_always(void **state)
{
    (void)state;
    lives(true);
}

static void test_second(void **state)
{
    (void)state;
    lives(false);
}

/* ---- in step (K5), loading (K6) ---- */

static void open_only(struct home *home)
{
    const struct durable_options options = {.seed = 4};
    struct error error = {0};
    good(durable_open(&home->durable, path, &options, &error), &error);
}

/* As a process that is killed does, where it was started. */
static void leave(struct home *home)
{
    durable_close(home->durable);
    home->durable = NULL;
}

static void end_in_order(struct home *home)
{
    struct error error = {0};
    good(durable_stop(home->durable, &error), &error);
    leave(home);
}

/* The process ends without a last pass, its pools stay; and keys change while no one tells the disk. */
static void unseen(struct home *home)
{
    leave(home);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(change(&writers[i % WRITERS], home->hand.session), 0);
}

/* Whole by the checkpoint that begins at once; what is on the disk then is in fresh pools. */
static void whole(struct home *home)
{
    struct durable_stats stats;
    directory_open(home, false, HELD);
    const bool safe = durable_safe(home->durable, 0);
    durable_stats(home->durable, &stats);
    assert_false(safe && stats.behind); /* of a former life's changes nothing is safe before that */
    do {
        task_sleep(1000000);
        durable_stats(home->durable, &stats);
    } while (stats.behind);
    assert_int_equal(stats.saves, 1);
    assert_true(durable_safe(home->durable, 0));
}

static void behind_then_whole(struct home *home)
{
    whole(home);
    leave(home);
    pools_close(home);
    pools_open(home);
    assert_true(directory_open(home, false, LOADED) > 0);
    compare(home, writers);
}

static bool is_behind(struct home *home)
{
    struct durable_stats stats;
    durable_stats(home->durable, &stats);
    return stats.behind;
}

static void test_in_step(void **state)
{
    struct home home;
    struct error error = {0};
    uint64_t saved;
    (void)state;
    writers_make();
    pools_open(&home);
    directory_open(&home, false, FRESH);
    work(&home, writers, &saved);
    unseen(&home); /* killed, as it were */
    behind_then_whole(&home);
    assert_false(is_behind(&home)); /* what was loaded is what the disk has */
    end_in_order(&home);
    directory_open(&home, false, HELD);
    assert_false(is_behind(&home)); /* it was told all */
    unseen(&home);                  /* killed behind a start in step */
    behind_then_whole(&home);
    end_in_order(&home);
    good(durable_disown(path, &error), &error);
    unseen(&home); /* another level meanwhile */
    behind_then_whole(&home);
    leave(&home);
    pools_close(&home);
    writers_free();
}

/* A start that fills the pools is refused where the disk has not all that they held. */
static void refuses_to_load(struct home *home)
{
    struct error error = {0};
    open_only(home);
    assert_int_equal(durable_load_begin(home->durable, &error), BANYAN_EINVAL);
    assert_true(strstr(error.text, path) != NULL);
    assert_false(durable_loading(home->durable));
    leave(home);
}

/* A start ends when it has begun to load. */
static void loads_and_ends(struct home *home, bool before)
{
    struct error error = {0};
    open_only(home);
    assert_int_equal(durable_loading(home->durable), before);
    good(durable_load_begin(home->durable, &error), &error);
    leave(home);
}

static void attach_only(struct home *home, bool fresh)
{
    const struct durable_pools pools = {.cluster = CLUSTER,
                                        .compute = home->compute,
                                        .store = home->store,
                                        .fresh = fresh,
                                        .shape = {.memory_nodes = 3, .pool_bytes = 12345}};
    struct durable_shape shape;
    struct error error = {0};
    uint64_t keys;
    open_only(home);
    assert_false(durable_shape(home->durable, &shape));
    good(durable_attach(home->durable, &pools, &keys, &error), &error);
    leave(home);
    open_only(home);
    assert_true(durable_shape(home->durable, &shape));
    assert_int_equal(shape.memory_nodes, 3);
    assert_int_equal(shape.pool_bytes, 12345);
    leave(home);
}

static void test_never_whole(void **state)
{
    struct home home;
    struct error error = {0};
    (void)state;
    pools_open(&home);
    attach_only(&home, false); /* pools of another level, that may hold something */
    refuses_to_load(&home);
    whole(&home);
    end_in_order(&home);
    good(durable_disown(path, &error), &error);
    refuses_to_load(&home);
    whole(&home);
    end_in_order(&home);
    loads_and_ends(&home, false);
    pools_close(&home);
}

static void test_fresh(void **state)
{
    struct home home;
    (void)state;
    pools_open(&home);
    attach_only(&home, true);
    loads_and_ends(&home, false);
    pools_close(&home);
}

/* A start that ends while it loads begins anew, whatever the pools hold. */
static void test_loading(void **state)
{
    struct home home;
    uint64_t saved;
    (void)state;
    writers_make();
    pools_open(&home);
    directory_open(&home, true, FRESH);
    work(&home, writers, &saved);
    leave(&home);
    for (unsigned i = 0; i < 2; i++)
        loads_and_ends(&home, i > 0);
    pools_close(&home);
    pools_open(&home);
    assert_true(directory_open(&home, true, LOADED) > 0);
    compare(&home, writers);
    leave(&home);
    directory_open(&home, true, HELD);
    leave(&home);
    pools_close(&home);
    writers_free();
}

/* ---- many keys ---- */

#define MANY 30000u

static size_t many_name(unsigned number, char text[32])
{
    return (size_t)snprintf(text, 32, number % 3 ? "%u" : "key:%08u", number * 2654435761u % 1000000007u);
}

/* Some lie in the slot, some in records. */
static uint64_t many_value(unsigned number, unsigned version, uint8_t value[100])
{
    memset(value, (int)(number + version), 100);
    return number % 7 == 0 ? 100 : 1 + number % 12;
}

static void many_write(struct home *home, struct feed_writer *changes, unsigned first, unsigned step,
                       unsigned version)
{
    struct store_session *session = home->hand.session;
    store_session_set_changed(session, feed_mark, changes);
    for (unsigned i = first; i < MANY; i += step) {
        uint8_t value[100];
        char text[32];
        const uint64_t length = many_value(i, version, value);
        assert_int_equal(store_put(session, text, many_name(i, text), value, length, 0), 0);
    }
    store_session_set_changed(session, NULL, NULL);
}

/* Every third key is gone, every fifth of the others has another value. */
static void many_change(struct home *home, struct feed_writer *changes)
{
    struct store_session *session = home->hand.session;
    many_write(home, changes, 0, 5, 1);
    store_session_set_changed(session, feed_mark, changes);
    for (unsigned i = 0; i < MANY; i += 3) {
        char text[32];
        assert_int_equal(store_delete(session, text, many_name(i, text)), 0);
    }
    store_session_set_changed(session, NULL, NULL);
}

static void many_compare(struct home *home, bool changed)
{
    struct store_session *session = home->hand.session;
    uint64_t counted;
    for (unsigned i = 0; i < MANY; i++) {
        struct store_value found;
        uint8_t value[100];
        char text[32];
        const int status = store_get(session, text, many_name(i, text), &found);
        assert_int_equal(status, changed && i % 3 == 0 ? BANYAN_ENOTFOUND : 0);
        if (status)
            continue;
        assert_int_equal(found.length, many_value(i, changed && i % 5 == 0, value));
        assert_memory_equal(found.bytes, value, found.length);
    }
    assert_int_equal(store_count(session, &(struct tree_range){.from = NULL}, &counted), 0);
    assert_int_equal(counted, changed ? MANY - MANY / 3 : MANY);
}

/* Filled in parts, by several threads; from a checkpoint, from a journal, from both. */
static void test_many(void **state)
{
    struct home home;
    struct error error = {0};
    (void)state;
    pools_open(&home);
    directory_open(&home, false, FRESH);
    struct feed_writer changes = durable_writer(home.durable, 0);
    many_write(&home, &changes, 0, 1, 0);
    for (unsigned life = 0; life < 3; life++) {
        if (life == 1)
            many_change(&home, &changes);
        end_in_order(&home);
        pools_close(&home);
        pools_open(&home);
        assert_int_equal(directory_open(&home, false, LOADED), life ? MANY - MANY / 3 : MANY);
        many_compare(&home, life > 0);
        changes = durable_writer(home.durable, 0);
        struct durable_stats stats;
        for (stats.saves = 0; life < 2 && !stats.saves; task_sleep(1000000)) {
            const int status = durable_save(home.durable, &error);
            assert_true(!status || status == BANYAN_EBUSY);
            durable_stats(home.durable, &stats);
        }
    }
    durable_close(home.durable);
    pools_close(&home);
}

static int begin(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/banyan-durable-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/data", folder);
    return 0;
}

static int end(void **state)
{
    char command[160];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command); /* NOLINT: a name of mkdtemp's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_always, begin, end),
                                       cmocka_unit_test_setup_teardown(test_second, begin, end),
                                       cmocka_unit_test_setup_teardown(test_in_step, begin, end),
                                       cmocka_unit_test_setup_teardown(test_never_whole, begin, end),
                                       cmocka_unit_test_setup_teardown(test_fresh, begin, end),
                                       cmocka_unit_test_setup_teardown(test_loading, begin, end),
                                       cmocka_unit_test_setup_teardown(test_many, begin, end)};
    return cmocka_run_group_tests_name("level disk on threads", tests, NULL, NULL);
}
