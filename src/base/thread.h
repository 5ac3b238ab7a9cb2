/*
 * thread.h - OS threads for programs: start, join, pin to a CPU, priority.
 *
 * For the outermost code (benchmarks, servers, tests) that decides how many threads there are; index code
 * never starts one. thread_start and thread_join are called by the owner of the struct.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <stdbool.h>
#include "base/error.h"

struct thread;

/* Runs function(argument) on a new OS thread. BANYAN_ENOMEM when the system gives no more threads. */
int thread_start(struct thread **thread, void (*function)(void *), void *argument, struct error *error);
/* Waits until the thread's function has returned, and frees the thread. */
void thread_join(struct thread *thread);
/* Keeps the calling thread on one of the CPUs that the process may use (number modulo their count).
 * BANYAN_ENOTSUP where the system refuses; harmless then. */
int thread_pin(unsigned number);
/* Raises the calling thread's nice value, for good, by so much: other threads that wake up run before it, and
 * where the CPUs are busy its share falls (by 5: to a third of another's, by 10: to a tenth). BANYAN_ENOTSUP
 * where the system refuses; harmless then. */
int thread_lower(unsigned by);

#endif
