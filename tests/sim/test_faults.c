/* test_faults.c - the faults occur when on, never when off, and never break the fabric's promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/task.h"
#include "tests/sim/cluster.h"

#define PAGE_WORDS  64
#define PAGE_OFFSET 8192

/* ------------------------------------------------------------------ torn pages */

struct tearing {
    struct cluster *cluster;
    bool stop;
    uint64_t mixed, whole;
};

static void write_pages(void *argument)
{
    struct tearing *tearing = argument;
    uint64_t page[PAGE_WORDS];
    for (uint64_t round = 1; round <= 1000; round++) {
        for (unsigned i = 0; i < PAGE_WORDS; i++)
            page[i] = round;
        assert_int_equal(
            cluster_write(tearing->cluster->endpoints[0], gaddr_make(0, PAGE_OFFSET), page, sizeof page), 0);
    }
    tearing->stop = true;
}

static void read_pages(void *argument)
{
    struct tearing *tearing = argument;
    uint64_t page[PAGE_WORDS];
    while (!tearing->stop) {
        assert_int_equal(
            cluster_read(tearing->cluster->endpoints[1], gaddr_make(0, PAGE_OFFSET), page, sizeof page), 0);
        bool same = true;
        for (unsigned i = 0; i < PAGE_WORDS; i++) {
            assert_in_range(page[i], 0, 1000); /* a word is always whole */
            same = same && page[i] == page[0];
        }
        if (same)
            tearing->whole++;
        else
            tearing->mixed++;
    }
}

static struct tearing tear(const struct sim_faults *faults)
{
    struct cluster cluster;
    struct tearing tearing = {.cluster = &cluster};
    cluster_create(&cluster, 1, 2, NULL, faults, 3);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, write_pages, &tearing, NULL), 0);
    assert_int_equal(sim_spawn(cluster.sim, 1, 0, read_pages, &tearing, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(*cluster_word(&cluster, 0, PAGE_OFFSET), 1000);
    cluster_destroy(&cluster);
    return tearing;
}

static void test_pages_tear_only_with_faults(void **state)
{
    (void)state;
    struct sim_faults faults;
    assert_int_equal(tear(NULL).mixed, 0);
    sim_faults_none(&faults);
    faults.late = 0.1; /* another fault alone does not tear */
    assert_int_equal(tear(&faults).mixed, 0);
    faults.torn_reads = 0.5;
    struct tearing reads = tear(&faults);
    assert_true(reads.mixed > 50 && reads.whole > 50);
    sim_faults_none(&faults);
    faults.torn_writes = 0.5;
    struct tearing writes = tear(&faults);
    assert_true(writes.mixed > 50 && writes.whole > 50);
}

/* ------------------------------------------------------------------ the order of a READ's words */

enum pattern { NEW_TAIL, NEW_HEAD, NEW_MIDDLE, NEW_ENDS, ONLY_ENDS_OLD, ONLY_ENDS_NEW, OTHER, PATTERNS };

struct orders {
    struct cluster *cluster;
    bool stop;
    uint64_t seen[PATTERNS];
    uint64_t stale_middle, fresh_middle; /* both ends alike, and the middle older or newer than they */
};

static void write_rounds(void *argument)
{
    struct orders *orders = argument;
    uint64_t page[PAGE_WORDS];
    for (uint64_t round = 1; round <= 6000; round++) {
        for (unsigned i = 0; i < PAGE_WORDS; i++)
            page[i] = round;
        assert_int_equal(
            cluster_write(orders->cluster->endpoints[0], gaddr_make(0, PAGE_OFFSET), page, sizeof page), 0);
    }
    orders->stop = true;
}

/* Of a page of two values. The number of places where neighbours differ tells most. */
static enum pattern classify(const uint64_t *page)
{
    unsigned changes = 0, first = 0, last = 0;
    for (unsigned i = 1; i < PAGE_WORDS; i++)
        if (page[i] != page[i - 1]) {
            first = changes == 0 ? i : first;
            last = i;
            changes++;
        }
    if (changes == 1)
        return page[0] < page[PAGE_WORDS - 1] ? NEW_TAIL : NEW_HEAD;
    if (changes != 2)
        return OTHER;
    if (first == 1 && last == PAGE_WORDS - 1)
        return page[0] < page[1] ? ONLY_ENDS_OLD : ONLY_ENDS_NEW;
    return page[0] < page[first] ? NEW_MIDDLE : NEW_ENDS;
}

static void read_rounds(void *argument)
{
    struct orders *orders = argument;
    uint64_t page[PAGE_WORDS];
    while (!orders->stop) {
        assert_int_equal(
            cluster_read(orders->cluster->endpoints[1], gaddr_make(0, PAGE_OFFSET), page, sizeof page), 0);
        uint64_t least = UINT64_MAX, most = 0;
        for (unsigned i = 0; i < PAGE_WORDS; i++) {
            least = page[i] < least ? page[i] : least;
            most = page[i] > most ? page[i] : most;
        }
        if (most != least + 1)
            continue; /* whole, or three WRITEs' */
        orders->seen[classify(page)]++;
        if (page[0] != page[PAGE_WORDS - 1])
            continue;
        orders->fresh_middle += page[0] == least;
        orders->stale_middle += page[0] == most;
    }
}

static struct orders watch_order(const struct sim_faults *faults)
{
    struct cluster cluster;
    struct orders orders = {.cluster = &cluster};
    cluster_create(&cluster, 1, 2, NULL, faults, 3);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(sim_spawn(cluster.sim, 1, i, read_rounds, &orders, NULL), 0);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, write_rounds, &orders, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&cluster);
    return orders;
}

static void test_words_come_in_every_order(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.torn_reads = 1;
    faults.tear_window_ns = 2000;
    struct orders orders = watch_order(&faults);
    for (unsigned pattern = 0; pattern < PATTERNS; pattern++)
        assert_true(orders.seen[pattern] > 50);
    assert_true(orders.seen[OTHER] > 1000);
    /* versions at both ends of a page would take these for whole */
    assert_true(orders.fresh_middle > 500 && orders.stale_middle > 500);
}

/* As published indexes assume: a READ in address order sees a WRITE's end first, and of a WRITE in address
 * order a READ sees the beginning first. */
static void test_words_come_in_address_order_where_asked(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.address_order = true;
    faults.tear_window_ns = 2000;
    faults.torn_reads = 1;
    struct orders reads = watch_order(&faults);
    faults.torn_reads = 0;
    faults.torn_writes = 1;
    struct orders writes = watch_order(&faults);
    for (unsigned pattern = 0; pattern < PATTERNS; pattern++) {
        assert_int_equal(reads.seen[pattern] > 1000, pattern == NEW_TAIL);
        assert_int_equal(reads.seen[pattern] > 0, pattern == NEW_TAIL);
        assert_int_equal(writes.seen[pattern] > 1000, pattern == NEW_HEAD);
        assert_int_equal(writes.seen[pattern] > 0, pattern == NEW_HEAD);
    }
}

#define BIG_BYTES (40 * 1024) /* more words than a READ remembers without asking for memory */

struct big {
    struct cluster *cluster;
    uint64_t mixed;
    unsigned offset;
};

static void read_big(void *argument)
{
    struct big *big = argument;
    static uint64_t page[BIG_BYTES / 8 + 1];
    for (int i = 0; i < 100; i++) {
        memset(page, 0xee, sizeof page);
        assert_int_equal(cluster_read(big->cluster->endpoints[1], gaddr_make(0, PAGE_OFFSET + big->offset),
                                      page, BIG_BYTES - 5),
                         0);
        const uint8_t *bytes = (const uint8_t *)page;
        bool same = true;
        for (unsigned at = 0; at < BIG_BYTES - 5; at++) {
            assert_in_range(bytes[at], 0, 100); /* each byte has been fetched */
            same = same && bytes[at] == bytes[0];
            /* bytes of one aligned word are of one instant */
            if ((at + big->offset) % 8 != 0 && at > 0)
                assert_int_equal(bytes[at], bytes[at - 1]);
        }
        for (unsigned at = BIG_BYTES - 5; at < sizeof page; at++)
            assert_int_equal(bytes[at], 0xee); /* and no more than these */
        big->mixed += !same;
    }
}

static void write_big(void *argument)
{
    struct big *big = argument;
    static uint8_t page[BIG_BYTES];
    for (int i = 1; i <= 100; i++) {
        memset(page, i, sizeof page);
        assert_int_equal(
            cluster_write(big->cluster->endpoints[0], gaddr_make(0, PAGE_OFFSET), page, sizeof page), 0);
    }
}

static void test_long_and_unaligned_reads_are_fetched_in_words(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.torn_reads = 1;
    faults.tear_window_ns = 20000;
    for (unsigned offset = 0; offset < 4; offset += 3) {
        struct cluster cluster;
        struct big big = {.cluster = &cluster, .offset = offset};
        cluster_create(&cluster, 1, 2, NULL, &faults, offset);
        assert_int_equal(sim_spawn(cluster.sim, 0, 0, write_big, &big, NULL), 0);
        assert_int_equal(sim_spawn(cluster.sim, 1, 0, read_big, &big, NULL), 0);
        assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
        assert_true(big.mixed > 30);
        cluster_destroy(&cluster);
    }
}

/* The page is changed while READs are under way: by a torn WRITE, a call, or a callback outside of all tasks.
 */
enum changer { TORN_WRITES, CALLS, OUTSIDE };

struct changes {
    struct cluster cluster;
    enum changer changer;
    uint64_t round, began, ended; /* of the last change: when its first and last word was stored */
    uint64_t read_began, read_ended;
    uint64_t across, mixed; /* READs that began before a change and ended after it; and saw both sides */
};

static void change_page(struct changes *changes)
{
    uint64_t *page = cluster_word(&changes->cluster, 0, PAGE_OFFSET);
    changes->round++;
    changes->began = changes->ended = sim_now(changes->cluster.sim);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        page[i] = changes->round;
}

static int call_changes(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                        size_t capacity, size_t *reply_length)
{
    (void)compute_id;
    (void)request;
    (void)length;
    (void)reply;
    (void)capacity;
    *reply_length = 0;
    change_page(owner);
    return BANYAN_OK;
}

static void change_outside(void *argument)
{
    change_page(argument);
}

static void change_often(void *argument)
{
    struct changes *changes = argument;
    uint64_t page[PAGE_WORDS];
    char reply[8];
    size_t length;
    for (int i = 0; i < 300; i++) {
        task_sleep(20000);
        if (changes->changer == CALLS) {
            assert_int_equal(
                fabric_call(changes->cluster.endpoints[0], 0, "x", 1, reply, sizeof reply, &length, NULL), 0);
        } else if (changes->changer == OUTSIDE) {
            assert_int_equal(sim_at(changes->cluster.sim, task_now() + 100, change_outside, changes), 0);
        } else {
            changes->round++;
            for (unsigned word = 0; word < PAGE_WORDS; word++)
                page[word] = changes->round;
            assert_int_equal(
                cluster_write(changes->cluster.endpoints[0], gaddr_make(0, PAGE_OFFSET), page, sizeof page),
                0);
        }
    }
}

static void note_instants(void *context, const struct sim_observation *seen)
{
    struct changes *changes = context;
    if (seen->kind != SIM_EFFECT || seen->count != 1)
        return;
    bool reading = seen->commands[0].operation == FABRIC_READ;
    if (seen->status > 0)
        *(reading ? &changes->read_began : &changes->began) = seen->time_ns;
    else
        *(reading ? &changes->read_ended : &changes->ended) = seen->time_ns;
}

static void read_across(void *argument)
{
    struct changes *changes = argument;
    uint64_t page[PAGE_WORDS];
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(
            cluster_read(changes->cluster.endpoints[1], gaddr_make(0, PAGE_OFFSET), page, sizeof page), 0);
        bool same = true;
        for (unsigned word = 1; word < PAGE_WORDS; word++)
            same = same && page[word] == page[0];
        if (changes->read_began < changes->began && changes->began <= changes->ended &&
            changes->ended < changes->read_ended) {
            changes->across++;
            changes->mixed += !same;
        }
    }
}

static void test_reads_see_both_sides_of_any_change(void **state)
{
    (void)state;
    for (enum changer changer = TORN_WRITES; changer <= OUTSIDE; changer++) {
        struct sim_faults faults;
        static struct changes changes;
        memset(&changes, 0, sizeof changes);
        changes.changer = changer;
        sim_faults_none(&faults);
        faults.torn_reads = 1;
        faults.torn_writes = changer == TORN_WRITES;
        faults.tear_window_ns = 5000;
        cluster_create(&changes.cluster, 1, 2, NULL, &faults, 8);
        changes.cluster.targets[0].call = call_changes;
        changes.cluster.targets[0].owner = &changes;
        sim_observe(changes.cluster.sim, note_instants, &changes);
        assert_int_equal(sim_spawn(changes.cluster.sim, 0, 0, change_often, &changes, NULL), 0);
        assert_int_equal(sim_spawn(changes.cluster.sim, 1, 0, read_across, &changes, NULL), 0);
        assert_int_equal(sim_run(changes.cluster.sim, UINT64_MAX), 0);
        assert_true(changes.across > 20);
        assert_true(changes.mixed > changes.across / 2);
        cluster_destroy(&changes.cluster);
    }
}

/* ------------------------------------------------------------------ order within and between lists */

struct ordering {
    struct cluster *cluster;
    uint64_t overtaken, split, rounds;
    bool stop;
};

static void read_then_overwrite(void *argument)
{
    struct ordering *ordering = argument;
    uint64_t seen, value;
    for (uint64_t round = 1; round <= 500; round++) {
        value = round;
        struct fabric_command commands[] = {
            {.operation = FABRIC_READ, .address = gaddr_make(0, 4096), .length = 8, .read.buffer = &seen},
            {.operation = FABRIC_WRITE, .address = gaddr_make(0, 4096), .length = 8, .write.data = &value},
        };
        struct fabric_list list = {.count = 2, .commands = commands}, *lists[] = {&list};
        assert_int_equal(fabric_execute(ordering->cluster->endpoints[0], lists, 1, NULL), 0);
        assert_in_range(seen, round - 1, round);
        ordering->overtaken += seen == round;
    }
}

static uint64_t overtaken_reads(double torn_reads)
{
    struct sim_faults faults;
    struct cluster cluster;
    struct ordering ordering = {.cluster = &cluster};
    sim_faults_none(&faults);
    faults.torn_reads = torn_reads;
    cluster_create(&cluster, 1, 1, NULL, &faults, 5);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, read_then_overwrite, &ordering, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&cluster);
    return ordering.overtaken;
}

static void test_a_write_may_overtake_a_read(void **state)
{
    (void)state;
    assert_int_equal(overtaken_reads(0), 0);
    assert_true(overtaken_reads(0.5) > 50);
}

static void write_both(void *argument)
{
    struct ordering *ordering = argument;
    for (uint64_t round = 1; round <= 1000; round++) {
        struct fabric_command commands[] = {
            {.operation = FABRIC_WRITE, .address = gaddr_make(0, 4096), .length = 8, .write.data = &round},
            {.operation = FABRIC_WRITE, .address = gaddr_make(0, 8192), .length = 8, .write.data = &round},
        };
        struct fabric_list list = {.count = 2, .commands = commands}, *lists[] = {&list};
        assert_int_equal(fabric_execute(ordering->cluster->endpoints[0], lists, 1, NULL), 0);
    }
    ordering->stop = true;
}

static void read_both(void *argument)
{
    struct ordering *ordering = argument;
    while (!ordering->stop) {
        uint64_t first = 0, second = 0;
        struct fabric_endpoint *endpoint = ordering->cluster->endpoints[1];
        struct fabric_command commands[] = {
            {.operation = FABRIC_READ, .address = gaddr_make(0, 4096), .length = 8, .read.buffer = &first},
            {.operation = FABRIC_READ, .address = gaddr_make(0, 8192), .length = 8, .read.buffer = &second},
        };
        struct fabric_list list = {.count = 2, .commands = commands}, *lists[] = {&list};
        assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), 0);
        ordering->split += first != second;
        /* but never the second without the first */
        assert_int_equal(cluster_read(endpoint, gaddr_make(0, 8192), &second, 8), 0);
        assert_int_equal(cluster_read(endpoint, gaddr_make(0, 4096), &first, 8), 0);
        assert_true(first >= second);
        ordering->rounds++;
    }
}

static uint64_t split_lists(double spread)
{
    struct sim_faults faults;
    struct cluster cluster;
    struct ordering ordering = {.cluster = &cluster};
    sim_faults_none(&faults);
    faults.spread = spread;
    cluster_create(&cluster, 1, 2, NULL, &faults, 5);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, write_both, &ordering, NULL), 0);
    assert_int_equal(sim_spawn(cluster.sim, 1, 0, read_both, &ordering, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_true(ordering.rounds > 100);
    cluster_destroy(&cluster);
    return ordering.split;
}

static void test_others_come_between_commands_only_with_spread(void **state)
{
    (void)state;
    assert_int_equal(split_lists(0), 0);
    assert_true(split_lists(0.5) > 20);
}

#define TOGETHER 16

static void count_in_order(void *argument)
{
    struct cluster *cluster = argument;
    for (uint64_t round = 0; round < 200; round++) {
        struct fabric_command commands[TOGETHER];
        struct fabric_list list[TOGETHER], *lists[TOGETHER];
        for (uint64_t i = 0; i < TOGETHER; i++) {
            commands[i] = (struct fabric_command){
                .operation = FABRIC_FAA, .address = gaddr_make(0, 4096), .faa.add = 1};
            list[i] = (struct fabric_list){.count = 1, .commands = &commands[i]};
            lists[i] = &list[i];
        }
        assert_int_equal(fabric_execute(cluster->endpoints[0], lists, TOGETHER, NULL), 0);
        for (uint64_t i = 0; i < TOGETHER; i++)
            assert_int_equal(commands[i].faa.old, round * TOGETHER + i);
    }
}

static void test_a_connection_delivers_in_order(void **state)
{
    (void)state;
    struct sim_faults faults;
    struct cluster cluster;
    sim_faults_hostile(&faults);
    faults.late = 0.3;
    for (int hostile = 0; hostile < 2; hostile++) {
        cluster_create(&cluster, 1, 1, NULL, hostile ? &faults : NULL, 9);
        assert_int_equal(sim_spawn(cluster.sim, 0, 0, count_in_order, &cluster, NULL), 0);
        assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
        cluster_destroy(&cluster);
    }
}

/* Each list overwrites the page; the last one stays, in however many parts they are stored. */
static void overwrite_in_order(void *argument)
{
    struct cluster *cluster = argument;
    static uint64_t pages[TOGETHER][PAGE_WORDS];
    for (uint64_t round = 0; round < 200; round++) {
        struct fabric_command commands[TOGETHER];
        struct fabric_list list[TOGETHER], *lists[TOGETHER];
        for (uint64_t i = 0; i < TOGETHER; i++) {
            for (unsigned word = 0; word < PAGE_WORDS; word++)
                pages[i][word] = round * TOGETHER + i;
            commands[i] = (struct fabric_command){.operation = FABRIC_WRITE,
                                                  .address = gaddr_make(0, PAGE_OFFSET),
                                                  .length = sizeof pages[i],
                                                  .write.data = pages[i]};
            list[i] = (struct fabric_list){.count = 1, .commands = &commands[i]};
            lists[i] = &list[i];
        }
        assert_int_equal(fabric_execute(cluster->endpoints[0], lists, TOGETHER, NULL), 0);
        assert_memory_equal(cluster_word(cluster, 0, PAGE_OFFSET), pages[TOGETHER - 1], sizeof pages[0]);
    }
}

static void test_torn_writes_of_a_connection_keep_their_order(void **state)
{
    (void)state;
    struct sim_faults faults;
    struct cluster cluster;
    sim_faults_none(&faults);
    faults.torn_writes = 0.5;
    cluster_create(&cluster, 1, 1, NULL, &faults, 9);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, overwrite_in_order, &cluster, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&cluster);
}

/* ------------------------------------------------------------------ faults that change */

struct switching {
    struct cluster cluster;
    unsigned switches;
};

static void switch_faults(void *argument)
{
    struct switching *switching = argument;
    struct sim_faults faults;
    sim_faults_hostile(&faults);
    faults.late = 0.3;
    assert_int_equal(sim_set_faults(switching->cluster.sim, switching->switches % 2 ? NULL : &faults, NULL),
                     0);
    if (++switching->switches < 200)
        assert_int_equal(
            sim_at(switching->cluster.sim, sim_now(switching->cluster.sim) + 7000, switch_faults, switching),
            0);
}

static void test_order_is_kept_while_faults_change(void **state)
{
    (void)state;
    struct switching switching = {0};
    cluster_create(&switching.cluster, 1, 1, NULL, NULL, 9);
    switch_faults(&switching);
    assert_int_equal(sim_spawn(switching.cluster.sim, 0, 0, count_in_order, &switching.cluster, NULL), 0);
    assert_int_equal(sim_spawn(switching.cluster.sim, 0, 1, overwrite_in_order, &switching.cluster, NULL), 0);
    assert_int_equal(sim_run(switching.cluster.sim, UINT64_MAX), 0);
    assert_true(switching.switches > 20);
    cluster_destroy(&switching.cluster);
}

static void set_torn(void *argument)
{
    struct tearing *tearing = argument;
    struct sim_faults faults;
    struct error error = {0};
    sim_faults_none(&faults);
    faults.torn_reads = 2;
    assert_int_equal(sim_set_faults(tearing->cluster->sim, &faults, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "torn-reads"));
    faults.torn_reads = tearing->mixed == 0;
    assert_int_equal(sim_set_faults(tearing->cluster->sim, &faults, NULL), 0);
}

static void test_faults_begin_and_end(void **state)
{
    (void)state;
    struct cluster cluster;
    struct tearing tearing = {.cluster = &cluster};
    cluster_create(&cluster, 1, 2, NULL, NULL, 3);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, write_pages, &tearing, NULL), 0);
    assert_int_equal(sim_spawn(cluster.sim, 1, 0, read_pages, &tearing, NULL), 0);
    sim_run(cluster.sim, 500000);
    assert_int_equal(tearing.mixed, 0);
    set_torn(&tearing);
    sim_run(cluster.sim, 1000000);
    assert_true(tearing.mixed > 20);
    set_torn(&tearing);
    sim_run(cluster.sim, 1010000); /* lists under way come in */
    uint64_t mixed = tearing.mixed;
    assert_false(tearing.stop);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(tearing.mixed, mixed);
    cluster_destroy(&cluster);
}

/* ------------------------------------------------------------------ answers in order */

#define PENDING 256

struct answers {
    struct cluster cluster;
    const struct fabric_command *posted[2][PENDING]; /* by memory node: one connection to each */
    unsigned first[2], next[2];
    uint64_t returned;
};

static void follow_answers(void *context, const struct sim_observation *seen)
{
    struct answers *answers = context;
    if (seen->kind == SIM_POSTED) {
        answers->posted[seen->memory][answers->next[seen->memory]++ % PENDING] = seen->commands;
    } else if (seen->kind == SIM_RETURNED) {
        assert_ptr_equal(seen->commands,
                         answers->posted[seen->memory][answers->first[seen->memory]++ % PENDING]);
        answers->returned++;
    }
}

static void read_often(void *argument)
{
    struct answers *answers = argument;
    uint64_t page[PAGE_WORDS];
    uint16_t node = sim_task_number(answers->cluster.sim) % 2;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(cluster_read(answers->cluster.endpoints[0], gaddr_make(node, PAGE_OFFSET), page,
                                      i % 2 ? sizeof page : 8),
                         0);
        if (i % 4 == 0)
            assert_int_equal(cluster_write(answers->cluster.endpoints[0], gaddr_make(node, PAGE_OFFSET), page,
                                           sizeof page),
                             0);
    }
}

static void test_answers_keep_their_order(void **state)
{
    (void)state;
    struct sim_faults faults;
    static struct answers answers;
    memset(&answers, 0, sizeof answers);
    sim_faults_hostile(&faults);
    faults.late_replies = 0.3;
    cluster_create(&answers.cluster, 2, 1, NULL, &faults, 2);
    sim_observe(answers.cluster.sim, follow_answers, &answers);
    for (unsigned i = 0; i < 20; i++) /* fibers of one thread, which owns the endpoint */
        assert_int_equal(sim_spawn(answers.cluster.sim, 0, 0, read_often, &answers, NULL), 0);
    assert_int_equal(sim_run(answers.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(answers.returned, 20 * 375);
    cluster_destroy(&answers.cluster);
}

/* ------------------------------------------------------------------ late, stalled, queued */

struct timing {
    struct cluster *cluster;
    uint64_t slowest, fastest;
};

static void time_reads(void *argument)
{
    struct timing *timing = argument;
    timing->fastest = UINT64_MAX;
    for (int i = 0; i < 300; i++) {
        uint64_t word, before = task_now();
        assert_int_equal(cluster_read(timing->cluster->endpoints[0], gaddr_make(0, 64), &word, 8), 0);
        uint64_t spent = task_now() - before;
        timing->slowest = spent > timing->slowest ? spent : timing->slowest;
        timing->fastest = spent < timing->fastest ? spent : timing->fastest;
    }
}

static struct timing time_with(const struct sim_faults *faults)
{
    struct cluster cluster;
    struct timing timing = {.cluster = &cluster};
    cluster_create(&cluster, 1, 1, NULL, faults, 2);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, time_reads, &timing, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&cluster);
    return timing;
}

static void test_messages_are_late_and_nodes_stall(void **state)
{
    (void)state;
    struct sim_faults faults;
    struct timing plain = time_with(NULL);
    assert_in_range(plain.fastest, 1700, 2500);
    assert_in_range(plain.slowest, plain.fastest, 12000);
    sim_faults_none(&faults);
    faults.late = 0.1;
    faults.late_ns = 100000;
    struct timing late = time_with(&faults);
    assert_in_range(late.fastest, 1700, 2500);
    assert_in_range(late.slowest, 50000, 105000);
    sim_faults_none(&faults);
    faults.late_replies = 0.1;
    faults.late_ns = 100000;
    late = time_with(&faults);
    assert_in_range(late.fastest, 1700, 2500);
    assert_in_range(late.slowest, 50000, 105000);
    sim_faults_none(&faults);
    faults.stall = 0.1;
    faults.stall_ns = 200000;
    assert_in_range(time_with(&faults).slowest, 100000, 205000);
}

struct queueing {
    struct cluster cluster;
    gaddr atomic;
    bool stop;
    uint64_t slowest_atomic, slowest_read, atomics;
};

static void time_atomics(void *argument)
{
    struct queueing *queueing = argument;
    for (int i = 0; i < 300; i++) {
        uint64_t old, before = task_now();
        assert_int_equal(cluster_add(queueing->cluster.endpoints[0], queueing->atomic, 1, &old), 0);
        uint64_t spent = task_now() - before;
        assert_int_equal(old, queueing->atomics++);
        queueing->slowest_atomic = spent > queueing->slowest_atomic ? spent : queueing->slowest_atomic;
    }
    queueing->stop = true;
}

static void time_reads_beside(void *argument)
{
    struct queueing *queueing = argument;
    while (!queueing->stop) {
        uint64_t word, before = task_now();
        assert_int_equal(cluster_read(queueing->cluster.endpoints[1], gaddr_make(0, 64), &word, 8), 0);
        uint64_t spent = task_now() - before;
        queueing->slowest_read = spent > queueing->slowest_read ? spent : queueing->slowest_read;
    }
}

static struct queueing queue_atomics(double rate, gaddr atomic)
{
    struct sim_faults faults;
    struct queueing queueing = {.atomic = atomic};
    sim_faults_none(&faults);
    faults.atomic_queue = rate;
    faults.atomic_queue_ns = 200000;
    cluster_create(&queueing.cluster, 1, 2, NULL, &faults, 2);
    assert_int_equal(sim_spawn(queueing.cluster.sim, 0, 0, time_atomics, &queueing, NULL), 0);
    assert_int_equal(sim_spawn(queueing.cluster.sim, 1, 0, time_reads_beside, &queueing, NULL), 0);
    assert_int_equal(sim_run(queueing.cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&queueing.cluster);
    return queueing;
}

static void test_atomics_queue_behind_many(void **state)
{
    (void)state;
    gaddr host = gaddr_make(0, 4096), chip = gaddr_make(0, GADDR_LOCK_REGION | 64);
    assert_true(queue_atomics(0, host).slowest_atomic < 12000);
    struct queueing on_host = queue_atomics(0.05, host), on_chip = queue_atomics(0.05, chip);
    assert_in_range(on_host.slowest_atomic, 100000, 205000);
    assert_in_range(on_chip.slowest_atomic, 100000, 205000);
    /* the atomic stops the pipeline, and others behind it, wherever the word lies */
    assert_true(on_host.slowest_read > 100000);
    assert_true(on_chip.slowest_read > 100000);
}

/* ------------------------------------------------------------------ death */

#define CHAIN    8    /* words written by one list, in order */
#define LONG     4096 /* bytes: longer than atomic_write */
#define SHORT    1024 /* bytes: as long */
#define CHAIN_AT 4096
#define LONG_AT  8192
#define SHORT_AT 16384
#define LEASE_NS 50000

struct victim {
    struct cluster *cluster;
    uint64_t killed_at, fenced_at, rounds;
    bool dead;
    uint64_t seen_chain[CHAIN], seen_long[LONG / 8], seen_short[SHORT / 8]; /* at the fence */
};

/* Round after round the same three lists; the values are the round. */
static void write_for_ever(void *argument)
{
    struct victim *victim = argument;
    struct fabric_endpoint *endpoint = victim->cluster->endpoints[0];
    uint64_t data[LONG / 8];
    for (uint64_t round = 1;; round++) {
        struct fabric_command commands[CHAIN];
        struct fabric_list list = {.count = CHAIN, .commands = commands}, *lists[] = {&list};
        assert_false(victim->dead); /* nothing of a dead node runs */
        for (unsigned i = 0; i < LONG / 8; i++)
            data[i] = round;
        for (unsigned i = 0; i < CHAIN; i++)
            commands[i] = (struct fabric_command){.operation = FABRIC_WRITE,
                                                  .address = gaddr_make(0, CHAIN_AT + 8 * i),
                                                  .length = 8,
                                                  .write.data = data};
        assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), 0);
        assert_int_equal(cluster_write(endpoint, gaddr_make(0, LONG_AT), data, LONG), 0);
        assert_int_equal(cluster_write(endpoint, gaddr_make(0, SHORT_AT), data, SHORT), 0);
        victim->rounds = round;
    }
}

static void on_fenced(void *argument)
{
    struct victim *victim = argument;
    victim->fenced_at = sim_now(victim->cluster->sim);
    memcpy(victim->seen_chain, cluster_word(victim->cluster, 0, CHAIN_AT), sizeof victim->seen_chain);
    memcpy(victim->seen_long, cluster_word(victim->cluster, 0, LONG_AT), sizeof victim->seen_long);
    memcpy(victim->seen_short, cluster_word(victim->cluster, 0, SHORT_AT), sizeof victim->seen_short);
}

static void kill_victim(void *argument)
{
    struct victim *victim = argument;
    victim->dead = true;
    victim->killed_at = sim_now(victim->cluster->sim);
    sim_kill_compute(victim->cluster->sim, 0, LEASE_NS, on_fenced, victim);
}

static void survive(void *argument)
{
    struct victim *victim = argument;
    uint64_t word;
    while (!victim->fenced_at)
        assert_int_equal(cluster_read(victim->cluster->endpoints[1], gaddr_make(0, 64), &word, 8), 0);
    task_sleep(10 * LEASE_NS);
}

/* How many words from the start have the first word's value; the others must have the value before. */
static unsigned new_words(const uint64_t *words, unsigned count, bool in_order)
{
    unsigned fresh = 0;
    uint64_t newest = 0;
    for (unsigned i = 0; i < count; i++)
        newest = words[i] > newest ? words[i] : newest;
    for (unsigned i = 0; i < count; i++) {
        assert_in_range(words[i], newest - 1, newest);
        if (in_order && i > 0)
            assert_true(words[i] <= words[i - 1]);
        fresh += words[i] == newest;
    }
    return fresh;
}

struct cuts {
    unsigned chains, longs;
};

static void kill_once(const struct sim_faults *faults, uint64_t seed, struct cuts *cuts)
{
    struct cluster cluster;
    struct victim victim = {.cluster = &cluster};
    cluster_create(&cluster, 1, 2, NULL, faults, seed);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, write_for_ever, &victim, NULL), 0);
    assert_int_equal(sim_spawn(cluster.sim, 1, 0, survive, &victim, NULL), 0);
    assert_int_equal(sim_at(cluster.sim, 400000 + seed * 137, kill_victim, &victim), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_false(sim_compute_alive(cluster.sim, 0));
    assert_true(sim_compute_alive(cluster.sim, 1));
    assert_int_equal(victim.fenced_at, victim.killed_at + LEASE_NS);
    assert_true(victim.rounds > 0);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, survive, &victim, NULL), BANYAN_EFENCED);

    /* nothing arrived after the fence */
    assert_memory_equal(victim.seen_chain, cluster_word(&cluster, 0, CHAIN_AT), sizeof victim.seen_chain);
    assert_memory_equal(victim.seen_long, cluster_word(&cluster, 0, LONG_AT), sizeof victim.seen_long);
    assert_memory_equal(victim.seen_short, cluster_word(&cluster, 0, SHORT_AT), sizeof victim.seen_short);
    cuts->chains += new_words(victim.seen_chain, CHAIN, true) < CHAIN;
    cuts->longs += new_words(victim.seen_long, LONG / 8, false) < LONG / 8;
    assert_int_equal(new_words(victim.seen_short, SHORT / 8, false), SHORT / 8); /* entirely or not at all */
    cluster_destroy(&cluster);
}

static void test_a_dead_nodes_lists_are_cut(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_hostile(&faults);
    for (int hostile = 0; hostile < 2; hostile++) {
        struct cuts cuts = {0};
        for (uint64_t seed = 0; seed < 200; seed++)
            kill_once(hostile ? &faults : NULL, seed, &cuts);
        assert_true(cuts.chains > 5 && cuts.chains < 150);
        assert_true(cuts.longs > 5 && cuts.longs < 150);
    }
}

static void kill_itself(void *argument)
{
    struct victim *victim = argument;
    uint64_t one = 1;
    assert_int_equal(cluster_write(victim->cluster->endpoints[0], gaddr_make(0, 4096), &one, 8), 0);
    sim_kill_compute(victim->cluster->sim, 0, LEASE_NS, on_fenced, victim);
    victim->rounds = 1; /* never reached */
}

static void test_a_task_may_kill_its_own_node(void **state)
{
    (void)state;
    struct cluster cluster;
    struct victim victim = {.cluster = &cluster};
    cluster_create(&cluster, 1, 1, NULL, NULL, 1);
    assert_int_equal(sim_spawn(cluster.sim, 0, 0, kill_itself, &victim, NULL), 0);
    assert_int_equal(sim_run(cluster.sim, UINT64_MAX), 0);
    assert_int_equal(victim.rounds, 0);
    assert_true(victim.fenced_at >= LEASE_NS);
    assert_int_equal(*cluster_word(&cluster, 0, 4096), 1);
    cluster_destroy(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_tear_only_with_faults),
        cmocka_unit_test(test_a_write_may_overtake_a_read),
        cmocka_unit_test(test_others_come_between_commands_only_with_spread),
        cmocka_unit_test(test_a_connection_delivers_in_order),
        cmocka_unit_test(test_messages_are_late_and_nodes_stall),
        cmocka_unit_test(test_a_dead_nodes_lists_are_cut),
        cmocka_unit_test(test_a_task_may_kill_its_own_node),
        cmocka_unit_test(test_words_come_in_every_order),
        cmocka_unit_test(test_words_come_in_address_order_where_asked),
        cmocka_unit_test(test_long_and_unaligned_reads_are_fetched_in_words),
        cmocka_unit_test(test_torn_writes_of_a_connection_keep_their_order),
        cmocka_unit_test(test_order_is_kept_while_faults_change),
        cmocka_unit_test(test_faults_begin_and_end),
        cmocka_unit_test(test_answers_keep_their_order),
        cmocka_unit_test(test_atomics_queue_behind_many),
        cmocka_unit_test(test_reads_see_both_sides_of_any_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
