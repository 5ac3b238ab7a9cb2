/*
 * test_death.c - compute nodes that die at any point of their lists and calls, and processes that take
 * their place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/task.h"
#include "tests/sim/cluster.h"

#define LEASE_NS 30000
#define WORD_AT  4096
#define ADD_AT   4104
#define SWAP_AT  4112
#define LAST_AT  4120
#define SHORT    1024 /* bytes: as long as atomic_write */
#define SHORT_AT 8192
#define LONG     4096
#define LONG_AT  16384
#define NEW      UINT64_C(0x0101010101010101)

struct death {
    struct cluster cluster;
    uint64_t died_at, fenced_at;
    uint8_t at_death[2][LONG_AT + LONG];
    uint64_t calls_at_death;
    bool returned;
};

static void on_fenced(void *argument)
{
    struct death *death = argument;
    assert_int_equal(death->fenced_at, 0);
    death->fenced_at = sim_now(death->cluster.sim);
}

/* The memory's state when the node dies. */
static void see_death(void *context, const struct sim_observation *seen)
{
    struct death *death = context;
    if (seen->kind != SIM_DIED)
        return;
    death->died_at = seen->time_ns;
    death->calls_at_death = death->cluster.calls;
    for (unsigned i = 0; i < death->cluster.memories; i++)
        memcpy(death->at_death[i], death->cluster.targets[i].pool, sizeof death->at_death[i]);
}

/* ------------------------------------------------------------------ before the n-th effect */

#define MIXED 6

static void run_mixed(void *argument)
{
    struct death *death = argument;
    uint64_t data[SHORT / 8], seen[SHORT / 8];
    memset(data, 1, sizeof data);
    struct fabric_command commands[MIXED] = {
        {.operation = FABRIC_WRITE, .address = gaddr_make(0, WORD_AT), .length = 8, .write.data = data},
        {.operation = FABRIC_FAA, .address = gaddr_make(0, ADD_AT), .faa.add = NEW},
        {.operation = FABRIC_READ, .address = gaddr_make(0, SHORT_AT), .length = SHORT, .read.buffer = seen},
        {.operation = FABRIC_CAS,
         .address = gaddr_make(0, SWAP_AT),
         .cas = {.compare = 0, .swap = NEW, .mask = UINT64_MAX}},
        {.operation = FABRIC_WRITE, .address = gaddr_make(0, SHORT_AT), .length = SHORT, .write.data = data},
        {.operation = FABRIC_WRITE, .address = gaddr_make(0, LAST_AT), .length = 8, .write.data = data},
    };
    struct fabric_list list = {.count = MIXED, .commands = commands}, *lists[] = {&list};
    assert_int_equal(fabric_execute(death->cluster.endpoints[0], lists, 1, NULL), 0);
    death->returned = true;
}

static void mixed_and_call(void *argument)
{
    struct death *death = argument;
    char reply[8];
    size_t length;
    run_mixed(death);
    fabric_call(death->cluster.endpoints[0], 0, "hello", 5, reply, sizeof reply, &length, NULL);
}

/* How many of the mixed commands have happened, which must be the first ones; the READ counts as the one
 * before it. */
static unsigned mixed_done(struct death *death)
{
    const uint64_t offsets[MIXED] = {WORD_AT, ADD_AT, ADD_AT, SWAP_AT, SHORT_AT, LAST_AT};
    unsigned done = 0;
    for (unsigned i = 0; i < MIXED; i++) {
        uint64_t word = *cluster_word(&death->cluster, 0, offsets[i]);
        assert_true(word == 0 || word == NEW);
        assert_true(word == 0 || done == i);
        done += word == NEW;
    }
    for (unsigned i = 1; i < SHORT / 8; i++) /* entirely or not at all */
        assert_int_equal(*cluster_word(&death->cluster, 0, SHORT_AT + 8 * i),
                         *cluster_word(&death->cluster, 0, SHORT_AT));
    return done;
}

static void test_every_prefix_of_a_list_occurs(void **state)
{
    (void)state;
    static struct death death;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.torn_reads = faults.torn_writes = faults.spread = 1;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const struct sim_faults *which = seed % 2 ? &faults : NULL;
        /* the commands done when the n-th is the one that does not happen; a READ changes nothing */
        const unsigned expected[MIXED] = {0, 1, 3, 3, 4, 5};
        for (unsigned n = 1; n <= MIXED + 2; n++) { /* the last but one: the call */
            memset(&death, 0, sizeof death);
            cluster_create(&death.cluster, 1, 1, NULL, which, seed);
            assert_int_equal(sim_spawn(death.cluster.sim, 0, 0, mixed_and_call, &death, NULL), 0);
            sim_kill_compute_at(death.cluster.sim, 0, n, LEASE_NS, on_fenced, &death);
            sim_observe(death.cluster.sim, see_death, &death);
            sim_run(death.cluster.sim, UINT64_MAX);
            bool alive = sim_compute_alive(death.cluster.sim, 0);
            assert_int_equal(alive, n > MIXED + 1);
            assert_int_equal(death.cluster.calls, alive);
            assert_int_equal(death.returned, n > MIXED);
            assert_int_equal(mixed_done(&death), n > MIXED ? MIXED : expected[n - 1]);
            if (!alive)
                assert_in_range(death.fenced_at, death.died_at + LEASE_NS, death.died_at + LEASE_NS + 1);
            cluster_destroy(&death.cluster);
        }
    }
}

static void write_long(void *argument)
{
    struct death *death = argument;
    uint64_t data[LONG / 8];
    memset(data, 1, sizeof data);
    assert_int_equal(cluster_write(death->cluster.endpoints[0], gaddr_make(0, LONG_AT), data, LONG), 0);
    assert_int_equal(cluster_write(death->cluster.endpoints[0], gaddr_make(0, LAST_AT), data, 8), 0);
    death->returned = true;
}

static void test_a_torn_long_write_is_cut_between_its_parts(void **state)
{
    (void)state;
    static struct death death;
    struct sim_faults faults;
    unsigned cuts = 0;
    sim_faults_none(&faults);
    faults.torn_writes = 1;
    for (uint64_t seed = 0; seed < 20; seed++) {
        unsigned before = 0;
        bool alive = false;
        for (unsigned n = 1; !alive; n++) {
            memset(&death, 0, sizeof death);
            cluster_create(&death.cluster, 1, 1, NULL, &faults, seed);
            assert_int_equal(sim_spawn(death.cluster.sim, 0, 0, write_long, &death, NULL), 0);
            sim_kill_compute_at(death.cluster.sim, 0, n, LEASE_NS, on_fenced, &death);
            sim_run(death.cluster.sim, UINT64_MAX);
            alive = sim_compute_alive(death.cluster.sim, 0);
            unsigned words = 0;
            for (unsigned i = 0; i < LONG / 8; i++)
                words += *cluster_word(&death.cluster, 0, LONG_AT + 8 * i) == NEW;
            assert_true(words >= before && (n > 1 || words == 0));
            assert_true(words == LONG / 8 || !*cluster_word(&death.cluster, 0, LAST_AT));
            cuts += words > before && words < LONG / 8;
            before = words;
            assert_int_equal(*cluster_word(&death.cluster, 0, LAST_AT) == NEW, alive);
            cluster_destroy(&death.cluster);
        }
    }
    assert_true(cuts > 20);
}

#define BUSY 6

/* Tasks with endpoints of their own keep both memory nodes busy, by lists and calls. */
static void keep_busy(void *argument)
{
    struct death *death = argument;
    struct fabric_endpoint *endpoint = fabric_endpoint_open(sim_fabric(death->cluster.sim, 0), NULL);
    assert_non_null(endpoint);
    uint32_t number = sim_task_number(death->cluster.sim);
    uint16_t node = (uint16_t)(number % 2);
    for (uint64_t round = 1;; round++) {
        char reply[8];
        size_t length;
        uint64_t data[SHORT / 8], old;
        for (unsigned i = 0; i < SHORT / 8; i++)
            data[i] = round;
        cluster_write(endpoint, gaddr_make(node, SHORT_AT + number * SHORT), data, SHORT);
        cluster_add(endpoint, gaddr_make(node, ADD_AT), 1, &old);
        fabric_call(endpoint, node, "hello", 5, reply, sizeof reply, &length, NULL);
    }
}

static void test_a_kill_at_an_effect_cuts_everything(void **state)
{
    (void)state;
    static struct death death;
    struct sim_faults faults;
    uint64_t calls = 0;
    unsigned finished = 0;
    sim_faults_hostile(&faults);
    for (int hostile = 0; hostile < 2; hostile++)
        for (uint64_t n = 1; n <= 60; n++) {
            memset(&death, 0, sizeof death);
            cluster_create(&death.cluster, 2, 1, NULL, hostile ? &faults : NULL, n);
            sim_observe(death.cluster.sim, see_death, &death);
            for (unsigned i = 0; i < BUSY; i++)
                assert_int_equal(sim_spawn(death.cluster.sim, 0, i, keep_busy, &death, NULL), 0);
            /* every other lease ends before a torn WRITE does */
            sim_kill_compute_at(death.cluster.sim, 0, n, n % 2 ? LEASE_NS : 300, on_fenced, &death);
            assert_int_equal(sim_run(death.cluster.sim, UINT64_MAX), 0);
            assert_true(death.fenced_at > 0);
            assert_int_equal(death.cluster.calls, death.calls_at_death);
            uint64_t added =
                *cluster_word(&death.cluster, 0, ADD_AT) + *cluster_word(&death.cluster, 1, ADD_AT);
            assert_true(added + death.cluster.calls < n);
            calls += death.cluster.calls;
            for (unsigned task = 0; task < BUSY; task++) {
                uint64_t offset = SHORT_AT + task * SHORT;
                const uint64_t *page = cluster_word(&death.cluster, task % 2, offset);
                const void *before = death.at_death[task % 2] + offset;
                for (unsigned i = 1; i < SHORT / 8; i++)
                    assert_int_equal(page[i], page[0]);
                /* short WRITEs that have begun are finished, and nothing else */
                finished += memcmp(before, page, SHORT) != 0;
                assert_true(hostile || memcmp(before, page, SHORT) == 0);
                assert_memory_equal(death.at_death[task % 2], death.cluster.targets[task % 2].pool, SHORT_AT);
            }
            cluster_destroy(&death.cluster);
        }
    assert_true(calls > 0 && finished > 0);
}

/* ------------------------------------------------------------------ at any time, in any state */

enum state { BEFORE, POSTED, HALF_DONE, DONE, CALLED, SERVED, AFTER, STATES };

struct lives {
    struct death death;
    enum state state;
    unsigned commands_done;
    uint64_t kill_time;
};

static void follow(void *context, const struct sim_observation *seen)
{
    struct lives *lives = context;
    if (seen->kind == SIM_DIED)
        lives->death.died_at = seen->time_ns;
    if (lives->death.died_at)
        return;
    switch (seen->kind) {
    case SIM_POSTED:
        lives->state = POSTED;
        break;
    case SIM_EFFECT:
        if (seen->count == 0) {
            lives->state = SERVED;
        } else {
            lives->commands_done += seen->status == 0 ? seen->count : 0;
            lives->state = lives->commands_done == MIXED ? DONE : HALF_DONE;
        }
        break;
    case SIM_CALLED:
        lives->state = CALLED;
        break;
    case SIM_CALL_RETURNED:
        lives->state = AFTER;
        break;
    default:
        break;
    }
}

static void kill_now(void *argument)
{
    struct lives *lives = argument;
    sim_kill_compute(lives->death.cluster.sim, 0, LEASE_NS, on_fenced, &lives->death);
}

static void test_death_meets_lists_in_every_state(void **state)
{
    (void)state;
    static struct lives lives;
    /* by the state at death: nothing, a part or all of the list was done; the call was served */
    unsigned outcomes[STATES][3] = {{0}}, served[STATES] = {0};
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.torn_reads = faults.torn_writes = faults.spread = 0.8;
    faults.late = 0.2;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        memset(&lives, 0, sizeof lives);
        cluster_create(&lives.death.cluster, 1, 1, NULL, &faults, seed);
        sim_observe(lives.death.cluster.sim, follow, &lives);
        assert_int_equal(sim_spawn(lives.death.cluster.sim, 0, 0, mixed_and_call, &lives.death, NULL), 0);
        assert_int_equal(sim_at(lives.death.cluster.sim, seed * 20, kill_now, &lives), 0);
        sim_run(lives.death.cluster.sim, UINT64_MAX);
        unsigned done = mixed_done(&lives.death);
        outcomes[lives.state][done == 0 ? 0 : done < MIXED ? 1 : 2]++;
        served[lives.state] += lives.death.cluster.calls > 0;
        cluster_destroy(&lives.death.cluster);
    }
    for (unsigned outcome = 0; outcome < 3; outcome++)
        assert_true(outcomes[POSTED][outcome] > 0);
    assert_true(outcomes[HALF_DONE][1] > 0 && outcomes[HALF_DONE][2] > 0);
    for (enum state later = DONE; later < STATES; later++)
        assert_true(outcomes[later][2] > 0 && outcomes[later][1] + outcomes[later][0] == 0);
    unsigned called = outcomes[CALLED][2];
    assert_true(served[CALLED] > 0 && served[CALLED] < called);
    assert_int_equal(served[SERVED], outcomes[SERVED][2]);
}

/* Two tasks use one endpoint: the lists of the second come behind those of the first. */
static void write_in_turn(void *argument)
{
    struct death *death = argument;
    uint64_t offset = WORD_AT + 64 * sim_task_number(death->cluster.sim), value = NEW;
    struct fabric_command commands[4];
    for (unsigned i = 0; i < 4; i++)
        commands[i] = (struct fabric_command){.operation = FABRIC_WRITE,
                                              .address = gaddr_make(0, offset + 8 * i),
                                              .length = 8,
                                              .write.data = &value};
    struct fabric_list list = {.count = 4, .commands = commands}, *lists[] = {&list};
    fabric_execute(death->cluster.endpoints[0], lists, 1, NULL);
}

static void kill_one(void *argument)
{
    struct death *death = argument;
    sim_kill_compute(death->cluster.sim, 0, LEASE_NS, on_fenced, death);
}

static void test_nothing_comes_behind_a_cut(void **state)
{
    (void)state;
    static struct death death;
    unsigned cut = 0, second = 0;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.spread = 1;
    for (uint64_t seed = 0; seed < 400; seed++) {
        memset(&death, 0, sizeof death);
        cluster_create(&death.cluster, 1, 1, NULL, seed % 2 ? &faults : NULL, seed);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(sim_spawn(death.cluster.sim, 0, 0, write_in_turn, &death, NULL), 0);
        assert_int_equal(sim_at(death.cluster.sim, 400 + seed * 3, kill_one, &death), 0);
        sim_run(death.cluster.sim, UINT64_MAX);
        bool whole = *cluster_word(&death.cluster, 0, WORD_AT + 24) != 0;
        bool begun = *cluster_word(&death.cluster, 0, WORD_AT + 64) != 0;
        assert_true(whole || !begun);
        cut += !whole;
        second += begun;
        cluster_destroy(&death.cluster);
    }
    assert_true(cut > 100 && second > 50);
}

static void work_then_write(void *argument)
{
    struct death *death = argument;
    uint64_t value = NEW;
    task_charge(TASK_WORK_OPERATION, 4); /* 4 us of its thread's time, from 0 */
    cluster_write(death->cluster.endpoints[0], gaddr_make(0, WORD_AT), &value, 8);
}

static void test_what_would_have_been_posted_later_never_comes(void **state)
{
    (void)state;
    static struct death death;
    unsigned came = 0;
    for (uint64_t seed = 0; seed < 40; seed++)
        for (int later = 0; later < 2; later++) {
            struct sim_faults faults;
            sim_faults_none(&faults);
            faults.spread = seed % 2 ? 1 : 0;
            memset(&death, 0, sizeof death);
            cluster_create(&death.cluster, 1, 1, NULL, &faults, seed);
            assert_int_equal(sim_spawn(death.cluster.sim, 0, 0, work_then_write, &death, NULL), 0);
            assert_int_equal(sim_at(death.cluster.sim, later ? 4200 : 3600, kill_one, &death), 0);
            sim_run(death.cluster.sim, UINT64_MAX);
            assert_true(later || *cluster_word(&death.cluster, 0, WORD_AT) == 0);
            came += *cluster_word(&death.cluster, 0, WORD_AT) != 0;
            cluster_destroy(&death.cluster);
        }
    assert_true(came > 5);
}

/* A buffer on the heap is its owner's again when the node has been fenced. */
struct buffered {
    struct death death;
    uint64_t buffer[SHORT / 8];
};

static void read_slowly(void *argument)
{
    struct buffered *buffered = argument;
    cluster_read(buffered->death.cluster.endpoints[0], gaddr_make(0, SHORT_AT), buffered->buffer, SHORT);
}

static void fill_buffer(void *argument)
{
    struct buffered *buffered = argument;
    on_fenced(&buffered->death);
    memset(buffered->buffer, 0xab, SHORT);
}

static void kill_reader(void *argument)
{
    struct buffered *buffered = argument;
    sim_kill_compute(buffered->death.cluster.sim, 0, 100, fill_buffer, buffered);
}

static void overwrite(void *argument)
{
    struct buffered *buffered = argument;
    uint64_t data[SHORT / 8];
    memset(data, 1, sizeof data);
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            cluster_write(buffered->death.cluster.endpoints[1], gaddr_make(0, SHORT_AT), data, SHORT), 0);
}

static void test_a_dead_nodes_buffers_are_left_alone(void **state)
{
    (void)state;
    static struct buffered buffered;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.torn_reads = 1;
    faults.tear_window_ns = 20000;
    for (uint64_t seed = 0; seed < 20; seed++) {
        memset(&buffered, 0, sizeof buffered);
        cluster_create(&buffered.death.cluster, 1, 2, NULL, &faults, seed);
        assert_int_equal(sim_spawn(buffered.death.cluster.sim, 0, 0, read_slowly, &buffered, NULL), 0);
        assert_int_equal(sim_spawn(buffered.death.cluster.sim, 1, 0, overwrite, &buffered, NULL), 0);
        assert_int_equal(sim_at(buffered.death.cluster.sim, 1500, kill_reader, &buffered), 0);
        assert_int_equal(sim_run(buffered.death.cluster.sim, UINT64_MAX), 0);
        assert_true(buffered.death.fenced_at > 0);
        const uint8_t *bytes = (const uint8_t *)buffered.buffer;
        for (unsigned i = 0; i < SHORT; i++)
            assert_int_equal(bytes[i], 0xab);
        cluster_destroy(&buffered.death.cluster);
    }
}

/* ------------------------------------------------------------------ restart */

struct restarted {
    struct death death;
    int index;
    uint64_t value; /* of the running generation */
    bool done;
};

static void write_late(void *argument)
{
    struct restarted *restarted = argument;
    uint64_t value = restarted->value;
    cluster_write(restarted->death.cluster.endpoints[0], gaddr_make(0, WORD_AT), &value, 8);
}

static void write_new(void *argument)
{
    struct restarted *restarted = argument;
    struct fabric *fabric = sim_fabric(restarted->death.cluster.sim, restarted->index);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    uint64_t value = 1000 + (uint64_t)restarted->index;
    char reply[8];
    size_t length;
    assert_non_null(endpoint);
    assert_int_equal(fabric_incarnation(fabric), 1);
    assert_int_equal(cluster_write(endpoint, gaddr_make(0, WORD_AT), &value, 8), 0);
    assert_int_equal(fabric_call(endpoint, 0, "hello", 5, reply, sizeof reply, &length, NULL), 0);
    assert_int_equal(length, 5);
    fabric_endpoint_close(endpoint);
    restarted->done = true;
}

static void restart(void *argument)
{
    struct restarted *restarted = argument;
    struct sim *sim = restarted->death.cluster.sim;
    struct error error = {0};
    int before = restarted->index;
    restarted->index = sim_restart_compute(sim, before, &error);
    assert_true(restarted->index > before);
    assert_int_equal(fabric_capabilities(sim_fabric(sim, restarted->index))->compute_id, 1);
    assert_true(sim_compute_alive(sim, restarted->index));
    assert_int_equal(sim_restart_compute(sim, before, &error), BANYAN_EINVAL);
    assert_int_equal(sim_restart_compute(sim, restarted->index, &error), BANYAN_EBUSY);
    assert_int_equal(sim_spawn(sim, before, 0, write_new, restarted, &error), BANYAN_EFENCED);
    assert_int_equal(sim_spawn(sim, restarted->index, 0, write_new, restarted, NULL), 0);
}

static void kill_present(void *argument)
{
    struct restarted *restarted = argument;
    struct error error = {0};
    sim_kill_compute(restarted->death.cluster.sim, restarted->index, LEASE_NS, restart, restarted);
    assert_int_equal(sim_restart_compute(restarted->death.cluster.sim, restarted->index, &error),
                     BANYAN_EBUSY);
    assert_non_null(strstr(error.text, "fenced"));
}

static void test_a_restarted_node_meets_nothing_of_the_dead(void **state)
{
    (void)state;
    static struct restarted restarted;
    struct sim_faults faults;
    unsigned late = 0;
    sim_faults_none(&faults);
    faults.late = 1; /* most lists would arrive after the fence */
    faults.late_ns = 20 * LEASE_NS;
    faults.torn_writes = 0.5;
    for (uint64_t seed = 0; seed < 50; seed++) {
        memset(&restarted, 0, sizeof restarted);
        restarted.value = 7;
        cluster_create(&restarted.death.cluster, 1, 2, NULL, &faults, seed);
        struct sim *sim = restarted.death.cluster.sim;
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(sim_spawn(sim, 0, i, write_late, &restarted, NULL), 0);
        assert_int_equal(sim_at(sim, 5000, kill_present, &restarted), 0);
        assert_int_equal(sim_run(sim, UINT64_MAX), 0);
        assert_true(restarted.done);
        assert_int_equal(restarted.index, 2);
        assert_int_equal(*cluster_word(&restarted.death.cluster, 0, WORD_AT), 1002);
        late += sim_now(sim) > 5000 + LEASE_NS + faults.late_ns / 2000;

        /* and again, from the one restarted */
        restarted.done = false;
        assert_int_equal(sim_at(sim, sim_now(sim) + 100, kill_present, &restarted), 0);
        assert_int_equal(sim_run(sim, UINT64_MAX), 0);
        assert_true(restarted.done);
        assert_int_equal(*cluster_word(&restarted.death.cluster, 0, WORD_AT), 1003);
        assert_int_equal(sim_add_compute(sim, NULL), 4);
        assert_int_equal(fabric_capabilities(sim_fabric(sim, 4))->compute_id, 3);
        assert_int_equal(sim_restart_compute(sim, 9, NULL), BANYAN_EINVAL);
        cluster_destroy(&restarted.death.cluster);
    }
    assert_true(late > 25);
}

static void test_nics_are_shared_and_freed_once(void **state)
{
    (void)state;
    static struct restarted restarted;
    for (unsigned computes = 1; computes < 4; computes++) { /* fewer, as many, more than memory nodes */
        memset(&restarted, 0, sizeof restarted);
        cluster_create(&restarted.death.cluster, 2, computes, NULL, NULL, 1);
        assert_int_equal(sim_at(restarted.death.cluster.sim, 10, kill_present, &restarted), 0);
        assert_int_equal(sim_run(restarted.death.cluster.sim, UINT64_MAX), 0);
        assert_true(restarted.done);
        /* the third machine gets its memory node after its compute node, and after the restart */
        assert_int_equal(
            sim_add_memory(restarted.death.cluster.sim, &restarted.death.cluster.targets[0], NULL), 2);
        cluster_destroy(&restarted.death.cluster); /* the sanitizers watch */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_prefix_of_a_list_occurs),
        cmocka_unit_test(test_a_torn_long_write_is_cut_between_its_parts),
        cmocka_unit_test(test_a_kill_at_an_effect_cuts_everything),
        cmocka_unit_test(test_death_meets_lists_in_every_state),
        cmocka_unit_test(test_a_restarted_node_meets_nothing_of_the_dead),
        cmocka_unit_test(test_nics_are_shared_and_freed_once),
        cmocka_unit_test(test_nothing_comes_behind_a_cut),
        cmocka_unit_test(test_what_would_have_been_posted_later_never_comes),
        cmocka_unit_test(test_a_dead_nodes_buffers_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
