/* linearize_search.c - see linearize_search.h. */
#include "swarm/linearize_search.h"

#include "base/error.h"
#include "base/random.h"

/* ---- configurations ---- */

static void search_mark(struct linearize_search *search, uint32_t op, bool placed)
{
    uint64_t low = random_mix(op * UINT64_C(2) + 1), high = random_mix(low + 0x9e37);
    search->low += placed ? low : -low;
    search->high += placed ? high : -high;
}

bool linearize_search_plain(const struct linearize_search *search, uint32_t state)
{
    return state != 0 && search->wanted[state] == 0 && !search->contested[state];
}

static bool search_seen(struct linearize_search *search)
{
    uint32_t state = linearize_search_plain(search, search->state) ? SEARCH_ANY : search->state;
    uint64_t low = search->low ^ random_mix(UINT64_C(0x5151) + state);
    uint64_t high = search->high ^ random_mix(UINT64_C(0xabcdef) + state);
    return !linearize_seen_add(&search->seen, low, high | 1);
}

/* ---- the register ---- */

/* Whether the operation, with the outcome that it reported, fits the state; and what it leaves. */
static bool step_known(const struct linearize_search *search, uint32_t op, uint32_t state, uint32_t *after)
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
static bool step_unknown(const struct linearize_search *search, uint32_t op, uint32_t state, uint32_t *after)
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

static bool step(const struct linearize_search *search, uint32_t op, uint32_t *after)
{
    uint32_t state = search->state;
    bool fits =
        search->ops[op].known ? step_known(search, op, state, after) : step_unknown(search, op, state, after);
    if (!fits || *after == state)
        return fits;
    /* Another operation still has to see this value, and it never comes back. */
    uint32_t others = search->wanted[state];
    if (state != 0 && search->ops[op].known && search->needs[op] == state)
        others--;
    return state == 0 || others == 0;
}

/* ---- the search ---- */

static void event_lift(struct linearize_search *search, uint32_t at)
{
    struct linearize_event *events = search->events;
    events[events[at].previous].next = events[at].next;
    events[events[at].next].previous = events[at].previous;
}

static void event_unlift(struct linearize_search *search, uint32_t at)
{
    struct linearize_event *events = search->events;
    events[events[at].previous].next = at;
    events[events[at].next].previous = at;
}

static void search_place(struct linearize_search *search, uint32_t call, uint32_t after, bool forced)
{
    uint32_t op = search->events[call].op;
    search->frames[search->depth++] = (struct linearize_frame){call, search->state, forced};
    event_lift(search, call);
    if (search->end_of[op]) {
        event_lift(search, search->end_of[op]);
        search->unplaced--;
        if (search->needs[op] != SEARCH_ANY && search->needs[op] != 0)
            search->wanted[search->needs[op]]--;
    }
    search_mark(search, op, true);
    search->state = after;
}

/* Returns the event placed last; 0: nothing is left to take back. */
static uint32_t search_take_back(struct linearize_search *search)
{
    struct linearize_frame frame;
    do {
        if (search->depth == 0)
            return 0;
        frame = search->frames[--search->depth];
        uint32_t op = search->events[frame.call].op;
        if (search->end_of[op]) {
            event_unlift(search, search->end_of[op]);
            search->unplaced++;
            if (search->needs[op] != SEARCH_ANY && search->needs[op] != 0)
                search->wanted[search->needs[op]]++;
        }
        event_unlift(search, frame.call);
        search_mark(search, op, false);
        search->state = frame.state;
    } while (frame.forced);
    return frame.call;
}

/* Changes nothing that an operation could notice, and nothing could be gained by placing it later. (An update
 * could replace the value that a compare-and-set did not find.) */
static bool is_quiet(const struct linearize_search *search, uint32_t op, uint32_t after)
{
    if (after == search->state)
        return true;
    return !search->contests && search->ops[op].kind == HISTORY_UPDATE && search->unread[op] &&
           linearize_search_plain(search, search->state);
}

/* Places every pending operation that fits and changes nothing: placing it now never does harm. */
static void search_place_quiet(struct linearize_search *search)
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

static uint64_t deadline(const struct linearize_search *search, uint32_t op)
{
    return search->ops[op].known ? search->ops[op].returned : UINT64_MAX;
}

static bool event_before(const struct linearize_search *search, uint32_t left, uint32_t right)
{
    uint64_t a = deadline(search, search->events[left].op), b = deadline(search, search->events[right].op);
    return a != b ? a < b : left < right;
}

/* Operations that are alike but for their deadlines: trying the one that returns first is enough. Those of
 * unknown outcome have none, so any one of a kind does. */
enum likeness {
    ALIKE_DELETE,
    ALIKE_INSERT,
    ALIKE_PUT,
    ALIKE_MODIFY,
    ALIKE_UNKNOWN_DELETE,
    ALIKE_UNKNOWN_INSERT,
    ALIKE_UNKNOWN_UPDATE,
    ALIKE_UNKNOWN_PUT, /* and those modifications that put */
    ALIKE_UNKNOWN_CLEAR,
    ALIKE_COUNT
};

static enum likeness likeness_unknown(const struct linearize_search *search, uint32_t op)
{
    const struct history_op *o = &search->ops[op];
    if (o->kind == HISTORY_DELETE)
        return ALIKE_UNKNOWN_DELETE;
    if (o->kind == HISTORY_MODIFY && o->argument == 0)
        return ALIKE_UNKNOWN_CLEAR;
    if (!search->unread[op])
        return ALIKE_COUNT;
    if (o->kind == HISTORY_INSERT)
        return ALIKE_UNKNOWN_INSERT;
    if (o->kind == HISTORY_UPDATE)
        return ALIKE_UNKNOWN_UPDATE;
    return o->kind == HISTORY_PUT || o->kind == HISTORY_MODIFY ? ALIKE_UNKNOWN_PUT : ALIKE_COUNT;
}

static enum likeness likeness(const struct linearize_search *search, uint32_t op)
{
    const struct history_op *o = &search->ops[op];
    if (!o->known)
        return likeness_unknown(search, op);
    if (o->status != 0)
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

/* Of unknown outcome, and no operation would notice it here: it may as well never happen. */
static bool is_idle(const struct linearize_search *search, uint32_t op)
{
    const struct history_op *o = &search->ops[op];
    return !o->known && search->unread[op] &&
           (o->kind == HISTORY_PUT || o->kind == HISTORY_UPDATE || o->kind == HISTORY_MODIFY) &&
           linearize_search_plain(search, search->state);
}

/* The pending operation that fits and has to return next, of those that come after `last` in this order; 0:
 * none. */
static uint32_t search_choose(struct linearize_search *search, uint32_t last, uint32_t *after)
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

/* For the explanation: how far the search got, and which operation it could not place there. */
static void search_note(struct linearize_search *search)
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

enum linearize_verdict linearize_search_run(struct linearize_search *search, uint64_t steps_max)
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
