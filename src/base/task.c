#include "base/task.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* The task of a plain OS thread: a permit under a mutex. */
struct thread_task {
    struct task task;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool permit;
    struct thread_task *next; /* in the pool */
};

static void thread_park(struct task *self)
{
    struct thread_task *own = (struct thread_task *)self;
    pthread_mutex_lock(&own->mutex);
    while (!own->permit)
        pthread_cond_wait(&own->changed, &own->mutex);
    own->permit = false;
    pthread_mutex_unlock(&own->mutex);
}

static void thread_unpark(struct task *task)
{
    struct thread_task *other = (struct thread_task *)task;
    pthread_mutex_lock(&other->mutex);
    other->permit = true;
    pthread_cond_signal(&other->changed);
    pthread_mutex_unlock(&other->mutex);
}

static void thread_yield(struct task *self)
{
    (void)self;
    sched_yield();
}

static void thread_sleep(struct task *self, uint64_t nanoseconds)
{
    (void)self;
    struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static uint64_t thread_now(struct task *self)
{
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const struct task_ops thread_ops = {.park = thread_park,
                                           .unpark = thread_unpark,
                                           .yield = thread_yield,
                                           .sleep = thread_sleep,
                                           .now = thread_now,
                                           .charge = NULL};

/* The first is what the thread runs now, the second what it is by itself; a key returns the second to the
 * pool at the thread's end. From there the next thread takes it, and it is never freed: a waker may come to
 * task_unpark() after the thread it wakes has seen its condition and ended. It then leaves at most a spare
 * permit, which park's contract allows. */
static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct thread_task *pool;
static _Thread_local struct task *current;
static _Thread_local struct thread_task *own_task;
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void pool_give(struct thread_task *own)
{
    pthread_mutex_lock(&pool_mutex);
    own->next = pool;
    pool = own;
    pthread_mutex_unlock(&pool_mutex);
}

static void own_return(void *object)
{
    own_task = NULL;
    current = NULL;
    pool_give(object);
}

static void key_create(void)
{
    if (pthread_key_create(&own_key, own_return))
        abort();
}

static struct thread_task *pool_take(void)
{
    pthread_mutex_lock(&pool_mutex);
    struct thread_task *own = pool;
    if (own)
        pool = own->next;
    pthread_mutex_unlock(&pool_mutex);
    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->task.ops = &thread_ops;
    pthread_mutex_init(&own->mutex, NULL);
    pthread_cond_init(&own->changed, NULL);
    return own;
}

static void own_use(struct thread_task *own)
{
    pthread_once(&own_once, key_create);
    own_task = own;
    pthread_setspecific(own_key, own_task);
    current = &own_task->task;
}

/* Seldom; what calls it is to stay short. */
static __attribute__((noinline, cold)) struct task *own_make(void)
{
    struct thread_task *own = own_task ? own_task : pool_take();
    if (!own)
        abort(); /* a thread that cannot wait cannot report an error either */
    own_use(own);
    return current;
}

struct task *task_reserve(void)
{
    struct thread_task *own = pool_take();
    return own ? &own->task : NULL;
}

void task_adopt(struct task *reserved)
{
    own_use((struct thread_task *)reserved);
}

void task_give_back(struct task *reserved)
{
    pool_give((struct thread_task *)reserved);
}

struct task *task_self(void)
{
    return current ? current : own_make();
}

void task_set_self(struct task *task)
{
    current = task ? task : own_task ? &own_task->task : NULL;
}
