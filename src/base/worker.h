/*
 * worker.h - a real-time scheduler: one OS thread that runs many fibers, each a task, and waits for file
 * descriptors while none of them can run.
 *
 * worker_spawn() may be called before worker_run() and from the worker's own thread. Parked fibers may be
 * unparked from any thread. An idle worker sleeps in epoll_wait; a worker with runnable fibers looks for
 * ready descriptors (and runs its turn hooks) once per round through these, so that neither starves the
 * other.
 *
 * LOOKS BEFORE A SLEEP save both sides the cost of the sleep: a worker whose last sleep was shorter than
 * 20 us looks at its descriptors for 20 us before it sleeps again. It does so only while the busy workers of
 * the process (those whose last sleep was shorter than 1 ms) are no more than half of the CPUs that the
 * process may use. The other half is left to those whom the workers wait for, who may be on this machine.
 *
 * CALLBACKS (ready functions, turn hooks, posted functions) run on the worker's own stack, between fibers:
 * they may spawn and unpark, but must neither park nor take long.
 */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct worker;

/* NULL: no memory, or no descriptors (it takes two). */
struct worker *worker_create(void);
/* 0 or BANYAN_ENOMEM. */
int worker_spawn(struct worker *worker, void (*function)(void *), void *argument);
/* Runs on the calling thread until every fiber has returned. */
void worker_run(struct worker *worker);
void worker_destroy(struct worker *worker);

/* The worker whose fiber or callback is running on the calling thread; NULL outside of one. */
struct worker *worker_current(void);
/* On the worker's thread: what task_now said when this round began, or when its callbacks were called after a
 * sleep. Costs a load where the clock costs some 25 ns, and is a round too early at most. */
uint64_t worker_round_ns(const struct worker *worker);

/* ---- file descriptors ---- */

struct worker_watch;
/* `events` are epoll's (EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR), level-triggered. The watch may be removed,
 * and freed, by its own callback, and by any other callback of the same round: it is then not called again.
 */
typedef void worker_ready_function(struct worker_watch *watch, uint32_t events);
/* The caller's, embedded in what it watches for; must stay until it is removed. */
struct worker_watch {
    worker_ready_function *ready;
    int fd;
    uint32_t events; /* asked for; set by the calls below */
    struct worker *worker;
    uint32_t slot; /* the worker's own */
};
/* From the worker's thread, or before it runs. 0, BANYAN_ENOMEM or BANYAN_EINVAL. */
int worker_watch_add(struct worker *worker, struct worker_watch *watch, int fd, uint32_t events,
                     worker_ready_function *ready);
/* Costs a system call only if the events differ from those asked for before. */
int worker_watch_change(struct worker_watch *watch, uint32_t events);
/* Does not close the descriptor; to be called before it is closed. Of a watch that is not added: does
 * nothing.
 */
void worker_watch_remove(struct worker_watch *watch);

/* ---- turns ---- */

/* Run once per round: when every fiber that was runnable has run, before the worker looks for ready
 * descriptors or sleeps. For output that is gathered while fibers run and sent at once. */
struct worker_hook {
    void (*turn)(struct worker_hook *hook);
    /* NULL, or called by worker_destroy: the hook has been removed, and must remove its watches now. */
    void (*gone)(struct worker_hook *hook);
    /* NULL, or asked when no fiber can run. True: something that no descriptor tells is expected so soon that
     * sleeping would cost more than looking for it; `turn` is then called again at once. Before it returns
     * false it must make sure that a descriptor will tell. While it returns true or fibers run, descriptors
     * in which nothing happens are looked at less and less often, down to every 100 us. */
    bool (*awake)(struct worker_hook *hook);
    struct worker_hook *next;
};
void worker_hook_add(struct worker *worker, struct worker_hook *hook);
void worker_hook_remove(struct worker *worker, struct worker_hook *hook);

/* Runs function(argument) on the worker's thread, soon; from any thread. 0 or BANYAN_ENOMEM. What was posted
 * when the last fiber has returned is still run before worker_run returns. */
int worker_post(struct worker *worker, void (*function)(void *), void *argument);

#endif
