/* test_worker.c - order of running, permits, sleeping, spawning from fibers, and unparking across threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"

struct trace {
    char text[64];
    size_t length;
};

struct writer {
    struct trace *trace;
    char letter;
    uint64_t sleep;
    uint64_t began; /* by the worker's thread, before it slept */
};

static void trace_add(struct trace *trace, char letter)
{
    assert_true(trace->length < sizeof trace->text - 1);
    trace->text[trace->length++] = letter;
}

static void write_and_yield(void *argument)
{
    struct writer *writer = argument;
    for (int i = 0; i < 3; i++) {
        trace_add(writer->trace, writer->letter);
        task_yield();
    }
}

static void test_yield_goes_to_the_back(void **state)
{
    (void)state;
    struct trace trace = {0};
    struct writer writers[3] = {{&trace, 'a', 0, 0}, {&trace, 'b', 0, 0}, {&trace, 'c', 0, 0}};
    struct worker *worker = worker_create();
    for (int i = 0; i < 3; i++)
        assert_int_equal(worker_spawn(worker, write_and_yield, &writers[i]), 0);
    worker_run(worker);
    assert_string_equal(trace.text, "abcabcabc");
    worker_destroy(worker);
}

static void sleep_and_write(void *argument)
{
    struct writer *writer = argument;
    writer->began = task_now();
    task_sleep(writer->sleep);
    assert_true(task_now() - writer->began >= writer->sleep);
    trace_add(writer->trace, writer->letter);
}

/* Each is due its sleep after it began, and before the next one began: so it is known of two whose turn is
 * first, unless the thread did not run in between for as long as they are apart. */
static void test_sleepers_wake_in_order(void **state)
{
    (void)state;
    enum { SLEEPERS = 4 };
    struct trace trace = {0};
    struct writer writers[SLEEPERS + 1] = {{&trace, 'd', 40000000, 0},
                                           {&trace, 'b', 20000000, 0},
                                           {&trace, 'a', 0, 0},
                                           {&trace, 'c', 30000000, 0},
                                           {&trace, 'e', 50000000, 0}};
    struct worker *worker = worker_create();
    for (int i = 0; i <= SLEEPERS; i++)
        worker_spawn(worker, sleep_and_write, &writers[i]);
    worker_run(worker);
    assert_int_equal(trace.length, SLEEPERS + 1);
    for (int i = 0; i < SLEEPERS; i++)
        for (int j = 0; j <= SLEEPERS; j++)
            if (writers[i + 1].began + writers[i].sleep < writers[j].began + writers[j].sleep)
                assert_true(strchr(trace.text, writers[i].letter) < strchr(trace.text, writers[j].letter));
    worker_destroy(worker);
}

static void keep_permit(void *argument)
{
    task_unpark(task_self());
    task_unpark(task_self());
    task_yield();
    task_park(); /* returns, or the test hangs */
    *(int *)argument = 1;
}

static void test_permit_is_kept(void **state)
{
    (void)state;
    int done = 0;
    struct worker *worker = worker_create();
    worker_spawn(worker, keep_permit, &done);
    struct task *outside = task_self();
    worker_run(worker);
    assert_int_equal(done, 1);
    assert_ptr_equal(task_self(), outside);
    worker_destroy(worker);
}

struct family {
    struct worker *worker;
    int left, ran;
};

static void have_child(void *argument)
{
    struct family *family = argument;
    family->ran++;
    if (family->left-- > 0)
        assert_int_equal(worker_spawn(family->worker, have_child, family), 0);
}

static void test_fibers_spawn_fibers(void **state)
{
    (void)state;
    struct family family = {.worker = worker_create(), .left = 500};
    worker_spawn(family.worker, have_child, &family);
    worker_run(family.worker);
    assert_int_equal(family.ran, 501);
    worker_run(family.worker); /* nothing to do: returns */
    worker_destroy(family.worker);
}

static void never(void *argument)
{
    *(int *)argument = 1;
}

static void test_destroy_without_running(void **state)
{
    (void)state;
    int ran = 0;
    struct worker *worker = worker_create();
    for (int i = 0; i < 10; i++)
        worker_spawn(worker, never, &ran);
    worker_destroy(worker);
    assert_int_equal(ran, 0);
}

/* Every player waits for its turn, adds to a plain counter and wakes the next, who may be on another
 * thread. */
enum { WORKERS = 3, PLAYERS_EACH = 100, PLAYERS = WORKERS * PLAYERS_EACH, LAPS = 60 };

struct ring {
    struct task *players[PLAYERS];
    uint32_t seated, left;
    uint32_t turn;
    uint64_t plain; /* only its turn protects it */
};

struct player {
    struct ring *ring;
    uint32_t number;
};

static void play(void *argument)
{
    struct player *player = argument;
    struct ring *ring = player->ring;
    uint32_t next = (player->number + 1) % PLAYERS;
    atomic_store_release(&ring->players[player->number], task_self());
    __atomic_fetch_add(&ring->seated, 1u, __ATOMIC_RELEASE);
    while (atomic_load_acquire(&ring->seated) < PLAYERS)
        task_yield();
    for (int lap = 0; lap < LAPS; lap++) {
        while (atomic_load_acquire(&ring->turn) != player->number)
            task_park();
        ring->plain++;
        atomic_store_release(&ring->turn, next);
        task_unpark(atomic_load_acquire(&ring->players[next]));
    }
    /* A worker may be destroyed only when no thread will unpark its fibers any more. */
    __atomic_fetch_add(&ring->left, 1u, __ATOMIC_RELEASE);
}

static void run_players(void *argument)
{
    struct player *players = argument;
    struct ring *ring = players->ring;
    struct worker *worker = worker_create();
    for (int i = 0; i < PLAYERS_EACH; i++)
        assert_int_equal(worker_spawn(worker, play, &players[i]), 0);
    worker_run(worker);
    while (atomic_load_acquire(&ring->left) < PLAYERS)
        task_yield();
    worker_destroy(worker);
}

static void test_unpark_across_threads(void **state)
{
    (void)state;
    static struct player players[PLAYERS];
    static struct ring ring;
    /* Neighbours in the ring sit on different workers. */
    for (uint32_t i = 0; i < PLAYERS; i++)
        players[i] = (struct player){&ring, i % PLAYERS_EACH * WORKERS + i / PLAYERS_EACH};
    struct thread *threads[WORKERS];
    struct error error;
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(thread_start(&threads[i], run_players, &players[i * PLAYERS_EACH], &error), 0);
    for (int i = 0; i < WORKERS; i++)
        thread_join(threads[i]);
    assert_int_equal(ring.plain, PLAYERS * LAPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yield_goes_to_the_back),  cmocka_unit_test(test_sleepers_wake_in_order),
        cmocka_unit_test(test_permit_is_kept),          cmocka_unit_test(test_fibers_spawn_fibers),
        cmocka_unit_test(test_destroy_without_running), cmocka_unit_test(test_unpark_across_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
