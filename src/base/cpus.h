/*
 * cpus.h - the CPUs that the process may use.
 *
 * For code that decides how many threads there are, or whether one of them may keep a CPU busy. Any thread
 * may ask; each question is a system call, so that callers keep the answer.
 */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

/* CPUs that the process (its first thread, where threads are pinned) may use, at least 1. */
unsigned cpus_count(void);

#endif
