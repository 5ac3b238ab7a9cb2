/*
 * step.h - a process that is killed at each instruction in turn: it runs one at a time (ptrace), and whenever
 * its pool file has changed the test judges a copy of it, as the next process would find it.
 *
 * On files of kept.h. Failures are cmocka's; where the system lets no process trace another the test is
 * skipped.
 */
#ifndef TESTS_MEMORY_STEP_H
#define TESTS_MEMORY_STEP_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <sys/types.h>

/* What parent and child share. */
struct step_shared {
    uint32_t ready, done; /* atomic: the child is where its steps begin, and end */
    uint64_t acknowledged;
    uint32_t results; /* of the calls that were answered */
};
extern struct step_shared *step_shared;
void step_set_up(void);
void step_tear_down(void);

/* A child that ends without destroying its node, like one that is killed. */
pid_t step_child(void (*run)(void *), void *context);
void step_kill(pid_t child);

/* In the child, which calls step_trace first. */
void step_trace(void);
void step_begin(void);
void step_end(void);

/* The child's file, and what was in it when it was last looked at. */
struct step_watch {
    const uint8_t *file;
    uint8_t *seen;
    size_t bytes;
    uint64_t steps, changes;
};
struct step_watch step_watch_begin(const char *name);
void step_watch_end(struct step_watch *watch);
/* Looks at the parts that calls change: the beginnings of all places, and all of the small ones. */
bool step_watch_changed(struct step_watch *watch);
/* False: the child's next instruction cannot change its file, which therefore need not be looked at behind
 * it: comparing took half of the time of a step. */
bool step_may_store(pid_t child);
/* False: the system does not let this process trace. */
bool step_once(pid_t child);
/* Calls `judge` for the file at the first step, at each that changed it, and at the last. */
void step_through(const char *name, void (*run)(void *), void *context,
                  void (*judge)(void *context, struct step_watch *watch));

#endif
