/*
 * test_carried.c - one of two disks is lost (P16): an owner logs in two copies, each memory node copies its
 * own pool into a journal of its own, and after any write that was acknowledged at disk-always each journal
 * alone has the last value of every key: short ones, records that travel, records of batches, which were
 * written before, and values in pieces, of which parts are changed, while journals are cut for checkpoints
 * (P17); also of what a next owner has taken over (L7). One thread. BANYAN_SEED replays a seed, BANYAN_ROUNDS
 * scales how many there are.
 */
#include "store/logged_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "disk/disk_simulated.h"
#include "memory/request.h"
#include "memory/service.h"
#include "persist/drain.h"
#include "persist/replay.h"
#include "tree/logging.h"
#include "tree/wrapper.h"

#define NODES     2u
#define NODES_MAX 3u
#define KEYS      40u
#define STEPS     300u
#define VALUE_MAX 65000u
#define LONG_MAX  300000u
#define CLUSTER   78u
#define GRAVES    8u

struct value {
    uint8_t *bytes; /* owned; NULL: none */
    size_t length;
};

struct world {
    struct random random;
    struct processes processes;
    struct logged_store side, graves[GRAVES];
    unsigned grave_count;
    struct value values[KEYS], saved[KEYS]; /* saved: by the checkpoint, which the journals lie over */
    uint64_t positions[NODES_MAX];          /* where they begin */
    uint64_t inherited;
    unsigned nodes;
    struct disk *disks[NODES_MAX];
    struct journal *journals[NODES_MAX];
    struct persist_drain *drains[NODES_MAX];
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

static int bring(void *context, struct memory_call *call)
{
    struct memory_bring_request asked;
    assert_true(call->capacity >= sizeof(struct memory_bring_reply));
    memcpy(&asked, call->request, call->length);
    for (uint32_t i = 0; i < asked.count; i++) /* as long as an entry waits for room, and more */
        assert_true(asked.pieces[i].hold_ms > MEMORY_BRING_HOLD_MS);
    return persist_brought_call(persist_drain_brought(context), call->request, call->length, call->reply,
                                &call->reply_length);
}

static const struct memory_service brings = {.name = "bring", .roles = MEMORY_ROLES_ALL, .serve = bring};

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
    const struct world *world = context;
    int status = 0;
    for (uint16_t n = 0; n < world->nodes && !status; n++)
        status = persist(context, n);
    return status;
}

static void disks_begin(struct world *world)
{
    struct error error = {0};
    for (uint16_t n = 0; n < world->nodes; n++) {
        const struct fabric_target *targets[NODES_MAX] = {NULL};
        const struct disk_simulated_options options = {.seed = 1 + n};
        const struct journal_options journal = {
            .cluster = CLUSTER, .node = n, .file_bytes = 1 << 20, .buffer_bytes = 512 << 10, .seed = 1 + n};
        struct journal_reader reader = {.context = NULL};
        targets[n] = memory_node_target(world->processes.memory[n]);
        world->disks[n] = disk_simulated_create(&options);
        assert_non_null(world->disks[n]);
        good(journal_open(&world->journals[n], world->disks[n], &journal, &reader, &error), &error);
        good(persist_drain_create(&world->drains[n], targets, (uint16_t)world->nodes, world->journals[n],
                                  &error),
             &error);
        memory_node_register(world->processes.memory[n], &brings, MEMORY_BRING, 1, world->drains[n]);
    }
}

static void disks_end(struct world *world)
{
    for (unsigned n = 0; n < world->nodes; n++) {
        memory_node_unregister(world->processes.memory[n], &brings, world->drains[n]);
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
    const struct journal_options options = {
        .cluster = CLUSTER, .node = (uint16_t)node, .from = world->positions[node], .seed = 5};
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

static bool value_equal(const struct value *one, const struct value *other)
{
    return one->length == other->length && other->bytes && !memcmp(one->bytes, other->bytes, one->length);
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
        if (!back.seen[i] && world->values[i].bytes && !value_equal(&world->values[i], &world->saved[i]))
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

/* A long value, which lies in pieces. */
static void op_long(struct world *world)
{
    static uint8_t bytes[LONG_MAX];
    const unsigned number = (unsigned)below(world, KEYS);
    const uint64_t seed = random_next(&world->random);
    const size_t length = VALUE_MAX + 1000 + below(world, LONG_MAX - VALUE_MAX - 1000);
    char key[16];
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_mix(seed + i / 8);
    process_check(world->side.process,
                  store_put(world->side.records, key, key_make(number, key), bytes, length, 0));
    note(world, number, bytes, length);
}

/* A part of a value is changed: the other pieces stay, which one of the disks has from before, or not. */
static void op_splice(struct world *world)
{
    static uint8_t part[3000], bytes[LONG_MAX + sizeof part];
    const unsigned number = (unsigned)below(world, KEYS);
    const struct value *value = &world->values[number];
    char key[16];
    uint64_t whole;
    if (!value->bytes || value->length > LONG_MAX)
        return;
    const size_t at = below(world, value->length + 1), length = 1 + below(world, sizeof part - 1);
    const size_t now = at + length > value->length ? at + length : value->length;
    memset(part, (int)below(world, 256), length);
    if (value->length)
        memcpy(bytes, value->bytes, value->length);
    memcpy(bytes + at, part, length);
    process_check(world->side.process,
                  store_splice(world->side.records, key, key_make(number, key), at, part, length, &whole));
    assert_int_equal(whole, now);
    note(world, number, bytes, now);
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

/* A checkpoint has all values; the journals' beginnings go. */
static void op_checkpoint(struct world *world)
{
    struct error error = {0};
    assert_int_equal(keep(world), 0);
    for (unsigned n = 0; n < NODES; n++) {
        const uint64_t end = journal_end(world->journals[n]);
        world->positions[n] = persist_drain_forget(world->drains[n], end);
        assert_int_equal(world->positions[n], end); /* no entry is to come */
        good(journal_release(world->journals[n], end, &error), &error);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        const struct value *value = &world->values[i];
        free(world->saved[i].bytes);
        world->saved[i] = (struct value){.length = value->length};
        if (!value->bytes)
            continue;
        world->saved[i].bytes = malloc(value->length + 1);
        assert_non_null(world->saved[i].bytes);
        memcpy(world->saved[i].bytes, value->bytes, value->length);
    }
}

static void owner_begins(struct world *world)
{
    logged_store_begin(&world->side, &world->processes, "kept", random_next(&world->random));
    process_kept(world->side.process, FABRIC_KEPT_ON_DISK_ALWAYS, persist, world);
    process_own(&world->processes, world->side.process);
}

/* What the dead owner has not merged is logged again by the next one, in which a checkpoint may have released
 * what the dead one's frames carried. */
static void op_death(struct world *world)
{
    struct log_stats stats;
    if (world->grave_count == GRAVES)
        return;
    if (below(world, 2))
        op_checkpoint(world);
    process_dies(&world->processes, world->side.process);
    world->graves[world->grave_count++] = world->side;
    owner_begins(world);
    log_stats(world->side.process->log, &stats);
    world->inherited += stats.inherited;
    heirs_end(&world->processes, world->side.process);
    assert_int_equal(keep(world), 0);
    judge(world, (unsigned)below(world, NODES));
}

static void step(struct world *world)
{
    const uint64_t what = below(world, 100);
    if (what < 30)
        op_put(world);
    else if (what < 40)
        op_long(world);
    else if (what < 50)
        op_splice(world);
    else if (what < 65)
        op_puts(world);
    else if (what < 75)
        op_delete(world);
    else if (what < 90)
        merge_some(world);
    else if (what < 92)
        op_checkpoint(world);
    else if (what < 94)
        op_death(world);
    else
        judge(world, (unsigned)below(world, NODES));
}

/* ---- all of it ---- */

static struct world *world_begin(uint64_t seed, unsigned nodes)
{
    struct world *world = calloc(1, sizeof *world);
    const struct memory_options memory = {.pool_bytes = 256 << 20, .log_bytes = 64 << 20};
    assert_non_null(world);
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&world->random, seed);
    world->nodes = nodes;
    processes_open_as(&world->processes, nodes, &memory);
    world->processes.options.copies = 2;
    world->processes.options.seed = seed;
    world->processes.options.segment_bytes = 4 << 20;
    world->processes.options.keep = keep;
    world->processes.options.keep_context = world;
    disks_begin(world);
    owner_begins(world);
    return world;
}

static void world_end(struct world *world)
{
    logged_store_close(&world->side);
    for (unsigned i = 0; i < world->grave_count; i++)
        logged_store_close(&world->graves[i]);
    for (unsigned i = 0; i < KEYS; i++) {
        free(world->values[i].bytes);
        free(world->saved[i].bytes);
    }
    disks_end(world);
    processes_close(&world->processes);
    free(world);
}

static void world_run(uint64_t seed)
{
    struct world *world = world_begin(seed, NODES);
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
    assert_true(stats.carried > 0 && stats.brought > 0 && world->inherited > 0);
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
    struct world *world = world_begin(1, NODES);
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

/* Each memory node's journal alone has all values that its entries name. */
static void nothing_missed(struct world *world)
{
    for (unsigned n = 0; n < NODES; n++) {
        struct disk *disk;
        struct journal *journal;
        struct persist_replay *replay = left_open(world, n, &disk, &journal);
        assert_int_equal(missed(replay), 0);
        persist_replay_destroy(replay);
        journal_close(journal);
        disk_close(disk);
    }
}

/* What a long value costs: the pieces and the header; the header again and the question; the pieces again,
 * the copy of them, and the call that takes it; first copy, second copy, both disks. Where pieces stay they
 * are asked for, and not brought again. */
static void costs_of_pieces(void **state)
{
    struct world *world = world_begin(1, NODES);
    const struct process *process = world->side.process;
    const struct fabric_cost *cost = &tree_session_stats(process->session)->cost;
    uint8_t *bytes = calloc(1, 200000);
    struct log_stats stats;
    uint64_t whole;
    (void)state;
    assert_non_null(bytes);
    process_check(process, store_put(world->side.records, "key", 3, bytes, 200000, 0));
    log_stats(process->log, &stats);
    assert_int_equal(stats.brought, 200000);
    assert_int_equal(stats.uncarried + stats.degraded, 0);
    process_check(process, store_splice(world->side.records, "key", 3, 1000, "part", 4, &whole));
    log_stats(process->log, &stats);
    assert_true(stats.brought < 200000 + 70000);
    const uint64_t brought = stats.brought, trips = cost->round_trips;
    process_check(process, store_put(world->side.records, "other", 5, bytes, 200000, 0));
    log_stats(process->log, &stats);
    assert_int_equal(stats.brought, brought + 200000);
    print_message("round trips of a long value: %llu\n", (unsigned long long)(cost->round_trips - trips));
    assert_true(cost->round_trips - trips <= 8);
    nothing_missed(world);
    free(bytes);
    world_end(world);
}

struct loss {
    struct process *process;
    unsigned losses;
};

/* The first list that has a second copy with what it carries: nothing of it arrives. */
static int second_lost(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct loss *loss = context;
    const bool second = list->count == 2 && list->commands[0].operation == FABRIC_WRITE &&
                        list->commands[1].operation == FABRIC_WRITE;
    const bool lost = second && !loss->losses++;
    return lost ? process_cut(loss->process, endpoint, list, 0) : wrapper_pass(endpoint, list, list->count);
}

/* The second copy goes to another memory node than the pieces: that is counted, and the process is one that
 * has written frames of one copy. */
static void copy_elsewhere(void **state)
{
    struct world *world = world_begin(1, 3);
    struct process *process = world->side.process;
    struct loss loss = {.process = process};
    const struct persist_replay_process *told;
    uint8_t *bytes = calloc(1, 200000);
    unsigned alone = 0;
    struct log_stats stats;
    (void)state;
    assert_non_null(bytes);
    process_hooked(process, second_lost, &loss);
    process_check(process, store_put(world->side.records, "key", 3, bytes, 200000, 0));
    process_hooked(process, NULL, NULL);
    assert_true(loss.losses >= 2);
    log_stats(process->log, &stats);
    assert_int_equal(stats.uncarried, 1);
    assert_int_equal(stats.degraded, 0);
    process_own_still(&world->processes, process);
    process_check(process, store_put(world->side.records, "key", 3, "short", 5, 0));
    assert_int_equal(keep(world), 0);
    for (unsigned n = 0; n < world->nodes; n++) {
        struct disk *disk;
        struct journal *journal;
        struct persist_replay *replay = left_open(world, n, &disk, &journal);
        for (uint32_t at = 0; (told = persist_replay_process_next(replay, &at));)
            alone += told->alone;
        persist_replay_destroy(replay);
        journal_close(journal);
        disk_close(disk);
    }
    assert_true(alone > 0);
    free(bytes);
    world_end(world);
}

/* Checkpoints that begin, and count, right before a frame with a second copy leaves. */
struct between {
    struct world *world;
    unsigned frames;
};

static int checkpoints_between(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct between *between = context;
    struct world *world = between->world;
    struct error error = {0};
    const bool second = list->count == 2 && list->commands[0].operation == FABRIC_WRITE &&
                        list->commands[1].operation == FABRIC_WRITE;
    if (second && !between->frames)
        assert_int_equal(keep(world), 0); /* the pieces come into the journal */
    for (unsigned i = 0; i < 3 && second && !between->frames; i++)
        for (unsigned n = 0; n < NODES; n++) {
            world->positions[n] = persist_drain_forget(world->drains[n], journal_end(world->journals[n]));
            good(journal_release(world->journals[n], world->positions[n], &error), &error);
        }
    between->frames += second;
    return wrapper_pass(endpoint, list, list->count);
}

/* Of a value whose pieces were brought, and whose entry comes behind three checkpoints, either disk alone has
 * all. */
static void checkpoints_before_the_entry(void **state)
{
    struct world *world = world_begin(1, NODES);
    struct process *process = world->side.process;
    struct between between = {.world = world};
    uint8_t *bytes = calloc(1, 200000);
    (void)state;
    assert_non_null(bytes);
    assert_int_equal(keep(world), 0);
    process_hooked(process, checkpoints_between, &between);
    process_check(process, store_put(world->side.records, "key", 3, bytes, 200000, 0));
    process_hooked(process, NULL, NULL);
    assert_true(between.frames > 0);
    nothing_missed(world);
    /* All entries have come: nothing is held any more. */
    op_checkpoint(world);
    free(bytes);
    world_end(world);
}

/* ---- records by hand ---- */

#define DIRECTORIES 3u

static struct journal *directory_open(struct disk *disk, unsigned node, struct persist_replay *replay)
{
    const struct journal_options options = {
        .cluster = CLUSTER, .node = (uint16_t)node, .file_bytes = 1 << 20, .seed = 1 + node};
    struct journal_reader reader = {.visit = replay ? persist_replay_record : NULL, .context = replay};
    struct journal *journal;
    struct error error = {0};
    good(journal_open(&journal, disk, &options, &reader, &error), &error);
    return journal;
}

/* A frame with one entry of the key "key". `block` other than GADDR_NULL: its value is a record there, of
 * which no journal has the bytes. */
static void directory_write(struct journal *journal, uint16_t node, uint64_t sequence, gaddr block)
{
    static const uint8_t text[] = "old";
    uint8_t record[PERSIST_FRAME_HEADER + FORMAT_LOG_FRAME_MAX], room[FORMAT_LOG_FRAME_MAX], value[64];
    struct format_reference reference = {.address = block, .check = 1, .length = 1000};
    struct format_log_frame frame;
    struct error error = {0};
    uint64_t position, safe;
    format_log_frame_begin(&frame, room, sizeof room);
    const struct format_log_entry entry = {
        .kind = FORMAT_LOG_PUT,
        .index = 1,
        .epoch = 1,
        .sequence = sequence,
        .key = {(const uint8_t *)"key", 3},
        .value = value,
        .value_length = block == GADDR_NULL ? format_value_encode_inline(value, text, 3, 0)
                                            : format_value_encode_reference(value, &reference)};
    assert_true(format_log_frame_add(&frame, &entry));
    struct persist_frame copied = {.process = {.compute_id = 1, .instance = 7},
                                   .node = node,
                                   .tells = true,
                                   .twice = true,
                                   .view = {.entries = room + FORMAT_LOG_FRAME_BYTES,
                                            .length = frame.used - FORMAT_LOG_FRAME_BYTES,
                                            .count = 1,
                                            .first = sequence}};
    const uint8_t kind = (uint8_t)persist_frame_encode(&copied, record);
    memcpy(record + PERSIST_FRAME_HEADER, copied.view.entries, copied.view.length);
    good(journal_append(journal, kind, record, PERSIST_FRAME_HEADER + copied.view.length, &position, &error),
         &error);
    good(journal_sync(journal, &safe, &error), &error);
}

static int old_value(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    unsigned *told = context;
    (void)index, (void)error;
    assert_int_equal(entry->value_length, 3);
    assert_memory_equal(entry->value, "old", 3);
    ++*told;
    return 0;
}

/* Of three memory nodes the disk of the last is lost. The key's second value lay there. Its third one lay on
 * memory node `node`, and no journal has it; where that disk is not lost its record was not there any more
 * when its frame was copied (P3), so nobody was promised it. The second one is missed all the same. */
static uint64_t missed_behind(uint16_t node, uint64_t third)
{
    static const bool lost[DIRECTORIES] = {[DIRECTORIES - 1] = true};
    struct disk *disks[DIRECTORIES - 1];
    struct journal *journals[DIRECTORIES - 1];
    struct persist_replay *replay;
    struct error error = {0};
    unsigned told = 0;
    for (unsigned n = 0; n < DIRECTORIES - 1; n++) {
        disks[n] = disk_simulated_create(&(struct disk_simulated_options){.seed = 1 + n});
        assert_non_null(disks[n]);
        journals[n] = directory_open(disks[n], n, NULL);
    }
    directory_write(journals[0], 0, 1, GADDR_NULL);
    if (third != 2)
        directory_write(journals[0], 0, 2, gaddr_make(DIRECTORIES - 1, 4096));
    directory_write(journals[1], 1, third, gaddr_make(node, 8192));
    good(persist_replay_create(&replay, disks, DIRECTORIES - 1, &error), &error);
    persist_replay_lost(replay, lost, DIRECTORIES);
    for (uint16_t n = 0; n < DIRECTORIES - 1; n++) {
        journal_close(journals[n]);
        persist_replay_next(replay, n);
        journals[n] = directory_open(disks[n], n, replay);
    }
    good(persist_replay_all(replay, old_value, &told, &error), &error);
    assert_int_equal(told, 1);
    const uint64_t count = missed(replay);
    persist_replay_destroy(replay);
    for (unsigned n = 0; n < DIRECTORIES - 1; n++) {
        journal_close(journals[n]);
        disk_close(disks[n]);
    }
    return count;
}

static void a_missed_value_is_hidden(void **state)
{
    (void)state;
    assert_int_equal(missed_behind(1, 3), 1);               /* hidden by one that is not there either */
    assert_int_equal(missed_behind(DIRECTORIES - 1, 3), 1); /* both lay on the lost disk */
    assert_int_equal(missed_behind(1, 2), 0);               /* none lay there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_disk_alone),
                                       cmocka_unit_test(costs),
                                       cmocka_unit_test(costs_of_pieces),
                                       cmocka_unit_test(copy_elsewhere),
                                       cmocka_unit_test(checkpoints_before_the_entry),
                                       cmocka_unit_test(a_missed_value_is_hidden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
