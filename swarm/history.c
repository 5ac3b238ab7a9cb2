/* history.c - see history.h. */
#include "swarm/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/task.h"

/* Sequentially consistent: the counter alone decides which of two events of different tasks came first. */
static uint64_t history_tick(uint64_t *counter)
{
    return __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
}

void history_init(struct history *history)
{
    *history = (struct history){0};
}

uint64_t history_value(struct history *history)
{
    return history_tick(&history->values);
}

void history_log_init(struct history_log *log, struct history *history, uint32_t task)
{
    *log = (struct history_log){.history = history, .task = task};
}

void history_log_init_fixed(struct history_log *log, struct history *history, uint32_t task,
                            struct history_op *ops, size_t capacity)
{
    *log = (struct history_log){
        .history = history, .task = task, .fixed = true, .ops = ops, .capacity = capacity};
}

void history_log_free(struct history_log *log)
{
    if (!log->fixed)
        free(log->ops);
    log->ops = NULL;
    log->count = log->capacity = 0;
}

size_t history_begin(struct history_log *log, enum history_kind kind, uint64_t key, uint64_t argument,
                     uint64_t expected)
{
    if (log->count == log->capacity) {
        log->capacity = log->capacity ? log->capacity * 2 : 256;
        log->ops = log->fixed ? NULL : realloc(log->ops, log->capacity * sizeof *log->ops);
        if (!log->ops)
            abort();
    }
    struct history_op *op = &log->ops[log->count];
    *op = (struct history_op){.key = key,
                              .argument = argument,
                              .expected = expected,
                              .task = log->task,
                              .kind = (uint8_t)kind,
                              .returned = UINT64_MAX,
                              .time = task_now()};
    op->invoked = history_tick(&log->history->clock);
    /* Release: a reader that sees the count, in another process too, finds the entry complete. */
    __atomic_store_n(&log->count, log->count + 1, __ATOMIC_RELEASE);
    return log->count - 1;
}

void history_end(struct history_log *log, size_t place, int status, uint64_t result)
{
    struct history_op *op = &log->ops[place];
    if (status == BANYAN_EUNKNOWN || status == BANYAN_ENET || status == BANYAN_EFENCED ||
        status == BANYAN_ETIMEOUT)
        return;
    op->status = status;
    op->result = result;
    op->known = true;
    op->returned = history_tick(&log->history->clock);
}

void history_drop(struct history_log *log, size_t place)
{
    log->ops[place].kind = HISTORY_GET; /* a read of unknown outcome says nothing */
    log->ops[place].argument = log->ops[place].expected = 0;
}

static int history_order(const void *left, const void *right)
{
    const struct history_op *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->invoked < b->invoked ? -1 : a->invoked > b->invoked;
}

struct history_op *history_merge(const struct history_log *logs, size_t count, size_t *total)
{
    *total = 0;
    for (size_t i = 0; i < count; i++)
        *total += logs[i].count;
    struct history_op *all = malloc((*total + 1) * sizeof *all);
    if (!all)
        abort();
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (logs[i].count)
            memcpy(all + at, logs[i].ops, logs[i].count * sizeof *all);
        at += logs[i].count;
    }
    if (*total)
        qsort(all, *total, sizeof *all, history_order);
    return all;
}

const char *history_kind_name(enum history_kind kind)
{
    static const char *const names[] = {"get", "put", "insert", "update", "delete", "cas", "modify"};
    return names[kind];
}

void history_format(const struct history_op *op, char *text, size_t size)
{
    char returned[24] = "?";
    if (op->known)
        snprintf(returned, sizeof returned, "%" PRIu64, op->returned);
    snprintf(text, size,
             "[%" PRIu64 "..%s] task %" PRIu32 " %s key %" PRIu64 " expected %" PRIu64 " argument %" PRIu64
             " -> %s result %" PRIu64 " (at %" PRIu64 " ns)",
             op->invoked, returned, op->task, history_kind_name(op->kind), op->key, op->expected,
             op->argument, op->known ? error_name(op->status) : "unknown", op->result, op->time);
}
