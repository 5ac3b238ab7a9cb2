/*
 * test_carried.c - one of two disks is lost (P16): an owner logs in two copies, each memory node copies its
 * own pool into a journal of its own, and after any write that was acknowledged at disk-always each journal
 * alone has the last value of every key: short ones, records that travel, records of batches, which were
 * written before, and records that were moved. Values in pieces are told as missed where the lost disk had
 * them. One thread. BANYAN_SEED replays a seed, BANYAN_ROUNDS scales how many there are.
 */
#include "store/logged_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "disk/disk_simulated.h"
#include "persist/drain.h"
#include "persist/replay.h"
#include "tree/logging.h"

#define NODES     2u
#define KEYS      40u
#define STEPS     300u
#define VALUE_MAX 65000u
#define CLUSTER   78u

struct value {
    uint8_t *bytes; /* owned; NULL: none */
    size_t length;
};

struct world {
    struct random random;
    struct processes processes;
    struct logged_store side;
    struct value values[KEYS];
    struct disk *disks[NODES];
    struct journal *journals[NODES];
    struct persist_drain *drains[NODES];
    uint64_t judged;
};

static void good(int status, const struct error *error)
{
    if (status)
        fail_msg("%s: %s", error_name(status), error->text);
}

static uint64_t below(struct world *world, uint64_t bound)
{
    return random_below(&world->random, bound);
}

/* ---- the disks ---- */

static int persist(void *context, uint16_t node)
{
    struct world *world = context;
    struct error error = {0};
    uint64_t safe;
    int status = persist_drain_pass(world->drains[node], &error);
    return status ? status : journal_sync(world->journals[node], &safe, &error);
}

static int keep(void *context)
{
    int status = 0;
    for (uint16_t n = 0; n < NODES && !status; n++)
        status = persist(context, n);
    return status;
}

static void disks_begin(struct world *world)
{
    struct error error = {0};
    for (uint16_t n = 0; n < NODES; n++) {
        const struct fabric_target *targets[NODES] = {NULL};
        const struct disk_simulated_options options = {.seed = 1 + n};
        const struct journal_options journal = {
            .cluster = CLUSTER, .node = n, .file_bytes = 1 << 20, .buffer_bytes = 512 << 10, .seed = 1 + n};
        struct journal_reader reader = {.context = NULL};
        targets[n] = memory_node_target(world->processes.memory[n]);
        world->disks[n] = disk_simulated_create(&options);
        assert_non_null(world->disks[n]);
        good(journal_open(&world->journals[n], world->disks[n], &journal, &reader, &error), &error);
        good(persist_drain_create(&world->drains[n], targets, NODES, world->journals[n], &error), &error);
    }
}

static void disks_end(struct world *world)
{
    for (unsigned n = 0; n < NODES; n++) {
        persist_drain_destroy(world->drains[n]);
        journal_close(world->journals[n]);
        disk_close(world->disks[n]);
    }
}

/* ---- what one of them has ---- */

struct back {
    struct world *world;
    bool seen[KEYS];
};

static size_t key_make(unsigned number, char key[16])
{
    return (size_t)snprintf(key, 16, "k%05u", number * 7919u % 100000u);
}

static int read_back(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct back *back = context;
    char key[16];
    (void)index, (void)error;
    for (unsigned i = 0; i < KEYS; i++) {
        const struct value *value = &back->world->values[i];
        if (key_make(i, key) != entry->key_length || memcmp(key, entry->key, entry->key_length) != 0)
            continue;
        back->seen[i] = true;
        if (!value->bytes || value->length != entry->value_length ||
            memcmp(value->bytes, entry->value, value->length) != 0)
            fail_msg("key %u was read back as %zu bytes, and has %zu", i, entry->value_length,
                     value->bytes ? value->length : 0);
        return 0;
    }
    fail_msg("a key was read back that was never written");
    return 0;
}

/* Opens what this disk alone has after a loss of power. */
static struct persist_replay *left_open(struct world *world, unsigned node, struct disk **disk,
                                        struct journal **journal)
{
    const struct journal_options options = {.cluster = CLUSTER, .node = (uint16_t)node, .seed = 5};
    struct persist_replay *replay;
    struct error error = {0};
    *disk = disk_simulated_cut(world->disks[node]);
    assert_non_null(*disk);
    good(persist_replay_create(&replay, disk, 1, &error), &error);
    bool lost[NODES] = {false};
    lost[!node] = true;
    persist_replay_lost(replay, lost, NODES);
    struct journal_reader reader = {.visit = persist_replay_record, .context = replay};
    persist_replay_next(replay, 0);
    good(journal_open(journal, *disk, &options, &reader, &error), &error);
    return replay;
}

static void missed_count(void *context, const struct persist_replay_key *key)
{
    uint64_t *count = context;
    assert_true(key->key_length > 0);
    ++*count;
}

static uint64_t missed(const struct persist_replay *replay)
{
    uint64_t told = 0;
    const uint64_t count = persist_replay_missed(replay, missed_count, &told);
    assert_int_equal(count, told);
    return count;
}

static void judge(struct world *world, unsigned node)
{
    struct disk *disk;
    struct journal *journal;
    struct back back = {.world = world};
    struct error error = {0};
    const struct persist_replay_process *process;
    struct persist_replay *replay = left_open(world, node, &disk, &journal);
    good(persist_replay_all(replay, read_back, &back, &error), &error);
    for (unsigned i = 0; i < KEYS; i++)
        if (!back.seen[i] && world->values[i].bytes)
            fail_msg("the disk of memory node %u alone does not have key %u, of %zu bytes", node, i,
                     world->values[i].length);
    assert_int_equal(missed(replay), 0);
    for (uint32_t at = 0; (process = persist_replay_process_next(replay, &at));)
        assert_true(!process->alone && !process->silent);
    persist_replay_destroy(replay);
    journal_close(journal);
    disk_close(disk);
    world->judged++;
}

/* ---- operations ---- */

static void note(struct world *world, unsigned number, const uint8_t *bytes, size_t length)
{
    struct value *value = &world->values[number];
    free(value->bytes);
    *value = (struct value){.length = length};
    if (!bytes)
        return;
    value->bytes = malloc(length + 1);
    assert_non_null(value->bytes);
    memcpy(value->bytes, bytes, length);
}

static size_t value_draw(struct world *world, uint8_t *bytes)
{
    const uint64_t kind = below(world, 10), seed = random_next(&world->random);
    const size_t length = below(world, kind < 3 ? 30 : kind < 9 ? 2000 : VALUE_MAX);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_mix(seed + i / 8);
    return length;
}

static void op_put(struct world *world)
{
    static uint8_t bytes[VALUE_MAX];
    const unsigned number = (unsigned)below(world, KEYS);
    const size_t length = value_draw(world, bytes);
    char key[16];
    process_check(world->side.process,
                  store_put(world->side.records, key, key_make(number, key), bytes, length, 0));
    note(world, number, bytes, length);
}

/* A batch writes its records before it logs its entries. */
static void op_puts(struct world *world)
{
    static uint8_t bytes[8][VALUE_MAX];
    struct store_item items[8];
    char keys[8][16];
    const unsigned first = (unsigned)below(world, KEYS), count = 2 + (unsigned)below(world, 7);
    for (unsigned i = 0; i < count; i++) {
        const unsigned number = (first + i) % KEYS;
        items[i] = (struct store_item){.key = keys[i], .value = {.bytes = bytes[i]}};
        items[i].key_length = key_make(number, keys[i]);
        items[i].value.length = value_draw(world, bytes[i]);
    }
    process_check(world->side.process, store_multi_put(world->side.records, items, count));
    for (unsigned i = 0; i < count; i++)
        note(world, (first + i) % KEYS, bytes[i], items[i].value.length);
}

static void op_delete(struct world *world)
{
    const unsigned number = (unsigned)below(world, KEYS);
    char key[16];
    int status = store_delete(world->side.records, key, key_make(number, key));
    assert_int_equal(status, world->values[number].bytes ? 0 : BANYAN_ENOTFOUND);
    note(world, number, NULL, 0);
}

static void merge_some(struct world *world)
{
    struct process *process = world->side.process;
    struct tree_log_walk walk = {.least = UINT64_MAX};
    int status = below(world, 2)
                     ? log_flush_all(process->log, process->session)
                     : tree_log_apply(process->session, process->tree, &walk, 1 + (uint32_t)below(world, 60));
    process_check(process, status);
}

static void step(struct world *world)
{
    const uint64_t what = below(world, 100);
    if (what < 50)
        op_put(world);
    else if (what < 65)
        op_puts(world);
    else if (what < 75)
        op_delete(world);
    else if (what < 95)
        merge_some(world);
    else
        judge(world, (unsigned)below(world, NODES));
}

/* ---- all of it ---- */

static struct world *world_begin(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    const struct memory_options memory = {.pool_bytes = 256 << 20, .log_bytes = 64 << 20};
    assert_non_null(world);
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&world->random, seed);
    processes_open_as(&world->processes, NODES, &memory);
    world->processes.options.copies = 2;
    world->processes.options.seed = seed;
    world->processes.options.segment_bytes = 4 << 20;
    world->processes.options.keep = keep;
    world->processes.options.keep_context = world;
    disks_begin(world);
    logged_store_open(&world->side, &world->processes, "kept", random_next(&world->random));
    process_kept(world->side.process, FABRIC_KEPT_ON_DISK_ALWAYS, persist, world);
    return world;
}

static void world_end(struct world *world)
{
    logged_store_close(&world->side);
    for (unsigned i = 0; i < KEYS; i++)
        free(world->values[i].bytes);
    processes_close(&world->processes);
    disks_end(world);
    free(world);
}

static void world_run(uint64_t seed)
{
    struct world *world = world_begin(seed);
    struct log_stats stats;
    for (unsigned i = 0; i < STEPS; i++) {
        if (i % 30 == 29) /* there is no merger, and room is to be had */
            process_check(world->side.process,
                          log_flush_all(world->side.process->log, world->side.process->session));
        step(world);
    }
    for (unsigned n = 0; n < NODES; n++)
        judge(world, n);
    log_stats(world->side.process->log, &stats);
    assert_true(stats.carried > 0);
    assert_int_equal(stats.degraded + stats.uncarried, 0);
    world_end(world);
}

static void each_disk_alone(void **state)
{
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    const uint64_t count = 4 * (rounds ? strtoull(rounds, NULL, 10) : 1);
    (void)state;
    if (seed)
        world_run(strtoull(seed, NULL, 10));
    else
        for (uint64_t i = 1; i <= count; i++)
            world_run(i);
}

/* A put of a value that travels costs no round trip more than one that is short, but for the second copy's
 * own, behind the first. */
static void costs(void **state)
{
    struct world *world = world_begin(1);
    const struct fabric_cost *cost = &tree_session_stats(world->side.process->session)->cost;
    static uint8_t bytes[1000];
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        process_check(world->side.process, store_put(world->side.records, "key", 3, bytes, sizeof bytes, 0));
        const uint64_t trips = cost->round_trips;
        bytes[0]++;
        process_check(world->side.process, store_put(world->side.records, "key", 3, bytes, sizeof bytes, 0));
        assert_int_equal(cost->round_trips, trips + 3); /* first copy, second copy, both disks */
    }
    world_end(world);
}

/* One disk alone does not have the pieces: that is told, of the disk that lacks them. */
static void pieces_are_missed(void **state)
{
    struct world *world = world_begin(1);
    uint8_t *bytes = calloc(1, 200000);
    uint64_t all = 0;
    (void)state;
    assert_non_null(bytes);
    process_check(world->side.process, store_put(world->side.records, "key", 3, bytes, 200000, 0));
    for (unsigned n = 0; n < NODES; n++) {
        struct disk *disk;
        struct journal *journal;
        struct persist_replay *replay = left_open(world, n, &disk, &journal);
        all += missed(replay);
        persist_replay_destroy(replay);
        journal_close(journal);
        disk_close(disk);
    }
    assert_int_equal(all, 1);
    free(bytes);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_disk_alone), cmocka_unit_test(costs),
                                       cmocka_unit_test(pieces_are_missed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
