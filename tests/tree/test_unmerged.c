/*
 * test_unmerged.c - the table of what is not merged, by itself: random writes, fates, merges, takings over
 * and droppings in any order against a reference; then on threads, where values grow and no reader may see
 * one go back. BANYAN_SEED replays a seed, BANYAN_ROUNDS scales how many there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/epoch.h"
#include "base/random.h"
#include "base/task.h"
#include "base/thread.h"
#include "swarm/world.h"
#include "tree/unmerged.h"

#define KEYS   900u /* more than three runs of a scan */
#define FRAMES 3u
#define VALUE  16u
#define STEPS  6000u

/* ---- keys and values are numbers; 0: deleted ---- */

static struct format_key key_make(unsigned number, uint8_t bytes[8])
{
    memset(bytes, 0, 8);
    bytes[0] = (uint8_t)(number >> 8);
    bytes[1] = (uint8_t)number;
    return (struct format_key){bytes, 2 + number % 3};
}

static unsigned key_number(struct format_key key)
{
    return (unsigned)key.bytes[0] << 8 | key.bytes[1];
}

static uint32_t value_make(uint64_t number, uint8_t bytes[VALUE])
{
    uint32_t length = 8 + (uint32_t)(number % (VALUE - 7));
    memset(bytes, (int)(number & 0xff), VALUE);
    memcpy(bytes, &number, 8);
    return length;
}

static uint64_t value_number(const uint8_t *bytes, uint32_t length)
{
    uint8_t whole[VALUE];
    uint64_t number;
    if (!bytes)
        return 0;
    memcpy(&number, bytes, 8);
    assert_int_equal(length, value_make(number, whole));
    assert_memory_equal(bytes, whole, length);
    return number;
}

/* ---- the reference ---- */

struct held {
    bool present, leafed, ended;
    uint64_t value, sequence; /* value 0: deleted */
};

/* What became of a value, as of one that names a record (S3): each that was committed is freed once it is
 * neither in the table nor in the leaf, and not before. */
struct fate {
    bool committed, freed;
    bool aside; /* nobody has to free it, or another process */
};

struct entry {
    struct held committed, pending;
    int frame; /* of what is pending; -1: none, or it is doubtful */
    bool doubt, merging, dropped, overtaken;
    uint64_t doubtful, merged; /* merged: of what is being merged */
    uint64_t before;           /* the value that was settled last, in the frame that is being settled */
    uint64_t leaf;             /* 0: the leaf has none */
};

struct change {
    unsigned key;
    uint64_t value;
    bool first;
    bool again; /* what is doubtful is logged once more */
    struct unmerged_write write;
};

#define CHANGES_MAX 64u
struct frame {
    struct unmerged_frame drawn; /* first */
    struct change changes[CHANGES_MAX];
    unsigned count;
};

struct model {
    struct random random;
    struct unmerged *table;
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    uint64_t counter, values;
    struct entry entries[KEYS];
    struct frame frames[FRAMES];
    struct unmerged_merge merges[KEYS];
    unsigned merge_count;
    struct fate fates[2 * STEPS]; /* of values, by their numbers */
};

static void value_freed(struct model *model, uint64_t value)
{
    struct fate *fate = &model->fates[value];
    assert_true(!value || fate->aside || (fate->committed && !fate->freed));
    fate->freed = true;
}

static void value_aside(struct model *model, uint64_t value)
{
    model->fates[value].aside = true;
}

static void check_find(struct model *model, unsigned number)
{
    const struct entry *entry = &model->entries[number];
    uint8_t bytes[8], value[FORMAT_VALUE_MAX];
    uint32_t length = 0;
    enum unmerged_found found = unmerged_find(model->table, key_make(number, bytes), value, &length, 0, NULL);
    if (!entry->committed.present)
        assert_int_equal(found, UNMERGED_NONE);
    else if (!entry->committed.value)
        assert_int_equal(found, UNMERGED_DELETED);
    else
        assert_true(found == UNMERGED_VALUE && value_number(value, length) == entry->committed.value);
}

static void op_write(struct model *model, unsigned number)
{
    struct entry *entry = &model->entries[number];
    const int chosen = (int)random_below(&model->random, FRAMES);
    struct frame *frame = &model->frames[chosen];
    uint8_t bytes[8], value[VALUE];
    bool busy;
    if (frame->drawn.first || frame->count == CHANGES_MAX)
        return;
    struct unmerged_node *node = unmerged_latch_try(model->table, key_make(number, bytes), &busy);
    assert_true(node && !busy);
    assert_null(unmerged_latch_try(model->table, key_make(number, bytes), &busy));
    assert_true(busy);
    struct unmerged_look look;
    unmerged_look(model->table, node, &look);
    const struct held *held = entry->pending.present ? &entry->pending : &entry->committed;
    assert_int_equal(look.found != UNMERGED_NONE, held->present);
    if (held->present)
        assert_true(value_number(look.found == UNMERGED_VALUE ? look.value : NULL, look.length) ==
                    held->value);
    assert_ptr_equal(look.frame, entry->frame < 0 ? NULL : &model->frames[entry->frame].drawn);
    assert_int_equal(look.doubtful, entry->pending.present && entry->frame < 0);
    if (entry->frame < 0 || entry->frame == chosen) {
        struct change *change = &frame->changes[frame->count];
        uint64_t wanted = look.doubtful || entry->doubt     ? entry->pending.value
                          : random_below(&model->random, 5) ? ++model->values
                                                            : 0;
        struct format_key put = {value, wanted ? value_make(wanted, value) : 0};
        *change = (struct change){.key = number,
                                  .value = wanted,
                                  .first = !entry->pending.present || entry->frame < 0,
                                  .again = look.doubtful || entry->doubt};
        unmerged_write(model->table, node, wanted ? &put : NULL, &frame->drawn, frame->count, &change->write);
        entry->pending = (struct held){.present = true, .value = wanted};
        entry->frame = chosen;
        frame->count++;
    }
    unmerged_unlatch(model->table, model->slot, node);
}

static void frame_draw(struct model *model, struct frame *frame)
{
    if (frame->drawn.first || !frame->count)
        return;
    frame->drawn.first = model->counter + 1;
    model->counter += frame->count;
}

/* A change that is committed takes a value's place: who frees that? */
static void change_replaces(struct model *model, const struct change *change)
{
    struct entry *entry = &model->entries[change->key];
    struct held *held = &entry->committed;
    const bool merging = entry->merging && entry->merged == held->sequence;
    const bool takes = change->first && held->present && !held->leafed && !entry->doubt;
    const bool alone = takes && !merging;
    const uint64_t before = change->first ? held->present ? held->value : 0 : entry->before;
    assert_int_equal(change->write.replaced, !change->first || alone);
    /* A value that may be in the leaf is merged before another takes its place, but for these tests. */
    if (change->again || (change->first && held->leafed))
        value_aside(model, before);
    else if (change->write.replaced)
        value_freed(model, before);
    if (takes) {
        held->ended = true;
        entry->overtaken |= merging;
    }
    entry->before = change->value;
    model->fates[change->value].committed = true;
}

static void change_settled(struct model *model, struct frame *frame, unsigned index, enum unmerged_fate fate)
{
    struct change *change = &frame->changes[index];
    struct entry *entry = &model->entries[change->key];
    const uint64_t sequence = frame->drawn.first + index;
    bool last = true;
    for (unsigned i = index + 1; i < frame->count; i++)
        last &= frame->changes[i].key != change->key;
    unmerged_settle(model->slot, &change->write, fate);
    if (fate == UNMERGED_COMMITTED)
        change_replaces(model, change);
    if (!last)
        return;
    entry->frame = -1;
    if (fate == UNMERGED_COMMITTED) {
        entry->committed =
            (struct held){.present = true, .value = entry->pending.value, .sequence = sequence};
        entry->pending.present = entry->doubt = false;
    } else if (fate == UNMERGED_REFUSED) {
        entry->pending.present = entry->doubt;
    } else {
        entry->doubtful = entry->doubt && entry->doubtful < sequence ? entry->doubtful : sequence;
        entry->doubt = true;
    }
}

/* What the table must answer of the least sequence that is not merged, among those that it has looked at. */
static uint64_t least_of(const struct model *model, const struct entry *entry)
{
    uint64_t least = UINT64_MAX;
    if (entry->frame >= 0 && model->frames[entry->frame].drawn.first)
        least = model->frames[entry->frame].drawn.first;
    if (entry->doubt && entry->doubtful < least)
        least = entry->doubtful;
    if (entry->committed.present && entry->merging && entry->committed.sequence < least)
        least = entry->committed.sequence;
    return least;
}

static void op_take(struct model *model)
{
    unsigned from = random_chance(&model->random, 0.3) ? 0 : (unsigned)random_below(&model->random, KEYS);
    unsigned to = from + (unsigned)random_below(&model->random, KEYS - from) + 1;
    uint32_t capacity = 1 + (uint32_t)random_below(&model->random, 150);
    uint8_t lower[8], upper[8];
    struct format_key begin = key_make(from, lower), end_key = key_make(to, upper);
    struct format_key_copy after;
    uint64_t least = UINT64_MAX, expected = UINT64_MAX;
    bool end;
    if (model->merge_count + capacity > KEYS)
        return;
    struct unmerged_merge *merges = &model->merges[model->merge_count];
    uint32_t count =
        unmerged_take(model->table, model->slot, &begin, &end_key, merges, capacity, &after, &least, &end);
    unsigned stop = end ? to : key_number(format_key_of(&after)), taken = 0;
    assert_true(stop <= to && (end || count == capacity));
    for (unsigned k = from; k < stop; k++) {
        struct entry *entry = &model->entries[k];
        uint64_t one = least_of(model, entry);
        expected = one < expected ? one : expected;
        if (!entry->committed.present || entry->committed.ended || entry->merging)
            continue;
        assert_true(taken < count);
        assert_int_equal(key_number(merges[taken].key), k);
        assert_true(merges[taken].sequence == entry->committed.sequence);
        assert_int_equal(merges[taken].deleted, !entry->committed.value);
        if (entry->committed.value)
            assert_true(value_number(merges[taken].value, merges[taken].length) == entry->committed.value);
        entry->merging = true;
        entry->merged = entry->committed.sequence;
        taken++;
    }
    assert_int_equal(taken, count);
    assert_true(least == expected);
    model->merge_count += count;
}

static void leaf_put(struct model *model, struct entry *entry, uint64_t value, enum unmerged_end end)
{
    if (entry->leaf != value && end == UNMERGED_DONE)
        value_freed(model, entry->leaf);
    else if (entry->leaf != value)
        value_aside(model, entry->leaf);
    entry->leaf = value;
}

/* Any of those under way ends. */
static void op_merged(struct model *model)
{
    if (!model->merge_count)
        return;
    unsigned which = (unsigned)random_below(&model->random, model->merge_count);
    struct unmerged_merge *merge = &model->merges[which];
    struct entry *entry = &model->entries[key_number(merge->key)];
    const uint64_t value = merge->deleted ? 0 : value_number(merge->value, merge->length);
    const uint64_t luck = entry->dropped ? 0 : random_below(&model->random, 8);
    const enum unmerged_end end = luck < 2 ? UNMERGED_NOT_DONE : luck < 3 ? UNMERGED_PERHAPS : UNMERGED_DONE;
    assert_int_equal(unmerged_void(model->table, merge->key), entry->dropped);
    if (end == UNMERGED_PERHAPS)
        value_aside(model, value);
    if (end == UNMERGED_DONE || (end == UNMERGED_PERHAPS && random_chance(&model->random, 0.5)))
        leaf_put(model, entry, value, end);
    bool alone = unmerged_merged(model->table, model->slot, merge, end);
    assert_int_equal(alone, end == UNMERGED_NOT_DONE && entry->overtaken);
    if (alone)
        value_freed(model, value);
    if (entry->committed.present && entry->committed.sequence == merge->sequence) {
        entry->committed.present = end != UNMERGED_DONE;
        entry->committed.leafed |= end == UNMERGED_PERHAPS;
    }
    entry->merging = entry->dropped = entry->overtaken = false;
    *merge = model->merges[--model->merge_count];
}

static void op_settle(struct model *model)
{
    struct frame *frame = &model->frames[random_below(&model->random, FRAMES)];
    const uint64_t luck = random_below(&model->random, 10);
    enum unmerged_fate fate = luck < 6 ? UNMERGED_COMMITTED : luck < 8 ? UNMERGED_REFUSED : UNMERGED_UNKNOWN;
    frame_draw(model, frame);
    for (unsigned i = 0; i < frame->count; i++) {
        change_settled(model, frame, i, fate);
        if (!random_below(&model->random, 8)) /* other threads merge meanwhile */
            op_take(model);
        op_merged(model);
    }
    frame->count = 0;
    frame->drawn.first = UNMERGED_UNDRAWN;
}

static void op_adopt(struct model *model)
{
    unsigned number = (unsigned)random_below(&model->random, KEYS);
    struct entry *entry = &model->entries[number];
    uint8_t bytes[8], value[VALUE];
    if (entry->pending.present)
        return;
    uint64_t wanted = random_below(&model->random, 5) ? ++model->values : 0;
    struct format_key put = {value, wanted ? value_make(wanted, value) : 0};
    assert_true(
        unmerged_adopt(model->table, key_make(number, bytes), wanted ? &put : NULL, ++model->counter));
    value_aside(model, entry->committed.value);
    model->fates[wanted].committed = true;
    entry->committed =
        (struct held){.present = true, .leafed = true, .value = wanted, .sequence = model->counter};
}

static void op_drop(struct model *model)
{
    unsigned from = (unsigned)random_below(&model->random, KEYS);
    unsigned to = from + (unsigned)random_below(&model->random, 100) + 1;
    uint8_t lower[8], upper[8];
    struct format_key end = key_make(to, upper);
    to = to < KEYS ? to : KEYS;
    for (unsigned k = from; k < to; k++)
        if (model->entries[k].frame >= 0)
            return;
    unmerged_drop(model->table, model->slot, key_make(from, lower), to == KEYS ? NULL : &end);
    for (unsigned k = from; k < to; k++) {
        struct entry *entry = &model->entries[k];
        const bool held = entry->committed.present || entry->pending.present;
        entry->dropped |= entry->merging && held;
        value_aside(model, entry->committed.value); /* another process inherits it, and has the leaf */
        value_aside(model, entry->leaf);
        entry->leaf = 0;
        entry->committed = entry->pending = (struct held){0};
        entry->doubt = false;
    }
}

static void op_doubtful(struct model *model)
{
    unsigned from = (unsigned)random_below(&model->random, KEYS);
    uint8_t bytes[8];
    struct format_key_copy key;
    format_key_store(&key, key_make(from, bytes));
    bool found = unmerged_doubtful(model->table, model->slot, &key);
    for (; from < KEYS; from++)
        if (model->entries[from].pending.present && model->entries[from].frame < 0)
            break;
    assert_int_equal(found, from < KEYS);
    if (found)
        assert_int_equal(key_number(format_key_of(&key)), from);
}

/* All of a range, in as many runs as it takes. */
static void op_runs(struct model *model)
{
    unsigned from = (unsigned)random_below(&model->random, 100);
    unsigned to = KEYS - (unsigned)random_below(&model->random, 100);
    bool reverse = random_chance(&model->random, 0.5);
    struct unmerged_run run = {0};
    uint8_t lower[8], upper[8];
    struct format_key_copy begin, end;
    unsigned next = reverse ? to : from, runs = 0;
    format_key_store(&begin, key_make(from, lower));
    format_key_store(&end, key_make(to, upper));
    do {
        struct format_key a = format_key_of(&begin), b = format_key_of(&end);
        assert_true(unmerged_run(model->table, model->slot, &a, &b, reverse, &run));
        for (uint32_t i = 0; i < run.count; i++) {
            unsigned number = key_number(run.items[i].key);
            if (reverse)
                while (--next != number)
                    assert_true(next > from && !model->entries[next].committed.present);
            else
                for (; next != number; next++)
                    assert_true(next < to && !model->entries[next].committed.present);
            const struct held *held = &model->entries[number].committed;
            assert_true(held->present);
            assert_true(value_number(run.items[i].value.bytes, run.items[i].value.length) == held->value);
            next += !reverse;
        }
        if (!run.complete)
            *(reverse ? &end : &begin) = run.until;
        runs++;
    } while (!run.complete);
    while (reverse ? next > from : next < to) {
        next -= reverse;
        assert_false(model->entries[next].committed.present);
        next += !reverse;
    }
    unmerged_run_free(&run);
    assert_true(runs <= 1 + KEYS / UNMERGED_RUN_MAX);
}

/* The table or the leaf has it, so it was not freed. It counts as if it was from here on. */
static void value_held(struct model *model, uint64_t value)
{
    value_freed(model, value);
}

static void everything_ends(struct model *model)
{
    for (unsigned i = 0; i < FRAMES; i++) {
        struct frame *frame = &model->frames[i];
        frame_draw(model, frame);
        for (unsigned c = 0; c < frame->count; c++)
            change_settled(model, frame, c, UNMERGED_REFUSED);
    }
    while (model->merge_count)
        op_merged(model);
    for (unsigned k = 0; k < KEYS; k++) {
        struct entry *entry = &model->entries[k];
        value_held(model, entry->leaf);
        if (!entry->committed.present || entry->committed.value != entry->leaf)
            value_held(model, entry->committed.present ? entry->committed.value : 0);
    }
    for (uint64_t v = 1; v <= model->values; v++)
        assert_true(!model->fates[v].committed || model->fates[v].freed || model->fates[v].aside);
    unmerged_drop(model->table, model->slot, (struct format_key){0}, NULL);
    assert_int_equal(unmerged_count(model->table), 0);
    assert_int_equal(unmerged_bytes(model->table), 0);
}

static void step(struct model *model)
{
    uint64_t what = random_below(&model->random, 1000);
    if (what < 550)
        op_write(model,
                 (unsigned)random_below(&model->random, random_chance(&model->random, 0.3) ? 12 : KEYS));
    else if (what < 600)
        frame_draw(model, &model->frames[random_below(&model->random, FRAMES)]);
    else if (what < 660)
        op_settle(model);
    else if (what < 690)
        op_take(model);
    else if (what < 850)
        op_merged(model);
    else if (what < 900)
        op_adopt(model);
    else if (what < 905)
        op_drop(model);
    else if (what < 925)
        op_doubtful(model);
    else if (what < 935)
        op_runs(model);
    else
        check_find(model, (unsigned)random_below(&model->random, KEYS));
}

static void against_a_reference(void **state)
{
    (void)state;
    for (unsigned round = 0; round < world_rounds(20); round++) {
        struct model *model = calloc(1, sizeof *model);
        uint64_t seed = world_seed(round + 1);
        print_message("seed %llu\n", (unsigned long long)seed);
        random_seed(&model->random, seed);
        model->table = unmerged_create(VALUE);
        model->domain = epoch_domain_create();
        model->slot = epoch_slot_acquire(model->domain);
        for (unsigned k = 0; k < KEYS; k++)
            model->entries[k].frame = -1;
        for (unsigned i = 0; i < STEPS; i++)
            step(model);
        for (unsigned k = 0; k < KEYS; k++)
            check_find(model, k);
        everything_ends(model);
        epoch_slot_release(model->slot);
        unmerged_destroy(model->table);
        epoch_domain_destroy(model->domain);
        free(model);
    }
}

/* ---- who frees what (S3), step by step ---- */

struct steps {
    struct unmerged *table;
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    struct unmerged_frame frame;
    struct unmerged_write writes[3];
};

static void step_write(struct steps *steps, uint32_t index)
{
    uint8_t bytes[8], value[VALUE];
    bool busy;
    struct unmerged_node *node = unmerged_latch_try(steps->table, key_make(1, bytes), &busy);
    struct format_key put = {value, value_make(index + 1, value)};
    unmerged_write(steps->table, node, &put, &steps->frame, index, &steps->writes[index]);
    unmerged_unlatch(steps->table, steps->slot, node);
}

/* Whether the change's task frees what was there before. */
static bool step_settle(struct steps *steps, uint32_t index)
{
    unmerged_settle(steps->slot, &steps->writes[index], UNMERGED_COMMITTED);
    return steps->writes[index].replaced;
}

static uint32_t step_take(struct steps *steps, struct unmerged_merge *merge)
{
    struct format_key_copy after;
    uint64_t least = UINT64_MAX;
    bool end;
    return unmerged_take(steps->table, steps->slot, NULL, NULL, merge, 1, &after, &least, &end);
}

/* A first value is committed and, where `taken` is asked for, being merged. A frame has two more, of which
 * the first one is settled. */
static void steps_begin(struct steps *steps, struct unmerged_merge *taken)
{
    *steps = (struct steps){.table = unmerged_create(VALUE), .domain = epoch_domain_create()};
    steps->slot = epoch_slot_acquire(steps->domain);
    step_write(steps, 0);
    steps->frame.first = 2;
    assert_false(step_settle(steps, 0));
    assert_int_equal(taken ? step_take(steps, taken) : 1, 1);
    steps->frame.first = UNMERGED_UNDRAWN;
    step_write(steps, 1);
    step_write(steps, 2);
    steps->frame.first = 5;
    assert_int_equal(step_settle(steps, 1), !taken);
}

static void steps_end(struct steps *steps)
{
    epoch_slot_release(steps->slot);
    unmerged_destroy(steps->table);
    epoch_domain_destroy(steps->domain);
}

/* What was replaced, and is freed, is not merged before the rest of the frame is settled. */
static void ended(void **state)
{
    struct unmerged_merge merge;
    struct steps steps;
    (void)state;
    steps_begin(&steps, NULL);
    assert_int_equal(step_take(&steps, &merge), 0);
    assert_true(step_settle(&steps, 2));
    assert_int_equal(step_take(&steps, &merge), 1);
    assert_true(value_number(merge.value, merge.length) == 3);
    assert_false(unmerged_merged(steps.table, steps.slot, &merge, UNMERGED_DONE));
    steps_end(&steps);
}

/* What was replaced while it was being merged is the merging's to free, if that did nothing: before the rest
 * of the frame is settled, behind it, or when the range has left. */
static void overtaken(void **state)
{
    (void)state;
    for (unsigned when = 0; when < 3; when++)
        for (enum unmerged_end end = UNMERGED_DONE; end <= UNMERGED_PERHAPS; end++) {
            struct unmerged_merge merge, next;
            struct steps steps;
            steps_begin(&steps, &merge);
            if (when)
                assert_true(step_settle(&steps, 2));
            if (when == 2)
                unmerged_drop(steps.table, steps.slot, (struct format_key){0}, NULL);
            assert_int_equal(unmerged_merged(steps.table, steps.slot, &merge, end), end == UNMERGED_NOT_DONE);
            if (!when)
                assert_int_equal(step_take(&steps, &next), 0);
            if (!when)
                assert_true(step_settle(&steps, 2));
            assert_int_equal(step_take(&steps, &next), when < 2);
            steps_end(&steps);
        }
}

/* The value that was there before a doubtful one is logged again while it is being merged: it lives on. */
static void again(void **state)
{
    struct unmerged_merge merge;
    struct steps steps = {.table = unmerged_create(VALUE), .domain = epoch_domain_create()};
    uint8_t bytes[8], value[VALUE];
    struct format_key same = {value, value_make(1, value)};
    bool busy;
    (void)state;
    steps.slot = epoch_slot_acquire(steps.domain);
    step_write(&steps, 0);
    steps.frame.first = 2;
    assert_false(step_settle(&steps, 0));
    assert_int_equal(step_take(&steps, &merge), 1);
    step_write(&steps, 1);
    struct unmerged_node *node = unmerged_latch_try(steps.table, key_make(1, bytes), &busy);
    unmerged_mark(steps.table, node, true, false);
    unmerged_settle(steps.slot, &steps.writes[1], UNMERGED_UNKNOWN);
    unmerged_write(steps.table, node, &same, &steps.frame, 2, &steps.writes[2]);
    unmerged_mark(steps.table, node, false, true);
    unmerged_unlatch(steps.table, steps.slot, node);
    assert_false(step_settle(&steps, 2));
    assert_false(unmerged_merged(steps.table, steps.slot, &merge, UNMERGED_NOT_DONE));
    assert_int_equal(step_take(&steps, &merge), 1);
    assert_true(value_number(merge.value, merge.length) == 1);
    steps_end(&steps);
}

/* A merging that did nothing leaves its entry as it was: the write that replaces it frees it. */
static void not_done(void **state)
{
    struct unmerged_merge merge;
    struct steps steps;
    (void)state;
    for (enum unmerged_end end = UNMERGED_NOT_DONE; end <= UNMERGED_PERHAPS; end++) {
        steps = (struct steps){.table = unmerged_create(VALUE), .domain = epoch_domain_create()};
        steps.slot = epoch_slot_acquire(steps.domain);
        step_write(&steps, 0);
        steps.frame.first = 2;
        assert_false(step_settle(&steps, 0));
        assert_int_equal(step_take(&steps, &merge), 1);
        assert_false(unmerged_merged(steps.table, steps.slot, &merge, end));
        step_write(&steps, 1);
        assert_int_equal(step_settle(&steps, 1), end == UNMERGED_NOT_DONE);
        steps_end(&steps);
    }
}

/* ---- on threads ---- */

#define HOT     40u
#define WRITERS 2u
#define READERS 2u

struct shared {
    struct unmerged *table;
    struct epoch_domain *domain;
    uint64_t leaves[HOT];  /* atomic; a merger alone writes them */
    uint64_t inside[HOT];  /* of the latch: not atomic, the thread sanitizer looks */
    uint64_t counted[HOT]; /* atomic: committed increments */
    uint64_t counter;      /* atomic */
    uint32_t running;      /* atomic: writers */
};

struct hand {
    struct shared *shared;
    uint64_t seed;
    unsigned rounds;
};

static uint64_t look_at(struct shared *shared, unsigned number)
{
    uint8_t bytes[8], value[FORMAT_VALUE_MAX];
    uint32_t length;
    if (unmerged_find(shared->table, key_make(number, bytes), value, &length, 0, NULL) == UNMERGED_VALUE)
        return value_number(value, length);
    return atomic_load_acquire(&shared->leaves[number]); /* what was merged before it left the table */
}

static void hand_settle(struct shared *shared, struct epoch_slot *slot, struct frame *frame,
                        enum unmerged_fate fate)
{
    if (!frame->count)
        return;
    atomic_store_relaxed(&frame->drawn.first, UNMERGED_DRAWING);
    uint64_t first = __atomic_fetch_add(&shared->counter, frame->count, __ATOMIC_ACQ_REL) + 1;
    atomic_store_release(&frame->drawn.first, first);
    for (unsigned i = 0; i < frame->count; i++) {
        unmerged_settle(slot, &frame->changes[i].write, fate);
        if (fate == UNMERGED_COMMITTED)
            atomic_add_relaxed(&shared->counted[frame->changes[i].key], 1);
    }
    atomic_store_relaxed(&frame->drawn.first, UNMERGED_UNDRAWN);
    frame->count = 0;
}

static void hand_write(struct shared *shared, struct unmerged_node *node, unsigned number, uint64_t wanted,
                       struct frame *frame)
{
    uint8_t value[VALUE];
    struct format_key put = {value, value_make(wanted, value)};
    struct change *change = &frame->changes[frame->count];
    change->key = number;
    unmerged_write(shared->table, node, &put, &frame->drawn, frame->count++, &change->write);
}

/* Adds one to a key, in the open frame; that is settled first if the key is pending in the other writer's. */
static void hand_add(struct shared *shared, struct epoch_slot *slot, struct random *random,
                     struct frame *frame)
{
    unsigned number = random_below(random, 2) ? 0 : (unsigned)random_below(random, HOT);
    uint8_t bytes[8];
    bool busy;
    struct unmerged_node *node = unmerged_latch_try(shared->table, key_make(number, bytes), &busy);
    if (busy) { /* as operations do: no frame of this thread's is left open while it waits */
        bool taken = false;
        hand_settle(shared, slot, frame, UNMERGED_COMMITTED);
        node = unmerged_latch(shared->table, key_make(number, bytes), shared, &taken);
        assert_int_equal(taken, !node);
        if (taken) /* the latch's holder has added it */
            return;
    }
    struct unmerged_look look;
    for (;;) {
        shared->inside[number]++;
        unmerged_look(shared->table, node, &look);
        if (!look.frame || look.frame == &frame->drawn)
            break;
        hand_settle(shared, slot, frame, UNMERGED_COMMITTED);
        unmerged_await(shared->table, node);
    }
    uint64_t next = 1 + (look.found == UNMERGED_VALUE ? value_number(look.value, look.length)
                                                      : atomic_load_acquire(&shared->leaves[number]));
    hand_write(shared, node, number, next, frame);
    while (frame->count < CHANGES_MAX && unmerged_next_work(shared->table, node)) {
        uint32_t waits = unmerged_waits(shared->table, node);
        struct unmerged_wait *wait = unmerged_take_work(shared->table, node);
        assert_true(waits > 0 &&
                    unmerged_waits(shared->table, node) + 1 >= waits); /* others come meanwhile */
        hand_write(shared, node, number, ++next, frame);
        unmerged_work_done(wait);
    }
    shared->inside[number]++;
    unmerged_unlatch(shared->table, slot, node);
}

static void writer_run(void *context)
{
    struct hand *hand = context;
    struct shared *shared = hand->shared;
    struct epoch_slot *slot = epoch_slot_acquire(shared->domain);
    struct frame *frame = calloc(1, sizeof *frame);
    struct random random;
    random_seed(&random, hand->seed);
    for (unsigned i = 0; i < hand->rounds; i++) {
        hand_add(shared, slot, &random, frame);
        if (frame->count == CHANGES_MAX || !random_below(&random, 6))
            hand_settle(shared, slot, frame,
                        random_below(&random, 8) ? UNMERGED_COMMITTED : UNMERGED_REFUSED);
    }
    hand_settle(shared, slot, frame, UNMERGED_COMMITTED);
    free(frame);
    epoch_slot_release(slot);
    atomic_add_relaxed(&shared->running, (uint32_t)-1); /* joined later */
}

static bool merge_some(struct shared *shared, struct epoch_slot *slot, struct random *random)
{
    static struct unmerged_merge merges[HOT];
    struct format_key_copy after;
    uint64_t least = UINT64_MAX;
    bool end;
    uint32_t count = unmerged_take(shared->table, slot, NULL, NULL, merges, HOT, &after, &least, &end);
    for (uint32_t i = 0; i < count; i++) {
        const enum unmerged_end how = random_below(random, 8) ? UNMERGED_DONE : UNMERGED_NOT_DONE;
        unsigned number = key_number(merges[i].key);
        uint64_t value = value_number(merges[i].value, merges[i].length);
        assert_true(value >= shared->leaves[number]);
        if (how == UNMERGED_DONE) /* release: before it leaves the table */
            atomic_store_release(&shared->leaves[number], value);
        unmerged_merged(shared->table, slot, &merges[i], how);
    }
    return count;
}

static void merger_run(void *context)
{
    struct hand *hand = context;
    struct epoch_slot *slot = epoch_slot_acquire(hand->shared->domain);
    struct random random;
    random_seed(&random, hand->seed);
    while (atomic_load_acquire(&hand->shared->running) || unmerged_count(hand->shared->table)) {
        merge_some(hand->shared, slot, &random);
        task_yield();
    }
    epoch_slot_release(slot);
}

static void scan_all(struct shared *shared, struct epoch_slot *slot, bool reverse, uint64_t *seen)
{
    struct unmerged_run run = {0};
    assert_true(unmerged_run(shared->table, slot, NULL, NULL, reverse, &run));
    for (uint32_t i = 0; i < run.count; i++) {
        unsigned number = key_number(run.items[i].key);
        uint64_t value = value_number(run.items[i].value.bytes, run.items[i].value.length);
        assert_true(value >= seen[number]);
        seen[number] = value;
    }
    unmerged_run_free(&run);
}

static void reader_run(void *context)
{
    struct hand *hand = context;
    struct shared *shared = hand->shared;
    struct epoch_slot *slot = epoch_slot_acquire(shared->domain);
    uint64_t seen[HOT] = {0};
    struct random random;
    random_seed(&random, hand->seed);
    while (atomic_load_acquire(&shared->running)) {
        for (unsigned i = 0; i < 50; i++) {
            unsigned number = (unsigned)random_below(&random, HOT);
            uint64_t value = look_at(shared, number);
            assert_true(value >= seen[number]);
            seen[number] = value;
        }
        scan_all(shared, slot, random_chance(&random, 0.5), seen);
    }
    epoch_slot_release(slot);
}

static void on_threads(void **state)
{
    struct shared shared = {.running = WRITERS};
    struct hand hands[WRITERS + READERS + 1];
    struct thread *threads[WRITERS + READERS + 1];
    struct error error = {0};
    (void)state;
    shared.table = unmerged_create(VALUE);
    shared.domain = epoch_domain_create();
    for (unsigned i = 0; i < WRITERS + READERS + 1; i++) {
        hands[i] = (struct hand){&shared, world_seed(i + 1), world_rounds(20000)};
        assert_int_equal(thread_start(&threads[i],
                                      i < WRITERS             ? writer_run
                                      : i < WRITERS + READERS ? reader_run
                                                              : merger_run,
                                      &hands[i], &error),
                         0);
    }
    for (unsigned i = 0; i < WRITERS + READERS + 1; i++)
        thread_join(threads[i]);
    for (unsigned k = 0; k < HOT; k++) /* nothing is lost, and nothing refused is there */
        assert_true(shared.leaves[k] == shared.counted[k]);
    assert_int_equal(unmerged_count(shared.table), 0);
    assert_int_equal(unmerged_bytes(shared.table), 0);
    unmerged_destroy(shared.table);
    epoch_domain_destroy(shared.domain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_reference),
        cmocka_unit_test(ended),
        cmocka_unit_test(overtaken),
        cmocka_unit_test(not_done),
        cmocka_unit_test(again),
        cmocka_unit_test(on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
