/*
 * test_reference.c - a store compared with an array that is too simple to be wrong: random operations of
 * every kind, values of any size, a clock that jumps, keys from 4 to 255 bytes. One task; every answer is
 * compared, and sometimes the whole store and every block of the pool.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stores.h"

#define KEYS 300u
#define KIB  (UINT64_C(1) << 10)
#define MIB  (UINT64_C(1) << 20)

struct model_entry {
    bool present;
    uint64_t number, expires; /* the value's bytes follow from the number */
    size_t length, shift;     /* appended: the bytes are those of `number` up to length */
};

static struct model {
    struct stores stores;
    struct store_session *session;
    struct random random;
    struct model_entry entries[KEYS]; /* in key order */
    uint64_t numbers, now;
    uint8_t *bytes;
    struct store_sweep sweep;
} model;

static size_t key_of(unsigned number, char key[256])
{
    size_t length = number % 3 ? 4 : number % 7 ? 4 + number % 40 : 255;
    memset(key, '.', 256);
    char text[8];
    snprintf(text, sizeof text, "%04u", number);
    memcpy(key, text, 4);
    return length;
}

static struct model_entry *entry_of(unsigned number)
{
    struct model_entry *entry = &model.entries[number];
    if (entry->present && entry->expires && entry->expires <= model.now)
        entry->present = false;
    return entry;
}

static size_t any_length(void)
{
    uint64_t kind = random_below(&model.random, 2000);
    if (!kind)
        return random_below(&model.random, 64 * MIB + 1);
    if (kind < 60)
        return random_below(&model.random, 3 * MIB);
    if (kind < 400)
        return random_below(&model.random, 64 * KIB + 400);
    if (kind < 1200)
        return random_below(&model.random, 300);
    return random_below(&model.random, 20);
}

static uint64_t any_expiry(void)
{
    if (random_chance(&model.random, 0.7))
        return 0;
    return model.now - 5 + random_below(&model.random, 300);
}

/* The value's bytes in model.bytes. */
static struct store_value fresh(void)
{
    struct store_value value = {.length = any_length(), .expires = any_expiry()};
    model.numbers++;
    stores_fill(model.numbers, model.bytes, value.length);
    value.bytes = model.bytes;
    return value;
}

static void model_put(unsigned number, const struct store_value *value)
{
    model.entries[number] = (struct model_entry){
        .present = true, .number = model.numbers, .expires = value->expires, .length = value->length};
}

static void compare(const struct model_entry *entry, const struct store_value *value, bool bytes)
{
    assert_int_equal(value->length, entry->length);
    assert_int_equal(value->expires, entry->expires);
    if (bytes)
        assert_true(stores_filled(entry->number, value->bytes, value->length));
    else
        assert_null(value->bytes);
}

/* ---- single keys ---- */

static void do_read(unsigned number, const char *key, size_t length)
{
    struct store_value value;
    bool bytes = random_chance(&model.random, 0.6);
    const struct model_entry *entry = entry_of(number);
    int status = bytes ? store_get(model.session, key, length, &value)
                       : store_stat(model.session, key, length, &value);
    assert_int_equal(status, entry->present ? 0 : BANYAN_ENOTFOUND);
    if (!status)
        compare(entry, &value, bytes);
}

static void do_put(unsigned number, const char *key, size_t length)
{
    struct store_value value = fresh();
    assert_int_equal(store_put(model.session, key, length, value.bytes, value.length, value.expires), 0);
    model_put(number, &value);
}

static void do_delete(unsigned number, const char *key, size_t length)
{
    struct model_entry *entry = entry_of(number);
    assert_int_equal(store_delete(model.session, key, length), entry->present ? 0 : BANYAN_ENOTFOUND);
    entry->present = false;
}

enum change_kind {
    CHANGE_KEEP,
    CHANGE_PUT,
    CHANGE_REMOVE,
    CHANGE_EXPIRY,
    CHANGE_GROW,
    CHANGE_SAME,
    CHANGE_KINDS
};

struct change {
    enum change_kind kind;
    enum store_need need;
    struct store_value value;
    uint64_t number;
    const struct model_entry *entry;
};

static enum store_verdict change_function(void *context, const struct store_value *old,
                                          struct store_value *new)
{
    struct change *change = context;
    assert_int_equal(old != NULL, change->entry->present);
    if (old)
        compare(change->entry, old, change->need == STORE_NEED_VALUE);
    switch (change->kind) {
    case CHANGE_KEEP:
        return STORE_KEEP;
    case CHANGE_REMOVE:
        return STORE_REMOVE;
    case CHANGE_EXPIRY: /* the value stays */
        if (!old)
            return STORE_KEEP;
        *new = (struct store_value){.expires = change->value.expires};
        return STORE_PUT;
    case CHANGE_GROW: /* longer, by the bytes that follow */
        if (!old)
            return STORE_KEEP;
        *new = (struct store_value){
            .bytes = model.bytes, .length = change->value.length, .expires = old->expires};
        return STORE_PUT;
    case CHANGE_SAME: /* its own bytes, another expiry */
        if (!old)
            return STORE_KEEP;
        *new = *old;
        new->expires = change->value.expires;
        return STORE_PUT;
    default:
        *new = change->value;
        return STORE_PUT;
    }
}

static void do_modify(unsigned number, const char *key, size_t length)
{
    struct model_entry *entry = entry_of(number), before = *entry;
    struct change change = {.kind = (enum change_kind)random_below(&model.random, CHANGE_KINDS),
                            .need = random_chance(&model.random, 0.5) ? STORE_NEED_VALUE : STORE_NEED_LENGTH,
                            .entry = &before};
    if (change.kind == CHANGE_EXPIRY)
        change.need = STORE_NEED_LENGTH;
    if (change.kind == CHANGE_SAME)
        change.need = STORE_NEED_VALUE;
    if (change.kind == CHANGE_GROW && entry->present) {
        change.value.length = entry->length + random_below(&model.random, entry->length / 2 + 30);
        if (change.value.length > STORE_VALUE_MAX)
            change.value.length = STORE_VALUE_MAX;
        stores_fill(entry->number, model.bytes, change.value.length);
    } else if (change.kind == CHANGE_PUT) {
        change.value = fresh();
    } else {
        change.value.expires = any_expiry();
    }
    struct store_value old;
    bool existed;
    assert_int_equal(
        store_modify(model.session, key, length, change.need, change_function, &change, &old, &existed), 0);
    assert_int_equal(existed, before.present);
    if (existed)
        compare(&before, &old, change.need == STORE_NEED_VALUE);
    if (change.kind == CHANGE_PUT)
        model_put(number, &change.value);
    else if (change.kind == CHANGE_REMOVE)
        entry->present = false;
    else if (change.kind == CHANGE_GROW)
        entry->length = entry->present ? change.value.length : 0;
    else if (change.kind != CHANGE_KEEP)
        entry->expires = change.value.expires;
}

/* ---- many keys ---- */

static void do_many(void)
{
    struct store_item items[64];
    char keys[64][256];
    unsigned numbers[64];
    size_t count = 1 + random_below(&model.random, 64);
    bool values = random_chance(&model.random, 0.7);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (unsigned)random_below(&model.random, KEYS);
        items[i] = (struct store_item){.key = keys[i], .key_length = key_of(numbers[i], keys[i])};
    }
    store_multi_get(model.session, items, count, values);
    for (size_t i = 0; i < count; i++) {
        const struct model_entry *entry = entry_of(numbers[i]);
        if (i && values && items[i].status == BANYAN_ENOMEM) { /* too much at once: asked for again */
            store_multi_get(model.session, items + i, count - i, values);
        }
        assert_int_equal(items[i].status, entry->present ? 0 : BANYAN_ENOTFOUND);
        if (entry->present)
            compare(entry, &items[i].value, values);
    }
}

static void do_many_puts(void)
{
    struct store_item items[80];
    char keys[80][256];
    size_t count = 1 + random_below(&model.random, random_chance(&model.random, 0.8) ? 8 : 80);
    for (size_t i = 0; i < count; i++) {
        unsigned number = (unsigned)random_below(&model.random, KEYS);
        size_t length = random_below(&model.random, 2000);
        items[i] = (struct store_item){.key = keys[i], .key_length = key_of(number, keys[i])};
        items[i].value =
            (struct store_value){.bytes = model.bytes, .length = length, .expires = any_expiry()};
        if (!i)
            stores_fill(++model.numbers, model.bytes, 2000);
        model_put(number, &items[i].value); /* one key twice: the later one stays */
    }
    assert_int_equal(store_multi_put(model.session, items, count), 0);
}

/* ---- ranges ---- */

struct walk {
    unsigned next, end; /* expected numbers: next, ..., end - 1, or downwards */
    bool reverse, values;
    uint64_t left, met, stop_after;
};

static bool walk_skip(struct walk *walk)
{
    while (walk->next != walk->end && !entry_of(walk->reverse ? walk->next - 1 : walk->next)->present)
        walk->next = walk->reverse ? walk->next - 1 : walk->next + 1;
    return walk->next != walk->end;
}

static bool walk_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct walk *walk = context;
    char expected[256];
    assert_true(walk_skip(walk));
    unsigned number = walk->reverse ? walk->next - 1 : walk->next;
    assert_int_equal(key_length, key_of(number, expected));
    assert_memory_equal(key, expected, key_length);
    compare(&model.entries[number], value, walk->values);
    walk->next = walk->reverse ? walk->next - 1 : walk->next + 1;
    walk->left--;
    return ++walk->met != walk->stop_after;
}

/* A random range, and the numbers in it: [*first, *end). */
static void any_range(struct tree_range *range, char from[256], char to[256], unsigned *first, unsigned *end)
{
    unsigned a = (unsigned)random_below(&model.random, KEYS), b = (unsigned)random_below(&model.random, KEYS);
    *range = (struct tree_range){.reverse = random_chance(&model.random, 0.4)};
    *first = 0;
    *end = KEYS;
    if (random_chance(&model.random, 0.7)) {
        range->from = from;
        range->from_length = key_of(a < b ? a : b, from);
        range->from_open = random_chance(&model.random, 0.5);
        *first = (a < b ? a : b) + range->from_open;
    }
    if (random_chance(&model.random, 0.7)) {
        range->to = to;
        range->to_length = key_of(a < b ? b : a, to);
        range->to_open = random_chance(&model.random, 0.5);
        *end = (a < b ? b : a) + !range->to_open;
    }
    if (*first > *end)
        *end = *first;
    if (random_chance(&model.random, 0.4))
        range->limit = 1 + random_below(&model.random, 20);
}

static uint64_t present_in(unsigned first, unsigned end, uint64_t limit)
{
    uint64_t count = 0;
    for (unsigned i = first; i < end; i++)
        count += entry_of(i)->present;
    return limit && count > limit ? limit : count;
}

static void do_range(void)
{
    struct tree_range range;
    char from[256], to[256];
    unsigned first, end;
    uint64_t count;
    any_range(&range, from, to, &first, &end);
    if (random_chance(&model.random, 0.3)) {
        assert_int_equal(store_count(model.session, &range, &count), 0);
        assert_int_equal(count, present_in(first, end, range.limit));
        return;
    }
    struct walk walk = {.next = range.reverse ? end : first,
                        .end = range.reverse ? first : end,
                        .reverse = range.reverse,
                        .values = random_chance(&model.random, 0.5),
                        .left = range.limit ? range.limit : UINT64_MAX,
                        .stop_after = random_chance(&model.random, 0.2) ? 3 : 0};
    assert_int_equal(store_scan(model.session, &range, walk.values ? STORE_SCAN_VALUES : STORE_SCAN_KEYS,
                                walk_visit, &walk),
                     0);
    if (walk.left && !(walk.stop_after && walk.met == walk.stop_after))
        assert_false(walk_skip(&walk));
}

static void do_delete_range(void)
{
    struct tree_range range;
    char from[256], to[256];
    unsigned first, end;
    uint64_t count;
    any_range(&range, from, to, &first, &end);
    range.limit = 1 + random_below(&model.random, 10);
    assert_int_equal(store_delete_range(model.session, &range, &count), 0);
    assert_int_equal(count, present_in(first, end, range.limit));
    unsigned at = range.reverse ? end : first;
    for (uint64_t gone = 0; gone < count; at = range.reverse ? at - 1 : at + 1) {
        struct model_entry *entry = entry_of(range.reverse ? at - 1 : at);
        gone += entry->present;
        entry->present = false;
    }
}

static void do_sample(void)
{
    char key[FORMAT_KEY_MAX + 1] = "";
    size_t length = FORMAT_KEY_MAX;
    uint64_t present = present_in(0, KEYS, 0);
    int status = store_sample(model.session, key, &length);
    assert_int_equal(status, present ? 0 : BANYAN_ENOTFOUND);
    if (status)
        return;
    key[4] = 0;
    assert_true(entry_of((unsigned)atoi(key))->present);
}

static void check(void)
{
    struct store_check_report report;
    uint64_t present = present_in(0, KEYS, 0);
    if (stores_check(&model.stores, &report))
        fail_msg("%s", model.stores.world.error.text);
    assert_int_equal(report.values_inline + report.values_record, report.tree.entries);
    assert_int_equal(report.tree.entries - report.expired, present);
}

/* ---- all together ---- */

static void step(void)
{
    char key[256];
    unsigned number = (unsigned)random_below(&model.random, KEYS);
    size_t length = key_of(number, key);
    uint64_t kind = random_below(&model.random, 1000);
    if (kind < 250)
        do_read(number, key, length);
    else if (kind < 500)
        do_put(number, key, length);
    else if (kind < 600)
        do_delete(number, key, length);
    else if (kind < 850)
        do_modify(number, key, length);
    else if (kind < 880)
        do_many();
    else if (kind < 910)
        do_many_puts();
    else if (kind < 940)
        do_range();
    else if (kind < 950)
        do_delete_range();
    else if (kind < 965)
        do_sample();
    else if (kind < 980)
        assert_int_equal(store_sweep_step(model.session, &model.sweep, 50), 0);
    else
        stores_now(&model.stores, model.now += random_below(&model.random, 60));
}

static void run(uint64_t seed, unsigned memory_nodes, unsigned inline_value)
{
    struct world_options options;
    stores_options_default(&options);
    options.memory_nodes = memory_nodes;
    options.pool_bytes = (UINT64_C(1536) << 20) / memory_nodes;
    options.geometry.value_bytes = (uint8_t)(inline_value + 1);
    memset(&model, 0, sizeof model);
    model.bytes = malloc(STORE_VALUE_MAX + 1);
    assert_non_null(model.bytes);
    assert_int_equal(stores_create(&model.stores, &options), 0);
    model.session = model.stores.world.tasks[0].store_session;
    model.now = 1000;
    random_seed(&model.random, seed);
    print_message("seed %" PRIu64 "\n", seed);
    for (unsigned i = 0; i < world_rounds(15000); i++) {
        step();
        if (i % 3000 == 2999)
            check();
    }
    struct tree_range all = {0};
    uint64_t count, present = present_in(0, KEYS, 0);
    assert_int_equal(store_delete_range(model.session, &all, &count), 0);
    assert_int_equal(count, present);
    struct store_check_report report;
    assert_int_equal(stores_check(&model.stores, &report), 0);
    assert_int_equal(report.tree.entries, 0);
    assert_int_equal(report.record_blocks, 0);
    struct store_stats stats;
    store_stats(model.stores.world.computes[0].store, &stats);
    assert_int_equal(stats.record_retries, 0); /* there was no other writer */
    stores_destroy(&model.stores);
    free(model.bytes);
}

static void one_memory_node(void **state)
{
    run(world_seed(1), 1, STORE_INLINE_MAX);
}

static void three_memory_nodes(void **state)
{
    run(world_seed(2), 3, STORE_INLINE_MAX);
}

static void wide_slots(void **state)
{
    run(world_seed(3), 2, 100);
}

static void a_fresh_seed(void **state)
{
    run(world_fresh_seed(), 2, STORE_INLINE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_memory_node),
        cmocka_unit_test(three_memory_nodes),
        cmocka_unit_test(wide_slots),
        cmocka_unit_test(a_fresh_seed),
    };
    return cmocka_run_group_tests_name("store_reference", tests, NULL, NULL);
}
