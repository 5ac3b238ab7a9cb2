/* linearize.c - prepares the search for an order of one key's operations, and explains what it found
 * (contract: linearize.h). */
#include "swarm/linearize.h"

#include <stdio.h>
#include <stdlib.h>

#include "swarm/linearize_search.h"

#define STEPS_DEFAULT UINT64_C(20000000)

static int number_order(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* 0: not written by anyone (or the value 0). */
static uint32_t value_place(const struct linearize_search *search, uint64_t value)
{
    if (value == 0)
        return 0;
    const uint64_t *found = bsearch(&value, search->values, search->value_count, sizeof value, number_order);
    return found ? (uint32_t)(found - search->values) + 1 : 0;
}

static bool writes(const struct history_op *op)
{
    if (op->kind == HISTORY_GET || op->kind == HISTORY_DELETE)
        return false;
    return op->argument != 0 && (!op->known || op->status == 0);
}

static bool prepare_values(struct linearize_search *search)
{
    for (uint32_t i = 0; i < search->count; i++)
        if (writes(&search->ops[i]))
            search->values[search->value_count++] = search->ops[i].argument;
    qsort(search->values, search->value_count, sizeof *search->values, number_order);
    for (uint32_t i = 1; i < search->value_count; i++)
        if (search->values[i] == search->values[i - 1])
            return false;
    for (uint32_t i = 0; i < search->count; i++) {
        enum history_kind kind = search->ops[i].kind;
        if (kind != HISTORY_GET && kind != HISTORY_DELETE && kind != HISTORY_MODIFY &&
            !search->ops[i].argument)
            return false;
    }
    return true;
}

/* False with the operation in *stray if one saw a value that was never written. */
static bool prepare_needs(struct linearize_search *search, uint32_t *stray)
{
    for (uint32_t i = 0; i < search->count; i++) {
        const struct history_op *op = &search->ops[i];
        search->gives[i] = writes(op) ? value_place(search, op->argument) : 0;
        search->needs[i] = SEARCH_ANY;
        if (!op->known)
            continue;
        uint64_t value;
        if (op->kind == HISTORY_GET || op->kind == HISTORY_MODIFY)
            value = op->result;
        else if (op->kind == HISTORY_CAS && op->status == 0)
            value = op->expected;
        else
            continue;
        search->needs[i] = value_place(search, value);
        *stray = i;
        if (value != 0 && search->needs[i] == 0)
            return false;
        search->wanted[search->needs[i]]++;
    }
    return true;
}

static void prepare_unread(struct linearize_search *search)
{
    for (uint32_t i = 0; i < search->count; i++) {
        const struct history_op *op = &search->ops[i];
        if (op->kind == HISTORY_CAS && (!op->known || op->status != 0))
            search->contested[value_place(search, op->expected)] = search->contests = true;
    }
    for (uint32_t i = 0; i < search->count; i++)
        search->unread[i] = linearize_search_plain(search, search->gives[i]);
}

struct instant {
    uint64_t time;
    uint32_t op;
    bool is_return;
};

static int instant_order(const void *left, const void *right)
{
    const struct instant *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return (int)a->is_return - (int)b->is_return; /* at the same instant: they overlap */
}

static void prepare_events(struct linearize_search *search)
{
    struct instant *instants = calloc(search->count * 2 + 1, sizeof *instants);
    if (!instants)
        abort();
    uint32_t total = 0;
    for (uint32_t i = 0; i < search->count; i++) {
        if (!search->ops[i].known && search->ops[i].kind == HISTORY_GET)
            continue;
        instants[total++] = (struct instant){search->ops[i].invoked, i, false};
        if (search->ops[i].known) {
            instants[total++] = (struct instant){search->ops[i].returned, i, true};
            search->unplaced++;
        }
    }
    qsort(instants, total, sizeof *instants, instant_order);
    for (uint32_t i = 0; i <= total; i++) {
        struct linearize_event *event = &search->events[i];
        event->next = i == total ? 0 : i + 1;
        event->previous = i == 0 ? total : i - 1;
        if (i == 0)
            continue;
        event->op = instants[i - 1].op;
        event->is_return = instants[i - 1].is_return;
        if (event->is_return)
            search->end_of[event->op] = i;
    }
    free(instants);
}

static void explain(const struct linearize_search *search, uint32_t op, const char *what, char *text,
                    size_t size)
{
    if (!text || size == 0)
        return;
    char line[320];
    history_format(&search->ops[op], line, sizeof line);
    int used = snprintf(text, size, "%s: %s", what, line);
    /* A reader wants to see next the operations that overlap it or just precede it. */
    for (uint32_t i = 0; i < search->count && used > 0 && (size_t)used < size; i++) {
        const struct history_op *other = &search->ops[i];
        if (i == op || other->invoked > search->ops[op].returned ||
            other->returned + 200 < search->ops[op].invoked)
            continue;
        history_format(other, line, sizeof line);
        used += snprintf(text + used, size - (size_t)used, "\n    near: %s", line);
    }
}

enum linearize_verdict linearize_key(const struct history_op *ops, size_t count, uint64_t steps_max,
                                     const struct history_op **culprit, char *explanation, size_t size)
{
    if (culprit)
        *culprit = NULL;
    struct linearize_search search = {.ops = ops, .count = (uint32_t)count};
    search.values = calloc(count + 1, sizeof *search.values);
    search.gives = calloc(count + 1, sizeof *search.gives);
    search.needs = calloc(count + 1, sizeof *search.needs);
    search.contested = calloc(count + 2, sizeof *search.contested);
    search.unread = calloc(count + 1, sizeof *search.unread);
    search.wanted = calloc(count + 2, sizeof *search.wanted);
    search.events = calloc(count * 2 + 2, sizeof *search.events);
    search.end_of = calloc(count + 1, sizeof *search.end_of);
    search.frames = calloc(count + 1, sizeof *search.frames);
    if (!search.values || !search.gives || !search.needs || !search.wanted || !search.contested ||
        !search.unread || !search.events || !search.end_of || !search.frames)
        abort();
    if (explanation && size)
        explanation[0] = 0;
    enum linearize_verdict verdict;
    uint32_t stray = 0;
    if (!prepare_values(&search)) {
        verdict = LINEARIZE_MALFORMED;
    } else if (!prepare_needs(&search, &stray)) {
        verdict = LINEARIZE_REJECTED;
        explain(&search, search.stuck = stray, "saw a value that was never written to this key", explanation,
                size);
    } else {
        prepare_unread(&search);
        prepare_events(&search);
        verdict = linearize_search_run(&search, steps_max ? steps_max : STEPS_DEFAULT);
        if (verdict != LINEARIZE_ACCEPTED)
            explain(&search, search.stuck,
                    verdict == LINEARIZE_UNDECIDED
                        ? "the search ended undecided, and came no further than here"
                        : "could not be placed",
                    explanation, size);
    }
    if (culprit && verdict != LINEARIZE_ACCEPTED)
        *culprit = &ops[search.stuck];
    free(search.values);
    free(search.gives);
    free(search.needs);
    free(search.contested);
    free(search.unread);
    free(search.wanted);
    free(search.events);
    free(search.end_of);
    free(search.frames);
    free(search.seen.cells);
    return verdict;
}

enum linearize_verdict linearize_all(const struct history_op *ops, size_t count,
                                     const struct history_op **culprit, char *explanation, size_t size)
{
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from; to < count && ops[to].key == ops[from].key; to++)
            ;
        enum linearize_verdict verdict = linearize_key(ops + from, to - from, 0, culprit, explanation, size);
        if (verdict != LINEARIZE_ACCEPTED)
            return verdict;
    }
    return LINEARIZE_ACCEPTED;
}
