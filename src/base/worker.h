/*
 * worker.h - a real-time scheduler: one OS thread that runs many fibers, each a task.
 * worker_spawn() may be called before worker_run() and from the worker's own fibers.
 * Parked fibers may be unparked from any thread. An idle worker sleeps.
 */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stddef.h>

struct worker;

struct worker *worker_create(void);
/* 0 or BANYAN_ENOMEM. */
int worker_spawn(struct worker *worker, void (*function)(void *), void *argument);
/* Runs on the calling thread until every fiber has returned. */
void worker_run(struct worker *worker);
void worker_destroy(struct worker *worker);

#endif
