/*
 * test_rules.c - rules that random worlds with one index meet too rarely: two indexes whose leaves change
 * places in memory under the links that a reader has cached, the order in which a lock's waiters are served,
 * and leaves that stay half split for long because their lock's owner died.
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
#include "swarm/churn_world.h"

/* ---- two indexes, one memory --------------------------------------------------------------------- */

#define SHARED_KEYS 400u

/* All keys are in one of the indexes. Then they move to the other, into the leaves that the first one gave
 * up; the reader's cache still leads there. */
struct exchange {
    struct tree *trees[2][2]; /* [index][compute node] */
    unsigned full;            /* the index with the keys */
    unsigned round;
    gaddr leaves[2][SHARED_KEYS]; /* of the full one, before and after the move */
    unsigned counts[2];
    unsigned reused, found;
};

static void exchange_open(struct world_task *task)
{
    struct exchange *exchange = task->world->context;
    struct tree **other = &exchange->trees[1][task->compute];
    exchange->trees[0][task->compute] = task->tree;
    int status = task->compute ? tree_open(task->session, "other", other)
                               : tree_create(task->session, "other", &task->world->options.geometry, other);
    if (status)
        world_fail(task->world, status, "the second index: %s", tree_session_error(task->session)->text);
}

static void leaf_visit(void *context, gaddr node, uint32_t bytes)
{
    struct exchange *exchange = context;
    unsigned *count = &exchange->counts[1];
    if (*count < SHARED_KEYS)
        exchange->leaves[1][(*count)++] = node;
}

/* The nodes of the full index; those before become [0]. */
static void leaves_note(struct world_task *task)
{
    struct exchange *exchange = task->world->context;
    struct tree_check_report report;
    for (unsigned i = 0; i < exchange->counts[1]; i++)
        exchange->leaves[0][i] = exchange->leaves[1][i];
    exchange->counts[0] = exchange->counts[1];
    exchange->counts[1] = 0;
    int status = tree_check(task->session, exchange->trees[exchange->full][0], &report, leaf_visit, exchange);
    if (status)
        world_fail(task->world, status, "check: %s", tree_session_error(task->session)->text);
    for (unsigned i = 0; i < exchange->counts[1]; i++)
        for (unsigned j = 0; j < exchange->counts[0]; j++)
            exchange->reused += exchange->leaves[1][i] == exchange->leaves[0][j];
}

static void put(struct world_task *task, struct tree *tree, uint64_t number, uint64_t value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX];
    size_t length = world_key(task->world, number, key), size = world_value(task->world, value, bytes);
    int status = tree_upsert(task->session, tree, key, length, bytes, size);
    if (status)
        world_fail(task->world, status, "put: %s", tree_session_error(task->session)->text);
}

static uint64_t exchange_value(unsigned index, uint64_t key)
{
    return 1 + key * 2 + index;
}

static void exchange_fill(struct world_task *task)
{
    struct exchange *exchange = task->world->context;
    for (uint64_t i = 0; i < SHARED_KEYS; i++)
        put(task, exchange->trees[exchange->full][0], i, exchange_value(exchange->full, i));
    leaves_note(task);
}

/* Ascending out of the one, descending into the other: what is given up last is taken first, and the keys of
 * a leaf come to lie about where they lay before. */
static void exchange_move(struct world_task *task)
{
    struct exchange *exchange = task->world->context;
    uint8_t key[FORMAT_KEY_MAX];
    struct tree *from = exchange->trees[exchange->full][0];
    for (uint64_t i = 0; i < SHARED_KEYS; i++) {
        int status = tree_delete(task->session, from, key, world_key(task->world, i, key));
        if (status)
            world_fail(task->world, status, "delete: %s", tree_session_error(task->session)->text);
    }
    exchange->full ^= 1;
    for (uint64_t i = SHARED_KEYS; i-- > 0;)
        put(task, exchange->trees[exchange->full][0], i, exchange_value(exchange->full, i));
    leaves_note(task);
}

struct seen {
    struct world *world;
    uint64_t key, value;
};

static bool see(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct seen *seen = context;
    seen->key = world_key_number(seen->world, key, key_length);
    seen->value = world_value_number(seen->world, value, length);
    return false;
}

/* The key's value in that index, 0 if it has none, by one of the ways to ask for it. */
static uint64_t ask(struct world_task *task, struct tree *tree, uint64_t number, unsigned way)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t key_length = world_key(task->world, number, key);
    struct tree_item item = {.key = key, .key_length = key_length, .value = value, .length = sizeof value};
    struct seen seen = {.world = task->world};
    struct tree_range range = {
        .from = key, .from_length = key_length, .to = key, .to_length = key_length, .reverse = way == 3};
    if (way == 0)
        item.status = tree_lookup(task->session, tree, key, key_length, value, &item.length);
    else if (way == 1)
        tree_multi_get(task->session, tree, &item, 1);
    else
        item.status = tree_scan(task->session, tree, &range, see, &seen);
    if (item.status && item.status != BANYAN_ENOTFOUND)
        world_fail(task->world, item.status, "reading: %s", tree_session_error(task->session)->text);
    if (way > 1)
        return seen.value;
    return item.status ? 0 : world_value_number(task->world, value, item.length);
}

static void exchange_read_full(struct world_task *task)
{
    struct exchange *exchange = task->world->context;
    for (uint64_t i = 0; i < SHARED_KEYS; i++)
        if (ask(task, exchange->trees[exchange->full][1], i, exchange->round % 4) !=
            exchange_value(exchange->full, i))
            world_fail(task->world, BANYAN_ECORRUPT, "key %" PRIu64 " is not there", i);
}

static void exchange_read_empty(struct world_task *task)
{
    struct exchange *exchange = task->world->context;
    for (uint64_t i = 0; i < SHARED_KEYS; i++)
        exchange->found += ask(task, exchange->trees[!exchange->full][1], i, exchange->round % 4) != 0;
}

static void indexes_exchange_leaves(void **state)
{
    struct world world;
    struct world_options options;
    struct exchange exchange = {0};
    world_options_default(&options);
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 512;
    options.compute_nodes = 2;
    int status = world_create(&world, &options);
    world.context = &exchange;
    status = status ? status : world_run_one(&world, 0, exchange_open);
    status = status ? status : world_run_one(&world, 1, exchange_open);
    status = status ? status : world_run_one(&world, 0, exchange_fill);
    unsigned rounds = world_rounds(24);
    for (exchange.round = 0; exchange.round < rounds && !status; exchange.round++) {
        status = world_run_one(&world, 1, exchange_read_full);
        status = status ? status : world_run_one(&world, 0, exchange_move);
        status = status ? status : world_run_one(&world, 1, exchange_read_empty);
    }
    struct error error = world.error;
    for (unsigned i = 0; i < 2; i++)
        if (exchange.trees[1][i])
            tree_close(exchange.trees[1][i]);
    world_destroy(&world);
    if (status)
        fail_msg("two indexes: %d: %s", status, error.text);
    assert_true(exchange.reused > 10 * rounds); /* else nothing was put to the test */
    assert_int_equal(exchange.found, 0);
}

/* ---- a lock's waiters ---------------------------------------------------------------------------- */

#define HOT_ROUNDS 150u

static void change_hot(struct world_task *task)
{
    for (unsigned i = 0; i < HOT_ROUNDS && !task->world->error.code; i++)
        world_operate(task, HISTORY_PUT, 7, 0);
}

/* Without `delegate`: there the holder does what waits for it, and no order among the waiters shows. */
static void hot_world(struct world *world, unsigned computes, unsigned fibers)
{
    struct world_options options;
    struct tree_switches switches = {.cache_bytes = 8u << 20};
    assert_int_equal(tree_switches_preset(&switches, "banyan", NULL), 0);
    switches.delegate = false;
    world_options_default(&options);
    options.switches = &switches;
    options.simulated = true;
    options.compute_nodes = computes;
    options.fibers = fibers;
    int status = world_create(world, &options);
    status = status ? status : world_run(world, change_hot);
    struct error error = world->error;
    if (status) {
        world_destroy(world);
        fail_msg("one hot key: %d: %s", status, error.text);
    }
}

/* The most operations of other tasks that began after one of this task's and were done before it. */
static unsigned overtaken(const struct world *world)
{
    unsigned most = 0;
    for (unsigned i = 0; i < world->task_count; i++) {
        const struct history_log *own = &world->tasks[i].log;
        for (size_t at = 0; at < own->count; at++) {
            unsigned times = 0;
            for (unsigned j = 0; j < world->task_count; j++) {
                const struct history_log *log = &world->tasks[j].log;
                for (size_t k = 0; k < log->count && j != i; k++)
                    times += log->ops[k].invoked > own->ops[at].invoked &&
                             log->ops[k].returned < own->ops[at].returned;
            }
            most = times > most ? times : most;
        }
    }
    return most;
}

static void waiters_are_served_in_turn(void **state)
{
    struct world world;
    hot_world(&world, 1, 8);
    unsigned most = overtaken(&world);
    world_destroy(&world);
    printf("one lock, 8 waiters of one compute node: overtaken at most %u times\n", most);
    assert_true(most <= 8);
}

struct event {
    uint64_t time;
    unsigned compute;
};

static int event_order(const void *left, const void *right)
{
    const struct event *a = left, *b = right;
    return a->time < b->time ? -1 : a->time > b->time;
}

/* The most operations in a row that one compute node did while another one was not done yet. */
static unsigned longest_run(const struct world *world)
{
    static struct event events[2 * 4 * HOT_ROUNDS];
    size_t count = 0, left[2] = {0};
    for (unsigned i = 0; i < world->task_count; i++)
        for (size_t k = 0; k < world->tasks[i].log.count && count < sizeof events / sizeof events[0]; k++) {
            events[count++] = (struct event){world->tasks[i].log.ops[k].returned, world->tasks[i].compute};
            left[world->tasks[i].compute]++;
        }
    qsort(events, count, sizeof *events, event_order);
    unsigned most = 0, run = 0;
    for (size_t i = 0; i < count && left[0] && left[1]; i++) {
        run = i && events[i].compute == events[i - 1].compute ? run + 1 : 1;
        most = run > most ? run : most;
        left[events[i].compute]--;
    }
    return most;
}

static void handovers_end(void **state)
{
    struct world world;
    hot_world(&world, 2, 4);
    unsigned most = longest_run(&world);
    world_destroy(&world);
    printf("one lock, 2 compute nodes: %u operations of one in a row at most\n", most);
    assert_true(most < 100);
}

/* ---- half split for long ------------------------------------------------------------------------- */

/*
 * Until a split is finished no session may go where the marked header points: else the sibling's entries
 * change while the leaf's old slots still answer. Some compute nodes split leaves and die at it, their locks
 * kept for long; one has cached the old parents and keeps reading; one comes new, asks for what is not there,
 * which leads it to the headers, and changes what lies beside it.
 */
#define HALF_KEYS      48u /* times 4: there from the beginning; + 1: the splitter's; + 2: never */
#define HALF_ROUNDS    60u
#define HALF_EXPLORERS 4u
#define HALF_SPLITTERS 3u

static void half_fill(struct world_task *task)
{
    for (uint64_t i = 0; i < HALF_KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, 4 * i, 0);
}

static void half_explore(struct world_task *task)
{
    uint64_t key = 4 * random_below(&task->random, HALF_KEYS);
    /* The first one forgets the old parent, the next ones fetch it anew, and could post what they find. */
    for (unsigned i = 0; i < 3; i++)
        if (ask(task, task->tree, key + 2, task->compute == 1 ? 0 : 2))
            world_fail(task->world, BANYAN_ECORRUPT, "key %" PRIu64 " was never written", key + 2);
    world_operate(task, HISTORY_UPDATE, key, 0);
}

static void half_work(struct world_task *task)
{
    struct world *world = task->world;
    if (task->compute && task->fiber)
        return;
    if (task->compute && task->compute <= HALF_EXPLORERS)
        task_sleep(random_below(&task->random, 100000));
    for (unsigned round = 0; round < HALF_ROUNDS && !world->error.code; round++) {
        if (task->compute == 0)
            for (unsigned i = 0; i < 4; i++)
                world_operate(task, HISTORY_GET, 4 * random_below(&task->random, HALF_KEYS), 0);
        else if (task->compute <= HALF_EXPLORERS)
            half_explore(task);
        else if (round < HALF_KEYS) /* splitters: each begins somewhere else */
            world_operate(task, HISTORY_INSERT, 4 * ((round + 16 * task->compute) % HALF_KEYS) + 1, 0);
    }
}

/* A session that walks right from a parent that it has just fetched posts what is missing there. */
static void half_settle(struct world_task *task)
{
    for (uint64_t i = 0; i < 3 * 2 * HALF_KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_UPDATE, i / 6 * 4 + i / 3 % 2, 0);
}

static void half_world(uint64_t seed, uint64_t *marked)
{
    struct world world;
    struct world_options options;
    struct random random;
    world_options_default(&options);
    options.simulated = true;
    options.seed = seed;
    options.geometry.value_bytes = 80; /* a few slots a leaf */
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 512;
    options.compute_nodes = 1 + HALF_EXPLORERS + HALF_SPLITTERS;
    options.fibers = 8;
    sim_faults_hostile(&options.faults);
    options.faults.spread = 1;
    options.faults.list_spread_ns = 6000;
    random_seed(&random, seed);
    int status = world_create(&world, &options);
    status = status ? status : world_run_one(&world, 0, half_fill);
    for (unsigned i = 0; i < HALF_SPLITTERS && !status; i++)
        status = world_kill_at(&world, 1 + HALF_EXPLORERS + i, 1000 + random_below(&random, 100000),
                               400000 + random_below(&random, 1000000));
    status = status ? status : world_run(&world, half_work);
    status = status ? status : world_run_one(&world, 0, half_settle);
    status = status ? status : world_linearize(&world);
    struct tree_check_report report;
    status = status ? status : world_check(&world, &report);
    if (!status && (report.missing_parents || report.marked))
        status = world_fail(&world, BANYAN_ECORRUPT,
                            "traversed, and still %" PRIu64 " marked, %" PRIu64 " without parent",
                            report.marked, report.missing_parents);
    struct error error = world.error;
    *marked += world.marked_at_death;
    world_destroy(&world);
    if (status)
        fail_msg("half split: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_rules", status, error.text, seed);
}

static void half_split_leaves_hide_their_siblings(void **state)
{
    uint64_t marked = 0;
    for (unsigned round = 0; round < world_rounds(300); round++)
        half_world(world_seed(4000 + round), &marked);
    printf("leaves half split at a death: %" PRIu64 "\n", marked);
    assert_true(marked > 0 || world_rounds(300) < 50);
}

/* ---- half split, with long keys ------------------------------------------------------------------ */

/*
 * What tree_check visits is what a reclaimer spares. So it must name the key blocks of a leaf that is still
 * half split, each of them once although the leaf and its sibling may both show a slot: as many as when the
 * splits are finished, and the same.
 */
#define KEPT_KEYS 150u

struct kept {
    gaddr blocks[2][2 * KEPT_KEYS]; /* before the leaves are finished, and after */
    unsigned counts[2], turn;
    uint64_t marked;
};

static void kept_fill(struct world_task *task)
{
    for (uint64_t i = 0; i < KEPT_KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, 2 * i, 0);
}

static void kept_split(struct world_task *task)
{
    for (uint64_t i = 0; task->compute && i < KEPT_KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, 2 * ((i + 37 * task->number) % KEPT_KEYS) + 1, 0);
}

/* Updates make no blocks and free none; the next session that locks a half-split leaf finishes it. */
static void kept_finish(struct world_task *task)
{
    for (uint64_t i = 0; i < 2 * KEPT_KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_UPDATE, i, 0);
}

static void kept_visit(void *context, gaddr node, uint32_t bytes)
{
    struct kept *kept = context;
    if (bytes < 512 && kept->counts[kept->turn] < 2 * KEPT_KEYS)
        kept->blocks[kept->turn][kept->counts[kept->turn]++] = node;
}

static int address_order(const void *left, const void *right)
{
    const gaddr *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

static void kept_collect(struct world_task *task)
{
    struct kept *kept = task->world->context;
    struct tree_check_report report;
    int status = tree_check(task->session, task->tree, &report, kept_visit, kept);
    if (status)
        world_fail(task->world, status, "check: %s", tree_session_error(task->session)->text);
    if (report.key_blocks != kept->counts[kept->turn])
        world_fail(task->world, BANYAN_ECORRUPT, "visited %u of %" PRIu64 " key blocks",
                   kept->counts[kept->turn], report.key_blocks);
    if (!kept->turn)
        kept->marked += report.marked;
    else if (report.marked)
        world_fail(task->world, BANYAN_ECORRUPT, "still %" PRIu64 " leaves half split", report.marked);
    qsort(kept->blocks[kept->turn], kept->counts[kept->turn], sizeof(gaddr), address_order);
    kept->turn++;
}

static void kept_world(uint64_t seed, struct kept *kept)
{
    struct world world;
    struct world_options options;
    struct random random;
    world_options_default(&options);
    options.simulated = true;
    options.seed = seed;
    options.geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                .key_bytes = 60,
                                                .inline_key_bytes = 16,
                                                .value_bytes = 40,
                                                .leaf_bytes = 1024,
                                                .internal_bytes = 1024};
    options.long_keys = true;
    options.compute_nodes = 5;
    options.memory_nodes = 1 + (unsigned)(seed % 2);
    sim_faults_hostile(&options.faults);
    options.faults.spread = 1;
    options.faults.list_spread_ns = 6000;
    random_seed(&random, seed);
    kept->counts[0] = kept->counts[1] = kept->turn = 0;
    int status = world_create(&world, &options);
    world.context = kept;
    status = status ? status : world_run_one(&world, 0, kept_fill);
    for (unsigned i = 1; i < options.compute_nodes && !status; i++)
        status = world_kill_at(&world, i, 1000 + random_below(&random, 200000), 1000);
    status = status ? status : world_run(&world, kept_split);
    status = status ? status : world_run_one(&world, 0, kept_collect);
    status = status ? status : world_run_one(&world, 0, kept_finish);
    status = status ? status : world_run_one(&world, 0, kept_collect);
    if (!status && (kept->counts[0] != kept->counts[1] ||
                    memcmp(kept->blocks[0], kept->blocks[1], kept->counts[0] * sizeof(gaddr))))
        status = world_fail(&world, BANYAN_ECORRUPT, "%u key blocks before, %u afterwards, or others",
                            kept->counts[0], kept->counts[1]);
    status = status ? status : world_linearize(&world);
    status = status ? status : world_check(&world, NULL);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("key blocks of half split leaves: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_rules",
                 status, error.text, seed);
}

static void half_split_leaves_keep_their_key_blocks(void **state)
{
    static struct kept kept;
    kept.marked = 0;
    for (unsigned round = 0; round < world_rounds(150); round++)
        kept_world(world_seed(5000 + round), &kept);
    printf("half split leaves checked: %" PRIu64 "\n", kept.marked);
    assert_true(kept.marked > 0 || world_rounds(150) < 50 || getenv("BANYAN_SEED"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_exchange_leaves),
        cmocka_unit_test(waiters_are_served_in_turn),
        cmocka_unit_test(handovers_end),
        cmocka_unit_test(half_split_leaves_hide_their_siblings),
        cmocka_unit_test(half_split_leaves_keep_their_key_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
