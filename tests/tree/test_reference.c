/* test_reference.c - random operations on the index and on a sorted array give the same answers, over many
 * geometries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "swarm/reference.h"
#include "swarm/world.h"

struct shape {
    const char *name;
    struct format_geometry geometry;
    unsigned keys; /* how many different keys are drawn from */
    bool long_keys;
};

#define FIXED(key, value, ...)                                                                               \
    {                                                                                                        \
        .key_kind = FORMAT_KEY_FIXED, .key_bytes = (key), .value_bytes = (value), __VA_ARGS__                \
    }
#define VARIABLE(value, ...)                                                                                 \
    {                                                                                                        \
        .key_kind = FORMAT_KEY_VARIABLE, .value_bytes = (value), __VA_ARGS__                                 \
    }

#define UNSORTED .leaf_kind = FORMAT_LEAF_UNSORTED
#define DENSE    .leaf_kind = FORMAT_LEAF_DENSE

static const struct shape shapes[] = {
    {"fixed 8, value 8", FIXED(8, 8, .leaf_bytes = 0), 2000, false},
    {"fixed 8, value 8, leaf 512", FIXED(8, 8, .leaf_bytes = 512, .internal_bytes = 512), 2000, false},
    {"fixed 8, value 0, leaf 512", FIXED(8, 0, .leaf_bytes = 512), 1500, false},
    {"fixed 8, value up to 8", FIXED(8, 8, .value_variable = true), 1500, false},
    {"fixed 9, value 1", FIXED(9, 1, .leaf_bytes = 512), 1500, false},
    {"fixed 16, value 100", FIXED(16, 100, .leaf_bytes = 2048), 1000, false},
    {"fixed 16, value up to 100", FIXED(16, 100, .leaf_bytes = 4096, .value_variable = true), 1000, false},
    {"fixed 33, value 8, leaf 4096", FIXED(33, 8, .leaf_bytes = 4096), 1500, false},
    {"fixed 33, value 255, leaf 16384", FIXED(33, 255, .leaf_bytes = 16384), 1000, false},
    {"fixed 255, value 8, leaf 4096, internal 4096",
     FIXED(255, 8, .leaf_bytes = 4096, .internal_bytes = 4096), 800, false},
    {"fixed 255, value up to 255, leaf 16384, internal 2048",
     FIXED(255, 255, .leaf_bytes = 16384, .internal_bytes = 2048, .value_variable = true), 600, false},
    {"variable, value up to 100", VARIABLE(100, .internal_bytes = 4096, .value_variable = true), 1500, false},
    {"variable up to 60, value 8, leaf 1024, internal 1024",
     VARIABLE(8, .key_bytes = 60, .leaf_bytes = 1024, .internal_bytes = 1024), 1500, false},
    {"variable, value 0, leaf 4096, inline 60", VARIABLE(0, .internal_bytes = 4096, .inline_key_bytes = 60),
     1500, false},
    {"variable up to 60, value 16, leaf 16384", VARIABLE(16, .key_bytes = 60, .leaf_bytes = 16384), 1500,
     false},
    {"long keys, value up to 40", VARIABLE(40, .internal_bytes = 4096, .value_variable = true), 1500, true},
    {"long keys, value 8, leaf 2048, internal 2048, inline 16",
     VARIABLE(8, .leaf_bytes = 2048, .internal_bytes = 2048, .inline_key_bytes = 16), 1000, true},
    {"long keys, value 0, leaf 16384, inline 16",
     VARIABLE(0, .leaf_bytes = 16384, .internal_bytes = 4096, .inline_key_bytes = 16), 2500, true},
    {"long keys, value 255, leaf 8192, inline 100",
     VARIABLE(255, .leaf_bytes = 8192, .internal_bytes = 4096, .inline_key_bytes = 100), 800, true},
    {"fixed 8, value 8, unsorted leaf", FIXED(8, 8, UNSORTED), 2000, false},
    {"fixed 8, value 8, unsorted leaf 512", FIXED(8, 8, .leaf_bytes = 512, .internal_bytes = 512, UNSORTED),
     2000, false},
    {"fixed 8, value 0, unsorted leaf 16384: more slots than a byte counts",
     FIXED(8, 0, .leaf_bytes = 16384, UNSORTED), 3000, false},
    {"fixed 16, value up to 100, unsorted leaf 2048",
     FIXED(16, 100, .leaf_bytes = 2048, .value_variable = true, UNSORTED), 1000, false},
    {"variable up to 60, value 8, unsorted leaf 1024, internal 1024",
     VARIABLE(8, .key_bytes = 60, .leaf_bytes = 1024, .internal_bytes = 1024, UNSORTED), 1500, false},
    {"long keys, value up to 40, unsorted leaf",
     VARIABLE(40, .internal_bytes = 4096, .value_variable = true, UNSORTED), 1500, true},
    {"fixed 8, value 8, dense leaf", FIXED(8, 8, DENSE), 2000, false},
    {"fixed 16, value up to 40, dense leaf 4096",
     FIXED(16, 40, .leaf_bytes = 4096, .value_variable = true, DENSE), 1500, false},
    {"long keys, value up to 17, dense leaf, inline 16: a server's",
     VARIABLE(17, .internal_bytes = 4096, .inline_key_bytes = 16, .value_variable = true, DENSE), 2500, true},
};
#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

struct trial {
    struct world world;
    struct reference reference;
    struct random random;
    const struct shape *shape;
    uint64_t seed;
    unsigned operations, done;
    const char *wrong; /* what differed first */
    char detail[200];
    bool growing;
};

/* ---- keys and values ----------------------------------------------------------------------------- */

/* Up to 255 bytes: any at all, or with a prefix that is longer than a slot's room and shared by many, or by
 * all of a leaf and not by its neighbours. */
static size_t random_long_key(uint64_t number, uint8_t *key)
{
    struct random shape;
    random_seed(&shape, number * 31 + 7);
    size_t length = 1 + random_below(&shape, number % 3 == 0 ? 12 : 255);
    for (size_t i = 0; i < length; i++)
        key[i] = (uint8_t)random_next(&shape);
    size_t shared = number % 4 == 0 ? 0 : number % 4 == 1 ? 40 + number % 5 * 30 : 200;
    uint8_t group = (uint8_t)(number % 4 == 3 ? number / 4 % 20 : 0);
    for (size_t i = 0; i < shared && i < length; i++)
        key[i] = (uint8_t)('a' + group);
    return length;
}

static size_t random_key(struct trial *trial, uint8_t *key)
{
    const struct format_geometry *geometry = &trial->shape->geometry;
    uint64_t number = random_below(&trial->random, trial->shape->keys);
    if (geometry->key_kind == FORMAT_KEY_FIXED) {
        /* Bytes that differ early, late or in the middle, and many that are alike. */
        unsigned length = geometry->key_bytes;
        memset(key, number % 3 == 0 ? 0 : number % 3 == 1 ? 0xff : 'x', length);
        uint64_t mixed = random_mix(number);
        unsigned at = number % 2 ? 0 : length - 8;
        for (unsigned i = 0; i < 8; i++)
            key[at + i] = (uint8_t)((number % 5 == 0 ? number : mixed) >> (56 - 8 * i));
        return length;
    }
    if (trial->shape->long_keys)
        return random_long_key(number, key);
    struct random shape;
    random_seed(&shape, number * 31 + 7);
    static const char *const prefixes[] = {"", "a", "user/profile/", "user/profile/picture-of-", "zz"};
    const char *prefix = prefixes[random_below(&shape, 5)];
    size_t length = strlen(prefix);
    memcpy(key, prefix, length);
    size_t rest = 1 + random_below(&shape, number % 7 == 0 ? 60 - length : 12);
    for (size_t i = 0; i < rest; i++)
        key[length++] =
            (uint8_t)(number % 4 == 0 ? random_below(&shape, 256) : 'a' + random_below(&shape, 4));
    return length;
}

static size_t random_value(struct trial *trial, uint8_t *value)
{
    size_t length = trial->world.options.geometry.value_bytes;
    if (trial->world.options.geometry.value_variable)
        length = random_below(&trial->random, length + 1);
    for (size_t i = 0; i < length; i++)
        value[i] = (uint8_t)random_next(&trial->random);
    return length;
}

static bool wrong(struct trial *trial, const char *what, int status)
{
    if (trial->wrong)
        return true;
    trial->wrong = what;
    snprintf(trial->detail, sizeof trial->detail, "operation %u, status %d: %.120s", trial->done, status,
             tree_session_error(trial->world.tasks[0].session)->text);
    return true;
}

/* ---- single keys --------------------------------------------------------------------------------- */

struct change {
    struct trial *trial;
    const struct reference_entry *expected;
    enum tree_verdict verdict;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length;
    bool differs;
};

static enum tree_verdict change(void *context, const void *old, size_t old_length, void *value,
                                size_t *length)
{
    struct change *c = context;
    c->differs = (old != NULL) != (c->expected != NULL) ||
                 (old && (old_length != c->expected->value_length ||
                          memcmp(old, reference_value(c->expected), old_length) != 0));
    if (c->verdict == TREE_PUT) {
        if (c->length)
            memcpy(value, c->value, c->length);
        *length = c->length;
    }
    return c->verdict;
}

static void try_modify(struct trial *trial, const uint8_t *key, size_t length)
{
    struct world_task *task = &trial->world.tasks[0];
    struct change c = {.trial = trial, .expected = reference_find(&trial->reference, key, length)};
    c.verdict = (enum tree_verdict)random_below(&trial->random, 3);
    c.length = random_value(trial, c.value);
    int status = tree_modify(task->session, task->tree, key, length, change, &c);
    /* Deleting what does not exist may be told either way. */
    if (status && !(status == BANYAN_ENOTFOUND && !c.expected && c.verdict == TREE_DELETE))
        wrong(trial, "modify", status);
    else if (c.differs)
        wrong(trial, "modify was shown another value", status);
    if (c.verdict == TREE_PUT)
        reference_put(&trial->reference, key, length, c.value, c.length);
    else if (c.verdict == TREE_DELETE)
        reference_remove(&trial->reference, key, length);
}

static void try_compare_and_set(struct trial *trial, const uint8_t *key, size_t length)
{
    struct world_task *task = &trial->world.tasks[0];
    const struct reference_entry *entry = reference_find(&trial->reference, key, length);
    uint8_t old[FORMAT_VALUE_MAX], value[FORMAT_VALUE_MAX];
    size_t old_length = random_value(trial, old), value_length = random_value(trial, value);
    if (entry && random_chance(&trial->random, 0.6)) {
        old_length = entry->value_length;
        memcpy(old, reference_value(entry), old_length);
    }
    bool same =
        entry && old_length == entry->value_length && memcmp(old, reference_value(entry), old_length) == 0;
    int expected = !entry ? BANYAN_ENOTFOUND : same ? 0 : BANYAN_ECONFLICT;
    int status =
        tree_compare_and_set(task->session, task->tree, key, length, old, old_length, value, value_length);
    if (status != expected)
        wrong(trial, "compare and set", status);
    if (!expected && !status)
        reference_put(&trial->reference, key, length, value, value_length);
}

static void try_lookup(struct trial *trial, const uint8_t *key, size_t length)
{
    struct world_task *task = &trial->world.tasks[0];
    const struct reference_entry *entry = reference_find(&trial->reference, key, length);
    uint8_t value[FORMAT_VALUE_MAX];
    size_t value_length = sizeof value;
    int status = tree_lookup(task->session, task->tree, key, length, value, &value_length);
    if (status != (entry ? 0 : BANYAN_ENOTFOUND))
        wrong(trial, "lookup", status);
    else if (entry &&
             (value_length != entry->value_length || memcmp(value, reference_value(entry), value_length)))
        wrong(trial, "lookup's value", status);
    if (entry && entry->value_length > 0) {
        value_length = entry->value_length - 1;
        status = tree_lookup(task->session, task->tree, key, length, value, &value_length);
        if (status != BANYAN_EVALUESIZE)
            wrong(trial, "lookup into too small a buffer", status);
    }
}

static void try_write(struct trial *trial, const uint8_t *key, size_t length, unsigned kind)
{
    struct world_task *task = &trial->world.tasks[0];
    bool exists = reference_find(&trial->reference, key, length) != NULL;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t value_length = random_value(trial, value);
    int status, expected = 0;
    if (kind == 0) {
        expected = exists ? BANYAN_EEXIST : 0;
        status = tree_insert(task->session, task->tree, key, length, value, value_length);
    } else if (kind == 1) {
        expected = exists ? 0 : BANYAN_ENOTFOUND;
        status = tree_update(task->session, task->tree, key, length, value, value_length);
    } else {
        status = tree_upsert(task->session, task->tree, key, length, value, value_length);
    }
    if (status != expected)
        wrong(trial, kind == 0 ? "insert" : kind == 1 ? "update" : "upsert", status);
    if (!expected)
        reference_put(&trial->reference, key, length, value, value_length);
}

static void try_delete(struct trial *trial, const uint8_t *key, size_t length)
{
    struct world_task *task = &trial->world.tasks[0];
    bool existed = reference_remove(&trial->reference, key, length);
    int status = tree_delete(task->session, task->tree, key, length);
    if (status != (existed ? 0 : BANYAN_ENOTFOUND))
        wrong(trial, "delete", status);
}

/* ---- many keys ----------------------------------------------------------------------------------- */

#define MANY 24

static void try_multi_get(struct trial *trial)
{
    struct world_task *task = &trial->world.tasks[0];
    static uint8_t keys[MANY][FORMAT_KEY_MAX], values[MANY][FORMAT_VALUE_MAX];
    struct tree_item items[MANY];
    size_t count = random_below(&trial->random, MANY + 1);
    for (size_t i = 0; i < count; i++)
        items[i] = (struct tree_item){.key = keys[i],
                                      .key_length = random_key(trial, keys[i]),
                                      .value = values[i],
                                      .length = FORMAT_VALUE_MAX,
                                      .status = 99};
    int status = tree_multi_get(task->session, task->tree, items, count);
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        const struct reference_entry *entry =
            reference_find(&trial->reference, items[i].key, items[i].key_length);
        all = all && entry;
        if (items[i].status != (entry ? 0 : BANYAN_ENOTFOUND))
            wrong(trial, "multi_get", items[i].status);
        else if (entry && (items[i].length != entry->value_length ||
                           memcmp(values[i], reference_value(entry), entry->value_length)))
            wrong(trial, "multi_get's value", items[i].status);
    }
    if (status && (all || status != BANYAN_ENOTFOUND))
        wrong(trial, "multi_get as a whole", status);
}

static void try_multi_put(struct trial *trial)
{
    struct world_task *task = &trial->world.tasks[0];
    static uint8_t keys[MANY][FORMAT_KEY_MAX], values[MANY][FORMAT_VALUE_MAX];
    struct tree_item items[MANY];
    size_t count = 0, wanted = random_below(&trial->random, MANY + 1);
    for (size_t i = 0; i < wanted; i++) {
        size_t length = random_key(trial, keys[count]);
        bool twice = false; /* of one key twice in a call the order is not promised */
        for (size_t j = 0; j < count; j++)
            twice = twice || reference_compare(keys[j], items[j].key_length, keys[count], length) == 0;
        if (twice)
            continue;
        items[count] = (struct tree_item){
            .key = keys[count], .key_length = length, .value = values[count], .status = 99};
        items[count].length = random_value(trial, values[count]);
        count++;
    }
    tree_multi_put(task->session, task->tree, items, count);
    for (size_t i = 0; i < count; i++) {
        if (items[i].status == 0)
            reference_put(&trial->reference, items[i].key, items[i].key_length, items[i].value,
                          items[i].length);
        else
            wrong(trial, "multi_put", items[i].status);
    }
}

struct scan {
    struct trial *trial;
    size_t at, step; /* next expected entry; step: +1 or -1 */
    uint64_t seen, stop_after;
};

static bool visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scan *scan = context;
    const struct reference *reference = &scan->trial->reference;
    scan->seen++;
    if (scan->at >= reference->count) {
        wrong(scan->trial, "scan: more than there is", 0);
        return false;
    }
    const struct reference_entry *entry = reference->entries[scan->at];
    if (reference_compare(entry->bytes, entry->key_length, key, key_length) != 0) {
        wrong(scan->trial, "scan: another key", 0);
        return false;
    }
    if (length != entry->value_length || (length && memcmp(value, reference_value(entry), length) != 0))
        wrong(scan->trial, "scan: another value", 0);
    scan->at += scan->step;
    return scan->seen != scan->stop_after;
}

/* Bounds need not be keys: cut short, made longer, or any bytes at all. */
static size_t random_bound(struct trial *trial, uint8_t *bound)
{
    size_t length = random_key(trial, bound);
    uint64_t dice = random_below(&trial->random, 10);
    if (dice == 0)
        length = random_below(&trial->random, length + 1);
    while (dice == 1 && length < FORMAT_KEY_MAX && random_chance(&trial->random, 0.7))
        bound[length++] = (uint8_t)random_next(&trial->random);
    if (dice == 2) {
        length = random_below(&trial->random, 12);
        for (size_t i = 0; i < length; i++)
            bound[i] = (uint8_t)random_next(&trial->random);
    }
    return length;
}

static void try_scan(struct trial *trial)
{
    struct world_task *task = &trial->world.tasks[0];
    uint8_t from[FORMAT_KEY_MAX], to[FORMAT_KEY_MAX];
    struct tree_range range = {0};
    if (random_chance(&trial->random, 0.8)) {
        range.from = from;
        range.from_length = random_bound(trial, from);
        range.from_open = random_chance(&trial->random, 0.5);
    }
    if (random_chance(&trial->random, 0.6)) {
        range.to = to;
        range.to_length = random_bound(trial, to);
        range.to_open = random_chance(&trial->random, 0.5);
    }
    range.reverse = random_chance(&trial->random, 0.5);
    range.limit = random_chance(&trial->random, 0.5) ? 1 + random_below(&trial->random, 150) : 0;
    const struct reference *reference = &trial->reference;
    size_t low = range.from ? reference_place(reference, from, range.from_length, range.from_open) : 0;
    size_t high =
        range.to ? reference_place(reference, to, range.to_length, !range.to_open) : reference->count;
    uint64_t expected = high > low ? high - low : 0;
    struct scan scan = {trial, range.reverse ? high - 1 : low, range.reverse ? (size_t)-1 : 1, 0, UINT64_MAX};
    if (random_chance(&trial->random, 0.2))
        scan.stop_after = 1 + random_below(&trial->random, 50);
    if (range.limit && expected > range.limit)
        expected = range.limit;
    if (expected > scan.stop_after)
        expected = scan.stop_after;
    int status = tree_scan(task->session, task->tree, &range, visit, &scan);
    if (status)
        wrong(trial, "scan", status);
    if (scan.seen != expected && !wrong(trial, "scan: another number of entries", 0))
        return;
}

/* ---- one trial ----------------------------------------------------------------------------------- */

static void operate(struct world_task *task)
{
    struct trial *trial = task->world->context;
    uint8_t key[FORMAT_KEY_MAX];
    for (trial->done = 0; trial->done < trial->operations && !trial->wrong; trial->done++) {
        size_t length = random_key(trial, key);
        if (trial->done % 700 == 0)
            trial->growing = !trial->growing; /* so that leaves split, and empty again */
        uint64_t dice = random_below(&trial->random, 100);
        if (dice < 25)
            try_lookup(trial, key, length);
        else if (dice < 75 && random_chance(&trial->random, trial->growing ? 0.75 : 0.2))
            try_write(trial, key, length, (unsigned)random_below(&trial->random, 3));
        else if (dice < 75)
            try_delete(trial, key, length);
        else if (dice < 82)
            try_modify(trial, key, length);
        else if (dice < 88)
            try_compare_and_set(trial, key, length);
        else if (dice < 92)
            try_multi_get(trial);
        else if (dice < 94 && trial->growing)
            try_multi_put(trial);
        else if (dice >= 96)
            try_scan(trial);
    }
}

static void delete_all(struct world_task *task)
{
    struct trial *trial = task->world->context;
    while (trial->reference.count && !trial->wrong) {
        uint8_t key[FORMAT_KEY_MAX];
        const struct reference_entry *entry =
            trial->reference.entries[random_below(&trial->random, trial->reference.count)];
        size_t length = entry->key_length;
        memcpy(key, entry->bytes, length);
        try_delete(trial, key, length);
    }
}

struct stream {
    struct trial *trial;
    size_t at, end;
};

static bool stream_next(void *context, const void **key, size_t *key_length, const void **value,
                        size_t *length)
{
    struct stream *stream = context;
    if (stream->at == stream->end)
        return false;
    const struct reference_entry *entry = stream->trial->reference.entries[stream->at++];
    *key = entry->bytes;
    *key_length = entry->key_length;
    *value = reference_value(entry);
    *length = entry->value_length;
    return true;
}

/* Loads what random keys make, in one to four parts. */
static void bulk_load(struct world_task *task)
{
    struct trial *trial = task->world->context;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    uint64_t entries = random_below(&trial->random, trial->shape->keys);
    unsigned parts = 1 + (unsigned)random_below(&trial->random, 4);
    while (entries--) {
        size_t length = random_key(trial, key);
        reference_put(&trial->reference, key, length, value, random_value(trial, value));
    }
    struct error error = {0};
    struct tree_bulk *bulk = NULL;
    int status = tree_bulk_begin(&bulk, task->tree, parts, 0.5 + random_unit(&trial->random) / 2, &error);
    for (unsigned part = 0; part < parts && !status; part++) {
        struct stream stream = {trial, trial->reference.count * part / parts,
                                trial->reference.count * (part + 1) / parts};
        status = tree_bulk_part(task->session, bulk, part, stream_next, &stream);
    }
    int finished = bulk ? tree_bulk_finish(task->session, bulk) : 0;
    if (status || finished)
        wrong(trial, "bulk load", status ? status : finished);
}

static bool check(struct trial *trial)
{
    struct tree_check_report report = {0};
    if (world_check(&trial->world, &report))
        return false;
    if (report.entries != trial->reference.count) {
        snprintf(trial->detail, sizeof trial->detail, "check counts %" PRIu64 " entries instead of %zu",
                 report.entries, trial->reference.count);
        trial->wrong = "check";
    }
    if (trial->reference.count > 100 && trial->shape->long_keys && !report.key_blocks) {
        trial->wrong = "check";
        snprintf(trial->detail, sizeof trial->detail, "check counts no key blocks");
    }
    if (report.dead || report.marked || report.missing_parents) {
        trial->wrong = "check: something unfinished, though no session died";
        snprintf(trial->detail, sizeof trial->detail,
                 "%" PRIu64 " dead, %" PRIu64 " marked, %" PRIu64 " without parent", report.dead,
                 report.marked, report.missing_parents);
    }
    return !trial->wrong;
}

static void trial_run_as(const struct shape *shape, uint64_t seed, unsigned operations, const char *preset,
                         bool owned, enum tree_cache_policy policy)
{
    struct trial trial = {.shape = shape, .seed = seed, .operations = operations};
    struct world_options options;
    world_options_default(&options);
    options.geometry = shape->geometry;
    options.preset = preset;
    options.owned = owned;
    options.cache_policy = policy;
    options.memory_nodes = 1 + (unsigned)(seed % 3);
    if (seed % 4 == 0)
        options.cache_bytes = 16384;
    random_seed(&trial.random, seed);
    int status = world_create(&trial.world, &options);
    trial.world.context = &trial;
    if (!status && seed % 2)
        status = world_run_one(&trial.world, 0, bulk_load);
    if (!status && !trial.wrong)
        status = world_run_one(&trial.world, 0, operate);
    bool good = !status && !trial.wrong && check(&trial);
    if (good) {
        world_run_one(&trial.world, 0, delete_all);
        good = !trial.wrong && check(&trial);
    }
    struct error error = trial.world.error;
    world_destroy(&trial.world);
    reference_free(&trial.reference);
    if (!good)
        fail_msg("%s, %s: %s (%s) %s; replay: BANYAN_SEED=%" PRIu64 " test_reference", shape->name, preset,
                 trial.wrong ? trial.wrong : "world", trial.detail, error.text, seed);
}

static void trial_run(const struct shape *shape, uint64_t seed, unsigned operations, const char *preset)
{
    trial_run_as(shape, seed, operations, preset, false, TREE_CACHE_INNER);
}

/* Fewer where the rounds are scaled down: one operation may take an emulated NIC long. */
static unsigned operations(unsigned given)
{
    unsigned scaled = world_rounds(given);
    return scaled > given ? given : scaled < given / 12 ? given / 12 : scaled;
}

static void agrees_with_the_reference(void **state)
{
    for (unsigned i = 0; i < SHAPE_COUNT; i++)
        for (unsigned round = 0; round < world_rounds(3); round++)
            trial_run(&shapes[i], world_seed(i * 100 + round + 1), operations(6000), "banyan");
}

static void agrees_under_every_preset(void **state)
{
    for (unsigned preset = 0; tree_switches_presets[preset]; preset++) {
        trial_run(&shapes[1], world_seed(1000 + preset), operations(6000), tree_switches_presets[preset]);
        trial_run(&shapes[12], world_seed(1100 + preset), operations(6000), tree_switches_presets[preset]);
    }
}

/* The compute node owns the index: no global locks for leaves. */
static void agrees_when_owned(void **state)
{
    for (unsigned i = 0; i < SHAPE_COUNT; i++)
        trial_run_as(&shapes[i], world_seed(i * 100 + 51), operations(6000), "banyan", true,
                     TREE_CACHE_INNER);
    for (unsigned preset = 0; tree_switches_presets[preset]; preset++)
        trial_run_as(&shapes[12], world_seed(1200 + preset), operations(6000), tree_switches_presets[preset],
                     true, TREE_CACHE_INNER);
}

/* ... and caches leaves and entries of it; for some seeds in so few bytes that all of it goes and comes. */
static void agrees_when_cached(void **state)
{
    for (int policy = TREE_CACHE_DEX; policy <= TREE_CACHE_BANYAN; policy++)
        for (unsigned i = 0; i < SHAPE_COUNT; i++)
            trial_run_as(&shapes[i], world_seed(i * 100 + 51 + (unsigned)policy), operations(4000), "banyan",
                         true, (enum tree_cache_policy)policy);
}

static void agrees_for_fresh_seeds(void **state)
{
    for (unsigned round = 0; round < world_rounds(4); round++) {
        uint64_t seed = world_fresh_seed() + round * 1000;
        trial_run(&shapes[seed % SHAPE_COUNT], seed, operations(6000), "banyan");
    }
}

/* ---- space
 * ----------------------------------------------------------------------------------------------------------
 */

static void fill_and_empty(struct world_task *task)
{
    struct world *world = task->world;
    uint64_t keys = operations(3000);
    for (unsigned descending = 0; descending < 2; descending++) {
        for (uint64_t i = 0; i < keys && !world->error.code; i++)
            world_operate(task, HISTORY_INSERT, i, 0);
        for (uint64_t i = 0; i < keys && !world->error.code; i++)
            world_operate(task, HISTORY_DELETE, descending ? keys - 1 - i : i, 0);
    }
}

static void reuses_space(void **state)
{
    struct world world;
    struct world_options options;
    world_options_default(&options);
    options.geometry.leaf_bytes = 512;
    options.memory_nodes = 2;
    int status = world_create(&world, &options);
    uint64_t first = 0;
    for (unsigned round = 0; round < 6 && !status; round++) {
        status = world_run_one(&world, 0, fill_and_empty);
        struct tree_check_report report = {0};
        status = status ? status : world_check(&world, &report);
        if (!status && report.entries)
            status = world_fail(&world, BANYAN_ECORRUPT, "%" PRIu64 " entries are left", report.entries);
        if (round == 1)
            first = world_pool_used(&world);
        if (!status && round > 1 && world_pool_used(&world) > first)
            status = world_fail(&world, BANYAN_ENOSPC, "the pool grew from %" PRIu64 " to %" PRIu64 " bytes",
                                first, world_pool_used(&world));
    }
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference), cmocka_unit_test(agrees_under_every_preset),
        cmocka_unit_test(agrees_when_owned),         cmocka_unit_test(agrees_when_cached),
        cmocka_unit_test(agrees_for_fresh_seeds),    cmocka_unit_test(reuses_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
