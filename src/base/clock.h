/*
 * clock.h - the time of day. Only for what people and files name by date (expiries, reports): it may be set,
 * and jumps then. What waits or measures uses task_now(). And the clock of leases between machines. Any
 * thread; some nanoseconds.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since 1970, UTC. */
uint64_t clock_wall_ns(void);
/* The same in milliseconds, rounded down. */
uint64_t clock_wall_ms(void);
/* Nanoseconds since this machine started. It is never set, and goes on while the machine sleeps and while the
 * process is stopped: for what must have ended by then. */
uint64_t clock_boot_ns(void);
/* What the calling thread has used of its CPU since it began. For reports: a system call. */
uint64_t clock_thread_ns(void);

#endif
