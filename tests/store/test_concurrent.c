/*
 * test_concurrent.c - stores on real threads: counters and appended lists lose nothing, and readers see only
 * values that were written whole, while records are freed and their blocks used again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "stores.h"

#define COUNTERS 3u
#define LISTS    3u
#define VALUES   6u

struct plan {
    unsigned rounds;
};

static void failed(struct world_task *task, int status, const char *what)
{
    world_fail(task->world, status ? status : BANYAN_ECORRUPT, "%s: %s", what,
               tree_session_error(task->session)->text);
}

/* ---- counters: in slots, and, as text with zeros before it, in records ---- */

struct count {
    char text[64];
    int width;
};

static enum store_verdict count_up(void *context, const struct store_value *old, struct store_value *new)
{
    struct count *count = context;
    char before[64] = "0";
    if (old)
        memcpy(before, old->bytes, old->length < 63 ? old->length : 63);
    long long number = atoll(before) + 1;
    new->length = (size_t)snprintf(count->text, sizeof count->text, "%0*lld", count->width, number);
    new->bytes = (const uint8_t *)count->text;
    return STORE_PUT;
}

static void do_count(struct world_task *task, unsigned number)
{
    char key[8];
    struct count count = {.width = number == 0 ? 1 : 40};
    snprintf(key, sizeof key, "c%u", number);
    int status = store_modify(stores_session(task), key, 2, STORE_NEED_VALUE, count_up, &count, NULL, NULL);
    if (status)
        failed(task, status, "counter");
}

/* ---- lists: {task, sequence} pairs of 32 bits, appended ---- */

struct append {
    uint32_t pair[2];
    uint8_t *room;
};

static enum store_verdict append(void *context, const struct store_value *old, struct store_value *new)
{
    struct append *append = context;
    size_t length = old ? old->length : 0;
    append->room = realloc(append->room, length + 8);
    if (!append->room)
        abort();
    if (length)
        memcpy(append->room, old->bytes, length);
    memcpy(append->room + length, append->pair, 8);
    *new = (struct store_value){.bytes = append->room, .length = length + 8};
    return STORE_PUT;
}

static void do_append(struct world_task *task, unsigned number, uint32_t sequence)
{
    char key[8];
    struct append context = {.pair = {task->number, sequence}};
    snprintf(key, sizeof key, "l%u", number);
    int status = store_modify(stores_session(task), key, 2, STORE_NEED_VALUE, append, &context, NULL, NULL);
    free(context.room);
    if (status)
        failed(task, status, "append");
}

/* ---- values that are overwritten and deleted all the time ---- */

static size_t length_of(uint64_t number)
{
    uint64_t mixed = random_mix(number);
    return mixed % 8 == 0 ? 66000 + mixed % 50000 : mixed % 8 < 3 ? 8 + mixed % 9 : 17 + mixed % 3000;
}

static void value_validate(struct world_task *task, const struct store_value *value, const char *what)
{
    uint64_t number = 0;
    if (value->length >= 8)
        memcpy(&number, value->bytes, 8);
    if (value->length < 8 || value->length != length_of(number) ||
        !stores_filled(number, value->bytes + 8, value->length - 8))
        failed(task, BANYAN_ECORRUPT, what);
}

static void do_put(struct world_task *task, const char *key)
{
    uint8_t *bytes = malloc(130000);
    uint64_t number = random_next(&task->random);
    size_t length = length_of(number);
    memcpy(bytes, &number, 8);
    stores_fill(number, bytes + 8, length - 8);
    int status = store_put(stores_session(task), key, 2, bytes, length, number % 2 ? 0 : UINT64_C(1) << 40);
    if (status)
        failed(task, status, "put");
    free(bytes);
}

static bool value_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    value_validate(context, value, "scan");
    return true;
}

static void do_value(struct world_task *task)
{
    struct store_session *session = stores_session(task);
    struct store_value value;
    char key[8];
    snprintf(key, sizeof key, "v%u", (unsigned)random_below(&task->random, VALUES));
    uint64_t kind = random_below(&task->random, 100);
    int status = 0;
    if (kind < 40) {
        status = store_get(session, key, 2, &value);
        if (!status)
            value_validate(task, &value, "get");
    } else if (kind < 75) {
        do_put(task, key);
    } else if (kind < 82) {
        status = store_delete(session, key, 2);
    } else if (kind < 91) {
        char keys[VALUES][8];
        struct store_item items[VALUES];
        for (unsigned i = 0; i < VALUES; i++) {
            snprintf(keys[i], sizeof keys[i], "v%u", i);
            items[i] = (struct store_item){.key = keys[i], .key_length = 2};
        }
        status = store_multi_get(session, items, VALUES, true);
        for (unsigned i = 0; i < VALUES && !status; i++)
            if (!items[i].status)
                value_validate(task, &items[i].value, "multi-get");
    } else {
        struct tree_range range = {.from = "v", .from_length = 1};
        status = store_scan(session, &range, STORE_SCAN_VALUES, value_visit, task);
    }
    if (status && status != BANYAN_ENOTFOUND)
        failed(task, status, "value");
}

static void work(struct world_task *task)
{
    const struct plan *plan = stores_of(task)->context;
    for (uint32_t i = 0; i < plan->rounds && !task->world->error.code; i++) {
        do_count(task, i % COUNTERS);
        do_append(task, i % LISTS, i / LISTS);
        for (unsigned more = 0; more < 4; more++)
            do_value(task);
    }
}

/* ---- the results ---- */

static void verify_list(struct world_task *task, unsigned number)
{
    struct world *world = task->world;
    const struct plan *plan = stores_of(task)->context;
    uint32_t expected = plan->rounds / LISTS, next[64] = {0};
    struct store_value value;
    char key[8];
    snprintf(key, sizeof key, "l%u", number);
    int status = store_get(stores_session(task), key, 2, &value);
    if (status || value.length != (size_t)8 * expected * world->task_count) {
        failed(task, status, "a list is not as long as it should be");
        return;
    }
    for (size_t at = 0; at < value.length; at += 8) {
        uint32_t pair[2];
        memcpy(pair, value.bytes + at, 8);
        if (pair[0] >= world->task_count || pair[1] != next[pair[0]]++) {
            failed(task, 0, "a list is out of order");
            return;
        }
    }
}

static void verify(struct world_task *task)
{
    const struct plan *plan = stores_of(task)->context;
    for (unsigned i = 0; i < COUNTERS; i++) {
        struct store_value value;
        char key[8], text[64] = "";
        snprintf(key, sizeof key, "c%u", i);
        int status = store_get(stores_session(task), key, 2, &value);
        if (!status && value.length < 64)
            memcpy(text, value.bytes, value.length);
        if (status || atoll(text) != (long long)plan->rounds / COUNTERS * task->world->task_count)
            failed(task, status, "a counter is wrong");
    }
    for (unsigned i = 0; i < LISTS; i++)
        verify_list(task, i);
}

static void run(unsigned computes, unsigned threads, unsigned fibers, unsigned rounds)
{
    struct stores stores;
    struct world_options options;
    struct plan plan = {.rounds = world_rounds(rounds) / LISTS * LISTS};
    stores_options_default(&options);
    options.memory_nodes = 2;
    options.compute_nodes = computes;
    options.threads = threads;
    options.fibers = fibers;
    int status = stores_create(&stores, &options);
    stores.context = &plan;
    status = status ? status : world_run(&stores.world, work);
    status = status ? status : world_run_one(&stores.world, 0, verify);
    status = status ? status : stores_check(&stores, NULL);
    struct error error = stores.world.error;
    stores_destroy(&stores);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

static void threads(void **state)
{
    run(1, 4, 1, 600);
}

static void fibers(void **state)
{
    run(1, 2, 8, 200);
}

static void compute_nodes(void **state)
{
    run(3, 2, 2, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(fibers),
        cmocka_unit_test(compute_nodes),
    };
    return cmocka_run_group_tests_name("store_concurrent", tests, NULL, NULL);
}
