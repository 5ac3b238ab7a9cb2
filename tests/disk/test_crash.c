/*
 * test_crash.c - power is cut behind every single call to the disk, and the next life is asked what it finds:
 * small random lives of appends, syncs, files that end, checkpoints, releases, restarts, syncs that fail and
 * disks that are full, and of each moment all states that the disk may be left in, where they are few enough,
 * and some of them where not. Also behind each call of the opening that follows, and of the one after that.
 *
 * The same in persistent memory, where the journal's files are mapped, and a cut leaves any words of what was
 * stored and not fenced.
 *
 * Judge: the manifest is the one that was promised last, or the one that is being written; its parts are
 * there, whole; the journal's records begin where it says, are those that were appended, in order, without a
 * gap, and go at least as far as was promised; and the next life can go on.
 */
#include "book.h"

#include "base/log.h"
#include "base/random.h"
#include "disk/manifest.h"
#include "swarm/world.h"

#define NODES 4u

struct life {
    struct disk *disk;
    struct book book;
    struct journal *journal;
    struct manifest now, next; /* promised; being written */
    struct manifest_part now_part, next_part;
    bool replacing;
    struct random random;
    uint64_t seed;
    uint32_t depth; /* cuts within cuts */
    uint64_t bound; /* states that are looked at */
    uint64_t judged;
};

static void judge(struct life *life, struct disk *found, uint64_t state);

/* ---- cuts ---- */

static void cut_everywhere(void *context, struct disk *disk)
{
    struct life *life = context;
    const uint64_t states = disk_simulated_states(disk);
    for (uint64_t i = 0; i < states && i < life->bound; i++) {
        const bool drawn = states > life->bound && i >= 2;
        const uint64_t state = states <= life->bound || i == 0 ? i : states - 1;
        struct disk *found = drawn ? disk_simulated_cut(disk) : disk_simulated_state(disk, state);
        assert_non_null(found);
        judge(life, found, drawn ? UINT64_MAX : state);
        disk_close(found);
    }
}

static void wrong(const struct life *life, uint64_t state, const char *what)
{
    fail_msg("seed %llu, depth %u, state %lld: %s", (unsigned long long)life->seed, life->depth,
             (long long)state, what);
}

static bool manifest_is(const struct manifest *read, const struct manifest *expected)
{
    return read->serial == expected->serial && read->position == expected->position &&
           read->checkpoint == expected->checkpoint && read->part_count == expected->part_count;
}

static void part_fill(uint64_t checkpoint, uint8_t bytes[1000])
{
    for (uint32_t i = 0; i < 1000; i++)
        bytes[i] = (uint8_t)(checkpoint * 7 + i / 100);
}

static bool part_whole(struct disk *disk, const struct manifest *manifest)
{
    uint8_t expected[1000];
    size_t length;
    if (!manifest->part_count)
        return true;
    part_fill(manifest->checkpoint, expected);
    uint8_t *bytes = file_read(disk, manifest->parts[0].name, &length);
    const bool whole = length == sizeof expected && !memcmp(bytes, expected, length);
    free(bytes);
    return whole;
}

/* The next life goes on for two records, and a later one has them. */
static void go_on(struct life *life, struct disk *found, struct book *book, struct journal *journal,
                  const struct journal_options *options, uint64_t state)
{
    struct journal *later = NULL;
    assert_int_equal(book_append(book, journal, 700, NULL), 0);
    assert_int_equal(book_append(book, journal, 50, NULL), 0);
    if (book_sync(book, journal, NULL))
        wrong(life, state, "the next life cannot go on");
    struct disk *last = disk_simulated_state(found, 0);
    const char *what = book_try(book, last, options, &later);
    if (what)
        wrong(life, state, what);
    journal_close(later);
    disk_close(last);
}

static void judge(struct life *life, struct disk *found, uint64_t state)
{
    struct manifest read;
    struct error error = {0};
    struct life within = {.book = life->book,
                          .now = life->now,
                          .next = life->next,
                          .replacing = life->replacing,
                          .seed = life->seed,
                          .depth = life->depth + 1,
                          .bound = 6};
    struct journal *journal = NULL;
    life->judged++;
    disk_simulated_restart(found);
    if (life->depth < 2 && life->judged % 16 == 0)
        disk_simulated_watch(found, cut_everywhere, &within);
    if (manifest_open(found, BOOK_CLUSTER, BOOK_NODE, NODES, &read, &error))
        wrong(life, state, error.text);
    if (!manifest_is(&read, &life->now) && !(life->replacing && manifest_is(&read, &life->next)))
        wrong(life, state, "a manifest of another time");
    if (!part_whole(found, &read))
        wrong(life, state, "a part of the checkpoint is not whole");
    /* What it has read is promised from now on. */
    within.now = read;
    within.replacing = false;
    struct journal_options options = book_options(read.position);
    options.seed = life->seed * 1000 + life->judged;
    struct book book = life->book;
    const char *what = book_try(&book, found, &options, &journal);
    if (what)
        wrong(life, state, what);
    disk_simulated_watch(found, NULL, NULL);
    if (life->judged % 4 == 1)
        go_on(life, found, &book, journal, &options, state);
    journal_close(journal);
    manifest_free(&read);
    life->judged += within.judged;
}

/* ---- a life ---- */

static uint32_t draw(struct life *life, uint32_t bound)
{
    return (uint32_t)random_below(&life->random, bound);
}

static void open_journal(struct life *life)
{
    struct journal_options options = book_options(life->now.position);
    options.seed = random_next(&life->random);
    life->journal = book_open(&life->book, life->disk, &options);
}

/* Another process in the same boot: what no sync has written may still be read. */
static void restart(struct life *life)
{
    struct manifest read;
    struct error error = {0};
    disk_simulated_restart(life->disk);
    journal_close(life->journal);
    if (manifest_open(life->disk, BOOK_CLUSTER, BOOK_NODE, NODES, &read, &error))
        wrong(life, 0, error.text);
    if (life->replacing && manifest_is(&read, &life->next)) {
        life->now_part = life->next_part;
        life->now = life->next;
        life->now.parts = &life->now_part;
    }
    life->replacing = false;
    manifest_free(&read);
    if (!draw(life, 4)) /* the journal may have no room for a file of this life */
        disk_simulated_capacity(life->disk, disk_used(life->disk) + draw(life, 100));
    open_journal(life);
}

static void append_some(struct life *life)
{
    for (uint32_t i = 1 + draw(life, 3); i; i--) {
        int status =
            book_append(&life->book, life->journal, draw(life, 4) ? draw(life, 120) : draw(life, 1500), NULL);
        assert_true(!status || status == BANYAN_EBUSY);
    }
}

static void sync_some(struct life *life)
{
    int status = book_sync(&life->book, life->journal, NULL);
    disk_simulated_capacity(life->disk, 0);
    if (status == BANYAN_ENOSPC)
        status = book_sync(&life->book, life->journal, NULL);
    if (status)
        restart(life);
}

/* A checkpoint of all that is safe: its part, then the manifest, then what the journal has of it goes. */
static void checkpoint(struct life *life)
{
    uint8_t bytes[1000];
    const uint64_t number = life->now.checkpoint + 1;
    struct manifest_part *part = &life->next_part;
    *part = (struct manifest_part){.bytes = sizeof bytes};
    snprintf(part->name, sizeof part->name, "checkpoint-%u", (unsigned)number);
    life->next = life->now;
    life->next.checkpoint = number;
    life->next.serial++;
    life->next.position = life->book.safe;
    life->next.part_count = 1;
    life->next.parts = part;
    part_fill(number, bytes);
    struct disk_file *file;
    assert_int_equal(disk_remove_if_there(life->disk, part->name, NULL), 0);
    assert_int_equal(disk_create(life->disk, part->name, &file, NULL), 0);
    int status = disk_write_sync(file, 0, &(struct disk_piece){bytes, sizeof bytes}, 1, NULL);
    disk_file_close(file);
    life->replacing = true;
    if (!status)
        status = manifest_replace(life->disk, &life->now, &life->next, NULL);
    if (status) {
        restart(life);
        return;
    }
    life->now_part = life->next_part;
    life->now = life->next;
    life->now.parts = &life->now_part;
    life->replacing = false;
    if (draw(life, 4))
        if (journal_release(life->journal, life->now.position, NULL))
            restart(life);
}

static void step(struct life *life)
{
    const uint32_t choice = draw(life, 16), fault = draw(life, DISK_FAULTS), after = draw(life, 3);
    switch (choice) {
    case 0:
        disk_simulated_fail(life->disk, (enum disk_fault)fault, after,
                            draw(life, 2) ? 1 : DISK_FAULT_FOR_EVER);
        break;
    case 1:
        disk_simulated_capacity(life->disk, disk_used(life->disk) + draw(life, 2000));
        break;
    case 2:
        if (!journal_release(life->journal, life->now.position, NULL))
            break;
        /* fallthrough */
    case 3:
        restart(life);
        break;
    case 4:
    case 5:
        disk_simulated_capacity(life->disk, 0);
        checkpoint(life);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
        sync_some(life);
        break;
    default:
        append_some(life);
    }
}

static uint64_t live(uint64_t seed, uint32_t steps, bool memory)
{
    static struct life life;
    life = (struct life){.seed = seed, .bound = memory ? 16 : 32};
    random_seed(&life.random, seed);
    life.disk = disk_simulated_create(
        &(struct disk_simulated_options){.seed = seed, .stale = seed % 2 != 0, .memory = memory});
    assert_non_null(life.disk);
    life.now = (struct manifest){.cluster = BOOK_CLUSTER, .node = BOOK_NODE, .nodes = NODES};
    assert_int_equal(manifest_replace(life.disk, NULL, &life.now, NULL), 0);
    disk_simulated_watch(life.disk, cut_everywhere, &life);
    open_journal(&life);
    while (steps-- && life.book.count + 4 < BOOK_MAX / 2)
        step(&life);
    journal_close(life.journal);
    disk_close(life.disk);
    return life.judged;
}

static void test_cuts(void **state)
{
    uint64_t judged = 0;
    for (uint64_t seed = 1; seed <= world_rounds(25); seed++)
        judged += live(world_seed(seed), 30, false);
    print_message("%llu lives after a cut\n", (unsigned long long)judged);
}

static void test_cuts_in_memory(void **state)
{
    uint64_t judged = 0;
    for (uint64_t seed = 1; seed <= world_rounds(12); seed++)
        judged += live(world_seed(seed), 30, true);
    print_message("%llu lives after a cut, in persistent memory\n", (unsigned long long)judged);
}

int main(int count, char **arguments)
{
    log_set_level(LOG_ERROR + 1);
    if (count >= 3) { /* FIRST LAST [memory]: these seeds, longer */
        for (uint64_t seed = strtoull(arguments[1], NULL, 10); seed <= strtoull(arguments[2], NULL, 10);
             seed++)
            printf("%llu: %llu\n", (unsigned long long)seed, (unsigned long long)live(seed, 60, count > 3));
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_cuts_in_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
