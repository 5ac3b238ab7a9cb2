/*
 * fuzz_store.c - the store's whole interface against a sorted array: values of every size class (in the slot,
 * in a record, in pieces), expiry under a clock that the input moves, ranges, sweeps, allocations that are
 * refused.
 *
 * Oracle: every answer is the reference's; what is refused has changed nothing; at the end store_check finds
 * nothing, its counts are the reference's, and every block of the pool has exactly one owner.
 */
#include "fuzz/fuzz_keys.h"
#include "fuzz/fuzz_rig.h"

#define MANY        12u
#define OPERATIONS  600u
#define BYTES_MAX   (UINT64_C(24) << 20) /* of values that one input writes */
#define LENGTH_MAX  ((UINT64_C(2) << 20) + 1000)
#define PATTERN_LAG 251u

/* What the reference holds for a value: bytes of `number`, so many. */
struct known {
    uint64_t expires;
    uint32_t length, number;
};

struct trial {
    struct rig rig;
    struct reference reference;
    struct fuzz_input input;
    struct store_sweep sweep;
    unsigned operations;
    uint32_t numbers;
    uint64_t bytes; /* written so far */
    bool refused;
};

static const struct fuzz_keys keys = {.longest = STORE_KEY_MAX};
/* Value `number` is what stands here from number % PATTERN_LAG on. */
static uint8_t pattern[LENGTH_MAX + PATTERN_LAG];

static void judge(struct trial *trial, const char *what, int status, int expected)
{
    fuzz_must(status == expected, "operation %u, %s: status %d instead of %d (%s)", trial->operations, what,
              status, expected, tree_session_error(trial->rig.session)->text);
}

static bool judge_write(struct trial *trial, const char *what, int status)
{
    if (trial->refused && status == BANYAN_ENOSPC)
        return false;
    judge(trial, what, status, 0);
    return true;
}

/* ---- the reference ---- */

static bool over(const struct trial *trial, const struct known *known)
{
    return known->expires && known->expires <= trial->rig.now_ms;
}

static struct known known_of(const struct reference_entry *entry)
{
    struct known known;
    memcpy(&known, reference_value(entry), sizeof known);
    return known;
}

static bool find(struct trial *trial, const struct fuzz_key *key, struct known *known)
{
    const struct reference_entry *entry = reference_find(&trial->reference, key->bytes, key->length);
    *known = (struct known){0};
    if (!entry)
        return false;
    *known = known_of(entry);
    if (!over(trial, known))
        return true;
    reference_remove(&trial->reference, key->bytes, key->length);
    return false;
}

static void put(struct trial *trial, const void *key, size_t length, const struct known *known)
{
    if (over(trial, known))
        reference_remove(&trial->reference, key, length);
    else
        reference_put(&trial->reference, key, length, known, sizeof *known);
}

/* Those whose time has come leave the reference. */
static void expire(struct trial *trial)
{
    for (size_t i = trial->reference.count; i-- > 0;) {
        const struct reference_entry *entry = trial->reference.entries[i];
        const struct known known = known_of(entry);
        if (over(trial, &known)) {
            uint8_t key[STORE_KEY_MAX];
            size_t length = entry->key_length;
            memcpy(key, entry->bytes, length);
            reference_remove(&trial->reference, key, length);
        }
    }
}

static const uint8_t *bytes_of(const struct known *known)
{
    return pattern + known->number % PATTERN_LAG;
}

static void compare(const struct trial *trial, const struct known *known, const struct store_value *value,
                    bool bytes)
{
    fuzz_must(value->length == known->length && value->expires == known->expires,
              "operation %u: %zu bytes until %llu instead of %u until %llu", trial->operations, value->length,
              (unsigned long long)value->expires, known->length, (unsigned long long)known->expires);
    fuzz_must(bytes ? value->bytes && !memcmp(value->bytes, bytes_of(known), known->length) : !value->bytes,
              "operation %u: other bytes", trial->operations);
}

/* ---- choices ---- */

static void take_key(struct trial *trial, struct fuzz_key *key)
{
    fuzz_take_key(&trial->input, &keys, &trial->reference, key);
    if (key->length > FUZZ_KEY_ROOM)
        abort();
}

static bool fits(const struct fuzz_key *key)
{
    return fuzz_key_fits(&keys, key);
}

static uint64_t take_expiry(struct trial *trial)
{
    uint8_t how = fuzz_byte(&trial->input);
    return how % 3 ? 0 : trial->rig.now_ms - 5 + how;
}

static struct known take_known(struct trial *trial)
{
    struct known known = {.number = ++trial->numbers};
    uint8_t how = fuzz_byte(&trial->input), more = fuzz_byte(&trial->input);
    if (how % 8 < 5)
        known.length = more % 20;
    else if (how % 8 < 7)
        known.length = more * 3u;
    else if (how < 192) /* about where a record gets pieces */
        known.length = 65536u - 512 + 4u * more;
    else
        known.length = (how & 16 ? 2u << 20 : 1u << 20) - 128 + more;
    if (trial->bytes + known.length > BYTES_MAX)
        known.length = 5;
    trial->bytes += known.length;
    known.expires = take_expiry(trial);
    return known;
}

/* ---- one key ---- */

static void do_read(struct trial *trial)
{
    struct fuzz_key key;
    struct known known;
    struct store_value value = {0};
    bool bytes = fuzz_byte(&trial->input) % 2;
    take_key(trial, &key);
    bool present = find(trial, &key, &known);
    int status = (bytes ? store_get : store_stat)(trial->rig.store_session, key.bytes, key.length, &value);
    judge(trial, "read", status, !fits(&key) ? BANYAN_EKEYSIZE : present ? 0 : BANYAN_ENOTFOUND);
    if (!status)
        compare(trial, &known, &value, bytes);
}

static void do_put(struct trial *trial)
{
    struct fuzz_key key;
    take_key(trial, &key);
    struct known known = take_known(trial);
    int status = store_put(trial->rig.store_session, key.bytes, key.length, bytes_of(&known), known.length,
                           known.expires);
    if (!fits(&key))
        judge(trial, "put", status, BANYAN_EKEYSIZE);
    else if (judge_write(trial, "put", status))
        put(trial, key.bytes, key.length, &known);
}

static void do_delete(struct trial *trial)
{
    struct fuzz_key key;
    struct known known;
    take_key(trial, &key);
    bool present = find(trial, &key, &known);
    judge(trial, "delete", store_delete(trial->rig.store_session, key.bytes, key.length),
          !fits(&key) ? BANYAN_EKEYSIZE
          : present   ? 0
                      : BANYAN_ENOTFOUND);
    reference_remove(&trial->reference, key.bytes, key.length);
}

enum change_kind { KEEP, PUT, REMOVE, EXPIRY, GROW, SAME, KINDS };

struct change {
    const struct trial *trial;
    enum change_kind kind;
    enum store_need need;
    bool present;
    struct known before, after;
};

static enum store_verdict change(void *context, const struct store_value *old, struct store_value *new)
{
    struct change *change = context;
    fuzz_must((old != NULL) == change->present, "modify: was shown %s", old ? "a value" : "nothing");
    if (old)
        compare(change->trial, &change->before, old, change->need == STORE_NEED_VALUE);
    if (change->kind == KEEP || (change->kind >= EXPIRY && !old))
        return STORE_KEEP;
    if (change->kind == REMOVE)
        return STORE_REMOVE;
    *new = (struct store_value){.length = change->after.length, .expires = change->after.expires};
    if (change->kind == SAME)
        new->bytes = old->bytes;
    else if (change->kind != EXPIRY)
        new->bytes = bytes_of(&change->after);
    return STORE_PUT;
}

static void do_modify(struct trial *trial)
{
    struct fuzz_key key;
    uint8_t how = fuzz_byte(&trial->input);
    struct change context = {.trial = trial,
                             .kind = (enum change_kind)(how % KINDS),
                             .need = how & 64 ? STORE_NEED_LENGTH : STORE_NEED_VALUE};
    struct store_value old;
    bool existed = false;
    take_key(trial, &key);
    context.present = find(trial, &key, &context.before);
    context.after = take_known(trial);
    if (context.kind == EXPIRY)
        context.need = STORE_NEED_LENGTH;
    if (context.kind == SAME)
        context.need = STORE_NEED_VALUE;
    if (context.kind >= EXPIRY) {
        uint64_t expires = context.after.expires;
        uint32_t more = context.kind == GROW ? context.after.length % 5000 : 0;
        context.after = context.before;
        context.after.expires = context.kind == GROW ? context.before.expires : expires;
        if (context.after.length + more <= LENGTH_MAX)
            context.after.length += more;
    }
    int status = store_modify(trial->rig.store_session, key.bytes, key.length, context.need, change, &context,
                              &old, &existed);
    if (!fits(&key)) {
        judge(trial, "modify", status, BANYAN_EKEYSIZE);
        return;
    }
    if (!judge_write(trial, "modify", status))
        return;
    fuzz_must(existed == context.present, "modify: existed is %d", existed);
    if (existed)
        compare(trial, &context.before, &old, context.need == STORE_NEED_VALUE);
    if (context.kind == REMOVE)
        reference_remove(&trial->reference, key.bytes, key.length);
    else if (context.kind == PUT || (context.kind >= EXPIRY && context.present))
        put(trial, key.bytes, key.length, &context.after);
}

/* ---- many keys ---- */

struct many {
    struct fuzz_key keys[MANY];
    struct store_item items[MANY];
    struct known knowns[MANY];
    size_t count;
};

static void take_many(struct trial *trial, struct many *many, bool put)
{
    many->count = fuzz_byte(&trial->input) % (MANY + 1);
    for (size_t i = 0; i < many->count; i++) {
        take_key(trial, &many->keys[i]);
        if (!fits(&many->keys[i]))
            fuzz_key_number(&keys, &many->keys[i], 'm', i, (uint32_t)i);
        many->items[i] =
            (struct store_item){.key = many->keys[i].bytes, .key_length = many->keys[i].length, .status = 99};
        if (!put)
            continue;
        struct known *known = &many->knowns[i];
        *known = take_known(trial);
        many->items[i].value = (struct store_value){
            .bytes = bytes_of(known), .length = known->length, .expires = known->expires};
    }
}

static void do_multi_get(struct trial *trial)
{
    struct many *many = calloc(1, sizeof *many);
    bool values = fuzz_byte(&trial->input) % 4;
    take_many(trial, many, false);
    store_multi_get(trial->rig.store_session, many->items, many->count, values);
    for (size_t i = 0, asked = 0; i < many->count; i++) {
        struct store_item *item = &many->items[i];
        struct known known;
        bool present = find(trial, &many->keys[i], &known);
        if (values && i > asked && item->status == BANYAN_ENOMEM) { /* too much at once: asked for again */
            store_multi_get(trial->rig.store_session, item, many->count - i, values);
            asked = i;
        }
        judge(trial, "multi_get", item->status, present ? 0 : BANYAN_ENOTFOUND);
        if (present)
            compare(trial, &known, &item->value, values);
    }
    free(many);
}

static void do_multi_put(struct trial *trial)
{
    struct many *many = calloc(1, sizeof *many);
    take_many(trial, many, true);
    int status = store_multi_put(trial->rig.store_session, many->items, many->count), worst = 0;
    for (size_t i = 0; i < many->count; i++) {
        worst = worst ? worst : many->items[i].status;
        if (judge_write(trial, "multi_put", many->items[i].status))
            put(trial, many->keys[i].bytes, many->keys[i].length, &many->knowns[i]);
    }
    fuzz_must(!status == !worst, "multi_put: %d, but an item %d", status, worst);
    free(many);
}

/* ---- ranges ---- */

struct bounds {
    struct tree_range range;
    struct fuzz_key from, to;
    size_t low, high; /* places in the reference; what has expired is out of it */
    bool possible;
};

static void take_bounds(struct trial *trial, struct bounds *bounds)
{
    uint8_t how = fuzz_byte(&trial->input), limit = fuzz_byte(&trial->input);
    struct tree_range *range = &bounds->range;
    *range = (struct tree_range){
        .from_open = how & 1, .to_open = how & 2, .reverse = how & 4, .limit = how & 8 ? limit : 0};
    bounds->possible = true;
    if (how & 16) {
        take_key(trial, &bounds->from);
        range->from = bounds->from.bytes;
        range->from_length = bounds->from.length;
        bounds->possible &= range->from_length <= STORE_KEY_MAX;
    }
    if (how & 32) {
        take_key(trial, &bounds->to);
        range->to = bounds->to.bytes;
        range->to_length = bounds->to.length;
        bounds->possible &= range->to_length <= STORE_KEY_MAX;
    }
    expire(trial);
    const struct reference *reference = &trial->reference;
    bounds->low =
        range->from ? reference_place(reference, range->from, range->from_length, range->from_open) : 0;
    bounds->high = range->to ? reference_place(reference, range->to, range->to_length, !range->to_open)
                             : reference->count;
    if (bounds->high < bounds->low)
        bounds->high = bounds->low;
}

static uint64_t expected_count(const struct bounds *bounds)
{
    uint64_t count = bounds->high - bounds->low;
    return bounds->range.limit && count > bounds->range.limit ? bounds->range.limit : count;
}

struct scan {
    const struct trial *trial;
    size_t at, step;
    uint64_t seen, stop_after;
    bool values;
};

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct scan *scan = context;
    const struct reference *reference = &scan->trial->reference;
    fuzz_must(scan->at < reference->count, "scan: more than there is");
    const struct reference_entry *entry = reference->entries[scan->at];
    const struct known known = known_of(entry);
    fuzz_must(!reference_compare(entry->bytes, entry->key_length, key, key_length), "scan: another key");
    compare(scan->trial, &known, value, scan->values);
    scan->at += scan->step;
    return ++scan->seen != scan->stop_after;
}

static void scan_bounds(struct trial *trial, const struct bounds *bounds, bool values, uint64_t stop_after)
{
    struct scan scan = {trial,
                        bounds->range.reverse ? bounds->high - 1 : bounds->low,
                        bounds->range.reverse ? SIZE_MAX : 1,
                        0,
                        stop_after,
                        values};
    uint64_t expected = expected_count(bounds);
    int status = store_scan(trial->rig.store_session, &bounds->range,
                            values ? STORE_SCAN_VALUES : STORE_SCAN_KEYS, visit, &scan);
    judge(trial, "scan", status, bounds->possible ? 0 : BANYAN_EKEYSIZE);
    expected = expected < stop_after ? expected : stop_after;
    fuzz_must(status || scan.seen == expected, "operation %u, scan: %llu entries instead of %llu",
              trial->operations, (unsigned long long)scan.seen, (unsigned long long)expected);
}

static void do_scan(struct trial *trial)
{
    struct bounds bounds;
    uint8_t how = fuzz_byte(&trial->input);
    take_bounds(trial, &bounds);
    scan_bounds(trial, &bounds, how & 1, how & 2 ? 1 + how / 16 : UINT64_MAX);
}

static void do_count(struct trial *trial)
{
    struct bounds bounds;
    uint64_t count = 0;
    take_bounds(trial, &bounds);
    int status = store_count(trial->rig.store_session, &bounds.range, &count);
    judge(trial, "count", status, bounds.possible ? 0 : BANYAN_EKEYSIZE);
    fuzz_must(status || count == expected_count(&bounds), "operation %u, count: %llu instead of %llu",
              trial->operations, (unsigned long long)count, (unsigned long long)expected_count(&bounds));
}

static void do_delete_range(struct trial *trial)
{
    struct bounds bounds;
    uint64_t count = 0;
    take_bounds(trial, &bounds);
    int status = store_delete_range(trial->rig.store_session, &bounds.range, &count);
    judge(trial, "delete_range", status, bounds.possible ? 0 : BANYAN_EKEYSIZE);
    if (status)
        return;
    fuzz_must(count == expected_count(&bounds), "operation %u, delete_range: %llu instead of %llu",
              trial->operations, (unsigned long long)count, (unsigned long long)expected_count(&bounds));
    for (uint64_t i = 0; i < count; i++) {
        const struct reference_entry *entry =
            trial->reference.entries[bounds.range.reverse ? bounds.high - 1 - i : bounds.low];
        uint8_t key[STORE_KEY_MAX];
        size_t length = entry->key_length;
        memcpy(key, entry->bytes, length);
        reference_remove(&trial->reference, key, length);
    }
}

static void do_sample(struct trial *trial)
{
    struct fuzz_key key = {.length = STORE_KEY_MAX};
    struct known known;
    int status = store_sample(trial->rig.store_session, key.bytes, &key.length);
    if (status == BANYAN_ENOTFOUND) /* also where it is so sparse that none is met */
        return;
    judge(trial, "sample", status, 0);
    fuzz_must(find(trial, &key, &known), "sample: a key that is not there");
}

static void do_run(struct trial *trial)
{
    uint8_t how = fuzz_byte(&trial->input), count = fuzz_byte(&trial->input);
    uint16_t number = fuzz_u16(&trial->input);
    for (unsigned i = 0; i < count % 48u; i++) {
        struct fuzz_key key;
        struct known known = {.length = how, .number = ++trial->numbers, .expires = how & 1 ? 0 : 2000};
        fuzz_key_number(&keys, &key, how, how % 64, (uint32_t)number + i);
        int status = store_put(trial->rig.store_session, key.bytes, key.length, bytes_of(&known),
                               known.length, known.expires);
        if (judge_write(trial, "put", status))
            put(trial, key.bytes, key.length, &known);
    }
}

static void do_refuse(struct trial *trial)
{
    uint8_t count = fuzz_byte(&trial->input);
    trial->refused = true;
    for (unsigned i = 0; i < trial->rig.memory_nodes; i++)
        memory_node_refuse(trial->rig.memory[i], count % 8);
}

/* ---- all together ---- */

static void check(struct trial *trial)
{
    struct store_check_report report = {0};
    struct rig_blocks blocks = {0};
    const struct bounds all = {.high = (expire(trial), trial->reference.count), .possible = true};
    scan_bounds(trial, &all, true, UINT64_MAX);
    judge(trial, "check", store_check(trial->rig.store_session, &report, rig_blocks_add, &blocks), 0);
    fuzz_must(report.tree.entries - report.expired == trial->reference.count, "check: %llu entries, not %zu",
              (unsigned long long)(report.tree.entries - report.expired), trial->reference.count);
    rig_account(&trial->rig, &blocks);
}

static void step(struct trial *trial)
{
    uint8_t what = fuzz_byte(&trial->input) % 32;
    trial->operations++;
    if (what < 5)
        do_read(trial);
    else if (what < 11)
        do_put(trial);
    else if (what < 13)
        do_delete(trial);
    else if (what < 19)
        do_modify(trial);
    else if (what == 19)
        do_multi_get(trial);
    else if (what < 22)
        do_multi_put(trial);
    else if (what < 24)
        do_scan(trial);
    else if (what == 24)
        do_count(trial);
    else if (what == 25)
        do_delete_range(trial);
    else if (what == 26)
        do_sample(trial);
    else if (what == 27)
        judge(trial, "sweep", store_sweep_step(trial->rig.store_session, &trial->sweep, what * 2u), 0);
    else if (what == 28)
        trial->rig.now_ms += fuzz_byte(&trial->input);
    else if (what == 29)
        do_run(trial);
    else if (what == 30)
        do_refuse(trial);
    else
        store_session_rest(trial->rig.store_session);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct trial *trial = calloc(1, sizeof *trial);
    struct rig_options options;
    for (size_t i = 0; !pattern[PATTERN_LAG] && i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(1 + i % 255);
    trial->input = (struct fuzz_input){bytes, length};
    reference_init(&trial->reference);
    rig_options_default(&options);
    uint8_t how = fuzz_byte(&trial->input);
    store_geometry(&options.geometry);
    options.geometry.value_bytes = how & 1 ? 101 : STORE_INLINE_MAX + 1;
    options.records = true;
    options.memory_nodes = 1 + (how & 2) / 2;
    options.chunk_bytes = UINT64_C(1) << 20;
    options.pool_bytes = UINT64_C(128) << 20;
    options.preset = how & 4 ? "fg+" : how & 8 ? "sherman" : "banyan";
    rig_create(&trial->rig, &options);
    while (trial->input.length && trial->operations < OPERATIONS)
        step(trial);
    check(trial);
    for (unsigned i = 0; i < options.memory_nodes; i++)
        memory_node_refuse(trial->rig.memory[i], 0);
    const struct tree_range all = {.from = NULL};
    uint64_t count, present = trial->reference.count;
    judge(trial, "delete_range", store_delete_range(trial->rig.store_session, &all, &count), 0);
    fuzz_must(count == present, "delete_range: %llu instead of all", (unsigned long long)count);
    reference_free(&trial->reference);
    check(trial);
    rig_destroy(&trial->rig, false);
    reference_free(&trial->reference);
    free(trial);
    return 0;
}
