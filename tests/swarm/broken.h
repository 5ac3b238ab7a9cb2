/*
 * broken.h - an index that is broken in a way that the test chooses: a driver's subject that lies, crashes,
 * hangs or eats memory, put in the place of the real one when a run begins.
 */
#ifndef TESTS_SWARM_BROKEN_H
#define TESTS_SWARM_BROKEN_H

#include "swarm/run.h"

enum breakage {
    BROKEN_NOT,
    BROKEN_LIES,   /* a task's every second put of one key, or of any, is not done though it says so */
    BROKEN_DIES,   /* the process aborts in the third put of the key */
    BROKEN_HANGS,  /* the process never returns from it */
    BROKEN_EATS,   /* it takes memory for ever */
    BROKEN_SPOILS, /* leaves lose their headers */
};

struct broken {
    enum breakage kind;
    uint64_t key; /* UINT64_MAX: any */
};

/* Plain trees only. Valid as long as `broken` is. */
struct swarm_watch broken_watch(const struct broken *broken);
/* A small plan with a hot key, 20, and every fault that does not lose anything. */
void broken_plan(struct swarm_plan *plan);

#endif
