/*
 * space.h - a store in a small pool of this process, histories that fill it, empty it and change sizes in it,
 * and how many values of one size go into what is left. For the tests of space (test_space.c).
 *
 * One task, the local fabric, a clock of its own. Everything follows from the seed. A failure of the store
 * that is not a refusal for want of space aborts the test with a message.
 */
#ifndef TESTS_STORE_SPACE_H
#define TESTS_STORE_SPACE_H

#include "stores.h"

/* Processor time that a fill may spend on making room. */
#define SPACE_WAIT_S  10.0
#define SPACE_ENTRIES 400000u /* keys of a history, at most */

struct space_entry {
    uint32_t length;  /* of its value */
    bool live;        /* it is there, and has not expired */
    uint64_t expires; /* 0: never */
};

struct space {
    struct stores stores;
    struct store_session *session;
    uint64_t seed;
    bool long_keys;              /* half of the history's keys are too long for a slot */
    struct space_entry *entries; /* of the history, by number */
    uint32_t count;              /* of those that were ever put */
    uint64_t live, live_bytes;   /* counted by space_history */
    uint64_t now_ms, swept_ms;
    uint8_t *bytes; /* what values are made of */
    /* Of the last fill: processor time spent on making room, passes for that, and blocks moved. */
    double waited_s;
    uint64_t passes, moved;
};

void space_open(struct space *space, uint64_t pool_bytes, uint64_t seed);
void space_close(struct space *space);
/* Blocks without an owner, broken records, a broken index: aborts the test. */
void space_check(struct space *space);

/* From fresh: fills, deletes, changes sizes, lets expire, at random. What it does is added to `told`. */
void space_history(struct space *space, char *told, size_t size);
/* Puts what a history has left into this space: as many of its values as there is room for, one after the
 * other. False if some were refused. */
bool space_copy(struct space *space, const struct space *from);
/* Values of `length` bytes with keys of their own, until one is refused although everything was done to make
 * room for it, for SPACE_WAIT_S at most. Returns how many. */
uint64_t space_fill(struct space *space, uint32_t length);
/* As FLUSHALL does. */
void space_flush(struct space *space);

#endif
