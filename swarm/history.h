/*
 * history.h - records what concurrent tasks did to an index and when, for the linearizability checker.
 *
 * One struct history for a run, one struct history_log for each task, used by that task alone. Time is a
 * counter shared by all logs: it is advanced at each invocation and each return, so that "A returned before B
 * was invoked" is known exactly, on OS threads as well as in virtual time (the simulator runs one task at a
 * time, so the counter orders events there as virtual time does).
 *
 * Keys are small numbers and values are 64-bit numbers chosen by history_value(): never 0, never the same
 * twice. 0 stands for "no such key". Recording costs two atomic additions and an append; it fails only by
 * abort() when this process has no memory.
 */
#ifndef SWARM_HISTORY_H
#define SWARM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum history_kind {
    HISTORY_GET,    /* result: the value, 0: no such key */
    HISTORY_PUT,    /* argument: the value written, with or without one before */
    HISTORY_INSERT, /* argument; status: BANYAN_EEXIST */
    HISTORY_UPDATE, /* argument; status: BANYAN_ENOTFOUND */
    HISTORY_DELETE, /* status: BANYAN_ENOTFOUND */
    HISTORY_CAS,    /* expected, argument; status: BANYAN_ENOTFOUND, BANYAN_ECONFLICT */
    HISTORY_MODIFY, /* result: the value it saw (0: none), argument: the value that replaced it (0: deleted or
                       kept out) */
};

struct history_op {
    uint64_t invoked, returned; /* returned: UINT64_MAX where the outcome is unknown */
    uint64_t time;              /* the task's clock at the invocation, for reports */
    uint64_t key, argument, expected, result;
    uint32_t task;
    uint8_t kind; /* enum history_kind */
    bool known;   /* else it may take effect at any time after its invocation, or never */
    int status;
};

struct history {
    uint64_t clock;  /* atomic */
    uint64_t values; /* atomic: the last value given out */
};

struct history_log {
    struct history *history;
    uint32_t task;
    bool fixed;             /* ops are the caller's: a full log fails by abort() */
    struct history_op *ops; /* owned, unless fixed */
    size_t count, capacity;
};

void history_init(struct history *history);
uint64_t history_value(struct history *history);

void history_log_init(struct history_log *log, struct history *history, uint32_t task);
/* A log in memory of the caller's, which other processes may share (log, history and ops all lie in it, at
 * the same addresses): an entry is complete before it counts, so that a process that dies leaves every
 * operation that it began. */
void history_log_init_fixed(struct history_log *log, struct history *history, uint32_t task,
                            struct history_op *ops, size_t capacity);
void history_log_free(struct history_log *log);
/* Appends an operation that starts now; its outcome is unknown until history_end. Returns its place in the
 * log. */
size_t history_begin(struct history_log *log, enum history_kind kind, uint64_t key, uint64_t argument,
                     uint64_t expected);
void history_end(struct history_log *log, size_t place, int status, uint64_t result);

/* The operation was refused and promised to have changed nothing: it leaves the history. */
void history_drop(struct history_log *log, size_t place);

/* One array of the operations of all logs, sorted by key and then by invocation; malloc'ed for the caller. */
struct history_op *history_merge(const struct history_log *logs, size_t count, size_t *total);
const char *history_kind_name(enum history_kind kind);
void history_format(const struct history_op *op, char *text, size_t size);

#endif
