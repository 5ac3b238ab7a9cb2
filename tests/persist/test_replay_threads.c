/*
 * test_replay_threads.c - a journal of whole values that is read by several threads (persist/replay.h) comes
 * to what it comes to with one: the same keys and values, the same errors with the same file and offset, the
 * same files behind it. Random journals, also torn, with flipped bits, with records that make no sense, and
 * with frames of a log between the values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/random.h"
#include "disk/disk_simulated.h"
#include "format/value.h"
#include "persist/replay.h"

#define WORLDS       60u
#define RECORDS_MAX  400u
#define RECORDS_MANY 10000u /* more than all blocks between the threads have room for */
#define ENTRIES_MAX  70u    /* of a record; more than are looked for together */
#define KEYS         900u
#define SHORT_MAX    300u /* bytes of most values; more than stand in memory */
#define LONG_MIN     (PERSIST_VALUE_SHORT + 1)
#define LONG_MAX     (PERSIST_VALUE_SHORT + 9000)
#define PAYLOAD_MAX  (ENTRIES_MAX * (PERSIST_VALUE_HEADER + 24 + SHORT_MAX))
#define PART_MAX     40000u
#define FILE_BYTES   100000u
#define OUTCOMES     4u

static const unsigned threads_of[OUTCOMES] = {1, 2, 3, PERSIST_REPLAY_THREADS_MAX};

/* What a way of reading has come to, as bytes. */
struct outcome {
    uint8_t *bytes; /* owned */
    size_t length, room;
    int status;
    struct error error;
};

enum damage { NONE, TORN, FLIPPED, NONSENSE, TORN_NONSENSE, DAMAGES };

struct world {
    struct random random;
    struct disk *disk;
    struct journal *journal;
    enum damage damage;
    bool frames; /* there are some */
    uint64_t sequence;
    uint32_t parts; /* bytes of the value whose entry is to come */
};

static uint64_t below(struct world *world, uint64_t bound)
{
    return random_below(&world->random, bound);
}

/* ---- journals ---- */

static void append(struct world *world, uint8_t kind, const uint8_t *bytes, uint32_t length)
{
    struct error error = {0};
    uint64_t position, safe;
    if (!journal_has_room(world->journal, length) && journal_sync(world->journal, &safe, &error))
        fail_msg("%s", error.text);
    if (journal_append(world->journal, kind, bytes, length, &position, &error))
        fail_msg("%s", error.text);
}

/* The parts of a long value, whose entry is to come. */
static void parts_append(struct world *world)
{
    static uint8_t bytes[PART_MAX];
    const uint32_t length = LONG_MIN + (uint32_t)below(world, LONG_MAX - LONG_MIN);
    memset(bytes, (int)below(world, 256), sizeof bytes);
    for (uint32_t at = 0; at < length;) {
        const uint32_t left = length - at, some = left < PART_MAX ? left : PART_MAX;
        append(world, PERSIST_BYTES, bytes, some);
        at += some;
    }
    world->parts = length;
}

static void values_append(struct world *world, uint32_t most)
{
    static uint8_t payload[PAYLOAD_MAX], bytes[SHORT_MAX];
    const uint32_t count = 1 + (uint32_t)below(world, most);
    const uint32_t longest = below(world, 4) ? 20 : SHORT_MAX;
    uint32_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        char key[24];
        struct persist_value value = {.index = (uint16_t)(below(world, 20) ? 1 : 2),
                                      .deleted = below(world, 9) == 0,
                                      .expires = below(world, 9) ? 0 : below(world, 1000)};
        const int key_length = snprintf(key, sizeof key, "key:%u", (unsigned)below(world, KEYS));
        value.key = (struct format_key){(const uint8_t *)key, (uint32_t)key_length};
        if (i == 0 && world->parts) {
            value.deleted = false;
            value.apart = true;
            value.length = world->parts;
        } else if (!value.deleted) {
            value.length = (uint32_t)below(world, longest);
            memset(bytes, (int)below(world, 256), value.length);
            value.bytes = bytes;
        }
        persist_value_encode(&value, payload + length);
        length += persist_value_bytes(&value);
    }
    world->parts = 0;
    append(world, PERSIST_VALUES, payload, length);
}

/* A log's frame of one entry, which is newer than all values before it. */
static void frame_append(struct world *world)
{
    uint8_t record[PERSIST_FRAME_HEADER + FORMAT_LOG_FRAME_MAX], room[FORMAT_LOG_FRAME_MAX], slot[64];
    char key[24];
    const int key_length = snprintf(key, sizeof key, "key:%u", (unsigned)below(world, KEYS));
    struct format_log_frame frame;
    format_log_frame_begin(&frame, room, sizeof room);
    const struct format_log_entry entry = {
        .kind = FORMAT_LOG_PUT,
        .index = 1,
        .epoch = 1,
        .sequence = ++world->sequence,
        .key = {(const uint8_t *)key, (uint32_t)key_length},
        .value = slot,
        .value_length = format_value_encode_inline(slot, (const uint8_t *)"logged", 6, 0)};
    assert_true(format_log_frame_add(&frame, &entry));
    const struct persist_frame copied = {.process = {.compute_id = 1, .instance = 7},
                                         .view = {.count = 1, .first = world->sequence}};
    const uint8_t kind = (uint8_t)persist_frame_encode(&copied, record);
    memcpy(record + PERSIST_FRAME_HEADER, room + FORMAT_LOG_FRAME_BYTES, frame.used - FORMAT_LOG_FRAME_BYTES);
    append(world, kind, record, PERSIST_FRAME_HEADER + frame.used - FORMAT_LOG_FRAME_BYTES);
}

/* A record whose checksum is right, and that makes no sense. */
static void nonsense_append(struct world *world)
{
    uint8_t payload[2 * (PERSIST_VALUE_HEADER + 1)] = {0};
    struct persist_value value = {.key = {(const uint8_t *)"k", 1}, .index = 1, .bytes = payload};
    switch (below(world, 5)) {
    case 0: /* it ends within an entry */
        append(world, PERSIST_VALUES, payload, PERSIST_VALUE_HEADER - 1);
        break;
    case 1: /* a long value without its parts */
        value = (struct persist_value){.key = value.key, .index = 1, .apart = true, .length = LONG_MIN};
        persist_value_encode(&value, payload);
        append(world, PERSIST_VALUES, payload, PERSIST_VALUE_HEADER + 1);
        break;
    case 2: /* a long value that is not the first entry */
        persist_value_encode(&value, payload);
        value = (struct persist_value){.key = value.key, .index = 1, .apart = true, .length = LONG_MIN};
        persist_value_encode(&value, payload + PERSIST_VALUE_HEADER + 1);
        append(world, PERSIST_VALUES, payload, sizeof payload);
        break;
    case 3:
        append(world, 99, payload, 8);
        break;
    default:
        append(world, PERSIST_FRAME, payload, PERSIST_FRAME_HEADER);
    }
    world->parts = 0;
}

static void record_append(struct world *world, uint32_t most)
{
    struct error error = {0};
    uint64_t safe;
    if (world->frames && below(world, 20) == 0)
        frame_append(world);
    if (most > 1 && below(world, 50) == 0)
        parts_append(world);
    values_append(world, most);
    if (below(world, 30) == 0 && journal_sync(world->journal, &safe, &error))
        fail_msg("%s", error.text);
}

static void journal_fill(struct world *world)
{
    const struct journal_options options = {.cluster = 1, .seed = 2, .file_bytes = FILE_BYTES};
    struct journal_reader nothing = {.visit = NULL};
    struct error error = {0};
    uint64_t safe;
    const bool many = below(world, 12) == 0;
    const uint32_t records = many ? RECORDS_MANY : 1 + (uint32_t)below(world, RECORDS_MAX);
    const bool flipped = world->damage == FLIPPED; /* mostly behind a record that makes no sense */
    const bool nonsense =
        world->damage == NONSENSE || world->damage == TORN_NONSENSE || (flipped && below(world, 4));
    const uint32_t bad = world->damage == TORN_NONSENSE
                             ? records - 1
                             : (uint32_t)below(world, flipped ? records / 4 + 1 : records);
    if (journal_open(&world->journal, world->disk, &options, &nothing, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < records; i++) {
        if (nonsense && i == bad)
            nonsense_append(world);
        if (nonsense && !flipped && i > bad && below(world, 4) == 0)
            nonsense_append(world); /* not told: the first one is */
        record_append(world, many ? 1 : ENTRIES_MAX);
    }
    if (world->damage == TORN_NONSENSE) { /* all but the torn record is whole */
        nonsense_append(world);
        values_append(world, 1);
    }
    if (journal_sync(world->journal, &safe, &error))
        fail_msg("%s", error.text);
    journal_close(world->journal);
}

/* ---- damage ---- */

struct last {
    char name[DISK_NAME_MAX + 1];
    uint64_t bytes;
    uint32_t skip; /* files before it that are passed over */
};

static int last_note(void *context, const char *name, uint64_t bytes, struct error *error)
{
    struct last *last = context;
    (void)error;
    snprintf(last->name, sizeof last->name, "%s", name);
    last->bytes = bytes;
    return last->skip-- == 0;
}

static void journal_damage(struct world *world)
{
    struct last last = {.skip = world->damage == FLIPPED ? (uint32_t)below(world, 6) : UINT32_MAX};
    struct disk_file *file;
    if (world->damage == NONE || world->damage == NONSENSE)
        return;
    (void)disk_list(world->disk, last_note, &last, NULL);
    if (world->damage == FLIPPED) {
        assert_int_equal(disk_simulated_flip(world->disk, last.name, below(world, last.bytes), 4), 0);
        return;
    }
    const uint64_t most = world->damage == TORN_NONSENSE ? 20 : below(world, 8) ? 3000 : last.bytes;
    const uint64_t cut = 1 + below(world, most < last.bytes ? most : last.bytes);
    assert_int_equal(disk_open(world->disk, last.name, &file, NULL), 0);
    assert_int_equal(disk_truncate(file, last.bytes - cut, NULL), 0);
    assert_int_equal(disk_sync(file, NULL), 0);
    disk_file_close(file);
}

/* ---- what comes of it ---- */

static void note(struct outcome *outcome, const void *bytes, size_t length)
{
    if (outcome->length + length > outcome->room) {
        outcome->room = 2 * (outcome->length + length);
        outcome->bytes = realloc(outcome->bytes, outcome->room);
        assert_non_null(outcome->bytes);
    }
    if (length)
        memcpy(outcome->bytes + outcome->length, bytes, length);
    outcome->length += length;
}

static void note_number(struct outcome *outcome, uint64_t number)
{
    note(outcome, &number, sizeof number);
}

static void keys_note(struct outcome *outcome, struct persist_replay *replay)
{
    struct persist_replay_key key;
    struct persist_replay_stats stats;
    struct error error = {0};
    assert_int_equal(persist_replay_sort(replay, &error), 0);
    note_number(outcome, persist_replay_keys(replay));
    while (persist_replay_peek(replay, &key)) {
        struct archive_entry entry = {.value = NULL};
        note_number(outcome, key.index);
        note_number(outcome, key.key_length);
        note(outcome, key.key, key.key_length);
        note_number(outcome, key.present);
        if (!key.present) {
            persist_replay_skip(replay);
            continue;
        }
        assert_int_equal(persist_replay_take(replay, &entry, &error), 0);
        note_number(outcome, entry.expires);
        note_number(outcome, entry.value_length);
        note(outcome, entry.value, entry.value_length);
    }
    persist_replay_stats(replay, &stats);
    note_number(outcome, stats.frames);
    note_number(outcome, stats.entries);
    note_number(outcome, stats.blocks);
}

struct noting {
    struct outcome *outcome;
    struct disk *disk;
};

static int file_note(void *context, const char *name, uint64_t bytes, struct error *error)
{
    const struct noting *noting = context;
    struct disk_file *file;
    uint8_t *copy = malloc(bytes + 1);
    size_t got;
    assert_non_null(copy);
    assert_int_equal(disk_open(noting->disk, name, &file, error), 0);
    assert_int_equal(disk_read(file, 0, copy, bytes, &got, error), 0);
    assert_int_equal(got, bytes);
    note(noting->outcome, name, strlen(name));
    note_number(noting->outcome, bytes);
    note(noting->outcome, copy, bytes);
    disk_file_close(file);
    free(copy);
    return 0;
}

/* Reads a copy of the disk, and notes what comes of it, and what is on the copy then. */
static void read_with(struct world *world, unsigned threads, bool accept_loss, struct outcome *outcome)
{
    const struct journal_options options = {
        .cluster = 1, .seed = 3, .file_bytes = FILE_BYTES, .accept_loss = accept_loss};
    struct disk *disk = disk_simulated_killed(world->disk);
    struct persist_replay *replay;
    struct journal *journal = NULL;
    assert_non_null(disk);
    assert_int_equal(persist_replay_create(&replay, &disk, 1, &outcome->error), 0);
    if (threads > 1)
        assert_int_equal(persist_replay_threads(replay, threads, &outcome->error), 0);
    struct journal_reader reader = {
        .visit = persist_replay_record, .settle = persist_replay_settle, .context = replay};
    persist_replay_next(replay, 0);
    outcome->status = journal_open(&journal, disk, &options, &reader, &outcome->error);
    if (!outcome->status) {
        note_number(outcome, reader.report.records);
        note_number(outcome, reader.report.cut_bytes);
        note_number(outcome, reader.report.lost);
        keys_note(outcome, replay);
    }
    persist_replay_destroy(replay);
    journal_close(journal);
    struct noting noting = {outcome, disk};
    assert_int_equal(disk_list(disk, file_note, &noting, NULL), 0);
    disk_close(disk);
}

static void outcomes_compare(const struct outcome *one, const struct outcome *other, unsigned threads)
{
    if (one->status != other->status || strcmp(one->error.text, other->error.text) != 0)
        fail_msg("one thread says %d (%s), %u threads say %d (%s)", one->status, one->error.text, threads,
                 other->status, other->error.text);
    if (one->length != other->length || memcmp(one->bytes, other->bytes, one->length) != 0)
        fail_msg("%u threads have come to something else than one", threads);
}

/* How often worlds of each damage were read, and refused. */
static unsigned good[DAMAGES], refused[DAMAGES];

static void world_run(uint64_t seed)
{
    const struct disk_simulated_options simulated = {.seed = seed};
    struct world world = {.sequence = 0};
    struct outcome outcomes[OUTCOMES] = {{.bytes = NULL}};
    random_seed(&world.random, seed);
    world.damage = (enum damage)(seed % DAMAGES); /* seeds follow each other, so all have their turn */
    world.frames = below(&world, 4) == 0;
    world.disk = disk_simulated_create(&simulated);
    assert_non_null(world.disk);
    journal_fill(&world);
    journal_damage(&world);
    const bool accept_loss = below(&world, 3) == 0;
    for (unsigned i = 0; i < OUTCOMES; i++) {
        read_with(&world, threads_of[i], accept_loss, &outcomes[i]);
        outcomes_compare(&outcomes[0], &outcomes[i], threads_of[i]);
    }
    *(outcomes[0].status ? &refused[world.damage] : &good[world.damage]) += 1;
    for (unsigned i = 0; i < OUTCOMES; i++)
        free(outcomes[i].bytes);
    disk_close(world.disk);
}

static uint64_t seed_told;

static int seed_tell(void **state)
{
    (void)state;
    printf("the last world's seed: BANYAN_SEED=%llu\n", (unsigned long long)seed_told);
    return 0;
}

static void test_same(void **state)
{
    const char *given = getenv("BANYAN_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 0) : random_entropy();
    (void)state;
    log_set_level(LOG_ERROR + 1);
    for (uint64_t i = 0; i < (given ? 1 : WORLDS); i++) {
        seed_told = first + i;
        world_run(seed_told);
    }
    if (given)
        return;
    assert_true(good[NONE] && !refused[NONE]);
    assert_true(good[TORN] && refused[FLIPPED]);
    assert_true(refused[NONSENSE] && !good[NONSENSE]);
    assert_true(refused[TORN_NONSENSE] && !good[TORN_NONSENSE]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_same, seed_tell)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
