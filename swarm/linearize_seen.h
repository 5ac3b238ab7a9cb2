/*
 * linearize_seen.h - the configurations that a search has met: a set of names of 128 bits, of which no two
 * are taken for each other but by chance. Owned by the search; one thread; aborts where this process has no
 * memory.
 */
#ifndef SWARM_LINEARIZE_SEEN_H
#define SWARM_LINEARIZE_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct linearize_seen {
    struct linearize_configuration {
        uint64_t low, high; /* both 0: free */
    } * cells;              /* owned: free() */
    size_t capacity, count;
};

/* True if the configuration is new. */
bool linearize_seen_add(struct linearize_seen *seen, uint64_t low, uint64_t high);

#endif
