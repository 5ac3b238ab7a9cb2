/* driver.c - see driver.h. */
#include "swarm/driver.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/task.h"

/* Room that every value fits in. */
static size_t value_room(const struct driver_shape *shape)
{
    return shape->records ? DRIVER_RECORD_MAX : FORMAT_VALUE_MAX;
}

/* ---- life ---- */

void driver_init(struct driver *driver, struct driver_setting *setting, const struct subject_ops *subject,
                 void *session, struct history_log *log, uint64_t seed)
{
    *driver = (struct driver){.setting = setting, .subject = subject, .session = session, .log = log};
    random_seed(&driver->random, seed);
    driver->room = malloc((SUBJECT_MANY_MAX + 1) * value_room(&setting->shape));
    if (!driver->room)
        abort();
}

void driver_free(struct driver *driver)
{
    free(driver->room);
    driver->room = NULL;
}

static uint8_t *room(const struct driver *driver, size_t place)
{
    return driver->room + place * value_room(&driver->setting->shape);
}

void driver_blame(struct driver *driver, uint64_t key)
{
    if (driver_stopped(driver))
        return;
    uint64_t nothing = 0; /* relaxed: it is read once all have stopped */
    __atomic_compare_exchange_n(&driver->setting->blamed, &nothing, key + 1, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

int driver_fail(struct driver *driver, int code, const char *format, ...)
{
    char text[sizeof((struct error *)0)->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    driver->setting->fail(driver->setting->context, code, text);
    return code;
}

/* The entries of the history from `first` on begin or end. */
static void look(const struct driver *driver, enum driver_step step, size_t first,
                 const struct driver_scan *scan, int status)
{
    const struct driver_setting *setting = driver->setting;
    if (setting->look)
        setting->look(setting->looker, &(struct driver_sight){.step = step,
                                                              .ops = driver->log->ops + first,
                                                              .count = driver->log->count - first,
                                                              .scan = scan,
                                                              .status = status});
}

/* ---- outcomes ---- */

static bool status_expected(enum history_kind kind, int status)
{
    switch (status) {
    case 0:
        return true;
    case BANYAN_ENOTFOUND:
        return kind == HISTORY_GET || kind == HISTORY_UPDATE || kind == HISTORY_DELETE || kind == HISTORY_CAS;
    case BANYAN_EEXIST:
        return kind == HISTORY_INSERT;
    case BANYAN_ECONFLICT:
        return kind == HISTORY_CAS;
    default:
        return false;
    }
}

/* Once faults have stopped, no operation may take long. */
static void judge_wait(struct driver *driver, const struct history_op *op)
{
    uint64_t calm = __atomic_load_n(&driver->setting->calm_ns, __ATOMIC_RELAXED); /* a time; orders nothing */
    if (!calm)
        return;
    uint64_t now = task_now(), since = op->time > calm ? op->time : calm;
    uint64_t wait = now > since ? now - since : 0;
    if (wait > driver->longest_ns)
        driver->longest_ns = wait;
    if (!driver->setting->patience_ns || wait <= driver->setting->patience_ns)
        return;
    driver_blame(driver, op->key);
    driver_fail(driver, BANYAN_ETIMEOUT,
                "%s of key %" PRIu64 " took %" PRIu64 " us after the faults had stopped",
                history_kind_name(op->kind), op->key, wait / 1000);
}

/* A refusal is temporary: operations that begin after it has ended find room. */
static bool may_be_full(const struct driver *driver, const struct history_op *op)
{
    const struct driver_setting *setting = driver->setting;
    uint64_t calm = __atomic_load_n(&setting->calm_ns, __ATOMIC_RELAXED); /* a time; orders nothing */
    return setting->accept_full || (setting->accept_refusals && (!calm || op->time <= calm));
}

/* Enters the outcome into the history. False: the operation was taken out of it. */
static bool conclude(struct driver *driver, size_t place, int status, uint64_t result)
{
    const struct driver_setting *setting = driver->setting;
    const struct history_op op = driver->log->ops[place];
    judge_wait(driver, &op);
    if (status == BANYAN_ENOSPC && may_be_full(driver, &op)) {
        driver->refused++;
        history_drop(driver->log, place);
        return false;
    }
    bool unknown = status == BANYAN_EUNKNOWN || status == BANYAN_ETIMEOUT;
    if ((unknown || status == BANYAN_ENET) && setting->lossy(setting->context)) {
        if (unknown && op.kind != HISTORY_GET) {
            driver->unknown++;
            return true;
        }
        driver->unreachable++; /* promises that it has not been done */
        history_drop(driver->log, place);
        return false;
    }
    if (!status_expected((enum history_kind)op.kind, status)) {
        driver_blame(driver, op.key);
        driver_fail(driver, status, "%s of key %" PRIu64 ": %s: %s", history_kind_name(op.kind), op.key,
                    error_name(status), driver->subject->trouble(driver->session));
        return false; /* recorded as unknown: the run has failed anyway */
    }
    history_end(driver->log, place, status, result);
    return true;
}

/* The number of a value read. 0: the value was never written to this key, and the run has failed. */
static uint64_t value_read(struct driver *driver, const struct subject_call *call, uint64_t key)
{
    uint64_t number = driver_value_number(&driver->setting->shape, call->result, call->result_length);
    if (!number) {
        driver_blame(driver, key);
        driver_fail(driver, BANYAN_ECORRUPT, "%s of key %" PRIu64 " met a value that was never written",
                    history_kind_name(call->kind), key);
    }
    return number;
}

static void value_make(const struct driver *driver, struct subject_call *call, uint64_t number,
                       uint8_t *bytes)
{
    call->value = bytes;
    call->length = driver_value(&driver->setting->shape, number, bytes);
    call->expires = number % 3 ? 0 : UINT64_C(1) << 45; /* ms: does not come */
}

/* ---- operations ---- */

int driver_operate(struct driver *driver, enum history_kind kind, uint64_t number, uint64_t expected)
{
    const struct driver_shape *shape = &driver->setting->shape;
    uint8_t key[FORMAT_KEY_MAX];
    struct subject_call call = {.kind = kind,
                                .key = key,
                                .key_length = driver_key(shape, number, key),
                                .result = room(driver, 2),
                                .result_room = value_room(shape)};
    uint64_t argument =
        kind == HISTORY_GET || kind == HISTORY_DELETE ? 0 : history_value(driver->setting->history);
    if (kind == HISTORY_MODIFY && random_chance(&driver->random, 0.4))
        argument = 0;
    if (argument)
        value_make(driver, &call, argument, room(driver, 0));
    if (kind == HISTORY_CAS) {
        call.expected = room(driver, 1);
        call.expected_length = driver_value(shape, expected, room(driver, 1));
    }
    size_t place = history_begin(driver->log, kind, number, argument, expected);
    look(driver, DRIVER_BEGINS, place, NULL, 0);
    int status = driver->subject->one(driver->session, &call);
    bool saw = kind == HISTORY_GET ? status == 0 : kind == HISTORY_MODIFY && status == 0 && call.found;
    uint64_t result = saw ? value_read(driver, &call, number) : 0;
    bool sound = !saw || result, concluded = sound && conclude(driver, place, status, result);
    look(driver, DRIVER_ENDS, place, NULL, status);
    if (!sound)
        return BANYAN_ECORRUPT;
    if (!concluded && status == BANYAN_ENET)
        task_sleep(driver->setting->pause_ns);
    return status;
}

void driver_many(struct driver *driver, bool writes, const uint64_t *keys, size_t count)
{
    const struct driver_shape *shape = &driver->setting->shape;
    struct subject_call calls[SUBJECT_MANY_MAX];
    uint8_t bytes[SUBJECT_MANY_MAX][FORMAT_KEY_MAX];
    size_t first = driver->log->count;
    for (size_t i = 0; i < count; i++) {
        uint64_t value = writes ? history_value(driver->setting->history) : 0;
        calls[i] = (struct subject_call){.kind = writes ? HISTORY_PUT : HISTORY_GET,
                                         .key = bytes[i],
                                         .key_length = driver_key(shape, keys[i], bytes[i]),
                                         .result = room(driver, i),
                                         .result_room = value_room(shape)};
        if (writes)
            value_make(driver, &calls[i], value, room(driver, i));
        history_begin(driver->log, calls[i].kind, keys[i], value, 0);
    }
    look(driver, DRIVER_BEGINS, first, NULL, 0);
    driver->subject->many(driver->session, calls, count);
    bool lost = false;
    for (size_t i = 0; i < count; i++) {
        bool found = !writes && calls[i].status == 0;
        uint64_t value = found ? value_read(driver, &calls[i], keys[i]) : 0;
        if (!found || value)
            conclude(driver, first + i, calls[i].status, value);
        lost = lost || calls[i].status == BANYAN_ENET;
    }
    look(driver, DRIVER_ENDS, first, NULL, 0);
    if (lost)
        task_sleep(driver->setting->pause_ns);
}

/* ---- scans ---- */

struct scan_visit {
    struct driver *driver;
    struct driver_scan *scan;
    uint64_t seen, last;
};

static bool scan_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scan_visit *visit = context;
    struct driver *driver = visit->driver;
    struct driver_scan *scan = visit->scan;
    uint64_t number = driver_key_number(&driver->setting->shape, key, key_length);
    if (number < scan->low || number >= scan->high) {
        driver_blame(driver, number);
        driver_fail(driver, BANYAN_ECORRUPT, "a scan of [%" PRIu64 ", %" PRIu64 ") met key %" PRIu64,
                    scan->low, scan->high, number);
        return false;
    }
    if (visit->seen > 0 && (scan->reverse ? number >= visit->last : number <= visit->last)) {
        driver_blame(driver, number);
        driver_fail(driver, BANYAN_ECORRUPT, "a scan met key %" PRIu64 " after key %" PRIu64, number,
                    visit->last);
    }
    uint64_t found = driver_value_number(&driver->setting->shape, value, length);
    if (!found) {
        driver_blame(driver, number);
        driver_fail(driver, BANYAN_ECORRUPT, "a scan met a value that was never written, of key %" PRIu64,
                    number);
    }
    scan->values[number - scan->low] = found;
    visit->last = number;
    visit->seen++;
    return true;
}

static void scan_spoke(struct driver_scan *scan, const struct scan_visit *visit)
{
    scan->from = scan->low;
    scan->to = scan->high;
    if (scan->limit && visit->seen == scan->limit) {
        if (scan->reverse)
            scan->from = visit->last;
        else
            scan->to = visit->last + 1;
    }
}

bool driver_scan(struct driver *driver, struct driver_scan *scan)
{
    const struct driver_setting *setting = driver->setting;
    struct scan_visit visit = {.driver = driver, .scan = scan};
    uint8_t from[FORMAT_KEY_MAX], to[FORMAT_KEY_MAX];
    const struct tree_range range = {.from = from,
                                     .from_length = driver_key(&setting->shape, scan->low, from),
                                     .to = to,
                                     .to_length = driver_key(&setting->shape, scan->high, to),
                                     .to_open = true,
                                     .reverse = scan->reverse,
                                     .limit = scan->limit};
    memset(scan->values, 0, sizeof scan->values);
    size_t first = driver->log->count;
    for (uint64_t key = scan->low; key < scan->high; key++)
        history_begin(driver->log, HISTORY_GET, key, 0, 0);
    look(driver, DRIVER_BEGINS, first, scan, 0);
    int status = driver->subject->scan(driver->session, &range, scan_visit, &visit);
    look(driver, DRIVER_ENDS, first, scan, status);
    if (scan->high > scan->low)
        judge_wait(driver, &driver->log->ops[first]);
    if (status == BANYAN_ENET && setting->lossy(setting->context)) { /* nothing was learnt */
        driver->unreachable++;
        task_sleep(setting->pause_ns);
        return false;
    }
    if (status) {
        driver_fail(driver, status, "scan: %s: %s", error_name(status),
                    driver->subject->trouble(driver->session));
        return false;
    }
    if (scan->limit && visit.seen > scan->limit)
        driver_fail(driver, BANYAN_ECORRUPT, "a scan did not stop at its limit");
    scan_spoke(scan, &visit);
    for (uint64_t key = scan->from; key < scan->to; key++) {
        uint64_t value = scan->values[key - scan->low];
        history_end(driver->log, first + (key - scan->low), value ? 0 : BANYAN_ENOTFOUND, value);
    }
    return true;
}

void driver_move(struct driver *driver, uint64_t key)
{
    const struct driver_setting *setting = driver->setting;
    uint8_t bytes[FORMAT_KEY_MAX];
    uint64_t dice = random_next(&driver->random);
    if (!driver->subject->move)
        return;
    size_t length = driver_key(&setting->shape, key, bytes);
    int status = driver->subject->move(driver->session, bytes, length, dice);
    bool lossy = setting->lossy(setting->context);
    bool full = setting->accept_full || setting->accept_refusals;
    if (lossy && status == BANYAN_EUNKNOWN)
        driver->unknown++; /* either the old blocks or the new ones are nobody's now */
    if (!status || (status == BANYAN_ENOSPC && full) ||
        (lossy && (status == BANYAN_ENET || status == BANYAN_EUNKNOWN)))
        return;
    driver_fail(driver, status, "moving blocks: %s", driver->subject->trouble(driver->session));
}

void driver_merge(struct driver *driver)
{
    const struct driver_setting *setting = driver->setting;
    const uint32_t budget = 1 + (uint32_t)random_below(&driver->random, 64);
    int status = driver->subject->merge ? driver->subject->merge(driver->session, budget) : 0;
    if ((status == BANYAN_ENET || status == BANYAN_EUNKNOWN || status == BANYAN_ETIMEOUT ||
         status == BANYAN_EFENCED) &&
        setting->lossy(setting->context)) {
        driver->unreachable++; /* some of it is left to others */
        task_sleep(setting->pause_ns);
    } else if (status) {
        driver_fail(driver, status, "merge: %s: %s", error_name(status),
                    driver->subject->trouble(driver->session));
    }
}

void driver_move_node(struct driver *driver, uint64_t key)
{
    const struct driver_setting *setting = driver->setting;
    uint8_t bytes[FORMAT_KEY_MAX];
    const uint64_t dice = random_next(&driver->random);
    uint8_t level = 0;
    while (level < 6 && random_chance(&driver->random, 0.3))
        level++;
    if (!driver->subject->move_node)
        return;
    size_t length = driver_key(&setting->shape, key, bytes);
    int status = driver->subject->move_node(driver->session, bytes, length, level, dice);
    if ((status == BANYAN_ENET || status == BANYAN_EUNKNOWN || status == BANYAN_ETIMEOUT ||
         status == BANYAN_EFENCED) &&
        setting->lossy(setting->context)) {
        driver->unreachable++; /* some of it is left to others */
        task_sleep(setting->pause_ns);
    } else if (status && !(status == BANYAN_ENOSPC && (setting->accept_full || setting->accept_refusals))) {
        driver_fail(driver, status, "moving a node: %s: %s", error_name(status),
                    driver->subject->trouble(driver->session));
    }
}

void driver_drain(struct driver *driver, uint64_t dice)
{
    const struct driver_setting *setting = driver->setting;
    int status = driver->subject->drain ? driver->subject->drain(driver->session, dice) : 0;
    const bool lossy = setting->lossy(setting->context);
    if (lossy && (status == BANYAN_EUNKNOWN || status == BANYAN_ETIMEOUT)) {
        driver->unknown++; /* as of driver_move */
    } else if (lossy && (status == BANYAN_ENET || status == BANYAN_EFENCED)) {
        driver->unreachable++; /* some of it is left to others */
        task_sleep(setting->pause_ns);
    } else if (status && !(status == BANYAN_ENOSPC && (setting->accept_full || setting->accept_refusals))) {
        driver_fail(driver, status, "emptying a memory node: %s: %s", error_name(status),
                    driver->subject->trouble(driver->session));
    }
}

uint64_t driver_sample(struct driver *driver)
{
    const struct driver_setting *setting = driver->setting;
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    if (!driver->subject->sample)
        return UINT64_MAX;
    int status = driver->subject->sample(driver->session, key, &length);
    if (status == BANYAN_ENOTFOUND ||
        (status == BANYAN_ENOSPC && (setting->accept_full || setting->accept_refusals)) ||
        (status == BANYAN_ENET && setting->lossy(setting->context)))
        return UINT64_MAX;
    uint64_t number = status ? UINT64_MAX : driver_key_number(&setting->shape, key, length);
    if (number == UINT64_MAX)
        driver_fail(driver, status ? status : BANYAN_ECORRUPT, "sample: %s",
                    status ? driver->subject->trouble(driver->session) : "a key that was never written");
    return number;
}
