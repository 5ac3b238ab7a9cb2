/* churn.c - see churn.h. */
#include "swarm/churn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/atomic.h"

#define SCAN_MAX 160

static bool always_there(const struct churn *churn, uint64_t key)
{
    return key < churn->keys / 4 && key % 4 == 0;
}
static bool never_there(const struct churn *churn, uint64_t key)
{
    return key < churn->keys / 4 && key % 4 == 1;
}

/* ---- scans --------------------------------------------------------------------------------------- */

struct scan {
    struct world_task *task;
    uint64_t low, high; /* [low, high) */
    bool reverse;
    uint64_t last;
    uint64_t limit, seen;
    uint64_t values[SCAN_MAX]; /* by key - low */
};

static bool scan_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scan *scan = context;
    struct world *world = scan->task->world;
    uint64_t number = world_key_number(world, key, key_length);
    if (number < scan->low || number >= scan->high) {
        world_fail(world, BANYAN_ECORRUPT, "a scan of [%" PRIu64 ", %" PRIu64 ") met key %" PRIu64, scan->low,
                   scan->high, number);
        return false;
    }
    if (scan->seen > 0 && (scan->reverse ? number >= scan->last : number <= scan->last))
        world_fail(world, BANYAN_ECORRUPT, "a scan met key %" PRIu64 " after key %" PRIu64, number,
                   scan->last);
    scan->values[number - scan->low] = world_value_number(world, value, length);
    if (!scan->values[number - scan->low])
        world_fail(world, BANYAN_ECORRUPT, "a scan met a value that nobody wrote, of key %" PRIu64, number);
    scan->last = number;
    scan->seen++;
    return true;
}

/* A key that is (or was a moment ago) there. */
static void churn_sample(struct world_task *task, const struct churn *churn)
{
    struct world *world = task->world;
    uint8_t key[TREE_KEY_MAX];
    size_t length = sizeof key;
    int status = tree_sample(task->session, task->tree, key, &length);
    if (status == BANYAN_ENOTFOUND || (status == BANYAN_ENET && world_lossy(world)))
        return;
    uint64_t number = status ? UINT64_MAX : world_key_number(world, key, length);
    if (number >= churn->keys || never_there(churn, number))
        world_fail(world, status ? status : BANYAN_ECORRUPT, "sample: key %" PRIu64 ": %s", number,
                   tree_session_error(task->session)->text);
}

/* The keys that the scan spoke about: all of its range, or up to where its limit stopped it. */
static void scan_bounds(const struct scan *scan, uint64_t *from, uint64_t *to)
{
    *from = scan->low;
    *to = scan->high;
    if (scan->limit && scan->seen == scan->limit) {
        if (scan->reverse)
            *from = scan->last;
        else
            *to = scan->last + 1;
    }
}

static void churn_scan(struct world_task *task, const struct churn *churn)
{
    struct world *world = task->world;
    struct scan scan = {.task = task, .reverse = random_chance(&task->random, 0.5)};
    scan.low = random_below(&task->random, churn->keys);
    scan.high = scan.low + 1 + random_below(&task->random, SCAN_MAX);
    if (scan.high > churn->keys)
        scan.high = churn->keys;
    if (random_chance(&task->random, 0.3))
        scan.limit = 1 + random_below(&task->random, 40);
    uint8_t from[TREE_KEY_MAX], to[TREE_KEY_MAX];
    const struct tree_range range = {.from = from,
                                     .from_length = world_key(world, scan.low, from),
                                     .to = to,
                                     .to_length = world_key(world, scan.high, to),
                                     .to_open = true,
                                     .reverse = scan.reverse,
                                     .limit = scan.limit};
    size_t first = task->log.count;
    for (uint64_t key = scan.low; key < scan.high; key++)
        history_begin(&task->log, HISTORY_GET, key, 0, 0);
    int status = tree_scan(task->session, task->tree, &range, scan_visit, &scan);
    if (status == BANYAN_ENET && world_lossy(world)) { /* nothing was learnt */
        world->unreachable++;
        task_sleep(2000);
        return;
    }
    if (status) {
        world_fail(world, status, "scan: %s", tree_session_error(task->session)->text);
        return;
    }
    if (scan.limit && scan.seen > scan.limit)
        world_fail(world, BANYAN_ECORRUPT, "a scan did not stop at its limit");
    uint64_t spoke_from, spoke_to;
    scan_bounds(&scan, &spoke_from, &spoke_to);
    for (uint64_t key = spoke_from; key < spoke_to; key++) {
        uint64_t value = scan.values[key - scan.low];
        if (always_there(churn, key) && !value)
            world_fail(world, BANYAN_ECORRUPT, "a scan missed key %" PRIu64 ", which was always there", key);
        if (never_there(churn, key) && value)
            world_fail(world, BANYAN_ECORRUPT, "a scan met key %" PRIu64 ", which was never there", key);
        history_end(&task->log, first + (key - scan.low), value ? 0 : BANYAN_ENOTFOUND, value);
    }
}

/* ---- many keys at once ------------------------------------------------------------------------------------
 */

#define MULTI_MAX 12

struct multi {
    uint64_t keys[MULTI_MAX];
    uint8_t key_bytes[MULTI_MAX][TREE_KEY_MAX], value_bytes[MULTI_MAX][TREE_VALUE_MAX];
    struct tree_item items[MULTI_MAX];
    size_t count;
};

/* Different keys, some of them neighbours; with `writes` none that must not be written. */
static void multi_draw(struct world_task *task, const struct churn *churn, bool writes, struct multi *multi)
{
    uint64_t key = random_below(&task->random, churn->keys), step = 1 + random_below(&task->random, 20);
    size_t wanted = 1 + random_below(&task->random, MULTI_MAX);
    multi->count = 0;
    for (size_t i = 0; i < wanted && key < churn->keys; i++, key += step) {
        bool mine = !churn->disjoint || key % task->world->task_count == task->number;
        if (writes && (!mine || never_there(churn, key)))
            continue;
        multi->keys[multi->count++] = key;
    }
}

static void churn_multi(struct world_task *task, const struct churn *churn)
{
    struct world *world = task->world;
    bool writes = random_chance(&task->random, 0.5);
    struct multi multi;
    multi_draw(task, churn, writes, &multi);
    size_t first = task->log.count;
    for (size_t i = 0; i < multi.count; i++) {
        uint64_t value = writes ? history_value(&world->history) : 0;
        multi.items[i] = (struct tree_item){.key = multi.key_bytes[i],
                                            .key_length = world_key(world, multi.keys[i], multi.key_bytes[i]),
                                            .value = multi.value_bytes[i],
                                            .length = TREE_VALUE_MAX};
        if (writes)
            multi.items[i].length = world_value(world, value, multi.value_bytes[i]);
        history_begin(&task->log, writes ? HISTORY_PUT : HISTORY_GET, multi.keys[i], value, 0);
    }
    if (writes)
        tree_multi_put(task->session, task->tree, multi.items, multi.count);
    else
        tree_multi_get(task->session, task->tree, multi.items, multi.count);
    for (size_t i = 0; i < multi.count; i++) {
        const struct tree_item *item = &multi.items[i];
        bool found = !writes && item->status == 0;
        if (item->status == BANYAN_ENOSPC && world->options.accept_full) {
            atomic_add_relaxed(&world->refused, 1); /* a count */
            history_drop(&task->log, first + i);
            continue;
        }
        if (item->status == BANYAN_ENET && world_lossy(world)) { /* promises that it has not been done */
            world->unreachable++;
            history_drop(&task->log, first + i);
            continue;
        }
        uint64_t value = found ? world_value_number(world, item->value, item->length) : 0;
        if (writes && item->status == BANYAN_EUNKNOWN && world_lossy(world)) {
            world->unknown++;
            continue;
        }
        if (item->status && (writes || item->status != BANYAN_ENOTFOUND))
            world_fail(world, item->status, "many keys at once: key %" PRIu64 ": %s", multi.keys[i],
                       tree_session_error(task->session)->text);
        if (found && !value)
            world_fail(world, BANYAN_ECORRUPT, "multi_get returned a value that nobody wrote");
        history_end(&task->log, first + i, item->status, value);
    }
}

/* ---- single keys --------------------------------------------------------------------------------- */

static enum history_kind pick(struct random *random, const enum history_kind *mix, size_t count)
{
    return mix[random_below(random, count)];
}

static const enum history_kind growing[] = {HISTORY_INSERT, HISTORY_INSERT, HISTORY_PUT,
                                            HISTORY_MODIFY, HISTORY_GET,    HISTORY_UPDATE};
static const enum history_kind shrinking[] = {HISTORY_DELETE, HISTORY_DELETE, HISTORY_DELETE, HISTORY_GET};
static const enum history_kind anything[] = {HISTORY_GET,    HISTORY_GET,    HISTORY_GET,
                                             HISTORY_PUT,    HISTORY_UPDATE, HISTORY_INSERT,
                                             HISTORY_DELETE, HISTORY_MODIFY, HISTORY_CAS};
static const enum history_kind keeping[] = {HISTORY_GET, HISTORY_GET, HISTORY_PUT, HISTORY_UPDATE,
                                            HISTORY_CAS};
static const enum history_kind looking[] = {HISTORY_GET, HISTORY_DELETE, HISTORY_UPDATE, HISTORY_CAS};
#define PICK(mix) pick(&task->random, mix, sizeof mix / sizeof mix[0])

static void operate(struct world_task *task, const struct churn *churn, enum history_kind kind, uint64_t key)
{
    uint64_t expected = 0;
    if (churn->disjoint && key % task->world->task_count != task->number)
        kind = HISTORY_GET;
    if (kind == HISTORY_CAS) {
        if (world_operate(task, HISTORY_GET, key, 0))
            return;
        expected = task->log.ops[task->log.count - 1].result;
    }
    world_operate(task, kind, key, expected);
}

static enum history_kind kind_for(struct world_task *task, const struct churn *churn, uint64_t key)
{
    if (always_there(churn, key))
        return PICK(keeping);
    if (never_there(churn, key))
        return PICK(looking);
    return PICK(anything);
}

/* Behind the window every key goes, each by the task that it belongs to: leaves become empty there. */
static void churn_sweep(struct world_task *task, const struct churn *churn, unsigned round)
{
    uint64_t quarter = churn->keys / 4, space = churn->keys - quarter - 4;
    uint64_t from = round ? space * 2 * (round - 1) / churn->rounds : 0,
             to = space * 2 * round / churn->rounds;
    for (uint64_t place = from; place < to; place++) {
        uint64_t key = quarter + 4 + (place + space - churn->window) % space;
        if (key % task->world->task_count == task->number)
            world_operate(task, HISTORY_DELETE, key, 0);
    }
}

static void churn_one(struct world_task *task, const struct churn *churn, unsigned round)
{
    uint64_t quarter = churn->keys / 4, dice = random_below(&task->random, 100);
    if (dice < churn->scans) {
        churn_scan(task, churn);
        churn_sample(task, churn);
    } else if (dice < churn->scans + churn->multis) {
        churn_multi(task, churn);
    } else if (dice < churn->scans + churn->multis + churn->hot) {
        operate(task, churn, PICK(anything), quarter + random_below(&task->random, 4));
    } else if (random_chance(&task->random, 0.2)) {
        uint64_t key = random_below(&task->random, quarter);
        operate(task, churn, kind_for(task, churn, key), key);
    } else {
        /* Twice over the space while the task runs; all tasks are about equally far. */
        uint64_t space = churn->keys - quarter - 4, base = space * 2 * round / churn->rounds;
        uint64_t place = random_below(&task->random, churn->window * 2);
        uint64_t key = quarter + 4 + (base + place) % space;
        operate(task, churn, place >= churn->window ? PICK(growing) : PICK(shrinking), key);
    }
}

static void work(struct world_task *task)
{
    struct world *world = task->world;
    const struct churn *churn = world->context;
    for (unsigned round = 0; round < churn->rounds && !__atomic_load_n(&world->error.code, __ATOMIC_RELAXED);
         round++) {
        churn_sweep(task, churn, round);
        churn_one(task, churn, round);
    }
}

static void fill(struct world_task *task)
{
    const struct churn *churn = task->world->context;
    for (uint64_t key = 0; key < churn->keys / 4 && !task->world->error.code; key += 4)
        world_operate(task, HISTORY_INSERT, key, 0);
}

static void read_all(struct world_task *task)
{
    const struct churn *churn = task->world->context;
    for (uint64_t key = 0; key < churn->keys && !task->world->error.code; key++)
        world_operate(task, HISTORY_GET, key, 0);
}

int churn_fill(struct world *world, struct churn *churn)
{
    world->context = churn;
    return world_run_one(world, 0, fill);
}

int churn_work(struct world *world, struct churn *churn)
{
    world->context = churn;
    return world_run(world, work);
}

int churn_verify(struct world *world, struct churn *churn, struct tree_check_report *report)
{
    world->context = churn;
    unsigned per_compute = world->options.threads * world->options.fibers, survivor = 0;
    while (survivor < world->options.compute_nodes - 1 && world->computes[survivor].dead)
        survivor++;
    int status = world_run_one(world, survivor * per_compute, read_all);
    if (!status)
        status = world_linearize(world);
    return status ? status : world_check(world, report);
}

void churn_total_add(struct churn_total *total, const struct world *world,
                     const struct tree_check_report *report)
{
    struct tree_stats stats;
    world_stats(world, &stats);
    total->runs++;
    for (unsigned i = 0; i < world->task_count; i++)
        total->recorded += world->tasks[i].log.count;
    total->operations += stats.operations;
    total->retries += stats.retries;
    total->splits += stats.splits;
    total->unlinks += stats.unlinks;
    total->handovers += stats.handovers;
    total->snapshot_handovers += stats.snapshot_handovers;
    total->cache_misses += stats.cache_misses;
    total->dead += report->dead;
    total->marked += report->marked;
    total->missing_parents += report->missing_parents;
    total->marked_at_death += world->marked_at_death;
    total->losses += world->sim ? sim_losses(world->sim) : 0;
    total->unreachable += world->unreachable;
    total->unknown += world->unknown;
}

void churn_total_print(const struct churn_total *total, const char *name)
{
    printf(
        "%s: %" PRIu64 " runs, %" PRIu64 " operations (%" PRIu64 " recorded), %" PRIu64 " retries, %" PRIu64
        " splits, %" PRIu64 " unlinks, %" PRIu64 " handovers (%" PRIu64 " with snapshot), %" PRIu64
        " cache misses; left behind: %" PRIu64 " dead, %" PRIu64 " marked, %" PRIu64
        " without parent, %" PRIu64 " half split at a death; connections lost: %" PRIu64 ", with %" PRIu64
        " operations not done and %" PRIu64 " unknown\n",
        name, total->runs, total->operations, total->recorded, total->retries, total->splits, total->unlinks,
        total->handovers, total->snapshot_handovers, total->cache_misses, total->dead, total->marked,
        total->missing_parents, total->marked_at_death, total->losses, total->unreachable, total->unknown);
}

int churn_run(struct world *world, struct churn *churn, struct churn_total *total)
{
    int status = churn_fill(world, churn);
    if (!status)
        status = churn_work(world, churn);
    struct tree_check_report report = {0};
    if (!status)
        status = churn_verify(world, churn, &report);
    if (!status && (report.dead || report.marked || report.missing_parents))
        status = world_fail(world, BANYAN_ECORRUPT,
                            "unfinished though nobody died: %" PRIu64 " dead, %" PRIu64 " marked, %" PRIu64
                            " without parent",
                            report.dead, report.marked, report.missing_parents);
    churn_total_add(total, world, &report);
    return status;
}
