/*
 * test_persist.c - what owners log is on the disk: random operations of all sizes on a store in a range that
 * is owned and logged, with mergings, moves and deaths of owners, while a drain copies the log into a journal
 * on a simulated disk whose power may be cut between any two steps. What is read back is, of each key, the
 * value at the last sync or a later one; and right behind a sync the last one. One thread. BANYAN_SEED
 * replays a seed, BANYAN_ROUNDS scales how many there are.
 */
#include "store/logged_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "disk/disk_simulated.h"
#include "persist/drain.h"
#include "persist/format.h"
#include "persist/replay.h"
#include "tree/logging.h"

#define KEYS       60u
#define STEPS      500u
#define VALUE_MAX  (300u << 10)
#define GRAVES_MAX 64u
#define VERSIONS   256u
#define CLUSTER    77u

/* A value that a key had; NULL bytes: none. */
struct version {
    uint8_t *bytes; /* owned */
    size_t length;
    uint64_t expires;
};

/* The last one is the key's; those before may be what a cut leaves. */
struct entry {
    struct version versions[VERSIONS];
    unsigned count;
};

struct world {
    struct random random;
    struct processes processes;
    struct logged_store side, graves[GRAVES_MAX];
    unsigned grave_count;
    struct entry entries[KEYS];
    uint8_t *bytes;
    struct disk *disk;
    struct journal *journal;
    struct persist_drain *drain;
    uint64_t cuts, recovered;
};

static uint64_t below(struct world *world, uint64_t bound)
{
    return random_below(&world->random, bound);
}

static void good(int status, const struct error *error)
{
    if (status)
        fail_msg("%s: %s", error_name(status), error->text);
}

static void check(const struct world *world, int status)
{
    process_check(world->side.process, status);
}

/* ---- the disk ---- */

static int drain_before_reuse(void *context)
{
    struct world *world = context;
    struct error error = {0};
    return persist_drain_pass(world->drain, &error);
}

static void disk_begin(struct world *world)
{
    const struct disk_simulated_options options = {.seed = random_next(&world->random),
                                                   .stale = below(world, 2)};
    const struct fabric_target *targets[PROCESSES_NODES];
    const struct journal_options journal = {
        .cluster = CLUSTER, .file_bytes = 1 << 20, .buffer_bytes = 512 << 10, .seed = 1 + below(world, 1000)};
    struct journal_reader reader = {.context = NULL};
    struct error error = {0};
    for (unsigned i = 0; i < PROCESSES_NODES; i++)
        targets[i] = memory_node_target(world->processes.memory[i]);
    world->disk = disk_simulated_create(&options);
    assert_non_null(world->disk);
    good(journal_open(&world->journal, world->disk, &journal, &reader, &error), &error);
    good(persist_drain_create(&world->drain, targets, PROCESSES_NODES, world->journal, &error), &error);
}

static void disk_end(struct world *world)
{
    persist_drain_destroy(world->drain);
    journal_close(world->journal);
    disk_close(world->disk);
}

/* Everything until now is safe. */
static void sync_all(struct world *world)
{
    struct error error = {0};
    uint64_t safe;
    good(persist_drain_pass(world->drain, &error), &error);
    good(journal_sync(world->journal, &safe, &error), &error);
    for (unsigned i = 0; i < KEYS; i++) {
        struct entry *entry = &world->entries[i];
        for (unsigned k = 0; k + 1 < entry->count; k++)
            free(entry->versions[k].bytes);
        entry->versions[0] = entry->versions[entry->count - 1];
        entry->count = 1;
    }
}

/* ---- what is read back ---- */

struct back {
    struct world *world;
    bool seen[KEYS];
    char last[16];
    size_t last_length;
};

static size_t key_make(unsigned number, char key[16])
{
    return (size_t)snprintf(key, 16, "k%05u", number * 7919u % 100000u);
}

static bool is_version(const struct version *version, const struct archive_entry *entry)
{
    if (!entry)
        return !version->bytes;
    return version->bytes && version->length == entry->value_length && version->expires == entry->expires &&
           !memcmp(version->bytes, entry->value, version->length);
}

static void judge(const struct world *world, unsigned number, const struct archive_entry *entry)
{
    const struct entry *known = &world->entries[number];
    for (unsigned i = 0; i < known->count; i++)
        if (is_version(&known->versions[i], entry))
            return;
    fail_msg("key %u was read back as none of its last %u values: %zu bytes", number, known->count,
             entry ? entry->value_length : 0);
}

static int read_back(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct back *back = context;
    char key[16];
    (void)index, (void)error;
    assert_true(!back->last_length || memcmp(back->last, entry->key, back->last_length) < 0);
    memcpy(back->last, entry->key, entry->key_length);
    back->last_length = entry->key_length;
    for (unsigned i = 0; i < KEYS; i++)
        if (key_make(i, key) == entry->key_length && !memcmp(key, entry->key, entry->key_length)) {
            assert_false(back->seen[i]);
            back->seen[i] = true;
            judge(back->world, i, entry);
            return 0;
        }
    fail_msg("a key was read back that was never written: %.*s", (int)entry->key_length, entry->key);
    return 0;
}

/* Power is cut; the disk's next life is read. The old one goes on. */
static void cut(struct world *world)
{
    struct disk *disk = disk_simulated_cut(world->disk);
    struct back back = {.world = world};
    struct persist_replay *replay;
    struct persist_replay_stats stats;
    const struct journal_options options = {.cluster = CLUSTER, .seed = 5};
    struct journal *journal;
    struct error error = {0};
    assert_non_null(disk);
    good(persist_replay_create(&replay, &disk, 1, &error), &error);
    struct journal_reader reader = {.visit = persist_replay_record, .context = replay};
    persist_replay_next(replay, 0);
    good(journal_open(&journal, disk, &options, &reader, &error), &error);
    good(persist_replay_all(replay, read_back, &back, &error), &error);
    for (unsigned i = 0; i < KEYS; i++)
        if (!back.seen[i])
            judge(world, i, NULL);
    persist_replay_stats(replay, &stats);
    world->cuts++;
    world->recovered += stats.keys;
    persist_replay_destroy(replay);
    journal_close(journal);
    disk_close(disk);
}

/* ---- operations ---- */

static struct version *last(struct world *world, unsigned number)
{
    struct entry *entry = &world->entries[number];
    return &entry->versions[entry->count - 1];
}

static void note(struct world *world, unsigned number, const uint8_t *bytes, size_t length, uint64_t expires)
{
    struct entry *entry = &world->entries[number];
    struct version version = {.length = length, .expires = expires};
    if (bytes) {
        version.bytes = malloc(length + 1);
        assert_non_null(version.bytes);
        memcpy(version.bytes, bytes, length);
    }
    if (entry->count == VERSIONS)
        sync_all(world);
    entry->versions[entry->count++] = version;
}

static size_t length_draw(struct world *world)
{
    uint64_t kind = below(world, 100);
    if (kind < 40)
        return below(world, 60);
    if (kind < 80)
        return below(world, 3000);
    return kind < 95 ? below(world, 70000) : below(world, VALUE_MAX);
}

static void bytes_draw(struct world *world, uint8_t *bytes, size_t length)
{
    const uint64_t seed = random_next(&world->random);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_mix(seed + i / 8);
}

static void op_put(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    char key[16];
    size_t length = length_draw(world);
    uint64_t expires = below(world, 4) ? 0 : UINT64_C(1) << 50 | below(world, 1000);
    bytes_draw(world, world->bytes, length);
    check(world, store_put(world->side.records, key, key_make(number, key), world->bytes, length, expires));
    note(world, number, world->bytes, length, expires);
}

static void op_delete(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    char key[16];
    bool there = last(world, number)->bytes != NULL;
    int status = store_delete(world->side.records, key, key_make(number, key));
    assert_int_equal(status, there ? 0 : BANYAN_ENOTFOUND);
    if (there)
        note(world, number, NULL, 0, 0);
}

/* Changes a part, which shares pieces with the value before. */
static void op_splice(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    const struct version *version = last(world, number);
    char key[16];
    uint64_t whole;
    size_t old = version->bytes ? version->length : 0, length = 1 + length_draw(world);
    size_t offset = below(world, 2) ? old : below(world, old + 1000);
    if (offset + length > VALUE_MAX)
        return;
    memset(world->bytes, 0, VALUE_MAX);
    if (old)
        memcpy(world->bytes, version->bytes, old);
    bytes_draw(world, world->bytes + offset, length);
    check(world, store_splice(world->side.records, key, key_make(number, key), offset, world->bytes + offset,
                              length, &whole));
    assert_int_equal(whole, offset + length > old ? offset + length : old);
    note(world, number, world->bytes, whole, version->bytes ? version->expires : 0);
}

/* All keys, and then some of them so often that the segments in which the others stand end, and are used
 * again, between two drains. */
static void op_burst(struct world *world)
{
    char key[16];
    for (unsigned i = 0; i < 1500; i++) {
        unsigned number = i < KEYS ? i : (unsigned)below(world, 10);
        if (i % 100 == 0) {
            heirs_end(&world->processes, world->side.process);
            check(world, log_flush_all(world->side.process->log, world->side.process->session));
        }
        bytes_draw(world, world->bytes, 30);
        check(world, store_put(world->side.records, key, key_make(number, key), world->bytes, 30, 0));
        note(world, number, world->bytes, 30, 0);
    }
}

/* ---- owners ---- */

static void owner_begins(struct world *world)
{
    logged_store_open(&world->side, &world->processes, "kept", random_next(&world->random));
}

static void merge_some(struct world *world)
{
    struct tree_log_walk walk = {.least = UINT64_MAX};
    check(world, tree_log_apply(world->side.process->session, world->side.process->tree, &walk,
                                1 + (uint32_t)below(world, 60)));
}

static void of_owners(struct world *world)
{
    struct process *process = world->side.process;
    switch (below(world, 8)) {
    case 0:
        if (world->processes.heir_count < 3 && world->grave_count < GRAVES_MAX) {
            process_dies(&world->processes, process);
            world->graves[world->grave_count++] = world->side;
            owner_begins(world);
        }
        break;
    case 1:
        if (world->processes.heir_count < 3) {
            process_gives_away(&world->processes, process);
            process_own(&world->processes, process);
        }
        break;
    case 2:
    case 3:
        heirs_end(&world->processes, process);
        break;
    case 4:
        check(world, log_flush_all(process->log, process->session));
        break;
    default:
        merge_some(world);
    }
}

static void step(struct world *world)
{
    uint64_t what = below(world, 100);
    struct error error = {0};
    if (what < 40)
        op_put(world);
    else if (what < 50)
        op_delete(world);
    else if (what < 69)
        op_splice(world);
    else if (what < 70)
        op_burst(world);
    else if (what < 82)
        of_owners(world);
    else if (what < 90)
        good(persist_drain_pass(world->drain, &error), &error);
    else if (what < 95)
        sync_all(world);
    else
        cut(world);
}

static void world_run(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    const struct memory_options memory = {.pool_bytes = 128 << 20};
    assert_non_null(world);
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&world->random, seed);
    world->bytes = malloc(VALUE_MAX);
    assert_non_null(world->bytes);
    for (unsigned i = 0; i < KEYS; i++)
        world->entries[i].count = 1;
    processes_open_as(&world->processes, PROCESSES_NODES, &memory);
    world->processes.options.copies = 1 + (uint32_t)(seed % 2);
    world->processes.options.seed = seed;
    world->processes.options.keep = drain_before_reuse;
    world->processes.options.keep_context = world;
    disk_begin(world);
    owner_begins(world);
    for (unsigned i = 0; i < STEPS; i++)
        step(world);
    sync_all(world);
    cut(world);
    struct persist_drain_stats stats;
    persist_drain_stats(world->drain, &stats);
    assert_true(world->cuts > 0 && world->recovered > 0 && stats.frames > 0 && stats.blocks > 0);
    assert_int_equal(stats.elsewhere, 0);
    logged_store_close(&world->side);
    for (unsigned i = 0; i < world->grave_count; i++)
        logged_store_close(&world->graves[i]);
    sync_all(world); /* frees all versions but the last ones */
    for (unsigned i = 0; i < KEYS; i++)
        free(world->entries[i].versions[0].bytes);
    processes_close(&world->processes);
    disk_end(world);
    free(world->bytes);
    free(world);
}

static void test_cuts(void **state)
{
    (void)state;
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    uint64_t count = 8 * (rounds ? strtoull(rounds, NULL, 10) : 1);
    if (seed)
        world_run(strtoull(seed, NULL, 10));
    else
        for (uint64_t i = 1; i <= count; i++)
            world_run(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests_name("logs on a disk", tests, NULL, NULL);
}
