/*
 * test_lives.c - what a keeper has called safe is on the disk: random operations of several sessions on
 * several lanes, passes between any two of them and within them, checkpoints a few keys at a time, given up
 * too, faults, a full disk; and power that is cut behind any call to the disk. What each cut leaves is
 * opened, loaded into an empty store and judged: of each key the value at its last safe pass, or one that was
 * written later. Some of these disks are the next life's, and some processes end without a cut (K5). One
 * thread. BANYAN_SEED replays a seed, BANYAN_ROUNDS scales how many there are.
 */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "disk/disk_simulated.h"
#include "durable/keeper.h"
#include "durable/recovery.h"

#define CLUSTER    77u
#define LANES      3u
#define LANE_BYTES (64u << 10)
#define LANES_FEW  (6u << 10)  /* less than any lane takes, whatever the disk's pace is */
#define LANES_MUCH (24u << 10) /* one operation marks less than the rest */
#define STEPS      140u
#define CUTS_MAX   6u /* within one step */
#define ROUNDS     30u

/* A disk that a cut has left, and what it may hold. */
struct cut {
    struct disk *disk;
    struct span spans[KEYS];
};

/* One process. */
struct life {
    struct disk *disk;
    struct manifest manifest;
    struct journal *journal;
    struct feed *feed;
    struct keeper *keeper;
    struct checkpoint *checkpoint;
    unsigned counted[KEYS]; /* of the checkpoint: the versions when it began */
    bool written, broken;   /* broken: the disk has failed for ever */
    bool full;
};

struct world {
    struct keys keys;
    struct life life;
    struct cut cuts[CUTS_MAX];
    unsigned cut_count;
    unsigned odds; /* of a cut behind a call to the disk; 0: none */
    bool trouble;  /* faults were asked for, and may come */
    uint64_t judged, exact, adopted, killed, checkpoints, given_up, passes, led, refused, failed, parts,
        placed;
};

static uint64_t below(struct world *world, uint64_t bound)
{
    return keys_below(&world->keys, bound);
}

/* ---- cuts ---- */

static void cut(struct world *world, struct disk *disk)
{
    struct cut *cut = &world->cuts[world->cut_count++];
    cut->disk = disk_simulated_cut(disk);
    assert_non_null(cut->disk);
    for (unsigned i = 0; i < KEYS; i++) {
        const unsigned floor = keys_floor(&world->keys, i, world->life.feed);
        cut->spans[i] = (struct span){floor, world->keys.known[i].count - 1};
    }
}

static void watch(void *context, struct disk *disk)
{
    struct world *world = context;
    if (world->odds && world->cut_count < CUTS_MAX && !below(world, world->odds))
        cut(world, disk);
}

/* ---- lives ---- */

static int life_journal(struct world *world, struct life *life, struct persist_replay *replay,
                        struct error *error)
{
    struct journal_reader reader = {.visit = replay ? persist_replay_record : NULL, .context = replay};
    const struct journal_options options = {.cluster = CLUSTER,
                                            .from = life->manifest.position,
                                            .file_bytes = 1 << 20,
                                            .buffer_bytes = 192 << 10,
                                            .seed = 1 + below(world, 100000)};
    return journal_open(&life->journal, life->disk, &options, &reader, error);
}

/* The disk's manifest and journal; and what they hold in the empty store, if a replay is given. */
static void life_read(struct world *world, struct life *life, struct disk *disk, struct store *into)
{
    struct persist_replay *replay = NULL;
    struct error error = {0};
    uint64_t keys;
    *life = (struct life){.disk = disk};
    keys_good(manifest_open(disk, CLUSTER, 0, 1, &life->manifest, &error), &error);
    if (into)
        keys_good(persist_replay_create(&replay, &disk, 1, &error), &error);
    keys_good(life_journal(world, life, replay, &error), &error);
    if (!into)
        return;
    const struct recovery_source source = {.disk = disk, .manifest = &life->manifest, .replay = replay};
    keys_good(recovery_run(&source, into, world->keys.compute, 1 + (unsigned)below(world, 2), NULL, NULL,
                           &keys, &error),
              &error);
    persist_replay_destroy(replay);
    world->parts += life->manifest.part_count;
}

static void life_begin(struct world *world)
{
    struct life *life = &world->life;
    const struct feed_options feed = {.lanes = LANES, .lane_bytes = LANE_BYTES};
    struct error error = {0};
    keys_good(feed_create(&life->feed, &feed, &error), &error);
    const struct keeper_parts parts = {
        .disk = life->disk, .journal = life->journal, .manifest = &life->manifest, .feed = life->feed};
    keys_good(keeper_create(&life->keeper, &parts, &error), &error);
    for (unsigned i = 0; i < SIDES; i++)
        world->keys.sides[i].writer = (struct feed_writer){.feed = life->feed, .lane = i % LANES};
    world->trouble = false;
    disk_simulated_watch(life->disk, watch, world);
}

/* The process is gone; its disk stays. */
static void life_end(struct life *life, struct store_session *session)
{
    struct error ignored = {0};
    if (life->disk)
        disk_simulated_watch(life->disk, NULL, NULL);
    if (life->checkpoint)
        (void)checkpoint_end(life->checkpoint, session, false, &ignored);
    keeper_destroy(life->keeper);
    feed_destroy(life->feed);
    journal_close(life->journal);
    manifest_free(&life->manifest);
}

/* ---- judging ---- */

/* What a cut has left is opened, and opened again where power is cut in the opening. */
static void cut_open(struct world *world, const struct cut *left, struct life *life)
{
    struct cut again = *left;
    if (below(world, 8) == 0) {
        life_read(world, life, left->disk, world->keys.back->store);
        again.disk = disk_simulated_cut(left->disk);
        life_end(life, world->keys.back->reader);
        disk_close(left->disk);
        keys_judge(&world->keys, world->keys.back->reader, left->spans);
        keys_empty(&world->keys, world->keys.back);
    }
    if (below(world, 2))
        disk_simulated_capacity(again.disk, 0);
    life_read(world, life, again.disk, world->keys.back->store);
    keys_judge(&world->keys, world->keys.back->reader, left->spans);
    world->judged++;
    unsigned exact = 0;
    for (unsigned i = 0; i < KEYS; i++)
        exact += left->spans[i].from == left->spans[i].to;
    world->exact += exact == KEYS;
}

/* All cuts of the step; none is left. */
static void cuts_judge(struct world *world)
{
    for (unsigned i = 0; i < world->cut_count; i++) {
        struct life other;
        cut_open(world, &world->cuts[i], &other);
        life_end(&other, world->keys.back->reader);
        disk_close(other.disk);
        keys_empty(&world->keys, world->keys.back);
    }
    world->cut_count = 0;
    keys_trim(&world->keys, world->life.feed);
}

/* ---- what a process does ---- */

static bool marks_safe(const struct world *world)
{
    for (unsigned i = 0; i < SIDES; i++)
        if (!feed_safe(world->life.feed, world->keys.sides[i].writer.ticket))
            return false;
    return true;
}

/* A pass of the keeper's task, or of one that would else wait for it (K7). */
static int led_pass(struct world *world, struct error *error)
{
    struct life *life = &world->life;
    const bool task = below(world, 2);
    if (task)
        assert_true(feed_lead(life->feed));
    else
        feed_lead_keeper(life->feed);
    assert_false(feed_lead(life->feed));
    const int status =
        (task ? keeper_pass_at_once : keeper_pass)(life->keeper, world->keys.live->scanner, error);
    feed_lead_end(life->feed);
    world->led += task;
    return status;
}

static void pass(struct world *world)
{
    struct life *life = &world->life;
    struct error error = {0};
    if (life->broken)
        return;
    const int status = led_pass(world, &error);
    if (!status) {
        assert_true(marks_safe(world));
        assert_int_equal(feed_error(life->feed, NULL), 0);
        world->passes++;
        return;
    }
    assert_int_equal(feed_error(life->feed, NULL), status);
    if (status == BANYAN_ENOSPC) {
        assert_true(life->full);
        world->refused++;
        return;
    }
    if (!world->trouble || status != BANYAN_EUNKNOWN)
        fail_msg("%s: %s", error_name(status), error.text);
    life->broken = true;
    world->failed++;
}

/* The keeper may come between a change and its mark, and between the mark and the end of the call. */
static void on_change(struct keys *keys, struct feed_writer *writer, const void *key, size_t length)
{
    struct world *world = keys->context;
    if (!below(world, 30) || feed_marked(world->life.feed) > LANES_FEW)
        pass(world); /* no one else would: a lane of a slow disk is full soon */
    feed_mark(writer, key, length);
    if (!below(world, 30))
        pass(world);
}

/* No keeper comes here, under the latch. */
static bool on_place(struct keys *keys, struct feed_writer *writer, const void *key, size_t length,
                     const struct store_value *value)
{
    struct world *world = keys->context;
    if (below(world, 8) == 0)
        return false; /* as if its lane were full */
    const bool noted = feed_mark_value(writer, key, length, value);
    world->placed += noted && value->length <= FEED_VALUE_MAX;
    return noted;
}

static void checkpoint_close(struct world *world, bool whole)
{
    struct life *life = &world->life;
    struct error error = {0};
    if (!life->checkpoint)
        return;
    feed_lead_keeper(life->feed);
    const int status = checkpoint_end(life->checkpoint, world->keys.live->scanner, whole, &error);
    feed_lead_end(life->feed);
    life->checkpoint = NULL;
    life->written = false;
    world->checkpoints += whole && !status;
    world->given_up += !whole || status;
    if (status && status != BANYAN_ENOSPC) {
        if (!world->trouble)
            fail_msg("%s: %s", error_name(status), error.text);
        life->broken |= feed_error(life->feed, NULL) == BANYAN_EUNKNOWN;
    }
    if (status == BANYAN_ENOSPC)
        assert_true(life->full);
    if (whole && !status) /* what its scan has seen, and more, is in the journal (K4) */
        assert_true(marks_safe(world));
    for (unsigned i = 0; whole && !status && i < KEYS; i++)
        world->keys.known[i].versions[life->counted[i]].safe = true; /* K4, K5 */
}

static void checkpoint_open(struct world *world)
{
    struct life *life = &world->life;
    struct error error = {0};
    const int status = checkpoint_begin(&life->checkpoint, life->keeper, &error);
    if (status && !world->trouble && !life->full)
        fail_msg("%s: %s", error_name(status), error.text);
    for (unsigned i = 0; i < KEYS; i++)
        life->counted[i] = world->keys.known[i].count - 1;
}

/* Between two steps others change keys, and the keeper makes passes. */
static void checkpoint_go(struct world *world)
{
    struct life *life = &world->life;
    struct error error = {0};
    if (!life->checkpoint) {
        checkpoint_open(world);
        return;
    }
    if (life->written) {
        checkpoint_close(world, true);
        return;
    }
    const int more =
        checkpoint_step(life->checkpoint, world->keys.live->reader, 1 + (uint32_t)below(world, 24), &error);
    life->written = !more;
    if (more >= 0)
        return;
    if (!world->trouble && !(life->full && more == BANYAN_ENOSPC))
        fail_msg("%s: %s", error_name(more), error.text);
    checkpoint_close(world, false);
}

/* The versions' numbers are about to change. */
static void trim(struct world *world)
{
    unsigned before[KEYS];
    for (unsigned i = 0; i < KEYS; i++)
        before[i] = world->keys.known[i].count;
    cuts_judge(world);
    for (unsigned i = 0; i < KEYS; i++) {
        const unsigned gone = before[i] - world->keys.known[i].count;
        world->life.counted[i] = world->life.counted[i] > gone ? world->life.counted[i] - gone : 0;
    }
}

static void room(struct world *world, bool full)
{
    struct life *life = &world->life;
    disk_simulated_capacity(life->disk, full ? disk_used(life->disk) + below(world, 400000) : 0);
    life->full = full;
}

/* ---- ends ---- */

/* Power is cut, and the next life is what the disk holds. */
static void power(struct world *world)
{
    struct cut left;
    struct life next;
    struct disk *old = world->life.disk;
    world->odds = 0;
    cuts_judge(world);
    cut(world, old);
    left = world->cuts[--world->cut_count];
    cut_open(world, &left, &next);
    next.full = world->life.full;
    life_end(&world->life, world->keys.live->reader);
    disk_close(old);
    world->life = next;
    keys_adopt(&world->keys);
    life_begin(world);
    world->adopted++;
}

/* The process ends, and its pools stay: what it had not told the disk comes with a whole checkpoint (K5). */
static void killed(struct world *world)
{
    struct disk *disk = world->life.disk;
    world->odds = 0;
    cuts_judge(world);
    keys_settle(&world->keys, world->life.feed);
    life_end(&world->life, world->keys.live->reader);
    disk_simulated_restart(disk);
    life_read(world, &world->life, disk, NULL);
    life_begin(world);
    checkpoint_open(world);
    world->killed++;
}

static void of_disk(struct world *world)
{
    switch (below(world, 12)) {
    case 0:
        world->trouble = true;
        disk_simulated_fail(world->life.disk, (enum disk_fault)below(world, DISK_FAULTS),
                            (uint32_t)below(world, 6), below(world, 2) ? 1 : DISK_FAULT_FOR_EVER);
        break;
    case 1:
    case 2:
        room(world, true);
        break;
    case 3:
    case 4:
        room(world, false);
        break;
    case 5:
        if (world->cut_count < CUTS_MAX)
            cut(world, world->life.disk);
        power(world);
        break;
    case 6:
        killed(world);
        break;
    default:
        if (world->cut_count < CUTS_MAX)
            cut(world, world->life.disk);
    }
}

static void step(struct world *world)
{
    const uint64_t what = below(world, 100);
    world->odds = 40;
    if (what < 50)
        keys_step(&world->keys);
    else if (what < 64)
        pass(world);
    else if (what < 88)
        checkpoint_go(world);
    else if (what < 90)
        checkpoint_close(world, false);
    else
        of_disk(world);
    world->odds = 0;
    trim(world);
    if (feed_marked(world->life.feed) > LANES_MUCH || keys_crowded(&world->keys)) {
        room(world, false);
        pass(world);
        trim(world);
    }
    if (world->life.broken && below(world, 4) == 0) {
        if (below(world, 2))
            power(world);
        else
            killed(world);
    } else if (world->life.broken &&
               (feed_marked(world->life.feed) > LANES_MUCH || keys_crowded(&world->keys))) {
        power(world);
    }
}

/* A safe pass, and nothing since: the next life is what was there, and goes on to be so. */
static void ends_whole(struct world *world)
{
    for (unsigned i = 0; i < 2; i++) {
        if (world->life.broken)
            power(world);
        disk_simulated_fail(world->life.disk, DISK_FAULT_SYNC, 0, 0);
        disk_simulated_fail(world->life.disk, DISK_FAULT_WRITE, 0, 0);
        disk_simulated_fail(world->life.disk, DISK_FAULT_NAMES, 0, 0);
        room(world, false);
        pass(world);
        if (world->life.broken)
            continue;
        trim(world);
        power(world);
    }
}

/* A byte of the checkpoint is not what it was: the next life is told so, and believes nothing. */
static void damaged(struct world *world)
{
    const struct manifest_part *part = world->life.manifest.parts;
    struct disk *disk = world->life.manifest.part_count ? disk_simulated_cut(world->life.disk) : NULL;
    struct life life = {.disk = disk};
    struct persist_replay *replay;
    struct error error = {0};
    uint64_t keys;
    if (!disk)
        return;
    const uint64_t offset = below(world, part->bytes);
    keys_good(disk_simulated_flip(disk, part->name, offset, (uint8_t)(1u << below(world, 8))), &error);
    keys_good(manifest_open(disk, CLUSTER, 0, 1, &life.manifest, &error), &error);
    keys_good(persist_replay_create(&replay, &disk, 1, &error), &error);
    keys_good(life_journal(world, &life, replay, &error), &error);
    const struct recovery_source source = {.disk = disk, .manifest = &life.manifest, .replay = replay};
    const int status =
        recovery_run(&source, world->keys.back->store, world->keys.compute, 1, NULL, NULL, &keys, &error);
    if (!status || !error.text[0])
        fail_msg("a checkpoint that was damaged at byte %llu was believed", (unsigned long long)offset);
    persist_replay_destroy(replay);
    life_end(&life, world->keys.back->reader);
    disk_close(disk);
    keys_empty(&world->keys, world->keys.back);
}

static void run(uint64_t seed, struct world *total)
{
    static struct world world;
    struct error error = {0};
    struct manifest first = {.cluster = CLUSTER, .nodes = 1};
    memset(&world, 0, sizeof world);
    print_message("seed %llu\n", (unsigned long long)seed);
    keys_open(&world.keys, seed, 1 + (unsigned)(seed % SIDES));
    world.keys.changed = on_change;
    world.keys.placed = on_place;
    world.keys.context = &world;
    world.keys.longs = seed % 3 != 0;
    struct disk *disk = disk_simulated_create(
        &(struct disk_simulated_options){.seed = random_next(&world.keys.random), .stale = seed % 2});
    assert_non_null(disk);
    keys_good(manifest_replace(disk, NULL, &first, &error), &error);
    life_read(&world, &world.life, disk, NULL);
    life_begin(&world);
    for (unsigned i = 0; i < STEPS; i++)
        step(&world);
    ends_whole(&world);
    damaged(&world);
    life_end(&world.life, world.keys.live->reader);
    disk_close(world.life.disk);
    keys_close(&world.keys);
    total->judged += world.judged;
    total->exact += world.exact;
    total->adopted += world.adopted;
    total->killed += world.killed;
    total->checkpoints += world.checkpoints;
    total->given_up += world.given_up;
    total->passes += world.passes;
    total->led += world.led;
    total->refused += world.refused;
    total->failed += world.failed;
    total->parts += world.parts;
    total->placed += world.placed;
}

static void test_lives(void **state)
{
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    const uint64_t count = ROUNDS * (rounds ? strtoull(rounds, NULL, 10) : 1);
    static struct world total;
    (void)state;
    log_set_level(LOG_ERROR + 1);
    if (seed) {
        run(strtoull(seed, NULL, 10), &total);
        return;
    }
    for (uint64_t i = 1; i <= count; i++)
        run(i, &total);
    print_message(
        "%llu cuts were judged (%llu where all was safe), %llu went on, %llu processes were killed; %llu "
        "checkpoints, %llu given up, %llu loaded; %llu passes, %llu by a server's thread, %llu without room, "
        "%llu failed; %llu values came with their marks\n",
        (unsigned long long)total.judged, (unsigned long long)total.exact, (unsigned long long)total.adopted,
        (unsigned long long)total.killed, (unsigned long long)total.checkpoints,
        (unsigned long long)total.given_up, (unsigned long long)total.parts, (unsigned long long)total.passes,
        (unsigned long long)total.led, (unsigned long long)total.refused, (unsigned long long)total.failed,
        (unsigned long long)total.placed);
    assert_true(total.judged >= 6 * count && total.exact && total.adopted && total.killed &&
                total.checkpoints && total.given_up && total.parts && total.refused && total.failed &&
                total.led && total.placed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lives)};
    return cmocka_run_group_tests_name("lives over a disk", tests, NULL, NULL);
}
