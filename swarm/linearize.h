/*
 * linearize.h - is there an order of the recorded operations that one atomic map could have run them in?
 *
 * Linearizability is a property of each key by itself, so each key's operations are judged alone, as those of
 * a register that may also be empty. The search is that of Wing and Gong with Lowe's memory of configurations
 * seen (which operations are placed, and the value they leave), made narrow by two facts: an operation that
 * changes nothing and fits may be placed at once, and since every value is written at most once, a value that
 * some operation still has to see must not be replaced before. Of several choices, the operation that
 * returned first is tried first. A key's quiescent points need no special care: what was placed before one is
 * the same set on every path, so the memory cuts the search there by itself. Thousands of operations of a
 * key, dozens of them at a time, take milliseconds.
 *
 * Operations of unknown outcome may be placed anywhere after their invocation or left out.
 */
#ifndef SWARM_LINEARIZE_H
#define SWARM_LINEARIZE_H

#include "swarm/history.h"

enum linearize_verdict {
    LINEARIZE_ACCEPTED,
    LINEARIZE_REJECTED,
    LINEARIZE_UNDECIDED, /* the search took too many steps */
    LINEARIZE_MALFORMED, /* a value written twice, or 0: a fault of the test */
};

/* One key's operations, in any order. The key does not exist at first. `explanation` (may be NULL) says what
 * could not be placed, *culprit (may be NULL) which operation it is, NULL where all is well. steps_max 0: a
 * default of some millions. */
enum linearize_verdict linearize_key(const struct history_op *ops, size_t count, uint64_t steps_max,
                                     const struct history_op **culprit, char *explanation, size_t size);
/* All keys of a merged history; the first verdict that is not ACCEPTED. */
enum linearize_verdict linearize_all(const struct history_op *ops, size_t count,
                                     const struct history_op **culprit, char *explanation, size_t size);

#endif
