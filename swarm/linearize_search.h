/*
 * linearize_search.h - the search for an order of one key's operations, which linearize.c prepares: Wing and
 * Gong's, with Lowe's memory of configurations. linearize.h says what is decided and why the search is
 * narrow.
 */
#ifndef SWARM_LINEARIZE_SEARCH_H
#define SWARM_LINEARIZE_SEARCH_H

#include "swarm/linearize.h"
#include "swarm/linearize_seen.h"

#define SEARCH_ANY UINT32_MAX /* no particular value */

/* An invocation or a return, in the list of those that are not placed yet; entry 0 holds the list's ends. */
struct linearize_event {
    uint32_t op;
    bool is_return;
    uint32_t next, previous;
};

struct linearize_frame {
    uint32_t call;  /* event placed */
    uint32_t state; /* before it */
    bool forced;    /* no other choice was worth a try */
};

/* Values are places in the sorted array of values written, from 1; 0: no such key. */
struct linearize_search {
    const struct history_op *ops;
    uint32_t count;
    uint64_t *values; /* sorted */
    uint32_t value_count;
    uint32_t *gives, *needs; /* [count]: value left behind, value that must be there (or SEARCH_ANY) */
    bool *contested;  /* [value_count + 1]: a compare-and-set that did not find it tells it from others */
    bool contests;    /* there are such */
    bool *unread;     /* [count]: no operation ever tells the value it leaves from another */
    uint32_t *wanted; /* [value_count + 1]: known operations not placed yet that need this value */
    struct linearize_event *events; /* [2 * count + 1] */
    uint32_t *end_of;               /* [count]: places of the returns in events; 0: never returns */
    struct linearize_frame *frames; /* of the operations placed, in their order */
    uint32_t depth;
    uint32_t unplaced; /* known operations */
    uint32_t state;
    uint64_t low, high; /* sum of the marks of the operations placed: a name for their set */
    struct linearize_seen seen;
    uint32_t deepest, stuck; /* most operations placed, and the operation whose return was met then */
    uint64_t steps;
};

/* ACCEPTED, REJECTED, or UNDECIDED after steps_max steps. */
enum linearize_verdict linearize_search_run(struct linearize_search *search, uint64_t steps_max);
/* A value that no operation not placed yet tells from another. */
bool linearize_search_plain(const struct linearize_search *search, uint32_t state);

#endif
