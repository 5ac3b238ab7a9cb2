/*
 * test_sim.c - stores of a simulated cluster: tasks of several compute nodes put, read, change and delete a
 * few keys at once, with values in slots, records and pieces, on a hostile network; then compute nodes die
 * at any moment, or connections are lost. Every answer must fit one order of all operations, every value be
 * one that was written whole, and every block of the pool have one owner.
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
#include "simulated.h"

/* ---- values: the number, then bytes that follow from it ---- */

#define LENGTH_MAX 80000u
#define PUTS_MAX   12u
#define ROOM       (PUTS_MAX * (size_t)LENGTH_MAX)

static size_t value_length(uint64_t number)
{
    uint64_t mixed = random_mix(number ^ UINT64_C(0x1e46));
    switch (mixed % 16) {
    case 0:
    case 1:
    case 2:
        return 66000 + (mixed >> 8) % 8000; /* pieces */
    case 3:
        return 1000 + (mixed >> 8) % 8000;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
        return 100 + (mixed >> 8) % 60; /* blocks of a few sizes: used again soon */
    default:
        return 8 + (mixed >> 8) % 9;
    }
}

static size_t value_make(uint64_t number, uint8_t *bytes)
{
    size_t length = value_length(number);
    memcpy(bytes, &number, 8);
    stores_fill(number, bytes + 8, length - 8);
    return length;
}

/* 0 if no task has written this value. */
static uint64_t value_number(const struct store_value *value)
{
    uint64_t number;
    if (value->length < 8)
        return 0;
    memcpy(&number, value->bytes, 8);
    return number && value->length == value_length(number) &&
                   stores_filled(number, value->bytes + 8, value->length - 8)
               ? number
               : 0;
}

/* ---- operations, recorded ---- */

#define KEYS 10u

struct work {
    unsigned rounds;
    uint8_t *rooms; /* ROOM for each task: a task may end within a call, and then frees nothing */
};

static uint8_t *room_of(struct world_task *task)
{
    const struct work *plan = stores_of(task)->context;
    return plan->rooms + task->number * ROOM;
}

static size_t key_make(uint64_t number, char *key)
{
    /* One key is long. */
    return (size_t)sprintf(
        key, number == 3 ? "key%02" PRIu64 "-with-a-name-that-no-slot-holds-as-it-is" : "key%02" PRIu64,
        number);
}

static void wrong(struct world_task *task, const char *what, uint64_t key)
{
    world_fail(task->world, BANYAN_ECORRUPT, "%s of key %" PRIu64 ": a value that nobody wrote", what, key);
}

/* Whether the operation has ended. If it was not done it leaves the history; if that is unknown, it stays
 * open in it. */
static void conclude(struct world_task *task, size_t place, int status, uint64_t result, const char *what)
{
    struct world *world = task->world;
    if (status == BANYAN_ENET && world_lossy(world)) {
        history_drop(&task->log, place);
        task_sleep(2000);
        return;
    }
    if (status == BANYAN_EUNKNOWN && world_lossy(world))
        return;
    if (status && status != BANYAN_ENOTFOUND) {
        world_fail(world, status, "%s: %d: %s", what, status, tree_session_error(task->session)->text);
        return;
    }
    history_end(&task->log, place, status, result);
}

static void do_get(struct world_task *task, uint64_t number)
{
    char key[80];
    size_t length = key_make(number, key);
    struct store_value value;
    size_t place = history_begin(&task->log, HISTORY_GET, number, 0, 0);
    int status = store_get(stores_session(task), key, length, &value);
    uint64_t result = status ? 0 : value_number(&value);
    if (!status && !result)
        wrong(task, "get", number);
    else
        conclude(task, place, status, result, "get");
}

static void do_put(struct world_task *task, uint64_t number)
{
    char key[80];
    uint8_t *bytes = room_of(task);
    uint64_t value = history_value(&task->world->history);
    size_t length = value_make(value, bytes), key_length = key_make(number, key);
    size_t place = history_begin(&task->log, HISTORY_PUT, number, value, 0);
    uint64_t expires = value % 3 ? 0 : UINT64_C(1) << 40; /* never reached */
    int status = store_put(stores_session(task), key, key_length, bytes, length, expires);
    conclude(task, place, status, 0, "put");
}

static void do_delete(struct world_task *task, uint64_t number)
{
    char key[80];
    size_t length = key_make(number, key);
    size_t place = history_begin(&task->log, HISTORY_DELETE, number, 0, 0);
    int status = store_delete(stores_session(task), key, length);
    conclude(task, place, status, 0, "delete");
}

struct exchange {
    uint64_t seen, value;
    bool wrong;
    uint8_t *bytes;
};

static enum store_verdict exchange_change(void *context, const struct store_value *old,
                                          struct store_value *new)
{
    struct exchange *exchange = context;
    exchange->seen = old ? value_number(old) : 0;
    exchange->wrong = old && !exchange->seen;
    if (!exchange->value)
        return STORE_REMOVE;
    *new = (struct store_value){.bytes = exchange->bytes,
                                .length = value_make(exchange->value, exchange->bytes),
                                .expires = exchange->value % 4 ? 0 : UINT64_C(1) << 41};
    return STORE_PUT;
}

static void do_modify(struct world_task *task, uint64_t number)
{
    char key[80];
    struct exchange exchange = {.bytes = room_of(task)};
    if (random_chance(&task->random, 0.8))
        exchange.value = history_value(&task->world->history);
    size_t length = key_make(number, key);
    size_t place = history_begin(&task->log, HISTORY_MODIFY, number, exchange.value, 0);
    int status = store_modify(stores_session(task), key, length, STORE_NEED_VALUE, exchange_change, &exchange,
                              NULL, NULL);
    if (!status && exchange.wrong)
        wrong(task, "modify", number);
    else
        conclude(task, place, status, exchange.seen, "modify");
}

/* Changes only the expiry: the value stays, so the history does not change. */
static enum store_verdict expiry_change(void *context, const struct store_value *old, struct store_value *new)
{
    if (!old)
        return STORE_KEEP;
    new->expires = old->expires ? 0 : UINT64_C(1) << 42;
    return STORE_PUT;
}

static void tolerate(struct world_task *task, int status, const char *what)
{
    bool lossy = world_lossy(task->world);
    if (status && status != BANYAN_ENOTFOUND &&
        !(lossy && (status == BANYAN_ENET || status == BANYAN_EUNKNOWN)))
        world_fail(task->world, status, "%s: %d: %s", what, status, tree_session_error(task->session)->text);
}

static void do_expiry(struct world_task *task, uint64_t number)
{
    char key[80];
    size_t length = key_make(number, key);
    tolerate(
        task,
        store_modify(stores_session(task), key, length, STORE_NEED_LENGTH, expiry_change, NULL, NULL, NULL),
        "expiry");
}

static void do_many(struct world_task *task)
{
    char keys[KEYS][80];
    struct store_item items[KEYS];
    size_t places[KEYS];
    for (uint64_t i = 0; i < KEYS; i++) {
        items[i] = (struct store_item){.key = keys[i], .key_length = key_make(i, keys[i])};
        places[i] = history_begin(&task->log, HISTORY_GET, i, 0, 0);
    }
    store_multi_get(stores_session(task), items, KEYS, true);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t result = items[i].status ? 0 : value_number(&items[i].value);
        if (!items[i].status && !result)
            wrong(task, "multi-get", i);
        else
            conclude(task, places[i], items[i].status, result, "multi-get");
    }
}

/* Some of the keys may be the same. */
static void do_many_puts(struct world_task *task)
{
    char keys[PUTS_MAX][80];
    struct store_item items[PUTS_MAX];
    size_t places[PUTS_MAX], count = 1 + random_below(&task->random, PUTS_MAX);
    for (size_t i = 0; i < count; i++) {
        uint8_t *bytes = room_of(task) + i * LENGTH_MAX;
        uint64_t number = random_below(&task->random, KEYS), value = history_value(&task->world->history);
        items[i] = (struct store_item){.key = keys[i], .key_length = key_make(number, keys[i])};
        items[i].value = (struct store_value){
            .bytes = bytes, .length = value_make(value, bytes), .expires = value % 3 ? 0 : UINT64_C(1) << 40};
        places[i] = history_begin(&task->log, HISTORY_PUT, number, value, 0);
    }
    store_multi_put(stores_session(task), items, count);
    for (size_t i = 0; i < count; i++)
        conclude(task, places[i], items[i].status, 0, "multi-put");
}

struct met {
    uint64_t values[KEYS];
    bool wrong;
};

static bool met_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct met *met = context;
    char text[3] = "";
    memcpy(text, (const char *)key + 3, 2);
    unsigned number = (unsigned)atoi(text);
    if (number < KEYS)
        met->values[number] = value_number(value);
    met->wrong = met->wrong || number >= KEYS || !met->values[number];
    return true;
}

static void do_scan(struct world_task *task)
{
    struct met met = {.wrong = false};
    size_t places[KEYS];
    struct tree_range range = {.reverse = random_chance(&task->random, 0.5)};
    for (uint64_t i = 0; i < KEYS; i++)
        places[i] = history_begin(&task->log, HISTORY_GET, i, 0, 0);
    int status = store_scan(stores_session(task), &range, STORE_SCAN_VALUES, met_visit, &met);
    if (!status && met.wrong)
        wrong(task, "scan", KEYS);
    for (uint64_t i = 0; i < KEYS; i++)
        conclude(task, places[i],
                 status          ? status
                 : met.values[i] ? 0
                                 : BANYAN_ENOTFOUND,
                 met.values[i], "scan");
}

static void work(struct world_task *task)
{
    const struct work *plan = stores_of(task)->context;
    for (unsigned i = 0; i < plan->rounds && !task->world->error.code; i++) {
        uint64_t key = random_below(&task->random, random_chance(&task->random, 0.7) ? 3 : KEYS),
                 kind = random_below(&task->random, 100);
        if (kind < 30)
            do_get(task, key);
        else if (kind < 46)
            do_put(task, key);
        else if (kind < 55)
            do_many_puts(task);
        else if (kind < 65)
            do_delete(task, key);
        else if (kind < 85)
            do_modify(task, key);
        else if (kind < 92)
            do_expiry(task, key);
        else if (kind < 96)
            do_many(task);
        else
            do_scan(task);
    }
}

static void read_all(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS; i++)
        do_get(task, i);
}

/* ---- worlds ---- */

static struct simulated_total total;
static uint64_t unfinished; /* operations that a death or a loss left open */

static void options_for(struct world_options *options, uint64_t seed, const char *preset)
{
    struct random random;
    random_seed(&random, seed ^ UINT64_C(0x5707e));
    simulated_options(options, &random, seed);
    options->preset = preset;
    options->random_switches = !preset;
    if (seed % 2) /* no values are cached: what is read of records is often stale */
        options->cache_policy = TREE_CACHE_DEX;
    options->chunk_bytes = UINT64_C(256) << 10;
    options->geometry.leaf_bytes = random_chance(&random, 0.5) ? 1024 : 0;
    if (random_chance(&random, 0.5))
        options->params.atomic_write = 4096;
    else
        /* what nodes of 1,024 bytes can hold eight of, or four */
        options->geometry.key_bytes = random_chance(&random, 0.5) ? 64 : 0;
}

static int judge(struct stores *stores)
{
    struct world *world = &stores->world;
    struct store_check_report report = {0};
    int status = world_run_one(world, world_survivor(world), read_all);
    status = status ? status : stores_check(stores, &report);
    status = status ? status : world_linearize(world);
    simulated_count(&total, stores);
    for (unsigned i = 0; i < world->task_count; i++)
        for (size_t op = 0; op < world->tasks[i].log.count; op++)
            unfinished += !world->tasks[i].log.ops[op].known;
    total.entries += report.tree.entries;
    return status;
}

static int begin(struct stores *stores, struct work *plan, const struct world_options *options)
{
    int status = stores_create(stores, options);
    plan->rooms = calloc(stores->world.task_count + 1, ROOM);
    assert_non_null(plan->rooms);
    stores->context = plan;
    return status;
}

static void end(struct stores *stores, int status, const char *what, uint64_t seed)
{
    free(((struct work *)stores->context)->rooms);
    struct error error = stores->world.error;
    stores_destroy(stores);
    if (status)
        fail_msg("%s: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_sim", what, status, error.text, seed);
}

static void calm_world(uint64_t seed, const char *preset)
{
    struct stores stores;
    struct world_options options;
    struct work plan = {.rounds = 60};
    options_for(&options, seed, preset);
    int status = begin(&stores, &plan, &options);
    status = status ? status : world_run(&stores.world, work);
    status = status ? status : judge(&stores);
    end(&stores, status, "no deaths", seed);
}

static void linearizable(void **state)
{
    for (unsigned round = 0; round < world_rounds(80); round++)
        calm_world(world_seed(100 + round), round % 4 ? "banyan" : NULL);
    for (unsigned round = 0; round < world_rounds(4); round++)
        calm_world(world_fresh_seed() + round, "banyan");
}

static void death_world(uint64_t seed, const char *preset)
{
    struct stores stores;
    struct world_options options;
    struct work plan = {.rounds = 50};
    options_for(&options, seed, preset);
    int status = begin(&stores, &plan, &options);
    status = status ? status : simulated_kill(&stores.world, seed);
    status = status ? status : world_run(&stores.world, work);
    status = status ? status : judge(&stores);
    end(&stores, status, "deaths", seed);
}

static void survives_deaths(void **state)
{
    for (unsigned round = 0; round < world_rounds(240); round++)
        death_world(world_seed(1000 + round), round % 4 ? "banyan" : NULL);
    for (unsigned round = 0; round < world_rounds(8); round++)
        death_world(world_fresh_seed() + 1000 + round, "banyan");
}

static void lossy_world(uint64_t seed)
{
    struct stores stores;
    struct world_options options;
    struct work plan = {.rounds = 60};
    options_for(&options, seed, "banyan");
    simulated_options_losses(&options, seed);
    int status = begin(&stores, &plan, &options);
    status = status ? status : simulated_run_losses(&stores.world, work, &total);
    status = status ? status : judge(&stores);
    end(&stores, status, "lost connections", seed);
}

static void survives_losses(void **state)
{
    for (unsigned round = 0; round < world_rounds(120); round++)
        lossy_world(world_seed(2000 + round));
}

static void did_something(void **state)
{
    printf("runs %" PRIu64 ", records written %" PRIu64 ", freed %" PRIu64 ", retries %" PRIu64
           ", deaths %" PRIu64 ", losses %" PRIu64 ", unfinished %" PRIu64 ", bytes lost %" PRIu64 "\n",
           total.runs, total.written, total.freed, total.retries, total.deaths, total.losses, unfinished,
           total.lost_bytes);
    assert_true(total.runs > 0);
    if (getenv("BANYAN_SEED") || world_rounds(100) < 100)
        return;
    assert_true(total.written > 100 * total.runs && total.retries > total.runs / 2);
    assert_true(total.deaths > 50 && total.losses > 100 && total.entries > total.runs);
    assert_true(unfinished > total.deaths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linearizable),
        cmocka_unit_test(survives_deaths),
        cmocka_unit_test(survives_losses),
        cmocka_unit_test(did_something),
    };
    return cmocka_run_group_tests_name("store_sim", tests, NULL, NULL);
}
