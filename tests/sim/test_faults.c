/* test_faults.c - the faults occur when on, never when off, and never break what the fabric promises. */
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
    assert_in_range(plain.slowest, plain.fastest, 5000);
    sim_faults_none(&faults);
    faults.late = 0.1;
    faults.late_ns = 100000;
    struct timing late = time_with(&faults);
    assert_in_range(late.fastest, 1700, 2500);
    assert_in_range(late.slowest, 50000, 105000);
    sim_faults_none(&faults);
    faults.stall = 0.1;
    faults.stall_ns = 200000;
    assert_in_range(time_with(&faults).slowest, 100000, 205000);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
