/* clock.c - see clock.h. */
#include "base/clock.h"

#include <time.h>

uint64_t clock_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    return clock_wall_ns() / 1000000;
}

uint64_t clock_boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_thread_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}
