/*
 * worker_private.h - what worker.c (fibers and rounds) and worker_watch.c (file descriptors) share.
 *
 * Everything in struct worker belongs to the thread that runs the worker, but for `inbox` and `sleeping`,
 * which other threads reach through task_unpark() and worker_post(), and `wake_fd`, which they write.
 */
#ifndef BASE_WORKER_PRIVATE_H
#define BASE_WORKER_PRIVATE_H

#include <stdbool.h>
#include <sys/epoll.h>

#include "base/worker.h"

struct worker_task;

/* What another thread (or worker_post) leaves for the worker: an unpark, or a function to call. */
struct worker_mail {
    struct worker_mail *next;
    struct worker_task *task; /* whose record contains this mail; NULL: a posted function, to be freed */
    void (*function)(void *);
    void *argument;
};

/* A watch's place. epoll's data carry its number and generation, so that an event that was fetched before the
 * watch was removed finds no watch or another generation. */
struct worker_slot {
    struct worker_watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

enum { WORKER_READY_MAX = 128 };

/* For how long (ns) an idle worker looks at its descriptors before it sleeps, where its last sleep was
 * shorter. */
#define WORKER_LOOK_NS 20000u
/* A worker whose last sleep was shorter than this (ns) is busy: it needs a CPU again and again. */
#define WORKER_BUSY_NS 1000000u

/* Whether a worker may look at its descriptors where so many workers of the process, itself included, are
 * busy and the process may use so many CPUs. Those whom the workers wait for may need CPUs of this machine,
 * too: over a loopback connection a request costs its client about as much CPU time as the server. So the
 * workers leave it one CPU for each of theirs. Without that, a worker that looks holds the very CPU that its
 * client needs to send anything. */
static inline bool worker_may_look(unsigned busy, unsigned cpus)
{
    return busy <= cpus / 2;
}

struct worker {
    struct worker_task *head, *tail; /* runnable */
    struct worker_task *all;
    struct worker_task *spare; /* whose functions have returned */
    struct worker_hook *hooks;
    struct worker_hook *next_hook; /* while they are run: the next one */
    unsigned live, records, spare_fibers;

    struct worker_task **sleepers; /* a binary heap by `due`, with room for every record */
    size_t sleeping_tasks, sleepers_capacity;

    int epoll_fd, wake_fd;
    bool no_pwait2; /* the kernel has no epoll_pwait2 */
    struct worker_slot *slots;
    uint32_t slot_count, free_slot;
    unsigned watches;
    unsigned unpolled_rounds;
    uint64_t yields;         /* by its fibers, ever */
    unsigned waiting_rounds; /* in a row, of nothing but yields */
    uint64_t polled;         /* when */
    uint64_t round_ns;       /* when the clock was read last in a round */
    uint64_t idle_ns;        /* since when nothing can run; 0: something has run since it slept */
    bool lingers;            /* the last wait was so short that the next one begins with looks */
    bool busy;               /* counted among the process's busy workers */
    unsigned cpus;           /* that the process may use */
    uint64_t poll_period;    /* ns between two looks at the descriptors while a hook is awake */
    struct epoll_event ready[WORKER_READY_MAX];

    struct worker_mail *inbox __attribute__((aligned(64)));
    uint32_t sleeping; /* in epoll_wait, or about to be: a thread that leaves mail must write wake_fd */
};

/* Workers of this process that are busy: they run, and their last sleep was shorter than WORKER_BUSY_NS. From
 * any thread. */
unsigned worker_busy_count(void);
/* 0 or BANYAN_ENOMEM. */
int worker_watch_open(struct worker *worker);
void worker_watch_close(struct worker *worker);
/* Waits at most `nanoseconds` (UINT64_MAX: for ever) for ready descriptors; returns how many are in
 * worker->ready. */
int worker_watch_wait(struct worker *worker, uint64_t nanoseconds);
/* Calls the watches of the first `count` in worker->ready. */
void worker_watch_dispatch(struct worker *worker, int count);

#endif
