/*
 * fuzz_clock.h - a clock that goes on only when it is looked at or slept on: waits cost nothing, and an input
 * takes the same course each time. For the fuzzer's one thread.
 */
#ifndef FUZZ_CLOCK_H
#define FUZZ_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/task.h"

static uint64_t fuzz_clock_ns;

static inline uint64_t fuzz_clock_now(struct task *self)
{
    (void)self;
    return fuzz_clock_ns += 1000;
}

static inline void fuzz_clock_sleep(struct task *self, uint64_t nanoseconds)
{
    (void)self;
    fuzz_clock_ns += nanoseconds;
}

static inline void fuzz_clock_pass(struct task *self)
{
    (void)self;
    fuzz_clock_ns += 1000;
}

static inline void fuzz_clock_begin(void)
{
    static const struct task_ops ops = {.park = fuzz_clock_pass,
                                        .unpark = fuzz_clock_pass,
                                        .yield = fuzz_clock_pass,
                                        .sleep = fuzz_clock_sleep,
                                        .now = fuzz_clock_now};
    static struct task task = {.ops = &ops};
    fuzz_clock_ns = 1000000000;
    task_set_self(&task);
}

static inline void fuzz_clock_end(void)
{
    task_set_self(NULL);
}

#endif
