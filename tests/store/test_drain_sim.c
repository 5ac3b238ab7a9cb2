/*
 * test_drain_sim.c - a memory node is emptied (balance.h) in clusters of the simulator whose compute nodes
 * own ranges: the compute node that moves dies at each of its commands, and the owner of the leaves, and
 * both; the others finish what is half done, and empty it once more. And how long operations wait meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/task.h"
#include "owner/owner.h"
#include "store/balance.h"
#include "swarm/world.h"
#include "swarm/world_drain.h"
#include "swarm/world_ranges.h"

#define KEYS    160u
#define LEASE   UINT64_C(100000)
#define OPERATE 60u

enum { MOVER, OWNER, CLIENT, COMPUTES };

static const struct kind {
    const char *name;
    bool records, long_keys, log;
} kinds[] = {{"plain", false, false, false},
             {"long keys in logged ranges", false, true, true},
             {"records in logged ranges", true, false, true}};

static void options_of(struct world_options *options, const struct kind *kind, uint64_t seed)
{
    world_options_default(options);
    options->simulated = true;
    options->seed = seed;
    options->memory_nodes = 3;
    options->compute_nodes = COMPUTES;
    options->restarts = 3;
    options->ranges = true;
    options->log = kind->log;
    options->accept_refusals = kind->log; /* a log without room */
    options->pool_bytes = UINT64_C(16) << 20;
    options->log_bytes = options->pool_bytes / 4;
    options->params.read_lease_ns = 50000;
    options->params.peer_timeout_ns = 2000000;
    options->patience_ns = UINT64_C(50000000);
    options->events_max = 30000000;
    options->geometry =
        (struct format_geometry){.leaf_bytes = 512, .internal_bytes = 512, .key_bytes = 8, .value_bytes = 16};
    if (!kind->records && !kind->long_keys)
        return;
    options->records = kind->records;
    options->long_keys = kind->long_keys;
    options->geometry =
        (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                 .key_bytes = 60,
                                 .inline_key_bytes = 16,
                                 .value_bytes = 17,
                                 .value_variable = true,
                                 .leaf_bytes = 1024,
                                 .internal_bytes = 1024,
                                 .content = kind->records ? FORMAT_CONTENT_STORE : FORMAT_CONTENT_PLAIN};
}

static struct owner *owner_of(struct world_task *task)
{
    return task->world->computes[task->compute].keepers->owner;
}

static void good(struct world_task *task, int status, const char *what)
{
    if (status)
        world_fail(task->world, status, "%s: %s", what, tree_session_error(task->session)->text);
}

static void fill(struct world_task *task)
{
    for (uint64_t key = 0; key < KEYS && !driver_stopped(&task->driver); key++)
        world_operate(task, HISTORY_PUT, key, 0);
}

/* Most is the owner's; the mover and the client have a range each in the middle of it. */
static void take(struct world_task *task)
{
    struct owner_selection selection = {.tree = task->tree};
    good(task, owner_take(owner_of(task), task->session, &selection, NULL), "take all");
    for (uint64_t number = KEYS / 8; number < KEYS; number += KEYS / 8) {
        uint8_t key[FORMAT_KEY_MAX];
        size_t length = world_key(task->world, number, key);
        good(task, owner_split(owner_of(task), task->session, task->tree, key, length), "split");
    }
}

static void take_one(struct world_task *task)
{
    uint8_t key[FORMAT_KEY_MAX];
    const uint64_t number = task->compute == MOVER ? KEYS / 8 * 3 : KEYS / 8 * 6;
    struct owner_selection selection = {.tree = task->tree, .key = key, .keyed = true};
    selection.key_length = world_key(task->world, number, key);
    good(task, owner_take(owner_of(task), task->session, &selection, NULL), "take one");
}

/* ---- deaths ---- */

static void work(struct world_task *task)
{
    struct driver *driver = &task->driver;
    if (task->compute == MOVER) {
        const uint64_t empties_1 = 1 + 4; /* of world_drain_any: memory node 1, and takes it back */
        driver_drain(driver, empties_1);
    }
    for (unsigned i = 0; task->compute == CLIENT && i < OPERATE && !driver_stopped(driver); i++) {
        const uint64_t key = random_below(&task->random, KEYS);
        world_operate(task, i % 2 ? HISTORY_PUT : HISTORY_GET, key, 0);
    }
}

static void read_all(struct world_task *task)
{
    for (uint64_t key = 0; key < KEYS && !driver_stopped(&task->driver); key++)
        world_operate(task, HISTORY_GET, key, 0);
}

static void rest(void *context, struct world_task *task)
{
    (void)context;
    for (unsigned i = 0; i < OPERATE / 4 && !driver_stopped(&task->driver); i++)
        world_operate(task, HISTORY_GET, random_below(&task->random, KEYS), 0);
}

/* Whether a compute node died, at this command. */
static bool die_at(const struct kind *kind, unsigned victims, uint64_t effects, uint64_t seed)
{
    struct world world;
    struct world_options options;
    struct tree_check_report report;
    bool died = false, done;
    options_of(&options, kind, seed);
    int status = world_create(&world, &options);
    for (unsigned i = 0; i < 3 && !status; i++) /* all is to lie where it is to leave */
        memory_node_drain(world.memory[i], i != 1);
    if (!status)
        status = world_run_one(&world, OWNER, fill);
    if (!status)
        status = world_run_one(&world, OWNER, take);
    for (unsigned compute = MOVER; compute < COMPUTES && !status; compute += CLIENT - MOVER)
        status = world_run_one(&world, compute, take_one);
    world_drain_calm(&world);
    world_begin_losses(&world);
    for (unsigned compute = MOVER; compute <= OWNER && !status; compute++)
        if (victims & 1u << compute)
            world_kill_at_effect(&world, compute, effects, LEASE);
    if (!status)
        status = world_run(&world, work);
    for (unsigned i = 0; i < world.compute_count; i++)
        died = died || world.computes[i].dead;
    world_calm(&world);
    if (!status)
        status = world_revive(&world);
    if (!status)
        status = world_end_losses(&world);
    if (!status)
        status = world_drain_judged(&world, 1, rest, NULL, &done);
    if (!status && !done)
        status = world_fail(&world, BANYAN_ENOSPC, "memory node 1 was not emptied");
    if (!status)
        status = world_run_one(&world, world_survivor(&world), read_all);
    if (!status)
        status = world_check_locks(&world);
    if (!status)
        status = world_linearize(&world);
    if (!status)
        status = world_check(&world, &report);
    if (status)
        fail_msg("%s, victims %u, command %" PRIu64 ", seed %" PRIu64 ": %s", kind->name, victims, effects,
                 seed, world.error.text);
    world_destroy(&world);
    return died;
}

/* Every command (BANYAN_ROUNDS large enough), or some of them, at other distances each time. */
static void deaths(unsigned victims)
{
    const uint64_t runs = world_rounds(5);
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        uint64_t most = 1, last = 0;
        while (die_at(&kinds[kind], victims, most, 1 + kind)) /* about how many there are */
            most *= 2;
        const uint64_t stride = most > runs ? most / runs : 1;
        uint64_t count = 0;
        for (uint64_t at = 1 + kind % stride; die_at(&kinds[kind], victims, at, 1 + kind); at += stride) {
            last = at;
            count++;
        }
        assert_true(count > 2);
        print_message("%s: %" PRIu64 " deaths at commands up to %" PRIu64 ", victims %u\n", kinds[kind].name,
                      count, last, victims);
    }
}

static void who_moves_dies_at_any_command(void **state)
{
    (void)state;
    deaths(1u << MOVER);
}

static void the_owner_dies_at_any_command(void **state)
{
    (void)state;
    deaths(1u << OWNER);
}

static void both_die_at_any_command(void **state)
{
    (void)state;
    deaths(1u << MOVER | 1u << OWNER);
}

/* ---- what is left of a change of the map ---- */

static void halve(struct world_task *task)
{
    struct owner_selection selection = {.tree = task->tree};
    uint8_t key[FORMAT_KEY_MAX];
    const size_t length = world_key(task->world, KEYS / 2, key);
    good(task, owner_take(owner_of(task), task->session, &selection, NULL), "take all");
    good(task, owner_split(owner_of(task), task->session, task->tree, key, length), "split");
}

/* The first half of it. */
static void first_note(void *context, const struct owner_range *range)
{
    struct format_range *first = context;
    if (first->number == range->number && !range->lower_length)
        *first = (struct format_range){.number = range->number,
                                       .owner = range->owner,
                                       .epoch = range->epoch,
                                       .version = range->version,
                                       .logged = range->logged};
}

/* A process wrote a bound in the middle of the first half, published that, and died; it had no range. */
static void leave_a_bound(struct world_task *task)
{
    struct tree *map = NULL;
    uint8_t middle[FORMAT_KEY_MAX], key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    struct format_range bound = {.number = tree_number(task->tree)};
    good(task, owner_list(owner_of(task), task->session, first_note, &bound), "list");
    bound.state = FORMAT_RANGE_SPLIT;
    bound.lower_length = (uint8_t)world_key(task->world, KEYS / 4, middle);
    assert_in_range(bound.lower_length, 1, sizeof bound.lower);
    memcpy(bound.lower, middle, bound.lower_length);
    const size_t length = format_range_encode(&bound, key, value);
    good(task, tree_open(task->session, OWNER_MAP_NAME, &map), "open the map");
    if (map)
        good(task, tree_upsert(task->session, map, key, length, value, sizeof value), "leave a bound");
    tree_close(map);
}

/* The first leaf of the second half leaves though its neighbour is a bound that nobody makes. */
static void a_bound_that_was_left_holds_up_no_border(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        struct world world;
        struct world_options options;
        bool done = false;
        options_of(&options, &kinds[kind], 1);
        int status = world_create(&world, &options);
        for (unsigned i = 0; i < 3 && !status; i++) /* all is to lie where it is to leave */
            memory_node_drain(world.memory[i], i != 1);
        void (*const steps[])(struct world_task *) = {fill, halve, leave_a_bound};
        for (unsigned i = 0; i < sizeof steps / sizeof *steps && !status; i++)
            status = world_run_one(&world, OWNER, steps[i]);
        world_drain_calm(&world);
        world_calm(&world);
        if (!status)
            status = world_drain_judged(&world, 1, rest, NULL, &done);
        if (status || !done)
            fail_msg("%s: %s", kinds[kind].name, status ? world.error.text : "memory node 1 was not emptied");
        world_destroy(&world);
    }
}

/* ---- waiting ---- */

#define CLIENT_THREADS 2u
#define CLIENT_FIBERS  4u
#define MANY_KEYS      20000u
#define BATCH          12u
#define ALONE_NS       UINT64_C(20000000)

/* What the clients of a world meet. */
struct meter {
    uint64_t keys, begun, ends;
    bool drains, ended; /* until memory node 1 is empty, else until `ends` */
    uint64_t operations, longest, took;
    struct store_balance balance;
};

static size_t key_fixed(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(random_mix(number) >> (56 - 8 * i));
    return 8;
}

static void fill_many(struct world_task *task)
{
    struct meter *meter = task->world->context;
    uint8_t keys[BATCH][8], value[16] = {1};
    struct tree_item items[BATCH];
    const uint64_t tasks = task->world->task_count;
    for (uint64_t at = task->number; at * BATCH < meter->keys; at += tasks) {
        for (unsigned i = 0; i < BATCH; i++)
            items[i] = (struct tree_item){.key = keys[i],
                                          .key_length = key_fixed(at * BATCH + i, keys[i]),
                                          .value = value,
                                          .length = sizeof value};
        tree_multi_put(task->session, task->tree, items, BATCH);
        for (unsigned i = 0; i < BATCH; i++)
            good(task, items[i].status, "fill");
    }
}

static void operate_for_long(struct world_task *task, struct meter *meter)
{
    uint8_t key[8], value[16] = {2};
    while (!task->world->setting.failed && (meter->drains ? !meter->ended : task_now() < meter->ends)) {
        const uint64_t begun = task_now(), dice = random_next(&task->random);
        size_t length = sizeof value;
        const size_t key_length = key_fixed(dice % meter->keys, key);
        const int status = dice >> 63
                               ? tree_upsert(task->session, task->tree, key, key_length, value, sizeof value)
                               : tree_lookup(task->session, task->tree, key, key_length, value, &length);
        good(task, status, "an operation beside");
        const uint64_t took = task_now() - begun;
        meter->longest = took > meter->longest ? took : meter->longest;
        meter->operations++;
    }
}

static void drain_for_long(struct world_task *task, struct meter *meter)
{
    const struct world_compute *compute = &task->world->computes[task->compute];
    meter->balance = (struct store_balance){.session = task->session,
                                            .owner = compute->keepers ? compute->keepers->owner : NULL,
                                            .tree = task->tree,
                                            .drain = 1};
    good(task, store_balance_look(&meter->balance), "look");
    good(task, store_balance_run(&meter->balance), "drain");
    meter->ended = true;
}

/* ---- the rate ---- */

#define RATE        UINT64_C(300000)  /* bytes a second */
#define RATE_SLACK  UINT64_C(6000000) /* ns of it: what is caught up on, and a little more */
#define RATE_STEP   (UINT64_C(16) * 1024)
#define RATE_POINTS 4096u

struct pace {
    struct {
        uint64_t at, bytes;
    } points[RATE_POINTS];
    unsigned count;
};

static void pace_note(void *context, const struct store_balance *balance)
{
    struct pace *pace = context;
    const uint64_t bytes = balance->moved.bytes + balance->data_bytes;
    if (pace->count == RATE_POINTS || (pace->count && pace->points[pace->count - 1].bytes == bytes))
        return;
    pace->points[pace->count].at = task_now();
    pace->points[pace->count++].bytes = bytes;
}

static void drain_at_a_rate(struct world_task *task)
{
    struct store_balance balance = {.session = task->session,
                                    .tree = task->tree,
                                    .drain = 1,
                                    .bytes_per_second = RATE,
                                    .progress = pace_note,
                                    .context = task->world->context};
    good(task, store_balance_look(&balance), "look");
    good(task, store_balance_run(&balance), "drain");
}

static void meter_run(struct world_task *task)
{
    struct meter *meter = task->world->context;
    if (task->compute != MOVER)
        operate_for_long(task, meter);
    else if (!task->thread && !task->fiber && meter->drains)
        drain_for_long(task, meter);
}

static void take_halves(struct world_task *task)
{
    struct owner_selection all = {.tree = task->tree, .per_mille = task->compute == CLIENT ? 500 : 0};
    const uint8_t starts[] = {0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0};
    uint8_t key[8] = {0};
    for (unsigned i = 0; task->compute == OWNER && i < sizeof starts; i++) {
        key[0] = starts[i];
        good(task, owner_split(owner_of(task), task->session, task->tree, key, sizeof key), "split");
    }
    good(task, owner_take(owner_of(task), task->session, &all, NULL), "take");
}

static void measure(struct world *world, struct meter *meter, uint64_t keys, bool drains)
{
    *meter = (struct meter){
        .keys = keys, .begun = sim_now(world->sim), .ends = sim_now(world->sim) + ALONE_NS, .drains = drains};
    world->context = meter;
    if (world_run(world, meter_run))
        fail_msg("%s", world->error.text);
    meter->took = sim_now(world->sim) - meter->begun;
}

/* Ranges of the clients' compute nodes. */
static uint64_t owned_by_clients(const struct world *world)
{
    uint64_t owned = 0;
    for (unsigned i = OWNER; i <= CLIENT && world->computes[i].keepers; i++) {
        struct owner_stats stats;
        owner_stats(world->computes[i].keepers->owner, &stats);
        owned = owned * 100 + stats.owned;
    }
    return owned;
}

static double rate_of(const struct meter *meter)
{
    return (double)meter->operations / (double)meter->took * 1e9;
}

/* The bounds that are wanted of it: nobody waits 50 ms for it, and four fifths of what is done without it are
 * done beside it. BANYAN_ROUNDS: so many times the keys. */
static void operations_go_on_beside_it(void **state)
{
    (void)state;
    for (unsigned owned = 0; owned < 3; owned++) { /* shared, owned, owned and logged */
        struct world world;
        struct world_options options;
        struct meter fill_meter = {.keys = world_rounds(MANY_KEYS)};
        options_of(&options, &kinds[0], 1);
        options.memory_nodes = 4;
        options.threads = CLIENT_THREADS;
        options.fibers = CLIENT_FIBERS;
        options.ranges = owned > 0;
        options.log = owned > 1;
        options.geometry.leaf_bytes = options.geometry.internal_bytes = 1024;
        options.pool_bytes = (UINT64_C(256) << 20) + fill_meter.keys * 64;
        options.log_bytes = options.pool_bytes / 4;
        options.params.read_lease_ns = 2000000; /* much is under way, and adopting takes longer */
        options.params.peer_timeout_ns = 20000000;
        options.events_max = 0;
        int status = world_create(&world, &options);
        world.context = &fill_meter;
        for (unsigned i = 0; i < 4 && !status; i++) /* most is to lie where it is to leave */
            memory_node_drain(world.memory[i], i != 1);
        status = status ? status : world_run(&world, fill_many);
        for (unsigned compute = OWNER; compute <= CLIENT && owned && !status; compute++)
            status = world_run_one(&world, compute * CLIENT_THREADS * CLIENT_FIBERS, take_halves);
        world_drain_calm(&world);
        if (status)
            fail_msg("%s", world.error.text);
        const uint64_t ranges = owned_by_clients(&world);
        struct meter alone, beside;
        measure(&world, &alone, fill_meter.keys, false);
        measure(&world, &beside, fill_meter.keys, true);
        print_message(
            "%s: alone %.0f operations a second, longest %.1f us; beside a drain of %.1f ms, %" PRIu64
            " nodes and %" PRIu64 " borders: %.0f a second, longest %.1f us\n",
            owned ? owned > 1 ? "owned, logged" : "owned" : "shared", rate_of(&alone),
            (double)alone.longest / 1e3, (double)beside.took / 1e6,
            beside.balance.moved.outcomes[TREE_MOVE_DONE], beside.balance.borders, rate_of(&beside),
            (double)beside.longest / 1e3);
        assert_true(beside.balance.moved.outcomes[TREE_MOVE_DONE] > fill_meter.keys / 60);
        assert_int_equal(beside.balance.left[TREE_MOVE_FIRST], 0);
        assert_true(!owned || beside.balance.borders > 0);
        assert_int_equal(owned_by_clients(&world), ranges); /* what borders took along is a key each */
        assert_true(beside.longest < UINT64_C(50000000));
        /* However much is cached of a range, nothing waits for its border to move on. */
        assert_true(owned != 1 || beside.longest < alone.longest + UINT64_C(500000));
        assert_true(rate_of(&beside) > 0.8 * rate_of(&alone));
        world_destroy(&world);
    }
}

/* Between any two moments: also behind the walks that only look, for which it does not make up. */
static void it_keeps_to_its_rate(void **state)
{
    (void)state;
    static struct pace pace;
    struct world world;
    struct world_options options;
    struct meter meter = {.keys = 3 * MANY_KEYS};
    options_of(&options, &kinds[0], 1);
    options.ranges = false;
    options.params.wire_ns = 100000; /* so far that a walk which only looks takes long, too */
    options.events_max = 0;
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 1024;
    options.pool_bytes = UINT64_C(64) << 20;
    int status = world_create(&world, &options);
    for (unsigned i = 0; i < 3 && !status; i++)
        memory_node_drain(world.memory[i], i != 1);
    world.context = &meter;
    status = status ? status : world_run(&world, fill_many);
    world_drain_calm(&world);
    pace.count = 0;
    world.context = &pace;
    status = status ? status : world_run_one(&world, 0, drain_at_a_rate);
    if (status)
        fail_msg("%s", world.error.text);
    assert_in_range(pace.count, 20, RATE_POINTS - 1);
    for (unsigned i = 0; i < pace.count; i++)
        for (unsigned j = i + 1; j < pace.count; j++) {
            const uint64_t passed = pace.points[j].at - pace.points[i].at + RATE_SLACK;
            assert_true(pace.points[j].bytes - pace.points[i].bytes <=
                        RATE_STEP + (uint64_t)((double)RATE * (double)passed / 1e9));
        }
    world_destroy(&world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_moves_dies_at_any_command),
        cmocka_unit_test(the_owner_dies_at_any_command),
        cmocka_unit_test(both_die_at_any_command),
        cmocka_unit_test(a_bound_that_was_left_holds_up_no_border),
        cmocka_unit_test(operations_go_on_beside_it),
        cmocka_unit_test(it_keeps_to_its_rate),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
