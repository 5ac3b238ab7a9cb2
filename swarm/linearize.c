/* linearize.c - see linearize.h. */
#include "swarm/linearize.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/random.h"

#define STEPS_DEFAULT UINT64_C(20000000)
#define NOBODY        UINT32_MAX

/* Values as places in the sorted array of values written, from 1; 0: no such key. */
struct event {
    uint32_t op;
    bool is_return;
    uint32_t next, previous; /* the list of events not placed yet; entry 0 is its head */
};

struct frame {
    uint32_t call;  /* event placed */
    uint32_t state; /* before it */
    bool forced;    /* no other choice was worth a try */
};

struct memory {
    struct configuration {
        uint64_t low, high;
    } * cells;
    size_t capacity, count;
};

struct search {
    const struct history_op *ops;
    uint32_t count;
    uint64_t *values; /* sorted */
    uint32_t value_count;
    uint32_t *gives, *needs; /* [count]: value left behind, value that must be there (NOBODY: any) */
    bool *contested;      /* [value_count + 1]: a compare-and-set that did not find it tells it from others */
    bool contests;        /* there are such */
    bool *unread;         /* [count]: nobody ever tells the value it leaves from another */
    uint32_t *wanted;     /* [value_count + 1]: known operations not placed yet that need this value */
    struct event *events; /* [2 * count + 1] */
    uint32_t *end_of;     /* [count]: places of the returns in events; 0: never returns */
    struct frame *frames;
    uint32_t depth;
    uint32_t unplaced; /* known operations */
    uint32_t state;
    uint64_t low, high; /* sum of the marks of the operations placed: a name for their set */
    struct memory seen;
    uint32_t deepest, stuck; /* most operations placed, and the operation whose return was met then */
    uint64_t steps;
};

/* ---- memory of configurations ------------------------------------------------------------------------- */

static bool memory_put(struct memory *memory, uint64_t low, uint64_t high)
{
    size_t at = low & (memory->capacity - 1);
    while (memory->cells[at].low | memory->cells[at].high) {
        if (memory->cells[at].low == low && memory->cells[at].high == high)
            return false;
        at = (at + 1) & (memory->capacity - 1);
    }
    memory->cells[at] = (struct configuration){low, high};
    memory->count++;
    return true;
}

/* True if the configuration is new. */
static bool memory_add(struct memory *memory, uint64_t low, uint64_t high)
{
    if (memory->count * 2 >= memory->capacity) {
        struct memory larger = {.capacity = memory->capacity ? memory->capacity * 2 : 1024};
        larger.cells = calloc(larger.capacity, sizeof *larger.cells);
        if (!larger.cells)
            abort();
        for (size_t i = 0; i < memory->capacity; i++)
            if (memory->cells[i].low | memory->cells[i].high)
                memory_put(&larger, memory->cells[i].low, memory->cells[i].high);
        free(memory->cells);
        *memory = larger;
    }
    return memory_put(memory, low, high);
}

static void search_mark(struct search *search, uint32_t op, bool placed)
{
    uint64_t low = random_mix(op * UINT64_C(2) + 1), high = random_mix(low + 0x9e37);
    search->low += placed ? low : -low;
    search->high += placed ? high : -high;
}

/* A value that nobody will tell from another any more. */
static bool search_plain(const struct search *search, uint32_t state)
{
    return state != 0 && search->wanted[state] == 0 && !search->contested[state];
}

static bool search_seen(struct search *search)
{
    uint32_t state = search_plain(search, search->state) ? NOBODY : search->state;
    uint64_t low = search->low ^ random_mix(UINT64_C(0x5151) + state);
    uint64_t high = search->high ^ random_mix(UINT64_C(0xabcdef) + state);
    return !memory_add(&search->seen, low, high | 1);
}

/* ---- the register -------------------------------------------------------------------------------- */

/* Whether the operation, with the outcome that it reported, fits the state; and what it leaves. */
static bool step_known(const struct search *search, uint32_t op, uint32_t state, uint32_t *after)
{
    const struct history_op *o = &search->ops[op];
    *after = state;
    switch ((enum history_kind)o->kind) {
    case HISTORY_GET:
        return state == search->needs[op];
    case HISTORY_PUT:
        *after = search->gives[op];
        return o->status == 0;
    case HISTORY_INSERT:
        if (o->status == 0)
            *after = search->gives[op];
        return o->status == 0 ? state == 0 : o->status == BANYAN_EEXIST && state != 0;
    case HISTORY_UPDATE:
        if (o->status == 0)
            *after = search->gives[op];
        return o->status == 0 ? state != 0 : o->status == BANYAN_ENOTFOUND && state == 0;
    case HISTORY_DELETE:
        *after = 0;
        return o->status == 0 ? state != 0 : o->status == BANYAN_ENOTFOUND && state == 0;
    case HISTORY_CAS:
        if (o->status == BANYAN_ENOTFOUND)
            return state == 0;
        if (o->status == BANYAN_ECONFLICT)
            return state != 0 && search->values[state - 1] != o->expected;
        *after = search->gives[op];
        return o->status == 0 && state == search->needs[op];
    case HISTORY_MODIFY:
        *after = search->gives[op];
        return o->status == 0 && state == search->needs[op];
    }
    return false;
}

/* An operation of unknown outcome matters only if it changes something. */
static bool step_unknown(const struct search *search, uint32_t op, uint32_t state, uint32_t *after)
{
    const struct history_op *o = &search->ops[op];
    *after = search->gives[op];
    switch ((enum history_kind)o->kind) {
    case HISTORY_GET:
        return false;
    case HISTORY_PUT:
    case HISTORY_MODIFY:
        return true;
    case HISTORY_INSERT:
        return state == 0;
    case HISTORY_UPDATE:
        return state != 0;
    case HISTORY_DELETE:
        *after = 0;
        return state != 0;
    case HISTORY_CAS:
        return state != 0 && search->values[state - 1] == o->expected;
    }
    return false;
}

static bool step(const struct search *search, uint32_t op, uint32_t *after)
{
    uint32_t state = search->state;
    bool fits =
        search->ops[op].known ? step_known(search, op, state, after) : step_unknown(search, op, state, after);
    if (!fits || *after == state)
        return fits;
    /* Somebody else still has to see this value, and it never comes back. */
    uint32_t others = search->wanted[state];
    if (state != 0 && search->ops[op].known && search->needs[op] == state)
        others--;
    return state == 0 || others == 0;
}

/* ---- the search ---------------------------------------------------------------------------------- */

static void event_lift(struct search *search, uint32_t at)
{
    struct event *events = search->events;
    events[events[at].previous].next = events[at].next;
    events[events[at].next].previous = events[at].previous;
}

static void event_unlift(struct search *search, uint32_t at)
{
    struct event *events = search->events;
    events[events[at].previous].next = at;
    events[events[at].next].previous = at;
}

static void search_place(struct search *search, uint32_t call, uint32_t after, bool forced)
{
    uint32_t op = search->events[call].op;
    search->frames[search->depth++] = (struct frame){call, search->state, forced};
    event_lift(search, call);
    if (search->end_of[op]) {
        event_lift(search, search->end_of[op]);
        search->unplaced--;
        if (search->needs[op] != NOBODY && search->needs[op] != 0)
            search->wanted[search->needs[op]]--;
    }
    search_mark(search, op, true);
    search->state = after;
}

/* Returns the event placed last; 0: nothing is left to take back. */
static uint32_t search_take_back(struct search *search)
{
    struct frame frame;
    do {
        if (search->depth == 0)
            return 0;
        frame = search->frames[--search->depth];
        uint32_t op = search->events[frame.call].op;
        if (search->end_of[op]) {
            event_unlift(search, search->end_of[op]);
            search->unplaced++;
            if (search->needs[op] != NOBODY && search->needs[op] != 0)
                search->wanted[search->needs[op]]++;
        }
        event_unlift(search, frame.call);
        search_mark(search, op, false);
        search->state = frame.state;
    } while (frame.forced);
    return frame.call;
}

/* Changes nothing that anybody could notice, and nothing could be gained by placing it later. (An update
 * could be what moves a value out of the way of a compare-and-set that did not find it.) */
static bool is_quiet(const struct search *search, uint32_t op, uint32_t after)
{
    if (after == search->state)
        return true;
    return !search->contests && search->ops[op].kind == HISTORY_UPDATE && search->unread[op] &&
           search_plain(search, search->state);
}

/* Places every pending operation that fits and changes nothing: placing it now never does harm. */
static void search_place_quiet(struct search *search)
{
    uint32_t at = search->events[0].next;
    while (at != 0 && !search->events[at].is_return) {
        uint32_t after, next = search->events[at].next, op = search->events[at].op;
        search->steps++;
        if (search->ops[op].known && step(search, op, &after) && is_quiet(search, op, after)) {
            search_place(search, at, after, true);
            next = search->events[0].next; /* a return may have gone, and more calls may be pending */
        }
        at = next;
    }
}

static uint64_t deadline(const struct search *search, uint32_t op)
{
    return search->ops[op].known ? search->ops[op].returned : UINT64_MAX;
}

static bool event_before(const struct search *search, uint32_t left, uint32_t right)
{
    uint64_t a = deadline(search, search->events[left].op), b = deadline(search, search->events[right].op);
    return a != b ? a < b : left < right;
}

/* Operations that are alike but for their deadlines: trying the one that returns first is enough. */
enum likeness { ALIKE_DELETE, ALIKE_INSERT, ALIKE_PUT, ALIKE_MODIFY, ALIKE_COUNT };

static enum likeness likeness(const struct search *search, uint32_t op)
{
    const struct history_op *o = &search->ops[op];
    if (!o->known || o->status != 0)
        return ALIKE_COUNT;
    if (o->kind == HISTORY_DELETE)
        return ALIKE_DELETE;
    if (!search->unread[op])
        return ALIKE_COUNT;
    if (o->kind == HISTORY_INSERT)
        return ALIKE_INSERT;
    if (o->kind == HISTORY_PUT)
        return ALIKE_PUT;
    return o->kind == HISTORY_MODIFY && o->result == 0 && o->argument != 0 ? ALIKE_MODIFY : ALIKE_COUNT;
}

/* Of unknown outcome, and nobody would notice it here: it may as well never happen. */
static bool is_idle(const struct search *search, uint32_t op)
{
    const struct history_op *o = &search->ops[op];
    return !o->known && (o->kind == HISTORY_PUT || o->kind == HISTORY_UPDATE) && search->unread[op] &&
           search_plain(search, search->state);
}

/* The pending operation that fits and has to return next, of those that come after `last` in this order; 0:
 * none. */
static uint32_t search_choose(struct search *search, uint32_t last, uint32_t *after)
{
    uint32_t alike[ALIKE_COUNT] = {0}, best = 0, at, state;
    for (at = search->events[0].next; at != 0 && !search->events[at].is_return;
         at = search->events[at].next) {
        enum likeness kind = likeness(search, search->events[at].op);
        if (kind != ALIKE_COUNT && (alike[kind] == 0 || event_before(search, at, alike[kind])))
            alike[kind] = at;
    }
    for (at = search->events[0].next; at != 0 && !search->events[at].is_return;
         at = search->events[at].next) {
        uint32_t op = search->events[at].op;
        enum likeness kind = likeness(search, op);
        search->steps++;
        if ((last != 0 && !event_before(search, last, at)) || (best != 0 && !event_before(search, at, best)))
            continue;
        if ((kind != ALIKE_COUNT && alike[kind] != at) || is_idle(search, op))
            continue;
        if (step(search, op, &state)) {
            best = at;
            *after = state;
        }
    }
    return best;
}

/* For the explanation: how far the search got, and what stands in the way there. */
static void search_note(struct search *search)
{
    if (search->depth < search->deepest)
        return;
    search->deepest = search->depth;
    for (uint32_t at = search->events[0].next; at != 0; at = search->events[at].next)
        if (search->events[at].is_return) {
            search->stuck = search->events[at].op;
            return;
        }
}

static enum linearize_verdict search_run(struct search *search, uint64_t steps_max)
{
    search_place_quiet(search);
    uint32_t last = 0;
    while (search->unplaced > 0) {
        if (search->steps > steps_max)
            return LINEARIZE_UNDECIDED;
        uint32_t after, next = search_choose(search, last, &after);
        if (next != 0) {
            search_place(search, next, after, false);
            if (!search_seen(search)) {
                search_place_quiet(search);
                last = 0;
                continue;
            }
        } else {
            search_note(search);
        }
        last = search_take_back(search);
        if (last == 0)
            return LINEARIZE_REJECTED;
    }
    return LINEARIZE_ACCEPTED;
}

/* ---- preparing ----------------------------------------------------------------------------------- */

static int number_order(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* 0: not written by anyone (or the value 0). */
static uint32_t value_place(const struct search *search, uint64_t value)
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

static bool prepare_values(struct search *search)
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

/* False with the operation in *stray if one saw a value that nobody wrote. */
static bool prepare_needs(struct search *search, uint32_t *stray)
{
    for (uint32_t i = 0; i < search->count; i++) {
        const struct history_op *op = &search->ops[i];
        search->gives[i] = writes(op) ? value_place(search, op->argument) : 0;
        search->needs[i] = NOBODY;
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

static void prepare_unread(struct search *search)
{
    for (uint32_t i = 0; i < search->count; i++) {
        const struct history_op *op = &search->ops[i];
        if (op->kind == HISTORY_CAS && (!op->known || op->status != 0))
            search->contested[value_place(search, op->expected)] = search->contests = true;
    }
    for (uint32_t i = 0; i < search->count; i++)
        search->unread[i] = search_plain(search, search->gives[i]);
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

static void prepare_events(struct search *search)
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
        struct event *event = &search->events[i];
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

static void explain(const struct search *search, uint32_t op, const char *what, char *text, size_t size)
{
    if (!text || size == 0)
        return;
    char line[320];
    history_format(&search->ops[op], line, sizeof line);
    int used = snprintf(text, size, "%s: %s", what, line);
    /* What overlaps it, or just precedes it, is what a reader wants to see next. */
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
    struct search search = {.ops = ops, .count = (uint32_t)count};
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
        explain(&search, search.stuck = stray, "saw a value that nobody wrote to this key", explanation,
                size);
    } else {
        prepare_unread(&search);
        prepare_events(&search);
        verdict = search_run(&search, steps_max ? steps_max : STEPS_DEFAULT);
        if (verdict != LINEARIZE_ACCEPTED)
            explain(&search, search.stuck, "could not be placed", explanation, size);
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
