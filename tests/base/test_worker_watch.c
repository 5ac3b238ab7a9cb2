/* test_worker_watch.c - what a worker does beside running fibers: ready descriptors, turn hooks, posted
 * functions, thousands of sleepers, and being woken out of its sleep by other threads. */
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/atomic.h"
#include "base/cpus.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "base/worker_private.h"

#if defined(__SANITIZE_THREAD__)
#define SLEEPERS 2000 /* the sanitizer knows some 8,000 threads and fibers */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLEEPERS 2000
#endif
#endif
#ifndef SLEEPERS
#define SLEEPERS 10000
#endif

static int event_open(bool ready)
{
    int fd = eventfd(ready, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

static void event_signal(int fd)
{
    uint64_t one = 1;
    assert_int_equal(write(fd, &one, sizeof one), sizeof one);
}

static void event_clear(int fd)
{
    uint64_t count;
    assert_int_equal(read(fd, &count, sizeof count), sizeof count);
}

/* ---- descriptors ---- */

struct reader {
    struct worker_watch watch; /* first */
    struct worker *worker;
    struct task *fiber;
    unsigned called, wanted;
    uint32_t events;
};

static void reader_ready(struct worker_watch *watch, uint32_t events)
{
    struct reader *reader = (struct reader *)watch;
    assert_ptr_equal(worker_current(), reader->worker);
    event_clear(watch->fd);
    reader->events = events;
    reader->called++;
    task_unpark(reader->fiber);
}

static void read_events(void *argument)
{
    struct reader *reader = argument;
    reader->fiber = task_self();
    assert_ptr_equal(worker_current(), reader->worker);
    assert_int_equal(
        worker_watch_add(reader->worker, &reader->watch, event_open(false), EPOLLIN, reader_ready), 0);
    for (unsigned i = 0; i < reader->wanted; i++) {
        event_signal(reader->watch.fd);
        while (reader->called == i)
            task_park();
        assert_int_equal(reader->events, EPOLLIN);
    }
    int fd = reader->watch.fd;
    worker_watch_remove(&reader->watch);
    close(fd);
}

static void test_ready_descriptor_wakes(void **state)
{
    (void)state;
    struct reader reader = {.worker = worker_create(), .wanted = 100};
    assert_null(worker_current());
    worker_spawn(reader.worker, read_events, &reader);
    worker_run(reader.worker);
    assert_null(worker_current());
    assert_int_equal(reader.called, reader.wanted);
    worker_watch_remove(&reader.watch); /* once more: nothing */
    worker_destroy(reader.worker);
}

/* Fibers that never stop yielding do not keep descriptors waiting. */
static void yield_until_called(void *argument)
{
    struct reader *reader = argument;
    while (reader->called < reader->wanted)
        task_yield();
}

static void count_call(struct worker_watch *watch, uint32_t events)
{
    struct reader *reader = (struct reader *)watch;
    reader->events |= events;
    reader->called++;
}

static void test_busy_fibers_and_descriptors(void **state)
{
    (void)state;
    struct reader reader = {.worker = worker_create(), .wanted = 1000};
    int fd = event_open(true); /* and stays ready: level-triggered */
    assert_int_equal(worker_watch_add(reader.worker, &reader.watch, fd, EPOLLIN, count_call), 0);
    worker_spawn(reader.worker, yield_until_called, &reader);
    worker_spawn(reader.worker, yield_until_called, &reader);
    worker_run(reader.worker);
    assert_int_equal(reader.events, EPOLLIN);
    worker_watch_remove(&reader.watch);
    worker_destroy(reader.worker);
    close(fd);
}

/* Asks for writability first, then for readability: sees each alone. */
static void change_ready(struct worker_watch *watch, uint32_t events)
{
    struct reader *reader = (struct reader *)watch;
    assert_int_equal(events, reader->called ? EPOLLIN : EPOLLOUT);
    assert_int_equal(worker_watch_change(watch, EPOLLIN), 0);
    assert_int_equal(worker_watch_change(watch, EPOLLIN), 0);
    if (++reader->called == 2)
        worker_watch_remove(watch);
}

static void wait_for_calls(void *argument)
{
    struct reader *reader = argument;
    while (reader->called < reader->wanted)
        task_sleep(1000);
}

static void test_events_change(void **state)
{
    (void)state;
    struct reader reader = {.worker = worker_create(), .wanted = 2};
    int fd = event_open(true);
    assert_int_equal(worker_watch_change(&reader.watch, EPOLLIN), BANYAN_EINVAL); /* not added */
    assert_int_equal(worker_watch_add(reader.worker, &reader.watch, fd, EPOLLOUT, change_ready), 0);
    worker_spawn(reader.worker, wait_for_calls, &reader);
    worker_run(reader.worker);
    assert_int_equal(reader.called, 2);
    assert_int_equal(worker_watch_change(&reader.watch, EPOLLIN), BANYAN_EINVAL); /* not any more */
    worker_destroy(reader.worker);
    close(fd);
}

/* ---- the time of the round ---- */

struct rounds {
    struct worker_watch watch; /* first */
    struct worker *worker;
    struct task *fiber;
    int fd;
    uint64_t signalled, called;
};

static void rounds_ready(struct worker_watch *watch, uint32_t events)
{
    struct rounds *rounds = (struct rounds *)watch;
    (void)events;
    event_clear(rounds->fd);
    rounds->called = worker_round_ns(rounds->worker);
    assert_true(rounds->called >= rounds->signalled && rounds->called <= task_now());
    task_unpark(rounds->fiber);
}

/* A wait that is short, as its descriptor is ready. */
static void rounds_wait(struct rounds *rounds)
{
    rounds->called = 0;
    rounds->signalled = task_now();
    event_signal(rounds->fd);
    while (!rounds->called)
        task_park();
}

static void rounds_main(void *argument)
{
    struct rounds *rounds = argument;
    rounds->fiber = task_self();
    assert_int_equal(worker_watch_add(rounds->worker, &rounds->watch, rounds->fd, EPOLLIN, rounds_ready), 0);
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t begun = task_now();
        task_sleep(100000 * i);
        assert_true(worker_round_ns(rounds->worker) >= begun + 100000 * i);
        assert_true(worker_round_ns(rounds->worker) <= task_now());
        rounds_wait(rounds);
    }
    worker_watch_remove(&rounds->watch);
}

/* It is never later than the clock, and no earlier than what the round has waited for. */
static void test_time_of_the_round(void **state)
{
    (void)state;
    struct rounds rounds = {.worker = worker_create(), .fd = event_open(false)};
    assert_non_null(rounds.worker);
    assert_int_equal(worker_spawn(rounds.worker, rounds_main, &rounds), 0);
    worker_run(rounds.worker);
    worker_destroy(rounds.worker);
    close(rounds.fd);
}

/* ---- looks before a sleep ---- */

struct lingerer {
    struct rounds rounds; /* first */
    struct worker_hook hook;
    uint64_t turns;
};

static void lingerer_turn(struct worker_hook *hook)
{
    ((struct lingerer *)((char *)hook - offsetof(struct lingerer, hook)))->turns++;
}

static void lingerer_main(void *argument)
{
    struct lingerer *lingerer = argument;
    rounds_main(&lingerer->rounds);
    for (unsigned i = 0; i < 10; i++) {
        const uint64_t before = lingerer->turns;
        task_sleep(20000000);
        /* 20 us of looks, and some sleeps; all of the time were tens of thousands */
        assert_in_range(lingerer->turns - before, 0, 2000);
    }
    worker_hook_remove(lingerer->rounds.worker, &lingerer->hook);
}

/* A worker whose waits were short looks at its descriptors for a while only. */
static void test_looks_end(void **state)
{
    (void)state;
    struct lingerer lingerer = {.rounds = {.worker = worker_create(), .fd = event_open(false)},
                                .hook = {.turn = lingerer_turn}};
    assert_non_null(lingerer.rounds.worker);
    worker_hook_add(lingerer.rounds.worker, &lingerer.hook);
    assert_int_equal(worker_spawn(lingerer.rounds.worker, lingerer_main, &lingerer), 0);
    worker_run(lingerer.rounds.worker);
    worker_destroy(lingerer.rounds.worker);
    close(lingerer.rounds.fd);
}

/* Half of the CPUs, rounded down, are the workers'. */
static void test_who_may_look(void **state)
{
    (void)state;
    assert_false(worker_may_look(1, 1));
    assert_true(worker_may_look(1, 2));
    assert_false(worker_may_look(2, 2));
    assert_true(worker_may_look(1, 3));
    assert_false(worker_may_look(2, 3));
    assert_true(worker_may_look(2, 4));
    assert_false(worker_may_look(3, 4));
    assert_true(worker_may_look(0, 1)); /* an idle one, after a long sleep: it looks after no such sleep */
    assert_true(worker_may_look(32, 64));
    assert_false(worker_may_look(33, 64));
}

static void pinned_main(void *argument)
{
    unsigned *cpus = argument;
    assert_int_equal(thread_pin(0), 0);
    *cpus = cpus_count();
}

/* A worker of a pinned thread counts the CPUs of the process. */
static void test_pinned_threads_know_all_cpus(void **state)
{
    (void)state;
    unsigned cpus = 0;
    struct thread *thread;
    struct error error;
    assert_int_equal(thread_start(&thread, pinned_main, &cpus, &error), 0);
    thread_join(thread);
    assert_int_equal(cpus, cpus_count());
}

static void sparing_main(void *argument)
{
    struct lingerer *lingerer = argument;
    struct rounds *rounds = &lingerer->rounds;
    rounds->fiber = task_self();
    assert_int_equal(worker_watch_add(rounds->worker, &rounds->watch, rounds->fd, EPOLLIN, rounds_ready), 0);
    for (unsigned i = 0; i < 200; i++) {
        rounds_wait(rounds); /* looks might follow */
        task_sleep(500000);
    }
    worker_watch_remove(&rounds->watch);
    worker_hook_remove(rounds->worker, &lingerer->hook);
}

/* Where the process has one CPU, its worker takes no time of it for looks. */
static void test_no_looks_on_one_cpu(void **state)
{
    (void)state;
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(thread_pin(0), 0);
    struct lingerer lingerer = {.rounds = {.worker = worker_create(), .fd = event_open(false)},
                                .hook = {.turn = lingerer_turn}};
    assert_non_null(lingerer.rounds.worker);
    worker_hook_add(lingerer.rounds.worker, &lingerer.hook);
    assert_int_equal(worker_spawn(lingerer.rounds.worker, sparing_main, &lingerer), 0);
    worker_run(lingerer.rounds.worker);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    /* 600; with 20 us of looks before each of its sleeps they were some 30,000. */
    assert_in_range(lingerer.turns, 400, 6000);
    worker_destroy(lingerer.rounds.worker);
    close(lingerer.rounds.fd);
}

/* Two workers that sleep shortly until both of them are seen to be busy. */
struct pair {
    struct rounds rounds; /* first */
    uint32_t *both;       /* atomic */
};

static void pair_main(void *argument)
{
    struct pair *pair = argument;
    struct rounds *rounds = &pair->rounds;
    rounds->fiber = task_self();
    assert_int_equal(worker_watch_add(rounds->worker, &rounds->watch, rounds->fd, EPOLLIN, rounds_ready), 0);
    while (!atomic_load_relaxed(pair->both)) {
        rounds_wait(rounds);
        if (worker_busy_count() == 2)
            atomic_store_relaxed(pair->both, 1u);
    }
    worker_watch_remove(&rounds->watch);
}

/* Becomes busy, and then idle. */
static void calm_main(void *argument)
{
    struct rounds *rounds = argument;
    rounds->fiber = task_self();
    assert_int_equal(worker_watch_add(rounds->worker, &rounds->watch, rounds->fd, EPOLLIN, rounds_ready), 0);
    while (!worker_busy_count())
        rounds_wait(rounds);
    for (unsigned i = 0; i < 1000 && worker_busy_count(); i++)
        task_sleep(2000000); /* the worker sleeps less only if it comes to that late */
    assert_int_equal(worker_busy_count(), 0);
    worker_watch_remove(&rounds->watch);
}

static void pair_thread(void *argument)
{
    worker_run(((struct pair *)argument)->rounds.worker);
}

/* Busy workers are counted until they end. */
static void test_busy_workers_are_counted(void **state)
{
    (void)state;
    struct pair pairs[2];
    struct thread *threads[2];
    struct error error;
    uint32_t both = 0;
    assert_int_equal(worker_busy_count(), 0);
    for (unsigned i = 0; i < 2; i++) {
        pairs[i] =
            (struct pair){.rounds = {.worker = worker_create(), .fd = event_open(false)}, .both = &both};
        assert_int_equal(worker_spawn(pairs[i].rounds.worker, pair_main, &pairs[i]), 0);
        assert_int_equal(thread_start(&threads[i], pair_thread, &pairs[i], &error), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        thread_join(threads[i]);
        worker_destroy(pairs[i].rounds.worker);
        close(pairs[i].rounds.fd);
    }
    assert_int_equal(worker_busy_count(), 0);
}

static void test_idle_workers_are_not_busy(void **state)
{
    (void)state;
    struct rounds rounds = {.worker = worker_create(), .fd = event_open(false)};
    assert_int_equal(worker_spawn(rounds.worker, calm_main, &rounds), 0);
    worker_run(rounds.worker);
    worker_destroy(rounds.worker);
    close(rounds.fd);
}

static void test_watch_errors(void **state)
{
    (void)state;
    struct worker *worker = worker_create();
    struct worker_watch watches[100], other = {0};
    int fds[100];
    for (int i = 0; i < 100; i++) {
        fds[i] = event_open(false);
        assert_int_equal(worker_watch_add(worker, &watches[i], fds[i], EPOLLIN, count_call), 0);
    }
    assert_int_equal(worker_watch_add(worker, &other, fds[3], EPOLLIN, count_call), BANYAN_EINVAL);
    assert_int_equal(worker_watch_add(worker, &other, -1, EPOLLIN, count_call), BANYAN_EINVAL);
    worker_watch_remove(&other);
    for (int i = 0; i < 100; i++) {
        worker_watch_remove(&watches[i]);
        close(fds[i]);
    }
    worker_destroy(worker);
}

/* The first one called removes and frees all of them, itself too, and adds a new watch in their place. */
enum { CROWD = 20 };
struct crowd {
    struct worker *worker;
    struct member *members[CROWD];
    int fds[CROWD], quiet_fd;
    struct worker_watch newcomer;
    unsigned called, newcomer_called;
};
struct member {
    struct worker_watch watch; /* first */
    struct crowd *crowd;
};

static struct crowd *newcomers_crowd(struct worker_watch *watch)
{
    return (struct crowd *)((char *)watch - offsetof(struct crowd, newcomer));
}

static void newcomer_ready(struct worker_watch *watch, uint32_t events)
{
    (void)events;
    newcomers_crowd(watch)->newcomer_called++;
}

static void member_ready(struct worker_watch *watch, uint32_t events)
{
    struct crowd *crowd = ((struct member *)watch)->crowd;
    (void)events;
    crowd->called++;
    for (int i = 0; i < CROWD; i++) {
        worker_watch_remove(&crowd->members[i]->watch);
        free(crowd->members[i]);
        close(crowd->fds[i]);
    }
    assert_int_equal(
        worker_watch_add(crowd->worker, &crowd->newcomer, crowd->quiet_fd, EPOLLIN, newcomer_ready), 0);
}

static void yield_for_a_while(void *argument)
{
    (void)argument;
    for (int i = 0; i < 100; i++)
        task_yield();
}

static void test_removed_watches_are_not_called(void **state)
{
    (void)state;
    struct crowd crowd = {.worker = worker_create(), .quiet_fd = event_open(false)};
    for (int i = 0; i < CROWD; i++) {
        crowd.fds[i] = event_open(true);
        crowd.members[i] = calloc(1, sizeof *crowd.members[i]);
        assert_non_null(crowd.members[i]);
        crowd.members[i]->crowd = &crowd;
        assert_int_equal(
            worker_watch_add(crowd.worker, &crowd.members[i]->watch, crowd.fds[i], EPOLLIN, member_ready), 0);
    }
    worker_spawn(crowd.worker, yield_for_a_while, NULL);
    worker_run(crowd.worker);
    assert_int_equal(crowd.called, 1);
    assert_int_equal(crowd.newcomer_called, 0);
    worker_watch_remove(&crowd.newcomer);
    worker_destroy(crowd.worker);
    close(crowd.quiet_fd);
}

/* ---- hooks ---- */

struct trace {
    char text[64];
    size_t length;
};

struct writer {
    struct worker_hook hook; /* first */
    struct worker *worker;
    struct trace *trace;
    struct writer *removes;
    char letter;
};

static void trace_add(struct trace *trace, char letter)
{
    assert_true(trace->length < sizeof trace->text - 1);
    trace->text[trace->length++] = letter;
}

static void write_in_turn(struct worker_hook *hook)
{
    struct writer *writer = (struct writer *)hook;
    trace_add(writer->trace, writer->letter);
    if (writer->removes)
        worker_hook_remove(writer->worker, &writer->removes->hook);
}

static void write_and_yield(void *argument)
{
    struct writer *writer = argument;
    trace_add(writer->trace, writer->letter);
    task_yield();
    trace_add(writer->trace, writer->letter);
}

static void test_hooks_run_once_a_round(void **state)
{
    (void)state;
    struct trace trace = {0};
    struct worker *worker = worker_create();
    struct writer a = {.trace = &trace, .letter = 'a'}, b = {.trace = &trace, .letter = 'b'};
    struct writer hook = {.hook = {.turn = write_in_turn}, .trace = &trace, .letter = '.'};
    worker_hook_add(worker, &hook.hook);
    worker_spawn(worker, write_and_yield, &a);
    worker_spawn(worker, write_and_yield, &b);
    worker_run(worker);
    assert_string_equal(trace.text, "ab.ab.");
    worker_hook_remove(worker, &hook.hook);
    worker_hook_remove(worker, &hook.hook); /* once more: nothing */
    worker_spawn(worker, write_and_yield, &a);
    worker_run(worker);
    assert_string_equal(trace.text, "ab.ab.aa");
    worker_destroy(worker);
}

static void test_hooks_remove_hooks(void **state)
{
    (void)state;
    struct trace trace = {0};
    struct worker *worker = worker_create();
    struct writer hooks[3] = {{.letter = '1'}, {.letter = '2'}, {.letter = '3'}}, a = {.letter = 'a'};
    a.trace = &trace;
    for (int i = 0; i < 3; i++) { /* called in the order 3, 2, 1 */
        hooks[i].hook.turn = write_in_turn;
        hooks[i].trace = &trace;
        hooks[i].worker = worker;
        worker_hook_add(worker, &hooks[i].hook);
    }
    hooks[2].removes = &hooks[1];
    hooks[0].removes = &hooks[0];
    worker_spawn(worker, write_and_yield, &a);
    worker_run(worker);
    assert_string_equal(trace.text, "a31a3");
    worker_destroy(worker);
}

static void write_gone(struct worker_hook *hook)
{
    struct writer *writer = (struct writer *)hook;
    trace_add(writer->trace, writer->letter);
    worker_hook_remove(writer->worker, hook); /* is removed already: nothing */
}

static void test_hooks_hear_when_the_worker_goes(void **state)
{
    (void)state;
    struct trace trace = {0};
    struct worker *worker = worker_create();
    struct writer hooks[3] = {{.letter = '1'}, {.letter = '2'}, {.letter = '3'}};
    for (int i = 0; i < 3; i++) {
        hooks[i].hook = (struct worker_hook){.turn = write_in_turn, .gone = i == 1 ? NULL : write_gone};
        hooks[i].trace = &trace;
        hooks[i].worker = worker;
        worker_hook_add(worker, &hooks[i].hook);
    }
    worker_destroy(worker);
    assert_string_equal(trace.text, "31");
}

/* A hook that polls for what no descriptor tells: the worker goes round as long as it is awake, and looks at
 * descriptors meanwhile. */
struct poller {
    struct worker_hook hook; /* first */
    struct task *waiting;
    unsigned turns, asked, due;
};

static void poller_turn(struct worker_hook *hook)
{
    struct poller *poller = (struct poller *)hook;
    if (poller->waiting && ++poller->turns == poller->due) {
        task_unpark(poller->waiting);
        poller->waiting = NULL;
    }
}

static bool poller_awake(struct worker_hook *hook)
{
    struct poller *poller = (struct poller *)hook;
    poller->asked++;
    return poller->waiting != NULL;
}

static void wait_for_poller(void *argument)
{
    struct poller *poller = argument;
    poller->waiting = task_self();
    while (poller->waiting)
        task_park();
}

static void test_awake_hooks_keep_the_worker_from_sleeping(void **state)
{
    (void)state;
    struct worker *worker = worker_create();
    struct poller poller = {.hook = {.turn = poller_turn, .awake = poller_awake}, .due = 1000};
    worker_hook_add(worker, &poller.hook);
    assert_int_equal(worker_spawn(worker, wait_for_poller, &poller), 0);
    worker_run(worker); /* would sleep for ever */
    assert_int_equal(poller.turns, 1000);
    assert_true(poller.asked >= 999);
    worker_hook_remove(worker, &poller.hook);
    worker_destroy(worker);
}

struct heard {
    struct worker_watch watch; /* first */
    struct poller *poller;
    bool was;
};

static void hear_and_unpark(struct worker_watch *watch, uint32_t events)
{
    struct heard *heard = (struct heard *)watch;
    (void)events;
    heard->was = true;
    worker_watch_remove(watch);
    task_unpark(heard->poller->waiting);
    heard->poller->waiting = NULL;
}

static void test_awake_hooks_do_not_hide_descriptors(void **state)
{
    (void)state;
    struct worker *worker = worker_create();
    struct poller poller = {.hook = {.turn = poller_turn, .awake = poller_awake}, .due = UINT_MAX};
    struct heard heard = {.poller = &poller};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(worker_watch_add(worker, &heard.watch, ends[0], EPOLLIN, hear_and_unpark), 0);
    worker_hook_add(worker, &poller.hook);
    assert_int_equal(worker_spawn(worker, wait_for_poller, &poller), 0);
    worker_run(worker); /* would go round for ever */
    assert_true(heard.was);
    worker_hook_remove(worker, &poller.hook);
    worker_destroy(worker);
    close(ends[0]);
    close(ends[1]);
}

/* A callback that wakes no fiber is followed by the hooks before the worker sleeps again. */
struct gatherer {
    struct reader reader;    /* first */
    struct worker_hook hook; /* sends what the callback has gathered */
    struct task *fiber;
    bool gathered, sent;
};

static void gather(struct worker_watch *watch, uint32_t events)
{
    struct gatherer *gatherer = (struct gatherer *)watch;
    (void)events;
    event_clear(watch->fd);
    gatherer->gathered = true;
}

static void send_gathered(struct worker_hook *hook)
{
    struct gatherer *gatherer = (struct gatherer *)((char *)hook - offsetof(struct gatherer, hook));
    if (!gatherer->gathered)
        return;
    gatherer->sent = true;
    task_unpark(gatherer->fiber);
}

static void wait_until_sent(void *argument)
{
    struct gatherer *gatherer = argument;
    gatherer->fiber = task_self();
    event_signal(gatherer->reader.watch.fd);
    while (!gatherer->sent)
        task_park();
}

static void test_hooks_run_after_callbacks(void **state)
{
    (void)state;
    struct worker *worker = worker_create();
    struct gatherer gatherer = {.hook = {.turn = send_gathered}};
    int fd = event_open(false);
    assert_int_equal(worker_watch_add(worker, &gatherer.reader.watch, fd, EPOLLIN, gather), 0);
    worker_hook_add(worker, &gatherer.hook);
    worker_spawn(worker, wait_until_sent, &gatherer);
    worker_run(worker);
    assert_true(gatherer.sent);
    worker_watch_remove(&gatherer.reader.watch);
    worker_destroy(worker);
    close(fd);
}

/* ---- posts ---- */

struct posting {
    struct worker *worker;
    struct task *fiber;
    unsigned left, ran, spawned;
};

static void count_spawned(void *argument)
{
    ((struct posting *)argument)->spawned++;
}

static void posted(void *argument)
{
    struct posting *posting = argument;
    assert_ptr_equal(worker_current(), posting->worker);
    posting->ran++;
    if (posting->left-- > 1)
        assert_int_equal(worker_post(posting->worker, posted, posting), 0);
    else
        assert_int_equal(worker_spawn(posting->worker, count_spawned, posting), 0);
}

static void post_and_return(void *argument)
{
    struct posting *posting = argument;
    assert_int_equal(worker_post(posting->worker, posted, posting), 0);
}

static void test_posts_run_after_the_last_fiber(void **state)
{
    (void)state;
    struct posting posting = {.worker = worker_create(), .left = 10};
    worker_spawn(posting.worker, post_and_return, &posting);
    worker_run(posting.worker);
    assert_int_equal(posting.ran, 10);
    assert_int_equal(posting.spawned, 1);
    assert_int_equal(worker_post(posting.worker, posted, &posting), 0); /* never run, but freed */
    worker_destroy(posting.worker);
    assert_int_equal(posting.ran, 10);
}

static void trace_first(void *argument)
{
    trace_add(argument, '1');
}
static void trace_second(void *argument)
{
    trace_add(argument, '2');
}

static void test_posts_keep_their_order(void **state)
{
    (void)state;
    struct trace trace = {0};
    struct worker *worker = worker_create();
    for (int i = 0; i < 3; i++) {
        worker_post(worker, trace_first, &trace);
        worker_post(worker, trace_second, &trace);
    }
    worker_run(worker);
    assert_string_equal(trace.text, "121212");
    worker_destroy(worker);
}

/* Other threads post to a worker that sleeps most of the time. */
enum { POSTERS = 3, POSTS_EACH = 3000 };

static void count_post(void *argument)
{
    struct posting *posting = argument; /* a plain counter: only the worker's thread touches it */
    if (++posting->ran == POSTERS * POSTS_EACH && posting->fiber) /* it may not have begun yet */
        task_unpark(posting->fiber);
}

static void post_many(void *argument)
{
    struct posting *posting = argument;
    for (int i = 0; i < POSTS_EACH; i++)
        assert_int_equal(worker_post(posting->worker, count_post, posting), 0);
}

static void wait_for_posts(void *argument)
{
    struct posting *posting = argument;
    posting->fiber = task_self();
    while (posting->ran < POSTERS * POSTS_EACH)
        task_park();
}

static void test_posts_across_threads(void **state)
{
    (void)state;
    struct posting posting = {.worker = worker_create()};
    struct thread *threads[POSTERS];
    struct error error;
    worker_spawn(posting.worker, wait_for_posts, &posting);
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(thread_start(&threads[i], post_many, &posting, &error), 0);
    worker_run(posting.worker);
    for (int i = 0; i < POSTERS; i++)
        thread_join(threads[i]);
    assert_int_equal(posting.ran, POSTERS * POSTS_EACH);
    worker_destroy(posting.worker);
}

/* ---- sleepers and wake-ups ---- */

struct sleeper {
    uint64_t duration;
    uint32_t *awake;
};

static void sleep_once(void *argument)
{
    struct sleeper *sleeper = argument;
    uint64_t before = task_now();
    task_sleep(sleeper->duration);
    assert_true(task_now() - before >= sleeper->duration);
    ++*sleeper->awake;
}

static void test_thousands_of_sleepers(void **state)
{
    (void)state;
    struct sleeper *sleepers = calloc(SLEEPERS, sizeof *sleepers);
    struct worker *worker = worker_create();
    uint32_t awake = 0, random = 1;
    assert_non_null(sleepers);
    for (int i = 0; i < SLEEPERS; i++) {
        random = random * 1664525u + 1013904223u;
        sleepers[i] = (struct sleeper){random >> 6, &awake}; /* to 67 ms */
        assert_int_equal(worker_spawn(worker, sleep_once, &sleepers[i]), 0);
    }
    worker_run(worker);
    assert_int_equal(awake, SLEEPERS);
    worker_destroy(worker);
    free(sleepers);
}

/* A thread and a fiber take turns, so that each sleeps when the other wakes it: one lost wake-up hangs. */
enum { TURNS = 20000 };
struct match {
    struct task *fiber, *thread;
    uint32_t turn, plain;
};

static void match_play(struct match *match, struct task *other, uint32_t parity)
{
    for (uint32_t i = parity; i < TURNS; i += 2) {
        while (atomic_load_acquire(&match->turn) != i)
            task_park();
        match->plain++;
        atomic_store_release(&match->turn, i + 1);
        task_unpark(other);
    }
}

static void match_fiber(void *argument)
{
    struct match *match = argument;
    atomic_store_release(&match->fiber, task_self());
    task_unpark(match->thread);
    match_play(match, match->thread, 0);
}

static void match_worker(void *argument)
{
    worker_run(argument);
}

static void test_no_wake_up_is_lost(void **state)
{
    (void)state;
    struct match match = {.thread = task_self()};
    struct worker *worker = worker_create();
    struct thread *thread;
    struct error error;
    worker_spawn(worker, match_fiber, &match);
    assert_int_equal(thread_start(&thread, match_worker, worker, &error), 0);
    while (!atomic_load_acquire(&match.fiber))
        task_park();
    match_play(&match, match.fiber, 1);
    thread_join(thread);
    assert_int_equal(match.plain, TURNS);
    task_unpark(match.fiber); /* late: its record is still there, and the unpark does no harm */
    uint32_t awake = 0;
    struct sleeper sleeper = {1000, &awake};
    worker_spawn(worker, sleep_once, &sleeper);
    worker_run(worker);
    assert_int_equal(awake, 1);
    worker_destroy(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_descriptor_wakes),
        cmocka_unit_test(test_busy_fibers_and_descriptors),
        cmocka_unit_test(test_events_change),
        cmocka_unit_test(test_time_of_the_round),
        cmocka_unit_test(test_looks_end),
        cmocka_unit_test(test_who_may_look),
        cmocka_unit_test(test_pinned_threads_know_all_cpus),
        cmocka_unit_test(test_no_looks_on_one_cpu),
        cmocka_unit_test(test_busy_workers_are_counted),
        cmocka_unit_test(test_idle_workers_are_not_busy),
        cmocka_unit_test(test_watch_errors),
        cmocka_unit_test(test_removed_watches_are_not_called),
        cmocka_unit_test(test_hooks_run_once_a_round),
        cmocka_unit_test(test_hooks_remove_hooks),
        cmocka_unit_test(test_hooks_hear_when_the_worker_goes),
        cmocka_unit_test(test_awake_hooks_keep_the_worker_from_sleeping),
        cmocka_unit_test(test_awake_hooks_do_not_hide_descriptors),
        cmocka_unit_test(test_hooks_run_after_callbacks),
        cmocka_unit_test(test_posts_run_after_the_last_fiber),
        cmocka_unit_test(test_posts_keep_their_order),
        cmocka_unit_test(test_posts_across_threads),
        cmocka_unit_test(test_thousands_of_sleepers),
        cmocka_unit_test(test_no_wake_up_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
