/*
 * fuzz_tree.c - the index's whole interface against a sorted array, on a simulated cluster. The input chooses
 * geometry, switches, sizes of the cache and the number of memory and compute nodes, and then operation after
 * operation; the two compute nodes take turns, so that each meets what the other has changed behind its
 * cache.
 *
 * Oracle: every operation's result is the reference's; allocations that are refused change nothing; at the
 * end (and wherever the input asks for it) a scan shows what the reference holds, tree_check finds nothing
 * and the memory is accounted for to the block.
 */
#include "fuzz/fuzz_keys.h"
#include "swarm/world.h"

#define MANY        16u
#define RUN_MOST    64u
#define OPERATIONS  3000u /* of one input */
#define ENTRIES_MAX 6000u

struct trial {
    struct world world;
    struct reference reference;
    struct fuzz_input input;
    struct fuzz_keys keys;
    struct world_task *task; /* of the compute node whose turn it is */
    unsigned operations;
    uint8_t counter; /* makes values differ */
    bool refused;    /* allocations may fail */
};

/* ---- keys and values ---- */

static void take_key(struct trial *trial, struct fuzz_key *key)
{
    fuzz_take_key(&trial->input, &trial->keys, &trial->reference, key);
}

static size_t make_value(struct trial *trial, uint8_t value[FUZZ_KEY_ROOM])
{
    const struct format_geometry *geometry = &trial->world.options.geometry;
    size_t length = geometry->value_bytes;
    uint8_t how = fuzz_byte(&trial->input);
    if (geometry->value_variable)
        length = how % (length + 1);
    memset(value, ++trial->counter, FUZZ_KEY_ROOM);
    if (how == 255)
        length++; /* too long */
    return length;
}

static bool value_fits(const struct trial *trial, size_t length)
{
    const struct format_geometry *geometry = &trial->world.options.geometry;
    return geometry->value_variable ? length <= geometry->value_bytes : length == geometry->value_bytes;
}

static void judge(struct trial *trial, const char *what, int status, int expected)
{
    fuzz_must(status == expected, "operation %u, %s: status %d instead of %d (%s)", trial->operations, what,
              status, expected, tree_session_error(trial->task->session)->text);
}

/* Of a write that may need room: true if it was done. */
static bool judge_write(struct trial *trial, const char *what, int status, int expected)
{
    if (trial->refused && status == BANYAN_ENOSPC)
        return false;
    judge(trial, what, status, expected);
    return !status;
}

static bool same(const struct reference_entry *entry, const void *value, size_t length)
{
    return length == entry->value_length && (!length || !memcmp(value, reference_value(entry), length));
}

/* ---- one key ---- */

static void do_lookup(struct trial *trial)
{
    struct fuzz_key key;
    take_key(trial, &key);
    const struct reference_entry *entry = reference_find(&trial->reference, key.bytes, key.length);
    size_t length = fuzz_byte(&trial->input) % 4 ? FORMAT_VALUE_MAX : 3;
    bool small = entry && entry->value_length > length;
    uint8_t *value = malloc(length); /* of its very size */
    int expected = !fuzz_key_fits(&trial->keys, &key) ? BANYAN_EKEYSIZE
                   : !entry                           ? BANYAN_ENOTFOUND
                   : small                            ? BANYAN_EVALUESIZE
                                                      : 0;
    int status = tree_lookup(trial->task->session, trial->task->tree, key.bytes, key.length, value, &length);
    judge(trial, "lookup", status, expected);
    fuzz_must(status || same(entry, value, length), "operation %u, lookup: another value", trial->operations);
    free(value);
}

enum write { INSERT, UPDATE, UPSERT };

static void write_one(struct trial *trial, const struct fuzz_key *key, enum write kind)
{
    static int (*const functions[])(struct tree_session *, struct tree *, const void *, size_t, const void *,
                                    size_t) = {tree_insert, tree_update, tree_upsert};
    uint8_t value[FUZZ_KEY_ROOM];
    size_t length = make_value(trial, value);
    bool exists = reference_find(&trial->reference, key->bytes, key->length) != NULL;
    int expected = !fuzz_key_fits(&trial->keys, key) ? BANYAN_EKEYSIZE
                   : !value_fits(trial, length)      ? BANYAN_EVALUESIZE
                   : kind == INSERT && exists        ? BANYAN_EEXIST
                   : kind == UPDATE && !exists       ? BANYAN_ENOTFOUND
                                                     : 0;
    int status =
        functions[kind](trial->task->session, trial->task->tree, key->bytes, key->length, value, length);
    if (expected == BANYAN_EKEYSIZE && status == BANYAN_EVALUESIZE && !value_fits(trial, length))
        return; /* either may be told */
    if (judge_write(trial, "write", status, expected))
        reference_put(&trial->reference, key->bytes, key->length, value, length);
}

static void do_write(struct trial *trial, enum write kind)
{
    struct fuzz_key key;
    take_key(trial, &key);
    write_one(trial, &key, kind);
}

static void delete_one(struct trial *trial, const struct fuzz_key *key)
{
    bool existed = reference_remove(&trial->reference, key->bytes, key->length);
    int expected = !fuzz_key_fits(&trial->keys, key) ? BANYAN_EKEYSIZE : existed ? 0 : BANYAN_ENOTFOUND;
    judge(trial, "delete", tree_delete(trial->task->session, trial->task->tree, key->bytes, key->length),
          expected);
}

static void do_delete(struct trial *trial)
{
    struct fuzz_key key;
    take_key(trial, &key);
    delete_one(trial, &key);
}

/* So that leaves are split, and empty again. */
static void do_run(struct trial *trial, bool delete)
{
    uint8_t prefix = fuzz_byte(&trial->input), shared = fuzz_byte(&trial->input);
    uint16_t number = fuzz_u16(&trial->input);
    uint8_t steps = fuzz_byte(&trial->input), count = fuzz_byte(&trial->input);
    int step = (int)(steps % 32) - 16;
    for (unsigned i = 0; i < count % RUN_MOST && trial->reference.count < ENTRIES_MAX; i++) {
        struct fuzz_key key;
        fuzz_key_number(&trial->keys, &key, prefix, shared, (uint32_t)(number + (int)i * step));
        if (delete)
            delete_one(trial, &key);
        else
            write_one(trial, &key, UPSERT);
    }
}

static void do_compare_and_set(struct trial *trial)
{
    struct fuzz_key key;
    uint8_t old[FUZZ_KEY_ROOM], value[FUZZ_KEY_ROOM];
    take_key(trial, &key);
    size_t old_length = make_value(trial, old), length = make_value(trial, value);
    const struct reference_entry *entry = reference_find(&trial->reference, key.bytes, key.length);
    if (entry && fuzz_byte(&trial->input) % 4) {
        old_length = entry->value_length;
        memcpy(old, reference_value(entry), old_length);
    }
    int status = tree_compare_and_set(trial->task->session, trial->task->tree, key.bytes, key.length, old,
                                      old_length, value, length);
    if (status == BANYAN_EVALUESIZE)
        fuzz_must(!value_fits(trial, length) || !value_fits(trial, old_length),
                  "compare and set: refused a possible value");
    else if (!fuzz_key_fits(&trial->keys, &key))
        judge(trial, "compare and set", status, BANYAN_EKEYSIZE);
    else if (!value_fits(trial, length))
        judge(trial, "compare and set", status, BANYAN_EVALUESIZE);
    else if (judge_write(trial, "compare and set", status,
                         !entry                         ? BANYAN_ENOTFOUND
                         : same(entry, old, old_length) ? 0
                                                        : BANYAN_ECONFLICT))
        reference_put(&trial->reference, key.bytes, key.length, value, length);
}

struct change {
    const struct reference_entry *entry;
    enum tree_verdict verdict;
    uint8_t value[FUZZ_KEY_ROOM];
    size_t length;
    bool differs;
};

static enum tree_verdict change(void *context, const void *old, size_t old_length, void *value,
                                size_t *length)
{
    struct change *change = context;
    change->differs |=
        (old != NULL) != (change->entry != NULL) || (old && !same(change->entry, old, old_length));
    if (change->verdict == TREE_PUT) {
        memcpy(value, change->value, change->length);
        *length = change->length;
    }
    return change->verdict;
}

static void do_modify(struct trial *trial)
{
    struct fuzz_key key;
    struct change context = {.verdict = (enum tree_verdict)(fuzz_byte(&trial->input) % 3)};
    take_key(trial, &key);
    context.length = make_value(trial, context.value);
    if (!value_fits(trial, context.length))
        context.length = trial->world.options.geometry.value_bytes;
    context.entry = reference_find(&trial->reference, key.bytes, key.length);
    int status =
        tree_modify(trial->task->session, trial->task->tree, key.bytes, key.length, change, &context);
    fuzz_must(!context.differs, "operation %u, modify: was shown another value", trial->operations);
    if (!fuzz_key_fits(&trial->keys, &key))
        judge(trial, "modify", status, BANYAN_EKEYSIZE);
    else if (context.verdict == TREE_DELETE && !context.entry)
        fuzz_must(!status || status == BANYAN_ENOTFOUND, "modify: status %d", status);
    else if (judge_write(trial, "modify", status, 0) && context.verdict == TREE_PUT)
        reference_put(&trial->reference, key.bytes, key.length, context.value, context.length);
    else if (!status && context.verdict == TREE_DELETE)
        reference_remove(&trial->reference, key.bytes, key.length);
}

/* ---- many keys ---- */

struct many {
    struct fuzz_key keys[MANY];
    uint8_t values[MANY][FUZZ_KEY_ROOM], old[MANY][FORMAT_VALUE_MAX];
    struct tree_item items[MANY];
    size_t count;
};

static void take_many(struct trial *trial, struct many *many)
{
    many->count = fuzz_byte(&trial->input) % (MANY + 1);
    for (size_t i = 0; i < many->count; i++) {
        take_key(trial, &many->keys[i]);
        if (!fuzz_key_fits(&trial->keys, &many->keys[i])) /* arguments are judged one by one elsewhere */
            fuzz_key_number(&trial->keys, &many->keys[i], 'm', 0, (uint32_t)i);
        many->items[i] = (struct tree_item){.key = many->keys[i].bytes,
                                            .key_length = many->keys[i].length,
                                            .value = many->values[i],
                                            .length = FORMAT_VALUE_MAX,
                                            .status = 99};
    }
}

static void do_multi_get(struct trial *trial)
{
    struct many *many = calloc(1, sizeof *many);
    take_many(trial, many);
    int worst = 0, status = tree_multi_get(trial->task->session, trial->task->tree, many->items, many->count);
    for (size_t i = 0; i < many->count; i++) {
        const struct tree_item *item = &many->items[i];
        const struct reference_entry *entry = reference_find(&trial->reference, item->key, item->key_length);
        judge(trial, "multi_get", item->status, entry ? 0 : BANYAN_ENOTFOUND);
        fuzz_must(item->status || same(entry, item->value, item->length), "multi_get: another value");
        worst = worst ? worst : item->status;
    }
    fuzz_must(status == worst || (!status && worst == BANYAN_ENOTFOUND), "multi_get: status %d", status);
    free(many);
}

static void do_multi_put(struct trial *trial)
{
    struct many *many = calloc(1, sizeof *many);
    bool want_old = fuzz_byte(&trial->input) % 2;
    take_many(trial, many);
    for (size_t i = 0; i < many->count; i++) {
        struct tree_item *item = &many->items[i];
        item->length = make_value(trial, many->values[i]);
        if (!value_fits(trial, item->length))
            item->length = trial->world.options.geometry.value_bytes;
        item->old = want_old ? many->old[i] : NULL;
    }
    tree_multi_put(trial->task->session, trial->task->tree, many->items, many->count);
    for (size_t i = 0; i < many->count; i++) {
        const struct tree_item *item = &many->items[i];
        const struct reference_entry *entry = reference_find(&trial->reference, item->key, item->key_length);
        if (!judge_write(trial, "multi_put", item->status, 0))
            continue;
        fuzz_must(!want_old || (item->existed == (entry != NULL) &&
                                (!entry || same(entry, item->old, item->old_length))),
                  "operation %u, multi_put %zu: another old value", trial->operations, i);
        reference_put(&trial->reference, item->key, item->key_length, item->value, item->length);
    }
    free(many);
}

/* ---- ranges ---- */

struct scan {
    struct trial *trial;
    size_t at, step; /* the next expected entry; step: +1 or -1 */
    uint64_t seen, stop_after;
};

static bool visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scan *scan = context;
    const struct reference *reference = &scan->trial->reference;
    fuzz_must(scan->at < reference->count, "scan: more than there is");
    const struct reference_entry *entry = reference->entries[scan->at];
    fuzz_must(!reference_compare(entry->bytes, entry->key_length, key, key_length),
              "operation %u, scan: another key at place %zu", scan->trial->operations, scan->at);
    fuzz_must(same(entry, value, length), "scan: another value");
    scan->at += scan->step;
    return ++scan->seen != scan->stop_after;
}

static void scan_range(struct trial *trial, const struct tree_range *range, uint64_t stop_after)
{
    const struct reference *reference = &trial->reference;
    size_t low =
        range->from ? reference_place(reference, range->from, range->from_length, range->from_open) : 0;
    size_t high = range->to ? reference_place(reference, range->to, range->to_length, !range->to_open)
                            : reference->count;
    uint64_t expected = high > low ? high - low : 0;
    struct scan scan = {trial, range->reverse ? high - 1 : low, range->reverse ? SIZE_MAX : 1, 0, stop_after};
    expected = range->limit && expected > range->limit ? range->limit : expected;
    expected = expected > stop_after ? stop_after : expected;
    bool possible = (!range->from || range->from_length <= FORMAT_KEY_MAX) &&
                    (!range->to || range->to_length <= FORMAT_KEY_MAX);
    int status = tree_scan(trial->task->session, trial->task->tree, range, visit, &scan);
    judge(trial, "scan", status, possible ? 0 : BANYAN_EKEYSIZE);
    fuzz_must(!possible || scan.seen == expected, "operation %u, scan: %llu entries instead of %llu",
              trial->operations, (unsigned long long)scan.seen, (unsigned long long)expected);
}

static void do_scan(struct trial *trial)
{
    uint8_t how = fuzz_byte(&trial->input), limit = fuzz_byte(&trial->input);
    struct fuzz_key from, to;
    struct tree_range range = {
        .from_open = how & 1, .to_open = how & 2, .reverse = how & 4, .limit = how & 8 ? limit : 0};
    if (how & 16) {
        take_key(trial, &from);
        range.from = from.bytes;
        range.from_length = from.length;
    }
    if (how & 32) {
        take_key(trial, &to);
        range.to = to.bytes;
        range.to_length = to.length;
    }
    scan_range(trial, &range, how & 64 && limit ? limit : UINT64_MAX);
}

static void do_sample(struct trial *trial)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    int status = tree_sample(trial->task->session, trial->task->tree, key, &length);
    if (status == BANYAN_ENOTFOUND) /* also where it is so sparse that none is met */
        return;
    judge(trial, "sample", status, 0);
    fuzz_must(reference_find(&trial->reference, key, length), "sample: a key that is not there");
}

/* ---- the whole index ---- */

struct stream {
    const struct reference *reference;
    size_t at, end;
};

static bool stream_next(void *context, const void **key, size_t *key_length, const void **value,
                        size_t *length)
{
    struct stream *stream = context;
    if (stream->at == stream->end)
        return false;
    const struct reference_entry *entry = stream->reference->entries[stream->at++];
    *key = entry->bytes;
    *key_length = entry->key_length;
    *value = reference_value(entry);
    *length = entry->value_length;
    return true;
}

static void load(struct trial *trial, const struct reference *entries, unsigned parts, double fill)
{
    struct error error = {0};
    struct tree_bulk *bulk = NULL;
    int status = tree_bulk_begin(&bulk, trial->task->tree, parts, fill, &error);
    fuzz_must(!status, "bulk load: %s", error.text);
    for (unsigned part = 0; part < parts && !status; part++) {
        struct stream stream = {entries, entries->count * part / parts, entries->count * (part + 1) / parts};
        status = tree_bulk_part(trial->task->session, bulk, part, stream_next, &stream);
    }
    int finished = tree_bulk_finish(trial->task->session, bulk);
    status = status ? status : finished;
    if (!entries->count) { /* nothing is done, whatever there is */
        judge(trial, "bulk load of nothing", status, 0);
        return;
    }
    bool empty = !trial->reference.count;
    if (!empty && !(status == BANYAN_ENOSPC && trial->refused))
        judge(trial, "bulk load of a full index", status, BANYAN_EBUSY);
    else if (empty && status != BANYAN_EBUSY && judge_write(trial, "bulk load", status, 0))
        for (size_t i = 0; i < entries->count; i++) {
            const struct reference_entry *entry = entries->entries[i];
            reference_put(&trial->reference, entry->bytes, entry->key_length, reference_value(entry),
                          entry->value_length);
        }
    else
        fuzz_must(status, "bulk load of an index that is not empty");
}

static void do_bulk(struct trial *trial)
{
    struct reference entries;
    struct fuzz_key key;
    uint8_t value[FUZZ_KEY_ROOM];
    reference_init(&entries);
    uint8_t how = fuzz_byte(&trial->input);
    uint16_t count = fuzz_u16(&trial->input) % 512, step = fuzz_byte(&trial->input);
    for (uint32_t i = 0; i < count; i++) {
        fuzz_key_number(&trial->keys, &key, how, how / 4, i * step);
        memset(value, ++trial->counter, sizeof value);
        reference_put(&entries, key.bytes, key.length, value, trial->world.options.geometry.value_bytes);
    }
    for (unsigned i = 0; i < how % 8; i++) {
        take_key(trial, &key);
        if (fuzz_key_fits(&trial->keys, &key))
            reference_put(&entries, key.bytes, key.length, value, trial->world.options.geometry.value_bytes);
    }
    load(trial, &entries, 1 + how / 8 % 4, how & 128 ? 1.0 : 0.5);
    reference_free(&entries);
}

static void do_reopen(struct trial *trial)
{
    struct world_compute *compute = &trial->world.computes[trial->task->compute];
    tree_close(compute->tree);
    compute->tree = NULL;
    judge(trial, "open", tree_open(trial->task->session, "test", &compute->tree), 0);
    trial->task->tree = compute->tree;
}

static void do_refuse(struct trial *trial)
{
    uint8_t count = fuzz_byte(&trial->input);
    trial->refused = true;
    for (unsigned i = 0; i < trial->world.options.memory_nodes; i++)
        memory_node_refuse(trial->world.memory[i], count % 8);
}

static void check(struct trial *trial, struct world_task *task)
{
    struct tree_check_report report = {0};
    const struct tree_range all = {.reverse = trial->operations % 2};
    trial->task = task;
    scan_range(trial, &all, UINT64_MAX);
    judge(trial, "check", tree_check(task->session, task->tree, &report, NULL, NULL), 0);
    fuzz_must(report.entries == trial->reference.count, "check: %llu entries instead of %zu",
              (unsigned long long)report.entries, trial->reference.count);
    /* An entry that found no room in its parent is put there later. */
    fuzz_must(!report.dead && !report.marked && (trial->refused || !report.missing_parents),
              "check: something unfinished, though no compute node died");
}

/* ---- the program ---- */

/* False: the other compute node's turn. */
static bool step(struct trial *trial)
{
    uint8_t what = fuzz_byte(&trial->input) % 32;
    trial->operations++;
    if (what < 3)
        do_lookup(trial);
    else if (what < 10)
        do_write(trial, (enum write)(what % 3));
    else if (what < 13)
        do_delete(trial);
    else if (what < 17)
        do_run(trial, what == 16);
    else if (what < 19)
        do_compare_and_set(trial);
    else if (what < 21)
        do_modify(trial);
    else if (what == 21)
        do_multi_get(trial);
    else if (what < 24)
        do_multi_put(trial);
    else if (what < 27)
        do_scan(trial);
    else if (what == 27)
        do_sample(trial);
    else if (what == 28)
        do_bulk(trial);
    else if (what == 29)
        do_reopen(trial);
    else if (what == 30)
        do_refuse(trial);
    else
        return false;
    return true;
}

static void turn(struct world_task *task)
{
    struct trial *trial = task->world->context;
    trial->task = task;
    while (trial->input.length && trial->operations < OPERATIONS && trial->reference.count < ENTRIES_MAX)
        if (!step(trial))
            break;
}

static void last_look(struct world_task *task)
{
    check(task->world->context, task);
}

static void delete_all(struct world_task *task)
{
    struct trial *trial = task->world->context;
    trial->task = task;
    while (trial->reference.count) {
        const struct reference_entry *entry = trial->reference.entries[trial->reference.count / 2];
        struct fuzz_key key = {.length = entry->key_length};
        memcpy(key.bytes, entry->bytes, entry->key_length);
        delete_one(trial, &key);
    }
}

/* False: there is no such geometry. */
static bool take_options(struct trial *trial, struct world_options *options)
{
    static const uint8_t lengths[] = {8, 9, 16, 33, 64, 255}, values[] = {0, 1, 8, 17, 100, 255};
    static const uint32_t leaves[] = {512, 1024, 2048, 4096}, internals[] = {512, 1024, 4096, 0};
    uint8_t kind = fuzz_byte(&trial->input), size = fuzz_byte(&trial->input), how = fuzz_byte(&trial->input);
    struct format_geometry *geometry = &options->geometry;
    world_options_default(options);
    *geometry = (struct format_geometry){.key_kind = kind & 1 ? FORMAT_KEY_VARIABLE : FORMAT_KEY_FIXED,
                                         .key_bytes = lengths[kind / 2 % 6],
                                         .value_variable = kind & 64,
                                         .value_bytes = values[size % 6],
                                         .leaf_bytes = leaves[size / 8 % 4],
                                         .internal_bytes = internals[size / 32 % 4],
                                         .inline_key_bytes = size & 128 ? 16 : 24};
    options->simulated = true;
    options->seed = how;
    options->random_switches = how & 1;
    options->preset = tree_switches_presets[how / 2 % 7];
    options->cache_bytes = how & 16 ? 16384 : 1u << 20;
    options->unlock_by_atomic = how & 32;
    options->lock_bytes = 8192;
    options->lock_width = how & 128 ? 8 : 2;
    options->memory_nodes = 1 + (how & 64) / 64;
    options->compute_nodes = 2;
    options->pool_bytes = 16u << 20;
    struct format_geometry complete = *geometry;
    if (format_geometry_complete(&complete, options->params.atomic_write, NULL))
        return false;
    trial->keys = (struct fuzz_keys){.longest = complete.key_bytes,
                                     .fixed = complete.key_kind == FORMAT_KEY_FIXED,
                                     .padding = how & 4 ? 0xff : 0};
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct trial trial = {.input = {bytes, length}};
    struct world_options options;
    if (!take_options(&trial, &options))
        return 0;
    reference_init(&trial.reference);
    struct world *world = &trial.world;
    int status = world_create(world, &options);
    world->context = &trial;
    for (unsigned at = 0; !status && trial.input.length && trial.operations < OPERATIONS &&
                          trial.reference.count < ENTRIES_MAX;
         at = !at)
        status = world_run_one(world, at, turn);
    for (unsigned at = 0; at < 2 && !status; at++)
        status = world_run_one(world, at, last_look);
    if (!status)
        status = world_check(world, NULL);
    for (unsigned i = 0; i < options.memory_nodes && !status; i++)
        memory_node_refuse(world->memory[i], 0);
    if (!status)
        status = world_run_one(world, trial.operations % 2, delete_all);
    if (!status)
        status = world_check(world, NULL);
    fuzz_must(!status, "world: %s", world->error.text);
    world_destroy(world);
    reference_free(&trial.reference);
    return 0;
}
