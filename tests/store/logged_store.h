/*
 * logged_store.h - a process with a log (log/processes.h) and with its store, which it owns from the
 * beginning. For tests of what owners log: store/test_store_logged.c, persist/test_persist.c. Failures are
 * cmocka's.
 */
#ifndef TESTS_STORE_LOGGED_STORE_H
#define TESTS_STORE_LOGGED_STORE_H

#include "log/processes.h"
#include "store/store.h"

struct logged_store {
    struct process *process;
    struct store *store;
    struct store_session *records;
};

/* The next process; the first one makes the index. `seed`: of its records. */
void logged_store_open(struct logged_store *opened, struct processes *processes, const char *index,
                       uint64_t seed);
/* The same, and the process owns nothing yet (process_own). */
void logged_store_begin(struct logged_store *opened, struct processes *processes, const char *index,
                        uint64_t seed);
void logged_store_close(struct logged_store *opened);

#endif
