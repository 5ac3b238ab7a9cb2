/*
 * clock.h - the time of day. Only for what people and files name by date (expiries, reports): it may be set,
 * and jumps then. What waits or measures uses task_now(). Any thread; some nanoseconds.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since 1970, UTC. */
uint64_t clock_wall_ns(void);
/* The same in milliseconds, rounded down. */
uint64_t clock_wall_ms(void);

#endif
