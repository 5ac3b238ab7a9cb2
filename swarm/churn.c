/* churn.c - see churn.h. */
#include "swarm/churn.h"

#include <inttypes.h>
#include "base/error.h"

static bool always_there(const struct churn *churn, uint64_t key)
{
    return key < churn->keys / 4 && key % 4 == 0;
}
static bool never_there(const struct churn *churn, uint64_t key)
{
    return key < churn->keys / 4 && key % 4 == 1;
}
static bool is_mine(const struct churn *churn, const struct churn_place *place, uint64_t key)
{
    return !churn->disjoint || key % place->tasks == place->task;
}

/* ---- scans and samples --------------------------------------------------------------------------- */

/* A key that is there, or was a moment ago. */
static void churn_sample(struct driver *driver, const struct churn *churn)
{
    uint64_t number = driver_sample(driver);
    if (number == UINT64_MAX || (number < churn->keys && !never_there(churn, number)))
        return;
    driver_blame(driver, number);
    driver_fail(driver, BANYAN_ECORRUPT, "sample: key %" PRIu64 ", which was never there", number);
}

static void churn_scan(struct driver *driver, const struct churn *churn)
{
    struct driver_scan scan = {.reverse = random_chance(&driver->random, 0.5)};
    scan.low = random_below(&driver->random, churn->keys);
    scan.high = scan.low + 1 + random_below(&driver->random, DRIVER_SCAN_MAX);
    if (scan.high > churn->keys)
        scan.high = churn->keys;
    if (random_chance(&driver->random, 0.3))
        scan.limit = 1 + random_below(&driver->random, 40);
    if (!driver_scan(driver, &scan))
        return;
    for (uint64_t key = scan.from; key < scan.to; key++) {
        uint64_t value = scan.values[key - scan.low];
        bool missed = always_there(churn, key) && !value && !churn->may_lack;
        if (!missed && !(never_there(churn, key) && value))
            continue;
        driver_blame(driver, key);
        driver_fail(driver, BANYAN_ECORRUPT,
                    missed ? "a scan missed key %" PRIu64 ", which was always there"
                           : "a scan met key %" PRIu64 ", which was never there",
                    key);
    }
}

/* ---- many keys at once --------------------------------------------------------------------------- */

/* Different keys, some of them neighbours; with `writes` none that must not be written. */
static void churn_multi(struct driver *driver, const struct churn *churn, const struct churn_place *place)
{
    bool writes = random_chance(&driver->random, 0.5);
    uint64_t keys[SUBJECT_MANY_MAX];
    uint64_t key = random_below(&driver->random, churn->keys), step = 1 + random_below(&driver->random, 20);
    size_t wanted = 1 + random_below(&driver->random, SUBJECT_MANY_MAX), count = 0;
    for (size_t i = 0; i < wanted && key < churn->keys; i++, key += step)
        if (!writes || (is_mine(churn, place, key) && !never_there(churn, key)))
            keys[count++] = key;
    driver_many(driver, writes, keys, count);
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
#define PICK(mix) pick(&driver->random, mix, sizeof mix / sizeof mix[0])

static void operate(struct driver *driver, const struct churn *churn, const struct churn_place *place,
                    enum history_kind kind, uint64_t key)
{
    uint64_t expected = 0;
    if (!is_mine(churn, place, key))
        kind = HISTORY_GET;
    if (kind == HISTORY_CAS) {
        if (driver_operate(driver, HISTORY_GET, key, 0))
            return;
        expected = driver->log->ops[driver->log->count - 1].result;
    }
    driver_operate(driver, kind, key, expected);
}

static enum history_kind kind_for(struct driver *driver, const struct churn *churn, uint64_t key)
{
    if (always_there(churn, key))
        return PICK(keeping);
    if (never_there(churn, key))
        return PICK(looking);
    return PICK(anything);
}

/* Behind the window each key is deleted by the task that it belongs to: leaves become empty there. */
static void churn_sweep(struct driver *driver, const struct churn *churn, const struct churn_place *place,
                        unsigned round)
{
    uint64_t quarter = churn->keys / 4, space = churn->keys - quarter - 4;
    uint64_t from = round ? space * 2 * (round - 1) / churn->rounds : 0,
             to = space * 2 * round / churn->rounds;
    for (uint64_t at = from; at < to; at++) {
        uint64_t key = quarter + 4 + (at + space - churn->window) % space;
        if (key % place->tasks == place->task)
            driver_operate(driver, HISTORY_DELETE, key, 0);
    }
}

#define PATCH_KEYS   32u
#define PATCH_ROUNDS 8u
#define PATCHES      4u /* visited several times: later visits reuse the blocks of earlier ones */

/* All tasks are at the same patch at about the same time: its leaves fill, split, empty and leave the index
 * while others are still there. */
static void churn_patch(struct driver *driver, const struct churn *churn, const struct churn_place *place,
                        unsigned round)
{
    uint64_t first = churn->keys / 4 + 4, space = churn->keys - first;
    unsigned phase = round / PATCH_ROUNDS;
    bool filling = phase % 2 == 0;
    uint64_t patch =
        random_mix(churn->seed + phase / 2 % PATCHES) % (space < PATCH_KEYS ? 1 : space - PATCH_KEYS + 1);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t at = ((uint64_t)(round * 2 + i) * place->tasks + place->task) % PATCH_KEYS;
        operate(driver, churn, place, filling ? PICK(growing) : HISTORY_DELETE, first + (patch + at) % space);
    }
}

/* In the part of the key space that changes. (One draw to a statement, here and elsewhere: compilers differ
 * in which of two arguments they evaluate first, and a seed has to be the same run with all of them.) */
static void churn_change(struct driver *driver, const struct churn *churn, const struct churn_place *place,
                         unsigned round)
{
    uint64_t first = churn->keys / 4 + 4, space = churn->keys - first, key;
    if (churn->pattern == CHURN_UNIFORM) {
        key = first + random_below(&driver->random, space);
        operate(driver, churn, place, PICK(anything), key);
    } else if (churn->pattern == CHURN_PATCH) {
        churn_patch(driver, churn, place, round);
    } else if (churn->pattern == CHURN_TIDE) {
        /* Four times in and out, everywhere. */
        bool in = round * 8 / churn->rounds % 2 == 0;
        key = first + random_below(&driver->random, space);
        operate(driver, churn, place, in ? PICK(growing) : PICK(shrinking), key);
    } else {
        /* Twice over the space while the task runs; all tasks are about equally far. */
        uint64_t base = space * 2 * round / churn->rounds;
        uint64_t at = random_below(&driver->random, churn->window * 2);
        operate(driver, churn, place, at >= churn->window ? PICK(growing) : PICK(shrinking),
                first + (base + at) % space);
    }
}

/* Whether this is one of the rounds that are drains: any, but for the last quarter. */
static bool drains_now(const struct churn *churn, const struct churn_place *place, unsigned round)
{
    for (unsigned i = 0; i < churn->drains; i++) {
        const uint64_t dice = random_mix(churn->seed ^ (UINT64_C(0xd4a1) + i));
        if (dice % place->tasks == place->task && dice / place->tasks % (churn->rounds * 3 / 4 + 1) == round)
            return true;
    }
    return false;
}

static void churn_one(struct driver *driver, const struct churn *churn, const struct churn_place *place,
                      unsigned round)
{
    if (churn->drains && drains_now(churn, place, round)) {
        driver_drain(driver, random_next(&driver->random));
        return;
    }
    if (churn->merges && random_below(&driver->random, 100) < churn->merges) {
        driver_merge(driver);
        return;
    }
    if (churn->node_moves && random_below(&driver->random, 100) < churn->node_moves) {
        driver_move_node(driver, random_below(&driver->random, churn->keys));
        return;
    }
    uint64_t quarter = churn->keys / 4, dice = random_below(&driver->random, 100), key;
    if (dice < churn->scans) {
        churn_scan(driver, churn);
        churn_sample(driver, churn);
    } else if (dice < churn->scans + churn->multis) {
        churn_multi(driver, churn, place);
    } else if (dice < churn->scans + churn->multis + churn->hot) {
        key = quarter + random_below(&driver->random, 4);
        operate(driver, churn, place, PICK(anything), key);
    } else if (dice < churn->scans + churn->multis + churn->hot + churn->moves) {
        driver_move(driver, random_below(&driver->random, churn->keys));
    } else if (random_chance(&driver->random, 0.2)) {
        key = random_below(&driver->random, quarter);
        operate(driver, churn, place, kind_for(driver, churn, key), key);
    } else {
        churn_change(driver, churn, place, round);
    }
}

void churn_task(struct driver *driver, const struct churn *churn, const struct churn_place *place)
{
    for (unsigned round = 0; round < churn->rounds && !driver_stopped(driver); round++) {
        if (churn->skip && churn->skip(churn->context, place->task, round))
            continue;
        /* A round does the same, however the rounds before it ended. */
        random_seed(&driver->random, churn->seed ^ random_mix((uint64_t)place->task << 32 | round));
        if (churn->pattern == CHURN_WINDOW)
            churn_sweep(driver, churn, place, round);
        churn_one(driver, churn, place, round);
        if (churn->after)
            churn->after(churn->context, place->task, round);
    }
}

void churn_fill(struct driver *driver, const struct churn *churn)
{
    for (uint64_t key = 0; key < churn->keys / 4 && !driver_stopped(driver); key += 4)
        driver_operate(driver, HISTORY_INSERT, key, 0);
}

void churn_read_all(struct driver *driver, const struct churn *churn)
{
    for (uint64_t key = 0; key < churn->keys && !driver_stopped(driver); key++)
        driver_operate(driver, HISTORY_GET, key, 0);
}
