/*
 * task.h - one thread of control, whatever it runs on.
 *
 * Index code is sequential C. It runs as a plain OS thread, as a fiber of a worker thread, or as a
 * fiber of the simulator in virtual time, and it cannot tell which: everything in it that waits,
 * tells the time or costs time goes through the calling task. The runtimes implement task_ops;
 * nothing above src/base/ uses another clock, sleep or thread primitive.
 *
 * Park/unpark is a permit, as in java.util.concurrent.LockSupport: task_unpark() makes one permit
 * available (at most one is stored), task_park() waits for it and takes it; task_park() may also
 * return without a permit, so callers loop on their own condition.
 */
#ifndef BASE_TASK_H
#define BASE_TASK_H

#include <stdint.h>

/* What a piece of local work is, for runtimes that charge virtual time for it (units in brackets). */
enum task_work {
    TASK_WORK_OPERATION, /* fixed part of one index operation [operations] */
    TASK_WORK_SEARCH,    /* search in one cached internal node [nodes] */
    TASK_WORK_LEAF,      /* comparing leaf slots with a key [slots] */
    TASK_WORK_CHECK,     /* checking leaf slots, each by itself [slots] */
    TASK_WORK_SPLIT,     /* sorting and rewriting one node [nodes] */
    TASK_WORK_HANDOVER,  /* waking the next waiter of a local lock [wake-ups] */
    TASK_WORK_LINE,      /* waiting for memory that another core wrote last [cache lines] */
    TASK_WORK_COPY,      /* the same, of a block that is copied or read in order [cache lines] */
    TASK_WORK_SORT,      /* sorting a leaf's entries for a scan [entries] */
    TASK_WORK_VISIT,     /* copying an entry out to a scan's caller [entries] */
    TASK_WORK_CHECKSUM,  /* a checksum over a whole node [cache lines] */
    TASK_WORK_KINDS
};

struct task;

struct task_ops {
    void (*park)(struct task *self);
    void (*unpark)(struct task *task); /* from any thread */
    void (*yield)(struct task *self);
    void (*sleep)(struct task *self, uint64_t nanoseconds);
    uint64_t (*now)(struct task *self);                                     /* monotonic, ns */
    void (*charge)(struct task *self, enum task_work work, uint32_t units); /* NULL: costs nothing */
    uint32_t (*thread)(struct task *self); /* its CPU thread's number in the process, not 0; NULL: 0 */
};

struct task {
    const struct task_ops *ops;
};

/* The calling task. A plain thread gets one on first use (recycled after the thread's end). Never NULL. */
struct task *task_self(void);
/* A task for a thread that is not started yet (NULL: no memory), so that the thread itself needs none. The
 * new thread adopts it before anything else; if it could not be started, the task is given back. */
struct task *task_reserve(void);
void task_adopt(struct task *reserved);
void task_give_back(struct task *reserved);
/* For runtimes: sets the calling thread's current task (NULL: back to the thread's own). */
void task_set_self(struct task *task);

static inline void task_park(void)
{
    struct task *t = task_self();
    t->ops->park(t);
}
static inline void task_unpark(struct task *t)
{
    t->ops->unpark(t);
}
static inline void task_yield(void)
{
    struct task *t = task_self();
    t->ops->yield(t);
}
static inline void task_sleep(uint64_t ns)
{
    struct task *t = task_self();
    t->ops->sleep(t, ns);
}
static inline uint64_t task_now(void)
{
    struct task *t = task_self();
    return t->ops->now(t);
}
static inline void task_charge(enum task_work work, uint32_t units)
{
    struct task *t = task_self();
    if (t->ops->charge)
        t->ops->charge(t, work, units);
}
/* Tells whether two tasks share a CPU thread, so that what passes between them stays in one core's caches.
 * 0 for all tasks of a runtime that charges nothing. */
static inline uint32_t task_thread(void)
{
    struct task *t = task_self();
    return t->ops->thread ? t->ops->thread(t) : 0;
}

/* Cache lines that so many bytes touch, wherever they begin: on average, rounded up. */
#define TASK_LINE_BYTES 64u
static inline uint32_t task_lines(uint32_t bytes)
{
    return bytes ? bytes / TASK_LINE_BYTES + 1 : 0;
}

#endif
