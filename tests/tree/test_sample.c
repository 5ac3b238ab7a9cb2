/* test_sample.c - tree_sample: every key about equally likely, however the leaves are filled; indexes that
 * are empty, tiny, or almost empty; caches too small to hold the way down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "swarm/world.h"

#define KEYS  4000u
#define DRAWS 200000u

static void put(struct world_task *task, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t length = world_key(task->world, number, key), size = world_value(task->world, 1, value);
    if (tree_upsert(task->session, task->tree, key, length, value, size))
        world_fail(task->world, BANYAN_EINVAL, "put: %s", tree_session_error(task->session)->text);
}

static void drop(struct world_task *task, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = world_key(task->world, number, key);
    if (tree_delete(task->session, task->tree, key, length))
        world_fail(task->world, BANYAN_EINVAL, "delete: %s", tree_session_error(task->session)->text);
}

/* UINT64_MAX: the index says that it is empty. */
static uint64_t draw(struct world_task *task)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    int status = tree_sample(task->session, task->tree, key, &length);
    if (status == BANYAN_ENOTFOUND)
        return UINT64_MAX;
    uint64_t number = status ? UINT64_MAX : world_key_number(task->world, key, length);
    if (number == UINT64_MAX)
        world_fail(task->world, BANYAN_ECORRUPT, "sample: %d: %s", status,
                   tree_session_error(task->session)->text);
    return number;
}

static bool present(uint64_t number)
{
    return number % 4 == 0 || (number > KEYS / 2 && number < KEYS * 3 / 4);
}

/* A quarter of the key space is four times as dense as the rest, and its leaves were split later. */
static void uniform(struct world_task *task)
{
    static uint32_t counts[KEYS];
    memset(counts, 0, sizeof counts);
    uint64_t there = 0;
    unsigned draws = world_rounds(DRAWS);
    for (uint64_t i = 0; i < KEYS; i += 4)
        put(task, i);
    for (uint64_t i = 0; i < KEYS; i++)
        if (present(i)) {
            put(task, i);
            there++;
        }
    for (unsigned i = 0; i < draws && !task->world->error.code; i++) {
        uint64_t number = draw(task);
        if (number < KEYS)
            counts[number]++;
    }
    double expected = draws / (double)there, chi = 0;
    uint64_t dense = 0, dense_there = 0, low = UINT64_MAX, high = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        if (!present(i)) {
            if (counts[i])
                world_fail(task->world, BANYAN_ECORRUPT, "key %" PRIu64 " was drawn, but is not there", i);
            continue;
        }
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        low = counts[i] < low ? counts[i] : low;
        high = counts[i] > high ? counts[i] : high;
        if (i > KEYS / 2 && i < KEYS * 3 / 4) {
            dense += counts[i];
            dense_there++;
        }
    }
    double share = (double)dense / draws / ((double)dense_there / (double)there);
    printf("%" PRIu64 " keys, drawn %.0f times each: %" PRIu64 " to %" PRIu64
           ", chi-square/n %.3f; the dense quarter %.3f of its share\n",
           there, expected, low, high, chi / (double)there, share);
    /* Drawn fairly, chi-square/n is 1 +- 0.1 and each count 114 +- 11; of fewer draws the least says nothing.
     */
    if (chi / (double)there > 1.6 || share < 0.95 || share > 1.05 ||
        (draws >= DRAWS && (double)low < expected * 0.5))
        world_fail(task->world, BANYAN_ECORRUPT, "the draws are not fair");
}

static void run(const struct format_geometry *geometry, uint64_t cache_bytes,
                void (*function)(struct world_task *))
{
    struct world world;
    struct world_options options;
    world_options_default(&options);
    options.geometry = *geometry;
    if (cache_bytes)
        options.cache_bytes = cache_bytes;
    int status = world_create(&world, &options);
    if (!status)
        world_run_one(&world, 0, function);
    struct error error = world.error;
    world_destroy(&world);
    if (error.code)
        fail_msg("%d: %s", error.code, error.text);
}

static const struct format_geometry fixed = {
    .key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512};
static const struct format_geometry variable = {.key_kind = FORMAT_KEY_VARIABLE,
                                                .key_bytes = 30,
                                                .value_bytes = 16,
                                                .leaf_bytes = 1024,
                                                .internal_bytes = 1024};

static void every_key_is_about_equally_likely(void **state)
{
    run(&fixed, 0, uniform);
    run(&variable, 0, uniform);
}

static void few_keys(struct world_task *task)
{
    uint64_t seen = 0;
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    if (draw(task) != UINT64_MAX)
        world_fail(task->world, BANYAN_ECORRUPT, "an empty index has a key");
    put(task, 17);
    for (unsigned i = 0; i < 20; i++)
        if (draw(task) != 17)
            world_fail(task->world, BANYAN_ECORRUPT, "the only key is another");
    put(task, 18);
    put(task, 19);
    for (unsigned i = 0; i < 200; i++)
        seen |= UINT64_C(1) << draw(task) % 64;
    if (seen != (UINT64_C(7) << 17))
        world_fail(task->world, BANYAN_ECORRUPT, "three keys: seen %" PRIx64, seen);
    length = 3;
    if (tree_sample(task->session, task->tree, key, &length) != BANYAN_EKEYSIZE || length <= 3)
        world_fail(task->world, BANYAN_ECORRUPT, "a key was put into too small a buffer");
}

/* The leaves of the first keys stay as they are, empty: their first ones go last. */
static void almost_empty(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS; i++)
        put(task, i);
    for (uint64_t i = 0; i < KEYS; i++)
        if (i != 1234)
            drop(task, i);
    for (unsigned i = 0; i < 100; i++)
        if (draw(task) != 1234)
            world_fail(task->world, BANYAN_ECORRUPT, "the only key left is another");
    drop(task, 1234);
    if (draw(task) != UINT64_MAX)
        world_fail(task->world, BANYAN_ECORRUPT, "the emptied index has a key");
    for (uint64_t i = 0; i < KEYS; i += 7)
        put(task, i);
    for (unsigned i = 0; i < 1000; i++)
        if (draw(task) % 7)
            world_fail(task->world, BANYAN_ECORRUPT, "a key that is not there");
}

static void indexes_with_few_keys(void **state)
{
    run(&fixed, 0, few_keys);
    run(&variable, 0, few_keys);
    run(&fixed, 0, almost_empty);
    run(&variable, 0, almost_empty);
    run(&fixed, 4096, almost_empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_about_equally_likely),
        cmocka_unit_test(indexes_with_few_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
