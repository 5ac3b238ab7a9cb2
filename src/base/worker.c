/*
 * worker.c - the fibers of a worker and the rounds in which it runs them; see worker.h.
 *
 * A round: take the mail, run every fiber that is runnable now, run the turn hooks, then look around: wake
 * sleepers, poll descriptors, or sleep if no fiber can run. A worker's own fibers park, unpark and yield
 * without any lock or atomic: the run queue and the permits are touched by the worker's thread alone.
 *
 * Other threads leave mail: they push onto the lock-free `inbox` (only ever taken whole, so there is no ABA)
 * and write the eventfd if the worker sleeps. No wake-up gets lost, because both sides store before they
 * load, sequentially consistent: the sender pushes, then loads `sleeping`; the worker stores `sleeping`, then
 * loads `inbox`. At least one of them sees the other's store.
 */
#include "base/worker.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cpus.h"
#include "base/error.h"
#include "base/fiber.h"
#include "base/task.h"
#include "worker_private.h"

/* Sleeps shorter than this (ns) are spun through: a timer of the kernel comes tens of microseconds late. */
#define SPIN_BELOW 50000u
/* A busy worker polls its descriptors after so many rounds, or so many ns, whatever is first. */
#define POLL_ROUNDS 8u
#define POLL_PERIOD 5000u
/* While a hook polls for something that no descriptor tells, each look at the descriptors that finds nothing
 * doubles the time to the next look, up to this: a system call in each round would cost more than what is
 * waited for. */
#define POLL_PERIOD_AWAKE 100000u
/* After this many rounds in which every fiber only yielded, they may all be waiting for a thread that needs
 * this CPU, so the worker yields it. */
#define WAITING_ROUNDS 4u
/* Fibers kept, with their stacks, for functions to come. */
#define SPARE_FIBERS 256u

struct worker_task {
    struct task task;
    struct worker *worker;
    struct fiber *fiber;
    void (*function)(void *);
    void *argument;
    bool permit, parked, returned;
    uint32_t mailed;              /* `mail` is in the inbox; atomic */
    uint64_t due;                 /* while asleep */
    struct worker_task *next;     /* in the run queue or among the spare */
    struct worker_task *next_all; /* of the worker */
    struct worker_mail mail;
};

/* Tells an unpark by one of the worker's own fibers from one by another thread. A fiber stays on its thread,
 * so the address of this may be cached across a switch. */
static _Thread_local struct worker *current;

/* Workers of the process that are busy (worker_count_busy). Of the process, since its workers share its CPUs,
 * whoever has made them; atomic, and relaxed since nothing else is told by it: a worker that reads an old
 * number looks, or does not, for one sleep. Written only when a worker becomes busy or idle. */
static unsigned busy_workers;

struct worker *worker_current(void)
{
    return current;
}

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t worker_round_ns(const struct worker *worker)
{
    return worker->round_ns;
}

static inline void enqueue(struct worker *worker, struct worker_task *task)
{
    task->next = NULL;
    if (worker->head)
        worker->tail->next = task;
    else
        worker->head = task;
    worker->tail = task;
}

/* ---- sleepers: a binary heap, the earliest first ---- */

static void sleepers_push(struct worker *worker, struct worker_task *task)
{
    assert(worker->sleeping_tasks < worker->sleepers_capacity);
    struct worker_task **heap = worker->sleepers;
    size_t at = worker->sleeping_tasks++;
    while (at > 0 && heap[(at - 1) / 2]->due > task->due) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = task;
}

static struct worker_task *sleepers_pop(struct worker *worker)
{
    struct worker_task **heap = worker->sleepers;
    struct worker_task *first = heap[0];
    size_t count = --worker->sleeping_tasks;
    struct worker_task *moved = heap[count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1]->due < heap[child]->due)
            child++;
        if (moved->due <= heap[child]->due)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
    return first;
}

static void sleepers_wake(struct worker *worker, uint64_t now)
{
    while (worker->sleeping_tasks && worker->sleepers[0]->due <= now)
        enqueue(worker, sleepers_pop(worker));
}

/* Room for as many as there are records, so that going to sleep cannot fail. */
static int sleepers_reserve(struct worker *worker, size_t count)
{
    if (count <= worker->sleepers_capacity)
        return 0;
    size_t capacity = worker->sleepers_capacity ? worker->sleepers_capacity * 2 : 16;
    struct worker_task **heap = realloc(worker->sleepers, capacity * sizeof(struct worker_task *));
    if (!heap)
        return BANYAN_ENOMEM;
    worker->sleepers = heap;
    worker->sleepers_capacity = capacity;
    return 0;
}

/* ---- mail ---- */

/* From any thread. The worker may take the mail at once: it is not touched after the push. */
static void inbox_put(struct worker *worker, struct worker_mail *mail)
{
    struct worker_mail *first = atomic_load_relaxed(&worker->inbox);
    do
        mail->next = first;
    while (
        !__atomic_compare_exchange_n(&worker->inbox, &first, mail, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    /* See the handshake at the top. The exchange lets only one of many senders pay for the system call. */
    if (__atomic_load_n(&worker->sleeping, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&worker->sleeping, 0u, __ATOMIC_RELAXED)) {
        uint64_t one = 1;
        ssize_t length = write(worker->wake_fd, &one, sizeof one);
        (void)length; /* fails only if the counter is full, and then it is readable already */
    }
}

static inline void unpark_own(struct worker_task *task)
{
    assert(!task->parked || !task->permit); /* park takes a permit before it waits */
    if (task->parked) {
        task->parked = false;
        enqueue(task->worker, task);
    } else {
        task->permit = true;
    }
}

static void mail_open(struct worker_mail *mail)
{
    if (mail->task) {
        /* Release and acquire: a waker that finds `mailed` set sends no mail; this exchange makes what it
         * wrote before visible to the fiber. */
        __atomic_exchange_n(&mail->task->mailed, 0u, __ATOMIC_ACQ_REL);
        unpark_own(mail->task);
        return;
    }
    struct worker_mail opened = *mail;
    free(mail);
    opened.function(opened.argument);
}

static void inbox_take(struct worker *worker)
{
    if (!atomic_load_relaxed(&worker->inbox)) /* a load costs less than an exchange that finds nothing */
        return;
    struct worker_mail *taken = __atomic_exchange_n(&worker->inbox, NULL, __ATOMIC_ACQUIRE);
    struct worker_mail *oldest = NULL;
    while (taken) { /* the latest came first */
        struct worker_mail *next = taken->next;
        taken->next = oldest;
        oldest = taken;
        taken = next;
    }
    while (oldest) {
        struct worker_mail *next = oldest->next;
        mail_open(oldest);
        oldest = next;
    }
}

int worker_post(struct worker *worker, void (*function)(void *), void *argument)
{
    struct worker_mail *mail = malloc(sizeof *mail);
    if (!mail)
        return BANYAN_ENOMEM;
    *mail = (struct worker_mail){.function = function, .argument = argument};
    inbox_put(worker, mail);
    return 0;
}

/* ---- what a fiber does to wait: task.h ---- */

static void task_park_fiber(struct task *self)
{
    struct worker_task *task = (struct worker_task *)self;
    if (task->permit) {
        task->permit = false;
        return;
    }
    task->parked = true;
    fiber_suspend();
}

static void task_unpark_fiber(struct task *other)
{
    struct worker_task *task = (struct worker_task *)other;
    if (task->worker == current)
        unpark_own(task);
    else if (!__atomic_exchange_n(&task->mailed, 1u, __ATOMIC_ACQ_REL)) /* see mail_open */
        inbox_put(task->worker, &task->mail);
}

static void task_yield_fiber(struct task *self)
{
    struct worker_task *task = (struct worker_task *)self;
    task->worker->yields++;
    enqueue(task->worker, task);
    fiber_suspend();
}

static void task_sleep_fiber(struct task *self, uint64_t nanoseconds)
{
    struct worker_task *task = (struct worker_task *)self;
    uint64_t now = clock_now(), longest = INT64_MAX - now; /* for ever, and still within a timespec */
    task->due = now + (nanoseconds < longest ? nanoseconds : longest);
    sleepers_push(task->worker, task);
    fiber_suspend();
}

static uint64_t task_now_fiber(struct task *self)
{
    (void)self;
    return clock_now();
}

static const struct task_ops worker_ops = {.park = task_park_fiber,
                                           .unpark = task_unpark_fiber,
                                           .yield = task_yield_fiber,
                                           .sleep = task_sleep_fiber,
                                           .now = task_now_fiber,
                                           .charge = NULL};

/* ---- fibers ---- */

/* One function after the other: a fiber and its stack outlive the functions that run on them. */
static void fiber_main(void *argument)
{
    struct worker_task *task = argument;
    for (;;) {
        task->function(task->argument);
        task->returned = true;
        fiber_suspend();
    }
}

/* A record whose function has returned, or a new one. */
static struct worker_task *record_take(struct worker *worker)
{
    struct worker_task *task = worker->spare;
    if (task) {
        worker->spare = task->next;
        worker->spare_fibers -= task->fiber != NULL;
        return task;
    }
    if (sleepers_reserve(worker, worker->records + 1u))
        return NULL;
    task = calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->task.ops = &worker_ops;
    task->worker = worker;
    task->mail.task = task;
    task->next_all = worker->all;
    worker->all = task;
    worker->records++;
    return task;
}

/* The record itself stays until the worker goes: a late unpark may still touch it. That leaves at most a
 * spare permit, which park's contract allows. */
static void record_give(struct worker_task *task)
{
    struct worker *worker = task->worker;
    if (worker->spare_fibers >= SPARE_FIBERS) {
        fiber_destroy(task->fiber);
        task->fiber = NULL;
    }
    worker->spare_fibers += task->fiber != NULL;
    task->next = worker->spare;
    worker->spare = task;
}

int worker_spawn(struct worker *worker, void (*function)(void *), void *argument)
{
    struct worker_task *task = record_take(worker);
    if (!task)
        return BANYAN_ENOMEM;
    if (!task->fiber)
        task->fiber = fiber_create(fiber_main, task, 0);
    if (!task->fiber) {
        record_give(task);
        return BANYAN_ENOMEM;
    }
    task->function = function;
    task->argument = argument;
    task->returned = false;
    worker->live++;
    enqueue(worker, task);
    return 0;
}

/* ---- rounds ---- */

/* Every fiber that is runnable now, once; what becomes runnable meanwhile waits for the next round. */
static void run_fibers(struct worker *worker)
{
    struct worker_task *last = worker->tail, *task = NULL;
    uint64_t switches = 0, yields = worker->yields;
    if (!worker->head)
        return;
    worker->idle_ns = 0;
    do {
        task = worker->head;
        worker->head = task->next;
        task_set_self(&task->task);
        switches++;
        fiber_resume(task->fiber);
        if (task->returned) {
            assert(worker->live > 0);
            record_give(task);
            worker->live--;
        }
    } while (task != last);
    task_set_self(NULL);
    worker->waiting_rounds = worker->yields - yields == switches ? worker->waiting_rounds + 1 : 0;
    if (worker->waiting_rounds >= WAITING_ROUNDS)
        sched_yield();
}

void worker_hook_add(struct worker *worker, struct worker_hook *hook)
{
    hook->next = worker->hooks;
    worker->hooks = hook;
}

void worker_hook_remove(struct worker *worker, struct worker_hook *hook)
{
    struct worker_hook **at = &worker->hooks;
    while (*at && *at != hook)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = hook->next;
    if (worker->next_hook == hook) /* removed by another hook's turn */
        worker->next_hook = hook->next;
}

static void run_hooks(struct worker *worker)
{
    for (struct worker_hook *hook = worker->hooks; hook; hook = worker->next_hook) {
        worker->next_hook = hook->next;
        hook->turn(hook);
    }
}

static void poll_watches(struct worker *worker, uint64_t now)
{
    worker->unpolled_rounds = 0;
    worker->polled = now;
    int count = worker_watch_wait(worker, 0);
    uint64_t longer = 2 * worker->poll_period;
    worker->poll_period = count > 0 || longer < POLL_PERIOD ? POLL_PERIOD
                          : longer < POLL_PERIOD_AWAKE      ? longer
                                                            : POLL_PERIOD_AWAKE;
    worker_watch_dispatch(worker, count);
}

static bool hooks_awake(struct worker *worker)
{
    bool awake = false;
    for (struct worker_hook *hook = worker->hooks; hook; hook = hook->next)
        awake |= hook->awake && hook->awake(hook);
    return awake;
}

static bool hooks_poll(const struct worker *worker)
{
    const struct worker_hook *hook = worker->hooks;
    while (hook && !hook->awake)
        hook = hook->next;
    return hook != NULL;
}

unsigned worker_busy_count(void)
{
    return atomic_load_relaxed(&busy_workers);
}

/* Whether this worker is one of the busy ones. */
static void worker_count_busy(struct worker *worker, bool busy)
{
    if (worker->busy == busy)
        return;
    worker->busy = busy;
    atomic_add_relaxed(&busy_workers, busy ? 1u : -1u);
}

/* Nothing is runnable, but descriptors were ready soon the last time, so they are looked at for a while
 * before the worker sleeps: a sleep and its end cost both threads some microseconds, the more where a
 * hypervisor halts the CPU meanwhile. A while in vain ends that, until a sleep is short again. No worker
 * looks where the busy ones are more than half of the CPUs: see worker_may_look. */
static bool linger(struct worker *worker, uint64_t now)
{
    if (!worker->lingers || !worker_may_look(worker_busy_count(), worker->cpus))
        return false;
    if (!worker->idle_ns)
        worker->idle_ns = now;
    if (now - worker->idle_ns < WORKER_LOOK_NS)
        return true;
    worker->lingers = false;
    return false;
}

/* Nothing is runnable: waits for descriptors, for mail, and at most so long. */
static void sleep_idle(struct worker *worker, uint64_t nanoseconds)
{
    int count = 0;
    __atomic_store_n(&worker->sleeping, 1u, __ATOMIC_SEQ_CST); /* the handshake at the top */
    if (!__atomic_load_n(&worker->inbox, __ATOMIC_SEQ_CST))
        count = worker_watch_wait(worker, nanoseconds);
    const uint64_t now = clock_now();
    const uint64_t slept = now - worker->round_ns;
    worker->lingers = slept < WORKER_LOOK_NS;
    worker_count_busy(worker, slept < WORKER_BUSY_NS);
    worker->round_ns = now;
    worker->idle_ns = 0;
    atomic_store_relaxed(&worker->sleeping, 0u); /* relaxed: at worst one wake-up too many */
    worker_watch_dispatch(worker, count);
}

/* Fibers can run, or hooks are awake: descriptors are polled only now and then. */
static void poll_sometimes(struct worker *worker, uint64_t now)
{
    worker->unpolled_rounds++;
    bool due = hooks_poll(worker)
                   ? now - worker->polled >= worker->poll_period
                   : worker->unpolled_rounds >= POLL_ROUNDS || now - worker->polled >= POLL_PERIOD;
    if (worker->watches && due)
        poll_watches(worker, now);
}

static void look_around(struct worker *worker)
{
    uint64_t now = worker->watches || worker->sleeping_tasks ? clock_now() : 0;
    worker->round_ns = now;
    sleepers_wake(worker, now);
    if (worker->head || hooks_awake(worker)) {
        poll_sometimes(worker, now);
        return;
    }
    uint64_t left = worker->sleeping_tasks ? worker->sleepers[0]->due - now : UINT64_MAX;
    if (left >= SPIN_BELOW && linger(worker, now)) {
        poll_watches(worker, now);
    } else if (left >= SPIN_BELOW) {
        sleep_idle(worker, left);
    } else {
        poll_watches(worker, now);
        sched_yield();
    }
}

void worker_run(struct worker *worker)
{
    struct worker *before = current;
    current = worker;
    while (worker->live || atomic_load_relaxed(&worker->inbox)) {
        inbox_take(worker);
        run_fibers(worker);
        run_hooks(worker);
        if (worker->live)
            look_around(worker);
    }
    worker_count_busy(worker, false);
    current = before;
}

struct worker *worker_create(void)
{
    struct worker *worker = aligned_alloc(_Alignof(struct worker), sizeof *worker);
    if (!worker)
        return NULL;
    *worker = (struct worker){.cpus = cpus_count()};
    if (worker_watch_open(worker)) {
        free(worker);
        return NULL;
    }
    return worker;
}

void worker_destroy(struct worker *worker)
{
    if (!worker)
        return;
    while (worker->hooks) {
        struct worker_hook *hook = worker->hooks;
        worker->hooks = hook->next;
        if (hook->gone)
            hook->gone(hook);
    }
    struct worker_mail *mail = __atomic_exchange_n(&worker->inbox, NULL, __ATOMIC_ACQUIRE);
    while (mail) {
        struct worker_mail *next = mail->next;
        if (!mail->task)
            free(mail);
        mail = next;
    }
    while (worker->all) {
        struct worker_task *task = worker->all;
        worker->all = task->next_all;
        fiber_destroy(task->fiber);
        free(task);
    }
    worker_watch_close(worker);
    free(worker->sleepers);
    free(worker);
}
