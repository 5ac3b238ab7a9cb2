/*
 * test_cut_sim.c - cuts while other tasks change keys: on real threads and in the simulator's time. Each task
 * changes keys of its own, in every way that there is, and counts two keys up with the others; what each cut
 * holds must be what all of them held together at one moment within the call that opened it. The judge itself
 * is tried too.
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

#include "base/atomic.h"
#include "base/task.h"
#include "moment.h"
#include "simulated.h"
#include "store/cut.h"

#define TASKS_MAX 16u
#define READERS   2u /* tasks that read cuts */
#define COUNTERS  2u /* keys that all writers change: each is a client of its own for the judge */
#define LONGEST   80000u

struct plan {
    unsigned cuts, writers; /* of each reader; tasks that write */
    uint64_t clock;         /* of stamps */
    uint32_t reading;       /* atomic: readers that are not done */
    struct moment_client clients[TASKS_MAX + COUNTERS];
    struct moment_client increments[TASKS_MAX]; /* by writer: key: the counter, value: its result */
    struct moment_view views[READERS * 64];
    uint32_t view_count; /* atomic */
    uint8_t *rooms;      /* LONGEST bytes for each task */
    uint64_t saved;
};

static void failed(struct world_task *task, int status, const char *what)
{
    world_fail(task->world, status ? status : BANYAN_ECORRUPT, "%s: %s", what,
               tree_session_error(task->session)->text);
}

/* ---- values: a number of 8 bytes, then bytes that are all alike ---- */

static size_t key_make(unsigned writer, uint32_t key, char text[32])
{
    return (size_t)snprintf(text, 32, "%02u:%s%02u/%u", key % 8, key % 5 ? "" : "a-longer-name-", key,
                            writer);
}

static size_t length_of(struct random *random)
{
    const uint64_t draw = random_below(random, 20);
    return draw == 0  ? 70000 + random_below(random, 1000)
           : draw < 6 ? 300 + random_below(random, 900)
                      : 8 + draw;
}

static size_t value_make(struct world_task *task, uint64_t number, uint8_t **bytes)
{
    struct plan *plan = stores_of(task)->context;
    const size_t length = length_of(&task->random);
    *bytes = plan->rooms + task->number * (size_t)LONGEST;
    memset(*bytes, 'x', length);
    memcpy(*bytes, &number, 8);
    return length;
}

/* 0: that is no such value. */
static uint64_t value_number(const struct store_value *value)
{
    uint64_t number = 0;
    if (value->length >= 8)
        memcpy(&number, value->bytes, 8);
    for (size_t i = 8; i < value->length; i++)
        if (value->bytes[i] != 'x')
            return 0;
    return number;
}

/* ---- writers ---- */

struct renumber {
    const uint8_t *bytes;
    size_t length;
};

static enum store_verdict renumber(void *context, const struct store_value *old, struct store_value *new)
{
    const struct renumber *renumber = context;
    *new = (struct store_value){.bytes = renumber->bytes, .length = renumber->length};
    return STORE_PUT;
}

static int batch_put(struct world_task *task, struct moment_client *client, unsigned writer)
{
    char keys[MOMENT_BATCH][32];
    uint64_t values[MOMENT_BATCH];
    struct store_item items[MOMENT_BATCH];
    const uint32_t first = (uint32_t)random_below(&task->random, MOMENT_KEYS);
    for (uint32_t i = 0; i < MOMENT_BATCH; i++) {
        const uint32_t key = (first + 7 * i) % MOMENT_KEYS;
        values[i] = client->count * 8 + i;
        moment_add(client, key, values[i]);
        items[i] = (struct store_item){.key = keys[i],
                                       .key_length = key_make(writer, key, keys[i]),
                                       .value = {.bytes = (const uint8_t *)&values[i], .length = 8}};
    }
    return store_multi_put(stores_session(task), items, MOMENT_BATCH);
}

/* One change of a key of its own. */
static int change_one(struct world_task *task, struct moment_client *client, unsigned writer)
{
    struct store_session *session = stores_session(task);
    char name[32];
    const uint32_t key = (uint32_t)random_below(&task->random, MOMENT_KEYS);
    const size_t name_length = key_make(writer, key, name);
    const uint64_t kind = random_below(&task->random, 100);
    uint64_t number = client->count * 8, whole;
    uint8_t *bytes;
    if (kind < 10)
        return batch_put(task, client, writer);
    if (kind < 25) {
        moment_add(client, key, 0);
        const int status = store_delete(session, name, name_length);
        return status == BANYAN_ENOTFOUND ? 0 : status;
    }
    moment_add(client, key, number);
    if (kind < 45)
        return store_splice(session, name, name_length, 0, &number, 8, &whole);
    const size_t length = value_make(task, number, &bytes);
    const struct renumber context = {.bytes = bytes, .length = length};
    if (kind < 65)
        return store_modify(session, name, name_length, STORE_NEED_VALUE, renumber,
                            (void *)(uintptr_t)&context, NULL, NULL);
    return store_put(session, name, name_length, bytes, length, kind % 2 ? 0 : UINT64_C(1) << 40);
}

static enum store_verdict count_up(void *context, const struct store_value *old, struct store_value *new)
{
    uint64_t *count = context;
    *count = 1;
    if (old)
        *count = value_number(old) + 1;
    *new = (struct store_value){.bytes = (const uint8_t *)count, .length = 8};
    return STORE_PUT;
}

static int increment(struct world_task *task, struct moment_client *client, uint64_t *clock)
{
    const uint32_t counter = (uint32_t)random_below(&task->random, COUNTERS);
    char key[16];
    uint64_t result;
    const size_t length = (size_t)snprintf(key, sizeof key, "%02u:counter", 3 * counter);
    moment_begin(client, clock);
    int status =
        store_modify(stores_session(task), key, length, STORE_NEED_VALUE, count_up, &result, NULL, NULL);
    moment_add(client, counter, result);
    moment_end(client, clock);
    return status;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t left = ((const struct moment_change *)a)->values[0],
                   right = ((const struct moment_change *)b)->values[0];
    return (left > right) - (left < right);
}

/* The increments of all writers, in the order of their results, as changes of a client for each counter. */
static void counters_gather(struct plan *plan)
{
    for (unsigned writer = 0; writer < plan->writers; writer++)
        for (size_t i = 0; i < plan->increments[writer].count; i++) {
            struct moment_change change = plan->increments[writer].changes[i];
            struct moment_client *client = &plan->clients[plan->writers + change.keys[0]];
            *moment_begin(client, &plan->clock) = change;
            client->changes[client->count - 1].keys[0] = 0;
        }
    for (unsigned i = 0; i < COUNTERS; i++) {
        struct moment_client *client = &plan->clients[plan->writers + i];
        qsort(client->changes, client->count, sizeof *client->changes, by_value);
        for (size_t j = 0; j < client->count; j++)
            assert_int_equal(client->changes[j].values[0], j + 1);
    }
}

static void write_on(struct world_task *task)
{
    struct plan *plan = stores_of(task)->context;
    const unsigned writer = task->number - READERS;
    struct moment_client *client = &plan->clients[writer];
    /* Relaxed: a hint that it is over. */
    while (atomic_load_relaxed(&plan->reading) && !task->world->error.code) {
        moment_begin(client, &plan->clock);
        int status = change_one(task, client, writer);
        moment_end(client, &plan->clock);
        if (!status && random_chance(&task->random, 0.2))
            status = increment(task, &plan->increments[writer], &plan->clock);
        if (status) {
            failed(task, status, "a change");
            return;
        }
        if (client->count % 16 == 0)
            task_yield();
    }
}

/* ---- readers ---- */

struct reading {
    struct world_task *task;
    struct moment_view *view;
    char last[64];
    size_t last_length;
};

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct reading *reading = context;
    const struct plan *plan = stores_of(reading->task)->context;
    char text[64];
    unsigned writer, number, lane;
    const uint64_t seen = value_number(value);
    memcpy(text, key, key_length);
    text[key_length] = 0;
    if (strstr(text, "counter")) {
        reading->view->values[plan->writers + (text[1] != '0')][0] = seen;
        return true;
    }
    const char *name = strstr(text, "name-");
    if (sscanf(text, "%u:", &lane) != 1 ||
        sscanf(name ? name + 5 : text + 3, "%u/%u", &number, &writer) != 2 || number >= MOMENT_KEYS ||
        writer >= plan->writers || !seen) {
        failed(reading->task, 0, "the cut has what nobody wrote");
        return false;
    }
    if (reading->last_length && strcmp(reading->last, text) >= 0)
        failed(reading->task, 0, "the cut is out of order");
    memcpy(reading->last, text, sizeof text);
    reading->last_length = key_length;
    reading->view->values[writer][number] = seen;
    return true;
}

static void read_one(struct world_task *task)
{
    static const struct tree_range all = {.from = NULL};
    struct plan *plan = stores_of(task)->context;
    /* Relaxed: each gets another one. */
    struct moment_view *view = &plan->views[atomic_add_relaxed(&plan->view_count, 1)];
    struct reading reading = {.task = task, .view = view};
    struct store_cut *cut;
    bool ended = false;
    view->values = calloc(plan->writers + COUNTERS, sizeof *view->values);
    if (!view->values)
        abort();
    view->opened_from = moment_stamp(&plan->clock);
    int status = store_cut_open(stores_session(task), &all, &cut);
    view->opened_to = moment_stamp(&plan->clock);
    while (!status && !ended) {
        status = store_cut_next(stores_session(task), cut, 1 + random_below(&task->random, 12),
                                1 + random_below(&task->random, 100000), visit, &reading, &ended);
        if (random_chance(&task->random, 0.5))
            task_sleep(random_below(&task->random, 60000));
    }
    store_cut_close(cut);
    if (status)
        failed(task, status, "a cut");
}

static void work(struct world_task *task)
{
    struct plan *plan = stores_of(task)->context;
    if (task->number >= READERS) {
        write_on(task);
        return;
    }
    for (unsigned i = 0; i < plan->cuts && !task->world->error.code; i++) {
        task_sleep(random_below(&task->random, 200000));
        read_one(task);
    }
    atomic_add_relaxed(&plan->reading, (uint32_t)-1); /* as above */
}

/* ---- whole runs ---- */

static void run(struct world_options *options, unsigned cuts, uint64_t *saved)
{
    struct stores stores;
    struct plan plan = {.cuts = cuts, .reading = READERS};
    unsigned wrong = 0;
    int status = stores_create(&stores, options);
    stores.context = &plan;
    plan.writers = status ? 0 : stores.world.task_count - READERS;
    plan.rooms = malloc((plan.writers + READERS) * (size_t)LONGEST);
    if (!plan.rooms || plan.writers > TASKS_MAX || READERS * cuts > 64 * READERS)
        abort();
    status = status ? status : world_run(&stores.world, work);
    if (!status)
        counters_gather(&plan);
    for (uint32_t i = 0; i < plan.view_count; i++) {
        if (!status && !moment_judge(plan.clients, plan.writers + COUNTERS, &plan.views[i], &wrong))
            status = world_fail(&stores.world, BANYAN_ECORRUPT,
                                "seed %" PRIu64 ": cut %" PRIu32 " is of no moment: client %u of %u",
                                options->seed, i, wrong, plan.writers);
        free(plan.views[i].values);
    }
    if (!status) {
        struct store_cut_stats stats;
        store_cut_stats(stores.world.computes[0].store, &stats);
        *saved += stats.saved;
        status = stats.open || stats.memory
                     ? world_fail(&stores.world, BANYAN_ECORRUPT, "something is left of the cuts")
                     : stores_check(&stores, NULL);
    }
    struct error error = stores.world.error;
    for (unsigned i = 0; i < TASKS_MAX + COUNTERS; i++)
        moment_client_free(&plan.clients[i]);
    for (unsigned i = 0; i < TASKS_MAX; i++)
        moment_client_free(&plan.increments[i]);
    free(plan.rooms);
    stores_destroy(&stores);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

static void threads(void **state)
{
    struct world_options options;
    uint64_t saved = 0;
    stores_options_default(&options);
    options.threads = 3;
    options.fibers = 2;
    options.owned = true;
    do /* until a writer has changed a key before a cut came to it, which a busy machine may put off */
        run(&options, world_rounds(30), &saved);
    while (!saved);
}

static void simulated(void **state)
{
    struct random random;
    uint64_t saved = 0;
    const uint64_t base = world_seed(1);
    for (unsigned i = 0; i < world_rounds(12); i++) {
        struct world_options options;
        random_seed(&random, base + i);
        simulated_options(&options, &random, base + i);
        options.compute_nodes = 1;
        options.threads = 2;
        options.fibers = 2 + (unsigned)random_below(&random, 3);
        options.owned = i % 2;
        run(&options, 6, &saved);
    }
    assert_true(saved > 0);
}

/* ---- the judge ---- */

static void judge(void **state)
{
    struct moment_client clients[2] = {{.count = 0}};
    uint64_t clock = 0, values[2][MOMENT_KEYS] = {{0}};
    struct moment_view view = {.values = values, .opened_to = 100};
    unsigned wrong;
    /* Client 0 writes 1, then client 1 writes 2, then client 0 writes 3 to another key. */
    moment_begin(&clients[0], &clock);
    moment_add(&clients[0], 0, 1);
    moment_end(&clients[0], &clock);
    moment_begin(&clients[1], &clock);
    moment_add(&clients[1], 0, 2);
    moment_end(&clients[1], &clock);
    moment_begin(&clients[0], &clock);
    moment_add(&clients[0], 1, 3);
    moment_end(&clients[0], &clock);
    assert_true(moment_judge(clients, 2, &view, &wrong)); /* nothing yet */
    values[1][0] = 2;
    assert_false(moment_judge(clients, 2, &view, &wrong)); /* the second write without the first */
    assert_int_equal(wrong, 2);
    values[0][0] = 1;
    assert_true(moment_judge(clients, 2, &view, &wrong));
    values[0][1] = 3;
    assert_true(moment_judge(clients, 2, &view, &wrong));
    values[1][0] = 0;
    assert_false(moment_judge(clients, 2, &view, &wrong));
    values[0][0] = 0;
    assert_false(moment_judge(clients, 2, &view, &wrong)); /* client 0's second write without its first */
    assert_int_equal(wrong, 0);
    values[0][0] = 1;
    values[1][0] = 2;
    view.opened_to = 4; /* the last write had not begun by then */
    assert_false(moment_judge(clients, 2, &view, &wrong));
    moment_client_free(&clients[0]);
    moment_client_free(&clients[1]);
}

/* `threads` or `simulated`: the thread sanitizer has nothing to see in the simulator, and is slow there. */
int main(int argc, char **argv)
{
    const struct CMUnitTest on_threads[] = {
        cmocka_unit_test(judge),
        cmocka_unit_test(threads),
    };
    const struct CMUnitTest in_time[] = {
        cmocka_unit_test(simulated),
    };
    return argc == 2 && !strcmp(argv[1], "simulated")
               ? cmocka_run_group_tests_name("store_cut_sim", in_time, NULL, NULL)
               : cmocka_run_group_tests_name("store_cut_threads", on_threads, NULL, NULL);
}
