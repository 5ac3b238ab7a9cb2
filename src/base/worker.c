#include "base/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/fiber.h"
#include "base/task.h"

struct worker_task {
    struct task task;
    struct worker *worker;
    struct fiber *fiber;
    void (*function)(void *);
    void *argument;
    bool permit, parked;          /* under the worker's mutex */
    uint64_t due;                 /* while asleep */
    struct worker_task *next;     /* in the run queue, among the sleepers or among the spare */
    struct worker_task *next_all; /* of the worker */
};

struct worker {
    pthread_mutex_t mutex; /* guards the run queue and the permits: others unpark our tasks */
    pthread_cond_t changed;
    struct worker_task *head, *tail; /* runnable */
    struct worker_task *sleepers;    /* by due; this thread's own */
    struct worker_task *all;
    struct worker_task *spare; /* whose fibers have returned */
    unsigned live;
};

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Under the mutex. */
static void enqueue(struct worker *worker, struct worker_task *task)
{
    task->next = NULL;
    if (worker->tail)
        worker->tail->next = task;
    else
        worker->head = task;
    worker->tail = task;
}

static void task_park_fiber(struct task *self)
{
    struct worker_task *task = (struct worker_task *)self;
    pthread_mutex_lock(&task->worker->mutex);
    bool permitted = task->permit;
    task->permit = false;
    task->parked = !permitted;
    pthread_mutex_unlock(&task->worker->mutex);
    if (!permitted)
        fiber_suspend();
}

static void task_unpark_fiber(struct task *other)
{
    struct worker_task *task = (struct worker_task *)other;
    struct worker *worker = task->worker;
    pthread_mutex_lock(&worker->mutex);
    if (task->parked) {
        task->parked = false;
        enqueue(worker, task);
        pthread_cond_signal(&worker->changed);
    } else {
        task->permit = true;
    }
    pthread_mutex_unlock(&worker->mutex);
}

static void task_yield_fiber(struct task *self)
{
    struct worker_task *task = (struct worker_task *)self;
    pthread_mutex_lock(&task->worker->mutex);
    enqueue(task->worker, task);
    pthread_mutex_unlock(&task->worker->mutex);
    fiber_suspend();
}

static void task_sleep_fiber(struct task *self, uint64_t nanoseconds)
{
    struct worker_task *task = (struct worker_task *)self;
    struct worker_task **at = &task->worker->sleepers;
    uint64_t now = clock_now(), longest = INT64_MAX - now; /* for ever, and still within a timespec */
    task->due = now + (nanoseconds < longest ? nanoseconds : longest);
    while (*at && (*at)->due <= task->due)
        at = &(*at)->next;
    task->next = *at;
    *at = task;
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

struct worker *worker_create(void)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return worker;
}

static void task_run(void *argument)
{
    struct worker_task *task = argument;
    task->function(task->argument);
}

/* A record of a fiber that has returned, or a new one. */
static struct worker_task *record_take(struct worker *worker)
{
    struct worker_task *task = worker->spare;
    if (task) {
        worker->spare = task->next;
        return task;
    }
    task = calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->task.ops = &worker_ops;
    task->worker = worker;
    task->next_all = worker->all;
    worker->all = task;
    return task;
}

static void record_give(struct worker_task *task)
{
    task->next = task->worker->spare;
    task->worker->spare = task;
}

int worker_spawn(struct worker *worker, void (*function)(void *), void *argument)
{
    struct worker_task *task = record_take(worker);
    if (!task)
        return BANYAN_ENOMEM;
    task->function = function;
    task->argument = argument;
    task->fiber = fiber_create(task_run, task, 0);
    if (!task->fiber) {
        record_give(task);
        return BANYAN_ENOMEM;
    }
    worker->live++;
    pthread_mutex_lock(&worker->mutex);
    enqueue(worker, task);
    pthread_mutex_unlock(&worker->mutex);
    return 0;
}

/* The next task to run; waits for one. */
static struct worker_task *next_task(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        uint64_t now = worker->sleepers ? clock_now() : 0;
        while (worker->sleepers && worker->sleepers->due <= now) {
            struct worker_task *awake = worker->sleepers;
            worker->sleepers = awake->next;
            enqueue(worker, awake);
        }
        if (worker->head)
            break;
        if (worker->sleepers) {
            struct timespec until = {.tv_sec = (time_t)(worker->sleepers->due / 1000000000),
                                     .tv_nsec = (long)(worker->sleepers->due % 1000000000)};
            pthread_cond_timedwait(&worker->changed, &worker->mutex, &until);
        } else {
            pthread_cond_wait(&worker->changed, &worker->mutex);
        }
    }
    struct worker_task *task = worker->head;
    worker->head = task->next;
    if (!worker->head)
        worker->tail = NULL;
    pthread_mutex_unlock(&worker->mutex);
    return task;
}

void worker_run(struct worker *worker)
{
    while (worker->live) {
        struct worker_task *task = next_task(worker);
        task_set_self(&task->task);
        bool goes_on = fiber_resume(task->fiber);
        task_set_self(NULL);
        if (goes_on)
            continue;
        /* The record itself stays until the worker goes, for the next fiber: a late unpark may still touch
         * it. It leaves at most a spare permit there, which park's contract allows. */
        fiber_destroy(task->fiber);
        task->fiber = NULL;
        record_give(task);
        worker->live--;
    }
}

void worker_destroy(struct worker *worker)
{
    if (!worker)
        return;
    while (worker->all) {
        struct worker_task *task = worker->all;
        worker->all = task->next_all;
        fiber_destroy(task->fiber);
        free(task);
    }
    pthread_mutex_destroy(&worker->mutex);
    pthread_cond_destroy(&worker->changed);
    free(worker);
}
