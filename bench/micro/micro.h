/*
 * micro.h - what the parts of an operation cost on the CPU of this machine: the numbers that the simulator's
 * CPU parameters (sim/params.h) stand for, and others that it does not charge.
 *
 * A measurement runs its part many times between two looks at the clock, in many rounds, and yields the
 * median and the least of the rounds, per unit. The least is what an undisturbed machine takes.
 */
#ifndef BENCH_MICRO_H
#define BENCH_MICRO_H

#include <stdbool.h>
#include <stdint.h>

enum micro_name {
    MICRO_LINE_PASS,
    MICRO_IMAGE_LINE,
    MICRO_SLOT_CHECK,
    MICRO_ENTRY_SORT,
    MICRO_ENTRY_VISIT,
    MICRO_CHECKSUM_LINE,
    MICRO_INNER_SEARCH,
    MICRO_LOG_ENTRY,
    MICRO_LOG_SCAN,
    MICRO_WALK_NODE,
    MICRO_MERGE_ENTRY,
    MICRO_REQUEST_CALLS,
    MICRO_REQUEST_RING,
    MICRO_NAMES
};

struct micro_result {
    bool measured;        /* else there are not enough CPUs, or no io_uring */
    double median, least; /* nanoseconds for each unit */
};

#define MICRO_ROUNDS_MAX 100000u

/* Runs part(context) `rounds` times, each of which does `units` units; one round before that is not counted.
 * False: no memory. */
bool micro_measure(uint32_t rounds, double units, void (*part)(void *context), void *context,
                   struct micro_result *result);
/* Keeps the compiler from leaving out what computes `value`. */
static inline void micro_keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

/* Between two threads on the first two CPUs that the process may use: MICRO_LINE_PASS, MICRO_IMAGE_LINE. With
 * one CPU nothing is measured. The calling thread stays on the first CPU. False: no memory, or no thread. */
bool micro_cores(uint32_t rounds, struct micro_result results[MICRO_NAMES]);
/* On the calling thread, what reads nodes: from MICRO_SLOT_CHECK to MICRO_INNER_SEARCH. False: no memory. */
bool micro_nodes(uint32_t rounds, struct micro_result results[MICRO_NAMES]);
/* On the calling thread: MICRO_LOG_ENTRY, MICRO_LOG_SCAN. False: no memory. */
bool micro_log(uint32_t rounds, struct micro_result results[MICRO_NAMES]);
/* On the calling thread: MICRO_WALK_NODE, MICRO_MERGE_ENTRY. False: no memory. */
bool micro_walk(uint32_t rounds, struct micro_result results[MICRO_NAMES]);
/* On the calling thread, with 64 sockets: MICRO_REQUEST_CALLS, MICRO_REQUEST_RING. Where there is no loopback
 * nothing is measured, where there is no io_uring the first alone. False: no memory, or a socket failed. */
bool micro_sockets(uint32_t rounds, struct micro_result results[MICRO_NAMES]);

#endif
